"""Confirmations in large groups, and questions in all: whether every destination holds a message.

In a small group each destination confirms a message to every other one: the paper's distributed control, with
d^2 confirmations. In a large one it confirms to the sender alone, which tells all members how far its
messages are held by every destination (`atomic`): d confirmations and a multicast. That number lets
destinations deliver. Members that a message is not for learn by it that nothing below can come to them. It
rides on batches, too. The sender's departure loses nothing: a delivery needs no confirmation of a departed
sender's message, but that all members have completed its stream (`recovery`).

The first confirmation goes at once, and so does the first word to all; those that follow wait for a pause,
and say all that has come up to then.

A member that waits for that long asks another one whether a message is atomically accepted (section 2.3): the
sender and the destinations in turn. Each that has fully accepted it answers.
"""

from typing import Final

from antiphon.core.effects import Multicast, Send
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.protocols.sco.pdus import Answer, Confirm, Heartbeat, Query
from antiphon.protocols.sco.peer import FOREVER, Batch, Peer
from antiphon.protocols.sco.state import CONFIRM, State
from antiphon.protocols.sco.vectors import MalformedError

PAUSE_NS: Final = MILLISECOND_NS
"""Pause for each member of a large group between confirmations to the same sender, and between words to all:
each member gets 1000 of either in a second at most. Raising it costs latency under load."""


class Gathering:
    """Confirms to senders, and tells how far own messages are held by all."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._peers = state.peers
        self._unconfirmed: dict[Peer, None] = {}
        """Senders of batches that are accepted, and that may not know it."""
        self._told = 0
        """How far we told all members that our messages are held."""
        self._raised_ns: Nanoseconds = -FOREVER
        """When we told them at once that this has risen."""
        self._turn = 0
        """Questions that we have asked."""
        self.told_ns: Nanoseconds = -FOREVER
        """When we told all members."""

    # Large groups

    def accept(self, sender: Peer) -> None:
        """A batch of that sender is to be confirmed to it."""
        self._unconfirmed[sender] = None

    def flush(self, now: Nanoseconds) -> None:
        """Send what is due after an input."""
        if not self._state.gathers():
            self._unconfirmed.clear()
            return
        pause_ns = max(self._state.configuration.confirm_ns, PAUSE_NS * (1 + len(self._peers.present)))
        for sender in list(self._unconfirmed):
            self._confirm(now, sender, pause_ns)
        if self._peers.me.stream.atomic > self._told:
            if now - self._raised_ns >= pause_ns:
                self._raised_ns = now
                self.tell(now, None)
            else:
                self._state.timers.arm(now, CONFIRM, self._raised_ns + pause_ns - now)

    def _confirm(self, now: Nanoseconds, sender: Peer, pause_ns: Nanoseconds) -> None:
        state, outgoing = self._state, sender.outgoing
        number = state.stamps.acks.get(sender, 0)
        if sender.gone or outgoing.ack.get(sender, 0) >= number:
            del self._unconfirmed[sender]
        elif now - outgoing.confirmed_ns >= pause_ns:
            del self._unconfirmed[sender]
            outgoing.confirmed_ns = now
            pdu = Confirm(self._peers.me.life, sender.life, state.lives.digest, number)
            self._send(sender.site, pdu)
        else:
            state.timers.arm(now, CONFIRM, outgoing.confirmed_ns + pause_ns - now)

    def tell(self, now: Nanoseconds, sites: tuple[Site, ...] | None) -> None:
        """Send a sign of life, which tells how far our messages are held by all; None means to all sites."""
        me = self._peers.me
        if sites is None:
            self.note_told(now)
        pdu = Heartbeat(me.life, self._state.lives.digest, me.stream.atomic)
        self._state.effects.append(Multicast(pdu, sites))
        self._state.counts["heartbeats"] += len(self._peers.present) if sites is None else len(sites)

    def note_told(self, now: Nanoseconds) -> None:
        """All members were told, by a sign of life or a batch."""
        self._told = self._peers.me.stream.atomic
        self.told_ns = now

    def on_confirm(self, now: Nanoseconds, peer: Peer, pdu: Confirm) -> None:
        """A destination has accepted what we sent to it; raises `MalformedError`."""
        state, me = self._state, self._peers.me
        if pdu.of != me.life:
            return
        if pdu.number > self._peers.next_number:
            raise MalformedError("confirms what was never sent")
        if pdu.gone != state.lives.digest:
            # As in a control message: it may stand for what the peer has skipped.
            state.timers.confirm_soon(now, peer)
            return
        peer.confirm({me: pdu.number})
        peer.time(now, state.probe, me)

    def on_heartbeat(self, now: Nanoseconds, peer: Peer, pdu: Heartbeat) -> None:
        """A sender says how far all destinations hold its messages."""
        if pdu.gone == self._state.lives.digest:
            peer.stream.note_atomic(pdu.atomic)
        else:
            self._state.timers.confirm_soon(now, peer)

    # Questions

    def ask(self, batch: Batch) -> None:
        """Ask the batch's sender, or another of its destinations, whether all of them hold it."""
        present = self._peers.present
        known = [peer for peer in (batch.sender, *batch.destinations) if present.get(peer.site) is peer]
        if batch.sender.gone or not known:
            return
        self._turn += 1
        peer = known[self._turn % len(known)]
        self._send(peer.site, Query(self._peers.me.life, peer.life, batch.sender.name, batch.end))

    def on_query(self, peer: Peer, pdu: Query) -> None:
        """Answer if a batch is known to be held by all."""
        me, sender = self._peers.me, self._peers.find(pdu.of.site, pdu.of.life)
        if pdu.to != me.life or sender is None:
            return
        stream = sender.stream
        if (stream.atomic if sender is me else max(stream.full, stream.atomic)) >= pdu.end:
            self._send(peer.site, Answer(me.life, self._state.lives.digest, sender.name, pdu.end))

    def on_answer(self, pdu: Answer) -> Peer | None:
        """The sender of the batch that all hold, if the answer can be believed."""
        if pdu.gone != self._state.lives.digest:
            return None
        return self._peers.find(pdu.of.site, pdu.of.life)

    def _send(self, site: Site, pdu: Confirm | Query | Answer) -> None:
        self._state.effects.append(Send(site, pdu))
        self._state.counts["confirmations"] += 1
