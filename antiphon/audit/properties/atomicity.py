"""Atomicity: at sites present for the whole run, and within the spells of others."""

from collections.abc import Iterator

import numpy as np

from antiphon.audit.case import Array, Case, Finding
from antiphon.audit.kernels import atomicity
from antiphon.check import explain
from antiphon.check.verdict import Violation, Witness

Lacking = Iterator[tuple[int, tuple[int, int]]]
"""Missing messages, each with two deliveries of the spell that lacks it."""


def judge_atomicity(case: Case) -> Finding:
    log = case.log
    count, found = case.search(
        "atomicity",
        lambda found: atomicity.find_missing(
            log.delivered,
            log.delivery_starts,
            case.first,
            log.destination_set,
            log.sets,
            case.absent | case.holed,
            found,
        ),
        lambda found: log.weigh(found[:, 1]),
    )
    explained = [_missing(case, site, message) for site, message, *_ in found.tolist()]
    for site in np.flatnonzero(case.absent & ~case.holed).tolist():
        lacking = _lacking_in_order(case, site) if case.in_order else _lacking_in_numbers(case, site)
        by_message: dict[int, tuple[int, int]] = {}
        for message, ends in lacking:
            by_message.setdefault(message, ends)
        count += log.weigh(np.array(list(by_message), np.int64))
        room = case.room("atomicity", len(explained))
        explained += [_missing_in_spell(case, site, *item) for item in list(by_message.items())[:room]]
    return count, explained


def _missing(case: Case, site: int, message: int) -> Violation:
    log = case.log
    elsewhere, step = case.delivered_at(int(case.first[message]))
    name = log.message_id(message)
    story = explain.missing(log.sites[site], name, elsewhere, step)
    rows = (Witness(elsewhere, step, *name),)
    return Violation("atomicity", log.run.run, log.sites[site], *name, story, rows)


def _lacking_in_order(case: Case, site: int) -> Lacking:
    """By the run's order, between the first and the last delivery of a spell."""
    log, position = case.log, case.order.position
    placed = case.order.by_place()
    arcs: tuple[Array, Array] | None = None
    for places in (part for spell in case.spells(site) for part in _by_domain(case, *spell)):
        first, last = (log.delivered[_tied_with(case, places, end)] for end in (places[0], places[-1]))
        low, high = position[first].min(), position[last].max()
        candidates = atomicity.lacking_between(
            log.delivered[places], low, high, site, position, placed, log.destination_set, log.sets
        )
        if not len(candidates):
            continue
        arcs = arcs or case.order.arcs_by_place()
        kept = atomicity.on_paths(first, last, low, high, *arcs, position, candidates)
        for message in candidates[kept].tolist():
            yield message, (int(places[0]), int(places[-1]))


def _by_domain(case: Case, begin: int, end: int) -> list[Array]:
    """A spell's deliveries, domain by domain."""
    places = np.arange(begin, end)
    if not len(case.log.domains):
        return [places]
    domain = case.log.domains[case.log.delivered[places]]
    return [places[domain == each] for each in np.unique(domain)]


def _tied_with(case: Case, places: Array, end: int) -> Array:
    """Those of these deliveries that share the step of one."""
    if not len(case.log.groups):
        return places[places == end]
    groups = case.log.groups[case.log.delivery_entries[places]]
    return places[groups == case.log.groups[case.log.delivery_entries[end]]]


def _lacking_in_numbers(case: Case, site: int) -> Lacking:
    """By senders' numbers, between a lower and a higher one that a spell holds."""
    log = case.log
    part_of, parts = _parts(case)
    for begin, end in case.spells(site):
        for message, lower, upper in atomicity.lacking_in_numbers(
            log.delivered, begin, end, site, part_of, parts, case.first, log.destination_set, log.sets
        ):
            yield message, (lower, upper)


def _parts(case: Case) -> tuple[Array, int]:
    """The part of each message: its sender, and its domain where there are any; and how many there are."""
    log = case.log
    senders = np.repeat(np.arange(len(log.senders), dtype=np.int64), np.diff(log.sender_starts))
    if not len(log.domains):
        return senders, len(log.senders)
    width = int(log.domains.max(initial=0)) + 1
    return senders * width + log.domains, len(log.senders) * width


def _missing_in_spell(case: Case, site: int, message: int, ends: tuple[int, int]) -> Violation:
    log = case.log
    describe = explain.missing_in_order if case.in_order else explain.missing_in_numbers
    elsewhere, elsewhere_step = case.delivered_at(int(case.first[message]))
    one, other = map(case.message_at, ends)
    one_step, other_step = (case.delivered_at(place)[1] for place in ends)
    name = log.message_id(message)
    story = describe(log.sites[site], name, one, one_step, other, other_step, elsewhere, elsewhere_step)
    rows = (*map(case.witness, ends), Witness(elsewhere, elsewhere_step, *name))
    return Violation("atomicity", log.run.run, log.sites[site], *name, story, rows)
