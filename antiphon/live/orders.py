"""The orders that a live group can keep: how each one's protocol object is made, and what it promises."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, fields
from random import Random
from typing import Any, Final

from antiphon.core.errors import UsageError
from antiphon.core.extras import require_extra
from antiphon.core.ids import Site
from antiphon.core.protocol import LiveProtocol
from antiphon.core.recording import Property
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.live.pieces import BATCH_BYTES, SMALL_BATCH_BYTES
from antiphon.protocols import dpg, fifo, metagroups, sco, sequencer
from antiphon.protocols.dpg.company import LEASH
from antiphon.protocols.dpg.services import SERVICE_PDUS, SERVICES
from antiphon.protocols.dpg.services.lan import LanService

REPAIRS: Final = fifo.REPAIRS
NO_HISTORY: Final = fifo.HistoryRole()
ASSUMED_SENDERS: Final = 8
"""Members that may fill one's socket buffer at the same time before anyone has to wait."""
USUAL_WINDOW: Final = 4
"""Batches under way of one sender that should fit its share of a receiver's buffer before they grow."""
LARGEST_WINDOW: Final = 20
"""Batches under way of one sender. Raising it costs memory at every receiver."""
KEPT_BODIES: Final = 512
"""Delivered batches of the total order, of a datagram each, kept for others.

That is 33 MB, what a full group delivers within a tenth of a second. Raising it costs memory, lowering it
makes members that stand still for a moment miss messages.
"""
TELL_NS: Final = MILLISECOND_NS // 2
"""Least pause between words of a member of the total order on what it holds, for each that hears them.

Raising it costs time until messages are stable, lowering it processors where many messages come one by one.
"""
ORDERING_BUFFERS: Final = 1024
"""Such batches that are not yet delivered. Raising it costs memory."""
ADMISSION_BUFFERS: Final = 16
"""Such batches that wait for their turn. Raising it costs latency under load."""
DEFAULT_SERVICE: Final = "sequencer"
"""The one-channel service that keeps its order on an ordinary network and a busy machine (docs/total.md)."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may tell or leave to the order."""

    def given(self) -> dict[str, Any]:
        """Those that are not left to the order."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}


@dataclass(frozen=True, kw_only=True)
class StabilityOptions(Options):
    """How a group is to find out what all hold and who is gone; None leaves it to the order."""

    stability: str | None = None
    """One of `antiphon.protocols.stability.PROTOCOLS`."""
    errors: str | None = None
    """One of the same, by which members find out what they have missed."""
    trigger: str | None = None
    """When a round begins: `timer` or `adaptive`."""
    piggyback: bool = False
    """Whether what members hold rides on their messages instead."""
    detector: str | None = None
    """How it is found out who is gone: one of `antiphon.protocols.detection.DETECTORS`."""

    def configure(self, **knobs: Any) -> fifo.FifoConfiguration:
        """The knobs of reliable FIFO multicast; what makes no sense is said at once."""
        given = self.given()
        if given.pop("piggyback", False):
            knobs["rows"] = "riding"
            given.setdefault("stability", "fulldist")
        return fifo.FifoConfiguration(**given, **knobs)


@dataclass(frozen=True, kw_only=True)
class AcrossOptions(Options):
    """How one order across several groups is kept; all nodes of a cluster must be told the same."""

    causal: bool = False
    """Whether causal order holds across groups, too."""
    bodies: str | None = None
    """How bodies travel: along the trees (`tree`) or from their senders to all members (`direct`)."""

    bypass: bool = False
    """Whether any two groups in one order are enough, for shorter ways."""

    def configure(self, **knobs: Any) -> metagroups.MetaGroupsConfiguration:
        """The knobs of meta-groups; what makes no sense is said at once."""
        return metagroups.MetaGroupsConfiguration(**self.given(), **knobs)

    @property
    def promises(self) -> tuple[Property, ...]:
        return metagroups.promises(self.configure())


USUAL_ACROSS: Final = AcrossOptions()
FIFO_AGREED: Final = ("repair", "stability", "errors", "trigger", "detector")
ACROSS_AGREED: Final = ("causal", "bodies", "bypass")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a protocol may need to know of the group that it is to serve."""

    site: Site
    sequencer: Site | None
    repair: str
    receive_buffer_bytes: int
    random: Random
    stability: StabilityOptions = StabilityOptions()
    across: AcrossOptions = USUAL_ACROSS
    history: fifo.HistoryRole = NO_HISTORY
    service: str = DEFAULT_SERVICE
    secret: bytes = b""
    hears_itself: bool = False
    """Whether own multicasts come back where they passed on the channel."""

    @property
    def batch_bytes(self) -> int:
        """What a batch has at most: so much that several of each sender fit a receiver's buffer.

        Where it counts when a batch passes, or that it passes as a whole, it is one datagram.
        """
        if self.service != DEFAULT_SERVICE:
            return SMALL_BATCH_BYTES
        share = self.receive_buffer_bytes // ASSUMED_SENDERS // USUAL_WINDOW
        return max(SMALL_BATCH_BYTES, min(share, BATCH_BYTES))

    @property
    def window_batches(self) -> int:
        """How many batches each sender may have under way so that together they fit a receiver's buffer."""
        fits = self.receive_buffer_bytes // self.batch_bytes // ASSUMED_SENDERS
        return max(2, min(LARGEST_WINDOW, fits))


@dataclass(frozen=True, kw_only=True)
class Order:
    """One value of `order=`."""

    name: str
    summary: str
    pdus: tuple[type[Pdu], ...]
    promised: Callable[[str, AcrossOptions], tuple[Property, ...]]
    build: Callable[[Settings], LiveProtocol]
    echoed: tuple[type[Pdu], ...] = ()
    """PDUs whose own multicasts are worth hearing, where a channel lets us."""
    selective: bool = False
    """Whether it sends a message to its destinations only; the others multicast it and deliver it there."""
    several: bool = False
    """Whether its members can be in several groups."""

    def promises(self, repair: str, across: AcrossOptions = USUAL_ACROSS) -> tuple[Property, ...]:
        """What it promises with a way of repair, and a way to keep one order across groups."""
        return self.promised(repair, across)


def _build_fifo(settings: Settings) -> LiveProtocol:
    window_bytes = settings.window_batches * settings.batch_bytes
    configuration = settings.stability.configure(repair=settings.repair, window_bytes=window_bytes)
    return fifo.Fifo(
        settings.site, (settings.site,), configuration, settings.random, history=settings.history
    )


def _build_sequencer(settings: Settings) -> LiveProtocol:
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


def total_configuration(settings: Settings) -> dpg.DpgConfiguration:
    windows = settings.window_batches
    # Larger batches are fewer, so that together they take the same memory, and the same time.
    datagrams = settings.batch_bytes / SMALL_BATCH_BYTES
    return dpg.DpgConfiguration(
        window=max(2, windows // 2),
        lag=max(8, min(3 * windows, int(KEPT_BODIES / datagrams / (1 + LEASH)))),
        tell_ns=TELL_NS,
        admission_buffers=round(ADMISSION_BUFFERS / datagrams),
        ordering_buffers=round(ORDERING_BUFFERS / datagrams),
        kept_bodies=KEPT_BODIES,
        kept_bytes=KEPT_BODIES * SMALL_BATCH_BYTES,
    )


def _build_total(settings: Settings) -> LiveProtocol:
    configuration = total_configuration(settings)
    lan = settings.service == "lan"
    service = LanService(hears_itself=settings.hears_itself) if lan else SERVICES[settings.service]()
    return dpg.Dpg(settings.site, configuration, service, settings.random, secret=settings.secret)


def _build_causal(settings: Settings) -> LiveProtocol:
    configuration = sco.ScoConfiguration(window=settings.window_batches)
    return sco.Sco(settings.site, (settings.site,), configuration, settings.random)


def _build_across(settings: Settings) -> LiveProtocol:
    windows = settings.window_batches
    configuration = settings.across.configure(admission=windows, window=2 * windows, says_goodbye=True)
    return metagroups.MetaGroups(settings.site, {}, configuration, settings.random)


ORDERS: Final = {
    order.name: order
    for order in (
        Order(
            name="fifo",
            summary="each sender's messages in the order in which it sent them",
            pdus=fifo.PDUS,
            promised=lambda repair, _: fifo.promises(repair),
            build=_build_fifo,
        ),
        Order(
            name="causal",
            summary="no message overtakes one that it may have come of, and each goes to whom it concerns",
            pdus=sco.PDUS,
            promised=lambda *_: sco.PROMISES,
            build=_build_causal,
            selective=True,
        ),
        Order(
            name="sequencer",
            summary="one order for all messages, given by one member",
            pdus=sequencer.PDUS,
            promised=lambda *_: sequencer.PROMISES,
            build=_build_sequencer,
        ),
        Order(
            name="total",
            summary="one order for all messages, whoever comes and goes",
            pdus=(*dpg.PDUS, *SERVICE_PDUS),
            promised=lambda *_: dpg.PROMISES,
            build=_build_total,
            echoed=(dpg.pdus.Message,),
        ),
        Order(
            name="total-across",
            summary="one order over several groups that overlap, for nodes that are in some of them",
            pdus=metagroups.PDUS,
            promised=lambda _, across: across.promises,
            build=_build_across,
            several=True,
        ),
    )
}


def agreed_options(
    order: str,
    sequencer: Site | None,
    repair: str,
    service: str,
    stability: StabilityOptions,
    across: AcrossOptions,
) -> dict[str, str]:
    """What all members of a group must have been told, with the defaults filled in: a group's fingerprint."""
    agreed: dict[str, Any] = {"order": order}
    if order == "fifo":
        chosen = stability.configure(repair=repair)
        agreed |= {name: getattr(chosen, name) for name in FIFO_AGREED}
        agreed["piggyback"] = chosen.rows != "whole"
    elif order == "sequencer":
        agreed["sequencer"] = sequencer
    elif order == "total":
        agreed["service"] = service
    elif order == "total-across":
        kept = across.configure()
        agreed |= {name: getattr(kept, name) for name in ACROSS_AGREED}
    return {name: str(value) for name, value in agreed.items()}


def check_stability(order: str, repair: str, options: StabilityOptions) -> None:
    """Whether an order can find out what all hold in that way."""
    given = options.given()
    if order == "fifo":
        options.configure(repair=repair)
        if options.detector == "gossip":
            require_extra("sim", "Failure detection by gossip needs")
    elif given:
        name = next(iter(given))
        raise UsageError(
            f"The order '{order}' finds out in its own way what all hold and who is gone: no {name}=.",
            hint=f"Leave {name}= out, or choose order='fifo'.",
        )


def check_across(order: str, options: AcrossOptions) -> None:
    """Whether an order can be kept in that way."""
    if find_order(order).several:
        options.configure()
        return
    for name in options.given():
        raise UsageError(
            f"The order '{order}' knows one group: no {name}=.",
            hint="For causal order in one group say order='causal'." if name == "causal" else None,
        )


def check_service(order: str, service: str | None) -> str:
    """The one-channel service to use; only the total order has some to choose from."""
    if service is None:
        return DEFAULT_SERVICE
    if order != "total":
        raise UsageError(
            f"The order '{order}' has no services.", hint="Leave service out, or choose 'total'."
        )
    if service not in SERVICES:
        raise UsageError(f"There is no service '{service}'.", hint=f"There are: {', '.join(SERVICES)}.")
    return service


def check_history(order: str, role: fifo.HistoryRole) -> None:
    """Whether an order can bring late joiners to the present."""
    if order != "fifo" and role != NO_HISTORY:
        raise UsageError(
            f"The order '{order}' keeps no history for late joiners.",
            hint="Leave history= and catch_up= out, or choose order='fifo'.",
        )


def find_order(name: str) -> Order:
    """The order of that name; one that does not exist is told with those that do."""
    if name not in ORDERS:
        near = difflib.get_close_matches(name, ORDERS, n=1)
        guess = f"Did you mean '{near[0]}'? " if near else ""
        raise UsageError(f"There is no order '{name}'.", hint=f"{guess}There are: {', '.join(ORDERS)}.")
    return ORDERS[name]
