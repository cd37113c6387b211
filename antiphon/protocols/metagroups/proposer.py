"""The proposer of a site: while the site coordinates, it finds out what has to change and makes attempts."""

from collections.abc import Iterable
from random import Random
from typing import Final
from typing import Protocol as Interface

from msgspec.structs import replace

from antiphon.core.effects import Effect, Multicast, SetTimer
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.acceptor import FIRST_ROUND, LONGEST_LEAP
from antiphon.protocols.metagroups.attempt import Attempt, Outcome
from antiphon.protocols.metagroups.context import Context
from antiphon.protocols.metagroups.credible import can_follow
from antiphon.protocols.metagroups.handover import Handover
from antiphon.protocols.metagroups.parts import in_parts
from antiphon.protocols.metagroups.pdus import (
    Accept,
    Accepted,
    Ballot,
    Decision,
    Prepare,
    Refuse,
    Report,
    TreeId,
    Vote,
)
from antiphon.protocols.metagroups.peers import PeerTable
from antiphon.protocols.metagroups.site_trees import SiteTrees
from antiphon.protocols.metagroups.view import View, plan_trees

HEARTBEATS_AWAITED: Final = 2
"""Heartbeats that a site may lack before joins and leaves are agreed on by way of reports. Raising it saves
PDUs on lossy networks and makes a crash during a change last longer."""
STUCK_AFTER: Final = 2
"""A site starts a new session if nothing that it lacks for a decision comes for this multiple of
`suspect_ns`; a proposer tries again if a decision is not accepted for as long. Raising it makes a group wait
longer for batches that no site has."""
LOST_AFTER: Final = 2
"""A coordinator whose cluster can go on only with absent sites waits for them for this multiple of
`suspect_ns`, then starts a new session. Raising it preserves what sites with memory know for longer, and
halts a group for longer when the absent sites never return."""


class MembershipTimer:
    """The only timer of the membership protocol; while it is set, setting it again has no effect."""

    def __init__(self, effects: list[Effect]) -> None:
        self._effects: Final = effects
        self._is_set = False

    def set(self, after_ns: Nanoseconds) -> None:
        if not self._is_set:
            self._is_set = True
            self._effects.append(SetTimer("membership", after_ns))

    def clear(self) -> None:
        """It has fired, or is to be set to another time."""
        self._is_set = False


class ProposerHost(Interface):
    """What a proposer asks of its own site."""

    def vote(self, now: Nanoseconds, pdu: Prepare | Accept) -> None:
        """Pass a PDU to this site's own acceptor, which answers at once."""

    def give_up(self, now: Nanoseconds) -> None:
        """Start a new session."""


class Proposer:
    """What a coordinator does to have the next view decided."""

    def __init__(
        self,
        context: Context,
        host: ProposerHost,
        trees: SiteTrees,
        peers: PeerTable,
        handover: Handover,
        timer: MembershipTimer,
        random: Random,
    ) -> None:
        self.attempts = 0
        self._site: Final = context.site
        self._configuration: Final = context.configuration
        self._effects: Final = context.effects
        self._host: Final = host
        self._trees: Final = trees
        self._peers: Final = peers
        self._handover: Final = handover
        self._timer: Final = timer
        self._random: Final = random
        self._attempt: Attempt | None = None
        self._rounds = 0
        """The highest round known."""
        self._has_used_first_round = False

    @property
    def is_busy(self) -> bool:
        """Whether an attempt is under way."""
        return self._attempt is not None

    def reset(self) -> None:
        """The view has changed, or this site starts a new session."""
        self._attempt = None
        self._rounds = 0
        self._has_used_first_round = False

    def give_way(self, ballot: Ballot) -> None:
        """This site has promised a ballot: an earlier attempt of its own is over."""
        self._rounds = max(self._rounds, ballot[0])
        if self._attempt is not None and self._attempt.ballot < ballot:
            self._attempt = None

    def learn_round(self, round_: int) -> None:
        """This site's own acceptor has promised this round: attempts of earlier rounds are over."""
        self._rounds = max(self._rounds, round_)
        if self._attempt is not None and self._attempt.ballot[0] < round_:
            self._attempt = None

    # What has to change

    def check(self, now: Nanoseconds) -> None:
        """If this site coordinates and the view has to change, set the timer for an attempt."""
        view = self._trees.view
        if view is None or self._attempt is not None or self._peers.coordinator(now, view) != self._site:
            return
        self._peers.drop_stale(now, view)
        if self._trees.stopped or self._peers.requests or self._peers.suspected(now, view.sessions):
            self._timer.set(self._configuration.gather_ns)

    def on_timer(self, now: Nanoseconds) -> None:
        """Continue the current attempt, or begin one."""
        view = self._trees.view
        if self._attempt is not None:
            self._pursue(now, self._attempt)
            self._timer.set(self._configuration.repair_ns)
        elif view is not None and self._peers.coordinator(now, view) == self._site:
            suspected = self._peers.suspected(now, view.sessions)
            if self._trees.stopped or suspected or self._peers.requests:
                stop = self._concerned(view, suspected)
                if stop or suspected or not self._begin_at_once(now, view):
                    self._begin(now, view, stop)

    def _begin_at_once(self, now: Nanoseconds, view: View) -> bool:
        """Joins and leaves of sites of the view, which stop no tree, need no reports: ask at once to accept.

        Only the first site of a view may, and only once: no other attempt can be earlier. If a site has
        crashed, the attempt would wait for it in vain; so all must have been heard recently.
        """
        is_first = self._site == min(view.sessions) and not self._rounds and not self._has_used_first_round
        lately_ns = now - HEARTBEATS_AWAITED * self._configuration.heartbeat_ns
        if not is_first or any(self._peers.newcomers(view)) or not self._peers.heard_all(view, lately_ns):
            return False
        self._has_used_first_round = True
        self.attempts += 1
        attempt = self._attempt = Attempt(view, (FIRST_ROUND, self._site), view.sessions, frozenset(), now)
        for site, session in view.sessions.items():
            moved = self._trees.moved() if site == self._site else ()
            attempt.reports[site] = Report(attempt.version, FIRST_ROUND, session, None, (), moved)
        self._timer.set(self._configuration.repair_ns)
        self._conclude(now, attempt)
        return True

    def _concerned(self, view: View, suspected: frozenset[Site]) -> frozenset[TreeId]:
        """The trees that have to be stopped, as far as is known now."""
        requests = self._peers.wanted()
        records = [
            requests.get(site, record) for site, record in view.records.items() if site not in suspected
        ]
        records += [record for site, record in requests.items() if site not in view.records]
        trees = self._trees
        plan = plan_trees(view, records, trees.stopped, self._configuration.shape, trees.moved())
        return plan.ended

    # Attempts

    def _begin(self, now: Nanoseconds, view: View, stop: frozenset[TreeId]) -> None:
        self.attempts += 1
        self._rounds += 1
        ballot = (self._rounds, self._site)
        invited = {*view.sessions, *self._peers.newcomers(view)}
        attempt = self._attempt = Attempt(view, ballot, invited, stop, now)
        self._host.vote(now, self._prepare(view, attempt))
        self._timer.set(self._configuration.repair_ns)
        if self._attempt is attempt and attempt.decision is None:
            self._ask(attempt, attempt.invited)

    def _prepare(self, view: View, attempt: Attempt) -> Prepare:
        stop, origin = tuple(sorted(attempt.stop)), view.decision.origin
        return Prepare(self._configuration.rules, origin, attempt.version, attempt.ballot[0], stop)

    def _ask(self, attempt: Attempt, sites: Iterable[Site]) -> None:
        others = self._others(sites)
        if others:
            self._effects.append(Multicast(self._prepare(self._current_view(), attempt), others))

    def _current_view(self) -> View:
        view = self._trees.view
        assert view is not None, "only a site in a cluster makes attempts"
        return view

    def _pursue(self, now: Nanoseconds, attempt: Attempt) -> None:
        """Repeat what has no answer; go on without sites that are silent for too long."""
        requests = self._peers.requests
        if any(
            site in requests and report.session < requests[site].session
            for site, report in attempt.reports.items()
        ):
            self._again(now, attempt)  # a site has lost its memory since it reported
        elif attempt.decision is None:
            self._ask(attempt, attempt.invited - attempt.reports.keys())
            self._conclude(now, attempt)
        elif self._is_stuck(now, attempt):
            if self._leans_on_leaves(attempt.decision):
                self._host.give_up(now)  # a site has not heard that others have left, and never will
            else:
                self._again(now, attempt)
        else:
            self._propose(attempt, attempt.open())

    def _is_stuck(self, now: Nanoseconds, attempt: Attempt) -> bool:
        """Whether a site that must accept is silent, or has not accepted for too long."""
        if now - attempt.since_ns > STUCK_AFTER * self._configuration.suspect_ns:
            return True
        return any(self._peers.is_silent(now, site, attempt.since_ns) for site in attempt.open())

    def _silent(self, now: Nanoseconds, attempt: Attempt) -> frozenset[Site]:
        suspected = self._peers.suspected(now, attempt.invited)
        return suspected | {
            site for site in attempt.invited if self._peers.is_silent(now, site, attempt.since_ns)
        }

    def _conclude(self, now: Nanoseconds, attempt: Attempt) -> None:
        silent = self._silent(now, attempt)
        outcome = attempt.conclude(
            self._peers.wanted(),
            silent,
            self._handover.finished(),
            self._configuration.shape,
            self._peers.with_memory(self._current_view()),
            self._peers.left(self._current_view()),
        )
        if outcome is Outcome.STOP_MORE:
            self._again(now, attempt)
        elif outcome is Outcome.LOST:
            if now - attempt.since_ns > LOST_AFTER * self._configuration.suspect_ns:
                self._host.give_up(now)
        elif outcome is Outcome.NOTHING:
            self._attempt = None
        elif outcome is Outcome.DECIDED:
            attempt.since_ns = now
            self._propose(attempt, attempt.open())
            if self._site in attempt.open():
                self._host.vote(now, attempt.accept_pdu())

    def _again(self, now: Nanoseconds, attempt: Attempt) -> None:
        view = self._current_view()
        silent = self._silent(now, attempt)
        self._begin(now, view, attempt.stop | self._concerned(view, silent))

    def _propose(self, attempt: Attempt, sites: Iterable[Site]) -> None:
        others = self._others(sites)
        for pdu, to in attempt.proposals(others) if others else ():
            self._effects.extend(in_parts(pdu, to))

    def _others(self, sites: Iterable[Site]) -> tuple[Site, ...]:
        return tuple(sorted(site for site in sites if site != self._site))

    # What acceptors answer

    def on_report(self, now: Nanoseconds, sender: Site, pdu: Report) -> None:
        attempt = self._attempt_meant(pdu.version, pdu.round)
        if attempt is not None and attempt.decision is None and sender in attempt.invited:
            if pdu.vote is not None and self._leans_on_unheard_leaves(pdu.vote.decision):
                self._host.give_up(now)  # it cannot be judged here, and may have been installed
                return
            record = pdu.record
            if record is not None and (record.site, record.session) != (sender, pdu.session):
                record = None
            vote = pdu.vote if self._is_credible(pdu.vote) else None
            attempt.reports[sender] = replace(pdu, vote=vote, record=record)
            self._conclude(now, attempt)

    def _is_credible(self, vote: Vote | None) -> bool:
        """Whether a site can have accepted this."""
        view = self._current_view()
        if vote is None:
            return True
        is_earlier = vote.ballot[0] <= self._rounds and vote.decision.ballot <= vote.ballot
        return is_earlier and can_follow(vote.decision, view, self._configuration, self._peers.left(view))

    def _leans_on_leaves(self, decision: Decision) -> bool:
        """Whether a decision has a quorum only because other sites have left."""
        return not can_follow(decision, self._current_view(), self._configuration)

    def _leans_on_unheard_leaves(self, decision: Decision) -> bool:
        """Whether a decision can follow only if more sites have left than this site has heard of."""
        view, knobs = self._current_view(), self._configuration
        if can_follow(decision, view, knobs, self._peers.left(view)):
            return False
        gone = view.sessions.keys() - {record.site for record in decision.records}
        return can_follow(decision, view, knobs, gone)

    def on_accepted(self, sender: Site, pdu: Accepted) -> Decision | None:
        """A site has accepted; the decision if it was the last one that must."""
        attempt = self._attempt_meant(pdu.version, pdu.round)
        return None if attempt is None else attempt.on_accepted(sender, pdu)

    def on_refuse(self, sender: Site, pdu: Refuse) -> None:
        """A site has promised a later ballot: give way for a while."""
        attempt = self._attempt
        if attempt is None or attempt.version != pdu.version or sender not in attempt.invited:
            return
        if attempt.ballot[0] <= pdu.round:
            # This site's own acceptor must be able to promise the next round at once.
            self._rounds = max(self._rounds, min(pdu.round, self._rounds + LONGEST_LEAP - 1))
            self._attempt = None
            self._timer.clear()
            gather_ns = self._configuration.gather_ns
            self._timer.set(self._random.randint(gather_ns, 4 * gather_ns))

    def _attempt_meant(self, version: int, round_: int) -> Attempt | None:
        attempt = self._attempt
        fits = attempt is not None and attempt.version == version and attempt.ballot[0] == round_
        return attempt if fits else None
