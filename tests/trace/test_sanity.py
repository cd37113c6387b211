"""Rows that cannot be judged, each with the sentence that says why."""

import pytest

from antiphon.core.errors import InputError
from antiphon.core.recording import Kind
from antiphon.trace.sanity import require_sane
from antiphon.trace.schema import Event

UNKNOWN: Kind = "delivered"  # type: ignore[assignment]
NULL_SITE: str = None  # type: ignore[assignment]

FLAWS = {
    "unknown kind": (Event("r", "a", 0, UNKNOWN, "a", 0), "its kind is 'delivered'"),
    "no sender": (Event("r", "a", 0, "deliver", None, 0), "it has no sender"),
    "no number": (Event("r", "a", 0, "receive", "a", None), "it has no number"),
    "send without number": (Event("r", "a", 0, "send", None, None), "it has no number"),
    "negative number": (Event("r", "a", 0, "stable", "a", -3), "its number is -3"),
    "zero count": (Event("r", "a", 0, "discard", "a", 0, 0), "its count is 0"),
    "overflow": (Event("r", "a", 0, "deliver", "a", (1 << 63) - 1, 2), "go beyond 64 bits"),
    "null destination": (
        Event("r", "a", 0, "send", "a", 0, None, None, ("b", NULL_SITE)),
        "one of its destinations is null",
    ),
}


@pytest.mark.parametrize(("event", "flaw"), FLAWS.values(), ids=FLAWS.keys())
def test_a_flawed_row_is_named(event: Event, flaw: str) -> None:
    with pytest.raises(
        InputError, match=f"^Run r cannot be judged: in the row of site a, step 0,.*{flaw}"
    ) as info:
        require_sane([event])
    assert info.value.hint


STEPS = {
    "a repeat": ([0, 0, 1, 1, 2, 2], "each row of site a is there twice"),
    "a negative step": ([-1, 0], "site a, step -1, the step is negative"),
}


@pytest.mark.parametrize(("steps", "sentence"), STEPS.values(), ids=STEPS.keys())
def test_steps_that_tell_no_order_are_named(steps: list[int], sentence: str) -> None:
    sound = [Event("r", "b", step, "present") for step in range(3)]
    with pytest.raises(InputError, match=sentence) as info:
        require_sane([*sound, *(Event("r", "a", step, "present") for step in steps)])
    assert info.value.hint


def test_what_is_allowed() -> None:
    require_sane(
        [
            Event("r", "a", 7, "send", None, 5),
            Event("r", "a", 0, "present", None, None),
            Event("r", "b", 0, "deliver", "a", (1 << 63) - 1, 1),
            Event("other", "a", 0, "absent"),
            Event("other", "a", 1, "present"),
            Event("other", "a", 1, "present"),
        ]
    )
