"""Whether a decision can be meant as the next view.

A site that accepts a decision is bound by it. So it first checks whether a proposer can have made it from the
current view: with a quorum of its sites, with few sites that were never heard, and with every tree accounted
for. Whatever an honest proposer makes passes, except that newcomers must be heard here first.
"""

from collections.abc import Callable, Collection
from typing import Final

from antiphon.core.ids import Site
from antiphon.protocols.metagroups.pdus import Decision, MetaGroupsConfiguration, Session, SiteRecord
from antiphon.protocols.metagroups.view import View, view_of

MOST_REQUESTS: Final = 1 << 32
"""Membership requests of one site between two views."""
UNHEARD: Final = 4
"""One unheard newcomer is allowed for this many sites that stay or were heard, not counting the first. Even
if no such newcomer exists and the coordinator fails, the others are a quorum."""


def can_follow(
    decision: Decision, view: View, configuration: MetaGroupsConfiguration, left: Collection[Site] = ()
) -> bool:
    """Whether the decision can follow the current view, where sites that have `left` do not count."""
    if (decision.origin, decision.version) != (view.decision.origin, view.version + 1):
        return False
    staying = [record.site for record in decision.records if view.sessions.get(record.site) == record.session]
    if not view.is_quorum(staying, left) or any(_leaps(record, view) for record in decision.records):
        return False
    made = view_of(decision, configuration.shape, bypass=configuration.bypass)
    return made.is_complete and _is_every_tree_accounted_for(made, view)


def _leaps(record: SiteRecord, view: View) -> bool:
    """Whether a serial is too far ahead: serials must not run out."""
    before = view.records.get(record.site)
    return record.serial > (0 if before is None else before.serial) + MOST_REQUESTS


def is_mostly_known(decision: Decision, view: View, has_announced: Callable[[Site, Session], bool]) -> bool:
    """Whether nearly all sites of a decision exist: they are in the view, or have announced themselves."""
    known = sum(
        view.sessions.get(record.site) == record.session or has_announced(record.site, record.session)
        for record in decision.records
    )
    return UNHEARD * (len(decision.records) - known) < known


def _is_every_tree_accounted_for(made: View, view: View) -> bool:
    """Whether each tree stays as it is, retires or ends, and all others are new."""
    kept = made.trees.keys() & view.trees.keys()
    if any(made.trees[tree].nodes != view.trees[tree].nodes for tree in kept):
        return False
    if any(tree[0] != made.version for tree in made.trees.keys() - kept):
        return False
    leaving = [*made.retiring, *(ending.tree for ending in made.decision.endings)]
    if len(made.decision.retiring) != len(made.retiring) or len(set(leaving)) != len(leaving):
        return False
    if not view.all_trees() - kept >= set(leaving) >= view.trees.keys() - kept:
        return False
    return all(view.members_on(tree) == members for tree, members in made.retiring.items())
