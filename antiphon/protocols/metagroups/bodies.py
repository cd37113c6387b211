"""Bodies that travel apart from their order, kept until their token comes.

With `bodies="direct"` a sender multicasts each batch to all destinations itself, and only a token goes to the
primary site and down the tree. The primary site is a destination too, and orders a token only when it holds
the body. So a site that lacks a body can fetch it there, even if the sender has crashed.
"""

from antiphon.core.ids import Site
from antiphon.protocols.metagroups.channels import Batch


class Bodies:
    """Batches of each sender that have no place yet, as many as a sender may have unstable."""

    __slots__ = ("_found", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Site, dict[int, Batch]] = {}

    def add(self, batch: Batch) -> None:
        """Keep a batch; of too many, the lowest number is dropped."""
        found = self._found.setdefault(batch.sender, {})
        found[batch.number] = batch
        if len(found) > self._most:
            del found[min(found)]

    def take(self, token: Batch) -> Batch | None:
        """Remove and return the batch that a token stands for, if its body is here."""
        found = self._found.get(token.sender, {})
        batch = found.get(token.number)
        if batch is None or batch.item != token.item:
            return None
        return found.pop(token.number)

    def find(self, sender: Site, number: int) -> Batch | None:
        return self._found.get(sender, {}).get(number)

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))
