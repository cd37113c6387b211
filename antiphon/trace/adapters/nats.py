"""NATS JetStream: JSON lines that consumers write, a line for each delivery.

A line has the stream, the consumer, the stream's sequence number and how often the message was delivered:
as fields (`stream`, `consumer`, `stream_seq`, `num_delivered` or `redelivered`), or all of them as the reply
subject `$JS.ACK.…` of the delivery (`reply`). `"kind": "send"` marks a publisher's line, which has the
sequence number of the acknowledgement. A stream is its own ordering domain. The time is the client's own
(`time`); the time in a reply subject is the server's, and is not used.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from antiphon.core.recording import Property
from antiphon.trace.adapters.record import BadLine, BadLineError, Line, Record
from antiphon.trace.adapters.values import (
    LARGEST_SHORT,
    flag,
    integer,
    json_object,
    look_up,
    parsed,
    required,
    text_of,
    time_ns,
)


class Nats(msgspec.Struct, frozen=True):
    name: str = "nats"
    promises: tuple[Property, ...] = ("integrity", "atomicity", "fifo")
    marks_acceptance: bool = False
    is_numbered: bool = True
    is_ordered: bool = False
    reads_any_bytes: bool = False
    is_routed: bool = False

    def parse(self, stem: str, lines: Iterator[Line]) -> Iterator[Record | BadLine]:
        return parsed(lines, lambda line: _records(stem, json_object(line.text)))


def _records(stem: str, values: dict[str, Any]) -> Iterable[Record]:
    reply = look_up(values, "reply", "reply_subject")
    values = {**_acknowledgement(text_of(reply)), **values} if reply is not None else values
    stream = text_of(required(values, "stream"))
    number = integer(
        required(
            values, "stream_seq", "stream_sequence", "sequence.stream", "metadata.sequence.stream", "seq"
        ),
        "the stream's sequence number",
    )
    is_send = look_up(values, "kind", "event") in ("send", "publish", "published")
    at = look_up(values, "time", "timestamp", "received")
    return (
        Record(
            stream if is_send else text_of(look_up(values, "client", "site", "consumer") or stem),
            "send" if is_send else "deliver",
            sender=stream, number=number, message_id=f"{stream}@{number}", domain=stream,
            attempt=None if is_send else _attempt(values), time_ns=None if at is None else time_ns(at),
        ),
    )  # fmt: skip


def _attempt(values: dict[str, Any]) -> int | None:
    delivered = look_up(values, "num_delivered", "delivered", "metadata.num_delivered")
    if delivered is not None:
        return integer(delivered, "the number of deliveries", LARGEST_SHORT)
    redelivered = look_up(values, "redelivered")
    return None if redelivered is None else 1 + flag(redelivered)


def _acknowledgement(reply: str) -> dict[str, Any]:
    """The fields of `$JS.ACK.[domain.account.]stream.consumer.delivered.sequence.sequence.time.pending`."""
    parts = reply.split(".")
    if parts[:2] != ["$JS", "ACK"] or len(parts) < 9:
        raise BadLineError(f"no acknowledgement subject: {reply[:60]!r}")
    fields = parts[2:9] if len(parts) == 9 else parts[4:11]
    names = ("stream", "consumer", "num_delivered", "stream_seq", "consumer_seq")
    return dict(zip(names, fields, strict=False))
