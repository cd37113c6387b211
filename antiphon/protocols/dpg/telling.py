"""What a member tells the others of itself: its reports, and between them how far it has come.

Source: Konorski, sections 4.1 (what a report tells) and 4.4 (when: see `heartbeat`). Beyond the paper a
member tells how far it has come also when it has no report to send: the others keep within reach of it.
"""

from collections.abc import Callable

from antiphon.core.effects import Effect, Multicast
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.company import Company
from antiphon.protocols.dpg.flow import Flow
from antiphon.protocols.dpg.heartbeat import ReportHeartbeat
from antiphon.protocols.dpg.order import MEMORY, Expected, Order
from antiphon.protocols.dpg.own import OwnMessages
from antiphon.protocols.dpg.pdus import MOST_AGREED, DpgConfiguration, Progress, Report
from antiphon.protocols.dpg.recovery import Recovery
from antiphon.protocols.dpg.reporting import arcs_as_sent, lists_bytes, pack_arcs, true_arcs
from antiphon.protocols.dpg.services.base import Service
from antiphon.protocols.dpg.tag_lists import pack_tags
from antiphon.protocols.dpg.wakes import Wakes


class Telling:
    """One member's; `time_ns` is in its own clock. Its timer is `report`."""

    def __init__(
        self,
        site: Site,
        configuration: DpgConfiguration,
        order: Order,
        own: OwnMessages,
        recovery: Recovery,
        company: Company,
        flow: Flow,
        service: Service,
        heartbeat: ReportHeartbeat,
        silence_ns: Nanoseconds,
        wakes: Wakes,
        emit: Callable[[Effect], None],
    ) -> None:
        """After `silence_ns` without a word one that takes part tells how far it has come."""
        self._site = site
        self._configuration = configuration
        self._order = order
        self._own = own
        self._recovery = recovery
        self._company = company
        self._flow = flow
        self._service = service
        self._heartbeat = heartbeat
        self._silence_ns = silence_ns
        self._wakes = wakes
        self._emit = emit
        self._stride = configuration.lag // 4
        self._serial = 0
        self._told_index = 0
        self._spoke_ns: Nanoseconds = 0
        self._listener_ns: Nanoseconds | None = None
        self.changed = False
        """Whether there is something that was not there at the last report."""
        self.reports = 0

    # When

    def begin(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """A spell begins."""
        self._heartbeat.begin(time_ns)
        self._wake(now)

    def urge(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """There is something to say, soon."""
        self._heartbeat.urge(time_ns)
        self._wake(now)

    def note_change(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """There is something to report that was not there before."""
        if not self.changed:
            self.changed = True
            self._heartbeat.stir(time_ns)
            self._wake(now)

    def note_listener(self, now: Nanoseconds) -> None:
        """Someone listens before it takes part: reports are to tell what it must know."""
        self._listener_ns = now

    def note_report(self, now: Nanoseconds, time_ns: Nanoseconds, *, lacking: bool) -> None:
        """Another has reported, and was seen to be `lacking` what we know or not."""
        waive = lacking or self._recovery.has_gone()
        self._heartbeat.heard(time_ns, waive=waive, busy=self.changed or len(self._order.graph) > 0)
        self._wake(now)

    def note_message(self, now: Nanoseconds, time_ns: Nanoseconds, size: int) -> None:
        """A message of our own goes out: it tells how far we have come as well."""
        self._told_index, self._spoke_ns = self._order.agreement.index, now
        self.note_change(now, time_ns)
        self._heartbeat.share.message(size)

    def look(self, now: Nanoseconds, time_ns: Nanoseconds, *, listening: bool) -> None:
        """The timer `report`: say something if it is our turn."""
        if self._heartbeat.due(time_ns):
            self.report(now, time_ns, listening=listening)
        elif not listening and now - self._spoke_ns >= self._silence_ns:
            self._tell_progress(now)
        self._wake(now)

    def _wake(self, now: Nanoseconds) -> None:
        self._wakes.set_own("report", now, self._heartbeat.next_ns)

    # What

    def tell_progress(self, now: Nanoseconds) -> None:
        """Tell how far we have come, if that is a good way further than the others know."""
        if self._order.agreement.index - self._told_index >= self._stride:
            self._tell_progress(now)

    def _tell_progress(self, now: Nanoseconds) -> None:
        self._told_index, self._spoke_ns = self._order.agreement.index, now
        self._emit(Multicast(Progress(self._told_index)))

    def report(self, now: Nanoseconds, time_ns: Nanoseconds, *, listening: bool) -> None:
        order = self._order
        report = self._compose(now, time_ns, listening)
        self._emit(Multicast(report))
        self._heartbeat.share.report(time_ns, lists_bytes(report))
        self._told_index, self._spoke_ns = order.agreement.index, now
        has_more = bool(order.lost or len(order.graph) or self._own.unlocated)
        busy = self.changed or listening or has_more
        self.changed = False
        self._heartbeat.reported(time_ns, busy=busy)

    def _reach(self, now: Nanoseconds) -> int:
        """How far back a report tells: as far as the slowest member needs, if that is remembered.

        Where reports do not share a channel with messages, something else brings what was missed.
        """
        history, index = self._configuration.history, self._order.agreement.index
        if not self._service.reports_ordered:
            return min(history, MOST_AGREED)
        behind = index - self._company.slowest(now, index)
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
        )  # fmt: skip

    def _streams(self) -> dict[Site, Expected]:
        """What listeners must know of senders; it is never empty, as they wait for a report that tells it."""
        return dict(self._order.streams) or {self._site: (self._own.incarnation, 0)}
