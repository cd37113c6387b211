"""The few rows of a trace that a diagram needs, read without the whole trace in memory.

Row groups whose statistics rule out every row that is wanted are not read at all.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from antiphon.core.ids import MessageId, Site
from antiphon.trace.arrow import EVENTS, pa, pc, pq
from antiphon.trace.files import conform, event_parts, events_of, open_trace
from antiphon.trace.ranges import ranges_of, within
from antiphon.trace.sanity import LARGEST_NUMBER
from antiphon.trace.schema import Event

CONTEXT_STEPS: Final = 8
"""Rows read before and after each place; a diagram shows fewer."""
ROWS_ABOUT: Final = 10_000
"""Rows about messages that a window holds. Raising it costs memory where a message has very many rows."""

Array = Any


class Wanted(NamedTuple):
    """The rows of one run that a window holds."""

    run: str
    places: frozenset[tuple[Site, int]] = frozenset()
    """Sites and steps: these rows and their neighbours."""
    messages: frozenset[MessageId] = frozenset()
    """All rows about these messages."""
    sent: frozenset[MessageId] = frozenset()
    """The send rows of these messages."""
    reach: int = CONTEXT_STEPS
    """How many steps before and after each place are read."""


def read_window(
    paths: Sequence[Path], run: str, places: Iterable[tuple[Site, int]], messages: Iterable[MessageId]
) -> list[Event]:
    """A run's rows around some places (site and step), and all its rows about some messages."""
    (events,) = read_windows(paths, [Wanted(run, frozenset(places), frozenset(messages))])
    return events


def read_windows(paths: Sequence[Path], wanted: Sequence[Wanted]) -> list[list[Event]]:
    """The rows of several windows, each in the order of the sites' logs, in one pass over the trace."""

    def may_hold(group: pq.RowGroupMetaData) -> bool:
        return any(_may_hold(group, each) for each in wanted)

    return windows_in((part for path in paths for part in event_parts(open_trace(path), may_hold)), wanted)


def windows_in(parts: Iterable[tuple[Path, pa.Table]], wanted: Sequence[Wanted]) -> list[list[Event]]:
    """The rows of several windows out of the parts of a trace, each part with its file."""
    windows: list[list[Event]] = [[] for _ in wanted]
    about = [0] * len(wanted)
    for file, part in parts:
        for index, each in enumerate(wanted):
            rows = part.filter(pc.equal(part.column("run"), each.run))
            if not rows.num_rows:
                continue
            table = conform(file, rows, EVENTS)
            near, told = _masks(table, each)
            further = np.flatnonzero(told & ~near)[: max(ROWS_ABOUT - about[index], 0)]
            about[index] += len(further)
            near[further] = True
            windows[index] += events_of(table.filter(pa.array(near)))
    for events in windows:
        events.sort(key=lambda event: (event.site, event.step))
    return windows


def _masks(table: pa.Table, wanted: Wanted) -> tuple[Array, Array]:
    """Which rows are near a place, and which are about a message."""
    steps = _integers(table, "step", 0)
    low, high = (
        np.maximum(steps, wanted.reach) - wanted.reach,
        steps + np.minimum(wanted.reach, LARGEST_NUMBER - steps),
    )
    near = _held(table.column("site"), low, high, wanted.places)
    kind, sender = table.column("kind"), table.column("sender")
    is_send = pc.equal(kind, "send")
    sender = pc.if_else(pc.and_(is_send, pc.is_null(sender)), table.column("site"), sender)
    first = _integers(table, "number", -1)
    last = first + np.maximum(_integers(table, "count", 1) - 1, 0)
    told = _held(sender, first, last, wanted.messages)
    if wanted.sent:
        told |= _held(sender, first, last, wanted.sent) & is_send.to_numpy()
    return near, told & (first >= 0)


def _integers(table: pa.Table, name: str, missing: int) -> Array:
    return pc.fill_null(table.column(name), missing).to_numpy().astype(np.int64)


def _held(names: pa.ChunkedArray, low: Array, high: Array, wanted: Iterable[tuple[str, int]]) -> Array:
    """The rows whose range from `low` to `high` holds a number that is wanted of their name."""
    by_name: dict[str, list[int]] = {}
    for name, number in wanted:
        by_name.setdefault(name, []).append(number)
    held = np.zeros(len(low), np.bool_)
    for name, numbers in by_name.items():
        own = pc.fill_null(pc.equal(names, name), False).to_numpy()
        if own.any():
            ordered = np.array(sorted(numbers), np.int64)
            held |= own & (np.searchsorted(ordered, high, "right") > np.searchsorted(ordered, low, "left"))
    return held


def _may_hold(group: pq.RowGroupMetaData, wanted: Wanted) -> bool:
    """Whether the statistics of a row group allow a row that is wanted."""
    ranges = ranges_of(group)
    if not within(ranges, "run", wanted.run, wanted.run):
        return False
    for site, step in wanted.places:
        steps = (step - wanted.reach, step + wanted.reach)
        if within(ranges, "site", site, site) and within(ranges, "step", *steps):
            return True
    longest = ranges["count"][1] if "count" in ranges else LARGEST_NUMBER
    for sender, number in wanted.messages | wanted.sent:
        own = within(ranges, "sender", sender, sender) or within(ranges, "site", sender, sender)
        if own and within(ranges, "number", number - longest + 1, number):
            return True
    return False
