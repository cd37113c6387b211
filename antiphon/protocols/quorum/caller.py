"""The batches of this process: numbered, and handed to the leader until they have a place."""

from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.quorum.leader import Leader
from antiphon.protocols.quorum.pdus import BATCH, DEPART, ENTER, Entry, Expect, Forward
from antiphon.protocols.quorum.ports import Unanswered
from antiphon.protocols.quorum.state import Role, State

FORWARD: Final = "forward"
ABANDONED: Final = -1
"""The ticket of a batch that the application no longer waits for."""
MOST_BACKOFF: Final = 8
"""Longest pause before a batch is handed in again, as a multiple of the usual. Raising it costs latency."""


class Waiting:
    """A batch without a place."""

    __slots__ = ("body", "ticket")

    def __init__(self, ticket: int | None, body: bytes) -> None:
        self.ticket = ticket
        self.body = body


class Caller:
    """Hands in the batches of this process, in order, each once."""

    def __init__(self, state: State, leader: Leader) -> None:
        self._state = state
        self._leader = leader
        self._waiting: dict[int, Waiting] = {}
        """Batches by number, in order."""
        self._first = 0
        """The lowest number without a place."""
        self._next = 0
        self._sent = 0
        """The next number to hand in."""
        self._backoff = 1
        self._armed = False

    @property
    def waiting(self) -> int:
        """The number of batches without a place."""
        return len(self._waiting)

    @property
    def unplaced(self) -> list[tuple[int, bytes]]:
        """The tickets and bodies of batches without a place, in order."""
        return [
            (each.ticket, each.body)
            for each in self._waiting.values()
            if each.ticket is not None and each.ticket != ABANDONED
        ]

    def begin(self) -> None:
        """Begin a session: its first batch is empty. Batches of an earlier session follow it."""
        earlier = [each for each in self._waiting.values() if each.ticket not in (None, ABANDONED)]
        self._waiting = dict(enumerate([Waiting(None, b""), *earlier]))
        self._first = self._sent = 0
        self._next = len(self._waiting)

    def call(self, now: Nanoseconds, ticket: int, body: bytes) -> None:
        self._waiting[self._next] = Waiting(ticket, body)
        self._next += 1
        self.pump(now)

    def abandon(self) -> None:
        """What has no place keeps its number, and loses its commands."""
        for each in self._waiting.values():
            each.body = b""
            each.ticket = None if each.ticket is None else ABANDONED

    def pump(self, now: Nanoseconds) -> None:
        """Hand in what may be handed in now."""
        state = self._state
        if state.leader is None or state.config.identity_of(state.site) != state.identity:
            self._backoff = 1
            self._arm()
            return
        if state.role is Role.LEADER:
            self._pump_own(now)
            return
        while self._sent < self._end():
            body = self._waiting[self._sent].body
            state.send(state.leader, Forward(state.group, state.identity, state.life, self._sent, body))
            self._sent += 1
        self._arm()

    def _end(self) -> int:
        """Behind the last number that may be handed in now.

        Nothing follows the beginning of a session before that has its place: until then the session may be
        begun under another name.
        """
        return min(self._next, self._first + self._state.knobs.forwards if self._first else 1)

    def _pump_own(self, now: Nanoseconds) -> None:
        state = self._state
        while self._sent < self._end_own() and not self._leader.is_full:
            # Where this member decides alone, the batch takes effect before `take` returns.
            number = self._sent
            self._sent += 1
            body = self._waiting[number].body
            expected = self._leader.take(now, state.site, state.life, number, body)
            if expected is not None:
                self._sent = expected

    def _end_own(self) -> int:
        return self._next if self._first else min(1, self._next)

    def _arm(self) -> None:
        if self._waiting and not self._armed:
            self._armed = True
            self._state.arm(FORWARD, self._backoff * self._state.knobs.resend_ns)

    def on_fault(self) -> None:
        """The timer may be lost: set it again."""
        self._armed = False
        self._arm()

    def fire(self, now: Nanoseconds) -> None:
        """Nothing got a place since: hand the oldest in again."""
        self._armed = False
        if self._waiting:
            self._backoff = min(MOST_BACKOFF, 2 * self._backoff)
            self._sent = self._first
            self.pump(now)
            self._arm()

    def on_leader(self, now: Nanoseconds) -> None:
        """There is another leader: hand everything in again."""
        self._sent = self._first
        self._backoff = 1
        self.pump(now)

    def on_expect(self, now: Nanoseconds, sender: Site, pdu: Expect) -> None:
        state = self._state
        if sender != state.leader:
            return
        if pdu.life == state.life and self._first <= pdu.number < self._sent:
            self._sent = pdu.number
            self.pump(now)
        elif pdu.life > state.life and not self._first:
            # The clock has gone back since an earlier process of this member: begin a later session.
            state.life = pdu.life
            self.begin()
            self.pump(now)

    def taken(self, now: Nanoseconds, _index: int, entry: Entry) -> int | None:
        """An entry takes effect. Returns the ticket if it is a batch of this process."""
        state = self._state
        if entry.sender != state.site or entry.life != state.life:
            return None
        if entry.kind in (BATCH, ENTER):
            found = self._waiting.pop(entry.number, None)
            self._first = max(self._first, entry.number + 1)
            self._sent = max(self._sent, self._first)
            self._backoff = 1
            self.pump(now)
            return None if found is None or found.ticket == ABANDONED else found.ticket
        if entry.kind == DEPART:
            # The others gave this process up. What has no place yet cannot get it in that session any more.
            state.life += 1
            self.begin()
            self.pump(now)
        return None

    def restored(self, now: Nanoseconds) -> None:
        """A snapshot has replaced entries: some batches of this process may be in it."""
        state = self._state
        found = state.sessions.known.get(state.site)
        if found is None or found.life < state.life:
            return
        done = found.next if found.life == state.life else self._next
        for number in [number for number in self._waiting if number < done]:
            ticket = self._waiting.pop(number).ticket
            if ticket not in (None, ABANDONED):
                state.emit(Unanswered(ticket))
        self._first = max(self._first, done)
        self._sent = max(self._sent, self._first)
        if found.life > state.life or not found.open:
            state.life = found.life + 1
            self.begin()
        self.pump(now)
