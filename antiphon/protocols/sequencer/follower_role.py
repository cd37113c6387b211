"""A member that is not the sequencer: asks for places, delivers in order, finds gaps, rejoins."""

from collections.abc import Callable
from typing import Any, ClassVar

from antiphon.core.effects import (
    Absent,
    Admitted,
    Appeared,
    Arrived,
    CancelTimer,
    Effect,
    Multicast,
    Present,
    Rejected,
    Send,
    SetTimer,
    Vanished,
)
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.core.inputs import Start
from antiphon.core.packing import Packed
from antiphon.core.protocol import PeerReport
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.sequencer.log import Entry, Log, Outbox, Outstanding
from antiphon.protocols.sequencer.pdus import (
    MOST_MISSING,
    NO_POSITION,
    Acknowledge,
    Enquire,
    Fetch,
    Heartbeat,
    Join,
    Lacking,
    Leave,
    Ordered,
    Recover,
    Report,
    Request,
    Resume,
    Roster,
    SequencerConfiguration,
)

REPEATS_AT_ONCE = 16
"""Requests that one timer repeats, the oldest first. Raising it costs bursts of copies."""
MOST_DOUBLINGS = 3
"""The pause before a request is repeated doubles this often. Raising it costs latency after losses."""
ASK_BEFORE_SENDING = 4
"""Enquiries after a late request before it is repeated without an answer. Raising it costs latency when
requests and answers are lost."""
LONGEST_PAUSE = 8
"""Pauses between requests for a gap double up to this multiple of the first. Raising it costs latency
after a long loss."""
UNKNOWN = -1
"""The roster version of a member that has received none."""


class FollowerRole:
    """Takes part (`_taking_part`), or tries to: it repeats `Join` until `Resume`."""

    def __init__(self, site: Site, members: tuple[Site, ...], configuration: SequencerConfiguration) -> None:
        self.ignored = 0
        self._site = site
        self._sequencer = members[0]
        self._configuration = configuration
        self._log = Log()
        self._outbox = Outbox(configuration.window, configuration.repeat_ns)
        self._incarnation = 0
        self._epoch = 0
        self._promised = 0
        self._attempt = 0
        self._taking_part = False
        self._remembers = True
        self._is_newcomer = False
        self._is_absent = False
        self._known_end = 0
        self._acknowledged = 0
        self._acknowledged_ns: Nanoseconds = 0
        self._will_acknowledge = False
        self._request_armed = False
        self._gap_pause_ns = configuration.gap_ns
        self._asked = self._copies = 0
        self._roster_version = 0
        self._others = set(members) - {site}
        self._heard_ns: Nanoseconds = 0
        self._earlier_epoch_ns: Nanoseconds | None = None
        """Since when all PDUs of the sequencer are of earlier epochs."""
        self._due_ns: Nanoseconds = 0
        self._effects: list[Effect] = []

    # Inputs

    def start(self, now: Nanoseconds, event: Start) -> None:
        self._incarnation = event.incarnation
        self._outbox.begin(event.next_number)
        self._heard_ns = now
        if event.incarnation:
            self._others.clear()
            self._is_absent = event.returning
            self._is_newcomer = not event.returning
            self._remembers = False
            self._roster_version = UNKNOWN
            self._join(now)
        else:
            self._take_part(now)

    def admit(self, now: Nanoseconds, bodies: Packed) -> None:
        if self._outbox.full():
            self._effects.append(Rejected("As many messages as the window holds wait for their place."))
            return
        if self._taking_part and not self._request_armed:
            self._request_armed = True
            self._effects.append(SetTimer("request", self._configuration.repeat_ns))
        request = self._outbox.take(bodies)
        self._effects.append(Admitted(request.number, len(bodies), bodies.size))
        if self._taking_part:
            self._request(now, request)

    def on_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        act = self._handlers.get(type(pdu))
        if sender == self._sequencer and act is not None:
            act(self, now, pdu)
        elif type(pdu) is not Join:
            # Joins are multicast while their sender does not know the sequencer's address.
            self.ignored += 1

    def fire(self, now: Nanoseconds, name: str) -> None:
        if name == "join" and not self._taking_part:
            self._check_sequencer(now)
            self._send_join(now)
        elif name == "request" and self._taking_part:
            self._fire_request(now)
        elif name == "acknowledge" and self._taking_part:
            self._check_sequencer(now)
            self._fire_acknowledge(now)
        elif name == "gap" and self._taking_part:
            self._ask(now)

    def depart(self) -> None:
        self._be_absent()
        self._effects.append(Send(self._sequencer, Leave(self._incarnation, self._attempt)))

    def resume(self, now: Nanoseconds) -> None:
        self._heard_ns = now
        self._join(now)

    def suspect(self, now: Nanoseconds, site: Site) -> None:  # noqa: ARG002
        """The sequencer keeps the view; only its own failure is found here."""
        if site == self._sequencer:
            self._lose_sequencer("The failure detector suspects it.")

    def restore(self, now: Nanoseconds, site: Site) -> None:
        """No-op: the sequencer is back when a PDU of it comes."""

    def incarnation_of(self, site: Site) -> int:
        """The sequencer's incarnation is its epoch; those of other followers are not known."""
        if site == self._sequencer:
            return max(self._epoch, self._promised)
        return self._incarnation if site == self._site else 0

    def effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def peers(self, _now: Nanoseconds) -> dict[Site, PeerReport]:
        """For the sequencer, how many of our own messages wait for a place; for the others nothing."""
        outbox, found = self._outbox, dict.fromkeys(self._others, PeerReport())
        if self._sequencer in found:
            found[self._sequencer] = PeerReport(
                outbox.next_number - outbox.first, self._heard_ns, outbox.latency_ns or None, None,
                outbox.full(),
            )  # fmt: skip
        return found

    def figures(self) -> dict[str, int]:
        return {
            "ignored": self.ignored,
            "copies": self._copies,
            "asked": self._asked,
            "rejoined": self._attempt,
            **self._log.figures(),
        }

    # Requests

    def _request(self, now: Nanoseconds, request: Outstanding) -> None:
        """Send a request; each repetition doubles the pause before the next."""
        request.sent_ns = now
        request.due_ns = now + (self._configuration.repeat_ns << min(request.asked, MOST_DOUBLINGS))
        position = self._log.position
        self._acknowledged, self._acknowledged_ns = position, now
        pdu = Request(
            self._epoch, self._incarnation, position, self._outbox.first, request.number, request.bodies
        )
        self._effects.append(Send(self._sequencer, pdu))

    def _fire_request(self, now: Nanoseconds) -> None:
        """Enquire after requests that are overdue, or repeat them."""
        overdue = self._outbox.overdue(now, MOST_MISSING)
        for request in overdue:
            request.asked += 1
        if overdue and self._outbox.crowded:
            self._enquire(now, overdue)
        else:
            for request in overdue[:REPEATS_AT_ONCE]:
                self._repeat(now, request)
        self._request_armed = bool(self._outbox.waiting)
        if self._request_armed:
            self._effects.append(SetTimer("request", self._configuration.repeat_ns))

    def _enquire(self, now: Nanoseconds, overdue: list[Outstanding]) -> None:
        """Ask after requests; bodies are repeated only if the sequencer lacks them, or does not answer."""
        for request in overdue:
            request.due_ns = now + self._configuration.repeat_ns
        numbers = tuple(request.number for request in overdue)
        pdu = Enquire(self._epoch, self._incarnation, self._log.position, numbers)
        self._effects.append(Send(self._sequencer, pdu))
        if overdue[0].asked % ASK_BEFORE_SENDING == 0:
            self._repeat(now, overdue[0])

    def _repeat(self, now: Nanoseconds, request: Outstanding) -> None:
        self._copies += 1
        self._request(now, request)

    def _on_lacking(self, now: Nanoseconds, pdu: Lacking) -> None:
        """Repeat what the sequencer lacks, unless that was done just now."""
        if not self._is_current(now, pdu.epoch) or pdu.incarnation != self._incarnation:
            return
        for number in pdu.numbers:
            request = self._outbox.waiting.get(number)
            if request is not None and now - request.sent_ns >= self._configuration.repeat_ns:
                self._repeat(now, request)

    # The order

    def _is_current(self, now: Nanoseconds, epoch: int) -> bool:
        """Whether a PDU of this epoch belongs to the order that we follow."""
        if self._taking_part and epoch == self._epoch:
            self._heard_ns = now
            self._earlier_epoch_ns = None
            if self._sequencer not in self._others:
                self._meet_sequencer()
            return True
        if epoch < self._promised:
            self._on_earlier_epoch(now)
        elif self._taking_part:
            # The sequencer recovered without us: only it knows whether we may go on.
            self._promised = epoch
            self._lose_sequencer("It began anew.")
            self._join(now)
        return False

    def _on_earlier_epoch(self, now: Nanoseconds) -> None:
        """A PDU of an epoch that is over: it is late, or the sequencer's clock went back.

        A join tells the sequencer that it needs a later epoch. If it does not believe that, this member goes
        on as one without a memory.
        """
        knobs = self._configuration
        if now - self._heard_ns < knobs.suspect_after_ns:
            return
        if self._earlier_epoch_ns is None:
            self._earlier_epoch_ns = now
        if self._taking_part:
            self._lose_sequencer("It speaks in an epoch that is over.")
            self._join(now)
        elif now - self._earlier_epoch_ns >= knobs.give_up_ns:
            self._earlier_epoch_ns = None
            self._epoch = self._promised = 0
            self._forget_everything(now)

    def _on_ordered(self, now: Nanoseconds, pdu: Ordered) -> None:
        place, stable, sender, number = pdu.position, pdu.stable, pdu.sender, pdu.number
        if number + len(pdu.bodies) >= NUMBER_LIMIT:
            self.ignored += 1
            return
        if not self._is_current(now, pdu.epoch):
            return
        log = self._log
        position = log.position
        if stable > position:
            self._rejoin(now)
            return
        # Batches beyond a gap are bounded, should the sequencer lie about positions.
        within = position <= place < position + 2 * self._configuration.order_window
        if self._configuration.receipts and place != position:
            self._acknowledge(now)
        if within and place not in log.entries:
            bodies = pdu.bodies
            if sender != self._site:
                self._effects.append(Arrived(sender, number, len(bodies)))
            if place == position:
                log.append(Entry(sender, number, bodies, pdu.incarnation))
                self._deliver(now, at_once=pdu.witness == self._site)
            else:
                log.entries[place] = Entry(sender, number, bodies, pdu.incarnation)
        if place >= log.position:
            self._note_end(place + 1)
        log.release(stable, self._effects)

    def _deliver(self, now: Nanoseconds, *, at_once: bool) -> None:
        """Deliver up to the first gap; the witness acknowledges at once, since the sequencer waits for it."""
        log = self._log
        if log.position in log.entries:
            log.advance()
        log.deliver(log.position, self._effects)
        self._gap_pause_ns = self._configuration.gap_ns
        if self._outbox.waiting:
            self._outbox.settle(now, log.streams.get(self._site, 0))
        if at_once or log.position - self._acknowledged >= self._configuration.acknowledge_after:
            self._acknowledge(now)
        elif not self._will_acknowledge:
            self._acknowledge_soon(now)

    def _on_heartbeat(self, now: Nanoseconds, pdu: Heartbeat) -> None:
        if not self._is_current(now, pdu.epoch):
            return
        log = self._log
        if pdu.stable > log.position:
            self._rejoin(now)
            return
        self._note_end(pdu.next_position)
        log.release(pdu.stable, self._effects)
        if pdu.stable < log.position:
            # Our acknowledgement may be lost; if we are the witness, the sequencer waits for it.
            if pdu.witness == self._site and self._acknowledged < log.position:
                self._acknowledge(now)
            elif not self._will_acknowledge:
                self._acknowledge_soon(now)

    # Gaps and acknowledgements

    def _note_end(self, next_position: int) -> None:
        """The order is known to reach this far; what is missing is asked for after `gap_ns`."""
        asks = not self._configuration.receipts
        if asks and next_position > self._log.position and self._known_end <= self._log.position:
            self._gap_pause_ns = self._configuration.gap_ns
            self._effects.append(SetTimer("gap", self._gap_pause_ns))
        self._known_end = max(self._known_end, next_position)

    def _ask(self, now: Nanoseconds) -> None:
        """Ask for what is missing; for less, and after longer pauses, while no answer helps."""
        gap_ns, pause_ns = self._configuration.gap_ns, self._gap_pause_ns
        missing = self._log.missing(self._known_end, MOST_MISSING * gap_ns // pause_ns)
        if not missing:
            return
        self._asked += len(missing)
        self._acknowledge(now, missing)
        self._effects.append(SetTimer("gap", pause_ns))
        self._gap_pause_ns = min(2 * pause_ns, LONGEST_PAUSE * gap_ns)

    def _acknowledge(self, now: Nanoseconds, missing: tuple[int, ...] = ()) -> None:
        self._acknowledged, self._acknowledged_ns = self._log.position, now
        pdu = Acknowledge(self._epoch, self._incarnation, self._acknowledged, self._roster_version, missing)
        self._effects.append(Send(self._sequencer, pdu))

    def _acknowledge_soon(self, now: Nanoseconds) -> None:
        self._will_acknowledge = True
        self._arm_acknowledge(now, self._configuration.acknowledge_ns)

    def _fire_acknowledge(self, now: Nanoseconds) -> None:
        """Acknowledge, unless a request or another acknowledgement has just carried our position."""
        knobs = self._configuration
        quiet_ns = now - self._acknowledged_ns
        if quiet_ns >= knobs.acknowledge_ns:
            self._acknowledge(now)
        self._will_acknowledge = self._acknowledged < self._log.position
        self._arm_acknowledge(
            now, knobs.acknowledge_ns - quiet_ns if self._will_acknowledge else knobs.keepalive_ns
        )

    def _arm_acknowledge(self, now: Nanoseconds, pause_ns: Nanoseconds) -> None:
        self._due_ns = now + pause_ns
        self._effects.append(SetTimer("acknowledge", pause_ns))

    # The view

    def _check_sequencer(self, now: Nanoseconds) -> None:
        """Check whether the sequencer is silent; a pause of our own does not count against it."""
        knobs = self._configuration
        if now - self._due_ns > knobs.suspect_after_ns // 2:
            self._heard_ns = now
        elif now - self._heard_ns >= knobs.suspect_after_ns:
            self._lose_sequencer("It has been silent for too long.")

    def _meet_sequencer(self) -> None:
        if self._sequencer not in self._others:
            self._others.add(self._sequencer)
            self._effects.append(Appeared(self._sequencer))

    def _lose_sequencer(self, reason: str) -> None:
        if self._sequencer in self._others:
            self._others.discard(self._sequencer)
            self._effects.append(Vanished(self._sequencer, reason))

    def _on_leave(self, _now: Nanoseconds, pdu: Leave) -> None:
        if pdu.incarnation == self._epoch:
            self._lose_sequencer("It left.")

    def _on_roster(self, now: Nanoseconds, pdu: Roster) -> None:
        if not self._is_current(now, pdu.epoch) or pdu.version <= self._roster_version:
            return
        self._roster_version = pdu.version
        there = {*pdu.members, self._sequencer} - {self._site}
        for site in sorted(there - self._others):
            self._effects.append(Appeared(site))
        for site in sorted(self._others - there):
            reason = pdu.gone.get(site, "The sequencer no longer counts it.")
            self._effects.append(Vanished(site, reason))
        self._others = there

    # Rejoining

    def _rejoin(self, now: Nanoseconds) -> None:
        """Something that we lack was declared stable without us: this spell of presence is over."""
        self._be_absent()
        self._log.forget()
        self._join(now)

    def _forget_everything(self, now: Nanoseconds) -> None:
        """Go on as a member that remembers nothing of the order but its own numbers."""
        self._remembers = False
        self._rejoin(now)

    def _be_absent(self) -> None:
        if not self._is_absent:
            self._is_absent = True
            self._effects.append(Absent())

    def _join(self, now: Nanoseconds) -> None:
        self._attempt += 1
        self._taking_part = self._will_acknowledge = self._request_armed = False
        self._effects += (CancelTimer("request"), CancelTimer("acknowledge"), CancelTimer("gap"))
        self._send_join(now)

    def _send_join(self, now: Nanoseconds) -> None:
        pdu = Join(
            self._incarnation, self._attempt, self._outbox.first, self._promised, self._epoch,
            self._position_to_report(), self._is_newcomer,
        )  # fmt: skip
        # A sequencer that is silent may have an address that we do not know.
        known = self._sequencer in self._others
        self._effects.append(Send(self._sequencer, pdu) if known else Multicast(pdu))
        self._due_ns = now + self._configuration.repeat_ns
        self._effects.append(SetTimer("join", self._configuration.repeat_ns))

    def _position_to_report(self) -> int:
        return self._log.position if self._remembers else NO_POSITION

    def _on_resume(self, now: Nanoseconds, pdu: Resume) -> None:
        ours = (pdu.incarnation, pdu.attempt) == (self._incarnation, self._attempt)
        if self._taking_part or not ours or pdu.epoch < self._promised:
            return
        log = self._log
        if pdu.streams.get(self._site, 0) > self._outbox.next_number:
            # A false report has more of our messages than we have sent; without a memory we are believed.
            self.ignored += 1
            self._forget_everything(now)
            return
        if not pdu.kept:
            if not pdu.whole or not self._is_newcomer:
                self._be_absent()
            log.jump(pdu.position, pdu.stable, pdu.streams)
        elif pdu.position != self._position_to_report() or pdu.stable > log.position:
            self.ignored += 1
            return
        elif pdu.epoch != self._epoch:
            # What lies beyond a gap may have another place in the recovered order.
            log.drop_ahead()
        if pdu.epoch != self._epoch:
            self._roster_version = UNKNOWN
        self._epoch = self._promised = pdu.epoch
        self._remembers = True
        self._outbox.settle(now, log.streams.get(self._site, 0))
        self._effects.append(CancelTimer("join"))
        self._heard_ns = now
        self._earlier_epoch_ns = None
        self._take_part(now)
        self._meet_sequencer()

    def _take_part(self, now: Nanoseconds) -> None:
        self._taking_part = True
        if self._is_absent or self._is_newcomer:
            self._is_absent = self._is_newcomer = False
            self._effects.append(Present())
        self._known_end = self._acknowledged = self._log.position
        self._arm_acknowledge(now, self._configuration.keepalive_ns)
        for request in self._outbox.waiting.values():
            request.asked = 0
            self._request(now, request)
        if self._outbox.waiting:
            self._request_armed = True
            self._effects.append(SetTimer("request", self._configuration.repeat_ns))

    # A sequencer that lost its memory

    def _on_recover(self, now: Nanoseconds, pdu: Recover) -> None:
        """Report what we hold, and from now on ignore earlier epochs.

        A question in an epoch that is over is answered too: if a clock went back, the sequencer learns from
        the answer that it needs a later epoch; otherwise the answer is ignored.
        """
        if pdu.epoch < self._promised:
            self._on_earlier_epoch(now)
        if pdu.epoch > self._promised:
            self._promised = pdu.epoch
            self._lose_sequencer("It began anew.")
            if self._taking_part:
                self._join(now)
        report = Report(
            pdu.epoch, self._incarnation, self._attempt, self._outbox.first, self._promised, self._epoch,
            self._position_to_report(), self._is_newcomer, self._log.kept_from, self._log.stable,
            dict(self._log.streams),
        )  # fmt: skip
        self._effects.append(Send(self._sequencer, report))

    def _on_fetch(self, _now: Nanoseconds, pdu: Fetch) -> None:
        if pdu.epoch != self._promised or self._taking_part:
            return
        for place in pdu.missing:
            entry = self._log.entries.get(place)
            if entry is not None and place < self._log.position:
                answer = Ordered(pdu.epoch, place, self._log.stable, self._site, *entry)
                self._effects.append(Send(self._sequencer, answer))

    # Functions, not bound methods, which would keep a member alive by a reference to itself.
    _handlers: ClassVar[dict[type, Callable[["FollowerRole", Nanoseconds, Any], None]]] = {
        Ordered: _on_ordered,
        Heartbeat: _on_heartbeat,
        Resume: _on_resume,
        Recover: _on_recover,
        Fetch: _on_fetch,
        Leave: _on_leave,
        Roster: _on_roster,
        Lacking: _on_lacking,
    }
