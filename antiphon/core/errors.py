"""The error tree: what is raised at people, never at peers.

Three kinds of wrong are kept apart. A caller's mistake raises one of these and changes nothing; a peer's
garbage is counted and dropped without any exception; our own bug is an assertion. Every error carries a
sentence that says what is wrong and, where there is one, a hint that says what to do.
"""


class AntiphonError(Exception):
    """Base of everything that Antiphon raises on purpose."""

    def __init__(self, sentence: str, hint: str | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint

    def __str__(self) -> str:
        return self.sentence if self.hint is None else f"{self.sentence} Hint: {self.hint}"

    def __reduce__(self) -> tuple[type["AntiphonError"], tuple[str, str | None]]:
        return type(self), (self.sentence, self.hint)


class UsageError(AntiphonError):
    """An argument, option or call that makes no sense; the state is unchanged."""


class InputError(AntiphonError):
    """A file or folder that cannot be read or judged."""


class OutputError(AntiphonError):
    """A file or folder that cannot be written."""


class MissingRequirementError(AntiphonError):
    """Something the machine lacks: a Java runtime, an optional package, a permission."""
