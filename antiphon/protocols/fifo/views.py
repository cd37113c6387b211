"""The view: the members that are alive, hear us, have not left and were not excluded."""

from antiphon.core.effects import Appeared, Vanished
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.context import Context
from antiphon.protocols.fifo.failure_detection import FailureDetection
from antiphon.protocols.fifo.group import Group, Peer
from antiphon.protocols.fifo.keepalive import Keepalive
from antiphon.protocols.fifo.schedule import StatusSchedule
from antiphon.protocols.fifo.sending import Sending
from antiphon.protocols.fifo.stability import Stability


class Views:
    """Decides who is in the view, and forgets peers that are long gone."""

    def __init__(
        self,
        context: Context,
        group: Group,
        detection: FailureDetection,
        schedule: StatusSchedule,
        stability: Stability,
        sending: Sending,
        keepalive: Keepalive,
    ) -> None:
        self._context = context
        self._group = group
        self._detection = detection
        self._schedule = schedule
        self._stability = stability
        self._sending = sending
        self._keepalive = keepalive
        self._checked_ns: Nanoseconds = 0

    def start(self, now: Nanoseconds) -> None:
        """Begin, or go on after an absence: silence before now counts against no peer."""
        self._checked_ns = now
        for peer in self._group.peers.values():
            peer.heard_ns = peer.hears_us_ns = peer.progress_ns = now
        self._detection.update(now)
        self.renew(now)

    def update(self, now: Nanoseconds) -> None:
        """Decide who is in the view; if that has changed, begin a new one."""
        self.excuse_own_pause(now)
        self._detection.update(now)
        for peer in self._group.peers.values():
            reason = self._reason_to_exclude(now, peer)
            if (reason is None) == peer.in_view:
                continue
            peer.in_view = reason is None
            peer.progress_ns = peer.outside_ns = now
            self._context.emit(Appeared(peer.site) if reason is None else Vanished(peer.site, reason))
        if not self._group.view_is_current():
            self.renew(now)

    def is_outdated(self, now: Nanoseconds) -> bool:
        """Whether a neighbour, or a peer outside the view, belongs on the other side now."""
        self.excuse_own_pause(now)
        self._detection.update(now)
        group = self._group
        near = [group.peers[site] for site in group.view.neighbours]
        return any(
            (self._reason_to_exclude(now, peer) is None) != peer.in_view for peer in (*near, *group.outside)
        )

    def renew(self, now: Nanoseconds) -> None:
        """Begin a new view."""
        self._group.renew_view()
        self._keepalive.on_view(now)
        self._stability.on_view(now)
        self._sending.on_view(now)
        self._schedule.soon(now)

    def excuse_own_pause(self, now: Nanoseconds) -> None:
        """If this member was paused itself, no peer's silence meanwhile counts against it."""
        configuration = self._context.configuration
        late_ns = now - self._checked_ns - self._group.pace.tick_ns
        self._checked_ns = now
        if late_ns > configuration.suspect_after_ns // 4:
            for peer in self._group.peers.values():
                peer.excuse(late_ns)

    def exclude_laggards(self, now: Nanoseconds) -> None:
        """Exclude peers that are alive but have acknowledged nothing of ours for too long."""
        own, lag_ns = self._group.own, self._group.pace.lag_ns
        for peer in self._group.in_view():
            if peer.acked >= own.expected or not own.kept:
                peer.progress_ns = now
            elif now - max(peer.progress_ns, own.sent_at_ns(peer.acked)) > lag_ns:
                peer.excluded_spell = peer.spell

    def forget(self, now: Nanoseconds) -> None:
        """Drop peers that are long gone."""
        since_ns = now - self._context.configuration.forget_after_ns
        for peer in list(self._group.outside):
            # Copies of an earlier incarnation's messages serve others, who have had time to ask for them.
            if peer.heard_ns < since_ns and (not peer.stream.kept or peer.successor is not None):
                self._drop(peer)

    def make_room(self) -> bool:
        """Whether there is room for one more peer, made by dropping a silent one if need be.

        Peers that never sent anything go first: invented ones are among them.
        """
        if len(self._group.peers) < self._context.configuration.largest_group:
            return True
        gone = min(
            (peer for peer in self._group.outside if not peer.stream.kept),
            key=lambda peer: (peer.successor is not None, peer.stream.begun, peer.heard_ns),
            default=None,
        )
        if gone is None:
            return False
        self._drop(gone)
        return True

    def _drop(self, peer: Peer) -> None:
        self._group.drop(peer)
        self._detection.forget(peer.site)

    def _reason_to_exclude(self, now: Nanoseconds, peer: Peer) -> str | None:
        """Why a peer is not in the view; None if it is."""
        if peer.left:
            return "It has left."
        if peer.suspected:
            return "The failure detector suspects it."
        if not self._detection.hears(now, peer):
            return "It has not been heard of for too long."
        if not self._detection.is_heard_by(now, peer):
            return "It does not hear us."
        if peer.spell <= peer.excluded_spell:
            return "It was left behind."
        return None
