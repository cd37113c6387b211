"""`simulate gossip` and `simulate s-gossip`: the text's figures, the knobs, determinism, judgeable traces."""

import json
from collections import defaultdict
from dataclasses import replace
from random import Random
from statistics import mean
from typing import Any

import pytest

from antiphon.core.effects import Send
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import RoundTriggered, TimerFired
from antiphon.core.time import from_seconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.gossip import STEP, Outcome, Rumour
from antiphon.protocols.stability.s_gossip import GroupRumour, LocalOutcome
from antiphon.sim.rounds import Placement
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios import find_scenario
from antiphon.sim.scenarios.gossip import GossipRound, GossipStudy, LostGossips
from antiphon.sim.scenarios.s_gossip import SGossipRound, SGossipStudy, local_groups
from antiphon.sim.tree import grow_tree
from tests.sim.test_coordp_scenario import Notebook

GOSSIP: Scenario = find_scenario("gossip")
S_GOSSIP: Scenario = find_scenario("s-gossip")
BOTH = pytest.mark.parametrize("scenario", [GOSSIP, S_GOSSIP], ids=lambda scenario: scenario.name)


def simulate(scenario: Scenario, seed: int, **parameters: Any) -> Metrics:
    return scenario.run(scenario.configure(parameters), seed, None)


def average(scenario: Scenario, metric: str, seeds: int, **parameters: Any) -> float:
    runs = [simulate(scenario, seed, until="first", **parameters) for seed in range(seeds)]
    return mean(float(run[metric] or 0) for run in runs)


# The text's figures, as the independent simulator has them


def test_section_5_3_2_time_per_round_of_200_dense_members() -> None:
    tpr_s = average(GOSSIP, "tpr_s", 25, members=200, subset=3, step=9.0)
    assert tpr_s == pytest.approx(29.4, rel=0.04)


def test_figure_5_10_time_per_round_of_500_sparse_members() -> None:
    tpr_s = average(GOSSIP, "tpr_s", 6, members=500, subset=1, step=5.0, density="sparse", loss="buffers")
    assert tpr_s == pytest.approx(71.2, rel=0.05)


def test_section_5_4_4_local_groups_are_almost_six_times_better_at_500_dense() -> None:
    plain_s = average(GOSSIP, "tpr_s", 4, members=500, step=5.0, loss="buffers")
    structured_s = average(S_GOSSIP, "tpr_s", 8, members=500, loss="buffers")
    assert structured_s == pytest.approx(12.5, rel=0.06)
    assert 5 < plain_s / structured_s < 6.2


def test_how_a_local_round_ends_decides_how_long_it_takes() -> None:
    first, counted, controller = (
        average(S_GOSSIP, "tpr_s", 8, members=500, **how)
        for how in ({}, {"local_result": "counted"}, {"local": "controller"})
    )
    assert first < counted < controller
    assert controller == pytest.approx(18.3, rel=0.1)


class AdaptiveRound(GossipRound):
    """Many rounds one after another, begun at the first member, which looks for the best step."""

    def prepare(self) -> None:
        super().prepare()
        wide = (from_seconds(0.05), from_seconds(20))
        self._configuration = replace(self._configuration, search=wide, repetition=None)


def test_section_5_3_2_a_running_group_finds_its_step_itself() -> None:
    """Table 5.1: with 50 members and 50 senders the best step is 0.7 s."""
    simulated = AdaptiveRound(GossipStudy(members=50, senders=50), 1)
    world, durations = simulated.world, []
    for _ in range(35):
        began = world.now
        world.give(world.hosts[0], RoundTriggered())
        world.run()  # until the group is at rest
        durations.append(world.now - began)
    assert mean(durations[-6:]) < 0.5 * max(durations)
    first = world.hosts[0]
    first.handle(world.now, RoundTriggered())
    (gossip, _) = first.handle(world.now, TimerFired(STEP))
    assert isinstance(gossip, Send)
    assert isinstance(gossip.pdu, Rumour)
    assert from_seconds(0.5) < gossip.pdu.step_ns < from_seconds(1.0)


# What is sent


def test_a_gossip_is_as_large_as_the_text_says() -> None:
    """Section 5.2: from 47 to 103 bytes with one sender and from 243 to 299 with fifty."""
    sizes = {
        (members, senders): GossipStudy(members=members, senders=senders, network_nodes=1000).gossip_bytes
        for members in (50, 500)
        for senders in (1, 50)
    }
    assert sizes == {(50, 1): 47, (500, 1): 103, (50, 50): 243, (500, 50): 299}


def test_sizes_of_the_structured_form_depend_on_whose_bits_are_carried() -> None:
    size = SGossipRound(SGossipStudy(members=120, senders=50), 1).size_of()
    pdus: list[tuple[Pdu, int]] = [
        (Rumour(0, bytes(7), b""), 243),
        (GroupRumour(0, bytes(1), b""), 237),
        (LocalOutcome(0, b""), 232),
        (Outcome(0, b""), 232),
    ]
    assert [size(pdu) for pdu, _ in pdus] == [bytes_ for _, bytes_ in pdus]


def test_two_gossips_a_step_are_lost_at_random() -> None:
    lost = LostGossips(100, lambda: 10, Random(1))
    places: dict[int, int] = defaultdict(int)
    for step in range(500):
        gone = [place for place in range(10) if lost.next_is_lost(100 * step + 9 * place)]
        assert len(gone) == 2
        for place in gone:
            places[place] += 1
    assert all(60 < count < 140 for count in places.values())
    assert len(places) == 10


def test_lost_gossips_never_reach_the_network() -> None:
    """Of ten members' gossips of one step eight are sent; nothing is dropped on the way."""
    complete, lossy = (
        GossipRound(GOSSIP.configure({"members": 10, "step": 50.0, "loss": loss}), 1)
        for loss in ("none", "random")
    )
    for simulated in (complete, lossy):
        simulated.trigger()
        simulated.world.run(50 * 10**9 - 1)
    assert complete.network.traffic(complete.world.now).dropped == 0
    sent = [simulated.network.network_messages() for simulated in (complete, lossy)]
    assert sent[1] < sent[0]


def test_local_groups_follow_the_walk_and_begin_with_their_shallowest_member() -> None:
    tree = grow_tree(40)
    sites = tuple(str(node) for node in range(40))
    groups = local_groups(Placement(tree, range(40)), sites, 12)
    assert [len(group) for group in groups] == [12, 12, 12, 4]
    places = [[int(tree.enter[int(site)]) for site in group] for group in groups]
    assert [sorted(group) for group in places] == [
        list(range(first, min(first + 12, 40))) for first in range(0, 40, 12)
    ]
    for group in groups:
        depths = [int(tree.depth[int(site)]) for site in group]
        assert depths[0] == min(depths)


# The knobs


@BOTH
def test_steps_are_time_in_units_of_the_step(scenario: Scenario) -> None:
    metrics = simulate(scenario, 1, members=60, step=2.0)
    assert metrics["steps"] == pytest.approx(float(metrics["tpr_s"] or 0) / 2.0)


def test_more_hops_need_fewer_steps_without_any_address() -> None:
    near, far = (simulate(GOSSIP, 1, members=50, bandwidth=300_000, step=1.0, hops=hops) for hops in (1, 3))
    assert near["finished"] is far["finished"] is True
    assert far["steps"] < near["steps"]  # type: ignore[operator]
    drawn = simulate(GOSSIP, 1, members=50, bandwidth=300_000, step=1.0, hops=3, hops_from=1)
    assert drawn["finished"] is True
    assert drawn["hop_messages"] != far["hop_messages"]


@BOTH
def test_ten_times_the_bandwidth_and_a_tenth_of_the_step_is_about_ten_times_as_fast(
    scenario: Scenario,
) -> None:
    slow = average(scenario, "tpr_s", 6, members=100, step=3.0)
    fast = average(scenario, "tpr_s", 6, members=100, step=0.3, bandwidth=300_000)
    assert slow / fast == pytest.approx(10, rel=0.15)


@BOTH
def test_full_buffers_lose_messages_and_the_round_ends_all_the_same(scenario: Scenario) -> None:
    metrics = simulate(scenario, 1, members=200, step=0.5, subset=3, loss="buffers", subgroup=100)
    assert metrics["finished"] is True
    assert metrics["dropped"] > 0  # type: ignore[operator]
    assert metrics["queue_max"] == 64
    assert metrics["tpr_last_s"] is not None


@BOTH
@pytest.mark.parametrize("how", [{"loss_rate": 0.3}, {"loss": "random"}, {"density": "sparse"}], ids=str)
def test_everyone_gets_the_result(scenario: Scenario, how: dict[str, Any]) -> None:
    metrics = simulate(scenario, 3, members=60, network_nodes=200, senders=5, subgroup=20, **how)
    assert metrics["tpr_last_s"] >= metrics["tpr_s"]  # type: ignore[operator]


@BOTH
def test_errors_are_detected_by_the_same_rounds(scenario: Scenario) -> None:
    assert simulate(scenario, 1, detect="errors")["tpr_last_s"] is not None


@BOTH
def test_the_same_seed_gives_the_same_run(scenario: Scenario) -> None:
    first, again, other = (simulate(scenario, seed, members=70, loss="buffers") for seed in (1, 1, 2))
    assert first == again
    assert first != other


@BOTH
def test_stopping_at_the_first_result_changes_nothing_before_it(scenario: Scenario) -> None:
    first, last = (simulate(scenario, 1, members=70, until=until) for until in ("first", "last"))
    for whole_round in ("tpr_last_s", "hop_messages_last"):
        assert last.pop(whole_round) is not None
        assert first.pop(whole_round) is None
    assert first == last


@BOTH
@pytest.mark.parametrize("loss", ["none", "buffers"])
def test_the_trace_declares_stable_exactly_what_all_hold(scenario: Scenario, loss: str) -> None:
    notebook = Notebook()
    scenario.run(scenario.configure({"members": 90, "senders": 7, "loss": loss, "subgroup": 20}), 3, notebook)
    held: dict[tuple[Site, Site], int] = {}
    stable: dict[tuple[Site, Site], int] = defaultdict(int)
    for site, kind, _, sender, number, count in notebook.rows:
        assert sender is not None
        if kind in ("send", "receive"):
            held[site, sender] = count
        else:
            assert (kind, number) == ("stable", stable[site, sender])
            stable[site, sender] += count
    sites, senders = ({key[place] for key in held} for place in (0, 1))
    least = {sender: min(held[site, sender] for site in sites) for sender in senders}
    assert dict(stable) == {(site, sender): least[sender] for site in sites for sender in senders}
    assert any(held[site, sender] > least[sender] for site, sender in held)


@BOTH
def test_metrics_are_ready_for_json(scenario: Scenario) -> None:
    metrics = simulate(scenario, 1, members=20, senders=5)
    assert json.loads(json.dumps(metrics)) == metrics


NONSENSE: list[tuple[Scenario, dict[str, Any], str]] = [
    (GOSSIP, {"step": 0.0}, "step of 0.0"),
    (GOSSIP, {"step": -1.0}, "step of -1.0"),
    (GOSSIP, {"subset": 0}, "to 0 of 49"),
    (GOSSIP, {"subset": 50}, "to 50 of 49"),
    (GOSSIP, {"hops": 2, "hops_from": 3}, "farther"),
    (GOSSIP, {"hops": -1}, "farther"),
    (S_GOSSIP, {"step": 0.0}, "step of 0.0"),
    (S_GOSSIP, {"subset": 0}, "subset"),
    (S_GOSSIP, {"subgroup": 0}, "local group"),
    (S_GOSSIP, {"local": "never"}, "never"),
    (S_GOSSIP, {"lost": "none"}, "none"),
]


@pytest.mark.parametrize(
    ("scenario", "parameters", "words"), NONSENSE, ids=[f"{row[0].name} {row[1]}" for row in NONSENSE]
)
def test_nonsense_is_refused_with_a_sentence(
    scenario: Scenario, parameters: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        scenario.configure(parameters)


@BOTH
def test_the_scenario_describes_itself(scenario: Scenario) -> None:
    assert scenario.promises == ("stability",)
    assert all(scenario.knobs().values())
    small, large = (scenario.configure({"members": members}) for members in (50, 500))
    assert scenario.cost_s(large) > scenario.cost_s(small)
