"""Gaps: whom to ask for what is missing, and how to answer. The five ways are told in the package's head."""

from typing import Final

from antiphon.core.effects import Effect, Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.pdus import Ask, Copy
from antiphon.protocols.fifo.state import Peer, State
from antiphon.protocols.fifo.streams import Stream

REPAIR: Final = "repair"
ANSWER: Final = "answer"
MOST_COPIES: Final = 64
"""Batches that one request is answered with at most; what is still missing is asked for again."""
MOST_COPIED_BYTES: Final = 1 << 20
LONGEST_PAUSE: Final = 8
"""Pauses between requests double, every second time, up to this multiple of the first."""
MOST_ANSWERS: Final = 1024
"""Answers that wait for somebody else's at most."""


class Repair:
    """Asks for what is missing here and gives what others miss."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._way = state.configuration.repair
        self._public = self._way in ("request-all", "any")
        self._gaps: dict[tuple[Site, int], Stream] = {}
        self._answers: dict[tuple[Site, int, int], Nanoseconds] = {}
        """With `any`: what is to be repeated, and when, unless somebody else does."""

    def reset(self) -> None:
        """Forget what was about to happen: the timers have stood."""
        for stream in self._gaps.values():
            stream.ask_ns = None
        self._gaps.clear()
        self._answers.clear()

    # Asking

    def notice(self, now: Nanoseconds, stream: Stream) -> None:
        """Something of a stream is missing; what was not asked for before may yet come by itself."""
        if self._way == "acknowledge":
            return
        if stream.ask_ns is None or (stream.attempts and stream.expected >= stream.asked_to):
            stream.attempts = 0
            self._schedule(now, stream, self._state.configuration.gap_ns)

    def moved_on(self, now: Nanoseconds, stream: Stream) -> None:
        """A gap was filled, so that it pays to ask for the rest before long."""
        if stream.attempts and stream.ask_ns is not None:
            stream.attempts = 1
            if stream.ask_ns > now + 2 * self._state.configuration.repair_ns:
                self._schedule(now, stream, self._state.configuration.repair_ns)

    def _schedule(self, now: Nanoseconds, stream: Stream, after_ns: Nanoseconds) -> None:
        stream.ask_ns = now + self._spread(after_ns)
        self._gaps[stream.site, stream.incarnation] = stream
        self._state.arm(now, REPAIR, stream.ask_ns - now)

    def fire(self, now: Nanoseconds) -> None:
        """Ask for what is due, and set the timer for what is not."""
        next_ns: Nanoseconds | None = None
        for key, stream in list(self._gaps.items()):
            if stream.expected >= stream.missing_to or self._state.find_stream(*key) is not stream:
                stream.ask_ns = None
                del self._gaps[key]
                continue
            assert stream.ask_ns is not None, "a gap that is noticed has its time"
            if stream.ask_ns <= now:
                self._ask(stream)
                self._back_off(now, stream)
            next_ns = stream.ask_ns if next_ns is None else min(next_ns, stream.ask_ns)
        if next_ns is not None:
            self._state.arm(now, REPAIR, max(1, next_ns - now))

    def _back_off(self, now: Nanoseconds, stream: Stream) -> None:
        factor = min(1 << stream.attempts // 2, LONGEST_PAUSE)
        stream.attempts = min(stream.attempts + 1, LONGEST_PAUSE)
        stream.ask_ns = now + self._spread(factor * self._state.configuration.repair_ns)

    def _spread(self, span_ns: Nanoseconds) -> Nanoseconds:
        """Requests that all can hear come each at a time of its own, so that one can spare the others."""
        return span_ns + self._state.random.randrange(span_ns) if self._public else span_ns

    def _ask(self, stream: Stream) -> None:
        state = self._state
        spans = stream.spans()
        to = self._whom(stream)
        if not spans or (to is None and not self._public):
            return
        stream.asked_to = spans[-1]
        state.counts["asked"] += 1
        ask = Ask(stream.site, stream.incarnation, spans)
        state.effects.append(Multicast(ask) if to is None else Send(to, ask))

    def _whom(self, stream: Stream) -> Site | None:
        """The sender, or with `hybrid` in its stead someone who holds what it does not give."""
        if self._public:
            return None
        peer = self._state.peers[stream.site]
        speaks = peer.counted and peer.incarnation == stream.incarnation
        if self._way == "hybrid" and (not speaks or stream.attempts % 2):
            holders = [other.site for other in self._state.counted() if holds(other, stream)]
            if holders:
                return self._state.random.choice(holders)
        return stream.site if peer.incarnation == stream.incarnation else None

    # Answering

    def asked(self, now: Nanoseconds, asker: Site, ask: Ask) -> bool:
        """Give what is kept. False if the asker had better be told that it is gone."""
        state = self._state
        spans = ask.spans
        if len(spans) % 2 or asker not in state.peers:
            state.ignore()
            return True
        stream = state.find_stream(ask.site, ask.incarnation)
        if stream is None:
            return True
        if self._public:
            self._spare(now, stream, spans)
        if stream is not state.own and not state.configuration.others_keep:
            return True
        numbers: list[int] = []
        for start, stop in zip(spans[::2], spans[1::2], strict=True):
            numbers += stream.copies(start, min(stop, stream.expected), MOST_COPIES - len(numbers))
        state.peers[asker].asked += len(numbers)
        self._give(now, asker, stream, numbers)
        return bool(numbers) or spans[0] >= stream.kept_from or (self._public and stream is not state.own)

    def _spare(self, now: Nanoseconds, stream: Stream, spans: tuple[int, ...]) -> None:
        """Someone asks all for what we miss too: wait as if we had asked ourselves."""
        if stream.ask_ns is not None and spans[0] <= stream.expected < spans[-1]:
            stream.asked_to = max(stream.asked_to, min(spans[-1], stream.end))
            self._back_off(now, stream)

    def _give(self, now: Nanoseconds, asker: Site, stream: Stream, numbers: list[int]) -> None:
        budget = MOST_COPIED_BYTES
        for number in numbers:
            if self._way == "any":
                self._answer_soon(now, stream, number)
                continue
            effect = self._copy(now, asker, stream, number)
            if effect is not None:
                self._state.counts["copies"] += 1
                self._state.effects.append(effect)
            budget -= stream.kept[number].weight
            if budget <= 0:
                break

    def _copy(self, now: Nanoseconds, asker: Site, stream: Stream, number: int) -> Effect | None:
        """To the asker alone if he alone asks (`hybrid`), else to all, but not again at once."""
        copy = Copy(stream.site, stream.incarnation, number, stream.kept[number])
        before_ns, for_whom = stream.repaired.get(number, (None, asker))
        recent = before_ns is not None and now - before_ns < self._state.configuration.repair_ns // 2
        if self._way == "hybrid" and (not recent or for_whom == asker):
            stream.repaired[number] = (now, asker)
            return Send(asker, copy)
        if recent and (self._way != "hybrid" or for_whom == stream.site):
            return None  # it is under way to all
        stream.repaired[number] = (now, stream.site)
        return Multicast(copy)

    # With `any`, an answer waits for somebody else's

    def _answer_soon(self, now: Nanoseconds, stream: Stream, number: int) -> None:
        before_ns, _ = stream.repaired.get(number, (None, stream.site))
        state, key = self._state, (stream.site, stream.incarnation, number)
        recent = before_ns is not None and now - before_ns < state.configuration.repair_ns // 2
        if recent or key in self._answers or len(self._answers) >= MOST_ANSWERS:
            return
        after_ns = state.random.randrange(state.configuration.answer_ns)
        self._answers[key] = now + after_ns
        state.arm(now, ANSWER, max(1, after_ns))

    def answer(self, now: Nanoseconds) -> None:
        """Repeat what nobody else has repeated in time."""
        state = self._state
        for key, due_ns in list(self._answers.items()):
            if due_ns > now:
                continue
            del self._answers[key]
            site, incarnation, number = key
            stream = state.find_stream(site, incarnation)
            bodies = None if stream is None else stream.kept.get(number)
            if stream is not None and bodies is not None:
                stream.repaired[number] = (now, state.site)
                state.counts["copies"] += 1
                state.effects.append(Multicast(Copy(site, incarnation, number, bodies)))
        if self._answers:
            state.arm(now, ANSWER, max(1, min(self._answers.values()) - now))

    def repeated(self, now: Nanoseconds, stream: Stream, copy: Copy) -> None:
        """Somebody has repeated this: we need not."""
        self._answers.pop((copy.site, copy.incarnation, copy.number), None)
        if copy.number in stream.kept and self._way == "any":
            stream.repaired[copy.number] = (now, copy.site)


def holds(peer: Peer, stream: Stream) -> bool:
    """Whether a member said that it keeps what comes next in a stream."""
    extent = peer.extents.get(stream.site)
    if extent is None:
        return False
    if extent.incarnation == stream.incarnation:
        return extent.kept_from <= stream.expected < extent.held
    kept = extent.previous_from <= stream.expected < extent.previous_end
    return kept and extent.previous == stream.incarnation
