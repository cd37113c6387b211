"""`antiphon audit --follow` before Spark starts: folders and signals."""

import signal
from pathlib import Path

import pytest

from antiphon.cli import follow
from antiphon.cli.main import run


def test_a_folder_that_does_not_exist_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(follow, "starting_spark", start)
    assert run(["audit", "--follow", str(tmp_path / "nothing")]) == 2
    assert "does not exist" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "file").touch()
    assert run(["audit", "--follow", str(tmp_path / "file")]) == 2
    assert "is no folder" in " ".join(capsys.readouterr().err.split())


def test_a_signal_that_comes_twice_ends_with_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout` signals the command, then its process group. A later signal acts as it did before."""
    usual: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: usual.append(number))
    try:
        with follow._until_signalled() as stop:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert stop.is_set()
            assert not usual
            monkeypatch.setattr(follow, "REPEATED_S", 0.0)
            signal.raise_signal(signal.SIGTERM)
            assert usual == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
