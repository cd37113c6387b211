"""Which acceptance levels a message has reached here: computed when the application asks, or watched.

An own message that is not for its sender is simply, continuously and causally accepted there at once: its
sender has it, and everything before it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from antiphon.core.effects import Reached
from antiphon.core.ids import Site
from antiphon.protocols.sco.coding import UnreadBatch
from antiphon.protocols.sco.levels import ALL_LEVELS, LEVELS, MOST_REMEMBERED, Level
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.peer import Batch, Peer
from antiphon.protocols.sco.state import State


def level_of(state: State, ordering: Ordering, sender: Site, number: int) -> Level | None:
    """The levels of a message now; None if nothing is known of it."""
    if ordering.remembered.find(sender, number) is not None:
        return ALL_LEVELS
    me = state.peers.me
    for peer in _lives(state, sender):
        for batch in peer.stream.holds():
            if batch.number <= number < batch.end:
                if peer is me and me not in batch.destinations:
                    return _level_own(state, ordering, batch)
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


def _level_own(state: State, ordering: Ordering, batch: Batch) -> Level:
    """The levels of an own message that is not for us."""
    level = Level.SIMPLE | Level.CONTINUOUS | Level.CAUSAL
    if not _all_have(ordering, [batch]):
        return level
    level |= Level.ATOMIC
    if not _all_have(ordering, (one for one in ordering.own if one.number < batch.number)):
        return level
    level |= Level.CONTINUOUSLY_ATOMIC
    held = (one for peer in state.peers.all() for one in peer.stream.holds())
    before = (one for one in held if one.number < batch.csn.get(one.sender, 0))
    return ALL_LEVELS if _all_have(ordering, before) else level


class Observer:
    """Reports each level once, when a message reaches it. It looks at all messages held after each input."""

    def __init__(self, state: State, ordering: Ordering) -> None:
        self._state: Final = state
        self._ordering: Final = ordering
        self._reported: OrderedDict[tuple[Site, int], Level] = OrderedDict()
        """By sender and first number: the levels reported."""
        self._own: dict[int, Batch] = {}
        """Own batches that are not for us, until all levels are reported."""

    def look(self) -> None:
        """Report what is new."""
        state, ordering, me = self._state, self._ordering, self._state.peers.me
        for peer in state.peers.all():
            for batch in list(peer.stream.holds()):
                if peer is not me or me in batch.destinations:
                    self._report(peer.site, batch.number, len(batch.bodies), _level(ordering, batch))
            for unread in list(peer.stream.ahead.values()):
                if isinstance(unread, UnreadBatch):
                    pdu = unread.pdu
                    self._report(peer.site, pdu.number, len(pdu.bodies), _level_unread(state, peer, unread))
        for batch in ordering.own:
            if me not in batch.destinations:
                self._own.setdefault(batch.number, batch)
        for batch in list(self._own.values()):
            level = _level_own(state, ordering, batch)
            self._report(me.site, batch.number, len(batch.bodies), level)
            if level == ALL_LEVELS or batch.sender is not me:
                del self._own[batch.number]
        for batch in ordering.remembered.news():
            self._report(batch.sender.site, batch.number, len(batch.bodies), ALL_LEVELS)

    def _report(self, sender: Site, number: int, count: int, level: Level) -> None:
        before = self._reported.get((sender, number), Level(0))
        news = level & ~before
        if not news:
            return
        self._reported[sender, number] = before | level
        self._reported.move_to_end((sender, number))
        if len(self._reported) > MOST_REMEMBERED:
            self._reported.popitem(last=False)
        self._state.effects.extend(
            Reached(sender, number, count, each.label) for each in LEVELS if each in news
        )


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
