"""The peer table: our own life, the lives that are present, and those that have departed."""

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.pdus import SPELL_BITS, Name
from antiphon.protocols.sco.peer import FOREVER, Entry, Peer


class Room:
    """How many lives are known, and the bytes that their names take in a PDU."""

    __slots__ = ("bytes", "lives")

    def __init__(self) -> None:
        self.lives = 0
        self.bytes = 0

    def add(self, peer: Peer) -> None:
        self.lives += 1
        self.bytes += peer.wire_bytes

    def remove(self, peer: Peer) -> None:
        self.lives -= 1
        self.bytes -= peer.wire_bytes


class PeerTable:
    """Keeps the lives that a member deals with, and the table of names by which its vectors travel."""

    __slots__ = (
        "_buffers",
        "_departed_of",
        "_names",
        "_wire_names",
        "changed",
        "departed",
        "is_stale",
        "me",
        "present",
        "room",
        "site",
        "unheard_room",
        "version",
    )

    def __init__(self, site: Site, buffers: int) -> None:
        self.site = site
        self._buffers = buffers
        self.me = Peer(site, 0, 0, buffers)
        self.begin(0, 0, next_number=0)

    def begin(self, now: Nanoseconds, life: int, next_number: int) -> None:
        """Our next life begins, and knows no other."""
        self.me = Peer(self.site, life, now, self._buffers, frontier=next_number)
        self.me.linked = True
        self.present: dict[Site, Peer] = {}
        """The others that are present: one life of each site."""
        self.departed: list[Peer] = []
        """Lives that are over and not forgotten, by site and life."""
        self._departed_of: dict[Site, list[Peer]] = {}
        """The same for each site."""
        self.room = Room()
        """The room that the lives present and departed take."""
        self.unheard_room = Room()
        """The same for those that have never spoken themselves."""
        self._names: tuple[Peer, ...] = (self.me,)
        self._wire_names: tuple[Name, ...] | None = None
        """The same as they travel, once they are asked for."""
        self.version = 1
        """Of our table of names."""
        self.changed = 1
        """The version with which its names changed last."""
        self.is_stale = False
        """Whether the table of names has to be written anew."""

    def begin_together(self, now: Nanoseconds, sites: Iterable[Site]) -> None:
        """All members begin at the same time, with the same table."""
        names = tuple(sites)
        for site in names:
            if site != self.site:
                peer = self.present[site] = Peer(site, 0, now, self._buffers)
                self._take_room(peer)
                peer.vouched = True
                peer.view.knows_table = self.version
        self._names = tuple(self.me if site == self.site else self.present[site] for site in names)
        self._wire_names = None
        table = tuple(Entry(peer.site, peer) for peer in self._names)
        for peer in self.present.values():
            peer.view.add_table(self.version, table, dict.fromkeys(names, 0), self.me)

    @property
    def next_number(self) -> int:
        """The number of our next message: the paper's SQN."""
        return self.me.stream.frontier

    def all(self) -> Iterator[Peer]:
        """Our own life, those present and those departed."""
        yield self.me
        yield from self.present.values()
        yield from self.departed

    def find(self, site: Site, life: int) -> Peer | None:
        """The peer of that name, present or departed."""
        if site == self.site:
            return self.me if life == self.me.life else None
        known = self.present.get(site)
        if known is not None and known.life == life:
            return known
        return next((peer for peer in self.departed_of(site) if peer.life == life), None)

    def departed_of(self, site: Site) -> Sequence[Peer]:
        """The departed lives of a site, the earliest first."""
        return self._departed_of.get(site, ())

    def note_heard(self, peer: Peer) -> None:
        """A life that is present has sent something itself."""
        if not peer.heard:
            self.unheard_room.remove(peer)
            peer.heard = peer.vouched = True

    def next_first(self, former: Peer) -> int:
        """The first number of later lives of its incarnation, by their own word; `FOREVER` if none spoke."""
        known = self.present.get(former.site)
        lives = [*self.departed_of(former.site), *(() if known is None else (known,))]
        return min(
            (
                one.stream.first
                for one in lives
                if one.life > former.life
                and one.life >> SPELL_BITS == former.life >> SPELL_BITS
                and one.heard
                and one.stream.first >= 0
            ),
            default=FOREVER,
        )

    def add(self, site: Site, life: int, now: Nanoseconds) -> Peer:
        """A life is present from now on; what it holds to be over is not known yet."""
        peer = self.present[site] = Peer(site, life, now, self._buffers, digest=-1, final=False)
        peer.predecessor = next(reversed(self.departed_of(site)), None)
        self._take_room(peer)
        self.is_stale = True
        return peer

    def remove(self, site: Site) -> Peer:
        """A life is present no more."""
        self.is_stale = True
        peer = self.present.pop(site)
        self._free_room(peer)
        return peer

    def add_departed(self, peer: Peer) -> None:
        insort(self.departed, peer, key=_by_name)
        insort(self._departed_of.setdefault(peer.site, []), peer, key=_by_name)
        self._take_room(peer)
        self.is_stale = True

    def drop_departed(self, former: Peer) -> None:
        """A departed life is named no more."""
        self.departed.remove(former)
        others = self._departed_of[former.site]
        others.remove(former)
        if not others:
            del self._departed_of[former.site]
        self._free_room(former)
        present = self.present.get(former.site)
        for peer in (*others, *(() if present is None else (present,))):
            if peer.predecessor is former:
                peer.predecessor = former.predecessor
        self.is_stale = True

    def _take_room(self, peer: Peer) -> None:
        self.room.add(peer)
        if not peer.heard:
            self.unheard_room.add(peer)

    def _free_room(self, peer: Peer) -> None:
        self.room.remove(peer)
        if not peer.heard:
            self.unheard_room.remove(peer)

    def renew(self) -> None:
        """Have the table of names written anew."""
        self.is_stale = True

    def names(self) -> tuple[Peer, ...]:
        """Our table of names, written anew if a life has come or gone."""
        if self.is_stale:
            self.is_stale = False
            before, self._names = self._names, tuple(self.all())
            self._wire_names = None
            self.version += 1
            if self._names != before:
                self.changed = self.version
        return self._names

    def wire_names(self) -> tuple[Name, ...]:
        """Our table of names as it travels."""
        names = self.names()
        if self._wire_names is None:
            self._wire_names = tuple(peer.name for peer in names)
        return self._wire_names


def _by_name(peer: Peer) -> tuple[Site, int]:
    return peer.site, peer.life
