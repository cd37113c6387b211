"""A piece's records on disk, in shares by message, and what else the other pieces need to know of them.

A share holds all records of its messages, whatever file they come from. Where messages have numbers, these
decide on the share: an id that a log gives to two numbers is looked up under each of them apart.

Each record has its site's place in the summary (`who`), and its rank among the piece's records of that site
(`rank`). A send that an id names has a place among the piece's sends (`slot`).
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from antiphon.trace.adapters.record import BadLine
from antiphon.trace.adapters.values import LARGEST
from antiphon.trace.arrow import pa, pc
from antiphon.trace.bulk.fields import bits, integers
from antiphon.trace.bulk.shapes import Found

NUMBERS_TOGETHER: Final = 256
"""Consecutive numbers of a sender that come into one share."""
EXAMPLES: Final = 3


class Combination(msgspec.Struct, frozen=True):
    """Records of a piece with one run, site, kind and domain."""

    run: str
    site: str
    kind: str
    domain: str | None
    count: int
    least: int | None = None
    """The least number of the messages that the domain numbers itself."""


class Clock(msgspec.Struct, frozen=True):
    """The times of a site in a piece: the first, the last, and how many are below the one before."""

    site: str
    first: int
    last: int
    back: int


class Summary(msgspec.Struct, frozen=True):
    """What the other pieces need to know of this one."""

    file: int
    begin: int
    nth: int
    lines: int
    combinations: list[Combination]
    sites: list[tuple[str, str, int]]
    """Run and site, and how many steps the site has here."""
    senders: list[tuple[str, str, int]]
    """Run and sender, and how many sends it has here, where ids name messages."""
    clocks: list[Clock]
    bad: list[tuple[int, str]]
    """The first lines that cannot be used, and why."""
    bad_lines: int
    hiding: int

    @property
    def name(self) -> str:
        return f"{self.file:06}-{self.begin:015}-{self.nth:06}"

    @property
    def place(self) -> tuple[int, int, int]:
        return self.file, self.begin, self.nth


class Staging(msgspec.Struct, frozen=True):
    """Where records are kept, in how many shares, and how messages are named and rows are ordered."""

    folder: Path
    shares: int
    run: str
    is_numbered: bool
    is_ordered: bool


def stage(staging: Staging, place: tuple[int, int, int], found: Found) -> Summary:
    """Write a piece's records and bad lines, and sum them up."""
    file, begin, nth = place
    records = found.records
    runs, sites, kinds, domains = (Codes(records.column(name)) for name in ("run", "site", "kind", "domain"))
    runs.fill(staging.run)
    who, pairs = grouped(runs.codes, sites.codes)
    rank, steps, orders = _ranks(records, who, len(pairs), staging.is_ordered)
    columns: dict[str, Any] = {"who": pa.array(who.astype(np.int32)), "rank": pa.array(rank)}
    senders: list[tuple[str, str, int]] = []
    summary_name = Summary(file, begin, nth, 0, [], [], [], [], [], 0, 0).name
    if not staging.is_numbered:
        slot, senders, send_orders = _slots(records, runs, sites, kinds, staging.is_ordered)
        columns["slot"] = slot
        if staging.is_ordered:
            np.save(staging.folder / f"{summary_name}.sends.npy", send_orders)
    if staging.is_ordered:
        np.save(staging.folder / f"{summary_name}.orders.npy", orders)
    table = records.set_column(0, "run", runs.array())
    for name, column in columns.items():
        table = table.append_column(name, column)
    _write(staging, summary_name, table)
    _write_bad(staging, summary_name, found.bad)
    return Summary(
        file, begin, nth, found.lines, _combinations(records, runs, sites, kinds, domains),
        [(runs.values[run], sites.values[site], count)
         for (run, site), count in zip(pairs, steps.tolist(), strict=True)],
        senders, _clocks(records, sites),
        [(each.number, each.reason) for each in found.bad[:EXAMPLES]],
        len(found.bad), sum(each.hides for each in found.bad),
    )  # fmt: skip


class Codes:
    """A column of texts as numbers; -1 is null."""

    def __init__(self, column: Any) -> None:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if not pa.types.is_dictionary(whole.type):
            whole = whole.dictionary_encode()
        self.values: list[Any] = whole.dictionary.to_pylist()
        self.codes = pc.fill_null(whole.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)

    @staticmethod
    def indices(column: Any) -> Any:
        """Only the numbers, for columns of many different texts."""
        coded = column.dictionary_encode().indices
        return pc.fill_null(coded, -1).to_numpy(zero_copy_only=False).astype(np.int64)

    def fill(self, value: str) -> None:
        """This value instead of null."""
        if (self.codes < 0).any():
            self.values.append(value)
            self.codes = np.where(self.codes < 0, len(self.values) - 1, self.codes)

    def code(self, value: str) -> int:
        """The value's number; -2 if there is none."""
        return self.values.index(value) if value in self.values else -2

    def value(self, code: int) -> Any:
        return None if code < 0 else self.values[code]

    def array(self) -> Any:
        codes = pa.array(self.codes.astype(np.int32), mask=self.codes < 0)
        return pa.DictionaryArray.from_arrays(codes, pa.array(self.values, pa.string()))


def grouped(*codes: Any) -> tuple[Any, list[tuple[int, ...]]]:
    """For each row the place of its combination of codes, and the combinations."""
    if not len(codes[0]):
        return np.zeros(0, np.int64), []
    if all((each == each[0]).all() for each in codes):
        return np.zeros(len(codes[0]), np.int64), [tuple(int(each[0]) for each in codes)]
    key = np.zeros(len(codes[0]), np.int64)
    sizes = [int(each.max()) + 2 for each in codes]
    for each, size in zip(codes, sizes, strict=True):
        key = key * size + each + 1
    found, places = np.unique(key, return_inverse=True)
    combinations = []
    for value in found.tolist():
        parts = list[int]()
        for size in reversed(sizes):
            value, part = divmod(value, size)
            parts.append(part - 1)
        combinations.append(tuple(reversed(parts)))
    return places, combinations


def running(places: Any, groups: int) -> tuple[Any, Any]:
    """For each row how many earlier rows its group has, and the size of each group."""
    sizes = np.bincount(places, minlength=groups)
    if groups <= 1:
        return np.arange(len(places)), sizes
    order = np.argsort(places, kind="stable")
    found = np.empty(len(places), np.int64)
    found[order] = np.arange(len(places)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return found, sizes


def _ranks(records: Any, who: Any, groups: int, is_ordered: bool) -> tuple[Any, Any, Any]:
    """Ranks, steps of each site, and for each site in turn its distinct places in order."""
    if not is_ordered:
        rank, sizes = running(who, groups)
        return rank, sizes, None
    order, _ = integers(records.column("order").combine_chunks())
    rows = np.lexsort((order, who))
    sorted_who, sorted_order = who[rows], order[rows]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (sorted_who[1:] != sorted_who[:-1]) | (sorted_order[1:] != sorted_order[:-1])
    steps = np.bincount(sorted_who[fresh], minlength=groups)
    rank = np.empty(len(rows), np.int64)
    rank[rows] = np.cumsum(fresh) - 1 - (np.cumsum(steps) - steps)[sorted_who]
    return rank, steps, sorted_order[fresh]


def _slots(records: Any, runs: Codes, sites: Codes, kinds: Codes, is_ordered: bool) -> tuple[Any, Any, Any]:
    """Places of sends, sender by sender, each in order of lines; the senders; what orders the sends."""
    named = bits(pc.is_valid(records.column("message_id").combine_chunks()))
    sends = np.flatnonzero((kinds.codes == kinds.code("send")) & named)
    explicit = Codes(records.column("sender"))
    names = Codes(
        pa.array([*explicit.values, *sites.values], pa.string())
    )  # senders and sites under common numbers
    own = explicit.codes[sends]
    code = np.where(own >= 0, names.codes[own], names.codes[len(explicit.values) + sites.codes[sends]])
    places, pairs = grouped(runs.codes[sends], code)
    rank, sizes = running(places, len(pairs))
    slot = np.full(len(records), -1, np.int64)
    slot[sends] = rank + (np.cumsum(sizes) - sizes)[places] if len(sends) else 0
    senders = [
        (runs.values[run], names.values[name], count)
        for (run, name), count in zip(pairs, sizes.tolist(), strict=True)
    ]
    orders = np.zeros(len(sends), np.int64)
    if is_ordered:
        order, _ = integers(records.column("order").combine_chunks())
        orders[slot[sends]] = order[sends]
    return pa.array(slot.astype(np.int32), mask=slot < 0), senders, orders


def share_of(staging: Staging, table: Any) -> Any:
    """For each record the share that its message belongs to."""
    if staging.shares == 1:
        return np.zeros(len(table), np.int64)
    if not staging.is_numbered:
        identity = table.column("message_id").combine_chunks()
        return _hashes(identity) % staging.shares
    number, _ = integers(table.column("number").combine_chunks())
    sender, domain = Codes(table.column("sender")), Codes(table.column("domain"))
    salt = np.array([zlib.crc32(str(value).encode()) for value in [*sender.values, None]])
    domain_salt = np.array([zlib.crc32(str(value).encode()) for value in [*domain.values, None]])
    named = np.where(sender.codes < 0, domain_salt[domain.codes], salt[sender.codes])
    return (number // NUMBERS_TOGETHER + named) % staging.shares


def _hashes(texts: Any) -> Any:
    """A number for each text, from its length and its last bytes, which differ most among ids."""
    texts = pc.fill_null(texts, "")
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"\0", np.uint8)
    ends, lengths = offsets[1:].astype(np.int64), np.diff(offsets)
    found = lengths.astype(np.uint64)
    for back in range(1, 17):
        byte = np.where(lengths >= back, data[np.maximum(ends - back, 0)], 0)
        found = found * np.uint64(1_099_511_628_211) + byte.astype(np.uint64)
    return ((found ^ (found >> np.uint64(29))) >> np.uint64(3)).astype(np.int64)


def _write(staging: Staging, name: str, table: Any) -> None:
    """A batch for each share; columns without values are left out."""
    kept = [column for column in table.column_names if table.column(column).null_count < len(table)]
    table = table.select(kept).combine_chunks()
    share = share_of(staging, _with_names(table))
    order = np.argsort(share.astype(np.uint16), kind="stable")
    bounds = np.searchsorted(share[order], np.arange(staging.shares + 1))
    table = (table if (np.diff(order) == 1).all() else table.take(order)).combine_chunks()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    pending = staging.folder / f".{name}.arrow"
    with (
        pa.OSFile(str(pending), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=options) as writer,
    ):
        whole = table.to_batches()[0] if len(table) else None
        for begin, end in zip(bounds.tolist(), bounds[1:].tolist(), strict=False):
            if whole is None:
                writer.write_batch(pa.RecordBatch.from_pylist([], table.schema))
            else:
                writer.write_batch(whole.slice(begin, end - begin))
    pending.rename(staging.folder / f"{name}.arrow")


def _with_names(table: Any) -> Any:
    """The table with a column for each part of a message's name."""
    for name, kind in (
        ("message_id", pa.string()),
        ("number", pa.int64()),
        ("sender", pa.string()),
        ("domain", pa.string()),
    ):
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(len(table), kind))
    return table


def _write_bad(staging: Staging, name: str, bad: Sequence[BadLine]) -> None:
    if bad:
        lines = pa.table(
            {
                "line": pa.array([each.number for each in bad], pa.int64()),
                "reason": [each.reason for each in bad],
                "text": [each.text for each in bad],
            }
        )
        path = str(staging.folder / f"{name}.bad")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, lines.schema) as writer:
            writer.write_table(lines)


def _combinations(records: Any, runs: Codes, sites: Codes, kinds: Codes, domains: Codes) -> list[Combination]:
    places, found = grouped(runs.codes, sites.codes, kinds.codes, domains.codes)
    counts = np.bincount(places, minlength=len(found)).tolist()
    least = _least_numbers(records, domains, places, len(found))
    return [
        Combination(
            runs.values[run], sites.values[site], kinds.values[kind], domains.value(domain), count, number
        )
        for (run, site, kind, domain), count, number in zip(found, counts, least, strict=True)
    ]


def _least_numbers(records: Any, domains: Codes, places: Any, groups: int) -> list[int | None]:
    """For each group of records the least number that its domain gave."""
    numbers, valid = integers(records.column("number").combine_chunks())
    codes = {value: code for code, value in enumerate(domains.values)}
    senders = Codes(records.column("sender"))
    same = np.array([codes.get(value, -1) for value in senders.values] + [-1], np.int64)
    own = valid & (domains.codes >= 0) & ((senders.codes < 0) | (same[senders.codes] == domains.codes))
    least = np.full(groups, LARGEST, np.int64)
    np.minimum.at(least, places[own], numbers[own])
    held = np.bincount(places[own], minlength=groups) > 0
    return [number if is_held else None for number, is_held in zip(least.tolist(), held, strict=True)]


def _clocks(records: Any, sites: Codes) -> list[Clock]:
    times, valid = integers(records.column("time_ns").combine_chunks())
    if not valid.any():
        return []
    codes, times = sites.codes[valid], times[valid]
    rows = np.argsort(codes, kind="stable") if (codes != codes[0]).any() else slice(None)
    codes, times = codes[rows], times[rows]
    bounds = np.flatnonzero(np.diff(codes)) + 1
    begins, ends = [0, *bounds.tolist()], [*bounds.tolist(), len(codes)]
    return [
        Clock(
            sites.values[int(codes[begin])], int(times[begin]), int(times[end - 1]),
            int((np.diff(times[begin:end]) < 0).sum()),
        )
        for begin, end in zip(begins, ends, strict=True)
    ]  # fmt: skip
