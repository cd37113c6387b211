"""Failure detection by heartbeats: a member of which several in a row are missing is suspected.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 3.1.1, the first scheme.

Assumes: nothing of the network. The more it loses, the more heartbeats have to be missing before a member is
suspected; `missing_for` computes how many.
Guarantees: a member that is silent for `missing` + 1 periods is suspected by all live members, and trusted
again at its next PDU. n multicasts a period, of a size that does not depend on the group's.

Deviations from the text: it counts reception times; here a detector counts silence in its own periods, so
that it suspects no member for a pause of its own. Any PDU is a sign of life, not only a heartbeat. A member
that leaves says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from antiphon.core.effects import Multicast
from antiphon.core.errors import UsageError
from antiphon.core.fields import Incarnation, Number
from antiphon.core.ids import Site
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.detection.base import Detector, require_sense


class Alive(Pdu, frozen=True, gc=False):
    """The heartbeat; the counter rises with each."""

    code: ClassVar[int] = 64
    incarnation: Incarnation
    counter: Number


@dataclass(frozen=True, kw_only=True)
class HeartbeatConfiguration:
    """The knobs; members of one group use the same."""

    period_ns: Nanoseconds = SECOND_NS
    """Pause between heartbeats. Raising it costs time to detect a crash, and saves multicasts."""
    missing: int = 3
    """Heartbeats missing in a row before a member is suspected. Raising it costs time, and saves mistakes."""
    largest_group: int = 1024
    """Members watched at a time. Raising it costs memory, if a peer invents members."""

    def __post_init__(self) -> None:
        require_sense(
            largest_group=self.largest_group, times_ns=(self.period_ns,), counts=(self.missing - 1,)
        )


def missing_for(members: int, mistake: float, arrival: float = 1.0) -> int:
    """The heartbeats that must be missing so that a mistake by any member has this probability.

    Each of n(n-1) pairs errs when that many in a row are lost. Where nothing is lost, one is enough.
    `mistake` is per period: for a run of T periods divide the probability wanted by T.
    """
    if members < 2 or not 0 < mistake < 1 or not 0 < arrival <= 1:
        raise UsageError("There are at least two members, and probabilities lie between 0 and 1.")
    if arrival == 1:
        return 1
    return max(1, math.ceil(math.log(mistake / (members * (members - 1))) / math.log1p(-arrival)))


class Heartbeat(Detector):
    """One member's detector."""

    __slots__ = ("_missing",)

    def __init__(
        self, site: Site, members: Sequence[Site], configuration: HeartbeatConfiguration, random: Random
    ) -> None:
        super().__init__(
            site, members, random,
            period_ns=configuration.period_ns, largest_group=configuration.largest_group,
        )  # fmt: skip
        self._missing = configuration.missing

    def _greet(self) -> None:
        self._effects.append(Multicast(Alive(self.incarnation, self._counter)))

    def _tick(self) -> None:
        self._greet()
        for watch in self._watches.values():
            watch.age += 1
            if watch.age > self._missing and not watch.suspected:
                self._suspect(watch, f"{self._missing} of its heartbeats are missing.")

    def _on_pdu(self, sender: Site, pdu: Pdu) -> None:
        if type(pdu) is Alive:
            self._on_sign_of_life(sender, pdu.incarnation, pdu.counter)
        else:
            self.ignored += 1
