"""Rows on their way to their windows.

A part of a site's log is dealt out to windows; batches are divided at the cuts. A row takes its position
along: in the site's whole log, counted in messages, and, if it is a delivery, among the site's deliveries.
Two neighbours in a window whose positions do not meet have rows of other windows between them.

FIFO order is decided here: a delivery below one before it takes that one's number and step along. Whether it
is the site's first delivery of the message, the window finds out.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from antiphon.audit.kernels.cutting import deal, note_highest
from antiphon.audit.log import Part
from antiphon.audit.packing import DELIVER, SEND, Column, Segment, SitePart, column_of, renumbered
from antiphon.audit.windows.cutting import Cuts, PartIndex
from antiphon.audit.windows.parts import parts_of
from antiphon.core.ids import Site

Array = Any


class Carried(NamedTuple):
    """What came before a part of a site's log: messages, deliveries, and by sender the highest delivered."""

    position: int
    place: int
    highest: dict[Site, tuple[int, int]]


class Chunk(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Rows of one window that come from one segment, with their positions."""

    segment: Segment
    """Its steps are left out, and its numbers count from `least`."""
    least: int
    steps: "Rising"
    positions: "Rising"
    places: "Rising"
    """Positions among the site's deliveries, of delivery rows alone."""
    above: Column | None
    """For each row the number and then the step of a higher delivery before it, or -1; None if all are -1."""


class Rising(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Numbers that rise within each part: each part's first, and the narrow differences."""

    firsts: list[int]
    lengths: list[int]
    differences: Column

    def array(self) -> Array:
        values = np.cumsum(self.differences.array(), dtype=np.int64)
        begins = np.cumsum([0, *self.lengths])[:-1]
        return values + np.repeat(np.array(self.firsts, np.int64) - values[begins], self.lengths)


def rising(parts: list[Array]) -> Rising:
    """Pack the parts' numbers, each of which rises; parts without any are left out."""
    filled = [part for part in parts if len(part)]
    differences = [np.diff(part, prepend=part[0]) for part in filled]
    joined = np.concatenate(differences) if differences else np.empty(0, np.int64)
    return Rising(
        [int(part[0]) for part in filled], [len(part) for part in filled], column_of(narrow(joined))
    )


def carry(logs: dict[Site, list[PartIndex]]) -> dict[tuple[Site, int], Carried]:
    """What came before each part, by site and first step; only senders that the part itself has."""
    carried: dict[tuple[Site, int], Carried] = {}
    for site, log in logs.items():
        position = place = 0
        highest: dict[Site, tuple[int, int]] = {}
        for part in log:
            own = {name: highest[name] for name in part.senders if name in highest}
            carried[site, part.first_step] = Carried(position, place, own)
            position, place = position + part.entries, place + part.deliveries
            for name, number, step in zip(part.senders, *part.highest[:2].tolist(), strict=False):
                if number >= 0 and number > highest.get(name, (-1, -1))[0]:
                    highest[name] = number, step
    return carried


class _Dealt(NamedTuple):
    """One part's pieces, ordered by window."""

    site: Site
    window: Array
    step: Array
    kind: Array
    sender: Array
    number: Array
    count: Array
    address: Array
    position: Array
    place: Array
    above: Array


def route(
    segment: Segment, cuts: Cuts, carried: dict[tuple[Site, int], Carried]
) -> Iterator[tuple[int, Chunk]]:
    """The chunks of a segment, each with its window."""
    if not segment.sender_names:
        return
    codes = {name: code for code, name in enumerate(cuts.senders)}
    to_run = np.array([codes[name] for name in segment.sender_names], np.int64)
    dealt = [
        _deal(site, part, steps, segment.sender_names, cuts.thresholds[to_run], carried[site, int(steps[0])])
        for site, part, steps in parts_of(segment)
    ]
    windows = np.unique(np.concatenate([np.empty(0, np.int64), *(part.window for part in dealt)]))
    for window in windows.tolist():
        yield window, _chunk(segment, [_within(part, window) for part in dealt])


def _deal(
    site: Site, part: Part, steps: Array, names: list[Site], thresholds: Array, carried: Carried
) -> _Dealt:
    highest = np.full((2, max(len(names), 1)), -1, np.int64)
    for code, name in enumerate(names):
        highest[:, code] = carried.highest.get(name, (-1, -1))
    above = note_highest(part.kinds, part.senders, part.numbers, part.counts, steps, highest[0], highest[1])
    row, window, offset, count, position, place = deal(
        part.kinds, part.senders, part.numbers, part.counts, thresholds
    )
    # Mostly a part's rows all stay as they are, one after the other: nothing is copied then.
    is_whole = len(row) == part.rows and bool((row[1:] > row[:-1]).all())
    taken: Any = slice(None) if is_whole else row
    place[place >= 0] += carried.place
    address = np.zeros(part.rows, np.int64)
    if len(part.addresses):
        address[part.kinds == SEND] = part.addresses
    return _Dealt(
        site,
        window,
        steps[taken],
        part.kinds[taken],
        part.senders[taken],
        part.numbers[taken] + offset,
        count,
        address[taken],
        position + carried.position,
        place,
        above[:, taken],
    )


def _within(part: _Dealt, window: int) -> _Dealt:
    begin, end = np.searchsorted(part.window, [window, window + 1]).tolist()
    return _Dealt(part.site, *(column[..., begin:end] for column in part[1:]))


def _chunk(segment: Segment, parts: list[_Dealt]) -> Chunk:
    parts = [part for part in parts if len(part.step)]
    kind, sender, number, count, address = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("kind", "sender", "number", "count", "address")
    )
    above = np.concatenate([part.above for part in parts], axis=1)
    used, sender = renumbered(sender, len(segment.sender_names))
    addresses, codes = renumbered(address[kind == SEND], len(segment.addresses))
    is_addressed = len(codes) and segment.address_codes is not None
    least = int(number.min())
    return Chunk(
        Segment(
            parts=[SitePart(part.site, 0, len(part.step)) for part in parts],
            steps=None,
            kinds=column_of(kind),
            sender_names=[segment.sender_names[code] for code in used.tolist()],
            senders=column_of(narrow(sender)),
            numbers=column_of(narrow(number - least)),
            counts=None if (count == 1).all() else column_of(narrow(count)),
            addresses=[segment.addresses[code] for code in addresses.tolist()],
            address_codes=column_of(narrow(codes)) if is_addressed else None,
        ),
        least,
        rising([part.step for part in parts]),
        rising([part.position for part in parts]),
        rising([part.place[part.kind == DELIVER] for part in parts]),
        column_of(above) if (above >= 0).any() else None,
    )


def narrow(values: Array) -> Array:
    """These values, none negative, as narrow unsigned integers."""
    largest = int(values.max(initial=0))
    for width in (np.uint8, np.uint16, np.uint32):
        if largest <= np.iinfo(width).max:
            return values.astype(width)
    return values
