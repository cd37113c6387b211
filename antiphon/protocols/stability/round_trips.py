"""How long a member waits before it repeats itself: half as long again as answers usually took before.

Each member measures its own hops: the members that it asks, the member that confirms to it, and the result of
a round. What it has measured is kept from round to round, and its owner keeps it from view to view.

The usual time is the median of the latest ones. Where a message was lost further on, an answer takes many
times as long; a mean and deviation, as TCP has them (RFC 6298), would follow such times for many rounds.

Answers to what was repeated measure nothing, since they may be answers to what was sent first (Karn). Where
PDUs tell the two apart, late answers to what was sent first still count. Otherwise a wait that has doubled
stays so until an answer comes that nothing was repeated for: a wait that is too short grows, beyond the
longest pause only while nothing has been measured.
"""

from dataclasses import dataclass
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds

MARGIN: Final = 1.5
"""A wait is this multiple of the usual time. Raising it costs time after a loss, and saves needless
repetitions."""
LATEST: Final = 5
"""Times that are remembered. Raising it costs rounds until a change is noticed."""
MOST_MEASURED: Final = 10
"""A measured wait is at most this multiple of the longest pause. Raising it costs time after a loss once a
member has stood still."""


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """When to repeat what may have been lost.

    While nothing has been measured, the first wait is `first_ns`: a longer one costs time after a loss and
    saves repetitions that were not needed. Each wait is `factor` times the one before, up to `longest_ns`, so
    that repetitions do not feed the congestion that made them necessary.
    """

    first_ns: Nanoseconds = SECOND_NS
    factor: int = 2
    longest_ns: Nanoseconds = 60 * SECOND_NS
    least_ns: Nanoseconds = MILLISECOND_NS
    """Nothing is repeated sooner, however fast answers were. Raising it costs time after a loss."""

    def __post_init__(self) -> None:
        if self.first_ns < 1 or self.longest_ns < self.first_ns or self.factor < 1:
            raise UsageError("A repetition needs a positive first wait, none longer than the longest.")

    def after(self, wait_ns: Nanoseconds) -> Nanoseconds:
        return max(wait_ns, min(wait_ns * self.factor, self.longest_ns))

    def bounded(self, wait_ns: Nanoseconds) -> Nanoseconds:
        """A measured wait, neither too short nor too long."""
        least_ns = min(self.least_ns, self.first_ns)
        return max(least_ns, min(wait_ns, MOST_MEASURED * self.longest_ns))


USUAL: Final = Repetition()


class RoundTrip:
    """The times that one kind of answer took, and the wait for the next one of that kind."""

    __slots__ = (
        "_began_ns", "_is_told_apart", "_kept_ns", "_last_ns", "_times_ns", "_usual_ns", "_wait_ns",
    )  # fmt: skip

    def __init__(self, *, is_told_apart: bool) -> None:
        self._is_told_apart = is_told_apart
        """Whether answers to what was sent first are known from those to what was repeated."""
        self._times_ns: list[Nanoseconds] = []
        self._usual_ns: Nanoseconds = 0
        self._began_ns: Nanoseconds | None = None
        self._last_ns: Nanoseconds = 0
        """How long the last answer took of those that have come."""
        self._wait_ns: Nanoseconds = 0
        self._kept_ns: Nanoseconds = 0
        """A wait that has doubled, until an answer shows that a shorter one will do."""

    @property
    def is_measured(self) -> bool:
        return self._usual_ns > 0

    def begin(
        self, now: Nanoseconds, repetition: Repetition, unknown_ns: Nanoseconds | None = None
    ) -> Nanoseconds:
        """Something is sent for the first time: how long to wait for answers."""
        self._began_ns, self._last_ns = now, 0
        if self.is_measured:
            wait_ns = repetition.bounded(int(MARGIN * self._usual_ns))
        else:
            wait_ns = repetition.first_ns if unknown_ns is None else unknown_ns
        self._wait_ns = max(wait_ns, self._kept_ns)
        return self._wait_ns

    def repeat(self, repetition: Repetition) -> Nanoseconds:
        """It is sent again: how long to wait from now on."""
        before_ns = self._wait_ns or repetition.first_ns
        self._wait_ns = repetition.after(before_ns)
        if not self._is_told_apart:
            self._began_ns = None
            # Once a time is known, a wait longer than the longest pause would only tell of losses.
            grown_ns = repetition.bounded(repetition.factor * before_ns)
            self._kept_ns = self._wait_ns if self.is_measured else grown_ns
        return self._wait_ns

    def answered(self, now: Nanoseconds) -> None:
        """An answer has come to what was sent first."""
        if self._began_ns is not None:
            self._last_ns = max(1, now - self._began_ns)

    def end(self) -> None:
        """Nothing more is waited for: the last answer's time counts."""
        took_ns = self._last_ns
        self.drop()
        if took_ns:
            self._kept_ns = 0
            self._times_ns = [*self._times_ns, took_ns][-LATEST:]
            self._usual_ns = sorted(self._times_ns)[(len(self._times_ns) - 1) // 2]

    def end_with(self, now: Nanoseconds, *, repeated: bool) -> None:
        """The only answer has come, to what was sent first or to what was repeated."""
        if not repeated:
            self.answered(now)
        self.end()

    def drop(self) -> None:
        """What was waited for is not wanted any more: nothing was measured."""
        self._began_ns, self._last_ns = None, 0


class RoundTrips:
    """What one member has measured."""

    __slots__ = ("answers", "receipt", "result")

    def __init__(self) -> None:
        self.answers = RoundTrip(is_told_apart=True)
        """From the start of a round until the last of the members that we wait for has answered."""
        self.receipt = RoundTrip(is_told_apart=False)
        """Until the next member has confirmed what we sent on."""
        self.result = RoundTrip(is_told_apart=True)
        """From our answer until the round's result comes to all."""
