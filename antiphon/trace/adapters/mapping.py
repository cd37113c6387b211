"""CSV and JSON lines with a mapping: a TOML file that says which column holds what.

format = "csv"                  # or "jsonl"
run = "tuesday"                 # the run's name; or columns.run
promises = ["duplicate", "fifo"]

[columns]                       # our name = the log's column; a dot leads into a JSON object
site = "host"                   # without it each file is a site
kind = "action"                 # without it every line is a delivery
message_id = "uuid"             # or sender and number, or all three
domain = "partition"
order = "sequence"              # what a site's rows are ordered by; equal values are unordered
time = "timestamp"              # for latency; and for the order if order = "timestamp"

[kinds]                         # values of columns.kind, and what they are here; others are skipped
published = "send"
consumed = "deliver"
"""

import csv
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from antiphon.core.errors import InputError
from antiphon.core.recording import KINDS, Kind, Property
from antiphon.trace.adapters.record import BadLine, BadLineError, Line, Record
from antiphon.trace.adapters.values import (
    LARGEST,
    LARGEST_SHORT,
    bad,
    flag,
    integer,
    json_object,
    look_up,
    parsed,
    required,
    text_of,
    time_ns,
)

MESSAGES: Final = frozenset(KINDS) - {"present", "absent"}
OWN_KINDS: Final[dict[str, Kind]] = {kind: kind for kind in KINDS}
TimeUnit = Literal["s", "ms", "us", "ns"]


class Columns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which column of the log holds what; None if none does."""

    run: str | None = None
    site: str | None = None
    kind: str | None = None
    sender: str | None = None
    number: str | None = None
    message_id: str | None = None
    domain: str | None = None
    order: str | None = None
    time: str | None = None
    attempt: str | None = None
    redelivered: str | None = None
    group: str | None = None
    destinations: str | None = None
    size: str | None = None


class Mapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How lines of CSV or JSON become records."""

    format: Literal["csv", "jsonl"]
    columns: Columns
    kinds: dict[str, Kind] = {}
    run: str | None = None
    promises: tuple[Property, ...] = ()
    time_unit: TimeUnit | None = None
    delimiter: str = ","
    destinations_separator: str = ";"

    @property
    def name(self) -> str:
        return self.format

    @property
    def marks_acceptance(self) -> bool:
        return False

    @property
    def is_numbered(self) -> bool:
        return self.columns.number is not None

    @property
    def is_ordered(self) -> bool:
        return self.columns.order is not None

    @property
    def reads_any_bytes(self) -> bool:
        return False

    @property
    def is_routed(self) -> bool:
        return False

    def parse(self, stem: str, lines: Iterator[Line]) -> Iterator[Record | BadLine]:
        if self.format == "jsonl":
            return parsed(lines, lambda line: self._records(stem, json_object(line.text)))
        return self._csv(stem, lines)

    def _csv(self, stem: str, lines: Iterator[Line]) -> Iterator[Record | BadLine]:
        """Each line is a row: quoted line breaks are not supported, and are reported as bad lines."""
        heading = next(lines, None)
        if heading is None:
            return
        names = self.cells(heading.text)
        for column in self.named():
            if column not in names:
                yield bad(heading, f"the heading has no column '{column}'")
                return
        yield from self.rows(stem, heading.text, lines)

    def rows(self, stem: str, heading: str, lines: Iterator[Line]) -> Iterator[Record | BadLine]:
        """The lines below the heading."""
        names = self.cells(heading)
        for line in lines:
            if not line.text.strip():
                continue
            cells = self.cells(line.text)
            if len(cells) != len(names):
                yield bad(line, f"{len(cells)} cells, where the heading has {len(names)}")
                continue
            try:
                yield from self._records(stem, dict(zip(names, cells, strict=True)))
            except BadLineError as error:
                yield bad(line, str(error))

    def cells(self, text: str) -> list[str]:
        return next(csv.reader([text], delimiter=self.delimiter), [])

    def named(self) -> list[str]:
        return [name for name in msgspec.structs.asdict(self.columns).values() if name is not None]

    def _records(self, stem: str, row: dict[str, Any]) -> Iterable[Record]:
        columns = self.columns
        kind = self._kind(row)
        if kind is None:
            return ()
        site = text_of(required(row, columns.site)) if columns.site else stem
        found = {
            name: look_up(row, column)
            for name, column in msgspec.structs.asdict(columns).items()
            if column is not None
        }
        name = columns.number or columns.message_id
        if kind in MESSAGES and (name is None or look_up(row, name) is None):
            raise BadLineError(f"no field '{name}', which names the message")
        return (self._record(site, kind, found),)

    def _kind(self, row: dict[str, Any]) -> Kind | None:
        if self.columns.kind is None:
            return "deliver"
        value = text_of(required(row, self.columns.kind))
        if not self.kinds and value not in OWN_KINDS:
            raise BadLineError(f"unknown kind {value[:40]!r}: [kinds] says what the log's own words mean")
        return (self.kinds or OWN_KINDS).get(value)

    def _record(self, site: str, kind: Kind, found: dict[str, Any]) -> Record:
        def whole(name: str, largest: int = LARGEST) -> int | None:
            return None if found.get(name) is None else integer(found[name], f"the {name}", largest)

        def text(name: str) -> str | None:
            return None if found.get(name) is None else text_of(found[name])

        if kind not in MESSAGES:
            return Record(site, kind, run=text("run"), order=self._order(found), time_ns=self._time(found))
        return Record(
            site, kind, run=text("run"), sender=text("sender") or (site if kind == "send" else None),
            number=whole("number"),
            message_id=text("message_id"), domain=text("domain"), order=self._order(found),
            attempt=self._attempt(found), group=text("group"), destinations=self._destinations(found),
            size=whole("size", LARGEST_SHORT), time_ns=self._time(found),
        )  # fmt: skip

    def _time(self, found: dict[str, Any]) -> int | None:
        return None if found.get("time") is None else time_ns(found["time"], self.time_unit)

    def _order(self, found: dict[str, Any]) -> int | None:
        value = found.get("order")
        if value is None:
            if self.columns.order is not None:
                raise BadLineError(f"no field '{self.columns.order}', by which rows are ordered")
            return None
        if self.columns.order == self.columns.time:
            return time_ns(value, self.time_unit)
        return integer(value, "the order")

    def _attempt(self, found: dict[str, Any]) -> int | None:
        if found.get("attempt") is not None:
            return integer(found["attempt"], "the attempt", LARGEST_SHORT)
        return None if found.get("redelivered") is None else 1 + flag(found["redelivered"])

    def _destinations(self, found: dict[str, Any]) -> tuple[str, ...] | None:
        value = found.get("destinations")
        if value is None:
            return None
        names = value if isinstance(value, list) else str(value).split(self.destinations_separator)
        return tuple(text_of(name) for name in names if name != "")


def read_mapping(path: Path) -> Mapping:
    """A mapping from a TOML file; an error names the file and the entry."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Mapping)
    except OSError as error:
        raise InputError(f"The mapping {path} cannot be read: {error.strerror or error}.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        hint = "docs/import.md has a whole mapping; antiphon import --guess LOG proposes one."
        raise InputError(f"The mapping {path} makes no sense: {error}.", hint) from error
    if found.columns.message_id is None and found.columns.number is None:
        hint = "Set columns.message_id, or columns.sender and columns.number."
        raise InputError(f"The mapping {path} does not say which column names the message.", hint)
    return found
