"""Coming, being there and going: control messages as they are heard, newcomers, and those who were left out.

A member that begins anew, or was left out, or takes itself to be cut off, starts a life in which it knows
nobody. It says that it is there, hears the others' tables, and takes part once all of them count it. Its
messages of earlier lives are completed by those who hold them.
"""

from collections.abc import Iterable
from itertools import islice
from random import Random
from typing import Final

from antiphon.core.effects import Absent, CancelTimer, Multicast, Present, Vanished
from antiphon.core.ids import Site
from antiphon.core.inputs import Start
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.ordering import Ordering, raise_entries
from antiphon.protocols.sco.parting import Parting
from antiphon.protocols.sco.pdus import MOST_NAMES, SPELL_BITS, Control, Leave, Name
from antiphon.protocols.sco.reception import Reception
from antiphon.protocols.sco.roster import FAR, Roster
from antiphon.protocols.sco.sending import Sending
from antiphon.protocols.sco.state import CONFIRM, CONTROL, FOREVER, REPAIR, Peer, State, Table
from antiphon.protocols.sco.vectors import MalformedError, read_bitmap, read_numbers, read_vector

TARGET_NUMBERS: Final = 3
"""What a control message tells each of those it speaks to."""
LONGEST_SETTLE: Final = 4
"""How many times as long a newcomer waits for members who have not said that it counts, and one that comes
back for anybody at all. Raising it costs time to join where members are gone."""
LONGEST_LEAP: Final = 24 * 3600 * 1000 << SPELL_BITS
"""How far a member's next life lies above its last, if others say that later ones are over: a day. Raising it
lets a liar use up lives."""
DOUBT: Final = 4
"""A batch that waits for one part in so many of `silence_ns` is doubted: maybe it follows what was never
sent. Raising it costs control messages."""
LONGEST_WAIT: Final = 3
"""A member with whom something waits for so many times `silence_ns` begins anew: by then all who are gone
have been missed, and what is still awaited never comes. Raising it costs time to recover from lies."""


class Membership:
    """Hears who is there and says so."""

    def __init__(
        self,
        state: State,
        roster: Roster,
        ordering: Ordering,
        sending: Sending,
        reception: Reception,
        parting: Parting,
        random: Random,
    ) -> None:
        self._state = state
        self._roster = roster
        self._ordering = ordering
        self._sending = sending
        self._reception = reception
        self._parting = parting
        self._random = random
        self._ticked_ns: Nanoseconds = 0
        self._announced_ns: Nanoseconds = 0
        self._awake_ns: Nanoseconds = 0
        """Since when we have not been standing still."""
        self._was_in_company = False
        """Whether others counted an earlier life of ours, and may not know yet that it is over."""
        self._notified_ns: dict[Site, Nanoseconds] = {}

    # Beginning and ending

    def start(self, now: Nanoseconds, event: Start, members: Iterable[Site]) -> None:
        state = self._state
        state.next_number = event.next_number
        state.begin(now, event.incarnation << SPELL_BITS)
        self._ticked_ns = self._announced_ns = now
        if event.incarnation:
            state.absent = self._was_in_company = event.returning
            self._settle(now)
            return
        self._roster.begin_together(now, members)
        state.taking_part = True
        # Members that tick at different moments do not flood the network together.
        state.arm(now, CONTROL, self._random.randint(1, state.configuration.control_ns))

    def depart(self) -> None:
        """Go, and say so."""
        self._state.effects.append(Multicast(Leave(self._state.life)))
        self._be_absent()

    def begin_anew(self, now: Nanoseconds) -> None:
        """Forget everything, and come as one who was never here."""
        state = self._state
        self._be_absent()
        self._was_in_company = bool(state.peers)
        state.counts["begun_anew"] += 1
        state.effects += [Vanished(site, "This member begins anew.") for site in state.peers]
        state.effects += [CancelTimer(name) for name in (CONTROL, CONFIRM, REPAIR)]
        state.begin(now, self._next_life)
        self._settle(now)

    @property
    def _next_life(self) -> int:
        """Beyond those that are said to be over, if that can be."""
        life, refuted = self._state.life, self._state.refuted
        return refuted + 1 if life < refuted <= life + LONGEST_LEAP else life + 1

    def _be_absent(self) -> None:
        state = self._state
        state.taking_part = False
        if not state.absent:
            state.absent = True
            state.effects.append(Absent())

    def _settle(self, now: Nanoseconds) -> None:
        """Say that we are here, and listen for a while."""
        state = self._state
        state.settling_ns = self._ticked_ns = self._announced_ns = now
        self._sending.announce(now)
        state.arm(now, CONTROL, state.configuration.control_ns)

    def _take_part(self, now: Nanoseconds) -> None:
        """Take part once everyone whom we know counts us, or will not in time.

        Those who have never spoken are waited for until they are missed: what others say of their lives may
        be wrong, and what was sent to such a life would never reach them.
        """
        state, span_ns = self._state, self._state.configuration.settle_ns
        waited_ns = now - state.settling_ns
        known = all(peer.counts_us and peer.digest == state.digest for peer in state.peers.values())
        known &= bool(state.peers) or not self._was_in_company
        late = waited_ns >= LONGEST_SETTLE * span_ns and all(peer.heard for peer in state.peers.values())
        settled = (known and state.final) or late
        if waited_ns < span_ns or not settled:
            return
        state.taking_part = True
        state.absent = False
        state.effects.append(Present())
        self._ordering.progress(now)

    # Being there

    def tick(self, now: Nanoseconds) -> None:
        """A period of control messages is over."""
        state, knobs = self._state, self._state.configuration
        before_ns, self._ticked_ns = self._ticked_ns, now
        if now - before_ns > knobs.control_ns + knobs.silence_ns // 2:
            self._excuse(now)
        self._miss_the_silent(now)
        if state.cut_off:
            return
        self._ordering.link_all()
        self._parting.forget()
        self._doubt(now)
        if self._is_stuck(now):
            state.cut_off = True
            return
        if not state.taking_part:
            self._take_part(now)
        if not state.taking_part or now - self._announced_ns >= knobs.announce_ns:
            self._announced_ns = now
            self._sending.announce(now)
        else:
            quiet = [peer for peer in state.peers.values() if peer.whole_ns <= before_ns]
            self._sending.control(now, quiet)
        state.arm(now, CONTROL, knobs.control_ns)

    def _doubt(self, now: Nanoseconds) -> None:
        """Ask those for whose messages something waits long: they answer a new table with their number."""
        state = self._state
        limit_ns = now - state.configuration.silence_ns // DOUBT
        for batch in [peer.queue[0] for peer in state.waiting]:
            awaited = batch.blocked_by
            if batch.since_ns <= limit_ns and awaited is not None and awaited.answered <= batch.table_version:
                state.table_is_stale |= state.table_version <= batch.table_version
                state.tell(now, awaited)
        self._ordering.untie(now, limit_ns)

    def _is_stuck(self, now: Nanoseconds) -> bool:
        """Whether something here waits for what nobody has."""
        state = self._state
        oldest = [
            *(peer.queue[0] for peer in state.waiting),
            *islice(state.causality, 1),
            *islice(state.own, 1),
        ]
        limit_ns = now - LONGEST_WAIT * state.configuration.silence_ns
        return self._awake_ns < limit_ns and any(batch.since_ns < limit_ns for batch in oldest)

    def _excuse(self, now: Nanoseconds) -> None:
        """We were standing still ourselves: nobody's silence means anything."""
        self._awake_ns = now
        for peer in self._state.peers.values():
            peer.heard_ns = now

    def _miss_the_silent(self, now: Nanoseconds) -> None:
        limit_ns = now - self._state.configuration.silence_ns
        silent = [peer.site for peer in self._state.peers.values() if peer.heard_ns < limit_ns]
        if silent:
            self.suspect(now, silent)

    def suspect(self, now: Nanoseconds, sites: Iterable[Site]) -> None:
        """Hold members to be gone; if they are so many that it may be us who are, say nothing of it."""
        state = self._state
        missed = [peer for site in sites if (peer := state.peers.get(site)) is not None]
        if self._parting.is_minority(missed):
            state.cut_off = True
            return
        state.counts["suspected"] += len(missed)
        self._roster.adopt(now, [Name(peer.site, peer.life, gone=True) for peer in missed])

    # Hearing the others

    def hear(self, now: Nanoseconds, sender: Site, life: int) -> Peer | None:
        """Whoever speaks; None if nothing can be taken from that life."""
        state = self._state
        known = state.peers.get(sender)
        if known is not None and known.life == life and known.heard:
            known.heard_ns = now
            return known
        if sender == state.site:
            raise MalformedError("in our own name")
        if known is not None and known.life == life:
            known.heard_ns = now
            return self._roster.hear(now, sender, life)
        peer = self._roster.hear(now, sender, life)
        if peer is None:
            self._notify(now, sender)
            return None
        self._sending.control(now, (peer,))
        return peer

    def _notify(self, now: Nanoseconds, site: Site) -> None:
        """Tell one that its life is over, but not all the time."""
        if now - self._notified_ns.get(site, -FOREVER) >= self._state.configuration.control_ns:
            if len(self._notified_ns) >= MOST_NAMES:
                self._notified_ns.clear()
            self._notified_ns[site] = now
            self._sending.notify(now, site)

    def leave(self, now: Nanoseconds, peer: Peer) -> None:
        self._roster.adopt(now, (Name(peer.site, peer.life, gone=True, left=True),))

    def control(self, now: Nanoseconds, sender: Site, pdu: Control) -> None:
        """How things stand with another; raises `MalformedError` if it makes no sense."""
        state = self._state
        if self._is_our_end(sender, pdu):
            state.cut_off = True
            return
        peer = self.hear(now, sender, pdu.life)
        if peer is None:
            return
        if pdu.over is not None:
            self._roster.adopt(now, pdu.over)
        if pdu.names is not None:
            self._roster.learn_table(now, peer, pdu.table, pdu.names)
        if peer.gone:
            return
        if pdu.serial > peer.serial or pdu.serial + FAR < peer.serial:
            peer.serial, peer.buffers = pdu.serial, pdu.buffers
            peer.digest, peer.company = pdu.gone, pdu.company
            if pdu.gone == state.digest:
                self._roster.agree(peer)
            else:
                state.tell(now, peer)
        table = peer.tables.get(pdu.table)
        if table is None:
            state.tell(now, peer)
        else:
            self._read(now, peer, pdu, table)

    def _is_our_end(self, sender: Site, pdu: Control) -> bool:
        """Whether we are told that our life is over, by one whose word counts.

        Two who hold one another to be gone would never meet again: then those with less company give in.
        """
        state = self._state
        end = max((name.life for name in pdu.over or () if name.site == state.site), default=-1)
        if end < state.life or state.life < end <= state.refuted:
            return False
        is_less = (pdu.company, sender) <= (1 + len(state.peers), state.site)
        if is_less and self._roster.is_over(sender, pdu.life):
            return False
        if end > state.life:
            state.refuted = end
        return True

    def _read(self, now: Nanoseconds, peer: Peer, pdu: Control, table: Table) -> None:
        """What a control message says to us in the words of its sender's table."""
        state = self._state
        told = read_vector(pdu.ack, [0] * len(table))
        acks = {
            entry.peer: number
            for entry, number in zip(table, told, strict=True)
            if number and entry.peer and not entry.peer.forgotten
        }
        chosen, offset = read_bitmap(pdu.targets, 0, len(table))
        numbers, end = read_numbers(pdu.targets, offset, TARGET_NUMBERS * len(chosen))
        if end != len(pdu.targets):
            raise MalformedError("targets that do not fit the table")
        if acks.get(state.me, 0) > state.next_number:
            raise MalformedError("confirms what was never sent")
        if pdu.gone == state.digest:
            # One who holds somebody to be gone may have skipped what nobody had of it: to those who do not
            # know that yet, to the one itself above all, its confirmations would say too much.
            raise_entries(peer.confirmed, acks)
            state.time(now, peer)
        for index, position in enumerate(chosen):
            if table[position].peer is state.me:
                sent, known_table, has_all = numbers[TARGET_NUMBERS * index :][:TARGET_NUMBERS]
                if sent == 0 and peer.first < 0:
                    peer.first = pdu.number
                self._note_sent(now, peer, pdu.number, sent)
                if sent <= peer.received:
                    raise_entries(peer.passed, acks)
                self._note_answer(peer, known_table, pdu.number)
                if pdu.serial == peer.serial:
                    self._note_final(now, peer, final=pdu.final and has_all == 1)
        self._ordering.progress(now)

    def _note_final(self, now: Nanoseconds, peer: Peer, *, final: bool) -> None:
        """Whether a peer has all of those who are gone; if not it is told what we hold."""
        state = self._state
        peer.final = final
        if state.over and not (final and peer.digest == state.digest):
            state.arm(now, REPAIR, state.configuration.repair_ns)

    def _note_sent(self, now: Nanoseconds, peer: Peer, number: int, sent: int) -> None:
        """A peer has sent us so many batches below that number: all have come, or some are missing."""
        if sent > peer.received + self._state.configuration.reach:
            raise MalformedError("more than a window was sent")
        if sent <= peer.received:
            peer.frontier = max(peer.frontier, number)
        else:
            peer.needed = max(peer.needed, sent)
            self._reception.look_for_gaps(now, peer)

    def _note_answer(self, peer: Peer, version: int, number: int) -> None:
        """A peer that knew this version of our table had come as far as that number."""
        if version > self._state.table_version:
            raise MalformedError("a table of ours that never was")
        peer.knows_table = version
        if version > peer.answered:
            peer.answered, peer.answered_number = version, number
            if version > peer.csn_version:
                self._state.take_back(peer, max(number, peer.frontier))
