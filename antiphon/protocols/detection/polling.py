"""Failure detection by polling: a member that was silent for a period is asked, several times if need be.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 3.1.1, the second scheme.

Assumes: nothing of the network; `retries_for` computes how often to ask again where PDUs are lost.
Guarantees: a member that answers none of `retries` + 1 requests is suspected, at the latest two periods and
that many time-outs after its last sign of life, and trusted again at its next PDU. A suspected member is
asked once a period, so that a wrong suspicion ends.

Deviations from the text: a request is itself a sign of life of its sender, and a member heard within the
period is not asked, so that of two members only one asks, and other traffic replaces requests. A newcomer, a
member that trusts no other, and every member now and then, asks all, so that members meet that were not named
to each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final

from antiphon.core.effects import Multicast, Send
from antiphon.core.errors import UsageError
from antiphon.core.fields import Incarnation, Number
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.detection.base import Detector, Watch, require_sense

RETRY: Final = "retry"
GREET_PERIODS: Final = 10
"""Periods between requests to all, known or not, since a newcomer's first request may be lost. Raising it
costs time to meet."""


class Poll(Pdu, frozen=True, gc=False):
    """Are you there?"""

    code: ClassVar[int] = 66
    incarnation: Incarnation
    counter: Number


class PollAnswer(Pdu, frozen=True, gc=False):
    """I am."""

    code: ClassVar[int] = 67
    incarnation: Incarnation
    counter: Number


@dataclass(frozen=True, kw_only=True)
class PollingConfiguration:
    """The knobs; members of one group use the same."""

    period_ns: Nanoseconds = SECOND_NS
    """Silence after which a member is asked. Raising it costs time to detect a crash, and saves requests."""
    timeout_ns: Nanoseconds = 200 * MILLISECOND_NS
    """How long to wait for an answer, more than a round trip. Raising it costs time to detect a crash."""
    retries: int = 2
    """How often to ask again. Raising it costs time, and saves mistakes where PDUs are lost."""
    largest_group: int = 1024
    """Members watched at a time. Raising it costs memory, if a peer invents members."""

    def __post_init__(self) -> None:
        times_ns = (self.period_ns, self.timeout_ns)
        require_sense(largest_group=self.largest_group, times_ns=times_ns, counts=(self.retries,))
        if (self.retries + 1) * self.timeout_ns >= self.period_ns:
            raise UsageError(
                "The time-outs of a poll do not fit its period.",
                hint="Lengthen the period, or shorten the time-out.",
            )


def retries_for(members: int, mistake: float, arrival: float = 1.0) -> int:
    """The retries with which a mistake by any member has this probability.

    Each of n(n-1) pairs errs when that many requests in a row stay unanswered, each because it or its answer
    is lost. `mistake` is per period, as for heartbeats.
    """
    if members < 2 or not 0 < mistake < 1 or not 0 < arrival <= 1:
        raise UsageError("There are at least two members, and probabilities lie between 0 and 1.")
    if arrival == 1:
        return 0
    requests = math.log(mistake / (members * (members - 1))) / math.log1p(-arrival * arrival)
    return max(0, math.ceil(requests) - 1)


class Polling(Detector):
    """One member's detector."""

    __slots__ = ("_asked", "_attempts", "_retries", "_timeout_ns")

    def __init__(
        self, site: Site, members: Sequence[Site], configuration: PollingConfiguration, random: Random
    ) -> None:
        super().__init__(
            site, members, random,
            period_ns=configuration.period_ns, largest_group=configuration.largest_group,
        )  # fmt: skip
        self._timeout_ns = configuration.timeout_ns
        self._retries = configuration.retries
        self._asked: list[Watch] = []
        """The members that were asked; one that was heard since is no longer waited for."""
        self._attempts = 0

    def _greet(self) -> None:
        """Ask all: their answers show which members are alive."""
        self._asked = []
        self._effects.append(Multicast(Poll(self.incarnation, self._counter)))

    def _tick(self) -> None:
        silent = [watch for watch in self._watches.values() if watch.age]
        for watch in self._watches.values():
            watch.age += 1
        if self._ticks % GREET_PERIODS == 0 or not self.trusted:
            self._greet()
        elif silent:
            self._ask(silent)
        self._asked = [watch for watch in silent if not watch.suspected]
        self._attempts = 0
        if self._asked:
            self._set_timer(RETRY, self._timeout_ns)

    def _fire(self, name: str) -> None:
        if name == RETRY:
            self._retry()
        else:
            super()._fire(name)

    def _retry(self) -> None:
        """Ask the members again that have not answered, or suspect them."""
        self._asked = [watch for watch in self._asked if watch.age and not watch.suspected]
        if not self._asked:
            return
        if self._attempts < self._retries:
            self._attempts += 1
            self._ask(self._asked)
            self._set_timer(RETRY, self._timeout_ns)
            return
        for watch in self._asked:
            if self._watches.get(watch.site) is watch:
                self._suspect(watch, f"It has not answered {self._retries + 1} requests.")
        self._asked = []

    def _ask(self, watches: list[Watch]) -> None:
        to = tuple(watch.site for watch in watches)
        self._effects.append(Multicast(Poll(self.incarnation, self._counter), to))

    def _on_pdu(self, sender: Site, pdu: Pdu) -> None:
        if type(pdu) is Poll:
            if self._on_sign_of_life(sender, pdu.incarnation, pdu.counter) is not None:
                self._effects.append(Send(sender, PollAnswer(self.incarnation, self._counter)))
        elif type(pdu) is PollAnswer:
            self._on_sign_of_life(sender, pdu.incarnation, pdu.counter)
        else:
            self.ignored += 1
