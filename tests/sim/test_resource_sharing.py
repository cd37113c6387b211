"""Members that share a resource over simulated groups: what they get done, and what disorder costs."""

import os
import subprocess
import sys
from typing import Any

import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.effects import Absent, Deliver, Multicast, Present
from antiphon.core.errors import UsageError
from antiphon.core.ids import MessageId
from antiphon.core.inputs import Admit, Departed, Received, Returned
from antiphon.core.recording import Property
from antiphon.sim.resource_sharing.disorder import out_of_order
from antiphon.sim.resource_sharing.ideal import Ideal, Oracle, Placed
from antiphon.sim.resource_sharing.run import Ledger
from antiphon.sim.scenario import Metrics
from antiphon.sim.scenarios.resource_sharing import SCENARIO, STACKS
from antiphon.trace.recorder import MemoryRecorder
from antiphon.trace.schema import Run

SMALL: dict[str, Any] = {"members": 7, "units": 4, "need": 2, "seconds": 10.0}
NEAR: dict[str, Any] = {"delay_ms": 2.0, "jitter_ms": 1.0}
"""A token goes round in a time that its ring's times are made for."""
TIGHT: dict[str, Any] = {"members": 7, "units": 4, "need": 4, "delay_ms": 5.0, "jitter_ms": 3.0}
ORDER: tuple[Property, ...] = ("integrity", "duplicate", "atomicity", "fifo", "causal", "total")


def measured(seed: int = 1, **parameters: Any) -> Metrics:
    return SCENARIO.run(SCENARIO.configure(parameters), seed, None)


def number(metrics: Metrics, name: str) -> float:
    value = metrics[name]
    assert isinstance(value, int | float)
    return value


@pytest.mark.slow
@pytest.mark.parametrize("over", STACKS)
def test_with_agreed_order_all_operate_and_no_unit_is_held_twice(over: str) -> None:
    metrics = measured(**SMALL, **NEAR, over=over)
    assert number(metrics, "operations") > 20
    assert metrics["double_holdings"] == metrics["disorder_share"] == metrics["revoked"] == 0
    assert 0 < number(metrics, "use_share") <= 1


@pytest.mark.slow
@pytest.mark.parametrize("over", STACKS)
def test_with_members_that_come_and_go_the_others_go_on(over: str) -> None:
    metrics = measured(**SMALL | NEAR | {"seconds": 15.0}, over=over, churn=2)
    assert number(metrics, "operations") > 40
    assert number(metrics, "claims") > 0
    assert metrics["double_holdings"] == metrics["revoked"] == 0


@pytest.mark.parametrize("seed", range(6))
def test_however_many_come_and_go_no_unit_is_held_twice(seed: int) -> None:
    metrics = measured(seed, members=10, units=6, need=4, seconds=20.0, churn=9)
    assert metrics["double_holdings"] == 0
    assert number(metrics, "claims") > 0


def test_the_share_out_of_order_is_the_one_asked_for() -> None:
    metrics = measured(**SMALL | {"seconds": 40.0}, disorder=0.1)
    assert number(metrics, "messages") > 400
    assert number(metrics, "disorder_share") == pytest.approx(0.1, abs=0.04)


def test_without_vanished_members_disorder_costs_operations_and_never_control() -> None:
    calm = [measured(seed, **TIGHT, seconds=20.0) for seed in range(3)]
    disturbed = [measured(seed, **TIGHT, seconds=20.0, disorder=0.2, disorder_shift=5) for seed in range(3)]
    assert all(metrics["timeouts"] == 0 for metrics in calm)
    assert all(number(metrics, "timeouts") > 0 and metrics["double_holdings"] == 0 for metrics in disturbed)
    before, after = (sum(number(one, "operations") for one in some) for some in (calm, disturbed))
    assert after < before


@pytest.mark.slow
@pytest.mark.parametrize("over", STACKS)
def test_the_trace_shows_the_disorder(over: str) -> None:
    for disorder, expected in ((0.0, False), (0.05, True)):
        knobs = SMALL | NEAR | {"seconds": 5.0, "over": over, "disorder": disorder, "churn": 1}
        recorder = MemoryRecorder("r")
        metrics = SCENARIO.run(SCENARIO.configure(knobs), 3, recorder)
        assert (number(metrics, "disorder_share") > 0) == expected
        broken = {one.property for one in check_trace(recorder.events(), Run("r"), ORDER)}
        assert ("total" in broken) == expected
        assert not broken & {"integrity", "duplicate"}


def test_a_run_depends_on_its_seed_alone() -> None:
    program = (
        "from tests.sim.test_resource_sharing import measured, SMALL;"
        "print(measured(5, **SMALL, disorder=0.1, churn=2))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == str(measured(5, **SMALL, disorder=0.1, churn=2))
    assert other.stdout.strip() != str(measured(6, **SMALL, disorder=0.1, churn=2))


def test_ideal_order_waits_for_gaps_and_goes_on_after_an_absence() -> None:
    oracle = Oracle()
    a, b = Ideal("a", oracle), Ideal("b", oracle)

    def sent(member: Ideal) -> Placed:
        (pdu,) = [effect.pdu for effect in member.handle(0, Admit((b"x",))) if isinstance(effect, Multicast)]
        assert isinstance(pdu, Placed)
        return pdu

    first, second = sent(a), sent(a)
    assert b.handle(1, Received("a", second)) == []
    both = [Deliver("a", 0, (b"x",)), Deliver("a", 1, (b"x",))]
    assert b.handle(2, Received("a", first)) == both
    assert b.handle(3, Departed()) == [Absent()]
    missed = sent(a)
    assert b.handle(4, Returned()) == [Present()]
    assert b.handle(5, Received("a", missed)) == []
    assert b.handle(6, Received("a", sent(a))) == [Deliver("a", 3, (b"x",))]


def test_what_is_late_anywhere_is_out_of_order_and_what_overtakes_it_is_not() -> None:
    a, b, c, d = (MessageId("s", number) for number in range(4))
    assert out_of_order([a, b, c, d], {"x": [a, b, c, d], "y": [b, c, d]}) == set()
    assert out_of_order([a, b, c, d], {"x": [a, c, d, b], "y": [b, a, d]}) == {a, b}
    assert out_of_order([a, b], {"x": [c, d, a, b]}) == set(), "the reference does not know them"


def test_the_ledger_sees_a_unit_held_by_two() -> None:
    ledger = Ledger(2)
    ledger.note("a", frozenset({0, 1}))
    ledger.note("a", frozenset({0}))
    ledger.note("b", frozenset({1}))
    assert ledger.double_holdings == 0
    ledger.note("b", frozenset({0, 1}))
    assert ledger.double_holdings == 1


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"members": 1}, "two members"),
        ({"units": 3, "need": 4}, "no more units"),
        ({"over": "magic"}, "no order 'magic'"),
        ({"operation_ms": 0.0}, "take time"),
        ({"jitter_ms": -1.0}, "negative"),
        ({"disorder": 1.1}, "share"),
        ({"disorder_sites": 21}, "too late"),
        ({"churn": 20}, "stays"),
        ({"slack_ms": 0.0}, "slack"),
    ],
)
def test_what_makes_no_sense_is_refused(parameters: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        SCENARIO.configure(parameters)
