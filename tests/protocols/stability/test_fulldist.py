"""FullDist between fakes: the paper's counts, the scattered form, loss, crashes, hostile PDUs, and swarms."""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from antiphon.core.effects import CancelTimer, Missing, Send, SetTimer, Stable
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Restored, Suspected, TimerFired
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.stability.base import FIRST_LIMIT, Objective
from antiphon.protocols.stability.fulldist import (
    ASK,
    PDUS,
    SPEAK,
    FullDist,
    FullDistConfiguration,
    Purpose,
    Row,
)
from antiphon.protocols.stability.round_trips import Repetition
from tests.protocols.harness.stability_group import (
    counts,
    of_kind,
    play_round,
    receive,
    sent,
    stable,
    trigger,
)
from tests.protocols.harness.stability_swarm import weather

QUIET = FullDistConfiguration(repetition=None)
BUSY = FullDistConfiguration(repetition=Repetition(first_ns=10, longest_ns=40))
SITES = ("a", "b", "c")


def member(site: str, held: Sequence[int], configuration: FullDistConfiguration = QUIET) -> FullDist:
    protocol = FullDist(site, SITES, ("a", "b"), configuration, Random(1))
    protocol.hold_all(held)
    return protocol


# A round


def test_everyone_finds_the_minima_itself() -> None:
    group = {"a": member("a", [5, 3]), "b": member("b", [4, 7]), "c": member("c", [6, 2])}
    play_round(group, "a")
    for protocol in group.values():
        assert protocol.stable == (4, 2)
        assert (protocol.rounds_finished, protocol.under_way) == (1, False)


@pytest.mark.parametrize("size", [2, 3, 10, 50])
def test_table_4_1_messages_processed_and_steps(size: int) -> None:
    """Every member n+1, in two steps."""
    sites = tuple(f"s{index}" for index in range(size))
    tally = play_round({site: FullDist(site, sites, sites[:1], QUIET) for site in sites}, sites[0])
    assert tally.steps == 2
    assert tally.processed == dict.fromkeys(sites, size + 1)


def test_section_4_2_2_a_member_multicasts_its_row_on_the_first_row_of_any_sender() -> None:
    b = member("b", [4, 7])
    row = Row(0, counts(6, 2))
    assert sent(receive(b, "c", row)) == [(None, Row(0, counts(4, 7)))]
    assert sent(receive(b, "a", Row(0, counts(5, 3)))) == []
    assert b.stable == (4, 2)


def test_many_rows_are_folded_into_the_minimum() -> None:
    sites = tuple(f"s{index:03}" for index in range(600))
    first = FullDist(sites[0], sites, sites[:2], QUIET)
    first.hold_all([900, 900])
    trigger(first)
    for index, site in enumerate(sites[1:]):
        receive(first, site, Row(0, counts(700 - index, 10 + index)))
    assert first.stable == (700 - 598, 10)


def test_a_trigger_in_the_middle_of_a_round_makes_another() -> None:
    a = member("a", [1, 1])
    trigger(a)
    assert trigger(a) == []
    receive(a, "b", Row(0, counts(1, 1)))
    end = receive(a, "c", Row(0, counts(1, 1)))
    assert sent(end) == [(None, Row(3, counts(1, 1)))]
    assert a.under_way


def test_a_round_of_ours_that_is_passed_over_is_made_up_for() -> None:
    a = member("a", [3, 3])
    trigger(a)
    assert sent(receive(a, "b", Row(4, counts(1, 1)))) == [(None, Row(4, counts(3, 3)))]
    end = receive(a, "c", Row(4, counts(2, 2)))
    assert stable(end) == {"a": 1, "b": 1}
    assert sent(end) == [(None, Row(6, counts(3, 3)))]


def test_only_the_first_member_can_be_triggered() -> None:
    with pytest.raises(UsageError, match="does not come first"):
        trigger(member("b", [0, 0]))


def test_errors_are_detected_with_the_greatest() -> None:
    seen = FullDistConfiguration(repetition=None, objective=Objective.GREATEST)
    a, b = member("a", [5, 3], seen), member("b", [4, 7], seen)
    trigger(a)
    receive(a, "b", Row(0, counts(4, 7)))
    assert of_kind(receive(a, "c", Row(0, counts(1, 1))), Missing) == [Missing("b", 3, 4)]
    receive(b, "a", Row(0, counts(5, 3)))
    assert of_kind(receive(b, "c", Row(0, counts(1, 1))), Missing) == [Missing("a", 4, 1)]


# Scattered


def scattered(site: str) -> FullDist:
    return member(site, [2, 2], FullDistConfiguration(repetition=None, scatter_ns=1000))


def test_scattered_rows_wait_a_random_time() -> None:
    b = scattered("b")
    effects = receive(b, "a", Row(0, counts(2, 2)))
    (timer,) = of_kind(effects, SetTimer)
    assert timer.name == SPEAK
    assert 0 <= timer.after_ns < 1000
    assert sent(effects) == []
    assert sent(b.handle(0, TimerFired(SPEAK))) == [(None, Row(0, counts(2, 2)))]
    assert b.handle(0, TimerFired(SPEAK)) == []


def test_a_member_that_knows_the_result_still_multicasts_its_row() -> None:
    b = scattered("b")
    receive(b, "a", Row(0, counts(2, 2)))
    assert stable(receive(b, "c", Row(0, counts(1, 2)))) == {"a": 1, "b": 2}
    assert sent(b.handle(0, TimerFired(SPEAK))) == [(None, Row(0, counts(2, 2)))]


def test_members_that_go_by_their_own_clocks_mean_the_same_round() -> None:
    group = {site: scattered(site) for site in SITES}
    for protocol in group.values():
        trigger(protocol)
    for site, protocol in group.items():
        (row,) = [pdu for _, pdu in sent(protocol.handle(0, TimerFired(SPEAK)))]
        for other in SITES:
            if other != site:
                receive(group[other], site, row)
    assert {protocol.stable for protocol in group.values()} == {(2, 2)}
    assert trigger(group["b"]) != []
    assert trigger(group["b"]) == []


# Loss


def test_who_lacks_rows_asks_ever_more_rarely_until_it_has_them() -> None:
    a = member("a", [1, 1], BUSY)
    waits = [effect.after_ns for effect in of_kind(trigger(a), SetTimer)]
    receive(a, "b", Row(0, counts(1, 1)))
    for _ in range(3):
        effects = a.handle(0, TimerFired(ASK))
        assert sent(effects) == [("c", Row(0, counts(1, 1), Purpose.ASK, bytes([0b011])))]
        waits += [effect.after_ns for effect in of_kind(effects, SetTimer)]
    assert all(low <= wait < 2 * low for low, wait in zip([10, 20, 40, 40], waits, strict=True))
    assert CancelTimer(ASK) in receive(a, "c", Row(0, counts(1, 1)))
    assert a.handle(0, TimerFired(ASK)) == []


def test_who_is_asked_answers_with_its_row_or_with_the_result() -> None:
    b = member("b", [4, 7])
    asked = receive(b, "a", Row(0, counts(5, 3), Purpose.ASK, bytes([0b001])))
    assert sent(asked) == [
        (None, Row(0, counts(4, 7))),
        ("a", Row(0, counts(4, 3), Purpose.TELL, bytes([0b011]))),
    ]
    receive(b, "c", Row(0, counts(6, 2)))
    again = receive(b, "a", Row(0, counts(5, 3), Purpose.ASK))
    assert sent(again) == [("a", Row(0, counts(4, 2), Purpose.RESULT))]


def test_asker_and_asked_send_each_other_all_that_they_have() -> None:
    sites = tuple("abcde")
    a, e = (FullDist(site, sites, ("a",), BUSY, Random(1)) for site in ("a", "e"))
    a.hold_all([9])
    e.hold_all([8])
    trigger(a)
    receive(a, "b", Row(0, counts(3)))
    receive(a, "c", Row(0, counts(6)))
    receive(e, "d", Row(0, counts(5)))
    ask = Row(0, counts(3), Purpose.ASK, bytes([0b00111]))
    receive(e, "a", ask)
    assert (e.stable, e.rounds_finished) == ((3,), 1)
    ((_, answer),) = sent(receive(e, "a", ask))
    assert answer == Row(0, counts(3), Purpose.RESULT)
    assert stable(receive(a, "e", answer)) == {"a": 3}


def test_a_result_ends_the_round_of_one_that_lacks_rows() -> None:
    b = member("b", [4, 7], BUSY)
    receive(b, "a", Row(0, counts(5, 3)))
    end = receive(b, "a", Row(0, counts(4, 2), Purpose.RESULT))
    assert stable(end) == {"a": 4, "b": 2}
    assert CancelTimer(ASK) in end
    assert (b.under_way, b.rounds_finished) == (False, 0)


def test_repeated_rows_and_rows_of_older_rounds_do_not_count() -> None:
    a = member("a", [9, 9])
    trigger(a)
    for _ in range(3):
        receive(a, "b", Row(0, counts(1, 1)))
    assert a.under_way
    receive(a, "c", Row(0, counts(1, 1)))
    trigger(a)
    for site in ("b", "c"):
        receive(a, site, Row(0, counts(1, 1)))
    assert (a.under_way, a.rounds_finished) == (True, 1)


def test_a_gossip_that_covers_no_new_member_changes_nothing() -> None:
    b = member("b", [4, 7])
    for told in (counts(5, 3), counts(0, 0)):
        receive(b, "a", Row(0, told, heard=b"\x01"))
    receive(b, "c", Row(0, counts(6, 2)))
    assert b.stable == (4, 2)


def test_of_rows_of_the_past_only_a_question_and_a_beginning_are_answered() -> None:
    b = member("b", [4, 7], BUSY)
    for site in ("a", "c"):
        receive(b, site, Row(3, counts(5, 3)))
    result = Row(3, counts(4, 3), Purpose.RESULT)
    assert sent(receive(b, "c", Row(0, counts(6, 2)))) == []
    assert sent(receive(b, "c", Row(0, counts(6, 2), Purpose.ASK))) == [("c", result)]
    assert sent(receive(b, "a", Row(0, counts(6, 2)))) == [("a", result)]


def test_a_result_that_is_known_changes_nothing() -> None:
    b = member("b", [4, 7], BUSY)
    result = Row(3, counts(1, 1), Purpose.RESULT)
    assert receive(b, "c", result) != []
    assert receive(b, "c", result) == []


@pytest.mark.parametrize(("number", "begins"), [(0, []), (3, [(None, Row(6, counts(4, 7)))])])
def test_a_later_result_is_followed_by_a_round_of_ours_and_ours_is_not(
    number: int, begins: list[tuple[None, Row]]
) -> None:
    a = member("a", [4, 7])
    trigger(a)
    assert sent(receive(a, "c", Row(number, counts(1, 1), Purpose.RESULT))) == begins


def test_a_first_member_that_forgot_its_rounds_catches_up() -> None:
    reborn, b = member("a", [0, 0]), member("b", [1, 1])
    receive(b, "a", Row(30, counts(0, 0)))
    ((_, row),) = sent(trigger(reborn))
    ((to, answer),) = sent(receive(b, "a", row))
    assert (to, answer) == ("a", Row(30, counts(0, 0), Purpose.TELL, bytes([0b011])))
    receive(reborn, "b", answer)
    end = receive(reborn, "c", Row(30, counts(0, 0)))
    assert [pdu.round for _, pdu in sent(end) if isinstance(pdu, Row)] == [33]


# Crashes


def test_suspecting_the_last_missing_member_ends_the_round() -> None:
    a = member("a", [5, 5])
    trigger(a)
    receive(a, "b", Row(0, counts(4, 4)))
    assert of_kind(a.handle(0, Suspected("c")), Stable) == [Stable("a", 0, 4), Stable("b", 0, 4)]


def test_a_restored_member_is_waited_for_and_asked() -> None:
    a = member("a", [5, 5])
    a.handle(0, Suspected("c"))
    trigger(a)
    assert a.handle(0, Restored("c")) == [Send("c", Row(0, counts(5, 5), Purpose.ASK, bytes([0b001])))]
    receive(a, "b", Row(0, counts(4, 4)))
    assert a.rounds_finished == 0
    receive(a, "c", Row(0, counts(1, 2)))
    assert a.stable == (1, 2)


def test_a_suspected_members_pdu_is_handled() -> None:
    a = member("a", [5, 5])
    a.handle(0, Suspected("c"))
    trigger(a)
    receive(a, "c", Row(0, counts(1, 2)))
    assert a.handle(0, Restored("c")) == []
    receive(a, "b", Row(0, counts(4, 4)))
    assert a.stable == (1, 2)


def test_a_round_goes_on_without_the_member_that_began_it() -> None:
    b, c = member("b", [2, 2]), member("c", [1, 3])
    ((_, row),) = sent(receive(b, "a", Row(3, counts(0, 0))))
    b.handle(0, Suspected("a"))
    ((_, answer),) = sent(receive(c, "b", row))
    receive(b, "c", answer)
    assert b.stable == (0, 0)
    assert stable(c.handle(0, Suspected("a"))) == {"a": 1, "b": 2}


# Nonsense


NONSENSE: list[tuple[str, str, Pdu]] = [
    ("row too short", "b", Row(0, counts(1))),
    ("row too long", "b", Row(0, counts(1, 1, 1))),
    ("row of broken bytes", "b", Row(0, b"1234567")),
    ("row of a round without end", "b", Row(FIRST_LIMIT, counts(1, 1))),
    ("rows with a bitmap too long", "b", Row(0, counts(1, 1), Purpose.TELL, bytes(2))),
    ("rows of members that do not exist", "b", Row(0, counts(1, 1), Purpose.TELL, b"\x0e")),
    ("rows without that of their sender", "b", Row(0, counts(1, 1), Purpose.TELL, b"\x04")),
    ("row from a stranger", "x", Row(0, counts(1, 1))),
    ("row from ourselves", "a", Row(0, counts(1, 1))),
    ("result with a negative count", "b", Row(4, counts(1, -5), Purpose.RESULT)),
    ("result too short", "b", Row(0, counts(1), Purpose.RESULT)),
    ("result of a round without end", "b", Row(FIRST_LIMIT, counts(1, 1), Purpose.RESULT)),
    ("a PDU of another protocol", "b", Pdu()),
]


@pytest.mark.parametrize(("sender", "pdu"), [row[1:] for row in NONSENSE], ids=[row[0] for row in NONSENSE])
def test_nonsense_is_counted_and_changes_nothing(sender: str, pdu: Pdu) -> None:
    a = member("a", [2, 2])
    trigger(a)
    assert receive(a, sender, pdu) == []
    assert a.ignored == 1
    for site in ("b", "c"):
        receive(a, site, Row(0, counts(1, 1)))
    assert (a.stable, a.rounds_finished) == ((1, 1), 1)


def test_nothing_is_declared_that_is_not_held() -> None:
    a = member("a", [2, 2])
    assert stable(receive(a, "b", Row(4, counts(9, 1), Purpose.RESULT))) == {"a": 2, "b": 1}


def test_what_belongs_to_another_view_is_passed_over_but_is_not_garbage() -> None:
    a = member("a", [5, 3], FullDistConfiguration(repetition=None, view=7))
    ((_, row),) = sent(trigger(a))
    assert row == Row(0, counts(5, 3), view=7)
    assert receive(a, "b", Row(0, counts(5, 3), view=8)) == []
    assert (a.ignored, a.under_way) == (0, True)


def test_pdus_cross_the_wire() -> None:
    codec = Codec(PDUS)
    pdu = Row(7, counts(1, 2), Purpose.ASK, b"\x05", 3)
    packet = codec.decode(codec.encode(pdu))
    assert isinstance(packet, Packet)
    assert packet.pdu == pdu


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: FullDistConfiguration(scatter_ns=-1),
        lambda: FullDist("a", SITES, SITES, FullDistConfiguration(repetition=None, scatter_ns=5)),
        lambda: FullDist("a", SITES, SITES),
    ],
)
def test_misuse_is_refused(misuse: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        misuse()


# Random runs


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("scatter_ns", [0, 100])
def test_stability_is_safe_in_turmoil_and_found_after_it(objective: Objective, scatter_ns: int) -> None:
    knobs = FullDistConfiguration(
        repetition=Repetition(first_ns=10, longest_ns=40), objective=objective, scatter_ns=scatter_ns
    )
    for seed in range(150):
        weather(
            seed,
            lambda site, members, senders, random: FullDist(site, members, senders, knobs, random),
            objective=objective,
            codec=Codec(PDUS),
            own_suspicion=True,
        )
