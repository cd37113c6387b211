"""When a member delivers: at once where its order is certain, else when a cycle is over.

Source: Konorski, sections 4.2 (Deliv_Cycle) and 4.3 (Dummy_Cycle).
"""

from collections import deque
from typing import Final

from antiphon.core.time import NEVER_NS, Nanoseconds
from antiphon.protocols.dpg.context import Context
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.own_messages import OwnMessages
from antiphon.protocols.dpg.quorum import Quorum
from antiphon.protocols.dpg.recovery import Recovery

LEAST_REPORTS: Final = 3
"""Reports that must have come since a vertex is known before its place is chosen, on a shared channel: else
nothing could have told its place. Raising it costs latency where reports are lost."""
REPORT_CYCLES: Final = 4
"""Delivery cycles that the order waits at most for those reports. Raising it costs latency."""
OWN_CYCLES: Final = 4
"""Delivery cycles that the order waits at most for the place of an own message. Raising it costs latency."""


class Delivery:
    """The deliveries of one member; `time_ns` is in its own clock. Its timer is `deliver`."""

    def __init__(
        self, context: Context, order: Order, own: OwnMessages, recovery: Recovery, quorum: Quorum
    ) -> None:
        self._configuration = context.configuration
        self._order = order
        self._own = own
        self._recovery = recovery
        self._quorum = quorum
        self._timers = context.timers
        self._waits_for_reports = context.service.reports_ordered
        self._reports: deque[Nanoseconds] = deque([NEVER_NS], maxlen=LEAST_REPORTS)
        """When the latest reports came; a member that heard none in its spell is alone."""
        self._begin_index = 0
        """The index at which the spell began."""

    def on_report(self, time_ns: Nanoseconds) -> None:
        """A member that takes part has reported."""
        if self._reports[0] == NEVER_NS:
            self._reports.clear()
        self._reports.append(time_ns)

    def take_part(self) -> None:
        """A spell begins."""
        self._begin_index = self._order.agreement.index

    def listen(self) -> None:
        """A spell is over."""
        self._reports = deque([NEVER_NS], maxlen=LEAST_REPORTS)

    def deliver(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Incorporate and deliver what is certain, and arm the timer if something waits."""
        order = self._order
        vertices = order.graph.vertices
        if vertices:
            order.incorporate_marked(time_ns)
        if order.queue:
            self._quorum.advance()
            order.deliver(time_ns, self._recovery.may_pass, self._quorum.reach())
        if vertices or order.queue:
            self._wait_for_rest(now, time_ns)
        if order.lost:
            self._recovery.ask_soon(now, time_ns)

    def must_yield(self, time_ns: Nanoseconds, *, is_first: bool) -> bool:
        """Whether places are due to be chosen without all vertices that may precede them.

        Where every graph is full, spell would follow spell. So in a spell without a new place the first
        member by name chooses nevertheless, and the others take up its order.
        """
        if not self._is_due(time_ns) or not self._order.lacks_vertices(time_ns):
            return False
        return not is_first or self._order.agreement.index > self._begin_index

    def commit(self, time_ns: Nanoseconds) -> bool:
        """Order by tag what has waited for Deliv_Cycle. Returns whether there was anything."""
        order = self._order
        committed = order.committed
        while self._is_due(time_ns):
            order.commit(time_ns)
            order.incorporate_marked(time_ns)
        return order.committed > committed

    def _wait_for_rest(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Arm the timer for the end of the front's Deliv_Cycle or of the queue's Dummy_Cycle."""
        order, knobs = self._order, self._configuration
        deadlines = []
        if self.lacks_quorum():
            pass  # the word of another member will bring it on
        elif order.awaited(time_ns) is not None:
            deadlines.append(time_ns + knobs.retr_cycle_ns)
        elif order.queue:
            deadlines.append(order.queue[0].since_ns + knobs.dummy_cycle_ns)
        if len(order.graph):
            deadlines.append(self._commit_ns())
        if deadlines:
            self._timers.arm_own(now, "deliver", max(time_ns + 1, min(deadlines)))

    def lacks_quorum(self) -> bool:
        """Whether the next place waits for other members."""
        queue = self._order.queue
        return bool(queue) and queue[0].place > self._quorum.reach()

    def has_a_hole(self, now: Nanoseconds, time_ns: Nanoseconds) -> bool:
        """Whether others have a message that was awaited long enough here."""
        return not self.lacks_quorum() and self._recovery.has_a_hole(now, time_ns)

    def _is_due(self, time_ns: Nanoseconds) -> bool:
        return len(self._order.graph) > 0 and self._commit_ns() <= time_ns

    def _commit_ns(self) -> Nanoseconds:
        """When the front may be ordered by tag: not while an own message may belong before it."""
        knobs, graph = self._configuration, self._order.graph
        since_ns = max(map(graph.since, graph.front()))
        deadline_ns = since_ns + knobs.deliv_cycle_ns
        if self._waits_for_reports and self._reports[0] < since_ns:
            deadline_ns = since_ns + REPORT_CYCLES * knobs.deliv_cycle_ns
        if self._own.unlocated:
            handed_ns = self._own.oldest_ns()
            if handed_ns <= since_ns:
                deadline_ns = max(deadline_ns, handed_ns + OWN_CYCLES * knobs.deliv_cycle_ns)
        return deadline_ns
