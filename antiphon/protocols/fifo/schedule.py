"""When the next status is due."""

from typing import Final

from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group

HEARTBEAT: Final = "heartbeat"
SOON: Final = 16
"""A status that is wanted soon waits for this part of its usual pause, so that it serves several requests.
Raising it costs more statuses."""


class StatusSchedule:
    """A status is due soon after any part wants one, and then at pauses that double while nothing happens."""

    def __init__(self, context: Context, group: Group) -> None:
        self._timers = context.timers
        self._group = group
        self._sent_ns: Nanoseconds = 0
        self._pause_ns: Nanoseconds = 0
        self._wanted = False

    def soon(self, now: Nanoseconds) -> None:
        """Others should learn soon how things stand."""
        self._wanted = True
        self.reset()
        self._timers.arm(now, HEARTBEAT, max(1, self._group.pace.status_ns // SOON))

    def reset(self) -> None:
        """Something is unsettled: let the pauses begin small again."""
        self._pause_ns = 0

    def urge(self, now: Nanoseconds) -> None:
        """Others wait for what our status says: it is due after the least pause."""
        self.reset()
        self._timers.arm(now, HEARTBEAT, self.left_ns(now))

    def rest(self, now: Nanoseconds) -> None:
        """All members know already how things stand."""
        self._sent_ns = now
        self._wanted = False
        self._pause_ns = self._group.pace.quiet_status_ns

    @property
    def pause_ns(self) -> Nanoseconds:
        """The pause until the next status, if none is wanted sooner."""
        return max(self._pause_ns, self._group.pace.status_ns)

    def is_due(self, now: Nanoseconds) -> bool:
        """Whether a status is wanted, or the pause is over."""
        return self._wanted or now - self._sent_ns >= self.pause_ns

    def left_ns(self, now: Nanoseconds) -> Nanoseconds:
        """The time until a status is due."""
        return max(1, self._sent_ns + self.pause_ns - now)

    def sent(self, now: Nanoseconds) -> None:
        """A status was multicast."""
        self._sent_ns = now
        self._wanted = False
        self._pause_ns = min(2 * self.pause_ns, self._group.pace.quiet_status_ns)
