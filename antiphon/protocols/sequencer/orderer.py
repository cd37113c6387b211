"""The sequencer itself: gives places, repeats what is lost, tells what is stable, recovers the order."""

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
from antiphon.protocols.sequencer.members import Grant, Member, Members
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


class Orderer:
    """Orders (`_recovery` is None), or gathers from the members what the order was."""

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
        self._outdone_ns: Nanoseconds | None = None
        # An earlier epoch's members may go on without a gap up to `_base`, if theirs was the order recovered.
        self._recovered_epoch = -1
        self._base = 0
        # Whether the order began here with nothing before it, so that who has all of it has missed nothing.
        self._whole = True
        self._recovery: Recovery | None = None
        self._newcomer = False
        self._absent = False
        self._members = Members(self._log, configuration)
        self._own = Member(site)
        self._line: deque[Member] = deque()
        self._multicast_ns = 0
        self._due_ns = 0
        self._probe = Probe()
        self._told_version = 0
        self._told_roster_ns = 0
        self._effects: list[Effect] = []

    # Inputs

    def start(self, now: Nanoseconds, event: Start) -> None:
        self._outbox.begin(event.next_number)
        self._epoch = self._incarnation = event.incarnation
        self._latest_hearsay = min(event.incarnation + LONGEST_SETBACK, LATEST_HEARSAY)
        self._log.streams.note(self._site, event.next_number)
        self._members.begin(self._others, now, together=event.incarnation == 0)
        if event.incarnation:
            self._absent = event.returning
            self._newcomer = not event.returning
            self._recover(now)
        else:
            self._tick_after(now, self._configuration.heartbeat_ns)

    def admit(self, now: Nanoseconds, bodies: Packed) -> None:
        if self._outbox.full():
            self._effects.append(Rejected("As many messages as the window holds wait for their place."))
            return
        request = self._outbox.take(bodies)
        self._effects.append(Admitted(request.number, len(bodies), bodies.size))
        if self._recovery is None:
            self._queue(self._own, request.number, bodies)
            self._progress(now)

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        act = self._words.get(type(pdu))
        if act is None or sender == self._site:
            self.ignored += 1
        else:
            act(self, now, sender, pdu)

    def fire(self, now: Nanoseconds, name: str) -> None:
        if name == "recover" and self._recovery is not None:
            self._effects += self._recovery.tick(now, self._members.suspects())
            self._continue_recovery(now)
        elif name == "heartbeat" and self._recovery is None:
            self._tick(now)

    def depart(self) -> None:
        if not self._absent:
            self._absent = True
            self._effects.append(Absent())
        self._effects.append(Multicast(Leave(self._epoch, 0)))

    def come_back(self, now: Nanoseconds) -> None:
        """The order waited for us; nobody's silence counts against him."""
        self._members.forgive(now)
        if self._recovery is not None:
            self._effects += self._recovery.begin(now)
            return
        self._be_present()
        self._progress(now)
        self._announce(now)
        self._tick_after(now, self._configuration.heartbeat_ns)

    def suspect(self, now: Nanoseconds, site: Site) -> None:
        member = self._members.known.get(site)
        if member is None:
            return
        member.suspected = True
        self._dismiss(now, member, "The failure detector suspects it.")
        if self._recovery is not None:
            self._effects += self._recovery.tick(now, self._members.suspects())
            self._continue_recovery(now)

    def restore(self, now: Nanoseconds, site: Site) -> None:
        member = self._members.known.get(site)
        if member is not None:
            self._hear(now, member)

    def incarnation_of(self, site: Site) -> int:
        if site == self._site:
            return self._epoch
        member = self._members.known.get(site)
        return 0 if member is None else member.key[0]

    def effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def peers(self, _now: Nanoseconds) -> dict[Site, PeerReport]:
        """How far each member is behind in the order; the slowest holds it up once the window is full."""
        log, members = self._log, self._members
        full = log.position - members.slowest >= self._configuration.order_window
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
                full and member.acknowledged == members.slowest,
            )
            for member in list(members.counted.values())
        }

    def figures(self) -> dict[str, int]:
        return {"ignored": self.ignored, "copies": self._copies, **self._log.figures()}

    # Who speaks

    def _recognise(
        self, now: Nanoseconds, sender: Site, pdu: Request | Acknowledge | Enquire
    ) -> Member | None:
        """The member that says this in the present epoch, its new position noted; else it says nothing."""
        if pdu.epoch > self._epoch:
            if sender in self._members.known:
                self._outdo(now, pdu.epoch)
            else:
                self.ignored += 1
        if pdu.epoch != self._epoch:
            return None
        if self._recovery is not None:
            return None
        member = self._members.known.get(sender) or self._remember(now, sender, pdu.incarnation)
        if member is None or member.left or pdu.incarnation != member.key[0]:
            return None
        position = pdu.position
        if position > self._log.position:
            self.ignored += 1
            return None
        if not member.counted:
            member.acknowledged = max(member.acknowledged, position)
            self._hear(now, member)
            return member
        member.heard_ns = now
        if position > member.acknowledged:
            member.progress_ns = now
            round_trip_ns = self._probe.held(now, member.probed, position)
            if round_trip_ns is not None:
                member.probed, member.round_trip_ns = self._probe.serial, round_trip_ns
            self._members.advance(member, position)
        return member

    def _remember(self, now: Nanoseconds, sender: Site, incarnation: int) -> Member | None:
        """Whoever knows the present epoch was let into it, and if we forgot that, it is a member again."""
        member = self._members.meet(now, sender)
        if member is not None and member.may_begin(incarnation):
            member.key = (incarnation, 0)
        return member

    def _hear(self, now: Nanoseconds, member: Member) -> None:
        """It is there: it counts unless it has left, or was left behind."""
        member.heard_ns = now
        member.suspected = False
        if member.acknowledged == self._log.position:
            member.lagging = False
        able = not member.left and not member.lagging and not member.counted
        if able and max(0, self._log.stable) <= member.acknowledged and self._recovery is None:
            member.progress_ns = now
            self._effects += self._members.count(member)

    def _dismiss(self, now: Nanoseconds, member: Member, reason: str) -> None:
        self._effects += self._members.dismiss(member, reason)
        if self._recovery is None:
            self._progress(now)

    def _outdo(self, now: Nanoseconds, epoch: int) -> None:
        """Someone knows a later epoch than ours, since a clock went back: go on in a later one still.

        Two orders must never share an epoch. Ours goes on; who follows it takes it up in the new epoch, for
        which there must be time until the next.
        """
        if epoch <= self._epoch:
            return
        is_early = self._outdone_ns is not None and now - self._outdone_ns < self._configuration.recovery_ns
        if epoch > self._latest_hearsay or (is_early and self._recovery is None):
            self.ignored += 1
            return
        self._outdone_ns = now
        self._recovered_epoch, self._base = self._epoch, self._log.position
        self._epoch = epoch + 1
        if self._recovery is not None:
            self._recover(now)
        else:
            self._announce(now)

    # Requests

    def _requested(self, now: Nanoseconds, sender: Site, pdu: Request) -> None:
        if pdu.first > pdu.number or not _fits(pdu):
            self.ignored += 1
            return
        member = self._recognise(now, sender, pdu)
        if member is not None:
            if pdu.first > self._log.streams.get(sender, 0):
                self._log.streams.note(sender, pdu.first)
            self._queue(member, pdu.number, pdu.bodies)
            self._progress(now)

    def _queue(self, member: Member, number: int, bodies: Packed) -> None:
        """Keep a request whose turn has not been, and put its sender in line if it is its turn."""
        expected = self._log.streams.get(member.site, 0)
        if number < expected:
            return
        # Our own requests are never sent again, and the window bounds them.
        self._members.enqueue(member, number, bodies, always=number == expected or member is self._own)
        if number == expected and not member.in_line:
            member.in_line = True
            self._line.append(member)

    def _enquired(self, now: Nanoseconds, sender: Site, pdu: Enquire) -> None:
        member = self._recognise(now, sender, pdu)
        if member is None:
            return
        expected = self._log.streams.get(sender, 0)
        lacking = [number for number in pdu.numbers if number >= expected and number not in member.pending]
        # What would find no room is not asked for; the one expected always finds it.
        room = max(int(expected in lacking), self._members.room(member))
        if lacking and room:
            answer = Lacking(self._epoch, member.key[0], tuple(sorted(lacking)[:room]))
            self._effects.append(Send(sender, answer))
        self._progress(now)

    # The order

    def _progress(self, now: Nanoseconds) -> None:
        """Whatever can be delivered, called stable and ordered now."""
        log, members = self._log, self._members
        if members.counted:
            # We deliver what at least one more member holds, so that our crash cannot take it along.
            if members.held > log.delivered:
                log.deliver(members.held, self._effects)
            if members.slowest > log.stable:
                log.release(min(members.slowest, log.delivered), self._effects)
            if self._line:
                self._order(now, members.slowest + self._configuration.order_window)
            return
        self._order(now, log.position + self._configuration.order_window)
        log.deliver(log.position, self._effects)
        log.release(log.delivered, self._effects)

    def _order(self, now: Nanoseconds, limit: int) -> None:
        """Give places in turn, as long as the slowest who counts is not too far behind."""
        log, line = self._log, self._line
        while line and log.position < limit:
            member = line.popleft()
            number = log.streams.get(member.site, 0)
            bodies = self._members.dequeue(member, number)
            if bodies is not None:
                incarnation = self._incarnation if member is self._own else member.key[0]
                self._place(now, Entry(member.site, number, bodies, incarnation))
            if number + len(bodies or ()) in member.pending:
                line.append(member)
            else:
                member.in_line = False

    def _place(self, now: Nanoseconds, entry: Entry) -> None:
        log = self._log
        place = log.position
        log.append(entry)
        sender, number, bodies, _ = entry
        if sender == self._site:
            self._outbox.settle(now, log.streams[sender])
        else:
            self._effects.append(Arrived(sender, number, len(bodies)))
        if self._members.counted:
            self._probe.sent(now, log.position)
            self._multicast_ns = now
            witness = self._members.witness
            self._effects.append(Multicast(Ordered(self._epoch, place, log.stable, witness, *entry)))

    def _acknowledge(self, now: Nanoseconds, sender: Site, pdu: Acknowledge) -> None:
        member = self._recognise(now, sender, pdu)
        if member is None:
            return
        log = self._log
        member.asked += len(pdu.missing)
        for place in pdu.missing:
            entry = log.entries.get(place)
            if entry is not None:
                again = Ordered(self._epoch, place, log.stable, self._members.witness, *entry)
                self._effects.append(Send(sender, again))
                self._copies += 1
        if pdu.roster != self._members.version:
            self._tell_roster(now, member)
        self._progress(now)

    # Announcements

    def _tick(self, now: Nanoseconds) -> None:
        """Look who is there, go on, and say how far the order goes unless it was said a moment ago."""
        knobs = self._configuration
        if now - self._due_ns > knobs.suspect_after_ns // 2:
            self._members.forgive(now)  # we slept ourselves
        self._effects += self._members.look(now)
        self._progress(now)
        if now - self._multicast_ns >= knobs.heartbeat_ns:
            self._announce(now)
        if self._told_version != self._members.version:
            self._told_version, self._told_roster_ns = self._members.version, now
            self._effects.append(Multicast(self._roster()))
        # Heartbeats are rarer while there is nothing to tell.
        settled = self._log.stable == self._log.position
        idle_ns = max(knobs.heartbeat_ns, knobs.keepalive_ns)
        self._tick_after(now, idle_ns if settled else knobs.heartbeat_ns)

    def _tick_after(self, now: Nanoseconds, pause_ns: Nanoseconds) -> None:
        self._due_ns = now + pause_ns
        self._effects.append(SetTimer("heartbeat", pause_ns))

    def _announce(self, now: Nanoseconds) -> None:
        self._multicast_ns = now
        heartbeat = Heartbeat(self._epoch, self._log.position, self._log.stable, self._members.witness)
        self._effects.append(Multicast(heartbeat))

    def _roster(self) -> Roster:
        members = self._members
        return Roster(self._epoch, members.version, tuple(members.counted), dict(members.gone))

    def _tell_roster(self, now: Nanoseconds, member: Member) -> None:
        """Tell one that is new or missed it who counts, but leave it time to take note."""
        pause_ns = self._configuration.keepalive_ns
        if now - max(member.told_ns, self._told_roster_ns) >= pause_ns:
            member.told_ns = now
            self._effects.append(Send(member.site, self._roster()))

    # Members that come and go

    def _join(self, now: Nanoseconds, sender: Site, pdu: Join) -> None:
        latest = max(pdu.promised, pdu.epoch)
        self._outdo(now, latest)
        if self._recovery is not None or latest > self._epoch:
            return
        member = self._members.meet(now, sender)
        if member is not None:
            self._let_in(now, member, pdu, pdu.epoch)
            self._progress(now)

    def _let_in(self, now: Nanoseconds, member: Member, pdu: Join | Report, epoch: int) -> None:
        """Let a member in: where it stands if all that it lacks is here, else at an end of the order."""
        key = (pdu.incarnation, pdu.attempt)
        grant = member.grant
        if key < member.key or not member.may_begin(pdu.incarnation):
            return
        if grant is not None and key == grant.key and member.acknowledged > grant.position:
            return  # a late copy: it goes on already
        if key[0] > member.key[0]:
            self._effects += self._members.dismiss(member, "It began anew.")
        self._meet_stream(member, pdu, anew=grant is None or key > grant.key)
        if grant is None or key != grant.key or grant.position < self._log.stable:
            grant = member.grant = self._grant(key, epoch, pdu.position, newcomer=pdu.newcomer)
            member.acknowledged = grant.position
            if not grant.kept:
                member.since = grant.position
            if member.counted:
                self._effects += self._members.count(member)  # at its new position
        if grant.kept:
            self._correct_stream(member.site, grant.position, pdu.first)
        member.key = key
        member.left = member.lagging = False
        self._hear(now, member)
        answer = Resume(
            self._epoch, *key, grant.position, self._log.stable, grant.kept, grant.whole, grant.streams
        )
        self._effects.append(Send(member.site, answer))

    def _meet_stream(self, member: Member, pdu: Join | Report, *, anew: bool) -> None:
        """Expect a member's messages from where it will send them."""
        streams = self._log.streams
        if pdu.position == NO_POSITION and anew:
            # It has not taken part yet, so none of its numbers have places: also if it counts from 0 again.
            self._members.clear_queue(member)
            streams.note(member.site, pdu.first)
        elif pdu.first > streams.get(member.site, 0):
            streams.note(member.site, pdu.first)

    def _correct_stream(self, site: Site, position: int, first: int) -> None:
        """A member that goes on without a gap knows its own numbers better than another's report did."""
        number = self._log.next_of(site, position, first)
        if number < self._log.streams.get(site, 0):
            self._log.streams.note(site, number)

    def _grant(self, key: tuple[int, int], epoch: int, position: int, *, newcomer: bool) -> Grant:
        log = self._log
        known_order = epoch in (self._epoch, self._recovered_epoch)
        reached = log.position if epoch == self._epoch else self._base
        if position >= 0 and not known_order:
            self._whole = False  # there was another order
        if known_order and log.stable <= position <= reached:
            return Grant(key, position, kept=True, whole=False, streams={})
        if newcomer and log.kept_from == 0:
            return Grant(key, 0, kept=False, whole=self._whole, streams={})
        whole = newcomer and self._whole and log.position == 0
        return Grant(key, log.position, kept=False, whole=whole, streams=dict(log.streams))

    def _left(self, now: Nanoseconds, sender: Site, pdu: Leave) -> None:
        member = self._members.known.get(sender)
        if member is not None and (pdu.incarnation, pdu.attempt) >= member.key:
            member.left = True
            self._dismiss(now, member, "It left.")

    # A sequencer that lost its memory

    def _recover(self, now: Nanoseconds) -> None:
        self._recovery = Recovery(self._epoch, self._others, self._configuration)
        self._effects += self._recovery.begin(now)

    def _answered(self, now: Nanoseconds, sender: Site, pdu: Report | Ordered) -> None:
        """Late answers to a recovery that is over say nothing; the member's join settles it."""
        recovery = self._recovery
        if recovery is None or pdu.epoch != self._epoch:
            return
        if isinstance(pdu, Report):
            if not recovery.makes_sense(pdu):
                self.ignored += 1
                return
            latest = max(pdu.promised, pdu.order_epoch + 1)
            if latest > self._epoch:
                self._outdo(now, latest)
                return
        elif not _fits(pdu):
            self.ignored += 1
            return
        self._effects += recovery.receive(now, sender, pdu)
        self._continue_recovery(now)

    def _continue_recovery(self, now: Nanoseconds) -> None:
        assert self._recovery is not None
        recovered = self._recovery.outcome()
        if recovered is not None:
            self._recovery = None
            self._adopt(now, recovered)

    def _adopt(self, now: Nanoseconds, recovered: Recovered) -> None:
        """Go on with the recovered order, in a new epoch; our own presence spell begins at its end."""
        log = self._log
        first = self._outbox.first
        log.jump(recovered.position, recovered.stable, recovered.streams)
        log.streams.note(self._site, first)
        log.entries.update(recovered.entries)
        log.kept_from = recovered.stable
        self._recovered_epoch, self._base = recovered.epoch, recovered.position
        # Whoever held something of the order has seen more of it than we can show to newcomers.
        self._whole = self._newcomer and recovered.epoch < 0
        if self._newcomer and recovered.position and not self._absent:
            self._absent = True
            self._effects.append(Absent())
        self._effects.append(CancelTimer("recover"))
        self._be_present()
        for site, report in recovered.reports.items():
            member = self._members.meet(now, site)
            if member is not None:
                self._let_in(now, member, report, report.order_epoch)
        for number, request in self._outbox.waiting.items():
            self._queue(self._own, number, request.bodies)
        self._progress(now)
        self._announce(now)
        self._tick_after(now, self._configuration.heartbeat_ns)

    def _be_present(self) -> None:
        if self._absent or self._newcomer:
            self._absent = self._newcomer = False
            self._effects.append(Present())

    # Functions, not bound methods: a member that refers to itself would outlive its use.
    _words: ClassVar[dict[type, Callable[["Orderer", Nanoseconds, Site, Any], None]]] = {
        Request: _requested,
        Acknowledge: _acknowledge,
        Enquire: _enquired,
        Join: _join,
        Leave: _left,
        Report: _answered,
        Ordered: _answered,
    }


def _fits(pdu: Request | Ordered) -> bool:
    """Whether a batch can be passed on, and leaves its sender numbers to count on."""
    return pdu.number + len(pdu.bodies) < NUMBER_LIMIT and len(pdu.bodies.wire()) <= LARGEST_BATCH_BYTES
