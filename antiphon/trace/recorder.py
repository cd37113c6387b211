"""A recorder that keeps a run's rows in memory.

Recording is part of the simulator's innermost loop, so a row is one tuple appended to one list. The rows
become columns only when the run is over.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from antiphon.core.calls import Call
from antiphon.core.ids import Group, Site
from antiphon.core.recording import Kind
from antiphon.core.time import Nanoseconds
from antiphon.trace.levels import LevelRow
from antiphon.trace.schema import Event

if TYPE_CHECKING:
    from antiphon.trace.arrow import pa

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
"""The first fields of an `Event` after `run`, in the order of the schema."""


class MemoryRecorder:
    """Implements `antiphon.core.recording.Recorder` for one run."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._rows: list[Row] = []
        self.levels: list[LevelRow] = []
        """The levels of acceptance that messages have reached, where they are watched."""
        self._steps: dict[Site, int] = {}
        self.calls: list[Call] = []

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

    def record_call(self, call: Call) -> None:
        self.calls.append(msgspec.structs.replace(call, run=self.run))

    def reach(
        self, site: Site, level: str, time_ns: Nanoseconds, sender: Site, number: int, count: int
    ) -> None:
        """Note that messages have reached a level; that is no step."""
        self.levels.append(LevelRow(self.run, site, time_ns, sender, number, count, level))

    def events(self) -> list[Event]:
        """The rows so far, in the order in which they were recorded."""
        return [Event(self.run, *row) for row in self._rows]

    def table(self) -> "pa.Table":
        """The rows so far as a table of the schema `EVENTS`."""
        from antiphon.trace.arrow import EVENTS, as_table  # only tables need pyarrow

        columns: list[Sequence[object]] = list(zip(*self._rows, strict=True))
        nulls: list[Sequence[object]] = [[None] * len(self._rows)] * (len(EVENTS) - 1 - len(columns))
        return as_table(EVENTS, [[self.run] * len(self._rows), *columns, *nulls])
