"""Clocks that run too fast or too slow: a protocol object that lives by its own clock.

Each site's rate is drawn once, evenly up to the given drift. Its timers run by its own clock as well. So
cycles differ between sites, and stamps in PDUs drift apart unless members synchronise their rates.
"""

from math import ceil
from random import Random
from typing import Final

from antiphon.core.effects import Effect, SetTimer
from antiphon.core.inputs import Input
from antiphon.core.protocol import Protocol
from antiphon.core.time import Nanoseconds

PER_MILLION: Final = 1e-6


class Drifting:
    """A protocol object by a clock of its own."""

    def __init__(self, protocol: Protocol, drift_ppm: float, random: Random) -> None:
        """`drift_ppm` is the greatest drift, in microseconds a second."""
        self._handle = protocol.handle
        self.rate: Final = 1.0 + PER_MILLION * random.uniform(-drift_ppm, drift_ppm)

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        local_ns = now + int(now * (self.rate - 1.0))
        return [self._by_world_time(effect) for effect in self._handle(local_ns, event)]

    def _by_world_time(self, effect: Effect) -> Effect:
        if not isinstance(effect, SetTimer):
            return effect
        return SetTimer(effect.name, max(1, ceil(effect.after_ns / self.rate)))
