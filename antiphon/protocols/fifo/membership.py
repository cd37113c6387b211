"""Coming and going: statuses and what follows from them, newcomers, those who were left out."""

from collections.abc import Iterable
from typing import Final

from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.core.inputs import Returned, Start
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fifo.census import Census
from antiphon.protocols.fifo.following import Following
from antiphon.protocols.fifo.pdus import Extent, Leaving, Mark, Status
from antiphon.protocols.fifo.presence import HEARTBEAT, Herald, Spells
from antiphon.protocols.fifo.reception import Reception
from antiphon.protocols.fifo.release import Release
from antiphon.protocols.fifo.repair import Repair
from antiphon.protocols.fifo.sending import Sending
from antiphon.protocols.fifo.state import Peer, State
from antiphon.protocols.fifo.watching import Watching

SETTLE: Final = "settle"
SETTLE_STATUSES: Final = 4
"""How often a newcomer says that it is there while it settles."""
MOST_AHEAD: Final = 1 << 20
"""No honest serial is further ahead of the last one known: a member speaks some 300 times a second."""
LONGEST_SETTLE: Final = 3
"""How many times as long it waits for members that it hears but that have not said that it counts."""


class Membership:
    """Settles when we begin, return or were left out; hears what the others say of themselves and of us."""

    def __init__(
        self, state: State, release: Release, sending: Sending, reception: Reception, repair: Repair
    ) -> None:
        self._state = state
        self._release = release
        self._sending = sending
        self._repair = repair
        self._watching = Watching(state)
        self.herald = Herald(state, self._watching)
        self.spells = Spells(state, self.herald)
        self._census = Census(state, self._watching, self.herald, release, sending)
        self._following = Following(state, self.herald, self.spells, self._census, reception, repair)
        self._settling_ns: Nanoseconds = 0
        self._catching_up: dict[Site, int] | None = None
        """Who was left behind remembers how far it was with whom, until it sees itself move on again."""

    # Beginning and ending

    def start(self, now: Nanoseconds, event: Start, members: Iterable[Site]) -> None:
        state = self._state
        state.incarnation = event.incarnation
        state.own.start(event.incarnation, event.next_number)
        self._watching.handle(now, event)
        if event.incarnation:
            state.forgetful = event.returning
            state.spell = int(event.returning)
            self.spells.begin(returning=event.returning)
            self._census.begin(now)
            self._settle(now)
            return
        for site in members:
            if site != state.site:
                peer = state.peers[site] = Peer(site, 0, now)
                peer.stream.begin(0, 0, 0)
        state.taking_part = True
        self._census.begin(now)
        self._census.recount(now)
        state.arm(now, HEARTBEAT, state.configuration.heartbeat_ns)

    def depart(self) -> None:
        """Go, and say so; whatever is timed stands."""
        self.herald.take_leave()
        self.spells.be_absent()
        self._state.armed.clear()

    def come_back(self, now: Nanoseconds) -> None:
        """Join again, with what is remembered."""
        self._state.spell += 1
        self._catching_up = None
        self._repair.reset()
        self._watching.handle(now, Returned())
        self._census.begin(now)
        self._settle(now)

    def _settle(self, now: Nanoseconds) -> None:
        """Say that we are here, and listen for a while."""
        state = self._state
        self._settling_ns = now
        for peer in state.peers.values():
            peer.proven = False
        self.herald.tell(now)
        state.arm(now, SETTLE, max(1, state.configuration.settle_ns // SETTLE_STATUSES))
        state.arm(now, HEARTBEAT, state.configuration.heartbeat_ns)

    def settle(self, now: Nanoseconds) -> None:
        """Take part once everyone who is heard has said that we count, or will not say it in time."""
        state, span_ns = self._state, self._state.configuration.settle_ns
        if state.taking_part:
            return
        if self._catching_up is not None:
            self._catch_up(now)
        waited_ns = now - self._settling_ns if self._catching_up is None else 0
        heard = [peer for peer in state.peers.values() if peer.heard_ns >= self._settling_ns]
        settled = all(peer.proven or peer.left for peer in heard)
        if waited_ns >= span_ns and (settled or waited_ns >= LONGEST_SETTLE * span_ns):
            self._census.recount(now)
            self._resolve_all(now)
            self.spells.be_present()
        else:
            state.arm(now, SETTLE, max(1, span_ns // SETTLE_STATUSES))
        self.herald.tell(now)

    def _resolve_all(self, now: Nanoseconds) -> None:
        for peer in list(self._state.peers.values()):
            self._following.resolve(now, peer)

    # Those who were left out

    def _rejoin(self, now: Nanoseconds) -> None:
        """Something was called stable without us: this spell is over; begin another like one who returns."""
        state = self._state
        state.spell += 1
        state.counts["rejoined"] += 1
        if state.taking_part:
            self.spells.be_absent()
            self._settle(now)
        else:
            self.spells.missed = True
            self.herald.soon(now)

    def _fall_behind(self, now: Nanoseconds) -> None:
        """The others no longer wait for us; before they do again, what they send must reach us again.

        With `acknowledge` it only does when they wait for us.
        """
        if self._catching_up is not None:
            return
        if self._state.taking_part:
            self.spells.be_absent()
        else:
            self.spells.missed = True
        if self._state.configuration.repair != "acknowledge":
            self._catching_up = {}
        self._settle(now)
        self._catch_up(now)

    def _catch_up(self, now: Nanoseconds) -> None:
        """See whether we move on with everyone who sends; if so, say that a new spell begins."""
        state, before = self._state, self._catching_up
        if before is not None:
            self._resolve_all(now)
            streams = [peer.stream for peer in state.counted() if peer.successor is None]
            self._catching_up = {stream.site: stream.expected for stream in streams}
            behind = [stream for stream in streams if stream.expected < stream.end]
            if any(before.get(stream.site, NUMBER_LIMIT) >= stream.expected for stream in behind):
                return
        self._catching_up = None
        self._settling_ns = now
        state.spell += 1
        state.counts["rejoined"] += 1
        self.herald.soon(now)

    # Hearing and being heard

    def tick(self, now: Nanoseconds) -> None:
        """The heartbeat: see who is still there, and say that we are."""
        state, configuration = self._state, self._state.configuration
        self._census.excuse_standstill(now)
        self._census.leave_laggards(now)
        self._evaluate(now)
        self._census.forget(now)
        self._release.stir(now)
        waiting = configuration.announces and any(peer.acked < state.own.expected for peer in state.counted())
        quiet = now - state.own.sent_ns >= configuration.announce_ns
        if self.herald.due(now) or (waiting and quiet):
            self.herald.tell(now)
        state.arm(now, HEARTBEAT, configuration.announce_ns if waiting else configuration.heartbeat_ns)

    def receive(self, now: Nanoseconds, sender: Site, status: Status) -> None:
        state = self._state
        own = _own_word(sender, status)
        if own is None or len(status.extents) > state.configuration.largest_group + 1:
            state.ignore()
            return
        peer = self._meet(now, sender, own, status.spell)
        if peer is None or not _is_later(peer, status.serial):
            return
        peer.serial, peer.view = status.serial, status.view
        peer.heard_ns = now
        peer.left = peer.suspected = False
        peer.spell = max(peer.spell, status.spell)
        peer.extents = {extent.site: extent for extent in status.extents}
        self._hear_of_us(now, peer)
        self._release.hear_status(sender, status)
        for mark in status.left_out:
            self._note_mark(now, peer, mark)
        if peer.newest.begun:
            self._following.hear_end(now, peer, own)
        elif peer.proven:
            self._following.begin(now, peer, own)
        for extent in status.extents:
            self._learn(now, extent, agreed=status.view == state.view.number)
        self._following.see_ghosts(now, status.extents)
        if not state.taking_part and peer.proven:
            self._following.resolve(now, peer)
        self._evaluate(now)

    def leave(self, now: Nanoseconds, sender: Site, pdu: Leaving) -> None:
        peer = self._state.peers.get(sender)
        if peer is not None and pdu.incarnation == peer.incarnation and _is_later(peer, pdu.serial):
            peer.serial = pdu.serial
            peer.left = True
            self._evaluate(now)

    def detect(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        """A PDU of the failure detector."""
        if self._watching.receive(now, sender, pdu):
            self._evaluate(now)

    def watch(self, now: Nanoseconds, name: str) -> None:
        """A timer of the failure detector."""
        if self._watching.fire(now, name):
            self._evaluate(now)

    def suspect(self, now: Nanoseconds, site: Site) -> None:
        peer = self._state.peers.get(site)
        if peer is not None:
            peer.suspected = True
            self._evaluate(now)

    def restore(self, now: Nanoseconds, site: Site) -> None:
        peer = self._state.peers.get(site)
        if peer is not None and peer.suspected:
            peer.suspected = False
            self._evaluate(now)

    def _meet(self, now: Nanoseconds, sender: Site, own: Extent, spell: int) -> Peer | None:
        """The member that speaks, known or new; None if it is an earlier incarnation, or one too many."""
        state = self._state
        peer = state.peers.get(sender)
        if peer is None:
            if not self._census.make_room():
                state.ignore()
                return None
            peer = state.peers[sender] = Peer(sender, own.incarnation, now)
            state.uncounted.append(peer)
            if state.declared and spell == 0:
                # It thinks that it has missed nothing, but something was stable before we knew of it.
                peer.left_out = 0
            self.herald.soon(now)
        elif own.incarnation > peer.incarnation:
            self._following.reborn(now, peer, own.incarnation, own.first)
        return peer if own.incarnation == peer.incarnation else None

    def _hear_of_us(self, now: Nanoseconds, peer: Peer) -> None:
        """What a member says of us."""
        state = self._state
        extent = peer.extents.get(state.site)
        if extent is None or state.incarnation not in (extent.incarnation, extent.next_incarnation):
            return
        if extent.heard:
            peer.listed_ns = now
        if extent.counted:
            peer.proven = True
        if extent.incarnation == state.incarnation:
            self._sending.acknowledged(now, peer, extent.held)

    def _note_mark(self, now: Nanoseconds, peer: Peer, mark: Mark) -> None:
        """Someone was left out: we, or another, whom we do not count either until he begins anew."""
        state = self._state
        if mark.site == state.site:
            if mark.incarnation == state.incarnation and mark.spell == state.spell:
                self._fall_behind(now)
            return
        other = state.peers.get(mark.site)
        known = other is not None and mark.incarnation == other.incarnation
        if other is not None and known and peer.counted and mark.spell <= other.spell:
            other.left_out = max(other.left_out, mark.spell)

    def _learn(self, now: Nanoseconds, extent: Extent, *, agreed: bool) -> None:
        """What a member says of a stream: how far it goes, what is stable.

        Of another's stream that is hearsay. A later incarnation is believed of the site itself only, and
        while a site speaks, what others say of its messages is true at most as far as it has sent some.
        """
        state = self._state
        if extent.site == state.site:
            if agreed and extent.incarnation == state.incarnation:
                self._release.confirm(state.own, extent.stable)
            return
        other = state.peers.get(extent.site)
        stream = state.find_stream(extent.site, extent.incarnation)
        if other is None or stream is None or not stream.begun or stream is other.past:
            return
        stream.end = max(stream.end, extent.held)
        if stream.expected < stream.missing_to:
            self._repair.notice(now, stream)
        if extent.stable > max(stream.expected, stream.excused):
            speaks = state.speaks(now, other, extent.incarnation)
            if not speaks or extent.stable <= stream.seen:
                stream.excused = extent.stable
                self._rejoin(now)
        elif agreed and extent.stable > stream.stable and stream is not other.successor:
            self._release.confirm(stream, extent.stable)

    def _evaluate(self, now: Nanoseconds) -> None:
        """Whatever follows from what has become known."""
        state = self._state
        self._census.recount(now)
        for peer in list(state.peers.values()):
            if peer.successor is not None:
                self._following.close(now, peer)
            elif state.taking_part and peer.stream.expected < peer.stream.end:
                self._following.resolve(now, peer)
        if state.uncounted or any(peer.past is not None for peer in state.peers.values()):
            self._release.settle_accounts()


def _own_word(sender: Site, status: Status) -> Extent | None:
    """What a status says of its own sender."""
    for extent in status.extents:
        if extent.site == sender and extent.incarnation == status.incarnation:
            return extent
    return None


def _is_later(peer: Peer, serial: int) -> bool:
    """Whether a member's word is later than the last one; one that leaps would make it mute for ever."""
    return peer.serial < serial and (peer.serial < 0 or serial <= peer.serial + MOST_AHEAD)
