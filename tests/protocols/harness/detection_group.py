"""A group of failure detectors driven by hand: time passes by steps, PDUs travel at once unless dropped."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from antiphon.core.effects import Appeared, Effect, Multicast, Send, SetTimer, Vanished
from antiphon.core.inputs import Departed, Input, Received, Returned, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.detection import (
    PDUS,
    Detector,
    GossipConfiguration,
    GossipDetection,
    Heartbeat,
    HeartbeatConfiguration,
    Polling,
    PollingConfiguration,
)

K_FAIL = 12
"""Enough for the few members of these groups, and short."""
SILENCE_S = {"heartbeat": 5, "polling": 4, "gossip": 2 * K_FAIL}
"""Steps of silence after which all members know."""


def build(kind: str, site: str, members: tuple[str, ...], **knobs: Any) -> Detector:
    random = Random(site)
    if kind == "heartbeat":
        return Heartbeat(site, members, HeartbeatConfiguration(missing=3, **knobs), random)
    if kind == "polling":
        return Polling(site, members, PollingConfiguration(retries=2, **knobs), random)
    return GossipDetection(site, members, GossipConfiguration(**{"k_fail": K_FAIL} | knobs), random)


class Group:
    """Members a, b, c, …; those in `cut` neither hear nor speak, and their timers stand."""

    def __init__(self, kind: str, size: int = 4, make: Callable[..., Any] = build, **knobs: Any) -> None:
        self.kind = kind
        self.knobs = knobs
        self.make = make
        self.founders = tuple("abcdefgh"[:size])
        self.now = 0
        self.cut: set[str] = set()
        self.timers: dict[tuple[str, str], int] = {}
        self.travelling: deque[tuple[str, str, Pdu]] = deque()
        self.sent: list[tuple[str, str, Pdu]] = []
        self.drop: Callable[[str, str, Pdu], bool] = lambda _source, _target, _pdu: False
        self.events: dict[str, list[Appeared | Vanished]] = {}
        self.members: dict[str, Any] = {}
        self.codec = Codec(PDUS)
        for site in self.founders:
            self.members[site] = make(kind, site, self.founders, **knobs)
        for site in self.founders:
            self.give(site, Start())
        self.settle()

    def give(self, site: str, event: Input) -> list[Effect]:
        effects: list[Effect] = self.members[site].handle(self.now, event)
        self.carry_out(site, effects)
        return effects

    def carry_out(self, site: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.travel(site, (effect.to,), effect.pdu)
            elif isinstance(effect, Multicast):
                self.travel(site, effect.to or tuple(self.members), effect.pdu)
            elif isinstance(effect, SetTimer):
                self.timers[site, effect.name] = self.now + effect.after_ns
            elif isinstance(effect, Appeared | Vanished):
                self.events.setdefault(site, []).append(effect)

    def travel(self, source: str, targets: tuple[str, ...], pdu: Pdu) -> None:
        if any(type(pdu) is kind for kind in PDUS):
            packet = self.codec.decode(self.codec.encode(pdu, sender=source))
            assert isinstance(packet, Packet)
            assert packet.pdu == pdu
        for target in targets:
            if target != source:
                self.sent.append((source, target, pdu))
                self.travelling.append((source, target, pdu))

    def settle(self) -> None:
        while self.travelling:
            source, target, pdu = self.travelling.popleft()
            here = source not in self.cut and target not in self.cut and target in self.members
            if here and not self.drop(source, target, pdu):
                self.give(target, Received(source, pdu))

    def pass_time(self, seconds: float) -> None:
        end = self.now + round(seconds * SECOND_NS)
        while due := [(time, key) for key, time in self.timers.items() if time <= end]:
            time, key = min(due)
            del self.timers[key]
            if key[0] not in self.cut:
                self.now = time
                self.give(key[0], TimerFired(key[1]))
                self.now += MILLISECOND_NS
                self.settle()
        self.now = end

    def join(self, site: str, incarnation: int = 1) -> None:
        self.cut.discard(site)
        self.members[site] = self.make(self.kind, site, self.founders, **self.knobs)
        self.give(site, Start(incarnation, returning=True))
        self.settle()

    def crash(self, site: str) -> None:
        self.cut.add(site)
        self.timers = {key: time for key, time in self.timers.items() if key[0] != site}

    def leave(self, site: str) -> None:
        self.give(site, Departed())
        self.settle()
        self.crash(site)

    def come_back(self, site: str) -> None:
        self.cut.discard(site)
        self.give(site, Returned())
        self.settle()

    def suspecting(self, site: str) -> set[str]:
        """Who does not trust a site."""
        watching = set(self.members) - self.cut - {site}
        return {other for other in watching if self.members[other].suspects(site)}

    def told(self, site: str, kind: type[Any]) -> list[str]:
        return [event.site for event in self.events.get(site, []) if isinstance(event, kind)]
