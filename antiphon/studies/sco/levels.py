"""Table 1: the mechanism by which CBCAST, CO and SCO reach each acceptance level. Claim S7.

Each mechanism is removed, and the level that needs it is examined: continuous acceptance by whether messages
still reach their destinations, causal acceptance by whether they do so in causal order, atomic acceptance by
whether members learn that all hold them. The members' PDUs are changed on their way out, so the protocols
themselves are unchanged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal

from msgspec.structs import replace

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Input
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Property, Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols import sco
from antiphon.protocols.rivals import co, vector_clock
from antiphon.protocols.rivals.co import pdus as co_pdus
from antiphon.protocols.rivals.vector_clock import pdus as vector_pdus
from antiphon.protocols.sco import pdus as sco_pdus
from antiphon.protocols.sco.vectors import ENTRY_BYTES, pack_plain
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.selective import SelectiveConfiguration, SelectiveSubject, simulate_selective
from antiphon.spark.statistics import Point
from antiphon.studies.judging import judged_by, total
from antiphon.studies.model import Finding, Section, Table
from antiphon.studies.results import Results
from antiphon.studies.sco.precedence import Precedence, Witness
from antiphon.studies.study import Grid, fixed

Level = Literal["continuous", "causal", "atomic"]
Change = Callable[[Pdu, int], Pdu | None]
"""The PDU that leaves instead of a member's PDU; None drops it."""

PROTOCOLS: Final = {"vector-clock": "CBCAST", "co": "CO", "sco": "SCO"}
LEVELS: Final[Mapping[Level, Mapping[str, str]]] = {
    "continuous": {"vector-clock": "the network", "co": "sequence numbers", "sco": "sequence numbers"},
    "causal": {"vector-clock": "vector clock", "co": "sequence numbers", "sco": "vector clock"},
    "atomic": {"vector-clock": "decentralised", "co": "distributed", "sco": "distributed"},
}
"""Table 1 of the paper."""
PROVED_BY: Final[Mapping[Level, Property]] = {
    "continuous": "atomicity",
    "causal": "causal",
    "atomic": "stability",
}
LOSS: Final = 0.1
WINDOW: Final = 300
"""A window so large that no member waits."""
NEVER_SILENT_NS: Final = 3_600_000 * MILLISECOND_NS
SECONDS_PER_COPY: Final = 2e-4


@dataclass(frozen=True, kw_only=True)
class Configuration(SelectiveConfiguration):
    """A small busy group whose channels take from 1 to 6 ms."""

    protocol: Annotated[str, "vector-clock, co or sco"] = "sco"
    kept: Annotated[bool, "whether the mechanism is there"] = True
    members: int = 6
    messages: int = 300
    destinations: int = 3
    own_share: float = 0.0
    jitter_ms: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.protocol not in PROTOCOLS:
            raise UsageError(
                f"Table 1 has no protocol '{self.protocol}'.", hint=f"Choose one of {', '.join(PROTOCOLS)}."
            )


class Without:
    """A member whose PDUs are changed on their way out; implements `antiphon.core.protocol.Protocol`."""

    def __init__(self, protocol: Protocol, change: Change, place: int) -> None:
        self._handle = protocol.handle
        self._change = change
        self._place = place

    def handle(self, now: Nanoseconds, event: Input) -> list[fx.Effect]:
        return [changed for effect in self._handle(now, event) if (changed := self._changed(effect))]

    def _changed(self, effect: fx.Effect) -> fx.Effect | None:
        if not isinstance(effect, fx.Send | fx.Multicast):
            return effect
        pdu = self._change(effect.pdu, self._place)
        return None if pdu is None else replace(effect, pdu=pdu)


# What is taken away


def unrepaired(pdu: Pdu, _place: int) -> Pdu | None:
    """No member asks for missing messages."""
    return None if isinstance(pdu, co_pdus.Ask | sco_pdus.Ask) else pdu


def unordered(pdu: Pdu, place: int) -> Pdu | None:
    """Messages do not carry what they follow."""
    match pdu:
        case vector_pdus.Message(vector=vector):
            return replace(pdu, vector=_own_only(vector, place))
        case co_pdus.Data(accepted=accepted):
            return replace(pdu, accepted=_own_only(accepted, place))
        case sco_pdus.Data(csn=csn):
            return replace(pdu, csn=_zeros(csn))
    return pdu


def unconfirmed(pdu: Pdu, place: int) -> Pdu | None:
    """No member reports what it holds."""
    match pdu:
        case vector_pdus.Message(vector=vector):
            return replace(pdu, vector=_own_only(vector, place))
        case vector_pdus.Delivered():
            return None
        case co_pdus.Data(accepted=accepted) | co_pdus.Control(accepted=accepted):
            return replace(pdu, accepted=_own_only(accepted, place))
        case sco_pdus.Data(ack=ack) | sco_pdus.Control(ack=ack):
            return replace(pdu, ack=_zeros(ack))
    return pdu


def _own_only(vector: tuple[int, ...], place: int) -> tuple[int, ...]:
    return tuple(number if index == place else 0 for index, number in enumerate(vector))


def _zeros(vector: bytes) -> bytes:
    """As many entries as the plain form has, all of them 0."""
    return pack_plain([0] * (len(vector) // ENTRY_BYTES))


CHANGES: Final[Mapping[Level, Change]] = {
    "continuous": unrepaired,
    "causal": unordered,
    "atomic": unconfirmed,
}


# The runs


def build(configuration: Configuration, seeds: Seeds, site: Site, members: tuple[Site, ...]) -> Protocol:
    """An unchanged member. CBCAST assumes the network that it requires."""
    pause_ns = max(2 * MILLISECOND_NS, configuration.round_trip_ns)
    if configuration.protocol == "vector-clock":
        knobs = vector_clock.VectorClockConfiguration(reliable_network=True, window=WINDOW)
        return vector_clock.VectorClock(site, members, knobs)
    if configuration.protocol == "co":
        return co.Co(site, members, co.CoConfiguration(repair_ns=pause_ns, window=WINDOW))
    knobs_of_sco = sco.ScoConfiguration(
        repair_ns=pause_ns,
        window=WINDOW,
        vectors="plain",
        silence_ns=NEVER_SILENT_NS,
    )
    return sco.Sco(site, members, knobs_of_sco, seeds.stream(f"sco/{site}"))


def run_at(level: Level, configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    seeds = Seeds(seed)
    truth = Precedence()
    witnesses: list[Witness] = []

    def build_changed(site: Site, members: tuple[Site, ...]) -> Protocol:
        member = build(configuration, seeds, site, members)
        if not configuration.kept:
            member = Without(member, CHANGES[level], members.index(site))
        witnesses.append(Witness(site, member, truth, None if configuration.protocol == "sco" else members))
        return witnesses[-1]

    subject = SelectiveSubject(
        build=build_changed,
        settle_ns=0,
        pdus={"vector-clock": vector_clock.PDUS, "co": co.PDUS, "sco": sco.PDUS}[configuration.protocol],
        data_kinds=(vector_pdus.Message, co_pdus.Data, sco_pdus.Data, sco_pdus.Copy),
    )
    metrics = simulate_selective(configuration, subject, seed, recorder)
    return metrics | {
        "meant": configuration.messages * configuration.destinations,
        "out_of_order": sum(truth.out_of_order(witness.delivered) for witness in witnesses),
    }


def scenario(level: Level) -> Scenario:
    return Scenario(
        name=f"antiphon.studies.sco.levels:{level.upper()}",
        summary=f"Table 1 of the SCO paper: {level} acceptance with its mechanism and without.",
        example=f"antiphon simulate antiphon.studies.sco.levels:{level.upper()} --protocol co --seed 1",
        configuration=Configuration,
        run=lambda configuration, seed, recorder: run_at(level, configuration, seed, recorder),
        promises=(PROVED_BY[level],),
        audited=True,
        cost_s=lambda knobs: SECONDS_PER_COPY * knobs.members * knobs.messages,
    )


CONTINUOUS: Final = scenario("continuous")
CAUSAL: Final = scenario("causal")
ATOMIC: Final = scenario("atomic")


def loss_of(level: Level, protocol: str, kept: bool) -> float:
    """Where the network is the mechanism, it is removed by loss; the others are tested under loss."""
    if protocol == "vector-clock":
        return LOSS if level == "continuous" and not kept else 0.0
    return 0.0 if level == "atomic" else LOSS


def case(level: Level, protocol: str, kept: bool) -> dict[str, Any]:
    return {"protocol": protocol, "kept": kept, "loss": loss_of(level, protocol, kept)}


GRIDS: Final = tuple(
    Grid(
        scenario=f"antiphon.studies.sco.levels:{level.upper()}",
        axes=fixed(case(level, protocol, kept)),
        seeds={"quick": 1, "full": 10},
    )
    for level in LEVELS
    for protocol in PROTOCOLS
    for kept in (True, False)
)


# Table 1


def points(results: Results, level: Level, protocol: str, kept: bool) -> list[Point]:
    name = f"antiphon.studies.sco.levels:{level.upper()}"
    return results.found({"scenario": name, **case(level, protocol, kept)})


def share(chosen: list[Point], metric: str) -> float:
    """The share of due messages that arrived."""
    return total(chosen, metric) / total(chosen, "meant")


def disorder(chosen: list[Point], protocol: str) -> float:
    """Messages delivered before one that precedes them.

    For CO and SCO a message precedes messages sent after its acceptance, as in the paper; for CBCAST messages
    sent after its delivery, which its vectors count.
    """
    return total(chosen, "violations" if protocol == "vector-clock" else "out_of_order")


def stands(results: Results, level: Level, protocol: str, kept: bool) -> bool:
    """Whether the level is reached for every message."""
    chosen = points(results, level, protocol, kept)
    if total(chosen, "violations") or share(chosen, "deliveries") < 1.0:
        return False
    if level == "causal":
        return not disorder(chosen, protocol)
    return level == "continuous" or share(chosen, "accepted") == 1.0


def found(results: Results, level: Level, protocol: str, kept: bool) -> str:
    chosen = points(results, level, protocol, kept)
    if level == "causal":
        seen = f" ({total(chosen, 'violations'):.0f} for applications)" if not kept else ""
        return f"{disorder(chosen, protocol):.0f} out of order{seen}"
    if level == "continuous":
        return f"{share(chosen, 'deliveries'):.0%} delivered"
    return f"{share(chosen, 'accepted'):.0%} known by all"


def cell(results: Results, level: Level, protocol: str) -> str:
    """The mechanism, and what happens with it and without."""
    with_it, without = (found(results, level, protocol, kept) for kept in (True, False))
    return f"{LEVELS[level][protocol]}: {with_it}; without: {without}"


def rows(results: Results) -> list[list[str]]:
    return [
        ["simple", *("the network" for _ in PROTOCOLS)],
        *([level, *(cell(results, level, protocol) for protocol in PROTOCOLS)] for level in LEVELS),
    ]


CONDITIONS: Final[Mapping[Level, str]] = {
    "atomic": "'decentralised' and 'distributed' both mean that each member finds out for itself; no run "
    "tells one from the other"
}
"""The readings on which a level's verdict depends."""


def mechanism_gives(results: Results, level: Level) -> Finding:
    """In all protocols the level is reached for every message with the mechanism, and not without it."""
    good = {protocol: stands(results, level, protocol, True) for protocol in PROTOCOLS}
    bad = {protocol: not stands(results, level, protocol, False) for protocol in PROTOCOLS}
    wrong = [name for protocol, name in PROTOCOLS.items() if not (good[protocol] and bad[protocol])]
    return Finding(
        ours="; ".join(
            f"{name} {found(results, level, protocol, kept=True)}, "
            f"without {found(results, level, protocol, kept=False)}"
            for protocol, name in PROTOCOLS.items()
        ),
        holds=not wrong,
        reason=f"Not so of {' and '.join(wrong)}." if wrong else "",
        condition=CONDITIONS.get(level, ""),
    )


SECTION: Final = Section(
    title="4 Acceptance levels: table 1",
    text="Each protocol with the mechanism that the table names and without it. Six members, 300 messages to "
    "three destinations each, delays of 1 to 6 ms. Continuous and causal acceptance are tested with a tenth "
    "of all arrivals lost; for CBCAST, which requires a reliable network, the loss itself removes its "
    "mechanism.\n\nA protocol that delivers a message only once all hold it, as CO and SCO do, hardly needs "
    "stamps for the order that applications see: a message sent after a delivery finds the delivered message "
    "everywhere. CO's applications see no disorder without stamps; SCO's do where a chain of messages "
    "bypasses a destination.",
    tables=(
        Table(
            title="Acceptance levels",
            caption="Delivered: share of all deliveries that should happen. Out of order: messages delivered "
            "before one that precedes them, by what members had accepted when they sent (CBCAST: delivered); "
            "in brackets by what applications had received. Known by all: share of deliveries whose "
            "destination learns that all hold the message.",
            columns=("acceptance level", *PROTOCOLS.values()),
            compute=rows,
        ),
    ),
    claims=judged_by(
        "sco",
        **{
            f"S7{letter}": partial(mechanism_gives, level=level)
            for letter, level in zip("abc", LEVELS, strict=True)
        },
    ),
)
