"""The compiled network against a deliberately simple twin, batching against none, and worked examples."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.effects import Effect, Multicast, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site, site_names
from antiphon.core.inputs import Input, Received, TimerFired
from antiphon.core.time import NEVER_NS
from antiphon.core.wire import Pdu
from antiphon.sim import transit
from antiphon.sim.network import Arrival
from antiphon.sim.transit import Traffic, TreeModel, TreeNetwork
from antiphon.sim.tree import Fill, Shape, Tree, draw_members, grow_tree
from antiphon.sim.world import World

MILLISECOND_NS = 1_000_000
LATER_NS = NEVER_NS - 1


class Note(Pdu, frozen=True):
    """What travels in these tests: a name, and how often it may still be answered."""

    name: int
    answers: int = 0


Asked = tuple[int, int, tuple[int, ...] | None, Note, int]
"""What a network is asked to send."""
Life = tuple[int, Site, Input]


def answer_to(arrival: Arrival, sites: int) -> list[Asked]:
    """What a site sends at once on an arrival: a function of the arrival alone."""
    note = arrival.pdu
    assert isinstance(note, Note)
    if note.answers == 0:
        return []
    draw = Random(f"{arrival.time_ns}/{arrival.target}/{note.name}")
    target = draw.randrange(sites)
    reply = Note(draw.randrange(1 << 30), note.answers - 1)
    return [(arrival.time_ns, arrival.target, (target,), reply, draw.randrange(300))]


def run_kernel(
    tree: Tree, hosts: Sequence[int], model: TreeModel, sends: list[Asked], at_ns: int
) -> tuple[list[Arrival], Traffic | None]:
    """All arrivals, and the traffic as seen at the first arrival from `at_ns` on."""
    network = TreeNetwork(tree, hosts, model)
    waiting = sorted(sends, key=lambda send: send[0])
    arrivals: list[Arrival] = []
    traffic = None
    while True:
        # The outside world's sends bound how far the network may go, as the heap of the world does.
        if waiting and waiting[0][0] <= network.next_ns():
            network.send(*waiting.pop(0))
            continue
        batch = network.advance(waiting[0][0] - 1 if waiting else LATER_NS)
        if not batch and not waiting:
            return arrivals, traffic
        for arrival in batch:
            arrivals.append(arrival)
            for send in answer_to(arrival, len(hosts)):
                network.send(*send)
            if traffic is None and arrival.time_ns >= at_ns:
                traffic = network.traffic(arrival.time_ns)


def run_twin(
    tree: Tree, hosts: Sequence[int], model: TreeModel, sends: list[Asked], at_ns: int
) -> tuple[list[Arrival], Traffic | None]:
    """The model as its description reads, an event for each thing that happens, nothing clever."""
    order = {"start": 0, "routed": 1, "sent": 2, "come": 3, "reached": 4, "handed": 5, "outside": 6, "ask": 7}
    heap: list[tuple[int, int, int, int, str, Asked]] = []
    processor: dict[int, int] = defaultdict(int)
    router: dict[int, int] = defaultdict(int)
    link_free: dict[tuple[int, int], int] = defaultdict(int)
    queue: dict[tuple[int, int], int] = defaultdict(int)
    site_at = {node: site for site, node in enumerate(hosts)}
    neighbours = {
        node: ([int(tree.parent[node])] if node else []) + list(tree.children_of(node))
        for node in range(tree.nodes)
    }
    records: list[tuple[int, int]] = []
    started = dropped = serial = 0
    arrivals: list[Arrival] = []
    traffic: Traffic | None = None
    asked = False

    def push(time: int, kind: str, node: int, number: int, send: Asked) -> None:
        heappush(heap, (time, order[kind], node, number, kind, send))

    def destinations(send: Asked) -> set[int]:
        sites = range(len(hosts)) if send[2] is None else send[2]
        return {hosts[site] for site in sites if not (send[2] is None and site == send[1])}

    def behind(node: int, back: int) -> set[int]:
        """The nodes that one comes to from `back` through `node`."""
        found = {node}
        for onward in neighbours[node]:
            if onward != back:
                found |= behind(onward, node)
        return found

    def towards(node: int, goal: int) -> int:
        return next(near for near in neighbours[node] if goal in behind(near, node))

    def onward(node: int, send: Asked) -> list[int]:
        source = hosts[send[1]]
        ways = [near for near in neighbours[node] if behind(near, node) & (destinations(send) - {source})]
        return ways if node == source else [near for near in ways if near != towards(node, source)]

    def enqueue(time: int, node: int, number: int, send: Asked) -> None:
        nonlocal dropped
        for near in onward(node, send):
            link = (node, near)
            if model.buffer_messages is not None and queue[link] >= model.buffer_messages:
                dropped += 1
                continue
            start = max(time, link_free[link])
            transmit = round(send[4] * 8 * 10**9 / model.bandwidth_bits_per_s)
            link_free[link] = start + transmit
            queue[link] += 1
            push(start, "start", near, number, (node, *send[1:]))  # the link's near end in place of the time
            if start == time:
                drain(time)
            records.append((queue[link], sum(queue[node, other] for other in neighbours[node])))
            push(link_free[link] + model.propagation_ns, "come", near, number, send)

    def drain(time: int) -> None:
        """Transmissions that start now have left their queues before anything else is seen."""
        nonlocal started
        while heap and heap[0][0] == time and heap[0][4] == "start":
            _, _, near, _, _, (node, *_) = heappop(heap)
            queue[node, near] -= 1
            started += 1

    for place, send in enumerate(sorted(sends, key=lambda send: send[0])):
        push(send[0], "outside", place, 0, send)
    while heap:
        time, _, node, number, kind, send = heappop(heap)
        if kind == "start":
            queue[send[0], node] -= 1
            started += 1
        elif kind in ("outside", "ask"):
            source, size = hosts[send[1]], send[4]
            done = max(send[0], processor[source]) + 338_000 + (235 * size + 1) // 2
            processor[source] = done
            push(done, "sent", source, serial, send)
            serial += 1
        elif kind == "sent":
            enqueue(time, node, number, send)
            if send[2] is not None and node in destinations(send):
                push(time, "reached", node, number, send)
        elif kind == "come":
            if node in destinations(send):
                push(time, "reached", node, number, send)
            if onward(node, send):
                router[node] = max(time, router[node]) + model.router_ns
                push(router[node], "routed", node, number, send)
        elif kind == "routed":
            enqueue(time, node, number, send)
        elif kind == "reached":
            processor[node] = max(time, processor[node]) + 371_800 + (517 * send[4] + 2) // 4
            push(processor[node], "handed", node, number, send)
        else:
            arrival = Arrival(time, site_at[node], send[1], send[3])
            arrivals.append(arrival)
            for place, reply in enumerate(answer_to(arrival, len(hosts))):
                push(time, "ask", node, place, reply)
            asked = asked or time >= at_ns
        if asked and traffic is None and (not heap or heap[0][:2] > (time, order["start"])):
            traffic = _traffic(started, dropped, records)
    return arrivals, traffic


def _traffic(started: int, dropped: int, records: list[tuple[int, int]]) -> Traffic:
    links, nodes = [link for link, _ in records], [node for _, node in records]
    count = max(len(records), 1)
    return Traffic(
        started, dropped, sum(links) / count, max(links, default=0), sum(nodes) / count, max(nodes, default=0)
    )


def draw_run(seed: int, buffer_messages: int | None) -> tuple[Tree, list[int], TreeModel, list[Asked], int]:
    """A tree, its hosts, a model and sends that crowd in time, drawn from a seed."""
    draw = Random(seed)
    fill: Fill = draw.choice(["even", "left"])
    shape: Shape = draw.choice(["tree", "tree", "star", "chain"])
    tree = grow_tree(draw.randint(2, 40), fill, shape)
    hosts = list(range(tree.nodes))
    if draw.random() < 0.5:
        members = draw.randint(2, tree.nodes)
        hosts = draw_members(tree, members, np.random.default_rng(seed))
    model = TreeModel(bandwidth_bits_per_s=draw.choice([30_000, 1_000_000]), buffer_messages=buffer_messages)
    sends: list[Asked] = []
    moments = [draw.randrange(200 * MILLISECOND_NS) for _ in range(10)]
    for name in range(draw.randint(1, 40)):
        source = draw.randrange(len(hosts))
        others: tuple[int, ...] | None = None
        if draw.random() < 0.7:
            others = tuple(draw.sample(range(len(hosts)), draw.randint(1, min(3, len(hosts)))))
        sends.append(
            (draw.choice(moments), source, others, Note(name, draw.randint(0, 2)), draw.randrange(300))
        )
    return tree, hosts, model, sends, draw.choice(moments)


@pytest.mark.slow
@pytest.mark.parametrize("buffer_messages", [None, 2, 64])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_kernel_equals_simple_twin(buffer_messages: int | None, seed: int) -> None:
    tree, hosts, model, sends, at_ns = draw_run(seed, buffer_messages)
    assert run_kernel(tree, hosts, replace(model, longest_reach=1), sends, at_ns) == run_twin(
        tree, hosts, model, sends, at_ns
    )


@pytest.mark.slow
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=25)
def test_a_send_takes_effect_when_all_else_of_its_moment_has_happened(seed: int) -> None:
    tree, hosts, model, sends, at_ns = draw_run(seed, None)
    arrivals, _ = run_twin(tree, hosts, model, sends, at_ns)
    receive_ns = {send[3].name: 371_800 + (517 * send[4] + 2) // 4 for send in sends}
    # Sends at the very moments at which their hosts begin to receive, or have received, something.
    for arrival in arrivals[:20]:
        assert isinstance(arrival.pdu, Note)
        for moment in (arrival.time_ns, arrival.time_ns - receive_ns.get(arrival.pdu.name, 0)):
            sends.append((moment, arrival.target, (0,), Note(1000 + len(sends)), 0))
    expected = run_twin(tree, hosts, model, sends, at_ns)
    for reach in (1, 1024):
        assert run_kernel(tree, hosts, replace(model, longest_reach=reach), sends, at_ns) == expected


@pytest.mark.slow
@pytest.mark.parametrize("buffer_messages", [None, 2])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=200)
def test_batching_changes_nothing(buffer_messages: int | None, seed: int) -> None:
    tree, hosts, model, sends, at_ns = draw_run(seed, buffer_messages)
    one_by_one = run_kernel(tree, hosts, replace(model, longest_reach=1), sends, at_ns)
    assert run_kernel(tree, hosts, model, sends, at_ns) == one_by_one


class Talker:
    """A member that answers some arrivals at once, some after a while and most not at all.

    What it does is a function of what happened to it, so that two worlds that differ in nothing but the
    network's speed give it the same life.
    """

    def __init__(self, site: Site, sites: Sequence[Site], seed: int, lives: list[Life]) -> None:
        self.site, self.sites, self.seed, self.lives = site, sites, seed, lives
        self.timers = 0

    def handle(self, now: int, event: Input) -> list[Effect]:
        self.lives.append((now, self.site, event))
        draw = Random(f"{self.seed}/{now}/{self.site}/{len(self.lives)}")
        if isinstance(event, Received):
            assert isinstance(event.pdu, Note)
            return self.answer(draw, event.pdu.answers - 1) if event.pdu.answers else []
        if isinstance(event, TimerFired):
            return self.talk(draw, int(event.name[1:]))
        return self.later(draw, 2) + self.later(draw, 3)

    def answer(self, draw: Random, answers: int) -> list[Effect]:
        choice = draw.random()
        if choice < 0.1:
            return self.talk(draw, answers)
        return self.later(draw, answers) if choice < 0.3 else []

    def talk(self, draw: Random, answers: int) -> list[Effect]:
        """Speak to a few, sometimes to all or to some by one multicast, and now and then again later."""
        note = Note(draw.randrange(1 << 30), answers)
        if draw.random() < 0.2:
            to = None if draw.random() < 0.3 else tuple(draw.sample(self.sites, 2))
            return [Multicast(note, to, hops=draw.choice([None, None, 1, 3]))]
        effects: list[Effect] = [Send(draw.choice(self.sites), note) for _ in range(draw.randint(1, 4))]
        return effects + (self.later(draw, answers) if draw.random() < 0.7 and self.timers < 12 else [])

    def later(self, draw: Random, answers: int) -> list[Effect]:
        self.timers += 1
        after_ns = draw.choice([0, 1, draw.randrange(MILLISECOND_NS), draw.randrange(300 * MILLISECOND_NS)])
        return [SetTimer(f"{draw.choice('abc')}{answers}", after_ns)]


def live(seed: int, **knobs: int) -> tuple[list[Life], Traffic]:
    """A world of talkers on a drawn tree: all that happened to them, and the traffic at its end."""
    tree, hosts, model, _, _ = draw_run(seed, Random(seed).choice([None, 3]))
    network = TreeNetwork(tree, hosts, replace(model, **knobs))
    sites, lives = site_names(len(hosts)), list[Life]()
    world = World(
        sites=sites,
        build=lambda site: Talker(site, sites, seed, lives),
        network=network,
        size_of=lambda pdu: 20 + (pdu.name % 200 if isinstance(pdu, Note) else 0),
    )
    world.start()
    world.run(20_000 * MILLISECOND_NS)
    return lives, network.traffic(world.now)


@pytest.mark.slow
@pytest.mark.parametrize("longest_log", [1, 3, 20, 1 << 20])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=30)
def test_checkpoints_change_nothing(longest_log: int, seed: int) -> None:
    # Little room at first, so that memory also grows between a checkpoint and going back to it.
    with patch.object(transit, "FIRST_ROWS", 12), patch.object(transit, "FIRST_SETS", 8):
        expected = live(seed, longest_reach=1)
        assert live(seed, longest_log=longest_log) == expected


def test_network_runs_ahead_while_nobody_answers() -> None:
    network = TreeNetwork(grow_tree(2), range(2))
    for _ in range(40):
        network.send(0, 1, (0,), Note(1), 232)
    assert [len(network.advance(LATER_NS)) for _ in range(3)] == [1, 32, 7]


def test_a_send_withdraws_the_arrivals_later_than_it() -> None:
    network = TreeNetwork(grow_tree(2), range(2))
    for name in range(10):
        network.send(0, 1, (0,), Note(name), 232)
    (first,) = network.advance(LATER_NS)
    ahead = network.advance(LATER_NS)
    second = ahead[0]
    assert len(ahead) == 9
    network.send(second.time_ns, 0, (1,), Note(99), 32)
    assert ahead == [second]
    again: list[Arrival] = []
    while batch := network.advance(LATER_NS):
        again += batch
    names = [arrival.pdu.name for arrival in [first, second, *again] if isinstance(arrival.pdu, Note)]
    assert sorted(names) == [*range(10), 99]
    assert names.index(99) == 2


def test_unicast_over_two_links_takes_what_the_text_says() -> None:
    network = TreeNetwork(grow_tree(3), range(3))
    network.send(7, 1, (2,), Note(1), 232)
    send_ns, receive_ns = 338_000 + 27_260, 401_786
    hop_ns = 61_866_667 + 5 * MILLISECOND_NS
    expected_ns = 7 + send_ns + hop_ns + MILLISECOND_NS + hop_ns + receive_ns
    assert network.advance(LATER_NS) == [Arrival(expected_ns, 2, 1, Note(1))]
    assert network.network_messages() == 2


def test_multicast_uses_each_link_once_and_reaches_every_other_site() -> None:
    network = TreeNetwork(grow_tree(40), range(40))
    network.send(0, 17, None, Note(1), 32)
    arrivals: list[Arrival] = []
    while batch := network.advance(LATER_NS):
        arrivals += batch
    assert sorted(arrival.target for arrival in arrivals) == [site for site in range(40) if site != 17]
    assert network.network_messages() == 39


def test_multicast_enters_only_links_that_lead_to_members() -> None:
    # Of the tree 0-(1,2,3), 1-(4,5,6) only the nodes 0, 4 and 6 have members.
    network = TreeNetwork(grow_tree(7, "left"), [0, 4, 6])
    network.send(0, 1, None, Note(1), 32)
    while network.advance(LATER_NS):
        pass
    assert network.network_messages() == 3


def test_hop_messages_count_transmissions_started_up_to_the_moment() -> None:
    network = TreeNetwork(grow_tree(2), range(2))
    for _ in range(3):
        network.send(0, 1, (0,), Note(1), 232)
    (first,) = network.advance(LATER_NS)
    # The first message has come by now and the second is on the wire; the third still waits.
    assert network.traffic(first.time_ns).hop_messages == 2
    assert network.advance(first.time_ns + 62 * MILLISECOND_NS)
    assert network.network_messages() == 3


def test_queue_excludes_the_message_in_transmission() -> None:
    network = TreeNetwork(grow_tree(2), range(2))
    for _ in range(4):
        network.send(0, 1, (0,), Note(1), 232)
    while network.advance(LATER_NS):
        pass
    traffic = network.traffic(LATER_NS)
    assert (traffic.queue_mean, traffic.queue_max) == ((0 + 1 + 2 + 3) / 4, 3)
    assert (traffic.queue_node_mean, traffic.queue_node_max) == (1.5, 3)


def test_full_buffer_drops_what_finds_it_full() -> None:
    network = TreeNetwork(grow_tree(2), range(2), TreeModel(buffer_messages=64))
    for _ in range(100):
        network.send(0, 1, (0,), Note(1), 232)
    arrived = 0
    while batch := network.advance(LATER_NS):
        arrived += len(batch)
    # A hundred sends take 36 ms, less than one transmission: one is under way and 64 wait.
    assert arrived == 65
    assert network.traffic(LATER_NS).dropped == 35


def test_memory_does_not_grow_with_the_messages_sent() -> None:
    network = TreeNetwork(grow_tree(13), range(13))
    now = 0
    for number in range(5_000):
        network.send(now, number % 13, None if number % 2 else (0,), Note(number), 32)
        while batch := network.advance(LATER_NS):
            now = batch[-1].time_ns
    assert len(network._pdus) <= 256
    assert len(network._state.heap) <= 256


def test_memory_grows_when_much_is_under_way() -> None:
    network = TreeNetwork(grow_tree(40), range(40))
    for number in range(2_000):
        network.send(0, number % 40, None if number % 20 == 0 else ((number + 1) % 40,), Note(number), 100)
    arrived = 0
    while batch := network.advance(LATER_NS):
        arrived += len(batch)
    assert arrived == 1_900 + 100 * 39


def test_limit_is_respected_and_inclusive() -> None:
    network = TreeNetwork(grow_tree(2), range(2))
    network.send(0, 0, (1,), Note(1), 32)
    arrival_ns = 338_000 + 3_760 + 8_533_333 + 5 * MILLISECOND_NS + 375_936
    assert network.next_ns() <= arrival_ns
    assert not network.advance(arrival_ns - 1)
    assert network.next_ns() == arrival_ns
    assert network.advance(arrival_ns) == [Arrival(arrival_ns, 1, 0, Note(1))]
    assert network.next_ns() == NEVER_NS


@pytest.mark.parametrize(
    ("hosts", "words"), [([0, 0], "one node"), ([0, 9], "no place"), ([-1], "no place")], ids=str
)
def test_hosts_must_fit_the_tree(hosts: list[int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TreeNetwork(grow_tree(4), hosts)


@pytest.mark.parametrize(
    "knobs",
    [
        {"bandwidth_bits_per_s": 0},
        {"propagation_ns": -1},
        {"router_ns": 0},
        {"buffer_messages": -1},
        {"longest_reach": 0},
        {"longest_log": 0},
    ],
    ids=str,
)
def test_model_refuses_nonsense(knobs: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        TreeModel(**knobs)


def test_a_send_beyond_the_limit_is_not_forgotten() -> None:
    network = TreeNetwork(grow_tree(2), range(2))
    network.send(1000, 0, (1,), Note(1), 32)
    assert not network.advance(999)
    assert 1000 < network.next_ns() < LATER_NS
    assert [arrival.pdu for arrival in network.advance(LATER_NS)] == [Note(1)]


def test_a_send_in_the_moment_of_the_last_arrival_is_not_forgotten() -> None:
    network = TreeNetwork(grow_tree(2), range(2))
    network.send(0, 0, (1,), Note(1), 32)
    arrival_ns = 338_000 + 3_760 + 8_533_333 + 5 * MILLISECOND_NS + 375_936
    assert not network.advance(arrival_ns - 1)
    network.send(arrival_ns, 1, (0,), Note(2), 32)
    assert network.advance(LATER_NS) == [Arrival(arrival_ns, 1, 0, Note(1))]
    assert arrival_ns < network.next_ns() < LATER_NS
    assert network.advance(LATER_NS) == [Arrival(2 * arrival_ns, 0, 1, Note(2))]


@pytest.mark.parametrize("fill", ["even", "left"])
def test_within_counts_links(fill: Fill) -> None:
    tree = grow_tree(60, fill)
    hosts = draw_members(tree, 25, np.random.default_rng(1))
    network = TreeNetwork(tree, hosts)
    for source, one in enumerate(hosts):
        above = [one, *tree.ancestors(one)]
        links = []
        for other in hosts:
            meeting = next(node for node in above if tree.below(other, node))
            links.append(int(tree.depth[one] + tree.depth[other] - 2 * tree.depth[meeting]))
        for hops in (0, 1, 2, 3, 5, 99):
            expected = tuple(site for site, far in enumerate(links) if 0 < far <= hops)
            assert network.within(source, hops) == network.within(source, hops) == expected


def test_memory_does_not_grow_with_the_sets_and_neighbourhoods_asked_for() -> None:
    with patch.object(transit, "FIRST_SETS", 64), patch.object(transit, "MOST_NEAR_SITES", 100):
        network = TreeNetwork(grow_tree(40), range(40))
        draw, now = Random(1), 0
        for number in range(2_000):
            to = tuple(draw.sample(range(40), 5))
            network.send(now, number % 40, to, Note(number), 32)
            network.within(number % 40, number % 5)
            reached: set[int] = set()
            while batch := network.advance(LATER_NS):
                now = batch[-1].time_ns
                reached |= {arrival.target for arrival in batch}
            assert reached == set(to)
            assert sum(1 + len(sites) for sites in network._near.values()) <= 100
        # A log of at most 256 sends follows a checkpoint, and sets are forgotten with it.
        assert len(network._state.sets) <= 4096
        assert len(network._sets) <= 300


def test_a_star_s_hub_passes_a_message_to_all_at_once() -> None:
    """A node may have more links than the text's four: the kernel's memory grows in time for all of them."""
    hub, hosts = grow_tree(500, shape="star"), range(500)
    sends: list[Asked] = [(0, source, None, Note(source), 36) for source in (0, 7, 499)]
    model = TreeModel(longest_reach=1)
    assert run_kernel(hub, hosts, model, sends, 0) == run_twin(hub, hosts, model, sends, 0)
