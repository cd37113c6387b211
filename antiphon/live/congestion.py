"""Congestion control: a member sends at the rate of its slowest receiver.

Sources: TFMCC (RFC 4654) and PGMCC for the slowest receiver as the limit, NORM (RFC 5740) for feedback on
request, CUBIC (RFC 9438) for the shape of the rate.

A sender regularly asks some receivers how many of its bytes have arrived (`Pulse` and `Heard` in `metering`),
and compares the answer with what it had sent to them by then. The difference was lost, in the network or
before the receiver's socket. It asks the slowest receiver each time and the others in turn, a few at a time,
so that the answers do not grow with the group. Each answer also measures a round trip.

The rate rises by an eighth with each round until something is lost. Then it falls below the rate of arrival,
and rises again along a cubic curve: fast, then slowly around the rate of the last loss, then faster. It does
not rise while the application sends less than it may, nor while round trips show a long queue in the network.
It rises slowly while they show a short queue: a loss costs more than its bytes, since the repair delays what
follows. Losses below `TOLERATED` are ignored. If losses stay the same however far the rate falls, congestion
is not their cause, as on a bad radio link: that much loss is then tolerated for a while.

Guarantees: the rate stays between `FLOOR_BYTES_S` and the cap. A receiver that cannot keep up with the floor
for `PATIENCE_NS` is left behind: the sender reports it (`left_behind`) and ignores its losses until it has
been silent or has kept up for as long. Memory is bounded: receivers are members, which the gate bounds.
"""

from collections.abc import Hashable
from math import cbrt, exp, inf
from typing import Final, Generic, TypeVar

from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.live.limits import LEAST_RATE_BYTES_S

FIRST_BYTES_S: Final = 1_000_000.0
"""The initial rate. Raising it costs losses on slow links; lowering it costs time on fast ones."""
FLOOR_BYTES_S: Final = float(LEAST_RATE_BYTES_S)
"""The lowest rate. Raising it costs permanent losses on slow links."""
TOLERATED: Final = 0.02
"""The share of bytes that may be lost before the sender slows down."""
MOST_TOLERATED: Final = 0.4
"""The largest share tolerated where slowing down does not help."""
MOST_VAIN: Final = 4
"""Consecutive cuts of the rate that must fail before the loss is tolerated. Lowering it costs other traffic
on a full link."""
SOON_NS: Final[Nanoseconds] = 300 * MILLISECOND_NS
"""Cuts of the rate that are further apart than this are unrelated."""
FORGETTING: Final = 0.99
"""Factor by which the extra tolerance shrinks in a round with little loss."""
DECREASE: Final = 0.85
"""The new rate after a loss, as a share of the rate of arrival. Raising it costs other traffic on the link;
lowering it costs throughput."""
CURVE_BYTES_S4: Final = 3e7
"""How fast the rate rises: from 8 to 10 Mbit/s in 0.2 s, from 400 to 500 in 0.75 s. Raising it costs losses;
lowering it costs the share beside other traffic."""
START: Final = 1.12
"""Growth of the rate per round before the first loss, as a factor. Raising it costs a greater first loss."""
STEEPEST: Final = 1.5
"""Largest growth per round along the curve, as a factor."""
LEAST_BYTES: Final = 2_000
"""Losses up to this many bytes do not slow a sender down: a single datagram must not."""
MEMORY_NS: Final[Nanoseconds] = 100 * MILLISECOND_NS
"""How long a loss counts. Raising it costs time until the rate falls where receivers lose little."""
QUEUE_NS: Final[Nanoseconds] = 50 * MILLISECOND_NS
"""A round trip longer than the shortest by more than this shows a queue: the rate does not rise."""
STANDING_NS: Final[Nanoseconds] = 8 * MILLISECOND_NS
"""A round trip longer than the shortest by more than this shows a queue that fills: the rate rises slowly."""
QUEUE_MEMORY_NS: Final[Nanoseconds] = SECOND_NS
"""How long a round trip shows a queue. Raising it costs time after a receiver has crashed; lowering it costs
losses in groups so large that a receiver is asked less often."""
SLOWLY: Final = 0.25
"""Speed along the curve while a queue fills. Raising it costs losses; lowering it costs the share beside
other traffic."""
SILENCE_NS: Final[Nanoseconds] = SECOND_NS // 2
"""Without any answer for this long, the rate falls by half."""
USED: Final = 0.5
"""The share of its allowance that a sender must use for the rate to rise."""
PATIENCE_NS: Final[Nanoseconds] = 2 * SECOND_NS
"""How long a receiver may hold its senders at the floor. Raising it costs everyone's time."""


Peer = TypeVar("Peer", bound=Hashable)
"""The key of a receiver."""


class Receiver:
    """One receiver, as a sender sees it."""

    __slots__ = (
        "_confirmed", "_due", "_lost", "_missing", "answered_ns", "arriving", "at_floor_ns", "is_left",
        "left_ns", "received", "sent", "shortest_ns", "trip_ns", "until_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sent = 0
        """Bytes sent to it, up to the last pulse that it has answered."""
        self.received: int | None = None
        """Bytes of these that it had received; None before its first answer."""
        self.until_ns: Nanoseconds = -1
        """When that pulse was sent; -1 before its first answer."""
        self.answered_ns: Nanoseconds = 0
        """When it answered last."""
        self.arriving = 0.0
        """Rate of arrival, in bytes per second."""
        self._due = self._lost = 0.0
        """Bytes that were due recently, and the lost bytes among them."""
        self._missing = self._confirmed = 0
        """Bytes missing at its last answer, and bytes missing at two answers in a row."""
        self.trip_ns: float = 0.0
        self.shortest_ns: float = inf
        self.at_floor_ns: Nanoseconds | None = None
        """Since when it has held the rate at the floor."""
        self.is_left = False
        self.left_ns: Nanoseconds = 0

    @property
    def lost(self) -> float:
        """The share of bytes that it lost recently."""
        return self._lost / self._due if self._lost > LEAST_BYTES else 0.0

    def note(self, due: int, got: int, span_ns: Nanoseconds) -> None:
        """In a time span, `due` bytes were sent to it and `got` bytes arrived.

        Datagrams on another socket may be read a little later: only what is missing at two answers is lost.
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
        """The rate has changed: earlier losses no longer count."""
        self._due = self._lost = 0.0
        self._confirmed = max(self._confirmed, self._missing)

    def queue_ns(self, now: Nanoseconds) -> float:
        """The queue in the network on the way to it, as a time; nothing is known of it after a silence.

        A member that has crashed stays a receiver, and must not hold the rate down.
        """
        is_known = self.received is not None and now - self.answered_ns <= QUEUE_MEMORY_NS
        return self.trip_ns - self.shortest_ns if is_known else 0.0


class Controller(Generic[Peer]):
    """The congestion controller of one sender."""

    def __init__(self, most_bytes_s: float | None = None) -> None:
        self._most = inf if most_bytes_s is None else max(FLOOR_BYTES_S, most_bytes_s)
        self.rate = min(FIRST_BYTES_S, self._most)
        """Bytes per second to each receiver."""
        self.receivers: dict[Peer, Receiver] = {}
        self.limiter: Peer | None = None
        """The receiver that made the rate fall last."""
        self.cuts = 0
        self._is_starting = True
        self._reached = self.rate
        """The rate of arrival at the last loss: the rate rises slowly around it."""
        self._rising_s = 0.0
        """How long the rate has risen since."""
        self._cut_ns: Nanoseconds = 0
        self._round_ns: Nanoseconds = 0
        self._answered_ns: Nanoseconds = 0
        self._has_news = False
        self._tolerated = TOLERATED
        self._lost_before = 0.0
        self._vain = 0
        """Consecutive cuts of the rate that did not reduce the loss."""

    def forget(self, peer: Peer) -> None:
        self.receivers.pop(peer, None)
        if self.limiter == peer:
            self.limiter = None

    # Answers

    def hear(self, now: Nanoseconds, peer: Peer, sent_ns: Nanoseconds, sent: int, received: int) -> None:
        """A receiver answers a pulse of `sent_ns`: of `sent` bytes up to then, it has received `received`."""
        receiver = self.receivers.get(peer)
        if receiver is None:
            receiver = self.receivers[peer] = Receiver()
        if sent_ns <= receiver.until_ns:
            return  # overtaken, or it comes twice
        self._answered_ns = receiver.answered_ns = now
        self._measure_trip(receiver, now - sent_ns)
        before = receiver.received
        due, got = sent - receiver.sent, received - (before or 0)
        span_ns = sent_ns - receiver.until_ns
        receiver.sent, receiver.received, receiver.until_ns = sent, received, sent_ns
        if before is None or got < 0 or due <= 0:
            return  # the first answer, of it or of us, sets the counters
        self._has_news = True
        receiver.note(due, got, span_ns)
        if sent_ns <= self._cut_ns:  # it measures an earlier rate
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
        """The receivers that cannot keep up at any useful rate, and are not waited for."""
        return [peer for peer, receiver in self.receivers.items() if receiver.is_left]

    # The rate

    def _cut(self, now: Nanoseconds, peer: Peer, lost: float, arriving: float) -> None:
        self.cuts += 1
        self._note_vain(now, lost)
        self.limiter = peer
        # The rate of arrival is what the link can carry. Soon after a cut it rather measures what was queued
        # before the cut.
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
        """Tolerate the loss after several cuts in a row that did not reduce it."""
        is_vain = now - self._cut_ns < SOON_NS and lost > self._lost_before / 2
        self._vain = self._vain + 1 if is_vain else 0
        self._lost_before = lost
        if self._vain >= MOST_VAIN:
            self._vain = 0
            self._tolerated = min(MOST_TOLERATED, max(self._tolerated, 1.5 * lost))

    def close_round(self, now: Nanoseconds, sent: int) -> None:
        """A pulse is sent, `sent` bytes after the previous one: adapt the rate."""
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
        queue_ns = max((receiver.queue_ns(now) for receiver in counted), default=0.0)
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
