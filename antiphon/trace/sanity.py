"""Whether the rows of a trace can be judged at all.

A run whose rows contradict the table's own rules is not judged, and the reason is given. A log with holes is
judged as it is, and its violations are reported; but the run cannot pass, since the missing rows are unknown.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from antiphon.core.errors import InputError
from antiphon.core.ids import Site
from antiphon.core.recording import KINDS
from antiphon.trace.schema import Event

PRESENCE_KINDS: Final = frozenset({"present", "absent"})
LARGEST_NUMBER: Final = (1 << 63) - 1

_HINT: Final = "docs/trace.md says what each column may hold; correct the program that wrote these rows."
_STEP_HINT: Final = "A site's steps count from 0, each once; give the rows of one site different steps."


def row_flaw(event: Event) -> str | None:
    """The flaw of a row by itself, as the end of a sentence; None if it has none.

    >>> row_flaw(Event("r", "a", 0, "deliver", "b", -1))
    'its number is -1'
    """
    if event.kind not in KINDS:
        return f"its kind is {event.kind!r}"
    if event.kind in PRESENCE_KINDS:
        return None
    if event.sender is None and event.kind != "send":
        return "it has no sender"
    if event.number is None:
        return "it has no number"
    if event.number < 0:
        return f"its number is {event.number}"
    if event.count is not None and event.count < 1:
        return f"its count is {event.count}"
    if event.number + (event.count or 1) - 1 > LARGEST_NUMBER:
        return f"its number {event.number} and count {event.count} go beyond 64 bits"
    if event.destinations is not None and None in event.destinations:
        return "one of its destinations is null"
    return None


def unjudgeable_row(run: str, site: Site, step: int, flaw: str) -> InputError:
    """The error for a row that breaks the table's rules."""
    return InputError(f"Run {run} cannot be judged: in the row of site {site}, step {step}, {flaw}.", _HINT)


def unjudgeable_steps(run: str, site: Site, step: int, rows: int) -> InputError:
    """The error for a site whose log has `rows` rows of this step instead of one."""
    flaw = f"step {step} occurs {rows} times in the log of site {site}"
    return InputError(f"Run {run} cannot be judged: {flaw}.", _STEP_HINT)


def incomplete_log(run: str, site: Site, step: int) -> str:
    """The sentence about a run in which a site's log lacks a step."""
    return f"Run {run} cannot pass: step {step} is missing from the log of site {site}."


def require_sane(events: Iterable[Event]) -> None:
    """Raise InputError for the first thing that keeps these rows from being judged."""
    steps: dict[tuple[str, Site], dict[int, int]] = {}
    for event in events:
        flaw = row_flaw(event)
        if flaw is not None:
            raise unjudgeable_row(event.run, event.site, event.step, flaw)
        log = steps.setdefault((event.run, event.site), {})
        log[event.step] = log.get(event.step, 0) + 1
    for (run, site), log in sorted(steps.items()):
        _require_order(run, site, log)


def _require_order(run: str, site: Site, log: Mapping[int, int]) -> None:
    """The steps of one site must not be negative, and each must occur once; `log` counts them."""
    if min(log) < 0:
        raise unjudgeable_row(run, site, min(log), "the step is negative")
    for step in sorted(log):
        if log[step] > 1:
            raise unjudgeable_steps(run, site, step, log[step])
