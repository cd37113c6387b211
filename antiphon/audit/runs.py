"""Every run of a trace judged, and the results added up.

Pieces arrive sorted by trace and run. A run's segments are laid out as flat arrays (`log`) and judged by the
compiled kernels (`judging`). Runs are grouped within a task, so that a small run costs no batch and no call
of its own.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from antiphon.audit.judging import Judgement, judge, judge_calls
from antiphon.audit.log import Log, build_log
from antiphon.audit.packing import Segment
from antiphon.audit.reading import Piece
from antiphon.audit.violations import ViolationFile
from antiphon.check.evidence import Evidence
from antiphon.check.explain import listed
from antiphon.check.verdict import RunSummary, RunVerdict, Verdict, Violation
from antiphon.core.calls import Call
from antiphon.core.errors import InputError, UsageError
from antiphon.core.ids import Site
from antiphon.core.recording import PROMISABLE, PROPERTIES, Property
from antiphon.trace.files import TraceFiles, open_trace
from antiphon.trace.schema import Run

PROBLEMS_KEPT: Final = 20
"""Sentences kept about runs that cannot be judged; the others are only counted."""
EXAMPLES_KEPT: Final = 100
"""Violations of each property that a result shows unless told otherwise."""
VERDICTS_KEPT: Final = 100
"""Verdicts kept about promises that are broken or cannot be judged; the others are only counted."""


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
    explain_all: bool = False
    """Whether every violation is explained, not only those to be shown."""
    only: tuple[Property, ...] | None = None
    """The properties to judge beside those promised; None for all that are always judged."""
    windowed: frozenset[tuple[int, str]] = frozenset()
    """Runs that are judged in windows, each by its trace and name: not one in a task."""
    by_promise: bool = False
    """Whether spells of presence are judged by the run's order only where total order is promised: a short
    run of another protocol is often in one order by accident."""
    summaries: int = 0
    """Runs whose verdicts are kept whole, those with broken promises first. Raising it costs the driver
    memory."""

    def judged(self, promises: Sequence[Property]) -> list[Property]:
        """The properties to judge in a run with these promises, in the order of the report."""
        wanted = {*promises, *(PROPERTIES if self.only is None else self.only)}
        return [name for name in PROMISABLE if name in wanted]

    def asked(self, promises: Sequence[Property]) -> set[Property]:
        """Those of them to judge at any cost."""
        return {*promises, *(self.only or ())}


class Facts(Protocol):
    """What the sums tell of a run beside its judgement: a log knows it."""

    @property
    def run(self) -> Run: ...
    @property
    def sites(self) -> list[Site]: ...
    @property
    def logged(self) -> int: ...
    @property
    def sends(self) -> int: ...
    @property
    def deliveries(self) -> int: ...
    @property
    def evidence(self) -> Evidence: ...


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
    unknown: dict[Property, int] = msgspec.field(default_factory=dict)
    """Runs in which a property can neither pass nor fail, promised or not."""
    unpromised: int = 0
    not_judged: dict[Property, int] = msgspec.field(default_factory=dict)
    """Runs in which a property was neither promised nor asked for, and not judged."""
    verdicts: list[RunVerdict] = msgspec.field(default_factory=list)
    """Promises that are broken or cannot be judged; the first few."""
    summaries: list[RunSummary] = msgspec.field(default_factory=list)
    """All verdicts of some runs, as many as the request asks for."""
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

    def summarize(self, trace: str, run: str, verdicts: Sequence[RunVerdict], limit: int) -> None:
        """Keep the verdicts of a run; where there are too many runs, the most severe."""
        if limit:
            self.summaries.append(RunSummary(trace, run, tuple(verdicts)))
            if len(self.summaries) >= 2 * limit:
                self.summaries = most_severe(self.summaries, limit)

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


def most_severe(summaries: Iterable[RunSummary], limit: int) -> list[RunSummary]:
    """The runs that a reader should see first, by name where they are alike."""
    return sorted(summaries, key=lambda each: (each.severity, each.trace, each.run))[:limit]


def open_traces(
    paths: Sequence[Path | str],
    expect: Sequence[Property] | None,
    limit: int,
    only: Sequence[Property] | None = None,
) -> tuple[list[TraceFiles], Request]:
    """Check the arguments of an audit and find its files."""
    request = checked_request([str(path) for path in paths], expect, only, limit)
    traces = [open_trace(path) for path in paths]
    return traces, request._replace(folders=[str(trace.folder) for trace in traces])


def checked_request(
    folders: list[str],
    expect: Sequence[Property] | None,
    only: Sequence[Property] | None,
    limit: int | None = None,
) -> Request:
    """What is asked for; without a limit, every violation is explained. UsageError if it makes no sense."""
    unknown = sorted({*(expect or ()), *(only or ())} - set(PROMISABLE))
    if unknown:
        raise UsageError(f"{unknown[0]!r} is no property.", f"The properties are {', '.join(PROMISABLE)}.")
    if not folders or (limit is not None and limit < 0):
        raise UsageError("An audit needs at least one trace and a limit that is not negative.")
    return Request(
        folders,
        None if expect is None else tuple(expect),
        EXAMPLES_KEPT if limit is None else limit,
        only=None if only is None else tuple(only),
        explain_all=limit is None,
    )


class RunReport(NamedTuple):
    """What was found in one run."""

    trace: str
    promises: tuple[Property, ...]
    verdicts: list[RunVerdict]
    violations: list[Violation]


def judge_runs(pieces: Iterator[Piece], request: Request, part: int = 0) -> Sums:
    """Judge all runs of a task. `part` numbers the task, and so its file of violations."""
    sums = Sums()
    with ViolationFile(request.violations_to, part) as file:
        for report in report_runs(pieces, request, sums):
            file.write(report.trace, report.violations, report.promises)
    sums.output_problem = file.problem
    return sums


def report_runs(pieces: Iterator[Piece], request: Request, sums: Sums) -> Iterator[RunReport]:
    """Judge all runs of a task one after another, and add up what is found."""
    for (trace, run), own in groupby(pieces, key=lambda piece: (piece.trace, piece.run)):
        if run is None:
            # Several files may be torn; the first by name is reported.
            first = min(own, key=lambda piece: piece.problem or "")
            hint = None if first.promised is None else msgspec.msgpack.decode(first.promised)
            sums.file_problem = (first.problem or "", hint)
            continue
        if (trace, run) not in request.windowed:
            yield _judge_run(request.folders[trace], run, own, request, sums)


def _judge_run(trace: str, name: str, pieces: Iterable[Piece], request: Request, sums: Sums) -> RunReport:
    sums.runs += 1
    try:
        run, promised, segments, calls = _gathered(name, pieces)
        promises = run.promises if request.expect is None else request.expect
        limits = limits_of(sums, promises, request)
        in_order = not request.by_promise or "total" in promises
        log, judgement = _judged(run, segments, calls, limits, request.asked(promises), in_order)
    except InputError as error:
        return RunReport(trace, (), note_problem(sums, trace, name, error.sentence, request), [])
    verdicts = note_judgement(sums, log, judgement, promised, request)
    sums.summarize(trace, name, verdicts, request.summaries)
    return RunReport(trace, tuple(promises), verdicts, judgement.violations)


def note_judgement(
    sums: Sums, facts: Facts, judgement: Judgement, promised: bool, request: Request
) -> list[RunVerdict]:
    """Add a run's judgement to the sums; `promised` says whether its promises were recorded."""
    promises = facts.run.promises if request.expect is None else request.expect
    if request.expect is None and not promised:
        sums.unpromised += 1
    verdicts = run_verdicts(facts, judgement, promises)
    _note_verdicts(sums, facts, judgement, verdicts)
    _add(sums, facts, judgement, promises, request.limit)
    return verdicts


def note_problem(sums: Sums, trace: str, run: str, sentence: str, request: Request) -> list[RunVerdict]:
    """Add a run that cannot be judged to the sums."""
    sums.note(sentence)
    verdicts = _unjudged(run, request, sentence)
    sums.summarize(trace, run, verdicts, request.summaries)
    return verdicts


def _unjudged(run: str, request: Request, sentence: str) -> list[RunVerdict]:
    """The verdicts on a run that cannot be judged. Its promises may be unreadable, too."""
    promises = request.expect or ()
    return [
        RunVerdict(run, name, name in promises, Verdict.UNKNOWN, 0, sentence)
        for name in request.judged(promises)
    ]


def _gathered(name: str, pieces: Iterable[Piece]) -> tuple[Run, bool, list[Segment], list[Call]]:
    """A run's row in `runs`, whether it has one, its segments and its calls; InputError if it cannot be
    judged."""
    run, promised, rows = Run(name), False, 0
    segments: list[Segment] = []
    calls: list[Call] = []
    problem: str | None = None
    for piece in pieces:
        problem = problem or piece.problem
        if piece.promised is not None:
            run, promised = msgspec.msgpack.decode(piece.promised, type=tuple[Run, bool])
            rows += 1
        if piece.segment is not None:
            segments.append(msgspec.msgpack.decode(piece.segment, type=Segment))
        if piece.calls is not None:
            calls += msgspec.msgpack.decode(piece.calls, type=list[Call])
    if rows > 1:
        problem = f"Run {name} cannot be judged: it has {rows} rows in runs/."
    if problem is not None:
        raise InputError(problem)
    return run, promised, segments, calls


def limits_of(sums: Sums, promises: Sequence[Property], request: Request) -> dict[Property, int | None]:
    """How many violations of each property to explain; None for all, if they are to be written."""
    judged = request.judged(promises)
    if request.violations_to is not None or request.explain_all:
        return dict.fromkeys(judged)
    return {name: sums.room(name, request.limit, name in promises) for name in judged}


def _judged(
    run: Run,
    segments: list[Segment],
    calls: list[Call],
    limits: dict[Property, int | None],
    asked: Collection[Property],
    in_order: bool,
) -> tuple[Log, Judgement]:
    """Judge the events, and the calls if that is asked for."""
    of_events = dict(limits)
    of_events.pop("linearizable", None)
    log, judgement = _judged_events(run, segments, of_events, asked, in_order)
    if "linearizable" not in limits:
        return log, judgement
    return log, judgement.joined(judge_calls(run.run, calls, limits["linearizable"]))


def _judged_events(
    run: Run,
    segments: list[Segment],
    limits: dict[Property, int | None],
    asked: Collection[Property],
    in_order: bool,
) -> tuple[Log, Judgement]:
    """Judge batches as wholes, which is far less work, unless every violation is to be explained."""
    if None not in limits.values():
        log = build_log(run, segments, by_batch=True)
        judgement = judge(log, limits, in_order=in_order, asked=asked)
        if judgement.exact:
            return log, judgement
    log = build_log(run, segments)
    return log, judge(log, limits, in_order=in_order, asked=asked)


def _note_verdicts(sums: Sums, log: Facts, judgement: Judgement, verdicts: Sequence[RunVerdict]) -> None:
    """Count what is unknown, and note which promises do not hold for certain."""
    for name in PROPERTIES:
        if name not in judgement.counts:
            sums.not_judged[name] = sums.not_judged.get(name, 0) + 1
    for verdict in verdicts:
        if verdict.verdict is Verdict.UNKNOWN:
            sums.unknown[verdict.property] = sums.unknown.get(verdict.property, 0) + 1
    unclear = [each for each in verdicts if each.promised and each.verdict is not Verdict.PASS]
    sums.verdicts += unclear[: VERDICTS_KEPT - len(sums.verdicts)]
    by_reason: dict[str, list[str]] = {}
    for verdict in unclear:
        if verdict.reason is not None:
            by_reason.setdefault(verdict.reason, []).append(verdict.property)
    for reason, names in by_reason.items():
        what = "is" if len(names) == 1 else "are"
        sums.note(f"Run {log.run.run}: {listed(names)} {what} unknown, because {reason}.")


def run_verdicts(log: Facts, judgement: Judgement, promises: Sequence[Property]) -> list[RunVerdict]:
    """The verdict on each property of a run that was judged."""
    return [
        _run_verdict(log, judgement, name, count, name in promises)
        for name, count in judgement.counts.items()
    ]


def _run_verdict(log: Facts, judgement: Judgement, name: Property, count: int, promised: bool) -> RunVerdict:
    doubt = judgement.doubts[name] if name in judgement.doubts else log.evidence.doubt(name)
    verdict = Verdict.FAIL if count else Verdict.PASS if doubt is None else Verdict.UNKNOWN
    return RunVerdict(log.run.run, name, promised, verdict, count, None if count else doubt)


def _add(sums: Sums, log: Facts, judgement: Judgement, promises: Sequence[Property], limit: int) -> None:
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
