"""The protocol contract: a pure state machine, driven alike by the simulator and by the live runtime."""

from typing import Protocol as Interface

from antiphon.core.effects import Effect
from antiphon.core.ids import Site
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


class LiveProtocol(Protocol, Interface):
    """A protocol whose members may be restarted by clocks that disagree."""

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation of a site that this member knows or still remembers; 0 if there is none.

        A process that joins takes an incarnation above every one that is reported for its name.
        """
        ...
