"""A whole trace judged while it grows: batches of new rows in, violations out, and a verdict at any time.

The verdict is that of an audit of the same folder at the same moment. A violation is reported before that, as
soon as the windows that show it are closed. Counts are those so far: a knot may still grow.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec

from antiphon.audit.growing.arrivals import Arrival
from antiphon.audit.growing.run import GrowingRun, SiteLog
from antiphon.audit.growing.store import Store
from antiphon.audit.growing.windows import Mapper, StoredWindows, in_process
from antiphon.audit.reading import Piece, plan_tasks, read_pieces
from antiphon.audit.result import AuditResult, Engine, sum_up
from antiphon.audit.runs import Request, RunReport, Sums, limits_of, note_judgement, open_traces, report_runs
from antiphon.audit.violations import ViolationFile
from antiphon.audit.windows.driving import JUDGED_IN_WINDOWS, Driver
from antiphon.audit.windows.planning import window_size
from antiphon.audit.windows.window import Context
from antiphon.check.verdict import Violation
from antiphon.core.errors import InputError, UsageError
from antiphon.core.ids import Site
from antiphon.core.recording import Property
from antiphon.trace.files import read_runs, runs_files
from antiphon.trace.growth import Position, open_logs
from antiphon.trace.schema import Run

SITES: Final = 8
"""Sites that the size of windows is chosen for. A group with more of them has larger windows."""
CELLS: Final = 8
"""Points for each window and site from which cuts are chosen."""
PATIENCE_S: Final = 5.0
"""A window is judged after this time even if sites have not passed it: nothing is concluded from what these
lack. Raising it delays violations where a member is stalled."""
PATIENCE_WINDOWS: Final = 32
"""The same, in windows that were cut after it."""
OVERLAP: Final = 2
"""Judged windows before a new one that are looked at again with it, for violations that span them. Raising it
costs time."""
NEARBY: Final = 16
"""Windows between a late row and its site's others that are looked at with them at once; if there are more,
what spans them is found with the verdict."""
REMEMBERED: Final = 100_000
"""Reported violations that are remembered, so that each is reported once. Raising it costs memory."""
CACHED_RUNS: Final = 256
"""Runs whose state is kept in memory between batches."""


class GrowingAudit:
    """The audit of one folder, from batch to batch."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        request: Request,
        mapper: Mapper = in_process,
        *,
        size: int | None = None,
        source: str = "audit --state",
    ) -> None:
        """`source` says what brings the rows: a state goes on with the same only."""
        self.folder = folder
        self.request = request
        self.counts: Counter[Property] = Counter()
        """Violations found so far."""
        self.rows = 0
        """Rows taken since the start."""
        self._store = store
        self._mapper = mapper
        self._size = store.fact("size") or size or window_size(SITES)
        self._runs: OrderedDict[str, GrowingRun] = OrderedDict()
        self._told: OrderedDict[tuple[object, ...], None] = OrderedDict()
        self._require_same("folder", str(folder.resolve()))
        self._require_same("source", source)

    def _require_same(self, name: str, value: str) -> None:
        known = self._store.fact(name, value)
        if known != value:
            raise UsageError(
                f"The state in {self._store.folder} belongs to {known}.", "Name another folder for the state."
            )
        with self._store.transaction():
            self._store.note(name, value)
            self._store.note("size", self._size)

    @property
    def cell(self) -> int:
        """The distance of the points that cuts are chosen from, in deliveries."""
        return max(self._size // CELLS, 1)

    @property
    def positions(self) -> dict[str, Position]:
        """How far the trace's files have been taken in."""
        return positions_in(self._store)

    @property
    def batch(self) -> int:
        """The last batch taken in."""
        return int(self._store.fact("batch", -1))

    @property
    def oldest(self) -> float | None:
        """When the oldest rows came that have not been judged; None if all have been."""
        return min((when for run in self._runs.values() for when in run.touched.values()), default=None)

    # New rows

    def absorb(
        self, arrivals: Iterable[Arrival], batch: int, positions: Mapping[str, Position]
    ) -> list[Violation]:
        """Take in a batch, unless it was taken in before; the violations that it brings to light."""
        if batch <= self.batch:
            return []
        ordered = sorted(arrivals, key=lambda arrival: arrival.run)
        found: list[Violation] = []
        with self._committed():
            rows = self._run_rows()
            for name, own in groupby(ordered, key=lambda arrival: arrival.run):
                run = self._run(name)
                run.add(own, self._store)
                run.cut_now(self._store)
                run.deal(self._store)
                found += self._judge_closed(run, rows)
                self._store.save_run(name, run)
            self._store.note("positions", dict(positions))
            self._store.note("batch", batch)
        self.rows += sum(arrival.part.rows for arrival in ordered if arrival.part is not None)
        return found

    def tick(self) -> list[Violation]:
        """Judge windows that have waited long enough."""
        waiting = [run for run in self._runs.values() if run.touched]
        if not waiting:
            return []
        found: list[Violation] = []
        with self._committed():
            rows = self._run_rows()
            for run in waiting:
                before = len(run.touched)
                found += self._judge_closed(run, rows)
                if len(run.touched) < before:
                    self._store.save_run(run.name, run)
        return found

    def _committed(self) -> "_Committed":
        return _Committed(self._store, self._runs)

    def _run(self, name: str) -> GrowingRun:
        run = self._runs.pop(name, None) or self._store.load_run(name)
        if run is None:
            run = GrowingRun(name, self._size)
        elif name not in self._runs:
            # Times of another process mean nothing here.
            run.touched = {window: min(when, time.monotonic()) for window, when in run.touched.items()}
        self._runs[name] = run
        while len(self._runs) > CACHED_RUNS:
            self._runs.popitem(last=False)
        return run

    # Violations as they are found

    def _judge_closed(self, run: GrowingRun, rows: "_RunRows") -> list[Violation]:
        closed = self._closed(run)
        row = rows.of(run.name)
        if not closed or isinstance(row, InputError):
            return []
        lagging = frozenset(site for sites in closed.values() for site in sites)
        promises = row[0].promises if self.request.expect is None else self.request.expect
        limits = self._limits(promises)
        if limits is None:
            return []
        context = Context(row[0], run.cuts(self._store), limits, every_spell=True, lagging=lagging)
        windows = self._region(run, closed)
        judgement = Driver(StoredWindows(self._store, context, self._mapper, windows)).judge()
        for window in closed:
            del run.touched[window]
        return self._news(judgement.counts, judgement.violations, promises)

    def _closed(self, run: GrowingRun) -> dict[int, set[Site]]:
        """The windows to judge, each with the sites that have not passed it."""
        now = time.monotonic()
        closed: dict[int, set[Site]] = {}
        for window, since in run.touched.items():
            lagging = run.logs.keys() - run.passed(self._store, window)
            if not lagging or now - since > PATIENCE_S or run.windows - window > PATIENCE_WINDOWS:
                closed[window] = lagging
        return closed

    def _region(self, run: GrowingRun, closed: Iterable[int]) -> list[int]:
        wanted = {near for window in closed for near in range(max(window - OVERLAP, 0), window + 1)}
        low, high = min(wanted), max(wanted)
        if high - low <= NEARBY:
            wanted.update(range(low, high))
        held = set(self._store.windows(run.name, low, high))
        return sorted(wanted & held - (run.touched.keys() - set(closed)))

    def _limits(self, promises: Sequence[Property]) -> dict[Property, int | None] | None:
        """What to judge; None if windows do not serve for it."""
        limits = limits_of(Sums(), promises, self.request)
        return limits if JUDGED_IN_WINDOWS.issuperset(limits) else None

    def _news(
        self, counts: Mapping[Property, int], violations: Sequence[Violation], promises: Sequence[Property]
    ) -> list[Violation]:
        """Violations that were not reported before; those that break no promise are only counted."""
        fresh: list[Violation] = []
        for violation in violations:
            key = violation.run, violation.property, violation.site, violation.sender, violation.number
            if key not in self._told:
                self._told[key] = None
                self.counts[violation.property] += 1
                fresh.append(violation)
        explained = Counter(violation.property for violation in violations)
        for name, count in counts.items():
            self.counts[name] += max(count - explained[name], 0)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return [violation for violation in fresh if violation.property in promises]

    # The verdict

    def verdict(
        self,
        engine: Engine = "local",
        rest: Iterable[Arrival] = (),
        positions: Mapping[str, Position] | None = None,
    ) -> AuditResult:
        """What an audit of the folder would find in the rows taken in so far, and in the `rest` after them.

        `positions` are those behind the rest. Nothing of it is kept.
        """
        results: list[tuple[str, bytes, Sums]] = []
        further: dict[str, list[Arrival]] = {}
        for arrival in rest:
            further.setdefault(arrival.run, []).append(arrival)
        with self._store.transaction(keep=False):
            rows = self._run_rows()
            absences = open_logs(self.positions if positions is None else positions)
            names = sorted({*self._store.runs(), *further})
            whole: list[str] = []
            for part, name in enumerate(names):
                own = {site: step for (run, site), step in absences.items() if run == name}
                key = b"" if self.request.violations_to or name in further else self._key(name, own, rows)
                sums = self._store.result(name, key) if key else None
                sums = sums or self._judge(name, further.get(name, []), own, rows, part)
                if sums is None:
                    whole.append(name)
                else:
                    results.append((name, key, sums))
        answers = [sums for _, _, sums in results]
        silent = sorted({*rows.names(), *(run for run, _ in absences)} - set(names))
        if whole or silent:
            answers.append(self._judge_as_a_whole({*whole, *silent}, len(names)))
        with self._store.transaction():
            for name, key, sums in results:
                if key:
                    self._store.save_result(name, key, sums)
        return sum_up(answers, self.request, engine)

    def _key(self, name: str, absences: Mapping[Site, int], rows: "_RunRows") -> bytes:
        """A run's result stands while this is the same."""
        row, request = rows.of(name), self.request._replace(folders=[])
        told = row.sentence if isinstance(row, InputError) else row
        state = self._run(name).version, sorted(absences.items()), told
        asked = request.expect, request.only, request.limit, request.explain_all
        return msgspec.json.encode((state, asked))

    def _judge(
        self, name: str, rest: Sequence[Arrival], absences: Mapping[Site, int], rows: "_RunRows", part: int
    ) -> Sums | None:
        """Judge a run in its windows; None if it must be judged as a whole."""
        run, row = self._run(name).copy(), rows.of(name)
        run.add(rest, self._store)
        if run.problem is not None or run.is_whole or isinstance(row, InputError):
            return None
        promises = row[0].promises if self.request.expect is None else self.request.expect
        limits = self._limits(promises)
        if limits is None:
            return None
        run.add_rest(self._store)
        if run.is_whole:
            return None
        for site, step in absences.items():
            log = run.logs.setdefault(site, SiteLog())
            log.hole = log.next_step if log.hole is None and step > log.next_step else log.hole
            log.next_step, log.rows = step + 1, log.rows + 1
            log.absences.append(step)
        run.deal(self._store, everything=True)
        context = Context(row[0], run.cuts(self._store), limits, every_spell=True)
        driver = Driver(StoredWindows(self._store, context, self._mapper))
        judgement = driver.judge()
        sums = Sums(runs=1)
        note_judgement(sums, run.facts(row[0], driver.sends), judgement, row[1], self.request)
        with ViolationFile(self.request.violations_to, part) as file:
            file.write(str(self.folder), judgement.violations, promises)
        sums.output_problem = file.problem
        return sums

    def _judge_as_a_whole(self, names: set[str], part: int) -> Sums:
        """Runs that windows do not serve for, read from the trace again."""
        traces, _ = open_traces([self.folder], None, 0)
        pieces = [
            piece
            for task in plan_tasks(traces, 1)
            for piece in read_pieces(task)
            if piece.run is None or piece.run in names
        ]
        pieces.sort(key=lambda piece: piece.run or "")
        sums = Sums()
        with ViolationFile(self.request.violations_to, part) as file:
            for report in self._reports(pieces, sums):
                file.write(report.trace, report.violations, report.promises)
        sums.output_problem = file.problem
        return sums

    def _reports(self, pieces: Sequence[Piece], sums: Sums) -> Iterator[RunReport]:
        yield from report_runs(iter(pieces), self.request, sums)

    def _run_rows(self) -> "_RunRows":
        """The table `runs`; each of its files is read once."""
        rows: dict[str, list[tuple[Run, bool]]] = {}
        for file in runs_files(self.folder):
            name = str(file.relative_to(self.folder))
            found = self._store.table(name)
            if found is None:
                found = read_runs(file)
                self._store.save_table(name, found)
            for row in found:
                rows.setdefault(row[0].run, []).append(row)
        return _RunRows(rows)


def positions_in(store: Store) -> dict[str, Position]:
    """How far the trace of a store has been taken in."""
    found: dict[str, Position] = store.fact("positions", {})
    return found


class _Committed:
    """A transaction whose failure also drops what the runs hold in memory."""

    def __init__(self, store: Store, runs: "OrderedDict[str, GrowingRun]") -> None:
        self._transaction = store.transaction()
        self._runs = runs

    def __enter__(self) -> None:
        self._transaction.__enter__()

    def __exit__(self, *raised: object) -> None:
        if raised[0] is not None:
            self._runs.clear()
        self._transaction.__exit__(*raised)  # type: ignore[arg-type]


class _RunRows:
    """The rows of the table `runs`, by name."""

    def __init__(self, rows: Mapping[str, list[tuple[Run, bool]]]) -> None:
        self._rows = rows

    def names(self) -> Iterable[str]:
        return self._rows.keys()

    def of(self, name: str) -> tuple[Run, bool] | InputError:
        """A run's row and whether its promises were recorded; an error if it has several."""
        found = self._rows.get(name, [])
        if len(found) > 1:
            return InputError(f"Run {name} cannot be judged: it has {len(found)} rows in runs/.")
        return found[0] if found else (Run(name), False)
