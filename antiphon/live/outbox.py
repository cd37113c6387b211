"""The outbox: messages that the application has handed in and the protocol has not admitted yet.

Nothing is handed to the protocol while the member is absent because of a slow application. `hand_in` waits
while too much is queued.

The sender's way, from `group.send` to the socket:

1. `Group.send` (`group`) validates the destinations and awaits `Outbox.hand_in`.
2. `Outbox.hand_in` waits while `most_bytes` are queued: that is the backpressure. It adds the message to
   `Outgoing` (`pieces`), which packs batches and cuts long messages, and runs `Outbox.pump` at once or soon.
3. `Outbox.pump` offers batch after batch to `Member.admit` (`member`) until one is refused.
   `GroupListener.stepped` (`listener`) pumps again after the member has received datagrams or was woken by a
   timer.
4. `Member.admit` refuses while `Transport.is_clear` is false. Otherwise `Member._carry_out` calls
   `protocol.handle(now, Admit(...))`; a protocol that cannot take the batch answers `Rejected`.
5. `Member._carry_out` carries out the effects in their order. `Admitted` is written to the trace, `Send` and
   `Multicast` are collected; `Member._let_go` passes these to the transport.
6. `Transport.send` and `Transport.multicast` (`transport`) find the addresses. `Framer` (`framing`) encodes
   the PDU and seals it once, and cuts it into fragments if it does not fit a datagram.
7. Where sending is paced, `Pacer` (`pacing`) queues PDUs with bodies, and PDUs behind them, and calls
   `Transport._transmit` at the congestion controller's rate. On loopback without a rate this hop is skipped.
8. `Transport._hand_over` calls `Sockets.send`, `send_two` or `send_fragments` (`sockets`): the system call.

`inbox` has the receiver's way.
"""

import asyncio
from collections import deque
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.packing import Destinations
from antiphon.core.time import MILLISECOND_NS
from antiphon.live.inbox import Inbox
from antiphon.live.lifecycle import Lifecycle
from antiphon.live.machine import REAL, Machine
from antiphon.live.member import Member
from antiphon.live.peers import Holdups
from antiphon.live.pieces import BATCH_BYTES, LARGEST_MESSAGE_BYTES, Outgoing

RECENT_NS: Final = MILLISECOND_NS
"""After a batch within this time the next messages are collected first. Raising it costs latency."""


class Outbox:
    """Messages on their way to the protocol, numbered in the order in which they are handed in."""

    def __init__(
        self, *, lifecycle: Lifecycle, inbox: Inbox, most_bytes: int, selective: bool, machine: Machine = REAL
    ) -> None:
        """`hand_in` waits while `most_bytes` are queued."""
        self.next_number = 0
        self.batch_bytes = BATCH_BYTES
        self.is_pumping = False
        """Whether something is queued, and will be offered now or after the member's next step."""
        self._lifecycle: Final = lifecycle
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
        """Connect the member; batches have at most `batch_bytes`."""
        self._member = member
        self.batch_bytes = batch_bytes
        self._outgoing = Outgoing(member.batch_bytes(batch_bytes), selective=self._selective)
        self.next_number = next_number

    def close(self) -> None:
        """Wake the waiting calls: they find that the membership is over."""
        self._make_room()

    @property
    def waiting_bytes(self) -> int:
        return self._outgoing.size

    # What the application hands in

    async def hand_in(self, bodies: list[bytes], to: Destinations, group: Group | None) -> int:
        """Queue messages. Returns the number of the first piece of the first message."""
        longest = max(map(len, bodies))
        if longest > LARGEST_MESSAGE_BYTES:
            raise UsageError(
                f"A message of {longest} bytes is too long.",
                hint=f"The longest has {LARGEST_MESSAGE_BYTES} bytes; send it in parts.",
            )
        self._lifecycle.require_in()
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
            self._lifecycle.require_in()
            if self._outgoing.size >= self._most_bytes:
                await self._wait_until_open()
            some = records[begin : begin + share]
            self._note_waiting(self._outgoing.add_records(some, size, to, group))

    async def _wait_until_open(self) -> None:
        while self._outgoing.size >= self._most_bytes:
            await self._wait_for_room()
            self._lifecycle.require_in()

    async def wait_until_empty(self) -> None:
        while self._outgoing:
            await self._wait_for_room()
            self._lifecycle.require_in()

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
        """Offer what is queued: at once if the last offer is some time ago, for low latency.

        Otherwise when the caller yields, so that everything that it hands in by then travels together.
        """
        self.next_number += numbers
        if self.is_pumping:
            return
        self.is_pumping = True
        now = self._now_ns()
        if now - self._pumped_ns > RECENT_NS:
            self.pump()
        else:
            asyncio.get_running_loop().call_soon(self.pump)
        self._pumped_ns = now

    def _waited_for(self) -> list[Site]:
        """The members that the protocol says it is waiting for."""
        assert self._member is not None
        return [site for site, report in self._member.peers().items() if report.holds_us_up]

    def pump(self) -> None:
        """Offer batch after batch to the member until one is refused."""
        member, outgoing = self._member, self._outgoing
        assert member is not None
        outgoing.limit(member.batch_bytes(self.batch_bytes))
        while outgoing and not self._inbox.is_aside and not self._lifecycle.is_out:
            if not member.admit(*outgoing.first()):
                self.holdups.refused(self._now_ns())
                break
            outgoing.take()
            self.holdups.taken(self._now_ns())
        self.is_pumping = bool(outgoing)
        if outgoing.size < self._most_bytes:
            self._make_room()
