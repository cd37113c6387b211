"""What a checker returns: violations, each with an explanation, and a verdict over them."""

from collections.abc import Iterable
from enum import Enum

import msgspec

from antiphon.core.ids import Site
from antiphon.core.recording import PROPERTIES, Property


class Witness(msgspec.Struct, frozen=True, gc=False):
    """One row of the trace that an explanation rests on."""

    site: Site
    step: int
    sender: Site | None = None
    number: int | None = None


class Violation(msgspec.Struct, frozen=True, gc=False):
    """One violation, explained as: let this be so; because of that; a contradiction.

    For `total`, which is counted per strongly connected component, `site` is None and the message is the
    component's least one.
    """

    property: Property
    run: str
    site: Site | None
    sender: Site
    number: int
    explanation: str
    witness: tuple[Witness, ...] = ()


class Verdict(Enum):
    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 2}[self]


def count_by_property(violations: Iterable[Violation]) -> dict[Property, int]:
    """Violations by property, with a count for every property that is always judged."""
    counts: dict[Property, int] = dict.fromkeys(PROPERTIES, 0)
    for violation in violations:
        counts[violation.property] = counts.get(violation.property, 0) + 1
    return counts
