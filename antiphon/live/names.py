"""The names that this member has met: of members, of departed members, and in messages.

A message to an unknown name is a mistake. A message to a departed member is not: an answer goes to the
destinations of the question, and some of them may have left since.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.packing import Destinations

MOST_NAMES: Final = 4096
"""Names that are remembered; beyond that the ones met first are forgotten. Raising it costs memory."""


class MetNames:
    """Names that this member has met, the latest last; bounded."""

    def __init__(self) -> None:
        self._met: dict[Site, None] = {}

    def __contains__(self, site: Site) -> bool:
        return site in self._met

    def meet(self, sites: Iterable[Site]) -> None:
        for site in sites:
            if site not in self._met:
                self._met[site] = None
        while len(self._met) > MOST_NAMES:
            del self._met[next(iter(self._met))]

    def read(self, sender: Site, to: Destinations | Sequence[Destinations]) -> None:
        """A batch of this sender was delivered, with these destinations for all messages or for each."""
        if sender not in self._met:
            self.meet((sender,))
        if to is None:
            return
        for some in (to,) if isinstance(to, frozenset) else to:
            if some is not None:
                self.meet(some.difference(self._met))
