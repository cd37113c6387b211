"""SCO members between fakes: sending to a choice of members, confirming, repairing, flow control."""

from random import Random
from typing import Any, Literal

import pytest

from antiphon.core.effects import Admitted, Deliver, Multicast, Reached, Rejected, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit, Received, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.sco import LEVELS, PROMISES, Level, Sco, ScoConfiguration
from antiphon.protocols.sco.pdus import (
    LARGEST_BATCH_BYTES,
    Ask,
    Control,
    Copy,
    Data,
    Name,
)
from antiphon.protocols.sco.sending import TOGETHER
from antiphon.protocols.sco.vectors import DIFFERENCES, PLAIN
from tests.protocols.harness.sco_group import KNOBS, Group
from tests.protocols.harness.sco_swarm import Case, Drive
from tests.protocols.harness.staging import pdus

# Sending


def test_a_message_goes_to_its_destinations_and_to_no_other_member() -> None:
    group = Group(4)
    (admitted, data, *_) = group.send("a", "bc")
    assert admitted == Admitted(0, 1, 1, frozenset("bc"))
    assert isinstance(data, Multicast)
    assert data.to == ("b", "c")
    group.pass_time(10)
    assert [group.delivered(name) for name in "abcd"] == [[], ["a0"], ["a0"], []]
    assert group.stable("a") == ["a0"]


def test_without_destinations_it_goes_to_all_present_members_and_to_its_sender() -> None:
    group = Group(3)
    assert group.send("a")[0] == Admitted(0, 1, 1, frozenset("abc"))
    group.pass_time(10)
    assert [group.delivered(name) for name in "abc"] == [["a0"]] * 3


def test_the_whole_group_is_one_multicast() -> None:
    group = Group(3)
    data = [effect for effect in group.send("a", "bc") if isinstance(effect, Multicast)]
    assert data[0].to is None


def test_a_delivery_has_the_destinations_of_the_message() -> None:
    group = Group(3)
    group.send("a", "ab", b"1", b"2")
    group.pass_time(10)
    found = [effect for effect in group.effects["b"] if isinstance(effect, Deliver)]
    assert [(list(effect.bodies), effect.destinations) for effect in found] == [
        ([b"1", b"2"], frozenset("ab"))
    ]


def test_a_message_to_oneself_alone_is_delivered_at_once() -> None:
    group = Group(3)
    group.send("a", "a")
    assert group.delivered("a") == group.stable("a") == ["a0"]
    assert not pdus(group.effects["a"], Data)


def test_a_message_to_oneself_waits_for_what_precedes_it() -> None:
    """b's own message comes after a0, of which b has heard from c but which has not come."""
    group = Group(3)
    group.lost = lambda source, target, pdu: (source, target) == ("a", "b") and isinstance(pdu, Data)
    group.send("a", "bc")
    group.settle()
    group.send("c", "b")
    group.settle()
    group.send("b", "b")
    assert group.delivered("b") == []
    group.lost = lambda *_: False
    group.pass_time(60)
    assert group.delivered("b") == ["a0", "c0", "b0"]


def test_own_messages_come_before_the_answers_to_them() -> None:
    group = Group(3)
    group.send("a", "ab")
    group.step()
    group.send("b", "ab")
    group.pass_time(30)
    assert group.delivered("a") == group.delivered("b") == ["a0", "b0"]


def test_a_batch_is_ordered_as_one() -> None:
    group = Group(3)
    group.send("a", "bc", b"1", b"2", b"3")
    group.send("a", "b", b"4")
    group.pass_time(30)
    assert group.delivered("b") == ["a0", "a1", "a2", "a3"]
    assert group.delivered("c") == ["a0", "a1", "a2"]


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (Admit([]), "nothing to multicast"),
        (Admit([b"x"], frozenset()), "no member to multicast to"),
        (Admit([b"x"], frozenset({"a", "z"})), "of the name z"),
        (Admit([b"x"], None, "g"), "not to groups"),
        (Admit([bytes(LARGEST_BATCH_BYTES)]), "does not fit"),
        (Start(), "has started already"),
    ],
)
def test_misuse_is_told_and_changes_nothing(event: Any, sentence: str) -> None:
    group = Group(2)
    with pytest.raises(UsageError, match=sentence):
        group.give("a", event)
    assert group.send("a")[0] == Admitted(0, 1, 1, frozenset("ab"))


def test_nothing_is_taken_before_the_start() -> None:
    member = Sco("a", ("a", "b"), ScoConfiguration(), Random(1))
    with pytest.raises(UsageError, match="only after its start"):
        member.handle(0, Admit([b"x"]))
    assert member.handle(0, Received("b", Ask(0, None, ()))) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "knobs",
    [
        {"window": 0},
        {"buffers": 0},
        {"buffer_share": 0},
        {"confirm_ns": 0},
        {"silence_ns": 20 * MILLISECOND_NS},
        {"delivery": "soon"},
        {"acknowledge": "never"},
        {"vectors": "long"},
    ],
)
def test_knobs_that_make_no_sense_are_refused(knobs: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ScoConfiguration(**knobs)


def test_a_member_belongs_to_its_group_once() -> None:
    for members in (("b",), ("a", "a")):
        with pytest.raises(UsageError):
            Sco("a", members, ScoConfiguration(), Random(1))


# Confirmation


def controls(group: Group, name: str) -> list[tuple[str, ...] | None]:
    return [
        effect.to
        for effect in group.effects[name]
        if isinstance(effect, Multicast) and isinstance(effect.pdu, Control)
    ]


def test_a_confirmation_waits_for_a_message_that_takes_it_along() -> None:
    group = Group(3)
    group.send("a", "b")
    group.settle()
    group.send("b", "a")
    group.settle()
    assert "a0" in group.stable("a")
    assert controls(group, "b") == []


def test_without_one_it_goes_by_itself_after_its_time() -> None:
    group = Group(3, ScoConfiguration(control_ns=400 * MILLISECOND_NS))
    group.send("a", "bc")
    group.pass_time(1.9)
    assert group.delivered("b") == []
    group.pass_time(0.2)
    assert group.delivered("b") == group.delivered("c") == ["a0"]
    assert controls(group, "b") == [("a", "c")]


def test_members_that_are_not_addressed_hear_how_far_numbers_go() -> None:
    """b0 follows a0, which is not for c; without a's word c would wait for it."""
    group = Group(3, ScoConfiguration(control_ns=400 * MILLISECOND_NS))
    group.send("a", "b")
    group.settle()
    group.send("b", "c")
    group.settle()
    assert group.delivered("c") == []
    group.pass_time(2.1)
    assert group.delivered("c") == ["b0"]


@pytest.mark.parametrize(("later_ns", "goes_along"), [(0, True), (1, False)])
def test_news_that_is_due_soon_goes_along(later_ns: int, goes_along: bool) -> None:
    group = Group(3)
    state = group.members["a"]._state
    state.timers.confirm_soon(0, group.peer("a", "b"))
    state.timers.confirm_soon(KNOBS.confirm_ns // TOGETHER + later_ns, group.peer("a", "c"))
    state.effects.clear()
    effects = group.members["a"].handle(KNOBS.confirm_ns, TimerFired("confirm"))
    (control,) = [effect for effect in effects if isinstance(effect, Multicast)]
    assert control.to == (("b", "c") if goes_along else ("b",))
    timers_set = [effect.after_ns for effect in effects if isinstance(effect, SetTimer)]
    assert timers_set == ([] if goes_along else [KNOBS.confirm_ns // TOGETHER + later_ns])


@pytest.mark.parametrize(("early_ns", "to"), [(0, None), (1, ("b", "c"))])
def test_a_member_announces_itself_to_strangers_now_and_then(
    early_ns: int, to: tuple[str, ...] | None
) -> None:
    group = Group(3)
    effects = group.members["a"].handle(KNOBS.announce_ns - early_ns, TimerFired("control"))
    assert [effect.to for effect in effects if isinstance(effect, Multicast)] == [to]


def test_a_quiet_member_is_heard_of_in_every_period() -> None:
    group = Group(2)
    group.pass_time(105)
    assert 4 <= len(controls(group, "a")) <= 6


def test_a_confirmation_that_is_lost_is_made_up_for_though_others_follow() -> None:
    """Confirmations carry only what is new; once in a period all of it is sent again."""
    group = Group(4)
    group.lost = lambda source, _target, pdu: source == "b" and isinstance(pdu, Control)
    group.send("a", "bc")
    group.pass_time(5)
    group.lost = lambda *_: False
    for _ in range(20):
        group.send("d", "bc")
        group.pass_time(3)
    assert "a0" in group.delivered("c")


# Loss


def losing(*numbers: int, target: str, source: str = "a") -> Any:
    return lambda one, other, pdu: (
        (one, other) == (source, target) and isinstance(pdu, Data) and pdu.number in numbers
    )


@pytest.mark.parametrize("vectors", ["plain", "compressed"])
def test_what_is_missing_is_asked_for_and_what_waited_follows(vectors: Any) -> None:
    group = Group(3, ScoConfiguration(vectors=vectors))
    group.lost = losing(0, 2, target="b")
    for _ in range(4):
        group.send("a", "bc")
    group.pass_time(30)
    assert group.delivered("b") == group.delivered("c") == ["a0", "a1", "a2", "a3"]
    assert group.figure("a", "retransmissions") == 2


def test_the_round_trip_of_a_message_to_all_is_timed() -> None:
    group = Group(3)
    assert group.members["a"].peers(group.now)["b"].round_trip_ns is None
    group.send("a")
    group.pass_time(10)
    reports = group.members["a"].peers(group.now)
    assert [report.round_trip_ns for report in reports.values()] == [KNOBS.confirm_ns] * 2


def test_nothing_is_asked_for_when_a_batch_comes_twice() -> None:
    group = Group(3)
    (data,) = pdus(group.send("a", "b"), Data)
    group.pass_time(10)
    group.give("b", Received("a", data))
    assert group.figure("b", "duplicates") == 1
    assert ("b", "repair") not in group.timers


def test_only_the_sender_of_what_is_missing_is_asked_for_it() -> None:
    group = Group(3)
    group.lost = losing(0, target="b")
    group.send("a", "bc")
    group.send("a", "bc")
    group.pass_time(6)
    asks = [(effect.to, effect.pdu) for effect in group.effects["b"] if isinstance(effect, Send)]
    assert asks == [("a", Ask(0, Name("a", 0), (0,)))]


def test_the_last_of_a_burst_is_missed_by_the_next_control_message() -> None:
    group = Group(2)
    group.lost = losing(0, target="b")
    group.send("a", "b")
    group.pass_time(40)
    assert group.delivered("b") == ["a0"]


def test_copies_of_a_present_sender_are_taken_only_from_itself() -> None:
    """b lacks a0 and cannot ask a for it; a copy from c, true or not, is not taken before a is gone."""
    group = Group(3)
    group.lost = lambda source, target, pdu: (
        losing(0, target="b")(source, target, pdu) or (target == "a" and isinstance(pdu, Ask))
    )
    group.send("a", "bc")
    group.pass_time(60)
    group.give("c", Received("b", Ask(0, Name("a", 0), (0,))))
    group.pass_time(60)
    assert group.figure("c", "relays") == 1
    assert group.delivered("b") == []
    group.lost = lambda *_: False
    group.pass_time(60)
    assert group.delivered("b") == ["a0"]


def test_a_copy_has_the_stamps_of_the_original() -> None:
    """What a accepted between its message and the copy of it does not precede the message."""
    group = Group(3)
    group.lost = losing(0, target="b")
    group.send("a", "b")
    group.settle()
    group.send("c", "a")
    group.settle()
    group.pass_time(40)
    assert group.delivered("b") == ["a0"]
    (copy,) = pdus(group.effects["a"], Copy)
    assert copy.number == 0
    assert copy.csn == bytes([1, 0])  # differences, of which there are none


def test_a_batch_that_comes_twice_is_taken_once() -> None:
    group = Group(2)
    group.send("a", "b")
    group.travelling.extend(list(group.travelling))
    group.pass_time(30)
    assert group.delivered("b") == ["a0"]
    assert group.figure("b", "duplicates") == 1


# Flow control


def rejected(effects: list[Any]) -> bool:
    return any(isinstance(effect, Rejected) for effect in effects)


def test_the_window_counts_from_the_oldest_that_is_not_confirmed() -> None:
    group = Group(3, ScoConfiguration(window=3))
    group.cut.add("c")
    group.send("a", "c")
    group.send("a", "b")
    group.send("a", "b")
    assert rejected(group.send("a", "b"))
    group.pass_time(10)
    assert rejected(group.send("a", "b")), "b has confirmed, but the oldest is c's"
    group.cut.clear()
    group.pass_time(40)
    assert not rejected(group.send("a", "b"))


def test_members_that_are_not_addressed_do_not_hold_the_window() -> None:
    group = Group(3, ScoConfiguration(window=2))
    for _ in range(10):
        assert not rejected(group.send("a", "b"))
        group.pass_time(5)


def test_a_destination_with_few_buffers_is_sent_less() -> None:
    group = Group(3, ScoConfiguration(window=20, buffers=12, buffer_share=2))
    taken = sum(not rejected(group.send("a", "b")) for _ in range(20))
    assert taken == 12 // (2 * 3)


def test_buffers_that_are_full_let_in_what_everything_waits_for() -> None:
    """c holds a batch that follows one that it lacks; there is room for that one all the same."""
    group = Group(3, ScoConfiguration(window=20, buffers=1))
    group.lost = losing(0, target="c")
    group.send("a", "bc")
    group.settle()
    group.lost = lambda *_: False
    group.send("b", "c")
    group.pass_time(60)
    assert group.delivered("c") == ["a0", "b0"]


# Delivery and levels


def test_causal_delivery_does_not_wait_for_confirmations() -> None:
    group = Group(3, ScoConfiguration(delivery="causal"))
    group.send("a", "bc")
    group.settle()
    assert group.delivered("b") == ["a0"]
    assert group.stable("b") == []
    group.pass_time(10)
    assert group.stable("b") == ["a0"]


def test_a_message_of_which_nothing_is_known_has_no_level() -> None:
    group = Group(2)
    assert group.members["b"].level("a", 0) is None
    group.send("a", "b")
    group.pass_time(10)
    assert group.members["b"].level("a", 0) is None, "delivered, and `observe` is off"


def test_levels_of_a_message_on_its_way() -> None:
    group = Group(3, ScoConfiguration(observe=True))
    group.lost = losing(0, target="b")
    group.send("a", "bc")
    group.send("a", "bc")
    group.settle()
    level = group.members["b"].level
    assert level("a", 1) == Level.SIMPLE
    group.pass_time(6)
    assert Level.CAUSAL in (level("a", 1) or Level(0))
    group.pass_time(30)
    assert Level.FULL in (level("a", 0) or Level(0))


def test_a_batch_behind_a_gap_is_atomic_once_its_other_destinations_have_it() -> None:
    group = Group(3)
    group.lost = lambda source, target, pdu: (
        (source, target) == ("a", "b") and isinstance(pdu, Data | Copy) and pdu.number == 0
    )
    group.send("a", "bc")
    group.send("a", "bc")
    group.settle()
    assert [group.members["b"].level("a", number) for number in range(3)] == [None, Level.SIMPLE, None]
    group.pass_time(4)
    assert group.members["b"].level("a", 1) == Level.SIMPLE | Level.ATOMIC


@pytest.mark.parametrize("to", ["bc", "ab"])
def test_a_sender_has_its_own_message_and_all_before_it(to: str) -> None:
    group = Group(3)
    group.lost = lambda *_: True
    group.send("a", to)
    level = group.members["a"].level
    assert level("a", 0) == Level.SIMPLE | Level.CONTINUOUS | Level.CAUSAL
    assert level("b", 0) is None


def reached(group: Group, name: str, sender: str, number: int) -> list[str]:
    """The levels that a member reports of a message, in order."""
    return [
        effect.level
        for effect in group.effects[name]
        if isinstance(effect, Reached) and (effect.sender, effect.number) == (sender, number)
    ]


@pytest.mark.parametrize("delivery", ["full", "causal"])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_each_level_is_reported_once(name: str, delivery: Literal["full", "causal"]) -> None:
    """At a sender that the message is not for, and at its destinations, of which one gets it late."""
    group = Group(3, ScoConfiguration(observe=True, delivery=delivery))
    group.lost = losing(0, target="b")
    group.send("a", "bc")
    group.send("a", "bc")
    group.settle()
    if name == "b":
        assert reached(group, "b", "a", 1) == ["simple"]
    group.pass_time(60)
    for number in (0, 1):
        found = reached(group, name, "a", number)
        assert sorted(found) == sorted(level.label for level in LEVELS)
        assert found[-1] == "full"


def test_levels_are_reported_only_if_they_are_watched() -> None:
    group = Group(3)
    group.send("a", "bc")
    group.pass_time(30)
    assert not any(isinstance(effect, Reached) for name in "abc" for effect in group.effects[name])


def test_a_level_has_a_name_in_words() -> None:
    assert [Level.of(level.label) for level in LEVELS] == list(LEVELS)
    assert (Level.SIMPLE | Level.CAUSALLY_ATOMIC).label == "simple, causally-atomic"
    with pytest.raises(UsageError, match="no level of acceptance 'partial'"):
        Level.of("partial")


@pytest.mark.parametrize(("first_to", "is_causally_atomic"), [("bcd", False), ("bc", True)])
def test_a_message_is_causally_atomic_once_what_precedes_it_is_atomic(
    first_to: str, is_causally_atomic: bool
) -> None:
    """c has not confirmed a0, which precedes d0 only if d has it too."""
    group = Group(4)
    group.cut = {"c"}
    group.send("a", first_to)
    group.settle()
    group.send("d", "b")
    group.settle()
    level = group.members["b"].level("d", 0)
    assert level is not None
    assert Level.CAUSAL | Level.CONTINUOUSLY_ATOMIC in level
    assert (Level.CAUSALLY_ATOMIC in level) is is_causally_atomic


def test_the_shortest_times_there_are_can_be_set() -> None:
    knobs = ScoConfiguration(
        confirm_ns=1, control_ns=1, repair_ns=1, settle_ns=1, announce_ns=1, silence_ns=2
    )
    assert knobs.silence_ns == 2


def test_equal_seeds_give_equal_runs() -> None:
    case = Case(members=4, loss=0.2, reordering=0.2, crashes=1, spread_ms=200.0)
    assert Drive(case, 3).events == Drive(case, 3).events != Drive(case, 4).events


@pytest.mark.parametrize(("vectors", "form"), [("plain", PLAIN), ("compressed", DIFFERENCES)])
def test_vectors_of_batches_and_control_messages_have_the_form_that_is_set(vectors: Any, form: int) -> None:
    group = Group(3, ScoConfiguration(vectors=vectors))
    group.send("a", "bc")
    group.pass_time(30)
    sent = [pdu for name in "abc" for kind in (Data, Control) for pdu in pdus(group.effects[name], kind)]
    assert {pdu.ack[0] for pdu in sent} == {form}


def test_compressed_vectors_take_less_than_plain_ones() -> None:
    def metadata(vectors: str) -> float:
        run = Drive(Case(members=6, messages=80, knobs={"vectors": vectors}), 1)
        return run.figure("data_metadata_bytes") / run.figure("data_copies")

    assert metadata("compressed") < metadata("plain") / 3


def test_unsent_bodies_are_packed_once() -> None:
    bodies = pack([b"1", b"2"])
    group = Group(2)
    group.give("a", Admit(bodies, frozenset("b")))
    (data,) = pdus(group.effects["a"], Data)
    assert data.bodies is bodies
    assert not [effect for effect in group.effects["a"] if isinstance(effect, Send)]


def test_what_is_promised() -> None:
    kept = ("integrity", "duplicate", "atomicity", "fifo", "causal", "stability", "causal-receipt")
    assert kept == PROMISES
