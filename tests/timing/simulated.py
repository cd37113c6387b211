"""A simulated run whose clocks are wrong by known amounts, with a member that becomes slow."""

from typing import Any

from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.protocols.sequencer import PDUS, Sequencer
from antiphon.sim.mesh import Mesh
from antiphon.sim.ordering import Subject, simulate
from antiphon.sim.scenarios.sequencer import Configuration
from antiphon.trace.arrow import pa
from antiphon.trace.recorder import MemoryRecorder

SITES = 5
SLOW = "s2"
SLOW_FROM_NS = SECOND_NS
SLOW_BY_NS = 40 * MILLISECOND_NS
OFFSETS_NS = {"s0": 0, "s1": 3_700_000_000, "s2": -250_000_000, "s3": 17_000_000, "s4": -86_400_000_000_000}
"""How far each site's clock is ahead."""


class SlowLink(Mesh):
    """A mesh on which everything to one site becomes late."""

    def _transmit(self, left_ns: int, source: int, target: int, pdu: Any) -> None:
        late_ns = SLOW_BY_NS if f"s{target}" == SLOW and left_ns >= SLOW_FROM_NS else 0
        super()._transmit(left_ns + late_ns, source, target, pdu)


def slow_run(*, slow: bool = True, messages: int = 900) -> pa.Table:
    """The rows of three simulated seconds, with the sites' own times."""
    knobs = Configuration(members=SITES, messages=messages, rate=messages / 3, delay_ms=1.0, jitter_ms=0.5)
    timers = knobs.protocol_configuration()

    def network(seeds: Seeds) -> Mesh:
        kind = SlowLink if slow else Mesh
        return kind(SITES, seeds, delay_ns=MILLISECOND_NS, jitter_ns=MILLISECOND_NS // 2)

    subject = Subject(
        build=lambda site, members: Sequencer(site, members, timers),
        repairs=True, settle_ns=SECOND_NS, leader_crashes_alone=True, network=network, pdus=PDUS,
    )  # fmt: skip
    recorder = MemoryRecorder("slow")
    simulate(knobs, subject, 3, recorder)
    table = recorder.table()
    times = [
        None if at is None else at + OFFSETS_NS[site]
        for at, site in zip(table["time_ns"].to_pylist(), table["site"].to_pylist(), strict=True)
    ]
    place = table.schema.get_field_index("time_ns")
    return table.set_column(place, table.schema.field("time_ns"), pa.array(times, pa.int64()))
