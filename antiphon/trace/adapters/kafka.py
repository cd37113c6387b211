"""Kafka: what console consumers and `kcat -J` print, and what `kafka-dump-log` prints of a broker's log.

A message is named by its partition and offset, and a partition is its own ordering domain. A console
consumer must print partitions and offsets: `--property print.partition=true --property print.offset=true`.
The timestamp of a Kafka message is the producer's or the broker's: the time of a delivery is known only if
the output went through `ts '%.s'`, which puts it before each line. A file is one consumer, named by the file.
`kafka-dump-log --files 00000.log` tells what the broker accepted: with it, a message that no consumer got
is found missing. Markers of transactions are no messages, and messages of an aborted transaction were not
accepted.
"""

import re
from collections import deque
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
_PRODUCER = re.compile(r"producerId: (?P<producer>-?\d+) .*isTransactional: (?P<transactional>true|false)")
_CONTROL = re.compile(
    r"headerKeys: \[[^]]*\] (?:endTxnMarker: (?P<end>COMMIT|ABORT)|controlType: |LeaderChange: |Snapshot\w+ |"
    r"KRaftVersion |KRaftVoters )"
)
_FIELD = re.compile(r"(CreateTime|LogAppendTime|NoTimestampType|Partition|Offset)(?::(-?\d+))?")
_CLOSING = re.compile(r"(?:\S+ )?Processed a total of \d+ messages")
_READ_AT = re.compile(r"(?P<time>\d[\d.:TZ+-]*) (?=[CLNPO])")
_OF_A_RECORD = re.compile(r"\s*$|Crea|LogA|NoTi|Part|Offs|\{|.*(?:Partition:|Offset:|\0)|\S*\d+\t")
"""What a record's line, or a piece of it, looks like; other lines are warnings and the like."""


class _Waiting:
    """A record behind a transaction that is open, and its own transaction, if it is in one."""

    def __init__(self, record: Record, line: Line, transaction: tuple[str, int] | None) -> None:
        self.record, self.line, self.transaction = record, line, transaction
        self.is_aborted = False


class Dump:
    """What the lines of a broker's log say of the lines after them."""

    def __init__(self) -> None:
        self.partition: str | None = None
        self.producer: int | None = None
        """The producer of the transaction that the records of this batch belong to, if any."""
        self._waiting: deque[_Waiting] = deque()

    @property
    def is_plain(self) -> bool:
        """Whether nothing waits, and records that follow belong to no transaction."""
        return self.producer is None and not self._waiting

    def enter(self, text: str) -> None:
        """The heading of a batch, or what an older dump says of the batch beside each of its records."""
        found = _PRODUCER.search(text)
        self.producer = int(found["producer"]) if found and found["transactional"] == "true" else None

    def take(self, line: Line, text: str, row: re.Match[str]) -> Iterator[Record | BadLine]:
        """A record, or the marker that ends a transaction, and what need not wait any longer."""
        assert self.partition is not None
        about = text.partition(" payload: ")[0]
        if "isTransactional: " in about:
            self.enter(about)
        transaction = None if self.producer is None else (self.partition, self.producer)
        if marker := _CONTROL.search(about):
            yield from self._end(transaction, marker["end"] == "ABORT")
            return
        try:
            record = _accepted(self.partition, row["offset"], row["time"])
        except BadLineError as error:
            yield bad(line, str(error))
            return
        if transaction is None and not self._waiting:
            yield record
        else:
            self._waiting.append(_Waiting(record, line, transaction))

    def _end(self, transaction: tuple[str, int] | None, is_aborted: bool) -> Iterator[Record | BadLine]:
        for each in self._waiting:
            if each.transaction is not None and each.transaction == transaction:
                each.transaction, each.is_aborted = None, is_aborted
        while self._waiting and self._waiting[0].transaction is None:
            yield self._told(self._waiting.popleft())

    def rest(self) -> Iterator[Record | BadLine]:
        """What waits at the end of the dump."""
        while self._waiting:
            yield self._told(self._waiting.popleft())

    @staticmethod
    def _told(each: _Waiting) -> Record | BadLine:
        if each.transaction is not None:
            return bad(each.line, "its transaction has no end in this log")
        return bad(each.line, "its transaction was aborted", hides=False) if each.is_aborted else each.record


class Kafka(msgspec.Struct, frozen=True):
    """`topic` names the topic that console consumers read; a broker's log names it itself."""

    topic: str | None = None
    name: str = "kafka"
    promises: tuple[Property, ...] = ("integrity", "atomicity", "fifo")
    marks_acceptance: bool = False
    is_numbered: bool = True
    is_ordered: bool = False
    reads_any_bytes: bool = True
    is_routed: bool = False

    def parse(self, stem: str, lines: Iterator[Line]) -> Iterator[Record | BadLine]:
        first = next((line for line in lines if line.text.strip()), None)
        if first is None:
            return
        lines = chain([first], lines)
        if is_dump(first.text):
            dump = Dump()
            yield from self.dumped(lines, dump)
            yield from dump.rest()
        else:
            yield from self.consumed(stem, lines)

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

    def dumped(self, lines: Iterator[Line], dump: Dump) -> Iterator[Record | BadLine]:
        """The lines of a dump; `dump` holds what the lines before say, and is brought up to date.

        What follows a transaction that is still open waits until that ends. `Dump.rest` has what waits at the
        end of the dump.
        """
        for line in lines:
            text = line.text.strip()
            if text.startswith("Dumping "):
                dump.partition = self.partition(text)
                dump.producer = None
                if dump.partition is None:
                    yield bad(line, "the folder's name is no topic and partition, such as orders-0")
            elif text.startswith("baseOffset:"):
                dump.enter(text)
            elif (row := _DUMPED.match(text)) and dump.partition:
                yield from dump.take(line, text, row)
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
