"""The late joiner's side of history: it delivers what the handlers' logs have first, then what is live.

While history comes, live deliveries are held back. The log of one handler is read from its beginning, and
delivered in its order, which FIFO allows: of each site, what follows on what was delivered before. History
and the live stream overlap: a batch that came from the log is dropped when it comes live, and the other way
round. So nothing depends on where exactly a stream was begun, and if too much is held back, it is dropped,
since the log has it too.

History is over when the log has been read to its end and reaches the beginning of each live stream, or the
handler has said that it will log no more of what lies below. What one log lacks (its member was away for a
while) is looked for in the others; what no log has ends the spell of presence, as any gap does. A handler
that is silent or vanishes is replaced by another, which learns what need not be sent again. If no handler
answers in time, the newcomer goes on without history, and says so.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from antiphon.core.effects import Absent, AwaitRoom, CaughtUp, Deliver, Effect, Multicast, Send
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.core.inputs import Past
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.group import Group
from antiphon.protocols.fifo.history import HistoryServer
from antiphon.protocols.fifo.pdus import MOST_PLACES, Chunk, Fetch, Inquire, Offer, Place
from antiphon.protocols.fifo.presence import Presence

HISTORY: Final = "history"
MOST_OFFERS: Final = 64
"""Handlers that are remembered. Raising it costs time when something is looked for that no log has."""
MOST_SITES: Final = 8192
"""Sites whose progress in history is remembered. Raising it costs memory."""
MOST_HELD: Final = 1 << 14
"""Batches held back, of any size, before they are dropped. Raising it costs memory."""
MOST_CYCLES: Final = 16
"""Passes through all logs; each but two must have brought something. Raising it costs time to give up."""
MOST_SWITCHES: Final = 64
"""Changes of the handler after a silence. Raising it costs time to give up."""
LONGEST_PAUSE: Final = 8
"""Pauses before a request is repeated double up to this multiple of the first. Raising it costs time
after a long loss."""


class Reached(NamedTuple):
    """The position up to which history delivered a site's messages, and in which spell of ours."""

    incarnation: int
    number: int
    spell: int

    @property
    def place(self) -> tuple[int, int]:
        return self.incarnation, self.number


class HistoryReader:
    """Reads handlers' logs, and holds back live deliveries meanwhile."""

    def __init__(self, context: Context, group: Group, presence: Presence, *, serves: bool) -> None:
        self._context = context
        self._group = group
        self._presence = presence
        self.server = HistoryServer(context, group, presence, self.on_answer) if serves else None
        """Serves this member's own log, if it keeps one."""
        self.filters = False
        """Whether deliveries must go through `filter`."""
        self._under_way = False
        self._paused = True
        self._spell = 0
        self._floor: Mapping[Site, int] = {}
        """An earlier incarnation of ours has delivered everything below these numbers."""
        self._reached: dict[Site, Reached] = {}
        self._held: deque[Deliver] = deque()
        self._held_bytes = self._own_bytes = self._own_batches = 0
        """Others' messages, which the logs have too; and our own, which may be nowhere else."""
        self._first: dict[Site, tuple[int, int]] = {}
        """Where the last range without a gap begins that is held back of each site."""
        self._ends: dict[Site, int] = {}
        """Where that range ends."""
        self._ready: list[Effect] = []
        """Effects that come before all others: history, in its order."""
        # The handler whose log is read, and the position in it.
        self._offers: dict[Site, int] = {}
        self._source: Site | None = None
        self._position = 0
        self._serial = 0
        self._request: Fetch | None = None
        self._attempts = 0
        self._due_ns: Nanoseconds = 0
        self._progress_ns: Nanoseconds = 0
        self._heard_ns: Nanoseconds = 0
        """When the handler last answered, or was first asked after a pause of ours."""
        # What the passes through the logs have shown.
        self._tried: set[Site] = set()
        self._settled: set[Site] = set()
        """Sites of which this log will have nothing more that is wanted."""
        self._holes: dict[Site, tuple[int, int]] = {}
        """Where a log goes on after a gap."""
        self._cycles = 0
        self._moved = False
        """Whether the cycle has brought anything."""
        self._asked_again = False
        self._jumping = False
        self._read_to_end = False
        """Whether any log was read to its end."""

    # Beginning and ending

    def start(self, *, returning: bool, delivered: Mapping[Site, int] | None) -> None:
        """Read history once we take part, except what was delivered before."""
        self._under_way = self.filters = True
        self._floor = delivered or {}
        if returning and delivered is None:
            self._give_up("An earlier log exists, and how far it went is not known.")
        if self.server is not None:
            self.server.lags = self._under_way

    def _give_up(self, reason: str) -> None:
        self._under_way = self.filters = False
        self._context.counts["history_given_up"] += 1
        self._context.emit(CaughtUp(False, reason))

    def _resume(self, now: Nanoseconds) -> None:
        """Begin, or go on after an absence."""
        self._paused = False
        self._progress_ns = now
        if self._source is None:
            self._inquire(now)
        else:
            self._await_room()

    def _finish(self, now: Nanoseconds, reason: str | None = None) -> None:
        """Deliver what was held back; from here on everything is live."""
        self._under_way = False
        self._source = self._request = None
        if self.server is not None:
            self.server.lags = False
        ready = self._ready
        while self._held:
            effect = self._held.popleft()
            if self._is_new(now, effect, ready):
                end = effect.number + len(effect.bodies)
                self._reached[effect.sender] = Reached(effect.incarnation, end, self._spell)
                ready.append(effect)
        self._first.clear()
        self._ends.clear()
        self._held_bytes = self._own_bytes = self._own_batches = 0
        if reason is not None:
            self._context.counts["history_given_up"] += 1
        result = reason or "Everything that the logs still have has come."
        ready.append(CaughtUp(reason is None, result))

    # Between the protocol and the application

    def filter(self, now: Nanoseconds, effects: list[Effect]) -> list[Effect]:
        """The protocol's effects without deliveries that are held back or repeated, after history."""
        passed, self._ready = self._ready, []
        for effect in effects:
            if type(effect) is not Deliver:
                if type(effect) is Absent:
                    self._spell += 1
                passed.append(effect)
            elif self._under_way:
                self._hold(effect)
            elif self._is_new(now, effect, passed):
                self._reached.pop(effect.sender, None)
                passed.append(effect)
        if self._under_way:
            self._look(now)
        passed += self._ready
        passed += self._context.take_effects()
        self._ready = []
        self.filters = self._under_way or bool(self._reached)
        return passed

    def _look(self, now: Nanoseconds) -> None:
        """Begin, go on after an absence, or make room if too much is held back."""
        if not self._presence.taking_part:
            self._paused = True
        elif self._paused:
            self._resume(now)
        elif self._is_too_much(self._held_bytes, len(self._held) - self._own_batches):
            self._make_room(now)

    def _is_too_much(self, held_bytes: int, batches: int) -> bool:
        return held_bytes > self._context.configuration.history_bytes or batches > MOST_HELD

    def _is_new(self, now: Nanoseconds, effect: Deliver, before: list[Effect]) -> bool:
        """Whether history has not delivered this; a gap between the two ends a spell."""
        reached = self._reached.get(effect.sender)
        if reached is None:
            return True
        if (effect.incarnation, effect.number) < reached.place:
            if self._is_possible(effect.sender, *reached.place):
                return False
            # A log had more of this site than it ever sent.
            del self._reached[effect.sender]
            self._cut(now, effect.sender, before)
        elif effect.number > reached.number and reached.spell == self._spell:
            self._cut(now, effect.sender, before)
        return True

    def _cut(self, now: Nanoseconds, site: Site, before: list[Effect]) -> None:
        """No log has what is missing: one spell ends, another begins."""
        effects = self._context.effects
        begin = len(effects)
        self._presence.note_gap(now, site)
        before += effects[begin:]
        del effects[begin:]
        self._spell += 1
        self._context.counts["history_gaps"] += 1

    def _hold(self, effect: Deliver) -> None:
        """Hold a live delivery back until history has come."""
        site, number = effect.sender, effect.number
        if self._ends.get(site) != number:
            self._first[site] = (effect.incarnation, number)
        self._ends[site] = number + len(effect.bodies)
        self._held.append(effect)
        size = getattr(effect.bodies, "size", 0)
        if site == self._context.site:
            self._own_bytes += size
            self._own_batches += 1
        else:
            self._held_bytes += size

    def _make_room(self, now: Nanoseconds) -> None:
        """Too much is held back: drop it, since a handler's log has it too; without a handler give up."""
        own = self._context.site
        if self._source in (None, own) and any(site not in (own, *self._tried) for site in self._offers):
            self._tried.add(own)
            self._choose(now)
            if not self._under_way:
                return
        if self._source in (None, own):
            self._finish(now, "More came than could be held back while no member's history was to be had.")
            return
        for site in [site for site in self._first if site != own]:
            # From here on it must come from the log.
            self._reached.setdefault(site, Reached(*self._first.pop(site), self._spell))
            del self._ends[site]
        self._held = deque(effect for effect in self._held if effect.sender == own)
        self._held_bytes = 0
        self._settled.clear()
        self._moved = True

    @property
    def held_back_bytes(self) -> int:
        """Bytes of live deliveries that wait for history."""
        return self._held_bytes + self._own_bytes

    @property
    def is_full(self) -> bool:
        """Whether too many of our own messages are held back to admit more."""
        return self._is_too_much(self._own_bytes, self._own_batches)

    # The choice of a handler

    def _inquire(self, now: Nanoseconds) -> None:
        """Ask all members which of them keep history, and wait a while for answers."""
        inquiry = Inquire(self._context.incarnation)
        if not self._group.is_alone():
            self._context.emit(Multicast(inquiry))
        if self.server is not None:
            self.server.on_request(self._context.site, inquiry)
        self._wait(now, self._context.configuration.heartbeat_ns)

    def _wait(self, now: Nanoseconds, span_ns: Nanoseconds) -> None:
        self._due_ns = now + span_ns
        self._context.timers.arm(now, HISTORY, span_ns)

    def on_answer(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        """An offer, or a piece of a log."""
        if not self._under_way:
            return
        if type(pdu) is Offer:
            known = sender in self._offers
            if self._may_serve(sender) and (known or len(self._offers) < MOST_OFFERS):
                self._offers[sender] = pdu.messages
        elif type(pdu) is Chunk:
            request = self._request
            fits = request is not None and pdu.serial == request.serial and sender == self._source
            if fits and self._presence.taking_part:
                self._take_chunk(now, pdu)

    def _may_serve(self, site: Site) -> bool:
        peer = self._group.peers.get(site)
        return site == self._context.site or (peer is not None and peer.in_view)

    def _choose(self, now: Nanoseconds) -> None:
        """Read the longest log of those not read yet in this cycle."""
        self._offers = {site: messages for site, messages in self._offers.items() if self._may_serve(site)}
        fresh = sorted(
            (-messages, site) for site, messages in self._offers.items() if site not in self._tried
        )
        if fresh:
            self._source = fresh[0][1]
            self._position = 0
            self._settled.clear()
            self._progress_ns = now
            self._await_room()
        elif self._tried:
            self._conclude(now)
        elif (
            self._is_late(now, self._progress_ns) or self._context.counts["history_switches"] > MOST_SWITCHES
        ):
            self._finish(now, "No member that keeps history has answered.")
        else:
            self._inquire(now)

    def _leave_source(self, now: Nanoseconds) -> None:
        """The handler is silent: it is taken to be gone until it makes another offer."""
        assert self._source is not None, "only a log that is read can be left"
        self._context.counts["history_switches"] += 1
        self._offers.pop(self._source, None)
        self._source = self._request = None
        self._progress_ns = now
        self._choose(now)

    # Reading

    def _await_room(self) -> None:
        self._request = None
        self._context.emit(AwaitRoom())

    def has_room(self, now: Nanoseconds) -> None:
        """The application can take more: ask for it."""
        if not self._under_way or self._paused or self._source is None or self._request is not None:
            return
        self._progress_ns = self._heard_ns = now
        self._fetch(now, ())

    def _fetch(self, now: Nanoseconds, wanted: tuple[Place, ...]) -> None:
        self._serial += 1
        have: tuple[Place, ...] = ()
        if self._tried or self._context.counts["history_switches"]:
            reached = list(self._reached.items())[-MOST_PLACES:]
            have = tuple(Place(site, *entry.place) for site, entry in reached)
        self._request = Fetch(self._context.incarnation, self._serial, self._position, have, wanted)
        self._attempts = 0
        self._send(now)

    def _send(self, now: Nanoseconds) -> None:
        source, request = self._source, self._request
        assert source is not None, "a request goes to a handler"
        assert request is not None, "there is something to ask for"
        if source == self._context.site and self.server is not None:
            self.server.on_request(source, request)
        else:
            self._context.emit(Send(source, request))
        factor = min(1 << self._attempts, LONGEST_PAUSE)
        self._attempts += 1
        self._wait(now, factor * self._context.configuration.repair_ns)

    def fire(self, now: Nanoseconds) -> None:
        """Repeat the request, or choose another handler."""
        if not self._under_way or self._paused:
            return
        if now < self._due_ns:
            self._context.timers.arm(now, HISTORY, self._due_ns - now)
        elif self._source is None:
            self._choose(now)
        elif self._request is None:
            pass  # the application has no room yet
        elif not self._may_serve(self._source) or self._is_late(now, self._heard_ns):
            self._leave_source(now)
        else:
            self._send(now)

    def _is_late(self, now: Nanoseconds, since_ns: Nanoseconds) -> bool:
        return now - since_ns >= self._context.configuration.history_ns

    def _take_chunk(self, now: Nanoseconds, chunk: Chunk) -> None:
        request = self._request
        assert request is not None, "a chunk that answers nothing is not taken"
        self._heard_ns = now
        if not chunk.is_end and chunk.following <= self._position:
            self._context.ignore()
            self._leave_source(now)
            return
        moved = sum(self._take(now, record) for record in chunk.records)
        if moved or chunk.following > self._position:
            self._progress_ns = now
        self._moved |= moved > 0
        self._position = max(self._position, chunk.following)
        if not chunk.is_end:
            self._await_room()
            return
        self._read_to_end = True
        behind = set(chunk.behind)
        self._settled |= {place.site for place in request.wanted if place.site not in behind}
        wanted = [place for place in self._open() if place.site not in self._settled]
        if not wanted or self._is_late(now, self._progress_ns):
            self._end_pass(now)
        elif {place.site for place in request.wanted} & behind:
            self._look_again(now, wanted)
        else:
            self._fetch(now, tuple(wanted[:MOST_PLACES]))

    def _look_again(self, now: Nanoseconds, wanted: list[Place]) -> None:
        """The handler has not delivered that much yet: ask again after a pause."""
        self._serial += 1
        self._request = Fetch(
            self._context.incarnation, self._serial, self._position, (), tuple(wanted[:MOST_PLACES])
        )
        self._attempts = 0
        self._wait(now, self._context.configuration.repair_ns)

    def _take(self, now: Nanoseconds, record: Past) -> bool:
        """Deliver a batch of history if it follows on what was delivered; whether it does."""
        try:
            bodies = Packed(record.bodies)
        except ValueError:
            self._context.ignore()
            return False
        site, incarnation, number = record.sender, record.incarnation, record.number
        if not self._is_possible(site, incarnation, number + len(bodies)):
            self._context.ignore()
            return False
        if number < self._floor.get(site, 0) or not self._follows(now, site, incarnation, number):
            return False
        self._reached[site] = Reached(incarnation, number + len(bodies), self._spell)
        self._context.counts["history_messages"] += len(bodies)
        self._ready.append(Deliver(site, number, bodies, None, incarnation))
        self._bound_sites(now)
        return True

    def _is_possible(self, site: Site, incarnation: int, end: int) -> bool:
        """Whether a site may have sent this much: a site in the view has announced the end of its messages.

        What a log has beyond that will come live, or was never sent.
        """
        if site == self._context.site:
            return (incarnation, end) <= (self._context.incarnation, self._group.own.expected)
        peer = self._group.peers.get(site)
        if peer is None or not peer.in_view or not peer.newest.begun:
            return end < NUMBER_LIMIT
        return (incarnation, end) <= (peer.incarnation, peer.newest.seen)

    def _follows(self, now: Nanoseconds, site: Site, incarnation: int, number: int) -> bool:
        reached = self._reached.get(site)
        if reached is None:
            target = self._target(site)
            return target is None or (incarnation, number) <= target
        if (incarnation, number) < reached.place:
            return False
        if number > reached.number and reached.spell == self._spell:
            if not self._jumping:
                self._holes.setdefault(site, (incarnation, number))
                return False
            self._cut(now, site, self._ready)
        return True

    def _bound_sites(self, now: Nanoseconds) -> None:
        """Forget one site if there are too many; the end of a spell excuses its gaps."""
        if len(self._reached) > MOST_SITES:
            gone = next((site for site in self._reached if site not in self._group.peers), None)
            site = next(iter(self._reached)) if gone is None else gone
            if self._reached.pop(site).spell == self._spell:
                self._cut(now, site, self._ready)

    # Whether history has closed up

    def _target(self, site: Site) -> tuple[int, int] | None:
        """Where the live deliveries of a site begin."""
        peer = self._group.peers.get(site)
        if site == self._context.site:
            live = (self._context.incarnation, self._group.own.delivered)
        elif peer is not None and peer.stream.begun:
            live = (peer.stream.incarnation, peer.stream.expected)
        else:
            return self._first.get(site)
        return self._first[site] if self._ends.get(site) == live[1] else live

    def _open(self) -> list[Place]:
        """The live streams that history has not reached, but might."""
        return [Place(site, *target) for site, target, _ in self._unclosed()]

    def _unclosed(self) -> Iterator[tuple[Site, tuple[int, int], bool]]:
        """Each such stream, where it begins, and whether something is certainly missing before it."""
        own, peers = self._context.site, self._group.peers.values()
        beginnings = [(peer.site, peer.stream.first) for peer in peers if peer.stream.begun]
        for site, first in [*beginnings, (own, self._group.own.first)]:
            target, reached = self._target(site), self._reached.get(site)
            assert target is not None, "what is followed begins somewhere"
            if reached is None:
                if target[1] > max(first, self._floor.get(site, 0)) and site != own:
                    yield site, target, False
            elif reached.place < target and reached.number != target[1]:
                yield site, target, True

    def _gap_is_known(self) -> bool:
        """Whether a log goes on after a gap behind what was delivered."""
        return any(
            self._reached[site].place < place and self._reached[site].spell == self._spell
            for site, place in self._holes.items()
            if site in self._reached
        )

    def _end_pass(self, now: Nanoseconds) -> None:
        """This log has no more: another may have what is still missing."""
        assert self._source is not None
        self._tried.add(self._source)
        self._source = self._request = None
        if self._gap_is_known() or self._open():
            self._choose(now)
        else:
            self._finish(now)

    def _conclude(self, now: Nanoseconds) -> None:
        """All logs have been read: read them again if that may help, else skip what no log has."""
        gap_is_known = self._gap_is_known()
        needs = gap_is_known or any(certain for _, _, certain in self._unclosed())
        if not needs or self._cycles >= MOST_CYCLES:
            self._finish(now, None if self._read_to_end else "No log could be read to its end.")
        elif self._moved:
            self._begin_cycle(now)
        elif not self._asked_again:
            self._asked_again = True
            self._inquire(now)
        elif gap_is_known and not self._jumping:
            self._jumping = True
            self._begin_cycle(now)
        else:
            self._finish(now)

    def _begin_cycle(self, now: Nanoseconds) -> None:
        self._cycles += 1
        self._moved = False
        self._tried.clear()
        self._holes.clear()
        self._choose(now)
