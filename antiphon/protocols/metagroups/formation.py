"""Meta-groups: sites that belong to exactly the same groups.

Source: Jia and So, "A Multicast Mechanism with Ordering on Overlapping Groups", definitions 2 and 4 and the
first step of section 4.1. Meta-groups do not overlap, and the meta-groups whose labels name a group are that
group. A site in no group is in no meta-group. The paper sorts the rows of a boolean matrix of sites and
groups; here the sites are gathered by label, which gives the same and takes time in proportion to the
memberships alone.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site

Membership: TypeAlias = Mapping[Group, Collection[Site]]
Label: TypeAlias = tuple[Group, ...]
"""The groups that a meta-group is a part of, sorted; its length is the paper's cardinality."""


class MetaGroup(NamedTuple):
    """The sites, sorted, that are members of the groups in `label` and of no other."""

    label: Label
    sites: tuple[Site, ...]


def form_meta_groups(membership: Membership) -> tuple[MetaGroup, ...]:
    """All meta-groups by rank: those in more groups first, then by label.

    >>> form_meta_groups({"A": {"s0", "s1"}, "B": {"s1", "s2", "s3"}})[0]
    MetaGroup(label=('A', 'B'), sites=('s1',))
    """
    sites_of: dict[Label, list[Site]] = {}
    for site, label in labels_of_sites(membership).items():
        sites_of.setdefault(label, []).append(site)
    return tuple(MetaGroup(label, tuple(sorted(sites_of[label]))) for label in sorted(sites_of, key=rank))


def labels_of_sites(membership: Membership) -> dict[Site, Label]:
    """The groups of each site."""
    groups_of: dict[Site, list[Group]] = {}
    for group in sorted(membership):
        if isinstance(membership[group], str):
            raise UsageError(f"The members of group {group} are one text.", hint="A list of sites is needed.")
        for site in sorted(set(membership[group])):
            groups_of.setdefault(site, []).append(group)
    return {site: tuple(groups) for site, groups in groups_of.items()}


def rank(label: Label) -> tuple[int, Label]:
    """The order in which meta-groups are considered: higher cardinality first, then by label."""
    return -len(label), label


def label_text(label: Label) -> str:
    """A label as the paper writes it; names longer than a letter are separated by commas.

    >>> label_text(("A", "B")), label_text(("news", "sport"))
    ('<AB>', '<news, sport>')
    """
    return f"<{('' if all(len(group) == 1 for group in label) else ', ').join(label)}>"
