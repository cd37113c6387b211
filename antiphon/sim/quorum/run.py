"""One simulated run of a replicated map under faults: calls, crashes, partitions, members that change."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Annotated, Any, Final

import msgspec

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site, site_names
from antiphon.core.recording import Recorder
from antiphon.core.seeds import Seeds
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds, from_seconds
from antiphon.protocols.quorum import Quorum, QuorumConfiguration
from antiphon.protocols.quorum.ports import Wish
from antiphon.protocols.quorum.sides import Sides
from antiphon.sim.churn import (
    Fault,
    Pace,
    Split,
    draw_absences,
    draw_crashes,
    draw_splits,
    healed_ns,
    schedule,
    without_meetings,
)
from antiphon.sim.layers import Duplication, Loss, Partition, Reordering
from antiphon.sim.mesh import Mesh
from antiphon.sim.network import Layer
from antiphon.sim.quorum.disk import SimulatedDisk
from antiphon.sim.quorum.site import Ledger, Make, QuorumSite, SimulatedCall
from antiphon.sim.scenario import Metrics
from antiphon.sim.world import World

SETTLE_NS: Final = 12 * SECOND_NS
"""Longest time after the last fault until every member can call again, and until its last calls are answered.
A run ends as soon as that is so."""
LOOK_NS: Final = 100 * MILLISECOND_NS
"""Interval at which that is looked at. Raising it costs simulated time at the end of every run."""
MOST_PENDING: Final = 4
"""Calls of one member under way."""
LATE_NS: Final = 30 * MILLISECOND_NS
EPOCH_NS: Final = 1000 * SECOND_NS
"""What the members' clocks show at the start. No jump goes back behind it."""
WARM_NS: Final = SECOND_NS
"""Time for the founding before the calls and the faults."""


@dataclass(frozen=True, kw_only=True)
class QuorumRunConfiguration:
    """The knobs of a run."""

    members: Annotated[int, "members of the group at its founding"] = 5
    messages: Annotated[int, "calls in total, over all members"] = 200
    rate: Annotated[float, "calls a second offered by the whole group"] = 200.0
    keys: Annotated[int, "keys of the map that the calls are about"] = 3
    delay_ms: Annotated[float, "one-way delay in milliseconds"] = 0.5
    jitter_ms: Annotated[float, "further delay, drawn evenly from 0 to this"] = 0.5
    loss: Annotated[float, "probability that an arrival is lost"] = 0.0
    duplication: Annotated[float, "probability that an arrival comes twice"] = 0.0
    reordering: Annotated[float, "probability that an arrival is held up, so that others overtake it"] = 0.0
    crashes: Annotated[int, "crashes of random members, each followed by a restart"] = 0
    partitions: Annotated[int, "partitions, each of a random cell against the rest, healed in the end"] = 0
    pauses: Annotated[int, "members that stand still now and then, with their memory"] = 0
    calm_ms: Annotated[float, "mean time between two faults of a member"] = 600.0
    away_ms: Annotated[float, "mean time that a fault lasts"] = 400.0
    disk: Annotated[bool, "members keep their log on disk; without it a restart has lost everything"] = True
    disk_ms: Annotated[float, "time that a write takes to be safe, in milliseconds"] = 2.0
    changes: Annotated[int, "members that are added while it runs; as many others are removed"] = 0
    clock_jumps: Annotated[int, "clocks that are set back or forward; with them, some keys expire"] = 0
    snapshot_bytes: Annotated[int, "bytes of entries after which a member takes a snapshot"] = 4000
    quorum: Annotated[bool, "a majority decides; without it every side goes on, and sides merge"] = True
    late: Annotated[int, "members that start later: the others, a majority with disks, found the group"] = 0
    early: Annotated[bool, "faults begin at once, while the group is founded"] = False
    expected: Annotated[bool, "members know how many they are, and not their names"] = False

    def __post_init__(self) -> None:
        if self.members < 1 or self.messages < 1 or self.keys < 1:
            raise UsageError("A run needs at least one member, one call and one key.")
        if self.rate <= 0 or min(self.delay_ms, self.jitter_ms, self.disk_ms) < 0:
            raise UsageError("The rate must be positive, and no delay negative.")
        for name in ("loss", "duplication", "reordering"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise UsageError(f"The {name} is a probability from 0 to below 1.")
        if min(self.crashes, self.partitions, self.pauses, self.changes, self.clock_jumps) < 0:
            raise UsageError("No count of faults is negative.")
        if self.crashes and not self.disk and self.quorum and self.members < 3:
            raise UsageError("Without disks, two members cannot lose one.", hint="Give it three or more.")
        if self.changes >= self.members:
            raise UsageError("One of the members must stay.", hint="Make fewer changes than members.")
        if not self.quorum and (self.disk or self.changes or self.clock_jumps):
            raise UsageError(
                "Without a quorum members keep no disk, come and go by themselves, and have no clock.",
                hint="Add --no-disk, and leave out --changes and --clock-jumps.",
            )
        if not 0 <= self.late <= (self.members - 1) // 2 or (self.late and not self.disk):
            raise UsageError("A majority with disks founds a group without those that are late.")
        if self.expected and (self.late or self.early or self.changes or not self.quorum):
            raise UsageError("Members that know no names need all of them, no others, and calm at the start.")
        if min(self.calm_ms, self.away_ms) < 1:
            raise UsageError("Calm and trouble last a millisecond or longer.")

    @property
    def horizon_ns(self) -> Nanoseconds:
        return from_seconds(self.messages / self.rate)

    @property
    def pace(self) -> Pace:
        return Pace(calm_ns=from_seconds(self.calm_ms / 1000), trouble_ns=from_seconds(self.away_ms / 1000))


class KeyedRegisters:
    """The machine of the run: a map with get, set and compare_and_set. A key that is set with a lifetime
    expires: the lifetime begins with the next tick."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._expiries: dict[str, list[int]] = {}
        """For each key that expires its lifetime, and its deadline once a tick has come."""
        self._time_ns = 0

    def apply(self, command: Any) -> Any:
        match command:
            case ["get", key]:
                return self._values.get(key)
            case ["set", key, value, *lifetime]:
                self._values[key] = value
                self._expiries.pop(key, None)
                if lifetime:
                    self._expiries[key] = lifetime
                return None
            case ["compare_and_set", key, old, new]:
                if self._values.get(key) != old:
                    return False
                self._values[key] = new
                self._expiries.pop(key, None)
                return True
        raise ValueError(f"There is no command {command!r}.")

    @property
    def wants_ticks(self) -> bool:
        return bool(self._expiries)

    def tick(self, time_ns: int) -> None:
        assert time_ns >= self._time_ns, "the agreed clock never goes back"
        self._time_ns = time_ns
        for key, expiry in list(self._expiries.items()):
            if len(expiry) == 1:
                expiry.append(time_ns + expiry[0])
            elif time_ns >= expiry[1]:
                del self._expiries[key], self._values[key]

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(
            [dict(sorted(each.items())) for each in (self._values, self._expiries)] + [self._time_ns]
        )

    def restore(self, data: bytes) -> None:
        self._values, self._expiries, self._time_ns = msgspec.msgpack.decode(data)


class KeyedSets:
    """The machine of a run without a quorum: a set that only grows, so that its merge is the union."""

    def __init__(self) -> None:
        self.items: set[str] = set()

    def apply(self, command: Any) -> Any:
        operation, item = command
        is_in = item in self.items
        if operation == "contains":
            return is_in
        self.items.add(item)
        return not is_in

    def merge(self, mine: bytes, theirs: bytes) -> bytes:
        return msgspec.msgpack.encode(
            sorted({*msgspec.msgpack.decode(mine), *msgspec.msgpack.decode(theirs)})
        )

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(sorted(self.items))

    def restore(self, data: bytes) -> None:
        self.items = set(msgspec.msgpack.decode(data))


def draw_item(random: Random, number: int, keys: int) -> list[Any]:
    """Add an item, or look for one that a recent call may have added."""
    if random.random() < 0.5:
        return ["add", f"k{number}"]
    return ["contains", f"k{random.randint(max(0, number - 4 * keys), number)}"]


def make_sides(
    site: Site, _members: Any, configuration: QuorumConfiguration, random: Random, _recovered: Any
) -> Sides:
    return Sides(site, configuration, random)


def draw_command(random: Random, number: int, keys: int) -> list[Any]:
    """A random command; each value is written once, so that a history shows which write was read."""
    key = f"k{random.randrange(keys)}"
    match random.randrange(4):
        case 0 | 1:
            return ["get", key]
        case 2:
            return ["set", key, number]
        case _:
            return ["compare_and_set", key, random.randrange(max(1, number)), number]


def draw_expiring_command(random: Random, number: int, keys: int) -> list[Any]:
    """The same, where every second value that is set expires soon."""
    command = draw_command(random, number, keys)
    if command[0] == "set" and number % 2:
        command.append(random.choice((1, 100, 400)) * MILLISECOND_NS)
    return command


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run shows."""

    metrics: Metrics
    calls: list[SimulatedCall]
    """Every call of every client, for the linearizability checker."""
    disagreements: list[str]
    """Entries on which two members disagree, and terms with two leaders: none, unless there is a bug."""


class Run:
    """One run: builds the world, schedules calls and faults, and looks at the end."""

    def __init__(
        self,
        knobs: QuorumRunConfiguration,
        seed: int,
        recorder: Recorder | None = None,
        *,
        make: Make | None = None,
        machine: Callable[[], Any] | None = None,
        command: Callable[[Random, int, int], Any] | None = None,
    ) -> None:
        """`make` builds the protocol, so that a test can break it; `machine` and `command` are the
        application."""
        self._knobs = knobs
        self._seeds = Seeds(seed)
        self._make = make or (Quorum if knobs.quorum else make_sides)
        self._machine = machine or (KeyedRegisters if knobs.quorum else KeyedSets)
        with_majority = draw_expiring_command if knobs.clock_jumps else draw_command
        self._command = command or (with_majority if knobs.quorum else draw_item)
        self._clock_offsets: dict[Site, Nanoseconds] = {}
        self.ledger = Ledger(has_one_group=knobs.quorum)
        everyone = site_names(knobs.members + knobs.changes)
        self._founders = tuple(everyone[: knobs.members])
        self._spares = everyone[knobs.members :]
        self._disks = {site: SimulatedDisk() for site in everyone} if knobs.disk else {}
        self._lives: dict[Site, int] = {}
        self.sites: dict[Site, QuorumSite] = {}
        self._partition = Partition(len(everyone))
        seeds = self._seeds
        faulty: list[tuple[float, Callable[[], Layer]]] = [
            (knobs.partitions, lambda: self._partition),
            (knobs.loss, lambda: Loss(seeds, knobs.loss)),
            (knobs.duplication, lambda: Duplication(seeds, knobs.duplication, LATE_NS)),
            (knobs.reordering, lambda: Reordering(seeds, knobs.reordering, LATE_NS)),
        ]
        layers = [make_layer() for share, make_layer in faulty if share]
        delay_ns, jitter_ns = (from_seconds(each / 1000) for each in (knobs.delay_ms, knobs.jitter_ms))
        self.world = World(
            sites=everyone, build=self._build, size_of=lambda _pdu: 0, layers=layers, recorder=recorder,
            network=Mesh(len(everyone), seeds, delay_ns=delay_ns, jitter_ns=jitter_ns),
        )  # fmt: skip
        self._removed: set[Site] = set()

    def _build(self, site: Site) -> QuorumSite:
        knobs = self._knobs
        life = self._lives[site] = self._lives.get(site, 0) + 1
        configuration = QuorumConfiguration(
            stores=knobs.disk, batch_bytes=2000, piece_bytes=500, piece_window=4, kept_bytes=1000,
            admits_all=not knobs.quorum, expected=knobs.members if knobs.expected else 0,
            election_ns=60 * MILLISECOND_NS + from_seconds(8 * (knobs.delay_ms + knobs.jitter_ms) / 1000),
        )  # fmt: skip
        built = self.sites[site] = QuorumSite(
            site, () if knobs.expected else self._founders, configuration,
            self._seeds.stream(f"site/{site}/{life}"), self.ledger, machine=self._machine(),
            disk=self._disks.get(site), make=self._make,
            clock=lambda now: max(now + EPOCH_NS + self._clock_offsets.get(site, 0), 0),
            disk_ns=max(1, from_seconds(knobs.disk_ms / 1000)), snapshot_bytes=knobs.snapshot_bytes,
        )  # fmt: skip
        return built

    @property
    def model(self) -> str:
        """What the machine is to the linearizability checker."""
        return "map" if self._knobs.quorum else "set"

    def go(self) -> Outcome:
        late = self._schedule_late()
        faults = [each for each in self._draw_faults() if isinstance(each, Split) or each.site not in late]
        self._schedule_calls()
        self._schedule_changes()
        self._schedule_clocks()
        schedule(self.world, faults, self._partition)
        self.world.start()
        calm_ns = max(healed_ns(faults), WARM_NS + self._knobs.horizon_ns, *late.values())
        self.world.run(until_ns=calm_ns)
        self._run_until(lambda: self._is_settled, calm_ns + SETTLE_NS)
        last = self._last_calls()
        self._run_until(lambda: self._is_live(last) and self._is_equal, self.world.now + SETTLE_NS)
        return self._outcome(last)

    def _run_until(self, condition: Callable[[], bool], end_ns: Nanoseconds) -> None:
        """Run until a condition holds, at most until a moment."""
        while self.world.now < end_ns and not condition():
            self.world.run(until_ns=min(end_ns, self.world.now + LOOK_NS))

    def _schedule_late(self) -> dict[Site, Nanoseconds]:
        """Hold some members back. Returns when they start."""
        random = self._seeds.stream("late")
        late = {}
        for site in random.sample(self._founders, self._knobs.late):
            self.world.crash(site)
            late[site] = random.randrange(3 * WARM_NS)
            self.world.at(late[site], partial(self.world.restart, site))
        return late

    def _draw_faults(self) -> list[Fault]:
        knobs, random = self._knobs, self._seeds.stream("faults")
        sites, horizon_ns = self._founders, knobs.horizon_ns
        crashes = draw_crashes(random, sites, knobs.crashes, horizon_ns, knobs.pace)
        if not knobs.disk:
            crashes = _one_at_a_time(crashes)
        pauses = draw_absences(random, sites[: knobs.pauses], horizon_ns, knobs.pace)
        splits = draw_splits(random, sites, knobs.partitions, horizon_ns, knobs.pace)
        faults = without_meetings([*crashes, *pauses, *splits])
        first_ns = 0 if knobs.early else WARM_NS
        return [
            replace(fault, begin_ns=fault.begin_ns + first_ns, end_ns=fault.end_ns + first_ns)
            for fault in faults
        ]

    def _schedule_calls(self) -> None:
        knobs, random = self._knobs, self._seeds.stream("calls")
        for number in range(knobs.messages):
            time_ns = WARM_NS + from_seconds(number / knobs.rate) + random.randrange(MILLISECOND_NS)
            site = random.choice(self._founders)
            command = self._command(random, number, knobs.keys)
            self.world.at(time_ns, partial(self._call, site, command))

    def _call(self, site: Site, command: Any) -> None:
        if self.sites[site].pending < MOST_PENDING:
            self.world.admit(site, [msgspec.msgpack.encode(command)])

    def _schedule_changes(self) -> None:
        """Add each spare, and remove a founder for it; ask until it is done, as a live member does."""
        knobs, random = self._knobs, self._seeds.stream("changes")
        for place, spare in enumerate(self._spares):
            time_ns = WARM_NS + round(knobs.horizon_ns * (place + 1) / (len(self._spares) + 1))
            leaver = self._founders[place]
            asker = random.choice(self._founders[len(self._spares) :])
            self.world.at(time_ns, partial(self._wish, asker, Wish(spare, remove=False), None))
            self.world.at(
                time_ns + SECOND_NS // 2, partial(self._wish, asker, Wish(leaver, remove=True), spare)
            )

    def _schedule_clocks(self) -> None:
        random = self._seeds.stream("clocks")
        for _ in range(self._knobs.clock_jumps):
            time_ns = WARM_NS + random.randrange(self._knobs.horizon_ns)
            jump_ns = random.choice((-100, -1, 1, 100)) * SECOND_NS // random.choice((1, 10))
            self.world.at(time_ns, partial(self._set_clock, random.choice(self._founders), jump_ns))

    def _set_clock(self, site: Site, jump_ns: Nanoseconds) -> None:
        self._clock_offsets[site] = self._clock_offsets.get(site, 0) + jump_ns

    def _wish(self, asker: Site, wish: Wish, after: Site | None) -> None:
        config = self.sites[asker].protocol.config
        is_done = (wish.name in config.voters) != wish.remove
        may_begin = after is None or after in config.voters
        if is_done and may_begin:
            return
        host = self.world.host(asker)
        if may_begin and host.present:
            self._removed |= {wish.name} if wish.remove else set()
            self.world.give(host, wish)  # type: ignore[arg-type]
        self.world.at(self.world.now + 100 * MILLISECOND_NS, partial(self._wish, asker, wish, after))

    # The end

    @property
    def _staying(self) -> list[Site]:
        return [site for site in self.sites if site not in self._removed]

    @property
    def _is_settled(self) -> bool:
        """Whether all changes are made, and every member that stays votes, follows one leader and has caught
        up: a transfer could still take the results of its last calls."""
        staying = self._staying
        if len(self._removed) < len(self._spares):
            return False
        protocols = [self.sites[site].protocol for site in staying]
        return len({(each.leader, each.commit) for each in protocols}) == 1 and all(
            each.leader is not None and not each.is_cut_off and each.config.voters.keys() == set(staying)
            for each in protocols
        )

    def _is_live(self, last: list[SimulatedCall]) -> bool:
        """Whether every member's last calls are answered."""
        expected = len(self._staying) * self._knobs.keys
        return sum(call.end is not None for call in last) == expected

    @property
    def _is_equal(self) -> bool:
        return len({self.sites[site].state for site in self._staying}) == 1

    def _last_calls(self) -> list[SimulatedCall]:
        """Every member that stays reads each key once more, as soon as it is not cut off."""
        last: list[SimulatedCall] = []
        for site in self._staying:
            for key in range(self._knobs.keys):
                self._call_at_last(site, ["get" if self._knobs.quorum else "contains", f"k{key}"], last)
        return last

    def _call_at_last(self, site: Site, command: Any, last: list[SimulatedCall]) -> None:
        first = len(self.ledger.calls)
        self.world.admit(site, [msgspec.msgpack.encode(command)])
        if len(self.ledger.calls) > first:
            last.append(self.ledger.calls[-1])
        else:
            again_ns = self.world.now + SECOND_NS // 2
            self.world.at(again_ns, partial(self._call_at_last, site, command, last))

    def _outcome(self, last: list[SimulatedCall]) -> Outcome:
        ledger, staying = self.ledger, self._staying
        answered = [call for call in ledger.calls if call.end is not None]
        metrics: Metrics = {
            "calls": len(ledger.calls),
            "answered": len(answered),
            "entries": max(self.sites[site].protocol.commit for site in staying),
            "elections": ledger.elections,
            "cut_offs": ledger.cut_offs,
            "snapshots": ledger.snapshots,
            "transfers": ledger.installs,
            "network_messages": self.world.network.network_messages(),
            "disagreements": len(ledger.disagreements),
            **({} if self._knobs.quorum else {"merges": ledger.merges, "lost": self._lost(answered)}),
            "equal": self._is_equal,
            "live": self._is_live(last),
        }
        return Outcome(metrics=metrics, calls=ledger.calls, disagreements=ledger.disagreements)

    def _lost(self, answered: list[SimulatedCall]) -> int:
        """Acknowledged additions that are missing in the end. A member that crashes may take those of its
        side with it, where it was the last one there: additions by members that crashed do not count."""
        held = set(msgspec.msgpack.decode(self.sites[self._staying[0]].state))
        added = {
            call.command[1] for call in answered if call.command[0] == "add" and self._lives[call.client] == 1
        }
        return len(added - held)


def _one_at_a_time(crashes: list[Any]) -> list[Any]:
    """Without disks, each member is back among the voters before the next loses its memory."""
    kept: list[Any] = []
    for crash in sorted(crashes, key=lambda each: each.begin_ns):
        if not any(crash.overlaps(other, 3 * SECOND_NS) for other in kept):
            kept.append(crash)
    return kept
