"""Meta-groups whose members change: joins and leaves, crashes at every step, clusters that part and meet."""

from collections.abc import Callable
from random import Random

import pytest
from msgspec import structs

from antiphon.core.effects import Send
from antiphon.core.inputs import Departed, Received, Suspected
from antiphon.core.packing import pack
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups import MetaGroupsConfiguration
from antiphon.protocols.metagroups.attempt import CHANGES_FIRST
from antiphon.protocols.metagroups.pdus import (
    Accept,
    AcceptChange,
    Accepted,
    Change,
    Copy,
    Decided,
    Entry,
    Goodbye,
    Heartbeat,
    Install,
    Prepare,
    Refuse,
    Report,
    Request,
    SiteRecord,
    Want,
)
from antiphon.protocols.metagroups.view import apply_change
from tests.protocols.harness.metagroups_group import KNOBS, Cluster
from tests.protocols.harness.staging import pdus

TWO_TREES = {"A": "abcd", "B": "cd", "X": "xyz"}
AGREEING: tuple[type[Pdu], ...] = (
    Prepare,
    Report,
    Accept,
    AcceptChange,
    Accepted,
    Install,
    Decided,
)
FETCHING: tuple[type[Pdu], ...] = (Want, Copy)


def send_all(cluster: Cluster, rounds: int = 1) -> None:
    """Each site multicasts to every group that it can."""
    for _ in range(rounds):
        for name in cluster.names:
            for group in cluster.membership:
                if name not in cluster.cut:
                    cluster.admit(name, group)


def expect_progress(cluster: Cluster) -> None:
    """All present sites deliver what is sent from now on."""
    cluster.pass_time(1200)
    before = {name: len(cluster.delivered(name)) for name in cluster.names}
    send_all(cluster)
    cluster.pass_time(200)
    for name in cluster.names:
        sent = len(cluster.names) - len(cluster.cut)
        groups = sum(name in members for members in cluster.membership.values())
        if name not in cluster.cut:
            assert len(cluster.delivered(name)) - before[name] == sent * groups, name
    cluster.judge()


# Joins and leaves


def test_a_join_takes_effect_at_one_place() -> None:
    """A site that joins delivers what is admitted from then on, in the same order as the others."""
    cluster = Cluster(TWO_TREES)
    send_all(cluster)
    cluster.join("x", "A")
    send_all(cluster)
    cluster.pass_time(100)
    assert cluster.changes("x").index("+A") > 0
    cluster.admit("b", "A")
    cluster.pass_time(100)
    assert cluster.delivered("x")[-1] == cluster.delivered("a")[-1]
    cluster.judge()


def test_a_leave_takes_effect_at_one_place() -> None:
    cluster = Cluster(TWO_TREES)
    send_all(cluster)
    cluster.leave("c", "B")
    cluster.pass_time(100)
    cluster.admit("d", "B")
    cluster.pass_time(100)
    story = cluster.changes("c")
    assert story[:2] == ["+A", "+B"]
    assert "-B" in story
    assert cluster.delivered("c")[-1] != cluster.delivered("d")[-1]
    cluster.judge()


SMOOTH: dict[str, list[tuple[str, str]]] = {
    "no meta-group comes or goes": [("b", "+B")],
    "a leaf comes": [("e", "+N")],
    "a leaf goes": [("c", "-B"), ("d", "-B")],
    "the primary site of all leaves": [("c", "-A")],
    "two trees become one": [("b", "+X")],
    "one tree becomes two": [("c", "-A"), ("d", "-A")],
    "a group loses all members": [("x", "-X"), ("y", "-X"), ("z", "-X")],
}


@pytest.mark.slow
@pytest.mark.parametrize("requests", SMOOTH.values(), ids=SMOOTH.keys())
def test_joins_and_leaves_stop_nothing(requests: list[tuple[str, str]]) -> None:
    """Jia and So, section 6: if no meta-group comes or goes. Here in all cases: no site waits."""
    cluster = Cluster(TWO_TREES | {"A": "abcde", "B": "cd"})
    for _ in range(20):
        send_all(cluster)
        cluster.step()
    for name, request in requests:
        (cluster.join if request[0] == "+" else cluster.leave)(name, request[1])
    while cluster.travelling:
        if cluster.steps % 7 == 0 and cluster.steps < 900:
            send_all(cluster)
        cluster.step()
    cluster.pass_time(500)
    assert all(request in cluster.changes(name) for name, request in requests)
    assert not any(cluster.figure(name, "stops") for name in cluster.names)
    assert not any(
        "agreed on anew" in str(effect) for name in cluster.names for effect in cluster.effects[name]
    )
    assert not any(cluster.figure(name, what) for name in cluster.names for what in ("kept", "waiting"))
    cluster.judge()


def test_a_crash_stops_only_the_tree_concerned() -> None:
    """While A and B are agreed on anew, X goes on; what is meant for A is refused for the time being."""
    cluster = Cluster(TWO_TREES)
    cluster.lost = lambda _source, target, pdu: target == "b" and isinstance(pdu, Accept | AcceptChange)
    cluster.crash("d")
    cluster.give("a", Suspected("d"))
    cluster.pass_time(100)
    assert cluster.figure("a", "stops") == 1
    cluster.admit("a", "A")
    cluster.admit("a", "X")
    cluster.settle()
    assert cluster.refused("a") == 1
    assert cluster.delivered("x") == cluster.delivered("z") == ["a0X"]
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(100)
    assert cluster.figure("a", "sites") == 6
    assert cluster.figure("x", "stops") == 0
    cluster.judge()


def test_several_changes_at_once_are_one() -> None:
    cluster = Cluster(TWO_TREES)
    cluster.join("x", "A")
    cluster.join("a", "B")
    cluster.leave("z", "X")
    cluster.join("z", "N")
    cluster.pass_time(100)
    assert {cluster.figure(name, "version") for name in cluster.names} == {2}
    assert cluster.changes("z") == ["+X", "-X", "+N"]
    send_all(cluster)
    cluster.admit("a", "N")
    cluster.pass_time(100)
    assert cluster.delivered("z") == ["a3N"]
    cluster.judge()


def test_to_join_twice_or_leave_twice_is_no_mistake() -> None:
    cluster = Cluster(TWO_TREES)
    cluster.join("a", "A")
    cluster.leave("a", "X")
    assert cluster.changes("a") == ["+A", "+A", "-X"]


def test_to_leave_before_having_joined_is_answered_too() -> None:
    """In a cluster, where the join is under way, and where no site has heard of the request yet."""
    cluster = Cluster(TWO_TREES)
    cluster.join("a", "X")
    cluster.leave("a", "X")
    cluster.crash("b")
    cluster.restart("b")
    cluster.travelling.clear()
    cluster.leave("b", "A")
    cluster.pass_time(1000)
    assert cluster.changes("a") == ["+A", "-X"]
    assert cluster.changes("b") == ["+A", "-A"]
    cluster.admit("c", "A")
    cluster.pass_time(100)
    assert [cluster.delivered(name) for name in "abcd"] == [["c0A"], [], ["c0A"], ["c0A"]]
    cluster.judge()


@pytest.mark.parametrize("seed", range(8))
def test_members_come_and_go_while_messages_flow(seed: int) -> None:
    """Random joins, leaves and messages on a network that reorders everything."""
    random = Random(seed)
    cluster = Cluster({"A": "abcdef", "B": "cdefg", "C": "ghik"})
    for _ in range(60):
        name = random.choice(cluster.names)
        group = random.choice("ABC")
        random.choice([cluster.admit, cluster.admit, cluster.admit, cluster.join, cluster.leave])(name, group)
        for _ in range(random.randrange(30)):
            if cluster.travelling:
                cluster.travelling.rotate(random.randrange(len(cluster.travelling)))
                cluster.step()
        if random.random() < 0.3:
            cluster.pass_time(15)
    cluster.pass_time(1000)
    cluster.judge()
    assert not any(cluster.figure(name, what) for name in cluster.names for what in ("kept", "waiting"))


# Crashes


def test_the_primary_site_of_a_tree_is_replaced() -> None:
    cluster = Cluster({"A": "bcd", "B": "ab"})
    send_all(cluster)
    cluster.settle()
    cluster.crash("b")
    expect_progress(cluster)


def test_the_coordinator_is_replaced_and_lets_the_old_one_in_again() -> None:
    cluster = Cluster(TWO_TREES)
    cluster.crash("a")
    cluster.pass_time(1000)
    assert {cluster.figure(name, "sites") for name in "bcdxyz"} == {6}
    cluster.restart("a")
    expect_progress(cluster)
    assert cluster.spells("a") == "+"


def test_what_crashed_sites_delivered_is_delivered_by_the_others() -> None:
    """All of <AB> deliver and crash before any other site can: the others deliver it too, first."""
    cluster = Cluster({"A": "abcd", "B": "ab"}, others="efg")
    cluster.lost = lambda _source, target, _pdu: target in "cd" and bool(cluster.delivered("a"))
    cluster.admit("d", "A")
    cluster.settle()
    cluster.admit("c", "A")
    cluster.settle()
    assert cluster.delivered("a") == ["d0A"]
    assert cluster.delivered("c") == cluster.delivered("d") == []
    cluster.crash("a")
    cluster.crash("b")
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(2000)
    assert cluster.delivered("c") == cluster.delivered("d") == ["d0A", "c0A"]
    cluster.judge()


def test_agreed_delivery_loses_what_the_dead_delivered() -> None:
    """The paper's delivery does not survive a crash: one site delivers a message that no other ever does."""
    cluster = Cluster({"A": "abcd"}, MetaGroupsConfiguration(delivery="agreed", acknowledge_ns=0))
    cluster.lost = lambda _source, _target, pdu: isinstance(pdu, Entry)
    cluster.admit("a", "A")
    cluster.settle()
    cluster.crash("a")
    cluster.pass_time(2000)
    assert cluster.delivered("a") == ["a0A"]
    assert all(cluster.delivered(name) == [] for name in "bcd")
    with pytest.raises(AssertionError):
        cluster.judge()


def test_a_view_that_one_site_has_installed_is_installed_by_all() -> None:
    """The coordinator delivers its own message by a decision, crashes, and its heartbeat of it is lost."""
    cluster = Cluster({"A": "abcd", "B": "bc"}, others="efg")
    cluster.crash("b")
    cluster.lost = lambda _source, _target, pdu: isinstance(pdu, Install | Decided)
    cluster.admit("a", "A")
    while not cluster.delivered("a"):
        cluster.pass_time(10)
    assert cluster.delivered("c") == cluster.delivered("d") == []
    cluster.crash("a")
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(1500)
    assert cluster.delivered("c") == cluster.delivered("d") == ["a0A"]
    cluster.judge()


def test_a_stream_ends_only_behind_all_that_comes_from_above() -> None:
    """A sender is gone and its message is late, while the tree hands over: it comes before all new ones."""
    cluster = Cluster({"A": "abcd", "B": "ab"}, others="efgx")
    cluster.lost = lambda _source, target, pdu: (
        target == "c" and isinstance(pdu, Entry) and pdu.tree == (1, 0)
    )
    cluster.admit("x", "A")
    cluster.settle()
    cluster.crash("x")
    cluster.join("e", "A")
    cluster.pass_time(500)
    assert cluster.figure("c", "sites") == 7
    assert cluster.figure("c", "stops") == 0
    cluster.admit("b", "A")
    cluster.pass_time(100)
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(200)
    assert cluster.delivered("a") == cluster.delivered("c") == ["x0A", "b0A"]
    assert cluster.delivered("e") == ["b0A"]
    cluster.judge()


def crash_during_a_change(victim: str, heard: int, kinds: tuple[type[Pdu], ...]) -> tuple[Cluster, bool]:
    """A site crashes after this many PDUs of these kinds, while another change is under way."""
    cluster = Cluster({"A": "abcd", "B": "cde", "C": "ef"})
    send_all(cluster, 2)
    for _ in range(40):
        cluster.step()
    cluster.crash("d")
    left = heard
    crashed = False

    def lost(_source: str, _target: str, pdu: Pdu) -> bool:
        nonlocal left, crashed
        if isinstance(pdu, kinds) and not crashed:
            left -= 1
            if left < 0:
                crashed = True
                cluster.crash(victim)
                return True
        return False

    cluster.lost = lost
    cluster.pass_time(600)
    return cluster, crashed


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["a", "c", "e"])
def test_a_crash_at_every_step_of_a_change(victim: str) -> None:
    """The coordinator, a primary site and another: after each PDU by which sites agree."""
    heard = 0
    while True:
        cluster, crashed = crash_during_a_change(victim, heard, (*AGREEING, *FETCHING))
        expect_progress(cluster)
        cluster.restart(victim)
        cluster.restart("d")
        expect_progress(cluster)
        if not crashed:
            break
        heard += 1
    assert heard >= 20


@pytest.mark.parametrize("kind", [*AGREEING, *FETCHING])
def test_agreement_makes_up_for_losses(kind: type[Pdu]) -> None:
    cluster = Cluster(TWO_TREES)
    cluster.lost = lambda _source, target, pdu: target == "b" and isinstance(pdu, Entry)
    send_all(cluster)
    cluster.settle()
    left = dict.fromkeys(cluster.names, 2)

    def lost(_source: str, target: str, pdu: Pdu) -> bool:
        left[target] -= isinstance(pdu, kind)
        return isinstance(pdu, kind) and left[target] >= 0

    cluster.lost = lost
    cluster.leave("d", "A")
    cluster.pass_time(1000)
    assert "-A" in cluster.changes("d")
    cluster.membership["A"] = ("a", "b", "c")
    expect_progress(cluster)
    assert not any(cluster.spells(name) for name in cluster.names)


# Absences, partitions and those who were left out


def test_a_short_absence_is_waited_for() -> None:
    cluster = Cluster(TWO_TREES)
    cluster.depart("b")
    send_all(cluster)
    cluster.pass_time(100)
    cluster.come_back("b")
    expect_progress(cluster)
    assert cluster.spells("b") == "-+"
    assert cluster.figure("b", "begun_anew") == 0


def test_a_site_that_says_goodbye_is_not_waited_for() -> None:
    cluster = Cluster(TWO_TREES, MetaGroupsConfiguration(says_goodbye=True, acknowledge_ns=0))
    cluster.give("b", Departed())
    cluster.settle()
    cluster.freeze("b")
    cluster.pass_time(40)
    assert cluster.figure("a", "sites") == 6
    cluster.come_back("b")
    expect_progress(cluster)
    assert cluster.spells("b") == "-+-+"


GOODBYES = MetaGroupsConfiguration(says_goodbye=True, acknowledge_ns=0)


def leave(cluster: Cluster, sites: str) -> None:
    """These sites leave for good, all at the same time."""
    for site in sites:
        cluster.give(site, Departed(for_good=True))
    cluster.settle()
    for site in sites:
        cluster.freeze(site)


@pytest.mark.parametrize(
    ("sites", "leavers"), [("ab", "a"), ("ab", "b"), ("abcde", "abc"), ("abcde", "bcde")]
)
def test_sites_that_leave_for_good_are_not_needed_for_a_quorum(sites: str, leavers: str) -> None:
    cluster = Cluster({"A": sites}, GOODBYES)
    leave(cluster, leavers)
    cluster.pass_time(40)
    for site in set(sites) - set(leavers):
        assert cluster.figure(site, "sites") == len(sites) - len(leavers)
        assert cluster.spells(site) == "", "no spell ends"
        assert [name for name in cluster.presence(site) if name[0] == "-"] == [f"-{each}" for each in leavers]


def test_those_who_remain_begin_anew_if_a_majority_leaves_after_a_vote() -> None:
    """What they have accepted may have been installed, so that no view can follow."""
    cluster = Cluster({"A": "abcde"}, GOODBYES)
    for site in "cde":
        cluster.give("a", Received(site, Goodbye((0, 0), for_good=True, version=1, has_voted=True)))
    assert cluster.figure("a", "begun_anew") == 1


def test_a_site_that_has_not_heard_that_others_have_left_does_not_hold_up_the_group() -> None:
    cluster = Cluster({"A": "abcde"}, GOODBYES)
    cluster.lost = lambda _source, target, pdu: target == "b" and isinstance(pdu, Goodbye)
    leave(cluster, "cde")
    cluster.pass_time(2000)
    assert cluster.figure("a", "sites") == cluster.figure("b", "sites") == 2
    cluster.admit("a", "A")
    cluster.admit("b", "A")
    cluster.pass_time(100)
    assert cluster.delivered("a") == cluster.delivered("b")
    assert len(cluster.delivered("a")) == 2


def test_an_excluded_site_starts_a_new_session() -> None:
    """Its spell ends, it is let in again with all its groups, and its numbers go on."""
    cluster = Cluster(TWO_TREES)
    cluster.admit("b", "A")
    cluster.settle()
    cluster.cut = {"b"}
    cluster.pass_time(1000)
    assert cluster.figure("a", "sites") == 6
    cluster.cut = set()
    expect_progress(cluster)
    assert cluster.spells("b") == "-+"
    assert cluster.figure("b", "begun_anew") == 1
    assert "b1A" in cluster.delivered("a")


def test_a_minority_delivers_nothing_and_joins_the_majority_again() -> None:
    cluster = Cluster({"A": "abcde", "B": "ab"})
    apart = {"a", "b"}
    cluster.lost = lambda source, target, _pdu: (source in apart) != (target in apart)
    cluster.admit("a", "B")
    cluster.settle()
    send_all(cluster)
    cluster.pass_time(2000)
    assert cluster.delivered("a") == ["a0B"]
    cluster.admit("c", "A")
    cluster.pass_time(100)
    assert [name[0] for name in cluster.delivered("e")] == ["c", "d", "e", "c"]
    cluster.lost = lambda _source, _target, _pdu: False
    expect_progress(cluster)
    assert cluster.spells("a") == cluster.spells("b") == "-+"


def test_half_of_the_sites_go_on_if_the_first_is_among_them() -> None:
    for survivors, goes_on in (("ab", True), ("cd", False)):
        cluster = Cluster({"A": "abcd"})
        for name in set("abcd") - set(survivors):
            cluster.crash(name)
        cluster.pass_time(2000)
        cluster.admit(survivors[0], "A")
        cluster.pass_time(200)
        assert bool(cluster.delivered(survivors[1])) is goes_on


def test_an_outside_detector_is_believed() -> None:
    cluster = Cluster(TWO_TREES)
    cluster.crash("y")
    cluster.give("a", Suspected("y"))
    cluster.pass_time(40)
    assert cluster.figure("a", "sites") == 6


# Sites that begin alone


def live(groups: dict[str, str], *names: str) -> Cluster:
    cluster = Cluster(groups, begun=False)
    for name in names:
        cluster.begin(name)
    return cluster


def test_the_first_founds_a_cluster_and_others_join_it() -> None:
    cluster = live({"A": "abc", "B": "cd"}, "b")
    cluster.pass_time(500)
    assert cluster.figure("b", "sites") == 1
    assert cluster.spells("b") == "+"
    for name in "acd":
        cluster.begin(name)
    expect_progress(cluster)
    assert {cluster.figure(name, "sites") for name in "abcd"} == {4}
    assert all(cluster.spells(name) == "+" for name in "abcd")


def test_sites_that_begin_together_found_one_cluster() -> None:
    cluster = live({"A": "abc", "B": "cd"}, *"dcba")
    expect_progress(cluster)
    assert all(cluster.spells(name) == "+" for name in "abcd")


def test_two_clusters_that_meet_become_one() -> None:
    cluster = Cluster({"A": "abcd"}, begun=False)
    apart = {"a", "b"}
    cluster.lost = lambda source, target, _pdu: (source in apart) != (target in apart)
    for name in "abcd":
        cluster.begin(name)
    cluster.pass_time(1500)
    send_all(cluster)
    cluster.pass_time(100)
    assert {cluster.figure(name, "sites") for name in "abcd"} == {2}
    cluster.lost = lambda _source, _target, _pdu: False
    expect_progress(cluster)
    assert {cluster.figure(name, "sites") for name in "abcd"} == {4}
    assert [cluster.spells(name) for name in "abcd"] == ["+", "+", "+-+", "+-+"]


def test_a_live_site_joins_groups_of_its_own() -> None:
    cluster = live({"A": "a"}, "a")
    cluster.names = ("a", "b")
    cluster.effects["b"], cluster.admitted["b"], cluster.incarnations["b"] = [], 0, 0
    cluster.begin("b")
    cluster.pass_time(500)
    cluster.join("b", "A")
    cluster.pass_time(100)
    cluster.admit("b", "A")
    cluster.pass_time(50)
    assert cluster.changes("b") == ["+A", "b0"]
    assert cluster.delivered("a") == ["b0A"]


def test_no_site_takes_part_in_an_earlier_attempt() -> None:
    cluster = Cluster(TWO_TREES)
    origin = (0, 0, "")
    cluster.give("x", Received("c", Prepare(KNOBS.rules, origin, 2, 5, ())))
    effects = cluster.give("x", Received("b", Prepare(KNOBS.rules, origin, 2, 4, ())))
    assert effects == [Send("b", Refuse(2, 5))]
    assert pdus(cluster.give("x", Received("d", Prepare(KNOBS.rules, origin, 2, 5, ()))), Report)


def test_requests_of_another_session_are_not_taken() -> None:
    cluster = Cluster({"A": "ab"})
    bodies = pack([b"x"])
    cluster.give("a", Received("b", Request((1, 0), 0, (3, 0), 1, 0, "A", bodies)))
    cluster.settle()
    assert cluster.delivered("a") == []


SLOW: list[Callable[[Cluster], object]] = [
    lambda cluster: cluster.join("x", "A"),
    lambda cluster: cluster.leave("b", "A"),
    lambda cluster: cluster.crash("d"),
]


@pytest.mark.parametrize("change", SLOW)
def test_late_pdus_do_no_harm(change: Callable[[Cluster], object]) -> None:
    """Old PDUs, repeated after everything has changed: no site returns to an earlier state."""
    cluster = Cluster(TWO_TREES)
    heard: list[tuple[str, str, Pdu]] = []

    def note(source: str, target: str, pdu: Pdu) -> bool:
        if isinstance(pdu, (*AGREEING, Heartbeat)):
            heard.append((source, target, pdu))
        return False

    cluster.lost = note
    change(cluster)
    cluster.pass_time(1000)
    cluster.lost = lambda _source, _target, _pdu: False
    version = cluster.figure("c", "version")
    assert version == 2
    cluster.travelling.extend(heard)
    cluster.pass_time(200)
    assert cluster.figure("c", "version") == version
    assert not any(cluster.figure(name, "begun_anew") for name in cluster.names)


# What a change costs


def cluster_of_ten() -> Cluster:
    """All sites have heard one another."""
    cluster = Cluster({"A": "abcdefghij", "B": "abc"})
    cluster.pass_time(120)
    return cluster


def sent_by(cluster: Cluster, kind: type[Pdu]) -> int:
    return sum(len(pdus(cluster.effects[name], kind)) for name in cluster.names)


def test_joins_and_leaves_are_agreed_on_by_differences_and_without_reports() -> None:
    """Where a meta-group comes."""
    cluster = cluster_of_ten()
    cluster.join("d", "C")
    cluster.pass_time(60)
    assert "+C" in cluster.changes("d")
    assert not any(sent_by(cluster, kind) for kind in (Prepare, Report, Accept, Install))
    (proposal,) = pdus(cluster.effects["a"], AcceptChange)
    assert [record.site for record in proposal.change.records] == ["d"]
    assert sent_by(cluster, Accepted) == 9
    cluster.judge()


def test_a_change_that_makes_another_decision_here_is_not_accepted() -> None:
    """The proposer repeats it, and then tells the whole view."""
    cluster = cluster_of_ten()
    spoilt = 0

    def spoil(_source: str, target: str, pdu: Pdu) -> bool:
        nonlocal spoilt
        if target == "e" and isinstance(pdu, AcceptChange):
            spoilt += 1
            cluster.give("e", Received("a", structs.replace(pdu, name=pdu.name ^ 1)))
            return True
        return False

    cluster.lost = spoil
    cluster.join("d", "C")
    cluster.pass_time(20)
    assert "+C" not in cluster.changes("d")
    cluster.pass_time(100)
    assert spoilt == CHANGES_FIRST
    assert "+C" in cluster.changes("d")
    cluster.judge()


def test_only_the_first_site_of_a_view_may_do_without_promises() -> None:
    cluster = cluster_of_ten()
    change = Change((0, "b"), (SiteRecord("d", (0, 0), 2, ("A", "C")),), (), (), (), ())
    view = cluster.members["c"]._member._trees.view
    assert view is not None
    decision = apply_change(view, change, KNOBS.shape)
    assert pdus(cluster.give("c", Received("b", Accept(2, 0, False, decision))), Accepted) == []
    assert len(pdus(cluster.give("c", Received("b", Accept(2, 1, False, decision))), Accepted)) == 1


def test_the_first_site_does_without_promises_only_once() -> None:
    """Its proposal is not accepted by all, and another one follows: that one needs promises."""
    cluster = cluster_of_ten()
    cluster.lost = lambda _source, _target, pdu: isinstance(pdu, Accept | AcceptChange)
    cluster.join("d", "C")
    cluster.pass_time(900)
    proposed = {(pdu.version, pdu.round): pdu for pdu in pdus(cluster.effects["a"], AcceptChange)}
    first = {pdu.change for key, pdu in proposed.items() if key == (2, 0)}
    assert len(first) == 1
    assert max(round_ for version, round_ in proposed if version == 2) > 0
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(900)
    assert "+C" in cluster.changes("d")
    cluster.judge()


def test_a_site_that_accepted_something_else_asks_what_was_decided() -> None:
    cluster = cluster_of_ten()
    effects = cluster.give("c", Received("a", Decided((0, 0, ""), 2, 1)))
    assert len(pdus(effects, Heartbeat)) == 1
    assert cluster.figure("c", "version") == 1
