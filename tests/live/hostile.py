"""A hostile process on the same network, run by test_hostile: it listens, learns and floods at full speed.

It has no key. It sends garbage, what it has recorded (as it was, cut short, with flipped bits), headers and
greetings of its own making, and fragments of its own making or with tokens that it has heard, with groups and
boots copied from honest traffic.

    python -m tests.live.hostile GROUP SEED SECONDS PORT...
"""

import contextlib
import random
import socket
import sys
import time

from msgspec.structs import replace

from antiphon.core.wire import HEADER, MAGIC, PREFIX, VERSION, Codec, group_hash
from antiphon.live.fragments import FRAGMENT, OVERHEAD_BYTES
from antiphon.live.handshake import Challenge, Hello, Here
from antiphon.live.networks import Loopback
from antiphon.live.sealing import TOKEN_BYTES
from antiphon.live.sockets import derived_endpoint, enlarge_buffers, open_network

GREETINGS = Codec([Hello, Here, Challenge])
MOST_RECORDED = 500


class Hostile:
    """One attacker."""

    def __init__(self, group: str, seed: int) -> None:
        self._random = random.Random(seed)
        self._group = group_hash(group)
        opened = open_network(Loopback(), group)
        self._hearing = opened.receiving[1]
        self._hearing.setblocking(False)
        enlarge_buffers(self._hearing, 1 << 20)
        # Several addresses, so that bounds for each of them alone would not be enough.
        self._mouths = [self._mouth() for _ in range(20)]
        self._place = derived_endpoint(group)
        self._recorded: list[bytes] = []
        self._kinds = [
            self._garbage,
            self._dressed_garbage,
            self._replay,
            self._truncation,
            self._flip,
            self._other_group,
            self._forged_header,
            self._forged_greeting,
            self._forged_fragment,
            self._altered_fragment,
        ]

    def _mouth(self) -> socket.socket:
        mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        mouth.bind(("127.0.0.1", 0))
        mouth.setsockopt(
            socket.IPPROTO_IP, socket.IP_MULTICAST_IF, bytes(4) + socket.inet_aton("127.0.0.1") + bytes(4)
        )
        return mouth

    def record(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(10):
                datagram = self._hearing.recv(1 << 16)
                if len(datagram) >= PREFIX.size and datagram[:2] == MAGIC:
                    self._recorded.append(datagram)
        if len(self._recorded) > MOST_RECORDED:
            del self._recorded[: MOST_RECORDED // 2]

    def flood(self, ports: list[int], seconds: float) -> int:
        draw, end, sent = self._random, time.monotonic() + seconds, 0
        places: list[tuple[str, int]] = [self._place, *(("127.0.0.1", port) for port in ports)]
        while time.monotonic() < end:
            self.record()
            # Making them up takes longer than sending them, so each goes out several times.
            made = [(draw.choice(self._kinds)(), draw.choice(self._mouths)) for _ in range(100)]
            for _ in range(10):
                place = draw.choice(places)
                for datagram, mouth in made:
                    with contextlib.suppress(OSError):
                        mouth.sendto(datagram, place)
                        sent += 1
        return sent

    def _sample(self) -> bytes:
        return self._random.choice(self._recorded) if self._recorded else self._dressed_garbage()

    def _boot(self) -> int:
        """The name of a member that has been heard, if there is one."""
        if self._recorded and self._random.random() < 0.7:
            return int(PREFIX.unpack_from(self._sample())[5])
        return self._random.getrandbits(64)

    def _garbage(self) -> bytes:
        return self._random.randbytes(self._random.randrange(200))

    def _dressed_garbage(self) -> bytes:
        version = self._random.choice([VERSION, VERSION - 1, VERSION + 1])
        return MAGIC + bytes([version]) + self._random.randbytes(self._random.randrange(200))

    def _replay(self) -> bytes:
        return self._sample()

    def _truncation(self) -> bytes:
        sample = self._sample()
        return sample[: self._random.randrange(len(sample))]

    def _flip(self) -> bytes:
        sample = bytearray(self._sample())
        sample[self._random.randrange(min(len(sample), 300))] ^= 1 << self._random.randrange(8)
        return bytes(sample)

    def _other_group(self) -> bytes:
        """As in a group of another name; the header is sound otherwise."""
        body = self._random.randbytes(30)
        return HEADER.pack(MAGIC, VERSION, 100, len(body), self._group ^ 1, self._boot(), 1, 0) + body

    def _forged_header(self) -> bytes:
        sample, draw = self._sample(), self._random
        body = draw.randbytes(draw.randrange(16, 100))
        checksum = HEADER.unpack_from(sample)[-1] if len(sample) >= HEADER.size else draw.getrandbits(32)
        counter = draw.choice([draw.getrandbits(64), 2**64 - 1, draw.randrange(1000)])
        version, code = draw.choice([sample[2], VERSION | 0x80]), draw.randrange(256)
        return HEADER.pack(
            MAGIC, version, code, len(body), self._group, self._boot(), counter, checksum
        ) + body  # fmt: skip

    def _forged_greeting(self) -> bytes:
        """Unsealed, and right but for that: what a member without a key would challenge."""
        draw = self._random
        kind = draw.choice([Hello(), Here(), Challenge(self._boot(), draw.randbytes(16))])
        name = draw.choice(["a", "b", f"site{draw.randrange(1000)}"])
        padded = replace(kind, padding=bytes(520))
        return GREETINGS.encode(padded, self._group, self._boot(), draw.randrange(2000), name)

    def _forged_fragment(self) -> bytes:
        draw = self._random
        count = draw.randrange(2, 300)
        place = draw.randrange(count) << 16 | count
        counter = draw.randrange(2000)
        head = PREFIX.pack(MAGIC, VERSION, FRAGMENT, place, self._group, self._boot(), counter)
        token = draw.choice([bytes(TOKEN_BYTES), draw.randbytes(TOKEN_BYTES)])
        return head + token + draw.randbytes(draw.choice([1, 400, 30_000]))

    def _altered_fragment(self) -> bytes:
        """With the token of one that was heard, in its own place or in another one of its PDU."""
        heard = [one for one in self._recorded if one[3] == FRAGMENT and len(one) > OVERHEAD_BYTES]
        if not heard:
            return self._forged_fragment()
        draw = self._random
        fragment = bytearray(draw.choice(heard))
        if draw.random() < 0.5:
            fragment[4:6] = draw.randrange(2).to_bytes(2, "big")
        return bytes(fragment[:OVERHEAD_BYTES]) + draw.randbytes(len(fragment) - OVERHEAD_BYTES)


def main() -> None:
    group, seed, seconds, *ports = sys.argv[1:]
    hostile = Hostile(group, int(seed))
    print("ready", flush=True)
    sys.stdin.readline()
    print(hostile.flood([int(port) for port in ports], float(seconds)), flush=True)


if __name__ == "__main__":
    main()
