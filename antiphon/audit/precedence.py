"""Which deliveries come before a cause of theirs, and before which: the tables of `kernels.causality`."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from antiphon.audit.kernels import causality
from antiphon.audit.lanes import Lanes
from antiphon.audit.log import Log

Array = Any

TABLE_BYTES: Final = 256 << 20
"""Memory of a table. Raising it saves passes over the logs where there are many lanes."""
MOST_COLUMNS: Final = 64
"""Columns of a table, at most: beyond, its rows no longer fit into a few lines of the cache."""
LATEST: Final = np.iinfo(np.int32).max


class Behind(NamedTuple):
    """The places of a lane that come after a delivery: the rest of its row, and all from a later step on."""

    begin: int
    row_end: int
    step_end: int
    end: int


class Precedence:
    """Precedence by the rows of one log, looked at from the lanes of a run."""

    def __init__(self, learned: Log, lanes: Lanes) -> None:
        self._log = learned
        self._lanes = lanes
        self._ends = causality.ends_of_pasts(learned.kinds, learned.starts)
        self.is_circular = False
        """Whether some message precedes itself, as far as was asked."""

    @property
    def work(self) -> int:
        """Steps that finding all early deliveries takes."""
        return int((self._ends - self._log.starts[:-1]).sum()) * len(self._filled())

    def early(self) -> Array:
        """The places in the lanes that a message of their past follows, ascending."""
        found = [np.empty(0, np.int64)]
        for lanes in self._blocks(self._filled()):
            table = self._table(len(lanes))
            for column, (begin, end) in enumerate(lanes):
                table[self._lanes.delivered[begin:end], column] = np.arange(begin + 1, end + 1)
            self._complete(table)
            for column, (begin, end) in enumerate(lanes):
                last = table[self._lanes.delivered[begin:end], column] - 1
                found.append(self._surely(np.flatnonzero(last > np.arange(begin, end)) + begin, last, begin))
        return np.concatenate(found)

    def causes(self, places: Sequence[int]) -> list[int]:
        """For each place in the lanes, the next place behind it that holds a cause of it; -1 if none."""
        found: list[int] = []
        for block in self._blocks(places):
            table = self._table(len(block))
            for column, place in enumerate(block):
                behind = self._behind(place)
                for begin, end in ((behind.begin, behind.row_end), (behind.step_end, behind.end)):
                    table[self._lanes.delivered[begin:end], column] = LATEST - np.arange(begin, end)
            self._complete(table)
            rows = table[self._lanes.delivered[block], np.arange(len(block))].tolist()
            found += [LATEST - row if row else -1 for row in rows]
        return found

    def _filled(self) -> list[tuple[int, int]]:
        """The lanes that hold deliveries."""
        starts = self._lanes.starts.tolist()
        return [(begin, end) for begin, end in pairwise(starts) if begin < end]

    def _blocks(self, items: Sequence[Any]) -> Iterator[Sequence[Any]]:
        room = TABLE_BYTES // (4 * max(self._log.message_count, 1))
        size = min(max(room, 1), MOST_COLUMNS)
        return (items[begin : begin + size] for begin in range(0, len(items), size))

    def _table(self, columns: int) -> Array:
        return np.zeros((self._log.message_count, columns), np.int32)

    def _complete(self, table: Array) -> None:
        log = self._log
        entries = (log.kinds, log.messages, log.starts, log.groups, log.rows, self._ends)
        if causality.sweep(*entries, log.send_entry >= 0, table):
            self.is_circular = True
            causality.raise_to_fixpoint(*entries, table)

    def _surely(self, early: Array, last: Array, begin: int) -> Array:
        """Those of some places whose last cause comes after them, or else another cause does.

        Where rows share a step the last cause may be in another row of that step, which comes neither before
        nor after.
        """
        lanes = self._lanes
        if not len(lanes.groups) or not len(early):
            return early
        later = last[early - begin]
        beside = (lanes.groups[later] == lanes.groups[early]) & (lanes.rows[later] != lanes.rows[early])
        # Only a row of several messages can hold a cause of one of them, too.
        following = np.minimum(early + 1, len(lanes.rows) - 1)
        several = (following > early) & (lanes.rows[following] == lanes.rows[early])
        unclear = early[beside & several].tolist()
        caused = [place for place, cause in zip(unclear, self.causes(unclear), strict=True) if cause >= 0]
        return np.union1d(early[~beside], np.array(caused, np.int64))

    def _behind(self, place: int) -> Behind:
        lanes = self._lanes
        end = int(lanes.starts[np.searchsorted(lanes.starts, place, "right")])
        if not len(lanes.groups):
            return Behind(place + 1, end, end, end)
        row_end = step_end = place + 1
        while row_end < end and lanes.rows[row_end] == lanes.rows[place]:
            row_end += 1
        while step_end < end and lanes.groups[step_end] == lanes.groups[place]:
            step_end += 1
        return Behind(place + 1, row_end, step_end, end)
