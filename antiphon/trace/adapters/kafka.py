"""Kafka: what console consumers and `kcat -J` print, and what `kafka-dump-log` prints of a broker's log.

A message is named by its partition and offset, and a partition is its own ordering domain. A console
consumer must print partitions and offsets: `--property print.partition=true --property print.offset=true`.
The timestamp of a Kafka message is the producer's or the broker's: the time of a delivery is known only if
the output went through `ts '%.s'`, which puts it before each line. A file is one consumer, named by the file.
`kafka-dump-log --files 00000.log` tells what the broker accepted: with it, a message that no consumer got
is found missing.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from antiphon.core.recording import Property
from antiphon.trace.adapters.record import BadLine, BadLineError, Line, NoiseError, Record
from antiphon.trace.adapters.values import bad, integer, json_object, parsed, required, text_of, time_ns

_DUMPING = re.compile(r"Dumping (?:.*[/\\])?(?P<topic>[^/\\]+)-(?P<partition>\d+)[/\\][^/\\]*$")
_DUMPED = re.compile(
    r"\|?\s*offset: (?P<offset>\d+) (?:\w+: -?\d+ )*?(?:CreateTime|LogAppendTime): (?P<time>-?\d+)"
)
_DUMP_TALK = ("Starting offset:", "baseOffset:", "Log starting offset:", "| endTxnMarker", "isvalid:")
_FIELD = re.compile(r"(CreateTime|LogAppendTime|NoTimestampType|Partition|Offset)(?::(-?\d+))?")
_CLOSING = re.compile(r"(?:\S+ )?Processed a total of \d+ messages")
_READ_AT = re.compile(r"(?P<time>\d[\d.:TZ+-]*) (?=[CLNPO])")
_OF_A_RECORD = re.compile(r"\s*$|Crea|LogA|NoTi|Part|Offs|\{|.*(?:Partition:|Offset:)|\S*\d+\t")
"""What a record's line, or a piece of it, looks like; other lines are warnings and the like."""


class Kafka(msgspec.Struct, frozen=True):
    """`topic` names the topic that console consumers read; a broker's log names it itself."""

    topic: str | None = None
    name: str = "kafka"
    promises: tuple[Property, ...] = ("integrity", "atomicity", "fifo")
    marks_acceptance: bool = False
    is_numbered: bool = True
    is_ordered: bool = False

    def parse(self, stem: str, lines: Iterator[Line]) -> Iterator[Record | BadLine]:
        first = next((line for line in lines if line.text.strip()), None)
        if first is None:
            return
        lines = chain([first], lines)
        yield from self.dumped(lines, [None]) if is_dump(first.text) else self.consumed(stem, lines)

    def consumed(self, stem: str, lines: Iterator[Line]) -> Iterator[Record | BadLine]:
        """The lines of a consumer, wherever they begin."""
        return parsed(lines, lambda line: self._consumed(stem, line))

    def _consumed(self, stem: str, line: Line) -> Iterable[Record]:
        if _CLOSING.match(line.text):
            return ()
        if line.text.startswith("{"):
            return (self._kcat(stem, line),)
        read_at = _READ_AT.match(line.text)
        fields: dict[str, str | None] = {}
        for cell in line.text[read_at.end() if read_at else 0 :].split("\t"):
            found = _FIELD.fullmatch(cell)
            if found is None or found[1] in fields:
                break
            fields[found[1]] = found[2]
        if fields.get("Partition") is None or fields.get("Offset") is None:
            wrong = BadLineError if _OF_A_RECORD.match(line.text) else NoiseError
            raise wrong("no 'Partition:' and 'Offset:': set print.partition and print.offset")
        at = None if read_at is None else time_ns(read_at["time"])
        return (_taken(stem, f"{self.topic or 'topic'}-{fields['Partition']}", fields["Offset"], at),)

    def _kcat(self, stem: str, line: Line) -> Record:
        values = json_object(line.text)
        topic = self.topic or text_of(required(values, "topic"))
        partition = integer(required(values, "partition"), "the partition")
        return _taken(stem, f"{topic}-{partition}", required(values, "offset"), None)

    def dumped(self, lines: Iterator[Line], heading: list[str | None]) -> Iterator[Record | BadLine]:
        """The lines of a dump; `heading` holds the partition of the last heading before, and is updated."""
        for line in lines:
            text = line.text.strip()
            if text.startswith("Dumping "):
                heading[0] = self.partition(text)
                if heading[0] is None:
                    yield bad(line, "the folder's name is no topic and partition, such as orders-0")
            elif (row := _DUMPED.match(text)) and heading[0]:
                try:
                    yield _accepted(heading[0], row["offset"], row["time"])
                except BadLineError as error:
                    yield bad(line, str(error))
            elif text and not text.startswith(_DUMP_TALK):
                yield bad(line, "neither a record nor a heading of kafka-dump-log")

    def partition(self, heading: str) -> str | None:
        found = _DUMPING.match(heading)
        return f"{self.topic or found['topic']}-{found['partition']}" if found else None


def is_dump(text: str) -> bool:
    return text.startswith("Dumping ")


def _accepted(partition: str, offset: str, time: str) -> Record:
    number = integer(offset, "the offset")
    return Record(
        partition, "send", sender=partition, number=number, message_id=f"{partition}@{number}",
        domain=partition,
        time_ns=None if time.startswith("-") else time_ns(time, "ms"),
    )  # fmt: skip


def _taken(site: str, partition: str, offset: object, at: int | None) -> Record:
    number = integer(offset, "the offset")
    return Record(
        site, "deliver", sender=partition, number=number, message_id=f"{partition}@{number}",
        domain=partition, time_ns=at,
    )  # fmt: skip
