"""Who counts: whoever was heard of lately, hears us, has not left and was not left out."""

from antiphon.core.effects import Appeared, Vanished
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.presence import Herald
from antiphon.protocols.fifo.release import Release
from antiphon.protocols.fifo.sending import Sending
from antiphon.protocols.fifo.state import Peer, State, View
from antiphon.protocols.fifo.watching import Watching


class Census:
    """Keeps the view."""

    def __init__(
        self, state: State, watching: Watching, herald: Herald, release: Release, sending: Sending
    ) -> None:
        self._state = state
        self._watching = watching
        self._herald = herald
        self._release = release
        self._sending = sending
        self._looked_ns: Nanoseconds = 0

    def begin(self, now: Nanoseconds) -> None:
        """Silence before now counts against nobody."""
        self._looked_ns = now
        for peer in self._state.peers.values():
            peer.heard_ns = peer.listed_ns = peer.progress_ns = now
        self._watching.tell(now)
        self.see(now)

    def recount(self, now: Nanoseconds) -> None:
        """Find out who counts; if that has changed, a new view begins."""
        state = self._state
        self.excuse_standstill(now)
        self._watching.tell(now)
        for peer in state.peers.values():
            reason = self._why_not(now, peer)
            if (reason is None) == peer.counted:
                continue
            peer.counted = reason is None
            peer.progress_ns = now
            state.effects.append(Appeared(peer.site) if reason is None else Vanished(peer.site, reason))
        if self._pairs() != state.view.pairs:
            self.see(now)

    def see(self, now: Nanoseconds) -> None:
        """Begin a new view of those who count."""
        state, pairs = self._state, self._pairs()
        state.uncounted = [peer for peer in state.peers.values() if not peer.counted]
        streams = [state.own if site == state.site else state.peers[site].newest for site, _ in pairs]
        state.view = View(pairs, streams, state.site)
        self._release.new_view(now)
        self._sending.new_view(now)
        self._herald.soon(now)

    def _pairs(self) -> tuple[tuple[Site, int], ...]:
        state = self._state
        others = ((peer.site, peer.incarnation) for peer in state.counted())
        return tuple(sorted([(state.site, state.incarnation), *others]))

    def excuse_standstill(self, now: Nanoseconds) -> None:
        """If we stood still ourselves, nobody's silence meanwhile counts against him."""
        configuration = self._state.configuration
        late_ns = now - self._looked_ns - configuration.heartbeat_ns
        self._looked_ns = now
        if late_ns > configuration.suspect_after_ns // 4:
            for peer in self._state.peers.values():
                peer.heard_ns += late_ns
                peer.listed_ns += late_ns
                peer.progress_ns += late_ns

    def leave_laggards(self, now: Nanoseconds) -> None:
        """Whoever is heard of, but has not moved on in our messages for long, is left behind."""
        state = self._state
        for peer in state.counted():
            if peer.acked >= state.own.expected or not state.own.kept:
                peer.progress_ns = now
            elif now - peer.progress_ns > state.configuration.lag_ns:
                peer.left_out = peer.spell

    def forget(self, now: Nanoseconds) -> None:
        """Of those who are long gone nothing is remembered but that we do not remember."""
        since_ns = now - self._state.configuration.forget_after_ns
        for peer in list(self._state.uncounted):
            # What is kept of an earlier incarnation is for others to complete it, who have had the time.
            if peer.heard_ns < since_ns and (not peer.stream.kept or peer.successor is not None):
                self._drop(peer)

    def make_room(self) -> bool:
        """Whether there is room for one more member: one that was silent for long makes it.

        Of those that never sent us anything first: members that were only invented are among them.
        """
        state = self._state
        if len(state.peers) < state.configuration.largest_group:
            return True
        gone = min(
            (peer for peer in state.uncounted if not peer.stream.kept),
            key=lambda peer: (peer.successor is not None, peer.stream.begun, peer.heard_ns),
            default=None,
        )
        if gone is None:
            return False
        self._drop(gone)
        return True

    def _drop(self, peer: Peer) -> None:
        state = self._state
        del state.peers[peer.site]
        state.uncounted.remove(peer)
        state.note_ghost(peer.site, peer.incarnation)
        state.note_forgotten(peer.site, peer.incarnation)
        state.forgetful = state.forgetful or peer.stream.begun
        self._watching.forget(peer.site)

    def _why_not(self, now: Nanoseconds, peer: Peer) -> str | None:
        """Why a member does not count; None if it does."""
        if peer.left:
            return "It has left."
        if peer.suspected:
            return "The failure detector suspects it."
        if not self._watching.hears(now, peer):
            return "It has not been heard of for too long."
        if not self._watching.is_heard_by(now, peer):
            return "It does not hear us."
        if peer.spell <= peer.left_out:
            return "It was left behind."
        return None
