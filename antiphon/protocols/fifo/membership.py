"""Joining, leaving and rejoining: statuses and what follows from them."""

from collections.abc import Iterable
from typing import Final

from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.core.inputs import Returned, Start
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.failure_detection import FailureDetection
from antiphon.protocols.fifo.following import Following
from antiphon.protocols.fifo.group import Group, Peer
from antiphon.protocols.fifo.keepalive import Keepalive
from antiphon.protocols.fifo.pdus import Extent, Leaving, Mark, Sign, Status
from antiphon.protocols.fifo.presence import Presence
from antiphon.protocols.fifo.reception import Reception
from antiphon.protocols.fifo.repair import Repair
from antiphon.protocols.fifo.schedule import HEARTBEAT, StatusSchedule
from antiphon.protocols.fifo.sending import Sending
from antiphon.protocols.fifo.stability import Stability
from antiphon.protocols.fifo.status import StatusSender
from antiphon.protocols.fifo.views import Views

SETTLE: Final = "settle"
SETTLE_STATUSES: Final = 4
"""Statuses that a newcomer multicasts while it settles. Raising it costs PDUs."""
MOST_AHEAD: Final = 1 << 20
"""The furthest that a status's serial may be ahead of the last one: a member sends some 300 statuses a
second. Raising it costs the time that a member stays mute after a forged serial."""
ASK_ROUNDS: Final = 2
"""Where members acknowledge late, rounds of stability that should have found our messages before we ask who
holds them. Raising it costs throughput after losses."""
LONGEST_SETTLE: Final = 3
"""A newcomer waits for this many times `settle_ns` for members that it hears but that have not reported it
in their view. Raising it costs time to join."""


class Membership:
    """Settles when this member begins, returns or was excluded; handles the statuses of the others."""

    def __init__(
        self,
        context: Context,
        group: Group,
        presence: Presence,
        schedule: StatusSchedule,
        stability: Stability,
        sending: Sending,
        reception: Reception,
        repair: Repair,
    ) -> None:
        self._context = context
        self._group = group
        self._presence = presence
        self._schedule = schedule
        self._stability = stability
        self._sending = sending
        self._reception = reception
        self._repair = repair
        self._detection = FailureDetection(context, group)
        self._statuses = StatusSender(context, group, presence, self._detection, schedule)
        self._keepalive = Keepalive(context, group)
        self._views = Views(context, group, self._detection, schedule, stability, sending, self._keepalive)
        self._following = Following(context, group, presence, schedule, reception, repair)
        self._settling_ns: Nanoseconds = 0
        self._positions_behind: dict[Site, int] | None = None
        """After an exclusion: the first position of each stream since then, until all have moved on."""

    # Beginning and ending

    def start(self, now: Nanoseconds, event: Start, members: Iterable[Site]) -> None:
        context, group = self._context, self._group
        context.incarnation = event.incarnation
        group.own.start(event.incarnation, event.next_number)
        self._detection.handle(now, event)
        if event.incarnation:
            group.may_have_forgotten = event.returning
            self._presence.start(returning=event.returning)
            self._views.start(now)
            self._settle(now)
            return
        for site in members:
            if site != context.site:
                group.add(site, 0, now).stream.begin(0, 0, 0)
        self._presence.taking_part = True
        self._views.start(now)
        self._views.update(now)
        self._schedule.rest(now)
        context.timers.arm(now, HEARTBEAT, context.configuration.heartbeat_ns)

    def depart(self) -> None:
        """Leave, and say so; the timers stand still."""
        self._statuses.multicast_leaving()
        self._presence.be_absent()
        self._context.timers.clear()

    def resume(self, now: Nanoseconds) -> None:
        """Join again, with what is remembered."""
        self._presence.renew_spell()
        self._positions_behind = None
        self._repair.reset()
        self._detection.handle(now, Returned())
        self._views.start(now)
        self._settle(now)

    def _settle(self, now: Nanoseconds) -> None:
        """Multicast a status, and listen for a while."""
        context = self._context
        self._settling_ns = now
        for peer in self._group.peers.values():
            peer.has_us_in_view = False
        self._statuses.multicast(now)
        context.timers.arm(now, SETTLE, max(1, context.configuration.settle_ns // SETTLE_STATUSES))
        context.timers.arm(now, HEARTBEAT, context.configuration.heartbeat_ns)

    def fire_settle(self, now: Nanoseconds) -> None:
        """Take part once every member that is heard has us in its view, or has had the time."""
        span_ns = self._context.configuration.settle_ns
        if self._presence.taking_part:
            return
        if self._positions_behind is not None:
            self._check_progress(now)
        waited_ns = now - self._settling_ns if self._positions_behind is None else 0
        heard = [peer for peer in self._group.peers.values() if peer.heard_ns >= self._settling_ns]
        settled = all(peer.has_us_in_view or peer.left for peer in heard)
        if waited_ns >= span_ns and (settled or waited_ns >= LONGEST_SETTLE * span_ns):
            self._views.update(now)
            self._resolve_all(now)
            self._presence.be_present()
        else:
            self._context.timers.arm(now, SETTLE, max(1, span_ns // SETTLE_STATUSES))
        self._statuses.multicast(now)

    def _resolve_all(self, now: Nanoseconds) -> None:
        for peer in list(self._group.peers.values()):
            self._following.resolve(now, peer)

    # After an exclusion

    def _rejoin(self, now: Nanoseconds) -> None:
        """Something was declared stable without us: end this spell, and begin another as after an absence."""
        presence = self._presence
        presence.renew_spell()
        self._context.counts["rejoined"] += 1
        if presence.taking_part:
            presence.be_absent()
            self._settle(now)
        else:
            presence.missed = True
            self._schedule.soon(now)

    def _on_exclusion(self, now: Nanoseconds) -> None:
        """The others no longer wait for us. Rejoin when their messages reach us again.

        With `acknowledge` they only do when the others wait for us, so rejoin at once.
        """
        if self._positions_behind is not None:
            return
        if self._presence.taking_part:
            self._presence.be_absent()
        else:
            self._presence.missed = True
        if self._context.configuration.repair != "acknowledge":
            self._positions_behind = {}
        self._settle(now)
        self._check_progress(now)

    def _check_progress(self, now: Nanoseconds) -> None:
        """Begin a new spell if every stream that goes on has moved on since we were excluded."""
        before = self._positions_behind
        if before is not None:
            self._resolve_all(now)
            streams = [peer.stream for peer in self._group.in_view() if peer.successor is None]
            self._positions_behind = {
                stream.site: before.get(stream.site, stream.expected) for stream in streams
            }
            behind = [stream for stream in streams if stream.expected < stream.end]
            if any(before.get(stream.site, NUMBER_LIMIT) >= stream.expected for stream in behind):
                return
        self._positions_behind = None
        self._settling_ns = now
        self._presence.renew_spell()
        self._context.counts["rejoined"] += 1
        self._schedule.soon(now)

    # Statuses

    def fire_alive(self, now: Nanoseconds) -> None:
        """Tell the neighbours that we are alive, and draw conclusions if one of them is not."""
        if self._views.is_outdated(now):
            self._evaluate(now)
        self._keepalive.fire(now)
        if self._is_unsettled(now):
            self._schedule.urge(now)

    def fire_heartbeat(self, now: Nanoseconds) -> None:
        """Check what is behind or unsettled, and multicast a status if one is due."""
        context, own, configuration = self._context, self._group.own, self._context.configuration
        self._views.exclude_laggards(now)
        self._evaluate(now)
        self._views.forget(now)
        self._stability.arm_if_unstable(now)
        if self._is_unsettled(now) or self._completes_incarnation():
            self._schedule.reset()
        if self._schedule.is_due(now):
            self._statuses.multicast(now)
        pause_ns = self._schedule.left_ns(now)
        if self._is_behind():
            since_ns = now - own.sent_ns
            if configuration.announces and since_ns >= configuration.announce_ns:
                self._announce(now)
            # The pauses between announcements double.
            least_ns = max(configuration.announce_ns, since_ns)
            pause_ns = min(pause_ns, least_ns, self._group.pace.announce_ns)
        context.timers.arm(now, HEARTBEAT, pause_ns)

    def fire_announce(self, now: Nanoseconds) -> None:
        """A block of our messages, or a pass, is over."""
        if not self._group.is_alone():
            self._announce(now)

    def _announce(self, now: Nanoseconds) -> None:
        """Tell how far our messages go; if stability should have told us who holds them, ask."""
        pace = self._group.pace
        asks = not pace.is_late or now - self._group.own.sent_ns > ASK_ROUNDS * pace.round_ns
        self._keepalive.announce(now, asks=asks)

    def _is_behind(self) -> bool:
        """Whether a member may lack messages of ours."""
        own = self._group.own
        if own.stable >= own.expected:
            return False
        return any(peer.acked < own.expected for peer in self._group.in_view())

    def _is_unsettled(self, now: Nanoseconds) -> bool:
        """Whether something waits for the statuses of others, or theirs for ours."""
        group = self._group
        if self._repair.is_waiting or any(self._is_unsettled_outside(now, peer) for peer in group.outside):
            return True
        near = (group.peers[site] for site in group.view.neighbours)
        if any(peer.view not in (-1, group.view.number) or self._may_be_gone(now, peer) for peer in near):
            return True
        return self._stability.needs_statuses

    def _may_be_gone(self, now: Nanoseconds, peer: Peer) -> bool:
        """Whether a neighbour is silent, and others may lack messages of it that we hold."""
        stream = peer.stream
        silent = peer.heard_ns < now - self._context.configuration.suspect_after_ns // 2
        return silent and stream.begun and stream.stable < stream.expected

    def _completes_incarnation(self) -> bool:
        """Whether an earlier incarnation's messages are still completed, or kept for others."""
        peers = self._group.peers.values()
        return any(peer.successor is not None or peer.past is not None for peer in peers)

    def _is_unsettled_outside(self, now: Nanoseconds, peer: Peer) -> bool:
        """Whether a peer outside the view may join it, or its messages are still to become stable."""
        heard = not peer.left and peer.heard_ns > now - self._detection.patience_ns(peer)
        return heard or (peer.stream.begun and peer.stream.stable < peer.stream.expected)

    def on_alive(self, now: Nanoseconds, sender: Site, pdu: Sign) -> None:
        """A sign of life: what its sender has sent, its view, and the members that it does not hear."""
        group, peer = self._group, self._group.peers.get(sender)
        if peer is None or pdu.incarnation > peer.incarnation:
            # Our status makes its sender answer with its own.
            self._schedule.soon(now)
            return
        if pdu.incarnation < peer.incarnation:
            return
        peer.heard_ns, peer.view = now, pdu.view
        if pdu.view == group.view.number:
            if group.view.rank not in pdu.unheard:
                peer.hears_us_ns = now
            self._on_unheard(
                now, peer, [group.view.sites[place] for place in pdu.unheard if place < len(group.view.sites)]
            )
        self._on_announcement(now, peer, pdu)

    def _on_unheard(self, now: Nanoseconds, peer: Peer, sites: Iterable[Site]) -> None:
        """A member reports which others it does not hear."""
        for site in sites:
            other = self._group.peers.get(site)
            if other is not None and peer.in_view:
                other.doubted_ns = now

    def _on_announcement(self, now: Nanoseconds, peer: Peer, pdu: Sign) -> None:
        """Look for what we miss of a member's messages; if it waits for our position, acknowledge."""
        stream = peer.newest
        if stream.begun:
            stream.on_end(max(stream.announced, pdu.sent))
            if stream.expected < stream.missing_to:
                self._repair.notice(now, stream)
        witnesses = self._group.view.witnessed == peer.site and stream.expected > stream.stable
        if stream.begun and (pdu.asks or witnesses):
            self._reception.acknowledge(now, stream)
        elif pdu.asks:
            self._keepalive.answer(now, peer.site)

    def send_status(self, now: Nanoseconds, to: Site) -> None:
        """A member has asked for what is gone: our status says so."""
        self._statuses.send(now, to)

    def on_status(self, now: Nanoseconds, sender: Site, status: Status) -> None:
        own = _own_extent(sender, status)
        if own is None or len(status.extents) > self._context.configuration.largest_group + 1:
            self._context.ignore()
            return
        peer = self._meet(now, sender, own, status.spell)
        if peer is None or not _is_later(peer, status.serial):
            return
        peer.serial, peer.view = status.serial, status.view
        peer.heard_ns = now
        peer.left = peer.suspected = False
        peer.spell = max(peer.spell, status.spell)
        peer.extents = {extent.site: extent for extent in status.extents}
        self._on_report_of_us(now, peer)
        self._stability.on_status(sender, status)
        self._on_unheard(now, peer, [extent.site for extent in status.extents if not extent.heard])
        for mark in status.left_out:
            self._on_mark(now, peer, mark)
        if peer.newest.begun:
            self._following.on_end(now, peer, own)
        elif peer.has_us_in_view:
            self._following.begin(now, peer, own)
        agreed = status.view == self._group.view.number
        for extent in status.extents:
            self._on_extent(now, extent, agreed=agreed)
        self._following.note_departed(now, status.extents)
        if not self._presence.taking_part and peer.has_us_in_view:
            self._following.resolve(now, peer)
        self._evaluate(now)
        if not peer.in_view:
            self._schedule.urge(now)

    def on_leaving(self, now: Nanoseconds, sender: Site, pdu: Leaving) -> None:
        peer = self._group.peers.get(sender)
        if peer is not None and pdu.incarnation == peer.incarnation and _is_later(peer, pdu.serial):
            peer.serial = pdu.serial
            peer.left = True
            self._evaluate(now)

    def on_detector_pdu(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if self._detection.on_pdu(now, sender, pdu):
            self._evaluate(now)

    def fire_detector(self, now: Nanoseconds, name: str) -> None:
        if self._detection.fire(now, name):
            self._evaluate(now)

    def suspect(self, now: Nanoseconds, site: Site) -> None:
        peer = self._group.peers.get(site)
        if peer is not None:
            peer.suspected = True
            self._evaluate(now)

    def restore(self, now: Nanoseconds, site: Site) -> None:
        peer = self._group.peers.get(site)
        if peer is not None and peer.suspected:
            peer.suspected = False
            self._evaluate(now)

    def _meet(self, now: Nanoseconds, sender: Site, own: Extent, spell: int) -> Peer | None:
        """The sender of a status, known or new; None if it is an earlier incarnation, or finds no room."""
        peer = self._group.peers.get(sender)
        if peer is None:
            if not self._views.make_room():
                self._context.ignore()
                return None
            peer = self._group.add(sender, own.incarnation, now)
            if self._stability.has_declared and spell == 0:
                # It believes that it has missed nothing, but something was stable before we knew of it.
                peer.excluded_spell = 0
            self._schedule.soon(now)
        elif own.incarnation > peer.incarnation:
            self._following.begin_incarnation(now, peer, own.incarnation, own.first)
            self._views.renew(now)
        return peer if own.incarnation == peer.incarnation else None

    def _on_report_of_us(self, now: Nanoseconds, peer: Peer) -> None:
        """What a member's status says of us."""
        incarnation = self._context.incarnation
        extent = peer.extents.get(self._context.site)
        if extent is None or incarnation not in (extent.incarnation, extent.next_incarnation):
            return
        peer.deaf = not extent.heard
        if extent.heard:
            peer.hears_us_ns = now
        if extent.counted:
            peer.has_us_in_view = True
        if extent.incarnation == incarnation:
            self._sending.on_acknowledged(now, peer, extent.held)

    def _on_mark(self, now: Nanoseconds, peer: Peer, mark: Mark) -> None:
        """A member was excluded: we, or another that we exclude too until it starts a new spell."""
        context = self._context
        if mark.site == context.site:
            if mark.incarnation == context.incarnation and mark.spell == self._presence.spell:
                self._on_exclusion(now)
            return
        other = self._group.peers.get(mark.site)
        known = other is not None and mark.incarnation == other.incarnation
        if other is not None and known and peer.in_view and mark.spell <= other.spell:
            other.excluded_spell = max(other.excluded_spell, mark.spell)

    def _on_extent(self, now: Nanoseconds, extent: Extent, *, agreed: bool) -> None:
        """What a member reports of a stream: its end, and what is stable.

        Of another's stream that is hearsay. A later incarnation is believed from the site itself only. While
        a site speaks for itself, reports of others are believed at most as far as it has sent.
        """
        group = self._group
        if extent.site == self._context.site:
            if agreed and extent.incarnation == self._context.incarnation:
                self._stability.confirm(group.own, extent.stable)
            return
        other = group.peers.get(extent.site)
        stream = group.find_stream(extent.site, extent.incarnation)
        if other is None or stream is None or not stream.begun or stream is other.past:
            return
        stream.end = max(stream.end, extent.held)
        if stream.expected < stream.missing_to:
            self._repair.notice(now, stream)
        if extent.stable > max(stream.expected, stream.excused):
            speaks = group.speaks_for_itself(now, other, extent.incarnation)
            if not speaks or extent.stable <= stream.seen:
                stream.excused = extent.stable
                self._rejoin(now)
        elif agreed and stream is not other.successor:
            if extent.stable > stream.stable:
                self._stability.confirm(stream, extent.stable)
            elif extent.stable < stream.stable <= extent.held:
                self._schedule.urge(now)  # its sender lacks what made this stable here

    def _evaluate(self, now: Nanoseconds) -> None:
        """Draw all conclusions from what has become known."""
        group = self._group
        self._views.update(now)
        for peer in list(group.peers.values()):
            if peer.successor is not None:
                self._following.close(now, peer)
            elif self._presence.taking_part and peer.stream.expected < peer.stream.end:
                self._following.resolve(now, peer)
        if group.outside or any(peer.past is not None for peer in group.peers.values()):
            self._stability.release_departed()


def _own_extent(sender: Site, status: Status) -> Extent | None:
    """What a status says of its own sender."""
    for extent in status.extents:
        if extent.site == sender and extent.incarnation == status.incarnation:
            return extent
    return None


def _is_later(peer: Peer, serial: int) -> bool:
    """Whether a status is later than the last one. A serial that leaps would mute its sender for ever."""
    return peer.serial < serial and (peer.serial < 0 or serial <= peer.serial + MOST_AHEAD)
