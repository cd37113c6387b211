"""Error detection: members tell one another how far they have seen each stream (Guo, chapter 7).

The stability protocols serve with maxima instead of minima. Whoever has seen less of a stream than the
furthest learns what it misses, and asks for it as for any gap: so the last message of a burst, which no later
one shows to be missing, needs no announcement by its sender.

Rounds go on while the group is there, since a member cannot know that something was sent of which it has
seen nothing: at the pace of announcements while messages come, and of heartbeats while none do.
"""

from typing import Final

from antiphon.core.effects import Missing, Stable
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.repair import Repair
from antiphon.protocols.fifo.seat import Seat
from antiphon.protocols.fifo.state import State
from antiphon.protocols.stability import find_protocol
from antiphon.protocols.stability.base import Objective

DETECT: Final = "detect"
LAYER: Final = "errors/"
"""What the protocol's own timers are called here."""
MARK: Final = 1
"""Tells the PDUs of error detection from those of stability in the same view."""


class Errors:
    """Triggers rounds of error detection, if there are to be any, and passes on what they find."""

    def __init__(self, state: State, repair: Repair) -> None:
        self._state = state
        self._repair = repair
        name = state.configuration.errors
        self._seat = (
            None if name is None else Seat(state, find_protocol(name), LAYER, Objective.GREATEST, MARK)
        )
        self._before: list[int] = []

    @property
    def view(self) -> int | None:
        """The number that PDUs of error detection carry now."""
        return None if self._seat is None else self._seat.view

    def new_view(self, now: Nanoseconds) -> None:
        if self._seat is not None:
            seen = self._seen()
            self._seat.renew(now, seen, seen)
            self._schedule(now)

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if self._seat is not None:
            self._repair_found(now, self._seat.receive(now, sender, pdu, self._seen()))

    def fire(self, now: Nanoseconds, name: str) -> None:
        if self._seat is None:
            return
        if name != DETECT:
            self._repair_found(now, self._seat.fire(now, name, self._seen()))
        elif self._seat.coordinates and not self._state.alone():
            if not self._seat.is_busy(now):
                self._state.counts["error_rounds"] += 1
                self._repair_found(now, self._seat.trigger(now, self._seen()))
            self._schedule(now)

    def _schedule(self, now: Nanoseconds) -> None:
        if self._seat is None or not self._seat.coordinates or self._state.alone():
            return
        seen, configuration = self._seen(), self._state.configuration
        pause_ns = configuration.heartbeat_ns if seen == self._before else configuration.announce_ns
        self._before = seen
        self._state.arm(now, DETECT, pause_ns)

    def _seen(self) -> list[int]:
        """What is seen here, and not what others claim: else their mistakes would go round for ever."""
        return [stream.seen for stream in self._state.view.streams]

    def _repair_found(self, now: Nanoseconds, found: list[Stable | Missing]) -> None:
        seat, state = self._seat, self._state
        assert seat is not None, "what was found was found by somebody"
        for missing in found:
            stream = seat.stream_of(missing)
            if stream is state.own or not stream.begun:
                continue  # nobody has seen more of our messages than we have sent
            state.counts["errors_found"] += missing.count
            stream.end = max(stream.end, missing.number + missing.count)
            if stream.expected < stream.missing_to:
                self._repair.notice(now, stream)
