"""A member's own messages: taken if there is room, multicast, and delivered here once they are safe."""

from typing import Final

from antiphon.core.effects import Admitted, Multicast, Rejected
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.protocol import PeerReport
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo.pdus import Copy, Data, RidingData
from antiphon.protocols.fifo.release import Release
from antiphon.protocols.fifo.state import Peer, State
from antiphon.protocols.fifo.streams import MOST_KEPT
from antiphon.protocols.probe import Probe

REPEAT: Final = "repeat"
MOST_REPEATED: Final = 16
"""Batches that one timer repeats at most: the oldest, since they are taken in order."""
LONGEST_PAUSE: Final = 8
"""Pauses between repetitions double up to this multiple of the first."""


class Sending:
    """Admission, flow control and, with `acknowledge`, repetition."""

    def __init__(self, state: State, release: Release) -> None:
        self._state = state
        self._release = release
        self._waits = state.configuration.others_keep
        self._repeats = state.configuration.repair == "acknowledge"
        configuration = state.configuration
        self._announce_ns = configuration.announce_ns if configuration.announces else None
        self._probe = Probe()
        self._held_up = False
        """Whether what was handed in last was refused for others' sake."""
        self._slowest = 0
        """No member that counts is behind this; refreshed when the window seems full."""

    def admit(self, now: Nanoseconds, bodies: Packed) -> None:
        state, own, view = self._state, self._state.own, self._state.view
        reason = self._objection(bodies)
        self._held_up = reason is not None and state.taking_part
        if reason is not None:
            state.effects.append(Rejected(reason))
            return
        number = own.add(bodies)
        own.sent_ns = now
        self._probe.sent(now, own.expected)
        state.effects.append(Admitted(number, len(bodies), bodies.size))
        release = self._release
        release.fresh_bytes += bodies.weight
        if len(view.pairs) > 1:
            row = release.row
            pdu: Data | RidingData
            if row is None:
                held = view.packer.pack(*view.held())
                pdu = Data(state.incarnation, number, view.number, held, bodies)
            else:
                pdu = RidingData(state.incarnation, number, view.number, row(view.held()), bodies)
            state.effects.append(Multicast(pdu))
            self._note_told(now)
            if self._announce_ns is not None:
                state.arm(now, "heartbeat", self._announce_ns)
        if len(view.pairs) == 1 or not self._waits:
            release.deliver_own(own.expected)
        if self._repeats:
            own.repaired[number] = (now + state.configuration.repair_ns, state.site)
            state.arm(now, REPEAT, state.configuration.repair_ns)
        if release.wakeful:
            release.wake(now)
        if release.fresh_bytes > release.due_bytes:
            release.hurry(now)

    def _objection(self, bodies: Packed) -> str | None:
        """Why a batch cannot be taken now. One that exceeds a limit by itself is taken when it is alone."""
        state, own, configuration = self._state, self._state.own, self._state.configuration
        if not state.taking_part:
            return "This member does not take part yet."
        full = own.kept_bytes + bodies.weight > configuration.retain_bytes or len(own.kept) >= MOST_KEPT // 2
        if own.kept and full:
            state.counts["refused"] += 1
            return "As much as may be retained is not stable yet."
        window_bytes = configuration.window_bytes - bodies.weight
        if own.bytes_beyond(self._slowest) > max(0, window_bytes):
            self._slowest = min((peer.acked for peer in state.counted()), default=own.expected)
            if own.bytes_beyond(self._slowest) > max(0, window_bytes):
                return "The slowest member is as far behind as the window allows."
        return None

    def _note_told(self, now: Nanoseconds) -> None:
        """What we just multicast tells our position to everyone who sees the same view."""
        number = self._state.view.number
        for peer in self._state.peers.values():
            if peer.view == number:
                stream = peer.stream
                stream.told = stream.expected
                stream.told_ns = now
                stream.untold_bytes = 0

    # Acknowledgements

    def acknowledged(self, now: Nanoseconds, peer: Peer, position: int) -> None:
        """A member holds our messages below a position."""
        own = self._state.own
        if position <= peer.acked or not own.begins_at(position):
            return
        peer.acked = position
        peer.progress_ns = now
        if peer.probed != self._probe.serial:
            self._time(now, peer)
        if position > own.delivered and peer.counted:
            # One more member that counts holds it, so that our crash cannot take it along.
            self._release.deliver_own(position)

    def _time(self, now: Nanoseconds, peer: Peer) -> None:
        round_trip_ns = self._probe.held(now, peer.probed, peer.acked)
        if round_trip_ns is not None:
            peer.probed, peer.round_trip_ns = self._probe.serial, round_trip_ns

    def reports(self) -> dict[Site, PeerReport]:
        """How far each member that counts is behind, and whether it is the one that we wait for."""
        own = self._state.own
        counted = [peer for peer in list(self._state.peers.values()) if peer.counted]
        slowest = min((peer.acked for peer in counted), default=own.expected)
        return {
            peer.site: PeerReport(
                own.expected - peer.acked, peer.heard_ns, peer.round_trip_ns, peer.asked,
                self._held_up and peer.acked == slowest < own.expected,
            )
            for peer in counted
        }  # fmt: skip

    def new_view(self, now: Nanoseconds) -> None:
        """Others count than before: whoever is new has all to acknowledge that is not stable."""
        state, own = self._state, self._state.own
        self._slowest = own.stable
        acked = [peer.acked for peer in state.counted()]
        self._release.deliver_own(max(acked, default=own.expected))
        if self._repeats and own.kept:
            state.arm(now, REPEAT, state.configuration.repair_ns)

    def repeat(self, now: Nanoseconds) -> None:
        """With `acknowledge`: multicast again what somebody has not acknowledged in time."""
        state, own = self._state, self._state.own
        slowest = min((peer.acked for peer in state.counted()), default=own.expected)
        if slowest >= own.expected:
            return
        pause_ns = state.configuration.repair_ns
        repeated = 0
        for number, bodies in own.kept.items():
            due_ns, _ = own.repaired.get(number, (now, state.site))
            if number < slowest or due_ns > now:
                continue
            own.repaired[number] = (now + pause_ns, state.site)
            state.effects.append(Multicast(Copy(state.site, state.incarnation, number, bodies)))
            state.counts["copies"] += 1
            repeated += 1
            if repeated == MOST_REPEATED:
                break
        state.arm(now, REPEAT, pause_ns)
