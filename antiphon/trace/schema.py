"""The trace's two tables, `events` and `runs`, as Python rows; `trace.arrow` has their Arrow schemas.

A row of `events` is one event at one site. A site's rows are ordered by `step`, which counts from 0 without
gaps. Times are for latency and display, never for order.
"""

import msgspec

from antiphon.core.ids import Group, Site
from antiphon.core.recording import Kind, Property


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
