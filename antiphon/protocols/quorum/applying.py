"""Applying committed entries to a machine: the part that every driver shares.

A machine has `apply` (or `apply_from`), `snapshot` and `restore`, and may have `departed`, `tick` and
`wants_ticks`; `antiphon.replicated.machine` describes them.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from antiphon.protocols.quorum.pdus import BATCH, DEPART, TICK, Entry

_decode: Final = msgspec.msgpack.Decoder().decode
encode_commands: Final = msgspec.msgpack.Encoder().encode
"""A list of commands as the body of a batch."""


class Raised:
    """The result of a command whose machine raised."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error: Final = error


class Applier:
    """One replica's machine."""

    def __init__(self, machine: Any, merge: Callable[[bytes, bytes], bytes] | None = None) -> None:
        """`merge` makes one snapshot of two: mine and theirs."""
        self._machine: Final = machine
        self._merge: Final = merge
        self._apply: Final[Any] = machine.apply if not hasattr(machine, "apply_from") else None
        self._apply_from: Final[Any] = getattr(machine, "apply_from", None)
        self._departed: Final = getattr(machine, "departed", None)
        self._tick: Final = getattr(machine, "tick", None)
        self.commands = 0
        """Commands applied so far."""

    @property
    def wants_ticks(self) -> bool:
        return self._tick is not None and bool(getattr(self._machine, "wants_ticks", True))

    def apply(self, entry: Entry) -> list[Any]:
        """Apply an entry. Returns the results of its commands; `Raised` stands for an exception."""
        if entry.kind == BATCH:
            return self._batch(entry)
        if entry.kind == DEPART and self._departed is not None:
            self._departed(entry.sender)
        elif entry.kind == TICK and self._tick is not None:
            self._tick(entry.number)
        return []

    def _batch(self, entry: Entry) -> list[Any]:
        if not entry.body:
            return []
        try:
            commands = _decode(entry.body)
        except Exception:
            return []  # the same on every replica: it was handed in like this
        if type(commands) is not list:
            return []
        results: list[Any] = []
        apply, apply_from, caller = self._apply, self._apply_from, entry.sender
        for command in commands:
            try:
                results.append(apply(command) if apply is not None else apply_from(command, caller))
            except Exception as error:
                results.append(Raised(error))
        self.commands += len(results)
        return results

    def snapshot(self) -> bytes:
        return bytes(self._machine.snapshot())

    def merge(self, theirs: bytes) -> Exception | None:
        """Merge another side's state into the machine's. If that raises, the machine stays as it is."""
        assert self._merge is not None, "sides merge only where the application can"
        mine = self.snapshot()
        try:
            merged = bytes(self._merge(mine, theirs))
        except Exception as error:
            return error
        try:
            self.restore(merged)
        except Exception as error:
            self.restore(mine)
            return error
        return None

    def restore(self, data: bytes) -> None:
        self._machine.restore(data)
