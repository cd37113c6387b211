"""From Parquet rows to compact segments: the first stage of the audit.

A task reads whole row groups, keeps only the columns that a verdict needs, and groups the rows by run, and
within a run by site. Rows may come in any order: where the steps of a site do not count up, they are packed
too, and sorted when the run is put together (`log`). The shuffle carries one `Segment` per run and task
(more if it would exceed `SEGMENT_ROWS`): raw little-endian columns of the narrowest integers that hold the
values, about 6 bytes a row in the common case. They are plain bytes, not Arrow's format, because a sweep
leaves very many small runs, and each would carry its own schema.

Rows that break the table's rules are not packed; a sentence that says so travels instead.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from antiphon.core.errors import InputError
from antiphon.core.ids import Group, Site
from antiphon.core.recording import KINDS
from antiphon.trace.arrow import EVENTS, pa, pq
from antiphon.trace.sanity import LARGEST_NUMBER, row_flaw, unjudgeable_row
from antiphon.trace.schema import Event

COLUMNS: Final = (
    "run",
    "site",
    "step",
    "kind",
    "sender",
    "number",
    "count",
    "group",
    "destinations",
    "message_id",
    "domain",
)
TEXT_COLUMNS: Final = ("run", "site", "kind", "sender", "group", "message_id", "domain")
SEGMENT_ROWS: Final = 1 << 20
MASK_NAMES: Final = 63
"""Up to this many names, a set of destinations is the bits of one integer."""

PRESENT, ABSENT, SEND, RECEIVE, DELIVER, STABLE, DISCARD = range(len(KINDS))
"""A kind's code is its index in `KINDS`."""
UNKNOWN_KIND: Final = len(KINDS)

Ints = np.ndarray[Any, np.dtype[np.int64]]
Address = tuple[Group | None, tuple[Site, ...] | None]
NO_ADDRESS: Final[Address] = (None, None)


class SitePart(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Consecutive rows of a segment that belong to one site."""

    site: Site
    first_step: int
    rows: int


class Column(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Integers as raw bytes of a numpy type."""

    type: str
    data: bytes

    def array(self) -> Ints:
        return np.frombuffer(self.data, self.type)


class Segment(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Rows of one run. `steps` is None if each part's steps count up from its first."""

    parts: list[SitePart]
    steps: Column | None
    kinds: Column
    sender_names: list[Site]
    senders: Column
    numbers: Column
    counts: Column | None
    addresses: list[Address]
    address_codes: Column | None
    """One code per send row; None where no row names a group or destinations."""
    domain_names: list[str] = []
    domains: Column | None = None
    """One code per row, 0 for no domain; None where no row names any."""
    labels: list[str] = []
    label_codes: Column | None = None
    """The messages' names in their own system: one code per row, 0 for none; None where no row has any."""


class Packed(NamedTuple):
    """Rows of one run: a segment, or the problem that keeps them from being judged."""

    run: str
    problem: str | None
    segment: Segment | None


class Rows(NamedTuple):
    """A table's columns as arrays; texts as codes into lists of names, -1 for null."""

    run: Ints
    run_names: list[str]
    site: Ints
    site_names: list[str]
    step: Ints
    kind: Ints
    sender: Ints
    sender_names: list[str]
    number: Ints
    counts: Ints | None
    address: Ints | None
    addresses: list[Address]
    domain: Ints
    domain_names: list[str]
    label: Ints
    labels: list[str]

    def take(self, order: Any) -> "Rows":
        """The same rows in another order."""
        return self._replace(
            run=self.run[order],
            site=self.site[order],
            step=self.step[order],
            kind=self.kind[order],
            sender=self.sender[order],
            number=self.number[order],
            counts=None if self.counts is None else self.counts[order],
            address=None if self.address is None else self.address[order],
            domain=self.domain[order] if len(self.domain) else self.domain,
            label=self.label[order] if len(self.label) else self.label,
        )


def read_row_groups(path: Path, row_groups: Sequence[int]) -> pa.Table:
    """The columns that a verdict needs; InputError if the file is torn or its columns do not fit."""
    try:
        found = pq.read_schema(path).names
        texts = [name for name in TEXT_COLUMNS if name in found]
        file = pq.ParquetFile(path, read_dictionary=texts)
        present = [name for name in COLUMNS if name in found]
        table = file.read_row_groups(list(row_groups), columns=present, use_threads=False)
        table.validate(full=True)  # a flipped bit may point beyond a dictionary
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} cannot be read as Parquet.",
            hint="The file is torn or is no Parquet file: copy or write it again.",
        ) from error
    for name in ("run", "site", "step", "kind"):
        if table.column(name).null_count:
            raise InputError(f"The column {name} of {path} has rows without a value.")
    try:
        return table.cast(pa.schema([_wanted(table, name) for name in present]))
    except pa.ArrowException as error:
        raise InputError(f"The columns of {path} cannot be read: {error}.") from error


def _wanted(table: pa.Table, name: str) -> pa.Field:
    wanted = EVENTS.field(name).type
    if name in TEXT_COLUMNS and pa.types.is_dictionary(table.schema.field(name).type):
        wanted = pa.dictionary(table.schema.field(name).type.index_type, pa.string())
    return pa.field(name, wanted)


def pack(table: pa.Table) -> Iterator[Packed]:
    """Cut a table of events into segments, run by run."""
    if not table.num_rows:
        return
    kind, kind_names = _codes(table, "kind")
    rows = _rows(table, np.array([_kind_code(name) for name in kind_names])[kind])
    flawed = _flawed(rows, table)
    if flawed.any():
        yield from _problems(table, rows, flawed)
        # A run with a flawed row is not judged, so its rows need not be packed.
        whole = ~np.isin(rows.run, np.unique(rows.run[flawed]))
        if not whole.any():
            return
        rows = rows.take(np.flatnonzero(whole))
    rows = _grouped(rows)
    edges = np.flatnonzero(np.diff(rows.run, prepend=-1, append=-1))
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        name = rows.run_names[int(rows.run[begin])]
        for first in range(begin, end, SEGMENT_ROWS):
            last = min(first + SEGMENT_ROWS, end)
            yield Packed(
                name, None, _segment(rows.take(slice(first, last)), alone=last - first == len(rows.run))
            )


def _kind_code(name: str) -> int:
    return KINDS.index(name) if name in KINDS else UNKNOWN_KIND


def _rows(table: pa.Table, kind: Ints) -> Rows:
    run, run_names = _codes(table, "run")
    site, site_names = _codes(table, "site")
    sender, sender_names = _codes(table, "sender")
    unnamed = (sender < 0) & (kind == SEND)
    if unnamed.any():
        sender, sender_names = _named_by_site(sender, sender_names, unnamed, site, site_names)
    address, addresses = _addresses(table, kind == SEND)
    count = None
    if "count" in table.column_names and table.column("count").null_count < table.num_rows:
        count = _integers(table, "count", 1)
    step, number = _integers(table, "step", 0), _integers(table, "number", -1)
    return Rows(
        run,
        run_names,
        site,
        site_names,
        step,
        kind,
        sender,
        sender_names,
        number,
        count,
        address,
        addresses,
        *_optional_codes(table, "domain"),
        *_optional_codes(table, "message_id"),
    )


def _optional_codes(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    """A column of texts as `_codes` gives it; empty if it is missing or all null."""
    if name not in table.column_names or table.column(name).null_count == table.num_rows:
        return np.empty(0, np.int64), []
    return _codes(table, name)


def _codes(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    """A column of texts as codes and names; null is -1."""
    if name not in table.column_names:
        return np.full(table.num_rows, -1), []
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries()
    chunks = [_chunk_codes(chunk) for chunk in column.chunks]
    names = column.chunk(0).dictionary.to_pylist()
    # A writer's dictionary may hold one text twice; both then get the same code.
    unique = {text: code for code, text in enumerate(dict.fromkeys(names))}
    codes = np.concatenate(chunks)
    if len(unique) < len(names):
        codes = np.array([unique[text] for text in names] + [-1])[codes]
    return codes, list(unique)


def _chunk_codes(chunk: pa.DictionaryArray) -> Ints:
    indices = chunk.indices
    if indices.null_count:
        indices = indices.cast(pa.int32()).fill_null(-1)
    codes: Ints = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _integers(table: pa.Table, name: str, null: int) -> Ints:
    column = table.column(name).cast(pa.int64())
    if column.null_count:
        column = column.fill_null(null)
    values: Ints = column.to_numpy()
    return values


def _named_by_site(
    sender: Ints, sender_names: list[str], unnamed: Any, site: Ints, site_names: list[str]
) -> tuple[Ints, list[str]]:
    """On a send row a null sender means the site itself."""
    known = {name: code for code, name in enumerate(sender_names)}
    as_sender = np.array([known.setdefault(name, len(known)) for name in site_names])
    return np.where(unnamed, as_sender[site], sender), list(known)


def _addresses(table: pa.Table, is_send: Any) -> tuple[Ints | None, list[Address]]:
    """Each row's address as a code into a list; None if no send row names a group or destinations."""
    group, group_names = _codes(table, "group")
    listed = np.full(table.num_rows, -1)
    lists: list[tuple[Site, ...]] = []
    if "destinations" in table.column_names and table.column("destinations").null_count < table.num_rows:
        listed, lists = _destination_lists(table.column("destinations"))
    combined = np.where(is_send, (group + 1) * (len(lists) + 1) + listed + 1, 0)
    if not combined.any():
        return None, [NO_ADDRESS]
    found, codes = np.unique(combined, return_inverse=True)
    addresses: list[Address] = []
    for value in found.tolist():
        group_code, list_code = divmod(value, len(lists) + 1)
        # A list of destinations overrides the group.
        of_group = group_names[group_code - 1] if group_code and not list_code else None
        addresses.append((of_group, lists[list_code - 1] if list_code else None))
    return codes, addresses


def _destination_lists(column: pa.ChunkedArray) -> tuple[Ints, list[tuple[Site, ...]]]:
    """Each row's list of destinations as a code; null is -1. Order within a list does not matter."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    names = array.flatten().dictionary_encode()
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    dictionary = names.dictionary.to_pylist()
    codes = names.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if len(dictionary) > MASK_NAMES:
        return _lists_one_by_one(codes, lengths, is_null, dictionary)
    masks = np.zeros(len(lengths), np.int64)
    filled = np.flatnonzero(lengths)
    if len(filled):
        starts = (np.cumsum(lengths) - lengths)[filled]
        masks[filled] = np.bitwise_or.reduceat(np.left_shift(1, codes), starts)
    found, inverse = np.unique(masks, return_inverse=True)
    lists = [tuple(name for bit, name in enumerate(dictionary) if mask >> bit & 1) for mask in found.tolist()]
    return np.where(is_null, -1, inverse), lists


def _lists_one_by_one(
    codes: Ints, lengths: Ints, is_null: Any, dictionary: list[str]
) -> tuple[Ints, list[tuple[Site, ...]]]:
    known: dict[bytes, int] = {}
    result = np.full(len(lengths), -1)
    ends = np.cumsum(lengths)
    for row in np.flatnonzero(~is_null).tolist():
        members = np.unique(codes[ends[row] - lengths[row] : ends[row]])
        result[row] = known.setdefault(members.tobytes(), len(known))
    lists = [tuple(dictionary[code] for code in np.frombuffer(key, np.int64).tolist()) for key in known]
    return result, lists


def _flawed(rows: Rows, table: pa.Table) -> Any:
    """Which rows break the table's rules: the array form of `row_flaw`."""
    about_message = rows.kind > ABSENT
    bad = (rows.sender < 0) | (rows.number < 0)
    if rows.counts is not None:
        bad |= (rows.counts < 1) | (rows.number > LARGEST_NUMBER - rows.counts + 1)
    flawed = (rows.kind == UNKNOWN_KIND) | (about_message & bad) | (rows.step < 0)
    if "destinations" in table.column_names:
        column = table.column("destinations")
        if any(chunk.flatten().null_count for chunk in column.chunks):
            holed = [sites is not None and None in sites for sites in column.to_pylist()]
            flawed |= about_message & np.array(holed)
    return flawed


def _problems(table: pa.Table, rows: Rows, flawed: Any) -> Iterator[Packed]:
    """One sentence per run with flawed rows, about the first of them."""
    places = np.flatnonzero(flawed)
    _, first = np.unique(rows.run[places], return_index=True)
    for place in places[np.sort(first)].tolist():
        row = table.slice(place, 1).to_pylist()[0]
        event = Event(**row)
        flaw = row_flaw(event) or "the step is negative"
        yield Packed(event.run, unjudgeable_row(event.run, event.site, event.step, flaw).sentence, None)


def _grouped(rows: Rows) -> Rows:
    """Rows grouped by run and site, otherwise in their order; unchanged if they are grouped already."""
    key = rows.run * len(rows.site_names) + rows.site
    if np.all(key[1:] >= key[:-1]):
        return rows
    return rows.take(np.argsort(_narrow(key), kind="stable"))


def _narrow(values: Ints) -> Any:
    """These values as the narrowest unsigned integers; numpy sorts 16 bits by radix."""
    largest = int(values.max(initial=0))
    for width in (np.uint8, np.uint16, np.uint32):
        if largest <= np.iinfo(width).max:
            return values.astype(width)
    return values


def renumbered(codes: Ints, bound: int) -> tuple[Ints, Ints]:
    """The codes below `bound` that occur, rising, and for each code its index among them."""
    occurs = np.zeros(bound, np.bool_)
    occurs[codes] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]


def column_of(values: Any) -> Column:
    return Column(values.dtype.str, values.tobytes())


def _segment(rows: Rows, alone: bool) -> Segment:
    """Pack rows of one run. With `alone` they are the whole table, so that every name is used."""
    edges = np.flatnonzero(np.diff(rows.site, prepend=-1, append=-1))
    first_steps = rows.step[edges[:-1]]
    lengths = np.diff(edges)
    counted = np.arange(len(rows.step)) + np.repeat(first_steps - edges[:-1], lengths)
    parts = [
        SitePart(rows.site_names[site], first, length)
        for site, first, length in zip(
            rows.site[edges[:-1]].tolist(), first_steps.tolist(), lengths.tolist(), strict=True
        )
    ]
    about_message = rows.kind > ABSENT
    sender, names = np.where(about_message, rows.sender, 0), rows.sender_names
    if not alone:
        used, sender = renumbered(sender, max(len(names), 1))
        names = [names[code] for code in used.tolist()] if names else []
    return Segment(
        parts=parts,
        steps=None if np.array_equal(counted, rows.step) else column_of(rows.step),
        kinds=column_of(rows.kind.astype(np.uint8)),
        sender_names=names,
        senders=column_of(_narrow(sender)),
        numbers=column_of(_narrow(np.where(about_message, rows.number, 0))),
        counts=None if rows.counts is None else column_of(_narrow(np.where(about_message, rows.counts, 1))),
        **_packed_addresses(rows),
        **_packed_texts("domain_names", "domains", rows.domain, rows.domain_names),
        **_packed_texts("labels", "label_codes", rows.label, rows.labels),
    )


def _packed_texts(names_field: str, codes_field: str, codes: Ints, names: list[str]) -> dict[str, Any]:
    """Codes of the texts that occur, counted from 1; 0 for none."""
    if not len(codes) or codes.max(initial=-1) < 0:
        return {}
    used, packed = np.unique(np.append(codes, -1), return_inverse=True)
    return {
        names_field: [names[code] for code in used[1:].tolist()],
        codes_field: column_of(_narrow(packed[:-1])),
    }


def _packed_addresses(rows: Rows) -> dict[str, Any]:
    if rows.address is None:
        return {"addresses": [NO_ADDRESS], "address_codes": None}
    used, codes = renumbered(rows.address[rows.kind == SEND], len(rows.addresses))
    return {
        "addresses": [rows.addresses[code] for code in used.tolist()],
        "address_codes": column_of(_narrow(codes)),
    }
