"""Atomic delivery between fakes: what waits, what is let go, and what is given up."""

from collections.abc import Mapping
from random import Random

import pytest

from antiphon.core.effects import (
    Absent,
    Deliver,
    Effect,
    Multicast,
    Present,
    Stable,
    Unavailable,
    Unstable,
)
from antiphon.core.inputs import Input, Start
from antiphon.core.protocol import PeerReport
from antiphon.core.wire import Pdu
from antiphon.protocols import atomic_delivery
from antiphon.protocols.atomic_delivery import AtomicDelivery
from antiphon.sim.scenarios import dpg, fifo
from tests.promises import broken_promises
from tests.sim.swarming import judge, simulate

DPG_SEEDS = 12


class Scripted:
    """A protocol whose effects are given."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def handle(self, now: int, event: Input) -> list[Effect]:
        return self.effects

    def peers(self, now: int) -> Mapping[str, PeerReport]:
        return {"z": PeerReport()}

    def incarnation_of(self, site: str) -> int:
        return 7


class Layer:
    """The layer around a scripted protocol."""

    def __init__(self, *, one_order: bool = True) -> None:
        self.inner = Scripted()
        self.outer = AtomicDelivery(self.inner, one_order=one_order)

    def __call__(self, *effects: Effect) -> list[Effect]:
        self.inner.effects = list(effects)
        return self.outer.handle(0, Start())


def batch(sender: str, number: int, count: int = 1) -> Deliver:
    return Deliver(sender, number, (b"x",) * count)


def test_a_batch_waits_until_all_of_it_is_stable() -> None:
    layer = Layer()
    assert layer(batch("a", 0, 3)) == []
    assert layer(Stable("a", 0, 2)) == [Stable("a", 0, 2)]
    assert layer.outer.waiting == 1
    assert layer(Stable("a", 2)) == [Stable("a", 2), batch("a", 0, 3)]
    assert layer.outer.waiting == 0


def test_in_one_order_a_stable_batch_waits_for_those_before_it() -> None:
    layer = Layer()
    assert layer(batch("a", 0), batch("b", 0), Stable("b", 0)) == [Stable("b", 0)]
    assert layer(Stable("a", 0)) == [Stable("a", 0), batch("a", 0), batch("b", 0)]


def test_without_one_order_it_waits_for_its_sender_alone() -> None:
    layer = Layer(one_order=False)
    assert layer(batch("a", 0), batch("b", 0), Stable("b", 0)) == [Stable("b", 0), batch("b", 0)]
    assert layer(batch("a", 1), Stable("a", 0, 2)) == [Stable("a", 0, 2), batch("a", 0), batch("a", 1)]


def test_what_was_stable_before_its_delivery_does_not_wait() -> None:
    layer = Layer()
    layer(Stable("a", 0, 2), Stable("a", 2, 2))
    assert layer(batch("a", 0, 4)) == [batch("a", 0, 4)]


def test_what_is_stable_beyond_the_last_that_waits_is_remembered() -> None:
    layer = Layer()
    layer(batch("a", 0))
    assert layer(Stable("a", 0, 2)) == [Stable("a", 0, 2), batch("a", 0)]
    assert layer(batch("a", 1)) == [batch("a", 1)]


def test_what_is_stable_up_to_the_last_that_waits_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_delivery, "MOST_EARLY", 1)
    layer = Layer()
    layer(Stable("a", 0), batch("b", 0), Stable("b", 0))
    assert layer(batch("a", 0)) == [batch("a", 0)]


def test_early_ranges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_delivery, "MOST_EARLY", 2)
    layer = Layer()
    layer(Stable("a", 0), Stable("b", 0), Stable("c", 0))
    assert layer(batch("c", 0), batch("b", 0)) == [batch("c", 0), batch("b", 0)]
    assert layer(batch("a", 0)) == []


def test_what_never_becomes_stable_ends_the_spell_and_holds_up_nothing() -> None:
    layer = Layer()
    layer(batch("a", 0, 2), batch("b", 0), Stable("b", 0))
    doubt = Unstable("a", 0, 2, None, "The member z has not reported.")
    given_up = Unavailable("The member z has not reported.", "a", 0, 2)
    assert layer(doubt) == [doubt, given_up, Absent(), Present(), batch("b", 0)]


def test_a_spell_ends_also_before_a_batch_that_comes_later() -> None:
    layer = Layer()
    layer(batch("a", 0), Unstable("a", 0, 1, None, "Too many wait."))
    assert layer(batch("b", 0), Stable("b", 0)) == [Stable("b", 0), Absent(), Present(), batch("b", 0)]
    assert layer(batch("b", 1), Stable("b", 1)) == [Stable("b", 1), batch("b", 1)]


def test_doubt_about_what_does_not_wait_changes_nothing() -> None:
    layer = Layer()
    layer(batch("a", 5))
    for number in (4, 6):
        doubt = Unstable("a", number, 1, None, "It is too late.")
        assert layer(doubt) == [doubt]
    assert layer.outer.waiting == 1


def placed(sender: str, number: int, place: int) -> Deliver:
    return Deliver(sender, number, (b"x",), place=place)


def test_what_waits_when_a_spell_ends_is_delivered_if_it_becomes_stable() -> None:
    layer = Layer()
    layer(placed("a", 0, 7))
    assert layer(Absent(), Present()) == [Absent(), Present()]
    assert layer(Stable("a", 0)) == [Stable("a", 0), placed("a", 0, 7)]


@pytest.mark.parametrize(
    ("place", "cut"), [pytest.param(8, [], id="no gap"), pytest.param(9, [Absent(), Present()], id="a gap")]
)
def test_a_gap_after_late_batches_cuts_the_spell(place: int, cut: list[Effect]) -> None:
    layer = Layer()
    layer(placed("a", 0, 7), Absent(), Present())
    layer(Stable("a", 0))
    assert layer(placed("b", 0, place), Stable("b", 0)) == [Stable("b", 0), *cut, placed("b", 0, place)]


def test_without_places_a_gap_is_found_by_numbers() -> None:
    layer = Layer(one_order=False)
    layer(batch("a", 0), batch("b", 0), Absent(), Present())
    assert layer(Stable("a", 0), batch("a", 1), Stable("a", 1)) == [
        Stable("a", 0), batch("a", 0), Stable("a", 1), batch("a", 1),
    ]  # fmt: skip
    assert layer(Stable("b", 0), batch("b", 2), Stable("b", 2)) == [
        Stable("b", 0), batch("b", 0), Stable("b", 2), Absent(), Present(), batch("b", 2),
    ]  # fmt: skip


def test_a_late_batch_is_given_up_once_a_later_one_is_stable() -> None:
    layer = Layer()
    layer(batch("a", 0), Absent(), Present(), batch("b", 0))
    assert layer(Stable("b", 0)) == [
        Stable("b", 0),
        Unavailable(atomic_delivery.PASSED, "a", 0, 1),
        Absent(),
        Present(),
        batch("b", 0),
    ]
    assert layer.outer.waiting == 0


def test_the_last_batch_of_a_sender_that_crashed_is_given_up_once_a_later_one_of_it_is_stable() -> None:
    layer = Layer(one_order=False)
    layer(batch("a", 0, 2), Stable("a", 0))
    assert layer(batch("a", 2), Stable("a", 2)) == [
        Stable("a", 2), Unavailable(atomic_delivery.ORPHANED, "a", 0, 2), Absent(), Present(), batch("a", 2),
    ]  # fmt: skip
    assert layer.outer.waiting == 0


def test_a_batch_that_a_later_range_touches_still_waits() -> None:
    layer = Layer(one_order=False)
    layer(batch("a", 0, 2), batch("a", 2), Stable("a", 0))
    assert layer(Stable("a", 1)) == [Stable("a", 1), batch("a", 0, 2)]
    assert layer(Stable("a", 2)) == [Stable("a", 2), batch("a", 2)]


def test_other_effects_pass_in_their_places_and_questions_reach_the_protocol() -> None:
    layer = Layer()
    sent = Multicast(Pdu())
    assert layer(sent, batch("a", 0), Stable("a", 0), sent) == [sent, Stable("a", 0), batch("a", 0), sent]
    assert layer.outer.peers(0) == {"z": PeerReport()}
    assert layer.outer.incarnation_of("z") == 7


@pytest.mark.parametrize("service", ["lan", "sequencer", "bounded-delay"])
def test_the_total_order_delivers_safely(service: str) -> None:
    for seed in range(DPG_SEEDS):
        random = Random(f"atomic delivery/{service}/{seed}")
        parameters = {
            "members": random.randint(2, 5), "messages": 80, "rate": 400.0, "deliver": "stable",
            "service": service, "network": "medium" if service == "lan" else "mesh",
            "loss": random.choice([0.0, 0.05]), "churn": random.choice([0, 1]),
        }  # fmt: skip
        judge(dpg.SCENARIO, parameters, seed)


@pytest.mark.parametrize("seed", [62, 63, 66])
def test_a_sender_that_crashes_with_a_message_on_its_way_holds_nothing_up(seed: int) -> None:
    """Without the rule its later messages wait for good: 52, 54 and 58 violations."""
    parameters = {
        "members": 3, "messages": 59, "size": 0, "rate": 59.0, "delay_ms": 5.0, "jitter_ms": 0.5, "loss": 0.3,
        "crashes": 1, "partitions": 3, "stability": "s-train", "repair": "request", "deliver": "stable",
    }  # fmt: skip
    judge(fifo.SCENARIO, parameters, seed)


def test_delivery_at_once_is_caught() -> None:
    """The mutant: without the layer, deliveries come before stability."""
    parameters = {"members": 4, "messages": 200, "rate": 2000.0, "loss": 0.1}
    outcome = simulate(fifo.SCENARIO, parameters, 1)
    assert broken_promises(["safe"], outcome.events, outcome.run)
    outcome = simulate(fifo.SCENARIO, parameters | {"deliver": "stable"}, 1)
    assert not broken_promises(["safe"], outcome.events, outcome.run)
