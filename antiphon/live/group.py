"""A live group, as an application sees it: join, send, iterate over what is delivered, leave.

    async with antiphon.join("orders", name="alice") as group:
        await group.send(b"hello")
        async for message in group:
            print(message.sender, message.body)

Where a block does not fit, `group = await antiphon.join(...)` joins and `await group.leave()` leaves.

Nothing here grows without limit. `send` waits while the group cannot take more. An application that reads
too slowly first slows the group down; if it has not caught up after `patience_s`, its member goes absent
until the queue has drained. The group continues without it, and the application gets an event.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from antiphon.core.errors import AntiphonError, OutputError, UsageError
from antiphon.core.ids import Group as GroupName
from antiphon.core.ids import Site
from antiphon.core.inputs import JoinGroup, LeaveGroup, Start
from antiphon.core.packing import Destinations
from antiphon.core.wire import Codec
from antiphon.live import events as ev
from antiphon.live.counters import Counters
from antiphon.live.errors import LeftError, MissedError
from antiphon.live.figures import Figures, Watch
from antiphon.live.group_host import GroupHost
from antiphon.live.handshake import Terms
from antiphon.live.history import HistoryLog, delivered_before, open_log
from antiphon.live.inbox import Inbox
from antiphon.live.journal import FAILED, JOINED, LEFT, Journal
from antiphon.live.keys import KeyFile, KeyRing
from antiphon.live.lifecycle import Lifecycle
from antiphon.live.limits import Limits, require_short_group_name
from antiphon.live.listener import GroupListener
from antiphon.live.meeting import meet_others
from antiphon.live.member import Member
from antiphon.live.messages import Batch, Body, Message, Presence, bytes_of, view_of
from antiphon.live.networks import Network
from antiphon.live.orders import Order, Sequencer, Settings
from antiphon.live.outbox import Outbox
from antiphon.live.peers import Peer
from antiphon.live.pieces import LARGEST_RECORD_BYTES
from antiphon.live.poison import Poison, PoisonRing
from antiphon.live.presence import PresenceNews
from antiphon.live.status import Status, status_of
from antiphon.live.tag_channel import SequencedTransport, TagChannel
from antiphon.live.transport import Transport
from antiphon.protocols.fifo import HistoryRole
from antiphon.trace.schema import Run
from antiphon.trace.segments import SegmentRecorder

AT_ONCE: Final = 16
"""Messages that `send_many` hands in before it checks again for room. Raising it costs memory."""


async def _refuse(_number: int) -> int | None:
    raise UsageError(
        "This message is not for its sender, and so is not delivered there.",
        hint="To know that its destinations hold it, await its stable().",
    )


class Group:
    """One member's view of its group, made by `join`: the object that the application uses.

    It hands messages to the `Outbox` and reads deliveries from the `Inbox`. It builds the `Transport` and the
    `Member`. Its `GroupListener` handles the protocol's effects other than deliveries; its `GroupHost`
    answers for this process at the gate.
    """

    def __init__(
        self,
        group: GroupName,
        site: Site,
        *,
        order: Order,
        role: HistoryRole,
        archive: tuple[Path, int] | None,
        network: Network,
        keys: KeyRing | KeyFile | None,
        trace: Path | None,
        run: str,
        limits: Limits,
        tag_channel: TagChannel | None = None,
    ) -> None:
        """`tag_channel` leads to the outside sequencer that the order names, if it names any."""
        self.group: Final = group
        self.name: Final = site
        self.order: Final[str] = order.name
        self._order = order
        self._role = role
        self._archive = archive
        self._history: HistoryLog | None = None
        self._network = network
        self._machine: Final = network.machine
        self._keys = keys
        self._trace = trace
        self._run = run
        self._limits = limits
        self._tag_channel = tag_channel
        self._figures = Figures()
        self._watch = Watch()
        self._counters = Counters()
        self._poison = PoisonRing()
        self._journal = Journal(group, site)
        self._begun_ns = self._machine.now_ns()
        self._presence = PresenceNews()
        self._member: Member | None = None
        self._transport: Transport | None = None
        self._recorder: SegmentRecorder | None = None
        self._lifecycle = Lifecycle(site, group)
        self._inbox = Inbox(
            site, lifecycle=self._lifecycle, limits=limits, figures=self._figures, watch=self._watch,
            machine=self._machine, notify=self._notify, journal=self._journal,
            counts_all=not (self._order.selective or self._order.several),
        )  # fmt: skip
        self._outbox = Outbox(
            lifecycle=self._lifecycle, inbox=self._inbox, most_bytes=limits.outgoing_bytes,
            selective=self._order.selective, machine=self._machine,
        )  # fmt: skip
        self._listener = GroupListener(
            site, order, lifecycle=self._lifecycle, inbox=self._inbox, outbox=self._outbox,
            presence=self._presence, journal=self._journal, figures=self._figures, watch=self._watch,
            machine=self._machine, notify=self._notify, failed=self._failed,
        )  # fmt: skip
        self._host = GroupHost(
            site, group, machine=self._machine, inbox=self._inbox, listener=self._listener,
            notify=self._notify, status=self._status, fail=self.fail,
        )  # fmt: skip

    # Join and leave

    def __await__(self) -> Generator[Any, None, "Group"]:
        """Join without a block: `group = await join(...)`. The caller must call `leave`."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> "Group":
        if self._member is not None:
            raise UsageError("This group was joined before.", hint="Call antiphon.join again.")
        await self._open_history()
        try:
            self._open(self._order)
        except BaseException:
            if self._history is not None:
                self._history.close()
            raise
        assert self._member is not None
        returning = self._recorder is not None and self._recorder.returning
        next_number = self._outbox.next_number
        self._listener.open(self._member, next_number)
        self._host.open(self._member)
        self._lifecycle.come()
        self._member.listen()
        self._journal.watch(lambda: (self._counters.drops, self._counters.key_changes))
        try:
            await meet_others(self._transport_of_member(), self._machine, self._is_in)
            delivered = await self._delivered_before() if returning and self._role.catches_up else None
            self._member.start(Start(self._host.next_incarnation(), next_number, returning, delivered))
            await asyncio.wait_for(self._listener.taking_part.wait(), self._limits.join_s)
            self._lifecycle.require_in()
            self._transport_of_member().take_part()
            self._journal.note(JOINED, f"joined, with the order '{self.order}'.")
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
        """Leave the group; first wait, at most `linger_s`, until every member holds what this member sent."""
        if self._lifecycle.is_out or self._member is None:
            return
        if linger:
            await self.settle()
        if not self._lifecycle.is_out:
            self._lifecycle.is_leaving = True
            self._member.depart(for_good=True)
            self._close(LeftError(f"'{self.name}' has left '{self.group}'."))

    async def finish(self) -> None:
        """End the membership because the whole run is over and no member will send again.

        In the trace a leave is an absence, after which nothing is expected of this member. This end is no
        absence: the audit holds the member to every message of the run.
        """
        if not self._lifecycle.is_out and self._member is not None:
            await self.settle()
            self._close(LeftError(f"The run of '{self.group}' is over."))

    async def settle(self) -> None:
        """Wait, at most `linger_s`, until every member holds what this member sent."""
        with contextlib.suppress(TimeoutError, AntiphonError):
            await asyncio.wait_for(self._settle(), self._limits.linger_s)

    async def _settle(self) -> None:
        """Wait until every message handed in is stable."""
        await self._outbox.wait_until_empty()
        while self._figures.admitted_messages:
            limit = self._listener.stability.limit(self.name)
            if self._outbox.next_number <= limit:
                return
            with contextlib.suppress(MissedError):
                await self._listener.stability.wait(self.name, limit, limit)

    def _is_in(self) -> bool:
        """Whether the join goes on; raises the reason if not."""
        self._lifecycle.require_in()
        return True

    def _transport_of_member(self) -> Transport:
        assert self._transport is not None
        return self._transport

    def _open(self, order: Order) -> None:
        """Open the sockets, the trace and the protocol. Missing resources raise before anything is sent."""
        echoes = order.needs_channel and self._network.is_loopback
        kind: Callable[..., Transport] = Transport
        if self._tag_channel is not None:
            kind = partial(SequencedTransport, self._tag_channel, self._host.refused)
        transport = kind(
            site=self.name, group=self.group, codec=Codec(order.pdus),
            network=self._network, keys=self._keys, counters=self._counters, host=self._host,
            terms=Terms(order.fingerprint()), poison=self._poison,
            notice_losses=order.needs_channel, echoed=order.echoed if echoes else (),
            rate_bytes_s=self._limits.rate_bytes_s,
        )  # fmt: skip
        settings = Settings(
            site=self.name, receive_buffer_bytes=transport.receive_buffer_bytes,
            random=self._machine.random(), history=self._role, secret=self.group.encode(),
            hears_itself=echoes and transport.notices_losses,
        )  # fmt: skip
        # After a fault, history would deliver the same messages again.
        role = HistoryRole(self._role.keeps, catches_up=False)
        anew = replace(settings, history=role)
        try:
            if self._trace is not None:
                from antiphon.trace.files import note_run  # only tracing needs pyarrow

                self._recorder = SegmentRecorder(self._trace, self._run, self.name)
                parameters = {"order": order.name, **asdict(order), "network": str(self._network)}
                run = Run(self._run, order.name, order.promises(), None, json.dumps(parameters))
                note_run(self._trace, run)
            self._member = Member(
                site=self.name, group=self.group, listener=self._listener, reader=self._inbox,
                build=lambda failed: order.build(anew if failed else settings), transport=transport,
                recorder=self._recorder, counters=self._counters, poison=self._poison, history=self._history,
                machine=self._machine,
            )  # fmt: skip
        except BaseException:
            transport.close()
            if self._recorder is not None:
                self._recorder.close()
            raise
        self._transport = transport
        next_number = self._recorder.next_number if self._recorder is not None else 0
        self._inbox.open(self._member)
        self._outbox.open(self._member, next_number, order.batch_bytes(settings))

    def _no_answer(self) -> LeftError:
        orderer = self._order.sequencer if isinstance(self._order, Sequencer) else None
        who = f"its sequencer '{orderer}' did not answer" if orderer else "no member let it in"
        sentence = f"'{self.name}' could not join '{self.group}': {who} for {self._limits.join_s:g} s."
        if self._listener.objection:
            return LeftError(f"{sentence} {self._listener.objection}", "Give all members the same options.")
        return LeftError(sentence, "Is that member up, on the same network, with the same key?")

    def _close(self, why: BaseException) -> None:
        """End the membership. Every pending wait fails with the reason."""
        assert self._member is not None
        assert self._transport is not None
        if self._lifecycle.is_out:
            return
        self._lifecycle.is_out = True
        self._journal.note(LEFT if isinstance(why, LeftError) else FAILED, f"is out of the group. {why}")
        self._journal.close()
        self._member.stop()
        self._transport.close(farewell=True)
        if self._recorder is not None:
            try:
                self._recorder.close()
            except OutputError as error:
                self._lifecycle.error = self._lifecycle.error or error
        if self._history is not None:
            self._history.close()
        self._listener.close(why)
        self._outbox.close()
        self._inbox.close()
        self._listener.taking_part.set()

    def _failed(self, error: BaseException) -> None:
        self._lifecycle.error = error
        self._close(error)

    def fail(self, error: AntiphonError) -> None:
        """End the membership for this reason, unless it is over already."""
        if self._member is not None and not self._lifecycle.is_out:
            self._failed(error)

    @property
    def poison(self) -> tuple[Poison, ...]:
        """The latest PDUs that this member could not handle, oldest first. Empty unless there is a fault."""
        return self._poison.all()

    # Members

    @property
    def members(self) -> frozenset[Site]:
        """The members that count, this one included."""
        return frozenset(self._presence.others | {self.name})

    @property
    def peers(self) -> dict[Site, Peer]:
        """The other members that count, as this member sees them now: how far behind, and which hold us
        up."""
        if self._member is None or self._lifecycle.is_out:
            return {}
        return self._outbox.holdups.view(self._machine.now_ns(), self._member.peers())

    async def wait_for_members(self, count: int) -> None:
        """Wait until `count` members count, this one included."""
        self._lifecycle.require_in()
        await self._presence.wait_for(count - 1)

    def presence(self) -> AsyncIterator[Presence]:
        """Yields members that appear and vanish, beginning with those present. Ends when this member
        leaves."""
        self._lifecycle.require_in()
        return self._presence.read()

    def _notify(self, event: ev.Happening) -> None:
        """Put an event into the inbox in its place, and notify the readers of `presence` at once."""
        self._inbox.happened(event)
        self._journal.happened(event)
        news = ev.as_presence(event, self.name)
        if news is not None:
            self._presence.post(news)

    # Several groups

    @property
    def groups(self) -> frozenset[GroupName]:
        """With 'total-across': the groups that this member is in."""
        return frozenset(self._listener.groups.joined)

    async def enter(self, group: GroupName) -> None:
        """With 'total-across': join one more group. Its messages are delivered here from then on."""
        if group not in self._listener.groups.joined:
            await self._change(JoinGroup(group), "join")

    async def exit(self, group: GroupName) -> None:
        """With 'total-across': leave a group."""
        if group in self._listener.groups.joined:
            await self._change(LeaveGroup(group), "leave")

    async def _change(self, event: JoinGroup | LeaveGroup, verb: str) -> None:
        self._lifecycle.require_in()
        if not self._order.several:
            raise UsageError(f"The order '{self.order}' knows one group.", hint="Choose 'total-across'.")
        require_short_group_name(event.group)
        assert self._member is not None
        with self._listener.groups.expect(event.group) as changed:
            self._member.change(event)
            try:
                await asyncio.wait_for(changed, self._limits.join_s)
            except TimeoutError:
                raise LeftError(
                    f"'{self.name}' could not {verb} '{event.group}': no member answered."
                ) from None

    # History

    async def wait_for_history(self) -> bool:
        """Wait until a member that joined with `catch_up` has received the history.

        Returns False if the member had to continue without it: no member present keeps a history, or none had
        enough of it. History is delivered before all other messages, and only while the application reads.
        """
        if not self._role.catches_up:
            raise UsageError(f"'{self.name}' did not ask for history.", hint="Join with catch_up=True.")
        self._lifecycle.require_in()
        await self._listener.caught_up.wait()
        self._lifecycle.require_in()
        return self._listener.history_complete

    async def _open_history(self) -> None:
        """Open the log in a thread: reading the end of an earlier log may take a moment."""
        if self._archive is not None:
            folder, most_bytes = self._archive
            self._history = await open_log(folder, self.group, self.name, most_bytes)
            for sentence in self._history.unreadable:
                self._presence.note(Presence("history", self.name, sentence))
                self._inbox.happened(ev.HistoryFailed(sentence))
                self._journal.happened(ev.HistoryFailed(sentence))

    async def _delivered_before(self) -> Mapping[Site, int]:
        assert self._trace is not None, "only a trace shows that a member returns"
        return await asyncio.to_thread(delivered_before, self._trace, self._run, self.name)

    # Sending

    async def send(
        self,
        body: Body,
        *,
        to: Collection[Site] | None = None,
        group: GroupName | None = None,
    ) -> Message:
        """Multicast a message, to all members or to those in `to`. Waits while the group cannot take more.

        With 'total-across' the message goes to the members of one `group`. docs/live.md says what the
        returned message can be awaited for; `antiphon.live.outbox` lists the hops to the socket.
        """
        data = bytes_of(body)
        named = self._destinations(to, group)
        first = await self._outbox.hand_in([data], named, group)
        members, listener = self.members, self._listener
        is_here = group in listener.groups.joined if group is not None else self.name in (named or members)
        assert self._member is not None
        return Message(
            self.name, self._outbox.next_number - 1, data, listener.stability,
            None if named is None else named & members, group, self._member.incarnation, first=first,
            delivered=listener.deliveries.wait if is_here else _refuse,
            skipped=frozenset() if named is None else named - members,
        )  # fmt: skip

    async def send_many(
        self,
        bodies: Iterable[Body],
        *,
        to: Collection[Site] | None = None,
        group: GroupName | None = None,
    ) -> None:
        """Multicast several messages, in this order. Waits while the group cannot take more."""
        destinations = self._destinations(to, group)
        rest = iter(bodies)
        while some := [body if type(body) is bytes else bytes_of(body) for body in islice(rest, AT_ONCE)]:
            await self._outbox.hand_in(some, destinations, group)

    def _destinations(self, to: Collection[Site] | None, group: GroupName | None) -> Destinations:
        """Validate the destinations. None means everyone; a selective order always names its destinations.

        Departed members may be named: none of them delivers the message.
        """
        if self._order.several != (group is not None):
            raise UsageError(
                f"The order '{self.order}' knows " + ("several groups." if group is None else "one group."),
                hint="Say which with group=." if group is None else "Leave group= out.",
            )
        if group is not None:
            require_short_group_name(group)
        if to is not None and group is not None:
            raise UsageError("A message to a group goes to all of its members.", hint="Leave to= out.")
        if to is None:
            return self.members if self._order.selective else None
        if isinstance(to, str):
            raise UsageError(f"{to!r} is not a set of members.", hint=f"Write to={{{to!r}}}.")
        try:
            destinations = frozenset(to)
        except TypeError:
            raise UsageError(f"{to!r} is not a set of members.", hint="Write to={'alice', 'bob'}.") from None
        if not destinations:
            raise UsageError(
                "A message needs at least one destination.", hint="Leave to= out to reach everyone."
            )
        members = self.members
        for site in sorted(destinations - members):
            if site not in self._inbox.names:
                raise UsageError(
                    f"'{site}' is not a member of '{self.group}', and never was.",
                    hint=f"There are: {', '.join(sorted(members))}. See wait_for_members and presence.",
                )
        return destinations

    async def send_records(
        self,
        records: Body,
        size: int,
        *,
        to: Collection[Site] | None = None,
        group: GroupName | None = None,
    ) -> None:
        """Multicast messages of `size` bytes each that lie one after another in one buffer.

        This costs much less per message than `send`, for data that comes this way: samples, ticks, rows of an
        array.
        """
        view = view_of(records)
        if not isinstance(size, int) or not 1 <= size <= LARGEST_RECORD_BYTES or len(view) % size:
            raise UsageError(
                f"{len(view)} bytes are not records of {size} bytes each.",
                hint=f"A record has 1 to {LARGEST_RECORD_BYTES} bytes and divides the buffer's length.",
            )
        await self._outbox.hand_in_records(view, size, self._destinations(to, group), group)

    # Receiving

    async def __aiter__(self) -> AsyncIterator[Message]:
        async for batch in self.batches():
            for message in batch:
                yield message

    async def events(self) -> AsyncIterator[ev.Event]:
        """Yields messages, and between them other events, each in its place: see `antiphon.live.events`.

        A gap is reported exactly where it is, however late the application reads.
        """
        async for item in self.event_batches():
            if isinstance(item, Batch):
                for message in item:
                    yield message
            else:
                yield item

    def event_batches(self) -> AsyncIterator[Batch | ev.Happening]:
        """Like `events`, with whole batches instead of messages: much less work per message."""
        return self._inbox.items()

    def batches(self) -> AsyncIterator[Batch]:
        """Yields batches, messages as they travelled together: much less work per message.

        After a leave, earlier deliveries can still be read.
        """
        return self._inbox.batches()

    async def for_each_batch(self, function: Callable[[Batch], None]) -> None:
        """Call a function with each batch as soon as it is delivered, until the membership is over.

        This is the fastest way to read: there is no switch to a task. The function must be quick, because it
        blocks everything that this member does. If it raises, the exception is raised here, and later batches
        stay queued.
        """
        await self._inbox.for_each(function)

    @property
    def pressed(self) -> bool:
        """Whether the application reads so slowly that message bodies are not taken in."""
        return self._inbox.pressed

    # Figures

    @property
    def latency(self) -> Watch:
        """How long this member's own batches take to be delivered here and to be stable."""
        return self._watch

    @property
    def batch_bytes(self) -> int:
        """Largest batch, in bytes. Sending this much at once is the most efficient."""
        return self._outbox.batch_bytes

    def _status(self) -> Status | None:
        """This member's status, for an onlooker; None before it has joined."""
        if self._member is None or not self._listener.taking_part.is_set():
            return None
        uptime_ns = self._machine.now_ns() - self._begun_ns
        return status_of(self.order, self._member.incarnation, uptime_ns, self.counters, self.peers)

    @property
    def counters(self) -> dict[str, Any]:
        """What this member has done and holds, as plain numbers."""
        return {
            **asdict(self._figures),
            **self._counters.snapshot(),
            **({} if self._transport is None else self._transport.figures(self._machine.now_ns())),
            "limited_by": None if self._transport is None else self._transport.limited_by,
            "refusals": self._listener.refusals.counts(),
            **({} if self._member is None else self._member.figures()),
            **({} if self._history is None else self._history.figures()),
            "queued_bytes": self._inbox.queued_bytes,
            "reader_lag": self._inbox.queued_messages,
            "reader_busy_s": self._inbox.busy_s,
            "outgoing_bytes": self._outbox.waiting_bytes,
            "unfinished_bytes": self._inbox.pieces.size,
            "unfinished_dropped": self._inbox.pieces.dropped,
            "members": len(self._presence.others) + 1,
        }
