"""A live group, as an application sees it: join, send, iterate over what is delivered, leave.

    async with antiphon.join("orders", name="alice") as group:
        await group.send(b"hello")
        async for message in group:
            print(message.sender, message.body)

Nothing here grows without limit. `send` waits while the group cannot take more. An application that reads
too slowly first slows the group down; if it has not caught up after `patience_s`, its member goes absent
until the queue has drained, and says so: the others go on.
"""

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Any, Final

from antiphon.core import effects as fx
from antiphon.core.errors import AntiphonError, OutputError, UsageError
from antiphon.core.ids import Group as GroupName
from antiphon.core.ids import Site
from antiphon.core.inputs import JoinGroup, LeaveGroup, Start
from antiphon.core.packing import Destinations, Packed, pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Codec
from antiphon.live.boards import GroupsBoard, LeftError, MissedError, PresenceBoard, StabilityBoard
from antiphon.live.counters import Counters
from antiphon.live.figures import Figures, Watch
from antiphon.live.history import HistoryLog, delivered_before
from antiphon.live.keys import KeyRing
from antiphon.live.limits import LONGEST_NAME_BYTES, Limits
from antiphon.live.member import Member
from antiphon.live.messages import Batch, Message, Presence
from antiphon.live.networks import Network
from antiphon.live.orders import (
    DEFAULT_SERVICE,
    AcrossOptions,
    Order,
    Settings,
    StabilityOptions,
    find_order,
)
from antiphon.live.pieces import LARGEST_MESSAGE_BYTES, LARGEST_PIECE_BYTES, Incoming, Outgoing
from antiphon.live.transport import Transport
from antiphon.protocols.fifo import HistoryRole
from antiphon.trace.files import note_run
from antiphon.trace.schema import Run
from antiphon.trace.segments import SegmentRecorder

LATELY_NS: Final = MILLISECOND_NS
"""Whoever has sent something within this time is taken to go on, and what it hands in is collected."""
AT_ONCE: Final = 16
"""Messages of `send_many` that are taken before it looks again whether there is room."""
PROOF_S: Final = 0.03
"""Time for the members of a keyed group to prove to one another that they are no recordings."""
HUNGRY: Final = 0.25
"""History waits while more than this share of the queue's limit waits for the application."""
DRAINED: Final = 0.5
"""A full queue counts as drained when it is down to this share of its limit."""


class Group:
    """One member's view of its group; made by `join`."""

    def __init__(
        self,
        group: GroupName,
        site: Site,
        *,
        options: dict[str, Any],
        stability: StabilityOptions,
        across: AcrossOptions,
        role: HistoryRole,
        archive: tuple[Path, int] | None,
        network: Network,
        keys: KeyRing | None,
        trace: Path | None,
        run: str,
        limits: Limits,
    ) -> None:
        self.group: Final = group
        self.name: Final = site
        self.order: Final[str] = options["order"]
        self.pressed = False
        """Whether the application reads so slowly that bodies are not taken in."""
        self._options = options
        self._stability_options = stability
        self._across = across
        self._role = role
        self._archive = archive
        self._history: HistoryLog | None = None
        self._caught_up = asyncio.Event()
        self._history_complete = False
        self._network = network
        self._keys = keys
        self._trace = trace
        self._run = run
        self._limits = limits
        self._figures = Figures()
        self._watch = Watch()
        self._counters = Counters()
        self._stability = StabilityBoard()
        self._presence = PresenceBoard()
        self._member: Member | None = None
        self._transport: Transport | None = None
        self._recorder: SegmentRecorder | None = None
        self._error: BaseException | None = None
        self._objection = ""
        """What stands between this member and another one, as it was found last."""
        self._left = False
        self._taking_part = asyncio.Event()
        self._order = find_order(self.order)
        self._outgoing = Outgoing(selective=self._order.selective)
        self._groups = GroupsBoard()
        self._next_number = 0
        self._admitted_to = 0
        self._pumping = False
        self._pumped_ns = 0
        self._room: deque[asyncio.Future[None]] = deque()
        self._incoming = Incoming()
        self._inbox: deque[Batch] = deque()
        self._queued_bytes = 0
        self._news = asyncio.Event()
        self._stepping_aside: asyncio.TimerHandle | None = None
        self._aside = False

    # Coming and going

    async def __aenter__(self) -> "Group":
        if self._member is not None:
            raise UsageError("This group was joined before.", hint="Call antiphon.join again.")
        await self._open_history()
        try:
            self._open(find_order(self.order))
        except BaseException:
            if self._history is not None:
                self._history.close()
            raise
        assert self._member is not None
        returning = self._recorder is not None and self._recorder.returning
        self._next_number = self._recorder.next_number if self._recorder is not None else 0
        self._stability.begin(self.name, self._next_number)
        # The clock makes a later incarnation the greater one, without anything kept on disk.
        incarnation = time.time_ns() // MILLISECOND_NS
        self._member.listen()
        try:
            if self._keys is not None:
                await asyncio.sleep(PROOF_S)
            delivered = await self._delivered_before() if returning and self._role.catches_up else None
            self._member.start(Start(incarnation, self._next_number, returning, delivered))
            await asyncio.wait_for(self._taking_part.wait(), self._limits.join_s)
            self._require_in()
        except TimeoutError:
            error = self._no_answer()
            self._close(error)
            raise error from None
        except BaseException as error:
            self._close(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(linger=kind is None)

    async def leave(self, *, linger: bool = True) -> None:
        """Tell the others and go; first wait, for a while, until everyone holds what this member sent."""
        if self._left or self._member is None:
            return
        if linger:
            await self.settle()
        if not self._left:
            self._member.depart()
            self._close(LeftError(f"'{self.name}' has left '{self.group}'."))

    async def finish(self) -> None:
        """End the membership because the whole run is over, and nobody will send any more.

        A leave is an absence in the trace, after which nothing is expected of this member. This end is none,
        so the audit holds the member to every message of the run.
        """
        if not self._left and self._member is not None:
            await self.settle()
            self._close(LeftError(f"The run of '{self.group}' is over."))

    async def settle(self) -> None:
        """Wait, at most `linger_s`, until everyone holds what this member sent."""
        with contextlib.suppress(TimeoutError, AntiphonError):
            await asyncio.wait_for(self._settle(), self._limits.linger_s)

    async def _settle(self) -> None:
        """Until all that was handed in is stable."""
        while self._outgoing:
            await self._wait_for_room()
            self._require_in()
        while self._next_number > self._stability.limit(self.name) and self._figures.admitted_messages:
            await self._stability.wait(self.name, self._stability.limit(self.name))

    def _open(self, order: Order) -> None:
        """The sockets, the trace and the protocol; what cannot be had is said before anything is sent."""
        on_lan = self._options.get("service") == "lan"
        echoes = on_lan and self._network.is_loopback
        transport = Transport(
            site=self.name, group=self.group, codec=Codec(order.pdus),
            network=self._network, keys=self._keys, counters=self._counters,
            notice_losses=on_lan, echoed=order.echoed if echoes else (),
        )  # fmt: skip
        settings = Settings(
            site=self.name, sequencer=self._options["sequencer"], repair=self._options["repair"],
            receive_buffer_bytes=transport.receive_buffer_bytes, random=SystemRandom(),
            stability=self._stability_options, across=self._across, history=self._role,
            service=self._options.get("service", DEFAULT_SERVICE), secret=self.group.encode(),
            hears_itself=echoes and transport.notices_losses,
        )  # fmt: skip
        try:
            protocol = order.build(settings)
            if self._trace is not None:
                self._recorder = SegmentRecorder(self._trace, self._run, self.name)
                promises = order.promises(settings.repair, self._across)
                parameters = json.dumps(self._options)
                note_run(self._trace, Run(self._run, order.name, promises, None, parameters))
        except BaseException:
            transport.close()
            if self._recorder is not None:
                self._recorder.close()
            raise
        self._transport = transport
        self._member = Member(
            site=self.name, group=self.group, protocol=protocol, transport=transport,
            recorder=self._recorder, listener=self, history=self._history,
        )  # fmt: skip

    def _no_answer(self) -> LeftError:
        orderer = self._options["sequencer"]
        who = f"its sequencer '{orderer}' did not answer" if orderer else "nobody let it in"
        told = f"'{self.name}' could not join '{self.group}': {who} for {self._limits.join_s:g} s."
        if self._objection:
            return LeftError(f"{told} {self._objection}", "Tell all of them the same.")
        return LeftError(told, "Is that member up, on the same network, with the same key?")

    def _close(self, why: BaseException) -> None:
        """The end; whoever waits for something that cannot come any more is told why."""
        assert self._member is not None
        assert self._transport is not None
        self._left = True
        self._member.stop()
        self._transport.close()
        if self._stepping_aside is not None:
            self._stepping_aside.cancel()
        if self._recorder is not None:
            try:
                self._recorder.close()
            except OutputError as error:
                self._error = self._error or error
        if self._history is not None:
            self._history.close()
        self._stability.close(why)
        self._presence.close(why)
        self._caught_up.set()
        self._groups.close(why)
        self._make_room()
        self._news.set()
        self._taking_part.set()

    def failed(self, error: BaseException) -> None:
        self._error = error
        self._close(error)

    def _require_in(self) -> None:
        if self._error is not None:
            raise self._error
        if self._left or self._member is None:
            raise LeftError(
                f"'{self.name}' is not in '{self.group}'.", "Join with: async with antiphon.join(...)."
            )

    # Who is there

    @property
    def members(self) -> frozenset[Site]:
        """The members that count, this one included."""
        return frozenset(self._presence.others | {self.name})

    async def wait_for_members(self, count: int) -> None:
        """Wait until that many members count, this one included."""
        self._require_in()
        await self._presence.wait_for(count - 1)

    def presence(self) -> AsyncIterator[Presence]:
        """Who appears and vanishes, beginning with those who are there; ends when this member leaves."""
        self._require_in()
        return self._presence.read()

    def doubted(self, effect: fx.Disagreed | fx.Unavailable) -> None:
        """The promise of one order, delivered whole, is broken as far as members can tell themselves."""
        named = (
            "" if effect.sender is None else f" The first message concerned: {effect.sender}:{effect.number}."
        )
        if isinstance(effect, fx.Disagreed):
            self._objection = f"'{effect.other}' was heard. {effect.reason}"
            self._presence.post(Presence("disagreed", effect.other, effect.reason + named))
        else:
            self._presence.post(Presence("unavailable", self.name, effect.reason + named))

    def noted(self, effect: fx.Absent | fx.Present | fx.Appeared | fx.Vanished | fx.CaughtUp) -> None:
        match effect:
            case fx.Appeared(site=site):
                self._presence.post(Presence("appeared", site))
            case fx.Vanished(site=site, reason=reason):
                self._incoming.vanish(site)
                self._presence.post(Presence("vanished", site, reason))
            case fx.Absent():
                self._figures.absences += 1
                self._watch.forget()
                self._stability.fail(
                    MissedError("Whether the message is stable is unknown: this member was absent.")
                )
                self._stability.begin(self.name, self._admitted_to)
            case fx.Present() if self._taking_part.is_set():
                self._presence.post(Presence("missed", self.name, "This member was absent for a while."))
            case fx.Present():
                self._taking_part.set()
            case fx.CaughtUp(complete=complete, reason=reason):
                self._history_complete = complete
                self._caught_up.set()
                self._presence.post(Presence("history", self.name, reason))

    # Several groups

    @property
    def groups(self) -> frozenset[GroupName]:
        """With 'total-across': the groups that this member is in."""
        return frozenset(self._groups.joined)

    async def enter(self, group: GroupName) -> None:
        """With 'total-across': be in one more group; its messages are delivered here from then on."""
        if group not in self._groups.joined:
            await self._change(JoinGroup(group), "join")

    async def exit(self, group: GroupName) -> None:
        """With 'total-across': be in a group no more."""
        if group in self._groups.joined:
            await self._change(LeaveGroup(group), "leave")

    async def _change(self, event: JoinGroup | LeaveGroup, verb: str) -> None:
        self._require_in()
        if not self._order.several:
            raise UsageError(f"The order '{self.order}' knows one group.", hint="Choose 'total-across'.")
        _require_group_name(event.group)
        assert self._member is not None
        with self._groups.expect(event.group) as changed:
            self._member.change(event)
            try:
                await asyncio.wait_for(changed, self._limits.join_s)
            except TimeoutError:
                raise LeftError(f"'{self.name}' could not {verb} '{event.group}': nobody answered.") from None

    def grouped(self, effect: fx.Joined | fx.Left) -> None:
        self._groups.note(effect.group, joined=isinstance(effect, fx.Joined))

    # History

    async def wait_for_history(self) -> bool:
        """Wait until a member that joined with `catch_up` has been given the history.

        False if it had to go on without: nobody who keeps one was there, or could say enough of it. The
        history comes before all other messages; somebody has to read it, or it waits.
        """
        if not self._role.catches_up:
            raise UsageError(f"'{self.name}' did not ask for history.", hint="Join with catch_up=True.")
        self._require_in()
        await self._caught_up.wait()
        self._require_in()
        return self._history_complete

    async def _open_history(self) -> None:
        """Reading the end of an earlier log may take a moment."""
        if self._archive is not None:
            folder, most_bytes = self._archive
            self._history = await asyncio.to_thread(HistoryLog, folder, self.group, self.name, most_bytes)

    async def _delivered_before(self) -> Mapping[Site, int]:
        assert self._trace is not None, "only a trace tells that a member returns"
        return await asyncio.to_thread(delivered_before, self._trace, self._run, self.name)

    def history_failed(self, reason: str) -> None:
        self._presence.post(Presence("history", self.name, reason))

    def has_room(self) -> bool:
        return self._queued_bytes < HUNGRY * self._limits.queue_bytes

    # Sending

    async def send(
        self,
        body: bytes | bytearray | memoryview,
        *,
        to: Collection[Site] | None = None,
        group: GroupName | None = None,
    ) -> Message:
        """Multicast a message, to all or to the members named; waits while the group cannot take more.

        With 'total-across' it goes to the members of one `group` of several.
        """
        data = body if type(body) is bytes else bytes(body)
        destinations = self._destinations(to, group)
        await self._hand_in([data], destinations, group)
        return Message(self.name, self._next_number - 1, data, self._stability.wait, destinations, group)

    async def send_many(
        self,
        bodies: Iterable[bytes | bytearray | memoryview],
        *,
        to: Collection[Site] | None = None,
        group: GroupName | None = None,
    ) -> None:
        """Multicast several messages, one after another; waits while the group cannot take more."""
        destinations = self._destinations(to, group)
        rest = iter(bodies)
        while some := [body if type(body) is bytes else bytes(body) for body in islice(rest, AT_ONCE)]:
            await self._hand_in(some, destinations, group)

    def _destinations(self, to: Collection[Site] | None, group: GroupName | None) -> Destinations:
        """To whom something goes, if those are members; an order that sends selectively names them all."""
        if self._order.several != (group is not None):
            raise UsageError(
                f"The order '{self.order}' knows " + ("several groups." if group is None else "one group."),
                hint="Say which with group=." if group is None else "Leave group= out.",
            )
        if group is not None:
            _require_group_name(group)
        if to is not None and group is not None:
            raise UsageError("A message to a group goes to all of its members.", hint="Leave to= out.")
        if to is None:
            return self.members if self._order.selective else None
        if isinstance(to, str):
            raise UsageError(f"{to!r} is not a set of members.", hint=f"Write to={{{to!r}}}.")
        destinations = frozenset(to)
        if not destinations:
            raise UsageError("A message needs somebody to go to.", hint="Leave to= out to reach everyone.")
        for site in sorted(destinations - self.members):
            raise UsageError(
                f"'{site}' is no member of '{self.group}' that counts now.",
                hint=f"There are: {', '.join(sorted(self.members))}. See wait_for_members and presence.",
            )
        return destinations

    async def send_records(
        self,
        records: bytes | bytearray | memoryview,
        size: int,
        *,
        to: Collection[Site] | None = None,
        group: GroupName | None = None,
    ) -> None:
        """Multicast messages of `size` bytes each that lie one after another in one buffer.

        Much less work a message than one by one, where they come like that: samples, ticks, rows of an array.
        """
        view = memoryview(records).cast("B")
        if not 1 <= size <= LARGEST_PIECE_BYTES or len(view) % size:
            raise UsageError(
                f"{len(view)} bytes are not records of {size} bytes each.",
                hint=f"A record has 1 to {LARGEST_PIECE_BYTES} bytes, and the last one is as long as all.",
            )
        destinations = self._destinations(to, group)
        share = max(1, self._limits.outgoing_bytes // size) * size
        for begin in range(0, len(view), share):
            await self._wait_until_open()
            some = view[begin : begin + share]
            self._note_waiting(self._outgoing.add_records(some, size, destinations, group))

    async def _hand_in(
        self, bodies: list[bytes], destinations: Destinations, group: GroupName | None
    ) -> None:
        longest = max(map(len, bodies))
        if longest > LARGEST_MESSAGE_BYTES:
            raise UsageError(
                f"A message of {longest} bytes is too long.",
                hint=f"The longest has {LARGEST_MESSAGE_BYTES} bytes; send it in parts.",
            )
        await self._wait_until_open()
        self._note_waiting(self._outgoing.add(bodies, destinations, group))

    async def _wait_until_open(self) -> None:
        self._require_in()
        while self._outgoing.size >= self._limits.outgoing_bytes:
            await self._wait_for_room()
            self._require_in()

    def _note_waiting(self, numbers: int) -> None:
        """Something waits to be admitted: at once if nothing was lately, so that it is not late.

        Otherwise once the caller has handed in all that it has at hand, so that it travels together.
        """
        self._next_number += numbers
        if self._pumping:
            return
        self._pumping = True
        now = time.monotonic_ns()
        if now - self._pumped_ns > LATELY_NS:
            self._pump()
        else:
            asyncio.get_running_loop().call_soon(self._pump)
        self._pumped_ns = now

    def _pump(self) -> None:
        """Hand in what waits, batch by batch, until one is refused."""
        member, outgoing = self._member, self._outgoing
        assert member is not None
        while outgoing and not self._aside and not self._left:
            if not member.admit(*outgoing.first()):
                break
            outgoing.take()
        self._pumping = bool(outgoing)
        if outgoing.size < self._limits.outgoing_bytes:
            self._make_room()

    async def _wait_for_room(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.append(future)
        await future

    def _make_room(self) -> None:
        while self._room:
            future = self._room.popleft()
            if not future.done():
                future.set_result(None)

    def stepped(self) -> None:
        """Something has happened: what was refused may be taken now."""
        if self._pumping:
            self._pump()

    def admitted(self, effect: fx.Admitted) -> None:
        self._figures.admitted_messages += effect.count
        self._admitted_to = effect.number + effect.count
        self._watch.admitted(effect.number + effect.count, time.monotonic_ns())

    def stable(self, effect: fx.Stable) -> None:
        end = effect.number + effect.count
        self._figures.stable_messages += effect.count
        if effect.sender == self.name and (self._order.selective or self._order.several):
            self._stability.settle(self.name, effect.number, end)
        else:
            self._stability.advance(effect.sender, end)
        if effect.sender == self.name:
            self._watch.stable(end, time.monotonic_ns())

    # Receiving

    async def __aiter__(self) -> AsyncIterator[Message]:
        async for batch in self.batches():
            for message in batch:
                yield message

    async def batches(self) -> AsyncIterator[Batch]:
        """Messages as they travelled together: much less work a message than one by one.

        After a leave, what was delivered before it can still be read.
        """
        while True:
            while self._inbox:
                batch = self._inbox.popleft()
                self._queued_bytes -= batch.size
                if self.pressed:
                    self._relax()
                yield batch
            if self._error is not None:
                raise self._error
            if self._left:
                return
            self._news.clear()
            await self._news.wait()

    def delivered(self, effect: fx.Deliver, places: Sequence[int] | None) -> None:
        sender, number, bodies = effect.sender, effect.number, effect.bodies
        if type(bodies) is not Packed:
            bodies = pack(bodies)
        if sender == self.name:
            self._watch.delivered(number + len(bodies), time.monotonic_ns())
        if places is not None and len(places) < len(bodies):
            self._deliver_some(effect, bodies, places)
            return
        self._count_delivered(len(bodies), bodies.size)
        if bodies.continuing or bodies.unfinished or self._incoming.size:
            whole = self._incoming.take(sender, number, bodies)
            if whole is None:
                return
            number, bodies = whole
        numbers = range(number, number + len(bodies))
        to = effect.destinations if bodies.addresses is None else bodies.addresses.each()
        self._queue(Batch(sender, numbers, bodies, bodies.size, self._stability.wait, to, effect.group))

    def _deliver_some(self, effect: fx.Deliver, bodies: Packed, places: Sequence[int]) -> None:
        """Of a batch for several members, what is for this one."""
        assert bodies.addresses is not None
        offsets, data = bodies.offsets(), bodies.data
        chosen = [data[offsets[place] : offsets[place + 1]] for place in places]
        size = sum(map(len, chosen))
        numbers = [effect.number + place for place in places]
        each = bodies.addresses.each()
        to = [each[place] for place in places]
        self._count_delivered(len(chosen), size)
        self._queue(Batch(effect.sender, numbers, chosen, size, self._stability.wait, to, effect.group))

    def _count_delivered(self, messages: int, size: int) -> None:
        self._figures.delivered_messages += messages
        self._figures.delivered_bytes += size

    def _queue(self, batch: Batch) -> None:
        self._inbox.append(batch)
        self._queued_bytes += batch.size
        self._news.set()
        if self._queued_bytes > self._limits.queue_bytes and not self.pressed:
            self._press()

    # A slow application

    def _press(self) -> None:
        """The queue is full: hold the group up, and step aside if that lasts."""
        self.pressed = True
        self._figures.slow_reader_spells += 1
        loop = asyncio.get_running_loop()
        self._stepping_aside = loop.call_later(self._limits.patience_s, self._step_aside)

    def _step_aside(self) -> None:
        assert self._member is not None
        self._stepping_aside = None
        self._aside = True
        self._member.depart()

    def _relax(self) -> None:
        """The application has caught up: take part again."""
        if self._queued_bytes > DRAINED * self._limits.queue_bytes:
            return
        self.pressed = False
        if self._stepping_aside is not None:
            self._stepping_aside.cancel()
            self._stepping_aside = None
        if self._aside and self._member is not None and not self._left:
            self._aside = False
            self._member.come_back()

    # Figures

    @property
    def latency(self) -> Watch:
        """How long one's own batches take to be delivered here and to be stable."""
        return self._watch

    @property
    def counters(self) -> dict[str, Any]:
        """What this member has done and holds, as plain numbers."""
        return {
            **asdict(self._figures),
            **self._counters.snapshot(),
            **({} if self._member is None else self._member.figures()),
            **({} if self._history is None else self._history.figures()),
            "queued_bytes": self._queued_bytes,
            "outgoing_bytes": self._outgoing.size,
            "unfinished_bytes": self._incoming.size,
            "unfinished_dropped": self._incoming.dropped,
            "members": len(self._presence.others) + 1,
        }


def _require_group_name(group: GroupName) -> None:
    if not group or len(group.encode()) > LONGEST_NAME_BYTES:
        hint = f"Use 1 to {LONGEST_NAME_BYTES} bytes."
        raise UsageError(f"{group!r} is no name for a group.", hint=hint)
