"""A member that says what is not so, under its own name: the others go on as if it had said nothing."""

import struct
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from antiphon.core.effects import Absent, Deliver, Multicast, Present, Send, SetTimer, Stable, Vanished
from antiphon.core.fields import INCARNATION_LIMIT, LONGEST_NAME, MOST_NAMES, NUMBER_LIMIT
from antiphon.core.inputs import Admit, Received, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.fifo import PDUS, REPAIRS, Fifo, FifoConfiguration
from antiphon.protocols.fifo.group import MOST_DEPARTED, Peer
from antiphon.protocols.fifo.layer_host import LONGEST_ROUND, MOST_PAST_VIEWS
from antiphon.protocols.fifo.membership import MOST_AHEAD
from antiphon.protocols.fifo.pdus import BATCH_LIMIT, Ask, Copy, Data, Extent, Leaving, Mark, Position, Status
from antiphon.protocols.fifo.repair import MOST_COPIES, holds
from antiphon.protocols.fifo.streams import Stream
from antiphon.protocols.stability import PDUS as STABILITY_PDUS
from antiphon.protocols.stability import PROTOCOLS
from antiphon.protocols.stability.base import read_counts
from antiphon.protocols.stability.coordp import Acknowledgement, Information, StartRound
from antiphon.protocols.stability.fulldist import Purpose, Row
from antiphon.protocols.stability.s_coordp import ChildReport
from antiphon.protocols.stability.s_train import SiblingReport
from antiphon.protocols.stability.train import Carriage, Receipt
from tests.protocols.harness.fifo_group import KNOBS, Group
from tests.protocols.harness.gate import pass_gate

repairs = pytest.mark.parametrize("repair", REPAIRS)
FAR = 1 << 40
CODEC = Codec(PDUS)
ONE = pack([b"x"])


def claim(site: str, held: int = 0, **more: Any) -> Extent:
    """What a liar says of a site's messages."""
    return msgspec.structs.replace(Extent(site, 0, True, True, 0, held, 0, 0), **more)


def lie(
    members: Group,
    liar: str,
    to: Iterable[str],
    *extents: Extent,
    marks: tuple[Mark, ...] = (),
    serial: int = 0,
) -> None:
    """A status of the liar's, in everyone's view, that goes to some."""
    for target in to:
        group = members.members[target]._group
        peer = group.peers[liar]
        own = claim(liar, peer.stream.expected, stable=peer.stream.stable)
        said = (*extents, *([own] if all(extent.site != liar for extent in extents) else []))
        status = Status(0, peer.spell, serial or peer.serial + 1, group.view.number, said, marks)
        received = pass_gate(CODEC, liar, status)
        assert received is not None
        members.give(target, received)


def stream(members: Group, of: str, at: str) -> Stream:
    return members.members[at]._group.peers[of].stream


def peer(members: Group, of: str, at: str) -> Peer:
    return members.members[at]._group.peers[of]


def all_deliver(members: Group, sender: str, names: str, span_ms: float = 400) -> bool:
    """Whether a new message reaches these members."""
    before = members.admitted[sender]
    members.admit(sender)
    members.pass_time(span_ms)
    return members.admitted[sender] > before and all(
        f"{sender}{before}" in members.delivered(name) for name in names
    )


def spells_ended(members: Group, names: str) -> int:
    return sum(len(members.of(name, Absent)) for name in names)


# Incarnations


@repairs
@pytest.mark.parametrize("field", ["incarnation", "next_incarnation"])
def test_others_cannot_say_that_a_site_began_anew(repair: str, field: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.admit("b")
    members.pass_time(100)
    lie(members, "c", "a", claim("b", 5, **{field: 7}))
    assert peer(members, "b", "a").incarnation == 0
    assert all_deliver(members, "b", "ac")
    assert spells_ended(members, "abc") == 0


def test_a_member_reports_the_incarnations_that_it_has_heard() -> None:
    members = Group(3)
    first = members.members["a"]
    assert [first.incarnation_of(name) for name in "abc"] == [0, 0, 0]
    members.crash("b")
    members.restart("b")
    members.pass_time(300)
    lie(members, "c", "a", claim("nobody", 5, incarnation=9), claim("b", 5, incarnation=9))
    assert [first.incarnation_of(name) for name in ("a", "b", "c", "nobody")] == [0, 1, 0, 0]
    assert members.members["b"].incarnation_of("b") == 1


def test_what_was_forgotten_of_a_member_is_all_but_its_incarnation() -> None:
    members = Group(3)
    for _ in range(2):
        members.crash("b")
        members.restart("b")
    members.pass_time(300)
    members.crash("b")
    members.pass_time(members.knobs.forget_after_ns / MILLISECOND_NS + 1_000)
    assert "b" not in members.members["a"]._group.peers
    assert members.members["a"].incarnation_of("b") == 2


def test_the_incarnations_of_forgotten_members_are_bounded() -> None:
    group = Group(2).members["a"]._group

    def come_and_go(site: str, incarnation: int) -> None:
        group.drop(group.add(site, incarnation, 0))

    for number in range(MOST_DEPARTED + 10):
        come_and_go(f"x{number}", 5)
    come_and_go("x100", 3)
    assert len(group._last_incarnations) == len(group._departed) == MOST_DEPARTED
    assert group.incarnation_of("x100") == 5
    assert group.incarnation_of("x9") == 0
    come_and_go("x100", INCARNATION_LIMIT // 2)
    assert group.incarnation_of("x100") == 5
    come_and_go("x100", INCARNATION_LIMIT // 2 - 1)
    assert group.incarnation_of("x100") == INCARNATION_LIMIT // 2 - 1


# Numbers


@repairs
def test_others_cannot_say_how_far_a_site_has_gone(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.pass_time(100)
    lie(members, "c", "a", claim("b", FAR))
    assert stream(members, "b", "a").end == FAR
    members.pass_time(120)
    assert stream(members, "b", "a").end == 0
    assert all_deliver(members, "b", "ac")
    assert spells_ended(members, "abc") == 0


@repairs
def test_a_member_excluded_by_a_lie_returns(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.pass_time(100)
    lie(members, "c", "a", claim("b", FAR), marks=(Mark("a", 0, 0),))
    assert not members.members["a"]._presence.taking_part
    members.pass_time(500)
    assert members.members["a"]._presence.taking_part
    assert all_deliver(members, "b", "ac")


@repairs
def test_an_excluded_member_rejoins_at_once_only_where_nothing_reaches_it_before(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.pass_time(100)
    lie(members, "c", "a", claim("b", FAR))
    lie(members, "c", "a", claim("b", FAR), marks=(Mark("a", 0, 0),))
    assert not members.members["a"]._presence.taking_part
    assert members.members["a"].figures()["rejoined"] == (repair == "acknowledge")


def test_what_is_found_to_be_stable_needs_no_acknowledgement() -> None:
    members = Group(3)
    members.pass_time(100)
    members.cut |= {"b", "c"}
    members.admit("a")
    members.settle()
    assert [peer(members, of, "a").acked for of in "bc"] == [0, 0]
    members.members["a"]._stability._release_found(members.now, [Stable("b", 0, 0)])
    assert [peer(members, of, "a").acked for of in "bc"] == [0, 0]
    members.members["a"]._stability._release_found(members.now, [Stable("a", 0, 1)])
    assert [peer(members, of, "a").acked for of in "bc"] == [1, 1]


@repairs
def test_nothing_is_stable_that_its_sender_has_not_sent(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.pass_time(100)
    lie(members, "c", "a", claim("b", FAR, stable=FAR))
    assert stream(members, "b", "a").excused == 0
    assert spells_ended(members, "abc") == 0
    assert all_deliver(members, "b", "ac")


def test_what_was_declared_stable_without_us_ends_our_spell_once_its_sender_announced_it() -> None:
    members = Group(3)
    members.pass_time(100)
    members.cut.add("b")
    members.pass_time(20)
    own = claim("b", 4, stable=4, kept_from=4)
    members.give("a", Received("b", Status(0, 0, 900, 0, (own, claim("a")))))
    assert members.of("a", Absent) == [Absent()]


def test_a_report_that_the_sender_corrects_excuses_nothing() -> None:
    held = Stream("b", 0)
    held.begin(0, 3, 3)
    held.end = held.excused = FAR
    held.ahead[6] = pack([b"x", b"y"])
    held.on_end(5)
    assert (held.end, held.announced, held.excused, held.seen) == (8, 8, 8, 8)
    held.ahead.clear()
    held.on_end(5)
    assert (held.end, held.announced, held.excused, held.seen) == (5, 5, 5, 5)
    held.on_end(1)
    assert (held.end, held.announced, held.excused, held.seen) == (3, 3, 3, 3)


@pytest.mark.parametrize("repair", ["request", "hybrid"])
def test_a_place_where_a_sender_never_was_is_left_when_it_returns(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.admit("b")
    members.pass_time(100)
    members.depart("b")
    members.pass_time(50)
    lie(members, "c", "a", claim("b", FAR, kept_from=FAR - 1))
    assert stream(members, "b", "a").expected == FAR - 1
    members.come_back("b")
    members.pass_time(500)
    assert all_deliver(members, "b", "ac")
    assert members.delivered("a", "b") == ["b0", "b1"]


def test_a_member_goes_on_where_it_was_although_an_old_report_of_the_sender_comes_late() -> None:
    held = Group(2)
    held.pass_time(10)
    following = held.members["a"]._membership._following
    known = peer(held, "b", "a")
    known.stream.jump(7)
    known.stream.unconfirmed = 7
    known.stream.take(7, ONE, keep=True)
    following.on_end(held.now, known, claim("b", 5))
    assert known.stream.expected == 8
    assert known.stream.unconfirmed is None
    known.stream.unconfirmed = 8
    presence = held.members["a"]._presence
    before = presence.spell, presence.missed
    following.on_end(held.now, known, claim("b", 8))
    assert (known.stream.expected, known.stream.unconfirmed) == (8, None)
    assert (presence.spell, presence.missed) == before, "nothing was missed"
    assert held.of("a", Absent) == []


@pytest.mark.parametrize("repair", ["acknowledge", "request", "request-all"])
def test_no_member_goes_back_for_what_another_cannot_keep(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    for _ in range(3):
        members.admit("b")
    members.pass_time(100)
    members.depart("b")
    members.pass_time(50)
    lie(members, "c", "a", claim("b", 9, kept_from=1))
    lie(members, "c", "a", claim("b", 9, kept_from=3))
    assert stream(members, "b", "a").expected == 3
    members.come_back("b")
    members.pass_time(500)
    assert all_deliver(members, "b", "ac")
    assert members.delivered("a", "b") == ["b0", "b1", "b2", "b3"]


def statuses(members: Group, name: str) -> list[Pdu]:
    return [pdu for source, _, pdu in members.said(Status) if source == name]


@pytest.mark.parametrize("apart", [False, True])
def test_a_members_pdus_make_sense_whatever_numbers_it_received(apart: bool) -> None:
    members = Group(3, apart=apart)
    if apart:
        for name in members.names:
            members.start(name)
    members.pass_time(300)
    incarnation = members.incarnations["c"]
    last = NUMBER_LIMIT - BATCH_LIMIT - 1
    own = Extent("c", incarnation, True, True, 0, NUMBER_LIMIT - 1, NUMBER_LIMIT - 1, NUMBER_LIMIT - 1)
    for number in (0, last - 1, last):
        for pdu in (
            Status(incarnation, 0, 1 << 19, 0, (own, claim("a", incarnation=incarnation))),
            Data(incarnation, number, 0, b"", pack([b"", b""])),
            Copy("c", incarnation, number, pack([b"", b""])),
        ):
            received = pass_gate(CODEC, "c", pdu)
            assert received is not None
            for target in "ab":
                members.give(target, received)
    members.pass_time(300)
    for name in "ab":
        assert all(isinstance(CODEC.decode(CODEC.encode(pdu)), Packet) for pdu in statuses(members, name))


def test_a_serial_that_leaps_is_no_later_word() -> None:
    members = Group(3)
    members.pass_time(2_000)
    before = peer(members, "c", "a").serial
    lie(members, "c", "a", serial=before + MOST_AHEAD + 1)
    members.give("a", Received("c", Leaving(0, before + MOST_AHEAD + 1)))
    assert peer(members, "c", "a").serial == before
    assert not peer(members, "c", "a").left
    lie(members, "c", "a", serial=before + MOST_AHEAD)
    assert peer(members, "c", "a").serial == before + MOST_AHEAD
    members.give("a", Received("c", Leaving(0, before + MOST_AHEAD)))
    assert not peer(members, "c", "a").left
    members.give("a", Received("c", Leaving(0, before + MOST_AHEAD + 1)))
    assert peer(members, "c", "a").left


def test_the_first_serial_may_be_any_and_the_next_may_not_leap_even_from_0() -> None:
    members = Group(3)
    for first, leap in ((0, MOST_AHEAD + 1), (5 * MOST_AHEAD, 6 * MOST_AHEAD + 1)):
        teller = peer(members, "c", "a")
        teller.serial = -1
        lie(members, "c", "a", serial=first)
        lie(members, "c", "a", serial=leap)
        assert teller.serial == first


# Messages


@repairs
def test_others_cannot_send_what_a_site_has_not_sent(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.admit("b")
    members.pass_time(100)
    members.give("a", Received("c", Copy("b", 0, 1, ONE)))
    assert members.delivered("a", "b") == ["b0"]
    assert members.members["a"].ignored == 1
    assert all_deliver(members, "b", "ac")
    assert members.delivered("a", "b") == ["b0", "b1"]


@repairs
def test_another_may_repeat_a_message_where_others_keep_it(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.pass_time(10)
    members.give("a", Received("b", Data(0, 2, 0, b"", ONE)))
    members.give("a", Received("c", Copy("b", 0, 0, pack([b"x", b"y"]))))
    keeps = members.knobs.others_keep
    assert members.delivered("a", "b") == (["b0", "b1", "b2"] if keeps else [])
    members.give("a", Received("c", Copy("b", 0, 3, ONE)))
    assert stream(members, "b", "a").expected == (3 if keeps else 0)


@pytest.mark.parametrize("repair", ["any", "hybrid"])
def test_of_a_sender_that_is_silent_another_may_give_what_members_say_they_hold(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.pass_time(100)
    members.cut.add("b")
    members.pass_time(200)
    lie(members, "c", "a", claim("b", 1))
    members.give("a", Received("c", Copy("b", 0, 0, pack([b"x", b"y"]))))
    assert members.delivered("a", "b") == []
    members.give("a", Received("c", Copy("b", 0, 0, ONE)))
    assert members.delivered("a", "b") == ["b0"]


@repairs
def test_batches_that_a_liar_has_cut_fit_again(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.drop = lambda source, target, pdu: (source, target) == ("b", "a") and isinstance(pdu, Data)
    members.admit("b", b"0", b"1", b"2")
    members.settle()
    members.give("a", Received("b", Data(0, 0, 0, b"", pack([b"0"]))))
    members.pass_time(300)
    assert members.delivered("a", "b") == ["b0", "b1", "b2"]
    bodies = [body for effect in members.of("a", Deliver) if effect.sender == "b" for body in effect.bodies]
    assert bodies == [b"0", b"1", b"2"]


def test_the_rest_of_a_batch_keeps_its_flags_and_addresses() -> None:
    members = Group(2)
    only_a = frozenset("a")
    whole = pack([b"0", b"1", b"2"], unfinished=True, continuing=True, addresses=[None, only_a, None])
    members.give("a", Received("b", Data(0, 0, 0, b"", pack([b"0"]))))
    members.give("a", Received("b", Data(0, 0, 0, b"", whole)))
    (_, rest) = members.of("a", Deliver)
    assert (rest.number, list(rest.bodies)) == (1, [b"1", b"2"])
    assert (rest.bodies.unfinished, rest.bodies.continuing) == (True, False)
    assert rest.bodies.addresses.each() == [only_a, None]


def test_a_kept_batch_is_found_by_any_of_its_messages() -> None:
    held = Stream("b", 0)
    held.begin(0, 0, 0)
    for number, count in ((0, 1), (1, 3), (4, 2)):
        held.take(number, pack([b"x"] * count), keep=True)
    assert [held.copies(start, 6, 10) for start in range(7)] == [
        [0, 1, 4],
        [1, 4],
        [1, 4],
        [1, 4],
        [4],
        [4],
        [],
    ]
    assert held.copies(0, 6, 2) == [0, 1]
    assert held.copies(5, 5, 10) == []
    held.release(1)
    assert held.copies(0, 6, 10) == []


# Requests


@pytest.mark.parametrize("repair", ["request", "request-all", "hybrid"])
def test_one_request_costs_no_more_copies_than_are_sent(repair: str) -> None:
    members = Group(2, FifoConfiguration(repair=repair))
    for _ in range(3 * MOST_COPIES):
        members.admit("a")
    asked = members.give("a", Received("b", Ask("a", 0, (0, FAR) * 16)))
    assert 0 < sum(isinstance(effect, Send | Multicast) for effect in asked) <= MOST_COPIES


def test_only_members_are_given_copies_and_only_for_spans_that_end() -> None:
    members = Group(2, FifoConfiguration(repair="request"))
    members.admit("a")
    assert members.give("a", Received("stranger", Ask("a", 0, (0, 1)))) == []
    assert members.give("a", Received("b", Ask("a", 0, (0, 1, 2)))) == []
    assert members.members["a"].ignored == 2
    assert members.give("a", Received("b", Ask("a", 0, (0, 1)))) != []


@pytest.mark.parametrize("repair", ["request", "request-all", "hybrid", "any"])
def test_a_request_for_what_is_gone_gets_a_status_and_one_for_what_is_to_come_does_not(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    assert members.give("a", Received("b", Ask("a", 0, (0, 1)))) == []
    for name in "ac":
        members.admit(name)
    members.pass_time(200)
    (told,) = members.give("a", Received("b", Ask("a", 0, (0, 1))))
    assert isinstance(told, Send)
    assert isinstance(told.pdu, Status)
    assert members.give("a", Received("b", Ask("a", 0, (1, 2)))) == []
    # Of another's messages only who was asked alone says so, and only if it would keep them.
    asked_alone = members.give("a", Received("b", Ask("c", 0, (0, 1))))
    assert [type(effect) for effect in asked_alone] == ([Send] if repair == "hybrid" else [])


def test_what_another_repeats_spares_an_answer_where_all_may_give_it() -> None:
    """And nowhere else: a copy of our own message that a liar has sent to us alone reaches no other."""
    for repair, spared in (("any", True), ("hybrid", False)):
        members = Group(3, FifoConfiguration(repair=repair))
        members.admit("a")
        copy = Copy("a", 0, 0, members.members["a"]._group.own.kept[0])
        members.give("a", Received("c", copy))
        answered = members.give("a", Received("b", Ask("a", 0, (0, 1))))
        assert (answered == []) == spared


def test_a_batch_that_comes_twice_is_taken_once() -> None:
    members = Group(3)
    bodies = pack([b"x", b"y"])
    data = Received("b", Data(0, 0, 0, b"", bodies))
    assert Deliver("b", 0, bodies, None, 0) in members.give("a", data)
    assert members.give("a", data) == []


def test_a_stream_that_has_ended_takes_nothing_from_its_end_on() -> None:
    members = Group(3)
    members.admit("b")
    members.pass_time(100)
    members.cut.add("c")  # which has not said yet how far it holds the earlier incarnation
    reborn = Extent("b", 1, True, True, 1, 1, 1, 1)
    members.give("a", Received("b", Status(1, 0, 1, 0, (reborn,))))
    members.give("a", Received("b", Copy("b", 0, 1, ONE)))
    assert members.delivered("a", "b") == ["b0"]


def test_where_nothing_is_missing_nothing_is_asked_for() -> None:
    members = Group(3)
    taken = members.give("a", Received("b", Copy("b", 0, 0, ONE)))
    assert Deliver("b", 0, ONE, None, 0) in taken
    assert "repair" not in [effect.name for effect in taken if isinstance(effect, SetTimer)]
    assert members.members["a"].figures()["repaired"] == 1
    assert members.give("a", Received("b", Copy("b", 0, 0, ONE))) == []
    assert members.members["a"].figures()["repaired"] == 1


@pytest.mark.parametrize(
    ("view", "held", "counts"),
    [(0, (1, 0, 0), True), (1, (1, 0, 0), False), (0, (), False), (0, (1,), False), (0, (1, 0, 0, 0), False)],
)
def test_a_message_acknowledges_ours_in_the_view_that_it_names(
    view: int, held: tuple[int, ...], *, counts: bool
) -> None:
    members = Group(3)
    members.members["a"].handle(members.now, Admit(ONE))
    number = members.members["a"]._group.view.number + view
    told = struct.pack(f"<{len(held)}q", *held)
    effects = members.give("a", Received("b", Data(0, 0, number, told, ONE)))
    assert (Deliver("a", 0, ONE, None, 0) in effects) == counts


def test_what_another_repeats_is_not_the_senders_own_word() -> None:
    members = Group(3)
    members.pass_time(100)
    members.cut.add("b")
    members.pass_time(120)
    lie(members, "c", "a", claim("b", 5))
    members.give("a", Received("c", Copy("b", 0, 2, ONE)))
    assert stream(members, "b", "a").announced == 0
    members.give("a", Received("b", Copy("b", 0, 3, ONE)))
    assert stream(members, "b", "a").announced == 4


# Stability


def test_nothing_is_stable_because_of_one_members_status() -> None:
    members = Group(3)
    members.drop = lambda _source, target, pdu: target == "c" and isinstance(pdu, Data | Copy)
    members.admit("a")
    members.admit("b")
    members.pass_time(60)
    lie(members, "b", "a", claim("a", 1, stable=1), claim("b", 1, stable=1))
    assert members.of("a", Stable) == []
    lie(members, "c", "a", claim("a", 1), claim("b", 1))
    lie(members, "b", "a", claim("a", 1, stable=1), claim("b", 1, stable=1))
    assert members.of("a", Stable) == [Stable("a", 0, 1), Stable("b", 0, 1)]


def test_our_own_messages_are_stable_when_all_have_acknowledged_them() -> None:
    members = Group(3)
    members.drop = lambda _source, target, pdu: target == "c" and isinstance(pdu, Data | Copy)
    members.admit("a")
    members.admit("b")
    members.pass_time(60)
    members.give("a", Received("c", Position(0, 0, 1)))
    lie(members, "b", "a", claim("a", 1, stable=1), claim("b", 1, stable=1))
    assert members.of("a", Stable) == [Stable("a", 0, 1)]


@pytest.mark.parametrize(
    ("extents", "excluded_spell"),
    [
        ((), 4),
        ((claim("b", 2),), 4),
        ((claim("b", 3),), -1),
        ((claim("b", 9),), -1),
        ((claim("b", 9, incarnation=1),), 4),
        ((claim("a", 9),), 4),
    ],
)
def test_who_is_away_must_hold_what_is_called_stable(
    extents: tuple[Extent, ...], excluded_spell: int
) -> None:
    members = Group(3)
    members.pass_time(10)
    stability, group = members.members["a"]._stability, members.members["a"]._group
    away = peer(members, "c", "a")
    away.in_view, away.spell = False, 4
    away.extents = {extent.site: extent for extent in extents}
    group.outside.append(away)
    followed = stream(members, "b", "a")
    followed.take(0, pack([b"x"] * 5), keep=True)
    stability.release(followed, 3)
    assert away.excluded_spell == excluded_spell


@pytest.mark.parametrize(
    ("extent", "stable"),
    [
        (None, 5),
        (claim("c", 2), 2),
        (claim("c", 2, incarnation=1), 5),
        (claim("c", 0), 0),
        (claim("c", -1), 5),
        (claim("c", 9), 5),
    ],
)
def test_messages_of_a_departed_member_are_stable_when_all_followers_hold_them(
    extent: Extent | None, stable: int
) -> None:
    members = Group(3)
    members.pass_time(60)
    stability = members.members["a"]._stability
    gone = peer(members, "c", "a")
    gone.in_view = False
    members.members["a"]._group.outside.append(gone)
    gone.stream.take(0, pack([b"x"] * 5), keep=True)
    other = peer(members, "b", "a")
    other.extents = {"b": claim("b")} if extent is None else {"c": extent}
    stability.release_departed()
    assert gone.stream.stable == stable
    gone.stream.stable, gone.successor = 0, Stream("c", 1)
    stability.release_departed()
    assert gone.stream.stable == 0
    gone.successor, other.extents = None, {}
    stability.release_departed()
    assert gone.stream.stable == 0


@pytest.mark.parametrize(
    ("extent", "is_over"),
    [
        (None, True),
        (claim("c", incarnation=1), False),
        (claim("c", incarnation=0), False),
        (claim("c", incarnation=2), True),
    ],
)
def test_an_earlier_incarnation_is_kept_until_all_are_beyond_it(extent: Extent | None, is_over: bool) -> None:
    members = Group(3)
    members.pass_time(60)
    reborn = peer(members, "c", "a")
    reborn.past = Stream("c", 1)
    reborn.past.begin(0, 0, 0)
    reborn.extents["c"] = claim("c", incarnation=1)
    other = peer(members, "b", "a")
    other.extents = {"b": claim("b")} if extent is None else {"c": extent}
    members.members["a"]._stability.release_departed()
    assert (reborn.past is None) == is_over


@pytest.mark.parametrize("repair", ["any", "hybrid"])
def test_what_is_not_kept_of_an_earlier_incarnation_is_not_waited_for(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.pass_time(100)
    ended = peer(members, "b", "a")
    ended.stream.take(0, ONE, keep=True)
    own = claim("b", 6, incarnation=1, first=6, kept_from=6)
    members.cut.add("b")
    members.give("a", Received("b", Status(1, 1, 1, 0, (own, claim("a")))))
    kept = claim("b", 6, incarnation=1, first=6, previous=0, previous_end=6, previous_from=1)
    lie(members, "c", "a", kept)
    assert ended.stream.incarnation == 0
    lie(members, "c", "a", msgspec.structs.replace(kept, previous_from=2))
    assert (ended.stream.incarnation, ended.stream.expected) == (1, 6)
    assert members.of("a", Absent) == [Absent()]


@pytest.mark.parametrize(
    ("extent", "is_held"),
    [
        (None, False),
        (claim("b", 4, kept_from=3), True),
        (claim("b", 4, kept_from=4), False),
        (claim("b", 3, kept_from=3), False),
        (claim("b", 9, kept_from=0, incarnation=1), False),
        (claim("b", 9, incarnation=1, previous=0, previous_from=3, previous_end=4), True),
        (claim("b", 9, incarnation=1, previous=0, previous_from=4, previous_end=5), False),
        (claim("b", 9, incarnation=1, previous=0, previous_from=3, previous_end=3), False),
        (claim("b", 9, incarnation=2, previous=1, previous_from=3, previous_end=4), False),
    ],
)
def test_who_holds_what_comes_next(extent: Extent | None, is_held: bool) -> None:
    other, followed = Peer("c", 0, 0), Stream("b", 0)
    followed.begin(0, 3, 3)
    other.extents = {} if extent is None else {"b": extent}
    assert holds(other, followed) == is_held


@pytest.mark.parametrize("repair", ["request", "hybrid"])
def test_what_comes_behind_a_gap_is_asked_for_and_what_fills_it_acknowledged(repair: str) -> None:
    members = Group(2, FifoConfiguration(repair=repair))
    timers = {effect.name for effect in members.give("a", Received("b", Data(0, 1, 0, b"", ONE)))
              if isinstance(effect, SetTimer)}  # fmt: skip
    assert timers == {"repair"}
    members.timers.clear()
    timers = {effect.name for effect in members.give("a", Received("b", Data(0, 0, 0, b"", ONE)))
              if isinstance(effect, SetTimer)}  # fmt: skip
    assert "acknowledge" in timers
    assert "repair" not in timers


def a_result(stability: str, number: int, view: int) -> Pdu:
    nothing = bytes(8 * 4)
    if stability == "train":
        return Carriage(number, 0, nothing, result=True, view=view)
    return Information(number, nothing, view)


@pytest.mark.parametrize("stability", ["train", "s-coordp", "s-train"])
def test_a_round_that_a_lie_holds_up_is_given_up(stability: str) -> None:
    members = Group(4, FifoConfiguration(stability=stability))
    members.pass_time(100)
    members.drop = lambda _source, target, pdu: target == "b" and isinstance(pdu, STABILITY_PDUS)
    members.admit("c")
    members.pass_time(40)
    host = members.members["a"]._stability._host
    layer: Any = host.layer
    assert host.under_way
    members.drop = lambda _source, _target, _pdu: False
    members.give("b", Received("d", a_result(stability, layer._round, host.view)))
    longest_ms = LONGEST_ROUND * members.knobs.stability_repeat_ns / MILLISECOND_NS
    members.pass_time(longest_ms - 200)
    assert members.of("a", Stable) == []
    members.pass_time(600)
    assert all(members.of(name, Stable) == [Stable("c", 0, 1)] for name in "abcd")


@pytest.mark.parametrize("stability", ["coordp", "s-coordp", "s-train", "train", "fulldist"])
def test_only_the_first_member_of_a_view_has_rounds(stability: str) -> None:
    members = Group(3, FifoConfiguration(stability=stability))
    members.pass_time(100)
    view = members.members["b"]._group.view.number
    layer: Any = members.members["b"]._stability._host.layer
    counts = bytes(8 * 3)
    for pdu in (
        StartRound(5, view), Acknowledgement(5, counts, view), Information(5, counts, view),
        Carriage(5, 0, counts, view=view), Carriage(5, 0, counts, result=True, view=view),
        Receipt(5, 0, view=view), ChildReport(5, counts, view=view), SiblingReport(5, counts, view=view),
        Row(5, counts, view=view), Row(5, counts, Purpose.RESULT, view=view),
    ):  # fmt: skip
        members.give("b", Received("c", pdu))
        assert layer._round == -1, pdu
    assert members.members["b"].ignored == 10


def test_objects_of_views_that_are_over_are_bounded_and_not_taken_up_after_long() -> None:
    members = Group(2)
    host, group = members.members["a"]._stability._host, members.members["a"]._group
    first = host.layer
    host.on_view(0, (0, 0), (0, 0))
    assert host.layer is first
    host.on_view(members.knobs.forget_after_ns, (0, 0), (0, 0))
    assert host.layer is first
    host.on_view(members.knobs.forget_after_ns, (1, 0), (0, 0))
    assert host.layer is first
    host._forward(members.knobs.forget_after_ns, TimerFired("x"), (1, 0))
    host.on_view(members.knobs.forget_after_ns, (0, 0), (0, 0))
    assert host.layer is not first
    second = host.layer
    assert second is not None
    host._past[host.view] = (second, set(), -1)
    host.layer = None
    host.on_view(members.knobs.forget_after_ns, (0, 0), (0, 0))
    assert host.layer is not second
    for number in range(MOST_PAST_VIEWS + 5):
        group.view.number = number
        host.on_view(0, (0, 0), (0, 0))
    assert len(host._past) == MOST_PAST_VIEWS


@pytest.mark.parametrize("stability", PROTOCOLS)
def test_error_detection_forgets_what_no_member_has_seen(stability: str) -> None:
    members = Group(3, FifoConfiguration(stability="coordp", errors=stability))
    members.pass_time(100)
    host = members.members["a"]._errors._host
    assert host is not None
    layer: Any = host.layer
    far = (0).to_bytes(8, "little") + FAR.to_bytes(8, "little") + (0).to_bytes(8, "little")
    layer._declare(read_counts(far))
    assert layer.stable[1] == FAR
    members.pass_time(1_000)
    assert layer.stable[1] == 0
    assert all_deliver(members, "b", "ac")


# Members that were invented


def invent(member: Fifo, names: Iterable[str], now: int) -> None:
    for name in names:
        status = Status(
            1, 0, 1, 0, (Extent(name, 1, True, True, 0, 0, 0, 0), Extent("a", 1, True, True, 0, 0, 0, 0))
        )
        received = pass_gate(CODEC, name, status)
        assert received is not None
        member.handle(now, received)


def spoken(member: Fifo, now: int, timer: str = "heartbeat") -> list[Status]:
    """The statuses that a timer brings; each passes the gate."""
    effects = member.handle(now, TimerFired(timer))
    said = [effect.pdu for effect in effects if isinstance(effect, Multicast)]
    assert all(isinstance(CODEC.decode(CODEC.encode(pdu)), Packet) for pdu in said)
    return [pdu for pdu in said if isinstance(pdu, Status)]


def test_a_status_fits_a_pdu_whatever_members_were_invented() -> None:
    member = Fifo("a", ("a",), KNOBS, Random(1))
    member.handle(0, Start(1))
    names = [chr(0x10000 + number) * (LONGEST_NAME - 1) for number in range(MOST_NAMES - 1)]
    invent(member, ["real", *names], 1)
    (status,) = spoken(member, 60 * MILLISECOND_NS)
    assert [extent.site for extent in status.extents[:2]] == ["a", "real"]
    assert 500 < len(status.extents) < MOST_NAMES
    for each in member._group.peers.values():
        each.excluded_spell = 5
    (status,) = spoken(member, 200 * MILLISECOND_NS)
    assert status.left_out[0].site == "real"
    assert 200 < len(status.left_out) < MOST_NAMES


def test_a_status_has_the_members_of_the_view_first() -> None:
    member = Fifo("a", ("a",), KNOBS, Random(1))
    member.handle(0, Start(1))
    names = [chr(0x10000 + number) * (LONGEST_NAME - 1) for number in range(MOST_NAMES - 1)]
    invent(member, [*names, "real"], 1)
    for name in names:
        member._group.peers[name].left = True
    member.handle(2, TimerFired("heartbeat"))
    (status,) = spoken(member, 60 * MILLISECOND_NS)
    assert [extent.site for extent in status.extents[:2]] == ["a", "real"]


def test_silent_members_make_room_for_new_ones() -> None:
    knobs = replace(KNOBS, largest_group=4)
    member = Fifo("a", ("a",), knobs, Random(1))
    member.handle(0, Start(1))
    invent(member, ["u", "v", "w", "x"], 1)
    invent(member, ["real"], 2)
    assert "real" not in member._group.peers
    assert member.ignored == 1
    now = 0
    while now <= knobs.suspect_after_ns:
        now += knobs.heartbeat_ns
        member.handle(now, TimerFired("heartbeat"))
    for name in "vwx":
        member._group.peers[name].stream.begun = False
    member._group.peers["w"].stream.kept[0] = ONE
    invent(member, ["real"], now + 1)
    assert set(member._group.peers) == {"u", "w", "x", "real"}
    invent(member, ["more"], now + 2)
    assert set(member._group.peers) == {"u", "w", "real", "more"}
    assert not member._group.may_have_forgotten
    invent(member, ["even more"], now + 3)
    assert set(member._group.peers) == {"w", "real", "more", "even more"}
    assert member._group.may_have_forgotten
    invent(member, ["too many"], now + 4)
    assert "too many" not in member._group.peers


def test_a_member_that_began_anew_and_went_is_forgotten_although_others_never_heard_of_it() -> None:
    members = Group(3)
    members.pass_time(100)
    for name in "bc":
        peer(members, name, "a").stream.take(0, ONE, keep=True)
    peer(members, "c", "a").extents["b"] = claim("b", 1)
    own = claim("b", 1, incarnation=1)
    members.give("a", Received("b", Status(1, 1, 1, 0, (own, claim("a")))))
    assert peer(members, "b", "a").successor is not None
    group, views = members.members["a"]._group, members.members["a"]._membership._views
    group.outside = list(group.peers.values())
    last_ns = peer(members, "b", "a").heard_ns
    views.forget(last_ns + members.knobs.forget_after_ns)
    assert set(group.peers) == {"b", "c"}
    views.forget(last_ns + members.knobs.forget_after_ns + 1)
    assert set(group.peers) == {"c"}


def test_a_member_whose_earlier_incarnation_is_not_complete_makes_room_last() -> None:
    members = Group(3, replace(KNOBS, largest_group=2))
    group, views = members.members["a"]._group, members.members["a"]._membership._views
    group.outside = list(group.peers.values())
    group.peers["b"].successor = Stream("b", 1)
    assert views.make_room()
    assert set(group.peers) == {"b"}
    assert views.make_room()
    assert set(group.peers) == {"b"}


def test_a_member_that_returns_skips_a_gap_once_the_sender_has_it_in_its_view() -> None:
    """Until then the sender may discard more: the gap would be reported twice."""
    members = Group(3)
    members.pass_time(100)
    members.depart("c")
    members.pass_time(20)
    members.come_back("c")
    told = peer(members, "b", "c")
    own = Extent("b", 0, True, True, 0, 9, 0, 9)
    before = members.give("c", Received("b", Status(0, 0, told.serial + 1, 0, (own,))))
    assert Send("b", Position(0, 0, 9)) not in before
    counted = Extent("c", 0, True, True, 0, 0, 0, 0)
    after = members.give("c", Received("b", Status(0, 0, told.serial + 1, 0, (own, counted))))
    assert Send("b", Position(0, 0, 9)) in after


@pytest.mark.parametrize(
    ("mark", "left_out"),
    [
        (Mark("a", 0, 0), "a"),
        (Mark("a", 0, 1), ""),
        (Mark("a", 1, 0), ""),
        (Mark("b", 0, 0), "b"),
        (Mark("b", 0, 1), ""),
        (Mark("b", 1, 0), ""),
        (Mark("nobody", 0, 0), ""),
    ],
)
def test_who_is_left_behind_is_so_in_one_incarnation_and_spell(mark: Mark, left_out: str) -> None:
    members = Group(3)
    members.pass_time(100)
    lie(members, "c", "a", marks=(mark,))
    assert members.of("a", Absent) == ([Absent()] if left_out == "a" else [])
    gone = [Vanished("b", "It was left behind.")] if left_out == "b" else []
    assert members.of("a", Vanished) == gone


def test_ghosts_of_one_status_end_one_spell() -> None:
    members = Group(3)
    members.pass_time(100)
    ghosts = [claim(f"ghost {number}", 1, counted=False) for number in range(50)]
    lie(members, "c", "a", *ghosts)
    lie(members, "c", "a", *ghosts)
    assert members.of("a", Absent, Present) == [Absent(), Present()]
    lie(members, "c", "a", claim("empty", 0, counted=False), claim("there", 1), claim("a", 5, counted=False))
    assert members.of("a", Absent, Present) == [Absent(), Present()]
    assert set(members.members["a"]._group.peers) == {"b", "c"}
