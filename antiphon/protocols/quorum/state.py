"""What every part of a member shares: its term, its log, how far that is committed and stored."""

from collections import deque
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Final

from antiphon.core.effects import Multicast, Send, SetTimer
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.quorum.log import Log, weight
from antiphon.protocols.quorum.pdus import CONFIG, MERGE, NO_CONFIG, TICK, Config, Entry, QuorumConfiguration
from antiphon.protocols.quorum.ports import (
    Apply,
    Durable,
    Install,
    Led,
    Members,
    Merge,
    QuorumEffect,
    Recovered,
    Rejoined,
    Severed,
    Snapshot,
    Store,
)
from antiphon.protocols.quorum.sessions import Sessions


class Role(Enum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class State:
    """One member's memory."""

    def __init__(
        self, site: Site, configuration: QuorumConfiguration, random: Random, recovered: Recovered | None
    ) -> None:
        self.site: Final = site
        self.knobs: Final = configuration
        self.random: Final = random
        self.identity = 0
        """The identity of this memory."""
        self.life = 0
        """The session of this process."""
        self.group = 0
        """The group that this memory belongs to; 0 if to none."""
        self.term = 0
        self.vote: Site = ""
        self.role = Role.FOLLOWER
        self.leader: Site | None = None
        self.leader_heard_ns: Nanoseconds = 0
        self.contact_ns: Nanoseconds = 0
        """When this member was last in contact with a majority."""
        self.is_severed = False
        self.is_expelled = False
        self.log: Final = Log()
        self.commit = 0
        self.sessions = Sessions()
        self.merging: list[bytes] = []
        """Pieces of another side's state that are not all there yet."""
        self.snapshot: Snapshot | None = None
        self.ticked_ns: Nanoseconds | None = None
        """When the agreed time was last passed on, by the steady clock of this member; None if not known."""
        self.ignored = 0
        """PDUs that made no sense and were dropped."""
        self.out: list[QuorumEffect] = []
        self.taken: Callable[[Nanoseconds, int, Entry], int | None] = lambda _now, _index, _entry: None
        """Called with each effective entry; returns the ticket of a batch of this process."""
        self.restored: Callable[[Nanoseconds], None] = lambda _now: None
        """Called when a snapshot has replaced the state."""
        self.adopted: Callable[[Nanoseconds], None] = lambda _now: None
        """Called when this memory belongs to a group from now on."""
        self._position = 0
        self._stored = 0
        self._unstored: deque[tuple[int, int, int]] = deque()
        """Positions that are not on disk, with the last index there and the bytes."""
        self.unstored_bytes = 0
        self._durable_index = 0
        self._waiting: deque[tuple[int, Callable[[Nanoseconds], None]]] = deque()
        if recovered is not None:
            self._recover(recovered)

    def _recover(self, recovered: Recovered) -> None:
        durable, snapshot = recovered.durable, recovered.snapshot
        self.identity, self.group = durable.identity, durable.group
        self.term, self.vote = durable.term, durable.vote
        self.log.begin(0, 0, durable.base)
        if snapshot is not None:
            head = snapshot.head
            self.log.begin(head.index, head.term, head.config)
            self.commit = head.index
            self.sessions = Sessions.of(head)
            self.merging = list(head.merging)
            self.snapshot = snapshot
        self.log.append(recovered.entries)
        self._durable_index = self.log.last

    # Effects

    def emit(self, effect: QuorumEffect) -> None:
        self.out.append(effect)

    def send(self, to: Site, pdu: Pdu) -> None:
        self.out.append(Send(to, pdu))

    def multicast(self, pdu: Pdu) -> None:
        self.out.append(Multicast(pdu))

    def arm(self, name: str, after_ns: Nanoseconds) -> None:
        self.out.append(SetTimer(name, after_ns))

    # Members

    @property
    def config(self) -> Config:
        return self.log.config

    @property
    def is_voter(self) -> bool:
        """Whether this memory may vote and lead."""
        return bool(self.group) and self.log.config.voters.get(self.site) == self.identity

    # The disk

    def save_durable(self) -> None:
        """Remember the term, the vote and the group."""
        if self.knobs.stores:
            self._position += 1
            durable = Durable(self.identity, self.group, self._base(), self.term, self.vote)
            self.emit(Store(self._position, durable))

    def _base(self) -> Config:
        return self.log.base_config if self.log.base == 0 else NO_CONFIG

    def store_all(self) -> None:
        """Store the log once more, whole: after a fault the disk may lack a part of it."""
        self.save_durable()
        entries = tuple(self.log.behind(self.log.base))
        if self.knobs.stores and entries:
            self._store(self.log.base + 1, entries)

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Add entries to the log and to the disk."""
        first = self.log.last + 1
        self.log.append(entries)
        if not self.knobs.stores:
            self._durable_index = self.log.last
            return
        self._store(first, entries)

    def _store(self, first: int, entries: tuple[Entry, ...]) -> None:
        size = sum(map(weight, entries))
        self._position += 1
        self.unstored_bytes += size
        self._unstored.append((self._position, self.log.last, size))
        self.emit(Store(self._position, None, first, entries))

    def cut(self, index: int) -> None:
        """Drop the entries behind an index: another leader has others there."""
        assert index >= self.commit, "a committed entry is never dropped"
        self.log.cut(index)
        self._durable_index = min(self._durable_index, index)
        self._unstored = deque((at, min(last, index), size) for at, last, size in self._unstored)

    def install(self, snapshot: Snapshot) -> None:
        """Replace everything by a snapshot of another member."""
        head = snapshot.head
        self.log.begin(head.index, head.term, head.config)
        self.commit = head.index
        self.sessions = Sessions.of(head)
        self.merging = list(head.merging)
        self.snapshot = snapshot
        self._position += 1
        if self.knobs.stores:
            self._unstored = deque((at, min(last, head.index), size) for at, last, size in self._unstored)
            self._unstored.append((self._position, head.index, 0))
            self._durable_index = min(self._durable_index, head.index)
        else:
            self._durable_index = head.index
        self.emit(Install(self._position, snapshot))

    @property
    def durable_index(self) -> int:
        """The index up to which the log is safe from a crash of this member."""
        return self._durable_index

    def when_stored(self, now: Nanoseconds, act: Callable[[Nanoseconds], None]) -> None:
        """Do something as soon as everything so far is on disk."""
        if not self.knobs.stores or self._stored >= self._position:
            act(now)
        else:
            self._waiting.append((self._position, act))

    def stored(self, now: Nanoseconds, position: int) -> None:
        """The disk has everything up to this position."""
        self._stored = max(self._stored, position)
        while self._unstored and self._unstored[0][0] <= self._stored:
            _, last, size = self._unstored.popleft()
            self._durable_index = max(self._durable_index, last)
            self.unstored_bytes -= size
        while self._waiting and self._waiting[0][0] <= self._stored:
            self._waiting.popleft()[1](now)

    # Progress

    def commit_to(self, now: Nanoseconds, index: int) -> None:
        """Everything up to an index is agreed upon: apply it."""
        while self.commit < min(index, self.log.last):
            self.commit += 1
            entry = self.log.entry(self.commit)
            if entry.kind == TICK and self.role is not Role.LEADER:
                self.ticked_ns = now
            for effect in self.sessions.take(entry):
                self.emit(Apply(self.commit, effect, self.taken(now, self.commit, effect)))
            if entry.kind == CONFIG:
                self.emit(Members(self.log.config_at(self.commit)))
            elif entry.kind == MERGE:
                self._merge(entry)

    def _merge(self, entry: Entry) -> None:
        """A piece of another side's state: the pieces of one state follow each other, from number 0 on."""
        if entry.number == 0:
            self.merging = []
        if entry.number != len(self.merging):
            return
        self.merging.append(entry.body)
        if len(self.merging) == entry.life:
            self.emit(Merge(self.commit, entry.sender, b"".join(self.merging)))
            self.merging = []

    def led_by(self, leader: Site | None) -> bool:
        """Note the leader. Returns whether it is another one than before."""
        if leader == self.leader:
            return False
        self.leader = leader
        self.emit(Led(leader, self.term))
        return True

    def in_contact(self, now: Nanoseconds) -> None:
        """This member is in contact with a majority."""
        self.contact_ns = now
        if self.is_severed:
            self.is_severed = False
            self.emit(Rejoined())

    def look_for_contact(self, now: Nanoseconds) -> None:
        """Without contact for long, this member is cut off."""
        if not self.is_severed and now - self.contact_ns >= self.knobs.cut_off_ns:
            self.is_severed = True
            names = ", ".join(name for name in self.config.voters if name != self.site)
            self.emit(Severed(f"'{self.site}' does not reach a majority of the group; it needs {names}."))
