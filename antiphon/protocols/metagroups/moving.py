"""Joins that alter no tree: a site moves from one node of a tree to another, and the tree stays.

Source: Jia and So, section 6: a change of membership that makes and deletes no meta-group does not alter the
trees; and section 5: only the primary site of a meta-group maintains its membership. A site that joins one
more group of its tree, and leaves a meta-group that goes on without it for one that exists, only moves. All
other sites keep the view that they have.

How a move gets one place in the order. The first site of the view grants it and numbers it. The primary site
of the node where the ways to both nodes part (`Tree.meeting`) places it in its own order like a message, and
passes it down both ways. The primary sites of both nodes tell the site its turns: after which entry its
stream ends there, or begins. The site delivers what its old node placed before the move, then what its new
node placed after it. All groups of the old node are ordered at the meeting node or above. So of their
messages the site gets each once; and since the move has a place in the order of the tree like a message, so
has whatever the site delivers before it and after it.

Who must know. A sender names the destinations of a message when it admits it. So the site says when it
receives on its new node, and only then the first site tells it on: to the members of the group at once, and
to others by a count in its heartbeats. A sender that knows fewer asks before it multicasts. Each batch says
how many moves its sender knew; the site that has moved skips the messages of its new group that do not name
it.

The next change of the view plants trees with moves anew, with all sites at their places, so that no move
outlives its view. For that, a site that takes part in an attempt gives no move its place any more, and
reports the trees on which it has done so before.

A join that is not such a move, and every leave, changes the view: a sender that has not heard of a leave
would name a site that no longer listens.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from antiphon.core.ids import Group, Site
from antiphon.core.packing import pack
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.pdus import NO_GROUP, MetaGroupsConfiguration, Move, SiteRecord, TreeId
from antiphon.protocols.metagroups.view import View

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Move)


class Way(NamedTuple):
    """What a join that alters no tree does: the group, the tree, and the nodes before and after."""

    group: Group
    tree: TreeId
    source: int
    target: int


def way_of(
    view: View, current: SiteRecord, wanted: SiteRecord, configuration: MetaGroupsConfiguration
) -> Way | None:
    """How a site moves to be in the groups that it wants; None if the view has to change for it.

    Primary sites never move. Where messages take shortcuts or bodies travel apart, they do not all pass the
    node where the ways part.
    """
    joined = set(wanted.groups) - set(current.groups)
    is_join = len(joined) == 1 and set(current.groups) < set(wanted.groups)
    if not is_join or configuration.bypass or configuration.bodies == "direct":
        return None
    (group,) = joined
    tree = view.tree_to(group)
    if tree is None:
        return None
    place = {node.label: index for index, node in enumerate(tree.nodes)}
    source, target = place.get(tuple(current.groups)), place.get(tuple(sorted(wanted.groups)))
    if source is None or target is None or tree.nodes[source].primary == current.site:
        return None
    return Way(group, tree.id, source, target)


def as_batch(move: Move) -> Batch:
    """A move as it stands in the order of the tree."""
    return Batch(move.site, 0, move.number, 1, NO_GROUP, pack([_encoder.encode(move)]))


def move_in(batch: Batch) -> Move | None:
    """The move that stands at a place; None if it is none."""
    if batch.group != NO_GROUP or not batch.number or batch.bodies is None:
        return None
    try:
        return _decoder.decode(batch.bodies[0])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class KnownMoves:
    """The moves of the current view that a sender knows, as far as they are done."""

    def __init__(self) -> None:
        self._moves: list[Move] = []
        self._joiners: dict[Group, frozenset[Site]] = {}
        self.announced = 0
        """The moves that the first site of the view has announced."""

    def reset(self) -> None:
        """The view has changed."""
        self._moves.clear()
        self._joiners.clear()
        self.announced = 0

    def __len__(self) -> int:
        return len(self._moves)

    @property
    def is_behind(self) -> bool:
        """Whether there are moves that this site does not know."""
        return len(self._moves) < self.announced

    def learn(self, moves: Iterable[Move]) -> None:
        """Moves in the order of their numbers; those after a gap are left out."""
        for move in moves:
            if move.number == len(self._moves) + 1:
                self._moves.append(move)
                self._joiners[move.group] = self._joiners.get(move.group, frozenset()) | {move.site}
        self.announced = max(self.announced, len(self._moves))

    def after(self, number: int) -> tuple[Move, ...]:
        """The moves with greater numbers."""
        return tuple(self._moves[number:])

    def members(self, group: Group, listed: frozenset[Site]) -> frozenset[Site]:
        """The members of a group: those in the view, and those that have joined since."""
        joiners = self._joiners.get(group)
        return listed if joiners is None else listed | joiners
