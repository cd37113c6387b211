"""When a member that waits for a number replaces a silent sequencer: see `lease`."""

from random import Random
from typing import Final

from antiphon.core.time import NEVER_NS, Nanoseconds
from antiphon.protocols.dpg.services.tag_sequencer.lease import believed
from antiphon.protocols.dpg.services.tag_sequencer.pdus import SequencerOptions

STUCK: Final = 4
"""A live sequencer that gives no number is replaced after this multiple of the lease.

Raising it costs a longer halt then.
"""
ROUND_TRIPS: Final = 3
"""An answer is awaited for this multiple of the shortest round trip. Raising it costs a longer halt."""


class Patience:
    """The patience of one member with the sequencer that it follows."""

    def __init__(self, options: SequencerOptions, random: Random) -> None:
        self._options = options
        self._random = random
        self.lease_ns = options.takeover_ns
        self.epoch_ns: Nanoseconds = 0
        """When this epoch became the latest here."""
        self.heard_ns: Nanoseconds = 0
        """When the sequencer was heard last."""
        self._numbered_ns: Nanoseconds = 0
        self._spread_ns: Nanoseconds = 0
        self._doubts = False

    def begin_epoch(self, now: Nanoseconds) -> None:
        """Another sequencer."""
        self.epoch_ns = self.heard_ns = self._numbered_ns = now
        self._spread_ns = round(self._random.random() * self._options.spread_ns)

    def numbered(self, now: Nanoseconds, lease_ns: Nanoseconds) -> None:
        """The sequencer has told numbers and its lease."""
        self.heard_ns = self._numbered_ns = now
        self.lease_ns = believed(lease_ns, self._options.takeover_ns)

    def stood_still(self, now: Nanoseconds) -> None:
        """This process stood still: the sequencer's PDUs of that time are yet to be read."""
        self.heard_ns = max(self.heard_ns, now - self._options.takeover_ns // 2)

    def next_ns(
        self, now: Nanoseconds, oldest_ns: Nanoseconds | None, least_ns: Nanoseconds
    ) -> Nanoseconds | None:
        """When to look again whether the sequencer is to be replaced; None if it is.

        Something has waited for a number since `oldest_ns`, which takes `least_ns` at least.
        """
        end_ns = NEVER_NS if oldest_ns is None else self._end_ns(oldest_ns, least_ns)
        doubted, self._doubts = self._doubts, now >= end_ns
        if not self._doubts:
            return end_ns
        return None if doubted else now + self._options.spread_ns // 4  # its PDU may be waiting to be read

    def _end_ns(self, oldest_ns: Nanoseconds, least_ns: Nanoseconds) -> Nanoseconds:
        """When the sequencer is to be replaced if nothing more is heard of it."""
        patience_ns = max(self.lease_ns, ROUND_TRIPS * least_ns)
        silent_ns = max(oldest_ns, self.heard_ns) + patience_ns
        stuck_ns = max(oldest_ns, self._numbered_ns) + STUCK * patience_ns
        return min(silent_ns, stuck_ns) + self._spread_ns
