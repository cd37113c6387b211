"""Joins and leaves that alter no tree (Jia and So, section 6): it keeps its id, and few sites are told."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from antiphon.core.effects import Multicast, Send
from antiphon.core.inputs import Received
from antiphon.core.packing import pack
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups import PDUS, MetaGroupsConfiguration
from antiphon.protocols.metagroups.channels import Outlet
from antiphon.protocols.metagroups.moving import KnownMoves, as_batch, is_named, move_in
from antiphon.protocols.metagroups.pdus import (
    Accept,
    AcceptChange,
    AskMoves,
    Entry,
    Heartbeat,
    Held,
    Leave,
    Leaving,
    Mark,
    Move,
    Moved,
    Moves,
    PlaceMove,
    Prepare,
    Report,
    Request,
    Turn,
    Turned,
)
from antiphon.protocols.metagroups.server import NO_SESSION, Placed, Server
from antiphon.sim.sizes import encoded_size
from tests.protocols.harness.metagroups_group import KNOBS, Cluster
from tests.protocols.harness.staging import pdus
from tests.protocols.metagroups.test_changes import expect_progress, send_all

GROUPS = {"A": "bcdefgh", "B": "bcij", "X": "axyz"}
"""Meta-groups <AB> with b and c, <A> with d to h, <B> with i and j, and <X>; a is the first site of all."""
MOVING: tuple[type[Pdu], ...] = (PlaceMove, Leave, Leaving, Turn, Turned, Moved, Moves, AskMoves)
AGREEING: tuple[type[Pdu], ...] = (Prepare, Report, Accept, AcceptChange)


def begun(knobs: MetaGroupsConfiguration = KNOBS) -> Cluster:
    """All sites have heard one another."""
    cluster = Cluster(GROUPS, knobs)
    cluster.pass_time(120)
    return cluster


def trees_at(cluster: Cluster, name: str) -> list[tuple[int, int]]:
    view = cluster.members[name]._member._trees.view
    assert view is not None
    return sorted(view.trees)


def not_heartbeats(cluster: Cluster, already: dict[str, int]) -> list[Pdu]:
    """What all sites have sent since then, a PDU for each receiver."""
    return [
        effect.pdu
        for name in cluster.names
        for effect in cluster.effects[name][already[name] :]
        if isinstance(effect, Send | Multicast) and not isinstance(effect.pdu, Heartbeat)
        for _ in (effect.to if isinstance(effect, Multicast) and effect.to is not None else "1")
    ]


def test_a_join_that_alters_no_tree_costs_few_pdus_and_keeps_the_tree() -> None:
    cluster = begun()
    trees, already = trees_at(cluster, "x"), {name: len(cluster.effects[name]) for name in cluster.names}
    cluster.join("e", "B")
    cluster.pass_time(20)
    assert cluster.changes("e")[-1] == "+B"
    sent = not_heartbeats(cluster, already)
    size = encoded_size(PDUS)
    assert len(sent) <= 20
    assert sum(map(size, sent)) <= 1000
    assert not any(isinstance(pdu, AGREEING) for pdu in sent)
    assert {cluster.figure(name, "version") for name in cluster.names} == {1}
    assert all(trees_at(cluster, name) == trees for name in cluster.names)
    cluster.membership["B"] = tuple("bceij")
    send_all(cluster)  # sites that are not in B and hear of the move only now ask first
    expect_progress(cluster)
    assert not any(cluster.figure(name, what) for name in cluster.names for what in ("kept", "waiting"))


def test_the_move_has_one_place_in_the_order() -> None:
    """Messages are under way all the time; the site gets those of its old groups once."""
    cluster = begun()
    for turn in range(20):
        if turn in (5, 12):
            cluster.join("e" if turn == 5 else "f", "B")
        send_all(cluster)
        for _ in range(40):
            if cluster.travelling:
                cluster.step()
        if turn % 8 == 0:
            cluster.pass_time(5)
    cluster.pass_time(500)
    for name in "ef":
        story = cluster.changes(name)
        assert "+B" in story[story.index("+A") :]
        assert any(each.endswith("B") for each in cluster.delivered(name))
    assert cluster.figure("a", "version") == 1
    assert cluster.figure("e", "moves") == 1
    cluster.judge()


def test_a_site_can_move_twice() -> None:
    groups = {"A": "bcdefg", "B": "bcd", "C": "b", "X": "ax"}
    cluster = Cluster(groups | {"C": "bh"})
    cluster.pass_time(120)
    cluster.join("f", "B")
    cluster.join("f", "C")
    send_all(cluster)
    cluster.pass_time(300)
    assert cluster.figure("f", "moves") == 2
    assert cluster.figure("a", "version") == 1
    cluster.membership |= {"B": tuple("bcdf"), "C": tuple("bfh")}
    expect_progress(cluster)


CHANGES: dict[str, tuple[str, str, bool]] = {
    "a site joins": ("e", "B", True),
    "a site leaves": ("c", "B", False),
    "a primary site joins": ("d", "B", True),
    "a primary site leaves": ("b", "B", False),
    "a primary site leaves for another branch": ("b", "A", False),
}
"""Who joins or leaves which group, and moves on the tree for it."""


def change_of(cluster: Cluster, change: str) -> str:
    """Have a site join or leave; how it reports that."""
    name, group, joins = CHANGES[change]
    (cluster.join if joins else cluster.leave)(name, group)
    return f"{'+' if joins else '-'}{group}"


def members_after(cluster: Cluster, change: str) -> None:
    """The members of its groups are others now."""
    name, group, joins = CHANGES[change]
    members = {*GROUPS[group], name} if joins else {*GROUPS[group]} - {name}
    cluster.membership[group] = tuple(sorted(members))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [*MOVING, Entry, Held, Mark])
def test_a_move_makes_up_for_losses(kind: type[Pdu], change: str) -> None:
    cluster = begun()
    send_all(cluster)
    cluster.settle()
    left = dict.fromkeys(cluster.names, 2)

    def lost(_source: str, target: str, pdu: Pdu) -> bool:
        left[target] -= isinstance(pdu, kind)
        return isinstance(pdu, kind) and left[target] >= 0

    cluster.lost = lost
    reported = change_of(cluster, change)
    send_all(cluster)
    cluster.pass_time(400)
    members_after(cluster, change)
    assert reported in cluster.changes(CHANGES[change][0])
    send_all(cluster)
    cluster.pass_time(60)
    expect_progress(cluster)
    assert cluster.figure("a", "version") == 1


def test_a_sender_that_has_not_heard_of_a_move_does_not_address_the_site() -> None:
    cluster = begun()
    cluster.lost = lambda _source, target, pdu: target == "i" and isinstance(pdu, Moves | Heartbeat)
    cluster.join("e", "B")
    cluster.pass_time(20)
    cluster.admit("i", "B")
    cluster.admit("j", "B")
    cluster.pass_time(20)
    assert "j0B" in cluster.delivered("e")
    assert "i0B" not in cluster.delivered("e")
    assert "i0B" in cluster.delivered("b")
    cluster.judge()


def test_a_sender_that_knows_that_it_lacks_a_move_asks_first() -> None:
    cluster = begun()
    cluster.lost = lambda _source, target, pdu: target == "x" and isinstance(pdu, Moves)
    cluster.join("e", "B")
    cluster.pass_time(70)
    cluster.admit("x", "B")
    assert cluster.refused("x") == 1
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(30)
    cluster.admit("x", "B")
    cluster.pass_time(30)
    cluster.admit("x", "B")
    cluster.pass_time(30)
    assert cluster.delivered("e")[-1].endswith("B")
    cluster.judge()


def test_the_next_change_plants_the_tree_anew_with_the_site_at_its_place() -> None:
    cluster = begun()
    cluster.join("e", "B")
    cluster.pass_time(50)
    before = cluster.changes("e")
    cluster.leave("j", "B")
    send_all(cluster)
    cluster.pass_time(500)
    assert cluster.figure("a", "version") == 2
    assert "-B" not in cluster.changes("e")
    assert before.count("+B") == cluster.changes("e").count("+B") == 1
    cluster.membership["B"] = tuple("bcei")
    expect_progress(cluster)


def test_a_turn_is_told_until_it_is_noted_also_when_the_view_has_changed() -> None:
    """The site that moves hears nothing of it until its tree retires."""
    cluster = begun()
    cluster.lost = lambda _source, target, pdu: target == "e" and isinstance(pdu, Turn)
    cluster.join("e", "B")
    cluster.pass_time(60)
    assert "+B" not in cluster.changes("e")
    cluster.leave("j", "B")
    cluster.pass_time(100)
    assert cluster.figure("a", "version") == 2
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.membership["B"] = tuple("bcei")
    expect_progress(cluster)
    assert "+B" in cluster.changes("e")


def test_a_site_that_takes_part_in_an_attempt_gives_no_move_its_place() -> None:
    cluster = begun()
    move = Move(1, 1, "e", "B", (1, 0), 1, 0)
    assert pdus(cluster.give("b", Received("x", PlaceMove(move))), Turn) == []
    cluster.give("b", Received("a", Prepare(KNOBS.rules, (0, 0, ""), 2, 5, ())))
    assert cluster.give("b", Received("a", PlaceMove(move))) == []
    again = begun()
    assert pdus(again.give("b", Received("a", PlaceMove(move))), Turn)
    assert again.give("b", Received("a", PlaceMove(move))) == []
    (report,) = pdus(again.give("b", Received("a", Prepare(KNOBS.rules, (0, 0, ""), 2, 5, ()))), Report)
    assert report.moved == ((1, 0),)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "victim"),
    [
        *(("a site joins", victim) for victim in "abe"),
        *(("a site leaves", victim) for victim in "abcd"),
        *(("a primary site joins", victim) for victim in "abd"),
        *(("a primary site leaves for another branch", victim) for victim in "abi"),
    ],
)
def test_a_crash_at_every_step_of_a_move(change: str, victim: str) -> None:
    """The first site, primary sites, the site that moves, a member: after each PDU of the move."""
    count = 0
    while True:
        cluster = begun()
        send_all(cluster)
        heard = 0

        def crash(
            _source: str, _target: str, pdu: Pdu, cluster: Cluster = cluster, count: int = count
        ) -> bool:
            nonlocal heard
            heard += isinstance(pdu, (*MOVING, Entry, Held))
            if heard > count and victim not in cluster.cut:
                cluster.crash(victim)
            return False

        cluster.lost = crash
        change_of(cluster, change)
        send_all(cluster)
        cluster.pass_time(160)
        crashed = victim in cluster.cut
        cluster.lost = lambda _source, _target, _pdu: False
        cluster.pass_time(1200)
        members_after(cluster, change)
        send_all(cluster)
        cluster.pass_time(60)
        expect_progress(cluster)
        if crashed:
            cluster.restart(victim)
            expect_progress(cluster)
        if not crashed or count > 60:
            break
        count += 11
    assert count > 20


@pytest.mark.parametrize(
    ("knobs", "name", "group"),
    [
        pytest.param(KNOBS, "e", "X", id="a meta-group comes"),
        pytest.param(
            MetaGroupsConfiguration(acknowledge_ns=0, bodies="direct"), "e", "B", id="bodies travel apart"
        ),
        pytest.param(
            MetaGroupsConfiguration(acknowledge_ns=0, bypass=True), "e", "B", id="messages take shortcuts"
        ),
    ],
)
def test_other_joins_change_the_view(knobs: MetaGroupsConfiguration, name: str, group: str) -> None:
    cluster = begun(knobs)
    cluster.join(name, group)
    cluster.pass_time(60)
    assert f"+{group}" in cluster.changes(name)
    assert cluster.figure("a", "version") == 2


# What others may say


MOVE = Move(1, 1, "e", "B", (1, 0), 1, 0)
LIES: dict[str, tuple[str, str, Pdu]] = {
    "a turn that no primary site tells": ("e", "c", Turn(MOVE, 0, 0)),
    "a turn of another site": ("e", "b", Turn(structs.replace(MOVE, site="f"), 0, 0)),
    "a turn at a node that the move does not concern": ("e", "i", Turn(MOVE, 2, 0)),
    "a turn that ends what was had": ("e", "d", Turn(MOVE, 1, 0)),
    "a turn to a primary site": ("d", "b", Turn(structs.replace(MOVE, site="d"), 0, 0)),
    "a move to a group that the site has": ("e", "b", Turn(structs.replace(MOVE, group="A"), 0, 0)),
    "a turn at a node that does not exist": ("e", "b", Turn(structs.replace(MOVE, target=77), 77, 0)),
    "a turn behind the last node": ("e", "b", Turn(structs.replace(MOVE, target=3), 3, 0)),
    "moves that another site tells": ("e", "x", Moves((MOVE,))),
    "moves of another version": ("e", "a", Moves((structs.replace(MOVE, version=5),))),
    "a move between nodes that do not exist": ("b", "a", PlaceMove(structs.replace(MOVE, source=99))),
    "a move from behind the last node": ("b", "a", PlaceMove(structs.replace(MOVE, source=3))),
    "a move to behind the last node": ("b", "a", PlaceMove(structs.replace(MOVE, target=3))),
    "a move from a node to itself": ("b", "a", PlaceMove(structs.replace(MOVE, target=1))),
    "a confirmation of what was not granted": ("a", "e", Moved(MOVE)),
    "a turn noted that was not told": ("b", "e", Turned(MOVE, 0)),
    "a turn noted at a site of no node": ("y", "e", Turned(MOVE, 0)),
    "a turn from a node where the site is not": ("e", "i", Turn(Move(1, 1, "e", "A", (1, 0), 2, 0), 2, 0)),
    "a question of another version": ("a", "e", AskMoves((0, 0, ""), 99, 0)),
    "a question of another cluster": ("a", "e", AskMoves((7, 0, "q"), 1, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_lies_about_moves_have_no_effect(name: str) -> None:
    cluster = begun()
    send_all(cluster)
    cluster.pass_time(50)
    target, source, pdu = LIES[name]
    cluster.give(target, Received(source, pdu))
    cluster.pass_time(50)
    assert cluster.figure("e", "moves") == 0
    expect_progress(cluster)


def test_a_site_learns_only_moves_of_its_view() -> None:
    cluster = begun()
    known = cluster.members["x"]._member._trees.moves
    wrong: list[dict[str, object]] = [
        {"group": "Q"}, {"group": "X"}, {"tree": (1, 1)}, {"source": 3}, {"target": 3},
        {"site": "q"}, {"version": 2},
    ]  # fmt: skip
    for change in wrong:
        cluster.give("x", Received("a", Moves((structs.replace(MOVE, **change),))))
    assert len(known) == 0
    cluster.give("x", Received("a", Moves((MOVE,))))
    assert len(known) == 1


@pytest.mark.parametrize("wrong", [{"group": "A"}, {"target": 1}, {"tree": (9, 9)}, {"target": 3}])
def test_no_move_gets_a_place_that_its_site_would_refuse(wrong: dict[str, Any]) -> None:
    """The node that it enters would wait for the site for ever."""
    cluster = begun()
    server = server_of(cluster, "b")
    assert server.is_meeting(MOVE)
    assert not server.is_meeting(structs.replace(MOVE, **wrong))
    cluster.give("b", Received("a", PlaceMove(structs.replace(MOVE, **wrong))))
    assert not server.moves
    expect_progress(cluster)


def as_move(site: str, group: str, source: int, target: int, number: int = 1) -> Move:
    return Move(1, number, site, group, (1, 0), source, target)


@pytest.mark.parametrize(
    ("told", "knobs", "moves", "learnt"),
    [
        pytest.param("i", {"bodies": "direct"}, (MOVE,), 0, id="where bodies travel apart"),
        pytest.param("i", {"bypass": True}, (MOVE,), 0, id="where messages take shortcuts"),
        pytest.param("i", {}, (as_move("e", "B", 0, 1),), 0, id="from a node where the site is not"),
        pytest.param("i", {}, (as_move("x", "B", 1, 0),), 0, id="of a site on another tree"),
        pytest.param("i", {}, (as_move("e", "A", 1, 0),), 0, id="by another group than the nodes differ by"),
        pytest.param("i", {}, (as_move("e", "B", 1, 1),), 0, id="to the same node"),
        pytest.param(
            "i", {}, (as_move("b", "B", 0, 1), as_move("c", "B", 0, 1, 2)), 1, id="of the last site of a node"
        ),
        pytest.param(
            "i", {}, (MOVE, as_move("e", "B", 0, 1, 2)), 1, id="back to a node where the site was"
        ),
        pytest.param("e", {}, (MOVE,), 0, id="of the site that is told, which has not joined"),
        pytest.param("c", {}, (as_move("c", "B", 0, 1),), 0, id="of the site that is told, which stays"),
    ],
)  # fmt: skip
def test_a_site_learns_no_move_that_cannot_have_been_granted(
    told: str, knobs: dict[str, Any], moves: tuple[Move, ...], learnt: int
) -> None:
    """The first site of a view may lie: a sender that believes it names other members than deliver."""
    cluster = begun(replace(KNOBS, **knobs))
    cluster.give(told, Received("a", Moves(moves)))
    assert len(cluster.members[told]._member._trees.moves) == learnt


def test_only_a_site_that_sends_asks_for_moves_and_only_for_those_that_it_lacks() -> None:
    cluster = begun()
    cluster.admit("i", "B")
    cluster.settle()

    def asks(name: str, moves: int) -> bool:
        told = structs.replace(cluster.members["a"]._member.heartbeat(), moves=moves)
        return bool(pdus(cluster.give(name, Received("a", told)), AskMoves))

    assert not asks("x", 1)
    assert not asks("i", 0)
    assert asks("i", 1)


def test_a_site_says_that_it_has_moved_when_it_has_and_as_often_as_it_is_asked() -> None:
    cluster = begun()
    assert pdus(cluster.give("e", Received("a", PlaceMove(MOVE))), Moved) == []
    cluster.join("e", "B")
    cluster.settle()
    assert pdus(cluster.effects["e"], Moved) == [Moved(MOVE)]
    (turn,) = pdus(cluster.effects["b"], Turn)
    assert pdus(cluster.give("e", Received("b", turn)), Moved) == [Moved(MOVE)]
    assert pdus(cluster.give("e", Received("a", PlaceMove(MOVE))), Moved) == [Moved(MOVE)]
    service = cluster.members["e"]._member._membership
    before = len(cluster.members["e"]._member._effects)
    service.confirm_move(cluster.now, structs.replace(MOVE, version=2))
    assert len(cluster.members["e"]._member._effects) == before


def test_a_leave_that_is_done_is_not_begun_again() -> None:
    cluster = begun()
    cluster.leave("c", "B")
    cluster.pass_time(200)
    assert cluster.figure("c", "moves") == 1
    (move,) = cluster.members["a"]._member._trees.moves.after(0)
    assert pdus(cluster.give("c", Received("a", Leave(move))), Leaving) == []


def test_a_change_on_a_retiring_tree_is_none_of_the_view() -> None:
    trees = begun().members["e"]._member._trees
    trees.on_change(structs.replace(MOVE, tree=(9, 9)), joins=True)
    assert trees._changed == {}
    trees.on_change(MOVE, joins=True)
    assert trees._changed == {"B": True}


def server_of(cluster: Cluster, name: str) -> Server:
    endpoints = cluster.members[name]._member._trees._endpoints.values()
    return next(endpoint.server for endpoint in endpoints if endpoint.server is not None)


def test_a_site_that_has_left_a_node_enters_it_only_when_it_has_everything() -> None:
    cluster = begun()
    server = server_of(cluster, "d")
    assert server._can_enter("j")
    assert not server._can_enter("d")
    cluster.lost = lambda *_: True
    cluster.admit("b", "A")
    cluster.lost = lambda _source, target, _pdu: target != "d"
    cluster.pass_time(50)
    assert server.members.last == 1
    server.members.leave(cluster.now, "e")
    assert not server._can_enter("e")


def test_a_site_that_leaves_a_node_is_given_no_later_entries() -> None:
    cluster = begun()
    cluster.lost = lambda *_: True
    server = server_of(cluster, "b")
    for _ in range(2):
        cluster.admit("b", "A")
    server.members.leave(cluster.now, "c")
    cluster.admit("b", "A")
    held = Held(MOVE.tree, server.members.channel, 0, 0, (2, 3, 4))
    entries = pdus(cluster.give("b", Received("c", held)), Entry)
    assert [entry.seq for entry in entries] == [2]


def test_a_move_stands_in_the_order_as_a_batch() -> None:
    assert move_in(as_batch(MOVE)) == MOVE
    assert move_in(as_batch(MOVE)._replace(bodies=pack([b"no move"]))) is None
    assert move_in(as_batch(MOVE)._replace(number=0)) is None


def test_moves_are_known_without_a_gap() -> None:
    view = begun().members["a"]._member._trees.view
    assert view is not None
    known = KnownMoves(KNOBS)
    known.announced = 2
    second = structs.replace(MOVE, number=2, site="b", source=0, target=1)
    known.learn((second,), view)
    assert known.is_behind
    assert known.members("B", frozenset("bc")) == {"b", "c"}
    known.learn((MOVE, second), view)
    assert not known.is_behind
    assert known.members("B", frozenset("bc")) == {"c", "e"}
    assert known.after(1) == (second,)
    assert known.latest(MOVE.tree) == 2
    assert known.first_after(MOVE.tree, 1) == 2
    assert known.first_after(MOVE.tree, 2) is known.first_after((9, 9), 0) is None


def test_a_receiver_that_leaves_counts_up_to_its_last_entry() -> None:
    outlet = Outlet(0, ("d", "e"))
    for place in (1, 2):
        outlet.add(0, place)
    assert outlet.leave(0, "e") == 2
    outlet.add(0, 3)
    assert outlet.receivers == ("d",)
    outlet.on_held(0, "d", 3, 3)
    assert outlet.held == 0
    assert not outlet.on_held(0, "e", 3, 3)
    outlet.on_held(0, "e", 2, 2)
    assert (outlet.held, outlet.done) == (3, 3)
    outlet.advance_ready(3)
    assert outlet.bounds("e") == (2, 2, 0)
    assert outlet.advance_settled(3) == ["e"]
    assert outlet.bounds("e") == (2, 2, 2)


def test_a_receiver_that_enters_counts_from_the_next_entry_on() -> None:
    outlet = Outlet(0, ())
    outlet.add(0, 1)
    assert outlet.held == 1
    assert outlet.enter(0, "e") == 1
    outlet.add(0, 2)
    assert outlet.held == 1
    outlet.on_held(0, "e", 2, 1)
    assert (outlet.held, outlet.done) == (2, 1)


def test_only_a_member_leaves_a_node_and_only_there_where_a_move_begins() -> None:
    cluster = begun()
    server = server_of(cluster, "d")
    assert "e" in server.members.receivers
    elsewhere = server.node + 1
    for move in (
        structs.replace(MOVE, site="j", source=server.node, target=elsewhere),
        structs.replace(MOVE, number=2, source=elsewhere, target=server.node),
    ):
        vars(server)["_tree"] = SimpleNamespace(step_down=lambda *_: None)
        server._append_move(cluster.now, Placed(as_batch(move), ("a", NO_SESSION, 0), "a"), move)
    assert server._turns == {}
    assert "e" in server.members.receivers


def test_requests_are_kept_for_others_only_where_bodies_travel_apart() -> None:
    cluster = begun()
    endpoints = [
        each for name in cluster.names for each in cluster.members[name]._member._trees._endpoints.values()
    ]
    servers = [each.server for each in endpoints if each.server is not None]
    cluster.admit("e", "A")
    cluster.pass_time(1)
    assert any(server._log for server in servers)
    assert not any(server._requested for server in servers)


# Leaves, and primary sites


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_alters_no_tree_costs_few_pdus_and_keeps_the_tree(change: str) -> None:
    cluster = begun()
    trees, already = trees_at(cluster, "x"), {each: len(cluster.effects[each]) for each in cluster.names}
    reported = change_of(cluster, change)
    cluster.pass_time(160)
    assert cluster.changes(CHANGES[change][0])[-1] == reported
    sent = not_heartbeats(cluster, already)
    assert len(sent) <= 24
    assert sum(map(encoded_size(PDUS), sent)) <= 1200
    assert not any(isinstance(pdu, AGREEING) for pdu in sent)
    assert {cluster.figure(each, "version") for each in cluster.names} == {1}
    assert all(trees_at(cluster, each) == trees for each in cluster.names)
    members_after(cluster, change)
    send_all(cluster)
    cluster.pass_time(60)
    expect_progress(cluster)
    assert not any(cluster.figure(each, what) for each in cluster.names for what in ("kept", "waiting"))


@pytest.mark.parametrize("change", CHANGES)
def test_messages_flow_while_a_site_moves(change: str) -> None:
    """All sites send all the time; the order and the destinations are those that senders named."""
    cluster = begun()
    for turn in range(30):
        if turn == 5:
            reported = change_of(cluster, change)
        send_all(cluster)
        for _ in range(40):
            if cluster.travelling:
                cluster.step()
        cluster.pass_time(7)
    cluster.pass_time(500)
    story = cluster.changes(CHANGES[change][0])
    assert story.index(reported) < len(story) - 1
    assert cluster.figure("a", "version") == 1
    cluster.judge()


def test_a_leave_waits_for_batches_that_name_the_site() -> None:
    """A sender repeats in vain what the primary site of the group never gets."""
    cluster = begun()
    cluster.lost = lambda source, _target, pdu: source == "i" and isinstance(pdu, Request)
    cluster.admit("i", "B")
    cluster.leave("c", "B")
    cluster.pass_time(200)
    assert "-B" not in cluster.changes("c")
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(200)
    assert cluster.changes("c")[-2:] == ["i0", "-B"]
    assert cluster.figure("a", "version") == 1
    cluster.judge()


def test_a_leave_that_never_settles_changes_the_view() -> None:
    cluster = begun()
    cluster.lost = lambda source, _target, pdu: source == "i" and isinstance(pdu, Request)
    cluster.admit("i", "B")
    cluster.leave("c", "B")
    cluster.pass_time(600)
    assert cluster.figure("a", "version") > 1
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(300)
    assert "-B" in cluster.changes("c")
    cluster.judge()


def test_a_site_returns_to_a_node_in_the_next_view() -> None:
    cluster = begun()
    cluster.leave("c", "B")
    cluster.pass_time(200)
    assert cluster.figure("a", "version") == 1
    cluster.join("c", "B")
    cluster.pass_time(200)
    assert cluster.figure("a", "version") == 2
    assert [each for each in cluster.changes("c") if each.endswith("B")] == ["+B", "-B", "+B"]
    expect_progress(cluster)


def test_the_last_site_of_a_meta_group_takes_it_along() -> None:
    """Then the tree changes, also if others were there when the view began."""
    cluster = begun()
    cluster.leave("c", "B")
    cluster.pass_time(200)
    assert cluster.figure("a", "version") == 1
    cluster.leave("b", "B")
    cluster.pass_time(200)
    assert cluster.figure("a", "version") == 2
    assert "-B" in cluster.changes("b")


def test_moves_on_another_tree_do_not_count() -> None:
    """A batch under way on a tree that stays was admitted after moves on a tree that does not. The first move
    of the next view has the same number as those."""
    groups = {"A": "bcde", "B": "bcfg", "X": "uvwx", "Y": "uvyz"}
    cluster = Cluster(groups, others="a")
    cluster.pass_time(120)
    cluster.join("w", "Y")
    cluster.pass_time(120)
    cluster.admit("f", "B")
    assert cluster.refused("f") == 1  # it asks for the move
    cluster.pass_time(20)
    cluster.lost = lambda source, _target, pdu: source == "f" and isinstance(pdu, Request)
    cluster.admit("f", "B")
    cluster.join("x", "Z")
    cluster.pass_time(100)
    assert cluster.figure("f", "version") == 2
    cluster.join("e", "B")
    cluster.pass_time(50)
    assert "+B" in cluster.changes("e")
    cluster.lost = lambda _source, _target, _pdu: False
    cluster.pass_time(100)
    assert "f0B" in cluster.delivered("g")
    assert "f0B" not in cluster.delivered("e")
    cluster.judge()


def test_members_by_the_moves_that_a_sender_knew() -> None:
    assert is_named(is_listed=False, turns={2: True, 5: False}, moves=1) is False
    assert is_named(is_listed=False, turns={2: True, 5: False}, moves=2) is True
    assert is_named(is_listed=False, turns={2: True, 5: False}, moves=5) is False
    assert is_named(is_listed=True, turns={5: False}, moves=4) is True


LEAVE = Move(1, 1, "c", "B", (1, 0), 0, 1)


@pytest.mark.parametrize(
    ("target", "source", "pdu"),
    [
        pytest.param("c", "b", Leave(LEAVE), id="a leave that another site grants"),
        pytest.param("c", "a", Leave(structs.replace(LEAVE, site="b")), id="a leave of another site"),
        pytest.param("c", "a", Leave(structs.replace(LEAVE, version=7)), id="a leave of another version"),
        pytest.param("c", "a", Leave(structs.replace(LEAVE, target=2)), id="not to where it leads"),
        pytest.param("c", "a", Leave(LEAVE), id="a leave that the site does not want"),
        pytest.param("a", "c", Leaving(LEAVE), id="a leave that was not granted"),
    ],
)
def test_lies_about_leaves_have_no_effect(target: str, source: str, pdu: Pdu) -> None:
    cluster = begun()
    cluster.give(target, Received(source, pdu))
    assert pdus(cluster.effects[target], Leaving) == []
    assert not any(each.has_moved for each in cluster.members["c"]._member._trees._endpoints.values())
    cluster.pass_time(50)
    expect_progress(cluster)


def test_a_site_that_wants_to_leave_does_so_at_the_word_of_the_first_site_of_its_view_alone() -> None:
    cluster = begun()
    cluster.lost = lambda *_: True
    cluster.leave("c", "B")

    def leaves(sender: str, move: Move) -> bool:
        return bool(pdus(cluster.give("c", Received(sender, Leave(move))), Leaving))

    assert not leaves("b", LEAVE)
    assert not leaves("a", structs.replace(LEAVE, version=7))
    assert not leaves("a", structs.replace(LEAVE, site="b"))
    assert not leaves("a", structs.replace(LEAVE, target=2))
    assert leaves("a", LEAVE)
    cluster.crash("c")
    cluster.restart("c")
    assert not leaves("a", LEAVE), "it is in no view"


def test_moves_are_told_by_the_first_site_of_the_view_alone() -> None:
    cluster = begun()
    cluster.lost = lambda *_: True

    def learns(target: str, sender: str) -> bool:
        cluster.give(target, Received(sender, Moves((LEAVE,))))
        return len(cluster.members[target]._member._trees.moves) > 0

    assert not learns("d", "b")
    assert learns("d", "a")
    cluster.crash("d")
    cluster.restart("d")
    assert not learns("d", "a"), "it is in no view"
