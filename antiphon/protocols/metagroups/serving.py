"""The primary site of a meta-group: orders what comes to it and hands it on.

Source: Jia and So, section 5, the multicast server's three rules. What comes from above and what senders
request for the groups whose primary meta-group this is get the next place here; from there each entry goes to
the meta-group's own sites if it is for them, and to each node below that leads to more of its group. The node
above is the parent, and those below are the children; where messages go past nodes, there may be several
above, each with a channel of its own.

Beyond the paper. A place is *held* when everyone below holds what stands there and before, and a request is
*ready* when it is held; what came from above is ready when its source says so. Readiness is a prefix of the
order: nothing is ready before all that stands before it. It waits for nothing but what is held below and
ready above, so that it comes about also where several are above. So whoever delivers a message knows that all
that its own primary put before it is held by all for whom it is, which is what recovery after a crash rests
on (`ending`). The same one step later tells what was delivered by all: *settled*.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from antiphon.core.effects import Effect, Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.packing import pack
from antiphon.core.time import Nanoseconds
from antiphon.protocols.metagroups.bodies import Bodies
from antiphon.protocols.metagroups.channels import Batch, Inlet, Outlet, to_members, to_primary
from antiphon.protocols.metagroups.pdus import (
    NO_GROUP,
    Entry,
    Held,
    Life,
    Mark,
    MetaGroupsConfiguration,
    Query,
    Request,
    Taken,
    Token,
    TokenRequest,
)
from antiphon.protocols.metagroups.reading import Reader
from antiphon.protocols.metagroups.table import Tree

NOTHING: Final = pack([b""])
NO_LIFE: Final[Life] = (0, 0)


class Placed(NamedTuple):
    """What stands at a place: a batch, and which request it was or from whom above it came.

    The end of the streams is a request without a number.
    """

    batch: Batch
    request: tuple[Site, Life, int] | None
    source: Site


class Client:
    """One sender as its groups' primary site sees it."""

    __slots__ = ("accepted", "early", "life", "stable", "told")

    def __init__(self, life: Life) -> None:
        self.life = life
        self.accepted = 0
        self.stable = 0
        self.told = (0, 0)
        self.early: dict[int, Batch] = {}


class Frontier:
    """How far the order is known to have got below, and with the word of those above: held and ready, or the
    same of delivery."""

    __slots__ = ("below", "from_above", "passed", "whole")

    def __init__(self, sources: Iterable[Site]) -> None:
        self.below = 0
        """The place up to which everyone below has."""
        self.from_above = dict.fromkeys(sources, 0)
        """How many of those places came from each source above: what it is told."""
        self.whole = 0
        """The place up to which everyone has, also those that are not below."""
        self.passed = dict(self.from_above)
        """How many of those came from each source."""


class Server:
    """The work of a primary site for one node of one tree."""

    def __init__(
        self,
        site: Site,
        tree: Tree,
        node: int,
        reader: Reader,
        bodies: Bodies,
        configuration: MetaGroupsConfiguration,
        effects: list[Effect],
        on_stable: Callable[[int], None],
    ) -> None:
        self._site: Final = site
        self._tree: Final = tree
        self.node: Final = node
        self._groups: Final = frozenset(tree.nodes[node].label)
        self._leads: Final = tree.leads[node]
        self._reader: Final = reader
        self._bodies: Final = bodies
        self._is_direct: Final = configuration.bodies == "direct"
        self._requested: dict[tuple[Site, int], Batch] = {}
        """Where bodies go directly: requests in the order, for those who lack the bodies."""
        self._knobs: Final = configuration
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
        self._on_stable: Final = on_stable
        """Told how far this site's own requests are stable."""
        self.dirty = False
        self.copies = 0
        self._is_closed = False
        """Whether no more requests come."""
        self._feeding = set(sources)
        """From whom above more may come."""
        self._has_ended = False

    # What comes in

    def request(self, now: Nanoseconds, sender: Site, pdu: Request | TokenRequest) -> None:
        """A request of another site, in order or early; the same again is only acknowledged again."""
        if self._is_closed:
            return
        client = self._clients.get(sender)
        if client is None or client.life < pdu.life:
            client = self._clients[sender] = Client(pdu.life)
        if client.life != pdu.life:
            return
        bodies = pdu.bodies if isinstance(pdu, Request) else None
        count = pdu.count if isinstance(pdu, TokenRequest) else len(pdu.bodies)
        if client.accepted < pdu.seq <= client.accepted + self._knobs.admission:
            client.early[pdu.seq] = Batch(sender, pdu.life[0], pdu.number, count, pdu.group, bodies)
            self.look_again(now, sender)
        else:
            client.told = (-1, -1)
        self.dirty = True

    def look_again(self, now: Nanoseconds, sender: Site) -> None:
        """Take a sender's requests in order, tokens only when their bodies are here."""
        client = self._clients.get(sender)
        if client is None or self._is_closed:
            return
        while (found := client.early.get(client.accepted + 1)) is not None:
            batch = found if found.bodies is not None else self._bodies.take(found)
            if batch is None:
                break
            client.accepted += 1
            del client.early[client.accepted]
            self._queue.append(Placed(batch, (sender, client.life, client.accepted), self._site))
        self._place_requests(now)
        self.dirty = True

    def lacking(self) -> list[tuple[Site, int]]:
        """Requests that wait for their bodies: whose, and which number."""
        found = [(site, client.early.get(client.accepted + 1)) for site, client in self._clients.items()]
        return [(site, token.number) for site, token in found if token is not None and token.bodies is None]

    def find(self, sender: Site, number: int) -> Batch | None:
        """A request in the order, as long as anybody may lack it."""
        return self._requested.get((sender, number))

    def query(self, sender: Site, pdu: Query) -> None:
        """A sender wants to know how far its requests are."""
        client = self._clients.get(sender)
        if client is not None and client.life == pdu.life:
            client.told = (-1, -1)
            self.dirty = True

    def request_here(self, now: Nanoseconds, life: Life, seq: int, batch: Batch) -> None:
        """One of this site's own."""
        self._queue.append(Placed(batch, (self._site, life, seq), self._site))
        self._place_requests(now)

    def feed(self, now: Nanoseconds, source: Site, batches: list[Batch]) -> None:
        """Entries have come from above, or marks."""
        for batch in batches:
            self._append(now, Placed(batch, None, source))
            if batch.group == NO_GROUP:
                self._feeding.discard(source)
        self.advance(now)
        self._end_streams(now)

    def acknowledge(self, now: Nanoseconds, sender: Site, pdu: Held) -> None:
        outlet = self.outlets.get(pdu.channel)
        if outlet is None or sender not in outlet.receivers:
            return
        if outlet.acknowledge(sender, pdu.held, pdu.done):
            outlet.moved_ns = now
            self.advance(now)
        elif not pdu.missing:
            # Whoever says the same again is waiting for a mark that was lost.
            self._tell(outlet, (sender,))
        for seq in pdu.missing:
            place = outlet.place_of(seq)
            if place is not None and place in self._log:
                self.copies += 1
                self._effects.append(Send(sender, self._entry(outlet, seq, self._log[place].batch)))

    def close(self, now: Nanoseconds) -> None:
        """No sender has anything left for this tree: its streams end with what is here."""
        self._is_closed = True
        self._end_streams(now)

    def _end_streams(self, now: Nanoseconds) -> None:
        """Say that nothing follows, once it is so: here, and on everything that comes from above."""
        if self._has_ended or not self._is_closed or self._feeding or self._queue:
            return
        self._has_ended = True
        self._end += 1
        batch = Batch(self._site, 0, 0, 1, NO_GROUP, NOTHING)
        self._log[self._end] = Placed(batch, (self._site, NO_LIFE, 0), self._site)
        self._own += 1
        self._reader.put(batch)
        for outlet in self.outlets.values():
            seq = outlet.add(self._end)
            outlet.moved_ns = now
            if outlet.receivers:
                self._effects.append(Multicast(self._entry(outlet, seq, batch), outlet.receivers))
        self.advance(now)

    # The order

    def _place_requests(self, now: Nanoseconds) -> None:
        while self._queue and self._own < self._knobs.window:
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
            seq = self.members.add(self._end)
            if self.members.receivers:
                self.members.moved_ns = now
                entry = self._entry(self.members, seq, batch)
                self._effects.append(Multicast(entry, self.members.receivers))
            self._reader.put(batch)
        for child in self._leads.get(batch.group, ()):
            outlet = self._children[child]
            outlet.moved_ns = now
            seq = outlet.add(self._end)
            self._effects.append(Send(outlet.receivers[0], self._entry(outlet, seq, batch)))

    def _entry(self, outlet: Outlet, seq: int, batch: Batch) -> Entry | Token:
        outlet.told_ready, outlet.told_settled = outlet.ready, outlet.settled
        where = (self._tree.id, outlet.channel, seq, outlet.ready, outlet.settled)
        what = (batch.sender, batch.incarnation, batch.number)
        if self._is_direct and batch.group != NO_GROUP:
            return Token(*where, *what, batch.length, batch.group)
        assert batch.bodies is not None, "there are no tokens where bodies go down the tree"
        return Entry(*where, *what, batch.group, batch.bodies)

    def advance(self, now: Nanoseconds) -> None:
        """Move all frontiers as far as they go, tell this site's own stream, and make room for requests."""
        outlets = self.outlets.values()
        held = self.members.place_before(min(self.members.held, self._reader.held), self._end)
        for outlet in self._children.values():
            held = min(held, outlet.place_before(outlet.held, self._end))
        self._move(self._holding, held, lambda inlet: inlet.ready, self._note_stable)
        for outlet in outlets:
            outlet.ready = outlet.count_up_to(outlet.ready, self._holding.whole)
        self._reader.mark(self.members.ready, 0)
        done = self.members.place_before(min(self.members.done, self._reader.delivered), self._end)
        for outlet in self._children.values():
            done = min(done, outlet.place_before(outlet.done, self._end))
        self._move(self._finishing, done, lambda inlet: inlet.settled, self._note_settled)
        for outlet in outlets:
            outlet.settled = outlet.count_up_to(outlet.settled, self._finishing.whole)
            outlet.release(outlet.settled)
        self._reader.mark(self.members.ready, self.members.settled)
        while self._released < self._finishing.whole:
            self._released += 1
            batch = self._log.pop(self._released).batch
            self._requested.pop((batch.sender, batch.number), None)
        self.dirty = True
        if self._queue and self._own < self._knobs.window:
            self._place_requests(now)
            self._end_streams(now)

    def _move(
        self,
        frontier: Frontier,
        below: int,
        word: Callable[[Inlet], int],
        passed: Callable[[Placed], None],
    ) -> None:
        """Take in how far those below have got and how far the words of those above go."""
        while frontier.below < below:
            frontier.below += 1
            placed = self._log[frontier.below]
            if placed.request is None:
                frontier.from_above[placed.source] += 1
        while frontier.whole < frontier.below:
            placed = self._log[frontier.whole + 1]
            if placed.request is None:
                if frontier.passed[placed.source] >= word(self.inlets[placed.source]):
                    return
                frontier.passed[placed.source] += 1
            frontier.whole += 1
            passed(placed)

    def _note_stable(self, placed: Placed) -> None:
        if placed.request is None:
            return
        sender, life, seq = placed.request
        if not seq:
            return
        if sender == self._site:
            self._on_stable(seq)
        elif (client := self._clients.get(sender)) is not None and client.life == life:
            client.stable = seq

    def _note_settled(self, placed: Placed) -> None:
        self._own -= placed.request is not None

    # What is told

    def flush(self) -> None:
        """Tell what is new: marks down, acknowledgements up and to those who sent requests."""
        self.dirty = False
        for outlet in self.outlets.values():
            if outlet.ready > outlet.told_ready:
                self._tell(outlet, outlet.receivers)
        for site, client in self._clients.items():
            now_known = (client.accepted, client.stable)
            if now_known != client.told:
                client.told = now_known
                self._effects.append(Send(site, Taken(self._tree.id, self.node, client.life, *now_known)))
        for inlet in self.inlets.values():
            if self._acknowledgement_due(inlet):
                self.report(inlet, ())

    def _acknowledgement_due(self, inlet: Inlet) -> bool:
        unsaid = self._finishing.from_above[inlet.source] - inlet.told_done
        return self._holding.from_above[inlet.source] > inlet.told_held or 4 * unsaid >= self._knobs.window

    def report(self, inlet: Inlet, missing: tuple[int, ...]) -> None:
        """Acknowledge to a source above."""
        held = inlet.acknowledgement(
            self._tree.id,
            self._holding.from_above[inlet.source],
            self._finishing.from_above[inlet.source],
            missing,
        )
        self._effects.append(Send(inlet.source, held))

    def _tell(self, outlet: Outlet, receivers: tuple[Site, ...]) -> None:
        if receivers == outlet.receivers:
            outlet.told_ready, outlet.told_settled = outlet.ready, outlet.settled
        if receivers:
            mark = Mark(self._tree.id, outlet.channel, outlet.last, outlet.ready, outlet.settled)
            self._effects.append(Multicast(mark, receivers))

    def repair(self, now: Nanoseconds) -> bool:
        """Tell those of whom nothing was heard for long what there is; whether anything is unsettled."""
        for outlet in self.outlets.values():
            if outlet.settled > outlet.told_settled:
                self._tell(outlet, outlet.receivers)
            elif now - outlet.moved_ns >= self._knobs.repair_ns:
                self._tell(outlet, outlet.lagging())
        for source, inlet in self.inlets.items():
            if inlet.known > inlet.settled or self._finishing.from_above[source] > inlet.told_done:
                self.report(inlet, inlet.missing())
        return self._released < self._end or bool(self._queue)

    def kept(self) -> int:
        """Batches in memory."""
        return len(self._log) + len(self._queue)
