"""The orders that a live group can keep, each with its options, its promises and its protocol object.

    antiphon.join("shop", order=Total(service="bounded-delay"))
    antiphon.join("shop", order="total", service="bounded-delay")        # the same, as shorthand

An option is declared once, as a knob of its order (`antiphon.core.knobs`). `join`, the command line, the load
generator, the table in docs/live.md and the fingerprint that members compare are made from it.
"""

from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final, Literal, cast

from antiphon.core.errors import UsageError
from antiphon.core.extras import require_extra
from antiphon.core.ids import Site
from antiphon.core.knobs import Knobs, knob, require_known
from antiphon.core.protocol import LiveProtocol
from antiphon.core.recording import Property
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.live.limits import require_name
from antiphon.live.pieces import BATCH_BYTES, SMALL_BATCH_BYTES
from antiphon.live.tag_channel import SEQUENCER
from antiphon.protocols import detection, dpg, fifo, metagroups, sco, sequencer
from antiphon.protocols.atomic_delivery import DELIVER_WHEN, AtomicDelivery
from antiphon.protocols.dpg.peers import LEASH
from antiphon.protocols.dpg.services import SERVICE_PDUS, SERVICES, bounded_delay
from antiphon.protocols.dpg.services.base import Service
from antiphon.protocols.dpg.services.bounded_delay import BoundedDelayService
from antiphon.protocols.dpg.services.lan import LanService
from antiphon.protocols.dpg.services.tag_sequencer import SequencerOptions, SequencerService
from antiphon.protocols.fifo.conduct import Conduct
from antiphon.protocols.fifo.pdus import TRIGGERS
from antiphon.protocols.profiles import find_profile
from antiphon.protocols.stability import PROTOCOLS, WITHOUT_ROUNDS
from antiphon.protocols.stability.tuning import Tuning

REPAIRS: Final = fifo.REPAIRS
SUSPECT: Final = "Silence, in nanoseconds, after which a member is suspected."
NO_HISTORY: Final = fifo.HistoryRole()
ASSUMED_SENDERS: Final = 8
"""Members that may fill a socket buffer at the same time before any of them must wait."""
USUAL_WINDOW: Final = 4
"""Batches of one sender under way that must fit its share of a receiver's buffer before batches grow."""
LARGEST_WINDOW: Final = 20
"""Largest number of batches of one sender under way. Raising it costs memory at every receiver."""
KEPT_BODIES: Final = 512
"""Delivered batches of the total order, of a datagram each, kept for other members.

That is 33 MB: what a full group delivers within a tenth of a second. Raising it costs memory; lowering it
makes members that pause for a moment miss messages.
"""
TELL_NS: Final = MILLISECOND_NS // 2
"""Least pause between a member's reports in the total order, for each receiver of them.

Raising it costs time until messages are stable; lowering it costs processor time where messages come singly.
"""
ORDERING_BUFFERS: Final = 1024
"""Batches of the total order that are not delivered yet. Raising it costs memory."""
ADMISSION_BUFFERS: Final = 16
"""Batches of the total order that wait to be sent. Raising it costs latency under load."""
DEFAULT_SERVICE: Final = "sequencer"
"""The one-channel service that keeps its order on an ordinary network and a busy machine (docs/total.md)."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an order needs to know about its process."""

    site: Site
    receive_buffer_bytes: int
    random: Random
    history: fifo.HistoryRole = NO_HISTORY
    secret: bytes = b""
    hears_itself: bool = False
    """Whether own multicasts are received once they have passed on the channel."""


@dataclass(frozen=True, kw_only=True)
class Order(Knobs):
    """One value of `order=`; the knobs of a subclass are the options of that order."""

    name: ClassVar[str]
    summary: ClassVar[str]
    pdus: ClassVar[tuple[type[Pdu], ...]]
    echoed: ClassVar[tuple[type[Pdu], ...]] = ()
    """PDUs whose own multicasts the protocol wants to receive, where a channel allows it."""
    selective: ClassVar[bool] = False
    """Whether messages travel to their destinations only. Other orders multicast, and deliver selectively."""
    several: ClassVar[bool] = False
    """Whether its members can be in several groups."""
    keeps_history: ClassVar[bool] = False
    """Whether late joiners can get the history."""

    @property
    def watches_levels(self) -> bool:
        """Whether the levels of acceptance of messages are watched."""
        return False

    def promises(self) -> tuple[Property, ...]:
        """The properties that the audit holds it to."""
        raise NotImplementedError

    def build(self, settings: Settings) -> LiveProtocol:
        """A protocol object with an empty memory."""
        raise NotImplementedError

    @property
    def needs_channel(self) -> bool:
        """Whether it needs one channel that all members share, and notices of losses on it."""
        return False

    def batch_bytes(self, settings: Settings) -> int:
        """Largest batch: several of each sender fit a receiver's buffer."""
        share = settings.receive_buffer_bytes // ASSUMED_SENDERS // USUAL_WINDOW
        return max(SMALL_BATCH_BYTES, min(share, BATCH_BYTES))

    def window_batches(self, settings: Settings) -> int:
        """How many batches each sender may have under way, so that together they fit a receiver's buffer."""
        fits = settings.receive_buffer_bytes // self.batch_bytes(settings) // ASSUMED_SENDERS
        return max(2, min(LARGEST_WINDOW, fits))

    def fingerprint(self) -> dict[str, str]:
        """The values on which all members of a group must agree, with the defaults filled in."""
        return {"order": self.name} | {name: str(value) for name, value in self.agreed().items()}

    def agreed(self) -> dict[str, Any]:
        """The options among those values."""
        return {name: getattr(self, name) for name, each in self.knobs().items() if each.agreed}


@dataclass(frozen=True, kw_only=True)
class Deliverable(Order):
    """An order that can hold messages back until they are stable."""

    one_order: ClassVar[bool] = True
    """Whether all messages have one order, or each sender's messages have their own."""

    deliver: str = knob(
        "ordered",
        "When a message is delivered: once its place is known, or once every destination has it as well.",
        choices=DELIVER_WHEN,
    )

    def kept_promises(self) -> tuple[Property, ...]:
        """The promises of the protocol alone."""
        raise NotImplementedError

    def build_protocol(self, settings: Settings) -> LiveProtocol:
        """The protocol, which delivers at once."""
        raise NotImplementedError

    def promises(self) -> tuple[Property, ...]:
        return (*self.kept_promises(), "safe") if self.deliver == "stable" else self.kept_promises()

    def build(self, settings: Settings) -> LiveProtocol:
        if self.deliver == "ordered":
            return self.build_protocol(settings)
        if settings.history != NO_HISTORY:
            raise UsageError(
                "History cannot be kept or read where messages are delivered when they are stable.",
                hint="Leave out history= and catch_up=, or deliver='stable'.",
            )
        return AtomicDelivery(self.build_protocol(settings), one_order=self.one_order)


@dataclass(frozen=True, kw_only=True)
class Fifo(Deliverable, Tuning, Conduct):
    """Each sender's messages in the order in which it sent them."""

    name: ClassVar = "fifo"
    summary: ClassVar = "each sender's messages in the order in which it sent them"
    pdus: ClassVar = fifo.PDUS
    one_order: ClassVar = False
    keeps_history: ClassVar = True

    repair: str = knob("hybrid", "How losses are repaired.", choices=REPAIRS)
    stability: str | None = knob(
        None,
        "The protocol that detects which messages are stable: coordp unless said otherwise.",
        choices=(*PROTOCOLS, *WITHOUT_ROUNDS),
    )
    errors: str | None = knob(
        None,
        "A stability protocol by which members detect what they lack; senders announce it otherwise.",
        choices=PROTOCOLS,
    )
    trigger: str = knob(
        "timer", "What starts a round of stability: the clock, or full buffers.", choices=TRIGGERS
    )
    piggyback: bool = knob(False, "Stability rides on messages instead of rounds.")
    detector: str = knob("heartbeat", "How failures are detected.", choices=detection.DETECTORS)
    suspect_after_ns: Nanoseconds = knob(SECOND_NS // 2, SUSPECT, least=100 * MILLISECOND_NS, agreed=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.configuration()
        if self.detector == "gossip":
            require_extra("sim", "Failure detection by gossip needs")

    def configuration(self, **knobs: Any) -> fifo.FifoConfiguration:
        """The protocol's configuration; contradicting options raise."""
        chosen = self.stability or ("fulldist" if self.piggyback else "coordp")
        return fifo.FifoConfiguration(
            repair=self.repair, stability=chosen, tuning=self.tuning, conduct=self.conduct,
            rows="riding" if self.piggyback else "whole", errors=self.errors, trigger=self.trigger,
            detector=self.detector, suspect_after_ns=self.suspect_after_ns, **knobs,
        )  # fmt: skip

    def agreed(self) -> dict[str, Any]:
        return super().agreed() | {"stability": self.configuration().stability}

    def kept_promises(self) -> tuple[Property, ...]:
        return fifo.promises(self.repair)

    def build_protocol(self, settings: Settings) -> LiveProtocol:
        window_bytes = self.window_batches(settings) * self.batch_bytes(settings)
        configuration = self.configuration(window_bytes=window_bytes)
        return fifo.Fifo(
            settings.site, (settings.site,), configuration, settings.random, history=settings.history
        )


@dataclass(frozen=True, kw_only=True)
class Causal(Order):
    """No message overtakes one that may have caused it, and each goes to its destinations only."""

    name: ClassVar = "causal"
    summary: ClassVar = "no message overtakes one that may have caused it; each goes to its destinations only"
    pdus: ClassVar = sco.PDUS
    selective: ClassVar = True

    confirm_ns: Nanoseconds = knob(
        2 * MILLISECOND_NS,
        "Nanoseconds that a confirmation waits for a message to ride on. Raising it costs latency.",
        least=1,
        agreed=False,
    )
    confirm: str = knob(
        "continuous",
        "What a confirmation means: nothing of the sender is missing before the message, or nothing that "
        "precedes it. Causal, the paper's, costs latency.",
        choices=("continuous", "causal"),
    )
    delivery: str = knob(
        "full",
        "Deliver a message once every destination is known to have it, or once nothing before it is missing. "
        "Causal is sooner, and costs atomicity when members crash.",
        choices=("full", "causal"),
    )
    splits: bool = knob(
        True,
        "Members that have lost half of the group or more take themselves to be cut off. False lets any "
        "survivor go on, for networks that do not split.",
    )
    levels: bool = knob(
        False,
        "Watch the levels of acceptance of messages: Message.level and Message.reached. Costs time in "
        "proportion to the messages held.",
        agreed=False,
    )
    suspect_after_ns: Nanoseconds = knob(SECOND_NS // 2, SUSPECT, least=100 * MILLISECOND_NS, agreed=False)

    @property
    def watches_levels(self) -> bool:
        return self.levels

    def promises(self) -> tuple[Property, ...]:
        return sco.PROMISES if self.delivery == "full" else sco.CAUSAL_PROMISES

    def build(self, settings: Settings) -> LiveProtocol:
        configuration = sco.ScoConfiguration(
            window=self.window_batches(settings),
            confirm_ns=self.confirm_ns,
            silence_ns=self.suspect_after_ns,
            delivery=cast(Literal["full", "causal"], self.delivery),
            acknowledge=cast(Literal["continuous", "causal"], self.confirm),
            splits=self.splits,
            observe=self.levels,
        )
        return sco.Sco(settings.site, (settings.site,), configuration, settings.random)


@dataclass(frozen=True, kw_only=True)
class Sequencer(Deliverable):
    """One order for all messages, given by one member."""

    name: ClassVar = "sequencer"
    summary: ClassVar = "one order for all messages, given by one member"
    pdus: ClassVar = sequencer.PDUS

    sequencer: Site | None = knob(None, "The member that orders.")
    window: int | None = knob(
        None,
        "Batches of its own that a member may have under way; as many as fit the receivers' buffers if left "
        "out. 1 sends one at a time.",
        least=1,
        agreed=False,
    )
    order_window: int | None = knob(
        None,
        "Batches that the order may run ahead of the slowest member. 1 is lock-step: the next batch gets its "
        "place when all hold the last one.",
        least=1,
        agreed=False,
    )
    receipts: bool = knob(
        False,
        "Members acknowledge each batch, and the sequencer repeats what is not acknowledged in time; "
        "otherwise members ask for what they miss.",
    )
    suspect_after_ns: Nanoseconds = knob(SECOND_NS // 5, SUSPECT, least=50 * MILLISECOND_NS, agreed=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sequencer is None:
            raise UsageError(
                "The order 'sequencer' needs the name of the member that orders.",
                hint="Name that member in every member's call: sequencer='alice'.",
            )
        require_name(self.sequencer)

    def kept_promises(self) -> tuple[Property, ...]:
        return sequencer.PROMISES

    def build_protocol(self, settings: Settings) -> LiveProtocol:
        assert self.sequencer is not None
        windows = self.window_batches(settings)
        configuration = sequencer.SequencerConfiguration(
            window=self.window or windows,
            order_window=self.order_window or windows * (ASSUMED_SENDERS - 2),
            receipts=self.receipts, suspect_after_ns=self.suspect_after_ns,
        )  # fmt: skip
        members = tuple(dict.fromkeys((self.sequencer, settings.site)))
        return sequencer.Sequencer(settings.site, members, configuration)


@dataclass(frozen=True, kw_only=True)
class Total(Deliverable):
    """One order for all messages; members may come and go."""

    name: ClassVar = "total"
    summary: ClassVar = "one order for all messages, whichever members come and go"
    pdus: ClassVar = (*dpg.PDUS, *SERVICE_PDUS)
    echoed: ClassVar = (dpg.pdus.Message,)

    service: str = knob(DEFAULT_SERVICE, "What the order stands on (docs/total.md).", choices=SERVICES)
    quorum: int | None = knob(
        None,
        "Members, with this one, that must have a message in the same place before it is delivered: more "
        "than half of the group, and a minority that is cut off delivers nothing.",
        least=1,
    )
    contiguity: str | None = knob(
        None,
        "With the service bounded-delay: how members infer that nothing lies between two messages. Evidence, "
        "if left out, waits for every member's word; delays trusts delays below the bound, and after a loss "
        "the order may go apart, which is reported.",
        choices=bounded_delay.DETECTORS,
    )
    outside: str | None = knob(
        None,
        "The tag sequencer that numbers messages instead of a member, for several groups: the name that "
        "antiphon sequencer was given.",
    )
    outside_network: str | None = knob(
        None, "Where that sequencer is, if not on the group's network; forms as for network=.", agreed=False
    )
    outside_key: str | None = knob(
        None, "The key file of that sequencer's channel, if its key is not the group's.", agreed=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.contiguity is not None and self.service != "bounded-delay":
            raise UsageError(
                f"The service '{self.service}' infers contiguity in one way only.",
                hint="Leave contiguity= out, or choose service='bounded-delay'.",
            )
        if self.outside is not None and self.service != "sequencer":
            raise UsageError(
                f"The service '{self.service}' has no sequencer, and so none outside.",
                hint="Leave outside= out, or choose service='sequencer'.",
            )
        if self.outside is None and (self.outside_network or self.outside_key):
            raise UsageError("Which outside sequencer?", hint="Name it: outside='tags'.")

    @property
    def needs_channel(self) -> bool:
        return self.service == "lan"

    def batch_bytes(self, settings: Settings) -> int:
        """On one channel a batch is one datagram: it passes, or is lost, as a whole."""
        return SMALL_BATCH_BYTES if self.service != DEFAULT_SERVICE else super().batch_bytes(settings)

    def agreed(self) -> dict[str, Any]:
        """Options that are left out are not named, as by members of versions that lack them."""
        return {name: value for name, value in super().agreed().items() if value is not None}

    def kept_promises(self) -> tuple[Property, ...]:
        return dpg.PROMISES

    def configuration(self, settings: Settings) -> dpg.DpgConfiguration:
        windows = self.window_batches(settings)
        # Larger batches are fewer, so that their total memory and time stay the same.
        datagrams = self.batch_bytes(settings) / SMALL_BATCH_BYTES
        return dpg.DpgConfiguration(
            window=max(2, windows // 2),
            lag=max(8, min(3 * windows, int(KEPT_BODIES / datagrams / (1 + LEASH)))),
            tell_ns=TELL_NS,
            admission_buffers=round(ADMISSION_BUFFERS / datagrams),
            ordering_buffers=round(ORDERING_BUFFERS / datagrams),
            kept_bodies=KEPT_BODIES,
            kept_bytes=KEPT_BODIES * SMALL_BATCH_BYTES,
            quorum=self.quorum or 0,
        )

    def build_protocol(self, settings: Settings) -> LiveProtocol:
        service: Service
        if self.service == "lan":
            service = LanService(hears_itself=settings.hears_itself)
        elif self.contiguity is not None:
            service = BoundedDelayService(detector=self.contiguity)
        elif self.outside is not None:
            service = SequencerService(SequencerOptions(outside=SEQUENCER))
        else:
            service = SERVICES[self.service]()
        configuration = self.configuration(settings)
        return dpg.Dpg(settings.site, configuration, service, settings.random, secret=settings.secret)


@dataclass(frozen=True, kw_only=True)
class TotalAcross(Order):
    """One order over several groups that overlap, for nodes that are in some of them."""

    name: ClassVar = "total-across"
    summary: ClassVar = "one order over several groups that overlap, for nodes that are in some of them"
    pdus: ClassVar = metagroups.PDUS
    several: ClassVar = True

    causal: bool = knob(False, "Keep causal order across groups, too.")
    bodies: Literal["tree", "direct"] = knob("tree", "How bodies travel.", choices=("tree", "direct"))
    bypass: bool = knob(False, "Take shorter paths; the order is then pairwise instead of total.")
    suspect_after_ns: Nanoseconds = knob(
        300 * MILLISECOND_NS, SUSPECT, least=100 * MILLISECOND_NS, agreed=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.configuration()

    def configuration(self, **knobs: Any) -> metagroups.MetaGroupsConfiguration:
        """The protocol's configuration; contradicting options raise."""
        return metagroups.MetaGroupsConfiguration(
            causal=self.causal,
            bodies=self.bodies,
            bypass=self.bypass,
            suspect_ns=self.suspect_after_ns,
            **knobs,
        )

    def promises(self) -> tuple[Property, ...]:
        return metagroups.promises(self.configuration())

    def build(self, settings: Settings) -> LiveProtocol:
        windows = self.window_batches(settings)
        # A batch is stable only once it has gone down the tree and acknowledgements have come up. What a
        # receive buffer must hold is less: requests until they are accepted, and a primary site's entries.
        configuration = self.configuration(
            admission=2 * windows, requests=windows, window=4 * windows, says_goodbye=True
        )
        return metagroups.MetaGroups(settings.site, {}, configuration, settings.random)


ORDERS: Final[dict[str, type[Order]]] = {
    kind.name: kind for kind in (Fifo, Causal, Sequencer, Total, TotalAcross)
}


def find_order(name: str) -> type[Order]:
    """The order of that name. An unknown name raises, and lists the known ones."""
    require_known(name, ORDERS, f"There is no order '{name}'.")
    return ORDERS[name]


def make_order(order: str | Order, options: dict[str, Any]) -> Order:
    """An order from its name and options; None and False leave an option at its default."""
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    if isinstance(order, Order):
        for name in given:
            raise UsageError(
                f"{name}= goes into the order: {type(order).__name__}({name}=...).",
                hint="Give options with the order's name, or within the order, not both.",
            )
        return order
    kind = find_order(order)
    known = kind.knobs()
    everywhere = {name: each for every in ORDERS.values() for name, each in every.knobs().items()}
    for name in given:
        require_known(name, everywhere, f"There is no option '{name}'.")
        if name not in known:
            having = [each.name for each in ORDERS.values() if name in each.knobs()]
            also = f" There is an order='{name}', too." if name in ORDERS else ""
            raise UsageError(
                f"The order '{order}' has no option {name}=.",
                hint=f"Leave it out, or choose order={' or '.join(map(repr, having))}.{also}",
            )
    return kind(**given)


def compose(
    profile: str | None, order: str | Order, options: dict[str, Any]
) -> tuple[str | Order, dict[str, Any]]:
    """The order and the options of a profile; what is given beside it takes the place of the profile's."""
    if profile is None:
        return order, options
    found = find_profile(profile)
    if found.order not in ORDERS:
        raise UsageError(
            f"The profile '{profile}' runs in the simulator only.",
            hint=f"Try: antiphon simulate --profile {profile}",
        )
    if order not in (Fifo.name, found.order):
        raise UsageError(f"The profile '{profile}' has the order '{found.order}'.", hint="Leave order= out.")
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    return found.order, {**found.options, **given}


def options_table() -> str:
    """The options of all orders, in Markdown, for the docs."""
    rows = ["| option | order | default | what it is |", "|---|---|---|---|"]
    for kind in ORDERS.values():
        for each in kind.knobs().values():
            values = f" One of {', '.join(f'`{choice}`' for choice in each.choices)}." if each.choices else ""
            agreed = " All members use the same." if each.agreed else ""
            default = f"{each.default:,}" if type(each.default) is int else f"`{each.default}`"
            rows.append(f"| `{each.name}` | `{kind.name}` | {default} | {each.sentence}{values}{agreed} |")
    return "\n".join(rows)
