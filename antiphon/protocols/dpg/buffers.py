"""Where a member keeps bodies, and what it remembers of messages whose bodies are gone.

Source: Konorski, sections 4.2 and 4.3. Ordering buffers hold bodies until they are delivered; when they are
full, a message may seize the buffer of one that it precedes, or else nothing could be delivered any more. The
paper keeps a delivered body until all who are present have delivered it, which nobody can know without
membership: here it is kept until nobody has spoken of it for a while. A tombstone outlives it, so that a
message that comes again is known for what it is.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.pdus import Message, Tag


class Held(NamedTuple):
    """A body with its sender."""

    sender: Site
    message: Message


class OrderingBuffers:
    """Bodies not yet delivered, in the order in which they came."""

    __slots__ = ("_held", "_limit", "overflows")

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._held: dict[Tag, Held] = {}
        self.overflows = 0
        """How often there was no room for a body."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, tag: Tag) -> bool:
        return tag in self._held

    def __iter__(self) -> Iterator[Tag]:
        return iter(self._held)

    def __reversed__(self) -> Iterator[Tag]:
        return reversed(self._held)

    def get(self, tag: Tag) -> Held | None:
        return self._held.get(tag)

    def pop(self, tag: Tag) -> Held | None:
        return self._held.pop(tag, None)

    def put(self, tag: Tag, held: Held, seizable: Callable[[], Tag | None]) -> Tag | None:
        """Store a body; the tag of whichever body is lost for want of room, the new one or another.

        Only when all buffers are taken `seizable` is asked for a tag that is held here and gives way.
        """
        if len(self._held) < self._limit or tag in self._held:
            self._held[tag] = held
            return None
        self.overflows += 1
        seized = seizable()
        if seized is None:
            return tag
        assert seized in self._held, "only a body that is held can give way"
        del self._held[seized]
        self._held[tag] = held
        return seized


class Kept:
    """A delivered body, and when somebody spoke of it last."""

    __slots__ = ("held", "touched_ns")

    def __init__(self, held: Held, touched_ns: Nanoseconds) -> None:
        self.held = held
        self.touched_ns = touched_ns


class KeptBodies:
    """Delivered bodies held for others, the longest quiet first.

    What is beyond the limit leaves with the next `expire`, which tells whom: so it is to follow `keep`.
    """

    __slots__ = ("_kept", "_limit", "_most_bytes", "_quiet_ns", "size")

    def __init__(self, limit: int, most_bytes: int, quiet_ns: Nanoseconds) -> None:
        self._limit: Final = limit
        self._most_bytes: Final = most_bytes
        self._quiet_ns: Final = quiet_ns
        self.size = 0
        """Bytes of all of them."""
        # A plain dictionary looks slowly for its first key once many before it have left.
        self._kept: OrderedDict[Tag, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, tag: Tag) -> bool:
        return tag in self._kept

    def keep(self, now: Nanoseconds, tag: Tag, held: Held) -> None:
        before = self._kept.pop(tag, None)
        if before is not None:
            self.size -= before.held.message.bodies.size
        self._kept[tag] = Kept(held, now)
        self.size += held.message.bodies.size

    def touch(self, now: Nanoseconds, tag: Tag) -> None:
        """Somebody has asked for it or reported it; nothing happens if it is not here."""
        kept = self._kept.get(tag)
        if kept is not None:
            kept.touched_ns = now
            self._kept.move_to_end(tag)

    def refresh(self, now: Nanoseconds) -> None:
        """We were away: in that time nobody could speak of any of them to us."""
        for kept in self._kept.values():
            kept.touched_ns = now

    def get(self, tag: Tag) -> Held | None:
        kept = self._kept.get(tag)
        return None if kept is None else kept.held

    def expire(self, now: Nanoseconds) -> list[Held]:
        """Those that leave: quiet for long enough, or too many, or too large together."""
        kept, gone = self._kept, []
        while kept:
            oldest = kept[next(iter(kept))]
            has_room = len(kept) <= self._limit and self.size <= self._most_bytes
            if has_room and now - oldest.touched_ns < self._quiet_ns:
                break
            gone.append(oldest.held)
            self.size -= oldest.held.message.bodies.size
            kept.popitem(last=False)
        return gone


class Tombstones:
    """Tags that have their place in the agreed order, or were passed over in it; the oldest are forgotten."""

    __slots__ = ("_limit", "_places")

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._places: OrderedDict[Tag, int] = OrderedDict()
        """The index of each, or its complement if it was skipped."""

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, tag: Tag) -> bool:
        return tag in self._places

    def add(self, tag: Tag, index: int, skipped: bool = False) -> None:
        """Remember a tag's index; one that is known already gets this one."""
        self._places[tag] = ~index if skipped else index
        if len(self._places) > self._limit:
            self._places.popitem(last=False)

    def remove(self, tag: Tag) -> None:
        """Its place is void."""
        self._places.pop(tag, None)

    def index(self, tag: Tag) -> int | None:
        """Its index; of a skipped one the index that the order had reached."""
        place = self._places.get(tag)
        return ~place if place is not None and place < 0 else place

    def is_skipped(self, tag: Tag) -> bool:
        """Whether it stands in no place: it came too late, or lies before this member's spell."""
        return self._places.get(tag, 0) < 0
