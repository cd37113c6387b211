"""Whether a member is in its group: what all that serves its application looks at, and the group changes."""

import threading
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.live.boards import LeftError


class Standing:
    """Not in the group yet, in it, or out of it again: of its own will or by a failure."""

    def __init__(self, name: Site, group: Group) -> None:
        self.has_come = False
        self.is_leaving = False
        """Whether the application has asked to leave: an absence that follows is no news to it."""
        self.is_out = False
        """Whether the membership is over."""
        self.error: BaseException | None = None
        """What has ended it, unless it was the application."""
        self._thread = threading.get_ident()
        self._name: Final = name
        self._group: Final = group

    def come(self) -> None:
        """The member listens from now on; this thread's event loop drives it."""
        self._thread = threading.get_ident()
        self.has_come = True

    def require_in(self) -> None:
        """Only the thread that joined may ask: nothing here is locked."""
        if threading.get_ident() != self._thread:
            raise UsageError(
                f"'{self._name}' joined '{self._group}' in the event loop of another thread.",
                hint="Threads use antiphon.sync.join.",
            )
        if self.error is not None:
            raise self.error
        if self.is_out or not self.has_come:
            raise LeftError(
                f"'{self._name}' is not in '{self._group}'.",
                "Join with: async with antiphon.join(...), or await antiphon.join(...).",
            )
