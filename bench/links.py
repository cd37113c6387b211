"""Hosts on a switch whose ports have a rate and a queue: network namespaces, a bridge, and `tbf`.

Each host is a network namespace with one device, `eth0`, the end of a veth pair. The other end is a port of a
bridge in a namespace of its own. The port's queue holds what the bridge sends to that host, so it carries
what all others send; what does not fit is dropped, as at a real switch. `tbf` cuts what was sent by segments
(`UDP_SEGMENT`) into packets first. Nothing touches the machine's own interfaces. Namespaces are held by
processes that end with this one.
"""

import os
import shutil
import subprocess
from contextlib import ExitStack
from types import TracebackType
from typing import Final, NamedTuple

COMMAND_S: Final = 30.0
NETWORK: Final = "10.99.0"


class Link(NamedTuple):
    """What each port carries, and what it can hold."""

    name: str
    rate_bits_s: int
    queue_bytes: int
    burst_bytes: int

    @property
    def options(self) -> list[str]:
        return ["rate", f"{self.rate_bits_s}", "burst", f"{self.burst_bytes}", "limit", f"{self.queue_bytes}"]


SLOW: Final = Link("20 Mbit/s, 12.5 KB", 20_000_000, 12_500, 16_384)
MIDDLE: Final = Link("100 Mbit/s, 256 KB", 100_000_000, 256 << 10, 32_768)
QUICK: Final = Link("1 Gbit/s, 512 KB", 1_000_000_000, 512 << 10, 262_144)


def reason_why_not() -> str | None:
    """Why links cannot be made here, as a sentence; None when they can."""
    if os.geteuid() != 0:
        return "Links with a rate take root."
    missing = [name for name in ("ip", "tc", "unshare", "nsenter") if shutil.which(name) is None]
    return f"Links with a rate take the command {missing[0]} (iproute2, util-linux)." if missing else None


class Hosts:
    """Hosts on one switch; a context manager, outside of which nothing of them is left."""

    def __init__(self, count: int, link: Link | None, *, mtu: int = 1500) -> None:
        self.count: Final = count
        self._link = link
        self._mtu = mtu
        self._stack = ExitStack()
        self._holders: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Hosts":
        try:
            hub = self._hold()
            self._holders = [self._hold() for _ in range(self.count)]
            self._batch(hub, ["link set lo up", "link add br0 type bridge stp_state 0 mcast_snooping 0",
                              f"link set br0 mtu {self._mtu} up"])  # fmt: skip
            for index, holder in enumerate(self._holders):
                self._connect(hub, index, holder)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def inside(self, host: int) -> list[str]:
        """What to put before a command to run it on a host."""
        return ["nsenter", f"--net=/proc/{self._holders[host].pid}/ns/net", "--"]

    def address(self, host: int) -> str:
        return f"{NETWORK}.{host + 1}"

    def dropped(self) -> int:
        """Packets that the ports have dropped so far."""
        hub = self._hub
        told = subprocess.run(
            ["nsenter", f"--net=/proc/{hub.pid}/ns/net", "--", "tc", "-s", "qdisc"],
            capture_output=True, text=True, check=True, timeout=COMMAND_S,
        ).stdout  # fmt: skip
        return sum(int(part.split(",")[0]) for part in told.split("(dropped ")[1:])

    def _hold(self) -> subprocess.Popen[bytes]:
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo ready && exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._stack.callback(_end, holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n", "no namespace was made"
        return holder

    def _connect(self, hub: subprocess.Popen[bytes], index: int, holder: subprocess.Popen[bytes]) -> None:
        port = f"v{index}"
        self._batch(hub, [
            f"link add {port} mtu {self._mtu} type veth peer name eth0 mtu {self._mtu} netns {holder.pid}",
            f"link set {port} master br0 up",
        ])  # fmt: skip
        self._batch(holder, [
            "link set lo up", f"address add {self.address(index)}/24 dev eth0", "link set eth0 up",
            "route add 224.0.0.0/4 dev eth0",
        ])  # fmt: skip
        self._hub = hub
        if self._link is not None:
            shape = ["tc", "qdisc", "add", "dev", port, "root", "tbf", *self._link.options]
            subprocess.run(
                ["nsenter", f"--net=/proc/{hub.pid}/ns/net", "--", *shape], check=True, timeout=COMMAND_S
            )

    @staticmethod
    def _batch(holder: subprocess.Popen[bytes], lines: list[str]) -> None:
        line = ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--", "ip", "-batch", "-"]
        subprocess.run(line, input="\n".join(lines), text=True, check=True, timeout=COMMAND_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
