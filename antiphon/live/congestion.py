"""How fast a member may send: as fast as its slowest receiver gets what is sent.

Sources: TFMCC (RFC 4654) and PGMCC for the slowest receiver as the one that counts, NORM (RFC 5740) for
feedback that the sender asks for, CUBIC (RFC 9438) for how the rate rises and falls.

A sender asks some receivers now and then how many of its bytes have come (`Pulse`, `Heard` in `transport`),
and compares that with what it had sent to them by then: what is missing was lost, in the network or before a
receiver's socket. It asks the slowest each time and the others by turns, a few at a time, so that what
receivers answer does not grow with the group. Each answer is a round trip as well.

The rate rises by an eighth with each round until something is lost. Then it falls below what arrived; it
rises again along a cubic curve, fast, then slowly around what arrived at the last loss, then faster. It does
not rise while the application sends less than it may, nor while round trips show a long queue on the way. It
rises slowly while they show a short one: losses cost more than their bytes, since what was lost is sent again
and holds up what follows. Losses below `TOLERATED` count for nothing. Where losses stay the same however far
the rate falls, they are not for want of room, as on a bad radio link: then as much as that is tolerated for a
while.

Guarantees: the rate stays between `FLOOR_BYTES_S` and the cap. A receiver that cannot keep up with the floor
for `PATIENCE_NS` is not waited for any more, and is named (`left_behind`), until it has been silent or has
kept up for as long. Nothing grows: receivers are members, which the gate bounds.
"""

from collections.abc import Hashable
from math import cbrt, exp, inf
from typing import Final, Generic, TypeVar

from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.live.limits import LEAST_RATE_BYTES_S

FIRST_BYTES_S: Final = 1_000_000.0
"""The rate at the beginning. Raising it costs losses on slow links; lowering it, time on fast ones."""
FLOOR_BYTES_S: Final = float(LEAST_RATE_BYTES_S)
"""No receiver slows its senders down further. Raising it costs slow links losses that do not end."""
TOLERATED: Final = 0.02
"""The share of bytes that may be lost without the sender's slowing down."""
MOST_TOLERATED: Final = 0.4
"""The same at most, where slowing down does not help."""
MOST_VAIN: Final = 4
"""Times in a row that slowing down must not have helped. Lowering it costs others on a full link."""
SOON_NS: Final[Nanoseconds] = 300 * MILLISECOND_NS
"""Falls of the rate that are further apart than this have nothing to do with one another."""
FORGETTING: Final = 0.99
"""What a round without much loss leaves of what is tolerated beyond the usual."""
DECREASE: Final = 0.85
"""What a loss leaves of what arrived. Raising it costs others on the link; lowering it, throughput."""
CURVE_BYTES_S4: Final = 3e7
"""How fast the rate rises: from 8 to 10 Mbit/s in 0.2 s, from 400 to 500 in 0.75 s. Raising it costs losses;
lowering it, the share beside other traffic."""
START: Final = 1.12
"""What a round adds to the rate before the first loss, as a factor. Raising it costs a greater loss then."""
STEEPEST: Final = 1.5
"""The most that a round adds along the curve, as a factor."""
LEAST_BYTES: Final = 2_000
"""One datagram that is lost does not slow a sender down."""
MEMORY_NS: Final[Nanoseconds] = 100 * MILLISECOND_NS
"""How long a loss counts. Raising it costs time until the rate falls where receivers lose little."""
QUEUE_NS: Final[Nanoseconds] = 50 * MILLISECOND_NS
"""A round trip longer than the shortest by more than this shows a queue: the rate does not rise."""
STANDING_NS: Final[Nanoseconds] = 8 * MILLISECOND_NS
"""A round trip longer than the shortest by more than this shows a queue that fills: the rate rises slowly."""
SLOWLY: Final = 0.25
"""How fast the curve is followed then. Raising it costs losses; lowering it, the share beside others."""
SILENCE_NS: Final[Nanoseconds] = SECOND_NS // 2
"""When nobody has answered for so long, the rate falls by half."""
USED: Final = 0.5
"""The share of its allowance that a sender must use for the rate to rise."""
PATIENCE_NS: Final[Nanoseconds] = 2 * SECOND_NS
"""How long a receiver may hold its senders at the floor. Raising it costs everyone's time."""


Peer = TypeVar("Peer", bound=Hashable)
"""What a receiver is known by."""


class Receiver:
    """One receiver, as a sender sees it."""

    __slots__ = (
        "_confirmed", "_due", "_lost", "_missing", "arriving", "at_floor_ns", "is_left", "left_ns",
        "received", "sent", "shortest_ns", "trip_ns", "until_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sent = 0
        """Bytes sent to it, up to the last pulse that it has answered."""
        self.received: int | None = None
        """Of these, how many it had; None before its first answer."""
        self.until_ns: Nanoseconds = 0
        """When that pulse was sent."""
        self.arriving = 0.0
        """How fast what is sent comes to it, in bytes a second."""
        self._due = self._lost = 0.0
        """Bytes that were due lately, and those of them that were lost."""
        self._missing = self._confirmed = 0
        """Bytes that were missing at its last answer, and those that were so at the one before, too."""
        self.trip_ns: float = 0.0
        self.shortest_ns: float = inf
        self.at_floor_ns: Nanoseconds | None = None
        """Since when it has held the rate at the floor."""
        self.is_left = False
        self.left_ns: Nanoseconds = 0

    @property
    def lost(self) -> float:
        """The share of bytes that it lost lately."""
        return self._lost / self._due if self._lost > LEAST_BYTES else 0.0

    def note(self, due: int, got: int, span_ns: Nanoseconds) -> None:
        """In this time so many bytes were sent to it, and so many came.

        What came by another socket may be read a little later: only what is missing at two answers is lost.
        """
        before, self._missing = self._missing, self._missing + due - got
        lost = max(0, min(before, self._missing) - self._confirmed)
        self._confirmed = max(self._confirmed, min(before, self._missing))
        came = got * SECOND_NS / max(1, span_ns)
        self.arriving += (came - self.arriving) / (4 if self.arriving else 1)
        keep = exp(-span_ns / MEMORY_NS)
        self._due = keep * self._due + due
        self._lost = keep * self._lost + lost

    def begin_anew(self) -> None:
        """What was lost at another rate does not count."""
        self._due = self._lost = 0.0
        self._confirmed = max(self._confirmed, self._missing)

    def queue_ns(self) -> float:
        """What waits on the way to it, as a time."""
        return self.trip_ns - self.shortest_ns if self.received is not None else 0.0


class Controller(Generic[Peer]):
    """One sender's."""

    def __init__(self, most_bytes_s: float | None = None) -> None:
        self._most = inf if most_bytes_s is None else max(FLOOR_BYTES_S, most_bytes_s)
        self.rate = min(FIRST_BYTES_S, self._most)
        """Bytes a second to each receiver."""
        self.receivers: dict[Peer, Receiver] = {}
        self.limiter: Peer | None = None
        """The receiver that made the rate fall last."""
        self.cuts = 0
        self._is_starting = True
        self._reached = self.rate
        """What arrived at the last loss: the rate rises slowly around it."""
        self._rising_s = 0.0
        """How long the rate has risen since."""
        self._cut_ns: Nanoseconds = 0
        self._round_ns: Nanoseconds = 0
        self._answered_ns: Nanoseconds = 0
        self._has_news = False
        self._tolerated = TOLERATED
        self._lost_before = 0.0
        self._vain = 0
        """Times in a row that the rate fell and as much was lost as before."""

    def forget(self, peer: Peer) -> None:
        self.receivers.pop(peer, None)
        if self.limiter == peer:
            self.limiter = None

    # Answers

    def hear(self, now: Nanoseconds, peer: Peer, sent_ns: Nanoseconds, sent: int, received: int) -> None:
        """A receiver answers a pulse of `sent_ns`, by which so many bytes were sent to it in all."""
        receiver = self.receivers.get(peer)
        if receiver is None:
            receiver = self.receivers[peer] = Receiver()
        if sent_ns < receiver.until_ns:
            return  # overtaken
        self._answered_ns = now
        self._measure_trip(receiver, now - sent_ns)
        before = receiver.received
        due, got = sent - receiver.sent, received - (before or 0)
        span_ns = sent_ns - receiver.until_ns
        receiver.sent, receiver.received, receiver.until_ns = sent, received, sent_ns
        if before is None or got < 0 or due <= 0:
            return  # where counting begins, for it or for us
        self._has_news = True
        receiver.note(due, got, span_ns)
        if sent_ns <= self._cut_ns:  # it tells of a rate that is past
            receiver.begin_anew()
            return
        self._judge(now, peer, receiver)

    @staticmethod
    def _measure_trip(receiver: Receiver, trip_ns: Nanoseconds) -> None:
        receiver.shortest_ns = min(receiver.shortest_ns, trip_ns)
        receiver.trip_ns += (trip_ns - receiver.trip_ns) / (8 if receiver.trip_ns else 1)

    def _judge(self, now: Nanoseconds, peer: Peer, receiver: Receiver) -> None:
        if receiver.is_left:
            if receiver.lost > self._tolerated:
                receiver.left_ns = now
            elif now - receiver.left_ns > PATIENCE_NS:
                receiver.is_left = False
            return
        if receiver.lost > self._tolerated:
            self._cut(now, peer, receiver.lost, receiver.arriving)
            if receiver.at_floor_ns is None:
                receiver.at_floor_ns = now
        if self.rate > FLOOR_BYTES_S:
            receiver.at_floor_ns = None
        elif receiver.at_floor_ns is not None and now - receiver.at_floor_ns > PATIENCE_NS:
            receiver.is_left, receiver.left_ns, receiver.at_floor_ns = True, now, None

    def left_behind(self) -> list[Peer]:
        """Those that cannot keep up at any useful rate, and are not waited for."""
        return [peer for peer, receiver in self.receivers.items() if receiver.is_left]

    # The rate

    def _cut(self, now: Nanoseconds, peer: Peer, lost: float, arriving: float) -> None:
        self.cuts += 1
        self._note_vain(now, lost)
        self.limiter = peer
        # What came is what there is room for: to go on around that is to lose once, not again and again. So
        # soon after the last time it tells more of what waited then.
        is_soon = now - self._cut_ns < MEMORY_NS and not self._is_starting
        least = self.rate / (8 if self._is_starting else 2)
        self._is_starting = False
        self._reached = self.rate if is_soon else min(self.rate, max(arriving, least))
        self._set(DECREASE * self._reached)
        self._rising_s = 0.0
        self._cut_ns = now
        for receiver in self.receivers.values():
            receiver.begin_anew()

    def _note_vain(self, now: Nanoseconds, lost: float) -> None:
        """See whether slowing down helps: after a few times in a row that it did not, tolerate the loss."""
        is_vain = now - self._cut_ns < SOON_NS and lost > self._lost_before / 2
        self._vain = self._vain + 1 if is_vain else 0
        self._lost_before = lost
        if self._vain >= MOST_VAIN:
            self._vain = 0
            self._tolerated = min(MOST_TOLERATED, max(self._tolerated, 1.5 * lost))

    def close_round(self, now: Nanoseconds, sent: int) -> None:
        """A pulse is sent, and so many bytes were since the one before: see how fast to go on."""
        span_ns = now - self._round_ns
        self._round_ns = now
        if not self._has_news:
            if self._answered_ns and now - self._answered_ns > SILENCE_NS and self.receivers:
                self._answered_ns = now
                self._is_starting = False
                self._set(self.rate / 2)
            return
        self._has_news = False
        counted = [receiver for receiver in self.receivers.values() if not receiver.is_left]
        is_used = sent * SECOND_NS >= USED * self.rate * span_ns
        worst = max((receiver.lost for receiver in counted), default=0.0)
        queue_ns = max((receiver.queue_ns() for receiver in counted), default=0.0)
        is_clear = worst <= self._tolerated and queue_ns < QUEUE_NS
        if worst < self._tolerated / 2:
            self._tolerated = max(TOLERATED, self._tolerated * FORGETTING)
        if is_used and is_clear and span_ns < SECOND_NS:
            self._rise(span_ns / SECOND_NS * (SLOWLY if queue_ns > STANDING_NS else 1.0))

    def _rise(self, span_s: float) -> None:
        if self._is_starting:
            self._set(self.rate * START)
            return
        self._rising_s += span_s
        pause_s = cbrt(self._reached * (1 - DECREASE) / CURVE_BYTES_S4)
        wanted = self._reached + CURVE_BYTES_S4 * (self._rising_s - pause_s) ** 3
        self._set(max(self.rate, min(wanted, STEEPEST * self.rate)))

    def _set(self, rate: float) -> None:
        self.rate = min(self._most, max(FLOOR_BYTES_S, rate))
