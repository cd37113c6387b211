"""Log files to a trace: reads them line by line, keeps bad lines in a table of their own, writes the rest."""

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from antiphon.core.errors import InputError
from antiphon.core.recording import Property
from antiphon.trace.adapters.notes import clock_note, empty_note, hole_note, name_note
from antiphon.trace.adapters.numbering import Audience, Numbered, Place, Placed, number_records
from antiphon.trace.adapters.otlp import Otlp
from antiphon.trace.adapters.record import BadLine, Format, Line, Record
from antiphon.trace.adapters.rotation import stem_of
from antiphon.trace.adapters.values import LONGEST_SAMPLE
from antiphon.trace.arrow import pa, pq
from antiphon.trace.files import write_trace
from antiphon.trace.schema import ACCEPTED, Event

LONGEST_LINE: Final = 1 << 24
"""Bytes of a line that are read; a longer one is a bad line. Raising it takes memory."""
ROWS_TOGETHER: Final = 1 << 18
"""Rows of small runs that share a file. Raising it makes fewer files, each of which is read as a whole."""
BAD_LINES: Final = pa.schema(
    [("file", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("text", pa.string())]
)


class Plan(msgspec.Struct, frozen=True):
    """What to import, and how its parts are named."""

    format: Format
    files: tuple[Path, ...]
    run: str = "imported"
    site: str | None = None
    promises: tuple[Property, ...] | None = None
    audience: Audience = "consumers"


class Imported(msgspec.Struct, frozen=True):
    """What an import found."""

    runs: int
    sites: int
    sends: int
    deliveries: int
    rows: int
    bad_lines: int
    bad_examples: tuple[str, ...]
    notes: tuple[str, ...]
    promises: tuple[Property, ...]


def import_logs(plan: Plan, out: Path) -> Imported:
    """Read the plan's files and write a trace; bad lines go to `bad/` in the same folder."""
    placed, bad = read_records(plan)
    if not placed:
        raise nothing_found(plan, [_example(*each) for each in bad[:1]])
    runs = _numbered(plan, placed, {file for file, each in bad if each.hides})
    # Without a row in `runs` a run's promises are unknown, and so is its verdict; with an empty list of
    # promises it would pass.
    promising = [each.run for each in runs if each.run.promises]
    write_trace(out, _files_of(runs), promising)
    if bad:
        _write_bad(out, bad)
    read = {place[0] for _, place in placed}
    empty = [empty_note(file) for index, file in enumerate(plan.files) if index not in read]
    notes = (*_name_notes(plan, placed), *_clock_notes(plan, placed), *_hole_notes(bad), *empty)
    return _summary(runs, bad, notes)


def _files_of(runs: Iterable[Numbered]) -> Iterator[list[Event]]:
    """The rows of each file of the trace: those of several runs, if they are small."""
    rows: list[Event] = []
    for each in runs:
        if rows and len(rows) + len(each.events) > ROWS_TOGETHER:
            yield rows
            rows = []
        rows.extend(each.events)
    yield rows


def nothing_found(plan: Plan, examples: Sequence[str]) -> InputError:
    names = ", ".join(map(str, plan.files[:3])) + (" and others" if len(plan.files) > 3 else "")
    first = f" The first line that fails: {examples[0]}." if examples else ""
    hint = "antiphon import --guess FILE proposes a mapping for CSV and JSON lines."
    return InputError(f"Nothing in {names} can be read as {plan.format.name}.{first}", hint)


def read_records(plan: Plan) -> tuple[list[Placed], list[tuple[Path, BadLine]]]:
    """All records with their places, and all bad lines with their files."""
    require_distinct(plan.files)
    placed: list[Placed] = []
    bad: list[tuple[Path, BadLine]] = []
    for index, file in enumerate(plan.files):
        refused: list[BadLine] = []
        for found, place in file_records(plan, index):
            if isinstance(found, BadLine):
                refused.append(found)
            else:
                placed.append(Placed(found, place))
        bad.extend((file, each) for each in sorted(refused, key=lambda each: each.number))
    return placed, bad


def file_records(plan: Plan, index: int) -> Iterator[tuple[Record | BadLine, Place]]:
    """What the lines of one file yield, each with its place; bad lines may come late."""
    file = plan.files[index]
    undecodable: list[BadLine] = []
    lines = Counted(read_lines(file, undecodable, plan.format.reads_any_bytes))
    for nth, found in enumerate(plan.format.parse(stem_of(plan.files, index), lines)):
        if isinstance(found, Record):
            found = at_site(found, plan.site)
        yield found, (index, lines.number, nth)
    yield from ((each, (index, each.number, 0)) for each in undecodable)


def require_readable(files: Sequence[Path]) -> None:
    """Each file can be opened, and is named once; an error names the one that is not so."""
    require_distinct(files)
    for file in files:
        next(read_lines(file, []), None)


def require_distinct(files: Sequence[Path]) -> None:
    """A file that is named twice would make every delivery a duplicate."""
    twice = [file for file, count in Counter(map(Path.resolve, files)).items() if count > 1]
    if twice:
        raise InputError(f"{twice[0]} is named twice.", "Name each log file once.")


class Counted(Iterator[Line]):
    """Lines, and the number of the one that was read last."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self.number = 0

    def __next__(self) -> Line:
        line = next(self._lines)
        self.number = line.number
        return line


def at_site(record: Record, site: str | None) -> Record:
    """A record with the site that stands for all consumers, if there is one, in their place."""
    if site is None or record.site == ACCEPTED:
        return record
    if record.kind == "send":
        return msgspec.structs.replace(record, destinations=(site,)) if record.destinations else record
    return msgspec.structs.replace(record, site=site)


def read_lines(file: Path, refused: list[BadLine], is_any: bool = False) -> Iterator[Line]:
    """The lines of a file, also of one packed by gzip; those that are no UTF-8 are refused one by one, unless
    `is_any`: then bytes that are no text get a sign that stands for them."""
    try:
        with _opened(file) as stream:
            number = 0
            while raw := stream.readline(LONGEST_LINE):
                number += 1
                text = decoded(raw, number, refused, is_any)
                if text is not None:
                    yield Line(number, text)
                while len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
                    raw = stream.readline(LONGEST_LINE)
    except (OSError, EOFError) as error:
        raise unreadable(file, error) from error


def unreadable(file: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(f"{file} cannot be read: {reason}.", "Is it a log file that you may read?")


def _opened(file: Path) -> IO[bytes]:
    stream = file.open("rb")
    if not stream.seekable():
        stream.close()
        raise InputError(
            f"{file} is a stream, and logs are read more than once.", "Write it to a file first."
        )
    start = stream.read(2)
    stream.seek(0)
    if start in (b"\xff\xfe", b"\xfe\xff"):
        stream.close()
        hint = "Convert it: iconv -f UTF-16 -t UTF-8 FILE."
        raise InputError(f"{file} is written in UTF-16, and logs are read as UTF-8.", hint)
    return gzip.open(stream) if start == b"\x1f\x8b" else stream  # type: ignore[return-value]


def decoded(raw: bytes, number: int, refused: list[BadLine], is_any: bool = False) -> str | None:
    """A line's text; None if it is none, which `refused` then tells."""
    try:
        if len(raw) == LONGEST_LINE:
            raise ValueError(f"the line has {LONGEST_LINE:,} bytes or more")
        encoding, errors = "utf-8-sig" if number == 1 else "utf-8", "replace" if is_any else "strict"
        return raw.decode(encoding, errors).rstrip("\r\n")
    except ValueError as error:
        reason = "the line is no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        refused.append(
            BadLine(number, reason, raw[:LONGEST_SAMPLE].rstrip(b"\r\n").decode("utf-8", "backslashreplace"))
        )
        return None


def _numbered(plan: Plan, placed: Sequence[Placed], holed: set[Path]) -> list[Numbered]:
    """The runs. What the sites of a file in `holed` lack proves nothing."""
    by_run: defaultdict[str, list[Placed]] = defaultdict(list)
    holes: defaultdict[str, set[str]] = defaultdict(set)
    for each in placed:
        run = each.record.run or plan.run
        by_run[run].append(each)
        if plan.files[each.place[0]] in holed:
            holes[run].add(each.record.site)
    promises = plan.format.promises if plan.promises is None else plan.promises
    return [
        number_records(
            run, records, promises, plan.format.name,
            audience=plan.audience, marks_acceptance=plan.format.marks_acceptance,
            holed=holes[run], merged=plan.site, is_routed=plan.format.is_routed,
        )
        for run, records in sorted(by_run.items())
    ]  # fmt: skip


def _write_bad(out: Path, bad: Sequence[tuple[Path, BadLine]]) -> None:
    rows = [
        {"file": str(file), "line": each.number, "reason": each.reason, "text": each.text}
        for file, each in bad
    ]
    folder = out / "bad"
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, BAD_LINES), folder / "part-00000.parquet", compression="zstd")


def _name_notes(plan: Plan, placed: Sequence[Placed]) -> Iterator[str]:
    """A sentence for each consumer that several files name; not if one site stands for all on purpose."""
    files: defaultdict[str, set[int]] = defaultdict(set)
    for record, (index, _, _) in placed:
        if record.kind == "deliver" and record.site not in (ACCEPTED, plan.site):
            files[record.site].add(index)
    for site, found in sorted(files.items()):
        if len(found) > 1:
            yield name_note(site, [plan.files[index] for index in sorted(found)])


def _hole_notes(bad: Sequence[tuple[Path, BadLine]]) -> Iterator[str]:
    counts = Counter(file for file, each in bad if each.hides)
    return (hole_note(file, count) for file, count in counts.items())


def _clock_notes(plan: Plan, placed: Sequence[Placed]) -> Iterator[str]:
    """A sentence for each file whose clock goes back from one line to the next; not for spans, which are
    written when they end."""
    if isinstance(plan.format, Otlp):
        return
    last: dict[tuple[int, str], int] = {}
    back: Counter[int] = Counter()
    for record, (index, _, _) in placed:
        if record.time_ns is not None:
            back[index] += last.get((index, record.site), record.time_ns) > record.time_ns
            last[index, record.site] = record.time_ns
    for index, count in sorted(back.items()):
        if count:
            yield clock_note(plan.files[index], count, is_ordered=plan.format.is_ordered)


def _summary(runs: Sequence[Numbered], bad: Sequence[tuple[Path, BadLine]], notes: Iterable[str]) -> Imported:
    events = [event for run in runs for event in run.events]
    kinds = Counter(event.kind for event in events)
    return Imported(
        runs=len(runs), sites=len({(event.run, event.site) for event in events}), sends=kinds["send"],
        deliveries=kinds["deliver"], rows=len(events), bad_lines=len(bad),
        bad_examples=tuple(_example(*each) for each in bad[:3]),
        notes=tuple(dict.fromkeys([*(note for run in runs for note in run.notes), *notes])),
        promises=runs[0].run.promises,
    )  # fmt: skip


def _example(file: Path, line: BadLine) -> str:
    return f"{file}, line {line.number}: {line.reason}"
