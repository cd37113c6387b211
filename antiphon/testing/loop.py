"""An event loop on simulated time: every wait for a time ends at once, in order.

The clock stands while code runs and leaps to the next timer when nothing is left to do, so a test that waits
for minutes takes milliseconds, and runs the same way every time. Threads would not: work for an executor is
done at once, in the loop's own thread.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from math import ceil
from typing import Any, Final, TypeVar
from typing import Protocol as Interface

from antiphon.core.errors import UsageError
from antiphon.core.time import SECOND_NS, Nanoseconds, to_seconds

T = TypeVar("T")

BEGIN_NS: Final = 1000 * SECOND_NS
"""The first time of the clock. Not 0, since a live clock never shows that either."""

LIMIT_S: Final = 600.0
"""Simulated seconds that `run` allows by default. Raising it costs time until a hanging test is ended."""


class Readable(Interface):
    """A simulated socket."""

    def is_readable(self) -> bool: ...


class SimulatedSelector(selectors.BaseSelector):
    """Selects the simulated sockets that can be read; advances the time if there are none."""

    def __init__(self) -> None:
        self.now_ns: Nanoseconds = BEGIN_NS
        self.sockets: dict[int, Readable] = {}
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._keys[number] = key = selectors.SelectorKey(fileobj, number, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = [
            (self._keys[number], selectors.EVENT_READ)
            for number, socket in self.sockets.items()
            if number in self._keys and socket.is_readable()
        ]
        if not ready and timeout is None:
            raise UsageError(
                "Nothing can happen any more, and the test still waits.",
                hint="It waits for something outside the simulation, or for a message that no member sends.",
            )
        if not ready and timeout:
            self.now_ns += ceil(timeout * SECOND_NS)
        return ready

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is simulated."""

    def __init__(self) -> None:
        self.selector: Final = SimulatedSelector()
        super().__init__(self.selector)

    def time(self) -> float:
        return to_seconds(self.selector.now_ns)

    def run_in_executor(  # type: ignore[override]
        self, _executor: Any, function: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run(work: Coroutine[Any, Any, T], *, limit_s: float = LIMIT_S) -> T:
    """Run a coroutine to its end on simulated time, as `asyncio.run` does on real time.

    `TimeoutError` if it has not ended after `limit_s` of simulated time.
    """
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(_within(work, limit_s))


async def _within(work: Coroutine[Any, Any, T], limit_s: float) -> T:
    try:
        async with asyncio.timeout(limit_s) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimeoutError(f"This has not ended after {limit_s:g} s of simulated time.") from None


def simulated_loop() -> SimulatedLoop:
    """The running loop, which must be a simulated one."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimulatedLoop):
        raise UsageError(
            "A simulated cluster needs simulated time.", hint="Run the test with antiphon.testing.run(...)."
        )
    return loop
