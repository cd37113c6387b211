"""Whether a decision can be meant as the next version of the table.

A site that accepts a decision is bound by it. So it looks first whether a coordinator can have made it from
the version in force: with enough of its sites, with few others that were never heard, and with every tree
seen to. Whatever an honest coordinator makes passes, but for newcomers that must be heard here first.
"""

from collections.abc import Callable
from typing import Final

from antiphon.core.ids import Site
from antiphon.protocols.metagroups.pdus import Decision, Life, MetaGroupsConfiguration, Seat
from antiphon.protocols.metagroups.table import Layout, layout_of

MOST_WISHES: Final = 1 << 32
"""Wishes that a site may have between two versions of the table."""
UNHEARD: Final = 4
"""Of this many sites that stay or were heard, the first apart, one more may be new and unheard: even if none
of those exists, and the coordinator goes, the others are enough to decide."""


def can_follow(decision: Decision, layout: Layout, configuration: MetaGroupsConfiguration) -> bool:
    """Whether the decision can follow the version in force."""
    if (decision.origin, decision.version) != (layout.decision.origin, layout.version + 1):
        return False
    staying = [seat.site for seat in decision.seats if layout.lives.get(seat.site) == seat.life]
    if not layout.is_quorum(staying) or any(_leaps(seat, layout) for seat in decision.seats):
        return False
    made = layout_of(decision, configuration.shape, bypass=configuration.bypass)
    return made.is_complete and _is_every_tree_seen_to(made, layout)


def _leaps(seat: Seat, layout: Layout) -> bool:
    """Whether a site cannot have had so many wishes: they must not run out."""
    before = layout.seats.get(seat.site)
    return seat.serial > (0 if before is None else before.serial) + MOST_WISHES


def is_heard_of(decision: Decision, layout: Layout, has_heard: Callable[[Site, Life], bool]) -> bool:
    """Whether nearly all sites of a decision exist: they are in force already, or have spoken themselves."""
    known = sum(
        layout.lives.get(seat.site) == seat.life or has_heard(seat.site, seat.life) for seat in decision.seats
    )
    return UNHEARD * (len(decision.seats) - known) < known


def _is_every_tree_seen_to(made: Layout, layout: Layout) -> bool:
    """Whether each tree stays as it is, hands over or ends, and all others are new."""
    kept = made.trees.keys() & layout.trees.keys()
    if any(made.trees[tree].nodes != layout.trees[tree].nodes for tree in kept):
        return False
    if any(tree[0] != made.version for tree in made.trees.keys() - kept):
        return False
    leaving = [*made.retiring, *(ending.tree for ending in made.decision.endings)]
    if len(made.decision.retiring) != len(made.retiring) or len(set(leaving)) != len(leaving):
        return False
    if not layout.all_trees() - kept >= set(leaving) >= layout.trees.keys() - kept:
        return False
    return all(layout.members_on(tree) == members for tree, members in made.retiring.items())
