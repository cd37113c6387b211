"""Elections: a trial first, then votes, each given once in a term.

A member that hears its leader refuses votes, so a member that was cut off cannot unseat a leader that works.
The trial keeps the terms of a member that cannot win from rising. A timer that fires late shows that this
process stood still: it looks at what arrived meanwhile before it asks for votes. The silence that a member
allows its leader grows with the pauses that it has seen between the leader's signs of life.
"""

from collections.abc import Callable
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.quorum.pdus import Ask, Handover, Removed, Vote
from antiphon.protocols.quorum.ports import Expelled
from antiphon.protocols.quorum.state import Role, State

ELECTION: Final = "election"
REPEAT: Final = "ask"
SPREAD: Final = 2 / 3
"""Share of the silence that is added at random. Raising it costs time; lowering it costs split votes."""
PAUSES: Final = 3
"""A leader may be silent for this multiple of its longest recent pause."""
DECAY: Final = 0.98
"""How fast a long pause is forgotten, with each sign of life."""
GROWTH: Final = 1.5
"""Factor by which the silence grows with each election that failed. Raising it costs time without leader."""
MOST_GROWTH: Final = 8.0
MOST_LEAP: Final = 1 << 24
"""A term further above one's own is a lie. Raising it costs terms: they are numbers below 2**53, and lies use
them up. Lowering it costs members that were away for as many elections."""


class Election:
    """One member's part in choosing a leader."""

    def __init__(
        self, state: State, lead: Callable[[Nanoseconds], None], give_up: Callable[[Nanoseconds], None]
    ) -> None:
        """`lead` is called when this member has won, `give_up` when it follows after having led."""
        self._state = state
        self._lead = lead
        self._give_up = give_up
        self._is_trial = False
        self._is_handed_over = False
        self._votes: set[Site] = set()
        self._due_ns: Nanoseconds = 0
        self._was_late = False
        self._pause_ns = 0.0
        self._growth = 1.0
        self._handed_over: Handover | None = None
        self._removers: dict[Site, Nanoseconds] = {}
        """Processes that said that this member was removed, and when."""

    # Belief

    def believes(self, now: Nanoseconds, sender: Site, term: int, identity: int) -> bool:
        """Whether a process may change the term, or who leads.

        While the leader is heard, only members may, and never within its term. A member that hears none may
        have missed that others were added, and believes those, too.
        """
        state = self._state
        if term > state.term + MOST_LEAP:
            return False
        if sender == state.leader or not self._hears_leader(now):
            return True
        return term > state.term and state.config.identity_of(sender) == identity

    # Timers

    @property
    def silence_ns(self) -> Nanoseconds:
        """Least silence of the leader before this member looks for another."""
        return round(max(self._state.knobs.election_ns, PAUSES * self._pause_ns))

    def arm(self, now: Nanoseconds) -> None:
        silence_ns = self.silence_ns * self._growth
        after_ns = round(silence_ns * (1 + SPREAD * self._state.random.random()))
        self._due_ns = now + after_ns
        self._state.arm(ELECTION, after_ns)

    def heard_leader(self, now: Nanoseconds) -> None:
        """A sign of life of the leader."""
        state = self._state
        if state.leader_heard_ns:
            pause_ns = min(now - state.leader_heard_ns, state.knobs.cut_off_ns / PAUSES)
            self._pause_ns = max(pause_ns, self._pause_ns * DECAY)
        state.leader_heard_ns = now
        self._growth = 1.0
        self._was_late = False
        state.in_contact(now)
        self.arm(now)

    def fire(self, now: Nanoseconds) -> None:
        state = self._state
        if state.role is Role.LEADER or not state.group:
            return
        is_late = now - self._due_ns > self._state.knobs.election_ns // 2
        if is_late and not self._was_late:
            self._was_late = True
            self.arm(now)
            return
        self._was_late = False
        if now - state.leader_heard_ns >= self.silence_ns:
            state.led_by(None)
        state.look_for_contact(now)
        if state.is_voter:
            self._growth = min(MOST_GROWTH, self._growth * GROWTH)
            self._try(now)
        self.arm(now)

    # Candidates

    def _try(self, now: Nanoseconds) -> None:
        """Ask whether an election could be won."""
        state = self._state
        state.role = Role.CANDIDATE
        self._is_trial = True
        self._votes = {state.site}
        self._ask(trial=True)
        self._count(now)

    def campaign(self, now: Nanoseconds, *, handed_over: bool = False) -> None:
        """Ask for votes in a new term."""
        state = self._state
        state.role = Role.CANDIDATE
        state.term += 1
        state.vote = state.site
        state.led_by(None)
        state.save_durable()
        self._is_trial = False
        self._votes = set()
        term = state.term
        self._ask(trial=False, handed_over=handed_over)
        state.when_stored(now, lambda at: self._vote_for_myself(at, term))
        self.arm(now)

    def _vote_for_myself(self, now: Nanoseconds, term: int) -> None:
        state = self._state
        if state.role is Role.CANDIDATE and state.term == term and not self._is_trial:
            self._votes.add(state.site)
            self._count(now)

    def _ask(self, *, trial: bool, handed_over: bool = False) -> None:
        self._state.multicast(self._question(trial=trial, handed_over=handed_over))
        self._is_handed_over = handed_over
        self._state.arm(REPEAT, self._state.knobs.election_ns // 2)

    def _question(self, *, trial: bool, handed_over: bool = False) -> Ask:
        state, log = self._state, self._state.log
        term = state.term + 1 if trial else state.term
        return Ask(state.group, state.identity, term, log.last, log.last_term, trial, handed_over)

    def repeat(self) -> None:
        """Ask again, since questions and votes may be lost: where few members are up, every vote counts."""
        if self._state.role is Role.CANDIDATE:
            self._ask(trial=self._is_trial, handed_over=self._is_handed_over)

    def _count(self, now: Nanoseconds) -> None:
        state = self._state
        if len(self._votes) < state.config.majority:
            return
        state.contact_ns = now
        if self._is_trial:
            self.campaign(now)
        else:
            state.role = Role.LEADER
            self._growth = 1.0
            self._lead(now)

    def on_vote(self, now: Nanoseconds, sender: Site, pdu: Vote) -> None:
        state = self._state
        if not pdu.granted:
            if pdu.term > state.term and self.believes(now, sender, pdu.term, pdu.identity):
                self.follow(now, pdu.term, None)
            return
        expected = state.term + 1 if self._is_trial else state.term
        if state.role is not Role.CANDIDATE or pdu.trial != self._is_trial or pdu.term != expected:
            return
        if state.config.voters.get(sender) == pdu.identity:
            self._votes.add(sender)
            self._count(now)

    # Voters

    def on_ask(self, now: Nanoseconds, sender: Site, pdu: Ask) -> None:
        state = self._state
        if self._is_removed(sender):
            state.send(sender, Removed(state.group, pdu.identity, state.log.config_index))
            return
        if not pdu.handed_over and self._hears_leader(now):
            return
        if not self.believes(now, sender, pdu.term, pdu.identity):
            state.ignored += 1
            return
        if not pdu.trial and pdu.term > state.term:
            self.follow(now, pdu.term, None)
        if self._grants(sender, pdu):
            if not pdu.trial:
                state.vote = sender
                state.save_durable()
                self.arm(now)
            vote = Vote(state.group, state.identity, pdu.term, True, pdu.trial)
        else:
            vote = Vote(state.group, state.identity, state.term, False, pdu.trial)
        state.when_stored(now, lambda _: state.send(sender, vote))

    def _grants(self, sender: Site, pdu: Ask) -> bool:
        state, log = self._state, self._state.log
        if (pdu.last_term, pdu.last_index) < (log.last_term, log.last):
            return False
        if pdu.trial:
            return pdu.term > state.term
        return pdu.term == state.term and state.vote in ("", sender) and state.role is Role.FOLLOWER

    def _hears_leader(self, now: Nanoseconds) -> bool:
        state = self._state
        if state.role is Role.LEADER:
            return True
        return state.leader is not None and now - state.leader_heard_ns < self.silence_ns

    def _is_removed(self, sender: Site) -> bool:
        log = self._state.log
        return log.config.identity_of(sender) is None and 0 < log.config_index <= self._state.commit

    def on_removed(self, now: Nanoseconds, sender: Site, pdu: Removed) -> None:
        """The group goes on without this member, if it was a member when that was agreed upon."""
        state, log = self._state, self._state.log
        known = log.config_index
        if pdu.index == known:
            known -= 1  # the entry that removes it is here already
        was_member = log.config_at(known).identity_of(state.site) == state.identity
        if pdu.identity != state.identity or pdu.index <= known or known > state.commit or not was_member:
            return
        if not state.is_expelled and self._is_certain(now, sender):
            state.is_expelled = True
            state.emit(Expelled())

    def _is_certain(self, now: Nanoseconds, sender: Site) -> bool:
        """Whether most of the other members say so; if not, ask them."""
        state = self._state
        recent_ns = now - state.knobs.cut_off_ns
        self._removers = {site: at for site, at in self._removers.items() if at > recent_ns}
        others = len(state.config.voters.keys() - {state.site})
        if sender in self._removers:
            return False
        self._removers[sender] = now
        is_certain = 2 * len(self._removers) > others
        if not is_certain:
            state.multicast(self._question(trial=True))
        return is_certain

    def on_handover(self, now: Nanoseconds, sender: Site, pdu: Handover) -> None:
        if pdu.term == self._state.term and sender == self._state.leader:
            self._handed_over = pdu
            self.look_at_handover(now)

    def look_at_handover(self, now: Nanoseconds) -> None:
        """Lead, if the leader has asked for it and everything that it had is here."""
        state, handed_over = self._state, self._handed_over
        if handed_over is None or state.log.last < handed_over.index:
            return
        self._handed_over = None
        if handed_over.term == state.term and state.is_voter and state.role is Role.FOLLOWER:
            self.campaign(now, handed_over=True)

    # Followers

    def follow(self, now: Nanoseconds, term: int, leader: Site | None) -> None:
        """Follow a leader, or none yet, in this term."""
        state = self._state
        if term > state.term:
            state.term, state.vote = term, ""
            state.save_durable()
        if state.role is Role.LEADER:
            self._give_up(now)
        state.role = Role.FOLLOWER
        state.led_by(leader)
        if leader is None:
            self.arm(now)
