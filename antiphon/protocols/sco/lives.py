"""What is known of the lives of each site, by name: which are over, which were heard, which never were.

Which lives are over is one map, the latest such life of each site. All members come to hold the same map,
which a digest stands for. The map keeps its latest `MOST_NAMES` entries, or as many as fit a PDU, by one rule
for all.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from antiphon.core.ids import Site
from antiphon.protocols.sco.pdus import MOST_NAMES, OVER_BYTES, Name

MOST_SEEN: Final = 4 * MOST_NAMES
"""Sites whose names are remembered. Raising it costs memory."""


class Lives:
    """Knowledge of lives, and whether the streams of those that are over are complete."""

    __slots__ = (
        "_digest",
        "_is_stale",
        "disproved",
        "ended",
        "final",
        "forgotten",
        "heard",
        "orphaned",
        "over",
        "reached",
        "seen",
    )

    def __init__(self, site: Site) -> None:
        self.seen: dict[Site, None] = {site: None}
        """Sites that have ever been present, as far as that is remembered."""
        self.heard: dict[Site, int] = {}
        """The latest life of each site that sent something itself, as far as that is remembered."""
        self.begin()

    def begin(self) -> None:
        """Our next life begins: only sites and the lives that were heard are remembered."""
        self.over: dict[Site, Name] = {}
        """The latest life of each site that is known to be over."""
        self.forgotten: dict[Site, int] = {}
        """The latest life of each site that was forgotten, as far as it is in `over`."""
        self.ended: dict[Site, int] = {}
        """The latest life of each site that was present or heard here, and is over."""
        self.reached: dict[Site, int] = {}
        """The number that each site had reached with us, by its own word, when a life of it ended."""
        self.disproved: dict[Site, int] = {}
        """The latest life that others claimed for a site, although the site itself had not come so far."""
        self._digest = 0
        self._is_stale = False
        self.final = True
        """Whether the streams of all lives that are over are complete here."""
        self.orphaned = False
        """Whether lives were found to be over, and recovery of their streams has not started."""

    @property
    def digest(self) -> int:
        """Stands for the lives that are over."""
        if self._is_stale:
            self._is_stale = False
            self._digest = digest_of(self.over.values())
        return self._digest

    def is_over(self, site: Site, life: int) -> bool:
        known = self.over.get(site)
        return (known is not None and life <= known.life) or life <= self.ended.get(site, -1)

    def was_heard(self, name: Name) -> bool:
        """Whether the site itself has spoken with that life, or a later one."""
        return name.life <= self.heard.get(name.site, -1)

    # Changes

    def mark_over(self, name: Name) -> None:
        self.over[name.site] = Name(name.site, name.life, True, name.left)

    def withdraw(self, name: Name) -> int:
        """A life that never was cannot be over; the latest life of the site that is, or -1."""
        del self.over[name.site]
        ended = self.ended.get(name.site, -1)
        if ended >= 0:
            self.over[name.site] = Name(name.site, ended, True, name.left)
        return ended

    def trim(self) -> None:
        """Keep the latest lives that are over, as many as fit a PDU."""
        taken = sum(name.wire_bytes() for name in self.over.values())
        if len(self.over) <= MOST_NAMES and taken <= OVER_BYTES:
            return
        for name in sorted(self.over.values(), key=lambda name: (name.life, name.site)):
            if len(self.over) <= MOST_NAMES and taken <= OVER_BYTES:
                break
            del self.over[name.site]
            taken -= name.wire_bytes()
        self.forgotten = {site: life for site, life in self.forgotten.items() if site in self.over}

    def change(self) -> None:
        """Other lives are over than before: their streams have to be completed anew."""
        self._is_stale = True
        self.final = False
        self.orphaned = True

    def take_orphaned(self) -> bool:
        """Whether recovery has to start; the caller starts it."""
        orphaned, self.orphaned = self.orphaned, False
        return orphaned

    def complete(self) -> None:
        """All streams are complete."""
        self.final = True

    def forget(self, site: Site, life: int) -> None:
        self.forgotten[site] = max(life, self.forgotten.get(site, -1))

    # What is remembered of each site

    def note_site(self, site: Site) -> None:
        self.seen[site] = None
        _trim(self.seen)

    def note_heard(self, site: Site, life: int) -> None:
        _raise_latest(self.heard, site, life)

    def note_ended(self, site: Site, life: int) -> None:
        _raise_latest(self.ended, site, life)

    def note_disproved(self, site: Site, life: int) -> None:
        _raise_latest(self.disproved, site, life)

    def note_reached(self, site: Site, number: int) -> None:
        self.reached.pop(site, None)
        self.reached[site] = number
        _trim(self.reached)


def _raise_latest(table: dict[Site, int], site: Site, life: int) -> None:
    table[site] = max(life, table.pop(site, -1))
    _trim(table)


def _trim(table: dict[Site, int] | dict[Site, None]) -> None:
    """Remove the oldest entry of a table that has become too long."""
    if len(table) > MOST_SEEN:
        del table[next(iter(table))]


def digest_of(names: Iterable[Name]) -> int:
    """Stands for a map of lives that are over; 0 for the empty one."""
    lives = sorted((name.site, name.life) for name in names)
    if not lives:
        return 0
    digest = hashlib.blake2b(repr(lives).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")
