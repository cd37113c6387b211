"""Clocks for the protocol's cycles: real time, real time at the group's common rate, or messages received.

Source: Konorski, section 4 (reports synchronise the rates of local clocks) and section 6 (clocks prove not
accurate enough, so cycles are counted in received 'message' PDUs). In a silent group a count alone would
stop, and with it every cycle that is awaited: then real time goes on.
"""

from math import ceil
from statistics import median
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.protocols.dpg.pdus import DpgConfiguration

MOST_SITES: Final = 64
"""Other members whose clocks are followed; a median over more would not be better."""
SPAN_NS: Final = 2 * SECOND_NS
"""A rate is measured over at least this long. Raising it lets delays that vary matter less."""
MEMORY_NS: Final = 30 * SECOND_NS
"""How long the rate of a silent member counts. Raising it keeps the rates of members that are gone."""
SMOOTHING: Final = 0.25
"""The weight of a new measurement of one clock's rate."""
PULL: Final = 0.5
"""The share of the way to the median that our rate goes at each measurement."""
MOST_OFF: Final = 0.02
"""No clock is believed to be faster or slower than ours by more than this share."""
JUMP: Final = 0.5
"""A clock that is off by more than this share has not run: it has jumped."""
COUNT_UNITS: Final = 8
"""Messages that make up a report cycle where cycles are counted in messages."""


class Clock:
    """A member's own time, by which it counts its cycles. This one is real time."""

    __slots__ = ("rate",)

    def __init__(self) -> None:
        self.rate = 1.0
        """Own nanoseconds in a real one."""

    def time(self, now: Nanoseconds) -> Nanoseconds:
        """Own time, which never goes back."""
        return now

    def until(self, now: Nanoseconds, own_deadline_ns: Nanoseconds) -> Nanoseconds:
        """A real pause, of 1 ns at least, after which own time may have reached the deadline."""
        return max(1, own_deadline_ns - now)

    def message(self, now: Nanoseconds) -> None:
        """A 'message' PDU was received."""

    def on_report(self, now: Nanoseconds, site: Site, their_clock_ns: Nanoseconds) -> None:
        """Another member's report tells its clock; only the progress of that clock matters."""


class PeerRate:
    """Another member's clock: where its measurement began, and the rate found so far."""

    __slots__ = ("heard_ns", "rate", "since_ns", "their_since_ns")

    def __init__(self, now: Nanoseconds, their_clock_ns: Nanoseconds) -> None:
        self.rate: float | None = None
        self.begin(now, their_clock_ns)

    def begin(self, now: Nanoseconds, their_clock_ns: Nanoseconds) -> None:
        self.since_ns = self.heard_ns = now
        self.their_since_ns = their_clock_ns

    def measure(self, now: Nanoseconds, their_clock_ns: Nanoseconds) -> bool:
        """Whether there is a new measurement of the rate."""
        self.heard_ns = now
        elapsed_ns, theirs_ns = now - self.since_ns, their_clock_ns - self.their_since_ns
        if elapsed_ns < SPAN_NS and theirs_ns >= 0:
            return False
        self.begin(now, their_clock_ns)
        if abs(theirs_ns - elapsed_ns) > JUMP * elapsed_ns:
            self.rate = None
            return False
        found = min(max(theirs_ns / elapsed_ns, 1 - MOST_OFF), 1 + MOST_OFF)
        self.rate = found if self.rate is None else self.rate + SMOOTHING * (found - self.rate)
        return True


class RateClock(Clock):
    """Real time at the median rate of the group's clocks, our own among them.

    Reports carry each site's real clock, not its own time: so all members take the median over the same
    clocks, and the common rate cannot drift away.
    """

    __slots__ = ("_begin_ns", "_heard", "_own_begin_ns")

    def __init__(self) -> None:
        super().__init__()
        self._begin_ns: Nanoseconds = 0
        self._own_begin_ns: Nanoseconds = 0
        self._heard: dict[Site, PeerRate] = {}

    def time(self, now: Nanoseconds) -> Nanoseconds:
        elapsed_ns = now - self._begin_ns
        # The difference alone is rounded: since the beginning more may have passed than a float tells apart.
        return self._own_begin_ns + elapsed_ns + int(elapsed_ns * (self.rate - 1))

    def until(self, now: Nanoseconds, own_deadline_ns: Nanoseconds) -> Nanoseconds:
        return max(1, ceil((own_deadline_ns - self.time(now)) / self.rate))

    def on_report(self, now: Nanoseconds, site: Site, their_clock_ns: Nanoseconds) -> None:
        heard = self._heard.pop(site, None)
        if heard is None:
            if len(self._heard) >= MOST_SITES:
                del self._heard[next(iter(self._heard))]
            self._heard[site] = PeerRate(now, their_clock_ns)
            return
        self._heard[site] = heard  # the member heard last stands last
        if heard.measure(now, their_clock_ns):
            self._follow(now)

    def _follow(self, now: Nanoseconds) -> None:
        rates = [1.0]
        for site, heard in list(self._heard.items()):
            if now - heard.heard_ns > MEMORY_NS:
                del self._heard[site]
            elif heard.rate is not None:
                rates.append(heard.rate)
        self._own_begin_ns, self._begin_ns = self.time(now), now
        self.rate += PULL * (median(rates) - self.rate)


class CountClock(Clock):
    """Own time goes on by `unit_ns` with each message; after `idle_ns` without one, with real time."""

    __slots__ = ("_gap_ns", "_idle_ns", "_last_ns", "_own_ns", "_unit_ns")

    def __init__(self, unit_ns: Nanoseconds, idle_ns: Nanoseconds) -> None:
        super().__init__()
        self._unit_ns: Final = unit_ns
        self._idle_ns: Final = idle_ns
        self._own_ns: Nanoseconds = 0
        self._last_ns: Nanoseconds = 0
        self._gap_ns: Nanoseconds = idle_ns
        """The usual pause between messages."""

    def time(self, now: Nanoseconds) -> Nanoseconds:
        return self._own_ns + max(0, now - self._last_ns - self._idle_ns)

    def until(self, now: Nanoseconds, own_deadline_ns: Nanoseconds) -> Nanoseconds:
        """Messages go on as usual, or none follows: the sooner of the two."""
        missing_ns = own_deadline_ns - self.time(now)
        silent_ns = max(0, self._last_ns + self._idle_ns - now) + missing_ns
        usual_ns = -(-missing_ns // self._unit_ns) * self._gap_ns
        return max(1, min(silent_ns, usual_ns))

    def message(self, now: Nanoseconds) -> None:
        self._own_ns = self.time(now) + self._unit_ns
        self._gap_ns += (min(now - self._last_ns, self._idle_ns) - self._gap_ns) // 8
        self._last_ns = now


def build_clock(configuration: DpgConfiguration) -> Clock:
    """The clock that the configuration asks for."""
    if configuration.cycles == "clock":
        return RateClock()
    return CountClock(configuration.report_cycle_ns // COUNT_UNITS, configuration.idle_ns)
