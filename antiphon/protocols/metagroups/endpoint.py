"""One site on one tree: the stream that it delivers, and its work as a primary site if it is one."""

from collections.abc import Mapping
from typing import Final

from antiphon.core.effects import Arrived, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.bodies import Bodies
from antiphon.protocols.metagroups.channels import Batch, Inlet, to_members
from antiphon.protocols.metagroups.context import Context
from antiphon.protocols.metagroups.ending import order_at
from antiphon.protocols.metagroups.ledger import Ledger
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
    Request,
    Token,
    TokenRequest,
    Want,
)
from antiphon.protocols.metagroups.server import Server
from antiphon.protocols.metagroups.stream import Stream
from antiphon.protocols.metagroups.view import Tree


class Endpoint:
    """What a site that is in a tree does there, from the view that plants the tree until it is over."""

    def __init__(self, context: Context, tree: Tree, outbox: Outbox, ledger: Ledger) -> None:
        site, configuration, effects = context
        self._site: Final = site
        self.tree: Final = tree
        self._outbox: Final = outbox
        self._ledger: Final = ledger
        self._configuration: Final = configuration
        self._effects: Final = effects
        self._bodies: Final = Bodies(configuration.admission)
        self._stream: Final = Stream(ledger, self._bodies, effects, safe=configuration.delivery == "safe")
        node = tree.node_of[site]
        primary = tree.nodes[node].primary
        # A primary site also passes on what is not for its own meta-group.
        passing = tree.entry if primary == site else tree.nodes[node].label
        self._groups: Final = frozenset((*passing, NO_GROUP))
        self.server: Server | None = None
        if primary == site:
            self.server = Server(
                context, tree, node, self._stream, self._bodies, lambda seq: outbox.on_stable(node, seq)
            )  # fmt: skip
            self._inlets: Mapping[Site, Inlet] = self.server.inlets
        else:
            self._inlets = {primary: Inlet(to_members(node), primary, 8 * configuration.window)}
        self._dirty = False
        self._copies: dict[tuple[Site, int], Batch] = {}
        self._lacked: dict[tuple[Site, int], Site] = {}
        """Bodies that were lacking at the last repair, with the site that is asked for each."""

    @property
    def finished(self) -> bool:
        """Whether this site has delivered its stream to the end."""
        return self._stream.finished

    def open(self, now: Nanoseconds) -> None:
        """Begin to deliver: all earlier trees are finished."""
        self._stream.open()
        if self.server is not None:
            self.server.advance(now)
        self._dirty = True

    @property
    def is_open(self) -> bool:
        return self._stream.is_open

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
        inlet = self._inlet_of(sender, pdu.channel)
        if inlet is None or pdu.group not in self._groups:
            return False
        if pdu.sender == self._site and pdu.seq >= inlet.next_seq and not self._is_own(pdu):
            return False
        self._pass_on(now, inlet, inlet.on_entry(pdu))
        return True

    def _is_own(self, pdu: Entry | Token) -> bool:
        """Whether this site has sent what comes under its name.

        A batch that it has sent and does not hold yet is not stable, so it is still in its outbox.
        """
        own = self._outbox.find(pdu.number)
        if own is None or (own.group, own.incarnation) != (pdu.group, pdu.incarnation):
            return False
        return own.bodies == pdu.bodies if isinstance(pdu, Entry) else own.length == pdu.count

    def on_body(self, now: Nanoseconds, batch: Batch) -> None:
        """Bodies that travelled apart from their token, which may come later or have come before."""
        item = batch.item
        if self._stream.fill(batch):
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
        inlet = self._inlet_of(sender, pdu.channel)
        if inlet is None:
            return False
        inlet.on_mark(pdu.last, pdu.ready, pdu.settled)
        self._pass_on(now, inlet, [])
        return True

    def on_held(self, now: Nanoseconds, sender: Site, pdu: Held) -> bool:
        if self.server is None:
            return False
        self.server.on_held(now, sender, pdu)
        return True

    def _inlet_of(self, sender: Site, channel: int) -> Inlet | None:
        inlet = self._inlets.get(sender)
        return inlet if inlet is not None and inlet.channel == channel else None

    def _pass_on(self, now: Nanoseconds, inlet: Inlet, batches: list[Batch]) -> None:
        """Give entries in order, and the marks of their channel, to the server or to the stream."""
        if self.server is not None:
            self.server.feed(now, inlet.source, batches)
            self._dirty = self._dirty or inlet.known >= inlet.next_seq
            return
        for batch in batches:
            self._stream.put(batch)
        self._stream.on_mark(inlet.ready, inlet.settled)
        self._dirty = True

    # What goes out

    def flush(self, now: Nanoseconds) -> None:
        """Acknowledge what is new, and ask for what is lacking."""
        self._dirty = False
        server, stream = self.server, self._stream
        if server is not None:
            server.flush()
        for inlet in self._inlets.values():
            missing = self._missing(now, inlet)
            if server is not None:
                if missing:
                    server.report(inlet, missing)
                continue
            behind = 4 * (stream.delivered - inlet.told_done) >= self._configuration.window
            if missing or behind or stream.held > inlet.told_held:
                self._report(inlet, missing)

    def _missing(self, now: Nanoseconds, inlet: Inlet) -> tuple[int, ...]:
        """Entries to ask for, unless they were asked for just now."""
        if inlet.asked_ns >= 0 and now - inlet.asked_ns < self._configuration.repair_ns // 2:
            return ()
        missing = inlet.missing()
        if missing:
            inlet.asked_ns = now
        return missing

    def _report(self, inlet: Inlet, missing: tuple[int, ...]) -> None:
        held = inlet.acknowledgement(self.tree.id, self._stream.held, self._stream.delivered, missing)
        self._effects.append(Send(inlet.source, held))

    def repair(self, now: Nanoseconds) -> bool:
        """Repeat what may have been lost; whether anything is unsettled."""
        self._fetch_bodies()
        if self.server is not None:
            return self.server.repair(now)
        unsettled = [inlet for inlet in self._inlets.values() if inlet.known > inlet.settled]
        for inlet in unsettled:
            self._report(inlet, inlet.missing())
        return bool(unsettled)

    def _fetch_bodies(self) -> None:
        """Ask for bodies that were lacking at the last repair too.

        Senders are asked for those that have no place yet, the primary sites of their groups for the others.
        """
        lacking: dict[tuple[Site, int], Site] = {}
        for item in self._stream.lacking():
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
        return self._stream.holding(self.tree.id, waiting)

    def lacking(self, ending: Ending) -> list[tuple[Site, Site, int]]:
        """Batches that must be fetched before this site can deliver an ending: source, sender and number."""
        have = self._stream.kept()
        return [
            (source, item.sender, item.number)
            for item, source in zip(ending.items, ending.sources, strict=True)
            if self._is_due(item)
            and (item.sender, item.number) not in have
            and (item.sender, item.number) not in self._copies
        ]

    def lacks(self, ending: Ending, source: Site, pdu: Copy) -> bool:
        """Whether a copy is one of those, and comes from the site that was asked for it."""
        item = Item(pdu.sender, pdu.number, len(pdu.bodies), pdu.group)
        return (source, pdu.sender, pdu.number) in self.lacking(ending) and item in ending.items

    def _is_due(self, item: Item) -> bool:
        is_mine = self._site in self.tree.members.get(item.group, ())
        return is_mine and not self._ledger.has(item.sender, item.number)

    def find(self, sender: Site, number: int) -> Batch | None:
        """A batch that is held and that another site may lack."""
        name = (sender, number)
        found = self._stream.kept().get(name) or self._copies.get(name)
        if found is None and self.server is not None:
            found = self.server.find(sender, number)
        return found or self._bodies.find(sender, number)

    def keep(self, batch: Batch) -> None:
        """Keep a batch that was lacking for an ending."""
        self._copies[batch.sender, batch.number] = batch
        self._effects.append(Arrived(batch.sender, batch.number, batch.length, batch.group))

    def finish(self, ending: Ending) -> None:
        """Deliver the last batches of a tree that ends."""
        have = self._copies | self._stream.kept()
        for item in order_at(ending, self._stream.names()):
            batch = have.get((item.sender, item.number))
            if batch is not None and self._is_due(item):
                self._ledger.deliver(batch)

    def kept(self) -> int:
        """Batches in memory."""
        served = 0 if self.server is None else self.server.kept()
        return len(self._copies) + len(self._bodies) + self._stream.held - self._stream.delivered + served
