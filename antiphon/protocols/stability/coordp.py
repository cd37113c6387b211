"""CoordP: a coordinator asks every member what it holds and multicasts the minimum.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.2.1; assumptions of 4.1.
A round has three steps: START is multicast; each member answers with ACK, which carries for each sender how
many of its messages, counted from the first without a gap, the member holds; INFO multicasts the minima.

Assumes: a failure detector that reports crashes by Suspected and Restored, and an owner (a reliable
multicast, or a study) that reports what is held with `hold`. Nothing is assumed of the network: PDUs may be
lost, repeated and reordered.
Guarantees: a member declares stable only what it holds itself and what every member that the coordinator
did not suspect holds (checker: stability); what has been declared is never taken back; a round that was
triggered ends once PDUs get through and the crashed are suspected.

Deviations from the text, and why:
- Those of all the protocols (`antiphon.protocols.stability.base`).
- Completion is also tested when a member is suspected, not only when an ACK comes (erratum G8).
- Rounds are numbered. A number belongs to one round of one coordinator, the greatest known one wins, and an
  ACK of another round than the one under way is never counted.
- The text repeats ACKs for ever; here a member repeats until it knows the result, at growing pauses, and the
  coordinator asks members again that have not answered. A member that missed the result gets it when it
  repeats. Both wait as long as answers took before (`antiphon.protocols.stability.round_trips`): START and
  ACK say whether they are repeated. Without repetition a round sends what the text counts and nothing else.
- The text's membership does not change while a round lasts. Here an owner whose membership changes makes a
  new object for each view of it, and PDUs name the view that they belong to.
- The text does not treat the coordinator's crash: the next member in order that is not suspected takes
  over, and members that wait for a result turn to it.
"""

from collections.abc import Sequence
from random import Random
from typing import ClassVar, Final

from antiphon.core.effects import CancelTimer, Effect, Multicast, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.fields import Hash, Number
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, Restored, RoundTriggered, Suspected, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import (
    Configuration,
    CountBytes,
    Counts,
    Stability,
    read_counts,
)

FOLD_ANSWERS: Final = 256
"""Answers folded into the minimum at once. Raising it costs memory, and saves time."""

ACKNOWLEDGE: Final = "acknowledge"
"""A member's timer: repeat the ACK."""
ASK: Final = "ask"
"""The coordinator's timer: repeat START to members that have not answered."""


class StartRound(Pdu, frozen=True, gc=False):
    """START: a request to report what is held."""

    code: ClassVar[int] = 16
    round: Number
    view: Hash = 0
    repeated: bool = False
    """Whether it was sent before."""


class Acknowledgement(Pdu, frozen=True, gc=False):
    """ACK: what the sender of this PDU holds, a count for each sender of messages."""

    code: ClassVar[int] = 17
    round: Number
    held: CountBytes
    view: Hash = 0
    repeated: bool = False
    """Whether it answers a START that was sent before, or was sent before itself."""


class Information(Pdu, frozen=True, gc=False):
    """INFO: what all hold, a count for each sender of messages."""

    code: ClassVar[int] = 18
    round: Number
    stable: CountBytes
    view: Hash = 0
    repeated: bool = False
    """Whether it answers a member that has missed it."""


PDUS: Final = (StartRound, Acknowledgement, Information)


class CoordP(Stability):
    """One member's part. Its owner reports what is held with `hold`, and forwards inputs and effects."""

    __slots__ = ("_again", "_answers", "_awaiting", "_finished", "_least", "_missing", "_now", "_round")

    def __init__(
        self,
        site: Site,
        members: Sequence[Site],
        senders: Sequence[Site],
        configuration: Configuration | None = None,
        random: Random | None = None,
    ) -> None:
        super().__init__(site, members, senders, configuration or Configuration(), random)
        # As a member: the greatest round known, and whether its result is still awaited.
        self._round = -1
        self._awaiting = False
        self._now: Nanoseconds = 0
        # As the coordinator: the members that have not answered, the minimum so far, whether to repeat.
        self._missing: set[Site] | None = None
        self._least: Counts = self._held
        self._answers: list[bytes] = []
        self._again = False
        self._finished: Information | None = None

    @property
    def under_way(self) -> bool:
        """Whether a round that this member coordinates has not ended yet."""
        return self._missing is not None

    def abandon(self) -> None:
        """Forget the round that is under way here: the next one makes up for it."""
        self._missing = None

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        self._now = now
        if type(event) is Received:
            sender, pdu = event.sender, event.pdu
            if getattr(pdu, "view", self._view) != self._view:
                return []  # not garbage: the group's members are seen differently for a moment
            if type(pdu) is Acknowledgement:
                return self._on_acknowledgement(sender, pdu)
            if type(pdu) is StartRound:
                return self._on_start(sender, pdu)
            return self._on_information(sender, pdu) if type(pdu) is Information else self._ignore()
        if type(event) is TimerFired:
            return self._on_timer(event.name)
        if type(event) is RoundTriggered:
            return self._on_trigger()
        if type(event) is Suspected:
            return self._on_suspected(event.site)
        if type(event) is Restored:
            return self._on_restored(event.site)
        return []

    # Step 1: the coordinator asks

    def _on_trigger(self) -> list[Effect]:
        if self.coordinator != self.site:
            raise UsageError(
                f"'{self.site}' does not coordinate, so no round can be triggered there.",
                hint=f"Trigger it at '{self.coordinator}'.",
            )
        if self._missing is not None:
            # What has become stable since the round began must be found too: that takes another round.
            self._again = True
            return []
        return self._begin()

    def _begin(self) -> list[Effect]:
        """Begin a round under a number of our own, greater than any known."""
        size, rank = len(self._rank), self._rank[self.site]
        self._round = (self._round // size + 1) * size + rank
        self._awaiting = self._again = False
        self._missing = set(self._rank) - self._suspected - {self.site}
        self._least = self._held
        self._answers.clear()
        if not self._missing:
            return self._finish()
        effects: list[Effect] = [CancelTimer(ACKNOWLEDGE), Multicast(StartRound(self._round, self._view))]
        return effects + self._wait_for_answers()

    # Step 2: the members answer

    def _on_start(self, sender: Site, pdu: StartRound) -> list[Effect]:
        number = pdu.round
        if not self._makes_sense(number, sender):
            return self._ignore()
        if number < self._round:
            # Its sender does not know later rounds, say after a restart; our answer brings it up to date.
            return [Send(sender, self._acknowledge(repeated=True))]
        known = number == self._round
        if known and not self._awaiting:
            # We have the result already, so the coordinator has it too and this START is a late one.
            return []
        if self._missing is not None:
            self._give_way()
        self._round = number
        self._awaiting = True
        answer = Send(sender, self._acknowledge(repeated=known or pdu.repeated))
        return [answer, *self._wait_for_result(again=known)]

    def _acknowledge(self, *, repeated: bool) -> Acknowledgement:
        return Acknowledgement(self._round, self._held.tobytes(), self._view, repeated)

    def _give_way(self) -> None:
        """A greater round is under way; what was asked for here may be newer than what it will find."""
        if self._missing is not None:
            self._missing = None
            self._again = True

    # Step 3: the coordinator collects, and multicasts the minima

    def _on_acknowledgement(self, sender: Site, pdu: Acknowledgement) -> list[Effect]:
        # A negative count has the effect of a zero: what is stable already stays so.
        held, missing = pdu.held, self._missing
        if not self._are_counts(held):
            return self._ignore()
        if missing is None or pdu.round != self._round or sender not in missing:
            return self._on_stray_acknowledgement(sender, pdu.round)
        missing.remove(sender)
        self._answers.append(held)
        if self.trips is not None and not pdu.repeated:
            self.trips.answers.answered(self._now)
        if not missing:
            return self._finish()
        self._bound_answers()
        return []

    def _on_stray_acknowledgement(self, sender: Site, number: int) -> list[Effect]:
        """An ACK of another round: its sender has missed the result, or waits for a crashed coordinator."""
        if sender not in self._rank or sender == self.site or not self._is_round(number):
            return self._ignore()
        if self._missing is not None and number == self._round:
            return []  # it has answered before, or is not waited for
        if self._finished is not None and number <= self._finished.round:
            return [Send(sender, self._finished)]
        idle = self._missing is None and not self._awaiting
        if self.coordinator == self.site and (number >= self._round or idle):
            # The coordinator of that round has crashed: a new round has to find the result.
            self._round = max(self._round, number)
            return self._begin()
        return []

    def _bound_answers(self) -> None:
        if len(self._answers) == FOLD_ANSWERS:
            self._fold()

    def _fold(self) -> None:
        """Take the answers so far into the minimum."""
        rows = read_counts(b"".join(self._answers)).reshape(len(self._answers), len(self.senders))
        self._least = self._objective.fold(self._least, self._objective.fold_rows(rows))
        self._answers.clear()

    def _finish(self) -> list[Effect]:
        self._fold()
        result = self._result(self._least)
        self._missing = None
        counts = result.tobytes()
        self._finished = Information(self._round, counts, self._view, repeated=True)
        self.rounds_finished += 1
        if self.trips is not None:
            self.trips.answers.end()
        told = Multicast(Information(self._round, counts, self._view))
        effects: list[Effect] = [CancelTimer(ASK), told, *self._declare(result)]
        return effects + self._begin() if self._again else effects

    def _on_information(self, sender: Site, pdu: Information) -> list[Effect]:
        if not self._makes_sense(pdu.round, sender) or not self._is_result(pdu.stable):
            return self._ignore()
        effects: list[Effect] = []
        if pdu.round >= self._round:
            if self._missing is not None:
                effects.append(CancelTimer(ASK))
            self._give_way()
            self._round = pdu.round
            if self._awaiting:
                effects.append(CancelTimer(ACKNOWLEDGE))
                self._note_result(pdu)
            self._awaiting = False
        effects += self._declare(read_counts(pdu.stable))
        again = self._again and self._missing is None and self.coordinator == self.site
        return effects + self._begin() if again else effects

    # Loss

    def _wait_for_answers(self, *, again: bool = False) -> list[Effect]:
        """As the coordinator: how long until members are asked again."""
        if self._repetition is None or self.trips is None:
            return []
        trip = self.trips.answers
        wait_ns = trip.repeat(self._repetition) if again else trip.begin(self._now, self._repetition)
        return [SetTimer(ASK, wait_ns)]

    def _wait_for_result(self, *, again: bool) -> list[Effect]:
        """Members wait up to twice as long, each its own time: in step they would fill the same buffers."""
        if self._repetition is None or self.trips is None:
            return []
        assert self._random is not None, "who repeats has a source of randomness"
        trip = self.trips.result
        wait_ns = trip.repeat(self._repetition) if again else trip.begin(self._now, self._repetition)
        return [SetTimer(ACKNOWLEDGE, wait_ns + self._random.randrange(wait_ns))]

    def _note_result(self, pdu: Information) -> None:
        if self.trips is not None:
            self.trips.result.end_with(self._now, repeated=pdu.repeated)

    def _on_timer(self, name: str) -> list[Effect]:
        if name == ASK and self._missing:
            asked = tuple(sorted(self._missing, key=self._rank.__getitem__))
            start = StartRound(self._round, self._view, repeated=True)
            return [Multicast(start, asked), *self._wait_for_answers(again=True)]
        if name == ACKNOWLEDGE and self._awaiting:
            return self._repeat_answer() + self._wait_for_result(again=True)
        return []

    def _repeat_answer(self) -> list[Effect]:
        """The ACK, to the coordinator or its successor, with what is held by now."""
        asker = self._owner(self._round)
        to = self.coordinator if asker in self._suspected else asker
        if to == self.site:
            return self._begin()
        return [Send(to, self._acknowledge(repeated=True))]

    # Crashes

    def _on_suspected(self, site: Site) -> list[Effect]:
        if site not in self._rank or site == self.site or site in self._suspected:
            return []
        self._suspected.add(site)
        if self._missing is not None:
            self._missing.discard(site)
            return [] if self._missing else self._finish()
        if self._awaiting and self._owner(self._round) == site:
            return self._repeat_answer()
        return []

    def _on_restored(self, site: Site) -> list[Effect]:
        """A member that is back is waited for again."""
        if site not in self._suspected:
            return []
        self._suspected.remove(site)
        if self._missing is None:
            return []
        self._missing.add(site)
        return [Send(site, StartRound(self._round, self._view, repeated=True))]

    # Numbers

    def _owner(self, number: int) -> Site:
        return self._order[number % len(self._order)]

    def _makes_sense(self, number: int, sender: Site) -> bool:
        """Whether a round's number is one that this sender, a member other than ourselves, may use."""
        return self._is_round(number) and self._owner(number) == sender != self.site

    def _is_round(self, number: int) -> bool:
        owned = not self._steady or self._owner(number) == self._order[0]
        return owned and self._may_follow(self._round, number)
