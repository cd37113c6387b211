"""A member's timers: each runs out at the earliest time that any part of the member asked for."""

from collections.abc import Callable

from antiphon.core.effects import Effect, SetTimer
from antiphon.core.time import NEVER_NS, Nanoseconds


class Timers:
    """Sets timers, and remembers which are set."""

    __slots__ = ("_emit", "due_ns")

    def __init__(self, emit: Callable[[Effect], None]) -> None:
        self._emit = emit
        self.due_ns: dict[str, Nanoseconds] = {}
        """The timers that are set, and when they run out. Only for reading."""

    def arm(self, now: Nanoseconds, name: str, after_ns: Nanoseconds) -> None:
        """Make a timer run out no later than this; one that runs out sooner stays as it is."""
        due_ns = now + after_ns
        if due_ns < self.due_ns.get(name, NEVER_NS):
            self.due_ns[name] = due_ns
            self._emit(SetTimer(name, after_ns))

    def fired(self, name: str) -> None:
        """A timer has run out."""
        self.due_ns.pop(name, None)

    def clear(self) -> None:
        """Forget all timers: the driver stops them during an absence."""
        self.due_ns.clear()
