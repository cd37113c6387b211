"""A call on a replicated object: what a client asked, and what it was answered.

It began at `start` and was answered at `end`; without an answer it may have taken effect or not, and may do
so later. Both are positions in an order that all clients with the same `clock` share: the simulator's events,
or the monotonic clock of one machine. Calls by different clocks are not ordered.
"""

from typing import Any, Final

import msgspec

from antiphon.core.ids import Site


class Call(msgspec.Struct, frozen=True):
    """One call. Arguments and result are plain data."""

    client: Site
    number: int
    """Unique among the calls of the client."""
    object: str
    operation: str
    arguments: tuple[Any, ...] = ()
    result: Any = None
    """The answer. Without one, null."""
    start: int = 0
    end: int | None = None
    """Null if no answer came."""
    model: str | None = None
    """What the object is: map, counter, lock and so on; null if it is the application's own."""
    clock: str | None = None
    run: str = ""

    @property
    def answered(self) -> bool:
        return self.end is not None


ERROR: Final = "error"
"""A result that is a map with this single key is an exception that the object raised."""
