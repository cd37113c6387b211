"""Every property of a run judged in plain Python: the reference for the compiled audit.

docs/audit.md defines the properties. Each checker is one function of a run's history, written to be read,
with sets and dictionaries; a run must fit into memory. Violations are listed property by property, and
within a property in order of sites and steps, or of messages.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from antiphon.check.atomicity import check_atomicity
from antiphon.check.causal import check_causal, check_causal_receipt
from antiphon.check.deliveries import check_duplicate, check_fifo, check_integrity
from antiphon.check.evidence import Evidence
from antiphon.check.gap import check_gap
from antiphon.check.history import History
from antiphon.check.linearizable import check_calls
from antiphon.check.pairwise import check_pairwise
from antiphon.check.stability import check_safe, check_stability
from antiphon.check.total import check_total
from antiphon.check.verdict import Violation
from antiphon.core.calls import Call
from antiphon.core.recording import PROPERTIES, Property
from antiphon.trace.sanity import require_sane
from antiphon.trace.schema import Event, Run, Trace

CHECKERS: Final[Mapping[Property, Callable[[History], list[Violation]]]] = {
    "integrity": check_integrity,
    "duplicate": check_duplicate,
    "atomicity": check_atomicity,
    "fifo": check_fifo,
    "causal": check_causal,
    "total": check_total,
    "stability": check_stability,
    "pairwise": check_pairwise,
    "causal-receipt": check_causal_receipt,
    "gap": check_gap,
    "safe": check_safe,
}


def check_trace(
    events: Iterable[Event],
    run: Run,
    properties: Iterable[Property] = PROPERTIES,
    calls: Sequence[Call] = (),
) -> list[Violation]:
    """All violations in one run, by default of every property that is always judged.

    Events of other runs are ignored. Linearizability is judged by the calls. InputError if the rows cannot be
    judged.
    """
    history = _history(events, run)
    found: list[Violation] = []
    for name in properties:
        if name == "linearizable":
            found += [each.violation(run.run) for each in check_calls(calls).contradictions]
        else:
            found += CHECKERS[name](history)
    return found


def evidence_of(events: Iterable[Event], run: Run) -> Evidence:
    """What the rows of one run can show, and so which properties cannot pass."""
    return _history(events, run).evidence


def _history(events: Iterable[Event], run: Run) -> History:
    own = [event for event in events if event.run == run.run]
    require_sane(own)
    return History(own, run)


def check_all(trace: Trace) -> dict[str, list[Violation]]:
    """The violations of each run of a trace, by the run's name."""
    by_run: dict[str, list[Event]] = {run.run: [] for run in trace.runs}
    for event in trace.events:
        by_run[event.run].append(event)
    return {run.run: check_trace(by_run[run.run], run) for run in trace.runs}
