"""Bodies that travel apart from their order: kept until the place of each is known, or until it is fetched.

With `bodies="direct"` a sender multicasts each batch itself to all for whom it is, and only a token goes to
the primary site and down the tree. A primary site orders a token only when it holds the body, being one of
those for whom it is; so whoever lacks a body can fetch it there, even if its sender is gone.
"""

from antiphon.core.ids import Site
from antiphon.protocols.metagroups.channels import Batch


class Bodies:
    """Batches of each sender that have no place yet, as many as a sender may have under way."""

    __slots__ = ("_found", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Site, dict[int, Batch]] = {}

    def add(self, batch: Batch) -> None:
        """Keep one; of too many the first go, for they have waited in vain the longest."""
        found = self._found.setdefault(batch.sender, {})
        found[batch.number] = batch
        if len(found) > self._most:
            del found[min(found)]

    def take(self, token: Batch) -> Batch | None:
        """The batch that a token stands for, if its body is here; from now on it is somebody else's."""
        found = self._found.get(token.sender, {})
        batch = found.get(token.number)
        if batch is None or batch.item != token.item:
            return None
        return found.pop(token.number)

    def find(self, sender: Site, number: int) -> Batch | None:
        return self._found.get(sender, {}).get(number)

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))
