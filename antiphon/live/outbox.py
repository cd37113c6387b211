"""What the application hands in and waits to be admitted.

Nothing is handed to the protocol while the member has stepped aside, and `hand_in` waits while too much
waits already.
"""

import asyncio
from collections import deque
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.packing import Destinations
from antiphon.core.time import MILLISECOND_NS
from antiphon.live.inbox import Inbox
from antiphon.live.machine import REAL, Machine
from antiphon.live.member import Member
from antiphon.live.peers import Holdups
from antiphon.live.pieces import BATCH_BYTES, LARGEST_MESSAGE_BYTES, Outgoing
from antiphon.live.standing import Standing

LATELY_NS: Final = MILLISECOND_NS
"""Whoever has sent something within this time is taken to go on, and what it hands in is collected."""


class Outbox:
    """Messages on their way to the protocol, numbered as they come."""

    def __init__(
        self, *, standing: Standing, inbox: Inbox, most_bytes: int, selective: bool, machine: Machine = REAL
    ) -> None:
        """`most_bytes` may wait before whoever hands in more has to wait."""
        self.next_number = 0
        self.batch_bytes = BATCH_BYTES
        self.is_pumping = False
        """Whether something waits, and is handed in now or when that can be tried again."""
        self._standing: Final = standing
        self._inbox: Final = inbox
        self._most_bytes: Final = most_bytes
        self._selective: Final = selective
        self._now_ns: Final = machine.now_ns
        self._outgoing = Outgoing(selective=selective)
        self._member: Member | None = None
        self._pumped_ns = 0
        self.holdups: Final = Holdups(self._waited_for)
        self._room: deque[asyncio.Future[None]] = deque()

    def open(self, member: Member, next_number: int, batch_bytes: int) -> None:
        """From now on this member takes what is handed in, in batches of at most so many bytes."""
        self._member = member
        self.batch_bytes = batch_bytes
        self._outgoing = Outgoing(member.batch_bytes(batch_bytes), selective=self._selective)
        self.next_number = next_number

    def close(self) -> None:
        """Let those who wait find out that the membership is over."""
        self._make_room()

    @property
    def waiting_bytes(self) -> int:
        return self._outgoing.size

    # What the application hands in

    async def hand_in(self, bodies: list[bytes], to: Destinations, group: Group | None) -> int:
        """Take messages; the number of the first piece of the first one."""
        longest = max(map(len, bodies))
        if longest > LARGEST_MESSAGE_BYTES:
            raise UsageError(
                f"A message of {longest} bytes is too long.",
                hint=f"The longest has {LARGEST_MESSAGE_BYTES} bytes; send it in parts.",
            )
        self._standing.require_in()
        if self._outgoing.size >= self._most_bytes:
            await self._wait_until_open()
        first = self.next_number
        self._note_waiting(self._outgoing.add(bodies, to, group))
        return first

    async def hand_in_records(
        self, records: memoryview, size: int, to: Destinations, group: Group | None
    ) -> None:
        share = max(1, self._most_bytes // size) * size
        for begin in range(0, len(records), share):
            self._standing.require_in()
            if self._outgoing.size >= self._most_bytes:
                await self._wait_until_open()
            some = records[begin : begin + share]
            self._note_waiting(self._outgoing.add_records(some, size, to, group))

    async def _wait_until_open(self) -> None:
        while self._outgoing.size >= self._most_bytes:
            await self._wait_for_room()
            self._standing.require_in()

    async def wait_until_empty(self) -> None:
        while self._outgoing:
            await self._wait_for_room()
            self._standing.require_in()

    async def _wait_for_room(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.append(future)
        await future

    def _make_room(self) -> None:
        while self._room:
            future = self._room.popleft()
            if not future.done():
                future.set_result(None)

    # What the member takes

    def _note_waiting(self, numbers: int) -> None:
        """Something waits to be admitted: at once if nothing was lately, so that it is not late.

        Otherwise once the caller has handed in all that it has at hand, so that it travels together.
        """
        self.next_number += numbers
        if self.is_pumping:
            return
        self.is_pumping = True
        now = self._now_ns()
        if now - self._pumped_ns > LATELY_NS:
            self.pump()
        else:
            asyncio.get_running_loop().call_soon(self.pump)
        self._pumped_ns = now

    def _waited_for(self) -> list[Site]:
        """Those for whose sake nothing is taken now, as far as the protocol can tell."""
        assert self._member is not None
        return [site for site, report in self._member.peers().items() if report.holds_us_up]

    def pump(self) -> None:
        """Hand on what waits, batch by batch, until one is refused."""
        member, outgoing = self._member, self._outgoing
        assert member is not None
        outgoing.limit(member.batch_bytes(self.batch_bytes))
        while outgoing and not self._inbox.is_aside and not self._standing.is_out:
            if not member.admit(*outgoing.first()):
                self.holdups.refused(self._now_ns())
                break
            outgoing.take()
            self.holdups.taken(self._now_ns())
        self.is_pumping = bool(outgoing)
        if outgoing.size < self._most_bytes:
            self._make_room()
