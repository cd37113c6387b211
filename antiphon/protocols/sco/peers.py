"""The peer table: our own life, the lives that are present, and those that have departed."""

from collections.abc import Iterable, Iterator

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.peer import Entry, Peer


class PeerTable:
    """Keeps the lives that a member deals with, and the table of names by which its vectors travel."""

    __slots__ = ("_buffers", "_names", "departed", "is_stale", "me", "present", "site", "version")

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
        self._names: tuple[Peer, ...] = (self.me,)
        self.version = 1
        """Of our table of names."""
        self.is_stale = False
        """Whether the table of names has to be written anew."""

    def begin_together(self, now: Nanoseconds, sites: Iterable[Site]) -> None:
        """All members begin at the same time, with the same table."""
        names = tuple(sites)
        for site in names:
            if site != self.site:
                peer = self.present[site] = Peer(site, 0, now, self._buffers)
                peer.view.knows_table = self.version
        self._names = tuple(self.me if site == self.site else self.present[site] for site in names)
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
        return next((peer for peer in self.departed if peer.site == site and peer.life == life), None)

    def add(self, site: Site, life: int, now: Nanoseconds) -> Peer:
        """A life is present from now on; what it holds to be over is not known yet."""
        peer = self.present[site] = Peer(site, life, now, self._buffers, digest=-1, final=False)
        peer.predecessor = next((one for one in reversed(self.departed) if one.site == site), None)
        self.is_stale = True
        return peer

    def remove(self, site: Site) -> Peer:
        """A life is present no more."""
        self.is_stale = True
        return self.present.pop(site)

    def add_departed(self, peer: Peer) -> None:
        self.departed.append(peer)
        self.departed.sort(key=lambda one: (one.site, one.life))
        self.is_stale = True

    def drop_departed(self, former: Peer) -> None:
        """A departed life is named no more."""
        self.departed.remove(former)
        for peer in (*self.present.values(), *self.departed):
            if peer.predecessor is former:
                peer.predecessor = former.predecessor
        self.is_stale = True

    def renew(self) -> None:
        """Have the table of names written anew."""
        self.is_stale = True

    def names(self) -> tuple[Peer, ...]:
        """Our table of names, written anew if a life has come or gone."""
        if self.is_stale:
            self.is_stale = False
            self._names = tuple(self.all())
            self.version += 1
        return self._names
