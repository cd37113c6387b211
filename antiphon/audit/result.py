"""The result of an audit: the verdict, the counts and the violations to show.

A promise is made per run. The verdict is `fail` if any run breaks one of its own promises (or one of those
expected instead); else `unknown` if a run could not be judged, lacks the evidence for one of its promises, or
has no recorded promises; else `pass`.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from antiphon.audit.runs import PROBLEMS_KEPT, VERDICTS_KEPT, Request, Sums, most_severe
from antiphon.check.verdict import RunSummary, RunVerdict, Verdict, Violation
from antiphon.core.errors import InputError, OutputError
from antiphon.core.recording import PROMISABLE, PROPERTIES, Property

Engine = Literal["local", "spark"]
NOTHING = "There is nothing to judge: the trace has no run."


class AuditResult(msgspec.Struct, frozen=True):
    """What an audit found. Sends and deliveries count messages; sites count distinct names."""

    verdict: Verdict
    runs: int
    sites: int
    sends: int
    deliveries: int
    violations: dict[Property, int]
    """Counts of the properties that are always judged, and of those that were promised or expected."""
    examples: list[Violation]
    """The first violations of each property, broken promises before others."""
    broken: dict[Property, int]
    """How many of the violations break a promise of their run."""
    broken_runs: list[str]
    """Some of the runs that break a promise, by name."""
    broken_run_count: int
    unknown: dict[Property, int]
    """Runs in which a property can neither pass nor fail for want of evidence, promised or not."""
    verdicts: list[RunVerdict]
    """Promises that are broken or unknown, with the reason; the first few."""
    not_judged: dict[Property, int]
    """Runs in which one of the properties that are always counted was not judged: nothing promised or asked
    for it."""
    engine: Engine
    """Where the runs were judged."""
    unpromised: int
    """Runs without recorded promises, where none were expected instead."""
    unjudgeable: list[str]
    """Sentences about runs that could not be judged, or cannot pass; the first few."""
    unjudgeable_count: int
    summaries: list[RunSummary] = []
    """All verdicts of as many runs as were asked for, those with broken promises first."""

    def to_json(self) -> dict[str, object]:
        """The figures that `antiphon audit --json` prints."""
        return {
            "verdict": self.verdict.value,
            "runs": self.runs,
            "sites": self.sites,
            "sends": self.sends,
            "deliveries": self.deliveries,
            "violations": dict(self.violations),
            "unknown": dict(self.unknown),
            "not_judged": dict(self.not_judged),
            "engine": self.engine,
            "verdicts": msgspec.to_builtins(self.verdicts),
            "reasons": self.unjudgeable,
        }


def sum_up(answers: Sequence[Sums], request: Request, engine: Engine = "local") -> AuditResult:
    """Add up what the judging tasks found; an error if a file could not be read or written."""
    for answer in answers:
        if answer.file_problem is not None:
            raise InputError(*answer.file_problem)
        if answer.output_problem is not None:
            raise OutputError(
                f"The violations cannot be written to {request.violations_to}: {answer.output_problem}."
            )
    judged = [
        name for name in PROMISABLE if name in PROPERTIES or any(name in sums.counts for sums in answers)
    ]
    broken = {name: sum(answer.broken[name] for answer in answers) for name in judged}
    unpromised = sum(answer.unpromised for answer in answers)
    runs = sum(answer.runs for answer in answers)
    # Without a run nothing was kept, either.
    sentences = [] if runs else [NOTHING]
    sentences += sorted(text for answer in answers for text in answer.problems)
    problems = sum(answer.problem_count for answer in answers) + (not runs)
    return AuditResult(
        verdict=_verdict(any(broken.values()), problems + unpromised),
        runs=runs,
        sites=len(set().union(*(answer.sites for answer in answers))),
        sends=sum(answer.sends for answer in answers),
        deliveries=sum(answer.deliveries for answer in answers),
        violations={name: sum(answer.counts.get(name, 0) for answer in answers) for name in judged},
        examples=_examples(answers, judged, request.limit),
        broken=broken,
        broken_runs=sorted(run for answer in answers for run in answer.broken_runs)[: request.limit],
        broken_run_count=sum(answer.broken_run_count for answer in answers),
        unknown=_added([answer.unknown for answer in answers]),
        not_judged=_added([answer.not_judged for answer in answers]),
        engine=engine,
        verdicts=[each for answer in answers for each in answer.verdicts][:VERDICTS_KEPT],
        unpromised=unpromised,
        unjudgeable=sentences[:PROBLEMS_KEPT],
        unjudgeable_count=problems,
        summaries=most_severe((each for answer in answers for each in answer.summaries), request.summaries),
    )


def _added(counts: Sequence[dict[Property, int]]) -> dict[Property, int]:
    """Counts of all tasks together, without those that are 0."""
    sums = {name: sum(count.get(name, 0) for count in counts) for name in PROMISABLE}
    return {name: count for name, count in sums.items() if count}


def _examples(answers: Sequence[Sums], judged: Sequence[Property], limit: int) -> list[Violation]:
    every = Sums()
    for name in judged:
        for promised, violation in (example for answer in answers for example in answer.examples[name]):
            every.show(violation, limit, promised)
    examples = [example for name in judged for example in every.examples[name]]
    examples.sort(key=lambda example: not example[0])
    return [violation for _, violation in examples]


def _verdict(is_broken: bool, unclear: int) -> Verdict:
    if is_broken:
        return Verdict.FAIL
    return Verdict.UNKNOWN if unclear else Verdict.PASS
