"""The sequencer: orders requests, repeats what is lost, announces what is stable, recovers the order."""

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from antiphon.core.effects import (
    Absent,
    Admitted,
    Arrived,
    CancelTimer,
    Effect,
    Multicast,
    Present,
    Rejected,
    Send,
    SetTimer,
)
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.core.inputs import Start
from antiphon.core.packing import Packed
from antiphon.core.protocol import PeerReport
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.probe import Probe
from antiphon.protocols.sequencer.log import Entry, Log, Outbox
from antiphon.protocols.sequencer.member_table import Grant, Member, MemberTable
from antiphon.protocols.sequencer.pdus import (
    LARGEST_BATCH_BYTES,
    LATEST_HEARSAY,
    LONGEST_SETBACK,
    NO_POSITION,
    Acknowledge,
    Enquire,
    Heartbeat,
    Join,
    Lacking,
    Leave,
    Ordered,
    Report,
    Request,
    Resume,
    Roster,
    SequencerConfiguration,
)
from antiphon.protocols.sequencer.recovery import Recovered, Recovery

MOST_REPEATED = 8
"""Entries without a receipt that are repeated to a member at once. Raising it costs bursts."""


class SequencerRole:
    """Orders requests or, while `_recovery` is set, learns the order again from the members."""

    def __init__(self, site: Site, members: tuple[Site, ...], configuration: SequencerConfiguration) -> None:
        self.ignored = 0
        self._copies = 0
        self._site = site
        self._others = members[1:]
        self._configuration = configuration
        self._log = Log()
        self._outbox = Outbox(configuration.window, configuration.repeat_ns)
        self._epoch = 0
        self._incarnation = 0
        self._latest_hearsay = 0
        self._later_epoch_ns: Nanoseconds | None = None
        # Members of the epoch that was recovered may go on without a gap up to `_base`.
        self._recovered_epoch = -1
        self._base = 0
        # Whether nothing came before this order: a member that has all of it has missed nothing.
        self._began_here = True
        self._recovery: Recovery | None = None
        self._is_newcomer = False
        self._is_absent = False
        self._table = MemberTable(self._log, configuration)
        self._own_requests = Member(site)
        self._turns: deque[Member] = deque()
        self._multicast_ns = 0
        self._ordered_ns: Nanoseconds = 0
        """When the oldest entry that some member lacks got its place, or a later one."""
        self._due_ns = 0
        self._probe = Probe()
        self._multicast_version = 0
        self._roster_ns = 0
        self._effects: list[Effect] = []

    # Inputs

    def start(self, now: Nanoseconds, event: Start) -> None:
        self._outbox.begin(event.next_number)
        self._epoch = self._incarnation = event.incarnation
        self._latest_hearsay = min(event.incarnation + LONGEST_SETBACK, LATEST_HEARSAY)
        self._log.streams.note(self._site, event.next_number)
        self._table.begin(self._others, now, together=event.incarnation == 0)
        if event.incarnation:
            self._is_absent = event.returning
            self._is_newcomer = not event.returning
            self._recover(now)
        else:
            self._arm_heartbeat(now, self._configuration.heartbeat_ns)

    def admit(self, now: Nanoseconds, bodies: Packed) -> None:
        if self._outbox.full():
            self._effects.append(Rejected("As many messages as the window holds wait for their place."))
            return
        request = self._outbox.take(bodies)
        self._effects.append(Admitted(request.number, len(bodies), bodies.size))
        if self._recovery is None:
            self._enqueue(self._own_requests, request.number, bodies)
            self._progress(now)

    def on_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        act = self._handlers.get(type(pdu))
        if act is None or sender == self._site:
            self.ignored += 1
        else:
            act(self, now, sender, pdu)

    def fire(self, now: Nanoseconds, name: str) -> None:
        if name == "recover" and self._recovery is not None:
            self._effects += self._recovery.tick(now, self._table.suspects())
            self._continue_recovery(now)
        elif name == "heartbeat" and self._recovery is None:
            self._fire_heartbeat(now)

    def depart(self) -> None:
        if not self._is_absent:
            self._is_absent = True
            self._effects.append(Absent())
        self._effects.append(Multicast(Leave(self._epoch, 0)))

    def resume(self, now: Nanoseconds) -> None:
        """The order waited for us; no member's silence counts against it."""
        self._table.excuse_all(now)
        if self._recovery is not None:
            self._effects += self._recovery.begin(now)
            return
        self._be_present()
        self._progress(now)
        self._multicast_heartbeat(now)
        self._arm_heartbeat(now, self._configuration.heartbeat_ns)

    def suspect(self, now: Nanoseconds, site: Site) -> None:
        member = self._table.known.get(site)
        if member is None:
            return
        member.suspected = True
        self._exclude(now, member, "The failure detector suspects it.")
        if self._recovery is not None:
            self._effects += self._recovery.tick(now, self._table.suspects())
            self._continue_recovery(now)

    def restore(self, now: Nanoseconds, site: Site) -> None:
        member = self._table.known.get(site)
        if member is not None:
            self._note_alive(now, member)

    def incarnation_of(self, site: Site) -> int:
        if site == self._site:
            return self._epoch
        member = self._table.known.get(site)
        return 0 if member is None else member.key[0]

    def effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def peers(self, _now: Nanoseconds) -> dict[Site, PeerReport]:
        """How far each member is behind in the order; the slowest holds it up once the window is full."""
        log, table = self._log, self._table
        full = log.position - table.slowest >= self._configuration.order_window
        return {
            member.site: PeerReport(
                sum(
                    len(entry.bodies)
                    for place in range(max(0, member.acknowledged), log.position)
                    if (entry := log.entries.get(place)) is not None
                ),
                member.heard_ns,
                member.round_trip_ns,
                member.asked,
                full and member.acknowledged == table.slowest,
            )
            for member in list(table.view.values())
        }

    def figures(self) -> dict[str, int]:
        return {"ignored": self.ignored, "copies": self._copies, **self._log.figures()}

    # Members

    def _find_member(
        self, now: Nanoseconds, sender: Site, pdu: Request | Acknowledge | Enquire
    ) -> Member | None:
        """The sender, if it speaks in the present epoch; its new position is noted. Else None."""
        if pdu.epoch > self._epoch:
            if sender in self._table.known:
                self._begin_later_epoch(now, pdu.epoch)
            else:
                self.ignored += 1
        if pdu.epoch != self._epoch:
            return None
        if self._recovery is not None:
            return None
        member = self._table.known.get(sender) or self._readmit(now, sender, pdu.incarnation)
        if member is None or member.left or pdu.incarnation != member.key[0]:
            return None
        position = pdu.position
        if position > self._log.position:
            self.ignored += 1
            return None
        if not member.in_view:
            member.acknowledged = max(member.acknowledged, position)
            self._note_alive(now, member)
            return member
        member.heard_ns = now
        if position > member.acknowledged:
            member.progress_ns = now
            round_trip_ns = self._probe.held(now, member.probed, position)
            if round_trip_ns is not None:
                member.probed, member.round_trip_ns = self._probe.serial, round_trip_ns
            self._table.advance(member, position)
        return member

    def _readmit(self, now: Nanoseconds, sender: Site, incarnation: int) -> Member | None:
        """A site that knows the present epoch was let into it; if we forgot it, it is a member again."""
        member = self._table.meet(now, sender)
        if member is not None and member.may_begin(incarnation):
            member.key = (incarnation, 0)
        return member

    def _note_alive(self, now: Nanoseconds, member: Member) -> None:
        """A member is alive: it enters the view unless it has left, or lacks what is stable."""
        member.heard_ns = now
        member.suspected = False
        if member.acknowledged == self._log.position:
            member.lagging = False
        able = not member.left and not member.lagging and not member.in_view
        if able and max(0, self._log.stable) <= member.acknowledged and self._recovery is None:
            member.progress_ns = now
            self._effects += self._table.include(member)

    def _exclude(self, now: Nanoseconds, member: Member, reason: str) -> None:
        self._effects += self._table.exclude(member, reason)
        if self._recovery is None:
            self._progress(now)

    def _begin_later_epoch(self, now: Nanoseconds, epoch: int) -> None:
        """A member knows a later epoch than ours, since a clock went back: go on in a later one still.

        Two orders must never share an epoch. Our order goes on, and its members take up the new epoch; they
        get `recovery_ns` for that before the next one.
        """
        if epoch <= self._epoch:
            return
        is_early = (
            self._later_epoch_ns is not None and now - self._later_epoch_ns < self._configuration.recovery_ns
        )
        if epoch > self._latest_hearsay or (is_early and self._recovery is None):
            self.ignored += 1
            return
        self._later_epoch_ns = now
        self._recovered_epoch, self._base = self._epoch, self._log.position
        self._epoch = epoch + 1
        if self._recovery is not None:
            self._recover(now)
        else:
            self._multicast_heartbeat(now)

    # Requests

    def _on_request(self, now: Nanoseconds, sender: Site, pdu: Request) -> None:
        if pdu.first > pdu.number or not _fits(pdu):
            self.ignored += 1
            return
        member = self._find_member(now, sender, pdu)
        if member is not None:
            if pdu.first > self._log.streams.get(sender, 0):
                self._log.streams.note(sender, pdu.first)
            self._enqueue(member, pdu.number, pdu.bodies)
            self._progress(now)

    def _enqueue(self, member: Member, number: int, bodies: Packed) -> None:
        """Keep a request without a place, and queue its sender for a turn if it is the next one."""
        expected = self._log.streams.get(member.site, 0)
        if number < expected:
            return
        # Our own requests are never repeated, and the window bounds them.
        self._table.enqueue(member, number, bodies, always=number == expected or member is self._own_requests)
        if number == expected and not member.in_line:
            member.in_line = True
            self._turns.append(member)

    def _on_enquire(self, now: Nanoseconds, sender: Site, pdu: Enquire) -> None:
        member = self._find_member(now, sender, pdu)
        if member is None:
            return
        expected = self._log.streams.get(sender, 0)
        lacking = [number for number in pdu.numbers if number >= expected and number not in member.pending]
        # Only requests with room here are asked for; the next one always has room.
        room = max(int(expected in lacking), self._table.room(member))
        if lacking and room:
            answer = Lacking(self._epoch, member.key[0], tuple(sorted(lacking)[:room]))
            self._effects.append(Send(sender, answer))
        self._progress(now)

    # The order

    def _progress(self, now: Nanoseconds) -> None:
        """Deliver, declare stable and order what can be."""
        log, table = self._log, self._table
        if table.view:
            # We deliver what at least one more member holds, so that our crash cannot take it along.
            if table.held > log.delivered:
                log.deliver(table.held, self._effects)
            if table.slowest > log.stable:
                log.release(min(table.slowest, log.delivered), self._effects)
            if self._turns:
                self._order(now, table.slowest + self._configuration.order_window)
            return
        self._order(now, log.position + self._configuration.order_window)
        log.deliver(log.position, self._effects)
        log.release(log.delivered, self._effects)

    def _order(self, now: Nanoseconds, limit: int) -> None:
        """Give places in turn, while the slowest member of the view is within the window."""
        log, line = self._log, self._turns
        while line and log.position < limit:
            member = line.popleft()
            number = log.streams.get(member.site, 0)
            bodies = self._table.dequeue(member, number)
            if bodies is not None:
                incarnation = self._incarnation if member is self._own_requests else member.key[0]
                self._assign(now, member, Entry(member.site, number, bodies, incarnation))
            if number + len(bodies or ()) in member.pending:
                line.append(member)
            else:
                member.in_line = False

    def _assign(self, now: Nanoseconds, member: Member, entry: Entry) -> None:
        log = self._log
        if member.placed.has(entry.incarnation, entry.number, entry.end):
            self.ignored += 1
            log.streams.note(entry.sender, entry.end)
            return
        member.placed.note(entry.incarnation, entry.number, entry.end)
        place = log.position
        if self._table.slowest >= place:
            self._ordered_ns = now
        log.append(entry)
        sender, number, bodies, _ = entry
        if sender == self._site:
            self._outbox.settle(now, log.streams[sender])
        else:
            self._effects.append(Arrived(sender, number, len(bodies)))
        if self._table.view:
            self._probe.sent(now, log.position)
            self._multicast_ns = now
            witness = self._table.witness
            self._effects.append(Multicast(Ordered(self._epoch, place, log.stable, witness, *entry)))

    def _on_acknowledge(self, now: Nanoseconds, sender: Site, pdu: Acknowledge) -> None:
        member = self._find_member(now, sender, pdu)
        if member is None:
            return
        member.asked += len(pdu.missing)
        for place in pdu.missing:
            self._repeat(sender, place)
        if pdu.roster != self._table.version:
            self._send_roster(now, member)
        self._progress(now)

    # Announcements

    def _fire_heartbeat(self, now: Nanoseconds) -> None:
        """Check the members, make progress, and announce the end of the order unless just done."""
        knobs = self._configuration
        if now - self._due_ns > knobs.suspect_after_ns // 2:
            self._table.excuse_all(now)  # we were paused ourselves
        self._effects += self._table.check(now)
        self._progress(now)
        if knobs.receipts:
            self._repeat_without_receipt(now)
        if now - self._multicast_ns >= knobs.heartbeat_ns:
            self._multicast_heartbeat(now)
        if self._multicast_version != self._table.version:
            self._multicast_version, self._roster_ns = self._table.version, now
            self._effects.append(Multicast(self._roster()))
        # Heartbeats are rarer while everything is stable.
        settled = self._log.stable == self._log.position
        idle_ns = max(knobs.heartbeat_ns, knobs.keepalive_ns)
        self._arm_heartbeat(now, idle_ns if settled else knobs.heartbeat_ns)

    def _repeat_without_receipt(self, now: Nanoseconds) -> None:
        """Repeat entries to members that have acknowledged nothing new for `repeat_ns`."""
        log = self._log
        for member in self._table.view.values():
            since_ns = max(member.progress_ns, member.repeated_ns, self._ordered_ns)
            if member.acknowledged >= log.position or now - since_ns < self._configuration.repeat_ns:
                continue
            member.repeated_ns = now
            for place in range(member.acknowledged, min(log.position, member.acknowledged + MOST_REPEATED)):
                self._repeat(member.site, place)

    def _repeat(self, to: Site, place: int) -> None:
        entry = self._log.entries.get(place)
        if entry is not None:
            again = Ordered(self._epoch, place, self._log.stable, self._table.witness, *entry)
            self._effects.append(Send(to, again))
            self._copies += 1

    def _arm_heartbeat(self, now: Nanoseconds, pause_ns: Nanoseconds) -> None:
        self._due_ns = now + pause_ns
        self._effects.append(SetTimer("heartbeat", pause_ns))

    def _multicast_heartbeat(self, now: Nanoseconds) -> None:
        self._multicast_ns = now
        heartbeat = Heartbeat(self._epoch, self._log.position, self._log.stable, self._table.witness)
        self._effects.append(Multicast(heartbeat))

    def _roster(self) -> Roster:
        table = self._table
        return Roster(self._epoch, table.version, tuple(table.view), dict(table.exclusions))

    def _send_roster(self, now: Nanoseconds, member: Member) -> None:
        """Send the roster to a member that lacks it, but leave it time to take note."""
        pause_ns = self._configuration.keepalive_ns
        if now - max(member.told_ns, self._roster_ns) >= pause_ns:
            member.told_ns = now
            self._effects.append(Send(member.site, self._roster()))

    # Joining and leaving

    def _on_join(self, now: Nanoseconds, sender: Site, pdu: Join) -> None:
        latest = max(pdu.promised, pdu.epoch)
        self._begin_later_epoch(now, latest)
        if self._recovery is not None or latest > self._epoch:
            return
        member = self._table.meet(now, sender)
        if member is not None:
            self._let_in(now, member, pdu, pdu.epoch)
            self._progress(now)

    def _let_in(self, now: Nanoseconds, member: Member, pdu: Join | Report, epoch: int) -> None:
        """Let a member in: at its own position if we keep all that it lacks, else at an end of the order."""
        key = (pdu.incarnation, pdu.attempt)
        grant = member.grant
        if key < member.key or not member.may_begin(pdu.incarnation):
            return
        if grant is not None and key == grant.key and member.acknowledged > grant.position:
            return  # a late copy: the member takes part already
        if key[0] > member.key[0]:
            self._effects += self._table.exclude(member, "It began anew.")
        self._expect_from(member, pdu, anew=grant is None or key > grant.key)
        if grant is None or key != grant.key or grant.position < self._log.stable:
            grant = member.grant = self._grant(key, epoch, pdu.position, newcomer=pdu.newcomer)
            member.acknowledged = grant.position
            if not grant.kept:
                member.since = grant.position
            if member.in_view:
                self._effects += self._table.include(member)  # at its new position
        if grant.kept:
            self._correct_stream(member.site, grant.position, pdu.first)
        member.key = key
        member.left = member.lagging = False
        self._note_alive(now, member)
        answer = Resume(
            self._epoch, *key, grant.position, self._log.stable, grant.kept, grant.whole, grant.streams
        )
        self._effects.append(Send(member.site, answer))

    def _expect_from(self, member: Member, pdu: Join | Report, *, anew: bool) -> None:
        """Expect a member's messages from the number that it names."""
        streams = self._log.streams
        if pdu.position == NO_POSITION and anew:
            # It has not taken part yet, so none of its numbers has a place, also if it starts from 0 again.
            self._table.clear_queue(member)
            streams.note(member.site, pdu.first)
        elif pdu.first > streams.get(member.site, 0):
            streams.note(member.site, pdu.first)

    def _correct_stream(self, site: Site, position: int, first: int) -> None:
        """The numbers of a member that goes on without a gap overrule what others reported of them."""
        number = self._log.next_of(site, position, first)
        if number < self._log.streams.get(site, 0):
            self._log.streams.note(site, number)

    def _grant(self, key: tuple[int, int], epoch: int, position: int, *, newcomer: bool) -> Grant:
        log = self._log
        known_order = epoch in (self._epoch, self._recovered_epoch)
        reached = log.position if epoch == self._epoch else self._base
        if position >= 0 and not known_order:
            self._began_here = False  # there was another order before
        if known_order and log.stable <= position <= reached:
            return Grant(key, position, kept=True, whole=False, streams={})
        if newcomer and log.kept_from == 0:
            return Grant(key, 0, kept=False, whole=self._began_here, streams={})
        whole = newcomer and self._began_here and log.position == 0
        return Grant(key, log.position, kept=False, whole=whole, streams=dict(log.streams))

    def _on_leave(self, now: Nanoseconds, sender: Site, pdu: Leave) -> None:
        member = self._table.known.get(sender)
        if member is not None and (pdu.incarnation, pdu.attempt) >= member.key:
            member.left = True
            self._exclude(now, member, "It left.")

    # A sequencer that lost its memory

    def _recover(self, now: Nanoseconds) -> None:
        self._recovery = Recovery(self._epoch, self._others, self._configuration)
        self._effects += self._recovery.begin(now)

    def _answered(self, now: Nanoseconds, sender: Site, pdu: Report | Ordered) -> None:
        """An answer to a recovery; a late one is dropped, since the member will join."""
        recovery = self._recovery
        if recovery is None or pdu.epoch != self._epoch:
            return
        if isinstance(pdu, Report):
            if not recovery.makes_sense(pdu):
                self.ignored += 1
                return
            latest = max(pdu.promised, pdu.order_epoch + 1)
            if latest > self._epoch:
                self._begin_later_epoch(now, latest)
                return
        elif not _fits(pdu):
            self.ignored += 1
            return
        self._effects += recovery.on_answer(now, sender, pdu)
        self._continue_recovery(now)

    def _continue_recovery(self, now: Nanoseconds) -> None:
        assert self._recovery is not None
        recovered = self._recovery.outcome()
        if recovered is not None:
            self._recovery = None
            self._adopt(now, recovered)

    def _adopt(self, now: Nanoseconds, recovered: Recovered) -> None:
        """Go on with the recovered order in a new epoch; our own spell of presence begins at its end."""
        log = self._log
        first = self._outbox.first
        log.jump(recovered.position, recovered.stable, recovered.streams)
        log.streams.note(self._site, first)
        log.entries.update(recovered.entries)
        log.kept_from = recovered.stable
        self._recovered_epoch, self._base = recovered.epoch, recovered.position
        # Members that held something of the order have seen more of it than newcomers will.
        self._began_here = self._is_newcomer and recovered.epoch < 0
        if self._is_newcomer and recovered.position and not self._is_absent:
            self._is_absent = True
            self._effects.append(Absent())
        self._effects.append(CancelTimer("recover"))
        self._be_present()
        for site, report in recovered.reports.items():
            member = self._table.meet(now, site)
            if member is not None:
                self._let_in(now, member, report, report.order_epoch)
        for number, request in self._outbox.waiting.items():
            self._enqueue(self._own_requests, number, request.bodies)
        self._progress(now)
        self._multicast_heartbeat(now)
        self._arm_heartbeat(now, self._configuration.heartbeat_ns)

    def _be_present(self) -> None:
        if self._is_absent or self._is_newcomer:
            self._is_absent = self._is_newcomer = False
            self._effects.append(Present())

    # Functions, not bound methods, which would keep a member alive by a reference to itself.
    _handlers: ClassVar[dict[type, Callable[["SequencerRole", Nanoseconds, Site, Any], None]]] = {
        Request: _on_request,
        Acknowledge: _on_acknowledge,
        Enquire: _on_enquire,
        Join: _on_join,
        Leave: _on_leave,
        Report: _answered,
        Ordered: _answered,
    }


def _fits(pdu: Request | Ordered) -> bool:
    """Whether a batch fits an `Ordered` PDU, and leaves its sender numbers for later messages."""
    return pdu.number + len(pdu.bodies) < NUMBER_LIMIT and len(pdu.bodies.wire()) <= LARGEST_BATCH_BYTES
