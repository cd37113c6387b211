"""Parts of a rotated log are one consumer's, the oldest first; names that only look alike are not."""

from pathlib import Path

import pytest

from antiphon.trace.adapters.rotation import oldest_first, stem_of


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            ["c1.log", "c1.log.1", "c1.log.10.gz", "c1.log.2.gz", "c2.log"],
            ["c1.log.10.gz", "c1.log.2.gz", "c1.log.1", "c1.log", "c2.log"],
        ),
        (["c.log", "c.log-20260102", "c.log-20260101.gz"], ["c.log-20260101.gz", "c.log-20260102", "c.log"]),
        (
            ["c.log", "c-2026-01-02.log", "c-2026-01-01.1.log", "c-2026-01-01.0.log"],
            ["c-2026-01-01.0.log", "c-2026-01-01.1.log", "c-2026-01-02.log", "c.log"],
        ),
        (["messages", "messages.1"], ["messages.1", "messages"]),
        (["c_2026-01-02T10.log", "c_2026-01-02T09.log"], ["c_2026-01-02T09.log", "c_2026-01-02T10.log"]),
    ],
)
def test_the_oldest_part_comes_first(files: list[str], expected: list[str]) -> None:
    ordered = oldest_first([Path(file) for file in files])
    assert list(map(str, ordered)) == expected
    stem = min(Path(file).name for file in files).partition(".log")[0].partition("-")[0].partition("_")[0]
    stems = [stem_of(ordered, index) for index in range(len(ordered))]
    assert stems == [stem if file != "c2.log" else "c2" for file in expected]


@pytest.mark.parametrize(
    "files",
    [["c.1", "c.2"], ["w.1.log", "w.2.log"], ["w-1.log", "w-2.log"], ["20260101.log", "w-20261399.log"]],
)
def test_other_numbers_tell_consumers_apart(files: list[str]) -> None:
    paths = [Path(file) for file in files]
    assert oldest_first(paths) == paths
    stems = [stem_of(paths, index) for index in range(len(paths))]
    assert stems == [file.removesuffix(".log") for file in files]


def test_logs_of_two_folders_are_kept_apart() -> None:
    files = oldest_first([Path("a/c.log"), Path("b/c.log"), Path("b/c.log.1")])
    assert [stem_of(files, index) for index in range(3)] == ["a/c", "b/c", "b/c"]
    assert files[1] == Path("b/c.log.1")
    files = [Path("h1/logs/c.log"), Path("h2/logs/c.log"), Path("h2/logs/d.log")]
    assert [stem_of(files, index) for index in range(3)] == ["h1/logs/c", "h2/logs/c", "d"]
