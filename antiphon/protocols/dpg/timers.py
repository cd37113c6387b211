"""A member's timers, some of which run out by its own clock."""

from collections.abc import Callable

from antiphon.core.effects import Effect
from antiphon.core.time import Nanoseconds
from antiphon.protocols import timers
from antiphon.protocols.dpg.cycles import Clock


class Timers(timers.Timers):
    """Timers for real time and for the member's own time."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock, emit: Callable[[Effect], None]) -> None:
        super().__init__(emit)
        self._clock = clock

    def arm_own(self, now: Nanoseconds, name: str, own_deadline_ns: Nanoseconds) -> None:
        """Make a timer run out no later than the member's own clock may reach this time."""
        self.arm(now, name, self._clock.until(now, own_deadline_ns))
