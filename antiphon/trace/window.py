"""The few rows of a trace that a diagram needs, read without the whole trace in memory."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from antiphon.core.ids import MessageId, Site
from antiphon.trace.arrow import EVENTS, pa, pc
from antiphon.trace.files import conform, event_parts, events_of, open_trace
from antiphon.trace.sanity import LARGEST_NUMBER
from antiphon.trace.schema import Event

CONTEXT_STEPS: Final = 8
"""Rows read before and after each place; a diagram shows fewer."""


def read_window(
    paths: Sequence[Path], run: str, places: Iterable[tuple[Site, int]], messages: Iterable[MessageId]
) -> list[Event]:
    """A run's rows around some places (site and step), and all its rows about some messages."""
    wanted_places, wanted_messages = set(places), set(messages)
    events: list[Event] = []
    for path in paths:
        for file, part in event_parts(open_trace(path)):
            rows = part.filter(pc.equal(part.column("run"), run))
            if rows.num_rows:
                table = conform(file, rows, EVENTS)
                events += events_of(table.filter(_mask(table, wanted_places, wanted_messages)))
    return sorted(events, key=lambda event: (event.site, event.step))


def _mask(table: pa.Table, places: set[tuple[Site, int]], messages: set[MessageId]) -> pa.ChunkedArray:
    site, step = table.column("site"), table.column("step")
    sender, number = table.column("sender"), table.column("number")
    end = pc.add(number, pc.fill_null(table.column("count"), 1))
    mask = pa.chunked_array([pa.repeat(False, table.num_rows)])
    for where, at in places:
        low, high = at - CONTEXT_STEPS, min(at + CONTEXT_STEPS, LARGEST_NUMBER)
        near = pc.and_(pc.greater_equal(step, low), pc.less_equal(step, high))
        mask = pc.or_(mask, pc.and_(pc.equal(site, where), near))
    for message in messages:
        covers = pc.and_(pc.less_equal(number, message.number), pc.greater(end, message.number))
        about = pc.and_(pc.equal(sender, message.sender), covers)
        mask = pc.or_(mask, pc.fill_null(about, False))
    return mask
