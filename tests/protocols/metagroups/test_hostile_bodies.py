"""Sites that lie about bodies, trees, names and seats: nothing grows, and nothing stops."""

import dataclasses
import hashlib
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from antiphon.core.effects import Deliver, Effect, Send, Stable
from antiphon.core.inputs import Received
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups import MetaGroupsConfiguration
from antiphon.protocols.metagroups import view as view_module
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.ending import end_tree
from antiphon.protocols.metagroups.ledger import MOST_INCARNATIONS, MOST_SENDERS, MOST_SPANS, Ledger, Spans
from antiphon.protocols.metagroups.membership import LATEST_VERSION
from antiphon.protocols.metagroups.pdus import (
    FINISHED,
    MOST_SITES,
    NO_GROUP,
    Accept,
    Body,
    Copy,
    Entry,
    Heartbeat,
    Holding,
    Install,
    Item,
    Prepare,
    Progress,
    Refuse,
    Report,
    SiteRecord,
    Token,
    Want,
)
from antiphon.protocols.metagroups.peers import LATEST_INCARNATION, LONGEST_LEAP, MOST_HEARD
from antiphon.protocols.metagroups.proposer import STUCK_AFTER
from antiphon.protocols.metagroups.view import NO_FOUNDER, view_of
from tests.protocols.harness.metagroups_group import KNOBS, Cluster
from tests.protocols.harness.staging import pdus
from tests.protocols.metagroups.lying import (
    BATCH,
    DECISION,
    GROUPS,
    LAST,
    RULES,
    all_get_on,
    cluster_of,
    following,
    view_at,
)

# Hearsay


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("kind", [Heartbeat, Prepare, Install, "later"])
def test_one_pdu_ends_no_session(kind: type | str, again: bool) -> None:
    """Of an older cluster, or of a version that was made without us."""
    cluster = Cluster(GROUPS, begun=False)
    for name in "abcde":
        cluster.members[name] = cluster.build(name)
        cluster.restart(name)
    cluster.pass_time(1500)
    assert all_get_on(cluster)
    own = view_at(cluster, "c").decision
    lies: dict[type | str, Pdu] = {
        Heartbeat: Heartbeat((0, 0, "z"), 1, (7, 0), 1, (), RULES),
        Prepare: Prepare(RULES, (0, 0, "z"), 1, 1, ()),
        Install: Install(RULES, structs.replace(DECISION, origin=(0, 0, "z"))),
        "later": Install(RULES, structs.replace(own, version=own.version + 1)),
    }
    before = {name: cluster.spells(name) for name in "abcde"}
    for name in "abcde":
        cluster.give(name, Received("z", lies[kind]))
    cluster.now += KNOBS.heartbeat_ns // 2 - 1
    for name in "abcde":
        cluster.give(name, Received("z", lies[kind]))
    assert before == {name: cluster.spells(name) for name in "abcde"}
    if again:
        cluster.now += 1
        for name in "abcde":
            cluster.give(name, Received("z", lies[kind]))
        assert before != {name: cluster.spells(name) for name in "abcde"}
        cluster.pass_time(1500)
    assert all_get_on(cluster)


def test_only_the_coordinator_reports_the_progress_of_all() -> None:
    cluster = cluster_of()
    cluster.leave("b", "A")
    while not view_at(cluster, "c").retiring:
        cluster.step() if cluster.travelling else cluster.pass_time(1)
    (tree,) = view_at(cluster, "c").retiring
    over = cluster.members["c"]._member._trees.over
    over.clear()
    cluster.give("c", Received("d", Progress(((tree, FINISHED),))))
    assert over == set()
    cluster.give("c", Received("a", Progress(((tree, FINISHED),))))
    assert over == {tree}


# Incarnations


def test_every_site_reports_the_incarnations_that_it_knows() -> None:
    cluster = cluster_of()
    cluster.crash("e")
    cluster.restart("e")
    member = cluster.members["a"]
    assert member.incarnation_of("e") == 0
    cluster.settle()
    assert [member.incarnation_of(name) for name in "aez"] == [0, 1, 0]
    cluster.pass_time(500)
    assert [cluster.members["c"].incarnation_of(name) for name in "ace"] == [0, 0, 1]
    assert cluster.members["e"].incarnation_of("e") == 1


def test_the_view_has_the_incarnations_of_sites_that_were_not_heard() -> None:
    cluster = cluster_of()
    cluster.crash("e")
    cluster.restart("e")
    cluster.pass_time(500)
    peers = cluster.members["d"]._member._peers
    peers.reset(cluster.now)
    assert cluster.members["d"].incarnation_of("e") == 1


def test_incarnations_do_not_run_out() -> None:
    cluster = cluster_of()
    furthest = LATEST_INCARNATION + LONGEST_LEAP
    for incarnation, believed in ((furthest + 1, 0), (furthest, furthest), (furthest + 1, furthest + 1)):
        cluster.give("a", Received("z", Heartbeat(None, 0, (incarnation, 0), 1, (), RULES)))
        assert cluster.members["a"].incarnation_of("z") == believed


# Bodies


DIRECT = MetaGroupsConfiguration(acknowledge_ns=0, bodies="direct")


def test_a_copy_counts_only_from_the_site_that_was_asked() -> None:
    cluster = Cluster({"A": "abcd"}, DIRECT)
    cluster.pass_time(200)
    cluster.lost = lambda _source, target, pdu: target == "d" and isinstance(pdu, Body | Copy)
    cluster.admit("b", "A")
    cluster.pass_time(100)
    assert cluster.delivered("d") == []
    (want,) = pdus(cluster.effects["d"], Want)[-1:]
    (asked,) = {
        effect.to
        for effect in cluster.effects["d"]
        if isinstance(effect, Send) and isinstance(effect.pdu, Want)
    }
    copy = Copy(want.tree, "b", 0, 0, "A", pack([b"x"]))
    for liar in sorted(set("abcz") - {asked}):
        cluster.give("d", Received(liar, structs.replace(copy, bodies=pack([b"forged"]))))
    assert cluster.figure("d", "kept") == 0
    cluster.give("d", Received(asked, copy))
    cluster.lost = lambda *_: False
    cluster.pass_time(100)
    assert cluster.delivered("d") == ["b0A"]


def test_copies_that_were_not_asked_for_are_not_kept() -> None:
    cluster = Cluster({"A": "abcd"}, DIRECT)
    cluster.pass_time(200)
    tree = next(iter(view_at(cluster, "d").trees))
    for number in range(2000):
        cluster.give("d", Received("z", Copy(tree, f"z{number}", 0, number, "A", BATCH)))
    assert cluster.figure("d", "kept") == 0


def test_only_sites_of_the_cluster_are_given_copies() -> None:
    cluster = cluster_of()
    cluster.lost = lambda _source, target, _pdu: target == "b"
    cluster.admit("a", "A")
    cluster.settle()
    tree = view_at(cluster, "a").tree_of["A"]
    want = Received("z", Want(tree, (("a", 0),)))
    assert pdus(cluster.give("a", want), Copy) == []
    assert len(pdus(cluster.give("a", structs.replace(want, sender="b")), Copy)) == 1


def test_a_forged_place_in_a_senders_numbers_does_not_keep_its_bodies_away() -> None:
    """A primary site that lies is believed as long as it is there, not for ever."""
    cluster = Cluster({"A": "abcd"}, DIRECT)
    cluster.pass_time(200)
    ledger = cluster.members["d"]._member._trees._ledger
    ledger.deliver(Batch("b", 0, LAST - 1, 1, "A", BATCH))
    cluster.admit("b", "A")
    cluster.pass_time(200)
    assert cluster.delivered("d")[1:] == cluster.delivered("a") == ["b0A"]


# Trees that end


MEMBERS = {"A": frozenset("abc"), "B": frozenset("bc")}


def test_what_most_sites_report_of_a_batch_counts() -> None:
    fair, lie = Item("c", 0, 1, "A"), Item("c", 0, 1, "B")
    holdings = {
        "a": Holding((1, 0), (lie,), 1, ()),
        "b": Holding((1, 0), (fair,), 0, ()),
        "c": Holding((1, 0), (fair,), 0, (fair,)),
    }
    ending = end_tree((1, 0), MEMBERS, holdings)
    assert (ending.items, ending.sources) == ((fair,), ("b",))


def test_no_site_reports_batches_that_are_not_for_it() -> None:
    lie = Holding((1, 0), (Item("c", 0, 1, "B"), Item("c", 1, 1, "A")), 2, (Item("b", 7, 1, "A"),))
    ending = end_tree((1, 0), MEMBERS, {"a": lie})
    assert ending.items == (Item("c", 1, 1, "A"),)
    assert ending.sure == 1


def test_a_site_that_lacks_what_no_site_gives_starts_a_new_session() -> None:
    cluster = cluster_of()
    view = view_at(cluster, "c")
    (tree,) = view.trees
    decision = following(view, without="e")
    ending = structs.replace(decision.endings[0], items=(Item("b", 0, 1, "A"),), sources=("b",))
    decision = structs.replace(decision, endings=(ending,))
    cluster.give("c", Received("a", Prepare(RULES, NO_FOUNDER, 2, 1, (tree,))))
    cluster.give("c", Received("a", Accept(2, 1, False, decision)))
    assert pdus(cluster.effects["c"], Want)
    begun = cluster.now
    while "-" not in cluster.spells("c") and cluster.now < begun + 3 * STUCK_AFTER * KNOBS.suspect_ns:
        cluster.give("c", Received("a", Accept(2, 1, False, decision)))
        cluster.pass_time(10)
    patience_ns = STUCK_AFTER * KNOBS.suspect_ns
    assert patience_ns < cluster.now - begun < patience_ns + 100 * MILLISECOND_NS
    cluster.pass_time(1500)
    assert all_get_on(cluster)


# Bounds


def test_tables_stay_small_whichever_sites_send() -> None:
    cluster = cluster_of()
    peers = cluster.members["a"]._member._peers
    for number in range(MOST_HEARD + 1000):
        cluster.give("a", Received(f"z{number}", Heartbeat((9, 9, "z"), 1, (7, 0), 1, ("C",), RULES)))
    assert len(peers._last_heard_ns) == MOST_HEARD
    assert len(peers._sessions) <= MOST_HEARD
    assert not peers.has_announced("z0", (7, 0))
    assert peers.has_announced(f"z{MOST_HEARD + 999}", (7, 0))
    cluster.travelling.clear()
    assert all_get_on(cluster)


def test_no_more_sites_are_let_in_than_a_view_holds() -> None:
    view = view_at(cluster_of(), "a")
    requests = [SiteRecord(f"z{index:04}", (7, 0), 1, ()) for index in range(MOST_SITES - 5)]
    assert view.has_room(requests[-1], requests)
    assert view.has_room(requests[-1], requests[:-1])
    assert not view.has_room(SiteRecord("zz", (7, 0), 1, ()), requests)
    assert view.has_room(structs.replace(view.records["a"], serial=2), requests)


def test_a_ledger_is_bounded_and_the_longest_silent_is_forgotten() -> None:
    ledger = Ledger("a", [], safe=True)
    ledger.on_view({"seated": (7, 0)})
    ledger.deliver(Batch("seated", 7, 0, 1, "A", BATCH))
    for number in range(MOST_SENDERS + 2):
        sender = f"z{number}"
        ledger.deliver(Batch(sender, 0, 0, 1, "A", BATCH))
        ledger.deliver(Batch("spoken", 0, number, 1, "A", BATCH))
    assert len(ledger._delivered) == MOST_SENDERS
    assert ledger.has("spoken", 0)
    assert ledger.has("seated", 0)
    assert not ledger.has("z0", 0)


def test_a_view_is_built_only_for_a_decision_that_was_accepted() -> None:
    """To build one of a forged decision may take long."""
    cluster = cluster_of()
    digest = hashlib.sha256(b"groups").hexdigest()
    records = tuple(SiteRecord(f"z{index:03}", (7, 0), 1, (f"{digest}{index}",)) for index in range(200))
    decision = structs.replace(DECISION, origin=NO_FOUNDER, version=2, records=records)
    before = view_of.cache_info().misses
    for name in "abcde":
        cluster.give(name, Received("z", Install(RULES, decision)))
    assert view_of.cache_info().misses == before


# What is asked or in_parts again


def test_a_repeated_prepare_is_answered_again() -> None:
    cluster = cluster_of()
    ask = Received("a", Prepare(RULES, NO_FOUNDER, 2, 5, ()))
    for _ in range(2):
        effects = cluster.give("c", ask)
        assert len(pdus(effects, Report)) == 1
        assert pdus(effects, Refuse) == []
    earlier = cluster.give("c", Received("a", Prepare(RULES, NO_FOUNDER, 2, 4, ())))
    assert pdus(earlier, Refuse) == [Refuse(2, 5)]


def test_a_pending_decision_is_given_up_only_for_a_later_attempt() -> None:
    cluster = cluster_of()
    membership = cluster.members["c"]._member._membership
    view = view_at(cluster, "c")
    decision = following(view, without="e")
    ending = structs.replace(decision.endings[0], items=(Item("b", 0, 1, "A"),), sources=("b",))
    decision = structs.replace(decision, endings=(ending,))
    ask = Prepare(RULES, NO_FOUNDER, 2, 1, tuple(view.trees))
    cluster.give("c", Received("a", ask))
    cluster.give("c", Received("a", Accept(2, 1, False, decision)))
    assert membership.pending == decision
    cluster.give("c", Received("a", ask))
    assert membership.pending == decision
    cluster.give("c", Received("a", structs.replace(ask, round=2)))
    assert membership.pending is None


def test_a_repeated_request_needs_no_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of()
    view, peers = view_at(cluster, "a"), cluster.members["a"]._member._peers
    letters = sum(len(record.site) + sum(map(len, record.groups)) for record in view.decision.records)
    monkeypatch.setattr(view_module, "LARGEST_VIEW", letters + 6)
    request = Heartbeat(None, 0, (7, 0), 1, ("CCCC",), RULES)
    assert peers.on_request("z", request, view)
    assert peers.on_request("z", request, view)
    assert not peers.on_request("y", request, view)


def test_an_acceptor_that_was_led_ahead_does_not_keep_its_own_site_from_proposing() -> None:
    """Only the coordinator hears of attempts that lie far ahead, and then must make one of its own."""
    cluster = cluster_of()
    for _ in range(3):
        cluster.give("a", Received("e", Prepare(RULES, NO_FOUNDER, 2, LAST, ())))
    cluster.cut = {"e"}
    cluster.pass_time(1000)
    assert [cluster.figure(name, "sites") for name in "abcd"] == [4, 4, 4, 4]
    assert [cluster.spells(name) for name in "abcd"] == ["", "", "", ""]


def test_a_newcomer_that_was_called_away_refuses_and_is_asked_again() -> None:
    """A site without a cluster is called to another version of it between the two phases of an attempt."""
    cluster = cluster_of()
    cluster.crash("e")
    away = Prepare(RULES, NO_FOUNDER, LATEST_VERSION, 1, ())
    called: list[Pdu] = []

    def call_away(_source: str, target: str, pdu: Pdu) -> bool:
        if target == "e" and isinstance(pdu, Accept) and not called:
            called.append(pdu)
            cluster.give("e", Received("d", away))
        return False

    cluster.lost = call_away
    cluster.restart("e")
    cluster.pass_time(1500)
    assert called
    assert [cluster.figure(name, "sites") for name in "abcde"] == [5, 5, 5, 5, 5]
    assert all_get_on(cluster)


def test_sites_with_other_rules_are_remembered_up_to_a_bound() -> None:
    cluster = cluster_of()
    for number in range(MOST_SITES + 2):
        cluster.give("a", Received(f"z{number}", Heartbeat(None, 0, (7, 0), 1, (), "other=rules")))
    assert len(cluster.members["a"]._member._membership._refused) == MOST_SITES


# Under others' names


def test_a_message_is_delivered_once_whatever_numbers_a_primary_site_makes_up() -> None:
    effects: list[Effect] = []
    ledger = Ledger("a", effects, safe=True)
    for number in (0, 1, 7, 2, 1, 7, 6, 3, 0):
        ledger.deliver(Batch("b", 5, number, 1, "A", BATCH))
    delivered = [effect.number for effect in effects if isinstance(effect, Deliver)]
    assert delivered == [0, 1, 7, 2, 6, 3]
    pair = pack([b"x", b"y"])
    for number in (2, 6, 7, 4):
        ledger.deliver(Batch("b", 5, number, 2, "A", pair))
    assert [effect.number for effect in effects if isinstance(effect, Deliver)][len(delivered) :] == [4]
    ledger.deliver(Batch("b", 6, 0, 1, "A", BATCH))
    assert isinstance(effects[-1], Stable)
    assert sum(isinstance(effect, Deliver) for effect in effects) == 8


def test_a_ledger_knows_the_incarnation_in_the_view() -> None:
    ledger = Ledger("a", [], safe=True)
    ledger.deliver(Batch("b", 5, 3, 1, "A", BATCH))
    assert ledger.has("b", 3)
    assert not ledger.has("b", 2)
    assert not ledger.has("b", 4)
    ledger.on_view({"b": (6, 0)})
    assert not ledger.has("b", 3)
    ledger.on_view({"b": (5, 1)})
    for incarnation in range(6, 6 + 3 * MOST_INCARNATIONS):
        ledger.deliver(Batch("b", incarnation, 0, 1, "A", BATCH))
    assert len(ledger._delivered["b"]) == MOST_INCARNATIONS
    assert ledger.has("b", 3)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 4))))
def test_spans_are_a_set_of_numbers(found: list[tuple[int, int]]) -> None:
    spans, twin = Spans(), set[int]()
    for begin, length in found:
        numbers = set(range(begin, begin + length))
        assert spans.meets(begin, begin + length) == bool(twin & numbers)
        if not twin & numbers:
            spans.add(begin, begin + length)
            twin |= numbers
    assert len(spans) == sum(number - 1 not in twin for number in twin)


def test_too_many_spans_close_the_narrowest_gap() -> None:
    spans = Spans()
    for place in range(MOST_SPANS):
        spans.add(10 * place, 10 * place + 1)
    spans.add(203, 204)
    assert len(spans) == MOST_SPANS
    assert spans.meets(202, 203)
    assert not spans.meets(204, 210)
    assert not spans.meets(191, 200)


@pytest.mark.parametrize(
    "change", [{"number": 9}, {"group": "B"}, {"incarnation": 4}, {"bodies": pack([b"y"])}]
)
def test_a_site_refuses_what_it_has_not_sent_under_its_own_name(change: dict[str, object]) -> None:
    cluster = Cluster({"A": "abc", "B": "abc"})
    cluster.pass_time(200)
    held: list[Entry] = []

    def keep(_source: str, target: str, pdu: Pdu) -> bool:
        if target == "b" and isinstance(pdu, Entry):
            held.append(pdu)
            return True
        return False

    cluster.lost = keep
    cluster.admit("b", "A")
    cluster.settle()
    ignored = cluster.figure("b", "ignored")
    cluster.give("b", Received("a", structs.replace(held[0], **change)))
    assert cluster.figure("b", "ignored") == ignored + 1
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(200)
    assert cluster.delivered("b") == cluster.delivered("a") == ["b0A"]
    again = cluster.figure("b", "ignored")
    cluster.give("b", Received("a", held[0]))
    assert cluster.figure("b", "ignored") == again


@pytest.mark.parametrize(("bodies", "group"), [("tree", "A"), ("direct", NO_GROUP)])
def test_a_token_is_refused_where_bodies_do_not_come_apart(
    bodies: Literal["tree", "direct"], group: str
) -> None:
    """A primary site would have nothing to pass down the tree."""
    cluster = cluster_of(dataclasses.replace(KNOBS, bodies=bodies))
    (endpoint,) = cluster.members["a"]._member._trees._endpoints.values()
    assert endpoint.server is not None
    ((source, inlet),) = endpoint.server.inlets.items()
    ignored = cluster.figure("a", "ignored")
    token = Token(endpoint.tree.id, inlet.channel, inlet.next_seq, 0, 0, "b", 1, 0, 1, group)
    cluster.give("a", Received(source, token))
    assert cluster.figure("a", "ignored") == ignored + 1
    assert all_get_on(cluster)
