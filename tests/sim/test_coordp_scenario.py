"""`simulate coordp`: the text's figures, the knobs, determinism, and a trace that can be judged."""

import json
from collections import defaultdict
from typing import Any

import pytest

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.recording import Kind
from antiphon.sim.scenarios import find_scenario
from antiphon.sim.scenarios.coordp import SCENARIO, CoordPStudy, simulate
from antiphon.sim.tap import Tap
from antiphon.sim.tree import grow_tree


class Notebook(Tap):
    """A recorder that keeps its rows."""

    def __init__(self) -> None:
        super().__init__(None)
        self.rows: list[tuple[Site, Kind, int, Site | None, int | None, int]] = []

    def on_row(
        self,
        site: Site,
        kind: Kind,
        time_ns: int,
        sender: Site | None,
        number: int | None,
        count: int,
    ) -> None:
        self.rows.append((site, kind, time_ns, sender, number, count))


@pytest.mark.parametrize(("fill", "tpr_s"), [("even", 10.37), ("left", 15.9)])
def test_section_5_4_3_time_per_round_at_500_dense(fill: str, tpr_s: float) -> None:
    """The independent simulator's figures, to the digits that were written down."""
    metrics = simulate(CoordPStudy(members=500, fill=fill), 1, None)  # type: ignore[arg-type]
    assert metrics["tpr_s"] == pytest.approx(tpr_s, rel=0.005)
    assert metrics["finished"] is True
    assert metrics["steps"] == 3


@pytest.mark.parametrize("members", [50, 200])
def test_hop_messages_are_start_on_each_link_and_each_ack_on_its_way_up(members: int) -> None:
    metrics = simulate(CoordPStudy(members=members), 1, None)
    assert metrics["hop_messages"] == members - 1 + int(grow_tree(members).depth.sum())


def test_free_start_saves_the_spreading_of_start() -> None:
    counted = simulate(CoordPStudy(members=50), 1, None)
    free = simulate(CoordPStudy(members=50, start="free"), 1, None)
    assert free["tpr_s"] < counted["tpr_s"]  # type: ignore[operator]
    assert free["hop_messages"] == counted["hop_messages"] - 49  # type: ignore[operator]


def test_the_last_member_has_the_array_later_than_the_first() -> None:
    metrics = simulate(CoordPStudy(), 1, None)
    # INFO crosses the four levels below the root: 232 bytes at 30 kbit/s, 5 ms and a router's 1 ms each.
    at_least_s = 4 * (232 * 8 / 30_000 + 0.005) + 3 * 0.001
    assert metrics["tpr_last_s"] - metrics["tpr_s"] == pytest.approx(at_least_s, abs=0.001)  # type: ignore[operator]


def test_ten_times_the_bandwidth_is_about_ten_times_as_fast() -> None:
    slow, fast = (
        simulate(CoordPStudy(members=200, bandwidth=bandwidth), 1, None) for bandwidth in (30_000, 300_000)
    )
    assert slow["tpr_s"] / fast["tpr_s"] == pytest.approx(10, rel=0.1)  # type: ignore[operator]


@pytest.mark.parametrize("name", ["coordp", "fulldist", "train", "s-coordp", "s-train"])
@pytest.mark.parametrize("density", ["dense", "sparse"])
@pytest.mark.parametrize("bandwidth", [30_000, 30_000_000])
def test_buffers_that_never_fill_change_nothing(name: str, density: str, bandwidth: int) -> None:
    """No member repeats itself in a round without losses."""
    scenario = find_scenario(name)
    setting = {"members": 100, "density": density, "bandwidth": bandwidth, "until": "first"}
    limited, unlimited = (
        scenario.run(scenario.configure(setting | {"loss": loss}), 1, None) for loss in ("buffers", "none")
    )
    assert limited["dropped"] == 0
    assert limited == unlimited


def test_full_buffers_lose_answers_and_the_round_ends_all_the_same() -> None:
    metrics = simulate(CoordPStudy(members=300, loss="buffers"), 1, None)
    assert metrics["finished"] is True
    assert metrics["dropped"] > 0  # type: ignore[operator]
    assert metrics["queue_max"] == 64
    assert metrics["tpr_last_s"] is not None
    assert metrics["tpr_s"] > simulate(CoordPStudy(members=300), 1, None)["tpr_s"]  # type: ignore[operator]


def test_random_loss_concerns_gossip_alone() -> None:
    assert simulate(CoordPStudy(loss="random"), 1, None) == simulate(CoordPStudy(), 1, None)


def test_sparse_membership_is_drawn_from_the_seed() -> None:
    study = CoordPStudy(density="sparse", network_nodes=300)
    assert simulate(study, 1, None) == simulate(study, 1, None)
    assert simulate(study, 1, None)["tpr_s"] != simulate(study, 2, None)["tpr_s"]


def test_metrics_are_ready_for_json() -> None:
    metrics = simulate(CoordPStudy(members=20, senders=5), 1, None)
    assert json.loads(json.dumps(metrics)) == metrics
    assert {"tpr_s", "tpr_last_s", "steps", "hop_messages", "queue_mean", "queue_max", "finished"} <= set(
        metrics
    )


@pytest.mark.parametrize("loss", ["none", "buffers"])
def test_the_trace_declares_stable_exactly_what_all_hold(loss: str) -> None:
    notebook = Notebook()
    simulate(CoordPStudy(members=150, senders=7, loss=loss), 3, notebook)  # type: ignore[arg-type]
    held: dict[tuple[Site, Site], int] = {}
    stable: dict[tuple[Site, Site], int] = defaultdict(int)
    for site, kind, _, sender, number, count in notebook.rows:
        assert sender is not None
        if kind in ("send", "receive"):
            assert (number, (site, sender) in held) == (0, False)
            held[site, sender] = count
        else:
            assert (kind, number) == ("stable", stable[site, sender])
            stable[site, sender] += count
    senders = {sender for _, sender in held}
    sites = {site for site, _ in held}
    assert (len(sites), len(senders)) == (150, 7)
    least = {sender: min(held[site, sender] for site in sites) for sender in senders}
    assert dict(stable) == {(site, sender): least[sender] for site in sites for sender in senders}
    assert any(held[site, sender] > least[sender] for site, sender in held)


def test_recording_changes_nothing() -> None:
    study = CoordPStudy(members=40, senders=10, loss="buffers")
    assert simulate(study, 5, Notebook()) == simulate(study, 5, None)


def test_senders_may_be_outside_the_group() -> None:
    few, many = (simulate(CoordPStudy(members=10, senders=count), 1, None) for count in (10, 50))
    assert few["hop_messages"] == many["hop_messages"]
    assert float(few["tpr_s"] or 0) < float(many["tpr_s"] or 0)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"members": 1}, "1 members"),
        ({"senders": 0}, "0 senders"),
        ({"bandwidth": 0}, "bandwidth"),
        ({"density": "sparse", "network_nodes": 49}, "49 nodes"),
        ({"density": "middling"}, "middling"),
        ({"fill": "right"}, "right"),
        ({"loss": "all"}, "all"),
        ({"start": "late"}, "late"),
        ({"colour": 3}, "colour"),
    ],
    ids=str,
)
def test_nonsense_is_refused_with_a_sentence(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        SCENARIO.configure(parameters)


def test_the_scenario_describes_itself() -> None:
    assert SCENARIO.name == "coordp"
    assert SCENARIO.promises == ("stability",)
    assert all(SCENARIO.knobs().values())
    assert SCENARIO.cost_s(CoordPStudy(members=500)) > SCENARIO.cost_s(CoordPStudy())
    command = SCENARIO.replay_command(CoordPStudy(members=7, senders=3), 9)
    assert command == "antiphon simulate coordp --members 7 --senders 3 --seed 9"
