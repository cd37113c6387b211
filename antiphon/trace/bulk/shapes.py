"""What plain lines of each format look like, read as columns; its parser gets every other line.

A reader gives the records of a piece in the order of their lines. The columns are those of `RECORDS`.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from antiphon.trace.adapters.amqp import IGNORED, Amqp
from antiphon.trace.adapters.amqp import KINDS as AMQP_KINDS
from antiphon.trace.adapters.importing import Counted
from antiphon.trace.adapters.kafka import Dump, Kafka, is_dump
from antiphon.trace.adapters.mapping import MESSAGES, OWN_KINDS, Mapping
from antiphon.trace.adapters.nats import Nats
from antiphon.trace.adapters.record import BadLine, Format, Line, Record
from antiphon.trace.adapters.values import LARGEST_SHORT
from antiphon.trace.arrow import csv_rows, json_rows, pa, pc
from antiphon.trace.bulk.fields import Fields, bits, flat_schema, json_columns, json_schema
from antiphon.trace.bulk.source import Piece, line_starts
from antiphon.trace.schema import ACCEPTED

TEXT: Final = pa.dictionary(pa.int32(), pa.string())
RECORDS: Final = pa.schema(
    [
        ("run", TEXT), ("site", TEXT), ("kind", TEXT), ("sender", TEXT), ("domain", TEXT), ("group", TEXT),
        ("number", pa.int64()), ("message_id", pa.string()), ("order", pa.int64()), ("attempt", pa.int32()),
        ("destinations", pa.list_(pa.string())), ("size", pa.int32()), ("time_ns", pa.int64()),
    ]
)  # fmt: skip
SAMPLES: Final = 20
"""Lines of a block from which the types of fields are taken."""
SPLIT: Final = 32
"""Parts into which a block is cut where one of its values has another type than the samples."""
LONGEST_PLAIN: Final = 16_384
"""Bytes of a line that is read as a column: the depth of JSON in it is bounded by that."""

NATS_NUMBER: Final = ("stream_seq", "stream_sequence", "sequence.stream", "metadata.sequence.stream", "seq")
NATS_NAMES: Final = (
    "reply", "reply_subject", "stream", *NATS_NUMBER, "kind", "event", "time", "timestamp", "received",
    "client", "site", "consumer", "num_delivered", "delivered", "metadata.num_delivered", "redelivered",
)  # fmt: skip
ACKNOWLEDGEMENT: Final = (
    r"^\$JS\.ACK\.(?P<stream>[^.]+)\.(?P<consumer>[^.]+)\.(?P<delivered>\d{1,9})\.(?P<number>\d{1,18})"
    r"\.[^.]*\.[^.]*\.[^.]*$"
)
AMQP_NAMES: Final = (
    "event", "type", "time", "timestamp", "redelivered", "properties.redelivered", "message_id",
    "properties.message_id", "client", "site", "publisher", "consumer", "connection", "user", "queue",
)  # fmt: skip
ROUTED: Final = r'"routed_queues"\s*:\s*\['
CONSOLE: Final = (
    r"^(?:(?P<seconds>\d{9,10})\.(?P<fraction>\d{1,9}) )?"
    r"(?:(?:(?:CreateTime|LogAppendTime):-?\d+|NoTimestampType)\t)?"
    r"Partition:(?P<partition>\d{1,9})\tOffset:(?P<offset>\d{1,18})[\t\n]"
)
DUMPED: Final = (
    r"^\|?[ ]*offset: (?P<offset>\d{1,18}) (?:\w+: -?\d+ )*?(?:CreateTime|LogAppendTime): "
    r"(?P<time>-1|\d{1,14})[ \n]"
)
CONTROL: Final = (b"isTransactional: true", b"endTxnMarker: ", b"controlType: ", b"LeaderChange: ")
"""A dump with one of these has transactions or records of the broker's own: its lines depend on others."""

Columns = dict[str, Any]
Shape = Callable[["Block"], tuple[Columns, Any]]
"""Columns for each line of a block, and which lines are odd. A line without a `kind` yields no record."""


class Found(NamedTuple):
    """What a piece yields: records in order, lines that yield none and why, and the number of lines."""

    records: Any
    bad: list[BadLine]
    lines: int


class Block:
    """Lines of a piece."""

    def __init__(self, data: bytes) -> None:
        self.data, self.starts = data, line_starts(data)
        self.count = len(self.starts) - 1

    @property
    def texts(self) -> Any:
        """The lines with their line ends."""
        offsets = pa.py_buffer(self.starts.astype(np.int32))
        return pa.StringArray.from_buffers(self.count, offsets, pa.py_buffer(self.data))

    def line(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.starts[index + 1]]

    def only(self, kept: Any) -> "Block":
        """The lines that are kept."""
        if kept.all():
            return self
        edges = np.flatnonzero(np.diff(np.concatenate([[0], kept.astype(np.int8), [0]])))
        spans = zip(self.starts[edges[::2]].tolist(), self.starts[edges[1::2]].tolist(), strict=True)
        return Block(b"".join(self.data[begin:end] for begin, end in spans))

    def parts(self) -> "Iterator[tuple[int, Block]]":
        size = -(-self.count // SPLIT)
        for begin in range(0, self.count, size):
            end = min(begin + size, self.count)
            yield begin, Block(self.data[self.starts[begin] : self.starts[end]])


class Reader:
    """Reads the pieces of one stretch of a file, one after another."""

    def __init__(
        self, log: Format, stem: str, site: str | None, first_line: str | None, is_beginning: bool
    ) -> None:
        self._log, self._stem, self._site = log, stem, site
        self._is_dump = first_line is not None and is_dump(first_line)
        self._dump = Dump()
        self._lines_before = 0
        self._csv: Mapping | None = log if isinstance(log, Mapping) and log.format == "csv" else None
        self._csv_heading = first_line or ""
        self._is_beginning = is_beginning
        self._shape = self._shape_of(log)

    def _shape_of(self, log: Format) -> Shape | None:
        if isinstance(log, Nats):
            return json_shape(NATS_NAMES, lambda fields, block: nats_columns(fields, block, self._stem))
        if isinstance(log, Amqp):
            return json_shape(AMQP_NAMES, lambda fields, block: amqp_columns(fields, block, self._stem))
        if isinstance(log, Kafka):
            return self._dump_columns if self._is_dump else self._console_columns
        if isinstance(log, Mapping):
            names = log.named()
            if log.format == "jsonl":
                return json_shape(names, lambda fields, _: mapped_columns(log, fields, self._stem))
            return self._csv_columns
        return None

    def found(self, piece: Piece, is_last: bool = True) -> Found:
        """What a piece yields; the last one of a file also what waited for its end."""
        found = self._found(piece, is_last)
        self._lines_before += piece.lines
        return found

    def _found(self, piece: Piece, is_last: bool) -> Found:
        block = Block(piece.data)
        bad = list(piece.refused)
        if self._lacks_columns():
            first = self._csv.parse(self._stem, iter([Line(1, self._csv_heading)])) if self._csv else ()
            bad = [each for each in first if isinstance(each, BadLine)] if self._is_beginning else []
            self._is_beginning = False
            return Found(table_of([]), bad, piece.lines)
        columns, odd = self._read(block)
        if self._csv is not None and self._is_beginning and block.count:
            odd[0] = False
            columns = {**columns, "kind": _without(columns["kind"], 0)} if columns else columns
        self._is_beginning = False
        table, lines = record_table({}, 0), piece.numbers[:0]
        if columns:
            table = record_table(columns, block.count)
            is_record = bits(pc.is_valid(table.column("kind").combine_chunks())) & ~odd
            table, lines = (
                (table, piece.numbers)
                if is_record.all()
                else (table.filter(pa.array(is_record)), piece.numbers[is_record])
            )
        if odd.any() or (is_last and not self._dump.is_plain):
            records, places = self._odd_records(block, np.flatnonzero(odd), piece, bad, is_last)
            if records:
                table = pa.concat_tables([table, table_of(records)]).unify_dictionaries()
                table = table.take(np.argsort(np.concatenate([lines, places]), kind="stable"))
        return Found(self._at_site(table), sorted(bad, key=lambda each: each.number), piece.lines)

    def _lacks_columns(self) -> bool:
        """Whether a heading of CSV lacks a column that the mapping names: no line can be read then."""
        if self._csv is None:
            return False
        names = self._csv.cells(self._csv_heading)
        return any(name not in names for name in self._csv.named())

    def _read(self, block: Block) -> tuple[Columns, Any]:
        """Columns of the block; none where no line is plain."""
        if self._shape is None or not block.count:
            return {}, np.ones(block.count, bool)
        return self._shape(block)

    def _odd_records(
        self, block: Block, odd: Any, piece: Piece, bad: list[BadLine], is_last: bool
    ) -> tuple[list[Record], Any]:
        """What the format's own parser makes of some lines. They keep their numbers in the file, since what
        waits in a dump may be told later."""
        records, places = list[Record](), list[int]()
        before = self._lines_before
        lines = Counted(
            Line(before + int(piece.numbers[index]), block.line(index).decode().rstrip("\r\n"))
            for index in odd.tolist()
        )
        for found in chain(self._parsed(lines), self._dump.rest() if is_last else ()):
            if isinstance(found, BadLine):
                bad.append(msgspec.structs.replace(found, number=found.number - before))
            else:
                records.append(found)
                places.append(lines.number - before)
        return records, np.array(places, np.int64)

    def _parsed(self, lines: Iterator[Line]) -> Iterator[Record | BadLine]:
        """What the format's own parser makes of lines from anywhere in the file."""
        if isinstance(self._log, Kafka):
            if self._is_dump:
                return self._log.dumped(lines, self._dump)
            return self._log.consumed(self._stem, lines)
        if self._csv is not None:
            return self._csv.rows(self._stem, self._csv_heading, lines)
        return self._log.parse(self._stem, lines)

    def _at_site(self, table: Any) -> Any:
        """Records with the site that stands for all consumers, if there is one, in their place."""
        if self._site is None:
            return table
        sites, kinds = table.column("site").cast(pa.string()), table.column("kind").cast(pa.string())
        own = pc.or_(pc.equal(kinds, "send"), pc.equal(sites, ACCEPTED))
        moved = pc.if_else(own, sites, self._site).cast(TEXT)
        table = table.set_column(table.column_names.index("site"), "site", moved)
        if "destinations" not in table.column_names:
            return table
        named = table.column("destinations")
        is_named = pc.fill_null(pc.greater(pc.list_value_length(named), 0), False)
        merged = pc.if_else(is_named, pa.scalar([self._site], named.type), named)
        return table.set_column(table.column_names.index("destinations"), "destinations", merged)

    def _console_columns(self, block: Block) -> tuple[Columns, Any]:
        topic = self._log.topic if isinstance(self._log, Kafka) else None
        if block.data.startswith(b"{"):
            return json_shape(
                ("topic", "partition", "offset"), lambda fields, _: kcat_columns(fields, self._stem, topic)
            )(block)
        parts = pc.extract_regex(block.texts, CONSOLE)
        odd = bits(pc.is_null(parts))
        domain = pc.binary_join_element_wise(topic or "topic", pc.struct_field(parts, "partition"), "-")
        seconds = pc.struct_field(parts, "seconds")
        time = None
        if pc.any(pc.greater(pc.binary_length(seconds), 0)).as_py():
            digits = pc.utf8_rpad(pc.struct_field(parts, "fraction"), 9, "0")
            none = pc.equal(seconds, "")
            joined = pc.binary_join_element_wise(seconds, digits, "")
            time = pc.replace_with_mask(joined, pc.fill_null(none, False), pa.scalar(None, pa.string()))
            time = time.cast(pa.int64())
        number = pc.struct_field(parts, "offset").cast(pa.int64())
        return numbered_columns(domain, number, {"site": self._stem, "kind": "deliver", "time_ns": time}), odd

    def _dump_columns(self, block: Block) -> tuple[Columns, Any]:
        """Rows of a dump. Headings are followed in order; lines under none are odd."""
        assert isinstance(self._log, Kafka)
        if not self._dump.is_plain or any(sign in block.data for sign in CONTROL):
            return {}, np.ones(block.count, bool)
        parts = pc.extract_regex(block.texts, DUMPED)
        odd = bits(pc.is_null(parts))
        known = [self._dump.partition]
        places = np.zeros(block.count, np.int32)
        for index in np.flatnonzero(bits(pc.starts_with(pc.utf8_ltrim_whitespace(block.texts), "Dumping "))):
            known.append(self._log.partition(block.line(int(index)).decode().strip()))
            places[index:] = len(known) - 1
        names = pa.array(known, pa.string())
        domain = names.take(pa.array(places))
        odd |= bits(pc.is_null(domain))
        millis = pc.struct_field(parts, "time").cast(pa.int64())
        none = pc.fill_null(pc.less(millis, 0), False)
        time = pc.multiply(pc.replace_with_mask(millis, none, pa.scalar(None, pa.int64())), 1_000_000)
        too_late = bits(pc.greater(millis, 9 * 10**12))
        number = pc.struct_field(parts, "offset").cast(pa.int64())
        columns = numbered_columns(domain, number, {"site": domain, "kind": "send", "time_ns": time})
        return columns, odd | too_late

    def _csv_columns(self, block: Block) -> tuple[Columns, Any]:
        assert self._csv is not None
        log, names = self._csv, self._csv.cells(self._csv_heading)
        wanted = list(dict.fromkeys(log.named()))
        is_usual = log.delimiter == "\t" or (log.delimiter.isascii() and not log.delimiter.isspace())
        if len(set(names)) < len(names) or len(names) == 1 or not is_usual:
            return {}, np.ones(block.count, bool)
        texts = block.texts
        plain = bits(pc.equal(pc.count_substring(texts, log.delimiter), len(names) - 1))
        for character in ('"', "\r", "\0"):
            if character.encode() in block.data:
                plain &= ~bits(pc.match_substring(texts, character))
        plain &= ~bits(pc.match_substring_regex(texts, r"^\s*$"))
        if not plain.any():
            return {}, np.ones(block.count, bool)
        kept = block.only(plain)
        table = csv_rows(kept.data, names, wanted, log.delimiter)
        fields = Fields({name: table.column(name).combine_chunks() for name in wanted}, kept.count)
        columns = mapped_columns(log, fields, self._stem)
        return spread(columns, fields.odd, plain)


def json_shape(names: Sequence[str], columns_of: Callable[[Fields, Block], Columns]) -> Shape:
    """Lines of JSON with these fields.

    Mostly all lines have the same fields, and these are read; a block with others is read once more.
    """
    is_usual = True

    def rows(block: Block, samples: Sequence[bytes]) -> Any:
        nonlocal is_usual
        usual = flat_schema(samples) if is_usual else None
        if usual is not None:
            try:
                return json_rows(block.data, usual, has_all=True)
            except pa.ArrowInvalid:
                is_usual = False
        schema = json_schema(names, samples)
        return None if schema is None else json_rows(block.data, schema)

    def read(block: Block) -> tuple[Columns, Any]:
        plain = plain_json(block)
        if not plain.any():
            return {}, np.ones(block.count, bool)
        kept = block.only(plain)
        columns, odd = typed(kept)
        return spread(columns, odd, plain)

    def typed(block: Block) -> tuple[Columns, Any]:
        places = np.unique(np.linspace(0, block.count - 1, SAMPLES).astype(int))
        try:
            table = rows(block, [block.line(place) for place in places.tolist()])
            if table is None:
                return {}, np.ones(block.count, bool)
            if len(table) != block.count:
                raise pa.ArrowInvalid("a line holds several values")
            fields = Fields(json_columns(table, names), block.count)
            return columns_of(fields, block), fields.odd
        except pa.ArrowInvalid:
            return apart(block)

    def apart(block: Block) -> tuple[Columns, Any]:
        """A block with a value of another type, in parts: what remains of it at last is odd."""
        if block.count <= SPLIT:
            return {}, np.ones(block.count, bool)
        odd = np.zeros(block.count, bool)
        tables, kept = [], np.zeros(block.count, bool)
        for begin, part in block.parts():
            columns, part_odd = typed(part)
            odd[begin : begin + part.count] = part_odd
            if columns:
                tables.append(record_table(columns, part.count))
                kept[begin : begin + part.count] = True
        if not tables:
            return {}, odd
        table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        return spread(columns, odd[kept], kept)

    return read


def plain_json(block: Block) -> Any:
    """Lines that hold one JSON object from the first byte to the last, as far as bytes can show."""
    buffer = np.frombuffer(block.data, np.uint8)
    begin, end = block.starts[:-1], block.starts[1:]
    plain = (buffer[begin] == ord("{")) & (buffer[np.maximum(end - 2, 0)] == ord("}"))
    plain &= (end - begin) <= LONGEST_PLAIN
    for constant in ("NaN", "Inf"):
        if constant.encode() in block.data:
            plain &= ~bits(pc.match_substring(block.texts, constant))
    return plain


def spread(columns: Columns, odd: Any, plain: Any) -> tuple[Columns, Any]:
    """Columns of the plain lines as columns of all lines; the others are odd."""
    if plain.all():
        return columns, odd
    every = np.ones(len(plain), bool)
    every[plain] = odd
    if not columns:
        return {}, every
    places = pa.array(np.cumsum(plain) - 1, mask=~plain)
    return {
        name: value.take(places) if isinstance(value, pa.Array) else value for name, value in columns.items()
    }, every


def numbered_columns(domain: Any, number: Any, others: Columns) -> Columns:
    """Messages that their domain and number name."""
    identity = pc.binary_join_element_wise(domain, number.cast(pa.string()), "@")
    coded = domain.dictionary_encode()
    return {"sender": coded, "number": number, "message_id": identity, "domain": coded, **others}


def kcat_columns(fields: Fields, stem: str, topic: str | None) -> Columns:
    partition, number = fields.whole("partition"), fields.whole("offset")
    named = None if topic else fields.text("topic")
    for column in (partition, number, *([] if topic else [named])):
        fields.required(column)
    if partition is None or number is None or (named is None and topic is None):
        return {}
    domain = pc.binary_join_element_wise(
        named if named is not None else topic, partition.cast(pa.string()), "-"
    )
    return numbered_columns(domain, number, {"site": stem, "kind": "deliver"})


def nats_columns(fields: Fields, block: Block, stem: str) -> Columns:
    reply = fields.text("reply", "reply_subject")
    acknowledged = Columns()
    if reply is not None:
        parts = pc.extract_regex(reply, ACKNOWLEDGEMENT)
        fields.mark(pc.and_(pc.is_valid(reply), pc.is_null(parts)))
        for nothing in ("null", '""'):
            if nothing.encode() in block.data:
                fields.mark(pc.and_(pc.is_valid(reply), pc.match_substring(block.texts, nothing)))
        names = ("stream", "consumer", "delivered", "number")
        acknowledged = {name: pc.struct_field(parts, name) for name in names}
    stream = _first(fields.text("stream"), acknowledged.get("stream"))
    number = fields.whole(*NATS_NUMBER)
    if acknowledged:
        # A field of the line comes before one of its subject; the others stand behind `stream_seq`.
        fields.mark(_both(fields.look_up(*NATS_NUMBER), reply))
        number = _first(number, acknowledged["number"].cast(pa.int64()))
    for column in (stream, number):
        fields.required(column)
    if stream is None or number is None:
        return {}
    kind = fields.look_up("kind", "event")
    is_send = (
        pc.is_in(kind, value_set=pa.array(["send", "publish", "published"]))
        if (kind is not None and pa.types.is_string(kind.type))
        else pa.array(np.zeros(fields.count, bool))
    )
    site = _first(
        fields.text("client", "site"), _first(fields.text("consumer"), acknowledged.get("consumer"))
    )
    site = pa.scalar(stem) if site is None else pc.fill_null(site, stem)
    attempt = fields.whole("num_delivered", "delivered", "metadata.num_delivered", largest=LARGEST_SHORT)
    if acknowledged:
        fields.mark(_both(attempt, reply))
        attempt = _first(attempt, acknowledged["delivered"].cast(pa.int64()))
    attempt = _first(attempt, _second(fields.flag("redelivered")))
    if attempt is not None:
        attempt = pc.if_else(is_send, pa.scalar(None, pa.int64()), attempt)
    return numbered_columns(
        stream, number,
        {
            "site": pc.if_else(is_send, stream, site), "kind": pc.if_else(is_send, "send", "deliver"),
            "attempt": attempt, "time_ns": fields.time(None, "time", "timestamp", "received"),
        },
    )  # fmt: skip


def amqp_columns(fields: Fields, block: Block, stem: str) -> Columns:
    # The field has another type on other lines.
    fields.mark(pc.match_substring_regex(block.texts, ROUTED))
    event = fields.text("event", "type")
    identity = fields.text("message_id", "properties.message_id")
    fields.required(event)
    if event is None:
        return {}
    kind = _renamed(event, {**AMQP_KINDS, **dict.fromkeys(IGNORED, None)})
    ignored = pc.is_in(event, value_set=pa.array(sorted(IGNORED)))
    fields.mark(pc.and_(pc.is_null(kind), pc.invert(ignored)))
    without = pa.array(np.ones(fields.count, bool)) if identity is None else pc.is_null(identity)
    fields.mark(pc.and_(without, pc.invert(pc.fill_null(ignored, False))))
    is_send = pc.fill_null(pc.equal(kind, "send"), False)
    named = fields.text("client", "site")

    def site(own: str, *others: str) -> Any:
        found = _first(named, _first(fields.text(own), fields.text(*others)))
        return pa.scalar(stem) if found is None else pc.fill_null(found, stem)

    sites = pc.if_else(is_send, site("publisher", "connection", "user"), site("consumer", "queue"))
    return {
        "site": sites, "kind": kind, "message_id": identity,
        "sender": pc.if_else(is_send, sites, pa.scalar(None, pa.string())),
        "attempt": _second(fields.flag("redelivered", "properties.redelivered")),
        "time_ns": fields.time(None, "time", "timestamp"),
    }  # fmt: skip


def mapped_columns(log: Mapping, fields: Fields, stem: str) -> Columns:
    columns = log.columns

    def text(name: str | None) -> Any:
        return None if name is None else fields.text(name)

    site = text(columns.site)
    kind: Any = pa.scalar("deliver")
    if columns.kind is not None:
        word = text(columns.kind)
        fields.required(word)
        if word is None:
            return {}
        kind = _renamed(word, log.kinds or OWN_KINDS)
        if not log.kinds:
            fields.mark(pc.is_null(kind))
    kinds = pa.repeat(kind, fields.count) if isinstance(kind, pa.Scalar) else kind
    skipped = pc.is_null(kinds)
    if columns.site is not None:
        fields.mark(pc.invert(skipped) if site is None else pc.and_(pc.is_null(site), pc.invert(skipped)))
    # Rows that speak of no message have fewer columns: they are left to the parser.
    message = pc.is_in(kinds, value_set=pa.array(sorted(MESSAGES)))
    fields.mark(pc.and_(pc.invert(skipped), pc.invert(message)))
    number = None if columns.number is None else fields.whole(columns.number)
    identity = text(columns.message_id)
    name = number if columns.number is not None else identity
    fields.mark(pc.invert(skipped) if name is None else pc.and_(pc.is_null(name), pc.invert(skipped)))
    time = None if columns.time is None else fields.time(log.time_unit, columns.time)
    order = None
    if columns.order is not None:
        order = time if columns.order == columns.time else fields.whole(columns.order)
        fields.mark(pc.invert(skipped) if order is None else pc.and_(pc.is_null(order), pc.invert(skipped)))
    attempt = None if columns.attempt is None else fields.whole(columns.attempt, largest=LARGEST_SHORT)
    if columns.redelivered is not None:
        attempt = _first(attempt, _second(fields.flag(columns.redelivered)))
    sites = pa.scalar(stem) if site is None else site
    is_send = pc.equal(kinds, "send")
    sender = pc.if_else(is_send, sites, pa.scalar(None, pa.string()))
    return {
        "run": text(columns.run), "site": sites, "kind": kinds,
        "sender": _first(text(columns.sender), sender),
        "number": number, "message_id": identity, "domain": text(columns.domain), "order": order,
        "attempt": attempt, "group": text(columns.group), "destinations": _listed(log, fields),
        "size": None if columns.size is None else fields.whole(columns.size, largest=LARGEST_SHORT),
        "time_ns": time,
    }  # fmt: skip


def _listed(log: Mapping, fields: Fields) -> Any:
    """Names of destinations, from a list or from a text with separators between them."""
    column = None if log.columns.destinations is None else fields.look_up(log.columns.destinations)
    if column is None:
        return None
    if pa.types.is_list(column.type):
        names = pc.list_flatten(column)
        hollow = pc.or_(pc.is_null(names), pc.equal(names, ""))
        if pc.any(hollow).as_py():
            fields.mark(pc.is_valid(column))
        return column
    texts = fields.text(log.columns.destinations or "")
    if texts is None or not log.destinations_separator:
        fields.mark(pc.is_valid(column))
        return None
    lists = pc.split_pattern(texts, log.destinations_separator)
    hollow = pc.match_substring_regex(pc.binary_join(lists, "\n"), r"^\n|\n\n|\n$")
    fields.mark(hollow)
    return lists


def _renamed(words: Any, meanings: Any) -> Any:
    """Each word's meaning; null if it has none."""
    coded = words.dictionary_encode()
    values = pa.array([meanings.get(word) for word in coded.dictionary.to_pylist()], pa.string())
    return values.take(coded.indices)


def _first(column: Any, other: Any) -> Any:
    if column is None or other is None:
        return other if column is None else column
    return pc.coalesce(column, other)


def _both(column: Any, other: Any) -> Any:
    if column is None or other is None:
        return np.zeros(0 if other is None else len(other), bool)
    return pc.and_(pc.is_valid(column), pc.is_valid(other))


def _second(flags: Any) -> Any:
    """1 for a first delivery, 2 for one that was delivered before."""
    return None if flags is None else pc.add(flags.cast(pa.int64()), 1)


def _without(column: Any, index: int) -> Any:
    """The column with null at this row."""
    mask = np.zeros(len(column), bool)
    mask[index] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, column.type), column)


def record_table(columns: Columns, count: int) -> Any:
    """Columns as a table of `RECORDS`; a plain text stands for every row."""
    arrays = []
    for field in RECORDS:
        value = columns.get(field.name)
        if value is None:
            arrays.append(pa.nulls(count, field.type))
        elif isinstance(value, str | pa.Scalar):
            text = value.as_py() if isinstance(value, pa.Scalar) else value
            codes = pa.array(np.zeros(count, np.int32))
            arrays.append(pa.DictionaryArray.from_arrays(codes, pa.array([text])))
        elif field.type == TEXT and not pa.types.is_dictionary(value.type):
            arrays.append(value.dictionary_encode())
        else:
            arrays.append(value if value.type == field.type else value.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=RECORDS)


def table_of(records: Sequence[Record]) -> Any:
    """Records of a parser as a table."""
    arrays = []
    for field in RECORDS:
        kind = pa.string() if field.type == TEXT else field.type
        column = pa.array([getattr(record, field.name) for record in records], kind)
        arrays.append(column.dictionary_encode() if field.type == TEXT else column)
    return pa.Table.from_arrays(arrays, schema=RECORDS)
