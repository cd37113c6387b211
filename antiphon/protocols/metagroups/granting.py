"""The first site of a view grants joins and leaves that alter no tree, numbers them, and tells senders."""

from collections.abc import Iterator
from typing import Final

from antiphon.core.effects import Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.context import Context
from antiphon.protocols.metagroups.moving import Whereabouts, is_leave
from antiphon.protocols.metagroups.pdus import (
    MOST_MOVES,
    AskMoves,
    Heartbeat,
    Leave,
    Leaving,
    Move,
    Moved,
    Moves,
    PlaceMove,
    SiteRecord,
)
from antiphon.protocols.metagroups.peers import PeerTable
from antiphon.protocols.metagroups.site_trees import SiteTrees
from antiphon.protocols.metagroups.view import View


class Grant:
    """A move that was granted."""

    __slots__ = ("is_noted", "move", "since_ns", "unsettled")

    def __init__(self, move: Move, now: Nanoseconds, *, is_leave: bool) -> None:
        self.move: Final = move
        self.since_ns = now
        """When its present step began."""
        self.is_noted = not is_leave
        """Whether the site that leaves knows so; true for joins."""
        self.unsettled: set[Site] = set()
        """Sites that may still name the site that leaves."""


class Granter:
    """The moves that this site has granted in the current view."""

    def __init__(self, context: Context, trees: SiteTrees, peers: PeerTable) -> None:
        self._site: Final = context.site
        self._configuration: Final = context.configuration
        self._effects: Final = context.effects
        self._trees: Final = trees
        self._peers: Final = peers
        self._whereabouts: Final = Whereabouts()
        self._grants: list[Grant] = []
        self._open: dict[Site, Grant] = {}
        """Moves that are not done, by their sites."""
        self._told: set[int] = set()
        """Moves that senders may know: joins that are done, leaves that the site has noted."""

    def reset(self) -> None:
        """The view has changed, or this site starts a new session."""
        self._whereabouts.reset()
        self._grants.clear()
        self._open.clear()
        self._told.clear()

    def on_request(
        self, now: Nanoseconds, sender: Site, pdu: Heartbeat, view: View, *, is_free: bool
    ) -> tuple[Site, Pdu] | None:
        """A site asks to be in other groups; what to tell which site if it only has to move.

        `is_free` says that no change of the view is under way.
        """
        current = self._peers.granted.get(sender) or view.records.get(sender)
        if not is_free or current is None or current.session != pdu.session or pdu.serial <= current.serial:
            return None
        wanted = SiteRecord(sender, pdu.session, pdu.serial, tuple(sorted(set(pdu.groups))))
        way = self._whereabouts.way_of(view, current, wanted, self._configuration)
        is_full = len(self._grants) >= MOST_MOVES
        if way is None or sender in self._open or is_full or way.tree in self._trees.stopped:
            return None
        number = len(self._grants) + 1
        move = Move(view.version, number, sender, way.group, way.tree, way.source, way.target)
        leaves = is_leave(move, view.trees[way.tree])
        grant = self._open[sender] = Grant(move, now, is_leave=leaves)
        self._grants.append(grant)
        self._whereabouts.note(sender, way)
        self._peers.granted[sender] = wanted
        self._trees.granted.add(way.tree)
        return (sender, Leave(move)) if leaves else (self._place(move, view), PlaceMove(move))

    def is_granted(self, sender: Site, pdu: Heartbeat) -> bool:
        """Whether a site asks for nothing but what it was granted, or has not moved yet: then it asks
        again."""
        granted = self._peers.granted.get(sender)
        if granted is None or granted.session != pdu.session:
            return False
        return sender in self._open or pdu.serial <= granted.serial

    def _place(self, move: Move, view: View) -> Site:
        """The site that gives a move its place."""
        tree = view.trees[move.tree]
        return tree.nodes[tree.meeting(move.source, move.target)].primary

    def repeat(self, view: View) -> list[Pdu]:
        """Ask again for moves that are not done; returns what this site has to do itself."""
        own: list[Pdu] = []
        for grant in self._open.values():
            move = grant.move
            if grant.unsettled:
                continue
            sites = (self._place(move, view), move.site) if grant.is_noted else (move.site,)
            pdu = PlaceMove(move) if grant.is_noted else Leave(move)
            for site in dict.fromkeys(sites):
                if site == self._site:
                    own.append(pdu)
                else:
                    self._effects.append(Send(site, pdu))
        return own

    def overdue(self, now: Nanoseconds) -> bool:
        """Whether a move is overdue: the view must change for it."""
        return any(now - grant.since_ns > self._configuration.suspect_ns for grant in self._open.values())

    def on_leaving(self, now: Nanoseconds, sender: Site, pdu: Leaving, view: View) -> None:
        """A site that leaves a group has noted so: tell the others to name it no more."""
        grant = self._open.get(sender)
        if grant is None or grant.move != pdu.move or grant.is_noted:
            return
        grant.is_noted = True
        grant.since_ns = now
        grant.unsettled = set(view.sessions)
        self._announce(grant.move, view)

    def on_settled(
        self, now: Nanoseconds, sender: Site, settled: int, view: View
    ) -> Iterator[tuple[Site, Pdu]]:
        """A site names no site that leaves by these moves; what to tell which site if it was the last."""
        for grant in list(self._open.values()):
            if sender in grant.unsettled and settled >= grant.move.number:
                grant.unsettled.discard(sender)
                if not grant.unsettled:
                    grant.since_ns = now
                    yield self._place(grant.move, view), PlaceMove(grant.move)

    def on_moved(self, sender: Site, pdu: Moved, view: View) -> None:
        """A site has moved: if it has joined a group, its messages may name it now."""
        grant = self._open.get(sender)
        if grant is None or grant.move != pdu.move:
            return
        del self._open[sender]
        if pdu.move.number not in self._told:
            self._announce(pdu.move, view)

    def _announce(self, move: Move, view: View) -> None:
        """Tell the members of a move's group of it, once all moves before it are told."""
        self._told.add(move.number)
        known = self._trees.moves
        while len(known) + 1 in self._told:
            following = self._grants[len(known)].move
            tree = view.trees[following.tree]
            before = self._trees.members(tree, following.group)
            known.learn((following,), view)
            members = before | self._trees.members(tree, following.group)
            others = tuple(sorted(members - {self._site}))
            if others:
                self._effects.append(Multicast(Moves((following,)), others))

    def on_ask(self, sender: Site, pdu: AskMoves) -> None:
        """A sender lacks some moves."""
        moves = self._trees.moves.after(pdu.known)
        if moves:
            self._effects.append(Send(sender, Moves(moves)))
