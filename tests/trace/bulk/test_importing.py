"""The import in pieces makes the same trace as the plain one, of logs with faults, noise and odd values."""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from antiphon.core.errors import InputError
from antiphon.trace.adapters import importing as adapters
from antiphon.trace.adapters.amqp import Amqp
from antiphon.trace.adapters.importing import Imported, Plan, import_logs
from antiphon.trace.adapters.jepsen import Jepsen
from antiphon.trace.adapters.kafka import Kafka
from antiphon.trace.adapters.mapping import Columns, Mapping
from antiphon.trace.adapters.nats import Nats
from antiphon.trace.adapters.otlp import Otlp
from antiphon.trace.adapters.record import Format
from antiphon.trace.arrow import pq
from antiphon.trace.bulk import importing, source
from antiphon.trace.bulk.importing import import_in_bulk
from tests.trace.adapters.test_formats import BROADCAST

Lines = list[bytes]

MAPPING = Mapping(
    "csv",
    Columns(
        run="run", site="site", kind="kind", message_id="id", sender="from", domain="domain",
        order="at", time="at", attempt="try", group="group", destinations="to", size="size",
    ),
)  # fmt: skip
NUMBERED = msgspec.structs.replace(
    MAPPING, columns=msgspec.structs.replace(MAPPING.columns, message_id=None, number="no", order=None)
)
BOTH = msgspec.structs.replace(MAPPING, columns=msgspec.structs.replace(MAPPING.columns, number="no"))
WORDS = Mapping(
    "jsonl",
    Columns(
        site="host.name", kind="what", message_id="id", time="when", redelivered="again", destinations="to",
        domain="topic",
    ),
    {"pub": "send", "sub": "deliver", "got": "receive"},
)  # fmt: skip


def in_turn(items: Sequence[Any], work: Callable[[Any], Iterable[Any]], answer: type[Any]) -> list[Any]:
    """Do the work here, last item first, and hand each answer on as tasks do."""
    found = [each for item in reversed(items) for each in work(item)]
    return [msgspec.msgpack.decode(msgspec.msgpack.encode(each), type=answer) for each in found]


def dumped(row: object) -> bytes:
    return json.dumps(row).encode()


def odd_time(random: Random, number: int) -> object:
    """Times as programs write them: floats, whole numbers of any unit, ISO 8601, nothing, nonsense."""
    return random.choice(
        [
            1767225600 + number, 1767225600 + random.random() * 1000, f"{1767225600 + number / 7:.6f}",
            1767225600000 + number, 1767225600000000 + number, None, "", "2026-01-02T03:04:05.123456789Z",
            "2026-01-02 03:04:05", "2026-01-02T03:04:05+02:00", "soon", -5, 1e300, True,
        ]
    )  # fmt: skip


def usual_time(random: Random, number: int) -> float:
    return 1767225600 + number / 1000 - (random.random() < 0.02) * 3


NOISE: Lines = [
    b"", b"   ", b"{}", b"[1]", b'{"event": "publish"', b"{\xff}", b"\xff\xfe", b'{"a": 1}{"a": 2}',
    b"Partition:0\tOff",
    b'{"stream": NaN}', b'{"stream": "S", "stream_seq": 1e30}', b"\xc2\xa0", b'{"x": "\\ud83d"}',
    b"warning, all is well",
    b'{"stream": "S", "stream": "T", "stream_seq": 5}', b'{"event": "deliver", "message_id": 7}',
    b"a,b,c", b'"', b"\r",
]  # fmt: skip


def noisy(random: Random, lines: Iterable[bytes], share: float) -> bytes:
    """Lines with noise among them, with line ends of either kind, the last one perhaps cut off."""
    found = list[bytes]()
    for line in lines:
        found.append(line)
        while random.random() < share:
            found.append(random.choice(NOISE))
        if random.random() < share:
            found.append(line[: random.randrange(len(line) + 1)])
    end = random.choice([b"\n", b"\r\n"])
    return end.join(found) + random.choice([b"", end])


def nats(random: Random, odd: float) -> dict[str, bytes]:
    time = odd_time if odd else usual_time
    files: dict[str, Lines] = {"shop": [], "billing": [], "mail": []}
    for number in range(1, 300):
        stream = random.choice(["ORDERS", "MAILS"])
        files["shop"].append(
            dumped({"kind": "publish", "stream": stream, "seq": number, "time": time(random, number)})
        )
        for name in ("billing", "mail"):
            reply = f"$JS.ACK.{stream}.{name}.{random.choice([1, 1, 2])}.{number}.4.1767225600000000000.0"
            fields: dict[str, object] = {
                "client": name,
                "stream": stream,
                "stream_seq": number,
                "num_delivered": 1,
            }
            choice = random.random()
            if choice < odd / 4:
                fields["stream_seq"] = str(number)
            elif choice < odd / 2:
                fields = {"reply": reply, "client": name}
            elif choice < 0.75 * odd:
                fields = {"reply": reply, "seq": 3, "num_delivered": None}
            elif choice < odd:
                fields = {"stream": stream, "metadata": {"sequence": {"stream": number}, "num_delivered": 2}}
            fields["time"] = time(random, number)
            if random.random() > 0.02:
                files[name].append(dumped(fields))
            if random.random() < 0.02:
                files[name].append(dumped(fields))
    return {f"{name}.jsonl": noisy(random, lines, odd / 8) for name, lines in files.items()}


def replies(random: Random, _odd: float) -> dict[str, bytes]:
    names = ("a", "b")
    return {
        f"{name}.jsonl": b"\n".join(
            dumped({"reply": f"$JS.ACK.S.{name}.1.{random.randrange(90)}.4.1767225600000000000.0"})
            for _ in range(90)
        )
        for name in names
    }


def amqp(random: Random, odd: float) -> dict[str, bytes]:
    time = odd_time if odd else usual_time
    sends, taken = Lines(), Lines()
    for number in range(400):
        name = f"id-{random.randrange(350)}"
        who = f"p{number % 3}"
        send: dict[str, object] = {"event": "publish", "client": who, "message_id": name}
        if number % 7 == 0:
            send["routed_queues"] = random.choice(
                [["c0"], ["c1", "c0"], [], "none", ["c0", "other"], ["other"]]
            )
        if random.random() < odd / 4:
            send["routed_queues"] = random.choice([[None], [3], {}, ["c0", 5.5], [["c0"]]])
        sends.append(dumped({**send, "time": time(random, number)}))
        event = random.choice(["deliver", "received", "ack"])
        row: dict[str, object] = {
            "event": event,
            "consumer": f"c{number % 2}",
            "message_id": f"id-{random.randrange(380)}",
        }
        if random.random() < odd:
            row["redelivered"] = random.choice([True, False, "yes", 0, "maybe", None])
            row["properties"] = random.choice([{}, {"message_id": "x"}, None, 5])
            row["type"] = row.pop("event")
        taken.append(dumped(row))
    random.shuffle(taken)
    return {"p.log": noisy(random, sends, odd / 8), "c.log": noisy(random, taken, odd / 8)}


def kafka(random: Random, odd: float) -> dict[str, bytes]:
    def console(time: bool) -> Lines:
        found = Lines()
        for offset in range(300):
            at = f"{1767225600 + offset}.{random.randrange(10**6):06} " if time else ""
            head = random.choice(["", "CreateTime:5\t", "LogAppendTime:-1\t", "NoTimestampType\t"])
            partition = random.choice(["0", "1", "07"]) if random.random() < odd else offset % 2
            body = random.choice([b"body", b"\xff\xe9", b"\0"]) if random.random() < odd else b"body"
            found.append(f"{at}{head}Partition:{partition}\tOffset:{offset // 2}\t".encode() + body)
            found[-1] += b"\tOffset:3"
            if random.random() < odd / 4:
                found.append(random.choice([b"Offset:3\tPartition:1\tx", b"Processed a total of 5 messages"]))
        random.shuffle(found[3:9])
        return found

    dump = [b"Dumping /data/orders-0/0.log", b"Starting offset: 0"]
    for offset in range(300):
        if random.random() < 0.02 * odd:
            dump.append(random.choice([b"Dumping /data/odd/0.log", b"Dumping /data/orders-1/0.log"]))
        dump.append(f"| offset: {offset} CreateTime: {offset - 1} keySize: -1 payload: abc".encode())
        dump.append(f"baseOffset: {offset} lastOffset: 1 count: 2".encode())
    cat = [
        dumped({"topic": "orders", "partition": offset % 2, "offset": offset // 2, "ts": 1})
        for offset in range(200)
    ]
    files = {"c1.log": console(True), "c2.log": console(False), "broker.txt": dump, "cat.log": cat}
    return {name: noisy(random, lines, odd / 8) for name, lines in files.items()}


def span(random: Random, number: int) -> dict[str, Any]:
    operation = random.choice(["send", "process", "process", "receive", "settle"])
    attributes = {"messaging.operation.type": operation, "messaging.message.id": f"m{random.randrange(80)}"}
    if random.random() < 0.3:
        attributes |= {
            "messaging.destination.partition.id": str(number % 3),
            "messaging.destination.name": "t",
        }
    listed = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    return {"startTimeUnixNano": str(10**18 + random.randrange(200)), "attributes": listed}


def otlp(random: Random, odd: float) -> dict[str, bytes]:
    lines = [
        dumped(
            {
                "resourceSpans": [
                    {
                        "resource": {
                            "attributes": [{"key": "service.name", "value": {"stringValue": f"s{site}"}}]
                        },
                        "scopeSpans": [
                            {"spans": [span(random, number) for number in range(random.randrange(4))]}
                        ],
                    }
                    for site in range(2)
                ]
            }
        )
        for _ in range(120)
    ]
    return {"a.json": noisy(random, lines[:60], odd / 8), "b.json": noisy(random, lines[60:], odd / 8)}


ROLES = {"mail": 3, "audit": 3, "billing0": 1, "billing1": 2, "late": 2}
"""Consumers, and which of two partitions they read, as bits."""


def partitions(random: Random, odd: float) -> Iterator[dict[str, str]]:
    """Sends and deliveries of two topics. Some sites name partitions, few of the producers among them; some
    messages are lost, some records contradict each other."""
    naming = {site for site in ("p0", "p1", *ROLES) if random.random() < (0.2 if site < "a" else 0.6)}
    lossy = random.choice([0.0, 0.05, 0.3])
    for number in range(random.choice([15, 60, 200])):
        topic, partition, sender = random.choice("xy"), random.randrange(2), f"p{number % 2}"
        row = {"id": f"m{number}", "from": sender, "no": str(number), "group": topic if odd < 0.4 else ""}
        doings = [(sender, "send"), *((site, "deliver") for site, parts in ROLES.items())]
        for site, kind in doings:
            if kind == "deliver" and (not ROLES[site] >> partition & 1 or random.random() < lossy):
                continue
            named = str(random.randrange(2) if random.random() < odd / 8 else partition)
            is_named = (site in naming) != (random.random() < odd / 8)
            domain = f"{topic}-{named}" if is_named else ""
            yield {**row, "site": site, "kind": kind, "domain": domain, "at": str(random.randrange(90))}


def spans(random: Random, odd: float) -> dict[str, bytes]:
    found = Lines()
    for row in partitions(random, odd):
        attributes = {"messaging.operation.type": row["kind"], "messaging.message.id": row["id"]}
        topic, _, partition = row["domain"].partition("-")
        attributes |= {"messaging.destination.partition.id": partition} if partition else {}
        attributes |= {"messaging.destination.name": topic or row["group"]}
        listed = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
        about = {"attributes": [{"key": "service.name", "value": {"stringValue": row["site"]}}]}
        scopes = [{"spans": [{"startTimeUnixNano": row["at"], "attributes": listed}]}]
        found.append(dumped({"resourceSpans": [{"resource": about, "scopeSpans": scopes}]}))
    return {"a.json": b"\n".join(found[::2]), "b.json": b"\n".join(found[1::2])}


def topics(random: Random, odd: float) -> dict[str, bytes]:
    names = ["run", "site", "kind", "id", "from", "no", "domain", "at", "try", "group", "to", "size"]
    rows = [{**row, "run": random.choice("rs")} for row in partitions(random, odd)]
    for row in rows:
        if row["kind"] == "send" and random.random() < odd / 8:
            row["to"] = "mail;audit"
    lines = [",".join(names), *(",".join(row.get(name, "") for name in names) for row in rows)]
    return {"log.csv": "\n".join(lines).encode()}


def table(random: Random, odd: float) -> dict[str, bytes]:
    def file() -> bytes:
        lines = [b"run,site,kind,id,from,no,domain,at,try,group,to,size"]
        for _ in range(300):
            message = random.randrange(80)
            row = [
                "r" if message % 2 else "s", random.choice("abcd"),
                random.choice(["send", "deliver", "deliver", "deliver", "receive", "absent", "present"]),
                f"m{message}", random.choice(["", "p"]), str(message // 2), ("", "x", "y")[message % 3],
                str(random.randrange(40)) if random.random() < 0.97 else "late",
                random.choice(["", "1", "2"]), random.choice(["", "", "g"]),
                random.choice(["", "", "a;b", "b;;a" if odd else "a"]), random.choice(["", "100"]),
            ]  # fmt: skip
            if random.random() < odd:
                place = random.randrange(12)
                changed = ['"q"', " 7 ", "+5", "99999999999999999999", "x;y"]
                if place in (3, 5):  # an id has one number
                    changed = [f'"{row[place]}"', "", "99999999999999999999"] + [f"+{row[5]}"] * (place == 5)
                row[place] = random.choice(changed)
            lines.append(",".join(row).encode())
        return noisy(random, lines, odd / 8)

    return {"a.csv": file(), "b.csv": file()}


def words(random: Random, odd: float) -> dict[str, bytes]:
    time = odd_time if odd else usual_time
    lines = Lines()
    for number in range(400):
        row: dict[str, object] = {
            "host": {"name": f"h{random.randrange(3)}"},
            "what": random.choice(["pub", "sub", "sub", "got", "else"]),
            "id": random.choice([f"m{random.randrange(90)}", *([3, 3.0, 2.0**60] if odd else ["m1"])]),
            "when": time(random, number), "again": random.choice([True, False, None]),
        }  # fmt: skip
        if random.random() < 0.3:
            row["to"] = random.choice([["a", "b"], [], ["c", ""] if odd else ["c"], "a;b" if odd else ["a"]])
        if random.random() < 0.5 or row["what"] == "pub":
            row["topic"] = f"t{number % 2}"
        if random.random() < odd / 4:
            row["host.name"] = random.choice(["flat", "", None])
        lines.append(dumped(row))
    return {"log.jsonl": noisy(random, lines, odd / 8)}


def history(_random: Random, _odd: float) -> dict[str, bytes]:
    return {"history.edn": BROADCAST.encode()}


def transactions(random: Random, odd: float) -> dict[str, bytes]:
    """A broker's log with transactions that are interwoven, aborted, or open at its end."""
    dump, offset, is_open = [b"Dumping /data/orders-0/0.log"], 0, set[int]()
    for _ in range(120):
        producer = random.choice([-1, 1, 2, 3])
        is_control = producer in is_open and random.random() < 0.3
        flags = f"isTransactional: {'true' if producer > 0 else 'false'} isControl: {is_control}".lower()
        dump.append(f"baseOffset: {offset} producerId: {producer} producerEpoch: 0 {flags}".encode())
        for _ in range(1 if is_control else random.randrange(1, 4)):
            end = f"endTxnMarker: {random.choice(['COMMIT', 'ABORT'])} coordinatorEpoch: 0"
            rest = end if is_control else "payload: isTransactional: true endTxnMarker: ABORT"
            head = f"| offset: {offset} CreateTime: {offset} keySize: 4 sequence: -1 headerKeys: []"
            dump.append(f"{head} {rest}".encode())
            offset += 1
        (is_open.discard if is_control else is_open.add)(producer)
    consumed = [f"Partition:0\tOffset:{number}\tx".encode() for number in range(offset)]
    return {"broker.txt": noisy(random, dump, odd / 8), "c1.log": noisy(random, consumed, odd / 8)}


CASES: dict[str, tuple[Format, Callable[[Random, float], dict[str, bytes]], dict[str, Any]]] = {
    "nats": (Nats(), nats, {}),
    "nats-replies": (Nats(), replies, {}),
    "nats-everyone": (Nats(), nats, {"audience": "everyone"}),
    "amqp": (Amqp(), amqp, {"promises": ("fifo", "atomicity", "integrity")}),
    "amqp-site": (Amqp(), amqp, {"site": "group"}),
    "kafka": (Kafka("orders"), kafka, {}),
    "kafka-site": (Kafka("orders"), kafka, {"site": "group"}),
    "kafka-transactions": (Kafka("orders"), transactions, {}),
    "otlp": (Otlp(), otlp, {"promises": ("fifo", "atomicity")}),
    "otlp-partitions": (Otlp(), spans, {"promises": ("fifo", "atomicity")}),
    "otlp-site": (Otlp(), spans, {"site": "group"}),
    "otlp-everyone": (Otlp(), spans, {"audience": "everyone"}),
    "csv-partitions": (MAPPING, topics, {"promises": ("atomicity", "integrity")}),
    "csv-numbered-partitions": (NUMBERED, topics, {"promises": ("atomicity", "integrity")}),
    "csv-ids": (MAPPING, table, {"promises": ("fifo",)}),
    "csv-numbers": (NUMBERED, table, {"promises": ("fifo", "integrity")}),
    "csv-both": (BOTH, table, {"promises": ("fifo", "integrity")}),
    "jsonl": (WORDS, words, {"promises": ("fifo", "atomicity")}),
    "jepsen": (Jepsen(1), history, {}),
}


def rows(table: Path) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in pq.read_table(table).to_pylist())


def compare(tmp_path: Path, plan: Plan) -> Imported:
    expected = import_logs(plan, tmp_path / "plain")
    found = import_in_bulk(in_turn, plan, tmp_path / "bulk")
    assert comparable(found) == comparable(expected)
    for name in ("events", "runs", *(["bad"] if expected.bad_lines else [])):
        assert rows(tmp_path / "bulk" / name) == rows(tmp_path / "plain" / name), name
    assert not (tmp_path / "bulk" / importing.STAGING).exists()
    return found


def comparable(imported: Imported) -> object:
    return msgspec.structs.replace(imported, notes=tuple(sorted(imported.notes)))


def written(tmp_path: Path, files: dict[str, bytes]) -> tuple[Path, ...]:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return tuple(tmp_path / name for name in files)


@pytest.mark.parametrize("odd", [0.0, 0.05, 0.4])
@pytest.mark.parametrize("case", CASES)
def test_pieces_make_the_trace_that_the_plain_import_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, odd: float
) -> None:
    log, draw, options = CASES[case]
    monkeypatch.setattr(source, "PIECE_BYTES", 3_000)
    monkeypatch.setattr(importing, "BYTES_PER_SHARE", 8_000)
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        files = draw(Random(f"{case} {odd} {seed}"), odd)
        compare(folder, Plan(log, written(folder, files), **options))


def test_a_line_that_spans_pieces_or_is_too_long_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (source, adapters):
        monkeypatch.setattr(module, "LONGEST_LINE", 200)
    monkeypatch.setattr(source, "PIECE_BYTES", 64)
    lines = [f"Partition:0\tOffset:{offset}\t{'x' * (offset * 17 % 400)}" for offset in range(60)]
    files = written(tmp_path, {"c.log": "\n".join(lines).encode()})
    found = compare(tmp_path, Plan(Kafka(), files))
    assert found.bad_lines == sum(len(line) >= 199 for line in lines)
    assert found.deliveries == 60 - found.bad_lines


@pytest.mark.parametrize("cut", [20, 1])
def test_a_torn_packed_log_is_refused_by_name(tmp_path: Path, cut: int) -> None:
    content = gzip.compress("".join(f"Partition:0\tOffset:{n}\n" for n in range(1000)).encode())
    (path,) = written(tmp_path, {"c.log.gz": content})
    compare(tmp_path, Plan(Kafka(), (path,)))
    path.write_bytes(content[:-cut])
    with pytest.raises(InputError, match=r"c\.log\.gz cannot be read"):
        import_in_bulk(in_turn, Plan(Kafka(), (path,)), tmp_path / "torn")
    assert not (tmp_path / "torn").exists()


def test_a_heading_without_a_column_that_the_mapping_names_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", 64)
    good = b"run,site,kind,id,from,no,domain,at,try,group,to,size\nr,a,send,m1,,0,,1,,,,\n"
    files = {
        "good.csv": good,
        "bad.csv": b"run,site\n" + b"r,a\n" * 99,
        "none.csv": b"",
        "blank.csv": b"\n\n",
    }
    found = compare(tmp_path, Plan(MAPPING, written(tmp_path, files)))
    assert found.bad_lines == 2
