"""Raw UDP in Python with offload: processes that all send and receive at once on loopback multicast.

What Python itself can move, with nothing that an application would call a promise: no order between
senders, no repair, no key. Every datagram is one message; it carries its sender and a sequence number, which
every receiver unpacks and checks. One `sendmsg` sends up to 64 of them (`UDP_SEGMENT`), one `recvmsg_into`
takes as many (`UDP_GRO`).

Loss would make the figure meaningless, so flow control is ideal and free: members publish in shared memory
how much they have received of each sender, and no sender is more than a window ahead of the slowest. A run in
which anything was lost all the same says so. The kernel loops a member's own datagrams back to it as to the
others; they are received, unpacked and counted like all.

    python bench/rivals/raw_udp.py --members 7 --size 1000 --seconds 3
"""

import argparse
import json
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
SO_RCVBUFFORCE: Final = 33
SEGMENTS: Final = 64
"""Datagrams that one call sends at most; the kernel allows no more everywhere."""
CALL_BYTES: Final = 64_000
"""What one call sends at most; a UDP payload ends at 65,507 bytes."""
BUFFER_BYTES: Final = 8 << 20
WINDOW_BYTES: Final = 256_000
"""How far a sender may be ahead of the slowest receiver: all senders' windows together fit a buffer."""
RECEIVES_PER_SEND: Final = 16
"""Calls that a member spends on receiving before it sends again."""
HEADER: Final = struct.Struct("<QI")
"""What each datagram begins with: its sequence number and its sender."""
WORDS_PER_LINE: Final = 8
"""Members write to different cache lines of the shared memory."""


@dataclass(frozen=True)
class Outcome:
    """Messages a second that each member received, own included (the least of them); how many were lost."""

    per_s: float
    lost: int


class Board:
    """The shared memory: per member a flag, a count of losses, and what it received of each sender."""

    def __init__(self, members: int) -> None:
        self._members = members
        self._stride = WORDS_PER_LINE * (1 + (members + 1) // WORDS_PER_LINE)
        self._words = memoryview(mmap.mmap(-1, 8 * (1 + members * self._stride))).cast("Q")

    def publish(self, member: int, counts: list[int], lost: int) -> None:
        begin = member * self._stride
        self._words[begin] = lost
        for sender, count in enumerate(counts):
            self._words[begin + 1 + sender] = count

    def received(self, member: int) -> int:
        begin = member * self._stride + 1
        return sum(self._words[begin : begin + self._members])

    def lost(self) -> int:
        return sum(self._words[member * self._stride] for member in range(self._members))

    def least_of(self, sender: int) -> int:
        """What the slowest member has received of a sender."""
        words, stride = self._words, self._stride
        return min([words[member * stride + 1 + sender] for member in range(self._members)])


class Member:
    """One process of the run."""

    def __init__(self, index: int, members: int, size: int, address: tuple[str, int], board: Board) -> None:
        self._index = index
        self._size = size
        self._board = board
        self._receiving = receiving_socket(address)
        self._sending = sending_socket(address)
        self._counts = [0] * members
        self._lost = 0
        self._sent = 0
        self._least = 0
        self._batch = max(1, min(SEGMENTS, CALL_BYTES // size))
        self._window = max(2 * self._batch, WINDOW_BYTES // size)
        self._out = bytearray(self._batch * size)
        self._in = bytearray(1 << 16)

    def run(self) -> None:
        """Send and receive until the process is killed."""
        waiting = select.poll()
        waiting.register(self._receiving, select.POLLIN)
        while True:
            sent = self._send()
            received = self._receive()
            if not sent and not received:
                waiting.poll(1)

    def _send(self) -> bool:
        if self._sent + self._batch - self._least > self._window:
            self._least = self._board.least_of(self._index)
            if self._sent + self._batch - self._least > self._window:
                return False
        pack, out, index, number = HEADER.pack_into, self._out, self._index, self._sent
        for offset in range(0, len(out), self._size):
            pack(out, offset, number, index)
            number += 1
        self._sending.sendmsg([out], [(SOL_UDP, UDP_SEGMENT, struct.pack("=H", self._size))])
        self._sent = number
        return True

    def _receive(self) -> int:
        """Take what is there, a few calls of it; every datagram's number is read and compared."""
        unpack, counts, size, buffer = HEADER.unpack_from, self._counts, self._size, self._in
        buffers, ancillary = [buffer], socket.CMSG_SPACE(4)
        calls = 0
        try:
            while calls < RECEIVES_PER_SEND:
                length = self._receiving.recvmsg_into(buffers, ancillary)[0]
                calls += 1
                for offset in range(0, length, size):
                    number, sender = unpack(buffer, offset)
                    expected = counts[sender]
                    if number != expected:
                        self._lost += number - expected
                    counts[sender] = number + 1
        except BlockingIOError:
            pass
        if calls:
            self._board.publish(self._index, counts, self._lost)
        return calls


def receiving_socket(address: tuple[str, int]) -> socket.socket:
    receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    receiving.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        receiving.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    except PermissionError:
        receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    receiving.setsockopt(SOL_UDP, UDP_GRO, 1)
    receiving.bind(address)
    membership = socket.inet_aton(address[0]) + socket.inet_aton("127.0.0.1")
    receiving.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    return receiving


def sending_socket(address: tuple[str, int]) -> socket.socket:
    sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sending.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
    sending.connect(address)
    return sending


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_member(member: Member) -> int:
    """Fork a process that runs the member until it is killed. The sockets exist before, so none is late."""
    child = os.fork()
    if child == 0:
        try:
            member.run()
        finally:
            os._exit(1)
    return child


def measure(*, members: int, size: int, seconds: float, warm_up_s: float = 0.5) -> Outcome:
    """Run them all for a while and count; they are killed afterwards."""
    if size < HEADER.size:
        raise ValueError(f"a message has at least {HEADER.size} bytes here")
    address = ("239.255.77.7", free_port())
    board = Board(members)
    group = [Member(index, members, size, address, board) for index in range(members)]
    children: list[int] = []
    try:
        children += [start_member(member) for member in group]
        time.sleep(warm_up_s)
        before, began = [board.received(index) for index in range(members)], time.perf_counter()
        time.sleep(seconds)
        after, ended = [board.received(index) for index in range(members)], time.perf_counter()
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    least = min(late - early for early, late in zip(before, after, strict=True))
    return Outcome(least / (ended - began), board.lost())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--members", type=int, default=7)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    print(json.dumps(asdict(measure(members=options.members, size=options.size, seconds=options.seconds))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
