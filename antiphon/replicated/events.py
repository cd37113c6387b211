"""What happens to a replicated object beside its commands, as `Replicated.events` yields it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, TypeAlias

import msgspec

from antiphon.core.ids import Site
from antiphon.live.events import CutOff, Disagreed, Refused, Unread


class Restored(msgspec.Struct, frozen=True):
    """This member is in contact with a majority again."""


class Transferred(msgspec.Struct, frozen=True):
    """The machine's state was replaced by that of another member."""

    size: int
    """Bytes of the state."""


class Began(msgspec.Struct, frozen=True):
    """The group begins: it has no state yet, or has lost it with all of its members."""

    members: tuple[Site, ...]


class Parted(msgspec.Struct, frozen=True):
    """Without a quorum: this member reaches no majority of its side, and goes on by itself."""


class Merged(msgspec.Struct, frozen=True):
    """Without a quorum: the state of another side was merged into this one."""

    source: Site
    """The member that gave it."""
    size: int
    """Bytes of the state."""


class MergeFailed(msgspec.Struct, frozen=True):
    """Without a quorum: the application's merge raised, so the other side's state is lost here."""

    source: Site
    reason: str


class LeaderChanged(msgspec.Struct, frozen=True):
    """The group has another leader; None while there is none."""

    leader: Site | None


class MemberAdded(msgspec.Struct, frozen=True):
    """The group has one member more, or has one back that had lost its memory."""

    site: Site


class MemberRemoved(msgspec.Struct, frozen=True):
    """A member was removed, or has lost its memory and does not count until it has caught up."""

    site: Site


class MemberDeparted(msgspec.Struct, frozen=True):
    """The group has agreed that a member's process is gone."""

    site: Site


class StoreFailed(msgspec.Struct, frozen=True):
    """The disk takes nothing. This member tries again, and agrees to nothing meanwhile."""

    reason: str


class StoreRecovered(msgspec.Struct, frozen=True):
    """The disk takes everything again."""


ReplicaEvent: TypeAlias = (
    CutOff | Restored | Transferred | Began | LeaderChanged | MemberAdded | MemberRemoved | MemberDeparted
    | Parted | Merged | MergeFailed | StoreFailed | StoreRecovered | Disagreed | Refused | Unread
)  # fmt: skip

MOST_EVENTS: Final = 1024
"""Events that wait to be read. Raising it costs memory where the application does not read them."""


class EventFeed:
    """Hands each event to every reader, from the moment at which it began to read."""

    def __init__(self) -> None:
        self._queues: list[deque[ReplicaEvent]] = []
        self._news = asyncio.Event()
        self._is_over = False

    def post(self, event: ReplicaEvent) -> None:
        for queue in self._queues:
            if len(queue) >= MOST_EVENTS:
                queue.popleft()
                left_out = queue.popleft()
                count = left_out.count if isinstance(left_out, Unread) else 1
                queue.appendleft(Unread(count + 1, True))
            queue.append(event)
        self._news.set()

    def close(self) -> None:
        self._is_over = True
        self._news.set()

    def read(self) -> AsyncIterator[ReplicaEvent]:
        """Events from this call on, until the membership is over."""
        queue: deque[ReplicaEvent] = deque()
        self._queues.append(queue)
        return self._read(queue)

    async def _read(self, queue: deque[ReplicaEvent]) -> AsyncIterator[ReplicaEvent]:
        try:
            while True:
                while queue:
                    yield queue.popleft()
                if self._is_over:
                    return
                self._news.clear()
                await self._news.wait()
        finally:
            self._queues.remove(queue)
