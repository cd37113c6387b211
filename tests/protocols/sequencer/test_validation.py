"""The fixed sequencer's checks of single PDUs, each at the value where it decides."""

from dataclasses import replace
from typing import Any

import pytest

from antiphon.core.effects import Appeared, SetTimer, Vanished
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit, Received, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.wire import Pdu
from antiphon.protocols.sequencer import Sequencer, SequencerConfiguration
from antiphon.protocols.sequencer.pdus import (
    NO_POSITION,
    Acknowledge,
    Fetch,
    Heartbeat,
    Join,
    Lacking,
    Ordered,
    Recover,
    Report,
    Request,
    Resume,
    Roster,
)
from tests.protocols.harness.sequencer_group import KNOBS
from tests.protocols.harness.staging import pdus

BATCH = pack([b"x"])
MEMBERS = ("a", "b", "c")
LATER_NS = KNOBS.repeat_ns


def member(name: str) -> Sequencer:
    """A member of a group of three that began together; a is the sequencer."""
    made = Sequencer(name, MEMBERS, KNOBS)
    made.handle(0, Start())
    return made


def of_sequencer(pdu: Pdu) -> Received:
    return Received("a", pdu)


# A follower


@pytest.mark.parametrize(
    ("lacking", "now", "repeated"),
    [
        (Lacking(0, 0, (0,)), LATER_NS, [0]),
        (Lacking(0, 0, (0,)), LATER_NS - 1, []),
        (Lacking(0, 0, (7, 0)), LATER_NS, [0]),
        (Lacking(0, 1, (0,)), LATER_NS, []),
        (Lacking(1, 0, (0,)), LATER_NS, []),
    ],
)
def test_a_follower_repeats_requests_of_its_own_that_are_lacking(
    lacking: Lacking, now: int, repeated: list[int]
) -> None:
    follower = member("b")
    follower.handle(0, Admit([b"x"]))
    effects = follower.handle(now, of_sequencer(lacking))
    assert [pdu.number for pdu in pdus(effects, Request)] == repeated


def test_a_heartbeat_asks_for_no_acknowledgement_of_what_is_stable() -> None:
    follower = member("b")
    assert follower.handle(0, of_sequencer(Heartbeat(0, 0, 0, "b"))) == []


@pytest.mark.parametrize(
    ("witness", "acknowledged", "at_once"),
    [("b", 0, True), ("c", 0, False), ("b", 1, False), ("c", 1, False)],
)
def test_a_heartbeat_makes_the_witness_acknowledge_what_it_has_not(
    witness: str, acknowledged: int, at_once: bool
) -> None:
    follower = member("b")
    # The witness of an entry acknowledges it at once.
    first_witness = "b" if acknowledged else "c"
    follower.handle(0, of_sequencer(Ordered(0, 0, 0, first_witness, "c", 0, BATCH)))
    effects = follower.handle(1, of_sequencer(Heartbeat(0, 1, 0, witness)))
    assert pdus(effects, Acknowledge) == ([Acknowledge(0, 0, 1, 0)] if at_once else [])
    timers = [effect.name for effect in effects if isinstance(effect, SetTimer)]
    assert timers == (["acknowledge"] if acknowledged else [])


@pytest.mark.parametrize(
    ("roster", "changes"),
    [
        (Roster(0, 1, ("b", "d"), {}), [Appeared("d"), Vanished("c", "The sequencer no longer counts it.")]),
        (Roster(0, 0, ("b", "d"), {}), []),
        (Roster(1, 1, ("b", "d"), {}), []),
    ],
)
def test_a_roster_counts_if_it_is_later_and_of_the_present_epoch(
    roster: Roster, changes: list[Appeared | Vanished]
) -> None:
    effects = member("b").handle(0, of_sequencer(roster))
    found = [effect for effect in effects if isinstance(effect, Appeared | Vanished)]
    assert [each for each in found if each.site != "a"] == changes


def test_a_follower_hands_out_what_it_holds_without_a_gap_to_a_recovery() -> None:
    follower = member("b")
    for place in (0, 2):
        follower.handle(0, of_sequencer(Ordered(0, place, 0, "c", "c", place, BATCH)))
    wanted = (0, 1, 2)
    assert pdus(follower.handle(0, of_sequencer(Fetch(0, wanted))), Ordered) == []
    follower.handle(0, of_sequencer(Recover(5)))
    assert pdus(follower.handle(0, of_sequencer(Fetch(4, wanted))), Ordered) == []
    (answer,) = pdus(follower.handle(0, of_sequencer(Fetch(5, wanted))), Ordered)
    assert answer == Ordered(5, 0, 0, "b", "c", 0, BATCH)


def test_a_follower_keeps_its_log_while_the_sequencer_recovers() -> None:
    """What it hears meanwhile is of an order that it does not follow yet: neither over nor a later one."""
    follower = member("b")
    follower.handle(0, of_sequencer(Ordered(0, 0, 0, "c", "c", 0, BATCH)))
    follower.handle(0, of_sequencer(Recover(5)))
    silent_ns = KNOBS.suspect_after_ns
    for now, epoch in ((silent_ns, 5), (silent_ns, 7), (silent_ns + KNOBS.give_up_ns, 5)):
        follower.handle(now, of_sequencer(Ordered(epoch, 1, 0, "c", "c", 1, BATCH)))
    assert len(pdus(follower.handle(1, of_sequencer(Fetch(5, (0,)))), Ordered)) == 1


# The sequencer


def test_an_acknowledgement_measures_the_round_trip() -> None:
    sequencer = member("a")
    sequencer.handle(5, Received("b", Request(0, 0, 0, 0, 0, BATCH)))
    sequencer.handle(12, Received("b", Acknowledge(0, 0, 1, 0)))
    sequencer.handle(13, Received("c", Acknowledge(0, 0, 0, 0)))
    reports = sequencer.peers(13)
    assert (reports["b"].round_trip_ns, reports["c"].round_trip_ns) == (7, None)


def test_numbers_that_are_no_news_leave_the_table_of_streams_alone() -> None:
    sequencer = member("a")
    sequencer.handle(0, Received("b", Request(0, 0, 0, 0, 1, BATCH)))
    sequencer.handle(0, Received("c", Join(0, 1, 0, 0, 0, 0, newcomer=False)))
    (answer,) = pdus(sequencer.handle(0, Received("d", Join(5, 1, 0, 0, 0, 0, newcomer=False))), Resume)
    assert (answer.kept, sequencer._role._log.streams) == (True, {"a": 0})


def test_a_member_that_lagged_comes_back_at_the_end_of_the_order() -> None:
    sequencer = member("a")
    for number in range(3):
        sequencer.handle(0, Received("b", Request(0, 0, 0, 0, number, BATCH)))
    found: list[Appeared | Vanished] = []

    def note(now: int, event: Received | TimerFired) -> None:
        effects = sequencer.handle(now, event)
        found.extend(effect for effect in effects if isinstance(effect, Appeared | Vanished))

    def acknowledge(now: int, sender: str, position: int) -> None:
        note(now, Received(sender, Acknowledge(0, 0, position, 0)))

    end = KNOBS.lag_ns + KNOBS.heartbeat_ns
    for now in range(KNOBS.heartbeat_ns, end + 1, KNOBS.heartbeat_ns):
        acknowledge(now, "b", 2 if now == end else 1)
        acknowledge(now, "c", 1)
        note(now, TimerFired("heartbeat"))
    assert found == [Vanished("c", "It speaks, but has not got on for too long.")]
    acknowledge(end, "c", 2)
    assert found[1:] == []
    acknowledge(end, "c", 3)
    assert found[1:] == [Appeared("c")]


def test_a_repeated_request_gives_no_second_turn() -> None:
    sequencer = Sequencer("a", MEMBERS, replace(KNOBS, order_window=1))
    sequencer.handle(0, Start())
    for sender, number in (("b", 0), ("b", 1), ("b", 1), ("b", 2), ("c", 0)):
        sequencer.handle(0, Received(sender, Request(0, 0, 0, 0, number, BATCH)))
    placed: list[tuple[str, int]] = []
    for position in (1, 2, 3):
        for sender in "bc":
            effects = sequencer.handle(0, Received(sender, Acknowledge(0, 0, position, 0)))
            placed += [(pdu.sender, pdu.number) for pdu in pdus(effects, Ordered)]
    assert placed == [("b", 1), ("c", 0), ("b", 2)]


@pytest.mark.parametrize(("now", "sent"), [(KNOBS.keepalive_ns, True), (KNOBS.keepalive_ns - 1, False)])
def test_a_member_with_another_roster_gets_ours_after_a_while(now: int, sent: bool) -> None:
    effects = member("a").handle(now, Received("b", Acknowledge(0, 0, 0, 9)))
    assert bool(pdus(effects, Roster)) == sent


def test_a_repeated_join_does_not_begin_the_numbers_again() -> None:
    sequencer = member("a")
    join = Received("d", Join(5, 1, 0, 0, 0, NO_POSITION, newcomer=False))
    sequencer.handle(0, join)
    request = Received("d", Request(0, 5, 0, 0, 0, BATCH))
    assert len(pdus(sequencer.handle(0, request), Ordered)) == 1
    assert len(pdus(sequencer.handle(0, join), Resume)) == 1
    assert pdus(sequencer.handle(0, request), Ordered) == []
    assert sequencer.ignored == 0


@pytest.mark.parametrize(
    ("returning", "order_epoch", "whole"),
    [(False, None, True), (True, None, False), (False, 0, False), (True, 0, False)],
)
def test_an_order_is_whole_if_the_sequencer_is_new_and_no_member_knew_another(
    returning: bool, order_epoch: int | None, whole: bool
) -> None:
    sequencer = Sequencer("a", ("a",), KNOBS)
    sequencer.handle(0, Start(1, returning=returning))
    if order_epoch is not None:
        sequencer.handle(0, Received("b", Report(1, 0, 1, 0, 1, order_epoch, 0, False, 0, 0, {})))
    sequencer.handle(KNOBS.recovery_ns, TimerFired("recover"))
    join = Received("c", Join(5, 1, 0, 0, 0, NO_POSITION, newcomer=True))
    (answer,) = pdus(sequencer.handle(KNOBS.recovery_ns, join), Resume)
    assert (answer.position, answer.whole) == (0, whole)


@pytest.mark.parametrize(("position", "whole"), [(0, False), (NO_POSITION, True)])
def test_an_order_is_not_whole_once_a_member_of_another_joins(position: int, whole: bool) -> None:
    sequencer = Sequencer("a", ("a",), KNOBS)
    sequencer.handle(0, Start(7))
    sequencer.handle(KNOBS.recovery_ns, TimerFired("recover"))
    sequencer.handle(KNOBS.recovery_ns, Received("b", Join(5, 1, 0, 3, 3, position, newcomer=False)))
    join = Received("c", Join(5, 1, 0, 0, 0, NO_POSITION, newcomer=True))
    (answer,) = pdus(sequencer.handle(KNOBS.recovery_ns, join), Resume)
    assert answer.whole == whole


# The knobs


@pytest.mark.parametrize("knob", ["window", "order_window", "acknowledge_every", "gap_ns", "lag_ns"])
def test_knobs_are_at_least_one(knob: str) -> None:
    one: dict[str, Any] = {knob: 1}
    none: dict[str, Any] = {knob: 0}
    replace(SequencerConfiguration(), **one)
    with pytest.raises(UsageError):
        replace(SequencerConfiguration(), **none)


@pytest.mark.parametrize(
    ("silent_ns", "rejoins"), [(KNOBS.suspect_after_ns, True), (KNOBS.suspect_after_ns - 1, False)]
)
def test_an_earlier_epoch_is_a_clock_set_back_if_the_sequencer_was_silent(
    silent_ns: int, rejoins: bool
) -> None:
    follower = Sequencer("b", ("a", "b"), KNOBS)
    follower.handle(0, Start(7))
    follower.handle(0, of_sequencer(Resume(5, 7, 1, 0, 0, False, True, {})))
    effects = follower.handle(silent_ns, of_sequencer(Heartbeat(4, 0, 0, "")))
    assert bool(pdus(effects, Join)) == rejoins
