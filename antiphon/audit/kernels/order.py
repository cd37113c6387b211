"""Total order by intervals: the cycles of the graph of consecutive deliveries, in near-linear time.

First the sites' sequences are merged into one linear order L, as in Kahn's algorithm: a message is placed as
soon as it is at the head of every sequence that still contains it. If no message is, there is a cycle: each
head is preceded by another head, and following them backwards leads round. Then the head that the fewest
sequences hold up is placed by force, and the merge goes on. If no force was needed, every arc leads forward
in L: the graph has no cycle, and L is the proof. Otherwise some arcs may lead backward.

Every cycle has an arc that leads backward in L. Take the intervals of L that the backward arcs span, and
merge those that overlap. Across a gap between merged intervals all arcs lead forward, so no cycle crosses
it: each cycle lies within one merged interval. So Tarjan's algorithm need only look at the messages inside
the intervals, and the arcs within one interval. Each step is linear; with few violations the last steps
touch few messages.
"""

from typing import Any

import numpy as np

from antiphon.core.compiled import compiled


@compiled
def strands(delivered: Any, starts: Any, groups: Any, rows: Any, messages: int) -> Any:
    """Lanes as sequences without ties.

    Where rows share a step, the first stays in the lane's own sequence, between two barriers, and each other
    one becomes a sequence between the same barriers. Barriers are numbered from `messages` on. Returns the
    sequences, where each begins, the origin of each element (-1 for a barrier), and the number of nodes.
    """
    none = messages - messages
    sequence, origin, begins = [none for _ in range(0)], [none for _ in range(0)], [none for _ in range(0)]
    nodes = messages
    for lane in range(len(starts) - 1):
        begin = len(sequence)
        begins.append(begin)
        side = [(none, none, none, none) for _ in range(0)]
        place, end = starts[lane], starts[lane + 1]
        while place < end:
            stop = place
            while stop < end and groups[stop] == groups[place]:
                stop += 1
            tied = rows[stop - 1] != rows[place]
            before, after = -1, -1
            if tied and len(sequence) > begin:
                if origin[-1] >= 0:
                    sequence.append(nodes)
                    origin.append(-1)
                    nodes += 1
                before = sequence[-1]
            if tied and stop < end:
                after = nodes
                nodes += 1
            first = place
            for at in range(place, stop):
                if rows[at] == rows[place]:
                    sequence.append(delivered[at])
                    origin.append(at)
                elif rows[at] != rows[at - 1]:
                    if rows[at - 1] != rows[place]:
                        side.append((first, at, before, after))
                    first = at
            if tied:
                side.append((first, stop, before, after))
            if after >= 0:
                sequence.append(after)
                origin.append(-1)
            place = stop
        for first, stop, before, after in side:
            begins.append(len(sequence))
            if before >= 0:
                sequence.append(before)
                origin.append(-1)
            for at in range(first, stop):
                sequence.append(delivered[at])
                origin.append(at)
            if after >= 0:
                sequence.append(after)
                origin.append(-1)
    begins.append(len(sequence))
    return np.array(sequence, np.int32), np.array(begins, np.int64), np.array(origin, np.int64), nodes


@compiled
def first_difference(own: Any, others: Any, groups: Any, rows: Any) -> Any:
    """The first element of `own` that comes before an earlier one in `others`; the last of these, and it.

    `own` and `others` are the places of the same messages in two lanes, ascending in the first. Deliveries
    that share a step but no row are unordered.
    """
    highest = np.empty(len(own), np.int64)
    for second in range(len(own)):
        highest[second] = others[second] if second == 0 else max(highest[second - 1], others[second])
        first = second - 1
        while first >= 0 and highest[first] > others[second]:
            if (
                others[first] > others[second]
                and _are_ordered(own[first], own[second], groups, rows)
                and _are_ordered(others[first], others[second], groups, rows)
            ):
                return first, second
            first -= 1
    return -1, -1


@compiled
def _are_ordered(one: int, other: int, groups: Any, rows: Any) -> bool:
    return not len(groups) or groups[one] != groups[other] or rows[one] == rows[other]


@compiled
def _count_holders(delivered: Any, starts: Any, messages: int) -> Any:
    """The number of sites' sequences that contain each message."""
    holders = np.zeros(messages, np.int32)
    last = np.full(messages, -1, np.int32)
    for site in range(len(starts) - 1):
        for place in range(starts[site], starts[site + 1]):
            message = delivered[place]
            if last[message] != site:
                last[message] = site
                holders[message] += 1
    return holders


@compiled
def _easiest_head(delivered: Any, starts: Any, pointer: Any, missing: Any) -> int:
    """The message at the head of a sequence that the fewest other sequences hold up."""
    best = -1
    for site in range(len(pointer)):
        if pointer[site] < starts[site + 1]:
            message = delivered[pointer[site]]
            if best < 0 or missing[message] < missing[best]:
                best = message
    return best


@compiled
def merge(delivered: Any, starts: Any, messages: int) -> Any:
    """The place of each message in L (-1 if delivered nowhere), how many there are, and whether all arcs lead
    forward for certain."""
    sites = len(starts) - 1
    position = np.full(messages, -1, np.int32)
    missing = _count_holders(delivered, starts, messages)
    waiting = np.full(messages, -1, np.int32)
    next_waiting = np.full(sites, -1, np.int32)
    pointer = starts[:-1].copy()
    ready = np.empty(sites + 1, np.int32)
    moving = np.empty(sites, np.int32)
    ready_count, placed, certain = 0, 0, True
    moving_count = sites
    for site in range(sites):
        moving[site] = sites - 1 - site
    while True:
        # Advance the sites whose head was just placed to their next message that is not placed yet.
        while moving_count:
            moving_count -= 1
            site = moving[moving_count]
            place = pointer[site]
            while place < starts[site + 1] and position[delivered[place]] >= 0:
                place += 1
                certain = False
            pointer[site] = place
            if place < starts[site + 1]:
                message = delivered[place]
                next_waiting[site] = waiting[message]
                waiting[message] = site
                missing[message] -= 1
                if missing[message] == 0:
                    ready[ready_count] = message
                    ready_count += 1
        if ready_count:
            ready_count -= 1
            message = ready[ready_count]
        else:
            message = _easiest_head(delivered, starts, pointer, missing)
            if message < 0:
                return position, placed, certain
            certain = False
        position[message] = placed
        placed += 1
        site = waiting[message]
        while site >= 0:
            pointer[site] += 1
            moving[moving_count] = site
            moving_count += 1
            site = next_waiting[site]


@compiled
def entangled_blocks(delivered: Any, starts: Any, position: Any, placed: int) -> Any:
    """For each place of L, the merged interval of backward arcs that contains it, or -1."""
    opening = np.zeros(placed + 1, np.int32)
    for site in range(len(starts) - 1):
        for place in range(starts[site] + 1, starts[site + 1]):
            before, after = position[delivered[place - 1]], position[delivered[place]]
            if after < before:
                opening[after] += 1
                opening[before] -= 1
    blocks = np.full(placed, -1, np.int32)
    block, depth = -1, 0
    for place in range(placed):
        if depth == 0 and opening[place] > 0:
            block += 1
        if depth > 0 or opening[place] > 0:
            blocks[place] = block
        depth += opening[place]
    return blocks


@compiled
def arcs_within(delivered: Any, starts: Any, position: Any, blocks: Any) -> Any:
    """The arcs inside the blocks, each as the delivery that ends it, in order of sites and steps."""
    count = 0
    for fill in range(2):
        arcs = np.empty(count if fill else 0, np.int64)
        count = 0
        for site in range(len(starts) - 1):
            for place in range(starts[site] + 1, starts[site + 1]):
                before, after = delivered[place - 1], delivered[place]
                block = blocks[position[before]]
                if before != after and block >= 0 and block == blocks[position[after]]:
                    if fill:
                        arcs[count] = place
                    count += 1
    return arcs


@compiled
def adjacency(tails: Any, heads: Any, nodes: int) -> Any:
    """Arcs grouped by tail: where each node's arcs begin, their heads, and their indices."""
    offsets = np.zeros(nodes + 1, np.int64)
    for tail in tails:
        offsets[tail + 1] += 1
    for node in range(nodes):
        offsets[node + 1] += offsets[node]
    free = offsets[:-1].copy()
    targets = np.empty(len(tails), np.int32)
    arcs = np.empty(len(tails), np.int64)
    for arc in range(len(tails)):
        slot = free[tails[arc]]
        targets[slot] = heads[arc]
        arcs[slot] = arc
        free[tails[arc]] += 1
    return offsets, targets, arcs


@compiled
def strong_components(offsets: Any, targets: Any) -> Any:
    """Each node's component, by Tarjan's algorithm without recursion."""
    nodes = len(offsets) - 1
    index = np.full(nodes, -1, np.int32)
    low = np.zeros(nodes, np.int32)
    component = np.full(nodes, -1, np.int32)
    following = offsets[:-1].copy()
    open_nodes, path = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    counter, opened, components = 0, 0, 0
    for root in range(nodes):
        if index[root] >= 0:
            continue
        path[0] = root
        depth = 1
        while depth:
            node = path[depth - 1]
            if index[node] < 0:
                index[node] = low[node] = counter
                counter += 1
                open_nodes[opened] = node
                opened += 1
            descended = False
            while following[node] < offsets[node + 1]:
                target = targets[following[node]]
                if index[target] < 0:
                    path[depth] = target
                    depth += 1
                    descended = True
                    break
                if component[target] < 0:
                    low[node] = min(low[node], low[target])
                following[node] += 1
            if descended:
                continue
            depth -= 1
            if low[node] == index[node]:
                while True:
                    opened -= 1
                    member = open_nodes[opened]
                    component[member] = components
                    if member == node:
                        break
                components += 1
    return component


@compiled
def cycle_through(start: int, offsets: Any, targets: Any, component: Any, came_by: Any, bound: int) -> Any:
    """A shortest cycle through a node within its component, as slots of `targets`; empty if none is below
    `bound`.

    `came_by` is all -1 before and after.
    """
    frontier = [start]
    touched = [start]
    length = 1
    last = -1
    while len(frontier) and length < bound and last < 0:
        following = [start for _ in range(0)]
        for node in frontier:
            for slot in range(offsets[node], offsets[node + 1]):
                target = targets[slot]
                if target == start:
                    last = slot
                    break
                if component[target] == component[start] and came_by[target] < 0:
                    came_by[target] = slot
                    touched.append(target)
                    following.append(target)
            if last >= 0:
                break
        frontier = following
        length += 1
    slots = [last for _ in range(1 if last >= 0 else 0)]
    while last >= 0:
        tail = np.searchsorted(offsets, last, side="right") - 1
        if tail == start:
            break
        last = came_by[tail]
        slots.append(last)
    for node in touched:
        came_by[node] = -1
    return np.array(slots, np.int64)[::-1]
