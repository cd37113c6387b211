"""Messages that each site sends and receives for a multicast, computed for every approach.

All groups get equally many multicasts, and the senders' own work is spread evenly over all sites. A site
needs no message to itself.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from antiphon.core.ids import Group, Site
from antiphon.protocols.metagroups.tree import Forest, build_forest
from antiphon.protocols.rivals.propagation_tree.tree import build_tree, site_loads
from antiphon.studies.jia.settings import Membership

Loads = Mapping[Site, float]

RESILIENCE: Final = 3
"""L: sites that hold a message of the token protocol before it is delivered."""


def forest_loads(forest: Forest, sites: int) -> Loads:
    loads: Counter[Site] = Counter()
    for group in forest.primary_of:
        loads.update(forest.loads(group))
    return _with_senders(loads, sites, len(forest.primary_of))


def _shallow(membership: Membership, sites: int) -> Loads:
    return forest_loads(build_forest(membership, shape="shallow"), sites)


def _printed(membership: Membership, sites: int) -> Loads:
    return forest_loads(build_forest(membership, shape="printed"), sites)


def _tree_of_sites(membership: Membership, sites: int) -> Loads:
    return _with_senders(site_loads(build_tree(membership)), sites, len(membership))


def _one_sequencer(membership: Membership, sites: int) -> Loads:
    central = min(site for members in membership.values() for site in members)
    return _with_sequencers(membership, sites, dict.fromkeys(membership, central))


def _sequencer_each(membership: Membership, sites: int) -> Loads:
    return _with_sequencers(membership, sites, {group: members[0] for group, members in membership.items()})


def _with_sequencers(membership: Membership, sites: int, sequencers: Mapping[Group, Site]) -> Loads:
    loads: Counter[Site] = Counter()
    for group, members in membership.items():
        others = [member for member in members if member != sequencers[group]]
        loads[sequencers[group]] += 1 + len(others)
        loads.update(others)
    return _with_senders(loads, sites, len(membership))


def _token(membership: Membership, sites: int) -> Loads:
    """The token goes round, so the work of orderers and helpers is spread evenly over all sites."""
    loads = _received(membership, 1)
    copies = sum(map(len, membership.values())) / len(membership)
    shared = (2 + 2 * (RESILIENCE - 1) + copies) / sites
    return {site: count / len(membership) + shared for site, count in loads.items()}


def _two_phase(membership: Membership, sites: int) -> Loads:
    """A member receives twice and answers once; the sender does the reverse for all members."""
    loads = _received(membership, 3)
    shared = 3 * sum(map(len, membership.values())) / len(membership) / sites
    return {site: count / len(membership) + shared for site, count in loads.items()}


def _received(membership: Membership, each: int) -> Counter[Site]:
    loads: Counter[Site] = Counter()
    for members in membership.values():
        for member in members:
            loads[member] += each
    return loads


def _with_senders(loads: Mapping[Site, int], sites: int, groups: int) -> Loads:
    """The loads of one multicast to each group, including the sender's message, as loads per multicast."""
    return {site: count / groups + 1 / sites for site, count in loads.items()}


LOADS: Final[Mapping[str, Callable[[Membership, int], Loads]]] = {
    "shallow": _shallow,
    "printed": _printed,
    "sites": _tree_of_sites,
    "central": _one_sequencer,
    "each": _sequencer_each,
    "token": _token,
    "two-phase": _two_phase,
}
