"""When a round is due by how full the buffers are: the seam to the trigger of chapter 6.

What counts is the sender that has the most in its buffer that is not stable. The member that triggers rounds
knows how much that is, since it keeps copies of all that is not stable itself.
"""

import math
from collections.abc import Iterable
from typing import Final

from antiphon.analysis.trigger import Trigger
from antiphon.core.time import Nanoseconds, to_seconds
from antiphon.protocols.fifo.streams import Stream

LOOKS: Final = 64
"""Between two looks at the buffers comes at least this part of what fits one of them."""
DEVIATIONS: Final = 3.0
"""Batches come at random: by so many deviations more may come during a round than on average."""


class Pacing:
    """Measures how fast the buffers fill and how long rounds take, and says when the next one is due."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._trigger = Trigger(capacity_bytes)
        self._freed: dict[Stream, int] = {}
        """What was let go of each stream in this view."""
        self._levels: dict[Stream, int] = {}
        """That and what was kept, when it was last looked at: what had come by then."""
        self._fullest: Stream | None = None
        self._batch_bytes = 0
        """The mean size of a batch in the fullest buffer."""
        self._freed_before = 0
        self._began_ns: Nanoseconds = 0
        self.waits = False
        """Whether a round was begun whose end is not noted yet."""

    @property
    def threshold_bytes(self) -> int:
        """From this fill on a round is due: the trigger's, less what may come beyond the mean by chance."""
        trigger = self._trigger
        during = (trigger.rate_per_s or 0.0) * to_seconds(trigger.duration_ns or 0)
        chance = DEVIATIONS * math.sqrt(during * self._batch_bytes)
        return max(1, min(trigger.threshold, int(self._capacity_bytes - during - chance)))

    def renew(self) -> None:
        """Others count than before, and a round that was under way is forgotten."""
        self._freed.clear()
        self._levels.clear()
        self._fullest = None
        self.waits = False

    def freed(self, stream: Stream, size: int) -> None:
        self._freed[stream] = self._freed.get(stream, 0) + size

    def look(self, now: Nanoseconds, streams: Iterable[Stream]) -> int:
        """How much may come before the next look; 0 if a round is due."""
        fill = self._measure(now, streams)
        self._trigger.due(fill)  # so that it knows the fill
        threshold = self.threshold_bytes
        return 0 if fill >= threshold else max(1, self._capacity_bytes // LOOKS, threshold - fill)

    def began(self, now: Nanoseconds, streams: Iterable[Stream]) -> None:
        self._trigger.due(self._measure(now, streams))
        self._trigger.round_began(now)
        self._began_ns = now
        self._freed_before = 0 if self._fullest is None else self._freed.get(self._fullest, 0)
        self.waits = True

    def ended(self, now: Nanoseconds) -> int:
        """The round's result is here, and what it found has been let go; how much of the fullest buffer.

        At the senders it takes longer from full to free: what they send takes a while to come here, and the
        result to come there. No round is shorter than that there and back, so it is taken for twice as long.
        """
        freed = 0 if self._fullest is None else self._freed.get(self._fullest, 0) - self._freed_before
        self._trigger.round_ended(2 * now - self._began_ns, freed)
        self.waits = False
        return freed

    def _measure(self, now: Nanoseconds, streams: Iterable[Stream]) -> int:
        """Tell the trigger how fast the fastest buffer fills; what the fullest holds."""
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
