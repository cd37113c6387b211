"""The import on Spark writes the rows that the local import writes."""

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antiphon.core.errors import InputError, OutputError
from antiphon.spark.importing import import_on_spark
from antiphon.trace.adapters.amqp import Amqp
from antiphon.trace.adapters.importing import Imported, Plan, import_logs
from antiphon.trace.adapters.jepsen import Jepsen
from antiphon.trace.adapters.kafka import Kafka
from antiphon.trace.adapters.mapping import Columns, Mapping
from antiphon.trace.adapters.record import Format
from antiphon.trace.arrow import pq
from tests.trace.adapters.test_formats import BROADCAST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MAPPING = Mapping(
    "csv",
    Columns(
        run="run", site="site", kind="kind", message_id="id", sender="from", domain="domain",
        order="at", time="at", attempt="try", group="group", destinations="to", size="size",
    ),
)  # fmt: skip


NUMBERED = msgspec.structs.replace(
    MAPPING, columns=msgspec.structs.replace(MAPPING.columns, message_id=None, number="no")
)


def kafka_files() -> dict[str, str]:
    console = "".join(
        f"CreateTime:{9 - offset}\tPartition:{offset % 2}\tOffset:{offset}\tb\n" for offset in range(8)
    )
    dump = "Dumping /data/orders-0/0.log\n" + "".join(
        f"| offset: {n} CreateTime: 5\n" for n in (0, 2, 4, 6, 8)
    )
    return {
        "c1.log": console,
        "c2.log": "Partition:1\tOffset:9\tb\nnothing\nPartition:1\tOff\n",
        "broker.txt": dump + "noise\n",
    }


def drawn_csv(seed: int) -> str:
    """Rows at random: ids with and without sends, equal places, domains, destinations, absences, bad rows."""
    random = Random(seed)
    lines = ["run,site,kind,id,from,no,domain,at,try,group,to,size"]
    for _ in range(150):
        message = random.randrange(40)
        row = [
            "r" if message % 2 else "s",
            random.choice("abcd"),
            random.choice(["send", "deliver", "deliver", "deliver", "receive", "absent", "present"]),
            f"m{message}",
            random.choice(["", "p"]),
            str(message // 2),
            ("", "x", "y")[message % 3],
            str(random.randrange(40)) if random.random() < 0.97 else "late",
            random.choice(["", "1", "2"]),
            random.choice(["", "", "g"]),
            random.choice(["", "", "a;b"]),
            random.choice(["", "100"]),
        ]
        lines.append(",".join(row))
    return "\n".join(lines) + "\n"


def amqp_files() -> dict[str, str]:
    def line(what: str, who: str, name: int) -> str:
        return json.dumps({"event": what, "client": who, "message_id": f"u{name}"}) + "\n"

    sends = "".join(line("publish", f"p{n % 3}", n) for n in range(30)) + line("publish", "p0", 1)
    return {
        "p.log": sends,
        "d.log": line("deliver", "c0", 29),
        "c.log": "".join(line("deliver", f"c{n % 2}", n // 2) for n in range(50)),
    }


UNANSWERED = """
{:process 0, :type :invoke, :f :broadcast, :value 70}
{:process 0, :type :info, :f :broadcast, :value 70}
{:process 1, :type :ok, :f :read, :value [7 8 70]}"""
CASES: dict[str, tuple[Format, dict[str, str], dict[str, Any]]] = {
    "kafka": (Kafka("orders"), kafka_files(), {}),
    "group": (Kafka("orders"), kafka_files(), {"site": "group"}),
    "amqp": (Amqp(), amqp_files(), {}),
    "everyone": (Amqp(), amqp_files(), {"audience": "everyone", "promises": ("fifo",)}),
    "jepsen": (Jepsen(1), {"history.edn": BROADCAST + UNANSWERED}, {}),
    **{
        f"csv-{seed}": (
            MAPPING,
            {"a.csv": drawn_csv(seed), "b.csv": drawn_csv(seed + 100)},
            {"promises": ("fifo",)},
        )
        for seed, log in enumerate((MAPPING, NUMBERED))
    },
}


def rows(table: Path) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in pq.read_table(table).to_pylist())


@pytest.mark.parametrize("case", CASES)
def test_spark_writes_what_the_local_import_writes(spark: "SparkSession", tmp_path: Path, case: str) -> None:
    log, files, options = CASES[case]
    paths = []
    for name, text in files.items():
        paths.append(tmp_path / name)
        paths[-1].write_text(text)
    plan = Plan(log, tuple(paths), **options)
    expected = import_logs(plan, tmp_path / "local")
    found = import_on_spark(spark, plan, tmp_path / "spark")
    assert comparable(found) == comparable(expected)
    for table in ("events", "runs", *(["bad"] if expected.bad_lines else [])):
        assert rows(tmp_path / "spark" / table) == rows(tmp_path / "local" / table), table
    assert sorted(path.name for path in (tmp_path / "spark").iterdir()) == sorted(
        path.name for path in (tmp_path / "local").iterdir()
    )


def comparable(imported: Imported) -> object:
    return msgspec.structs.replace(imported, notes=tuple(sorted(imported.notes)))


def test_a_useless_log_leaves_nothing_behind(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "c.log"
    path.write_text("nothing\n")
    with pytest.raises(InputError, match="The first line that fails"):
        import_on_spark(spark, Plan(Kafka(), (path,)), tmp_path / "trace")
    with pytest.raises(InputError, match="cannot be read"):
        import_on_spark(spark, Plan(Kafka(), (tmp_path / "none",)), tmp_path / "trace")
    assert not (tmp_path / "trace").exists()


def test_a_trace_is_never_written_over(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "c.log"
    path.write_text("Partition:0\tOffset:0\tb\n")
    import_logs(Plan(Kafka(), (path,)), tmp_path / "trace")
    with pytest.raises(OutputError, match="already holds a trace"):
        import_on_spark(spark, Plan(Kafka(), (path,)), tmp_path / "trace")
