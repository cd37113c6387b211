"""A Distributed Precedence Graph group and a liar: what it says is bounded, and does not outlast it."""

from random import Random

import pytest

from antiphon.core.effects import Appeared, Arrived, Deliver, Disagreed, Effect, Multicast
from antiphon.core.fields import INCARNATION_LIMIT, LONGEST_NAME, NUMBER_LIMIT
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import SECOND_NS
from antiphon.core.wire import MAXIMUM_BODY_BYTES, Codec, Garbage, Packet, Pdu
from antiphon.protocols.dpg import Dpg, DpgConfiguration
from antiphon.protocols.dpg.buffers import Held
from antiphon.protocols.dpg.member import SUPERSEDED
from antiphon.protocols.dpg.order import MARKED_LINK, MOST_FORMER, TRUE_LINK
from antiphon.protocols.dpg.pdus import (
    LARGEST,
    LARGEST_MESSAGE_BYTES,
    MOST_AGREED,
    MOST_ARCS,
    MOST_ASKED,
    MOST_NOTE_BYTES,
    MOST_STREAMS,
    MOST_TAGS,
    PDUS,
    TAG_LIMIT,
    Farewell,
    Message,
    Progress,
    Remulticast,
    Report,
    Request,
)
from antiphon.protocols.dpg.peers import LONGEST_LEAP, MOST_SITES, Incarnations
from antiphon.protocols.dpg.services import SERVICE_PDUS, SERVICES
from antiphon.protocols.dpg.services.bounded_delay import Vouch
from antiphon.protocols.dpg.services.tag_sequencer.pdus import Answer, Claim, Numbered, TagRequest
from antiphon.protocols.dpg.spells import State
from antiphon.protocols.dpg.tag_lists import pack_tags
from antiphon.protocols.dpg.unconfirmed import MOST_SENDERS as MOST_FORETOLD_SENDERS
from antiphon.protocols.dpg.unconfirmed import MOST_SPANS, Unconfirmed
from tests.protocols.dpg.lying import EMPTY, changed, report
from tests.protocols.harness.dpg_group import Lan, an_order, message

CODEC = Codec((*PDUS, *SERVICE_PDUS))
HONEST: dict[type[Pdu], Pdu] = {
    Message: message(5),
    Remulticast: Remulticast("b", 5, 0, 0, 0, 0, 0, pack([b"x"])),
    Report: EMPTY,
    Farewell: Farewell(0),
    Progress: Progress(0),
    Request: Request(b""),
    Vouch: Vouch(0, 0, 1),
    TagRequest: TagRequest(b"", 1, 0),
    Numbered: Numbered(1, 1, 0, 1, b""),
    Claim: Claim(1, 0),
    Answer: Answer(1, "b", 0, 1, b""),
}
NUMBERS = (0, NUMBER_LIMIT - 1)
HALF = (0, NUMBER_LIMIT // 2 - 1)
TIMES = (0, LARGEST - 1)
HASHES = (0, TAG_LIMIT - 1)
INCARNATIONS = (0, INCARNATION_LIMIT - 1)
GIVEN = (1, NUMBER_LIMIT // 2 - MOST_TAGS)
RANGES: list[tuple[type[Pdu], str, tuple[int, int]]] = [
    *((kind, "tag", (1, TAG_LIMIT - 1)) for kind in (Message, Remulticast)),
    *((kind, field, HASHES) for kind in (Message, Remulticast) for field in ("previous", "seen")),
    *((kind, "stamp", TIMES) for kind in (Message, Remulticast)),
    *((kind, "number", HALF) for kind in (Message, Remulticast)),
    *(
        (kind, "incarnation", INCARNATIONS)
        for kind in (Message, Remulticast, Report, Farewell, Progress, Vouch)
    ),
    *((kind, "index", NUMBERS) for kind in (Message, Report, Progress)),
    *((Report, field, TIMES) for field in ("clock_ns", "demand_ns")),
    *((Report, field, NUMBERS) for field in ("serial", "lead", "oldest")),
    *((kind, field, HASHES) for kind in (Report, Progress) for field in ("held", "held_digest", "digest")),
    (Vouch, "number", (-1, NUMBER_LIMIT - 1)),
    (Vouch, "floor", TIMES),
    (TagRequest, "first", (1, NUMBER_LIMIT // 2)),
    (TagRequest, "last", NUMBERS),
    (Numbered, "counter", NUMBERS),
    (Numbered, "base", GIVEN),
    (Numbered, "first", GIVEN),
    (Numbered, "lease_ns", TIMES),
    *((Claim, field, NUMBERS) for field in ("counter", "through")),
    *((Answer, field, NUMBERS) for field in ("counter", "through")),
    (Answer, "first", (1, NUMBER_LIMIT // 2)),
]
LENGTHS: list[tuple[type[Pdu], str, int]] = [
    (Report, "agreed", 8 * MOST_AGREED),
    (Report, "links", MOST_AGREED),
    (Report, "steps", MOST_TAGS),
    (Report, "checkpoints", 256),
    (Report, "vertices", 8 * MOST_TAGS),
    (Report, "arcs", 16 * MOST_ARCS),
    (Report, "lost", 8 * MOST_ASKED),
    (Report, "gone", 8 * MOST_ASKED),
    (Report, "passed", 8 * MOST_ASKED),
    (Report, "service", MOST_NOTE_BYTES),
    (Farewell, "service", MOST_NOTE_BYTES),
    (Request, "lost", 8 * MOST_ASKED),
    *((kind, "tags", 8 * MOST_TAGS) for kind in (TagRequest, Numbered, Answer)),
]


def passes(pdu: Pdu) -> bool:
    return isinstance(CODEC.decode(CODEC.encode(pdu)), Packet)


# Fields


@pytest.mark.parametrize(
    ("kind", "field", "bounds"), RANGES, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_number_beyond_its_bounds_is_garbage(kind: type[Pdu], field: str, bounds: tuple[int, int]) -> None:
    assert all(passes(changed(HONEST[kind], **{field: bound})) for bound in bounds)
    for beyond in (bounds[0] - 1, bounds[1] + 1):
        assert isinstance(CODEC.decode(CODEC.encode(changed(HONEST[kind], **{field: beyond}))), Garbage), (
            beyond
        )


@pytest.mark.parametrize(
    ("kind", "field", "most"), LENGTHS, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_list_longer_than_any_honest_one_is_garbage(kind: type[Pdu], field: str, most: int) -> None:
    assert passes(changed(HONEST[kind], **{field: bytes(most)}))
    assert not passes(changed(HONEST[kind], **{field: bytes(most + 1)}))


@pytest.mark.parametrize(("kind", "field"), [(Remulticast, "sender"), (Answer, "sequencer")])
def test_a_name_longer_than_any_is_garbage(kind: type[Pdu], field: str) -> None:
    assert passes(changed(HONEST[kind], **{field: "y" * LONGEST_NAME}))
    assert not passes(changed(HONEST[kind], **{field: "y" * (LONGEST_NAME + 1)}))


def test_every_field_of_every_pdu_is_bounded() -> None:
    named = {(kind, field) for kind, field, _ in (*RANGES, *LENGTHS)} | {
        (Remulticast, "sender"), (Answer, "sequencer"), (Message, "bodies"), (Remulticast, "bodies"),
        (Report, "listening"), (Report, "streams"),
    }  # fmt: skip
    assert named == {(kind, field) for kind in (*PDUS, *SERVICE_PDUS) for field in kind.__struct_fields__}


@pytest.mark.parametrize(
    "streams",
    [
        {"y" * (LONGEST_NAME + 1): (0, 0)},
        {"": (0, 0)},
        {"b": (-1, 0)},
        {"b": (INCARNATION_LIMIT, 0)},
        {"b": (0, -1)},
        {"b": (0, NUMBER_LIMIT)},
        {f"y{index}": (0, 0) for index in range(MOST_STREAMS + 1)},
    ],
    ids=["long name", "no name", "negative", "incarnation", "negative number", "number", "too many"],
)
def test_streams_out_of_their_bounds_are_garbage(streams: dict[str, tuple[int, int]]) -> None:
    assert passes(changed(EMPTY, streams={"b": (0, NUMBER_LIMIT - 1)}))
    assert not passes(changed(EMPTY, streams=streams))


def test_a_report_fits_a_pdu_whatever_others_have_invented() -> None:
    longest = {
        f"{index:04}" + chr(0x10FFFF) * (LONGEST_NAME - 4): (2**45, 2**52) for index in range(MOST_STREAMS)
    }
    lists = {field: bytes(most) for kind, field, most in LENGTHS if kind is Report}
    assert passes(changed(EMPTY, streams=longest, **lists))


def test_a_member_tells_no_longer_history_than_a_report_may_have() -> None:
    knobs = DpgConfiguration(history=MOST_AGREED + 5)
    for service in ("lan", "sequencer"):
        member = Dpg("a", knobs, SERVICES[service](), Random(1))
        member.handle(0, Start())
        for tag in range(1, MOST_AGREED + 20):
            member._order._place(0, tag, 3, [])
        effects = member.handle(SECOND_NS // 2, TimerFired("report"))
        pdus = [effect.pdu for effect in effects if isinstance(effect, Multicast)]
        (told,) = [pdu for pdu in pdus if isinstance(pdu, Report)]
        assert len(told.links) == MOST_AGREED
        assert passes(told)


def test_what_is_taken_can_be_remulticast() -> None:
    lan = Lan("ab")
    chosen = [lan.members["a"]._tags.choose(lambda _tag: False) for _ in range(2)]
    empty = len(pack([b""]).data)
    for tag, size in zip(chosen, (LARGEST_MESSAGE_BYTES, LARGEST_MESSAGE_BYTES + 1), strict=True):
        lan.give("a", Received("x", message(tag, bodies=pack([bytes(size - empty)]))))
    assert lan.members["a"].figures()["ignored"] == 1
    held = lan.members["a"]._order.body(chosen[0])
    assert held is not None
    again = Remulticast("y" * 64, TAG_LIMIT - 1, 1, 1, LARGEST - 1, 2**45, 2**51, held.message.bodies)
    assert len(CODEC.encode(again, sender="z" * 64)) <= MAXIMUM_BODY_BYTES


def test_a_report_that_tells_more_than_was_ever_agreed_makes_no_sense() -> None:
    lan = Lan("ab")
    tags = [lan.members["a"]._tags.choose(lambda _tag: False) for _ in range(3)]
    lan.give("a", Received("x", report(tags, index=2)))
    assert lan.members["a"].figures()["ignored"] == 1
    lan.give("a", Received("x", report(tags, index=3)))
    assert lan.members["a"].figures()["ignored"] == 1


# Incarnations


def joined(incarnation: int) -> Lan:
    """c takes part again under this incarnation."""
    lan = Lan("abc")
    lan.admit("c")
    lan.pass_time(50)
    lan.crash("c")
    lan.incarnations["c"] = incarnation - 1
    lan.restart("c")
    lan.wait_for(lambda: lan.members["c"]._presence.state is State.PRESENT)
    lan.admit("c")
    lan.pass_time(100)
    return lan


def test_who_restarts_under_an_earlier_incarnation_is_not_counted_and_learns_it() -> None:
    lan = joined(100)
    assert lan.members["a"].incarnation_of("c") == 100
    lan.crash("c")
    lan.pass_time(2_000)
    before = [len(lan.of(name, Appeared)) for name in "ab"]
    lan.incarnations["c"] = 49
    lan.restart("c")
    lan.pass_time(2_000)
    assert [len(lan.of(name, Appeared)) for name in "ab"] == before, "no member counts it"
    assert [(effect.other in "ab", effect.reason) for effect in lan.of("c", Disagreed)] == [
        (True, SUPERSEDED)
    ]
    assert lan.members["c"]._presence.state is State.LISTENING
    lan.crash("c")
    lan.incarnations["c"] = max(lan.members[name].incarnation_of("c") for name in "ab")
    lan.restart("c")
    count = len(lan.delivered("a"))
    lan.admit("c")
    lan.wait_for(lambda: len(lan.delivered("a")) > count)


def test_messages_and_farewells_of_an_earlier_incarnation_are_dropped() -> None:
    lan = joined(100)
    member = lan.members["a"]
    ignored = member.figures()["ignored"]
    tag = member._tags.choose(lambda _tag: False)
    lan.give("a", Received("c", message(tag, incarnation=99, number=50)))
    lan.give("a", Received("c", Farewell(99)))
    assert member.figures()["ignored"] == ignored + 2
    assert "c" in member._peers.sites()
    lan.give("a", Received("c", message(tag, incarnation=100, number=50)))
    assert member.figures()["ignored"] == ignored + 2
    lan.give("a", Received("c", Farewell(100)))
    assert "c" not in member._peers.sites()


def test_incarnations_are_the_sites_own_word_and_bounded() -> None:
    known = Incarnations()
    assert known.hear("b", 5)
    assert known.hear("b", 5)
    assert not known.hear("b", 4)
    assert known.hear("b", 6)
    assert known["b"] == 6
    assert known.is_plausible("b", 6, {"b"})
    assert not known.is_plausible("b", 7, {"b"}), "it is here, and would have told"
    assert known.is_plausible("b", 6 + LONGEST_LEAP, set())
    assert not known.is_plausible("b", 7 + LONGEST_LEAP, set())
    assert known.is_plausible("c", 6 + LONGEST_LEAP, {"c"}), "present, but it has told nothing yet"
    for index in range(MOST_SITES):
        known.hear(f"x{index}", 1)
    assert len(known) == MOST_SITES
    assert "b" not in known


def test_an_unknown_site_has_no_incarnation() -> None:
    assert Lan("ab").members["a"].incarnation_of("nobody") == 0


# What others say of a sender


def told_of(lan: Lan, name: str, expected: tuple[int, int]) -> None:
    """Another has told this of b's next message."""
    lan.members[name]._order.expect("b", expected, doubtful=True)


@pytest.mark.parametrize("expected", [(0, 1 << 40), (1 << 30, 0)], ids=["number", "incarnation"])
def test_a_sender_is_delivered_whatever_another_said_to_expect_of_it(expected: tuple[int, int]) -> None:
    lan = Lan("abc")
    lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(1))
    told_of(lan, "a", expected)
    lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(2))
    assert lan.agreed() == ["b0", "b1"]


def test_what_a_sender_has_borne_out_is_not_delivered_again_for_anothers_word() -> None:
    lan = Lan("abc")
    for _ in range(2):
        lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(2))
    order = lan.members["a"]._order
    told_of(lan, "a", (0, 1 << 40))
    (again,) = [held for held in order.kept.values() if held.message.number == 1]
    assert not order._is_misled(again)
    later = changed(again.message, number=2)
    assert order._is_misled(type(again)("b", later))
    order.incarnations.hear("b", 1)
    assert not order._is_misled(type(again)("b", later)), "it speaks under a later incarnation by now"


def test_what_was_told_counts_if_the_senders_own_messages_bear_it_out() -> None:
    lan = Lan("abc")
    order = lan.members["a"]._order
    told_of(lan, "a", (0, 3))
    early, late = (changed(message(tag), number=number) for tag, number in ((11, 0), (12, 2)))
    order.store("b", early)
    assert order._is_misled(order.buffers[11])
    order.store("b", late)
    assert not order._is_misled(order.buffers[11]), "it has handed over as much itself"
    order.buffers.clear()
    order.store("b", early)
    order.store("b", late, again=True)
    assert order._is_misled(order.buffers[11]), "another's word, too"
    order.store("c", changed(message(13), number=9))
    assert order._is_misled(order.buffers[11]), "another sender's"


def test_a_remulticast_cannot_tell_of_an_incarnation_that_its_sender_never_had() -> None:
    lan = Lan("abc")
    lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(1))
    member = lan.members["a"]
    tags = [member._tags.choose(lambda _tag: False) for _ in range(2)]
    for tag in tags:
        member._order.add(lan.now, tag)
    for tag, incarnation in zip(tags, (1, 0), strict=True):
        lan.give("a", Received("x", Remulticast("b", tag, 0, 0, 0, incarnation, 7, pack([b"x"]))))
    assert [tag in member._order.buffers for tag in tags] == [False, True]
    assert member._order.buffers[tags[1]].again


@pytest.mark.parametrize(
    ("refused", "lacking", "may_pass"),
    [("b", "cd", True), ("bc", "d", False), ("b", "c", False), ("bcd", "bcd", True), ("bxy", "cd", True)],
)
def test_a_body_that_only_few_believe_is_waited_for_no_longer_than_one_that_nobody_has(
    refused: str, lacking: str, may_pass: bool
) -> None:
    """A liar has told b an incarnation of its own that the others know to be false."""
    lan = Lan("abcd")
    for name in "bcd":
        lan.admit(name)
    lan.wait_for(lambda: lan.all_delivered(3))
    member = lan.members["a"]
    tag = member._tags.choose(lambda _tag: False)
    member._order.add(lan.now, tag)
    for name in lacking:
        lan.give("a", Received(name, Request(pack_tags([tag]))))
    for name in refused:
        lan.give("a", Received(name, Remulticast("b", tag, 0, 0, 0, 1, 7, pack([b"x"]))))
    recovery = member._recovery
    assert recovery.may_pass(lan.now, tag) == may_pass
    member._order.lost.pop(tag)
    recovery.wanted(lan.now)
    assert not recovery._refused


@pytest.mark.parametrize(
    ("incarnation", "number", "is_taken"),
    [(100, 1, True), (100, 2, False), (0, 0, True), (0, 1, False), (50, 1, False), (101, 0, False)],
)
def test_of_its_own_messages_a_member_takes_from_others_those_that_it_may_have_sent(
    incarnation: int, number: int, is_taken: bool
) -> None:
    """Its former process sent number 0, so it counts on from 1."""
    member = (lan := joined(100)).members["c"]
    tag = member._tags.choose(lambda _tag: False)
    member._order.add(lan.now, tag)
    lan.give("c", Received("x", Remulticast("c", tag, 0, 0, 0, incarnation, number, pack([b"x"]))))
    assert (tag in member._order.buffers) == is_taken


def test_a_senders_own_report_ends_what_was_told_of_a_later_incarnation() -> None:
    lan = Lan("abc")
    order = lan.members["a"]._order
    told_of(lan, "a", (7, 0))
    order.note_incarnation("b", 7)
    assert order.streams["b"] == (7, 0)
    lan.give("a", Received("b", EMPTY))
    assert "b" not in order.streams
    order.note_incarnation("b", 0)


def test_a_senders_own_report_brings_back_what_it_had_borne_out() -> None:
    lan = Lan("abc")
    lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(1))
    told_of(lan, "a", (7, 0))
    order = lan.members["a"]._order
    order.note_incarnation("b", 0)
    assert order.streams["b"] == (0, 1)
    assert "b" not in order._doubtful


def forged(lan: Lan, sender: str, number: int, *bodies: bytes) -> None:
    """Another tells a of a vertex, and remulticasts a message for it under a sender's name."""
    member = lan.members["a"]
    tag = member._tags.choose(lambda _tag: False)
    tail = member._order.graph.root
    assert member._order.add(lan.now, tag)
    member._order.graph.connect(tail, tag, marked=True)
    lan.give("a", Received("x", Remulticast(sender, tag, 0, 0, 0, 0, number, pack(list(bodies)))))


def delivered(lan: Lan, sender: str) -> list[int]:
    """The numbers of a sender that a has delivered."""
    found = [deliver for deliver in lan.of("a", Deliver) if deliver.sender == sender]
    return [deliver.number + place for deliver in found for place in range(deliver.bodies.messages)]


def test_a_number_is_delivered_once_whoever_told_of_it_first() -> None:
    lan = Lan("abc")
    lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(1))
    for number in (0, 3, 3, 1, 1):
        forged(lan, "b", number, b"x")
    assert delivered(lan, "b") == [0, 3, 1]
    forged(lan, "b", 2, b"x", b"x")
    assert delivered(lan, "b") == [0, 3, 1], "a batch with a number that was delivered"
    for _ in range(5):
        lan.admit("b")
    lan.wait_for(lambda: 5 in delivered(lan, "b"))
    assert delivered(lan, "b") == [0, 3, 1, 2, 4, 5]
    assert not lan.members["a"]._order._unconfirmed, "b has come so far itself"


@pytest.mark.parametrize(
    ("again", "expected"),
    [((), [0, 1, 2, 3]), ((1,), [0, 3]), ((2,), [0, 1, 3])],
    ids=["held", "another's word", "another's word behind it"],
)
def test_a_senders_earlier_messages_come_first_whatever_places_another_gives_them(
    again: tuple[int, ...], expected: list[int]
) -> None:
    effects: list[Effect] = []
    order = an_order(effects.append)
    for number in range(4):
        order.store("b", changed(message(11 + number), number=number), again=number in again)
    order.store("c", changed(message(21), number=1))
    for tag in (11, 14, 13, 12):
        order.add(0, tag)
        order.incorporate(0, tag)
        order.deliver(0, lambda _now, _tag: False)
    assert [effect.number for effect in effects if isinstance(effect, Deliver)] == expected
    assert not order.queue
    assert list(order.buffers) == [21]


def test_who_has_sent_a_message_is_known() -> None:
    order = an_order(lambda _: None)
    order.store("b", message(11))
    order.expect("c", (0, 1))
    assert [order.has_sent(site) for site in "bcd"] == [True, True, False]


@pytest.mark.parametrize("where", ["own", "buffers", "nowhere", "buried", "lost"])
def test_a_body_is_stored_if_it_is_not_held_and_may_still_be_delivered(where: str) -> None:
    effects: list[Effect] = []
    order = an_order(effects.append)
    held = Held("a", message(11))
    if where in ("own", "buffers"):
        getattr(order, where)[11] = held
    if where in ("buried", "lost"):
        order.exclude(11, 0)
    if where == "lost":
        order.lost[11] = 0
    assert order.store("b", message(11)) is None
    is_stored = where in ("nowhere", "lost")
    assert (order.buffers.get(11) == Held("b", message(11))) is is_stored
    assert bool(effects) is is_stored
    assert not order.lost


def test_a_body_for_which_there_is_no_room_does_not_arrive_and_what_gives_way_is_lost_if_it_is_known() -> (
    None
):
    effects: list[Effect] = []
    order = an_order(effects.append, ordering_buffers=1)
    assert order.store("b", message(11)) is None
    assert order.store("b", message(12)) == 12
    assert [effect.number for effect in effects if isinstance(effect, Arrived)] == [0]
    assert not order.lost, "12 is not known"
    order.add(0, 12)
    assert list(order.lost) == [12]
    order.add(0, 11)
    order.graph.connect(12, 11)
    assert order.store("b", message(12)) == 11, "it follows 12"
    assert list(order.lost) == [11]
    assert len([effect for effect in effects if isinstance(effect, Arrived)]) == 2


def test_a_report_tells_which_links_are_true_and_which_are_marked() -> None:
    order = an_order(lambda _: None)
    for tag, tail, marked in ((11, 0, True), (12, 11, False), (13, None, False), (14, 13, True)):
        order.store("b", changed(message(tag), number=tag))
        order.add(0, tag)
        if tail is not None:
            order.graph.connect(tail, tag, marked=marked)
        order.incorporate(0, tag)
    assert list(order.agreement.recent(4)[1]) == [MARKED_LINK, TRUE_LINK, 0, MARKED_LINK]


def test_nobody_tells_a_member_of_messages_of_its_own_that_it_has_not_sent() -> None:
    lan = Lan("abc")
    for _ in range(2):
        lan.admit("a")
    lan.wait_for(lambda: lan.all_delivered(2))
    ignored = lan.members["a"].ignored
    forged(lan, "a", 2, b"x")
    forged(lan, "a", 1, b"x")
    assert lan.members["a"].ignored == ignored + 1
    assert delivered(lan, "a") == [0, 1]


def test_what_was_foretold_is_bounded() -> None:
    foretold = Unconfirmed()
    for number in range(0, 4 * MOST_SPANS, 2):
        foretold.note("b", (1, number, number + 1))
        foretold.note("b", (0, number, number + 1))
        assert len(foretold["b"]) <= MOST_SPANS
        assert foretold.holds("b", (1, number, number + 1))
    assert not foretold.holds("b", (1, 4 * MOST_SPANS, 4 * MOST_SPANS + 1))
    for index in range(2 * MOST_FORETOLD_SENDERS):
        foretold.note(f"x{index}", (0, 0, 1))
    assert len(foretold) == MOST_FORETOLD_SENDERS


def test_contiguous_spans_are_one_and_end_where_the_sender_has_come() -> None:
    foretold = Unconfirmed()
    for span in ((0, 5, 7), (0, 7, 9), (1, 9, 10)):
        foretold.note("b", span)
    assert foretold["b"] == [(0, 5, 9), (1, 9, 10)]
    assert [foretold.holds("b", (0, *span)) for span in ((4, 5), (4, 6), (8, 12), (9, 12))] == [
        False,
        True,
        True,
        False,
    ]
    foretold.reach("c", 9, 9)
    foretold.reach("b", 0, 8)
    assert foretold["b"] == [(0, 5, 9), (1, 9, 10)]
    foretold.reach("b", 0, 9)
    assert foretold["b"] == [(1, 9, 10)]
    foretold.reach("b", 1, 10)
    assert "b" not in foretold


def test_a_sender_that_made_room_is_remembered_and_those_heard_lately_make_none() -> None:
    lan = Lan("ab")
    lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(1))
    order = lan.members["a"]._order
    order.expect("old", (3, 4))
    for index in range(MOST_STREAMS):
        order.expect(f"x{index}", (0, 1))
    assert "old" not in order.streams
    assert order.streams["b"] == (0, 1)
    order.expect("old", (3, 5), doubtful=True)
    assert order._doubtful["old"] == (3, 4)
    for index in range(2 * MOST_FORMER):
        order.expect(f"y{index}", (0, 1))
    assert len(order._former) == MOST_FORMER


def test_expected_numbers_are_bounded_and_can_be_told() -> None:
    lan = Lan("ab")
    order = lan.members["a"]._order
    for index in range(2 * MOST_STREAMS):
        order.expect(f"x{index}", (0, 0), doubtful=True)
    assert len(order.streams) == len(order._doubtful) == MOST_STREAMS
