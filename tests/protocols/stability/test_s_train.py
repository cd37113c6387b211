"""S_Train between fakes: the paper's counts, loss, ways round dead siblings and parents, and swarms."""

from random import Random

import pytest

from antiphon.core.effects import Multicast, Send
from antiphon.core.inputs import Restored, Suspected, TimerFired
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.stability.base import FIRST_LIMIT, Objective
from antiphon.protocols.stability.coordp import Information, StartRound
from antiphon.protocols.stability.hierarchy import Hierarchy
from antiphon.protocols.stability.round_trips import Repetition
from antiphon.protocols.stability.s_train import PDUS, SiblingReport, STrain, SubgroupReport
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

#         a
#     b   c   d
#    e f  g
SITES = ("a", "b", "c", "d", "e", "f", "g")
TREE = Hierarchy.from_parents(SITES, [-1, 0, 0, 0, 1, 1, 2])
HELD = {site: (20 - index, 20 + index) for index, site in enumerate(SITES)}
QUIET = StructuredConfiguration(repetition=None, hierarchy=TREE)
BUSY = StructuredConfiguration(repetition=Repetition(first_ns=10, longest_ns=40), hierarchy=TREE)


def member(site: str, configuration: StructuredConfiguration = QUIET) -> STrain:
    protocol = STrain(site, SITES, ("a", "b"), configuration, Random(1))
    protocol.hold_all(HELD[site])
    return protocol


def group(sites: str = "abcdefg", configuration: StructuredConfiguration = QUIET) -> dict[str, STrain]:
    return {site: member(site, configuration) for site in sites}


def least(sites: str) -> tuple[int, ...]:
    return tuple(map(min, zip(*(HELD[site] for site in sites), strict=True)))


# A round


def test_a_round_finds_the_minima() -> None:
    everyone = group()
    play_round(everyone, "a")
    assert {protocol.stable for protocol in everyone.values()} == {least("abcdefg")}
    assert not any(protocol.under_way for protocol in everyone.values())


@pytest.mark.parametrize(("branching", "height"), [(2, 2), (3, 2), (3, 3), (5, 1)])
def test_table_4_1_messages_processed_and_steps(branching: int, height: int) -> None:
    """bp+2 steps; the root processes 5 messages, internal members 4 or 5, leaves 3 or 4."""
    size = sum(branching**level for level in range(height + 1))
    sites = tuple(f"s{index}" for index in range(size))
    knobs = StructuredConfiguration(repetition=None, subgroup=branching + 1)
    tally = play_round({site: STrain(site, sites, sites[:1], knobs) for site in sites}, sites[0])
    assert tally.steps == branching * height + 2
    internal = (size - 1) // branching
    for index, processed in enumerate(tally.processed.values()):
        is_first_sibling = index % branching == 1
        if index == 0:
            assert processed == 5
        elif index < internal:
            assert processed == (4 if is_first_sibling else 5)
        else:
            assert processed == (3 if is_first_sibling else 4)


def test_section_4_3_2_the_train_of_a_leaf_group() -> None:
    e, f = member("e"), member("f")
    start = StartRound(0)
    assert sent(receive(e, "a", start)) == [("f", SiblingReport(0, counts(16, 24)))]
    assert sent(receive(f, "a", start)) == []
    up = receive(f, "e", SiblingReport(0, counts(16, 24)))
    assert sent(up) == [("b", SubgroupReport(0, counts(15, 24)))]


def test_section_4_3_2_an_internal_member_waits_for_its_elder_sibling_and_its_last_child() -> None:
    b, c = member("b"), member("c")
    for protocol in (b, c):
        assert sent(receive(protocol, "a", StartRound(0))) == []
    along = receive(b, "f", SubgroupReport(0, counts(15, 24)))
    assert sent(along) == [("c", SiblingReport(0, counts(15, 21)))]
    assert sent(receive(c, "g", SubgroupReport(0, counts(14, 26)))) == []
    along = receive(c, "b", SiblingReport(0, counts(15, 21)))
    assert sent(along) == [("d", SiblingReport(0, counts(14, 21)))]


def test_the_root_has_the_array_with_the_ack_of_its_last_child() -> None:
    a = member("a")
    trigger(a)
    end = receive(a, "d", SubgroupReport(0, counts(14, 21)))
    assert sent(end) == [(None, Information(0, counts(14, 20)))]
    assert stable(end) == {"a": 14, "b": 20}


# Loss


def test_who_waits_asks_its_elder_sibling_and_its_last_child() -> None:
    c = member("c", BUSY)
    receive(c, "a", StartRound(0))
    (asked,) = of_kind(c.handle(0, TimerFired(REPEAT)), Multicast)
    assert asked == Multicast(StartRound(0, repeated=True), ("b", "g"))
    receive(c, "b", SiblingReport(0, counts(15, 21)))
    (asked,) = of_kind(c.handle(0, TimerFired(REPEAT)), Multicast)
    assert asked.to == ("g",)


def test_who_has_reported_repeats_its_report() -> None:
    e = member("e", BUSY)
    receive(e, "a", StartRound(0))
    assert sent(e.handle(0, TimerFired(REPEAT))) == [("f", SiblingReport(0, counts(16, 24), repeated=True))]


# Crashes


def test_the_train_goes_past_a_crashed_sibling_whose_sub_group_reports_to_the_grandparent() -> None:
    everyone = group("abdefg")
    play_round(everyone, "a")
    assert everyone["a"].under_way
    play(everyone, suspect(everyone, "c"))
    assert {protocol.stable for protocol in everyone.values()} == {least("abdefg")}


@pytest.mark.parametrize("gone", ["b", "c", "d", "e", "f", "g", "bc", "cd", "bd", "ef", "bf", "cg", "bcd"])
def test_after_any_crash_the_others_find_what_they_hold(gone: str) -> None:
    live = "".join(site for site in SITES if site not in gone)
    for before in (True, False):
        everyone = group(live)
        if before:
            for site in gone:
                assert suspect(everyone, site) == []
        play_round(everyone, "a")
        for site in gone:
            play(everyone, suspect(everyone, site))
        assert {protocol.stable for protocol in everyone.values()} == {least(live)}


def test_a_train_that_went_past_a_live_sibling_does_not_end_the_round() -> None:
    """The elder sibling suspects the next one wrongly; the root does not."""
    everyone = group()
    everyone["b"].handle(0, Suspected("c"))
    play_round(everyone, "a")
    assert everyone["a"].under_way
    play(everyone, [("b", effect) for effect in everyone["b"].handle(0, Restored("c"))])
    assert {protocol.stable for protocol in everyone.values()} == {least("abcdefg")}


def test_a_report_names_the_members_that_it_lacks() -> None:
    d = member("d")
    d.handle(0, Suspected("c"))
    receive(d, "a", StartRound(0))
    up = receive(d, "b", SiblingReport(0, counts(15, 21)))
    # The places from b on: b, e, f, then c and g, which are left out, then d.
    assert sent(up) == [("a", SubgroupReport(0, counts(15, 21), bytes([0b011000])))]


def test_one_asked_by_another_answers_with_the_kind_that_fits() -> None:
    e = member("e")
    receive(e, "a", StartRound(0))
    assert receive(e, "b", StartRound(0)) == [Send("b", SubgroupReport(0, counts(16, 24), repeated=True))]


def test_the_next_in_order_takes_the_roots_place() -> None:
    everyone = group("bcdefg")
    for site in "bcdefg":
        receive(everyone[site], "a", StartRound(7))
    play(everyone, suspect(everyone, "a"))
    assert {protocol.stable for protocol in everyone.values()} == {least("bcdefg")}
    assert everyone["b"].rounds_finished == 1


# Nonsense


NONSENSE: list[tuple[str, str, Pdu]] = [
    ("ACK1 too short", "d", SiblingReport(0, counts(1))),
    ("ACK2 of a round without end", "d", SubgroupReport(FIRST_LIMIT, counts(1, 1))),
    ("ACK2 that lacks its sender", "d", SubgroupReport(0, counts(1, 1), bytes([0b100000]))),
    ("ACK2 that lacks members beyond its span", "d", SubgroupReport(0, counts(1, 1), bytes([0b1000000]))),
    ("ACK2 with a bitmap without end", "d", SubgroupReport(0, counts(1, 1), bytes(1000))),
    ("ACK2 from a stranger", "x", SubgroupReport(0, counts(1, 1))),
    ("INFO with a negative count", "b", Information(4, counts(1, -5))),
    ("a PDU of another protocol", "b", Pdu()),
]


@pytest.mark.parametrize(("sender", "pdu"), [row[1:] for row in NONSENSE], ids=[row[0] for row in NONSENSE])
def test_nonsense_is_counted_and_changes_nothing(sender: str, pdu: Pdu) -> None:
    a = member("a")
    trigger(a)
    assert receive(a, sender, pdu) == []
    assert a.ignored == 1
    receive(a, "d", SubgroupReport(0, counts(14, 21)))
    assert (a.stable, a.rounds_finished) == ((14, 20), 1)


def test_pdus_cross_the_wire() -> None:
    codec = Codec(PDUS)
    for pdu in (SiblingReport(7, counts(1, 2)), SubgroupReport(7, counts(1, 2), b"\x02", 3)):
        packet = codec.decode(codec.encode(pdu))
        assert isinstance(packet, Packet)
        assert packet.pdu == pdu


# Random runs


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize(("subgroup", "most_members"), [(3, 6), (6, 6), (4, 14)])
def test_stability_is_safe_in_turmoil_and_found_after_it(
    objective: Objective, subgroup: int, most_members: int
) -> None:
    knobs = StructuredConfiguration(
        repetition=Repetition(first_ns=10, longest_ns=40), objective=objective, subgroup=subgroup
    )
    for seed in range(120):
        weather(
            seed,
            lambda site, members, senders, random: STrain(site, members, senders, knobs, random),
            most_members=most_members,
            objective=objective,
            codec=Codec(PDUS),
            own_suspicion=True,
        )


@pytest.mark.parametrize(
    ("site", "asked"), [("b", True), ("e", True), ("c", False), ("g", False), ("a", False)]
)
def test_a_member_that_is_back_is_asked_if_our_report_covers_it(site: str, asked: bool) -> None:
    """The walk of the tree is a b e f c g d: the report of c covers b to g, that of b covers b to f."""
    last = "c" if site in "be" else "b"
    protocol = member(last)
    receive(protocol, "a", StartRound(0))
    if site != last:
        protocol.handle(0, Suspected(site))
        effects = protocol.handle(0, Restored(site))
        assert (Send(site, StartRound(0, repeated=True)) in effects) == asked
