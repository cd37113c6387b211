"""CoordP between fakes: the paper's counts, loss, crashes, hostile PDUs, and random runs."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from antiphon.core.effects import CancelTimer, Effect, Multicast, Send, SetTimer, Stable
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received, Restored, RoundTriggered, Suspected, TimerFired
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.stability.base import FIRST_LIMIT, Configuration
from antiphon.protocols.stability.coordp import (
    ACKNOWLEDGE,
    ASK,
    PDUS,
    Acknowledgement,
    CoordP,
    Information,
    StartRound,
)
from antiphon.protocols.stability.round_trips import Repetition

QUIET = Configuration(repetition=None)
SITES = ("a", "b", "c")


def counts(*numbers: int) -> bytes:
    return np.array(numbers, "<i8").tobytes()


def member(site: str, held: Sequence[int], configuration: Configuration = QUIET) -> CoordP:
    protocol = CoordP(site, SITES, ("a", "b"), configuration, Random(1))
    protocol.hold_all(held)
    return protocol


def receive(protocol: CoordP, sender: str, pdu: Pdu) -> list[Effect]:
    return protocol.handle(0, Received(sender, pdu))


def trigger(protocol: CoordP) -> list[Effect]:
    return protocol.handle(0, RoundTriggered())


def of_kind(effects: list[Effect], kind: type[Any]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def start_of(effects: list[Effect]) -> StartRound:
    (multicast,) = of_kind(effects, Multicast)
    assert isinstance(multicast.pdu, StartRound)
    return multicast.pdu


# A round


def test_a_round_finds_the_minima() -> None:
    a, b, c = member("a", [5, 3]), member("b", [4, 7]), member("c", [6, 2])
    start = start_of(trigger(a))
    (from_b,), (from_c,) = receive(b, "a", start), receive(c, "a", start)
    assert isinstance(from_b, Send)
    assert isinstance(from_c, Send)
    assert receive(a, "b", from_b.pdu) == []
    end = receive(a, "c", from_c.pdu)
    information = Information(start.round, counts(4, 2))
    assert end == [CancelTimer(ASK), Multicast(information), Stable("a", 0, 4), Stable("b", 0, 2)]
    assert of_kind(receive(b, "a", information), Stable) == [Stable("a", 0, 4), Stable("b", 0, 2)]
    assert of_kind(receive(c, "a", information), Stable) == [Stable("a", 0, 4), Stable("b", 0, 2)]


@pytest.mark.parametrize("size", [2, 3, 10, 50])
def test_table_4_1_messages_processed_and_steps(size: int) -> None:
    """Coordinator n+3, others 3, in three steps; a multicast counts as sent and received by its sender."""
    sites = tuple(f"s{index}" for index in range(size))
    group = {site: CoordP(site, sites, sites[:1], QUIET) for site in sites}
    processed = dict.fromkeys(sites, 0)
    steps = 0
    now = [(sites[0], effect) for effect in trigger(group[sites[0]])]
    while any(isinstance(effect, Send | Multicast) for _, effect in now):
        steps += 1
        following: list[tuple[str, Effect]] = []
        for site, effect in now:
            if not isinstance(effect, Send | Multicast):
                continue
            processed[site] += 2 if isinstance(effect, Multicast) else 1
            others = (
                [other for other in sites if other != site] if isinstance(effect, Multicast) else [effect.to]
            )
            for other in others:
                assert isinstance(other, str)
                processed[other] += 1
                following += [(other, answer) for answer in receive(group[other], site, effect.pdu)]
        now = following
    assert steps == 3
    assert processed == {site: size + 3 if site == sites[0] else 3 for site in sites}


def test_what_is_stable_stays_so_and_is_declared_once() -> None:
    a, b = member("a", [5, 3]), member("b", [5, 3])
    for site in SITES[1:]:
        a.handle(0, Suspected(site))
    assert of_kind(trigger(a), Stable) == [Stable("a", 0, 5), Stable("b", 0, 3)]
    assert of_kind(trigger(a), Stable) == []
    receive(b, "a", Information(6, counts(4, 3)))
    assert of_kind(receive(b, "a", Information(9, counts(2, 1))), Stable) == []
    assert of_kind(receive(b, "a", Information(12, counts(5, 1))), Stable) == [Stable("a", 4, 1)]
    assert b.stable == (5, 3)


def test_results_never_go_back_when_a_member_returns_with_less() -> None:
    a = member("a", [5, 3])
    for site in SITES[1:]:
        a.handle(0, Suspected(site))
    trigger(a)
    a.handle(0, Restored("c"))
    second = start_of(trigger(a))
    end = receive(a, "c", Acknowledgement(second.round, counts(0, 0)))
    assert Multicast(Information(second.round, counts(5, 3))) in end


def test_a_trigger_in_the_middle_of_a_round_makes_another() -> None:
    a = member("a", [1, 1])
    first = start_of(trigger(a))
    assert trigger(a) == []
    a.handle(0, Suspected("c"))
    end = receive(a, "b", Acknowledgement(first.round, counts(1, 1)))
    pdus = [effect.pdu for effect in of_kind(end, Multicast)]
    assert [type(pdu) for pdu in pdus] == [Information, StartRound]
    assert pdus[1].round > first.round


def test_only_the_coordinator_can_be_triggered() -> None:
    with pytest.raises(UsageError, match="does not coordinate"):
        trigger(member("b", [0, 0]))


def test_another_coordinator_can_be_chosen() -> None:
    chosen = Configuration(coordinator="c", repetition=None)
    assert start_of(trigger(member("c", [0, 0], chosen))).round == 0
    assert member("a", [0, 0], chosen).coordinator == "c"


# Loss


def test_a_member_repeats_its_answer_ever_more_rarely_until_it_knows_the_result() -> None:
    b = member("b", [1, 1], Configuration(repetition=Repetition(first_ns=10, longest_ns=25)))
    waits = []
    effects = receive(b, "a", StartRound(0))
    for number in range(4):
        answer = Acknowledgement(0, counts(1, 1), repeated=number > 0)
        assert of_kind(effects, Send) == [Send("a", answer)]
        waits += [effect.after_ns for effect in of_kind(effects, SetTimer)]
        effects = b.handle(0, TimerFired(ACKNOWLEDGE))
    assert all(low <= wait < 2 * low for low, wait in zip([10, 20, 25, 25], waits, strict=True))
    assert CancelTimer(ACKNOWLEDGE) in receive(b, "a", Information(0, counts(1, 1)))
    assert b.handle(0, TimerFired(ACKNOWLEDGE)) == []


@pytest.mark.parametrize(
    ("starts", "answers"),
    [((False, True), (False, True)), ((True, False), (True, True)), ((False, False), (False, True))],
)
def test_an_answer_says_whether_it_or_its_start_was_sent_before(
    starts: tuple[bool, ...], answers: tuple[bool, ...]
) -> None:
    """The coordinator measures only how long answers to its first START take."""
    b = member("b", [1, 1])
    effects = [effect for repeated in starts for effect in receive(b, "a", StartRound(0, repeated=repeated))]
    assert [send.pdu.repeated for send in of_kind(effects, Send)] == list(answers)


def test_the_coordinator_asks_members_again_that_have_not_answered() -> None:
    a = member("a", [1, 1], Configuration(repetition=Repetition(first_ns=10, longest_ns=40)))
    started = trigger(a)
    assert SetTimer(ASK, 10) in started
    receive(a, "b", Acknowledgement(0, counts(1, 1)))
    assert a.handle(0, TimerFired(ASK)) == [
        Multicast(StartRound(0, repeated=True), ("c",)),
        SetTimer(ASK, 20),
    ]


def test_a_late_answer_to_a_finished_round_gets_the_result() -> None:
    a = member("a", [1, 1])
    trigger(a)
    for site in ("b", "c"):
        receive(a, site, Acknowledgement(0, counts(1, 0)))
    result = Information(0, counts(1, 0), repeated=True)
    assert receive(a, "b", Acknowledgement(0, counts(1, 0))) == [Send("b", result)]


def test_an_answer_of_an_older_round_is_not_counted() -> None:
    a = member("a", [9, 9])
    trigger(a)
    for site in ("b", "c"):
        receive(a, site, Acknowledgement(0, counts(1, 1)))
    second = start_of(trigger(a))
    for site in ("b", "c"):
        receive(a, site, Acknowledgement(0, counts(1, 1)))
    assert a.rounds_finished == 1
    for site in ("b", "c"):
        receive(a, site, Acknowledgement(second.round, counts(3, 3)))
    assert a.stable == (3, 3)


def test_repeated_answers_count_once() -> None:
    a = member("a", [9, 9])
    trigger(a)
    for _ in range(3):
        receive(a, "b", Acknowledgement(0, counts(1, 1)))
    assert a.rounds_finished == 0


def test_many_answers_are_folded_into_the_minimum() -> None:
    sites = tuple(f"s{index:03}" for index in range(200))
    coordinator = CoordP(sites[0], sites, sites[:2], QUIET)
    coordinator.hold_all([500, 500])
    trigger(coordinator)
    for index, site in enumerate(sites[1:]):
        receive(coordinator, site, Acknowledgement(0, counts(300 - index, 10 + index)))
    assert coordinator.stable == (300 - 198, 10)


# Views


def test_what_belongs_to_another_view_is_passed_over_but_is_not_garbage() -> None:
    a = member("a", [5, 3], Configuration(repetition=None, view=7))
    start = start_of(trigger(a))
    assert start.view == 7
    strangers: list[tuple[str, Pdu]] = [
        ("b", Acknowledgement(start.round, counts(5, 3), 8)),
        ("c", Acknowledgement(start.round, counts(5, 3))),
        ("b", StartRound(4, 8)),
        ("b", Information(4, counts(5, 3), 8)),
    ]
    for sender, pdu in strangers:
        assert receive(a, sender, pdu) == []
    assert (a.ignored, a.rounds_finished, a.under_way) == (0, 0, True)
    for sender in ("b", "c"):
        end = receive(a, sender, Acknowledgement(start.round, counts(4, 2), 7))
    assert Multicast(Information(start.round, counts(4, 2), 7)) in end
    assert not a.under_way


def test_answers_and_results_name_their_view() -> None:
    b = member("b", [1, 1], Configuration(repetition=None, view=7))
    assert receive(b, "a", StartRound(0, 7)) == [Send("a", Acknowledgement(0, counts(1, 1), 7))]


def test_a_new_view_begins_with_what_is_held_and_stable() -> None:
    a = CoordP("a", ("a",), ("a", "b"), QUIET)
    a.begin([5, 4], [3, 4])
    assert of_kind(trigger(a), Stable) == [Stable("a", 3, 2)]


# Crashes


def test_suspecting_the_last_missing_member_ends_the_round() -> None:
    a = member("a", [5, 5])
    trigger(a)
    receive(a, "b", Acknowledgement(0, counts(4, 4)))
    assert of_kind(a.handle(0, Suspected("c")), Stable) == [Stable("a", 0, 4), Stable("b", 0, 4)]


def test_a_restored_member_is_waited_for_and_asked() -> None:
    a = member("a", [5, 5])
    a.handle(0, Suspected("c"))
    trigger(a)
    assert a.handle(0, Restored("c")) == [Send("c", StartRound(0, repeated=True))]
    receive(a, "b", Acknowledgement(0, counts(4, 4)))
    assert a.rounds_finished == 0
    receive(a, "c", Acknowledgement(0, counts(1, 2)))
    assert a.stable == (1, 2)


def test_the_next_in_order_takes_over_a_round_it_knows_of() -> None:
    b = member("b", [2, 2])
    receive(b, "a", StartRound(3))
    assert start_of(b.handle(0, Suspected("a"))).round > 3
    assert b.coordinator == "b"


def test_the_next_in_order_takes_over_a_round_it_has_missed() -> None:
    b, c = member("b", [2, 2]), member("c", [1, 3])
    receive(c, "a", StartRound(3))
    assert b.handle(0, Suspected("a")) == []
    (turned,) = c.handle(0, Suspected("a"))
    assert isinstance(turned, Send)
    assert turned.to == "b"
    start = start_of(receive(b, "c", turned.pdu))
    (answer,) = receive(c, "b", start)
    assert isinstance(answer, Send)
    receive(b, "c", answer.pdu)
    assert b.stable == (1, 2)


def test_a_coordinator_that_forgot_its_rounds_catches_up() -> None:
    reborn, b = member("a", [0, 0]), member("b", [1, 1])
    receive(b, "a", StartRound(30))
    (answer,) = receive(b, "a", start_of(trigger(reborn)))
    assert isinstance(answer, Send)
    assert start_of(receive(reborn, "b", answer.pdu)).round > 30


def test_of_two_coordinators_the_one_with_the_greater_round_goes_on() -> None:
    a, b = member("a", [5, 5]), member("b", [4, 4])
    own = start_of(trigger(a))
    b.handle(0, Suspected("a"))
    rival = start_of(trigger(b))
    assert rival.round > own.round
    (answer,) = receive(a, "b", rival)
    assert isinstance(answer, Send)
    assert answer.to == "b"
    receive(a, "c", Acknowledgement(own.round, counts(1, 1)))
    assert a.rounds_finished == 0


def test_a_late_start_of_a_round_whose_result_is_known_needs_no_answer() -> None:
    b = member("b", [2, 2])
    receive(b, "a", StartRound(0))
    receive(b, "a", Information(0, counts(1, 1)))
    assert receive(b, "a", StartRound(0)) == []


def test_a_round_that_gave_way_is_made_up_for() -> None:
    """What was asked for here may be newer than what the greater round finds."""
    a = member("a", [5, 5])
    own = start_of(trigger(a))
    receive(a, "b", StartRound(4))
    assert not a.under_way
    for site in ("b", "c"):
        assert receive(a, site, Acknowledgement(own.round, counts(1, 1))) == []
    assert start_of(receive(a, "b", Information(4, counts(1, 1)))).round > 4


def test_a_greater_result_ends_the_asking_and_only_then() -> None:
    a, b = member("a", [5, 5]), member("b", [5, 5])
    trigger(a)
    ended = receive(a, "b", Information(4, counts(1, 1)))
    assert CancelTimer(ASK) in ended
    assert start_of(ended).round > 4
    assert receive(b, "a", Information(0, counts(1, 1))) == [Stable("a", 0, 1), Stable("b", 0, 1)]


def test_an_older_answer_begins_no_round_while_one_is_under_way() -> None:
    a = member("a", [5, 5])
    receive(a, "b", StartRound(4))
    own = start_of(trigger(a))
    assert own.round > 4
    assert receive(a, "c", Acknowledgement(4, counts(1, 1))) == []
    for site in ("b", "c"):
        receive(a, site, Acknowledgement(own.round, counts(3, 3)))
    assert a.stable == (3, 3)


def test_a_member_that_waits_for_a_rivals_result_begins_a_round_on_request() -> None:
    a = member("a", [5, 5])
    receive(a, "b", StartRound(4))
    assert start_of(receive(a, "c", Acknowledgement(4, counts(1, 1)))).round > 4


def test_a_member_that_does_not_coordinate_begins_no_round() -> None:
    b = member("b", [5, 5])
    for number in (0, 3):
        assert receive(b, "c", Acknowledgement(number, counts(1, 1))) == []
    assert not b.under_way


def test_a_timer_that_ran_out_too_late_does_nothing() -> None:
    idle, asking = member("a", [5, 5]), member("a", [5, 5])
    trigger(asking)
    assert idle.handle(0, TimerFired(ASK)) == []
    assert asking.handle(0, TimerFired(ACKNOWLEDGE)) == []


def test_only_other_members_are_suspected_and_each_once() -> None:
    a = member("a", [5, 5])
    for site in ("x", "a", "b", "b"):
        assert a.handle(0, Suspected(site)) == []
    start = start_of(trigger(a))
    assert a.handle(0, Restored("x")) == []
    assert a.handle(0, Restored("b")) == [Send("b", StartRound(start.round, repeated=True))]
    assert a.handle(0, Restored("b")) == []


# Nonsense


NONSENSE: list[tuple[str, str, Pdu]] = [
    ("ACK too short", "b", Acknowledgement(0, counts(1))),
    ("ACK too long", "b", Acknowledgement(0, counts(1, 1, 1))),
    ("ACK of broken bytes", "b", Acknowledgement(0, b"1234567")),
    ("ACK of a round without end", "b", Acknowledgement(FIRST_LIMIT, counts(1, 1))),
    ("ACK from a stranger", "x", Acknowledgement(0, counts(1, 1))),
    ("ACK from ourselves", "a", Acknowledgement(0, counts(1, 1))),
    ("START under another's number", "b", StartRound(3)),
    ("START of a round without end", "c", StartRound(3 * FIRST_LIMIT + 2)),
    ("START from a stranger", "x", StartRound(3)),
    ("INFO too short", "b", Information(4, counts(1))),
    ("INFO with a negative count", "b", Information(4, counts(1, -5))),
    ("INFO beyond what is held", "b", Information(4, counts(1, 9))),
    ("INFO under another's number", "b", Information(3, counts(1, 1))),
    ("INFO from a stranger", "x", Information(4, counts(1, 1))),
    ("a PDU of another protocol", "b", Pdu()),
]


@pytest.mark.parametrize(("sender", "pdu"), [row[1:] for row in NONSENSE], ids=[row[0] for row in NONSENSE])
def test_nonsense_is_counted_and_changes_nothing(sender: str, pdu: Pdu) -> None:
    a = member("a", [2, 2])
    trigger(a)
    assert receive(a, sender, pdu) == []
    assert a.ignored == 1
    for site in ("b", "c"):
        receive(a, site, Acknowledgement(0, counts(1, 1)))
    assert (a.stable, a.rounds_finished) == ((1, 1), 1)


def test_a_negative_count_has_the_effect_of_zero() -> None:
    a = member("a", [2, 2])
    trigger(a)
    for site in ("b", "c"):
        receive(a, site, Acknowledgement(0, counts(1, 1)))
    trigger(a)
    receive(a, "b", Acknowledgement(3, counts(2, -7)))
    receive(a, "c", Acknowledgement(3, counts(2, 2)))
    assert (a.stable, a.rounds_finished) == ((2, 1), 2)


def test_pdus_cross_the_wire() -> None:
    codec = Codec(PDUS)
    for pdu in (StartRound(7), Acknowledgement(7, counts(1, 2)), Information(7, counts(3, 4))):
        packet = codec.decode(codec.encode(pdu))
        assert isinstance(packet, Packet)
        assert packet.pdu == pdu


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: CoordP("x", SITES, SITES, QUIET),
        lambda: CoordP("a", ("a", "a"), SITES, QUIET),
        lambda: CoordP("a", SITES, ("a", "a"), QUIET),
        lambda: CoordP("a", (), (), QUIET),
        lambda: CoordP("a", SITES, SITES, Configuration(coordinator="x", repetition=None)),
        lambda: CoordP("a", SITES, SITES),
        lambda: Repetition(first_ns=0),
        lambda: Repetition(first_ns=5, longest_ns=4),
        lambda: member("a", [1, 1]).hold("x", 1),
        lambda: member("a", [1, 1]).hold("a", 0),
        lambda: member("a", [1, 1]).hold_all([1]),
        lambda: member("a", [1, 1]).hold_all([1, 0]),
        lambda: member("a", [1, 1]).begin([1, 1], [1, 2]),
        lambda: member("a", [1, 1]).begin([1, 1], [1]),
    ],
)
def test_misuse_is_refused(misuse: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        misuse()
