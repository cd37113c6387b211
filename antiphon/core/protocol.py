"""The protocol contract: a pure state machine, driven alike by the simulator and by the live runtime."""

from typing import Protocol as Interface

from antiphon.core.effects import Effect
from antiphon.core.inputs import Input
from antiphon.core.time import Nanoseconds


class Protocol(Interface):
    """One member's part in a protocol.

    `handle` is told what happened and when, changes its own state and returns what it wants done, in order.
    It reads no clock, socket, environment or global random generator: time is an argument, randomness is
    given at construction. Misuse by the caller raises `UsageError` and changes nothing. Whatever a peer
    sends, it never raises.
    """

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]: ...
