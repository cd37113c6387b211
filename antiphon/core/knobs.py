"""Knobs: what a user may turn, each declared once with its type, bounds, default and one sentence.

    @dataclass(frozen=True, kw_only=True)
    class Total(Knobs):
        service: str = knob("sequencer", "What the order stands on.", choices=("sequencer", "lan"))

Checks, command-line flags, tables in the docs and the values that members compare are made from these
declarations.
"""

import difflib
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from inspect import get_annotations
from types import UnionType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from antiphon.core.errors import UsageError

Value = TypeVar("Value")
METADATA: Final = "knob"
LARGEST: Final = (1 << 62) - 1
"""The largest number that a knob accepts: sums of two still fit a field of a PDU."""


@dataclass(frozen=True)
class Knob:
    """The declaration of one knob."""

    name: str
    kind: type
    """The type of its value."""
    default: Any
    """None leaves the value to the code that reads it."""
    sentence: str
    choices: tuple[str, ...]
    least: float | None
    agreed: bool
    """Whether all members of a group must have the same value."""

    def check(self, value: Any) -> None:
        """Raise a sentence about a value that the knob does not accept."""
        if value is None and self.default is None:
            return
        kinds: Any = (int, float) if self.kind is float else self.kind
        if isinstance(value, bool) != (self.kind is bool) or not isinstance(value, kinds):
            raise UsageError(f"{self.name}={value!r} is no {self.kind.__name__}.", hint=self.sentence)
        if self.choices:
            require_known(value, self.choices, f"There is no {self.name} '{value}'.")
        if self.least is not None and not value >= self.least:
            raise UsageError(f"{self.name}={value!r} is too small.", hint=f"It is at least {self.least:,}.")
        if isinstance(value, int | float) and not value <= LARGEST:
            raise UsageError(f"{self.name}={value!r} is too large.", hint=f"It is at most {LARGEST:,}.")


def knob(
    default: Value,
    sentence: str,
    *,
    choices: Collection[str] = (),
    least: float | None = None,
    agreed: bool = True,
) -> Value:
    """A dataclass field that is a knob."""
    declared = {"sentence": sentence, "choices": tuple(choices), "least": least, "agreed": agreed}
    found: Value = field(default=default, metadata={METADATA: declared})
    return found


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Base of classes with knobs."""

    def __post_init__(self) -> None:
        for each in self.knobs().values():
            each.check(getattr(self, each.name))

    @classmethod
    def knobs(cls) -> dict[str, Knob]:
        """The declarations, by name; a class's own come before those that it shares with others."""
        hints = get_type_hints(cls)
        found = {each.name: each for each in fields(cls) if METADATA in each.metadata}
        own_first = dict.fromkeys(name for each in cls.__mro__ for name in get_annotations(each))
        return {
            name: Knob(name, _kind(hints[name]), found[name].default, **found[name].metadata[METADATA])
            for name in own_first
            if name in found
        }


def _kind(hint: Any) -> type:
    """The type of a value; None stands for an open value."""
    if isinstance(hint, UnionType):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    if get_origin(hint) is Literal:
        return str
    assert isinstance(hint, type)
    return hint


def require_known(name: str, known: Collection[str], sentence: str) -> None:
    """Raise the sentence about an unknown name, with the known ones."""
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        guess = f"Did you mean '{near[0]}'? " if near else ""
        raise UsageError(sentence, hint=f"{guess}There are: {', '.join(known)}.")
