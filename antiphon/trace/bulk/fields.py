"""Fields of many lines as Arrow columns, as `trace.adapters.values` reads those of one line.

A row whose value is not of the plain kind, such as a number with an exponent or a time with a zone of its
own, is marked as `odd`: the format's own parser reads that line instead.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from antiphon.trace.adapters.values import FIRST_IN_MS, LARGEST, UNITS_NS
from antiphon.trace.arrow import pa, pc

DIGITS: Final = r"^\d{1,18}$"
DECIMAL: Final = r"^(?P<whole>\d{1,18})(?:\.(?P<rest>\d{1,9}))?$"
UTC_TIME: Final = r"^(?:19[7-9]|20\d|21\d)\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?Z?$"
EXACT_SECONDS: Final = (2.0**30, 2.0**32)
"""Seconds between which a float's shortest text has at most seven digits after the point."""

Array = Any
Mask = Any


class Fields:
    """The columns of some lines by name; None for a field that no line has."""

    def __init__(self, columns: Mapping[str, Array | None], count: int) -> None:
        self._columns, self.count = columns, count
        self.odd: Mask = np.zeros(count, bool)

    def mark(self, odd: Array) -> None:
        """Leave these rows to the format's own parser."""
        self.odd |= bits(odd)

    def look_up(self, *names: str) -> Array | None:
        """For each row the first of these fields that has a value; an empty text is none."""
        found = None
        for name in names:
            column = self._columns.get(name)
            if column is None or column.null_count == len(column):
                continue
            if pa.types.is_string(column.type):
                column = pc.replace_with_mask(column, pc.equal(column, ""), pa.scalar(None, pa.string()))
            if found is None:
                found = column
            elif found.type == column.type:
                found = pc.coalesce(found, column)
            elif found.null_count == len(found):
                found = column
            else:
                self.mark(pc.and_(pc.is_null(found), pc.is_valid(column)))
        return found

    def text(self, *names: str) -> Array | None:
        return self._as_text(self.look_up(*names))

    def _as_text(self, column: Array | None) -> Array | None:
        if column is None or pa.types.is_string(column.type):
            return column
        if pa.types.is_integer(column.type):
            return column.cast(pa.string())
        self.mark(pc.is_valid(column))
        return None

    def required(self, column: Array | None) -> None:
        """Rows without this value are refused by the parser, with a reason."""
        self.mark(np.ones(self.count, bool) if column is None else pc.is_null(column))

    def whole(self, *names: str, largest: int = LARGEST) -> Array | None:
        """Whole numbers from 0 on."""
        column = self.look_up(*names)
        if column is None:
            return None
        if pa.types.is_string(column.type):
            column = self._matching(column, DIGITS).cast(pa.int64())
        if not pa.types.is_integer(column.type):
            self.mark(pc.is_valid(column))
            return None
        other = pc.or_(pc.less(column, 0), pc.greater(column, largest))
        self.mark(other)
        return pc.replace_with_mask(column, pc.fill_null(other, False), pa.scalar(None, column.type))

    def _matching(self, column: Array, pattern: str) -> Array:
        """Texts that match, else null and odd."""
        other = pc.invert(pc.match_substring_regex(column, pattern))
        self.mark(other)
        return pc.replace_with_mask(column, pc.fill_null(other, False), pa.scalar(None, column.type))

    def flag(self, *names: str) -> Array | None:
        column = self.look_up(*names)
        if column is None or pa.types.is_boolean(column.type):
            return column
        texts = self._as_text(column)
        if texts is None:
            return None
        lower = pc.utf8_lower(texts)
        yes = pc.is_in(lower, value_set=pa.array(["true", "1", "yes", "t"]))
        no = pc.is_in(lower, value_set=pa.array(["false", "0", "no", "f", "none"]))
        self.mark(pc.and_(pc.is_valid(texts), pc.invert(pc.or_(yes, no))))
        return pc.if_else(pc.is_valid(texts), yes, pa.scalar(None, pa.bool_()))

    def time(self, unit: str | None, *names: str) -> Array | None:
        """Nanoseconds since 1970."""
        column = self.look_up(*names)
        if column is None:
            return None
        if pa.types.is_integer(column.type):
            return self._scaled(column, unit)
        if pa.types.is_floating(column.type):
            return self._of_seconds(column, unit)
        if pa.types.is_string(column.type):
            return self._of_text(column, unit)
        self.mark(pc.is_valid(column))
        return None

    def _scaled(self, numbers: Array, unit: str | None) -> Array:
        found, valid = integers(numbers)
        if unit is None:
            bounds = [FIRST_IN_MS, FIRST_IN_MS * 1000, FIRST_IN_MS * 10**6]
            scale = 10 ** (9 - 3 * np.searchsorted(bounds, found, "right"))
        else:
            scale = np.full(len(found), UNITS_NS[unit])
        self.odd |= valid & ((found < 0) | (found > LARGEST // scale))
        return pa.array(np.where(self.odd, 0, found) * np.where(self.odd, 1, scale), mask=~valid)

    def _of_seconds(self, numbers: Array, unit: str | None) -> Array:
        """Exactly what the decimal text of each float says."""
        valid = bits(pc.is_valid(numbers))
        found = pc.fill_null(numbers, 0.0).to_numpy(zero_copy_only=False)
        begin, end = EXACT_SECONDS
        usual = (found >= begin) & (found < end) & (unit in (None, "s"))
        micros = np.rint(np.where(usual, found, 0.0) * 1e6)
        is_micro = micros / 1e6 == found
        seconds = np.floor(np.where(usual, found, 0.0))
        tenths = np.where(usual, found - seconds, 0.0) * 1e7
        is_tie = np.abs(tenths - np.floor(tenths) - 0.5) < 1e-6
        self.odd |= valid & (~usual | (~is_micro & is_tie))
        finer = seconds.astype(np.int64) * 10**9 + np.rint(tenths).astype(np.int64) * 100
        return pa.array(np.where(is_micro, micros.astype(np.int64) * 1000, finer), mask=~valid)

    def _of_text(self, texts: Array, unit: str | None) -> Array:
        numeric = bits(pc.match_substring_regex(texts, DECIMAL))
        if numeric.any():
            parts = pc.extract_regex(texts, DECIMAL)
            whole, _ = integers(pc.struct_field(parts, "whole").cast(pa.string()))
            rest = pc.struct_field(parts, "rest")
            fraction, _ = integers(pc.utf8_rpad(rest, 9, "0"))
            in_seconds = (unit or "s") == "s"
            fits = (whole < LARGEST // 10**9) & ((unit is not None) | (whole < FIRST_IN_MS))
            exact = in_seconds & fits & numeric
            numbers = pa.array(whole, mask=~numeric | exact)
            self.odd |= numeric & ~exact & bits(pc.greater(pc.binary_length(rest), 0))
            scaled, scaled_valid = integers(self._scaled(numbers, unit))
            found = np.where(exact, np.where(exact, whole, 0) * 10**9 + fraction, scaled)
            self.odd |= numeric & ~exact & ~scaled_valid
        else:
            found = np.zeros(len(texts), np.int64)
        moments, is_moment = self._moments(texts, numeric)
        valid = bits(pc.is_valid(texts))
        self.odd |= valid & ~numeric & ~is_moment
        return pa.array(np.where(is_moment, moments, found), mask=~valid)

    @staticmethod
    def _moments(texts: Array, numeric: Mask) -> tuple[Any, Mask]:
        """Texts of ISO 8601 in UTC."""
        fits = bits(pc.match_substring_regex(texts, UTC_TIME)) & ~numeric
        none = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
        if not fits.any():
            return none
        plain = pc.utf8_rtrim(pc.if_else(pa.array(fits), texts, pa.scalar(None, pa.string())), "Z")
        try:
            return integers(plain.cast(pa.timestamp("ns")).cast(pa.int64()))[0], fits
        except pa.ArrowInvalid:
            return none


def bits(column: Array) -> Mask:
    """Truth values of a column; null is false."""
    if isinstance(column, np.ndarray):
        return column
    filled = pc.fill_null(column, False)
    return filled.to_numpy(zero_copy_only=False)


def integers(column: Array) -> tuple[Any, Mask]:
    """Whole numbers, 0 for null, and which of them are no nulls. A text must be digits, or empty."""
    if pa.types.is_string(column.type):
        empty = pc.equal(column, "")
        column = pc.replace_with_mask(column, pc.fill_null(empty, False), pa.scalar(None, pa.string()))
        column = column.cast(pa.int64())
    return pc.fill_null(column, 0).to_numpy(zero_copy_only=False), bits(pc.is_valid(column))


def json_schema(names: Iterable[str], samples: Sequence[bytes]) -> pa.Schema | None:
    """A schema for these fields with the types that the samples have; None if names contradict each other.

    A name with a dot may be a field's name, or lead into an object.
    """
    values = [value for value in map(_decoded, samples) if value is not None]
    tree: dict[str, Any] = {}
    for name in names:
        if "." in name:
            tree[name] = _kind([value.get(name) for value in values])
            *outer, last = name.split(".")
            place = tree
            for part in outer:
                place = place.setdefault(part, {})
                if not isinstance(place, dict):
                    return None
            if isinstance(place.get(last), dict):
                return None
            place[last] = _kind([_nested(value, name) for value in values])
        elif isinstance(tree.get(name), dict):
            return None
        else:
            tree[name] = _kind([value.get(name) for value in values])
    return pa.schema(_typed(tree))


def flat_schema(samples: Sequence[bytes]) -> pa.Schema | None:
    """A schema with all fields of the samples; None if one of them has more than a plain value."""
    values = [_decoded(line) or {"": {}} for line in samples]
    names = dict.fromkeys(name for value in values for name in value)
    if any(isinstance(value.get(name), dict | list) for value in values for name in names):
        return None
    return pa.schema([pa.field(name, _kind([value.get(name) for value in values])) for name in names])


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None


def _nested(value: Any, name: str) -> Any:
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _kind(values: Iterable[Any]) -> Any:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return pa.float64()
    if kinds == {list}:
        return pa.list_(pa.string())
    plain: dict[type, Any] = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    return plain.get(kinds.pop(), pa.string()) if len(kinds) == 1 else pa.string()


def _typed(tree: Mapping[str, Any]) -> list[Any]:
    return [
        pa.field(name, pa.struct(_typed(kind)) if isinstance(kind, dict) else kind)
        for name, kind in tree.items()
    ]


def json_columns(table: Any, names: Iterable[str]) -> dict[str, Array | None]:
    """The columns of these fields, as far as the table has them. A field of the whole name comes before one
    inside an object."""
    columns: dict[str, Array | None] = {}
    for name in names:
        flat = table.column(name).combine_chunks() if name in table.column_names else None
        if "." in name:
            head, *path = name.split(".")
            if head not in table.column_names or not pa.types.is_struct(table.column(head).type):
                columns[name] = flat
                continue
            nested = table.column(head).combine_chunks()
            for part in path:
                nested = pc.struct_field(nested, part)
            flat = _first(flat, nested)
        columns[name] = flat
    return columns


def _first(flat: Array | None, nested: Array) -> Array:
    if flat is None or flat.null_count == len(flat):
        return nested
    if nested.null_count == len(nested):
        return flat
    if flat.type != nested.type:
        raise pa.ArrowInvalid("a field has values of several types")
    return pc.coalesce(flat, nested)
