"""Who is present: lives that appear, lives that are over, and the tables of names by which vectors travel.

A life is present from when it is first heard, or first named by another's table. A member that learns that a
life is over marks it and passes that on, so that all come to hold the same lives to be over.

What others say of a life may be wrong. Each site's own voice outweighs it: a member that speaks with a life
below one that others named, and that never spoke itself, is present, and the other one is not. A table that
names a later life of a site that has just spoken with an earlier one is not read yet: the site will say so
itself, or fall silent, and the table comes again. Lives that were heard, or were present, and are over stay
over.
"""

from collections.abc import Iterable
from typing import Final

from antiphon.core.effects import Appeared, Vanished
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.pdus import MOST_NAMES, TABLE_BYTES, Name
from antiphon.protocols.sco.peer import Entry, Peer, Table
from antiphon.protocols.sco.state import State
from antiphon.protocols.sco.vectors import MalformedError

MOST_LIVES: Final = 8
"""Departed lives of one site of which batches are held, and as many others. Raising it costs memory."""

GIVEN_UP: Final = 64
"""Departed lives that are given up at once where a present one finds no room. Raising it costs messages of
departed members that others still hold."""


class Roster:
    """Decides which lives are present and which are over."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._peers = state.peers
        self._lives = state.lives

    def begin_together(self, now: Nanoseconds, members: Iterable[Site]) -> None:
        """All begin at the same time, with the same table."""
        self._peers.begin_together(now, members)
        for site in self._peers.present:
            self._lives.note_site(site)

    # Lives that are present

    def is_disproved(self, name: Name) -> bool:
        """Whether the site's own voice says that there is no such life yet."""
        known = self._peers.present.get(name.site)
        return (
            known is not None
            and known.heard
            and known.life < name.life <= self._lives.disproved.get(name.site, -1)
        )

    def is_full(self, name: Name, *, heard: bool) -> bool:
        """Whether there is no room for another life in a PDU; half of the room is for lives that speak."""
        peers = self._peers
        if sum(any(one.stream.holds()) for one in peers.departed_of(name.site)) >= MOST_LIVES:
            return True
        room, share = (peers.room, 1) if heard else (peers.unheard_room, 2)
        taken = peers.me.wire_bytes + room.bytes + name.wire_bytes()
        return room.lives >= MOST_NAMES // share or taken > TABLE_BYTES // share

    def meet(self, now: Nanoseconds, site: Site, life: int, *, heard: bool = False) -> Peer | None:
        """The peer of that life, present from now on; None if the life is over or there is no room for it."""
        known = self._peers.present.get(site)
        if known is not None and known.life == life:
            return known
        name = Name(site, life)
        if site == self._peers.site or self._lives.is_over(site, life):
            return None
        if known is not None and life < known.life:
            return None
        if self.is_full(name, heard=heard) or self.is_disproved(name):
            return None
        if known is not None:
            self.mark_over(now, (Name(site, known.life, gone=True, left=True),), "It has begun anew.")
        peer = self._peers.add(site, life, now)
        self._lives.note_site(site)
        self._state.effects.append(Appeared(site))
        return peer

    def resolve(self, now: Nanoseconds, name: Name) -> Peer | None:
        """The peer that a table names; None for a life that is forgotten."""
        found = self._peers.find(name.site, name.life)
        if found is not None or name.site == self._peers.site:
            return found
        if not self._lives.is_over(name.site, name.life):
            return self.meet(now, name.site, name.life)
        is_forgotten = name.life <= self._lives.forgotten.get(name.site, -1)
        if is_forgotten or self._state.everyone_is_final() or self.is_full(name, heard=False):
            return None
        former = Peer(name.site, name.life, now, 0)
        self._on_departure(former, left=name.left)
        if self._lives.final:
            # Nothing of it is for us, but others may have to wait for it behind what we send.
            former.settle()
        return former

    def on_sender(self, now: Nanoseconds, site: Site, life: int) -> Peer | None:
        """The peer that speaks with that life, if it is present; what others said of later ones was wrong."""
        lives = self._lives
        lives.note_heard(site, life)
        self._make_room(Name(site, life))
        if life > lives.ended.get(site, -1) and not self.is_full(Name(site, life), heard=True):
            known, over = self._peers.present.get(site), lives.over.get(site)
            if known is not None and known.life > life and not known.heard:
                self._give_up(self._peers.remove(site))
                lives.note_disproved(site, known.life)
                self._state.effects.append(Vanished(site, "There never was such a life."))
            if over is not None and not lives.was_heard(over):
                self._withdraw(now, over)
        peer = self.meet(now, site, life, heard=True)
        if peer is not None:
            self._peers.note_heard(peer)
        return peer

    def _make_room(self, name: Name) -> None:
        """Give up departed lives of which nothing is held, if a life that speaks finds no room for them.

        Members that were invented and fell silent would keep it out until all agree that they are gone.
        """
        if not self.is_full(name, heard=True):
            return
        empty = [one for one in self._peers.departed if not any(one.stream.holds())]
        for former in sorted(empty, key=lambda one: one.stream.received > 0)[:GIVEN_UP]:
            self._give_up(former)
            self._peers.drop_departed(former)

    def _withdraw(self, now: Nanoseconds, name: Name) -> None:
        """A life that never was cannot be over."""
        ended = self._lives.withdraw(name)
        for former in [one for one in self._peers.departed_of(name.site) if one.life > ended]:
            self._give_up(former)
            self._peers.drop_departed(former)
        self._lives.note_disproved(name.site, name.life)
        self._on_change(now)

    def _give_up(self, peer: Peer) -> None:
        """Nothing waits for such a life, nor is it named."""
        peer.give_up()
        self._drop_entries(peer)
        self._peers.renew()

    # Lives that are over

    def mark_over(self, now: Nanoseconds, names: Iterable[Name], reason: str = "It has left.") -> None:
        """Hold these lives to be over; `reason` says why, for those that have said so themselves.

        Our own life is not judged here.
        """
        lives, peers = self._lives, self._peers
        before: dict[Site, Name] | None = None
        lost = False
        for claim in names:
            known = lives.over.get(claim.site)
            name, peer = self._as_heard(claim), peers.present.get(claim.site)
            if (known is not None and name.life <= known.life) or self.is_disproved(claim):
                continue
            if name.site == peers.site and name.life >= peers.me.life:
                continue
            if before is None:
                before = dict(lives.over)
            lives.mark_over(name)
            if lives.was_heard(name):
                lives.note_ended(name.site, name.life)
            if peer is not None and peer.life <= name.life:
                lost = True
                lives.note_ended(peer.site, peer.life)
                lives.note_disproved(claim.site, claim.life)
                self._on_departure(peers.remove(name.site), left=name.left)
                why = reason if name.left else "It is held to be gone."
                self._state.effects.append(Vanished(name.site, why))
        if before is not None:
            lives.trim()
            if lost or lives.over != before:
                self._on_change(now)

    def _as_heard(self, claim: Name) -> Name:
        """A claim that a present member's life is over, cut to the life with which that member speaks."""
        peer = self._peers.present.get(claim.site)
        if peer is None or not peer.heard or claim.life <= peer.life:
            return claim
        return Name(claim.site, peer.life, True, claim.left)

    def _on_departure(self, peer: Peer, *, left: bool) -> None:
        if peer.heard:
            self._lives.note_reached(peer.site, max(peer.stream.frontier, peer.stream.end))
        peer.depart(left=left)
        self._peers.add_departed(peer)
        empty = [one for one in self._peers.departed_of(peer.site) if not any(one.stream.holds())]
        if len(empty) > MOST_LIVES:
            self._give_up(empty[0])
            self._peers.drop_departed(empty[0])

    def _on_change(self, now: Nanoseconds) -> None:
        """Other lives are over than before: all members have to agree on them anew."""
        self._lives.change()
        self._peers.renew()
        for peer in self._peers.present.values():
            peer.view.owe([])  # what it holds of other lives, it will say again
            self._state.timers.confirm_soon(now, peer)

    def agree(self, peer: Peer) -> None:
        """A peer holds the same lives to be over as we do, whatever its latest table said."""
        if peer.view.agree(self._lives.digest):
            self._trim_list(peer)

    def _trim_list(self, peer: Peer) -> None:
        listed = peer.view.listed
        peer.view.listed = {
            site: life for site, life in listed.items() if not self._lives.is_over(site, life)
        }

    def forget(self, former: Peer) -> None:
        """Every member has completed the stream of a departed life."""
        former.forgotten = True
        self._lives.forget(former.site, former.life)
        self._drop_entries(former)
        self._peers.drop_departed(former)

    def _drop_entries(self, former: Peer) -> None:
        self._state.stamps.drop(former)
        for peer in self._peers.present.values():
            peer.drop_entries(former)

    # Tables

    def learn_table(self, now: Nanoseconds, peer: Peer, version: int, names: tuple[Name, ...]) -> None:
        """Take a version of a peer's table; raises `MalformedError` if it is malformed."""
        view = peer.view
        if not view.wants_table(version) or self.is_ahead(now, names):
            return
        table = self.read_names(now, names)
        if not any(entry.peer is peer for entry in table):
            raise MalformedError("a table without its owner")
        listed = {name.site: name.life for name in names if not name.gone}
        view.add_table(version, table, listed, self._peers.me)
        if view.agreed == self._lives.digest:
            self._trim_list(peer)

    def is_ahead(self, now: Nanoseconds, names: Iterable[Name]) -> bool:
        """Whether a table names a life that its site, which was heard just now, has not begun yet."""
        limit_ns = now - self._state.configuration.silence_ns
        present = self._peers.present
        return any(
            known.heard and known.life < name.life and known.heard_ns > limit_ns
            for name in names
            if (known := present.get(name.site)) is not None and not name.gone and not self.is_disproved(name)
        )

    def read_names(self, now: Nanoseconds, names: tuple[Name, ...]) -> Table:
        """The peers that a table names; raises `MalformedError` if it is malformed."""
        if len({(name.site, name.life) for name in names}) != len(names):
            raise MalformedError("a table with a name twice")
        find = self._peers.find
        self.mark_over(now, [name for name in names if name.gone and find(name.site, name.life) is None])
        return tuple(Entry(name.site, self.resolve(now, name)) for name in names)
