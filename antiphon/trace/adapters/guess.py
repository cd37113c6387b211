"""A mapping proposed from the first lines of a log, and what could not be told from them."""

import csv
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from antiphon.core.errors import InputError
from antiphon.core.recording import Kind
from antiphon.trace.adapters.mapping import Columns
from antiphon.trace.adapters.record import BadLineError, Line
from antiphon.trace.adapters.values import json_object, time_ns

SAMPLE_LINES: Final = 200
"""Lines that a guess looks at."""
NAMES: Final[dict[str, tuple[str, ...]]] = {
    "site": (
        "site",
        "host",
        "hostname",
        "node",
        "consumer",
        "client",
        "member",
        "instance",
        "worker",
        "service",
    ),
    "kind": ("kind", "event", "action", "type", "op", "operation", "f"),
    "message_id": ("message_id", "messageid", "msg_id", "msgid", "uuid", "id", "correlation_id", "key"),
    "sender": ("sender", "source", "producer", "publisher", "from", "origin", "author"),
    "number": ("number", "sequence", "seq", "seqno", "sequence_number", "offset", "counter"),
    "domain": ("domain", "partition", "topic", "stream", "queue", "shard", "channel"),
    "time": ("time", "timestamp", "ts", "at", "@timestamp", "datetime", "date"),
    "attempt": ("attempt", "num_delivered", "delivery_count", "tries"),
    "redelivered": ("redelivered", "redelivery", "is_redelivery"),
    "group": ("group",),
    "destinations": ("destinations", "recipients", "to"),
    "size": ("size", "bytes", "length"),
}
KIND_WORDS: Final[tuple[tuple[str, Kind], ...]] = (
    (r"(?i)^(send|sent|publish(ed)?|produced?|enqueued?|mcast|multicast|broadcast)$", "send"),
    (r"(?i)^(deliver(ed|y)?|consumed?|processe?d?|dequeued?|handled?)$", "deliver"),
    (r"(?i)^(receive[d]?|recv|fetch(ed)?)$", "receive"),
    (r"(?i)^(join(ed)?|start(ed)?|up|connect(ed)?|present)$", "present"),
    (r"(?i)^(leave|left|stop(ped)?|down|disconnect(ed)?|crash(ed)?|absent)$", "absent"),
)


class Guess(msgspec.Struct, frozen=True):
    """A proposed mapping, as TOML, and sentences about what the user must decide."""

    toml: str
    doubts: tuple[str, ...]


def guess(lines: Iterable[Line]) -> Guess:
    """Propose a mapping for CSV or JSON lines; InputError if they are neither."""
    sample = [line.text for line in lines if line.text.strip()][:SAMPLE_LINES]
    if not sample:
        raise InputError("The log has no lines to guess from.")
    form, delimiter, rows = _rows(sample)
    names = list(dict.fromkeys(name for row in rows for name in row))
    chosen = _columns(names)
    kinds, doubts = _kinds(rows, chosen)
    return Guess(_toml(form, delimiter, chosen, kinds), (*_doubts(rows, chosen), *doubts))


def _rows(sample: Sequence[str]) -> tuple[str, str, list[dict[str, Any]]]:
    try:
        return "jsonl", ",", [json_object(text) for text in sample[:-1] or sample]
    except BadLineError:
        pass
    delimiter = max(",;\t|", key=sample[0].count)
    names = next(csv.reader([sample[0]], delimiter=delimiter))
    cells = [next(csv.reader([text], delimiter=delimiter)) for text in sample[1:]]
    if len(names) < 2 or not any(len(row) == len(names) for row in cells):
        hint = "Its formats are kafka, nats, amqp, otlp, jepsen, and csv or jsonl with a mapping."
        raise InputError("The log is neither JSON lines nor CSV with a heading.", hint)
    rows = [dict(zip(names, row, strict=True)) for row in cells if len(row) == len(names)]
    return "csv", delimiter, rows


def _columns(names: Sequence[str]) -> dict[str, str]:
    """For each of our columns the first of its usual names that the log has, alone or among other words.

    A column serves once.
    """
    lowered = {name.lower(): name for name in reversed(names)}
    chosen: dict[str, str] = {}
    for matches in (str.__eq__, _contains):
        for ours, usual in NAMES.items():
            free = {low: name for low, name in lowered.items() if name not in chosen.values()}
            found = next((free[low] for word in usual for low in free if matches(low, word)), None)
            if found is not None and ours not in chosen:
                chosen[ours] = found
    return {name: chosen[name] for name in Columns.__struct_fields__ if name in chosen}


def _contains(name: str, word: str) -> bool:
    """Whether a name has a word, or words, among its own: `msg_uuid` has `uuid`."""
    return f"_{word}_" in f"_{re.sub(r'[^a-z0-9]+', '_', name)}_"


def _kinds(rows: Sequence[dict[str, Any]], chosen: dict[str, str]) -> tuple[dict[str, Kind], list[str]]:
    if "kind" not in chosen:
        return {}, ["No column says what a line is: every line counts as a delivery."]
    kinds: dict[str, Kind] = {}
    unclear: list[str] = []
    for word in dict.fromkeys(str(row.get(chosen["kind"])) for row in rows):
        kind = next((kind for pattern, kind in KIND_WORDS if re.match(pattern, word)), None)
        if kind is None:
            unclear.append(word)
        else:
            kinds[word] = kind
    doubts = [
        f"What '{word}' in '{chosen['kind']}' means is not known: such lines are skipped." for word in unclear
    ]
    return kinds, doubts


def _doubts(rows: Sequence[dict[str, Any]], chosen: dict[str, str]) -> list[str]:
    doubts: list[str] = []
    if "site" not in chosen:
        doubts.append("No column names the site: each file counts as one.")
    if "message_id" not in chosen and "number" not in chosen:
        doubts.append("No column names the message: set columns.message_id, or sender and number.")
    if "number" in chosen and "sender" not in chosen and "message_id" not in chosen:
        doubts.append("Numbers without a sender: set columns.sender, or they count per domain.")
    if "time" in chosen:
        doubts.extend(_doubt_of_times([row.get(chosen["time"]) for row in rows], chosen["time"]))
    doubts.append("What the system promises is not known: set promises, or use antiphon audit --expect.")
    doubts.append("Rows are ordered by their lines: set columns.order if files were merged or sorted.")
    return doubts


def _doubt_of_times(values: Sequence[Any], column: str) -> list[str]:
    try:
        times = [time_ns(value) for value in values if value is not None]
    except BadLineError as error:
        return [f"'{column}' is not understood as a time ({error}): remove columns.time or set time_unit."]
    if any(later < earlier for earlier, later in itertools.pairwise(times)):
        return [f"'{column}' goes back now and then: clocks differ, or lines are not in order."]
    return []


def _toml(form: str, delimiter: str, chosen: dict[str, str], kinds: dict[str, Kind]) -> str:
    lines = [f'format = "{form}"']
    if delimiter != ",":
        lines.append(f"delimiter = {_quoted(delimiter)}")
    lines += ["", "[columns]", *(f"{ours} = {_quoted(theirs)}" for ours, theirs in chosen.items())]
    if kinds:
        lines += ["", "[kinds]", *(f"{_quoted(word)} = {_quoted(kind)}" for word, kind in kinds.items())]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
