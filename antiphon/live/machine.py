"""The machine that a member runs on: its clocks, its event loop, its randomness and its sockets.

A live member has the real one. `antiphon.testing` gives it a simulated one, so that an application's tests
run on simulated time; nothing else in `live` reads a clock or draws a random number that matters.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final
from typing import Protocol as Interface

from antiphon.core.ids import Group
from antiphon.core.time import Nanoseconds

if TYPE_CHECKING:
    from antiphon.live.sockets import Opened

BOOT_BITS: Final = 64


class Loop(Interface):
    """What a member uses of its event loop."""

    def add_reader(self, fd: int, callback: Callable[..., Any], *args: Any) -> None: ...
    def remove_reader(self, fd: int) -> bool: ...
    def call_soon(self, callback: Callable[..., Any], *args: Any) -> asyncio.Handle: ...
    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle: ...


class Machine:
    """The real one."""

    now_ns: Callable[[], Nanoseconds] = staticmethod(time.monotonic_ns)
    """The monotonic clock."""
    wall_ns: Callable[[], Nanoseconds] = staticmethod(time.time_ns)
    """The time of day."""

    def loop(self) -> Loop:
        return asyncio.get_running_loop()

    def random(self) -> Random:
        return Random()

    def boot(self) -> int:
        """A random id of a process that starts."""
        return secrets.randbits(BOOT_BITS)

    def open(self, group: Group) -> "Opened | None":  # noqa: ARG002
        """The sockets of a simulated network; None for the kernel's."""
        return None


REAL: Final = Machine()
