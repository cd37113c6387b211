"""What a replicated object raises at its callers."""

from antiphon.core.errors import AntiphonError


class CutOffError(AntiphonError):
    """This member does not reach a majority of its group, so nothing can be agreed upon here."""

    def __init__(self, sentence: str, hint: str | None = None, *, uncertain: bool = False) -> None:
        super().__init__(sentence, hint)
        self.uncertain = uncertain
        """Whether the command may have been applied, or may still be. If not, it never will be."""

    def __reduce__(self) -> tuple[type["AntiphonError"], tuple[str, str | None]]:
        return type(self), (self.sentence, self.hint)


class ResultLostError(AntiphonError):
    """The command was applied, once; its result went with a state transfer to this member."""


class RemovedError(AntiphonError):
    """This member was removed from its group."""
