"""Clock offsets between sites, from nothing but the messages between them.

Let site i's clock show true time plus o_i. No message arrives before it was sent, so the least difference
d_ij between a reception at j and its send at i bounds o_j - o_i from above. Bounds along a path add up, and
the shortest path gives the best bound (a system of difference constraints). With both directions the offset
lies in an interval: its middle is the estimate, half its width the uncertainty. The true offset is inside,
provided that clocks run evenly and were not set during the run.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from antiphon.core.ids import Site

NO_BOUND: Final = np.inf


class Offset(msgspec.Struct, frozen=True):
    """How far one clock is ahead of another, in nanoseconds; the truth is at most `uncertainty_ns` away."""

    offset_ns: int
    uncertainty_ns: int


class Clocks:
    """Offsets between all sites of a run."""

    def __init__(self, sites: Sequence[Site], least_ns: Mapping[tuple[Site, Site], int]) -> None:
        """`least_ns` has the least difference of times for each pair (from, to) that has messages."""
        self.sites = tuple(sorted(sites))
        self._index = {site: place for place, site in enumerate(self.sites)}
        self._bounds = _shortest(len(self.sites), {
            (self._index[source], self._index[target]): float(least)
            for (source, target), least in least_ns.items()
        })  # fmt: skip
        self.unsteady = tuple(site for site in self.sites if self._bounds[(self._index[site],) * 2] < 0)
        """Sites whose clocks contradict themselves: they were set, or ran unevenly."""
        self.reference = self._best_known()

    def between(self, source: Site, target: Site) -> Offset | None:
        """How far the target's clock is ahead of the source's; None if messages do not tell."""
        if source == target:
            return Offset(0, 0)
        one, other = self._index[source], self._index[target]
        above, below = self._bounds[one, other], self._bounds[other, one]
        if not np.isfinite(above + below) or above + below < 0:
            return None
        return Offset(round((above - below) / 2), round((above + below) / 2))

    def of(self, site: Site) -> Offset | None:
        """How far a site's clock is ahead of the reference's."""
        return self.between(self.reference, site)

    def _best_known(self) -> Site:
        """The site that has an offset to most others, and then the least uncertain ones."""
        width = self._bounds + self._bounds.T
        known = np.isfinite(width) & (width >= 0)
        total = np.where(known, width, 0).sum(axis=1)
        order = sorted(range(len(self.sites)), key=lambda place: (-known[place].sum(), total[place], place))
        return self.sites[order[0]]


def _shortest(count: int, arcs: Mapping[tuple[int, int], float]) -> NDArray[np.float64]:
    """The least bound over all paths (Floyd and Warshall)."""
    bounds = np.full((count, count), NO_BOUND)
    np.fill_diagonal(bounds, 0.0)
    for (source, target), least in arcs.items():
        bounds[source, target] = min(bounds[source, target], least)
    for middle in range(count):
        np.minimum(bounds, bounds[:, middle, None] + bounds[None, middle, :], out=bounds)
    return bounds
