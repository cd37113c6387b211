"""CoordP: a coordinator asks every member what it holds and tells all of them the minimum.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.2.1; assumptions of 4.1.
A round has three steps: START is multicast; each member answers with ACK, which carries for each sender how
many of its messages, counted from the first without a gap, the member holds; INFO multicasts the minima.

Assumes: a failure detector that tells of crashes through Suspected and Restored, and an owner (a reliable
multicast, or a study) that says what is held with `hold`. Nothing is assumed of the network: PDUs may be
lost, repeated and reordered.
Guarantees: a member declares stable only what it holds itself and what every member that the coordinator
did not suspect holds (checker: stability); what has been declared is never taken back; a round that was
triggered ends once PDUs get through and the crashed are suspected.

Deviations from the text, and why:
- Counts of contiguous messages instead of 'the maximum sequence number', and everything below the count
  is stable: the maximum is unsafe when messages overtake each other (erratum G6).
- Completion is also tested when a member is suspected, not only when an ACK comes (erratum G8).
- Rounds are numbered. A number belongs to one round of one coordinator, the greatest known one wins, and an
  ACK of another round than the one under way is never counted.
- The text repeats ACKs for ever; here a member repeats until it knows the result, ever more rarely, and the
  coordinator asks those again who have not answered. A member that missed the result gets it when it
  repeats. Without repetition a round sends what the text counts and nothing else.
- The text's membership does not change while a round lasts. Here an owner whose membership changes makes a
  new object for each view of it, and PDUs name the view that they belong to.
- The text has no word on the coordinator's crash: the next member in order that is not suspected takes
  over, and members that wait for a result turn to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from antiphon.core.effects import CancelTimer, Effect, Multicast, Send, SetTimer, Stable
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, Restored, RoundTriggered, Suspected, TimerFired
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu

Counts: TypeAlias = NDArray[np.int64]

COUNT_BYTES: Final = 8
WIRE_COUNTS: Final = np.dtype("<i8")
LARGEST_ROUND: Final = (1 << 62) - 1
"""No honest group gets this far; a number beyond it is garbage that would use up the numbers."""

LARGEST_COUNT: Final = (1 << 63) - 1
FOLD_ANSWERS: Final = 256
"""How many answers are folded into the minimum at once: more are faster and take more memory."""

ACKNOWLEDGE: Final = "acknowledge"
"""A member's timer: repeat the ACK."""
ASK: Final = "ask"
"""The coordinator's timer: repeat START to those who have not answered."""


class StartRound(Pdu, frozen=True, gc=False):
    """START: tell me what you hold."""

    code: ClassVar[int] = 16
    round: int
    view: int = 0


class Acknowledgement(Pdu, frozen=True, gc=False):
    """ACK: what the sender of this PDU holds, a count for each sender of messages."""

    code: ClassVar[int] = 17
    round: int
    held: bytes
    view: int = 0


class Information(Pdu, frozen=True, gc=False):
    """INFO: what all hold, a count for each sender of messages."""

    code: ClassVar[int] = 18
    round: int
    stable: bytes
    view: int = 0


PDUS: Final = (StartRound, Acknowledgement, Information)


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """When to say again what may have been lost.

    A longer `first_ns` costs time after a loss and saves repetitions that were not needed; each wait is
    `factor` times the one before, up to `longest_ns`, so that repetitions do not feed the congestion that
    made them necessary.
    """

    first_ns: Nanoseconds = SECOND_NS
    factor: int = 2
    longest_ns: Nanoseconds = 60 * SECOND_NS

    def __post_init__(self) -> None:
        if self.first_ns < 1 or self.longest_ns < self.first_ns or self.factor < 1:
            raise UsageError("A repetition needs a positive first wait, none longer than the longest.")

    def after(self, wait_ns: Nanoseconds) -> Nanoseconds:
        return min(wait_ns * self.factor, self.longest_ns)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """CoordP's knobs."""

    coordinator: Site | None = None
    """Who coordinates while it is not suspected; the first member unless told otherwise."""
    repetition: Repetition | None = Repetition()
    """None where nothing is ever lost: then no PDU is sent twice."""
    view: int = 0
    """Which of a changing group's member lists this is; what is said in another one does not concern us."""


@dataclass(frozen=True, eq=False)
class Roster:
    """Who is in the group: the same for all members, so that those in one process share it."""

    order: tuple[Site, ...]
    """The members as they take over coordination from each other."""
    rank: dict[Site, int]
    senders: tuple[Site, ...]
    place: dict[Site, int]


@lru_cache(maxsize=8)
def _roster(members: tuple[Site, ...], senders: tuple[Site, ...], first: Site) -> Roster:
    if len(set(members)) != len(members) or len(set(senders)) != len(senders):
        raise UsageError("A site stands twice among the members or the senders.")
    if first not in members:
        raise UsageError(f"The coordinator '{first}' is not among the members.")
    order = (first, *(member for member in members if member != first))
    ranks = {member: rank for rank, member in enumerate(order)}
    return Roster(order, ranks, senders, {sender: place for place, sender in enumerate(senders)})


class CoordP:
    """One member's part. The layer above says what has come with `hold` and forwards inputs and effects."""

    __slots__ = (
        "_again", "_answers", "_array_bytes", "_awaiting", "_finished", "_held", "_least", "_missing",
        "_order", "_place", "_random", "_rank", "_repetition", "_round", "_stable", "_suspected", "_view",
        "_wait_ns", "ignored", "rounds_finished", "senders", "site",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        members: Sequence[Site],
        senders: Sequence[Site],
        configuration: Configuration | None = None,
        random: Random | None = None,
    ) -> None:
        configuration = configuration or Configuration()
        if not members:
            raise UsageError("A group needs members.")
        roster = _roster(tuple(members), tuple(senders), configuration.coordinator or members[0])
        if site not in roster.rank:
            raise UsageError(f"'{site}' is not among the members.")
        if configuration.repetition is not None and random is None:
            raise UsageError("Repetition needs a source of randomness to spread the members' repetitions.")
        self.site = site
        self.senders = roster.senders
        self._order, self._rank, self._place = roster.order, roster.rank, roster.place
        self._array_bytes = COUNT_BYTES * len(self.senders)
        self._repetition = configuration.repetition
        self._view = configuration.view
        self._random = random
        self._held: Counts = np.zeros(len(self.senders), WIRE_COUNTS)
        self._stable: Counts = np.zeros(len(self.senders), WIRE_COUNTS)
        self._suspected: set[Site] = set()
        self.ignored = 0
        """PDUs that made no sense."""
        self.rounds_finished = 0
        """Rounds that this member has coordinated to their end."""
        # As a member: the greatest round heard of, and whether its result is still awaited.
        self._round = -1
        self._awaiting = False
        self._wait_ns: Nanoseconds = 0
        # As the coordinator: who has not answered, the minimum so far, and whether to go round again.
        self._missing: set[Site] | None = None
        self._least: Counts = self._held
        self._answers: list[bytes] = []
        self._again = False
        self._finished: Information | None = None

    # What the owner may ask and say

    @property
    def coordinator(self) -> Site:
        """Who coordinates, as far as this member knows: the first in order that it does not suspect."""
        return next(member for member in self._order if member not in self._suspected)

    @property
    def under_way(self) -> bool:
        """Whether a round that this member coordinates has not ended yet."""
        return self._missing is not None

    @property
    def held(self) -> tuple[int, ...]:
        return tuple(self._held.tolist())

    @property
    def stable(self) -> tuple[int, ...]:
        return tuple(self._stable.tolist())

    def hold(self, sender: Site, count: int) -> None:
        """Messages 0 to count-1 of a sender are held here, without a gap."""
        place = self._place.get(sender)
        if place is None:
            raise UsageError(f"'{sender}' is not among the senders.")
        if count < self._held[place]:
            raise UsageError(f"What is held of '{sender}' cannot go back to {count}.")
        self._held[place] = count

    def hold_all(self, counts: Sequence[int] | Counts) -> None:
        """The same for every sender at once, in the order of the senders."""
        given = np.array(counts, WIRE_COUNTS)
        if given.shape != self._held.shape or (given < self._held).any():
            raise UsageError("What is held needs one count for each sender, none going back.")
        self._held = given

    def begin(self, held: Sequence[int], stable: Sequence[int]) -> None:
        """What is held and stable when a new view begins: nothing of it is declared again."""
        self.hold_all(held)
        given = np.array(stable, WIRE_COUNTS)
        if given.shape != self._stable.shape or (given < self._stable).any() or (given > self._held).any():
            raise UsageError("What is stable needs one count for each sender, none beyond what is held.")
        self._stable = given

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:  # noqa: ARG002
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
        """Begin a round under a number of our own, greater than any heard of."""
        size, rank = len(self._rank), self._rank[self.site]
        self._round = (self._round // size + 1) * size + rank
        self._awaiting = self._again = False
        self._missing = set(self._rank) - self._suspected - {self.site}
        self._least = self._held.copy()
        self._answers.clear()
        if not self._missing:
            return self._finish()
        effects: list[Effect] = [CancelTimer(ACKNOWLEDGE), Multicast(StartRound(self._round, self._view))]
        return effects + self._first_wait(ASK)

    # Step 2: the members answer

    def _on_start(self, sender: Site, pdu: StartRound) -> list[Effect]:
        number = pdu.round
        if not self._makes_sense(number, sender):
            return self._ignore()
        if number < self._round:
            # Its sender does not know that the group is further, say after a restart; our answer tells it.
            return [Send(sender, Acknowledgement(self._round, self._held.tobytes(), self._view))]
        known = number == self._round
        if known and not self._awaiting:
            # We have the result already, so the coordinator has it too and this START is a late one.
            return []
        if self._missing is not None:
            self._give_way()
        self._round = number
        self._awaiting = True
        answer: list[Effect] = [Send(sender, Acknowledgement(number, self._held.tobytes(), self._view))]
        if self._repetition is not None:
            answer += self._next_wait(ACKNOWLEDGE) if known else self._first_wait(ACKNOWLEDGE)
        return answer

    def _give_way(self) -> None:
        """A greater round is under way: it will find what ours would have found."""
        self._missing = None
        self._again = False

    # Step 3: the coordinator collects, and tells the minima

    def _on_acknowledgement(self, sender: Site, pdu: Acknowledgement) -> list[Effect]:
        # A negative count says no more than a zero would: what is stable already stays so.
        held, missing, answers = pdu.held, self._missing, self._answers
        if len(held) != self._array_bytes:
            return self._ignore()
        if missing is None or pdu.round != self._round or sender not in missing:
            return self._on_stray_acknowledgement(sender, pdu.round)
        missing.remove(sender)
        answers.append(held)
        if not missing:
            return self._finish()
        if len(answers) == FOLD_ANSWERS:
            self._fold()
        return []

    def _on_stray_acknowledgement(self, sender: Site, number: int) -> list[Effect]:
        """An ACK of another round: its sender has missed the result, or waits for one who is gone."""
        if sender not in self._rank or sender == self.site or not 0 <= number <= LARGEST_ROUND:
            return self._ignore()
        if self._missing is not None and number == self._round:
            return []  # it has answered before, or is not waited for
        if self._finished is not None and number <= self._finished.round:
            return [Send(sender, self._finished)]
        if number > self._round and self.coordinator == self.site:
            self._round = number
            return self._begin()
        if number == self._round and self._awaiting and self.coordinator == self.site:
            return self._begin()
        return []

    def _fold(self) -> None:
        """Take the answers so far into the minimum."""
        answers = np.frombuffer(b"".join(self._answers), WIRE_COUNTS)
        rows = answers.reshape(len(self._answers), len(self.senders))
        self._least = np.minimum(self._least, rows.min(axis=0, initial=LARGEST_COUNT))
        self._answers.clear()

    def _finish(self) -> list[Effect]:
        self._fold()
        result = np.maximum(self._stable, self._least)
        self._missing = None
        self._finished = Information(self._round, result.tobytes(), self._view)
        self.rounds_finished += 1
        effects: list[Effect] = [CancelTimer(ASK), Multicast(self._finished), *self._declare(result)]
        return effects + self._begin() if self._again else effects

    def _on_information(self, sender: Site, pdu: Information) -> list[Effect]:
        if not self._makes_sense(pdu.round, sender) or len(pdu.stable) != self._array_bytes:
            return self._ignore()
        result = np.frombuffer(pdu.stable, WIRE_COUNTS)
        if (result > self._held).any() or not _none_negative(pdu.stable):
            return self._ignore()
        effects: list[Effect] = []
        if pdu.round >= self._round:
            if self._missing is not None:
                effects.append(CancelTimer(ASK))
            self._give_way()
            self._round = pdu.round
            if self._awaiting:
                effects.append(CancelTimer(ACKNOWLEDGE))
            self._awaiting = False
        return effects + self._declare(result)

    def _declare(self, result: Counts) -> list[Effect]:
        """Whatever is newly stable, sender by sender."""
        news: list[Effect] = []
        rows = zip(self.senders, self._stable.tolist(), result.tolist(), strict=True)
        for sender, before, after in rows:
            if after > before:
                news.append(Stable(sender, before, after - before))
        if news:
            self._stable = np.maximum(self._stable, result)
        return news

    # Loss

    def _first_wait(self, timer: str) -> list[Effect]:
        return [] if self._repetition is None else self._wait(timer, self._repetition.first_ns)

    def _next_wait(self, timer: str) -> list[Effect]:
        return [] if self._repetition is None else self._wait(timer, self._repetition.after(self._wait_ns))

    def _wait(self, timer: str, wait_ns: Nanoseconds) -> list[Effect]:
        """Members wait up to twice as long, each its own time: in step they would fill the same buffers."""
        self._wait_ns = wait_ns
        assert self._random is not None, "who repeats has a source of randomness"
        spread_ns = 0 if timer == ASK else self._random.randrange(wait_ns)
        return [SetTimer(timer, wait_ns + spread_ns)]

    def _on_timer(self, name: str) -> list[Effect]:
        if name == ASK and self._missing:
            asked = tuple(sorted(self._missing, key=self._rank.__getitem__))
            return [Multicast(StartRound(self._round, self._view), asked), *self._next_wait(ASK)]
        if name == ACKNOWLEDGE and self._awaiting:
            return self._repeat_answer() + self._next_wait(ACKNOWLEDGE)
        return []

    def _repeat_answer(self) -> list[Effect]:
        """To whoever asked, or to its successor if it is gone; what is held by now may be told."""
        asker = self._owner(self._round)
        to = self.coordinator if asker in self._suspected else asker
        if to == self.site:
            return self._begin()
        return [Send(to, Acknowledgement(self._round, self._held.tobytes(), self._view))]

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
        return [Send(site, StartRound(self._round, self._view))]

    # Numbers

    def _owner(self, number: int) -> Site:
        return self._order[number % len(self._order)]

    def _makes_sense(self, number: int, sender: Site) -> bool:
        """Whether a round's number is one that this sender, a member other than ourselves, may use."""
        order = self._order
        return 0 <= number <= LARGEST_ROUND and order[number % len(order)] == sender != self.site

    def _ignore(self) -> list[Effect]:
        self.ignored += 1
        return []


def _none_negative(counts: bytes) -> bool:
    """Whether no count is negative: the highest byte of each has its sign bit clear, as ASCII has."""
    return counts[COUNT_BYTES - 1 :: COUNT_BYTES].isascii()
