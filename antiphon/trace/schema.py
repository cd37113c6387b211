"""The trace's two tables, `events` and `runs`, as Python rows; `trace.arrow` has their Arrow schemas.

A row of `events` is one event at one site. A site's rows are ordered by `step`, which counts from 0 without
gaps; rows of one site with equal step are unordered among themselves. Times are for latency and display,
never for order.
"""

from typing import Final

import msgspec

from antiphon.core.ids import Group, Site
from antiphon.core.recording import KINDS, Kind, Property

ACCEPTED: Final[Site] = "(accepted)"
"""In imported logs, a site that stands for the system itself: it delivers every message that the system
accepted, in no order. It makes a message that reached no consumer at all visible as missing."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One row of `events`. A row with `count` above 1 covers number, number+1, … in that order."""

    run: str
    site: Site
    step: int
    kind: Kind
    sender: Site | None = None
    number: int | None = None
    count: int | None = None
    group: Group | None = None
    destinations: tuple[Site, ...] | None = None
    size: int | None = None
    time_ns: int | None = None
    message_id: str | None = None
    """The message's name in its own system, for explanations."""
    attempt: int | None = None
    """Which delivery of the message this is, where the system says so: for display."""
    domain: str | None = None
    """Order is judged within a domain; null means the whole run."""


TIE_PHASES: Final[dict[Kind, int]] = {
    "present": 0,
    "send": 1,
    "receive": 2,
    "deliver": 2,
    "stable": 3,
    "discard": 3,
    "absent": 4,
}
"""The phase of each kind among rows of one step.

Rows of equal step are unordered. Readers lay them out by phase, then by message, so that the order of a file
never matters: a send comes before what might precede it, a declaration after what might come too late, and
an absence ends the step."""


def tie_order(row: Event) -> tuple[int, int, Site, int, int, int]:
    """Sorts a site's rows by step, and rows of one step always in the same way."""
    sender = row.site if row.sender is None and row.kind == "send" else row.sender or ""
    return row.step, TIE_PHASES[row.kind], sender, row.number or 0, row.count or 1, KINDS.index(row.kind)


class Run(msgspec.Struct, frozen=True, gc=False):
    """One row of `runs`: a group connection and what its protocol promised."""

    run: str
    protocol: str | None = None
    promises: tuple[Property, ...] = ()
    groups: dict[Group, tuple[Site, ...]] | None = None
    parameters: str | None = None
    seed: int | None = None


class Trace(msgspec.Struct, frozen=True):
    """A whole trace in memory. `unpromised` names the runs without recorded promises."""

    events: list[Event]
    runs: list[Run]
    unpromised: frozenset[str] = frozenset()
