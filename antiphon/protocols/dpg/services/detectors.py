"""ContiguityDetectors: whether a message surely follows the one received before it with nothing between.

Source: Konorski, section 3.1 (a bit that an overwritten reception buffer sets; or the time between two
receptions) and section 3.2 (whether delays have remained under the bound).
"""

# ruff: noqa: ARG002 (the interface has more arguments than each detector needs)

from typing import Final
from typing import Protocol as Interface

from antiphon.core.time import Nanoseconds


class ContiguityDetector(Interface):
    """Of a channel that hands messages over in its own order."""

    def begin(self, *, whole: bool = False) -> None:
        """Nothing has been received yet, or not for long; `whole` if nothing was sent before either."""

    def lost(self) -> None:
        """Something on its way to us was lost, after whatever we received so far."""

    def received(self, now: Nanoseconds, size: int) -> bool:
        """A message of this size has arrived. Returns whether it follows the last contiguously."""


class OverwriteDetector:
    """The bit of section 3.1: set by any loss, reset by the reception of a message.

    One bit serves any number of reception buffers if each loss is reported with the first PDU that is
    fetched after it: then the loss lies between that PDU and the one fetched before. The bit cannot know
    that a lost PDU was only a report, so some contiguities go unnoticed.
    """

    def __init__(self) -> None:
        self._missed = True

    def begin(self, *, whole: bool = False) -> None:
        self._missed = not whole

    def lost(self) -> None:
        self._missed = True

    def received(self, now: Nanoseconds, size: int) -> bool:
        contiguous = not self._missed
        self._missed = False
        return contiguous


class TimingDetector:
    """The alternative of section 3.1: two receptions so close that no message fits between them.

    `transmit_ns` is what the smallest message takes on the channel. The time between the ends of two
    contiguous messages is at least what the second takes itself, so the rule as printed finds none where all
    have one size. With `byte_ns`, what a byte takes, the second one's bodies are first taken off: what
    remains is at most the pause between them.

    It is right only if receptions are seen as they happen: a queue before us hides pauses. Where losses are
    told as well, they count.
    """

    def __init__(self, transmit_ns: Nanoseconds, byte_ns: float = 0.0) -> None:
        self._transmit_ns: Final = transmit_ns
        self._byte_ns: Final = byte_ns
        self._last_ns: Nanoseconds | None = None

    def begin(self, *, whole: bool = False) -> None:
        self._last_ns = None

    def lost(self) -> None:
        self._last_ns = None

    def received(self, now: Nanoseconds, size: int) -> bool:
        last_ns, self._last_ns = self._last_ns, now
        return last_ns is not None and now - last_ns - size * self._byte_ns < self._transmit_ns


class DelayDetector:
    """Of section 3.2: whether all delays have remained under the bound since the last message was released.

    A late PDU casts doubt on the next release, as the paper has it. A loss casts doubt on more: what was lost
    may have had any stamp that could be given by then.
    """

    def __init__(self) -> None:
        self._late = True
        self._doubtful_until = 0

    def begin(self, *, whole: bool = False) -> None:
        self._late = not whole
        self._doubtful_until = 0

    def late(self) -> None:
        """A PDU was late, or this member was."""
        self._late = True

    def lost(self, until: int) -> None:
        """Something was lost whose stamp is not beyond this one."""
        self._doubtful_until = max(self._doubtful_until, until)

    def released(self, stamp: int) -> bool:
        """A message leaves the queue; whether it follows the last one contiguously."""
        contiguous = not self._late and stamp > self._doubtful_until
        self._late = False
        return contiguous
