"""The agreed order as one member builds it: its graph, what it has incorporated, bodies, and deliveries.

Source: Konorski, sections 4.1 and 4.2, with the corrections that the package's opening lists. `L_DELIV` is
the graph's root, `E_DELIV` the head of the delivery queue.

A vertex is in the graph, or incorporated (it has a tombstone then), or unknown. What reports may tell of it
are its true arcs alone: those that were given to the graph, never an order that was only chosen.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

import msgspec

from antiphon.core.effects import Arrived, Deliver, Effect, Stable, Unavailable
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.agreement import Agreement
from antiphon.protocols.dpg.buffers import Held, KeptBodies, OrderingBuffers, Tombstones
from antiphon.protocols.dpg.company import Incarnations
from antiphon.protocols.dpg.foretold import Foretold
from antiphon.protocols.dpg.graph import PrecedenceGraph
from antiphon.protocols.dpg.pdus import MOST_STREAMS, ORIGIN, DpgConfiguration, Message, Tag

TRUE_LINK: Final = 1
MARKED_LINK: Final = 3
MEMORY: Final = 4
"""How many times what reports usually tell is remembered of the order. Raising it costs memory."""
MOST_FORMER: Final = 4096
"""Senders whose next number is remembered although reports tell it no more. Raising it costs memory."""
SEIZURE_LOOKS: Final = 32
"""Held bodies that are looked at for one that may give way."""
NEVER_ASKED: Final = -(1 << 62)

NOBODY_HAS_IT: Final = "Nobody present has a message that stands here in the order."
NUMBER_TAKEN: Final = "Another told of a message under this one's number before, and that was delivered."
TOO_LATE: Final = "A message became known only after others that it precedes had been delivered."
Expected = tuple[int, int]
"""Of a sender: its incarnation, and the number that is expected next."""


class Queued(msgspec.Struct, frozen=True, gc=False):
    """An incorporated vertex that is not delivered yet."""

    tag: Tag
    since_ns: Nanoseconds
    place: int


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A delivered batch that is not known to be everywhere."""

    place: int
    sender: Site
    number: int
    messages: int


class Order:
    """Times are in the member's own clock, by which its cycles are counted."""

    def __init__(self, configuration: DpgConfiguration, emit: Callable[[Effect], None]) -> None:
        self._configuration = configuration
        self._emit = emit
        self.graph = PrecedenceGraph()
        self.agreement = Agreement(MEMORY * configuration.history)
        self.tombstones = Tombstones(configuration.tombstones)
        self.buffers = OrderingBuffers(configuration.ordering_buffers)
        self.kept = KeptBodies(
            configuration.kept_bodies, configuration.kept_bytes, configuration.remove_cycle_ns
        )
        self.own: dict[Tag, Held] = {}
        """Own messages handed over and not yet delivered."""
        self.lost: dict[Tag, Nanoseconds] = {}
        """Vertices whose bodies are missing, each with when it was asked for last: the list LM."""
        self.newly_lost = False
        """Whether there is one among them that was never asked for."""
        self.queue: deque[Queued] = deque()
        self.incarnations: Final = Incarnations()
        self.streams: dict[Site, Expected] = {}
        self._doubtful: dict[Site, Expected] = {}
        """Senders whose expected number is another's word, each with what it has borne out itself."""
        self._former: dict[Site, Expected] = {}
        """What was expected of senders that had to make room among the streams."""
        self._foretold = Foretold()
        self.names: OrderedDict[Tag, tuple[Site, int]] = OrderedDict()
        """The messages behind the latest agreed tags, to be able to name them."""
        self.past: OrderedDict[Tag, tuple[tuple[Tag, bool], ...]] = OrderedDict()
        """True arcs into agreed vertices, beside those from the agreed one before."""
        self._chosen = 0
        """The index of the latest vertex that got its place by choice: nothing true leads to it."""
        self._unstable: deque[Delivered] = deque()
        self._without_place: set[Tag] = set()
        """Bodies held whose vertices were unknown when they were looked at last."""
        self._looked_ns: Nanoseconds = 0
        self.dummies = self.late = self.repeated = self.committed = self.refused = 0

    # What is known

    def is_known(self, tag: Tag) -> bool:
        return tag in self.graph.vertices or tag in self.tombstones

    def is_placed(self, tag: Tag) -> bool:
        """Whether it has its place in the order of this spell."""
        return tag in self.tombstones and not self.tombstones.is_skipped(tag)

    def is_beyond_reports(self, tag: Tag) -> bool:
        """Whether it got its place so long ago that reports tell no more of it."""
        place = self.tombstones.index(tag)
        is_old = place is not None and place <= self.agreement.index - self._configuration.history
        return is_old and self.is_placed(tag)

    def is_done(self) -> bool:
        """Whether nothing is known that is not delivered."""
        return not (self.queue or self.graph.vertices)

    def body(self, tag: Tag) -> Held | None:
        """A message that is held here, delivered or not."""
        return self.own.get(tag) or self.buffers.get(tag) or self.kept.get(tag)

    def has_sent(self, site: Site) -> bool:
        """Whether a message of this site is held here or was delivered."""
        return site in self.streams or any(held.sender == site for held in self.buffers.values())

    def was_delivered(self, tag: Tag) -> bool:
        """Whether it has been delivered here, as far as that is remembered."""
        return self.is_placed(tag) and tag not in self.lost

    def was_passed(self, tag: Tag) -> bool:
        """Whether it was passed over here, or lies before our spell."""
        return self.tombstones.is_skipped(tag)

    def before(self, one: Tag, other: Tag) -> bool:
        """Whether one is known to precede the other."""
        place, place_of_other = self.tombstones.index(one), self.tombstones.index(other)
        if one == ORIGIN:
            return True
        if place is not None:
            return other in self.graph if place_of_other is None else place < place_of_other
        if place_of_other is not None or one not in self.graph or other not in self.graph:
            return False
        return self.graph.precedes(one, other)

    # Taking in

    def add(self, time_ns: Nanoseconds, tag: Tag) -> bool:
        """A vertex more, if there is room for it; what is known of its body says what it follows."""
        knobs = self._configuration
        is_queue_full = len(self.queue) >= knobs.graph_limit + knobs.ordering_buffers
        if len(self.graph) >= knobs.graph_limit or is_queue_full:
            self.refused += 1
            return False
        is_lost = self.body(tag) is None
        if is_lost and len(self.lost) >= max(1, knobs.graph_limit // 2):
            self.refused += 1  # who invents tags must not take the room of messages that exist
            return False
        self.graph.add(tag, time_ns)
        if is_lost:
            self._lose(tag)
        return True

    def _lose(self, tag: Tag) -> None:
        """The body is missing, and nobody was asked for it yet."""
        self.lost[tag] = NEVER_ASKED
        self.newly_lost = True

    def connect_as_sent(self, tag: Tag) -> None:
        """The arcs that its sender vouched for: from its own message before, and from what it had seen."""
        held = self.body(tag)
        if held is not None and tag in self.graph:
            for tail in {held.message.previous, held.message.seen} - {ORIGIN, tag}:
                self.graph.connect(tail, tag)

    def store(self, sender: Site, message: Message, *, again: bool = False) -> Tag | None:
        """Keep a body that may still be delivered; what had to give way for it is lost, and returned."""
        tag = message.tag
        if tag in self.own or tag in self.buffers:
            return None
        if tag in self.tombstones and tag not in self.lost:
            return None
        given_up = self.buffers.put(tag, Held(sender, message, again), lambda: self._seizable(tag))
        if given_up != tag:
            self.lost.pop(tag, None)
            self._emit(Arrived(sender, message.number, message.bodies.messages))
        if given_up is not None and self.is_known(given_up):
            self._lose(given_up)
        return given_up

    def sweep(self, time_ns: Nanoseconds) -> None:
        """Let bodies go for which no place was found between two looks, sooner if buffers are scarce.

        Nobody will tell where they stand, or we can ask for them again: they must not hold buffers for ever.
        """
        knobs = self._configuration
        is_scarce = 2 * len(self.buffers) > knobs.ordering_buffers
        if time_ns - self._looked_ns < (knobs.deliv_cycle_ns if is_scarce else knobs.dummy_cycle_ns):
            return
        self._looked_ns = time_ns
        without = {tag for tag in self.buffers if not self.is_known(tag)}
        for tag in without & self._without_place:
            del self.buffers[tag]
        self._without_place = without - self._without_place

    def _seizable(self, tag: Tag) -> Tag | None:
        """A successor of this vertex whose body is here, the latest that a short look finds."""
        for candidate in islice(reversed(self.buffers), SEIZURE_LOOKS):
            if self.before(tag, candidate):
                return candidate
        return None

    # Incorporation

    def incorporate_marked(self, time_ns: Nanoseconds) -> None:
        """All that is known to follow the root at once, one after another."""
        graph = self.graph
        while (tag := graph.first()) is not None:
            self.incorporate(time_ns, tag)

    def commit(self, time_ns: Nanoseconds) -> None:
        """Deliv_Cycle is over: the root's immediate successors follow it by decreasing tags."""
        self.committed += 1
        for tag in sorted(self.graph.front(), reverse=True):
            self.incorporate(time_ns, tag)

    def incorporate(self, time_ns: Nanoseconds, tag: Tag) -> None:
        """Give a vertex of the front the next place."""
        before = self.graph.root
        known_ns = self.graph.since(tag) if tag in self.lost else time_ns  # it has been asked for since
        origins = dict(self.graph.take(tag))
        marked = origins.pop(before, None)
        if marked is None:
            self._chosen = self.agreement.index + 1
        others = [(tail, mark) for tail, mark in origins.items() if mark or not self._is_linked(tail)]
        link = 0 if marked is None else MARKED_LINK if marked else TRUE_LINK
        self._place(known_ns, tag, link, others)

    def follow(self, time_ns: Nanoseconds, tag: Tag, message: Message) -> None:
        """Give what follows the root with nothing between its place at once, if nothing else is known.

        The same as to add it, to connect it as it was sent and by a marked arc, and to incorporate it.
        """
        before = self.graph.root
        self.graph.follow(tag)
        tails = {message.previous, message.seen} - {ORIGIN, tag, before}
        others = [(tail, False) for tail in tails if not self._is_linked(tail)]
        self._place(time_ns, tag, MARKED_LINK, others)

    def _is_linked(self, tail: Tag) -> bool:
        """Whether true links lead from this agreed vertex to the root (the place of a skipped one is < 0)."""
        return self.tombstones.get(tail, -1) >= self._chosen

    def _place(self, time_ns: Nanoseconds, tag: Tag, link: int, others: list[tuple[Tag, bool]]) -> None:
        """The next place, with what reports tell of the arcs to it: from the one before, and from others.

        Of the others only those count that do not follow from the links between agreed vertices.
        """
        agreement = self.agreement
        if others:
            self.past[tag] = tuple(others)
            if len(self.past) > self._configuration.history:
                self.past.popitem(last=False)
        agreement.append(tag, link)
        self.tombstones.add(tag, agreement.index)
        self.queue.append(Queued(tag, time_ns, agreement.index))

    def skip(self, tag: Tag) -> None:
        """A vertex came too late for its place: order is kept, and atomicity is not."""
        self.late += 1
        if tag in self.graph:
            self.graph.drop(tag)
        self.tombstones.add(tag, self.agreement.index, skipped=True)
        self.lost.pop(tag, None)
        held = self.buffers.pop(tag, None) or self.own.pop(tag, None)
        name = (None, None) if held is None else (held.sender, held.message.number)
        self._emit(Unavailable(TOO_LATE, *name))

    def pass_by(self, tag: Tag, head: Tag) -> None:
        """It precedes one that has its place, and becomes known only now: too late, or before our spell."""
        if self.tombstones.is_skipped(head):
            self.bury(tag, self.agreement.index)
        else:
            self.skip(tag)

    # Delivery

    def deliver(self, time_ns: Nanoseconds, may_pass: Callable[[Nanoseconds, Tag], bool]) -> None:
        """Hand up from the head of the queue on; a body that nobody has is waited for, but not for ever.

        When its time is over it is passed over if it may be; else everything waits (`awaited`).
        """
        queue = self.queue
        while queue:
            head = queue[0]
            tag = head.tag
            held = self.own.pop(tag, None) or self.buffers.pop(tag, None) or self.kept.get(tag)
            if held is None:
                if tag not in self.lost:
                    self._lose(tag)  # it was kept when its vertex became known, and is no more
                is_awaited = time_ns - head.since_ns < self._configuration.dummy_cycle_ns
                if is_awaited or not may_pass(time_ns, tag):
                    return
                self.dummies += 1
                self.lost.pop(tag, None)
                # It was not delivered, and nobody is told so.
                self.tombstones.add(tag, head.place, skipped=True)
                self._emit(Unavailable(NOBODY_HAS_IT))
            else:
                self._hand_up(time_ns, head, held)
            queue.popleft()

    def awaited(self, time_ns: Nanoseconds) -> Tag | None:
        """What lacks its body and has been waited for long enough."""
        if not self.queue:
            return None
        head = self.queue[0]
        is_over = time_ns - head.since_ns >= self._configuration.dummy_cycle_ns
        return head.tag if is_over and head.tag in self.lost else None

    def _hand_up(self, time_ns: Nanoseconds, queued: Queued, held: Held) -> None:
        tag, sender, message = queued.tag, held.sender, held.message
        number, bodies = message.number, message.bodies
        count = bodies.messages
        self.kept.keep(time_ns, tag, held)
        self.names[tag] = (sender, number)
        if len(self.names) > MEMORY * self._configuration.history:
            self.names.popitem(last=False)
        expected = self.streams.get(sender) or self._former.get(sender, (0, 0))
        if (message.incarnation, number) < expected and not self._is_misled(held):
            self.repeated += 1  # it was sent again under a new tag, and both have got a place
            return
        if (self._foretold or held.again) and self._is_foretold(held):
            self.repeated += 1
            self._emit(Unavailable(NUMBER_TAKEN, sender, number))
            return
        if number > expected[1] and message.incarnation == expected[0]:
            self._fill_gap(time_ns, queued, held, expected)
        self.expect(sender, (message.incarnation, number + count), doubtful=held.again)
        self._emit(Deliver(sender, number, bodies, None, message.incarnation))
        self._unstable.append(Delivered(queued.place, sender, number, count))
        if len(self._unstable) > self._configuration.tombstones:
            self._unstable.popleft()

    def _fill_gap(self, time_ns: Nanoseconds, queued: Queued, held: Held, expected: Expected) -> None:
        """A sender's message has its place before an earlier one that is held here: deliver that one first.

        No honest order is like this, as each message names the one before it. The sender's word counts more
        than that of a liar, for whose sake a message would be delivered nowhere.
        """
        while expected < (held.message.incarnation, held.message.number):
            before = self._first_hand(held.sender, expected)
            if before is None:
                return
            expected = before.end()
            self._hand_up(time_ns, Queued(before.message.tag, time_ns, queued.place), before)

    def _first_hand(self, sender: Site, expected: Expected) -> Held | None:
        """The message of a sender that is expected next, if it is held and came from the sender itself."""
        for each in (*self.own.values(), *self.buffers.values()):
            message = each.message
            if each.sender == sender and (message.incarnation, message.number) == expected and not each.again:
                return each
        return None

    def expect(self, sender: Site, expected: Expected, *, doubtful: bool = False) -> None:
        """A sender's next message; `doubtful` if only another says so."""
        if sender not in self.streams:
            self._open_stream(sender)
        if doubtful:
            self._doubtful.setdefault(sender, self.streams.get(sender, (0, 0)))
        elif self._doubtful:
            self._doubtful.pop(sender, None)
        if self._foretold and not doubtful:
            self._foretold.reach(sender, *expected)
        self.streams[sender] = expected

    def _open_stream(self, sender: Site) -> None:
        """Make room for a sender, and take up what was expected of it before it had to make room itself."""
        if len(self.streams) >= MOST_STREAMS:
            lately = {name for name, _ in self.names.values()}
            forgotten = next((site for site in self.streams if site not in lately), next(iter(self.streams)))
            expected = self.streams.pop(forgotten)
            if len(self._former) >= MOST_FORMER:
                del self._former[next(iter(self._former))]
            self._former[forgotten] = self._doubtful.pop(forgotten, expected)
        if sender in self._former:
            self.streams[sender] = self._former.pop(sender)

    def _is_foretold(self, held: Held) -> bool:
        """Whether one of its numbers was delivered on another's word; if not, one that is such a word is."""
        incarnation, end = held.end()
        span = (incarnation, held.message.number, end)
        if self._foretold.holds(held.sender, span):
            return True
        if held.again:
            self._foretold.note(held.sender, span)
        return False

    def note_incarnation(self, sender: Site, incarnation: int) -> None:
        """A sender is heard itself, and is the latest: what was told of a later one was invented."""
        if self.streams.get(sender, (0, 0))[0] > incarnation:
            borne_out = self._doubtful.pop(sender, (0, 0))
            if borne_out > (0, 0) and borne_out[0] <= incarnation:
                self.streams[sender] = borne_out
            else:
                del self.streams[sender]

    def _is_misled(self, held: Held) -> bool:
        """Whether another told that this was delivered already, and its sender has not come so far itself.

        What is handed over again after an absence is handed over all at once: the sender's own word is here.
        """
        sender, message = held.sender, held.message
        borne_out = self._doubtful.get(sender)
        if borne_out is None or (message.incarnation, message.number) < borne_out:
            return False
        if message.incarnation < self.incarnations.get(sender, 0):
            return False
        bodies = (held, *self.own.values(), *self.buffers.values(), *self.kept.values())
        told = (each.end() for each in bodies if each.sender == sender and not each.again)
        return self.streams[sender] > max(told, default=(0, 0))

    def settle(self, index: int) -> None:
        """Everyone heard of lately has come so far in the order."""
        unstable = self._unstable
        while unstable and unstable[0].place <= index:
            settled = unstable.popleft()
            self._emit(Stable(settled.sender, settled.number, settled.messages))

    def messages_since(self, index: int) -> int:
        """Messages delivered here behind a place, as far as not everyone has come there."""
        return sum(delivered.messages for delivered in list(self._unstable) if delivered.place > index)

    # Beginning again

    def begin_again(
        self, root: Tag, index: int, digest: int, agreed: list[Tag], kept: Iterable[Tag], time_ns: Nanoseconds
    ) -> None:
        """Take up another's order at its root; of what was heard meanwhile only `kept` lies after it."""
        graph = self.graph
        staying = {tag: graph.origins(tag) for tag in kept}
        for tag in list(graph):
            if tag not in staying:
                self.bury(tag, index)
        for tag in agreed:
            self.bury(tag, index)
        graph.reset(root)
        self.agreement.adopt(root, index, digest, agreed)
        for tag in staying:
            graph.add(tag, time_ns)
        for tag, origins in staying.items():
            for tail, marked in origins:
                graph.connect(tail, tag, marked=marked)
        self.past.clear()
        self._chosen = index
        self._unstable.clear()

    def bury(self, tag: Tag, index: int) -> None:
        """It lies before our presence spell: it is not to be delivered here."""
        if tag not in self.tombstones:
            self.tombstones.add(tag, index, skipped=True)
        self.buffers.pop(tag, None)
        self.lost.pop(tag, None)

    def forget_graph(self) -> None:
        """What was known but not incorporated is void: whoever begins to listen has missed something."""
        for queued in self.queue:
            self.tombstones.pop(queued.tag, None)  # it has a place, but was not delivered
        for tag in (*self.graph, *(queued.tag for queued in self.queue)):
            self.lost.pop(tag, None)
            self.buffers.pop(tag, None)
        self.queue.clear()
        self.graph.reset(self.graph.root)
        self._unstable.clear()

    def figures(self) -> dict[str, int]:
        """What a user may want to watch."""
        return {
            "dummies": self.dummies,
            "late": self.late,
            "repeated": self.repeated,
            "committed": self.committed,
            "contradictions": self.graph.contradictions,
            "vertices": len(self.graph),
            "ordering_buffers": len(self.buffers),
            "overflows": self.buffers.overflows,
            "lost_bodies": len(self.lost),
        }
