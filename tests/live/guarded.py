"""A gate by itself, and processes that send to it: what its tests share."""

from collections import Counter
from collections.abc import Mapping
from functools import cache

from antiphon.core.wire import (
    BOOT,
    CHECKSUM,
    DIRECT,
    HEADER,
    MAGIC,
    PREFIX,
    SEALED,
    VERSION,
    Codec,
    Pdu,
    group_hash,
    name_bytes,
)
from antiphon.live.counters import Counters
from antiphon.live.gate import Gate
from antiphon.live.handshake import Answer, Challenge, Hello, Here, Refused, Terms
from antiphon.live.keys import KeyRing
from antiphon.live.members import PRESS_NS
from antiphon.live.networks import Address
from antiphon.live.sealing import GENERATION_BITS, TAG_BYTES, Seals
from tests.live.pairs import News, Note

GROUP = "orders"
OURS = 99
KINDS = Codec([Note, Hello, Here, Challenge, Answer, Refused])
HERE: Address = ("10.0.0.1", 1)
THERE: Address = ("10.0.0.1", 2)
HELLO = Hello(padding=bytes(520))
"""Large enough to be challenged."""


@cache
def seals_of(ring: KeyRing, group: str) -> Seals:
    return Seals(ring, group)


def sealed(
    pdu: Pdu, boot: int, counter: int, site: str, ring: KeyRing, to: int | None = None, group: str = GROUP
) -> bytes:
    """A PDU as the process of that boot would send it, perhaps to one process alone."""
    seal = seals_of(ring, group).own(boot, counter >> GENERATION_BITS)
    buffer = bytearray(HEADER.size) + name_bytes(site)
    KINDS.encode_into(pdu, buffer, len(buffer))
    length = len(buffer) - HEADER.size + TAG_BYTES
    version = VERSION | SEALED | (0 if to is None else DIRECT)
    prefix = PREFIX.pack(MAGIC, version, pdu.code, length, group_hash(group), boot, counter)
    associated = prefix if to is None else prefix + BOOT.pack(to)
    return (
        prefix + CHECKSUM.pack(seal.identifier) + seal.seal(counter, associated, bytes(buffer[HEADER.size :]))
    )


def answer_to(
    challenge: Challenge,
    *,
    joined: bool = True,
    yours: int = 0,
    options: Mapping[str, str] | None = None,
    versions: tuple[int, int] = (VERSION, VERSION),
) -> Answer:
    return Answer(challenge.number, *versions, joined, yours, dict(options or {}))


class Guarded:
    """The gate of a process 'me', its replies, and what it reported to its host."""

    def __init__(self, ring: KeyRing | None, options: Mapping[str, str] | None = None) -> None:
        self.replies: list[tuple[Pdu, Address, int, int | None]] = []
        self.counters = Counters()
        self.news = News()
        self.ring = ring
        self.seals = None if ring is None else Seals(ring, GROUP)
        self.sent: Counter[int] = Counter()
        self.gate = Gate(
            site="me",
            group=GROUP,
            boot=OURS,
            codec=KINDS,
            seals=self.seals,
            terms=Terms(options or {}),
            counters=self.counters,
            host=self.news,
            reply=lambda *reply: self.replies.append(reply),
        )

    @property
    def drops(self) -> dict[str, int]:
        return self.counters.drops

    def datagram(
        self, pdu: Pdu, boot: int, site: str = "x", counter: int | None = None, to: int | None = None
    ) -> bytes:
        """What the process of a boot would send next, or under a counter."""
        if counter is None:
            self.sent[boot] = counter = self.sent[boot] + 1
        if self.ring is None:
            return KINDS.encode(pdu, group_hash(GROUP), boot, counter, site, to)
        return sealed(pdu, boot, counter, site, self.ring, to)

    def hear(
        self,
        pdu: Pdu,
        boot: int,
        site: str = "x",
        address: Address = HERE,
        *,
        counter: int | None = None,
        to: int | None = None,
    ) -> Pdu | None:
        return self.take(self.datagram(pdu, boot, site, counter, to), address)

    def take(self, datagram: bytes, address: Address = HERE) -> Pdu | None:
        found = self.gate.let_in(memoryview(datagram), address)
        return None if found is None else found[1]

    def challenges(self, address: Address = HERE) -> list[Challenge]:
        """Those that were sent to an address, oldest first."""
        return [pdu for pdu, place, *_ in self.replies if place == address and isinstance(pdu, Challenge)]

    def refusals(self, address: Address = HERE) -> list[Refused]:
        return [pdu for pdu, place, *_ in self.replies if place == address and isinstance(pdu, Refused)]

    def prove(
        self,
        boot: int,
        site: str = "x",
        address: Address = HERE,
        *,
        joined: bool = True,
        yours: int = 0,
        options: Mapping[str, str] | None = None,
    ) -> Answer:
        """A process greets, is challenged and answers; its answer."""
        before = len(self.challenges(address))
        self.hear(HELLO, boot, site, address)
        (challenge,) = self.challenges(address)[before:]
        answer = answer_to(challenge, joined=joined, yours=yours, options=options)
        self.hear(answer, boot, site, address, to=OURS)
        return answer

    def acquaint(self, boot: int, site: str = "x", address: Address = HERE) -> None:
        self.prove(boot, site, address)
        assert self.gate.sites[site].boot == boot

    def stay(self, boot: int, site: str = "x", address: Address = HERE) -> None:
        """A member answers the latest challenge at its address."""
        self.hear(answer_to(self.challenges(address)[-1]), boot, site, address, to=OURS)

    def tick(self, now: int) -> None:
        self.gate.tick(now)

    def pass_time(self, until: int) -> None:
        """Tick as often as a member does that has something to do, or nearly."""
        for now in range(self.gate.now, until, PRESS_NS):
            self.gate.tick(now)
        self.gate.tick(until)
