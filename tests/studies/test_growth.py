"""Growth laws are told apart."""

import math

import pytest

from antiphon.studies.growth import LAWS, best_law, misfit

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
