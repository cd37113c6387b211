"""S_CoordP between fakes: the paper's counts, loss, adoption by grandparents, hostile PDUs, and swarms."""

from collections.abc import Callable
from random import Random

import pytest

from antiphon.core.effects import CancelTimer, Missing, Multicast, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Restored, Suspected, TimerFired
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.stability.base import FIRST_LIMIT, Objective
from antiphon.protocols.stability.coordp import Information, StartRound
from antiphon.protocols.stability.hierarchy import Hierarchy
from antiphon.protocols.stability.round_trips import Repetition
from antiphon.protocols.stability.s_coordp import PDUS, ChildReport, SCoordP
from antiphon.protocols.stability.structured import REPEAT, StructuredConfiguration
from tests.protocols.harness.stability_group import (
    counts,
    of_kind,
    play,
    play_round,
    receive,
    sent,
    stable,
    suspect,
    trigger,
)
from tests.protocols.harness.stability_swarm import weather

#      a
#    b   c
#   d e  f
SITES = ("a", "b", "c", "d", "e", "f")
TREE = Hierarchy.from_parents(SITES, [-1, 0, 0, 1, 1, 2])
HELD = {site: (9 - index, 9 + index) for index, site in enumerate(SITES)}
QUIET = StructuredConfiguration(repetition=None, hierarchy=TREE)
BUSY = StructuredConfiguration(repetition=Repetition(first_ns=10, longest_ns=40), hierarchy=TREE)


def member(site: str, configuration: StructuredConfiguration = QUIET) -> SCoordP:
    protocol = SCoordP(site, SITES, ("a", "b"), configuration, Random(1))
    protocol.hold_all(HELD[site])
    return protocol


def group(sites: str = "abcdef", configuration: StructuredConfiguration = QUIET) -> dict[str, SCoordP]:
    return {site: member(site, configuration) for site in sites}


def least(sites: str) -> tuple[int, ...]:
    return tuple(map(min, zip(*(HELD[site] for site in sites), strict=True)))


# A round


def test_a_round_finds_the_minima() -> None:
    everyone = group()
    play_round(everyone, "a")
    assert {protocol.stable for protocol in everyone.values()} == {least("abcdef")}
    assert [protocol.rounds_finished for protocol in everyone.values()] == [1, 0, 0, 0, 0, 0]
    assert not any(protocol.under_way for protocol in everyone.values())


@pytest.mark.parametrize(("branching", "height"), [(2, 2), (3, 2), (3, 3), (5, 1)])
def test_table_4_1_messages_processed_and_steps(branching: int, height: int) -> None:
    """p+2 steps; the root processes b+4 messages, internal members b+3, leaves 3."""
    size = sum(branching**level for level in range(height + 1))
    sites = tuple(f"s{index}" for index in range(size))
    knobs = StructuredConfiguration(repetition=None, subgroup=branching + 1)
    tally = play_round({site: SCoordP(site, sites, sites[:1], knobs) for site in sites}, sites[0])
    assert tally.steps == height + 2
    internal = (size - 1) // branching
    expected = [branching + 4, *[branching + 3] * (internal - 1), *[3] * (size - internal)]
    assert list(tally.processed.values()) == expected


def test_section_4_3_1_leaves_report_at_once_and_parents_when_all_children_have() -> None:
    b, d = member("b"), member("d")
    start = StartRound(0)
    assert sent(receive(d, "a", start)) == [("b", ChildReport(0, counts(6, 12)))]
    assert sent(receive(b, "a", start)) == []
    assert sent(receive(b, "d", ChildReport(0, counts(6, 12)))) == []
    report = receive(b, "e", ChildReport(0, counts(5, 13)))
    assert sent(report) == [("a", ChildReport(0, counts(5, 10)))]


def test_the_root_multicasts_what_it_has_found() -> None:
    a = member("a")
    trigger(a)
    receive(a, "b", ChildReport(0, counts(5, 10)))
    end = receive(a, "c", ChildReport(0, counts(4, 11)))
    assert sent(end) == [(None, Information(0, counts(4, 9)))]
    assert stable(end) == {"a": 4, "b": 9}


def test_a_report_may_come_before_start() -> None:
    c = member("c")
    assert sent(receive(c, "f", ChildReport(0, counts(4, 14)))) == [("a", ChildReport(0, counts(4, 11)))]
    again = ChildReport(0, counts(4, 11), repeated=True)
    assert sent(receive(c, "a", StartRound(0))) == [("a", again)]


def test_what_is_held_when_the_report_goes_out_counts() -> None:
    b = member("b")
    receive(b, "a", StartRound(0))
    receive(b, "d", ChildReport(0, counts(20, 20)))
    b.hold_all([15, 16])
    report = receive(b, "e", ChildReport(0, counts(20, 20)))
    assert sent(report) == [("a", ChildReport(0, counts(15, 16)))]


def test_a_trigger_in_the_middle_of_a_round_makes_another() -> None:
    a = member("a")
    trigger(a)
    assert trigger(a) == []
    receive(a, "b", ChildReport(0, counts(5, 10)))
    end = receive(a, "c", ChildReport(0, counts(4, 11)))
    assert [type(pdu) for _, pdu in sent(end)] == [Information, StartRound]
    assert a.under_way


def test_only_the_first_member_can_be_triggered() -> None:
    with pytest.raises(UsageError, match="does not come first"):
        trigger(member("b"))


def test_the_default_tree_is_a_complete_one_over_the_members() -> None:
    knobs = StructuredConfiguration(repetition=None, subgroup=3)
    everyone = {site: SCoordP(site, SITES, SITES[:1], knobs) for site in SITES}
    assert play_round(everyone, "a").processed["b"] == 2 + 3


def test_errors_are_detected_with_the_greatest() -> None:
    seen = StructuredConfiguration(repetition=None, hierarchy=TREE, objective=Objective.GREATEST)
    everyone = group(configuration=seen)
    play_round(everyone, "a")
    assert {protocol.stable for protocol in everyone.values()} == {(9, 14)}
    b = member("b", seen)
    assert of_kind(receive(b, "a", Information(0, counts(9, 14))), Missing) == [
        Missing("a", 8, 1),
        Missing("b", 10, 4),
    ]


# Loss


def test_a_report_is_repeated_ever_more_rarely_until_the_result_is_known() -> None:
    d = member("d", BUSY)
    effects = receive(d, "a", StartRound(0))
    waits = []
    for number in range(4):
        assert sent(effects) == [("b", ChildReport(0, counts(6, 12), repeated=number > 0))]
        waits += [effect.after_ns for effect in of_kind(effects, SetTimer)]
        effects = d.handle(0, TimerFired(REPEAT))
    assert all(low <= wait < 2 * low for low, wait in zip([10, 20, 40, 40], waits, strict=True))
    assert CancelTimer(REPEAT) in receive(d, "a", Information(0, counts(1, 1)))
    assert d.handle(0, TimerFired(REPEAT)) == []


def test_a_parent_asks_those_again_that_have_not_reported() -> None:
    b = member("b", BUSY)
    receive(b, "a", StartRound(0))
    receive(b, "d", ChildReport(0, counts(6, 12)))
    asked = b.handle(0, TimerFired(REPEAT))
    assert of_kind(asked, Multicast) == [Multicast(StartRound(0, repeated=True), ("e",))]


def test_who_is_asked_answers_if_it_can() -> None:
    b, d = member("b", BUSY), member("d", BUSY)
    receive(b, "a", StartRound(0))
    assert sent(receive(b, "a", StartRound(0))) == []
    late = ChildReport(0, counts(6, 12), repeated=True)
    assert sent(receive(d, "b", StartRound(0, repeated=True))) == [("b", late)]
    assert sent(receive(d, "b", StartRound(0, repeated=True))) == [("b", late)]


def test_a_member_that_missed_the_result_gets_it_from_its_parent() -> None:
    b = member("b", BUSY)
    receive(b, "a", StartRound(0))
    result = Information(0, counts(4, 9), repeated=True)
    receive(b, "a", Information(0, counts(4, 9)))
    assert sent(receive(b, "d", ChildReport(0, counts(6, 12)))) == [("d", result)]
    d = member("d", BUSY)
    receive(d, "a", StartRound(0))
    assert stable(receive(d, "b", result)) == {"a": 4, "b": 9}


def test_a_root_that_forgot_its_rounds_catches_up() -> None:
    reborn, b = member("a"), member("b")
    receive(b, "a", StartRound(60))
    ((_, start),) = sent(trigger(reborn))
    ((to, news),) = sent(receive(b, "a", start))
    assert (to, news) == ("a", StartRound(60, repeated=True))
    assert sent(receive(reborn, "b", news)) == [(None, StartRound(66))]


# Crashes


def test_children_of_a_crashed_parent_are_adopted_by_the_grandparent() -> None:
    everyone = group("acdef")
    play_round(everyone, "a")
    assert everyone["a"].under_way
    play(everyone, suspect(everyone, "b"))
    assert {protocol.stable for protocol in everyone.values()} == {least("acdef")}


def test_an_orphan_that_suspects_its_parent_does_not_end_the_round_of_a_root_that_does_not() -> None:
    a, d = member("a"), member("d")
    trigger(a)
    d.handle(0, Suspected("b"))
    ((to, report),) = sent(receive(d, "a", StartRound(0)))
    assert to == "a"
    receive(a, "d", report)
    receive(a, "e", ChildReport(0, counts(5, 13)))
    receive(a, "c", ChildReport(0, counts(4, 11)))
    assert a.under_way
    end = receive(a, "b", ChildReport(0, counts(3, 3), b"\x06"))
    assert stable(end) == {"a": 3, "b": 3}


def test_a_root_waits_for_a_member_that_only_a_parent_suspects() -> None:
    a, b = member("a"), member("b")
    trigger(a)
    b.handle(0, Suspected("e"))
    receive(b, "a", StartRound(0))
    ((to, report),) = sent(receive(b, "d", ChildReport(0, counts(6, 12))))
    assert (to, report) == ("a", ChildReport(0, counts(6, 10), bytes([0b100])))
    receive(a, "b", report)
    receive(a, "c", ChildReport(0, counts(4, 11)))
    assert a.under_way
    late = receive(b, "e", ChildReport(0, counts(5, 13)))
    assert sent(late) == [("a", ChildReport(0, counts(5, 10)))]
    assert stable(receive(a, "b", ChildReport(0, counts(5, 10)))) == {"a": 4, "b": 9}


def test_suspecting_the_last_silent_member_ends_the_round() -> None:
    a = member("a")
    trigger(a)
    receive(a, "b", ChildReport(0, counts(5, 10)))
    receive(a, "f", ChildReport(0, counts(4, 14)))
    assert stable(a.handle(0, Suspected("c"))) == {"a": 4, "b": 9}


def test_a_parent_asks_the_children_of_one_that_it_suspects() -> None:
    a = member("a", BUSY)
    trigger(a)
    a.handle(0, Suspected("b"))
    (asked,) = of_kind(a.handle(0, TimerFired(REPEAT)), Multicast)
    assert asked.to == ("d", "e", "c")


def test_a_restored_member_is_waited_for_and_asked() -> None:
    b = member("b")
    b.handle(0, Suspected("e"))
    receive(b, "a", StartRound(0))
    receive(b, "d", ChildReport(0, counts(6, 12)))
    assert b.handle(0, Restored("e")) == [Send("e", StartRound(0, repeated=True))]


def test_a_restored_parent_is_reported_to_again() -> None:
    d = member("d")
    receive(d, "a", StartRound(0))
    report = ChildReport(0, counts(6, 12))
    assert sent(d.handle(0, Suspected("b"))) == [("a", report)]
    assert sent(d.handle(0, Restored("b"))) == [("b", report)]


def test_the_next_in_order_takes_the_roots_place() -> None:
    everyone = group("bcdef")
    for site in "bcdef":
        receive(everyone[site], "a", StartRound(6))
    play(everyone, suspect(everyone, "a"))
    assert {protocol.stable for protocol in everyone.values()} == {least("bcdef")}
    assert everyone["b"].rounds_finished == 1


def test_a_round_that_the_next_in_order_has_missed_is_taken_over_too() -> None:
    everyone = group("bcdef")
    receive(everyone["f"], "a", StartRound(6))
    play(everyone, suspect(everyone, "a"))
    assert {protocol.stable for protocol in everyone.values()} == {least("bcdef")}


def test_if_the_next_in_order_is_gone_too_the_one_after_it_is_turned_to() -> None:
    d = member("d")
    receive(d, "a", StartRound(6))
    assert [to for to, _ in sent(d.handle(0, Suspected("a")))] == ["b"]
    assert [to for to, _ in sent(d.handle(0, Suspected("b")))] == ["c"]
    assert d.handle(0, Suspected("e")) == []
    d.handle(0, Suspected("c"))
    assert (d.coordinator, d.under_way) == ("d", True)


def test_a_root_that_is_there_after_all_stands_where_its_successor_stood() -> None:
    everyone = group()
    everyone["b"].handle(0, Suspected("a"))
    ((_, start),) = sent(trigger(everyone["b"]))
    assert sent(receive(everyone["d"], "b", start)) == [("a", ChildReport(1, counts(6, 12)))]
    assert sent(receive(everyone["a"], "b", start)) == []
    everyone = group()
    everyone["b"].handle(0, Suspected("a"))
    play_round(everyone, "b")
    assert {protocol.stable for protocol in everyone.values()} == {least("abcdef")}


# Nonsense


NONSENSE: list[tuple[str, str, Pdu]] = [
    ("ACK too short", "b", ChildReport(0, counts(1))),
    ("ACK of broken bytes", "b", ChildReport(0, b"1234567")),
    ("ACK of a round without end", "b", ChildReport(FIRST_LIMIT, counts(1, 1))),
    ("ACK from a stranger", "x", ChildReport(0, counts(1, 1))),
    ("ACK from ourselves", "a", ChildReport(0, counts(1, 1))),
    ("ACK that lacks its sender", "b", ChildReport(0, counts(1, 1), b"\x01")),
    ("ACK that lacks members of other sub-trees", "b", ChildReport(0, counts(1, 1), b"\x08")),
    ("ACK with a bitmap without end", "b", ChildReport(0, counts(1, 1), bytes(1000))),
    ("START of a round without end", "b", StartRound(FIRST_LIMIT)),
    ("INFO too short", "b", Information(4, counts(1))),
    ("INFO with a negative count", "b", Information(4, counts(1, -5))),
    ("INFO of our own round that has not ended", "b", Information(0, counts(1, 1))),
    ("INFO from a stranger", "x", Information(4, counts(1, 1))),
    ("a PDU of another protocol", "b", Pdu()),
]


@pytest.mark.parametrize(("sender", "pdu"), [row[1:] for row in NONSENSE], ids=[row[0] for row in NONSENSE])
def test_nonsense_is_counted_and_changes_nothing(sender: str, pdu: Pdu) -> None:
    a = member("a")
    trigger(a)
    assert receive(a, sender, pdu) == []
    assert a.ignored == 1
    receive(a, "b", ChildReport(0, counts(5, 10)))
    receive(a, "c", ChildReport(0, counts(4, 11)))
    assert (a.stable, a.rounds_finished) == ((4, 9), 1)


def test_nothing_is_declared_that_is_not_held() -> None:
    f = member("f")
    assert stable(receive(f, "a", Information(0, counts(99, 3)))) == {"a": 4, "b": 3}


def test_what_belongs_to_another_view_is_passed_over_but_is_not_garbage() -> None:
    a = member("a", StructuredConfiguration(repetition=None, hierarchy=TREE, view=7))
    assert sent(trigger(a)) == [(None, StartRound(0, 7))]
    assert receive(a, "b", ChildReport(0, counts(5, 10), b"", 8)) == []
    assert (a.ignored, a.under_way) == (0, True)


def test_pdus_cross_the_wire() -> None:
    codec = Codec(PDUS)
    for pdu in (ChildReport(7, counts(1, 2)), ChildReport(7, counts(1, 2), b"\x02", 3)):
        packet = codec.decode(codec.encode(pdu))
        assert isinstance(packet, Packet)
        assert packet.pdu == pdu


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: StructuredConfiguration(subgroup=1),
        lambda: SCoordP("a", ("a", "b"), (), StructuredConfiguration(repetition=None, hierarchy=TREE)),
        lambda: SCoordP("g", tuple("abcdeg"), (), StructuredConfiguration(repetition=None, hierarchy=TREE)),
    ],
)
def test_misuse_is_refused(misuse: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        misuse()


# Random runs


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize(("subgroup", "most_members"), [(3, 6), (2, 6), (4, 14)])
def test_stability_is_safe_in_turmoil_and_found_after_it(
    objective: Objective, subgroup: int, most_members: int
) -> None:
    knobs = StructuredConfiguration(
        repetition=Repetition(first_ns=10, longest_ns=40), objective=objective, subgroup=subgroup
    )
    for seed in range(120):
        weather(
            seed,
            lambda site, members, senders, random: SCoordP(site, members, senders, knobs, random),
            most_members=most_members,
            objective=objective,
            codec=Codec(PDUS),
            own_suspicion=True,
        )
