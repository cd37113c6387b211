"""Flow control: the pause between 'message' PDUs that the slowest member asks for.

Source: Konorski, section 4.5. An overflow of the ordering buffers adds Delta to Message_Cycle, and each
Fc_Cycle takes Delta off again. In the paper a member adopts the greatest Message_Cycle that it hears and
reports it as its own: so each member holds up all others, and the cycle hardly ever decreases. Here a member
reports only its own demand, and obeys the greatest demand that it heard recently. Demands grow by Delta. Of a
demand that leaps only the first steps are believed, more with each report: a single report changes little.
"""

from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import NEVER_NS, Nanoseconds

MOST_SITES: Final = 1024
"""Other members whose demands are remembered. Raising it costs memory."""
MOST_STEPS: Final = 16
"""Overflows that a member is believed to have had between two reports. Raising it lets a lie do more."""


class Flow:
    """Paces one member's 'message' PDUs."""

    __slots__ = (
        "_delta_ns", "_demands", "_fc_cycle_ns", "_floor_ns", "_greatest_ns", "_longest_ns", "_memory_ns",
        "_outdated_ns", "_sent_ns", "_stepped_ns", "own_ns",
    )  # fmt: skip

    def __init__(
        self,
        floor_ns: Nanoseconds,
        delta_ns: Nanoseconds,
        fc_cycle_ns: Nanoseconds,
        longest_ns: Nanoseconds,
        memory_ns: Nanoseconds,
    ) -> None:
        self._floor_ns: Final = floor_ns
        self._delta_ns: Final = delta_ns
        self._fc_cycle_ns: Final = fc_cycle_ns
        self._longest_ns: Final = max(longest_ns, floor_ns)
        self._memory_ns: Final = memory_ns
        self.own_ns = floor_ns
        """This member's own demand, which its reports carry."""
        self._stepped_ns: Nanoseconds = 0
        self._sent_ns: Nanoseconds | None = None
        self._demands: dict[Site, tuple[Nanoseconds, Nanoseconds]] = {}
        """Demands of other members above the floor, and until when each counts."""
        self._greatest_ns = floor_ns
        self._outdated_ns: Nanoseconds = NEVER_NS
        """When the greatest of them may no longer count."""

    def overflowed(self, now: Nanoseconds) -> None:
        """There was no ordering buffer for a message."""
        self.tick(now)
        if self.own_ns == self._floor_ns:
            self._stepped_ns = now
        self.own_ns = min(self.own_ns + self._delta_ns, self._longest_ns)

    def tick(self, now: Nanoseconds) -> None:
        """Take the steps down that are due."""
        if self.own_ns > self._floor_ns:
            steps = (now - self._stepped_ns) // self._fc_cycle_ns
            self._stepped_ns += steps * self._fc_cycle_ns
            self.own_ns = max(self.own_ns - steps * self._delta_ns, self._floor_ns)

    def on_report(self, now: Nanoseconds, site: Site, demand_ns: Nanoseconds) -> None:
        """Another member's demand, which replaces its earlier one."""
        had = self._demands.pop(site, None)
        if demand_ns > self._floor_ns:
            if len(self._demands) >= MOST_SITES:
                del self._demands[next(iter(self._demands))]
            before_ns = self._floor_ns if had is None else had[0]
            most_ns = min(before_ns + MOST_STEPS * self._delta_ns, self._longest_ns)
            self._demands[site] = (min(demand_ns, most_ns), now + self._memory_ns)
        elif had is None:
            return
        self._find_greatest(now)

    def forget(self, now: Nanoseconds, site: Site) -> None:
        """A member that is gone demands nothing."""
        if self._demands.pop(site, None) is not None:
            self._find_greatest(now)

    def _find_greatest(self, now: Nanoseconds) -> None:
        for site in [site for site, (_, until_ns) in self._demands.items() if until_ns <= now]:
            del self._demands[site]
        self._greatest_ns = max((demand for demand, _ in self._demands.values()), default=self._floor_ns)
        self._outdated_ns = min((until_ns for _, until_ns in self._demands.values()), default=NEVER_NS)

    def cycle_ns(self, now: Nanoseconds) -> Nanoseconds:
        """Message_Cycle: the greatest of our own demand and those heard recently."""
        if now >= self._outdated_ns:
            self._find_greatest(now)
        return max(self.own_ns, self._greatest_ns)

    def ready(self, now: Nanoseconds) -> bool:
        """Whether a 'message' PDU may be sent."""
        return self._sent_ns is None or now - self._sent_ns >= self.cycle_ns(now)

    def sent(self, now: Nanoseconds) -> None:
        self._sent_ns = now

    def wait_ns(self, now: Nanoseconds) -> Nanoseconds:
        """How long until a 'message' PDU may be sent."""
        if self._sent_ns is None:
            return 0
        return max(0, self._sent_ns + self.cycle_ns(now) - now)
