"""Failure detection by polling: whoever was silent for a period is asked, several times if need be.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 3.1.1, the second scheme.

Assumes: nothing of the network; `retries_for` finds how often to ask again where PDUs are lost.
Guarantees: a member that answers none of `retries` + 1 requests is suspected, at the latest two periods and
that many time-outs after its last sign of life; one that answers later is trusted again at once. Who is
suspected is asked once a period, so that one wrongly suspected comes back.

Deviations from the text: a request is itself a sign of life of the one who asks, and who was heard of within
the period is not asked, so that of two members one asks and traffic spares the question. A newcomer, one who
trusts nobody, and everyone now and then, asks all, so that members meet whom nobody has named to them.
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
"""Every so many periods everyone is asked, known or not: a newcomer's first question may have been lost."""


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
    """How long to wait for an answer. Raising it costs time likewise; it must exceed a round trip."""
    retries: int = 2
    """How often to ask again. Raising it costs time, and saves mistakes where PDUs are lost."""
    largest_group: int = 1024
    """Members watched at a time. Raising it costs memory, should a peer invent members."""

    def __post_init__(self) -> None:
        times_ns = (self.period_ns, self.timeout_ns)
        require_sense(largest_group=self.largest_group, times_ns=times_ns, counts=(self.retries,))
        if (self.retries + 1) * self.timeout_ns >= self.period_ns:
            raise UsageError(
                "The time-outs of a poll do not fit its period.",
                hint="Lengthen the period, or shorten the time-out.",
            )


def retries_for(members: int, mistake: float, arrival: float = 1.0) -> int:
    """How often to ask again so that a mistake by anyone about anyone is as rare as wanted.

    Each of n(n-1) pairs errs when as many requests in a row stay unanswered, each because it is lost or its
    answer is. `mistake` is per period, as for heartbeats.
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
        """Whom we have asked; one who was heard of since is no longer waited for."""
        self._attempts = 0

    def _greet(self) -> None:
        """Everyone answers, and so we know who is there."""
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
        """Nobody whom we wait for has been heard of: ask again, or be sure."""
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

    def _receive(self, sender: Site, pdu: Pdu) -> None:
        if type(pdu) is Poll:
            if self._notice(sender, pdu.incarnation, pdu.counter) is not None:
                self._effects.append(Send(sender, PollAnswer(self.incarnation, self._counter)))
        elif type(pdu) is PollAnswer:
            self._notice(sender, pdu.incarnation, pdu.counter)
        else:
            self.ignored += 1
