"""From the receipt queues to the causality queue, and from there to delivery (sections 3.3 and 3.4).

A batch at the top of its sender's receipt queue may move when nothing that precedes it can still come or
waits in another queue. That is asked of each member h with an entry in its csn: everything of h below the
entry has come (`frontier`), and the top of h's queue does not lie below it. The paper waits until no receipt
queue is empty instead, which blocks behind whoever has nothing to say, and moves tops that another precedes
(faults S6 and S2 of the printed procedure).

A csn may say too much: a liar's does, and so do those of members that heard the liar. What a member sent
after it had accepted a batch cannot precede that batch, whatever the csn says. Batches that still wait for
one another, in a circle, are freed (`untie`).

Batches leave the causality queue in its order, once every destination is known to have accepted them.
"""

from antiphon.core.effects import Arrived, Deliver, Stable
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.levels import Remembered
from antiphon.protocols.sco.pdus import SPELL_BITS
from antiphon.protocols.sco.state import FOREVER, Batch, Peer, State


class Ordering:
    """Moves batches on as far as they can go."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.remembered = Remembered(state.configuration.observe)

    def accept(self, now: Nanoseconds, batch: Batch) -> None:
        """A batch comes with nothing of its sender missing before it: it is continuously accepted."""
        state, peer = self._state, batch.sender
        peer.csn, peer.ack = batch.csn, batch.ack
        raise_entries(peer.confirmed, batch.ack)
        state.time(now, peer)
        state.raise_csn(peer, batch.end)
        for other, number in batch.csn.items():
            state.raise_csn(other, number)
        # One that said it would send nothing below some number, and does, has taken that back.
        peer.frontier = peer.end = batch.end
        if peer.first < 0:
            peer.first = batch.number
        if peer.gone and batch.end > state.reached.get(peer.site, 0):
            state.note_reached(peer.site, batch.end)
        state.effects.append(Arrived(peer.site, batch.number, len(batch.bodies)))
        batch.since_ns = now
        self.enqueue(batch)
        if state.configuration.acknowledge == "continuous":
            self._acknowledge(now, batch)

    def enqueue(self, batch: Batch) -> None:
        """Into its sender's receipt queue; own batches to ourselves go there too."""
        peer = batch.sender
        batch.table_version = self._state.table_version
        peer.kept[batch.number] = batch
        peer.queue.append(batch)
        self._state.waiting[peer] = None
        self._state.held += 1

    def progress(self, now: Nanoseconds) -> None:
        """Let everything move that can."""
        self._move(now)
        causality = self._state.causality
        while causality and self._is_confirmed(causality[0]):
            self._accept_fully(causality.popleft())
        self._settle_own()
        if self._state.ready and self._state.taking_part:
            self._hand_over()

    # Causal acceptance

    def _move(self, now: Nanoseconds) -> None:
        state = self._state
        moved = True
        while moved:
            moved = False
            for peer in list(state.waiting):
                queue = peer.queue
                while queue and self._may_move(queue[0]):
                    self._accept_causally(now, queue.popleft())
                    moved = True
                if not queue:
                    del state.waiting[peer]

    def _may_move(self, batch: Batch) -> bool:
        """Whether nothing that precedes it can come or waits elsewhere; what it waited for is asked first."""
        blocked_by, csn = batch.blocked_by, batch.csn
        if blocked_by is not None and self._precedes(batch, blocked_by, csn.get(blocked_by, 0)):
            return False
        if not _is_alone(batch.sender):
            return False
        for peer, number in csn.items():
            if self._precedes(batch, peer, number):
                batch.blocked_by = peer
                return False
        return True

    def _precedes(self, batch: Batch, peer: Peer, number: int) -> bool:
        """Whether a peer's message below this number is still to be moved, or may be."""
        if peer in batch.freed:
            return False
        if peer.frontier < number:
            number = min(number, self._most_sent(batch, peer))
        if peer.frontier < number or not _is_alone(peer):
            return True
        return bool(peer.queue) and peer.queue[0].number < number and not _follows(peer.queue[0], batch)

    def _most_sent(self, batch: Batch, peer: Peer) -> int:
        """The number that a peer can have reached when a batch was sent, as far as that is known."""
        if peer is self._state.me or peer.has_accepted(batch):
            return peer.frontier
        return peer.answered_number if batch.table_version < peer.answered else FOREVER

    def _accept_causally(self, now: Nanoseconds, batch: Batch) -> None:
        state = self._state
        state.causality.append(batch)
        if state.csn_fell:
            for other, number in batch.csn.items():
                state.raise_csn(other, min(number, other.frontier))
        if state.configuration.acknowledge == "causal":
            self._acknowledge(now, batch)
        if state.configuration.delivery == "causal":
            state.ready.append(batch)

    def _acknowledge(self, now: Nanoseconds, batch: Batch) -> None:
        state = self._state
        if batch.sender is state.me:
            return  # everyone knows that we have our own
        state.raise_ack(batch.sender, batch.end)
        state.tell(now, batch.sender)
        for peer in batch.destinations:
            state.tell(now, peer)

    # Batches that wait for one another

    def untie(self, now: Nanoseconds, limit_ns: Nanoseconds) -> None:
        """Free batches that have waited since then, each for the next: one of them says what cannot be."""
        seen: set[Batch] = set()
        freed = False
        for start in [peer.queue[0] for peer in self._state.waiting]:
            path: dict[Batch, tuple[Peer | None, Batch]] = {}
            batch = start
            while batch.since_ns <= limit_ns and batch not in seen:
                seen.add(batch)
                awaited = self._awaited(batch)
                if awaited is None:
                    break
                path[batch] = awaited
                batch = awaited[1]
            if batch in path:
                freed = True
                _free_one(dict(list(path.items())[list(path).index(batch) :]))
        if freed:
            self.progress(now)

    def _awaited(self, batch: Batch) -> tuple[Peer | None, Batch] | None:
        """For whom a batch waits, and for which batch; None if that is not here.

        Nobody is named where it waits for an earlier life of its own site.
        """
        if not _is_alone(batch.sender):
            blocked_by, first = None, _first_life(batch.sender)
        else:
            blocked_by = next(
                (peer for peer, number in batch.csn.items() if self._precedes(batch, peer, number)), None
            )
            if blocked_by is None:
                return None
            first = _first_life(blocked_by)
        return (blocked_by, first.queue[0]) if first.queue else None

    # Full acceptance

    def _is_confirmed(self, batch: Batch) -> bool:
        """Whether every destination that is not gone is known to have it."""
        waiting = batch.unconfirmed
        while waiting:
            if not self.has_confirmed(waiting[-1], batch):
                return False
            waiting.pop()
        return True

    def has_confirmed(self, peer: Peer, batch: Batch) -> bool:
        """Of a sender that is gone, whoever has all that there is of it has this too."""
        if peer.settled or peer.confirmed.get(batch.sender, 0) >= batch.end:
            return True
        return batch.sender.settled and peer.final and peer.digest == self._state.digest

    def _accept_fully(self, batch: Batch) -> None:
        state = self._state
        batch.sender.kept.pop(batch.number, None)
        if state.configuration.delivery == "full":
            state.ready.append(batch)
        else:
            state.effects.append(Stable(batch.sender.site, batch.number, len(batch.bodies)))
            state.held -= 1

    def _hand_over(self) -> None:
        """To the application."""
        state = self._state
        full = state.configuration.delivery == "full"
        for batch in state.ready:
            sender = batch.sender
            if not sender.linked:
                self._link(sender)
            state.effects.append(
                Deliver(sender.site, batch.number, batch.bodies, None, sender.life >> SPELL_BITS, batch.sites)
            )
            if full:
                state.effects.append(Stable(sender.site, batch.number, len(batch.bodies)))
                state.held -= 1
            self.remembered.add(batch)
        state.ready.clear()

    # A site's next life

    def link_all(self) -> None:
        """Look at those whose first number is known and of whose earlier lives nothing waits any more."""
        state = self._state
        new = [peer for peer in state.peers.values() if not peer.linked and peer.first >= 0]
        if new:
            waiting = {batch.sender.site for batch in (*state.causality, *state.ready)}
            for peer in new:
                if peer.site not in waiting and _is_alone(peer):
                    self._link(peer)

    def _link(self, peer: Peer) -> None:
        """Whether a life goes on where the site's earlier one was with us: if not, a spell of ours is over.

        Between its lives the site went on without us, though we may have counted it all the time.
        """
        peer.linked = True
        if peer.first > self._state.reached.get(peer.site, FOREVER):
            self._state.note_hole()

    def _settle_own(self) -> None:
        """Forget own batches that all have; those to ourselves are stable when they are delivered."""
        state = self._state
        while state.own and self._is_confirmed(state.own[0]):
            batch = state.own.popleft()
            if state.me not in batch.destinations:
                state.me.kept.pop(batch.number, None)
                state.effects.append(Stable(state.site, batch.number, len(batch.bodies)))


def raise_entries(vector: dict[Peer, int], told: dict[Peer, int]) -> None:
    """Entries never fall."""
    for peer, number in told.items():
        if number > vector.get(peer, 0):
            vector[peer] = number


def _is_alone(peer: Peer) -> bool:
    """Whether nothing is left to move of earlier lives of its site: their messages come first."""
    earlier = peer.predecessor
    while earlier is not None:
        if earlier.queue or not earlier.settled:
            return False
        earlier = peer.predecessor = earlier.predecessor
    return True


def _first_life(peer: Peer) -> Peer:
    """The earliest life of its site of which something is left to move, or may come."""
    first, earlier = peer, peer.predecessor
    while earlier is not None:
        if earlier.queue or not earlier.settled:
            first = earlier
        earlier = earlier.predecessor
    return first


def _follows(later: Batch, earlier: Batch) -> bool:
    """Whether a batch's sender had accepted the other one, or a later one of the same sender, before."""
    return later.ack.get(earlier.sender, 0) >= earlier.end


def _free_one(knot: dict[Batch, tuple[Peer | None, Batch]]) -> None:
    """Of batches that each wait for the next, free the first that does not have the next from its sender."""
    batch, (blocked_by, _) = min(
        ((batch, awaited) for batch, awaited in knot.items() if awaited[0] is not None),
        key=lambda item: (_follows(item[0], item[1][1]), item[0].since_ns),
    )
    assert blocked_by is not None
    batch.freed |= {blocked_by}
