"""The log, compared with a plain list; sessions; snapshots."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocols.quorum.log import Log
from antiphon.protocols.quorum.pdus import BATCH, CONFIG, DEPART, ENTER, TICK, Config, Entry
from antiphon.protocols.quorum.ports import SessionState, Snapshot, SnapshotHead
from antiphon.protocols.quorum.sessions import Sessions


def entry(term: int, body: bytes = b"") -> Entry:
    return Entry(term, BATCH, "a", 1, 1, body)


def config(*names: str) -> Entry:
    return Entry(1, CONFIG, body=msgspec.msgpack.encode(Config(dict.fromkeys(names, 1))))


@given(st.lists(st.tuples(st.sampled_from(("append", "cut", "compact")), st.integers(0, 40)), max_size=40))
def test_a_log_is_a_list_that_forgets_its_beginning(steps: list[tuple[str, int]]) -> None:
    log, twin = Log(), [entry(0)]  # index 0 stands before the first entry
    for step, number in steps:
        if step == "append":
            added = [entry(len(twin), bytes(number)) for _ in range(number % 4)]
            log.append(added)
            twin.extend(added)
        elif step == "cut" and log.base <= number:
            log.cut(min(number, log.last))
            del twin[number + 1 :]
        elif step == "compact" and number <= log.last:
            log.compact(number)
        assert log.last == len(twin) - 1
        for index in range(log.base, log.last + 1):
            assert log.term_at(index) == twin[index].term
        assert log.term_at(log.last + 1) is None
        assert log.size == sum(40 + len(each.body) for each in twin[log.base + 1 :])
        if log.last > log.base:
            assert log.some(log.base + 1, 10**6) == tuple(twin[log.base + 1 :])


def test_the_members_follow_the_log_and_come_back_when_it_is_cut() -> None:
    log = Log()
    log.begin(0, 0, Config({"a": 1}))
    log.append([entry(1), config("a", "b"), entry(1), config("a", "b", "c")])
    assert list(log.config.voters) == ["a", "b", "c"]
    log.cut(3)
    assert (list(log.config.voters), log.config_index) == (["a", "b"], 2)
    log.compact(3)
    assert list(log.base_config.voters) == ["a", "b"]


ENTRIES = st.lists(
    st.builds(
        Entry,
        term=st.just(1),
        kind=st.sampled_from((BATCH, BATCH, BATCH, ENTER, DEPART)),
        sender=st.sampled_from(("a", "b")),
        life=st.integers(1, 3),
        number=st.integers(0, 4),
    ),
    max_size=60,
)


@given(ENTRIES)
def test_a_batch_takes_effect_once_and_in_order_however_often_it_is_there(entries: list[Entry]) -> None:
    sessions, seen = Sessions(), []
    for each in entries:
        seen += sessions.take(each)
    for sender in ("a", "b"):
        own = [(each.life, each.number) for each in seen if each.sender == sender and each.kind == BATCH]
        assert len(set(own)) == len(own)
        assert own == sorted(own)
        for life in {life for life, _ in own}:
            assert [number for at, number in own if at == life] == list(
                range(1, 1 + sum(x == life for x, _ in own))
            )


def test_a_session_that_is_over_never_begins_again() -> None:
    sessions = Sessions()
    begin = Entry(1, ENTER, "a", 5)
    assert sessions.take(begin) == [begin]
    assert sessions.take(begin) == []
    assert sessions.take(Entry(1, DEPART, "a", 5))
    assert sessions.take(begin) == []
    assert sessions.next("a", 5) is None
    later = Entry(1, ENTER, "a", 6)
    assert sessions.take(later) == [later]


def test_a_later_session_ends_the_earlier_one_first() -> None:
    sessions = Sessions({"a": SessionState(5, 3, True)})
    later = Entry(2, ENTER, "a", 7)
    assert sessions.take(later) == [Entry(2, DEPART, "a", 5), later]


def test_the_agreed_time_never_goes_back() -> None:
    sessions = Sessions()
    assert sessions.take(Entry(1, TICK, number=100))
    assert sessions.take(Entry(1, TICK, number=90)) == []
    assert sessions.time_ns == 100


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(1, 100))
def test_a_snapshot_is_cut_into_pieces_and_read_again(data: bytes, begin: int, length: int) -> None:
    head = SnapshotHead(7, 2, Config({"a": 1}), {"a": SessionState(1, 2, True)}, 55)
    snapshot = Snapshot(head, data)
    whole = snapshot.prefix + data
    assert snapshot.part(begin, length) == whole[begin : begin + length]
    found = Snapshot.read(whole)
    assert (found.head, found.data, found.checksum) == (head, data, snapshot.checksum)


@pytest.mark.parametrize("blob", [b"", b"\0\0\0\xff", b"\0\0\0\1\xc1", b"\0\0\0\2\x91\1"])
def test_a_damaged_snapshot_is_no_snapshot(blob: bytes) -> None:
    with pytest.raises(ValueError):
        Snapshot.read(blob)
