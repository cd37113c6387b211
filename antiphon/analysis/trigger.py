"""When to begin a round of stability detection, so that no buffer overflows and no round is wasted.

Source: K. Guo, Scalable Message Stability Detection Protocols, chapter 6. A sender admits r messages a second
into a buffer of g; a round takes f seconds and frees the share alpha of what was in the buffer when it began.
A round begins as soon as X messages are there and no round is under way. A large X needs few rounds; too
large a one lets the buffer overflow.

The text requires that neither the first nor the second round overflows, and so finds X = min(g - rf, (g -
2rf) / (1 - alpha)). Rounds that follow one another without a pause find more in the buffer each time, up to
rf / alpha, which the text does not look at: with alpha = 0.2, r = 60, g = 640 and f = 2 its X = 500 ends
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
    """X as chapter 6 gives it; what is not positive means that there is none."""
    _require_sense(capacity, rate, duration_s, released_share)
    sent = rate * duration_s
    if released_share == 1.0:
        return capacity - sent
    return min(capacity - sent, (capacity - 2 * sent) / (1 - released_share))


def is_sound(capacity: float, rate: float, duration_s: float, released_share: float) -> bool:
    """Whether any X at all keeps the buffer from ever overflowing."""
    _require_sense(capacity, rate, duration_s, released_share)
    sent = rate * duration_s
    # Multiplied by alpha, so that nothing released is no division by zero.
    return sent * (released_share + 1) <= capacity * released_share


def sound_threshold(capacity: float, rate: float, duration_s: float, released_share: float) -> float | None:
    """The largest X that never lets the buffer overflow, or None where there is none."""
    if not is_sound(capacity, rate, duration_s, released_share):
        return None
    return capacity - rate * duration_s


@dataclass(frozen=True)
class BufferHistory:
    """What a buffer went through."""

    peak: float
    """The most that was in it, or would have been in one without limit."""
    first_fills: tuple[float, ...]
    """What was in it when each round began."""


def simulate_buffer(
    threshold: float, rate: float, duration_s: float, released_share: float, rounds: int = 100
) -> BufferHistory:
    """Follow a buffer without limit through some rounds: the judge of a threshold."""
    fill = peak = 0.0
    first_fills: list[float] = []
    for _ in range(rounds):
        # With less than X there, the sender goes on alone until X is reached.
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
"""How much of a new sample goes into an estimate; raising it forgets sooner and is more easily fooled."""
FALLING_GAIN: Final = 0.0625
"""The same for a rate that falls: a pause between two bursts is not to make the second one a surprise."""
DEVIATIONS: Final = 2.0
"""By how many mean deviations an estimate is taken to be worse than its mean."""
LEAST_RELEASED_SHARE: Final = 0.01
WINDOW_NS: Final = 50 * MILLISECOND_NS
"""Over how long at least a rate is measured: what a whole batch adds in one go is no rate."""


class Estimate:
    """A smoothed mean with its smoothed deviation, as transport protocols keep of round trips."""

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
    """Measures r, f and alpha of a live sender and says from which fill on a round is due.

    Amounts are bytes or messages, as the caller likes, but always the same. The threshold is g - rf, from
    estimates that lean to the safe side, and always between the two shares of the capacity given here. Where
    no X is sound, g - rf is less than what a round leaves behind, so that rounds follow one another without
    a pause: the most that can be done. Until the first round has ended the threshold is half the capacity.

    It knows nothing of time that passes without events: whoever uses it also begins a round after a quiet
    while, so that the last messages before a pause become stable too, and when a body is refused for want of
    room although the threshold is not reached.
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
        """So much was admitted into the buffer now."""
        self._fill += amount
        if self._window_began_at is None:
            # What came first is the start of the clock; nobody knows how long it took to come together.
            self._window_began_at = now
            return
        self._window_amount += amount
        elapsed_ns = now - self._window_began_at
        if elapsed_ns >= self._window_ns:
            self._sample_rate(self._window_amount / elapsed_ns)
            self._window_began_at, self._window_amount = now, 0

    def round_began(self, now: Nanoseconds) -> None:
        """A round begins that can free whatever is in the buffer now; one under way is forgotten."""
        self._round_began_at, self._first_fill = now, self._fill

    def round_ended(self, now: Nanoseconds, released: int) -> None:
        """The round has ended and freed so much; without a round that began, only the fill is noted."""
        self._fill = max(0, self._fill - released)
        if self._round_began_at is None:
            return
        self._duration.add(max(0, now - self._round_began_at))
        if self._first_fill:
            self._released.add(min(1.0, released / self._first_fill))
        self._round_began_at = None
        self.rounds += 1

    def due(self, fill: int) -> bool:
        """Whether a round should begin with so much in the buffer; the caller's count corrects ours."""
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
