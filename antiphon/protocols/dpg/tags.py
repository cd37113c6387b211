"""Tags: names for messages that are random to the world and recognisable to the group.

Source: Konorski, sections 3.3 and 4: a tag is unique while its message lives, tells nothing of its sender,
and tags of different groups look alike to a tag sequencer. Here the low bits of a tag are a keyed hash of the
rest. A member, which has the group's secret, tells its group's tags from others', except for one foreign tag
in 2^check_bits. Without the secret all tags look random.
"""

from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.protocols.dpg.pdus import TAG_BITS, Tag

TRIES: Final = 32
"""Random tags that are tried before all are searched in order. Raising it costs time when few are free."""
PURPOSE: Final = b"antiphon tags"
"""Keeps the tags' key apart from other keys that are made of the secret."""


class Tags:
    """Chooses a group's tags and knows them again."""

    __slots__ = ("_bits", "_check_bits", "_check_mask", "_keyed", "_limit", "_random")

    def __init__(self, secret: bytes, random: Random, bits: int = TAG_BITS, check_bits: int = 20) -> None:
        if not 0 <= check_bits < bits <= TAG_BITS:
            raise UsageError(
                f"A tag of {bits} bits, {check_bits} of them to check, is none.",
                hint=f"A tag has up to {TAG_BITS} bits, and fewer of them to check.",
            )
        self._random = random
        self._bits: Final = bits - check_bits
        self._limit: Final = 1 << bits
        self._check_bits: Final = check_bits
        self._check_mask: Final = (1 << check_bits) - 1
        key = blake2b(secret, digest_size=32, person=PURPOSE).digest()
        self._keyed = blake2b(key=key, digest_size=8)

    def choose(self, taken: Callable[[Tag], bool]) -> Tag:
        """A tag that is not taken; raises `UsageError` only if there is none."""
        for _ in range(TRIES):
            tag = self._complete(self._random.getrandbits(self._bits))
            if tag and not taken(tag):
                return tag
        begin, count = self._random.getrandbits(self._bits), 1 << self._bits
        for step in range(count):
            tag = self._complete((begin + step) % count)
            if tag and not taken(tag):
                return tag
        raise UsageError("All tags are taken.", hint="Give tags more bits.")

    def is_ours(self, tag: int) -> bool:
        """Whether a number can be a tag of this group."""
        return 0 < tag < self._limit and self._check(tag >> self._check_bits) == tag & self._check_mask

    def _complete(self, rest: int) -> Tag:
        return rest << self._check_bits | self._check(rest)

    def _check(self, rest: int) -> int:
        hashed = self._keyed.copy()  # the key has been taken in already: a third cheaper than a new hash
        hashed.update(rest.to_bytes(8, "big"))
        return int.from_bytes(hashed.digest(), "big") & self._check_mask
