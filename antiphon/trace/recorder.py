"""A recorder that keeps a run's rows in memory, and the way from rows to Arrow tables.

Recording stands in the simulator's innermost loop, so a row is one tuple appended to one list; it becomes
columns only when the run is over.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import pyarrow as pa

from antiphon.core.ids import Group, Site
from antiphon.core.recording import Kind
from antiphon.core.time import Nanoseconds
from antiphon.trace.schema import EVENTS, RUNS, Event, Run

Row: TypeAlias = tuple[
    Site,
    int,
    Kind,
    Site | None,
    int | None,
    int | None,
    Group | None,
    tuple[Site, ...] | None,
    int | None,
    Nanoseconds,
]
"""The fields of an `Event` after `run`, in the order of the schema."""


class MemoryRecorder:
    """Implements `antiphon.core.recording.Recorder` for one run."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._rows: list[Row] = []
        self._steps: dict[Site, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def record(
        self,
        site: Site,
        kind: Kind,
        time_ns: Nanoseconds,
        sender: Site | None = None,
        number: int | None = None,
        count: int = 1,
        group: Group | None = None,
        destinations: Iterable[Site] | None = None,
        size: int | None = None,
    ) -> None:
        """Append one row as the site's next step."""
        step = self._steps.get(site, 0)
        self._steps[site] = step + 1
        addressed = None if destinations is None else tuple(destinations)
        covered = None if count == 1 else count
        self._rows.append((site, step, kind, sender, number, covered, group, addressed, size, time_ns))

    def events(self) -> list[Event]:
        """The rows so far, in the order in which they were recorded."""
        return [Event(self.run, *row) for row in self._rows]

    def table(self) -> pa.Table:
        """The rows so far as a table of the schema `EVENTS`."""
        columns: list[Sequence[object]] = list(zip(*self._rows, strict=True)) or [()] * (len(EVENTS) - 1)
        return _table(EVENTS, [[self.run] * len(self._rows), *columns])


def events_table(events: Iterable[Event]) -> pa.Table:
    """Events as a table of the schema `EVENTS`, in the order given."""
    rows = list(events)
    return _table(EVENTS, [[getattr(row, name) for row in rows] for name in EVENTS.names])


def runs_table(runs: Iterable[Run]) -> pa.Table:
    """Runs as a table of the schema `RUNS`, in the order given."""
    rows = list(runs)
    columns: list[Sequence[object]] = [[getattr(row, name) for row in rows] for name in RUNS.names]
    where = RUNS.get_field_index("groups")
    columns[where] = [None if row.groups is None else list(row.groups.items()) for row in rows]
    return _table(RUNS, columns)


def _table(schema: pa.Schema, columns: Sequence[Sequence[object]]) -> pa.Table:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
