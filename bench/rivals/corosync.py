"""Corosync's closed process groups, as installed or tuned as well as we know how: daemons in namespaces.

Each node has a network, a mount and an IPC namespace of its own, on a bridge in one more; nothing touches
the machine's own interfaces. The namespaces are those of processes that end with this one, whatever ends it,
and vanish with them. Tuned: unicast UDP, datagrams of 65,000 bytes (loopback, where ours are measured, has
them too), Totem's windows raised, no real-time scheduling (seven daemons on two processors get in each
other's way), and clients (`cpg_load.c`) that keep at most 256 own messages undelivered. By default: the
transport knet, interfaces with an MTU of 1500, windows as they come; the rest the same.

Needs root, the Debian packages corosync, libcpg-dev, gcc and iproute2 (see `scripts/debian-packages`), and a
kernel with namespaces, veth and bridges. Where that can't be had, `UnavailableError` says why.

    python bench/rivals/corosync.py --members 7 --size 1000 --seconds 3
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

PACKAGES: Final = ("corosync", "libcpg-dev", "gcc", "iproute2")
TUNED_MTU: Final = 65_535
TUNED: Final = "transport: udpu\n  netmtu: 65000\n  window_size: 300\n  max_messages: 50"
DEFAULT_MTU: Final = 1500
DEFAULT: Final = "transport: knet"
MULTICAST: Final = (
    "transport: udp\n  interface {\n    ringnumber: 0\n    bindnetaddr: 10.99.0.0\n"
    "    mcastaddr: 239.99.0.1\n    mcastport: 5405\n  }"
)
"""As installed, but for the transport: over links with a rate it is the quickest."""
FORMING_S: Final = 60.0
"""How long the daemons may take to find one another."""
LEAD_S: Final = 1.5
"""How long before their common beginning the clients are started."""
COMMAND_S: Final = 60.0


class UnavailableError(Exception):
    """Corosync cannot be measured here; the sentence says why."""


@dataclass(frozen=True)
class Outcome:
    """Messages a second delivered at each member, own included: the least of them; latencies in order."""

    per_s: float
    gaps: int
    one_order: bool
    latencies_us: tuple[int, ...]


def install() -> None:
    """Have the packages installed, or say why not."""
    script = Path(__file__).resolve().parents[2] / "scripts" / "debian-packages"
    if os.geteuid() != 0:
        raise UnavailableError("Corosync is skipped: its namespaces take root.")
    if subprocess.run([str(script), *PACKAGES], check=False).returncode:
        raise UnavailableError("Corosync is skipped: its packages are not installed and cannot be.")


def configuration(members: int, totem: str) -> str:
    nodes = "\n".join(
        f"  node {{\n    name: n{index}\n    nodeid: {index + 1}\n    ring0_addr: {address(index)}\n  }}"
        for index in range(members)
    )
    return f"""totem {{
  version: 2
  cluster_name: rival
  crypto_cipher: none
  crypto_hash: none
  {totem}
}}
nodelist {{
{nodes}
}}
system {{
  sched_rr: no
}}
logging {{
  to_stderr: no
  to_syslog: no
  to_logfile: yes
  logfile: /var/log/corosync/corosync.log
}}
"""


def address(index: int) -> str:
    return f"10.99.0.{index + 1}"


class Cluster:
    """Daemons that have found one another; a context manager, outside of which nothing of it is left."""

    def __init__(self, members: int, *, tuned: bool = True, shape: Sequence[str] = ()) -> None:
        """With a `shape`, options of `tc`'s tbf, each port has a rate and a queue; then by multicast."""
        self._members = members
        self._shape = shape
        tuned = tuned and not shape
        self._totem = MULTICAST if shape else TUNED if tuned else DEFAULT
        self._mtu = TUNED_MTU if tuned else DEFAULT_MTU
        self._stack = ExitStack()
        self._holders: list[subprocess.Popen[bytes]] = []
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._folder = Path()

    def __enter__(self) -> "Cluster":
        try:
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="rival-")))
            self._client = build_client(self._folder)
            hub = self._hold("--net")
            bridge = "ip link add br0 type bridge stp_state 0 mcast_snooping 0"
            run(hub, f"{bridge} && ip link set br0 mtu {self._mtu} up")
            for index in range(self._members):
                self._make_node(hub, index)
            self._daemons = [self._start(holder, "corosync", "-f") for holder in self._holders]
            self._wait_until_formed()
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

    def measure(self, *, size: int, seconds: float, rate: float = 0.0, warm_up_s: float = 1.0) -> Outcome:
        """All members send at once; `rate` is of the whole group, 0 for as much as goes."""
        begin = time.clock_gettime(time.CLOCK_MONOTONIC) + LEAD_S
        clients = [
            self._start(
                holder, str(self._client), str(index), str(self._members), str(size),
                str(rate / self._members), f"{begin:.6f}", str(warm_up_s), str(seconds),
                stdout=subprocess.PIPE,
            )
            for index, holder in enumerate(self._holders)
        ]  # fmt: skip
        reports = []
        for client in clients:
            said, _ = client.communicate(timeout=LEAD_S + warm_up_s + seconds + COMMAND_S)
            if client.returncode:
                raise UnavailableError(f"Corosync is skipped: a client ended with code {client.returncode}.")
            reports.append(json.loads(said))
        return self._outcome(reports)

    def idle_share(self, seconds: float) -> float:
        """The share of a processor that the busiest daemon takes while nothing is sent."""
        before = [processor_s(daemon.pid) for daemon in self._daemons]
        time.sleep(seconds)
        after = [processor_s(daemon.pid) for daemon in self._daemons]
        return max(now - then for now, then in zip(after, before, strict=True)) / seconds

    def _outcome(self, reports: Sequence[dict[str, Any]]) -> Outcome:
        if any(report["members"] != self._members for report in reports):
            raise UnavailableError("Corosync is skipped: its clients did not all meet.")
        latencies = sorted(latency for report in reports for latency in report["latencies_us"])
        return Outcome(
            per_s=min(report["per_s"] for report in reports),
            gaps=sum(report["gaps"] for report in reports),
            one_order=len({report["order"] for report in reports if report["hashed"]}) <= 1,
            latencies_us=tuple(latencies),
        )

    # Namespaces and processes

    def _hold(self, *kinds: str, preparation: str = "true") -> subprocess.Popen[bytes]:
        """A process that keeps namespaces alive until its input ends, which the end of this one sees to."""
        script = f"ip link set lo up && {preparation} && echo ready && exec cat"
        command = ["unshare", *kinds, "sh", "-c", script]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._stack.callback(end, holder)
        assert holder.stdout is not None
        if holder.stdout.readline() != b"ready\n":
            raise UnavailableError("Corosync is skipped: no namespaces can be made here.")
        return holder

    def _make_node(self, hub: subprocess.Popen[bytes], index: int) -> None:
        folder = self._folder / f"node{index}"
        for name in ("etc/uidgid.d", "lib", "log"):
            (folder / name).mkdir(parents=True)
        (folder / "etc" / "corosync.conf").write_text(configuration(self._members, self._totem))
        mounts = (
            "mount -t tmpfs none /dev/shm && mount -t tmpfs none /run"
            f" && mount --bind {folder}/etc /etc/corosync && mount --bind {folder}/lib /var/lib/corosync"
            f" && mount --bind {folder}/log /var/log/corosync"
        )
        holder = self._hold("--net", "--mount", "--ipc", preparation=mounts)
        self._holders.append(holder)
        link = f"v{index}"
        run(
            hub,
            f"ip link add {link} mtu {self._mtu} type veth peer name eth0 mtu {self._mtu} netns {holder.pid}"
            f" && ip link set {link} master br0 up",
        )
        run(
            holder,
            f"ip address add {address(index)}/24 dev eth0 && ip link set eth0 up"
            " && ip route add 224.0.0.0/4 dev eth0",
        )
        if self._shape:
            run(hub, f"tc qdisc add dev {link} root tbf {' '.join(self._shape)}")

    def _start(
        self, holder: subprocess.Popen[bytes], *command: str, stdout: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*inside(holder), "setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(end, process)
        return process

    def _wait_until_formed(self) -> None:
        deadline = time.monotonic() + FORMING_S
        while not all(self._joined(holder) == self._members for holder in self._holders):
            if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in self._daemons):
                raise UnavailableError("Corosync is skipped: its daemons did not form a cluster.")
            time.sleep(0.2)

    def _joined(self, holder: subprocess.Popen[bytes]) -> int:
        command = [*inside(holder), "corosync-cmapctl", "runtime.members"]
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_S)
        return sum(line.endswith("= joined") for line in told.stdout.splitlines())


def processor_s(pid: int) -> float:
    """Processor time that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def inside(holder: subprocess.Popen[bytes]) -> list[str]:
    """What to put before a command to run it in a holder's namespaces."""
    return ["nsenter", "--target", str(holder.pid), "--net", "--mount", "--ipc", "--"]


def run(holder: subprocess.Popen[bytes], script: str) -> None:
    command = [*inside(holder), "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_S)
    if done.returncode:
        raise UnavailableError(f"Corosync is skipped: its network cannot be made ({done.stderr.strip()}).")


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def build_client(folder: Path) -> Path:
    source, client = Path(__file__).with_name("cpg_load.c"), folder / "cpg_load"
    command = ["gcc", "-O2", "-Wall", "-o", str(client), str(source), "-lcpg"]
    if subprocess.run(command, check=False, timeout=COMMAND_S).returncode:
        raise UnavailableError("Corosync is skipped: its client cannot be built.")
    return client


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--members", type=int, default=7)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second of the whole group")
    parser.add_argument("--default", action="store_true", help="as installed, not tuned")
    options = parser.parse_args()
    install()
    with Cluster(options.members, tuned=not options.default) as cluster:
        outcome = cluster.measure(size=options.size, seconds=options.seconds, rate=options.rate)
    print(json.dumps(asdict(outcome)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
