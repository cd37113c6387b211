"""Puts the pieces of an import together: each site's steps, each sender's numbers, who consumes what.

All of this is small, but for logs that a column orders: then the places of one site's records are sorted at
once, which takes 30 bytes for each of them.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from antiphon.trace.adapters.notes import LEAST_STRANGERS
from antiphon.trace.bulk.domains import Reading
from antiphon.trace.bulk.staging import Staging, Summary
from antiphon.trace.schema import ACCEPTED

STEPS: Final = "steps.npy"
NUMBERS: Final = "numbers.npy"
Channel = tuple[str, str | None, str | None]
"""A run, a group and a domain; none stands for the messages that have none."""


class Shared(msgspec.Struct, frozen=True):
    """For each two of a channel's sites how many messages of a share both delivered, row by row."""

    run: str
    group: str | None
    domain: str | None
    sites: list[str]
    both: list[int]


def place_sites(staging: Staging, summaries: Sequence[Summary]) -> None:
    """Write, for each piece and each of its sites, where its steps begin, and whether its log has holes."""
    holed = _holed(summaries)
    bases: defaultdict[tuple[str, str], int] = defaultdict(int)
    offset = 0
    for piece in summaries:
        starts = list[int]()
        for run, site, steps in piece.sites:
            starts.append(offset if staging.is_ordered else bases[run, site])
            bases[run, site] += steps
            offset += steps
        holes = [(run, site) in holed for run, site, _ in piece.sites]
        np.save(staging.folder / f"{piece.name}.starts.npy", np.array(starts, np.int64))
        np.save(staging.folder / f"{piece.name}.holes.npy", np.array(holes, np.int64))
    if staging.is_ordered:
        _rank_steps(staging, summaries, offset)


def _holed(summaries: Iterable[Summary]) -> set[tuple[str, str]]:
    """The sites of files that have lines which may have been records."""
    files = {piece.file for piece in summaries if piece.hiding}
    return {(run, site) for piece in summaries if piece.file in files for run, site, _ in piece.sites}


def _rank_steps(staging: Staging, summaries: Sequence[Summary], count: int) -> None:
    """For each distinct place of each site in each piece, its rank among all places of the site."""
    parts: defaultdict[tuple[str, str], list[tuple[int, Any]]] = defaultdict(list)
    offset = 0
    for piece in summaries:
        orders = np.load(staging.folder / f"{piece.name}.orders.npy", mmap_mode="r")
        begin = 0
        for run, site, steps in piece.sites:
            parts[run, site].append((offset + begin, orders[begin : begin + steps]))
            begin += steps
        offset += begin
    found = _new_file(staging, STEPS, count)
    for pieces in parts.values():
        _, ranks = np.unique(np.concatenate([orders for _, orders in pieces]), return_inverse=True)
        _scatter(found, [(begin, len(orders)) for begin, orders in pieces], ranks)
    found.flush()


def _new_file(staging: Staging, name: str, count: int) -> Any:
    return np.lib.format.open_memmap(staging.folder / name, mode="w+", dtype=np.int64, shape=(max(count, 1),))


def _scatter(found: Any, spans: Iterable[tuple[int, int]], values: Any) -> None:
    place = 0
    for begin, count in spans:
        found[begin : begin + count] = values[place : place + count]
        place += count


def slot_offsets(summaries: Iterable[Summary]) -> list[int]:
    """Where the sends of each piece begin among all sends."""
    found, offset = list[int](), 0
    for piece in summaries:
        found.append(offset)
        offset += sum(count for _, _, count in piece.senders)
    return found


def number_sends(staging: Staging, summaries: Sequence[Summary], repeated: Any) -> dict[str, int]:
    """Write each send's place among its sender's sends; `repeated` names those that repeat an earlier one.

    The answer has for each run how many sends share their place with an earlier one of their sender.
    """
    spans: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    place = 0
    for piece in summaries:
        for run, sender, count in piece.senders:
            spans[run, sender].append((place, count))
            place += count
    kept = np.ones(max(place, 1), bool)
    kept[repeated] = False
    orders = _send_orders(staging, summaries) if staging.is_ordered else None
    numbers = _new_file(staging, NUMBERS, place)
    ties: defaultdict[str, int] = defaultdict(int)
    for (run, _), own in spans.items():
        mine = np.concatenate([kept[begin : begin + count] for begin, count in own])
        if orders is None:
            found = np.cumsum(mine) - 1
        else:
            order = np.concatenate([orders[begin : begin + count] for begin, count in own])
            rows = np.flatnonzero(mine)
            rows = rows[np.argsort(order[rows], kind="stable")]
            found = np.zeros(len(mine), np.int64)
            found[rows] = np.arange(len(rows))
            ties[run] += int((np.diff(order[rows]) == 0).sum())
        _scatter(numbers, own, found)
    numbers.flush()
    return dict(ties)


def _send_orders(staging: Staging, summaries: Iterable[Summary]) -> Any:
    orders = [np.load(staging.folder / f"{piece.name}.sends.npy", mmap_mode="r") for piece in summaries]
    return np.concatenate([np.zeros(0, np.int64), *orders])


def read_alone(summaries: Iterable[Summary]) -> Iterator[Reading]:
    """What deliveries show of their sites where each names its message's domain, or none does."""
    for piece in summaries:
        for each in piece.combinations:
            if each.kind == "deliver" and each.site != ACCEPTED:
                yield Reading(each.run, None, each.domain, False, each.site, each.count)


def names_domains(summaries: Iterable[Summary]) -> bool:
    """Whether a record names a domain."""
    return any(each.domain is not None for piece in summaries for each in piece.combinations)


def naming_sites(summaries: Iterable[Summary]) -> frozenset[tuple[str, str]]:
    """The runs and sites that name the domains of what they deliver."""
    return frozenset(
        (each.run, each.site)
        for piece in summaries
        for each in piece.combinations
        if each.kind == "deliver" and each.domain is not None
    )


def clocks_set_back(summaries: Iterable[Summary]) -> dict[int, int]:
    """For each file how many records have an earlier time than the one before of their site."""
    last: dict[tuple[int, str], int] = {}
    found: defaultdict[int, int] = defaultdict(int)
    for piece in summaries:
        for clock in piece.clocks:
            key = piece.file, clock.site
            found[piece.file] += clock.back + (last.get(key, clock.first) > clock.first)
            last[key] = clock.last
    return {file: count for file, count in sorted(found.items()) if count}


def first_lines(summaries: Iterable[Summary]) -> Iterator[tuple[Summary, int]]:
    """Each piece, and how many lines of its file come before it."""
    lines: defaultdict[int, int] = defaultdict(int)
    for piece in summaries:
        yield piece, lines[piece.file]
        lines[piece.file] += piece.lines


def unreached(summaries: Iterable[Summary]) -> dict[str, list[tuple[str, int, int]]]:
    """By run, each domain that numbers its messages and was delivered of before the first known send: its
    first number that was sent, and the first that was delivered."""
    first: dict[tuple[str, str, str], int] = {}
    for piece in summaries:
        for each in piece.combinations:
            if each.domain is not None and each.least is not None and each.site != ACCEPTED:
                key = each.run, each.domain, each.kind
                first[key] = min(first.get(key, each.least), each.least)
    found: defaultdict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for run, domain, kind in sorted(first):
        sent, delivered = first.get((run, domain, "send")), first[run, domain, kind]
        if kind == "deliver" and sent is not None and delivered < sent:
            found[run].append((domain, sent, delivered))
    return dict(found)


def strangers(summaries: Iterable[Summary], met: Collection[str]) -> set[str]:
    """The runs with sends and deliveries of which no message has both; `met` names those where one has."""
    counts: Counter[tuple[str, str]] = Counter()
    for piece in summaries:
        for each in piece.combinations:
            if each.site != ACCEPTED:
                counts[each.run, each.kind] += each.count
    runs = {run for run, _ in counts if run not in met}
    return {run for run in runs if min(counts[run, "send"], counts[run, "deliver"]) >= LEAST_STRANGERS}


def sum_shares(shares: Iterable[Shared]) -> dict[Channel, tuple[list[str], Any]]:
    """For each channel its sites, and for each two of them how many messages both delivered."""
    sums: dict[Channel, tuple[list[str], Any]] = {}
    for each in shares:
        both = np.array(each.both, np.int64).reshape(len(each.sites), -1)
        known = sums.get((each.run, each.group, each.domain))
        sums[each.run, each.group, each.domain] = each.sites, both if known is None else known[1] + both
    return sums
