"""What a live member raises where its application waits."""

from antiphon.core.errors import AntiphonError


class LeftError(AntiphonError):
    """The member is no longer in its group."""


class NameTakenError(AntiphonError):
    """Another process has this member's name in the group."""


class MissedError(AntiphonError):
    """The result of a wait can no longer be known here, or is impossible: the sentence says why."""
