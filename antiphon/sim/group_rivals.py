"""What the scenarios of meta-groups' rivals share: their knobs, and how a run is done."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.protocol import Protocol
from antiphon.core.recording import Recorder
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.links import Held, LinksConfiguration
from antiphon.protocols.overlapping import GroupMember, Membership
from antiphon.sim.groups import GroupsSubject, OverlappingConfiguration, simulate_groups
from antiphon.sim.scenario import Metrics

SECONDS_PER_DELIVERY: Final = 1e-4


@dataclass(frozen=True, kw_only=True)
class RivalConfiguration(OverlappingConfiguration):
    """The knobs of overlapping groups and of the links between sites. Absent sites are waited for."""

    window: Annotated[int, "batches that a sender may have unfinished"] = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crashes:
            raise UsageError(
                "The sites of this protocol are taken to be reliable: none of them may crash.",
                hint="Leave --crashes out, or simulate metagroups, which goes on without those that crashed.",
            )

    def links(self) -> LinksConfiguration:
        """Timers that suit the network: a pause is at least the round trip that it waits for."""
        round_trip_ns = self.round_trip_ns
        return LinksConfiguration(
            acknowledge_ns=max(5 * MILLISECOND_NS, round_trip_ns),
            repeat_ns=max(20 * MILLISECOND_NS, 4 * round_trip_ns),
        )


def cost_s(knobs: RivalConfiguration) -> float:
    """Roughly how long a run takes: a multicast reaches a group's share of the sites."""
    group_size = knobs.members * knobs.overlap / knobs.groups
    return 0.02 + SECONDS_PER_DELIVERY * group_size * knobs.messages / knobs.batch


def simulate_rival(
    configuration: RivalConfiguration,
    build: Callable[[Site, Membership, tuple[Site, ...]], GroupMember],
    pdus: tuple[type[Pdu], ...],
    seed: int,
    recorder: Recorder | None,
    shape: Callable[[Membership], Metrics],
    controls: tuple[type[Pdu], ...] = (Held,),
) -> Metrics:
    """One run, with what follows from the memberships (`shape`) and what its links had to repeat.

    All PDUs count as messages except `controls`; those of every rival are its links' acknowledgements.
    """
    sites_built: list[GroupMember] = []
    shapes: Metrics = {}

    def keeping(site: Site, membership: Membership, sites: tuple[Site, ...]) -> Protocol:
        if not sites_built:
            shapes.update(shape(membership))
        sites_built.append(build(site, membership, sites))
        return sites_built[-1]

    data_kinds = tuple(kind for kind in pdus if kind not in controls)
    subject = GroupsSubject(build=keeping, pdus=pdus, data_kinds=data_kinds, settle_ns=0)
    metrics = simulate_groups(configuration, subject, seed, recorder)
    return metrics | shapes | {"repeated": total(sites_built, "repeated")}


def total(sites: Iterable[GroupMember], figure: str) -> int:
    return sum(site.figures()[figure] for site in sites)


def mean_outsiders(membership: Membership, handlers: Callable[[str], Iterable[Site]]) -> float:
    """The number of sites that handle a group's messages and are not in it, averaged over the groups."""
    outside = [len(set(handlers(group)) - set(members)) for group, members in membership.items()]
    return sum(outside) / len(outside)
