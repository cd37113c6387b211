"""One run while it grows: how far each site's log has come, where it was cut, and what waits.

A site's parts are taken in order of step; a part behind a hole waits until the hole is filled, or until a
verdict is asked for. Where parts of a site overlap, rows share a step or name domains, windows do not serve:
such a run is judged as a whole, by reading the trace again.

Windows are cut behind the leading site: its frontier is the highest number that any site has delivered of
each sender. Any cut gives the same result; this one leads back over no window where all sites deliver in one
order.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from antiphon.audit.growing.arrivals import Arrival
from antiphon.audit.growing.store import Store
from antiphon.audit.packing import Segment
from antiphon.audit.windows.cutting import Cuts, PartIndex
from antiphon.audit.windows.planning import WindowedRun
from antiphon.audit.windows.routing import Carried, route
from antiphon.check.evidence import Evidence
from antiphon.core.ids import Site
from antiphon.trace.schema import Run

Array = Any
MOST_WAITING: Final = 64
"""Parts that may wait for a window, and a few more for each site. If more do, messages are sent that no site
delivers, and a window is cut behind them. Raising it costs time."""
RECENT: Final = 64
"""Cuts kept in memory. Rows of earlier windows cost a look into the store. Raising it costs memory."""


@dataclass
class SiteLog:
    """How far a site's log has come."""

    next_step: int = 0
    rows: int = 0
    entries: int = 0
    deliveries: int = 0
    sends: int = 0
    declares: bool = False
    absences: list[int] = field(default_factory=list)
    highest: dict[Site, tuple[int, int]] = field(default_factory=dict)
    """By sender: the highest number delivered, and the step of its first delivery."""
    hole: int | None = None
    """The first step that is missing."""

    @property
    def is_away(self) -> bool:
        """Whether the log's last row is an absence."""
        return bool(self.absences) and self.absences[-1] == self.next_step - 1

    def take(self, index: PartIndex) -> Carried:
        """Go on to the end of a part; what came before it is returned."""
        own = {name: self.highest[name] for name in index.senders if name in self.highest}
        carried = Carried(self.entries, self.deliveries, own)
        if self.hole is None:
            self.hole = self.next_step if index.first_step > self.next_step else index.hole
        self.next_step = index.last_step + 1
        self.rows += index.rows
        self.entries += index.entries
        self.deliveries += index.deliveries
        self.sends += index.sends
        self.declares |= index.declares
        self.absences += index.absences.tolist()
        for name, number, step in zip(index.senders, *index.highest[:2].tolist(), strict=False):
            if number >= 0 and number > self.highest.get(name, (-1, -1))[0]:
                self.highest[name] = number, step
        return carried


class Waiting(NamedTuple):
    """A part with rows that belong to no window yet, and the first window that it was not dealt out to."""

    part: int
    site: Site
    first_step: int
    carried: Carried
    after: int


class Point(NamedTuple):
    """Where a site stands after some deliveries: numbers by sender."""

    progress: int
    site: Site
    deliveries: int
    senders: Array
    numbers: Array


@dataclass
class GrowingRun:
    """The state of one run. `store` has its rows."""

    name: str
    size: int
    """The deliveries of a site that fill a window."""
    logs: dict[Site, SiteLog] = field(default_factory=dict)
    held: dict[Site, dict[int, tuple[int, PartIndex]]] = field(default_factory=dict)
    """Parts behind a hole, by site and first step."""
    waiting: list[Waiting] = field(default_factory=list)
    senders: dict[Site, int] = field(default_factory=dict)
    frontier: list[int] = field(default_factory=list)
    """By sender: the highest number that any site has delivered."""
    known: list[int] = field(default_factory=list)
    """By sender: the highest number of any row."""
    since: dict[Site, int] = field(default_factory=dict)
    """By site: deliveries since the last cut."""
    windows: int = 0
    """Windows that have been cut."""
    touched: dict[int, float] = field(default_factory=dict)
    """Windows that have got rows since they were judged, and when they first did."""
    is_whole: bool = False
    problem: str | None = None
    version: int = 0
    """Counts the batches in which the run has got rows."""
    recent: dict[int, Array] = field(default_factory=dict)
    """The last few cuts, by window: numbers by sender. The store has all of them."""

    # Rows

    def add(self, arrivals: Iterable[Arrival], store: Store) -> None:
        """Take new parts, and cut off windows where the leading site has come far enough."""
        self.version += 1
        points: list[Point] = []
        for arrival in arrivals:
            self.problem = self.problem or arrival.problem
            index = arrival.part
            if index is None or self.is_whole:
                continue
            held = self.held.setdefault(index.site, {})
            log = self.logs.setdefault(index.site, SiteLog())
            if not index.is_plain or index.first_step < log.next_step or index.first_step in held:
                self._give_up(store)
                continue
            held[index.first_step] = store.add_part(arrival.segment), index
        for site in list(self.held):
            points += self._take_in_order(site)
        self._cut(sorted(points, key=lambda point: point.progress), store)

    def add_rest(self, store: Store) -> None:
        """Take what lies behind holes, too: no further rows are waited for."""
        for site, held in self.held.items():
            log = self.logs[site]
            for first_step in sorted(held):
                part, index = held[first_step]
                if first_step < log.next_step:
                    self._give_up(store)
                    return
                self._accept(part, index)
        self.held = {}

    def _give_up(self, store: Store) -> None:
        """Windows do not serve: the run is judged as a whole when a verdict is asked for."""
        self.is_whole = True
        store.forget_rows(self.name)
        for part in [each.part for each in self.waiting] + [
            part for held in self.held.values() for part, _ in held.values()
        ]:
            store.drop_part(part)
        self.waiting, self.held, self.touched, self.recent, self.windows = [], {}, {}, {}, 0

    def _take_in_order(self, site: Site) -> Iterator[Point]:
        held = self.held[site]
        while (found := held.pop(self.logs[site].next_step, None)) is not None:
            yield from self._accept(*found)

    def _accept(self, part: int, index: PartIndex) -> list[Point]:
        log = self.logs[index.site]
        for name, highest in zip(index.senders, index.highest[2].tolist(), strict=False):
            code = self.senders.setdefault(name, len(self.senders))
            if code == len(self.frontier):
                self.frontier.append(-1)
                self.known.append(-1)
            self.known[code] = max(self.known[code], highest)
        points = self._points(index, log)
        carried = log.take(index)
        if index.entries:
            self.waiting.append(Waiting(part, index.site, index.first_step, carried, 0))
        return points

    def _points(self, index: PartIndex, log: SiteLog) -> list[Point]:
        """Where the site stands along a part. Progress is the sum of the numbers that it has come to."""
        highest = {self.senders[name]: number for name, (number, _) in log.highest.items()}
        progress, points = sum(highest.values()), []
        codes = np.array([self.senders[name] for name in index.senders], np.int64)
        cells, senders, numbers, counts = index.grid[:4]
        edges = np.flatnonzero(np.diff(cells, prepend=-1, append=-1))
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            own = codes[senders[begin:end]]
            for code, number in zip(own.tolist(), numbers[begin:end].tolist(), strict=True):
                before = highest.get(code, -1)
                progress += max(number - before, 0)
                highest[code] = max(number, before)
            deliveries = int(counts[begin:end].sum())
            points.append(Point(progress, index.site, deliveries, own, numbers[begin:end]))
        return points

    # Windows

    def _cut(self, points: list[Point], store: Store) -> None:
        frontier = np.array(self.frontier, np.int64)
        for point in points:
            np.maximum.at(frontier, point.senders, point.numbers)
            self.since[point.site] = self.since.get(point.site, 0) + point.deliveries
            if self.since[point.site] >= self.size:
                self._add_cut(frontier, store)
        self.frontier = frontier.tolist()

    def cut_now(self, store: Store) -> None:
        """Cut where the leading site stands, so that no violation waits for further rows."""
        left_over = sum(item.after > 0 for item in self.waiting)
        if left_over > MOST_WAITING + 8 * len(self.logs):
            self._add_cut(np.maximum(self.frontier, self.known), store)
        elif any(self.since.values()):
            self._add_cut(np.array(self.frontier, np.int64), store)

    def _add_cut(self, vector: Array, store: Store) -> None:
        store.add_cut(self.name, self.windows, vector)
        self.recent[self.windows] = vector.copy()
        self.recent.pop(self.windows - RECENT, None)
        self.windows += 1
        self.since = {}

    def deal(self, store: Store, *, everything: bool = False) -> None:
        """Deal parts out to the windows that have been cut, or with `everything` to the open one as well."""
        last = self.windows + everything
        first = min(self.recent, default=0)
        near, far = self.cuts(store, first), None
        touched: set[int] = set()
        left: list[Waiting] = []
        for item in self.waiting:
            if item.after >= last:
                left.append(item)
                continue
            segment = msgspec.msgpack.decode(store.part(item.part), type=Segment)
            carried = {(item.site, item.first_step): item.carried}
            dealt = [(window + first, chunk) for window, chunk in route(segment, near, carried)]
            if first and min((window for window, _ in dealt), default=last) <= first:
                # Rows that come late belong to windows whose cuts only the store has.
                far = far or self.cuts(store)
                dealt = list(route(segment, far, carried))
            beyond = False
            for window, chunk in dealt:
                if item.after <= window < last:
                    store.add_chunk(self.name, window, chunk)
                    touched.add(window)
                beyond |= window >= last
            if beyond:
                left.append(item._replace(after=last))
            else:
                store.drop_part(item.part)
        self.waiting = left
        store.drop_summaries(self.name, touched)
        now = time.monotonic()
        for window in touched:
            self.touched.setdefault(window, now)

    def passed(self, store: Store, window: int) -> set[Site]:
        """The sites that have come beyond a window, or need not: they are away, or deliver nothing."""
        threshold = self.recent[window] if window in self.recent else store.cuts(self.name, window)[0]
        return {
            site
            for site, log in self.logs.items()
            if log.is_away
            or all(
                number >= threshold[code] if (code := self.senders[name]) < len(threshold) else True
                for name, (number, _) in log.highest.items()
            )
        }

    # What the passes must know

    def cuts(self, store: Store, first: int = 0) -> Cuts:
        """The windows from the first given on; what comes before is counted to that."""
        near = first >= min(self.recent, default=0)
        vectors = (
            [self.recent[window] for window in range(first, self.windows)]
            if near
            else store.cuts(self.name, first)
        )
        table = np.full((len(self.senders), len(vectors)), -1, np.int64)
        for column, vector in enumerate(vectors):
            table[: len(vector), column] = vector
        logs = dict(sorted(self.logs.items()))
        return Cuts(
            list(logs),
            list(self.senders),
            table,
            {site: np.array(log.absences, np.int64) for site, log in logs.items()},
            any(log.declares for log in logs.values()),
            self.evidence(),
        )

    def evidence(self) -> Evidence:
        logs = sorted(self.logs.items())
        return Evidence(
            rows=any(log.rows for _, log in logs),
            messages=any(log.deliveries or log.declares for _, log in logs),
            sends=any(log.sends for _, log in logs),
            holes=tuple((site, log.hole) for site, log in logs if log.hole is not None),
        )

    def facts(self, run: Run, sends: int) -> WindowedRun:
        """What the sums tell of the run."""
        deliveries = sum(log.deliveries for log in self.logs.values())
        return WindowedRun(run, sorted(self.logs), sends, deliveries, self.evidence())

    def copy(self) -> "GrowingRun":
        """A copy to add to, for a verdict on what is there now."""
        return replace(
            self,
            logs={
                site: replace(log, absences=list(log.absences), highest=dict(log.highest))
                for site, log in self.logs.items()
            },
            held={site: dict(held) for site, held in self.held.items()},
            waiting=list(self.waiting),
            senders=dict(self.senders),
            frontier=list(self.frontier),
            known=list(self.known),
            since=dict(self.since),
            touched=dict(self.touched),
            recent=dict(self.recent),
        )
