"""All trees as one site sees them: those of the current view, and retiring ones.

A site has an endpoint on each tree that it is in, and an outbox on each tree that it sends on, in it or not.
Trees are independent of one another, except for what is here: the order in which a site delivers on retiring
trees and on their successors, a sender's causal order across trees, and stopping and ending.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final

from antiphon.core.effects import Joined, Left, Send, SetTimer
from antiphon.core.ids import Group, Site
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.context import Context
from antiphon.protocols.metagroups.endpoint import Endpoint
from antiphon.protocols.metagroups.ledger import Ledger
from antiphon.protocols.metagroups.moving import KnownMoves
from antiphon.protocols.metagroups.outbox import Outbox
from antiphon.protocols.metagroups.pdus import (
    BUSY,
    DRAINED,
    FINISHED,
    MOST_WANTED,
    Body,
    Copy,
    Decision,
    Ending,
    Entry,
    Held,
    Holding,
    Mark,
    Move,
    Query,
    Request,
    Session,
    Taken,
    Token,
    TokenRequest,
    TreeId,
    Turn,
    Turned,
    Want,
)
from antiphon.protocols.metagroups.view import Tree, View


class SiteTrees:
    """What a site does on its trees, in one view after another."""

    def __init__(self, context: Context) -> None:
        self.session: Session = (0, 0)
        self.view: View | None = None
        """The current view; None while this site is in no cluster."""
        self.groups: frozenset[Group] = frozenset()
        """The groups that this site is in, as reported to the application."""
        self.moves: Final = KnownMoves(context.configuration)
        self._changed: dict[Group, bool] = {}
        """Groups whose deliveries have begun (true) or ended by moves in the current view."""
        self.done: list[Move] = []
        """Moves of this site that are done and not confirmed yet."""
        self.granted: set[TreeId] = set()
        """Trees on which this site has granted a move in the current view."""
        self.stopped: set[TreeId] = set()
        self.over: set[TreeId] = set()
        """Retiring trees that all sites have finished."""
        self.stops = 0
        self._context: Final = context
        self._site: Final = context.site
        self._configuration: Final = context.configuration
        self._effects: Final = context.effects
        self._ledger: Final = Ledger(
            context.site, context.effects, safe=context.configuration.delivery == "safe"
        )
        self._endpoints: dict[TreeId, Endpoint] = {}
        self._outboxes: dict[TreeId, Outbox] = {}
        self._sent_stages: tuple[tuple[TreeId, int], ...] | None = ()
        """This site's stages on retiring trees, as sent last."""
        self._flushing = self._repairing = False
        self._repeated = 0

    # Views

    def begin(self, session: Session) -> None:
        """A session begins: this site is in no cluster."""
        self.session = session
        self.view = None
        self.moves.reset()
        self.granted.clear()
        self._changed.clear()
        self._endpoints.clear()
        self._outboxes.clear()
        self.stopped.clear()
        self.over.clear()

    def adopt(self, view: View) -> None:
        """Go over to a view: trees that it does not have are over, and new ones begin."""
        self.view = view
        self.moves.reset()
        self.granted.clear()
        self._changed.clear()
        self._ledger.on_view(view.sessions)
        self.stopped.clear()
        going_on = view.all_trees()
        self.over &= going_on
        self._endpoints = {tree: endpoint for tree, endpoint in self._endpoints.items() if tree in going_on}
        self._outboxes = {tree: outbox for tree, outbox in self._outboxes.items() if tree in going_on}
        self._sent_stages = None
        for tree in view.trees.values():
            if self._site in tree.node_of and tree.id not in self._endpoints:
                self._endpoints[tree.id] = Endpoint(
                    self._context, tree, self._outbox(tree.id), self._ledger, self
                )

    def _outbox(self, tree: TreeId) -> Outbox:
        found = self._outboxes.get(tree)
        if found is None:
            assert self.view is not None, "only a site in a cluster has trees"
            found = self._outboxes[tree] = Outbox(self._context, self.session, self.view.trees[tree])
        return found

    # Figures

    def kept(self) -> int:
        """Batches in memory."""
        return sum(endpoint.kept() for endpoint in self._endpoints.values())

    def waiting(self) -> int:
        """Own batches that are not stable."""
        return sum(map(len, self._outboxes.values()))

    def waiting_for(self) -> Iterator[tuple[Site, int]]:
        """For each own batch that is not stable: its primary site, and its number of messages."""
        for outbox in list(self._outboxes.values()):
            yield from outbox.waiting_for()

    def repeated(self) -> int:
        """Batches that were sent again."""
        served = [endpoint.server for endpoint in self._endpoints.values() if endpoint.server is not None]
        repeated = sum(outbox.repeated for outbox in self._outboxes.values())
        return self._repeated + repeated + sum(server.copies for server in served)

    # What comes in

    def admit(self, tree: TreeId, number: int, group: Group, bodies: Packed) -> None:
        self._outbox(tree).admit(number, group, bodies, self.moves.latest(tree))

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> bool:
        """A PDU on a tree; False if it makes no sense there."""
        return self._handlers[type(pdu)](self, now, sender, pdu)

    def _on_request(self, now: Nanoseconds, sender: Site, pdu: Request | TokenRequest) -> bool:
        endpoint = self._running(pdu.tree)
        if endpoint is None or not self._is_listed(sender, pdu.session):
            return True
        return endpoint.on_request(now, sender, pdu)

    def _on_query(self, _now: Nanoseconds, sender: Site, pdu: Query) -> bool:
        endpoint = self._running(pdu.tree)
        if endpoint is not None and endpoint.server is not None and endpoint.server.node == pdu.node:
            endpoint.server.on_query(sender, pdu)
        return True

    def _on_taken(self, _now: Nanoseconds, sender: Site, pdu: Taken) -> bool:
        outbox = self._outboxes.get(pdu.tree)
        if outbox is None or pdu.tree in self.stopped or pdu.session != self.session:
            return True
        return outbox.on_taken(sender, pdu)

    def _on_body(self, now: Nanoseconds, sender: Site, pdu: Body) -> bool:
        endpoint = self._running(pdu.tree)
        if endpoint is not None and self._is_listed(sender, pdu.session):
            count = len(pdu.bodies)
            endpoint.on_body(now, Batch(sender, pdu.session[0], pdu.number, count, pdu.group, pdu.bodies))
        return True

    def _on_entry(self, now: Nanoseconds, sender: Site, pdu: Entry | Token) -> bool:
        endpoint = self._running(pdu.tree)
        return endpoint is None or endpoint.on_entry(now, sender, pdu)

    def _on_mark(self, now: Nanoseconds, sender: Site, pdu: Mark) -> bool:
        endpoint = self._running(pdu.tree)
        return endpoint is None or endpoint.on_mark(now, sender, pdu)

    def _on_held(self, now: Nanoseconds, sender: Site, pdu: Held) -> bool:
        endpoint = self._running(pdu.tree)
        return endpoint is None or endpoint.on_held(now, sender, pdu)

    # Moves

    def members(self, tree: Tree, group: Group) -> frozenset[Site]:
        """The members of a group on its current tree, as far as this site knows."""
        return self.moves.members(group, tree.members[group])

    def is_sending(self) -> bool:
        """Whether this site has multicast on any tree that it still knows."""
        return any(outbox.is_used for outbox in self._outboxes.values())

    def moved(self) -> tuple[TreeId, ...]:
        """Trees on which this site has granted or placed a move, or has moved itself."""
        endpoints = self._endpoints.items()
        return tuple(sorted(self.granted | {tree for tree, endpoint in endpoints if endpoint.has_moved}))

    def has_changed(self) -> bool:
        """Whether this site has joined or left a group by a move in the current view."""
        view = self.view
        trees = () if view is None else view.trees
        return any(endpoint.has_turned for tree, endpoint in self._endpoints.items() if tree in trees)

    def settled(self) -> int:
        """Up to which move no own batch may name a site that has left, now or later.

        A site that knows fewer moves than were announced learns them before it admits another batch.
        """
        known, found = self.moves, self.moves.announced
        for tree, outbox in self._outboxes.items():
            if outbox and self.view is not None and tree in self.view.trees:
                next_move = known.first_after(tree, outbox.oldest_moves)
                found = min(found, len(known) if next_move is None else next_move - 1)
        return found

    def leave(self, move: Move) -> bool:
        """This site leaves a group by a move; whether that makes sense."""
        endpoint = self._running(move.tree)
        return endpoint is not None and endpoint.leave(move)

    def place_move(self, now: Nanoseconds, move: Move) -> None:
        """Give a move its place, if the ways to its nodes part at a node whose primary site this is."""
        endpoint = self._running(move.tree)
        server = None if endpoint is None else endpoint.server
        if endpoint is None or server is None or self.view is None or move.tree not in self.view.trees:
            return
        if server.is_meeting(move):
            server.place_move(now, move)
            self._set_repair_timer()

    def has_moved(self, move: Move) -> bool:
        """Whether this site receives on the node to which it was to move."""
        endpoint = self._running(move.tree)
        return endpoint is not None and endpoint.is_done(move)

    def has_noted(self, move: Move) -> bool:
        """Whether this site has joined or left a group by a move, or leaves it."""
        endpoint = self._endpoints.get(move.tree)
        return endpoint is not None and endpoint.has_noted(move)

    def on_turn(self, sender: Site, pdu: Turn) -> bool | None:
        """A primary site tells this site its turn; whether the move is done, None if that makes no sense."""
        endpoint = self._running(pdu.move.tree)
        if endpoint is None:
            return False
        if not endpoint.on_turn(sender, pdu):
            return None
        self._effects.append(Send(sender, Turned(pdu.move, pdu.node)))
        return endpoint.is_done(pdu.move)

    def on_turned(self, sender: Site, pdu: Turned) -> None:
        """The site that moves knows its turn at a node."""
        endpoint = self._running(pdu.move.tree)
        server = None if endpoint is None else endpoint.server
        if server is not None and server.node == pdu.node and sender == pdu.move.site:
            server.on_turned(pdu.move)

    def on_change(self, move: Move, *, joins: bool) -> None:
        """The deliveries of a group that this site has joined by a move begin, or those of one that it has
        left end."""
        group = move.group
        if self.view is not None and move.tree in self.view.trees:
            self._changed[group] = joins
        if joins == (group in self.groups):
            return
        self.groups ^= {group}
        self._effects.append(Joined(group) if joins else Left(group))

    def on_moved(self, move: Move) -> None:
        """This site receives on the node that it has moved to."""
        self.done.append(move)

    def _running(self, tree: TreeId) -> Endpoint | None:
        """The endpoint on a tree that is not stopped; None also for trees that are over or to come."""
        return None if tree in self.stopped else self._endpoints.get(tree)

    def _is_listed(self, site: Site, session: Session) -> bool:
        """Whether the view lists a site, in this session."""
        return self.view is not None and self.view.sessions.get(site) == session

    # What goes out

    def send(self, now: Nanoseconds) -> None:
        """Send what may be sent, and have what is new acknowledged soon."""
        for tree, outbox in self._outboxes.items():
            if outbox.may_send and tree not in self.stopped:
                self._send_due(now, tree, outbox)
        running = [endpoint for tree, endpoint in self._endpoints.items() if tree not in self.stopped]
        if any(endpoint.dirty for endpoint in running) and not self._flushing:
            if self._configuration.acknowledge_ns:
                self._flushing = True
                self._effects.append(SetTimer("flush", self._configuration.acknowledge_ns))
            else:
                self._flush(now)
            self._set_repair_timer()

    def _send_due(self, now: Nanoseconds, tree: TreeId, outbox: Outbox) -> None:
        endpoint = self._endpoints.get(tree)
        server = None if endpoint is None else endpoint.server
        for own in outbox.due(now, self._limit(tree)):
            if self._configuration.bodies == "direct":
                outbox.multicast_body(own, outbox.members(own))
            if server is not None and server.node == own.node:
                outbox.on_accepted(own.node, own.seq)
                server.request_here(now, self.session, own.seq, own.batch)
            else:
                if endpoint is not None and self._configuration.bodies == "direct":
                    endpoint.on_body(now, own.batch)
                outbox.request(own)
        self._set_repair_timer()

    def _limit(self, tree: TreeId) -> int | None:
        """In causal order: the first own batch on another tree that is not stable. Those after it wait."""
        if not self._configuration.causal:
            return None
        firsts = [outbox.first for other, outbox in self._outboxes.items() if other != tree]
        return min((first for first in firsts if first is not None), default=None)

    def resume(self) -> None:
        """After an absence, in which no timer ran."""
        self._flushing = self._repairing = False
        self._set_repair_timer()

    def _set_repair_timer(self) -> None:
        if not self._repairing:
            self._repairing = True
            self._effects.append(SetTimer("repair", self._configuration.repair_ns))

    def on_timer(self, now: Nanoseconds, name: str) -> None:
        if name == "flush":
            self._flushing = False
            self._flush(now)
        elif name == "repair":
            self._repairing = False
            self._repair(now)

    def _flush(self, now: Nanoseconds) -> None:
        for tree, endpoint in self._endpoints.items():
            if tree not in self.stopped:
                endpoint.flush(now)

    def _repair(self, now: Nanoseconds) -> None:
        busy = False
        for tree, endpoint in self._endpoints.items():
            if tree not in self.stopped:
                busy = endpoint.repair(now) or busy
        for tree, outbox in self._outboxes.items():
            if tree not in self.stopped:
                outbox.repeat(now, self._configuration.repair_ns)
                busy = busy or bool(outbox)
        if busy:
            self._set_repair_timer()

    # Retiring trees

    def hand_over(self, now: Nanoseconds) -> bool:
        """Continue with retiring trees; whether this site's stages have changed."""
        view = self.view
        if view is None or not view.retiring or len(self.over) >= len(view.retiring):
            return False
        self.take_turns(now)
        before, self._sent_stages = self._sent_stages, self.stages()
        return self._sent_stages != before

    def take_turns(self, now: Nanoseconds) -> None:
        """Deliver on one tree after another: on the next one only when the one before is finished."""
        waiting = [endpoint for endpoint in self._endpoints.values() if not endpoint.finished]
        while waiting and not waiting[0].is_open:
            self._report_current(waiting)
            waiting[0].open(now)
            if waiting[0].finished:
                del waiting[0]
        self._report_current(waiting)

    def _report_current(self, waiting: Iterable[Endpoint]) -> None:
        """Report this site's groups if it has finished all retiring trees."""
        view = self.view
        if view is not None and all(endpoint.tree.id in view.trees for endpoint in waiting):
            begun = {group for group, joins in self._changed.items() if joins}
            listed = frozenset(view.records[self._site].groups)
            self._report_groups((listed | begun) - (self._changed.keys() - begun))

    def _report_groups(self, groups: frozenset[Group]) -> None:
        self._effects.extend(Left(group) for group in sorted(self.groups - groups))
        self._effects.extend(Joined(group) for group in sorted(groups - self.groups))
        self.groups = groups

    def stages(self) -> tuple[tuple[TreeId, int], ...]:
        """This site's stage on each retiring tree; trees that it has finished are left out."""
        found = []
        for tree in sorted(() if self.view is None else self.view.retiring):
            endpoint = self._endpoints.get(tree)
            if self._outboxes.get(tree):
                found.append((tree, BUSY))
            elif endpoint is not None and not endpoint.finished:
                found.append((tree, DRAINED))
        return tuple(found)

    def on_progress(self, now: Nanoseconds, stages: Iterable[tuple[TreeId, int]]) -> None:
        """All sites have reached these stages on retiring trees.

        End the streams of drained trees, to which no more requests come, and forget finished trees.
        """
        view = self.view
        for tree, stage in stages:
            if view is None or tree not in view.retiring or tree in self.stopped:
                continue
            endpoint = self._endpoints.get(tree)
            if endpoint is not None and endpoint.server is not None:
                endpoint.server.close(now)
            if stage == FINISHED:
                self.over.add(tree)
                self._endpoints.pop(tree, None)
                self._outboxes.pop(tree, None)
                self.take_turns(now)

    # Trees that are stopped, and end

    def stop(self, trees: Iterable[TreeId]) -> None:
        """Stop all activity on these trees."""
        if self.view is not None:
            new = (self.view.all_trees() & set(trees)) - self.stopped
            self.stopped |= new
            while self._configuration.causal and (tied := self._tied()):
                self.stopped |= tied
                new |= tied
            self.stops += len(new & self._endpoints.keys())

    def _tied(self) -> set[TreeId]:
        """In causal order: running trees with own batches that precede some on a stopped tree.

        The batches on a stopped tree are delivered when it ends, so those that precede them must be delivered
        by then.
        """
        stopped = [outbox.last for tree, outbox in self._outboxes.items() if tree in self.stopped]
        limit = max((last for last in stopped if last is not None), default=-1)
        return {
            tree
            for tree, outbox in self._outboxes.items()
            if tree not in self.stopped and outbox.first is not None and outbox.first < limit
        }

    def holdings(self) -> tuple[Holding, ...]:
        """What this site has of the stopped trees."""
        found = []
        for tree in sorted(self.stopped - self.over):
            outbox, endpoint = self._outboxes.get(tree), self._endpoints.get(tree)
            waiting = () if outbox is None else outbox.items()
            found.append(Holding(tree, (), 0, waiting) if endpoint is None else endpoint.holding(waiting))
        return tuple(found)

    def end(self, endings: Iterable[Ending]) -> None:
        """Deliver the last batches of trees that end; own ones among them are stable."""
        for ending in endings:
            endpoint, outbox = self._endpoints.pop(ending.tree, None), self._outboxes.pop(ending.tree, None)
            if endpoint is not None:
                endpoint.finish(ending)
            if outbox is not None:
                for item in ending.items:
                    if item.sender == self._site:
                        outbox.forget(item.number)
                self._repeated += outbox.repeated

    # Bodies that are lacking

    def fetch(self, decision: Decision) -> int:
        """Ask for the batches that a decision needs and this site lacks; how many those are."""
        wanted: dict[tuple[Site, TreeId], list[tuple[Site, int]]] = {}
        for ending in decision.endings:
            endpoint = self._endpoints.get(ending.tree)
            for source, sender, number in [] if endpoint is None else endpoint.lacking(ending):
                own = self._find(ending.tree, sender, number) if source == self._site else None
                if own is not None and endpoint is not None:
                    endpoint.keep(own)
                else:
                    wanted.setdefault((source, ending.tree), []).append((sender, number))
        for (source, tree), items in wanted.items():
            self._effects.append(Send(source, Want(tree, tuple(items[:MOST_WANTED]))))
        return sum(map(len, wanted.values()))

    def _find(self, tree: TreeId, sender: Site, number: int) -> Batch | None:
        endpoint, outbox = self._endpoints.get(tree), self._outboxes.get(tree)
        found = outbox.find(number) if sender == self._site and outbox is not None else None
        if found is None and endpoint is not None:
            found = endpoint.find(sender, number)
        return found

    def _on_want(self, _now: Nanoseconds, sender: Site, pdu: Want) -> bool:
        if self.view is None or sender not in self.view.sessions:
            return False
        for wanted, number in pdu.items:
            batch = self._find(pdu.tree, wanted, number)
            if batch is not None and batch.bodies is not None:
                name = (batch.sender, batch.incarnation, batch.number, batch.group)
                self._effects.append(Send(sender, Copy(pdu.tree, *name, batch.bodies, batch.moves)))
        return True

    def on_copy(self, now: Nanoseconds, sender: Site, pdu: Copy, decision: Decision | None) -> bool:
        """A batch that was asked for; whether it was the last one that a decision needs."""
        endpoint = self._endpoints.get(pdu.tree)
        if endpoint is None:
            return False
        name = (pdu.sender, pdu.incarnation, pdu.number)
        batch = Batch(*name, len(pdu.bodies), pdu.group, pdu.bodies, pdu.moves)
        if pdu.tree not in self.stopped:
            endpoint.on_copy(now, sender, batch)
        endings = () if decision is None else decision.endings
        if not any(ending.tree == pdu.tree and endpoint.lacks(ending, sender, pdu) for ending in endings):
            return False
        endpoint.keep(batch)
        return not any(
            self._endpoints[ending.tree].lacking(ending)
            for ending in endings
            if ending.tree in self._endpoints
        )

    _handlers: ClassVar[dict[type[Pdu], Callable[["SiteTrees", Nanoseconds, Site, Any], bool]]] = {
        Request: _on_request,
        TokenRequest: _on_request,
        Taken: _on_taken,
        Query: _on_query,
        Entry: _on_entry,
        Token: _on_entry,
        Body: _on_body,
        Mark: _on_mark,
        Held: _on_held,
        Want: _on_want,
    }
