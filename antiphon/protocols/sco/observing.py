"""Which acceptance levels a message has reached here: computed when the application asks, never kept."""

from collections.abc import Iterable, Iterator

from antiphon.core.ids import Site
from antiphon.protocols.sco.coding import UnreadBatch
from antiphon.protocols.sco.levels import ALL_LEVELS, Level
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.peer import Batch, Peer
from antiphon.protocols.sco.state import State


def level_of(state: State, ordering: Ordering, sender: Site, number: int) -> Level | None:
    """The levels of a message now; None if nothing is known of it."""
    if ordering.remembered.find(sender, number) is not None and state.configuration.delivery == "full":
        return ALL_LEVELS
    me = state.peers.me
    for peer in _lives(state, sender):
        for batch in peer.stream.holds():
            mine = peer is not me or me in batch.destinations
            if mine and batch.number <= number < batch.end:
                return _level(ordering, batch)
        for unread in peer.stream.ahead.values():
            if isinstance(unread, UnreadBatch) and 0 <= number - unread.pdu.number < len(unread.pdu.bodies):
                return _level_unread(state, peer, unread)
    return None


def _level_unread(state: State, sender: Peer, unread: UnreadBatch) -> Level:
    """The levels of a batch that waits for the one before it."""
    end = unread.pdu.number + len(unread.pdu.bodies)
    others = [peer for peer in unread.places if peer is not state.peers.me]
    atomic = all(peer.settled or peer.confirmed.get(sender, 0) >= end for peer in others)
    return Level.SIMPLE | Level.ATOMIC if atomic else Level.SIMPLE


def _lives(state: State, site: Site) -> Iterator[Peer]:
    yield from (peer for peer in state.peers.all() if peer.site == site)


def _level(ordering: Ordering, batch: Batch) -> Level:
    level = Level.SIMPLE
    atomic = _all_have(ordering, [batch])
    if atomic:
        level |= Level.ATOMIC
    stream = batch.sender.stream
    if batch.number not in stream.kept:
        return level
    level |= Level.CONTINUOUS
    if atomic and _all_have(ordering, (one for one in stream.kept.values() if one.number < batch.number)):
        level |= Level.CONTINUOUSLY_ATOMIC
    if batch in stream.queue:
        return level
    level |= Level.CAUSAL
    if Level.CONTINUOUSLY_ATOMIC in level and _all_have(ordering, _before(ordering, batch)):
        level |= Level.CAUSALLY_ATOMIC
    return level


def _all_have(ordering: Ordering, batches: Iterable[Batch]) -> bool:
    return all(ordering.has_confirmed(peer, batch) for batch in batches for peer in batch.unconfirmed)


def _before(ordering: Ordering, batch: Batch) -> Iterator[Batch]:
    """Batches that precede a batch and are not fully accepted: all lie before it in the causality queue."""
    for one in ordering.causality:
        if one is batch:
            return
        if one.number < batch.csn.get(one.sender, 0):
            yield one
