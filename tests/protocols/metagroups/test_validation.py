"""Checks of what peers send, one by one: each test fails without the check that it is about."""

from msgspec import structs

from antiphon.core.effects import Effect, Stable
from antiphon.core.ids import Site
from antiphon.core.inputs import Received
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups import MetaGroupsConfiguration
from antiphon.protocols.metagroups.bodies import Bodies
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.ledger import Ledger
from antiphon.protocols.metagroups.pdus import (
    FINISHED,
    Accept,
    AcceptChange,
    Accepted,
    Body,
    Copy,
    Entry,
    Goodbye,
    Heartbeat,
    Install,
    Item,
    Prepare,
    Progress,
    Query,
    Report,
    Request,
    Session,
    Taken,
    Want,
)
from antiphon.protocols.metagroups.peers import PeerTable
from antiphon.protocols.metagroups.stream import Stream
from antiphon.protocols.metagroups.view import NO_FOUNDER
from tests.protocols.harness.metagroups_group import KNOBS, Cluster
from tests.protocols.harness.staging import pdus
from tests.protocols.metagroups.test_hostile import RULES, SUSPECT_MS, cluster_of, following, view_at


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


def test_a_new_view_forgets_strangers_and_keeps_its_sites_and_newcomers() -> None:
    view = view_at(cluster_of(), "a")
    peers = PeerTable("a", KNOBS.suspect_ns)
    for site, incarnation in (("b", 3), ("y", 4), ("z", 7)):
        peers.on_message(1, site, (incarnation, 0))
    assert peers.on_request("z", Heartbeat(None, 0, (7, 0), 1, ("A",), RULES), view)
    peers.on_view(2, view)
    assert [peers.last_heard_ns(site) for site in "byz"] == [1, None, 1]
    assert [peers.incarnation_of(site) for site in "byz"] == [3, 0, 7]


# Requests


def accepted(cluster: Cluster, sender: Site, pdu: Pdu) -> list[int]:
    """What site a, the primary site of group A, acknowledges at once on a PDU."""
    return [taken.accepted for taken in pdus(cluster.give("a", Received(sender, pdu)), Taken)]


def request(seq: int) -> Request:
    return Request((1, 0), 0, (0, 0), seq, seq - 1, "A", pack([b"x"]))


def test_a_request_that_comes_again_is_acknowledged_again() -> None:
    cluster = Cluster({"A": "ab"})
    assert [accepted(cluster, "b", request(1)) for _ in range(3)] == [[1], [1], [1]]


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


# Trees


def test_progress_counts_only_on_retiring_trees() -> None:
    cluster = Cluster({"A": "bc"}, others="a")
    cluster.pass_time(200)
    for name in "bc":
        cluster.give(name, Received("a", Progress((((1, 0), FINISHED),))))
    cluster.admit("c", "A")
    cluster.pass_time(100)
    assert cluster.delivered("b") == cluster.delivered("c") == ["c0A"]


def test_names_of_settled_batches_are_forgotten() -> None:
    effects: list[Effect] = []
    stream = Stream(Ledger("a", effects, safe=True), Bodies(4), effects, safe=True)
    stream.open()
    for number in range(3):
        stream.put(Batch("b", 0, number, 1, "A", pack([b"x"])))
    stream.on_mark(3, 2)
    assert [item.number for item in stream.names()] == [2]
