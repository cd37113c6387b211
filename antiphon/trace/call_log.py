"""A live client's calls as it makes them: a file of JSON lines in `calls/` that survives `kill -9`.

A call has two lines. The first is written before the command leaves the process: a call that took effect
has a row, even if its client was killed before the answer came. The second adds the answer.
"""

import json
import os
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

from antiphon.core.errors import OutputError
from antiphon.core.ids import Site
from antiphon.core.values import Value
from antiphon.trace.calls import value_text
from antiphon.trace.frames import safe_name

LINES: Final = ".jsonl"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@cache
def machine_clock() -> str:
    """The name of this machine's monotonic clock: it is the same for all processes, until the next boot."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return f"process {os.getpid()}"


class CallLog:
    """The calls of one client in one run. Every line is with the kernel when a method returns."""

    def __init__(self, folder: Path | str, run: str, client: Site) -> None:
        self.run: Final = run
        self.client: Final = client
        self.path: Final = Path(folder) / "calls" / f"{safe_name(client, run)}{LINES}"
        self._number = 0
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            self._go_on()
        except OSError as error:
            raise self._failure(error) from error

    def begin(self, of: str, model: str | None, operation: str, arguments: tuple[Value, ...]) -> int:
        """Note that a call begins, before anything of it leaves the process; its number."""
        return self._begin(of, model, operation, arguments, time.monotonic_ns())

    def departed(self, of: str, model: str, member: Site) -> None:
        """Note that a member is gone, and with it what it held of an object.

        Other replicas may have known it before, so it may have taken effect at any time.
        """
        self._begin(of, model, "departed", (member,), 0)

    def _begin(
        self, of: str, model: str | None, operation: str, arguments: tuple[Value, ...], start: int
    ) -> int:
        number, self._number = self._number, self._number + 1
        self._write(
            {
                "run": self.run,
                "client": self.client,
                "call": number,
                "object": of,
                "model": model,
                "operation": operation,
                "arguments": value_text(arguments),
                "start": start,
                "clock": machine_clock(),
            }
        )
        return number

    def end(self, number: int, result: Value) -> None:
        """Note a call's answer."""
        self._write({"call": number, "end": time.monotonic_ns(), "result": value_text(result)})

    @property
    def is_closed(self) -> bool:
        return self._descriptor < 0

    def close(self) -> None:
        if not self.is_closed:
            os.close(self._descriptor)
            self._descriptor = -1

    def _go_on(self) -> None:
        """Count on from an earlier log, behind a line that was torn."""
        data = self.path.read_bytes()
        self._number = data.count(b'"start":')
        if data and not data.endswith(b"\n"):
            os.write(self._descriptor, b"\n")

    def _write(self, row: dict[str, Any]) -> None:
        line = json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n"
        try:
            os.write(self._descriptor, line.encode())
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> OutputError:
        reason = error.strerror or str(error)
        return OutputError(
            f"The calls of {self.client} cannot be written to {self.path.parent}: {reason}.",
            hint="Choose a folder that you may write to and that has room.",
        )
