"""Which members are alive: by the signs of life of neighbours, or by a failure detector that looks further.

With `heartbeat` silence of a neighbour for `suspect_after_ns` is the sign of a crash. In a large group the
other members learn it from the neighbours' statuses: a member that is no neighbour counts as alive until
a member of the view reports that it does not hear it. Outside the view its own silence counts.
The other detectors of `antiphon.protocols.detection` are objects of their own. Their PDUs and timers travel
as this protocol's, and any PDU of a member is a sign of life to them. Their times follow from
`suspect_after_ns`, so that all three take about that long.
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
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group, Peer
from antiphon.protocols.fifo.pdus import FifoConfiguration

DETECTOR: Final = "detector/"
"""The prefix of the detector's timers."""
STEPS: Final = 20
"""Gossip steps in `suspect_after_ns`, a little fewer than K_fail of ten members. Raising it costs PDUs."""
ARRIVAL: Final = 0.9
"""The share of PDUs that arrive, as K_fail assumes. Raising it costs wrong suspicions under loss."""
POLLS: Final = 2
"""Polls in `suspect_after_ns`; a member heard since the last poll is not asked. Raising it costs PDUs."""
TIMEOUTS: Final = 10
"""Time-outs of a poll in `suspect_after_ns`. Raising it costs wrong suspicions."""
RETRIES: Final = 3


class FailureDetection:
    """Tells the view which peers are alive, and which of them hear us."""

    def __init__(self, context: Context, group: Group) -> None:
        self._context = context
        self._group = group
        configuration = context.configuration
        make = MAKE[configuration.detector]
        self._detector = None if make is None else make(context.site, configuration, context.random)
        self._suspect_after_ns = configuration.suspect_after_ns
        self._updated_ns: Nanoseconds = 0

    def hears(self, now: Nanoseconds, peer: Peer) -> bool:
        """Whether a peer is taken to be alive."""
        if self._detector is not None:
            return not self._detector.suspects(peer.site)
        if self._is_far(peer):
            return peer.heard_ns > peer.doubted_ns - self._group.pace.tick_ns
        return peer.heard_ns > now - self.patience_ns(peer)

    def is_heard_by(self, now: Nanoseconds, peer: Peer) -> bool:
        """Whether a peer's latest reports say that it hears us.

        With a detector of its own a silent peer is judged by its last report, however old.
        """
        if self._detector is None and self._is_far(peer):
            return not peer.deaf
        since_ns = now if self._detector is None else peer.heard_ns
        return peer.hears_us_ns > since_ns - self.patience_ns(peer)

    def patience_ns(self, peer: Peer) -> Nanoseconds:
        """How long a peer may be silent.

        Of one outside a large view that has spoken since, statuses are all that is heard.
        """
        pace = self._group.pace
        waits = pace.is_large and not peer.in_view and peer.heard_ns > peer.outside_ns
        return self._suspect_after_ns + (2 * pace.status_ns if waits else 0)

    def _is_far(self, peer: Peer) -> bool:
        """Whether a peer is in the view and not our neighbour."""
        return peer.in_view and peer.site not in self._group.view.neighbours

    def update(self, now: Nanoseconds) -> None:
        """Tell the detector which peers were heard since it was last told."""
        if self._detector is None:
            return
        for peer in self._group.peers.values():
            if peer.heard_ns >= self._updated_ns:
                self._detector.believe(peer.site, peer.incarnation)
                self._detector.on_activity(now, peer.site, peer.incarnation)
        self._updated_ns = now

    def forget(self, site: Site) -> None:
        if self._detector is not None:
            self._detector.forget(site)

    def on_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> bool:
        """A PDU of a detector: whether its suspicions changed."""
        if self._detector is None:
            self._context.ignore()
            return False
        return self.handle(now, Received(sender, pdu))

    def fire(self, now: Nanoseconds, name: str) -> bool:
        return self.handle(now, TimerFired(name.removeprefix(DETECTOR)))

    def handle(self, now: Nanoseconds, event: Input) -> bool:
        """Let the detector handle an input, and carry out its effects; whether its suspicions changed."""
        if self._detector is None:
            return False
        self.update(now)
        changed = False
        before = self._detector.ignored
        for effect in self._detector.handle(now, event):
            match effect:
                case SetTimer(name=name, after_ns=after_ns):
                    self._context.emit(SetTimer(DETECTOR + name, after_ns))
                case Appeared() | Vanished():
                    changed = True
                case _:
                    self._context.emit(effect)
        self._context.counts["ignored"] += self._detector.ignored - before
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
