"""Which acceptance levels a message has reached here: looked up when somebody asks, kept by nobody."""

from collections.abc import Iterable, Iterator

from antiphon.core.ids import Site
from antiphon.protocols.sco.coding import Parcel
from antiphon.protocols.sco.levels import ALL_LEVELS, Level
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.state import Batch, Peer, State


def level_of(state: State, ordering: Ordering, sender: Site, number: int) -> Level | None:
    """What is known of the message now; None if nothing is."""
    if ordering.remembered.find(sender, number) is not None and state.configuration.delivery == "full":
        return ALL_LEVELS
    for peer in _lives(state, sender):
        for batch in peer.holds():
            mine = peer is not state.me or state.me in batch.destinations
            if mine and batch.number <= number < batch.end:
                return _level(state, ordering, batch)
        for parcel in peer.ahead.values():
            if isinstance(parcel, Parcel) and 0 <= number - parcel.pdu.number < len(parcel.pdu.bodies):
                return _level_unread(state, peer, parcel)
    return None


def _level_unread(state: State, sender: Peer, parcel: Parcel) -> Level:
    """Of a batch that waits for the one before it."""
    end = parcel.pdu.number + len(parcel.pdu.bodies)
    others = [peer for peer in parcel.places if peer is not state.me]
    atomic = all(peer.settled or peer.confirmed.get(sender, 0) >= end for peer in others)
    return Level.SIMPLE | Level.ATOMIC if atomic else Level.SIMPLE


def _lives(state: State, site: Site) -> Iterator[Peer]:
    yield from (peer for peer in (state.me, *state.peers.values(), *state.ghosts) if peer.site == site)


def _level(state: State, ordering: Ordering, batch: Batch) -> Level:
    level = Level.SIMPLE
    atomic = _all_have(ordering, [batch])
    if atomic:
        level |= Level.ATOMIC
    sender = batch.sender
    if batch.number not in sender.kept:
        return level
    level |= Level.CONTINUOUS
    if atomic and _all_have(ordering, (one for one in sender.kept.values() if one.number < batch.number)):
        level |= Level.CONTINUOUSLY_ATOMIC
    if batch in sender.queue:
        return level
    level |= Level.CAUSAL
    if Level.CONTINUOUSLY_ATOMIC in level and _all_have(ordering, _before(state, batch)):
        level |= Level.CAUSALLY_ATOMIC
    return level


def _all_have(ordering: Ordering, batches: Iterable[Batch]) -> bool:
    return all(ordering.has_confirmed(peer, batch) for batch in batches for peer in batch.unconfirmed)


def _before(state: State, batch: Batch) -> Iterator[Batch]:
    """What precedes a batch and is not fully accepted: all of it lies before it in the causality queue."""
    for one in state.causality:
        if one is batch:
            return
        if one.number < batch.csn.get(one.sender, 0):
            yield one
