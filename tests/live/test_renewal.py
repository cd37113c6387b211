"""Keys that change while members talk, renewed or replaced in their file: nothing is lost by it."""

from pathlib import Path

import pytest

from antiphon.core.time import MILLISECOND_NS
from antiphon.live import fragment_reader, gate, sealing, transport
from antiphon.live.keys import KeyFile, KeyRing, replace_keys, write_keys
from tests.live.pairs import RING, Ear, acquaint, drive, ears, group_name, note


def converse(a: Ear, b: Ear, numbers: range) -> None:
    """Each says everything once, small and large, and nothing of it is lost."""
    for number in numbers:
        size = 90_000 if number % 5 == 0 else 10
        a.transport.multicast(note(number, size))
        b.transport.send("a", note(number, size))
        drive([a, b], lambda number=number: number in b.numbers("a") and number in a.numbers("b"))  # type: ignore[misc]


def test_a_key_is_renewed_after_so_many_pdus(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gate, sealing, fragment_reader):
        monkeypatch.setattr(module, "GENERATION_BITS", 3)
    group = group_name()
    with ears(Ear("a", group, RING), Ear("b", group, RING)) as (a, b):
        acquaint(a, b)
        converse(a, b, range(60))
        assert a.transport._framer.key is not None
        assert a.transport._framer.key.seal.generation == a.transport._framer.counter >> 3 >= 7
        assert a.transport.figures(0)["key_sealed_pdus"] <= 8
        assert a.counters.pdus_lost == b.counters.pdus_lost == 0


def test_a_key_is_renewed_after_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "KEY_LIFE_NS", 1)
    monkeypatch.setattr(transport, "KEY_LOOK_NS", 20 * MILLISECOND_NS)
    group = group_name()
    with ears(Ear("a", group, RING), Ear("b", group, RING)) as (a, b):
        acquaint(a, b)
        number = 0
        while a.transport._framer.counter >> sealing.GENERATION_BITS < 5:
            number += 1
            converse(a, b, range(number, number + 1))
        assert a.counters.pdus_lost == b.counters.pdus_lost == 0


def test_a_key_file_is_looked_at_once_in_a_while_and_taken_up(tmp_path: Path) -> None:
    path, first = tmp_path / "key", KeyRing((b"1" * 32,))
    write_keys(path, first)
    group = group_name()
    with ears(Ear("a", group, KeyFile(path)), Ear("b", group, KeyFile(path))) as (a, b):
        acquaint(a, b)
        converse(a, b, range(5))
        both = first.added()
        for step, ring in enumerate((both, both.promoted(), both.promoted().retired()), start=1):
            replace_keys(path, ring)
            begun = 10 * step
            now = max(ear.transport._key_looked_ns for ear in (a, b))
            for ear in (a, b):
                ear.transport.tick(ear.transport._key_looked_ns + transport.KEY_LOOK_NS - 1)
                assert ear.counters.key_changes == step - 1
            a.transport.tick(now + transport.KEY_LOOK_NS)
            assert a.counters.key_changes == step
            if step < 3:
                converse(a, b, range(begun, begun + 3))
            b.transport.tick(now + transport.KEY_LOOK_NS)
            converse(a, b, range(begun + 3, begun + 6))
        assert a.counters.pdus_lost == b.counters.pdus_lost == 0
        assert a.transport.figures(a.transport._key_looked_ns)["key_age_s"] == 0


def test_a_key_file_that_has_gone_bad_is_told_and_the_keys_stay(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_keys(path, RING)
    group = group_name()
    with ears(Ear("a", group, KeyFile(path)), Ear("b", group, RING)) as (a, b):
        acquaint(a, b)
        path.write_text("nonsense")
        for _ in range(3):
            a.transport.tick(a.transport._key_looked_ns + transport.KEY_LOOK_NS)
        ((site, told),) = a.news.refusals
        assert site == "a"
        assert "no key on line 1" in told
        assert "previous keys stay in use" in told
        assert a.counters.key_changes == 0
        converse(a, b, range(3))
