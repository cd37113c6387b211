"""When a member reports and what, and when it tells its progress between reports.

Source: Konorski, sections 4.1 (the contents of a report) and 4.4 (when: see `heartbeat`). Beyond the paper a
member also tells its progress when it has no report to send: the others keep within reach of it, and an
application may wait for a message to be stable. `ProgressPacing` says how soon.
"""

from typing import Final

from antiphon.core.effects import Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.context import Context
from antiphon.protocols.dpg.flow import Flow
from antiphon.protocols.dpg.heartbeat import ReportHeartbeat
from antiphon.protocols.dpg.order import MEMORY, Expected, Order
from antiphon.protocols.dpg.own_messages import OwnMessages
from antiphon.protocols.dpg.pdus import MOST_AGREED, Progress, Report
from antiphon.protocols.dpg.peers import Peers
from antiphon.protocols.dpg.recovery import Recovery
from antiphon.protocols.dpg.reports import arcs_as_sent, lists_bytes, pack_arcs, true_arcs
from antiphon.protocols.dpg.tag_lists import pack_tags

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
        self._serial = 0
        self._told_index = 0
        self._spoke_ns: Nanoseconds = 0
        self._told_ns: Nanoseconds = 0
        """When all peers were last told what this member holds."""
        self._pacing = ProgressPacing(configuration.tell_ns, configuration.report_cycle_ns)
        self._listener_ns: Nanoseconds | None = None
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

    def note_listener(self, now: Nanoseconds) -> None:
        """A member listens before it takes part: reports carry what it must know."""
        self._listener_ns = now

    def on_report(self, now: Nanoseconds, time_ns: Nanoseconds, *, lacking: bool) -> None:
        """Another member has reported; `lacking` if it lacks order that is known here."""
        waive = lacking or self._recovery.has_gone()
        self._heartbeat.on_report(time_ns, waive=waive, busy=self.changed or len(self._order.graph) > 0)
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
        wait_ns = self._pacing.wait_ns(now, self._order.stability.index)
        if wait_ns is None:
            return
        if wait_ns:
            self._timers.arm(now, "tell", wait_ns)
        elif len(self._peers.sites()) <= FEW:
            self._tell_progress(now)
        else:
            self._tell_senders(now)

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
        stability = self._order.stability
        return Progress(self._order.agreement.index, self._own.incarnation, stability.tag, stability.digest)

    def _note_told(self, now: Nanoseconds) -> None:
        """All peers know this member's progress and what it holds."""
        self._told_index = self._order.agreement.index
        self._spoke_ns = self._told_ns = now
        self._pacing.told(now, self._order.stability.index, len(self._peers.sites()))

    def report(self, now: Nanoseconds, time_ns: Nanoseconds, *, listening: bool) -> None:
        order = self._order
        report = self._compose(now, time_ns, listening)
        self._emit(Multicast(report))
        self._heartbeat.share.report(time_ns, lists_bytes(report))
        self._note_told(now)
        has_more = bool(order.lost or len(order.graph) or self._own.unlocated)
        busy = self.changed or listening or has_more
        self.changed = False
        self._heartbeat.reported(time_ns, busy=busy)

    def _reach(self, now: Nanoseconds) -> int:
        """Agreed tags in a report: as many as the slowest peer needs, if they are remembered.

        Where reports do not share a channel with messages, the service recovers what was missed.
        """
        history, index = self._configuration.history, self._order.agreement.index
        if not self._service.reports_ordered:
            return min(history, MOST_AGREED)
        behind = index - self._peers.slowest(now, index)
        return min(max(history, min(behind, MEMORY * history)), MOST_AGREED)

    def _compose(self, now: Nanoseconds, time_ns: Nanoseconds, listening: bool) -> Report:
        order, knobs = self._order, self._configuration
        self.reports += 1
        self._serial += 1
        agreed, links = order.agreement.recent(self._reach(now))
        wanted = self._recovery.wanted(time_ns)
        listened = self._listener_ns is not None and now - self._listener_ns < knobs.listen_ns
        own = [] if listening else self._own.overdue(time_ns)
        vertices = (*(message.tag for message in own), *order.graph)
        arcs = (*(arc for message in own for arc in arcs_as_sent(message)), *true_arcs(order))
        return Report(
            self._own.incarnation, self._serial, now, order.agreement.index, order.agreement.digest,
            agreed, links, pack_tags(vertices), pack_arcs(arcs), pack_tags(wanted),
            self._flow.own_ns, listening, self._streams() if listened and not order.queue else {},
            self._service.note(now), pack_tags(self._recovery.gone()), pack_tags(self._recovery.passed()),
            order.stability.tag, order.stability.digest, order.lead,
        )  # fmt: skip

    def _streams(self) -> dict[Site, Expected]:
        """The senders' next numbers for listeners; never empty, as they wait for a report that carries it."""
        return dict(self._order.streams) or {self._site: (self._own.incarnation, 0)}
