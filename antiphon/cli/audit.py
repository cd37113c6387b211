"""`antiphon audit PATH…`: judge whether a trace keeps what its protocol promised."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from antiphon.audit.result import AuditResult
from antiphon.cli.console import data, print_json, say, starting_spark, status
from antiphon.cli.pages import diagram_of
from antiphon.cli.sweep import Master
from antiphon.cli.verdicts import print_properties, print_verdict
from antiphon.core.errors import UsageError
from antiphon.core.recording import PROMISABLE, Property
from antiphon.report.text import to_text
from antiphon.spark.audit import audit as spark_audit
from antiphon.trace.files import open_trace


def audit(
    paths: Annotated[list[Path], Parameter(help="folders that hold events/ and runs/", negative=())],
    /,
    *,
    expect: Annotated[
        str | None,
        Parameter(help="judge by these properties instead of the recorded promises, e.g. total,fifo"),
    ] = None,
    show: Annotated[
        int, Parameter(help="how many violations to explain", validator=validators.Number(gte=0))
    ] = 3,
    violations: Annotated[
        Path | None, Parameter(help="write every violation into this folder, as Parquet")
    ] = None,
    master: Master = "local[*]",
    json: Annotated[bool, Parameter(help="print one JSON object", negative=())] = False,
) -> int:
    """Judge traces on Spark: integrity, duplicate, atomicity, fifo, causal, total and stability.

    All seven are counted, promised or not; pairwise order only where it is promised or expected. Exit code 0:
    what was promised holds. 1: a promise is broken. 2: the trace cannot be judged.

    Example: antiphon audit out/trace --expect total,fifo
    """
    expected = parse_properties(expect)
    for path in paths:
        open_trace(path)  # Report a bad path at once: Spark takes seconds to start.
    with starting_spark(master) as spark, status("Judging ..."):
        result = spark_audit(spark, paths, expected, limit=show, violations_to=violations)
    if json:
        print_json(result.to_json())
    else:
        print_result(result, paths, show)
    for sentence in reservations(result):
        say(sentence)
    return result.verdict.exit_code


def reservations(result: AuditResult) -> list[str]:
    """Sentences about runs that could not be judged or have no promises."""
    sentences = list(result.unjudgeable)
    further = result.unjudgeable_count - len(sentences)
    if further:
        sentences.append(f"{further} more runs are like these.")
    if result.unpromised:
        runs = f"{result.unpromised} of the runs"
        sentences.append(f"{runs} have no recorded promises: name the expected properties with --expect.")
    return sentences


def parse_properties(text: str | None) -> tuple[Property, ...] | None:
    """Properties from a comma-separated list; None stays None."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    known: dict[str, Property] = {name: name for name in PROMISABLE}
    for name in names:
        if name not in known:
            raise UsageError(f"There is no property '{name}'.", hint=f"There are: {', '.join(PROMISABLE)}.")
    return tuple(known[name] for name in names)


def print_result(result: AuditResult, paths: Sequence[Path], show: int) -> None:
    """The verdict, the counts, and the first violations explained."""
    counts = {
        "runs": result.runs,
        "sites": result.sites,
        "sends": result.sends,
        "deliveries": result.deliveries,
    }
    print_verdict(result.verdict, counts)
    print_properties(result.violations, result.broken, "broken promises")
    for violation in result.examples[:show]:
        data.print()
        data.print(to_text(diagram_of(paths, violation)), markup=False)
