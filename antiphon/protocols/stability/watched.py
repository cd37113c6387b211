"""A stability protocol joined with a failure detector, so that a dead member never blocks release.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 3.2. Any of the stability protocols is
joined with any of the detectors: each gets its own PDUs and timers, every PDU of the former is a sign of life
to the latter, and a member that vanishes or appears for the detector is suspected or restored in the
protocol.

Assumes: what the two assume; the members of the stability protocol are named to the detector. A member on
that list that is not there yet is suspected like one that is gone, and waited for from the moment it appears.
Guarantees: a round ends although members have crashed, as soon as the detector suspects them where it
matters; a member that is back, or was suspected wrongly, is waited for again. All members that the member
computing a result did not suspect at that moment held everything in it (checker: stability).
A member may lack what was declared while it was suspected, wrongly or not: no member waits for it or keeps a
copy for it, and it declares nothing stable itself that it does not hold. An owner that cannot accept that
lets no member back without a new view; reliable FIFO multicast does so.
"""

from collections.abc import Sequence
from typing import Final
from typing import Protocol as Interface

from antiphon.core.effects import Appeared, Effect, SetTimer, Vanished
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, Restored, RoundTriggered, Suspected, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.protocols import detection
from antiphon.protocols.detection import Detector

DETECTOR: Final = "detector/"
"""The prefix of the detector's timers; the stability protocol's keep their names."""
DETECTOR_PDUS: Final = frozenset(detection.PDUS)


class Partner(Interface):
    """The interface of a stability protocol for this: all have it."""

    site: Site
    ignored: int

    def hold(self, sender: Site, count: int) -> None: ...

    def hold_all(self, counts: Sequence[int]) -> None: ...

    def begin(self, held: Sequence[int], stable: Sequence[int]) -> None: ...

    @property
    def coordinator(self) -> Site: ...

    @property
    def under_way(self) -> bool: ...

    @property
    def held(self) -> tuple[int, ...]: ...

    @property
    def stable(self) -> tuple[int, ...]: ...

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]: ...


class Watched:
    """One member's part in both; implements `antiphon.core.protocol.Protocol`."""

    def __init__(self, stability: Partner, detector: Detector) -> None:
        if stability.site != detector.site:
            raise UsageError(
                f"The detector of '{detector.site}' cannot serve '{stability.site}'.",
                hint="Give both the same site.",
            )
        self.site = stability.site
        self.stability = stability
        """The owner reports what is held to it, and asks it what is stable."""
        self.detector = detector

    @property
    def ignored(self) -> int:
        """PDUs that made no sense and were dropped."""
        return self.stability.ignored + self.detector.ignored

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        stability, detector = self.stability, self.detector
        match event:
            case Received(pdu=pdu) if type(pdu) in DETECTOR_PDUS:
                return self._relay(now, detector.handle(now, event))
            case Received(sender=sender):
                # A member that sends is alive, and must be waited for before its PDU is handled.
                return self._relay(now, detector.on_activity(now, sender)) + stability.handle(now, event)
            case TimerFired(name=name) if name.startswith(DETECTOR):
                return self._relay(now, detector.handle(now, TimerFired(name.removeprefix(DETECTOR))))
            case TimerFired() | RoundTriggered() | Suspected() | Restored():
                return stability.handle(now, event)
            case _:
                return self._relay(now, detector.handle(now, event))

    def _relay(self, now: Nanoseconds, effects: list[Effect]) -> list[Effect]:
        """The detector's effects; its suspicions go to the stability protocol too."""
        wanted: list[Effect] = []
        for effect in effects:
            match effect:
                case SetTimer(name=name, after_ns=after_ns):
                    wanted.append(SetTimer(DETECTOR + name, after_ns))
                case Vanished(site=site):
                    wanted += [effect, *self.stability.handle(now, Suspected(site))]
                case Appeared(site=site):
                    wanted += [effect, *self.stability.handle(now, Restored(site))]
                case _:
                    wanted.append(effect)
        return wanted
