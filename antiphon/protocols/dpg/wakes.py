"""A member's timers, each set for the earliest time that anyone asked for."""

from collections.abc import Callable

from antiphon.core.effects import Effect, SetTimer
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.cycles import Clock


class Wakes:
    """When each timer is due."""

    __slots__ = ("_clock", "_due_ns", "_emit")

    def __init__(self, clock: Clock, emit: Callable[[Effect], None]) -> None:
        self._clock = clock
        self._emit = emit
        self._due_ns: dict[str, Nanoseconds] = {}

    def set(self, name: str, now: Nanoseconds, pause_ns: Nanoseconds) -> None:
        """A timer no later than this; one that is set for earlier stays."""
        due_ns = now + max(1, pause_ns)
        known_ns = self._due_ns.get(name)
        if known_ns is None or due_ns < known_ns:
            self._due_ns[name] = due_ns
            self._emit(SetTimer(name, max(1, pause_ns)))

    def set_own(self, name: str, now: Nanoseconds, own_deadline_ns: Nanoseconds) -> None:
        """A timer no later than when the member's own clock may have come so far."""
        self.set(name, now, self._clock.until(now, own_deadline_ns))

    def fired(self, name: str) -> None:
        self._due_ns.pop(name, None)

    def forget(self) -> None:
        """Timers of the time before are gone or mean nothing."""
        self._due_ns.clear()
