"""Waits before repetitions, measured: at one hop, and in simulated rounds on slow and fast links."""

from random import Random
from statistics import fmean
from typing import Any

import pytest

from antiphon.core.effects import Multicast, SetTimer
from antiphon.core.inputs import Received, RoundTriggered
from antiphon.protocols.stability.base import Configuration
from antiphon.protocols.stability.coordp import ASK, Acknowledgement, CoordP, StartRound
from antiphon.protocols.stability.round_trips import MOST_MEASURED, Repetition, RoundTrip
from antiphon.sim.scenarios import find_scenario

USUAL = Repetition(first_ns=1000, longest_ns=8000, least_ns=10)


def measured(*times_ns: int, is_told_apart: bool = True) -> RoundTrip:
    trip = RoundTrip(is_told_apart=is_told_apart)
    for took_ns in times_ns:
        trip.begin(0, USUAL)
        trip.end_with(took_ns, repeated=False)
    return trip


def test_before_anything_is_measured_the_first_wait_is_the_configured_one() -> None:
    assert measured().begin(0, USUAL) == 1000
    assert measured().begin(0, USUAL, 5000) == 5000


def test_a_wait_is_half_as_long_again_as_answers_usually_took() -> None:
    assert measured(100).begin(0, USUAL) == 150
    assert measured(4000).begin(0, USUAL) == 6000


def test_a_single_answer_that_took_long_changes_nothing() -> None:
    assert measured(100, 100, 90_000, 100).begin(0, USUAL) == 150


def test_after_some_rounds_a_lasting_change_counts() -> None:
    assert measured(100, 100, 100, 100, 100, 600, 600, 600).begin(0, USUAL) == 900


def test_a_measured_wait_has_bounds() -> None:
    assert measured(1).begin(0, USUAL) == 10
    assert measured(1 << 50).begin(0, USUAL) == MOST_MEASURED * 8000


def test_waits_double_up_to_the_longest_and_never_shrink() -> None:
    trip = measured(2000)
    assert [trip.begin(0, USUAL), *(trip.repeat(USUAL) for _ in range(3))] == [3000, 6000, 8000, 8000]
    trip = measured(40_000)
    assert [trip.begin(0, USUAL), trip.repeat(USUAL)] == [60_000, 60_000]


def test_an_answer_to_what_was_repeated_measures_nothing_and_a_wait_that_is_too_short_grows() -> None:
    """Karn's rule: until an answer comes that nothing was repeated for, the doubled wait stays."""
    trip = measured(100, is_told_apart=False)
    assert trip.begin(0, USUAL) == 150
    trip.repeat(USUAL)
    trip.end_with(400, repeated=False)
    assert trip.begin(0, USUAL) == 300
    trip.repeat(USUAL)
    trip.end_with(400, repeated=False)
    assert trip.begin(0, USUAL) == 600
    trip.end_with(400, repeated=False)
    assert trip.begin(0, USUAL) == 150, "the median of two is the lesser"


def test_once_a_time_is_known_losses_do_not_make_a_wait_longer_than_the_longest_pause() -> None:
    trip, unknown = measured(100, is_told_apart=False), measured(is_told_apart=False)
    for _ in range(20):
        for each in (trip, unknown):
            each.begin(0, USUAL)
            each.repeat(USUAL)
            each.end_with(400, repeated=False)
    assert trip.begin(0, USUAL) == 8000
    assert unknown.begin(0, USUAL) == MOST_MEASURED * 8000, "answers may take as long"


def test_where_answers_are_told_apart_those_to_the_first_count_however_late() -> None:
    trip = measured(100, 100)
    for _ in range(4):
        trip.begin(0, USUAL)
        trip.repeat(USUAL)
        trip.answered(700)
        trip.end()
    assert trip.begin(0, USUAL) == 1050


def test_a_coordinator_learns_how_long_members_take() -> None:
    a = CoordP("a", ("a", "b", "c"), ("a",), Configuration(repetition=USUAL), Random(1))
    counts = (5).to_bytes(8, "little")
    a.hold_all([5])
    assert SetTimer(ASK, 1000) in a.handle(0, RoundTriggered())
    a.handle(100, Received("b", Acknowledgement(0, counts)))
    asked = a.handle(1000, RoundTriggered()) or a.handle(1000, Received("c", Acknowledgement(0, counts)))
    (start,) = [
        effect.pdu for effect in asked if isinstance(effect, Multicast) and isinstance(effect.pdu, StartRound)
    ]
    assert SetTimer(ASK, 1500) in asked
    # C's answer to a START that was repeated says nothing of the way there and back.
    a.handle(1400, Received("b", Acknowledgement(start.round, counts)))
    a.handle(9000, Received("c", Acknowledgement(start.round, counts, repeated=True)))
    assert SetTimer(ASK, 600) in a.handle(9000, RoundTriggered())


def rounds(protocol: str, runs: int = 4, **parameters: Any) -> list[dict[str, float]]:
    scenario = find_scenario(protocol)
    configuration = scenario.configure({"senders": 50, **parameters})
    return [scenario.run(configuration, seed, None) for seed in range(runs)]  # type: ignore[misc]


@pytest.mark.parametrize("protocol", ["s-coordp", "s-train"])
def test_on_slow_links_a_loss_costs_a_round_trip(protocol: str) -> None:
    """A wait of 64 transmissions made a round with 1% loss last 6 s; without loss it lasts 0.4 and 1.5 s."""
    found = rounds(protocol, members=200, loss_rate=0.01, bandwidth=30_000)
    assert fmean(each["tpr_s"] for each in found) < 3.0


@pytest.mark.parametrize("protocol", ["coordp", "s-coordp", "train"])
def test_on_fast_links_nothing_is_repeated_while_its_answer_is_on_its_way(protocol: str) -> None:
    """With a wait of 64 transmissions, 4 ms, members of a scattered group flooded the network."""
    setting: dict[str, Any] = {"members": 60, "density": "sparse", "bandwidth": 30_000_000}
    lost = rounds(protocol, loss_rate=0.05, **setting)
    whole = rounds(protocol, runs=1, **setting)
    assert fmean(each["hop_messages"] for each in lost) < 2.5 * whole[0]["hop_messages"]


def test_members_that_have_measured_lose_less_time() -> None:
    setting: dict[str, Any] = {"members": 60, "loss_rate": 0.05, "runs": 6}
    fresh, settled = (rounds("s-coordp", earlier_rounds=number, **setting) for number in (0, 3))
    assert 3 * fmean(each["tpr_s"] for each in settled) < fmean(each["tpr_s"] for each in fresh)
