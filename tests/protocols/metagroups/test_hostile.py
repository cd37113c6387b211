"""Meta-groups among sites that lie: numbers that leap, forged views, copies that were not asked for."""

import pytest
from msgspec import structs

from antiphon.core.inputs import Received, Start
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.acceptor import LONGEST_LEAP as LONGEST_LEAP_OF_ROUNDS
from antiphon.protocols.metagroups.attempt import Attempt, Outcome, is_vote_for
from antiphon.protocols.metagroups.credible import MOST_REQUESTS, can_follow, is_mostly_known
from antiphon.protocols.metagroups.ending import end_tree
from antiphon.protocols.metagroups.membership import LATEST_VERSION
from antiphon.protocols.metagroups.pdus import (
    Accept,
    Accepted,
    Decision,
    Heartbeat,
    Install,
    Prepare,
    Refuse,
    Report,
    SiteRecord,
    Vote,
)
from antiphon.protocols.metagroups.view import NO_FOUNDER, decide, plan_trees, retire
from tests.protocols.harness.metagroups_group import KNOBS, Cluster
from tests.protocols.harness.staging import pdus
from tests.protocols.metagroups.lying import (
    DECISION,
    LAST,
    RULES,
    all_get_on,
    cluster_of,
    following,
    forged,
    moved,
    view_at,
)

# Decisions that no proposer can have made


def test_what_coordinators_make_can_follow() -> None:
    view = view_at(cluster_of(), "a")
    for decision in (following(view, without="e"), following(view, without="ed"), moved(view)):
        assert can_follow(decision, view, KNOBS)
    (retiring,) = moved(view).retiring
    assert retiring.tree in view.trees


WRONG = (
    "another cluster",
    "a later version",
    "too few stay",
    "others stay",
    "a tree without a name",
    "a name without a tree",
    "two trees with one name",
    "a new tree with an old name",
    "another tree of the same name",
    "a tree that is forgotten",
    "an ending that is forgotten",
    "two endings of one tree",
    "a tree that ends and hands over",
    "a tree that hands over twice",
    "an ending of no tree",
    "other members",
)
"""Listed and not built here: what runs while modules are loaded is slow to mutate."""


def test_all_forged_views_are_listed() -> None:
    assert tuple(forged(view_at(cluster_of(), "a"))) == WRONG


@pytest.mark.parametrize("wrong", WRONG)
def test_what_no_coordinator_makes_cannot_follow(wrong: str) -> None:
    view = view_at(cluster_of(), "a")
    assert not can_follow(forged(view)[wrong], view, KNOBS)


def propose(cluster: Cluster, decision: Decision, to: str = "bcde", *, adopted: bool = False) -> None:
    """a makes this decision, and puts it in force at once."""
    version = view_at(cluster, "b").version + 1
    for name in to:
        cluster.give(name, Received("a", Prepare(RULES, NO_FOUNDER, version, 1, ())))
        cluster.give(name, Received("a", Accept(decision.version, 1, adopted, decision)))
        cluster.give(name, Received("a", Install(RULES, decision)))


@pytest.mark.parametrize("wrong", WRONG)
def test_no_site_accepts_a_forged_view(wrong: str) -> None:
    cluster = cluster_of()
    propose(cluster, forged(view_at(cluster, "b"))[wrong])
    assert {view_at(cluster, name).version for name in "bcde"} == {1}
    assert not any(cluster.spells(name) for name in "bcde")
    cluster.pass_time(1500)
    assert all_get_on(cluster)


def test_a_view_that_follows_is_accepted() -> None:
    cluster = cluster_of()
    propose(cluster, following(view_at(cluster, "b"), without="e"))
    assert {view_at(cluster, name).version for name in "bcd"} == {2}


@pytest.mark.parametrize(
    ("serial", "groups", "accepted"),
    [(0, (), True), (1, ("B",), True), (1, ("A",), False), (2, ("B",), False), (LAST, (), False)],
)
def test_no_site_accepts_a_record_that_it_did_not_request(
    serial: int, groups: tuple[str, ...], accepted: bool
) -> None:
    """With a serial that is too late it could never request for another."""
    cluster = cluster_of()
    view = view_at(cluster, "d")
    records = [
        structs.replace(record, serial=serial, groups=groups) if record.site == "d" else record
        for record in view.decision.records
        if record.site != "e"
    ]
    plan = plan_trees(view, records, (), KNOBS.shape)
    endings = [end_tree(tree, view.members_on(tree), {}) for tree in sorted(plan.ended)]
    decision = decide(NO_FOUNDER, 2, (1, "a"), records, plan, retire(view, plan, ()), endings)
    propose(cluster, decision, "d")
    assert (view_at(cluster, "d").version == 2) == accepted


@pytest.mark.parametrize("adopted", [False, True])
@pytest.mark.parametrize("heard", [None, (6, 9), (7, 0), (7, 1)])
def test_sites_that_were_never_heard_are_not_let_in(heard: tuple[int, int] | None, adopted: bool) -> None:
    cluster = cluster_of()
    records = [SiteRecord(f"z{index}", (7, 0), 1, ("C",)) for index in range(2)]
    view = view_at(cluster, "c")
    plan = plan_trees(view, [*view.decision.records, *records], (), KNOBS.shape)
    decision = decide(NO_FOUNDER, 2, (1, "a"), [*view.decision.records, *records], plan)
    if heard is not None:
        for record in records:
            cluster.give("c", Received(record.site, Heartbeat(None, 0, heard, 1, ("C",), RULES)))
    propose(cluster, decision, "c", adopted=adopted)
    believed = adopted or (heard is not None and heard >= (7, 0))
    assert (view_at(cluster, "c").version == 2) == believed


def test_a_few_may_be_unheard_where_many_are_known() -> None:
    view = view_at(cluster_of(), "a")
    for unheard, fits in ((0, True), (1, True), (2, False)):
        records = [
            *view.decision.records,
            *(SiteRecord(f"z{index}", (7, 0), 1, ()) for index in range(unheard)),
        ]
        decision = structs.replace(view.decision, records=tuple(records))
        assert is_mostly_known(decision, view, lambda _site, _session: False) == fits


def test_a_stranger_makes_no_attempt() -> None:
    cluster = cluster_of()
    for name in "abcde":
        prepare = Prepare(RULES, NO_FOUNDER, 2, 1, tuple(view_at(cluster, name).trees))
        assert pdus(cluster.give(name, Received("z", prepare)), Report) == []
    assert all_get_on(cluster)


# Votes


@pytest.mark.parametrize("wrong", [*WRONG, "a later ballot", "a decision from the future"])
def test_no_coordinator_adopts_a_forged_vote(wrong: str) -> None:
    cluster = cluster_of()
    view = view_at(cluster, "a")
    ballot = (1, "a")
    if wrong == "a later ballot":
        ballot, decision = (2, "a"), following(view, without="de")
    elif wrong == "a decision from the future":
        decision = following(view, without="de", ballot=(2, "a"))
    else:
        decision = forged(view)[wrong]
    vote = Vote(ballot, True, True, decision)
    cluster.crash("e")

    def lie(source: str, target: str, pdu: Pdu) -> bool:
        if source == "d" and isinstance(pdu, Report) and pdu.vote is None:
            cluster.give(target, Received("d", structs.replace(pdu, vote=vote)))
            return True
        return False

    cluster.lost = lie
    cluster.pass_time(1500)
    assert set(view_at(cluster, "a").sessions) == set("abcd")
    assert view_at(cluster, "a").decision != decision


def test_a_vote_that_can_be_meant_is_adopted() -> None:
    cluster = cluster_of()
    decision = following(view_at(cluster, "a"), without="e")
    vote = Vote((1, "a"), True, True, decision)
    cluster.crash("e")

    def tell(source: str, target: str, pdu: Pdu) -> bool:
        if source == "d" and isinstance(pdu, Report) and pdu.vote is None and pdu.version == 2:
            cluster.give(target, Received("d", structs.replace(pdu, vote=vote)))
            return True
        return False

    cluster.lost = tell
    cluster.pass_time(1500)
    assert vote.decision in [pdu.decision for pdu in pdus(cluster.effects["a"], Accept)]


def test_a_decision_is_known_by_all_that_it_says() -> None:
    """Another by the same name is another."""
    decision = following(view_at(cluster_of(), "a"), without="e")
    vote = Vote((1, "a"), False, True, decision)
    assert is_vote_for(vote, decision)
    assert not is_vote_for(vote, structs.replace(decision, endings=()))
    assert not is_vote_for(structs.replace(vote, whole=False), decision)
    assert not is_vote_for(None, decision)


def test_of_two_decisions_of_one_ballot_the_one_that_most_have_accepted_counts() -> None:
    view = view_at(cluster_of(), "a")
    fair = following(view, without="e")
    forgery = structs.replace(fair, endings=())
    attempt = Attempt(view, (2, "a"), "abcd", frozenset(), 0)
    for site in "abcd":
        vote = Vote((1, "a"), True, True, forgery if site == "a" else fair)
        attempt.reports[site] = Report(2, 2, (0, 0), vote, ())
    assert attempt.conclude({}, (), (), KNOBS.shape, view.sessions) is Outcome.DECIDED
    assert attempt.decision == fair


# Seats and spells


@pytest.mark.parametrize(
    ("serial", "groups", "later"), [(1, ("B",), 1), (1, ("A",), 2), (2, ("B",), 3), (0, (), 1)]
)
def test_a_site_requests_again_if_the_view_has_another_record_for_it(
    serial: int, groups: tuple[str, ...], later: int
) -> None:
    """What was adopted may be in force, so that it is accepted whatever it says."""
    cluster = cluster_of()
    view = view_at(cluster, "d")
    records = [
        structs.replace(record, serial=serial, groups=groups) if record.site == "d" else record
        for record in view.decision.records
        if record.site != "e"
    ]
    plan = plan_trees(view, records, (), KNOBS.shape)
    endings = [end_tree(tree, view.members_on(tree), {}) for tree in sorted(plan.ended)]
    decision = decide(NO_FOUNDER, 2, (1, "a"), records, plan, retire(view, plan, ()), endings)
    propose(cluster, decision, "d", adopted=True)
    assert view_at(cluster, "d").version == 2
    assert cluster.members["d"]._member.heartbeat().serial == later


@pytest.mark.parametrize(("site", "before"), [("d", 1), ("z", 0)])
def test_serials_do_not_leap(site: str, before: int) -> None:
    view = view_at(cluster_of(), "a")
    fair = following(view, without="e")
    others = [record for record in fair.records if record.site != site]
    for serial, fits in ((before + MOST_REQUESTS, True), (before + MOST_REQUESTS + 1, False)):
        session, groups = (view.sessions[site], ("B",)) if site == "d" else ((7, 0), ())
        records = (*others, SiteRecord(site, session, serial, groups))
        assert can_follow(structs.replace(fair, records=records), view, KNOBS) == fits


@pytest.mark.parametrize("returning", [False, True])
def test_a_new_site_that_starts_a_new_session_has_missed_something(returning: bool) -> None:
    """A view that it never received may list it, and messages may be for it."""
    cluster = cluster_of()
    cluster.crash("e")
    cluster.incarnations["e"] += 1
    cluster.members["e"] = cluster.build("e")
    cluster.cut.discard("e")
    cluster.effects["e"].clear()
    cluster.give("e", Start(cluster.incarnations["e"], 0, returning=returning))
    cluster.give("e", Received("a", Prepare(RULES, (1, 0, "z"), 5, 1, ())))
    cluster.give("e", Received("b", Prepare(RULES, (0, 0, "z"), 5, 1, ())))
    assert cluster.spells("e") == ("" if returning else "-")
    cluster.pass_time(1500)
    assert cluster.spells("e") == ("+" if returning else "-+")


# Numbers that leap


@pytest.mark.parametrize("leap", [LONGEST_LEAP_OF_ROUNDS, LONGEST_LEAP_OF_ROUNDS + 1, LAST])
def test_rounds_do_not_leap(leap: int) -> None:
    """They climb, so that a site that has missed much catches up."""
    cluster = cluster_of()
    reported = [
        pdus(cluster.give(name, Received("b", Prepare(RULES, NO_FOUNDER, 2, leap, ()))), Report)
        for name in "acde"
    ]
    assert all(bool(found) == (leap == LONGEST_LEAP_OF_ROUNDS) for found in reported)
    cluster.crash("b")
    cluster.pass_time(1500)
    assert set(view_at(cluster, "a").sessions) == set("acde")


def test_a_site_that_missed_many_rounds_catches_up() -> None:
    cluster = cluster_of()
    prepare = Received("a", Prepare(RULES, NO_FOUNDER, 2, 2 * LONGEST_LEAP_OF_ROUNDS, ()))
    assert pdus(cluster.give("b", prepare), Report) == []
    (refusal,) = pdus(
        cluster.give("b", Received("c", Prepare(RULES, NO_FOUNDER, 2, LONGEST_LEAP_OF_ROUNDS - 1, ()))),
        Refuse,
    )
    assert refusal.round == LONGEST_LEAP_OF_ROUNDS
    assert len(pdus(cluster.give("b", prepare), Report)) == 1


@pytest.mark.parametrize("sender", ["d", "z"])
@pytest.mark.parametrize("leap", [0, 1, 1 + LONGEST_LEAP_OF_ROUNDS, LAST])
def test_a_refusal_makes_no_rounds_leap(sender: str, leap: int) -> None:
    cluster = cluster_of()
    cluster.crash("e")
    cluster.lost = lambda _source, _target, pdu: isinstance(pdu, Report)
    while not pdus(cluster.effects["a"], Prepare):
        cluster.pass_time(1)
    cluster.give("a", Received(sender, Refuse(2, leap)))
    cluster.lost = lambda *_: False
    cluster.pass_time(KNOBS.suspect_ns / MILLISECOND_NS / 2)
    assert set(view_at(cluster, "a").sessions) == set("abcd")
    believed = min(leap, LONGEST_LEAP_OF_ROUNDS) if sender == "d" else 0
    assert max(pdu.round for pdu in pdus(cluster.effects["a"], Prepare)) == 1 + believed


@pytest.mark.parametrize(("version", "fits"), [(LATEST_VERSION, True), (LATEST_VERSION + 1, False)])
def test_no_site_is_let_in_by_a_version_that_leaves_no_room(version: int, fits: bool) -> None:
    cluster = cluster_of()
    cluster.crash("e")
    cluster.restart("e")
    effects = cluster.give("e", Received("a", Prepare(RULES, NO_FOUNDER, version, 1, ())))
    assert bool(pdus(effects, Report)) == fits


def test_a_site_without_a_cluster_accepts_what_it_was_invited_to() -> None:
    for origin, version, accepted in ((NO_FOUNDER, 5, True), (NO_FOUNDER, 6, False), ((0, 1, ""), 5, False)):
        cluster = cluster_of()
        cluster.crash("e")
        cluster.restart("e")
        decision = structs.replace(
            DECISION, origin=origin, version=version, records=(SiteRecord("e", (1, 0), 1, ("B",)),)
        )
        cluster.give("e", Received("a", Prepare(RULES, NO_FOUNDER, 5, 1, ())))
        effects = cluster.give("e", Received("a", Accept(version, 1, False, decision)))
        assert bool(pdus(effects, Accepted)) == accepted


def test_a_site_without_an_invitation_accepts_nothing() -> None:
    cluster = cluster_of()
    cluster.crash("e")
    cluster.restart("e")
    decision = structs.replace(DECISION, records=(SiteRecord("e", (1, 0), 1, ("B",)),))
    assert pdus(cluster.give("e", Received("a", Accept(1, 1, False, decision))), Accepted) == []
