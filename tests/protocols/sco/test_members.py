"""SCO members that come, go, crash and are left out: what the others then have, and what they say of it."""

import pytest
from msgspec.structs import replace

from antiphon.core.effects import Admitted, Rejected, Stable
from antiphon.core.errors import UsageError
from antiphon.core.fields import INCARNATION_LIMIT
from antiphon.core.inputs import Received, Start, Suspected, TimerFired
from antiphon.core.packing import pack
from antiphon.protocols.sco import ScoConfiguration
from antiphon.protocols.sco.lives import digest_of
from antiphon.protocols.sco.pdus import Answer, Ask, Control, Copy, Data, Holding, Holds, Name
from antiphon.protocols.sco.peer import Batch, Peer, Stream
from tests.protocols.harness.sco_group import KNOBS, Group
from tests.protocols.harness.staging import pdus

MISSED_MS = 600
"""By then a silent member is held to be gone, and all have completed its stream."""


# Crashes


def test_survivors_go_on_without_a_crashed_member() -> None:
    group = Group(4)
    group.crash("d")
    group.send("a", "bcd")
    group.pass_time(100)
    assert group.delivered("b") == []
    group.pass_time(MISSED_MS)
    assert group.delivered("b") == group.delivered("c") == ["a0"]
    assert group.stable("a") == ["a0"]
    assert group.presence("a") == ["-d"]
    assert [group.spells(name) for name in "abc"] == ["", "", ""]


def test_what_one_survivor_holds_of_a_crashed_sender_all_its_destinations_get() -> None:
    group = Group(4)
    group.lost = lambda source, target, pdu: source == "d" and target != "a" and isinstance(pdu, Data)
    group.send("d", "abc")
    group.settle()
    group.crash("d")
    group.lost = lambda *_: False
    group.pass_time(MISSED_MS)
    assert [group.delivered(name) for name in "abc"] == [["d0"]] * 3
    assert group.figure("a", "relays") == 2


def test_what_no_survivor_holds_is_passed_over_by_all_alike() -> None:
    """d0 reached no member and d1 reached a: b and c go on with d1 from a, behind the gap."""
    group = Group(4, ScoConfiguration(vectors="plain"))
    group.lost = lambda source, target, pdu: (
        source == "d" and isinstance(pdu, Data) and (pdu.number == 0 or target == "b")
    )
    group.send("d", "bc")
    group.send("d", "abc")
    group.settle()
    group.crash("d")
    group.lost = lambda *_: False
    group.pass_time(MISSED_MS)
    assert group.delivered("a") == group.delivered("b") == group.delivered("c") == ["d1"]


def test_a_batch_that_cannot_be_read_without_a_lost_one_counts_as_lost_itself() -> None:
    """The vectors of d1 are differences to those of d0, which no survivor has."""
    group = Group(3)
    group.send("a", "c")
    group.pass_time(30)
    group.lost = lambda source, _target, pdu: source == "c" and isinstance(pdu, Data) and pdu.number == 0
    group.send("c", "ab")
    group.send("c", "ab")
    group.settle()
    group.crash("c")
    group.lost = lambda *_: False
    group.pass_time(MISSED_MS)
    group.send("a", "ab")
    group.pass_time(30)
    assert group.delivered("a") == group.delivered("b") == ["a1"]


def test_what_a_survivor_needs_in_between_it_gets_from_another() -> None:
    """b has d1 but not d0, c has both: b can read neither until c's copies come."""
    group = Group(3)
    group.lost = lambda source, target, pdu: (
        (source, target) == ("c", "a") and isinstance(pdu, Data) and pdu.number == 0
    )
    group.send("c", "ab")
    group.send("c", "ab")
    group.settle()
    group.crash("c")
    group.lost = lambda *_: False
    group.pass_time(MISSED_MS)
    assert group.delivered("a") == group.delivered("b") == ["c0", "c1"]


def test_another_crash_on_the_way_begins_it_again() -> None:
    """e's message is held by d alone, which tells a of it and crashes before it tells b and c."""
    group = Group(5)
    group.lost = lambda source, target, pdu: source == "e" and target != "d" and isinstance(pdu, Data)
    group.send("e", "abcd")
    group.settle()
    group.crash("e")
    group.lost = lambda source, target, pdu: (
        source == "d" and target in "bc" and isinstance(pdu, Holds | Copy)
    )
    group.pass_time(550)
    assert group.figure("d", "relays") == 1
    group.crash("d")
    group.lost = lambda *_: False
    group.pass_time(2 * MISSED_MS)
    assert [group.delivered(name) for name in "abc"] == [["e0"]] * 3


def test_a_suspicion_from_outside_is_enough() -> None:
    group = Group(4)
    group.crash("d")
    group.send("a", "bcd")
    group.settle()
    group.give("b", Suspected("d"))
    group.pass_time(60)
    assert group.delivered("b") == group.delivered("c") == ["a0"]


def test_the_window_does_not_wait_for_departed_members() -> None:
    group = Group(4, ScoConfiguration(window=1))
    group.crash("d")
    group.send("a", "d")
    assert isinstance(group.send("a", "b")[0], Rejected)
    group.pass_time(MISSED_MS)
    assert isinstance(group.send("a", "b")[0], Admitted)


def test_destinations_that_are_gone_are_left_out() -> None:
    group = Group(4)
    group.crash("d")
    group.pass_time(MISSED_MS)
    assert group.send("a", "bd")[0] == Admitted(0, 1, 1, frozenset("b"))
    admitted, stable = group.send("a", "d")[:2]
    assert isinstance(admitted, Admitted)
    assert admitted.destinations == frozenset()
    assert isinstance(stable, Stable), "no destination is left that could lack it"
    with pytest.raises(UsageError, match="of the name h"):
        group.send("a", "h")


def test_departed_lives_are_forgotten_once_all_have_completed_their_streams() -> None:
    group = Group(4)
    group.send("d", "abc")
    group.pass_time(30)
    group.crash("d")
    group.pass_time(MISSED_MS + 200)
    state = group.members["a"]._state
    assert state.peers.departed == []
    assert [peer.site for peer in state.peers.names()] == ["a", "b", "c"]
    assert "d" not in {peer.site for peer in state.stamps.csn}


def test_nothing_is_delivered_without_a_departed_member_before_all_know_of_it() -> None:
    """Otherwise a member that was left out wrongly might never learn it, if the others crash."""
    group = Group(4)
    group.crash("d")
    group.send("a", "abd")
    group.pass_time(30)
    group.lost = lambda _source, target, pdu: target == "a" and isinstance(pdu, Holds | Answer)
    group.give("a", Suspected("d"))
    group.pass_time(100)
    assert group.delivered("a") == []
    group.lost = lambda *_: False
    group.pass_time(30)
    assert group.delivered("a") == group.delivered("b") == ["a0"]


def leave_a_gap(group: Group) -> int:
    """c1 reaches a and c0 no member, and c crashes; b has gone on, but has not heard that d has too.

    The digest by which they have.
    """
    group.lost = lambda source, _target, pdu: source == "c" and isinstance(pdu, Data) and pdu.number == 0
    group.send("c", "bd")
    group.send("c", "abd")
    group.settle()
    group.crash("c")
    group.lost = lambda source, target, pdu: (source, target) == ("d", "b") and isinstance(pdu, Control)
    for name in "abd":
        group.give(name, Suspected("c"))
    group.pass_time(40)
    state = group.members["b"]._state
    assert state.lives.final
    assert [former.settled for former in state.peers.departed] == [True]
    return state.lives.digest


@pytest.mark.parametrize("place", [0, 5])
def test_a_batch_that_a_newcomer_holds_after_all_ends_the_spell(place: int) -> None:
    """No present member held it when all went on: it is too late, and the spell ends."""
    group = Group(4, ScoConfiguration(vectors="plain"))
    digest = leave_a_gap(group)
    for _ in range(2):
        group.give("b", Received("e", Holds(0, digest, (Holding(Name("c", 0), (place,)),))))
    assert group.spells("b") == "-+"
    assert group.figure("b", "holes") == 1


def test_a_member_that_completed_a_departed_stream_need_not_confirm_it() -> None:
    """a holds a batch of c that d has gone on without: a does not wait for d's word for ever."""
    group = Group(4, ScoConfiguration(vectors="plain"))
    group.lost = lambda source, target, pdu: (
        (source == "c" and target != "a" and isinstance(pdu, Data))
        or (source == "a" and isinstance(pdu, Holds | Copy))
    )
    group.send("c", "abd")
    group.settle()
    group.crash("c")
    for name in "abd":
        group.give(name, Suspected("c"))
    group.settle()
    for name in "bd":
        state = group.members[name]._state
        group.give(name, Received("a", Holds(0, state.lives.digest, ())))
    group.pass_time(60)
    assert group.delivered("a") == ["c0"]


def test_a_forgotten_life_is_not_waited_for_again() -> None:
    """d is forgotten; while c is being lost, b's table still names it."""
    group = Group(5)
    group.crash("d")
    group.pass_time(MISSED_MS + 200)
    state = group.members["a"]._state
    assert state.peers.departed == []
    group.crash("c")
    group.give("a", Suspected("c"))
    names = (Name("b", 0), Name("a", 0), Name("d", 0, gone=True))
    table = max(state.peers.present["b"].view.tables) + 1
    control = pdus(group.effects["b"], Control)[-1]
    group.give("a", Received("b", replace(control, table=table, names=names, serial=10**6)))
    assert [former.site for former in state.peers.departed] == ["c"]


# Restarts


def test_incarnations_have_a_limit() -> None:
    for incarnation in (-1, INCARNATION_LIMIT):
        with pytest.raises(UsageError, match="no incarnation"):
            Group(1, live=True).members["a"].handle(0, Start(incarnation))
    assert Group(1, live=True).members["a"].handle(0, Start(INCARNATION_LIMIT - 1))


def test_a_restarted_member_is_new_to_the_others_and_takes_part_again() -> None:
    group = Group(3)
    group.send("c", "ab")
    group.pass_time(30)
    group.crash("c")
    group.restart("c")
    group.pass_time(200)
    assert group.presence("a") == ["-c", "+c"]
    assert group.spells("c") == "-+"
    group.send("c", "ab")
    group.send("a", "bc")
    group.pass_time(30)
    assert group.delivered("b") == ["c0", "c1", "a0"]
    assert group.delivered("c") == ["a0"]


def test_what_a_restarted_member_sends_to_others_first_is_no_hole() -> None:
    """a knows from control messages where c's new life begins, before a message of it comes."""
    group = Group(3)
    group.send("c", "ab")
    group.pass_time(30)
    group.crash("c")
    group.restart("c")
    group.lost = lambda _source, target, pdu: target == "a" and isinstance(pdu, Holds | Ask | Copy)
    group.pass_time(100)
    group.send("c", "b")
    group.send("c", "ab")
    group.pass_time(30)
    group.lost = lambda *_: False
    group.pass_time(200)
    assert group.delivered("a") == ["c0", "c2"]
    assert group.spells("a") == ""


@pytest.mark.parametrize(
    ("told", "first"),
    [([(5, 0)], 5), ([(5, 0), (7, 0)], 5), ([(0, 0), (3, 0)], 0), ([(5, 1)], -1), ([(5, 1), (6, 0)], 6)],
)
def test_a_stream_begins_at_the_first_number_before_which_nothing_was_sent(
    told: list[tuple[int, int]], first: int
) -> None:
    stream = Stream()
    for number, sent in told:
        stream.note_sent(number, sent)
    assert stream.first == first


@pytest.mark.parametrize(
    ("waits", "settled", "is_left"), [(True, True, True), (False, False, True), (False, True, False)]
)
def test_an_earlier_life_counts_while_something_of_it_waits_or_may_come(
    waits: bool, settled: bool, is_left: bool
) -> None:
    earlier, later = Peer("a", 0, 0, 1), Peer("a", 1, 0, 1)
    later.predecessor = earlier
    if waits:
        earlier.stream.enqueue(Batch(earlier, 0, pack([b"x"]), (), frozenset(), {}, {}, {}, later))
    if settled:
        earlier.settle()
    assert later.first_life() is (earlier if is_left else later)
    assert later.is_alone() is not is_left


@pytest.mark.parametrize("first", [0, 5])
def test_a_stream_begins_at_its_first_batch_if_nothing_was_told_before(first: int) -> None:
    stream, sender = Stream(), Peer("a", 0, 0, 1)
    for number in (first, first + 3):
        stream.accept(Batch(sender, number, pack([b"x"]), (), frozenset(), {}, {}, {}, sender))
    assert (stream.first, stream.end, stream.received) == (first, first + 4, 2)


def test_a_restarted_member_leaves_out_members_that_it_does_not_remember() -> None:
    """c was named as a destination before a was restarted, and is gone."""
    group = Group(3, live=True)
    group.join(*"abc")
    group.pass_time(200)
    group.depart("c")
    group.pass_time(MISSED_MS)
    group.restart("a")
    group.pass_time(200)
    (admitted,) = [effect for effect in group.send("a", "abc") if isinstance(effect, Admitted)]
    assert admitted.destinations == frozenset("ab")
    group.pass_time(60)
    assert group.delivered("b") == ["a0"]


def test_messages_of_an_earlier_life_come_before_those_of_the_next() -> None:
    """b lacks c0, which a holds; c1, of c's next life, must not overtake it."""
    group = Group(3)
    group.lost = lambda source, target, pdu: (source, target) == ("c", "b") and isinstance(pdu, Data)
    group.send("c", "ab")
    group.settle()
    group.crash("c")
    group.lost = lambda _source, target, pdu: target == "a" and isinstance(pdu, Ask)
    group.restart("c")
    group.pass_time(300)
    group.send("c", "ab")
    group.pass_time(100)
    assert group.delivered("b") == []
    group.lost = lambda *_: False
    group.pass_time(100)
    assert group.delivered("a") == group.delivered("b") == ["c0", "c1"]


def test_a_member_that_leaves_says_so_and_is_not_waited_for() -> None:
    group = Group(3)
    group.send("a", "bc")
    group.depart("c")
    group.pass_time(60)
    assert group.delivered("b") == ["a0"]
    assert group.spells("c") == "-"
    group.come_back("c")
    group.pass_time(200)
    assert group.spells("c") == "-+"
    group.send("a", "bc")
    group.pass_time(30)
    assert group.delivered("c") == ["a1"]


def test_nothing_is_admitted_before_a_member_takes_part() -> None:
    group = Group(2)
    group.crash("b")
    group.restart("b")
    assert isinstance(group.send("b")[0], Rejected)


# Groups that form


def test_members_that_know_no_other_find_one_another() -> None:
    group = Group(3, live=True)
    group.join("a", "b")
    group.pass_time(200)
    group.join("c")
    group.pass_time(200)
    assert group.presence("a") == ["+b", "+c"]
    assert [group.spells(name) for name in "abc"] == ["+", "+", "+"]
    assert group.send("c")[0] == Admitted(0, 1, 1, frozenset("abc"))
    group.pass_time(30)
    assert [group.delivered(name) for name in "abc"] == [["c0"]] * 3


def test_a_member_without_others_takes_part_alone() -> None:
    group = Group(1, live=True)
    group.join("a")
    group.pass_time(200)
    group.send("a")
    assert group.delivered("a") == ["a0"]


def test_a_newcomer_does_not_wait_for_members_that_departed_before_it() -> None:
    group = Group(4, live=True)
    group.join("a", "b", "c")
    group.pass_time(200)
    group.send("c", "ab")
    group.pass_time(30)
    group.crash("c")
    group.pass_time(700)
    group.join("d")
    group.pass_time(200)
    group.send("a", "bd")
    group.send("d", "ab")
    group.pass_time(60)
    assert group.delivered("d") == ["a0"]
    assert group.delivered("b") == ["c0", "a0", "d0"]


def test_a_member_named_in_a_table_counts_before_it_is_heard() -> None:
    """b cannot hear c, but a counts it and sends to both: c's confirmation is waited for."""
    group = Group(3, live=True)
    group.join("a", "b")
    group.pass_time(200)
    group.lost = lambda source, target, _pdu: {source, target} == {"b", "c"}
    group.join("c")
    group.pass_time(30)
    assert "+c" in group.presence("b")
    group.lost = lambda source, _target, _pdu: source == "c"
    group.send("a", "bc")
    group.pass_time(100)
    assert group.delivered("b") == []
    group.lost = lambda *_: False
    group.pass_time(100)
    assert group.delivered("b") == group.delivered("c") == ["a0"]


# Members that are cut off


def separate(group: Group, *cells: str) -> None:
    cell_of = {name: index for index, cell in enumerate(cells) for name in cell}
    group.lost = lambda source, target, _pdu: cell_of[source] != cell_of[target]


def test_a_member_that_is_cut_off_rejoins_and_delivers_nothing_alone() -> None:
    group = Group(3)
    separate(group, "ab", "c")
    group.send("c", "abc")
    group.send("a", "abc")
    group.pass_time(2 * MISSED_MS)
    assert group.delivered("a") == group.delivered("b") == ["a0"]
    assert group.delivered("c") == []
    assert group.spells("c").startswith("-+")
    group.lost = lambda *_: False
    group.pass_time(MISSED_MS)
    assert [group.spells(name) for name in "ab"] == ["", ""]
    group.send("a", "abc")
    group.pass_time(60)
    assert group.delivered("c")[-1:] == ["a1"]


def test_of_two_halves_the_one_with_the_first_name_goes_on() -> None:
    group = Group(4)
    separate(group, "ad", "bc")
    group.send("a", "abcd")
    group.send("b", "abcd")
    group.pass_time(2 * MISSED_MS)
    assert group.delivered("a") == group.delivered("d") == ["a0"]
    assert group.delivered("b") == group.delivered("c") == []
    assert [group.spells(name)[:1] for name in "abcd"] == ["", "-", "-", ""]


def test_members_that_find_out_only_together_that_they_are_few_rejoin_too() -> None:
    """a misses b and e misses c and d: each of them alone would be among three of five."""
    group = Group(5)
    for name in "bcd":
        group.crash(name)
    group.give("a", Suspected("b"))
    group.give("e", Suspected("c"))
    group.give("e", Suspected("d"))
    assert group.spells("a") == group.spells("e") == ""
    group.pass_time(150)
    assert group.spells("a")[:1] == group.spells("e")[:1] == "-"


def test_without_splits_any_survivor_goes_on() -> None:
    group = Group(3, ScoConfiguration(splits=False))
    group.crash("a")
    group.crash("b")
    group.send("c", "abc")
    group.pass_time(2 * MISSED_MS)
    assert group.delivered("c") == ["c0"]
    assert group.spells("c") == ""


def test_newcomers_do_not_make_a_majority_of_a_minority() -> None:
    """a and b are a group; c comes to b while they are apart. Only a, the first, goes on as it was."""
    group = Group(3, live=True)
    group.join("a", "b")
    group.pass_time(200)
    separate(group, "a", "bc")
    group.join("c")
    group.pass_time(100)
    group.send("a", "ab")
    group.pass_time(2 * MISSED_MS)
    assert group.delivered("a") == ["a0"]
    assert group.spells("b") == "+-+"


def test_nor_does_a_member_that_came_back_on_their_side() -> None:
    """e leaves a group of five. Before a can tell c that it knows, they are apart, and e comes to c and d."""
    group = Group(5)
    separate(group, "ab", "cd", "e")
    apart = group.lost
    group.lost = lambda source, target, pdu: source != "e" and apart(source, target, pdu)
    group.send("a", "c")
    group.depart("e")
    group.pass_time(300)
    separate(group, "ab", "cde")
    group.come_back("e")
    group.pass_time(MISSED_MS)
    assert group.stable("a") == ["a0"]
    assert [group.spells(name)[:1] for name in "abcd"] == ["", "", "-", "-"]


def test_a_member_that_was_left_out_wrongly_learns_it_and_rejoins() -> None:
    group = Group(4)
    group.lost = lambda source, _target, _pdu: source == "d"  # d hears, but is not heard
    group.pass_time(MISSED_MS)
    assert group.presence("a") == ["-d"]
    group.lost = lambda *_: False
    group.pass_time(300)
    assert group.spells("d") == "-+"
    group.send("a", "abcd")
    group.pass_time(60)
    assert group.delivered("d") == ["a0"]
    assert [group.spells(name) for name in "abc"] == ["", "", ""]


def test_two_parts_that_exclude_one_another_meet_again() -> None:
    group = Group(4, ScoConfiguration(splits=False))
    separate(group, "ab", "cd")
    group.pass_time(2 * MISSED_MS)
    group.lost = lambda *_: False
    group.pass_time(2 * MISSED_MS)
    for name in "abcd":
        assert group.figure(name, "members") == 4
    group.send("a")
    group.pass_time(60)
    assert [group.delivered(name)[-1:] for name in "abcd"] == [["a0"]] * 4


@pytest.mark.parametrize(("sends", "spells"), [(1, "-+"), (0, "")])
def test_a_member_learns_what_it_missed_between_two_lives_of_another(sends: int, spells: str) -> None:
    """Of two, b gives in to a, which stands still: it goes on under a new life that a finds in place of the
    old one. What b sent in between was not for a, and a must not take it for nothing."""
    group = Group(2)
    group.send("b", "ab")
    group.pass_time(60)
    group.freeze("a")
    group.pass_time(2 * MISSED_MS)
    for _ in range(sends):
        group.send("b")
    group.pass_time(60)
    group.cut = set()
    group.give("a", TimerFired("control"))
    group.pass_time(MISSED_MS)
    group.send("b", "ab")
    group.pass_time(60)
    assert group.delivered("a") == ["b0", f"b{1 + sends}"]
    assert group.spells("a") == spells


def test_a_member_that_stood_still_suspects_no_other() -> None:
    group = Group(3)
    group.pass_time(100)
    group.now += 2_000_000_000
    group.cut = {"a", "b"}
    due = group.timers.pop(("c", "control"))
    assert due < group.now
    group.give("c", TimerFired("control"))
    assert group.spells("c") == ""
    assert group.figure("c", "suspected") == 0


@pytest.mark.parametrize(("late_ns", "is_excused"), [(0, False), (1, True)])
def test_a_timer_that_is_late_by_half_of_the_silence_shows_that_a_member_stood_still(
    late_ns: int, is_excused: bool
) -> None:
    """Then the others are taken to be heard now."""
    group = Group(3)
    now = KNOBS.control_ns + KNOBS.silence_ns // 2 + late_ns
    group.members["a"].handle(now, TimerFired("control"))
    assert group.peer("a", "b").heard_ns == (now if is_excused else 0)


# What travels for that


def test_nothing_is_sent_for_recovery_while_no_member_has_departed() -> None:
    group = Group(3)
    group.send("a")
    group.pass_time(500)
    assert not any(pdus(group.effects[name], Holds) for name in "abc")
    found: list[Control] = [pdu for name in "abc" for pdu in pdus(group.effects[name], Control)]
    assert found
    assert all(pdu.over is None and pdu.final for pdu in found)


def test_recovery_traffic_ends() -> None:
    group = Group(4)
    group.crash("d")
    group.pass_time(MISSED_MS + 100)
    before = sum(len(pdus(group.effects[name], Holds)) for name in "abc")
    group.pass_time(500)
    assert sum(len(pdus(group.effects[name], Holds)) for name in "abc") == before > 0


def test_the_digest_does_not_depend_on_the_order_of_departures() -> None:
    group = Group(5)
    group.crash("d")
    group.crash("e")
    group.give("a", Suspected("d"))
    group.give("b", Suspected("e"))
    group.pass_time(100)
    digests = {group.members[name]._state.lives.digest for name in "abc"}
    assert digests == {digest_of(group.members["a"]._state.lives.over.values())}
