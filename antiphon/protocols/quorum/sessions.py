"""Sessions: each batch of a process takes effect once, however often it was handed in.

A process numbers its batches. The first, number 0, begins its session; the entries of a session take effect
in the order of their numbers, and any other entry has none. A session ends when its member has departed or
has begun a later one. A session that has ended never begins again, so an entry that a slow network delivers
late has no effect. All of this is decided at the entry's place in the log, alike on every replica.
"""

from collections.abc import Mapping
from typing import Final

from antiphon.core.ids import Site
from antiphon.protocols.quorum.pdus import BATCH, DEPART, ENTER, MERGE, SEAL, TICK, Entry
from antiphon.protocols.quorum.ports import SessionState, SnapshotHead

MOST_SESSIONS: Final = 1024
"""Names whose latest session is remembered. Raising it costs longer snapshots."""


class Sessions:
    """The sessions as the entries up to some index leave them."""

    def __init__(self, known: Mapping[Site, SessionState] | None = None, time_ns: int = 0) -> None:
        self.time_ns = time_ns
        """The latest agreed time."""
        self.is_sealed = False
        """Whether no batch takes effect now."""
        self.is_touched = False
        """Whether any command ever took effect."""
        self._known: dict[Site, SessionState] = dict(known or {})

    def copy(self) -> "Sessions":
        found = Sessions(self._known, self.time_ns)
        found.is_sealed, found.is_touched = self.is_sealed, self.is_touched
        return found

    @staticmethod
    def of(head: SnapshotHead) -> "Sessions":
        """The sessions as a snapshot has them."""
        found = Sessions(head.sessions, head.time_ns)
        found.is_sealed, found.is_touched = head.is_sealed, head.is_touched
        return found

    @property
    def known(self) -> dict[Site, SessionState]:
        return dict(self._known)

    def next(self, site: Site, life: int) -> int | None:
        """The number that is expected next in a session; None if the session is over."""
        found = self._known.get(site)
        if found is None or life > found.life:
            return 0
        return found.next if found.open and life == found.life else None

    def latest(self, site: Site) -> int:
        """The latest session of a member, open or not; 0 if there was none."""
        found = self._known.get(site)
        return 0 if found is None else found.life

    def life_of(self, site: Site) -> int | None:
        """The open session of a member."""
        found = self._known.get(site)
        return found.life if found is not None and found.open else None

    def open(self) -> list[Site]:
        """The members whose session is open."""
        return [site for site, state in self._known.items() if state.open]

    def take(self, entry: Entry) -> list[Entry]:
        """The effects of an entry, as entries: a session that begins may end an earlier one."""
        if entry.kind == BATCH:
            return [entry] if self._take_batch(entry) else []
        if entry.kind == ENTER:
            return self._enter(entry)
        if entry.kind == DEPART:
            return [entry] if self._depart(entry) else []
        if entry.kind == TICK:
            if entry.number <= self.time_ns:
                return []
            self.time_ns = entry.number
        elif entry.kind == SEAL:
            self.is_sealed = bool(entry.number)
        elif entry.kind == MERGE:
            self.is_touched = True
        return [entry]

    def _take_batch(self, entry: Entry) -> bool:
        found = self._known.get(entry.sender)
        if found is None or not found.open or found.life != entry.life or found.next != entry.number:
            return False
        if self.is_sealed:
            return False
        self.is_touched |= bool(entry.body)
        self._known[entry.sender] = SessionState(entry.life, entry.number + 1, True)
        return True

    def _enter(self, entry: Entry) -> list[Entry]:
        found = self._known.pop(entry.sender, None)
        if found is not None and entry.life <= found.life:
            self._known[entry.sender] = found
            return []
        self._known[entry.sender] = SessionState(entry.life, 1, True)
        self._forget_some()
        if found is not None and found.open:
            return [Entry(entry.term, DEPART, entry.sender, found.life), entry]
        return [entry]

    def _depart(self, entry: Entry) -> bool:
        found = self._known.get(entry.sender)
        if found is None or not found.open or found.life != entry.life:
            return False
        self._known[entry.sender] = SessionState(found.life, found.next, False)
        return True

    def _forget_some(self) -> None:
        """Forget the session that ended, or began, longest ago."""
        if len(self._known) > MOST_SESSIONS:
            closed = next((site for site, state in self._known.items() if not state.open), None)
            self._known.pop(closed if closed is not None else next(iter(self._known)))
