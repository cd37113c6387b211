"""Gossip between fakes: the paper's example and errata, loss, crashes, hostile PDUs, and random runs."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.effects import CancelTimer, Effect, Missing, Multicast, Send, SetTimer, Stable
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received, Restored, RoundTriggered, Suspected, TimerFired
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.stability.base import FIRST_LIMIT, Objective
from antiphon.protocols.stability.gossip import (
    PDUS,
    STEP,
    Gossip,
    GossipConfiguration,
    Outcome,
    Rumour,
    draw,
)
from antiphon.protocols.stability.round_trips import Repetition
from tests.protocols.harness.gossip_group import Group, survive
from tests.protocols.harness.literal_gossip import LiteralGossip

SITES = ("a", "b", "c")
STEP_NS = 100
QUIET = GossipConfiguration(repetition=None, step_ns=STEP_NS)
LASTING = GossipConfiguration(repetition=Repetition(first_ns=STEP_NS), step_ns=STEP_NS)


def counts(*numbers: int) -> bytes:
    return np.array(numbers, "<i8").tobytes()


def bits(*members: str) -> bytes:
    return sum(1 << SITES.index(member) for member in members).to_bytes(1, "little")


def member(site: str, held: Sequence[int], configuration: GossipConfiguration = QUIET) -> Gossip:
    protocol = Gossip(site, SITES, ("a", "b"), configuration, Random(1))
    protocol.hold_all(held)
    return protocol


def receive(protocol: Gossip, sender: str, pdu: Pdu, now: int = 0) -> list[Effect]:
    return protocol.handle(now, Received(sender, pdu))


def trigger(protocol: Gossip) -> list[Effect]:
    return protocol.handle(0, RoundTriggered())


def step(protocol: Gossip, now: int = 0) -> list[Effect]:
    return protocol.handle(now, TimerFired(STEP))


class Drawn(Random):
    """Draws what a figure of the text shows, and afterwards anything."""

    def __init__(self, *places: float) -> None:
        super().__init__(1)
        self._places = list(places)

    def random(self) -> float:
        return self._places.pop(0) if self._places else super().random()


def of_kind(effects: list[Effect], kind: type[Any]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def told(effects: list[Effect]) -> Rumour:
    pdu = of_kind(effects, Send)[0].pdu
    assert isinstance(pdu, Rumour)
    return pdu


def group_of(size: int, subset: int = 1, senders: int = 2) -> Group:
    sites = [f"s{index}" for index in range(size)]
    knobs = GossipConfiguration(repetition=Repetition(first_ns=STEP_NS), step_ns=STEP_NS, subset=subset)
    return Group(
        sites,
        sites[:senders],
        lambda site, all_, some, random: Gossip(site, all_, some, knobs, random),
        Random(7),
    )


# A round


def test_a_triggered_member_begins_at_a_random_moment_of_one_step() -> None:
    delays = set()
    for seed in range(20):
        protocol = Gossip("a", SITES, SITES, QUIET, Random(seed))
        (timer,) = trigger(protocol)
        assert isinstance(timer, SetTimer)
        assert 0 <= timer.after_ns < STEP_NS
        delays.add(timer.after_ns)
    assert len(delays) > 10


def test_each_step_sends_another_member_what_is_known() -> None:
    a = member("a", [5, 3])
    trigger(a)
    effects = step(a)
    assert effects[-1] == SetTimer(STEP, STEP_NS)
    assert told(effects) == Rumour(0, bits("a"), counts(5, 3))
    receive(a, "b", Rumour(0, bits("b"), counts(4, 6)))
    assert told(step(a)) == Rumour(0, bits("a", "b"), counts(4, 3))


def test_a_member_that_covers_all_declares_and_multicasts_and_goes_idle() -> None:
    a = member("a", [5, 3])
    trigger(a)
    receive(a, "b", Rumour(0, bits("b"), counts(4, 6)))
    effects = receive(a, "c", Rumour(0, bits("c"), counts(2, 9)))
    assert effects == [
        CancelTimer(STEP),
        Multicast(Outcome(0, counts(2, 3))),
        Stable("a", 0, 2),
        Stable("b", 0, 3),
    ]
    assert (a.under_way, a.rounds_finished) == (False, 1)
    assert step(a) == []


def test_a_member_that_receives_the_result_declares_it_and_goes_idle() -> None:
    b = member("b", [5, 3])
    trigger(b)
    effects = receive(b, "a", Outcome(0, counts(2, 3)))
    assert effects == [Stable("a", 0, 2), Stable("b", 0, 3), CancelTimer(STEP)]
    assert (b.under_way, b.rounds_finished, b.stable) == (False, 0, (2, 3))


def test_figure_4_4_two_of_four_members_have_the_result_after_one_step_of_subset_two() -> None:
    sites = ("A", "B", "C", "D")
    knobs = GossipConfiguration(repetition=None, subset=2)
    group = {site: Gossip(site, sites, sites, knobs, Random(1)) for site in sites}
    for place, protocol in enumerate(group.values()):
        protocol.hold_all([place + 3] * 4)
        trigger(protocol)
    gossips = {site: told(step(protocol)) for site, protocol in group.items()}
    results = {}
    for source, targets in {"A": "BC", "D": "BC", "B": "CA", "C": "BD"}.items():
        for target in targets:
            for multicast in of_kind(receive(group[target], source, gossips[source]), Multicast):
                results[target] = multicast.pdu
    assert {site for site, protocol in group.items() if protocol.stable == (3, 3, 3, 3)} == {"B", "C"}
    for site in "AD":
        receive(group[site], "B", results["B"])
    assert {protocol.stable for protocol in group.values()} == {(3, 3, 3, 3)}


@pytest.mark.parametrize("size", [40, 160])
def test_tables_4_1_and_4_2_what_a_member_processes_in_a_step_does_not_grow_with_the_group(size: int) -> None:
    group = group_of(size, subset=2)
    processed: Counter[str] = Counter()
    for site in group.sites:
        group.members[site].hold_all([1, 1])
        group.trigger(site)
    for _ in range(size):  # one step of each member; nothing is delivered, so that none stops
        group.fire_next()
    processed.update(target for _, target, _ in group.under_way)
    assert processed.total() == 2 * size
    assert max(processed.values()) <= 10


def test_a_gossip_goes_to_different_others_all_equally_likely() -> None:
    random = Random(3)
    drawn: Counter[str] = Counter()
    for _ in range(3000):
        others = draw(random.random, 2, ("a", "b", "c", "d"), 1, None)
        assert len(set(others)) == 2
        drawn.update(others)
    assert set(drawn) == {"a", "c", "d"}
    assert all(1900 < count < 2100 for count in drawn.values())


def test_a_subset_larger_than_the_group_is_the_group() -> None:
    assert sorted(draw(Random(1).random, 9, SITES, 0, None)) == ["b", "c"]
    assert draw(Random(1).random, 9, SITES, 0, [2]) == ["c"]


# Errata


def test_g1_the_literal_form_stops_with_two_members_whatever_happens() -> None:
    """All states that gossips delivered one at a time can lead to: no member ever ends the second round."""
    seen = set()
    histories: list[tuple[tuple[bool, bool], ...]] = [()]
    deepest = 0
    while histories:
        history = histories.pop()
        pair = [LiteralGossip(place, 2) for place in (0, 1)]
        for source_is_first, _ in history:
            source, target = (0, 1) if source_is_first else (1, 0)
            pair[target].receive(pair[source].gossip())
        state = tuple((one.round, tuple(one.heard)) for one in pair)
        if state in seen:
            continue
        seen.add(state)
        deepest = max(deepest, *(one.round for one in pair))
        histories += [(*history, (True, True)), (*history, (False, True))]
    assert deepest == 1


@pytest.mark.parametrize("seed", range(5))
def test_g1_the_literal_form_stops_in_its_second_round_and_ours_goes_on(seed: int) -> None:
    random, size = Random(seed), 6
    literal = [LiteralGossip(place, size) for place in range(size)]
    for _ in range(3000):
        source, target = random.sample(range(size), 2)
        literal[target].receive(literal[source].gossip())
    assert max(one.round for one in literal) == 1
    group = group_of(size)
    group.draw = random
    for turn in range(10):
        for site in group.sites:
            group.members[site].hold_all([turn + 1, turn + 1])
        group.trigger(random.choice(group.sites))
        group.settle()
        assert {protocol.stable for protocol in group.members.values()} == {(turn + 1, turn + 1)}


def test_g1_a_member_that_enters_a_round_adds_its_own_counts_and_bit() -> None:
    b = member("b", [5, 3])
    (timer,) = receive(b, "a", Rumour(0, bits("a"), counts(4, 9)))
    assert isinstance(timer, SetTimer)
    assert told(step(b)) == Rumour(0, bits("a", "b"), counts(4, 3))


def test_g3_what_is_stable_never_goes_back() -> None:
    a = member("a", [5, 5])
    receive(a, "b", Outcome(0, counts(4, 4)))
    assert receive(a, "b", Outcome(1, counts(2, 5))) == [Stable("b", 4, 1)]
    assert a.stable == (4, 5)


def test_g3_the_result_that_is_sent_includes_what_was_known_to_be_stable() -> None:
    a = member("a", [5, 5])
    a.begin([5, 5], [4, 0])
    trigger(a)
    effects = receive(a, "b", Rumour(0, bits("b", "c"), counts(2, 3)))
    assert of_kind(effects, Multicast) == [Multicast(Outcome(0, counts(4, 3)))]
    assert of_kind(effects, Stable) == [Stable("b", 0, 3)]


def test_a_late_result_is_declared_and_ends_no_later_round() -> None:
    a = member("a", [5, 3])
    receive(a, "b", Rumour(4, bits("b"), counts(4, 4)))
    assert receive(a, "b", Outcome(3, counts(2, 1))) == [Stable("a", 0, 2), Stable("b", 0, 1)]
    assert told(step(a)).round == 4


def test_g4_any_later_round_is_entered() -> None:
    a = member("a", [5, 3])
    trigger(a)
    assert receive(a, "b", Rumour(7, bits("b"), counts(4, 4))) == []
    assert told(step(a)) == Rumour(7, bits("a", "b"), counts(4, 3))


def test_g7_a_trigger_during_a_round_makes_another_follow() -> None:
    a = member("a", [5, 3])
    trigger(a)
    assert trigger(a) == []
    receive(a, "b", Rumour(0, bits("b"), counts(4, 4)))
    effects = receive(a, "c", Rumour(0, bits("c"), counts(4, 4)))
    assert isinstance(effects[-1], SetTimer)
    assert a.under_way
    assert told(step(a)).round == 1


def test_g8_suspecting_the_last_one_ends_the_round() -> None:
    a = member("a", [5, 3])
    trigger(a)
    receive(a, "b", Rumour(0, bits("b"), counts(4, 4)))
    effects = a.handle(0, Suspected("c"))
    assert Multicast(Outcome(0, counts(4, 3), bits("a", "b"))) in effects
    assert a.stable == (4, 3)


# Loss


def test_one_that_missed_the_result_is_answered_once_a_step_but_not_at_once() -> None:
    a = member("a", [5, 3], LASTING)
    trigger(a)
    receive(a, "b", Rumour(0, bits("b", "c"), counts(4, 4)))
    late = Rumour(0, bits("c"), counts(5, 5))
    assert receive(a, "c", late, STEP_NS - 1) == []
    assert receive(a, "c", late, STEP_NS) == [Send("c", Outcome(0, counts(4, 3)))]
    assert receive(a, "c", late, STEP_NS + 1) == []
    assert receive(a, "b", late, STEP_NS + 2) == [Send("b", Outcome(0, counts(4, 3)))]
    assert len(receive(a, "c", late, 2 * STEP_NS)) == 1


def test_no_member_is_answered_where_nothing_is_lost() -> None:
    a = member("a", [5, 3])
    receive(a, "b", Outcome(3, counts(4, 3)))
    assert receive(a, "c", Rumour(3, bits("c"), counts(5, 5)), 5 * STEP_NS) == []


def test_a_member_a_round_behind_asks_again() -> None:
    a = member("a", [5, 3], LASTING)
    trigger(a)
    receive(a, "b", Outcome(4, counts(1, 1)))
    assert a.under_way
    assert told(step(a)).round == 5


def test_a_member_that_the_result_does_not_cover_asks_again() -> None:
    a = member("a", [5, 3], LASTING)
    trigger(a)
    receive(a, "b", Outcome(0, counts(1, 1), bits("b", "c")))
    assert told(step(a)).round == 1
    receive(a, "b", Outcome(1, counts(1, 1), bits("a", "b")))
    assert not a.under_way


@pytest.mark.parametrize("triggers", [1, 2])
def test_what_was_asked_for_is_not_forgotten_on_entering_a_later_round(triggers: int) -> None:
    a = member("a", [5, 3], LASTING)
    for _ in range(triggers):
        trigger(a)
    receive(a, "b", Rumour(3, bits("b"), counts(4, 4)))
    receive(a, "b", Outcome(3, counts(1, 1), bits("b", "c")))
    assert told(step(a)).round == 4
    receive(a, "b", Outcome(4, counts(1, 1)))
    assert not a.under_way


# Crashes


def test_the_suspected_are_not_gossiped_to_until_they_are_back() -> None:
    a = member("a", [5, 3])
    a.handle(0, Suspected("b"))
    trigger(a)
    assert {effect.to for _ in range(20) for effect in of_kind(step(a), Send)} == {"c"}
    a.handle(0, Restored("b"))
    assert {effect.to for _ in range(40) for effect in of_kind(step(a), Send)} == {"b", "c"}
    receive(a, "c", Rumour(0, bits("c"), counts(1, 1)))
    assert a.under_way


def test_only_other_members_are_suspected_and_each_once() -> None:
    a = member("a", [5, 3])
    trigger(a)
    for site in ("x", "a", "b", "b"):
        assert a.handle(0, Suspected(site)) == []
    assert a.under_way
    assert {effect.to for effect in of_kind(step(a), Send)} == {"c"}


def test_a_round_is_over_for_a_member_whose_first_row_covers_all() -> None:
    b = member("b", [5, 3])
    receive(b, "a", Rumour(0, bits("a", "b", "c"), counts(4, 4)))
    assert (b.stable, b.rounds_finished, b.ignored) == ((4, 3), 1, 0)


def test_a_member_alone_is_done_at_once() -> None:
    a = member("a", [5, 3])
    for other in ("b", "c"):
        a.handle(0, Suspected(other))
    assert of_kind(trigger(a), Stable) == [Stable("a", 0, 5), Stable("b", 0, 3)]
    assert not a.under_way


def test_what_others_found_without_us_is_stable_here_as_far_as_we_hold_it() -> None:
    a = member("a", [5, 3])
    assert receive(a, "b", Outcome(0, counts(9, 2), bits("b", "c"))) == [Stable("a", 0, 5), Stable("b", 0, 2)]


def test_first_of_the_unsuspected_is_where_a_round_is_best_triggered() -> None:
    a = member("b", [1, 1])
    assert a.coordinator == "a"
    a.handle(0, Suspected("a"))
    assert a.coordinator == "b"


# Other forms


def test_error_detection_finds_how_far_anyone_has_seen() -> None:
    a = member("a", [5, 3], GossipConfiguration(repetition=None, objective=Objective.GREATEST))
    trigger(a)
    effects = receive(a, "b", Rumour(0, bits("b", "c"), counts(7, 2)))
    assert of_kind(effects, Missing) == [Missing("a", 5, 2)]
    assert a.stable == (7, 3)


def test_without_addresses_gossips_are_multicast_some_hops_far() -> None:
    a = member("a", [5, 3], GossipConfiguration(repetition=LASTING.repetition, hops=(1, 3), step_ns=STEP_NS))
    trigger(a)
    distances = set()
    for _ in range(40):
        multicast, timer = step(a)
        assert isinstance(multicast, Multicast)
        assert isinstance(timer, SetTimer)
        assert multicast.to is None
        distances.add(multicast.hops)
    assert distances == {1, 2, 3}
    receive(a, "b", Rumour(0, bits("b", "c"), counts(7, 2)))
    (answer,) = receive(a, "c", Rumour(0, bits("c"), counts(7, 2)), 3 * STEP_NS)
    assert isinstance(answer, Multicast)
    assert answer.hops in {1, 2, 3}
    assert receive(a, "b", Rumour(0, bits("b"), counts(7, 2)), 3 * STEP_NS) == []


ADAPTIVE = GossipConfiguration(repetition=None, step_ns=STEP_NS, search=(10, 1000))


def end_round(protocol: Gossip, now: int) -> None:
    number = told(step(protocol)).round
    receive(protocol, "b", Outcome(number, counts(1, 1)), now)
    assert not protocol.under_way


def test_the_first_member_tries_steps_and_sends_them_with_its_gossips() -> None:
    a = member("a", [5, 3], ADAPTIVE)
    tried = []
    for turn in range(60):
        now = 10_000 * turn
        a.handle(now, RoundTriggered())
        effects = step(a)
        assert told(effects).step_ns == effects[-1].after_ns  # type: ignore[union-attr]
        tried.append(told(effects).step_ns)
        end_round(a, now + 1000 + abs(tried[-1] - 300))
    assert min(tried) >= 10
    assert max(tried) <= 1000
    assert len(set(tried)) > 4
    assert tried[-1] == pytest.approx(300, rel=0.3)


def test_the_others_use_the_step_that_they_receive_within_bounds() -> None:
    b = member("b", [5, 3], ADAPTIVE)
    assert b.handle(0, RoundTriggered())
    assert told(step(b)).step_ns == STEP_NS
    for number, (said, used) in enumerate(
        [(777, 777), (9, 777), (1001, 777), (0, 777), (10, 10), (1000, 1000)], start=1
    ):
        receive(b, "a", Rumour(number, bits("a"), counts(4, 4), 0, said))
        assert step(b)[-1] == SetTimer(STEP, used)
    assert of_kind(receive(member("b", [5, 3]), "a", Rumour(1, bits("a"), counts(4, 4), 0, 77)), SetTimer)


def test_a_round_begun_elsewhere_does_not_teach_the_first_member() -> None:
    a = member("a", [5, 3], ADAPTIVE)
    for number in range(50):
        receive(a, "b", Rumour(number, bits("b"), counts(4, 4), 0, 500), 10_000 * number)
        end_round(a, 10_000 * number + 9)
    assert told_first_step(a) == told_first_step(member("a", [5, 3], ADAPTIVE))


def told_first_step(protocol: Gossip) -> int:
    trigger(protocol)
    return told(step(protocol)).step_ns


def test_what_belongs_to_another_view_is_passed_over_but_is_not_garbage() -> None:
    a = member("a", [5, 3], GossipConfiguration(repetition=None, view=7))
    trigger(a)
    assert told(step(a)).view == 7
    for pdu in (Rumour(0, bits("b", "c"), counts(1, 1)), Rumour(3, bits("b"), counts(1, 1), 8)):
        assert receive(a, "b", pdu) == []
    assert receive(a, "b", Outcome(3, counts(1, 1), b"", 8)) == []
    assert (a.ignored, a.stable, told(step(a)).round) == (0, (0, 0), 0)
    assert of_kind(receive(a, "b", Rumour(0, bits("b", "c"), counts(1, 1), 7)), Multicast)


# Nonsense


NONSENSE: list[tuple[str, str, Pdu]] = [
    ("counts too few", "b", Rumour(0, bits("b"), counts(1))),
    ("counts of broken bytes", "b", Rumour(0, bits("b"), b"123")),
    ("counts too few, of a later round", "b", Rumour(4, bits("b"), counts(1))),
    ("bits too many", "b", Rumour(0, b"\x02\x00", counts(1, 1))),
    ("bits too many, of a later round", "b", Rumour(4, b"\x02\x00", counts(1, 1))),
    ("a bit of no member", "b", Rumour(0, b"\x12", counts(1, 1))),
    ("a bit of no member, of a later round", "b", Rumour(4, b"\x12", counts(1, 1))),
    ("a gossip from a stranger", "x", Rumour(0, bits("b"), counts(1, 1))),
    ("a gossip from ourselves", "a", Rumour(4, bits("b"), counts(1, 1))),
    ("a round without end", "b", Rumour(FIRST_LIMIT, bits("b"), counts(1, 1))),
    ("a result too short", "b", Outcome(0, counts(1))),
    ("a result with a negative count", "b", Outcome(0, counts(1, -1))),
    ("a result with broken bits", "b", Outcome(0, counts(1, 1), b"12")),
    ("a result from a stranger", "x", Outcome(0, counts(1, 1))),
    ("a result of a round without end", "b", Outcome(FIRST_LIMIT, counts(1, 1))),
    ("a PDU of another protocol", "b", Pdu()),
]


@pytest.mark.parametrize(("sender", "pdu"), [row[1:] for row in NONSENSE], ids=[row[0] for row in NONSENSE])
def test_nonsense_is_counted_and_changes_nothing(sender: str, pdu: Pdu) -> None:
    a = member("a", [2, 2])
    trigger(a)
    assert receive(a, sender, pdu) == []
    assert a.ignored == 1
    receive(a, "b", Rumour(0, bits("b", "c"), counts(1, 1)))
    assert (a.stable, a.rounds_finished) == ((1, 1), 1)


def test_a_liar_cannot_make_us_declare_what_we_do_not_hold() -> None:
    a = member("a", [2, 2])
    trigger(a)
    receive(a, "b", Rumour(0, bits("a", "b", "c"), counts(9, -9)))
    assert a.stable == (2, 0)


def test_pdus_cross_the_wire() -> None:
    codec = Codec(PDUS)
    for pdu in (Rumour(7, b"\x81\x01", counts(1, 2), 3), Outcome(7, counts(3, 4), b"\x05", 9)):
        packet = codec.decode(codec.encode(pdu))
        assert isinstance(packet, Packet)
        assert packet.pdu == pdu


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: GossipConfiguration(step_ns=0),
        lambda: GossipConfiguration(subset=0),
        lambda: GossipConfiguration(hops=(0, 2)),
        lambda: GossipConfiguration(hops=(3, 2)),
        lambda: GossipConfiguration(search=(0, 2)),
        lambda: GossipConfiguration(search=(2, 2)),
        lambda: Gossip("x", SITES, SITES, QUIET, Random(1)),
    ],
)
def test_misuse_is_refused(misuse: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        misuse()


# Random runs


class PlainGossip:
    """The corrected pseudo-code, with sets and lists and no shortcut."""

    def __init__(self, own: int, size: int, held: list[int]) -> None:
        self.own, self.size, self.held = own, size, held
        self.enter(0, held, set())
        self.results: list[list[int]] = []

    def enter(self, number: int, least: list[int], heard: set[int]) -> None:
        self.round, self.least, self.heard = number, least, heard | {self.own}

    def receive(self, number: int, least: list[int], heard: set[int]) -> None:
        if number == self.round:
            self.least, self.heard = list(map(min, self.least, least)), self.heard | heard
        elif number > self.round:
            self.enter(number, list(map(min, self.held, least)), heard)
        if len(self.heard) == self.size:
            self.results.append(self.least)
            self.enter(self.round + 1, self.held, set())


@given(st.integers(0, 1 << 32), st.integers(3, 9))
@settings(max_examples=100)
def test_the_shortcuts_change_nothing(seed: int, size: int) -> None:
    """Against the plain form: the same gossips, arriving whenever and more than once."""
    random = Random(seed)
    sites = tuple(f"s{place}" for place in range(size))
    held = [[random.randint(0, 9) for _ in range(3)] for _ in sites]
    group = [Gossip(site, sites, sites[:3], QUIET, random) for site in sites]
    plain = [PlainGossip(place, size, held[place]) for place in range(size)]
    for protocol, row in zip(group, held, strict=True):
        protocol.hold_all(row)
        trigger(protocol)
    mail: list[tuple[int, Rumour, tuple[int, list[int], set[int]]]] = []
    for _ in range(12 * size):
        source, target = random.sample(range(size), 2)
        model = plain[source]
        mail.append((source, told(step(group[source])), (model.round, model.least, set(model.heard))))
        source, rumour, message = random.choice(mail)
        if source == target:
            continue
        plain[target].receive(*message)
        for outcome in of_kind(receive(group[target], sites[source], rumour), Multicast):
            assert list(np.frombuffer(outcome.pdu.stable, "<i8")) == plain[target].results[-1]
        if not group[target].under_way:
            trigger(group[target])  # in the plain form each round is followed by another
        rumour, model = told(step(group[target])), plain[target]
        heard = {place for place in range(size) if int.from_bytes(rumour.heard, "little") >> place & 1}
        least = np.frombuffer(rumour.least, "<i8").tolist()
        assert (rumour.round, least, heard) == (model.round, model.least, model.heard)


@given(st.integers(0, 1 << 32), st.sampled_from([1, 2, 5]))
@settings(max_examples=300)
def test_stability_is_safe_in_turmoil_and_found_after_it(seed: int, subset: int) -> None:
    knobs = GossipConfiguration(step_ns=STEP_NS, subset=subset, repetition=LASTING.repetition)
    survive(lambda site, sites, senders, random: Gossip(site, sites, senders, knobs, random), seed)


# Figure 4.4

FOUR = ("A", "B", "C", "D")
SUBSETS = {"A": ("B", "C"), "B": ("C", "D"), "C": ("B", "A"), "D": ("B", "C")}
"""The members that each gossips to in the first step; the figure's arrows are not in the text."""


def draws(site: str) -> Drawn:
    """What makes `draw` choose the subset of the figure, after the moment of the first gossip."""
    others = [other for other in FOUR if other != site]
    return Drawn(0.0, *((others.index(other) + 0.5) / len(others) for other in SUBSETS[site]))


def test_figure_4_4_four_members_and_a_subset_of_two_take_two_steps() -> None:
    """After the first step B and C have the stability array, A and D partial ones; then A hears from D."""
    knobs = GossipConfiguration(repetition=None, step_ns=STEP_NS, subset=2)
    group = {site: Gossip(site, FOUR, FOUR, knobs, draws(site)) for site in FOUR}
    for rank, protocol in enumerate(group.values()):
        protocol.hold_all([5 + rank, 5, 6, 9 - rank])
        trigger(protocol)
    gossips = [(site, effect) for site in FOUR for effect in of_kind(step(group[site]), Send)]
    assert {site: tuple(each.to for by, each in gossips if by == site) for site in FOUR} == SUBSETS
    finished: dict[str, list[Any]] = {}
    for site, gossip in gossips:
        finished[gossip.to] = finished.get(gossip.to) or of_kind(
            receive(group[gossip.to], site, gossip.pdu), Multicast
        )
    assert {site for site, ended in finished.items() if ended} == {"B", "C"}
    assert group["B"].stable == group["C"].stable == (5, 5, 6, 6)
    assert group["A"].stable == group["D"].stable == (0, 0, 0, 0)
    ((second),) = [told(step(group["D"]))]
    receive(group["A"], "D", second)
    assert group["A"].stable == (5, 5, 6, 6)
    assert group["A"].rounds_finished == 1
