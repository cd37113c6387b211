"""A cluster: members of a live group in one process, on simulated time, whose faults a test decides.

    async def story() -> None:
        async with antiphon.testing.cluster(3, seed=1, order="total") as cluster:
            await cluster["m0"].send(b"hello")
            cluster.partition({"m0"}, {"m1", "m2"})
            ...

    antiphon.testing.run(story())

`cluster["m0"]` is what `antiphon.join` gives: the same class, the same protocols, the same transport. Only
time, the network and randomness are simulated, and the same seed gives the same run.
"""

import asyncio
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final, TypeVar

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group as GroupName
from antiphon.core.ids import Site
from antiphon.live.errors import LeftError
from antiphon.live.group import Group
from antiphon.live.joining import join
from antiphon.live.limits import require_name
from antiphon.live.networks import Loopback
from antiphon.live.node import ACROSS, Node
from antiphon.replicated.machine import Machine
from antiphon.replicated.replica import Replicated, replicate
from antiphon.testing.loop import simulated_loop
from antiphon.testing.network import SimulatedMachine, SimulatedNetwork

M = TypeVar("M", bound=Machine)
DELAY_S: Final = 100e-6
JITTER_S: Final = 50e-6
GROUP: Final = "cluster"


def cluster(
    members: int | Iterable[Site],
    *,
    seed: int = 0,
    group: GroupName = GROUP,
    delay_s: float = DELAY_S,
    jitter_s: float = JITTER_S,
    **options: Any,
) -> "Cluster":
    """Members of one simulated group: `async with cluster(3, seed=1) as cluster`.

    members: how many, called m0, m1, …; or their names. There may be none: `Cluster.join` makes more.
    seed: the same one gives the same run.
    delay_s, jitter_s: how long a datagram takes, and by how much longer it may take.
    options: those of `antiphon.join`, but for `network`. The first member orders where the order is
        'sequencer' and no other is named.
    """
    names = [f"m{index}" for index in range(members)] if isinstance(members, int) else list(members)
    if len(set(names)) != len(names):
        raise UsageError("Each member of a cluster needs a name of its own.")
    if min(delay_s, jitter_s) < 0:
        raise UsageError("A delay cannot be negative.")
    for name in names:
        require_name(name)
    if options.get("order") == "sequencer" and names:
        options.setdefault("sequencer", names[0])
    return Cluster(names, seed, group, (delay_s, jitter_s), options)


class Cluster:
    """The members, by name, and faults to inject; made by `cluster`."""

    def __init__(
        self,
        names: list[Site],
        seed: int,
        group: GroupName,
        times_s: tuple[float, float],
        options: dict[str, Any],
    ) -> None:
        self.names: Final = tuple(names)
        self.group: Final = group
        self._seed = seed
        self._times_s = times_s
        self._options = options
        self._network: SimulatedNetwork | None = None
        self._machines: dict[Site, SimulatedMachine] = {}
        self._lives = 0
        self._first: dict[Site, Group] = {}
        """Each member's group that the cluster is about."""
        self._groups: list[Group | Replicated[Any]] = []

    async def __aenter__(self) -> "Cluster":
        if self._network is not None:
            raise UsageError("This cluster was begun before.", hint="Call antiphon.testing.cluster again.")
        self._network = SimulatedNetwork(simulated_loop(), self._seed, *self._times_s)
        await asyncio.gather(*(self._begin(name) for name in self.names))
        await asyncio.gather(*(self[name].wait_for_members(len(self.names)) for name in self.names))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()
        for machine in self._machines.values():
            machine.resume()
        # The first member last: if it is the sequencer, the others need it until the end.
        for group in reversed(self._groups):
            await group.leave(linger=kind is None)

    def __getitem__(self, name: Site) -> Group:
        """A member's group; after a restart, its new one."""
        if name not in self._first:
            raise UsageError(f"There is no member '{name}'.", hint=f"There are: {', '.join(self.names)}.")
        return self._first[name]

    def __iter__(self) -> Iterator[Group]:
        """The members' groups, in the order of their names as given."""
        return (self[name] for name in self.names)

    def join(self, group: GroupName, *, name: Site, **options: Any) -> Group:
        """`antiphon.join` on this cluster's network, for further members, further groups and other programs.

        All groups that one name has joined share a machine and its faults.
        """
        require_name(name)
        if "network" in options:
            raise UsageError("A cluster has its own network.", hint="Leave network= out.")
        if options.get("service") == "lan":
            raise UsageError(
                "The service 'lan' needs one channel that all members share, which a cluster does not have.",
                hint="Leave service= out.",
            )
        made = join(group, name=name, network=Loopback(machine=self._machine_for(name)), **options)
        self._groups.append(made)
        return made

    def replicate(
        self, group: GroupName, machine: M, *, name: Site, members: Iterable[Site] = (), **options: Any
    ) -> Replicated[M]:
        """`antiphon.replicate` on this cluster's network. A store is written at once, without a thread."""
        require_name(name)
        if "network" in options:
            raise UsageError("A cluster has its own network.", hint="Leave network= out.")
        place = Loopback(machine=self._machine_for(name))
        made = replicate(group, machine, name=name, members=frozenset(members), network=place, **options)
        self._groups.append(made)
        return made

    def _machine_for(self, name: Site) -> SimulatedMachine:
        machine = self._machines.get(name)
        if machine is None or machine.is_dead:
            self._lives += 1
            machine = self._machines[name] = SimulatedMachine(name, self._running(), self._lives)
        return machine

    def node(self, cluster: GroupName, *, name: Site, **options: Any) -> Node:
        """`antiphon.node` on this cluster's network."""
        return Node(self.join(cluster, name=name, order=ACROSS, **options))

    async def _begin(self, name: Site) -> Group:
        group = self._first[name] = self.join(self.group, name=name, **self._options)
        return await group

    # Faults

    def kill(self, name: Site) -> None:
        """Kill a member's process without notice; waits on its group raise `LeftError`."""
        machine = self._machine(name)
        machine.kill()
        for group in self._groups:
            if group.name == name:
                group.fail(LeftError(f"'{name}' was killed."))
        self._groups = [group for group in self._groups if group.name != name]

    async def restart(self, name: Site) -> Group:
        """Restart with an empty memory, in the cluster's group; returns when the member has joined."""
        machine = self._machine(name)
        if not machine.is_dead:
            self.kill(name)
        return await self._begin(name)

    def pause(self, name: Site) -> None:
        """Pause a member's process, as by SIGSTOP, while time passes.

        Datagrams for it queue up. Its application runs in the test's process and continues: what it sends
        meanwhile leaves when the member is resumed.
        """
        self._machine(name).pause()

    def resume(self, name: Site) -> None:
        """Resume a paused member."""
        self._machine(name).resume()

    def partition(self, *cells: Iterable[Site]) -> None:
        """Partition the network into these sets of members; members in none of them stay together."""
        named = [list(cell) for cell in cells]
        for name in (name for cell in named for name in cell):
            self._machine(name)
        self._running().split(named)

    def loss(self, rate: float) -> None:
        """Lose this share of all datagrams from now on."""
        if not 0 <= rate <= 1:
            raise UsageError(f"A share of datagrams is from 0 to 1, not {rate:g}.")
        self._running().loss = rate

    def heal(self) -> None:
        """End all partitions and losses."""
        self._running().split(())
        self._running().loss = 0.0

    def _running(self) -> SimulatedNetwork:
        if self._network is None:
            raise UsageError(
                "The cluster does not run yet.", hint="async with antiphon.testing.cluster(...)."
            )
        return self._network

    def _machine(self, name: Site) -> SimulatedMachine:
        if name not in self._machines:
            there = ", ".join(sorted(self._machines))
            raise UsageError(f"There is no member '{name}'.", hint=f"There are: {there}.")
        return self._machines[name]
