"""The late joiner's side of history: what the handlers' logs have is delivered first, then what is live.

While history comes, live deliveries are held back. The log of one handler is read from its beginning, and
what it has is delivered in its order, which is one that FIFO allows: of each site whatever follows on what
was delivered before. History and the live stream overlap rather than meet: a batch that came by the log is
passed over when it comes live, and the other way round. So nothing depends on where exactly a stream was
begun, and if more is held back than may be, it is let go of, since the log has it too.

History is over when the log has been read to its end and has closed up to where each live stream begins, or
the handler has said that it will log no more of what lies below. What one log lacks (its member was away for
a while) is looked for in the others; what none has ends the spell of presence, as any gap does. A handler
that is silent or vanishes is left for another, which is told what need not be sent again. If nobody answers
in time, the newcomer goes on without, and says so.
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
from antiphon.protocols.fifo.history import Keeper
from antiphon.protocols.fifo.pdus import MOST_PLACES, Chunk, Fetch, Inquire, Offer, Place
from antiphon.protocols.fifo.presence import Spells
from antiphon.protocols.fifo.state import State

HISTORY: Final = "history"
MOST_OFFERS: Final = 64
"""Handlers that are remembered. Raising it costs time when what nobody has is looked for."""
MOST_SITES: Final = 8192
"""Sites of which it is remembered how far history went. Raising it costs memory."""
MOST_HELD: Final = 1 << 14
"""Batches held back before something is done about it, whatever their size."""
MOST_CYCLES: Final = 16
"""How often all logs are gone through at most; each time but two must have brought something."""
MOST_SWITCHES: Final = 64
"""How often a handler that fell silent is left for another, or itself, at most."""
LONGEST_PAUSE: Final = 8
"""Pauses before a request is repeated double up to this multiple of the first."""


class Reached(NamedTuple):
    """How far a site's messages were delivered, by history, and in which spell of ours."""

    incarnation: int
    number: int
    spell: int

    @property
    def place(self) -> tuple[int, int]:
        return self.incarnation, self.number


class CatchUp:
    """Reads handlers' logs, and stands between the protocol's live deliveries and the application."""

    def __init__(self, state: State, spells: Spells) -> None:
        self._state = state
        self._spells = spells
        self.keeper: Keeper | None = None
        """This member's own log, if it keeps one."""
        self.watching = False
        """Whether deliveries must go through `sift`."""
        self._under_way = False
        self._paused = True
        self._spell = 0
        self._floor: Mapping[Site, int] = {}
        """Below this history brings nothing: it was delivered by an earlier incarnation of ours."""
        self._reached: dict[Site, Reached] = {}
        self._held: deque[Deliver] = deque()
        self._held_bytes = self._own_bytes = self._own_batches = 0
        """Of others' messages, which the logs have too; and of our own, which may be nowhere else."""
        self._first: dict[Site, tuple[int, int]] = {}
        """Where what is held back of each site, and has no gap, begins; and where it ends."""
        self._ends: dict[Site, int] = {}
        self._ready: list[Effect] = []
        """What is to be done before anything else: history, in its order."""
        # Whose log is read, and how far.
        self._offers: dict[Site, int] = {}
        self._source: Site | None = None
        self._position = 0
        self._serial = 0
        self._request: Fetch | None = None
        self._attempts = 0
        self._due_ns: Nanoseconds = 0
        self._progress_ns: Nanoseconds = 0
        self._heard_ns: Nanoseconds = 0
        """When the handler last said anything, or was first asked after a pause of ours."""
        # What the passes through the logs have shown.
        self._tried: set[Site] = set()
        self._settled: set[Site] = set()
        """Of these sites this log will have no more of what is wanted."""
        self._holes: dict[Site, tuple[int, int]] = {}
        """Where a log goes on behind a gap."""
        self._cycles = 0
        self._moved = False
        """Whether the cycle has brought anything."""
        self._asked_again = False
        self._jumping = False
        self._read_to_end = False
        """Whether any log was."""

    # Beginning and ending

    def want(self, *, returning: bool, delivered: Mapping[Site, int] | None) -> None:
        """History is wanted, once we take part, save what was delivered before."""
        self._under_way = self.watching = True
        self._floor = delivered or {}
        if returning and delivered is None:
            self._finish_in_vain("An earlier log exists, and how far it went is not known.")
        if self.keeper is not None:
            self.keeper.lags = self._under_way

    def _finish_in_vain(self, reason: str) -> None:
        self._under_way = self.watching = False
        self._state.counts["history_given_up"] += 1
        self._state.effects.append(CaughtUp(False, reason))

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
        if self.keeper is not None:
            self.keeper.lags = False
        ready = self._ready
        while self._held:
            effect = self._held.popleft()
            if self._let_by(now, effect, ready):
                end = effect.number + len(effect.bodies)
                self._reached[effect.sender] = Reached(effect.incarnation, end, self._spell)
                ready.append(effect)
        self._first.clear()
        self._ends.clear()
        self._held_bytes = self._own_bytes = self._own_batches = 0
        if reason is not None:
            self._state.counts["history_given_up"] += 1
        told = reason or "Everything that the logs still have has come."
        ready.append(CaughtUp(reason is None, told))

    # Between the protocol and the application

    def sift(self, now: Nanoseconds, effects: list[Effect]) -> list[Effect]:
        """What is left of the protocol's effects, with history before them."""
        passed, self._ready = self._ready, []
        for effect in effects:
            if type(effect) is not Deliver:
                if type(effect) is Absent:
                    self._spell += 1
                passed.append(effect)
            elif self._under_way:
                self._hold(effect)
            elif self._let_by(now, effect, passed):
                self._reached.pop(effect.sender, None)
                passed.append(effect)
        if self._under_way:
            self._look(now)
        passed += self._ready
        passed += self._state.effects
        self._ready, self._state.effects = [], []
        self.watching = self._under_way or bool(self._reached)
        return passed

    def _look(self, now: Nanoseconds) -> None:
        """Begin, go on after an absence, or see to it that not too much is held back."""
        if not self._state.taking_part:
            self._paused = True
        elif self._paused:
            self._resume(now)
        elif self._is_too_much(self._held_bytes, len(self._held) - self._own_batches):
            self._make_room(now)

    def _is_too_much(self, held_bytes: int, batches: int) -> bool:
        return held_bytes > self._state.configuration.history_bytes or batches > MOST_HELD

    def _let_by(self, now: Nanoseconds, effect: Deliver, before: list[Effect]) -> bool:
        """Whether a live delivery is not history yet; a gap between the two ends a spell."""
        reached = self._reached.get(effect.sender)
        if reached is None:
            return True
        if (effect.incarnation, effect.number) < reached.place:
            if self._is_possible(effect.sender, *reached.place):
                return False
            # A log has told more of this site than it ever sent.
            del self._reached[effect.sender]
            self._cut(now, effect.sender, before)
        elif effect.number > reached.number and reached.spell == self._spell:
            self._cut(now, effect.sender, before)
        return True

    def _cut(self, now: Nanoseconds, site: Site, before: list[Effect]) -> None:
        """Something is missing that nobody has: one spell ends, another begins."""
        state = self._state
        begin = len(state.effects)
        self._spells.note_gap(now, site)
        before += state.effects[begin:]
        del state.effects[begin:]
        self._spell += 1
        state.counts["history_gaps"] += 1

    def _hold(self, effect: Deliver) -> None:
        """Hold a live delivery back until history has come."""
        site, number = effect.sender, effect.number
        if self._ends.get(site) != number:
            self._first[site] = (effect.incarnation, number)
        self._ends[site] = number + len(effect.bodies)
        self._held.append(effect)
        size = getattr(effect.bodies, "size", 0)
        if site == self._state.site:
            self._own_bytes += size
            self._own_batches += 1
        else:
            self._held_bytes += size

    def _make_room(self, now: Nanoseconds) -> None:
        """Too much is held back: another's log has it too; but if none is known, history cannot be had."""
        own = self._state.site
        if self._source in (None, own) and any(site not in (own, *self._tried) for site in self._offers):
            self._tried.add(own)
            self._choose(now)
            if not self._under_way:
                return
        if self._source in (None, own):
            self._finish(now, "More came than could be held back while nobody's history was to be had.")
            return
        for site in [site for site in self._first if site != own]:
            # From here on it must come by history.
            self._reached.setdefault(site, Reached(*self._first.pop(site), self._spell))
            del self._ends[site]
        self._held = deque(effect for effect in self._held if effect.sender == own)
        self._held_bytes = 0
        self._settled.clear()
        self._moved = True

    @property
    def held_back_bytes(self) -> int:
        """What waits for the history that comes before it."""
        return self._held_bytes + self._own_bytes

    @property
    def is_full(self) -> bool:
        """Whether so many of our own messages are held back that no more should be taken."""
        return self._is_too_much(self._own_bytes, self._own_batches)

    # Whose log to read

    def _inquire(self, now: Nanoseconds) -> None:
        """Ask all who keeps history, and wait a while for answers."""
        inquiry = Inquire(self._state.incarnation)
        if not self._state.alone():
            self._state.effects.append(Multicast(inquiry))
        if self.keeper is not None:
            self.keeper.asked(self._state.site, inquiry)
        self._wait(now, self._state.configuration.heartbeat_ns)

    def _wait(self, now: Nanoseconds, span_ns: Nanoseconds) -> None:
        self._due_ns = now + span_ns
        self._state.arm(now, HISTORY, span_ns)

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        """An offer, or a piece of a log."""
        if not self._under_way:
            return
        if type(pdu) is Offer:
            known = sender in self._offers
            if self._counts(sender) and (known or len(self._offers) < MOST_OFFERS):
                self._offers[sender] = pdu.messages
        elif type(pdu) is Chunk:
            request = self._request
            fits = request is not None and pdu.serial == request.serial and sender == self._source
            if fits and self._state.taking_part:
                self._take_chunk(now, pdu)

    def _counts(self, site: Site) -> bool:
        peer = self._state.peers.get(site)
        return site == self._state.site or (peer is not None and peer.counted)

    def _choose(self, now: Nanoseconds) -> None:
        """Read the log that has most, of those not read yet in this cycle."""
        self._offers = {site: messages for site, messages in self._offers.items() if self._counts(site)}
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
        elif self._is_late(now, self._progress_ns) or self._state.counts["history_switches"] > MOST_SWITCHES:
            self._finish(now, "Nobody who keeps history has answered.")
        else:
            self._inquire(now)

    def _leave_source(self, now: Nanoseconds) -> None:
        """The handler is silent: it is as good as gone until it makes another offer."""
        assert self._source is not None, "only a log that is read can be left"
        self._state.counts["history_switches"] += 1
        self._offers.pop(self._source, None)
        self._source = self._request = None
        self._progress_ns = now
        self._choose(now)

    # Reading

    def _await_room(self) -> None:
        self._request = None
        self._state.effects.append(AwaitRoom())

    def has_room(self, now: Nanoseconds) -> None:
        """The application can take more: ask for it."""
        if not self._under_way or self._paused or self._source is None or self._request is not None:
            return
        self._progress_ns = self._heard_ns = now
        self._fetch(now, ())

    def _fetch(self, now: Nanoseconds, wanted: tuple[Place, ...]) -> None:
        self._serial += 1
        have: tuple[Place, ...] = ()
        if self._tried or self._state.counts["history_switches"]:
            reached = list(self._reached.items())[-MOST_PLACES:]
            have = tuple(Place(site, *entry.place) for site, entry in reached)
        self._request = Fetch(self._state.incarnation, self._serial, self._position, have, wanted)
        self._attempts = 0
        self._send(now)

    def _send(self, now: Nanoseconds) -> None:
        source, request = self._source, self._request
        assert source is not None, "a request has someone to go to"
        assert request is not None, "there is something to ask for"
        if source == self._state.site and self.keeper is not None:
            self.keeper.asked(source, request)
        else:
            self._state.effects.append(Send(source, request))
        factor = min(1 << self._attempts, LONGEST_PAUSE)
        self._attempts += 1
        self._wait(now, factor * self._state.configuration.repair_ns)

    def fire(self, now: Nanoseconds) -> None:
        """Ask again, look again whether a handler has got further, or choose another."""
        if not self._under_way or self._paused:
            return
        if now < self._due_ns:
            self._state.arm(now, HISTORY, self._due_ns - now)
        elif self._source is None:
            self._choose(now)
        elif self._request is None:
            pass  # the application has no room yet
        elif not self._counts(self._source) or self._is_late(now, self._heard_ns):
            self._leave_source(now)
        else:
            self._send(now)

    def _is_late(self, now: Nanoseconds, since_ns: Nanoseconds) -> bool:
        return now - since_ns >= self._state.configuration.history_ns

    def _take_chunk(self, now: Nanoseconds, chunk: Chunk) -> None:
        request = self._request
        assert request is not None, "a chunk that answers nothing is not taken"
        self._heard_ns = now
        if not chunk.is_end and chunk.following <= self._position:
            self._state.ignore()
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
        """The handler is not that far yet: ask once more, after a pause."""
        self._serial += 1
        self._request = Fetch(
            self._state.incarnation, self._serial, self._position, (), tuple(wanted[:MOST_PLACES])
        )
        self._attempts = 0
        self._wait(now, self._state.configuration.repair_ns)

    def _take(self, now: Nanoseconds, record: Past) -> bool:
        """Deliver a batch of history if it follows on what was delivered; whether it does."""
        try:
            bodies = Packed(record.bodies)
        except ValueError:
            self._state.ignore()
            return False
        site, incarnation, number = record.sender, record.incarnation, record.number
        if not self._is_possible(site, incarnation, number + len(bodies)):
            self._state.ignore()
            return False
        if number < self._floor.get(site, 0) or not self._follows(now, site, incarnation, number):
            return False
        self._reached[site] = Reached(incarnation, number + len(bodies), self._spell)
        self._state.counts["history_messages"] += len(bodies)
        self._ready.append(Deliver(site, number, bodies, None, incarnation))
        self._bound_sites(now)
        return True

    def _is_possible(self, site: Site, incarnation: int, end: int) -> bool:
        """Whether a site may have sent so much: one that is here has said how far it has gone.

        What a log has beyond that will come live, or was never sent.
        """
        state = self._state
        if site == state.site:
            return (incarnation, end) <= (state.incarnation, state.own.expected)
        peer = state.peers.get(site)
        if peer is None or not peer.counted or not peer.newest.begun:
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
        """Forget one site; its gaps, if any were to come, are excused by the end of a spell."""
        if len(self._reached) > MOST_SITES:
            gone = next((site for site in self._reached if site not in self._state.peers), None)
            site = next(iter(self._reached)) if gone is None else gone
            if self._reached.pop(site).spell == self._spell:
                self._cut(now, site, self._ready)

    # Whether history has closed up

    def _target(self, site: Site) -> tuple[int, int] | None:
        """Where the live messages of a site begin, as far as they are to be delivered."""
        state = self._state
        peer = state.peers.get(site)
        if site == state.site:
            live = (state.incarnation, state.own.delivered)
        elif peer is not None and peer.stream.begun:
            live = (peer.stream.incarnation, peer.stream.expected)
        else:
            return self._first.get(site)
        return self._first[site] if self._ends.get(site) == live[1] else live

    def _open(self) -> list[Place]:
        """The live streams up to which history has not come, but might."""
        return [Place(site, *target) for site, target, _ in self._unclosed()]

    def _unclosed(self) -> Iterator[tuple[Site, tuple[int, int], bool]]:
        """Each such stream, where it begins, and whether something certainly lies between."""
        state = self._state
        beginnings = [(peer.site, peer.stream.first) for peer in state.peers.values() if peer.stream.begun]
        for site, first in [*beginnings, (state.site, state.own.first)]:
            target, reached = self._target(site), self._reached.get(site)
            assert target is not None, "what is followed begins somewhere"
            if reached is None:
                if target[1] > max(first, self._floor.get(site, 0)) and site != state.site:
                    yield site, target, False
            elif reached.place < target and reached.number != target[1]:
                yield site, target, True

    def _gap_is_known(self) -> bool:
        """Whether a log goes on behind what was delivered."""
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
        """All logs have been read: once more if that may help, else go on behind what nobody has."""
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
