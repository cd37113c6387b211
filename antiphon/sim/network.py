"""What the world asks of a network model and of a fault layer.

A network owns the PDUs that are under way. The world hands it what sites send and takes from it what
arrives. Sites are known to networks by their index in the world's list.
"""

from collections.abc import Sequence
from typing import Protocol as Interface

import msgspec

from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A PDU reaches a site's protocol at a moment."""

    time_ns: Nanoseconds
    target: int
    source: int
    pdu: Pdu
    after_loss: bool = False
    """The site knows that it lost something between the arrival before this one and this one."""

    def delayed(self, late_ns: Nanoseconds) -> "Arrival":
        """The same arrival, this much later."""
        return msgspec.structs.replace(self, time_ns=self.time_ns + late_ns)


class Network(Interface):
    """A model of how PDUs travel."""

    def send(self, now: Nanoseconds, source: int, targets: Sequence[int] | None, pdu: Pdu, size: int) -> None:
        """Take a PDU of `size` bytes from a site: to some sites, or (None) to every other site."""

    def next_ns(self) -> Nanoseconds:
        """No arrival comes before this moment; NEVER_NS when nothing is under way."""

    def advance(self, limit_ns: Nanoseconds) -> Sequence[Arrival]:
        """Move on, at most to `limit_ns` (inclusive), and hand over the next arrivals in order of time.

        May return several at once only if nothing that the world does on one of them can change a later
        one, or as a list that `send` shortens when it does. An empty answer means that nothing arrives up to
        the limit.
        """

    def within(self, source: int, hops: int) -> tuple[int, ...]:
        """The other sites that are at most this many links away from a site, in order."""

    def network_messages(self) -> int:
        """How many transmissions the model has counted so far."""


class Layer(Interface):
    """A fault between the network and a site: turns one arrival into none, one or several."""

    def apply(self, arrival: Arrival) -> Sequence[Arrival]:
        """What becomes of an arrival; none may come earlier than it."""
