"""OpenTelemetry: messaging spans as OTLP JSON, a request (`{"resourceSpans": …}`) a line.

The semantic conventions for messaging say which span is what: `send`, `publish` and `create` are sends,
`receive` is a reception, `process` and `deliver` are deliveries; others are skipped. The site is
`service.instance.id`, else `service.name`. Spans are ordered by their start times, so spans of one site with
the same start are unordered. A destination's partition is an ordering domain.
A producer's span often begins before its partition is chosen: then the spans of consumers name it. A message
is for those that process what is sent to its destination. Older conventions have other
names for the same, and none for what a producer's span does: programs of several versions may write one log.
A span of a batch names no message: one that receives is skipped, and one that sends what it links to.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from antiphon.core.recording import Kind, Property
from antiphon.trace.adapters.record import BadLine, BadLineError, Line, Record
from antiphon.trace.adapters.values import bad, integer, json_object, required, text_of

KINDS: Final[dict[str, Kind]] = {
    "send": "send", "publish": "send", "create": "send",
    "receive": "receive", "process": "deliver", "deliver": "deliver",
}  # fmt: skip
OPERATION: Final = ("messaging.operation.type", "messaging.operation")
IDENTITY: Final = ("messaging.message.id", "messaging.message_id")
DESTINATION: Final = ("messaging.destination.name", "messaging.destination")
PARTITION: Final = (
    "messaging.destination.partition.id", "messaging.kafka.destination.partition",
    "messaging.kafka.partition",
)  # fmt: skip
BATCH: Final = "messaging.batch.message_count"
PRODUCER: Final = (4, "SPAN_KIND_PRODUCER")


class Otlp(msgspec.Struct, frozen=True):
    name: str = "otlp"
    promises: tuple[Property, ...] = ("integrity", "atomicity")
    marks_acceptance: bool = False
    is_numbered: bool = False
    is_ordered: bool = True
    reads_any_bytes: bool = False
    is_routed: bool = False

    def parse(self, stem: str, lines: Iterator[Line]) -> Iterator[Record | BadLine]:
        for line in lines:
            if line.text.strip():
                yield from _records(stem, line)


def _records(stem: str, line: Line) -> Iterator[Record | BadLine]:
    """What the spans of a line tell; one that cannot be used leaves the others as they are."""
    try:
        spans = list(_spans(stem, json_object(line.text)))
    except BadLineError as error:
        yield bad(line, str(error))
        return
    for site, span in spans:
        try:
            yield from _record(site, span)
        except BadLineError as error:
            yield bad(line, str(error))


def _spans(stem: str, request: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The spans of a request, and their sites."""
    if "resourceLogs" in request or "resourceMetrics" in request:
        return  # the collector's other signals
    for resource in _list(request, "resourceSpans"):
        about = _attributes(resource.get("resource") or {})
        site = text_of(about.get("service.instance.id") or about.get("service.name") or stem)
        for scope in _list(resource, "scopeSpans", "instrumentationLibrarySpans"):
            for span in _list(scope, "spans"):
                yield site, span


def _record(site: str, span: dict[str, Any]) -> Iterable[Record]:
    attributes = _attributes(span)
    operation = _first(attributes, OPERATION)
    if operation is None and "messaging.system" in attributes and span.get("kind") in PRODUCER:
        operation = "send"
    kind = KINDS.get(str(operation))
    if kind is None:
        return
    identity = _first(attributes, IDENTITY)
    if identity is None and BATCH in attributes:
        if kind == "receive" or (kind == "send" and span.get("links")):
            return  # spans of their own tell of the batch's messages
        raise BadLineError(f"a {operation} span of a batch, which does not name its messages")
    start = integer(required(span, "startTimeUnixNano"), "the start time")
    if identity is None:
        raise BadLineError(f"a {operation} span without messaging.message.id")
    partition, destination = _first(attributes, PARTITION), _first(attributes, DESTINATION)
    yield Record(
        site, kind, sender=site if kind == "send" else None, message_id=text_of(identity),
        domain=None if partition is None else f"{destination}-{text_of(partition)}",
        order=start, time_ns=start,
        group=text_of(destination) if kind == "send" and destination is not None else None,
    )  # fmt: skip


def _first(attributes: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The first of these attributes that has a value."""
    return next((found for name in names if (found := attributes.get(name)) not in (None, "")), None)


def _list(values: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    found = next((values[name] for name in names if name in values), None)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise BadLineError(f"no list '{names[0]}'")
    return found


def _attributes(values: Any) -> dict[str, Any]:
    """Attributes as a plain map: `[{"key": k, "value": {"stringValue": v}}, …]` to `{k: v}`."""
    plain: dict[str, Any] = {}
    listed = (values.get("attributes") or []) if isinstance(values, dict) else None
    if not isinstance(listed, list):
        raise BadLineError("no list 'attributes'")
    for pair in listed:
        if not isinstance(pair, dict) or not isinstance(pair.get("value"), dict):
            raise BadLineError("an attribute without key and value")
        plain[str(pair.get("key"))] = next(iter(pair["value"].values()), None)
    return plain
