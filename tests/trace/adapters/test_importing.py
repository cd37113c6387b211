"""Whole imports: logs with planted faults, and exactly those are found."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.errors import InputError, OutputError
from antiphon.core.recording import Property
from antiphon.trace.adapters.amqp import Amqp
from antiphon.trace.adapters.importing import Imported, Plan, import_logs
from antiphon.trace.adapters.jepsen import Jepsen
from antiphon.trace.adapters.kafka import Kafka
from antiphon.trace.adapters.mapping import Columns, Mapping
from antiphon.trace.adapters.otlp import Otlp
from antiphon.trace.adapters.record import Format
from antiphon.trace.arrow import pq
from antiphon.trace.files import read_trace


def imported(
    tmp_path: Path, log: Format, files: dict[str, str], **plan: Any
) -> tuple[Imported, Counter[Property]]:
    """Write the files, import them, and count the violations of what the trace promises."""
    paths = []
    for name, text in files.items():
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    result = import_logs(Plan(log, tuple(paths), **plan), tmp_path / "trace")
    trace = read_trace(tmp_path / "trace")
    assert len(trace.events) == result.rows
    found: Counter[Property] = Counter()
    for run in trace.runs:
        events = [event for event in trace.events if event.run == run.run]
        found.update(violation.property for violation in check_trace(events, run))
    return result, found


def consoles(*offsets: int, partition: int = 0) -> str:
    return "".join(f"Partition:{partition}\tOffset:{offset}\tbody\n" for offset in offsets)


def broker(*offsets: int, partition: int = 0) -> str:
    lines = [f"| offset: {offset} CreateTime: 1700000000000 keySize: -1 valueSize: 3\n" for offset in offsets]
    return f"Dumping /data/orders-{partition}/0.log\nStarting offset: 0\n" + "".join(lines)


@pytest.mark.parametrize(
    ("consumed", "expected"),
    [
        ((0, 1, 2, 3), {}),
        ((0, 1, 3), {"atomicity": 1}),
        ((0, 1, 2), {"atomicity": 1}),
        ((), {}),
        ((0, 2, 1, 3), {"fifo": 1}),
        ((0, 1, 2, 1, 2, 3), {"duplicate": 2}),
        ((0, 1, 2, 3, 9), {"integrity": 1}),
    ],
)
def test_faults_of_a_kafka_consumer(
    tmp_path: Path, consumed: tuple[int, ...], expected: dict[str, int]
) -> None:
    files = {"c1.log": consoles(*consumed), "broker.txt": broker(0, 1, 2, 3)}
    result, found = imported(tmp_path, Kafka("orders"), files)
    for name in ("total", "causal"):  # Kafka promises neither; what breaks fifo may break them
        found.pop(name, None)
    assert found == expected
    assert set(result.promises) == {"integrity", "atomicity", "fifo"}


def test_partitions_are_domains_and_consumers_of_one_are_no_destinations_of_another(tmp_path: Path) -> None:
    files = {
        "c1.log": consoles(0, 1), "c2.log": consoles(1, 0, partition=1),
        "b0.txt": broker(0, 1), "b1.txt": broker(0, 1, partition=1),
    }  # fmt: skip
    _, found = imported(tmp_path, Kafka("orders"), files)
    assert found == {"fifo": 1, "causal": 1}


def test_members_of_a_consumer_group_are_suspected_and_can_be_one_site(tmp_path: Path) -> None:
    files = {"c1.log": consoles(0, 1), "c2.log": consoles(2, 3), "b.txt": broker(0, 1, 2, 3)}
    apart, _ = imported(tmp_path, Kafka("orders"), files)
    assert apart.promises == ("integrity", "fifo")
    assert any("c1, c2 share orders-0 and hardly any message" in note for note in apart.notes)
    (tmp_path / "again").mkdir()
    together, found = imported(tmp_path / "again", Kafka("orders"), files, site="group")
    assert not found
    assert together.promises == ("integrity", "atomicity")
    (tmp_path / "all").mkdir()
    everyone, found = imported(tmp_path / "all", Kafka("orders"), files, audience="everyone")
    assert "atomicity" in everyone.promises
    assert found["atomicity"] > 0


@pytest.mark.parametrize(
    ("first", "second", "is_group"),
    [
        (range(8), range(8, 16), True),
        (range(8), range(7, 16), True),  # a rebalance: one message was delivered to both
        (range(3), range(16), False),  # a consumer that died early
        (range(16), range(16), False),
    ],
)
def test_a_rebalance_is_no_loss_and_a_dead_consumer_is_one(
    tmp_path: Path, first: range, second: range, is_group: bool
) -> None:
    files = {"c1.log": consoles(*first), "c2.log": consoles(*second), "b.txt": broker(*range(16))}
    result, found = imported(tmp_path, Kafka("orders"), files)
    assert ("atomicity" not in result.promises) == is_group
    assert is_group or found["atomicity"] == 16 - len(first)


def test_files_of_one_group_have_no_order_among_them(tmp_path: Path) -> None:
    """A partition that moved from c2 to c1 must not look reordered because of the names of the files."""
    files = {"c1.log": consoles(2, 3), "c2.log": consoles(0, 1), "b.txt": broker(0, 1, 2, 3)}
    result, _ = imported(tmp_path, Kafka("orders"), files, site="group")
    assert "fifo" not in result.promises
    assert any("order of lines in different files is not known" in note for note in result.notes)


def workers(*queues: tuple[str, int], messages: int = 40) -> dict[str, str]:
    """A publisher's log, and those of the workers of some queues, which share each message of a queue."""
    files = {"shop.log": amqp(*(("publish", "shop", f"u{number}") for number in range(messages)))}
    for queue, count in queues:
        for worker in range(count):
            taken = [
                ("deliver", f"{queue}{worker}", f"u{number}") for number in range(worker, messages, count)
            ]
            files[f"{queue}{worker}.log"] = amqp(*taken)
    return files


@pytest.mark.parametrize(
    ("queues", "suspected"),
    [
        ([("mail", 2)], "mail0, mail1"),
        ([("mail", 2), ("billing", 3)], "billing0, billing1, billing2, mail0, mail1"),
        ([("mail", 2), ("audit", 1)], "mail0, mail1"),
        ([("mail", 1), ("audit", 1)], None),
    ],
)
def test_workers_of_a_queue_lose_nothing(
    tmp_path: Path, queues: list[tuple[str, int]], suspected: str | None
) -> None:
    result, found = imported(tmp_path, Amqp(), workers(*queues))
    assert ("atomicity" in result.promises) == (suspected is None)
    told = next((note for note in result.notes if "hardly any message" in note), None)
    assert told == suspected or (told or "").startswith(f"{suspected} share hardly any message")
    assert suspected or not found


def test_messages_with_destinations_make_no_group_of_their_consumers(tmp_path: Path) -> None:
    rows = [f"p,send,u{number},{'ab'[number % 2]}\n" for number in range(20)]
    taken = [f"{'ab'[number % 2]},deliver,u{number},\n" for number in range(19)]
    files = {"log.csv": "".join(["site,kind,id,to\n", *rows, *taken])}
    columns = Columns(site="site", kind="kind", message_id="id", destinations="to")
    result, found = imported(tmp_path, Mapping("csv", columns), files, promises=("atomicity",))
    assert result.promises == ("atomicity",)
    assert found["atomicity"] == 1


def transactional(*batches: tuple[int, str, tuple[int, ...]]) -> str:
    """A broker's log of batches: the producer, the marker or nothing, and the offsets."""
    text = "Dumping /data/orders-0/00000000000000000000.log\nLog starting offset: 0\n"
    for producer, end, offsets in batches:
        flags = f"isTransactional: {str(producer > 0).lower()} isControl: {str(bool(end)).lower()}"
        text += f"baseOffset: {offsets[0]} producerId: {producer} producerEpoch: 0 {flags} position: 0\n"
        for offset in offsets:
            rest = f"endTxnMarker: {end} coordinatorEpoch: 0" if end else "payload: endTxnMarker: ABORT"
            text += f"| offset: {offset} CreateTime: 5 keySize: 4 sequence: -1 headerKeys: [] {rest}\n"
    return text


def test_markers_and_aborted_transactions_of_kafka_are_no_losses(tmp_path: Path) -> None:
    """Producers 1 and 2 are interwoven; 2 aborts; a plain batch lies between them."""
    dump = transactional(
        (1, "", (0, 1)), (2, "", (2,)), (-1, "", (3,)), (2, "ABORT", (4,)), (1, "COMMIT", (5,)),
        (-1, "", (6,)),
    )  # fmt: skip
    files = {"b.txt": dump, "c1.log": consoles(0, 1, 3, 6), "c2.log": consoles(0, 1, 3, 6)}
    result, found = imported(tmp_path, Kafka("orders"), files)
    assert (result.sends, result.bad_lines, found) == (4, 1, {})
    assert "line 7: its transaction was aborted" in result.bad_examples[0]
    (tmp_path / "lost").mkdir()
    files["c2.log"] = consoles(0, 1, 6)
    assert imported(tmp_path / "lost", Kafka("orders"), files)[1] == {"atomicity": 1}


def test_what_an_open_transaction_holds_proves_nothing(tmp_path: Path) -> None:
    files = {"b.txt": transactional((-1, "", (0,)), (1, "", (1, 2))), "c1.log": consoles(0, 1)}
    result, found = imported(tmp_path, Kafka("orders"), files)
    assert (result.bad_lines, found) == (2, {})
    assert any("what the sites of this file lack proves nothing" in note for note in result.notes)


def test_a_log_of_sends_that_does_not_reach_back_is_told(tmp_path: Path) -> None:
    """The broker has deleted the older part of its log: what was consumed of it was no invention."""
    files = {"c1.log": consoles(*range(8)), "c2.log": consoles(*range(7)), "b.txt": broker(*range(4, 8))}
    result, found = imported(tmp_path, Kafka("orders"), files)
    assert result.promises == ("atomicity", "fifo")
    assert any("The sends of orders-0 are known from number 4 on, and 0 was" in note for note in result.notes)
    assert found["atomicity"] == 1


def objects(kind: str, who: str, *names: object) -> str:
    return "".join(json.dumps({"host": who, "what": kind, "id": name}) + "\n" for name in names)


IDS = Mapping("jsonl", Columns(site="host", kind="what", message_id="id"))
EXPECTED: tuple[Property, ...] = ("integrity", "atomicity")


def test_a_whole_number_names_the_same_message_in_any_form(tmp_path: Path) -> None:
    """One program writes 7, another 7.0 or "7"; beyond 2^53 a float may stand for several numbers."""
    files = {
        "p.jsonl": objects("send", "p", *range(6), 2**60),
        "c.jsonl": objects("deliver", "c", 0, 1.0, "2", 3.0, 4, 5.0, 2.0**60),
    }
    result, found = imported(tmp_path, IDS, files, promises=EXPECTED)
    assert (result.bad_lines, found) == (1, {})
    assert "has lost digits" in result.bad_examples[0]


def test_logs_that_name_messages_otherwise_are_suspected(tmp_path: Path) -> None:
    files = {
        "p.jsonl": objects("send", "p", *(f"ID-{number}" for number in range(5))),
        "c.jsonl": objects("deliver", "c", *(f"id-{number}" for number in range(5))),
    }
    result, _ = imported(tmp_path, IDS, files, promises=EXPECTED)
    assert result.promises == ()
    assert any("No message that was sent was delivered" in note for note in result.notes)


def test_bodies_may_be_any_bytes(tmp_path: Path) -> None:
    """Avro and the like; but nothing can be told of a torn stretch, which has zeros."""
    (tmp_path / "c1.log").write_bytes(consoles(0, 1, 2).replace("body", "b\xe9\xff").encode("latin-1"))
    (tmp_path / "b.txt").write_text(broker(0, 1, 2))
    plan = Plan(Kafka("orders"), (tmp_path / "b.txt", tmp_path / "c1.log"))
    result = import_logs(plan, tmp_path / "trace")
    assert (result.deliveries, result.bad_lines) == (6, 0)
    (tmp_path / "c1.log").write_bytes(consoles(0, 1).encode() + bytes(100))
    torn = import_logs(plan, tmp_path / "torn")
    assert any("1 line that cannot be used may have been a record" in note for note in torn.notes)


def test_small_runs_share_a_file(tmp_path: Path) -> None:
    rows = "".join(f"r{number},p,send,u\nr{number},c,deliver,u\n" for number in range(50))
    columns = Columns(run="run", site="site", kind="kind", message_id="id")
    imported(tmp_path, Mapping("csv", columns), {"a.csv": f"run,site,kind,id\n{rows}"})
    assert len(list((tmp_path / "trace" / "events").iterdir())) == 1


def test_a_number_that_was_sent_again_is_told(tmp_path: Path) -> None:
    """A stream that was deleted and made anew counts from the beginning."""
    files = {"c1.log": consoles(0, 1, 2, 0, 1), "b.txt": broker(0, 1, 2) + broker(0, 1)}
    result, _ = imported(tmp_path, Kafka("orders"), files)
    assert any(note.startswith("2 sends repeat a number of orders-0") for note in result.notes)


def test_a_log_without_records_is_told(tmp_path: Path) -> None:
    files = {"c1.log": consoles(0, 1), "c2.log": "", "b.txt": broker(0, 1)}
    result, _ = imported(tmp_path, Kafka("orders"), files)
    assert any(f"{tmp_path / 'c2.log'} holds no record" in note for note in result.notes)


def test_a_log_without_sends_promises_only_what_it_can_show(tmp_path: Path) -> None:
    result, found = imported(tmp_path, Kafka("orders"), {"c1.log": consoles(0, 2, 1)})
    assert result.promises == ("fifo",)
    assert found["fifo"] == 1
    assert any("No line is a send" in note for note in result.notes)


def amqp(*events: tuple[str, str, str]) -> str:
    return "".join(
        json.dumps({"event": what, "client": who, "message_id": name}) + "\n" for what, who, name in events
    )


def test_ids_become_places_in_the_order_of_sends(tmp_path: Path) -> None:
    sends = amqp(("publish", "p", "u1"), ("publish", "p", "u2"), ("publish", "p", "u3"))
    taken = amqp(("deliver", "c", "u2"), ("deliver", "c", "u1"), ("deliver", "c", "never"))
    result, found = imported(tmp_path, Amqp(), {"p.log": sends, "c.log": taken})
    # u3 reached no consumer at all: the system accepted it, so it is missing.
    assert {name: found[name] for name in ("fifo", "atomicity", "integrity")} == {
        "fifo": 1, "atomicity": 1, "integrity": 1,
    }  # fmt: skip
    assert (result.sends, result.bad_lines) == (3, 0)
    names = {event.message_id for event in read_trace(tmp_path / "trace").events}
    assert names == {"u1", "u2", "u3", "never"}


def test_publishers_are_no_destinations_unless_everyone_is(tmp_path: Path) -> None:
    files = {"p.log": amqp(("publish", "p", "u1")), "c.log": amqp(("deliver", "c", "u1"))}
    _, found = imported(tmp_path, Amqp(), files)
    assert found["atomicity"] == 0
    (tmp_path / "again").mkdir()
    _, found = imported(tmp_path / "again", Amqp(), files, audience="everyone")
    assert found["atomicity"] == 1


ORDERED = Mapping("csv", Columns(site="host", kind="kind", message_id="id", order="at", time="at"))


def test_equal_times_are_no_order(tmp_path: Path) -> None:
    text = "host,kind,id,at\n" + "".join(
        f"{row}\n"
        for row in (
            "p,send,m1,1",
            "p,send,m2,2",
            "a,deliver,m1,5",
            "a,deliver,m2,5",
            "b,deliver,m2,5",
            "b,deliver,m1,5",
        )
    )
    _, found = imported(tmp_path, ORDERED, {"all.csv": text}, promises=("fifo", "total"))
    assert not found
    (tmp_path / "again").mkdir()
    later = text.replace("a,deliver,m2,5", "a,deliver,m2,6").replace("b,deliver,m1,5", "b,deliver,m1,6")
    _, found = imported(tmp_path / "again", ORDERED, {"all.csv": later}, promises=("fifo", "total"))
    assert {name: found[name] for name in ("fifo", "total")} == {"fifo": 1, "total": 1}


def test_sends_at_one_moment_have_no_order_to_keep(tmp_path: Path) -> None:
    text = "host,kind,id,at\np,send,m1,1\np,send,m2,1\na,deliver,m2,5\na,deliver,m1,6\n"
    result, _ = imported(tmp_path, ORDERED, {"all.csv": text}, promises=("fifo", "atomicity"))
    assert result.promises == ("atomicity",)
    assert any("1 sends share their place" in note for note in result.notes)


def test_a_lost_broadcast_is_found_only_if_it_was_acknowledged(tmp_path: Path) -> None:
    text = """{:process 0, :type :invoke, :f :broadcast, :value 1}
{:process 0, :type :ok, :f :broadcast, :value 1}
{:process 0, :type :invoke, :f :broadcast, :value 2}
{:process 0, :type :info, :f :broadcast, :value 2}
{:process 1, :type :ok, :f :read, :value []}
{:process 0, :type :invoke, :f :broadcast, :value 3}
{:process 0, :type :ok, :f :broadcast, :value 3}
{:process 1, :type :ok, :f :read, :value [3]}"""
    _, found = imported(tmp_path, Jepsen(nodes=2), {"history.edn": text})
    assert found == {"atomicity": 1}


def test_a_broadcast_without_an_answer_is_lost_only_where_others_show_it(tmp_path: Path) -> None:
    text = """{:process 0, :type :invoke, :f :broadcast, :value 1}
{:process 0, :type :info, :f :broadcast, :value 1}
{:process 0, :type :ok, :f :read, :value [1]}
{:process 1, :type :ok, :f :read, :value []}
{:process 1, :type :ok, :f :read, :value [1]}
{:process 0, :type :ok, :f :read, :value []}"""
    result, found = imported(tmp_path, Jepsen(nodes=2), {"history.edn": text})
    assert not found
    assert "line 6: the last read of n0 lacks 1, which an earlier one has" in result.bad_examples[0]


def test_bad_lines_are_kept_with_file_line_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "c.log"
    path.write_bytes(b"Partition:0\tOffset:0\ta\n\xff\xfe broken\nPartition:0\n\nPartition:0\tOffset:1\ta\n")
    result = import_logs(Plan(Kafka(), (path,)), tmp_path / "trace")
    assert (result.deliveries, result.bad_lines) == (2, 2)
    rows = pq.read_table(tmp_path / "trace" / "bad").to_pylist()
    assert [(row["file"], row["line"]) for row in rows] == [(str(path), 2), (str(path), 3)]
    assert rows[0]["reason"].startswith("no 'Partition:' and 'Offset:'")
    assert result.bad_examples[1].startswith(f"{path}, line 3: no 'Partition:'")


def test_clocks_that_go_back_are_noticed_and_change_no_order(tmp_path: Path) -> None:
    text = "2000.5 Partition:0\tOffset:0\ta\n1000.5 Partition:0\tOffset:1\ta\n"
    result, found = imported(tmp_path, Kafka(), {"c.log": text})
    assert not found
    assert any("1 line has an earlier time" in note for note in result.notes)


def test_what_a_torn_line_may_have_been_is_not_missing(tmp_path: Path) -> None:
    torn = consoles(0, 1) + "Partition:0\tOffs\n" + consoles(3)
    files = {"c1.log": torn, "c2.log": consoles(0, 1, 3), "b.txt": broker(0, 1, 2, 3)}
    result, found = imported(tmp_path, Kafka("orders"), files)
    assert found == {"atomicity": 1}  # at c2, whose log is whole
    assert any("1 line that cannot be used may have been a record" in note for note in result.notes)
    (tmp_path / "again").mkdir()
    files["c1.log"] = "[2026-01-01 00:00:00,000] WARN Connection to node -1 (kafka.Client)\n" + consoles(0, 1)
    result, found = imported(tmp_path / "again", Kafka("orders"), files)
    assert found == {"atomicity": 3}  # a warning hides nothing
    assert result.bad_lines == 1


def test_hosts_with_one_name_are_kept_apart_or_noticed(tmp_path: Path) -> None:
    for host in ("h1", "h2"):
        (tmp_path / host).mkdir()
        (tmp_path / host / "c.log").write_text(consoles(0, 1))
    paths = (tmp_path / "h1" / "c.log", tmp_path / "h2" / "c.log")
    import_logs(Plan(Kafka(), paths), tmp_path / "trace")
    assert {event.site for event in read_trace(tmp_path / "trace").events} == {"h1/c", "h2/c"}
    with pytest.raises(InputError, match="is named twice"):
        import_logs(Plan(Kafka(), (paths[0], paths[0])), tmp_path / "twice")
    (tmp_path / "again").mkdir()
    files = {name: amqp(("publish", "p", name), ("deliver", "w", name)) for name in ("a.log", "b.log")}
    result, _ = imported(tmp_path / "again", Amqp(), files)
    assert any("w is named in 2 files" in note for note in result.notes)


def test_packed_logs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "c1.log.gz"
    path.write_bytes(gzip.compress(consoles(0, 1).encode()))
    import_logs(Plan(Kafka(), (path,)), tmp_path / "trace")
    assert {event.site for event in read_trace(tmp_path / "trace").events} == {"c1"}
    path.write_bytes(gzip.compress(consoles(*range(1000)).encode())[:-20])
    with pytest.raises(InputError, match="cannot be read"):
        import_logs(Plan(Kafka(), (path,)), tmp_path / "torn")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "can be read as kafka"),
        (b"nothing useful\n", "The first line that fails"),
        ("Partition:0".encode("utf-16"), "is written in UTF-16"),
    ],
)
def test_a_log_with_nothing_to_use_writes_no_trace(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "c.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        import_logs(Plan(Kafka(), (path,)), tmp_path / "trace")
    assert not (tmp_path / "trace").exists()
    with pytest.raises(InputError, match="cannot be read"):
        import_logs(Plan(Otlp(), (tmp_path / "none.log",)), tmp_path / "trace")


def test_a_trace_is_never_written_over(tmp_path: Path) -> None:
    files = {"c1.log": consoles(0)}
    imported(tmp_path, Kafka(), files)
    with pytest.raises(OutputError, match="already holds a trace"):
        imported(tmp_path, Kafka(), files)
