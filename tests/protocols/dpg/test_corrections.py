"""Corrections of the Distributed Precedence Graph protocol: where the printed form fails, and ours does not.

Numbers are those of the list of errata. Each test leaves a correction out, or replaces what corrects, and
shows that it does what it should not on a schedule on which the members as they are do not. Items 2 and 3
are the graph's (`test_graph.py`), 7 is also `flow`'s (`test_components.py`); items 4, 8 and 11 are in
`test_dpg.py`, where members are shown at work.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from msgspec import structs

from antiphon.core.effects import Deliver
from antiphon.core.inputs import Received, Start
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg import Dpg, DpgConfiguration
from antiphon.protocols.dpg import member as member_module
from antiphon.protocols.dpg.pdus import Message, Remulticast, Report, Request, Tag
from antiphon.protocols.dpg.reports import pack_arcs
from antiphon.protocols.dpg.services.lan import LanService
from antiphon.protocols.dpg.tag_lists import pack_tags
from tests.protocols.harness.dpg_group import ChosenTags, Lan, Unordered, false_marks, message

EMPTY: dict[str, Any] = {
    "incarnation": 0, "serial": 0, "clock_ns": 0, "index": 0, "digest": 0, "agreed": b"", "links": b"",
    "vertices": b"", "arcs": b"", "lost": b"", "demand_ns": 0, "listening": False, "streams": {},
    "service": b"",
}  # fmt: skip


def report(vertices: Sequence[Tag], arcs: Sequence[tuple[Tag, Tag, bool]] = ()) -> Report:
    return Report(**(EMPTY | {"vertices": pack_tags(vertices), "arcs": pack_arcs(arcs)}))


# 1. Arcs from all vertices without successor


def arcs_into_a_message_after_a_report(monkeypatch: pytest.MonkeyPatch, service: LanService) -> list[Tag]:
    """A report tells of 7; then comes 9, which was sent before 7 but took longer than the report."""
    monkeypatch.setattr(member_module, "Tags", ChosenTags())
    member = Dpg("a", DpgConfiguration(), service, Random(1))
    member.handle(0, Start())
    member.handle(1, Received("b", message(5)))
    member.handle(2, Received("b", report([7], [(5, 7, False)])))
    member.handle(3, Received("c", message(9)))
    return [tail for tail, head, _ in member._order.graph.arcs() if head == 9]


def test_only_where_reports_are_ordered_do_all_sinks_precede_what_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert arcs_into_a_message_after_a_report(monkeypatch, LanService()) == [7]
    assert arcs_into_a_message_after_a_report(monkeypatch, Unordered()) == [5], "7 may well come after it"


# 5. Reports of what was delivered already


def one_misses_what_all_others_deliver_at_once(*printed: str) -> Lan:
    lan = Lan("abcd", printed=frozenset(printed))
    lan.misses = lambda source, to, pdu: to == "d" and source == "a" and isinstance(pdu, Message)
    lan.admit("a")
    lan.settle()
    assert lan.delivered("b") == lan.delivered("c") == ["a0"]
    lan.admit("b")
    lan.pass_time(1_500)
    return lan


def test_reports_also_tell_what_was_incorporated_lately() -> None:
    assert one_misses_what_all_others_deliver_at_once().delivered("d") == ["a0", "b0"]

    printed = one_misses_what_all_others_deliver_at_once("history", "spells")
    assert printed.delivered("c") == ["a0", "b0"]
    assert printed.delivered("d") == ["b0"], "no member ever reports a0 to it"


# 6. Suspended Delivery


def take_turns(seed: int, *printed: str) -> Lan:
    chance = Random(seed)
    lan = Lan("abc", seed=seed, printed=frozenset(printed))
    lan.misses = lambda _source, _target, _pdu: chance.random() < 0.1
    for _ in range(40):
        lan.admit(chance.choice(lan.names))
        lan.pass_time(chance.choice([0.0, 0.5, 5.0]))
    lan.pass_time(2_000)
    return lan


def test_suspended_delivery_reports_no_false_marks() -> None:
    assert sum(len(false_marks(take_turns(seed))) for seed in range(6)) == 0
    assert sum(len(false_marks(take_turns(seed, "marks"))) for seed in range(6)) > 10


# 7. Message_Cycle


def time_until_nobody_demands_ns(*printed: str) -> Nanoseconds:
    """How long a group is slowed after the buffers of a member overflowed."""
    lan = Lan(
        "abcdef", ordering_buffers=2, delta_ns=10 * MILLISECOND_NS, fc_cycle_ns=200 * MILLISECOND_NS,
        printed=frozenset(printed),
    )  # fmt: skip
    lan.misses = lambda source, to, pdu: (
        to == "c" and source == "a" and isinstance(pdu, Message) and pdu.number == 0
    )
    for name in "abbb":
        lan.admit(name)
    lan.wait_for(lambda: lan.all_delivered(4))
    assert any(told.demand_ns for told in lan.sent(Report, "c")) or lan.members["c"]._flow.own_ns
    end = 20 * SECOND_NS
    while lan.now < end and any(member.figures()["message_cycle_ns"] for member in lan.members.values()):
        lan.admit("a")
        lan.pass_time(10)
    return lan.now


def test_message_cycle_comes_down_again() -> None:
    ours_ns = time_until_nobody_demands_ns()
    assert time_until_nobody_demands_ns("flow") > 2 * ours_ns, "each holds up the others"


# 9. Return


def away_for_a_while(*printed: str) -> list[str]:
    """What d has delivered in the end."""
    lan = Lan("abcd", printed=frozenset(printed))
    for step in range(40):
        lan.admit(lan.names[step % 3])
        lan.pass_time(4)
        if step == 15:
            lan.depart("d")
        if step == 20:
            lan.come_back("d")
    lan.pass_time(2_000)
    return lan.delivered("d")


def test_who_returns_delivers_nothing_again() -> None:
    delivered = away_for_a_while()
    assert len(set(delivered)) == len(delivered) > 20
    printed = away_for_a_while("return")
    assert len(set(printed)) < len(printed), "what others still report is delivered once more"


# 10. Suppressed reports


def first_request_ns(lan: Lan) -> Nanoseconds | None:
    asked = [time for time, source, pdu in lan.transmitted if source == "c" and asks(pdu)]
    return min(asked, default=None)


def asks(pdu: Pdu) -> bool:
    return isinstance(pdu, Request) or (isinstance(pdu, Report) and bool(pdu.lost))


def test_whoever_lacks_a_body_asks_although_others_keep_reporting() -> None:
    """d's reports alone would put c's off for ever."""
    lan = Lan("abcd")
    lan.misses = lambda source, to, pdu: to == "c" and source == "a" and isinstance(pdu, Message)
    lan.admit("a")
    lan.admit("b")
    for _ in range(60):
        lan.pass_time(2)
        known = lan.members["d"]._order.graph
        lan.give("c", Received("d", report(list(known))))
    asked_ns = first_request_ns(lan)
    assert asked_ns is not None
    lan.wait_for(lambda: lan.all_delivered(2))
    assert lan.agreed() == ["a0", "b0"]
    assert lan.sent(Remulticast)


# Beyond the list


def test_who_knows_more_is_not_silenced_by_those_who_know_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 4.4 waives the delay for a reporter that lacks something. c alone can order a0 and b0."""

    def reports_of_c() -> int:
        lan = Lan("abc", deliv_cycle_ns=3_000 * MILLISECOND_NS)
        lan.misses = lambda source, _target, pdu: source != "c" and isinstance(pdu, Report)
        lan.pass_time(300)
        lan.admit("a")
        lan.admit("b")
        lan.settle()
        before = len(lan.sent(Report, "c"))
        for _ in range(100):
            lan.pass_time(1)
            lan.give("c", Received("a", report(lan.tags())))
        return len(lan.sent(Report, "c")) - before

    assert reports_of_c() >= 2
    monkeypatch.setattr("antiphon.protocols.dpg.reports._lacking", lambda _order, _told: None)
    assert reports_of_c() == 0


def test_what_the_links_tell_is_not_told_twice() -> None:
    """Arcs between agreed vertices that follow from the links between them would fill reports."""
    lan = Lan("abcde")
    for _ in range(30):
        for name in lan.names:
            lan.admit(name)
        lan.pass_time(5)
    lan.wait_for(lambda: lan.all_delivered(150))
    lan.give("a", Received("f", structs.replace(lan.sent(Report)[-1], listening=True)))
    told = len(lan.sent(Report, "a"))
    lan.wait_for(lambda: len(lan.sent(Report, "a")) > told)
    last = lan.sent(Report, "a")[-1]
    assert len(last.agreed) // 8 > 100, "since a member listens"
    assert len(last.arcs) // 16 < 30
    assert len(lan.of("a", Deliver)) == 150
