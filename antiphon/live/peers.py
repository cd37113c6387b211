"""The other members as this one sees them: how far behind, how distant, and how long sending waited for
each."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from antiphon.core.ids import Site
from antiphon.core.protocol import PeerReport
from antiphon.core.time import MILLISECOND_NS, Nanoseconds, to_seconds

PATIENCE_NS: Final[Nanoseconds] = 5 * MILLISECOND_NS
"""Shorter waits are normal flow control and are not attributed. A longer wait is attributed once per such
interval. Raising it makes the attribution less exact."""

MOST_REMEMBERED: Final = 1024
"""Members whose total waiting time is kept."""


class Peer(msgspec.Struct, frozen=True):
    """Another member; None for what this member does not know."""

    site: Site
    lag: int | None
    """Messages that this member has sent or delivered, and that the other is not known to hold."""
    silence_s: float | None
    """Time since its last datagram."""
    round_trip_s: float | None
    """How long it recently took to acknowledge a message of ours."""
    lost: int | None
    """Batches that it has requested from us again."""
    holding_us_up: bool
    """Whether our sending waits for it now."""
    held_us_up_s: float
    """Total time that our sending has waited for it."""


class Holdups:
    """Which members this member's sending has waited for, and how long."""

    def __init__(self, ask: Callable[[], Iterable[Site]]) -> None:
        """`ask` returns the members that it waits for."""
        self._ask = ask
        self._since_ns: Nanoseconds | None = None
        """Since when nothing is taken, and when the reason was last asked."""
        self._looked_ns: Nanoseconds = 0
        self._named: frozenset[Site] = frozenset()
        self._waited_ns: dict[Site, Nanoseconds] = {}

    def refused(self, now: Nanoseconds) -> None:
        """The protocol has refused a batch."""
        if self._since_ns is None:
            self._since_ns = self._looked_ns = now
        elif now - self._looked_ns >= PATIENCE_NS:
            self._named = frozenset(self._ask())
            self._count(now)

    def taken(self, now: Nanoseconds) -> None:
        """The protocol has taken a batch: the wait is over."""
        if self._since_ns is None:
            return
        self._count(now)
        self._since_ns = None
        self._named = frozenset()

    def _count(self, now: Nanoseconds) -> None:
        for site in self._named:
            # Ordered by the last wait, the latest at the end.
            self._waited_ns[site] = self._waited_ns.pop(site, 0) + now - self._looked_ns
        while len(self._waited_ns) > MOST_REMEMBERED:
            del self._waited_ns[next(iter(self._waited_ns))]
        self._looked_ns = now

    def view(self, now: Nanoseconds, reports: Mapping[Site, PeerReport]) -> dict[Site, Peer]:
        """All members that the protocol reports. Other threads may call this, so it changes nothing."""
        waits_ns = 0 if self._since_ns is None else now - self._since_ns
        is_long = waits_ns >= PATIENCE_NS
        return {
            site: Peer(
                site,
                report.lag,
                None if report.heard_ns is None else max(0.0, to_seconds(now - report.heard_ns)),
                None if report.round_trip_ns is None else to_seconds(report.round_trip_ns),
                report.asked,
                is_long and report.holds_us_up,
                to_seconds(self._waited_ns.get(site, 0)),
            )
            for site, report in sorted(reports.items())
        }
