"""When a round is due by the fill of the buffers: adapts the trigger of Guo, chapter 6.

The sender with the fullest buffer of unstable messages decides. The member that triggers rounds knows its
fill, since it keeps copies of all unstable messages itself.
"""

import math
from collections.abc import Iterable
from typing import Final

from antiphon.analysis.trigger import Trigger
from antiphon.core.time import Nanoseconds, to_seconds
from antiphon.protocols.fifo.streams import Stream

CHECKS: Final = 64
"""Checks of the buffers while as much comes as fits one of them, at most. Raising it costs time."""
DEVIATIONS: Final = 3.0
"""Standard deviations of arrivals during a round for which room is left. Raising it costs rounds."""


class AdaptiveTrigger:
    """Measures how fast the buffers fill and how long rounds take, and says when the next one is due."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._trigger = Trigger(capacity_bytes)
        self._freed: dict[Stream, int] = {}
        """What was discarded of each stream in this view."""
        self._levels: dict[Stream, int] = {}
        """What had come of each stream by the last check: discarded and kept."""
        self._fullest: Stream | None = None
        self._batch_bytes = 0
        """The mean size of a batch in the fullest buffer."""
        self._freed_before = 0
        self._round_began_ns: Nanoseconds = 0
        self.is_waiting = False
        """Whether a round was begun whose end is not noted yet."""

    @property
    def threshold_bytes(self) -> int:
        """The fill that makes a round due: the trigger's, less what may come beyond the mean by chance."""
        trigger = self._trigger
        during = (trigger.rate_per_s or 0.0) * to_seconds(trigger.duration_ns or 0)
        chance = DEVIATIONS * math.sqrt(during * self._batch_bytes)
        return max(1, min(trigger.threshold, int(self._capacity_bytes - during - chance)))

    def on_view(self) -> None:
        """A new view has begun; a round that was under way does not matter any more."""
        self._freed.clear()
        self._levels.clear()
        self._fullest = None
        self.is_waiting = False

    def freed(self, stream: Stream, size: int) -> None:
        self._freed[stream] = self._freed.get(stream, 0) + size

    def check(self, now: Nanoseconds, streams: Iterable[Stream]) -> int:
        """How much may come before the next check; 0 if a round is due."""
        fill = self._measure(now, streams)
        self._trigger.due(fill)  # tells it the fill
        threshold = self.threshold_bytes
        return 0 if fill >= threshold else max(1, self._capacity_bytes // CHECKS, threshold - fill)

    def round_began(self, now: Nanoseconds, streams: Iterable[Stream]) -> None:
        self._trigger.due(self._measure(now, streams))
        self._trigger.round_began(now)
        self._round_began_ns = now
        self._freed_before = 0 if self._fullest is None else self._freed.get(self._fullest, 0)
        self.is_waiting = True

    def round_ended(self, now: Nanoseconds) -> int:
        """The round's result is here and was discarded; how much of the fullest buffer that was.

        At the senders it takes longer from full to free: by the time of a message to here and of the result
        to there. No round is shorter than that round trip, so the duration is doubled.
        """
        freed = 0 if self._fullest is None else self._freed.get(self._fullest, 0) - self._freed_before
        self._trigger.round_ended(2 * now - self._round_began_ns, freed)
        self.is_waiting = False
        return freed

    def _measure(self, now: Nanoseconds, streams: Iterable[Stream]) -> int:
        """Tell the trigger how fast the fastest buffer fills; the fill of the fullest."""
        fill = grown = 0
        for stream in streams:
            level = stream.kept_bytes + self._freed.get(stream, 0)
            grown = max(grown, level - self._levels.get(stream, level))
            self._levels[stream] = level
            if stream.kept_bytes >= fill:
                fill, self._fullest = stream.kept_bytes, stream
        self._trigger.sent(now, grown)
        if self._fullest is not None and self._fullest.kept:
            self._batch_bytes = fill // len(self._fullest.kept)
        return fill
