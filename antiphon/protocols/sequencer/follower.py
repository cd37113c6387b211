"""A member that is not the sequencer: asks for places, delivers in order, finds gaps, comes back."""

from antiphon.core.effects import (
    Absent,
    Admitted,
    Arrived,
    CancelTimer,
    Effect,
    Present,
    Rejected,
    Send,
    SetTimer,
)
from antiphon.core.ids import Site
from antiphon.core.inputs import Start
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.sequencer.log import Entry, Log, Outbox, Outstanding
from antiphon.protocols.sequencer.pdus import (
    MOST_MISSING,
    NO_POSITION,
    Acknowledge,
    Fetch,
    Heartbeat,
    Join,
    Ordered,
    Recover,
    Report,
    Request,
    Resume,
    SequencerConfiguration,
)

REPEATS_AT_ONCE = 16
"""Requests that one timer repeats at most: the oldest, since the sequencer takes them in order."""
LONGEST_PAUSE = 8
"""Pauses between repetitions double up to this multiple of the first."""


class Follower:
    """Takes part (`_taking_part`), or tries to (`Join` until `Resume`)."""

    def __init__(self, site: Site, members: tuple[Site, ...], configuration: SequencerConfiguration) -> None:
        self.ignored = 0
        self._site = site
        self._sequencer = members[0]
        # The sequencer delivers what one more member holds; this one tells it without delay.
        self._witness = site == members[1]
        self._configuration = configuration
        self._log = Log(members)
        self._outbox = Outbox(configuration.window)
        self._incarnation = 0
        self._epoch = 0
        self._promised = 0
        self._attempt = 0
        self._taking_part = False
        self._remembers = True
        self._absent = False
        self._seen = 0
        self._told = 0
        self._telling_soon = False
        self._gap_pause_ns = 0
        self._effects: list[Effect] = []

    # Inputs

    def start(self, now: Nanoseconds, event: Start) -> None:
        self._incarnation = event.incarnation
        self._outbox.begin(event.next_number)
        if event.incarnation:
            self._absent = True
            self._remembers = False
            self._join()
        else:
            self._take_part(now)

    def admit(self, now: Nanoseconds, bodies: tuple[bytes, ...]) -> None:
        if self._outbox.full():
            self._effects.append(Rejected("As many messages as the window holds wait for their place."))
            return
        if not self._outbox.waiting and self._taking_part:
            self._effects.append(SetTimer("request", self._configuration.repeat_ns))
        request = self._outbox.take(bodies, self._configuration.repeat_ns)
        self._effects.append(Admitted(request.number, len(bodies), sum(map(len, bodies))))
        if self._taking_part:
            self._request(now, request)

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if sender != self._sequencer:
            self.ignored += 1
            return
        match pdu:
            case Ordered():
                self._ordered(pdu)
            case Heartbeat():
                self._heartbeat(pdu)
            case Resume():
                self._resume(now, pdu)
            case Recover():
                self._recover(pdu)
            case Fetch():
                self._fetch(pdu)
            case _:
                self.ignored += 1

    def fire(self, now: Nanoseconds, name: str) -> None:
        if not self._taking_part:
            if name == "join":
                self._send_join()
        elif name == "request":
            self._repeat(now)
        elif name == "acknowledge":
            self._tell()
        elif name == "gap":
            self._ask()

    def depart(self) -> None:
        if not self._absent:
            self._absent = True
            self._effects.append(Absent())

    def come_back(self, now: Nanoseconds) -> None:  # noqa: ARG002
        self._join()

    def suspect(self, now: Nanoseconds, site: Site) -> None:
        """Only the sequencer keeps count of who is there."""

    def restore(self, now: Nanoseconds, site: Site) -> None:
        """Only the sequencer keeps count of who is there."""

    def effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # Requests

    def _request(self, now: Nanoseconds, request: Outstanding) -> None:
        request.sent_ns = now
        pdu = Request(self._incarnation, self._outbox.first, request.number, request.bodies)
        self._effects.append(Send(self._sequencer, pdu))

    def _repeat(self, now: Nanoseconds) -> None:
        longest_ns = LONGEST_PAUSE * self._configuration.repeat_ns
        repeated = 0
        for request in self._outbox.waiting.values():
            if repeated < REPEATS_AT_ONCE and request.sent_ns + request.pause_ns <= now:
                request.pause_ns = min(2 * request.pause_ns, longest_ns)
                self._request(now, request)
                repeated += 1
        if self._outbox.waiting:
            self._effects.append(SetTimer("request", self._configuration.repeat_ns))

    # The order

    def _follows(self, epoch: int) -> bool:
        """Whether a PDU of this epoch concerns the order that we follow."""
        if self._taking_part and epoch == self._epoch:
            return True
        if self._taking_part and epoch > self._epoch:
            # The sequencer recovered without us: only it can tell whether we may go on.
            self._promised = epoch
            self._join()
        return False

    def _ordered(self, pdu: Ordered) -> None:
        if pdu.position < 0 or pdu.number < 0 or not pdu.bodies or pdu.sender not in self._log.streams:
            self.ignored += 1
            return
        if not self._follows(pdu.epoch):
            return
        log = self._log
        if pdu.stable > log.position:
            self._fall_out()
            return
        # A lying sequencer could name a position without end; what we keep beyond a gap is bounded.
        within = pdu.position < log.position + 2 * self._configuration.order_window
        if within and pdu.position >= log.position and pdu.position not in log.entries:
            log.entries[pdu.position] = Entry(pdu.sender, pdu.number, pdu.bodies)
            if pdu.sender != self._site:
                self._effects.append(Arrived(pdu.sender, pdu.number, len(pdu.bodies)))
        self._advance()
        self._see(pdu.position + 1)
        self._effects += log.release(max(log.stable, pdu.stable))

    def _advance(self) -> None:
        log = self._log
        before = log.position
        log.advance()
        if log.position == before:
            return
        self._effects += log.deliver(log.position)
        self._outbox.settle(log.streams[self._site])
        self._gap_pause_ns = self._configuration.gap_ns
        untold = log.position - self._told
        if self._witness or untold >= self._configuration.acknowledge_every:
            self._acknowledge()
        else:
            self._tell_soon()

    def _heartbeat(self, pdu: Heartbeat) -> None:
        if not self._follows(pdu.epoch):
            return
        if pdu.stable > self._log.position:
            self._fall_out()
            return
        self._see(pdu.next_position)
        self._effects += self._log.release(max(self._log.stable, pdu.stable))
        if pdu.stable < self._log.position:
            self._tell_soon()  # our acknowledgement may be lost

    # Gaps and acknowledgements

    def _see(self, next_position: int) -> None:
        """The order is known to go this far; what is missing is asked for unless it comes by itself."""
        if next_position > self._log.position and self._seen <= self._log.position:
            self._effects.append(SetTimer("gap", self._configuration.gap_ns))
        self._seen = max(self._seen, next_position)

    def _ask(self) -> None:
        missing = self._log.missing(self._seen, MOST_MISSING)
        if not missing:
            return
        self._acknowledge(missing)
        self._effects.append(SetTimer("gap", self._gap_pause_ns))
        self._gap_pause_ns = min(2 * self._gap_pause_ns, LONGEST_PAUSE * self._configuration.gap_ns)

    def _acknowledge(self, missing: tuple[int, ...] = ()) -> None:
        self._told = self._log.position
        pdu = Acknowledge(self._epoch, self._incarnation, self._told, missing)
        self._effects.append(Send(self._sequencer, pdu))

    def _tell_soon(self) -> None:
        if not self._telling_soon:
            self._telling_soon = True
            self._effects.append(SetTimer("acknowledge", self._configuration.acknowledge_ns))

    def _tell(self) -> None:
        self._acknowledge()
        self._telling_soon = False
        self._effects.append(SetTimer("acknowledge", self._configuration.keepalive_ns))

    # Coming back

    def _fall_out(self) -> None:
        """What we lack was called stable: we were left out, and this presence spell is over."""
        if not self._absent:
            self._absent = True
            self._effects.append(Absent())
        self._log.jump(self._log.position, self._log.stable, {})
        self._join()

    def _join(self) -> None:
        self._attempt += 1
        self._taking_part = False
        self._effects += (CancelTimer("request"), CancelTimer("acknowledge"), CancelTimer("gap"))
        self._send_join()

    def _send_join(self) -> None:
        pdu = Join(
            self._incarnation, self._outbox.first, self._attempt, self._epoch, self._position_to_tell()
        )
        self._effects.append(Send(self._sequencer, pdu))
        self._effects.append(SetTimer("join", self._configuration.repeat_ns))

    def _position_to_tell(self) -> int:
        return self._log.position if self._remembers else NO_POSITION

    def _resume(self, now: Nanoseconds, pdu: Resume) -> None:
        ours = (pdu.incarnation, pdu.attempt) == (self._incarnation, self._attempt)
        if self._taking_part or not ours or pdu.epoch < self._promised or pdu.position < 0:
            return
        log = self._log
        if not pdu.kept:
            self.depart()
            log.jump(pdu.position, pdu.stable, pdu.streams)
        elif pdu.position != self._position_to_tell() or pdu.stable > log.position:
            self.ignored += 1
            return
        elif pdu.epoch != self._epoch:
            # What lies beyond a gap may have another place in the recovered order.
            log.drop_ahead()
        self._epoch = self._promised = pdu.epoch
        self._remembers = True
        self._outbox.settle(log.streams[self._site])
        self._effects.append(CancelTimer("join"))
        self._take_part(now)

    def _take_part(self, now: Nanoseconds) -> None:
        self._taking_part = True
        if self._absent:
            self._absent = False
            self._effects.append(Present())
        self._seen = self._told = self._log.position
        self._telling_soon = False
        self._gap_pause_ns = self._configuration.gap_ns
        self._effects.append(SetTimer("acknowledge", self._configuration.keepalive_ns))
        for request in self._outbox.waiting.values():
            request.pause_ns = self._configuration.repeat_ns
            self._request(now, request)
        if self._outbox.waiting:
            self._effects.append(SetTimer("request", self._configuration.repeat_ns))

    # A sequencer that lost its memory

    def _recover(self, pdu: Recover) -> None:
        if pdu.epoch < self._promised or pdu.epoch <= self._epoch:
            return
        self._promised = pdu.epoch
        if self._taking_part:
            self._join()
        report = Report(
            pdu.epoch, self._incarnation, self._attempt, self._epoch, self._position_to_tell(),
            self._log.kept_from, self._log.stable, dict(self._log.streams),
        )  # fmt: skip
        self._effects.append(Send(self._sequencer, report))

    def _fetch(self, pdu: Fetch) -> None:
        if pdu.epoch != self._promised or self._taking_part:
            return
        for place in pdu.missing[:MOST_MISSING]:
            entry = self._log.entries.get(place)
            if entry is not None:
                answer = Ordered(pdu.epoch, place, self._log.stable, *entry)
                self._effects.append(Send(self._sequencer, answer))
