"""Distributed Precedence Graph members on a small LAN, driven by hand: what the tests of them share."""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from antiphon.core.effects import (
    Absent,
    Admitted,
    CancelTimer,
    Deliver,
    Disagreed,
    Effect,
    Multicast,
    Send,
    SetTimer,
    Unavailable,
)
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg import Dpg, DpgConfiguration
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import ORIGIN, Arc, Message, Report, Tag
from antiphon.protocols.dpg.peers import Peers
from antiphon.protocols.dpg.reports import read
from antiphon.protocols.dpg.services.lan import LanService
from antiphon.protocols.dpg.stability import Stability

KNOBS: dict[str, Any] = {"deliv_cycle_ns": 200 * MILLISECOND_NS, "dummy_cycle_ns": 400 * MILLISECOND_NS}
TRANSMIT_NS: Nanoseconds = MILLISECOND_NS // 10


class ChosenTags:
    """Stands for `Tags`: gives out the tags that a test has put down, in that order, then 1001, 1002, …"""

    def __init__(self, *chosen: Tag) -> None:
        self._chosen = deque(chosen)
        self._next: Tag = 1000

    def __call__(self, _secret: bytes, _random: Random) -> "ChosenTags":
        return self

    def choose(self, taken: Callable[[Tag], bool]) -> Tag:
        if self._chosen and not taken(self._chosen[0]):
            return self._chosen.popleft()
        self._next += 1
        return self._next

    def is_ours(self, tag: Tag) -> bool:
        return tag > ORIGIN


def an_order(emit: Callable[[Effect], None], **knobs: Any) -> Order:
    """The order of a member that knows no other member."""
    configuration = DpgConfiguration(**knobs)
    peers = Peers(configuration.lately_ns, SECOND_NS, 1, emit)
    return Order(configuration, Stability(peers, SECOND_NS, 0, 0, configuration.tombstones, emit), emit)


class Unordered(LanService):
    """A service like those of sections 3.2 and 3.3, whose reports do not share the ordered channel."""

    reports_ordered = False


class Lan:
    """Members on one channel that carries PDUs one after another, in the order in which they are handed over.

    No member hears itself. A member that `misses` a PDU learns that with the next one. Incarnation 0
    begins with the whole group.
    """

    def __init__(
        self, sites: str = "abc", seed: int = 0, *, service: type[LanService] = LanService, **knobs: Any
    ) -> None:
        self.names: tuple[Site, ...] = tuple(sites)
        self.service = service
        self.knobs = DpgConfiguration(**(KNOBS | knobs))
        self.now: Nanoseconds = 0
        self.seed = seed
        self.misses: Callable[[Site, Site, Pdu], bool] = lambda _source, _target, _pdu: False
        self.members: dict[Site, Dpg] = {}
        self.effects: dict[Site, list[Effect]] = {name: [] for name in self.names}
        self.timers: dict[tuple[Site, str], Nanoseconds] = {}
        self.missed: set[Site] = set()
        self.away: set[Site] = set()
        self.channel: deque[tuple[Site, tuple[Site, ...] | None, Pdu]] = deque()
        self.transmitted: list[tuple[Nanoseconds, Site, Pdu]] = []
        self.admitted = dict.fromkeys(self.names, 0)
        self.incarnations = dict.fromkeys(self.names, 0)
        for name in self.names:
            self._build(name)
        for name in self.names:
            self.give(name, Start())

    def _build(self, name: Site) -> None:
        random = Random(f"{self.seed}/{name}/{self.incarnations[name]}")
        self.members[name] = Dpg(name, self.knobs, self.service(), random)

    # What a test does

    def give(self, name: Site, event: Input) -> list[Effect]:
        effects = self.members[name].handle(self.now, event)
        self.effects[name] += effects
        for effect in effects:
            if isinstance(effect, Multicast):
                self.channel.append((name, None, effect.pdu))
                if effect.left is not None:
                    self.timers[name, effect.left] = self.now + 1
            elif isinstance(effect, Send):
                self.channel.append((name, (effect.to,), effect.pdu))
            elif isinstance(effect, SetTimer):
                self.timers[name, effect.name] = self.now + effect.after_ns
            elif isinstance(effect, CancelTimer):
                self.timers.pop((name, effect.name), None)
            elif isinstance(effect, Admitted):
                self.admitted[name] += effect.count
        return effects

    def admit(self, name: Site, *bodies: bytes) -> list[Effect]:
        return self.give(name, Admit(bodies or (b"x",)))

    def settle(self) -> None:
        """Let the channel carry whatever was handed over."""
        while self.channel:
            source, targets, pdu = self.channel.popleft()
            self.now += TRANSMIT_NS
            self.transmitted.append((self.now, source, pdu))
            for target in targets or self.names:
                if target != source and target not in self.away:
                    self._hear(source, target, pdu)

    def _hear(self, source: Site, target: Site, pdu: Pdu) -> None:
        if self.misses(source, target, pdu):
            self.missed.add(target)
            return
        after_loss = target in self.missed
        self.missed.discard(target)
        self.give(target, Received(source, pdu, after_loss))

    def pass_time(self, span_ms: float) -> None:
        """Let every timer fire that runs out, in order, and the channel carry what follows from it."""
        self.settle()
        end = self.now + round(span_ms * MILLISECOND_NS)
        while True:
            due = [(time, key) for key, time in self.timers.items() if time <= end]
            if not due:
                break
            time, key = min(due)
            self.now = max(self.now, time)
            del self.timers[key]
            self.give(key[0], TimerFired(key[1]))
            self.settle()
        self.now = max(self.now, end)

    def wait_for(self, is_done: Callable[[], bool], at_most_s: float = 20.0) -> None:
        """Let time pass until something is so."""
        end = self.now + round(at_most_s * SECOND_NS)
        while not is_done():
            assert self.now < end, {name: self.delivered(name) for name in self.names}
            self.pass_time(5)

    def depart(self, name: Site) -> None:
        self.give(name, Departed())
        self._forget(name)

    def crash(self, name: Site) -> None:
        self._forget(name)
        self.effects[name].append(Absent())

    def _forget(self, name: Site) -> None:
        self.settle()
        self.away.add(name)
        self.timers = {key: time for key, time in self.timers.items() if key[0] != name}

    def come_back(self, name: Site) -> None:
        self.away.discard(name)
        self.give(name, Returned())

    def restart(self, name: Site) -> None:
        self.away.discard(name)
        self.incarnations[name] += 1
        self._build(name)
        self.give(name, Start(self.incarnations[name], self.admitted[name], returning=True))

    # What a test looks at

    def of(self, name: Site, kind: type[Any]) -> list[Any]:
        return [effect for effect in self.effects[name] if isinstance(effect, kind)]

    def delivered(self, name: Site) -> list[str]:
        """What a member has delivered, as `a0`, `b3`, …"""
        return [
            f"{effect.sender}{effect.number + place}"
            for effect in self.of(name, Deliver)
            for place in range(len(effect.bodies))
        ]

    def agreed(self) -> list[str]:
        """What everyone who is there has delivered, in the one order that it is."""
        orders = {tuple(self.delivered(name)) for name in self.names if name not in self.away}
        assert len(orders) == 1, orders
        return list(orders.pop())

    def all_delivered(self, count: int) -> bool:
        return all(len(self.delivered(name)) == count for name in self.names if name not in self.away)

    def doubts(self) -> list[Any]:
        return [doubt for name in self.names for doubt in self.of(name, (Disagreed, Unavailable))]  # type: ignore[arg-type]

    def sent(self, kind: type[Any], by: Site | None = None) -> list[Any]:
        return [pdu for _, source, pdu in self.transmitted if type(pdu) is kind and by in (None, source)]

    def sent_ns(self, kind: type[Any], by: Site) -> list[Nanoseconds]:
        return [time for time, source, pdu in self.transmitted if type(pdu) is kind and by == source]

    def tags(self) -> list[Tag]:
        """Of all messages, in the order in which the channel carried them."""
        return [pdu.tag for pdu in self.sent(Message)]

    def told_marks(self) -> set[tuple[Tag, Tag]]:
        """The marked arcs of all reports."""
        return {
            (tail, head) for report in self.sent(Report) for tail, head, marked in told_arcs(report) if marked
        }


def told_arcs(report: Report) -> Iterable[Arc]:
    """All arcs of a report, those between its agreed vertices included."""
    told = read(report)
    assert told is not None
    yield from told.arcs
    whole = report.index == len(told.agreed)
    for place, (head, link) in enumerate(zip(told.agreed, told.links, strict=True)):
        if link and (place or whole):
            yield (told.agreed[place - 1] if place else ORIGIN), head, link == 3


def false_marks(lan: Lan) -> list[tuple[Tag, Tag]]:
    """Marks told by anyone between messages that were not contiguous on the channel."""
    order = [ORIGIN, *lan.tags()]
    place = {tag: index for index, tag in enumerate(order)}
    return [(tail, head) for tail, head in sorted(lan.told_marks()) if place[head] != place[tail] + 1]


def message(tag: Tag, **fields: Any) -> Message:
    """A 'message' PDU as a stranger may send it."""
    told: dict[str, Any] = {
        "previous": ORIGIN, "seen": ORIGIN, "stamp": 0, "index": 0, "incarnation": 0, "number": 0,
        "bodies": pack([b"x"]),
    }  # fmt: skip
    return Message(tag=tag, **(told | fields))
