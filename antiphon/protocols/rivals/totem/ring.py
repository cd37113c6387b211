"""One ring: its members, what this member holds of its messages, and what it does when the token visits.

Source: the total-ordering part of the paper. A message gets the next sequence number of the token. The token
carries the last sequence number, so a member detects what it lacks and asks for it on the token; a member
that holds it multicasts it again. `aru` (all received up to) is lowered by a member that lacks something and
raised by it later. All members hold a sequence number that `aru` has covered on two visits in a row: between
the visits the token was at every member, and none has lowered it.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol as Interface

from antiphon.core.effects import Effect, Multicast
from antiphon.core.ids import Site
from antiphon.protocols.rivals.totem.pdus import (
    MOST_CARGO_BYTES,
    MOST_MISSING,
    NOBODY,
    UNKNOWN,
    Carried,
    Entry,
    Message,
    RingId,
    Token,
    TotemConfiguration,
)


def has_room(cargo: Iterable[Carried]) -> bool:
    """Whether a train may take on more."""
    return sum(len(each.bodies.data) for each in cargo) <= MOST_CARGO_BYTES


class Source(Interface):
    """The messages that a visit of the token multicasts."""

    def backlog(self) -> int:
        """The number of batches that wait."""
        ...

    def take(self, ring: RingId, seq: int) -> Entry:
        """Take the first batch that waits, for this sequence number; only called if any does."""
        ...


class Log:
    """The messages of one ring that a member holds: from `released` on, without a gap up to `aru`."""

    __slots__ = ("aru", "delivered", "entries", "released")

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.aru = 0
        self.delivered = 0
        self.released = 0

    def put(self, seq: int, entry: Entry) -> bool:
        """Keep an entry; False if it was here before."""
        if seq <= self.released or seq in self.entries:
            return False
        self.entries[seq] = entry
        while self.aru + 1 in self.entries:
            self.aru += 1
        return True

    def missing(self, limit: int, most: int) -> list[int]:
        """The first sequence numbers up to `limit` that are not held."""
        return list(islice(self._lacking(limit), most))

    def _lacking(self, limit: int) -> Iterator[int]:
        return (seq for seq in range(self.aru + 1, limit + 1) if seq not in self.entries)


class Ring:
    """A ring that this member is on, or tries to form."""

    __slots__ = (
        "_backlog",
        "_last_aru",
        "_last_seq",
        "_sent",
        "_site",
        "base",
        "copies",
        "id",
        "incarnations",
        "log",
        "members",
        "next_site",
        "primary",
        "quiet",
        "safe",
        "token_seq",
        "visits",
    )

    def __init__(self, ring: RingId, site: Site, incarnations: dict[Site, int], *, primary: bool) -> None:
        """`incarnations` names the members, in the order in which the token visits them."""
        self.id = ring
        self.members = tuple(incarnations)
        self.incarnations = incarnations
        self.primary = primary
        """Whether it continues the order; other rings wait until they meet one that does."""
        self.log = Log()
        self.base = UNKNOWN
        """Messages up to here were recovered from earlier rings."""
        self.next_site = self.members[(self.members.index(site) + 1) % len(self.members)]
        self.token_seq = 0
        self.visits = 0
        self.quiet = 0
        """Visits since something was multicast or lacked."""
        self.safe = 0
        """All members of the ring hold messages up to here."""
        self.copies = 0
        self._site = site
        self._last_aru = 0
        self._last_seq = 0
        self._sent = 0
        self._backlog = 0

    @property
    def alone(self) -> bool:
        return self.next_site == self._site

    def first_token(self) -> Token:
        """The token as the representative makes it for a new ring."""
        return Token(self.id, 1, 0, 0, NOBODY, 0, 0, 0, self.base, ())

    def visit(
        self,
        token: Token,
        source: Source,
        configuration: TotemConfiguration,
        effects: list[Effect],
        *,
        carries: bool = False,
    ) -> Token:
        """Multicast what is asked for and what waits, or add that to the cargo; returns the next token."""
        self.token_seq = token.token_seq
        self.visits += 1
        unanswered = self._repeat(token.missing, effects)
        copies = len(token.missing) - len(unanswered)
        backlog = source.backlog()
        allowed = min(backlog, self._allowed(token, backlog, copies, configuration))
        seq = token.seq
        # What we added was at every member by now: taken off, it is known to be there by the others.
        cargo = [each for each in token.cargo if each.sender != self._site]
        sent = 0
        while sent < allowed and (not carries or has_room(cargo)):
            seq += 1
            sent += 1
            entry = source.take(self.id, seq)
            self.log.put(seq, entry)
            if carries and isinstance(entry, Message):
                cargo.append(Carried(seq, entry.sender, entry.number, entry.bodies))
            else:
                effects.append(Multicast(entry))
        aru, aru_site = self._report(token, seq)
        self._judge(seq, aru)
        missing = dict.fromkeys([*unanswered, *self.log.missing(token.seq, MOST_MISSING)])
        sent, waiting = copies + sent, backlog - sent
        flow = max(0, token.sent - self._sent) + sent, max(0, token.backlog - self._backlog) + waiting
        self._sent, self._backlog = sent, waiting
        return Token(
            self.id, token.token_seq + 1, seq, aru, aru_site, *flow,
            token.unfinished, token.base, tuple(islice(missing, MOST_MISSING)), tuple(cargo),
        )  # fmt: skip

    def _repeat(self, missing: tuple[int, ...], effects: list[Effect]) -> list[int]:
        """Multicast again what others lack and this member holds; returns what is left to ask for."""
        unanswered = []
        for seq in missing:
            entry = self.log.entries.get(seq)
            if entry is not None:
                self.copies += 1
                effects.append(Multicast(entry))
            elif seq > self.log.released:
                unanswered.append(seq)
        return unanswered

    def _allowed(self, token: Token, backlog: int, copies: int, configuration: TotemConfiguration) -> int:
        """This member's share of the window, by its backlog, after what the others have used.

        One message is always allowed: if the share were rounded down to nothing, a small backlog would wait
        for as long as there are large ones.
        """
        others = max(0, token.sent - self._sent)
        everyone = max(0, token.backlog - self._backlog) + backlog
        share = configuration.window * backlog // everyone if everyone else 0
        allowed = max(1, min(configuration.max_messages, configuration.window - others - copies, share))
        return max(0, min(allowed, self.safe + configuration.reach - token.seq))

    def _report(self, token: Token, seq: int) -> tuple[int, Site]:
        """The token's next `aru`."""
        own = self.log.aru
        if own < token.aru or token.aru_site in (self._site, NOBODY):
            return own, NOBODY if own == seq else self._site
        return token.aru, token.aru_site

    def _judge(self, seq: int, aru: int) -> None:
        """Update what all members hold, and for how long nothing has happened."""
        self.safe = max(self.safe, min(self._last_aru, aru))
        self.quiet = self.quiet + 1 if seq == aru == self._last_aru == self._last_seq else 0
        self._last_aru, self._last_seq = aru, seq
