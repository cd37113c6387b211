"""What was sent to each member, and what of it has come: the questions and answers that a rate goes by.

A `Pulse` asks a few members how many bytes of its sender have come to them, and `Heard` is the answer. The
sender remembers what it had sent to each member when it asked. Datagrams that were sent before a pulse are
read before it, or lost, but for those that come by another socket.
"""

from collections import OrderedDict
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from antiphon.core.fields import Number
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.live.congestion import Controller
from antiphon.live.members import Known

MOST_ASKED: Final = 4
"""Members that one pulse asks. Raising it costs answers."""
PULSE_NS: Final = 10 * MILLISECOND_NS
"""Pause between pulses while something is sent. Raising it costs time until losses slow a sender down."""
MOST_PULSES: Final = 256
"""Pulses whose answers count. Raising it costs memory."""


class Pulse(Pdu, frozen=True, gc=False):
    """How many of my bytes have you had by now? Asked of the processes with these boots."""

    code: ClassVar[int] = 12
    serial: Number
    asked: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(max_length=MOST_ASKED)]


class Heard(Pdu, frozen=True, gc=False):
    """So many, when your pulse of this serial came."""

    code: ClassVar[int] = 13
    serial: Number
    received: Number


class Meter:
    """One member's."""

    def __init__(self, controller: Controller[Known]) -> None:
        self._controller = controller
        self._to_all = 0
        """Bytes sent to everyone."""
        self._to_each: dict[Known, int] = {}
        """Bytes sent to one or some of the members, each."""
        self._pulses: OrderedDict[int, tuple[Nanoseconds, int, dict[Known, int]]] = OrderedDict()
        """When each pulse was sent, and what had been sent by then."""
        self._serial = 0
        self._turn = 0
        self._pulse_ns: Nanoseconds = 0
        self._told = 0

    def sent(self, members: tuple[Known, ...] | None, size: int) -> None:
        """So many bytes were sent to each of these; None means everyone."""
        if members is None:
            self._to_all += size
        else:
            for known in members:
                self._to_each[known] = self._to_each.get(known, 0) + size

    def pulse(self, now: Nanoseconds, members: list[Known]) -> Pulse | None:
        """What to ask now; None if it is too soon, or there is nobody."""
        if now - self._pulse_ns < PULSE_NS:
            return None
        sent = self._to_all + sum(self._to_each.values())
        self._controller.close_round(now, sent - self._told)
        self._pulse_ns, self._told = now, sent
        if not members:
            return None
        self._serial += 1
        return Pulse(self._serial, tuple(known.boot for known in self._choose(members)))

    def pulsed(self, now: Nanoseconds, pulse: Pulse) -> None:
        """It has left."""
        self._pulses[pulse.serial] = (now, self._to_all, dict(self._to_each))
        if len(self._pulses) > MOST_PULSES:
            self._pulses.popitem(last=False)

    def _choose(self, members: list[Known]) -> list[Known]:
        """The slowest member, and some of the others by turns."""
        if len(members) <= MOST_ASKED:
            return members
        limiter = self._controller.limiter
        first = [limiter] if limiter is not None and limiter in members else []
        room = MOST_ASKED - len(first)
        others = [members[(self._turn + place) % len(members)] for place in range(room)]
        self._turn += room
        return list(dict.fromkeys((*first, *others)))

    def hear(self, now: Nanoseconds, known: Known, heard: Heard) -> None:
        """A member answers."""
        pulse = self._pulses.get(heard.serial)
        if pulse is not None:
            sent_ns, to_all, to_each = pulse
            self._controller.hear(now, known, sent_ns, to_all + to_each.get(known, 0), heard.received)

    def forget(self, gone: list[Known]) -> None:
        """These are no members any more."""
        for known in gone:
            self._to_each.pop(known, None)
            self._controller.forget(known)

    def known(self) -> set[Known]:
        """Of whom something is remembered."""
        return {*self._to_each, *self._controller.receivers}
