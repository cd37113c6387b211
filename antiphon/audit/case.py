"""One run while it is judged: its log, what several properties share, and how violations are kept.

A property is a function from a `Case` to the number of its violations and those that are explained. What is
costly and not always needed, such as the merged order, is made when it is first asked for.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from antiphon.audit.kernels import atomicity, deliveries
from antiphon.audit.lanes import Lanes, lanes_of
from antiphon.audit.log import Log
from antiphon.audit.ordering import Order
from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import Property

Array = Any
Finding = tuple[int, list[Violation]]
"""How many violations a property has, and those that are explained."""


class Case:
    """One log, judged by the properties in `limits`, which bounds how many violations of each are explained.

    A bound of None explains all of them.
    """

    def __init__(self, log: Log, limits: Mapping[Property, int | None], in_order: bool) -> None:
        self.log = log
        self.limits = limits
        self._in_order = in_order
        self.circular = False
        """Whether some message precedes itself, as far as was judged."""

    @cached_property
    def lanes(self) -> Lanes:
        return lanes_of(self.log)

    @cached_property
    def order(self) -> Order:
        return Order(self.lanes, self.log.message_count)

    @cached_property
    def in_order(self) -> bool:
        """Whether a spell of presence is judged by the run's total order, not by senders' numbers."""
        return self._in_order and not self.order.components

    @cached_property
    def first(self) -> Array:
        """Where each message was first delivered; -1 if nowhere."""
        return deliveries.first_deliveries(self.log.delivered, self.log.message_count)

    @cached_property
    def absent(self) -> Array:
        """Which sites have absent rows."""
        return atomicity.absent_sites(self.log.kinds, self.log.starts, len(self.log.sites))

    @cached_property
    def holed(self) -> Array:
        """Which sites' logs have holes: what they lack proves nothing."""
        named = {site for site, _ in self.log.evidence.holes}
        return np.array([site in named for site in self.log.sites], np.bool_)

    def spells(self, site: int) -> list[tuple[int, int]]:
        """A site's spells of presence that hold deliveries, as ranges of places."""
        log = self.log
        begin, end = log.starts[site], log.starts[site + 1]
        return list(atomicity.find_spells(log.kinds, begin, end, log.delivery_starts[site]))

    def search(
        self, name: Property, search: Callable[[Array], int], weigh: Callable[[Array], int]
    ) -> tuple[int, Array]:
        """Count with a kernel, and keep the violations to explain."""
        limit = self.limits[name]
        found = np.empty((limit or 0, 2), np.int64)
        count = search(found)
        explained = count if limit is None else min(count, limit)
        if count > len(found) and (limit is None or len(self.log.weights)):
            found = np.empty((count, 2), np.int64)
            search(found)
        return weigh(found[:count]) if len(found) >= count else count, found[:explained]

    def room(self, name: Property, explained: int) -> int | None:
        """How many more violations to explain; None for all."""
        limit = self.limits[name]
        return None if limit is None else max(limit - explained, 0)

    def weigh_deliveries(self, found: Array) -> int:
        """The messages of these places among all deliveries."""
        return self.log.weigh(self.log.delivered[found[:, 0]])

    def weigh_lanes(self, found: Array) -> int:
        """The messages of these places in the lanes."""
        return self.log.weigh(self.lanes.delivered[found[:, 0]])

    def message_at(self, place: int) -> MessageId:
        return self.log.message_id(int(self.log.delivered[place]))

    def delivered_at(self, place: int) -> tuple[Site, int]:
        """The site and the step of a delivery."""
        return self.log.place(int(self.log.delivery_entries[place]))

    def witness(self, place: int) -> Witness:
        return Witness(*self.delivered_at(place), *self.message_at(place))

    def sent_rows(self) -> Array:
        """Each sent message's row in a table of vectors; -1 for unsent messages."""
        sent = self.log.send_entry >= 0
        return np.where(sent, np.cumsum(sent) - 1, -1).astype(np.int32)
