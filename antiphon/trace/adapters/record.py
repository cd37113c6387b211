"""What a parser makes of a log line: a record, or a reason why the line cannot be used."""

from collections.abc import Iterator
from typing import Protocol as Interface

import msgspec

from antiphon.core.ids import Group, Site
from antiphon.core.recording import Kind, Property


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line of a log file, decoded, without its line end; `number` counts from 1."""

    number: int
    text: str


class Record(msgspec.Struct, frozen=True, gc=False):
    """One event of a log, before messages are numbered and rows are ordered.

    A message is named by `sender` and `number`, or by `message_id`, or by both. `order` places the record
    among its site's records; None places it by its line. Records with equal `order` are unordered.
    """

    site: Site
    kind: Kind
    run: str | None = None
    sender: Site | None = None
    number: int | None = None
    message_id: str | None = None
    domain: str | None = None
    order: int | None = None
    attempt: int | None = None
    group: Group | None = None
    destinations: tuple[Site, ...] | None = None
    size: int | None = None
    time_ns: int | None = None


class BadLine(msgspec.Struct, frozen=True, gc=False):
    """A line that yields no record, and why.

    `hides` says whether the line may have been a record: then what its sites lack proves nothing.
    """

    number: int
    reason: str
    text: str
    hides: bool = True


class Format(Interface):
    """A kind of log. `parse` reads the lines of one file; `stem` is the file's name without its ending."""

    @property
    def name(self) -> str: ...

    @property
    def promises(self) -> tuple[Property, ...]:
        """What the system promises, as far as it is known; the importer drops what the log cannot show."""
        ...

    @property
    def marks_acceptance(self) -> bool:
        """Whether the log says which sends succeeded, by deliveries at `ACCEPTED`; otherwise all count."""
        ...

    @property
    def is_numbered(self) -> bool:
        """Whether every message has a number; otherwise every message has an id alone."""
        ...

    @property
    def is_ordered(self) -> bool:
        """Whether every record has `order`; otherwise none has."""
        ...

    @property
    def reads_any_bytes(self) -> bool:
        """Whether a line may hold bytes that are no text, such as a message's body, beside what is read."""
        ...

    @property
    def is_routed(self) -> bool:
        """Whether the system names the destinations, such as queues: those count that consumed anything."""
        ...

    def parse(self, stem: str, lines: Iterator[Line], /) -> Iterator[Record | BadLine]: ...


class BadLineError(Exception):
    """Raised by a parser's helpers; `parsed` turns it into a `BadLine`."""

    hides = True


class NoiseError(BadLineError):
    """Raised for a line that is certainly no record, such as a warning among a consumer's output."""

    hides = False
