"""One site on one tree: the stream that it delivers, and its work as a primary site if it is one.

A site that moves to another node (`moving`) has two streams for a while: that of its old node up to the move,
and that of its new node from there on. A primary site that has moved goes on as the server of its old node.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Protocol

from antiphon.core.effects import Arrived, Send
from antiphon.core.ids import Group, Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.bodies import Bodies
from antiphon.protocols.metagroups.channels import Batch, Inlet, to_members
from antiphon.protocols.metagroups.context import Context
from antiphon.protocols.metagroups.ending import order_at
from antiphon.protocols.metagroups.ledger import Ledger
from antiphon.protocols.metagroups.moving import NO_TURNS, Turns, is_between_nodes, is_leave, is_named
from antiphon.protocols.metagroups.outbox import Outbox
from antiphon.protocols.metagroups.pdus import (
    MOST_MISSING,
    NO_GROUP,
    Copy,
    Ending,
    Entry,
    Held,
    Holding,
    Item,
    Mark,
    Move,
    Request,
    Token,
    TokenRequest,
    Turn,
    Want,
)
from antiphon.protocols.metagroups.server import Server
from antiphon.protocols.metagroups.stream import Stream
from antiphon.protocols.metagroups.view import Tree


class Strand:
    """The stream from one node, with the channel on which an ordinary site gets it."""

    __slots__ = ("end", "groups", "inlet", "offset", "stream")

    def __init__(self, stream: Stream, groups: frozenset[Group], inlet: Inlet | None, offset: int) -> None:
        self.stream = stream
        self.groups = groups
        """The groups whose messages can come."""
        self.inlet = inlet
        """None at a primary site, whose server gives it its entries."""
        self.offset = offset
        """Entries of the channel before the first one of the stream."""
        self.end: int | None = None
        """The last entry of the channel that is for this site, once it has moved away."""

    @property
    def is_done(self) -> bool:
        """Whether this site has moved away, and has delivered everything before that."""
        is_delivered = self.end is not None and self.offset + self.stream.delivered >= self.end
        return is_delivered and self.stream.is_open

    @property
    def is_settled(self) -> bool:
        """Whether all other sites have delivered that, too."""
        return self.is_done and self.inlet is not None and self.inlet.settled >= (self.end or 0)


class EndpointHost(Protocol):
    """What is told of an endpoint's moves."""

    def on_change(self, move: Move, *, joins: bool) -> None:
        """The deliveries of a group that this site has joined begin, or those of one that it has left end."""

    def on_moved(self, move: Move) -> None:
        """This site receives on the node that it has moved to."""


class Endpoint:
    """What a site that is in a tree does there, from the view that plants the tree until it is over."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        outbox: Outbox,
        ledger: Ledger,
        host: "EndpointHost",
    ) -> None:
        site, configuration, effects = context
        self._host: Final = host
        self._site: Final = site
        self.tree: Final = tree
        self._outbox: Final = outbox
        self._ledger: Final = ledger
        self._configuration: Final = configuration
        self._effects: Final = effects
        self._bodies: Final = Bodies(configuration.admission)
        node = tree.node_of[site]
        self.server: Server | None = None
        self._moves: dict[int, set[int]] = {}
        """By number: this site's moves that are not done, with the nodes that have told its turn."""
        self._turns: dict[Group, Turns] = {}
        """The groups that this site has joined or left on this tree, or leaves, by which moves."""
        self._changes: list[tuple[Move, bool]] = []
        """Moves that are done and not reported yet; true for joins."""
        self._last_move = 0
        """The last move that is done."""
        if tree.nodes[node].primary == site:
            stream = self._stream()
            # A primary site also passes on what is not for its own meta-group.
            self._strands = [Strand(stream, frozenset((*tree.entry, NO_GROUP)), None, 0)]
            self.server = Server(context, tree, node, stream, self._bodies, self)
        else:
            self._strands = [self._strand(node, 0)]
        self._node: Final = node
        self._dirty = False
        self._copies: dict[tuple[Site, int], Batch] = {}
        self._lacked: dict[tuple[Site, int], Site] = {}
        """Bodies that were lacking at the last repair, with the site that is asked for each."""

    def _strand(self, node: int, after: int) -> Strand:
        """The stream from a node's primary site to its other sites, from the next entry on."""
        primary = self.tree.nodes[node].primary
        groups = frozenset((*self.tree.nodes[node].label, NO_GROUP))
        inlet = Inlet(to_members(node), primary, 8 * self._configuration.window, after)
        return Strand(self._stream(), groups, inlet, after)

    def _stream(self) -> Stream:
        is_safe = self._configuration.delivery == "safe"
        return Stream(self._ledger, self._bodies, self._effects, safe=is_safe, is_due=self._is_for_us)

    def _is_for_us(self, batch: Batch) -> bool:
        return batch.group != NO_GROUP and self.is_destination(batch.group, batch.moves)

    def is_destination(self, group: Group, moves: int) -> bool:
        """Whether a batch is for this site, by its group and the moves that its sender knew."""
        is_listed = self._site in self.tree.members.get(group, ())
        turns = self._turns.get(group)
        return is_listed if turns is None else is_named(is_listed, turns, moves)

    def on_stable(self, seq: int) -> None:
        """This site's own requests to its own server are stable up to this one."""
        self._outbox.on_stable(self._node, seq)

    @property
    def finished(self) -> bool:
        """Whether this site has delivered its stream to the end."""
        *earlier, last = self._strands
        return last.end is None and last.stream.finished and all(strand.is_done for strand in earlier)

    def open(self, now: Nanoseconds) -> None:
        """Begin to deliver: all earlier trees are finished."""
        self._strands[0].stream.open()
        if self.server is not None:
            self.server.advance(now)
        self._dirty = True
        self._change_strands()

    @property
    def is_open(self) -> bool:
        return self._strands[0].stream.is_open

    # Moving to another node

    @property
    def has_moved(self) -> bool:
        """Whether the members of this tree's nodes are not those of the view, as far as is known here."""
        return bool(self._turns or self._moves or (self.server is not None and self.server.moves))

    @property
    def has_turned(self) -> bool:
        """Whether this site has joined or left a group on this tree, or leaves one."""
        return bool(self._turns)

    def is_done(self, move: Move) -> bool:
        """Whether this site receives on the node that it has moved to."""
        return self._last_move >= move.number and self.has_noted(move)

    def has_noted(self, move: Move) -> bool:
        """Whether this site has joined or left a group by a move, or leaves it."""
        return move.number in self._turns.get(move.group, NO_TURNS)

    def changed(self, *, joins: bool) -> tuple[tuple[Group, int], ...]:
        """The groups that this site has joined on this tree, by which moves; or those that it has left."""
        return tuple(
            (group, number)
            for group, turns in sorted(self._turns.items())
            for number in sorted(turns)
            if turns[number] == joins
        )

    def _is_way(self, move: Move) -> bool:
        """Whether a move is this site's, between nodes that differ by its group."""
        return move.site == self._site and is_between_nodes(move, self.tree)

    def leave(self, move: Move) -> bool:
        """This site leaves a group: skip what does not name it any more; whether that makes sense."""
        if not self._is_way(move) or not is_leave(move, self.tree) or move.number <= self._last_move:
            return False
        self._turns.setdefault(move.group, {})[move.number] = False
        return True

    def on_turn(self, sender: Site, pdu: Turn) -> bool:
        """A primary site has told this site's turn; False if that makes no sense."""
        move = pdu.move
        if not self._is_way(move) or pdu.node not in (move.source, move.target):
            return False
        if self.tree.nodes[pdu.node].primary != sender:
            return False
        if self.is_done(move):
            return True
        told = self._moves.setdefault(move.number, set())
        if pdu.node in told:
            return True
        if not (self._depart(pdu) if pdu.node == move.source else self._arrive(pdu)):
            return False
        told.add(pdu.node)
        if told == {move.source, move.target}:
            del self._moves[move.number]
            self._last_move = move.number
            joins = not is_leave(move, self.tree)
            self._turns.setdefault(move.group, {})[move.number] = joins
            self._changes.append((move, joins))
            self._host.on_moved(move)
        self._change_strands()
        return True

    def _depart(self, pdu: Turn) -> bool:
        """The stream from this node ends here."""
        strand = next((each for each in self._strands if self._is_from(each, pdu.node)), None)
        if strand is None or strand.end is not None:
            return False
        if strand.inlet is None:
            strand.end = strand.stream.end = pdu.place
            return True
        if strand.inlet.next_seq > pdu.place + 1:
            return False
        strand.end = pdu.place
        strand.inlet.on_mark(pdu.place, 0, 0)
        self._dirty = True
        return True

    def _arrive(self, pdu: Turn) -> bool:
        """The stream from this node begins here."""
        self._strands.append(self._strand(pdu.node, pdu.place))
        return True

    def _change_strands(self) -> None:
        """Go over to the next stream when the one before is done, and forget it when it is settled."""
        if len(self._strands) == 1:
            return
        for strand, following in pairwise(self._strands):
            if strand.is_done and not following.stream.is_open:
                self._report_change()
                following.stream.open()
                self._dirty = True
        *earlier, last = self._strands
        self._strands = [*(strand for strand in earlier if not strand.is_settled), last]

    def _is_from(self, strand: Strand, node: int) -> bool:
        if strand.inlet is None:
            return node == self._node
        return strand.inlet.channel == to_members(node)

    def _report_change(self) -> None:
        """The deliveries of a group that this site has joined begin, or those of one that it has left end."""
        if self._changes:
            move, joins = self._changes.pop(0)
            self._host.on_change(move, joins=joins)

    @property
    def dirty(self) -> bool:
        return self._dirty or (self.server is not None and self.server.dirty)

    # What comes in

    def on_request(self, now: Nanoseconds, sender: Site, pdu: Request | TokenRequest) -> bool:
        """A batch to be ordered; False if it does not belong here."""
        server = self.server
        if server is None or server.node != pdu.node or self.tree.entry.get(pdu.group) != pdu.node:
            return False
        server.on_request(now, sender, pdu)
        return True

    def on_entry(self, now: Nanoseconds, sender: Site, pdu: Entry | Token) -> bool:
        """The entry at a place of a channel. A wrong one counts as lost, and is asked for again."""
        strand, inlet = self._inlet_of(sender, pdu.channel)
        if inlet is None or pdu.group not in strand.groups:
            return False
        if inlet is strand.inlet and strand.end is not None and pdu.seq > strand.end:
            return False
        if pdu.sender == self._site and pdu.seq >= inlet.next_seq:
            if not self._can_be_own(pdu):
                return False
            pdu = self._own_entry(pdu)
        if pdu.seq >= inlet.next_seq and not self._has_bodies(pdu):
            return False
        self._pass_on(now, strand, inlet, inlet.on_entry(pdu))
        return True

    def _own_entry(self, pdu: Entry | Token) -> Entry | Token:
        """An own batch that comes as a token, with its bodies. With direct bodies they are here already."""
        own = None if isinstance(pdu, Entry) else self._outbox.find(pdu.number)
        if own is None or own.bodies is None or self._configuration.bodies == "direct":
            return pdu
        where = (pdu.tree, pdu.channel, pdu.seq, pdu.ready, pdu.settled)
        return Entry(*where, pdu.sender, pdu.incarnation, pdu.number, pdu.group, own.bodies, own.moves)

    def _has_bodies(self, pdu: Entry | Token) -> bool:
        """Whether bodies come with an entry, or apart from it. Those of a move are the move itself."""
        comes_apart = self._configuration.bodies == "direct" and pdu.group != NO_GROUP
        return isinstance(pdu, Entry) or comes_apart

    def _can_be_own(self, pdu: Entry | Token) -> bool:
        """Whether this site has sent what comes under its name; its own moves come so as well.

        A batch that it has sent and does not hold yet is not stable, so it is still in its outbox.
        """
        if pdu.group == NO_GROUP:
            return True
        own = self._outbox.find(pdu.number)
        if own is None or (own.group, own.incarnation) != (pdu.group, pdu.incarnation):
            return False
        return own.bodies == pdu.bodies if isinstance(pdu, Entry) else own.length == pdu.count

    def on_body(self, now: Nanoseconds, batch: Batch) -> None:
        """Bodies that travelled apart from their token, which may come later or have come before."""
        item = batch.item
        if any(strand.stream.fill(batch) for strand in self._strands):
            self._dirty = True
            if self.server is not None:
                self.server.advance(now)
        elif self._is_due(item) and self.find(item.sender, item.number) is None:
            self._bodies.add(batch)
            if self.server is not None:
                self.server.take_requests(now, item.sender)

    def on_copy(self, now: Nanoseconds, sender: Site, batch: Batch) -> None:
        """Bodies from a site that was asked for them."""
        if self._lacked.get((batch.sender, batch.number)) == sender:
            self.on_body(now, batch)

    def on_mark(self, now: Nanoseconds, sender: Site, pdu: Mark) -> bool:
        strand, inlet = self._inlet_of(sender, pdu.channel)
        if inlet is None:
            return False
        if inlet is strand.inlet and strand.end is not None and pdu.last > strand.end:
            return False
        inlet.on_mark(pdu.last, pdu.ready, pdu.settled)
        self._pass_on(now, strand, inlet, [])
        return True

    def on_held(self, now: Nanoseconds, sender: Site, pdu: Held) -> bool:
        if self.server is None:
            return False
        self.server.on_held(now, sender, pdu)
        self._change_strands()
        return True

    def _inlet_of(self, sender: Site, channel: int) -> tuple[Strand, Inlet | None]:
        """The stream and the receiving end that a channel leads to."""
        first = self._strands[0]
        if self.server is not None:
            found = self.server.inlets.get(sender)
            if found is not None and found.channel == channel:
                return first, found
        for strand in self._strands:
            inlet = strand.inlet
            if inlet is not None and inlet.source == sender and inlet.channel == channel:
                return strand, inlet
        return first, None

    def _inlets(self) -> Iterator[tuple[Strand, Inlet]]:
        for strand in self._strands:
            if strand.inlet is not None:
                yield strand, strand.inlet

    def _pass_on(self, now: Nanoseconds, strand: Strand, inlet: Inlet, batches: list[Batch]) -> None:
        """Give entries in order, and the marks of their channel, to the server or to the stream."""
        if self.server is not None and strand.inlet is None:
            self.server.feed(now, inlet.source, batches)
            self._change_strands()
            return
        for batch in batches:
            strand.stream.put(batch)
        strand.stream.on_mark(inlet.ready - strand.offset, inlet.settled - strand.offset)
        self._dirty = True
        self._change_strands()

    # What goes out

    def flush(self, now: Nanoseconds) -> None:
        """Acknowledge what is new, and ask for what is lacking."""
        self._dirty = False
        server = self.server
        if server is not None:
            server.flush()
            self._change_strands()
            for inlet in server.inlets.values():
                missing = self._missing(now, inlet)
                if missing:
                    server.report(inlet, missing)
        for strand, inlet in self._inlets():
            missing = self._missing(now, inlet)
            held, done = strand.offset + strand.stream.held, strand.offset + strand.stream.delivered
            behind = 4 * (done - inlet.told_done) >= self._configuration.window
            if missing or behind or held > inlet.told_held:
                self._report(strand, inlet, missing)

    def _missing(self, now: Nanoseconds, inlet: Inlet) -> tuple[int, ...]:
        """Entries to ask for, unless they were asked for just now."""
        if inlet.asked_ns >= 0 and now - inlet.asked_ns < self._configuration.repair_ns // 2:
            return ()
        missing = inlet.missing()
        if missing:
            inlet.asked_ns = now
        return missing

    def _report(self, strand: Strand, inlet: Inlet, missing: tuple[int, ...]) -> None:
        held, done = strand.offset + strand.stream.held, strand.offset + strand.stream.delivered
        acknowledgement = inlet.acknowledgement(self.tree.id, held, done, missing)
        self._effects.append(Send(inlet.source, acknowledgement))

    def repair(self, now: Nanoseconds) -> bool:
        """Repeat what may have been lost; whether anything is unsettled."""
        self._fetch_bodies()
        is_busy = self.server is not None and self.server.repair(now)
        unsettled = [(strand, inlet) for strand, inlet in self._inlets() if inlet.known > inlet.settled]
        for strand, inlet in unsettled:
            self._report(strand, inlet, inlet.missing())
        return is_busy or bool(unsettled)

    def _fetch_bodies(self) -> None:
        """Ask for bodies that were lacking at the last repair too.

        Senders are asked for those that have no place yet, the primary sites of their groups for the others.
        """
        lacking: dict[tuple[Site, int], Site] = {}
        for item in self._strands[0].stream.lacking():
            lacking[item.sender, item.number] = self.tree.nodes[self.tree.entry[item.group]].primary
        if self.server is not None:
            lacking |= {name: name[0] for name in self.server.lacking()}
        wanted: dict[Site, list[tuple[Site, int]]] = {}
        for name in lacking.keys() & self._lacked.keys():
            wanted.setdefault(lacking[name], []).append(name)
        for source in sorted(wanted):
            items = tuple(sorted(wanted[source])[:MOST_MISSING])
            self._effects.append(Send(source, Want(self.tree.id, items)))
        self._lacked = lacking

    # When the tree ends

    def holding(self, waiting: tuple[Item, ...]) -> Holding:
        names: list[Item] = []
        delivered = 0
        for strand in self._strands:
            held, done = strand.stream.holding()
            names += held
            delivered += done
        joined, left = self.changed(joins=True), self.changed(joins=False)
        return Holding(self.tree.id, tuple(names), delivered, waiting, joined, left)

    def _kept(self) -> dict[tuple[Site, int], Batch]:
        """What is held and others may lack, by sender and number."""
        found: dict[tuple[Site, int], Batch] = {}
        for strand in self._strands:
            found |= strand.stream.kept()
        return found

    def lacking(self, ending: Ending) -> list[tuple[Site, Site, int]]:
        """Batches that must be fetched before this site can deliver an ending: source, sender and number."""
        have = self._kept()
        return [
            (source, item.sender, item.number)
            for item, source in zip(ending.items, ending.sources, strict=True)
            if self._is_due(item)
            and (item.sender, item.number) not in have
            and (item.sender, item.number) not in self._copies
        ]

    def lacks(self, ending: Ending, source: Site, pdu: Copy) -> bool:
        """Whether a copy is one of those, and comes from the site that was asked for it."""
        item = Item(pdu.sender, pdu.number, len(pdu.bodies), pdu.group, pdu.moves)
        return (source, pdu.sender, pdu.number) in self.lacking(ending) and item in ending.items

    def _is_due(self, item: Item) -> bool:
        is_mine = self.is_destination(item.group, item.moves)
        return is_mine and not self._ledger.has(item.sender, item.number)

    def find(self, sender: Site, number: int) -> Batch | None:
        """A batch that is held and that another site may lack."""
        name = (sender, number)
        found = self._kept().get(name) or self._copies.get(name)
        if found is None and self.server is not None:
            found = self.server.find(sender, number)
        return found or self._bodies.find(sender, number)

    def keep(self, batch: Batch) -> None:
        """Keep a batch that was lacking for an ending."""
        self._copies[batch.sender, batch.number] = batch
        self._effects.append(Arrived(batch.sender, batch.number, batch.length, batch.group))

    def finish(self, ending: Ending) -> None:
        """Deliver the last batches of a tree that ends."""
        have = self._copies | self._kept()
        names = [item for strand in self._strands for item in strand.stream.names()]
        for item in order_at(ending, names):
            batch = have.get((item.sender, item.number))
            if batch is not None and self._is_due(item):
                self._ledger.deliver(batch)

    def kept(self) -> int:
        """Batches in memory."""
        served = 0 if self.server is None else self.server.kept()
        streams = [strand.stream for strand in self._strands]
        held = sum(stream.held - stream.delivered for stream in streams)
        return len(self._copies) + len(self._bodies) + held + served
