"""A member that is not the sequencer: asks for places, delivers in order, finds gaps, comes back."""

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
"""Requests that one timer sends again at most: the oldest, since the sequencer takes them in order."""
MOST_DOUBLINGS = 3
"""The pause before a request is sent again doubles this often."""
ASK_BEFORE_SENDING = 4
"""Where places come late, a request is asked after this often before it is sent again unasked."""
LONGEST_PAUSE = 8
"""Pauses between questions about a gap double up to this multiple of the first."""
UNKNOWN = -1
"""The version of a roster that was not heard yet."""


class Follower:
    """Takes part (`_taking_part`), or tries to (`Join` until `Resume`)."""

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
        self._newcomer = False
        self._absent = False
        self._seen = 0
        self._told = 0
        self._told_ns: Nanoseconds = 0
        self._telling_soon = False
        self._reminding = False
        self._gap_pause_ns = configuration.gap_ns
        self._asked = self._copies = 0
        self._roster = 0
        self._others = set(members) - {site}
        self._heard_ns: Nanoseconds = 0
        self._behind_ns: Nanoseconds | None = None
        """Since when the sequencer speaks in none but earlier epochs."""
        self._due_ns: Nanoseconds = 0
        self._effects: list[Effect] = []

    # Inputs

    def start(self, now: Nanoseconds, event: Start) -> None:
        self._incarnation = event.incarnation
        self._outbox.begin(event.next_number)
        self._heard_ns = now
        if event.incarnation:
            self._others.clear()
            self._absent = event.returning
            self._newcomer = not event.returning
            self._remembers = False
            self._roster = UNKNOWN
            self._join(now)
        else:
            self._take_part(now)

    def admit(self, now: Nanoseconds, bodies: Packed) -> None:
        if self._outbox.full():
            self._effects.append(Rejected("As many messages as the window holds wait for their place."))
            return
        if self._taking_part and not self._reminding:
            self._reminding = True
            self._effects.append(SetTimer("request", self._configuration.repeat_ns))
        request = self._outbox.take(bodies)
        self._effects.append(Admitted(request.number, len(bodies), bodies.size))
        if self._taking_part:
            self._request(now, request)

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        act = self._words.get(type(pdu))
        if sender == self._sequencer and act is not None:
            act(self, now, pdu)
        elif type(pdu) is not Join:
            # Joins are multicast while their sender does not know where the sequencer is.
            self.ignored += 1

    def fire(self, now: Nanoseconds, name: str) -> None:
        if name == "join" and not self._taking_part:
            self._watch(now)
            self._send_join(now)
        elif name == "request" and self._taking_part:
            self._remind(now)
        elif name == "acknowledge" and self._taking_part:
            self._watch(now)
            self._tell(now)
        elif name == "gap" and self._taking_part:
            self._ask(now)

    def depart(self) -> None:
        self._be_absent()
        self._effects.append(Send(self._sequencer, Leave(self._incarnation, self._attempt)))

    def come_back(self, now: Nanoseconds) -> None:
        self._heard_ns = now
        self._join(now)

    def suspect(self, now: Nanoseconds, site: Site) -> None:  # noqa: ARG002
        """The sequencer keeps count of who is there; only of itself it can't."""
        if site == self._sequencer:
            self._miss_sequencer("The failure detector suspects it.")

    def restore(self, now: Nanoseconds, site: Site) -> None:
        """The sequencer is there again when it speaks."""

    def incarnation_of(self, site: Site) -> int:
        """The sequencer's is its epoch; nothing is known of other followers'."""
        if site == self._sequencer:
            return max(self._epoch, self._promised)
        return self._incarnation if site == self._site else 0

    def effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def peers(self, _now: Nanoseconds) -> dict[Site, PeerReport]:
        """Of the sequencer, how many of our own messages wait for their places; of the others nothing."""
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
        """Send a request; each time it is sent again, the next time is twice as far."""
        request.sent_ns = now
        request.due_ns = now + (self._configuration.repeat_ns << min(request.asked, MOST_DOUBLINGS))
        position = self._log.position
        self._told, self._told_ns = position, now
        pdu = Request(
            self._epoch, self._incarnation, position, self._outbox.first, request.number, request.bodies
        )
        self._effects.append(Send(self._sequencer, pdu))

    def _remind(self, now: Nanoseconds) -> None:
        """See to requests whose places are overdue, as long as any wait."""
        overdue = self._outbox.overdue(now, MOST_MISSING)
        for request in overdue:
            request.asked += 1
        if overdue and self._outbox.crowded:
            self._enquire(now, overdue)
        else:
            for request in overdue[:REPEATS_AT_ONCE]:
                self._send_again(now, request)
        self._reminding = bool(self._outbox.waiting)
        if self._reminding:
            self._effects.append(SetTimer("request", self._configuration.repeat_ns))

    def _enquire(self, now: Nanoseconds, overdue: list[Outstanding]) -> None:
        """Ask after them; bodies are sent again only where they are lacking, or where no answer comes."""
        for request in overdue:
            request.due_ns = now + self._configuration.repeat_ns
        numbers = tuple(request.number for request in overdue)
        pdu = Enquire(self._epoch, self._incarnation, self._log.position, numbers)
        self._effects.append(Send(self._sequencer, pdu))
        if overdue[0].asked % ASK_BEFORE_SENDING == 0:
            self._send_again(now, overdue[0])

    def _send_again(self, now: Nanoseconds, request: Outstanding) -> None:
        self._copies += 1
        self._request(now, request)

    def _lacking(self, now: Nanoseconds, pdu: Lacking) -> None:
        """Send again what the sequencer has not got, unless that was done a moment ago."""
        if not self._follows(now, pdu.epoch) or pdu.incarnation != self._incarnation:
            return
        for number in pdu.numbers:
            request = self._outbox.waiting.get(number)
            if request is not None and now - request.sent_ns >= self._configuration.repeat_ns:
                self._send_again(now, request)

    # The order

    def _follows(self, now: Nanoseconds, epoch: int) -> bool:
        """Whether a PDU of this epoch concerns the order that we follow."""
        if self._taking_part and epoch == self._epoch:
            self._heard_ns = now
            self._behind_ns = None
            if self._sequencer not in self._others:
                self._meet_sequencer()
            return True
        if epoch < self._promised:
            self._hear_earlier(now)
        elif self._taking_part and self._epoch < epoch:
            # The sequencer recovered without us: only it can tell whether we may go on.
            self._promised = epoch
            self._miss_sequencer("It began anew.")
            self._join(now)
        return False

    def _hear_earlier(self, now: Nanoseconds) -> None:
        """The sequencer speaks in an epoch that is over: its clock went back, unless that is a late word.

        A join tells it that it needs a later epoch. If it does not believe that, there is no way to go on but
        without a memory.
        """
        knobs = self._configuration
        if now - self._heard_ns < knobs.suspect_after_ns:
            return
        if self._behind_ns is None:
            self._behind_ns = now
        if self._taking_part:
            self._miss_sequencer("It speaks in an epoch that is over.")
            self._join(now)
        elif now - self._behind_ns >= knobs.give_up_ns:
            self._behind_ns = None
            self._epoch = self._promised = 0
            self._forget_everything(now)

    def _ordered(self, now: Nanoseconds, pdu: Ordered) -> None:
        place, stable, sender, number = pdu.position, pdu.stable, pdu.sender, pdu.number
        if number + len(pdu.bodies) >= NUMBER_LIMIT:
            self.ignored += 1
            return
        if not self._follows(now, pdu.epoch):
            return
        log = self._log
        position = log.position
        if stable > position:
            self._fall_out(now)
            return
        # A lying sequencer could name a position without end; what we keep beyond a gap is bounded.
        within = position <= place < position + 2 * self._configuration.order_window
        if within and place not in log.entries:
            bodies = pdu.bodies
            if sender != self._site:
                self._effects.append(Arrived(sender, number, len(bodies)))
            if place == position:
                log.append(Entry(sender, number, bodies, pdu.incarnation))
                self._advance(now, at_once=pdu.witness == self._site)
            else:
                log.entries[place] = Entry(sender, number, bodies, pdu.incarnation)
        if place >= log.position:
            self._see(place + 1)
        if stable > log.stable:
            log.release(stable, self._effects)

    def _advance(self, now: Nanoseconds, *, at_once: bool) -> None:
        """Deliver up to the first gap; the witness says so at once: the sequencer waits for it."""
        log = self._log
        if log.position in log.entries:
            log.advance()
        log.deliver(log.position, self._effects)
        self._gap_pause_ns = self._configuration.gap_ns
        if self._outbox.waiting:
            self._outbox.settle(now, log.streams.get(self._site, 0))
        if at_once or log.position - self._told >= self._configuration.tell_every:
            self._acknowledge(now)
        elif not self._telling_soon:
            self._tell_soon(now)

    def _heartbeat(self, now: Nanoseconds, pdu: Heartbeat) -> None:
        if not self._follows(now, pdu.epoch):
            return
        log = self._log
        if pdu.stable > log.position:
            self._fall_out(now)
            return
        self._see(pdu.next_position)
        log.release(pdu.stable, self._effects)
        if pdu.stable < log.position:
            # Our acknowledgement may be lost, and the sequencer waits for the witness.
            if pdu.witness == self._site and self._told < log.position:
                self._acknowledge(now)
            elif not self._telling_soon:
                self._tell_soon(now)

    # Gaps and acknowledgements

    def _see(self, next_position: int) -> None:
        """The order is known to go this far; what is missing is asked for unless it comes by itself."""
        if next_position > self._log.position and self._seen <= self._log.position:
            self._gap_pause_ns = self._configuration.gap_ns
            self._effects.append(SetTimer("gap", self._gap_pause_ns))
        self._seen = max(self._seen, next_position)

    def _ask(self, now: Nanoseconds) -> None:
        """Ask for what is missing; for less, and later, as long as no answer gets us on."""
        gap_ns, pause_ns = self._configuration.gap_ns, self._gap_pause_ns
        missing = self._log.missing(self._seen, MOST_MISSING * gap_ns // pause_ns)
        if not missing:
            return
        self._asked += len(missing)
        self._acknowledge(now, missing)
        self._effects.append(SetTimer("gap", pause_ns))
        self._gap_pause_ns = min(2 * pause_ns, LONGEST_PAUSE * gap_ns)

    def _acknowledge(self, now: Nanoseconds, missing: tuple[int, ...] = ()) -> None:
        self._told, self._told_ns = self._log.position, now
        pdu = Acknowledge(self._epoch, self._incarnation, self._told, self._roster, missing)
        self._effects.append(Send(self._sequencer, pdu))

    def _tell_soon(self, now: Nanoseconds) -> None:
        self._telling_soon = True
        self._tell_after(now, self._configuration.acknowledge_ns)

    def _tell(self, now: Nanoseconds) -> None:
        """Acknowledge, unless a request or another acknowledgement has just told where we are."""
        knobs = self._configuration
        quiet_ns = now - self._told_ns
        if quiet_ns >= knobs.acknowledge_ns:
            self._acknowledge(now)
        self._telling_soon = self._told < self._log.position
        self._tell_after(now, knobs.acknowledge_ns - quiet_ns if self._telling_soon else knobs.keepalive_ns)

    def _tell_after(self, now: Nanoseconds, pause_ns: Nanoseconds) -> None:
        self._due_ns = now + pause_ns
        self._effects.append(SetTimer("acknowledge", pause_ns))

    # Who is there

    def _watch(self, now: Nanoseconds) -> None:
        """See whether the sequencer is silent; our own sleep does not count against it."""
        knobs = self._configuration
        if now - self._due_ns > knobs.suspect_after_ns // 2:
            self._heard_ns = now
        elif now - self._heard_ns >= knobs.suspect_after_ns:
            self._miss_sequencer("It has been silent for too long.")

    def _meet_sequencer(self) -> None:
        if self._sequencer not in self._others:
            self._others.add(self._sequencer)
            self._effects.append(Appeared(self._sequencer))

    def _miss_sequencer(self, reason: str) -> None:
        if self._sequencer in self._others:
            self._others.discard(self._sequencer)
            self._effects.append(Vanished(self._sequencer, reason))

    def _left(self, _now: Nanoseconds, pdu: Leave) -> None:
        if pdu.incarnation == self._epoch:
            self._miss_sequencer("It left.")

    def _enrol(self, now: Nanoseconds, pdu: Roster) -> None:
        if not self._follows(now, pdu.epoch) or pdu.version <= self._roster:
            return
        self._roster = pdu.version
        there = {*pdu.members, self._sequencer} - {self._site}
        for site in sorted(there - self._others):
            self._effects.append(Appeared(site))
        for site in sorted(self._others - there):
            reason = pdu.gone.get(site, "The sequencer no longer counts it.")
            self._effects.append(Vanished(site, reason))
        self._others = there

    # Coming back

    def _fall_out(self, now: Nanoseconds) -> None:
        """What we lack was called stable: we were left out, and this presence spell is over."""
        self._be_absent()
        self._log.forget()
        self._join(now)

    def _forget_everything(self, now: Nanoseconds) -> None:
        """Go on as one that remembers nothing of the order but its own numbers."""
        self._remembers = False
        self._fall_out(now)

    def _be_absent(self) -> None:
        if not self._absent:
            self._absent = True
            self._effects.append(Absent())

    def _join(self, now: Nanoseconds) -> None:
        self._attempt += 1
        self._taking_part = self._telling_soon = self._reminding = False
        self._effects += (CancelTimer("request"), CancelTimer("acknowledge"), CancelTimer("gap"))
        self._send_join(now)

    def _send_join(self, now: Nanoseconds) -> None:
        pdu = Join(
            self._incarnation, self._attempt, self._outbox.first, self._promised, self._epoch,
            self._position_to_tell(), self._newcomer,
        )  # fmt: skip
        # A sequencer that we have not heard lately may be at an address that we do not know.
        known = self._sequencer in self._others
        self._effects.append(Send(self._sequencer, pdu) if known else Multicast(pdu))
        self._due_ns = now + self._configuration.repeat_ns
        self._effects.append(SetTimer("join", self._configuration.repeat_ns))

    def _position_to_tell(self) -> int:
        return self._log.position if self._remembers else NO_POSITION

    def _resume(self, now: Nanoseconds, pdu: Resume) -> None:
        ours = (pdu.incarnation, pdu.attempt) == (self._incarnation, self._attempt)
        if self._taking_part or not ours or pdu.epoch < self._promised:
            return
        log = self._log
        if pdu.streams.get(self._site, 0) > self._outbox.next_number:
            # The sequencer was told that we have sent more than we have; a member without a memory is asked.
            self.ignored += 1
            self._forget_everything(now)
            return
        if not pdu.kept:
            if not pdu.whole or not self._newcomer:
                self._be_absent()
            log.jump(pdu.position, pdu.stable, pdu.streams)
        elif pdu.position != self._position_to_tell() or pdu.stable > log.position:
            self.ignored += 1
            return
        elif pdu.epoch != self._epoch:
            # What lies beyond a gap may have another place in the recovered order.
            log.drop_ahead()
        if pdu.epoch != self._epoch:
            self._roster = UNKNOWN
        self._epoch = self._promised = pdu.epoch
        self._remembers = True
        self._outbox.settle(now, log.streams.get(self._site, 0))
        self._effects.append(CancelTimer("join"))
        self._heard_ns = now
        self._behind_ns = None
        self._take_part(now)
        self._meet_sequencer()

    def _take_part(self, now: Nanoseconds) -> None:
        self._taking_part = True
        if self._absent or self._newcomer:
            self._absent = self._newcomer = False
            self._effects.append(Present())
        self._seen = self._told = self._log.position
        self._tell_after(now, self._configuration.keepalive_ns)
        for request in self._outbox.waiting.values():
            request.asked = 0
            self._request(now, request)
        if self._outbox.waiting:
            self._reminding = True
            self._effects.append(SetTimer("request", self._configuration.repeat_ns))

    # A sequencer that lost its memory

    def _recover(self, now: Nanoseconds, pdu: Recover) -> None:
        """Tell what we hold, and from now on be deaf to earlier epochs.

        A question in an epoch that is over gets an answer too: should a clock have gone back, the sequencer
        learns from it that it needs a later epoch; otherwise nobody is waiting for the answer.
        """
        if pdu.epoch < self._promised:
            self._hear_earlier(now)
        if pdu.epoch > self._promised:
            self._promised = pdu.epoch
            self._miss_sequencer("It began anew.")
            if self._taking_part:
                self._join(now)
        report = Report(
            pdu.epoch, self._incarnation, self._attempt, self._outbox.first, self._promised, self._epoch,
            self._position_to_tell(), self._newcomer, self._log.kept_from, self._log.stable,
            dict(self._log.streams),
        )  # fmt: skip
        self._effects.append(Send(self._sequencer, report))

    def _fetch(self, _now: Nanoseconds, pdu: Fetch) -> None:
        if pdu.epoch != self._promised or self._taking_part:
            return
        for place in pdu.missing:
            entry = self._log.entries.get(place)
            if entry is not None and place < self._log.position:
                answer = Ordered(pdu.epoch, place, self._log.stable, self._site, *entry)
                self._effects.append(Send(self._sequencer, answer))

    # Functions, not bound methods: a member that refers to itself would outlive its use.
    _words: ClassVar[dict[type, Callable[["Follower", Nanoseconds, Any], None]]] = {
        Ordered: _ordered,
        Heartbeat: _heartbeat,
        Resume: _resume,
        Recover: _recover,
        Fetch: _fetch,
        Leave: _left,
        Roster: _enrol,
        Lacking: _lacking,
    }
