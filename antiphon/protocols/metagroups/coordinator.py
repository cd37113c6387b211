"""A site as the coordinator, if it is the one: it finds out what has to change, and makes attempts."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from msgspec.structs import replace

from antiphon.core.effects import Effect, Multicast, SetTimer
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.attempt import Attempt, Outcome
from antiphon.protocols.metagroups.company import Company
from antiphon.protocols.metagroups.credible import can_follow
from antiphon.protocols.metagroups.grove import Grove
from antiphon.protocols.metagroups.handover import Handover
from antiphon.protocols.metagroups.parts import said
from antiphon.protocols.metagroups.pdus import (
    Accept,
    Accepted,
    Ballot,
    Decision,
    MetaGroupsConfiguration,
    Prepare,
    Refuse,
    Report,
    TreeId,
    Vote,
)
from antiphon.protocols.metagroups.table import Layout, plan_trees
from antiphon.protocols.metagroups.voter import LONGEST_LEAP

STUCK_AFTER: Final = 2
"""A site begins anew if what it lacks for a decision does not come for this many times as long as it takes
to hold a site to be gone; a coordinator tries again if a decision is not accepted for so long. Raising it
makes a group wait longer for what nobody has."""
LOST_AFTER: Final = 2
"""A coordinator whose cluster can go on only with those who are away waits for this many times as long as it
takes to hold a site to be gone; then it begins anew. Raising it spares what sites with a memory know, and
keeps a group from going on when they never come back."""


class Alarm:
    """The council's one timer; while it is set, nothing sets it again."""

    def __init__(self, effects: list[Effect]) -> None:
        self._effects: Final = effects
        self._is_set = False

    def set(self, after_ns: Nanoseconds) -> None:
        if not self._is_set:
            self._is_set = True
            self._effects.append(SetTimer("council", after_ns))

    def clear(self) -> None:
        """It has run out, or another time is wanted."""
        self._is_set = False


class Coordinator:
    """What a site does to have the next version of the table agreed on."""

    def __init__(
        self,
        site: Site,
        grove: Grove,
        company: Company,
        handover: Handover,
        alarm: Alarm,
        configuration: MetaGroupsConfiguration,
        random: Random,
        effects: list[Effect],
        vote: Callable[[Nanoseconds, Prepare | Accept], None],
        give_up: Callable[[Nanoseconds], None],
    ) -> None:
        """`vote` puts something to this site's own voter, which answers at once.

        `give_up` makes this site begin anew.
        """
        self.attempts = 0
        self._site: Final = site
        self._grove: Final = grove
        self._company: Final = company
        self._handover: Final = handover
        self._alarm: Final = alarm
        self._knobs: Final = configuration
        self._random: Final = random
        self._effects: Final = effects
        self._vote: Final = vote
        self._give_up: Final = give_up
        self._attempt: Attempt | None = None
        self._rounds = 0
        """The greatest round heard of."""

    @property
    def is_busy(self) -> bool:
        """Whether an attempt is under way."""
        return self._attempt is not None

    def forget(self) -> None:
        """Another version is in force, or none."""
        self._attempt = None
        self._rounds = 0

    def give_way(self, ballot: Ballot) -> None:
        """This site takes part in an attempt: an earlier one of its own is over."""
        self._rounds = max(self._rounds, ballot[0])
        if self._attempt is not None and self._attempt.ballot < ballot:
            self._attempt = None

    def learn_round(self, round_: int) -> None:
        """This site's own voter takes part in attempts from this round on; those before are over."""
        self._rounds = max(self._rounds, round_)
        if self._attempt is not None and self._attempt.ballot[0] < round_:
            self._attempt = None

    # What has to change

    def look(self, now: Nanoseconds) -> None:
        """If this site coordinates and something has to change, see to it soon."""
        layout = self._grove.layout
        if layout is None or self._attempt is not None or self._company.chief(now, layout) != self._site:
            return
        self._company.drop_stale(now, layout)
        if self._grove.stopped or self._company.wishes or self._company.gone(now, layout.lives):
            self._alarm.set(self._knobs.gather_ns)

    def fire(self, now: Nanoseconds) -> None:
        """Go on with what has been begun, or begin."""
        layout = self._grove.layout
        if self._attempt is not None:
            self._pursue(now, self._attempt)
            self._alarm.set(self._knobs.repair_ns)
        elif layout is not None and self._company.chief(now, layout) == self._site:
            gone = self._company.gone(now, layout.lives)
            if self._grove.stopped or gone or self._company.wishes:
                self._begin(now, layout, self._concerned(layout, gone))

    def _concerned(self, layout: Layout, gone: frozenset[Site]) -> frozenset[TreeId]:
        """The trees that have to be stopped, as far as can be told now."""
        wishes = self._company.wishes
        seats = [wishes.get(site, seat) for site, seat in layout.seats.items() if site not in gone]
        seats += [wish for site, wish in wishes.items() if site not in layout.seats]
        plan = plan_trees(layout, seats, self._grove.stopped, self._knobs.shape)
        return plan.ended

    # Attempts

    def _begin(self, now: Nanoseconds, layout: Layout, stop: frozenset[TreeId]) -> None:
        self.attempts += 1
        self._rounds += 1
        ballot = (self._rounds, self._site)
        invited = {*layout.lives, *(site for site, _ in self._company.lives_wanted(layout))}
        attempt = self._attempt = Attempt(layout, ballot, invited, stop, now)
        self._vote(now, self._prepare(layout, attempt))
        self._alarm.set(self._knobs.repair_ns)
        if self._attempt is attempt and attempt.decision is None:
            self._ask(attempt, attempt.invited)

    def _prepare(self, layout: Layout, attempt: Attempt) -> Prepare:
        stop, origin = tuple(sorted(attempt.stop)), layout.decision.origin
        return Prepare(self._knobs.rules, origin, attempt.version, attempt.ballot[0], stop)

    def _ask(self, attempt: Attempt, sites: Iterable[Site]) -> None:
        layout = self._grove.layout
        assert layout is not None, "only a site in a cluster makes attempts"
        others = tuple(sorted(site for site in sites if site != self._site))
        if others:
            self._effects.append(Multicast(self._prepare(layout, attempt), others))

    def _pursue(self, now: Nanoseconds, attempt: Attempt) -> None:
        """Ask again whoever has not answered; go on without those who are silent for too long."""
        wishes = self._company.wishes
        if any(
            site in wishes and report.life < wishes[site].life for site, report in attempt.reports.items()
        ):
            self._again(now, attempt)  # somebody has lost its memory since it reported
        elif attempt.decision is None:
            self._ask(attempt, attempt.invited - attempt.reports.keys())
            self._conclude(now, attempt)
        elif self._is_stuck(now, attempt):
            self._again(now, attempt)
        else:
            self._propose(attempt, attempt.open())

    def _is_stuck(self, now: Nanoseconds, attempt: Attempt) -> bool:
        """Whether somebody who must accept has gone, or does not accept for too long."""
        if now - attempt.since_ns > STUCK_AFTER * self._knobs.suspect_ns:
            return True
        return any(self._company.is_silent(now, site, attempt.since_ns) for site in attempt.open())

    def _silent(self, now: Nanoseconds, attempt: Attempt) -> frozenset[Site]:
        gone = self._company.gone(now, attempt.invited)
        return gone | {
            site for site in attempt.invited if self._company.is_silent(now, site, attempt.since_ns)
        }

    def _conclude(self, now: Nanoseconds, attempt: Attempt) -> None:
        gone = self._silent(now, attempt)
        outcome = attempt.conclude(self._company.wishes, gone, self._handover.over(), self._knobs.shape)
        if outcome is Outcome.STOP_MORE:
            self._again(now, attempt)
        elif outcome is Outcome.LOST:
            if now - attempt.since_ns > LOST_AFTER * self._knobs.suspect_ns:
                self._give_up(now)
        elif outcome is Outcome.NOTHING:
            self._attempt = None
        elif outcome is Outcome.DECIDED:
            attempt.since_ns = now
            self._propose(attempt, attempt.open())
            if self._site in attempt.open():
                self._vote(now, _accept(attempt))

    def _again(self, now: Nanoseconds, attempt: Attempt) -> None:
        layout = self._grove.layout
        assert layout is not None, "only a site in a cluster makes attempts"
        gone = self._silent(now, attempt)
        self._begin(now, layout, attempt.stop | self._concerned(layout, gone))

    def _propose(self, attempt: Attempt, sites: Iterable[Site]) -> None:
        others = tuple(sorted(site for site in sites if site != self._site))
        if others:
            self._effects.extend(said(_accept(attempt), others))

    # What voters answer

    def hear_report(self, now: Nanoseconds, sender: Site, pdu: Report) -> None:
        attempt = self._attempt_meant(pdu.version, pdu.round)
        if attempt is not None and attempt.decision is None and sender in attempt.invited:
            attempt.reports[sender] = pdu if self._is_credible(pdu.vote) else replace(pdu, vote=None)
            self._conclude(now, attempt)

    def _is_credible(self, vote: Vote | None) -> bool:
        """Whether somebody can have accepted what it says that it has."""
        layout = self._grove.layout
        assert layout is not None, "only a site in a cluster makes attempts"
        if vote is None:
            return True
        is_earlier = vote.ballot[0] <= self._rounds and vote.decision.ballot <= vote.ballot
        return is_earlier and can_follow(vote.decision, layout, self._knobs)

    def hear_accepted(self, sender: Site, pdu: Accepted) -> Decision | None:
        """One more has accepted; the decision if all have who must."""
        attempt = self._attempt_meant(pdu.version, pdu.round)
        if attempt is None or attempt.decision is None or sender not in attempt.reports:
            return None
        if attempt.reports[sender].life == pdu.life:
            attempt.accepted.add(sender)
        return None if attempt.open() else attempt.decision

    def hear_refuse(self, sender: Site, pdu: Refuse) -> None:
        """Somebody takes part in a later attempt: give way for a while."""
        attempt = self._attempt
        if attempt is None or attempt.version != pdu.version or sender not in attempt.invited:
            return
        if attempt.ballot[0] <= pdu.round:
            # The next round must be one that this site's own voter, too, takes part in at once.
            self._rounds = max(self._rounds, min(pdu.round, self._rounds + LONGEST_LEAP - 1))
            self._attempt = None
            self._alarm.clear()
            self._alarm.set(self._random.randint(self._knobs.gather_ns, 4 * self._knobs.gather_ns))

    def _attempt_meant(self, version: int, round_: int) -> Attempt | None:
        attempt = self._attempt
        fits = attempt is not None and attempt.version == version and attempt.ballot[0] == round_
        return attempt if fits else None


def _accept(attempt: Attempt) -> Accept:
    assert attempt.decision is not None
    return Accept(attempt.version, attempt.ballot[0], attempt.adopted, attempt.decision)
