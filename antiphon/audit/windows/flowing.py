"""Causal order, stability and safe delivery inside one window, with what enters it from outside.

Both ask what a site knew at some row. A clock (`kernels.flow`) has the position after the last send of each
site that is known. For causal order a delivery carries a message's clock on, for stability its first
reception does.
"""

from typing import Any, NamedTuple

import numpy as np

from antiphon.audit.kernels import causality, flow, stability
from antiphon.audit.packing import DELIVER, SEND
from antiphon.audit.properties.stability import DECLARING
from antiphon.audit.windows import telling
from antiphon.audit.windows.window import Learning, Window
from antiphon.check import explain
from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import KINDS, Property

Array = Any


class Fragments(NamedTuple):
    """The fragments of a window: site, first and last position, as rows of arrays."""

    sites: Array
    begins: Array
    ends: Array


class Knowledge(NamedTuple):
    """What is known at each send and at each fragment's end, and the carrying entries that made it so."""

    carries: Array
    vectors: Array
    leaving: Array


class Early(NamedTuple):
    """A delivery that a cause of its message follows, with the clock of the message's send."""

    site: Site
    position: int
    step: int
    message: MessageId
    clock: Array
    sent_by: Site
    sent_at: int
    sent_step: int


class Cause(NamedTuple):
    """The next delivery of a site whose message a clock knows."""

    position: int
    step: int
    message: MessageId


def fragments(window: Window) -> Fragments:
    edges = np.flatnonzero(np.diff(window.fragment, prepend=-1, append=-1))
    begins, ends = edges[:-1], edges[1:] - 1
    sites = np.searchsorted(window.log.starts, begins, "right") - 1
    return Fragments(sites.astype(np.int32), window.positions[begins], window.positions[ends])


def fragment_count(window: Window) -> int:
    return int(window.fragment[-1]) + 1 if len(window.fragment) else 0


def nothing_entering(window: Window) -> Array:
    return np.zeros((fragment_count(window), window.log.logged), np.int64)


def nothing_after(window: Window) -> Array:
    return np.full((fragment_count(window), 2 * window.log.logged), flow.NEVER, np.int64)


def _known(window: Window, carries: Array, entering: Array) -> Knowledge:
    vectors = np.zeros((int(window.vector_rows.max(initial=-1)) + 1, window.log.logged), np.int64)
    leaving = np.zeros_like(entering)
    arguments = (window.log.starts, carries, window.sends, window.positions, window.fragment)
    if flow.sweep(*arguments, entering, vectors, leaving):
        flow.raise_to_fixpoint(*arguments, entering, vectors, leaving)
    return Knowledge(carries, vectors, leaving)


# Causal order


def learning(window: Window, name: Property) -> Learning:
    """How sites learn of messages, for causal order or for causal order by receipt."""
    return window.by_receipt if name == "causal-receipt" else window.by_delivery


def causal_knowledge(window: Window, name: Property, entering: Array) -> Knowledge:
    log = window.log
    carries = np.full(len(log.kinds), -1, np.int32)
    places = np.flatnonzero(learning(window, name).kinds == DELIVER)
    carries[places] = window.vector_rows[log.messages[places]]
    return _known(window, carries, entering)


def least_positions(window: Window, name: Property) -> Array:
    """By fragment, the least positions of the sends (or homes) of what is first delivered in it."""
    least = nothing_after(window)
    _, homes_start, homes = learning(window, name)
    flow.least_positions(
        window.fragment,
        window.first_entries,
        window.log.messages,
        window.sent_by,
        window.sent_at,
        homes_start,
        homes,
        least,
    )
    return least


def early_entries(window: Window, name: Property, knowledge: Knowledge, after: Array) -> Array:
    """The first deliveries that a message of their past follows at their site."""
    early = np.zeros(len(window.log.kinds), np.bool_)
    _, homes_start, homes = learning(window, name)
    flow.find_early(
        window.log.starts,
        window.fragment,
        window.first_entries,
        window.log.messages,
        window.vector_rows,
        knowledge.vectors,
        after,
        window.sent_by,
        window.sent_at,
        homes_start,
        homes,
        early,
    )
    return np.flatnonzero(early)


def early_record(window: Window, knowledge: Knowledge, entry: int) -> Early:
    log = window.log
    site, step = log.place(entry)
    message = int(log.messages[entry])
    clock = knowledge.vectors[window.vector_rows[message]].copy()
    sent_by, sent_step = log.place(int(log.send_entry[message]))
    sent_at = int(window.sent_at[message])
    position = int(window.positions[entry])
    return Early(site, position, step, log.message_id(message), clock, sent_by, sent_at, sent_step)


def direct_link(window: Window, name: Property, effect: Early, cause: int) -> explain.Link | None:
    """The link from a cause to its effect, if the effect's sender sent or delivered the cause before."""
    log = window.log
    site = log.sites.index(effect.sent_by)
    begin, end = log.starts[site : site + 2].tolist()
    own = slice(begin, end)
    kinds = learning(window, name).kinds[own]
    known = (log.messages[own] == cause) & ((kinds == SEND) | (kinds == DELIVER))
    entries = begin + np.flatnonzero(known & (window.positions[own] < effect.sent_at))
    if not len(entries):
        return None
    verb = explain.VERBS[KINDS[log.kinds[entries[0]]]]
    step = log.place(int(entries[0]))[1]
    before = log.message_id(cause)
    return explain.Link(effect.sent_by, verb, before, step, effect.message, effect.sent_step)


def cause_entry(window: Window, name: Property, site: int, after: int, clock: Array) -> int:
    """The first entry of a site behind a position that delivers what the clock knows; -1 if none does."""
    begin, end = window.log.starts[site : site + 2]
    _, homes_start, homes = learning(window, name)
    return int(
        flow.find_cause(
            begin,
            end,
            window.first_entries,
            window.positions,
            window.log.messages,
            window.sent_by,
            window.sent_at,
            homes_start,
            homes,
            after,
            clock,
        )
    )


def chain(window: Window, name: Property, cause: int, effect: int) -> list[explain.Link]:
    """A shortest chain of this window's sends from one message to another."""
    log = window.log
    via = np.full((log.message_count, 2), -1, np.int64)
    found = causality.find_chain(
        learning(window, name).kinds,
        log.messages,
        log.starts,
        log.groups,
        log.rows,
        log.send_entry,
        cause,
        effect,
        via,
    )
    return telling.links(window, found)


def early_violation(window: Window, name: Property, knowledge: Knowledge, entry: int) -> Violation:
    """A violation whose cause and whose chain lie in this window."""
    log = window.log
    record = early_record(window, knowledge, entry)
    later = cause_entry(window, name, log.sites.index(record.site), record.position, record.clock)
    cause, effect = int(log.messages[later]), int(log.messages[entry])
    return telling.early(
        name,
        log.run.run,
        record.site,
        (record.message, record.step),
        (log.message_id(cause), log.place(later)[1]),
        chain(window, name, cause, effect),
    )


# Stability


class Declarations(NamedTuple):
    """A window's first declarations, ordered by message, and who received each message where."""

    entries: Array
    receptions: Array
    receives: Array
    carries: Array


def declarations(window: Window, name: Property) -> Declarations:
    log = window.log
    entries = np.empty(0, np.int64)
    if log.message_count:
        entries = stability.first_declarations(
            log.kinds, log.messages, log.starts, log.send_entry, *DECLARING[name]
        )
    entries = entries[np.argsort(log.messages[entries], kind="stable")]
    receptions = stability.first_receptions(log.kinds, log.messages, log.starts, log.message_count)
    sites = np.repeat(np.arange(log.logged), np.diff(log.starts))
    about = np.flatnonzero((log.kinds >= 2) & (log.kinds <= DELIVER))
    receives = np.zeros(len(log.kinds), np.bool_)
    receives[about] = receptions[sites[about], log.messages[about]] == about - log.starts[sites[about]]
    carries = np.full(len(log.kinds), -1, np.int32)
    foreign = about[receives[about] & (window.sent_by[log.messages[about]] != sites[about])]
    carries[foreign] = window.vector_rows[log.messages[foreign]]
    return Declarations(entries, receptions, receives, carries)


def reception_knowledge(window: Window, declared: Declarations, entering: Array) -> Knowledge:
    return _known(window, declared.carries, entering)


def premature(
    window: Window, declared: Declarations, knowledge: Knowledge, entering: Array
) -> list[tuple[int, int]]:
    """Declarations before a destination held the message: the entry, and the first such site by name."""
    log, entries = window.log, declared.entries
    if not len(entries):
        return []
    declaring = (np.searchsorted(log.starts, entries, "right") - 1).astype(np.int32)
    ranks = telling.name_ranks(log.sites)
    failing = np.full(len(entries), -1, np.int32)
    stability.judge_by_own_logs(
        entries,
        declaring,
        log.messages,
        log.starts,
        declared.receptions,
        log.destination_set,
        log.sets,
        window.excused,
        ranks,
        failing,
    )
    flow.judge_declarations(
        log.starts,
        declared.carries,
        window.sends,
        window.fragment,
        entering,
        knowledge.vectors,
        declared.receives,
        log.messages,
        np.searchsorted(log.messages[entries], np.arange(log.message_count + 1)),
        declaring,
        window.positions[entries],
        log.destination_set,
        log.sets,
        window.excused,
        ranks,
        failing,
    )
    broken = np.flatnonzero(failing >= 0)
    return list(zip(entries[broken].tolist(), failing[broken].tolist(), strict=True))
