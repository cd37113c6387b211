"""A liar's numbers, incarnations and what it leaves behind, in causal order."""

from typing import Any

import pytest

from antiphon.core.inputs import Received
from antiphon.core.packing import pack
from antiphon.protocols.sco import ScoConfiguration
from antiphon.protocols.sco.pdus import SPELL_BITS, Copy, Data, Leave, Name
from antiphon.protocols.sco.vectors import (
    DIFFERENCES,
    LARGEST,
    PLAIN,
    pack_bitmap,
    pack_numbers,
    pack_plain,
    pack_whole,
)
from tests.protocols.harness.sco_group import Group
from tests.protocols.harness.staging import pdus as sent_pdus
from tests.protocols.sco.lying import (
    FAR_LIFE,
    SILENCE_MS,
    SMALL,
    assert_works,
    control,
    control_of,
    data,
    for_b,
    join,
    lie,
    life_of,
)

# Numbers


def batch_of(group: Group, sender: str, to: str, follows: dict[str, int], **changes: Any) -> Data:
    """The next batch of a member, that says what it likes of what it follows."""
    state = group.members[sender]._state
    table = state.peers.names()
    chosen = [index for index, peer in enumerate(table) if peer.site in to]
    fields: dict[str, Any] = {
        "life": state.peers.me.life, "table": state.peers.version, "number": state.peers.next_number,
        "destinations": pack_bitmap(chosen, len(table)),
        "places": pack_numbers(table[index].outgoing.sent for index in chosen),
        "csn": pack_plain([follows.get(peer.site, 0) for peer in table]),
        "ack": pack_whole([0] * len(table)), "atomic": 0, "buffers": 9, "bodies": pack([b"lie"]),
    }  # fmt: skip
    return Data(**(fields | changes))


@pytest.mark.parametrize("number", [1, LARGEST - 1])
def test_a_batch_that_follows_what_was_never_sent_holds_up_no_member(number: int) -> None:
    """d's message follows one of a that there is not; what b and c say after it does too, for a while."""
    group = join(*"abcd")
    lie(group, batch_of(group, "d", "bc", {"a": number}), "b", "c")
    group.send("b")
    group.pass_time(300)
    group.crash("d")
    group.pass_time(SILENCE_MS)
    assert [group.spells(name) for name in "abc"] == ["+"] * 3
    assert all("b0" in group.delivered(name) for name in "abc")
    assert_works(group, *"abc")


def test_what_was_repeated_of_a_lie_is_taken_back() -> None:
    group = join(*"abcd")
    lie(group, batch_of(group, "d", "b", {"a": 1 << 40}), "b")
    state = group.members["b"]._state
    a = state.peers.present["a"]
    assert state.stamps.csn[a] == 1 << 40
    group.send("b", "c")
    group.pass_time(300)
    assert state.stamps.csn[a] == 0
    (taken_back,) = sent_pdus(group.send("b", "c"), Data)
    assert taken_back.csn[0] == PLAIN
    group.pass_time(60)
    (later,) = sent_pdus(group.send("b", "c"), Data)
    assert later.csn[0] == DIFFERENCES  # only what falls has to be told whole
    group.pass_time(60)
    latest = group.peer("c", "b").stream.csn
    assert {peer.site: number for peer, number in latest.items() if peer.site == "a"} == {}
    lie(group, batch_of(group, "d", "b", {"a": 1 << 39}, places=pack_numbers([1]), number=1), "b")
    assert state.stamps.csn[a] == 0


def test_a_next_life_of_a_member_does_not_have_its_numbers_again() -> None:
    group = join(*"abcd")
    lie(group, batch_of(group, "d", "b", {}), "b")
    group.crash("d")
    vector = pack_whole([0, 0])
    told: dict[str, Any] = {"life": life_of(group, "d") + 1, "table": 1, "ack": vector}
    names = (Name("d", told["life"]), Name("b", life_of(group, "b")))
    targets = pack_bitmap({1}, 2) + pack_numbers([0, 0, 1])
    lie(group, control_of(group, names=names, targets=targets, number=0, **told), "b")
    for number in (0, 1):
        told |= {"number": number, "places": pack_numbers([number]), "destinations": pack_bitmap({1}, 2)}
        lie(group, batch_of(group, "d", "b", {}, csn=vector, **told), "b")
    group.pass_time(SILENCE_MS)
    assert group.delivered("b") == ["d0", "d1"]
    assert group.figure("b", "ignored") == 1
    assert_works(group, *"abc")


@pytest.mark.parametrize(("number", "is_delivered"), [(3, False), (2, False), (1, True)])
def test_a_copy_of_a_departed_life_cannot_lie_beyond_where_the_next_life_begins(
    number: int, is_delivered: bool
) -> None:
    """c's next life began at 2: what a repeats of the earlier one ends there."""
    group = Group(3)
    group.crash("c")
    group.give("b", Received("c", control(life=1, number=2, targets=for_b(0, 1), names=table_of_c(1))))
    vector = pack_whole([0, 0])
    names = (Name("c", 0), Name("b", 0))
    forged = Copy(0, names, number, pack_bitmap({1}, 2), pack_numbers([0]), vector, vector, pack([b"x"]))
    group.give("b", Received("a", forged))
    group.pass_time(SILENCE_MS)
    assert group.delivered("b") == ([f"c{number}"] if is_delivered else [])


def test_a_copy_of_a_life_that_never_spoke_is_not_delivered() -> None:
    """a invents a later life of c, and a batch of it with a number that c may still use."""
    group = Group(3)
    group.send("c")
    group.pass_time(30)
    group.crash("c")
    invented = 7 << SPELL_BITS
    names = (Name("c", invented, gone=True), Name("b", 0))
    for serial in (1000, 1001):  # the first ends c's real life, the second the invented one
        group.give("b", Received("a", control(serial=serial, over=names[:1])))
    vector = pack_whole([0, 0])
    forged = Copy(0, names, 1, pack_bitmap({1}, 2), pack_numbers([0]), vector, vector, pack([b"x"]))
    group.give("b", Received("a", forged))
    group.pass_time(SILENCE_MS)
    assert group.delivered("b") == ["c0"]
    assert group.figure("b", "holes") == 1


def test_a_member_that_went_on_under_a_later_incarnation_does_not_have_its_numbers_again() -> None:
    """a says that a later incarnation of c is over, and forges a number that c uses in the next."""
    group = Group(3)
    group.send("c")
    group.pass_time(30)
    over = (Name("c", 0, gone=True), Name("b", 0))
    group.give("b", Received("a", control(serial=1000, over=over[:1])))
    vector = pack_whole([0, 0])
    forged = Copy(0, over, 1, pack_bitmap({1}, 2), pack_numbers([1]), vector, vector, pack([b"x"]))
    group.give("b", Received("a", forged))
    group.give("c", Received("a", control(serial=1000, over=(Name("c", 7 << SPELL_BITS, gone=True),))))
    group.pass_time(SILENCE_MS)
    for _ in range(2):
        group.send("c")
        group.pass_time(SILENCE_MS)
    assert life_of(group, "c") >> SPELL_BITS == 7
    assert group.delivered("b") == ["c0", "c1", "c2"]


def table_of_c(life: int) -> tuple[Name, ...]:
    return (Name("a", 0), Name("b", 0), Name("c", life))


def test_a_batch_that_follows_what_we_have_not_sent_does_not_hold_us_up() -> None:
    group = join(*"abcd")
    lie(group, batch_of(group, "d", "a", {"a": 7}), "a")
    assert group.delivered("a") == ["d0"]


def test_a_number_that_leapt_is_taken_back_by_the_next_batch() -> None:
    group = Group(3)
    group.give("b", Received("a", control(number=1 << 40, targets=for_b(0, 1))))
    group.send("a")
    group.pass_time(60)
    assert group.delivered("b") == ["a0"]
    assert group.peer("b", "a").stream.frontier == 1


def test_a_serial_and_a_table_that_leapt_do_not_outweigh_those_that_follow() -> None:
    group = join(*"abcd")
    names = (Name("d", life_of(group, "d")), Name("b", life_of(group, "b")))
    lie(group, control_of(group, serial=1 << 40, table=1 << 40, names=names, gone=5), "b")
    peer = group.peer("b", "d")
    assert peer.view.digest == 5
    group.pass_time(100)
    assert peer.view.digest == 0
    assert_works(group, *"abcd")


def test_a_place_far_ahead_is_not_asked_for() -> None:
    group = Group(3, SMALL)
    group.give("b", Received("a", data(places=pack_numbers([SMALL.reach]))))
    assert group.peer("b", "a").stream.needed == 0
    group.give("b", Received("a", data(places=pack_numbers([SMALL.reach - 1]))))
    assert SMALL.reach - 1 in group.peer("b", "a").stream.ahead


def test_what_there_is_no_room_for_is_asked_for_later() -> None:
    group = Group(3, ScoConfiguration(window=2, buffers=1))
    both = {"destinations": pack_bitmap({1, 2}, 3), "places": pack_numbers([0, 0])}
    group.give("b", Received("a", data(**both)))
    group.give("b", Received("a", data(number=5, places=pack_numbers([2]))))
    assert group.figure("b", "overruns") == 1
    assert group.peer("b", "a").stream.needed == 3


def test_a_batch_for_an_earlier_life_of_ours_is_passed_over() -> None:
    group = Group(3)
    names = (Name("a", 0), Name("b", 5))
    vector = pack_whole([0, 0])
    group.give("b", Received("a", control(table=2, names=names, targets=b"\0", ack=vector)))
    group.give("b", Received("a", data(table=2, destinations=b"\2", csn=vector, ack=vector)))
    peer = group.peer("b", "a")
    assert (group.figure("b", "ignored"), peer.stream.received, peer.stream.needed) == (0, 0, 0)


# Lives that others name


def names_of(group: Group, life: int, *, gone: bool = False) -> tuple[Name, ...]:
    """A table of d, which names a life of c."""
    return (Name("d", life_of(group, "d")), Name("b", life_of(group, "b")), Name("c", life, gone=gone))


def tell(group: Group, names: tuple[Name, ...], version: int) -> None:
    vector = pack_whole([0] * len(names))
    changes: dict[str, Any] = {"serial": 10_000 + version, "table": version, "ack": vector}
    targets = pack_bitmap((), len(names))
    lie(group, control_of(group, names=names, targets=targets, **changes), "b")


def repeat(group: Group, names: tuple[Name, ...]) -> None:
    """d repeats a batch of its own, to b."""
    vector = pack_whole([0] * len(names))
    to = pack_bitmap({1}, len(names))
    life = life_of(group, "d")
    lie(group, Copy(life, names, 0, to, pack_numbers([0]), vector, vector, pack([b"lie"])), "b")


def test_a_later_life_of_a_member_that_speaks_is_not_believed() -> None:
    """b once took c's life for over, and delivered what follows c's messages before them."""
    group = join(*"abcd")
    life = life_of(group, "c")
    tell(group, names_of(group, life + 1), 100)
    repeat(group, names_of(group, life + 1))
    assert group.peer("b", "c").life == life
    assert 100 not in group.peer("b", "d").view.tables
    assert group.delivered("b") == []
    assert [group.spells(name) for name in "abc"] == ["+"] * 3
    tell(group, names_of(group, life), 101)
    repeat(group, names_of(group, life))
    assert 101 in group.peer("b", "d").view.tables
    assert group.delivered("b") == ["d0"]


@pytest.mark.parametrize(("silent", "is_believed"), [(-1, False), (0, True)])
def test_a_later_life_of_a_member_that_has_fallen_silent_is_believed(silent: int, is_believed: bool) -> None:
    """c may have begun anew, and only d has heard it."""
    group = join(*"abcd")
    life = life_of(group, "c")
    known = group.peer("b", "c")
    group.now = known.heard_ns + group.members["b"]._state.configuration.silence_ns + silent
    tell(group, names_of(group, life + 1), 100)
    assert (group.peer("b", "c").life == life + 1) == is_believed


def test_a_table_may_name_lives_that_are_over() -> None:
    """c rejoins at once, since it learns that its life is taken to be over."""
    group = join(*"abcd")
    life = life_of(group, "c")
    tell(group, names_of(group, life + 1, gone=True), 100)
    assert 100 in group.peer("b", "d").view.tables
    assert group.peer("b", "c").life > life


def test_a_life_that_its_site_has_disproved_holds_up_no_table() -> None:
    group = join(*"abcd")
    life = life_of(group, "c")
    group.members["b"]._state.lives.note_disproved("c", life + 1)
    tell(group, names_of(group, life + 1), 100)
    assert 100 in group.peer("b", "d").view.tables
    assert group.peer("b", "c").life == life


# What a liar has left behind


def test_places_beyond_every_window_are_not_waited_for_once_their_sender_is_gone() -> None:
    """b holds a batch of d that is said to have a place at a which no honest member's has."""
    group = join(*"abcd")
    group.lost = lambda source, _target, _pdu: source == "d"
    lie(group, batch_of(group, "d", "ab", {}, places=pack_numbers([1 << 40, 0])), "b")
    group.pass_time(SILENCE_MS)
    assert_works(group, *"abc")
    assert group.spells("a") == "+"
    assert "d0" in group.delivered("b")


def test_a_batch_that_makes_no_sense_to_another_is_not_waited_for_once_its_sender_is_gone() -> None:
    """It confirms what a has not sent; only a can know."""
    group = join(*"abcd")
    group.lost = lambda source, _target, _pdu: source == "d"
    table = group.members["d"]._state.peers.names()
    ack = pack_whole([5 if peer.site == "a" else 0 for peer in table])
    lie(group, batch_of(group, "d", "ab", {}, ack=ack), "a", "b")
    group.pass_time(SILENCE_MS)
    assert_works(group, *"abc")
    assert group.spells("a") == "+"
    assert "d0" in group.delivered("b")


def mislead(group: Group, to: str, csn: dict[str, int]) -> None:
    """d tells one member what is not so, and tells everyone that it has sent a message."""
    lie(group, batch_of(group, "d", to, csn), to)
    state = group.members["d"]._state
    state.peers.me.stream.frontier += 1


@pytest.mark.parametrize("claimed", [1, 2, 3])
def test_what_was_sent_after_a_batch_had_come_does_not_precede_it(claimed: int) -> None:
    """b repeats that a has sent what it has not; what a sends then follows b's message, and says so."""
    group = join(*"abcd")
    mislead(group, "b", {"a": claimed})
    group.send("b", "ac")
    group.settle()
    group.send("a", "bc")
    group.send("a", "bc")
    group.pass_time(40)
    assert group.delivered("c") == ["b0", "a0", "a1"]
    assert [group.spells(name) for name in "abc"] == ["+"] * 3


def test_a_batch_waits_for_nothing_that_its_destination_has_yet_to_send() -> None:
    """b repeats a lie about a, which says by its confirmation that it has sent nothing before b's message."""
    group = join(*"abcd")
    mislead(group, "b", {"a": 1})
    group.send("b", "ac")
    group.pass_time(20)
    assert group.delivered("a") == group.delivered("c") == ["b0"]


def test_a_confirmation_does_not_stand_for_what_was_lost_before_it() -> None:
    """c has b's message, and a's word that it came; what a sent before is under way."""
    group = Group(3)
    group.lost = lambda source, target, pdu: (source, target) == ("a", "c") and isinstance(pdu, Data | Copy)
    group.send("a", "bc")
    group.settle()
    group.send("b", "ac")
    group.pass_time(60)
    assert group.delivered("c") == []
    group.lost = lambda _source, _target, _pdu: False
    group.pass_time(60)
    assert group.delivered("c") == ["a0", "b0"]


def test_messages_that_wait_for_one_another_are_freed() -> None:
    """a and b were told, each of the other, that it has sent one message, and send it then."""
    group = join(*"abcd")
    mislead(group, "a", {"b": 1})
    mislead(group, "b", {"a": 1})
    group.send("a", "abc")
    group.send("b", "abc")
    group.pass_time(100)
    assert not {"a0", "b0"} & set(group.delivered("c"))
    group.pass_time(100)
    assert all({"a0", "b0"} <= set(group.delivered(name)) for name in "abc")
    assert [group.spells(name) for name in "abc"] == ["+"] * 3
    group.crash("d")
    group.pass_time(SILENCE_MS)
    assert_works(group, *"abc")


# Incarnations


def test_a_member_tells_the_latest_incarnation_that_a_site_spoke_with() -> None:
    group = join(*"ab")
    member = group.members["a"]
    assert [member.incarnation_of(name) for name in "bz"] == [1, 0]
    lie(group, Leave((7 << SPELL_BITS) + 3), "a", sender="z")
    lie(group, Leave(6 << SPELL_BITS), "a", sender="z")
    lie(group, control_of(group, "b", over=(Name("y", FAR_LIFE, gone=True),)), "a", sender="b")
    assert [member.incarnation_of(name) for name in "zy"] == [7, 0]


def test_a_member_that_is_restarted_above_what_others_report_is_met() -> None:
    """Its clock was set back meanwhile."""
    group = join(*"abc")
    group.incarnations["d"] = 10**6
    group.members["d"] = group.build("d")
    group.join("d")
    group.pass_time(200)
    group.crash("d")
    group.incarnations["d"] = group.members["a"].incarnation_of("d")
    group.restart("d")
    group.pass_time(300)
    assert life_of(group, "d") == (10**6 + 1) << SPELL_BITS
    assert_works(group, *"abcd")


def test_a_member_that_is_restarted_below_what_others_remember_leaps_above_it() -> None:
    group = join(*"abc")
    group.incarnations["d"] = 10**6
    group.members["d"] = group.build("d")
    group.join("d")
    group.pass_time(200)
    group.crash("d")
    group.incarnations["d"] = 10
    group.restart("d")
    group.pass_time(1500)
    assert life_of(group, "d") > 10**6 << SPELL_BITS
    assert_works(group, *"abcd")


def test_a_life_beyond_reach_does_not_hide_one_that_can_be_surpassed() -> None:
    """A member that was told of the former still gives in where others hold the latter to be over."""
    group = join(*"abc")
    lie(group, control_of(group, over=(Name("a", FAR_LIFE, gone=True),)), "a")
    claimed = life_of(group, "a") + (5 << SPELL_BITS)
    lie(group, control_of(group, over=(Name("a", claimed, gone=True),)), "a")
    assert life_of(group, "a") > claimed
    lie(group, control_of(group, over=(Name("a", FAR_LIFE, gone=True),)), "a")
    assert group.members["a"].figures()["begun_anew"] == 2
