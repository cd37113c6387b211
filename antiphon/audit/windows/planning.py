"""How one run is judged in windows: from what size on, in windows how large, with which row of `runs`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from antiphon.audit.windows.cutting import Cuts, PartIndex
from antiphon.check.evidence import Evidence
from antiphon.core.errors import InputError
from antiphon.core.ids import Site
from antiphon.trace.files import read_runs
from antiphon.trace.schema import Run

WINDOWED_ROWS: Final = 10_000_000
"""Rows from which on a run is judged in windows. Below, one task is quicker; above, it takes more memory."""
MESSAGE_SITES: Final = 1 << 20
"""Messages times sites of a window. Raising it costs memory, lowering it time at the cuts."""
LEAST_SIZE: Final = 1000
"""A window has at least about this many messages."""
CELLS: Final = 100_000
"""Points of the grid that the cuts are chosen from, about, in the whole run. Raising it costs the driver
time."""
LEAST_CELL: Final = 256
MOST_CELL: Final = 8192


class WindowedRun(NamedTuple):
    """What the sums tell of a run that was judged in windows."""

    run: Run
    sites: list[Site]
    sends: int
    deliveries: int
    evidence: Evidence

    @property
    def logged(self) -> int:
        return len(self.sites)


def cell_of(rows: int) -> int:
    """The distance of the grid's points in deliveries."""
    return min(max(rows // CELLS, LEAST_CELL), MOST_CELL)


def window_size(sites: int) -> int:
    """The messages of a window."""
    return max(MESSAGE_SITES // max(sites, 1), LEAST_SIZE)


def facts_of(run: Run, cuts: Cuts, logs: dict[Site, list[PartIndex]], sends: int) -> WindowedRun:
    deliveries = sum(part.deliveries for log in logs.values() for part in log)
    return WindowedRun(run, cuts.sites, sends, deliveries, cuts.evidence)


def row_of(name: str, files: Iterable[Path]) -> tuple[Run, bool]:
    """A run's row of `runs`, and whether its promises were recorded; InputError if it has several."""
    return row_among(name, (found for file in files for found in read_runs(file)))


def row_among(name: str, found: Iterable[tuple[Run, bool]]) -> tuple[Run, bool]:
    """The same among rows of `runs`."""
    rows = [row for row in found if row[0].run == name]
    if len(rows) > 1:
        raise InputError(f"Run {name} cannot be judged: it has {len(rows)} rows in runs/.")
    return rows[0] if rows else (Run(name), False)
