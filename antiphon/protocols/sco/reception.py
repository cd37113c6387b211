"""What comes in: batches, copies of them, requests for copies, and control messages (section 3.2).

Batches of one sender are accepted in the order of their places here. One that comes early waits, unread,
since its vectors are differences to the one before. What is missing is requested: from its sender, and once
that has departed from members that hold it. A copy has all that the original was stamped with (fault S7) and
drains what waits behind it (fault S9).
"""

from typing import Final

from antiphon.core.effects import Send
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.coding import UnreadBatch, metadata_bytes, read_batch, read_control, write_copy
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.pdus import MOST_ASKED, Ask, Control, Copy, Data
from antiphon.protocols.sco.peer import Batch, Peer, Table
from antiphon.protocols.sco.roster import Roster
from antiphon.protocols.sco.state import REPAIR, State
from antiphon.protocols.sco.vectors import MalformedError


class Reception:
    """Takes in what others send, and requests what is missing."""

    def __init__(self, state: State, roster: Roster, ordering: Ordering) -> None:
        self._state = state
        self._peers = state.peers
        self._roster = roster
        self._ordering = ordering
        self._reach: Final = state.configuration.reach

    # Batches

    def on_data(self, now: Nanoseconds, peer: Peer, pdu: Data) -> None:
        """Take a batch from its sender; raises `MalformedError` if it is malformed."""
        table = peer.view.tables.get(pdu.table)
        if table is None:
            self._state.counts["unreadable"] += 1  # its table is on the way, and a copy needs none
            return
        unread = UnreadBatch(self._peers, peer, pdu, table)
        peer.buffers = pdu.buffers
        stream, place = peer.stream, unread.place
        if place is not None:
            self._note_atomic(peer, pdu.number, pdu.atomic)
        if place is None or not self._has_room(peer, place):
            if place is not None and self._is_within(peer, place):
                stream.need(place)
            self._look_for_gaps(now, peer)
        elif place == stream.received:
            self._accept(now, read_batch(self._peers, peer, unread, stream.csn, stream.ack))
            if stream.ahead:
                self._drain(now, peer)
            self._ordering.progress(now)
        else:
            stream.hold(place, unread)
            self._look_for_gaps(now, peer)

    def on_copy(self, now: Nanoseconds, source: Peer, pdu: Copy) -> None:
        """Take a batch from its sender, or a departed sender's from any member; raises `MalformedError`.

        As long as a sender is present, only the sender itself is believed.
        """
        if self._roster.is_ahead(now, pdu.names):
            self._state.ignore()
            return
        table = self._roster.read_names(now, pdu.names)
        peer = table[0].peer
        if peer is None or peer is self._peers.me or peer.settled or (peer is not source and not peer.gone):
            return
        unread = UnreadBatch(self._peers, peer, pdu, table)
        if unread.place is None or not self._has_room(peer, unread.place):
            return
        try:
            peer.stream.hold(unread.place, read_batch(self._peers, peer, unread, {}, {}))
        except MalformedError:
            self._refuse(peer, unread.place)
            raise
        self._drain(now, peer)
        self._ordering.progress(now)

    def _refuse(self, peer: Peer, place: int) -> None:
        """Do not wait for a departed sender's malformed batch: no member can bring it in another form."""
        if peer.gone:
            peer.stream.refuse(place)

    def _has_room(self, peer: Peer, place: int) -> bool:
        """Whether a batch is new and can be held; the next one of an empty queue always can."""
        stream, counts = peer.stream, self._state.counts
        if place < stream.received or isinstance(stream.ahead.get(place), Batch):
            counts["duplicates"] += 1
            return False
        is_next = place == stream.received and not stream.queue
        # What is missing of departed senders makes room, so it has to be let in.
        has_room = is_next or (peer.gone and peer.heard) or not self._ordering.is_full()
        if has_room and self._is_within(peer, place):
            return True
        counts["overruns"] += 1
        return False

    def _is_within(self, peer: Peer, place: int) -> bool:
        """Whether a peer that keeps to its window can have come so far."""
        return place < peer.stream.received + self._reach

    def _drain(self, now: Nanoseconds, peer: Peer) -> None:
        """Accept what waited for what has come."""
        stream = peer.stream
        while (waiting := stream.ahead.pop(stream.received, None)) is not None:
            try:
                self._accept(now, self._read(peer, waiting))
            except MalformedError:
                self._state.ignore()
                self._refuse(peer, stream.received)
                break
        self._look_for_gaps(now, peer)

    def _read(self, peer: Peer, waiting: UnreadBatch | Batch) -> Batch:
        """Read a batch whose turn has come."""
        if isinstance(waiting, Batch):
            return waiting
        return read_batch(self._peers, peer, waiting, peer.stream.csn, peer.stream.ack)

    def _accept(self, now: Nanoseconds, batch: Batch) -> None:
        if batch.number < batch.sender.stream.end:
            raise MalformedError("a batch whose number was there before")
        self._ordering.accept(now, batch)

    # Departed senders

    def freeze(self, peer: Peer) -> None:
        """Keep the batches beyond a gap that can be read: a departed sender sends nothing more.

        A batch behind a gap can be read if the one before it came as a copy.
        """
        readable: dict[int, UnreadBatch | Batch] = {}
        for place, waiting in sorted(peer.stream.ahead.items()):
            before = readable.get(place - 1)
            if isinstance(waiting, Batch):
                readable[place] = waiting
            elif isinstance(before, Batch) and (batch := self._read_after(peer, waiting, before)) is not None:
                readable[place] = batch
        peer.stream.ahead = readable

    def _read_after(self, peer: Peer, waiting: UnreadBatch, before: Batch) -> Batch | None:
        try:
            return read_batch(self._peers, peer, waiting, before.csn, before.ack)
        except MalformedError:
            self._state.ignore()
            return None

    def complete(self, now: Nanoseconds, peer: Peer) -> None:
        """Accept what lies beyond the gaps of a departed sender's stream: no survivor can fill them."""
        stream = peer.stream
        for place in sorted(stream.ahead):
            batch = stream.ahead.pop(place)
            assert isinstance(batch, Batch), "unreadable batches were dropped when the sender departed"
            if batch.number >= stream.end:
                stream.skip_to(place)
                self._accept(now, batch)

    # What is missing

    def _look_for_gaps(self, now: Nanoseconds, peer: Peer) -> None:
        if not peer.gone and peer.stream.has_gap():
            self._state.timers.arm(now, REPAIR, self._state.configuration.repair_ns)

    def on_repair_timer(self, now: Nanoseconds) -> None:
        """Request all that is missing."""
        for peer in self._peers.present.values():
            missing = peer.stream.missing(self._reach)
            if missing and not (self._ordering.is_full() and peer.stream.queue):
                self.request(peer, peer, missing)
            self._look_for_gaps(now, peer)

    def request(self, holder: Peer, sender: Peer, missing: list[int]) -> None:
        """Ask a member for a sender's batches."""
        state = self._state
        state.counts["asked"] += 1
        ask = Ask(self._peers.me.life, sender.name, tuple(missing[:MOST_ASKED]))
        state.effects.append(Send(holder.site, ask))

    def on_ask(self, asker: Peer, pdu: Ask) -> None:
        """Send copies of the batches that we hold."""
        peer = self._peers.find(pdu.of.site, pdu.of.life)
        if peer is None:
            return
        wanted = set(pdu.places)
        asker.outgoing.asked += len(wanted)
        for batch in list(peer.stream.holds()):
            if batch.places.get(asker) in wanted:
                self._send_copy(asker, batch)

    def _send_copy(self, to: Peer, batch: Batch) -> None:
        state, me = self._state, self._peers.me
        pdu = write_copy(me, batch)
        state.counts["retransmissions" if batch.sender is me else "relays"] += 1
        state.counts["copy_metadata_bytes"] += metadata_bytes(pdu)
        state.effects.append(Send(to.site, pdu))

    # Control messages

    def on_control(self, now: Nanoseconds, peer: Peer, pdu: Control, table: Table) -> None:
        """Take what a control message says by its sender's table; raises `MalformedError`."""
        state = self._state
        acks, numbers = read_control(self._peers, pdu, table)
        if pdu.gone == state.lives.digest:
            # A member that holds another to be gone may have skipped batches that no survivor had. Those who
            # do not know that yet, above all the member held to be gone, would take its confirmations wrong.
            peer.confirm(acks)
            peer.time(now, state.probe, self._peers.me)
        if numbers is not None:
            sent, known_table, has_all = numbers
            self._note_sent(now, peer, pdu.number, sent)
            if sent <= peer.stream.received:
                peer.note_passed(acks)
            if pdu.gone == state.lives.digest:
                self._note_atomic(peer, pdu.number, pdu.atomic)
            self._note_answer(peer, known_table, pdu.number)
            if pdu.serial == peer.view.serial:
                self._note_final(now, peer, final=pdu.final and has_all == 1)
        self._ordering.progress(now)

    def _note_sent(self, now: Nanoseconds, peer: Peer, number: int, sent: int) -> None:
        """A peer has sent us this many batches below that number."""
        if sent > peer.stream.received + self._reach:
            raise MalformedError("more than a window was sent")
        peer.stream.note_sent(number, sent)
        if sent > peer.stream.received:
            self._look_for_gaps(now, peer)

    def _note_atomic(self, peer: Peer, number: int, atomic: int) -> None:
        """A peer that had come as far as that number says how far all destinations hold its messages.

        It addresses us, so that we knew of every departed member that it does not wait for.
        """
        if atomic > number:
            raise MalformedError("every destination holds what was never sent")
        peer.stream.note_atomic(atomic)

    def _note_answer(self, peer: Peer, version: int, number: int) -> None:
        """A peer that knew this version of our table had come as far as that number."""
        if version > self._peers.version:
            raise MalformedError("a table of ours that never was")
        peer.view.knows_table = version
        if peer.claims.note_answer(version, number) and version > peer.claims.csn_version:
            self._state.stamps.take_back(peer, max(number, peer.stream.frontier))

    def _note_final(self, now: Nanoseconds, peer: Peer, *, final: bool) -> None:
        """Whether a peer has completed departed streams; if not it is told what we hold."""
        state = self._state
        peer.view.final = final
        if state.lives.over and not peer.view.is_final(state.lives.digest):
            state.timers.arm(now, REPAIR, state.configuration.repair_ns)
