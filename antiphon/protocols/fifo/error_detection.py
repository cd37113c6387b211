"""Error detection: members report to one another how far they have seen each stream (Guo, chapter 7).

The stability protocols serve with maxima instead of minima. A member that has seen less of a stream than
another learns what it misses, and asks for it as for any gap. So the last message of a burst, which no later
message shows to be missing, needs no announcement by its sender.

Rounds go on while the group exists, since a member cannot know that something was sent of which it has seen
nothing: every `announce_ns` while messages come, every `heartbeat_ns` while none do.
"""

from typing import Final

from antiphon.core.effects import Missing, Stable
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group
from antiphon.protocols.fifo.layer_host import LayerHost
from antiphon.protocols.fifo.repair import Repair
from antiphon.protocols.stability import find_protocol
from antiphon.protocols.stability.base import Objective

DETECT: Final = "detect"
LAYER: Final = "errors/"
"""The prefix of the protocol's timers."""
MARK: Final = 1
"""Distinguishes the PDUs of error detection from those of stability detection in the same view."""


class ErrorDetection:
    """Triggers rounds of error detection, if the group uses it, and passes on what they find."""

    def __init__(self, context: Context, group: Group, repair: Repair) -> None:
        self._context = context
        self._group = group
        self._repair = repair
        name = context.configuration.errors
        self._host: LayerHost | None = None
        if name is not None:
            self._host = LayerHost(context, group, find_protocol(name), LAYER, Objective.GREATEST, MARK)
        self._before: list[int] = []

    @property
    def view(self) -> int | None:
        """The number that PDUs of error detection carry now."""
        return None if self._host is None else self._host.view

    def on_view(self, now: Nanoseconds) -> None:
        if self._host is not None:
            seen = self._seen()
            self._host.on_view(now, seen, seen)
            self._schedule(now)

    def on_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if self._host is not None:
            self._repair_found(now, self._host.on_pdu(now, sender, pdu, self._seen()))

    def fire(self, now: Nanoseconds, name: str) -> None:
        if self._host is None:
            return
        if name != DETECT:
            self._repair_found(now, self._host.fire(now, name, self._seen()))
        elif self._host.coordinates and not self._group.is_alone():
            if not self._host.is_busy(now):
                self._context.counts["error_rounds"] += 1
                self._repair_found(now, self._host.trigger(now, self._seen()))
            self._schedule(now)

    def _schedule(self, now: Nanoseconds) -> None:
        if self._host is None or not self._host.coordinates or self._group.is_alone():
            return
        seen, configuration = self._seen(), self._context.configuration
        pause_ns = configuration.heartbeat_ns if seen == self._before else configuration.announce_ns
        self._before = seen
        self._context.timers.arm(now, DETECT, max(pause_ns, self._group.pace.round_ns))

    def _seen(self) -> list[int]:
        """What this member has seen itself: reports of others would spread their mistakes for ever."""
        return [stream.seen for stream in self._group.view.streams]

    def _repair_found(self, now: Nanoseconds, found: list[Stable | Missing]) -> None:
        host = self._host
        assert host is not None, "only a host finds anything"
        for missing in found:
            stream = host.stream_of(missing)
            if stream is self._group.own or not stream.begun:
                continue  # no member has seen more of our messages than we have sent
            self._context.counts["errors_found"] += missing.count
            stream.end = max(stream.end, missing.number + missing.count)
            if stream.expected < stream.missing_to:
                self._repair.notice(now, stream)
