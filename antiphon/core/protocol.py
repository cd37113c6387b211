"""The protocol contract: a pure state machine, driven by the simulator and by the live runtime."""

from collections.abc import Mapping
from typing import Protocol as Interface

import msgspec

from antiphon.core.effects import Effect
from antiphon.core.ids import Site
from antiphon.core.inputs import Input
from antiphon.core.time import Nanoseconds


class Protocol(Interface):
    """One member's part in a protocol.

    `handle` gets an input and the time, changes its own state and returns the effects that it wants, in
    order. It reads no clock, socket, environment or global random generator: time is an argument, randomness
    is given at construction. Misuse by the caller raises `UsageError` and changes nothing. No PDU of a peer
    makes it raise.
    """

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]: ...


class PeerReport(msgspec.Struct, frozen=True, gc=False):
    """What a member knows about another member that counts; None for what it does not know."""

    lag: int | None = None
    """Messages that we have sent or delivered, and that the other is not known to hold."""
    heard_ns: Nanoseconds | None = None
    """When its last PDU arrived."""
    round_trip_ns: Nanoseconds | None = None
    """How long it recently took to acknowledge one of our batches."""
    asked: int | None = None
    """Batches that it has requested from us again: they were lost on their way to it."""
    holds_us_up: bool = False
    """Whether our last batch was refused because of it."""


class LiveProtocol(Protocol, Interface):
    """A protocol whose members may be restarted by clocks that disagree."""

    def peers(self, now: Nanoseconds) -> Mapping[Site, PeerReport]:
        """What is known about each other member that counts; computed on request."""
        ...

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation of a site that this member knows or still remembers; 0 if there is none.

        A process that joins takes an incarnation above every one that is reported for its name.
        """
        ...
