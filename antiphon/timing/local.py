"""Statistics of traces that this process can hold."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from antiphon.timing.summary import ClockModel, Statistics, statistics
from antiphon.timing.tables import LocalSource
from antiphon.trace.arrow import EVENTS, pq
from antiphon.trace.files import conform, event_parts, open_trace

LOCAL_ROWS: Final = 4_000_000
"""Rows that one process measures sooner than Spark starts. Raising it costs memory: about 300 bytes a row."""
SEGMENT_ROW_BYTES: Final = 32


def is_small(paths: Sequence[Path | str]) -> bool:
    """Whether these traces are soon measured in one process; by their files' metadata."""
    rows = 0
    for path in paths:
        files = open_trace(path)
        rows += sum(pq.read_metadata(file).num_rows for file in files.events)
        rows += sum(segment.path.stat().st_size // SEGMENT_ROW_BYTES for segment in files.segments)
    return rows <= LOCAL_ROWS


def measure_locally(paths: Sequence[Path | str], clocks: ClockModel = "estimate") -> Statistics:
    """The statistics of all runs of these traces."""
    tables = [conform(file, part, EVENTS) for path in paths for file, part in event_parts(open_trace(path))]
    return statistics(LocalSource(tables), clocks)
