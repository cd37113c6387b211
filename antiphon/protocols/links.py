"""Reliable first-in-first-out links between pairs of sites, for protocols that send from one site to another.

Sources: Jia and So, section 5: where the network does not keep the order of what one site sends to another,
each keeps sequence numbers for its neighbours, by which a receiver puts PDUs in order and finds what is
missing. The rest is an ordinary sliding window.

Assumes: the network may lose, delay, duplicate and reorder. The sites are known beforehand; they may be away
for a while, but none of them crashes: a link remembers from its beginning.
Guarantees: what a site sends to another is taken there once and in the order in which it was sent. The sender
learns when the receiver holds a PDU and, separately, when the receiver has *finished* it: when it has handled
it, and so have all sites to which it had to be passed on. So what is finished below comes up the way the PDU
went down, on acknowledgements, and the site where a multicast began knows when all of it is done. The
protocol bounds what it begins before that; then no queue here grows beyond what all sites together may have
begun.

Each PDU carries how far its sender holds and has finished what came the other way. Where nothing goes the
other way, a `Held` carries that, with what is missing and what is finished beyond it. PDUs are finished in
any order, and that is reported at once: what a site waits for may have to come back over the same link, so
that reports in order only could deadlock. One timer serves all links of a site.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from msgspec.structs import replace

from antiphon.core.effects import Effect, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu

TICK: Final = "links/tick"
MOST_IN_VAIN: Final = 4
"""Repeats without an answer after which the pause no longer doubles; it doubles from the second on. Raising
it costs time after a long loss."""
MOST_AT_ONCE: Final = 16
"""Missing positions named, and PDUs repeated unasked, at a time. Raising it costs bursts."""

Done = Callable[[], None]
"""Called once something that was sent is finished."""


class Linked(Pdu, frozen=True, gc=False):
    """Base of the PDUs that travel on links: the link sets these fields, a protocol leaves them 0.

    `position` counts from 1; the other two say how far its sender holds, and has finished, the receiver's.
    """

    position: int
    held: int
    finished: int


class Held(Pdu, frozen=True, gc=False):
    """Everything up to `held` has come, everything up to `finished` is done with; some is `missing`.

    `beyond` has what else is finished: bit 0 of its first byte stands for the position after `finished`.
    A sender that `asks` has waited long for the same about its own PDUs.
    """

    code: ClassVar[int] = 160
    held: int
    finished: int
    beyond: bytes
    asks: bool
    missing: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class LinksConfiguration:
    """The knobs, each with what raising it costs."""

    window: int = 64
    """PDUs under way on a link that its receiver is not known to hold. Raising it costs memory there."""
    acknowledge_ns: Nanoseconds = 5 * MILLISECOND_NS
    """How long an acknowledgement waits for a PDU to ride on. Raising it costs time until losses are found
    and until a sender may go on; lowering it costs PDUs."""
    repeat_ns: Nanoseconds = 20 * MILLISECOND_NS
    """How long a PDU may be unacknowledged before it is repeated. Raising it costs time after a loss;
    below a round trip and an acknowledgement's wait it costs needless repeats. The pause grows while
    nothing comes back: repeats must not fill a shared channel."""

    def __post_init__(self) -> None:
        if self.window < 1 or min(self.acknowledge_ns, self.repeat_ns) <= 0:
            raise UsageError("A link's window holds at least one PDU, and its times are positive.")


@dataclass(slots=True)
class Outgoing:
    """What one site has sent to another."""

    last: int = 0
    """The position that was given last."""
    sent: int = 0
    held: int = 0
    finished: int = 0
    unheld: dict[int, Linked] = field(default_factory=dict)
    """Sent, and not known to be held there, in order."""
    queue: deque[Linked] = field(default_factory=deque)
    """Not sent yet, since the window is full."""
    undone: dict[int, Done | None] = field(default_factory=dict)
    """For each PDU not known to be finished, what to call when it is."""
    heard_ns: Nanoseconds = 0
    """When a report last came, or was asked for, or when nothing was unacknowledged."""
    vain: int = 0
    """Requests in a row without a report."""


@dataclass(slots=True)
class Incoming:
    """What one site has received from another."""

    taken: int = 0
    """Everything up to this position has come."""
    finished: int = 0
    """Everything up to this position is finished."""
    early: dict[int, Linked] = field(default_factory=dict)
    finished_early: set[int] = field(default_factory=set)
    owes: bool = False
    """Whether a report to the other site is due."""


class Links:
    """All links of one site. Its effects are appended to the list that it is given.

    Its owner sets `now` before any other call, and hands it the timer named `TICK`.
    """

    def __init__(
        self, site: Site, peers: Iterable[Site], configuration: LinksConfiguration, effects: list[Effect]
    ) -> None:
        self.now: Nanoseconds = 0
        self.ignored = 0
        self.repeated = 0
        self._peers = frozenset(peers) - {site}
        self._configuration = configuration
        self._effects = effects
        self._outgoing: dict[Site, Outgoing] = {}
        self._incoming: dict[Site, Incoming] = {}
        self._active: dict[Site, None] = {}
        """The sites with which something is under way or owed, in the order in which that began."""
        self._is_ticking = False

    def send(self, to: Site, pdu: Linked, done: Done | None = None) -> None:
        """Send a PDU after all those before it; `done` is called once the receiver has finished it."""
        assert to in self._peers, "a link leads to another site that is known"
        link = self._outgoing.setdefault(to, Outgoing())
        link.last += 1
        link.undone[link.last] = done
        if link.queue or len(link.unheld) >= self._configuration.window:
            link.queue.append(pdu)
        else:
            self._transmit(to, link, pdu)
        self._activate(to)

    def receive(self, sender: Site, pdu: Linked | Held) -> list[Linked]:
        """The PDUs that can be taken now, in order; none if this one is a repeat or makes no sense."""
        if sender not in self._peers or not self._is_sane(sender, pdu):
            self.ignored += 1
            return []
        self._note(sender, pdu)
        if not isinstance(pdu, Held):
            return self._accept(sender, pdu)
        if pdu.asks:
            self._owe(sender)
        self._repeat(sender, pdu.missing)
        return []

    def finish(self, sender: Site, position: int) -> None:
        """This site has finished what came from another at that position."""
        link = self._incoming[sender]
        assert link.finished < position <= link.taken, "only what was taken is finished, and once"
        link.finished_early.add(position)
        while link.finished + 1 in link.finished_early:
            link.finished += 1
            link.finished_early.remove(link.finished)
        self._owe(sender)

    def tick(self) -> None:
        """Acknowledge what is owed, repeat what is overdue, and go on while anything is under way."""
        self._is_ticking = False
        for peer in list(self._active):
            incoming, outgoing = self._incoming.get(peer), self._outgoing.get(peer)
            asks = outgoing is not None and self._is_overdue(outgoing)
            if outgoing is not None and asks:
                outgoing.heard_ns = self.now
                outgoing.vain = min(outgoing.vain + 1, MOST_IN_VAIN)
                self._repeat(peer, list(outgoing.unheld)[:MOST_AT_ONCE])
            if asks or (incoming is not None and incoming.owes):
                self._acknowledge(peer, asks=asks)
            if outgoing is None or not outgoing.undone:
                del self._active[peer]
        if self._active:
            self._keep_ticking()

    def resume(self) -> None:
        """Go on after an absence, in which the timer has stood."""
        self._is_ticking = False
        if self._active:
            self._keep_ticking()

    def unfinished(self) -> int:
        """PDUs sent or waiting to be sent that their receivers are not known to have finished."""
        return sum(len(link.undone) for link in self._outgoing.values())

    def early(self) -> int:
        """PDUs kept here that came before others that are to be taken first."""
        return sum(len(link.early) for link in self._incoming.values())

    # Sending

    def _transmit(self, to: Site, link: Outgoing, pdu: Linked) -> None:
        if not link.unheld:
            link.heard_ns = self.now  # the wait for it begins now
        link.sent += 1
        link.unheld[link.sent] = pdu
        self._emit(to, link.sent, pdu)

    def _emit(self, to: Site, position: int, pdu: Linked) -> None:
        held = finished = 0
        incoming = self._incoming.get(to)
        if incoming is not None:
            held, finished = incoming.taken, incoming.finished
            # Only a `Held` carries what is finished beyond a gap.
            incoming.owes = bool(incoming.owes and incoming.finished_early)
        self._effects.append(Send(to, replace(pdu, position=position, held=held, finished=finished)))

    def _repeat(self, to: Site, positions: Iterable[int]) -> None:
        link = self._outgoing.get(to)
        for position in positions:
            pdu = None if link is None else link.unheld.get(position)
            if pdu is not None:
                self.repeated += 1
                self._emit(to, position, pdu)

    def _is_overdue(self, link: Outgoing) -> bool:
        pause_ns = self._configuration.repeat_ns << max(0, link.vain - 1)
        return bool(link.undone) and self.now - link.heard_ns >= pause_ns

    # Receiving

    def _is_sane(self, sender: Site, pdu: Linked | Held) -> bool:
        outgoing = self._outgoing.get(sender)
        if not 0 <= pdu.finished <= pdu.held <= (0 if outgoing is None else outgoing.sent):
            return False
        if isinstance(pdu, Held):
            return len(pdu.missing) <= MOST_AT_ONCE and len(pdu.beyond) <= (pdu.held - pdu.finished + 7) // 8
        incoming = self._incoming.get(sender)
        reach = (0 if incoming is None else incoming.taken) + self._configuration.window
        return 1 <= pdu.position <= reach

    def _note(self, sender: Site, pdu: Linked | Held) -> None:
        """Note what the other site holds and has finished."""
        link = self._outgoing.get(sender)
        if link is None:
            return
        if pdu.held > link.held:
            link.heard_ns, link.vain = self.now, 0
        for position in range(link.held + 1, pdu.held + 1):
            del link.unheld[position]
        link.held = max(link.held, pdu.held)
        while link.queue and len(link.unheld) < self._configuration.window:
            self._transmit(sender, link, link.queue.popleft())
        finished = range(link.finished + 1, pdu.finished + 1)
        link.finished = max(link.finished, pdu.finished)
        self._settle(link, finished)
        if isinstance(pdu, Held) and pdu.beyond:
            self._settle(link, _positions(pdu))

    def _settle(self, link: Outgoing, finished: Iterable[int]) -> None:
        for position in finished:
            if position in link.undone:
                link.heard_ns, link.vain = self.now, 0
                done = link.undone.pop(position)
                if done is not None:
                    done()

    def _accept(self, sender: Site, pdu: Linked) -> list[Linked]:
        link = self._incoming.setdefault(sender, Incoming())
        self._owe(sender)
        if pdu.position <= link.taken or pdu.position in link.early:
            return []  # a repeat: the acknowledgement was late or lost
        link.early[pdu.position] = pdu
        taken = []
        while link.taken + 1 in link.early:
            link.taken += 1
            taken.append(link.early.pop(link.taken))
        return taken

    def _owe(self, sender: Site) -> None:
        self._incoming.setdefault(sender, Incoming()).owes = True
        self._activate(sender)

    def _acknowledge(self, to: Site, *, asks: bool) -> None:
        link = self._incoming.setdefault(to, Incoming())
        link.owes = False
        reach = range(link.taken + 1, max(link.early, default=0))
        missing = [position for position in reach if position not in link.early]
        named = tuple(missing[:MOST_AT_ONCE])
        self._effects.append(Send(to, Held(link.taken, link.finished, _beyond(link), asks, named)))

    # The timer

    def _activate(self, peer: Site) -> None:
        self._active[peer] = None
        if not self._is_ticking:
            self._keep_ticking()

    def _keep_ticking(self) -> None:
        self._is_ticking = True
        self._effects.append(SetTimer(TICK, self._configuration.acknowledge_ns))


def _beyond(link: Incoming) -> bytes:
    """What is finished beyond a gap, as bits."""
    bits = sum(1 << position - link.finished - 1 for position in link.finished_early)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _positions(held: Held) -> list[int]:
    """The positions that these bits stand for."""
    bits = int.from_bytes(held.beyond, "little")
    last = min(bits.bit_length(), held.held - held.finished)
    return [held.finished + 1 + place for place in range(last) if bits >> place & 1]
