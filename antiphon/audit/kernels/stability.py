"""Stability: declarations before a destination's reception, as far as the logs prove it.

At the declaring site the order of its log decides. For other sites happens-before is kept as vectors: for
each send, the prefix of each site's log that happened before it, itself included. The rows of one site
follow one another, and a send happens before its receptions and deliveries elsewhere. As for causal order,
the logs are swept side by side, and impossible logs are passed over until no vector rises any more. Rows of
one step are unordered (`groups` and `rows` as in `causality`): they are laid out as sends, receptions and
declarations, and a send's vector ends before its step.

Memory: 4 bytes per message and site that logged, twice; only allocated if a site declared anything.
"""

from typing import Any

import numpy as np

from antiphon.core.compiled import compiled


@compiled
def first_declarations(kinds: Any, messages: Any, starts: Any, send_entry: Any, least: int, most: int) -> Any:
    """The first entry of each site about each message with a kind from `least` to `most`."""
    seen = np.full(len(send_entry), -1, np.int64)
    entries = [seen[0] for _ in range(0)]
    for site in range(len(starts) - 1):
        for entry in range(starts[site], starts[site + 1]):
            message = messages[entry]
            if least <= kinds[entry] <= most and send_entry[message] >= 0 and seen[message] < starts[site]:
                seen[message] = entry
                entries.append(entry)
    return np.array(entries, np.int64)


@compiled
def first_receptions(kinds: Any, messages: Any, starts: Any, message_count: int) -> Any:
    """Where in its log each site first holds each message: sends, receives or delivers it; -1 if never."""
    receptions = np.full((len(starts) - 1, message_count), -1, np.int32)
    for site in range(len(starts) - 1):
        for entry in range(starts[site], starts[site + 1]):
            if 2 <= kinds[entry] <= 4 and receptions[site, messages[entry]] < 0:
                receptions[site, messages[entry]] = entry - starts[site]
    return receptions


@compiled
def _worse(current: int, site: int, name_rank: Any) -> int:
    """Of two sites that a declaration was too early for, the first by name."""
    return site if current < 0 or name_rank[site] < name_rank[current] else current


@compiled
def judge_by_own_logs(
    declarations: Any,
    declaring: Any,
    messages: Any,
    starts: Any,
    receptions: Any,
    destination_set: Any,
    sets: Any,
    absent: Any,
    name_rank: Any,
    failing: Any,
) -> None:
    """Destinations that never receive the message, and the declaring site if it receives it later."""
    for index in range(len(declarations)):
        message = messages[declarations[index]]
        site = declaring[index]
        for other in range(sets.shape[1]):
            if absent[other] or not sets[destination_set[message], other]:
                continue
            at = receptions[other, message] if other < len(starts) - 1 else -1
            if at < 0 or (other == site and at > declarations[index] - starts[site]):
                failing[index] = _worse(failing[index], other, name_rank)


@compiled
def _before(entry: int, start: int, groups: Any) -> int:
    """The length of the site's log that surely comes before a send, the send itself included if untied."""
    return groups[entry] - start if len(groups) else entry - start + 1


@compiled
def _merge(clock: Any, vector: Any) -> None:
    for site in range(len(clock)):
        if vector[site] > clock[site]:
            clock[site] = vector[site]


@compiled
def sweep(kinds: Any, messages: Any, starts: Any, groups: Any, row: Any, sent_by: Any, vectors: Any) -> int:
    """Fill in the vectors of all sends; return how many sites got stuck."""
    sites = len(starts) - 1
    clocks = np.zeros((sites, sites), np.int32)
    known = np.zeros(len(vectors), np.bool_)
    pointer = starts[:-1].copy()
    waiting = np.full(len(vectors), -1, np.int32)
    next_waiting = np.full(sites, -1, np.int32)
    moving = np.empty(sites, np.int32)
    for site in range(sites):
        moving[site] = site
    moving_count, stuck = sites, sites
    while moving_count:
        moving_count -= 1
        site = moving[moving_count]
        clock = clocks[site]
        entry = pointer[site]
        while entry < starts[site + 1]:
            kind, message = kinds[entry], messages[entry]
            at = row[message] if 2 <= kind <= 4 else -1
            clock[site] = _before(entry, starts[site], groups)
            if at >= 0 and kind == 2:
                vectors[at] = clock
                known[at] = True
                other = waiting[at]
                while other >= 0:
                    moving[moving_count] = other
                    moving_count += 1
                    other = next_waiting[other]
            elif at >= 0 and sent_by[message] != site:
                if not known[at]:
                    next_waiting[site] = waiting[at]
                    waiting[at] = site
                    break
                _merge(clock, vectors[at])
            entry += 1
        pointer[site] = entry
        if entry >= starts[site + 1]:
            stuck -= 1
    return stuck


@compiled
def raise_to_fixpoint(
    kinds: Any, messages: Any, starts: Any, groups: Any, row: Any, sent_by: Any, vectors: Any
) -> None:
    """Pass over all logs until no vector rises any more."""
    changed = True
    while changed:
        changed = False
        for site in range(len(starts) - 1):
            clock = np.zeros(len(starts) - 1, np.int32)
            for entry in range(starts[site], starts[site + 1]):
                kind, message = kinds[entry], messages[entry]
                at = row[message] if 2 <= kind <= 4 else -1
                # In cyclic logs a later row of this site may have happened before this one.
                clock[site] = max(clock[site], _before(entry, starts[site], groups))
                if at >= 0 and kind == 2:
                    for other in range(len(clock)):
                        if clock[other] > vectors[at, other]:
                            vectors[at, other] = clock[other]
                            changed = True
                elif at >= 0 and sent_by[message] != site:
                    _merge(clock, vectors[at])


@compiled
def judge_by_happens_before(
    declarations: Any,
    declaring: Any,
    by_message: Any,
    kinds: Any,
    messages: Any,
    starts: Any,
    groups: Any,
    rows: Any,
    row: Any,
    sent_by: Any,
    vectors: Any,
    receptions: Any,
    destination_set: Any,
    sets: Any,
    absent: Any,
    name_rank: Any,
    failing: Any,
) -> None:
    """Destinations whose first reception the declaration happened before.

    `by_message` holds where each message's declarations begin; they are ordered by message.
    """
    for site in range(len(starts) - 1):
        clock = np.zeros(len(starts) - 1, np.int32)
        # Where rows share a step: what happened before it, and what its rows have added so far.
        step_clock, added = clock.copy(), clock.copy()
        for entry in range(starts[site], starts[site + 1]):
            kind, message = kinds[entry], messages[entry]
            if len(groups) and groups[entry] == entry:
                _merge(added, clock)
                step_clock[:] = added
            if len(groups) and rows[entry] == entry:
                _merge(added, clock)
                clock[:] = step_clock
            if not 2 <= kind <= 4:
                continue
            if row[message] >= 0 and (kind == 2 or sent_by[message] != site):
                _merge(clock, vectors[row[message]])
            if receptions[site, message] != entry - starts[site] or absent[site]:
                continue
            for index in range(by_message[message], by_message[message + 1]):
                declared_by = declaring[index]
                if declared_by == site or not sets[destination_set[message], site]:
                    continue
                if clock[declared_by] > declarations[index] - starts[declared_by]:
                    failing[index] = _worse(failing[index], site, name_rank)
