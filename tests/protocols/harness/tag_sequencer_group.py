"""Members with nothing but their tag sequencer service, joined by a link that loses, reorders and duplicates.

What each member is told becomes part of one history, which is judged as a whole: the arcs of all members
together must not close a cycle, nothing may lie between the ends of a mark, and each sender's messages must
stand in the order in which it sent them.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeVar

from antiphon.core.effects import Effect, Multicast, Send, SetTimer
from antiphon.core.ids import Site
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.dpg.pdus import ORIGIN, PDUS, Arc, Farewell, Message, Tag
from antiphon.protocols.dpg.services.base import Placement, Placements
from antiphon.protocols.dpg.services.tag_sequencer import (
    PDUS as SERVICE_PDUS,
)
from antiphon.protocols.dpg.services.tag_sequencer import (
    SequencerOptions,
    SequencerService,
    TagSequencerSite,
)
from tests.protocols.harness.dpg_channel import RETURNING, report

ABSENCE_NS = 1000 * MILLISECOND_NS
"""A member that was stopped for longer starts anew, as in a group."""
LATELY_NS = 60 * MILLISECOND_NS
REPORT_NS = 30 * MILLISECOND_NS
LISTEN_NS = 100 * MILLISECOND_NS
CODEC = Codec((*PDUS, *SERVICE_PDUS))


PduT = TypeVar("PduT", bound=Pdu)


@dataclass
class Link:
    """What the network does to each PDU on its way to each receiver."""

    loss: float = 0.0
    duplication: float = 0.0
    least_ns: Nanoseconds = 100_000
    jitter_ns: Nanoseconds = 0


@dataclass
class Member:
    """One member, as its service's channel, and what it was told."""

    group: "Group"
    site: Site
    random: Random
    options: SequencerOptions
    colour: int = 0
    service: SequencerService = field(init=False)
    told: list[tuple[Nanoseconds, Tag, tuple[Arc, ...]]] = field(default_factory=list)
    pending: dict[Tag, Message] = field(default_factory=dict)
    company: dict[Site, Nanoseconds] = field(default_factory=dict)
    received: set[Tag] = field(default_factory=set)
    known: set[Tag] = field(default_factory=set)
    silent: set[Site] = field(default_factory=set)
    """Who has never sent a message."""
    previous: Tag = ORIGIN
    spell: int = 0
    alive: bool = True
    taking_part: bool = False
    stopped_at: Nanoseconds | None = None
    on_placed: Callable[[], object] | None = None
    """What the member does as soon as a message has its place."""
    backlog: list[Callable[[], None]] = field(default_factory=list)
    overdue: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.service = SequencerService(self.options)
        for name in RETURNING:
            setattr(self.service, name, partial(self._place, getattr(self.service, name)))
        self.service.attach(self)

    def _place(
        self, method: Callable[..., Placements], now: Nanoseconds, *arguments: Any, **named: Any
    ) -> None:
        for each in method(now, *arguments, **named):
            assert isinstance(each, Placement), "a tag sequencer learns places from numbers"
            self._placed(now, each.tag, each.arcs)

    # What a channel is asked for

    def emit(self, effect: Effect) -> None:
        self.group.carry_out(self.site, effect)

    def _placed(self, now: Nanoseconds, tag: Tag, arcs: Sequence[Arc]) -> None:
        for tail, head, _ in arcs:
            assert tag in (tail, head)
            assert tail == ORIGIN or {tail, head} - {tag} <= self.known
        self.known.add(tag)
        self.told.append((now, tag, tuple(arcs)))
        if self.pending.pop(tag, None) is not None:
            self.service.on_located(now, tag)
        if self.on_placed is not None:
            self.on_placed()

    def is_ours(self, tag: Tag) -> bool:
        return tag % 16 == self.colour

    def unlocated(self) -> tuple[Message, ...]:
        return tuple(self.pending.values())

    def is_at_origin(self) -> bool:
        return self.spell == 0 and not self.told

    def root(self) -> Tag:
        return ORIGIN

    def is_ahead(self, tag: Tag) -> bool:
        return True

    def is_behind(self, tag: Tag, latest: Tag) -> bool:
        return False

    def has_sent(self, site: Site) -> bool:
        return site not in self.silent

    def lately(self, now: Nanoseconds) -> frozenset[Site]:
        return frozenset(site for site, heard in self.company.items() if heard >= now - LATELY_NS)

    # For the tests

    def tags(self) -> list[Tag]:
        """Everything that has a place here, in the order in which the places became known."""
        return list(dict.fromkeys(tag for _, tag, _ in self.told))

    def order(self) -> list[Tag]:
        """What the marks alone say, from the origin on."""
        following = {tail: head for _, _, arcs in self.told for tail, head, marked in arcs if marked}
        chain: list[Tag] = []
        tag = ORIGIN
        while (tag := following.get(tag, ORIGIN)) != ORIGIN:
            chain.append(tag)
        return chain


class Group:
    """The members, the time and the network."""

    def __init__(
        self,
        names: Sequence[Site],
        seed: int = 0,
        options: SequencerOptions | None = None,
        link: Link | None = None,
        colours: dict[Site, int] | None = None,
    ) -> None:
        self.now: Nanoseconds = 0
        self.random = Random(seed)
        self.link = link or Link()
        self.options = options or SequencerOptions()
        self.members: dict[Site, Member] = {}
        self.retired: list[Member] = []
        self.outside: dict[Site, TagSequencerSite] = {}
        self.sent: dict[str, list[Tag]] = {}
        """The tags of each presence spell of each member, in the order in which it sent them."""
        self.carried: list[tuple[Nanoseconds, Site, Pdu]] = []
        self.drops: Callable[[Site, Site, Pdu], bool] = lambda *_: False
        """What a test wants lost."""
        self.held_back: dict[Site, list[Effect]] = {}
        self._heap: list[tuple[Nanoseconds, int, Callable[[], object]]] = []
        self._count = 0
        self._timers: dict[tuple[Site, str], int] = {}
        for name in names:
            self.add(name, (colours or {}).get(name, 0))

    # Time

    def at(self, time_ns: Nanoseconds, act: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (time_ns, self._count, act))

    def run(self, span_ms: float) -> None:
        end = self.now + round(span_ms * MILLISECOND_NS)
        while self._heap and self._heap[0][0] <= end:
            self.now, _, act = heapq.heappop(self._heap)
            act()
        self.now = end

    def run_until(self, met: Callable[[], bool], most_ms: float) -> None:
        end = self.now + round(most_ms * MILLISECOND_NS)
        while not met():
            assert self._heap, "nothing happens any more"
            assert self._heap[0][0] <= end, "it does not come to pass"
            self.now, _, act = heapq.heappop(self._heap)
            act()

    # Members

    def add(self, name: Site, colour: int = 0) -> Member:
        member = Member(self, name, Random(f"{name}/{self.random.random()}"), self.options, colour)
        self.members[name] = member
        member.service.start(self.now, 0)
        member.service.take_part(self.now)
        member.taking_part = True
        self.at(self.now + round(self.random.random() * REPORT_NS), lambda: self._report(member))
        return member

    def add_outside(self, name: Site, incarnation: int = 0) -> TagSequencerSite:
        site = TagSequencerSite(name, Random(f"{name}/{incarnation}"))
        self.outside[name] = site
        for effect in site.handle(self.now, Start(incarnation)):
            self.carry_out(name, effect)
        return site

    def kill_outside(self, name: Site) -> None:
        """It loses its memory and its timers; `add_outside` starts it again."""
        del self.outside[name]
        for key in [key for key in self._timers if key[0] == name]:
            del self._timers[key]

    def _report(self, member: Member) -> None:
        if self.members.get(member.site) is not member or not member.alive:
            return
        if member.stopped_at is None:
            self.carry_out(member.site, Multicast(report(member.service.note(self.now))))
        self.at(self.now + round((0.5 + self.random.random()) * REPORT_NS), lambda: self._report(member))

    def send(self, name: Site) -> Tag | None:
        """A member that takes part multicasts one more message."""
        member = self.members[name]
        if not (member.alive and member.taking_part and member.stopped_at is None):
            return None
        tag = self.random.getrandbits(58) << 4 | member.colour
        told = Message(tag, member.previous, ORIGIN, 0, 0, 0, 0, pack([b"x"]))
        member.previous = tag
        member.pending[tag] = told
        self.sent.setdefault(f"{name}/{member.spell}", []).append(tag)
        member.service.hand_over(self.now, told)
        return tag

    def send_all(self, names: Sequence[Site], count: int, pause_ms: float) -> None:
        """Each of them multicasts this many messages, at about this pace, from now on."""
        for name in names:
            time_ns = self.now
            for _ in range(count):
                time_ns += round(2 * self.random.random() * pause_ms * MILLISECOND_NS)
                self.at(time_ns, partial(self.send, name))

    def kill(self, name: Site) -> None:
        self.members[name].alive = False

    def leave(self, name: Site) -> None:
        self.members[name].service.depart(self.now)
        self.carry_out(name, Multicast(Farewell(0, self.members[name].service.note(self.now))))
        self.members[name].alive = False

    def hold_back(self, name: Site) -> None:
        """What this member sends waits on its host, as pacing makes it, until `let_go`."""
        self.held_back[name] = []

    def let_go(self, name: Site) -> None:
        for effect in self.held_back.pop(name):
            self.carry_out(name, effect)

    def stop(self, name: Site) -> None:
        self.members[name].stopped_at = self.now

    def resume(self, name: Site) -> None:
        """What came meanwhile is read first, then timers are late, as with sockets and an event loop."""
        member = self.members[name]
        assert member.stopped_at is not None
        absent = self.now - member.stopped_at > ABSENCE_NS
        member.stopped_at = None
        if absent:
            self._return(member)
        backlog, member.backlog = member.backlog, []
        for act in backlog:
            act()
        overdue, member.overdue = member.overdue, []
        for timer in overdue:
            member.service.on_timer(self.now, timer)

    def come_back(self, name: Site) -> None:
        """A killed member, or one that left, is started as a new process."""
        old = self.members[name]
        assert not old.alive
        self.retired.append(old)
        member = Member(self, name, Random(f"{name}/{self.random.random()}"), self.options, old.colour)
        self.members[name] = member
        self._return(member)
        self.at(self.now, lambda: self._report(member))

    def _return(self, member: Member) -> None:
        member.service.start(self.now, 1)
        member.spell = self._count
        member.taking_part = False
        member.previous = ORIGIN
        self.at(self.now + LISTEN_NS, lambda: self._take_part(member))

    def _take_part(self, member: Member) -> None:
        if member.alive and not member.taking_part:
            member.pending.clear()
            member.service.take_part(self.now)
            member.taking_part = True

    # The network

    def carry_out(self, name: Site, effect: Effect) -> None:
        match effect:
            case Send(pdu=pdu) | Multicast(pdu=pdu) if name in self.held_back and not pdu.urgent:
                self.held_back[name].append(effect)
            case SetTimer(name=timer, after_ns=after_ns):
                self._count += 1
                self._timers[name, timer] = turn = self._count
                owner: object = self.members.get(name) or self.outside[name]
                self.at(self.now + after_ns, lambda: self._fire(name, owner, timer, turn))
            case Send(to=to, pdu=pdu):
                self.carried.append((self.now, name, pdu))
                self._transmit(name, to, pdu)
            case Multicast(pdu=pdu, left=left):
                self.carried.append((self.now, name, pdu))
                for to in (*self.members, *self.outside):
                    if to != name:
                        self._transmit(name, to, pdu)
                if left is not None:
                    self.carry_out(name, SetTimer(left, 1))
            case _:
                raise AssertionError(f"a service does not ask for {effect}")

    def _fire(self, name: Site, owner: object, timer: str, turn: int) -> None:
        if self._timers.get((name, timer)) != turn:
            return
        if name in self.outside:
            for effect in self.outside[name].handle(self.now, TimerFired(timer)):
                self.carry_out(name, effect)
            return
        member = self.members[name]
        if member is not owner or not member.alive:
            return
        if member.stopped_at is not None:
            member.overdue.append(timer)
        else:
            member.service.on_timer(self.now, timer)

    def _transmit(self, sender: Site, to: Site, pdu: Pdu) -> None:
        if self.drops(sender, to, pdu):
            return
        link, random = self.link, self.random
        for _ in range(2 if random.random() < link.duplication else 1):
            if random.random() >= link.loss:
                delay_ns = link.least_ns + round(random.random() * link.jitter_ns)
                self.at(self.now + delay_ns, lambda: self._arrive(sender, to, pdu))

    def _arrive(self, sender: Site, to: Site, pdu: Pdu) -> None:
        packet = CODEC.decode(CODEC.encode(pdu, sender=sender))
        assert isinstance(packet, Packet), packet
        pdu = packet.pdu
        if to in self.outside:
            for effect in self.outside[to].handle(self.now, Received(sender, pdu)):
                self.carry_out(to, effect)
            return
        if to not in self.members:
            return
        member = self.members[to]
        if member.alive and member.stopped_at is not None:
            member.backlog.append(lambda: self.hand_in(member, sender, pdu))
        elif member.alive:
            self.hand_in(member, sender, pdu)

    def hand_in(self, member: Member, sender: Site, pdu: Pdu) -> None:
        """What a member does with a PDU before its service hears of it."""
        member.company[sender] = self.now
        service = member.service
        if isinstance(pdu, Message):
            if member.is_ours(pdu.tag):
                fresh = pdu.tag not in member.received
                member.received.add(pdu.tag)
                service.on_message(self.now, sender, pdu, after_loss=False, fresh=fresh)
        elif pdu.code == 72:
            service.on_report(self.now, sender, pdu, after_loss=False)  # type: ignore[arg-type]
        else:
            if isinstance(pdu, Farewell):
                member.company.pop(sender, None)
            service.on_other_pdu(self.now, sender, pdu, after_loss=False)

    # What is looked at

    def everyone(self) -> list[Member]:
        return [*self.members.values(), *self.retired]

    def living(self) -> list[Member]:
        return [member for member in self.members.values() if member.alive]

    def sequencer(self) -> Site:
        (name,) = self.sequencers()
        return name

    def sequencers(self) -> list[Site]:
        return [
            name
            for name, member in self.members.items()
            if member.alive and member.service.figures()["is_sequencer"]
        ]

    def arcs(self, members: Sequence[Member] | None = None) -> list[Arc]:
        """What these members were told, or all of them."""
        told = self.everyone() if members is None else members
        return [arc for member in told for _, _, arcs in member.told for arc in arcs]

    def said(self, kind: type[PduT]) -> list[PduT]:
        return [pdu for _, _, pdu in self.carried if isinstance(pdu, kind)]

    def conflicting(self) -> list[Member]:
        """Members who followed numbers that a later epoch gave to other tags."""
        return [member for member in self.everyone() if member.service.figures()["conflicts"]]


def contradictions(arcs: Sequence[Arc]) -> list[str]:
    """What in these arcs cannot be true of one order; marked chains are one vertex each."""
    following: dict[Tag, Tag] = {}
    preceding: dict[Tag, Tag] = {}
    found: list[str] = []
    for tail, head, marked in arcs:
        if marked:
            if following.setdefault(tail, head) != head:
                found.append(f"{tail} is followed by both {following[tail]} and {head}")
            if preceding.setdefault(head, tail) != tail:
                found.append(f"{head} follows both {preceding[head]} and {tail}")
    place: dict[Tag, tuple[Tag, int]] = {}
    for tag in {tag for arc in arcs for tag in arc[:2]}:
        if tag not in preceding:
            chain, walked = tag, 0
            place[tag] = (chain, 0)
            while (tag := following.get(tag, -1)) != -1 and tag not in place:
                walked += 1
                place[tag] = (chain, walked)
    if len(place) != len({tag for arc in arcs for tag in arc[:2]}):
        return [*found, "marks close a cycle"]
    return found + _cycles(arcs, place)


def _cycles(arcs: Sequence[Arc], place: dict[Tag, tuple[Tag, int]]) -> list[str]:
    """Arcs that go back within a chain of marks, or close a cycle of chains."""
    successors: dict[Tag, set[Tag]] = {chain: set() for chain, _ in place.values()}
    entering = dict.fromkeys(successors, 0)
    found = []
    for tail, head, _ in arcs:
        (chain, step), (other, other_step) = place[tail], place[head]
        if chain == other and step >= other_step:
            found.append(f"{tail} both precedes and follows {head}")
        elif chain != other and other not in successors[chain]:
            successors[chain].add(other)
            entering[other] += 1
    free = [chain for chain, count in entering.items() if count == 0]
    while free:
        for other in successors[free.pop()]:
            entering[other] -= 1
            if entering[other] == 0:
                free.append(other)
    if any(entering.values()):
        found.append("arcs close a cycle across marks")
    return found


def out_of_turn(group: Group) -> list[str]:
    """Senders whose messages do not stand in the order in which they were sent, at some member."""
    found = []
    for member in group.everyone():
        place = {tag: index for index, tag in enumerate(member.order())}
        for sender, tags in group.sent.items():
            places = [place[tag] for tag in tags if tag in place]
            if places != sorted(places):
                found.append(sender)
    return found
