"""Metering: the bytes sent to each member, and the bytes that have arrived there, for congestion control.

A `Pulse` asks a few members how many bytes of its sender have arrived. `Heard` is the answer. The sender
remembers what it had sent to each member when it asked. Datagrams sent before a pulse are read before it or
lost, except those that arrive on another socket.
"""

from collections import OrderedDict
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from antiphon.core.fields import Number
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.live.congestion import Controller
from antiphon.live.members import Known

MOST_ASKED: Final = 4
"""Members that one pulse asks. Raising it costs answers."""
PULSE_NS: Final = 10 * MILLISECOND_NS
"""Pause between pulses while something is sent. Raising it costs time until losses slow a sender down."""
HEARD_NS: Final = SECOND_NS
"""A member that was not heard for this long has been silent. Raising it costs answers after many crashes."""
MOST_PULSES: Final = 256
"""Pulses whose answers count. Raising it costs memory."""


class Pulse(Pdu, frozen=True, gc=False):
    """Asks the processes of these boots how many bytes of the sender have arrived."""

    code: ClassVar[int] = 12
    serial: Number
    asked: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(max_length=MOST_ASKED)]


class Heard(Pdu, frozen=True, gc=False):
    """The bytes that had arrived with the pulse of this serial."""

    code: ClassVar[int] = 13
    serial: Number
    received: Number


class Meter:
    """Counts what one member sends to the others, and asks them what arrived."""

    def __init__(self, controller: Controller[Known]) -> None:
        self._controller = controller
        self._to_all = 0
        """Bytes sent to everyone."""
        self._to_each: dict[Known, int] = {}
        """Bytes sent to single members or to several, for each member."""
        self._pulses: OrderedDict[int, tuple[Nanoseconds, int, dict[Known, int]]] = OrderedDict()
        """When each pulse was sent, and what had been sent by then."""
        self._serial = 0
        self._turn = 0
        """Of the members that were heard recently."""
        self._silent_turn = 0
        self._pulse_ns: Nanoseconds = 0
        self._counted = 0

    def sent(self, members: tuple[Known, ...] | None, size: int) -> None:
        """`size` bytes were sent to each of these members; None means everyone."""
        if members is None:
            self._to_all += size
        else:
            for known in members:
                self._to_each[known] = self._to_each.get(known, 0) + size

    def pulse(self, now: Nanoseconds, members: list[Known]) -> Pulse | None:
        """The pulse to send now; None if it is too soon or there are no members."""
        if now - self._pulse_ns < PULSE_NS:
            return None
        sent = self._to_all + sum(self._to_each.values())
        self._controller.close_round(now, sent - self._counted)
        self._pulse_ns, self._counted = now, sent
        if not members:
            return None
        self._serial += 1
        return Pulse(self._serial, tuple(known.boot for known in self._choose(now, members)))

    def pulsed(self, now: Nanoseconds, pulse: Pulse) -> None:
        """This pulse was sent."""
        self._pulses[pulse.serial] = (now, self._to_all, dict(self._to_each))
        if len(self._pulses) > MOST_PULSES:
            self._pulses.popitem(last=False)

    def _choose(self, now: Nanoseconds, members: list[Known]) -> list[Known]:
        """The slowest member, and some of the others by turns; at most one that has been silent.

        Members that crashed stay members for long: asked as often as the others, they would leave a sender
        without answers.
        """
        if len(members) <= MOST_ASKED:
            return members
        limiter = self._controller.limiter
        chosen = [limiter] if limiter is not None and limiter in members else []
        silent = [known for known in members if now - known.heard_ns > HEARD_NS]
        if silent:
            chosen.append(silent[self._silent_turn % len(silent)])
            self._silent_turn += 1
        heard = [known for known in members if now - known.heard_ns <= HEARD_NS]
        room = min(MOST_ASKED - len(chosen), len(heard))
        chosen += (heard[(self._turn + place) % len(heard)] for place in range(room))
        self._turn += room
        return list(dict.fromkeys(chosen))

    def hear(self, now: Nanoseconds, known: Known, heard: Heard) -> None:
        """A member answers."""
        pulse = self._pulses.get(heard.serial)
        if pulse is not None:
            sent_ns, to_all, to_each = pulse
            self._controller.hear(now, known, sent_ns, to_all + to_each.get(known, 0), heard.received)

    def forget(self, gone: list[Known]) -> None:
        """These have left the table of members."""
        for known in gone:
            self._to_each.pop(known, None)
            self._controller.forget(known)

    def known(self) -> set[Known]:
        """The members that something is remembered about."""
        return {*self._to_each, *self._controller.receivers}
