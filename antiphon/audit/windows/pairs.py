"""Pairwise order inside one window: what two sites share, stretch by stretch of the first one."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from antiphon.audit.windows.ordering import Order
from antiphon.audit.windows.window import Delivered

Array = Any
Both = tuple[Delivered, Delivered]
"""One message as two sites delivered it."""


class Shared(NamedTuple):
    """What two sites share of one stretch of the first site's: its ends, and the first two that differ."""

    site: int
    other: int
    first: Both
    last: Both
    differing: tuple[Both, Both] | None


def shared_stretches(order: Order) -> list[Shared]:
    """For each pair of sites and each stretch of the first: the ends of what they share."""
    log = order.log
    found: list[Shared] = []
    at = np.full(log.message_count, -1, np.int64)
    for other in range(log.logged):
        theirs = np.arange(*log.delivery_starts[other : other + 2])
        at[log.delivered[theirs]] = theirs
        for begin, end in pairwise(order.edges.tolist()):
            site = int(order.sites[begin])
            if site < other:
                own = np.arange(begin, end)
                own = own[at[log.delivered[begin:end]] >= 0]
                if len(own):
                    found.append(_shared(order, site, other, own, at[log.delivered[own]]))
        at[log.delivered[theirs]] = -1
    return found


def _shared(order: Order, site: int, other: int, own: Array, theirs: Array) -> Shared:
    def both(index: int) -> Both:
        at = order.window.delivered
        return at(int(order.deliveries[own[index]])), at(int(order.deliveries[theirs[index]]))

    wrong = np.flatnonzero(np.diff(theirs) < 0)
    differing = (both(int(wrong[0])), both(int(wrong[0]) + 1)) if len(wrong) else None
    return Shared(site, other, both(0), both(-1), differing)
