"""The rows of a share of the messages: ids become senders and numbers, sends get their destinations."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from antiphon.trace.adapters.notes import MOST_COMPARED
from antiphon.trace.adapters.numbering import UNNAMED
from antiphon.trace.arrow import EVENTS, pa, pc, pq
from antiphon.trace.bulk.fields import bits, integers
from antiphon.trace.bulk.ranks import NUMBERS, STEPS, Channel, Consumers, Shared
from antiphon.trace.bulk.shapes import RECORDS
from antiphon.trace.bulk.staging import Codes, Staging, grouped
from antiphon.trace.schema import ACCEPTED

DICTIONARIES = ["run", "site", "kind", "sender", "group", "domain", "destinations.list.element"]


class Job(msgspec.Struct, frozen=True):
    """What every share needs to know."""

    staging: Staging
    pieces: tuple[str, ...]
    slot_offsets: tuple[int, ...]
    looks_up: bool
    """Whether records take the domain of their message's send."""
    has_own_ids: bool
    """Whether ids are the log's own, and not made of domain and number."""
    marks_acceptance: bool
    for_everyone: bool
    is_routed: bool
    """Whether only those destinations count that consumed anything."""
    consumers: Consumers


class Matched(msgspec.Struct, frozen=True):
    """Sends of a share that repeat an earlier one, by their places, and consumers that only a send tells."""

    repeated: list[int]
    consumers: list[tuple[Channel, str]]


class Report(msgspec.Struct, frozen=True):
    """What the rows of a share show."""

    accepted: dict[str, int]
    """Rows of the system itself, for each run."""
    unsent: list[str]
    """Runs with messages that no send names."""
    met: list[str]
    """Runs with a message that was both sent and delivered."""
    routed: list[tuple[str, bool]]
    """Runs with sends that name destinations, and whether any of these counts."""
    repeats: list[tuple[str, str, int]]
    """Runs and domains that number their messages, and sends that repeat a number."""
    shares: list[Shared]


class Share:
    """All records of some messages, with codes for what is compared."""

    def __init__(self, job: Job, share: int, columns: Sequence[str] | None = None) -> None:
        self._job = job
        self.table = _read(job, share, columns)
        self.count = len(self.table)
        self.runs, self.sites, self.kinds = (self.codes(name) for name in ("run", "site", "kind"))
        self.is_send = self.kinds.codes == self.kinds.code("send")
        self.is_deliver = self.kinds.codes == self.kinds.code("deliver")
        absent = (self.kinds.code("present"), self.kinds.code("absent"))
        self.is_message = ~np.isin(self.kinds.codes, absent)

    def column(self, name: str) -> Any:
        if name not in self.table.column_names:
            kind = RECORDS.field(name).type
            return pa.nulls(self.count, pa.string() if pa.types.is_dictionary(kind) else kind)
        return self.table.column(name).combine_chunks()

    def codes(self, name: str) -> Codes:
        return Codes(self.column(name))

    def texts(self, name: str) -> Any:
        column = self.column(name)
        return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column

    def first_sends(self) -> tuple[Any, Any]:
        """For each row the code of its id, and the row of the first send of that id; -1 without one."""
        ids = Codes.indices(self.column("message_id"))
        key = ids + 1 + self.runs.codes * (ids.max(initial=-1) + 2)
        named = bits(pc.is_valid(self.column("message_id")))
        sends = np.flatnonzero(self.is_send & named)
        if self._job.staging.is_ordered:
            order, _ = integers(self.column("order"))
            names = np.array(self.senders(sends).to_pylist(), object)
            ranks = np.unique(names, return_inverse=True)[1] if len(sends) else sends
            sends = sends[np.lexsort((sends, ranks, order[sends]))]
        first = np.full(key.max(initial=0) + 1, -1, np.int64)
        first[key[sends[::-1]]] = sends[::-1]
        return key, np.where(named, first[key], -1)

    def senders(self, rows: Any) -> Any:
        """Who sent: the named sender, else the site."""
        places = pa.array(rows)
        return pc.coalesce(self.texts("sender").take(places), self.texts("site").take(places))


def _read(job: Job, share: int, columns: Sequence[str] | None) -> Any:
    """The share's records of all pieces, in their order, each with its piece's place."""
    tables = []
    for place, name in enumerate(job.pieces):
        with pa.memory_map(str(job.staging.folder / f"{name}.arrow")) as source:
            batch = pa.ipc.open_file(source).get_batch(share)
        if batch.num_rows:
            table = pa.Table.from_batches([batch])
            if columns is not None:
                table = table.select([each for each in table.column_names if each in columns])
            pieces = pa.array(np.full(len(table), place, np.int32))
            tables.append(table.append_column("piece", pieces))
    if not tables:
        empty = pa.schema([*RECORDS, ("who", pa.int32()), ("rank", pa.int64()), ("piece", pa.int32())])
        return empty.empty_table()
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries().combine_chunks()


def match(job: Job, share: int) -> Matched:
    """Find sends that repeat an earlier one, and whose consumers only a send tells."""
    wanted = ("run", "site", "kind", "sender", "number", "group", "domain", "message_id", "order", "slot")
    records = Share(job, share, wanted)
    key, send = records.first_sends()
    repeated = list[int]()
    if not job.staging.is_numbered:
        again = records.is_send & (send >= 0) & (send != np.arange(records.count))
        repeated = _send_places(job, records, np.flatnonzero(again)).tolist()
    consumers = _readers(job, records, key, send)
    if job.looks_up:
        domains = records.codes("domain")
        own = records.is_deliver & (domains.codes < 0) & (send >= 0)
        own &= records.sites.codes != records.sites.code(ACCEPTED)
        found = np.where(own, domains.codes[send], -1)
        rows = found >= 0
        _, triples = grouped(records.runs.codes[rows], found[rows], records.sites.codes[rows])
        consumers += [
            ((records.runs.values[run], None, domains.values[domain]), records.sites.values[site])
            for run, domain, site in triples
        ]
    return Matched(repeated, consumers)


def _readers(job: Job, records: Share, key: Any, send: Any) -> list[tuple[Channel, str]]:
    """Who delivered what was sent to which group; the first send of a message names its group."""
    groups = records.codes("group")
    sends = np.flatnonzero(records.is_send)
    if not (groups.codes[sends] >= 0).any():
        return []
    if job.staging.is_numbered:
        columns = {"sender": _named(records), "number": records.column("number")}
        key = _messages(records, columns)
    first = np.full(int(key.max(initial=0)) + 1, -1, np.int64)
    first[key[sends[::-1]]] = sends[::-1]
    domains = Codes(_domains(job, records, send))
    own = records.is_deliver & (first[key] >= 0)
    own &= records.sites.codes != records.sites.code(ACCEPTED)
    own[own] = groups.codes[first[key[own]]] >= 0
    rows = np.flatnonzero(own)
    group = groups.codes[first[key[rows]]]
    _, found = grouped(records.runs.codes[rows], group, domains.codes[rows], records.sites.codes[rows])
    return [
        ((records.runs.values[run], groups.values[group], domains.value(domain)), records.sites.values[site])
        for run, group, domain, site in found
    ]


def _named(records: Share) -> Any:
    """Who sent a message with a number."""
    return pc.coalesce(records.texts("sender"), records.texts("domain"), pa.scalar(UNNAMED))


def _send_places(job: Job, records: Share, rows: Any) -> Any:
    """The places of these sends among all sends."""
    pieces, _ = integers(records.table.column("piece").combine_chunks())
    slots = np.zeros(records.count, np.int64)
    if "slot" in records.table.column_names:
        slots, _ = integers(records.table.column("slot").combine_chunks())
    return np.array(job.slot_offsets, np.int64)[pieces[rows]] + slots[rows]


def write_share(job: Job, share: int) -> Report:
    """Write the share's rows as a file of `events`, and say what they show."""
    records = Share(job, share)
    key = send = None
    if not job.staging.is_numbered or job.looks_up:
        key, send = records.first_sends()
    domain = _domains(job, records, send)
    if job.staging.is_numbered:
        sender, number = _named(records), records.column("number")
        unsent = np.zeros(records.count, bool)
    else:
        assert send is not None
        sender, number = _named_by_ids(job, records, send)
        unsent = records.is_message & (send < 0)
    message = pa.array(records.is_message)

    def of_messages(column: Any) -> Any:
        return (
            column if records.is_message.all() else pc.if_else(message, column, pa.scalar(None, column.type))
        )

    accepted = _accepted(job, records, key)
    columns = {
        "run": records.runs.array(), "site": records.sites.array(), "step": pa.array(_steps(job, records)),
        "kind": records.kinds.array(), "sender": of_messages(sender), "number": of_messages(number),
        "count": pa.nulls(records.count, pa.int32()), "group": of_messages(records.texts("group")),
        "destinations": _destinations(job, records, domain, accepted),
        "size": of_messages(records.column("size")), "time_ns": records.column("time_ns"),
        "message_id": records.column("message_id"), "attempt": records.column("attempt"),
        "domain": of_messages(domain),
    }  # fmt: skip
    message = _messages(records, columns)
    sends = np.flatnonzero(records.is_send)
    firsts = np.sort(sends[np.unique(message[sends], return_index=True)[1]])
    rows = firsts[:0] if job.marks_acceptance else firsts
    _write(job, share, columns, rows)
    return Report(
        _counted(records, rows), [records.runs.values[run] for run in np.unique(records.runs.codes[unsent])],
        _met(records, message), _routed(job, records),
        _repeats(records, columns, firsts) if job.staging.is_numbered else [],
        [] if job.for_everyone else _shares(job, records, columns, message),
    )  # fmt: skip


def _steps(job: Job, records: Share) -> Any:
    """Each row's step: its rank in its piece, behind what the site did in earlier pieces."""
    pieces, _ = integers(records.table.column("piece").combine_chunks())
    who, _ = integers(records.table.column("who").combine_chunks())
    rank, _ = integers(records.table.column("rank").combine_chunks())
    found = rank.astype(np.int64)
    holes = np.zeros(records.count, np.int64)
    bounds = np.searchsorted(pieces, np.arange(len(job.pieces) + 1))
    for name, begin, end in zip(job.pieces, bounds.tolist(), bounds[1:].tolist(), strict=False):
        if begin < end:
            found[begin:end] += np.load(job.staging.folder / f"{name}.starts.npy")[who[begin:end]]
            holes[begin:end] = np.load(job.staging.folder / f"{name}.holes.npy")[who[begin:end]]
    if job.staging.is_ordered:
        found = np.load(job.staging.folder / STEPS, mmap_mode="r")[found]
    return found + holes


def _domains(job: Job, records: Share, send: Any) -> Any:
    """Each record's domain, else that of its message's send."""
    own = records.texts("domain") if send is not None and job.looks_up else records.column("domain")
    if send is None or not job.looks_up:
        return own if not pa.types.is_dictionary(own.type) else own.cast(pa.string())
    return pc.coalesce(own, own.take(pa.array(send, mask=send < 0)))


def _named_by_ids(job: Job, records: Share, send: Any) -> tuple[Any, Any]:
    """Sender and number: those of the send, else a sender of the message's own."""
    places = pa.array(send, mask=send < 0)
    everyone = records.senders(np.arange(records.count))
    sender = everyone.take(places)
    if (send < 0).any():
        own = pc.binary_join_element_wise("?", records.column("message_id"), "")
        sender = pc.coalesce(sender, own)
    numbers = np.load(job.staging.folder / NUMBERS, mmap_mode="r")
    found = np.zeros(records.count, np.int64)
    sent = np.flatnonzero(send >= 0)
    found[sent] = numbers[_send_places(job, records, send[sent])]
    return sender, pa.array(found)


def _accepted(job: Job, records: Share, key: Any) -> Any:
    """Which rows speak of messages that the system accepted."""
    if not job.marks_acceptance:
        return np.ones(records.count, bool)
    held = records.is_deliver & (records.sites.codes == records.sites.code(ACCEPTED))
    return np.isin(key, key[held])


def _destinations(job: Job, records: Share, domain: Any, accepted: Any) -> Any:
    """Who each send is for: the sites that the log names, else everyone, else who consumes its domain."""
    sends = np.flatnonzero(records.is_send)
    domains = Codes(domain)
    choices: list[list[str] | None] = [None]
    choice = np.zeros(records.count, np.int64)
    explicit = records.column("destinations")
    named = bits(pc.is_valid(explicit))
    groups = records.codes("group")
    usual = sends[~named[sends]]
    if not job.for_everyone:
        held = accepted[usual].astype(np.int64)
        runs = records.runs.codes[usual]
        places, found = grouped(runs, groups.codes[usual], domains.codes[usual], held)
        choice[usual] = places + len(choices)
        for run, group, code, is_held in found:
            channel = records.runs.values[run], groups.value(group), domains.value(code)
            consumers = job.consumers.get(channel, frozenset())
            choices.append(sorted(consumers) + [ACCEPTED] * is_held)
    own = sends[named[sends]]
    if len(own):
        lists = explicit.take(pa.array(own))
        joined = Codes(pc.binary_join(lists, "\0"))
        runs = records.runs.codes[own]
        places, found = grouped(joined.codes, runs, accepted[own].astype(np.int64))
        choice[own] = places + len(choices)
        first = np.unique(joined.codes, return_index=True)[1]
        examples = lists.take(pa.array(first)).to_pylist()
        for code, run, is_held in found:
            known = _known(job, records.runs.values[run], examples[code])
            choices.append(known + [ACCEPTED] * is_held)
    return pa.array(choices, pa.list_(pa.string())).take(pa.array(choice))


def _known(job: Job, run: str, destinations: list[str]) -> list[str]:
    consumers = job.consumers.get((run, None, None), frozenset())
    return [name for name in destinations if name in consumers] if job.is_routed else destinations


def _routed(job: Job, records: Share) -> list[tuple[str, bool]]:
    """For each run with sends that name destinations: whether any of these counts."""
    if not job.is_routed or "destinations" not in records.table.column_names:
        return []
    sends = records.table.select(["run", "destinations"]).filter(pa.array(records.is_send))
    found: dict[str, bool] = {}
    for row in sends.to_pylist():
        if row["destinations"]:
            counts = bool(_known(job, row["run"], row["destinations"]))
            found[row["run"]] = found.get(row["run"], False) or counts
    return list(found.items())


def _messages(records: Share, columns: dict[str, Any]) -> Any:
    """For each row a number for its message: that of its run, sender and number."""
    pair, _ = grouped(records.runs.codes, Codes(columns["sender"]).codes)
    key = _joined(pair, integers(columns["number"])[0])
    return np.unique(key, return_inverse=True)[1]


def _met(records: Share, message: Any) -> list[str]:
    """The runs with a message that was both sent and delivered."""
    sent = np.zeros(int(message.max(initial=0)) + 1, bool)
    sent[message[records.is_send]] = True
    delivered = records.is_deliver & (records.sites.codes != records.sites.code(ACCEPTED))
    runs = np.unique(records.runs.codes[delivered & sent[message]])
    return [records.runs.values[run] for run in runs.tolist()]


def _repeats(records: Share, columns: dict[str, Any], first: Any) -> list[tuple[str, str, int]]:
    """How many sends of each domain that numbers its messages repeat a number, as the `first` do not."""
    own = records.is_send & bits(pc.equal(columns["sender"], columns["domain"]))
    again = own.copy()
    again[first] = False
    if not again.any():
        return []
    domains = Codes(columns["domain"])
    place, found = grouped(records.runs.codes[again], domains.codes[again])
    return [
        (records.runs.values[run], domains.values[domain], count)
        for (run, domain), count in zip(found, np.bincount(place).tolist(), strict=True)
    ]


def _joined(group: Any, values: Any) -> Any:
    """One number for each group and value."""
    if not len(values):
        return values
    spread = int(values.max()) - int(values.min()) + 1
    if spread * (int(group.max()) + 1) >= 2**62:
        values = np.unique(values, return_inverse=True)[1]
        spread = len(values)
    return group * spread + (values - values.min())


def _counted(records: Share, rows: Any) -> dict[str, int]:
    runs, counts = np.unique(records.runs.codes[rows], return_counts=True)
    return {
        records.runs.values[run]: count for run, count in zip(runs.tolist(), counts.tolist(), strict=True)
    }


def _shares(job: Job, records: Share, columns: dict[str, Any], message: Any) -> list[Shared]:
    """For each channel with several consumers: how many messages each two of these delivered both.

    Messages whose sends say who they are for are left out.
    """
    domains, groups = Codes(columns["domain"]), records.codes("group")
    own = records.is_deliver & (records.sites.codes != records.sites.code(ACCEPTED))
    if not own.any() or max(map(len, job.consumers.values())) < 2:
        return []
    addressed = np.zeros(int(message.max()) + 1, bool)
    addressed[message[records.is_send & bits(pc.is_valid(records.column("destinations")))]] = True
    sends = np.flatnonzero(records.is_send)[::-1]
    group = np.full(len(addressed), -1, np.int64)
    group[message[sends]] = groups.codes[sends]
    rows = np.flatnonzero(own & ~addressed[message])
    place, found = grouped(records.runs.codes[rows], group[message[rows]], domains.codes[rows])
    channels = [
        (records.runs.values[run], groups.value(to), domains.value(domain)) for run, to, domain in found
    ]
    shares = (
        _shared(job, records, rows[place == at], message, channel) for at, channel in enumerate(channels)
    )
    return [each for each in shares if each is not None]


def _shared(job: Job, records: Share, rows: Any, message: Any, channel: Channel) -> Shared | None:
    """What these deliveries of one channel say, if it has several consumers."""
    sites = sorted(job.consumers.get(channel, ()))[:MOST_COMPARED]
    if len(sites) < 2:
        return None
    index = {site: at for at, site in enumerate(sites)}
    places = np.array([index.get(site, -1) for site in records.sites.values], np.int64)
    site = places[records.sites.codes[rows]]
    rows, site = rows[site >= 0], site[site >= 0]
    held = np.zeros(int(message.max()) + 1, np.uint64)
    for at in range(len(sites)):
        held[message[rows[site == at]]] |= np.uint64(1 << at)
    masks, counts = np.unique(held[held > 0], return_counts=True)
    bit = (masks[:, None] >> np.arange(len(sites), dtype=np.uint64)) & np.uint64(1)
    weighted = bit.astype(np.int64)
    return Shared(*channel, sites, ((weighted * counts[:, None]).T @ weighted).ravel().tolist())


def _write(job: Job, share: int, columns: dict[str, Any], accepted: Any) -> None:
    """The rows, and behind them those of the system itself."""
    folder = job.staging.folder / "events"
    pending = folder / f".part-{share:05}.parquet"
    schema = pa.schema([(name, columns[name].type) for name in EVENTS.names])
    tables = [pa.Table.from_arrays([columns[name] for name in EVENTS.names], schema=schema)]
    if len(accepted):
        count, rows = len(accepted), pa.array(accepted)
        zero = pa.array(np.zeros(count, np.int32))

        def constant(text: str) -> Any:
            return pa.DictionaryArray.from_arrays(zero, pa.array([text]))

        given: dict[str, Any] = {
            "site": constant(ACCEPTED), "kind": constant("deliver"),
            "step": pa.array(np.zeros(count, np.int64)),
        }  # fmt: skip
        for name in ("run", "sender", "number", "message_id", "domain"):
            given[name] = columns[name].take(rows)
        arrays = [given.get(name, pa.nulls(count, columns[name].type)) for name in EVENTS.names]
        tables.append(pa.Table.from_arrays(arrays, schema=schema))
    with pq.ParquetWriter(
        pending, schema, compression="zstd", use_dictionary=DICTIONARIES, store_schema=False
    ) as writer:
        for table in tables:
            writer.write_table(table.unify_dictionaries())
    pending.rename(folder / f"part-{share:05}.parquet")
