"""The log: one line for what an operator must know, and no flood of them."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from antiphon.live import events as ev
from antiphon.live import journal
from antiphon.live.errors import NameTakenError
from antiphon.live.gate import UNKNOWN_KEY
from antiphon.live.joining import join
from antiphon.live.journal import HAPPENINGS, JOINED, LONGEST_LINE, Journal, Kind, printable
from antiphon.live.keys import KeyRing, replace_keys, write_keys
from antiphon.live.limits import Limits
from tests.live.members import a_group_name, joined, within
from tests.live.pairs import RING

OTHER = KeyRing((b"o" * 32,))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "antiphon")
    return caplog


async def until(caplog: pytest.LogCaptureFixture, *words: str) -> str:
    """The line that has these words, once it is there."""
    while True:
        for line in caplog.messages:
            if all(word in line for word in words):
                return line
        await asyncio.sleep(0.01)


def test_a_flood_of_one_kind_is_one_line_and_a_count_at_growing_pauses(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "FIRST_PAUSE_S", 0.05)

    async def body() -> None:
        log = Journal("g", "a")
        for turn in range(1000):
            log.note(JOINED, f"turn {turn}")
        assert lines.messages == ["a in g: turn 0"]
        await until(lines, "999")
        assert lines.messages[1:] == ["a in g: turn 999 (999 of this kind since the last line)"]
        pace = log._paces[JOINED]
        assert pace.pause_s == 0.1
        log.note(JOINED, "more")
        assert len(lines.messages) == 2
        log.close()
        assert lines.messages[2:] == ["a in g: more"]

    within(body())


def test_after_a_quiet_time_a_line_is_written_at_once_again(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "FIRST_PAUSE_S", 0.01)

    async def body() -> None:
        log = Journal("g", "a")
        for turn in range(3):
            log.note(JOINED, str(turn))
        await until(lines, "2 (2 of")
        pace = log._paces[JOINED]
        while asyncio.get_running_loop().time() < pace.next_s + pace.pause_s:
            await asyncio.sleep(0.01)
        log.note(JOINED, "again")
        assert lines.messages[-1] == "a in g: again"
        assert pace.pause_s == 0.01

    within(body())


def test_at_the_end_of_a_pause_a_line_is_written_at_once(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        log, loop = Journal("g", "a"), asyncio.get_running_loop()
        with monkeypatch.context() as frozen:
            for turn, now_s in enumerate((7.0, 7.0 + journal.FIRST_PAUSE_S)):
                frozen.setattr(loop, "time", lambda now_s=now_s: now_s)
                log.note(JOINED, str(turn))
                assert lines.messages[turn:] == [f"a in g: {turn}"]
            log.close()

    within(body())


def test_kinds_of_lines_do_not_hold_one_another_up(lines: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        log = Journal("g", "a")
        for name in ("one", "two"):
            log.note(Kind(name, logging.INFO), name)
        assert lines.messages == ["a in g: one", "a in g: two"]

    within(body())


def test_what_peers_say_cannot_steer_a_terminal_nor_fill_the_log() -> None:
    assert printable("a\x1b[31m\nb") == "a\\u001b[31m\\u000ab"
    assert len(printable("x" * 10_000)) == LONGEST_LINE + 1


def test_without_a_level_for_it_nothing_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        caplog.set_level(logging.ERROR, "antiphon")
        log = Journal("g", "a")
        log.note(JOINED, "not listened to")
        assert not log._paces

    within(body())


def test_every_event_but_the_lack_of_a_reader_has_a_line() -> None:
    assert set(HAPPENINGS) == set(ev.Happening.__args__) - {ev.Unread}


def test_coming_and_going_is_logged(lines: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            await until(lines, f"a in {a.group}: joined, with the order 'fifo'.")
            await until(lines, f"a in {a.group}: appeared: b.")
            await b.leave()
            await until(lines, f"b in {a.group}: is out of the group.", "has left")
            await until(lines, f"a in {a.group}: vanished: b. It has left.")

    within(body())


def test_a_slow_reader_is_named(lines: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with joined("a", limits=Limits(queue_bytes=10_000, patience_s=0.05)) as (a,):
            await a.send_many(bytes(1000) for _ in range(20))
            line = await until(lines, "reads too slowly")
            assert "0.05 s" in line
            await until(lines, "is absent until the application has caught up")
            await until(lines, "cut off. This member is absent.")

    within(body())


def test_a_process_with_another_key_or_other_options_is_told(lines: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        group = a_group_name()
        async with joined("a", group=group, key=RING), join(group, name="b", key=OTHER):
            line = await until(lines, "a in", "sealed under a key that is not ours")
            assert "PDUs dropped" in line
        async with joined("a", group=group), join(group, name="b", order="causal"):
            line = await until(lines, "a in", "refused: b")
            assert "order='causal'" in line

    within(asyncio.wait_for(body(), 20))


def test_a_name_that_is_taken_and_a_changed_key_are_told(
    lines: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async def body() -> None:
        group, path = a_group_name(), tmp_path / "key"
        ring = KeyRing.generate()
        write_keys(path, ring)
        async with joined("a", "b", group=group, key=path):
            with pytest.raises(NameTakenError):
                async with join(group, name="b", key=path):
                    pass
            await until(lines, "b in", "has that name there")
            replace_keys(path, KeyRing((*KeyRing.generate().keys, *ring.keys)))
            await until(lines, "a changed key file was taken up")

    within(body())


def test_a_fault_is_told_with_where_to_look(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            assert a._member is not None
            handle = a._member._handle

            def fail(now: int, event: Any) -> Any:
                monkeypatch.setattr(a._member, "_handle", handle)
                raise RuntimeError("on purpose")

            monkeypatch.setattr(a._member, "_handle", fail)
            await b.send(b"x")
            line = await until(lines, "a in", "begins anew")
            assert "RuntimeError" in line
            assert "Group.poison" in line

    within(body())


def test_what_is_dropped_in_a_pause_is_told_as_one_sum(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LOOK_S", 0.01)
    monkeypatch.setattr(journal, "FIRST_PAUSE_S", 1.0)
    drops = {UNKNOWN_KEY: 1}

    async def body() -> None:
        log = Journal("g", "a")
        log.watch(lambda: (drops, 0))
        for _ in range(3):
            drops[UNKNOWN_KEY] += 10
            await asyncio.sleep(0.02)
        await until(lines, "30 PDUs dropped")
        assert len(lines.messages) == 2
        log.close()

    within(body())


def test_drops_are_looked_at_and_told_by_how_many_more_there_are(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LOOK_S", 0.01)
    monkeypatch.setattr(journal, "FIRST_PAUSE_S", 0.01)
    drops = {UNKNOWN_KEY: 0, "harmless": 1}

    async def body() -> None:
        log = Journal("g", "a")
        log.watch(lambda: (drops, 0))
        drops[UNKNOWN_KEY] = 3
        await until(lines, "3 PDUs dropped")
        drops[UNKNOWN_KEY] = 5
        await until(lines, "2 PDUs dropped")
        log.close()
        assert len(lines.messages) == 2

    within(body())
