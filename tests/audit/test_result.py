"""The verdict over all runs."""

from pathlib import Path

from antiphon.audit.local import audit_locally
from antiphon.check.verdict import Verdict
from antiphon.trace.files import write_trace


def test_a_trace_without_a_run_does_not_pass(tmp_path: Path) -> None:
    """An import that matched nothing, or a filter that left nothing, keeps no promise."""
    write_trace(tmp_path, [[]], [])
    found = audit_locally([tmp_path], ["fifo"])
    assert (found.verdict, found.runs) == (Verdict.UNKNOWN, 0)
    assert found.unjudgeable == ["There is nothing to judge: the trace has no run."]
    assert found.unjudgeable_count == 1
