"""The rows of a share of the messages: ids become senders and numbers, sends get their destinations."""

from functools import partial
from typing import Any

import msgspec
import numpy as np

from antiphon.trace.adapters.notes import MOST_COMPARED
from antiphon.trace.arrow import EVENTS, pa, pc, pq
from antiphon.trace.bulk.domains import Doubt, Placing, Reading, Told
from antiphon.trace.bulk.fields import bits, integers
from antiphon.trace.bulk.ranks import NUMBERS, STEPS, Channel, Shared
from antiphon.trace.bulk.share import Job, Share
from antiphon.trace.bulk.staging import Codes, grouped
from antiphon.trace.schema import ACCEPTED

DICTIONARIES = ["run", "site", "kind", "sender", "group", "domain", "destinations.list.element"]


class Matched(msgspec.Struct, frozen=True):
    """Sends of a share that repeat an earlier one, by their places, and what its sites deliver."""

    repeated: list[int]
    readings: list[Reading]


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
    undecided: list[Doubt]
    """Messages without a domain that records tell, and that some sites may have lost."""
    unordered: dict[str, int]
    """For each run the messages without a domain that records tell, if they were sent and delivered."""
    torn: list[Doubt]
    """Messages whose records name several domains."""


def match(job: Job, share: int) -> Matched:
    """Find sends that repeat an earlier one, and who delivers what."""
    wanted = ("run", "site", "kind", "sender", "number", "group", "domain", "message_id", "order", "slot")
    records = Share(job, share, wanted)
    key, repeated = None, list[int]()
    if not job.staging.is_numbered:
        key, send = records.first_sends()
        again = records.is_send & (send >= 0) & (send != np.arange(records.count))
        repeated = _send_places(job, records, np.flatnonzero(again)).tolist()
    if not job.places and "group" not in records.table.column_names:
        return Matched(repeated, [])
    if key is None:
        message = records.messages(records.named(), records.column("number"))
    else:
        message = np.unique(key, return_inverse=True)[1]
    return Matched(repeated, list(Told(job, records, message).readings()))


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
    key = None
    if job.staging.is_numbered:
        sender, number = records.named(), records.column("number")
        unsent = np.zeros(records.count, bool)
    else:
        key, send = records.first_sends()
        sender, number = _named_by_ids(job, records, send)
        unsent = records.is_message & (send < 0)
    sender, number = _of_messages(records, sender), _of_messages(records, number)
    message = records.messages(sender, number)
    placing = Placing(job, records, message)
    accepted = _accepted(job, records, key)
    columns = {
        "run": records.runs.array(), "site": records.sites.array(), "step": pa.array(_steps(job, records)),
        "kind": records.kinds.array(), "sender": sender, "number": number,
        "count": pa.nulls(records.count, pa.int32()), "group": _of_messages(records, records.texts("group")),
        "destinations": _destinations(job, records, placing, accepted),
        "size": _of_messages(records, records.column("size")), "time_ns": records.column("time_ns"),
        "message_id": records.column("message_id"), "attempt": records.column("attempt"),
        "domain": placing.column(sender, number),
    }  # fmt: skip
    sends = np.flatnonzero(records.is_send)
    firsts = np.sort(sends[np.unique(message[sends], return_index=True)[1]])
    rows = firsts[:0] if job.marks_acceptance else firsts
    _write(job, share, columns, rows)
    names = partial(_names, job, columns)
    open_sends = firsts[placing.unplaced[firsts] & ~bits(pc.is_valid(records.column("destinations")))[firsts]]
    return Report(
        _counted(records, rows), [records.runs.values[run] for run in np.unique(records.runs.codes[unsent])],
        _met(records, message), _routed(job, records),
        _repeats(records, columns, firsts) if job.staging.is_numbered else [],
        [] if job.for_everyone else _shares(job, records, placing, message),
        [] if job.for_everyone else list(placing.undecided(open_sends, names)),
        placing.unordered(firsts[placing.unplaced[firsts]]), list(placing.torn(names)),
    )  # fmt: skip


def _names(job: Job, columns: dict[str, Any], rows: Any) -> list[str]:
    """What notes call the messages of these rows."""
    places = pa.array(rows)
    if not job.staging.is_numbered:
        return list(columns["message_id"].take(places).to_pylist())
    number = columns["number"].take(places).cast(pa.string())
    return list(pc.binary_join_element_wise(columns["sender"].take(places), number, ":").to_pylist())


def _of_messages(records: Share, column: Any) -> Any:
    """The column, with null where a row is of no message."""
    if records.is_message.all():
        return column
    return pc.if_else(pa.array(records.is_message), column, pa.scalar(None, column.type))


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


def _destinations(job: Job, records: Share, placing: Placing, accepted: Any) -> Any:
    """Who each send is for: the sites that the log names, else everyone, else who consumes its domain."""
    sends = np.flatnonzero(records.is_send)
    choices: list[list[str] | None] = [None]
    choice = np.zeros(records.count, np.int64)
    explicit = records.column("destinations")
    named = bits(pc.is_valid(explicit))
    usual = sends[~named[sends] & ~placing.unplaced[sends]]
    if not job.for_everyone:
        held = accepted[usual].astype(np.int64)
        runs, groups = records.runs.codes[usual], placing.groups.codes[usual]
        places, found = grouped(runs, groups, placing.domain[usual], held)
        choice[usual] = places + len(choices)
        for run, group, domain, is_held in found:
            choices.append(sorted(placing.readers_of(run, group, domain)) + [ACCEPTED] * is_held)
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
    lists = pa.array(choices, pa.list_(pa.string()))
    loose = sends[~named[sends] & placing.unplaced[sends]]
    if len(loose) and not job.for_everyone:
        choice[loose] = len(choices) + np.arange(len(loose))
        lists = pa.concat_arrays([lists, placing.destinations(loose, accepted)])
    return lists.take(pa.array(choice))


def _known(job: Job, run: str, destinations: list[str]) -> list[str]:
    consumers = job.readers[run].everyone()
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


def _met(records: Share, message: Any) -> list[str]:
    """The runs with a message that was both sent and delivered."""
    sent = np.zeros(int(message.max(initial=0)) + 1, bool)
    sent[message[records.is_send]] = True
    runs = np.unique(records.runs.codes[records.delivered() & sent[message]])
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


def _counted(records: Share, rows: Any) -> dict[str, int]:
    runs, counts = np.unique(records.runs.codes[rows], return_counts=True)
    return {
        records.runs.values[run]: count for run, count in zip(runs.tolist(), counts.tolist(), strict=True)
    }


def _shares(job: Job, records: Share, placing: Placing, message: Any) -> list[Shared]:
    """For each channel with several consumers: how many messages each two of these delivered both.

    Messages whose sends say who they are for are left out, and those without a domain that records tell.
    """
    own = records.delivered() & ~placing.unplaced
    if not own.any() or max(len(each.everyone()) for each in job.readers.values()) < 2:
        return []
    addressed = np.zeros(int(message.max()) + 1, bool)
    addressed[message[records.is_send & bits(pc.is_valid(records.column("destinations")))]] = True
    rows = np.flatnonzero(own & ~addressed[message])
    place, found = grouped(records.runs.codes[rows], placing.group[rows], placing.domain[rows])
    shares = list[Shared]()
    for at, (run, group, domain) in enumerate(found):
        sites = sorted(placing.readers_of(run, group, domain))[:MOST_COMPARED]
        if len(sites) > 1:
            channel = records.runs.values[run], placing.groups.value(group), placing.names.value(domain)
            shares.append(_shared(records, rows[place == at], message, channel, sites))
    return shares


def _shared(records: Share, rows: Any, message: Any, channel: Channel, sites: list[str]) -> Shared:
    """What these deliveries of one channel say."""
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
