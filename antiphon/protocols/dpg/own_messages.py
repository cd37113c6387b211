"""A member's own messages, from their admission until each has a place in the order.

Source: Konorski, sections 4 (admission buffers, the multicast queue) and 6 (a sender does not hear itself).
On a shared channel the number of messages under way adapts: the channel is full when reports of an own
message come late.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.core.effects import Admitted, Rejected
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.buffers import Held
from antiphon.protocols.dpg.context import Context
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import ORIGIN, Message, Tag
from antiphon.protocols.dpg.tags import Tags

FIRST_REACH: Final = 4
"""Own messages under way at first, on a shared channel. Raising it risks congestion at the beginning."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """An admitted batch that waits for its turn."""

    number: int
    bodies: Packed


class OwnMessages:
    """The messages of one member. Times are in the member's own clock."""

    def __init__(self, context: Context, order: Order, tags: Tags) -> None:
        self._site = context.site
        self._configuration = configuration = context.configuration
        self._order = order
        self._service = context.service
        self._tags = tags
        self.incarnation = 0
        self._first_number = 0
        self._next_number = 0
        self.waiting: deque[Batch] = deque()
        """Admitted, and not yet handed over."""
        self.unlocated: dict[Tag, tuple[Message, Nanoseconds]] = {}
        """Messages without a place, and when each was handed over."""
        self.previous: Tag = ORIGIN
        """The latest message handed over; `ORIGIN` if there was none in this spell."""
        self._earlier = 0
        """Messages with lower numbers were handed over in an earlier spell."""
        self._located: list[tuple[int, Tag]] = []
        """Messages reported since the channel last delivered something, with their numbers."""
        shared = context.service.reports_ordered
        self._reach = float(min(configuration.window, FIRST_REACH) if shared else configuration.window)
        """How many may be under way. On a shared channel it adapts to congestion."""
        self._slowed_ns: Nanoseconds = 0

    def begin(self, incarnation: int, next_number: int) -> None:
        self.incarnation = incarnation
        self._first_number = self._next_number = next_number

    def next(self) -> tuple[int, int]:
        """This incarnation, and the number of the next message."""
        return self.incarnation, self._next_number

    def may_have_sent(self, incarnation: int, number: int, count: int) -> bool:
        """Whether this member may have sent these; if it counts from 0, its earlier process may have."""
        if incarnation == self.incarnation:
            return number + count <= self._next_number
        is_counted_on = self._first_number > 0
        return incarnation < self.incarnation and not (is_counted_on and number + count > self._first_number)

    # On the way out

    def admit(self, bodies: Packed) -> Admitted | Rejected:
        if len(self.waiting) >= self._configuration.admission_buffers:
            return Rejected("As many messages as the admission buffers hold wait already.")
        number = self._next_number
        self.waiting.append(Batch(number, bodies))
        self._next_number += bodies.messages
        return Admitted(number, bodies.messages, bodies.size)

    def may_go(self) -> bool:
        """Whether a batch waits, and not too many messages are under way."""
        return bool(self.waiting) and len(self._order.own) < self._reach

    def compose(self, now: Nanoseconds, time_ns: Nanoseconds, batch: Batch, seen: Tag) -> Message:
        """The PDU for a batch that is handed over now; `seen` precedes it."""
        order = self._order
        tag = self._tags.choose(order.is_known)
        message = Message(
            tag, self.previous, seen, self._service.stamp(now),
            order.agreement.index, self.incarnation, batch.number, batch.bodies,
        )  # fmt: skip
        self.previous = tag
        order.own[tag] = Held(self._site, message)
        self.unlocated[tag] = (message, time_ns)
        return message

    def recall(self) -> list[Batch]:
        """Take back the messages without a place, to hand them over anew."""
        messages = sorted((message for message, _ in self.unlocated.values()), key=_number)
        for message in messages:
            del self._order.own[message.tag]
        self.unlocated.clear()
        return [Batch(message.number, message.bodies) for message in messages]

    # Where they stand

    def possibly_between(self) -> list[Tag]:
        """Own messages that may lie between the channel's last two messages."""
        if self._service.hears_itself:
            return []
        located, self._located = self._located, []
        waiting = [(message.number, tag) for tag, (message, _) in self.unlocated.items()]
        return [tag for _, tag in sorted((*located, *waiting))]

    def locate(self, now: Nanoseconds, time_ns: Nanoseconds, tag: Tag) -> None:
        """This message has a place. If it is an own message that had none, the service learns it."""
        handed = self.unlocated.pop(tag, None)
        if handed is None:
            return
        message, handed_ns = handed
        if self._service.reports_ordered:
            self._note_congestion(time_ns, handed_ns)
        if not self._service.hears_itself:
            self._located.append((message.number, tag))
        self._service.on_located(now, tag)

    def locate_known(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Own messages that the order knows by now have been reported."""
        for tag in [tag for tag in self.unlocated if self._order.is_known(tag)]:
            self.locate(now, time_ns, tag)

    def locate_alone(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """A member that is alone places its own messages itself."""
        order = self._order
        for message in self.overdue(time_ns):
            if order.add(time_ns, message.tag):
                order.connect_as_sent(message.tag)
                self.locate(now, time_ns, message.tag)

    def _note_congestion(self, time_ns: Nanoseconds, handed_ns: Nanoseconds) -> None:
        """An own message was reported. A late report means congestion: keep fewer messages under way."""
        knobs = self._configuration
        if time_ns - handed_ns <= knobs.locate_cycle_ns:
            self._reach = min(self._reach + 1 / self._reach, knobs.window)
        elif time_ns - self._slowed_ns >= knobs.locate_cycle_ns:
            self._slowed_ns = time_ns
            self._reach = max(1.0, self._reach / 2)

    def oldest_ns(self) -> Nanoseconds:
        """When the oldest message without a place was handed over; there is one."""
        return min(handed_ns for _, handed_ns in self.unlocated.values())

    def overdue(self, time_ns: Nanoseconds) -> list[Message]:
        """Messages that should have been reported by now, in order; perhaps no member received them."""
        if not self.unlocated or self._service.hears_itself:
            return []
        since_ns = time_ns - self._configuration.locate_cycle_ns
        overdue = [message for message, handed_ns in self.unlocated.values() if handed_ns <= since_ns]
        return sorted(overdue, key=_number)

    # After an absence

    def listen(self) -> None:
        """What the channel delivers from here on follows nothing that is known."""
        self._located.clear()
        self._earlier = max((held.message.number + 1 for held in self._order.own.values()), default=0)

    def old(self, time_ns: Nanoseconds) -> Message | None:
        """The first message that is not delivered here although others may have had it for long."""
        since_ns = time_ns - self._configuration.silence_ns
        found = [
            held.message
            for tag, held in self._order.own.items()
            if held.message.number < self._earlier or self.unlocated.get(tag, (None, time_ns))[1] < since_ns
        ]
        return min(found, key=_number, default=None)

    def renew(self, now: Nanoseconds, time_ns: Nanoseconds, agreed: Sequence[Tag]) -> list[Message]:
        """Sort messages of before an absence: delivered meanwhile, known, or to be handed over anew.

        Returns the lost messages: no other member received them before their successors were delivered.
        Agreed messages stay available to others, although they lie before this spell. A message before a
        known own message keeps its tag: handed over anew it would get a later place.
        """
        order = self._order
        for tag in [tag for tag in self.unlocated if tag not in order.own]:
            del self.unlocated[tag]  # it was passed over, which was told
        expected = order.streams.get(self._site, (0, 0))
        known = max(
            (held.message.number for tag, held in order.own.items() if tag in order.graph), default=-1
        )
        self.previous = ORIGIN
        placed = []
        passed = []
        for tag, held in sorted(order.own.items(), key=lambda item: item[1].message.number):
            message = held.message
            if order.is_placed(tag):
                self.unlocated.pop(tag, None)  # it waits for a quorum
                self.previous = tag
            elif tag in agreed or (message.incarnation, message.number) < expected:
                order.kept.keep(time_ns, tag, order.own.pop(tag))
                self.unlocated.pop(tag, None)
                if self._is_passed(message, agreed):
                    passed.append(message)
            elif tag in order.graph or (message.number < known and order.add(time_ns, tag)):
                order.connect_as_sent(tag)
                self.previous = tag
                placed.append(tag)
            else:
                self.unlocated.setdefault(tag, (message, time_ns))
        for tag in placed:
            self.locate(now, time_ns, tag)
        return passed

    def _is_passed(self, message: Message, agreed: Sequence[Tag]) -> bool:
        """Whether the others never had this, as far back as they report, and it was not delivered here."""
        order = self._order
        is_in_sight = message.index >= order.agreement.index - len(agreed)
        name = (self._site, message.number)
        return is_in_sight and message.tag not in agreed and name not in order.names.values()


def _number(message: Message) -> int:
    return message.number
