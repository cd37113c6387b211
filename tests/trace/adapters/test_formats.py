"""Each format's lines, as the real programs write them, and what becomes of lines that make no sense."""

import json

import pytest

from antiphon.trace.adapters.amqp import Amqp
from antiphon.trace.adapters.edn import loads
from antiphon.trace.adapters.jepsen import Jepsen
from antiphon.trace.adapters.kafka import Kafka
from antiphon.trace.adapters.mapping import Columns, Mapping
from antiphon.trace.adapters.nats import Nats
from antiphon.trace.adapters.otlp import Otlp
from antiphon.trace.adapters.record import BadLine, BadLineError, Format, Line, Record
from antiphon.trace.adapters.values import integer, time_ns
from antiphon.trace.schema import ACCEPTED


def parse(log: Format, text: str) -> list[Record | BadLine]:
    lines = (Line(number, line) for number, line in enumerate(text.splitlines(), 1))
    return list(log.parse("c1", lines))


def records(log: Format, text: str) -> list[Record]:
    found = parse(log, text)
    assert all(isinstance(each, Record) for each in found), found
    return [each for each in found if isinstance(each, Record)]


def reason(log: Format, text: str) -> str:
    (found,) = parse(log, text)
    assert isinstance(found, BadLine)
    return found.reason


def test_a_console_consumer_of_kafka_names_partition_and_offset() -> None:
    text = "CreateTime:1700000000123\tPartition:2\tOffset:17\tkey\tOffset:5\nProcessed a total of 1 messages"
    kcat = '{"topic":"orders","partition":2,"offset":17,"tstype":"create","ts":1700000000123,"payload":"x"}'
    for form, line in enumerate((text, kcat, f"1700000000.25 {text}")):
        (found,) = records(Kafka("orders"), line)
        assert found == Record(
            "c1", "deliver", sender="orders-2", number=17, message_id="orders-2@17", domain="orders-2",
            time_ns=1_700_000_000_250_000_000 if form == 2 else None,
        )  # fmt: skip
    (torn, noise) = parse(Kafka(), "Partition:2\tOff\n[2026-01-01] WARN nothing to worry about")
    assert isinstance(torn, BadLine)
    assert isinstance(noise, BadLine)
    assert (torn.hides, noise.hides) == (True, False)


def test_a_broker_log_of_kafka_tells_what_was_accepted() -> None:
    text = """Dumping /var/lib/kafka/orders-0/00000000000000000000.log
Starting offset: 0
baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1
| offset: 0 CreateTime: 1700000000000 keySize: -1 valueSize: 3 sequence: -1 headerKeys: [] payload: abc
| offset: 1 isValid: true crc: null keySize: -1 valueSize: 3 CreateTime: -1 payload: abd
Dumping /var/lib/kafka/__strange/00000000000000000000.log
what is this?"""
    found = parse(Kafka(), text)
    first = found[0]
    assert isinstance(first, Record)
    assert (first.site, first.kind, first.sender, first.number) == ("orders-0", "send", "orders-0", 0)
    assert [each.reason for each in found if isinstance(each, BadLine)] == [
        "neither a record nor a heading of kafka-dump-log",
        "the folder's name is no topic and partition, such as orders-0",
        "neither a record nor a heading of kafka-dump-log",
    ]


def test_nats_has_fields_or_the_acknowledgement_subject() -> None:
    named = '"stream": "ORDERS", "consumer": "w", "stream_seq": 9, "num_delivered": 2'
    fields = f'{{{named}, "time": "2026-01-01T00:00:00Z"}}'
    subject = '{"reply": "$JS.ACK.ORDERS.w.2.9.4.1767225600000000000.0"}'
    hub = '{"reply": "$JS.ACK.hub.acc.ORDERS.w.2.9.4.1767225600000000000.0.x"}'
    for text in (fields, subject, hub):
        (found,) = records(Nats(), text)
        assert found == Record(
            "w", "deliver", sender="ORDERS", number=9, message_id="ORDERS@9", domain="ORDERS", attempt=2,
            time_ns=1_767_225_600_000_000_000 if text == fields else None,
        )  # fmt: skip
    (sent,) = records(Nats(), '{"kind": "publish", "stream": "ORDERS", "seq": 9}')
    assert (sent.site, sent.kind, sent.attempt) == ("ORDERS", "send", None)


def test_amqp_reads_clients_and_the_tracing_of_rabbitmq() -> None:
    (published,) = records(
        Amqp(),
        '{"timestamp": "2026-01-01 0:00:00:250", "type": "published", "user": "shop", "connection": "1 -> 2",'
        ' "queue": "none", "properties": {"message_id": "u1"}}',
    )
    assert (published.site, published.kind, published.message_id) == ("1 -> 2", "send", "u1")
    assert published.time_ns == 1_767_225_600_250_000_000
    (consumed,) = records(
        Amqp(), '{"event": "deliver", "consumer": "w", "message_id": "u1", "redelivered": true}'
    )
    assert (consumed.site, consumed.kind, consumed.attempt, consumed.sender) == ("w", "deliver", 2, None)
    assert records(Amqp(), '{"event": "ack", "consumer": "w"}') == []


def span(operation: str, start: int, identity: str | None = "m1") -> str:
    named = (
        f', {{"key": "messaging.message.id", "value": {{"stringValue": "{identity}"}}}}' if identity else ""
    )
    return (
        '{"resourceSpans": [{"resource": {"attributes": '
        '[{"key": "service.name", "value": {"stringValue": "shop"}}]},'
        f' "scopeSpans": [{{"spans": [{{"startTimeUnixNano": "{start}", "attributes": ['
        f'{{"key": "messaging.operation.type", "value": {{"stringValue": "{operation}"}}}}{named}]}}]}}]}}]}}'
    )


@pytest.mark.parametrize(
    ("operation", "kind"), [("send", "send"), ("receive", "receive"), ("process", "deliver")]
)
def test_spans_of_opentelemetry_are_ordered_by_their_start(operation: str, kind: str) -> None:
    (found,) = records(Otlp(), span(operation, 5))
    assert (found.site, found.kind, found.message_id, found.order, found.time_ns) == (
        "shop",
        kind,
        "m1",
        5,
        5,
    )


def old_span(kind: object, **attributes: object) -> str:
    """As programs with conventions before 1.17 write it."""
    named = {"messaging.system": "kafka", "messaging.destination": "orders", **attributes}
    listed = [{"key": key, "value": {"anyValue": value}} for key, value in named.items()]
    spans = [{"kind": kind, "startTimeUnixNano": "5", "attributes": listed}]
    return json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]})


def test_spans_of_older_conventions_tell_the_same() -> None:
    named = {"messaging.message_id": "m1", "messaging.kafka.partition": 0}
    for kind in (4, "SPAN_KIND_PRODUCER"):
        (sent,) = records(Otlp(), old_span(kind, **named))
        assert (sent.kind, sent.message_id, sent.domain) == ("send", "m1", "orders-0")
    (taken,) = records(Otlp(), old_span(5, **named, **{"messaging.operation": "process"}))
    assert (taken.kind, taken.message_id, taken.domain) == ("deliver", "m1", "orders-0")
    assert records(Otlp(), old_span(5, **named)) == []


def test_spans_that_tell_of_no_message_are_skipped_and_nameless_messages_refused() -> None:
    assert records(Otlp(), span("settle", 5)) == []
    assert reason(Otlp(), span("process", 5, None)) == "a process span without messaging.message.id"


def test_a_span_that_cannot_be_used_leaves_the_others_of_its_line() -> None:
    one, other = (json.loads(span("process", 5, name)) for name in ("m1", None))
    line = json.dumps({"resourceSpans": one["resourceSpans"] + other["resourceSpans"]})
    taken, refused = parse(Otlp(), line)
    assert isinstance(taken, Record)
    assert isinstance(refused, BadLine)


@pytest.mark.parametrize(
    ("operation", "links", "is_told"),
    [("receive", [], False), ("send", [{}], False), ("send", [], True), ("process", [{}], True)],
)
def test_a_batch_whose_messages_no_other_span_names_is_told(
    operation: str, links: list[object], is_told: bool
) -> None:
    request = json.loads(span(operation, 5, None))
    (scope,) = request["resourceSpans"][0]["scopeSpans"]
    scope["spans"][0]["attributes"].append(
        {"key": "messaging.batch.message_count", "value": {"intValue": "3"}}
    )
    scope["spans"][0]["links"] = links
    found = parse(Otlp(), json.dumps(request))
    expected = f"a {operation} span of a batch, which does not name its messages"
    assert [each.reason for each in found if isinstance(each, BadLine)] == [expected] * is_told
    assert len(found) == is_told


BROADCAST = """{:process 0, :type :invoke, :f :broadcast, :value 7, :time 10, :index 0}
{:process 0, :type :ok, :f :broadcast, :value 7, :time 20, :index 1}
{:process :nemesis, :type :info, :f :start-partition, :value "[:isolated ...]", :time 21}
{:process 1, :type :ok, :f :read, :value [7 8], :time 30, :index 2}
{:process 1, :type :ok, :f :read, :value #{7 8 9}, :time 40, :index 3}"""


def test_a_broadcast_history_of_jepsen() -> None:
    found = records(Jepsen(nodes=1), BROADCAST)
    told = [(each.site, each.kind, each.message_id, each.order) for each in found]
    assert told == [
        ("n0", "send", "7", 1), (ACCEPTED, "deliver", "7", 0), ("n0", "deliver", "7", 4),
        ("n0", "deliver", "8", 4), ("n0", "deliver", "9", 5),
    ]  # fmt: skip


def test_a_queue_history_of_jepsen_has_one_site_for_all_consumers() -> None:
    text = """{:process 0, :type :invoke, :f :enqueue, :value 1}
{:process 0, :type :fail, :f :enqueue, :value 1}
{:process 3, :type :ok, :f :dequeue, :value 1}
{:process 4, :type :ok, :f :drain, :value [1 2]}
{:process 4, :type :ok, :f :dequeue, :value nil}"""
    found = records(Jepsen(), text)
    assert [(each.site, each.kind, each.message_id) for each in found] == [
        ("p0", "send", "1"), ("consumers", "deliver", "1"),
        ("consumers", "deliver", "1"), ("consumers", "deliver", "2"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "{:a", "{:a 1 :b}", "[1 2", ")", '"open', "{:a 1} 2", "[" * 100])
def test_edn_that_is_cut_short_or_senseless_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(text)


def test_edn_values() -> None:
    text = r'#jepsen.history.Op{:s "a \"b\"", :n -3, :x 1.5, :k :ok, :t #inst "2026", :nil nil, :l (1, 2)}'
    assert loads(text) == {
        "s": 'a "b"', "n": -3, "x": 1.5, "k": "ok", "t": "2026", "nil": None, "l": [1, 2],
    }  # fmt: skip


MAPPING = Mapping(
    "csv",
    Columns(site="host", kind="what", message_id="id", order="at", time="at", destinations="to"),
    {"pub": "send", "sub": "deliver"},
    time_unit="ms",
)


def test_csv_with_a_mapping() -> None:
    found = records(MAPPING, 'host,what,id,at,to\na,pub,"x,1",5,b;c\nb,sub,"x,1",7,\nb,ack,"x,1",8,\n')
    assert [(each.site, each.kind, each.message_id, each.order, each.destinations) for each in found] == [
        ("a", "send", "x,1", 5_000_000, ("b", "c")), ("b", "deliver", "x,1", 7_000_000, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("log", "text", "expected"),
    [
        (Kafka(), "a message alone", "no 'Partition:' and 'Offset:': set print.partition and print.offset"),
        (Nats(), '{"stream": "S"}', "no field 'stream_seq'"),
        (
            Nats(),
            '{"stream": "S", "stream_seq": 1, "num_delivered": 3000000000}',
            "the number of deliveries is out of range: 3000000000",
        ),
        (Nats(), '{"stream": "S", "stream_seq": -1}', "the stream's sequence number is out of range: -1"),
        (Nats(), '{"stream": "S", "stream_seq": 1e30}', "the stream's sequence number is out of range"),
        (Nats(), '{"reply": "$JS.ACK.short"}', "no acknowledgement subject"),
        (Nats(), '{"stream": ["S"], "stream_seq": 1}', "a name is expected, not list"),
        (Amqp(), '{"event": "explode", "message_id": "u"}', "unknown event 'explode'"),
        (Amqp(), '{"event": "deliver"}', "no field 'message_id'"),
        (
            Amqp(),
            '{"event": "deliver", "message_id": "u", "redelivered": "maybe"}',
            "true or false is expected",
        ),
        (Amqp(), "[1]", "the JSON value is no object"),
        (Amqp(), '{"event"', "no JSON"),
        (Otlp(), "{}", "no list 'resourceSpans'"),
        (Otlp(), '{"resourceSpans": [{"resource": 5}]}', "no list 'attributes'"),
        (Otlp(), '{"resourceSpans": [{"resource": {"attributes": 5}}]}', "no list 'attributes'"),
        (Jepsen(), "{:type :ok}x", "no EDN"),
        (MAPPING, "host,what,id,at,to\na,pub\n", "2 cells, where the heading has 5"),
        (MAPPING, "host,what,id,at\n", "the heading has no column 'to'"),
        (MAPPING, "host,what,id,at,to\na,pub,x,,\n", "no field 'at', by which rows are ordered"),
        (MAPPING, "host,what,id,at,to\na,pub,,3,\n", "no field 'id', which names the message"),
        (MAPPING, "host,what,id,at,to\na,pub,x,noon,\n", "no time: 'noon'"),
    ],
)
def test_a_line_that_makes_no_sense_gets_a_reason(log: Format, text: str, expected: str) -> None:
    assert reason(log, text).startswith(expected)


@pytest.mark.parametrize("value", ["nan", "inf", "1e400", "2026-13-01", "12:00", True, [], "", "9" * 30])
def test_what_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(BadLineError):
        time_ns(value)


@pytest.mark.parametrize("value", [True, 1.5, "x", None, -1, 2**63, float("inf")])
def test_what_is_no_count_is_refused(value: object) -> None:
    with pytest.raises(BadLineError):
        integer(value, "the count")
