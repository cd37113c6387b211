"""What the sites of a cluster agree on when groups change: which trees stay, and which are replaced.

It asks the very functions by which a proposer decides, without running any site. Retiring trees count as over
before the next change. A site that joins or leaves several groups does so one after another, as applications
ask for it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from antiphon.core.ids import Site
from antiphon.protocols.metagroups.formation import Label, Membership, labels_of_sites
from antiphon.protocols.metagroups.moving import Whereabouts
from antiphon.protocols.metagroups.pdus import Change, MetaGroupsConfiguration, SiteRecord, TreeId
from antiphon.protocols.metagroups.shapes import Shape
from antiphon.protocols.metagroups.view import NO_FOUNDER, View, apply_change, first_decision, view_of


class Replacement(NamedTuple):
    """What a change did to the trees."""

    kept: tuple[TreeId, ...]
    handed_over: tuple[TreeId, ...]
    """Trees that finish what is under way on them, and take nothing new."""
    planted: tuple[TreeId, ...]


class AgreedTrees:
    """The trees of a cluster in one view after another."""

    def __init__(self, membership: Membership, shape: Shape) -> None:
        self._shape = shape
        self._configuration = MetaGroupsConfiguration(shape=shape)
        self._moved: dict[Site, SiteRecord] = {}
        """Sites that have moved since the view was agreed on."""
        self._whereabouts = Whereabouts()
        self._trees: set[TreeId] = set()
        """The trees on which they have."""
        labels = labels_of_sites({group: tuple(sites) for group, sites in membership.items()})
        records = tuple(SiteRecord(site, (0, 0), 1, labels[site]) for site in sorted(labels))
        self._view: View = view_of(first_decision(NO_FOUNDER, records, shape), shape)

    def change(self, membership: Membership) -> Replacement:
        """The members of all groups are these from now on.

        Joins and leaves that alter no tree leave the view as it is. The next change plants their trees anew.
        """
        before = self._view
        labels = labels_of_sites({group: tuple(sites) for group, sites in membership.items()})
        records = tuple(
            self._record(site, labels.get(site, ())) for site in sorted({*labels, *before.records})
        )
        news = tuple(record for record in records if self._current(record.site) != record)
        if all(self._moves(record) for record in news):
            return Replacement(tuple(sorted(before.trees)), (), ())
        over = tuple(sorted(before.retiring))
        folded = tuple(record for record in records if before.records.get(record.site) != record)
        change = Change((1, ""), folded, (), (), over, (), tuple(sorted(self._trees)))
        self._moved.clear()
        self._whereabouts.reset()
        self._trees.clear()
        after = self._view = view_of(apply_change(before, change, self._shape), self._shape)
        return Replacement(
            tuple(sorted(before.trees.keys() & after.trees.keys())),
            tuple(sorted(before.trees.keys() & after.retiring.keys())),
            tuple(sorted(after.trees.keys() - before.trees.keys())),
        )

    def _current(self, site: Site) -> SiteRecord | None:
        return self._moved.get(site) or self._view.records.get(site)

    def _moves(self, wanted: SiteRecord) -> bool:
        """Let a site move to the groups that it wants, one after another; whether it can."""
        current = self._current(wanted.site)
        if current is None:
            return False
        for step in _steps(current, wanted):
            way = self._whereabouts.way_of(self._view, current, step, self._configuration)
            if way is None:
                return False
            self._whereabouts.note(wanted.site, way)
            self._trees.add(way.tree)
            current = self._moved[wanted.site] = step
        return True

    def _record(self, site: Site, groups: Label) -> SiteRecord:
        known = self._current(site)
        if known is None:
            return SiteRecord(site, (0, 0), 1, groups)
        return known if known.groups == groups else SiteRecord(site, (0, 0), known.serial + 1, groups)


def _steps(current: SiteRecord, wanted: SiteRecord) -> Iterator[SiteRecord]:
    """What a site asks for on its way: joins first, then leaves, each by name."""
    joins, leaves = (set(wanted.groups) - set(current.groups), set(current.groups) - set(wanted.groups))
    groups = set(current.groups)
    for number, group in enumerate((*sorted(joins), *sorted(leaves)), start=1):
        groups ^= {group}
        yield SiteRecord(wanted.site, wanted.session, current.serial + number, tuple(sorted(groups)))
