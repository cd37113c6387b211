"""The parts of a packed segment, one for each site, with their rows in order of step."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from antiphon.audit.kernels import identity
from antiphon.audit.log import Part
from antiphon.audit.packing import SEND, Segment
from antiphon.core.ids import Site

Array = Any


def parts_of(segment: Segment) -> Iterator[tuple[Site, Part, Array]]:
    """Each site's part of a segment and its steps; senders and addresses in the segment's own codes."""
    kinds, senders = segment.kinds.array().copy(), segment.senders.array().astype(np.int32)
    numbers = segment.numbers.array().astype(np.int64)
    steps = None if segment.steps is None else segment.steps.array().astype(np.int64)
    counts = identity.empty() if segment.counts is None else segment.counts.array().astype(np.int64)
    codes = None if segment.address_codes is None else segment.address_codes.array()
    begin, sent, nothing = 0, 0, identity.empty()
    for site, first_step, size in ((part.site, part.first_step, part.rows) for part in segment.parts):
        rows = slice(begin, begin + size)
        sends = 0 if codes is None else int(np.count_nonzero(kinds[rows] == SEND))
        addresses = identity.empty() if codes is None else codes[sent : sent + sends]
        part = Part(
            first_step,
            size,
            None,
            kinds[rows],
            senders[rows],
            numbers[rows],
            counts[rows],
            addresses,
            nothing,
            nothing,
        )
        begin, sent = begin + size, sent + sends
        if size:
            own = np.arange(first_step, first_step + size) if steps is None else steps[rows]
            yield (site, *_ordered(part, own))


def _ordered(part: Part, steps: Array) -> tuple[Part, Array]:
    """A part with its rows in order of step."""
    if (np.diff(steps) > 0).all():
        return part, steps
    order = np.argsort(steps, kind="stable")
    addresses = part.addresses
    if len(addresses):
        by_row = np.zeros(part.rows, np.int64)
        by_row[part.kinds == SEND] = addresses
        addresses = by_row[order][part.kinds[order] == SEND]
    counts = part.counts[order] if len(part.counts) else part.counts
    taken = part._replace(
        kinds=part.kinds[order],
        senders=part.senders[order],
        numbers=part.numbers[order],
        counts=counts,
        addresses=addresses,
    )
    return taken, steps[order]
