"""Generated traces: good ones keep what they promise, and what is planted is found."""

from random import Random

import pytest
from hypothesis import given

from antiphon.check.checkers import check_trace
from antiphon.check.verdict import count_by_property
from antiphon.core.recording import PROPERTIES
from antiphon.trace.sanity import require_sane
from antiphon.trace.schema import Event, Run
from tests.strategies import (
    FLAVOURS,
    PLANTS,
    Model,
    Plant,
    finish,
    plant_drop,
    plant_duplicate,
    plant_early_declaration,
    plant_forgery,
    plant_misaddressed,
    plant_swap,
    random_trace,
    traces,
)

SURE_PLANTS = (
    plant_drop,
    plant_duplicate,
    plant_early_declaration,
    plant_forgery,
    plant_misaddressed,
    plant_swap,
)


@given(traces("total"))
def test_a_total_order_violates_nothing(trace: tuple[list[Event], Run]) -> None:
    events, run = trace
    assert run.promises == PROPERTIES
    assert check_trace(events, run) == []


@given(traces("causal"))
def test_a_causal_order_violates_total_order_at_most(trace: tuple[list[Event], Run]) -> None:
    events, run = trace
    assert {violation.property for violation in check_trace(events, run)} <= {"total"}


@pytest.mark.parametrize("plant", SURE_PLANTS, ids=lambda plant: plant.__name__)
def test_what_is_planted_is_found(plant: Plant) -> None:
    found = 0
    for seed in range(150):
        rng = Random(seed)
        model = Model(rng, f"run-{seed}", 5, 12, total=seed % 2 == 0)
        broken = plant(rng, model.logs, model.row())
        if broken is not None:
            found += 1
            events = finish(rng, model.logs)
            if broken == "integrity" and not any(event.kind == "send" for event in events):
                continue  # without any send row an unsent message proves nothing
            counts = count_by_property(check_trace(events, model.row()))
            assert counts[broken] > 0, f"seed {seed}"
    assert found >= 20


@pytest.mark.parametrize("flavour", ["planted", "wild"])
def test_bad_traces_break_every_property_and_stay_judgeable(flavour: str) -> None:
    broken: set[str] = set()
    for seed in range(60):
        events, run = random_trace(Random(seed), "run", next(f for f in FLAVOURS if f == flavour))
        require_sane(events)
        broken |= {violation.property for violation in check_trace(events, run)}
    assert broken == set(PROPERTIES)


def test_equal_seeds_give_equal_traces() -> None:
    for flavour in FLAVOURS:
        assert random_trace(Random(7), "run", flavour) == random_trace(Random(7), "run", flavour)


def test_packing_into_batches_changes_no_verdict() -> None:
    for seed in range(60):
        model = Model(Random(seed), "run", 5, 25, total=seed % 2 == 0)
        run, rng = model.row(), Random(seed)
        for _ in range(2):
            rng.choice(PLANTS)(rng, model.logs, run)
        counts = [count_by_property(check_trace(finish(Random(n), model.logs), run)) for n in range(4)]
        assert counts == counts[:1] * 4
