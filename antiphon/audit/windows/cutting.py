"""Where a run is cut into windows.

First each part of a site's log is indexed: how far its deliveries get in each sender's numbers, on a grid of
deliveries. The driver sorts the grid's points of all sites by their progress through the run, takes running
maxima, and cuts whenever another `size` messages have been passed. Where all sites deliver in one order, each
point is a prefix of that order, and so is their maximum: the cuts are clean. Progress only steers the cuts;
no verdict depends on it.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from antiphon.audit.kernels.cutting import note_highest, windows_of
from antiphon.audit.log import Part
from antiphon.audit.packing import ABSENT, DELIVER, SEND, Segment
from antiphon.audit.windows.parts import parts_of
from antiphon.check.evidence import Evidence
from antiphon.core.ids import Site

Array = Any
NO_THRESHOLD = np.iinfo(np.int64).max


class PartIndex(NamedTuple):
    """What the driver must know of one part of a site's log. Senders are names' indices in `senders`."""

    site: Site
    first_step: int
    last_step: int
    rows: int
    entries: int
    sends: int
    deliveries: int
    declares: bool
    hole: int | None
    """The first step that is missing between this part's rows."""
    is_plain: bool
    """Whether no two rows have one step, and no row names a domain or a name of its own."""
    absences: Array
    senders: list[Site]
    highest: Array
    """By sender: the highest number delivered, the step of its first delivery, and the highest of any row."""
    grid: Array
    """Points of the grid, as columns: the cell, the sender, and in the cell the sender's highest number, its
    deliveries, and its lowest number."""


class Cuts(NamedTuple):
    """The windows of a run: `thresholds[sender, window]` is the last number of a sender in a window."""

    sites: list[Site]
    senders: list[Site]
    thresholds: Array
    absences: dict[Site, Array]
    declares: bool
    evidence: Evidence

    @property
    def windows(self) -> int:
        return int(self.thresholds.shape[1]) + 1


def index_parts(segment: Segment, cell: int) -> list[PartIndex]:
    """The index of each site's part of a segment; `cell` is the grid's distance in deliveries."""
    is_plain = segment.domains is None and segment.label_codes is None
    return [
        _index(site, part, steps, segment.sender_names, cell, is_plain)
        for site, part, steps in parts_of(segment)
    ]


def _hole(steps: Array) -> int | None:
    holes = np.flatnonzero(np.diff(steps) > 1)
    return int(steps[holes[0]]) + 1 if len(holes) else None


def _index(site: Site, part: Part, steps: Array, names: list[Site], cell: int, is_plain: bool) -> PartIndex:
    counts = part.counts.astype(np.int64) if len(part.counts) else np.ones(part.rows, np.int64)
    numbers = part.numbers.astype(np.int64)
    about, delivers = part.kinds > ABSENT, part.kinds == DELIVER
    ends = numbers + counts - 1
    highest = np.full((3, max(len(names), 1)), -1, np.int64)
    note_highest(
        part.kinds, part.senders, numbers, part.counts.astype(np.int64), steps, highest[0], highest[1]
    )
    np.maximum.at(highest[2], part.senders[about], ends[about])
    return PartIndex(
        site,
        int(steps[0]),
        int(steps[-1]),
        part.rows,
        int(counts[about].sum()),
        int(counts[part.kinds == SEND].sum()),
        int(counts[delivers].sum()),
        bool((part.kinds > DELIVER).any()),
        _hole(steps),
        is_plain and not (np.diff(steps) == 0).any(),
        steps[part.kinds == ABSENT],
        names,
        highest,
        _grid(part.senders[delivers], numbers[delivers], ends[delivers], counts[delivers], cell),
    )


def _grid(senders: Array, numbers: Array, ends: Array, counts: Array, cell: int) -> Array:
    """For each cell and sender in it: the highest number in the cell, the deliveries in it, the lowest
    number."""
    if not len(senders):
        return np.empty((5, 0), np.int64)
    cells = (np.cumsum(counts) - 1) // cell
    order = np.lexsort((senders, cells))
    cells, senders, numbers = cells[order], senders[order], numbers[order]
    ends, counts = ends[order], counts[order]
    begins = np.flatnonzero((np.diff(cells, prepend=-1) != 0) | (np.diff(senders, prepend=-1) != 0))
    return np.stack(
        [
            cells[begins],
            senders[begins].astype(np.int64),
            np.maximum.reduceat(ends, begins),
            np.add.reduceat(counts, begins),
            np.minimum.reduceat(numbers, begins),
        ]
    )


def in_order(parts: Iterable[PartIndex]) -> dict[Site, list[PartIndex]] | None:
    """Each site's parts by step; None if parts of a site overlap or are not plain."""
    logs: dict[Site, list[PartIndex]] = {}
    for part in parts:
        logs.setdefault(part.site, []).append(part)
    for log in logs.values():
        log.sort(key=lambda part: part.first_step)
        overlap = any(before.last_step >= after.first_step for before, after in pairwise(log))
        if overlap or not all(part.is_plain for part in log):
            return None
    return dict(sorted(logs.items()))


def cut(logs: dict[Site, list[PartIndex]], size: int) -> Cuts:
    """Windows of about `size` messages."""
    senders = sorted({name for log in logs.values() for part in log for name in part.senders})
    codes = {name: code for code, name in enumerate(senders)}
    points = {site: _points(log, codes) for site, log in logs.items()}
    thresholds = _thresholds(points, len(senders), size)
    last = np.full(len(senders), -1, np.int64)
    for log in logs.values():
        for part in log:
            own = [codes[name] for name in part.senders]
            np.maximum.at(last, own, part.highest[2][: len(own)])
    return Cuts(
        list(logs),
        senders,
        np.concatenate([thresholds, _tail(thresholds, last, size)], axis=1),
        {site: np.concatenate([part.absences for part in log]) for site, log in logs.items()},
        any(part.declares for log in logs.values() for part in log),
        _evidence(logs),
    )


def leads_back(logs: dict[Site, list[PartIndex]], cuts: Cuts) -> bool:
    """Whether deliveries seem to lead back to windows that their site has left. Cells tell it roughly."""
    codes = {name: code for code, name in enumerate(cuts.senders)}
    for log in logs.values():
        reached = 0
        for part in log:
            if not part.grid.shape[1]:
                continue
            cells, senders, highest, _, lowest = part.grid
            senders = np.array([codes[name] for name in part.senders])[senders]
            begins = np.flatnonzero(np.diff(cells, prepend=-1))
            least = np.minimum.reduceat(windows_of(cuts.thresholds, senders, lowest), begins)
            most = np.maximum.reduceat(windows_of(cuts.thresholds, senders, highest), begins)
            before = np.maximum.accumulate(np.concatenate([[reached], most]))
            if (least < before[:-1]).any():
                return True
            reached = int(before[-1])
    return False


def _evidence(logs: dict[Site, list[PartIndex]]) -> Evidence:
    """What the rows of the whole run can show."""
    parts = [part for log in logs.values() for part in log]
    found = ((site, _first_hole(log)) for site, log in logs.items())
    return Evidence(
        rows=bool(parts),
        messages=any(part.deliveries or part.declares for part in parts),
        sends=any(part.sends for part in parts),
        holes=tuple((site, step) for site, step in found if step is not None),
    )


def _first_hole(log: Sequence[PartIndex]) -> int | None:
    following = 0
    for part in log:
        if part.first_step > following:
            return following
        if part.hole is not None:
            return part.hole
        following = part.last_step + 1
    return None


class _Points(NamedTuple):
    """The grid's points of a site: for each cell and sender in it the highest number so far, and a rank."""

    cells: Array
    senders: Array
    numbers: Array
    counts: Array


def _points(log: Sequence[PartIndex], codes: dict[Site, int]) -> _Points:
    columns, first_cell = [], 0
    for part in log:
        if not part.grid.shape[1]:
            continue
        own = np.array([codes[name] for name in part.senders])
        cells, senders, numbers, counts = part.grid[:4]
        columns.append(np.stack([cells + first_cell, own[senders], numbers, counts]))
        first_cell += int(cells[-1]) + 1
    return _Points(*(np.concatenate(columns, axis=1) if columns else np.empty((4, 0), np.int64)))


def _thresholds(points: dict[Site, _Points], senders: int, size: int) -> Array:
    ranks, totals = _ranks(points, senders)
    progress = sorted(
        (share, site, begin, end)
        for site, own in points.items()
        for share, begin, end in _progress(own, ranks)
    )
    frontier = np.full(senders, -1, np.int64)
    messages = int(totals.sum())
    cuts: list[Array] = []
    for share, site, begin, end in progress:
        due = min(int(share * messages), messages - 1) // size
        if due > len(cuts):
            cuts.append(frontier.copy())
            cuts += [cuts[-1]] * (due - len(cuts))
        np.maximum.at(frontier, points[site].senders[begin:end], points[site].numbers[begin:end])
    distinct = [
        cuts[index] for index in range(len(cuts)) if not index or (cuts[index] != cuts[index - 1]).any()
    ]
    return np.stack([*distinct, frontier], axis=1) if senders else np.empty((0, 0), np.int64)


def _ranks(points: dict[Site, _Points], senders: int) -> tuple[dict[int, tuple[Array, Array]], Array]:
    """For each sender a map from number to rank, from the site that delivered most of it; and how many."""
    totals = np.zeros(senders, np.int64)
    ranks: dict[int, tuple[Array, Array]] = {}
    for own in points.values():
        order = np.argsort(own.senders, kind="stable")
        edges = np.flatnonzero(np.diff(own.senders[order], prepend=-1, append=-1))
        for begin, end in pairwise(edges):
            places = order[begin:end]
            sender, delivered = int(own.senders[places[0]]), np.cumsum(own.counts[places])
            if delivered[-1] > totals[sender]:
                totals[sender] = delivered[-1]
                ranks[sender] = np.maximum.accumulate(own.numbers[places]), delivered
    return ranks, totals


def _progress(own: _Points, ranks: dict[int, tuple[Array, Array]]) -> Iterable[tuple[float, int, int]]:
    """The share of the messages of the senders heard here that each cell of a site has come to."""
    if not len(own.cells):
        return
    heard = np.unique(own.senders)
    whole = sum(float(ranks[int(sender)][1][-1]) for sender in heard)
    at = np.empty(len(own.cells))
    for sender in heard.tolist():
        places = np.flatnonzero(own.senders == sender)
        numbers, delivered = ranks[sender]
        rank = np.interp(np.maximum.accumulate(own.numbers[places]), numbers, delivered)
        at[places] = np.diff(rank, prepend=0)
    share = np.cumsum(at) / whole
    edges = np.flatnonzero(np.diff(own.cells, prepend=-1, append=-1))
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield float(share[end - 1]), begin, end


def _tail(thresholds: Array, last: Array, size: int) -> Array:
    """Further windows for numbers beyond all deliveries: those of messages sent and never delivered."""
    reached = thresholds[:, -1] if thresholds.shape[1] else np.full(len(last), -1, np.int64)
    beyond = np.maximum(last - reached, 0)
    windows = min(int(beyond.sum(dtype=np.float64) // size), 4096)
    shares = [reached + (beyond / (windows + 1) * (index + 1)).astype(np.int64) for index in range(windows)]
    return np.stack(shares, axis=1) if shares else np.empty((len(last), 0), np.int64)
