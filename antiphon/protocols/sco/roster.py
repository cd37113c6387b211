"""Who counts: lives that appear, lives that are over, and the tables of names by which vectors travel.

A life counts from when it is first heard of, from itself or by another's table. Which lives are over is one
map, the latest such life of each site, that only ever grows; whoever hears of an entry adopts it and passes
it on, so that all come to hold the same map, which a digest stands for. The map keeps its latest
`MOST_NAMES` entries, by one rule for all.
"""

import hashlib
from collections.abc import Collection, Iterable

from antiphon.core.effects import Appeared, Vanished
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import MAXIMUM_NAME_BYTES
from antiphon.protocols.sco.pdus import LARGEST_LIFE, MOST_NAMES, Name
from antiphon.protocols.sco.state import Entry, Peer, State, Table
from antiphon.protocols.sco.vectors import LARGEST, MalformedError

KEPT_TABLES = 4
"""Versions of a peer's table that are kept, for PDUs that were overtaken."""


class Roster:
    """Keeps the lives that a member knows of."""

    def __init__(self, state: State) -> None:
        self._state = state

    def begin_together(self, now: Nanoseconds, members: Iterable[Site]) -> None:
        """All begin at the same time, with the same table."""
        state = self._state
        names = tuple(members)
        for site in names:
            if site != state.site:
                peer = state.peers[site] = Peer(site, 0, now, state.configuration.buffers)
                peer.counts_us = True
                peer.knows_table = state.table_version
                state.note_site(site)
        state.table = tuple(state.me if site == state.site else state.peers[site] for site in names)
        table = tuple(Entry(peer.site, peer) for peer in state.table)
        for peer in state.peers.values():
            peer.tables[state.table_version] = table
            peer.listed = dict.fromkeys(names, 0)

    # Lives

    def is_over(self, site: Site, life: int) -> bool:
        known = self._state.over.get(site)
        if known is not None:
            return life <= known.life
        full = len(self._state.over) >= MOST_NAMES
        return full and (life, site) < min((one.life, one.site) for one in self._state.over.values())

    def meet(self, now: Nanoseconds, site: Site, life: int) -> Peer | None:
        """The peer of that life, who counts from now on; None if that life is over or cannot be known."""
        state = self._state
        known = state.peers.get(site)
        if known is not None and known.life == life:
            return known
        if site == state.site or self.is_over(site, life) or (known is not None and life < known.life):
            return None
        if known is not None:
            self.adopt(now, (Name(site, known.life, gone=True, left=True),))
        elif len(state.peers) >= MOST_NAMES:
            return None
        peer = state.peers[site] = Peer(site, life, now, state.configuration.buffers)
        peer.digest = -1
        peer.final = False
        peer.predecessor = next((ghost for ghost in reversed(state.ghosts) if ghost.site == site), None)
        state.note_site(site)
        state.table_is_stale = True
        state.effects.append(Appeared(site))
        return peer

    def find(self, site: Site, life: int) -> Peer | None:
        """Whoever is known by that name, gone or not."""
        state = self._state
        if site == state.site:
            return state.me if life == state.life else None
        known = state.peers.get(site)
        if known is not None and known.life == life:
            return known
        return next((ghost for ghost in state.ghosts if ghost.site == site and ghost.life == life), None)

    def know(self, now: Nanoseconds, name: Name) -> Peer | None:
        """Whoever somebody's table names; None for a life that is forgotten."""
        state = self._state
        found = self.find(name.site, name.life)
        if found is not None or name.site == state.site:
            return found
        if name.gone and not self.is_over(name.site, name.life):
            self.adopt(now, (name,))
        if not self.is_over(name.site, name.life):
            return self.meet(now, name.site, name.life)
        buried = name.life <= state.buried.get(name.site, -1)
        if buried or state.everyone_is_final() or len(state.ghosts) >= MOST_NAMES:
            return None
        ghost = self._mourn(Peer(name.site, name.life, now, 0), name)
        if state.final:
            # Nothing of it is for us, but others may still have to wait for it behind what we send.
            ghost.settled, ghost.frontier = True, LARGEST
        return ghost

    # Lives that are over

    def adopt(self, now: Nanoseconds, names: Iterable[Name]) -> bool:
        """Hold these lives to be over; whether that is new. Our own life is not for us to judge here."""
        state = self._state
        grown = False
        for name in names:
            known = state.over.get(name.site)
            if self.is_over(name.site, name.life) or (name.site == state.site and name.life >= state.life):
                continue
            grown = True
            left = name.left or (known is not None and known.left and known.life == name.life)
            state.over[name.site] = Name(name.site, name.life, True, left)
            peer = state.peers.get(name.site)
            if peer is not None and peer.life <= name.life:
                del state.peers[name.site]
                self._mourn(peer, name)
                reason = "It has left." if name.left else "It is held to be gone."
                state.effects.append(Vanished(name.site, reason))
        if grown:
            self._trim()
            state.digest = digest_of(state.over.values())
            state.final = False
            state.bereaved = True
            state.table_is_stale = True
            for peer in state.peers.values():
                peer.owed = []  # it spoke of other lives, and has to speak again
                state.tell(now, peer)
        return grown

    def agree(self, peer: Peer) -> None:
        """A peer holds the same lives to be over as we do, whatever its latest table said."""
        if peer.agreed != self._state.digest:
            peer.agreed = self._state.digest
            self._trim_list(peer)

    def _trim_list(self, peer: Peer) -> None:
        listed = peer.listed
        peer.listed = {site: life for site, life in listed.items() if not self.is_over(site, life)}

    def _mourn(self, peer: Peer, name: Name) -> Peer:
        state = self._state
        peer.gone = True
        peer.left = name.left
        peer.due_ns = None
        state.ghosts.append(peer)
        state.ghosts.sort(key=lambda ghost: (ghost.site, ghost.life))
        state.table_is_stale = True
        return peer

    def _trim(self) -> None:
        over = self._state.over
        if len(over) > MOST_NAMES:
            latest = sorted(over.values(), key=lambda name: (name.life, name.site))[-MOST_NAMES:]
            self._state.over = {name.site: name for name in latest}
            buried = self._state.buried
            self._state.buried = {site: life for site, life in buried.items() if site in self._state.over}

    def forget(self, ghost: Peer) -> None:
        """Nobody waits for anything of a life any more."""
        state = self._state
        state.ghosts.remove(ghost)
        ghost.forgotten = True
        state.buried[ghost.site] = max(ghost.life, state.buried.get(ghost.site, -1))
        state.drop_entries(ghost)
        for peer in (*state.peers.values(), *state.ghosts):
            if peer.predecessor is ghost:
                peer.predecessor = ghost.predecessor
        state.table_is_stale = True

    # Tables

    def learn_table(self, now: Nanoseconds, peer: Peer, version: int, names: tuple[Name, ...]) -> None:
        """A version of a peer's table; raises `MalformedError` if it makes no sense."""
        if version in peer.tables or version < peer.known_table:
            return
        table = self.read_names(now, names)
        if not any(entry.peer is peer for entry in table):
            raise MalformedError("a table without its owner")
        peer.tables[version] = table
        while len(peer.tables) > KEPT_TABLES:
            del peer.tables[min(peer.tables)]
        peer.counts_us = any(entry.peer is self._state.me for entry in table)
        peer.listed = {name.site: name.life for name in names if not name.gone}
        if peer.agreed == self._state.digest:
            self._trim_list(peer)

    def read_names(self, now: Nanoseconds, names: tuple[Name, ...]) -> Table:
        """Those whom a table names; raises `MalformedError` if it makes no sense."""
        check_names(names, 2 * MOST_NAMES)
        if len({(name.site, name.life) for name in names}) != len(names):
            raise MalformedError("a table that names somebody twice")
        return tuple(Entry(name.site, self.know(now, name)) for name in names)


def check_names(names: Collection[Name], most: int) -> None:
    """Whether they can be meant; raises `MalformedError` if not."""
    if len(names) > most:
        raise MalformedError("more names than anyone knows")
    if any(not 0 <= name.life < LARGEST_LIFE or len(name.site) > MAXIMUM_NAME_BYTES for name in names):
        raise MalformedError("names or lives that cannot be")


def digest_of(names: Iterable[Name]) -> int:
    """What stands for a map of lives that are over; 0 for the empty one."""
    lives = sorted((name.site, name.life) for name in names)
    if not lives:
        return 0
    digest = hashlib.blake2b(repr(lives).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")
