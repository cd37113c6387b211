"""One run's segments as flat arrays, ready for the kernels.

The segments may arrive in any order and from any files. Each site's parts are laid end to end by step; where
they overlap they are sorted, and rows of one step are laid out as `TIE_PHASES` says. A delivery takes 13
bytes: its entry (kind and message) and its place among the deliveries.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from antiphon.audit.kernels import identity
from antiphon.audit.packing import NO_ADDRESS, SEND, Address, Column, Segment
from antiphon.check.evidence import Evidence
from antiphon.check.history import named_message
from antiphon.core.errors import InputError
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import KINDS
from antiphon.trace.sanity import LARGEST_NUMBER, copied_log, several_domains
from antiphon.trace.schema import TIE_PHASES, Run

MOST_ENTRIES: Final = (1 << 31) - 1
"""Entries and messages are indexed with 32 bits."""
HOLES_PER_ENTRY: Final = 4
HOLES_ALLOWED: Final = 4096
"""A sender's numbers are dense while the holes among them take at most a few times the entries' memory."""

FREE_BYTES: Final = 256 << 20
BYTES_PER_ROW: Final = 64 << 10
"""Memory that a run's arrays may take, whatever its rows claim to cover: a fixed part, and a part per row."""
ENTRY_BYTES: Final = 16
"""Memory of one entry in all arrays together."""
MESSAGE_SITE_BYTES: Final = 12
"""Memory of one message per site: its causal past, its clock and its reception there."""

FEWER: Final = 4
"""Batches are judged as wholes if that divides the number of messages by at least this."""

PHASES: Final = np.array([TIE_PHASES[kind] for kind in KINDS])
"""The phase of each kind's code among rows of one step."""

Array = Any


class Part(NamedTuple):
    """Some rows of one site; counts, addresses, domains and labels are empty where there are none."""

    first_step: int
    rows: int
    steps: Array | None
    kinds: Array
    senders: Array
    numbers: Array
    counts: Array
    addresses: Array
    domains: Array
    labels: Array


class Log(NamedTuple):
    """A run as arrays."""

    run: Run
    sites: list[Site]
    """Sites that logged a row first, in order of name; then sites that are only addressed."""
    senders: list[Site]
    sender_starts: Array
    """The messages of sender k are sender_starts[k] up to sender_starts[k + 1]."""
    first_numbers: Array
    numbers: Array
    """Each message's number, where numbers are sparse or name the first of a batch; else empty."""
    starts: Array
    kinds: Array
    messages: Array
    row_starts: Array
    """The first entry of each row, where rows cover several messages; else empty."""
    site_rows: Array
    delivered: Array
    delivery_entries: Array
    delivery_starts: Array
    send_entry: Array
    destination_set: Array
    sets: Array
    """Whether a site is in a set of destinations, by set and site."""
    steps: dict[int, Array]
    """The step of each row, for sites whose logs have holes or several rows of one step; elsewhere a row's
    index is its step."""
    groups: Array
    """Where several rows of the run share a step: for each entry the first entry of its step; else empty."""
    rows: Array
    """Where several rows of the run share a step: for each entry the first entry of its row; else empty."""
    weights: Array
    """The size of each batch, where batches are judged as wholes; else empty."""
    domains: Array
    """The domain of each message as a code, 0 for none; empty if no row names any."""
    labelled: Array
    """The messages that have a name in their own system, ascending."""
    labels: list[str]
    """Their names."""
    evidence: Evidence

    @property
    def logged(self) -> int:
        return len(self.starts) - 1

    @property
    def message_count(self) -> int:
        return len(self.send_entry)

    @property
    def sends(self) -> int:
        return self.weigh(self.messages[self.kinds == SEND])

    @property
    def deliveries(self) -> int:
        return self.weigh(self.delivered)

    def weigh(self, messages: Array) -> int:
        """The number of messages, each batch counted with its size."""
        return int(self.weights[messages].sum()) if len(self.weights) else len(messages)

    def message_id(self, message: int) -> MessageId:
        """A message's id; it shows the name in the message's own system, if it has one."""
        sender = int(np.searchsorted(self.sender_starts, message, "right")) - 1
        found = MessageId(self.senders[sender], self.number(message, sender))
        at = int(np.searchsorted(self.labelled, message))
        is_labelled = at < len(self.labelled) and self.labelled[at] == message
        return named_message(found, self.labels[at]) if is_labelled else found

    def number(self, message: int, sender: int) -> int:
        if len(self.numbers):
            return int(self.numbers[message])
        return int(message) - int(self.sender_starts[sender]) + int(self.first_numbers[sender])

    def place(self, entry: int) -> tuple[Site, int]:
        """An entry's site and step."""
        site = int(np.searchsorted(self.starts, entry, "right")) - 1
        row = entry - int(self.starts[site])
        if len(self.row_starts):
            row = int(np.searchsorted(self.row_starts, entry, "right")) - 1 - int(self.site_rows[site])
        return self.sites[site], int(self.steps[site][row] if site in self.steps else row)


class _Numbering(NamedTuple):
    """The messages' integers: `bases[sender]` plus a row's number is the integer of its first message."""

    sender_starts: Array
    bases: Array
    numbers: Array
    logs: list[list[Part]]


def build_log(run: Run, segments: Sequence[Segment], *, by_batch: bool = False) -> Log:
    """Lay out a run as arrays. InputError if its steps are wrong, or if it is too large.

    With `by_batch`, messages that every row covers together become one, if that makes them far fewer. A
    violation of one of them is then a violation of all. The batch is named by its first message, and
    `weights` has its size.
    """
    senders = sorted({name for segment in segments for name in segment.sender_names})
    addresses: dict[Address, int] = {}
    domains = {name for segment in segments for name in segment.domain_names}
    labels = {name for segment in segments for name in segment.labels}
    codes = _Codes(*(_numbered(names) for names in (senders, sorted(domains), sorted(labels))))
    parts = _parts(segments, codes, addresses)
    logged = sorted(parts)
    logs = [_joined(parts[site]) for site in logged]
    for site, joined in zip(logged, logs, strict=True):
        if _is_copied(joined[0]):
            raise copied_log(run.run, site)
    evidence = _evidence(logged, logs)
    weights, names = identity.empty(), identity.empty()
    if by_batch and any(len(part.counts) for log in logs for part in log):
        logs, weights, names = _by_batch(logs, len(senders))
    starts, least, greatest = _ranges(logs, len(senders))
    if starts[-1] > MOST_ENTRIES:
        raise InputError(f"Run {run.run} cannot be judged: it has more than {MOST_ENTRIES} events.")
    sites, members = _destinations(run, logged, list(addresses))
    rows = sum(part.rows for log in logs for part in log)
    spans = _spans(least, greatest)
    _require_affordable(run.run, rows, int(starts[-1]), spans, len(logged), len(sites) * len(members))
    numbering = _numbering(logs, least, greatest, int(starts[-1]))
    kinds, messages = _entries(numbering, int(starts[-1]))
    homes = _homes(logged, senders, numbering.sender_starts)
    send_entry, destination_set = _sendings(logs, kinds, messages, starts, homes)
    sets = _destination_sets(sites, members)
    row_starts, site_rows = _row_starts(logs)
    delivered, delivery_entries, delivery_starts = _deliveries(kinds, messages, starts)
    groups, row_of = _ties(logs, starts)
    log = Log(
        run=run,
        sites=sites,
        senders=senders,
        sender_starts=numbering.sender_starts,
        first_numbers=least,
        numbers=names if len(weights) else numbering.numbers,
        starts=starts,
        kinds=kinds,
        messages=messages,
        row_starts=row_starts,
        site_rows=site_rows,
        delivered=delivered,
        delivery_entries=delivery_entries,
        delivery_starts=delivery_starts,
        send_entry=send_entry,
        destination_set=destination_set,
        sets=sets,
        steps={site: log[0].steps for site, log in enumerate(logs) if log[0].steps is not None},
        groups=groups,
        rows=row_of,
        weights=weights,
        domains=identity.empty(),
        labelled=identity.empty(),
        labels=[],
        evidence=evidence,
    )
    return _with_texts(log, logs, sorted(domains), sorted(labels))


def _evidence(sites: list[Site], logs: list[list[Part]]) -> Evidence:
    kinds = np.zeros(len(KINDS), np.bool_)
    holes: list[tuple[Site, int]] = []
    for site, log in zip(sites, logs, strict=True):
        for part in log:
            kinds[part.kinds] = True
        if log[0].steps is not None and len(log[0].steps):
            steps = np.asarray(log[0].steps)
            jumps = np.flatnonzero(np.diff(steps) > 1)
            if steps[0] > 0:
                holes.append((site, 0))
            elif len(jumps):
                holes.append((site, int(steps[jumps[0]]) + 1))
    about_messages = [KINDS.index(kind) for kind in ("deliver", "stable", "discard")]
    return Evidence(bool(kinds.any()), bool(kinds[about_messages].any()), bool(kinds[SEND]), tuple(holes))


def _ties(logs: list[list[Part]], starts: Array) -> tuple[Array, Array]:
    """For each entry the first entry of its step and of its row; empty if no two rows share a step."""
    tied = [
        site
        for site, log in enumerate(logs)
        if log[0].steps is not None and (log[0].steps[1:] == log[0].steps[:-1]).any()
    ]
    if not tied:
        return identity.empty(), identity.empty()
    groups, rows = np.arange(starts[-1]), np.arange(starts[-1])
    for site in tied:
        part, own = logs[site][0], slice(starts[site], starts[site + 1])
        counts, steps = _counts_of(part), np.asarray(part.steps)
        begins = starts[site] + np.cumsum(counts) - counts
        rows[own] = np.repeat(begins, counts)
        groups[own] = np.repeat(begins[np.searchsorted(steps, steps)], counts)
    return groups, rows


def _with_texts(log: Log, logs: list[list[Part]], domains: list[str], labels: list[str]) -> Log:
    """The log with each message's domain, and with the names that messages have in their own system."""
    if domains:
        messages, codes = _coded(log, logs, [part.domains for parts in logs for part in parts])
        by_message = np.zeros(log.message_count, np.int64)
        by_message[messages] = codes
        other = np.flatnonzero(by_message[messages] != codes)
        if len(other):
            message = int(messages[other[0]])
            one, two = domains[by_message[message] - 1], domains[int(codes[other[0]]) - 1]
            raise several_domains(log.run.run, log.message_id(message), one, two)
        log = log._replace(domains=by_message)
    if labels:
        messages, codes = _coded(log, logs, [part.labels for parts in logs for part in parts])
        order = np.lexsort((codes, messages))
        named, first = np.unique(messages[order], return_index=True)
        names = [labels[code - 1] for code in codes[order][first].tolist()]
        log = log._replace(labelled=named, labels=names)
    return log


def _coded(log: Log, logs: list[list[Part]], by_part: list[Array]) -> tuple[Array, Array]:
    """The messages of all rows with a code, and those codes."""
    parts = [part for parts in logs for part in parts]
    codes = [
        np.repeat(codes if len(codes) else np.zeros(part.rows, np.int64), _counts_of(part))
        for part, codes in zip(parts, by_part, strict=True)
    ]
    by_entry = np.concatenate([identity.empty(), *codes])
    entries = np.flatnonzero((by_entry > 0) & (log.messages >= 0))
    return log.messages[entries], by_entry[entries]


class _Codes(NamedTuple):
    """The run's own codes for names."""

    senders: dict[str, int]
    domains: dict[str, int]
    labels: dict[str, int]


def _numbered(names: Sequence[str]) -> dict[str, int]:
    return {name: code for code, name in enumerate(names)}


def _by_batch(logs: list[list[Part]], senders: int) -> tuple[list[list[Part]], Array, Array]:
    """Number the batches that no row divides, instead of messages; and each one's size and first number."""
    rows = [(part, part.kinds > 1) for log in logs for part in log]
    about = np.concatenate([part.senders[named] for part, named in rows])
    begins = np.concatenate([part.numbers[named].astype(np.int64) for part, named in rows])
    sizes = np.concatenate([_counts_of(part)[named] for part, named in rows])
    if not senders or (begins > LARGEST_NUMBER - sizes).any():
        return logs, identity.empty(), identity.empty()  # the end of such a batch does not fit 64 bits
    edges = [
        np.unique(np.concatenate([begins[mine], begins[mine] + sizes[mine]])) for mine in _of(about, senders)
    ]
    if FEWER * sum(map(len, edges)) > int(sizes.sum()):
        return logs, identity.empty(), identity.empty()
    numbered = [[_numbered_by_batch(part, edges) for part in log] for log in logs]
    sizes = np.concatenate([np.diff(found) for found in edges])
    return numbered, sizes, np.concatenate([found[:-1] for found in edges])


def _of(about: Array, senders: int) -> Iterator[Array]:
    return (about == sender for sender in range(senders))


def _numbered_by_batch(part: Part, edges: list[Array]) -> Part:
    numbers, counts = np.zeros(part.rows, np.int64), np.ones(part.rows, np.int64)
    sizes = _counts_of(part)
    for sender, found in enumerate(edges):
        rows = np.flatnonzero((part.senders == sender) & (part.kinds > 1))
        begins = part.numbers[rows].astype(np.int64)
        numbers[rows] = np.searchsorted(found, begins)
        counts[rows] = np.searchsorted(found, begins + sizes[rows]) - numbers[rows]
    return part._replace(numbers=numbers, counts=counts)


def _require_affordable(
    run: str, rows: int, entries: int, spans: list[int], sites: int, addressed: int
) -> None:
    """Refuse a run that needs too much memory, before any is allocated: few bytes may claim billions."""
    messages = sum(spans) if _are_dense(spans, entries) else entries
    needed = ENTRY_BYTES * entries + MESSAGE_SITE_BYTES * messages * sites + addressed
    most = FREE_BYTES + BYTES_PER_ROW * rows
    if needed > most:
        raise InputError(
            f"Run {run} cannot be judged: its {entries:,} events at {sites:,} sites would take "
            f"{needed >> 20:,} MB, and a run of {rows:,} rows is given {most >> 20:,} MB at most."
        )


def _spans(least: Array, greatest: Array) -> list[int]:
    """The extent of each sender's numbers, as Python integers: hostile ones do not fit 64 bits."""
    return [max(high - low + 1, 0) for low, high in zip(least.tolist(), greatest.tolist(), strict=True)]


def _are_dense(spans: list[int], entries: int) -> bool:
    return sum(spans) <= min(HOLES_PER_ENTRY * entries + HOLES_ALLOWED, MOST_ENTRIES)


def _numbering(logs: list[list[Part]], least: Array, greatest: Array, entries: int) -> _Numbering:
    """One integer per number while the numbers are dense, else one per number that occurs."""
    spans = _spans(least, greatest)
    if not _are_dense(spans, entries):
        return _numbered_sparsely(logs, len(spans))
    sender_starts = np.cumsum([0, *spans], dtype=np.int64)
    bases = sender_starts[:-1] - np.where(greatest >= 0, least, 0)
    return _Numbering(sender_starts, bases, identity.empty(), logs)


def _entries(numbering: _Numbering, count: int) -> tuple[Array, Array]:
    kinds, messages = np.empty(count, np.uint8), np.empty(count, np.int32)
    entry = 0
    for log in numbering.logs:
        for part in log:
            numbers, counts = part.numbers.astype(np.int64), part.counts.astype(np.int64)
            entry = identity.expand_rows(
                part.senders, numbers, counts, part.kinds, numbering.bases, kinds, messages, entry
            )
    return kinds, messages


def _homes(sites: list[Site], senders: list[Site], sender_starts: Array) -> Array:
    """For each message the site of its sender, or -1 if the sender logged nothing."""
    place = {site: index for index, site in enumerate(sites)}
    homes = np.array([place.get(sender, -1) for sender in senders], np.int32)
    return np.repeat(homes, np.diff(sender_starts))


def _sendings(
    logs: list[list[Part]], kinds: Array, messages: Array, starts: Array, homes: Array
) -> tuple[Array, Array]:
    """The entry of each message's send and the code of its address; -1 for unsent messages."""
    sends = np.flatnonzero(kinds == SEND)
    send_entry = np.full(len(homes), -1, np.int64)
    identity.find_sends(kinds, messages, starts, homes, send_entry)
    destination_set = np.full(len(homes), -1, np.int32)
    counting = kinds[sends] == SEND
    destination_set[messages[sends[counting]]] = _code_per_send(logs)[counting]
    return send_entry, destination_set


def _parts(
    segments: Sequence[Segment], run_codes: _Codes, addresses: dict[Address, int]
) -> dict[Site, list[Part]]:
    """Each site's parts, with senders and addresses in the run's own codes."""
    addresses[NO_ADDRESS] = 0
    parts: dict[Site, list[Part]] = {}
    for segment in segments:
        # Copies: numba would compile once more for arrays that cannot be written.
        kinds, numbers = segment.kinds.array().copy(), segment.numbers.array()
        steps = None if segment.steps is None else segment.steps.array()
        counts = identity.empty() if segment.counts is None else segment.counts.array()
        to_run = np.array([run_codes.senders[name] for name in segment.sender_names] or [0], np.int32)
        domains = _recoded(segment.domains, segment.domain_names, run_codes.domains)
        labels = _recoded(segment.label_codes, segment.labels, run_codes.labels)
        sender_codes = segment.senders.array()
        to_address = np.array([addresses.setdefault(key, len(addresses)) for key in segment.addresses])
        codes = None if segment.address_codes is None else to_address[segment.address_codes.array()]
        begin, sent = 0, 0
        for part in segment.parts:
            rows = slice(begin, begin + part.rows)
            sends = 0 if codes is None else int(np.count_nonzero(kinds[rows] == SEND))
            parts.setdefault(part.site, []).append(
                Part(
                    part.first_step,
                    part.rows,
                    None if steps is None else steps[rows],
                    kinds[rows],
                    to_run[sender_codes[rows]],
                    numbers[rows],
                    counts[rows],
                    identity.empty() if codes is None else codes[sent : sent + sends],
                    domains[rows],
                    labels[rows],
                )
            )
            begin, sent = begin + part.rows, sent + sends
    return parts


def _recoded(column: Column | None, names: list[str], run_codes: dict[str, int]) -> Array:
    """A segment's codes as the run's, counted from 1; 0 stays 0."""
    if column is None:
        return identity.empty()
    return np.array([0, *(run_codes[name] + 1 for name in names)], np.int64)[column.array()]


def _joined(parts: list[Part]) -> list[Part]:
    """A site's parts in order of step; one part with its steps if they do not count up from 0."""
    parts.sort(key=lambda part: part.first_step)
    following = 0
    for part in parts:
        if part.first_step != following or part.steps is not None:
            return [_sorted(parts)]
        following += part.rows
    return parts


def _sorted(parts: list[Part]) -> Part:
    """All of a site's parts as one, when they overlap, have holes or rows of equal step."""
    steps = np.concatenate(
        [
            np.arange(part.first_step, part.first_step + part.rows) if part.steps is None else part.steps
            for part in parts
        ]
    )
    kinds = np.concatenate([part.kinds for part in parts])
    senders = np.concatenate([part.senders for part in parts])
    numbers = np.concatenate([part.numbers.astype(np.int64) for part in parts])
    counts = np.concatenate([_counts_of(part) for part in parts])
    order = np.argsort(steps, kind="stable")
    if (steps[order][1:] == steps[order][:-1]).any():
        order = np.lexsort((kinds, counts, numbers, senders, PHASES[kinds], steps))
    steps = steps[order]
    whole = bool((steps == np.arange(len(steps))).all())
    addresses = identity.empty()
    if any(len(part.addresses) for part in parts):
        by_row = np.zeros(len(kinds), np.int64)
        by_row[kinds == SEND] = np.concatenate([_codes_of(part) for part in parts])
        addresses = by_row[order][kinds[order] == SEND]
    return Part(
        0,
        len(order),
        None if whole else steps,
        kinds[order],
        senders[order],
        numbers[order],
        counts[order] if any(len(part.counts) for part in parts) else identity.empty(),
        addresses,
        _texts_of(parts, [part.domains for part in parts], order),
        _texts_of(parts, [part.labels for part in parts], order),
    )


def _is_copied(part: Part) -> bool:
    """Whether each row of a site's log is there twice. Rows of a single step may well be alike."""
    if part.steps is None or part.rows % 2 or part.steps[0] == part.steps[-1]:
        return False
    columns = (part.steps, part.kinds, part.senders, part.numbers, _counts_of(part))
    return all(bool((column[::2] == column[1::2]).all()) for column in columns)


def _texts_of(parts: list[Part], codes: list[Array], order: Array) -> Array:
    """The codes of all parts' rows in another order; empty if there are none."""
    if not any(len(each) for each in codes):
        return identity.empty()
    filled = [
        each if len(each) else np.zeros(part.rows, np.int64) for part, each in zip(parts, codes, strict=True)
    ]
    return np.concatenate(filled)[order]


def _counts_of(part: Part) -> Array:
    return part.counts.astype(np.int64) if len(part.counts) else np.ones(part.rows, np.int64)


def _codes_of(part: Part) -> Array:
    """The address of each send row; 0 where no row names any."""
    if len(part.addresses):
        return part.addresses
    return np.zeros(int(np.count_nonzero(part.kinds == SEND)), np.int64)


def _ranges(logs: list[list[Part]], senders: int) -> tuple[Array, Array, Array]:
    """Where each site's entries begin, and each sender's least and greatest number."""
    least = np.full(senders, np.iinfo(np.int64).max)
    greatest = np.full(senders, -1)
    starts = [0]
    for log in logs:
        size = 0
        for part in log:
            numbers, counts = part.numbers.astype(np.int64), part.counts.astype(np.int64)
            size += identity.note_numbers(part.senders, numbers, counts, part.kinds, least, greatest)
        starts.append(starts[-1] + size)
    return np.array(starts, np.int64), least, greatest


def _numbered_sparsely(logs: list[list[Part]], senders: int) -> _Numbering:
    """Replace each number by its rank among the sender's numbers that occur."""
    used: list[list[Array]] = [[] for _ in range(senders)]
    for log in logs:
        for part in log:
            about, numbers = _expanded(part)
            for sender in np.unique(about).tolist():
                used[sender].append(np.unique(numbers[about == sender]))
    found = [np.unique(np.concatenate(values)) if values else identity.empty() for values in used]
    starts = np.concatenate([[0], np.cumsum([len(values) for values in found])]).astype(np.int64)
    logs = [[part._replace(numbers=_ranked(part, found)) for part in log] for log in logs]
    return _Numbering(starts, starts[:-1], np.concatenate([identity.empty(), *found]), logs)


def _expanded(part: Part) -> tuple[Array, Array]:
    rows = np.flatnonzero(part.kinds > 1)
    counts = _counts_of(part)[rows]
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    numbers = np.repeat(part.numbers[rows].astype(np.int64), counts) + offsets
    return np.repeat(part.senders[rows], counts), numbers


def _ranked(part: Part, found: list[Array]) -> Array:
    """Each row's number as a rank; the messages of one row have consecutive ranks, since all occur."""
    ranks = np.zeros(part.rows, np.int64)
    for sender, values in enumerate(found):
        rows = (part.senders == sender) & (part.kinds > 1)
        ranks[rows] = np.searchsorted(values, part.numbers[rows])
    return ranks


def _row_starts(logs: list[list[Part]]) -> tuple[Array, Array]:
    """The first entry of each row and the first row of each site; empty if each row is one entry."""
    if not any(len(part.counts) for log in logs for part in log):
        return identity.empty(), identity.empty()
    counts = np.concatenate([_counts_of(part) for log in logs for part in log])
    rows = [sum(part.rows for part in log) for log in logs]
    return np.cumsum(counts) - counts, np.cumsum([0, *rows])


def _code_per_send(logs: list[list[Part]]) -> Array:
    """The address of each send entry; a batch's address is that of all its messages."""
    codes = [
        np.repeat(_codes_of(part), _counts_of(part)[part.kinds == SEND])
        if len(part.counts)
        else _codes_of(part)
        for log in logs
        for part in log
    ]
    return np.concatenate([identity.empty(), *codes]).astype(np.int32)


def _destinations(
    run: Run, logged: list[Site], addresses: list[Address]
) -> tuple[list[Site], list[Sequence[Site]]]:
    """All sites of the run, and for each address which of them it names."""
    groups = run.groups or {}
    members: list[Sequence[Site]] = []
    for group, listed in addresses:
        of_group = logged if group is None else groups.get(group, logged)
        members.append(of_group if listed is None else listed)
    named = {site for group in groups.values() for site in group}
    further = named.union(*members).difference(logged)
    return logged + sorted(further), members


def _destination_sets(sites: list[Site], members: list[Sequence[Site]]) -> Array:
    place = {site: index for index, site in enumerate(sites)}
    sets = np.zeros((len(members), len(sites)), np.bool_)
    for code, names in enumerate(members):
        sets[code, [place[site] for site in names]] = True
    return sets


def _deliveries(kinds: Array, messages: Array, starts: Array) -> tuple[Array, Array, Array]:
    count = int(np.count_nonzero(kinds == KINDS.index("deliver")))
    delivered, entries = np.empty(count, np.int32), np.empty(count, np.int32)
    delivery_starts = np.empty(len(starts), np.int64)
    identity.collect_deliveries(kinds, messages, starts, delivered, entries, delivery_starts)
    return delivered, entries, delivery_starts
