"""`antiphon.replicate`: a machine of the application's own, kept equal on every member of a group.

    async with antiphon.replicate("shop", machine, name="a", members={"a", "b", "c"}) as shop:
        result = await shop.call(["set", "apples", 3])

Every command is applied once, in one order, on every replica. What `call` returns was agreed upon by a
majority of the members: it survives as long as a majority does.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.live.errors import LeftError
from antiphon.live.events import CutOff, Disagreed, Refused
from antiphon.live.keys import KeyFile, KeyRing
from antiphon.live.lifecycle import Lifecycle
from antiphon.live.limits import Limits, require_group_name, require_name
from antiphon.live.machine import REAL
from antiphon.live.networks import Network, parse_network, require_key
from antiphon.live.poison import Poison
from antiphon.protocols.quorum import Quorum, QuorumConfiguration
from antiphon.protocols.quorum import ports as qp
from antiphon.protocols.quorum.applying import Applier
from antiphon.protocols.quorum.pdus import DEPART, ENTER, MOST_VOTERS
from antiphon.protocols.quorum.sides import Sides
from antiphon.replicated import events as ev
from antiphon.replicated.calls import Calls, encode_command
from antiphon.replicated.disk import Disk
from antiphon.replicated.driver import Driver
from antiphon.replicated.errors import CutOffError, RemovedError
from antiphon.replicated.journal import Journal
from antiphon.replicated.machine import Machine
from antiphon.trace.call_log import CallLog

M = TypeVar("M", bound=Machine)
Result = TypeVar("Result")
Merge = Callable[[bytes, bytes], bytes]
"""From two snapshots, mine and theirs, to one."""

SNAPSHOT_BYTES: Final = 8 << 20
"""Bytes of commands, beyond the size of the last snapshot, after which the next is taken. Raising it costs
memory and disk; lowering it costs time for snapshots."""
STAGGER: Final = 0.25
"""Share by which each further member takes its snapshots later: they do not all stand still at once."""
CLOCK_NS: Final = 50 * MILLISECOND_NS
"""Interval of the agreed clock, while the machine wants it."""
WISH_S: Final = 0.1
"""Pause before a change of the members is asked for again."""
PIECE_BYTES: Final = 60_000
HINT: Final = "Is a majority of the members up, on the same network, with the same key?"


def replicate(
    group: Group,
    machine: M,
    *,
    name: Site,
    members: Collection[Site] = (),
    expected: int | None = None,
    store: str | Path | None = None,
    fsync: bool = True,
    quorum: str | None = "majority",
    merge: Merge | None = None,
    network: str | Network = "loopback",
    key: str | Path | KeyRing | None = None,
    insecure: bool = False,
    trace: str | Path | None = None,
    run: str | None = None,
    limits: Limits | None = None,
    departed_after_s: float = 1.0,
) -> "Replicated[M]":
    """A replica of a machine: `async with replicate(...) as shop`, or `await replicate(...)` and `leave`.

    machine: anything with `apply(command)`, `snapshot()` and `restore(data)`; see
        `antiphon.replicated.machine`. Every member starts with an equal one.
    name, members: this member's name, and the names of all members at the first start. The first start waits
        for all of them, or, where all that are there have `store`, for a majority; after that a majority is
        enough. A member that is added later names the members that are there, without itself.
    expected: instead of `members`, how many members there are. The group forms once this many processes are
        there and have agreed that they are the members. Later processes must be added.
    store: a folder in which this member keeps the commands and snapshots. Without it a member that restarts
        takes its state from the others, and a group that has lost all members begins empty.
    fsync: whether a command counts as stored only when the disk has confirmed it. False survives `kill -9`,
        but no power failure.
    quorum: 'majority': a minority stops, and its calls raise `CutOffError`. None: every side of a partition
        goes on, and `merge` makes one state of two when they meet again. Calls are then linearizable within
        a side only; `members` is not needed, and `store` not offered.
    merge: with `quorum=None`, a function of two snapshots, mine and theirs, which returns one. It must be
        deterministic, and must bear a state that it has merged before.
    network, key, insecure, limits: as for `antiphon.join`. `limits.join_s` is how long the start may take.
    trace, run: a folder for the history of the calls on ready-made objects, and the run's name in it.
    departed_after_s: silence after which the group agrees that a member's process is gone.
    """
    return Replicated(
        group, machine, name=name, members=members, expected=expected, fsync=fsync,
        store=None if store is None else Path(store), quorum=quorum, merge=merge,
        network=parse_network(network) if isinstance(network, str) else network,
        keys=key if isinstance(key, KeyRing) or key is None else KeyFile(Path(key)), insecure=insecure,
        trace=None if trace is None else Path(trace), run=run, limits=limits or Limits(),
        departed_after_s=departed_after_s,
    )  # fmt: skip


class Replicated(Generic[M]):
    """One replica, made by `replicate`: call, read, change the members."""

    def __init__(
        self,
        group: Group,
        machine: M,
        *,
        name: Site,
        members: Collection[Site],
        expected: int | None,
        store: Path | None,
        fsync: bool,
        quorum: str | None,
        merge: Merge | None,
        network: Network,
        keys: KeyRing | KeyFile | None,
        insecure: bool,
        trace: Path | None,
        run: str | None,
        limits: Limits,
        departed_after_s: float,
    ) -> None:
        merge = getattr(machine, "merge", None) if merge is None and quorum is None else merge
        _check(group, machine, members, departed_after_s)
        _check_quorum(members, expected, quorum, merge, store)
        require_key(network, keys, insecure=insecure)
        self.group: Final = group
        self.name: Final = require_name(name)
        self._first_members: Final = frozenset(map(require_name, members))
        self._expected: Final = expected or 0
        self._machine: Final = machine
        self._applier: Final = Applier(machine, merge)
        self.has_quorum: Final = quorum is not None
        """Whether a majority decides; else every side of a partition goes on."""
        self._store: Final = store
        self._fsync: Final = fsync
        self._network: Final = network
        self._keys: Final = keys
        self._limits: Final = limits
        self._depart_ns: Final = round(departed_after_s * SECOND_NS)
        self._call_log: Final = None if trace is None else CallLog(trace, run or group, name)
        if self._call_log is not None and hasattr(machine, "record_departures"):
            machine.record_departures(self._call_log)
        self._lifecycle: Final = Lifecycle(name, group)
        self._events: Final = ev.EventFeed()
        self._calls: Final = Calls(self._hand_in)
        self._driver: Driver | None = None
        self._protocol: Quorum | Sides | None = None
        self._disk: Disk | None = None
        self._is_pumping = False
        self._has_clock = False
        self._entered: asyncio.Event = asyncio.Event()
        """Set once the group has agreed that this process is there, and its state is up to that point."""
        self._changed: asyncio.Event = asyncio.Event()
        """Set when the members change."""
        self._ended: asyncio.Event = asyncio.Event()
        self._members: frozenset[Site] = frozenset()
        self._snapshot_bytes = SNAPSHOT_BYTES

    # Beginning and end

    def __await__(self) -> Generator[Any, None, "Replicated[M]"]:
        """Without a block: `shop = await antiphon.replicate(...)`. The caller must call `leave`."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> "Replicated[M]":
        if self._driver is not None:
            raise UsageError("This replica was started before.", hint="Call antiphon.replicate again.")
        journal = None
        if self._store is not None:
            journal = await self._in_thread(lambda: self._open_journal())
        try:
            driver = self._driver = Driver(
                site=self.name, group=self.group, network=self._network, keys=self._keys,
                rate_bytes_s=self._limits.rate_bytes_s, carry_out=self._carry_out, stepped=self._stepped,
                failed=self._fail, refused=lambda site, reason: self._events.post(Refused(site, reason)),
                has_quorum=self.has_quorum,
            )  # fmt: skip
        except BaseException:
            if journal is not None:
                journal.close()
            raise
        self._lifecycle.come()
        try:
            await driver.meet()
            self._lifecycle.require_in()
            self._start(driver, journal)
            await asyncio.wait_for(self._entered.wait(), self._limits.join_s)
            self._lifecycle.require_in()
        except TimeoutError:
            sentence = f"'{self.name}' could not start in '{self.group}': {self._why_not()}"
            error = CutOffError(sentence, HINT)
            self._close(error)
            raise error from None
        except BaseException as error:
            self._close(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(linger=kind is None)

    async def leave(self, *, linger: bool = True) -> None:
        """End this process's part; the group keeps the member's name and waits for its return.

        What this member holds is free at once. First wait, at most `linger_s`, for calls under way.
        """
        driver = self._driver
        if self._lifecycle.is_out or driver is None:
            return
        if linger and not self.is_cut_off:
            with contextlib.suppress(TimeoutError, CutOffError):
                await asyncio.wait_for(self._settle(), self._limits.linger_s)
        if not self._lifecycle.is_out:
            self._lifecycle.is_leaving = True
            driver.feed(qp.Leave())
            self._close(LeftError(f"'{self.name}' has left '{self.group}'."))

    async def _settle(self) -> None:
        if self._calls.waiting:
            await self.sync()

    def _open_journal(self) -> Journal:
        assert self._store is not None
        return Journal(self._store, self.group, self.name, fsync=self._fsync)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return work() if self._is_simulated else await asyncio.to_thread(work)

    @property
    def _is_simulated(self) -> bool:
        return self._network.machine is not REAL

    def _start(self, driver: Driver, journal: Journal | None) -> None:
        recovered = None
        if journal is not None:
            self._disk = Disk(
                journal, inline=self._is_simulated,
                stored=lambda position: self._stored(position),
                failed=lambda reason: self._events.post(ev.StoreFailed(reason)),
                recovered=lambda: self._events.post(ev.StoreRecovered()),
            )  # fmt: skip
            recovered = journal.recovered
            if recovered is not None and recovered.snapshot is not None:
                self._applier.restore(recovered.snapshot.data)
        room = driver.receive_buffer_bytes // 2 // PIECE_BYTES
        configuration = QuorumConfiguration(
            stores=journal is not None, piece_bytes=PIECE_BYTES, piece_window=max(2, min(16, room)),
            depart_ns=self._depart_ns, admits_all=not self.has_quorum, expected=self._expected,
        )  # fmt: skip
        random = self._network.machine.random()
        if self.has_quorum:
            self._protocol = Quorum(self.name, self._first_members, configuration, random, recovered)
        else:
            self._protocol = Sides(self.name, configuration, random)
        driver.start(self._protocol)

    @property
    def _side(self) -> Quorum | None:
        """The protocol of the group, or of the side, that this member is in now."""
        return self._protocol.present if isinstance(self._protocol, Sides) else self._protocol

    def _why_not(self) -> str:
        protocol = self._side
        if protocol is not None and protocol.holders:
            names = ", ".join(f"'{name}'" for name in protocol.holders)
            if self.name not in self._first_members:
                return f"the group of {names} has not added it. Add it there: await shop.add('{self.name}')."
            return (
                f"the group of {names} has not taken it back for {self._limits.join_s:g} s. If most of its "
                "members have lost their memory, it cannot go on: restart all of them to begin empty."
            )
        if protocol is not None and protocol.obstacle:
            return f"{protocol.obstacle}."
        others = ", ".join(f"'{name}'" for name in sorted(self.members - {self.name}))
        return f"no majority answered for {self._limits.join_s:g} s; the others are {others or 'none'}."

    def fail(self, error: BaseException) -> None:
        """End the membership for this reason, unless it is over already."""
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._lifecycle.is_out:
            self._lifecycle.error = error
            self._close(error)

    def _close(self, why: BaseException) -> None:
        if self._lifecycle.is_out:
            return
        self._lifecycle.is_out = True
        if self._driver is not None:
            self._driver.stop()
        if self._disk is not None:
            self._disk.close()
        if self._call_log is not None:
            self._call_log.close()
        self._calls.close(lambda: _anew(why))
        self._events.close()
        self._entered.set()
        self._changed.set()
        self._ended.set()

    # Calls

    async def call(self, command: Any, /) -> Any:
        """Apply a command on every replica, once, and return the result that this replica's machine gave.

        Raises what the machine raised; `CutOffError` where no majority is in reach, which says whether the
        command may have been applied.
        """
        return await self._ask(encode_command(command))

    async def sync(self) -> None:
        """Wait until this replica has everything that any call returned before: reads are then up to date."""
        await self._ask(None)

    def _ask(self, data: bytes | None) -> "asyncio.Future[Any]":
        self._lifecycle.require_in()
        if self.is_cut_off:
            raise CutOffError(f"{self._cut_off_sentence()} The command was not applied.", HINT)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.add(data, future)
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)
        return future

    def read(self, function: Callable[[M], Result], /) -> Result:
        """Read this replica: the function gets the machine, and must not change it. Call `sync` first for a
        read that is up to date."""
        return function(self._machine)

    def _pump(self) -> None:
        self._is_pumping = False
        if not self._lifecycle.is_out:
            try:
                self._calls.pump()
            except Exception as error:
                self._fail(error)

    def _hand_in(self, ticket: int, body: bytes) -> None:
        assert self._driver is not None
        self._driver.feed(qp.Call(ticket, body))

    def _cut_off_sentence(self) -> str:
        return f"'{self.name}' does not reach a majority of '{self.group}'."

    # Members

    @property
    def members(self) -> frozenset[Site]:
        """The members that vote, as agreed upon; empty before the start."""
        return frozenset() if self._side is None else frozenset(self._side.config.voters)

    @property
    def leader(self) -> Site | None:
        """The member that gives the order now; None while one is elected."""
        return None if self._side is None else self._side.leader

    @property
    def is_cut_off(self) -> bool:
        """Whether this member does not reach a majority, so that calls raise at once."""
        return self.has_quorum and self._side is not None and self._side.is_cut_off

    async def add(self, name: Site) -> None:
        """Add a member. Its process may be started before or after; returns when it has all state and
        votes."""
        require_name(name)
        if len(self.members) >= MOST_VOTERS:
            raise UsageError(f"A replicated group has at most {MOST_VOTERS} members.")
        await self._change(qp.Wish(name, remove=False))

    async def remove(self, name: Site) -> None:
        """Remove a member. Its process, if there is one, gets `RemovedError`."""
        if self.members == {name}:
            raise UsageError(
                f"'{name}' is the last member of '{self.group}'.", hint="Leave the group instead."
            )
        await self._change(qp.Wish(name, remove=True))

    async def _change(self, wish: qp.Wish) -> None:
        self._lifecycle.require_in()
        if not self.has_quorum:
            raise UsageError(
                "Without a quorum, members come and go by themselves.", hint="Start or end their processes."
            )
        assert self._driver is not None
        while (wish.name in self.members) == wish.remove:
            if self.is_cut_off:
                raise CutOffError(self._cut_off_sentence(), HINT, uncertain=True)
            self._changed.clear()
            self._driver.feed(wish)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), WISH_S)
            if wish.remove and wish.name == self.name and self._lifecycle.is_out:
                return
            self._lifecycle.require_in()

    # Events and figures

    @property
    def poison(self) -> tuple[Poison, ...]:
        """The latest PDUs that this member could not handle, oldest first. Empty unless there is a fault."""
        return () if self._driver is None else self._driver.poison.all()

    def events(self) -> AsyncIterator[ev.ReplicaEvent]:
        """What happens from now on beside the commands; see `antiphon.replicated.events`."""
        return self._events.read()

    @property
    def call_log(self) -> CallLog | None:
        """Where the calls on ready-made objects are recorded, if a trace is kept."""
        return self._call_log

    @property
    def counters(self) -> dict[str, Any]:
        """What this member has done and holds, as plain numbers."""
        return {
            "applied_commands": self._applier.commands,
            "waiting_calls": self._calls.waiting,
            **({} if self._side is None else self._side.figures()),
            **({} if self._driver is None else self._driver.counters.snapshot()),
        }

    # Effects

    def _stored(self, position: int) -> None:
        if self._driver is not None and not self._lifecycle.is_out:
            self._driver.feed(qp.Stored(position))
            self._stepped()

    def _stepped(self) -> None:
        """All effects of some inputs are carried out: hand in more, and look at the log's size."""
        self._calls.pump()
        protocol = self._side
        if protocol is None or self._lifecycle.is_out:
            return
        grown = protocol.new_bytes - protocol.snapshot_bytes
        if grown > self._snapshot_bytes and protocol.commit > protocol.snapshot_index:
            assert self._driver is not None
            self._driver.feed(qp.Snapshotted(self._applier.snapshot()))

    def _carry_out(self, effect: Any) -> None:
        match effect:
            case qp.Apply():
                self._apply(effect)
            case qp.Store() | qp.Compact():
                self._write(effect)
            case qp.Install(snapshot=snapshot):
                self._applier.restore(snapshot.data)
                self._events.post(ev.Transferred(len(snapshot.data)))
                self._look_at_members(snapshot.head.config.voters)
                self._write(effect)
            case qp.Unanswered(ticket=ticket):
                self._calls.result_lost(ticket)
            case qp.Led(leader=leader):
                rank = sorted({*self.members, self.name}).index(self.name)
                self._snapshot_bytes = round(SNAPSHOT_BYTES * (1 + STAGGER * rank))
                self._events.post(ev.LeaderChanged(leader))
            case qp.Severed():
                self._events.post(CutOff(self._cut_off_sentence()))
                self._calls.cut_off(self._cut_off_sentence(), HINT)
                if self._driver is not None:
                    self._driver.feed(qp.Abandon())
            case qp.Rejoined():
                self._events.post(ev.Restored())
            case qp.Founded(anew=anew):
                assert self._side is not None
                self._look_at_members(self._side.config.voters)
                if anew:
                    self._events.post(ev.Began(tuple(sorted(self._side.config.voters))))
            case qp.TakeState(index=index):
                assert self._driver is not None
                self._driver.feed(qp.Taken(index, self._applier.snapshot()))
            case qp.Merge():
                self._merge(effect)
            case qp.Parted():
                self._events.post(ev.Parted())
                self._calls.doubt(self._cut_off_sentence())
            case qp.Members(config=config):
                self._look_at_members(config.voters)
            case fx.Disagreed(other=other, reason=reason):
                self._events.post(Disagreed(other, reason))
            case qp.Expelled():
                self._fail(RemovedError(f"'{self.name}' was removed from '{self.group}'."))

    def _merge(self, effect: qp.Merge) -> None:
        error = self._applier.merge(effect.data)
        if error is None:
            self._events.post(ev.Merged(effect.source, len(effect.data)))
        else:
            self._events.post(ev.MergeFailed(effect.source, f"{type(error).__name__}: {error}"))

    def _apply(self, effect: qp.Apply) -> None:
        entry = effect.entry
        results = self._applier.apply(entry)
        if effect.ticket is not None:
            self._calls.applied(effect.ticket, results)
        elif entry.kind == ENTER:
            if entry.sender == self.name and self._side is not None and entry.life == self._side.life:
                self._entered.set()
        elif entry.kind == DEPART:
            self._events.post(ev.MemberDeparted(entry.sender))
        if not self._has_clock and self._applier.wants_ticks:
            self._has_clock = True
            self._network.machine.loop().call_later(CLOCK_NS / SECOND_NS, self._tick)

    def _tick(self) -> None:
        self._has_clock = self._applier.wants_ticks and not self._lifecycle.is_out
        if self._has_clock and self._driver is not None:
            self._network.machine.loop().call_later(CLOCK_NS / SECOND_NS, self._tick)
            self._driver.feed(qp.ClockTick(self._network.machine.wall_ns()))
            self._stepped()

    def _write(self, effect: qp.Store | qp.Install | qp.Compact) -> None:
        if self._disk is not None:
            self._disk.write(effect)

    def _look_at_members(self, voters: Collection[Site]) -> None:
        now = frozenset(voters)
        before, self._members = self._members or now, now
        for site in sorted(now - before):
            self._events.post(ev.MemberAdded(site))
        for site in sorted(before - now):
            self._events.post(ev.MemberRemoved(site))
        self._changed.set()


def _anew(error: BaseException) -> BaseException:
    """The error once more, for another caller: an exception that is raised twice mixes its tracebacks."""
    return type(error)(error.sentence, error.hint) if isinstance(error, LeftError) else error


def _check(group: Group, machine: object, members: Collection[Site], departed_after_s: float) -> None:
    require_group_name(group)
    if not isinstance(machine, Machine):
        raise UsageError(
            f"{type(machine).__name__} is no machine.",
            hint="A machine has apply(command), snapshot() and restore(data).",
        )
    if isinstance(members, str):
        raise UsageError("members= is the set of all members' names.", hint='Write members={"a", "b", "c"}.')
    if len(members) > MOST_VOTERS:
        raise UsageError(f"A replicated group has at most {MOST_VOTERS} members.")
    if not departed_after_s > 0:
        raise UsageError("A member has departed after some time: departed_after_s must be positive.")


def _check_quorum(
    members: Collection[Site],
    expected: int | None,
    quorum: str | None,
    merge: Merge | None,
    store: Path | None,
) -> None:
    if quorum is None:
        if merge is None:
            raise UsageError(
                "quorum=None lets every side of a partition go on, so it needs merge=.",
                hint="Give a function of two snapshots, mine and theirs, that returns one.",
            )
        if store is not None:
            raise UsageError("quorum=None keeps no store.", hint="Leave out store=, or have a quorum.")
        if expected is not None:
            raise UsageError("quorum=None takes every process that comes.", hint="Leave out expected=.")
        return
    if quorum != "majority":
        raise UsageError(f"There is no quorum {quorum!r}.", hint="Choose 'majority' or None.")
    if merge is not None:
        raise UsageError("merge= is for quorum=None: a majority's state is never merged.")
    if bool(members) == (expected is not None):
        raise UsageError(
            "Give either the names of all members, or how many are expected.",
            hint='Write members={"a", "b", "c"} or expected=3.',
        )
    if expected is not None and not 0 < expected <= MOST_VOTERS:
        raise UsageError(f"A replicated group has 1 to {MOST_VOTERS} members.")
