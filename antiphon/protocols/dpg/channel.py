"""What a member's channel tells its precedence graph.

Source: Konorski, section 4.1: `latest` is L_REC, the latest message that the channel delivered. Where reports
share the channel, everything that is known when a message arrives precedes it; elsewhere only L_REC does.
"""

from collections.abc import Sequence

from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.context import Context
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.own_messages import OwnMessages
from antiphon.protocols.dpg.pdus import ORIGIN, Arc, Tag
from antiphon.protocols.dpg.suspended import SuspendedDelivery


class Channel:
    """The channel of one member. Times are in the member's own clock."""

    def __init__(self, context: Context, order: Order, own: OwnMessages) -> None:
        self._configuration = context.configuration
        self._order = order
        self._own = own
        self._reports_ordered = context.service.reports_ordered
        self._latest: Tag = ORIGIN
        self._refused = False
        """Whether there was no room for a message since then, which counts as a miss."""
        self._suspended = SuspendedDelivery()

    def on_message(self, time_ns: Nanoseconds, tag: Tag, *, contiguous: bool, present: bool) -> bool | None:
        """This message came next. Returns whether that is news; None if there was no room for it.

        A member that is present places it at once if it follows the root contiguously and nothing else waits.
        """
        order = self._order
        graph = order.graph
        latest, self._latest = self._latest, tag
        own = self._own.possibly_between()
        if tag in order.tombstones:
            return False
        if present and contiguous and latest == graph.root and not (own or self._refused):
            held = order.body(tag)
            if held is not None and order.is_done() and self._configuration.detector:
                tails = {held.message.previous, held.message.seen} - {ORIGIN, tag, latest}
                order.follow(time_ns, tag, tails)
                return True
        is_new = tag not in graph
        sinks = graph.sinks() if is_new and self._reports_ordered else []
        is_last = latest in sinks if sinks else latest == graph.root and len(graph) == 0
        if is_new and not order.add(time_ns, tag):
            self._latest = latest  # it counts as missed
            self._refused = True
            return None
        for tail in sinks or [latest]:
            if tail != tag:
                graph.connect(tail, tag)
        order.connect_as_sent(tag)
        refused, self._refused = self._refused, False
        if self._configuration.detector and contiguous and latest != tag and not refused:
            self._infer(latest, tag, own, is_last)
        return True

    def _infer(self, latest: Tag, tag: Tag, own: list[Tag], is_last: bool) -> None:
        """Nothing was missed in between, except perhaps these own messages."""
        if own and self._configuration.suspended_delivery:
            self._suspended.infer(latest, tag, own)
        elif not own and is_last:
            self._order.graph.connect(latest, tag, marked=True)

    def on_placement(self, time_ns: Nanoseconds, tag: Tag, arcs: Sequence[Arc], *, present: bool) -> bool:
        """This message's place is known. Returns whether there was room for it.

        A member that is present places it at once if it follows the root contiguously and nothing else waits.
        """
        order = self._order
        graph = order.graph
        self._latest = tag
        if not order.is_known(tag):
            if (
                present
                and len(arcs) == 1
                and arcs[0] == (graph.root, tag, True)
                and self._configuration.detector
                and order.is_done()
                and order.body(tag) is not None
            ):
                order.follow(time_ns, tag)
                return True
            late = [head for tail, head, _ in arcs if tail == tag and head in order.tombstones]
            if late:
                order.pass_by(tag, late[0])
                return True
            if not order.add(time_ns, tag):
                return False
        detector = self._configuration.detector
        for tail, head, marked in arcs:
            if head in graph:
                graph.connect(tail, head, marked=marked and detector)
        return True

    def on_news(self) -> None:
        """Reports brought news: provisional inferences may have become certain."""
        if len(self._suspended):
            self._suspended.resolve(self._order)

    def seen(self) -> Tag:
        """A tag that precedes on the channel whatever is handed over now.

        Where reports share the channel, everything known precedes it; the last known vertex tells most.
        """
        graph = self._order.graph
        if not self._reports_ordered:
            return self._latest
        if not graph.vertices:
            return graph.root
        return next((tag for tag in reversed(graph.sinks()) if tag != self._own.previous), self._latest)

    def listen(self) -> None:
        """An absence makes all inferences void."""
        self._suspended.forget()
