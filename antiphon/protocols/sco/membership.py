"""Joining, staying and leaving: failure detection, control messages, and new lives.

A member that rejoins, because it was left out or takes itself to be cut off, starts a life in which it knows
no other member. It announces itself, learns the others' tables, and takes part once all of them count it. Its
messages of earlier lives are completed by members that hold them.
"""

from collections.abc import Iterable
from random import Random
from typing import Final

from antiphon.core.effects import Multicast, Vanished
from antiphon.core.ids import Site
from antiphon.core.inputs import Start
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.pdus import LEAPT, MOST_NAMES, SPELL_BITS, Control, Leave, Name
from antiphon.protocols.sco.peer import FOREVER, Peer
from antiphon.protocols.sco.reception import Reception
from antiphon.protocols.sco.recovery import Recovery
from antiphon.protocols.sco.roster import Roster
from antiphon.protocols.sco.sending import Sending
from antiphon.protocols.sco.state import CONTROL, State
from antiphon.protocols.sco.upkeep import Upkeep
from antiphon.protocols.sco.vectors import MalformedError

LONGEST_SETTLE: Final = 4
"""Multiple of `settle_ns` after which a newcomer takes part although members have not said that they count
it, or, if it rejoins, although it has met no member. Raising it costs time to join where members are gone."""
LONGEST_LEAP: Final = 24 * 3600 * 1000 << SPELL_BITS
"""How far a member's next life may lie above its last, if others say that later ones are over: a day. Raising
it lets a liar use up lives."""
DOUBT: Final = 4
"""A batch that waits for `silence_ns` divided by this is doubted: it may follow what was never sent. Raising
it costs control messages."""
LONGEST_WAIT: Final = 3
"""Multiple of `silence_ns` after which a member with a waiting batch rejoins: by then all crashed members
have been missed, and what is still awaited never comes. Raising it costs time to recover from lies."""


class Membership:
    """Decides when this member takes part, and which members it holds to be gone."""

    def __init__(
        self,
        state: State,
        roster: Roster,
        ordering: Ordering,
        sending: Sending,
        reception: Reception,
        recovery: Recovery,
        upkeep: Upkeep,
        random: Random,
    ) -> None:
        self._state = state
        self._peers = state.peers
        self._presence = state.presence
        self._roster = roster
        self._ordering = ordering
        self._sending = sending
        self._reception = reception
        self._recovery = recovery
        self._upkeep = upkeep
        self._random = random
        self._settling_ns: Nanoseconds = 0
        """When this life was announced first."""
        self._ticked_ns: Nanoseconds = 0
        """When the last period of control messages ended."""
        self._announced_ns: Nanoseconds = 0
        self._awake_ns: Nanoseconds = 0
        """When this member last resumed after it had stood still."""
        self._was_counted = False
        """Whether others counted an earlier life of ours, and may not know yet that it is over."""
        self._claimed = -1
        """A later life of ours that is said to be over, above which the next one lies; or -1."""
        self._refuted = -1
        """The same, so late that no life of ours can lie above it; or -1."""
        self._notified_ns: dict[Site, Nanoseconds] = {}

    # Beginning and ending

    def start(self, now: Nanoseconds, event: Start, members: Iterable[Site]) -> None:
        state = self._state
        state.begin(now, event.incarnation << SPELL_BITS, event.next_number)
        self._ticked_ns = self._announced_ns = now
        if event.incarnation:
            self._presence.resume(absent=event.returning)
            self._was_counted = event.returning
            self._settle(now)
            return
        self._roster.begin_together(now, members)
        self._presence.take_part()
        # Members that tick at different moments do not flood the network together.
        state.timers.arm(now, CONTROL, self._random.randint(1, state.configuration.control_ns))

    def depart(self) -> None:
        """Leave, and say so."""
        self._state.effects.append(Multicast(Leave(self._peers.me.life)))
        self._presence.leave()

    def rejoin(self, now: Nanoseconds) -> None:
        """Forget everything, and join under a new life."""
        state, peers = self._state, self._peers
        self._presence.leave()
        self._was_counted = bool(peers.present)
        state.counts["begun_anew"] += 1
        state.effects.extend(Vanished(site, "This member begins anew.") for site in peers.present)
        state.timers.cancel()
        state.begin(now, self._next_life, peers.next_number)
        self._ordering.begin()
        self._settle(now)

    @property
    def _next_life(self) -> int:
        """Above those that are said to be over, unless that is too far."""
        life = self._peers.me.life
        if life < self._claimed:
            return self._claimed + 1 | LEAPT
        return life + 1 | life & LEAPT

    def _settle(self, now: Nanoseconds) -> None:
        """Announce this life, and listen for a while."""
        self._settling_ns = self._ticked_ns = self._announced_ns = now
        self._sending.announce(now)
        self._state.timers.arm(now, CONTROL, self._state.configuration.control_ns)

    def _take_part(self, now: Nanoseconds) -> None:
        """Take part once every known member counts us, or will not in time.

        Members that have never spoken are waited for until they are missed: what others say of their lives
        may be wrong, and what was sent to such a life would never reach them.
        """
        state, present = self._state, self._peers.present
        span_ns, digest = state.configuration.settle_ns, state.lives.digest
        waited_ns = now - self._settling_ns
        known = all(peer.view.counts_us and peer.view.digest == digest for peer in present.values())
        known &= bool(present) or not self._was_counted
        is_late = waited_ns >= LONGEST_SETTLE * span_ns and all(peer.heard for peer in present.values())
        settled = (known and state.lives.final) or is_late
        if waited_ns < span_ns or not settled:
            return
        self._presence.enter()
        self._ordering.progress(now)

    # Staying

    def on_control_timer(self, now: Nanoseconds) -> None:
        """A period of control messages is over."""
        presence, knobs = self._presence, self._state.configuration
        before_ns, self._ticked_ns = self._ticked_ns, now
        if now - before_ns > knobs.control_ns + knobs.silence_ns // 2:
            self._excuse(now)
        self._suspect_silent(now)
        if self._recovery.is_minority(()):
            presence.cut()  # others have missed the last ones first, and their departures were told
        if presence.cut_off:
            return
        self._ordering.link_all()
        self._recovery.forget()
        self._doubt(now)
        if self._is_stuck(now):
            presence.cut()
            return
        if not presence.taking_part:
            self._take_part(now)
        pause_ns = knobs.announce_ns if presence.taking_part else self._upkeep.chase_ns
        if self._state.gathers() and presence.taking_part:
            self._upkeep.tick(now)
        elif now - self._announced_ns >= pause_ns:
            self._announced_ns = now
            self._sending.announce(now)
        elif not self._state.gathers():
            present = self._peers.present.values()
            self._sending.control(now, [peer for peer in present if peer.outgoing.whole_ns <= before_ns])
        self._upkeep.ask(now)
        self._state.timers.arm(now, CONTROL, self._upkeep.tick_ns)

    def _doubt(self, now: Nanoseconds) -> None:
        """Ask the peers for whose messages a batch waits long: they answer a new table with their number."""
        limit_ns = now - self._state.configuration.silence_ns // DOUBT
        for batch in self._ordering.tops():
            awaited, version = batch.blocked_by, batch.table_version
            if batch.since_ns <= limit_ns and awaited is not None and awaited.claims.answered <= version:
                if self._peers.version <= version:
                    self._peers.renew()
                self._state.timers.confirm_soon(now, awaited)
        self._ordering.untie(now, limit_ns)

    def _is_stuck(self, now: Nanoseconds) -> bool:
        """Whether a batch here waits for what no member has."""
        limit_ns = now - LONGEST_WAIT * self._state.configuration.silence_ns
        return self._awake_ns < limit_ns and self._ordering.waits_since_before(limit_ns)

    def _excuse(self, now: Nanoseconds) -> None:
        """We were standing still ourselves: the silence of others means nothing."""
        self._awake_ns = now
        for peer in self._peers.present.values():
            peer.heard_ns = now

    def _suspect_silent(self, now: Nanoseconds) -> None:
        limit_ns = now - self._state.configuration.silence_ns
        present = self._peers.present.values()
        silent = [peer.site for peer in present if max(peer.heard_ns, peer.awaited_ns) < limit_ns]
        if silent:
            self.suspect(now, silent)

    def suspect(self, now: Nanoseconds, sites: Iterable[Site]) -> None:
        """Hold members to be gone; if we may be cut off ourselves, end our own life instead."""
        present = self._peers.present
        missed = [peer for site in sites if (peer := present.get(site)) is not None]
        if self._recovery.is_minority(missed):
            self._presence.cut()
            return
        self._state.counts["suspected"] += len(missed)
        self._roster.mark_over(now, [Name(peer.site, peer.life, gone=True) for peer in missed])

    # Hearing the others

    def on_sender(self, now: Nanoseconds, sender: Site, life: int) -> Peer | None:
        """The peer that sent a PDU; None if nothing can be taken from that life."""
        known = self._peers.present.get(sender)
        if known is not None and known.life == life:
            known.heard_ns = now
            return known if known.heard else self._roster.on_sender(now, sender, life)
        if sender == self._peers.site:
            raise MalformedError("in our own name")
        peer = self._roster.on_sender(now, sender, life)
        if peer is None:
            self._notify(now, sender)
            return None
        self._sending.control(now, (peer,))
        return peer

    def _notify(self, now: Nanoseconds, site: Site) -> None:
        """Tell a site that its life is over, at most once in a period."""
        if now - self._notified_ns.get(site, -FOREVER) >= self._state.configuration.control_ns:
            if len(self._notified_ns) >= MOST_NAMES:
                self._notified_ns.clear()
            self._notified_ns[site] = now
            self._sending.notify(now, site)

    def on_leave(self, now: Nanoseconds, peer: Peer) -> None:
        self._roster.mark_over(now, (Name(peer.site, peer.life, gone=True, left=True),))

    def on_control(self, now: Nanoseconds, sender: Site, pdu: Control) -> None:
        """Take another member's control message; raises `MalformedError` if it is malformed."""
        if self._is_our_end(sender, pdu):
            self._presence.cut()
            return
        peer = self.on_sender(now, sender, pdu.life)
        if peer is None:
            return
        if pdu.over is not None:
            self._roster.mark_over(now, pdu.over)
        if pdu.names is not None:
            self._roster.learn_table(now, peer, pdu.table, pdu.names)
        if peer.gone:
            return
        view, timers = peer.view, self._state.timers
        if view.is_news(pdu.serial):
            view.update(pdu.serial, pdu.gone)
            peer.buffers = pdu.buffers
            if pdu.gone == self._state.lives.digest:
                self._roster.agree(peer)
            else:
                timers.confirm_soon(now, peer)
        if pdu.asks:
            peer.outgoing.forget_told()
            timers.confirm_soon(now, peer)
        table = view.tables.get(pdu.table)
        if table is None:
            timers.confirm_soon(now, peer)
        else:
            self._reception.on_control(now, peer, pdu, table)

    def _is_our_end(self, sender: Site, pdu: Control) -> bool:
        """Whether a control message says that our life is over, and its sender is to be believed.

        Two members that hold one another to be gone would never meet again: the one that counts fewer
        members gives in.
        """
        peers, life = self._peers, self._peers.me.life
        end = max((name.life for name in pdu.over or () if name.site == peers.site), default=-1)
        is_too_late = end > life + LONGEST_LEAP
        if end < life or (is_too_late and end <= self._refuted) or sender == peers.site:
            return False
        is_less = (pdu.members, sender) <= (1 + len(peers.present), peers.site)
        if is_less and self._state.lives.is_over(sender, pdu.life):
            return False
        if is_too_late:
            self._refuted = end
        elif end > life:
            self._claimed = end
        return True
