"""The compiled kernel of the store-and-forward tree: it moves messages from hop to hop.

`antiphon.sim.transit`, the only user of this module, describes the model.

There is one event a hop. A link needs none to fall free, since its next start is the later of now and when it
falls free. A router's service is constant, so that a message needs an event only at the end of it, and a
second one if the router turns out to have been busy. Queue lengths come from the starts that each link still
has before it, forgotten when they have passed.

Events of one moment happen in a fixed order that depends on nothing but the model: routers' outputs, hosts'
outputs, arrivals at hosts, hand-overs to protocols; within each by node, then by the message's serial
number, which counts the sends.

Memory is a few integer arrays. What is full stops the kernel between two events, its caller enlarges it, and
the kernel goes on; rows of messages that are done with are used again.
"""

from typing import Final, NamedTuple

from antiphon.core.compiled import in_place, inlined
from antiphon.core.time import NEVER_NS
from antiphon.sim.tree import IntegerArray

LEAST_SEND_NS: Final = 338_000
"""The host's sending time for an empty message."""

# Kinds of events, in the order in which those of one moment happen.
ROUTED: Final = 0  # the router, which was busy, has served a message: it enters its links
ROUTE: Final = 1  # the router would have served a message by now, had it been idle
SENT: Final = 2  # the host has finished sending
REACHED: Final = 3  # a message reaches a host that it is for: its processor takes it when it can
HANDED: Final = 4  # the host has finished receiving: an arrival

# An event's key holds its kind, node and serial number, so that comparing keys compares those in turn.
KIND_SHIFT: Final = 60
NODE_SHIFT: Final = 38
NODE_MASK: Final = (1 << (KIND_SHIFT - NODE_SHIFT)) - 1
MAXIMUM_NODES: Final = NODE_MASK + 1

# Scalars of the control array: first the model's parameters, then the state, then the statistics.
BANDWIDTH, PROPAGATION, ROUTER, BUFFER, MEMBERS = range(5)
EVENTS, SERIAL, TAKEN, ARRIVALS, CLOCK, NEXT = range(5, 11)
FREE_SLOT, FREE_SLOTS, FREE_START, FREE_STARTS = range(11, 15)
ENQUEUED, DROPPED, RECORDS, QUEUE_SUM, QUEUE_MAX, NODE_SUM, NODE_MAX = range(15, 22)
EVENTS_PER_STEP, STARTS_PER_STEP = range(22, 24)  # the most events and waiting starts that an event adds
CONTROL_LENGTH: Final = 24

# Columns of the other arrays.
PARENT, FIRST_CHILD, CHILDREN, ENTER, SIZE, BELOW, SITE, PROCESSOR, ROUTING = range(9)
FREE, HEAD, TAIL, WAITING = range(4)  # of a link: when it falls free, the starts before it
SOURCE_ENTER, TARGET, TRANSMIT, RECEIVE, NUMBER, COPIES, NEXT_SLOT, SOURCE_SITE = range(8)  # of a message
START, NEXT_START = range(2)
SEND_NOW, SEND_NODE, SEND_TARGET, SEND_SIZE = range(4)
NODE_COLUMNS, LINK_COLUMNS, MESSAGE_COLUMNS, START_COLUMNS, SEND_COLUMNS = 9, 4, 8, 2, 4

EVERYONE: Final = -1
"""The target that means every other member; targets from -2 down stand for sets of sites."""
NOTHING: Final = -1

# What the kernel answers.
DONE, GROW = range(2)


class State(NamedTuple):
    """The kernel's memory. Link 2x leads from node x up to its parent, link 2x+1 down to x."""

    control: IntegerArray
    heap: IntegerArray
    nodes: IntegerArray
    links: IntegerArray
    messages: IntegerArray
    starts: IntegerArray
    sends: IntegerArray
    arrivals: IntegerArray
    sets: IntegerArray


# The heap of events: rows of time, key and message slot


@in_place
def _rise(heap: IntegerArray, place: int, time: int, key: int, slot: int) -> None:
    """Put an event into the gap at a place, or above it where it comes before what is there."""
    while place > 0:
        above = (place - 1) >> 1
        if heap[above, 0] < time or (heap[above, 0] == time and heap[above, 1] < key):
            break
        heap[place, 0], heap[place, 1], heap[place, 2] = heap[above, 0], heap[above, 1], heap[above, 2]
        place = above
    heap[place, 0], heap[place, 1], heap[place, 2] = time, key, slot


@in_place
def _push(
    control: IntegerArray,
    heap: IntegerArray,
    messages: IntegerArray,
    time: int,
    kind: int,
    node: int,
    slot: int,
) -> None:
    key = (kind << KIND_SHIFT) | (node << NODE_SHIFT) | messages[slot, NUMBER]
    place = control[EVENTS]
    control[EVENTS] = place + 1
    _rise(heap, place, time, key, slot)


@inlined
def _drop_first(control: IntegerArray, heap: IntegerArray) -> None:
    """Remove the heap's first event.

    The gap sinks to the bottom along the earlier children and the last event rises from there: it belongs
    near the bottom, and choosing a child without branching is what makes this fast.
    """
    last = control[EVENTS] - 1
    control[EVENTS] = last
    place, child = 0, 1
    while child + 1 < last:
        later = (heap[child + 1, 0] < heap[child, 0]) | (
            (heap[child + 1, 0] == heap[child, 0]) & (heap[child + 1, 1] < heap[child, 1])
        )
        child += int(later)
        heap[place, 0], heap[place, 1], heap[place, 2] = heap[child, 0], heap[child, 1], heap[child, 2]
        place, child = child, 2 * child + 1
    if child < last:
        heap[place, 0], heap[place, 1], heap[place, 2] = heap[child, 0], heap[child, 1], heap[child, 2]
        place = child
    _rise(heap, place, heap[last, 0], heap[last, 1], heap[last, 2])


# Which way a message goes


@in_place
def _position(sets: IntegerArray, first: int, last: int, enter: int) -> int:
    """How many of the sorted places sets[first:last] lie before `enter`."""
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if sets[middle] < enter:
            low = middle + 1
        else:
            high = middle
    return low - first


@in_place
def _destinations(sets: IntegerArray, target: int, enter: int, size: int) -> int:
    """How many destinations of a set lie in the part of the walk that begins at `enter`.

    A set is stored as the place of its end, then its destinations' places in the walk, sorted.
    """
    first = -2 - target
    last = sets[first]
    return _position(sets, first + 1, last, enter + size) - _position(sets, first + 1, last, enter)


@in_place
def _below(nodes: IntegerArray, sets: IntegerArray, target: int, node: int) -> int:
    """How many destinations of a multicast lie in a node's sub-tree."""
    if target == EVERYONE:
        return int(nodes[node, BELOW])
    return _destinations(sets, target, nodes[node, ENTER], nodes[node, SIZE])


@in_place
def _total(control: IntegerArray, sets: IntegerArray, target: int) -> int:
    if target == EVERYONE:
        return int(control[MEMBERS])
    return int(sets[-2 - target]) - (-2 - target) - 1


@in_place
def _is_destination(nodes: IntegerArray, sets: IntegerArray, target: int, node: int) -> bool:
    if target >= 0:
        return bool(target == node)
    if target == EVERYONE:
        return bool(nodes[node, SITE] != NOTHING)
    return _destinations(sets, target, nodes[node, ENTER], 1) > 0


@in_place
def _holds(nodes: IntegerArray, node: int, enter: int) -> bool:
    """Whether the node at a place of the walk lies in a node's sub-tree."""
    return bool(0 <= enter - nodes[node, ENTER] < nodes[node, SIZE])


@inlined
def _leads_on(
    control: IntegerArray,
    nodes: IntegerArray,
    messages: IntegerArray,
    sets: IntegerArray,
    slot: int,
    node: int,
) -> bool:
    """Whether a message that came to a node has destinations beyond it."""
    target = messages[slot, TARGET]
    if target >= 0:
        return bool(target != node)
    source = messages[slot, SOURCE_ENTER]
    beyond = _below(nodes, sets, target, node) - (1 if _is_destination(nodes, sets, target, node) else 0)
    if _holds(nodes, node, source):
        beyond += _total(control, sets, target) - _below(nodes, sets, target, node)
        first = nodes[node, FIRST_CHILD]
        for child in range(first, first + nodes[node, CHILDREN]):
            if _holds(nodes, child, source):
                beyond -= _below(nodes, sets, target, child)
    return bool(beyond > 0)


# Links and their queues


@inlined
def _queue_length(
    control: IntegerArray, links: IntegerArray, starts: IntegerArray, link: int, time: int
) -> int:
    """How many messages wait at a link; starts that have passed are forgotten on the way."""
    while links[link, WAITING] > 0 and starts[links[link, HEAD], START] <= time:
        first = links[link, HEAD]
        links[link, HEAD] = starts[first, NEXT_START]
        links[link, WAITING] -= 1
        starts[first, NEXT_START] = control[FREE_START]
        control[FREE_START] = first
        control[FREE_STARTS] += 1
    return int(links[link, WAITING])


@inlined
def _remember_start(
    control: IntegerArray, links: IntegerArray, starts: IntegerArray, link: int, start: int
) -> None:
    place = control[FREE_START]
    control[FREE_START] = starts[place, NEXT_START]
    control[FREE_STARTS] -= 1
    starts[place, START] = start
    starts[place, NEXT_START] = NOTHING
    if links[link, WAITING] == 0:
        links[link, HEAD] = place
    else:
        starts[links[link, TAIL], NEXT_START] = place
    links[link, TAIL] = place
    links[link, WAITING] += 1


@inlined
def _record(control: IntegerArray, queue: int, node_queue: int) -> None:
    control[RECORDS] += 1
    control[QUEUE_SUM] += queue
    control[QUEUE_MAX] = max(control[QUEUE_MAX], queue)
    control[NODE_SUM] += node_queue
    control[NODE_MAX] = max(control[NODE_MAX], node_queue)


@inlined
def _other_queues(
    control: IntegerArray,
    nodes: IntegerArray,
    links: IntegerArray,
    starts: IntegerArray,
    node: int,
    link: int,
    time: int,
) -> int:
    """The queues of a node's other links, together."""
    total = 0
    if link != 2 * node:
        total += _queue_length(control, links, starts, 2 * node, time)
    first = nodes[node, FIRST_CHILD]
    for child in range(first, first + nodes[node, CHILDREN]):
        if link != 2 * child + 1:
            total += _queue_length(control, links, starts, 2 * child + 1, time)
    return total


@inlined
def _enter_link(
    control: IntegerArray,
    heap: IntegerArray,
    nodes: IntegerArray,
    links: IntegerArray,
    messages: IntegerArray,
    starts: IntegerArray,
    sets: IntegerArray,
    slot: int,
    node: int,
    link: int,
    far: int,
    time: int,
) -> None:
    """Enqueue a message on a link, or drop it, and schedule what happens at the far node."""
    queue = _queue_length(control, links, starts, link, time)
    if queue >= control[BUFFER]:
        control[DROPPED] += 1
        return
    start = max(time, links[link, FREE])
    end = start + messages[slot, TRANSMIT]
    links[link, FREE] = end
    control[ENQUEUED] += 1
    if start > time:
        _remember_start(control, links, starts, link, start)
        queue += 1
    _record(control, queue, queue + _other_queues(control, nodes, links, starts, node, link, time))
    arrival = end + control[PROPAGATION]
    if _is_destination(nodes, sets, messages[slot, TARGET], far):
        messages[slot, COPIES] += 1
        _push(control, heap, messages, arrival, REACHED, far, slot)
    if _leads_on(control, nodes, messages, sets, slot, far):
        messages[slot, COPIES] += 1
        _push(control, heap, messages, arrival + control[ROUTER], ROUTE, far, slot)


@inlined
def _leads_up(
    control: IntegerArray, nodes: IntegerArray, sets: IntegerArray, target: int, source: int, node: int
) -> bool:
    """Whether a message at a node has destinations above it, away from its source."""
    if target >= 0:
        return not _holds(nodes, node, nodes[target, ENTER])
    return _holds(nodes, node, source) and _total(control, sets, target) > _below(nodes, sets, target, node)


@inlined
def _leads_down(nodes: IntegerArray, sets: IntegerArray, target: int, source: int, child: int) -> bool:
    """Whether a message at a node has destinations below one of its children, away from its source."""
    if target >= 0:
        return _holds(nodes, child, nodes[target, ENTER])
    return not _holds(nodes, child, source) and _below(nodes, sets, target, child) > 0


@inlined
def _pass_on(
    control: IntegerArray,
    heap: IntegerArray,
    nodes: IntegerArray,
    links: IntegerArray,
    messages: IntegerArray,
    starts: IntegerArray,
    sets: IntegerArray,
    slot: int,
    node: int,
    time: int,
) -> None:
    """Let a message enter each of a node's links that leads to a destination, away from its source."""
    target, source = messages[slot, TARGET], messages[slot, SOURCE_ENTER]
    # The link up comes first, and there is one place that enters a link: what is inlined stays small.
    for branch in range(-1, nodes[node, CHILDREN]):
        if branch < 0:
            link, far = 2 * node, nodes[node, PARENT]
            leads = _leads_up(control, nodes, sets, target, source, node)
        else:
            far = nodes[node, FIRST_CHILD] + branch
            link = 2 * far + 1
            leads = _leads_down(nodes, sets, target, source, far)
        if leads:
            _enter_link(control, heap, nodes, links, messages, starts, sets, slot, node, link, far, time)
            if target >= 0:
                break


# Events


@inlined
def _release(control: IntegerArray, messages: IntegerArray, slot: int) -> None:
    """One copy of a message is done with; the slot of the last one is free again."""
    messages[slot, COPIES] -= 1
    if messages[slot, COPIES] == 0:
        messages[slot, NEXT_SLOT] = control[FREE_SLOT]
        control[FREE_SLOT] = slot
        control[FREE_SLOTS] += 1


@in_place
def _accept(
    control: IntegerArray,
    heap: IntegerArray,
    nodes: IntegerArray,
    messages: IntegerArray,
    sends: IntegerArray,
) -> None:
    """Take the next of what hosts send: it occupies its host's processor."""
    row = control[TAKEN]
    control[TAKEN] = row + 1
    now, node, size = sends[row, SEND_NOW], sends[row, SEND_NODE], sends[row, SEND_SIZE]
    slot = control[FREE_SLOT]
    control[FREE_SLOT] = messages[slot, NEXT_SLOT]
    control[FREE_SLOTS] -= 1
    messages[slot, SOURCE_ENTER] = nodes[node, ENTER]
    messages[slot, SOURCE_SITE] = nodes[node, SITE]
    messages[slot, TARGET] = sends[row, SEND_TARGET]
    messages[slot, TRANSMIT] = (16_000_000_000 * size + control[BANDWIDTH]) // (2 * control[BANDWIDTH])
    messages[slot, RECEIVE] = 371_800 + (517 * size + 2) // 4
    messages[slot, NUMBER] = control[SERIAL]
    messages[slot, COPIES] = 1
    control[SERIAL] += 1
    done = max(now, nodes[node, PROCESSOR]) + LEAST_SEND_NS + (235 * size + 1) // 2
    nodes[node, PROCESSOR] = done
    _push(control, heap, messages, done, SENT, node, slot)


@inlined
def _must_wait(
    control: IntegerArray,
    heap: IntegerArray,
    nodes: IntegerArray,
    messages: IntegerArray,
    slot: int,
    node: int,
    time: int,
) -> bool:
    """Whether the router to which a message came one service time ago was busy; then it serves it later."""
    service = control[ROUTER]
    done = max(time - service, nodes[node, ROUTING]) + service
    nodes[node, ROUTING] = done
    if done == time:
        return False
    messages[slot, COPIES] += 1
    _push(control, heap, messages, done, ROUTED, node, slot)
    return True


@inlined
def _occupy_processor(
    control: IntegerArray,
    heap: IntegerArray,
    nodes: IntegerArray,
    messages: IntegerArray,
    slot: int,
    node: int,
    time: int,
) -> None:
    """A host begins to receive a message as soon as its processor is free."""
    done = max(time, nodes[node, PROCESSOR]) + messages[slot, RECEIVE]
    nodes[node, PROCESSOR] = done
    messages[slot, COPIES] += 1
    _push(control, heap, messages, done, HANDED, node, slot)


@inlined
def _step(
    control: IntegerArray,
    heap: IntegerArray,
    nodes: IntegerArray,
    links: IntegerArray,
    messages: IntegerArray,
    starts: IntegerArray,
    sets: IntegerArray,
    kind: int,
    node: int,
    slot: int,
    time: int,
) -> None:
    """One event other than a hand-over."""
    if kind == REACHED:
        _occupy_processor(control, heap, nodes, messages, slot, node, time)
    elif kind != ROUTE or not _must_wait(control, heap, nodes, messages, slot, node, time):
        _pass_on(control, heap, nodes, links, messages, starts, sets, slot, node, time)
        target = messages[slot, TARGET]
        # A host that sends to itself receives what it has sent without any link.
        if kind == SENT and target != EVERYONE and _is_destination(nodes, sets, target, node):
            messages[slot, COPIES] += 1
            _push(control, heap, messages, time, REACHED, node, slot)


@in_place
def _short_of_memory(control: IntegerArray, heap: IntegerArray) -> bool:
    events_left = len(heap) - control[EVENTS]
    return bool(events_left < control[EVENTS_PER_STEP] or control[FREE_STARTS] < control[STARTS_PER_STEP])


@in_place
def _next_send_ns(control: IntegerArray, sends: IntegerArray, count: int) -> int:
    return int(sends[control[TAKEN], SEND_NOW]) if control[TAKEN] < count else NEVER_NS


@inlined
def _move(
    control: IntegerArray,
    heap: IntegerArray,
    nodes: IntegerArray,
    links: IntegerArray,
    messages: IntegerArray,
    starts: IntegerArray,
    sends: IntegerArray,
    arrivals: IntegerArray,
    sets: IntegerArray,
    count: int,
    limit_ns: int,
    most: int,
) -> int:
    """Work events off up to the limit, or to the end of the moment in which enough arrivals are together.

    A send is taken at the end of its own moment. If not even one arrival is asked for, this is a repetition:
    it goes on to the limit and hands nothing over.
    """
    found, bound = 0, limit_ns + 1
    while True:
        send_ns = _next_send_ns(control, sends, count)
        edge = min(bound - 1, send_ns) + 1
        while control[EVENTS] > 0 and heap[0, 0] < edge:
            time, key, slot = heap[0, 0], heap[0, 1], heap[0, 2]
            kind, node = key >> KIND_SHIFT, (key >> NODE_SHIFT) & NODE_MASK
            if kind != HANDED and _short_of_memory(control, heap):
                return GROW
            control[CLOCK] = time
            _drop_first(control, heap)
            if kind != HANDED:
                _step(control, heap, nodes, links, messages, starts, sets, kind, node, slot, time)
            elif most > 0:
                arrivals[found, 0] = time
                arrivals[found, 1] = nodes[node, SITE]
                arrivals[found, 2] = messages[slot, SOURCE_SITE]
                arrivals[found, 3] = messages[slot, NUMBER]
                found += 1
                control[ARRIVALS] = found
                if found >= most:
                    bound = edge = time + 1
            _release(control, messages, slot)
        if send_ns >= bound:
            return DONE
        if control[FREE_SLOTS] == 0 or control[EVENTS] == len(heap):
            return GROW
        _accept(control, heap, nodes, messages, sends)


@in_place
def advance_kernel(
    control: IntegerArray,
    heap: IntegerArray,
    nodes: IntegerArray,
    links: IntegerArray,
    messages: IntegerArray,
    starts: IntegerArray,
    sends: IntegerArray,
    arrivals: IntegerArray,
    sets: IntegerArray,
    count: int,
    limit_ns: int,
    most: int,
) -> int:
    """Move on, taking sends up to row `count`, until `most` arrivals are together, at most to the limit.

    The arrays come one by one because numba unpacks them faster than a tuple, and bundled inside.
    """
    control[ARRIVALS] = 0
    answer = _move(
        control, heap, nodes, links, messages, starts, sends, arrivals, sets, count, limit_ns, most
    )
    control[NEXT] = heap[0, 0] if control[EVENTS] > 0 else NEVER_NS
    return answer


@in_place
def started_later(links: IntegerArray, starts: IntegerArray, time: int) -> int:
    """How many transmissions that have been planned begin after a moment."""
    later = 0
    for link in range(len(links)):
        place = links[link, HEAD]
        for _ in range(links[link, WAITING]):
            if starts[place, START] > time:
                later += 1
            place = starts[place, NEXT_START]
    return later
