"""A member's timers: named, replaceable, and one wake-up of the event loop for all of them."""

from heapq import heapify, heappop, heappush
from typing import Final

from antiphon.core.time import NEVER_NS, Nanoseconds

SLACK: Final = 64
"""Replaced timers in the heap, beyond twice the set ones, before it is swept. Raising it costs memory."""


class Timers:
    """The timers that are set, and which of them are due."""

    __slots__ = ("_deadlines", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[str, Nanoseconds] = {}
        self._heap: list[tuple[Nanoseconds, str]] = []

    def set(self, name: str, deadline_ns: Nanoseconds) -> None:
        self._deadlines[name] = deadline_ns
        heappush(self._heap, (deadline_ns, name))
        if len(self._heap) > 2 * len(self._deadlines) + SLACK:
            self._heap = [(deadline, timer) for timer, deadline in self._deadlines.items()]
            heapify(self._heap)

    def cancel(self, name: str) -> None:
        self._deadlines.pop(name, None)

    def clear(self) -> None:
        self._deadlines.clear()
        self._heap.clear()

    def next_ns(self) -> Nanoseconds:
        """When the next timer is due."""
        heap, deadlines = self._heap, self._deadlines
        while heap and deadlines.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else NEVER_NS

    def due(self, now: Nanoseconds) -> str | None:
        """Remove and return a timer that is due, the earliest first; None if there is none."""
        if self.next_ns() > now:
            return None
        _, name = heappop(self._heap)
        del self._deadlines[name]
        return name
