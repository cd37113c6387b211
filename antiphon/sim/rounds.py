"""One round of stability detection on the store-and-forward tree: the frame of all the protocols' scenarios.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 5.1 to 5.5.

Time per round runs from the trigger until the first member has the stability array. All metrics are taken at
that moment; only `tpr_last_s` and `hop_messages_last` are not: the run goes on until everyone has the array.
Member 0 is at node 0.

What members hold is drawn from the seed, so that a trace of the run has something to judge: each sender
has multicast some messages before the round and each member holds a part of them.

Losses: `buffers` limits each link's queue to 64 messages, and gossip loses two random messages a step at
their senders; `random` is the latter alone, so that it loses nothing of the other protocols. `loss_rate`,
which is not the text's, loses every PDU at its receiver with a probability. Where anything may be lost the
protocols repeat themselves, after waits that members measure: so some rounds come before the one that counts,
as in a group that has been running, each with losses of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import numpy as np

from antiphon.core.effects import Effect, Missing, Multicast, Stable
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site, site_names
from antiphon.core.inputs import Input, Received, RoundTriggered
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import SECOND_NS, Nanoseconds, from_seconds, to_seconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import Objective, Stability
from antiphon.protocols.stability.round_trips import Repetition, RoundTrips
from antiphon.sim.layers import Loss as LossLayer
from antiphon.sim.scenario import Metrics
from antiphon.sim.transit import BUFFER_MESSAGES, Traffic, TreeModel, TreeNetwork
from antiphon.sim.tree import CHILDREN_PER_NODE, Fill, IntegerArray, Shape, Tree, draw_members, grow_tree
from antiphon.sim.world import Host, World

Density = Literal["dense", "sparse"]
Loss = Literal["none", "buffers", "random"]
StartOfRound = Literal["counted", "free"]
Detect = Literal["stability", "errors"]
Until = Literal["last", "first"]

HEADER_BYTES: Final = 32
COUNT_BYTES: Final = 4
LONGEST_ROUND_NS: Final = 600 * SECOND_NS
"""A round that takes longer counts as not finished (section 5.3.1)."""
THERE_AND_BACK_S: Final = 0.2
"""What links and routers take from the root to the leaves and back, beside transmissions, in a deep tree."""
LONGEST_WAY: Final = 14
"""Links between two members far from each other, in a network of a thousand nodes."""
HOST_S: Final = 0.0005
"""About what a host takes for one message."""
MOST_MESSAGES: Final = 100
MESSAGE_BYTES: Final = 1000


@dataclass(frozen=True, kw_only=True)
class RoundStudy:
    """The parameters that all scenarios have; every protocol takes all of them, with or without effect."""

    members: Annotated[int, "members of the group"] = 50
    senders: Annotated[int, "how many sites multicast messages; those beyond the members are outside"] = 50
    density: Annotated[Density, "a member at every node of the network, or at some of a larger one"] = "dense"
    fill: Annotated[Fill, "how the tree's last level hangs: spread over the parents, or from the left"] = (
        "even"
    )
    shape: Annotated[Shape, "the network: the text's tree, or figure 5.1's star or chain"] = "tree"
    loss: Annotated[
        Loss, "buffers: a link's queue holds 64, and gossip loses 2 a step; random: the latter"
    ] = "none"
    loss_rate: Annotated[float, "probability that a message is lost at its receiver"] = 0.0
    bandwidth: Annotated[int, "bit/s of each link and direction"] = 30_000
    network_nodes: Annotated[int, "nodes of a sparse group's network"] = 1000
    start: Annotated[StartOfRound, "whether the time to spread START counts"] = "counted"
    step: Annotated[float, "seconds between a member's gossips; for the gossip protocols"] = 0.0
    subset: Annotated[int, "members that a gossip goes to; for the gossip protocols"] = 1
    subgroup: Annotated[int, "size of a sub-group; for the structured protocols"] = 4
    detect: Annotated[Detect, "what all hold, or, with maxima, what exists (chapter 7)"] = "stability"
    earlier_rounds: Annotated[
        int, "rounds before it in which members measure how long answers take, if they repeat anything"
    ] = 2
    until: Annotated[Until, "run until the last member has the result, or only the first"] = "last"

    def __post_init__(self) -> None:
        for name, kind in _choices(type(self)).items():
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
        if not 0.0 <= self.loss_rate < 1.0:
            raise UsageError(f"The loss rate is a probability below 1, not {self.loss_rate}.")
        if self.earlier_rounds < 0:
            raise UsageError("There cannot be fewer than 0 earlier rounds.")
        if self.density == "sparse" and self.network_nodes < self.members:
            raise UsageError(
                f"{self.members} members do not fit a network of {self.network_nodes} nodes.",
                hint="Lower --members or raise --network-nodes.",
            )

    @property
    def array_bytes(self) -> int:
        """A message with a count for each sender."""
        return HEADER_BYTES + COUNT_BYTES * self.senders

    @property
    def lossy(self) -> bool:
        """Whether anything but a gossip may be lost."""
        return self.loss == "buffers" or self.loss_rate > 0

    @property
    def longest_chain(self) -> int:
        """How many members pass the result on in turn before the round can end; 0 if only a few."""
        return 0

    @property
    def objective(self) -> Objective:
        return Objective(self.detect)

    @property
    def waits_for_answers(self) -> bool:
        """Whether members wait for answers, and repeat what was not answered."""
        return self.lossy

    def repetition(self) -> Repetition | None:
        """What members wait before they have measured anything.

        They wait while a full buffer drains: an earlier repetition finds it as full as before. Where buffers
        may fill, they wait also while all messages pass the root's links and its host, and while members wait
        for each other, so that nothing is repeated in a round that lost nothing.
        """
        if not self.lossy:
            return None
        wait_s = BUFFER_MESSAGES * self.transmission_s + THERE_AND_BACK_S
        if self.loss == "buffers":
            wait_s += self.members * (self.transmission_s / CHILDREN_PER_NODE + HOST_S)
            wait_s += self.longest_chain * self.longest_hop_s
        return Repetition(first_ns=from_seconds(wait_s), longest_ns=from_seconds(10 * wait_s))

    @property
    def transmission_s(self) -> float:
        """What a message takes on a link."""
        return 8 * self.array_bytes / self.bandwidth

    @property
    def longest_hop_s(self) -> float:
        """About what a message takes between two members far from each other, and its answer back."""
        return self.transmission_s * LONGEST_WAY + THERE_AND_BACK_S


def _choices(study: type[Any]) -> dict[str, Any]:
    """The parameters that take one of a few names."""
    hints = get_type_hints(study)
    return {name: kind for name, kind in hints.items() if get_origin(kind) is Literal}


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the members are: member i is the host at node nodes[i] of the tree."""

    tree: Tree
    nodes: Sequence[int]


class FreeStart:
    """A member whose first START costs nothing: the scenario hands it to the others itself."""

    def __init__(self, protocol: Protocol, kind: type[Pdu]) -> None:
        self._protocol = protocol
        self._kind = kind
        self.start: Pdu | None = None

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        effects = self._protocol.handle(now, event)
        if self.start is not None:
            return effects
        kept: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Multicast) and isinstance(effect.pdu, self._kind):
                self.start = effect.pdu
            else:
                kept.append(effect)
        return kept


class _Watch:
    """Observes which members get the result, and when."""

    def __init__(self, sites: Sequence[Site], network: TreeNetwork, stop: Callable[[], None], until: Until):
        self.tpr_ns: Nanoseconds | None = None
        self.last_ns: Nanoseconds | None = None
        self.traffic: Traffic | None = None
        self.hop_messages_last = 0
        self._network = network
        self._stop = stop
        self._until = until
        self._without_result = set(sites)

    def on_result(self, now: Nanoseconds, host: Host, _effect: Stable | Missing) -> None:
        if self.tpr_ns is None:
            self.tpr_ns = now
            self.traffic = self._network.traffic(now)
            if self._until == "first":
                self._stop()
        self._without_result.discard(host.site)
        if not self._without_result and self.last_ns is None:
            self.last_ns = now
            self.hop_messages_last = self._network.traffic(now).hop_messages
            self._stop()


class Round(ABC):
    """One round from its trigger to its end. A scenario says how its protocol's objects are made."""

    def __init__(self, study: RoundStudy, seed: int, recorder: Recorder | None = None) -> None:
        self.study = study
        self.seeds = seeds = Seeds(seed)
        self.sites = tuple(site_names(study.members))
        outside = (f"outside{number}" for number in range(study.senders - study.members))
        self.senders = (*self.sites[: study.senders], *outside)
        self.index = {site: index for index, site in enumerate(self.sites)}
        self.holdings = _draw_holdings(study, seeds)
        """A row for each member: of each sender, how many messages it holds, or has seen."""
        self.placement = _place(study, seeds)
        self.free_start: FreeStart | None = None
        self._trips: dict[Site, RoundTrips | None] = {}
        if recorder is not None:
            _record_history(recorder, self.sites, self.senders, self.holdings)
        self.prepare()
        for number in range(study.earlier_rounds if study.waits_for_answers else 0):
            losses = Seeds(seeds.stream(f"earlier round/{number}").getrandbits(64))
            self._set_up(losses, None, "last")
            self.run()
        self._set_up(seeds, recorder, study.until)

    def _set_up(self, losses: Seeds, recorder: Recorder | None, until: Until) -> None:
        """Make the network and the members; they know what earlier rounds have shown."""
        study = self.study
        self.network = self.make_network()
        self.free_start = None
        self.world = World(
            sites=self.sites,
            build=self._build,
            network=self.network,
            size_of=self.size_of(),
            layers=[LossLayer(losses, study.loss_rate)] if study.loss_rate else (),
            recorder=recorder,
        )
        aware = self.sites if study.objective is Objective.LEAST else self._ignorant()
        self._watch = _Watch(aware, self.network, self.world.stop, until)
        self.world.on_stable = self.world.on_missing = self._watch.on_result
        self.world.start()

    # What a scenario defines for its protocol

    @abstractmethod
    def prepare(self) -> None:
        """Prepare what all members share, before the first of them is made."""

    @abstractmethod
    def build(self, site: Site) -> Protocol:
        """A member's protocol object, holding what the seed gives it (see `holding`)."""

    def make_network(self) -> TreeNetwork:
        """The network between the members; a scenario may have one of its own."""
        return TreeNetwork(self.placement.tree, self.placement.nodes, tree_model(self.study))

    def size_of(self) -> Callable[[Pdu], int]:
        """START is a bare header; the others carry 4 bytes a sender."""
        start, array_bytes = self.start_kind(), self.study.array_bytes
        return lambda pdu: HEADER_BYTES if type(pdu) is start else array_bytes

    def start_kind(self) -> type[Pdu] | None:
        """The PDU that only starts a round; None if there is none."""
        return None

    def trigger(self) -> None:
        """Let the round begin."""
        self.world.give(self.world.hosts[0], RoundTriggered())

    @abstractmethod
    def steps(self, tpr_s: float | None) -> float | None:
        """The number of steps of the round, as the text counts them."""

    # Helpers of scenarios

    def holding(self, site: Site) -> IntegerArray:
        row: IntegerArray = self.holdings[self.index[site]]
        return row

    def repeating(self, site: Site) -> Random | None:
        """What spreads a member's repetitions, if it repeats anything."""
        return self.seeds.stream(f"repetition/{site}") if self.study.lossy else None

    # The run

    def run(self, until_ns: Nanoseconds = LONGEST_ROUND_NS) -> None:
        """Trigger the round and let it come to its end, and to that of what spreads its result."""
        self.trigger()
        free_start = self.free_start
        if free_start is not None:
            assert free_start.start is not None, "a triggered round begins with START"
            for host in self.world.hosts[1:]:
                self.world.give(host, Received(self.world.hosts[0].site, free_start.start))
        self.world.run(until_ns)

    def metrics(self) -> Metrics:
        """As `antiphon simulate` prints them; a round that did not end has the traffic of the whole run."""
        watch = self._watch
        traffic = watch.traffic or self.network.traffic(self.world.now)
        tpr_s = None if watch.tpr_ns is None else to_seconds(watch.tpr_ns)
        return {
            "tpr_s": tpr_s,
            "tpr_last_s": None if watch.last_ns is None else to_seconds(watch.last_ns),
            "steps": self.steps(tpr_s),
            "hop_messages": traffic.hop_messages,
            "hop_messages_last": None if watch.last_ns is None else watch.hop_messages_last,
            "queue_mean": traffic.queue_mean,
            "queue_max": traffic.queue_max,
            "queue_node_mean": traffic.queue_node_mean,
            "queue_node_max": traffic.queue_node_max,
            "dropped": traffic.dropped,
            "finished": tpr_s is not None,
        }

    def _build(self, site: Site) -> Protocol:
        protocol = self.build(site)
        if isinstance(protocol, Stability) and self.study.waits_for_answers:
            protocol.trips = self._trips.setdefault(site, protocol.trips)
        kind = self.start_kind()
        if site != self.sites[0] or self.study.start == "counted" or kind is None:
            return protocol
        self.free_start = FreeStart(protocol, kind)
        return self.free_start

    def _ignorant(self) -> list[Site]:
        """The members that have not seen everything that any member has."""
        behind = (self.holdings < self.holdings.max(axis=0)).any(axis=1)
        return [site for site, is_behind in zip(self.sites, behind.tolist(), strict=True) if is_behind]


def _place(study: RoundStudy, seeds: Seeds) -> Placement:
    if study.density == "dense":
        return Placement(grow_tree(study.members, study.fill, study.shape), range(study.members))
    tree = grow_tree(study.network_nodes, study.fill, study.shape)
    return Placement(tree, draw_members(tree, study.members, seeds.array_stream("members")))


def tree_model(study: RoundStudy) -> TreeModel:
    return TreeModel(
        bandwidth_bits_per_s=study.bandwidth,
        buffer_messages=BUFFER_MESSAGES if study.loss == "buffers" else None,
    )


def _draw_holdings(study: RoundStudy, seeds: Seeds) -> IntegerArray:
    """A row for each member: how many messages of each sender it holds; a sender holds all of its own."""
    random = seeds.array_stream("holdings")
    sent = random.integers(2, MOST_MESSAGES, size=study.senders, endpoint=True)
    held = random.integers(1, sent, size=(study.members, study.senders), endpoint=True)
    own = np.arange(min(study.senders, study.members))
    held[own, own] = sent[own]
    return held


def _record_history(
    recorder: Recorder, sites: Sequence[Site], senders: Sequence[Site], holdings: IntegerArray
) -> None:
    """The state before the round: each sender's messages, and how many of them each member holds."""
    destinations = sites if len(senders) > len(sites) else None
    for sender, count in zip(senders, holdings.max(axis=0).tolist(), strict=True):
        size = count * MESSAGE_BYTES
        recorder.record(sender, "send", 0, sender, 0, count, destinations=destinations, size=size)
    for site, row in zip(sites, holdings.tolist(), strict=True):
        for sender, count in zip(senders, row, strict=True):
            if sender != site:
                recorder.record(site, "receive", 0, sender, 0, count)
