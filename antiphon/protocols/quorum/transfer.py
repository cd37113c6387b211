"""State transfer: a member that lacks entries which are gone fetches a snapshot, piece by piece.

The member that lacks them sets the pace: it asks for as many pieces as it has room for, and again for those
that were lost. The leader keeps nothing about it, and goes on with its commands between the pieces.
"""

import zlib
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.protocols.quorum.election import Election
from antiphon.protocols.quorum.pdus import Acknowledge, Fetch, Offer, Piece
from antiphon.protocols.quorum.ports import Compact, Snapshot, SnapshotHead
from antiphon.protocols.quorum.state import Role, State

TRANSFER: Final = "transfer"
SERVED_NS: Final = 2 * SECOND_NS
"""An older snapshot is kept for this long after it was last asked for. Raising it costs memory."""


class Incoming:
    """A snapshot that this member fetches."""

    def __init__(self, source: Site, offer: Offer, piece_bytes: int) -> None:
        self.source = source
        self.offer: Final = offer
        self.total: Final = -(-offer.size // piece_bytes)
        self.pieces: dict[int, bytes] = {}
        self.asked = 0
        """The number of the first piece that was never asked for."""
        self.moved = False
        """Whether a piece came since the timer was set."""

    @property
    def under_way(self) -> int:
        return self.asked - len(self.pieces)


class Transfer:
    """Fetches snapshots and serves them."""

    def __init__(self, state: State, election: Election) -> None:
        self._state = state
        self._election = election
        self._incoming: Incoming | None = None
        self._served: Snapshot | None = None
        """An older snapshot that a member still fetches."""
        self._served_ns: Nanoseconds = -SERVED_NS
        self.fetched_bytes = 0

    # Own snapshots

    def take_own(self, now: Nanoseconds, data: bytes) -> None:
        """The machine's snapshot of everything committed: keep it, and forget what it covers."""
        state, log = self._state, self._state.log
        term = log.term_at(state.commit)
        assert term is not None, "the last committed entry is in the log"
        before = state.snapshot
        head = SnapshotHead(
            state.commit, term, log.config_at(state.commit), state.sessions.known, state.sessions.time_ns,
            state.sessions.is_sealed, state.sessions.is_touched, list(state.merging),
        )  # fmt: skip
        state.snapshot = Snapshot(head, data)
        log.covered(state.commit)
        first = log.kept_from(state.commit, state.knobs.kept_bytes)
        if before is not None and now - self._served_ns < SERVED_NS:
            self._served = self._served or before
            first = min(first, self._served.index)
        else:
            self._served = None
        log.compact(max(log.base, first))
        state.emit(Compact(state.snapshot, log.base + 1))

    def on_fetch(self, now: Nanoseconds, sender: Site, pdu: Fetch) -> None:
        state = self._state
        found = next(
            (each for each in (state.snapshot, self._served) if each is not None and each.index == pdu.index),
            None,
        )
        if found is None or state.config.identity_of(sender) != pdu.identity:
            return
        self._served_ns = now
        size = state.knobs.piece_bytes
        for number in pdu.pieces:
            if number * size < found.size:
                state.send(sender, Piece(state.group, found.index, number, found.part(number * size, size)))

    # A snapshot of another member

    def on_offer(self, now: Nanoseconds, sender: Site, pdu: Offer) -> None:
        state = self._state
        if pdu.term < state.term or (pdu.term == state.term and state.role is Role.LEADER):
            return
        if pdu.index_term > pdu.term or not self._election.believes(now, sender, pdu.term, pdu.identity):
            state.ignored += 1
            return
        self._election.follow(now, pdu.term, sender)
        self._election.heard_leader(now)
        if pdu.index <= state.commit or state.log.term_at(pdu.index) == pdu.index_term:
            self._acknowledge(now, sender, min(pdu.index, state.log.last))
            return
        incoming = self._incoming
        if incoming is None or incoming.offer.index != pdu.index or incoming.offer.size != pdu.size:
            if incoming is not None and incoming.moved and incoming.offer.index < pdu.index:
                return  # the older snapshot still comes, and will do
            self._incoming = Incoming(sender, pdu, state.knobs.piece_bytes)
            self._ask_for_more()
            state.arm(TRANSFER, state.knobs.resend_ns)
        else:
            incoming.source = sender

    def drop(self) -> None:
        """Fetch nothing any more. The leader offers again what is needed."""
        self._incoming = None

    def on_piece(self, now: Nanoseconds, sender: Site, pdu: Piece) -> None:
        incoming = self._incoming
        if incoming is None or pdu.index != incoming.offer.index or pdu.number >= incoming.asked:
            return
        if sender != incoming.source:
            return
        if pdu.number not in incoming.pieces:
            incoming.pieces[pdu.number] = pdu.body
            incoming.moved = True
            self.fetched_bytes += len(pdu.body)
        if len(incoming.pieces) == incoming.total:
            self._incoming = None
            self._finish(now, incoming)
        else:
            self._ask_for_more()

    def _ask_for_more(self) -> None:
        """Ask for half a window at a time."""
        incoming, window = self._incoming, self._state.knobs.piece_window
        assert incoming is not None
        if incoming.asked < incoming.total and incoming.under_way <= window // 2:
            end = min(incoming.total, incoming.asked + window - incoming.under_way)
            self._fetch(incoming, range(incoming.asked, end))
            incoming.asked = end

    def fire(self) -> None:
        """Nothing came for a while: ask again for the first pieces that are missing."""
        incoming, knobs = self._incoming, self._state.knobs
        if incoming is None:
            return
        if not incoming.moved:
            missing = [each for each in range(incoming.asked) if each not in incoming.pieces]
            self._fetch(incoming, missing[: max(1, knobs.piece_window // 2)])
        incoming.moved = False
        self._state.arm(TRANSFER, knobs.resend_ns)

    def _fetch(self, incoming: Incoming, pieces: "range | list[int]") -> None:
        state = self._state
        if pieces:
            fetch = Fetch(state.group, state.identity, incoming.offer.index, tuple(pieces))
            state.send(incoming.source, fetch)

    def _finish(self, now: Nanoseconds, incoming: Incoming) -> None:
        state = self._state
        blob = b"".join(incoming.pieces[number] for number in range(incoming.total))
        snapshot = None
        if len(blob) == incoming.offer.size and zlib.crc32(blob) == incoming.offer.checksum:
            try:
                snapshot = Snapshot.read(blob)
            except ValueError:
                snapshot = None
        if (
            snapshot is None
            or snapshot.index != incoming.offer.index
            or snapshot.head.term != incoming.offer.index_term
        ):
            state.ignored += 1
            return
        if snapshot.index <= state.commit or state.log.term_at(snapshot.index) == snapshot.head.term:
            return  # the entries came meanwhile
        state.install(snapshot)
        state.ticked_ns = now
        self._acknowledge(now, incoming.source, snapshot.index)
        state.restored(now)

    def _acknowledge(self, now: Nanoseconds, source: Site, index: int) -> None:
        state = self._state
        term = state.term
        answer = Acknowledge(state.group, state.identity, term, index)

        def act(_now: Nanoseconds) -> None:
            if state.term == term:
                state.send(source, answer)

        state.when_stored(now, act)
