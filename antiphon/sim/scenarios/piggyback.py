"""`antiphon simulate piggyback`: what it costs to find out what all hold, in four forms, for one workload.

Source: K. Guo, Scalable Message Stability Detection Protocols, chapter 7, which names three ways to make
stability cheaper: on data messages, only what changed, and one series of numbers shared by all senders.

- `plain`: FullDist's rounds; every row is whole and travels by itself.
- `changed`: no rounds; each member multicasts what changed of its row, by itself.
- `piggyback`: the same on its messages; by itself only when it has none to send.
- `shared`: the sequencer's total order: one number a member instead of a row, on requests and on places.

The first three are reliable FIFO multicast. Its messages carry a row for flow control in any case, whole with
the first two forms, and what changed with the third, where that one row serves both: so rows on messages are
counted with all of them. Whatever carries no body is a control message; a multicast counts once.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from antiphon.core.effects import Admitted, Effect, Multicast, Send, Stable
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site, site_names
from antiphon.core.inputs import Input
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds, from_seconds, to_seconds
from antiphon.core.wire import Codec, Pdu
from antiphon.protocols import fifo
from antiphon.protocols import sequencer as order
from antiphon.protocols.fifo.pdus import MOST_NEIGHBOURS, Data, RidingData
from antiphon.protocols.sequencer.pdus import Acknowledge, Ordered, Request
from antiphon.protocols.stability import PDUS as STABILITY_PDUS
from antiphon.sim.layers import Loss
from antiphon.sim.mesh import Mesh
from antiphon.sim.ordering import RETRY_NS, wire_size
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios import fifo as fifo_scenario
from antiphon.sim.scenarios import sequencer as sequencer_scenario
from antiphon.sim.world import World

ROWS: Final = {"plain": "whole", "changed": "changed", "piggyback": "riding"}
"""How rows travel in the forms that have some."""
SHARED: Final = "shared"
FORMS: Final = (*ROWS, SHARED)
STABILITY: Final[tuple[type[Pdu], ...]] = (*STABILITY_PDUS, Acknowledge)
"""PDUs that only report what members hold, or what all hold."""
LOOK_NS: Final = 5 * MILLISECOND_NS
PATIENCE_NS: Final = 10 * SECOND_NS
"""How long after the last message the run may take until all is stable."""
SECONDS_PER_DELIVERY: Final = 6e-5


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One workload, and the form of stability detection."""

    members: Annotated[int, "members of the group"] = 7
    senders: Annotated[int | None, "members that send; all by default"] = None
    rate: Annotated[float, "messages a second of all senders together"] = 1000.0
    messages: Annotated[int, "messages in total"] = 1000
    size: Annotated[int, "bytes of a message's body"] = 100
    form: Annotated[str, "plain, changed, piggyback or shared"] = "plain"
    delay_ms: Annotated[float, "one-way delay in milliseconds"] = 1.0
    loss: Annotated[float, "probability that an arrival is lost"] = 0.0

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise UsageError(f"There is no form '{self.form}'.", hint=f"Choose from: {', '.join(FORMS)}.")
        if self.members < 2 or not 1 <= self.sending <= self.members:
            raise UsageError("A run needs at least two members and at least one sender.")
        if self.messages < 1 or self.rate <= 0 or self.size < 0:
            raise UsageError("A run needs a message, and a rate above 0.")
        if not 0.0 <= self.loss < 1.0 or self.delay_ms < 0:
            raise UsageError("The loss is a probability below 1, and a delay is not negative.")

    @property
    def sending(self) -> int:
        return self.members if self.senders is None else self.senders

    def build(self, site: Site, members: tuple[Site, ...], seeds: Seeds) -> "fifo.Fifo | order.Sequencer":
        """A member, with windows that never hold the workload up."""
        if self.form == SHARED:
            knobs = sequencer_scenario.Configuration(
                members=self.members, delay_ms=self.delay_ms, window=self.messages, order_window=self.messages
            )
            return order.Sequencer(site, members, knobs.protocol_configuration())
        fitting = fifo_scenario.Configuration(
            members=self.members,
            delay_ms=self.delay_ms,
            size=self.size,
            window=self.messages,
            retain=self.messages,
            stability="fulldist",
            rows=ROWS[self.form],
            neighbours=MOST_NEIGHBOURS,  # messages carry their rows in groups of every size
        )
        return fifo.Fifo(site, members, fitting.protocol_configuration(), seeds.stream(f"fifo/{site}"))


class Tally:
    """What all members have sent, and when their messages became stable at each member."""

    def __init__(self, configuration: Configuration) -> None:
        self._codec = Codec(order.PDUS if configuration.form == SHARED else fifo.PDUS)
        self.counts: Counter[str] = Counter()
        self.admitted_ns: dict[Site, list[Nanoseconds]] = {}
        self.stable_ns: list[Nanoseconds] = []
        """How long each message took to be stable at each member."""
        self.kept_bytes = 0

    def sent(self, pdu: Pdu) -> None:
        counts = self.counts
        size = len(self._codec.encode(pdu))
        if isinstance(pdu, STABILITY):
            counts["stability_messages"] += 1
            counts["told_bytes"] += size
        counts["told_bytes"] += told_on_message(pdu)
        if getattr(pdu, "bodies", None) is None:
            counts["control_messages"] += 1
            counts["control_bytes"] += size

    def metrics(self, messages: int, *, finished: bool) -> Metrics:
        times_ns, counts = self.stable_ns, self.counts
        return {
            "control_messages": counts["control_messages"],
            "control_bytes": counts["control_bytes"],
            "stability_messages": counts["stability_messages"],
            "bytes_per_message": counts["told_bytes"] / messages,
            "tts_mean_s": to_seconds(sum(times_ns)) / len(times_ns) if times_ns else None,
            "tts_max_s": to_seconds(max(times_ns)) if times_ns else None,
            "buffer_max_bytes": self.kept_bytes,
            "finished": finished,
        }


def told_on_message(pdu: Pdu) -> int:
    """The bytes of a message that report what its sender holds, or what all hold."""
    match pdu:
        case Data(held=row) | RidingData(row=row):
            return len(row)
        case Request(position=number) | Ordered(stable=number):
            return len(msgspec.msgpack.encode(number))
        case _:
            return 0


class Metered:
    """A member whose PDUs are counted."""

    def __init__(self, site: Site, protocol: "fifo.Fifo | order.Sequencer", tally: Tally) -> None:
        self._site = site
        self._protocol = protocol
        self._tally = tally

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        effects = self._protocol.handle(now, event)
        tally = self._tally
        for effect in effects:
            if isinstance(effect, Send | Multicast):
                tally.sent(effect.pdu)
            elif isinstance(effect, Admitted):
                tally.admitted_ns.setdefault(self._site, []).extend([now] * effect.count)
            elif isinstance(effect, Stable):
                since = tally.admitted_ns[effect.sender][effect.number : effect.number + effect.count]
                tally.stable_ns += [now - admitted for admitted in since]
        if effects:
            tally.kept_bytes = max(tally.kept_bytes, self._protocol.figures()["kept_bytes"])
        return effects


class Run:
    """The applications: the senders take turns at an even pace, and the run ends when all is stable."""

    def __init__(self, configuration: Configuration, seed: int, recorder: Recorder | None) -> None:
        self._configuration = configuration
        seeds = Seeds(seed)
        sites = tuple(site_names(configuration.members))
        self.tally = Tally(configuration)
        self.finished = False
        self._body = bytes(configuration.size)
        self._world = World(
            sites=sites,
            build=lambda site: Metered(site, configuration.build(site, sites, seeds), self.tally),
            network=Mesh(configuration.members, seeds, delay_ns=from_seconds(configuration.delay_ms / 1000)),
            size_of=wire_size,
            layers=[Loss(seeds, configuration.loss)] if configuration.loss else [],
            recorder=recorder,
        )
        self._sites = sites

    def run(self) -> None:
        configuration, world = self._configuration, self._world
        horizon_ns = from_seconds(configuration.messages / configuration.rate)
        for index in range(configuration.messages):
            time_ns = horizon_ns * index // configuration.messages
            site = self._sites[index % configuration.sending]
            world.at(time_ns, lambda site=site: self._hand_in(site))  # type: ignore[misc]
        world.at(horizon_ns, self._look)
        world.start()
        world.run(horizon_ns + PATIENCE_NS)

    def _hand_in(self, site: Site) -> None:
        """A message that is refused is tried again."""
        world = self._world
        before = world.host(site).admitted
        world.admit(site, [self._body])
        if world.host(site).admitted == before:
            world.at(world.now + RETRY_NS, lambda: self._hand_in(site))

    def _look(self) -> None:
        due = self._configuration.messages * self._configuration.members
        if len(self.tally.stable_ns) >= due:
            self.finished = True
            self._world.stop()
        else:
            self._world.at(self._world.now + LOOK_NS, self._look)


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    work = Run(configuration, seed, recorder)
    work.run()
    return work.tally.metrics(configuration.messages, finished=work.finished)


SCENARIO: Final = Scenario(
    name="piggyback",
    summary="What it costs to find out what all hold: in rounds, by changes, on messages, by shared numbers.",
    example="antiphon simulate piggyback --members 7 --senders 3 --rate 1000 --form piggyback --seed 1",
    configuration=Configuration,
    run=run,
    promises=fifo.PROMISES,
    audited=True,
    cost_s=lambda knobs: 0.02 + SECONDS_PER_DELIVERY * knobs.members * knobs.messages,
)
