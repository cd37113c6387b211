"""Who counts: lives that appear, lives that are over, and the tables of names by which vectors travel.

A life counts from when it is first heard of, from itself or by another's table. Which lives are over is one
map, the latest such life of each site; whoever hears of an entry adopts it and passes it on, so that all come
to hold the same map, which a digest stands for. The map keeps its latest `MOST_NAMES` entries, or as many as
fit a PDU, by one rule for all.

What others say of a life may be wrong. Each site's own voice outweighs it: a member that speaks with a life
below one that others named, and that never spoke itself, is there, and the other one is not. Lives that were
heard, or have counted, and are over stay over.
"""

from collections.abc import Iterable

from antiphon.core.effects import Appeared, Vanished
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.pdus import MOST_NAMES, OVER_BYTES, TABLE_BYTES, Name
from antiphon.protocols.sco.state import FOREVER, MOST_SEEN, Entry, Peer, State, Table, trim
from antiphon.protocols.sco.vectors import MalformedError

KEPT_TABLES = 4
"""Versions of a peer's table that are kept, for PDUs that were overtaken."""
MOST_LIVES = 8
"""Lives of one site that are over and not forgotten: so many of which something is held, and so many others.
Raising it costs memory."""
FAR = 1 << 12
"""A version or serial that lies so far below the latest one was not overtaken: the latest was a mistake.
Raising it costs time to recover from that."""


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
        state = self._state
        known = state.over.get(site)
        return (known is not None and life <= known.life) or life <= state.ended.get(site, -1)

    def is_false(self, name: Name) -> bool:
        """Whether the site's own voice says that there is no such life yet."""
        known = self._state.peers.get(name.site)
        return (
            known is not None
            and known.heard
            and known.life < name.life <= self._state.disproved.get(name.site, -1)
        )

    def is_full(self, name: Name, *, heard: bool) -> bool:
        """Whether another life would be more than a PDU can name; half of the room is for those who speak."""
        state = self._state
        if sum(ghost.site == name.site and any(ghost.holds()) for ghost in state.ghosts) >= MOST_LIVES:
            return True
        if heard:
            known = [*state.peers.values(), *state.ghosts]
        else:
            known = [peer for peer in (*state.peers.values(), *state.ghosts) if not peer.heard]
        share = 1 if heard else 2
        taken = sum([peer.wire_bytes for peer in (state.me, *known)])
        return len(known) >= MOST_NAMES // share or taken + name.wire_bytes() > TABLE_BYTES // share

    def meet(self, now: Nanoseconds, site: Site, life: int, *, heard: bool = False) -> Peer | None:
        """The peer of that life, who counts from now on; None if that life is over or cannot be known."""
        state = self._state
        known = state.peers.get(site)
        if known is not None and known.life == life:
            return known
        name = Name(site, life)
        if site == state.site or self.is_over(site, life) or (known is not None and life < known.life):
            return None
        if self.is_full(name, heard=heard) or self.is_false(name):
            return None
        if known is not None:
            self.adopt(now, (Name(site, known.life, gone=True, left=True),), "It has begun anew.")
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
        if not self.is_over(name.site, name.life):
            return self.meet(now, name.site, name.life)
        buried = name.life <= state.buried.get(name.site, -1)
        if buried or state.everyone_is_final() or self.is_full(name, heard=False):
            return None
        ghost = self._mourn(Peer(name.site, name.life, now, 0), name)
        if state.final:
            # Nothing of it is for us, but others may still have to wait for it behind what we send.
            ghost.settled, ghost.frontier = True, FOREVER
        return ghost

    def hear(self, now: Nanoseconds, site: Site, life: int) -> Peer | None:
        """Whoever speaks with that life, if it counts; what others said of its later lives was wrong."""
        state = self._state
        state.note_voice(site, life)
        if life > state.ended.get(site, -1) and not self.is_full(Name(site, life), heard=True):
            known, over = state.peers.get(site), state.over.get(site)
            if known is not None and known.life > life and not known.heard:
                del state.peers[site]
                self._give_up(known)
                self._disprove(site, known.life)
                state.effects.append(Vanished(site, "There never was such a life."))
            if over is not None and over.life > state.voices[site]:
                self._withdraw(now, over)
        peer = self.meet(now, site, life, heard=True)
        if peer is not None:
            peer.heard = True
        return peer

    def _give_up(self, peer: Peer) -> None:
        """Nobody waits for such a life, nor is it spoken of."""
        peer.gone = peer.settled = peer.forgotten = peer.imagined = True
        peer.frontier = FOREVER
        self._state.drop_entries(peer)
        self._state.table_is_stale = True

    def _withdraw(self, now: Nanoseconds, name: Name) -> None:
        """A life that is not there cannot be over."""
        state = self._state
        del state.over[name.site]
        ended = state.ended.get(name.site, -1)
        if ended >= 0:
            state.over[name.site] = Name(name.site, ended, True, name.left)
        for ghost in [ghost for ghost in state.ghosts if ghost.site == name.site and ghost.life > ended]:
            self._give_up(ghost)
            self._unlink(ghost)
        self._disprove(name.site, name.life)
        self._note_change(now)

    def _disprove(self, site: Site, life: int) -> None:
        disproved = self._state.disproved
        disproved[site] = max(life, disproved.pop(site, -1))
        trim(disproved, MOST_SEEN)

    # Lives that are over

    def adopt(self, now: Nanoseconds, names: Iterable[Name], reason: str = "It has left.") -> None:
        """Hold these lives to be over; `reason` says why those are that have said so themselves.

        Our own life is not for us to judge here.
        """
        state = self._state
        before = dict(state.over)
        grown = lost = False
        for claim in names:
            name = self._heard_of(claim)
            known, peer = state.over.get(name.site), state.peers.get(name.site)
            if (known is not None and name.life <= known.life) or self.is_false(claim):
                continue
            if name.site == state.site and name.life >= state.life:
                continue
            grown = True
            state.over[name.site] = Name(name.site, name.life, True, name.left)
            if name.life <= state.voices.get(name.site, -1):
                self._end(name.site, name.life)
            if peer is not None and peer.life <= name.life:
                lost = True
                del state.peers[name.site]
                self._end(peer.site, peer.life)
                self._disprove(claim.site, claim.life)
                self._mourn(peer, name)
                why = reason if name.left else "It is held to be gone."
                state.effects.append(Vanished(name.site, why))
        if grown:
            self._trim()
            if lost or state.over != before:
                self._note_change(now)

    def _heard_of(self, claim: Name) -> Name:
        """What is said to be over of a member that is there, as far as it has come by its own voice."""
        peer = self._state.peers.get(claim.site)
        if peer is None or not peer.heard or claim.life <= peer.life:
            return claim
        return Name(claim.site, peer.life, True, claim.left)

    def _end(self, site: Site, life: int) -> None:
        """A life is over, whatever is said of later ones."""
        ended = self._state.ended
        ended[site] = max(life, ended.pop(site, -1))
        trim(ended, MOST_SEEN)

    def _note_change(self, now: Nanoseconds) -> None:
        """Other lives are over than were before: all have to agree on them anew."""
        state = self._state
        state.digest_is_stale = True
        state.final = False
        state.bereaved = True
        state.table_is_stale = True
        for peer in state.peers.values():
            peer.owed = []  # it spoke of other lives, and has to speak again
            state.tell(now, peer)

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
        if peer.heard:
            state.note_reached(peer.site, max(peer.frontier, peer.end))
        peer.gone = True
        peer.left = name.left
        peer.due_ns = None
        state.ghosts.append(peer)
        state.ghosts.sort(key=lambda ghost: (ghost.site, ghost.life))
        state.table_is_stale = True
        empty = [ghost for ghost in state.ghosts if ghost.site == peer.site and not any(ghost.holds())]
        if len(empty) > MOST_LIVES:
            self._give_up(empty[0])
            self._unlink(empty[0])
        return peer

    def _trim(self) -> None:
        state = self._state
        taken = sum(name.wire_bytes() for name in state.over.values())
        if len(state.over) <= MOST_NAMES and taken <= OVER_BYTES:
            return
        for name in sorted(state.over.values(), key=lambda name: (name.life, name.site)):
            if len(state.over) <= MOST_NAMES and taken <= OVER_BYTES:
                break
            del state.over[name.site]
            taken -= name.wire_bytes()
        state.buried = {site: life for site, life in state.buried.items() if site in state.over}

    def forget(self, ghost: Peer) -> None:
        """Nobody waits for anything of a life any more."""
        state = self._state
        ghost.forgotten = True
        state.buried[ghost.site] = max(ghost.life, state.buried.get(ghost.site, -1))
        state.drop_entries(ghost)
        self._unlink(ghost)

    def _unlink(self, ghost: Peer) -> None:
        state = self._state
        state.ghosts.remove(ghost)
        for peer in (*state.peers.values(), *state.ghosts):
            if peer.predecessor is ghost:
                peer.predecessor = ghost.predecessor
        state.table_is_stale = True

    # Tables

    def learn_table(self, now: Nanoseconds, peer: Peer, version: int, names: tuple[Name, ...]) -> None:
        """A version of a peer's table; raises `MalformedError` if it makes no sense."""
        if version + FAR < peer.known_table:
            peer.tables.clear()
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
        if len({(name.site, name.life) for name in names}) != len(names):
            raise MalformedError("a table that names somebody twice")
        self.adopt(now, [name for name in names if name.gone and self.find(name.site, name.life) is None])
        return tuple(Entry(name.site, self.know(now, name)) for name in names)
