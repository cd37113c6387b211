"""The agreed order as one member builds it: its graph, what it has incorporated, bodies, and deliveries.

Source: Konorski, sections 4.1 and 4.2, with the corrections that the package's opening lists. `L_DELIV` is
the graph's root, `E_DELIV` the head of the delivery queue.

A vertex is in the graph, or incorporated (then it has a tombstone), or unknown. Reports carry only its true
arcs: those that were given to the graph, never an order that was only chosen.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from antiphon.core.effects import Arrived, Deliver, Effect, Unavailable
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.agreement import Agreement
from antiphon.protocols.dpg.buffers import Held, KeptBodies, OrderingBuffers, Tombstones
from antiphon.protocols.dpg.graph import PrecedenceGraph
from antiphon.protocols.dpg.pdus import LARGEST, MOST_STREAMS, ORIGIN, DpgConfiguration, Message, Tag
from antiphon.protocols.dpg.peers import Incarnations
from antiphon.protocols.dpg.stability import Delivered, Stability
from antiphon.protocols.dpg.unconfirmed import Unconfirmed

TRUE_LINK: Final = 1
MARKED_LINK: Final = 3
MEMORY: Final = 4
"""Agreed tags that are remembered, in multiples of those that reports carry. Raising it costs memory."""
MOST_FORMER: Final = 4096
"""Senders whose next number is remembered although reports no longer carry it. Raising it costs memory."""
MOST_APART: Final = 1024
"""Places by which another member may count further than this one. Raising it lets a liar skip more."""
SEIZURE_LOOKS: Final = 32
"""Held bodies among which a buffer to seize is sought. Raising it costs time on overflow."""
NEVER_ASKED: Final = -(1 << 62)

NOT_HELD: Final = "No present member has the message at this place in the order."
NUMBER_TAKEN: Final = "A message with this number was delivered before, on the word of another member."
TOO_LATE: Final = "A message became known only after others that it precedes had been delivered."
Expected = tuple[int, int]
"""A sender's incarnation, and the number that is expected next."""


class Queued(msgspec.Struct, frozen=True, gc=False):
    """An incorporated vertex that is not delivered yet."""

    tag: Tag
    since_ns: Nanoseconds
    place: int


class Order:
    """Times are in the member's own clock, by which its cycles are counted."""

    def __init__(
        self, configuration: DpgConfiguration, stability: Stability, emit: Callable[[Effect], None]
    ) -> None:
        self._configuration = configuration
        self.stability: Final = stability
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
        """Vertices whose bodies are missing, and when each was last requested: the list LM."""
        self.newly_lost = False
        """Whether one of them was never requested."""
        self.queue: deque[Queued] = deque()
        self.lead = 0
        """Places that deliveries count beyond the index, so that all members count alike."""
        self.incarnations: Final = Incarnations()
        self.streams: dict[Site, Expected] = {}
        self._doubtful: dict[Site, Expected] = {}
        """Senders whose expected number only another member told, with what each sender has confirmed."""
        self._former: dict[Site, Expected] = {}
        """The expected numbers of senders that had to make room among the streams."""
        self._unconfirmed = Unconfirmed()
        self.names: OrderedDict[Tag, tuple[Site, int]] = OrderedDict()
        """The messages of the latest agreed tags, for effects that name them."""
        self.past: OrderedDict[Tag, tuple[tuple[Tag, bool], ...]] = OrderedDict()
        """True arcs into agreed vertices, except those from the agreed vertex before."""
        self._chosen = 0
        """The index of the latest vertex whose place was chosen: no true arc leads to it."""
        self._without_place: set[Tag] = set()
        """Held bodies whose vertices were unknown at the last sweep."""
        self._looked_ns: Nanoseconds = 0
        self._refused_ns: Nanoseconds | None = None
        """When there was last no room for a vertex since the graph was empty."""
        self.dummies = self.late = self.repeated = self.committed = self.refused = 0

    # What is known

    @property
    def needs_quorum(self) -> bool:
        return self._configuration.quorum > 1

    def is_known(self, tag: Tag) -> bool:
        return tag in self.graph.vertices or tag in self.tombstones

    def is_placed(self, tag: Tag) -> bool:
        """Whether it has its place in the order of this spell."""
        return tag in self.tombstones and not self.tombstones.is_skipped(tag)

    def is_beyond_reports(self, tag: Tag) -> bool:
        """Whether it is too old in the order for reports to carry it."""
        place = self.tombstones.index(tag)
        is_old = place is not None and place <= self.agreement.index - self._configuration.history
        return is_old and self.is_placed(tag)

    def fitting(self) -> list[Tag]:
        """The missing bodies for which there is room, those whose places come first.

        Without room it is the next body to be delivered: it may seize the buffer of a later one. To request
        more would fill the channel with bodies that find no buffer.
        """
        room = max(1, self.buffers.room)
        if len(self.lost) <= room:
            return list(self.lost)
        queued = [each.tag for each in self.queue if each.tag in self.lost]
        return list(dict.fromkeys((*queued, *self.lost)))[:room]

    def is_done(self) -> bool:
        """Whether everything known is delivered."""
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

    def is_behind(self, tag: Tag, latest: Tag) -> bool:
        """Whether a tag got its place, or was passed over, before another did or while it has none."""
        place, place_of_latest = self.tombstones.index(tag), self.tombstones.index(latest)
        if place is None or latest == ORIGIN:
            return False
        return place_of_latest is None or place <= place_of_latest

    def before(self, one: Tag, other: Tag) -> bool:
        """Whether the first tag is known to precede the second."""
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
        """Add a vertex. Returns whether there is room for it."""
        knobs = self._configuration
        is_queue_full = len(self.queue) >= knobs.graph_limit + knobs.ordering_buffers
        if len(self.graph) >= knobs.graph_limit or is_queue_full:
            return self._refuse(time_ns)
        is_lost = self.body(tag) is None
        if is_lost and len(self.lost) >= max(1, knobs.graph_limit // 2):
            return self._refuse(time_ns)  # invented tags must not take the room of messages that exist
        self.graph.add(tag, time_ns)
        if is_lost:
            self._lose(tag)
        return True

    def _refuse(self, time_ns: Nanoseconds) -> bool:
        self.refused += 1
        self._refused_ns = time_ns
        return False

    def lacks_vertices(self, time_ns: Nanoseconds) -> bool:
        """Whether a vertex may still be unknown because there was no room for it.

        Reports tell it again within Deliv_Cycle.
        """
        refused_ns = self._refused_ns
        return refused_ns is not None and time_ns - refused_ns < self._configuration.deliv_cycle_ns

    def _lose(self, tag: Tag) -> None:
        """The body is missing, and was not requested yet."""
        self.lost[tag] = NEVER_ASKED
        self.newly_lost = True

    def connect_as_sent(self, tag: Tag) -> None:
        """Draw the arcs that its sender knew: from its previous message, and from what it had seen."""
        held = self.body(tag)
        if held is not None and tag in self.graph:
            for tail in {held.message.previous, held.message.seen} - {ORIGIN, tag}:
                self.graph.connect(tail, tag)

    def store(self, sender: Site, message: Message, *, again: bool = False) -> Tag | None:
        """Keep a body that may still be delivered. Returns the tag of a body that had to give way for it."""
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
        """Drop bodies that found no place between two sweeps, sooner if buffers are scarce.

        They must not hold buffers for ever. If their place becomes known they can be requested again.
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
        """A successor of this vertex whose body is here, the latest of a few candidates."""
        for candidate in islice(reversed(self.buffers), SEIZURE_LOOKS):
            if self.before(tag, candidate):
                return candidate
        return None

    # Incorporation

    def incorporate_marked(self, time_ns: Nanoseconds) -> None:
        """Incorporate everything that follows the root contiguously."""
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
        others = [(tail, mark) for tail, mark in origins.items() if mark or not self.is_linked(tail)]
        link = 0 if marked is None else MARKED_LINK if marked else TRUE_LINK
        self._place(known_ns, tag, link, others)

    def follow(self, time_ns: Nanoseconds, tag: Tag, tails: Collection[Tag] = ()) -> None:
        """Give the message that follows the root contiguously its place, if nothing else is known.

        The same as to add it, to connect it by a marked arc and by arcs from `tails`, and to incorporate it.
        It builds no vertex.
        """
        self.graph.follow(tag)
        others = [(tail, False) for tail in tails if not self.is_linked(tail)] if tails else []
        self._place(time_ns, tag, MARKED_LINK, others)

    def is_linked(self, tail: Tag) -> bool:
        """Whether true links lead from this agreed vertex to the root (a skipped vertex has a place < 0)."""
        return self.tombstones.get(tail, -1) >= self._chosen

    def _place(self, time_ns: Nanoseconds, tag: Tag, link: int, others: list[tuple[Tag, bool]]) -> None:
        """Give a vertex the next place; `link` and `others` are the arcs to it that reports carry.

        `others` leaves out arcs that follow from the links between agreed vertices.
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
        self._emit(Unavailable(TOO_LATE) if held is None else held.unavailable(TOO_LATE))

    def pass_by(self, tag: Tag, head: Tag) -> None:
        """It precedes a placed vertex and becomes known only now: too late, or before this spell."""
        if self.tombstones.is_skipped(head):
            self.exclude(tag, self.agreement.index)
        else:
            self.skip(tag)

    # Delivery

    def deliver(
        self, time_ns: Nanoseconds, may_pass: Callable[[Nanoseconds, Tag], bool], reach: int = LARGEST
    ) -> None:
        """Deliver from the head of the queue up to the place `reach`.

        A missing body is awaited for Dummy_Cycle. After that it is passed over if it may be; else the queue
        waits (`awaited`).
        """
        queue = self.queue
        while queue and queue[0].place <= reach:
            head = queue[0]
            tag = head.tag
            held = self.own.pop(tag, None) or self.buffers.pop(tag, None) or self.kept.get(tag)
            if held is None:
                if tag not in self.lost:
                    self._lose(tag)  # it was held when its vertex became known, and is gone
                is_awaited = time_ns - head.since_ns < self._configuration.dummy_cycle_ns
                if is_awaited or not may_pass(time_ns, tag):
                    return
                self.dummies += 1
                self.lost.pop(tag, None)
                # It counts as passed over, not as delivered.
                self.tombstones.add(tag, head.place, skipped=True)
                self._emit(Unavailable(NOT_HELD))
            else:
                self._hand_up(time_ns, head, held)
            self.stability.reach(tag, head.place, held=held is not None)
            queue.popleft()

    def awaited(self, time_ns: Nanoseconds) -> Tag | None:
        """The head of the queue if its body is missing and its Dummy_Cycle is over."""
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
            self.repeated += 1  # it was sent again under a new tag, and both tags have places
            return
        if (self._unconfirmed or held.again) and self._is_unconfirmed(held):
            self.repeated += 1
            self._emit(held.unavailable(NUMBER_TAKEN))
            return
        if number > expected[1] and message.incarnation == expected[0]:
            self._fill_gap(time_ns, queued, held, expected)
        self.expect(sender, (message.incarnation, number + count), doubtful=held.again)
        place = queued.place + self.lead
        self._emit(Deliver(sender, number, bodies, None, message.incarnation, None, place))
        self.stability.note(Delivered(queued.place, sender, number, count))

    def _fill_gap(self, time_ns: Nanoseconds, queued: Queued, held: Held, expected: Expected) -> None:
        """A sender's message has its place before an earlier one that is held here: deliver that first.

        Only a liar makes such an order, as each message names the previous one. Without this the earlier
        message would never be delivered.
        """
        while expected < (held.message.incarnation, held.message.number):
            before = self._first_hand(held.sender, expected)
            if before is None:
                return
            expected = before.end()
            self._hand_up(time_ns, Queued(before.message.tag, time_ns, queued.place), before)

    def _first_hand(self, sender: Site, expected: Expected) -> Held | None:
        """The sender's next expected message, if it is held and came from the sender itself."""
        for each in (*self.own.values(), *self.buffers.values()):
            message = each.message
            if each.sender == sender and (message.incarnation, message.number) == expected and not each.again:
                return each
        return None

    def expect(self, sender: Site, expected: Expected, *, doubtful: bool = False) -> None:
        """Set a sender's next expected message; `doubtful` if only another member told it."""
        if sender not in self.streams:
            self._open_stream(sender)
        if doubtful:
            self._doubtful.setdefault(sender, self.streams.get(sender, (0, 0)))
        elif self._doubtful:
            self._doubtful.pop(sender, None)
        if self._unconfirmed and not doubtful:
            self._unconfirmed.reach(sender, *expected)
        self.streams[sender] = expected

    def _open_stream(self, sender: Site) -> None:
        """Make room for a sender, and restore what was expected of it before it made room itself."""
        if len(self.streams) >= MOST_STREAMS:
            lately = {name for name, _ in self.names.values()}
            forgotten = next((site for site in self.streams if site not in lately), next(iter(self.streams)))
            expected = self.streams.pop(forgotten)
            if len(self._former) >= MOST_FORMER:
                del self._former[next(iter(self._former))]
            self._former[forgotten] = self._doubtful.pop(forgotten, expected)
        if sender in self._former:
            self.streams[sender] = self._former.pop(sender)

    def _is_unconfirmed(self, held: Held) -> bool:
        """Whether one of its numbers was delivered unconfirmed. If not, a retransmitted body is noted."""
        incarnation, end = held.end()
        span = (incarnation, held.message.number, end)
        if self._unconfirmed.holds(held.sender, span):
            return True
        if held.again:
            self._unconfirmed.note(held.sender, span)
        return False

    def note_incarnation(self, sender: Site, incarnation: int) -> None:
        """A sender is heard under its latest incarnation: any later incarnation was invented."""
        if self.streams.get(sender, (0, 0))[0] > incarnation:
            borne_out = self._doubtful.pop(sender, (0, 0))
            if borne_out > (0, 0) and borne_out[0] <= incarnation:
                self.streams[sender] = borne_out
            else:
                del self.streams[sender]

    def _is_misled(self, held: Held) -> bool:
        """Whether only another member says that this was delivered, and the sender has not come so far.

        After an absence a sender hands all pending messages over at once, so its own messages are held here.
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

    def keep_up(self, ahead: int | None, lead: int) -> None:
        """Another member counts places that this one passed over: count as far from here on.

        At a common message this member is `ahead`; the other counts `lead` places beyond its index.
        """
        if ahead is not None and 0 < lead - ahead - self.lead <= MOST_APART:
            self.lead = min(lead - ahead, NUMBER_LIMIT // 2)

    # Beginning again

    def adopt(
        self,
        root: Tag,
        index: int,
        digest: int,
        agreed: Sequence[Tag],
        checkpoints: Sequence[int],
        kept: Iterable[Tag],
        waiting: Sequence[Tag],
        time_ns: Nanoseconds,
    ) -> None:
        """Adopt another member's order at its root; of the graph only `kept` lies after it.

        The last of the `agreed` tags, those `waiting` for a quorum, are to be delivered here, too.
        """
        graph = self.graph
        staying = {tag: graph.origins(tag) for tag in kept}
        for tag in {*graph, *agreed} - {*staying, *waiting}:
            self.exclude(tag, index)
        graph.reset(root)
        self.agreement.adopt(root, index, digest, agreed, checkpoints, len(waiting))
        for place, tag in enumerate(waiting, index - len(waiting) + 1):
            self.tombstones.add(tag, place)
            self.queue.append(Queued(tag, time_ns, place))
            if self.body(tag) is None:
                self._lose(tag)
        for tag in staying:
            graph.add(tag, time_ns)
        for tag, origins in staying.items():
            for tail, marked in origins:
                graph.connect(tail, tag, marked=marked)
        self.past.clear()
        self._chosen = index

    def exclude(self, tag: Tag, index: int) -> None:
        """It lies before this presence spell: it is not delivered here."""
        if tag not in self.tombstones:
            self.tombstones.add(tag, index, skipped=True)
        self.buffers.pop(tag, None)
        self.lost.pop(tag, None)

    def forget_graph(self) -> None:
        """Drop what was known but not delivered: a member that begins to listen has missed something."""
        for queued in self.queue:
            self.tombstones.pop(queued.tag, None)  # it has a place, but was not delivered
        for tag in (*self.graph, *(queued.tag for queued in self.queue)):
            self.lost.pop(tag, None)
            self.buffers.pop(tag, None)
        if self.queue and self.agreement.rewind(self.queue[0].place - 1):
            self._chosen = min(self._chosen, self.agreement.index)
        self.queue.clear()
        self.graph.reset(self.agreement.root)
        self._refused_ns = None

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
            "seizures": self.buffers.seizures,
            "lost_bodies": len(self.lost),
        }
