"""The first site of a view: it grants joins that alter no tree, numbers them, and tells senders of them."""

from typing import Final, NamedTuple

from antiphon.core.effects import Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.context import Context
from antiphon.protocols.metagroups.moving import way_of
from antiphon.protocols.metagroups.pdus import (
    MOST_MOVES,
    AskMoves,
    Heartbeat,
    Move,
    Moved,
    Moves,
    PlaceMove,
    SiteRecord,
)
from antiphon.protocols.metagroups.peers import PeerTable
from antiphon.protocols.metagroups.site_trees import SiteTrees
from antiphon.protocols.metagroups.view import View


class Grant(NamedTuple):
    """A move that was granted, and when."""

    move: Move
    since_ns: Nanoseconds


class Granter:
    """The moves that this site has granted in the current view."""

    def __init__(self, context: Context, trees: SiteTrees, peers: PeerTable) -> None:
        self._site: Final = context.site
        self._configuration: Final = context.configuration
        self._effects: Final = context.effects
        self._trees: Final = trees
        self._peers: Final = peers
        self._grants: list[Grant] = []
        self._open: dict[Site, Grant] = {}
        """Moves that are not done, by their sites."""
        self._done: set[int] = set()

    def reset(self) -> None:
        """The view has changed, or this site starts a new session."""
        self._grants.clear()
        self._open.clear()
        self._done.clear()

    def on_request(
        self, now: Nanoseconds, sender: Site, pdu: Heartbeat, view: View, *, is_free: bool
    ) -> Move | None:
        """A site asks to be in other groups; the move if it only has to move.

        `is_free` says that no change of the view is under way.
        """
        current = self._peers.granted.get(sender) or view.records.get(sender)
        if not is_free or current is None or current.session != pdu.session or pdu.serial <= current.serial:
            return None
        wanted = SiteRecord(sender, pdu.session, pdu.serial, tuple(sorted(set(pdu.groups))))
        way = way_of(view, current, wanted, self._configuration)
        is_full = len(self._grants) >= MOST_MOVES
        if way is None or sender in self._open or is_full or way.tree in self._trees.stopped:
            return None
        number = len(self._grants) + 1
        move = Move(view.version, number, sender, way.group, way.tree, way.source, way.target)
        grant = self._open[sender] = Grant(move, now)
        self._grants.append(grant)
        self._peers.granted[sender] = wanted
        self._trees.granted.add(way.tree)
        return move

    def is_granted(self, sender: Site, pdu: Heartbeat) -> bool:
        """Whether a site asks for nothing but what it was granted, or has not moved yet: then it asks
        again."""
        granted = self._peers.granted.get(sender)
        if granted is None or granted.session != pdu.session:
            return False
        return sender in self._open or pdu.serial <= granted.serial

    def place(self, move: Move, view: View) -> Site:
        """The site that gives a move its place."""
        tree = view.trees[move.tree]
        return tree.nodes[tree.meeting(move.source, move.target)].primary

    def repeat(self, view: View) -> list[PlaceMove]:
        """Ask again for moves that are not done; returns what this site has to do itself."""
        own = []
        for grant in self._open.values():
            move = grant.move
            for site in dict.fromkeys((self.place(move, view), move.site)):
                if site == self._site:
                    own.append(PlaceMove(move))
                else:
                    self._effects.append(Send(site, PlaceMove(move)))
        return own

    def overdue(self, now: Nanoseconds) -> bool:
        """Whether a move is overdue: the view must change for it."""
        return any(now - grant.since_ns > self._configuration.suspect_ns for grant in self._open.values())

    def on_moved(self, sender: Site, pdu: Moved, view: View) -> None:
        """A site has moved: tell the members of its group, once all moves before are done."""
        grant = self._open.get(sender)
        if grant is None or grant.move != pdu.move:
            return
        del self._open[sender]
        self._done.add(pdu.move.number)
        known = self._trees.moves
        while len(known) + 1 in self._done:
            move = self._grants[len(known)].move
            known.learn((move,))
            tree = view.tree_to(move.group)
            members = frozenset() if tree is None else self._trees.members(tree, move.group)
            others = tuple(sorted(members - {self._site}))
            if others:
                self._effects.append(Multicast(Moves((move,)), others))

    def on_ask(self, sender: Site, pdu: AskMoves) -> None:
        """A sender lacks some moves."""
        moves = self._trees.moves.after(pdu.known)
        if moves:
            self._effects.append(Send(sender, Moves(moves)))
