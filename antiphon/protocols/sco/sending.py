"""What a member sends of its own: batches (sections 3.1 and 3.5), and control messages (section 3.2).

Flow condition: from the oldest own batch that some destination has not confirmed, at most W batches, and no
more than each destination has buffers for if all n members take a share. The paper's minimum over all
processes would never rise past those who are not addressed (fault S8). One batch is always allowed: a share
that is rounded down to nothing would let nobody begin, and what overruns is asked for again.

Control messages carry what a batch would have told (fault S4), and go to everyone to whom nothing else was
sent (fault S5): after `confirm_ns` if there is news, in large groups after twice that if the news is only
that a message was not for it, else in every period of `control_ns`.
"""

from collections.abc import Collection, Iterable

from antiphon.core.effects import Admitted, Multicast, Rejected, Stable
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.protocol import PeerReport
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.coding import free_buffers, metadata_bytes, write_data
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.pdus import SPELL_BITS, Control, Name
from antiphon.protocols.sco.state import CONFIRM, FOREVER, Batch, Peer, State
from antiphon.protocols.sco.vectors import pack_bitmap, pack_numbers, pack_plain, pack_whole

TOGETHER = 4
"""News that would be due within one part in so many of `confirm_ns` goes along with what is due."""


class Sending:
    """Numbers and multicasts own batches, and tells the others how things stand."""

    def __init__(self, state: State, ordering: Ordering) -> None:
        self._state = state
        self._ordering = ordering
        self._serial = 0
        self._held_up = False
        """Whether what was handed in last was refused for others' sake."""

    # Messages

    def admit(self, now: Nanoseconds, bodies: Packed, sites: frozenset[Site] | None) -> None:
        state = self._state
        destinations = self._destinations(sites)
        if not state.taking_part:
            state.effects.append(Rejected("This member does not take part yet."))
        elif len(state.own) >= self._allowed(destinations):
            self._held_up = True
            state.effects.append(Rejected("As many messages as the destinations can take are under way."))
        else:
            self._held_up = False
            self._send(now, bodies, destinations)

    def reports(self) -> dict[Site, PeerReport]:
        """How far each is behind in what was sent to it, and who keeps the oldest batch from being done."""
        own = list(self._state.own)
        found = {}
        for peer in list(self._state.peers.values()):
            sent = [batch for batch in own if peer in batch.places]
            behind = [batch for batch in sent if not self._ordering.has_confirmed(peer, batch)]
            found[peer.site] = PeerReport(
                sum(len(batch.bodies) for batch in behind), peer.heard_ns, peer.round_trip_ns, peer.asked,
                self._held_up and own[:1] == behind[:1] != [],
            )  # fmt: skip
        return found

    def _destinations(self, sites: frozenset[Site] | None) -> tuple[Peer, ...]:
        """Those who count now; whoever is gone is left out.

        A member that was never heard of is a mistake where all know one another from the start. One that came
        later cannot tell: it may have been named before a restart of ours, which remembers nobody.
        """
        state = self._state
        if sites is None:
            return (state.me, *state.peers.values())
        unknown = sorted(sites - state.seen.keys() - state.peers.keys() - {state.site})
        if unknown and state.life >> SPELL_BITS == 0:
            raise UsageError(
                f"No member of the name {unknown[0]} has ever been here.",
                hint="Wait until it appears before anything is sent to it.",
            )
        chosen = (state.me, *state.peers.values()) if len(sites) > 1 else self._only(*sites)
        return tuple(peer for peer in chosen if peer.site in sites)

    def _only(self, site: Site) -> tuple[Peer, ...]:
        state = self._state
        peer = state.me if site == state.site else state.peers.get(site)
        return () if peer is None else (peer,)

    def _allowed(self, destinations: Iterable[Peer]) -> int:
        """The flow condition, in batches."""
        state, knobs = self._state, self._state.configuration
        share = knobs.buffer_share * (1 + len(state.peers))
        others = (peer.buffers // share for peer in destinations if peer is not state.me)
        return max(1, min(knobs.window, min(others, default=knobs.window)))

    def _send(self, now: Nanoseconds, bodies: Packed, destinations: tuple[Peer, ...]) -> None:
        state, me = self._state, self._state.me
        others = tuple(peer for peer in destinations if peer is not me)
        if state.table_is_stale:
            # What is written by a new table can be read once that is known; before the new number is taken,
            # since a control message speaks of all that was sent below its number.
            self.control(now, tuple(state.peers.values()))
        batch = Batch(
            me,
            state.next_number,
            bodies,
            destinations,
            frozenset(peer.site for peer in destinations),
            {peer: peer.sent for peer in others},
            state.csn_now(),
            state.acks_now(),
            me,
        )
        batch.since_ns = now
        state.next_number = me.frontier = batch.end
        state.effects.append(Admitted(batch.number, len(bodies), bodies.size, batch.sites))
        if not destinations:
            # All of them have gone since they were named: nobody is left who could lack it.
            state.effects.append(Stable(state.site, batch.number, len(bodies)))
        if others:
            state.own.append(batch)
            me.kept[batch.number] = batch
            if len(others) == len(state.peers):
                state.probe.sent(now, batch.end)
            self._multicast(now, batch, others)
        others_ns = state.configuration.others_ns(1 + len(state.peers))
        for peer in state.peers.values():
            if peer not in batch.places:
                state.tell(now, peer, others_ns)
        if me in destinations:
            self._ordering.enqueue(batch)
        self._ordering.progress(now)

    def _multicast(self, now: Nanoseconds, batch: Batch, others: tuple[Peer, ...]) -> None:
        state = self._state
        pdu = write_data(state, batch)
        for peer in others:
            peer.sent += 1
            peer.sent_csn, peer.sent_ack, peer.told = batch.csn, batch.ack, batch.ack
            peer.due_ns = None
            peer.whole_ns = now
        everyone = len(others) == len(state.peers)
        state.effects.append(Multicast(pdu, None if everyone else tuple(peer.site for peer in others)))
        state.counts["data"] += 1
        state.counts["data_copies"] += len(others)
        state.counts["data_metadata_bytes"] += len(others) * metadata_bytes(pdu)

    # Control messages

    def confirm(self, now: Nanoseconds) -> None:
        """Tell those for whom there is news, and no message took it along."""
        state = self._state
        soon_ns = now + state.configuration.confirm_ns // TOGETHER
        due, next_ns = [], FOREVER
        for peer in state.peers.values():
            if peer.due_ns is None:
                continue
            if peer.due_ns <= soon_ns:
                due.append(peer)
            else:
                next_ns = min(next_ns, peer.due_ns)
        self.control(now, due, whole=False)
        if next_ns < FOREVER:
            state.arm(now, CONFIRM, next_ns - now)

    def control(self, now: Nanoseconds, to: Collection[Peer], *, whole: bool = True) -> None:
        """Tell some how things stand: all our acks, or those that they may not know."""
        if to:
            sites = tuple(peer.site for peer in to)
            self._tell(now, to, sites, whole=whole)

    def announce(self, now: Nanoseconds) -> None:
        """Tell everyone who can hear, also those whom nobody counts."""
        self._tell(now, tuple(self._state.peers.values()), None, whole=True)

    def notify(self, now: Nanoseconds, site: Site) -> None:
        """Tell one whom we do not count that its life is over."""
        known = self._state.over.get(site)
        self._tell(now, (), (site,), whole=False, over=None if known is None else (known,))

    def _tell(
        self,
        now: Nanoseconds,
        to: Collection[Peer],
        sites: tuple[Site, ...] | None,
        *,
        whole: bool,
        over: tuple[Name, ...] | None = None,
    ) -> None:
        state = self._state
        table = state.present_table()
        ack = self._pack_acks(table, to, whole=whole)
        targets = self._pack_targets(table, to)
        self._serial += 1
        strangers = sites is None or not to
        new_table = strangers or any(peer.knows_table != state.table_version for peer in to)
        if state.over and any(peer.digest != state.digest for peer in to):
            over = tuple(state.over.values())
        pdu = Control(
            life=state.life,
            serial=self._serial,
            number=state.next_number,
            table=state.table_version,
            targets=targets,
            ack=ack,
            buffers=free_buffers(state),
            gone=state.digest,
            final=state.is_final(),
            company=1 + len(state.peers),
            names=tuple(peer.name for peer in table) if new_table else None,
            over=over,
        )
        for peer in to:
            peer.told = state.acks_now()
            peer.due_ns = None
            if whole:
                peer.whole_ns = now
        state.effects.append(Multicast(pdu, sites))
        state.counts["controls"] += max(1, len(to))
        state.counts["control_metadata_bytes"] += max(1, len(to)) * (len(targets) + len(ack))

    def _pack_acks(self, table: tuple[Peer, ...], to: Collection[Peer], *, whole: bool) -> bytes:
        acks = self._state.acks
        if self._state.configuration.vectors == "plain":
            return pack_plain([acks.get(peer, 0) for peer in table])
        if whole:
            return pack_whole([acks.get(peer, 0) for peer in table])
        before = list({id(peer.told): peer.told for peer in to}.values())
        return pack_whole(
            [
                number if any(told.get(peer, 0) != number for told in before) else 0
                for peer in table
                for number in (acks.get(peer, 0),)
            ]
        )

    def _pack_targets(self, table: tuple[Peer, ...], to: Collection[Peer]) -> bytes:
        digest, addressed = self._state.digest, set(to)
        chosen = [position for position, peer in enumerate(table) if peer in addressed]
        numbers: list[int] = []
        for position in chosen:
            peer = table[position]
            numbers += (peer.sent, peer.known_table, digest in (0, peer.satisfied))
        return pack_bitmap(chosen, len(table)) + pack_numbers(numbers)
