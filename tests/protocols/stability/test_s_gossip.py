"""S_Gossip between fakes: both phases, how local rounds end, controllers replaced, loss, hostile PDUs."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.effects import Effect, Missing, Multicast, Send, SetTimer, Stable
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received, Restored, RoundTriggered, Suspected, TimerFired
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.stability.base import FIRST_LIMIT, Objective
from antiphon.protocols.stability.gossip import STEP, Outcome, Rumour
from antiphon.protocols.stability.round_trips import Repetition
from antiphon.protocols.stability.s_gossip import (
    GROUP_STEP,
    PDUS,
    REMIND,
    GroupRumour,
    LocalEnd,
    LocalOutcome,
    SGossip,
    SGossipConfiguration,
)
from tests.protocols.harness.gossip_group import Group, survive

SITES = ("a", "b", "c", "d", "e")
GROUPS = (("a", "b", "c"), ("d", "e"))
STEP_NS = 100
REPETITION = Repetition(first_ns=STEP_NS, longest_ns=8 * STEP_NS)
ONE, TWO, BOTH = b"\x01", b"\x02", b"\x03"


def counts(*numbers: int) -> bytes:
    return np.array(numbers, "<i8").tobytes()


def knobs(**changes: Any) -> SGossipConfiguration:
    return SGossipConfiguration(**{"repetition": None, "step_ns": STEP_NS, "groups": GROUPS} | changes)


def member(site: str, held: Sequence[int], **changes: Any) -> SGossip:
    protocol = SGossip(site, SITES, ("a", "d"), knobs(**changes), Random(1))
    protocol.hold_all(held)
    return protocol


def receive(protocol: SGossip, sender: str, pdu: Pdu, now: int = 0) -> list[Effect]:
    return protocol.handle(now, Received(sender, pdu))


def trigger(protocol: SGossip) -> list[Effect]:
    return protocol.handle(0, RoundTriggered())


def fire(protocol: SGossip, timer: str, now: int = 0) -> list[Effect]:
    return protocol.handle(now, TimerFired(timer))


def of_kind(effects: list[Effect], kind: type[Any]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def multicast_of(effects: list[Effect]) -> Multicast:
    (multicast,) = of_kind(effects, Multicast)
    assert isinstance(multicast, Multicast)
    return multicast


def timers(effects: list[Effect]) -> set[str]:
    return {effect.name for effect in of_kind(effects, SetTimer)}


def make(**changes: Any) -> Callable[[str, tuple[str, ...], tuple[str, ...], Random], SGossip]:
    configuration = knobs(**{"groups": None, "repetition": REPETITION} | changes)
    return lambda site, sites, senders, random: SGossip(site, sites, senders, configuration, random)


# A round


def test_members_gossip_within_their_local_group() -> None:
    b = member("b", [5, 3])
    trigger(b)
    sends = [effect for _ in range(30) for effect in of_kind(fire(b, STEP), Send)]
    assert {effect.to for effect in sends} == {"a", "c"}
    assert sends[0].pdu == Rumour(0, b"\x02", counts(5, 3))


def test_the_first_with_the_local_result_multicasts_it_and_the_controller_goes_on() -> None:
    b, a = member("b", [5, 3]), member("a", [6, 2])
    for protocol in (a, b):
        trigger(protocol)
    effects = receive(b, "c", Rumour(0, b"\x05", counts(4, 2)))
    told = multicast_of(effects)
    assert told == Multicast(LocalOutcome(0, counts(4, 2)), ("a", "c"))
    assert not b.gossips_locally
    assert b.under_way
    assert GROUP_STEP not in timers(effects)
    assert timers(receive(a, "b", told.pdu)) == {GROUP_STEP}
    (gossip, timer) = fire(a, GROUP_STEP)
    assert gossip == Send("d", GroupRumour(0, ONE, counts(4, 2)))
    assert timer == SetTimer(GROUP_STEP, STEP_NS)


def test_the_first_controller_with_all_groups_multicasts_the_result() -> None:
    a = member("a", [6, 2])
    trigger(a)
    receive(a, "b", LocalOutcome(0, counts(4, 2)))
    effects = receive(a, "d", GroupRumour(0, TWO, counts(5, 1)))
    assert multicast_of(effects) == Multicast(Outcome(0, counts(4, 1)))
    assert of_kind(effects, Stable) == [Stable("a", 0, 4), Stable("d", 0, 1)]
    assert (a.under_way, a.rounds_finished) == (False, 1)


def test_groups_heard_of_before_the_local_result_are_kept() -> None:
    a = member("a", [6, 2])
    trigger(a)
    assert receive(a, "d", GroupRumour(0, TWO, counts(5, 1))) == []
    assert of_kind(receive(a, "b", LocalOutcome(0, counts(4, 2))), Stable) == [
        Stable("a", 0, 4),
        Stable("d", 0, 1),
    ]


def test_a_member_that_receives_the_result_declares_it_and_goes_idle() -> None:
    c = member("c", [6, 2])
    trigger(c)
    effects = receive(c, "d", Outcome(0, counts(4, 1)))
    assert of_kind(effects, Stable) == [Stable("a", 0, 4), Stable("d", 0, 1)]
    assert not c.under_way


def test_a_round_triggered_in_one_group_takes_in_the_others() -> None:
    sites = [f"s{index}" for index in range(9)]
    group = Group(sites, sites[:2], make(subgroup=3, repetition=None), Random(5))
    for turn in range(5):
        for place, site in enumerate(sites):
            group.members[site].hold_all([10 * turn + place + 1, 10 * turn + 9 - place])
        group.trigger(group.draw.choice(sites))
        group.settle()
        assert {protocol.stable for protocol in group.members.values()} == {(10 * turn + 1, 10 * turn + 1)}


@pytest.mark.parametrize("local", ["first", "controller", "own"])
def test_the_local_round_ends_by_the_first_by_a_controller_or_by_oneself(local: LocalEnd) -> None:
    a, b = member("a", [5, 3], local=local), member("b", [5, 3], local=local)
    rumour = Rumour(0, b"\x07", counts(4, 2))
    for protocol in (a, b):
        trigger(protocol)
    assert bool(of_kind(receive(b, "c", rumour), Multicast)) == (local == "first")
    assert b.gossips_locally == (local == "controller")
    assert bool(of_kind(receive(a, "c", rumour), Multicast)) == (local != "own")
    assert a.gossips_as_controller


def test_a_member_that_stops_by_itself_answers_those_that_go_on() -> None:
    b = member("b", [5, 3], local="own")
    trigger(b)
    receive(b, "c", Rumour(0, b"\x05", counts(4, 2)))
    late = Rumour(0, b"\x01", counts(6, 6))
    assert receive(b, "a", late, STEP_NS - 1) == []
    assert receive(b, "a", late, STEP_NS) == [Send("a", LocalOutcome(0, counts(4, 2)))]
    assert receive(b, "a", late, STEP_NS + 1) == []


def test_groups_are_made_of_consecutive_members_unless_given() -> None:
    c = member("c", [1, 1], groups=None, subgroup=2)
    trigger(c)
    assert {effect.to for _ in range(20) for effect in of_kind(fire(c, STEP), Send)} == {"d"}
    assert c.controls
    assert not member("d", [1, 1], groups=None, subgroup=2).controls


def test_error_detection_finds_how_far_anyone_has_seen() -> None:
    a = member("a", [5, 3], objective=Objective.GREATEST)
    trigger(a)
    receive(a, "b", Rumour(0, b"\x06", counts(7, 2)))
    effects = receive(a, "d", GroupRumour(0, TWO, counts(6, 9)))
    assert of_kind(effects, Missing) == [Missing("a", 5, 2), Missing("d", 3, 6)]


def test_a_late_result_is_declared_and_ends_no_later_round() -> None:
    b = member("b", [5, 3])
    receive(b, "a", Rumour(4, b"\x01", counts(4, 4)))
    assert receive(b, "d", Outcome(3, counts(2, 1))) == [Stable("a", 0, 2), Stable("d", 0, 1)]
    assert b.gossips_locally
    assert of_kind(fire(b, STEP), Send)[0].pdu.round == 4


def test_what_was_heard_of_groups_in_an_earlier_round_is_forgotten() -> None:
    a = member("a", [5, 3])
    trigger(a)
    receive(a, "b", LocalOutcome(0, counts(4, 2)))
    receive(a, "b", Rumour(3, b"\x06", counts(4, 4)))
    assert a.gossips_as_controller
    assert a.rounds_finished == 0
    assert of_kind(fire(a, GROUP_STEP), Send) == [Send("d", GroupRumour(3, ONE, counts(4, 3)))]


def test_who_suspects_everyone_else_is_done_with_a_round_as_it_enters_it() -> None:
    later: list[tuple[str, Pdu]] = [
        ("b", Rumour(4, b"\x02", counts(4, 4))),
        ("b", LocalOutcome(4, counts(4, 4))),
        ("d", GroupRumour(4, TWO, counts(4, 4))),
    ]
    for sender, pdu in later:
        a = member("a", [5, 3])
        for other in SITES[1:]:
            a.handle(0, Suspected(other))
        told = [effect.pdu for effect in of_kind(receive(a, sender, pdu), Multicast)]
        assert told[-1] == Outcome(4, counts(5, 3), ONE + ONE)
        assert (a.under_way, a.rounds_finished, a.ignored) == (False, 1, 0)


# Crashes


def test_the_next_live_member_takes_the_place_of_a_controller() -> None:
    b = member("b", [5, 3], repetition=REPETITION)
    trigger(b)
    receive(b, "c", LocalOutcome(0, counts(4, 2)))
    assert not b.gossips_as_controller
    assert timers(b.handle(0, Suspected("a"))) == {GROUP_STEP}
    assert of_kind(fire(b, GROUP_STEP), Send) == [Send("d", GroupRumour(0, ONE, counts(4, 2)))]


def test_controllers_gossip_to_a_controllers_successor() -> None:
    a = member("a", [5, 3])
    trigger(a)
    receive(a, "b", LocalOutcome(0, counts(4, 2)))
    a.handle(0, Suspected("d"))
    assert of_kind(fire(a, GROUP_STEP), Send) == [Send("e", GroupRumour(0, ONE, counts(4, 2)))]
    a.handle(0, Restored("d"))
    assert of_kind(fire(a, GROUP_STEP), Send) == [Send("d", GroupRumour(0, ONE, counts(4, 2)))]


def test_a_group_of_which_all_are_suspected_is_not_waited_for() -> None:
    a = member("a", [5, 3])
    trigger(a)
    receive(a, "b", LocalOutcome(0, counts(4, 2)))
    assert a.handle(0, Suspected("d")) == []
    effects = a.handle(0, Suspected("e"))
    assert multicast_of(effects) == Multicast(Outcome(0, counts(4, 2), ONE + b"\x00"))


def test_who_is_gossiped_to_as_a_controller_acts_as_one() -> None:
    e = member("e", [5, 3])
    trigger(e)
    receive(e, "a", GroupRumour(0, ONE, counts(4, 2)))
    receive(e, "d", LocalOutcome(0, counts(3, 3)))
    assert (e.stable, e.rounds_finished) == ((3, 2), 1)


def test_a_controller_that_covers_all_live_groups_finishes_before_it_learns_more() -> None:
    b = member("b", [5, 3], repetition=REPETITION)
    trigger(b)
    receive(b, "a", LocalOutcome(0, counts(4, 2)))
    for other in GROUPS[1]:
        b.handle(0, Suspected(other))
    assert b.rounds_finished == 0
    effects = receive(b, "a", GroupRumour(0, TWO, counts(1, 1)))
    assert multicast_of(effects) == Multicast(Outcome(0, counts(4, 2), ONE + b"\x00"))
    assert (b.stable, b.rounds_finished) == ((4, 2), 1)


def test_more_than_one_controller_of_a_group_gossips() -> None:
    b = member("b", [5, 3], controllers=2)
    trigger(b)
    receive(b, "a", LocalOutcome(0, counts(4, 2)))
    sent = {effect.to for _ in range(40) for effect in of_kind(fire(b, GROUP_STEP), Send)}
    assert sent == {"a", "d", "e"}


def test_completion_is_counted_by_groups_and_not_by_controllers() -> None:
    a = member("a", [5, 3], controllers=2)
    trigger(a)
    receive(a, "b", LocalOutcome(0, counts(4, 2)))
    receive(a, "e", GroupRumour(0, TWO, counts(4, 4)))
    assert a.rounds_finished == 1


def test_a_result_names_the_groups_that_it_covers_wholly_unless_it_does_all() -> None:
    a = member("a", [5, 3])
    trigger(a)
    receive(a, "b", LocalOutcome(0, counts(4, 2), b"\x03"))
    gossip = of_kind(fire(a, GROUP_STEP), Send)[0].pdu
    assert gossip == GroupRumour(0, ONE, counts(4, 2), ONE)
    effects = receive(a, "d", GroupRumour(0, TWO, counts(5, 1)))
    assert multicast_of(effects) == Multicast(Outcome(0, counts(4, 1), BOTH + ONE))
    d = member("d", [5, 5])
    trigger(d)
    receive(d, "e", LocalOutcome(0, counts(5, 1)))
    assert multicast_of(receive(d, "a", gossip)) == Multicast(Outcome(0, counts(4, 1), BOTH + ONE))


# Loss


def test_a_member_that_waits_reminds_the_controller_at_growing_pauses() -> None:
    b = member("b", [5, 3], repetition=REPETITION)
    trigger(b)
    assert timers(receive(b, "c", LocalOutcome(0, counts(4, 2)))) == {REMIND}
    waits = []
    for _ in range(5):
        reminder, timer = fire(b, REMIND)
        assert reminder == Send("a", LocalOutcome(0, counts(4, 2)))
        assert isinstance(timer, SetTimer)
        waits.append(timer.after_ns)
    assert all(2**k * STEP_NS <= wait < 2 ** (k + 1) * STEP_NS for k, wait in enumerate(waits[:3], start=1))
    assert all(8 * STEP_NS <= wait < 16 * STEP_NS for wait in waits[3:])


def test_a_reminder_gives_the_controller_what_it_lacks_or_gets_the_result() -> None:
    a, reminder = member("a", [5, 3], repetition=REPETITION), LocalOutcome(0, counts(4, 2))
    assert timers(receive(a, "b", reminder)) == {STEP, GROUP_STEP}
    receive(a, "d", GroupRumour(0, TWO, counts(5, 1)))
    assert receive(a, "b", reminder, STEP_NS) == [Send("b", Outcome(0, counts(4, 1), repeated=True))]


def test_a_member_that_may_not_be_covered_asks_again_once() -> None:
    b = member("b", [5, 3], repetition=REPETITION)
    trigger(b)
    receive(b, "d", Outcome(0, counts(1, 1), BOTH + ONE))
    assert b.under_way
    receive(b, "d", Outcome(1, counts(1, 1), BOTH + ONE))
    assert not b.under_way
    trigger(b)
    receive(b, "a", LocalOutcome(2, counts(1, 1), b"\x03"))
    receive(b, "d", Outcome(2, counts(1, 1), BOTH + ONE))
    assert not b.under_way


def test_a_member_whose_group_is_not_covered_asks_until_it_is() -> None:
    b = member("b", [5, 3], repetition=REPETITION)
    trigger(b)
    for number in range(5):
        receive(b, "a", LocalOutcome(number, counts(1, 1)))
        receive(b, "d", Outcome(number, counts(1, 1), TWO + b"\x00"))
        assert b.under_way
    receive(b, "d", Outcome(5, counts(1, 1)))
    assert not b.under_way


def test_a_member_asks_once_more_also_after_its_group_was_not_covered() -> None:
    b = member("b", [5, 3], repetition=REPETITION)
    trigger(b)
    receive(b, "d", Outcome(0, counts(1, 1), TWO + b"\x00"))
    receive(b, "d", Outcome(1, counts(1, 1), BOTH + ONE))
    assert b.under_way
    receive(b, "d", Outcome(2, counts(1, 1), BOTH + ONE))
    assert not b.under_way


# Nonsense


NONSENSE: list[tuple[str, str, Pdu]] = [
    ("a gossip of another group", "d", Rumour(0, b"\x02", counts(1, 1))),
    ("a gossip with counts too few", "b", Rumour(0, b"\x02", counts(1))),
    ("a gossip with a bit of no member", "b", Rumour(0, b"\x0a", counts(1, 1))),
    ("a gossip with bits too many", "b", Rumour(0, b"\x02\x00", counts(1, 1))),
    ("a gossip from a stranger", "x", Rumour(0, b"\x02", counts(1, 1))),
    ("a gossip of a round without end", "b", Rumour(FIRST_LIMIT, b"\x02", counts(1, 1))),
    ("a local result of another group", "d", LocalOutcome(0, counts(1, 1))),
    ("a local result too short", "b", LocalOutcome(0, counts(1))),
    ("a local result with broken bits", "b", LocalOutcome(0, counts(1, 1), b"12")),
    ("a controller's gossip with counts too few", "d", GroupRumour(0, TWO, counts(1))),
    ("a controller's gossip with a bit of no member", "d", GroupRumour(0, b"\x06", counts(1, 1))),
    ("a controller's gossip with partial nobodies", "d", GroupRumour(0, TWO, counts(1, 1), b"\x08")),
    ("a controller's gossip with broken bits", "d", GroupRumour(0, b"\x02\x00", counts(1, 1))),
    ("a controller's gossip from a stranger", "x", GroupRumour(0, TWO, counts(1, 1))),
    ("a controller's gossip of a round without end", "d", GroupRumour(FIRST_LIMIT, TWO, counts(1, 1))),
    ("a result too short", "d", Outcome(0, counts(1))),
    ("a result with a negative count", "d", Outcome(0, counts(1, -1))),
    ("a result with broken bits", "d", Outcome(0, counts(1, 1), b"1")),
    ("a result from ourselves", "a", Outcome(0, counts(1, 1))),
    ("a PDU of another protocol", "b", Pdu()),
]


@pytest.mark.parametrize(("sender", "pdu"), [row[1:] for row in NONSENSE], ids=[row[0] for row in NONSENSE])
def test_nonsense_is_counted_and_changes_nothing(sender: str, pdu: Pdu) -> None:
    a = member("a", [2, 2])
    trigger(a)
    assert receive(a, sender, pdu) == []
    assert a.ignored == 1
    receive(a, "b", Rumour(0, b"\x06", counts(1, 1)))
    receive(a, "d", GroupRumour(0, TWO, counts(2, 2)))
    assert (a.stable, a.rounds_finished) == ((1, 1), 1)


def test_a_liar_cannot_make_us_declare_what_we_do_not_hold() -> None:
    a = member("a", [2, 2])
    trigger(a)
    receive(a, "b", LocalOutcome(0, counts(9, 9)))
    receive(a, "d", GroupRumour(0, BOTH, counts(9, 1)))
    assert a.stable == (2, 1)


def test_what_belongs_to_another_view_is_passed_over_but_is_not_garbage() -> None:
    a = member("a", [5, 3], view=7)
    trigger(a)
    strangers: list[Pdu] = [
        Rumour(0, b"\x06", counts(1, 1), 8),
        LocalOutcome(0, counts(1, 1), b"", 8),
        GroupRumour(0, BOTH, counts(1, 1), b"", 8),
        Outcome(0, counts(1, 1), b"", 8),
    ]
    for pdu in strangers:
        assert receive(a, "b", pdu) == []
    assert (a.ignored, a.stable, a.gossips_locally) == (0, (0, 0), True)
    local = multicast_of(receive(a, "b", Rumour(0, b"\x06", counts(4, 4), 7))).pdu
    assert isinstance(local, LocalOutcome)
    assert local.view == 7
    assert of_kind(fire(a, GROUP_STEP), Send)[0].pdu.view == 7


def test_pdus_cross_the_wire() -> None:
    codec = Codec(PDUS)
    for pdu in (LocalOutcome(7, counts(1, 2), b"\x05", 3), GroupRumour(7, TWO, counts(3, 4), ONE, 9)):
        packet = codec.decode(codec.encode(pdu))
        assert isinstance(packet, Packet)
        assert packet.pdu == pdu


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: knobs(step_ns=0),
        lambda: knobs(subset=0),
        lambda: knobs(subgroup=0),
        lambda: knobs(controllers=0),
        lambda: knobs(local="never"),
        lambda: member("a", [1, 1], groups=(("a", "b"), ("d", "e"))),
        lambda: member("a", [1, 1], groups=(("a", "b", "c"), ("c", "d", "e"))),
        lambda: member("a", [1, 1], groups=(SITES, ())),
        lambda: member("a", [1, 1], groups=(SITES, ("x",))),
    ],
)
def test_misuse_is_refused(misuse: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        misuse()


# Random runs


FORMS: list[dict[str, Any]] = [
    {"subgroup": 1},
    {"subgroup": 2, "controllers": 2},
    {"subgroup": 3},
    {"subgroup": 3, "subset": 2},
    {"subgroup": 2, "local": "controller"},
    {"subgroup": 3, "local": "own"},
    {"subgroup": 9},
]


@given(st.integers(0, 1 << 32), st.sampled_from(FORMS))
@settings(max_examples=400)
def test_stability_is_safe_in_turmoil_and_found_after_it(seed: int, form: dict[str, Any]) -> None:
    survive(make(**form), seed, most_members=8)
