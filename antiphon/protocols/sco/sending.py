"""What a member sends of its own: batches (sections 3.1 and 3.5), and control messages (section 3.2).

Flow condition: from the oldest own batch that some destination has not confirmed, at most W batches, and no
more than each destination has buffers for if all n members take a share. The paper's minimum over all
processes would never rise past members that are not addressed (fault S8). One batch is always allowed: a
share that is rounded down to nothing would let no member begin, and overruns are requested again.

Control messages carry what a batch would have told (fault S4), and go to each member to which nothing else
was sent (fault S5): after `confirm_ns` if there is news, else in every period of `control_ns`. In large
groups they go only to members of which something is awaited (`upkeep`).
"""

from collections.abc import Collection, Iterable
from typing import Final

from antiphon.core.effects import Admitted, Multicast, Rejected, Stable
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.protocol import PeerReport
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sco.coding import metadata_bytes, pack_acks, pack_targets, write_data
from antiphon.protocols.sco.gathering import Gathering
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.pdus import SPELL_BITS, Control, Name
from antiphon.protocols.sco.peer import FOREVER, Batch, Peer
from antiphon.protocols.sco.state import CONFIRM, CONTROL, State

TOGETHER: Final = 4
"""News that would be due within `confirm_ns` divided by this goes along with what is due. Raising it costs
control messages."""


class Sending:
    """Numbers and multicasts own batches, and tells the others how things stand."""

    def __init__(self, state: State, gathering: Gathering, ordering: Ordering) -> None:
        self._state = state
        self._gathering = gathering
        self._peers = state.peers
        self._ordering = ordering
        self._serial = 0
        self._held_up = False
        """Whether the last batch handed in was refused because destinations are behind."""

    # Messages

    def admit(self, now: Nanoseconds, bodies: Packed, sites: frozenset[Site] | None) -> None:
        effects = self._state.effects
        destinations = self._destinations(sites)
        if not self._state.presence.taking_part:
            effects.append(Rejected("This member does not take part yet."))
        elif len(self._ordering.own) >= self._allowed(destinations):
            self._held_up = True
            effects.append(Rejected("As many messages as the destinations can take are under way."))
        else:
            self._held_up = False
            self._send(now, bodies, destinations)

    def reports(self) -> dict[Site, PeerReport]:
        """How far each peer is behind in what was sent to it, and which peers hold up the oldest batch."""
        own = list(self._ordering.own)
        found = {}
        for peer in list(self._peers.present.values()):
            sent = [batch for batch in own if peer in batch.places]
            behind = [batch for batch in sent if not self._ordering.has_confirmed(peer, batch)]
            found[peer.site] = PeerReport(
                sum(len(batch.bodies) for batch in behind), peer.heard_ns, peer.round_trip_ns,
                peer.outgoing.asked, self._held_up and own[:1] == behind[:1] != [],
            )  # fmt: skip
        return found

    def _destinations(self, sites: frozenset[Site] | None) -> tuple[Peer, ...]:
        """The present peers of these sites; departed ones are left out.

        A site that was never present is a mistake where all know one another from the start. A member that
        came later cannot tell: the site may have been named before a restart, which forgets all names.
        """
        peers = self._peers
        if sites is None:
            return (peers.me, *peers.present.values())
        unknown = sorted(sites - self._state.lives.seen.keys() - peers.present.keys() - {peers.site})
        if unknown and peers.me.life >> SPELL_BITS == 0:
            raise UsageError(
                f"No member of the name {unknown[0]} has ever been here.",
                hint="Wait until it appears before anything is sent to it.",
            )
        chosen = (peers.me, *peers.present.values()) if len(sites) > 1 else self._only(*sites)
        return tuple(peer for peer in chosen if peer.site in sites)

    def _only(self, site: Site) -> tuple[Peer, ...]:
        peer = self._peers.me if site == self._peers.site else self._peers.present.get(site)
        return () if peer is None else (peer,)

    def _allowed(self, destinations: Iterable[Peer]) -> int:
        """The flow condition, in batches."""
        knobs, me = self._state.configuration, self._peers.me
        share = knobs.buffer_share * (1 + len(self._peers.present))
        others = (peer.buffers // share for peer in destinations if peer is not me)
        return max(1, min(knobs.window, min(others, default=knobs.window)))

    def _send(self, now: Nanoseconds, bodies: Packed, destinations: tuple[Peer, ...]) -> None:
        state, me, present = self._state, self._peers.me, self._peers.present
        others = tuple(peer for peer in destinations if peer is not me)
        if self._peers.is_stale:
            # A batch can be read once the table that it refers to is known. The table goes out before the
            # number is taken: a control message speaks of all that was sent below its number.
            self.control(now, tuple(present.values()))
        batch = Batch(
            me,
            self._peers.next_number,
            bodies,
            destinations,
            frozenset(peer.site for peer in destinations),
            {peer: peer.outgoing.sent for peer in others},
            state.stamps.csn_now(),
            state.stamps.acks_now(),
            me,
        )
        batch.since_ns = now
        state.timers.arm(now, CONTROL, state.configuration.control_ns)
        me.stream.frontier = batch.end
        state.effects.append(Admitted(batch.number, len(bodies), bodies.size, batch.sites))
        if not destinations:
            # All of them have departed since they were named: no destination is left that could lack it.
            state.effects.append(Stable(me.site, batch.number, len(bodies)))
        if others:
            self._ordering.add_own(batch)
            if len(others) == len(present):
                state.probe.sent(now, batch.end)
            self._multicast(now, batch, others)
        if not state.gathers():
            for peer in present.values():
                if peer not in batch.places:
                    state.timers.confirm_soon(now, peer)
        if me in destinations:
            self._ordering.enqueue(batch)
        self._ordering.progress(now)

    def _multicast(self, now: Nanoseconds, batch: Batch, others: tuple[Peer, ...]) -> None:
        state = self._state
        pdu = write_data(state, batch, self._ordering.free_buffers())
        for peer in others:
            peer.outgoing.note_batch(now, batch)
        to_all = len(others) == len(self._peers.present)
        if to_all:
            self._gathering.note_told(now)
        state.effects.append(Multicast(pdu, None if to_all else tuple(peer.site for peer in others)))
        state.counts["data"] += 1
        state.counts["data_copies"] += len(others)
        state.counts["data_metadata_bytes"] += len(others) * metadata_bytes(pdu)

    # Control messages

    def on_confirm_timer(self, now: Nanoseconds) -> None:
        """Tell the peers for which there is news that no batch took along."""
        state = self._state
        soon_ns = now + state.configuration.confirm_ns // TOGETHER
        due, next_ns = [], FOREVER
        for peer in self._peers.present.values():
            due_ns = peer.outgoing.due_ns
            if due_ns is None:
                continue
            if due_ns <= soon_ns:
                due.append(peer)
            else:
                next_ns = min(next_ns, due_ns)
        if due:
            self._write_control(now, due, tuple(peer.site for peer in due), whole=False)
        if next_ns < FOREVER:
            state.timers.arm(now, CONFIRM, next_ns - now)

    def control(self, now: Nanoseconds, to: Collection[Peer], *, asks: bool = False) -> None:
        """Tell peers how things stand, with all our acks; they may be asked for the same."""
        if to:
            self._write_control(now, to, tuple(peer.site for peer in to), whole=True, asks=asks)

    def announce(self, now: Nanoseconds) -> None:
        """Send a control message to every site of the network, known or not."""
        self._write_control(now, tuple(self._peers.present.values()), None, whole=True)

    def notify(self, now: Nanoseconds, site: Site) -> None:
        """Tell a site that its life is over."""
        known = self._state.lives.over.get(site)
        self._write_control(now, (), (site,), whole=False, over=None if known is None else (known,))

    def _write_control(
        self,
        now: Nanoseconds,
        to: Collection[Peer],
        sites: tuple[Site, ...] | None,
        *,
        whole: bool,
        asks: bool = False,
        over: tuple[Name, ...] | None = None,
    ) -> None:
        """Multicast a control message, with all our acks or only those that the peers may not know."""
        state, peers, lives = self._state, self._peers, self._state.lives
        table, digest = peers.names(), lives.digest
        ack = pack_acks(state, table, None if whole else [peer.outgoing.told for peer in to])
        targets = pack_targets(table, set(to), digest)
        self._serial += 1
        has_strangers = sites is None or not to
        is_new = has_strangers or any(peer.view.knows_table != peers.version for peer in to)
        if lives.over and any(peer.view.digest != digest for peer in to):
            over = tuple(lives.over.values())
        pdu = Control(
            life=peers.me.life,
            serial=self._serial,
            number=peers.next_number,
            table=peers.version,
            targets=targets,
            ack=ack,
            buffers=self._ordering.free_buffers(),
            gone=digest,
            final=state.is_final(),
            members=1 + len(peers.present),
            atomic=peers.me.stream.atomic,
            asks=asks,
            names=peers.wire_names() if is_new else None,
            over=over,
        )
        acks = state.stamps.acks_now()
        for peer in to:
            peer.outgoing.note_control(now, acks, whole=whole)
        state.effects.append(Multicast(pdu, sites))
        state.counts["controls"] += max(1, len(to))
        state.counts["control_metadata_bytes"] += max(1, len(to)) * (len(targets) + len(ack))
