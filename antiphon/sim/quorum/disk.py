"""A simulated disk: what was written and synchronized survives a crash, of the rest perhaps a beginning."""

from random import Random

from antiphon.protocols.quorum.pdus import Entry
from antiphon.protocols.quorum.ports import Compact, Durable, Install, Recovered, Snapshot, Store

Write = Store | Install | Compact


class SimulatedDisk:
    """One member's disk."""

    def __init__(self) -> None:
        self._durable: Durable | None = None
        self._snapshot: Snapshot | None = None
        self._entries: dict[int, Entry] = {}
        self._waiting: list[Write] = []
        self._syncing = 0

    def write(self, write: Write) -> bool:
        """Take a write. Returns whether a synchronization must be started for it."""
        self._waiting.append(write)
        return not self._syncing

    def start_sync(self) -> None:
        self._syncing = len(self._waiting)

    def end_sync(self) -> int:
        """Returns the position up to which everything is safe now; 0 if nothing was waited for."""
        position = 0
        for write in self._waiting[: self._syncing]:
            self._keep(write)
            if not isinstance(write, Compact):
                position = write.position
        del self._waiting[: self._syncing]
        self._syncing = 0
        return position

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def crash(self, random: Random) -> None:
        """Of what was not synchronized, a beginning of any length survives."""
        for write in self._waiting[: random.randint(0, len(self._waiting))]:
            self._keep(write)
        self._waiting = []
        self._syncing = 0

    def recover(self) -> Recovered | None:
        """What a restarted member finds; None on an empty disk."""
        if self._durable is None:
            return None
        index = 0 if self._snapshot is None else self._snapshot.index
        entries = []
        while index + 1 in self._entries:
            index += 1
            entries.append(self._entries[index])
        return Recovered(self._durable, self._snapshot, tuple(entries))

    def _keep(self, write: Write) -> None:
        if isinstance(write, Store):
            if write.durable is not None:
                self._durable = write.durable
            if write.entries:
                self._entries = {at: each for at, each in self._entries.items() if at < write.first}
                self._entries.update(enumerate(write.entries, start=write.first))
        elif isinstance(write, Install):
            self._snapshot = write.snapshot
            self._entries = {}
        else:
            self._snapshot = write.snapshot
            self._entries = {at: each for at, each in self._entries.items() if at >= write.first}
