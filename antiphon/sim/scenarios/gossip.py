"""`antiphon simulate gossip`: one round of Gossip on the store-and-forward tree.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 5.3 to 5.5. The frame is
`antiphon.sim.rounds`. Every member is triggered at once, draws the moment of its first gossip uniformly
within one step, and then gossips every step with what it knows at that moment; the first member that has
heard from everyone has the result.

With lost gossips (`--loss buffers` or `random`) two of those that would be sent in a step, drawn at random
among all of them, never leave their senders.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import RoundTriggered
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.time import Nanoseconds, from_seconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.gossip import Gossip, GossipConfiguration, Rumour
from antiphon.sim.rounds import Placement, Round, RoundStudy, tree_model
from antiphon.sim.scenario import Metrics, Scenario
from antiphon.sim.transit import TreeModel, TreeNetwork

LOST_PER_STEP: Final = 2
"""Gossips lost at their senders in each step (section 5.3.1)."""
ROUND_BYTES: Final = 4
"""A gossip's round number, which other messages do without."""


@dataclass(frozen=True, kw_only=True)
class GossipStudy(RoundStudy):
    """The scenario's parameters; `subgroup` and `start` have no effect."""

    step: Annotated[float, "seconds between a member's gossips"] = 3.0
    subset: Annotated[int, "members that a gossip goes to"] = 1
    hops: Annotated[int, "multicast each gossip this many links far instead of to a subset; 0: don't"] = 0
    hops_from: Annotated[int, "draw how far each time, from this many links on; 0: always `hops`"] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.step <= 3600:
            raise UsageError(f"A step of {self.step} s makes no sense.", hint="Take up to an hour.")
        if not 1 <= self.subset < self.members:
            raise UsageError(
                f"A gossip cannot go to {self.subset} of {self.members - 1} other members.",
                hint="Take a --subset from 1 up to that.",
            )
        if not 0 <= self.hops_from <= self.hops:
            raise UsageError("Gossips cannot go at least farther than they go at most.")

    @property
    def waits_for_answers(self) -> bool:
        """Gossip goes on by steps, lost or not."""
        return False

    @property
    def gossip_bytes(self) -> int:
        """A gossip among all members: besides the counts a round number and a bit for each member."""
        return self.array_bytes + ROUND_BYTES + (self.members + 7) // 8


class LostGossips:
    """Draws which of a step's gossips are lost; they are distinguished by their order within it."""

    def __init__(self, step_ns: Nanoseconds, gossips_per_step: Callable[[], int], random: Random) -> None:
        self._step_ns = step_ns
        self._gossips_per_step = gossips_per_step
        self._random = random
        self._next_step_ns = 0
        self._sent = 0
        self._lost: list[int] = []

    def next_is_lost(self, now: Nanoseconds) -> bool:
        if now >= self._next_step_ns:
            self._next_step_ns, self._sent = now - now % self._step_ns + self._step_ns, 0
            gossips = range(self._gossips_per_step())
            self._lost = self._random.sample(gossips, min(LOST_PER_STEP, len(gossips)))
        place = self._sent
        self._sent += 1
        return place in self._lost


class LosingNetwork(TreeNetwork):
    """The tree, with senders that lose some gossips before they send them."""

    def __init__(
        self, placement: Placement, model: TreeModel, kinds: tuple[type[Pdu], ...], lost: LostGossips
    ) -> None:
        super().__init__(placement.tree, placement.nodes, model)
        self._kinds = kinds
        self._next_is_lost = lost.next_is_lost

    def send(self, now: Nanoseconds, source: int, targets: Sequence[int] | None, pdu: Pdu, size: int) -> None:
        if type(pdu) not in self._kinds or not self._next_is_lost(now):
            TreeNetwork.send(self, now, source, targets, pdu, size)


class GossipRound(Round):
    """One round of Gossip; the bench drives it too."""

    study: GossipStudy

    def prepare(self) -> None:
        study = self.study
        self._configuration = GossipConfiguration(
            repetition=study.repetition(),
            objective=study.objective,
            step_ns=from_seconds(study.step),
            subset=study.subset,
            hops=(study.hops_from or study.hops, study.hops) if study.hops else None,
        )
        # One stream for all: a generator for each member would take more memory than all else.
        self._random = self.seeds.stream("gossip")

    def make_network(self) -> TreeNetwork:
        study = self.study
        if study.loss == "none":
            return super().make_network()
        per_step = study.members * (1 if study.hops else study.subset)
        random = self.seeds.stream("lost gossips")
        lost = LostGossips(from_seconds(study.step), lambda: per_step, random)
        return LosingNetwork(self.placement, tree_model(study), (Rumour,), lost)

    def build(self, site: Site) -> Protocol:
        protocol = Gossip(site, self.sites, self.senders, self._configuration, self._random)
        protocol.hold_all(self.holding(site))
        return protocol

    def size_of(self) -> Callable[[Pdu], int]:
        gossip_bytes, array_bytes = self.study.gossip_bytes, self.study.array_bytes
        return lambda pdu: gossip_bytes if type(pdu) is Rumour else array_bytes

    def trigger(self) -> None:
        for host in self.world.hosts:
            self.world.give(host, RoundTriggered())

    def steps(self, tpr_s: float | None) -> float | None:
        return None if tpr_s is None else tpr_s / self.study.step


def simulate(study: GossipStudy, seed: int, recorder: Recorder | None) -> Metrics:
    """One round, and the multicast of its result to the end."""
    simulated = GossipRound(study, seed, recorder)
    simulated.run()
    return simulated.metrics()


def _cost_s(study: GossipStudy) -> float:
    """A gossip costs some microseconds; the more of them there are in a step, the more steps are needed."""
    return study.members * (4e-5 + 2e-5 * study.subset * (1 + 4 / study.step))


SCENARIO: Final = Scenario(
    name="gossip",
    summary="Gossip: every member sends a few others what all it has heard from hold (Guo, 4.2.4)",
    example="antiphon simulate gossip --members 200 --step 9 --subset 3 --seed 1 --json",
    configuration=GossipStudy,
    run=simulate,
    promises=("stability",),
    cost_s=_cost_s,
)
