"""When members depart: how members that stay come to hold the same messages of departed ones.

The paper leaves crashes out; this is ours. Once a life is held to be over, nothing is taken from it directly
any more. Each member tells each other one which batches of such lives it holds for it (`Holds`), by the
digest of all lives that are over, and requests what it lacks. A member that has all that each of the others
holds for it, by the same digest, has all that it will ever have: it completes those streams without what is
missing, and without the confirmations of departed members. If another member is lost meanwhile the digest
changes, and all of it is done again.

Why nothing that was delivered can be lost: a member that delivered a batch, with full acceptance, knew that
every destination has it, except those that all present members held to be gone. Why all have the same: what
one of them holds when it tells the others, they get from it; and after it has told them it takes in nothing
more of departed members but what the others hold too.
"""

from collections.abc import Collection

from antiphon.core.effects import Send
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.pdus import Holding, Holds
from antiphon.protocols.sco.peer import Peer
from antiphon.protocols.sco.reception import Reception
from antiphon.protocols.sco.roster import Roster
from antiphon.protocols.sco.state import REPAIR, State


class Recovery:
    """Completes the streams of departed lives."""

    def __init__(self, state: State, roster: Roster, ordering: Ordering, reception: Reception) -> None:
        self._state = state
        self._peers = state.peers
        self._lives = state.lives
        self._roster = roster
        self._ordering = ordering
        self._reception = reception

    def start(self, now: Nanoseconds) -> None:
        """Begin to complete the streams of lives that were just found to be over."""
        if self._lives.take_orphaned():
            for former in self._peers.departed:
                self._reception.freeze(former)
            self.send_holdings(now)
            self.finish(now)

    # What we hold

    def send_holdings(self, now: Nanoseconds) -> None:
        """Tell each member that has not completed the streams what we hold for it; repeated until it has."""
        state, digest = self._state, self._lives.digest
        unfinished = [peer for peer in self._peers.present.values() if not peer.view.is_final(digest)]
        for peer in unfinished:
            if peer.view.digest == digest:
                holds = Holds(self._peers.me.life, digest, self._holdings(peer))
                state.effects.append(Send(peer.site, holds))
            else:
                state.timers.confirm_soon(now, peer)
        if unfinished and self._lives.over:
            state.timers.arm(now, REPAIR, state.configuration.repair_ns)

    def _holdings(self, peer: Peer) -> tuple[Holding, ...]:
        """What we hold for a peer that it is not known to have."""
        holdings = []
        for former in self._peers.departed:
            places = [
                batch.places[peer]
                for batch in former.stream.holds()
                if peer in batch.places and peer.confirmed.get(former, 0) < batch.end
            ]
            if places:
                holdings.append(Holding(former.name, tuple(sorted(places))))
        return tuple(holdings)

    # What others hold

    def on_holds(self, now: Nanoseconds, peer: Peer, pdu: Holds) -> None:
        """Request what a peer holds for us."""
        digest = self._lives.digest
        if pdu.gone != digest:
            return
        self._roster.agree(peer)
        if peer.view.satisfied == digest:
            return  # it repeats what we have, and may have forgotten
        owed = []
        for holding in pdu.holdings:
            if holding.places and self._lives.is_over(holding.of.site, holding.of.life):
                former = self._roster.resolve(now, holding.of)
                if former is None:
                    self._state.presence.note_hole()
                elif former.gone:
                    owed.append((former, holding.places))
        peer.view.owe(owed)
        for former, missing in self._missing(peer):
            self._reception.request(peer, former, missing)
        self._check(now, peer)
        self._state.timers.confirm_soon(now, peer)

    def _check(self, now: Nanoseconds, peer: Peer) -> None:
        """Check whether we have all that a peer holds for us, and whether that completes the streams."""
        if not self._missing(peer):
            peer.view.satisfy(self._lives.digest)
        self.finish(now)

    def check_all(self, now: Nanoseconds) -> None:
        """A batch has come that peers may hold for us."""
        for peer in list(self._peers.present.values()):
            if peer.view.owed:
                self._check(now, peer)

    def _missing(self, peer: Peer) -> list[tuple[Peer, list[int]]]:
        lacking = []
        for former, places in peer.view.owed:
            stream = former.stream
            # A sender that waits for our confirmation never gets farther than that.
            near = range(stream.received, stream.received + self._state.configuration.reach)
            missing = [
                place
                for place in places
                if place in near and place not in stream.ahead and place not in stream.refused
            ]
            late = [place for place in places if place in stream.skipped]
            if not former.settled:
                lacking += [(former, missing)] if missing else []
            elif missing or late:
                stream.take_late(missing, late)
                self._state.presence.note_hole()
        return lacking

    # Going on

    def finish(self, now: Nanoseconds) -> None:
        """Complete the streams of departed lives, once we have all that others hold for us."""
        lives, present = self._lives, self._peers.present
        if lives.final or lives.orphaned:
            return
        if not all(peer.view.satisfied == lives.digest for peer in present.values()):
            return
        if self.is_minority(()):
            self._state.presence.cut()
            return
        lives.complete()
        for former in self._peers.departed:
            if not former.settled:
                self._reception.complete(now, former)
                former.settle()
        self._ordering.progress(now)
        for peer in present.values():
            self._state.timers.confirm_soon(now, peer)

    def is_minority(self, suspects: Collection[Peer]) -> bool:
        """Whether the members left would be so few that they may be cut off themselves.

        Settled lives do not count as lost, nor do lives that never counted us, that said they leave or that
        began anew. A life counts as left only if the lost ones knew that very life when they were last heard:
        on the other side of a split newcomers are not missed, nor are members that came back there.
        """
        peers = self._peers
        unsettled = [former for former in peers.departed if not former.settled and not former.left]
        present = {peer.site: peer.life for peer in peers.present.values() if peer not in suspects}
        missed = [
            peer for peer in (*unsettled, *suspects) if peer.site not in present and peer.view.counts_us
        ]
        lost = {peer.site for peer in missed}
        known = set(present.items()).intersection(*(peer.view.listed.items() for peer in missed))
        here = {peers.site, *(site for site, _ in known)}
        if not self._state.configuration.splits or not lost or len(here) > len(lost):
            return False
        return len(here) < len(lost) or min(lost) < min(here)

    def forget(self) -> None:
        """Drop departed lives once every member has completed their streams."""
        if self._peers.departed and self._state.everyone_is_final():
            for former in [one for one in self._peers.departed if not one.stream.kept]:
                self._roster.forget(former)
