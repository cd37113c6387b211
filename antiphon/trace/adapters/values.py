"""Values of log lines: JSON objects, times, numbers and flags, each refused with a reason."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

import msgspec

from antiphon.trace.adapters.record import BadLine, BadLineError, Line, Record

T = TypeVar("T")

LONGEST_SAMPLE: Final = 500
"""Characters of a bad line that are kept; raising it makes the table of bad lines larger."""
UNITS_NS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
LARGEST: Final = 2**63 - 1
LARGEST_SHORT: Final = 2**31 - 1
"""The largest size of a message, and the largest attempt, that a trace can hold."""
LARGEST_EXACT: Final = 2**53
"""Up to here a float has every whole number."""
FIRST_IN_MS: Final = 10**11
"""A bare number of this size or above is milliseconds since 1970, not seconds; likewise a thousandfold on."""


def bad(line: Line, reason: str, hides: bool = True) -> BadLine:
    return BadLine(line.number, reason, line.text[:LONGEST_SAMPLE], hides)


def parsed(lines: Iterable[Line], parse: Callable[[Line], Iterable[Record]]) -> Iterator[Record | BadLine]:
    """Parse line by line; blank lines are skipped, a line that raises `BadLineError` becomes a `BadLine`."""
    for line in lines:
        if not line.text.strip():
            continue
        try:
            yield from list(parse(line))
        except BadLineError as error:
            yield bad(line, str(error), error.hides)


def json_object(text: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadLineError(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadLineError("the JSON value is no object")
    return value


def look_up(values: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that has a value; a dot leads into an object."""
    for name in names:
        value: Any = values.get(name)
        if value is None and "." in name:
            value = values
            for part in name.split("."):
                value = value.get(part) if isinstance(value, dict) else None
        if value is not None and value != "":
            return value
    return None


def required(values: Mapping[str, Any], *names: str) -> Any:
    value = look_up(values, *names)
    if value is None:
        raise BadLineError(f"no field '{names[0]}'")
    return value


def text_of(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadLineError(f"a name is expected, not {type(value).__name__}")
    if isinstance(value, float) and value.is_integer():
        if abs(value) > LARGEST_EXACT:
            raise BadLineError(f"the name {value!r} is a number that has lost digits: write it as a text")
        return str(int(value))
    return value if isinstance(value, str) else str(value)


def integer(value: Any, what: str, largest: int = LARGEST) -> int:
    """A whole number from 0 to the largest that its column of a trace can hold."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise BadLineError(f"{what} is no whole number: {str(value)[:40]!r}") from None
    if isinstance(value, bool) or (isinstance(value, float) and value != number):
        raise BadLineError(f"{what} is no whole number: {value!r}")
    if not 0 <= number <= largest:
        raise BadLineError(f"{what} is out of range: {number}")
    return number


def flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "1", "yes", "t"):
        return True
    if str(value).lower() in ("false", "0", "no", "f", "none"):
        return False
    raise BadLineError(f"true or false is expected, not {str(value)[:40]!r}")


def time_ns(value: Any, unit: str | None = None) -> int:
    """Nanoseconds since 1970 from a number (of `unit`, or of the unit that its size suggests) or ISO 8601.

    >>> time_ns("2026-01-02T03:04:05.000000007Z") % 10**9
    7
    >>> time_ns(1700000000), time_ns("1700000000000")
    (1700000000000000000, 1700000000000000000)
    """
    number = _number(value)
    if number is None and isinstance(value, str):
        return _iso_ns(value)
    if number is None or not math.isfinite(number):
        raise BadLineError(f"no time: {str(value)[:40]!r}")
    nanoseconds = round(number * (UNITS_NS[unit] if unit else _guessed_unit(number)))
    if abs(nanoseconds) > LARGEST:
        raise BadLineError(f"the time is out of range: {value!r}")
    return nanoseconds


def _number(value: Any) -> int | Decimal | None:
    """A number, or a text that is one, exactly; truth values and everything else are none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return value if isinstance(value, int) else Decimal(str(value))
    except InvalidOperation:
        return None


def _guessed_unit(number: int | Decimal) -> int:
    unit = 10**9
    bound = FIRST_IN_MS
    while not -bound < number < bound and unit > 1:
        unit //= 1000
        bound *= 1000
    return unit


def _iso_ns(text: str) -> int:
    """ISO 8601 with up to nine digits of a second; without a zone it is UTC."""
    head, dot, tail = text.strip().replace(",", ".").partition(".")
    digits = ""
    while tail and tail[0].isdigit():
        digits, tail = digits + tail[0], tail[1:]
    try:
        moment = datetime.fromisoformat(head + tail)
    except ValueError:
        raise BadLineError(f"no time: {text[:40]!r}") from None
    if dot and not digits:
        raise BadLineError(f"no time: {text[:40]!r}")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + int((digits + "0" * 9)[:9])
