"""How fast the simulator moves messages: CoordP's round at n=500 dense, beside the same model in SimPy.

Run it with `make bench-sim`, or `python bench/sim.py [--json]`. Five measurements of each alternate, so that
a machine that slows down slows both; each repeats the round and takes the median of its times. A figure is
hop messages per second of processor time: transmissions started up to the round's end, over the time of the
round alone. Setting up (the tree, the network's memory, 500 protocol objects or 500 SimPy hosts) is left out
for both; the figures with it are printed too.

Ours is the very thing that studies run: the world, the compiled tree network and CoordP objects, without a
trace. The SimPy model is written as SimPy's guides teach: a message in transit is a process, and links,
routers and host processors are resources of capacity 1. It records what ours records: mean and maximum of
the links' queues and of the nodes' sums. Its protocol is the bare minimum: the coordinator counts ACKs and
folds their arrays. Both must agree on all that they counted, or the bench fails.

What the ratio depends on: the machine's load touches both sides alike, the Python version does not (SimPy is
all interpreter). CoordP is a hard case for ours, since each ACK ends in a Python call after about five hops.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import simpy

from antiphon.core.time import to_seconds
from antiphon.sim.scenarios.coordp import CoordPRound, CoordPStudy
from antiphon.sim.tree import IntegerArray, Tree, grow_tree

MEMBERS: Final = 500
SENDERS: Final = 50
REPEATS: Final = 5
OURS_S: Final = 0.5
SIMPY_S: Final = 0.7
"""How long each measurement lasts at least, so that five take at least 2 s and 3 s."""
TARGET: Final = 30.0
TOLERANCE: Final = 0.001

START_BYTES: Final = 32
ACK_BYTES: Final = 32 + 4 * SENDERS
PROPAGATION_NS: Final = 5_000_000
ROUTER_NS: Final = 1_000_000
BANDWIDTH: Final = 30_000

Process = Generator[Any, Any, None]


@dataclass(frozen=True)
class Outcome:
    """What a simulated round must agree on."""

    tpr_s: float
    hop_messages: int
    queue_mean: float
    queue_max: int
    queue_node_mean: float
    queue_node_max: int


class OurRound:
    """The round as the studies run it, stopped at its end."""

    def __init__(self) -> None:
        self.round = CoordPRound(CoordPStudy(members=MEMBERS, senders=SENDERS), seed=1)
        world = self.round.world
        world.on_stable = lambda _now, _host, _effect: world.stop()

    def run(self) -> None:
        self.round.run()

    def outcome(self) -> Outcome:
        now = self.round.world.now
        self.round.world.on_stable = None  # it refers to the world, which is not to outlive its use
        traffic = self.round.network.traffic(now)
        return Outcome(
            to_seconds(now),
            traffic.hop_messages,
            traffic.queue_mean,
            traffic.queue_max,
            traffic.queue_node_mean,
            traffic.queue_node_max,
        )


class SimPyRound:
    """The same round: hosts, routers and links as resources, messages as processes."""

    def __init__(self) -> None:
        self.env = simpy.Environment()
        self.tree: Tree = grow_tree(MEMBERS)
        self.parent = self.tree.parent.tolist()
        self.children = [list(self.tree.children_of(node)) for node in range(MEMBERS)]
        self.processor = [simpy.Resource(self.env) for _ in range(MEMBERS)]
        self.router = [simpy.Resource(self.env) for _ in range(MEMBERS)]
        self.up = [simpy.Resource(self.env) for _ in range(MEMBERS)]
        self.down = [simpy.Resource(self.env) for _ in range(MEMBERS)]
        self.held = np.random.default_rng(1).integers(1, 100, size=(MEMBERS, SENDERS))
        self.stable: IntegerArray = self.held[0].copy()
        self.missing = MEMBERS - 1
        self.over = self.env.event()
        self.links = [
            [self.up[node], *(self.down[child] for child in self.children[node])] for node in range(MEMBERS)
        ]
        self.hops = self.records = 0
        self.queue_sum = self.queue_max = self.node_sum = self.node_max = 0

    def run(self) -> None:
        self.env.process(self.start())
        self.env.run(until=self.over)

    def outcome(self) -> Outcome:
        return Outcome(
            self.env.now / 1e9,
            self.hops,
            self.queue_sum / self.records,
            self.queue_max,
            self.node_sum / self.records,
            self.node_max,
        )

    def occupy(self, server: simpy.Resource, duration_ns: int) -> Process:
        with server.request() as turn:
            yield turn
            yield self.env.timeout(duration_ns)

    def transmit(self, node: int, link: simpy.Resource, size: int) -> Process:
        with link.request() as turn:
            self.record(len(link.queue), sum([len(each.queue) for each in self.links[node]]))
            yield turn
            self.hops += 1
            yield self.env.timeout(round(size * 8e9 / BANDWIDTH))
        yield self.env.timeout(PROPAGATION_NS)

    def record(self, queue: int, node_queue: int) -> None:
        self.records += 1
        self.queue_sum += queue
        self.queue_max = max(self.queue_max, queue)
        self.node_sum += node_queue
        self.node_max = max(self.node_max, node_queue)

    def start(self) -> Process:
        """Step 1: the coordinator multicasts START."""
        yield from self.occupy(self.processor[0], send_ns(START_BYTES))
        for child in self.children[0]:
            self.env.process(self.spread(child))

    def spread(self, node: int) -> Process:
        """START crosses the link to a node, which receives it and passes it on at the same time."""
        yield from self.transmit(self.parent[node], self.down[node], START_BYTES)
        self.env.process(self.answer(node))
        if self.children[node]:
            yield from self.occupy(self.router[node], ROUTER_NS)
            for child in self.children[node]:
                self.env.process(self.spread(child))

    def answer(self, node: int) -> Process:
        """Step 2: a member receives START and sends its ACK, which climbs to the root."""
        yield from self.occupy(self.processor[node], receive_ns(START_BYTES))
        yield from self.occupy(self.processor[node], send_ns(ACK_BYTES))
        place = node
        while True:
            yield from self.transmit(place, self.up[place], ACK_BYTES)
            place = self.parent[place]
            if place == 0:
                break
            yield from self.occupy(self.router[place], ROUTER_NS)
        yield from self.occupy(self.processor[0], receive_ns(ACK_BYTES))
        np.minimum(self.stable, self.held[node], out=self.stable)
        self.missing -= 1
        if self.missing == 0:
            self.over.succeed()


def send_ns(size: int) -> int:
    return round(338_000 + 117.5 * size)


def receive_ns(size: int) -> int:
    return round(1.1 * (338_000 + 117.5 * size))


@dataclass(frozen=True)
class Measurement:
    """Hop messages a second: of the round alone, and with setting up."""

    hops_per_s: float
    hops_per_s_with_setup: float


def measure(build: Callable[[], Any], at_least_s: float) -> Measurement:
    """Repeat the round until its own time adds up, and take the median: a shared machine has bad moments."""
    rounds: list[float] = []
    with_setup: list[float] = []
    hops = 0
    gc.collect()
    while sum(rounds) < at_least_s:
        began = time.process_time()
        simulated = build()
        ready = time.process_time()
        simulated.run()
        ended = time.process_time()
        hops = simulated.outcome().hop_messages
        rounds.append(ended - ready)
        with_setup.append(ended - began)
    return Measurement(hops / statistics.median(rounds), hops / statistics.median(with_setup))


def agreement(ours: Outcome, theirs: Outcome) -> bool:
    """Whether all that both counted is the same, but for the rounding of times."""
    pairs = zip(asdict(ours).values(), asdict(theirs).values(), strict=True)
    return all(abs(mine - other) <= TOLERANCE * other for mine, other in pairs)


def outcome_of(build: Callable[[], Any]) -> Outcome:
    """Run once, which also compiles what must be compiled."""
    simulated = build()
    simulated.run()
    outcome: Outcome = simulated.outcome()
    return outcome


def spread_of(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    ours, theirs = outcome_of(OurRound), outcome_of(SimPyRound)
    pairs = [(measure(OurRound, OURS_S), measure(SimPyRound, SIMPY_S)) for _ in range(REPEATS)]
    figures: dict[str, Any] = {
        "ours": asdict(ours),
        "simpy": asdict(theirs),
        "agree": agreement(ours, theirs),
        "ours_hops_per_s": spread_of([pair[0].hops_per_s for pair in pairs]),
        "simpy_hops_per_s": spread_of([pair[1].hops_per_s for pair in pairs]),
        "ratio": spread_of([a.hops_per_s / b.hops_per_s for a, b in pairs]),
        "ours_hops_per_s_with_setup": spread_of([pair[0].hops_per_s_with_setup for pair in pairs]),
        "simpy_hops_per_s_with_setup": spread_of([pair[1].hops_per_s_with_setup for pair in pairs]),
        "ratio_with_setup": spread_of([a.hops_per_s_with_setup / b.hops_per_s_with_setup for a, b in pairs]),
        "target": TARGET,
    }
    print(json.dumps(figures) if as_json else table(figures))
    if not figures["agree"]:
        print("The two models do not agree: the figures mean nothing.", file=sys.stderr)
    return 0 if figures["agree"] and figures["ratio"]["median"] >= TARGET else 1


def table(figures: dict[str, Any]) -> str:
    lines = [f"CoordP, one round, n={MEMBERS} dense, m={SENDERS}: median of {REPEATS} (least to most)"]
    for name, words in (
        ("ours_hops_per_s", "Antiphon, hops a second"),
        ("simpy_hops_per_s", "SimPy, hops a second"),
        ("ratio", "ratio"),
        ("ours_hops_per_s_with_setup", "Antiphon, with set-up"),
        ("simpy_hops_per_s_with_setup", "SimPy, with set-up"),
        ("ratio_with_setup", "ratio, with set-up"),
    ):
        value = figures[name]
        digits = 1 if name.startswith("ratio") else 0
        shown = [f"{value[key]:,.{digits}f}" for key in ("median", "least", "most")]
        lines.append(f"  {words:<26} {shown[0]:>10}  ({shown[1]} to {shown[2]})")
    for name, words in (("ours", "Antiphon"), ("simpy", "SimPy")):
        outcome = figures[name]
        lines.append(
            f"  {words}: TPR {outcome['tpr_s']:.4f} s, {outcome['hop_messages']} hop messages, "
            f"mean queue {outcome['queue_mean']:.3f}"
        )
    verdict = "reached" if figures["ratio"]["median"] >= figures["target"] else "not reached"
    lines.append(f"  target: a ratio of at least {figures['target']:.0f}: {verdict}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
