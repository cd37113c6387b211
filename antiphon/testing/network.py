"""A simulated network: datagrams between members of one process, delayed, lost and cut off as a test says.

It stands in for the kernel: the live transport above it, with its handshake, its keys and its repair, is the
real one. Datagrams from one socket to another keep their order. A machine is what one member runs on; it can
be paused, as by SIGSTOP, and killed.
"""

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from random import Random
from typing import Any, Final, cast

from antiphon.core.ids import Group, Site
from antiphon.core.seeds import Seeds
from antiphon.core.time import SECOND_NS, Nanoseconds, from_seconds, to_seconds
from antiphon.live.machine import BOOT_BITS, Loop, Machine
from antiphon.live.networks import BUFFER_BYTES, LARGEST_DATAGRAM_BYTES, Address
from antiphon.live.sockets import SOL_UDP, Opened, derived_endpoint
from antiphon.testing.loop import SimulatedLoop

EPOCH_NS: Final = 946_684_800 * SECOND_NS
"""The time of day at which every simulation begins: the year 2000."""
FIRST_FILE: Final = 1 << 30
"""Simulated sockets have file numbers that no kernel gives."""


class SimulatedNetwork:
    """What all machines of a cluster are connected to."""

    def __init__(self, loop: SimulatedLoop, seed: int, delay_s: float, jitter_s: float) -> None:
        self.loss = 0.0
        """The share of datagrams that are lost."""
        self.loop: Final = loop
        self.seeds: Final = Seeds(seed)
        self._random = self.seeds.stream("network")
        self._delay_ns = from_seconds(delay_s)
        self._jitter_ns = from_seconds(jitter_s)
        self._cells: dict[Site, int] = {}
        self._bound: dict[Address, list[SimulatedSocket]] = {}
        self._latest: dict[tuple[int, int], Nanoseconds] = {}
        self._files = count(FIRST_FILE)
        self._hosts = count(1)

    def now_ns(self) -> Nanoseconds:
        return self.loop.selector.now_ns

    def split(self, cells: Iterable[Iterable[Site]]) -> None:
        """Separate the cells from each other; machines in none of them form their own cell."""
        self._cells = {site: place for place, cell in enumerate(cells, 1) for site in cell}

    def host(self) -> str:
        number = next(self._hosts)
        return f"10.0.{number >> 8}.{number & 255}"

    def bind(self, machine: "SimulatedMachine", address: Address) -> "SimulatedSocket":
        number = next(self._files)
        bound = SimulatedSocket(self, machine, address, number)
        self._bound.setdefault(address, []).append(bound)
        self.loop.selector.sockets[number] = bound
        return bound

    def release(self, bound: "SimulatedSocket") -> None:
        if self.loop.selector.sockets.pop(bound.number, None) is not None:
            self._bound[bound.address].remove(bound)
            self._latest = {ends: at for ends, at in self._latest.items() if bound.number not in ends}

    def send(self, source: "SimulatedSocket", data: bytes, address: Address) -> None:
        """Send a datagram to every listener there, except on its sender's machine."""
        for target in self._bound.get(address, ()):
            if target.machine is source.machine:
                continue
            if self._cells.get(source.machine.name, 0) != self._cells.get(target.machine.name, 0):
                continue
            if self._random.random() >= self.loss:
                self._carry(source, target, data)

    def _carry(self, source: "SimulatedSocket", target: "SimulatedSocket", data: bytes) -> None:
        ends = (source.number, target.number)
        arrival = self.now_ns() + self._delay_ns + round(self._random.random() * self._jitter_ns)
        arrival = self._latest[ends] = max(arrival, self._latest.get(ends, 0) + 1)
        self.loop.call_at(to_seconds(arrival), target.arrive, data, source.address)


class SimulatedMachine(Machine):
    """What one member runs on. It is also the member's event loop, so that it can be stopped."""

    def __init__(self, name: Site, network: SimulatedNetwork, life: int) -> None:
        self.name: Final = name
        self.is_paused = False
        self.is_dead = False
        self._network = network
        self._host = network.host()
        self._ports = count(1)
        self._random = network.seeds.stream(f"machine/{name}/{life}")
        self._sockets: list[SimulatedSocket] = []
        self._calls: list[tuple[asyncio.Handle, Callable[..., Any], tuple[Any, ...]]] = []
        """What would have happened while this machine was paused, and happens when it is resumed."""
        self._unsent: list[tuple[SimulatedSocket, bytes, Address]] = []

    def now_ns(self) -> Nanoseconds:
        return self._network.now_ns()

    def wall_ns(self) -> Nanoseconds:
        return EPOCH_NS + self._network.now_ns()

    def loop(self) -> Loop:
        return self

    def random(self) -> Random:
        return Random(self._random.getrandbits(64))

    def boot(self) -> int:
        return self._random.getrandbits(BOOT_BITS)

    def open(self, group: Group) -> Opened:
        where = derived_endpoint(group)
        own = self._network.bind(self, (self._host, next(self._ports)))
        hearing = self._network.bind(self, (where.host, where.port))
        self._sockets += (own, hearing)
        sending = cast(socket.socket, own)
        receiving = (sending, cast(socket.socket, hearing))
        return Opened(sending, receiving, (hearing.address,), LARGEST_DATAGRAM_BYTES, 1)

    # Controlled by the test

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Resume: first the timers that are due, then the datagrams that have queued up."""
        self.is_paused = False
        unsent, self._unsent = self._unsent, []
        calls, self._calls = self._calls, []
        for datagram in unsent:
            self._network.send(*datagram)
        for handle, callback, arguments in calls:
            if not handle.cancelled():
                callback(*arguments)

    def kill(self) -> None:
        """Nothing leaves the machine or happens there from now on."""
        self.is_dead = True
        self.is_paused = False
        self._calls.clear()
        self._unsent.clear()
        for each in self._sockets:
            self._network.release(each)

    def send(self, source: "SimulatedSocket", data: bytes, address: Address) -> None:
        if self.is_paused:
            self._unsent.append((source, data, address))
        elif not self.is_dead:
            self._network.send(source, data, address)

    # The event loop of its member

    def add_reader(self, fd: int, callback: Callable[..., Any], *args: Any) -> None:
        self._network.loop.add_reader(fd, callback, *args)

    def remove_reader(self, fd: int) -> bool:
        return self._network.loop.remove_reader(fd)

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
        handle: asyncio.Handle = self._network.loop.call_soon(lambda: self._call(handle, callback, args))
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        loop = self._network.loop
        handle: asyncio.TimerHandle = loop.call_later(delay, lambda: self._call(handle, callback, args))
        return handle

    def _call(self, handle: asyncio.Handle, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self.is_paused:
            self._calls.append((handle, callback, args))
        elif not self.is_dead:
            callback(*args)


class SimulatedSocket:
    """As much of a datagram socket as `antiphon.live.sockets` uses; options are taken and do nothing."""

    family: Final = socket.AF_INET

    def __init__(
        self, network: SimulatedNetwork, machine: SimulatedMachine, address: Address, number: int
    ) -> None:
        self.machine: Final = machine
        self.address: Final = address
        self.number: Final = number
        self._network = network
        self._waiting: deque[tuple[bytes, Address]] = deque()
        self._bytes = 0

    def is_readable(self) -> bool:
        return bool(self._waiting) and not self.machine.is_paused

    def arrive(self, data: bytes, source: Address) -> None:
        """A datagram arrives; it is lost if the buffer is full."""
        if self._bytes + len(data) <= BUFFER_BYTES:
            self._bytes += len(data)
            self._waiting.append((data, source))

    def fileno(self) -> int:
        return self.number

    def getsockname(self) -> Address:
        return self.address

    def setblocking(self, blocking: bool) -> None: ...

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:  # noqa: ARG002
        if level == SOL_UDP:
            raise OSError(errno.ENOPROTOOPT, "This network neither cuts nor joins datagrams.")

    def getsockopt(self, level: int, option: int) -> int:
        self.setsockopt(level, option, 0)
        return BUFFER_BYTES

    def sendto(self, data: Any, address: Address) -> int:
        self.machine.send(self, bytes(data), address)
        return len(data)

    def sendmsg(self, parts: Sequence[Any], _ancillary: Any, _flags: int, address: Address) -> int:
        return self.sendto(b"".join(parts), address)

    def recvfrom(self, _size: int) -> tuple[bytes, Address]:
        if not self._waiting:
            raise BlockingIOError
        data, source = self._waiting.popleft()
        self._bytes -= len(data)
        return data, source

    def recvfrom_into(self, buffer: memoryview) -> tuple[int, Address]:
        data, source = self.recvfrom(len(buffer))
        buffer[: len(data)] = data
        return len(data), source

    def recvmsg(self, size: int, _ancillary_bytes: int) -> tuple[bytes, tuple[()], int, Address]:
        data, source = self.recvfrom(size)
        return data, (), 0, source

    def close(self) -> None:
        self._network.release(self)
