"""What the stability protocols with numbered rounds share: the owner of a number, suspicion, and repetition.

A number belongs to one round of one member, its owner, and the greatest number known wins: a member that
learns of a greater one takes part in that round and gives up the one before. An owner whose round is given up
in this way, or that is triggered while its round lasts, begins another round afterwards, so that everything
that was stable at a trigger is found by the end of some round.

Rounds are triggered at the first member in order that is not suspected. A member that waits repeats what may
have been lost, at growing pauses, each member with a random spread; the first is as long as answers took
before (`antiphon.protocols.stability.round_trips`).
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
from antiphon.protocols.stability.round_trips import RoundTrip


class Numbered(Stability, ABC):
    """One member's part; a protocol implements the handlers."""

    __slots__ = ("_again", "_now", "_round")

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
        """The greatest round known."""
        self._again = False
        """Whether another round is to begin here when this one has ended."""
        self._now: Nanoseconds = 0

    @property
    @abstractmethod
    def under_way(self) -> bool:
        """Whether a round in which this member takes part has not ended here."""

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        self._now = now
        if type(event) is Received:
            sender, pdu = event.sender, event.pdu
            if getattr(pdu, "view", self._view) != self._view:
                return []  # not garbage: its sender has another view for a moment
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
        """Give up the round under way here: the next one replaces it."""

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
        """Begin another round, if one was asked for and we are still the coordinator."""
        if not self._again or self.coordinator != self.site:
            return []
        return self._begin()

    def _owner(self, number: int) -> Site:
        return self._order[number % len(self._order)]

    def _next_number(self, owner: Site) -> int:
        """A number that this member owns, greater than any known."""
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

        A negative count has the effect of a zero: what is stable already stays so.
        """
        return self._are_counts(counts) and self._is_round(number)

    def _is_round(self, number: int) -> bool:
        owned = not self._steady or self._owner(number) == self._order[0]
        return owned and self._may_follow(self._round, number)

    def _take_result(self, counts: bytes) -> list[Effect]:
        """Declare a result as far as it is held here.

        Members that suspected this member may have found more.
        """
        result = read_counts(counts)
        if self._objective is Objective.LEAST:
            result = np.minimum(result, self._held)
        return self._declare(result)

    def _is_sound_result(self, number: int, counts: bytes) -> bool:
        return self._makes_sense(number, counts) and none_negative(counts)

    def _fold_held(self, least: Counts | None) -> Counts:
        """What was gathered, joined with what is held here by now."""
        return self._held if least is None else self._objective.fold(least, self._held)

    # Repetition

    def _first_wait(self, timer: str, trip: RoundTrip | None, more_ns: Nanoseconds = 0) -> list[Effect]:
        """Wait for what answers something that we send for the first time, from `more_ns` on."""
        if self._repetition is None or trip is None:
            return []
        return self._wait(timer, trip.begin(self._now + more_ns, self._repetition), more_ns)

    def _next_wait(self, timer: str, trip: RoundTrip | None) -> list[Effect]:
        if self._repetition is None or trip is None:
            return []
        return self._wait(timer, trip.repeat(self._repetition))

    def _wait(self, timer: str, wait_ns: Nanoseconds, more_ns: Nanoseconds = 0) -> list[Effect]:
        """Set a timer of one to two waits, at random: in step, members would fill the same buffers."""
        assert self._random is not None, "a protocol that repeats has a source of randomness"
        return [SetTimer(timer, more_ns + wait_ns + self._random.randrange(wait_ns))]

    @property
    def _for_answers(self) -> RoundTrip | None:
        return None if self.trips is None else self.trips.answers

    @property
    def _for_result(self) -> RoundTrip | None:
        return None if self.trips is None else self.trips.result

    def _note_answer(self) -> None:
        """A member that we wait for has answered what was sent first."""
        if self.trips is not None:
            self.trips.answers.answered(self._now)

    def _note_all_answers(self) -> None:
        if self.trips is not None:
            self.trips.answers.end()

    def _note_result(self, *, repeated: bool) -> None:
        if self.trips is not None:
            self.trips.result.end_with(self._now, repeated=repeated)
