"""A run judged in windows in this process: the twin of the Spark job, and its test."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from antiphon.audit.judging import Judgement, judge
from antiphon.audit.log import build_log
from antiphon.audit.packing import Segment
from antiphon.audit.windows.cutting import cut, in_order, index_parts
from antiphon.audit.windows.driving import JUDGED_IN_WINDOWS, Driver, LocalRunner
from antiphon.audit.windows.routing import carry, route
from antiphon.audit.windows.window import Context
from antiphon.core.recording import PROPERTIES, Property
from antiphon.trace.schema import Run

CELLS_PER_WINDOW: Final = 8
"""Points of the grid that cuts are chosen from, for each window and site."""


def judge_in_windows(
    run: Run,
    segments: Callable[[], Iterable[Segment]],
    limits: Mapping[Property, int | None] | None = None,
    *,
    size: int,
    in_agreed_order: bool = True,
) -> Judgement:
    """Judge a run in windows of about `size` messages; `segments` reads its rows, each time anew."""
    judged = dict(limits or dict.fromkeys(PROPERTIES))
    cell = max(size // CELLS_PER_WINDOW, 1)
    logs = in_order(part for segment in segments() for part in index_parts(segment, cell))
    if logs is None or not JUDGED_IN_WINDOWS.issuperset(judged):
        return judge(build_log(run, list(segments())), judged, in_order=in_agreed_order)
    cuts = cut(logs, size)
    carried = carry(logs)
    with LocalRunner(Context(run, cuts, judged, in_agreed_order)) as runner:
        for segment in segments():
            for window, chunk in route(segment, cuts, carried):
                runner.add(window, chunk)
        return Driver(runner).judge()
