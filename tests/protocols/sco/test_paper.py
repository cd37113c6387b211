"""The claims and worked examples of Tachikawa and Takizawa, and the faults of the printed procedure."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from antiphon.core.effects import Deliver
from antiphon.core.ids import MessageId, Site
from antiphon.protocols.sco import LEVELS, PROMISES, Level, Sco
from antiphon.protocols.sco.levels import IMPLIED
from antiphon.protocols.sco.pdus import Control, Data
from tests.protocols.harness.sco_group import Group
from tests.protocols.harness.sco_printed import FAULTS, Printed, printed
from tests.protocols.harness.sco_swarm import Case, Drive, draw_case

# Figure 4


def causality_queue(group: Group, name: str) -> list[str]:
    """All that was ever put into the queue; messages to one destination are fully accepted at once."""
    gone = [effect for effect in group.effects[name] if isinstance(effect, Deliver)]
    return [f"{effect.sender}{effect.number + 1}" for effect in gone] + [
        f"{batch.sender.site}{batch.number + 1}" for batch in group.members[name]._ordering.causality
    ]


def play_figure_4(group: Group, before_c2: Callable[[], object]) -> None:
    """E1 to E4 are a to d, and their messages are counted from 1, as in the figure.

    Control messages are lost, so that the queues are what the messages alone make them.
    """
    lost = group.lost
    group.lost = lambda source, target, pdu: isinstance(pdu, Control) or lost(source, target, pdu)
    group.send("b", "a")  # b1
    group.settle()
    group.send("c", "d")  # c1: concurrent with a1
    group.send("a", "bcd")  # a1
    group.settle()
    before_c2()
    group.send("c", "abd")  # c2
    group.settle()
    group.send("a", "d")  # a2
    group.send("b", "d")  # b2
    group.settle()


def test_figure_4_the_causality_queue_has_one_of_the_stated_orders() -> None:
    group = Group(4)
    play_figure_4(group, lambda: group.send("d", "cd"))
    queue = causality_queue(group, "d")
    assert "".join(queue[:4]) in {"c1a1c2d1", "a1c1c2d1", "a1c1d1c2", "c1a1d1c2"}
    assert sorted(queue[4:]) == ["a2", "b2"]


def test_figure_4_with_a1_lost_nothing_after_it_moves_until_it_is_sent_again() -> None:
    group = Group(4)
    losing = [True]
    group.lost = lambda source, target, pdu: (
        losing[0] and (source, target) == ("a", "d") and isinstance(pdu, Data) and pdu.number == 0
    )
    play_figure_4(group, lambda: None)
    assert causality_queue(group, "d") == ["c1"]
    losing[0] = False
    group.pass_time(8)
    queue = causality_queue(group, "d")
    assert queue[:3] in (["c1", "a1", "c2"], ["a1", "c1", "c2"])
    assert sorted(queue[3:]) == ["a2", "b2"]


def test_figure_1_a_message_that_was_not_sent_to_q_s_sender_still_precedes_q() -> None:
    """t ≺ p ≺ r ≺ q, where E3, which sends q, has never seen p: acks alone would not tell."""
    group = Group(4)
    group.send("a", "bc")  # t
    group.settle()
    group.lost = lambda source, target, pdu: (
        (source, target) == ("a", "d") and isinstance(pdu, Data) and pdu.number == 1
    )
    group.send("a", "bd")  # p, lost on its way to E4
    group.settle()
    group.send("b", "c")  # r
    group.settle()
    group.send("c", "d")  # q
    group.settle()
    assert causality_queue(group, "d") == []
    group.lost = lambda *_: False
    group.pass_time(100)
    assert group.delivered("d") == ["a1", "c0"]


# Theorem 2


class Stamped(Drive):
    """A run that notes what csn each message was sent with."""

    def __init__(self, case: Case, seed: int, build: Any = Sco) -> None:
        self.stamps: dict[MessageId, dict[Site, int]] = {}
        super().__init__(case, seed, build)

    def record(self, site: Site, kind: Any, time_ns: int, *rest: Any) -> None:
        super().record(site, kind, time_ns, *rest)
        if kind == "send":
            self.stamps[MessageId(site, rest[1])] = stamp_of(self.protocols[site])


def stamp_of(protocol: Sco | Printed) -> dict[Site, int]:
    if isinstance(protocol, Printed):
        return dict(zip(protocol.members, protocol.sent[-1].csn, strict=True))
    return {peer.site: value for peer, value in protocol._state.stamps.csn.items()}


Precedence = set[tuple[MessageId, MessageId]]


def by_events(run: Stamped) -> Precedence:
    """m precedes m' if m was sent or accepted where m' was sent, and before that."""
    pasts: dict[MessageId, set[MessageId]] = {}
    known: dict[Site, set[MessageId]] = {}
    for site, kind, sender, number in run.rows:
        if sender is None or number is None:
            continue
        message, here = MessageId(sender, number), known.setdefault(site, set())
        if kind == "send":
            pasts[message] = set(here)
            here.add(message)
        elif kind == "receive":
            here |= pasts[message] | {message}
    return {(before, after) for after, past in pasts.items() for before in past}


def by_numbers(run: Stamped) -> Precedence:
    """Theorem 2's test."""
    return {
        (p, q)
        for p in run.stamps
        for q, csn in run.stamps.items()
        if (p.number < q.number if p.sender == q.sender else p.number < csn.get(p.sender, 0))
    }


def case_of(seed: int, **changes: Any) -> Case:
    case = draw_case(seed)
    case.batch, case.messages, case.spread_ms = 1, 40, 60.0
    for name, value in changes.items():
        setattr(case, name, value)
    return case


@pytest.mark.parametrize("seed", range(16))
def test_theorem_2_the_numbers_say_what_the_events_say(seed: int) -> None:
    run = Stamped(case_of(seed), seed)
    assert by_numbers(run) == by_events(run), f"Stamped(case_of({seed}), {seed})"


# Figure 2


class Watched(Drive):
    """A run in which every message's levels at every site are looked at whenever anything happens there."""

    def __init__(self, case: Case, seed: int) -> None:
        self.seen: dict[tuple[Site, Site, int], list[Level]] = {}
        super().__init__(case, seed)

    def record(self, site: Site, kind: Any, time_ns: int, *rest: Any) -> None:
        super().record(site, kind, time_ns, *rest)
        self.look(site)

    def look(self, site: Site) -> None:
        for (sender, number), destinations in self.fate.items():
            if site in destinations and (level := self.protocols[site].level(sender, number)) is not None:
                seen = self.seen.setdefault((site, sender, number), [])
                if not seen or seen[-1] != level:
                    seen.append(level)


@pytest.fixture(scope="module")
def watched() -> list[Watched]:
    runs = []
    for seed in range(6):
        case = case_of(seed, loss=0.3, reordering=0.2, members=4)
        case.knobs["observe"] = True
        runs.append(Watched(case, seed))
    return runs


def test_figure_2_every_level_implies_what_the_figure_says(watched: list[Watched]) -> None:
    for run in watched:
        for levels in run.seen.values():
            for level in levels:
                for reached in level:
                    assert reached not in IMPLIED or IMPLIED[reached] in level, (run.seed, level)


def test_figure_2_nothing_more_is_implied(watched: list[Watched]) -> None:
    """Every level is reached by some message that has reached no level but those that it implies."""
    seen = {level for run in watched for levels in run.seen.values() for level in levels}
    for level in LEVELS:
        closure = level
        for _ in LEVELS:
            for reached in closure:
                closure |= IMPLIED.get(reached, Level(0))
        assert closure in seen, f"no message was {level.name} and no more than that implies"


def test_levels_are_never_lost_and_end_in_full_acceptance(watched: list[Watched]) -> None:
    for run in watched:
        for levels in run.seen.values():
            assert all(before in after for before, after in pairwise(levels))
            assert levels[-1] == levels[-1] | Level.FULL


# The faults of the printed procedure


def fixed_case(seed: int, **changes: Any) -> Case:
    """Groups of three and four at a loss of 0.2, as the faults were found; no member sends to itself."""
    knobs = {"window": 4, "control_ns": 10_000_000, "repair_ns": 4_000_000}
    case = Case(
        members=3 + seed % 2,
        messages=50,
        spread_ms=60.0,
        loss=0.2,
        to_self=False,
        patience_ms=1500.0,
        knobs=knobs,
    )
    for name, value in changes.items():
        setattr(case, name, value)
    return case


FAULT_SEEDS = range(40)
GOOD_SEEDS = range(10)


def wrongs(case: Case, seed: int, build: Any) -> set[str]:
    """What goes wrong in a run: it blocks, breaks a promise, or theorem 2 does not hold in it."""
    run = Stamped(case, seed, build)
    promises = [promise for promise in PROMISES if promise != "stability"]
    found: set[str] = {violation.property for violation in run.broken(promises)}
    if run.missing() or run.offered:
        found.add("blocks")
    if by_numbers(run) != by_events(run):
        found.add("theorem 2")
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_the_printed_form_fails(fault: str) -> None:
    consequence = {"S1": "theorem 2", "S2": "causal", "S10 RRQ": "causal"}.get(fault, "blocks")
    runs = (wrongs(fixed_case(seed), seed, printed(fault)) for seed in FAULT_SEEDS)
    assert any(consequence in found for found in runs), FAULTS[fault]


@pytest.mark.parametrize("build", [printed(), Sco], ids=["the corrected form", "ours"])
def test_the_corrected_form_does_not(build: Any) -> None:
    for seed in GOOD_SEEDS:
        assert not wrongs(fixed_case(seed), seed, build), seed
