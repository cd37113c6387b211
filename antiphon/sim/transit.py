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
more than a hop, so the network runs ahead: while nobody answers arrivals with a send, it hands over ever more
of them at once. A send at a moment that it has passed takes it back: it restores the state that it kept when
it began to run ahead, moves to the moment of the send, and withdraws the later arrivals from the list that
the world is reading. So running ahead changes the speed and nothing else, whatever the world does.
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
"""How many times as many it hands over the next time, as long as nobody answers."""
NO_PDU: Final = Pdu()
SEND_BYTES: Final = 8 * SEND_COLUMNS
pack_send: Final = struct.Struct("=4q").pack_into
"""Writes a row of sends: moment, node, target and size, in the order of the columns."""


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

    def __post_init__(self) -> None:
        if self.bandwidth_bits_per_s < 1:
            raise UsageError("A link needs a bandwidth of at least 1 bit/s.")
        if self.propagation_ns < 0 or self.router_ns < 1:
            raise UsageError("A link's latency cannot be negative, and a router takes at least 1 ns.")
        if self.buffer_messages is not None and self.buffer_messages < 0:
            raise UsageError("A link's buffer cannot hold fewer than no messages.")
        if self.longest_reach < 1:
            raise UsageError("The network hands over at least one arrival at a time.")


class Traffic(NamedTuple):
    """What the network has counted up to a moment."""

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
        self._state = _prepare(tree, self._hosts, model)
        self._pdus = [NO_PDU] * len(self._state.messages)
        """By the kernel's slots, which know everything else of a message."""
        self._pending: list[Pdu] = []
        self._longest_reach = model.longest_reach
        self._reach = 1
        self._batch: list[Arrival] = []
        self._batch_ns: Nanoseconds = -1
        """The moment of the last arrival handed over."""
        self._kept: State | None = None
        """The state before the network ran ahead, while it is ahead."""
        self._spare = _copied(self._state, self._state)
        """Memory to keep a state in: asking the system for it anew each time costs more than the copy."""
        self._look()

    # What the world asks

    def send(self, now: Nanoseconds, source: int, targets: Sequence[int] | None, pdu: Pdu, size: int) -> None:
        """Take a PDU; it is handed to the kernel with the next advance."""
        if now <= self._batch_ns:
            self._reach = 1
        if self._kept is not None:
            self._go_back(now)
        waiting = len(self._pending)
        if waiting == self._room:
            self._state = self._state._replace(sends=_doubled(self._state.sends))
            self._look()
        if targets is None:
            target = EVERYONE
        else:
            target = self._hosts[targets[0]] if len(targets) == 1 else self._set_of(targets)
        pack_send(self._sends, SEND_BYTES * waiting, now, self._hosts[source], target, size)
        self._pending.append(pdu)

    def next_ns(self) -> Nanoseconds:
        if self._pending:
            first_ns = int(self._state.sends[0, hops.SEND_NOW])
            return min(self._control[hops.NEXT], first_ns + hops.LEAST_SEND_NS)
        return self._control[hops.NEXT]

    def advance(self, limit_ns: Nanoseconds) -> Sequence[Arrival]:
        """The next arrivals. A send while the world is reading them withdraws those later than it."""
        reach = self._reach
        if reach > 1:
            self._take_sends()
            self._kept = self._spare = _copied(self._state, self._spare)
        else:
            self._kept = None
        count = self._move(limit_ns, reach)
        if count:
            # If nobody answers these, the network may run further ahead the next time.
            self._reach = min(max(FIRST_REACH, REACH_FACTOR * reach), self._longest_reach)
        times, targets, sources, slots = self._state.arrivals[:count].T.tolist()
        self._batch = list(map(Arrival, times, targets, sources, map(self._pdus.__getitem__, slots)))
        self._batch_ns = times[-1] if count else limit_ns
        return self._batch

    def network_messages(self) -> int:
        """Transmissions started up to the last arrival, or up to the last limit that nothing reached."""
        return self.traffic(self._batch_ns).hop_messages

    def traffic(self, at_ns: Nanoseconds) -> Traffic:
        """What has been counted up to a moment, from the world's present one on."""
        if self._kept is not None:
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
        while True:
            answer = advance_kernel(*self._state, len(self._pending), limit_ns, most)
            if self._pending and answer != hops.NOT_TAKEN:
                self._file_sends()
            if answer != hops.DONE:
                self._grow()
            count = self._control[hops.ARRIVALS]
            if count or answer == hops.DONE:
                return count

    def _go_back(self, now: Nanoseconds) -> None:
        """Undo what the network did ahead of a moment, and withdraw the arrivals later than it."""
        assert self._kept is not None
        if self._control[hops.CLOCK] <= now:
            return
        del self._batch[bisect_right(self._batch, now, key=_time_of) :]
        self._spare = self._state
        self._state, self._kept = self._kept._replace(sends=self._state.sends), None
        self._look()
        while self._move(now, len(self._state.arrivals)) and self._control[hops.NEXT] <= now:
            pass  # what it stopped for, to grow, has been handed over before
        self._batch_ns = now

    def _take_sends(self) -> None:
        """Hand over what is pending and nothing else, so that it is part of the state that is kept."""
        while self._pending:
            self._move(-1, 1)

    def _file_sends(self) -> None:
        """File what was handed over under the slots that the kernel chose."""
        slots = self._state.sends[: len(self._pending), hops.SEND_SLOT]
        for slot, pdu in zip(slots.tolist(), self._pending, strict=True):
            self._pdus[slot] = pdu
        self._pending.clear()

    def _set_of(self, targets: Sequence[int]) -> int:
        """The target that stands for a set of sites; sets stay known, since protocols use a few of them."""
        key = tuple(targets)
        if key not in self._sets:
            places = sorted({self._enter[site] for site in key})
            first = len(self._state.sets)
            added = np.array([first + 1 + len(places), *places], np.int64)
            self._state = self._state._replace(sets=np.concatenate([self._state.sets, added]))
            self._sets[key] = -2 - first
        return self._sets[key]

    # Memory

    def _look(self) -> None:
        """Python reads and writes single numbers faster through views of the arrays."""
        self._control = self._state.control.data
        self._sends = self._state.sends.reshape(-1).data.cast("B")
        self._room = len(self._state.sends)

    def _grow(self) -> None:
        """Double what has become short; the kernel goes on where it stopped."""
        state = self._state
        wanted = len(self._pending) + hops.EVENTS_PER_STEP
        while len(state.heap) - state.control[hops.EVENTS] < wanted:
            state = state._replace(heap=_doubled(state.heap))
        while state.control[hops.FREE_SLOTS] < wanted:
            state = state._replace(messages=_doubled(state.messages))
            _chain(state.messages, hops.NEXT_SLOT, state.control, hops.FREE_SLOT, len(state.messages) // 2)
        if state.control[hops.FREE_STARTS] < hops.STARTS_PER_STEP:
            state = state._replace(starts=_doubled(state.starts))
            _chain(state.starts, hops.NEXT_START, state.control, hops.FREE_START, len(state.starts) // 2)
        self._pdus.extend([NO_PDU] * (len(state.messages) - len(self._pdus)))
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
        sets=np.zeros(0, np.int64),
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
    names = ("control", "heap", "nodes", "links", "messages", "starts")
    return state._replace(**{name: _copy_into(getattr(spare, name), getattr(state, name)) for name in names})


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
