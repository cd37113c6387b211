"""SCO's checks of what members say, each at the value where it decides."""

import pytest

from antiphon.core.effects import Multicast
from antiphon.core.inputs import Received
from antiphon.core.packing import pack
from antiphon.protocols.sco.levels import Remembered
from antiphon.protocols.sco.membership import LONGEST_LEAP
from antiphon.protocols.sco.pdus import MOST_NAMES, TABLE_BYTES, Control, Name
from antiphon.protocols.sco.peer import Batch, Peer
from antiphon.protocols.sco.roster import MOST_LIVES, Roster
from antiphon.protocols.sco.sending import Sending
from antiphon.protocols.sco.state import State
from tests.protocols.harness.sco_group import Group
from tests.protocols.sco.lying import control, for_b


def state_of(group: Group, name: str = "b") -> State:
    return group.members[name]._state


def roster_of(group: Group, name: str = "b") -> Roster:
    return group.members[name]._membership._roster


def sending_of(group: Group, name: str = "b") -> Sending:
    return group.members[name]._sending


# Which lives are over


@pytest.mark.parametrize(("life", "is_over"), [(-1, False), (0, True)])
def test_a_life_is_held_to_be_over_once(life: int, is_over: bool) -> None:
    group = Group(3)
    roster, lives = roster_of(group), state_of(group).lives
    roster.mark_over(0, [Name("a", life, gone=True)])
    assert ("a" in state_of(group).peers.present) != is_over
    digest, changes = lives.digest, len(state_of(group).effects)
    roster.mark_over(0, [Name("a", life, gone=True, left=True)])
    assert not lives.over["a"].left
    assert (lives.digest, len(state_of(group).effects)) == (digest, changes)


@pytest.mark.parametrize(("life", "marked"), [(-1, True), (0, False), (1, False)])
def test_a_member_does_not_judge_its_own_life(life: int, marked: bool) -> None:
    group = Group(3)
    roster_of(group).mark_over(0, [Name("b", life, gone=True)])
    assert ("b" in state_of(group).lives.over) == marked


@pytest.mark.parametrize(("life", "is_over"), [(0, True), (1, False), (9, False), (10, True)])
def test_only_lives_beyond_that_which_speaks_can_be_disproved(life: int, is_over: bool) -> None:
    group = Group(3)
    state = state_of(group)
    state.peers.note_heard(state.peers.present["a"])
    state.lives.note_disproved("a", 9)
    roster_of(group).mark_over(0, [Name("a", life, gone=True)])
    assert ("a" in state.lives.over) == is_over


@pytest.mark.parametrize(("heard", "was_heard"), [(4, False), (5, True), (6, True)])
def test_a_life_was_heard_if_the_site_spoke_with_it_or_a_later_one(heard: int, was_heard: bool) -> None:
    lives = state_of(Group(3)).lives
    lives.note_heard("z", heard)
    assert lives.was_heard(Name("z", 5)) == was_heard


# Room


@pytest.mark.parametrize(("heard", "share"), [(True, 1), (False, 2)])
def test_there_is_room_for_as_many_lives_and_bytes_as_fit_a_table(heard: bool, share: int) -> None:
    group = Group(3)
    peers, roster, name = state_of(group).peers, roster_of(group), Name("z", 0)
    room = peers.room if heard else peers.unheard_room
    fixed = peers.me.wire_bytes + name.wire_bytes()
    for lives, spare_bytes, is_full in (
        (MOST_NAMES // share - 1, 0, False),
        (MOST_NAMES // share, 0, True),
        (0, -1, True),
    ):
        room.lives, room.bytes = lives, TABLE_BYTES // share - fixed - spare_bytes
        assert roster.is_full(name, heard=heard) == is_full


def test_of_a_site_so_many_departed_lives_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Group(3)
    peers, roster = state_of(group).peers, roster_of(group)
    monkeypatch.setattr("antiphon.protocols.sco.peer.Stream.holds", lambda _: (True,))
    for life in range(MOST_LIVES):
        assert not roster.is_full(Name("z", MOST_LIVES), heard=True)
        peers.add_departed(Peer("z", life, 0, 0))
    assert roster.is_full(Name("z", MOST_LIVES), heard=True)


def test_a_departed_life_that_is_dropped_leaves_the_order_of_the_others() -> None:
    peers = state_of(Group(3)).peers
    lives = [Peer("z", life, 0, 0) for life in range(3)]
    for peer, before in zip(lives, [None, *lives], strict=False):
        peer.predecessor = before
        peers.add_departed(peer)
    present = peers.add("z", 3, 0)
    peers.drop_departed(lives[1])
    assert (lives[0].predecessor, lives[2].predecessor, present.predecessor) == (None, lives[0], lives[2])
    peers.drop_departed(lives[2])
    assert present.predecessor is lives[0]


# Claims


@pytest.mark.parametrize(("ahead", "is_surpassed"), [(LONGEST_LEAP, True), (LONGEST_LEAP + 1, False)])
def test_a_member_rises_above_an_end_within_reach(ahead: int, is_surpassed: bool) -> None:
    group = Group(3)
    member = group.members["b"]
    life = member._state.peers.me.life
    said = Control(
        life=0, serial=1, number=0, table=1, targets=b"", ack=b"", buffers=9, gone=0, final=True,
        members=9, atomic=0, over=(Name("b", life + ahead, gone=True),),
    )  # fmt: skip
    assert member._membership._is_our_end("a", said)
    assert (member._membership._next_life > life + ahead) == is_surpassed


@pytest.mark.parametrize(("answered", "followed_at", "followed"), [(-1, -1, 0), (0, -1, 9), (-1, 0, 9)])
def test_what_is_followed_is_taken_back_by_the_first_answer_to_a_later_table(
    answered: int, followed_at: int, followed: int
) -> None:
    group = Group(3)
    state = state_of(group)
    peer, version = state.peers.present["a"], state.peers.version
    state.stamps.csn[peer] = 9
    peer.claims.answered, peer.claims.csn_version = version + answered, version + followed_at
    group.members["b"]._reception._note_answer(peer, version, 0)
    assert state.stamps.csn[peer] == followed


def test_a_remembered_batch_is_found_by_its_sender_and_its_numbers() -> None:
    sender = Peer("a", 0, 0, 0)
    batch = Batch(sender, 3, pack([b"x", b"y"]), (), frozenset(), {}, {}, {}, sender)
    remembered = Remembered(observes=True)
    remembered.add(batch)
    assert [remembered.find("a", number) for number in range(2, 6)] == [None, batch, batch, None]
    assert remembered.find("z", 3) is None


@pytest.mark.parametrize("agrees", [True, False])
def test_a_table_of_a_member_that_agrees_lists_no_life_that_is_over(agrees: bool) -> None:
    group = Group(3)
    state, roster = state_of(group), roster_of(group)
    peer = state.peers.present["a"]
    roster.mark_over(0, [Name("z", 0, gone=True)])
    if agrees:
        peer.view.agree(state.lives.digest)
    roster.learn_table(0, peer, 7, (Name("a", 0), Name("b", 0), Name("z", 0)))
    assert ("z" in peer.view.listed) != agrees


@pytest.mark.parametrize(("digest", "delivered"), [(0, ["a0"]), (1, [])])
def test_what_all_hold_is_believed_of_members_that_agree_on_departed_ones(
    digest: int, delivered: list[str]
) -> None:
    """A sender that has gone on without some other member does not wait for it."""
    group = Group(3)
    group.cut.add("c")
    group.send("a", "bc")
    group.settle()
    assert group.delivered("b") == []
    group.give("b", Received("a", control(number=1, atomic=1, gone=digest, targets=for_b(1, 1))))
    assert group.delivered("b") == delivered


# What a control message says of others


def control_to(group: Group, sites: tuple[str, ...] | None) -> Control:
    state = state_of(group)
    state.effects.clear()
    sending_of(group)._write_control(0, [*state.peers.present.values()], sites, whole=False)
    (sent,) = [effect for effect in state.effects if isinstance(effect, Multicast)]
    assert isinstance(sent.pdu, Control)
    return sent.pdu


def test_a_control_message_names_what_its_receivers_may_not_know() -> None:
    group = Group(3)
    state = state_of(group)
    for peer in state.peers.present.values():
        peer.view.knows_table = state.peers.version
        peer.view.digest = -1
    assert (control_to(group, ("a", "c")).names, control_to(group, ("a", "c")).over) == (None, None)
    assert control_to(group, None).names is not None
    roster_of(group).mark_over(0, [Name("z", 5, gone=True)])
    assert control_to(group, ("a", "c")).over == (Name("z", 5, True),)


def test_no_control_message_is_due_to_a_life_that_is_over_or_to_ourselves() -> None:
    group = Group(3)
    state = state_of(group)
    over, present = state.peers.present["a"], state.peers.present["c"]
    over.gone = True
    for peer in (over, state.peers.me, present):
        peer.outgoing.due_ns = None
        state.timers.confirm_soon(0, peer)
    assert (over.outgoing.due_ns, state.peers.me.outgoing.due_ns) == (None, None)
    assert present.outgoing.due_ns is not None
