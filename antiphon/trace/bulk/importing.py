"""A whole import in tasks, whatever runs them: stage all records, put the pieces together, write the rows.

Where ids name messages, a pass over the shares in between finds sends that repeat an id. The trace appears
in its folder when it is complete. Tasks read and write the folder of the trace, so on a cluster all nodes
must share it.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar
from typing import Protocol as Interface

import msgspec
import numpy as np

from antiphon.core.errors import OutputError
from antiphon.core.recording import Property
from antiphon.trace.adapters.importing import (
    BAD_LINES,
    Imported,
    Plan,
    nothing_found,
    read_lines,
    require_readable,
)
from antiphon.trace.adapters.jepsen import Jepsen
from antiphon.trace.adapters.kafka import Kafka, is_dump
from antiphon.trace.adapters.mapping import Mapping
from antiphon.trace.adapters.nats import Nats
from antiphon.trace.adapters.notes import (
    Evidence,
    clock_note,
    empty_note,
    group_note,
    hole_note,
    judgeable,
    members,
    name_note,
    reach_note,
    repeat_note,
    torn_note,
    undecided_note,
)
from antiphon.trace.adapters.otlp import Otlp
from antiphon.trace.adapters.rotation import stem_of
from antiphon.trace.arrow import pa, pq
from antiphon.trace.bulk import ranks, source
from antiphon.trace.bulk.domains import readers_of, sum_doubts
from antiphon.trace.bulk.rows import Matched, Report, match, write_share
from antiphon.trace.bulk.shapes import Reader
from antiphon.trace.bulk.share import Job
from antiphon.trace.bulk.source import Stretch, stretches
from antiphon.trace.bulk.staging import Staging, Summary, stage
from antiphon.trace.files import require_no_trace, write_trace
from antiphon.trace.schema import ACCEPTED, Run

Item = TypeVar("Item")
Answer = TypeVar("Answer")
STAGING: Final = ".importing"
BYTES_PER_SHARE: Final = 128 << 20
"""Bytes of logs whose messages come into one share. Raising it takes memory: a task needs about three times
as much."""
LEAST_BYTES_PER_SHARE: Final = 16 << 20
LEAST_SHARES: Final = 8
"""Logs are cut into as many shares, so that several tasks write, unless the shares get smaller than that."""


class RunTasks(Interface):
    """Does the work for each item, in a task of its own, and gathers the answers in any order."""

    def __call__(
        self, items: Sequence[Item], work: Callable[[Item], Iterable[Answer]], answer: type[Answer], /
    ) -> list[Answer]: ...


def import_in_bulk(run_tasks: RunTasks, plan: Plan, out: Path) -> Imported:
    """Read the plan's files and write a trace; bad lines go to `bad/` in the same folder."""
    require_readable(plan.files)
    require_no_trace(out)
    staging = out / STAGING
    try:
        (staging / "events").mkdir(parents=True)
        return _Import(run_tasks, plan, out.resolve(), staging.resolve()).imported()
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"The trace cannot be written to {out}: {reason}.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if out.is_dir() and not any(out.iterdir()):
            out.rmdir()


def staged(plan: Plan, staging: Staging, stretch: Stretch) -> Iterator[Summary]:
    """Read a stretch of a file, keep its records, and sum up each piece."""
    log, file = plan.format, plan.files[stretch.file]
    first = None
    if isinstance(log, Kafka | Mapping):
        lines = (line.text for line in read_lines(file, [], log.reads_any_bytes))
        first = next((text for text in lines if isinstance(log, Mapping) or text.strip()), None)
    reader = Reader(log, stem_of(plan.files, stretch.file), plan.site, first, stretch.begin == 0)
    most = -1 if isinstance(log, Jepsen) else source.PIECE_BYTES
    read = source.pieces(file, stretch, most, log.reads_any_bytes)
    piece, nth = next(read, None), 0
    while piece is not None:
        following = next(read, None)
        yield stage(staging, (stretch.file, stretch.begin, nth), reader.found(piece, following is None))
        piece, nth = following, nth + 1


class _Import:
    """One import: stages the records, puts the pieces together, and writes the trace."""

    def __init__(self, run_tasks: RunTasks, plan: Plan, out: Path, staging: Path) -> None:
        self._tasks, self._plan, self._out = run_tasks, plan, out
        size = sum(file.stat().st_size for file in plan.files)
        log = plan.format
        shares = max(size // BYTES_PER_SHARE, min(LEAST_SHARES, size // LEAST_BYTES_PER_SHARE), 1)
        self._staging = Staging(staging, shares, plan.run, log.is_numbered, log.is_ordered)

    def imported(self) -> Imported:
        pieces = self._summaries()
        bad = list(self._bad_examples(pieces))
        if not any(piece.combinations for piece in pieces):
            raise nothing_found(self._plan, bad[:1])
        job, ties = self._job(pieces)
        reports = self._tasks(range(self._staging.shares), lambda share: [write_share(job, share)], Report)
        shares = ranks.sum_shares(each for report in reports for each in report.shares)
        notes, promises = self._notes(pieces, job, ties, reports, shares)
        if bad:
            self._write_bad(pieces)
        kept = [Run(run, self._plan.format.name, own) for run, own in sorted(promises.items()) if own]
        write_trace(self._out, [], kept, append=True)
        # The folder of events is empty until it is replaced by the whole one.
        (self._staging.folder / "events").rename(self._out / "events")
        return self._summary(pieces, reports, bad, notes, promises)

    def _summaries(self) -> list[Summary]:
        """Stage all records."""
        plan, staging = self._plan, self._staging
        is_whole = [
            isinstance(plan.format, Jepsen) or (isinstance(plan.format, Kafka) and _is_dump(file))
            for file in plan.files
        ]
        parts = stretches(plan.files, is_whole)
        found = self._tasks(parts, lambda stretch: staged(plan, staging, stretch), Summary)
        return sorted(found, key=lambda piece: piece.place)

    def _job(self, pieces: Sequence[Summary]) -> tuple[Job, dict[str, int]]:
        """What the writers of rows need to know, and how many sends of each run are tied."""
        staging, log = self._staging, self._plan.format
        ranks.place_sites(staging, pieces)
        # In the logs of Kafka and NATS the domain is a part of the message's name.
        places = ranks.names_domains(pieces) and not isinstance(log, Kafka | Nats)
        job = Job(
            staging, tuple(piece.name for piece in pieces), tuple(ranks.slot_offsets(pieces)), places,
            log.marks_acceptance, self._plan.audience == "everyone", log.is_routed,
            ranks.naming_sites(pieces) if places else frozenset(), {},
        )  # fmt: skip
        matched = list[Matched]()
        names_groups = isinstance(log, Mapping) and log.columns.group is not None
        if places or names_groups or not staging.is_numbered:
            matched = self._tasks(range(staging.shares), lambda share: [match(job, share)], Matched)
        ties = dict[str, int]()
        if not staging.is_numbered:
            repeated = np.array([place for each in matched for place in each.repeated], np.int64)
            ties = ranks.number_sends(staging, pieces, repeated)
        runs = sorted({run for piece in pieces for run, _, _ in piece.sites})
        readings = [each for found in matched for each in found.readings]
        if not places:
            readings += ranks.read_alone(pieces)
        return msgspec.structs.replace(job, readers=readers_of(runs, readings)), ties

    def _notes(
        self, pieces: Sequence[Summary], job: Job, ties: dict[str, int], reports: Sequence[Report],
        shares: dict[ranks.Channel, tuple[list[str], Any]],
    ) -> tuple[tuple[str, ...], dict[str, tuple[Property, ...]]]:  # fmt: skip
        plan = self._plan
        promised = plan.format.promises if plan.promises is None else plan.promises
        unsent = {run for report in reports for run in report.unsent}
        has_sends = {each.run for piece in pieces for each in piece.combinations if each.kind == "send"}
        merged = self._merged_runs(pieces)
        groups: dict[str, list[str]] = {}
        for (run, group, domain), (sites, both) in sorted(shares.items(), key=lambda found: str(found[0])):
            if together := members(sites, both):
                groups.setdefault(run, []).append(group_note(domain or group, together))
        undecided: dict[str, list[str]] = {}
        for (run, group), (count, example) in sum_doubts(each.undecided for each in reports):
            note = undecided_note(group, count, example, job.readers[run].doubtful(group))
            undecided.setdefault(run, []).append(note)
        beyond = ranks.unreached(pieces)
        strangers = ranks.strangers(pieces, {run for report in reports for run in report.met})
        routed: dict[str, list[bool]] = {}
        for run, counts in (each for report in reports for each in report.routed):
            routed.setdefault(run, []).append(counts)
        notes: dict[str, None] = {}
        promises: dict[str, tuple[Property, ...]] = {}
        for run in sorted({run for piece in pieces for run, _, _ in piece.sites}):
            evidence = Evidence(
                run in has_sends, ties.get(run, 0), run in unsent, run in groups, run in merged,
                run in beyond, run in strangers, run in routed and not any(routed[run]), run in undecided,
                sum(report.unordered.get(run, 0) for report in reports),
            )  # fmt: skip
            promises[run], found = judgeable(promised, evidence)
            notes.update(dict.fromkeys([*found, *groups.get(run, ()), *undecided.get(run, ())]))
            notes.update(dict.fromkeys(reach_note(*each) for each in beyond.get(run, ())))
        for _, (count, example) in sum_doubts(each.torn for each in reports):
            notes[torn_note(count, example)] = None
        repeats: Counter[tuple[str, str]] = Counter()
        for report in reports:
            repeats.update({(run, domain): count for run, domain, count in report.repeats})
        notes.update(dict.fromkeys(repeat_note(domain, count) for (_, domain), count in repeats.items()))
        notes.update(dict.fromkeys(self._name_notes(pieces)))
        set_back = ranks.clocks_set_back(pieces)
        if not isinstance(plan.format, Otlp):
            ordered = plan.format.is_ordered
            told = [clock_note(plan.files[at], count, is_ordered=ordered) for at, count in set_back.items()]
            notes.update(dict.fromkeys(told))
        hiding: Counter[int] = Counter()
        for piece in pieces:
            hiding[piece.file] += piece.hiding
        notes.update(dict.fromkeys(hole_note(plan.files[f], count) for f, count in hiding.items() if count))
        read = {piece.file for piece in pieces if piece.combinations}
        empty = [file for index, file in enumerate(plan.files) if index not in read]
        notes.update(dict.fromkeys(map(empty_note, empty)))
        return tuple(notes), promises

    def _merged_runs(self, pieces: Sequence[Summary]) -> set[str]:
        """Runs in which the site of all consumers stands for several files without an order among them."""
        if self._plan.site is None or self._staging.is_ordered:
            return set()
        files = {
            (each.run, piece.file)
            for piece in pieces
            for each in piece.combinations
            if each.kind == "deliver" and each.site == self._plan.site
        }
        return {run for run, count in Counter(run for run, _ in files).items() if count > 1}

    def _name_notes(self, pieces: Sequence[Summary]) -> Iterator[str]:
        files: dict[str, set[int]] = {}
        for piece in pieces:
            for each in piece.combinations:
                if each.kind == "deliver" and each.site not in (ACCEPTED, self._plan.site):
                    files.setdefault(each.site, set()).add(piece.file)
        for site, found in sorted(files.items()):
            if len(found) > 1:
                yield name_note(site, [self._plan.files[index] for index in sorted(found)])

    def _bad_examples(self, pieces: Sequence[Summary]) -> Iterator[str]:
        examples = (
            f"{self._plan.files[piece.file]}, line {before + line}: {reason}"
            for piece, before in ranks.first_lines(pieces)
            for line, reason in piece.bad
        )
        return islice(examples, 3)

    def _write_bad(self, pieces: Sequence[Summary]) -> None:
        """The lines that cannot be used, in one file, in order."""
        folder = self._out / "bad"
        folder.mkdir(exist_ok=True)
        with pq.ParquetWriter(folder / "part-00000.parquet", BAD_LINES, compression="zstd") as writer:
            for piece, before in ranks.first_lines(pieces):
                if not piece.bad_lines:
                    continue
                with pa.OSFile(str(self._staging.folder / f"{piece.name}.bad")) as source:
                    lines = pa.ipc.open_file(source).read_all()
                numbers = pa.array(np.asarray(lines.column("line")) + before)
                file = pa.repeat(str(self._plan.files[piece.file]), len(lines))
                columns = [file, numbers, lines.column("reason"), lines.column("text")]
                writer.write_table(pa.Table.from_arrays(columns, schema=BAD_LINES))

    def _summary(
        self, pieces: Sequence[Summary], reports: Sequence[Report], bad: Sequence[str],
        notes: tuple[str, ...], promises: dict[str, tuple[Property, ...]],
    ) -> Imported:  # fmt: skip
        kinds: Counter[str] = Counter()
        sites = {(run, site) for piece in pieces for run, site, _ in piece.sites}
        for piece in pieces:
            for each in piece.combinations:
                kinds[each.kind] += each.count
        for report in reports:
            kinds["deliver"] += sum(report.accepted.values())
            sites.update((run, ACCEPTED) for run in report.accepted)
        return Imported(
            runs=len(promises), sites=len(sites), sends=kinds["send"], deliveries=kinds["deliver"],
            rows=kinds.total(), bad_lines=sum(piece.bad_lines for piece in pieces), bad_examples=tuple(bad),
            notes=notes, promises=promises[min(promises)],
        )  # fmt: skip


def _is_dump(file: Path) -> bool:
    first = next((line.text for line in read_lines(file, [], True) if line.text.strip()), "")
    return is_dump(first)
