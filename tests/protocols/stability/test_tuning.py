"""The knobs that a group can turn reach the protocol's objects, and change what they send."""

from dataclasses import fields
from random import Random
from typing import Any

import pytest

from antiphon.core.effects import Effect, Multicast, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received, RoundTriggered, TimerFired
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.protocols.fifo import FifoConfiguration
from antiphon.protocols.stability import PROTOCOLS, WITHOUT_ROUNDS, Layer, Setting
from antiphon.protocols.stability.base import Objective
from antiphon.protocols.stability.gossip import STEP
from antiphon.protocols.stability.tuning import Tuning
from antiphon.sim.scenarios import find_scenario

MEMBERS = tuple(f"m{number:02}" for number in range(16))
STEP_NS = 70 * MILLISECOND_NS


def layer(name: str, site: str = MEMBERS[0], **turned: Any) -> Layer:
    setting = Setting(
        site=site,
        members=MEMBERS,
        view=1,
        objective=Objective.LEAST,
        repeat_ns=10 * MILLISECOND_NS,
        round_ns=10 * MILLISECOND_NS,
        random=Random(1),
        steady=True,
        tuning=Tuning(**turned),
    )
    made = PROTOCOLS[name].make(setting)
    made.begin([1] * len(MEMBERS), [0] * len(MEMBERS))
    return made


def step(made: Layer) -> list[Effect]:
    """A round begins, and the member's first step comes."""
    made.handle(0, RoundTriggered())
    return made.handle(1, TimerFired(STEP))


@pytest.mark.parametrize("name", ["gossip", "s-gossip"])
def test_a_subset_is_how_many_a_gossip_goes_to(name: str) -> None:
    for subset in (1, 3):
        sent = [each for each in step(layer(name, subset=subset)) if isinstance(each, Send)]
        assert len({each.to for each in sent}) == len(sent) == subset


@pytest.mark.parametrize("name", ["gossip", "gossip-hops", "s-gossip"])
def test_a_step_is_the_time_between_gossips(name: str) -> None:
    assert SetTimer(STEP, STEP_NS) in step(layer(name, step_ns=STEP_NS))
    assert SetTimer(STEP, 10 * MILLISECOND_NS) in step(layer(name))


def test_a_search_begins_around_the_step() -> None:
    def longest_ns(**turned: Any) -> int:
        return max(
            each.after_ns for each in step(layer("gossip-adaptive", **turned)) if type(each) is SetTimer
        )

    assert longest_ns(step_ns=SECOND_NS) > 80 * MILLISECOND_NS >= longest_ns()


def test_a_sub_group_is_the_parent_and_its_children() -> None:
    """With one sub-group for all, every member answers the root; with small ones, only its children."""
    for subgroup, answers in ((len(MEMBERS), True), (4, False)):
        asked = layer("s-coordp", subgroup=subgroup).handle(0, RoundTriggered())
        (start,) = (each.pdu for each in asked if isinstance(each, Multicast))
        told = layer("s-coordp", MEMBERS[-1], subgroup=subgroup).handle(0, Received(MEMBERS[0], start))
        assert (MEMBERS[0] in {each.to for each in told if isinstance(each, Send)}) is answers


def test_a_sub_group_of_gossip_is_all_that_a_member_tells() -> None:
    for subgroup in (2, 5):
        sent = step(layer("s-gossip", subgroup=subgroup, subset=15))
        assert {each.to for each in sent if isinstance(each, Send)} == set(MEMBERS[1:subgroup])


def test_a_sub_group_has_so_many_controllers() -> None:
    for controllers in (1, 2, 3):
        made = [layer("s-gossip", site, subgroup=8, controllers=controllers) for site in MEMBERS]
        assert sum(each.controls for each in made) == 2 * controllers  # type: ignore[attr-defined]


def test_scattered_rows_wait() -> None:
    at_once = layer("fulldist").handle(0, RoundTriggered())
    assert any(isinstance(each, Multicast) for each in at_once)
    scattered = layer("fulldist", scatter_ns=SECOND_NS).handle(0, RoundTriggered())
    assert not any(isinstance(each, Multicast) for each in scattered)
    assert any(
        10 * MILLISECOND_NS < each.after_ns < SECOND_NS for each in scattered if type(each) is SetTimer
    )


def test_every_knob_belongs_to_a_protocol_and_the_others_refuse_it() -> None:
    values: dict[str, Any] = {
        "step_ns": STEP_NS, "subset": 2, "subgroup": 5, "heads": True, "controllers": 2,
        "session_share": 0.1, "scatter_ns": STEP_NS,
    }  # fmt: skip
    assert set(values) == {each.name for each in fields(Tuning)}
    for knob, value in values.items():
        tuning = Tuning(**{knob: value})
        every = {**PROTOCOLS, **WITHOUT_ROUNDS}
        takers = {name for name, protocol in every.items() if knob in protocol.takes}
        assert takers
        for name in every:
            if name in takers:
                assert FifoConfiguration(stability=name, tuning=tuning).tuning == tuning
            else:
                with pytest.raises(UsageError, match=f"'{name}' has no {knob}"):
                    FifoConfiguration(stability=name, tuning=tuning)


@pytest.mark.parametrize(
    ("name", "turned"),
    [
        ("gossip", {"step_ns": 80 * MILLISECOND_NS, "subset": 2}),
        ("gossip-adaptive", {"step_ns": 80 * MILLISECOND_NS}),
        ("gossip-hops", {"step_ns": 200 * MILLISECOND_NS}),
        ("s-gossip", {"step_ns": 80 * MILLISECOND_NS, "subset": 2, "subgroup": 5, "controllers": 2}),
        ("s-train", {"subgroup": 50}),
        ("fulldist", {"scatter_ns": 2 * SECOND_NS}),
    ],
)
def test_a_simulated_group_takes_them(name: str, turned: dict[str, Any]) -> None:
    """Its messages become stable, later than with the usual values, which are faster."""
    scenario = find_scenario("fifo")
    knobs = {"members": 7, "messages": 30, "rate": 5.0, "loss": 0.05, "stability": name}
    usual, tuned = (scenario.run(scenario.configure(knobs | more), 1, None) for more in ({}, turned))
    assert isinstance(usual["stability_s"], float)
    assert isinstance(tuned["stability_s"], float)
    assert tuned["stability_s"] > usual["stability_s"]
    assert all(scenario.knobs()[knob] for knob in turned), "the command says what they are"


@pytest.mark.parametrize(
    ("name", "turned"),
    [("fulldist", {"scatter_ns": 2 * SECOND_NS}), ("gossip", {"step_ns": SECOND_NS // 2})],
)
def test_a_round_that_is_meant_to_take_long_is_not_given_up(name: str, turned: dict[str, Any]) -> None:
    """A message comes every three seconds, so no more rounds are needed than there are messages."""
    scenario = find_scenario("fifo")
    knobs = {"members": 7, "messages": 30, "rate": 0.3, "stability": name}
    rounds = scenario.run(scenario.configure(knobs | turned), 1, None)["rounds"]
    assert isinstance(rounds, int)
    assert 0 < rounds <= 30
