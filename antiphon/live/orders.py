"""The orders that a live group can keep: how each one's protocol object is made, and what it promises."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Property
from antiphon.core.wire import Pdu
from antiphon.live.pieces import BATCH_BYTES
from antiphon.protocols import fifo, sequencer

REPAIRS: Final = fifo.REPAIRS
ASSUMED_SENDERS: Final = 8
"""Members that may fill one's socket buffer at the same time before anyone has to wait."""
LARGEST_WINDOW: Final = 20
"""Batches under way of one sender. Raising it costs memory at every receiver."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a protocol may need to know of the group that it is to serve."""

    site: Site
    sequencer: Site | None
    repair: str
    receive_buffer_bytes: int
    random: Random

    @property
    def window_batches(self) -> int:
        """How many batches each sender may have under way so that together they fit a receiver's buffer."""
        fits = self.receive_buffer_bytes // BATCH_BYTES // ASSUMED_SENDERS
        return max(2, min(LARGEST_WINDOW, fits))


@dataclass(frozen=True, kw_only=True)
class Order:
    """One value of `order=`."""

    name: str
    summary: str
    pdus: tuple[type[Pdu], ...]
    promises: Callable[[str], tuple[Property, ...]]
    """What it promises with a way of repair."""
    build: Callable[[Settings], Protocol]


def _build_fifo(settings: Settings) -> Protocol:
    window_bytes = settings.window_batches * BATCH_BYTES
    configuration = fifo.FifoConfiguration(repair=settings.repair, window_bytes=window_bytes)
    return fifo.Fifo(settings.site, (settings.site,), configuration, settings.random)


def _build_sequencer(settings: Settings) -> Protocol:
    if settings.sequencer is None:
        raise UsageError(
            "The order 'sequencer' needs to know who orders.",
            hint="Name that member in every member's call: sequencer='alice'.",
        )
    windows = settings.window_batches
    configuration = sequencer.SequencerConfiguration(
        window=windows, order_window=windows * (ASSUMED_SENDERS - 2)
    )
    members = tuple(dict.fromkeys((settings.sequencer, settings.site)))
    return sequencer.Sequencer(settings.site, members, configuration)


ORDERS: Final = {
    order.name: order
    for order in (
        Order(
            name="fifo",
            summary="each sender's messages in the order in which it sent them",
            pdus=fifo.PDUS,
            promises=fifo.promises,
            build=_build_fifo,
        ),
        Order(
            name="sequencer",
            summary="one order for all messages, given by one member",
            pdus=sequencer.PDUS,
            promises=lambda _: sequencer.PROMISES,
            build=_build_sequencer,
        ),
    )
}


def find_order(name: str) -> Order:
    """The order of that name; one that does not exist is told with those that do."""
    if name not in ORDERS:
        near = difflib.get_close_matches(name, ORDERS, n=1)
        guess = f"Did you mean '{near[0]}'? " if near else ""
        raise UsageError(f"There is no order '{name}'.", hint=f"{guess}There are: {', '.join(ORDERS)}.")
    return ORDERS[name]
