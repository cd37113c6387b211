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
    size: int = 1
    """How many messages a violation of `total` entangles."""


class Verdict(Enum):
    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 2}[self]


class RunVerdict(msgspec.Struct, frozen=True, gc=False):
    """The verdict on one property of one run."""

    run: str
    property: Property
    promised: bool
    verdict: Verdict
    violations: int
    reason: str | None = None
    """Why the property is unknown, as a clause."""


class RunSummary(msgspec.Struct, frozen=True, gc=False):
    """The verdicts on one run of a trace. A property without a verdict was not judged."""

    trace: str
    run: str
    verdicts: tuple[RunVerdict, ...]

    @property
    def severity(self) -> int:
        """0 if a promise is broken; 1 if one is unknown or none is recorded; 2 if another property is broken;
        3 if all is well."""
        if any(each.promised and each.verdict is Verdict.FAIL for each in self.verdicts):
            return 0
        promised = [each for each in self.verdicts if each.promised]
        if not promised or any(each.verdict is Verdict.UNKNOWN for each in promised):
            return 1
        return 2 if any(each.verdict is Verdict.FAIL for each in self.verdicts) else 3


def count_by_property(violations: Iterable[Violation]) -> dict[Property, int]:
    """Violations by property, with a count for every property that is always judged."""
    counts: dict[Property, int] = dict.fromkeys(PROPERTIES, 0)
    for violation in violations:
        counts[violation.property] = counts.get(violation.property, 0) + 1
    return counts
