"""Whether a member is in its group: what all that serves its application looks at, and the group changes."""

from typing import Final

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
        self._name: Final = name
        self._group: Final = group

    def require_in(self) -> None:
        if self.error is not None:
            raise self.error
        if self.is_out or not self.has_come:
            raise LeftError(
                f"'{self._name}' is not in '{self._group}'.", "Join with: async with antiphon.join(...)."
            )
