"""Meta-groups whose sites lose their memory: too many at once, all of them, or in the midst of a change."""

import pytest

from antiphon.core.inputs import Suspected
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.pdus import Decided, Install
from antiphon.protocols.metagroups.proposer import LOST_AFTER
from tests.protocols.harness.metagroups_group import Cluster
from tests.protocols.metagroups.test_changes import TWO_TREES, expect_progress, send_all


def test_when_too_many_have_forgotten_the_rest_start_new_sessions() -> None:
    """Two of three lose their memory: as long as the second may come back with it, the third waits."""
    cluster = Cluster({"A": "abc"})
    send_all(cluster)
    cluster.settle()
    cluster.crash("a")
    cluster.crash("b")
    cluster.pass_time(400)
    cluster.restart("a")
    cluster.pass_time(400)
    assert cluster.figure("c", "sites") == 3
    assert cluster.spells("c") == ""
    cluster.restart("b")
    expect_progress(cluster)
    assert cluster.spells("c") == "-+"


def test_an_absent_site_that_completes_the_quorum_is_not_waited_for_without_end() -> None:
    """Of four, the first is away and the last has forgotten: the others give up what they know, together."""
    cluster = Cluster({"A": "abcd"})
    send_all(cluster)
    cluster.settle()
    cluster.cut = {"a"}
    cluster.crash("d")
    cluster.restart("d")
    cluster.pass_time(LOST_AFTER * 300)
    assert [cluster.spells(name) for name in "bc"] == ["", ""]
    cluster.pass_time(1100)
    assert [cluster.spells(name) for name in "bc"] == ["-+", "-+"]
    assert [cluster.figure(name, "sites") for name in "bcd"] == [3, 3, 3]
    cluster.cut = set()
    expect_progress(cluster)


def test_the_smaller_part_of_a_cluster_that_remembers_waits() -> None:
    cluster = Cluster({"A": "abcd"})
    cluster.cut = {"a", "b"}
    cluster.pass_time(5000)
    assert [cluster.spells(name) for name in "cd"] == ["", ""]
    cluster.cut = set()
    expect_progress(cluster)


def test_no_absent_site_is_waited_for_when_all_is_lost() -> None:
    """Three of five have forgotten: no majority can remember, whether or not the fifth comes back."""
    cluster = Cluster({"A": "abcde", "B": "de"})
    send_all(cluster)
    cluster.settle()
    for name in "abce":
        cluster.crash(name)
    for name in "abc":
        cluster.restart(name)
    expect_progress(cluster)
    assert cluster.spells("d") == "-+"
    cluster.restart("e")
    expect_progress(cluster)


def test_of_two_the_second_does_not_remember_enough() -> None:
    """The first may have gone on alone before it crashed; the second may not go on with what it knows."""
    cluster = Cluster({"A": "ab"})
    cluster.cut = {"b"}
    cluster.pass_time(1000)
    cluster.admit("a", "A")
    cluster.settle()
    assert cluster.delivered("a") == ["a0A"]
    cluster.crash("a")
    cluster.cut = {"a"}
    cluster.pass_time(1000)
    assert cluster.figure("b", "sites") == 2
    cluster.restart("a")
    expect_progress(cluster)
    assert cluster.spells("b") == "-+"


def test_all_sites_crash_and_begin_again() -> None:
    cluster = Cluster(TWO_TREES)
    send_all(cluster)
    cluster.settle()
    for name in cluster.names:
        cluster.crash(name)
    for name in cluster.names:
        cluster.restart(name)
    expect_progress(cluster)


def test_what_a_cluster_that_was_given_up_said_is_not_taken_by_the_next() -> None:
    """Both clusters grow alike, version by version; then what was in_parts in the first comes again."""
    cluster = Cluster({"A": "abc"}, begun=False)
    in_parts: list[tuple[str, str, Pdu]] = []

    def note(source: str, target: str, pdu: Pdu) -> bool:
        in_parts.append((source, target, pdu))
        return False

    for name in "abc":
        cluster.begin(name)
    cluster.pass_time(1000)
    cluster.lost = note
    send_all(cluster)
    cluster.pass_time(100)
    for name in "abc":
        cluster.crash(name)
    cluster.lost = lambda _source, _target, _pdu: False
    for name in "abc":
        cluster.restart(name)
    cluster.pass_time(1000)
    before = {name: cluster.delivered(name) for name in "abc"}
    cluster.travelling.extend(each for each in in_parts if hasattr(each[2], "tree"))
    cluster.settle()
    assert {name: cluster.delivered(name) for name in "abc"} == before
    expect_progress(cluster)


def test_a_newcomer_invited_to_a_version_that_is_forgotten_takes_part_in_an_earlier_one() -> None:
    """Only the coordinator knows of a version, asks one who forgot to help make the next, and dies."""
    cluster = Cluster({"A": "abcde"})
    cluster.cut = {"e"}
    cluster.lost = lambda _source, target, pdu: target in "bcd" and isinstance(pdu, Install | Decided)
    cluster.pass_time(600)
    assert [cluster.figure(name, "version") for name in "abcd"] == [2, 1, 1, 1]
    cluster.cut = set()
    cluster.pass_time(200)
    assert cluster.spells("e") == "-"
    cluster.crash("a")
    cluster.lost = lambda _source, _target, _pdu: False
    for name in "bcd":
        cluster.give(name, Suspected("a"))
    expect_progress(cluster)
    assert [cluster.spells(name) for name in "bcde"] == ["", "", "", "-+"]


@pytest.mark.parametrize("away", ["b", "bc"])
def test_two_clusters_meet_after_sites_without_memory_founded_one(away: str) -> None:
    """Those who forgot found a cluster while the others are away, who know the first one and come back."""
    cluster = Cluster({"A": "abcd"})
    send_all(cluster)
    cluster.settle()
    for name in away:
        cluster.depart(name)
    forgetful = [name for name in cluster.names if name not in away]
    for name in forgetful:
        cluster.crash(name)
        cluster.restart(name)
    cluster.pass_time(1000)
    assert {cluster.figure(name, "sites") for name in forgetful} == {len(forgetful)}
    for name in away:
        cluster.come_back(name)
    expect_progress(cluster)
    assert {cluster.figure(name, "sites") for name in cluster.names} == {4}
