"""When a member reports and what, and when it tells its progress between reports.

Source: Konorski, sections 4.1 (the contents of a report) and 4.4 (when: see `heartbeat`). Beyond the paper a
member also tells its progress when it has no report to send: the others keep within reach of it, and an
application may wait for a message to be stable. `ProgressPacing` says how soon.
"""

from collections import OrderedDict, deque
from typing import Final

from antiphon.core.effects import Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.checkpoints import FROM_LISTENER
from antiphon.protocols.dpg.context import Context
from antiphon.protocols.dpg.flow import Flow
from antiphon.protocols.dpg.heartbeat import ReportHeartbeat
from antiphon.protocols.dpg.order import MEMORY, Expected, Order
from antiphon.protocols.dpg.own_messages import OwnMessages
from antiphon.protocols.dpg.pdus import MOST_AGREED, MOST_TAGS, Progress, Report, Tag
from antiphon.protocols.dpg.peers import Peers
from antiphon.protocols.dpg.recovery import Recovery
from antiphon.protocols.dpg.reports import (
    Merged,
    ReportLists,
    graph_lists,
    lists_bytes,
    pack_arcs,
    tells_place,
)
from antiphon.protocols.dpg.tag_lists import pack_agreed, pack_tags

TOLD: Final = 3
"""Reports of the group that tell each agreed tag, on a shared channel. Raising it costs report bytes."""
LEAST_REACH: Final = 8
"""Agreed tags in a report at least, if there are so many. Raising it costs report bytes."""
MOST_VERTICES: Final = 128
"""Vertices in a report at most, unless a member listens. Raising it costs report bytes."""
MOST_LISTENERS: Final = 64
"""Listening members whose indices are remembered. Raising it costs memory."""
FEW: Final = 8
"""Up to this many peers all get `Progress` at once, else only senders. Raising it costs small PDUs."""


class ProgressPacing:
    """How soon a member tells that it holds what it has delivered.

    At once where messages come one by one. Where they come faster, the pause doubles up to a report cycle.
    The least pause is `tell_ns` for each receiver, so the cost is the same in a group of any size.
    """

    __slots__ = ("_longest_ns", "_next_ns", "_pause_ns", "_tell_ns", "index")

    def __init__(self, tell_ns: Nanoseconds, longest_ns: Nanoseconds) -> None:
        self._tell_ns: Final = tell_ns
        self._longest_ns: Final = longest_ns
        self._pause_ns = tell_ns
        self._next_ns: Nanoseconds = 0
        self.index = 0
        """The index that was told last."""

    def wait_ns(self, now: Nanoseconds, index: int) -> Nanoseconds | None:
        """How long until this index may be told; None if it need not be."""
        return max(0, self._next_ns - now) if self._tell_ns and index > self.index else None

    def told(self, now: Nanoseconds, index: int, receivers: int) -> None:
        """This index was told to that many receivers."""
        if index > self.index:
            is_alone = index == self.index + 1
            least_ns = self._tell_ns * max(1, receivers)
            longest_ns = max(self._longest_ns, least_ns)
            pause_ns = self._pause_ns // 2 if is_alone else self._pause_ns * 2
            self._pause_ns = min(max(least_ns, pause_ns), longest_ns)
        self.index = index
        self._next_ns = now + self._pause_ns


class ReportSender:
    """The reports of one member; `time_ns` is in its own clock. Its timers are `report` and `tell`."""

    def __init__(
        self,
        context: Context,
        order: Order,
        own: OwnMessages,
        recovery: Recovery,
        peers: Peers,
        flow: Flow,
        heartbeat: ReportHeartbeat,
    ) -> None:
        self._site = context.site
        self._configuration = configuration = context.configuration
        self._order = order
        self._own = own
        self._recovery = recovery
        self._peers = peers
        self._flow = flow
        self._service = context.service
        self._heartbeat = heartbeat
        self._silence_ns = configuration.silence_ns
        """A member that takes part tells its progress after this silence."""
        self._timers = context.timers
        self._emit = context.emit
        self._stride = configuration.lag // 4
        self._needs_quorum = configuration.quorum > 1
        self._serial = 0
        self._told_index = 0
        self._spoke_ns: Nanoseconds = 0
        self._told_ns: Nanoseconds = 0
        """When all peers were last told what this member holds."""
        self._pacing = ProgressPacing(configuration.tell_ns, configuration.report_cycle_ns)
        self._listener_ns: Nanoseconds | None = None
        self._listeners: OrderedDict[Site, int] = OrderedDict()
        """The indices of members that listen; the next to be told where its order stands comes first."""
        self._owed = 0
        """Reports that a listening member waits for."""
        self._told: deque[int] = deque(maxlen=TOLD)
        """Our index when the group's latest reports were sent or heard, or theirs if that was less."""
        self._answering: Tag | None = None
        """A vertex that another member reports without its place, until a report tells that."""
        self._needed: int | None = None
        """The least index of a member that lacks what follows it, until a report tells that."""
        self.changed = False
        """Whether there is something new since the last report."""
        self.reports = 0

    # When

    def begin(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """A spell begins."""
        self._heartbeat.begin(time_ns)
        self._wake(now)

    def urge(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """There is something to report soon."""
        self._heartbeat.urge(time_ns)
        self._wake(now)

    def note_change(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """There is something new to report."""
        if not self.changed:
            self.changed = True
            self._heartbeat.stir(time_ns)
            self._wake(now)

    def note_listener(self, now: Nanoseconds, site: Site, index: int | None) -> None:
        """A member listens before it takes part, at this index: reports carry what it must know."""
        if not self._is_listened_to(now):
            self._listeners.clear()
        if index is not None and (site in self._listeners or len(self._listeners) < MOST_LISTENERS):
            self._listeners[site] = index
        self._listener_ns = now
        self._owed = self._configuration.listen_reports

    def on_report(
        self,
        now: Nanoseconds,
        time_ns: Nanoseconds,
        sender: Site,
        merged: Merged,
        index: int,
        lists: ReportLists,
    ) -> None:
        """Another member has reported; by our count it is at `index`."""
        heartbeat = self._heartbeat
        self._note_turn(sender)
        self._note_reach(index, len(lists.agreed))
        if merged.lacking is not None and index < self._order.agreement.index:
            self._needed = index if self._needed is None else min(self._needed, index)
        answered = self._answering is None or tells_place(lists, self._answering)
        self._answering = merged.lacking if answered else self._answering
        heartbeat.on_report(
            time_ns,
            waive=self._answering is not None or self._owed > 0 or self._recovery.has_gone(),
            busy=self.changed or len(self._order.graph) > 0,
            answered=answered,
        )
        if merged.apart:
            heartbeat.urge(time_ns)  # the others learn from our index what we need
        self._wake(now)

    def _note_turn(self, reporter: Site) -> None:
        """This member has reported: whose turn is next?"""
        self._owed = max(0, self._owed - 1)
        peers = self._peers.sites()
        self._heartbeat.members = len(peers) + 1
        ours = (self._site <= reporter, self._site)
        self._heartbeat.rank = sum((peer <= reporter, peer) < ours for peer in peers if peer != reporter)

    def _note_reach(self, index: int, agreed: int) -> None:
        """A report has told the `agreed` tags up to this index of ours."""
        self._told.append(min(index, self._order.agreement.index))
        if self._needed is not None and index - agreed < max(1, self._needed):
            self._needed = None

    def on_report_while_listening(
        self, now: Nanoseconds, time_ns: Nanoseconds, sender: Site, *, helps: bool
    ) -> None:
        """A member that takes part has reported; `helps` if it knows that a member listens."""
        self._note_turn(sender)
        if helps:
            self._heartbeat.on_report(time_ns, waive=False, busy=False)
            self._wake(now)

    def on_own_message(self, now: Nanoseconds, time_ns: Nanoseconds, size: int) -> None:
        """An own message leaves, which tells this member's progress as well."""
        self._told_index, self._spoke_ns = self._order.agreement.index, now
        self.note_change(now, time_ns)
        self._heartbeat.share.message(size)

    def look(self, now: Nanoseconds, time_ns: Nanoseconds, *, listening: bool) -> None:
        """The timer `report`: say something if it is our turn."""
        if self._heartbeat.due(time_ns):
            self.report(now, time_ns, listening=listening)
        elif not listening and self._has_been_silent(now):
            self._tell_progress(now)
        self._wake(now)

    def _has_been_silent(self, now: Nanoseconds) -> bool:
        """Whether the others should hear of us; messages of ours do not tell what we hold."""
        return now - min(self._spoke_ns, self._told_ns) >= self._silence_ns

    def _wake(self, now: Nanoseconds) -> None:
        self._timers.arm_own(now, "report", self._heartbeat.next_ns)

    # What

    def tell_progress(self, now: Nanoseconds) -> None:
        """Tell this member's progress if it is well beyond what the others know, or what it holds if due."""
        if self._order.agreement.index - self._told_index >= self._stride:
            self._tell_progress(now)
            return
        wait_ns = self._pacing.wait_ns(now, self._told_place())
        if wait_ns is None:
            return
        if wait_ns:
            self._timers.arm(now, "tell", wait_ns)
        elif len(self._peers.sites()) <= FEW or self._needs_quorum:
            self._tell_progress(now)
        else:
            self._tell_senders(now)

    def _told_place(self) -> int:
        """The place that others wait for: with a quorum that of the order, else that of what is delivered."""
        order = self._order
        return order.agreement.index if self._needs_quorum else order.stability.index

    def begin_spell(self, now: Nanoseconds) -> None:
        """A spell begins: the others wait for this member's progress."""
        self._pacing = ProgressPacing(self._configuration.tell_ns, self._configuration.report_cycle_ns)
        self._tell_progress(now)

    def _tell_senders(self, now: Nanoseconds) -> None:
        """Tell the senders of delivered messages that this member holds them; the others get a report."""
        stability, progress = self._order.stability, self._progress()
        senders = stability.senders_since(self._pacing.index) & self._peers.sites()
        for sender in sorted(senders)[:FEW]:
            self._emit(Send(sender, progress))
        self._pacing.told(now, stability.index, len(senders))

    def _tell_progress(self, now: Nanoseconds) -> None:
        self._note_told(now)
        self._emit(Multicast(self._progress()))

    def _progress(self) -> Progress:
        stability, agreement = self._order.stability, self._order.agreement
        digest = agreement.digest if self._needs_quorum else 0
        return Progress(agreement.index, self._own.incarnation, stability.tag, stability.digest, digest)

    def _note_told(self, now: Nanoseconds) -> None:
        """All peers know this member's progress and what it holds."""
        self._told_index = self._order.agreement.index
        self._spoke_ns = self._told_ns = now
        self._pacing.told(now, self._told_place(), len(self._peers.sites()))

    def report(self, now: Nanoseconds, time_ns: Nanoseconds, *, listening: bool) -> None:
        order = self._order
        report = self._compose(now, time_ns, listening)
        self._emit(Multicast(report))
        self._note_turn(self._site)
        self._answering = None
        self._heartbeat.share.report(time_ns, lists_bytes(report))
        self._note_told(now)
        has_more = bool(order.lost or len(order.graph) or self._own.unlocated)
        busy = self.changed or listening or has_more
        self.changed = False
        self._heartbeat.reported(time_ns, busy=busy)

    def _reach(self, now: Nanoseconds) -> int:
        """Agreed tags in a report: those that few reports have told, and what a member is known to need.

        Where reports do not share a channel with messages, the service recovers what was missed.
        """
        history, index = self._configuration.history, self._order.agreement.index
        if not self._service.reports_ordered or self._is_listened_to(now):
            waiting = len(self._order.queue) + 1 if self._needs_quorum else 0
            return min(max(history, waiting), MEMORY * history, MOST_AGREED)
        since = min(self._told) if len(self._told) == TOLD else 0
        since = since if self._needed is None else min(since, self._needed)
        reach = index - since + 1  # with the tag that a member there knows, else it could not go on from it
        return min(max(LEAST_REACH, reach), MEMORY * history, MOST_AGREED)

    def _is_listened_to(self, now: Nanoseconds) -> bool:
        """Whether a member listens before it takes part."""
        return self._listener_ns is not None and now - self._listener_ns < self._configuration.listen_ns

    def _compose(self, now: Nanoseconds, time_ns: Nanoseconds, listening: bool) -> Report:
        order = self._order
        self.reports += 1
        self._serial += 1
        agreed, links = order.agreement.recent(self._reach(now))
        wanted = self._recovery.wanted(time_ns)
        listened = self._is_listened_to(now)
        own = [] if listening else self._own.overdue(time_ns)
        is_bounded = self._service.reports_ordered and not listened
        graph = graph_lists(order, own, agreed, links, MOST_VERTICES if is_bounded else MOST_TAGS)
        self._note_reach(order.agreement.index, len(agreed))
        streams = self._streams() if listened and self._may_be_adopted(len(agreed)) else {}
        return Report(
            self._own.incarnation, self._serial, now, order.agreement.index, order.agreement.digest,
            pack_agreed(agreed), links,
            pack_tags(graph.vertices), pack_arcs(graph.arcs), pack_tags(wanted),
            self._flow.own_ns, listening, streams,
            self._service.note(now), pack_tags(self._recovery.gone()), pack_tags(self._recovery.passed()),
            order.stability.tag, order.stability.digest, order.lead,
            graph.steps, order.agreement.oldest(), pack_agreed(self._checkpoints(listened=listened)),
        )  # fmt: skip

    def _may_be_adopted(self, agreed: int) -> bool:
        """Whether a listener can go on from here: not while a body is awaited.

        Places that wait for a quorum it takes over, if they are among the `agreed` tags of the report.
        """
        waiting = len(self._order.queue)
        return waiting <= agreed if self._needs_quorum else not waiting

    def _checkpoints(self, *, listened: bool) -> list[int]:
        """Digests further and further back: from a listener's index, by turns, or from our own."""
        agreement = self._order.agreement
        if not listened or not self._listeners:
            return agreement.digests.told(agreement.index)
        site = next(iter(self._listeners))
        self._listeners.move_to_end(site)
        return agreement.digests.told(min(agreement.index, self._listeners[site]), FROM_LISTENER)

    def _streams(self) -> dict[Site, Expected]:
        """The senders' next numbers for listeners; never empty, as they wait for a report that carries it."""
        return dict(self._order.streams) or {self._site: (self._own.incarnation, 0)}
