"""Bounded field types for PDUs: decoding refuses a value outside of its bounds.

A PDU declares its fields with these types, or with its own `Annotated[..., Meta(...)]`. msgspec checks them
while it decodes, so no protocol sees a negative count, a number that leaves no room to count on, or a list
longer than any honest member sends. The meaning of a field in its context (whether a number may leap from the
last known number, whether the sender may report it at all) is for the protocol to check.
"""

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from antiphon.core.ids import Site

NUMBER_LIMIT: Final = 1 << 53
"""Above every message number, position, serial and count: three million a second reach it in 95 years."""
INCARNATION_LIMIT: Final = 1 << 46
"""Above every incarnation. Incarnations are milliseconds since 1970, so this is the year 4199."""
LONGEST_NAME: Final = 64
"""Characters of a member's or a group's name."""
MOST_NAMES: Final = 1024
"""Largest number of members in any list of a PDU."""

Number: TypeAlias = Annotated[int, Meta(ge=0, lt=NUMBER_LIMIT)]
"""A message number, a position, a serial, a count."""
NumberOrNone: TypeAlias = Annotated[int, Meta(ge=-1, lt=NUMBER_LIMIT)]
"""The same, or -1 for 'none'."""
Incarnation: TypeAlias = Annotated[int, Meta(ge=0, lt=INCARNATION_LIMIT)]
IncarnationOrNone: TypeAlias = Annotated[int, Meta(ge=-1, lt=INCARNATION_LIMIT)]
Hash: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""A digest, a random tag or another number of 63 bits that is compared and never used in arithmetic."""
Name: TypeAlias = Annotated[Site, Meta(min_length=1, max_length=LONGEST_NAME)]
"""A member's or a group's name."""
Names: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=MOST_NAMES)]
