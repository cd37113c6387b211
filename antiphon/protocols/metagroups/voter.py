"""A site as a voter: what it has promised, accepted, and would accept if it had all that it takes.

It promises to take part in no earlier attempt, reports what it holds, and accepts a decision once it holds
all that it must deliver by it.
"""

from typing import Final

from antiphon.core.effects import Effect, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.attempt import is_vote_for
from antiphon.protocols.metagroups.grove import Grove
from antiphon.protocols.metagroups.pdus import (
    Accept,
    Accepted,
    Ballot,
    Decision,
    Prepare,
    Refuse,
    Report,
    Vote,
)

NO_BALLOT: Final[Ballot] = (0, "")
LONGEST_LEAP: Final = 1 << 20
"""Rounds by which one PDU brings a site further at most: rounds count attempts, and must not run out. An
attempt that lies further ahead is asked for again, and taken part in when it is reached."""


class Voter:
    """One site's part in attempts, its own or others'."""

    def __init__(self, grove: Grove, effects: list[Effect]) -> None:
        self.vote: Vote | None = None
        self._grove: Final = grove
        self._effects: Final = effects
        self._promised: tuple[int, Ballot] = (0, NO_BALLOT)
        """The version and the attempt to make it that this site takes part in."""
        self._pending: tuple[Site, Accept] | None = None
        """A decision that is accepted as soon as all that it needs is here."""
        self._lacking: tuple[int, Nanoseconds] | None = None
        """How little it has lacked so far, and since when it gets no less."""

    def begin(self, version: int) -> None:
        """The next version to be made here is this one; 0 if any can be."""
        self.vote = self._pending = self._lacking = None
        self._promised = (version, NO_BALLOT)

    @property
    def round(self) -> int:
        """The attempts that it takes part in begin with this round."""
        return self._promised[1][0]

    def promises(self, sender: Site, version: int, round_: int) -> bool:
        """Take part in this attempt and in none before; refuse if there is a later one."""
        wanted = (version, (round_, sender))
        if wanted < self._promised:
            self._effects.append(Send(sender, Refuse(version, self._promised[1][0])))
            return False
        furthest = self._promised[1][0] + LONGEST_LEAP
        if round_ > furthest:
            self._promised = (version, (furthest, ""))
            return False
        self._promised = wanted
        if self._pending is not None and (self._pending[1].round, self._pending[0]) < wanted[1]:
            self._pending = None
        return True

    def report(self, pdu: Prepare) -> Report:
        """Stop the trees concerned, and say what is held of them."""
        self._grove.stop(pdu.stop)
        vote = self.vote
        if vote is not None and vote.decision.version != pdu.version:
            vote = None
        return Report(pdu.version, pdu.round, self._grove.life, vote, self._grove.holdings())

    def consider(self, sender: Site, pdu: Accept) -> None:
        """This decision is to be accepted."""
        self._pending = (sender, pdu)

    @property
    def pending(self) -> Decision | None:
        """A decision for which something is lacking here."""
        return None if self._pending is None else self._pending[1].decision

    def accept(self, now: Nanoseconds) -> tuple[Site, Accepted] | None:
        """Accept if all that is needed is here; what was adopted is accepted in any case.

        Returns what to answer, and whom.
        """
        if self._pending is None:
            return None
        sender, pdu = self._pending
        lacking = 0 if self.has_accepted(pdu.decision) else self._grove.fetch(pdu.decision)
        whole = not lacking
        if not whole and not pdu.adopted:
            if self._lacking is None or lacking < self._lacking[0]:
                self._lacking = (lacking, now)
            return None
        self._pending = self._lacking = None
        self.vote = Vote((pdu.round, sender), pdu.adopted, whole, pdu.decision)
        return sender, Accepted(pdu.version, pdu.round, self._grove.life)

    def is_stuck(self, now: Nanoseconds, patience_ns: Nanoseconds) -> bool:
        """Whether what is lacking has not come for too long: those who should have it do not give it."""
        return (
            self._pending is not None and self._lacking is not None and now - self._lacking[1] > patience_ns
        )

    def has_accepted(self, decision: Decision) -> bool:
        """Whether this site has accepted a decision, and holds all that it must deliver by it."""
        return is_vote_for(self.vote, decision)
