"""What joins and leaves do to a forest: which trees they alter, and which they leave alone.

Source: Jia and So, section 6. A site that joins or leaves a group moves from one meta-group to another. Trees
depend on which meta-groups exist, not on who is in them, so that a change which neither creates a meta-group
nor empties one alters no tree. Otherwise only those trees are planted anew that lose a meta-group or share a
group with a new one: a new meta-group may join several trees into one, and the loss of one may split a tree.

The result is the same as a forest built from nothing for the new membership, but for primary sites, which
stay where they were as long as they stay in their meta-group.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.protocols.metagroups.formation import Label, MetaGroup, rank
from antiphon.protocols.metagroups.tree import Forest, Node, choose_primary, plant

Moves: TypeAlias = Iterable[tuple[Site, Group]]


class Change(NamedTuple):
    """A forest after joins and leaves, and what differs from the one before; labels are sorted."""

    forest: Forest
    created: tuple[Label, ...]
    deleted: tuple[Label, ...]
    resized: tuple[Label, ...]
    """Meta-groups that lost or gained sites, and existed before and exist now."""
    stopped: tuple[Label, ...]
    """Roots of the trees that were altered."""
    begun: tuple[Label, ...]
    """Roots of the trees that replace them."""
    kept: tuple[Label, ...]
    """Roots of the trees that did not change."""
    reparented: tuple[Label, ...]
    """Meta-groups that stay and have another parent."""
    moved: Mapping[Label, tuple[Site, Site]]
    """Primary sites before and after, in meta-groups that stay."""

    @property
    def alters_trees(self) -> bool:
        return bool(self.stopped or self.begun)


def change(forest: Forest, joins: Moves = (), leaves: Moves = ()) -> Change:
    """Apply joins and leaves, all at once."""
    sites_of = _moved_sites(forest, _new_labels(forest, joins, leaves))
    created = tuple(sorted(label for label in sites_of if label not in forest.nodes))
    deleted = tuple(sorted(label for label, sites in sites_of.items() if not sites))
    resized = tuple(sorted(set(sites_of) - {*created, *deleted}))
    nodes = dict(forest.nodes)
    for label in resized:
        sites = sites_of[label]
        nodes[label] = nodes[label]._replace(sites=sites, primary=choose_primary(sites, nodes[label].primary))
    stopped = _concerned(forest, created, deleted)
    removed = [nodes.pop(label) for root in stopped for label in forest.tree(root)]
    planted, primary_of = plant(
        _ranked(removed, deleted, [MetaGroup(label, sites_of[label]) for label in created]),
        {node.label: node.primary for node in removed},
        forest.shape,
    )
    nodes.update(planted)
    freed = {group for node in removed for group in node.label}
    kept_primaries = {group: label for group, label in forest.primary_of.items() if group not in freed}
    both = [label for label in planted if label in forest.nodes]
    primaries = {label: (forest.nodes[label].primary, nodes[label].primary) for label in resized}
    return Change(
        Forest(nodes, kept_primaries | primary_of, forest.shape),
        created,
        deleted,
        resized,
        stopped,
        tuple(sorted(label for label, node in planted.items() if node.parent is None)),
        tuple(sorted(set(forest.roots) - set(stopped))),
        tuple(sorted(label for label in both if nodes[label].parent != forest.nodes[label].parent)),
        {label: (before, after) for label, (before, after) in primaries.items() if before != after},
    )


def _new_labels(forest: Forest, joins: Moves, leaves: Moves) -> dict[Site, Label]:
    """The label of every site that moves; raises if a member joins or a non-member leaves."""
    groups_of: dict[Site, set[Group]] = {}

    def groups(site: Site) -> set[Group]:
        return groups_of.setdefault(site, set(forest.label_of.get(site, ())))

    for site, group in leaves:
        if group not in groups(site):
            raise UsageError(f"{site} cannot leave {group}: it is not a member.")
        groups(site).remove(group)
    for site, group in joins:
        if group in groups(site):
            raise UsageError(f"{site} cannot join {group}: it is a member already.")
        groups(site).add(group)
    labels = {site: tuple(sorted(found)) for site, found in groups_of.items()}
    return {site: label for site, label in labels.items() if label != forest.label_of.get(site, ())}


def _moved_sites(forest: Forest, labels: Mapping[Site, Label]) -> dict[Label, tuple[Site, ...]]:
    """The sites, after the change, of every meta-group that gains or loses one."""
    found: dict[Label, set[Site]] = {}

    def sites(label: Label) -> set[Site]:
        if label not in found:
            found[label] = set(forest.nodes[label].sites) if label in forest.nodes else set()
        return found[label]

    for site, label in labels.items():
        if site in forest.label_of:
            sites(forest.label_of[site]).remove(site)
        if label:
            sites(label).add(site)
    return {label: tuple(sorted(members)) for label, members in found.items()}


def _concerned(forest: Forest, created: Iterable[Label], deleted: Iterable[Label]) -> tuple[Label, ...]:
    """The roots of trees that lose a meta-group or share a group with a new one."""
    touched = {forest.root_of[label] for label in deleted}
    for label in created:
        touched.update(
            forest.root_of[forest.primary_of[group]] for group in label if group in forest.primary_of
        )
    return tuple(sorted(touched))


def _ranked(
    removed: Iterable[Node], deleted: Iterable[Label], created: Iterable[MetaGroup]
) -> list[MetaGroup]:
    """The remaining meta-groups of the stopped trees and the new ones, by rank."""
    gone = set(deleted)
    alive = [MetaGroup(node.label, node.sites) for node in removed if node.label not in gone]
    return sorted([*alive, *created], key=lambda meta_group: rank(meta_group.label))
