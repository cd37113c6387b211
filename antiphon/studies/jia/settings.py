"""Our reading of Jia and So's paper, and our choices where it is silent.

The paper argues with formulas and one example; it measures nothing, and does not say how groups overlap. So
memberships are drawn in five ways (`KINDS`), from groups that hardly touch to sites that are in four groups
each, with five sites for every group, from 15 sites to 1,000.

- A multicast goes to a group drawn evenly from all, from a site drawn evenly from all. n is the size of the
  group, e the extra nodes on the way: nodes of the tree that are not in the group.
- A message is one transmission from one site to another, acknowledgements left out. The text also counts what
  a site sends to itself: a sequencer that is a member of the group gets one of its own n messages. Ours are
  counted without these, so runs are up to two messages below the formulas.
- T is the network's delay, the same for all and always. A multicast's latency is until the last member
  delivers.
- The depth of a group's subtree is counted in nodes, the primary meta-group and the last one included: it is
  2 if all the group's meta-groups are children of its primary one, as the text says. For trees of sites d is
  counted in edges, so that (d+1)T is right for them.
- A site's load is how many messages it sends and receives for one multicast, if all groups are multicast to
  equally often.

Simulated runs have up to 100 sites, and all their orders are judged. Trees are computed for up to 1,000 sites
and 200 groups; they give depths, extra nodes, messages and loads, but no order and no time.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from antiphon.core.ids import Group, Site, site_names
from antiphon.sim.groups import draw_membership, group_names

Membership = dict[Group, tuple[Site, ...]]

SITES_A_GROUP: Final = 5
"""Sites per group; a group has more members, since sites are in several groups."""
SIZES: Final = (15, 50, 150, 500, 1000)
QUICK_SIZES: Final = (15, 150, 1000)
OVERLAPS: Final = {"separate": 1.1, "moderate": 2.0, "heavy": 4.0}
"""Groups that a site is in on average, where they are drawn evenly."""
MOST_OVERLAP: Final = 0.75
"""With few groups, a site is in at most this share of them."""
LONGEST_PROFILE: Final = 3
TWO_HOMES: Final = 0.5


def groups_for(sites: int) -> int:
    return max(2, sites // SITES_A_GROUP)


def draw(kind: str, random: Random, sites: int, groups: int) -> Membership:
    """Each group's sites; every site is in at least one group, and every group has a member."""
    return KINDS[kind](random, site_names(sites), groups)


def _drawn_evenly(overlap: float) -> Callable[[Random, Sequence[Site], int], Membership]:
    def drawn(random: Random, sites: Sequence[Site], groups: int) -> Membership:
        return draw_membership(random, sites, groups, min(overlap, max(1.0, MOST_OVERLAP * groups)))

    return drawn


def _profiles(random: Random, sites: Sequence[Site], groups: int) -> Membership:
    """As many profiles as groups, each of one to three groups; every site has one of them."""
    names = group_names(groups)
    longest = min(LONGEST_PROFILE, groups)
    profiles = [random.sample(names, random.randint(1, longest)) for _ in names]
    return _gathered(random, sites, names, [random.choice(profiles) for _ in sites])


def _neighbours(random: Random, sites: Sequence[Site], groups: int) -> Membership:
    """Groups in a row; every site is in one of them, and half of the sites in the next one too."""
    names = group_names(groups)
    homes = [random.randrange(groups) for _ in sites]
    labels = [names[home : home + 1 + (random.random() < TWO_HOMES)] for home in homes]
    return _gathered(random, sites, names, labels)


def _gathered(
    random: Random, sites: Sequence[Site], names: Sequence[Group], labels: Sequence[Sequence[Group]]
) -> Membership:
    """Memberships from the sites' labels; an empty group gets a member."""
    members: dict[Group, list[Site]] = {name: [] for name in names}
    for site, label in zip(sites, labels, strict=True):
        for group in label:
            members[group].append(site)
    for found in members.values():
        if not found:
            found.append(random.choice(sites))
    return {name: tuple(found) for name, found in members.items()}


KINDS: Final[Mapping[str, Callable[[Random, Sequence[Site], int], Membership]]] = {
    "separate": _drawn_evenly(OVERLAPS["separate"]),
    "moderate": _drawn_evenly(OVERLAPS["moderate"]),
    "heavy": _drawn_evenly(OVERLAPS["heavy"]),
    "profiles": _profiles,
    "neighbours": _neighbours,
}
KIND_WORDS: Final = {
    "separate": "one site in ten is in two groups",
    "moderate": "sites are in two groups on average",
    "heavy": "sites are in four groups on average",
    "profiles": "five sites are in the same groups, one to three of them",
    "neighbours": "groups in a row, half of the sites in two neighbouring ones",
}
