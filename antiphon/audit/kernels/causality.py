"""Causal order by places instead of sets: for each lane, how late the past of a message is delivered there.

A lane is the first deliveries of one site (and domain). A delivery in it is early if some message of its past
has a later place in the lane. So of a message's past one number matters for each lane: the last place that
any of it has there. These numbers flow along the logs as a past does: a send takes over what its site has
gathered, a delivery gathers what its message has. A table holds them for a few lanes at a time, so memory is
4 bytes for each message and each of these lanes, however many sites send or deliver. To find the first cause
behind a delivery the same table holds that instead of the last.

The logs are swept side by side: a delivery waits until its message's row is complete, which is once its send
has been passed. Impossible logs, such as deliveries before their own sends in a cycle, never get there. Then
the rows are raised in passes over all logs until nothing changes, which gives the same least solution.

Rows of one step are unordered. `groups[entry]` is the first entry of an entry's step, `rows[entry]` that of
its row; both are empty if no two rows share a step. The sends of a step are laid out first; what a step adds
to its site's past counts only for later steps, and what a row adds also for the rest of the row.
"""

from typing import Any

import numpy as np

from antiphon.core.compiled import compiled


@compiled
def ends_of_pasts(kinds: Any, starts: Any) -> Any:
    """The end of each site's log up to its last send: entries after it precede nothing."""
    ends = starts[:-1].copy()
    for site in range(len(starts) - 1):
        for entry in range(starts[site + 1] - 1, starts[site] - 1, -1):
            if kinds[entry] == 2:
                ends[site] = entry + 1
                break
    return ends


@compiled
def _gather(into: Any, others: Any) -> bool:
    """Raise each column to the other's; whether any rose."""
    rose = False
    for column in range(len(into)):
        if others[column] > into[column]:
            into[column] = others[column]
            rose = True
    return rose


@compiled
def _begin(entry: int, start: int, groups: Any, rows: Any, gathered: Any, pending: Any, own: Any) -> None:
    """Where rows share steps: end the step before this entry, and begin its row."""
    if groups[entry] == entry and entry > start:
        _gather(gathered, pending)
    if rows[entry] == entry:
        own[:] = gathered


@compiled
def sweep(
    kinds: Any, messages: Any, starts: Any, groups: Any, rows: Any, ends: Any, sent: Any, table: Any
) -> int:
    """Complete the table, whose rows hold the messages' own places; return how many sites got stuck."""
    sites = len(starts) - 1
    gathered = np.zeros((sites, table.shape[1]), table.dtype)
    pending = np.zeros((sites if len(groups) else 0, table.shape[1]), table.dtype)
    own = np.zeros(table.shape[1], table.dtype)
    complete = ~sent
    pointer = starts[:-1].copy()
    waiting = np.full(len(sent), -1, np.int32)
    next_waiting = np.full(sites, -1, np.int32)
    moving = np.empty(sites, np.int32)
    for site in range(sites):
        moving[site] = site
    moving_count, stuck = sites, sites
    while moving_count:
        moving_count -= 1
        site = moving[moving_count]
        entry = pointer[site]
        while entry < ends[site]:
            message = messages[entry]
            if len(groups):
                _begin(entry, starts[site], groups, rows, gathered[site], pending[site], own)
            if kinds[entry] == 4:
                if not complete[message]:
                    next_waiting[site] = waiting[message]
                    waiting[message] = site
                    break
                _gather(gathered[site], table[message])
            elif kinds[entry] == 2:
                if len(groups):
                    _gather(table[message], own)
                    own[:] = table[message]
                    _gather(pending[site], own)
                else:
                    _gather(table[message], gathered[site])
                    gathered[site] = table[message]
                complete[message] = True
                other = waiting[message]
                while other >= 0:
                    moving[moving_count] = other
                    moving_count += 1
                    other = next_waiting[other]
            entry += 1
        pointer[site] = entry
        if entry >= ends[site]:
            stuck -= 1
    return stuck


@compiled
def raise_to_fixpoint(
    kinds: Any, messages: Any, starts: Any, groups: Any, rows: Any, ends: Any, table: Any
) -> None:
    """Pass over all logs until no row of the table rises any more."""
    columns = table.shape[1]
    changed = True
    while changed:
        changed = False
        for site in range(len(starts) - 1):
            gathered = np.zeros(columns, table.dtype)
            pending, own = np.zeros(columns, table.dtype), np.zeros(columns, table.dtype)
            for entry in range(starts[site], ends[site]):
                message = messages[entry]
                if len(groups):
                    _begin(entry, starts[site], groups, rows, gathered, pending, own)
                if kinds[entry] == 4:
                    _gather(gathered, table[message])
                elif kinds[entry] == 2 and len(groups):
                    changed = _gather(table[message], own) or changed
                    _gather(own, table[message])
                    _gather(pending, own)
                elif kinds[entry] == 2:
                    changed = _gather(table[message], gathered) or changed
                    _gather(gathered, table[message])


@compiled
def _note_before(
    begin: int, end: int, after: int, kinds: Any, messages: Any, via: Any, touched: Any, following: Any
) -> None:
    """Enter the messages of some entries as found by way of `after`."""
    for entry in range(begin, end):
        before = messages[entry]
        if (kinds[entry] == 2 or kinds[entry] == 4) and before != after and via[before, 0] < 0:
            via[before, 0] = entry
            via[before, 1] = after
            touched.append(before)
            following.append(before)


@compiled
def find_chain(
    kinds: Any,
    messages: Any,
    starts: Any,
    groups: Any,
    rows: Any,
    send_entry: Any,
    cause: int,
    effect: int,
    via: Any,
) -> Any:
    """A shortest chain of entries from cause to effect: breadth first, backwards from the effect's send.

    Each link is the entry at which a site delivered or sent a message, and the message that it sent after
    that. No part of a log is searched twice. `via` holds two columns of -1 before and after.
    """
    searched = starts[:-1].copy()
    frontier = [effect]
    touched = [effect]
    while via[cause, 0] < 0 and len(frontier):
        following = [effect for _ in range(0)]
        for after in frontier:
            sent_at = send_entry[after]
            if sent_at < 0:
                continue
            site = np.searchsorted(starts, sent_at, side="right") - 1
            begin = groups[sent_at] if len(groups) else sent_at
            _note_before(searched[site], begin, after, kinds, messages, via, touched, following)
            if len(groups):
                _note_before(rows[sent_at], sent_at, after, kinds, messages, via, touched, following)
            searched[site] = max(searched[site], begin)
        frontier = following
    assert via[cause, 0] >= 0, "the cause is in the past of the effect, so a chain leads there"
    links = [(via[cause, 0], via[cause, 1])]
    while links[-1][1] != effect:
        links.append((via[links[-1][1], 0], via[links[-1][1], 1]))
    for message in touched:
        via[message, 0] = -1
        via[message, 1] = -1
    return links
