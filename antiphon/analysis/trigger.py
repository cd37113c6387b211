"""When to begin a round of stability detection, so that no buffer overflows and no round is wasted.

Source: K. Guo, Scalable Message Stability Detection Protocols, chapter 6. A sender admits r messages a second
into a buffer of g; a round takes f seconds and frees the share alpha of what was in the buffer when it began.
A round begins as soon as X messages are there and no round is under way. A large X needs few rounds; too
large a one lets the buffer overflow.

The text requires that neither the first nor the second round overflows, and so finds X = min(g - rf, (g -
2rf) / (1 - alpha)). Rounds that follow one another without a pause find more in the buffer each time, up to
rf / alpha, which the text does not consider: with alpha = 0.2, r = 60, g = 640 and f = 2 its X = 500 ends
with 720 messages in a buffer of 640. The buffer never overflows exactly when rf (1 + 1/alpha) <= g, and then
X = g - rf: a round that begins with B >= rf / alpha messages leaves at most B for the next one to begin
with, and g - rf is at least rf / alpha under that condition; without it the rounds' first fills approach rf
/ alpha, or begin above it, whatever X is.

`text_threshold` is for the dissertation's figures, `sound_threshold` for use, `Trigger` for use live, where
r, f and alpha are not known but measured.
"""

from dataclasses import dataclass
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.time import MILLISECOND_NS, Nanoseconds


def text_threshold(capacity: float, rate: float, duration_s: float, released_share: float) -> float:
    """X as chapter 6 gives it; if it is not positive, there is none."""
    _require_sense(capacity, rate, duration_s, released_share)
    sent = rate * duration_s
    if released_share == 1.0:
        return capacity - sent
    return min(capacity - sent, (capacity - 2 * sent) / (1 - released_share))


def is_sound(capacity: float, rate: float, duration_s: float, released_share: float) -> bool:
    """Whether any X at all keeps the buffer from ever overflowing."""
    _require_sense(capacity, rate, duration_s, released_share)
    sent = rate * duration_s
    # Multiplied by alpha, so that alpha = 0 divides nothing.
    return sent * (released_share + 1) <= capacity * released_share


def sound_threshold(capacity: float, rate: float, duration_s: float, released_share: float) -> float | None:
    """The largest X that never lets the buffer overflow, or None where there is none."""
    if not is_sound(capacity, rate, duration_s, released_share):
        return None
    return capacity - rate * duration_s


@dataclass(frozen=True)
class BufferHistory:
    """The fills of a buffer."""

    peak: float
    """The largest fill, of a buffer without limit."""
    first_fills: tuple[float, ...]
    """The fill when each round began."""


def simulate_buffer(
    threshold: float, rate: float, duration_s: float, released_share: float, rounds: int = 100
) -> BufferHistory:
    """Follow a buffer without limit through some rounds: the judge of a threshold."""
    fill = peak = 0.0
    first_fills: list[float] = []
    for _ in range(rounds):
        # With less than X there, the sender continues until X is reached.
        first = max(fill, threshold)
        first_fills.append(first)
        last = first + rate * duration_s
        peak = max(peak, last)
        fill = last - released_share * first
    return BufferHistory(peak, tuple(first_fills))


def _require_sense(capacity: float, rate: float, duration_s: float, released_share: float) -> None:
    if capacity <= 0:
        raise UsageError(f"A buffer of {capacity:g} messages holds nothing.", hint="Take more than 0.")
    if rate < 0 or duration_s < 0:
        raise UsageError("Neither a rate nor a round's time can be negative.")
    if not 0 <= released_share <= 1:
        raise UsageError(
            f"A round cannot free {released_share:g} of what was there.", hint="Take a share from 0 to 1."
        )


GAIN: Final = 0.25
"""The weight of a new sample in an estimate. Raising it forgets sooner and follows noise more."""
FALLING_GAIN: Final = 0.0625
"""The weight for a falling rate: low, since bursts follow pauses. Raising it forgets bursts sooner."""
DEVIATIONS: Final = 2.0
"""Mean deviations that are added to an estimate to be safe. Raising it costs more rounds."""
LEAST_RELEASED_SHARE: Final = 0.01
WINDOW_NS: Final = 50 * MILLISECOND_NS
"""The least time over which a rate is measured: batches add much at once. Raising it delays estimates."""


class Estimate:
    """A smoothed mean and deviation, as transport protocols keep for round trips."""

    __slots__ = ("deviation", "mean")

    def __init__(self) -> None:
        self.mean: float | None = None
        self.deviation = 0.0

    def add(self, sample: float) -> None:
        if self.mean is None:
            self.mean, self.deviation = sample, sample / 4
            return
        self.deviation += GAIN * (abs(sample - self.mean) - self.deviation)
        self.mean += GAIN * (sample - self.mean)

    def above(self) -> float:
        """A value that few samples exceed."""
        return 0.0 if self.mean is None else self.mean + DEVIATIONS * self.deviation

    def below(self) -> float:
        """A value that few samples fall short of."""
        return 0.0 if self.mean is None else max(0.0, self.mean - DEVIATIONS * self.deviation)


class Trigger:
    """Measures r, f and alpha of a live sender and gives the fill from which on a round is due.

    Amounts are bytes or messages, but always the same. The threshold is g - rf, from estimates that err on
    the safe side, and always between the two shares of the capacity given here. If no X is sound, g - rf is
    less than what a round leaves behind, so rounds follow one another without a pause: the most that can be
    done. Until the first round has ended the threshold is half the capacity.

    It does not see time that passes without events. So the caller also begins a round after a quiet period,
    so that the last messages before a pause become stable too, and when a body is refused for lack of room
    although the threshold is not reached.
    """

    __slots__ = (
        "_capacity", "_duration", "_fill", "_first_fill", "_least", "_most", "_rate", "_released",
        "_round_began_at", "_window_amount", "_window_began_at", "_window_ns", "rounds",
    )  # fmt: skip

    def __init__(
        self,
        capacity: int,
        *,
        least_share: float = 1 / 16,
        most_share: float = 7 / 8,
        window_ns: Nanoseconds = WINDOW_NS,
    ) -> None:
        if capacity < 1:
            raise UsageError(f"A buffer of {capacity} holds nothing.", hint="Take 1 or more.")
        if not 0 <= least_share <= most_share <= 1:
            raise UsageError("The least share must be between 0 and the most, and the most at most 1.")
        if window_ns < 1:
            raise UsageError("A rate cannot be measured in no time.", hint="Take a window of 1 ns or more.")
        self._capacity = capacity
        self._least = max(1, int(capacity * least_share))
        self._most = max(self._least, int(capacity * most_share))
        self._window_ns = window_ns
        self._rate: float | None = None
        self._duration = Estimate()
        self._released = Estimate()
        self._fill = 0
        self._window_began_at: Nanoseconds | None = None
        self._window_amount = 0
        self._round_began_at: Nanoseconds | None = None
        self._first_fill = 0
        self.rounds = 0
        """Rounds measured so far."""

    def sent(self, now: Nanoseconds, amount: int) -> None:
        """This amount was admitted into the buffer now."""
        self._fill += amount
        if self._window_began_at is None:
            # The first sample starts the clock: the time in which it was gathered is unknown.
            self._window_began_at = now
            return
        self._window_amount += amount
        elapsed_ns = now - self._window_began_at
        if elapsed_ns >= self._window_ns:
            self._sample_rate(self._window_amount / elapsed_ns)
            self._window_began_at, self._window_amount = now, 0

    def round_began(self, now: Nanoseconds) -> None:
        """A round begins that can free what is in the buffer now; a round under way is forgotten."""
        self._round_began_at, self._first_fill = now, self._fill

    def round_ended(self, now: Nanoseconds, released: int) -> None:
        """The round has ended and freed this amount; if none had begun, only the fill changes."""
        self._fill = max(0, self._fill - released)
        if self._round_began_at is None:
            return
        self._duration.add(max(0, now - self._round_began_at))
        if self._first_fill:
            self._released.add(min(1.0, released / self._first_fill))
        self._round_began_at = None
        self.rounds += 1

    def due(self, fill: int) -> bool:
        """Whether a round should begin with this fill, which replaces the one counted here."""
        self._fill = fill
        return self._round_began_at is None and fill >= self.threshold

    @property
    def threshold(self) -> int:
        """X: from this fill on a round is due."""
        if not self.rounds:
            return min(max(self._capacity // 2, self._least), self._most)
        during = (self._rate or 0.0) * self._duration.above()
        return min(max(int(self._capacity - during), self._least), self._most)

    @property
    def rate_per_s(self) -> float | None:
        """r as estimated, or None before anything was measured."""
        return None if self._rate is None else self._rate * 1e9

    @property
    def duration_ns(self) -> Nanoseconds | None:
        """f as estimated."""
        return None if self._duration.mean is None else round(self._duration.mean)

    @property
    def released_share(self) -> float | None:
        """Alpha as estimated."""
        return self._released.mean

    @property
    def is_sound(self) -> bool | None:
        """Whether the threshold keeps the buffer from ever overflowing; None before anything was measured."""
        if self._rate is None or self._duration.mean is None or self._released.mean is None:
            return None
        share = max(LEAST_RELEASED_SHARE, self._released.below())
        return is_sound(self._capacity, self._rate, self._duration.above(), share)

    def _sample_rate(self, sample: float) -> None:
        if self._rate is None:
            self._rate = sample
        else:
            gain = GAIN if sample > self._rate else FALLING_GAIN
            self._rate += gain * (sample - self._rate)
