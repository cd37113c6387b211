"""TCP fan-out: each process has a connection to every other one and writes every message to all of them.

    python bench/rivals/tcp.py '{"addresses": ["10.99.0.1", ...], "own": 0, "size": 500, "seconds": 3}'

It says `ready` when all connections are there and waits for a line, sends for the time given, and prints how
many bytes a second came to it: of the others, and its own, which it need not send to itself. Of a `pair`
only the first sends, to the second. Nothing is ordered, and only TCP itself waits for the slowest.
"""

import json
import selectors
import socket
import sys
import time
from typing import Any, Final

PORT: Final = 7500
WARM_UP_S: Final = 0.5
CHUNK: Final = 1 << 16


def connect(task: dict[str, Any]) -> tuple[list[socket.socket], list[socket.socket]]:
    """Connections to write to, and those to read from."""
    addresses, own = task["addresses"], task["own"]
    server = socket.create_server((addresses[own], PORT), reuse_port=True)
    outward = []
    for index, address in enumerate(addresses):
        if index != own:
            deadline = time.monotonic() + 20
            while True:
                try:
                    outward.append(socket.create_connection((address, PORT), timeout=2))
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
    inward = [server.accept()[0] for _ in outward]
    return outward, inward


def main() -> int:
    task = json.loads(sys.argv[1])
    outward, inward = connect(task)
    sends = task["own"] == 0 or not task.get("pair")
    print("ready", flush=True)
    sys.stdin.readline()
    message = bytes(task["size"]) * max(1, CHUNK // task["size"])
    waits = selectors.DefaultSelector()
    for each in inward:
        each.setblocking(False)
        waits.register(each, selectors.EVENT_READ)
    left = {each: memoryview(message) for each in outward}
    for each in outward:
        each.setblocking(False)
        if sends:
            waits.register(each, selectors.EVENT_WRITE)
    begin_s = time.monotonic()
    end_s = begin_s + task["seconds"]
    got = own = 0
    while (now_s := time.monotonic()) < end_s:
        for key, _ in waits.select(0.05):
            sock: Any = key.fileobj
            counts = now_s - begin_s > WARM_UP_S
            if sock in left:
                # A message goes to all before the next one: who is slow holds up the others.
                if len(left[sock]) and (taken := _write(sock, left[sock])):
                    left[sock] = left[sock][taken:]
                if not any(map(len, left.values())):
                    left = {each: memoryview(message) for each in outward}
                    own += len(message) * counts
            else:
                got += _read(sock) * counts
    print(json.dumps({"bytes_s": (got + own) / (task["seconds"] - WARM_UP_S)}), flush=True)
    return 0


def _write(sock: socket.socket, data: memoryview) -> int:
    try:
        return sock.send(data)
    except (BlockingIOError, ConnectionError):
        return 0  # it cannot take more, or has ended a moment before us


def _read(sock: socket.socket) -> int:
    try:
        return len(sock.recv(CHUNK))
    except (BlockingIOError, ConnectionError):
        return 0


if __name__ == "__main__":
    sys.exit(main())
