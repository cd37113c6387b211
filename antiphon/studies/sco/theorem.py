"""Theorem 2: a message precedes another exactly if their sequence numbers say so. Claim S1.

Members run under loss, reordering and duplication. The stamps of every two batches are compared with
precedence by definition, observed from outside.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from antiphon.core import effects as fx
from antiphon.core.ids import MessageId, Site
from antiphon.core.inputs import Input
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco import PDUS, Sco
from antiphon.protocols.sco.pdus import Data
from antiphon.protocols.sco.vectors import read_vector
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios import sco as scenario
from antiphon.sim.selective import SelectiveSubject, simulate_selective
from antiphon.studies.formatting import number
from antiphon.studies.judging import judged_by, total
from antiphon.studies.model import Finding, Section
from antiphon.studies.results import Results
from antiphon.studies.sco.precedence import Precedence, Witness
from antiphon.studies.study import Grid

NAME: Final = "antiphon.studies.sco.theorem:SCENARIO"
SECONDS_PER_COPY: Final = 3e-4


@dataclass(frozen=True, kw_only=True)
class Configuration(scenario.Configuration):
    """A small busy group, so that many messages precede one another and many do not."""

    members: int = 5
    messages: int = 200
    destinations: int = 2
    varied: bool = True
    jitter_ms: float = 4.0
    loss: float = 0.1


Stamps = dict[MessageId, Mapping[Site, int]]
"""Each message's causal sequence numbers by site."""


class Reader:
    """Reads the stamps of a member's batches; implements `antiphon.core.protocol.Protocol`."""

    def __init__(self, site: Site, table: Sequence[Site], protocol: Protocol, stamps: Stamps) -> None:
        self._site = site
        self._table = table
        self._handle = protocol.handle
        self._stamps = stamps

    def handle(self, now: Nanoseconds, event: Input) -> list[fx.Effect]:
        effects = self._handle(now, event)
        for effect in effects:
            if isinstance(effect, fx.Multicast) and isinstance(effect.pdu, Data):
                csn = read_vector(effect.pdu.csn, [0] * len(self._table))
                stamp = dict(zip(self._table, csn, strict=True))
                self._stamps[MessageId(self._site, effect.pdu.number)] = stamp
        return effects


def says_precedes(first: MessageId, second: MessageId, stamp: Mapping[Site, int]) -> bool:
    """The result of testing the theorem."""
    if first.sender == second.sender:
        return first.number < second.number
    return first.number < stamp[first.sender]


def compare(truth: Precedence, stamps: Mapping[MessageId, Mapping[Site, int]]) -> Metrics:
    """Every two messages, in both directions. A message to its sender alone has no stamp."""
    pairs = preceding = missed = invented = 0
    for second in (message for message in truth.messages if message in stamps):
        for first in truth.messages:
            if first == second:
                continue
            so = truth.precedes(first, second)
            said = says_precedes(first, second, stamps[second])
            pairs += 1
            preceding += so
            missed += so and not said
            invented += said and not so
    return {"pairs": pairs, "preceding": preceding, "missed": missed, "invented": invented}


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    knobs = dataclasses.replace(configuration.protocol_configuration(), vectors="plain")
    seeds = Seeds(seed)
    truth, stamps = Precedence(), Stamps()

    def build(site: Site, members: tuple[Site, ...]) -> Protocol:
        member = Sco(site, members, knobs, seeds.stream(f"sco/{site}"))
        # Members that begin together have one table of names, in order.
        return Witness(site, Reader(site, members, member, stamps), truth)

    subject = SelectiveSubject(
        build=build, settle_ns=knobs.silence_ns, pdus=PDUS, data_kinds=(Data,), forgets=True
    )
    return simulate_selective(configuration, subject, seed, recorder) | compare(truth, stamps)


SCENARIO: Final = Scenario(
    name=NAME,
    summary="Theorem 2 of the SCO paper: sequence numbers against what precedes what.",
    example=f"antiphon simulate {NAME} --members 5 --seed 1",
    configuration=Configuration,
    run=run,
    promises=(),
    cost_s=lambda knobs: SECONDS_PER_COPY * knobs.destinations * knobs.messages,
)

GRID: Final = Grid(
    scenario=NAME,
    axes={
        "members": (3, 5, 8),
        "destinations": (1, 3),
        "loss": (0.0, 0.2),
        "reordering": (0.1,),
        "duplication": (0.05,),
    },
    quick={"members": (3, 5)},
    seeds={"quick": 2, "full": 20},
)


def numbers_tell(results: Results) -> Finding:
    points = results.found({"scenario": NAME})
    missed, invented = total(points, "missed"), total(points, "invented")
    return Finding(
        ours=f"{missed:.0f} missed and {invented:.0f} invented precedences among "
        f"{number(total(points, 'pairs'))} pairs, of which {number(total(points, 'preceding'))} precede",
        holds=missed + invented == 0 < total(points, "preceding"),
    )


SECTION: Final = Section(
    title="3.3 Causal acceptance: theorem 2",
    text="Random destinations, up to a fifth of all arrivals lost, some twice, some late. Precedence is "
    "computed from what each site sent and held.",
    claims=judged_by(
        "sco",
        S1=numbers_tell,
    ),
)
