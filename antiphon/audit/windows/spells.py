"""Spells of presence: what a site with absences lacks between a spell's first and last delivery.

A spell reaches over many windows. Each window tells where its part of a spell begins and ends; the driver
joins these, and then each window looks for its own messages that the whole spell should hold.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from antiphon.audit.kernels import deliveries as kernels
from antiphon.audit.windows.ordering import Order
from antiphon.audit.windows.window import Delivered, Window
from antiphon.check import explain
from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import MessageId, Site

Array = Any
Ends = tuple[int, int, int, int]
"""Of one sender: the least number and its step, the greatest number and its step."""


class Spell(NamedTuple):
    """What a site delivers between two absences, or a window's part of it."""

    site: Site
    turn: int
    first: Delivered
    last: Delivered
    senders: dict[Site, Ends]


class Bounds(NamedTuple):
    """By site, the places between which a message lies that is on a path from a spell's first to its last."""

    after: Array
    before: Array


def spells_of(window: Window) -> list[Spell]:
    """This window's parts of the spells of sites with absences."""
    return [
        _spell(window, site, spell, places)
        for site in np.flatnonzero(_watched(window)[: window.log.logged]).tolist()
        for spell, places in _by_spell(window, site)
    ]


def _watched(window: Window) -> Array:
    """The sites whose spells are summarised."""
    return ~window.case.holed if window.context.every_spell else window.absent & ~window.case.holed


def _steps(window: Window, site: int, places: Array) -> Array:
    """The steps of some deliveries of a site."""
    log = window.log
    entries = log.delivery_entries[places]
    if len(log.row_starts):
        rows = np.searchsorted(log.row_starts, entries, "right") - 1 - log.site_rows[site]
    else:
        rows = entries - log.starts[site]
    return log.steps[site][rows]


def _by_spell(window: Window, site: int) -> Iterator[tuple[int, Array]]:
    """Each spell that has deliveries here, with those deliveries."""
    places = np.arange(*window.log.delivery_starts[site : site + 2])
    if not len(places):
        return
    absences = window.context.cuts.absences[window.log.sites[site]]
    spells = np.searchsorted(absences, _steps(window, site, places))
    for spell in np.unique(spells).tolist():
        yield spell, places[spells == spell]


def _spell(window: Window, site: int, spell: int, places: Array) -> Spell:
    log = window.log
    messages = log.delivered[places]
    senders = np.searchsorted(log.sender_starts, messages, "right") - 1
    ends: dict[Site, Ends] = {}
    for sender in np.unique(senders).tolist():
        own = places[senders == sender]
        low, high = (int(own[pick(log.delivered[own])]) for pick in (np.argmin, np.argmax))
        least, greatest = window.delivered(low), window.delivered(high)
        ends[log.senders[sender]] = least.message.number, least.step, greatest.message.number, greatest.step
    first, last = window.delivered(int(places[0])), window.delivered(int(places[-1]))
    return Spell(log.sites[site], spell, first, last, ends)


def joined(parts: Iterable[Spell]) -> dict[tuple[Site, int], Spell]:
    """Whole spells from the windows' parts of them."""
    spells: dict[tuple[Site, int], Spell] = {}
    for part in parts:
        known = spells.get((part.site, part.turn))
        spells[part.site, part.turn] = part if known is None else _join(known, part)
    return dict(sorted(spells.items()))


def _join(one: Spell, other: Spell) -> Spell:
    senders = dict(one.senders)
    for name, ends in other.senders.items():
        known = senders.get(name, ends)
        senders[name] = (
            *min(known[:2], ends[:2], key=lambda end: end[0]),
            *max(known[2:], ends[2:], key=lambda end: end[0]),
        )
    first = min(one.first, other.first, key=lambda delivery: delivery.place)
    last = max(one.last, other.last, key=lambda delivery: delivery.place)
    return Spell(one.site, one.turn, first, last, senders)


def lacking_in_numbers(window: Window, spells: Iterable[Spell]) -> list[tuple[Spell, int]]:
    """Messages of this window that a spell lacks between two of their sender; each for its first spell."""
    log = window.log
    found: dict[tuple[Site, int], tuple[Spell, int]] = {}
    numbers = np.array([log.message_id(message).number for message in range(log.message_count)], np.int64)
    senders = np.repeat(np.arange(len(log.senders)), np.diff(log.sender_starts))
    for spell, lacks in _lacking(window, spells):
        ends = np.full((2, len(log.senders)), -1, np.int64)
        for code, name in enumerate(log.senders):
            if name in spell.senders:
                ends[:, code] = spell.senders[name][0], spell.senders[name][2]
        between = (ends[0][senders] < numbers) & (numbers < ends[1][senders]) & (ends[0][senders] >= 0)
        for message in np.flatnonzero(lacks & between).tolist():
            found.setdefault((spell.site, message), (spell, message))
    return list(found.values())


def lacking_in_order(
    window: Window, order: Order, bounded: Iterable[tuple[Spell, Bounds]]
) -> list[tuple[Spell, int]]:
    """Messages of this window that a spell lacks on a path from its first to its last delivery."""
    log = order.log
    found: dict[tuple[Site, int], tuple[Spell, int]] = {}
    bounds = {(spell.site, spell.turn): bound for spell, bound in bounded}
    for spell, lacks in _lacking(window, (spell for spell, _ in bounded)):
        bound = bounds[spell.site, spell.turn]
        after, before = np.zeros((2, log.message_count), np.bool_)
        after[log.delivered[order.places >= bound.after[order.sites]]] = True
        before[log.delivered[order.places <= bound.before[order.sites]]] = True
        for message in np.flatnonzero(lacks & after & before).tolist():
            found.setdefault((spell.site, message), (spell, message))
    return list(found.values())


def _lacking(window: Window, spells: Iterable[Spell]) -> Iterator[tuple[Spell, Array]]:
    """For each spell, which messages are addressed to its site and delivered, but not in the spell."""
    log = window.log
    delivered = kernels.first_deliveries(log.delivered, log.message_count) >= 0
    for spell in spells:
        site = log.sites.index(spell.site)
        lacks = delivered & (log.destination_set >= 0)
        lacks[lacks] = log.sets[log.destination_set[lacks], site]
        for turn, places in _by_spell(window, site):
            if turn == spell.turn:
                lacks[log.delivered[places]] = False
        yield spell, lacks


def violation(window: Window, spell: Spell, message: int, *, in_order: bool) -> Violation:
    log = window.log
    name = log.message_id(message)
    first = int(np.flatnonzero(log.delivered == message)[0])
    elsewhere, step = log.sites[window.delivery_sites[first]], window.delivered(first).step
    if in_order:
        ends = spell.first.message, spell.first.step, spell.last.message, spell.last.step
        story = explain.missing_in_order(spell.site, name, *ends, elsewhere, step)
    else:
        low, low_step, high, high_step = spell.senders[name.sender]
        ends = MessageId(name.sender, low), low_step, MessageId(name.sender, high), high_step
        story = explain.missing_in_numbers(spell.site, name, *ends, elsewhere, step)
    rows = (
        Witness(spell.site, ends[1], *ends[0]),
        Witness(spell.site, ends[3], *ends[2]),
        Witness(elsewhere, step, *name),
    )
    return Violation("atomicity", window.context.run.run, spell.site, *name, story, rows)
