"""Were my Redis consumers in order? A real server, a consumer that is killed, and the verdict on its log.

A publisher appends to a stream; two consumers, each a consumer group of its own, read it and log what they
process. One is killed between processing a message and acknowledging it, and started again: Redis delivers
that message a second time. The logs are imported and judged.

Run it with: python examples/audit_redis_streams.py [FOLDER]
It needs Debian's package redis-server.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from antiphon.check.checkers import check_trace
from antiphon.trace.adapters.importing import Plan, import_logs
from antiphon.trace.adapters.mapping import Columns, Mapping
from antiphon.trace.files import read_trace

MESSAGES = 40
KILLED_AT = 12
"""The second consumer dies after it has processed this message, before it acknowledges it."""
LOGS = Mapping(
    "jsonl",
    Columns(site="client", kind="event", message_id="id", redelivered="redelivered"),
    promises=("integrity", "atomicity", "fifo"),
)


class Redis:
    """As much of a client as this needs: one command, one reply."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._replies: BinaryIO = self._socket.makefile("rb")

    def __call__(self, *words: object) -> Any:
        parts = [str(word).encode() for word in words]
        body = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        self._socket.sendall(b"*%d\r\n%s" % (len(parts), body))
        return self._reply()

    def _reply(self) -> Any:
        line = self._replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"*":
            return None if rest == b"-1" else [self._reply() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self._replies.read(int(rest) + 2)[:-2].decode()
        return rest.decode()


def note(log: TextIO, **fields: object) -> None:
    """One line, on disk before anything else happens."""
    log.write(json.dumps(fields) + "\n")
    log.flush()


def publish(folder: Path) -> None:
    redis = Redis(folder / "redis.sock")
    with (folder / "shop.jsonl").open("a") as log:
        for number in range(MESSAGES):
            note(log, event="send", client="shop", id=redis("XADD", "orders", "*", "number", number))


def consume(folder: Path, name: str, dies: bool) -> None:
    """Process what an earlier life left unacknowledged, then what is new, until all is done."""
    redis = Redis(folder / "redis.sock")
    with (folder / f"{name}.jsonl").open("a") as log:
        for start in ("0", ">"):
            while found := redis("XREADGROUP", "GROUP", name, name, "COUNT", 1, "STREAMS", "orders", start):
                for identity, fields in found[0][1]:
                    note(log, event="deliver", client=name, id=identity, redelivered=start == "0")
                    if dies and int(fields[1]) == KILLED_AT:
                        os.kill(os.getpid(), signal.SIGKILL)
                    redis("XACK", "orders", name, identity)
                if not found[0][1]:
                    break


def start(folder: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, __file__, str(folder), *arguments])


def run(folder: Path) -> None:
    """A server, a publisher and two consumers; the second one has two lives."""
    command = ["redis-server", "--port", "0", "--unixsocket", str(folder / "redis.sock"), "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder, text=True) as server:
        try:
            assert server.stdout is not None
            next(line for line in server.stdout if "ready to accept connections" in line.lower())
            redis = Redis(folder / "redis.sock")
            for name in ("billing", "shipping"):
                redis("XGROUP", "CREATE", "orders", name, "$", "MKSTREAM")
            assert start(folder, "publish").wait() == 0
            first = [start(folder, "consume", "billing"), start(folder, "consume", "shipping", "dies")]
            assert [process.wait() for process in first] == [0, -signal.SIGKILL]
            assert start(folder, "consume", "shipping").wait() == 0
        finally:
            server.terminate()


def judge(folder: Path) -> None:
    files = tuple(folder / f"{name}.jsonl" for name in ("shop", "billing", "shipping"))
    imported = import_logs(Plan(LOGS, files, run="orders"), folder / "trace")
    print(f"{imported.sends} sends and {imported.deliveries} deliveries at {imported.sites} sites.")
    trace = read_trace(folder / "trace")
    violations = check_trace(trace.events, trace.runs[0])
    broken = Counter(violation.property for violation in violations)
    for name in imported.promises:
        print(f"{name}: {broken[name] or 'kept'}")
    print(f"duplicate: {broken['duplicate']} (Redis delivers at least once)")
    for violation in violations[:1]:
        print(violation.explanation)


def main(arguments: list[str]) -> None:
    if shutil.which("redis-server") is None:
        print("There is no redis-server here: apt-get install redis-server.")
        return
    if arguments[1:2] == ["publish"]:
        publish(Path(arguments[0]))
    elif arguments[1:2] == ["consume"]:
        consume(Path(arguments[0]), arguments[2], dies=arguments[3:] == ["dies"])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(arguments[0]) if arguments else Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            run(folder)
            judge(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
