"""The epidemic's Markov chains: the printed equations, the tables, and chains iterated exactly by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest

from antiphon.analysis.epidemic import (
    incomplete_after,
    increase,
    k_fail,
    micro_steps,
    micro_steps_for,
    qualities,
    steps,
)
from antiphon.core.errors import UsageError


def printed_increase_of_one(n: int, k: int, arrival: float) -> float:
    """Equation 4.1."""
    return k / n * (n - k) / (n - 1) * arrival


def printed_increases_of_three(n: int, k: int, arrival: float) -> tuple[float, float, float]:
    """Equations 4.4-4.11, in the products' form."""
    sent, lost = k / n * (n - k) / (n - 1), 1 - arrival
    first = 3 * sent * (k - 1) / (n - 2) * (k - 2) / (n - 3) * arrival**3
    second = 6 * sent * (k - 1) / (n - 2) * arrival**2 * lost
    third = 3 * sent * arrival * lost**2
    fourth = 3 * sent * (n - k - 1) / (n - 2) * (k - 1) / (n - 3) * arrival**3
    fifth = 3 * sent * (n - k - 1) / (n - 2) * arrival**2 * lost
    sixth = sent * (n - k - 1) / (n - 2) * (n - k - 2) / (n - 3) * arrival**3
    return first + second + third, fourth + fifth, sixth


@pytest.mark.parametrize("arrival", [1.0, 0.7, 0.05])
@pytest.mark.parametrize("members", [4, 9, 200])
def test_subsets_of_one_and_three_are_the_printed_equations(members: int, arrival: float) -> None:
    one, three = increase(members, 1, arrival), increase(members, 3, arrival)
    for k in range(1, members + 1):
        assert one[k, 1] == pytest.approx(printed_increase_of_one(members, k, arrival), rel=1e-12)
        printed = printed_increases_of_three(members, k, arrival)
        assert three[k, 1:].tolist() == pytest.approx(printed, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("subset", [1, 2, 3, 5, 8])
def test_the_chances_of_any_subset_are_those_of_enumerated_draws(subset: int) -> None:
    """The twin draws the p others first, and then who of them hears: the other way round than the module."""
    members, arrival = 9, Fraction(3, 4)
    chances = increase(members, subset, float(arrival))
    for k in range(1, members + 1):
        for new in range(1, subset + 1):
            expected = sum(
                Fraction(
                    math.comb(members - k, chosen) * math.comb(k - 1, subset - chosen),
                    math.comb(members - 1, subset),
                )
                * math.comb(chosen, new)
                * arrival**new
                * (1 - arrival) ** (chosen - new)
                for chosen in range(new, subset + 1)
            ) * Fraction(k, members)
            assert chances[k, new] == pytest.approx(float(expected), rel=1e-12, abs=1e-18)


def exactly_short_of_the_end(members: int, subset: int, arrival: Fraction, count: int) -> Fraction:
    """1 - P(k_r = n) in whole numbers: nothing is lost to rounding, however small it gets."""
    probability = [Fraction(0)] * (members + 1)
    probability[1] = Fraction(1)
    rows = increase(members, subset, float(arrival))
    assert subset == 1, "the twin knows equation 4.1 only"
    for _ in range(count):
        after = list(probability)
        for k in range(1, members):
            chance = Fraction(k * (members - k), members * (members - 1)) * arrival
            assert float(chance) == pytest.approx(rows[k, 1], rel=1e-12)
            after[k] -= chance * probability[k]
            after[k + 1] += chance * probability[k]
        probability = after
    return 1 - probability[members]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 30, 120, 360])
def test_what_is_short_of_the_end_is_exact_to_many_digits_however_small(count: int) -> None:
    exact = 6 * exactly_short_of_the_end(6, 1, Fraction(1), count)
    assert incomplete_after(6, 1, count) == pytest.approx(float(exact), rel=1e-12)
    if count == 360:
        assert exact < 1e-17, "1 - P would show nothing of it"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("members", "subset", "expected"),
    [
        (50, 1, (20.94, 28.22, 35.36)),
        (50, 3, (13.24, 20.08, 26.92)),
        (500, 1, (28.27, 35.55, 42.73)),
        (500, 3, (17.28, 24.19, 31.09)),
    ],
)
def test_steps_of_section_4_2_5(members: int, subset: int, expected: tuple[float, ...]) -> None:
    ours = [steps(members, subset, incomplete) for incomplete in (1e-3, 1e-6, 1e-9)]
    assert ours == pytest.approx(expected, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("members", "expected"), [(8, 22), (16, 25), (32, 27), (64, 30), (128, 32), (256, 34)]
)
def test_k_fail_grows_as_the_logarithm(members: int, expected: int) -> None:
    assert k_fail(members, 1, 1e-6) == expected


@pytest.mark.parametrize(("members", "subset", "arrival"), [(30, 1, 1.0), (60, 2, 0.8), (40, 5, 0.3)])
def test_micro_steps_are_the_first_that_meet_the_bound(members: int, subset: int, arrival: float) -> None:
    for incomplete in (0.5, 1e-3, 1e-12, 1e-60):
        first = micro_steps(members, subset, incomplete, arrival)
        assert incomplete_after(members, subset, first, arrival) <= incomplete * (1 + 1e-9)
        assert incomplete_after(members, subset, first - 1, arrival) > incomplete


def test_several_bounds_at_once_are_each_on_its_own() -> None:
    bounds = (1e-9, 0.1, 1e-9, 1e-4)
    assert micro_steps_for(70, 2, bounds, 0.9) == tuple(micro_steps(70, 2, bound, 0.9) for bound in bounds)


def test_loss_and_smaller_subsets_cost_steps() -> None:
    by_arrival = [steps(100, 2, 1e-6, arrival) for arrival in (1.0, 0.9, 0.5, 0.1)]
    by_subset = [steps(100, subset, 1e-6) for subset in (5, 4, 3, 2, 1)]
    assert by_arrival == sorted(by_arrival)
    assert by_subset == sorted(by_subset)


def test_the_points_of_the_figures_cover_sizes_subsets_and_qualities() -> None:
    points = qualities(sizes=(50, 100), subsets=(1, 3), incomplete=(1e-3, 1e-6))
    assert [(point.subset, point.members, point.incomplete) for point in points[:3]] == [
        (1, 50, 1e-3),
        (1, 50, 1e-6),
        (1, 100, 1e-3),
    ]
    assert all(point.steps == point.micro_steps / point.members for point in points)
    assert len(points) == 8


def test_the_chances_leave_room_for_no_increase() -> None:
    chances = increase(20, 3, 0.9)
    assert np.allclose(chances.sum(axis=1), 1)
    assert chances[20, 0] == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: micro_steps(1, 1, 0.1),
        lambda: micro_steps(10, 10, 0.1),
        lambda: micro_steps(10, 0, 0.1),
        lambda: micro_steps(10, 1, 1.0),
        lambda: micro_steps(10, 1, 0.0),
        lambda: micro_steps(10, 1, 0.1, 0.0),
        lambda: micro_steps(10, 1, 0.1, 1.1),
        lambda: incomplete_after(10, 1, -1),
    ],
)
def test_what_makes_no_sense_is_told(call: object) -> None:
    assert callable(call)
    with pytest.raises(UsageError):
        call()
