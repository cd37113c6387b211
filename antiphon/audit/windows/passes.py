"""What is done with one window: each pass is a function of its rows and of what the driver says about it.

The first pass judges the window as if it were the whole run and sums up what the driver needs. The others run
only where fragments of different windows are interwoven.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from antiphon.audit.kernels import atomicity, deliveries
from antiphon.audit.properties.deliveries import judge_duplicate, judge_integrity
from antiphon.audit.properties.stability import too_early
from antiphon.audit.windows import flowing, spells, telling
from antiphon.audit.windows.flowing import Cause, Early, Fragments
from antiphon.audit.windows.ordering import Order, Reach, Spanned, Stretch
from antiphon.audit.windows.pairs import Shared, shared_stretches
from antiphon.audit.windows.spells import Bounds, Spell
from antiphon.audit.windows.window import Context, Window
from antiphon.check import explain
from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import Property

Array = Any
Found = tuple[int, list[Violation]]
NONE: Found = (0, [])
CAUSAL: Final[tuple[Property, ...]] = ("causal", "causal-receipt")


def declaring(context: Context) -> list[Property]:
    """The properties to judge that ask whether a row came before receptions elsewhere."""
    judged: list[Property] = ["stability"] if context.cuts.declares else []
    return [name for name in (*judged, "safe") if name in context.limits]


class Summary(NamedTuple):
    """The first pass over a window."""

    entries: int
    sends: int
    """Messages sent; those of a repeated send row count once."""
    settled: dict[Property, Found]
    """Properties that speak of one message at a time, and fifo: final."""
    alone: dict[Property, Found]
    """Causal and total order, stability and safe delivery, as if there were no other window."""
    fragments: Fragments
    causal: dict[Property, tuple[Array, Array]]
    """For causal order and causal order by receipt, by fragment: what is known at its end from within the
    window; least positions of what it delivers."""
    received: Array
    """By fragment: what is known at its end where receptions carry knowledge on."""
    stretches: list[Stretch]
    pairs: list[Shared]
    spells: list[Spell]


def summarize(window: Window) -> Summary:
    """Judge a window by itself, and sum up its fragments."""
    limits = window.context.limits
    settled: dict[Property, Found] = {
        name: judge(window) for name, judge in _SETTLED.items() if name in limits
    }
    order = Order(window)
    alone: dict[Property, Found] = {}
    if "total" in limits or "atomicity" in limits:
        alone["total"] = order.knots()
    causal: dict[Property, tuple[Array, Array]] = {}
    for name in CAUSAL:
        if name in limits:
            alone[name], causal[name] = _causal_alone(window, name)
    received = np.empty((0, 0), np.int64)
    for name in declaring(window.context):
        alone[name], received = _declared_alone(window, name)
    return Summary(
        len(window.log.kinds),
        window.log.sends,
        settled,
        alone,
        flowing.fragments(window),
        causal,
        received,
        order.stretches(),
        shared_stretches(order) if "pairwise" in limits else [],
        spells.spells_of(window) if "atomicity" in limits else [],
    )


def _integrity(window: Window) -> Found:
    return judge_integrity(window.case)


def _duplicate(window: Window) -> Found:
    return judge_duplicate(window.case)


def _fifo(window: Window) -> Found:
    log = window.log
    numbers = _numbers(window)[log.delivered]
    found = np.flatnonzero(window.firsts & (numbers < window.above[0]))
    chosen = telling.chosen(found, window.context.limits["fifo"])
    return len(found), [telling.overtaken(window, delivery) for delivery in chosen]


def _numbers(window: Window) -> Array:
    """Each message's number."""
    log = window.log
    if len(log.numbers):
        return log.numbers
    sizes = np.diff(log.sender_starts)
    firsts = np.where(sizes > 0, log.first_numbers, 0)
    return np.repeat(firsts - log.sender_starts[:-1], sizes) + np.arange(log.message_count)


def _missing(window: Window) -> Found:
    """What sites without absences lack."""
    log = window.log
    first = deliveries.first_deliveries(log.delivered, log.message_count)
    found = np.empty((0, 2), np.int64)
    for _ in range(2):
        count = atomicity.find_missing(
            log.delivered, log.delivery_starts, first, log.destination_set, log.sets, window.excused, found
        )
        limit = window.context.limits["atomicity"]
        found = np.empty((count if limit is None else min(count, limit), 2), np.int64)
        if not len(found):
            return count, []
    atomicity.find_missing(
        log.delivered, log.delivery_starts, first, log.destination_set, log.sets, window.excused, found
    )
    return count, [telling.missing(window, site, int(first[message])) for site, message in found.tolist()]


_SETTLED = {"integrity": _integrity, "duplicate": _duplicate, "fifo": _fifo, "atomicity": _missing}


def _causal_alone(window: Window, name: Property) -> tuple[Found, tuple[Array, Array]]:
    knowledge = flowing.causal_knowledge(window, name, flowing.nothing_entering(window))
    entries = flowing.early_entries(window, name, knowledge, flowing.nothing_after(window))
    chosen = telling.chosen(entries, window.context.limits[name])
    explained = [flowing.early_violation(window, name, knowledge, entry) for entry in chosen]
    return (len(entries), explained), (knowledge.leaving, flowing.least_positions(window, name))


def _declared_alone(window: Window, name: Property) -> tuple[Found, Array]:
    declared = flowing.declarations(window, name)
    entering = flowing.nothing_entering(window)
    knowledge = flowing.reception_knowledge(window, declared, entering)
    return _premature(window, name, declared, knowledge, entering), knowledge.leaving


def _premature(
    window: Window,
    name: Property,
    declared: flowing.Declarations,
    knowledge: flowing.Knowledge,
    entering: Array,
) -> Found:
    found = flowing.premature(window, declared, knowledge, entering)
    limit = window.context.limits[name]
    explained = found if limit is None else found[:limit]
    return len(found), [too_early(window.log, *each, declared.receptions, name) for each in explained]


# Further passes


def judge_causal(window: Window, name: Property, entering: Array, after: Array) -> tuple[int, list[Early]]:
    """Causal order with what is known when the fragments begin, and what their sites deliver after them."""
    knowledge = flowing.causal_knowledge(window, name, entering)
    entries = flowing.early_entries(window, name, knowledge, after)
    chosen = telling.chosen(entries, window.context.limits[name])
    return len(entries), [flowing.early_record(window, knowledge, entry) for entry in chosen]


def judge_declared(window: Window, name: Property, entering: Array) -> Found:
    """Stability or safe delivery with what is known when the fragments begin."""
    declared = flowing.declarations(window, name)
    knowledge = flowing.reception_knowledge(window, declared, entering)
    return _premature(window, name, declared, knowledge, entering)


def find_causes(window: Window, name: Property, early: list[Early]) -> list[Cause | None]:
    """For each of these deliveries, the next one of its site in this window that is a cause of it."""
    log = window.log
    causes: list[Cause | None] = []
    for record in early:
        entry = flowing.cause_entry(window, name, log.sites.index(record.site), record.position, record.clock)
        if entry < 0:
            causes.append(None)
            continue
        message = log.message_id(int(log.messages[entry]))
        causes.append(Cause(int(window.positions[entry]), log.place(entry)[1], message))
    return causes


def find_links(window: Window, name: Property, asked: list[tuple[Early, Cause]]) -> list[explain.Link | None]:
    """For each cause: the link to its effect, if the effect's sender knew the cause before it sent that."""
    return [
        flowing.direct_link(window, name, effect, find_message(window, cause.message))
        for effect, cause in asked
    ]


def reach(
    window: Window,
    wanted: list[tuple[Site, int, MessageId | None, MessageId | None]],
) -> tuple[Reach, dict[tuple[Site, int], tuple[Array | None, Array | None]]]:
    """How the window's stretches reach one another, and what the ends of these spells reach."""
    order = Order(window)
    ends = {}
    for site, spell, first, last in wanted:
        after = None if first is None else order.following[find_message(window, first)]
        before = None if last is None else order.preceding[find_message(window, last)]
        ends[site, spell] = after, before
    return order.reach(), ends


def split(
    window: Window,
    entered: list[tuple[Array, Array]],
    most: int,
) -> tuple[list[Spanned | None], int, list[Violation]]:
    return Order(window).split(entered, most)


def lacking(window: Window, found: list[tuple[Spell, Bounds | None]]) -> Found:
    """What spells lack: in the agreed order where bounds are given, else in senders' numbers."""
    bounded = [(spell, bounds) for spell, bounds in found if bounds is not None]
    if bounded:
        missing = spells.lacking_in_order(window, Order(window), bounded)
    else:
        missing = spells.lacking_in_numbers(window, [spell for spell, _ in found])
    limit = window.context.limits["atomicity"]
    chosen = missing if limit is None else missing[:limit]
    return len(missing), [
        spells.violation(window, spell, message, in_order=bool(bounded)) for spell, message in chosen
    ]


def find_message(window: Window, message: MessageId) -> int:
    """The integer of a message that the window holds."""
    log = window.log
    sender = log.senders.index(message.sender)
    begin, end = log.sender_starts[sender : sender + 2].tolist()
    return int(begin) + int(np.searchsorted(_numbers(window)[begin:end], message.number))
