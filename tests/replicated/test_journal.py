"""The files of a store: what a crash, a full disk and damage leave behind."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import InputError, UsageError
from antiphon.protocols.quorum.pdus import BATCH, Config, Entry
from antiphon.protocols.quorum.ports import (
    Compact,
    Durable,
    Install,
    Recovered,
    Snapshot,
    SnapshotHead,
    Store,
)
from antiphon.replicated.journal import Journal

DURABLE = Durable(1, 7, Config({"a": 1}), 3, "a")


def entries(first: int, count: int, term: int = 1) -> tuple[Entry, ...]:
    return tuple(Entry(term, BATCH, "a", 1, first + place, b"x" * 10) for place in range(count))


def snapshot(index: int, data: bytes = b"state") -> Snapshot:
    return Snapshot(SnapshotHead(index, 1, Config({"a": 1}), {}, 0), data)


def opened(folder: Path) -> Journal:
    return Journal(folder, "shop", "a", fsync=False)


def found(folder: Path) -> Recovered | None:
    journal = opened(folder)
    try:
        return journal.recovered
    finally:
        journal.close()


def written(folder: Path, *writes: Store | Install | Compact) -> None:
    journal = opened(folder)
    journal.write(writes)
    journal.close()


def the_log(folder: Path) -> Path:
    (path,) = folder.glob("log-*")
    return path


def test_a_new_folder_has_nothing(tmp_path: Path) -> None:
    assert found(tmp_path / "new") is None


def test_entries_replace_what_follows_them(tmp_path: Path) -> None:
    written(tmp_path, Store(1, DURABLE), Store(2, None, 1, entries(1, 5)))
    written(tmp_path, Store(1, None, 3, entries(3, 1, term=2)))
    state = found(tmp_path)
    assert state is not None
    assert state.durable == DURABLE
    assert state.entries == (*entries(1, 2), *entries(3, 1, term=2))


def test_a_snapshot_replaces_the_entries_that_it_covers(tmp_path: Path) -> None:
    written(
        tmp_path,
        Store(1, DURABLE), Store(2, None, 1, entries(1, 9)),
        Compact(snapshot(6), 5), Store(3, None, 10, entries(10, 2)),
    )  # fmt: skip
    state = found(tmp_path)
    assert state is not None
    assert state.snapshot is not None
    assert (state.snapshot.index, state.snapshot.data) == (6, b"state")
    assert state.entries == entries(7, 5)
    assert len(list(tmp_path.glob("log-*"))) == 1
    written(tmp_path, Install(4, snapshot(50, b"later")), Store(5, None, 51, entries(51, 1)))
    state = found(tmp_path)
    assert state is not None
    assert state.snapshot is not None
    assert (state.snapshot.data, state.entries) == (b"later", entries(51, 1))
    assert len(list(tmp_path.glob("snapshot-*"))) == 1


@settings(max_examples=40)
@given(st.integers(0, 400))
def test_a_log_that_was_cut_anywhere_has_a_beginning_of_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, end: int
) -> None:
    folder = tmp_path_factory.mktemp("store")
    written(folder, Store(1, DURABLE), *(Store(2 + at, None, 1 + at, entries(1 + at, 1)) for at in range(8)))
    path = the_log(folder)
    path.write_bytes(path.read_bytes()[:end])
    state = found(folder)
    kept = () if state is None else state.entries
    assert kept == entries(1, 8)[: len(kept)]
    written(folder, Store(1, DURABLE), Store(2, None, len(kept) + 1, entries(len(kept) + 1, 1)))
    again = found(folder)
    assert again is not None
    assert again.entries == entries(1, len(kept) + 1)


def test_damage_in_the_middle_is_reported(tmp_path: Path) -> None:
    written(tmp_path, Store(1, DURABLE), Store(2, None, 1, entries(1, 1)), Store(3, None, 2, entries(2, 1)))
    path = the_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[12] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged at byte 0"):
        found(tmp_path)


def test_a_damaged_snapshot_is_reported(tmp_path: Path) -> None:
    written(tmp_path, Store(1, DURABLE), Store(2, None, 1, entries(1, 3)), Compact(snapshot(3), 2))
    (path,) = tmp_path.glob("snapshot-*")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="is damaged"):
        found(tmp_path)


def test_a_folder_belongs_to_one_member_and_one_process(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    with pytest.raises(UsageError, match="Another process uses the store"):
        opened(tmp_path)
    journal.close()
    with pytest.raises(UsageError, match="belongs to 'a' of the group 'shop'"):
        Journal(tmp_path, "shop", "b", fsync=False)
