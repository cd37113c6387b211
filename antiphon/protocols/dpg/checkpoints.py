"""Digests of the agreed order at earlier places: by them members find where two orders forked.

All digests of recent places are kept, and sparse ones further back. A report tells a few of them, further and
further back from a place: that of its sender, or that of a member which listens before it takes part. Two
orders with equal digests at an index are the same up to there.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from antiphon.protocols.dpg.pdus import MOST_CHECKPOINTS

RECENT: Final = 1 << 15
"""Places whose digests are all kept. Raising it costs 16 bytes for each."""
SPARSE: Final = 1 << 12
"""Places between two digests further back. Raising it tells older forks less exactly."""
MOST_SPARSE: Final = 1 << 12
"""Digests kept of those places. Raising it costs memory."""
FROM_OWN: Final = tuple(16 << step for step in range(MOST_CHECKPOINTS))
"""Distances from a member's own index at which its reports tell digests."""
FROM_LISTENER: Final = (0, *(1 << 2 * step for step in range(MOST_CHECKPOINTS - 1)))
"""The same from a listener's index: by them it learns what it delivered alone."""


class DigestLog:
    """The digests of one member's order, by index."""

    __slots__ = ("_begin", "_recent", "_sparse")

    def __init__(self) -> None:
        self._sparse: dict[int, int] = {}
        self.begin(0, (0,))

    def begin(self, index: int, digests: Sequence[int], checkpoints: Sequence[int] = ()) -> None:
        """Begin with these consecutive digests, the last of them at `index`, and another's checkpoints."""
        self._begin = index - len(digests) + 1
        self._recent = array("Q", digests)
        pairs = zip(checkpoints[::2], checkpoints[1::2], strict=False)
        self._sparse = {place: digest for place, digest in pairs if place < self._begin}

    def append(self, digest: int) -> None:
        """The digest at the next index."""
        self._recent.append(digest)
        if len(self._recent) > 2 * RECENT:
            self._thin()

    def _thin(self) -> None:
        """Keep sparse digests of the older half."""
        for place in range(-self._begin % SPARSE, RECENT, SPARSE):
            self._sparse[self._begin + place] = self._recent[place]
        while len(self._sparse) > MOST_SPARSE:
            del self._sparse[next(iter(self._sparse))]
        del self._recent[:RECENT]
        self._begin += RECENT

    def rewind(self, index: int) -> None:
        """Forget what lies after an index that is kept."""
        del self._recent[index - self._begin + 1 :]

    def at(self, index: int) -> int | None:
        """The digest at an index, if it is kept."""
        place = index - self._begin
        if 0 <= place < len(self._recent):
            return self._recent[place]
        return self._sparse.get(index)

    def told(self, base: int, distances: Sequence[int] = FROM_OWN) -> list[int]:
        """Index and digest, alternately, at a few places further and further back from `base`."""
        told: list[int] = []
        for distance in distances:
            index = base - distance
            digest = self.at(index)
            if digest is None:
                index -= index % SPARSE
                digest = self._sparse.get(index)
            if digest is not None and index > 0:
                told += (index, digest)
        return told

    def common(self, checkpoints: Sequence[int], most: int) -> int:
        """The latest index up to `most` at which another's checkpoints show the same order; 0 if none."""
        pairs = zip(checkpoints[::2], checkpoints[1::2], strict=False)
        return max(
            (index for index, digest in pairs if index <= most and self.at(index) == digest), default=0
        )

    def forks(self, checkpoints: Sequence[int]) -> int | None:
        """The latest common index if another's checkpoints show another order there; None if not."""
        for index, digest in zip(checkpoints[::2], checkpoints[1::2], strict=False):
            mine = self.at(index)
            if mine is not None:
                return index if mine != digest else None
        return None
