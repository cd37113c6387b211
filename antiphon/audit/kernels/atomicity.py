"""Atomicity: messages that a destination lacks although some site delivered them.

A site without absences must have every message addressed to it. A site with absences is judged spell by
spell. Where total order holds, the merge of the sites' sequences (see `order`) has placed every message so
that all arcs lead forward. Every message on a path from the spell's first message to its last is placed
between them, so only those are candidates; one walk through that range in each direction finds which of them
are on such a path. Without total order, senders' numbers decide. Both are judged domain by domain. Where
rows share a step, a spell has several deliveries that may be its first or its last.
"""

from typing import Any

import numpy as np

from antiphon.core.compiled import compiled


@compiled
def find_missing(
    delivered: Any, starts: Any, first: Any, destination_set: Any, sets: Any, absent: Any, found: Any
) -> int:
    """(site, message) pairs where a site present for the whole run lacks a message addressed to it."""
    count = 0
    holder = np.full(len(first), -1, np.int32)
    for site in range(sets.shape[1]):
        if absent[site]:
            continue
        if site < len(starts) - 1:
            for place in range(starts[site], starts[site + 1]):
                holder[delivered[place]] = site
        for message in range(len(first)):
            addressed = destination_set[message]
            if first[message] >= 0 and addressed >= 0 and sets[addressed, site] and holder[message] != site:
                if count < len(found):
                    found[count, 0] = site
                    found[count, 1] = message
                count += 1
    return count


@compiled
def find_spells(kinds: Any, begin: int, end: int, first_delivery: int) -> Any:
    """The spells of a site that hold deliveries, as pairs of places among the deliveries."""
    spells = [(first_delivery, first_delivery) for _ in range(0)]
    spell_begin = place = first_delivery
    for entry in range(begin, end):
        if kinds[entry] == 4:
            place += 1
        elif kinds[entry] == 1:
            if place > spell_begin:
                spells.append((spell_begin, place))
            spell_begin = place
    if place > spell_begin:
        spells.append((spell_begin, place))
    return spells


@compiled
def absent_sites(kinds: Any, starts: Any, sites: int) -> Any:
    """Which sites have absent rows."""
    absent = np.zeros(sites, np.bool_)
    for site in range(len(starts) - 1):
        for entry in range(starts[site], starts[site + 1]):
            if kinds[entry] == 1:
                absent[site] = True
                break
    return absent


@compiled
def lacking_between(
    held: Any, low: int, high: int, site: int, position: Any, placed: Any, destination_set: Any, sets: Any
) -> Any:
    """Messages addressed to the site that are placed between two places and are not among those held."""
    here = np.zeros(max(high - low, 0) + 1, np.bool_)
    for message in held:
        if low <= position[message] <= high:
            here[position[message] - low] = True
    lacking = [low for _ in range(0)]
    for place in range(low + 1, high):
        message = placed[place]
        if here[place - low] or message >= len(destination_set):
            continue
        if destination_set[message] >= 0 and sets[destination_set[message], site]:
            lacking.append(message)
    return np.array(lacking, np.int32)


@compiled
def on_paths(
    first: Any, last: Any, low: int, high: int, offsets: Any, targets: Any, position: Any, candidates: Any
) -> Any:
    """Which candidates lie on a path from one of the first messages to one of the last.

    `low` is the least place of the first ones, `high` the greatest of the last. `offsets` and `targets` list,
    by place, the places that arcs lead to; all of them lead forward.
    """
    after = np.zeros(high - low + 1, np.bool_)
    before = np.zeros(high - low + 1, np.bool_)
    for message in first:
        if position[message] <= high:
            after[position[message] - low] = True
    for message in last:
        if position[message] >= low:
            before[position[message] - low] = True
    for place in range(low, high):
        if after[place - low]:
            for slot in range(offsets[place], offsets[place + 1]):
                if targets[slot] <= high:
                    after[targets[slot] - low] = True
    for place in range(high - 1, low - 1, -1):
        for slot in range(offsets[place], offsets[place + 1]):
            if targets[slot] <= high and before[targets[slot] - low]:
                before[place - low] = True
                break
    kept = np.zeros(len(candidates), np.bool_)
    for index in range(len(candidates)):
        place = position[candidates[index]] - low
        kept[index] = after[place] and before[place]
    return kept


@compiled
def lacking_in_numbers(
    delivered: Any,
    begin: int,
    end: int,
    site: int,
    part_of: Any,
    parts: int,
    first: Any,
    destination_set: Any,
    sets: Any,
) -> Any:
    """Missing messages numbered between two of their part that the spell holds, with those deliveries.

    A part is the messages of one sender in one domain.
    """
    least, greatest = np.full(parts, -1, np.int64), np.full(parts, -1, np.int64)
    for place in range(begin, end):
        part = part_of[delivered[place]]
        if least[part] < 0 or delivered[place] < delivered[least[part]]:
            least[part] = place
        if greatest[part] < 0 or delivered[place] > delivered[greatest[part]]:
            greatest[part] = place
    lacking = [(begin, begin, begin) for _ in range(0)]
    here = set(delivered[begin:end])
    for part in range(parts):
        if least[part] < 0:
            continue
        for message in range(delivered[least[part]] + 1, delivered[greatest[part]]):
            addressed = destination_set[message]
            if part_of[message] != part or first[message] < 0 or addressed < 0:
                continue
            if sets[addressed, site] and message not in here:
                lacking.append((message, least[part], greatest[part]))
    return lacking
