"""A Distributed Precedence Graph group and a liar: what it says is bounded, and does not outlast it."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from antiphon.core.effects import Absent, Appeared, Arrived, Deliver, Disagreed, Effect, Multicast, Vanished
from antiphon.core.fields import INCARNATION_LIMIT, LONGEST_NAME, NUMBER_LIMIT
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.core.wire import MAXIMUM_BODY_BYTES, Codec, Garbage, Packet, Pdu
from antiphon.protocols.dpg import Dpg, DpgConfiguration
from antiphon.protocols.dpg.buffers import Held
from antiphon.protocols.dpg.continuity import MEMORY_NS, PATIENCE_NS, Continuity, Relation
from antiphon.protocols.dpg.continuity import MOST_SITES as MOST_REPORTERS
from antiphon.protocols.dpg.member import BEGINS_AGAIN, SUPERSEDED
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
from antiphon.protocols.dpg.peers import LONGEST_LEAP, MOST_SITES, Incarnations, Peers
from antiphon.protocols.dpg.reports import read
from antiphon.protocols.dpg.services import SERVICE_PDUS, SERVICES
from antiphon.protocols.dpg.services.bounded_delay import Vouch
from antiphon.protocols.dpg.services.tag_sequencer.pdus import Answer, Claim, Numbered, TagRequest
from antiphon.protocols.dpg.spells import LONGEST_LEAP as LONGEST_ORDER_LEAP
from antiphon.protocols.dpg.spells import MOST_APART, MOST_WINDOWS, PATIENCE, Listening, State, Window
from antiphon.protocols.dpg.tag_lists import pack_tags
from antiphon.protocols.dpg.unconfirmed import MOST_SENDERS as MOST_FORETOLD_SENDERS
from antiphon.protocols.dpg.unconfirmed import MOST_SPANS, Unconfirmed
from tests.protocols.harness.dpg_group import Lan, an_order, message

CODEC = Codec((*PDUS, *SERVICE_PDUS))
MS = MILLISECOND_NS
EMPTY = Report(0, 1, 0, 0, 0, b"", b"", b"", b"", b"", 0, False, {}, b"")
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


def changed(pdu: Pdu, **fields: Any) -> Any:
    return type(pdu)(**({name: getattr(pdu, name) for name in pdu.__struct_fields__} | fields))


def passes(pdu: Pdu) -> bool:
    return isinstance(CODEC.decode(CODEC.encode(pdu)), Packet)


def report(tags: list[int], index: int | None = None, **fields: Any) -> Report:
    """A report whose sender has agreed on these tags."""
    told = {
        "agreed": pack_tags(tags),
        "links": bytes(len(tags)),
        "index": len(tags) if index is None else index,
    }
    return changed(EMPTY, **(told | fields))  # type: ignore[no-any-return]


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


# Losing touch


def test_two_reports_of_a_liar_end_no_spell_where_others_follow() -> None:
    lan = Lan("abc")
    for name in "abcabc":
        lan.admit(name)
        lan.pass_time(30)
    lan.pass_time(600)
    tags = [lan.members["a"]._tags.choose(lambda _tag: False) for _ in range(4)]
    for _ in range(6):
        lan.give("a", Received("x", report(tags, index=5000)))
    assert not lan.of("a", Absent)


SETTLING_NS = 200 * MS


def touched(*words: tuple[int, str, bool]) -> Continuity:
    touch = Continuity("a", SETTLING_NS)
    for time_ms, sender, behind in words:
        touch.on_report(time_ms * MS, sender, Relation.BEYOND if behind else Relation.FOLLOWS)
    return touch


def test_touch_is_lost_when_most_say_so_or_a_few_for_long() -> None:
    alone = touched((0, "b", True))
    assert not alone.is_lost(0), "one report says little"
    alone.on_report(MS, "b", Relation.BEYOND)
    assert alone.is_lost(MS)
    half = touched((0, "c", False), (1, "b", True), (2, "b", True))
    assert not half.is_lost(2 * MS)
    half.on_report(3 * MS, "d", Relation.BEYOND)
    assert half.is_lost(3 * MS)
    half.on_report(4 * MS, "d", Relation.FOLLOWS)
    assert not half.is_lost(4 * MS)
    half.on_report(PATIENCE_NS, "c", Relation.FOLLOWS)
    half.on_report(PATIENCE_NS, "b", Relation.BEYOND)
    assert not half.is_lost(PATIENCE_NS + MS)
    assert half.is_lost(PATIENCE_NS + MS + 1)
    half.on_report(PATIENCE_NS + 2 * MS, "b", Relation.FOLLOWS)
    assert not half.is_lost(PATIENCE_NS + 2 * MS), "it has taken that back"
    half.on_report(PATIENCE_NS + 3 * MS, "b", Relation.BEYOND)
    assert not half.is_lost(PATIENCE_NS + 3 * MS), "and begins anew"


def test_who_has_fallen_silent_is_no_witness() -> None:
    touch = touched((0, "c", False), (0, "d", False))
    for _ in range(2):
        touch.on_report(MEMORY_NS + 1, "b", Relation.BEYOND)
    assert touch.is_lost(MEMORY_NS + 1)
    late = touched((0, "c", False), (0, "d", False))
    for _ in range(2):
        late.on_report(MEMORY_NS, "b", Relation.BEYOND)
    assert not late.is_lost(MEMORY_NS)
    gone = touched((0, "b", True), (0, "b", True))
    assert gone.is_lost(MEMORY_NS)
    assert not gone.is_lost(3 * MEMORY_NS)
    gone.on_report(MEMORY_NS + 1, "c", Relation.FOLLOWS)
    assert not gone.is_lost(3 * MEMORY_NS)


@pytest.mark.parametrize(
    ("ours", "forked", "yields"),
    [("ab", "c", False), ("a", "bc", True), ("ab", "cd", False), ("ad", "bc", False), ("bd", "ac", True)],
)
def test_the_smaller_side_of_a_fork_yields_and_of_equal_sides_the_later_by_name(
    ours: str, forked: str, yields: bool
) -> None:
    side = Continuity(ours[0], SETTLING_NS)
    for now in (0, SETTLING_NS // 2, SETTLING_NS):
        for name in forked:
            side.on_report(now, name, Relation.FORKED)
        for name in ours[1:]:
            side.on_report(now, name, Relation.FOLLOWS)
        assert side.is_lost(now) is (yields and now == SETTLING_NS), "all are counted first"
    assert side.is_lost(PATIENCE_NS + 1) is yields, "a minority's order is not taken up after a while"


def test_what_was_reported_before_the_network_was_split_counts_for_no_side() -> None:
    """Only its first member is heard of a side, and the other side's latest reports are old."""
    for silent_ns, yields in ((SETTLING_NS, False), (SETTLING_NS + 1, True)):
        side = Continuity("c", SETTLING_NS)
        side.on_report(0, "a", Relation.FOLLOWS)
        side.on_report(silent_ns, "b", Relation.FORKED)
        side.on_report(silent_ns + SETTLING_NS, "b", Relation.FORKED)
        assert side.is_lost(silent_ns + SETTLING_NS) is yields


def test_a_fork_is_counted_for_as_long_again_as_it_settles() -> None:
    side = Continuity("a", SETTLING_NS)
    assert not side.is_undecided(0)
    side.on_report(0, "b", Relation.FORKED)
    assert side.is_undecided(2 * SETTLING_NS - 1)
    assert not side.is_undecided(2 * SETTLING_NS)


def test_witnesses_are_bounded() -> None:
    touch = Continuity("a", SETTLING_NS)
    for index in range(MOST_REPORTERS + 5):
        touch.on_report(0, f"x{index}", Relation.FOLLOWS)
    assert len(touch._relations) == MOST_REPORTERS


# Listening


def listened(lan: Lan) -> tuple[Listening, Callable[..., bool]]:
    member = lan.members["a"]
    knobs = DpgConfiguration(listen_reports=1)
    listening = Listening(knobs, -knobs.report_cycle_ns)

    def hear(sender: str, tags: list[int], index: int | None = None, now: int = 0) -> bool:
        told = report(tags, index, streams={"z": (0, 0)})
        lists = read(told)
        assert lists is not None
        return listening.hear(member._order, now, sender, told, lists)

    return listening, hear


def test_an_order_that_nobody_else_bears_out_is_taken_up_only_after_a_while() -> None:
    _, hear = listened(Lan("ab"))
    assert hear("b", [1, 2, 3]), "there is no other"
    assert not hear("x", [7, 8, 9])
    assert hear("b", [3, 4], index=4) is False, "nor is the other one's, now"
    _, hear = listened(Lan("ab"))
    hear("b", [1, 2, 3])
    waited = [hear("x", [7, 8, 9]) for _ in range(PATIENCE)]
    assert waited[0] is False
    assert waited[-1] is True
    listening, hear = listened(Lan("ab"))
    hear("c", [1, 2, 3])
    assert hear("b", [3, 4], index=4), "both tell of 3"
    assert not any(hear("x", [7, 8, 9]) for _ in range(3 * PATIENCE)), "more members have the other order"
    assert hear("x", [7, 8, 9], now=listening._configuration.listen_ns), "until they are silent"


def test_one_that_reports_faster_than_a_group_does_is_not_taken_for_the_group() -> None:
    listening, hear = listened(Lan("ab"))
    early = -listening._configuration.report_cycle_ns
    assert not any(hear("x", [7, 8, 9], now=now) for now in (early, early + 1, -1))
    assert hear("x", [7, 8, 9], now=0)
    _, hear = listened(Lan("ab"))
    assert not hear("x", [1, 2, 3], now=early)
    assert hear("b", [1, 2, 3], now=early + 1), "another bears it out"


def test_an_order_far_from_all_others_waits_until_they_are_silent() -> None:
    listening, hear = listened(Lan("ab"))
    hear("b", [1, 2, 3])
    far = 3 + LONGEST_ORDER_LEAP + 1
    assert not any(hear("x", [7, 8], index=far) for _ in range(3 * PATIENCE))
    assert hear("x", [7, 8], index=far - 1)
    silent_ns = listening._configuration.listen_ns
    assert not hear("x", [7, 8], index=far, now=silent_ns - 1)
    assert hear("x", [7, 8], index=far, now=silent_ns)


def test_no_order_is_taken_up_that_leaves_no_room_to_count_on() -> None:
    _, hear = listened(Lan("ab"))
    assert not any(hear("x", [7, 8], index=NUMBER_LIMIT // 2) for _ in range(3 * PATIENCE))
    assert hear("x", [7, 8], index=NUMBER_LIMIT // 2 - 1)


def test_two_orders_bear_one_another_out_where_a_message_has_about_the_same_place() -> None:
    window = Window(0, 2_000, (5, 6))
    assert window.confirms(2_000 + MOST_APART, (6,))
    assert not window.confirms(2_001 + MOST_APART, (6,))
    assert not window.confirms(2_000, (7,))
    assert not window.confirms(2_000, ())
    assert Window(0, 0, ()).confirms(0, ())
    assert not Window(0, 0, ()).confirms(1, (6,))
    assert window.is_near(2_000 + LONGEST_ORDER_LEAP)
    assert not window.is_near(2_001 + LONGEST_ORDER_LEAP)


def test_reporters_are_remembered_up_to_a_limit_while_listening() -> None:
    listening, hear = listened(Lan("ab"))
    for index in range(MOST_WINDOWS + 5):
        hear(f"x{index}", [1])
    assert len(listening._windows) == MOST_WINDOWS


@pytest.mark.parametrize("messages", [0, 1])
def test_who_takes_up_an_order_has_missed_what_is_in_it(messages: int) -> None:
    lan = Lan("abc")
    lan.crash("c")
    for _ in range(messages):
        lan.admit("a")
    lan.pass_time(100)
    lan.incarnations["c"] = 1
    lan.away.discard("c")
    lan._build("c")
    before = len(lan.of("c", Absent))
    lan.give("c", Start(1))
    lan.wait_for(lambda: lan.members["c"]._presence.state is State.PRESENT)
    assert len(lan.of("c", Absent)) == before + messages


def test_nobody_waits_for_one_that_begins_again() -> None:
    lan = Lan("abc")
    lan.admit("b")
    lan.pass_time(50)
    lan.give("a", Received("b", changed(EMPTY, listening=True)))
    assert [effect.reason for effect in lan.of("a", Vanished)] == [BEGINS_AGAIN]
    assert "b" not in lan.members["a"]._peers.sites()


# Room


def test_invented_tags_leave_half_of_the_graph_to_messages() -> None:
    member = Dpg("a", DpgConfiguration(graph_limit=8), SERVICES["sequencer"](), Random(1))
    member.handle(0, Start())
    tags = [member._tags.choose(lambda _tag: False) for _ in range(20)]
    member.handle(1, Received("x", changed(EMPTY, vertices=pack_tags(tags))))
    order = member._order
    assert len(order.graph) == len(order.lost) == 4
    order.store("b", message(tags[-1]))
    assert order.add(1, tags[-1])


def test_bodies_without_a_place_leave_their_buffers() -> None:
    lan = Lan("ab", ordering_buffers=8)
    order = lan.members["a"]._order
    dummy_ns, deliv_ns = lan.knobs.dummy_cycle_ns, lan.knobs.deliv_cycle_ns
    order.store("b", message(1))
    order.sweep(dummy_ns - 1)
    assert not order._without_place, "it is too early to look"
    order.sweep(dummy_ns)
    assert 1 in order.buffers
    order.store("b", message(2))
    order.store("b", message(3))
    order.add(0, 3)
    order.sweep(2 * dummy_ns)
    assert set(order.buffers) == {2, 3}
    for tag in range(10, 13):
        order.store("b", message(tag))
    order.sweep(2 * dummy_ns + deliv_ns - 1)
    assert 2 in order.buffers
    order.sweep(2 * dummy_ns + deliv_ns)
    assert set(order.buffers) == {3, 10, 11, 12}, "buffers are scarce: it looks sooner"
    order.sweep(2 * dummy_ns + 2 * deliv_ns)
    assert len(order.buffers) == 4, "they are not any more"


def test_a_flood_of_bodies_without_a_place_ends_with_the_liar() -> None:
    """Their stamps are too far ahead for the service to order them."""
    members = {name: Dpg(name, DpgConfiguration(), SERVICES["bounded-delay"](), Random(1)) for name in "ab"}
    member = members["a"]
    member.handle(0, Start())
    for number in range(2 * DpgConfiguration().ordering_buffers):
        tag = member._tags.choose(lambda _tag: False)
        member.handle(0, Received("x", message(tag, number=number, stamp=LARGEST - 1)))
    assert len(member._order.buffers) == DpgConfiguration().ordering_buffers
    for step in range(1, 12):
        member.handle(step * 100 * MS, TimerFired("report"))
    assert not member._order.buffers


def test_a_body_is_waited_for_since_it_was_first_lacking() -> None:
    lan = Lan("ab")
    order = lan.members["a"]._order
    order.add(100, 7)
    order.incorporate(250, 7)
    order.store("b", message(8))
    order.add(100, 8)
    order.incorporate(250, 8)
    assert [(queued.tag, queued.since_ns) for queued in order.queue] == [(7, 100), (8, 250)]


def asking_for(lan: Lan, name: str, tag: int) -> Dpg:
    """A member whose order has come to a message that no member has."""
    member = lan.members[name]
    order = member._order
    order.add(lan.now, tag)
    order.incorporate(lan.now, tag)
    return member


def test_what_another_has_passed_over_is_not_waited_for_longer_than_what_it_lacks() -> None:
    lan = Lan("ab")
    lan.pass_time(50)
    recovery = asking_for(lan, "a", 7)._recovery
    lan.members["b"]._order.exclude(7, 0)
    assert not recovery.may_pass(lan.now, 7)
    lan.pass_time(100)
    assert {report.passed for report in lan.sent(Report)} == {b"", pack_tags([7])}
    assert recovery.lacking(lan.now, 7) == {"b"}
    assert recovery.may_pass(lan.now, 7)
    recovery.on_passed(lan.now, "b", (9,))
    assert not recovery.lacking(lan.now, 9), "it is not lacking here"


def test_only_what_was_passed_over_is_told_to_be_and_not_too_much_of_it() -> None:
    lan = Lan("ab")
    member = lan.members["b"]
    tags = tuple(range(1, MOST_ASKED + 2))
    for tag in tags:
        member._order.exclude(tag, 0)
    assert not member._recovery.has_gone()
    member._recovery.on_request(0, 0, "a", (MOST_ASKED + 2,))
    assert not member._recovery.has_gone(), "it was never heard of"
    member._recovery.on_request(0, 0, "a", tags)
    assert member._recovery.has_gone()
    assert member._recovery.passed() == list(tags[:MOST_ASKED])
    assert not member._recovery.has_gone()


# Pace


def test_who_is_heard_but_does_not_get_on_is_waited_for_only_so_long() -> None:
    peers = Peers(50 * MS, SECOND_NS, busy=5, emit=lambda _: None)
    peers.on_progress(0, "x", 3, 3)
    peers.on_progress(0, "b", 400, 400)
    for now in (SECOND_NS, SECOND_NS + 1):
        peers.on_progress(now, "x", 2, 400)
        peers.on_progress(now, "x", 3, 400)
        peers.on_progress(now, "b", 400, 400)
        assert peers.is_any_behind(now, 400, 256) == (now == SECOND_NS)
    peers.on_progress(SECOND_NS + 2, "x", 4, 400)
    assert peers.is_any_behind(SECOND_NS + 2, 400, 256), "it gets on again"


def test_who_has_vanished_demands_nothing() -> None:
    lan = Lan("abc")
    flow = lan.members["a"]._flow
    lan.give("a", Received("x", changed(EMPTY, demand_ns=SECOND_NS, listening=True)))
    assert flow.cycle_ns(lan.now) == 0, "a listener does not deliver yet"
    lan.give("a", Received("x", changed(EMPTY, demand_ns=SECOND_NS)))
    assert 0 < flow.cycle_ns(lan.now) < SECOND_NS // 10, "one report is not believed to leap so far"
    lan.wait_for(lambda: "x" not in lan.members["a"]._peers.sites())
    assert flow.cycle_ns(lan.now) == 0
    flow.forget(lan.now, "x")


def test_arcs_into_agreed_messages_are_remembered_as_long_as_reports_tell_of_them() -> None:
    order = Lan("ab", history=3).members["a"]._order
    for tag in range(1, 6):
        order._place(0, tag, 1, [(100 + tag, False)])
        assert len(order.past) == min(tag, 3)
    assert list(order.past) == [3, 4, 5]
