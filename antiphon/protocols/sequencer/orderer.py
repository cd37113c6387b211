"""The sequencer itself: gives places, repeats what is lost, tells what is stable, recovers the order."""

from typing import NamedTuple

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
from antiphon.core.ids import Site
from antiphon.core.inputs import Start
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.sequencer.log import Entry, Log, Outbox
from antiphon.protocols.sequencer.pdus import (
    MOST_MISSING,
    Acknowledge,
    Heartbeat,
    Join,
    Ordered,
    Report,
    Request,
    Resume,
    SequencerConfiguration,
)
from antiphon.protocols.sequencer.recovery import Recovered, Recovery

IDLE_PAUSE = 4
"""Heartbeats are this many times rarer while there is nothing to tell."""


class Grant(NamedTuple):
    """Where a member was let in, so that a repeated join gets the same answer."""

    key: tuple[int, int]
    position: int
    kept: bool
    streams: dict[Site, int]


class Orderer:
    """Orders (`_recovery` is None), or gathers from the members what the order was."""

    def __init__(self, site: Site, members: tuple[Site, ...], configuration: SequencerConfiguration) -> None:
        self.ignored = 0
        self._site = site
        self._members = members
        self._others = members[1:]
        self._configuration = configuration
        self._log = Log(members)
        self._outbox = Outbox(configuration.window)
        self._epoch = 0
        # An earlier epoch's members may go on without a gap up to `_base`, if theirs was the order recovered.
        self._recovered_epoch = -1
        self._base = 0
        self._recovery: Recovery | None = None
        self._absent = False
        self._acknowledged = dict.fromkeys(self._others, 0)
        self._heard_ns = dict.fromkeys(self._others, 0)
        self._gone: set[Site] = set()
        self._counted = set(self._others)
        self._incarnations = dict.fromkeys(members, 0)
        self._grants: dict[Site, Grant] = {}
        self._pending: dict[Site, dict[int, tuple[bytes, ...]]] = {member: {} for member in members}
        self._turn = 0
        self._multicast_ns = 0
        self._effects: list[Effect] = []

    # Inputs

    def start(self, now: Nanoseconds, event: Start) -> None:
        self._outbox.begin(event.next_number)
        self._epoch = event.incarnation
        self._incarnations[self._site] = event.incarnation
        self._log.streams[self._site] = event.next_number
        self._heard_ns = dict.fromkeys(self._others, now)
        if event.incarnation:
            self._absent = True
            self._recovery = Recovery(self._epoch, self._others, self._configuration)
            self._effects += self._recovery.begin(now)
            self._continue_recovery(now)
        else:
            self._effects.append(SetTimer("heartbeat", self._configuration.heartbeat_ns))

    def admit(self, now: Nanoseconds, bodies: tuple[bytes, ...]) -> None:
        if self._outbox.full():
            self._effects.append(Rejected("As many messages as the window holds wait for their place."))
            return
        request = self._outbox.take(bodies, self._configuration.repeat_ns)
        self._effects.append(Admitted(request.number, len(bodies), sum(map(len, bodies))))
        if self._recovery is None:
            self._pending[self._site][request.number] = bodies
            self._progress(now)

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if sender not in self._heard_ns:
            self.ignored += 1
            return
        match pdu:
            case Request():
                self._requested(now, sender, pdu)
            case Acknowledge():
                self._acknowledge(now, sender, pdu)
            case Join():
                self._join(now, sender, pdu)
            case Ordered() if pdu.sender not in self._incarnations or pdu.number < 0 or not pdu.bodies:
                self.ignored += 1
            case Report() | Ordered() if self._recovery is not None:
                self._effects += self._recovery.receive(now, sender, pdu)
                self._continue_recovery(now)
            case Report() | Ordered():
                pass  # late answers to a recovery that is over; the member's join settles it
            case _:
                self.ignored += 1

    def fire(self, now: Nanoseconds, name: str) -> None:
        if name == "recover" and self._recovery is not None:
            self._effects += self._recovery.tick(now, self._gone)
            self._continue_recovery(now)
        elif name == "heartbeat" and self._recovery is None:
            self._progress(now)
            self._announce(now)

    def depart(self) -> None:
        if not self._absent:
            self._absent = True
            self._effects.append(Absent())

    def come_back(self, now: Nanoseconds) -> None:
        """The order waited for us; nobody's silence counts against him."""
        self._heard_ns = dict.fromkeys(self._others, now)
        if self._recovery is not None:
            self._effects += self._recovery.begin(now)
            return
        self._be_present()
        self._progress(now)
        self._effects.append(SetTimer("heartbeat", self._configuration.heartbeat_ns))

    def suspect(self, now: Nanoseconds, site: Site) -> None:
        self._gone.add(site)
        if self._recovery is None:
            self._progress(now)
        else:
            self._effects += self._recovery.tick(now, self._gone)
            self._continue_recovery(now)

    def restore(self, now: Nanoseconds, site: Site) -> None:
        if site in self._heard_ns:
            self._hear(now, site)

    def effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # Requests

    def _requested(self, now: Nanoseconds, sender: Site, pdu: Request) -> None:
        if pdu.number < pdu.first or pdu.first < 0 or not pdu.bodies:
            self.ignored += 1
            return
        if not self._meet(now, sender, pdu.incarnation, pdu.first) or self._recovery is not None:
            return
        pending = self._pending[sender]
        expected = self._log.streams[sender]
        # Beyond the window a request is dropped, since it will be repeated; the one expected always fits.
        fits = len(pending) < self._configuration.window or pdu.number == expected
        if pdu.number >= expected and fits:
            pending[pdu.number] = pdu.bodies
            if pdu.number == expected:
                self._progress(now)

    def _meet(self, now: Nanoseconds, site: Site, incarnation: int, first: int) -> bool:
        """Learn a member's incarnation; an earlier one's words are void, and so are its queued requests."""
        known = self._incarnations[site]
        if incarnation < known:
            return False
        if incarnation > known:
            self._incarnations[site] = incarnation
            self._pending[site].clear()
        if self._recovery is None:
            self._log.streams[site] = max(self._log.streams[site], first)
        self._hear(now, site)
        return True

    def _hear(self, now: Nanoseconds, site: Site) -> None:
        self._heard_ns[site] = now
        self._gone.discard(site)

    # The order

    def _progress(self, now: Nanoseconds) -> None:
        """Whatever can be ordered, delivered and called stable now."""
        self._count(now)
        self._order(now)
        held = [self._acknowledged[site] for site in self._counted]
        # We deliver what at least one more member holds, so that our crash cannot take it along.
        self._effects += self._log.deliver(max(held, default=self._log.position))
        self._outbox.settle(self._log.streams[self._site])
        self._effects += self._log.release(min([*held, self._log.delivered]))

    def _count(self, now: Nanoseconds) -> None:
        """Who counts: whoever was heard of late and holds all that is stable."""
        since_ns = now - self._configuration.suspect_after_ns
        self._counted = {
            site
            for site in self._others
            if self._heard_ns[site] > since_ns
            and site not in self._gone
            and self._acknowledged[site] >= self._log.stable
        }

    def _order(self, now: Nanoseconds) -> None:
        """Give places in turn, as long as the slowest who counts is not too far behind."""
        slowest = min((self._acknowledged[site] for site in self._counted), default=self._log.position)
        limit = slowest + self._configuration.order_window
        idle = 0
        while idle < len(self._members) and self._log.position < limit:
            sender = self._members[self._turn]
            self._turn = (self._turn + 1) % len(self._members)
            bodies = self._pending[sender].pop(self._log.streams[sender], None)
            idle += 1
            if bodies is not None:
                self._place(now, Entry(sender, self._log.streams[sender], bodies))
                idle = 0

    def _place(self, now: Nanoseconds, entry: Entry) -> None:
        log = self._log
        place = log.position
        log.entries[place] = entry
        log.advance()
        if entry.sender != self._site:
            self._effects.append(Arrived(entry.sender, entry.number, len(entry.bodies)))
        if self._others:
            self._multicast_ns = now
            self._effects.append(Multicast(Ordered(self._epoch, place, log.stable, *entry)))

    def _acknowledge(self, now: Nanoseconds, sender: Site, pdu: Acknowledge) -> None:
        current = pdu.epoch == self._epoch and pdu.incarnation == self._incarnations[sender]
        if self._recovery is not None or not current:
            return
        if not 0 <= pdu.position <= self._log.position:
            self.ignored += 1
            return
        self._hear(now, sender)
        self._acknowledged[sender] = max(self._acknowledged[sender], pdu.position)
        for place in pdu.missing[:MOST_MISSING]:
            entry = self._log.entries.get(place)
            if entry is not None:
                self._effects.append(Send(sender, Ordered(self._epoch, place, self._log.stable, *entry)))
        self._progress(now)

    def _announce(self, now: Nanoseconds) -> None:
        """Say how far the order goes, unless it was said a moment ago."""
        pause_ns = self._configuration.heartbeat_ns
        if self._others and now - self._multicast_ns >= pause_ns:
            self._effects.append(
                Multicast(Heartbeat(self._epoch, self._log.position, self._log.stable)),
            )
        settled = self._log.stable == self._log.position and len(self._counted) == len(self._others)
        self._effects.append(SetTimer("heartbeat", IDLE_PAUSE * pause_ns if settled else pause_ns))

    # Members that come back

    def _join(self, now: Nanoseconds, sender: Site, pdu: Join) -> None:
        if pdu.first < 0:
            self.ignored += 1
        elif self._meet(now, sender, pdu.incarnation, pdu.first) and self._recovery is None:
            self._grant(sender, (pdu.incarnation, pdu.attempt), pdu.epoch, pdu.position)
            self._progress(now)

    def _grant(self, site: Site, key: tuple[int, int], epoch: int, position: int) -> None:
        """Let a member in: where it stands if all that it lacks is here, else at the end of the order."""
        log = self._log
        grant = self._grants.get(site)
        if grant is not None and key < grant.key:
            return
        if grant is None or key != grant.key or grant.position < log.stable:
            reached = log.position if epoch == self._epoch else self._base
            known_order = epoch in (self._epoch, self._recovered_epoch)
            kept = known_order and log.stable <= position <= reached
            grant = Grant(key, position if kept else log.position, kept, {} if kept else dict(log.streams))
            self._grants[site] = grant
            self._acknowledged[site] = grant.position
        incarnation, attempt = key
        resume = Resume(
            self._epoch, incarnation, attempt, grant.position, log.stable, grant.kept, grant.streams
        )
        self._effects.append(Send(site, resume))

    # A sequencer that lost its memory

    def _continue_recovery(self, now: Nanoseconds) -> None:
        assert self._recovery is not None
        recovered = self._recovery.outcome()
        if recovered is not None:
            self._recovery = None
            self._adopt(now, recovered)

    def _adopt(self, now: Nanoseconds, recovered: Recovered) -> None:
        """Go on with the recovered order, in a new epoch; our own presence spell begins at its end."""
        log = self._log
        first = log.streams[self._site]
        log.jump(recovered.position, recovered.stable, recovered.streams)
        log.streams[self._site] = max(first, log.streams[self._site])
        log.entries.update(recovered.entries)
        log.kept_from = recovered.stable
        self._recovered_epoch, self._base = recovered.epoch, recovered.position
        self._effects.append(CancelTimer("recover"))
        self._be_present()
        for site, report in recovered.reports.items():
            self._incarnations[site] = max(self._incarnations[site], report.incarnation)
            self._hear(now, site)
            self._grant(site, (report.incarnation, report.attempt), report.order_epoch, report.position)
        self._pending[self._site] = {
            number: request.bodies for number, request in self._outbox.waiting.items()
        }
        self._progress(now)
        self._effects.append(SetTimer("heartbeat", self._configuration.heartbeat_ns))

    def _be_present(self) -> None:
        if self._absent:
            self._absent = False
            self._effects.append(Present())
