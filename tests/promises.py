"""Which violations of a trace break a promise."""

from collections.abc import Collection, Sequence

from antiphon.check.checkers import check_trace
from antiphon.check.history import History
from antiphon.check.verdict import Violation
from antiphon.core.recording import Property
from antiphon.trace.schema import Event, Run


def broken_promises(promises: Collection[Property], events: Sequence[Event], run: Run) -> list[Violation]:
    """What breaks these promises.

    A run without a promise of total order may be ordered by accident, above all a short one of two members.
    What lies within a spell is then judged by its sender's numbers all the same: no more was promised.
    """
    broken = check_trace(events, run, promises)
    if "total" in promises:
        return broken
    history = History(events, run)
    return [
        violation
        for violation in broken
        if violation.property != "atomicity"
        or violation.site not in history.absentees
        or lies_within_a_spell(history, violation)
    ]


def lies_within_a_spell(history: History, violation: Violation) -> bool:
    """Whether the site delivered a lower and a higher number of that sender within one spell."""
    assert violation.site is not None
    numbers: list[int] = []
    for _, kind, message, _ in history.logs[violation.site]:
        if kind == "absent":
            numbers = []
        elif kind == "deliver" and message is not None and message.sender == violation.sender:
            numbers.append(message.number)
            if min(numbers) < violation.number < max(numbers):
                return True
    return False
