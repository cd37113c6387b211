"""Traces that cannot fit are refused by their metadata; memory that ends is told in a sentence."""

from pathlib import Path

import pytest

from antiphon.audit import local, memory, runs
from antiphon.audit.local import audit_locally
from antiphon.cli.main import run
from antiphon.core.errors import InputError
from antiphon.trace.files import write_trace
from antiphon.trace.schema import Event, Run

ROWS = 200


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """One site that delivers its own messages, each of them twice."""
    events = [Event("r", "a", step, "deliver", "a", step // 2) for step in range(ROWS)]
    write_trace(tmp_path / "t", [events], [Run("r", promises=("duplicate",))])
    return tmp_path / "t"


def test_a_trace_that_cannot_fit_is_refused_before_a_row_is_read(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(*_: object) -> None:
        raise AssertionError("a row was read")

    monkeypatch.setattr(local, "read_pieces", read)
    monkeypatch.setattr(memory, "memory_bytes", lambda: ROWS * memory.ROW_BYTES - 1)
    assert run(["audit", str(trace), "--engine", "local", "--violations", f"{trace}-found"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "The trace has 200 rows: judged in this process, it takes at least 0.0 GB" in said
    assert "--engine spark" in said
    assert not Path(f"{trace}-found").exists()


def test_a_trace_that_just_fits_is_judged(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_bytes", lambda: ROWS * memory.ROW_BYTES)
    assert audit_locally([trace]).violations["duplicate"] == ROWS // 2


def test_memory_that_ends_leaves_nothing_half_written(
    trace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def end(*_: object) -> None:
        (tmp_path / "found" / "violations-00000.parquet").touch()
        raise MemoryError

    monkeypatch.setattr(runs, "judge_runs", end)
    with pytest.raises(InputError, match="ran out of memory while it judged") as error:
        audit_locally([trace], violations_to=tmp_path / "found")
    assert error.value.hint
    assert list((tmp_path / "found").iterdir()) == []
