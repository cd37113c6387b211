"""Linearizability: the search against a deliberately simple twin, and violations that explain themselves."""

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.check.linear_search import search
from antiphon.check.linearizable import Linearizability, check_calls
from antiphon.check.models import MachineModel, Model, RegisterModel, find_model
from antiphon.check.verdict import Verdict
from antiphon.core.calls import Call
from antiphon.core.values import Value, canonical


def call(
    text: str,
    start: int,
    end: int | None,
    result: Value = None,
    *,
    model: str = "map",
    clock: str | None = None,
) -> Call:
    """`a0 set x 1`: call 0 of client a; numbers are integers."""
    name, operation, *words = text.split()
    arguments = tuple(int(word) if word.lstrip("-").isdigit() else word for word in words)
    return Call(name[0], int(name[1:]), "o", operation, arguments, result, start, end, model, clock)


def verdict(*calls: Call) -> Verdict:
    return check_calls(calls).verdict


# The definition, word for word: try all orders of all subsets of the open calls.


def simple(calls: Sequence[Call], model: Model) -> bool:
    answered = [each for each in calls if each.answered]
    unanswered = [each for each in calls if not each.answered]
    for chosen in range(1 << len(unanswered)):
        some = [each for index, each in enumerate(unanswered) if chosen >> index & 1]
        if any(explains(order, model) for order in permutations([*answered, *some])):
            return True
    return False


def explains(order: Sequence[Call], model: Model) -> bool:
    for place, each in enumerate(order):
        for later in order[place + 1 :]:
            if later.clock == each.clock and later.end is not None and later.end < each.start:
                return False
    states = [model.initial]
    for each in order:
        outcomes = [found for state in states for found in model.outcomes(state, each)]
        states = [
            state
            for state, answer in outcomes
            if not each.answered or canonical(answer) == canonical(each.result)
        ]
    return bool(states)


OPERATIONS: dict[str, list[tuple[str, tuple[Value, ...], list[Value]]]] = {
    "map": [
        ("get", ("x",), [None, 1, 2]),
        ("set", ("x", 1), [None]),
        ("set", ("x", 2, 9), [None]),
        ("compare_and_set", ("x", 1, 2), [True, False]),
        ("delete", ("x",), [True, False]),
    ],
    "register": [
        ("read", (), [None, 1, 2]),
        ("write", (1,), [None]),
        ("write", (2,), [None]),
        ("compare_and_set", (1, 2), [True, False]),
    ],
    "counter": [("get", (), [0, 1, 2, 3]), ("add", (1,), [1, 2, 3]), ("add", (2,), [2, 3, 4])],
    "set": [
        ("add", ("x",), [True, False]),
        ("remove", ("x",), [True, False]),
        ("contains", ("x",), [True, False]),
    ],
    "lock": [
        ("acquire", (), [1, 2, 3]),
        ("try_acquire", (), [1, 2, None]),
        ("release", (1,), [True, False]),
        ("departed", ("a",), [None]),
    ],
    "semaphore(2)": [
        ("acquire", (), [1, 2, 3]),
        ("try_acquire", (), [1, 2, None]),
        ("release", (1,), [True, False]),
        ("departed", ("a",), [None]),
    ],
    "queue": [
        ("put", ("i",), [0, 1]),
        ("put", ("j",), [0, 1]),
        ("take", (), [None, [0, "i"], [0, "j"], [1, "i"], [1, "j"]]),
        ("confirm", (0,), [True, False]),
        ("size", (), [(0, 0), (1, 0), (0, 1)]),
        ("cancel", ("t",), [None]),
        ("departed", ("a",), [None]),
    ],
    "leader": [
        ("campaign", (), [1, 2, 3]),
        ("resign", (1,), [True, False]),
        ("current", (), [None, ("a", 1), ("b", 1), ("b", 2)]),
        ("cancel", ("t",), [None]),
        ("departed", ("a",), [None]),
    ],
    "barrier(2)": [
        ("arrive", ("t",), [0, 1]),
        ("arrive", ("u",), [0, 1]),
        ("pass", ("t", 0), [True, False]),
        ("cancel", ("t",), [None]),
        ("departed", ("a",), [None]),
    ],
}


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, list[Call]]:
    model = draw(st.sampled_from(sorted(OPERATIONS)))
    found = []
    for number in range(draw(st.integers(1, 5))):
        operation, arguments, answers = draw(st.sampled_from(OPERATIONS[model]))
        start = draw(st.integers(0, 8))
        end = draw(st.one_of(st.none(), st.integers(start, 10)))
        result = None if end is None else draw(st.sampled_from(answers))
        client, clock = draw(st.sampled_from("ab")), draw(st.sampled_from([None, None, "k"]))
        found.append(Call(client, number, "o", operation, arguments, result, start, end, model, clock))
    return model, found


@given(histories())
def test_the_search_finds_an_order_exactly_if_one_exists(drawn: tuple[str, list[Call]]) -> None:
    name, calls = drawn
    model = find_model(name)
    assert model is not None
    found = search(calls, model)
    assert (found.verdict is Verdict.PASS) == simple(calls, model)
    if found.order:
        assert explains(found.order, model)
        assert {each for each in calls if each.answered} <= set(found.order)


@given(histories())
def test_what_is_left_of_a_violation_is_a_violation_and_minimal(drawn: tuple[str, list[Call]]) -> None:
    name, calls = drawn
    model = find_model(name)
    assert model is not None
    for found in check_calls(calls).contradictions:
        left = [*found.calls, *found.others]
        assert not simple(left, model)
        assert found.explanation.startswith("Let each call on o")
        assert "a contradiction." in found.explanation
        for each in found.calls:
            if each.operation in model.reads:
                assert simple([other for other in left if other != each], model)


STALE = (
    call("a0 set x 1", 0, 1),
    call("a1 set x 2", 2, 3),
    call("b0 get x", 4, 5, 1),
)


def test_a_stale_read_is_told_with_the_calls_that_matter() -> None:
    noise = [call(f"c{number} set y {number}", number, number + 1) for number in range(50)]
    noise += [call("c60 get x", 0, 9, 1), call("c61 set x 7", 6, 8), call("c62 get x", 9, 10, 7)]
    found = check_calls([*noise, *STALE])
    assert found.verdict is Verdict.FAIL
    assert found.parts == 2
    (only,) = found.contradictions
    assert only.calls == STALE
    assert only.explanation == (
        "Let each call on o['x'] take effect at one moment between its start and its end. Because a's "
        "set('x', 1) (call 0) ended before a's set('x', 2) (call 1) began and a's set('x', 2) (call 1) ended "
        "before b's get('x') = 1 (call 0) began, they take effect in that order. But after a's set('x', 1) "
        "(call 0) and a's set('x', 2) (call 1) b's get('x') (call 0) answers 2, and it answered 1: "
        "a contradiction."
    )
    row = only.violation("r")
    assert (row.property, row.site, row.number, row.size) == ("linearizable", "b", 0, 3)


KNOWN: list[tuple[str, list[Call], Verdict]] = [
    (
        "reads during a write may differ",
        [call("a0 set x 1", 0, 9), call("b0 get x", 1, 2), call("b1 get x", 3, 4, 1)],
        Verdict.PASS,
    ),
    (
        "a read may not go back",
        [call("a0 set x 1", 0, 9), call("b0 get x", 1, 2, 1), call("b1 get x", 3, 4)],
        Verdict.FAIL,
    ),
    (
        "an open write may take effect late",
        [call("a0 set x 1", 0, None), call("b0 get x", 1, 2), call("b1 get x", 3, 4, 1)],
        Verdict.PASS,
    ),
    (
        "an open write may not begin later",
        [call("b0 get x", 1, 2, 1), call("a0 set x 1", 3, None)],
        Verdict.FAIL,
    ),
    (
        "clocks that differ order nothing",
        [call("a0 set x 1", 0, 1), call("b0 get x", 5, 6, clock="k")],
        Verdict.PASS,
    ),
    (
        "an expiring key may vanish",
        [call("a0 set x 1 9", 0, 1), call("b0 get x", 2, 3, 1), call("b1 get x", 4, 5)],
        Verdict.PASS,
    ),
    (
        "a vanished key stays away",
        [call("a0 set x 1 9", 0, 1), call("b0 get x", 2, 3), call("b1 get x", 4, 5, 1)],
        Verdict.FAIL,
    ),
    ("True is not 1", [call("a0 set x 1", 0, 1), call("b0 get x", 2, 3, True)], Verdict.FAIL),
    (
        "two holders",
        [call("a0 acquire", 0, 1, 1, model="lock"), call("b0 acquire", 2, 3, 2, model="lock")],
        Verdict.FAIL,
    ),
    (
        "a holder that is gone",
        [
            call("a0 acquire", 0, 1, 1, model="lock"),
            call("z0 departed a", 1, None, model="lock"),
            call("b0 acquire", 2, 3, 2, model="lock"),
        ],
        Verdict.PASS,
    ),
    (
        "a request that was withdrawn after it had the lock",
        [
            call("a0 acquire", 0, None, model="lock"),
            call("b0 try_acquire", 1, 2, None, model="lock"),
            call("a1 cancel t", 3, None, model="lock"),
            call("b1 try_acquire", 4, 5, 2, model="lock"),
        ],
        Verdict.PASS,
    ),
    (
        "a barrier that lets the first pass before the second has come",
        [
            call("a0 arrive t", 0, 1, 0, model="barrier(2)"),
            call("a1 pass t 0", 2, 3, True, model="barrier(2)"),
            call("b0 arrive u", 4, 5, 0, model="barrier(2)"),
        ],
        Verdict.FAIL,
    ),
    (
        "two leaders",
        [
            call("a0 campaign", 0, 1, 1, model="leader"),
            call("b0 current", 2, 3, ["a", 1], model="leader"),
            call("b1 campaign", 4, 5, 2, model="leader"),
        ],
        Verdict.FAIL,
    ),
    (
        "a token that goes back",
        [
            call("a0 acquire", 0, 1, 5, model="lock"),
            call("a1 release 5", 2, 3, True, model="lock"),
            call("b0 acquire", 4, 5, 4, model="lock"),
        ],
        Verdict.FAIL,
    ),
    (
        "an item taken twice",
        [
            call("a0 put i", 0, 1, 0, model="queue"),
            call("a1 take", 2, 3, [0, "i"], model="queue"),
            call("b0 take", 2, 3, [0, "i"], model="queue"),
        ],
        Verdict.FAIL,
    ),
    (
        "an item of a taker that is gone",
        [
            call("a0 put i", 0, 1, 0, model="queue"),
            call("a1 take", 2, 3, [0, "i"], model="queue"),
            call("z0 departed a", 2, None, model="queue"),
            call("b0 take", 4, 5, [0, "i"], model="queue"),
        ],
        Verdict.PASS,
    ),
    ("no calls", [], Verdict.PASS),
]


@pytest.mark.parametrize(("calls", "expected"), [row[1:] for row in KNOWN], ids=[row[0] for row in KNOWN])
def test_histories_that_are_known(calls: list[Call], expected: Verdict) -> None:
    assert verdict(*calls) is expected


def test_a_value_that_no_call_wrote_is_told_by_one_call() -> None:
    calls = [call(f"a{n} set x {n}", n, n + 1) for n in range(40)] + [call("b0 get x", 50, 51, 99)]
    (found,) = check_calls(calls).contradictions
    assert [each.client for each in found.calls] == ["b"]
    assert "starts empty" in found.explanation
    assert "further calls" in found.explanation


def test_a_search_that_is_too_long_is_unknown() -> None:
    calls = [call(f"a{n} add {1 << n}", 0, None, model="counter") for n in range(30)]
    calls.append(call("b0 get", 1, 2, -1, model="counter"))
    found = check_calls(calls, budget=1000)
    assert found.verdict is Verdict.UNKNOWN
    assert found.doubts == ("no order of the 31 calls on o was found within the budget",)


def test_a_long_history_of_many_clients_is_judged_quickly() -> None:
    calls = []
    for turn in range(2000):
        for number, client in enumerate("abcd"):
            start = 10 * turn + number
            calls.append(
                call(f"{client}{turn} add 1", start, start + 9, 4 * turn + number + 1, model="counter")
            )
    assert check_calls(calls).verdict is Verdict.PASS


def test_many_unanswered_writes_do_not_blow_up_the_search() -> None:
    calls = [call(f"a{n} set x {n}", 0, None) for n in range(60)]
    calls += [call("b0 get x", 1, 2, 7), call("b1 get x", 3, 4, 8), call("b2 get x", 5, 6, 7)]
    found = check_calls(calls, budget=20_000)
    assert found.verdict is Verdict.FAIL
    assert len(found.contradictions[0].calls) == 3


def test_an_object_without_a_model_is_unknown_unless_a_model_is_given() -> None:
    calls = [
        Call("a", 0, "shop", "call", (["write", 1],), None, 0, 1),
        Call("b", 0, "shop", "read", (), 1, 2, 3),
    ]
    assert check_calls(calls).doubts == ("the object shop has no model",)
    unknown = check_calls(calls, {"shop": RegisterModel()})
    assert unknown.verdict is Verdict.UNKNOWN
    assert "unknown operation" in unknown.doubts[0]


class Adder:
    """A machine of an application."""

    def __init__(self) -> None:
        self.sum = 0

    def apply(self, command: int) -> int:
        if command < 0:
            raise ValueError("below zero")
        self.sum += command
        return self.sum

    def snapshot(self) -> bytes:
        return str(self.sum).encode()

    def restore(self, data: bytes) -> None:
        self.sum = int(data)


@pytest.mark.parametrize(("last", "expected"), [(5, Verdict.PASS), (3, Verdict.FAIL)])
def test_a_machine_is_its_own_specification(last: int, expected: Verdict) -> None:
    calls = [
        Call("a", 0, "m", "call", (2,), 2, 0, 1),
        Call("a", 1, "m", "call", (-1,), {"error": "below zero"}, 2, 3),
        Call("b", 0, "m", "call", (3,), last, 4, 5),
    ]
    found: Linearizability = check_calls(calls, {"m": MachineModel(Adder)})
    assert found.verdict is expected
