"""A site's own stream in one tree: what comes to its meta-group, delivered in that order."""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from antiphon.core.effects import Arrived, Effect
from antiphon.core.ids import Site
from antiphon.core.packing import pack
from antiphon.protocols.metagroups.bodies import Bodies
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.ledger import Ledger
from antiphon.protocols.metagroups.pdus import NO_GROUP, Item

PASSED: Final = Item("", 0, 1, NO_GROUP)
"""Stands for a batch that is not for this site."""


ELSEWHERE: Final = Batch("", 0, 1, 1, NO_GROUP, pack([b""]))
"""Stands for whatever comes after this site has moved away."""


def is_message(batch: Batch) -> bool:
    """Whether this is a batch of messages, and not the end of the stream."""
    return batch.group != NO_GROUP


class Stream:
    """Keeps the batches that are not delivered, and the names of those delivered until all sites have them.

    The names are needed when a tree ends: a site that has delivered two batches must report their order while
    another site may still have to deliver them.
    """

    __slots__ = (
        "_bodies",
        "_delivered",
        "_effects",
        "_first",
        "_is_due",
        "_last",
        "_ledger",
        "_names",
        "_safe",
        "_waiting",
        "delivered",
        "end",
        "ended",
        "held",
        "is_open",
        "ready",
    )

    def __init__(
        self,
        ledger: Ledger,
        bodies: Bodies,
        effects: list[Effect],
        *,
        safe: bool,
        is_due: Callable[[Batch], bool] = is_message,
    ) -> None:
        """`is_due` says which batches are for this site; others only have their place."""
        self._is_due: Final = is_due
        self._ledger: Final = ledger
        self._bodies: Final = bodies
        self._effects: Final = effects
        self._safe: Final = safe
        self._names: deque[Item] = deque()
        """From `_first` on: what was delivered and is not settled, then what was not delivered."""
        self._first = 1
        self._waiting: deque[Batch] = deque()
        """What is not delivered: first what is held, then from the first token without its body on."""
        self._delivered: dict[tuple[Site, int], Batch] = {}
        """With agreed delivery: what was delivered, until all sites have delivered it."""
        self._last = 0
        self.held = 0
        self.delivered = 0
        self.ready = 0
        self.end: int | None = None
        """The last batch for a primary site that has moved away, but goes on with its work."""
        self.ended = False
        """Whether the end of the stream is here."""
        self.is_open = False
        """Whether all earlier streams are finished, so that this one is delivered."""

    @property
    def finished(self) -> bool:
        """Whether everything up to the end was delivered."""
        return self.ended and self.delivered >= self.held - 1

    def open(self) -> None:
        self.is_open = True
        self._deliver()

    def put(self, batch: Batch) -> None:
        """Append the next batch; the bodies of a token may be here already."""
        if batch.bodies is None:
            batch = self._bodies.take(batch) or batch
        if self.end is not None and self._last >= self.end:
            batch = ELSEWHERE
        self._last += 1
        self._names.append(batch.item if self._is_due(batch) else PASSED)
        self._waiting.append(batch)
        self._hold()

    def fill(self, batch: Batch) -> bool:
        """The bodies of a token have come; False if no token waits for them."""
        for place in range(self.held - self.delivered, len(self._waiting)):
            token = self._waiting[place]
            if token.bodies is None and token.item == batch.item:
                self._waiting[place] = batch
                self._hold()
                return True
        return False

    def lacking(self) -> list[Item]:
        """Tokens without bodies."""
        if self.held == self._last:
            return []
        return [batch.item for batch in self._waiting if batch.bodies is None]

    def _hold(self) -> None:
        """Hold the batches that are complete, in order."""
        while self.held < self._last:
            batch = self._waiting[self.held - self.delivered]
            if batch.bodies is None:
                break
            self.held += 1
            if batch.group == NO_GROUP and not batch.number:
                self.ended = True
            elif self._is_due(batch):
                self._effects.append(Arrived(batch.sender, batch.number, batch.length, batch.group))
        self._deliver()

    def on_mark(self, ready: int, settled: int) -> None:
        """Everything up to `ready` may be delivered; everything up to `settled` was, by all sites."""
        self.ready = max(self.ready, ready)
        self._deliver()
        while self._first <= min(settled, self.delivered):
            item = self._names.popleft()
            self._delivered.pop((item.sender, item.number), None)
            self._first += 1

    def _deliver(self) -> None:
        limit = min(self.held, self.ready) if self._safe else self.held
        while self.is_open and self.delivered < limit:
            self.delivered += 1
            batch = self._waiting.popleft()
            if self._is_due(batch):
                self._ledger.deliver(batch)
                if not self._safe:
                    self._delivered[batch.sender, batch.number] = batch

    # When the tree ends

    def holding(self) -> tuple[list[Item], int]:
        """The end of the stream as far as it is held, and how much of that is delivered."""
        delivered = self.delivered + 1 - self._first
        held = list(islice(self._names, self.held + 1 - self._first))
        names = [item for item in held if item.group != NO_GROUP]
        return names, sum(item.group != NO_GROUP for item in held[:delivered])

    def names(self) -> Iterable[Item]:
        """The stream as far as it is known and not settled."""
        return self._names

    def kept(self) -> dict[tuple[Site, int], Batch]:
        """What is held and others may lack, by sender and number."""
        held = islice(self._waiting, self.held - self.delivered)
        return self._delivered | {
            (batch.sender, batch.number): batch for batch in held if self._is_due(batch)
        }
