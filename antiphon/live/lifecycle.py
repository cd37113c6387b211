"""Whether a member is in its group: written by the group, read by everything that serves the application."""

import threading
from typing import Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.live.errors import LeftError


class Lifecycle:
    """Before, in or after a membership, and what ended it: the application or a failure."""

    def __init__(self, name: Site, group: Group) -> None:
        self.has_come = False
        self.is_leaving = False
        """Whether the application has asked to leave: the absence that follows is not reported to it."""
        self.is_out = False
        """Whether the membership is over."""
        self.error: BaseException | None = None
        """The error that ended it, unless the application did."""
        self._thread = threading.get_ident()
        self._name: Final = name
        self._group: Final = group

    def come(self) -> None:
        """The member starts to receive, driven by this thread's event loop."""
        self._thread = threading.get_ident()
        self.has_come = True

    def require_in(self) -> None:
        """Raise unless the caller is in the thread that joined: nothing here is locked."""
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
