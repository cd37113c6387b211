"""Sealing: AES-256-GCM under a key of each sender's boot, and the window that refuses replays.

A boot's key is HKDF-SHA256 of the group key with the boot as salt and the group's name as info. A boot is 64
random bits, drawn anew by every process that joins, and a boot's counter never repeats, so the nonce, which
is the counter, never repeats under a key. The header is associated data: no bit of it can be changed.

A sealed PDU names its key by 32 bits that depend on the group key and the boot. Whoever lacks the key cannot
make them up for a boot of his own, so that a flood of invented senders is refused at the price of one hash.
"""

import hmac
import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from antiphon.core.ids import Group
from antiphon.core.wire import Bytes
from antiphon.live.keys import KEY_BYTES, KeyRing

TAG_BYTES: Final = 16
NONCE: Final = struct.Struct("!IQ")
WINDOW: Final = 4096
"""How far a PDU may lag behind the newest of its boot. Raising it costs time for every sealed PDU."""
ALL_SEEN: Final = (1 << WINDOW) - 1


class Seal:
    """The key of one boot, its id, and what was opened with it."""

    __slots__ = ("_cipher", "identifier")

    def __init__(self, identifier: int, key: bytes) -> None:
        self.identifier: Final = identifier
        self._cipher = AESGCM(key)

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


class Seals:
    """Makes the seals of boots in one group from its ring of keys."""

    def __init__(self, ring: KeyRing, group: Group) -> None:
        self._keys = ring.keys
        self._group = group.encode()
        self._naming = tuple(_expand(key, b"", b"antiphon key id " + self._group) for key in ring.keys)

    def own(self, boot: int) -> Seal:
        """The seal with which the process of this boot sends: of the ring's first key."""
        return self._make(0, boot)

    def find(self, boot: int, identifier: int) -> Seal | None:
        """The seal of another's boot, if it is of one of our keys."""
        for place, naming in enumerate(self._naming):
            if _identifier(naming, boot) == identifier:
                return self._make(place, boot)
        return None

    def _make(self, place: int, boot: int) -> Seal:
        key = _expand(self._keys[place], _salt(boot), b"antiphon seal " + self._group)
        return Seal(_identifier(self._naming[place], boot), key)


def _expand(key: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(key)


def _salt(boot: int) -> bytes:
    return boot.to_bytes(8, "big")


def _identifier(naming: bytes, boot: int) -> int:
    return int.from_bytes(hmac.digest(naming, _salt(boot), "sha256")[:4], "big")


class ReplayWindow:
    """Which counters of a boot have been seen: everything too far below the newest counts as seen."""

    __slots__ = ("_seen", "top")

    def __init__(self, top: int = -1) -> None:
        """Begins with everything up to `top` seen."""
        self.top = top
        self._seen = ALL_SEEN

    def is_new(self, counter: int) -> bool:
        below = self.top - counter
        return below < 0 or (below < WINDOW and not self._seen >> below & 1)

    def note(self, counter: int) -> None:
        ahead = counter - self.top
        if ahead <= 0:
            self._seen |= 1 << -ahead
            return
        self.top = counter
        # A jump may be as long as a counter: shifting by it would take all memory.
        self._seen = (self._seen << ahead | 1) & ALL_SEEN if ahead < WINDOW else 1
