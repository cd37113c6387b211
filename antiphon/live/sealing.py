"""Sealing: AES-256-GCM under a key of each sender's boot, and the window that refuses replays.

A boot's key is HKDF-SHA256 of the group key with the boot and a generation as salt and the group's name as
info. A boot is 64 random bits, drawn anew by every process that joins, and a boot's counter never repeats, so
the nonce, which is the counter, never repeats under a key. The generation is the counter's upper half: a key
seals at most `PDUS_PER_KEY` PDUs, and a sender that has used one for `KEY_LIFE_NS` leaps to the next
generation by itself. The header is associated data: no bit of it can be changed.

A sealed PDU names its key by 32 bits that depend on the group key, the boot and the generation. A process
without the key cannot make them up, so that a flood of invented senders costs one hash a datagram.

Fragments carry tokens, eight bytes each, cut from one keyed stream per PDU. A process without the key cannot
make up a fragment that is kept. An eavesdropper can put its own bytes under the token of a fragment that it
has heard: that gets in where the true fragment has not come yet, and costs the PDU, which does not open then.
"""

import hashlib
import hmac
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from antiphon.core.ids import Group
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.core.wire import Bytes
from antiphon.live.keys import KEY_BYTES, KeyRing

TAG_BYTES: Final = 16
TOKEN_BYTES: Final = 8
NONCE: Final = struct.Struct("!IQ")
SALT: Final = struct.Struct("!QI")
COUNTER: Final = struct.Struct("!Q")
WINDOW: Final = 4096
"""How far a PDU may lag behind the newest of its boot. Raising it costs time for every sealed PDU."""
ALL_SEEN: Final = (1 << WINDOW) - 1
GENERATION_BITS: Final = 32
PDUS_PER_KEY: Final = 1 << GENERATION_BITS
"""PDUs that one derived key may seal."""
KEY_LIFE_NS: Final[Nanoseconds] = 24 * 3600 * SECOND_NS
"""How long a boot seals with one derived key. Raising it costs more plaintext if a derived key leaks."""
MOST_SEALS: Final = 4096
"""Derived keys that are kept ready. Raising it costs memory, lowering it time under a flood of replays."""


class Seal:
    """One derived key of one boot, its id, and what was opened with it."""

    __slots__ = ("_cipher", "_key", "_token_key", "generation", "identifier")

    def __init__(self, identifier: int, generation: int, key: bytes) -> None:
        self.identifier: Final = identifier
        self.generation: Final = generation
        self._cipher = AESGCM(key)
        self._key = key
        self._token_key = b""

    def seal(self, counter: int, header: Bytes, body: Bytes) -> bytes:
        return self._cipher.encrypt(NONCE.pack(0, counter), body, header)

    def open(self, counter: int, header: Bytes, sealed: Bytes) -> bytes | None:
        """The body, or None if it was not sealed under this key with this header."""
        if len(sealed) < TAG_BYTES:
            return None
        try:
            return self._cipher.decrypt(NONCE.pack(0, counter), sealed, header)
        except InvalidTag:
            return None

    def tokens(self, counter: int, count: int) -> bytes:
        """The tokens of a PDU's fragments, one after another."""
        if not self._token_key:
            self._token_key = _expand(self._key, b"", b"antiphon fragments")
        stream = hashlib.shake_128(self._token_key + COUNTER.pack(counter))
        return stream.digest(TOKEN_BYTES * count)


class Seals:
    """Makes the seals of boots in one group from its key ring, and caches the latest."""

    def __init__(self, ring: KeyRing, group: Group) -> None:
        self._group = group.encode()
        self._made: OrderedDict[tuple[int, int, int], Seal] = OrderedDict()
        self.replace(ring)

    def replace(self, ring: KeyRing) -> None:
        """Switch to another ring: the first key seals, all open."""
        self._keys = ring.keys
        self._naming = tuple(_expand(key, b"", b"antiphon key id " + self._group) for key in ring.keys)
        self._made.clear()

    def own(self, boot: int, generation: int = 0) -> Seal:
        """The seal with which the process of this boot sends: that of the ring's first key."""
        return self._make(0, boot, generation)

    def find(
        self, boot: int, identifier: int, generation: int = 0, may_make: Callable[[], bool] = lambda: True
    ) -> Seal | None:
        """The seal of another boot, if it belongs to one of our keys; derived only if `may_derive` allows
        it."""
        for place, naming in enumerate(self._naming):
            if _identifier(naming, boot, generation) == identifier:
                is_made = (place, boot, generation) in self._made
                return self._make(place, boot, generation) if is_made or may_make() else None
        return None

    def every(self, boot: int, generation: int) -> list[Seal]:
        """The seals that a boot may use, one for each key."""
        return [self._make(place, boot, generation) for place in range(len(self._keys))]

    def _make(self, place: int, boot: int, generation: int) -> Seal:
        name = (place, boot, generation)
        seal = self._made.get(name)
        if seal is None:
            key = _expand(self._keys[place], SALT.pack(boot, generation), b"antiphon seal " + self._group)
            seal = Seal(_identifier(self._naming[place], boot, generation), generation, key)
            self._made[name] = seal
            if len(self._made) > MOST_SEALS:
                self._made.popitem(last=False)
        return seal


def _expand(key: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(key)


def _identifier(naming: bytes, boot: int, generation: int) -> int:
    return int.from_bytes(hmac.digest(naming, SALT.pack(boot, generation), "sha256")[:4], "big")


class SendingKey:
    """The seal that a process sends with. It is renewed before it is used too often or too long."""

    def __init__(self, seals: Seals, boot: int, now: Nanoseconds) -> None:
        self._seals: Final = seals
        self._boot: Final = boot
        self._since_ns = now
        self._first = 0
        self.seal = seals.own(boot)

    def advance(self, counter: int) -> int:
        """The counter of the PDU after `counter`; `seal` then belongs to that counter."""
        following = counter + 1
        if following >> GENERATION_BITS != self.seal.generation:
            self._begin(following, self._since_ns)
        return following

    def renew(self, counter: int, now: Nanoseconds) -> int:
        """Leap to the next generation once this one is old. Returns the counter to continue from."""
        if now - self._since_ns < KEY_LIFE_NS:
            return counter
        following = (self.seal.generation + 1) << GENERATION_BITS
        self._begin(following, now)
        return following - 1

    def replace(self, counter: int, now: Nanoseconds) -> None:
        """The ring has changed: seal with its first key."""
        self._begin(counter + 1, now)

    def _begin(self, following: int, now: Nanoseconds) -> None:
        self._since_ns = now
        self._first = following
        self.seal = self._seals.own(self._boot, following >> GENERATION_BITS)

    def age_ns(self, now: Nanoseconds) -> Nanoseconds:
        return max(0, now - self._since_ns)

    def sealed(self, counter: int) -> int:
        """PDUs sealed so far with the current key."""
        return max(0, counter + 1 - max(self._first, 1))


class ReplayWindow:
    """Which counters of a boot have been seen. Counters too far below the newest count as seen."""

    __slots__ = ("_seen", "top")

    def __init__(self, top: int = -1) -> None:
        """Begins with everything up to `top` seen."""
        self.top = top
        self._seen = ALL_SEEN

    def is_new(self, counter: int) -> bool:
        below = self.top - counter
        return below < 0 or (below < WINDOW and not self._seen >> below & 1)

    def is_past(self, counter: int) -> bool:
        """Whether a counter is so far below the newest that it is unknown whether it was seen."""
        return self.top - counter >= WINDOW

    def note(self, counter: int) -> None:
        ahead = counter - self.top
        if ahead <= 0:
            self._seen |= 1 << -ahead
            return
        self.top = counter
        # A jump may be as long as a counter: shifting by that would take all memory.
        self._seen = (self._seen << ahead | 1) & ALL_SEEN if ahead < WINDOW else 1
