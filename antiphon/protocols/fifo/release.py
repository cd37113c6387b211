"""When messages are stable, and so no longer kept: the seat of a stability protocol, and what it leaves over.

The messages of members that count are the stability protocol's business. Those of members that are gone are
not: what everyone who counts says in its status is enough for them, since they grow no more.

Rounds begin where the protocol wants them triggered: with the trigger `timer` every `round_ns` while
something is not stable, or sooner when much has come; with `adaptive` when the fullest buffer makes it due.
"""

from collections.abc import Callable, Sequence
from typing import Final

from antiphon.core.effects import Deliver, Discard, Missing, Stable
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.errors import Errors
from antiphon.protocols.fifo.pacing import Pacing
from antiphon.protocols.fifo.pdus import Status
from antiphon.protocols.fifo.seat import Seat
from antiphon.protocols.fifo.state import Peer, State
from antiphon.protocols.fifo.streams import Stream
from antiphon.protocols.stability import ROWS, find_protocol
from antiphon.protocols.stability.base import Objective
from antiphon.protocols.stability.riding import Riding

ROUND: Final = "round"
LAYER: Final = "stability/"
"""What the stability protocol's own timers are called here."""


class Release:
    """Triggers rounds, declares what is stable, and lets it go."""

    def __init__(self, state: State, errors: Errors) -> None:
        configuration = state.configuration
        self._state = state
        self._errors = errors
        whole = configuration.rows == "whole"
        protocol = find_protocol(configuration.stability) if whole else ROWS[configuration.rows]
        self._seat = Seat(state, protocol, LAYER, Objective.LEAST)
        self.riding: Riding | None = None
        """The layer at hand, if members' rows travel without rounds."""
        self.row: Callable[[Sequence[int]], bytes] | None = None
        """What a message of ours carries for it, if rows ride on messages."""
        adaptive = configuration.trigger == "adaptive"
        self._pacing = Pacing(configuration.retain_bytes) if adaptive else None
        self._pause_ns = configuration.quiet_round_ns if adaptive else configuration.round_ns
        self._began_ns: Nanoseconds = -self._pause_ns
        self.wakeful = False
        """Whether new messages must set the round's timer: here is the coordinator, and it is not set."""
        self.fresh_bytes = 0
        """What has come since a round last began, or since it was last looked whether one is due."""
        self.due_bytes = configuration.round_bytes
        """When so much has come, it is time to look."""

    def figures(self) -> dict[str, int]:
        threshold = 0 if self._pacing is None else self._pacing.threshold_bytes
        return {"rounds_finished": self._seat.rounds, "trigger_bytes": threshold}

    # Rounds

    def new_view(self, now: Nanoseconds) -> None:
        view = self._state.view
        stable = [min(stream.stable, stream.expected) for stream in view.streams]
        self._seat.renew(now, view.held(), stable)
        self.riding = self._seat.layer if isinstance(self._seat.layer, Riding) else None
        self.row = self.riding.row if self.riding is not None and self.riding.rides else None
        if self._pacing is not None:
            self._pacing.renew()
            self.due_bytes = 0
        self._errors.new_view(now)
        self._doze()
        self.stir(now)

    def stir(self, now: Nanoseconds) -> None:
        """Look whether something is to be found out, whatever brought it about."""
        if self.wakeful and self._unstable():
            self.wake(now)

    def wake(self, now: Nanoseconds) -> None:
        """Something is to be found out: see to it that a round comes."""
        self.wakeful = False
        self._state.arm(now, ROUND, self._pause_ns)

    def hurry(self, now: Nanoseconds) -> None:
        """Much has come: see whether the next round should not wait."""
        self.fresh_bytes = 0
        self.due_bytes = self._state.configuration.round_bytes
        if not self._seat.coordinates or self._seat.is_busy(now):
            return
        if self._pacing is not None:
            self.due_bytes = self._pacing.look(now, self._state.view.streams)
            if self.due_bytes:
                return
        self.begin_round(now)

    def begin_round(self, now: Nanoseconds) -> None:
        """A round is to begin now, if it is to begin here and none is under way."""
        if not self._seat.coordinates or self._seat.is_busy(now):
            return
        self.fresh_bytes = 0
        self._began_ns = now
        self._state.counts["rounds"] += 1
        if self._pacing is not None:
            self._pacing.began(now, self._state.view.streams)
        self._release_found(now, self._seat.trigger(now, self._state.view.held()))

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        """A PDU of a stability protocol; one of another view concerns nobody here."""
        view = getattr(pdu, "view", None)
        if view == self._seat.view:
            self._release_found(now, self._seat.receive(now, sender, pdu, self._state.view.held()))
        elif view == self._errors.view:
            self._errors.receive(now, sender, pdu)

    def hear_status(self, site: Site, status: Status) -> None:
        """A member's status tells its whole row, if it sees the same view."""
        view = self._state.view
        if self.riding is not None and status.view == view.number:
            pairs = set(view.pairs)
            told = [extent for extent in status.extents if (extent.site, extent.incarnation) in pairs]
            self.riding.hear_whole(site, [(extent.site, extent.held) for extent in told])

    def fire(self, now: Nanoseconds, name: str) -> None:
        if name != ROUND:
            self._release_found(now, self._seat.fire(now, name, self._state.view.held()))
        elif self._seat.coordinates:
            if self._unstable():
                left_ns = self._began_ns + self._pause_ns - now
                due = left_ns <= 0 or self._pacing is None
                if due or (self._pacing and not self._pacing.look(now, self._state.view.streams)):
                    self.begin_round(now)
                    left_ns = self._pause_ns
                self._state.arm(now, ROUND, left_ns)
            self._doze()

    def _doze(self) -> None:
        self.wakeful = self._seat.coordinates and ROUND not in self._state.armed

    def _unstable(self) -> bool:
        return any(stream.expected > stream.stable for stream in self._state.view.streams)

    def _release_found(self, now: Nanoseconds, found: Sequence[Stable | Missing]) -> None:
        for stable in found:
            self.release(self._seat.stream_of(stable), stable.number + stable.count)
        if self._pacing is not None and self._pacing.waits and not self._seat.under_way:
            if self._pacing.ended(now):
                self.hurry(now)
            else:
                # Whom the others wait for does not get on: rounds without a pause would not help him.
                self._state.arm(now, ROUND, self._state.configuration.round_ns)

    # Letting go

    def release(self, stream: Stream, position: int) -> None:
        """Everyone who counts holds everything below a position: say so, and keep it no longer."""
        position = min(position, stream.expected)
        if position <= stream.stable:
            return
        state = self._state
        if stream is state.own:
            self.deliver_own(position)
        state.declared = True
        begin, stream.stable = max(stream.stable, stream.since), position
        if position > begin:
            state.tell(Stable(stream.site, begin, position - begin))
        kept_bytes = stream.kept_bytes
        number, count = stream.release(position)
        if count:
            state.tell(Discard(stream.site, number, count))
        if self._pacing is not None:
            self._pacing.freed(stream, kept_bytes - stream.kept_bytes)
        if state.uncounted:
            self._mark_left_out(stream)

    def confirm(self, stream: Stream, stable: int) -> None:
        """A member says that something is stable: that is so as far as all who count have said they hold it.

        Only the stability protocol, in which all take part, may know more.
        """
        state, least = self._state, min(stable, stream.expected)
        for peer in state.counted():
            if stream is state.own:
                least = min(least, peer.acked)
            elif peer.site != stream.site:
                extent = peer.extents.get(stream.site)
                known = extent is not None and extent.incarnation == stream.incarnation
                least = min(least, extent.held if extent is not None and known else 0)
        self.release(stream, least)

    def deliver_own(self, position: int) -> None:
        """Deliver our own messages below a position."""
        state, own = self._state, self._state.own
        while own.delivered < position:
            bodies = own.kept[own.delivered]
            state.tell(Deliver(own.site, own.delivered, bodies, None, own.incarnation))
            own.delivered += len(bodies)

    def _mark_left_out(self, stream: Stream) -> None:
        """Whoever does not count and did not hold this must begin a new spell before he counts again."""
        for peer in self._state.uncounted:
            if peer.site == stream.site and peer.incarnation == stream.incarnation:
                continue  # a sender holds its own messages, whatever its latest status said of them
            extent = peer.extents.get(stream.site)
            known = extent is not None and extent.incarnation == stream.incarnation
            if not known or (extent is not None and extent.held < stream.stable):
                peer.left_out = max(peer.left_out, peer.spell)

    # Those who are gone

    def settle_accounts(self) -> None:
        """Find what is stable of those who do not count, and of earlier incarnations."""
        counted = list(self._state.counted())
        if not all(peer.extents for peer in counted):
            return
        for peer in self._state.uncounted:
            if peer.stream.begun and peer.successor is None and peer.stream.stable < peer.stream.expected:
                self.release(peer.stream, self._least_held(peer.stream, counted))
        for peer in self._state.peers.values():
            if peer.past is not None and self._all_beyond(peer.past, counted):
                self.release(peer.past, peer.past.expected)
                peer.past = None

    def _least_held(self, stream: Stream, counted: list[Peer]) -> int:
        """What all who count and follow the stream hold."""
        least = stream.expected
        for peer in counted:
            extent = peer.extents.get(stream.site)
            if extent is not None and extent.incarnation == stream.incarnation and extent.held >= 0:
                least = min(least, extent.held)
        return least

    def _all_beyond(self, past: Stream, counted: list[Peer]) -> bool:
        for peer in counted:
            extent = peer.extents.get(past.site)
            if peer.site != past.site and extent is not None and extent.incarnation <= past.incarnation:
                return False
        return True
