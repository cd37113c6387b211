"""The single-access LAN as a one-channel service: the order is the order of transmission.

Source: Konorski, sections 3.1 and 6.

Assumes: everyone who receives two PDUs receives them in the order in which the channel carried them, reports
included; whoever misses one can tell before the next PDU reaches it (the adapter's overwrite, the socket's
count of dropped datagrams), or else the pauses between receptions are those on the channel (the timing
detector). A sender does not hear itself: where its own messages stand it learns from others' reports, and
what that means for contiguity is the member's business (Suspended Delivery). Where it does, as on the
loopback interface of one machine, `hears_itself` says so, and its own messages are heard like all others.

Guarantees: `heard` is said of each message once, in the channel's order; `contiguous` only if no message lay
between it and the one heard before it, own messages of this member left aside.

Deviations: a message that comes once more (a network may repeat datagrams) is no event of the channel and
says nothing. For the timing rule see `TimingDetector`.
"""

# ruff: noqa: ARG002 (an interface says more than each of its kinds needs)

from typing import Final

from antiphon.core.effects import Multicast
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg.pdus import Message, Report, Tag
from antiphon.protocols.dpg.services.base import Channel
from antiphon.protocols.dpg.services.detectors import ContiguityDetector, OverwriteDetector, TimingDetector

DETECTORS: Final = ("overwrite", "timing")


def _detector(kind: str, transmit_ns: Nanoseconds, byte_ns: float) -> ContiguityDetector:
    if kind == "overwrite":
        return OverwriteDetector()
    if kind != "timing":
        raise UsageError(f"A LAN has no detector '{kind}'.", hint=f"Choose {' or '.join(DETECTORS)}.")
    if transmit_ns <= 0 or byte_ns < 0:
        raise UsageError(
            "The timing detector needs to know how long the smallest message takes on the channel.",
            hint="Give transmit_ns, its bits divided by the bandwidth.",
        )
    return TimingDetector(transmit_ns, byte_ns)


class LanService:
    """Implements `services.base.Service`."""

    reports_ordered = True
    pdus: tuple[type[Pdu], ...] = ()

    def __init__(
        self,
        detector: str = "overwrite",
        transmit_ns: Nanoseconds = 0,
        byte_ns: float = 0.0,
        *,
        hears_itself: bool = False,
    ) -> None:
        self.hears_itself = hears_itself
        self._detector: Final = _detector(detector, transmit_ns, byte_ns)
        self._channel: Channel
        self._losses = 0
        self._contiguities = 0

    def attach(self, channel: Channel) -> None:
        self._channel = channel

    def start(self, now: Nanoseconds, incarnation: int) -> None:
        self._detector.begin()

    def take_part(self, now: Nanoseconds) -> None:
        # Whoever has listened since before the first message has missed nothing before it.
        if self._channel.is_at_origin():
            self._detector.begin(whole=True)

    def depart(self, now: Nanoseconds) -> None:
        """There is nobody to tell."""

    def stamp(self, now: Nanoseconds) -> int:
        return 0

    def hand_over(self, now: Nanoseconds, message: Message) -> None:
        self._channel.emit(Multicast(message))

    def receive(
        self, now: Nanoseconds, sender: Site, message: Message, *, after_loss: bool, fresh: bool
    ) -> None:
        if after_loss:
            self._lose()
        if fresh:
            contiguous = self._detector.received(now, message.bodies.size)
            self._contiguities += contiguous
            self._channel.heard(now, message.tag, contiguous=contiguous)

    def receive_report(self, now: Nanoseconds, sender: Site, report: Report, *, after_loss: bool) -> None:
        if after_loss:
            self._lose()

    def receive_other(self, now: Nanoseconds, sender: Site, pdu: Pdu, *, after_loss: bool) -> None:
        if after_loss:
            self._lose()

    def _lose(self) -> None:
        self._losses += 1
        self._detector.lost()

    def vanished(self, now: Nanoseconds, site: Site) -> None:
        """Nothing here depends on who is there."""

    def located(self, now: Nanoseconds, tag: Tag) -> None:
        """The channel is none the wiser."""

    def fire(self, now: Nanoseconds, name: str) -> None:
        """There are no timers."""

    def note(self, now: Nanoseconds) -> bytes:
        return b""

    def figures(self) -> dict[str, int]:
        return {"losses_noticed": self._losses, "contiguities": self._contiguities}
