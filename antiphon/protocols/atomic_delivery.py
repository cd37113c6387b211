"""Atomic delivery: no member delivers a message before every destination present holds it.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 2.3: delivery at stability, which an
application needs if it must not act on what others may never get.

A layer around any protocol that emits `Stable` at every member for every message. It holds each `Deliver`
back until the batch is stable, and lets batches go in the order in which the protocol gave them: those of
each sender or, where the protocol keeps one order, all of them.

Guarantees, beside those of the protocol: *safe*, by the checker of that name.

A batch that will never become stable here, such as the last one of a sender that crashed and sends again, is
not delivered. Other members may have delivered it, so this
member's spell ends before its next delivery: the application gets `Unavailable`, and the trace `Absent` and
`Present`. When the protocol itself ends a spell, batches may still wait. They are delivered if they become
stable. They belong to the next spell then, and if that goes on with a gap after them, it is cut there.

Costs the time from delivery to stability. Memory is bounded by what the protocol lets its members send
without stability.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from antiphon.core.effects import Absent, Deliver, Effect, Present, Stable, Unavailable, Unstable
from antiphon.core.ids import Site
from antiphon.core.inputs import Input
from antiphon.core.protocol import LiveProtocol, PeerReport
from antiphon.core.time import Nanoseconds

DeliverWhen = Literal["ordered", "stable"]
DELIVER_WHEN: Final[tuple[DeliverWhen, ...]] = ("ordered", "stable")
"""When messages are delivered: once their place in the order is known, or once they are stable as well."""
MOST_EARLY: Final = 1024
"""Senders with a remembered range that is stable and not delivered yet. Raising it costs memory."""
PASSED: Final = (
    "Later messages are stable, and it was not known to be when this member lost touch with the group."
)
ORPHANED: Final = (
    "Later messages of its sender are stable, and it was not known to be when its sender crashed."
)


class _Held:
    """A batch that waits; its messages below `stable_to` are stable."""

    __slots__ = ("deliver", "end", "is_late", "needs_cut", "stable_to")

    def __init__(self, deliver: Deliver) -> None:
        self.deliver = deliver
        self.stable_to = deliver.number
        self.end = deliver.number + len(deliver.bodies)
        self.is_late = False
        """Whether the spell in which the protocol gave it is over."""
        self.needs_cut = False
        """Whether a spell must end before it, since something before it is not delivered here."""

    def cover(self, begin: int, end: int) -> None:
        """These numbers of its sender are stable. Ranges arrive in ascending order."""
        if begin <= self.stable_to:
            self.stable_to = max(self.stable_to, min(end, self.end))

    def is_passed(self, begin: int) -> bool:
        """Whether it can never become stable, since a range that begins later is."""
        return self.stable_to < min(begin, self.end)

    @property
    def is_stable(self) -> bool:
        return self.stable_to >= self.end


class _Lane:
    """Batches that leave in the order in which they came."""

    __slots__ = ("cut_next", "follows_late", "next_place", "queue")

    def __init__(self) -> None:
        self.queue: deque[_Held] = deque()
        self.next_place: int | None = None
        """The place, or else the number, that follows the latest batch without a gap."""
        self.follows_late = False
        """Whether the next batch is the first of a spell that late batches may have begun."""
        self.cut_next = False
        """Whether a batch that was given up was the last of the lane."""

    def add(self, held: _Held) -> None:
        place = held.deliver.number if held.deliver.place is None else held.deliver.place
        held.needs_cut = self.cut_next or (self.follows_late and place != self.next_place)
        self.follows_late = self.cut_next = False
        self.next_place = held.end if held.deliver.place is None else place + 1
        self.queue.append(held)

    def end_spell(self) -> None:
        """What waits is late from now on."""
        self.follows_late = bool(self.queue)
        for held in self.queue:
            held.is_late = True

    def drop(self, held: _Held) -> None:
        """Give a batch up; a spell ends before the next one."""
        after = self.queue.index(held) + 1
        if after < len(self.queue):
            self.queue[after].needs_cut = True
        else:
            self.cut_next = True
        self.queue.remove(held)

    def passed(self) -> list[_Held]:
        """Late batches that are not stable, where a later one is. Late batches come first."""
        if not self.queue or not self.queue[0].is_late:
            return []
        waiting = list(self.queue)
        while waiting and not waiting[-1].is_stable:
            waiting.pop()
        return [held for held in waiting if held.is_late and not held.is_stable]


class AtomicDelivery:
    """A member whose application gets stable messages only."""

    def __init__(self, protocol: LiveProtocol, *, one_order: bool) -> None:
        self._protocol = protocol
        self._one_order = one_order
        self._lanes: dict[Site | None, _Lane] = {}
        """A lane for each sender or, under None, for the one order."""
        self._by_sender: dict[Site, deque[_Held]] = {}
        """The batches of all lanes that wait."""
        self._early: OrderedDict[Site, tuple[int, int]] = OrderedDict()
        """The latest range of a sender that was stable when none of its batches was waiting for it."""

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        effects: list[Effect] = []
        for effect in self._protocol.handle(now, event):
            if isinstance(effect, Deliver):
                self._hold(effect)
                effects += self._release(effect.sender)
                continue
            effects.append(effect)
            if isinstance(effect, Stable):
                effects += self._cover(effect)
                effects += self._release(effect.sender)
            elif isinstance(effect, Unstable):
                effects += self._give_up(effect)
            elif isinstance(effect, Absent):
                self._end_spell()
        return effects

    def peers(self, now: Nanoseconds) -> Mapping[Site, PeerReport]:
        return self._protocol.peers(now)

    def incarnation_of(self, site: Site) -> int:
        return self._protocol.incarnation_of(site)

    @property
    def waiting(self) -> int:
        """Batches that are in their place and not known to be stable."""
        return sum(map(len, self._by_sender.values()))

    def _lane(self, sender: Site) -> _Lane:
        return self._lanes.setdefault(None if self._one_order else sender, _Lane())

    def _hold(self, deliver: Deliver) -> None:
        held = _Held(deliver)
        held.cover(*self._early.get(deliver.sender, (0, 0)))
        self._by_sender.setdefault(deliver.sender, deque()).append(held)
        self._lane(deliver.sender).add(held)

    def _cover(self, stable: Stable) -> Iterator[Effect]:
        """These messages are stable; those before them that are not never will be: their sender crashed."""
        begin, end = stable.number, stable.number + stable.count
        lane = self._lane(stable.sender)
        for held in [held for held in self._by_sender.get(stable.sender, ()) if held.is_passed(begin)]:
            yield self._drop(lane, held, ORPHANED)
        waiting = self._by_sender.get(stable.sender, ())
        for held in waiting:
            held.cover(begin, end)
        if not waiting or waiting[-1].end < end:
            before = self._early.pop(stable.sender, (begin, begin))
            self._early[stable.sender] = (before[0] if before[1] == begin else begin, end)
            if len(self._early) > MOST_EARLY:
                self._early.popitem(last=False)

    def _release(self, sender: Site) -> Iterator[Effect]:
        """The batches whose turn it is, after news of a sender."""
        lane = self._lane(sender)
        for held in lane.passed():
            yield self._drop(lane, held, PASSED)
        while lane.queue and lane.queue[0].is_stable:
            held = lane.queue.popleft()
            self._forget(held)
            if held.needs_cut:
                yield from (Absent(), Present())
            yield held.deliver

    def _give_up(self, unstable: Unstable) -> Iterator[Effect]:
        """These messages never become stable: no batch of them is delivered here."""
        begin, end = unstable.number, unstable.number + unstable.count
        lane = self._lane(unstable.sender)
        for held in list(self._by_sender.get(unstable.sender, ())):
            if held.deliver.number < end and begin < held.end:
                yield self._drop(lane, held, unstable.reason)
        yield from self._release(unstable.sender)

    def _drop(self, lane: _Lane, held: _Held, reason: str) -> Unavailable:
        lane.drop(held)
        self._forget(held)
        return Unavailable(reason, held.deliver.sender, held.deliver.number, len(held.deliver.bodies))

    def _forget(self, held: _Held) -> None:
        waiting = self._by_sender[held.deliver.sender]
        waiting.remove(held)
        if not waiting:
            del self._by_sender[held.deliver.sender]

    def _end_spell(self) -> None:
        """Lanes in which nothing waits begin anew."""
        self._lanes = {name: lane for name, lane in self._lanes.items() if lane.queue}
        for lane in self._lanes.values():
            lane.end_spell()
