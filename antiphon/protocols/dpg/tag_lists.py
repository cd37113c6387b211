"""Lists of tags as they travel: eight bytes each, big-endian."""

import struct
from collections.abc import Iterable, Sequence
from itertools import islice

from antiphon.protocols.dpg.pdus import MOST_TAGS, ORIGIN, TAG_BYTES, TAG_LIMIT, Tag


def pack_tags(tags: Iterable[Tag]) -> bytes:
    """The first `MOST_TAGS` of them.

    >>> unpack_tags(pack_tags([5, 7]))
    (5, 7)
    """
    chosen = list(islice(tags, MOST_TAGS))
    return struct.pack(f">{len(chosen)}Q", *chosen)


def pack_agreed(tags: Sequence[Tag]) -> bytes:
    """All of them: at most `MOST_AGREED`."""
    return struct.pack(f">{len(tags)}Q", *tags)


def unpack_tags(packed: bytes) -> tuple[Tag, ...] | None:
    """What stands in a packed list; None if it is torn."""
    count, odd = divmod(len(packed), TAG_BYTES)
    return None if odd else struct.unpack(f">{count}Q", packed)


def are_tags(numbers: Sequence[int]) -> bool:
    """Whether all that a peer names can be tags."""
    return not numbers or (min(numbers) > ORIGIN and max(numbers) < TAG_LIMIT)
