"""PDUs of this process to datagrams: encoded, numbered, sealed where there is a key, and cut where too large.

A PDU that fits a datagram travels as one. A larger PDU is sealed whole and then cut: calling the cipher for
each datagram would cost more than the encryption itself. Its fragments carry tokens instead, and the PDU is
kept for a while so that they can be resent.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
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
    OversizeError,
    Pdu,
    name_bytes,
    stamp,
)
from antiphon.live.fragments import Kept, Tokens, count_of, cut, no_tokens
from antiphon.live.handshake import GREETING_BYTES, Challenge, Hello, Here
from antiphon.live.pacing import Datagrams
from antiphon.live.sealing import TAG_BYTES, Seals, SendingKey

PADDED: Final = (Hello, Here, Challenge)
NOTHING: Final = memoryview(b"")


class Framer:
    """One process's PDUs as datagrams, each PDU under the next counter.

    `encode` puts a PDU into a buffer; `datagrams` then takes it from there.
    """

    def __init__(
        self,
        *,
        site: Site,
        group: int,
        boot: int,
        codec: Codec,
        seals: Seals | None,
        datagram_bytes: int,
        copies: bool,
        now: Nanoseconds,
    ) -> None:
        """`copies`: whether datagrams wait before they leave, so that the buffer must not be lent to them."""
        self._group = group
        self._boot = boot
        self._codec = codec
        self._datagram_bytes = datagram_bytes
        self._copies = copies
        self._buffer = bytearray(HEADER.size) + name_bytes(site)
        self._body_begins = len(self._buffer)
        self._kept = Kept()
        self.key: Final = None if seals is None else SendingKey(seals, boot, now)
        self._tag_bytes = 0 if seals is None else TAG_BYTES
        self.counter = 0
        """The counter of the latest PDU."""

    @property
    def length(self) -> int:
        """Bytes of the encoded PDU on the wire, before it is cut."""
        return len(self._buffer) + self._tag_bytes

    def encode(self, pdu: Pdu, most_bytes: int | None) -> bool:
        """Encode a PDU; a greeting is padded to at most `most_bytes`. Returns whether it fits."""
        try:
            self._codec.encode_into(pdu, self._buffer, self._body_begins)
            if isinstance(pdu, PADDED):
                self._pad(pdu, most_bytes)
        except (OversizeError, OverflowError, ValueError):
            # The fields may hold what peers sent: that must not end this member.
            return False
        return True

    def _pad(self, pdu: Hello | Here | Challenge, most_bytes: int | None) -> None:
        """Pad a greeting to the size that its answer may have, unless it must be smaller."""
        size = GREETING_BYTES if most_bytes is None else min(GREETING_BYTES, most_bytes)
        room = size - self.length
        # From 256 bytes on, the length field takes one more byte.
        padding = bytes(max(0, room if room <= 255 else room - 1))
        self._codec.encode_into(replace(pdu, padding=padding), self._buffer, self._body_begins)

    def datagrams(self, code: int, to: int | None) -> Datagrams:
        """The encoded PDU as datagrams; with `to`, only the process of that boot accepts it."""
        return self._unsealed(code, to) if self.key is None else self._sealed(self.key, code, to)

    def _unsealed(self, code: int, to: int | None) -> Datagrams:
        self.counter = counter = self.counter + 1
        stamp(self._buffer, code, self._group, self._boot, counter, to)
        if len(self._buffer) > self._datagram_bytes:
            return self._cut(counter, bytes(self._buffer), no_tokens)
        return ((bytes(self._buffer) if self._copies else self._buffer, NOTHING),)

    def _sealed(self, key: SendingKey, code: int, to: int | None) -> Datagrams:
        # A counter is used once, even if the PDU is dropped: it is the nonce.
        self.counter = counter = key.advance(self.counter)
        seal = key.seal
        length = len(self._buffer) - HEADER.size + TAG_BYTES
        version = VERSION | SEALED if to is None else VERSION | SEALED | DIRECT
        prefix = PREFIX.pack(MAGIC, version, code, length, self._group, self._boot, counter)
        associated = prefix if to is None else prefix + BOOT.pack(to)
        body = seal.seal(counter, associated, memoryview(self._buffer)[HEADER.size :])
        head = prefix + CHECKSUM.pack(seal.identifier)
        if len(head) + length > self._datagram_bytes:
            return self._cut(counter, head + body, seal.tokens)
        return ((head, memoryview(body)),)

    def _cut(self, counter: int, pdu: bytes, tokens: Tokens) -> Datagrams:
        self._kept.add(counter, pdu, tokens)
        return cut(pdu, self._datagram_bytes, self._group, self._boot, counter, tokens)

    def kept(self, counter: int, indices: Iterable[int]) -> list[int]:
        """Those of the indices at which a PDU has a fragment; none if the PDU is no longer kept."""
        kept = self._kept.get(counter)
        count = 0 if kept is None else count_of(len(kept[0]), self._datagram_bytes)
        return [index for index in indices if index < count]

    def fragments(self, counter: int, indices: list[int]) -> Datagrams:
        """These fragments of a PDU again."""
        kept = self._kept.get(counter)
        assert kept is not None, "only what is kept can be resent"
        pdu, tokens = kept
        fragments = cut(pdu, self._datagram_bytes, self._group, self._boot, counter, tokens)
        return [fragments[index] for index in indices]

    def renew_key(self, now: Nanoseconds) -> None:
        """Renew a key that has been used for long."""
        if self.key is not None:
            self.counter = self.key.renew(self.counter, now)

    def replace_key(self, now: Nanoseconds) -> None:
        """The ring has changed: seal with its first key."""
        assert self.key is not None
        self.key.replace(self.counter, now)
