"""A member's own messages, from their admission until each has a place in the order.

Source: Konorski, sections 4 (admission buffers, the multicast queue) and 6 (a sender does not hear itself).
How many may be under way adapts to a shared channel: it is full when word of an own message comes late.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.core.effects import Admitted, Rejected
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.buffers import Held
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import ORIGIN, DpgConfiguration, Message, Tag
from antiphon.protocols.dpg.services.base import Service
from antiphon.protocols.dpg.tags import Tags

FIRST_REACH: Final = 4
"""Own messages under way at first, on a channel that is shared."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """An admitted batch that waits for its turn."""

    number: int
    bodies: Packed


class OwnMessages:
    """Those of one member. Times are in the member's own clock."""

    def __init__(
        self, site: Site, configuration: DpgConfiguration, order: Order, service: Service, tags: Tags
    ) -> None:
        self._site = site
        self._configuration = configuration
        self._order = order
        self._service = service
        self._tags = tags
        self.incarnation = 0
        self._first_number = 0
        self._next_number = 0
        self.waiting: deque[Batch] = deque()
        """Admitted, and not yet handed over."""
        self.unlocated: dict[Tag, tuple[Message, Nanoseconds]] = {}
        """Those whose place is unknown, with when they were handed over."""
        self.previous: Tag = ORIGIN
        """The latest that was handed over; `ORIGIN` if none was since the spell began."""
        self._located: list[tuple[int, Tag]] = []
        """Those that reports have told of since the channel brought something, with their numbers."""
        shared = service.reports_ordered
        self._reach = float(min(configuration.window, FIRST_REACH) if shared else configuration.window)
        """How many may be under way, on a shared channel as many as it takes without delay."""
        self._slowed_ns: Nanoseconds = 0

    def begin(self, incarnation: int, next_number: int) -> None:
        self.incarnation = incarnation
        self._first_number = self._next_number = next_number

    def next(self) -> tuple[int, int]:
        """Our incarnation, and the number of our next message."""
        return self.incarnation, self._next_number

    def may_have_sent(self, incarnation: int, number: int, count: int) -> bool:
        """Whether we have sent these messages; if we count from 0, an earlier process may have sent any."""
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
        """Whether one waits, and not too many are under way."""
        return bool(self.waiting) and len(self._order.own) < self._reach

    def compose(self, now: Nanoseconds, time_ns: Nanoseconds, batch: Batch, seen: Tag) -> Message:
        """The PDU for a batch that is handed over now, at this own time; `seen` precedes it."""
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
        """Those without a place, to be handed over anew."""
        messages = sorted((message for message, _ in self.unlocated.values()), key=_number)
        for message in messages:
            del self._order.own[message.tag]
        self.unlocated.clear()
        return [Batch(message.number, message.bodies) for message in messages]

    # Where they stand

    def possibly_between(self) -> list[Tag]:
        """Those that may lie between what the channel brought last and what it brings now."""
        if self._service.hears_itself:
            return []
        located, self._located = self._located, []
        waiting = [(message.number, tag) for tag, (message, _) in self.unlocated.items()]
        return [tag for _, tag in sorted((*located, *waiting))]

    def locate(self, now: Nanoseconds, time_ns: Nanoseconds, tag: Tag) -> None:
        """This has its place: the service is told if it is one of ours that had none."""
        handed = self.unlocated.pop(tag, None)
        if handed is None:
            return
        message, handed_ns = handed
        if self._service.reports_ordered:
            self._note_congestion(time_ns, handed_ns)
        if not self._service.hears_itself:
            self._located.append((message.number, tag))
        self._service.located(now, tag)

    def locate_known(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Others have told of those that the order knows by now."""
        for tag in [tag for tag in self.unlocated if self._order.is_known(tag)]:
            self.locate(now, time_ns, tag)

    def locate_alone(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        """Where there is nobody else, what we vouch for ourselves has to do."""
        order = self._order
        for message in self.overdue(time_ns):
            if order.add(time_ns, message.tag):
                order.connect_as_sent(message.tag)
                self.locate(now, time_ns, message.tag)

    def _note_congestion(self, time_ns: Nanoseconds, handed_ns: Nanoseconds) -> None:
        """Word of an own message has come: late, if the shared channel is full. Keep the less under way."""
        knobs = self._configuration
        if time_ns - handed_ns <= knobs.locate_cycle_ns:
            self._reach = min(self._reach + 1 / self._reach, knobs.window)
        elif time_ns - self._slowed_ns >= knobs.locate_cycle_ns:
            self._slowed_ns = time_ns
            self._reach = max(1.0, self._reach / 2)

    def oldest_ns(self) -> Nanoseconds:
        """When the first of those without a place was handed over; there is one."""
        return min(handed_ns for _, handed_ns in self.unlocated.values())

    def overdue(self, time_ns: Nanoseconds) -> list[Message]:
        """Those that should have been reported by now, in order; nobody may have received them."""
        if not self.unlocated or self._service.hears_itself:
            return []
        since_ns = time_ns - self._configuration.locate_cycle_ns
        overdue = [message for message, handed_ns in self.unlocated.values() if handed_ns <= since_ns]
        return sorted(overdue, key=_number)

    # After an absence

    def listen(self) -> None:
        """What the channel brings from here on follows nothing that is known."""
        self._located.clear()

    def renew(self, now: Nanoseconds, time_ns: Nanoseconds, agreed: Sequence[Tag]) -> list[Message]:
        """What was handed over before an absence: delivered meanwhile, known, or to be handed over anew.

        Returned are those of which nobody heard before the others delivered what followed: they are lost.
        What the others have agreed on may still be asked for, although it lies before our spell. What comes
        before one of ours that they know keeps its tag: handed over anew it would stand behind that.
        """
        order = self._order
        expected = order.streams.get(self._site, (0, 0))
        known = max(
            (held.message.number for tag, held in order.own.items() if tag in order.graph), default=-1
        )
        self.previous = ORIGIN
        placed = []
        passed = []
        for tag, held in sorted(order.own.items(), key=lambda item: item[1].message.number):
            message = held.message
            if tag in agreed or (message.incarnation, message.number) < expected:
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
        """Whether the others never heard of this, as far back as they tell, and we did not deliver it."""
        order = self._order
        is_in_sight = message.index >= order.agreement.index - len(agreed)
        name = (self._site, message.number)
        return is_in_sight and message.tag not in agreed and name not in order.names.values()


def _number(message: Message) -> int:
    return message.number
