"""What a member's channel brings, as its graph takes it in.

Source: Konorski, section 4.1: `latest` is L_REC, the latest message that the channel brought. Where reports
share the channel, whatever is known when a message comes precedes it; elsewhere only that one does.
"""

from collections.abc import Sequence

from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.own import OwnMessages
from antiphon.protocols.dpg.pdus import ORIGIN, Arc, DpgConfiguration, Tag
from antiphon.protocols.dpg.suspended import SuspendedDelivery


class Hearing:
    """One member's. Times are in the member's own clock."""

    def __init__(
        self, configuration: DpgConfiguration, order: Order, own: OwnMessages, *, reports_ordered: bool
    ) -> None:
        self._configuration = configuration
        self._order = order
        self._own = own
        self._reports_ordered = reports_ordered
        self._latest: Tag = ORIGIN
        self._refused = False
        """Whether there was no room for a message since, which is as good as a miss."""
        self._suspended = SuspendedDelivery()

    def heard(self, time_ns: Nanoseconds, tag: Tag, *, contiguous: bool, present: bool) -> bool | None:
        """This came next; whether that is of use, None if there was no room for it.

        Whoever is present, and knows of nothing beyond the root that this follows, gives it its place.
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
                order.follow(time_ns, tag, held.message)
                return True
        is_new = tag not in graph
        sinks = graph.sinks() if is_new and self._reports_ordered else []
        is_last = latest in sinks if sinks else latest == graph.root and len(graph) == 0
        if is_new and not order.add(time_ns, tag):
            self._latest = latest  # it is missed, as good as
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
        """Nothing was missed in between, unless it was one of these messages of our own."""
        if own and self._configuration.suspended_delivery:
            self._suspended.infer(latest, tag, own)
        elif not own and is_last:
            self._order.graph.connect(latest, tag, marked=True)

    def placed(self, time_ns: Nanoseconds, tag: Tag, arcs: Sequence[Arc]) -> bool:
        """This message's place is known; whether there was room for it."""
        order = self._order
        graph = order.graph
        self._latest = tag
        if not order.is_known(tag):
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

    def learned(self) -> None:
        """Reports have told something new: provisional inferences may have become certain."""
        if len(self._suspended):
            self._suspended.resolve(self._order)

    def seen(self) -> Tag:
        """Something that precedes on the channel whatever is handed over now.

        Where reports share the channel that is all that is known, by whatever way: the last of it tells most.
        """
        graph = self._order.graph
        if not self._reports_ordered:
            return self._latest
        if not graph.vertices:
            return graph.root
        return next((tag for tag in reversed(graph.sinks()) if tag != self._own.previous), self._latest)

    def listen(self) -> None:
        """After an absence nothing that was inferred counts."""
        self._suspended.forget()
