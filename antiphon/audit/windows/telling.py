"""Violations in the words of the checkers, from what the windows found."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from antiphon.audit.windows.window import Window
from antiphon.check import explain
from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import KINDS, Property

Array = Any


def overtaken(window: Window, delivery: int) -> Violation:
    """A delivery below a higher one of its sender before it."""
    site = window.log.sites[window.delivery_sites[delivery]]
    _, step, message = window.delivered(delivery)
    higher = MessageId(message.sender, int(window.above[0][delivery]))
    higher_step = int(window.above[1][delivery])
    story = explain.fifo(site, higher, higher_step, message, step)
    rows = (Witness(site, higher_step, *higher), Witness(site, step, *message))
    return Violation("fifo", window.context.run.run, site, *message, story, rows)


def missing(window: Window, site: int, first: int) -> Violation:
    """A message that a site present all through the run lacks; `first` is a delivery of it elsewhere."""
    name = window.log.sites[site]
    elsewhere = window.log.sites[window.delivery_sites[first]]
    _, step, identity = window.delivered(first)
    story = explain.missing(name, identity, elsewhere, step)
    rows = (Witness(elsewhere, step, *identity),)
    return Violation("atomicity", window.context.run.run, name, *identity, story, rows)


def early(
    name: Property,
    run: str,
    site: Site,
    effect: tuple[MessageId, int],
    cause: tuple[MessageId, int],
    chain: Sequence[explain.Link],
) -> Violation:
    """A delivery before one of its causes; both are messages with their steps. `chain` may be empty."""
    story = explain.causal(site, *effect, *cause, chain) if chain else _far_apart(site, *effect, *cause)
    rows = [Witness(site, effect[1], *effect[0]), Witness(site, cause[1], *cause[0])]
    for link in chain:
        rows += [
            Witness(link.site, link.before_step, *link.before),
            Witness(link.site, link.after_step, *link.after),
        ]
    return Violation(name, run, site, *effect[0], story, tuple(dict.fromkeys(rows)))


def _far_apart(site: Site, effect: MessageId, effect_step: int, cause: MessageId, cause_step: int) -> str:
    return (
        f"Let {site} deliver {effect} (step {effect_step}). Because {cause} precedes {effect}, by a chain "
        "of sends and deliveries that is too long to be shown, "
        f"{site} delivers {cause} first or not at all. "
        f"But {site} delivers {cause} only afterwards (step {cause_step}): a contradiction."
    )


def entangled(
    run: str, arcs: Sequence[explain.Arc], least: MessageId, size: int, *, closed: bool
) -> Violation:
    """A knot of messages, shown by a cycle of arcs; or by one arc that a long path closes."""
    rows = [
        row
        for arc in arcs
        for row in (
            Witness(arc.site, arc.first_step, *arc.first),
            Witness(arc.site, arc.second_step, *arc.second),
        )
    ]
    story = explain.total(arcs, size) if closed else _long_way_round(arcs[0], size)
    return Violation("total", run, None, *least, story, tuple(dict.fromkeys(rows)), size)


def _long_way_round(arc: explain.Arc, size: int) -> str:
    return (
        f"Let all sites deliver in one order. Because {arc.site} delivers {arc.first} (step "
        f"{arc.first_step}) before {arc.second} (step {arc.second_step}), and a path of consecutive "
        f"deliveries, too long to be shown, leads from {arc.second} to {arc.first}, {arc.first} comes before "
        f"itself in that order. But no message comes before itself: a contradiction. {size} messages are "
        "entangled in this way."
    )


def links(window: Window, found: Sequence[tuple[int, int]]) -> list[explain.Link]:
    """A chain of entries, each with the message that its site sent after it."""
    log, chain = window.log, []
    for entry, after in found:
        site, step = log.place(entry)
        verb = explain.VERBS[KINDS[log.kinds[entry]]]
        before = log.message_id(int(log.messages[entry]))
        sent_step = log.place(int(log.send_entry[after]))[1]
        chain.append(explain.Link(site, verb, before, step, log.message_id(after), sent_step))
    return chain


def chosen(places: Array, limit: int | None) -> list[int]:
    """The first of the places found, as many as may be explained."""
    return [int(place) for place in (places if limit is None else places[:limit])]


def name_ranks(sites: Sequence[Site]) -> Array:
    return np.argsort(np.argsort(np.array(sites, dtype=object), kind="stable"))
