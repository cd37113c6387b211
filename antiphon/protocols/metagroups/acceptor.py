"""The acceptor of a site: the ballot that it has promised, and the decision that it has accepted.

After a promise it takes part in no earlier ballot. It reports what this site holds of the trees concerned,
and accepts a decision once this site holds everything that it must deliver by it.
"""

from typing import Final

from antiphon.core.effects import Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.attempt import is_vote_for
from antiphon.protocols.metagroups.context import Context
from antiphon.protocols.metagroups.pdus import (
    Accept,
    Accepted,
    Ballot,
    Decision,
    Prepare,
    Refuse,
    Report,
    SiteRecord,
    Vote,
)
from antiphon.protocols.metagroups.site_trees import SiteTrees

NO_BALLOT: Final[Ballot] = (0, "")
FIRST_ROUND: Final = 0
"""The round of a view's first site alone. No earlier ballot can have been accepted, so the site needs no
promises for it: it asks at once to accept."""
LONGEST_LEAP: Final = 1 << 20
"""Rounds by which one PDU advances the promise at most: rounds count ballots, and must not run out. A ballot
further ahead is repeated by its proposer, and joined when the promise has come near enough."""


class Acceptor:
    """One site's answers to proposers, its own included."""

    def __init__(self, context: Context, trees: SiteTrees) -> None:
        self.vote: Vote | None = None
        self._trees: Final = trees
        self._effects: Final = context.effects
        self._promised: tuple[int, Ballot] = (0, NO_BALLOT)
        """The version and ballot that this site has promised."""
        self._pending: tuple[Site, Accept] | None = None
        """A decision that is accepted as soon as everything that it needs is here."""
        self._lacking: tuple[int, Nanoseconds] | None = None
        """The fewest batches that were lacking for it so far, and since when."""

    def begin(self, version: int) -> None:
        """The next version to be decided is this one; 0 if it can be any."""
        self.vote = self._pending = self._lacking = None
        self._promised = (version, NO_BALLOT)

    @property
    def is_bound(self) -> bool:
        """Whether this site has promised a ballot for the next version."""
        return self._promised[1] != NO_BALLOT

    @property
    def round(self) -> int:
        """The promised round."""
        return self._promised[1][0]

    def promise(self, sender: Site, version: int, round_: int) -> bool:
        """Promise this ballot, or refuse it if a later one is promised."""
        ballot = (version, (round_, sender))
        if ballot < self._promised:
            self._effects.append(Send(sender, Refuse(version, self._promised[1][0])))
            return False
        furthest = self._promised[1][0] + LONGEST_LEAP
        if round_ > furthest:
            self._promised = (version, (furthest, ""))
            return False
        self._promised = ballot
        if self._pending is not None and (self._pending[1].round, self._pending[0]) < ballot[1]:
            self._pending = None
        return True

    def report(self, pdu: Prepare, record: SiteRecord | None) -> Report:
        """Stop the trees concerned, and report what is held of them; `record` if this site has moved."""
        self._trees.stop(pdu.stop)
        trees = self._trees
        held = (trees.session, self.vote, trees.holdings())
        return Report(pdu.version, pdu.round, *held, trees.moved(), record)

    def consider(self, sender: Site, pdu: Accept) -> None:
        """A proposer asks to accept this decision."""
        self._pending = (sender, pdu)

    @property
    def pending(self) -> Decision | None:
        """A decision for which something is lacking here."""
        return None if self._pending is None else self._pending[1].decision

    def accept(self, now: Nanoseconds) -> tuple[Site, Accepted] | None:
        """Accept if everything that is needed is here; an adopted decision is accepted in any case.

        Returns the proposer and the answer to it.
        """
        if self._pending is None:
            return None
        sender, pdu = self._pending
        lacking = 0 if self.has_accepted(pdu.decision) else self._trees.fetch(pdu.decision)
        whole = not lacking
        if not whole and not pdu.adopted:
            if self._lacking is None or lacking < self._lacking[0]:
                self._lacking = (lacking, now)
            return None
        self._pending = self._lacking = None
        self.vote = Vote((pdu.round, sender), pdu.adopted, whole, pdu.decision)
        return sender, Accepted(pdu.version, pdu.round, self._trees.session)

    def is_stuck(self, now: Nanoseconds, patience_ns: Nanoseconds) -> bool:
        """Whether nothing that is lacking has come for longer than this."""
        return (
            self._pending is not None and self._lacking is not None and now - self._lacking[1] > patience_ns
        )

    def has_accepted(self, decision: Decision) -> bool:
        """Whether this site has accepted a decision, and holds everything that it must deliver by it."""
        return is_vote_for(self.vote, decision)
