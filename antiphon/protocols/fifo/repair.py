"""Gaps: which member to ask for what is missing, and how to answer. The package describes the five ways."""

from typing import Final

from antiphon.core.effects import Effect, Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group, Peer
from antiphon.protocols.fifo.pdus import Ask, Copy
from antiphon.protocols.fifo.streams import Stream

REPAIR: Final = "repair"
ANSWER: Final = "answer"
MOST_COPIES: Final = 64
"""Batches in the answer to one request; the rest is asked for again. Raising it costs bursts of copies."""
MOST_COPIED_BYTES: Final = 1 << 20
"""Bytes in the answer to one request. Raising it costs the same."""
LONGEST_PAUSE: Final = 8
"""Pauses between requests double, every second time, up to this multiple of the first. Raising it costs
latency after a long loss."""
MOST_ANSWERS: Final = 1024
"""Delayed answers that are remembered. Raising it costs memory."""


class Repair:
    """Asks for what is missing here, and answers the requests of others."""

    def __init__(self, context: Context, group: Group) -> None:
        self._context = context
        self._group = group
        self._way = context.configuration.repair
        self._public = self._way in ("request-all", "any")
        self._gaps: dict[tuple[Site, int], Stream] = {}
        self._answers: dict[tuple[Site, int, int], Nanoseconds] = {}
        """With `any`: batches to be repeated, and when, unless another member repeats them first."""

    def reset(self) -> None:
        """Forget requests and answers that were due: the timers stood still during an absence."""
        for stream in self._gaps.values():
            stream.ask_ns = None
        self._gaps.clear()
        self._answers.clear()

    # Asking

    @property
    def is_waiting(self) -> bool:
        """Whether something is missing here."""
        return bool(self._gaps)

    def notice(self, now: Nanoseconds, stream: Stream) -> None:
        """Something of a stream is missing; a fresh gap may be mere reordering."""
        if self._way == "acknowledge":
            return
        if stream.ask_ns is None or (stream.attempts and stream.expected >= stream.asked_to):
            stream.attempts = 0
            self._schedule(now, stream, self._context.configuration.gap_ns)

    def on_progress(self, now: Nanoseconds, stream: Stream) -> None:
        """A gap was filled, so the rest is asked for before long."""
        if stream.attempts and stream.ask_ns is not None:
            stream.attempts = 1
            if stream.ask_ns > now + 2 * self._context.configuration.repair_ns:
                self._schedule(now, stream, self._context.configuration.repair_ns)

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
        factor = min(1 << stream.attempts // 2, LONGEST_PAUSE)
        stream.attempts = min(stream.attempts + 1, LONGEST_PAUSE)
        stream.ask_ns = now + self._spread(factor * self._context.configuration.repair_ns)

    def _spread(self, span_ns: Nanoseconds) -> Nanoseconds:
        """Multicast requests come at random times, so that the first suppresses the others."""
        return span_ns + self._context.random.randrange(span_ns) if self._public else span_ns

    def _ask(self, stream: Stream) -> None:
        spans = stream.spans()
        to = self._choose_holder(stream)
        if not spans or (to is None and not self._public):
            return
        stream.asked_to = spans[-1]
        self._context.counts["asked"] += 1
        ask = Ask(stream.site, stream.incarnation, spans)
        self._context.emit(Multicast(ask) if to is None else Send(to, ask))

    def _choose_holder(self, stream: Stream) -> Site | None:
        """The member to ask: the sender, or with `hybrid` by turns another, best one known to hold it."""
        if self._public:
            return None
        peer = self._group.peers[stream.site]
        is_current = peer.incarnation == stream.incarnation
        if self._way == "hybrid" and (not (peer.in_view and is_current) or stream.attempts % 2):
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
        if self._public:
            self._suppress(now, stream, spans)
        if stream is not group.own and not self._context.configuration.others_keep:
            return True
        numbers: list[int] = []
        for start, stop in zip(spans[::2], spans[1::2], strict=True):
            numbers += stream.copies(start, min(stop, stream.expected), MOST_COPIES - len(numbers))
        group.peers[asker].asked += len(numbers)
        self._answer(now, asker, stream, numbers)
        return bool(numbers) or spans[0] >= stream.kept_from or (self._public and stream is not group.own)

    def _suppress(self, now: Nanoseconds, stream: Stream, spans: tuple[int, ...]) -> None:
        """Another member has multicast a request for what we miss too: wait as if we had asked."""
        if stream.ask_ns is not None and spans[0] <= stream.expected < spans[-1]:
            stream.asked_to = max(stream.asked_to, min(spans[-1], stream.end))
            self._back_off(now, stream)

    def _answer(self, now: Nanoseconds, asker: Site, stream: Stream, numbers: list[int]) -> None:
        budget = MOST_COPIED_BYTES
        for number in numbers:
            if self._way == "any":
                self._delay_answer(now, stream, number)
                continue
            effect = self._copy(now, asker, stream, number)
            if effect is not None:
                self._context.counts["copies"] += 1
                self._context.emit(effect)
            budget -= stream.kept[number].weight
            if budget <= 0:
                break

    def _copy(self, now: Nanoseconds, asker: Site, stream: Stream, number: int) -> Effect | None:
        """A copy for the asker if no other asks (`hybrid`), else for all, but not twice in a short time."""
        copy = Copy(stream.site, stream.incarnation, number, stream.kept[number])
        before_ns, before_to = stream.repaired.get(number, (None, asker))
        recent = before_ns is not None and now - before_ns < self._context.configuration.repair_ns // 2
        if self._way == "hybrid" and (not recent or before_to == asker):
            stream.repaired[number] = (now, asker)
            return Send(asker, copy)
        if recent and (self._way != "hybrid" or before_to == stream.site):
            return None  # it is under way to all
        stream.repaired[number] = (now, stream.site)
        return Multicast(copy)

    # With `any`, answers are delayed so that the first suppresses the others

    def _delay_answer(self, now: Nanoseconds, stream: Stream, number: int) -> None:
        before_ns, _ = stream.repaired.get(number, (None, stream.site))
        configuration, key = self._context.configuration, (stream.site, stream.incarnation, number)
        recent = before_ns is not None and now - before_ns < configuration.repair_ns // 2
        if recent or key in self._answers or len(self._answers) >= MOST_ANSWERS:
            return
        after_ns = self._context.random.randrange(configuration.answer_ns)
        self._answers[key] = now + after_ns
        self._context.timers.arm(now, ANSWER, max(1, after_ns))

    def fire_answers(self, now: Nanoseconds) -> None:
        """Repeat what no other member has repeated in time."""
        context = self._context
        for key, due_ns in list(self._answers.items()):
            if due_ns > now:
                continue
            del self._answers[key]
            site, incarnation, number = key
            stream = self._group.find_stream(site, incarnation)
            bodies = None if stream is None else stream.kept.get(number)
            if stream is not None and bodies is not None:
                stream.repaired[number] = (now, context.site)
                context.counts["copies"] += 1
                context.emit(Multicast(Copy(site, incarnation, number, bodies)))
        if self._answers:
            context.timers.arm(now, ANSWER, max(1, min(self._answers.values()) - now))

    def on_copy(self, now: Nanoseconds, stream: Stream, copy: Copy) -> None:
        """Another member has repeated this batch: we need not."""
        self._answers.pop((copy.site, copy.incarnation, copy.number), None)
        if copy.number in stream.kept and self._way == "any":
            stream.repaired[copy.number] = (now, copy.site)


def holds(peer: Peer, stream: Stream) -> bool:
    """Whether a member reports that it keeps what comes next in a stream."""
    extent = peer.extents.get(stream.site)
    if extent is None:
        return False
    if extent.incarnation == stream.incarnation:
        return extent.kept_from <= stream.expected < extent.held
    kept = extent.previous_from <= stream.expected < extent.previous_end
    return kept and extent.previous == stream.incarnation
