"""SCO in the swarm: many seeds, each with its own group, network and faults; first safety, then progress.

`ANTIPHON_SWARM_SEEDS` sets how many seeds are tried. A failure names the line that replays it.
"""

import os

import pytest

from antiphon.core.recording import Property
from antiphon.protocols.sco import CAUSAL_PROMISES
from antiphon.sim.scenarios.sco import SCENARIO
from tests.protocols.harness.sco_swarm import Case, Drive, draw_case, draw_faults

SEEDS = int(os.environ.get("ANTIPHON_SWARM_SEEDS", "40"))
SEEDS_PER_TEST = 20


def judge(case: Case, seed: int, promises: tuple[Property, ...] | None = None) -> Drive:
    """Everything promised holds, everyone takes part in the end, and everything has come."""
    replay = f"Drive({case!r}, {seed})"
    run = Drive(case, seed)
    broken = run.broken() if promises is None else run.broken(promises)
    assert not broken, f"{broken[0].explanation}\n{replay}"
    assert not run.away, f"{run.away} do not take part\n{replay}"
    assert not run.offered, f"not everything is admitted\n{replay}"
    if promises is None:
        assert not run.missing(), f"{run.missing()[:3]} have not come\n{replay}"
    return run


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_groups_that_stay_keep_every_promise(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        run = judge(draw_case(seed), seed)
        assert not run.troubled
        assert run.figure("ignored") == 0


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_members_that_crash_leave_and_return_break_no_promise(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        run = judge(draw_faults(seed), seed)
        assert run.figure("ignored") == 0


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_splits_break_none_either(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        case = draw_faults(seed)
        case.partitions = 2
        judge(case, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_groups_around_the_size_from_which_on_they_gather_break_none(seed: int) -> None:
    case = draw_faults(seed)
    case.members = 16 + 2 * seed
    case.patience_ms = 20_000.0
    case.knobs |= {"gather_from": 16, "window": 20, "buffers": 1024}
    assert judge(case, seed).figure("heartbeats")


FOUND = {
    "a newcomer was taken to be known to a member that held its earlier life to be gone": (4056, 1),
    "one that had gone on was not told what a newcomer held": (6734, 2),
}
"""Seeds that once went wrong, with the number of splits."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_stays_mended(name: str) -> None:
    seed, partitions = FOUND[name]
    case = draw_faults(seed)
    case.partitions = partitions
    judge(case, seed)


def test_a_life_that_was_forgotten_is_not_remembered_again() -> None:
    """A member that came and went all the time stood in a copy's table twice, and no member could read it."""
    knobs = {
        "members": 3, "messages": 49, "size": 10, "rate": 98.0, "delay_ms": 5.0, "loss": 0.1,
        "duplication": 0.1, "reordering": 0.3, "churn": 1, "calm_ms": 30.0, "away_ms": 20.0,
        "destinations": 2, "varied": True, "own_share": 0.1, "mixed": True, "window": 64,
        "buffers": 4096, "vectors": "plain", "acknowledge": "causal",
    }  # fmt: skip
    metrics = SCENARIO.run(SCENARIO.configure(knobs), 2346, None)
    assert metrics["finished"]


def test_holdings_for_one_digest_say_nothing_of_another() -> None:
    """A member had all that another held of earlier departures, and went on without the last one's."""
    knobs = {
        "members": 6, "messages": 60, "rate": 600.0, "delay_ms": 5.0, "loss": 0.3, "duplication": 0.3,
        "reordering": 0.1, "churn": 1, "crashes": 4, "detector_ms": 20.0, "destinations": 6,
        "own_share": 0.0, "window": 4, "buffers": 64, "confirm_ms": 0.5, "acknowledge": "continuous",
    }  # fmt: skip
    metrics = SCENARIO.run(SCENARIO.configure(knobs), 2345, None)
    assert metrics["finished"]


def test_any_survivor_goes_on_where_networks_do_not_split() -> None:
    for seed in range(SEEDS // 3):
        case = draw_faults(seed)
        case.knobs["splits"] = False
        judge(case, seed)


def test_causal_delivery_keeps_all_promises_while_no_member_departs() -> None:
    for seed in range(SEEDS // 3):
        case = draw_case(seed)
        case.knobs["delivery"] = "causal"
        judge(case, seed)


def test_causal_delivery_keeps_some_promises_when_members_depart() -> None:
    for seed in range(SEEDS // 3):
        case = draw_faults(seed)
        case.knobs["delivery"] = "causal"
        judge(case, seed, CAUSAL_PROMISES)


def test_a_failing_seed_says_how_to_replay_it() -> None:
    with pytest.raises(AssertionError, match=r"Drive\(Case\(members=3,.*, 5\)"):
        judge(Case(members=3, messages=10, loss=0.99, patience_ms=10.0), 5)
