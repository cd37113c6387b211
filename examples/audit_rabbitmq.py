"""Were my RabbitMQ consumers in order? A real broker, consumers that are killed, and the verdict.

A publisher sends to an exchange that feeds two queues, and waits until the broker confirms each message.
`billing` acknowledges a message after it has processed it; `mail` takes messages as acknowledged at once.
Each is killed with a message in hand, and started again: billing gets its message a second time, and mail
never again. The logs are imported and judged.

Run it with: python examples/audit_rabbitmq.py [FOLDER]
It needs Debian's package rabbitmq-server, and keeps to loopback.
"""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from antiphon.check.checkers import check_trace
from antiphon.core.recording import Property
from antiphon.trace.adapters.amqp import Amqp
from antiphon.trace.adapters.importing import Plan, import_logs
from antiphon.trace.files import read_trace

MESSAGES = 40
KILLED_AT = 12
"""Each consumer dies with this message in hand: billing has processed it, mail has not."""
BROKER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_S = 120.0
PROMISES: Final[tuple[Property, ...]] = ("integrity", "atomicity", "fifo")
METHOD, HEADER, BODY = 1, 2, 3
FRAME_END = b"\xce"
HAS_MESSAGE_ID: Final = 1 << 7
NO_TABLE = struct.pack(">I", 0)


class Taken(NamedTuple):
    """A message from a queue."""

    tag: int
    redelivered: bool
    message_id: str
    body: bytes


class Client:
    """As much of AMQP 0-9-1 as this needs: one channel, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._stream = self._socket.makefile("rb")
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(10, 10)
        self._call(10, 11, NO_TABLE, _short("PLAIN"), _long(b"\0guest\0guest"), _short("en_US"), channel=0)
        limits = self._expect(10, 30)
        self._call(10, 31, limits[:6], b"\0\0", channel=0)  # without heartbeats
        self._call(10, 40, _short("/"), _short(""), b"\0", channel=0)
        self._expect(10, 41)
        self._ask(20, 10, _short(""))
        self._ask(85, 10, b"\0")  # the broker confirms what it takes

    def declare(self, exchange: str, queues: tuple[str, ...]) -> None:
        """An exchange that gives each queue every message."""
        self._ask(40, 10, b"\0\0", _short(exchange), _short("fanout"), b"\0", NO_TABLE)
        for queue in queues:
            self._ask(50, 10, b"\0\0", _short(queue), b"\0", NO_TABLE)
            self._ask(50, 20, b"\0\0", _short(queue), _short(exchange), _short(""), b"\0", NO_TABLE)

    def publish(self, exchange: str, message_id: str, body: bytes) -> None:
        """Hand a message to the broker, and wait until it is confirmed."""
        self._call(60, 40, b"\0\0", _short(exchange), _short(""), b"\0")
        self._frame(HEADER, struct.pack(">HHQH", 60, 0, len(body), HAS_MESSAGE_ID) + _short(message_id))
        self._frame(BODY, body)
        self._expect(60, 80)

    def take(self, queue: str, acknowledged: bool) -> Taken | None:
        """The next message of a queue; None if it is empty."""
        self._call(60, 70, b"\0\0", _short(queue), bytes([acknowledged]))
        answer = self._method()
        if answer[:4] == struct.pack(">HH", 60, 72):
            return None
        tag, redelivered = struct.unpack_from(">QB", answer, 4)
        header = self._read()[1]
        size, flags = struct.unpack_from(">QH", header, 4)
        assert flags == HAS_MESSAGE_ID
        message_id = header[15 : 15 + header[14]].decode()
        return Taken(tag, bool(redelivered), message_id, self._read()[1] if size else b"")

    def acknowledge(self, taken: Taken) -> None:
        self._call(60, 80, struct.pack(">QB", taken.tag, 0))

    def _ask(self, kind: int, method: int, *arguments: bytes) -> bytes:
        self._call(kind, method, *arguments)
        return self._expect(kind, method + 1)

    def _call(self, kind: int, method: int, *arguments: bytes, channel: int = 1) -> None:
        self._frame(METHOD, struct.pack(">HH", kind, method) + b"".join(arguments), channel)

    def _frame(self, kind: int, payload: bytes, channel: int = 1) -> None:
        self._socket.sendall(struct.pack(">BHI", kind, channel, len(payload)) + payload + FRAME_END)

    def _read(self) -> tuple[int, bytes]:
        head = self._stream.read(7)
        if len(head) < 7:
            raise ConnectionError("The broker has closed the connection.")
        kind, _, size = struct.unpack(">BHI", head)
        return kind, self._stream.read(size + 1)[:-1]

    def _method(self) -> bytes:
        kind, payload = self._read()
        assert kind == METHOD, payload
        return payload

    def _expect(self, kind: int, method: int) -> bytes:
        payload = self._method()
        assert payload[:4] == struct.pack(">HH", kind, method), payload
        return payload[4:]


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def note(log: TextIO, **fields: object) -> None:
    """One line, on disk before anything else happens."""
    log.write(json.dumps(fields) + "\n")
    log.flush()


def publish(folder: Path, port: int) -> None:
    client = Client(port)
    client.declare("orders", ("billing", "mail"))
    with (folder / "shop.log").open("a") as log:
        for number in range(MESSAGES):
            message_id = str(uuid.uuid4())
            client.publish("orders", message_id, str(number).encode())
            note(log, event="publish", client="shop", message_id=message_id, time=time.time())


def consume(folder: Path, port: int, name: str, dies: bool) -> None:
    """Take messages until the queue is empty."""
    client, forgets = Client(port), name == "mail"
    with (folder / f"{name}.log").open("a") as log:
        while taken := client.take(name, acknowledged=forgets):
            is_last = dies and int(taken.body) == KILLED_AT
            if is_last and forgets:
                os.kill(os.getpid(), signal.SIGKILL)
            note(
                log, event="deliver", client=name, message_id=taken.message_id,
                redelivered=taken.redelivered, time=time.time(),
            )  # fmt: skip
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            if not forgets:
                client.acknowledge(taken)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def broker(folder: Path) -> Iterator[int]:
    """A broker of its own, with all its files in the folder and all its ports on loopback."""
    port, names = free_port(), str(free_port())
    (folder / "plugins").write_text("[].\n")
    environment = {
        **os.environ, "HOME": str(folder), "ERL_EPMD_PORT": names, "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"audit{port}@localhost", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port), "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "store"), "RABBITMQ_LOG_BASE": str(folder / "logs"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }  # fmt: skip
    started = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
            start_new_session=True,
        )
        for command in (["epmd"], [str(BROKER)])
    ]  # fmt: skip
    try:
        wait_for(port, started[1])
        yield port
    finally:
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            Client(port)
            return
        except (OSError, AssertionError):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("The broker does not start: see the folder's logs/.") from None
            time.sleep(0.1)


def run(folder: Path) -> None:
    """A broker, a publisher and two consumers with two lives each."""

    def start(*arguments: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, __file__, str(folder), *arguments])

    with broker(folder) as port:
        assert start("publish", str(port)).wait() == 0
        for name in ("billing", "mail"):
            assert start("consume", str(port), name, "dies").wait() == -signal.SIGKILL
            assert start("consume", str(port), name).wait() == 0


def judge(folder: Path) -> None:
    files = tuple(folder / f"{name}.log" for name in ("shop", "billing", "mail"))
    imported = import_logs(Plan(Amqp(), files, run="orders", promises=PROMISES), folder / "trace")
    print(f"{imported.sends} sends and {imported.deliveries} deliveries at {imported.sites} sites.")
    trace = read_trace(folder / "trace")
    violations = check_trace(trace.events, trace.runs[0])
    broken = Counter(violation.property for violation in violations)
    for name in imported.promises:
        print(f"{name}: {broken[name] or 'kept'}")
    print(f"duplicate: {broken['duplicate']} (RabbitMQ delivers at least once)")
    for violation in violations:
        print(violation.explanation)


def main(arguments: list[str]) -> None:
    if not BROKER.exists() or shutil.which("epmd") is None:
        print("There is no rabbitmq-server here: apt-get install rabbitmq-server.")
    elif arguments[1:2] == ["publish"]:
        publish(Path(arguments[0]), int(arguments[2]))
    elif arguments[1:2] == ["consume"]:
        consume(Path(arguments[0]), int(arguments[2]), arguments[3], dies=arguments[4:] == ["dies"])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(arguments[0] if arguments else temporary).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            run(folder)
            judge(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
