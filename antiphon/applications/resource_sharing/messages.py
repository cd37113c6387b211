"""What members that share a resource say to one another: bodies of ordinary messages."""

from typing import Final, TypeAlias

import msgspec

from antiphon.core.ids import Site

LARGEST: Final = 1 << 62
"""No number that a message tells may be as large: there is always room to count on."""
LONGEST_NAME: Final = 255
"""Characters of a member's name that is believed."""


class Request(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """The sender wants that many units at once. Its requests are numbered upwards; the latest one counts."""

    number: int
    need: int


class Allocation(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Control of units goes to a member, for its request of that number."""

    site: Site
    number: int
    transfers: tuple[tuple[int, int], ...]
    """Each unit, and how many times it has changed hands with this."""
    claimed: bool = False
    """Whether it is taken from members that have vanished, by the sender for itself."""


class Release(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The sender's request of that number, and all before it, are over; what it collected is idle."""

    number: int
    forgotten: bool = False
    """Whether the sender was absent, and controls nothing of what it may have had."""


Message: TypeAlias = Request | Allocation | Release

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode(body: bytes, units: int) -> Message | None:
    """A message that makes sense where there are that many units; None for any other bytes."""
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
