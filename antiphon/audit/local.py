"""The audit in this process, for traces that one core judges soon enough."""

from collections.abc import Sequence
from pathlib import Path

from antiphon.audit.reading import plan_tasks, read_pieces
from antiphon.audit.result import AuditResult, sum_up
from antiphon.audit.runs import judge_runs, open_traces
from antiphon.core.recording import Property


def audit_locally(
    paths: Sequence[Path | str], expect: Sequence[Property] | None = None, limit: int = 100
) -> AuditResult:
    """Judge all runs of these traces as `antiphon.spark.audit.audit` does, without Spark."""
    traces, request = open_traces(paths, expect, limit)
    pieces = [piece for task in plan_tasks(traces, 1) for piece in read_pieces(task)]
    pieces.sort(key=lambda piece: (piece.trace, piece.run or ""))
    return sum_up([judge_runs(iter(pieces), request)], request)
