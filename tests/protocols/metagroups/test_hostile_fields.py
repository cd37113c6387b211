"""The fields of what sites send: bounded, and fitting one another."""

import pytest
from msgspec import structs

from antiphon.core.fields import INCARNATION_LIMIT, LONGEST_NAME
from antiphon.core.inputs import Received
from antiphon.core.packing import pack
from antiphon.core.wire import Codec, Garbage, Packet, Pdu
from antiphon.protocols.metagroups import PDUS
from antiphon.protocols.metagroups.parts import decision_name, name_of, reassemble
from antiphon.protocols.metagroups.pdus import (
    FINISHED,
    LARGEST_BATCH_BYTES,
    MOST_GROUPS,
    MOST_ITEMS,
    MOST_LETTERS,
    MOST_MISSING,
    MOST_PARTS,
    MOST_RETIRING,
    MOST_SITES,
    MOST_TREES,
    MOST_WANTED,
    NO_GROUP,
    PART_BYTES,
    Accept,
    AcceptChange,
    Accepted,
    AskMoves,
    Body,
    Change,
    Copy,
    Ending,
    Entry,
    Goodbye,
    Heartbeat,
    Held,
    Holding,
    Install,
    Item,
    Mark,
    Move,
    Moves,
    Part,
    Prepare,
    Progress,
    Query,
    Refuse,
    Report,
    Request,
    Retiring,
    Taken,
    Token,
    TokenRequest,
    Vote,
    Want,
)
from antiphon.protocols.metagroups.validation import makes_sense
from antiphon.protocols.metagroups.view import NO_FOUNDER
from tests.protocols.metagroups.lying import BATCH, BEYOND, DECISION, LAST, RECORD, RULES, cluster_of, held

ITEM = Item("a", 1, 1, "A")
MOVE = Move(1, 1, "e", "B", (1, 0), 1, 0)


# Fields


def decided(**changes: object) -> Install:
    return Install("r", structs.replace(DECISION, **changes))


def listed(**changes: object) -> Install:
    return decided(records=(structs.replace(RECORD, **changes),))


def ended(**changes: object) -> Install:
    return decided(endings=(structs.replace(Ending((1, 1), (), (), 0), **changes),))


def changed(**changes: object) -> AcceptChange:
    change = Change((1, "a"), (RECORD,), (), (), (), (Ending((1, 1), (), (), 0),))
    return AcceptChange(2, 1, decision_name(DECISION), structs.replace(change, **changes))


LATEST = INCARNATION_LIMIT - 1
LONG = "n" * LONGEST_NAME
LIMITS: dict[str, tuple[Pdu, Pdu]] = {
    "request.tree": (
        Request((LAST, LAST), 1, (1, 1), 1, 1, "A", BATCH),
        Request((LAST, BEYOND), 1, (1, 1), 1, 1, "A", BATCH),
    ),
    "request.node": (
        Request((1, 1), 0, (1, 1), 1, 1, "A", BATCH),
        Request((1, 1), -1, (1, 1), 1, 1, "A", BATCH),
    ),
    "request.session": (
        Request((1, 1), 1, (LATEST, LAST), 1, 1, "A", BATCH),
        Request((1, 1), 1, (LATEST + 1, 1), 1, 1, "A", BATCH),
    ),
    "request.seq": (
        Request((1, 1), 1, (1, 1), 1, 1, "A", BATCH),
        Request((1, 1), 1, (1, 1), 0, 1, "A", BATCH),
    ),
    "request.number": (
        Request((1, 1), 1, (1, 1), 1, LAST, "A", BATCH),
        Request((1, 1), 1, (1, 1), 1, BEYOND, "A", BATCH),
    ),
    "request.group": (
        Request((1, 1), 1, (1, 1), 1, 1, "A" * 255, BATCH),
        Request((1, 1), 1, (1, 1), 1, 1, "", BATCH),
    ),
    "token request.seq": (
        TokenRequest((1, 1), 1, (1, 1), LAST, 1, 1, "A"),
        TokenRequest((1, 1), 1, (1, 1), BEYOND, 1, 1, "A"),
    ),
    "token request.count": (
        TokenRequest((1, 1), 1, (1, 1), 1, 1, 1, "A"),
        TokenRequest((1, 1), 1, (1, 1), 1, 1, 0, "A"),
    ),
    "token request.group": (
        TokenRequest((1, 1), 1, (1, 1), 1, 1, 1, "A"),
        TokenRequest((1, 1), 1, (1, 1), 1, 1, 1, "A" * 256),
    ),
    "taken.accepted": (Taken((1, 1), 1, (1, 1), LAST, 1), Taken((1, 1), 1, (1, 1), BEYOND, 1)),
    "taken.stable": (Taken((1, 1), 1, (1, 1), 1, 0), Taken((1, 1), 1, (1, 1), 1, -1)),
    "taken.node": (Taken((1, 1), 0, (1, 1), 1, 1), Taken((1, 1), -1, (1, 1), 1, 1)),
    "query.node": (Query((1, 1), LAST, (1, 1)), Query((1, 1), BEYOND, (1, 1))),
    "entry.channel": (
        Entry((1, 1), 0, 1, 1, 1, "a", 1, 1, "A", BATCH),
        Entry((1, 1), -1, 1, 1, 1, "a", 1, 1, "A", BATCH),
    ),
    "entry.seq": (
        Entry((1, 1), 1, 1, 1, 1, "a", 1, 1, "A", BATCH),
        Entry((1, 1), 1, 0, 1, 1, "a", 1, 1, "A", BATCH),
    ),
    "entry.ready": (
        Entry((1, 1), 1, 1, LAST, 1, "a", 1, 1, "A", BATCH),
        Entry((1, 1), 1, 1, BEYOND, 1, "a", 1, 1, "A", BATCH),
    ),
    "entry.settled": (
        Entry((1, 1), 1, 1, 1, 0, "a", 1, 1, "A", BATCH),
        Entry((1, 1), 1, 1, 1, -1, "a", 1, 1, "A", BATCH),
    ),
    "entry.sender": (
        Entry((1, 1), 1, 1, 1, 1, LONG, 1, 1, NO_GROUP, BATCH),
        Entry((1, 1), 1, 1, 1, 1, "", 1, 1, "A", BATCH),
    ),
    "entry.incarnation": (
        Entry((1, 1), 1, 1, 1, 1, "a", LATEST, 1, "A", BATCH),
        Entry((1, 1), 1, 1, 1, 1, "a", LATEST + 1, 1, "A", BATCH),
    ),
    "entry.number": (
        Entry((1, 1), 1, 1, 1, 1, "a", 1, 0, "A", BATCH),
        Entry((1, 1), 1, 1, 1, 1, "a", 1, -1, "A", BATCH),
    ),
    "entry.group": (
        Entry((1, 1), 1, 1, 1, 1, "a", 1, 1, NO_GROUP, BATCH),
        Entry((1, 1), 1, 1, 1, 1, "a", 1, 1, "A" * 256, BATCH),
    ),
    "token.count": (
        Token((1, 1), 1, 1, 1, 1, "a", 1, 1, LAST, "A"),
        Token((1, 1), 1, 1, 1, 1, "a", 1, 1, 0, "A"),
    ),
    "token.group": (
        Token((1, 1), 1, 1, 1, 1, "a", 1, 1, 1, "A"),
        Token((1, 1), 1, 1, 1, 1, "a", 1, 1, 1, NO_GROUP),
    ),
    "token.sender": (
        Token((1, 1), 1, 1, 1, 1, LONG, 1, 1, 1, "A"),
        Token((1, 1), 1, 1, 1, 1, LONG + "n", 1, 1, 1, "A"),
    ),
    "body.number": (Body((1, 1), (1, 1), LAST, "A", BATCH), Body((1, 1), (1, 1), BEYOND, "A", BATCH)),
    "body.group": (Body((1, 1), (1, 1), 1, "A", BATCH), Body((1, 1), (1, 1), 1, NO_GROUP, BATCH)),
    "mark.last": (Mark((1, 1), 1, LAST, 1, 1), Mark((1, 1), 1, BEYOND, 1, 1)),
    "mark.channel": (Mark((1, 1), 0, 1, 1, 1), Mark((1, 1), -1, 1, 1, 1)),
    "held.missing": (
        Held((1, 1), 1, 1, 1, (1,) * MOST_MISSING),
        Held((1, 1), 1, 1, 1, (1,) * (MOST_MISSING + 1)),
    ),
    "held.held": (Held((1, 1), 1, LAST, 1, ()), Held((1, 1), 1, BEYOND, 1, ())),
    "held.done": (Held((1, 1), 1, 1, 0, ()), Held((1, 1), 1, 1, -1, ())),
    "heartbeat.origin": (
        Heartbeat((LATEST, LAST, LONG), 1, (1, 1), 1, (), "r"),
        Heartbeat((LATEST, LAST, LONG + "n"), 1, (1, 1), 1, (), "r"),
    ),
    "heartbeat.version": (
        Heartbeat(None, LAST, (1, 1), 1, (), "r"),
        Heartbeat(None, BEYOND, (1, 1), 1, (), "r"),
    ),
    "heartbeat.serial": (
        Heartbeat(None, 1, (1, 1), LAST, (), "r"),
        Heartbeat(None, 1, (1, 1), BEYOND, (), "r"),
    ),
    "heartbeat.groups": (
        Heartbeat(None, 1, (1, 1), 1, ("A",) * MOST_GROUPS, "r"),
        Heartbeat(None, 1, (1, 1), 1, ("A",) * (MOST_GROUPS + 1), "r"),
    ),
    "heartbeat.rules": (
        Heartbeat(None, 1, (1, 1), 1, (), "r" * 256),
        Heartbeat(None, 1, (1, 1), 1, (), "r" * 257),
    ),
    "heartbeat.stages": (
        Heartbeat(None, 1, (1, 1), 1, (), "r", (((1, 1), FINISHED),) * MOST_RETIRING),
        Heartbeat(None, 1, (1, 1), 1, (), "r", (((1, 1), FINISHED),) * (MOST_RETIRING + 1)),
    ),
    "progress.stage": (Progress((((1, 1), FINISHED),)), Progress((((1, 1), FINISHED + 1),))),
    "progress.tree": (Progress((((0, 0), 0),)), Progress((((0, -1), 0),))),
    "goodbye.session": (Goodbye((LATEST, LAST)), Goodbye((LATEST, BEYOND))),
    "prepare.version": (
        Prepare("r", (1, 1, ""), LAST, 1, ()),
        Prepare("r", (1, 1, ""), BEYOND, 1, ()),
    ),
    "prepare.round": (Prepare("r", (1, 1, ""), 1, 0, ()), Prepare("r", (1, 1, ""), 1, -1, ())),
    "prepare.rules": (
        Prepare("r" * 256, (1, 1, ""), 1, 1, ()),
        Prepare("r" * 257, (1, 1, ""), 1, 1, ()),
    ),
    "prepare.stop": (
        Prepare("r", (1, 1, ""), 1, 1, ((1, 1),) * MOST_TREES),
        Prepare("r", (1, 1, ""), 1, 1, ((1, 1),) * (MOST_TREES + 1)),
    ),
    "report.round": (Report(1, LAST, (1, 1), None, ()), Report(1, BEYOND, (1, 1), None, ())),
    "report.version": (Report(0, 1, (1, 1), None, ()), Report(-1, 1, (1, 1), None, ())),
    "report.session": (Report(1, 1, (1, 0), None, ()), Report(1, 1, (1, -1), None, ())),
    "report.holdings": (
        Report(1, 1, (1, 1), None, (Holding((1, 1), (), 0, ()),) * MOST_TREES),
        Report(1, 1, (1, 1), None, (Holding((1, 1), (), 0, ()),) * (MOST_TREES + 1)),
    ),
    "report.vote": (
        Report(1, 1, (1, 1), Vote((LAST, "a"), True, True, DECISION), ()),
        Report(1, 1, (1, 1), Vote((BEYOND, "a"), True, True, DECISION), ()),
    ),
    "holding.stream": (
        held(stream=(Item("a", 1, 1, "A"),) * 1000),
        held(stream=(Item("", 1, 1, "A"),)),
    ),
    "holding.delivered": (held(delivered=0), held(delivered=-1)),
    "item.number": (held(waiting=(Item(LONG, LAST, 1, "A"),)), held(waiting=(Item("a", -1, 1, "A"),))),
    "item.count": (held(waiting=(ITEM,)), held(waiting=(Item("a", 1, 0, "A"),))),
    "item.group": (held(waiting=(ITEM,)), held(waiting=(Item("a", 1, 1, NO_GROUP),))),
    "accept.round": (Accept(1, LAST, False, DECISION), Accept(1, BEYOND, False, DECISION)),
    "accept.version": (Accept(0, 1, False, DECISION), Accept(-1, 1, False, DECISION)),
    "accepted.round": (Accepted(1, LAST, (1, 1)), Accepted(1, BEYOND, (1, 1))),
    "accepted.version": (Accepted(LAST, 1, (1, 1)), Accepted(BEYOND, 1, (1, 1))),
    "refuse.round": (Refuse(1, LAST), Refuse(1, BEYOND)),
    "refuse.version": (Refuse(0, 1), Refuse(-1, 1)),
    "install.rules": (Install("r" * 256, DECISION), Install("r" * 257, DECISION)),
    "decision.version": (decided(version=LAST), decided(version=BEYOND)),
    "decision.origin": (decided(origin=NO_FOUNDER), decided(origin=(-1, 0, ""))),
    "decision.ballot": (decided(ballot=(0, "")), decided(ballot=(0, LONG + "n"))),
    "decision.records": (
        decided(records=(RECORD,) * MOST_SITES),
        decided(records=(RECORD,) * (MOST_SITES + 1)),
    ),
    "decision.no records": (decided(records=(RECORD,)), decided(records=())),
    "decision.primaries": (
        decided(primaries=((("A",), "a"),) * MOST_SITES),
        decided(primaries=((("A",), "a"),) * (MOST_SITES + 1)),
    ),
    "decision.trees": (
        decided(trees=((("A",), (1, 1)),) * MOST_SITES),
        decided(trees=((("A",), (1, 1)),) * (MOST_SITES + 1)),
    ),
    "decision.retiring": (
        decided(retiring=(Retiring((1, 1), ()),) * MOST_RETIRING),
        decided(retiring=(Retiring((1, 1), ()),) * (MOST_RETIRING + 1)),
    ),
    "decision.endings": (
        decided(endings=(Ending((1, 1), (), (), 0),) * MOST_TREES),
        decided(endings=(Ending((1, 1), (), (), 0),) * (MOST_TREES + 1)),
    ),
    "record.site": (listed(site=LONG), listed(site="")),
    "record.session": (listed(session=(LATEST, LAST)), listed(session=(LATEST, BEYOND))),
    "record.serial": (listed(serial=LAST), listed(serial=BEYOND)),
    "record.groups": (listed(groups=("A",) * MOST_GROUPS), listed(groups=("",))),
    "ending.sources": (ended(sources=("a",)), ended(sources=("",))),
    "ending.sure": (ended(sure=0), ended(sure=-1)),
    "retiring.sites": (
        decided(retiring=(Retiring((1, 1), (("A", ("a",)),)),)),
        decided(retiring=(Retiring((1, 1), (("A", ("",)),)),)),
    ),
    "want.items": (
        Want((1, 1), (("a", 1),) * MOST_WANTED),
        Want((1, 1), (("a", 1),) * (MOST_WANTED + 1)),
    ),
    "want.number": (Want((1, 1), (("a", LAST),)), Want((1, 1), (("a", BEYOND),))),
    "copy.sender": (Copy((1, 1), LONG, 1, 1, "A", BATCH), Copy((1, 1), LONG + "n", 1, 1, "A", BATCH)),
    "copy.group": (Copy((1, 1), "a", 1, 1, "A", BATCH), Copy((1, 1), "a", 1, 1, NO_GROUP, BATCH)),
    "copy.incarnation": (Copy((1, 1), "a", 0, 1, "A", BATCH), Copy((1, 1), "a", -1, 1, "A", BATCH)),
    "part.count": (Part(131, 1, 0, MOST_PARTS, b"x"), Part(131, 1, 0, MOST_PARTS + 1, b"x")),
    "part.place": (Part(131, 1, 0, 1, b"x"), Part(131, 1, -1, 1, b"x")),
    "part.data": (Part(131, 1, 0, 1, bytes(PART_BYTES)), Part(131, 1, 0, 1, bytes(PART_BYTES + 1))),
    "part.no data": (Part(131, 1, 0, 1, b"x"), Part(131, 1, 0, 1, b"")),
    "part.kind": (Part(255, 1, 0, 1, b"x"), Part(256, 1, 0, 1, b"x")),
    "move.number": (Moves((MOVE,)), Moves((structs.replace(MOVE, number=0),))),
    "ask.known": (AskMoves((1, 1, "a"), 1, 0), AskMoves((1, 1, "a"), 1, -1)),
    "moves.none": (Moves((MOVE,)), Moves(())),
    "part.name": (Part(131, (1 << 63) - 1, 0, 1, b"x"), Part(131, 1 << 63, 0, 1, b"x")),
}


@pytest.mark.parametrize("field", LIMITS)
def test_no_field_goes_beyond_its_bounds(field: str) -> None:
    codec = Codec(PDUS)
    last, beyond = LIMITS[field]
    assert isinstance(codec.decode(codec.encode(last)), Packet)
    assert isinstance(codec.decode(codec.encode(beyond)), Garbage)


def test_endings_are_bounded() -> None:
    """Too many of their items for one PDU: they come in parts, and are read there by the same bounds."""
    for items, fits in ((MOST_ITEMS, True), (MOST_ITEMS + 1, False)):
        data = Codec(PDUS)._encoder.encode(ended(sources=("a",) * items))
        assert (reassemble(Install.code, name_of(data), [data]) is not None) == fits


TWO = pack([b"x", b"y"])
LARGE, LARGER = (pack([bytes(LARGEST_BATCH_BYTES - 8 + more)]) for more in (0, 1))
RELATIONS: dict[str, tuple[Pdu, Pdu]] = {
    "the numbers of a request": (
        Request((1, 1), 1, (1, 1), 1, LAST - 2, "A", TWO),
        Request((1, 1), 1, (1, 1), 1, LAST - 1, "A", TWO),
    ),
    "the size of a request": (
        Request((1, 1), 1, (1, 1), 1, 1, "A", LARGE),
        Request((1, 1), 1, (1, 1), 1, 1, "A", LARGER),
    ),
    "the numbers of a token request": (
        TokenRequest((1, 1), 1, (1, 1), 1, LAST - 2, 2, "A"),
        TokenRequest((1, 1), 1, (1, 1), 1, LAST - 1, 2, "A"),
    ),
    "the numbers of a token": (
        Token((1, 1), 1, 1, 1, 1, "a", 1, LAST - 2, 2, "A"),
        Token((1, 1), 1, 1, 1, 1, "a", 1, LAST - 1, 2, "A"),
    ),
    "the marks of a token": (
        Token((1, 1), 1, 1, 1, 1, "a", 1, 1, 1, "A"),
        Token((1, 1), 1, 1, 1, 2, "a", 1, 1, 1, "A"),
    ),
    "the marks of an entry": (
        Entry((1, 1), 1, 1, 1, 1, "a", 1, 1, "A", BATCH),
        Entry((1, 1), 1, 1, 1, 2, "a", 1, 1, "A", BATCH),
    ),
    "the numbers of an entry": (
        Entry((1, 1), 1, 1, 1, 1, "a", 1, LAST - 2, "A", TWO),
        Entry((1, 1), 1, 1, 1, 1, "a", 1, LAST - 1, "A", TWO),
    ),
    "what was taken": (Taken((1, 1), 1, (1, 1), 1, 1), Taken((1, 1), 1, (1, 1), 1, 2)),
    "what is settled": (Mark((1, 1), 1, 1, 1, 1), Mark((1, 1), 1, 2, 1, 2)),
    "what is ready": (Mark((1, 1), 1, 1, 1, 1), Mark((1, 1), 1, 1, 2, 1)),
    "what is held": (Held((1, 1), 1, 1, 1, ()), Held((1, 1), 1, 1, 2, ())),
    "rules": (Heartbeat(None, 1, (1, 1), 1, (), "r"), Heartbeat(None, 1, (1, 1), 1, (), "\n")),
    "the letters of groups": (
        Heartbeat(None, 1, (1, 1), 1, ("g" * 128,) * (MOST_LETTERS // 128), "r"),
        Heartbeat(None, 1, (1, 1), 1, ("g" * 129,) * (MOST_LETTERS // 128), "r"),
    ),
    "the places of parts": (Part(131, 1, 1, 2, b"x"), Part(131, 1, 2, 2, b"x")),
    "the kinds of parts": (Part(131, 1, 0, 2, b"x"), Part(Prepare.code, 1, 0, 2, b"x")),
    "what was delivered": (held(stream=(ITEM,), delivered=1), held(stream=(ITEM,), delivered=2)),
    "the numbers of a stream": (
        held(stream=(Item("a", LAST - 2, 2, "A"),)),
        held(stream=(Item("a", LAST - 1, 2, "A"),)),
    ),
    "the numbers of what waits": (
        held(waiting=(Item("a", LAST - 2, 2, "A"),)),
        held(waiting=(Item("a", LAST - 1, 2, "A"),)),
    ),
    "the vote of a report": (
        Report(1, 1, (1, 1), Vote((1, "a"), True, True, DECISION), ()),
        Report(1, 1, (1, 1), Vote((1, "a"), True, True, decided(records=(RECORD, RECORD)).decision), ()),
    ),
    "the version of a decision": (Accept(1, 1, False, DECISION), Accept(2, 1, False, DECISION)),
    "the records to accept": (
        Accept(1, 1, False, DECISION),
        Accept(1, 1, False, decided(records=(RECORD, RECORD)).decision),
    ),
    "the order of records": (
        decided(records=(RECORD, structs.replace(RECORD, site="b"))),
        decided(records=(structs.replace(RECORD, site="b"), RECORD)),
    ),
    "the records of a change": (changed(), changed(records=(RECORD, RECORD))),
    "the endings of a change": (changed(), changed(endings=(Ending((1, 1), (), ("a",), 0),))),
    "the order of groups": (listed(groups=("A", "B")), listed(groups=("B", "A"))),
    "the letters of a record": (
        listed(groups=tuple(f"{index:04}" for index in range(MOST_GROUPS))),
        listed(groups=tuple(f"{index:017}" for index in range(MOST_GROUPS))),
    ),
    "the sources of an ending": (
        ended(items=(ITEM,), sources=("a",), sure=1),
        ended(items=(ITEM,), sources=()),
    ),
    "what is sure of an ending": (
        ended(items=(ITEM,), sources=("a",), sure=1),
        ended(items=(ITEM,), sources=("a",), sure=2),
    ),
    "the numbers of an ending": (
        ended(items=(Item("a", LAST - 2, 2, "A"),), sources=("a",)),
        ended(items=(Item("a", LAST - 1, 2, "A"),), sources=("a",)),
    ),
}


@pytest.mark.parametrize("relation", RELATIONS)
def test_fields_fit_one_another(relation: str) -> None:
    sense, nonsense = RELATIONS[relation]
    assert makes_sense(sense)
    assert not makes_sense(nonsense)


def test_a_batch_is_measured_without_the_datagram_that_brought_it() -> None:
    codec = Codec(PDUS)
    packet = codec.decode(codec.encode(Request((1, 1), 1, (1, 1), 1, 1, "A", LARGE)))
    assert isinstance(packet, Packet)
    assert makes_sense(packet.pdu)


@pytest.mark.parametrize("data", [b"\x92\xa1\xff\x90", b"\x91" * 5000, b"\xc1", b""])
def test_parts_of_nonsense_make_no_whole(data: bytes) -> None:
    assert reassemble(Install.code, name_of(data), [data]) is None


@pytest.mark.parametrize(("name", "fits"), [(LONG, True), (LONG + "n", False), ("", False), ("a", False)])
def test_a_name_that_fits_no_view_is_ignored(name: str, fits: bool) -> None:
    cluster = cluster_of()
    cluster.give("a", Received(name, Heartbeat(None, 0, (7, 0), 1, ("A",), RULES)))
    assert (cluster.figure("a", "ignored") == 0) == fits
    assert (cluster.members["a"].incarnation_of(name) == 7) == fits
