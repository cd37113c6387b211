"""What the scenarios of overlapping groups share: the memberships, the workload, and the counts.

Memberships are drawn from the seed. The workload is that of every ordering protocol, except that each batch
goes to one group: one of its sender's own, or sometimes, since groups are open, one that the sender is not
in. A multicast is one batch. Its cost is counted as in section 6 of Jia and So: each transmission from one
site to another is a message, without acknowledgements, which they leave to the transport. Its latency, in
units of the network's delay, is the time until its last destination delivers it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, MessageId, Site, site_names
from antiphon.core.inputs import Input
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import SECOND_NS, Nanoseconds, from_seconds
from antiphon.core.wire import Pdu
from antiphon.sim.churn import Fault
from antiphon.sim.ordering import OrderingConfiguration, Subject, Watch, Workload, simulate
from antiphon.sim.scenario import Metrics
from antiphon.sim.sizes import encoded_size
from antiphon.sim.world import Host, World

Membership = Mapping[Group, tuple[Site, ...]]


@dataclass(frozen=True, kw_only=True)
class OverlappingConfiguration(OrderingConfiguration):
    """The shared knobs and those of overlapping groups."""

    members: Annotated[int, "sites, each of them in some of the groups"] = 7
    groups: Annotated[int, "groups, whose members are drawn at random"] = 4
    overlap: Annotated[float, "groups that a site is in, on average"] = 2.0
    outsiders: Annotated[float, "share of multicasts that go to a group drawn from all of them"] = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups < 1 or not 1.0 <= self.overlap <= self.groups:
            raise UsageError("There is a group at least, and sites are in one to all of them on average.")
        if not 0.0 <= self.outsiders <= 1.0:
            raise UsageError("The share of multicasts to any group is from 0 to 1.")

    def membership(self, seed: int) -> dict[Group, tuple[Site, ...]]:
        """The members of each group in the run of that seed."""
        random = Seeds(seed).stream("groups/membership")
        return draw_membership(random, site_names(self.members), self.groups, self.overlap)


def group_names(count: int) -> list[Group]:
    """The simulator's names for groups, all of one width so that they sort as they count.

    >>> group_names(2)
    ['g0', 'g1']
    """
    width = len(str(max(count - 1, 0)))
    return [f"g{index:0{width}d}" for index in range(count)]


def draw_membership(
    random: Random, sites: Sequence[Site], groups: int, overlap: float
) -> dict[Group, tuple[Site, ...]]:
    """Groups of random members: each site is in at least one group, and in `overlap` of them on average.

    The number of a site's groups beyond the first has a binomial distribution. An empty group gets one
    member, which is then in one more group.
    """
    names = group_names(groups)
    members: dict[Group, list[Site]] = {name: [] for name in names}
    chance = (overlap - 1) / (groups - 1) if groups > 1 else 0.0
    for site in sites:
        count = 1 + sum(random.random() < chance for _ in range(groups - 1))
        for name in random.sample(names, count):
            members[name].append(site)
    for name in names:
        if not members[name]:
            members[name].append(random.choice(sites))
    return {name: tuple(members[name]) for name in names}


@dataclass
class Meter:
    """What the sites of a run have sent to each other: messages of multicasts, and everything else."""

    data_kinds: tuple[type[Pdu], ...]
    size_of: Callable[[Pdu], int]
    messages: int = 0
    control_messages: int = 0
    loads: Counter[Site] = field(default_factory=Counter)
    """In how many messages each site took part, as their sender or as their receiver."""
    bytes: Counter[Site] = field(default_factory=Counter)
    """How many bytes each site sent and received, in all PDUs, copies counted one by one."""

    def count(self, source: Site, targets: Sequence[Site], pdu: Pdu) -> None:
        size = self.size_of(pdu)
        self.bytes[source] += size * len(targets)
        for target in targets:
            self.bytes[target] += size
        if not isinstance(pdu, self.data_kinds):
            self.control_messages += len(targets)
            return
        self.messages += len(targets)
        self.loads[source] += len(targets)
        self.loads.update(targets)

    def metrics(self, batches: int) -> Metrics:
        busiest = max(self.loads.values(), default=0)
        return {
            "messages": self.messages,
            "control_messages": self.control_messages,
            "messages_per_multicast": self.messages / batches if batches else None,
            "busiest_load": busiest / batches if batches else None,
            "busiest_bytes": max(self.bytes.values(), default=0) / batches if batches else None,
        }


class Metered:
    """A site whose sending is counted; implements `antiphon.core.protocol.Protocol`."""

    def __init__(self, protocol: Protocol, site: Site, sites: Sequence[Site], meter: Meter) -> None:
        self._handle = protocol.handle
        self._site = site
        self._others = [other for other in sites if other != site]
        self._meter = meter

    def handle(self, now: Nanoseconds, event: Input) -> list[fx.Effect]:
        effects = self._handle(now, event)
        for effect in effects:
            if isinstance(effect, fx.Send):
                self._meter.count(self._site, (effect.to,), effect.pdu)
            elif isinstance(effect, fx.Multicast):
                targets = self._others if effect.to is None else effect.to
                self._meter.count(self._site, targets, effect.pdu)
        return effects


class GroupWorkload(Workload):
    """Applications that multicast to groups."""

    _configuration: OverlappingConfiguration

    def __init__(
        self,
        world: World,
        configuration: OverlappingConfiguration,
        subject: Subject,
        seeds: Seeds,
        faults: list[Fault],
        watch: Watch,
    ) -> None:
        super().__init__(world, configuration, subject, seeds, faults, watch)
        self._choice = seeds.stream("workload/groups")
        self._membership: Membership = configuration.membership(seeds.seed)
        self._names = list(self._membership)
        self._own = {
            site: [group for group, members in self._membership.items() if site in members]
            for site in self._backlog
        }
        self._batches = 0
        self._spans_ns: list[Nanoseconds] = []

    def _hand_over(self, site: Site, count: int) -> None:
        self._world.admit(site, [self._body] * count, group=self._next_group(site))

    def _next_group(self, site: Site) -> Group:
        """A batch that is refused may go to another group when it is tried again."""
        is_open = self._choice.random() < self._configuration.outsiders
        return self._choice.choice(self._names if is_open else self._own[site])

    def _meant_for(self, effect: fx.Admitted) -> Sequence[frozenset[Site]]:
        assert effect.destinations is not None, "members of a group are sent to by name"
        self._batches += 1
        return [effect.destinations] * effect.count

    def _note_delivery(self, now: Nanoseconds, host: Host, effect: fx.Deliver) -> None:
        super()._note_delivery(now, host, effect)
        first = MessageId(effect.sender, effect.number)
        if first in self._reached and self._reached[first] == self._meant[first]:
            self._spans_ns.append(now - self._admitted_ns[first])

    def metrics(self) -> Metrics:
        delay_ns = from_seconds(self._configuration.delay_ms / 1000)
        mean_ns = sum(self._spans_ns) / len(self._spans_ns) if self._spans_ns else None
        return super().metrics() | {
            "batches": self._batches,
            "completion_s": mean_ns / SECOND_NS if mean_ns is not None else None,
            "hops": mean_ns / delay_ns if mean_ns is not None and delay_ns else None,
        }


@dataclass(frozen=True, kw_only=True)
class GroupsSubject:
    """What a run must know about the protocol under test."""

    build: Callable[[Site, Membership, tuple[Site, ...]], Protocol]
    pdus: tuple[type[Pdu], ...]
    data_kinds: tuple[type[Pdu], ...]
    """PDUs that are counted as messages."""
    settle_ns: Nanoseconds
    """How long after the last fault it may take until every member takes part again."""
    forgets: bool = False
    """Whether a member whose spell ended restarts without memory."""


def simulate_groups(
    configuration: OverlappingConfiguration,
    subject: GroupsSubject,
    seed: int,
    recorder: Recorder | None,
    workload_kind: type[GroupWorkload] = GroupWorkload,
) -> Metrics:
    """One run of a protocol for overlapping groups, with what it cost."""
    membership = configuration.membership(seed)
    size_of = encoded_size(subject.pdus)
    meter = Meter(subject.data_kinds, size_of)
    metrics = simulate(
        configuration,
        Subject(
            build=lambda site, sites: Metered(subject.build(site, membership, sites), site, sites, meter),
            repairs=True,
            settle_ns=subject.settle_ns,
            leader_crashes_alone=False,
            size_of=size_of,
            forgets=subject.forgets,
        ),
        seed,
        recorder,
        workload_kind,
    )
    batches = metrics["batches"]
    assert isinstance(batches, int)
    return metrics | meter.metrics(batches)
