"""Members of a Distributed Precedence Graph group among strangers: nothing raises, nothing grows for ever."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.fields import INCARNATION_LIMIT, NUMBER_LIMIT
from antiphon.core.inputs import Admit, Received, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.dpg import Dpg, DpgConfiguration
from antiphon.protocols.dpg import member as member_module
from antiphon.protocols.dpg.pdus import (
    LARGEST,
    PDUS,
    TAG_LIMIT,
    Farewell,
    Message,
    Progress,
    Remulticast,
    Report,
    Request,
)
from antiphon.protocols.dpg.reports import pack_arcs
from antiphon.protocols.dpg.services import SERVICE_PDUS, SERVICES
from antiphon.protocols.dpg.tag_lists import pack_tags
from tests.protocols.harness.dpg_group import ChosenTags, Lan, message

CODEC = Codec((*PDUS, *SERVICE_PDUS))
SMALL = DpgConfiguration(
    graph_limit=12, ordering_buffers=4, kept_bodies=4, tombstones=16, history=4, window=2, admission_buffers=2
)
TIMERS = ("report", "deliver", "answer", "ask", "send")

tags = st.one_of(st.integers(1, 12), st.integers(-2, TAG_LIMIT + 1))
"""Mostly a few, so that what is told of them contradicts itself."""
packed_tags = st.lists(st.integers(1, 12), max_size=10).map(pack_tags)
packed_arcs = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 12), st.booleans()), max_size=10
).map(pack_arcs)  # fmt: skip
noise = st.binary(max_size=40)
lists = st.one_of(packed_tags, packed_tags, noise)
numbers = st.one_of(
    st.integers(0, 5), st.sampled_from([-1, INCARNATION_LIMIT - 1, NUMBER_LIMIT // 2 - 1, LARGEST, 2**63 - 1])
)
bodies = st.lists(st.binary(max_size=3), min_size=1, max_size=3).map(pack)
fields: dict[str, st.SearchStrategy[Any]] = {
    "previous": tags, "seen": tags, "stamp": numbers, "incarnation": numbers, "number": numbers,
    "bodies": bodies,
}  # fmt: skip


@st.composite
def reports(draw: st.DrawFn) -> Report:
    agreed = draw(lists)
    fitting = st.binary(min_size=len(agreed) // 8, max_size=len(agreed) // 8)
    return Report(
        incarnation=draw(numbers),
        serial=draw(numbers),
        clock_ns=draw(numbers),
        index=draw(numbers),
        digest=draw(numbers),
        agreed=agreed,
        links=draw(st.one_of(fitting, fitting, noise)),
        vertices=draw(lists),
        arcs=draw(st.one_of(packed_arcs, packed_arcs, noise)),
        lost=draw(lists),
        demand_ns=draw(numbers),
        listening=draw(st.booleans()),
        streams=draw(st.dictionaries(st.sampled_from("abxy"), st.tuples(numbers, numbers), max_size=3)),
        service=draw(noise),
        gone=draw(lists),
        passed=draw(lists),
    )


pdus: st.SearchStrategy[Pdu] = st.one_of(
    st.builds(Message, tag=tags, index=numbers, **fields),
    st.builds(Message, tag=tags, index=numbers, **fields),
    st.builds(Remulticast, sender=st.sampled_from("abxy"), tag=tags, **fields),
    reports(),
    reports(),
    st.builds(Farewell, incarnation=numbers),
    st.builds(Progress, index=numbers),
    st.builds(Request, lost=lists),
)
steps = st.one_of(
    st.tuples(st.sampled_from("abxy"), pdus, st.booleans()),
    st.tuples(st.sampled_from("abxy"), pdus, st.booleans()),
    st.sampled_from(TIMERS),
    st.just(b"own"),
)


def as_decoded(pdu: Pdu) -> Any:
    """A PDU as it comes through the gate; None if it does not."""
    try:
        found = CODEC.decode(CODEC.encode(pdu))
    except OverflowError:
        return None  # no bytes say that
    return found.pdu if isinstance(found, Packet) else None


def act(member: Dpg, now: int, step: Any) -> None:
    if isinstance(step, str):
        member.handle(now, TimerFired(step))
    elif isinstance(step, bytes):
        member.handle(now, Admit((step,)))
    elif (pdu := as_decoded(step[1])) is not None:
        member.handle(now, Received(step[0], pdu, step[2]))


def check_bounds(member: Dpg) -> None:
    order = member._order
    assert len(order.graph) <= SMALL.graph_limit
    assert len(order.buffers) <= SMALL.ordering_buffers
    assert len(order.tombstones) <= SMALL.tombstones
    assert len(order.own) <= SMALL.window
    assert len(order.past) <= SMALL.history
    assert len(order.queue) <= 2 * SMALL.graph_limit + SMALL.ordering_buffers
    assert len(order.lost) <= SMALL.graph_limit + len(order.queue)
    order.kept.expire(0)
    assert len(order.kept) <= SMALL.kept_bodies


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("incarnation", [0, 1])
@settings(max_examples=120, deadline=None)
@given(script=st.lists(steps, max_size=40), pause_ms=st.sampled_from([0, 3, 120]))
def test_whatever_strangers_say_nothing_raises_and_nothing_grows(
    service: str, incarnation: int, script: list[Any], pause_ms: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(member_module, "Tags", ChosenTags())
        member = Dpg("a", SMALL, SERVICES[service](), Random(1))
    now = 0
    member.handle(now, Start(incarnation, 0))
    for step in script:
        now += pause_ms * MILLISECOND_NS
        act(member, now, step)
        check_bounds(member)


@pytest.mark.parametrize("pdu", [message(0), Request(b"123")], ids=["tag", "odd list"])
def test_what_makes_no_sense_is_counted_and_dropped(pdu: Pdu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "Tags", ChosenTags())
    lan = Lan("abc")
    before = lan.members["a"].figures()
    lan.give("a", Received("x", pdu))
    after = lan.members["a"].figures()
    assert after["ignored"] == before["ignored"] + 1
    assert after["vertices"] == 0


@pytest.mark.parametrize("field", ["agreed", "vertices", "arcs", "lost", "links", "gone", "passed"])
def test_a_report_with_a_torn_list_is_counted_and_dropped(field: str) -> None:
    lan = Lan("abc")
    lan.admit("b")
    lan.pass_time(50)
    torn = {name: getattr(lan.sent(Report)[-1], name) for name in Report.__struct_fields__} | {field: b"123"}
    before = lan.members["a"].figures()["ignored"]
    lan.give("a", Received("x", Report(**torn)))
    assert lan.members["a"].figures()["ignored"] == before + 1


def test_tags_of_another_group_are_not_taken() -> None:
    lan = Lan("abc")
    stranger = Dpg("x", DpgConfiguration(), SERVICES["lan"](), Random(2), secret=b"another")
    stranger.handle(0, Start())
    effects = stranger.handle(1, Admit((b"x",)))
    (foreign,) = [effect.pdu for effect in effects if hasattr(effect, "pdu")]
    lan.give("a", Received("x", foreign))
    assert lan.members["a"].figures()["ignored"] == 1
    assert lan.members["a"].vertices == 0


def test_an_own_echo_is_ignored() -> None:
    lan = Lan("ab")
    lan.admit("a")
    lan.settle()
    (own,) = lan.sent(Message)
    lan.give("a", Received("a", own))
    assert lan.members["a"].figures()["ignored"] == 1


def test_an_endless_order_without_bodies_is_not_believed_without_end() -> None:
    member = Dpg("a", SMALL, SERVICES["lan"](), Random(1))
    member.handle(0, Start())
    told = [member._tags.choose(lambda _tag: False) for _ in range(400)]
    forged = {name: getattr(lan_report(), name) for name in Report.__struct_fields__}
    for place in range(0, len(told), 8):
        before = [0, *told][place]
        vertices = told[place : place + 8]
        arcs = [(tail, head, True) for tail, head in pairwise([before, *vertices])]
        lie = Report(**(forged | {"vertices": pack_tags(vertices), "arcs": pack_arcs(arcs)}))
        member.handle(place, Received("x", lie))
        check_bounds(member)


def test_a_group_goes_on_after_a_liar_has_been_there() -> None:
    """False marks between unknown messages cost a wait, not the order."""
    lan = Lan("abc")
    forged = {name: getattr(lan_report(), name) for name in Report.__struct_fields__}
    vertices = [lan.members["b"]._tags.choose(lambda _tag: False) for _ in range(6)]
    arcs = [
        (tail, head, True) for tail, head in zip(vertices, reversed(vertices), strict=True) if tail != head
    ]
    for name in lan.names:
        told = forged | {"vertices": pack_tags(vertices), "arcs": pack_arcs(arcs)}
        lan.give(name, Received("x", Report(**told)))
    for name in lan.names:
        lan.admit(name)
    lan.wait_for(lambda: lan.all_delivered(3))
    assert sorted(lan.agreed()) == ["a0", "b0", "c0"]


def lan_report() -> Report:
    lan = Lan("ab")
    lan.pass_time(100)
    return lan.sent(Report)[0]  # type: ignore[no-any-return]
