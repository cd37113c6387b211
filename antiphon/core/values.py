"""Plain data, as commands, answers and histories hold it, and when two values are the same."""

from typing import Any, Final, TypeAlias

import msgspec

Value: TypeAlias = bool | int | float | str | bytes | list[Any] | tuple[Any, ...] | dict[Any, Any] | None
"""What MessagePack carries. Tuples and lists are the same."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def canonical(value: Value) -> bytes:
    """Equal for equal values. True is not 1, and 1 is not 1.0; the order of a dictionary does not matter.

    >>> canonical({"a": (1,), "b": None}) == canonical({"b": None, "a": [1]})
    True
    >>> canonical(True) == canonical(1)
    False
    """
    return _encode(value)


NOTHING: Final = canonical(None)


def decoded(encoded: bytes) -> Value:
    """The value of its canonical form: a copy of its own."""
    found: Value = msgspec.msgpack.decode(encoded)
    return found
