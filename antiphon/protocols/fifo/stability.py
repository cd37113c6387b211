"""When messages are stable, and so no longer kept: the host of a stability protocol, and what it leaves over.

The messages of members in the view are the stability protocol's business. Those of members outside it are
not: they grow no more, so the statuses of all members in the view are enough to find what is stable.

Rounds begin where the protocol wants them triggered: with the trigger `timer` every `round_ns` while
something is not stable, or sooner when much has come; with `adaptive` when the fullest buffer makes it due.
"""

from collections.abc import Callable, Sequence
from typing import Final

from antiphon.core.effects import Deliver, Discard, Missing, Stable
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.adaptive_trigger import AdaptiveTrigger
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.error_detection import ErrorDetection
from antiphon.protocols.fifo.group import Group, Peer
from antiphon.protocols.fifo.layer_host import LayerHost
from antiphon.protocols.fifo.pdus import Status
from antiphon.protocols.fifo.presence import Presence
from antiphon.protocols.fifo.streams import Stream
from antiphon.protocols.stability import ROWS, find_protocol
from antiphon.protocols.stability.base import Objective
from antiphon.protocols.stability.by_sender import BySender
from antiphon.protocols.stability.riding import Riding
from antiphon.protocols.stability.sessions import Sessions

ROUND: Final = "round"
LAYER: Final = "stability/"
"""The prefix of the stability protocol's timers."""
SESSION_BYTES: Final = 80
"""A session message's header, times and sealing, about. Raising it costs time to stability."""


class Stability:
    """Triggers rounds, declares what is stable, and discards it."""

    def __init__(self, context: Context, group: Group, presence: Presence, errors: ErrorDetection) -> None:
        configuration = context.configuration
        self._context = context
        self._group = group
        self._presence = presence
        self._errors = errors
        whole = configuration.rows == "whole"
        protocol = find_protocol(configuration.stability) if whole else ROWS[configuration.rows]
        self._host = LayerHost(context, group, protocol, LAYER, Objective.LEAST, tuning=configuration.tuning)
        self.riding: Riding | None = None
        """The protocol's object, if members' rows travel without rounds."""
        self._session: Sessions | None = None
        """The same, if they travel in session messages."""
        self.row: Callable[[Sequence[int]], bytes] | None = None
        """Makes the row that a message of ours carries, if rows ride on messages."""
        adaptive = configuration.trigger == "adaptive"
        self._trigger = AdaptiveTrigger(configuration.retain_bytes) if adaptive else None
        self._least_pause_ns = configuration.quiet_round_ns if adaptive else configuration.round_ns
        self._round_began_ns: Nanoseconds = -self._least_pause_ns
        self.has_declared = False
        """Whether anything was declared stable here."""
        self.needs_timer = False
        """Whether new messages must arm the round's timer: we are the coordinator, and it is not armed."""
        self.fresh_bytes = 0
        """What has come since a round last began, or since the last check whether one is due."""
        self.check_bytes = configuration.round_bytes
        """When `fresh_bytes` exceeds this, it is time to check."""

    def figures(self) -> dict[str, int]:
        threshold = 0 if self._trigger is None else self._trigger.threshold_bytes
        return {"rounds_finished": self._host.rounds, "trigger_bytes": threshold}

    # Rounds

    def on_view(self, now: Nanoseconds) -> None:
        """A new view has begun."""
        view = self._group.view
        stable = [min(stream.stable, stream.expected) for stream in view.streams]
        self._host.on_view(now, view.held(), stable)
        layer = self._host.layer
        self.riding = layer if isinstance(layer, Riding) else None
        self._session = layer if isinstance(layer, Sessions) else None
        self.row = self.riding.row if self.riding is not None and self.riding.rides else None
        self.check_bytes = self._due_bytes()
        if self._trigger is not None:
            self._trigger.on_view()
            self.check_bytes = 0
        self._errors.on_view(now)
        self._note_timer()
        self.arm_if_unstable(now)

    @property
    def _pause_ns(self) -> Nanoseconds:
        """The pause between rounds in this view; session messages come by the data's bytes, or slowly."""
        quiet_ns = 0 if self._session is None else self._context.configuration.quiet_round_ns
        return max(self._least_pause_ns, self._group.pace.round_ns, quiet_ns)

    def _due_bytes(self) -> int:
        """Bytes of data that make a round due at once; for session messages, a share of which all make one.

        Members draw their own, so that session messages do not come together.
        """
        configuration = self._context.configuration
        if self._session is None:
            return configuration.round_bytes
        message_bytes = SESSION_BYTES + self._session.row_bytes
        mean_bytes = len(self._group.view.pairs) * message_bytes / configuration.tuning.session_share
        return round(mean_bytes * (0.5 + self._context.random.random()))

    @property
    def needs_statuses(self) -> bool:
        """Whether rows that were lost must come with statuses: rows that ride are not repeated."""
        return self.riding is not None and self._session is None and self._unstable()

    def arm_if_unstable(self, now: Nanoseconds) -> None:
        """Arm the round's timer if that is our part and something is not stable."""
        if self.needs_timer and self._unstable():
            self.arm(now)

    def arm(self, now: Nanoseconds) -> None:
        """Something is not stable: make sure that a round comes."""
        self.needs_timer = False
        self._context.timers.arm(now, ROUND, self._pause_ns)

    def check(self, now: Nanoseconds) -> None:
        """Much has come: begin a round at once if one is due."""
        self.fresh_bytes = 0
        self.check_bytes = self._due_bytes()
        if not self._host.coordinates or self._host.is_busy(now):
            return
        if self._trigger is not None:
            self.check_bytes = self._trigger.check(now, self._group.view.streams)
            if self.check_bytes:
                return
        self.begin_round(now)

    def begin_round(self, now: Nanoseconds) -> None:
        """Begin a round, if we are the coordinator and none is under way."""
        if not self._host.coordinates or self._host.is_busy(now):
            return
        self.fresh_bytes = 0
        self._round_began_ns = now
        self._context.counts["rounds"] += 1
        if self._trigger is not None:
            self._trigger.round_began(now, self._group.view.streams)
        self._release_found(now, self._host.trigger(now, self._group.view.held()))

    def on_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        """A PDU of a stability protocol; one of another view is dropped."""
        view = getattr(pdu, "view", None)
        if view == self._host.view:
            self._release_found(now, self._host.on_pdu(now, sender, pdu, self._group.view.held()))
            if self._session is not None:
                self._note_distance(sender, self._session)
        elif view == self._errors.view:
            self._errors.on_pdu(now, sender, pdu)

    def _note_distance(self, sender: Site, session: Sessions) -> None:
        distance_ns, peer = session.distances_ns.get(sender), self._group.peers.get(sender)
        if peer is not None and distance_ns is not None:
            peer.distance_ns = distance_ns

    def held_by(self, site: Site) -> int | None:
        """How many of our own messages a member has told to hold; None if rounds do not tell."""
        layer = self._host.layer
        return layer.held_by(site) if isinstance(layer, Riding | BySender) else None

    def on_status(self, site: Site, status: Status) -> None:
        """A member's status has its whole row, if it sees the same view."""
        view = self._group.view
        if self.riding is not None and status.view == view.number:
            pairs = set(view.pairs)
            known = [extent for extent in status.extents if (extent.site, extent.incarnation) in pairs]
            self.riding.on_whole_row(site, [(extent.site, extent.held) for extent in known])

    def fire(self, now: Nanoseconds, name: str) -> None:
        if name != ROUND:
            self._release_found(now, self._host.fire(now, name, self._group.view.held()))
        elif self._host.coordinates:
            if self._unstable():
                left_ns = self._round_began_ns + self._pause_ns - now
                due = left_ns <= 0 or self._trigger is None
                if due or (self._trigger and not self._trigger.check(now, self._group.view.streams)):
                    self.begin_round(now)
                    left_ns = self._pause_ns
                self._context.timers.arm(now, ROUND, left_ns)
            self._note_timer()

    def _note_timer(self) -> None:
        self.needs_timer = self._host.coordinates and ROUND not in self._context.timers.due_ns

    def _unstable(self) -> bool:
        return any(stream.expected > stream.stable for stream in self._group.view.streams)

    def _release_found(self, now: Nanoseconds, found: Sequence[Stable | Missing]) -> None:
        for stable in found:
            stream = self._host.stream_of(stable)
            self.release(stream, stable.number + stable.count)
            if stream is self._group.own:
                self._note_held_by_all(now)
        if self._trigger is not None and self._trigger.is_waiting and not self._host.under_way:
            if self._trigger.round_ended(now):
                self.check(now)
            else:
                # The member being waited for is stalled: rounds without a pause would not help it.
                self._context.timers.arm(now, ROUND, self._context.configuration.round_ns)

    # Releasing

    def release(self, stream: Stream, position: int) -> None:
        """Everyone in the view holds everything below a position: declare it stable, and discard it."""
        position = min(position, stream.expected)
        if position <= stream.stable:
            return
        if stream is self._group.own:
            self.deliver_own(position)
        self.has_declared = True
        begin, stream.stable = max(stream.stable, stream.since), position
        if position > begin:
            self._presence.tell(Stable(stream.site, begin, position - begin))
        kept_bytes = stream.kept_bytes
        number, count = stream.release(position)
        if count:
            self._presence.tell(Discard(stream.site, number, count))
        if self._trigger is not None:
            self._trigger.freed(stream, kept_bytes - stream.kept_bytes)
        if self._group.outside:
            self._mark_excluded(stream)

    def _note_held_by_all(self, now: Nanoseconds) -> None:
        """What is stable needs no acknowledgement."""
        own = self._group.own
        position = own.stable
        for peer in self._group.in_view() if own.begins_at(position) else ():
            if peer.acked < position:
                peer.acked, peer.progress_ns = position, now

    def confirm(self, stream: Stream, stable: int) -> None:
        """A member reports that something is stable: believe it as far as all in the view report to hold it.

        Only the stability protocol, in which all take part, may know more.
        """
        own, least = self._group.own, min(stable, stream.expected)
        for peer in self._group.in_view():
            if stream is own:
                least = min(least, peer.acked)
            elif peer.site != stream.site:
                extent = peer.reports_of(stream)
                least = min(least, 0 if extent is None else extent.held)
        self.release(stream, least)

    def deliver_own(self, position: int) -> None:
        """Deliver our own messages below a position."""
        own = self._group.own
        while own.delivered < position:
            bodies = own.kept[own.delivered]
            self._presence.tell(Deliver(own.site, own.delivered, bodies, None, own.incarnation))
            own.delivered += len(bodies)

    def _mark_excluded(self, stream: Stream) -> None:
        """An excluded member that lacks what is stable now must start a new spell before it rejoins."""
        for peer in self._group.outside:
            if peer.site == stream.site and peer.incarnation == stream.incarnation:
                continue  # a sender holds its own messages, whatever its latest status said of them
            extent = peer.reports_of(stream)
            if extent is None or extent.held < stream.stable:
                peer.excluded_spell = max(peer.excluded_spell, peer.spell)

    # Members that are gone

    def release_departed(self) -> None:
        """Find what is stable of members outside the view, and of earlier incarnations."""
        reporters = list(self._group.in_view())
        if not all(peer.extents for peer in reporters):
            return
        for peer in self._group.outside:
            if peer.stream.begun and peer.successor is None and peer.stream.stable < peer.stream.expected:
                self.release(peer.stream, _least_held(peer.stream, reporters))
        for peer in self._group.peers.values():
            if peer.past is not None and _all_beyond(peer.past, reporters):
                self.release(peer.past, peer.past.expected)
                peer.past = None


def _least_held(stream: Stream, reporters: Sequence[Peer]) -> int:
    """What all members hold that follow the stream."""
    least = stream.expected
    for peer in reporters:
        extent = peer.reports_of(stream)
        if extent is not None and extent.held >= 0:
            least = min(least, extent.held)
    return least


def _all_beyond(past: Stream, reporters: Sequence[Peer]) -> bool:
    """Whether all members follow a later incarnation."""
    for peer in reporters:
        extent = peer.extents.get(past.site)
        if peer.site != past.site and extent is not None and extent.incarnation <= past.incarnation:
            return False
    return True
