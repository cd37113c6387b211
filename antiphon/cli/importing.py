"""`antiphon import`: other systems' logs to a trace, which `antiphon audit` then judges."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from cyclopts import Parameter

from antiphon.cli.audit import parse_properties
from antiphon.cli.console import data, print_json, say, starting_spark, status
from antiphon.cli.sweep import Master
from antiphon.core.errors import InputError, UsageError
from antiphon.core.extras import require_extra
from antiphon.trace.adapters.amqp import Amqp
from antiphon.trace.adapters.guess import SAMPLE_LINES
from antiphon.trace.adapters.guess import guess as proposed
from antiphon.trace.adapters.importing import Imported, Plan, import_logs, read_lines
from antiphon.trace.adapters.jepsen import Jepsen
from antiphon.trace.adapters.kafka import Kafka
from antiphon.trace.adapters.mapping import Mapping, read_mapping
from antiphon.trace.adapters.nats import Nats
from antiphon.trace.adapters.numbering import Audience
from antiphon.trace.adapters.otlp import Otlp
from antiphon.trace.adapters.record import Format
from antiphon.trace.adapters.rotation import oldest_first

Name = Literal["kafka", "nats", "amqp", "otlp", "jepsen", "csv", "jsonl"]
Engine = Literal["auto", "local", "spark"]
MOST_LOCAL_BYTES: Final = 200 << 20
"""Logs up to this size are imported in this process, which takes about ten times as much memory."""
MAPPED: Final = ("csv", "jsonl")


def import_(
    files: Annotated[
        list[Path], Parameter(help="log files, plain or packed by gzip, or folders of them", negative=())
    ],
    /,
    *,
    format: Annotated[Name | None, Parameter(help="what wrote the logs")] = None,
    out: Annotated[Path | None, Parameter(help="the folder for the trace")] = None,
    mapping: Annotated[
        Path | None, Parameter(help="for csv and jsonl: a TOML file, which names columns")
    ] = None,
    guess: Annotated[bool, Parameter(help="only propose a mapping for the first file", negative=())] = False,
    run: Annotated[str, Parameter(help="the name of the run")] = "imported",
    site: Annotated[
        str | None, Parameter(help="take all consumers as one site, such as a consumer group")
    ] = None,
    topic: Annotated[str | None, Parameter(help="kafka: the topic that consoles read")] = None,
    nodes: Annotated[int | None, Parameter(help="jepsen: nodes of a broadcast test")] = None,
    expect: Annotated[
        str | None, Parameter(help="properties that the system promises, e.g. fifo,atomicity")
    ] = None,
    destinations: Annotated[
        Audience,
        Parameter(help="who a message without destinations is for: who consumes its domain, or everyone"),
    ] = "consumers",
    engine: Annotated[Engine, Parameter(help="in this process, on Spark, or by the logs' size")] = "auto",
    master: Master = "local[*]",
    json: Annotated[bool, Parameter(help="print one JSON object", negative=())] = False,
) -> int:
    """Turn the logs of Kafka, NATS, AMQP, OpenTelemetry, Jepsen, or CSV and JSON lines, into a trace.

    A file is one consumer unless its lines name it. Lines that cannot be used go to OUT/bad, with file, line
    and reason. Then: antiphon audit OUT.

    Example: antiphon import a.log b.log --format kafka --topic orders --out out/orders
    """
    files = oldest_first(list(_log_files(files)))
    if guess:
        return _propose(files[0])
    if out is None:
        raise UsageError("Where shall the trace go?", hint="--out FOLDER names the folder.")
    log = _format(format, mapping, topic, nodes)
    if isinstance(log, Kafka) and topic is None:
        _require_one_naming(files)
    plan = Plan(log, tuple(files), run, site, parse_properties(expect), destinations)
    if isinstance(plan.format, Mapping) and plan.format.run is not None and run == "imported":
        plan = msgspec.structs.replace(plan, run=plan.format.run)
    imported = _import(plan, out, engine, master)
    if json:
        print_json(msgspec.to_builtins(imported))
    else:
        _print(imported, out)
    return 0


def _log_files(named: Iterable[Path]) -> Iterator[Path]:
    """The files that are named, that lie in folders that are named, or that fit a pattern."""
    for path in named:
        if path.is_dir():
            inside = path.rglob("*")
            found = _distinct(file for file in inside if file.is_file() and not file.name.startswith("."))
        elif not path.exists() and any(sign in str(path) for sign in "*?["):
            root = Path(path.anchor)
            found = _distinct(root.glob(str(path.relative_to(root))))
        else:
            found = [path]
        if not found:
            hint = "Name files, folders, or a pattern such as '*.log'."
            raise InputError(f"There is no log file in {path}.", hint)
        yield from found


def _distinct(files: Iterable[Path]) -> list[Path]:
    """Each file once, and not by its links, such as `current.log`, if it is there itself."""
    ordered = sorted(files, key=lambda file: (file.is_symlink(), file))
    return sorted({file.resolve(): file for file in reversed(ordered)}.values())


def _require_one_naming(files: list[Path]) -> None:
    """A broker's log names its topic, and a console's does not: together they need the name."""
    firsts = [next(read_lines(file, []), None) for file in files]
    dumps = {line.text.startswith(("Dumping ", "{")) for line in firsts if line is not None}
    if len(dumps) > 1:
        raise UsageError(
            "The broker's log names its topic, and the consumers' logs do not.", hint="--topic NAME names it."
        )


def _import(plan: Plan, out: Path, engine: Engine, master: str) -> Imported:
    size = sum(file.stat().st_size for file in plan.files if file.exists())
    if engine == "local" or (engine == "auto" and size <= MOST_LOCAL_BYTES):
        with status("Importing ..."):
            return import_logs(plan, out)
    require_extra("spark", "The import of large logs needs")
    from antiphon.spark.importing import import_on_spark

    with starting_spark(master) as spark, status("Importing ..."):
        return import_on_spark(spark, plan, out)


def _format(name: Name | None, mapping: Path | None, topic: str | None, nodes: int | None) -> Format:
    if mapping is not None:
        found = read_mapping(mapping)
        if name not in (None, found.format):
            raise UsageError(f"The mapping {mapping} is for {found.format}, not for {name}.")
        return found
    if name is None or name in MAPPED:
        raise UsageError(
            "CSV and JSON lines need a mapping." if name else "What wrote the logs?",
            hint="--format names kafka, nats, amqp, otlp or jepsen; --guess proposes a mapping.",
        )
    if nodes is not None and nodes < 1:
        raise UsageError("A test has at least one node.")
    formats: dict[str, Format] = {
        "kafka": Kafka(topic), "nats": Nats(), "amqp": Amqp(), "otlp": Otlp(), "jepsen": Jepsen(nodes),
    }  # fmt: skip
    return formats[name]


def _propose(file: Path) -> int:
    proposal = proposed(islice(read_lines(file, []), SAMPLE_LINES))
    data.print(proposal.toml, end="", markup=False)
    for doubt in proposal.doubts:
        say(doubt)
    return 0


def _print(imported: Imported, out: Path) -> None:
    data.print(
        f"runs {imported.runs}, sites {imported.sites}, sends {imported.sends}, "
        f"deliveries {imported.deliveries}, bad lines {imported.bad_lines}",
        markup=False,
    )
    for example in imported.bad_examples:
        say(f"Not used: {example}.")
    if imported.bad_lines > len(imported.bad_examples):
        say(f"All {imported.bad_lines} bad lines are in {out / 'bad'}.")
    for note in imported.notes:
        say(note)
    promises = ", ".join(imported.promises) or "nothing: name what you expect with antiphon audit --expect"
    say(f"The trace in {out} promises {promises}.")
