"""Gaps: which member to ask for what is missing, and how to answer. `ways` has the ways as data."""

from math import log10
from typing import Final, NamedTuple

from antiphon.core.effects import Effect, Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group, Peer
from antiphon.protocols.fifo.pdus import Ask, Copy
from antiphon.protocols.fifo.streams import Stream
from antiphon.protocols.fifo.surroundings import Surroundings

REPAIR: Final = "repair"
ANSWER: Final = "answer"
PASS: Final = "pass"
MOST_COPIES: Final = 64
"""Batches in the answer to one request; the rest is asked for again. Raising it costs bursts of copies."""
MOST_COPIED_BYTES: Final = 1 << 20
"""Bytes in the answer to one request, or in one pass. Raising it costs the same."""
LONGEST_PAUSE: Final = 3
"""Pauses between requests double, every second time, up to this many times. Raising it costs latency after a
long loss."""
MOST_ANSWERS: Final = 1024
"""Delayed answers that are remembered. Raising it costs memory."""
REQUEST_DISTANCES: Final = 2
"""By distance: a request waits for between this and twice this multiple of the time that a message takes from
its sender (C1 and C2 of SRM). Raising it costs latency, and saves requests."""
HOLD_DISTANCES: Final = 3
"""By distance: a copy is not repeated for this multiple of the time that it takes to the asker, as in SRM.
Raising it costs latency if the copy is lost."""
FARTHEST: Final = 8
"""By distance: no member is taken to be farther away than this part of `suspect_after_ns`. Raising it costs
requests between members that are very far apart; lowering it, latency when a member lies."""
PASS_PAUSES: Final = 4
"""With `passes`: pauses before a member asks again without having heard from the sender. Raising it costs
latency when a request is lost."""


class Answer(NamedTuple):
    """A batch that is to be repeated, unless another member repeats it first."""

    due_ns: Nanoseconds
    to: tuple[Site, ...] | None
    """None means all members."""


class Repair:
    """Asks for what is missing here, and answers the requests of others."""

    def __init__(self, context: Context, group: Group) -> None:
        self._context = context
        self._group = group
        self._way = context.configuration.way
        self._surroundings = Surroundings(context, group)
        self._gaps: dict[tuple[Site, int], Stream] = {}
        self._answers: dict[tuple[Site, int, int], Answer] = {}
        self._pass: set[int] = set()
        """With `passes`: the numbers of our batches that were asked for since the last pass."""

    def reset(self) -> None:
        """Forget requests and answers that were due: the timers stood still during an absence."""
        for stream in self._gaps.values():
            stream.ask_ns = None
        self._gaps.clear()
        self._answers.clear()
        self._pass.clear()

    # Asking

    @property
    def is_waiting(self) -> bool:
        """Whether something is missing here."""
        return bool(self._gaps)

    def notice(self, now: Nanoseconds, stream: Stream) -> None:
        """Something of a stream is missing; a fresh gap may be mere reordering."""
        if self._way.asks == "nobody":
            return
        if stream.ask_ns is None or (stream.attempts and stream.expected >= stream.asked_to):
            stream.attempts = 0
            first_ns = self._context.configuration.gap_ns
            self._schedule(now, stream, self._by_distance(stream.site) if self._way.by_distance else first_ns)

    def on_gap(self, now: Nanoseconds, stream: Stream) -> None:
        """A batch came that leaves a gap: with `passes` the sender first says that its block is over."""
        if not self._way.at_end:
            self.notice(now, stream)

    def on_progress(self, now: Nanoseconds, stream: Stream) -> None:
        """A gap was filled, so the rest is asked for before long."""
        if stream.attempts and stream.ask_ns is not None:
            stream.attempts = 1
            pause_ns = self._pause_ns(stream)
            if stream.ask_ns > now + 2 * pause_ns:
                self._schedule(now, stream, pause_ns)

    def _schedule(self, now: Nanoseconds, stream: Stream, after_ns: Nanoseconds) -> None:
        stream.ask_ns = now + self._spread(after_ns)
        self._gaps[stream.site, stream.incarnation] = stream
        self._context.timers.arm(now, REPAIR, stream.ask_ns - now)

    def fire(self, now: Nanoseconds) -> None:
        """Ask for what is due, and arm the timer for the rest."""
        next_ns: Nanoseconds | None = None
        for key, stream in list(self._gaps.items()):
            if stream.expected >= stream.missing_to or self._group.find_stream(*key) is not stream:
                stream.ask_ns = None
                del self._gaps[key]
                continue
            assert stream.ask_ns is not None, "a noticed gap has its time"
            if stream.ask_ns <= now:
                self._ask(stream)
                self._back_off(now, stream)
            next_ns = stream.ask_ns if next_ns is None else min(next_ns, stream.ask_ns)
        if next_ns is not None:
            self._context.timers.arm(now, REPAIR, max(1, next_ns - now))

    def _back_off(self, now: Nanoseconds, stream: Stream) -> None:
        factor = 1 << min(stream.attempts // 2, LONGEST_PAUSE)
        stream.attempts += 1
        stream.ask_ns = now + self._spread(factor * self._pause_ns(stream))

    def _pause_ns(self, stream: Stream) -> Nanoseconds:
        """The pause before a request is repeated."""
        repair_ns = self._context.configuration.repair_ns
        if self._way.by_distance:
            return 2 * self._by_distance(stream.site)
        return PASS_PAUSES * repair_ns if self._way.at_end else repair_ns

    def _by_distance(self, site: Site) -> Nanoseconds:
        return max(1, REQUEST_DISTANCES * self._distance_ns(site))

    def _distance_ns(self, site: Site) -> Nanoseconds:
        """The time that a message takes from or to a member; a guess until it was measured."""
        peer = self._group.peers.get(site)
        known_ns = None if peer is None else peer.distance_ns
        configuration = self._context.configuration
        farthest_ns = configuration.suspect_after_ns // FARTHEST
        return configuration.answer_ns if known_ns is None else min(known_ns, farthest_ns)

    def _spread(self, span_ns: Nanoseconds) -> Nanoseconds:
        """Multicast requests come at random times, so that the first suppresses the others."""
        return span_ns + self._context.random.randrange(span_ns) if self._way.in_public else span_ns

    def _ask(self, stream: Stream) -> None:
        spans = stream.spans()
        request = self._request(stream, Ask(stream.site, stream.incarnation, spans)) if spans else None
        if request is not None:
            stream.asked_to = spans[-1]
            self._context.counts["asked"] += 1
            self._context.emit(request)

    def _request(self, stream: Stream, ask: Ask) -> Effect | None:
        """The request, to those that are asked this time."""
        asks = self._way.asks
        if asks == "all":
            return Multicast(ask)
        if asks == "group" and not stream.attempts % 2:
            neighbours = self._surroundings.neighbours()
            if neighbours:
                return Multicast(ask, neighbours)
        to = self._choose_superior(stream) if asks == "tree" else None
        to = to or self._choose_holder(stream)
        return None if to is None else Send(to, ask)

    def _choose_superior(self, stream: Stream) -> Site | None:
        """The parent, then the member above it, and so on; None when it is the sender's turn."""
        above = [site for site in self._surroundings.superiors() if site != stream.site]
        turn = stream.attempts % (len(above) + 1)
        return above[turn] if turn < len(above) else None

    def _choose_holder(self, stream: Stream) -> Site | None:
        """The sender; where others keep copies, another one in its place if it is gone or keeps none.

        With `hybrid` every second request goes to another member, preferably a known holder.
        """
        peer = self._group.peers[stream.site]
        is_current = peer.incarnation == stream.incarnation
        own = peer.own_extent()
        gives = peer.in_view and is_current and (own is None or own.kept_from <= stream.expected)
        another = self._way.asks == "holder" and stream.attempts % 2
        if self._way.others_keep and (another or not gives):
            others = [other for other in self._group.in_view() if other.site != stream.site]
            holders = [other for other in others if holds(other, stream)] or others
            if holders:
                return self._context.random.choice(holders).site
        return stream.site if is_current else None

    # Answering

    def on_ask(self, now: Nanoseconds, asker: Site, ask: Ask) -> bool:
        """Send what is kept. False if the asker should learn by a status that it is gone."""
        group, spans = self._group, ask.spans
        if len(spans) % 2 or asker not in group.peers:
            self._context.ignore()
            return True
        stream = group.find_stream(ask.site, ask.incarnation)
        if stream is None:
            return True
        if self._way.in_public:
            self._suppress(now, stream, spans)
        if stream is not group.own and not self._way.others_keep:
            return True
        numbers: list[int] = []
        for start, stop in zip(spans[::2], spans[1::2], strict=True):
            numbers += stream.copies(start, min(stop, stream.expected), MOST_COPIES - len(numbers))
        group.peers[asker].asked += len(numbers)
        self._answer(now, asker, stream, numbers)
        return (
            bool(numbers) or spans[0] >= stream.kept_from or (self._way.in_public and stream is not group.own)
        )

    def _suppress(self, now: Nanoseconds, stream: Stream, spans: tuple[int, ...]) -> None:
        """Another member has multicast a request for what we miss too: wait as if we had asked."""
        if stream.ask_ns is not None and spans[0] <= stream.expected < spans[-1]:
            stream.asked_to = max(stream.asked_to, min(spans[-1], stream.end))
            self._back_off(now, stream)

    def _answer(self, now: Nanoseconds, asker: Site, stream: Stream, numbers: list[int]) -> None:
        if self._way.gives == "pass":
            self._collect(now, numbers)
            return
        to = self._surroundings.local_group(asker) if self._way.gives == "group" else None
        # A request from another local group found no copy there: it is answered at once.
        waits = self._way.waits and (to is None or self._context.site in to)
        budget = MOST_COPIED_BYTES
        for number in numbers:
            if waits:
                self._delay_answer(now, asker, stream, number, to)
                continue
            effect = self._copy(now, asker, stream, number, to)
            if effect is not None:
                self._context.counts["copies"] += 1
                self._context.emit(effect)
            budget -= stream.kept[number].weight
            if budget <= 0:
                break

    def _copy(
        self, now: Nanoseconds, asker: Site, stream: Stream, number: int, to: tuple[Site, ...] | None
    ) -> Effect | None:
        """A copy for the asker if no other asks, else for all; not twice in a short time."""
        copy = Copy(stream.site, stream.incarnation, number, stream.kept[number])
        before_ns, before_to = stream.repaired.get(number, (None, asker))
        recent = before_ns is not None and now - before_ns < self._hold_ns(asker)
        if to:
            if recent and before_to == to[0]:
                return None
            stream.repaired[number] = (now, to[0])
            return Multicast(copy, to)
        alone = self._way.gives != "all"
        if alone and (not recent or before_to == asker):
            stream.repaired[number] = (now, asker)
            return Send(asker, copy)
        children = self._surroundings.children() if self._way.asks == "tree" else None
        if children is not None and asker not in children:
            return Send(asker, copy)
        if recent and (not alone or before_to == stream.site):
            return None  # it is under way to all
        stream.repaired[number] = (now, stream.site)
        return Multicast(copy, None if children is None else tuple(sorted(children)))

    def _hold_ns(self, asker: Site) -> Nanoseconds:
        """How long a batch is not repeated to the same members."""
        if self._way.by_distance:
            return HOLD_DISTANCES * self._distance_ns(asker)
        return self._context.configuration.repair_ns // 2

    # Delayed answers: the first suppresses the others

    def _delay_answer(
        self, now: Nanoseconds, asker: Site, stream: Stream, number: int, to: tuple[Site, ...] | None
    ) -> None:
        before_ns, _ = stream.repaired.get(number, (None, stream.site))
        key = (stream.site, stream.incarnation, number)
        recent = before_ns is not None and now - before_ns < self._hold_ns(asker)
        if recent or key in self._answers or len(self._answers) >= MOST_ANSWERS:
            return
        after_ns = self._answer_delay_ns(asker)
        self._answers[key] = Answer(now + after_ns, to)
        self._context.timers.arm(now, ANSWER, max(1, after_ns))

    def _answer_delay_ns(self, asker: Site) -> Nanoseconds:
        """A random time; by distance it grows with the group as SRM's does (D1 = D2 = log10 of its size)."""
        random = self._context.random
        if not self._way.by_distance:
            return random.randrange(self._context.configuration.answer_ns)
        scale = max(1.0, log10(len(self._group.view.pairs)))
        span_ns = max(1, round(scale * self._distance_ns(asker)))
        return span_ns + random.randrange(span_ns)

    def fire_answers(self, now: Nanoseconds) -> None:
        """Repeat what no other member has repeated in time."""
        context = self._context
        for key, answer in list(self._answers.items()):
            if answer.due_ns > now:
                continue
            del self._answers[key]
            site, incarnation, number = key
            stream = self._group.find_stream(site, incarnation)
            bodies = None if stream is None else stream.kept.get(number)
            if stream is not None and bodies is not None:
                stream.repaired[number] = (now, context.site)
                context.counts["copies"] += 1
                context.emit(Multicast(Copy(site, incarnation, number, bodies), answer.to))
        if self._answers:
            next_ns = min(answer.due_ns for answer in self._answers.values())
            context.timers.arm(now, ANSWER, max(1, next_ns - now))

    def on_copy(self, now: Nanoseconds, stream: Stream, copy: Copy) -> None:
        """Another member has repeated this batch: we need not."""
        self._answers.pop((copy.site, copy.incarnation, copy.number), None)
        if copy.number in stream.kept and self._way.waits:
            stream.repaired[copy.number] = (now, copy.site)

    # With `passes`, what is asked for is gathered, and multicast again in one pass

    def _collect(self, now: Nanoseconds, numbers: list[int]) -> None:
        self._pass.update(numbers)
        if self._pass:
            self._context.timers.arm(now, PASS, self._context.configuration.repair_ns)

    def fire_pass(self) -> bool:
        """Multicast what was asked for, in its order; whether there was any."""
        context, own = self._context, self._group.own
        budget = MOST_COPIED_BYTES
        for number in sorted(self._pass):
            bodies = own.kept.get(number)
            self._pass.discard(number)
            if bodies is None:
                continue
            context.counts["copies"] += 1
            context.emit(Multicast(Copy(context.site, context.incarnation, number, bodies)))
            budget -= bodies.weight
            if budget <= 0:
                break
        return budget < MOST_COPIED_BYTES


def holds(peer: Peer, stream: Stream) -> bool:
    """Whether a member reports that it keeps what comes next in a stream."""
    extent = peer.extents.get(stream.site)
    if extent is None:
        return False
    if extent.incarnation == stream.incarnation:
        return extent.kept_from <= stream.expected < extent.held
    kept = extent.previous_from <= stream.expected < extent.previous_end
    return kept and extent.previous == stream.incarnation
