"""One attempt of a proposer to have the next view decided.

It is one ballot of a consensus among the sites of the current view; any two quorums have a site in common.
The attempt first asks all sites to stop the trees concerned and to report. Then it has a decision accepted.
The decision is installed when all of its sites have accepted it, and so hold everything that they must
deliver by it.

The decision of an earlier ballot may have been installed somewhere: it may if all of its sites that report
have accepted it. If one of them has not, it was not installed and never will be, since that site has now
promised a later ballot. A decision that may have been installed is adopted; one that was adopted once is
always adopted again.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from enum import Enum
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.ending import end_tree
from antiphon.protocols.metagroups.parts import decision_name
from antiphon.protocols.metagroups.pdus import (
    Accept,
    AcceptChange,
    Accepted,
    Ballot,
    Change,
    Decision,
    Holding,
    Report,
    SiteRecord,
    TreeId,
    Vote,
)
from antiphon.protocols.metagroups.shapes import Shape
from antiphon.protocols.metagroups.view import View, apply_change, plan_trees

CHANGES_FIRST: Final = 2
"""Proposals that tell only what has changed; later ones tell the whole view. Raising it costs time where a
site makes another decision of a change than its proposer."""


class Outcome(Enum):
    """What the reports lead to."""

    WAIT = "too few sites have reported"
    NOTHING = "there is nothing to change"
    LOST = "too few sites remember, and the absent ones cannot decide by themselves"
    STOP_MORE = "more trees are concerned than were stopped"
    DECIDED = "there is a decision to accept"


class Attempt:
    """The reports and acceptances of one ballot."""

    def __init__(
        self,
        view: View,
        ballot: Ballot,
        invited: Iterable[Site],
        stop: frozenset[TreeId],
        now: Nanoseconds,
    ) -> None:
        self._view = view
        self.ballot = ballot
        self.version = view.version + 1
        self.invited = frozenset(invited)
        self.stop = stop
        self.reports: dict[Site, Report] = {}
        self.since_ns = now
        """When the current phase began."""
        self.decision: Decision | None = None
        self.adopted = False
        self._change: Change | None = None
        """What makes the decision of the current view, unless it was adopted."""
        self._proposals = 0
        self._accepted: set[Site] = set()

    # The first phase

    def conclude(
        self,
        requests: Mapping[Site, SiteRecord],
        suspected: Iterable[Site],
        finished: Collection[TreeId],
        shape: Shape,
        memory: Collection[Site],
        left: Collection[Site] = (),
    ) -> Outcome:
        """Decide by the reports, without the suspected sites and the retiring trees that are finished.

        `memory` are the sites that may still tell what they know of the view; `left` do not count for it.
        """
        if not self.invited - set(suspected) <= self.reports.keys():
            return Outcome.WAIT
        voters = [site for site, report in self.reports.items() if self._remembers(site, report)]
        if not self._view.is_quorum(voters, left):
            return Outcome.LOST if self._is_lost(voters, memory, left) else Outcome.WAIT
        stopped: Set[TreeId] = {
            holding.tree for report in self.reports.values() for holding in report.holdings
        }
        stopped = self._view.with_relatives(stopped)
        if not stopped <= self.stop:
            self.stop |= stopped
            return Outcome.STOP_MORE
        vote = self._vote_to_adopt()
        if vote is not None:
            self.decision, self.adopted = vote.decision, True
            return Outcome.DECIDED
        return self._decide(requests, finished, shape)

    def _is_lost(self, voters: Collection[Site], memory: Collection[Site], left: Collection[Site]) -> bool:
        """Whether this cluster can go on only with absent sites, and those cannot go on without these.

        If no site has lost its memory or left, this is a minority partition, and waits for the others.
        """
        sites = self._view.sessions.keys() - set(left)
        settled = (sites & self.reports.keys()) | (sites - set(memory))
        return len(voters) < len(settled) and not self._view.is_quorum(sites - settled, left)

    def _remembers(self, site: Site, report: Report) -> bool:
        return self._view.sessions.get(site) == report.session

    def _vote_to_adopt(self) -> Vote | None:
        votes = [report.vote for report in self.reports.values() if report.vote is not None]
        # If sites report different decisions of one ballot, the one that most have accepted counts.
        last = max(
            votes,
            key=lambda vote: (vote.ballot, sum(vote.decision == other.decision for other in votes)),
            default=None,
        )
        if last is None or last.adopted:
            return last
        sessions = {record.site: record.session for record in last.decision.records}
        for site, report in self.reports.items():
            if sessions.get(site) == report.session and not is_vote_for(report.vote, last.decision):
                return None
        return last

    def _decide(
        self, requests: Mapping[Site, SiteRecord], finished: Collection[TreeId], shape: Shape
    ) -> Outcome:
        view = self._view
        records = sorted((self._record(site, requests) for site in self.reports), key=lambda each: each.site)
        moved = self._moved()
        plan = plan_trees(view, records, self.stop, shape, moved)
        if not plan.ended <= self.stop:
            self.stop |= plan.ended
            return Outcome.STOP_MORE
        if tuple(records) == view.decision.records and not self.stop:
            return Outcome.NOTHING
        endings = [end_tree(tree, view.members_on(tree), self._holdings(tree)) for tree in sorted(self.stop)]
        self._change = Change(
            self.ballot,
            tuple(record for record in records if view.records.get(record.site) != record),
            tuple(sorted(view.records.keys() - self.reports.keys())),
            tuple(sorted(self.stop)),
            tuple(sorted(finished)),
            tuple(endings),
            tuple(sorted(moved)),
        )
        self.decision = apply_change(view, self._change, shape)
        return Outcome.DECIDED

    def _record(self, site: Site, requests: Mapping[Site, SiteRecord]) -> SiteRecord:
        """The next record of a site that has reported: the latest that it asked for, or moved to."""
        report = self.reports[site]
        known = (requests.get(site), report.record, self._view.records.get(site))
        found = [each for each in known if each is not None and each.session == report.session]
        return max(found, key=lambda each: each.serial, default=SiteRecord(site, report.session, 0, ()))

    def _moved(self) -> frozenset[TreeId]:
        """Trees of the view with moves."""
        reported = {
            tree
            for site, report in self.reports.items()
            if self._remembers(site, report)
            for tree in report.moved
        }
        return frozenset(reported & self._view.trees.keys())

    def _holdings(self, tree: TreeId) -> dict[Site, Holding]:
        return {
            site: holding
            for site, report in self.reports.items()
            if self._remembers(site, report)
            for holding in report.holdings
            if holding.tree == tree
        }

    # The second phase

    def accept_pdu(self) -> Accept:
        """What asks a site to accept the decision."""
        assert self.decision is not None
        return Accept(self.version, self.ballot[0], self.adopted, self.decision)

    def proposals(self, sites: Iterable[Site]) -> list[tuple[Accept | AcceptChange, tuple[Site, ...]]]:
        """What asks these sites to accept: what has changed, or else the whole decision.

        The whole goes to sites that lack the current view, and to all that have not answered twice.
        """
        self._proposals += 1
        if self._change is None or self._proposals > CHANGES_FIRST:
            return [(self.accept_pdu(), tuple(sorted(sites)))]
        assert self.decision is not None
        name = decision_name(self.decision)
        change = AcceptChange(self.version, self.ballot[0], name, self._change)
        knowing = {site for site in sites if self._remembers(site, self.reports[site])}
        others = set(sites) - knowing
        asked: list[tuple[Accept | AcceptChange, tuple[Site, ...]]] = []
        if knowing:
            asked.append((change, tuple(sorted(knowing))))
        if others:
            asked.append((self.accept_pdu(), tuple(sorted(others))))
        return asked

    def on_accepted(self, sender: Site, pdu: Accepted) -> Decision | None:
        """A site has accepted; the decision if it was the last one that must."""
        if self.decision is None or sender not in self.reports:
            return None
        if self.reports[sender].session == pdu.session:
            self._accepted.add(sender)
        return None if self.open() else self.decision

    def open(self) -> frozenset[Site]:
        """The sites that must accept and have not yet."""
        assert self.decision is not None
        needed = self.reports.keys() if self.adopted else {record.site for record in self.decision.records}
        return frozenset(needed) - self._accepted


def is_vote_for(vote: Vote | None, decision: Decision) -> bool:
    """Whether this is a vote for the decision, of a site that holds everything that it must deliver by it."""
    return vote is not None and vote.whole and vote.decision == decision
