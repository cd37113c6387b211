"""Where a member keeps bodies, and what it remembers of messages whose bodies are gone.

Source: Konorski, sections 4.2 and 4.3. Ordering buffers hold bodies until they are delivered. When they are
full, a message may seize the buffer of a message that it precedes, or else nothing could be delivered any
more. The paper keeps a delivered body until all present members have delivered it. Without membership no
member can know that: here a body is kept until it was not mentioned for a while. Then it leaves at a limited
rate, as in section 4.5: the slower the group has to be for one of its members, the longer it keeps bodies. A
tombstone outlives the body, so that a message that arrives again is recognised.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from antiphon.core.effects import Unavailable
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.pdus import Message, Tag


class Held(msgspec.Struct, frozen=True, gc=False):
    """A body with its sender."""

    sender: Site
    message: Message
    again: bool = False
    """Whether it was retransmitted: then only another member says that the sender ever sent it."""

    def end(self) -> tuple[int, int]:
        """The sender's incarnation, and the number that follows its messages."""
        return self.message.incarnation, self.message.number + self.message.bodies.messages

    def unavailable(self, reason: str) -> Unavailable:
        """That it is not delivered."""
        return Unavailable(reason, self.sender, self.message.number, self.message.bodies.messages)


class OrderingBuffers(dict[Tag, Held]):
    """Bodies not yet delivered, in the order in which they came."""

    __slots__ = ("_limit", "overflows", "seizures")

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit: Final = limit
        self.overflows = 0
        """Number of times that there was no room for a body."""
        self.seizures = 0
        """Number of times that a body took the buffer of another one."""

    @property
    def room(self) -> int:
        """Buffers that are free."""
        return max(0, self._limit - len(self))

    def put(self, tag: Tag, held: Held, seizable: Callable[[], Tag | None]) -> Tag | None:
        """Store a body; returns the tag of the body that is lost for want of room, the new one or another.

        Only when all buffers are taken `seizable` is asked for a tag that is held here and gives way.
        """
        if len(self) < self._limit or tag in self:
            self[tag] = held
            return None
        self.overflows += 1
        seized = seizable()
        if seized is None:
            return tag
        assert seized in self, "only a body that is held can give way"
        del self[seized]
        self[tag] = held
        self.seizures += 1
        return seized


class KeptBodies(OrderedDict[Tag, Held]):
    """Delivered bodies held for others; the body that was not mentioned for longest is first.

    Bodies beyond the limit leave with the next `expire`, which must therefore follow `keep`.
    """

    # A plain dictionary looks slowly for its first key once many before it have left.

    def __init__(self, limit: int, most_bytes: int, quiet_ns: Nanoseconds) -> None:
        super().__init__()
        self._limit: Final = limit
        self._most_bytes: Final = most_bytes
        self._quiet_ns: Final = quiet_ns
        self._touched_ns: dict[Tag, Nanoseconds] = {}
        """When each was last mentioned."""
        self._next_ns: Nanoseconds = 0
        """When the next body may leave because it was not mentioned."""
        self.size = 0
        """Bytes of all of them."""

    def keep(self, now: Nanoseconds, tag: Tag, held: Held) -> None:
        before = self.pop(tag, None)
        if before is not None:
            self.size -= before.message.bodies.weight
        self[tag] = held
        self._touched_ns[tag] = now
        self.size += held.message.bodies.weight

    def touch(self, now: Nanoseconds, tag: Tag) -> None:
        """A member has asked for it or reported it; nothing happens if it is not here."""
        if tag in self:
            self._touched_ns[tag] = now
            self.move_to_end(tag)

    def refresh(self, now: Nanoseconds) -> None:
        """This member was away and could not hear any of them mentioned."""
        self._touched_ns = dict.fromkeys(self, now)

    def expire(self, now: Nanoseconds, pause_ns: Nanoseconds = 0) -> list[Held]:
        """Remove and return those that were not mentioned for long enough, or are too many or too large.

        Of the former only one leaves in each pause, counted from when the first of them was due.
        """
        gone = []
        while self:
            oldest = next(iter(self))
            if len(self) <= self._limit and self.size <= self._most_bytes:
                due_ns = max(self._touched_ns[oldest] + self._quiet_ns, self._next_ns)
                if due_ns > now:
                    break
                self._next_ns = due_ns + pause_ns
            held = self.pop(oldest)
            del self._touched_ns[oldest]
            self.size -= held.message.bodies.weight
            gone.append(held)
        return gone


class Tombstones(OrderedDict[Tag, int]):
    """Tags that have their place in the agreed order, or were passed over in it; the oldest are forgotten.

    Each with its index, or with the index's complement if it was skipped.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit: Final = limit

    def add(self, tag: Tag, index: int, skipped: bool = False) -> None:
        """Remember a tag's index; a known tag gets the new index."""
        self[tag] = ~index if skipped else index
        if len(self) > self._limit:
            self.popitem(last=False)

    def index(self, tag: Tag) -> int | None:
        """Its index; of a skipped one the index that the order had reached."""
        place = self.get(tag)
        return ~place if place is not None and place < 0 else place

    def is_skipped(self, tag: Tag) -> bool:
        """Whether it has no place: it came too late, or lies before this member's spell."""
        return self.get(tag, 0) < 0
