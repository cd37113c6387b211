"""Bodies as they come: which make sense, which are new, and which must be missing.

Source: Konorski, sections 4.2 and 4.3. A stranger's garbage is told from messages here.
"""

from collections import OrderedDict
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.flow import Flow
from antiphon.protocols.dpg.heartbeat import ReportHeartbeat
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import LARGEST_MESSAGE_BYTES, Message, Tag
from antiphon.protocols.dpg.tags import Tags

MOST_RECEIVED: Final = 4096
"""Tags that are known to have come by the channel. Raising it costs memory."""


class Intake:
    """One member's. Times are in the member's own clock."""

    def __init__(
        self, order: Order, tags: Tags, flow: Flow, heartbeat: ReportHeartbeat, *, reports_ordered: bool
    ) -> None:
        self._order = order
        self._tags = tags
        self._flow = flow
        self._heartbeat = heartbeat
        self._looks_for_gaps = reports_ordered
        self._received: OrderedDict[Tag, None] = OrderedDict()

    def makes_sense(self, message: Message) -> bool:
        """Whether its tag is the group's, and its batch can be remulticast; decoding has bounded the rest."""
        return len(message.bodies.data) <= LARGEST_MESSAGE_BYTES and self._tags.is_ours(message.tag)

    def is_fresh(self, tag: Tag) -> bool:
        """Whether the channel brings it for the first time."""
        if tag in self._received:
            return False
        self._received[tag] = None
        if len(self._received) > MOST_RECEIVED:
            self._received.popitem(last=False)
        return True

    def take(
        self, time_ns: Nanoseconds, sender: Site, message: Message, *, present: bool, again: bool = False
    ) -> None:
        """Hold a body that was lacking here; whoever is `present` sees whether another must be.

        Nobody is to go slower for one that only listens: most of what it holds lies before its spell.
        """
        if self._order.store(sender, message, again=again) is not None and present:
            self._flow.overflowed(time_ns)
            self._heartbeat.urge(time_ns)
        if present and self._looks_for_gaps:
            self._look_for_gap(time_ns, sender, message)

    def take_part(self, time_ns: Nanoseconds) -> None:
        """See what must be missing of all that was heard before we took part."""
        if not self._looks_for_gaps:
            return
        for tag in list(self._order.graph):
            held = self._order.buffers.get(tag)
            if held is not None:
                self._look_for_gap(time_ns, held.sender, held.message)

    def listen(self) -> None:
        """After an absence the channel begins anew."""
        self._received.clear()

    def _look_for_gap(self, time_ns: Nanoseconds, sender: Site, message: Message) -> None:
        """Something before this is not delivered: if the sender's message before it is unknown, it is lost.

        Nobody may have it, and so nobody report it. It follows what else we hold of its sender.
        """
        order = self._order
        expected = order.streams.get(sender, (0, 0))
        previous = message.previous
        is_beyond = expected < (message.incarnation, message.number)
        if is_beyond and not order.is_known(previous) and self._tags.is_ours(previous):
            before = self._latest_before(sender, message)
            if order.add(time_ns, previous) and before is not None:
                order.graph.connect(before, previous)

    def _latest_before(self, sender: Site, message: Message) -> Tag | None:
        """The last of what we hold of this sender that it sent before this message."""
        held = [
            (each.message.number, tag)
            for tag in self._order.buffers
            if (each := self._order.buffers.get(tag)) is not None
            and (each.sender, each.message.incarnation) == (sender, message.incarnation)
            and each.message.number < message.number
            and tag in self._order.graph
        ]
        return max(held)[1] if held else None
