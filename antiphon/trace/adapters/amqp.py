"""AMQP: JSON lines of publishers and consumers, and RabbitMQ's own message tracing (JSON format).

A message is named by its id. `event` (or `type`) says what a line tells: `publish`/`published` is a send,
`deliver`/`received`/`consume` a delivery. Who logged it is `client`, `consumer`, `publisher` or `site`, else
the queue or the user of RabbitMQ's tracing, else the file's name. `redelivered` marks a second attempt.
The tracing says which queues a message was routed to (`routed_queues`): it is for these.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from antiphon.core.recording import Kind, Property
from antiphon.trace.adapters.record import BadLine, BadLineError, Line, Record
from antiphon.trace.adapters.values import flag, json_object, look_up, parsed, required, text_of, time_ns

KINDS: Final[dict[str, Kind]] = {
    "publish": "send", "published": "send", "send": "send",
    "deliver": "deliver", "delivered": "deliver", "received": "deliver", "consume": "deliver",
}  # fmt: skip
IGNORED: Final = frozenset({"ack", "acked", "nack", "reject", "confirm", "confirmed"})


class Amqp(msgspec.Struct, frozen=True):
    name: str = "amqp"
    promises: tuple[Property, ...] = ("integrity", "atomicity")
    marks_acceptance: bool = False
    is_numbered: bool = False
    is_ordered: bool = False
    reads_any_bytes: bool = False
    is_routed: bool = True

    def parse(self, stem: str, lines: Iterator[Line]) -> Iterator[Record | BadLine]:
        return parsed(lines, lambda line: _records(stem, json_object(line.text)))


def _records(stem: str, values: dict[str, Any]) -> Iterable[Record]:
    event = text_of(required(values, "event", "type"))
    if event in IGNORED:
        return ()
    if event not in KINDS:
        raise BadLineError(f"unknown event {event[:40]!r}")
    kind = KINDS[event]
    at = look_up(values, "time", "timestamp")
    redelivered = look_up(values, "redelivered", "properties.redelivered")
    identity = text_of(required(values, "message_id", "properties.message_id"))
    site = _site(kind, values, stem)
    return (
        Record(
            site, kind, sender=site if kind == "send" else None, message_id=identity,
            attempt=None if redelivered is None else 1 + flag(redelivered),
            time_ns=None if at is None else time_ns(_rabbit_time(at)),
            destinations=_routes(values) if kind == "send" else None,
        ),
    )  # fmt: skip


def _site(kind: Kind, values: dict[str, Any], stem: str) -> str:
    named = look_up(values, "client", "site", "publisher" if kind == "send" else "consumer")
    if named is None:
        named = look_up(values, "connection", "user") if kind == "send" else look_up(values, "queue")
    return text_of(named or stem)


def _routes(values: dict[str, Any]) -> tuple[str, ...] | None:
    queues = look_up(values, "routed_queues")
    return tuple(map(text_of, queues)) if isinstance(queues, list) else None


def _rabbit_time(value: Any) -> Any:
    """RabbitMQ's tracing writes `2026-01-02 3:04:05:678`: no zero before 3, a colon before the fraction."""
    if isinstance(value, str) and value.count(":") == 3 and " " in value:
        day, _, clock = value.partition(" ")
        hour, minute, second, fraction = clock.split(":")
        return f"{day}T{hour.zfill(2)}:{minute}:{second}.{fraction}"
    return value
