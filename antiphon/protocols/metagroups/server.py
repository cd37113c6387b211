"""The primary site of a meta-group: orders what comes to it and passes it on.

Source: Jia and So, section 5, the multicast server's three rules. Entries from above, and requests to the
groups whose primary meta-group this is, get the next place in the order here. From there each entry goes to
the sites of the meta-group if it is for them, and to each node below that leads to more of its group. The
node above is the parent and the nodes below are the children. With shortcuts there may be several nodes
above, each with its own channel.

Beyond the paper. A place is *held* when all sites below hold what stands there and before it. A request is
*ready* when it is held; what came from above is ready when its source says so. Readiness is a prefix of the
order: nothing is ready before everything that stands before it. It waits only for what is held below and
ready above, so it makes progress also with several nodes above. A site that delivers a message therefore
knows that every destination of everything that its own primary site placed before it holds that. Recovery
after a crash rests on this (`ending`). *Settled* says the same of delivery.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from antiphon.core.effects import Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.packing import pack
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.bodies import Bodies
from antiphon.protocols.metagroups.channels import Batch, Inlet, Outlet, to_members, to_primary
from antiphon.protocols.metagroups.context import Context
from antiphon.protocols.metagroups.moving import as_batch, is_between_nodes, move_in
from antiphon.protocols.metagroups.pdus import (
    NO_GROUP,
    Entry,
    Held,
    Mark,
    Move,
    Query,
    Request,
    Session,
    Taken,
    Token,
    TokenRequest,
    Turn,
)
from antiphon.protocols.metagroups.stream import Stream
from antiphon.protocols.metagroups.view import Tree

NOTHING: Final = pack([b""])
NO_SESSION: Final[Session] = (0, 0)


class Placed(NamedTuple):
    """What stands at a place: a batch, and the request that it was or the node above that it came from.

    The end of the streams is a request with number 0.
    """

    batch: Batch
    request: tuple[Site, Session, int] | None
    source: Site


class Client:
    """The requests of one sender, at the primary site of its groups."""

    __slots__ = ("accepted", "early", "session", "stable", "told")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.accepted = 0
        self.stable = 0
        self.told = (0, 0)
        self.early: dict[int, Batch] = {}


class Frontier:
    """How far the order is acknowledged: held below and then ready, or the same of delivery."""

    __slots__ = ("below", "from_above", "passed", "whole")

    def __init__(self, sources: Iterable[Site]) -> None:
        self.below = 0
        """The place up to which all sites below have acknowledged."""
        self.from_above = dict.fromkeys(sources, 0)
        """How many of those places came from each source above: what is acknowledged to it."""
        self.whole = 0
        """The place up to which all sites have, by the marks of the sources above too."""
        self.passed = dict(self.from_above)
        """How many of those places came from each source."""


class ServerHost(Protocol):
    """The endpoint that a server belongs to."""

    def on_stable(self, seq: int) -> None:
        """This site's own requests are stable up to this one."""

    def on_turn(self, sender: Site, pdu: Turn) -> bool:
        """This site moves away from the node that it serves."""


class Server:
    """The work of a primary site for one node of one tree."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        node: int,
        stream: Stream,
        bodies: Bodies,
        host: "ServerHost",
    ) -> None:
        site, configuration, effects = context
        self._site: Final = site
        self._tree: Final = tree
        self.node: Final = node
        self._groups: Final = frozenset(tree.nodes[node].label)
        self._leads: Final = tree.leads[node]
        self._stream: Final = stream
        self._bodies: Final = bodies
        self._is_direct: Final = configuration.bodies == "direct"
        self._requested: dict[tuple[Site, int], Batch] = {}
        """With direct bodies: requests in the order, for sites that lack the bodies."""
        self._configuration: Final = configuration
        self._effects: Final = effects
        self._log: dict[int, Placed] = {}
        self._end = 0
        self._released = 0
        sources = [tree.nodes[above].primary for above in tree.above[node]]
        self._holding = Frontier(sources)
        self._finishing = Frontier(sources)
        self._clients: dict[Site, Client] = {}
        self._queue: deque[Placed] = deque()
        """Requests that wait for room in the window."""
        self._own = 0
        """Requests in the order that are not settled."""
        others = [member for member in tree.nodes[node].sites if member != site]
        self.members: Final = Outlet(to_members(node), others)
        self._children: Final = {
            child: Outlet(to_primary(child), (tree.nodes[child].primary,)) for child in tree.below[node]
        }
        self.outlets: Final = {outlet.channel: outlet for outlet in (self.members, *self._children.values())}
        self.inlets: Final = {
            source: Inlet(to_primary(node), source, 8 * configuration.window) for source in sources
        }
        self._host: Final = host
        self.dirty = False
        self.copies = 0
        self._is_closed = False
        """Whether no more requests are taken."""
        self.moves: set[int] = set()
        """The numbers of the moves that have a place here."""
        self._turns: dict[int, Turn] = {}
        """Turns that the sites that move have not noted."""
        self._feeding = set(sources)
        """Sources above that have not ended."""
        self._has_ended = False

    # What comes in

    def on_request(self, now: Nanoseconds, sender: Site, pdu: Request | TokenRequest) -> None:
        """A request of another site, in order or early; a repeated one is only acknowledged again."""
        if self._is_closed:
            return
        client = self._clients.get(sender)
        if client is None or client.session < pdu.session:
            client = self._clients[sender] = Client(pdu.session)
        if client.session != pdu.session:
            return
        name = (sender, pdu.session[0], pdu.number)
        batch = (
            Batch(*name, len(pdu.bodies), pdu.group, pdu.bodies, pdu.moves)
            if isinstance(pdu, Request)
            else Batch(*name, pdu.count, pdu.group, None)
        )
        if client.accepted < pdu.seq <= client.accepted + self._configuration.admission:
            client.early[pdu.seq] = batch
            self.take_requests(now, sender)
        else:
            client.told = (-1, -1)
        self.dirty = True

    def take_requests(self, now: Nanoseconds, sender: Site) -> None:
        """Accept a sender's requests in order, tokens only when their bodies are here."""
        client = self._clients.get(sender)
        if client is None or self._is_closed:
            return
        while (found := client.early.get(client.accepted + 1)) is not None:
            batch = found if found.bodies is not None else self._bodies.take(found)
            if batch is None:
                break
            client.accepted += 1
            del client.early[client.accepted]
            self._queue.append(Placed(batch, (sender, client.session, client.accepted), self._site))
        self._place_requests(now)
        self.dirty = True

    def lacking(self) -> list[tuple[Site, int]]:
        """Requests that wait for their bodies: sender and number."""
        found = [(site, client.early.get(client.accepted + 1)) for site, client in self._clients.items()]
        return [(site, token.number) for site, token in found if token is not None and token.bodies is None]

    def find(self, sender: Site, number: int) -> Batch | None:
        """A request in the order that a site may lack."""
        return self._requested.get((sender, number))

    # Moves

    def is_meeting(self, move: Move) -> bool:
        """Whether the ways to both nodes of a move part here."""
        return self._is_move(move) and self._tree.meeting(move.source, move.target) == self.node

    def place_move(self, now: Nanoseconds, move: Move) -> None:
        """Give a move its place: the ways to both of its nodes part here."""
        if self._is_closed:
            return
        self._own += 1
        self._append_move(now, Placed(as_batch(move), (self._site, NO_SESSION, 0), self._site), move)
        self.advance(now)

    def _append_move(self, now: Nanoseconds, placed: Placed, move: Move) -> None:
        """Pass a move down to its nodes. On these a site leaves the members, or enters them."""
        self._end += 1
        self._log[self._end] = placed
        self.moves.add(move.number)
        steps = {self._tree.step_down(self.node, end) for end in (move.source, move.target)}
        for child in sorted(step for step in steps if step is not None):
            outlet = self._children[child]
            seq = outlet.add(now, self._end)
            self._effects.append(Send(outlet.receivers[0], self._entry(outlet, seq, placed.batch)))
        if self.node == move.source:  # its own site takes only a turn of its own
            self._host.on_turn(self._site, Turn(move, self.node, self.members.last))
        is_member = move.site in self.members.receivers
        if self.node == move.source and is_member:
            self._tell_turn(Turn(move, self.node, self.members.leave(now, move.site)))
        elif self.node == move.target and not is_member and self._can_enter(move.site):
            self._tell_turn(Turn(move, self.node, self.members.enter(now, move.site)))

    def _can_enter(self, site: Site) -> bool:
        return site != self._site and site not in self.members.leaving

    def _tell_turn(self, turn: Turn) -> None:
        """Tell the site that moves its turn, and again until it has noted it."""
        self._turns[turn.move.number] = turn
        self._effects.append(Send(turn.move.site, turn))

    def on_turned(self, move: Move) -> None:
        """The site that moves has noted its turn here."""
        turn = self._turns.get(move.number)
        if turn is not None and turn.move == move:
            del self._turns[move.number]

    def on_query(self, sender: Site, pdu: Query) -> None:
        """A sender asks for the state of its requests."""
        client = self._clients.get(sender)
        if client is not None and client.session == pdu.session:
            client.told = (-1, -1)
            self.dirty = True

    def request_here(self, now: Nanoseconds, session: Session, seq: int, batch: Batch) -> None:
        """A request of this site."""
        self._queue.append(Placed(batch, (self._site, session, seq), self._site))
        self._place_requests(now)

    def feed(self, now: Nanoseconds, source: Site, batches: list[Batch]) -> None:
        """Entries or marks have come from above."""
        for batch in batches:
            move = move_in(batch)
            if move is not None and self._is_move(move):
                self._append_move(now, Placed(batch, None, source), move)
                continue
            self._append(now, Placed(batch, None, source))
            if batch.group == NO_GROUP and not batch.number:
                self._feeding.discard(source)
        self.advance(now)
        self._end_streams(now)

    def _is_move(self, move: Move) -> bool:
        """Whether a move can stand in this order."""
        return move.number not in self.moves and is_between_nodes(move, self._tree)

    def on_held(self, now: Nanoseconds, sender: Site, pdu: Held) -> None:
        outlet = self.outlets.get(pdu.channel)
        if outlet is None:
            return
        if sender in outlet.left:
            self._send_bounds(outlet, sender)
            return
        if sender not in outlet.receivers and sender not in outlet.leaving:
            return
        if outlet.on_held(now, sender, pdu.held, pdu.done):
            self.advance(now)
        elif not pdu.missing:
            # A receiver that repeats itself waits for a mark that was lost.
            self._send_bounds(outlet, sender)
        last = outlet.bounds(sender)[0]
        for seq in pdu.missing:
            place = outlet.place_of(seq)
            if place is not None and seq <= last:
                self.copies += 1
                entry = self._entry(outlet, seq, self._log[place].batch, (sender,))
                self._effects.append(Send(sender, entry))

    def close(self, now: Nanoseconds) -> None:
        """No sender has anything left for this tree: end its streams with what is here."""
        self._is_closed = True
        self._end_streams(now)

    def _end_streams(self, now: Nanoseconds) -> None:
        """Announce that nothing follows, once that is true here and on all channels from above."""
        if self._has_ended or not self._is_closed or self._feeding or self._queue:
            return
        self._has_ended = True
        self._end += 1
        batch = Batch(self._site, 0, 0, 1, NO_GROUP, NOTHING)
        self._log[self._end] = Placed(batch, (self._site, NO_SESSION, 0), self._site)
        self._own += 1
        self._stream.put(batch)
        for outlet in self.outlets.values():
            seq = outlet.add(now, self._end)
            if outlet.receivers:
                self._effects.append(Multicast(self._entry(outlet, seq, batch), outlet.receivers))
        self.advance(now)

    # The order

    def _place_requests(self, now: Nanoseconds) -> None:
        while self._queue and self._own < self._configuration.window:
            self._own += 1
            self._append(now, self._queue.popleft())
        self.advance(now)

    def _append(self, now: Nanoseconds, placed: Placed) -> None:
        self._end += 1
        self._log[self._end] = placed
        batch = placed.batch
        if placed.request is not None and self._is_direct:
            self._requested[batch.sender, batch.number] = batch
        if batch.group in self._groups:
            seq = self.members.add(now, self._end)
            if self.members.receivers:
                entry = self._entry(self.members, seq, batch)
                self._effects.append(Multicast(entry, self.members.receivers))
            self._stream.put(batch)
        for child in self._leads.get(batch.group, ()):
            outlet = self._children[child]
            seq = outlet.add(now, self._end)
            self._effects.append(Send(outlet.receivers[0], self._entry(outlet, seq, batch)))

    def _entry(
        self, outlet: Outlet, seq: int, batch: Batch, to: tuple[Site, ...] | None = None
    ) -> Entry | Token:
        """What an outlet's receivers get, or those named; the sender alone gets no bodies: it has them."""
        outlet.note_told()
        where = (self._tree.id, outlet.channel, seq, outlet.ready, outlet.settled)
        what = (batch.sender, batch.incarnation, batch.number)
        are_there = self._is_direct or (outlet.receivers if to is None else to) == (batch.sender,)
        if are_there and batch.group != NO_GROUP:
            return Token(*where, *what, batch.length, batch.group)
        assert batch.bodies is not None, "there are no tokens where bodies go down the tree"
        return Entry(*where, *what, batch.group, batch.bodies, batch.moves)

    def advance(self, now: Nanoseconds) -> None:
        """Advance all frontiers, pass them to this site's own stream, and make room for requests."""
        outlets = self.outlets.values()
        held = self.members.place_before(min(self.members.held, self._stream.held), self._end)
        for outlet in self._children.values():
            held = min(held, outlet.place_before(outlet.held, self._end))
        self._move(self._holding, held, lambda inlet: inlet.ready, self._note_stable)
        for outlet in outlets:
            outlet.advance_ready(self._holding.whole)
        self._stream.on_mark(self.members.ready, 0)
        done = self.members.place_before(min(self.members.done, self._stream.delivered), self._end)
        for outlet in self._children.values():
            done = min(done, outlet.place_before(outlet.done, self._end))
        self._move(self._finishing, done, lambda inlet: inlet.settled, self._note_settled)
        for outlet in outlets:
            for site in outlet.advance_settled(self._finishing.whole):
                self._send_bounds(outlet, site)
        self._stream.on_mark(self.members.ready, self.members.settled)
        while self._released < self._finishing.whole:
            self._released += 1
            batch = self._log.pop(self._released).batch
            self._requested.pop((batch.sender, batch.number), None)
        self.dirty = True
        if self._queue and self._own < self._configuration.window:
            self._place_requests(now)
            self._end_streams(now)

    def _move(
        self,
        frontier: Frontier,
        below: int,
        mark_of: Callable[[Inlet], int],
        passed: Callable[[Placed], None],
    ) -> None:
        """Advance a frontier by what is acknowledged below and by the marks from above."""
        while frontier.below < below:
            frontier.below += 1
            placed = self._log[frontier.below]
            if placed.request is None:
                frontier.from_above[placed.source] += 1
        while frontier.whole < frontier.below:
            placed = self._log[frontier.whole + 1]
            if placed.request is None:
                if frontier.passed[placed.source] >= mark_of(self.inlets[placed.source]):
                    return
                frontier.passed[placed.source] += 1
            frontier.whole += 1
            passed(placed)

    def _note_stable(self, placed: Placed) -> None:
        if placed.request is None:
            return
        sender, session, seq = placed.request
        if not seq:
            return
        if sender == self._site:
            self._host.on_stable(seq)
        elif (client := self._clients.get(sender)) is not None and client.session == session:
            client.stable = seq

    def _note_settled(self, placed: Placed) -> None:
        self._own -= placed.request is not None

    # What goes out

    def flush(self) -> None:
        """Send what is new: marks down, acknowledgements up and to the senders of requests."""
        self.dirty = False
        for outlet in self.outlets.values():
            if outlet.ready > outlet.told_ready:
                self._send_mark(outlet, outlet.receivers)
        for site, client in self._clients.items():
            now_known = (client.accepted, client.stable)
            if now_known != client.told:
                client.told = now_known
                self._effects.append(Send(site, Taken(self._tree.id, self.node, client.session, *now_known)))
        for inlet in self.inlets.values():
            if self._acknowledgement_due(inlet):
                self.report(inlet, ())

    def _acknowledgement_due(self, inlet: Inlet) -> bool:
        unsaid = self._finishing.from_above[inlet.source] - inlet.told_done
        return (
            self._holding.from_above[inlet.source] > inlet.told_held
            or 4 * unsaid >= self._configuration.window
        )

    def report(self, inlet: Inlet, missing: tuple[int, ...]) -> None:
        """Acknowledge to a source above."""
        held = inlet.acknowledgement(
            self._tree.id,
            self._holding.from_above[inlet.source],
            self._finishing.from_above[inlet.source],
            missing,
        )
        self._effects.append(Send(inlet.source, held))

    def _send_mark(self, outlet: Outlet, receivers: tuple[Site, ...]) -> None:
        if receivers == outlet.receivers:
            outlet.note_told()
        if receivers:
            mark = Mark(self._tree.id, outlet.channel, outlet.last, outlet.ready, outlet.settled)
            self._effects.append(Multicast(mark, receivers))
        for site in outlet.leaving:
            self._send_bounds(outlet, site)

    def _send_bounds(self, outlet: Outlet, site: Site) -> None:
        """Send a receiver both marks, as far as they concern it."""
        if outlet.receivers == (site,):
            outlet.note_told()
        self._effects.append(Send(site, Mark(self._tree.id, outlet.channel, *outlet.bounds(site))))

    def repair(self, now: Nanoseconds) -> bool:
        """Send marks to receivers that have been silent for long; whether anything is unsettled."""
        for outlet in self.outlets.values():
            if outlet.settled > outlet.told_settled:
                self._send_mark(outlet, outlet.receivers)
            elif now - outlet.moved_ns >= self._configuration.repair_ns:
                self._send_mark(outlet, outlet.lagging())
        for source, inlet in self.inlets.items():
            if inlet.known > inlet.settled or self._finishing.from_above[source] > inlet.told_done:
                self.report(inlet, inlet.missing())
        for turn in self._turns.values():
            self._effects.append(Send(turn.move.site, turn))
        return self._released < self._end or bool(self._queue or self._turns)

    def kept(self) -> int:
        """Batches in memory."""
        return len(self._log) + len(self._queue)
