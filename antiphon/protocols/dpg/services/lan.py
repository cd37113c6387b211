"""The single-access LAN as a one-channel service: the order is the order of transmission.

Source: Konorski, sections 3.1 and 6.

Assumes: all members receive PDUs in the order in which the channel carried them, reports included. A member
that misses a PDU knows it before the next PDU arrives (the adapter's overwrite, the socket's count of dropped
datagrams), or else the pauses between receptions are those on the channel (the timing detector). A sender
does not hear itself: it learns the places of its own messages from others' reports, and the member handles
contiguity across them (Suspended Delivery). Where it does hear itself, as on the loopback interface of one
machine, `hears_itself` is set, and its own messages count like all others.

Guarantees: each message is `Next` once, in the channel's order. It is `contiguous` only if no message lay
between it and the one before it, own messages of this member left aside.

Deviations: a repeated message (a network may repeat datagrams) says nothing about the channel. For the timing
rule see `TimingDetector`.
"""

# ruff: noqa: ARG002 (the interface has more arguments than each service needs)

from typing import Final

from antiphon.core.effects import Multicast
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg.pdus import Message, Report, Tag
from antiphon.protocols.dpg.services.base import MemberView, Next, Placements
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
        self._member: MemberView
        self._losses = 0
        self._contiguities = 0

    def attach(self, member: MemberView) -> None:
        self._member = member

    def start(self, now: Nanoseconds, incarnation: int) -> None:
        self._detector.begin()

    def take_part(self, now: Nanoseconds) -> None:
        # A member that listened since before the first message has missed nothing before it.
        if self._member.is_at_origin():
            self._detector.begin(whole=True)

    def depart(self, now: Nanoseconds) -> Placements:
        return ()

    def stamp(self, now: Nanoseconds) -> int:
        """The sender's clock: receivers see how long the message waited for the channel."""
        return now

    def hand_over(self, now: Nanoseconds, message: Message) -> None:
        self._member.emit(Multicast(message))

    def on_message(
        self, now: Nanoseconds, sender: Site, message: Message, *, after_loss: bool, fresh: bool
    ) -> Placements:
        if after_loss:
            self._lose()
        if not fresh:
            return ()
        contiguous = self._detector.received(now, message.bodies.size)
        self._contiguities += contiguous
        return (Next(message.tag, contiguous),)

    def on_report(self, now: Nanoseconds, sender: Site, report: Report, *, after_loss: bool) -> Placements:
        if after_loss:
            self._lose()
        return ()

    def on_other_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu, *, after_loss: bool) -> Placements:
        if after_loss:
            self._lose()
        return ()

    def _lose(self) -> None:
        self._losses += 1
        self._detector.lost()

    def on_vanished(self, now: Nanoseconds, site: Site) -> None:
        """No-op: nothing here depends on who is present."""

    def on_located(self, now: Nanoseconds, tag: Tag) -> None:
        """No-op: the channel fixes the position."""

    def on_timer(self, now: Nanoseconds, name: str) -> Placements:
        return ()

    def note(self, now: Nanoseconds) -> bytes:
        return b""

    def figures(self) -> dict[str, int]:
        return {"losses_noticed": self._losses, "contiguities": self._contiguities}
