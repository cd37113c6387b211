"""A site's parts in all trees: those of the version of the table in force, and those that hand over to them.

A site has a branch on a tree that it is in, and an outbox on one that it sends on, whether it is in it or
not. Each tree is a world by itself; what ties them together is here: the order in which a site delivers on
trees that hand over and on those after them, a sender's causal order across trees, and stopping and ending.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final

from antiphon.core.effects import Effect, Joined, Left, Send, SetTimer
from antiphon.core.ids import Group, Site
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.branch import Branch
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.ledger import Ledger
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
    Life,
    Mark,
    MetaGroupsConfiguration,
    Query,
    Request,
    Taken,
    Token,
    TokenRequest,
    TreeId,
    Want,
)
from antiphon.protocols.metagroups.sending import Outbox
from antiphon.protocols.metagroups.table import Layout


class Grove:
    """What a site does on its trees, under one version of the table after another."""

    def __init__(self, site: Site, configuration: MetaGroupsConfiguration, effects: list[Effect]) -> None:
        self.life: Life = (0, 0)
        self.layout: Layout | None = None
        """The version in force; None as long as this site is in no cluster."""
        self.groups: frozenset[Group] = frozenset()
        """The groups that this site is in, as it has told the application."""
        self.stopped: set[TreeId] = set()
        self.over: set[TreeId] = set()
        """Trees that hand over and that all sites are known to be done with."""
        self.stops = 0
        self._site: Final = site
        self._knobs: Final = configuration
        self._effects: Final = effects
        self._ledger: Final = Ledger(site, effects, safe=configuration.delivery == "safe")
        self._branches: dict[TreeId, Branch] = {}
        self._outboxes: dict[TreeId, Outbox] = {}
        self._told: tuple[tuple[TreeId, int], ...] | None = ()
        """How far this site is with trees that hand over, as it was told last."""
        self._flushing = self._repairing = False
        self._repeated = 0

    # Versions of the table

    def begin(self, life: Life) -> None:
        """This site begins, or begins anew: it is in no cluster."""
        self.life = life
        self.layout = None
        self._branches.clear()
        self._outboxes.clear()
        self.stopped.clear()
        self.over.clear()

    def adopt(self, layout: Layout) -> None:
        """A version of the table is in force: trees that are not in it are over, and new ones begin."""
        self.layout = layout
        self._ledger.settle(layout.lives)
        self.stopped.clear()
        going_on = layout.all_trees()
        self.over &= going_on
        self._branches = {tree: branch for tree, branch in self._branches.items() if tree in going_on}
        self._outboxes = {tree: outbox for tree, outbox in self._outboxes.items() if tree in going_on}
        self._told = None
        for tree in layout.trees.values():
            if self._site in tree.node_of and tree.id not in self._branches:
                self._branches[tree.id] = Branch(
                    self._site, tree, self._outbox(tree.id), self._ledger, self._knobs, self._effects
                )

    def _outbox(self, tree: TreeId) -> Outbox:
        found = self._outboxes.get(tree)
        if found is None:
            assert self.layout is not None, "only a site in a cluster has trees"
            found = Outbox(self._site, self.life, self.layout.trees[tree], self._knobs, self._effects)
            self._outboxes[tree] = found
        return found

    # Figures

    def kept(self) -> int:
        """Batches in memory."""
        return sum(branch.kept() for branch in self._branches.values())

    def waiting(self) -> int:
        """Own batches that are not stable."""
        return sum(map(len, self._outboxes.values()))

    def waiting_for(self) -> Iterator[tuple[Site, int]]:
        """The primary sites that have to see to own batches, with the messages of each."""
        for outbox in list(self._outboxes.values()):
            yield from outbox.waiting_for()

    def repeated(self) -> int:
        served = [branch.server for branch in self._branches.values() if branch.server is not None]
        repeated = sum(outbox.repeated for outbox in self._outboxes.values())
        return self._repeated + repeated + sum(server.copies for server in served)

    # What comes in

    def admit(self, tree: TreeId, number: int, group: Group, bodies: Packed) -> None:
        self._outbox(tree).admit(number, group, bodies)

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> bool:
        """A message on a tree; False if it makes no sense there."""
        return self._messages[type(pdu)](self, now, sender, pdu)

    def _take_request(self, now: Nanoseconds, sender: Site, pdu: Request | TokenRequest) -> bool:
        branch = self._running(pdu.tree)
        return branch is None or not self._lives(sender, pdu.life) or branch.request(now, sender, pdu)

    def _take_query(self, _now: Nanoseconds, sender: Site, pdu: Query) -> bool:
        branch = self._running(pdu.tree)
        if branch is not None and branch.server is not None and branch.server.node == pdu.node:
            branch.server.query(sender, pdu)
        return True

    def _take_taken(self, _now: Nanoseconds, sender: Site, pdu: Taken) -> bool:
        outbox = self._outboxes.get(pdu.tree)
        if outbox is None or pdu.tree in self.stopped or pdu.life != self.life:
            return True
        return outbox.take(sender, pdu)

    def _take_body(self, now: Nanoseconds, sender: Site, pdu: Body) -> bool:
        branch = self._running(pdu.tree)
        if branch is not None and self._lives(sender, pdu.life):
            count = len(pdu.bodies)
            branch.body(now, Batch(sender, pdu.life[0], pdu.number, count, pdu.group, pdu.bodies))
        return True

    def _take_entry(self, now: Nanoseconds, sender: Site, pdu: Entry | Token) -> bool:
        branch = self._running(pdu.tree)
        return branch is None or branch.entry(now, sender, pdu)

    def _take_mark(self, now: Nanoseconds, sender: Site, pdu: Mark) -> bool:
        branch = self._running(pdu.tree)
        return branch is None or branch.mark(now, sender, pdu)

    def _take_held(self, now: Nanoseconds, sender: Site, pdu: Held) -> bool:
        branch = self._running(pdu.tree)
        return branch is None or branch.acknowledge(now, sender, pdu)

    def _running(self, tree: TreeId) -> Branch | None:
        """This site's part in a tree that is not stopped; None also for trees that are over or to come."""
        return None if tree in self.stopped else self._branches.get(tree)

    def _lives(self, site: Site, life: Life) -> bool:
        """Whether a site is in the table, and in this life."""
        return self.layout is not None and self.layout.lives.get(site) == life

    # What goes out

    def send(self, now: Nanoseconds) -> None:
        """Send what may be sent, and see to it that what is new is told."""
        for tree, outbox in self._outboxes.items():
            if outbox.may_send and tree not in self.stopped:
                self._send_due(now, tree, outbox)
        running = [branch for tree, branch in self._branches.items() if tree not in self.stopped]
        if any(branch.dirty for branch in running) and not self._flushing:
            if self._knobs.acknowledge_ns:
                self._flushing = True
                self._effects.append(SetTimer("flush", self._knobs.acknowledge_ns))
            else:
                self._flush(now)
            self._wake()

    def _send_due(self, now: Nanoseconds, tree: TreeId, outbox: Outbox) -> None:
        branch = self._branches.get(tree)
        server = None if branch is None else branch.server
        for own in outbox.due(now, self._limit(tree)):
            if self._knobs.bodies == "direct":
                outbox.multicast_body(own, outbox.members(own))
            if server is not None and server.node == own.node:
                server.request_here(now, self.life, own.seq, own.batch)
            else:
                if branch is not None and self._knobs.bodies == "direct":
                    branch.body(now, own.batch)
                outbox.request(own)
        self._wake()

    def _limit(self, tree: TreeId) -> int | None:
        """In causal order: the first own batch on another tree that is not stable. Those after it wait."""
        if not self._knobs.causal:
            return None
        firsts = [outbox.first for other, outbox in self._outboxes.items() if other != tree]
        return min((first for first in firsts if first is not None), default=None)

    def resume(self) -> None:
        """All timers stood still: none is set any more."""
        self._flushing = self._repairing = False
        self._wake()

    def _wake(self) -> None:
        if not self._repairing:
            self._repairing = True
            self._effects.append(SetTimer("repair", self._knobs.repair_ns))

    def fire(self, now: Nanoseconds, name: str) -> None:
        """One of the timers that are set here has run out."""
        if name == "flush":
            self._flushing = False
            self._flush(now)
        elif name == "repair":
            self._repairing = False
            self._repair(now)

    def _flush(self, now: Nanoseconds) -> None:
        for tree, branch in self._branches.items():
            if tree not in self.stopped:
                branch.flush(now)

    def _repair(self, now: Nanoseconds) -> None:
        busy = False
        for tree, branch in self._branches.items():
            if tree not in self.stopped:
                busy = branch.repair(now) or busy
        for tree, outbox in self._outboxes.items():
            if tree not in self.stopped:
                outbox.repeat(now, self._knobs.repair_ns)
                busy = busy or bool(outbox)
        if busy:
            self._wake()

    # Trees that hand over

    def hand_over(self, now: Nanoseconds) -> bool:
        """Go on with trees that hand over; whether this site has got further with any of them."""
        layout = self.layout
        if layout is None or not layout.retiring or len(self.over) >= len(layout.retiring):
            return False
        self.take_turns(now)
        before, self._told = self._told, self.stages()
        return self._told != before

    def take_turns(self, now: Nanoseconds) -> None:
        """Deliver on one tree after another: on the next only when all was delivered on the one before."""
        waiting = [branch for branch in self._branches.values() if not branch.finished]
        while waiting and not waiting[0].is_open:
            waiting[0].open(now)
            if waiting[0].finished:
                del waiting[0]
        layout = self.layout
        if layout is not None and all(branch.tree.id in layout.trees for branch in waiting):
            self._tell_groups(frozenset(layout.seats[self._site].groups))

    def _tell_groups(self, groups: frozenset[Group]) -> None:
        self._effects.extend(Left(group) for group in sorted(self.groups - groups))
        self._effects.extend(Joined(group) for group in sorted(groups - self.groups))
        self.groups = groups

    def stages(self) -> tuple[tuple[TreeId, int], ...]:
        """How far this site is with each tree that hands over; those that it is done with are left out."""
        found = []
        for tree in sorted(() if self.layout is None else self.layout.retiring):
            branch = self._branches.get(tree)
            if self._outboxes.get(tree):
                found.append((tree, BUSY))
            elif branch is not None and not branch.finished:
                found.append((tree, DRAINED))
        return tuple(found)

    def take_progress(self, now: Nanoseconds, stages: Iterable[tuple[TreeId, int]]) -> None:
        """So far are all sites with trees that hand over.

        End their streams when nothing can come any more, and then forget them.
        """
        layout = self.layout
        for tree, stage in stages:
            if layout is None or tree not in layout.retiring or tree in self.stopped:
                continue
            branch = self._branches.get(tree)
            if branch is not None and branch.server is not None:
                branch.server.close(now)
            if stage == FINISHED:
                self.over.add(tree)
                self._branches.pop(tree, None)
                self._outboxes.pop(tree, None)
                self.take_turns(now)

    # Trees that are stopped, and end

    def stop(self, trees: Iterable[TreeId]) -> None:
        """Let nothing more happen on these trees."""
        if self.layout is not None:
            new = (self.layout.all_trees() & set(trees)) - self.stopped
            self.stopped |= new
            while self._knobs.causal and (tied := self._tied()):
                self.stopped |= tied
                new |= tied
            self.stops += len(new & self._branches.keys())

    def _tied(self) -> set[TreeId]:
        """In causal order: trees with own batches that come before some on a tree that is stopped.

        What waits there is delivered when the tree ends; so what comes before it must be delivered by then.
        """
        stopped = [outbox.last for tree, outbox in self._outboxes.items() if tree in self.stopped]
        limit = max((last for last in stopped if last is not None), default=-1)
        return {
            tree
            for tree, outbox in self._outboxes.items()
            if tree not in self.stopped and outbox.first is not None and outbox.first < limit
        }

    def holdings(self) -> tuple[Holding, ...]:
        """What this site has of the trees that are stopped."""
        found = []
        for tree in sorted(self.stopped):
            outbox, branch = self._outboxes.get(tree), self._branches.get(tree)
            waiting = () if outbox is None else outbox.items()
            if tree in self.over:
                continue
            found.append(Holding(tree, (), 0, waiting) if branch is None else branch.holding(waiting))
        return tuple(found)

    def end(self, endings: Iterable[Ending]) -> None:
        """Deliver the last of trees that end; own batches among that are stable."""
        for ending in endings:
            branch, outbox = self._branches.pop(ending.tree, None), self._outboxes.pop(ending.tree, None)
            if branch is not None:
                branch.finish(ending)
            if outbox is not None:
                for item in ending.items:
                    if item.sender == self._site:
                        outbox.forget(item.number)
                self._repeated += outbox.repeated

    # Bodies that somebody lacks

    def fetch(self, decision: Decision) -> int:
        """Ask for what is lacking to deliver what a decision says; how much that is."""
        wanted: dict[tuple[Site, TreeId], list[tuple[Site, int]]] = {}
        for ending in decision.endings:
            branch = self._branches.get(ending.tree)
            for source, sender, number in [] if branch is None else branch.lacking(ending):
                own = self._find(ending.tree, sender, number) if source == self._site else None
                if own is not None and branch is not None:
                    branch.keep(own)
                else:
                    wanted.setdefault((source, ending.tree), []).append((sender, number))
        for (source, tree), items in wanted.items():
            self._effects.append(Send(source, Want(tree, tuple(items[:MOST_WANTED]))))
        return sum(map(len, wanted.values()))

    def _find(self, tree: TreeId, sender: Site, number: int) -> Batch | None:
        branch, outbox = self._branches.get(tree), self._outboxes.get(tree)
        found = outbox.find(number) if sender == self._site and outbox is not None else None
        if found is None and branch is not None:
            found = branch.find(sender, number)
        return found

    def _give(self, _now: Nanoseconds, sender: Site, pdu: Want) -> bool:
        if self.layout is None or sender not in self.layout.lives:
            return False
        for wanted, number in pdu.items:
            batch = self._find(pdu.tree, wanted, number)
            if batch is not None and batch.bodies is not None:
                name = (batch.sender, batch.incarnation, batch.number, batch.group)
                self._effects.append(Send(sender, Copy(pdu.tree, *name, batch.bodies)))
        return True

    def take_copy(self, now: Nanoseconds, sender: Site, pdu: Copy, decision: Decision | None) -> bool:
        """Bodies that were asked for; whether with them all is here that a decision waits for."""
        branch = self._branches.get(pdu.tree)
        if branch is None:
            return False
        batch = Batch(pdu.sender, pdu.incarnation, pdu.number, len(pdu.bodies), pdu.group, pdu.bodies)
        if pdu.tree not in self.stopped:
            branch.copy(now, sender, batch)
        endings = () if decision is None else decision.endings
        if not any(ending.tree == pdu.tree and branch.lacks(ending, sender, pdu) for ending in endings):
            return False
        branch.keep(batch)
        return not any(
            self._branches[ending.tree].lacking(ending) for ending in endings if ending.tree in self._branches
        )

    _messages: ClassVar[dict[type[Pdu], Callable[["Grove", Nanoseconds, Site, Any], bool]]] = {
        Request: _take_request,
        TokenRequest: _take_request,
        Taken: _take_taken,
        Query: _take_query,
        Entry: _take_entry,
        Token: _take_entry,
        Body: _take_body,
        Mark: _take_mark,
        Held: _take_held,
        Want: _give,
    }
