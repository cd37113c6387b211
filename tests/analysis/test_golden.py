"""The golden-ratio search, its window, and the controller that searches while a protocol runs."""

import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.analysis.golden import LARGER, Memo, StepController, find_window, golden_search
from antiphon.core.errors import UsageError
from antiphon.core.time import MILLISECOND_NS, SECOND_NS


def round_time_s(step_s: float, critical_s: float = 3.0) -> float:
    """The shape of figure 5.4: too short a step drowns in queues, a long one adds itself at each step."""
    return 12 + 2 * step_s + 20 * max(0.0, critical_s / step_s - 1)


def test_the_text_s_search_takes_five_iterations() -> None:
    """Section 5.3.2: g = 2, from 0 to 20 s. Six evaluations for them, one for the result."""
    found = golden_search(round_time_s, 0, 20, 2)
    assert (found.iterations, found.evaluations) == (5, 7)
    assert abs(found.step - 3) < 2


@given(best=st.floats(0.5, 19.5), tolerance=st.floats(0.01, 3))
def test_the_search_comes_within_its_tolerance(best: float, tolerance: float) -> None:
    found = golden_search(lambda place: abs(place - best), 0, 20, tolerance)
    assert abs(found.step - best) <= tolerance / 2 + 1e-9
    assert found.value == abs(found.step - best)
    assert found.evaluations == found.iterations + 2
    assert 20 * LARGER**found.iterations <= tolerance * (1 + 1e-9)


def test_a_function_remembered_is_not_asked_twice() -> None:
    asked: list[float] = []

    def function(place: float) -> float:
        asked.append(place)
        return round_time_s(place)

    known = Memo(function)
    found = golden_search(known, 0, 20, 2)
    window = find_window(known, found.step, fluctuation=0.1, stride=1, most=20)
    assert len(asked) == len(set(asked)) == window.evaluations > found.evaluations


def plateau(low: float, high: float) -> Callable[[float], float]:
    return lambda place: 10.5 if low <= place <= high else 20.0


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (8.5, 9.5, (9, 9)),
        (7.5, 10.5, (8, 10)),
        (3.5, 16.5, (4, 16)),
        (0.0, 100.0, (1, 20)),
    ],
    ids=["nothing beside it", "one stride", "strides that double and halve", "up to the range's ends"],
)
def test_the_window_of_a_plateau(low: float, high: float, expected: tuple[float, float]) -> None:
    """By strides of one; beyond the ends of what was searched nothing is asked."""

    def function(place: float) -> float:
        assert 0 < place <= 20
        return plateau(low, high)(place)

    window = find_window(function, 9, fluctuation=0.1, stride=1, least=0, most=20)
    assert (window.low, window.high) == pytest.approx(expected, abs=1.5 if high == 100 else 0)


def test_the_fluctuation_is_a_share_of_the_best_time() -> None:
    """As printed, a bare 0.1 would be a tenth of a second."""
    window = find_window(lambda step: 100 + step, 10, fluctuation=0.1, stride=1, most=50)
    assert window.high > 15


def test_a_step_beside_which_nothing_fits_is_its_own_window() -> None:
    window = find_window(lambda step: 1 + 100 * abs(step - 5), 5, fluctuation=0.1, stride=1)
    assert (window.low, window.high) == (5, 5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: golden_search(abs, 2, 1, 0.1),
        lambda: golden_search(abs, 0, 1, 0),
        lambda: find_window(abs, 1, fluctuation=0, stride=1),
        lambda: find_window(abs, 1, fluctuation=0.1, stride=0),
        lambda: StepController(0, 5),
        lambda: StepController(5, 5),
        lambda: StepController(1, 5, rounds_per_point=0),
        lambda: StepController(1, 5, tolerance=1.0),
        lambda: StepController(1, 5).round_took(-1),
    ],
)
def test_what_makes_no_sense_is_told(call: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        call()


def drive(
    controller: StepController, rounds: int, time_s: Callable[[float], float], noise: float = 0.0
) -> list[float]:
    """Rounds as the controller asks for them; returns the steps it used, in seconds."""
    random, steps_s = Random(7), []
    for _ in range(rounds):
        step_s = controller.step_ns / SECOND_NS
        steps_s.append(step_s)
        controller.round_took(round(time_s(step_s) * random.lognormvariate(0, noise) * SECOND_NS))
    return steps_s


def settled(time_s: Callable[[float], float], noise: float = 0.0, rounds: int = 60) -> StepController:
    controller = StepController(10 * MILLISECOND_NS, 60 * SECOND_NS)
    drive(controller, rounds, time_s, noise)
    return controller


@pytest.mark.parametrize("critical_s", [0.1, 1.0, 3.0, 12.0])
def test_the_controller_finds_a_step_about_as_good_as_the_best(critical_s: float) -> None:
    def time_s(step_s: float) -> float:
        return round_time_s(step_s, critical_s)

    controller = settled(time_s)
    assert not controller.is_searching
    best_s = min(time_s(math.exp(place / 100)) for place in range(-460, 410))
    assert time_s(controller.step_ns / SECOND_NS) <= 1.1 * best_s


def test_noise_of_a_tenth_does_not_lead_it_astray() -> None:
    controller = settled(round_time_s, noise=0.1)
    assert not controller.is_searching
    assert round_time_s(controller.step_ns / SECOND_NS) <= 1.25 * round_time_s(3)


def test_a_single_slow_round_does_not_begin_a_search() -> None:
    controller = settled(round_time_s)
    before = controller.searches
    controller.round_took(100 * SECOND_NS)
    drive(controller, 20, round_time_s)
    assert controller.searches == before


def test_a_network_that_has_changed_is_searched_anew() -> None:
    controller = settled(round_time_s)
    drive(controller, 60, lambda step_s: round_time_s(step_s, critical_s=15))
    assert controller.searches == 2
    assert not controller.is_searching
    assert 10 < controller.step_ns / SECOND_NS < 20


def test_after_a_while_the_neighbourhood_is_searched_again() -> None:
    controller = settled(round_time_s)
    step_s = controller.step_ns / SECOND_NS
    steps_s = drive(controller, 500, round_time_s)
    assert controller.searches == 2
    assert all(step_s / 3.01 < step < 3.01 * step_s for step in steps_s)


def test_a_hopeless_step_is_tried_once() -> None:
    """The second step on trial takes over twice the first one's time: one round of it is enough."""
    steps_s = drive(StepController(SECOND_NS, 100 * SECOND_NS), 5, lambda step_s: step_s)
    assert len(set(steps_s[:3])) == 1
    assert steps_s[3] != steps_s[4]


def test_the_same_times_give_the_same_steps() -> None:
    runs = [
        drive(StepController(MILLISECOND_NS, 60 * SECOND_NS), 100, round_time_s, noise=0.3) for _ in range(2)
    ]
    assert runs[0] == runs[1]
