"""Did my Corosync group agree? A real daemon, a member that is killed, and the verdict on the logs.

The members of a closed process group (cpg) send in agreed order, and log what they send and deliver. One is
killed, and starts again later: in between it is absent, and what it misses then is no loss. The logs are
imported and judged: nothing lost, made up or delivered twice, and one order everywhere.

Run it with: python examples/audit_corosync.py [FOLDER]
It needs Debian's packages corosync and iproute2, and root: the daemon runs in namespaces of its own.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from antiphon.check.checkers import check_trace
from antiphon.trace.adapters.importing import Plan, import_logs
from antiphon.trace.adapters.mapping import Columns, Mapping
from antiphon.trace.files import read_trace

MEMBERS: Final = ("a", "b", "c")
MESSAGES: Final = {"a": 30, "b": 30, "c": 10}
PAUSE: Final = 20
"""The others wait with this message until the member that was killed is back."""
KILLED_AT: Final = 5
"""The third member dies when it has delivered this message of its own."""
START_S: Final = 60.0
OK, TRY_AGAIN = 1, 6
AGREED = 2
DISPATCH_ALL = 2
LOGS = Mapping(
    "csv",
    Columns(site="member", kind="event", sender="sender", number="number"),
    promises=("integrity", "duplicate", "atomicity", "fifo", "total"),
)
CONFIGURATION = """totem {
  version: 2
  cluster_name: audit
  crypto_cipher: none
  crypto_hash: none
  transport: udpu
}
nodelist {
  node {
    name: here
    nodeid: 1
    ring0_addr: 127.0.0.1
  }
}
system {
  sched_rr: no
}
logging {
  to_stderr: yes
  to_syslog: no
}
"""


class Name(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint32), ("value", ctypes.c_char * 128))


class Buffer(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


DELIVERED = ctypes.CFUNCTYPE(
    None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t
)
CHANGED = ctypes.CFUNCTYPE(
    None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
    ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
)  # fmt: skip


class Callbacks(ctypes.Structure):
    _fields_ = (("delivered", DELIVERED), ("changed", CHANGED))


class Member:
    """A member of the group: sends its messages in turn, each once the one before is delivered."""

    def __init__(self, folder: Path, name: str, dies: bool) -> None:
        self._name, self._dies = name, dies
        path = folder / f"{name}.csv"
        self._is_back = path.exists()
        self._log = path.open("a")
        if self._is_back:
            self._note("absent")
        else:
            self._log.write("member,event,sender,number\n")
        self._next = KILLED_AT + 1 if self._is_back else 0
        self._seen: dict[str, int] = {}
        self._sizes: list[int] = []
        self._callbacks = Callbacks(DELIVERED(self._delivered), CHANGED(self._changed))
        self._cpg: Any = ctypes.CDLL("libcpg.so.4")
        self._handle = ctypes.c_uint64()

    def run(self) -> None:
        group = Name(5, b"audit")
        self._require(self._cpg.cpg_initialize(ctypes.byref(self._handle), ctypes.byref(self._callbacks)))
        self._again(lambda: self._cpg.cpg_join(self._handle, ctypes.byref(group)))
        while len(self._sizes) == 0 or (max(self._sizes) < len(MEMBERS) and not self._is_back):
            self._dispatch()
        if self._is_back:
            self._note("present")
        while not all(self._seen.get(name, -1) == MESSAGES[name] - 1 for name in MEMBERS):
            if self._may_send():
                self._send()
            self._dispatch()

    def _may_send(self) -> bool:
        if self._next == MESSAGES[self._name] or self._seen.get(self._name, self._next - 1) < self._next - 1:
            return False
        all_of_them = len(MEMBERS)
        return self._next != PAUSE or self._sizes[-3:] == [all_of_them, all_of_them - 1, all_of_them]

    def _send(self) -> None:
        body = f"{self._name} {self._next}".encode()
        buffer = Buffer(body, len(body))
        self._note("send", self._name, self._next)
        self._again(
            lambda: self._cpg.cpg_mcast_joined(self._handle, ctypes.c_int(AGREED), ctypes.byref(buffer), 1)
        )
        self._next += 1

    def _dispatch(self) -> None:
        self._require(self._cpg.cpg_dispatch(self._handle, DISPATCH_ALL))
        time.sleep(0.001)

    def _again(self, call: Any) -> None:
        """Repeat a call while the daemon is busy."""
        while (answer := call()) == TRY_AGAIN:
            self._dispatch()
        self._require(answer)

    @staticmethod
    def _require(answer: int) -> None:
        if answer not in (OK, TRY_AGAIN):
            raise ConnectionError(f"Corosync refuses with error {answer}.")

    def _delivered(self, _h: int, _group: Any, _node: int, _pid: int, body: int, size: int) -> None:
        sender, number = ctypes.string_at(body, size).decode().split()
        self._seen[sender] = int(number)
        self._note("deliver", sender, number)
        if self._dies and (sender, int(number)) == (self._name, KILLED_AT):
            os.kill(os.getpid(), signal.SIGKILL)

    def _changed(self, _h: int, _group: Any, _members: Any, count: int, *_others: Any) -> None:
        self._sizes.append(count)

    def _note(self, event: str, sender: str = "", number: object = "") -> None:
        """One line, on disk before anything else happens."""
        self._log.write(f"{self._name},{event},{sender},{number}\n")
        self._log.flush()


@contextmanager
def daemon(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A daemon in namespaces of its own, which end with it."""
    for name in ("etc/uidgid.d", "lib"):
        (folder / name).mkdir(parents=True)
    (folder / "etc" / "corosync.conf").write_text(CONFIGURATION)
    script = (
        "ip link set lo up && mount -t tmpfs none /dev/shm && mount -t tmpfs none /run"
        f" && mount --bind '{folder}/etc' /etc/corosync && mount --bind '{folder}/lib' /var/lib/corosync"
        " && exec corosync -f"
    )
    with (folder / "corosync.log").open("wb") as log:
        command = ["unshare", "--net", "--mount", "--ipc", "sh", "-c", script]
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                wait_for(process)
                yield process
            finally:
                process.kill()


def inside(process: "subprocess.Popen[bytes]") -> list[str]:
    """What to put before a command to run it beside the daemon."""
    return ["nsenter", "--target", str(process.pid), "--net", "--mount", "--ipc", "--"]


def wait_for(process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    while subprocess.run(
        [*inside(process), "corosync-cfgtool", "-s"], capture_output=True, check=False
    ).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("Corosync does not start: see the folder's corosync.log.")
        time.sleep(0.1)


def run(folder: Path) -> None:
    """A daemon and three members; the third one has two lives."""
    with daemon(folder) as process:

        def start(name: str, *dies: str) -> "subprocess.Popen[bytes]":
            command = [*inside(process), sys.executable, __file__, str(folder), name, *dies]
            return subprocess.Popen(command)

        stay = [start("a"), start("b")]
        try:
            assert start("c", "dies").wait() == -signal.SIGKILL
            last = f"deliver,b,{PAUSE - 1}\n", f"deliver,a,{PAUSE - 1}\n"
            while not all(line in (folder / "a.csv").read_text() for line in last):
                assert all(member.poll() is None for member in stay)
                time.sleep(0.01)
            assert start("c").wait() == 0
            assert [member.wait() for member in stay] == [0, 0]
        finally:
            for member in stay:
                member.kill()
                member.wait()


def judge(folder: Path) -> None:
    files = tuple(folder / f"{name}.csv" for name in MEMBERS)
    imported = import_logs(Plan(LOGS, files, run="audit"), folder / "trace")
    print(f"{imported.sends} sends and {imported.deliveries} deliveries at {imported.sites} sites.")
    trace = read_trace(folder / "trace")
    missed = sum(MESSAGES.values()) - sum(
        event.site == "c" and event.kind == "deliver" for event in trace.events
    )
    violations = check_trace(trace.events, trace.runs[0])
    broken = Counter(violation.property for violation in violations)
    for name in imported.promises:
        print(f"{name}: {broken[name] or 'kept'}")
    print(f"{missed} messages were sent while c was absent: no loss.")
    for violation in violations[:1]:
        print(violation.explanation)


def main(arguments: list[str]) -> None:
    if os.geteuid() or not all(map(shutil.which, ("corosync", "unshare", "nsenter", "ip"))):
        print("There is no corosync here, or no root: apt-get install corosync iproute2.")
    elif len(arguments) > 1:
        Member(Path(arguments[0]), arguments[1], dies=arguments[2:] == ["dies"]).run()
    else:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(arguments[0] if arguments else temporary).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            run(folder)
            judge(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
