"""Causal order among messages that go to some members only, by counting batches from each to each.

Each member counts, for every two members, the batches that it knows the first to have sent to the second, and
stamps its own batches with the counts. At a destination a batch has its turn after all batches that were sent
there before it by its stamp. Counts start at 0, so that the stamp's entry for its sender and a destination is
also the batch's position among those from that sender to that destination.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from antiphon.core.packing import Packed, pack
from antiphon.protocols.rivals.controlled.pdus import COUNT_BYTES, Data, Failure, Relayed
from antiphon.protocols.roster import Places, Roster

Counts = npt.NDArray[np.int64]
WIRE: Final = np.dtype(f"<u{COUNT_BYTES}")
NOTHING: Final = pack([b""])
LARGEST_COUNT: Final = 1 << 31
"""Every count of a peer is below this. Raising it lets a liar come closer to what the wire can carry."""


@dataclass(slots=True, eq=False)
class Batch:
    """A batch at one of its destinations."""

    place: int
    """The sender's."""
    number: int
    position: int
    """Its position among those from its sender to here."""
    places: Places
    bodies: Packed
    sent: Counts
    origin: tuple[int, int] | None = None
    """Under a fixed coordinator: the place of the member whose batch it is, and its number there."""
    since_ns: int = 0
    """When it was accepted here, or last asked about."""
    is_everywhere: bool = False
    has_failed: bool = False
    """Whether its sender has given it up: it has its turn, and is not delivered."""
    missing: set[int] = field(default_factory=set)
    """D0: destinations that have not announced it."""


class CausalOrder:
    """The counts that one member knows, and the batches that wait for their turn there."""

    def __init__(self, roster: Roster) -> None:
        self.turns: Final = [0] * roster.size
        """Batches of each member that have had their turn here."""
        self._roster: Final = roster
        self._sent: Final[Counts] = np.zeros((roster.size, roster.size), dtype=np.int64)
        self._waiting: Final[list[dict[int, Batch]]] = [{} for _ in roster.everyone]
        """Waiting batches of each sender, by position."""

    def stamp(self) -> bytes:
        return self._sent.astype(WIRE).tobytes()

    def note_sending(self, places: Places) -> None:
        self._sent[self._roster.place, self._roster.everyone if places is None else places] += 1

    def read(self, place: int, data: Data | Failure) -> Batch | None:
        """Read a batch of a member, or its failure; None if its stamp is malformed.

        A stamp that counts more batches from here than there are is malformed.
        """
        size, here = self._roster.size, self._roster.place
        if len(data.sent) != COUNT_BYTES * size * size:
            return None
        sent: Counts = np.frombuffer(data.sent, dtype=WIRE).reshape(size, size).astype(np.int64)
        if sent.max() >= LARGEST_COUNT or (sent[here] > self._sent[here]).any():
            return None
        origin = (data.origin, data.origin_number) if isinstance(data, Relayed) else None
        position = int(sent[place, here])
        bodies = NOTHING if isinstance(data, Failure) else data.bodies
        batch = Batch(place, data.number, position, data.destinations, bodies, sent, origin)
        batch.has_failed = isinstance(data, Failure)
        return batch

    def has(self, place: int, position: int) -> bool:
        """Whether that batch waits here, or has had its turn."""
        return position < self.turns[place] or position in self._waiting[place]

    def find(self, place: int, position: int) -> Batch | None:
        """A batch that waits for its turn here."""
        return self._waiting[place].get(position)

    def held(self, place: int) -> int:
        """Batches of a sender that wait for their turn."""
        return len(self._waiting[place])

    def put(self, batch: Batch) -> None:
        assert not self.has(batch.place, batch.position), "a batch waits for its turn once"
        self._waiting[batch.place][batch.position] = batch

    def advance(self) -> list[Batch]:
        """Batches whose turn has come, in order."""
        taken: list[Batch] = []
        begun = -1
        while begun < len(taken):
            begun = len(taken)
            for place, waiting in enumerate(self._waiting):
                while (batch := waiting.get(self.turns[place])) is not None and self._is_next(batch):
                    del waiting[batch.position]
                    self._take_turn(batch)
                    taken.append(batch)
        return taken

    def _is_next(self, batch: Batch) -> bool:
        column = batch.sent[:, self._roster.place]
        return bool((column <= self.turns).all())

    def _take_turn(self, batch: Batch) -> None:
        self.turns[batch.place] += 1
        np.maximum(self._sent, batch.sent, out=self._sent)
        row = self._sent[batch.place]
        places = self._roster.everyone if batch.places is None else batch.places
        for place in places:
            row[place] = max(row[place], batch.sent[batch.place, place] + 1)
