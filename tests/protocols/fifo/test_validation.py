"""Reliable FIFO multicast's checks of single PDUs, each at the value where it decides."""

from dataclasses import replace
from typing import Any

import pytest

from antiphon.core.effects import Deliver, Effect, Missing, Send, Stable
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received
from antiphon.core.packing import Packed, pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.detection.polling import Poll
from antiphon.protocols.fifo.pdus import (
    MOST_NEIGHBOURS,
    Ask,
    Copy,
    Data,
    Extent,
    Position,
    RidingData,
    Status,
)
from antiphon.protocols.fifo.streams import MOST_KEPT, Stream
from antiphon.protocols.stability.riding import encode_row
from tests.protocols.harness.fifo_group import KNOBS, Group
from tests.protocols.harness.staging import pdus

ONE = pack([b"x"])


def message(number: int) -> Received:
    """The batch with this number, which says nothing of what its sender holds."""
    return Received("b", Data(0, number, 0, b"", ONE))


def stream_of_b(members: Group) -> Stream:
    return members.members["a"]._group.peers["b"].stream


def deliveries(effects: list[Effect]) -> list[int]:
    return [effect.number for effect in effects if isinstance(effect, Deliver)]


# The usual case: the next batch of a sender


@pytest.mark.parametrize(
    ("kept_bytes", "kept", "taken", "at_once"),
    [
        (2 * KNOBS.retain_bytes, 0, True, True),
        (2 * KNOBS.retain_bytes + 1, 0, False, False),
        (0, MOST_KEPT - 1, True, True),
        (0, MOST_KEPT, False, False),
    ],
)
def test_a_batch_is_taken_while_what_is_kept_is_within_its_bounds(
    kept_bytes: int, kept: int, taken: bool, at_once: bool
) -> None:
    members = Group(2)
    stream = stream_of_b(members)
    stream.kept_bytes = kept_bytes
    stream.kept = dict.fromkeys(range(-kept, 0), ONE)
    effects = members.give("a", message(0))
    assert deliveries(effects) == ([0] if taken else [])
    # As b's witness, a acknowledges a batch in order without delay.
    assert bool(pdus(effects, Position)) == at_once


def test_a_batch_moves_the_end_of_its_stream_only_forwards() -> None:
    members = Group(2)
    stream = stream_of_b(members)
    members.give("a", message(0))
    assert stream.end == 1
    stream.end = 5
    members.give("a", message(1))
    assert stream.end == 5
    members.give("a", message(2))
    assert stream.end == 5


@pytest.mark.parametrize(
    ("number", "batch", "taken"),
    [
        (1, pack([b"y", b"z"], continuing=True), pack([b"y", b"z"], continuing=True)),
        (0, pack([b"x", b"y", b"z"], unfinished=True), pack([b"y", b"z"], unfinished=True)),
        (0, pack([b"x"]), None),
    ],
    ids=["as it came", "the part that is missing", "nothing"],
)
def test_of_a_repeated_batch_what_was_not_there_before_is_delivered(
    number: int, batch: Packed, taken: Packed | None
) -> None:
    members = Group(2)
    members.give("a", message(0))
    effects = members.give("a", Received("b", Copy("b", 0, number, batch)))
    found = [(effect.number, effect.bodies) for effect in effects if isinstance(effect, Deliver)]
    assert found == ([] if taken is None else [(1, taken)])


def test_a_member_acknowledges_at_once_when_enough_bytes_have_come() -> None:
    # With three members a is the witness of c, not of b.
    members = Group(3, replace(KNOBS, window_bytes=4 * 2 * ONE.weight))
    assert members.knobs.acknowledge_bytes == 2 * ONE.weight
    assert pdus(members.give("a", message(0)), Position) == []
    effects = members.give("a", message(1))
    assert [effect.to for effect in effects if isinstance(effect, Send)] == ["b"]
    assert pdus(effects, Position) == [Position(0, 0, 2)]


def test_a_round_begins_at_once_when_more_bytes_have_come_than_may() -> None:
    members = Group(2, replace(KNOBS, round_bytes=2 * ONE.weight))
    counts = members.members["a"]._context.counts
    for number in range(3):
        assert counts["rounds"] == 0
        members.give("a", message(number))
    assert counts["rounds"] == 1


# Acknowledgements


@pytest.mark.parametrize(
    ("sender", "position", "acked"),
    [
        ("b", Position(0, 0, 1), 1),
        ("b", Position(1, 0, 1), 0),
        ("b", Position(0, 1, 1), 0),
        ("stranger", Position(0, 0, 1), 0),
    ],
)
def test_an_acknowledgement_counts_of_a_known_incarnation_for_our_own(
    sender: str, position: Position, acked: int
) -> None:
    members = Group(2)
    members.admit("a")
    members.give("a", Received(sender, position))
    assert members.members["a"]._group.peers["b"].acked == acked


@pytest.mark.parametrize("in_view", [True, False])
def test_our_own_message_is_delivered_when_a_member_of_the_view_holds_it(in_view: bool) -> None:
    members = Group(3)
    members.admit("a")
    members.members["a"]._group.peers["b"].in_view = in_view
    assert deliveries(members.give("a", Received("b", Position(0, 0, 1)))) == ([0] if in_view else [])


@pytest.mark.parametrize(
    ("repair", "sent", "repeats"),
    [("acknowledge", 1, True), ("acknowledge", 0, False), ("hybrid", 1, False)],
)
def test_a_new_view_repeats_what_is_kept_if_senders_repeat(repair: str, sent: int, repeats: bool) -> None:
    members = Group(2, replace(KNOBS, repair=repair))
    member = members.members["a"]
    for _ in range(sent):
        members.admit("a")
    member._context.timers.clear()
    member._sending.on_view(0)
    assert ("repeat" in member._context.timers.due_ns) == repeats


def test_an_acknowledgement_measures_the_round_trip() -> None:
    members = Group(2)
    members.admit("a")
    members.now += 7
    members.give("a", Received("b", Position(0, 0, 1)))
    assert members.members["a"].peers(members.now)["b"].round_trip_ns == 7


def test_progress_before_the_first_request_does_not_put_it_off() -> None:
    members = Group(3)
    for number in (1, 3):
        members.give("a", message(number))
    gap_ms = members.knobs.gap_ns / MILLISECOND_NS
    members.pass_time(gap_ms / 2)
    members.give("a", message(0))
    members.pass_time(gap_ms / 2)
    asked = [(to, pdu) for source, to, pdu in members.said(Ask) if source == "a"]
    assert asked == [("b", Ask("b", 0, (2, 3)))]


@pytest.mark.parametrize(("late_ns", "sooner"), [(0, False), (1, True)])
def test_progress_brings_a_late_request_forward(late_ns: int, sooner: bool) -> None:
    members = Group(2)
    stream, repair_ns = stream_of_b(members), members.knobs.repair_ns
    stream.attempts, stream.ask_ns = 5, 2 * repair_ns + late_ns
    members.members["a"]._repair.on_progress(0, stream)
    assert (stream.attempts, stream.ask_ns) == (1, repair_ns if sooner else 2 * repair_ns)


@pytest.mark.parametrize(
    ("rows", "sender", "incarnation", "view", "held"),
    [
        ("riding", "b", 0, 0, 1),
        ("riding", "b", 0, 1, 0),
        ("riding", "b", 1, 0, 0),
        ("riding", "stranger", 0, 0, 0),
        ("whole", "b", 0, 0, 0),
    ],
)
def test_a_row_counts_of_a_known_incarnation_in_our_view(
    rows: str, sender: str, incarnation: int, view: int, held: int
) -> None:
    members = Group(2, replace(KNOBS, stability="fulldist", rows=rows))
    member = members.members["a"]
    members.admit("a")
    row = encode_row([1, 0], [(0, 1)])
    pdu = RidingData(incarnation, 0, member._group.view.number + view, row, ONE)
    members.give("a", Received(sender, pdu))
    assert (member._group.peers["b"].acked, member.ignored) == (held, 0)
    delivered = sender == "b" and incarnation == 0
    assert stream_of_b(members).expected == int(delivered)


# Statuses


def report(members: Group, *extents: Extent, view: int = 0) -> None:
    """A status of b at a, in a's view or another, that reports these streams beside its own."""
    group = members.members["a"]._group
    peer = group.peers["b"]
    own = Extent("b", 0, True, True, 0, 0, 0, 0)
    status = Status(0, 0, peer.serial + 1, group.view.number + view, (own, *extents))
    members.give("a", Received("b", status))


@pytest.mark.parametrize(
    ("incarnation", "view", "stable"), [(0, 0, [Stable("a", 0, 1)]), (0, 1, []), (1, 0, [])]
)
def test_a_report_of_our_own_stable_messages_is_believed_in_our_view_only(
    incarnation: int, view: int, stable: list[Stable]
) -> None:
    members = Group(2)
    members.admit("a")
    members.give("a", Received("b", Position(0, 0, 1)))
    report(members, Extent("a", incarnation, True, True, 0, 1, 1, 0), view=view)
    assert members.of("a", Stable) == stable


@pytest.mark.parametrize(("held", "asks"), [(0, False), (1, True)])
def test_a_report_makes_us_ask_for_what_is_missing_only(held: int, asks: bool) -> None:
    members = Group(3)
    report(members, Extent("c", 0, True, True, 0, held, 0, 0))
    assert (members.members["a"]._group.peers["c"].stream.ask_ns is not None) == asks


@pytest.mark.parametrize(("view", "succeeds", "stable"), [(0, False, 1), (1, False, 0), (0, True, 0)])
def test_a_report_of_others_stable_messages_is_believed_in_our_view_only(
    view: int, succeeds: bool, stable: int
) -> None:
    members = Group(3)
    peer = members.members["a"]._group.peers["c"]
    members.give("a", Received("c", Data(0, 0, 0, b"", ONE)))
    stream = peer.stream
    if succeeds:
        peer.successor, peer.stream = stream, Stream("c", -1)
    report(members, Extent("c", 0, True, True, 0, 1, 1, 0), view=view)
    assert stream.stable == stable


@pytest.mark.parametrize(
    ("declared", "spell", "excluded_spell"), [(True, 0, 0), (True, 1, -1), (False, 0, -1)]
)
def test_a_newcomer_that_believes_to_have_missed_nothing_has_missed_what_is_stable(
    declared: bool, spell: int, excluded_spell: int
) -> None:
    members = Group(2)
    member = members.members["a"]
    member._stability.has_declared = declared
    own = Extent("z", 0, True, True, 0, 0, 0, 0)
    members.give("a", Received("z", Status(0, spell, 0, 0, (own,))))
    assert member._group.peers["z"].excluded_spell == excluded_spell


# The knobs


@pytest.mark.parametrize(
    "knob", ["window_bytes", "retain_bytes", "round_bytes", "largest_group", "gap_ns", "lag_ns"]
)
def test_knobs_are_at_least_one(knob: str) -> None:
    least: dict[str, Any] = {knob: 1}
    replace(KNOBS, **least)
    with pytest.raises(UsageError):
        replace(KNOBS, **least | {knob: 0})


@pytest.mark.parametrize(
    ("neighbours", "is_valid"), [(0, False), (2, True), (3, False), (64, True), (66, False)]
)
def test_neighbours_are_an_even_number_within_bounds(neighbours: int, is_valid: bool) -> None:
    assert MOST_NEIGHBOURS == 64
    if is_valid:
        replace(KNOBS, neighbours=neighbours)
    else:
        with pytest.raises(UsageError):
            replace(KNOBS, neighbours=neighbours)


# What error and failure detection find


def test_error_detection_believes_nothing_of_our_own_messages_or_of_streams_not_followed() -> None:
    members = Group(2, replace(KNOBS, errors="coordp"))
    member, stream = members.members["a"], stream_of_b(members)
    member._errors._repair_found(0, [Missing("a", 0, 7)])
    assert (member._group.own.end, member._context.counts["errors_found"]) == (0, 0)
    stream.begun = False
    member._errors._repair_found(0, [Missing("b", 0, 7)])
    assert (stream.end, stream.ask_ns) == (0, None)


@pytest.mark.parametrize(("limit", "asks"), [(None, True), (1, True), (0, False)])
def test_error_detection_asks_for_what_can_still_be_had(limit: int | None, asks: bool) -> None:
    members = Group(2, replace(KNOBS, errors="coordp"))
    stream = stream_of_b(members)
    stream.limit = limit
    members.members["a"]._errors._repair_found(0, [Missing("b", 0, 7)])
    assert (stream.end, stream.ask_ns is not None) == (7, asks)


@pytest.mark.parametrize(("detector", "ignored"), [("heartbeat", 1), ("polling", 0)])
def test_pdus_of_a_detector_that_the_group_does_not_use_are_ignored(detector: str, ignored: int) -> None:
    members = Group(2, replace(KNOBS, detector=detector))
    members.give("a", Received("b", Poll(0, 5)))
    assert members.members["a"].ignored == ignored


# Stability


@pytest.mark.parametrize(("span_ns", "kept"), [(0, True), (1, False)])
def test_a_view_that_returns_in_time_goes_on_with_its_object(span_ns: int, kept: bool) -> None:
    members = Group(2)
    host = members.members["a"]._stability._host
    first = host.layer
    assert first is not None
    host._past[host.view], host.layer = (first, set(), 0), None
    host.on_view(members.knobs.forget_after_ns + span_ns, (0, 0), (0, 0))
    assert (host.layer is first) == kept
