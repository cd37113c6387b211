"""What comes in: batches, copies of them, and requests for copies (section 3.2).

Batches of one sender are accepted in the order of their places here. One that comes early waits, unread,
since its vectors are differences to the one before. What is missing is asked for: of its sender, and once
that is gone of those who hold it. A copy has all that the original was stamped with (fault S7) and drains
what waits behind it (fault S9).
"""

from antiphon.core.effects import Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.coding import Parcel, metadata_bytes, read_batch, write_copy
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.pdus import MOST_ASKED, Ask, Copy, Data
from antiphon.protocols.sco.roster import Roster
from antiphon.protocols.sco.state import REPAIR, Batch, Peer, State
from antiphon.protocols.sco.vectors import MalformedError


class Reception:
    """Takes in what others send, and asks for what is missing."""

    def __init__(self, state: State, roster: Roster, ordering: Ordering) -> None:
        self._state = state
        self._roster = roster
        self._ordering = ordering

    # Batches

    def data(self, now: Nanoseconds, peer: Peer, pdu: Data) -> None:
        """A batch from its sender; raises `MalformedError` if it makes no sense."""
        state = self._state
        table = peer.tables.get(pdu.table)
        if table is None:
            state.counts["unreadable"] += 1  # its table is on the way, and a copy can be read without
            return
        parcel = Parcel(state, peer, pdu, table)
        peer.buffers = pdu.buffers
        place = parcel.place
        if place is None or not self._has_room(peer, place):
            if place is not None and self._is_within(peer, place):
                peer.needed = max(peer.needed, place + 1)
            self.look_for_gaps(now, peer)
        elif place == peer.received:
            self._accept(now, peer, read_batch(state, peer, parcel, peer.csn, peer.ack))
            if peer.ahead or peer.needed > peer.received:
                self.drain(now, peer)
            self._ordering.progress(now)
        else:
            peer.ahead[place] = parcel
            self.look_for_gaps(now, peer)

    def copy(self, now: Nanoseconds, source: Peer, pdu: Copy) -> None:
        """A batch from its sender, or of one who is gone from anyone; raises `MalformedError` if it makes no
        sense.

        As long as a sender is there nobody else is believed what it has sent.
        """
        state = self._state
        table = self._roster.read_names(now, pdu.names)
        peer = table[0].peer
        if peer is None or peer is state.me or peer.settled or (peer is not source and not peer.gone):
            return
        parcel = Parcel(state, peer, pdu, table)
        if parcel.place is None or not self._has_room(peer, parcel.place):
            return
        try:
            peer.ahead[parcel.place] = read_batch(state, peer, parcel, {}, {})
        except MalformedError:
            self._refuse(peer, parcel.place)
            raise
        self.drain(now, peer)
        self._ordering.progress(now)

    def _refuse(self, peer: Peer, place: int) -> None:
        """Nobody can bring what makes no sense in another way: of those who are gone it is not waited for."""
        if peer.gone:
            peer.refused.add(place)

    def _has_room(self, peer: Peer, place: int) -> bool:
        """Whether a batch is new and can be held; the next of a sender of whom nothing waits always can."""
        state = self._state
        if place < peer.received or isinstance(peer.ahead.get(place), Batch):
            state.counts["duplicates"] += 1
            return False
        next_of_all = place == peer.received and not peer.queue
        # What is missing of those who are gone makes room, so it has to be let in.
        roomy = next_of_all or (peer.gone and peer.heard) or not self._is_full()
        if roomy and self._is_within(peer, place):
            return True
        state.counts["overruns"] += 1
        return False

    def _is_within(self, peer: Peer, place: int) -> bool:
        """Whether a peer that keeps to its window can have come so far."""
        return place < peer.received + self._state.configuration.reach

    def _is_full(self) -> bool:
        return self._state.held >= self._state.configuration.buffers

    def drain(self, now: Nanoseconds, peer: Peer) -> None:
        """Accept what waited for what has come."""
        while (waiting := peer.ahead.pop(peer.received, None)) is not None:
            try:
                self._accept(now, peer, self._read(peer, waiting))
            except MalformedError:
                self._state.ignore()
                self._refuse(peer, peer.received)
                break
        self.look_for_gaps(now, peer)

    def _read(self, peer: Peer, waiting: Parcel | Batch) -> Batch:
        """A batch whose turn it is."""
        if isinstance(waiting, Batch):
            return waiting
        return read_batch(self._state, peer, waiting, peer.csn, peer.ack)

    def _accept(self, now: Nanoseconds, peer: Peer, batch: Batch) -> None:
        if batch.number < peer.end:
            raise MalformedError("a batch whose number was there before")
        peer.received += 1
        self._ordering.accept(now, batch)

    # Those who are gone

    def freeze(self, peer: Peer) -> None:
        """Nothing comes from a peer directly any more: keep what can be read, for nobody could read the rest.

        A batch behind a gap can be read if the one before it came as a copy.
        """
        readable: dict[int, Parcel | Batch] = {}
        for place in sorted(peer.ahead):
            waiting, before = peer.ahead[place], readable.get(place - 1)
            if isinstance(waiting, Batch):
                readable[place] = waiting
            elif isinstance(before, Batch) and (batch := self._read_after(peer, waiting, before)) is not None:
                readable[place] = batch
        peer.ahead = readable

    def _read_after(self, peer: Peer, waiting: Parcel, before: Batch) -> Batch | None:
        try:
            return read_batch(self._state, peer, waiting, before.csn, before.ack)
        except MalformedError:
            self._state.ignore()
            return None

    def take_the_rest(self, now: Nanoseconds, peer: Peer) -> None:
        """Nobody who counts has what is missing of a peer that is gone: accept what lies beyond it."""
        for place in sorted(peer.ahead):
            batch = peer.ahead.pop(place)
            assert isinstance(batch, Batch), "what could not be read was given up when it went"
            if batch.number >= peer.end:
                peer.skipped.update(range(peer.received, place))
                peer.received = place
                self._accept(now, peer, batch)

    # What is missing

    def look_for_gaps(self, now: Nanoseconds, peer: Peer) -> None:
        if not peer.gone and peer.received < peer.expected():
            self._state.arm(now, REPAIR, self._state.configuration.repair_ns)

    def repair(self, now: Nanoseconds) -> None:
        """Ask for all that is missing."""
        for peer in self._state.peers.values():
            limit = min(peer.expected(), peer.received + self._state.configuration.reach)
            missing = [place for place in range(peer.received, limit) if place not in peer.ahead]
            if missing and not (self._is_full() and peer.queue):
                self.ask(peer, peer, missing)
            self.look_for_gaps(now, peer)

    def ask(self, whom: Peer, peer: Peer, missing: list[int]) -> None:
        state = self._state
        state.counts["asked"] += 1
        state.effects.append(Send(whom.site, Ask(state.life, peer.name, tuple(missing[:MOST_ASKED]))))

    def answer(self, asker: Peer, pdu: Ask) -> None:
        """Send what we hold of that."""
        peer = self._roster.find(pdu.of.site, pdu.of.life)
        if peer is None:
            return
        wanted = set(pdu.places)
        asker.asked += len(wanted)
        for batch in list(peer.holds()):
            if batch.places.get(asker) in wanted:
                self._send_copy(asker.site, batch)

    def _send_copy(self, to: Site, batch: Batch) -> None:
        state = self._state
        pdu = write_copy(state, batch)
        state.counts["retransmissions" if batch.sender is state.me else "relays"] += 1
        state.counts["copy_metadata_bytes"] += metadata_bytes(pdu)
        state.effects.append(Send(to, pdu))
