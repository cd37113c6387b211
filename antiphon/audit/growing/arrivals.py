"""New rows as parts: the consecutive rows of one site, packed and indexed."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from antiphon.audit.log import Part
from antiphon.audit.packing import SEND, Segment, SitePart, column_of, pack, renumbered
from antiphon.audit.windows.cutting import PartIndex, index_parts
from antiphon.audit.windows.parts import parts_of
from antiphon.audit.windows.routing import narrow
from antiphon.core.ids import Site
from antiphon.trace.arrow import pa

Array = Any
MOST_SPLITS: Final = 64
"""A part with at most this many holes is split at them, so that other rows can fill them. Raising it makes
more and smaller parts of a log full of holes."""
TABLE_ROWS: Final = 1 << 18
"""Rows that are packed together, about. Raising it costs memory in the task."""


class Arrival(NamedTuple):
    """New rows of one site of a run, or the problem that keeps the run from being judged."""

    run: str
    problem: str | None = None
    part: PartIndex | None = None
    segment: bytes = b""


def arrivals_of(batches: Iterable[pa.RecordBatch], cell: int) -> Iterator[Arrival]:
    """The parts of some batches of rows; `cell` is the distance of the grid's points in deliveries."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        if gathered and (_rows(gathered) >= TABLE_ROWS or gathered[0].schema != batch.schema):
            yield from _arrivals(pa.Table.from_batches(gathered), cell)
            gathered = []
        gathered.append(batch)
    if gathered:
        yield from _arrivals(pa.Table.from_batches(gathered), cell)


def _rows(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _arrivals(table: pa.Table, cell: int) -> Iterator[Arrival]:
    for run, problem, segment in pack(table):
        if segment is None:
            yield Arrival(run, problem)
            continue
        is_plain = segment.domains is None and segment.label_codes is None
        for site, part, steps in parts_of(segment):
            for own in _contiguous(site, part, steps, segment):
                index = index_parts(own, cell)[0]
                yield Arrival(
                    run,
                    None,
                    index._replace(is_plain=index.is_plain and is_plain),
                    msgspec.msgpack.encode(own),
                )


def _contiguous(site: Site, part: Part, steps: Array, segment: Segment) -> Iterator[Segment]:
    """Segments of one part each, split where steps are missing."""
    holes = np.flatnonzero(np.diff(steps) > 1) + 1
    edges = [0, *(holes.tolist() if len(holes) <= MOST_SPLITS else []), part.rows]
    is_send = np.concatenate([[0], np.cumsum(part.kinds == SEND)])
    for begin, end in pairwise(edges):
        own, sends = slice(begin, end), slice(int(is_send[begin]), int(is_send[end]))
        used, senders = renumbered(part.senders[own], max(len(segment.sender_names), 1))
        counted = bool((np.diff(steps[own]) == 1).all())
        yield Segment(
            parts=[SitePart(site, int(steps[begin]), end - begin)],
            steps=None if counted else column_of(steps[own]),
            kinds=column_of(part.kinds[own]),
            sender_names=[segment.sender_names[code] for code in used.tolist()]
            if segment.sender_names
            else [],
            senders=column_of(narrow(senders)),
            numbers=column_of(narrow(part.numbers[own])),
            counts=column_of(narrow(part.counts[own])) if len(part.counts) else None,
            addresses=segment.addresses,
            address_codes=column_of(part.addresses[sends]) if len(part.addresses) else None,
        )
