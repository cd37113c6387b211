"""Every run of a trace judged, and the results added up.

Pieces arrive sorted by trace and run. A run's segments are laid out as flat arrays (`log`) and judged by the
compiled kernels (`judging`). Runs are grouped within a task, so that a small run costs no batch and no call
of its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from antiphon.audit.judging import Judgement, judge
from antiphon.audit.log import Log, build_log
from antiphon.audit.packing import Segment
from antiphon.audit.reading import Piece
from antiphon.audit.violations import ViolationFile
from antiphon.check.verdict import Violation
from antiphon.core.errors import InputError, UsageError
from antiphon.core.ids import Site
from antiphon.core.recording import PROMISABLE, PROPERTIES, Property
from antiphon.trace.files import TraceFiles, open_trace
from antiphon.trace.schema import Run

PROBLEMS_KEPT: Final = 20
"""Sentences kept about runs that cannot be judged; the others are only counted."""


class Request(NamedTuple):
    """What an audit is asked for. It travels to the tasks."""

    folders: list[str]
    """The traces' folders."""
    expect: tuple[Property, ...] | None
    """The properties to judge by; None for the promises that each run recorded."""
    limit: int
    """Violations explained per property. Counts are complete in any case."""
    violations_to: str | None = None
    """A folder for all violations as Parquet files; then each of them is explained."""


class Sums(msgspec.Struct):
    """The results of one judging task, added up."""

    runs: int = 0
    sites: set[Site] = msgspec.field(default_factory=set)
    sends: int = 0
    deliveries: int = 0
    counts: dict[Property, int] = msgspec.field(default_factory=lambda: dict.fromkeys(PROPERTIES, 0))
    broken: dict[Property, int] = msgspec.field(default_factory=lambda: dict.fromkeys(PROMISABLE, 0))
    broken_runs: list[str] = msgspec.field(default_factory=list)
    broken_run_count: int = 0
    unpromised: int = 0
    problems: list[str] = msgspec.field(default_factory=list)
    problem_count: int = 0
    file_problem: tuple[str, str | None] | None = None
    """The sentence and the hint about a file that cannot be read."""
    output_problem: str | None = None
    examples: dict[Property, list[tuple[bool, Violation]]] = msgspec.field(
        default_factory=lambda: {name: [] for name in PROMISABLE}
    )
    """Violations to show, each with whether it breaks a promise; those that do come first."""

    def note(self, problem: str) -> None:
        """Record what keeps a run from being judged, or from passing."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(problem)

    def room(self, name: Property, limit: int, promised: bool) -> int:
        """How many more violations of a property may be shown."""
        held = self.examples[name]
        return limit - sum(1 for example in held if example[0] or not promised)

    def show(self, violation: Violation, limit: int, promised: bool) -> None:
        """Keep a violation to show; a broken promise displaces others."""
        held = self.examples[violation.property]
        held.append((promised, violation))
        if promised:
            held.sort(key=lambda example: not example[0])
        del held[limit:]


def open_traces(
    paths: Sequence[Path | str], expect: Sequence[Property] | None, limit: int
) -> tuple[list[TraceFiles], Request]:
    """Check the arguments of an audit and find its files."""
    unknown = sorted(set(expect or ()) - set(PROMISABLE))
    if unknown:
        raise UsageError(f"{unknown[0]!r} is no property.", f"The properties are {', '.join(PROMISABLE)}.")
    if not paths or limit < 0:
        raise UsageError("An audit needs at least one trace and a limit that is not negative.")
    traces = [open_trace(path) for path in paths]
    folders = [str(trace.folder) for trace in traces]
    return traces, Request(folders, None if expect is None else tuple(expect), limit)


def judge_runs(pieces: Iterator[Piece], request: Request, part: int = 0) -> Sums:
    """Judge all runs of a task. `part` numbers the task, and so its file of violations."""
    sums = Sums()
    with ViolationFile(request.violations_to, part) as file:
        for (trace, run), own in groupby(pieces, key=lambda piece: (piece.trace, piece.run)):
            if run is None:
                # Several files may be torn; the first by name is reported.
                first = min(own, key=lambda piece: piece.problem or "")
                hint = None if first.promised is None else msgspec.msgpack.decode(first.promised)
                sums.file_problem = (first.problem or "", hint)
                continue
            _judge_run(trace, run, own, request, sums, file)
    sums.output_problem = file.problem
    return sums


def _judge_run(
    trace: int, name: str, pieces: Iterable[Piece], request: Request, sums: Sums, file: ViolationFile
) -> None:
    sums.runs += 1
    try:
        run, promised, segments = _gathered(name, pieces)
        promises = run.promises if request.expect is None else request.expect
        log, judgement = _judged(run, segments, _limits(sums, promises, request))
    except InputError as error:
        sums.note(error.sentence)
        return
    hole = log.first_hole()
    if hole is not None:
        sums.note(hole)
    if request.expect is None and not promised:
        sums.unpromised += 1
    _add(sums, log, judgement, promises, request.limit)
    file.write(request.folders[trace], judgement.violations, promises)


def _gathered(name: str, pieces: Iterable[Piece]) -> tuple[Run, bool, list[Segment]]:
    """A run's row in `runs`, whether it has one, and its segments; InputError if it cannot be judged."""
    run, promised, rows = Run(name), False, 0
    segments: list[Segment] = []
    problem: str | None = None
    for piece in pieces:
        problem = problem or piece.problem
        if piece.promised is not None:
            run, promised = msgspec.msgpack.decode(piece.promised, type=tuple[Run, bool])
            rows += 1
        if piece.segment is not None:
            segments.append(msgspec.msgpack.decode(piece.segment, type=Segment))
    if rows > 1:
        problem = f"Run {name} cannot be judged: it has {rows} rows in runs/."
    if problem is not None:
        raise InputError(problem)
    return run, promised, segments


def _limits(sums: Sums, promises: Sequence[Property], request: Request) -> dict[Property, int | None]:
    """How many violations of each property to explain; None for all, if they are to be written."""
    judged = [name for name in PROMISABLE if name in PROPERTIES or name in promises]
    if request.violations_to is not None:
        return dict.fromkeys(judged)
    return {name: sums.room(name, request.limit, name in promises) for name in judged}


def _judged(run: Run, segments: list[Segment], limits: dict[Property, int | None]) -> tuple[Log, Judgement]:
    """Judge batches as wholes, which is far less work, unless every violation is to be explained."""
    if None not in limits.values():
        log = build_log(run, segments, by_batch=True)
        judgement = judge(log, limits)
        if judgement.exact:
            return log, judgement
    log = build_log(run, segments)
    return log, judge(log, limits)


def _add(sums: Sums, log: Log, judgement: Judgement, promises: Sequence[Property], limit: int) -> None:
    sums.sites.update(log.sites[: log.logged])
    sums.sends += log.sends
    sums.deliveries += log.deliveries
    for name, count in judgement.counts.items():
        sums.counts[name] = sums.counts.get(name, 0) + count
    broken = [name for name in promises if judgement.counts[name]]
    for name in broken:
        sums.broken[name] += judgement.counts[name]
    if broken:
        sums.broken_run_count += 1
        if len(sums.broken_runs) < limit:
            sums.broken_runs.append(log.run.run)
    for violation in judgement.violations:
        promised = violation.property in promises
        if sums.room(violation.property, limit, promised) > 0:
            sums.show(violation, limit, promised)
