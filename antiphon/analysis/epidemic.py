"""How far a gossip has spread: the Markov chains of epidemics, for any subset size and any loss.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.2.5, equations 4.1-4.15, after van
Renesse, Minsky and Hayden (1998). In a micro-step one member, drawn at random, gossips to p different
others, each copy of which arrives with a given probability. The state is the number of members, of n, that
have a given piece of information; one member has it at first. After r micro-steps the probability that any
member lacks any member's piece is at most n (1 - P(k_r = n)), the bound called `incomplete` here; r / n is
the number of steps, in each of which every member gossips once on average.

The text has p = 1 and p = 3. Any p has the same two stages: the number of copies that arrive is binomial, and
the number of those that reach members without the information is hypergeometric.

The iteration follows the probability of every state but the last, and their sum is the complement wanted: all
terms are positive, so 1e-100 has as many sound digits as 0.5, unlike 1 - P(k_r = n). States whose probability
no longer matters are left out of the iteration, and what is left out counts as incomplete.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from antiphon.core.compiled import compiled
from antiphon.core.errors import UsageError

FloatArray = npt.NDArray[np.float64]

LEAST_INCOMPLETE: Final = 1e-100
LEAST_ARRIVAL: Final = 0.001
"""The least probability that a copy arrives. Below it, the iteration would take too long."""
NEGLIGIBLE: Final = 1e-16
"""The share of the probability asked for that may be left out. Raising it saves time and costs digits."""


def increase(members: int, subset: int, arrival: float = 1.0) -> FloatArray:
    """P_inc(k, j): the probability that a micro-step takes k infected members to k + j.

    Row k, column j; row 0 is all zeros, and column 0 what is left for no increase. Equation 4.1 is
    `increase(n, 1, arrival)[k, 1]`; 4.7, 4.10 and 4.11 are `increase(n, 3, arrival)[k, 1:4]`.
    """
    _require_sense(members, subset, arrival)
    infected = np.arange(members + 1, dtype=np.float64)
    chances = np.zeros((members + 1, subset + 1))
    for arrived in range(1, subset + 1):
        share = math.comb(subset, arrived) * arrival**arrived * (1 - arrival) ** (subset - arrived)
        for new in range(1, arrived + 1):
            chances[:, new] += share * _reached(members, infected, arrived, new)
    chances *= (infected / members)[:, None]
    chances[:, 0] = 1 - chances[:, 1:].sum(axis=1)
    return chances


def _by_increase(members: int, subset: int, arrival: float) -> FloatArray:
    """The same by columns: an iteration over neighbouring numbers is several times as fast."""
    return np.ascontiguousarray(increase(members, subset, arrival).T)


def _reached(members: int, infected: FloatArray, arrived: int, new: int) -> FloatArray:
    """The hypergeometric share: exactly this many of the copies that arrived reach uninfected members."""
    chance = np.full(len(infected), float(math.comb(arrived, new)))
    for place in range(new):
        chance *= np.maximum(members - infected - place, 0) / (members - 1 - place)
    for place in range(arrived - new):
        chance *= np.maximum(infected - 1 - place, 0) / (members - 1 - new - place)
    return chance


def micro_steps(members: int, subset: int, incomplete: float, arrival: float = 1.0) -> int:
    """After how many micro-steps the bound on the probability of an incomplete detection is met."""
    return micro_steps_for(members, subset, (incomplete,), arrival)[0]


def steps(members: int, subset: int, incomplete: float, arrival: float = 1.0) -> float:
    """The same in steps: in a step every member gossips once on the average."""
    return micro_steps(members, subset, incomplete, arrival) / members


def micro_steps_for(
    members: int, subset: int, incomplete: Sequence[float], arrival: float = 1.0
) -> tuple[int, ...]:
    """The micro-steps for several bounds, in their order, by one iteration of the chain."""
    _require_sense(members, subset, arrival)
    for bound in incomplete:
        if not LEAST_INCOMPLETE <= bound < 1:
            raise UsageError(
                f"{bound:g} is no probability to aim at.", hint=f"Take one from {LEAST_INCOMPLETE:g} to 1."
            )
    falling = tuple(sorted(set(incomplete), reverse=True))
    found = dict(zip(falling, _micro_steps_for(members, subset, falling, arrival), strict=True))
    return tuple(found[bound] for bound in incomplete)


@lru_cache(maxsize=256)
def _micro_steps_for(
    members: int, subset: int, falling: tuple[float, ...], arrival: float
) -> tuple[int, ...]:
    bounds = np.array(falling) / members
    return tuple(_iterate(_by_increase(members, subset, arrival), bounds, NEGLIGIBLE).tolist())


def incomplete_after(members: int, subset: int, micro_step: int, arrival: float = 1.0) -> float:
    """n (1 - P(k_r = n)): the bound of equations 4.3 and 4.15 after a number of micro-steps."""
    if micro_step < 0:
        raise UsageError("Micro-steps are counted from 0.")
    return members * _short(_by_increase(members, subset, arrival), micro_step)


def k_fail(members: int, subset: int, mistake: float, arrival: float = 1.0) -> int:
    """The number of steps without news of a member's heartbeat after which it is held to have failed.

    After these steps, the probability that any live member lacks the heartbeat of any other is at most
    `mistake`: per step, so for a run of T steps take the probability wanted divided by T.
    """
    return math.ceil(micro_steps(members, subset, mistake, arrival) / members)


@dataclass(frozen=True)
class Quality:
    """What a bound on the probability of an incomplete detection costs: a point of figures 4.7-4.10."""

    members: int
    subset: int
    incomplete: float
    micro_steps: int
    steps: float


def qualities(
    sizes: Sequence[int] = (50, 100, 200, 300, 400, 500),
    subsets: Sequence[int] = (1, 3),
    incomplete: Sequence[float] = (1e-3, 1e-6, 1e-9),
    arrival: float = 1.0,
) -> list[Quality]:
    """The points of figures 4.7-4.10, which show them over n (4.7, 4.8) and over the quality (4.9, 4.10)."""
    return [
        Quality(members, subset, bound, count, count / members)
        for subset in subsets
        for members in sizes
        for bound, count in zip(
            incomplete, micro_steps_for(members, subset, incomplete, arrival), strict=True
        )
    ]


def _require_sense(members: int, subset: int, arrival: float) -> None:
    if members < 2:
        raise UsageError(f"A group of {members} has no member to gossip to.", hint="Take 2 members or more.")
    if not 1 <= subset < members:
        raise UsageError(
            f"A member of {members} cannot gossip to {subset} others.",
            hint=f"Take a subset from 1 to {members - 1}.",
        )
    if not LEAST_ARRIVAL <= arrival <= 1:
        raise UsageError(
            f"{arrival:g} is no probability of arrival to reckon with.",
            hint=f"Take one from {LEAST_ARRIVAL:g} to 1.",
        )


@compiled
def _step(chances: FloatArray, now: FloatArray, after: FloatArray, low: int, high: int) -> None:
    """One micro-step of the states from `low` to `high`; what leaves them upwards is not followed.

    Slices counted from 0 let the compiler work on several numbers at once.
    """
    before, result, stay = now[low : high + 1], after[low : high + 1], chances[0, low : high + 1]
    for place in range(len(before)):
        result[place] = stay[place] * before[place]
    for new in range(1, chances.shape[0]):
        higher, chance = result[new:], chances[new, low : high + 1]
        for place in range(len(higher)):
            higher[place] += chance[place] * before[place]


@compiled
def _iterate(chances: FloatArray, bounds: FloatArray, negligible: float) -> Any:
    """For each of the falling bounds, the first micro-step that leaves no more short of the end."""
    end, reach = chances.shape[1] - 1, chances.shape[0] - 1
    now, after = np.zeros(end), np.zeros(end)
    now[1] = 1.0
    low = high = 1
    dropped = 0.0
    found = np.zeros(len(bounds), np.int64)
    met = count = 0
    likely = 1
    while met < len(bounds):
        high = min(end - 1, high + reach)
        _step(chances, now, after, low, high)
        now, after = after, now
        count += 1
        while low < high and dropped + now[low] < bounds[-1] * negligible:
            dropped += now[low]
            low += 1
        if now[likely] > bounds[met]:
            continue  # One state alone is more than the bound: the sum, which costs most, is not needed.
        likely = low + int(now[low : high + 1].argmax())
        short = now[low : high + 1].sum() + dropped
        while met < len(bounds) and short <= bounds[met]:
            found[met] = count
            met += 1
    return found


@compiled
def _short(chances: FloatArray, count: int) -> float:
    """1 - P(k_count = n), with nothing left out."""
    end = chances.shape[1] - 1
    now, after = np.zeros(end), np.zeros(end)
    now[1] = 1.0
    for _ in range(count):
        _step(chances, now, after, 1, end - 1)
        now, after = after, now
    return float(now.sum())
