"""`antiphon simulate coordp`: one round of CoordP on the store-and-forward tree.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 5.2, 5.4 and 5.5.

Time per round runs from the trigger until the first member has the stability array: the coordinator, when it
has received the last ACK it needs. All metrics are taken at that moment; only `tpr_last_s` is not: the run
goes on until the multicast array has reached everyone. The coordinator is at node 0.

What members hold is drawn from the seed, so that a trace of the run has something to judge: each sender
has multicast some messages before the round and each member holds a part of them.

Losses: `buffers` limits each link's queue to 64 messages; members then repeat their ACKs. The other half of
the text's loss, two random gossips a step, concerns gossip alone: here `random` loses nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_args

import numpy as np

from antiphon.core.effects import Effect, Multicast, Stable
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site, site_names
from antiphon.core.inputs import Input, Received, RoundTriggered
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import SECOND_NS, Nanoseconds, from_seconds, to_seconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.coordp import Configuration, CoordP, Repetition, StartRound
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.transit import BUFFER_MESSAGES, Traffic, TreeModel, TreeNetwork
from antiphon.sim.tree import Fill, IntegerArray, draw_members, grow_tree
from antiphon.sim.world import Host, World

Density = Literal["dense", "sparse"]
Loss = Literal["none", "buffers", "random"]
StartOfRound = Literal["counted", "free"]

HEADER_BYTES: Final = 32
COUNT_BYTES: Final = 4
STEPS: Final = 3
"""START, ACK, INFO (table 4.1)."""
LONGEST_ROUND_NS: Final = 600 * SECOND_NS
"""A round that takes longer counts as not finished (section 5.3.1)."""
MOST_MESSAGES: Final = 100
MESSAGE_BYTES: Final = 1000


@dataclass(frozen=True, kw_only=True)
class CoordPStudy:
    """The scenario's parameters."""

    members: Annotated[int, "members of the group"] = 50
    senders: Annotated[int, "how many sites multicast messages; those beyond the members are outside"] = 50
    density: Annotated[Density, "a member at every node of the network, or at some of a larger one"] = "dense"
    fill: Annotated[Fill, "how the tree's last level hangs: spread over the parents, or from the left"] = (
        "even"
    )
    loss: Annotated[Loss, "buffers: a link's queue holds 64; random: gossip's losses, none here"] = "none"
    bandwidth: Annotated[int, "bit/s of each link and direction"] = 30_000
    network_nodes: Annotated[int, "nodes of a sparse group's network"] = 1000
    start: Annotated[StartOfRound, "whether the time to spread START counts"] = "counted"
    step: Annotated[float, "for gossip: taken by every stability protocol, without effect here"] = 0.0
    subset: Annotated[int, "for gossip, likewise"] = 1
    subgroup: Annotated[int, "for the structured protocols, likewise"] = 4

    def __post_init__(self) -> None:
        for name, kind in (("density", Density), ("fill", Fill), ("loss", Loss), ("start", StartOfRound)):
            if getattr(self, name) not in get_args(kind):
                raise UsageError(
                    f"'{getattr(self, name)}' is no value for '{name}'.",
                    hint=f"It knows: {', '.join(get_args(kind))}.",
                )
        if self.members < 2:
            raise UsageError(
                f"A group of {self.members} members has nothing to detect.", hint="Take 2 or more."
            )
        if self.senders < 1:
            raise UsageError(f"{self.senders} senders have nothing to be detected.", hint="Take 1 or more.")
        if self.bandwidth < 1:
            raise UsageError("The bandwidth must be at least 1 bit/s.")
        if self.density == "sparse" and self.network_nodes < self.members:
            raise UsageError(
                f"{self.members} members do not fit a network of {self.network_nodes} nodes.",
                hint="Lower --members or raise --network-nodes.",
            )

    def size_of(self) -> Callable[[Pdu], int]:
        """START is a bare header; the others carry 4 bytes a sender."""
        full_bytes = HEADER_BYTES + COUNT_BYTES * self.senders
        return lambda pdu: HEADER_BYTES if type(pdu) is StartRound else full_bytes

    def repetition(self) -> Repetition | None:
        """Wait first while a full buffer drains: who repeats sooner finds it as full as before."""
        if self.loss != "buffers":
            return None
        bits = 8 * (HEADER_BYTES + COUNT_BYTES * self.senders)
        drain_ns = from_seconds(BUFFER_MESSAGES * bits / self.bandwidth)
        return Repetition(first_ns=drain_ns, longest_ns=10 * drain_ns)


class _FreeStart:
    """A coordinator whose first START costs nothing: the scenario hands it to the members itself."""

    def __init__(self, protocol: CoordP) -> None:
        self._protocol = protocol
        self.start: StartRound | None = None

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        effects = self._protocol.handle(now, event)
        if self.start is not None:
            return effects
        kept: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Multicast) and isinstance(effect.pdu, StartRound):
                self.start = effect.pdu
            else:
                kept.append(effect)
        return kept


class _Members:
    """Builds the group's protocol objects, each holding what the seed gives it."""

    def __init__(self, study: CoordPStudy, seeds: Seeds) -> None:
        self.sites = tuple(site_names(study.members))
        outside = (f"outside{number}" for number in range(study.senders - study.members))
        self.senders = (*self.sites[: study.senders], *outside)
        self.holding = dict(zip(self.sites, _draw_holdings(study, seeds), strict=True))
        self.free_start: _FreeStart | None = None
        self._study = study
        self._seeds = seeds
        self._configuration = Configuration(repetition=study.repetition())

    def build(self, site: Site) -> Protocol:
        random = None if self._study.loss != "buffers" else self._seeds.stream(f"repetition/{site}")
        protocol = CoordP(site, self.sites, self.senders, self._configuration, random)
        protocol.hold_all(self.holding[site])
        if site != self.sites[0] or self._study.start == "counted":
            return protocol
        self.free_start = _FreeStart(protocol)
        return self.free_start


class _Watch:
    """Sees who gets the stability array, and when."""

    def __init__(self, sites: Sequence[Site], network: TreeNetwork) -> None:
        self.tpr_ns: Nanoseconds | None = None
        self.last_ns: Nanoseconds | None = None
        self.traffic: Traffic | None = None
        self._network = network
        self._without_array = set(sites)

    def on_stable(self, now: Nanoseconds, host: Host, _effect: Stable) -> None:
        """Everyone holds something of every sender, so that the array tells each member something new."""
        if self.tpr_ns is None:
            self.tpr_ns = now
            self.traffic = self._network.traffic(now)
        self._without_array.discard(host.site)
        if not self._without_array and self.last_ns is None:
            self.last_ns = now


class Round:
    """One round from its trigger to its end; the bench drives it too."""

    def __init__(self, study: CoordPStudy, seed: int, recorder: Recorder | None = None) -> None:
        seeds = Seeds(seed)
        self._members = members = _Members(study, seeds)
        self.network = _network(study, seeds)
        self._watch = _Watch(members.sites, self.network)
        if recorder is not None:
            _record_history(recorder, members.sites, members.senders, members.holding)
        self.world = World(
            sites=members.sites,
            build=members.build,
            network=self.network,
            size_of=study.size_of(),
            recorder=recorder,
        )
        self.world.on_stable = self._watch.on_stable
        self.world.start()

    def run(self, until_ns: Nanoseconds = LONGEST_ROUND_NS) -> None:
        """Trigger the round and let it come to its end, and to that of its INFO."""
        world = self.world
        world.give(world.hosts[0], RoundTriggered())
        free_start = self._members.free_start
        if free_start is not None:
            assert free_start.start is not None, "a triggered round begins with START"
            for host in world.hosts[1:]:
                world.give(host, Received(world.hosts[0].site, free_start.start))
        world.run(until_ns)

    def metrics(self) -> Metrics:
        """As `antiphon simulate` prints them; a round that did not end has the traffic of the whole run."""
        watch = self._watch
        traffic = watch.traffic or self.network.traffic(self.world.now)
        return {
            "tpr_s": None if watch.tpr_ns is None else to_seconds(watch.tpr_ns),
            "tpr_last_s": None if watch.last_ns is None else to_seconds(watch.last_ns),
            "steps": STEPS,
            "hop_messages": traffic.hop_messages,
            "queue_mean": traffic.queue_mean,
            "queue_max": traffic.queue_max,
            "queue_node_mean": traffic.queue_node_mean,
            "queue_node_max": traffic.queue_node_max,
            "dropped": traffic.dropped,
            "finished": watch.tpr_ns is not None,
        }


def simulate(study: CoordPStudy, seed: int, recorder: Recorder | None) -> Metrics:
    """One round, and its INFO to the end."""
    simulated = Round(study, seed, recorder)
    simulated.run()
    return simulated.metrics()


def _network(study: CoordPStudy, seeds: Seeds) -> TreeNetwork:
    model = TreeModel(
        bandwidth_bits_per_s=study.bandwidth,
        buffer_messages=BUFFER_MESSAGES if study.loss == "buffers" else None,
    )
    if study.density == "dense":
        return TreeNetwork(grow_tree(study.members, study.fill), range(study.members), model)
    tree = grow_tree(study.network_nodes, study.fill)
    return TreeNetwork(tree, draw_members(tree, study.members, seeds.array_stream("members")), model)


def _draw_holdings(study: CoordPStudy, seeds: Seeds) -> IntegerArray:
    """A row for each member: how many messages of each sender it holds; a sender holds all of its own."""
    random = seeds.array_stream("holdings")
    sent = random.integers(2, MOST_MESSAGES, size=study.senders, endpoint=True)
    held = random.integers(1, sent, size=(study.members, study.senders), endpoint=True)
    own = np.arange(min(study.senders, study.members))
    held[own, own] = sent[own]
    return held


def _record_history(
    recorder: Recorder, sites: Sequence[Site], senders: Sequence[Site], holding: dict[Site, IntegerArray]
) -> None:
    """What happened before the round: each sender's messages, and who holds how many of them."""
    destinations = sites if len(senders) > len(sites) else None
    for place, sender in enumerate(senders):
        count = max(int(holding[site][place]) for site in sites)
        size = count * MESSAGE_BYTES
        recorder.record(sender, "send", 0, sender, 0, count, destinations=destinations, size=size)
    for site in sites:
        for sender, count in zip(senders, holding[site].tolist(), strict=True):
            if sender != site:
                recorder.record(site, "receive", 0, sender, 0, count)


def _cost_s(study: CoordPStudy) -> float:
    """Each member's share is about constant; its array of counts is what grows with the senders."""
    return study.members * (1e-5 + 1e-6 * study.senders) * (3 if study.loss == "buffers" else 1)


SCENARIO: Final = Scenario(
    name="coordp",
    summary="CoordP: a coordinator collects what all hold and multicasts the minimum (Guo, 4.2.1)",
    example="antiphon simulate coordp --members 500 --senders 50 --density dense --seed 1 --json",
    configuration=CoordPStudy,
    run=simulate,
    promises=("stability",),
    cost_s=_cost_s,
)
