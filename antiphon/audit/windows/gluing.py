"""The driver's part: what spans windows, from the summaries of all of them.

Each site's fragments, in order, lead from window to window. Where none leads back to an earlier window, no
path of any kind does, and each window's own result stands. The windows under fragments that lead back form
intervals; within an interval, knowledge and reachability are closed over the fragments.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from antiphon.audit.kernels import flow, order
from antiphon.audit.windows.ordering import Reach, Stretch
from antiphon.audit.windows.passes import Summary
from antiphon.audit.windows.spells import Bounds
from antiphon.core.ids import Site

Array = Any
Interval = range
NOWHERE: Final = -1


class Fragment(NamedTuple):
    """A fragment's window, and its index there."""

    window: int
    at: int


def intervals(chains: Iterable[Sequence[int]]) -> list[Interval]:
    """Windows that a chain of windows leads back over, as ranges that do not touch."""
    back = sorted((after, before) for chain in chains for before, after in pairwise(chain) if after < before)
    merged: list[Interval] = []
    for low, high in back:
        if merged and low < merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, high + 1))
        else:
            merged.append(range(low, high + 1))
    return merged


class Flow:
    """The fragments of an interval's windows, linked along each site's log."""

    def __init__(self, summaries: dict[int, Summary], interval: Interval, sites: int) -> None:
        self.windows = [window for window in interval if window in summaries]
        self.offsets: dict[int, int] = {}
        columns, windows, offset = [], [], 0
        for window in self.windows:
            self.offsets[window] = offset
            own = summaries[window].fragments
            columns.append(np.stack([own.sites.astype(np.int64), own.begins, own.ends]))
            windows.append(np.full(len(own.sites), window))
            offset += len(own.sites)
        self.site, self.begin, self.end = np.concatenate(columns, axis=1)
        self.window = np.concatenate(windows)
        self.count, self.sites = offset, sites
        by_site = np.lexsort((self.begin, self.site))
        self.chains = np.split(by_site, np.flatnonzero(np.diff(self.site[by_site])) + 1) if offset else []
        self.before = np.full(offset, NOWHERE)
        for chain in self.chains:
            self.before[chain[1:]] = chain[:-1]

    def gathered(self, column: Callable[[int], Array]) -> Array:
        """A table by fragment, from the tables by window."""
        return np.concatenate([column(window) for window in self.windows])

    def of(self, table: Array, window: int) -> Array:
        begin = self.offsets[window]
        return table[begin : begin + int(np.count_nonzero(self.window == window))]

    def entering(self, leaving: Array) -> Array:
        """What is known when each fragment begins; `leaving` is what each window by itself adds to it."""
        sources = self._sources(leaving)
        entering = np.zeros((self.count, self.sites), np.int64)
        order_of_passing = np.lexsort((self.begin, self.window))
        changed = True
        while changed:
            changed = False
            for fragment in order_of_passing.tolist():
                before = self.before[fragment]
                if before == NOWHERE:
                    continue
                known = np.maximum(entering[before], leaving[before])
                used = sources[before]
                if len(used):
                    known = np.maximum(known, entering[used].max(axis=0))
                if (known > entering[fragment]).any():
                    entering[fragment] = np.maximum(known, entering[fragment])
                    changed = True
        return entering

    def _sources(self, leaving: Array) -> list[Array]:
        """For each fragment, the fragments of its window whose begin is known at its end."""
        found: list[list[int]] = [[] for _ in range(self.count)]
        for chain in self.chains:
            site = int(self.site[chain[0]])
            # The fragment of this site that holds its last send known; it lies in the same window.
            at = np.searchsorted(self.begin[chain], leaving[:, site] - 1, "right") - 1
            for fragment in np.flatnonzero(leaving[:, site] > 0).tolist():
                found[fragment].append(int(chain[at[fragment]]))
        return [np.array(each, np.int64) for each in found]

    def after(self, least: Array) -> Array:
        """For each fragment, the least positions of what its site delivers after it."""
        result = np.full_like(least, flow.NEVER)
        for chain in self.chains:
            following = least[chain[::-1]]
            result[chain[:-1]] = np.minimum.accumulate(following, axis=0)[:-1][::-1]
        return result


def flow_intervals(summaries: dict[int, Summary], sites: int) -> list[Interval]:
    """The windows that rows of some site lead back over."""
    if not summaries:
        return []
    every = Flow(summaries, range(max(summaries) + 1), sites)
    return intervals(every.window[chain].tolist() for chain in every.chains)


class Stretches:
    """The stretches of all windows, linked along each site's first deliveries."""

    def __init__(self, summaries: dict[int, Summary]) -> None:
        self.stretches: list[Stretch] = []
        self.where: list[Fragment] = []
        self.index: dict[Fragment, int] = {}
        for window in sorted(summaries):
            for index, stretch in enumerate(summaries[window].stretches):
                self.index[Fragment(window, index)] = len(self.stretches)
                self.stretches.append(stretch)
                self.where.append(Fragment(window, index))
        self.chains: dict[Site, list[int]] = {}
        for node, stretch in enumerate(self.stretches):
            self.chains.setdefault(stretch.site, []).append(node)
        self.following: dict[int, int] = {}
        for chain in self.chains.values():
            chain.sort(key=lambda node: self.stretches[node].first.place)
            self.following.update(pairwise(chain))
        self.begins = {
            site: np.array([self.stretches[node].first.place for node in chain])
            for site, chain in self.chains.items()
        }

    def intervals(self) -> list[Interval]:
        return intervals([self.where[node].window for node in chain] for chain in self.chains.values())

    def containing(self, site: Site, place: int) -> int:
        """The stretch of a site that holds the delivery at this place."""
        return self.chains[site][int(np.searchsorted(self.begins[site], place, "right")) - 1]

    def knots(self, interval: Interval, reaches: dict[int, Reach], sites: list[Site]) -> list[set[int]]:
        """Stretches whose first deliveries are entangled across windows, knot by knot."""
        nodes = [node for node, where in enumerate(self.where) if where.window in interval]
        local = {node: index for index, node in enumerate(nodes)}
        tails: list[int] = []
        heads: list[int] = []
        for node in nodes:
            reached = [head for head in self._heads_after(node, reaches, sites) if head in local]
            tails += [local[node]] * len(reached)
            heads += [local[head] for head in reached]
        offsets, targets, _ = order.adjacency(
            np.array(tails, np.int64), np.array(heads, np.int64), len(nodes)
        )
        component = order.strong_components(offsets, targets)
        members: dict[int, set[int]] = {}
        for index, node in enumerate(nodes):
            members.setdefault(int(component[index]), set()).add(node)
        return [knot for knot in members.values() if len(knot) > 1]

    def _heads_after(self, node: int, reaches: dict[int, Reach], sites: list[Site]) -> list[int]:
        """The next stretches after this one, and after those that it leads to within its window."""
        window, index = self.where[node]
        places = reaches[window].forward[index].tolist()
        left = [
            self.containing(site, place)
            for site, place in zip(sites, places, strict=True)
            if place != flow.NEVER
        ]
        return [self.following[each] for each in (node, *left) if each in self.following]

    def entered(self, knot: set[int]) -> dict[int, tuple[Array, Array]]:
        """By window: the stretches that begin in a knot, and those that lead to it."""
        heads: dict[int, list[int]] = {}
        tails: dict[int, list[int]] = {}
        for node in knot:
            heads.setdefault(self.where[node].window, []).append(self.where[node].at)
        for node, head in self.following.items():
            if head in knot:
                tails.setdefault(self.where[node].window, []).append(self.where[node].at)
        return {
            window: (np.array(own, np.int64), np.array(tails.get(window, []), np.int64))
            for window, own in heads.items()
        }

    def bounds(self, ends: tuple[Array, Array], reaches: dict[int, Reach], sites: list[Site]) -> Bounds:
        """Where a spell's path may run, from what its ends reach within their own windows."""
        return Bounds(
            self._closed(ends[0], sites, lambda where: reaches[where.window].forward[where.at], onward=True),
            self._closed(
                ends[1], sites, lambda where: reaches[where.window].backward[where.at], onward=False
            ),
        )

    def _closed(
        self, places: Array, sites: list[Site], of: Callable[[Fragment], Array], *, onward: bool
    ) -> Array:
        """Close a vector of places over all stretches that begin behind it, or end before it."""
        places = places.copy()
        nothing = flow.NEVER if onward else -1
        join = np.minimum if onward else np.maximum
        done = dict.fromkeys(sites)
        changed = True
        while changed:
            changed = False
            for code, site in enumerate(sites):
                if places[code] == nothing:
                    continue
                chain = self.chains[site]
                at = int(np.searchsorted(self.begins[site], places[code], "right")) - 1
                fresh = self._fresh(chain, at, done[site], onward=onward)
                done[site] = at
                for node in fresh:
                    places = join(places, of(self.where[node]))
                    changed = True
        return places

    @staticmethod
    def _fresh(chain: list[int], at: int, done: int | None, *, onward: bool) -> list[int]:
        """Stretches beyond the one at hand that were not joined in before."""
        if onward:
            return chain[at + 1 : len(chain) if done is None else done + 1]
        return chain[0 if done is None else done : at]
