"""A follower: it makes its log equal to the leader's, and says how far it is."""

from typing import Final

from antiphon.core.effects import Disagreed
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.protocols.quorum.election import Election
from antiphon.protocols.quorum.pdus import Acknowledge, Append
from antiphon.protocols.quorum.state import Role, State

LATE: Final = "late"
LACK_NS: Final = 5 * MILLISECOND_NS
"""Least pause between two answers that lack the same. Raising it costs time after a loss."""


class Follower:
    """Takes the leader's entries."""

    def __init__(self, state: State, election: Election) -> None:
        self._state = state
        self._election = election
        self._lacked: tuple[Site, int] = ("", 0)
        self._lacked_ns: Nanoseconds = 0
        self._late: tuple[Site, Acknowledge] | None = None
        """An acknowledgement that waits."""

    def on_append(self, now: Nanoseconds, sender: Site, pdu: Append) -> None:
        state = self._state
        if pdu.term < state.term:
            state.send(sender, Acknowledge(state.group, state.identity, state.term, 0, True))
            return
        # A term has one leader, and gives no entries of later terms.
        if (
            (pdu.term == state.term and state.role is Role.LEADER)
            or not self._election.believes(now, sender, pdu.term, pdu.identity)
            or any(entry.term > pdu.term for entry in pdu.entries)
        ):
            state.ignored += 1
            return
        self._election.follow(now, pdu.term, sender)
        self._election.heard_leader(now)
        if state.unstored_bytes <= state.knobs.unstored_bytes:
            self._take(now, sender, pdu)
            self._election.look_at_handover(now)

    def _take(self, now: Nanoseconds, sender: Site, pdu: Append) -> None:
        state, log = self._state, self._state.log
        previous, entries = pdu.previous, pdu.entries
        if previous < log.base:
            # What a snapshot covers is agreed upon, and so the same in every log.
            entries = entries[log.base - previous :]
            previous = log.base
        elif previous > log.last:
            self._lack(now, sender, log.last)
            return
        elif log.term_at(previous) != pdu.previous_term:
            self._lack(now, sender, max(state.commit, log.first_of_term(previous) - 1))
            return
        place = 0
        for place, entry in enumerate(entries):
            index = previous + 1 + place
            if index > log.last or log.term_at(index) != entry.term:
                break
        else:
            place = len(entries)
        if place < len(entries):
            if previous + place < state.commit:
                reason = f"Its entry {previous + place + 1} is not the one that was agreed upon."
                state.emit(Disagreed(sender, reason))
                return
            if previous + place < log.last:
                state.cut(previous + place)
            state.append(entries[place:])
        match = previous + len(entries)
        state.commit_to(now, min(pdu.commit, match))
        state.when_stored(now, lambda at: self._acknowledge(at, sender, pdu, match))

    def _acknowledge(self, now: Nanoseconds, sender: Site, pdu: Append, match: int) -> None:
        """The entries are safe here: say so, and see whether that makes a majority."""
        state = self._state
        if state.term != pdu.term:
            return
        self._say(sender, Acknowledge(state.group, state.identity, pdu.term, match), pdu)
        both = min(match, pdu.durable)
        if self._are_majority(sender) and state.log.term_at(both) == pdu.term:
            state.commit_to(now, both)

    def _say(self, sender: Site, answer: Acknowledge, pdu: Append) -> None:
        """Answer at once, or a little later with whatever else has come by then."""
        if not pdu.prompt or self._state.site in pdu.prompt:
            self._late = None
            self._state.send(sender, answer)
            return
        if self._late is None:
            self._state.arm(LATE, self._state.knobs.late_ns)
        self._late = (sender, answer)

    def fire(self) -> None:
        """The acknowledgement has waited long enough."""
        late, self._late = self._late, None
        if late is not None and late[1].term == self._state.term:
            self._state.send(*late)

    def drop(self) -> None:
        """Let nothing wait any more. The leader asks again."""
        self._late = None

    def _are_majority(self, leader: Site) -> bool:
        """Whether the leader and this member decide alone: what both hold is then agreed upon."""
        config = self._state.config
        return config.majority == 2 and leader in config.voters and self._state.is_voter

    def _lack(self, now: Nanoseconds, sender: Site, index: int) -> None:
        """Say what is lacking. A burst of entries that cannot be taken needs no burst of answers."""
        state = self._state
        if (sender, index) == self._lacked and now - self._lacked_ns < LACK_NS:
            return
        self._lacked, self._lacked_ns = (sender, index), now
        state.send(sender, Acknowledge(state.group, state.identity, state.term, index, True))
