"""A claim to be the sequencer, while it waits for the answers of the others."""

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds


class Claiming:
    """Whose answers have come, and what all who answered know already.

    It is complete when everyone awaited has answered. Where nobody is known at all others may be about to
    claim as well: then only the deadline ends it.
    """

    def __init__(
        self, awaited: frozenset[Site], through: int, deadline_ns: Nanoseconds, *, is_first: bool
    ) -> None:
        self.known_by_all = through
        self.deadline_ns = deadline_ns
        self._missing = set(awaited)
        self._is_first = is_first

    def hear(self, site: Site, through: int) -> None:
        """One has answered that it knows all numbers up to `through`."""
        self._missing.discard(site)
        if through:  # a newcomer who knows none needs none of the old ones
            self.known_by_all = min(self.known_by_all, through)

    def is_over(self, now: Nanoseconds) -> bool:
        """Whether to go on with what has been told."""
        return now >= self.deadline_ns or not (self._missing or self._is_first)
