"""Every side of a partition goes on, and sides that meet merge: `quorum=None`.

A side is a group of `Quorum` of its own: its members agree by majority, and calls within it are linearizable.
A member that reaches no majority of its side parts: it begins a side of one member from its own state. The
leaders of sides multicast beacons. When two sides meet, the lesser gives itself up to the greater:

1. Its leader seals its log. Batches without a place keep waiting, and none takes effect there any more.
2. It hands its state to the other leader, which puts it into its own log, in pieces. At the place of the last
   piece every replica of the greater side merges that state into its own.
3. The leader of the lesser side hears that this is agreed upon, and dissolves its side. Its members become
   processes without a group. The greater side adds each one, with a snapshot, and their batches that wait are
   handed in there.

If the other side is gone meanwhile, the seal is taken back. A side may then be merged twice, so an
application's merge must be idempotent: it must bear a state that it has merged before.

Guarantees: what was acknowledged anywhere is in the state of the member that called. It therefore reaches the
merge as long as that member, or another of its side, lives on. All members that stay in contact end on one
side with equal states. A batch takes effect at most once, except where `Parted` says that it is in doubt.
*Not* guaranteed: linearizability across sides. No order explains what two sides answered.
"""

import zlib
from collections import OrderedDict
from random import Random
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from antiphon.core.effects import Multicast, Send, SetTimer
from antiphon.core.fields import Hash, Number
from antiphon.core.ids import Site
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.quorum import PDUS, Config, Quorum, QuorumConfiguration, ports
from antiphon.protocols.quorum.pdus import ENTER, SEAL, Body, Pieces
from antiphon.protocols.quorum.ports import (
    Durable,
    QuorumEffect,
    QuorumInput,
    Recovered,
    Snapshot,
    SnapshotHead,
)

BEACON: Final = "beacon"
SOLO: Final = "solo"
BEACON_NS: Final = 100 * MILLISECOND_NS
"""Pause between the beacons of a side. Raising it costs time until sides that meet merge."""
GIVE_UP_NS: Final = SECOND_NS
"""A side that gives itself up goes on by itself after this long without a sign of the other. Raising it costs
time in which its calls wait."""
SOLO_NS: Final = 400 * MILLISECOND_NS
"""A process without a side begins one of its own after this long, and up to half of it more. Raising it costs
time at the start; lowering it costs sides that must merge."""
JOIN_NS: Final = 5 * SECOND_NS
"""The same for a member of a side that was dissolved. A large state takes its time to arrive; it begins again
with each sign of progress."""
TAKE_NS: Final = 2 * GIVE_UP_NS
"""Another side's state is given up after this long without a sign of it."""
MOST_TAKING: Final = 8
"""States of other sides that a leader takes in at a time. Raising it costs memory."""
MOST_STATE_BYTES: Final = 1 << 30
REMEMBERED: Final = 64
"""Sides that were merged and are remembered, in case the answer was lost."""


class Beacon(Pdu, frozen=True, gc=False):
    """The leader of a side shows it to others."""

    code: ClassVar[int] = 195
    group: Hash
    voters: Number
    is_touched: bool
    is_sealed: bool


class Surrender(Pdu, frozen=True, gc=False):
    """A leader offers the state of its sealed side `group` to the leader of the side `to`."""

    code: ClassVar[int] = 196
    group: Hash
    to: Hash
    number: Number
    """The place of the seal: a side may be given up, go on, and be given up again."""
    size: Annotated[int, Meta(ge=0, le=MOST_STATE_BYTES)]
    checksum: Annotated[int, Meta(ge=0, lt=1 << 32)]


class Want(Pdu, frozen=True, gc=False):
    """The leader of the greater side asks for pieces of that state."""

    code: ClassVar[int] = 197
    group: Hash
    number: Number
    pieces: Pieces


class Part(Pdu, frozen=True, gc=False):
    """A piece of it."""

    code: ClassVar[int] = 198
    group: Hash
    number: Number
    piece: Number
    body: Body

    @property
    def bodies(self) -> object | None:
        """What makes the transport pace it."""
        return self.body


class Merged(Pdu, frozen=True, gc=False):
    """The state of the side `group`, as of the seal `number`, is merged and agreed upon."""

    code: ClassVar[int] = 199
    group: Hash
    number: Number


class Dissolved(Pdu, frozen=True, gc=False):
    """The side `group` is over: its members join another."""

    code: ClassVar[int] = 200
    group: Hash


SIDE_PDUS: Final[tuple[type[Pdu], ...]] = (*PDUS, Beacon, Surrender, Want, Part, Merged, Dissolved)
_OWN: Final = frozenset(SIDE_PDUS) - frozenset(PDUS)
Rank = tuple[bool, int, int]


class Giving:
    """This side is being given up to another."""

    def __init__(self, to: int, leader: Site, now: Nanoseconds) -> None:
        self.to: Final = to
        self.leader: Final = leader
        self.moved_ns = now
        self.number = 0
        self.data: bytes | None = None
        self.asked = False
        """Whether the state was asked for."""


class Taking:
    """Another side's state on its way to this leader."""

    def __init__(self, source: Site, offer: Surrender, piece_bytes: int, now: Nanoseconds) -> None:
        self.source: Final = source
        self.offer: Final = offer
        self.moved_ns = now
        self.total: Final = max(1, -(-offer.size // piece_bytes))
        self.pieces: dict[int, bytes] = {}
        self.is_complete = False

    def missing(self, most: int) -> tuple[int, ...]:
        found = (number for number in range(self.total) if number not in self.pieces)
        return tuple(number for number, _ in zip(found, range(most), strict=False))


class Sides:
    """One member of a group without a quorum. It is driven as a `Quorum` is, and holds one at a time."""

    def __init__(self, site: Site, configuration: QuorumConfiguration, random: Random) -> None:
        self._site: Final = site
        self._knobs: Final = configuration
        self._random: Final = random
        self._quorum = Quorum(site, (), configuration, random)
        self._out: list[QuorumEffect] = []
        self._life = 0
        self._is_joining = True
        self._is_begun = False
        """Whether this process was ever on a side."""
        self._is_parting = False
        self._wants_state = False
        self._giving: Giving | None = None
        self._taking: dict[int, Taking] = {}
        self._merged: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._greater: tuple[Nanoseconds, Site, Beacon] | None = None
        """The latest beacon of a side to which this one must give itself up."""

    # What a driver may ask

    @property
    def present(self) -> Quorum:
        """The side that this member is on."""
        return self._quorum

    # The contract

    def handle(self, now: Nanoseconds, event: QuorumInput) -> list[QuorumEffect]:
        match event:
            case Start(incarnation=incarnation):
                self._life = incarnation
                self._feed(now, event)
                self._arm(BEACON, BEACON_NS)
                self._arm(SOLO, self._soon(SOLO_NS))
            case TimerFired(name="beacon"):
                self._beacon(now)
            case TimerFired(name="solo"):
                if self._is_joining:
                    self._ask_for_state()
            case Received(sender=sender, pdu=pdu) if type(pdu) in _OWN:
                self._on_pdu(now, sender, pdu)
            case ports.Taken(index=index, data=data):
                if index == self._quorum.commit:
                    self._on_state(now, data)
                else:
                    self._wants_state = True
            case _:
                self._feed(now, event)
        if self._wants_state:
            # Last of all: the machine has then applied everything that is agreed upon here.
            self._wants_state = False
            self._out.append(ports.TakeState(self._quorum.commit))
        out, self._out = self._out, []
        return out

    def recover(self, now: Nanoseconds) -> list[QuorumEffect]:
        """The last input made `handle` raise: go on without it."""
        for effect in self._quorum.recover(now):
            self._pass(now, effect)
        self._giving, self._taking = None, {}
        self._arm(BEACON, BEACON_NS)
        self._arm(SOLO, self._soon(JOIN_NS))
        out, self._out = self._out, []
        return out

    def _soon(self, after_ns: Nanoseconds) -> Nanoseconds:
        return round(after_ns * (1 + self._random.random() / 2))

    def _arm(self, name: str, after_ns: Nanoseconds) -> None:
        self._out.append(SetTimer(name, after_ns))

    def _send(self, to: Site, pdu: Pdu) -> None:
        self._out.append(Send(to, pdu))

    def _feed(self, now: Nanoseconds, event: QuorumInput) -> None:
        quorum = self._quorum
        for effect in quorum.handle(now, event):
            if self._quorum is not quorum:
                return  # this side is over, and what it still asks for is void
            self._pass(now, effect)

    def _pass(self, now: Nanoseconds, effect: QuorumEffect) -> None:
        match effect:
            case ports.Severed() | ports.Expelled():
                if not self._is_joining:
                    self._ask_for_state()
                return
            case ports.Rejoined():
                return
            case ports.Install():
                self._arm(SOLO, self._soon(JOIN_NS))
        self._out.append(effect)
        match effect:
            case ports.Apply(entry=entry):
                if entry.kind == SEAL:
                    self._give(now)
                elif entry.kind == ENTER and entry.sender == self._site and entry.life == self._quorum.life:
                    self._is_joining, self._is_begun = False, True
            case ports.Merge(source=source):
                self._on_merged(source)

    # Parting

    def _ask_for_state(self) -> None:
        """Begin a side of one member, as soon as the machine's state is here."""
        if not self._is_parting:
            self._is_parting = self._wants_state = True

    def _on_state(self, now: Nanoseconds, data: bytes) -> None:
        if self._is_parting:
            self._is_parting = False
            self._part(now, data)
        elif self._giving is not None and self._giving.asked and self._giving.data is None:
            self._giving.data = data
            self._offer()

    def _part(self, now: Nanoseconds, data: bytes) -> None:
        """Go on alone, from the state that this member has."""
        before = self._quorum
        if self._is_begun and not self._is_joining:
            self._out.append(ports.Parted(f"'{self._site}' goes on without the others."))
            waiting = []
        else:
            waiting = before.unplaced
        life = self._next_life()
        group = 1 + self._random.getrandbits(62)
        config = Config({self._site: life})
        sessions = before.sessions
        head = SnapshotHead(
            max(1, before.commit), max(1, before.term), config, sessions.known, sessions.time_ns, False,
            sessions.is_touched,
        )  # fmt: skip
        durable = Durable(life, group, config, max(1, before.term), "")
        self._begin(now, life, Recovered(durable, Snapshot(head, data)), waiting)
        if not self._is_begun:
            self._out.append(ports.Founded(True))

    def _next_life(self) -> int:
        self._life = max(self._life, self._quorum.life, self._quorum.identity) + 1
        return self._life

    def _begin(
        self, now: Nanoseconds, life: int, recovered: Recovered | None, waiting: list[tuple[int, bytes]]
    ) -> None:
        """Leave the present side for another."""
        had_leader = self._quorum.leader is not None
        self._quorum = Quorum(self._site, (), self._knobs, self._random, recovered)
        self._giving, self._greater = None, None
        self._taking = {}
        if had_leader:
            self._out.append(ports.Led(None, 0))
        self._feed(now, Start(life))
        for ticket, body in waiting:
            self._feed(now, ports.Call(ticket, body))

    # Beacons

    @property
    def _rank(self) -> Rank:
        quorum = self._quorum
        return quorum.sessions.is_touched, len(quorum.config.voters), quorum.group

    def _beacon(self, now: Nanoseconds) -> None:
        quorum = self._quorum
        self._arm(BEACON, BEACON_NS)
        self._taking = {group: each for group, each in self._taking.items() if now - each.moved_ns < TAKE_NS}
        if not quorum.is_leader or self._is_joining:
            self._taking = {}
            return
        is_touched, voters, group = self._rank
        sealed = quorum.sessions.is_sealed or self._giving is not None
        self._out.append(Multicast(Beacon(group, voters, is_touched, sealed)))
        for taking in list(self._taking.values()):
            self._want(taking)
        self._give(now)

    def _on_pdu(self, now: Nanoseconds, sender: Site, pdu: Any) -> None:
        if sender == self._site or self._is_joining:
            return
        match pdu:
            case Beacon():
                self._on_beacon(now, sender, pdu)
            case Surrender():
                self._on_surrender(now, sender, pdu)
            case Want():
                self._on_want(now, sender, pdu)
            case Part():
                self._on_part(now, sender, pdu)
            case Merged():
                self._on_answer(now, sender, pdu)
            case Dissolved() if (pdu.group, sender) == (self._quorum.group, self._quorum.leader):
                self._join(now)

    def _on_beacon(self, now: Nanoseconds, sender: Site, pdu: Beacon) -> None:
        quorum = self._quorum
        rank = (pdu.is_touched, pdu.voters, pdu.group)
        if quorum.is_leader and pdu.group != quorum.group and rank > self._rank and not pdu.is_sealed:
            self._greater = (now, sender, pdu)
            self._give(now)

    # Giving a side up

    def _give(self, now: Nanoseconds) -> None:
        """Take the next step of giving this side up, or go on by itself."""
        quorum, giving = self._quorum, self._giving
        if not quorum.is_leader:
            self._giving = None
            return
        is_near = self._greater is not None and now - self._greater[0] < GIVE_UP_NS
        if giving is None:
            if is_near and not self._taking:
                assert self._greater is not None
                _, leader, beacon = self._greater
                self._giving = Giving(beacon.group, leader, now)
                self._feed(now, ports.Seal(True))
            elif quorum.sessions.is_sealed and not is_near:
                self._feed(now, ports.Seal(False))
            return
        if now - giving.moved_ns > GIVE_UP_NS:
            self._giving = None
            self._greater = None
            self._feed(now, ports.Seal(False))
        elif quorum.sessions.is_sealed and not giving.asked:
            giving.asked, giving.number = True, quorum.commit
            if quorum.sessions.is_touched:
                self._wants_state = True
            else:
                self._dissolve(now)
        elif giving.data is not None:
            self._offer()

    def _offer(self) -> None:
        giving = self._giving
        assert giving is not None
        assert giving.data is not None
        checksum = zlib.crc32(giving.data)
        self._send(
            giving.leader,
            Surrender(self._quorum.group, giving.to, giving.number, len(giving.data), checksum),
        )

    def _on_want(self, now: Nanoseconds, sender: Site, pdu: Want) -> None:
        giving, size = self._giving, self._knobs.piece_bytes
        if giving is None or giving.data is None or not self._is_given_to(giving, sender, pdu):
            return
        giving.moved_ns = now
        for piece in pdu.pieces:
            body = giving.data[piece * size : (piece + 1) * size]
            self._send(sender, Part(pdu.group, pdu.number, piece, body))

    def _on_answer(self, now: Nanoseconds, sender: Site, pdu: Merged) -> None:
        giving = self._giving
        if giving is not None and self._is_given_to(giving, sender, pdu):
            self._dissolve(now)

    def _is_given_to(self, giving: Giving, sender: Site, pdu: Want | Merged) -> bool:
        """Whether this comes from the leader to which this side was offered, and is about that offer."""
        return (sender, pdu.group, pdu.number) == (giving.leader, self._quorum.group, giving.number)

    def _dissolve(self, now: Nanoseconds) -> None:
        self._out.append(Multicast(Dissolved(self._quorum.group)))
        self._join(now)

    def _join(self, now: Nanoseconds) -> None:
        """Become a process without a side: the greater one adds it."""
        self._is_joining = True
        waiting = self._quorum.unplaced
        self._begin(now, self._next_life(), None, waiting)
        self._arm(SOLO, self._soon(JOIN_NS))

    # Taking a side in

    def _on_surrender(self, now: Nanoseconds, sender: Site, pdu: Surrender) -> None:
        quorum = self._quorum
        if pdu.to != quorum.group or not quorum.is_leader:
            return
        if (pdu.group, pdu.number) in self._merged:
            self._send(sender, Merged(pdu.group, pdu.number))
            return
        if self._giving is not None or quorum.sessions.is_sealed:
            return
        known = self._taking.get(pdu.group)
        if known is None or (known.offer.number, known.source) != (pdu.number, sender):
            if known is None and len(self._taking) >= MOST_TAKING:
                return
            known = self._taking[pdu.group] = Taking(sender, pdu, self._knobs.piece_bytes, now)
        self._want(known)

    def _want(self, taking: Taking) -> None:
        missing = taking.missing(self._knobs.piece_window)
        if missing:
            self._send(taking.source, Want(taking.offer.group, taking.offer.number, missing))

    def _on_part(self, now: Nanoseconds, sender: Site, pdu: Part) -> None:
        taking = self._taking.get(pdu.group)
        if taking is None or (sender, pdu.number) != (taking.source, taking.offer.number):
            return
        if pdu.piece >= taking.total or pdu.piece in taking.pieces:
            return
        taking.pieces[pdu.piece] = pdu.body
        taking.moved_ns = now
        if len(taking.pieces) == taking.total:
            self._take_in(now, taking)
        elif len(taking.pieces) % max(1, self._knobs.piece_window // 2) == 0:
            self._want(taking)

    def _take_in(self, now: Nanoseconds, taking: Taking) -> None:
        offer = taking.offer
        data = b"".join(taking.pieces[number] for number in range(taking.total))
        if len(data) != offer.size or zlib.crc32(data) != offer.checksum or not self._quorum.is_leader:
            del self._taking[offer.group]
            return
        taking.is_complete = True
        self._feed(now, ports.TakeIn(taking.source, data))

    def _on_merged(self, source: Site) -> None:
        """A state is merged on every replica that has come so far: its side may be dissolved."""
        found = (each for each in self._taking.values() if each.is_complete and each.source == source)
        done = next(found, None)
        if done is not None:
            offer = done.offer
            del self._taking[offer.group]
            self._merged[offer.group, offer.number] = None
            if len(self._merged) > REMEMBERED:
                self._merged.popitem(last=False)
            self._send(done.source, Merged(offer.group, offer.number))
