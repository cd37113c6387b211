"""Checks of received messages: which are valid, which are new, and which others must be missing.

Source: Konorski, sections 4.2 and 4.3. Here garbage is told from messages.
"""

from collections import OrderedDict
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.context import Context
from antiphon.protocols.dpg.flow import Flow
from antiphon.protocols.dpg.heartbeat import ReportHeartbeat
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import LARGEST_MESSAGE_BYTES, Message, Tag
from antiphon.protocols.dpg.tags import Tags

MOST_RECEIVED: Final = 4096
"""Tags that the channel delivered and that are remembered. Raising it costs memory."""


class Validation:
    """The checks of one member. Times are in the member's own clock."""

    def __init__(
        self, context: Context, order: Order, tags: Tags, flow: Flow, heartbeat: ReportHeartbeat
    ) -> None:
        self._order = order
        self._tags = tags
        self._flow = flow
        self._heartbeat = heartbeat
        self._looks_for_gaps = context.service.reports_ordered
        self._received: OrderedDict[Tag, None] = OrderedDict()

    def makes_sense(self, message: Message) -> bool:
        """Whether its tag is the group's, and its batch can be remulticast; decoding has bounded the rest."""
        return len(message.bodies.data) <= LARGEST_MESSAGE_BYTES and self._tags.is_ours(message.tag)

    def is_fresh(self, tag: Tag) -> bool:
        """Whether the channel delivers it for the first time."""
        if tag in self._received:
            return False
        self._received[tag] = None
        if len(self._received) > MOST_RECEIVED:
            self._received.popitem(last=False)
        return True

    def take(
        self, time_ns: Nanoseconds, sender: Site, message: Message, *, present: bool, again: bool = False
    ) -> None:
        """Hold a body that was missing here. A `present` member looks whether another must be missing.

        A listening member does not slow the group down: most of what it holds lies before its spell.
        """
        if self._order.store(sender, message, again=again) is not None and present:
            self._flow.overflowed(time_ns)
            self._heartbeat.urge(time_ns)
        if present and self._looks_for_gaps:
            self._look_for_gap(time_ns, sender, message)

    def take_part(self, time_ns: Nanoseconds) -> None:
        """Look for gaps in what was received before this member took part."""
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
        """The sender's previous message is lost if it is unknown and not delivered.

        Perhaps no member has it, and so none reports it. It follows what is held of the same sender.
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
        """The latest held message that the sender sent before this one."""
        held = [
            (each.message.number, tag)
            for tag, each in self._order.buffers.items()
            if (each.sender, each.message.incarnation) == (sender, message.incarnation)
            and each.message.number < message.number
            and tag in self._order.graph
        ]
        return max(held)[1] if held else None
