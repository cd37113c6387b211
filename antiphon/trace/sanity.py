"""Whether the rows of a trace can be judged at all.

A run whose rows contradict the table's own rules is not judged, and the reason is given. A log with holes is
judged by the rows that it has (`antiphon.check.evidence`).
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from antiphon.core.errors import InputError
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import KINDS
from antiphon.trace.schema import Event, tie_order

PRESENCE_KINDS: Final = frozenset({"present", "absent"})
LARGEST_NUMBER: Final = (1 << 63) - 1

_HINT: Final = "docs/trace.md says what each column may hold; correct the program that wrote these rows."


def row_flaw(event: Event) -> str | None:
    """The flaw of a row by itself, as the end of a sentence; None if it has none.

    >>> row_flaw(Event("r", "a", 0, "deliver", "b", -1))
    'its number is -1'
    """
    if event.step < 0:
        return "the step is negative"
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


def several_domains(run: str, message: MessageId, one: str, other: str) -> InputError:
    """The error for a message whose rows name two domains."""
    first, second = sorted((one, other))
    flaw = f"rows of {message} name the domains {first} and {second}"
    return InputError(f"Run {run} cannot be judged: {flaw}, and a message has one.", _HINT)


def copied_log(run: str, site: Site) -> InputError:
    """The error for a site of which every row is there twice, as if a file had been copied."""
    hint = "A file of the trace was probably copied into it: remove the copy."
    return InputError(f"Run {run} cannot be judged: each row of site {site} is there twice.", hint)


def require_sane(events: Iterable[Event]) -> None:
    """Raise InputError for the first thing that keeps these rows from being judged."""
    logs: dict[tuple[str, Site], Counter[tuple[object, ...]]] = {}
    steps: dict[tuple[str, Site], set[int]] = {}
    for event in events:
        flaw = row_flaw(event)
        if flaw is not None:
            raise unjudgeable_row(event.run, event.site, event.step, flaw)
        logs.setdefault((event.run, event.site), Counter())[tie_order(event)] += 1
        steps.setdefault((event.run, event.site), set()).add(event.step)
    for (run, site), rows in sorted(logs.items()):
        # Rows of a single step may well be alike: a redelivery that the clock does not tell apart.
        if len(steps[run, site]) > 1 and all(count % 2 == 0 for count in rows.values()):
            raise copied_log(run, site)
