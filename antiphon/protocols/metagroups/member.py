"""A site: its trees, its own batches, and its seat in the council, held together."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, ClassVar

from antiphon.core.effects import (
    Absent,
    Admitted,
    Appeared,
    Effect,
    Joined,
    Left,
    Multicast,
    Present,
    Rejected,
    Send,
    SetTimer,
    Vanished,
)
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import Start
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.branch import Branch
from antiphon.protocols.metagroups.channels import Batch
from antiphon.protocols.metagroups.checks import makes_sense
from antiphon.protocols.metagroups.council import Council
from antiphon.protocols.metagroups.parts import Parts, put_together
from antiphon.protocols.metagroups.pdus import (
    BUSY,
    DRAINED,
    FINISHED,
    MOST_WANTED,
    Accept,
    Accepted,
    Body,
    Copy,
    Decision,
    Entry,
    Goodbye,
    Held,
    Holding,
    Install,
    Life,
    Mark,
    MetaGroupsConfiguration,
    Part,
    Prepare,
    Progress,
    Query,
    Refuse,
    Report,
    Request,
    Seat,
    Taken,
    Token,
    TokenRequest,
    TreeId,
    Want,
    Word,
)
from antiphon.protocols.metagroups.reading import Ledger
from antiphon.protocols.metagroups.sending import Outbox
from antiphon.protocols.metagroups.table import NO_FOUNDER, Layout, check_room, first_decision, layout_of

CHANGING = "The members of the group are being agreed on anew; try again."


class Member:
    """Everything but the checks of what an application hands in."""

    def __init__(
        self,
        site: Site,
        seats: tuple[Seat, ...],
        configuration: MetaGroupsConfiguration,
        random: Random,
    ) -> None:
        self.ignored = 0
        self._site = site
        self._seats = seats
        self._knobs = configuration
        self._effects: list[Effect] = []
        self._wanted = {group for seat in seats if seat.site == site for group in seat.groups}
        check_room(None, site, self._wanted)
        self._serial = 1
        self._groups: frozenset[Group] = frozenset()
        """The groups that this site is in, as it has told the application."""
        self._layout: Layout | None = None
        self._life: Life = (0, 0)
        self._next_number = 0
        self._ledger = Ledger(site, self._effects, safe=configuration.delivery == "safe")
        self._branches: dict[TreeId, Branch] = {}
        self._outboxes: dict[TreeId, Outbox] = {}
        self._stopped: set[TreeId] = set()
        self._over: set[TreeId] = set()
        """Trees that hand over and that everybody is done with."""
        self._told: tuple[tuple[TreeId, int], ...] | None = ()
        """How far this site is with trees that hand over, as it was told last."""
        self._present = False
        self._flushing = self._repairing = False
        self._parts = Parts()
        self._council = Council(site, self, configuration, random, self._effects)
        self._changes = self._stops = self._lost = self._spells = self._repeated = 0

    def effects(self) -> list[Effect]:
        found = list(self._effects)
        self._effects.clear()
        return found

    def figures(self) -> dict[str, int]:
        layout = self._layout
        served = [branch.server for branch in self._branches.values() if branch.server is not None]
        repeated = sum(outbox.repeated for outbox in self._outboxes.values())
        return {
            "ignored": self.ignored,
            "version": 0 if layout is None else layout.version,
            "sites": 0 if layout is None else len(layout.lives),
            "trees": 0 if layout is None else len(layout.trees),
            "kept": sum(branch.kept() for branch in self._branches.values()),
            "waiting": self._waiting(),
            "repeated": self._repeated + repeated + sum(server.copies for server in served),
            "changes": self._changes,
            "stops": self._stops,
            "attempts": self._council.attempts,
            "begun_anew": self._spells,
            "lost": self._lost,
        }

    # Inputs

    def start(self, now: Nanoseconds, event: Start) -> None:
        self._life = (event.incarnation, 0)
        self._next_number = event.next_number
        self._effects.append(SetTimer("word", self._knobs.heartbeat_ns))
        self._council.forget(now)
        if event.incarnation:
            self._council.beat(now)
            return
        self._present = True
        seats = tuple(sorted(self._seats, key=lambda seat: seat.site))
        self._adopt(now, first_decision(NO_FOUNDER, seats, self._knobs.shape))

    def admit(self, now: Nanoseconds, group: Group, bodies: Packed) -> None:
        layout = self._layout
        tree = None if layout is None else layout.tree_to(group)
        reason = None
        if layout is None:
            reason = "This site is in no cluster yet; try again."
        elif tree is None:
            reason = f"The group {group} has no members now."
        elif tree.id in self._stopped:
            reason = CHANGING
        elif self._waiting() >= self._knobs.admission:
            reason = "As many batches as are admitted at once are not stable yet."
        if reason is not None or tree is None:
            self._effects.append(Rejected(reason or CHANGING))
            return
        number, self._next_number = self._next_number, self._next_number + len(bodies)
        self._effects.append(Admitted(number, len(bodies), bodies.size, tree.members[group], group))
        self._outbox(tree.id).admit(number, group, bodies)
        self._end(now)

    def join(self, now: Nanoseconds, group: Group) -> None:
        if group in self._wanted:
            if group in self._groups:
                self._effects.append(Joined(group))
            return
        wanted = self._wanted | {group}
        check_room(self._layout, self._site, wanted)
        self._wish(now, wanted)

    def leave(self, now: Nanoseconds, group: Group) -> None:
        if group not in self._groups:
            self._effects.append(Left(group))
        if group in self._wanted:
            self._wish(now, self._wanted - {group})

    def _wish(self, now: Nanoseconds, wanted: set[Group]) -> None:
        self._wanted = wanted
        self._serial += 1
        self._council.wish(now)

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        act = self._words.get(type(pdu))
        if act is None or sender == self._site or not makes_sense(pdu):
            self.ignored += 1
            return
        act(self, now, sender, pdu)
        self._end(now)

    def fire(self, now: Nanoseconds, name: str) -> None:
        if name == "flush":
            self._flushing = False
            self._flush(now)
        elif name == "repair":
            self._repairing = False
            self._repair(now)
        elif name == "word":
            self._effects.append(SetTimer("word", self._knobs.heartbeat_ns))
            if self._council.beat(now):
                self._found(now)
        elif name == "council":
            self._council.fire(now)
        self._end(now)

    def depart(self) -> None:
        self._be_absent()
        if self._knobs.says_goodbye:
            self._effects.append(Multicast(Goodbye(self._life)))

    def come_back(self, now: Nanoseconds) -> None:
        """Go on from where it was; if the others have gone on without it, it will hear so."""
        self._flushing = self._repairing = False
        self._effects.append(SetTimer("word", self._knobs.heartbeat_ns))
        self._council.company.listen_anew(now)
        self._council.resume()
        if self._layout is not None:
            self._be_present()
        self._council.beat(now)
        self._wake()
        self._end(now)

    def suspect(self, now: Nanoseconds, site: Site) -> None:
        self._council.company.miss(site)
        self._council.look(now)

    def restore(self, now: Nanoseconds, site: Site) -> None:
        self._council.company.hear(now, site)

    # Presence

    def _be_absent(self) -> None:
        if self._present:
            self._present = False
            self._effects.append(Absent())

    def _be_present(self) -> None:
        if not self._present:
            self._present = True
            self._effects.append(Present())

    # Messages on trees

    def _take_request(self, now: Nanoseconds, sender: Site, pdu: Request | TokenRequest) -> None:
        branch, layout = self._running(pdu.tree), self._layout
        if branch is None or layout is None or layout.lives.get(sender) != pdu.life:
            return
        if not branch.request(now, sender, pdu):
            self.ignored += 1

    def _take_query(self, _now: Nanoseconds, sender: Site, pdu: Query) -> None:
        branch = self._running(pdu.tree)
        if branch is not None and branch.server is not None and branch.server.node == pdu.node:
            branch.server.query(sender, pdu)

    def _take_taken(self, _now: Nanoseconds, sender: Site, pdu: Taken) -> None:
        outbox = self._outboxes.get(pdu.tree)
        if outbox is None or pdu.tree in self._stopped or pdu.life != self._life:
            return
        if not outbox.take(sender, pdu):
            self.ignored += 1

    def _take_body(self, now: Nanoseconds, sender: Site, pdu: Body) -> None:
        branch, layout = self._running(pdu.tree), self._layout
        if branch is not None and layout is not None and layout.lives.get(sender) == pdu.life:
            count = len(pdu.bodies)
            branch.body(now, Batch(sender, pdu.life[0], pdu.number, count, pdu.group, pdu.bodies))

    def _take_entry(self, now: Nanoseconds, sender: Site, pdu: Entry | Token) -> None:
        branch = self._running(pdu.tree)
        if branch is not None and not branch.entry(now, sender, pdu):
            self.ignored += 1

    def _take_mark(self, now: Nanoseconds, sender: Site, pdu: Mark) -> None:
        branch = self._running(pdu.tree)
        if branch is not None and not branch.mark(now, sender, pdu):
            self.ignored += 1

    def _take_held(self, now: Nanoseconds, sender: Site, pdu: Held) -> None:
        branch = self._running(pdu.tree)
        if branch is not None and not branch.acknowledge(now, sender, pdu):
            self.ignored += 1

    def _running(self, tree: TreeId) -> Branch | None:
        """This site's part in a tree that is not stopped; None also for trees that are over or to come."""
        return None if tree in self._stopped else self._branches.get(tree)

    def _outbox(self, tree: TreeId) -> Outbox:
        found = self._outboxes.get(tree)
        if found is None:
            assert self._layout is not None, "only a site in a cluster has trees"
            found = Outbox(self._site, self._life, self._layout.trees[tree], self._knobs, self._effects)
            self._outboxes[tree] = found
        return found

    def _waiting(self) -> int:
        return sum(map(len, self._outboxes.values()))

    def _end(self, now: Nanoseconds) -> None:
        """What follows from any input: send what may be sent, and see to it that what is new is told."""
        layout = self._layout
        if layout is not None and layout.retiring and len(self._over) < len(layout.retiring):
            self._take_turns(now)
            if (stages := self._stages()) != self._told:
                self._told = stages
                self._council.tell_stages(now)
        for tree, outbox in self._outboxes.items():
            if outbox.may_send and tree not in self._stopped:
                self._send_due(now, tree, outbox)
        running = [branch for tree, branch in self._branches.items() if tree not in self._stopped]
        if any(branch.dirty for branch in running) and not self._flushing:
            if self._knobs.acknowledge_ns:
                self._flushing = True
                self._effects.append(SetTimer("flush", self._knobs.acknowledge_ns))
            else:
                self._flush(now)
            self._wake()

    def _take_turns(self, now: Nanoseconds) -> None:
        """Deliver on one tree after another: on the next only when all was delivered on the one before."""
        waiting = [branch for branch in self._branches.values() if not branch.finished]
        while waiting and not waiting[0].is_open:
            waiting[0].open(now)
            if waiting[0].finished:
                del waiting[0]
        layout = self._layout
        if layout is not None and all(branch.tree.id in layout.trees for branch in waiting):
            self._tell_groups(frozenset(layout.seats[self._site].groups))

    def _send_due(self, now: Nanoseconds, tree: TreeId, outbox: Outbox) -> None:
        branch = self._branches.get(tree)
        server = None if branch is None else branch.server
        for own in outbox.due(now, self._limit(tree)):
            if self._knobs.bodies == "direct":
                outbox.multicast_body(own, outbox.members(own))
            if server is not None and server.node == own.node:
                server.request_here(now, self._life, own.seq, own.batch)
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

    def _wake(self) -> None:
        if not self._repairing:
            self._repairing = True
            self._effects.append(SetTimer("repair", self._knobs.repair_ns))

    def _flush(self, now: Nanoseconds) -> None:
        for tree, branch in self._branches.items():
            if tree not in self._stopped:
                branch.flush(now)

    def _repair(self, now: Nanoseconds) -> None:
        busy = False
        for tree, branch in self._branches.items():
            if tree not in self._stopped:
                busy = branch.repair(now) or busy
        for tree, outbox in self._outboxes.items():
            if tree not in self._stopped:
                outbox.repeat(now, self._knobs.repair_ns)
                busy = busy or bool(outbox)
        if busy:
            self._wake()

    # What the council asks of its member

    @property
    def layout(self) -> Layout | None:
        return self._layout

    @property
    def life(self) -> Life:
        return self._life

    @property
    def stopped(self) -> frozenset[TreeId]:
        return frozenset(self._stopped)

    def word(self) -> Word:
        layout = self._layout
        wish = (self._life, self._serial, tuple(sorted(self._wanted)), self._knobs.rules)
        if layout is None:
            return Word(None, 0, *wish)
        return Word(layout.decision.origin, layout.version, *wish, self._stages())

    @property
    def over(self) -> frozenset[TreeId]:
        return frozenset(self._over)

    def take_progress(self, now: Nanoseconds, stages: Iterable[tuple[TreeId, int]]) -> None:
        """Trees that hand over: end their streams when nothing can come any more, and then forget them."""
        layout = self._layout
        for tree, stage in stages:
            if layout is None or tree not in layout.retiring or tree in self._stopped:
                continue
            branch = self._branches.get(tree)
            if branch is not None and branch.server is not None:
                branch.server.close(now)
            if stage == FINISHED:
                self._over.add(tree)
                self._branches.pop(tree, None)
                self._outboxes.pop(tree, None)
                self._take_turns(now)

    def _stages(self) -> tuple[tuple[TreeId, int], ...]:
        """How far this site is with each tree that hands over; those that it is done with are left out."""
        found = []
        for tree in sorted(() if self._layout is None else self._layout.retiring):
            branch = self._branches.get(tree)
            if self._outboxes.get(tree):
                found.append((tree, BUSY))
            elif branch is not None and not branch.finished:
                found.append((tree, DRAINED))
        return tuple(found)

    def stop(self, trees: Iterable[TreeId]) -> None:
        if self._layout is not None:
            new = (self._layout.all_trees() & set(trees)) - self._stopped
            self._stopped |= new
            while self._knobs.causal and (tied := self._tied()):
                self._stopped |= tied
                new |= tied
            self._stops += len(new & self._branches.keys())

    def _tied(self) -> set[TreeId]:
        """In causal order: trees with own batches that come before some on a tree that is stopped.

        What waits there is delivered when the tree ends; so what comes before it must be delivered by then.
        """
        stopped = [outbox.last for tree, outbox in self._outboxes.items() if tree in self._stopped]
        limit = max((last for last in stopped if last is not None), default=-1)
        return {
            tree
            for tree, outbox in self._outboxes.items()
            if tree not in self._stopped and outbox.first is not None and outbox.first < limit
        }

    def holdings(self) -> tuple[Holding, ...]:
        found = []
        for tree in sorted(self._stopped):
            outbox, branch = self._outboxes.get(tree), self._branches.get(tree)
            waiting = () if outbox is None else outbox.items()
            if tree in self._over:
                continue
            found.append(Holding(tree, (), 0, waiting) if branch is None else branch.holding(waiting))
        return tuple(found)

    def fetch(self, decision: Decision) -> bool:
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
        return not wanted

    def install(self, now: Nanoseconds, decision: Decision) -> None:
        for ending in decision.endings:
            branch, outbox = self._branches.pop(ending.tree, None), self._outboxes.pop(ending.tree, None)
            if branch is not None:
                branch.finish(ending)
            if outbox is not None:
                for item in ending.items:
                    if item.sender == self._site:
                        outbox.forget(item.number)
                self._repeated += outbox.repeated
        self._adopt(now, decision)

    def begin_anew(self, now: Nanoseconds) -> None:
        """The others have gone on without this site: forget everything, and ask to be let in."""
        self._be_absent()
        self._spells += 1
        self._lost += self._waiting()
        self._life = (self._life[0], self._life[1] + 1)
        self._leave_behind()
        self._layout = None
        self._branches.clear()
        self._outboxes.clear()
        self._stopped.clear()
        self._over.clear()
        self._council.forget(now)
        self._council.beat(now)

    def _leave_behind(self) -> None:
        """Nobody counts any more for a site that begins anew."""
        for site in sorted(() if self._layout is None else self._layout.lives):
            if site != self._site:
                self._effects.append(Vanished(site, "This site was left out and begins anew."))

    def _found(self, now: Nanoseconds) -> None:
        """Nobody is there: begin a cluster alone."""
        seat = Seat(self._site, self._life, self._serial, tuple(sorted(self._wanted)))
        self._adopt(now, first_decision((*self._life, self._site), (seat,), self._knobs.shape))

    def _adopt(self, now: Nanoseconds, decision: Decision) -> None:
        """A version of the table is in force here."""
        before = self._layout
        layout = self._layout = layout_of(decision, self._knobs.shape, bypass=self._knobs.bypass)
        self._changes += before is not None
        self._stopped.clear()
        going_on = layout.all_trees()
        self._over &= going_on
        self._branches = {tree: branch for tree, branch in self._branches.items() if tree in going_on}
        self._outboxes = {tree: outbox for tree, outbox in self._outboxes.items() if tree in going_on}
        self._told = None
        self._be_present()
        self._tell_company(before, layout)
        for tree in layout.trees.values():
            if self._site in tree.node_of and tree.id not in self._branches:
                if not self._branches:
                    self._ledger.forget(lambda sender: sender not in layout.lives)
                self._branches[tree.id] = Branch(
                    self._site, tree, self._outbox(tree.id), self._ledger, self._knobs, self._effects
                )
        self._council.settle(now, layout)
        self._take_turns(now)

    def _tell_company(self, before: Layout | None, layout: Layout) -> None:
        known = {} if before is None else before.lives
        for site in sorted({*known, *layout.lives} - {self._site}):
            if known.get(site) == layout.lives.get(site):
                continue
            if site in known:
                self._effects.append(Vanished(site, "It was silent, or has begun anew."))
            if site in layout.lives:
                self._effects.append(Appeared(site))

    def _tell_groups(self, groups: frozenset[Group]) -> None:
        self._effects += [Left(group) for group in sorted(self._groups - groups)]
        self._effects += [Joined(group) for group in sorted(groups - self._groups)]
        self._groups = groups

    # Bodies that somebody lacks

    def _give(self, _now: Nanoseconds, sender: Site, pdu: Want) -> None:
        for wanted, number in pdu.items:
            batch = self._find(pdu.tree, wanted, number)
            if batch is not None and batch.bodies is not None:
                name = (batch.sender, batch.incarnation, batch.number, batch.group)
                self._effects.append(Send(sender, Copy(pdu.tree, *name, batch.bodies)))

    def _find(self, tree: TreeId, sender: Site, number: int) -> Batch | None:
        branch, outbox = self._branches.get(tree), self._outboxes.get(tree)
        found = outbox.find(number) if sender == self._site and outbox is not None else None
        if found is None and branch is not None:
            found = branch.find(sender, number)
        return found

    def _take_copy(self, now: Nanoseconds, _sender: Site, pdu: Copy) -> None:
        branch, decision = self._branches.get(pdu.tree), self._council.pending
        if branch is None:
            return
        batch = Batch(pdu.sender, pdu.incarnation, pdu.number, len(pdu.bodies), pdu.group, pdu.bodies)
        if pdu.tree not in self._stopped:
            branch.body(now, batch)
        for ending in () if decision is None else decision.endings:
            if decision is not None and ending.tree == pdu.tree and branch.lacks(ending, pdu):
                branch.keep(batch)
                if self._has_all(decision):
                    self._council.have_fetched(now)

    def _has_all(self, decision: Decision) -> bool:
        return not any(
            self._branches[ending.tree].lacking(ending)
            for ending in decision.endings
            if ending.tree in self._branches
        )

    def _take_part(self, now: Nanoseconds, sender: Site, pdu: Part) -> None:
        pieces = self._parts.take(sender, pdu)
        if pieces is not None:
            whole = put_together(pdu.kind, pdu.name, pieces)
            if whole is None or not makes_sense(whole):
                self.ignored += 1
            else:
                self._hear(now, sender, whole)

    def _hear(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        self._council.receive(now, sender, pdu)

    _words: ClassVar[dict[type[Pdu], Callable[["Member", Nanoseconds, Site, Any], None]]] = {
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
        Copy: _take_copy,
        Word: _hear,
        Progress: _hear,
        Goodbye: _hear,
        Prepare: _hear,
        Report: _hear,
        Accept: _hear,
        Accepted: _hear,
        Refuse: _hear,
        Install: _hear,
        Part: _take_part,
    }
