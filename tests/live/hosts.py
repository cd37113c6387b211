"""Hosts for tests: network namespaces whose links end in a switch of our own, where things can go wrong.

Each host is a network namespace with one Ethernet device, `eth0`, that has an IPv4 and an IPv6 address. The
devices are TAPs: what a host sends comes out of a file descriptor that a thread of the test reads, and what
is written there arrives at the host. That thread is the switch. It floods multicasts, knows every host's
address, and lets each arrival pass a `Weather`, so that loss, delay, jitter, duplication, reordering and
partitions are the very layers of the simulator. It plays the part of `tc netem` and a bridge, works where the
kernel was built without netem, draws from a seed, and cuts a partition both ways at one moment.

A TAP without offload makes the kernel cut large sends (`UDP_SEGMENT`) into datagrams of the device's size
before they come out, so single datagrams are lost, as on a wire. Neighbours are entered by hand: what is
tested is our repair, not the kernel's.

Namespaces are those of processes that end with the test's, however that ends, and TAPs vanish with their
descriptors; so nothing is left over after a crash, and nothing has a name that two tests could both want.
"""

import errno
import fcntl
import heapq
import os
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import cache
from types import TracebackType
from typing import Any, ClassVar, Final

import pytest

from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.sim.network import Arrival
from tests.live.forks import Command
from tests.live.weather import Weather

TUNSETIFF: Final = 0x400454CA
IFF_TAP: Final = 0x0002
IFF_NO_PI: Final = 0x1000
FRAMES_AT_ONCE: Final = 64
"""Frames that the switch takes from one host before it looks at the next."""
MOST_HELD: Final = 100_000
"""Frames that the switch delays at most; more are dropped, as a real one's queue would overflow."""
QUEUE_FRAMES: Final = 10_000
COMMAND_S: Final = 120.0


class Frame(Pdu, frozen=True, gc=False):
    """An Ethernet frame, dressed as what fault layers take."""

    code: ClassVar[int] = 255
    data: bytes


class Switch(threading.Thread):
    """Takes frames from every host's device and writes them to the others', through the weather."""

    def __init__(self, ports: Sequence[int], weather: Weather) -> None:
        super().__init__(name="switch", daemon=True)
        self.passed = 0
        self.dropped = 0
        self._ports = ports
        self._weather = weather
        self._hosts = {hardware_address(index): index for index in range(len(ports))}
        self._held: list[tuple[int, int, int, bytes]] = []
        self._serial = 0
        self._over = threading.Event()
        self._rested = threading.Event()

    def run(self) -> None:
        ready = select.poll()
        source_of = {port: index for index, port in enumerate(self._ports)}
        for port in self._ports:
            ready.register(port, select.POLLIN)
        while not self._over.is_set():
            found = ready.poll(self._pause_ms())
            for port, _ in found:
                self._take(source_of[port], port)
            self._release()
            if not found:
                self._rested.set()

    def rest(self) -> None:
        """Wait until whatever was sent by now has been taken."""
        for _ in range(2):  # the first look that found nothing may have been before
            self._rested.clear()
            self._rested.wait()

    def held(self) -> int:
        """How many frames are under way to hosts, held up by the weather."""
        return len(self._held)

    def end(self) -> None:
        self._over.set()
        self.join()

    def _pause_ms(self) -> float:
        """How long nothing needs to be written; never long enough to delay the end."""
        if not self._held:
            return 20.0
        return min(20.0, max(0.0, (self._held[0][0] - time.monotonic_ns()) / MILLISECOND_NS))

    def _take(self, source: int, port: int) -> None:
        for _ in range(FRAMES_AT_ONCE):
            try:
                data = os.read(port, 1 << 16)
            except BlockingIOError:
                return
            everyone = bool(data[0] & 1)
            target = self._hosts.get(data[:6])
            targets = range(len(self._ports)) if everyone else () if target is None else (target,)
            frame, now = Frame(data), time.monotonic_ns()
            for index in targets:
                if index != source:
                    self._pass(now, Arrival(now, index, source, frame))

    def _pass(self, now: int, arrival: Arrival) -> None:
        outcomes = self._weather.apply(arrival)
        if not outcomes:
            self.dropped += 1
        for outcome in outcomes:
            assert isinstance(outcome.pdu, Frame)
            if outcome.time_ns <= now:
                self._write(outcome.target, outcome.pdu.data)
            elif len(self._held) < MOST_HELD:
                self._hold(outcome.time_ns, outcome.target, outcome.pdu.data)
            else:
                self.dropped += 1

    def _hold(self, time_ns: int, target: int, data: bytes) -> None:
        # The serial number breaks ties, so that what came first leaves first.
        self._serial += 1
        heapq.heappush(self._held, (time_ns, self._serial, target, data))

    def _release(self) -> None:
        now = time.monotonic_ns()
        while self._held and self._held[0][0] <= now:
            _, _, target, data = heapq.heappop(self._held)
            self._write(target, data)

    def _write(self, target: int, data: bytes) -> None:
        try:
            os.write(self._ports[target], data)
            self.passed += 1
        except OSError as error:
            # A device that is down or full loses frames, as a real one does.
            if error.errno not in (errno.EIO, errno.ENOBUFS, errno.EAGAIN, errno.EINVAL):
                raise
            self.dropped += 1


class Hosts:
    """A number of hosts on one switch; a context manager, outside of which nothing of them is left."""

    def __init__(self, count: int, *, seed: int = 1, mtu: int = 1500) -> None:
        self.count: Final = count
        self.weather: Final = Weather(count, seed)
        self._mtu = mtu
        self._stack = ExitStack()
        self._holders: list[subprocess.Popen[bytes]] = []
        self.switch: Switch

    def __enter__(self) -> "Hosts":
        try:
            self._holders = [hold(self._stack) for _ in range(self.count)]
            ports = [self._make_port(index) for index in range(self.count)]
            self.switch = Switch(ports, self.weather)
            self.switch.start()
            self._stack.callback(self.switch.end)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def address6(self, host: int) -> str:
        return f"fd77::{host + 1:x}"

    def start(self, host: int, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Run a command on a host; it is killed when the test's process ends, or with the hosts."""
        ending = ["setpriv", "--pdeathsig", "KILL", "--"]
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [*ending, *self._inside(host), *command], **options
        )
        self._stack.callback(end, process)
        return process

    def network(self, host: int) -> str:
        """The file that stands for the network of a host."""
        return f"/proc/{self._holders[host].pid}/ns/net"

    def run(self, host: int, *command: str) -> str:
        """Run a short command on a host and answer what it printed."""
        line = [*self._inside(host), *command]
        done = subprocess.run(line, capture_output=True, text=True, timeout=COMMAND_S)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def _make_port(self, index: int) -> int:
        """A TAP that the host has as eth0; answers the descriptor at our end of it."""
        port = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._stack.callback(os.close, port)
        # The kernel puts a free number for %d: no other device can have the name.
        request = struct.pack("16sH22x", b"antiphon%d", IFF_TAP | IFF_NO_PI)
        name = fcntl.ioctl(port, TUNSETIFF, request)[:16].rstrip(b"\0").decode()
        move = ["ip", "link", "set", name, "netns", str(self._holders[index].pid), "name", "eth0"]
        subprocess.run(move, check=True, timeout=COMMAND_S)
        self._configure(index)
        return port

    def _configure(self, index: int) -> None:
        hardware = readable(hardware_address(index))
        lines = [
            "link set lo up",
            f"link set eth0 address {hardware} mtu {self._mtu} txqueuelen {QUEUE_FRAMES} addrgenmode none",
            "link set eth0 up",
            f"address add {self.address(index)}/24 dev eth0",
            f"address add {self.address6(index)}/64 dev eth0 nodad",
            f"address add fe80::{index + 1:x}/64 dev eth0 nodad",
            "route add 224.0.0.0/4 dev eth0",
        ]
        for other in range(self.count):
            if other != index:
                neighbour = f"lladdr {readable(hardware_address(other))} dev eth0 nud permanent"
                places = (self.address(other), self.address6(other), f"fe80::{other + 1:x}")
                lines += [f"neighbour add {place} {neighbour}" for place in places]
        line, told = [*self._inside(index), "ip", "-batch", "-"], "\n".join(lines)
        subprocess.run(line, input=told, text=True, check=True, timeout=COMMAND_S)

    def _inside(self, host: int) -> list[str]:
        """What to put before a command to run it on a host."""
        return ["nsenter", f"--net={self.network(host)}", "--"]


def hold(stack: ExitStack, *kinds: str, preparation: str = "true") -> subprocess.Popen[bytes]:
    """A process that keeps namespaces alive until its input ends, which the end of this one sees to."""
    command = ["unshare", "--net", *kinds, "sh", "-c", f"{preparation} && echo ready && exec cat"]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stack.callback(end, holder)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n", "no namespace was made"
    return holder


def end(process: subprocess.Popen[bytes] | Command) -> None:
    """Kill a process that may have ended already, and close our ends of its pipes."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()


def hardware_address(index: int) -> bytes:
    return b"\x02\x00\x00\x00" + struct.pack("!H", index + 1)


def readable(hardware: bytes) -> str:
    return ":".join(f"{byte:02x}" for byte in hardware)


@cache
def reason_why_not() -> str | None:
    """Why hosts cannot be made here, as a sentence; None when they can."""
    if os.geteuid() != 0:
        return "Hosts in network namespaces take root."
    missing = [name for name in ("ip", "unshare", "nsenter", "setpriv") if shutil.which(name) is None]
    if missing:
        return f"Hosts in network namespaces take the command {missing[0]} (iproute2, util-linux)."
    try:
        with Hosts(1):
            return None
    except (OSError, subprocess.SubprocessError, AssertionError) as error:
        return f"Hosts in network namespaces cannot be made here: {error}."


def skip_unless_allowed() -> None:
    """Skip the test, with a plain sentence, where hosts cannot be made."""
    reason = reason_why_not()
    if reason is not None:
        pytest.skip(reason)
