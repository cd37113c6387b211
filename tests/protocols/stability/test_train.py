"""Train between fakes: the paper's counts, loss, routes round the dead, hostile PDUs, and swarms."""

from collections.abc import Sequence
from random import Random

import pytest

from antiphon.core.effects import CancelTimer, Effect, Missing, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.fields import MOST_NAMES
from antiphon.core.inputs import Restored, Suspected, TimerFired
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.stability.base import FIRST_LIMIT, Configuration, Objective
from antiphon.protocols.stability.round_trips import Repetition
from antiphon.protocols.stability.train import PDUS, REPEAT, Carriage, Receipt, Train
from tests.protocols.harness.gate import pass_gate
from tests.protocols.harness.stability_group import (
    counts,
    of_kind,
    play,
    play_round,
    receive,
    sent,
    stable,
    trigger,
)
from tests.protocols.harness.stability_swarm import weather

QUIET = Configuration(repetition=None)
BUSY = Configuration(repetition=Repetition(first_ns=10, longest_ns=40))
SITES = ("a", "b", "c", "d")
HELD = {"a": (5, 3), "b": (4, 7), "c": (6, 2), "d": (9, 9)}


def member(site: str, configuration: Configuration = QUIET, held: Sequence[int] = ()) -> Train:
    protocol = Train(site, SITES, ("a", "b"), configuration, Random(1))
    protocol.hold_all(held or HELD[site])
    return protocol


def group(*sites: str, configuration: Configuration = QUIET) -> dict[str, Train]:
    return {site: member(site, configuration) for site in sites}


def started(site: str, effects: list[Effect]) -> list[tuple[str, Effect]]:
    return [(site, effect) for effect in effects]


def only_send(effects: list[Effect]) -> tuple[str, Carriage]:
    (effect,) = [effect for effect in of_kind(effects, Send) if isinstance(effect.pdu, Carriage)]
    return effect.to, effect.pdu


# A round


def test_the_train_gathers_the_minima_and_distributes_them() -> None:
    everyone = group(*SITES)
    play_round(everyone, "a")
    assert {protocol.stable for protocol in everyone.values()} == {(4, 2)}
    assert [protocol.rounds_finished for protocol in everyone.values()] == [1, 0, 0, 0]
    assert not any(protocol.under_way for protocol in everyone.values())


@pytest.mark.parametrize("size", [2, 3, 10, 50])
def test_table_4_1_messages_processed_and_steps(size: int) -> None:
    """Every member 4, in 2n steps."""
    sites = tuple(f"s{index}" for index in range(size))
    tally = play_round({site: Train(site, sites, sites[:1], QUIET) for site in sites}, sites[0])
    assert tally.steps == 2 * size
    assert tally.processed == dict.fromkeys(sites, 4)


def test_section_4_2_3_each_member_puts_the_least_on_the_train() -> None:
    a, b = member("a"), member("b")
    assert only_send(trigger(a)) == ("b", Carriage(0, 0, counts(5, 3)))
    assert only_send(receive(b, "a", Carriage(0, 0, counts(5, 3)))) == ("c", Carriage(0, 0, counts(4, 3)))
    assert b.under_way


def test_the_first_member_has_the_array_when_the_train_is_back() -> None:
    a = member("a")
    trigger(a)
    end = receive(a, "d", Carriage(0, 0, counts(4, 2)))
    assert stable(end) == {"a": 4, "b": 2}
    assert only_send(end) == ("b", Carriage(0, 0, counts(4, 2), result=True))
    assert not a.under_way


def test_one_alone_needs_no_train() -> None:
    alone = Train("a", ("a",), ("a",), QUIET)
    alone.hold_all([3])
    assert stable(trigger(alone)) == {"a": 3}


def test_a_trigger_in_the_middle_of_a_round_makes_another() -> None:
    a = member("a")
    trigger(a)
    assert trigger(a) == []
    end = receive(a, "d", Carriage(0, 0, counts(4, 2)))
    assert [pdu.round for _, pdu in sent(end) if isinstance(pdu, Carriage)] == [0, 4]
    assert a.under_way


def test_only_the_first_member_can_be_triggered() -> None:
    with pytest.raises(UsageError, match="does not come first"):
        trigger(member("b"))


def test_errors_are_detected_with_the_greatest() -> None:
    seen = Configuration(repetition=None, objective=Objective.GREATEST)
    everyone = group(*SITES, configuration=seen)
    found = [(site, effect) for site, effect in started("a", trigger(everyone["a"]))]
    play(everyone, found)
    assert {protocol.stable for protocol in everyone.values()} == {(9, 9)}
    b = member("b", seen)
    end = receive(b, "a", Carriage(4, 0, counts(9, 9), result=True))
    assert of_kind(end, Missing) == [Missing("a", 4, 5), Missing("b", 7, 2)]


# Loss


def test_the_train_is_repeated_until_the_next_member_confirms_it() -> None:
    b = member("b", BUSY)
    effects = receive(b, "a", Carriage(0, 0, counts(5, 3)))
    assert sent(effects)[0] == ("a", Receipt(0, 0))
    train = Carriage(0, 0, counts(4, 3))
    waits = [effect.after_ns for effect in of_kind(effects, SetTimer)]
    for _ in range(3):
        effects = b.handle(0, TimerFired(REPEAT))
        assert sent(effects) == [("c", train)]
        waits += [effect.after_ns for effect in of_kind(effects, SetTimer)]
    assert all(low <= wait < 2 * low for low, wait in zip([10, 20, 40, 40], waits, strict=True))
    (timer,) = of_kind(receive(b, "c", Receipt(0, 0)), SetTimer)
    assert 40 <= timer.after_ns < 80


def test_a_result_is_repeated_until_the_next_member_confirms_it() -> None:
    b = member("b", BUSY)
    receive(b, "a", Carriage(0, 0, counts(5, 3)))
    end = receive(b, "a", Carriage(0, 0, counts(4, 2), result=True))
    assert sent(end) == [("a", Receipt(0, 0, result=True)), ("c", Carriage(0, 0, counts(4, 2), result=True))]
    assert receive(b, "c", Receipt(0, 0)) == []
    assert sent(b.handle(0, TimerFired(REPEAT))) == [("c", Carriage(0, 0, counts(4, 2), result=True))]
    assert receive(b, "c", Receipt(0, 0, result=True)) == [CancelTimer(REPEAT)]
    assert b.handle(0, TimerFired(REPEAT)) == []


def test_a_train_that_comes_twice_is_sent_on_once() -> None:
    b = member("b", BUSY)
    train = Carriage(0, 0, counts(5, 3))
    receive(b, "a", train)
    assert sent(receive(b, "a", train)) == [("a", Receipt(0, 0))]


def test_a_member_that_waits_gets_a_known_result() -> None:
    c = member("c", BUSY)
    receive(c, "b", Carriage(0, 0, counts(4, 3)))
    result = Carriage(0, 0, counts(4, 2), result=True)
    receive(c, "b", result)
    assert sent(receive(c, "b", Carriage(0, 0, counts(4, 3)))) == [("b", result)]


def test_a_first_member_that_forgot_its_rounds_catches_up() -> None:
    reborn, b = member("a", BUSY), member("b", BUSY)
    receive(b, "a", Carriage(40, 0, counts(5, 3)))
    _, train = only_send(trigger(reborn))
    ((_, news),) = sent(receive(b, "a", train))
    assert news == Receipt(40, 0)
    assert only_send(receive(reborn, "b", news)) == ("b", Carriage(44, 0, counts(5, 3)))


def test_a_train_of_a_former_life_makes_a_new_one() -> None:
    reborn = member("a")
    assert only_send(receive(reborn, "d", Carriage(40, 0, counts(1, 1)))) == (
        "b",
        Carriage(44, 0, counts(5, 3)),
    )


# Crashes


def test_the_train_bypasses_suspected_members_and_names_those_left_out() -> None:
    a = member("a")
    a.handle(0, Suspected("b"))
    to, train = only_send(trigger(a))
    assert (to, train.unvisited) == ("c", bytes([0b1100]))
    b = member("b")
    b.handle(0, Suspected("c"))
    to, train = only_send(receive(b, "a", Carriage(0, 0, counts(5, 3))))
    assert (to, train.unvisited) == ("d", bytes([0b1100]))


def test_a_train_whose_next_stop_is_suspected_takes_another_way() -> None:
    b = member("b", BUSY)
    receive(b, "a", Carriage(0, 0, counts(5, 3)))
    receive(b, "c", Receipt(0, 0))
    to, train = only_send(b.handle(0, Suspected("c")))
    assert (to, train.counts, train.unvisited) == ("d", counts(4, 3), bytes([0b1100]))


def test_a_result_whose_next_stop_is_suspected_takes_another_way() -> None:
    b = member("b")
    receive(b, "a", Carriage(0, 0, counts(4, 2), result=True))
    assert only_send(b.handle(0, Suspected("c"))) == ("d", Carriage(0, 0, counts(4, 2), result=True))


def test_a_member_left_out_wrongly_is_visited_by_another_lap() -> None:
    """The member that began the round goes by its own suspicion only."""
    everyone = group(*SITES)
    everyone["b"].handle(0, Suspected("c"))
    play_round(everyone, "a")
    assert everyone["a"].stable == (4, 2)


def test_a_member_that_the_first_suspects_is_not_waited_for() -> None:
    everyone = group("a", "b", "d")
    for site in ("a", "b"):
        everyone[site].handle(0, Suspected("c"))
    play_round(everyone, "a")
    assert {protocol.stable for protocol in everyone.values()} == {(4, 3)}


def test_one_restored_during_the_round_is_counted() -> None:
    a = member("a")
    a.handle(0, Suspected("c"))
    trigger(a)
    a.handle(0, Restored("c"))
    back = receive(a, "d", Carriage(0, 0, counts(4, 3), unvisited=bytes([0])))
    assert only_send(back) == ("c", Carriage(0, 1, counts(4, 3), unvisited=bytes([0b0100])))
    receive(a, "c", Carriage(0, 1, counts(4, 2), unvisited=bytes([0])))
    assert a.stable == (4, 2)


def test_when_the_last_to_be_visited_is_suspected_the_round_ends() -> None:
    a = Train("a", ("a", "b"), ("a",), QUIET)
    a.hold_all([3])
    trigger(a)
    assert stable(a.handle(0, Suspected("b"))) == {"a": 3}


def test_the_next_in_order_takes_over() -> None:
    b, c = member("b"), member("c")
    _, train = only_send(receive(b, "a", Carriage(4, 0, counts(5, 3))))
    receive(c, "b", train)
    to, turned = only_send(c.handle(0, Suspected("a")))
    assert (to, turned.round) == ("b", 4)
    assert receive(b, "c", turned) == []
    to, own = only_send(b.handle(0, Suspected("a")))
    assert (to, own.round % 4) == ("c", 1)
    assert own.round > 4


def test_one_restored_to_the_round_gets_the_train() -> None:
    b = member("b")
    b.handle(0, Suspected("c"))
    receive(b, "a", Carriage(0, 0, counts(5, 3)))
    to, train = only_send(b.handle(0, Restored("c")))
    assert (to, train.counts) == ("c", counts(4, 3))


def test_a_train_of_the_past_gets_the_result_if_it_is_known() -> None:
    b = member("b")
    receive(b, "a", Carriage(0, 0, counts(5, 3)))
    result = Carriage(0, 0, counts(4, 2), result=True)
    receive(b, "a", result)
    for number in (8, 12):
        receive(b, "a", Carriage(number, 0, counts(5, 3)))
    assert receive(b, "a", Carriage(0, 0, counts(5, 3))) == [Send("a", result)]
    assert receive(b, "a", Carriage(8, 0, counts(5, 3))) == [Send("a", Receipt(12, 0))]


def test_a_round_of_its_own_that_a_member_does_not_know_needs_no_timer() -> None:
    assert receive(member("b"), "a", Carriage(5, 0, counts(5, 3))) == []


def test_a_train_goes_another_way_only_if_its_next_stop_or_its_owner_is_gone() -> None:
    b = member("b")
    receive(b, "a", Carriage(0, 0, counts(5, 3)))
    assert b.handle(0, Suspected("d")) == []
    assert of_kind(b.handle(0, Suspected("c")), Send) != []


def test_only_its_own_timer_repeats_a_train() -> None:
    b = member("b", BUSY)
    receive(b, "a", Carriage(0, 0, counts(5, 3)))
    assert b.handle(0, TimerFired("another")) == []
    assert of_kind(b.handle(0, TimerFired(REPEAT)), Send) != []


# Nonsense


NONSENSE: list[tuple[str, str, Pdu]] = [
    ("train too short", "d", Carriage(0, 0, counts(1))),
    ("train of a round without end", "d", Carriage(FIRST_LIMIT, 0, counts(1, 1))),
    ("train that has gone past members and says otherwise", "b", Carriage(0, 0, counts(1, 1))),
    ("train with a bitmap too long", "d", Carriage(0, 0, counts(1, 1), unvisited=bytes(2))),
    ("train with members that do not exist", "d", Carriage(0, 0, counts(1, 1), unvisited=b"\xf0")),
    ("train that has yet to visit where it began", "d", Carriage(0, 0, counts(1, 1), unvisited=b"\x01")),
    ("train from a stranger", "x", Carriage(0, 0, counts(1, 1))),
    ("train from ourselves", "a", Carriage(0, 0, counts(1, 1))),
    ("result too short", "d", Carriage(1, 0, counts(1), result=True)),
    ("result with a negative count", "d", Carriage(1, 0, counts(1, -1), result=True)),
    ("result of our own round that has not ended", "d", Carriage(0, 0, counts(1, 1), result=True)),
    ("receipt of a round without end", "b", Receipt(FIRST_LIMIT, 0)),
    ("a PDU of another protocol", "b", Pdu()),
]


@pytest.mark.parametrize(("sender", "pdu"), [row[1:] for row in NONSENSE], ids=[row[0] for row in NONSENSE])
def test_nonsense_is_counted_and_changes_nothing(sender: str, pdu: Pdu) -> None:
    a = member("a")
    trigger(a)
    assert receive(a, sender, pdu) == []
    assert a.ignored == 1
    receive(a, "d", Carriage(0, 0, counts(4, 2)))
    assert (a.stable, a.rounds_finished) == ((4, 2), 1)


def test_a_receipt_from_another_member_means_nothing() -> None:
    b = member("b", BUSY)
    receive(b, "a", Carriage(0, 0, counts(5, 3)))
    assert receive(b, "d", Receipt(99, 0)) == []
    assert sent(b.handle(0, TimerFired(REPEAT))) == [("c", Carriage(0, 0, counts(4, 3)))]


def test_nothing_is_declared_that_is_not_held() -> None:
    b = member("b")
    end = receive(b, "a", Carriage(4, 0, counts(9, 1), result=True))
    assert stable(end) == {"a": 4, "b": 1}
    assert only_send(end) == ("c", Carriage(4, 0, counts(9, 1), result=True))


def test_what_belongs_to_another_view_is_passed_over_but_is_not_garbage() -> None:
    a = member("a", Configuration(repetition=None, view=7))
    _, train = only_send(trigger(a))
    assert train.view == 7
    assert receive(a, "d", Carriage(0, 0, counts(4, 2), view=8)) == []
    assert (a.ignored, a.under_way) == (0, True)


def test_pdus_cross_the_wire() -> None:
    codec = Codec(PDUS)
    for pdu in (Carriage(7, 1, counts(1, 2), unvisited=b"\x02", view=3), Receipt(7, 1, result=True, view=3)):
        packet = codec.decode(codec.encode(pdu))
        assert isinstance(packet, Packet)
        assert packet.pdu == pdu


@pytest.mark.parametrize(
    ("lap", "passes"), [(-1, False), (0, True), (4 * MOST_NAMES - 1, True), (4 * MOST_NAMES, False)]
)
def test_a_lap_out_of_bounds_does_not_pass_the_gate(lap: int, passes: bool) -> None:
    for pdu in (Carriage(0, lap, counts(1, 2)), Receipt(0, lap)):
        assert (pass_gate(Codec(PDUS), "b", pdu) is not None) == passes


# Random runs


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("most_members", [6, 11])
def test_stability_is_safe_in_turmoil_and_found_after_it(objective: Objective, most_members: int) -> None:
    knobs = Configuration(repetition=Repetition(first_ns=10, longest_ns=40), objective=objective)
    for seed in range(150):
        weather(
            seed,
            lambda site, members, senders, random: Train(site, members, senders, knobs, random),
            most_members=most_members,
            objective=objective,
            codec=Codec(PDUS),
            own_suspicion=True,
        )
