"""The deliveries that the order properties judge: each site's first delivery of each message, by domain.

A lane is a stretch of such deliveries of one site and one domain, in the order of the site's log. In a run
without duplicates and domains the lanes are the sites' deliveries themselves, and nothing is copied.
"""

from typing import Any, NamedTuple

import numpy as np

from antiphon.audit.kernels import deliveries, identity
from antiphon.audit.log import Log

Array = Any


class Lanes(NamedTuple):
    """All lanes, one after another; lane k is `starts[k]` up to `starts[k + 1]`."""

    delivered: Array
    starts: Array
    sites: Array
    """The site of each lane."""
    origin: Array
    """The place of each of these among all deliveries; empty if it is the same."""
    groups: Array
    """What deliveries of one step share; empty if no two rows share a step."""
    rows: Array
    """What deliveries of one row share; empty if no two rows share a step."""

    def place(self, index: int) -> int:
        """The place among all deliveries."""
        return int(self.origin[index]) if len(self.origin) else index


def lanes_of(log: Log) -> Lanes:
    first = deliveries.mark_first(log.delivered, log.delivery_starts, log.message_count)
    if len(log.domains) or not first.all():
        return _chosen(log, np.flatnonzero(first))
    sites = np.arange(log.logged)
    groups, rows = _ties(log, slice(None))
    return Lanes(log.delivered, log.delivery_starts, sites, identity.empty(), groups, rows)


def _chosen(log: Log, places: Array) -> Lanes:
    """The lanes of some deliveries."""
    site: Array = np.searchsorted(log.delivery_starts, places, "right") - 1
    key = site
    if len(log.domains):
        domain = log.domains[log.delivered[places]]
        key = site * (int(log.domains.max(initial=0)) + 1) + domain
        order = np.argsort(key, kind="stable")
        places, site, key = places[order], site[order], key[order]
    edges = np.flatnonzero(np.diff(key, prepend=-1, append=-1)) if len(key) else np.zeros(1, np.int64)
    groups, rows = _ties(log, places)
    return Lanes(log.delivered[places], edges, site[edges[:-1]], places, groups, rows)


def _ties(log: Log, places: Any) -> tuple[Array, Array]:
    if not len(log.groups):
        return log.groups, log.rows
    entries = log.delivery_entries[places]
    return log.groups[entries], log.rows[entries]
