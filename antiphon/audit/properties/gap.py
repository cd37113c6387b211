"""Gaps: numbers that a site lacks between those that it delivered. Few runs ask for it, so arrays suffice."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from antiphon.audit.case import Array, Case, Finding
from antiphon.check import explain
from antiphon.check.verdict import Violation


class Gap(NamedTuple):
    """Numbers that a spell lacks, and where it delivers the sender's least and greatest number."""

    sender: int
    first: int
    missing: int
    lower: int
    upper: int


def judge_gap(case: Case) -> Finding:
    count = 0
    explained: list[Violation] = []
    for site in np.flatnonzero(~case.holed[: case.log.logged]).tolist():
        found: dict[tuple[int, int], Gap] = {}
        for gap in _gaps(case, site):
            found.setdefault((gap.sender, gap.first), gap)
        count += len(found)
        ordered = [found[key] for key in sorted(found)]
        explained += [_violation(case, gap) for gap in ordered[: case.room("gap", len(explained))]]
    return count, explained


def _gaps(case: Case, site: int) -> Iterator[Gap]:
    log = case.log
    accounted = log.send_entry >= 0
    accounted[log.delivered[log.delivery_starts[site] : log.delivery_starts[site + 1]]] = True
    known = np.flatnonzero(accounted)
    senders = np.searchsorted(log.sender_starts, known, "right") - 1
    begins, ends = _numbers(case, known, senders)
    open_after = np.flatnonzero((senders[1:] == senders[:-1]) & (begins[1:] > ends[:-1]))
    for spell in case.spells(site) if len(open_after) else ():
        bounds = _bounds(case, *spell)
        for index in open_after.tolist():
            sender = int(senders[index])
            lower, upper = bounds.get(sender, (-1, -1))
            if (
                lower >= 0
                and log.delivered[lower] <= known[index]
                and known[index + 1] <= log.delivered[upper]
            ):
                first = int(ends[index])
                yield Gap(sender, first, int(begins[index + 1]) - first, lower, upper)


def _numbers(case: Case, messages: Array, senders: Array) -> tuple[Array, Array]:
    """The number of each message or batch, and the number after it."""
    log = case.log
    if len(log.numbers):
        numbers = log.numbers[messages]
    else:
        numbers = messages - log.sender_starts[senders] + log.first_numbers[senders]
    return numbers, numbers + (log.weights[messages] if len(log.weights) else 1)


def _bounds(case: Case, begin: int, end: int) -> dict[int, tuple[int, int]]:
    """For each sender, where a spell first delivers its least and its greatest number."""
    log = case.log
    messages, first = np.unique(log.delivered[begin:end], return_index=True)
    senders = np.searchsorted(log.sender_starts, messages, "right") - 1
    edges = np.flatnonzero(np.diff(senders, prepend=-1, append=-1))
    return {
        int(senders[low]): (begin + int(first[low]), begin + int(first[high - 1]))
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    }


def _violation(case: Case, gap: Gap) -> Violation:
    (site, lower_step), (_, upper_step) = map(case.delivered_at, (gap.lower, gap.upper))
    lower, upper = map(case.message_at, (gap.lower, gap.upper))
    story = explain.gap(site, lower, lower_step, upper, upper_step, gap.first, gap.missing)
    rows = (case.witness(gap.lower), case.witness(gap.upper))
    return Violation("gap", case.log.run.run, site, lower.sender, gap.first, story, rows)
