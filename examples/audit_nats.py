"""Were my NATS consumers in order? A real JetStream server, a consumer that is killed, and the verdict.

A publisher sends to a stream; two durable consumers read it and log the reply subject of each delivery, which
says all that an audit needs. One is killed between processing a message and acknowledging it, and started
again: NATS delivers that message a second time, later. The logs are imported and judged.

Run it with: python examples/audit_nats.py [FOLDER]
It needs Debian's package nats-server.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from antiphon.check.checkers import check_trace
from antiphon.trace.adapters.importing import Plan, import_logs
from antiphon.trace.adapters.nats import Nats
from antiphon.trace.files import read_trace

MESSAGES = 40
KILLED_AT = 12
"""The second consumer dies after it has processed this message, before it acknowledges it."""
ACK_WAIT_NS = 300_000_000
"""The server delivers a message again if it is not acknowledged by then."""
SERVER = "nats-server"


class Message(NamedTuple):
    reply: str
    body: bytes


class Client:
    """As much of a client as this needs: one request, one reply."""

    def __init__(self, folder: Path) -> None:
        host, _, port = (folder / "address").read_text().removeprefix("nats://").partition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._stream = self._socket.makefile("rb")
        self._stream.readline()  # INFO
        self._inbox, self._requests = f"_INBOX.{os.getpid()}", 0
        self._send(b'CONNECT {"verbose": false, "protocol": 1}', f"SUB {self._inbox}.* 1".encode())

    def request(self, subject: str, body: bytes) -> Message:
        self._requests += 1
        reply = f"{self._inbox}.{self._requests}"
        self._send(f"PUB {subject} {reply} {len(body)}".encode(), body)
        return self._next()

    def ask(self, subject: str, **fields: object) -> Any:
        answer = json.loads(self.request(f"$JS.API.{subject}", json.dumps(fields).encode()).body)
        assert "error" not in answer, answer
        return answer

    def _send(self, *lines: bytes) -> None:
        self._socket.sendall(b"".join(line + b"\r\n" for line in lines))

    def _next(self) -> Message:
        while line := self._stream.readline().decode().split():
            if line[0] == "PING":
                self._send(b"PONG")
            elif line[0] == "MSG":
                body = self._stream.read(int(line[-1]) + 2)[:-2]
                return Message(line[3] if len(line) == 5 else "", body)
        raise ConnectionError("The server has closed the connection.")


def note(log: TextIO, **fields: object) -> None:
    """One line, on disk before anything else happens."""
    log.write(json.dumps(fields) + "\n")
    log.flush()


def publish(folder: Path) -> None:
    client = Client(folder)
    with (folder / "shop.jsonl").open("a") as log:
        for number in range(MESSAGES):
            accepted = json.loads(client.request("orders", str(number).encode()).body)
            note(log, kind="publish", stream=accepted["stream"], seq=accepted["seq"])


def consume(folder: Path, name: str, dies: bool) -> None:
    """Take messages until all are acknowledged."""
    client = Client(folder)
    with (folder / f"{name}.jsonl").open("a") as log:
        while client.ask(f"CONSUMER.INFO.ORDERS.{name}")["ack_floor"]["stream_seq"] < MESSAGES:
            taken = client.request(f"$JS.API.CONSUMER.MSG.NEXT.ORDERS.{name}", b"")
            note(log, client=name, reply=taken.reply)
            if dies and int(taken.body) == KILLED_AT:
                os.kill(os.getpid(), signal.SIGKILL)
            client.request(taken.reply, b"+ACK")


def start(folder: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, __file__, str(folder), *arguments])


def address(folder: Path) -> str:
    """Where the server listens: it chooses a free port, and writes it to a file when it is ready."""
    while not (ports := list(folder.glob("*.ports"))):
        time.sleep(0.01)
    found: str = json.loads(ports[0].read_text())["nats"][0]
    return found


def run(folder: Path) -> None:
    """A server, a publisher and two consumers; the second one has two lives."""
    options = [
        "-js",
        "-sd",
        str(folder / "store"),
        "-a",
        "127.0.0.1",
        "-p",
        "-1",
        "--ports_file_dir",
        str(folder),
    ]
    with subprocess.Popen([SERVER, *options], stderr=subprocess.DEVNULL) as server:
        try:
            (folder / "address").write_text(address(folder))
            client = Client(folder)
            client.ask(
                "STREAM.CREATE.ORDERS", name="ORDERS", subjects=["orders"], retention="limits", storage="file"
            )
            for name in ("billing", "shipping"):
                config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": ACK_WAIT_NS}
                client.ask(f"CONSUMER.DURABLE.CREATE.ORDERS.{name}", stream_name="ORDERS", config=config)
            assert start(folder, "publish").wait() == 0
            first = [start(folder, "consume", "billing"), start(folder, "consume", "shipping", "dies")]
            assert [process.wait() for process in first] == [0, -signal.SIGKILL]
            assert start(folder, "consume", "shipping").wait() == 0
        finally:
            server.terminate()


def judge(folder: Path) -> None:
    files = tuple(folder / f"{name}.jsonl" for name in ("shop", "billing", "shipping"))
    imported = import_logs(Plan(Nats(), files, run="orders"), folder / "trace")
    print(f"{imported.sends} sends and {imported.deliveries} deliveries at {imported.sites} sites.")
    trace = read_trace(folder / "trace")
    violations = check_trace(trace.events, trace.runs[0])
    broken = Counter(violation.property for violation in violations)
    for name in imported.promises:
        print(f"{name}: {broken[name] or 'kept'}")
    print(f"duplicate: {broken['duplicate']} (NATS delivers at least once)")
    for violation in violations[:1]:
        print(violation.explanation)


def main(arguments: list[str]) -> None:
    if shutil.which(SERVER) is None:
        print(f"There is no {SERVER} here: apt-get install {SERVER}.")
    elif arguments[1:2] == ["publish"]:
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
