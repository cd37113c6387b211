"""Options that are declared once: what they take, and what they say about the rest."""

from dataclasses import dataclass
from math import inf, nan
from typing import Any, Literal

import pytest

from antiphon.core.errors import UsageError
from antiphon.core.knobs import LARGEST, Knobs, knob


@dataclass(frozen=True, kw_only=True)
class Kettle(Knobs):
    heat: int = knob(90, "Degrees to reach.", least=20, agreed=False)
    lid: bool = knob(True, "Whether it is closed.")
    tea: str | None = knob(None, "What goes in.", choices=("green", "black"))
    spout: Literal["left", "right"] = knob("left", "Where it pours.", choices=("left", "right"))
    weight: float = knob(1.0, "Kilograms.")
    brand: str = "none"


def test_a_declaration_tells_everything_about_an_option() -> None:
    knobs = Kettle.knobs()
    assert list(knobs) == ["heat", "lid", "tea", "spout", "weight"]
    assert [each.kind for each in knobs.values()] == [int, bool, str, str, float]
    assert [each.default for each in knobs.values()] == [90, True, None, "left", 1.0]
    assert [each.agreed for each in knobs.values()] == [False, True, True, True, True]
    assert knobs["heat"].least == 20
    assert knobs["tea"].choices == ("green", "black")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"heat": 19}, "heat=19 is too small. Hint: It is at least 20."),
        ({"heat": "hot"}, "heat='hot' is no int. Hint: Degrees to reach."),
        ({"heat": True}, "heat=True is no int."),
        ({"heat": 20.5}, "heat=20.5 is no int."),
        ({"heat": inf}, "heat=inf is no int."),
        ({"heat": LARGEST + 1}, f"heat={LARGEST + 1} is too large. Hint: It is at most {LARGEST:,}."),
        ({"weight": inf}, "weight=inf is too large."),
        ({"weight": nan}, "weight=nan is too large."),
        ({"weight": "1"}, "weight='1' is no float."),
        ({"heat": None}, "heat=None is no int."),
        ({"lid": 1}, "lid=1 is no bool."),
        ({"tea": "red"}, "There is no tea 'red'. Hint: There are: green, black."),
        ({"tea": 3}, "tea=3 is no str."),
        ({"spout": "up"}, "There is no spout 'up'."),
    ],
)
def test_a_value_that_is_not_taken_gets_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        Kettle(**given)
    assert str(raised.value).startswith(sentence)


def test_values_at_their_bounds_are_taken() -> None:
    assert Kettle(heat=20, tea=None, spout="right").heat == 20
    assert Kettle(heat=LARGEST, weight=2).weight == 2
