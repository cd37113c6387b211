"""A site: its trees, its membership, and the groups that it wants to be in."""

from collections import Counter
from collections.abc import Callable
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
    SetTimer,
    Vanished,
)
from antiphon.core.fields import LONGEST_NAME
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import Start
from antiphon.core.packing import Packed
from antiphon.core.protocol import PeerReport
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.metagroups.context import Context
from antiphon.protocols.metagroups.membership import MembershipService
from antiphon.protocols.metagroups.parts import Reassembly, reassemble
from antiphon.protocols.metagroups.pdus import (
    Accept,
    AcceptChange,
    Accepted,
    AskMoves,
    Body,
    Copy,
    Decided,
    Decision,
    Entry,
    Goodbye,
    Heartbeat,
    Held,
    Install,
    Leave,
    Leaving,
    Mark,
    MetaGroupsConfiguration,
    Moved,
    Moves,
    Part,
    PlaceMove,
    Prepare,
    Progress,
    Query,
    Refuse,
    Report,
    Request,
    SiteRecord,
    Taken,
    Token,
    TokenRequest,
    Turn,
    Turned,
    Want,
)
from antiphon.protocols.metagroups.peers import PeerTable
from antiphon.protocols.metagroups.site_trees import SiteTrees
from antiphon.protocols.metagroups.validation import makes_sense
from antiphon.protocols.metagroups.view import NO_FOUNDER, View, check_room, first_decision, view_of

CHANGING = "The members of the group are being agreed on anew; try again."


class Member:
    """The whole protocol of a site, except the validation of what an application hands in."""

    def __init__(
        self,
        site: Site,
        records: tuple[SiteRecord, ...],
        configuration: MetaGroupsConfiguration,
        random: Random,
    ) -> None:
        self.ignored = 0
        self._site = site
        self._records = records
        self._configuration = configuration
        self._effects: list[Effect] = []
        self._wanted = {group for record in records if record.site == site for group in record.groups}
        check_room(None, site, self._wanted)
        self._serial = 1
        self._next_number = 0
        self._present = False
        self._is_new = False
        """Whether neither its presence nor an absence was ever recorded."""
        self._reassembly = Reassembly()
        context = Context(site, configuration, self._effects)
        self._trees = SiteTrees(context)
        self._peers = PeerTable(site, configuration.suspect_ns)
        self._membership = MembershipService(context, self, self._trees, self._peers, random)
        self._changes = self._lost = self._restarts = self._moves = 0

    def effects(self) -> list[Effect]:
        found = list(self._effects)
        self._effects.clear()
        return found

    def figures(self) -> dict[str, int]:
        trees, view = self._trees, self._trees.view
        return {
            "ignored": self.ignored,
            "version": 0 if view is None else view.version,
            "sites": 0 if view is None else len(view.sessions),
            "trees": 0 if view is None else len(view.trees),
            "kept": trees.kept(),
            "waiting": trees.waiting(),
            "repeated": trees.repeated(),
            "changes": self._changes,
            "moves": self._moves,
            "stops": trees.stops,
            "attempts": self._membership.attempts,
            "begun_anew": self._restarts,
            "lost": self._lost,
        }

    def incarnation_of(self, site: Site) -> int:
        """The latest one that the view lists or the site has announced."""
        if site == self._site:
            return self._trees.session[0]
        view = self._trees.view
        listed = 0 if view is None or site not in view.sessions else view.sessions[site][0]
        return max(listed, self._peers.incarnation_of(site))

    def peers(self, _now: Nanoseconds) -> dict[Site, PeerReport]:
        """For each site, its last sign of life; for primary sites, own messages that wait for them too."""
        view, waiting = self._trees.view, list(self._trees.waiting_for())
        full = len(waiting) >= self._configuration.admission
        lags: Counter[Site] = Counter()
        for site, messages in waiting:
            lags[site] += messages
        return {
            site: PeerReport(
                lags.get(site), self._peers.last_heard_ns(site), None, None, full and site == waiting[0][0]
            )
            for site in ([] if view is None else list(view.sessions))
            if site != self._site
        }

    # Inputs

    def start(self, now: Nanoseconds, event: Start) -> None:
        self._trees.begin((event.incarnation, 0))
        self._next_number = event.next_number
        self._is_new = not event.returning
        self._effects.append(SetTimer("heartbeat", self._configuration.heartbeat_ns))
        self._membership.reset(now)
        if event.incarnation:
            self._membership.send_heartbeat(now)
            return
        self._present = True
        records = tuple(sorted(self._records, key=lambda record: record.site))
        self._adopt(now, first_decision(NO_FOUNDER, records, self._configuration.shape))

    def admit(self, now: Nanoseconds, group: Group, bodies: Packed) -> None:
        view = self._trees.view
        tree = None if view is None else view.tree_to(group)
        reason = None
        if view is None:
            reason = "This site is in no cluster yet; try again."
        elif tree is None:
            reason = f"The group {group} has no members now."
        elif tree.id in self._trees.stopped:
            reason = CHANGING
        elif self._trees.moves.is_behind:
            reason = CHANGING
            self._membership.ask_for_moves(now, view)
        elif self._trees.waiting() >= self._configuration.admission:
            reason = "As many batches as are admitted at once are not stable yet."
        if reason is not None or tree is None:
            self._effects.append(Rejected(reason or CHANGING))
            return
        number, self._next_number = self._next_number, self._next_number + len(bodies)
        members = self._trees.members(tree, group)
        self._effects.append(Admitted(number, len(bodies), bodies.size, members, group))
        self._trees.admit(tree.id, number, group, bodies)
        self._end(now)

    def join(self, now: Nanoseconds, group: Group) -> None:
        if group in self._wanted:
            if group in self._trees.groups:
                self._effects.append(Joined(group))
            return
        wanted = self._wanted | {group}
        check_room(self._trees.view, self._site, wanted)
        self._request(now, wanted)

    def leave(self, now: Nanoseconds, group: Group) -> None:
        if group not in self._trees.groups:
            self._effects.append(Left(group))
        if group in self._wanted:
            self._request(now, self._wanted - {group})

    def _request(self, now: Nanoseconds, wanted: set[Group]) -> None:
        self._wanted = wanted
        self._serial += 1
        self._membership.request_change(now)

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        handler = self._handlers.get(type(pdu))
        is_named = sender != self._site and 0 < len(sender) <= LONGEST_NAME
        if handler is None or not is_named or not makes_sense(pdu):
            self.ignored += 1
            return
        handler(self, now, sender, pdu)
        self._end(now)

    def on_timer(self, now: Nanoseconds, name: str) -> None:
        if name == "heartbeat":
            self._effects.append(SetTimer("heartbeat", self._configuration.heartbeat_ns))
            if self._membership.send_heartbeat(now):
                self._found(now)
        elif name == "membership":
            self._membership.on_timer(now)
        else:
            self._trees.on_timer(now, name)
        self._end(now)

    def depart(self, *, for_good: bool) -> None:
        self._be_absent()
        if self._configuration.says_goodbye:
            self._effects.append(Multicast(self._membership.goodbye(for_good=for_good)))

    def come_back(self, now: Nanoseconds) -> None:
        """Continue; if the others have gone on without this site, their answers will show it."""
        self._effects.append(SetTimer("heartbeat", self._configuration.heartbeat_ns))
        self._peers.restart_listening(now)
        self._membership.resume()
        if self._trees.view is not None:
            self._be_present()
        self._membership.send_heartbeat(now)
        self._trees.resume()
        self._end(now)

    def suspect(self, now: Nanoseconds, site: Site) -> None:
        self._peers.suspect(site)
        self._membership.check(now)

    def restore(self, now: Nanoseconds, site: Site) -> None:
        self._peers.on_message(now, site)

    def _end(self, now: Nanoseconds) -> None:
        """What follows any input."""
        if self._trees.hand_over(now):
            self._membership.send_stages(now)
        while self._trees.done:
            self._moves += 1
            self._membership.confirm_move(now, self._trees.done.pop(0))
        self._trees.send(now)

    # Presence

    def _be_absent(self) -> None:
        if self._present:
            self._present = False
            self._effects.append(Absent())

    def _be_present(self) -> None:
        self._is_new = False
        if not self._present:
            self._present = True
            self._effects.append(Present())

    # What the membership service asks of its site

    def heartbeat(self) -> Heartbeat:
        view = self._trees.view
        own = (self._trees.session, self._serial, tuple(sorted(self._wanted)), self._configuration.rules)
        if view is None:
            return Heartbeat(None, 0, *own)
        trees = self._trees
        moves = len(trees.moves) if self._site == view.first else 0
        return Heartbeat(view.decision.origin, view.version, *own, trees.stages(), moves, trees.settled())

    def install(self, now: Nanoseconds, decision: Decision) -> None:
        self._trees.end(decision.endings)
        self._adopt(now, decision)

    def start_new_session(self, now: Nanoseconds) -> None:
        """The others have gone on without this site: forget everything, and ask to be let in.

        A view that others have installed may list a site that is new. That site records an absence, since it
        misses what is sent in that view.
        """
        if self._is_new:
            self._is_new = False
            self._effects.append(Absent())
        self._be_absent()
        self._restarts += 1
        self._lost += self._trees.waiting()
        self._report_all_vanished()
        incarnation, restarts = self._trees.session
        self._trees.begin((incarnation, restarts + 1))
        self._membership.reset(now)
        self._membership.send_heartbeat(now)

    def _report_all_vanished(self) -> None:
        view = self._trees.view
        for site in sorted(() if view is None else view.sessions):
            if site != self._site:
                self._effects.append(Vanished(site, "This site was left out and begins anew."))

    def _found(self, now: Nanoseconds) -> None:
        """Found a cluster of this site alone."""
        session = self._trees.session
        record = SiteRecord(self._site, session, self._serial, tuple(sorted(self._wanted)))
        self._adopt(now, first_decision((*session, self._site), (record,), self._configuration.shape))

    def _adopt(self, now: Nanoseconds, decision: Decision) -> None:
        """Go over to the view of a decision."""
        before = self._trees.view
        view = view_of(decision, self._configuration.shape, bypass=self._configuration.bypass)
        self._changes += before is not None
        self._trees.adopt(view)
        self._be_present()
        self._renew_request(view)
        self._report_changes(before, view)
        self._membership.on_view(now, view)
        self._trees.take_turns(now)

    def _renew_request(self, view: View) -> None:
        """If the view lists other groups under this site's serial, or a later one, request again."""
        own = view.records[self._site]
        if own.serial > self._serial or (own.serial == self._serial and set(own.groups) != self._wanted):
            self._serial = own.serial + 1

    def _report_changes(self, before: View | None, view: View) -> None:
        known = {} if before is None else before.sessions
        left = frozenset[Site]() if before is None else self._peers.left(before)
        for site in sorted({*known, *view.sessions} - {self._site}):
            if known.get(site) == view.sessions.get(site):
                continue
            if site in known:
                reason = "It left." if site in left else "It was silent, or has begun anew."
                self._effects.append(Vanished(site, reason))
            if site in view.sessions:
                self._effects.append(Appeared(site))

    # What others send

    def _on_tree_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if not self._trees.receive(now, sender, pdu):
            self.ignored += 1

    def _on_turn(self, now: Nanoseconds, sender: Site, pdu: Turn) -> None:
        done = self._trees.on_turn(sender, pdu)
        if done is None:
            self.ignored += 1
        elif done and pdu.move not in self._trees.done:
            self._membership.confirm_move(now, pdu.move)

    def _on_turned(self, _now: Nanoseconds, sender: Site, pdu: Turned) -> None:
        self._trees.on_turned(sender, pdu)

    def _on_copy(self, now: Nanoseconds, sender: Site, pdu: Copy) -> None:
        if self._trees.on_copy(now, sender, pdu, self._membership.pending):
            self._membership.on_fetched(now)

    def _on_part(self, now: Nanoseconds, sender: Site, pdu: Part) -> None:
        pieces = self._reassembly.add(sender, pdu)
        if pieces is not None:
            whole = reassemble(pdu.kind, pdu.name, pieces)
            if whole is None or not makes_sense(whole):
                self.ignored += 1
            else:
                self._on_membership_pdu(now, sender, whole)

    def _on_membership_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        self._membership.receive(now, sender, pdu)

    _handlers: ClassVar[dict[type[Pdu], Callable[["Member", Nanoseconds, Site, Any], None]]] = {
        Request: _on_tree_pdu,
        TokenRequest: _on_tree_pdu,
        Taken: _on_tree_pdu,
        Query: _on_tree_pdu,
        Entry: _on_tree_pdu,
        Token: _on_tree_pdu,
        Body: _on_tree_pdu,
        Mark: _on_tree_pdu,
        Held: _on_tree_pdu,
        Want: _on_tree_pdu,
        Copy: _on_copy,
        Heartbeat: _on_membership_pdu,
        Progress: _on_membership_pdu,
        Goodbye: _on_membership_pdu,
        Prepare: _on_membership_pdu,
        Report: _on_membership_pdu,
        Accept: _on_membership_pdu,
        AcceptChange: _on_membership_pdu,
        Accepted: _on_membership_pdu,
        Refuse: _on_membership_pdu,
        Install: _on_membership_pdu,
        Decided: _on_membership_pdu,
        PlaceMove: _on_membership_pdu,
        Leave: _on_membership_pdu,
        Leaving: _on_membership_pdu,
        Moved: _on_membership_pdu,
        Moves: _on_membership_pdu,
        AskMoves: _on_membership_pdu,
        Turn: _on_turn,
        Turned: _on_turned,
        Part: _on_part,
    }
