"""When members go: how those who stay come to have the same of what the others had sent.

The paper leaves crashes out; this is ours. Once a life is held to be over, nothing is taken from it directly
any more. Everyone tells everyone what it holds of such lives for them (`Holds`), by the digest of all lives
that are over; whoever lacks something of that asks for it. A member that has all that each of the others
holds for it, by the same digest, has all that it will ever have: it goes on without what is missing, and
without the confirmations of those who are gone. If another is lost meanwhile the digest is another, and all
of it is done again.

Why nothing that was delivered can be lost: whoever delivered a batch, with full acceptance, had every
destination's word that it has it, those aside whom all who counted held to be gone. Why all have the same:
what one of them holds when it tells the others, they get from it; and after it has told them it takes in
nothing more of those who are gone but what they hold too.
"""

from collections.abc import Collection

from antiphon.core.effects import Send
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.pdus import Holding, Holds
from antiphon.protocols.sco.reception import Reception
from antiphon.protocols.sco.roster import Roster
from antiphon.protocols.sco.state import FOREVER, REPAIR, Peer, State


class Parting:
    """Completes what there is of lives that are over."""

    def __init__(self, state: State, roster: Roster, ordering: Ordering, reception: Reception) -> None:
        self._state = state
        self._roster = roster
        self._ordering = ordering
        self._reception = reception

    def attend(self, now: Nanoseconds) -> None:
        """Begin to complete what there is of lives that were just found to be over."""
        state = self._state
        if state.bereaved:
            state.bereaved = False
            for ghost in state.ghosts:
                self._reception.freeze(ghost)
            self.tell_all(now)
            self.finish(now)

    # Telling

    def tell_all(self, now: Nanoseconds) -> None:
        """Tell everyone who does not have all of it what we hold for them; again as long as that lasts."""
        state = self._state
        unfinished = [peer for peer in state.peers.values() if not _is_final(peer, state.digest)]
        for peer in unfinished:
            if peer.digest == state.digest:
                state.effects.append(Send(peer.site, Holds(state.life, state.digest, self._holdings(peer))))
            else:
                state.tell(now, peer)
        if unfinished and state.over:
            state.arm(now, REPAIR, state.configuration.repair_ns)

    def _holdings(self, peer: Peer) -> tuple[Holding, ...]:
        """What we hold for a peer that it is not known to have."""
        holdings = []
        for ghost in self._state.ghosts:
            places = [
                batch.places[peer]
                for batch in ghost.holds()
                if peer in batch.places and peer.confirmed.get(ghost, 0) < batch.end
            ]
            if places:
                holdings.append(Holding(ghost.name, tuple(sorted(places))))
        return tuple(holdings)

    # Being told

    def holds(self, now: Nanoseconds, peer: Peer, pdu: Holds) -> None:
        """What a peer holds for us."""
        state = self._state
        if pdu.gone != state.digest:
            return
        self._roster.agree(peer)
        if peer.satisfied == state.digest:
            return  # it says again what we have, and may have forgotten
        peer.owed = []
        for holding in pdu.holdings:
            if holding.places and self._roster.is_over(holding.of.site, holding.of.life):
                ghost = self._roster.know(now, holding.of)
                if ghost is None:
                    self._state.note_hole()
                elif ghost.gone:
                    peer.owed.append((ghost, holding.places))
        for ghost, missing in self._missing(peer):
            self._reception.ask(peer, ghost, missing)
        self.check(now, peer)
        state.tell(now, peer)

    def check(self, now: Nanoseconds, peer: Peer) -> None:
        """See whether we have all that a peer has told us of, and whether that was the last."""
        if not self._missing(peer):
            peer.satisfied = self._state.digest
            peer.owed = []
        self.finish(now)

    def check_all(self, now: Nanoseconds) -> None:
        """Something has come that a peer may have told us of."""
        for peer in list(self._state.peers.values()):
            if peer.owed:
                self.check(now, peer)

    def _missing(self, peer: Peer) -> list[tuple[Peer, list[int]]]:
        lacking = []
        for ghost, places in peer.owed:
            # A sender that is still owed our confirmation never gets farther than that.
            near = range(ghost.received, ghost.received + self._state.configuration.reach)
            missing = [
                place
                for place in places
                if place in near and place not in ghost.ahead and place not in ghost.refused
            ]
            late = [place for place in places if place in ghost.skipped]
            if not ghost.settled:
                lacking += [(ghost, missing)] if missing else []
            elif missing or late:
                ghost.skipped.difference_update(late)
                ghost.received = max([ghost.received, *(1 + place for place in missing)])
                self._state.note_hole()
        return lacking

    # Going on

    def finish(self, now: Nanoseconds) -> None:
        """Go on without those who are gone, once everyone has told us all that they hold."""
        state = self._state
        if (
            state.final
            or state.bereaved
            or not all(peer.satisfied == state.digest for peer in state.peers.values())
        ):
            return
        if self.is_minority(()):
            state.cut_off = True
            return
        state.final = True
        for ghost in state.ghosts:
            if not ghost.settled:
                self._reception.take_the_rest(now, ghost)
                ghost.settled = True
                ghost.frontier = FOREVER
        self._ordering.progress(now)
        for peer in state.peers.values():
            state.tell(now, peer)

    def is_minority(self, suspects: Collection[Peer]) -> bool:
        """Whether those who would be left are so few that it may be they who are cut off.

        What is settled does not count, nor do those who never said that we count for them, who have said that
        they go or who have begun anew. Who is left counts only if those who are lost knew of that very life
        when they were last heard: on the other side of a split newcomers are not missed, nor is one who came
        back there as another.
        """
        state = self._state
        unsettled = [ghost for ghost in state.ghosts if not ghost.settled and not ghost.left]
        present = {peer.site: peer.life for peer in state.peers.values() if peer not in suspects}
        missed = [peer for peer in (*unsettled, *suspects) if peer.site not in present and peer.counts_us]
        lost = {peer.site for peer in missed}
        known = set(present.items()).intersection(*(peer.listed.items() for peer in missed))
        here = {state.site, *(site for site, _ in known)}
        if not state.configuration.splits or not lost or len(here) > len(lost):
            return False
        return len(here) < len(lost) or min(lost) < min(here)

    def forget(self) -> None:
        """Speak no more of those of whom everyone has everything."""
        state = self._state
        if state.ghosts and state.everyone_is_final():
            for ghost in [ghost for ghost in state.ghosts if not ghost.kept]:
                self._roster.forget(ghost)


def _is_final(peer: Peer, digest: int) -> bool:
    return peer.final and peer.digest == digest
