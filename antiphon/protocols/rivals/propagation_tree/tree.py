"""The propagation tree of sites: how it is built, and the way of each group's messages down it.

Source: Garcia-Molina and Spauster, "Ordered and Reliable Multicast Communication" (1991): sites in the
intersections of groups are the roots and the intermediary nodes, the site in most groups comes first, each
group has a primary destination, and all its other members lie below that. This
construction follows that idea, since their paper leaves choices open.

The groups that are connected by common members make a tree of their own. Its root is the site that is in most
of them, the least name breaking ties; it is the primary destination of all groups that it is in. Without
it and those groups, the other groups split into sets that have no common members; each of these becomes a
subtree below the root, built in the same way. Sites that are in none of the remaining groups are leaves below
the root.

So when a primary destination is chosen, all remaining sites of its part lie below it, all further members of
its groups among them. Two groups with two common members have primary destinations above both members, on one
path or the same; their messages meet at the lower one at the latest and go on in one order.
The graph of these orders has no cycle either, as in every tree whose nodes keep the order from above.

What passes a site that is not in the group is an *extra* message.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from antiphon.core.ids import Group, Site


class Route(NamedTuple):
    """The way of a group's messages."""

    extra: tuple[Site, ...]
    """Sites on the way that are not in the group."""
    depth: int
    """Transmissions from the primary destination to the farthest member."""
    messages: int
    """One for each site on the way: what a multicast costs from outside the primary destination."""


@dataclass(frozen=True)
class Tree:
    """A tree for each set of connected groups."""

    parent: Mapping[Site, Site | None]
    """The parent of each site that is in any group, in an order in which parents come first."""
    primary: Mapping[Group, Site]
    leads: Mapping[Site, Mapping[Group, tuple[Site, ...]]]
    """The children to which each site passes each group's messages."""
    routes: Mapping[Group, Route]

    def depth(self) -> int:
        """Transmissions from a root to the farthest site below it."""
        depths: dict[Site, int] = {}
        for site, above in self.parent.items():
            depths[site] = 0 if above is None else depths[above] + 1
        return max(depths.values(), default=0)


class Part(NamedTuple):
    """Connected groups without a primary destination yet, and the sites that go below `above`."""

    groups: frozenset[Group]
    sites: tuple[Site, ...]
    above: Site | None


def build_tree(membership: Mapping[Group, tuple[Site, ...]]) -> Tree:
    """The tree of these groups; equal for equal memberships."""
    groups_of: dict[Site, set[Group]] = {}
    for group, members in membership.items():
        for member in members:
            groups_of.setdefault(member, set()).add(group)
    parent: dict[Site, Site | None] = {}
    primary: dict[Group, Site] = {}
    parts = _parts(membership, groups_of, frozenset(membership), tuple(sorted(groups_of)), None)
    while parts:
        part = parts.pop()
        root = _in_most(groups_of, part)
        parent[root] = part.above
        primary.update(dict.fromkeys(sorted(part.groups & groups_of[root]), root))
        rest = part.groups - groups_of[root]
        below = tuple(site for site in part.sites if site != root)
        parent.update((site, root) for site in below if not groups_of[site] & rest)
        parts += _parts(membership, groups_of, rest, tuple(s for s in below if groups_of[s] & rest), root)
    return _with_routes(membership, parent, primary)


def _in_most(groups_of: Mapping[Site, set[Group]], part: Part) -> Site:
    return min(part.sites, key=lambda site: (-len(groups_of[site] & part.groups), site))


def _parts(
    membership: Mapping[Group, tuple[Site, ...]],
    groups_of: Mapping[Site, set[Group]],
    groups: frozenset[Group],
    sites: tuple[Site, ...],
    above: Site | None,
) -> list[Part]:
    """The connected parts of these groups, all of whose members are among the sites."""
    left = set(groups)
    parts = []
    for first in sorted(groups):
        if first not in left:
            continue
        found, border = {first}, [first]
        while border:
            for site in membership[border.pop()]:
                border += (groups_of[site] & left) - found
                found |= groups_of[site] & left
        left -= found
        members = tuple(site for site in sites if groups_of[site] & found)
        parts.append(Part(frozenset(found), members, above))
    return parts


def _with_routes(
    membership: Mapping[Group, tuple[Site, ...]], parent: dict[Site, Site | None], primary: dict[Group, Site]
) -> Tree:
    leads: dict[Site, dict[Group, list[Site]]] = {site: {} for site in parent}
    routes: dict[Group, Route] = {}
    for group, members in membership.items():
        depths = _depths(parent, primary[group], members)
        for site in depths:
            above = parent[site]
            if site != primary[group] and above is not None:
                leads[above].setdefault(group, []).append(site)
        extra = tuple(sorted(depths.keys() - set(members)))
        depth = max(depths[member] for member in members)
        routes[group] = Route(extra, depth, len(depths))
    fixed = {
        site: {group: tuple(sorted(children)) for group, children in groups.items()}
        for site, groups in leads.items()
    }
    return Tree(parent, primary, fixed, routes)


def _depths(parent: Mapping[Site, Site | None], primary: Site, members: tuple[Site, ...]) -> dict[Site, int]:
    """The depth below the primary destination of each site on the way to the members."""
    depths = {primary: 0}
    for member in members:
        way = []
        at: Site | None = member
        while at is not None and at not in depths:
            way.append(at)
            at = parent[at]
        assert at is not None, "every member lies below its group's primary destination"
        for site in reversed(way):
            depths[site] = depths[at] + 1
            at = site
    return depths


def site_loads(tree: Tree) -> Counter[Site]:
    """Transmissions of each site, if every group gets one multicast from outside."""
    loads: Counter[Site] = Counter(tree.primary.values())
    for site, groups in tree.leads.items():
        for children in groups.values():
            loads[site] += len(children)
            loads.update(children)
    return loads
