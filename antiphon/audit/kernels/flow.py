"""What is known where, inside one window of a run.

A clock has one value for each site that logged: the position after that site's last send that is known. The
rows of a site follow one another, and whatever a send knows is known wherever its message is carried to. A
site's log falls into fragments (`fragment` has each entry's); at the begin of each, what came from outside
the window is joined in (`entering`). The window's own part is found with nothing entering.

The logs are swept side by side, as in `causality`; where that gets stuck, clocks are raised until nothing
changes. Memory: 8 bytes for each sent message and fragment of the window, and site.
"""

from typing import Any

import numpy as np

from antiphon.core.compiled import compiled

NEVER = np.iinfo(np.int64).max


@compiled
def _join(clock: Any, other: Any) -> bool:
    changed = False
    for site in range(len(clock)):
        if other[site] > clock[site]:
            clock[site] = other[site]
            changed = True
    return changed


@compiled
def sweep(
    starts: Any,
    carries: Any,
    sends: Any,
    positions: Any,
    fragment: Any,
    entering: Any,
    vectors: Any,
    leaving: Any,
) -> int:
    """Fill in the clock of each send and of each fragment's end; return how many sites got stuck.

    `carries` and `sends` give each entry's row in `vectors`, if it takes a message's clock over or is its
    send; else -1.
    """
    sites = len(starts) - 1
    clocks = np.zeros((sites, entering.shape[1]), np.int64)
    known = np.zeros(len(vectors), np.bool_)
    pointer = starts[:-1].copy()
    waiting = np.full(len(vectors), -1, np.int32)
    next_waiting = np.full(sites, -1, np.int32)
    moving = np.arange(sites)
    moving_count, stuck = sites, sites
    while moving_count:
        moving_count -= 1
        site = moving[moving_count]
        clock = clocks[site]
        entry = pointer[site]
        while entry < starts[site + 1]:
            if fragment[entry] >= 0 and (entry == starts[site] or fragment[entry] != fragment[entry - 1]):
                _join(clock, entering[fragment[entry]])
            if carries[entry] >= 0:
                at = carries[entry]
                if not known[at]:
                    next_waiting[site] = waiting[at]
                    waiting[at] = site
                    break
                # A call for each delivery would cost more than the join itself.
                for other_site in range(sites):
                    clock[other_site] = max(clock[other_site], vectors[at, other_site])
            if sends[entry] >= 0:
                at = sends[entry]
                # In impossible logs a later send of this site may be known already.
                clock[site] = max(clock[site], positions[entry] + 1)
                vectors[at] = clock
                known[at] = True
                other = waiting[at]
                while other >= 0:
                    moving[moving_count] = other
                    moving_count += 1
                    other = next_waiting[other]
            if fragment[entry] >= 0 and (
                entry + 1 == starts[site + 1] or fragment[entry + 1] != fragment[entry]
            ):
                leaving[fragment[entry]] = clock
            entry += 1
        pointer[site] = entry
        if entry >= starts[site + 1]:
            stuck -= 1
    return stuck


@compiled
def raise_to_fixpoint(
    starts: Any,
    carries: Any,
    sends: Any,
    positions: Any,
    fragment: Any,
    entering: Any,
    vectors: Any,
    leaving: Any,
) -> None:
    """Pass over all logs until no clock rises any more."""
    changed = True
    while changed:
        changed = False
        for site in range(len(starts) - 1):
            clock = np.zeros(entering.shape[1], np.int64)
            for entry in range(starts[site], starts[site + 1]):
                if fragment[entry] >= 0 and (entry == starts[site] or fragment[entry] != fragment[entry - 1]):
                    _join(clock, entering[fragment[entry]])
                if carries[entry] >= 0:
                    _join(clock, vectors[carries[entry]])
                if sends[entry] >= 0:
                    clock[site] = max(clock[site], positions[entry] + 1)
                    changed = _join(vectors[sends[entry]], clock) or changed
                if fragment[entry] >= 0 and (
                    entry + 1 == starts[site + 1] or fragment[entry + 1] != fragment[entry]
                ):
                    leaving[fragment[entry]] = clock


@compiled
def least_positions(
    fragment: Any,
    firsts: Any,
    messages: Any,
    sent_by: Any,
    sent_at: Any,
    homes_start: Any,
    homes: Any,
    least: Any,
) -> None:
    """By fragment: the least send position of the messages first delivered in it, by the site that sent them.

    Unsent messages count in the second half of the columns, where each site that delivered them did so.
    """
    sites = least.shape[1] // 2
    for entry in range(len(fragment)):
        if not firsts[entry]:
            continue
        message, row = messages[entry], fragment[entry]
        site = sent_by[message]
        if site >= 0:
            least[row, site] = min(least[row, site], sent_at[message])
            continue
        for home in range(homes_start[message], homes_start[message + 1]):
            column = sites + homes[home, 0]
            least[row, column] = min(least[row, column], homes[home, 1])


@compiled
def find_early(
    starts: Any,
    fragment: Any,
    firsts: Any,
    messages: Any,
    rows: Any,
    vectors: Any,
    after: Any,
    sent_by: Any,
    sent_at: Any,
    homes_start: Any,
    homes: Any,
    early: Any,
) -> int:
    """Mark the first deliveries that are followed, at their site, by a message of their causal past.

    `after` has for each fragment the least positions of what the site delivers after the fragment.
    """
    count, sites = 0, vectors.shape[1]
    for site in range(len(starts) - 1):
        least = np.full(sites, NEVER, np.int64)
        for entry in range(starts[site + 1] - 1, starts[site] - 1, -1):
            if fragment[entry] < 0:
                continue
            if entry + 1 == starts[site + 1] or fragment[entry + 1] != fragment[entry]:
                for other in range(sites):
                    outside = min(after[fragment[entry], other], after[fragment[entry], sites + other])
                    least[other] = min(least[other], outside)
            if not firsts[entry]:
                continue
            message = messages[entry]
            row = rows[message]
            if row >= 0:
                followed = False
                for other in range(sites):
                    followed |= least[other] < vectors[row, other]
                if followed:
                    early[entry] = True
                    count += 1
            if sent_by[message] >= 0:
                least[sent_by[message]] = min(least[sent_by[message]], sent_at[message])
                continue
            for home in range(homes_start[message], homes_start[message + 1]):
                least[homes[home, 0]] = min(least[homes[home, 0]], homes[home, 1])
    return count


@compiled
def find_cause(
    begin: int,
    end: int,
    firsts: Any,
    positions: Any,
    messages: Any,
    sent_by: Any,
    sent_at: Any,
    homes_start: Any,
    homes: Any,
    after: int,
    clock: Any,
) -> int:
    """The first of a site's entries behind position `after` that delivers a message which the clock knows."""
    for entry in range(begin, end):
        if not firsts[entry] or positions[entry] <= after:
            continue
        message = messages[entry]
        if sent_by[message] >= 0:
            if sent_at[message] < clock[sent_by[message]]:
                return entry
            continue
        for home in range(homes_start[message], homes_start[message + 1]):
            if homes[home, 1] < clock[homes[home, 0]]:
                return entry
    return -1


@compiled
def judge_declarations(
    starts: Any,
    carries: Any,
    sends: Any,
    fragment: Any,
    entering: Any,
    vectors: Any,
    receives: Any,
    messages: Any,
    by_message: Any,
    declared_by: Any,
    declared_at: Any,
    addressed: Any,
    sets: Any,
    absent: Any,
    name_rank: Any,
    failing: Any,
) -> None:
    """Mark declarations that happened before a destination's first reception, which `receives` marks.

    Declarations are ordered by message; `by_message` has where each message's begin. Of the
    sites that fail, the first by name is kept.
    """
    for site in range(len(starts) - 1):
        clock = np.zeros(entering.shape[1], np.int64)
        for entry in range(starts[site], starts[site + 1]):
            if fragment[entry] < 0:
                continue
            if entry == starts[site] or fragment[entry] != fragment[entry - 1]:
                _join(clock, entering[fragment[entry]])
            if carries[entry] >= 0:
                _join(clock, vectors[carries[entry]])
            if sends[entry] >= 0:
                _join(clock, vectors[sends[entry]])
            if not receives[entry] or absent[site]:
                continue
            message = messages[entry]
            for index in range(by_message[message], by_message[message + 1]):
                by = declared_by[index]
                if by == site or not sets[addressed[message], site] or clock[by] <= declared_at[index]:
                    continue
                if failing[index] < 0 or name_rank[site] < name_rank[failing[index]]:
                    failing[index] = site


@compiled
def reach(order: Any, offsets: Any, targets: Any, reached: Any) -> None:
    """Lower each message's row of `reached`, by site the first delivery on a path from it, until none falls.

    `order` lists the messages so that most arcs lead forward in it.
    """
    changed = True
    while changed:
        changed = False
        for place in range(len(order) - 1, -1, -1):
            message = order[place]
            for slot in range(offsets[message], offsets[message + 1]):
                other = targets[slot]
                for site in range(reached.shape[1]):
                    if reached[other, site] < reached[message, site]:
                        reached[message, site] = reached[other, site]
                        changed = True


@compiled
def flood(seeds: Any, offsets: Any, targets: Any) -> Any:
    """Which nodes a path leads to from the seeds, the seeds included."""
    found = np.zeros(len(offsets) - 1, np.bool_)
    stack = [seeds[0] for _ in range(0)]
    for seed in seeds:
        if not found[seed]:
            found[seed] = True
            stack.append(seed)
    while len(stack):
        node = stack.pop()
        for slot in range(offsets[node], offsets[node + 1]):
            if not found[targets[slot]]:
                found[targets[slot]] = True
                stack.append(targets[slot])
    return found


@compiled
def first_of_each(delivered: Any, starts: Any, messages: int) -> Any:
    """Whether each delivery is its site's first of that message."""
    last = np.full(messages, -1, np.int32)
    firsts = np.zeros(len(delivered), np.bool_)
    for site in range(len(starts) - 1):
        for place in range(starts[site], starts[site + 1]):
            if last[delivered[place]] != site:
                last[delivered[place]] = site
                firsts[place] = True
    return firsts
