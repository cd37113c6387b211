"""Joins and leaves that alter no tree: a site moves from one node of a tree to another, and the tree stays.

Source: Jia and So, section 6: a change of membership that makes and deletes no meta-group does not alter the
trees; and section 5: only the primary site of a meta-group maintains its membership. A site that joins one
more group of its tree, or leaves one, and so passes from a meta-group that goes on without it to one that
exists, only moves. All other sites keep the view that they have. A primary site goes on with its work for
its old node, whose messages it does not get any more.

How a move gets one place in the order. The first site of the view grants it and numbers it. The primary site
of the node where the ways to both nodes part (`Tree.meeting`) places it in its own order like a message, and
passes it down both ways. The primary sites of both nodes tell the site its turns: after which entry its
stream ends there, or begins. The site delivers what its old node placed before the move, then what its new
node placed after it. All groups of both nodes are ordered at the meeting node or above. So of their messages
the site gets each once; and since the move has a place in the order of the tree like a message, so has
whatever the site delivers before it and after it.

Who must know. A sender names the destinations of a message when it admits it. Each batch says which of the
moves on its tree its sender knew: the greatest number. A tree with moves does not outlive its view, so the
number means the same to all.

- After a join the site says when it receives on its new node, and only then the first site tells it on: to
  the members of the group at once, and to others by a count in its heartbeats. A sender that knows fewer
  asks before it multicasts. The site that has moved skips the messages of its new group that do not name it.
- A leave is told before the move: first to the site itself, which from then on skips the messages that do
  not name it any more; then to the others, as above. Each site's heartbeat tells up to which move it is
  settled: no batch of its own that may name the site is unstable, and no more follow. When all are settled,
  every batch that names the site stands in its stream, and the move gets its place behind them. So a leave
  costs no PDU that a join does not cost, and takes the time of two heartbeats.

The next change of the view plants trees with moves anew, with all sites at their places, so that no move
outlives its view. For that, a site that takes part in an attempt gives no move its place any more, and
reports the trees on which it has done so before.

A change that is not such a move changes the view: if it makes or deletes a meta-group, if the site is in no
group of the tree before or after it, or if the site returns to a node where it was in this view.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from antiphon.core.ids import Group, Site
from antiphon.core.packing import pack
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.pdus import NO_GROUP, MetaGroupsConfiguration, Move, SiteRecord, TreeId
from antiphon.protocols.metagroups.view import Tree, View

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Move)


class Way(NamedTuple):
    """What a join or leave does that alters no tree: the group, the tree, and the nodes before and after."""

    group: Group
    tree: TreeId
    source: int
    target: int


class Whereabouts:
    """The nodes on which sites are in a view, after the moves that were granted."""

    def __init__(self) -> None:
        self._been: dict[Site, list[int]] = {}
        """Of sites that have moved: all nodes on which they were, in order."""
        self._gone: Counter[tuple[TreeId, int]] = Counter()
        """By how many sites each node has become smaller."""

    def reset(self) -> None:
        """The view has changed."""
        self._been.clear()
        self._gone.clear()

    def note(self, site: Site, way: "Way | Move") -> None:
        """A move was granted."""
        self._been.setdefault(site, [way.source]).append(way.target)
        self._gone[way.tree, way.source] += 1
        self._gone[way.tree, way.target] -= 1

    def is_way(self, view: View, move: Move, configuration: MetaGroupsConfiguration) -> bool:
        """Whether the first site of the view may have granted this move, after those before it."""
        tree, record = view.trees.get(move.tree), view.records.get(move.site)
        if tree is None or record is None or max(move.source, move.target) >= len(tree.nodes):
            return False
        if self._been.get(move.site, [tree.node_of.get(move.site)])[-1] != move.source:
            return False
        current, wanted = (
            structs.replace(record, groups=tree.nodes[node].label) for node in (move.source, move.target)
        )
        way = Way(move.group, move.tree, move.source, move.target)
        return self.way_of(view, current, wanted, configuration) == way

    def way_of(
        self, view: View, current: SiteRecord, wanted: SiteRecord, configuration: MetaGroupsConfiguration
    ) -> Way | None:
        """How a site moves to be in the groups that it wants; None if the view has to change for it.

        The last site of a node does not move, since its meta-group ends with it. Where messages take
        shortcuts or bodies travel apart, they do not all pass the node where the ways part.
        """
        changed = set(wanted.groups) ^ set(current.groups)
        if len(changed) != 1 or configuration.bypass or configuration.bodies == "direct":
            return None
        (group,) = changed
        tree = view.tree_to(group)
        if tree is None:
            return None
        source, target = tree.places.get(current.groups), tree.places.get(wanted.groups)
        if source is None or target is None or target in self._been.get(current.site, ()):
            return None
        if len(tree.nodes[source].sites) - self._gone[tree.id, source] < 2:
            return None
        return Way(group, tree.id, source, target)


Turns: TypeAlias = dict[int, bool]
"""When a site has joined a group (true) or left it, by the numbers of its moves on a tree."""
NO_TURNS: Final[Turns] = {}


def is_named(is_listed: bool, turns: Turns, moves: int) -> bool:
    """Whether a batch names a site, by the view and by the moves that its sender knew."""
    latest = max((number for number in turns if number <= moves), default=None)
    return is_listed if latest is None else turns[latest]


def is_leave(move: Move, tree: Tree) -> bool:
    """Whether the site that moves leaves the group."""
    return move.group in tree.nodes[move.source].label


def is_between_nodes(move: Move, tree: Tree) -> bool:
    """Whether a move leads from a node of a tree to one that differs from it by the move's group."""
    nodes = tree.nodes
    if move.tree != tree.id or max(move.source, move.target) >= len(nodes):
        return False
    return set(nodes[move.source].label) ^ set(nodes[move.target].label) == {move.group}


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
    """The moves of the current view that a sender knows: joins that are done, and leaves that have begun."""

    def __init__(self, configuration: MetaGroupsConfiguration) -> None:
        self._configuration: Final = configuration
        self._whereabouts: Final = Whereabouts()
        self._moves: list[Move] = []
        self._latest: dict[TreeId, int] = {}
        self._changed: dict[Group, dict[Site, bool]] = {}
        """Of each group: the sites that have joined, and those that have left."""
        self.announced = 0
        """The moves that the first site of the view has announced."""

    def reset(self) -> None:
        """The view has changed."""
        self._whereabouts.reset()
        self._moves.clear()
        self._latest.clear()
        self._changed.clear()
        self.announced = 0

    def __len__(self) -> int:
        return len(self._moves)

    @property
    def is_behind(self) -> bool:
        """Whether there are moves that this site does not know."""
        return len(self._moves) < self.announced

    def learn(self, moves: Iterable[Move], view: View) -> None:
        """Moves in the order of their numbers; those after a gap, or that cannot have been granted, are left
        out, and so are those after them."""
        for move in moves:
            is_next = move.number == len(self._moves) + 1
            if is_next and self._whereabouts.is_way(view, move, self._configuration):
                self._whereabouts.note(move.site, move)
                self._moves.append(move)
                self._latest[move.tree] = move.number
                joins = not is_leave(move, view.trees[move.tree])
                self._changed[move.group] = self._changed.get(move.group, {}) | {move.site: joins}
        self.announced = max(self.announced, len(self._moves))

    def after(self, number: int) -> tuple[Move, ...]:
        """The moves with greater numbers."""
        return tuple(self._moves[number:])

    def latest(self, tree: TreeId) -> int:
        """The last move on a tree; 0 if there is none."""
        return self._latest.get(tree, 0)

    def first_after(self, tree: TreeId, number: int) -> int | None:
        """The first move on a tree with a greater number."""
        return next((move.number for move in self._moves[number:] if move.tree == tree), None)

    def members(self, group: Group, listed: frozenset[Site]) -> frozenset[Site]:
        """The members of a group: those in the view, with those that have joined since, without those that
        leave."""
        changed = self._changed.get(group)
        if changed is None:
            return listed
        joined = {site for site, joins in changed.items() if joins}
        return (listed | joined) - (changed.keys() - joined)
