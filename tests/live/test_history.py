"""Late-join handlers live: the log on disk, and groups whose members come, go and are killed."""

import asyncio
import contextlib
import io
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.effects import Deliver, Recall
from antiphon.core.errors import OutputError, UsageError
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.inputs import Past, Recalled
from antiphon.core.packing import Packed
from antiphon.live import history
from antiphon.live.group import Group
from antiphon.live.history import (
    LARGEST_SEGMENT,
    LEAST_BYTES,
    MAGIC,
    MOST_WAITING,
    OFFSET_BITS,
    READINGS_AT_ONCE,
    SET_ASIDE,
    SUFFIX,
    HistoryLog,
    Opening,
    Recaller,
    delivered_before,
)
from antiphon.live.joining import join
from antiphon.live.limits import Limits
from antiphon.trace import frames
from antiphon.trace.files import read_trace
from antiphon.trace.frames import CHECKSUM, FRAME_BYTES, HEAD, encoded
from antiphon.trace.segments import SegmentRecorder
from tests.live.members import DEADLINE_S, a_group_name, joined, read, within
from tests.promises import broken_promises

MEGABYTE = 1 << 20


# The log


def write(log: HistoryLog, numbers: range, sender: str = "c", incarnation: int = 7, size: int = 10) -> None:
    for number in numbers:
        log.append(Deliver(sender, number, [number.to_bytes(4) + bytes(size)], None, incarnation))
    log.flush()


def everything(log: HistoryLog, *have: tuple[str, int, int], most_bytes: int = 60_000) -> list[Past]:
    """All that a newcomer would be given, piece by piece."""
    found: list[Past] = []
    position, is_end = 0, False
    while not is_end:
        answer = log.snapshot().recall(Recall(1, position, most_bytes, have))
        found += answer.records
        assert is_end or answer.following > position or answer.is_end
        position, is_end = answer.following, answer.is_end
    return found


def numbers(found: list[Past], sender: str = "c") -> list[int]:
    return [record.number for record in found if record.sender == sender]


def test_a_log_gives_back_what_was_put_in(tmp_path: Path) -> None:
    log = HistoryLog(tmp_path, "group", "a")
    log.append(Deliver("c", 0, [b"one", b"", b"two"], None, 5))
    log.append(Deliver("Ü", 3, [b"three"], None, 6))
    (first, second) = everything(log)
    assert (first.sender, first.incarnation, first.number) == ("c", 5, 0)
    assert list(Packed(first.bodies)) == [b"one", b"", b"two"]
    assert (second.sender, second.incarnation, second.number) == ("Ü", 6, 3)
    assert log.messages == 4
    log.close()


def test_a_log_outlives_its_member_and_takes_nothing_twice(tmp_path: Path) -> None:
    log = HistoryLog(tmp_path, "group", "a")
    write(log, range(10))
    position = log.snapshot().recall(Recall(1, 0, 60_000)).following
    log.close()
    log = HistoryLog(tmp_path, "group", "a")
    write(log, range(5, 15))
    write(log, range(3), incarnation=8)
    assert numbers(everything(log)) == [*range(15), *range(3)]
    assert numbers(list(log.snapshot().recall(Recall(1, position, 60_000)).records))[0] == 10
    assert log.messages == 18
    log.close()


def test_positions_in_an_old_log_can_be_told(tmp_path: Path) -> None:
    """The smallest log once used up its positions after 17 GB, and newcomers got nothing from it."""
    log = HistoryLog(tmp_path, "g", "b", LEAST_BYTES)
    write(log, range(10))
    log.close()
    (first,) = tmp_path.glob("*-000000.history")
    first.rename(first.with_name(first.name.replace("-000000", "-20000000")))
    log = HistoryLog(tmp_path, "g", "b", LEAST_BYTES)
    write(log, range(10, 20))
    answer = log.snapshot().recall(Recall(1, 0, 60_000))
    assert (numbers(list(answer.records)), answer.is_end) == (list(range(20)), True)
    assert 0 < answer.following < NUMBER_LIMIT
    assert log.snapshot().recall(Recall(1, answer.following, 60_000)).records == ()
    assert 4 * LARGEST_SEGMENT <= 1 << OFFSET_BITS


def test_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    log = HistoryLog(tmp_path, "group", "a")
    write(log, range(10))
    log.close()
    (file,) = tmp_path.glob(f"*{SUFFIX}")
    file.write_bytes(file.read_bytes()[:-3])
    log = HistoryLog(tmp_path, "group", "a")
    assert numbers(everything(log)) == list(range(9))
    write(log, range(9, 12))
    assert numbers(everything(log)) == list(range(12))
    log.close()


def test_a_damaged_batch_ends_its_segment_and_no_more(tmp_path: Path) -> None:
    log = HistoryLog(tmp_path, "group", "a", MEGABYTE)
    write(log, range(30), size=20_000)
    first = min(tmp_path.glob(f"*{SUFFIX}"))
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    found = numbers(everything(log))
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] == 29
    assert 20 < len(found) < 30
    log.close()


@pytest.mark.parametrize(
    ("place", "why"),
    [(len(MAGIC) - 1, "format of another version (3, not 1)"), (0, "is damaged"), (12, "is damaged")],
)
def test_a_segment_that_cannot_be_read_is_set_aside(tmp_path: Path, place: int, why: str) -> None:
    for turn in range(3):
        log = HistoryLog(tmp_path, "group", "a", MEGABYTE)
        write(log, range(30), size=20_000)
        log.close()
        before = {file.name: file.read_bytes() for file in tmp_path.glob(f"*{SUFFIX}")}
        spoilt = min(tmp_path.glob(f"*{SUFFIX}"))
        data = bytearray(spoilt.read_bytes())
        data[place] ^= 2
        spoilt.write_bytes(data)
        log = HistoryLog(tmp_path, "group", "a", MEGABYTE)
        aside = [tmp_path / f"{spoilt.name}{SET_ASIDE}{number or ''}" for number in range(turn + 1)]
        assert aside[-1].read_bytes() == data
        (sentence,) = log.unreadable
        assert why in sentence
        assert sentence.endswith(f"it is set aside as {aside[-1]}.")
        assert log.figures()["history_unreadable"] == 1
        kept = {file.name: file.read_bytes() for file in tmp_path.glob(f"*{SUFFIX}")}
        assert kept == {name: bytes_ for name, bytes_ in before.items() if name != spoilt.name}
        write(log, range(30, 32))
        assert numbers(everything(log))[-2:] == [30, 31]
        log.close()
        assert sorted(tmp_path.glob(f"*{SET_ASIDE}*")) == sorted(aside)
        for file in tmp_path.glob(f"*{SUFFIX}"):
            file.unlink()


def test_a_damaged_last_segment_stays_as_it_is(tmp_path: Path) -> None:
    log = HistoryLog(tmp_path, "group", "a")
    write(log, range(30))
    log.close()
    (file,) = tmp_path.glob(f"*{SUFFIX}")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    log = HistoryLog(tmp_path, "group", "a")
    assert file.read_bytes() == data
    (sentence,) = log.unreadable
    assert str(file) in sentence
    write(log, range(30, 32))
    found = numbers(everything(log))
    assert found[-2:] == [30, 31]
    assert found[:-2] == list(range(len(found) - 2))
    log.close()
    log = HistoryLog(tmp_path, "group", "a")
    assert log.unreadable == []
    assert numbers(everything(log)) == found
    log.close()


def test_a_log_is_its_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        log = HistoryLog(tmp_path / "log", "group", "a", MEGABYTE)
        write(log, range(30), size=20_000)
        log.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700
    files = list((tmp_path / "log").iterdir())
    assert len(files) > 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_join_that_is_cancelled_gives_its_log_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    opened = HistoryLog._open

    def slowly(log: HistoryLog) -> None:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        opened(log)

    async def play() -> None:
        group = join("group", name="a", history=tmp_path)
        joining = asyncio.create_task(group.__aenter__())
        await asyncio.to_thread(begun.wait)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        go_on.set()

    with monkeypatch.context() as patch:
        patch.setattr(HistoryLog, "_open", slowly)
        within(play())  # which ends when the thread has
    HistoryLog(tmp_path, "group", "a").close()


def test_a_log_that_nobody_waits_for_any_more_is_closed(tmp_path: Path) -> None:
    opening = Opening(tmp_path, "group", "a", MEGABYTE)
    opening.open()
    opening.abandon()
    opening = Opening(tmp_path, "group", "a", MEGABYTE)
    opening.abandon()
    opening.open()
    HistoryLog(tmp_path, "group", "a").close()


def test_requests_that_wait_are_bounded_and_each_asker_has_one(tmp_path: Path) -> None:
    async def play() -> None:
        log = HistoryLog(tmp_path, "group", "a")
        write(log, range(3))
        answers: list[Recalled] = []
        recaller = Recaller(log, answers.append)
        asked = 5000
        for token in range(asked):
            recaller.ask(Recall(token, 0, 60_000, asker=f"j{token % 3}"))
        assert len(recaller._waiting) <= 3
        for token in range(asked, 2 * asked):
            recaller.ask(Recall(token, 0, 60_000, asker=f"j{token}"))
        assert len(recaller._waiting) == MOST_WAITING
        while recaller._waiting or recaller._under_way:
            await asyncio.sleep(0.001)
        refused = [answer.token for answer in answers if answer.messages < 0]
        read = [answer.token for answer in answers if answer.messages == 3]
        assert len(refused) + len(read) == len(answers)
        assert {asked - 3, asked - 2, asked - 1} < set(read)
        assert min(refused) >= asked
        assert recaller.dropped == 2 * asked - len(read)
        log.close()

    within(play())


def test_few_requests_are_read_for_at_once() -> None:
    go_on, begun = threading.Event(), 0

    class Slow:
        """A log that takes its time."""

        def snapshot(self) -> "Slow":
            nonlocal begun
            begun += 1
            return self

        def recall(self, effect: Recall) -> Recalled:
            go_on.wait(DEADLINE_S)
            return Recalled(effect.token, 0)

    async def play() -> None:
        log: Any = Slow()
        answers: list[Recalled] = []
        recaller = Recaller(log, answers.append)
        try:
            for token in range(4 * READINGS_AT_ONCE):
                recaller.ask(Recall(token, 0, 60_000, asker=f"j{token}"))
            assert begun == READINGS_AT_ONCE
        finally:
            go_on.set()  # else the loop waits for its threads
        while len(answers) < 4 * READINGS_AT_ONCE:
            await asyncio.sleep(0.001)

    within(play())


def test_a_piece_is_as_long_as_it_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = HistoryLog(tmp_path, "group", "a")
    empty = log.figures()["history_log_bytes"]
    write(log, range(10))
    frame = (log.figures()["history_log_bytes"] - empty) // 10
    body = len(everything(log)[0].bodies)
    for most_bytes, count in ((2 * body, 2), (2 * body - 1, 1), (2 * body + 1, 2), (1, 1)):
        assert len(log.snapshot().recall(Recall(1, 0, most_bytes)).records) == count
    for most, count in ((3 * frame, 3), (3 * frame + 1, 4), (3 * frame - 1, 3)):
        monkeypatch.setattr(history, "MOST_SCANNED", most)
        assert len(log.snapshot().recall(Recall(1, 0, 60_000)).records) == count
    log.close()


@pytest.mark.parametrize("size", [10, 1_000, 60_000])
def test_a_log_is_bounded_and_loses_its_oldest_part_first(tmp_path: Path, size: int) -> None:
    log = HistoryLog(tmp_path, "group", "a", MEGABYTE)
    total, step = 0, 200_000 // (size + 1_000)
    for begin in range(0, 3 * MEGABYTE // (size + 60), step):
        write(log, range(begin, begin + step), size=size)
        total = max(total, sum(file.stat().st_size for file in tmp_path.glob(f"*{SUFFIX}")))
    assert MEGABYTE // 2 < total <= MEGABYTE
    found = numbers(everything(log))
    assert found == list(range(found[0], begin + step))
    assert found[0] > 0
    assert log.messages == len(found)
    log.close()
    log = HistoryLog(tmp_path, "group", "a", MEGABYTE)
    assert numbers(everything(log)) == found
    assert log.messages == len(found)
    log.close()


def test_what_the_reader_has_is_left_out_and_reading_stays_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOST_SCANNED", 50_000)
    log = HistoryLog(tmp_path, "group", "a")
    write(log, range(1000), size=1_000)
    write(log, range(5), sender="d")
    answer = log.snapshot().recall(Recall(1, 0, 60_000, (("c", 7, 1000),)))
    assert answer.records == ()
    assert not answer.is_end
    found = everything(log, ("c", 7, 990), ("d", 7, 2))
    assert numbers(found) == list(range(990, 1000))
    assert numbers(found, "d") == [2, 3, 4]
    log.close()


def test_a_log_can_be_read_while_its_oldest_part_goes(tmp_path: Path) -> None:
    log = HistoryLog(tmp_path, "group", "a", MEGABYTE)
    write(log, range(20), size=10_000)
    snapshot = log.snapshot()
    write(log, range(20, 400), size=10_000)
    answer = snapshot.recall(Recall(1, 0, 60_000))
    assert answer.records == () or answer.records[0].number >= 0
    assert numbers(everything(log))[-1] == 399
    log.close()


def test_two_members_cannot_keep_one_log(tmp_path: Path) -> None:
    log = HistoryLog(tmp_path, "group", "a")
    with pytest.raises(UsageError, match="Another process"):
        HistoryLog(tmp_path, "group", "a")
    other = HistoryLog(tmp_path, "group", "b")
    other.close()
    log.close()


def test_a_log_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too short"):
        HistoryLog(tmp_path, "group", "a", 1000)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be kept"):
        HistoryLog(tmp_path / "file", "group", "a")


def test_a_disk_that_fails_is_told_and_the_log_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = HistoryLog(tmp_path, "group", "a")
    write(log, range(5))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(history, "write_all", full)
        write(log, range(5, 10))
    assert log.failure is not None
    assert "No space left" in log.failure
    write(log, range(10, 15))
    assert log.snapshot().recall(Recall(1, 0, 100)).messages == -1
    log.close()
    log = HistoryLog(tmp_path, "group", "a")
    assert numbers(everything(log)) == list(range(5))
    log.close()


def test_a_trace_tells_what_was_delivered_before(tmp_path: Path) -> None:
    for begin in (0, 10):
        recorder = SegmentRecorder(tmp_path, "run", "j", segment_bytes=500)
        for number in range(begin, begin + 10):
            recorder.record("j", "deliver", 0, "c", number)
            recorder.record("j", "receive", 0, "d", number)
            recorder.flush()
        recorder.record("j", "deliver", 0, "e", begin, 5)
        recorder.close()
    assert delivered_before(tmp_path, "run", "j") == {"c": 20, "e": 15}
    assert delivered_before(tmp_path, "run", "k") == {}


# Groups


async def drain(group: Group) -> None:
    async for _ in group.batches():
        pass


@contextlib.asynccontextmanager
async def reading(*groups: Group) -> AsyncIterator[None]:
    """Applications that read whatever comes."""
    tasks = [asyncio.create_task(drain(group)) for group in groups]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def stable(group: Group, bodies: list[bytes]) -> None:
    """Send, and wait until everyone holds all of it."""
    await group.send_many(bodies[:-1])
    await (await group.send(bodies[-1])).stable()


def judge(trace: Path) -> None:
    found = read_trace(trace)
    (run,) = found.runs
    assert broken_promises(run.promises, found.events, run) == []


def test_a_latecomer_is_given_the_history_and_then_what_is_live(tmp_path: Path) -> None:
    async def play() -> None:
        name = a_group_name()
        options: dict[str, Any] = {"group": name, "trace": tmp_path / "trace", "history": tmp_path}
        async with joined("a", "b", **options) as (a, b), reading(a, b):
            await stable(a, [b"a%d" % number for number in range(500)])
            await stable(b, [b"b%d" % number for number in range(500)])
            await stable(a, [bytes(200_000)])
            async with join(name, name="late", catch_up=True, trace=tmp_path / "trace") as late:
                await a.send(b"live")
                found = await read(late, 1002)
                assert await late.wait_for_history()
                assert found[-1][2] == b"live"
                assert [body for sender, _, body in found if sender == "b"] == [
                    b"b%d" % number for number in range(500)
                ]
                assert [len(body) for sender, _, body in found if sender == "a"][500] == 200_000
                assert late.counters["history_messages"] >= 1000
                assert [event.kind for event in [await anext(late.presence())]] == ["appeared"]

    within(play())
    judge(tmp_path / "trace")


def test_a_member_that_comes_back_with_its_trace_gets_nothing_twice(tmp_path: Path) -> None:
    async def play() -> None:
        name = a_group_name()
        options: dict[str, Any] = {"group": name, "trace": tmp_path / "trace", "history": tmp_path}
        async with joined("a", "b", **options) as (a, b), reading(a, b):
            await stable(a, [b"x"] * 50)
            for begin, end in ((0, 50), (50, 90)):
                async with join(name, name="j", catch_up=True, trace=tmp_path / "trace") as late:
                    found = await read(late, end - begin)
                    assert [number for _, number, _ in found] == list(range(begin, end))
                    assert await late.wait_for_history()
                await stable(a, [b"y"] * 40)

    within(play())
    judge(tmp_path / "trace")


def test_a_handler_that_comes_back_has_its_log(tmp_path: Path) -> None:
    async def play() -> None:
        name = a_group_name()
        async with join(name, name="c") as sender, reading(sender):
            async with join(name, name="a", history=tmp_path) as a, reading(a):
                await sender.wait_for_members(2)
                await stable(sender, [b"x"] * 50)
            async with (
                join(name, name="a", history=tmp_path) as a,
                reading(a),
                join(name, name="j", catch_up=True) as late,
            ):
                assert [number for _, number, _ in await read(late, 50)] == list(range(50))
                assert a.counters["history_log_messages"] == 50

    within(play())


def test_a_handler_whose_log_cannot_be_read_says_so(tmp_path: Path) -> None:
    async def play() -> None:
        name = a_group_name()
        async with joined("a", "b", group=name, history=tmp_path) as (a, b), reading(a, b):
            await stable(a, [b"one", b"two"])
        for file in tmp_path.glob(f"a-*{SUFFIX}"):
            file.write_bytes(b"antihis\x07" + file.read_bytes()[8:])
        async with join(name, name="a", history=tmp_path) as a:
            told = await anext(a.presence())
            assert (told.kind, told.site) == ("history", "a")
            assert "another version" in told.reason
            assert a.counters["history_unreadable"] == 1
            assert a.counters["recalls_dropped"] == 0

    within(play())


def test_without_a_handler_the_latecomer_goes_on_and_says_so() -> None:
    async def play() -> None:
        async with joined("a") as (a,), join(a.group, name="j", catch_up=True) as late, reading(a):
            news = late.presence()
            assert (await anext(news)).kind == "appeared"
            assert not await late.wait_for_history()
            event = await anext(news)
            assert (event.kind, event.site) == ("history", "j")
            assert "No member" in event.reason
            await a.send(b"live")
            assert (await read(late, 1))[0][2] == b"live"

    within(play())


def test_history_waits_for_an_application_that_reads_slowly(tmp_path: Path) -> None:
    async def play() -> None:
        limits = Limits(queue_bytes=400_000, patience_s=0.2)
        async with joined("a", "b", history=tmp_path) as (a, b), reading(a, b):
            await stable(a, [bytes(10_000)] * 400)
            async with join(a.group, name="j", catch_up=True, limits=limits) as late:
                while late.counters["queued_bytes"] < 100_000:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(1.0)  # five times its patience
                assert late.counters["queued_bytes"] < 400_000
                assert late.counters["slow_reader_spells"] == 0
                assert len(await read(late, 400)) == 400
                assert await late.wait_for_history()
                assert late.counters["absences"] <= 1

    within(play())


def test_a_disk_that_fails_does_not_stop_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def play() -> None:
        async with joined("a", history=tmp_path) as (a,), join(a.group, name="b") as b:
            news = a.presence()
            await a.wait_for_members(2)
            monkeypatch.setattr(history, "write_all", full)
            for number in range(3):
                await b.send(b"%d" % number)
            assert [body for _, _, body in await read(a, 3)] == [b"0", b"1", b"2"]
            async for event in news:
                if event.kind == "history":
                    break
            assert "No space left" in event.reason
            async with join(a.group, name="j", catch_up=True) as late:
                assert not await late.wait_for_history()

    within(play())


def test_what_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    for options in ({"history": tmp_path}, {"catch_up": True}):
        with pytest.raises(UsageError, match="keeps no history"):
            join("group", name="a", order="sequencer", sequencer="a", **options)

    async def ask() -> None:
        async with joined("a") as (a,):
            with pytest.raises(UsageError, match="did not ask"):
                await a.wait_for_history()
        with pytest.raises(UsageError, match="too short"):
            async with join(a_group_name(), name="a", history=tmp_path, history_bytes=10):
                pass

    within(ask())


# Handlers in processes of their own, so that one can be killed


@pytest.fixture
def handlers(tmp_path: Path) -> Iterator[tuple[str, dict[str, subprocess.Popen[bytes]]]]:
    group = a_group_name()
    command = [sys.executable, "-m", "antiphon.cli.main", "node", group, "--history", str(tmp_path / "log")]
    command += ["--trace", str(tmp_path / "trace"), "--name"]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    started = {
        name: subprocess.Popen([*command, name], stdin=pipe, stdout=nothing, stderr=nothing)
        for name in ("h1", "h2")
    }
    try:
        yield group, started
    finally:
        for process in started.values():
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


def source_of(group: Group) -> str:
    """Whose log a newcomer is reading: an internal that only this test reads."""
    member: Any = group._member
    source: str = member._protocol._history._source
    return source


@pytest.mark.slow
def test_a_handler_killed_while_it_serves_is_left_for_the_other(
    tmp_path: Path, handlers: tuple[str, dict[str, subprocess.Popen[bytes]]]
) -> None:
    group, processes = handlers
    messages = 600

    async def play() -> None:
        trace = tmp_path / "trace"
        limits = Limits(queue_bytes=800_000)
        async with join(group, name="c", trace=trace) as sender, reading(sender):
            await asyncio.wait_for(sender.wait_for_members(3), DEADLINE_S)
            await stable(sender, [number.to_bytes(4) + bytes(20_000) for number in range(messages)])
            async with join(group, name="late", catch_up=True, trace=trace, limits=limits) as late:
                coming = aiter(late)
                found = [(await anext(coming)).number for _ in range(20)]
                os.kill(processes[source_of(late)].pid, 9)
                await sender.send(b"live")
                found += [(await anext(coming)).number for _ in range(messages + 1 - 20)]
                assert await late.wait_for_history()
                assert late.counters["history_switches"] == 1
                assert found == list(range(messages + 1))

    within(play())
    judge(tmp_path / "trace")


@pytest.mark.slow
def test_a_node_catches_up_and_says_so(
    handlers: tuple[str, dict[str, subprocess.Popen[bytes]]],
) -> None:
    group, _ = handlers
    command = [sys.executable, "-m", "antiphon.cli.main", "node", group, "--name", "late", "--json"]

    async def play() -> None:
        async with join(group, name="c") as sender, reading(sender):
            await asyncio.wait_for(sender.wait_for_members(3), DEADLINE_S)
            await stable(sender, [b"%d" % number for number in range(10)])
            pipe = subprocess.PIPE
            node = await asyncio.create_subprocess_exec(*command, "--catch-up", stdin=pipe, stdout=pipe)
            assert node.stdout is not None
            said = [json.loads(await node.stdout.readline()) for _ in range(14)]
            assert [line["body"] for line in said if "body" in line] == [str(n) for n in range(10)]
            assert [line["reason"] for line in said if line.get("presence") == "history"]
            await node.communicate(b"")
            assert node.returncode == 0

    within(play())


# At the bounds of a frame


def a_batch(body: bytes = b"") -> bytes:
    return encoded(history.BATCH, history.BATCH_HEAD.pack(7, 3, 1, 0) + body)


def batches_in(data: bytes, size: int | None = None) -> list[int]:
    return [each.end for each in history.read_batches(io.BytesIO(data), len(data) if size is None else size)]


def test_batches_are_read_up_to_the_first_that_is_torn_damaged_or_of_another_kind() -> None:
    one, two = a_batch(), a_batch(b"body")
    assert batches_in(one) == [len(one)]
    assert batches_in(one + two) == [len(one), len(one + two)]
    assert batches_in(one + two[:-1]) == [len(one)]
    assert batches_in(one + two, len(one + two) - 1) == [len(one)]
    assert batches_in(one + two[: HEAD.size]) == [len(one)]
    assert batches_in(encoded(history.BEGIN, two[HEAD.size : -CHECKSUM.size])) == []
    assert batches_in(two[:-1] + bytes([two[-1] ^ 1])) == []
    assert batches_in(encoded(history.BATCH, b"x")) == []


def test_a_frame_may_be_as_long_as_the_longest_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    one = a_batch(b"body")
    content = len(one) - FRAME_BYTES
    begin = encoded(history.BEGIN, b"{}")
    for most, fits in ((content, True), (content - 1, False)):
        monkeypatch.setattr(frames, "MOST_CONTENT_BYTES", most)
        assert bool(batches_in(one)) == fits
    assert history.read_begin(io.BytesIO(MAGIC + begin)) is None, "it says too little"
    assert history.read_begin(io.BytesIO(MAGIC + begin[:-1])) is None


def test_a_segment_begins_with_a_whole_first_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b'{"group":"g","site":"a","logged":0,"ends":[]}'
    frame = encoded(history.BEGIN, content)
    damaged = frame.replace(b'"a"', b'"b"')
    torn = frame[:-1]
    of_a_batch = encoded(history.BATCH, content)
    for data, is_read in ((frame, True), (damaged, False), (torn, False), (of_a_batch, False)):
        assert (history.read_begin(io.BytesIO(MAGIC + data)) is not None) == is_read
    for most, is_read in ((len(content), True), (len(content) - 1, False)):
        monkeypatch.setattr(frames, "MOST_CONTENT_BYTES", most)
        assert (history.read_begin(io.BytesIO(MAGIC + frame)) is not None) == is_read


@pytest.mark.parametrize("damage", ["gone", "cut short"])
def test_a_log_whose_file_is_damaged_behind_our_back_fails_and_gives_nothing(
    tmp_path: Path, damage: str
) -> None:
    """What it gave would lack messages, and the newcomer would take it to be complete."""
    log = HistoryLog(tmp_path, "group", "a")
    write(log, range(10))
    (path,) = tmp_path.glob(f"*{SUFFIX}")
    if damage == "gone":
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size - 1)
    assert log.snapshot().recall(Recall(1, 0, 60_000)).messages == -1
    assert log.failure is not None
    assert path.name in log.failure
    write(log, range(10, 12))
    log.close()


def test_a_log_that_makes_room_for_a_segment_that_cannot_be_written_only_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is given less room than before deletes all of its segments at once."""
    log = HistoryLog(tmp_path, "group", "a", 64 * LEAST_BYTES)
    write(log, range(8))
    log.close()
    log = HistoryLog(tmp_path, "group", "a", LEAST_BYTES)
    log._segments[-1] = log._segments[-1]._replace(size=2 * LEAST_BYTES)

    def full(*_: object, **__: object) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        write(log, range(8, 10))
    assert log.failure is not None
    assert "Too many open files" in log.failure
    log.close()
