"""What the stability protocols with numbered rounds share: whose a number is, suspicion, and repeated words.

A number belongs to one round of one member, its owner, and the greatest number heard of wins: who hears of a
greater one takes part in that round and forgets the one before. An owner whose round is passed over in this
way, or that is triggered while its round lasts, begins another round afterwards, so that whatever was stable
at a trigger is found by the end of some round.

Rounds are triggered at the first member in order that is not suspected. Whoever waits ever more rarely says
again what may have been lost, each member with a spread of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random

import numpy as np

from antiphon.core.effects import Effect, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, Restored, RoundTriggered, Suspected, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import (
    Configuration,
    Counts,
    Objective,
    Stability,
    none_negative,
    read_counts,
)


class Numbered(Stability, ABC):
    """One member's part; a protocol says what it does with each kind of input."""

    __slots__ = ("_again", "_round", "_wait_ns")

    def __init__(
        self,
        site: Site,
        members: Sequence[Site],
        senders: Sequence[Site],
        configuration: Configuration,
        random: Random | None = None,
    ) -> None:
        super().__init__(site, members, senders, configuration, random)
        self._round = -1
        """The greatest round heard of."""
        self._again = False
        """Whether another round is to begin here when this one has ended."""
        self._wait_ns: Nanoseconds = 0

    @property
    @abstractmethod
    def under_way(self) -> bool:
        """Whether a round in which this member takes part has not ended here."""

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:  # noqa: ARG002
        if type(event) is Received:
            sender, pdu = event.sender, event.pdu
            if getattr(pdu, "view", self._view) != self._view:
                return []  # not garbage: the group's members are seen differently for a moment
            if sender not in self._rank or sender == self.site:
                return self._ignore()
            return self._on_pdu(sender, pdu)
        if type(event) is TimerFired:
            return self._on_timer(event.name)
        if type(event) is RoundTriggered:
            return self._on_trigger()
        if type(event) is Suspected:
            return self._note_suspected(event.site)
        if type(event) is Restored:
            return self._note_restored(event.site)
        return []

    # What a protocol does

    @abstractmethod
    def abandon(self) -> None:
        """Forget the round that is under way here: the next one makes up for it."""

    @abstractmethod
    def _on_pdu(self, sender: Site, pdu: Pdu) -> list[Effect]:
        """A PDU of this view from another member."""

    @abstractmethod
    def _on_timer(self, name: str) -> list[Effect]:
        """One of our timers has run out."""

    @abstractmethod
    def _begin(self) -> list[Effect]:
        """Begin a round of our own, under `_next_number`."""

    @abstractmethod
    def _on_suspected(self, site: Site) -> list[Effect]:
        """Another member is suspected, and was not before."""

    @abstractmethod
    def _on_restored(self, site: Site) -> list[Effect]:
        """Another member is no longer suspected."""

    # Triggers and numbers

    def _on_trigger(self) -> list[Effect]:
        if self.coordinator != self.site:
            raise UsageError(
                f"'{self.site}' does not come first, so no round can be triggered there.",
                hint=f"Trigger it at '{self.coordinator}'.",
            )
        if self.under_way:
            # What has become stable since the round began must be found too: that takes another round.
            self._again = True
            return []
        return self._begin()

    def _begin_again(self) -> list[Effect]:
        """Another round, if one was asked for here and it is still for us to begin it."""
        if not self._again or self.coordinator != self.site:
            return []
        return self._begin()

    def _owner(self, number: int) -> Site:
        return self._order[number % len(self._order)]

    def _next_number(self, owner: Site) -> int:
        """A number of this member's, greater than any heard of."""
        size = len(self._order)
        return (self._round // size + 1) * size + self._rank[owner]

    # Suspicion

    def _note_suspected(self, site: Site) -> list[Effect]:
        if site not in self._rank or site == self.site or site in self._suspected:
            return []
        self._suspected.add(site)
        return self._on_suspected(site)

    def _note_restored(self, site: Site) -> list[Effect]:
        if site not in self._suspected:
            return []
        self._suspected.remove(site)
        return self._on_restored(site)

    # Results and counts

    def _makes_sense(self, number: int, counts: bytes) -> bool:
        """Whether a round may have this number, and these bytes are a count for each sender.

        A negative count says no more than a zero would: what is stable already stays so.
        """
        return self._are_counts(counts) and self._is_round(number)

    def _is_round(self, number: int) -> bool:
        owned = not self._steady or self._owner(number) == self._order[0]
        return owned and self._may_follow(self._round, number)

    def _take_result(self, counts: bytes) -> list[Effect]:
        """Declare what someone has found, as far as it concerns what is held here.

        More than that was found by those who suspected this member.
        """
        result = read_counts(counts)
        if self._objective is Objective.LEAST:
            result = np.minimum(result, self._held)
        return self._declare(result)

    def _is_sound_result(self, number: int, counts: bytes) -> bool:
        return self._makes_sense(number, counts) and none_negative(counts)

    def _fold_held(self, least: Counts | None) -> Counts:
        """What was gathered, and what is held here by now."""
        return self._held if least is None else self._objective.fold(least, self._held)

    # Repetition

    def _first_wait(self, timer: str, more_ns: Nanoseconds = 0) -> list[Effect]:
        if self._repetition is None:
            return []
        self._wait_ns = self._repetition.first_ns
        return self._wait(timer, more_ns)

    def _next_wait(self, timer: str) -> list[Effect]:
        if self._repetition is None:
            return []
        before_ns = self._wait_ns
        self._wait_ns = self._repetition.after(before_ns) if before_ns else self._repetition.first_ns
        return self._wait(timer)

    def _longest_wait(self, timer: str) -> list[Effect]:
        if self._repetition is None:
            return []
        self._wait_ns = self._repetition.longest_ns
        return self._wait(timer)

    def _wait(self, timer: str, more_ns: Nanoseconds = 0) -> list[Effect]:
        """Members wait up to twice as long, each its own time: in step they would fill the same buffers."""
        assert self._random is not None, "who repeats has a source of randomness"
        return [SetTimer(timer, more_ns + self._wait_ns + self._random.randrange(self._wait_ns))]
