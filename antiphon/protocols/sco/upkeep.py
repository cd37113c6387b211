"""What a member of a large group sends while nothing happens, and which peers it chases for what is missing.

In a small group all hear from all in each period of `control_ns`, so that every loss is found by itself. In a
large one that would grow with the square of the group. There a member sends signs of life to its neighbours,
and rarely to all. A control message with all its acks goes only to peers of which something is awaited, and
asks for the same, again and again after longer and longer pauses:

- it has not confirmed a batch of ours for a while;
- a batch of ours to deliver waits for its messages;
- it has not said that it counts us, knows our table, or agrees on the lives that are over;
- it is a neighbour and has been silent for half of `silence_ns`.

A peer of which nothing is awaited is not missed, however long it is silent. Its neighbours miss it, and tell
the others.
"""

from bisect import bisect_left
from collections.abc import Collection
from itertools import islice
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.protocols.sco.gathering import Gathering
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.peer import FOREVER, Peer
from antiphon.protocols.sco.sending import Sending
from antiphon.protocols.sco.state import State

NEIGHBOURS: Final = 1
"""Members before and after a member, in the order of names, that watch it. Raising it costs signs of life,
and finds crashes of several neighbours at once sooner."""
SIGNS: Final = 4
"""Signs of life to neighbours in `silence_ns`. Raising it costs PDUs, and saves questions under loss."""
TICKS: Final = 2 * SIGNS
"""Looks at what is due in `silence_ns` while nothing is under way. Raising it costs processor time."""
HEARTBEAT_NS: Final = 100 * MILLISECOND_NS
"""Pause between signs of life to all, for each member: each gets ten in a second. Raising it costs time until
two parts of a group find one another."""
CHASE_NS: Final = 4_000
"""Pause between questions to the same peer, for each pair of members. Raising it costs time to make up for a
loss in very large groups."""
UNUSUAL: Final = 4
"""A peer is chased for what takes this multiple of the usual time. Raising it costs time to make up for a
loss, and saves PDUs where members are slow."""
QUICKEST: Final = 4
"""Questions to a peer in `silence_ns`, at least. Raising it costs PDUs in very large groups."""


class Upkeep:
    """Signs of life, and chases."""

    def __init__(self, state: State, ordering: Ordering, sending: Sending, gathering: Gathering) -> None:
        self._state = state
        self._peers = state.peers
        self._ordering = ordering
        self._sending = sending
        self._gathering = gathering
        self._signed_ns: Nanoseconds = -FOREVER
        """When our neighbours were last sent a sign of life."""
        self._is_agreed = False
        """Whether nothing was awaited of any peer."""

    @property
    def chase_ns(self) -> Nanoseconds:
        """The pause between two control messages to a peer of which something is awaited."""
        knobs, members = self._state.configuration, 1 + len(self._peers.present)
        usual_ns = UNUSUAL * self._ordering.usual_ns if self._state.gathers() else 0
        return max(knobs.control_ns, min(max(members * members * CHASE_NS, usual_ns), self._longest_ns))

    @property
    def _longest_ns(self) -> Nanoseconds:
        return self._state.configuration.silence_ns // QUICKEST

    @property
    def tick_ns(self) -> Nanoseconds:
        """The pause until the next look at what is due."""
        knobs, ordering = self._state.configuration, self._ordering
        is_quiet = self._state.gathers() and self._is_agreed and not ordering.own and not ordering.held
        return max(knobs.control_ns, knobs.silence_ns // TICKS) if is_quiet else knobs.control_ns

    def ask(self, now: Nanoseconds) -> None:
        """Ask another member whether the first batch that waits for confirmations has them."""
        for batch in islice(self._ordering.causality, 1):
            if batch.since_ns <= now - 2 * self.chase_ns:
                self._gathering.ask(batch)

    def tick(self, now: Nanoseconds) -> None:
        """Do what is due in a large group."""
        neighbours = self._neighbours()
        awaited = self._awaited(now, neighbours)
        self._is_agreed = not awaited
        for peer in self._peers.present.values():
            if peer not in awaited:
                peer.outgoing.end_chase()
                if peer.site not in neighbours:
                    peer.awaited_ns = now
        chase_ns, longest_ns = self.chase_ns, self._longest_ns
        chased = [peer for peer in awaited if peer.outgoing.chase(now, chase_ns, longest_ns)]
        self._sending.control(now, chased, asks=True)
        members = 1 + len(self._peers.present)
        if now - self._gathering.told_ns >= members * HEARTBEAT_NS:
            self._gathering.tell(now, None)
        elif now - self._signed_ns >= self._state.configuration.silence_ns // SIGNS:
            self._signed_ns = now
            self._gathering.tell(now, neighbours)

    def _neighbours(self) -> tuple[Site, ...]:
        """The sites around ours, in a ring of all that are present."""
        sites = sorted(self._peers.present)
        place = bisect_left(sites, self._peers.site)
        around = range(place - NEIGHBOURS, place + NEIGHBOURS) if sites else ()
        return tuple(sorted({sites[index % len(sites)] for index in around}))

    def _awaited(self, now: Nanoseconds, neighbours: Collection[Site]) -> dict[Peer, None]:
        """The peers of which something is awaited, and the neighbours that are silent."""
        ordering, silent_ns = self._ordering, now - self._state.configuration.silence_ns // 2
        self._peers.names()
        found = {
            peer: None
            for site, peer in self._peers.present.items()
            if not self._is_settled(peer) or (site in neighbours and peer.heard_ns <= silent_ns)
        }
        limit_ns = now - self.chase_ns
        for batch in ordering.own:
            if batch.since_ns <= limit_ns:
                found |= {peer: None for peer in batch.unconfirmed if not ordering.has_confirmed(peer, batch)}
        for batch in ordering.tops():
            if batch.since_ns <= limit_ns and batch.blocked_by is not None:
                found[batch.blocked_by] = None
        for batch in islice(ordering.causality, 1):
            if batch.since_ns <= limit_ns:
                found[batch.sender] = None
        return {peer: None for peer in found if self._peers.present.get(peer.site) is peer}

    def _is_settled(self, peer: Peer) -> bool:
        """Whether we and a peer know one another, and agree on the lives that are over."""
        view, lives = peer.view, self._state.lives
        is_known = peer.vouched and view.counts_us and view.knows_table >= self._peers.changed
        if not is_known or view.digest != lives.digest:
            return False
        return not lives.over or (view.is_final(lives.digest) and view.satisfied == lives.digest)
