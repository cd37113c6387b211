"""`simulate s-gossip`: local groups and their controllers."""

import json
from typing import Any

import pytest

from antiphon.cli.main import run
from antiphon.core.errors import UsageError
from antiphon.sim.scenarios.s_gossip import SCENARIO, SGossipRound, SGossipStudy, local_groups


def test_figure_4_13_a_local_group_s_controllers_are_its_shallowest_members() -> None:
    simulated = SGossipRound(SGossipStudy(members=40, subgroup=20, controllers=2), 1)
    groups = local_groups(simulated.placement, simulated.sites, 20, 2)
    depths = dict(zip(simulated.sites, simulated.placement.tree.depth.tolist(), strict=True))
    for sites in groups:
        assert max(depths[site] for site in sites[:2]) <= min(depths[site] for site in sites[2:])
    controls = [
        site for site, host in zip(simulated.sites, simulated.world.hosts, strict=True) if _controls(host)
    ]
    assert set(controls) == {site for sites in groups for site in sites[:2]}


def _controls(host: Any) -> bool:
    return bool(host.handle.__self__.controls)


def test_two_controllers_a_group_gossip_more_among_controllers_and_the_round_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = "simulate s-gossip --members 200 --controllers 2 --loss buffers --seed 1 --json"
    assert run(command.split()) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["finished"]


@pytest.mark.parametrize("controllers", [0, 51])
def test_a_group_has_a_controller_and_no_more_than_members(controllers: int) -> None:
    with pytest.raises(UsageError):
        SCENARIO.configure({"controllers": controllers})
