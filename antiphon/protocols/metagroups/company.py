"""Who is there, as one site sees it: whom it listens to, who coordinates, and who wants to come or go.

All sites send word to the coordinator, and the coordinator to all; nobody else need be heard regularly. The
coordinator is the first site by name that is not held to be gone. When it falls silent, each site turns to
the next, until the turn comes to one that finds the same; that one listens to everybody from then on.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from antiphon.core.fields import INCARNATION_LIMIT
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.pdus import MOST_SITES, Life, Seat, Word
from antiphon.protocols.metagroups.table import Layout

LATEST_INCARNATION: Final = INCARNATION_LIMIT // 2
"""No site begins so late by its clock: there is always room for those that take its name after it."""
LONGEST_LEAP: Final = 1 << 20
"""Milliseconds by which an incarnation may lie beyond that, or beyond the last one that does."""
NO_LIFE: Final[Life] = (-1, 0)
"""Before the life of any site."""
MOST_HEARD: Final = 2 * MOST_SITES
"""Sites, in the cluster or outside, of which it is known when they were heard."""


class Company:
    """What is known of other sites from their words and their silence."""

    def __init__(self, site: Site, suspect_ns: Nanoseconds) -> None:
        self._site = site
        self._suspect_ns = suspect_ns
        self._heard_ns: dict[Site, Nanoseconds] = {}
        """Those heard last stand last."""
        self._lives: dict[Site, Life] = {}
        """What these sites said of their lives."""
        self._since_ns: Nanoseconds = 0
        """Since when this site listens as it does now."""
        self._chief: Site = site
        self._gone: set[Site] = set()
        self._wishes: dict[Site, Seat] = {}
        self._reborn: set[Site] = set()
        """Sites of the version in force that have lost their memory since, as was heard."""

    def settle(self, now: Nanoseconds, layout: Layout) -> None:
        """A version of the table is in force: what it has brought about is no wish any more."""
        self._gone &= layout.lives.keys()
        self._reborn.clear()
        self._wishes = {
            site: wish for site, wish in self._wishes.items() if _is_news(wish, layout.seats.get(site))
        }
        known = layout.lives.keys() | self._wishes.keys()
        self._heard_ns = {site: heard_ns for site, heard_ns in self._heard_ns.items() if site in known}
        self._lives = {site: life for site, life in self._lives.items() if site in self._heard_ns}
        self.listen_anew(now)

    def listen_anew(self, now: Nanoseconds) -> None:
        self._since_ns = now

    def forget(self, now: Nanoseconds) -> None:
        self._heard_ns.clear()
        self._lives.clear()
        self._gone.clear()
        self._reborn.clear()
        self._wishes.clear()
        self.listen_anew(now)

    # What is heard

    def hear(self, now: Nanoseconds, site: Site, life: Life | None = None) -> None:
        self._heard_ns.pop(site, None)
        self._heard_ns[site] = now
        self._gone.discard(site)
        if life is not None:
            self._lives[site] = life
        if len(self._heard_ns) > MOST_HEARD:
            oldest = next(iter(self._heard_ns))
            del self._heard_ns[oldest]
            self._lives.pop(oldest, None)

    def may_live(self, site: Site, life: Life) -> bool:
        """Whether a site can be in this life."""
        return life[0] <= max(self.incarnation_of(site), LATEST_INCARNATION) + LONGEST_LEAP

    def has_heard(self, site: Site, life: Life) -> bool:
        """Whether a site has told itself that this is its life, or that a later one is."""
        return self._lives.get(site, NO_LIFE) >= life

    def incarnation_of(self, site: Site) -> int:
        """The incarnation that a site has told itself; 0 if it has told none."""
        return max(0, self._lives.get(site, NO_LIFE)[0])

    def heard_ns(self, site: Site) -> Nanoseconds | None:
        """When a site was last heard."""
        return self._heard_ns.get(site)

    def miss(self, site: Site) -> None:
        """An outside detector, or an attempt that nobody answered, holds this one to be gone."""
        self._gone.add(site)

    def wish(self, sender: Site, pdu: Word, layout: Layout) -> bool:
        """A site tells where it wants to sit; whether that is something to be done."""
        wish = Seat(sender, pdu.life, pdu.serial, tuple(sorted(set(pdu.groups))))
        if sender in layout.lives and layout.lives[sender] < pdu.life:
            self._reborn.add(sender)
        known = self._wishes.get(sender)
        if known is not None and (known.life, known.serial) >= (wish.life, wish.serial):
            return True
        if not _is_news(wish, layout.seats.get(sender)) or len(self._wishes) >= MOST_SITES:
            return False
        if not layout.has_room(wish, self._wishes.values()):
            return False
        self._wishes[sender] = wish
        return True

    def drop_stale(self, now: Nanoseconds, layout: Layout) -> None:
        """Whoever wanted to come in and has not been heard for long has given up."""
        stale = [site for site, _ in self.lives_wanted(layout) if self.is_silent(now, site, 0)]
        for site in stale:
            del self._wishes[site]

    @property
    def wishes(self) -> Mapping[Site, Seat]:
        return self._wishes

    def lives_wanted(self, layout: Layout) -> Iterable[tuple[Site, Life]]:
        """Sites that want to come in, or to come in anew."""
        return (
            (site, wish.life) for site, wish in self._wishes.items() if layout.lives.get(site) != wish.life
        )

    # What follows from it

    def chief(self, now: Nanoseconds, layout: Layout) -> Site:
        """Who coordinates; whoever is found silent is passed over."""
        for site in sorted(layout.lives):
            if site == self._site:
                break
            if site in self._gone or site in self._reborn:
                continue  # one that has lost its memory is heard, but coordinates nothing
            if site == self._chief and self.is_silent(now, site, self._since_ns):
                self._gone.add(site)
                continue
            self._turn_to(now, site)
            return site
        self._turn_to(now, self._site)
        return self._site

    def _turn_to(self, now: Nanoseconds, site: Site) -> None:
        if site != self._chief:
            self._chief = site
            self._since_ns = now

    def remembering(self, layout: Layout) -> frozenset[Site]:
        """Who may still know the version in force, for all that was heard."""
        return frozenset(layout.lives) - self._reborn

    def heard_of(self, layout: Layout) -> frozenset[Site]:
        """Those of them that are not held to be gone."""
        return self.remembering(layout) - self._gone

    def is_silent(self, now: Nanoseconds, site: Site, since_ns: Nanoseconds) -> bool:
        return now - max(since_ns, self._heard_ns.get(site, since_ns)) > self._suspect_ns

    def gone(self, now: Nanoseconds, sites: Iterable[Site]) -> frozenset[Site]:
        """Who of these is held to be gone, by one who listens to everybody."""
        return frozenset(
            site
            for site in sites
            if site != self._site and (site in self._gone or self.is_silent(now, site, self._since_ns))
        )


def _is_news(wish: Seat, seat: Seat | None) -> bool:
    """Whether a wish asks for something else than what is."""
    if seat is None or seat.life < wish.life:
        return True
    return seat.life == wish.life and seat.serial < wish.serial
