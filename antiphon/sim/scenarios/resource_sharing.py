"""`antiphon simulate resource-sharing`: members that share units of a resource, over a group of one's choice.

Source: Konorski, section 2. How many operations do all members get done, and what do messages out of the
agreed order cost?
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from antiphon.applications.resource_sharing import SharingConfiguration
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site, site_names
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds, from_seconds
from antiphon.protocols.dpg import Dpg
from antiphon.protocols.rivals.totem import Totem, TotemConfiguration
from antiphon.protocols.sequencer import Sequencer
from antiphon.sim import churn
from antiphon.sim.mesh import Mesh
from antiphon.sim.network import Network
from antiphon.sim.resource_sharing.disorder import Disorder
from antiphon.sim.resource_sharing.ideal import Ideal, Oracle
from antiphon.sim.resource_sharing.run import LONGEST, PACE, Demand, Run, Stack
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.scenarios import dpg as dpg_scenario
from antiphon.sim.scenarios import sequencer as sequencer_scenario

SECONDS_PER_DELIVERY: Final = 2e-5
ASSUMED_DELIVERIES: Final = 100
"""Deliveries per second at each member, close enough to distinguish long runs from short ones."""
VERY_LONG_NS: Final = 1_000_000 * SECOND_NS
"""Longer than any run."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The resource, its users, the group, and what goes wrong."""

    members: Annotated[int, "members of the group, all of them users of the resource"] = 20
    units: Annotated[int, "units of the resource"] = 10
    need: Annotated[int, "units that an operation needs at most; drawn from 1 to this"] = 4
    operation_ms: Annotated[float, "how long an operation takes on average"] = 100.0
    pause_ms: Annotated[float, "how long a member pauses between operations on average"] = 0.0
    timeout_ms: Annotated[float, "how long a request waits before it is given up and made anew"] = 3000.0
    slack_ms: Annotated[
        float | None, "how late a member may be before it counts as vanished; by default it suits the order"
    ] = None
    over: Annotated[str, "what orders the messages: ideal, or a protocol such as sequencer"] = "ideal"
    disorder: Annotated[float, "share of messages that some site delivers out of the agreed order"] = 0.0
    disorder_sites: Annotated[int, "at how many sites such a message comes too late"] = 1
    disorder_shift: Annotated[int, "how many later messages go before it there"] = 1
    churn: Annotated[int, "members that alternate presence and absence"] = 0
    delay_ms: Annotated[float, "one-way delay in milliseconds"] = 40.0
    jitter_ms: Annotated[float, "further delay, drawn evenly from 0 to this"] = 20.0
    seconds: Annotated[float, "how long the run lasts"] = 60.0

    def __post_init__(self) -> None:
        if self.members < 2 or not 1 <= self.need <= self.units:
            raise UsageError(
                "A run needs two members, and operations that need no more units than there are."
            )
        if self.over not in STACKS:
            raise UsageError(
                f"There is no order '{self.over}' here.", hint=f"Choose from: {', '.join(STACKS)}."
            )
        if min(self.operation_ms, self.timeout_ms, self.seconds) <= 0:
            raise UsageError("An operation, a time-out and a run take time.")
        if min(self.pause_ms, self.delay_ms, self.jitter_ms) < 0:
            raise UsageError("A delay cannot be negative.")
        if not 0.0 <= self.disorder <= 1.0:
            raise UsageError("The disorder is a share from 0 to 1.")
        if not 1 <= self.disorder_sites <= self.members or self.disorder_shift < 1:
            raise UsageError("A message comes too late at one site or more, by one message or more.")
        if not 0 <= self.churn < self.members:
            raise UsageError("At least one member stays.")
        if self.slack_ms is not None and self.slack_ms <= 0:
            raise UsageError("The slack must be positive.")

    def sharing(self, usual_slack_ns: Nanoseconds) -> SharingConfiguration:
        """Where no member vanishes nothing is claimed, as in the source: time-outs alone end a wait."""
        fitting_ns = usual_slack_ns if self.churn else VERY_LONG_NS
        return SharingConfiguration(
            timeout_ns=_from_ms(self.timeout_ms),
            operation_ns=_from_ms(LONGEST * self.operation_ms),
            slack_ns=fitting_ns if self.slack_ms is None else _from_ms(self.slack_ms),
        )

    @property
    def longest_delay_ns(self) -> Nanoseconds:
        return _from_ms(self.delay_ms + self.jitter_ms)

    def demand(self) -> Demand:
        return Demand(
            units=self.units,
            need=self.need,
            operation_ns=_from_ms(self.operation_ms),
            pause_ns=_from_ms(self.pause_ms),
            horizon_ns=from_seconds(self.seconds),
        )


def _from_ms(milliseconds: float) -> Nanoseconds:
    return from_seconds(milliseconds / 1000)


def _mesh(configuration: Configuration, seeds: Seeds) -> Network:
    return Mesh(
        configuration.members,
        seeds,
        delay_ns=_from_ms(configuration.delay_ms),
        jitter_ns=_from_ms(configuration.jitter_ms),
    )


def _slack_ns(configuration: Configuration) -> Nanoseconds:
    """Several messages one after another, and a millisecond for everything else."""
    return 10 * configuration.longest_delay_ns + MILLISECOND_NS


def _ideal(configuration: Configuration, sites: tuple[Site, ...], seeds: Seeds) -> Stack:  # noqa: ARG001
    oracle = Oracle()
    return Stack(
        build=lambda site: Ideal(site, oracle),
        network=_mesh(configuration, seeds),
        slack_ns=_slack_ns(configuration),
    )


def _sequencer(configuration: Configuration, sites: tuple[Site, ...], seeds: Seeds) -> Stack:
    knobs = sequencer_scenario.Configuration(
        members=configuration.members, delay_ms=configuration.delay_ms, jitter_ms=configuration.jitter_ms
    ).protocol_configuration()
    return Stack(
        build=lambda site: Sequencer(site, sites, knobs),
        network=_mesh(configuration, seeds),
        slack_ns=_slack_ns(configuration),
    )


def _totem(configuration: Configuration, sites: tuple[Site, ...], seeds: Seeds) -> Stack:
    """Corosync's times, unless the token needs longer to go round; then in the same proportions.

    Slack must cover the halt of a ring that a member has left: one member may deliver before it, another
    after.
    """
    rotation_ns = configuration.members * configuration.longest_delay_ns
    token_ns = max(TotemConfiguration().token_ns, 3 * rotation_ns)
    knobs = TotemConfiguration(
        token_ns=token_ns,
        join_ns=max(TotemConfiguration().join_ns, 2 * configuration.longest_delay_ns),
        consensus_ns=token_ns * 6 // 5,
    )
    return Stack(
        build=lambda site: Totem(site, sites, knobs, seeds.stream(f"totem/{site}")),
        network=_mesh(configuration, seeds),
        slack_ns=_slack_ns(configuration) + 3 * rotation_ns + knobs.token_ns + knobs.consensus_ns,
    )


def _dpg(service: str, configuration: Configuration, sites: tuple[Site, ...], seeds: Seeds) -> Stack:  # noqa: ARG001
    """Its usual cycles, unless messages take longer; then in the same proportions.

    The service `lan` has one broadcast channel, whose propagation is the delay, and no jitter.
    """
    usual = dpg_scenario.Configuration()
    stretch = max(1.0, 2 * (configuration.delay_ms + configuration.jitter_ms) / usual.report_ms)
    on_channel = service == "lan"
    fitting = dpg_scenario.Configuration(
        members=configuration.members,
        service=service,
        network="medium" if on_channel else "mesh",
        delay_ms=configuration.delay_ms,
        jitter_ms=0.0 if on_channel else configuration.jitter_ms,
        report_ms=stretch * usual.report_ms,
        deliv_ms=stretch * usual.deliv_ms,
    )
    knobs = fitting.protocol_configuration()
    return Stack(
        build=lambda site: Dpg(site, knobs, dpg_scenario.build_service(fitting), seeds.stream(f"dpg/{site}")),
        network=dpg_scenario.build_network(fitting, seeds) if on_channel else _mesh(configuration, seeds),
        slack_ns=_slack_ns(configuration) + 2 * knobs.deliv_cycle_ns,
    )


STACKS: Final[dict[str, Callable[[Configuration, tuple[Site, ...], Seeds], Stack]]] = {
    "ideal": _ideal,
    "sequencer": _sequencer,
    "totem": _totem,
    "dpg": partial(_dpg, "lan"),
    "dpg-bounded-delay": partial(_dpg, "bounded-delay"),
    "dpg-sequencer": partial(_dpg, "sequencer"),
}
"""The values of `over`."""


def run(configuration: Configuration, seed: int, recorder: Recorder | None) -> Metrics:
    seeds = Seeds(seed)
    sites = tuple(site_names(configuration.members))
    # The first member stays: a sequencer is there, and the order of what it delivers is the reference.
    random = seeds.stream("churn/absences")
    churning = random.sample(sites[1:], configuration.churn)
    stack = STACKS[configuration.over](configuration, sites, seeds)
    work = Run(
        sites=sites,
        stack=stack,
        demand=configuration.demand(),
        sharing=configuration.sharing(stack.slack_ns),
        disorder=Disorder(
            seeds,
            sites,
            share=configuration.disorder,
            sites_each=configuration.disorder_sites,
            shift=configuration.disorder_shift,
        ),
        absences=churn.draw_absences(random, churning, from_seconds(configuration.seconds), PACE),
        seeds=seeds,
        recorder=recorder,
    )
    work.run()
    return work.metrics()


SCENARIO: Final = Scenario(
    name="resource-sharing",
    summary="Members share units of a resource by request, allocation and release messages.",
    example="antiphon simulate resource-sharing --members 20 --units 10 --disorder 0.05 --seed 1",
    configuration=Configuration,
    run=run,
    promises=("integrity", "duplicate"),
    cost_s=lambda knobs: 0.05 + SECONDS_PER_DELIVERY * ASSUMED_DELIVERIES * knobs.members * knobs.seconds,
)
