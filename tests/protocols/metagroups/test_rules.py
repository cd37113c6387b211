"""Sites with different shared options never mix: each side keeps its own order, and says why."""

import dataclasses
from typing import Any

import pytest

from antiphon.core.effects import Disagreed
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received
from antiphon.protocols.metagroups import MetaGroups, MetaGroupsConfiguration
from antiphon.protocols.metagroups.pdus import SHARED_OPTIONS, Heartbeat
from tests.protocols.harness.metagroups_group import KNOBS, Cluster

OTHERWISE: dict[str, Any] = {
    "delivery": "agreed",
    "bodies": "direct",
    "causal": True,
    "shape": "printed",
    "bypass": True,
}
"""Another value of each shared option."""


class MixedCluster(Cluster):
    """Sites that begin alone, of which one has other options."""

    def __init__(self, groups: dict[str, str], odd: str, knobs: MetaGroupsConfiguration) -> None:
        super().__init__(groups, begun=False)
        self.odd = odd
        self._odd_knobs = knobs

    def build(self, name: str) -> MetaGroups:
        usual, self.knobs = self.knobs, self._odd_knobs if name == self.odd else self.knobs
        found = super().build(name)
        self.knobs = usual
        return found

    def disagreed(self, name: str) -> list[str]:
        return [effect.reason for effect in self.effects[name] if isinstance(effect, Disagreed)]


def other_knobs(knob: str) -> MetaGroupsConfiguration:
    return dataclasses.replace(KNOBS, **{knob: OTHERWISE[knob]})


def assert_apart(cluster: MixedCluster, odd: str, knob: str) -> None:
    """The usual sites form a cluster and deliver, the odd one gets nothing of it, and all know why."""
    usual = [name for name in cluster.names if name != odd]
    assert {cluster.figure(name, "sites") for name in usual} == {len(usual)}
    cluster.admit(usual[0], "A")
    cluster.pass_time(100)
    assert all(cluster.delivered(name) == [f"{usual[0]}0A"] for name in usual)
    assert cluster.delivered(odd) == []
    assert f"{knob}={OTHERWISE[knob]}, and here {knob}=" in cluster.disagreed(usual[0])[0]
    assert f"and here {knob}={OTHERWISE[knob]}." in cluster.disagreed(odd)[0]


@pytest.mark.parametrize("knob", SHARED_OPTIONS)
@pytest.mark.parametrize("odd", ["a", "c"], ids=["first", "last"])
def test_sites_with_other_rules_that_begin_together_stay_apart(knob: str, odd: str) -> None:
    cluster = MixedCluster({"A": "abc"}, odd, other_knobs(knob))
    for name in "abc":
        cluster.begin(name)
    cluster.pass_time(2000)
    assert_apart(cluster, odd, knob)
    cluster.judge()


@pytest.mark.parametrize("knob", SHARED_OPTIONS)
def test_a_newcomer_with_other_rules_is_not_let_in(knob: str) -> None:
    cluster = MixedCluster({"A": "abc"}, "c", other_knobs(knob))
    for name in "ab":
        cluster.begin(name)
    cluster.pass_time(1000)
    cluster.begin("c")
    cluster.pass_time(1000)
    assert cluster.figure("c", "sites") == 0  # nor does it found a cluster beside theirs
    assert_apart(cluster, "c", knob)
    assert len(cluster.disagreed("a")) == 1
    cluster.judge()


def test_a_site_that_returns_with_other_rules_is_excluded() -> None:
    cluster = MixedCluster({"A": "abc"}, "", other_knobs("causal"))
    for name in "abc":
        cluster.begin(name)
    cluster.pass_time(1000)
    assert {cluster.figure(name, "sites") for name in "abc"} == {3}
    cluster.crash("c")
    cluster.odd = "c"
    cluster.cut.clear()
    cluster.begin("c")
    cluster.pass_time(1000)
    assert_apart(cluster, "c", "causal")


def test_rules_that_make_no_sense_are_dropped() -> None:
    cluster = Cluster({"A": "ab"})
    cluster.give("a", Received("z", Heartbeat(None, 0, (1, 0), 1, (), "causal=\x1b[31m")))
    assert cluster.figure("a", "ignored") == 1
    assert not [effect for effect in cluster.effects["a"] if isinstance(effect, Disagreed)]


# The knobs


@pytest.mark.parametrize(
    ("knob", "least"),
    [
        ("admission", 1),
        ("requests", 1),
        ("window", 1),
        ("gather_ns", 1),
        ("acknowledge_ns", 0),
        ("suspect_ns", 2 * KNOBS.heartbeat_ns + 1),
    ],
)
def test_knobs_have_bounds(knob: str, least: int) -> None:
    fits: dict[str, Any] = {knob: least}
    does_not: dict[str, Any] = {knob: least - 1}
    dataclasses.replace(KNOBS, **fits)
    with pytest.raises(UsageError):
        dataclasses.replace(KNOBS, **does_not)
