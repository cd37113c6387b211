"""CoordP in the swarm that the other stability protocols go through, and what it has found there."""

from random import Random

import pytest

from antiphon.core.inputs import Suspected
from antiphon.core.wire import Codec
from antiphon.protocols.stability.base import Configuration, Objective
from antiphon.protocols.stability.coordp import PDUS, Acknowledgement, CoordP, Information, StartRound
from antiphon.protocols.stability.round_trips import Repetition
from tests.protocols.harness.stability_group import counts, receive, sent, trigger
from tests.protocols.harness.stability_swarm import weather

QUIET = Configuration(repetition=None)


@pytest.mark.parametrize("objective", Objective)
def test_stability_is_safe_in_turmoil_and_found_after_it(objective: Objective) -> None:
    knobs = Configuration(repetition=Repetition(first_ns=10, longest_ns=40), objective=objective)
    for seed in range(350):
        weather(
            seed,
            lambda site, members, senders, random: CoordP(site, members, senders, knobs, random),
            objective=objective,
            codec=Codec(PDUS),
            own_suspicion=True,
        )


def test_a_round_that_gives_way_is_made_up_for_when_the_greater_one_has_ended() -> None:
    a = CoordP("a", ("a", "b"), ("a",), QUIET)
    trigger(a)
    receive(a, "b", StartRound(3))
    assert [pdu for _, pdu in sent(receive(a, "b", Information(3, counts(0))))] == [StartRound(4)]


def test_a_result_that_its_finder_can_no_longer_tell_is_found_again() -> None:
    b = CoordP("b", ("a", "b", "c"), ("a",), QUIET, Random(1))
    receive(b, "a", StartRound(3))
    receive(b, "a", Information(3, counts(0)))
    b.handle(0, Suspected("a"))
    assert [pdu for _, pdu in sent(receive(b, "c", Acknowledgement(3, counts(0))))] == [StartRound(7)]
