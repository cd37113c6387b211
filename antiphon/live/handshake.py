"""How processes meet: greetings, challenges, answers, and the options on which members must agree.

A process sends `Hello`. Each receiver that does not know it sends a `Challenge` to the source address of the
greeting. The newcomer returns the number in an `Answer`, with its wire versions and its options. So each side
knows, before it accepts anything else, that the other process is running now, that it is reachable at its
address, and that both agree on the group's options. Both sides do this, with a key or without.

No answer to an unproven address is larger than the datagram that came from there: a `Hello`, a `Here` and a
`Challenge` are padded to `GREETING_BYTES`.

The number of a challenge is a keyed hash of the boot, the address and the time. No state is kept about
challenged processes, so a flood of invented ones has nothing to fill.

These PDUs, except the last, keep their form in every wire version (`core.wire.GREETINGS`); fields may be
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
"""Size of a padded greeting. It fits the smallest datagram that a network may be set to."""
NUMBER_BYTES: Final = 16
SLOT_NS: Final[Nanoseconds] = SECOND_NS
"""A challenge can be answered in the time slot in which it was sent and in the next one."""
OWN_CODES: Final = range(2, 16)
"""PDU codes reserved for the transport."""
MOST_OPTIONS: Final = 32
LONGEST_OPTION: Final = 64
LONGEST_ADDRESS: Final = 80

Boot: TypeAlias = Annotated[int, Meta(ge=0)]
Version: TypeAlias = Annotated[int, Meta(ge=0, le=63)]
Padding: TypeAlias = Annotated[bytes, Meta(max_length=GREETING_BYTES)]
Option: TypeAlias = Annotated[str, Meta(max_length=LONGEST_OPTION)]
Number: TypeAlias = Annotated[bytes, Meta(min_length=NUMBER_BYTES, max_length=NUMBER_BYTES)]


class Hello(Pdu, frozen=True, gc=False):
    """A process is there and asks to be challenged."""

    code: ClassVar[int] = 3
    oldest: Version = OLDEST
    newest: Version = VERSION
    padding: Padding = b""


class Challenge(Pdu, frozen=True, gc=False):
    """Asks the process of this boot to prove that it is running now, by returning the number."""

    code: ClassVar[int] = 4
    boot: Boot
    number: Number
    padding: Padding = b""


class Answer(Pdu, frozen=True, gc=False):
    """The number of a challenge; its sender's versions and options; and whether it has joined.

    `yours` is the latest incarnation of the challenger's name that its sender knows.
    """

    code: ClassVar[int] = 5
    number: Number
    oldest: Version
    newest: Version
    joined: bool
    yours: Incarnation
    options: Annotated[dict[Option, Option], Meta(max_length=MOST_OPTIONS)]


class Here(Pdu, frozen=True, gc=False):
    """The answer of a member, which no longer greets itself, to a greeting: so a newcomer meets it."""

    code: ClassVar[int] = 7
    padding: Padding = b""


class Refused(Pdu, frozen=True, gc=False):
    """The process of this boot is refused, because a process at `address` has its name.

    Unless this is `final`, the owner may be gone, which is being found out.
    """

    code: ClassVar[int] = 8
    boot: Boot
    address: Annotated[str, Meta(max_length=LONGEST_ADDRESS)]
    final: bool


class Bye(Pdu, frozen=True, gc=False):
    """Its sender is leaving: its name is free."""

    code: ClassVar[int] = 9


@dataclass(frozen=True)
class Terms:
    """The options on which the members of a group must agree; an order leaves out what it does not use."""

    options: Mapping[str, str]
    oldest: int = OLDEST
    newest: int = VERSION

    def difference(self, site: Site, answer: Answer) -> str:
        """The first difference to another member, as a sentence; empty if there is none.

        An option that only one side has belongs to a later version and is ignored.
        """
        if answer.oldest > self.newest or answer.newest < self.oldest:
            return (
                f"'{site}' supports the wire versions {answer.oldest} to {answer.newest}, this member "
                f"{self.oldest} to {self.newest}: run releases that share one."
            )
        for name, ours in self.options.items():
            theirs = answer.options.get(name, ours)
            if theirs != ours:
                return (
                    f"'{site}' has {name}={theirs!r} and this member {name}={ours!r}: "
                    "give all members the same."
                )
        return ""


class Cookies:
    """Makes and checks the numbers of challenges without a table."""

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
