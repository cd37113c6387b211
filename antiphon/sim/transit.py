"""The store-and-forward tree as a network of the world.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 5.1 and 5.2.

The model. A host's processor is one serial server for sending (338 + 47u/400 microseconds for u bytes) and
receiving (1.1 times that). What a host has sent enters, at the end of the sending time, each of its node's
links that leads to a destination. Each direction of a link transmits one message at a time, first in first
out, for size x 8 / bandwidth; 5 ms after its transmission a message is at the far node. There the host's
processor receives it if the node is a destination, and the router (a second serial server, 1 ms a message)
passes it on if destinations lie beyond; both happen in parallel. Times are whole nanoseconds, rounded to
the nearest.

What is counted. A hop message is a transmission started. At each enqueue the link's queue is recorded, with
what was enqueued in it; the message in transmission is not in the queue, so an enqueue on an idle link
records 0. The node's sum over its links is recorded beside it. A link with a buffer limit drops what finds
its queue full; a drop is not an enqueue and records nothing. Lost gossips are not the network's business:
a protocol that must lose messages at its senders does not hand them over.

How it is fast. The hops are compiled (`antiphon.sim.hops`). Going to and fro between them and Python costs
more than a hop, so the network runs ahead: while no site answers arrivals with a send, it hands over more and
more of them at once. A send at a moment that it has passed takes it back: it restores a kept state, moves on
from there to the moment of the send, and withdraws the later arrivals from the list that the world is
reading. So running ahead changes the speed and nothing else, whatever the world does.

What makes going back cheap for runs that never do. A copy of the state costs far more than an advance, so it
is a rare checkpoint with a log of what was sent since. Nothing else is needed to repeat what happened: a send
takes effect at the end of its own moment, whenever the kernel learns of it, and the kernel is a function of
its state. To repeat the events since a checkpoint costs at most what they cost the first time, and going back
drops the checkpoint; so neither can happen more often than it pays.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from antiphon.core.errors import UsageError
from antiphon.core.time import MILLISECOND_NS, NEVER_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.sim import hops
from antiphon.sim.hops import EVERYONE, SEND_COLUMNS, State, advance_kernel
from antiphon.sim.network import Arrival
from antiphon.sim.tree import IntegerArray, Tree

BUFFER_MESSAGES: Final = 64
"""What a link's queue holds when buffers are limited (section 5.3.1)."""
FIRST_ROWS: Final = 256
"""How much of anything has room at first, or two for each site; what is short is doubled."""
FIRST_REACH: Final = 32
"""How many arrivals the network hands over at once when it begins to run ahead."""
REACH_FACTOR: Final = 4
"""Factor by which more arrivals are handed over the next time, while no site answers."""
FIRST_SETS: Final = 1 << 14
"""How many sites the sets of destinations may have together before those not in use are forgotten."""
MOST_NEAR_SITES: Final = 1 << 20
"""How many sites the remembered neighbourhoods may have together; raising it costs 8 bytes a site."""
SEND_BYTES: Final = 8 * SEND_COLUMNS
pack_send: Final = struct.Struct("=4q").pack_into
"""Writes a row of sends: moment, node, target and size, in the order of the columns."""
CHANGING: Final = ("control", "heap", "nodes", "links", "messages", "starts")
"""The parts of the state that the kernel changes while it moves on."""


@dataclass(frozen=True, kw_only=True)
class TreeModel:
    """The network's parameters; the defaults are the text's."""

    bandwidth_bits_per_s: int = 30_000
    propagation_ns: Nanoseconds = 5 * MILLISECOND_NS
    router_ns: Nanoseconds = MILLISECOND_NS
    buffer_messages: int | None = None
    """What a link's queue holds; None means that it never overflows."""
    longest_reach: int = 1024
    """How many arrivals the network may run ahead; 1 is slower and changes nothing."""
    longest_log: int | None = None
    """How many sends may follow a checkpoint; None means as many as there is room for messages.

    So a checkpoint costs each of them about as much as copying one message, however large the state is.
    """

    def __post_init__(self) -> None:
        if self.bandwidth_bits_per_s < 1:
            raise UsageError("A link needs a bandwidth of at least 1 bit/s.")
        if self.propagation_ns < 0 or self.router_ns < 1:
            raise UsageError("A link's latency cannot be negative, and a router takes at least 1 ns.")
        if self.buffer_messages is not None and self.buffer_messages < 0:
            raise UsageError("A link's buffer cannot hold fewer than no messages.")
        if self.longest_reach < 1:
            raise UsageError("The network hands over at least one arrival at a time.")
        if self.longest_log is not None and self.longest_log < 1:
            raise UsageError("The log after a checkpoint has room for at least one send.")


class Traffic(NamedTuple):
    """The network's counts up to a moment."""

    hop_messages: int
    dropped: int
    queue_mean: float
    queue_max: int
    queue_node_mean: float
    queue_node_max: int


class TreeNetwork:
    """The tree as the world sees it: site i of the world is the host at node hosts[i]."""

    def __init__(self, tree: Tree, hosts: Sequence[int], model: TreeModel | None = None) -> None:
        if len(set(hosts)) != len(hosts):
            raise UsageError("Two sites cannot be at one node of the tree.")
        if tree.nodes > hops.MAXIMUM_NODES or not all(0 <= node < tree.nodes for node in hosts):
            raise UsageError(f"The tree of {tree.nodes} nodes has no place for these sites.")
        model = model or TreeModel()
        self._hosts = list(hosts)
        self._enter = tree.enter[self._hosts].tolist()
        self._sets: dict[tuple[int, ...], int] = {}
        self._sets_end = 0
        self._most_sets = FIRST_SETS
        self._near: dict[tuple[int, int], tuple[int, ...]] = {}
        self._near_sites = 0
        self._state = _prepare(tree, self._hosts, model)
        self._pdus: dict[int, Pdu] = {}
        """By the messages' serial numbers; those that have come to their end are forgotten late."""
        self._most_pdus = FIRST_ROWS
        self._logged = 0
        """Rows of sends that are in use: those taken since the checkpoint, then those pending."""
        self._first_number = 0
        """The serial number of the message in the first of them."""
        self._taken = 0
        self._clock_ns: Nanoseconds = -1
        """The moment of the last event that the kernel has worked off."""
        self._next_ns: Nanoseconds = NEVER_NS
        self._longest_reach = model.longest_reach
        self._longest_log = model.longest_log
        self._reach = 1
        self._batch: list[Arrival] = []
        self._batch_ns: Nanoseconds = -1
        """The moment of the last arrival handed over."""
        self._kept: State | None = None
        """The checkpoint, if there is one; without one the network is never ahead of the world."""
        self._spare = self._state
        """Memory to keep a state in: asking the system for it anew each time costs more than the copy."""
        self._look()

    # Calls of the world

    def send(self, now: Nanoseconds, source: int, targets: Sequence[int] | None, pdu: Pdu, size: int) -> None:
        """Take a PDU; it is handed to the kernel with the next advance."""
        if now <= self._clock_ns:
            self._reach = 1
            self._go_back(now)
        if targets is None:
            target = EVERYONE
        else:
            target = self._hosts[targets[0]] if len(targets) == 1 else self._set_of(targets)
        row = self._logged
        if row == self._room:
            self._state = self._state._replace(sends=_doubled(self._state.sends))
            self._look()
        pack_send(self._sends, SEND_BYTES * row, now, self._hosts[source], target, size)
        self._pdus[self._first_number + row] = pdu
        self._logged = row + 1
        earliest_ns = now + hops.LEAST_SEND_NS
        if earliest_ns < self._next_ns:
            self._next_ns = earliest_ns

    def next_ns(self) -> Nanoseconds:
        return self._next_ns

    def advance(self, limit_ns: Nanoseconds) -> Sequence[Arrival]:
        """The next arrivals. A send while the world is reading them withdraws those later than it."""
        reach = self._reach
        if self._kept is None or self._logged > (self._longest_log or len(self._state.messages)):
            self._begin_log()
        if len(self._pdus) > self._most_pdus:
            self._forget_pdus()
        count = self._move(limit_ns, reach)
        if not count:
            self._batch_ns = limit_ns
            return ()
        # If no site answers these, the network may run further ahead the next time.
        self._reach = min(max(FIRST_REACH, REACH_FACTOR * reach), self._longest_reach)
        times, targets, sources, numbers = self._state.arrivals[:count].T.tolist()
        self._batch = list(map(Arrival, times, targets, sources, map(self._pdus.__getitem__, numbers)))
        self._batch_ns = times[-1]
        return self._batch

    def within(self, source: int, hops: int) -> tuple[int, ...]:
        """Found by walking the links, and remembered for the next time."""
        found = self._near.get((source, hops))
        if found is None:
            found = self._walk_around(source, hops)
            self._near_sites += 1 + len(found)
            if self._near_sites > MOST_NEAR_SITES:
                self._near.clear()
                self._near_sites = 1 + len(found)
            self._near[source, hops] = found
        return found

    def network_messages(self) -> int:
        """Transmissions started up to the last arrival, or up to the last limit that nothing reached."""
        return self.traffic(self._batch_ns).hop_messages

    def traffic(self, at_ns: Nanoseconds) -> Traffic:
        """The counts up to a moment, from the world's present moment on."""
        self._go_back(at_ns)
        tally = self._state.control.tolist()
        assert at_ns >= tally[hops.CLOCK] or not tally[hops.ENQUEUED], "what is past is forgotten"
        records = max(tally[hops.RECORDS], 1)
        later = hops.started_later(self._state.links, self._state.starts, at_ns)
        return Traffic(
            hop_messages=tally[hops.ENQUEUED] - later,
            dropped=tally[hops.DROPPED],
            queue_mean=tally[hops.QUEUE_SUM] / records,
            queue_max=tally[hops.QUEUE_MAX],
            queue_node_mean=tally[hops.NODE_SUM] / records,
            queue_node_max=tally[hops.NODE_MAX],
        )

    # Moving on and going back

    def _move(self, limit_ns: Nanoseconds, most: int) -> int:
        """Let the kernel work until there are arrivals or the limit is reached; how many arrivals."""
        count, answer = 0, hops.GROW
        while answer != hops.DONE and not count:
            answer = advance_kernel(*self._state, self._logged, limit_ns, most)
            self._taken, count, self._clock_ns, self._next_ns = self._outcome.tolist()
            if answer != hops.DONE:
                self._grow()
        if self._taken < self._logged:
            first_ns = self._sends[SEND_COLUMNS * self._taken + hops.SEND_NOW]
            self._next_ns = min(self._next_ns, first_ns + hops.LEAST_SEND_NS)
        return count

    def _begin_log(self) -> None:
        """Forget the sends that were taken, and take a checkpoint if the network is about to run ahead."""
        taken = self._taken
        if taken:
            self._state.sends[: self._logged - taken] = self._state.sends[taken : self._logged]
            self._logged -= taken
            self._first_number += taken
            self._taken = self._control[hops.TAKEN] = 0
        self._kept = None
        if self._sets_end > self._most_sets:
            self._forget_sets()
        if self._reach > 1:
            self._kept = self._spare = _copied(self._state, self._spare)

    def _forget_pdus(self) -> None:
        """Keep only the PDUs that are under way or pending; the network must not be ahead."""
        messages = self._state.messages
        wanted = messages[messages[:, hops.COPIES] > 0, hops.NUMBER].tolist()
        wanted += range(self._first_number + self._taken, self._first_number + self._logged)
        self._pdus = {number: self._pdus[number] for number in wanted}
        self._most_pdus = max(FIRST_ROWS, 2 * len(wanted))

    def _go_back(self, now: Nanoseconds) -> None:
        """Undo what the network did ahead of a moment, and withdraw the arrivals later than it."""
        if self._clock_ns <= now:
            return
        assert self._kept is not None, "without a checkpoint the network is not ahead"
        assert self._taken == self._logged, "what is pending has not happened yet, so nothing later has"
        del self._batch[bisect_right(self._batch, now, key=_time_of) :]
        self._spare = self._state
        self._state = self._kept._replace(sends=self._state.sends, sets=self._state.sets)
        self._kept = None
        self._look()
        self._move(now, 0)
        self._batch_ns = now

    # Which sites

    def _walk_around(self, source: int, links: int) -> tuple[int, ...]:
        """The other sites at most this many links away: each node leads on to all its neighbours but one."""
        sites: list[int] = []
        around = [(self._hosts[source], hops.NOTHING)]
        while around and links > 0:
            around = [(far, node) for node, back in around for far in self._neighbours(node) if far != back]
            sites += self._state.nodes[[node for node, _ in around], hops.SITE].tolist()
            links -= 1
        return tuple(sorted(site for site in sites if site != hops.NOTHING))

    def _neighbours(self, node: int) -> list[int]:
        parent, first, children = self._state.nodes[node, : hops.CHILDREN + 1].tolist()
        return [*range(first, first + children), *([parent] if node else [])]

    def _set_of(self, targets: Sequence[int]) -> int:
        """The target that stands for a set of sites; sets stay known, since protocols use a few of them."""
        key = tuple(targets)
        target = self._sets.get(key)
        if target is None:
            places = sorted({self._enter[site] for site in key})
            first, end = self._sets_end, self._sets_end + 1 + len(places)
            while end > len(self._state.sets):
                self._state = self._state._replace(sets=_doubled(self._state.sets))
            self._state.sets[first:end] = [end, *places]
            self._sets_end = end
            target = self._sets[key] = -2 - first
        return target

    def _forget_sets(self) -> None:
        """Keep only the sets of messages that are under way; there must be no checkpoint."""
        messages, sends = self._state.messages, self._state.sends[: self._logged]
        columns = messages[:, hops.TARGET], sends[:, hops.SEND_TARGET]
        used = set(columns[0][messages[:, hops.COPIES] > 0].tolist()) | set(columns[1].tolist())
        known, self._sets, self._sets_end = self._sets, {}, 0
        moved = {target: self._set_of(key) for key, target in known.items() if target in used}
        for column in columns:
            column[:] = [moved.get(target, target) for target in column.tolist()]
        self._most_sets = max(FIRST_SETS, 2 * self._sets_end)

    # Memory

    def _look(self) -> None:
        """Python reads and writes single numbers faster through views of the arrays."""
        self._control = self._state.control.data
        self._outcome = self._control[hops.TAKEN : hops.NEXT + 1]
        self._sends = self._state.sends.reshape(-1).data
        self._room = len(self._state.sends)

    def _grow(self) -> None:
        """Double the arrays that are full; the kernel continues where it stopped."""
        state = self._state
        if len(state.heap) - state.control[hops.EVENTS] < state.control[hops.EVENTS_PER_STEP]:
            state = state._replace(heap=_doubled(state.heap))
        if state.control[hops.FREE_SLOTS] == 0:
            state = state._replace(messages=_doubled(state.messages))
            _chain(state.messages, hops.NEXT_SLOT, state.control, hops.FREE_SLOT, len(state.messages) // 2)
        if state.control[hops.FREE_STARTS] < state.control[hops.STARTS_PER_STEP]:
            state = state._replace(starts=_doubled(state.starts))
            _chain(state.starts, hops.NEXT_START, state.control, hops.FREE_START, len(state.starts) // 2)
        self._state = state


def _time_of(arrival: Arrival) -> Nanoseconds:
    return arrival.time_ns


def _prepare(tree: Tree, hosts: Sequence[int], model: TreeModel) -> State:
    """The memory of a network in which nothing has happened yet."""
    rows = max(FIRST_ROWS, 2 * len(hosts))
    control = np.zeros(hops.CONTROL_LENGTH, np.int64)
    control[hops.BANDWIDTH] = model.bandwidth_bits_per_s
    control[hops.PROPAGATION], control[hops.ROUTER] = model.propagation_ns, model.router_ns
    control[hops.BUFFER] = NEVER_NS if model.buffer_messages is None else model.buffer_messages
    control[hops.MEMBERS], control[hops.NEXT] = len(hosts), NEVER_NS
    # A message may enter all links of a node at once, and takes two events for each.
    most_links = int(tree.children.max()) + 1
    control[hops.STARTS_PER_STEP], control[hops.EVENTS_PER_STEP] = most_links + 1, 2 * (most_links + 1)
    control[hops.FREE_SLOT] = control[hops.FREE_START] = hops.NOTHING
    state = State(
        control=control,
        heap=np.zeros((rows, 3), np.int64),
        nodes=_node_rows(tree, hosts),
        links=np.zeros((2 * tree.nodes, hops.LINK_COLUMNS), np.int64),
        messages=np.zeros((rows, hops.MESSAGE_COLUMNS), np.int64),
        # Starts that have passed are forgotten late, so there are more of them than messages.
        starts=np.zeros((2 * rows, hops.START_COLUMNS), np.int64),
        sends=np.zeros((rows, SEND_COLUMNS), np.int64),
        # A moment's arrivals stay together, and a site has at most one a moment.
        arrivals=np.zeros((model.longest_reach + len(hosts), 4), np.int64),
        sets=np.zeros(FIRST_ROWS, np.int64),
    )
    _chain(state.messages, hops.NEXT_SLOT, control, hops.FREE_SLOT, 0)
    _chain(state.starts, hops.NEXT_START, control, hops.FREE_START, 0)
    return state


def _node_rows(tree: Tree, hosts: Sequence[int]) -> IntegerArray:
    site = np.full(tree.nodes, hops.NOTHING, np.int64)
    site[list(hosts)] = np.arange(len(hosts))
    members_before = np.zeros(tree.nodes + 1, np.int64)
    members_before[tree.enter + 1] = site != hops.NOTHING
    members_before = np.cumsum(members_before)
    nodes = np.zeros((tree.nodes, hops.NODE_COLUMNS), np.int64)
    nodes[:, hops.PARENT], nodes[:, hops.FIRST_CHILD] = tree.parent, tree.first_child
    nodes[:, hops.CHILDREN], nodes[:, hops.ENTER], nodes[:, hops.SIZE] = tree.children, tree.enter, tree.size
    nodes[:, hops.BELOW] = members_before[tree.enter + tree.size] - members_before[tree.enter]
    nodes[:, hops.SITE] = site
    return nodes


def _copied(state: State, spare: State) -> State:
    """A copy of what the kernel changes while it moves on, in the memory of a state that is done with."""
    parts = {name: _copy_into(getattr(spare, name), getattr(state, name)) for name in CHANGING}
    return state._replace(**parts)


def _copy_into(spare: IntegerArray, array: IntegerArray) -> IntegerArray:
    if spare is array or spare.shape != array.shape:
        return array.copy()
    np.copyto(spare, array)
    return spare


def _doubled(array: IntegerArray) -> IntegerArray:
    return np.concatenate([array, np.zeros_like(array)])


def _chain(rows: IntegerArray, column: int, control: IntegerArray, free: int, first: int) -> None:
    """Put the rows from `first` on in front of the chain of free ones, and count them."""
    rows[first:, column] = np.arange(first + 1, len(rows) + 1)
    rows[-1, column] = control[free]
    control[free] = first
    control[free + 1] += len(rows) - first
