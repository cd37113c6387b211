"""A member that says what is not so, under its own name: the others go on as if it had said nothing."""

import struct

import pytest

from antiphon.core.effects import Absent, Deliver, Multicast, Send, SetTimer, Stable
from antiphon.core.fields import INCARNATION_LIMIT, NUMBER_LIMIT
from antiphon.core.inputs import Admit, Received
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Packet
from antiphon.protocols.fifo import REPAIRS, FifoConfiguration
from antiphon.protocols.fifo.group import MOST_DEPARTED
from antiphon.protocols.fifo.membership import MOST_AHEAD
from antiphon.protocols.fifo.pdus import BATCH_LIMIT, Ask, Copy, Data, Extent, Leaving, Mark, Status
from antiphon.protocols.fifo.repair import MOST_COPIES
from antiphon.protocols.fifo.streams import Stream
from tests.protocols.fifo.lying import CODEC, FAR, ONE, all_deliver, claim, lie, peer, statuses, stream
from tests.protocols.harness.fifo_group import Group
from tests.protocols.harness.gate import pass_gate

repairs = pytest.mark.parametrize("repair", REPAIRS)


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
