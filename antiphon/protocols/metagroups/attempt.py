"""One attempt of a coordinator to make the next version of the table.

It is one ballot of a consensus among the sites of the version in force: any two sets of sites that can decide
have one in common. An attempt first asks everyone to stop the trees concerned and to report, then has its
decision accepted, and puts it in force when all who are in it have accepted it, and with that hold all that
they must deliver by it.

A coordinator may find that an earlier attempt's decision could be in force somewhere; then it adopts that
one. It could be if all who are in it and are heard have accepted it: if one of them has not, it was not and
never will be, since that one now takes part in no earlier attempt. A decision that was adopted once is
always adopted again.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from enum import Enum

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.ending import end_tree
from antiphon.protocols.metagroups.pdus import Ballot, Decision, Holding, Report, Seat, TreeId, Vote
from antiphon.protocols.metagroups.shapes import Shape
from antiphon.protocols.metagroups.table import Layout, decide, plan_trees, retire


class Outcome(Enum):
    """What can become of the reports."""

    WAIT = "not enough have reported"
    NOTHING = "there is nothing to change"
    LOST = "too few remember, and those who are away cannot go on by themselves"
    STOP_MORE = "more trees are concerned than were stopped"
    DECIDED = "there is a decision to accept"


class Attempt:
    """What a coordinator has gathered in one ballot."""

    def __init__(
        self,
        layout: Layout,
        ballot: Ballot,
        invited: Iterable[Site],
        stop: frozenset[TreeId],
        now: Nanoseconds,
    ) -> None:
        self._layout = layout
        self.ballot = ballot
        self.version = layout.version + 1
        self.invited = frozenset(invited)
        self.stop = stop
        self.reports: dict[Site, Report] = {}
        self.since_ns = now
        """When the phase began in which it is."""
        self.decision: Decision | None = None
        self.adopted = False
        self.accepted: set[Site] = set()

    # The first phase

    def conclude(
        self,
        wishes: Mapping[Site, Seat],
        gone: Iterable[Site],
        over: Collection[TreeId],
        shape: Shape,
    ) -> Outcome:
        """Make something of the reports, without those who are gone and the trees that are over."""
        if not self.invited - set(gone) <= self.reports.keys():
            return Outcome.WAIT
        voters = [site for site, report in self.reports.items() if self._remembers(site, report)]
        if not self._layout.is_quorum(voters):
            return Outcome.LOST if self._is_lost(voters) else Outcome.WAIT
        stopped: Set[TreeId] = {
            holding.tree for report in self.reports.values() for holding in report.holdings
        }
        stopped = self._layout.with_relatives(stopped)
        if not stopped <= self.stop:
            self.stop |= stopped
            return Outcome.STOP_MORE
        vote = self._vote_to_adopt()
        if vote is not None:
            self.decision, self.adopted = vote.decision, True
            return Outcome.DECIDED
        return self._decide(wishes, over, shape)

    def _is_lost(self, voters: Collection[Site]) -> bool:
        """Whether this cluster can go on only with those who are away, and they cannot without these.

        If nobody has lost its memory, this is the smaller part of a cluster, and waits for the others.
        """
        seated = self._layout.lives.keys() & self.reports.keys()
        return len(voters) < len(seated) and not self._layout.is_quorum(self._layout.lives.keys() - seated)

    def _remembers(self, site: Site, report: Report) -> bool:
        return self._layout.lives.get(site) == report.life

    def _vote_to_adopt(self) -> Vote | None:
        votes = [report.vote for report in self.reports.values() if report.vote is not None]
        # Should somebody tell of another decision by the same name, the one that most have accepted counts.
        last = max(
            votes,
            key=lambda vote: (vote.ballot, sum(vote.decision == other.decision for other in votes)),
            default=None,
        )
        if last is None or last.adopted:
            return last
        lives = {seat.site: seat.life for seat in last.decision.seats}
        for site, report in self.reports.items():
            if lives.get(site) == report.life and not is_vote_for(report.vote, last.decision):
                return None
        return last

    def _decide(self, wishes: Mapping[Site, Seat], over: Collection[TreeId], shape: Shape) -> Outcome:
        layout = self._layout
        seats = sorted((self._seat(site, wishes) for site in self.reports), key=lambda seat: seat.site)
        plan = plan_trees(layout, seats, self.stop, shape)
        if not plan.ended <= self.stop:
            self.stop |= plan.ended
            return Outcome.STOP_MORE
        if tuple(seats) == layout.decision.seats and not self.stop:
            return Outcome.NOTHING
        endings = [
            end_tree(tree, layout.members_on(tree), self._holdings(tree)) for tree in sorted(self.stop)
        ]
        origin, retiring = layout.decision.origin, retire(layout, plan, over)
        self.decision = decide(origin, self.version, self.ballot, seats, plan, retiring, endings)
        return Outcome.DECIDED

    def _seat(self, site: Site, wishes: Mapping[Site, Seat]) -> Seat:
        """Where a site that has reported sits: by its latest wish, else where it sat."""
        life = self.reports[site].life
        wish, seat = wishes.get(site), self._layout.seats.get(site)
        if wish is not None and wish.life == life:
            return wish
        if seat is not None and seat.life == life:
            return seat
        return Seat(site, life, 0, ())

    def _holdings(self, tree: TreeId) -> dict[Site, Holding]:
        return {
            site: holding
            for site, report in self.reports.items()
            if self._remembers(site, report)
            for holding in report.holdings
            if holding.tree == tree
        }

    # The second phase

    def open(self) -> frozenset[Site]:
        """Who has not accepted yet and must."""
        assert self.decision is not None
        needed = self.reports.keys() if self.adopted else {seat.site for seat in self.decision.seats}
        return frozenset(needed) - self.accepted


def is_vote_for(vote: Vote | None, decision: Decision) -> bool:
    """Whether somebody accepted this decision, and holds all that it must deliver by it."""
    return vote is not None and vote.whole and vote.decision == decision
