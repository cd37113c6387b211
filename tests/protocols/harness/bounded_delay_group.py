"""A group of bounded-delay services on a network that delays, loses and repeats, and a judge of every arc."""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from random import Random

from antiphon.core.effects import Multicast, SetTimer
from antiphon.core.ids import site_names
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg.pdus import ORIGIN, Message, Report
from antiphon.protocols.dpg.services.bounded_delay import BoundedDelayService
from tests.protocols.harness.dpg_channel import FakeMember, message, report

Delay = Callable[[Random, Nanoseconds, int, int], Nanoseconds]
"""How long a PDU takes that is sent now from one to another."""


def usual(random: Random, now: Nanoseconds, source: int, target: int) -> Nanoseconds:
    return MILLISECOND_NS + random.randrange(MILLISECOND_NS)


class Group:
    """Members that send and report at random, each by a clock of its own."""

    def __init__(
        self,
        seed: int,
        members: int = 4,
        *,
        clocks: Callable[[int, Nanoseconds], Nanoseconds] = lambda _, now: now,
        delay: Delay = usual,
        loss: float = 0.0,
        repeat: float = 0.0,
        incarnation: int = 1,
        **options: object,
    ) -> None:
        self.random = Random(seed)
        self.now: Nanoseconds = 0
        self.clocks = clocks
        self.delay = delay
        self.loss = loss
        self.repeat = repeat
        self.names = site_names(members)
        self.sent: list[Message] = []
        self.sent_ns: dict[int, Nanoseconds] = {}
        self.marked_ns: dict[int, Nanoseconds] = {}
        """When a message was first known to follow another contiguously, anywhere."""
        self._looked = [0] * members
        self._events: list[tuple[Nanoseconds, int, Callable[[], object]]] = []
        self._scheduled = 0
        self._armed: dict[tuple[int, str], int] = {}
        self._numbers = [0] * members
        self._previous = [ORIGIN] * members
        self.channels = [
            FakeMember(name, [*self.names[:i], *self.names[i + 1 :]]) for i, name in enumerate(self.names)
        ]
        self.services = [BoundedDelayService(**options) for _ in range(members)]  # type: ignore[arg-type]
        self.seen: list[set[int]] = [set() for _ in range(members)]
        for index, (service, channel) in enumerate(zip(self.services, self.channels, strict=True)):
            channel.attach_to(service)
            service.start(self.clock(index), incarnation)

    def clock(self, index: int) -> Nanoseconds:
        return self.clocks(index, self.now)

    def later(self, after_ns: Nanoseconds, what: Callable[[], object]) -> None:
        self._scheduled += 1
        heappush(self._events, (self.now + max(0, after_ns), self._scheduled, what))

    def run(self, span_ns: Nanoseconds) -> None:
        end_ns = self.now + span_ns
        while self._events and self._events[0][0] <= end_ns:
            self.now, _, what = heappop(self._events)
            what()
        self.now = end_ns

    # What members do

    def take_part(self, *indices: int) -> None:
        for index in indices or range(len(self.services)):
            self.services[index].take_part(self.clock(index))

    def report_every(self, cycle_ns: Nanoseconds, *indices: int) -> None:
        for index in indices or range(len(self.services)):
            self.later(self.random.randrange(cycle_ns), partial(self._report, index, cycle_ns))

    def _report(self, index: int, cycle_ns: Nanoseconds) -> None:
        self.transmit(index, report(self.services[index].note(self.clock(index)), incarnation=1))
        self.later(cycle_ns // 2 + self.random.randrange(cycle_ns), partial(self._report, index, cycle_ns))

    def send_every(self, pause_ns: Nanoseconds, count: int, *indices: int) -> None:
        """This many messages altogether, at random moments, of random members."""
        now = 0
        for _ in range(count):
            now += self.random.randrange(2 * pause_ns)
            index = self.random.choice(indices or range(len(self.services)))
            self.later(now, partial(self.send, index))

    def send(self, index: int) -> Message:
        service, now = self.services[index], self.clock(index)
        tag = self.random.randrange(1, 1 << 60)
        told = message(
            tag,
            stamp=service.stamp(now),
            number=self._numbers[index],
            previous=self._previous[index],
            incarnation=1,
        )
        self._numbers[index] += 1
        self._previous[index] = tag
        self.sent.append(told)
        self.sent_ns[tag] = self.now
        self.seen[index].add(tag)
        service.hand_over(now, told)
        self._carry_out(index)
        return told

    # What happens to them

    def transmit(self, source: int, pdu: Pdu) -> None:
        for target in range(len(self.services)):
            copies = 1 + (self.random.random() < self.repeat)
            if target != source and self.random.random() >= self.loss:
                for _ in range(copies):
                    after_ns = self.delay(self.random, self.now, source, target)
                    self.later(after_ns, partial(self._arrive, source, target, pdu))

    def _arrive(self, source: int, target: int, pdu: Pdu) -> None:
        service, now, sender = self.services[target], self.clock(target), self.names[source]
        if isinstance(pdu, Message):
            fresh = pdu.tag not in self.seen[target]
            self.seen[target].add(pdu.tag)
            service.on_message(now, sender, pdu, after_loss=False, fresh=fresh)
        elif isinstance(pdu, Report):
            service.on_report(now, sender, pdu, after_loss=False)
        else:
            service.on_other_pdu(now, sender, pdu, after_loss=False)
        self._carry_out(target)

    def _carry_out(self, index: int) -> None:
        for _, arcs in self.channels[index].placed_tags[self._looked[index] :]:
            for _, head, marked in arcs:
                if marked:
                    self.marked_ns.setdefault(head, self.now)
        self._looked[index] = len(self.channels[index].placed_tags)
        for effect in self.channels[index].take_effects():
            if isinstance(effect, Multicast):
                self.transmit(index, effect.pdu)
            elif isinstance(effect, SetTimer):
                turn = self._armed[index, effect.name] = self._armed.get((index, effect.name), 0) + 1
                self.later(effect.after_ns, partial(self._fire, index, effect.name, turn))

    def _fire(self, index: int, name: str, turn: int) -> None:
        if turn == self._armed[index, name]:
            self.services[index].on_timer(self.clock(index), name)
            self._carry_out(index)

    # The judge

    def places(self) -> dict[int, int]:
        """Where each message stands in the true order."""
        ordered = sorted(self.sent, key=lambda told: (told.stamp, told.tag))
        return {ORIGIN: 0} | {told.tag: place for place, told in enumerate(ordered, 1)}

    def judge(self) -> tuple[int, int]:
        """How many marks there are, and how many of them are false; every arc has to be true."""
        places, marks, false = self.places(), 0, 0
        for channel in self.channels:
            for tail, head, marked in channel.arcs():
                assert places[tail] < places[head]
                marks += marked
                false += marked and places[head] != places[tail] + 1
        return marks, false

    def figures(self, name: str) -> list[int]:
        return [service.figures()[name] for service in self.services]
