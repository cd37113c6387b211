"""The machines of the ready-made objects: equal to plain twins, deterministic, and whole after a transfer."""

import os
import subprocess
import sys
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.check.linearizable import check_calls
from antiphon.check.verdict import Verdict
from antiphon.core.calls import Call
from antiphon.core.errors import UsageError
from antiphon.replicated.objects import Objects
from antiphon.replicated.objects.map import MapMachine
from tests.replicated.commands import MEMBERS, digest, do, drawn


@given(st.integers(0, 10**6), st.integers(0, 60))
def test_a_copy_made_at_any_point_stays_equal(seed: int, point: int) -> None:
    rng, same = Random(seed), Random(seed)
    original, copy = Objects(), Objects()
    for turn in range(point):
        do(original, rng, turn)
        do(Objects(), same, turn)  # draws what the original drew, without its effects
    same.setstate(rng.getstate())
    do(copy, Random(seed + 1), 0)  # what the copy held before does not matter
    copy.restore(original.snapshot())
    assert copy.snapshot() == original.snapshot()
    for turn in range(point, point + 30):
        assert do(original, rng, turn) == do(copy, same, turn)
        assert original.wants_ticks == copy.wants_ticks
    assert copy.snapshot() == original.snapshot()


def test_runs_are_equal_under_another_hash_seed() -> None:
    program = "from tests.replicated.commands import digest; print(digest(7))"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == digest(7) + "\n"


# The twins are the models of the checker: plain functions from a state to the next


@given(st.integers(0, 10**6))
def test_the_machines_answer_as_the_models_say(seed: int) -> None:
    """One call after the other, so that there is one order only."""
    rng, objects = Random(seed), Objects()
    calls: list[Call] = []
    tokens: dict[str, int] = {}
    for turn in range(60):
        caller = rng.choice(MEMBERS)
        name, kind, operation, *arguments = command = drawn(rng)
        if rng.random() < 0.05:
            objects.departed(caller)
            calls += [
                Call("z", 3 * turn + place, which, "departed", (caller,), None, turn, turn, model)
                for place, (which, model) in enumerate((("l", "lock"), ("p", "semaphore(2)"), ("q", "queue")))
            ]
            continue
        if operation == "cancel":
            continue
        if operation == "take":
            command, arguments = [name, kind, operation, f"t{turn}"], []
        if operation == "acquire":  # each request of its own, and none that waits
            command = [name, kind, operation, f"t{turn}", False]
            operation, arguments = "try_acquire", []
        try:
            result = objects.apply_from(command, caller)
        except UsageError:
            continue
        if operation == "try_acquire" and result is not None:
            assert result > tokens.get(name, 0)
            tokens[name] = result
        if kind == "map" and operation in ("set", "compare_and_set") and arguments[-1] is None:
            arguments.pop()
        if not kind.startswith("barrier"):
            calls.append(Call(caller, turn, name, operation, tuple(arguments), result, turn, turn, kind))
    found = check_calls(calls)
    assert found.verdict is Verdict.PASS, found


def test_requests_that_wait_are_served_in_their_order() -> None:
    objects = Objects()

    def ask(ticket: str, caller: str) -> int | None:
        found: int | None = objects.apply_from(["l", "lock", "acquire", ticket, True], caller)
        return found

    assert [ask("1", "a"), ask("2", "b"), ask("3", "c"), ask("4", "b")] == [1, None, None, None]
    assert ask("1", "a") == 1, "a repeated request has the same answer"
    lock: Any = objects.find("l", "lock")
    objects.apply_from(["l", "lock", "cancel", "2"], "c")
    assert lock.token_of("2") is None, "a request is cancelled by its own member only"
    objects.departed("a")
    assert (lock.token_of("1"), lock.token_of("2"), lock.token_of("3")) == (0, 2, None)
    assert not objects.apply_from(["l", "lock", "release", 2], "c"), "a lock is released by its holder only"
    assert objects.apply_from(["l", "lock", "release", 2], "b")
    assert lock.token_of("3") == 3
    objects.departed("b")
    objects.apply_from(["l", "lock", "cancel", "3"], "c")
    assert ask("5", "a") == 4


def test_a_repeated_request_takes_the_same_item() -> None:
    objects = Objects()
    for item in ("x", "y"):
        objects.apply_from(["q", "queue", "put", item], "a")
    take = ["q", "queue", "take", "t"]
    assert objects.apply_from(take, "a") == objects.apply_from(take, "a") == [0, "x"]
    objects.apply_from(["q", "queue", "cancel", "t"], "b")
    assert objects.apply_from(["q", "queue", "take", "u"], "b") == [1, "y"]
    objects.apply_from(["q", "queue", "cancel", "t"], "a")
    assert objects.apply_from(["q", "queue", "take", "v"], "b") == [0, "x"]


def test_a_key_expires_after_its_lifetime_and_never_before() -> None:
    objects = Objects()
    objects.apply_from(["m", "map", "set", "x", 1, 10], "a")
    assert objects.wants_ticks
    for now, value in ((100, 1), (109, 1), (110, None)):
        objects.tick(now)
        assert objects.apply_from(["m", "map", "get", "x"], "a") == value
    assert not objects.wants_ticks
    objects.apply_from(["m", "map", "set", "x", 1, 10], "a")
    objects.apply_from(["m", "map", "set", "x", 2, None], "a")
    assert not objects.wants_ticks, "a key set again without an expiry stays"


def test_a_value_that_a_caller_changes_later_does_not_change_the_map() -> None:
    objects, value = Objects(), [1]
    objects.apply_from(["m", "map", "set", "x", value, None], "a")
    value.append(2)
    read: Any = objects.apply_from(["m", "map", "get", "x"], "a")
    read.append(3)
    assert objects.apply_from(["m", "map", "get", "x"], "a") == [1]


def test_a_watcher_is_told_what_a_transfer_changed() -> None:
    told: list[tuple[str, Any]] = []
    objects, other = Objects(), Objects()
    machine = objects.find("m", "map")
    assert isinstance(machine, MapMachine)
    for key in "xyz":
        objects.apply_from(["m", "map", "set", key, 1, None], "a")
    for key, value in (("x", 1), ("y", 2), ("w", 3)):
        other.apply_from(["m", "map", "set", key, value, None], "a")
    with machine.watched(lambda key, value: told.append((key, value))):
        objects.restore(other.snapshot())
        assert sorted(told) == [("w", 3), ("y", 2), ("z", None)]
        told.clear()
        objects.restore(Objects().snapshot())
        assert sorted(told) == [("w", None), ("x", None), ("y", None)]
        objects.apply_from(["m", "map", "set", "x", 9, None], "a")
        assert told[-1] == ("x", 9), "the watcher still watches the object that the name means"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("get", "A command to objects is a list"),
        (["m", "map"], "A command to objects is a list"),
        (["m", "counter", "get"], "The object m is a map, not a counter."),
        (["m", "map", "get"], "A map has no operation get with 0 arguments."),
        (["m", "map", "get", 5], "A map has no operation get with 1 arguments."),
        (["m", "map", "set", "x", None, None], "A map has no operation set"),
        (
            ["m", "map", "set", "x", 1, 1 << 63],
            "An expiry is a number of nanoseconds above 0, and at most 100 years.",
        ),
        (
            ["m", "map", "set", "x", 1, -5],
            "An expiry is a number of nanoseconds above 0, and at most 100 years.",
        ),
        (["c", "counter", "add", 2**63], "A counter's sum must fit into 64 bits."),
        (["z", "semaphore(0)", "acquire", "t", True], "There is no kind of object 'semaphore(0)'."),
        (["z", "semaphore(99999999)", "acquire", "t", True], "There is no kind of object"),
    ],
)
def test_a_command_that_makes_no_sense_changes_nothing(command: Any, sentence: str) -> None:
    objects = Objects()
    objects.apply_from(["m", "map", "set", "x", 1, None], "a")
    before = objects.snapshot()
    with pytest.raises(UsageError, match="^" + sentence.replace("(", r"\(").replace(")", r"\)")):
        objects.apply_from(command, "a")
    assert objects.snapshot() == before


def test_a_barrier_lets_all_pass_at_once_and_forgets_who_is_gone() -> None:
    objects = Objects()

    def arrive(ticket: str, caller: str) -> Any:
        return objects.apply_from(["b", "barrier(2)", "arrive", ticket], caller)

    barrier: Any = objects.find("b", "barrier(2)")
    assert arrive("1", "a") == 0
    assert barrier.outcome("1", 0) is None
    objects.departed("a")
    assert barrier.outcome("1", 0) is False
    assert arrive("2", "b") == 0
    assert barrier.outcome("2", 0) is None
    assert arrive("3", "c") == 0
    assert barrier.outcome("2", 0) is True
    assert arrive("3", "c") == 0, "a repeated request belongs to the round that it ended"
    assert arrive("4", "c") == 1
