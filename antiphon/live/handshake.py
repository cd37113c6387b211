"""How processes meet: greetings, challenges, answers, and what the members of a group must agree on.

A process says `Hello`. Each one that hears it, and does not know it, sends a `Challenge` to the address that
the greeting came from. The newcomer sends the number back in an `Answer`, together with the wire versions
that it speaks and the options that it was told. So each side knows, before it takes in anything else, that
the other runs now, that it is reachable at its address, and that both mean the same group. Both sides do
this; a group without a key does it too.

No answer to an address that has not proved itself is larger than what came from there: a `Hello`, a `Here`
and a `Challenge` are padded to `GREETING_BYTES`.

The number of a challenge is a keyed hash of the boot, the address and the time. Nothing is remembered of
processes that were challenged, so a flood of invented ones has nothing to fill.

These PDUs, but for the last one, keep their form in every wire version (`core.wire.GREETINGS`); fields may be
added at their end.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta

from antiphon.core.fields import Incarnation
from antiphon.core.ids import Site
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.core.wire import OLDEST, VERSION, Pdu
from antiphon.live.networks import Address

GREETING_BYTES: Final = 560
"""A whole greeting. It fits the smallest datagram that a network may be told to use."""
NUMBER_BYTES: Final = 16
SLOT_NS: Final[Nanoseconds] = SECOND_NS
"""A challenge can be answered in the slot in which it was sent and in the next one."""
MOST_OPTIONS: Final = 32
LONGEST_OPTION: Final = 64
LONGEST_ADDRESS: Final = 80

Boot: TypeAlias = Annotated[int, Meta(ge=0)]
Version: TypeAlias = Annotated[int, Meta(ge=0, le=63)]
Padding: TypeAlias = Annotated[bytes, Meta(max_length=GREETING_BYTES)]
Option: TypeAlias = Annotated[str, Meta(max_length=LONGEST_OPTION)]
Number: TypeAlias = Annotated[bytes, Meta(min_length=NUMBER_BYTES, max_length=NUMBER_BYTES)]


class Hello(Pdu, frozen=True, gc=False):
    """A process is there, and wants to be challenged before it has anything to say."""

    code: ClassVar[int] = 3
    oldest: Version = OLDEST
    newest: Version = VERSION
    padding: Padding = b""


class Challenge(Pdu, frozen=True, gc=False):
    """The process of this boot is to prove that it runs now: by sending the number back."""

    code: ClassVar[int] = 4
    boot: Boot
    number: Number
    padding: Padding = b""


class Answer(Pdu, frozen=True, gc=False):
    """The number of a challenge; what its sender speaks and was told; and whether it has joined.

    `yours` is the latest incarnation that its sender knows of the challenger's name.
    """

    code: ClassVar[int] = 5
    number: Number
    oldest: Version
    newest: Version
    joined: bool
    yours: Incarnation
    options: Annotated[dict[Option, Option], Meta(max_length=MOST_OPTIONS)]


class Here(Pdu, frozen=True, gc=False):
    """The answer to a greeting from a member that greets no more itself: so a newcomer gets to know it."""

    code: ClassVar[int] = 7
    padding: Padding = b""


class Refused(Pdu, frozen=True, gc=False):
    """The process of this boot is not taken in, since one at `address` has its name.

    Unless it is `final`, that one may be gone, which is found out shortly.
    """

    code: ClassVar[int] = 8
    boot: Boot
    address: Annotated[str, Meta(max_length=LONGEST_ADDRESS)]
    final: bool


class Bye(Pdu, frozen=True, gc=False):
    """Its sender is gone when this arrives: its name is free."""

    code: ClassVar[int] = 9


@dataclass(frozen=True)
class Terms:
    """What the members of one group must agree on, by option; what an order does not use is left out."""

    options: Mapping[str, str]
    oldest: int = OLDEST
    newest: int = VERSION

    def difference(self, site: Site, answer: Answer) -> str:
        """The first thing on which another member differs, as a sentence; empty if there is none.

        An option that only one side knows is one of a later version, and left to that side.
        """
        if answer.oldest > self.newest or answer.newest < self.oldest:
            return (
                f"'{site}' speaks the wire versions {answer.oldest} to {answer.newest}, this member "
                f"{self.oldest} to {self.newest}: run releases that share one."
            )
        for name, ours in self.options.items():
            theirs = answer.options.get(name, ours)
            if theirs != ours:
                return (
                    f"'{site}' was told {name}={theirs!r} and this member {name}={ours!r}: "
                    "give all members the same."
                )
        return ""


class Cookies:
    """The numbers of challenges, made and recognised without a table."""

    def __init__(self) -> None:
        self._secret: Final = secrets.token_bytes(32)

    def number(self, boot: int, address: Address, now: Nanoseconds) -> bytes:
        return self._hash(boot, address, now // SLOT_NS)

    def is_right(self, number: bytes, boot: int, address: Address, now: Nanoseconds) -> bool:
        slot = now // SLOT_NS
        return any(
            secrets.compare_digest(number, self._hash(boot, address, each)) for each in (slot, slot - 1)
        )

    def _hash(self, boot: int, address: Address, slot: int) -> bytes:
        text = f"{boot} {slot} {address}".encode()
        return hashlib.blake2b(text, digest_size=NUMBER_BYTES, key=self._secret).digest()


def shown(address: Address) -> str:
    """An address as a person writes it."""
    host, port = address[:2]
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")[:LONGEST_ADDRESS]
