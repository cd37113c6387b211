"""Gossip: members send a few others at random the least counts of all members that they know of.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.2.4, figures 4.5 and 4.6.
Every step each member sends the least counts that it knows, and which members they cover, to `subset`
others drawn at random. A member whose counts cover all members has the result and multicasts it.

Assumes: a failure detector that reports crashes by Suspected and Restored, and an owner that reports what is
held with `hold`. Nothing is assumed of the network: PDUs may be lost, repeated and reordered.
Guarantees: a member declares stable only what it holds itself and what every member that the finder of the
result did not suspect holds (checker: stability); what has been declared is never taken back; a round that
was triggered ends once PDUs get through and the crashed are suspected.

Deviations from the text, and why (errata G1 to G8; the text's own form stops for ever in its second round):
- Those of all the protocols (`antiphon.protocols.stability.base`).
- On entering a later round a member adds its own counts and its own bit, which the text forgets (G1). Counts
  are always merged by minimum and union (G2), what is stable is never lowered (G3), and every later round is
  entered, not only the next one (G4).
- The members covered travel as a bitmap over the members of one view, the same for all (G5).
- Between rounds members are idle. Any member can be triggered, the others enter on the first gossip of the
  round, and begin their own steps at a random moment within one (G7).
- Completion is also tested when a member is suspected and at each step (G8).
- The result is multicast once, as the text proposes, and not added to gossips. A member that missed it goes
  on gossiping, and those that have it answer, each at most once a step and not within a step of the result.
- The result names the members that it covers unless it covers all. A member that asked for the round and is
  not covered, or was a round behind, asks again.
- With `search` the step adapts itself: the first member of the view tries steps in the rounds that it begins,
  and looks for the best one as section 5.3.2 does offline. Gossips then carry the step of their round.

What makes it fast: the counts sent are at most what each member covered holds. So a gossip that covers no new
member is skipped, one that covers all that we cover is taken as it is, and only the rest is merged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import ClassVar, Final

import numpy as np

from antiphon.analysis.golden import StepController
from antiphon.core.effects import CancelTimer, Effect, Multicast, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.fields import Hash, Number
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, Restored, RoundTriggered, Suspected, TimerFired
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import (
    Bitmap,
    Configuration,
    CountBytes,
    Counts,
    Objective,
    Stability,
    none_negative,
    read_counts,
)

STEP: Final = "step"
"""The timer of a member's next gossip."""

count_bits: Final = int.from_bytes


class Rumour(Pdu, frozen=True, gc=False):
    """A gossip: the least counts of the members covered, and a bit for each of them in the view's order."""

    code: ClassVar[int] = 27
    round: Number
    heard: Bitmap
    least: CountBytes
    view: Hash = 0
    step_ns: Number = 0
    """The step of this round, where it adapts itself."""


class Outcome(Pdu, frozen=True, gc=False):
    """The result of a round; `heard` has the members that it covers, and is empty if it covers all."""

    code: ClassVar[int] = 28
    round: Number
    stable: CountBytes
    heard: Bitmap = b""
    view: Hash = 0
    repeated: bool = False
    """Whether it answers a member of S_Gossip that has missed it."""


PDUS: Final = (Rumour, Outcome)


@dataclass(frozen=True, kw_only=True)
class GossipConfiguration(Configuration):
    """How often and how widely members gossip."""

    step_ns: Nanoseconds = SECOND_NS
    """Between a member's gossips. Longer costs time; shorter costs messages, and time once links are full."""
    subset: int = 1
    """How many members a gossip goes to. More cost messages, in proportion, and save steps, ever fewer."""
    hops: tuple[int, int] | None = None
    """For members that know no addresses: each gossip is multicast so far, a number of links drawn from
    this range, instead of to a subset. Farther costs messages, which grow as fast as the network does."""
    search: tuple[Nanoseconds, Nanoseconds] | None = None
    """Look for the best step within this range; others use `step_ns` until they learn another.
    A wider range costs more rounds with steps that turn out bad."""

    def __post_init__(self) -> None:
        if self.step_ns < 1:
            raise UsageError("A gossip step must take some time.")
        if self.subset < 1:
            raise UsageError(
                f"A gossip to {self.subset} members is none.", hint="Take a subset of 1 or more."
            )
        if self.hops is not None and not 1 <= self.hops[0] <= self.hops[1]:
            raise UsageError("Gossips go from 1 hop up to some number that is not less.")
        if self.search is not None and not 0 < self.search[0] < self.search[1]:
            raise UsageError("The least step to search from must be above 0 and below the most.")


@lru_cache(maxsize=64)
def step_timer(step_ns: Nanoseconds) -> SetTimer:
    """The members in one process share it: there may be many of them."""
    return SetTimer(STEP, step_ns)


def draw(
    uniform: Callable[[], float], wanted: int, order: Sequence[Site], own: int, others: Sequence[int] | None
) -> list[Site]:
    """This many different members, or all if there are fewer, each with the same probability.

    They are drawn from the places given or, if none are given, from all but our own.
    """
    choices = len(others) if others is not None else len(order) - 1
    wanted = min(wanted, choices)
    drawn: list[Site] = []
    while len(drawn) < wanted:
        place = int(uniform() * choices)
        # Of all but ourselves, those behind us are one place further on.
        rank = others[place] if others is not None else place + (place >= own)
        if order[rank] not in drawn:
            drawn.append(order[rank])
    return drawn


class Gossip(Stability):
    """One member's part. Its owner reports what is held with `hold`, and forwards inputs and effects."""

    __slots__ = (
        "_active", "_again", "_answer_until_ns", "_answered", "_began_ns", "_bit", "_controller", "_everyone",
        "_finished", "_fold", "_heard", "_heard_bytes", "_hops", "_least", "_needed", "_others", "_round",
        "_rumour", "_search", "_step", "_subset", "_uniform", "_wanted",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        members: Sequence[Site],
        senders: Sequence[Site],
        configuration: GossipConfiguration,
        random: Random,
    ) -> None:
        super().__init__(site, members, senders, configuration, random)
        size = len(self._order)
        self._uniform = random.random
        self._subset, self._hops = configuration.subset, configuration.hops
        self._step = step_timer(configuration.step_ns)
        self._search = configuration.search
        self._controller: StepController | None = None
        self._began_ns: Nanoseconds | None = None
        """When we began the round under way, if we did."""
        self._fold = np.minimum if configuration.objective is Objective.LEAST else np.maximum
        self._bit = 1 << self._rank[site]
        self._everyone = self._needed = (1 << size) - 1
        """Bits: of all members, and of the members waited for."""
        self._heard_bytes = (size + 7) // 8
        self._others: list[int] | None = None
        """The ranks to gossip to; None, for all but our own, while no member is suspected."""
        self._round = 0
        """The round under way here, or the one that would be next."""
        self._active = self._again = self._wanted = False
        """Whether a round is under way, another is to follow, and this one was asked for here."""
        self._heard = 0
        self._least: Counts = self._held
        self._rumour: Rumour | None = None
        """What is sent while nothing new comes."""
        self._finished: Outcome | None = None
        self._answered = 0
        self._answer_until_ns: Nanoseconds = 0

    @property
    def under_way(self) -> bool:
        """Whether a round has begun here and has not ended here."""
        return self._active

    def abandon(self) -> None:
        """No-op: a member that has the result sends it to members that still gossip about the round."""

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        if type(event) is Received:
            pdu = event.pdu
            if type(pdu) is Rumour:
                # Almost everything that happens to a group is this: a gossip of the round under way.
                if pdu.round == self._round and self._active and pdu.view == self._view:
                    theirs, heard = count_bits(pdu.heard, "little"), self._heard
                    together = theirs | heard
                    if together == heard:
                        return []
                    return self._learn(now, event.sender, pdu, theirs, together)
                return self._on_other_rumour(now, event.sender, pdu)
            return self._on_outcome(now, event.sender, pdu) if type(pdu) is Outcome else self._ignore()
        if type(event) is TimerFired:
            return self._on_step(now) if event.name == STEP and self._active else []
        if type(event) is RoundTriggered:
            return self._on_trigger(now)
        if type(event) is Suspected:
            return self._on_suspected(now, event.site)
        if type(event) is Restored:
            return self._on_restored(event.site)
        return []

    # A round begins, here or by a gossip

    def _on_trigger(self, now: Nanoseconds) -> list[Effect]:
        if self._active:
            # What has become stable since the round began must be found too: that takes another round.
            self._again = True
            return []
        return self._begin(now)

    def _begin(self, now: Nanoseconds) -> list[Effect]:
        self._wanted, self._again, self._began_ns = True, False, now
        if self._search is not None and self.coordinator == self.site:
            self._controller = self._controller or StepController(*self._search)
            self._step = step_timer(self._controller.step_ns)
        return self._enter(now, self._held, self._bit)

    def _enter(self, now: Nanoseconds, least: Counts, heard: int) -> list[Effect]:
        """Take part in a round with what we hold, and gossip from a random moment of one step on."""
        was_idle, self._active = not self._active, True
        self._least, self._heard, self._rumour = least, heard, None
        if not self._needed & ~heard:
            return self._finish(now)
        return [SetTimer(STEP, int(self._uniform() * self._step.after_ns))] if was_idle else []

    # Steps

    def _on_step(self, now: Nanoseconds) -> list[Effect]:
        if not self._needed & ~self._heard:
            return self._finish(now)
        rumour = self._rumour
        if rumour is None:
            heard = self._heard.to_bytes(self._heard_bytes, "little")
            step_ns = 0 if self._search is None else self._step.after_ns
            rumour = self._rumour = Rumour(self._round, heard, self._least.tobytes(), self._view, step_ns)
        if self._hops is not None:
            return [Multicast(rumour, hops=self._draw_hops()), self._step]
        own, others = self._rank[self.site], self._others
        effects: list[Effect] = [
            Send(other, rumour) for other in draw(self._uniform, self._subset, self._order, own, others)
        ]
        effects.append(self._step)
        return effects

    def _draw_hops(self) -> int:
        assert self._hops is not None
        least, most = self._hops
        return least + int(self._uniform() * (most - least + 1))

    # Gossip of others

    def _learn(self, now: Nanoseconds, sender: Site, pdu: Rumour, theirs: int, together: int) -> list[Effect]:
        """A gossip of our round that covers a new member."""
        least = pdu.least
        sound = self._are_counts(least) and len(pdu.heard) == self._heard_bytes
        if not sound or together > self._everyone or sender not in self._rank:
            return self._ignore()
        if together == theirs:
            self._least, self._rumour = read_counts(least), pdu
        else:
            self._least, self._rumour = self._fold(self._least, read_counts(least)), None
        self._heard = together
        return [] if self._needed & ~together else self._finish(now)

    def _on_other_rumour(self, now: Nanoseconds, sender: Site, pdu: Rumour) -> list[Effect]:
        """A gossip of a round that we have not entered yet, or of one that is over here."""
        if pdu.view != self._view:
            return []  # not garbage: the group's members are seen differently for a moment
        heard = count_bits(pdu.heard, "little")
        sound = self._are_counts(pdu.least) and len(pdu.heard) == self._heard_bytes
        if not sound or heard > self._everyone or not self._makes_sense(sender, pdu.round):
            return self._ignore()
        if pdu.round < self._round:
            return self._answer(now, sender, pdu.round)
        self._round, self._began_ns = pdu.round, None
        if self._search is not None and self._search[0] <= pdu.step_ns <= self._search[1]:
            self._step = step_timer(pdu.step_ns)
        # Our counts in this round are newer than any wish for another round.
        self._wanted, self._again = self._wanted or self._again, False
        return self._enter(now, self._fold(self._held, read_counts(pdu.least)), heard | self._bit)

    def _makes_sense(self, sender: Site, number: int) -> bool:
        return sender in self._rank and sender != self.site and self._may_follow(self._round, number)

    # The result

    def _finish(self, now: Nanoseconds) -> list[Effect]:
        # Whatever others may have claimed, we hold what we declare.
        result = self._result(self._fold(self._least, self._held))
        covers_all = self._heard == self._everyone
        heard = b"" if covers_all else self._heard.to_bytes(self._heard_bytes, "little")
        self._finished = Outcome(self._round, result.tobytes(), heard, self._view)
        self.rounds_finished += 1
        effects: list[Effect] = [CancelTimer(STEP), Multicast(self._finished), *self._declare(result)]
        self._wanted = False
        return effects + self._end(now, self._finished)

    def _end(self, now: Nanoseconds, outcome: Outcome) -> list[Effect]:
        """Go idle, or on to the next round if one is wanted."""
        again = self._again or self._wanted
        if self._controller is not None and self._began_ns is not None and outcome.round == self._round:
            self._controller.round_took(now - self._began_ns)
        self._began_ns = None
        self._active = self._again = self._wanted = False
        self._rumour, self._least = None, self._held
        self._finished, self._round = outcome, outcome.round + 1
        # Members that gossip on are probably about to receive the result: none is answered for one step.
        self._answered, self._answer_until_ns = self._everyone, now + self._step.after_ns
        return self._begin(now) if again else []

    def _on_outcome(self, now: Nanoseconds, sender: Site, pdu: Outcome) -> list[Effect]:
        if pdu.view != self._view:
            return []
        if not self._are_counts(pdu.stable) or not none_negative(pdu.stable):
            return self._ignore()
        if len(pdu.heard) not in (0, self._heard_bytes) or not self._makes_sense(sender, pdu.round):
            return self._ignore()
        result = read_counts(pdu.stable)
        if self._objective is Objective.LEAST:
            # Members that suspected us may have found more than we hold.
            result = np.minimum(result, self._held)
        effects = self._declare(result)
        if pdu.round < self._round:
            return effects
        if self._active:
            effects.append(CancelTimer(STEP))
        covered = not pdu.heard or bool(count_bits(pdu.heard, "little") & self._bit)
        if pdu.round == self._round and covered:
            self._wanted = False
        return effects + self._end(now, pdu)

    def _answer(self, now: Nanoseconds, sender: Site, number: int) -> list[Effect]:
        """A member that gossips about a round that is over has missed its result."""
        finished = self._finished
        if self._repetition is None or finished is None or finished.round < number:
            return []
        if now >= self._answer_until_ns:
            self._answered, self._answer_until_ns = 0, now + self._step.after_ns
        bit = 1 << self._rank[sender]
        if self._answered & bit:
            return []
        if self._hops is not None:
            self._answered = self._everyone
            return [Multicast(finished, hops=self._draw_hops())]
        self._answered |= bit
        return [Send(sender, finished)]

    # Crashes

    def _on_suspected(self, now: Nanoseconds, site: Site) -> list[Effect]:
        if site not in self._rank or site == self.site or site in self._suspected:
            return []
        self._suspected.add(site)
        self._reckon()
        return self._finish(now) if self._active and not self._needed & ~self._heard else []

    def _on_restored(self, site: Site) -> list[Effect]:
        """A member that is back is gossiped to and waited for again."""
        if site in self._suspected:
            self._suspected.remove(site)
            self._reckon()
        return []

    def _reckon(self) -> None:
        """Who is waited for and gossiped to, now that a suspicion has changed."""
        ranks, own = {self._rank[site] for site in self._suspected}, self._rank[self.site]
        self._needed = self._everyone & ~sum(1 << rank for rank in ranks)
        live = [rank for rank in range(len(self._order)) if rank not in ranks and rank != own]
        self._others = live if ranks else None
