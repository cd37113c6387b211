"""The advisor's sweep: for each protocol a grid, in coordinates along which its metrics change smoothly.

A setting has a group size n, a number of senders m, a bandwidth, a density and a probability of loss. Times
consist of a message's transmission time on a link and of fixed delays on its way, so they are measured in
the sum of the two, and the transmission's share of that sum replaces the bandwidth: the time of a round is a
linear combination of the two parts, hence a straight line over that share, from a network that is all
transmission to one that is all delay. For gossip the unit is the least possible step: long enough for the
busiest link or router (at the root; 2/9 of all messages cross the busiest link in one direction, 2/3 the
busiest router), and for a message's way.

Loss is swept at fewer points: what it adds, or multiplies by, hardly depends on the rest. Its coordinate is
the time waited before repetitions. For a group that waits for its slowest member it grows as the logarithm
of n, and for a train, which visits members in turn, as n.

Where the tree gets another level (14, 41, 122, 365 members in a dense group), and S_Gossip a second local
group, a round takes longer at once: the grid has a node on either side. In between, a dense group's
behaviour changes where each parent of the last level gets one more child: there are nodes too.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from antiphon.spark.sweep import Job, job
from antiphon.studies.study import Effort, Study

Place = Mapping[str, float]
"""A point in a plan's coordinates, or a setting in them."""

FIXED_S: Final = 0.006
"""A link's latency plus a router's time."""
HEADER_BYTES: Final = 32
COUNT_BYTES: Final = 4
ROUND_BYTES: Final = 4
NETWORK_NODES: Final = 1000
"""Nodes of a sparse group's network."""
LOCAL_GROUP: Final = 50
"""Members of a local group of S_Gossip."""
ROUTER_S: Final = 0.001
CROSSING: Final = 2 / 9
"""Share of gossips through the busiest link in one direction: from a third of the members."""
ROUTED: Final = 2 / 3
"""Share of gossips through the busiest router: from any third of the members to the others."""
LONGEST_WAIT: Final = 10
"""The wait doubles with each repetition, up to this multiple of the first wait."""
MOST_REPEATS: Final = 1000
SENDERS: Final = 50
"""Senders where their number matters only for the messages' size."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A protocol's grid: without loss over `base`, and with loss over `lossy`, the rest being `pinned` there.

    Axes are `members`, `senders`, `share` (of a message's transmission in its time to the next node), `loss`,
    and for gossip `subset` and `pace` (the step in units of what it must at least be).
    """

    protocol: str
    density: str
    base: Mapping[str, tuple[float, ...]]
    lossy: Mapping[str, tuple[float, ...]]
    pinned: Mapping[str, float]
    subgroup: int | None = None
    in_turn: bool = False
    """Whether members wait for one another in turn."""
    at_once: bool = False
    """Whether a member waits for many at once: then their longest wait counts, else about the first."""

    @property
    def name(self) -> str:
        return "/".join(str(part) for part in (self.protocol, self.density, self.subgroup) if part)

    @property
    def gossips(self) -> bool:
        return "pace" in self.base

    def message_bytes(self, members: float, senders: float) -> float:
        size = HEADER_BYTES + COUNT_BYTES * senders
        if self.gossips:
            size += ROUND_BYTES + math.ceil(self._covered(members) / 8)
        return size

    def link_s(self, share: float) -> float:
        """A message's time on a link, from its share in the time to the next node."""
        return FIXED_S * share / (1 - share)

    def share(self, members: float, senders: float, bandwidth: float) -> float:
        """The share of a message's time on a link in the time to the next node, from the bandwidth."""
        link_s = 8 * self.message_bytes(members, senders) / bandwidth
        return link_s / (link_s + FIXED_S)

    def unit_s(self, place: Place) -> float:
        """The unit of times at a place."""
        link_s = self.link_s(place["share"])
        if not self.gossips:
            return link_s + FIXED_S
        covered = self._covered(place["members"])
        nodes = NETWORK_NODES if self.density == "sparse" else max(covered, 3)
        way = 2 * math.log(nodes, 3)
        busiest_s = max(CROSSING * link_s, ROUTED * ROUTER_S)
        return covered * place["subset"] * busiest_s + way * (link_s + FIXED_S)

    def repeats(self, members: float, loss: float) -> float:
        """Time waited because of losses, in units of the first wait: the loss as a coordinate."""
        if self.gossips:
            return loss
        fails = 1 - (1 - loss) ** 2
        waited, times = 0.0, 1
        while times <= MOST_REPEATS and (more := self._still_waits(members, fails**times)) > 1e-6:
            waited += more * (min(2.0 ** (times - 1), LONGEST_WAIT) if self.at_once else 1)
            times += 1
        return waited

    def _still_waits(self, members: float, fails: float) -> float:
        """How many members are still waited for in turn, or the probability that any is."""
        return members * fails if self.in_turn else -math.expm1(members * math.log1p(-fails))

    def places(self) -> Iterator[dict[str, float]]:
        """All points of both grids."""
        yield from self.base_places()
        yield from self.lossy_places()

    def base_places(self) -> Iterator[dict[str, float]]:
        for values in itertools.product(*self.base.values()):
            yield {**dict(zip(self.base, values, strict=True)), "loss": 0.0}

    def lossy_places(self) -> Iterator[dict[str, float]]:
        for values in itertools.product(*self.lossy.values()):
            yield {**self.pinned, **dict(zip(self.lossy, values, strict=True))}

    def parameters(self, place: Place) -> dict[str, Any]:
        """The scenario's parameters at a point of the grid."""
        members, senders = int(place["members"]), int(place.get("senders", SENDERS))
        found: dict[str, Any] = {
            "members": members,
            "senders": senders,
            "density": self.density,
            "loss_rate": place["loss"],
            "bandwidth": round(8 * self.message_bytes(members, senders) / self.link_s(place["share"])),
        }
        if self.subgroup is not None:
            found["subgroup"] = self.subgroup
        if self.gossips:
            found |= {"step": round(place["pace"] * self.unit_s(place), 6), "subset": int(place["subset"])}
        return found

    def _covered(self, members: float) -> float:
        """Members that a gossip covers."""
        return members if self.subgroup is None else min(members, self.subgroup)


def seeds(plan: Plan, place: Place, effort: Effort) -> int:
    """Seeds per point: more where chance matters more, as a single loss does among few members."""
    members = place["members"]
    if plan.gossips:
        full = 12 if members < 40 else 6 if members < 150 else 4 if members < 500 else 2
    elif place["loss"]:
        full = 200 if members < 15 else 160 if members < 50 else 64 if members < 150 else 16
        # Where every member waits for every other, a single round has many losses.
        full = max(full // 6, 6) if plan.protocol == "fulldist" else full
    else:
        full = 1 if plan.density == "dense" else 5
    return full if effort == "full" else max(1, full // 8)


SHARES: Final = (0.01, 0.14, 0.15, 0.22, 0.35, 0.6, 0.85, 0.96)
"""Beyond 1/7 a link takes longer than the router before it, and queues form."""
LONE_SHARES: Final = (0.01, 0.15, 0.6)
"""For a train: the time of a single message is a straight line over the share."""
LOSSY_SHARES: Final = (0.01, 0.06, 0.2, 0.6)
SLOW_LOSSY_SHARES: Final = (0.2, 0.6)
"""For random trees in a large network: below, repetitions fill its routers before an answer arrives."""
SENDERS_NODES: Final = (1, 15, 100, 500)
LOSSES: Final = (0.01, 0.05, 0.2)
DENSE_SIZES: Final = (
    5, 7, 8, 10, 11, 13, 14, 22, 23, 31, 32, 40, 41, 53, 67, 68, 94, 95, 121, 122, 162, 202, 203, 283, 284,
    364, 365, 607, 850, 1000,
)  # fmt: skip
"""Both sides of each new level, and of sizes where nodes above the last level get another child."""
SPARSE_SIZES: Final = {
    None: (5, 16, 50, 150, 400, 1000),
    4: (5, 13, 14, 16, 40, 41, 43, 121, 122, 124, 364, 365, 367, 1000),
    50: (5, 16, 50, 51, 100, 150, 250, 400, 1000),
}
"""By the size of sub-groups: both sides of each new level of the random trees."""
LOSSY_SIZES: Final = (5, 14, 41, 122, 190, 260, 365)
"""Denser where waiting for all begins to take longer than the wait before a repetition."""
GOSSIP_SIZES: Final = (8, 25, 80, 250, 700)
LOCAL_SIZES: Final = (8, 25, 50, 51, 100, 101, 140, 200, 280, 400, 800)
GOSSIP_SHARES: Final = (0.02, 1 / 3, 0.8)
"""At a third, the router's load is the link's."""
PACES: Final = (0.6, 0.8, 1.0, 1.4, 2.5)
SUBSETS: Final = (1, 2, 4)


def _direct(
    protocol: str,
    density: str,
    *,
    most: int = 1000,
    most_lossy: int | None = None,
    subgroup: int | None = None,
    in_turn: bool = False,
    at_once: bool = False,
) -> Plan:
    sizes = DENSE_SIZES if density == "dense" else SPARSE_SIZES[subgroup]
    return Plan(
        protocol=protocol,
        density=density,
        base={
            "share": LONE_SHARES if in_turn else SHARES,
            "senders": SENDERS_NODES,
            "members": tuple(n for n in sizes if n <= most),
        },
        lossy={
            "loss": LOSSES,
            "share": LOSSY_SHARES if subgroup is None else SLOW_LOSSY_SHARES,
            "members": tuple(n for n in LOSSY_SIZES if n <= (most_lossy or most)),
        },
        pinned={"senders": SENDERS},
        subgroup=subgroup,
        in_turn=in_turn,
        at_once=at_once,
    )


def _gossip(protocol: str, density: str, sizes: tuple[int, ...], **options: Any) -> Plan:
    return Plan(
        protocol=protocol,
        density=density,
        base={"share": GOSSIP_SHARES, "subset": SUBSETS, "pace": PACES, "members": sizes},
        lossy={"loss": (0.1, 0.3), "subset": SUBSETS, "pace": (0.6, 1.0, 2.5), "members": sizes},
        pinned={"share": 0.5},
        **options,
    )


PLANS: Final = (
    *(
        plan
        for density in ("dense", "sparse")
        for plan in (
            _direct("coordp", density, at_once=True),
            _direct("fulldist", density, most=400, most_lossy=130),
            _direct("train", density, in_turn=True),
            _gossip("gossip", density, GOSSIP_SIZES),
            _gossip("s-gossip", density, LOCAL_SIZES, subgroup=LOCAL_GROUP),
        )
    ),
    _direct("s-coordp", "dense", at_once=True),
    _direct("s-train", "dense"),
    *(
        _direct(protocol, "sparse", subgroup=subgroup, at_once=protocol == "s-coordp")
        for protocol in ("s-coordp", "s-train")
        for subgroup in (4, 50)
    ),
)


class AdviceStudy(Study):
    """The sweep of all plans: a study with their points instead of grids."""

    def jobs(self, effort: Effort) -> list[Job]:
        return [
            job(plan.protocol, plan.parameters(place), seed)
            for plan in PLANS
            for place in plan.places()
            for seed in range(seeds(plan, place, effort))
        ]


def key_of(plan: Plan, place: Place) -> tuple[str, str]:
    """The key of a point in a sweep's results: the scenario, and its parameters as text."""
    return plan.protocol, json.dumps(plan.parameters(place), sort_keys=True)


STUDY: Final = AdviceStudy(
    name="advice",
    paper="Guo, Scalable message stability detection protocols",
    title="What the stability advisor knows",
    grids=(),
)
