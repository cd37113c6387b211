"""Checks of what peers send, one by one: each test fails without the check that it is about."""

import pytest
from msgspec import structs

from antiphon.core.effects import Appeared, Effect, Multicast, Send, Stable, Vanished
from antiphon.core.ids import Site
from antiphon.core.inputs import Received, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups import MetaGroupsConfiguration, granting
from antiphon.protocols.metagroups.attempt import Attempt, Outcome
from antiphon.protocols.metagroups.bodies import Bodies
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.credible import is_mostly_known
from antiphon.protocols.metagroups.granting import Granter
from antiphon.protocols.metagroups.ledger import Ledger
from antiphon.protocols.metagroups.parts import decision_name
from antiphon.protocols.metagroups.pdus import (
    FINISHED,
    Accept,
    AcceptChange,
    Accepted,
    AskMoves,
    Body,
    Change,
    Copy,
    Decided,
    Ending,
    Entry,
    Goodbye,
    Heartbeat,
    Held,
    Install,
    Item,
    Mark,
    Moves,
    Prepare,
    Progress,
    Query,
    Report,
    Request,
    Session,
    SiteRecord,
    Taken,
    Vote,
    Want,
)
from antiphon.protocols.metagroups.peers import PeerTable
from antiphon.protocols.metagroups.proposer import LOST_AFTER
from antiphon.protocols.metagroups.stream import Stream
from antiphon.protocols.metagroups.view import NO_FOUNDER
from tests.protocols.harness.metagroups_group import KNOBS, Cluster
from tests.protocols.harness.staging import pdus
from tests.protocols.metagroups.lying import RULES, SUSPECT_MS, cluster_of, following, view_at


def newcomer(cluster: Cluster) -> None:
    """Site e loses its memory, and has heard of no cluster yet."""
    cluster.crash("e")
    cluster.restart("e")


# Membership


def test_a_goodbye_counts_only_in_the_session_of_the_view() -> None:
    cluster = cluster_of()
    cluster.give("a", Received("e", Goodbye((0, 1))))
    cluster.pass_time(100)
    assert cluster.figure("a", "attempts") == cluster.figure("a", "stops") == 0
    cluster.give("a", Received("e", Goodbye((0, 0))))
    cluster.pass_time(100)
    assert cluster.figure("a", "attempts") > 0


@pytest.mark.parametrize(
    ("version", "has_voted", "begun_anew"),
    [
        pytest.param(1, False, 0, id="without a vote"),
        pytest.param(1, True, 1, id="after a vote"),
        pytest.param(0, False, 1, id="in an earlier view"),
        pytest.param(2, False, 1, id="in a later view"),
    ],
)
def test_those_who_remain_go_on_only_if_the_majority_left_the_same_view_without_a_vote(
    version: int, has_voted: bool, begun_anew: int
) -> None:
    cluster = cluster_of()
    for site in "cde":
        goodbye = Goodbye((0, 0), for_good=True, version=version, has_voted=has_voted)
        cluster.give("a", Received(site, goodbye))
    assert cluster.figure("a", "begun_anew") == begun_anew


def test_a_goodbye_means_nothing_to_a_site_without_a_cluster() -> None:
    cluster = cluster_of()
    newcomer(cluster)
    cluster.give("e", Received("a", Goodbye((0, 0))))
    assert cluster.figure("e", "ignored") == 0


def founded(name: Site, rival: Site) -> bool:
    """Whether a site founds a cluster while another one without a cluster sends heartbeats."""
    cluster = Cluster({"A": "ab"}, begun=False)
    cluster.begin(name)
    cluster.cut = {rival}
    for _ in range(2 * KNOBS.found_ns // KNOBS.heartbeat_ns):
        cluster.give(name, Received(rival, Heartbeat(None, 0, (1, 0), 1, (), RULES)))
        cluster.pass_time(KNOBS.heartbeat_ns / MILLISECOND_NS)
    return cluster.figure(name, "sites") == 1


def test_of_two_sites_without_a_cluster_the_first_by_name_founds_one() -> None:
    assert founded("a", "b")
    assert not founded("b", "a")


def sessions_reported(cluster: Cluster, *prepares: tuple[tuple[int, int, str], int, int]) -> list[Session]:
    """The sessions in which site e takes part in attempts by origin, version and round."""
    return [
        report.session
        for origin, version, round_ in prepares
        for report in pdus(
            cluster.give("e", Received("a", Prepare(RULES, origin, version, round_, ()))), Report
        )
    ]


def test_a_newcomer_stays_in_its_session_while_one_cluster_invites_it() -> None:
    """The same attempt again, a later round and a later version of one cluster."""
    cluster = cluster_of()
    newcomer(cluster)
    prepares = [((1, 0, "z"), version, round_) for version, round_ in ((5, 1), (5, 1), (5, 2), (6, 1))]
    assert sessions_reported(cluster, *prepares) == [(1, 0)] * 4


def test_an_older_cluster_calls_a_newcomer_away_and_a_younger_one_only_after_silence() -> None:
    cluster = cluster_of()
    newcomer(cluster)
    younger, older = ((1, 0, "z"), 5, 1), (NO_FOUNDER, 1, 1)
    assert sessions_reported(cluster, younger, older) == [(1, 0), (1, 1)]
    cluster.now += KNOBS.suspect_ns - 1
    assert sessions_reported(cluster, younger) == []
    cluster.now += 1
    assert sessions_reported(cluster, younger) == [(1, 2)]


def test_every_view_after_the_first_is_a_change() -> None:
    cluster = cluster_of()
    assert cluster.figure("a", "changes") == 0
    cluster.crash("e")
    cluster.pass_time(1500)
    assert (cluster.figure("a", "version"), cluster.figure("a", "changes")) == (2, 1)


def test_a_new_view_tells_which_sites_have_come_and_gone_and_no_others() -> None:
    cluster = cluster_of()

    def told(kind: type[Appeared | Vanished]) -> list[Site]:
        return [effect.site for effect in cluster.effects["a"] if isinstance(effect, kind)]

    assert (told(Appeared), told(Vanished)) == ([*"bcde"], [])
    cluster.crash("e")
    cluster.pass_time(1500)
    assert (told(Appeared), told(Vanished)) == ([*"bcde"], ["e"])


@pytest.mark.parametrize(
    ("for_good", "reason"),
    [
        pytest.param(True, "It left.", id="for good"),
        pytest.param(False, "It was silent, or has begun anew.", id="for a while"),
    ],
)
def test_the_application_is_told_why_a_site_has_gone(for_good: bool, reason: str) -> None:
    cluster = cluster_of()
    cluster.crash("e")
    for name in "abcd":
        goodbye = Goodbye((0, 0), for_good=for_good, version=1, has_voted=False)
        cluster.give(name, Received("e", goodbye))
    cluster.pass_time(1500)
    for name in "abcd":
        gone = [effect for effect in cluster.effects[name] if isinstance(effect, Vanished)]
        assert gone == [Vanished("e", reason)]


def test_views_that_are_over_end_no_session_however_often_they_come() -> None:
    cluster = cluster_of()
    before = view_at(cluster, "a").decision
    cluster.crash("e")
    cluster.pass_time(1500)
    current = view_at(cluster, "a").decision
    assert (before.version, current.version) == (1, 2)
    for decision in (before, current):
        for _ in range(3):
            cluster.give("b", Received("a", Install(RULES, decision)))
            cluster.now += KNOBS.heartbeat_ns
    assert cluster.spells("b") == ""


@pytest.mark.parametrize(
    ("version", "answers"),
    [
        pytest.param(0, [Install], id="over for long"),
        pytest.param(1, [Install], id="the present one"),
        pytest.param(2, [Report], id="the next one"),
        pytest.param(3, [Heartbeat], id="after the next one"),
    ],
)
def test_an_attempt_at_another_version_is_answered_with_what_its_sender_lacks_or_is_ahead_of(
    version: int, answers: list[type[Pdu]]
) -> None:
    cluster = cluster_of()
    found = cluster.give("b", Received("a", Prepare(RULES, NO_FOUNDER, version, 1, ())))
    assert [type(effect.pdu) for effect in found if isinstance(effect, Send)] == answers


def test_a_copy_for_an_ending_is_the_batch_that_the_ending_names() -> None:
    cluster = cluster_of()
    view = view_at(cluster, "c")
    (tree,) = view.trees
    decision = following(view, without="e")
    ending = structs.replace(decision.endings[0], items=(Item("b", 0, 1, "A"),), sources=("b",))
    decision = structs.replace(decision, endings=(ending,))
    cluster.give("c", Received("a", Prepare(RULES, NO_FOUNDER, 2, 1, (tree,))))
    cluster.give("c", Received("a", Accept(2, 1, False, decision)))
    copy = Copy(tree, "b", 0, 0, "A", pack([b"x"]))
    wrong: list[tuple[Site, Pdu]] = [
        ("d", copy),
        ("b", structs.replace(copy, bodies=pack([b"x", b"y"]))),
        ("b", structs.replace(copy, group="B")),
        ("b", structs.replace(copy, number=1)),
    ]
    for source, pdu in wrong:
        assert pdus(cluster.give("c", Received(source, pdu)), Accepted) == []
    assert len(pdus(cluster.give("c", Received("b", copy)), Accepted)) == 1


def test_batches_that_a_decision_needs_are_asked_for_until_they_come() -> None:
    cluster = cluster_of()
    (tree,) = view_at(cluster, "c").trees
    decision = following(view_at(cluster, "c"), without="e")
    ending = structs.replace(decision.endings[0], items=(Item("b", 0, 1, "A"),), sources=("b",))
    cluster.give("c", Received("a", Prepare(RULES, NO_FOUNDER, 2, 1, (tree,))))
    cluster.lost = lambda *_: True
    cluster.give("c", Received("a", Accept(2, 1, False, structs.replace(decision, endings=(ending,)))))
    cluster.pass_time(3.5 * KNOBS.repair_ns / MILLISECOND_NS)
    assert len(pdus(cluster.effects["c"], Want)) == 4


def test_an_acceptance_counts_only_after_a_decision_and_of_a_site_that_reported() -> None:
    cluster = cluster_of()
    cluster.lost = lambda source, _, pdu: source == "c" and isinstance(pdu, Report)
    cluster.crash("e")
    cluster.pass_time(SUSPECT_MS + 100)
    round_ = pdus(cluster.effects["a"], Prepare)[-1].round
    assert not pdus(cluster.effects["a"], AcceptChange)
    cluster.give("a", Received("b", Accepted(2, round_, (0, 0))))
    cluster.lost = lambda _source, _target, pdu: isinstance(pdu, Accepted)
    cluster.pass_time(50)
    round_ = pdus(cluster.effects["a"], AcceptChange)[-1].round
    cluster.give("a", Received("z", Accepted(2, round_, (0, 0))))
    assert view_at(cluster, "a").version == 1
    cluster.lost = lambda *_: False
    cluster.pass_time(100)
    assert view_at(cluster, "a").version == 2


@pytest.mark.parametrize(
    ("site", "session", "counts"),
    [
        pytest.param("b", (0, 0), True, id="its own"),
        pytest.param("c", (0, 0), False, id="of another site"),
        pytest.param("b", (0, 1), False, id="of another session"),
    ],
)
def test_a_site_reports_the_groups_that_it_wants_for_itself_alone(
    site: Site, session: Session, counts: bool
) -> None:
    cluster = cluster_of()
    cluster.lost = lambda _source, _target, pdu: isinstance(pdu, Report)
    cluster.crash("e")
    cluster.pass_time(SUSPECT_MS + 100)
    round_ = pdus(cluster.effects["a"], Prepare)[-1].round
    told = Report(2, round_, (0, 0), None, (), record=SiteRecord(site, session, 9, ("Z",)))
    cluster.give("a", Received("b", told))
    attempt = cluster.members["a"]._member._membership._proposer._attempt
    assert attempt is not None
    assert attempt.reports["b"].record == (told.record if counts else None)


def test_a_new_view_forgets_strangers_and_keeps_its_sites_and_newcomers() -> None:
    view = view_at(cluster_of(), "a")
    peers = PeerTable("a", KNOBS.suspect_ns)
    for site, incarnation in (("b", 3), ("y", 4), ("z", 7)):
        peers.on_message(1, site, (incarnation, 0))
    assert peers.on_request("z", Heartbeat(None, 0, (7, 0), 1, ("A",), RULES), view)
    peers.on_view(2, view)
    assert [peers.last_heard_ns(site) for site in "byz"] == [1, None, 1]
    assert [peers.incarnation_of(site) for site in "byz"] == [3, 0, 7]


def test_a_cluster_is_given_up_only_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    proposer = cluster_of().members["a"]._member._membership._proposer
    given_up: list[int] = []
    monkeypatch.setattr(proposer._host, "give_up", given_up.append)
    attempt = Attempt(view_at(cluster_of(), "a"), (1, "a"), (), frozenset(), 0)
    monkeypatch.setattr(attempt, "conclude", lambda *_: Outcome.LOST)
    time_ns = LOST_AFTER * KNOBS.suspect_ns
    for now in (time_ns, time_ns + 1):
        proposer._conclude(now, attempt)
    assert given_up == [time_ns + 1]


def test_a_site_that_was_heard_at_a_time_was_not_heard_since_then() -> None:
    view = view_at(cluster_of(), "a")
    peers = PeerTable("a", KNOBS.suspect_ns)
    for site in "bcd":
        peers.on_message(5, site)
    assert not peers.heard_all(view, 4)
    peers.on_message(5, "e")
    assert peers.heard_all(view, 4)
    assert not peers.heard_all(view, 5)


@pytest.mark.parametrize(("staying", "is_known"), [("abcde", True), ("abcd", False)])
def test_more_than_four_sites_are_known_for_each_that_is_not(staying: str, is_known: bool) -> None:
    view = view_at(cluster_of(), "a")
    records = tuple(record for record in view.decision.records if record.site in staying)
    unheard = SiteRecord("z", (7, 0), 1, ("A",))
    decision = structs.replace(view.decision, records=(*records, unheard))
    assert is_mostly_known(decision, view, lambda *_: False) == is_known
    assert is_mostly_known(decision, view, lambda site, _: site == "z")


# Requests


def accepted(cluster: Cluster, sender: Site, pdu: Pdu) -> list[int]:
    """What site a, the primary site of group A, acknowledges at once on a PDU."""
    return [taken.accepted for taken in pdus(cluster.give("a", Received(sender, pdu)), Taken)]


def request(seq: int) -> Request:
    return Request((1, 0), 0, (0, 0), seq, seq - 1, "A", pack([b"x"]))


def test_a_request_that_comes_again_is_acknowledged_again() -> None:
    cluster = Cluster({"A": "ab"})
    assert [accepted(cluster, "b", request(1)) for _ in range(3)] == [[1], [1], [1]]


@pytest.mark.parametrize(
    ("sender", "session", "found"),
    [("b", (0, 0), [1]), ("b", (0, 1), []), ("z", (0, 0), []), ("z", (9, 9), [])],
    ids=["of a site of the view", "of another session", "of no site", "of no session"],
)
def test_only_requests_of_the_sites_of_the_view_are_taken(
    sender: Site, session: Session, found: list[int]
) -> None:
    cluster = Cluster({"A": "ab"})
    assert accepted(cluster, sender, structs.replace(request(1), session=session)) == found


def test_as_many_requests_may_be_early_as_a_sender_may_have_under_way() -> None:
    cluster = Cluster({"A": "ab"}, MetaGroupsConfiguration(acknowledge_ns=0, admission=3))
    found = [accepted(cluster, "b", request(seq)) for seq in (4, 3, 2, 1)]
    assert found[-1] == [3]


def test_a_query_is_answered_by_the_primary_site_to_the_sender_of_requests() -> None:
    cluster = Cluster({"A": "abc"})
    accepted(cluster, "b", request(1))
    query = Query((1, 0), 0, (0, 0))
    assert accepted(cluster, "b", query) == [1]
    assert accepted(cluster, "b", structs.replace(query, session=(0, 1))) == []
    assert accepted(cluster, "b", structs.replace(query, node=1)) == []
    assert accepted(cluster, "c", query) == []
    assert pdus(cluster.give("c", Received("b", query)), Taken) == []


def test_an_earlier_session_makes_no_request_of_a_later_one_stable() -> None:
    """Site x is on no tree, so the tree goes on when x restarts."""
    cluster = Cluster({"A": "ab"}, others="x")
    reachable = 0
    cluster.lost = lambda _, target, pdu: target == "b" and isinstance(pdu, Entry) and pdu.seq > reachable
    for _ in range(2):
        cluster.admit("x", "A")
    cluster.pass_time(100)
    cluster.crash("x")
    cluster.restart("x")
    cluster.pass_time(1500)
    cluster.admit("x", "A")
    cluster.pass_time(100)
    reachable = 2
    cluster.pass_time(100)
    assert cluster.delivered("b") == ["x0A", "x1A"]
    found = [taken for taken in pdus(cluster.effects["a"], Taken) if taken.session == (1, 0)]
    assert {(taken.accepted, taken.stable) for taken in found} == {(1, 0)}
    reachable = 3
    cluster.pass_time(100)
    assert cluster.delivered("b") == ["x0A", "x1A", "x2A"]


def test_a_primary_site_has_the_bodies_that_it_has_ordered_while_others_are_missing() -> None:
    """Its own stream waits for the body of a token from above, so it does not hold what comes behind."""
    cluster = Cluster(
        {"A": "ab", "B": "bc", "C": "cd"}, MetaGroupsConfiguration(acknowledge_ns=0, bodies="direct")
    )
    cluster.pass_time(200)
    tree = view_at(cluster, "a").tree_to("C")
    assert tree is not None
    assert [tree.nodes[tree.entry[group]].primary for group in "BC"] == ["b", "c"]
    cluster.lost = lambda _, target, pdu: target == "c" and isinstance(pdu, Body | Copy) and pdu.group == "B"
    cluster.admit("a", "B")
    cluster.settle()
    cluster.admit("d", "C")
    cluster.settle()
    assert cluster.delivered("c") == []
    assert len(pdus(cluster.give("c", Received("d", Want(tree.id, (("d", 0),)))), Copy)) == 1


def test_only_the_primary_site_makes_requests_stable_and_only_those_that_were_sent() -> None:
    cluster = Cluster({"A": "abc"})
    cluster.lost = lambda *_: True
    cluster.admit("b", "A")
    taken = Taken((1, 0), 0, (0, 0), 1, 1)
    wrong = {
        "of another site": ("c", taken),
        "of a node that does not exist": ("a", structs.replace(taken, node=1)),
        "of requests that were not sent": ("a", structs.replace(taken, accepted=2)),
    }
    for sender, pdu in wrong.values():
        assert not any(isinstance(each, Stable) for each in cluster.give("b", Received(sender, pdu)))
    assert cluster.figure("b", "ignored") == len(wrong)
    assert any(isinstance(each, Stable) for each in cluster.give("b", Received("a", taken)))


def test_what_was_not_sent_yet_is_not_made_stable() -> None:
    """In causal order site c keeps its third batch back until the second, to another tree, is stable."""
    cluster = Cluster({"A": "ab", "X": "xy"}, MetaGroupsConfiguration(acknowledge_ns=0, causal=True), "c")
    cluster.lost = lambda *_: True
    for group in "AXA":
        cluster.admit("c", group)
    found = cluster.give("c", Received("a", Taken((1, 0), 0, (0, 0), 1, 1)))
    assert [effect.number for effect in found if isinstance(effect, Stable)] == [0]


# Trees


def undelivered() -> Cluster:
    """All hold a batch of site a, and none knows that: so none delivers it."""
    cluster = cluster_of()
    cluster.lost = lambda _source, _target, pdu: isinstance(pdu, Held)
    cluster.admit("a", "A")
    cluster.settle()
    return cluster


def test_a_site_gives_what_it_holds_and_others_lack() -> None:
    cluster = undelivered()
    (tree,) = view_at(cluster, "b").trees
    found = pdus(cluster.give("b", Received("c", Want(tree, (("a", 0), ("a", 1), ("c", 0))))), Copy)
    assert [(copy.sender, copy.number, copy.group) for copy in found] == [("a", 0, "A")]


@pytest.mark.parametrize(("group", "delivered"), [("A", ["a0A"]), ("B", [])])
def test_an_ending_delivers_what_it_names_where_that_is_for_the_site(
    group: str, delivered: list[str]
) -> None:
    cluster = undelivered()
    (tree,) = view_at(cluster, "b").trees
    cluster.members["b"]._member._trees.end([Ending(tree, (Item("a", 0, 1, group),), ("a",), 1)])
    cluster.give("b", TimerFired("nothing"))
    assert cluster.delivered("b") == delivered


@pytest.mark.parametrize(("sender", "is_stable"), [("a", True), ("c", False)])
def test_an_ending_makes_own_batches_stable_that_it_names(sender: Site, is_stable: bool) -> None:
    cluster = undelivered()
    (tree,) = view_at(cluster, "a").trees
    cluster.members["a"]._member._trees.end([Ending(tree, (Item(sender, 0, 1, "A"),), (sender,), 1)])
    found = cluster.give("a", TimerFired("nothing"))
    stable = [(each.sender, each.number) for each in found if isinstance(each, Stable)]
    assert (("a", 0) in stable) == is_stable


@pytest.mark.parametrize(("sites", "others"), [("ab", []), ("abc", [("b", "c")])])
def test_a_site_that_repeats_itself_is_answered_and_all_are_told_later_unless_it_is_the_only_one(
    sites: str, others: list[tuple[Site, ...]]
) -> None:
    cluster = Cluster({"A": sites})
    cluster.admit("a", "A")
    cluster.settle()
    for site in sites[1:]:
        held = structs.replace(pdus(cluster.effects[site], Held)[-1], done=1)
        cluster.give("a", Received(site, held))
    assert [mark.settled for mark in pdus(cluster.give("a", Received("b", held)), Mark)] == [1]
    before = len(cluster.effects["a"])
    cluster.pass_time(2 * KNOBS.repair_ns / MILLISECOND_NS)
    later = [each for each in cluster.effects["a"][before:] if isinstance(each, Multicast)]
    assert [each.to for each in later if isinstance(each.pdu, Mark)] == others


def test_progress_counts_only_on_retiring_trees() -> None:
    cluster = Cluster({"A": "bc"}, others="a")
    cluster.pass_time(200)
    for name in "bc":
        cluster.give(name, Received("a", Progress((((1, 0), FINISHED),))))
    cluster.admit("c", "A")
    cluster.pass_time(100)
    assert cluster.delivered("b") == cluster.delivered("c") == ["c0A"]


@pytest.mark.parametrize(
    ("sender", "safe", "is_told"),
    [
        pytest.param("b", True, True, id="of another"),
        pytest.param("a", True, False, id="its own"),
        pytest.param("b", False, False, id="not safe"),
        pytest.param("a", False, False, id="its own and not safe"),
    ],
)
def test_what_is_delivered_safely_is_stable(sender: Site, safe: bool, is_told: bool) -> None:
    """A sender is told by the primary site, in its group or not."""
    effects: list[Effect] = []
    Ledger("a", effects, safe=safe).deliver(Batch(sender, 0, 0, 1, "A", pack([b"x"])))
    assert any(isinstance(effect, Stable) for effect in effects) == is_told


def test_names_of_settled_batches_are_forgotten() -> None:
    effects: list[Effect] = []
    stream = Stream(Ledger("a", effects, safe=True), Bodies(4), effects, safe=True)
    stream.open()
    for number in range(3):
        stream.put(Batch("b", 0, number, 1, "A", pack([b"x"])))
    stream.on_mark(3, 2)
    assert [item.number for item in stream.names()] == [2]


def test_a_site_without_a_cluster_answers_no_questions_about_one() -> None:
    cluster = cluster_of()
    decision = view_at(cluster, "a").decision
    newcomer(cluster)
    before = len(cluster.effects["e"])
    change = Change((1, "a"), (), (), (), (), ())
    for pdu in (
        AskMoves(decision.origin, decision.version, 0),
        AcceptChange(decision.version + 1, 1, decision_name(decision), change),
    ):
        cluster.give("e", Received("a", pdu))
    assert pdus(cluster.effects["e"][before:], Moves) == []
    assert pdus(cluster.effects["e"][before:], Accepted) == []


def test_only_a_decision_after_the_view_is_asked_for() -> None:
    cluster = cluster_of()
    decision = view_at(cluster, "b").decision

    def asks(version: int) -> bool:
        before = len(cluster.effects["b"])
        cluster.give("b", Received("a", Decided(decision.origin, version, decision_name(decision))))
        return bool(pdus(cluster.effects["b"][before:], Heartbeat))

    assert not asks(decision.version - 1)
    assert not asks(decision.version)
    assert asks(decision.version + 1)


def test_a_vote_is_of_a_round_that_was_and_of_no_later_decision() -> None:
    cluster = cluster_of()
    proposer = cluster.members["a"]._member._membership._proposer
    view = view_at(cluster, "a")
    proposer._rounds = 3

    def is_credible(ballot: tuple[int, str], decided: tuple[int, str]) -> bool:
        decision = following(view, without="e", ballot=decided)
        return proposer._is_credible(Vote(ballot, True, True, decision))

    assert is_credible((3, "a"), (3, "a"))
    assert not is_credible((4, "a"), (3, "a"))
    assert not is_credible((2, "a"), (3, "a"))


# Moves


def moving() -> tuple[Cluster, Granter, Heartbeat]:
    """The first site of a view, and the wish of site e, which alters no tree."""
    cluster = Cluster({"A": "bcdefgh", "B": "bcij", "X": "axyz"})
    cluster.pass_time(120)
    record = view_at(cluster, "a").records["e"]
    wish = Heartbeat(None, 1, record.session, record.serial + 1, ("A", "B"), RULES)
    return cluster, cluster.members["a"]._member._membership._granter, wish


def test_a_wish_is_granted_once_to_a_site_of_the_view_while_nothing_else_changes() -> None:
    cluster, granter, wish = moving()
    view = view_at(cluster, "a")

    def grants(sender: Site, pdu: Heartbeat, *, is_free: bool = True) -> bool:
        return granter.on_request(0, sender, pdu, view, is_free=is_free) is not None

    assert not grants("e", wish, is_free=False)
    assert not grants("q", wish)
    assert not grants("e", structs.replace(wish, session=(wish.session[0], wish.session[1] + 1)))
    assert not grants("e", structs.replace(wish, serial=wish.serial - 1))
    assert grants("e", wish)
    assert not grants("e", wish)


def test_the_moves_of_one_view_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, granter, wish = moving()
    view = view_at(cluster, "a")
    monkeypatch.setattr(granting, "MOST_MOVES", 1)
    assert granter.on_request(0, "e", wish, view, is_free=True) is not None
    other = structs.replace(wish, session=view.records["f"].session)
    assert granter.on_request(0, "f", other, view, is_free=True) is None


@pytest.mark.parametrize("busy", ["acceptor", "proposer", "trees", "requests", "overdue"])
def test_nothing_is_granted_while_the_view_may_change(busy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, granter, wish = moving()
    member = cluster.members["a"]._member
    service, seen = member._membership, []
    monkeypatch.setattr(granter, "on_request", lambda *_, is_free: seen.append(is_free))
    if busy in ("acceptor", "proposer"):
        name = "is_bound" if busy == "acceptor" else "is_busy"
        kind = type(getattr(service, f"_{busy}"))
        monkeypatch.setattr(kind, name, property(lambda _: True))
    elif busy == "trees":
        member._trees.stopped.add((1, 0))
    elif busy == "requests":
        monkeypatch.setattr(type(member._peers), "requests", {"f": view_at(cluster, "a").records["f"]})
    else:
        monkeypatch.setattr(granter, "overdue", lambda _now: True)
    service._is_change(0, "e", wish, view_at(cluster, "a"))
    assert seen == [False]


def test_a_stream_that_ends_takes_its_last_entry_and_no_later_one() -> None:
    cluster = cluster_of()
    cluster.admit("a", "A")
    found: list[bool] = []

    def at_the_end(source: str, target: str, pdu: Pdu) -> bool:
        if isinstance(pdu, Entry) and not found:
            endpoint = cluster.members[target]._member._trees._endpoints[pdu.tree]
            if endpoint.server is not None:
                return False
            (strand,) = endpoint._strands
            for end in (pdu.seq - 1, pdu.seq):
                strand.end = end
                found.append(endpoint.on_entry(cluster.now, source, pdu))
        return False

    cluster.lost = at_the_end
    cluster.pass_time(100)
    assert found == [False, True]
