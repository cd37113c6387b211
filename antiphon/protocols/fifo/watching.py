"""Who is heard of, and who hears us: by the statuses alone, or by a failure detector that looks further.

With `heartbeat` the statuses are the heartbeats, and silence for `suspect_after_ns` is the sign. The other
detectors of `antiphon.protocols.detection` are objects of their own, whose PDUs and timers travel as ours and
to which everything heard is a sign of life. Their times follow from `suspect_after_ns`, so that all three
take about that long.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from antiphon.core.effects import Appeared, SetTimer, Vanished
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.detection import (
    Detector,
    GossipConfiguration,
    GossipDetection,
    Polling,
    PollingConfiguration,
)
from antiphon.protocols.fifo.pdus import FifoConfiguration
from antiphon.protocols.fifo.state import Peer, State

DETECTOR: Final = "detector/"
"""What the detector's own timers are called here."""
STEPS: Final = 20
"""Gossip's steps in `suspect_after_ns`; K_fail of some ten members is a little more."""
ARRIVAL: Final = 0.9
"""The share of PDUs that K_fail takes to arrive."""
POLLS: Final = 2
"""Polls in `suspect_after_ns`; a member that was heard of since the last one is not asked."""
TIMEOUTS: Final = 10
"""A poll's time-outs in `suspect_after_ns`."""
RETRIES: Final = 3


class Watching:
    """One member's ears."""

    def __init__(self, state: State) -> None:
        self._state = state
        make = MAKE[state.configuration.detector]
        self._detector = None if make is None else make(state.site, state.configuration, state.random)
        self._told_ns: Nanoseconds = 0

    def hears(self, now: Nanoseconds, peer: Peer) -> bool:
        """Whether a member was heard of lately, or is held to be there."""
        if self._detector is None:
            return peer.heard_ns > now - self._state.configuration.suspect_after_ns
        return not self._detector.suspects(peer.site)

    def is_heard_by(self, now: Nanoseconds, peer: Peer) -> bool:
        """Whether a member has lately said that it hears us; who is silent says nothing to a detector."""
        since_ns = now if self._detector is None else peer.heard_ns
        return peer.listed_ns > since_ns - self._state.configuration.suspect_after_ns

    def tell(self, now: Nanoseconds) -> None:
        """Whoever was heard of since the detector was last told shows life."""
        if self._detector is None:
            return
        for peer in self._state.peers.values():
            if peer.heard_ns >= self._told_ns:
                self._detector.believe(peer.site, peer.incarnation)
                self._detector.heard(now, peer.site, peer.incarnation)
        self._told_ns = now

    def forget(self, site: Site) -> None:
        if self._detector is not None:
            self._detector.forget(site)

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> bool:
        """A PDU of a detector: whether someone has come or gone."""
        if self._detector is None:
            self._state.ignore()
            return False
        return self.handle(now, Received(sender, pdu))

    def fire(self, now: Nanoseconds, name: str) -> bool:
        return self.handle(now, TimerFired(name.removeprefix(DETECTOR)))

    def handle(self, now: Nanoseconds, event: Input) -> bool:
        """Let the detector handle an input, and carry out what it wants; whether someone has come or gone."""
        if self._detector is None:
            return False
        self.tell(now)
        changed = False
        before = self._detector.ignored
        for effect in self._detector.handle(now, event):
            match effect:
                case SetTimer(name=name, after_ns=after_ns):
                    self._state.effects.append(SetTimer(DETECTOR + name, after_ns))
                case Appeared() | Vanished():
                    changed = True
                case _:
                    self._state.effects.append(effect)
        self._state.counts["ignored"] += self._detector.ignored - before
        return changed


def _make_polling(site: Site, configuration: FifoConfiguration, random: Random) -> Detector:
    knobs = PollingConfiguration(
        period_ns=max(RETRIES + 2, configuration.suspect_after_ns // POLLS),
        timeout_ns=max(1, configuration.suspect_after_ns // TIMEOUTS),
        retries=RETRIES,
        largest_group=configuration.largest_group,
    )
    return Polling(site, (site,), knobs, random)


def _make_gossip(site: Site, configuration: FifoConfiguration, random: Random) -> Detector:
    knobs = GossipConfiguration(
        step_ns=max(1, configuration.suspect_after_ns // STEPS),
        subset=configuration.detector_subset,
        mistake=configuration.mistake,
        arrival=ARRIVAL,
        largest_group=configuration.largest_group,
    )
    return GossipDetection(site, (site,), knobs, random)


MAKE: Final[dict[str, Callable[[Site, FifoConfiguration, Random], Detector] | None]] = {
    "heartbeat": None,
    "polling": _make_polling,
    "gossip": _make_gossip,
}
