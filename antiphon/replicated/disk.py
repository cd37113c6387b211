"""The way to the disk: writes are collected while the disk is busy, and synchronized together.

A thread writes, so the event loop does not wait for the disk. The protocol gets an input when a write is
safe. A disk that is full, or fails, is tried again until it takes the writes; until then the member agrees
to nothing.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from antiphon.protocols.quorum.ports import Compact
from antiphon.replicated.journal import Journal, Write

RETRY_S: Final = 0.5
"""Pause before a disk that failed is tried again. Raising it costs time until it is used again."""


class Disk:
    """Writes to a `Journal`, in order, in a thread of its own; with `inline`, at once."""

    def __init__(
        self,
        journal: Journal,
        *,
        stored: Callable[[int], None],
        failed: Callable[[str], None],
        recovered: Callable[[], None],
        inline: bool = False,
    ) -> None:
        self._journal: Final = journal
        self._stored: Final = stored
        self._failed: Final = failed
        self._recovered: Final = recovered
        self._loop: Final = asyncio.get_running_loop()
        self._pool: Final = None if inline else ThreadPoolExecutor(1, "antiphon-store")
        self._waiting: list[Write] = []
        self._busy = False
        self._has_failed = False
        self._is_closed = False

    def write(self, write: Write) -> None:
        self._waiting.append(write)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._start)

    def close(self) -> None:
        """Write what waits, and let the folder go."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        with contextlib.suppress(OSError):  # what waits was not acknowledged
            self._journal.write(self._waiting)
        self._journal.close()

    def _start(self) -> None:
        if self._is_closed:
            return
        writes, self._waiting = self._waiting, []
        if self._pool is None:
            self._end(writes, self._write(writes))
            return
        done = self._loop.run_in_executor(self._pool, self._write, writes)
        done.add_done_callback(lambda each: self._end(writes, each.result()))

    def _write(self, writes: list[Write]) -> str | None:
        try:
            self._journal.write(writes)
        except OSError as error:
            return f"The store cannot be written: {error.strerror or error}."
        return None

    def _end(self, writes: list[Write], failure: str | None) -> None:
        if self._is_closed:
            return
        if failure is not None:
            self._waiting[:0] = writes
            if not self._has_failed:
                self._has_failed = True
                self._failed(failure)
            self._loop.call_later(RETRY_S, self._start)
            return
        if self._has_failed:
            self._has_failed = False
            self._recovered()
        self._busy = bool(self._waiting)
        if self._busy:
            self._loop.call_soon(self._start)
        position = max((write.position for write in writes if not isinstance(write, Compact)), default=0)
        if position:
            self._stored(position)
