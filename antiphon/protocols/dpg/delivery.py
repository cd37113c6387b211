"""When a member delivers: at once where its order is certain, else when a cycle is over.

Source: Konorski, sections 4.2 (Deliv_Cycle) and 4.3 (Dummy_Cycle).
"""

from typing import Final

from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.context import Context
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.own_messages import OwnMessages
from antiphon.protocols.dpg.recovery import Recovery

OWN_CYCLES: Final = 4
"""Delivery cycles that the order waits at most for the place of an own message. Raising it costs latency."""


class Delivery:
    """The deliveries of one member; `time_ns` is in its own clock. Its timer is `deliver`."""

    def __init__(self, context: Context, order: Order, own: OwnMessages, recovery: Recovery) -> None:
        self._configuration = context.configuration
        self._order = order
        self._own = own
        self._recovery = recovery
        self._timers = context.timers

    def deliver(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Incorporate and deliver what is certain, and arm the timer if something waits."""
        order = self._order
        vertices = order.graph.vertices
        if vertices:
            order.incorporate_marked(time_ns)
        if order.queue:
            order.deliver(time_ns, self._recovery.may_pass)
        if vertices or order.queue:
            self._wait_for_rest(now, time_ns)
        if order.lost:
            self._recovery.ask_soon(now, time_ns)

    def commit(self, time_ns: Nanoseconds) -> bool:
        """Order by tag what has waited for Deliv_Cycle. Returns whether there was anything."""
        order = self._order
        committed = order.committed
        while len(order.graph) and self._commit_ns() <= time_ns:
            order.commit(time_ns)
            order.incorporate_marked(time_ns)
        return order.committed > committed

    def _wait_for_rest(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Arm the timer for the end of the front's Deliv_Cycle or of the queue's Dummy_Cycle."""
        order, knobs = self._order, self._configuration
        deadlines = []
        if order.awaited(time_ns) is not None:
            deadlines.append(time_ns + knobs.retr_cycle_ns)
        elif order.queue:
            deadlines.append(order.queue[0].since_ns + knobs.dummy_cycle_ns)
        if len(order.graph):
            deadlines.append(self._commit_ns())
        self._timers.arm_own(now, "deliver", max(time_ns + 1, min(deadlines)))

    def _commit_ns(self) -> Nanoseconds:
        """When the front may be ordered by tag: not while an own message may belong before it."""
        knobs, graph = self._configuration, self._order.graph
        since_ns = max(map(graph.since, graph.front()))
        deadline_ns = since_ns + knobs.deliv_cycle_ns
        if self._own.unlocated:
            handed_ns = self._own.oldest_ns()
            if handed_ns <= since_ns:
                deadline_ns = max(deadline_ns, handed_ns + OWN_CYCLES * knobs.deliv_cycle_ns)
        return deadline_ns
