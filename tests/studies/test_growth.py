"""Growth laws are told apart."""

import math

import pytest

from antiphon.studies.growth import LAWS, best_fit_with_offset, best_law, exponent, fit_with_offset, misfit

SIZES = (50, 100, 200, 300, 400, 500)


@pytest.mark.parametrize("name", LAWS)
def test_a_law_is_recognised_whatever_its_factor(name: str) -> None:
    for factor in (0.01, 1.0, 250.0):
        values = [factor * LAWS[name](size) for size in SIZES]
        law, off = best_law(SIZES, values)
        assert law == name
        assert off == pytest.approx(0, abs=1e-9)


def test_a_law_is_recognised_through_noise() -> None:
    values = [size * math.log(size) * (1.05 if index % 2 else 0.95) for index, size in enumerate(SIZES)]
    name, off = best_law(SIZES, values)
    assert name == "n log n"
    assert off == pytest.approx(0.05, abs=0.005)


def test_misfit_is_relative() -> None:
    assert misfit(LAWS["n"], (1, 2), (1, 2)) == pytest.approx(0)
    assert misfit(LAWS["n"], (1, 10), (1.1, 9)) == pytest.approx(misfit(LAWS["n"], (1, 10), (110, 900)))


@pytest.mark.parametrize("name", [name for name in LAWS if name != "constant"])
def test_a_law_is_recognised_beneath_an_offset(name: str) -> None:
    values = [30 + 2 * LAWS[name](size) for size in SIZES]
    fit = best_fit_with_offset(SIZES, values)
    assert fit.law == name
    assert (fit.offset, fit.factor) == pytest.approx((30, 2))
    assert fit.misfit == pytest.approx(0, abs=1e-9)


def test_the_misfit_of_a_line_is_a_share_of_the_mean() -> None:
    assert fit_with_offset("n", (1, 2, 3), (9, 12, 9)).misfit == pytest.approx(math.sqrt(2) / 10)


@pytest.mark.parametrize("power", [-1.0, 0.0, 0.5, 2.0])
def test_a_power_is_found(power: float) -> None:
    assert exponent(SIZES, [7 * size**power for size in SIZES]) == pytest.approx(power)


def test_one_size_alone_has_no_slope() -> None:
    assert exponent((100, 100), (3, 5)) == 0.0
