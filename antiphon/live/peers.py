"""The other members as this one sees them: how far behind, how far away, and for whom our sending waits."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from antiphon.core.ids import Site
from antiphon.core.protocol import PeerReport
from antiphon.core.time import MILLISECOND_NS, Nanoseconds, to_seconds

PATIENCE_NS: Final[Nanoseconds] = 5 * MILLISECOND_NS
"""A wait shorter than this is how flow control works, and is put down to nobody. A longer one is looked at
after each such time. Raising it costs how exactly it is told who was waited for."""

MOST_REMEMBERED: Final = 1024
"""Members of which it is remembered how long they were waited for."""


class Peer(msgspec.Struct, frozen=True):
    """Another member; None where this one knows nothing."""

    site: Site
    lag: int | None
    """Messages that this member has sent or delivered, and that the other is not known to hold."""
    silence_s: float | None
    """Since it was last heard."""
    round_trip_s: float | None
    """How long it took lately to acknowledge a message of ours."""
    lost: int | None
    """Batches that it has asked us for again."""
    holding_us_up: bool
    """Whether our sending waits for it now."""
    held_us_up_s: float
    """How long our sending has waited for it in all."""


class Holdups:
    """For whom this member's sending has waited, and how long."""

    def __init__(self, ask: Callable[[], Iterable[Site]]) -> None:
        """`ask` finds out for whom it waits."""
        self._ask = ask
        self._since_ns: Nanoseconds | None = None
        """Since when nothing is taken, and when it was last looked at why."""
        self._looked_ns: Nanoseconds = 0
        self._named: frozenset[Site] = frozenset()
        self._waited_ns: dict[Site, Nanoseconds] = {}

    def refused(self, now: Nanoseconds) -> None:
        """What was handed in is not taken."""
        if self._since_ns is None:
            self._since_ns = self._looked_ns = now
        elif now - self._looked_ns >= PATIENCE_NS:
            self._named = frozenset(self._ask())
            self._count(now)

    def taken(self, now: Nanoseconds) -> None:
        """It is: nobody is waited for any more."""
        if self._since_ns is None:
            return
        self._count(now)
        self._since_ns = None
        self._named = frozenset()

    def _count(self, now: Nanoseconds) -> None:
        for site in self._named:
            # Whoever was waited for last stands last.
            self._waited_ns[site] = self._waited_ns.pop(site, 0) + now - self._looked_ns
        while len(self._waited_ns) > MOST_REMEMBERED:
            del self._waited_ns[next(iter(self._waited_ns))]
        self._looked_ns = now

    def view(self, now: Nanoseconds, reports: Mapping[Site, PeerReport]) -> dict[Site, Peer]:
        """Everyone that the protocol reports. It may be asked from another thread, so it changes nothing."""
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
