"""One run's log judged: the counts of its properties, and the violations to explain.

The kernels find everything; `properties` explains what they found with the same sentences as the pure
checkers in `antiphon.check`. Counts are always complete; only as many violations of each property as asked
for are explained. Where the log holds batches as wholes, a violation of a batch counts for each of its
messages and is explained once, for the first.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from antiphon.audit.case import Case, Finding
from antiphon.audit.log import Log
from antiphon.audit.precedence import Precedence
from antiphon.audit.properties.atomicity import judge_atomicity
from antiphon.audit.properties.causal import judge_causal, judge_causal_receipt
from antiphon.audit.properties.deliveries import judge_duplicate, judge_fifo, judge_integrity
from antiphon.audit.properties.gap import judge_gap
from antiphon.audit.properties.order import judge_pairwise, judge_total
from antiphon.audit.properties.stability import judge_safe, judge_stability
from antiphon.check.linearizable import check_calls
from antiphon.check.verdict import Violation
from antiphon.core.calls import Call
from antiphon.core.recording import PROPERTIES, Property

JUDGES: Final[Mapping[Property, Callable[[Case], Finding]]] = {
    "integrity": judge_integrity,
    "duplicate": judge_duplicate,
    "atomicity": judge_atomicity,
    "fifo": judge_fifo,
    "causal": judge_causal,
    "total": judge_total,
    "stability": judge_stability,
    "pairwise": judge_pairwise,
    "causal-receipt": judge_causal_receipt,
    "gap": judge_gap,
    "safe": judge_safe,
}


CHEAP_STEPS: Final = 20_000_000_000
"""Steps that a property which was not asked for may take, some ten seconds. Raising it judges more, at that
price."""


class Judgement(msgspec.Struct, frozen=True):
    """The violations of one run."""

    counts: dict[Property, int]
    violations: list[Violation]
    exact: bool = True
    """Whether judging batches as wholes gives the result of judging message by message.

    Not if a message precedes itself: then messages of one batch precede one another both ways.
    """
    doubts: dict[Property, str | None] = msgspec.field(default_factory=dict)
    """Why a property that does not rest on events cannot pass; None if it can."""

    def joined(self, other: "Judgement") -> "Judgement":
        """Both together: they are about different properties of one run."""
        return Judgement(
            self.counts | other.counts,
            [*self.violations, *other.violations],
            self.exact and other.exact,
            self.doubts | other.doubts,
        )


def judge(
    log: Log,
    limits: Mapping[Property, int | None] | None = None,
    *,
    in_order: bool = True,
    asked: Collection[Property] | None = None,
) -> Judgement:
    """Judge a run; `limits` names the properties and bounds how many violations of each are explained.

    Without `in_order`, a spell of presence is judged by senders' numbers even if the run happens to be in one
    order, as short runs often are: for runs that do not promise total order. If `asked` names properties,
    others are judged only where they cost little.
    """
    case = Case(log, limits or dict.fromkeys(PROPERTIES), in_order)
    counts: dict[Property, int] = {}
    explained: list[Violation] = []
    for name in case.limits:
        if asked is not None and name not in asked and not _is_cheap(case, name):
            continue
        counts[name], violations = JUDGES[name](case)
        explained += violations
    return Judgement(counts, explained, not (len(log.weights) and case.circular))


def _is_cheap(case: Case, name: Property) -> bool:
    """Causal order takes a step for each row up to a site's last send, and each site that delivers."""
    return name != "causal" or Precedence(case.log, case.lanes).work <= CHEAP_STEPS


def judge_calls(run: str, calls: Sequence[Call], limit: int | None) -> Judgement:
    """Judge the linearizability of a run's calls."""
    found = check_calls(calls)
    violations = [each.violation(run) for each in found.contradictions]
    doubt = "; ".join(found.doubts) or None if calls else "the run has no calls"
    return Judgement(
        {"linearizable": len(violations)},
        violations if limit is None else violations[:limit],
        doubts={"linearizable": doubt},
    )
