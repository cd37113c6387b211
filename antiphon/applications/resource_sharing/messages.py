"""The messages of members that share a resource: bodies of ordinary messages."""

from typing import Final, TypeAlias

import msgspec

from antiphon.core.ids import Site

LARGEST: Final = 1 << 62
"""Numbers in messages must be smaller, so that counters never run out."""
LONGEST_NAME: Final = 255
"""Characters of a member's name."""


class Request(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """The sender wants several units at once. Its requests are numbered upwards; the latest one counts."""

    number: int
    need: int


class Allocation(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Control of units goes to a member, for its request with this number."""

    site: Site
    number: int
    transfers: tuple[tuple[int, int], ...]
    """Each unit, and the number of its transfers, this one included."""
    claimed: bool = False
    """Whether the sender takes the units from members that have vanished."""


class Release(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The sender's requests up to this number are over; what they collected is idle."""

    number: int
    forgotten: bool = False
    """Whether the sender was absent, and controls nothing of what it may have had."""


Message: TypeAlias = Request | Allocation | Release

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode(body: bytes, units: int) -> Message | None:
    """The message in these bytes, for a resource of this many units; None if they make no sense."""
    try:
        message: Message = _decoder.decode(body)
    except msgspec.DecodeError:
        return None
    return message if _makes_sense(message, units) else None


def _makes_sense(message: Message, units: int) -> bool:
    if not 0 <= message.number < LARGEST:
        return False
    match message:
        case Request(need=need):
            return 1 <= need <= units
        case Allocation(site=site, transfers=transfers):
            fitting = all(0 <= unit < units and 0 < transfer < LARGEST for unit, transfer in transfers)
            return fitting and 0 < len(site) <= LONGEST_NAME and 0 < len(transfers) <= units
        case Release():
            return True
