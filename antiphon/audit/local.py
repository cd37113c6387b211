"""The audit in this process, for traces that one core judges soon enough."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.audit.memory import too_large
from antiphon.audit.packing import Segment
from antiphon.audit.reading import Piece, plan_tasks, read_pieces, row_count
from antiphon.audit.violations import empty_folder, remove_violations
from antiphon.core.compiled import leave_plain
from antiphon.core.errors import InputError
from antiphon.core.recording import Property
from antiphon.trace.files import open_trace

if TYPE_CHECKING:
    from antiphon.audit.result import AuditResult

LOCAL_ROWS: Final = 4_000_000
"""Rows that one process judges sooner than Spark starts and judges them. Raising it costs memory here: about
100 bytes a row."""
PLAIN_WORK: Final = 20_000
"""Messages in rows, times sites, that plain Python judges sooner than the compiled kernels are loaded."""


def is_small(paths: Sequence[Path | str]) -> bool:
    """Whether these traces are soon judged in one process; by their files' metadata."""
    return row_count([open_trace(path) for path in paths]) <= LOCAL_ROWS


def audit_locally(
    paths: Sequence[Path | str],
    expect: Sequence[Property] | None = None,
    limit: int = 100,
    violations_to: Path | str | None = None,
    only: Sequence[Property] | None = None,
    summaries: int = 0,
    *,
    by_promise: bool = False,
) -> "AuditResult":
    """Judge all runs of these traces as `antiphon.spark.audit.audit` does, without Spark.

    With `by_promise` spells of presence are judged by the run's one order only where that is promised.
    """
    traces = [open_trace(path) for path in paths]
    refused = too_large(
        "The trace",
        row_count(traces),
        "in this process",
        "Judge it with --engine spark: large runs are judged in windows there.",
    )
    if refused is not None:
        raise refused
    folder: str | None = None
    try:
        pieces = [piece for task in plan_tasks(traces, 1) for piece in read_pieces(task)]
        pieces.sort(key=lambda piece: (piece.trace, piece.run or ""))
        if _work(pieces) <= PLAIN_WORK:
            leave_plain()
        # Only now, since these load the kernels.
        from antiphon.audit.result import sum_up
        from antiphon.audit.runs import checked_request, judge_runs

        request = checked_request([str(path) for path in paths], expect, only, limit)
        if violations_to is not None:
            folder = empty_folder(Path(violations_to))
        request = request._replace(
            folders=[str(trace.folder) for trace in traces],
            violations_to=folder,
            summaries=summaries,
            by_promise=by_promise,
        )
        return sum_up([judge_runs(iter(pieces), request)], request)
    except MemoryError as error:
        remove_violations(folder)
        raise InputError(
            "This process ran out of memory while it judged. Nothing was written.",
            "Judge less with --only, or judge it with --engine spark.",
        ) from error


def _work(pieces: Sequence[Piece]) -> int:
    """How much there is to judge: messages in rows, times sites."""
    work = 0
    for piece in pieces:
        if piece.segment is None:
            continue
        segment = msgspec.msgpack.decode(piece.segment, type=Segment)
        rows = sum(part.rows for part in segment.parts)
        entries = rows if segment.counts is None else int(segment.counts.array().sum(dtype="int64"))
        work += entries * max(len(segment.parts), len(segment.sender_names), 1)
    return work
