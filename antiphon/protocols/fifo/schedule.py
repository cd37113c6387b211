"""When the next status is due."""

from typing import Final

from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.context import Context

HEARTBEAT: Final = "heartbeat"
SOON: Final = 16
"""A status that is wanted soon waits for this part of a heartbeat, so that it serves several requests.
Raising it costs more statuses."""


class StatusSchedule:
    """A status is due every heartbeat, and soon after any part wants one."""

    def __init__(self, context: Context) -> None:
        self._timers = context.timers
        self._heartbeat_ns = context.configuration.heartbeat_ns
        self._sent_ns: Nanoseconds = 0
        self._wanted = False

    def soon(self, now: Nanoseconds) -> None:
        """Others should learn soon how things stand."""
        self._wanted = True
        self._timers.arm(now, HEARTBEAT, max(1, self._heartbeat_ns // SOON))

    def is_due(self, now: Nanoseconds) -> bool:
        """Whether a status is wanted, or none was multicast for a heartbeat."""
        return self._wanted or now - self._sent_ns >= self._heartbeat_ns

    def sent(self, now: Nanoseconds) -> None:
        """A status was multicast."""
        self._sent_ns = now
        self._wanted = False
