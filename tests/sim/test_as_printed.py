"""The protocol as published, and with corrections: what they buy shows in the simulator."""

import pytest

from antiphon.core.errors import UsageError
from antiphon.protocols.dpg.pdus import CORRECTIONS
from antiphon.sim.scenarios import dpg

LOAD = {"members": 5, "messages": 500, "rate": 500.0, "size": 1000, "loss": 0.02}


def run(**knobs: object) -> dict[str, object]:
    return dict(dpg.run(dpg.Configuration(**LOAD, **knobs), 1, None))  # type: ignore[arg-type]


def test_marks_that_wait_until_they_are_certain_keep_the_order() -> None:
    printed, marks, ours = run(as_printed=True), run(as_printed=True, correct="marks"), run()
    assert int(str(printed["out_of_order"])) > 50
    assert int(str(marks["out_of_order"])) < int(str(printed["out_of_order"])) / 5
    assert ours["out_of_order"] == ours["missing"] == ours["committed"] == 0


def test_with_all_corrections_it_is_ours() -> None:
    assert run(as_printed=True, correct=",".join(CORRECTIONS)) == run()


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_each_correction_can_be_left_out(correction: str) -> None:
    others = ",".join(name for name in CORRECTIONS if name != correction)
    assert run(as_printed=True, correct=others)["deliveries"]


@pytest.mark.parametrize("knobs", [{"correct": "marks"}, {"as_printed": True, "correct": "marking"}])
def test_options_that_make_no_sense_are_refused(knobs: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        dpg.Configuration(**knobs)  # type: ignore[arg-type]
