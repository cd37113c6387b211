"""Table 1: by which mechanism CBCAST, CO and SCO reach each acceptance level. Claim S7.

Each mechanism is taken away, and the level that stands on it is looked at: continuous acceptance by whether
messages still reach their destinations, causal acceptance by whether they do so in causal order, atomic
acceptance by whether it becomes known that all have them. What members send is changed on its way out, so
that the protocols themselves stay as they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from antiphon.protocols import co, sco, vector_clock
from antiphon.protocols.co import pdus as co_pdus
from antiphon.protocols.sco import pdus as sco_pdus
from antiphon.protocols.sco.vectors import ENTRY_BYTES, pack_plain
from antiphon.protocols.vector_clock import pdus as vector_pdus
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.selective import SelectiveConfiguration, SelectiveSubject, simulate_selective
from antiphon.spark.statistics import Point
from antiphon.studies.model import Claim, Finding, Grid, Results, Section, Table
from antiphon.studies.sco.judging import found, total
from antiphon.studies.sco.precedence import Precedence, Witness
from antiphon.studies.sco.settings import fixed

Level = Literal["continuous", "causal", "atomic"]
Change = Callable[[Pdu, int], Pdu | None]
"""What becomes of a PDU of the member at a place; None means that it does not go out."""

PROTOCOLS: Final = {"vector-clock": "CBCAST", "co": "CO", "sco": "SCO"}
LEVELS: Final[Mapping[Level, Mapping[str, str]]] = {
    "continuous": {"vector-clock": "the network", "co": "sequence numbers", "sco": "sequence numbers"},
    "causal": {"vector-clock": "vector clock", "co": "sequence numbers", "sco": "vector clock"},
    "atomic": {"vector-clock": "decentralised", "co": "distributed", "sco": "distributed"},
}
"""What table 1 says."""
PROVED_BY: Final[Mapping[Level, Property]] = {
    "continuous": "atomicity",
    "causal": "causal",
    "atomic": "stability",
}
LOSS: Final = 0.1
WINDOW: Final = 300
"""Nobody waits for anybody."""
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
    """Nobody asks for what is missing."""
    return None if isinstance(pdu, co_pdus.Ask | sco_pdus.Ask) else pdu


def unordered(pdu: Pdu, place: int) -> Pdu | None:
    """Messages do not tell what they follow."""
    match pdu:
        case vector_pdus.Message(vector=vector):
            return replace(pdu, vector=_own_only(vector, place))
        case co_pdus.Data(accepted=accepted):
            return replace(pdu, accepted=_own_only(accepted, place))
        case sco_pdus.Data(csn=csn):
            return replace(pdu, csn=_zeros(csn))
    return pdu


def unconfirmed(pdu: Pdu, place: int) -> Pdu | None:
    """Nobody tells what it has."""
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
    """A member as it should be. CBCAST takes the network to be what it asks for, whatever it is."""
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
    """Where the network is the mechanism, taking it away is to let it lose; others are tried under loss."""
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
    return found(results, {"scenario": name, **case(level, protocol, kept)})


def share(chosen: list[Point], metric: str) -> float:
    """Of all that should have come, how much did."""
    return total(chosen, metric) / total(chosen, "meant")


def disorder(chosen: list[Point], protocol: str) -> float:
    """Messages delivered before one that precedes them.

    For CO and SCO a message precedes what is sent after it was accepted, as the paper has it; for CBCAST what
    is sent after it was delivered, which is what its vectors count.
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


def told(results: Results, level: Level, protocol: str, kept: bool) -> str:
    chosen = points(results, level, protocol, kept)
    if level == "causal":
        seen = f" ({total(chosen, 'violations'):.0f} for applications)" if not kept else ""
        return f"{disorder(chosen, protocol):.0f} out of order{seen}"
    if level == "continuous":
        return f"{share(chosen, 'deliveries'):.0%} delivered"
    return f"{share(chosen, 'accepted'):.0%} known by all"


def cell(results: Results, level: Level, protocol: str) -> str:
    """The mechanism, and what happens with it and without."""
    with_it, without = (told(results, level, protocol, kept) for kept in (True, False))
    return f"{LEVELS[level][protocol]}: {with_it}; without: {without}"


def rows(results: Results) -> list[list[str]]:
    return [
        ["simple", *("the network" for _ in PROTOCOLS)],
        *([level, *(cell(results, level, protocol) for protocol in PROTOCOLS)] for level in LEVELS),
    ]


def mechanism_gives(results: Results, level: Level) -> Finding:
    """With the mechanism the level stands for every message, and without it does not, in all protocols."""
    good = {protocol: stands(results, level, protocol, True) for protocol in PROTOCOLS}
    bad = {protocol: not stands(results, level, protocol, False) for protocol in PROTOCOLS}
    wrong = [name for protocol, name in PROTOCOLS.items() if not (good[protocol] and bad[protocol])]
    return Finding(
        ours="; ".join(
            f"{name} {told(results, level, protocol, True)}, without {told(results, level, protocol, False)}"
            for protocol, name in PROTOCOLS.items()
        ),
        holds=not wrong,
        reason=f"Not so of {' and '.join(wrong)}." if wrong else "",
    )


SECTION: Final = Section(
    title="4 Acceptance levels: table 1",
    text="Each protocol with the mechanism that the table names and without it. Six members, 300 messages to "
    "three destinations each, delays of 1 to 6 ms. Continuous and causal acceptance are tried where a tenth "
    "of all arrivals is lost; for CBCAST, which asks for a network that loses nothing, that is what taking "
    "its mechanism away means.\n\nWhoever delivers only what all have, as CO and SCO do, needs no stamps for "
    "most of what applications see: what is sent after a delivery meets the delivered message everywhere. "
    "CO's applications see no disorder at all without them, SCO's where a chain of messages passes by a "
    "destination.",
    tables=(
        Table(
            title="Acceptance levels",
            caption="Delivered: share of all deliveries that should happen. Out of order: messages delivered "
            "before one that precedes them, by what members had accepted when they sent (CBCAST: delivered); "
            "in brackets by what applications had been given. Known by all: share of deliveries of which the "
            "destination comes to know that all have the message.",
            columns=("acceptance level", *PROTOCOLS.values()),
            rows=rows,
        ),
    ),
    claims=tuple(
        Claim(
            id=f"S7{letter}",
            where="4, table 1",
            statement=f"{level.capitalize()} acceptance stands on "
            + ", ".join(f"{LEVELS[level][protocol]} ({name})" for protocol, name in PROTOCOLS.items())
            + ".",
            theirs="table 1",
            judge=lambda results, level=level: mechanism_gives(results, level),  # type: ignore[misc]
        )
        for letter, level in zip("abc", LEVELS, strict=True)
    ),
)
