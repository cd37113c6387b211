"""Meta-groups among sites that lie: numbers that leap, forged views, copies that were not asked for."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from antiphon.core.effects import Deliver, Effect, Send, Stable
from antiphon.core.fields import INCARNATION_LIMIT, LONGEST_NAME, NUMBER_LIMIT
from antiphon.core.inputs import Received, Start
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Codec, Garbage, Packet, Pdu
from antiphon.protocols.metagroups import PDUS, MetaGroupsConfiguration
from antiphon.protocols.metagroups import view as view_module
from antiphon.protocols.metagroups.acceptor import LONGEST_LEAP as LONGEST_LEAP_OF_ROUNDS
from antiphon.protocols.metagroups.attempt import Attempt, Outcome, is_vote_for
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.credible import MOST_REQUESTS, can_follow, is_mostly_known
from antiphon.protocols.metagroups.ending import end_tree
from antiphon.protocols.metagroups.ledger import MOST_INCARNATIONS, MOST_SENDERS, MOST_SPANS, Ledger, Spans
from antiphon.protocols.metagroups.membership import LATEST_VERSION
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
    Decision,
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
    SiteRecord,
    Taken,
    Token,
    TokenRequest,
    Vote,
    Want,
)
from antiphon.protocols.metagroups.peers import LATEST_INCARNATION, LONGEST_LEAP, MOST_HEARD
from antiphon.protocols.metagroups.proposer import STUCK_AFTER
from antiphon.protocols.metagroups.validation import makes_sense
from antiphon.protocols.metagroups.view import NO_FOUNDER, View, decide, plan_trees, retire, view_of
from tests.protocols.harness.metagroups_group import KNOBS, Cluster
from tests.protocols.harness.staging import pdus

BATCH = pack([b"x"])
RULES = KNOBS.rules
GROUPS = {"A": "abc", "B": "cde"}
HEARTBEAT_MS = KNOBS.heartbeat_ns / MILLISECOND_NS
SUSPECT_MS = KNOBS.suspect_ns / MILLISECOND_NS
RECORD = SiteRecord("a", (1, 1), 1, ("A",))
ITEM = Item("a", 1, 1, "A")
MOVE = Move(1, 1, "e", "B", (1, 0), 1, 0)
DECISION = Decision((1, 1, "a"), 1, (1, "a"), (RECORD,), (), (), (), ())


def cluster_of(knobs: MetaGroupsConfiguration = KNOBS) -> Cluster:
    cluster = Cluster(GROUPS, knobs)
    cluster.pass_time(200)
    return cluster


def view_at(cluster: Cluster, name: str) -> View:
    view = cluster.members[name]._member._trees.view
    assert view is not None
    return view


def all_get_on(cluster: Cluster, within_ms: float = 500) -> bool:
    before = {name: len(cluster.delivered(name)) for name in "abcde"}
    for name in "ab":
        cluster.admit(name, "A")
    for name in "de":
        cluster.admit(name, "B")
    cluster.pass_time(within_ms)
    gained = [len(cluster.delivered(name)) - before[name] for name in "abcde"]
    return gained == [2, 2, 4, 2, 2]


# Fields


def decided(**changes: object) -> Install:
    return Install("r", structs.replace(DECISION, **changes))


def listed(**changes: object) -> Install:
    return decided(records=(structs.replace(RECORD, **changes),))


def ended(**changes: object) -> Install:
    return decided(endings=(structs.replace(Ending((1, 1), (), (), 0), **changes),))


def held(**changes: object) -> Report:
    return Report(1, 1, (1, 1), None, (structs.replace(Holding((1, 1), (), 0, ()), **changes),))


def changed(**changes: object) -> AcceptChange:
    change = Change((1, "a"), (RECORD,), (), (), (), (Ending((1, 1), (), (), 0),))
    return AcceptChange(2, 1, decision_name(DECISION), structs.replace(change, **changes))


LAST, BEYOND = NUMBER_LIMIT - 1, NUMBER_LIMIT
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


# Decisions that no proposer can have made


def following(view: View, *, without: str = "", ballot: tuple[int, str] = (1, "a")) -> Decision:
    """What a coordinator would make next if these were gone, with nothing under way."""
    records = [record for record in view.decision.records if record.site not in without]
    plan = plan_trees(view, records, (), KNOBS.shape)
    endings = [end_tree(tree, view.members_on(tree), {}) for tree in sorted(plan.ended)]
    origin, retiring = view.decision.origin, retire(view, plan, ())
    return decide(origin, view.version + 1, ballot, records, plan, retiring, endings)


def moved(view: View) -> Decision:
    """What it would make if b left its group: a tree hands over, and another site comes."""
    request = structs.replace(view.records["b"], serial=9, groups=())
    records = [request if record.site == "b" else record for record in view.decision.records]
    records.append(SiteRecord("z", (7, 0), 1, ("C",)))
    plan = plan_trees(view, records, (), KNOBS.shape)
    retiring = retire(view, plan, ())
    return decide(view.decision.origin, view.version + 1, (1, "a"), records, plan, retiring)


def test_what_coordinators_make_can_follow() -> None:
    view = view_at(cluster_of(), "a")
    for decision in (following(view, without="e"), following(view, without="ed"), moved(view)):
        assert can_follow(decision, view, KNOBS)
    (retiring,) = moved(view).retiring
    assert retiring.tree in view.trees


def forged(view: View) -> dict[str, Decision]:
    """Decisions with one thing each that is wrong."""
    fair, over = following(view, without="e"), moved(view)
    (tree,) = view.trees
    (label, _), *others = over.trees
    return {
        "another cluster": structs.replace(fair, origin=(0, 0, "x")),
        "a later version": structs.replace(fair, version=fair.version + 1),
        "too few stay": following(view, without="cde"),
        "others stay": structs.replace(
            fair, records=tuple(structs.replace(record, session=(9, 9)) for record in fair.records)
        ),
        "a tree without a name": structs.replace(over, trees=tuple(others)),
        "a name without a tree": structs.replace(over, trees=(*over.trees, (("Z",), (2, 9)))),
        "two trees with one name": structs.replace(
            over, trees=tuple((root, over.trees[0][1]) for root, _ in over.trees)
        ),
        "a new tree with an old name": structs.replace(over, trees=((label, (1, 7)), *others)),
        "another tree of the same name": structs.replace(over, trees=((label, tree), *others), retiring=()),
        "a tree that is forgotten": structs.replace(over, retiring=()),
        "an ending that is forgotten": structs.replace(fair, endings=()),
        "two endings of one tree": structs.replace(fair, endings=fair.endings * 2),
        "a tree that ends and hands over": structs.replace(over, endings=(Ending(tree, (), (), 0),)),
        "a tree that hands over twice": structs.replace(over, retiring=over.retiring * 2),
        "an ending of no tree": structs.replace(
            fair, endings=(*fair.endings, structs.replace(fair.endings[0], tree=(1, 99)))
        ),
        "other members": structs.replace(over, retiring=(Retiring(tree, ()),)),
    }


WRONG = tuple(forged(view_at(cluster_of(), "a")))


@pytest.mark.parametrize("wrong", WRONG)
def test_what_no_coordinator_makes_cannot_follow(wrong: str) -> None:
    view = view_at(cluster_of(), "a")
    assert not can_follow(forged(view)[wrong], view, KNOBS)


def propose(cluster: Cluster, decision: Decision, to: str = "bcde", *, adopted: bool = False) -> None:
    """a makes this decision, and puts it in force at once."""
    version = view_at(cluster, "b").version + 1
    for name in to:
        cluster.give(name, Received("a", Prepare(RULES, NO_FOUNDER, version, 1, ())))
        cluster.give(name, Received("a", Accept(decision.version, 1, adopted, decision)))
        cluster.give(name, Received("a", Install(RULES, decision)))


@pytest.mark.parametrize("wrong", WRONG)
def test_no_site_accepts_a_forged_view(wrong: str) -> None:
    cluster = cluster_of()
    propose(cluster, forged(view_at(cluster, "b"))[wrong])
    assert {view_at(cluster, name).version for name in "bcde"} == {1}
    assert not any(cluster.spells(name) for name in "bcde")
    cluster.pass_time(1500)
    assert all_get_on(cluster)


def test_a_view_that_follows_is_accepted() -> None:
    cluster = cluster_of()
    propose(cluster, following(view_at(cluster, "b"), without="e"))
    assert {view_at(cluster, name).version for name in "bcd"} == {2}


@pytest.mark.parametrize(
    ("serial", "groups", "accepted"),
    [(0, (), True), (1, ("B",), True), (1, ("A",), False), (2, ("B",), False), (LAST, (), False)],
)
def test_no_site_accepts_a_record_that_it_did_not_request(
    serial: int, groups: tuple[str, ...], accepted: bool
) -> None:
    """With a serial that is too late it could never request for another."""
    cluster = cluster_of()
    view = view_at(cluster, "d")
    records = [
        structs.replace(record, serial=serial, groups=groups) if record.site == "d" else record
        for record in view.decision.records
        if record.site != "e"
    ]
    plan = plan_trees(view, records, (), KNOBS.shape)
    endings = [end_tree(tree, view.members_on(tree), {}) for tree in sorted(plan.ended)]
    decision = decide(NO_FOUNDER, 2, (1, "a"), records, plan, retire(view, plan, ()), endings)
    propose(cluster, decision, "d")
    assert (view_at(cluster, "d").version == 2) == accepted


@pytest.mark.parametrize("adopted", [False, True])
@pytest.mark.parametrize("heard", [None, (6, 9), (7, 0), (7, 1)])
def test_sites_that_were_never_heard_are_not_let_in(heard: tuple[int, int] | None, adopted: bool) -> None:
    cluster = cluster_of()
    records = [SiteRecord(f"z{index}", (7, 0), 1, ("C",)) for index in range(2)]
    view = view_at(cluster, "c")
    plan = plan_trees(view, [*view.decision.records, *records], (), KNOBS.shape)
    decision = decide(NO_FOUNDER, 2, (1, "a"), [*view.decision.records, *records], plan)
    if heard is not None:
        for record in records:
            cluster.give("c", Received(record.site, Heartbeat(None, 0, heard, 1, ("C",), RULES)))
    propose(cluster, decision, "c", adopted=adopted)
    believed = adopted or (heard is not None and heard >= (7, 0))
    assert (view_at(cluster, "c").version == 2) == believed


def test_a_few_may_be_unheard_where_many_are_known() -> None:
    view = view_at(cluster_of(), "a")
    for unheard, fits in ((0, True), (1, True), (2, False)):
        records = [
            *view.decision.records,
            *(SiteRecord(f"z{index}", (7, 0), 1, ()) for index in range(unheard)),
        ]
        decision = structs.replace(view.decision, records=tuple(records))
        assert is_mostly_known(decision, view, lambda _site, _session: False) == fits


def test_a_stranger_makes_no_attempt() -> None:
    cluster = cluster_of()
    for name in "abcde":
        prepare = Prepare(RULES, NO_FOUNDER, 2, 1, tuple(view_at(cluster, name).trees))
        assert pdus(cluster.give(name, Received("z", prepare)), Report) == []
    assert all_get_on(cluster)


# Votes


@pytest.mark.parametrize("wrong", [*WRONG, "a later ballot", "a decision from the future"])
def test_no_coordinator_adopts_a_forged_vote(wrong: str) -> None:
    cluster = cluster_of()
    view = view_at(cluster, "a")
    ballot = (1, "a")
    if wrong == "a later ballot":
        ballot, decision = (2, "a"), following(view, without="de")
    elif wrong == "a decision from the future":
        decision = following(view, without="de", ballot=(2, "a"))
    else:
        decision = forged(view)[wrong]
    vote = Vote(ballot, True, True, decision)
    cluster.crash("e")

    def lie(source: str, target: str, pdu: Pdu) -> bool:
        if source == "d" and isinstance(pdu, Report) and pdu.vote is None:
            cluster.give(target, Received("d", structs.replace(pdu, vote=vote)))
            return True
        return False

    cluster.lost = lie
    cluster.pass_time(1500)
    assert set(view_at(cluster, "a").sessions) == set("abcd")
    assert view_at(cluster, "a").decision != decision


def test_a_vote_that_can_be_meant_is_adopted() -> None:
    cluster = cluster_of()
    decision = following(view_at(cluster, "a"), without="e")
    vote = Vote((1, "a"), True, True, decision)
    cluster.crash("e")

    def tell(source: str, target: str, pdu: Pdu) -> bool:
        if source == "d" and isinstance(pdu, Report) and pdu.vote is None and pdu.version == 2:
            cluster.give(target, Received("d", structs.replace(pdu, vote=vote)))
            return True
        return False

    cluster.lost = tell
    cluster.pass_time(1500)
    assert vote.decision in [pdu.decision for pdu in pdus(cluster.effects["a"], Accept)]


def test_a_decision_is_known_by_all_that_it_says() -> None:
    """Another by the same name is another."""
    decision = following(view_at(cluster_of(), "a"), without="e")
    vote = Vote((1, "a"), False, True, decision)
    assert is_vote_for(vote, decision)
    assert not is_vote_for(vote, structs.replace(decision, endings=()))
    assert not is_vote_for(structs.replace(vote, whole=False), decision)
    assert not is_vote_for(None, decision)


def test_of_two_decisions_of_one_ballot_the_one_that_most_have_accepted_counts() -> None:
    view = view_at(cluster_of(), "a")
    fair = following(view, without="e")
    forgery = structs.replace(fair, endings=())
    attempt = Attempt(view, (2, "a"), "abcd", frozenset(), 0)
    for site in "abcd":
        vote = Vote((1, "a"), True, True, forgery if site == "a" else fair)
        attempt.reports[site] = Report(2, 2, (0, 0), vote, ())
    assert attempt.conclude({}, (), (), KNOBS.shape) is Outcome.DECIDED
    assert attempt.decision == fair


# Seats and spells


@pytest.mark.parametrize(
    ("serial", "groups", "later"), [(1, ("B",), 1), (1, ("A",), 2), (2, ("B",), 3), (0, (), 1)]
)
def test_a_site_requests_again_if_the_view_has_another_record_for_it(
    serial: int, groups: tuple[str, ...], later: int
) -> None:
    """What was adopted may be in force, so that it is accepted whatever it says."""
    cluster = cluster_of()
    view = view_at(cluster, "d")
    records = [
        structs.replace(record, serial=serial, groups=groups) if record.site == "d" else record
        for record in view.decision.records
        if record.site != "e"
    ]
    plan = plan_trees(view, records, (), KNOBS.shape)
    endings = [end_tree(tree, view.members_on(tree), {}) for tree in sorted(plan.ended)]
    decision = decide(NO_FOUNDER, 2, (1, "a"), records, plan, retire(view, plan, ()), endings)
    propose(cluster, decision, "d", adopted=True)
    assert view_at(cluster, "d").version == 2
    assert cluster.members["d"]._member.heartbeat().serial == later


@pytest.mark.parametrize(("site", "before"), [("d", 1), ("z", 0)])
def test_serials_do_not_leap(site: str, before: int) -> None:
    view = view_at(cluster_of(), "a")
    fair = following(view, without="e")
    others = [record for record in fair.records if record.site != site]
    for serial, fits in ((before + MOST_REQUESTS, True), (before + MOST_REQUESTS + 1, False)):
        session, groups = (view.sessions[site], ("B",)) if site == "d" else ((7, 0), ())
        records = (*others, SiteRecord(site, session, serial, groups))
        assert can_follow(structs.replace(fair, records=records), view, KNOBS) == fits


@pytest.mark.parametrize("returning", [False, True])
def test_a_new_site_that_starts_a_new_session_has_missed_something(returning: bool) -> None:
    """A view that it never received may list it, and messages may be for it."""
    cluster = cluster_of()
    cluster.crash("e")
    cluster.incarnations["e"] += 1
    cluster.members["e"] = cluster.build("e")
    cluster.cut.discard("e")
    cluster.effects["e"].clear()
    cluster.give("e", Start(cluster.incarnations["e"], 0, returning=returning))
    cluster.give("e", Received("a", Prepare(RULES, (1, 0, "z"), 5, 1, ())))
    cluster.give("e", Received("b", Prepare(RULES, (0, 0, "z"), 5, 1, ())))
    assert cluster.spells("e") == ("" if returning else "-")
    cluster.pass_time(1500)
    assert cluster.spells("e") == ("+" if returning else "-+")


# Numbers that leap


@pytest.mark.parametrize("leap", [LONGEST_LEAP_OF_ROUNDS, LONGEST_LEAP_OF_ROUNDS + 1, LAST])
def test_rounds_do_not_leap(leap: int) -> None:
    """They climb, so that a site that has missed much catches up."""
    cluster = cluster_of()
    reported = [
        pdus(cluster.give(name, Received("b", Prepare(RULES, NO_FOUNDER, 2, leap, ()))), Report)
        for name in "acde"
    ]
    assert all(bool(found) == (leap == LONGEST_LEAP_OF_ROUNDS) for found in reported)
    cluster.crash("b")
    cluster.pass_time(1500)
    assert set(view_at(cluster, "a").sessions) == set("acde")


def test_a_site_that_missed_many_rounds_catches_up() -> None:
    cluster = cluster_of()
    prepare = Received("a", Prepare(RULES, NO_FOUNDER, 2, 2 * LONGEST_LEAP_OF_ROUNDS, ()))
    assert pdus(cluster.give("b", prepare), Report) == []
    (refusal,) = pdus(
        cluster.give("b", Received("c", Prepare(RULES, NO_FOUNDER, 2, LONGEST_LEAP_OF_ROUNDS - 1, ()))),
        Refuse,
    )
    assert refusal.round == LONGEST_LEAP_OF_ROUNDS
    assert len(pdus(cluster.give("b", prepare), Report)) == 1


@pytest.mark.parametrize("sender", ["d", "z"])
@pytest.mark.parametrize("leap", [0, 1, 1 + LONGEST_LEAP_OF_ROUNDS, LAST])
def test_a_refusal_makes_no_rounds_leap(sender: str, leap: int) -> None:
    cluster = cluster_of()
    cluster.crash("e")
    cluster.lost = lambda _source, _target, pdu: isinstance(pdu, Report)
    while not pdus(cluster.effects["a"], Prepare):
        cluster.pass_time(1)
    cluster.give("a", Received(sender, Refuse(2, leap)))
    cluster.lost = lambda *_: False
    cluster.pass_time(KNOBS.suspect_ns / MILLISECOND_NS / 2)
    assert set(view_at(cluster, "a").sessions) == set("abcd")
    believed = min(leap, LONGEST_LEAP_OF_ROUNDS) if sender == "d" else 0
    assert max(pdu.round for pdu in pdus(cluster.effects["a"], Prepare)) == 1 + believed


@pytest.mark.parametrize(("version", "fits"), [(LATEST_VERSION, True), (LATEST_VERSION + 1, False)])
def test_no_site_is_let_in_by_a_version_that_leaves_no_room(version: int, fits: bool) -> None:
    cluster = cluster_of()
    cluster.crash("e")
    cluster.restart("e")
    effects = cluster.give("e", Received("a", Prepare(RULES, NO_FOUNDER, version, 1, ())))
    assert bool(pdus(effects, Report)) == fits


def test_a_site_without_a_cluster_accepts_what_it_was_invited_to() -> None:
    for origin, version, accepted in ((NO_FOUNDER, 5, True), (NO_FOUNDER, 6, False), ((0, 1, ""), 5, False)):
        cluster = cluster_of()
        cluster.crash("e")
        cluster.restart("e")
        decision = structs.replace(
            DECISION, origin=origin, version=version, records=(SiteRecord("e", (1, 0), 1, ("B",)),)
        )
        cluster.give("e", Received("a", Prepare(RULES, NO_FOUNDER, 5, 1, ())))
        effects = cluster.give("e", Received("a", Accept(version, 1, False, decision)))
        assert bool(pdus(effects, Accepted)) == accepted


def test_a_site_without_an_invitation_accepts_nothing() -> None:
    cluster = cluster_of()
    cluster.crash("e")
    cluster.restart("e")
    decision = structs.replace(DECISION, records=(SiteRecord("e", (1, 0), 1, ("B",)),))
    assert pdus(cluster.give("e", Received("a", Accept(1, 1, False, decision))), Accepted) == []


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
