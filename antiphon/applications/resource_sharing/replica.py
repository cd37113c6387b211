"""A member's replica of the resource: controllers and waiting requests. Only deliveries change it."""

from collections.abc import Sequence
from typing import Final, TypeAlias

from antiphon.applications.resource_sharing.messages import Allocation, Message, Release, Request
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds

MOST_MEMBERS: Final = 1024
"""Members whose requests are remembered; beyond that, the one heard longest ago is forgotten. Raising it
costs memory."""
UNKNOWN: Final = -1
"""The transfers of a unit that is unknown to a member since its return."""

RequestId: TypeAlias = tuple[Site, int]


class Unit:
    """One unit of the resource."""

    __slots__ = ("keeper", "request", "since_ns", "transfer")

    def __init__(self, keeper: Site | None, transfer: int, since_ns: Nanoseconds) -> None:
        self.keeper = keeper
        """The member that controls it; None if none does, or if it is unknown."""
        self.transfer = transfer
        self.request: RequestId | None = None
        """The request that it has been collected for; None when it is idle."""
        self.since_ns = since_ns
        """When it last changed hands or became idle, or the request that it is for became full."""


class Waiting:
    """A request in the queue."""

    __slots__ = ("id", "is_full", "need", "since_ns")

    def __init__(self, request: RequestId, need: int, since_ns: Nanoseconds) -> None:
        self.id = request
        self.need = need
        self.is_full = False
        """Whether it has all the units that it needs; from then on it takes no more."""
        self.since_ns = since_ns


class Replica:
    """The state after the messages delivered so far."""

    def __init__(self, keepers: Sequence[Site]) -> None:
        self.units = [Unit(keeper, 0, 0) for keeper in keepers]
        self.queue: dict[Site, Waiting] = {}
        """Requests in the order of their delivery, at most one for each member."""
        self.hungry_since_ns: Nanoseconds | None = None
        """Since when a request waits for units."""
        self._ended: dict[Site, int] = {}
        """The number of each member's last request that is over."""

    def forget(self, now: Nanoseconds) -> None:
        """After an absence nothing is known, and what comes is believed."""
        self.units = [Unit(None, UNKNOWN, now) for _ in self.units]
        self.queue.clear()
        self._ended.clear()
        self.hungry_since_ns = None

    def apply(self, now: Nanoseconds, sender: Site, message: Message) -> None:
        """Change by one delivered message."""
        match message:
            case Request():
                self._request(now, (sender, message.number), message.need)
            case Allocation():
                self._allocate(now, message)
            case Release():
                self._release(now, sender, message)
        if not any(not waiting.is_full for waiting in self.queue.values()):
            self.hungry_since_ns = None
        elif self.hungry_since_ns is None:
            self.hungry_since_ns = now

    def collected(self, request: RequestId) -> list[int]:
        """The units that a request has got."""
        return [index for index, unit in enumerate(self.units) if unit.request == request]

    def is_over(self, request: RequestId) -> bool:
        """Whether a request is known to have ended."""
        return request[1] <= self._ended.get(request[0], -1)

    def image(self) -> tuple[tuple[tuple[Site | None, int, RequestId | None], ...], tuple[RequestId, ...]]:
        """Everything except times: equal wherever the same was delivered in the same order."""
        units = tuple((unit.keeper, unit.transfer, unit.request) for unit in self.units)
        return units, tuple(waiting.id for waiting in self.queue.values())

    def _request(self, now: Nanoseconds, request: RequestId, need: int) -> None:
        site, number = request
        before = self.queue.get(site)
        if self.is_over(request) or (before is not None and number <= before.id[1]):
            return  # it came after its own end: out of order
        self._end(site, number - 1)
        waiting = self.queue[site] = Waiting(request, need, now)
        early = [self.units[index] for index in self.collected(request)]  # out of order
        for unit in early:
            unit.request = None
        for unit in early:
            self._assign(now, unit, waiting)

    def _allocate(self, now: Nanoseconds, message: Allocation) -> None:
        request = (message.site, message.number)
        waiting = self.queue.get(message.site)
        for index, transfer in message.transfers:
            unit = self.units[index]
            if transfer <= unit.transfer:
                continue  # another allocation of that unit was faster
            if message.claimed and unit.transfer == UNKNOWN:
                continue  # of several who claim a unit the first gets it: maybe one from before the return
            if message.claimed:
                self._dismiss(unit.request)
            unit.keeper, unit.transfer, unit.since_ns, unit.request = message.site, transfer, now, None
            if waiting is not None and waiting.id == request:
                self._assign(now, unit, waiting)
            elif self._is_ahead(request, waiting):
                unit.request = request

    def _is_ahead(self, request: RequestId, waiting: Waiting | None) -> bool:
        """Whether a request has yet to be delivered here."""
        site, number = request
        known = self._ended.get(site, -1) if waiting is None else waiting.id[1]
        return number > known

    def _assign(self, now: Nanoseconds, unit: Unit, waiting: Waiting) -> None:
        """Count an idle unit towards a request, unless that has enough."""
        if waiting.is_full:
            return
        unit.request = waiting.id
        collected = self.collected(waiting.id)
        if len(collected) >= waiting.need:
            waiting.is_full = True
            for index in collected:
                self.units[index].since_ns = now

    def _dismiss(self, request: RequestId | None) -> None:
        """The member that a unit was collected for has vanished, and its request with it."""
        if request is not None:
            self._end(*request)

    def _release(self, now: Nanoseconds, site: Site, message: Release) -> None:
        if message.number < self._ended.get(site, -1):
            return
        for unit in self.units:
            if unit.request is not None and unit.request[0] == site and unit.request[1] <= message.number:
                unit.request, unit.since_ns = None, now
            if message.forgotten and unit.keeper == site:
                unit.keeper = None
        self._end(site, message.number)

    def _end(self, site: Site, number: int) -> None:
        """Requests of a member up to a number are over."""
        if site in self.queue and self.queue[site].id[1] <= number:
            del self.queue[site]
        self._ended[site] = max(number, self._ended.pop(site, -1))
        if len(self._ended) > MOST_MEMBERS:
            forgotten = next(iter(self._ended))
            del self._ended[forgotten]
            self.queue.pop(forgotten, None)
