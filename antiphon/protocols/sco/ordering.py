"""From the receipt queues to the causality queue, and from there to delivery (sections 3.3 and 3.4).

A batch at the top of its sender's receipt queue may move when nothing that precedes it can still come or
waits in another queue. That is checked for each member h with an entry in its csn: everything of h below the
entry has come (`frontier`), and the top of h's queue does not lie below it. The paper waits until no receipt
queue is empty instead, which blocks behind members that send nothing, and moves tops that another precedes
(faults S6 and S2 of the printed procedure).

A csn may say too much: a liar's does, and so do those of members that heard the liar. What a member sent
after it had accepted a batch cannot precede that batch, whatever the csn says. Batches that still wait for
one another, in a circle, are freed (`untie`).

Batches leave the causality queue in its order, once every destination is known to have accepted them.

The paper's names: CRQ is `causality`, ARQ is `_ready`.
"""

from collections import deque
from itertools import islice
from typing import Final

from antiphon.core.effects import Arrived, Deliver, Stable
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.gathering import Gathering
from antiphon.protocols.sco.levels import Remembered
from antiphon.protocols.sco.lives import MOST_SEEN
from antiphon.protocols.sco.pdus import LEAPT, SPELL_BITS
from antiphon.protocols.sco.peer import FOREVER, Batch, Peer
from antiphon.protocols.sco.state import CONTROL, State
from antiphon.protocols.taken import Taken

SLOWNESS: Final = 8
"""Messages over which the usual wait for confirmations is averaged. Raising it costs time to follow it."""


class Ordering:
    """Moves batches on as far as they can go."""

    def __init__(self, state: State, gathering: Gathering) -> None:
        self._state = state
        self._gathering = gathering
        self._peers = state.peers
        self._stamps = state.stamps
        self._effects = state.effects
        self._is_full_delivery = state.configuration.delivery == "full"
        self._acknowledges_at_once = state.configuration.acknowledge == "continuous"
        self.usual_ns: Nanoseconds = 0
        """How long a batch usually waits here until every destination is known to have it."""
        self.remembered = Remembered(state.configuration.observe)
        self._delivered: dict[Site, Taken] = {}
        """The numbers of each site that were delivered, in this life of ours or an earlier one."""
        self.begin()

    def begin(self) -> None:
        """A new life has no batches."""
        self.own: deque[Batch] = deque()
        """Own batches from the oldest that some destination has not confirmed."""
        self._waiting: dict[Peer, None] = {}
        """Peers whose receipt queues are not empty."""
        self.causality: deque[Batch] = deque()
        self._ready: deque[Batch] = deque()
        """Batches that may be delivered."""
        self.held = 0
        """Batches of others, and own ones to ourselves, that are not delivered."""

    def free_buffers(self) -> int:
        """The paper's buf."""
        return max(0, self._state.configuration.buffers - self.held)

    def is_full(self) -> bool:
        return self.held >= self._state.configuration.buffers

    def tops(self) -> list[Batch]:
        """The first batch of each receipt queue."""
        return [peer.stream.queue[0] for peer in self._waiting]

    def waits_since_before(self, limit_ns: Nanoseconds) -> bool:
        """Whether the oldest batch of a queue has waited since before that time."""
        oldest = (*self.tops(), *islice(self.causality, 1), *islice(self.own, 1))
        return any(batch.since_ns < limit_ns for batch in oldest)

    def accept(self, now: Nanoseconds, batch: Batch) -> None:
        """Accept a batch before which nothing of its sender is missing (continuous acceptance)."""
        state, peer = self._state, batch.sender
        peer.confirm(batch.ack)
        peer.time(now, state.probe, self._peers.me)
        self._stamps.follow(batch)
        peer.stream.accept(batch)
        if peer.gone and batch.end > state.lives.reached.get(peer.site, 0):
            state.lives.note_reached(peer.site, batch.end)
        self._effects.append(Arrived(peer.site, batch.number, len(batch.bodies)))
        batch.since_ns = now
        state.timers.arm(now, CONTROL, state.configuration.control_ns)
        self.enqueue(batch)
        if self._acknowledges_at_once:
            self._acknowledge(now, batch)

    def add_own(self, batch: Batch) -> None:
        """An own batch goes out to others."""
        self.own.append(batch)
        batch.sender.stream.kept[batch.number] = batch

    def enqueue(self, batch: Batch) -> None:
        """Put a batch into its sender's receipt queue; own batches to ourselves too."""
        batch.table_version = self._peers.version
        batch.sender.stream.enqueue(batch)
        self._waiting[batch.sender] = None
        self.held += 1

    def progress(self, now: Nanoseconds) -> None:
        """Move everything that can move."""
        self._move(now)
        causality = self.causality
        while causality and self._is_confirmed(causality[0]):
            self._note_wait(now, causality[0])
            self._accept_fully(causality.popleft())
        self._settle_own(now)
        if self._ready and self._state.presence.taking_part:
            self._hand_over()

    # Causal acceptance

    def _move(self, now: Nanoseconds) -> None:
        moved = True
        while moved:
            moved = False
            for peer in list(self._waiting):
                queue = peer.stream.queue
                while queue and self._may_move(queue[0]):
                    self._accept_causally(now, queue.popleft())
                    moved = True
                if not queue:
                    del self._waiting[peer]

    def _may_move(self, batch: Batch) -> bool:
        """Whether nothing that precedes it can come or waits; the peer that blocked it is checked first."""
        blocked_by, csn = batch.blocked_by, batch.csn
        if blocked_by is not None and self._precedes(batch, blocked_by, csn.get(blocked_by, 0)):
            return False
        if batch.sender.predecessor is not None and not batch.sender.is_alone():
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
        stream = peer.stream
        if stream.frontier < number:
            number = min(number, self._most_sent(batch, peer))
            if stream.frontier < number:
                return True
        if peer.predecessor is not None and not peer.is_alone():
            return True
        queue = stream.queue
        return bool(queue) and queue[0].number < number and not _follows(queue[0], batch)

    def _most_sent(self, batch: Batch, peer: Peer) -> int:
        """The number that a peer can have reached when a batch was sent, as far as that is known."""
        if peer is self._peers.me or peer.has_accepted(batch):
            return peer.stream.frontier
        return peer.claims.most_sent(batch.table_version)

    def _accept_causally(self, now: Nanoseconds, batch: Batch) -> None:
        self.causality.append(batch)
        if self._stamps.fell:
            self._stamps.follow_moved(batch)
        if not self._acknowledges_at_once:
            self._acknowledge(now, batch)
        if not self._is_full_delivery:
            self._ready.append(batch)

    def _acknowledge(self, now: Nanoseconds, batch: Batch) -> None:
        if batch.sender is self._peers.me:
            return  # every member knows that we have our own
        self._stamps.acknowledge(batch)
        if self._state.gathers():
            self._gathering.accept(batch.sender)
            return
        confirm_soon = self._state.timers.confirm_soon
        confirm_soon(now, batch.sender)
        for peer in batch.destinations:
            confirm_soon(now, peer)

    # Batches that wait for one another

    def untie(self, now: Nanoseconds, limit_ns: Nanoseconds) -> None:
        """Free batches that have waited since then in a circle: what one of them says cannot be true."""
        seen: set[Batch] = set()
        freed = False
        for top in self.tops():
            path: dict[Batch, tuple[Peer | None, Batch]] = {}
            batch = top
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
        """The peer and the batch for which a batch waits; None if that batch is not here.

        The peer is None where it waits for an earlier life of its own site.
        """
        if not batch.sender.is_alone():
            blocked_by, first = None, batch.sender.first_life()
        else:
            blocked_by = next(
                (peer for peer, number in batch.csn.items() if self._precedes(batch, peer, number)), None
            )
            if blocked_by is None:
                return None
            first = blocked_by.first_life()
        return (blocked_by, first.stream.queue[0]) if first.stream.queue else None

    # Full acceptance

    def _is_confirmed(self, batch: Batch) -> bool:
        """Whether every destination that has not departed is known to have it."""
        waiting = batch.unconfirmed
        while waiting:
            if not self.has_confirmed(waiting[-1], batch):
                return False
            waiting.pop()
        return True

    def has_confirmed(self, peer: Peer, batch: Batch) -> bool:
        """Whether a peer is known to have a batch, or to have completed its departed sender's stream."""
        if peer.settled or peer.confirmed.get(batch.sender, 0) >= batch.end:
            return True
        if batch.sender.stream.atomic >= batch.end:
            return True
        return batch.sender.settled and peer.view.is_final(self._state.lives.digest)

    def settle(self, sender: Peer | None, end: int, source: Peer) -> None:
        """A member of a batch's destinations, or its sender, says that all of them hold it."""
        for batch in self.causality:
            if batch.sender is sender and batch.end == end and source in (sender, *batch.destinations):
                batch.unconfirmed.clear()

    def _accept_fully(self, batch: Batch) -> None:
        batch.sender.stream.kept.pop(batch.number, None)
        batch.sender.stream.full = batch.end
        if self._is_full_delivery:
            self._ready.append(batch)
        else:
            self._effects.append(Stable(batch.sender.site, batch.number, len(batch.bodies)))
            self.remembered.add(batch)
            self.held -= 1

    def _hand_over(self) -> None:
        """Deliver to the application."""
        effects, is_full = self._effects, self._is_full_delivery
        for batch in self._ready:
            sender = batch.sender
            if not sender.linked:
                self._link(sender)
            if is_full:
                self.held -= 1
            if not self._may_deliver(batch):
                self._state.ignore()
                continue
            effects.append(
                Deliver(sender.site, batch.number, batch.bodies, None, sender.life >> SPELL_BITS, batch.sites)
            )
            if is_full:
                effects.append(Stable(sender.site, batch.number, len(batch.bodies)))
                self.remembered.add(batch)
        self._ready.clear()

    def _may_deliver(self, batch: Batch) -> bool:
        """Whether its sender can have sent it, and none of its numbers was delivered; they are from now on.

        Lives of one incarnation continue each other's numbers; one that leapt continues all. A batch of a
        departed life that reaches beyond the first number of a later one was forged by the member that
        repeated it. A life that never spoke here may have been invented by that member: if others deliver
        something of it, that is a hole here.
        """
        sender = batch.sender
        incarnation = sender.life >> SPELL_BITS
        if sender.gone and batch.end > self._peers.next_first(sender):
            return False
        if not self._is_real(sender):
            self._state.presence.note_hole()
            return False
        taken = self._delivered.pop(sender.site, None) or Taken()
        among = None if sender.life & LEAPT else incarnation
        if is_new := not taken.has(among, batch.number, batch.end):
            taken.note(incarnation, batch.number, batch.end)
        self._delivered[sender.site] = taken
        if len(self._delivered) > MOST_SEEN:
            del self._delivered[next(iter(self._delivered))]
        return is_new

    def _is_real(self, sender: Peer) -> bool:
        """Whether a life is known by its own voice, in this life of ours or an earlier one."""
        is_ours = sender is self._peers.me
        return is_ours or sender.vouched or self._state.lives.heard.get(sender.site) == sender.life

    def _note_wait(self, now: Nanoseconds, batch: Batch) -> None:
        self.usual_ns += (now - batch.since_ns - self.usual_ns) // SLOWNESS

    def _settle_own(self, now: Nanoseconds) -> None:
        """Forget own batches that all have; those to ourselves are stable when they are delivered."""
        me = self._peers.me
        while self.own and self._is_confirmed(self.own[0]):
            batch = self.own.popleft()
            self._note_wait(now, batch)
            if me not in batch.destinations:
                me.stream.kept.pop(batch.number, None)
                self._effects.append(Stable(me.site, batch.number, len(batch.bodies)))
        me.stream.atomic = self.own[0].number if self.own else self._peers.next_number

    # A site's next life

    def link_all(self) -> None:
        """Link lives whose first number is known and whose site's earlier lives have nothing waiting."""
        new = [peer for peer in self._peers.present.values() if not peer.linked and peer.stream.first >= 0]
        if new:
            waiting = {batch.sender.site for batch in (*self.causality, *self._ready)}
            for peer in new:
                if peer.site not in waiting and peer.is_alone():
                    self._link(peer)

    def _link(self, peer: Peer) -> None:
        """Compare where a life begins with where the site's earlier one ended here.

        If there is a gap, the site sent messages without us between its lives: our spell of presence ends.
        """
        peer.linked = True
        if peer.stream.first > self._state.lives.reached.get(peer.site, FOREVER):
            self._state.presence.note_hole()


def _follows(later: Batch, earlier: Batch) -> bool:
    """Whether a batch's sender had accepted the other one, or a later one of the same sender, before."""
    return later.ack.get(earlier.sender, 0) >= earlier.end


def _free_one(circle: dict[Batch, tuple[Peer | None, Batch]]) -> None:
    """Of batches that each wait for the next, free the first whose sender has not accepted the next."""
    batch, (blocked_by, _) = min(
        ((batch, awaited) for batch, awaited in circle.items() if awaited[0] is not None),
        key=lambda item: (_follows(item[0], item[1][1]), item[0].since_ns),
    )
    assert blocked_by is not None
    batch.freed |= {blocked_by}
