"""The table `calls` of a trace, read from Parquet files and from live clients' logs of JSON lines."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.core.calls import Call
from antiphon.core.errors import InputError
from antiphon.trace.arrow import CALLS, pa, pq
from antiphon.trace.call_log import LINES
from antiphon.trace.calls import text_value

REQUIRED_CALL_COLUMNS: Final = ("run", "client", "call", "object", "operation", "start", "end")
_HINT: Final = "See docs/trace.md for the columns of calls/."


def read_calls(file: Path) -> Iterator[Call]:
    """The calls of one file; InputError if it cannot be read."""
    rows = _lines(file) if file.name.endswith(LINES) else _parquet(file)
    for row in rows:
        try:
            yield _call(row)
        except (ValueError, TypeError, KeyError, msgspec.ValidationError) as error:
            raise InputError(f"A call in {file} cannot be read: {error}.", _HINT) from error


def _call(row: dict[str, Any]) -> Call:
    arguments = row.get("arguments")
    found = None if arguments is None else text_value(arguments)
    result = row.get("result")
    call = Call(
        row["client"],
        row["call"],
        row["object"],
        row["operation"],
        tuple(found) if isinstance(found, list) else (),
        None if result is None or row.get("end") is None else text_value(result),
        row["start"],
        row.get("end"),
        row.get("model"),
        row.get("clock"),
        row["run"],
    )
    if not isinstance(call.start, int) or (call.end is not None and not call.end >= call.start):
        raise ValueError(f"call {call.number} of {call.client} ends before it starts")
    return call


def _parquet(file: Path) -> Iterable[dict[str, Any]]:
    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} cannot be read as Parquet.", "The file is torn: write it again.") from error
    for name in REQUIRED_CALL_COLUMNS:
        if name not in table.column_names:
            raise InputError(f"The column {name} is missing from {file}.", _HINT)
    rows: list[dict[str, Any]] = table.select([n for n in CALLS.names if n in table.column_names]).to_pylist()
    return rows


def _lines(file: Path) -> Iterable[dict[str, Any]]:
    """A live client's calls. A line that was torn by a crash is left out."""
    found: dict[int, dict[str, Any]] = {}
    for line in file.read_bytes().split(b"\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and "start" in row:
            found[row["call"]] = row
        elif isinstance(row, dict) and row.get("call") in found:
            found[row["call"]] |= row
    return found.values()
