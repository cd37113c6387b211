"""Sample logs of every format with the same planted faults: exactly those are found, by either import.

Two domains, `a` and `b`, with ten messages each. `c1` loses a4, gets a5 twice (which is legal), and a8 before
a7. `c2` gets everything, with the domains interleaved in another way. Where a column orders the log, two
messages of `c2` have one time, and stand against their order: that is no fault.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.recording import Property
from antiphon.trace.adapters.amqp import Amqp
from antiphon.trace.adapters.importing import Imported, Plan, import_logs
from antiphon.trace.adapters.jepsen import Jepsen
from antiphon.trace.adapters.kafka import Kafka
from antiphon.trace.adapters.mapping import Columns, Mapping
from antiphon.trace.adapters.nats import Nats
from antiphon.trace.adapters.otlp import Otlp
from antiphon.trace.adapters.record import Format
from antiphon.trace.bulk import importing, source
from antiphon.trace.bulk.importing import import_in_bulk
from antiphon.trace.files import read_trace
from tests.trace.bulk.test_importing import in_turn

JUDGED: tuple[Property, ...] = ("integrity", "duplicate", "atomicity", "fifo")


class Row(NamedTuple):
    """A line of the story; `time` is its place, where a column orders the log."""

    site: str
    domain: str
    number: int
    attempt: int
    time: int


def story() -> tuple[list[Row], list[Row], list[Row]]:
    """What was sent, and what the consumers got."""
    sent = [Row("p" + domain, domain, number, 1, number) for number in range(10) for domain in "ab"]
    a = [0, 1, 2, 3, 5, 6, 5, 8, 7, 9]
    taken, seen = list[Row](), set[int]()
    for number in a:
        taken.append(Row("c1", "a", number, 1 + (number in seen), 100 + len(taken)))
        seen.add(number)
    taken.extend(Row("c1", "b", number, 1, 200 + number) for number in range(10))
    whole = [Row("c2", domain, number, 1, 100 + number) for number in range(10) for domain in "ba"]
    return sent, taken, whole


def lines(rows: list[Any]) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def kafka() -> dict[str, str]:
    sent, *consumed = story()
    partition = {"a": 0, "b": 1}
    files = {
        f"c{place}.log": lines([f"Partition:{partition[row.domain]}\tOffset:{row.number}\tx" for row in rows])
        for place, rows in enumerate(consumed, 1)
    }
    for domain, index in partition.items():
        rows = [f"| offset: {row.number} CreateTime: 5 keySize: -1" for row in sent if row.domain == domain]
        files[f"b{index}.txt"] = lines([f"Dumping /data/t-{index}/0.log", *rows])
    return files


def nats() -> dict[str, str]:
    sent, *consumed = story()

    def reply(row: Row) -> str:
        return f"$JS.ACK.{row.domain}.{row.site}.{row.attempt}.{row.number}.1.1.0"

    return {
        "shop.jsonl": lines([{"kind": "publish", "stream": row.domain, "seq": row.number} for row in sent]),
        **{
            f"c{place}.jsonl": lines(
                [
                    {"client": row.site, "reply": reply(row)}
                    for row in rows
                ]
            )
            for place, rows in enumerate(consumed, 1)
        },
    }  # fmt: skip


def amqp() -> dict[str, str]:
    sent, *consumed = story()

    def event(name: str, row: Row) -> dict[str, object]:
        identity = f"{row.domain}{row.number}"
        return {"event": name, "client": row.site, "message_id": identity, "redelivered": row.attempt > 1}

    files = {"p.log": lines([event("publish", row) for row in sent])}
    for place, rows in enumerate(consumed, 1):
        files[f"c{place}.log"] = lines([event("deliver", row) for row in rows])
    return files


def traced(kind: str, name: str, **values: object) -> dict[str, object]:
    """A line of RabbitMQ's own tracing."""
    return {
        "type": kind,
        "queue": "none",
        "routed_queues": "none",
        "properties": {"message_id": name},
    } | values


def tracing() -> dict[str, str]:
    """The broker routed further messages to c2 alone, and one to no queue at all."""
    sent, *consumed = story()
    alone = [f"x{number}" for number in range(6)]
    rows = [
        traced("published", f"{row.domain}{row.number}", user=row.site, routed_queues=["c1", "c2"])
        for row in sent
    ]
    rows += [traced("published", name, user="px", routed_queues=["c2", "unread"]) for name in alone]
    rows.append(traced("published", "nowhere", user="px", routed_queues=[]))
    for row in (row for rows in consumed for row in rows):
        rows.append(traced("received", f"{row.domain}{row.number}", queue=row.site))
    rows += [traced("received", name, queue="c2") for name in alone]
    return {"trace.log": lines(rows)}


def in_reverse(rows: list[Row]) -> list[Row]:
    """The order of lines says nothing where a column orders them; messages 8 and 9 of c2 have one time."""
    return [row._replace(time=109) if row.site == "c2" and row.number >= 8 else row for row in rows[::-1]]


def otlp() -> dict[str, str]:
    def span(row: Row) -> dict[str, Any]:
        attributes = {
            "messaging.operation.type": "send" if row.site.startswith("p") else "process",
            "messaging.message.id": f"{row.domain}{row.number}",
            "messaging.destination.name": "t",
            "messaging.destination.partition.id": row.domain,
        }
        listed = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": row.site}}]}
        spans = [{"startTimeUnixNano": str(row.time), "attributes": listed}]
        return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}

    return {"spans.json": lines([span(row) for rows in story() for row in in_reverse(rows)])}


def kind(row: Row) -> str:
    return "send" if row.site.startswith("p") else "deliver"


def table() -> dict[str, str]:
    rows = [row for part in story() for row in in_reverse(part)]
    heading = "site,kind,id,domain,at,try"
    return {
        "all.csv": lines(
            [
                heading,
                *(
                    f"{row.site},{kind(row)},{row.domain}{row.number},{row.domain},{row.time},{row.attempt}"
                    for row in rows
                ),
            ]
        )
    }


def objects() -> dict[str, str]:
    sent, *consumed = story()

    def named(kind: str, row: Row) -> dict[str, object]:
        return {
            "host": row.site,
            "what": kind,
            "from": f"p{row.domain}",
            "no": row.number,
            "topic": row.domain,
        }

    return {
        "p.jsonl": lines([named("send", row) for row in sent]),
        **{
            f"c{n}.jsonl": lines([named("deliver", row) for row in rows])
            for n, rows in enumerate(consumed, 1)
        },
    }


CSV = Mapping(
    "csv", Columns(site="site", kind="kind", message_id="id", domain="domain", order="at", attempt="try")
)
JSONL = Mapping("jsonl", Columns(site="host", kind="what", sender="from", number="no", domain="topic"))
SAMPLES: dict[str, tuple[Format, Callable[[], dict[str, str]]]] = {
    "kafka": (Kafka("t"), kafka), "nats": (Nats(), nats), "amqp": (Amqp(), amqp),
    "tracing": (Amqp(), tracing), "otlp": (Otlp(), otlp),
    "csv": (CSV, table), "jsonl": (JSONL, objects),
}  # fmt: skip


def imported_by(plan: Plan, trace: Path, in_bulk: bool) -> Imported:
    return import_in_bulk(in_turn, plan, trace) if in_bulk else import_logs(plan, trace)


def found(
    tmp_path: Path, plan: Plan, in_bulk: bool, promises: tuple[Property, ...] = JUDGED
) -> list[tuple[str, str | None]]:
    """What is broken, and where."""
    trace = tmp_path / "trace"
    imported = imported_by(plan, trace, in_bulk)
    assert imported.promises == promises
    (run,) = read_trace(trace).runs
    violations = check_trace(read_trace(trace).events, run)
    return sorted((each.property, each.site) for each in violations if each.property in JUDGED)


def plan_of(tmp_path: Path, log: Format, files: dict[str, str]) -> Plan:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return Plan(log, tuple(tmp_path / name for name in files), promises=JUDGED)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", 500)
    monkeypatch.setattr(importing, "BYTES_PER_SHARE", 700)


@pytest.mark.parametrize("in_bulk", [False, True], ids=["plain", "pieces"])
@pytest.mark.parametrize("name", SAMPLES)
def test_exactly_the_planted_faults_are_found(tmp_path: Path, name: str, in_bulk: bool) -> None:
    log, draw = SAMPLES[name]
    plan = plan_of(tmp_path, log, draw())
    assert found(tmp_path, plan, in_bulk) == [("atomicity", "c1"), ("duplicate", "c1"), ("fifo", "c1")]


@pytest.mark.parametrize("in_bulk", [False, True], ids=["plain", "pieces"])
def test_queues_that_no_consumer_is_named_like_say_nothing_of_losses(tmp_path: Path, in_bulk: bool) -> None:
    """The broker's tracing knows queues, and these consumers log under other names."""
    rows = [traced("published", f"m{number}", user="p", routed_queues=["orders"]) for number in range(5)]
    taken = [{"event": "deliver", "client": "billing", "message_id": f"m{number}"} for number in range(4)]
    plan = plan_of(tmp_path, Amqp(), {"trace.log": lines(rows), "billing.log": lines(taken)})
    imported = imported_by(plan, tmp_path / "trace", in_bulk)
    assert imported.promises == ("integrity", "duplicate", "fifo")
    assert any("No consumer is named like a queue" in note for note in imported.notes)


@pytest.mark.parametrize("in_bulk", [False, True], ids=["plain", "pieces"])
def test_one_site_for_all_consumers_stands_for_the_destinations_too(tmp_path: Path, in_bulk: bool) -> None:
    sends = [
        {"kind": "send", "who": "p", "id": f"m{number}", "to": ["c1"] if number < 3 else []}
        for number in range(4)
    ]
    taken = [{"kind": "deliver", "who": "c2", "id": f"m{number}"} for number in range(2)]
    log = Mapping("jsonl", Columns(site="who", kind="kind", message_id="id", destinations="to"))
    plan = plan_of(tmp_path, log, {"all.jsonl": lines(sends + taken)})
    plan = msgspec.structs.replace(plan, site="group", promises=("atomicity",))
    imported_by(plan, tmp_path / "trace", in_bulk)
    (run,) = read_trace(tmp_path / "trace").runs
    violations = check_trace(read_trace(tmp_path / "trace").events, run)
    lost = [(each.site, each.number) for each in violations if each.property == "atomicity"]
    assert lost == [("group", 2)]


READERS = {"mails": ("audit",), "orders": ("audit", "billing")}


def spans_of_queues(lost: str) -> dict[str, str]:
    """Spans without partitions: `audit` reads both queues, `billing` one of them, and loses one message."""
    rows = []
    for number in range(16):
        queue = ("mails", "orders")[number % 2]
        doings = [("shop", "publish"), *((reader, "process") for reader in READERS[queue])]
        for place, (site, what) in enumerate(doings):
            values = {
                "messaging.operation.type": what,
                "messaging.message.id": f"m{number}",
                "messaging.destination.name": queue,
            }
            attributes = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
            about = {"attributes": [{"key": "service.name", "value": {"stringValue": site}}]}
            spans = [{"startTimeUnixNano": 10 * number + place, "attributes": attributes}]
            if (site, f"m{number}") != ("billing", lost):
                rows.append({"resourceSpans": [{"resource": about, "scopeSpans": [{"spans": spans}]}]})
    return {"spans.json": lines(rows)}


def topics(lost: str) -> dict[str, str]:
    """The same by a mapping: sends name a topic, and messages have numbers."""
    rows = []
    for number in range(16):
        topic = ("mails", "orders")[number % 2]
        rows.append({"kind": "send", "who": "shop", "from": "shop", "no": number, "topic": topic})
        rows += [
            {"kind": "deliver", "who": reader, "from": "shop", "no": number}
            for reader in READERS[topic]
            if (reader, f"m{number}") != ("billing", lost)
        ]
    return {"all.jsonl": lines(rows)}


TOPICS = Mapping("jsonl", Columns(site="who", kind="kind", sender="from", number="no", group="topic"))


@pytest.mark.parametrize("in_bulk", [False, True], ids=["plain", "pieces"])
@pytest.mark.parametrize(
    ("log", "draw"), [(Otlp(), spans_of_queues), (TOPICS, topics)], ids=["otlp", "jsonl"]
)
def test_a_message_is_for_those_that_read_its_queue(
    tmp_path: Path, log: Format, draw: Callable[[str], dict[str, str]], in_bulk: bool
) -> None:
    assert found(tmp_path, plan_of(tmp_path, log, draw("m5")), in_bulk) == [("atomicity", "billing")]


@pytest.mark.parametrize("in_bulk", [False, True], ids=["plain", "pieces"])
def test_workers_that_share_a_queue_beside_another_reader_are_told(tmp_path: Path, in_bulk: bool) -> None:
    rows = [
        {"kind": "send", "who": "shop", "from": "shop", "no": number, "topic": "orders"}
        for number in range(16)
    ]
    rows += [
        {"kind": "deliver", "who": f"worker{number % 2}", "from": "shop", "no": number}
        for number in range(16)
    ]
    rows.append({"kind": "send", "who": "shop", "from": "shop", "no": 16, "topic": "mails"})
    rows.append({"kind": "deliver", "who": "mail", "from": "shop", "no": 16})
    imported = imported_by(plan_of(tmp_path, TOPICS, {"all.jsonl": lines(rows)}), tmp_path / "trace", in_bulk)
    assert "atomicity" not in imported.promises
    assert any("worker0, worker1 share orders and hardly any message" in note for note in imported.notes)


LOST = 7
WHOLE, FIRST, SECOND = (0, 1), (0,), (1,)
Reading = tuple[str, tuple[int, ...], bool, bool]
"""A consumer, the partitions that it reads, whether it names them, and whether it loses message 7."""


def delivered(reading: Reading) -> list[tuple[str, int, str]]:
    """What a consumer gets of twenty messages, in turn of one partition and the other."""
    site, partitions, is_naming, is_lossy = reading
    return [
        (site, number, f"orders-{number % 2}" if is_naming else "")
        for number in range(20)
        if number % 2 in partitions and not (is_lossy and number == LOST)
    ]


def partitioned_spans(readings: list[Reading]) -> dict[str, str]:
    """The producer's spans name no partition."""

    def span(site: str, what: str, number: int, domain: str, time: int) -> dict[str, Any]:
        values = {
            "messaging.operation.type": what, "messaging.message.id": f"m{number}",
            "messaging.destination.name": "orders", "messaging.destination.partition.id": domain[-1:],
        }  # fmt: skip
        attributes = [{"key": key, "value": {"stringValue": value}} for key, value in values.items() if value]
        about = {"attributes": [{"key": "service.name", "value": {"stringValue": site}}]}
        spans = [{"startTimeUnixNano": time, "attributes": attributes}]
        return {"resourceSpans": [{"resource": about, "scopeSpans": [{"spans": spans}]}]}

    rows = [span("shop", "send", number, "", number) for number in range(20)]
    for reading in readings:
        rows += [span(site, "process", number, domain, 100 + number)
                 for site, number, domain in delivered(reading)]  # fmt: skip
    return {"spans.json": lines(rows)}


def partitioned_numbers(readings: list[Reading]) -> dict[str, str]:
    """The same by a mapping, with numbers, and sends that name neither a partition nor a topic."""
    rows = [f"shop,send,shop,{number}," for number in range(20)]
    for reading in readings:
        rows += [f"{site},deliver,shop,{number},{domain}" for site, number, domain in delivered(reading)]
    return {"all.csv": "\n".join(["who,kind,from,no,partition", *rows])}


PARTITIONS = Mapping("csv", Columns(site="who", kind="kind", sender="from", number="no", domain="partition"))
PLACES: dict[str, tuple[list[Reading], list[tuple[str, str]] | None]] = {
    "two that read all": (
        [("billing", WHOLE, True, False), ("mail", WHOLE, True, True)], [("atomicity", "mail")]
    ),
    "one names partitions": (
        [("billing", WHOLE, True, False), ("mail", WHOLE, False, True)], [("atomicity", "mail")]
    ),
    "the one that names partitions loses": (
        [("billing", WHOLE, True, True), ("mail", WHOLE, False, False)], [("atomicity", "billing")]
    ),
    "lost by all": (
        [("billing", WHOLE, True, True), ("mail", WHOLE, True, True)],
        [("atomicity", "billing"), ("atomicity", "mail")],
    ),
    "a group beside one that reads all": (
        [("b0", FIRST, True, True), ("b1", SECOND, True, True), ("mail", WHOLE, True, False)],
        [("atomicity", "b1")],
    ),
    "a group alone": ([("b0", FIRST, True, True), ("b1", SECOND, True, True)], None),
    "half of a group names partitions": (
        [("b0", FIRST, True, True), ("b1", SECOND, False, True), ("mail", WHOLE, False, False)], None
    ),
    "a group that names partitions beside one that does not": (
        [("b0", FIRST, True, True), ("b1", SECOND, True, True), ("mail", WHOLE, False, False)], None
    ),
    "a group without a loss": ([("b0", FIRST, True, False), ("b1", SECOND, True, False)], []),
}  # fmt: skip


ORDERLESS = {
    "the one that names partitions loses", "half of a group names partitions",
    "a group that names partitions beside one that does not",
}  # fmt: skip
"""Where a message is delivered, and no record names its partition."""


@pytest.mark.parametrize("in_bulk", [False, True], ids=["plain", "pieces"])
@pytest.mark.parametrize(
    ("log", "draw"), [(Otlp(), partitioned_spans), (PARTITIONS, partitioned_numbers)], ids=["otlp", "csv"]
)
@pytest.mark.parametrize("place", PLACES)
def test_consumers_alone_name_partitions(
    tmp_path: Path, place: str, log: Format, draw: Callable[[list[Reading]], dict[str, str]], in_bulk: bool
) -> None:
    readings, expected = PLACES[place]
    plan = plan_of(tmp_path, log, draw(readings))
    is_ordered = place not in ORDERLESS
    if expected is not None:
        assert found(tmp_path, plan, in_bulk, JUDGED if is_ordered else JUDGED[:3]) == expected
        return
    imported = imported_by(plan, tmp_path / "trace", in_bulk)
    assert imported.promises == ("integrity", "duplicate", *(["fifo"] if is_ordered else []))
    assert any("No record tells to which domain" in note for note in imported.notes)
    (run,) = read_trace(tmp_path / "trace").runs
    violations = check_trace(read_trace(tmp_path / "trace").events, run, JUDGED)
    # A message that no member delivered counts as missing at all of them, if losses are to be judged.
    told = [("atomicity", "b0"), ("atomicity", "b1")] if place == "a group alone" else []
    assert sorted((each.property, each.site) for each in violations) == told


@pytest.mark.parametrize("in_bulk", [False, True], ids=["plain", "pieces"])
def test_a_group_as_one_site_has_lost_what_its_members_have(tmp_path: Path, in_bulk: bool) -> None:
    readings, _ = PLACES["a group alone"]
    plan = plan_of(tmp_path, Otlp(), partitioned_spans(readings))
    plan = msgspec.structs.replace(plan, site="billing")
    assert found(tmp_path, plan, in_bulk) == [("atomicity", "billing")]


@pytest.mark.parametrize("in_bulk", [False, True], ids=["plain", "pieces"])
def test_records_that_contradict_each_other_are_told(tmp_path: Path, in_bulk: bool) -> None:
    """The audit refuses a message with two domains, so the import settles on one."""
    rows = ["shop,send,m1,x", "a,deliver,m1,y", "shop,send,m2,", "a,deliver,m2,x", "b,deliver,m2,y"]
    rows += [f"{site},deliver,m{number},{domain}" for number in (3, 4) for site, domain in ("ax", "bx", "by")]
    log = Mapping("csv", Columns(site="who", kind="kind", message_id="id", domain="topic"))
    plan = plan_of(tmp_path, log, {"all.csv": "\n".join(["who,kind,id,topic", *rows])})
    plan = msgspec.structs.replace(plan, promises=("fifo",))
    imported = imported_by(plan, tmp_path / "trace", in_bulk)
    assert any("The records of 4 messages, such as m1, name several domains" in n for n in imported.notes)
    trace = read_trace(tmp_path / "trace")
    domains = {(event.message_id, event.domain) for event in trace.events}
    assert domains == {("m1", "x"), ("m2", "?shop:1"), ("m3", "??m3:0"), ("m4", "??m4:0")}
    unsent = check_trace(trace.events, trace.runs[0], ["integrity"])
    assert {each.sender for each in unsent} == {"?m3", "?m4"}


QUEUE = """{:process 0, :type :invoke, :f :enqueue, :value 1}
{:process 0, :type :ok, :f :enqueue, :value 1}
{:process 0, :type :invoke, :f :enqueue, :value 2}
{:process 0, :type :ok, :f :enqueue, :value 2}
{:process 0, :type :invoke, :f :enqueue, :value 3}
{:process 0, :type :info, :f :enqueue, :value 3}
{:process 1, :type :ok, :f :dequeue, :value 2}
{:process 2, :type :ok, :f :dequeue, :value 2}
{:process 2, :type :ok, :f :dequeue, :value 9}
"""


@pytest.mark.parametrize("in_bulk", [False, True], ids=["plain", "pieces"])
def test_a_queue_of_jepsen_loses_repeats_and_invents(tmp_path: Path, in_bulk: bool) -> None:
    plan = plan_of(tmp_path, Jepsen(), {"history.edn": QUEUE})
    consumers = "consumers"
    assert found(tmp_path, plan, in_bulk) == [
        ("atomicity", consumers), ("duplicate", consumers), ("integrity", consumers),
    ]  # fmt: skip
