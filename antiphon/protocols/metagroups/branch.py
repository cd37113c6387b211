"""One site's part in one tree: its stream, and its work as a primary site if it is one."""

from collections.abc import Mapping
from typing import Final

from antiphon.core.effects import Arrived, Effect, Send
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.bodies import Bodies
from antiphon.protocols.metagroups.channels import Batch, Inlet, to_members
from antiphon.protocols.metagroups.ending import order_at
from antiphon.protocols.metagroups.ledger import Ledger
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
    MetaGroupsConfiguration,
    Request,
    Token,
    TokenRequest,
    Want,
)
from antiphon.protocols.metagroups.reading import Reader
from antiphon.protocols.metagroups.sending import Outbox
from antiphon.protocols.metagroups.serving import Server
from antiphon.protocols.metagroups.table import Tree


class Branch:
    """What a site that is in a tree does there, as long as the tree stands."""

    def __init__(
        self,
        site: Site,
        tree: Tree,
        outbox: Outbox,
        ledger: Ledger,
        configuration: MetaGroupsConfiguration,
        effects: list[Effect],
    ) -> None:
        self._site: Final = site
        self.tree: Final = tree
        self._outbox: Final = outbox
        self._ledger: Final = ledger
        self._knobs: Final = configuration
        self._effects: Final = effects
        self._bodies: Final = Bodies(configuration.admission)
        self._reader: Final = Reader(ledger, self._bodies, effects, safe=configuration.delivery == "safe")
        node = tree.node_of[site]
        # A primary site also passes on what is not for its own meta-group.
        passing = tree.entry if tree.nodes[node].primary == site else tree.nodes[node].label
        self._groups: Final = frozenset((*passing, NO_GROUP))
        primary = tree.nodes[node].primary
        self.server: Server | None = None
        if primary == site:
            self.server = Server(
                site, tree, node, self._reader, self._bodies, configuration, effects,
                lambda seq: outbox.settle(node, seq),
            )  # fmt: skip
            self._inlets: Mapping[Site, Inlet] = self.server.inlets
        else:
            self._inlets = {primary: Inlet(to_members(node), primary, 8 * configuration.window)}
        self._dirty = False
        self._copies: dict[tuple[Site, int], Batch] = {}
        self._lacked: dict[tuple[Site, int], Site] = {}
        """Bodies that were lacking when that was looked at last, and who was or will be asked for each."""

    @property
    def finished(self) -> bool:
        """Whether this site has delivered all that ever comes to it on this tree."""
        return self._reader.finished

    def open(self, now: Nanoseconds) -> None:
        """This tree's turn has come: deliver."""
        self._reader.open()
        if self.server is not None:
            self.server.advance(now)
        self._dirty = True

    @property
    def is_open(self) -> bool:
        return self._reader.is_open

    @property
    def dirty(self) -> bool:
        return self._dirty or (self.server is not None and self.server.dirty)

    # What comes in

    def request(self, now: Nanoseconds, sender: Site, pdu: Request | TokenRequest) -> bool:
        """A batch to be ordered; False if it does not belong here."""
        server = self.server
        if server is None or server.node != pdu.node or self.tree.entry.get(pdu.group) != pdu.node:
            return False
        server.request(now, sender, pdu)
        return True

    def entry(self, now: Nanoseconds, sender: Site, pdu: Entry | Token) -> bool:
        """What stands at a place. One that cannot be there counts as lost, and is asked for again."""
        inlet = self._inlet_of(sender, pdu.channel)
        if inlet is None or pdu.group not in self._groups:
            return False
        if pdu.sender == self._site and pdu.seq >= inlet.next_seq and not self._is_own(pdu):
            return False
        self._take(now, inlet, inlet.take(pdu))
        return True

    def _is_own(self, pdu: Entry | Token) -> bool:
        """Whether this site has sent what comes under its name.

        What it does not hold is not stable, and so is still in its outbox.
        """
        own = self._outbox.find(pdu.number)
        if own is None or (own.group, own.incarnation) != (pdu.group, pdu.incarnation):
            return False
        return own.bodies == pdu.bodies if isinstance(pdu, Entry) else own.length == pdu.count

    def body(self, now: Nanoseconds, batch: Batch) -> None:
        """Bodies that travelled apart have come, before their token or after it, or once more."""
        item = batch.item
        if self._reader.fill(batch):
            self._dirty = True
            if self.server is not None:
                self.server.advance(now)
        elif self._is_due(item) and self.find(item.sender, item.number) is None:
            self._bodies.add(batch)
            if self.server is not None:
                self.server.look_again(now, item.sender)

    def copy(self, now: Nanoseconds, sender: Site, batch: Batch) -> None:
        """Bodies from one who was asked for them."""
        if self._lacked.get((batch.sender, batch.number)) == sender:
            self.body(now, batch)

    def mark(self, now: Nanoseconds, sender: Site, pdu: Mark) -> bool:
        inlet = self._inlet_of(sender, pdu.channel)
        if inlet is None:
            return False
        inlet.mark(pdu.last, pdu.ready, pdu.settled)
        self._take(now, inlet, [])
        return True

    def acknowledge(self, now: Nanoseconds, sender: Site, pdu: Held) -> bool:
        if self.server is None:
            return False
        self.server.acknowledge(now, sender, pdu)
        return True

    def _inlet_of(self, sender: Site, channel: int) -> Inlet | None:
        inlet = self._inlets.get(sender)
        return inlet if inlet is not None and inlet.channel == channel else None

    def _take(self, now: Nanoseconds, inlet: Inlet, batches: list[Batch]) -> None:
        if self.server is not None:
            self.server.feed(now, inlet.source, batches)
            self._dirty = self._dirty or inlet.known >= inlet.next_seq
            return
        for batch in batches:
            self._reader.put(batch)
        self._reader.mark(inlet.ready, inlet.settled)
        self._dirty = True

    # What is told

    def flush(self, now: Nanoseconds) -> None:
        """Tell what is new, and ask for what is lacking."""
        self._dirty = False
        server, reader = self.server, self._reader
        if server is not None:
            server.flush()
        for inlet in self._inlets.values():
            missing = self._missing(now, inlet)
            if server is not None:
                if missing:
                    server.report(inlet, missing)
                continue
            behind = 4 * (reader.delivered - inlet.told_done) >= self._knobs.window
            if missing or behind or reader.held > inlet.told_held:
                self._report(inlet, missing)

    def _missing(self, now: Nanoseconds, inlet: Inlet) -> tuple[int, ...]:
        """What to ask for, unless it was asked for just now."""
        if inlet.asked_ns >= 0 and now - inlet.asked_ns < self._knobs.repair_ns // 2:
            return ()
        missing = inlet.missing()
        if missing:
            inlet.asked_ns = now
        return missing

    def _report(self, inlet: Inlet, missing: tuple[int, ...]) -> None:
        held = inlet.acknowledgement(self.tree.id, self._reader.held, self._reader.delivered, missing)
        self._effects.append(Send(inlet.source, held))

    def repair(self, now: Nanoseconds) -> bool:
        """Say again what may have been lost; whether anything is unsettled."""
        self._fetch_bodies()
        if self.server is not None:
            return self.server.repair(now)
        unsettled = [inlet for inlet in self._inlets.values() if inlet.known > inlet.settled]
        for inlet in unsettled:
            self._report(inlet, inlet.missing())
        return bool(unsettled)

    def _fetch_bodies(self) -> None:
        """Ask for bodies that were lacking a while ago too: senders for those that have no place yet, the
        primary sites of their groups for the others."""
        lacking: dict[tuple[Site, int], Site] = {}
        for item in self._reader.lacking():
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
        return self._reader.holding(self.tree.id, waiting)

    def lacking(self, ending: Ending) -> list[tuple[Site, Site, int]]:
        """What must be fetched before this site can deliver an ending: from whom, and sender and number."""
        have = self._reader.kept()
        return [
            (source, item.sender, item.number)
            for item, source in zip(ending.items, ending.sources, strict=True)
            if self._is_due(item)
            and (item.sender, item.number) not in have
            and (item.sender, item.number) not in self._copies
        ]

    def lacks(self, ending: Ending, source: Site, pdu: Copy) -> bool:
        """Whether a copy is one of those, and the same batch, from the one who was asked for it."""
        item = Item(pdu.sender, pdu.number, len(pdu.bodies), pdu.group)
        return (source, pdu.sender, pdu.number) in self.lacking(ending) and item in ending.items

    def _is_due(self, item: Item) -> bool:
        is_mine = self._site in self.tree.members.get(item.group, ())
        return is_mine and not self._ledger.has(item.sender, item.number)

    def find(self, sender: Site, number: int) -> Batch | None:
        """One that is held, as long as anybody may lack it."""
        name = (sender, number)
        found = self._reader.kept().get(name) or self._copies.get(name)
        if found is None and self.server is not None:
            found = self.server.find(sender, number)
        return found or self._bodies.find(sender, number)

    def keep(self, batch: Batch) -> None:
        """One that was lacking has come."""
        self._copies[batch.sender, batch.number] = batch
        self._effects.append(Arrived(batch.sender, batch.number, batch.length, batch.group))

    def finish(self, ending: Ending) -> None:
        """Deliver the last of it."""
        have = self._copies | self._reader.kept()
        for item in order_at(ending, self._reader.names()):
            batch = have.get((item.sender, item.number))
            if batch is not None and self._is_due(item):
                self._ledger.deliver(batch)

    def kept(self) -> int:
        """Batches in memory."""
        served = 0 if self.server is None else self.server.kept()
        return len(self._copies) + len(self._bodies) + self._reader.held - self._reader.delivered + served
