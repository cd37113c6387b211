"""The transport: PDUs of a group's members to and from datagrams.

What it assumes: datagrams may be lost, repeated, reordered, altered or invented. What it guarantees:
`receive` returns only whole PDUs of this group's members with the name of who sent them (see `gate` for how
sure that is), and neither a peer's bytes nor the network's errors raise. It does not promise that a PDU
arrives; the protocols above repair what is lost. Each PDU comes with whether something is known to be lost
just before it: with `notice_losses` that includes what the kernel dropped because a receive buffer was full;
what was lost on the way here nobody can tell. Nothing grows without limit: see `fragments` and `gate` for the
tables.

A PDU that fits a datagram travels as one. A larger one is sealed whole and then cut, since a call of the
cipher for each datagram would cost more than the cipher; a forged fragment costs a repair at most.
"""

import secrets
from collections.abc import Mapping
from typing import ClassVar, Final, TypeAlias

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import (
    CHECKSUM,
    HEADER,
    MAGIC,
    PREFIX,
    SEALED,
    VERSION,
    Bytes,
    Codec,
    Pdu,
    group_hash,
    name_bytes,
    stamp,
)
from antiphon.live.counters import Counters
from antiphon.live.fragments import (
    FRAGMENT,
    Kept,
    Partial,
    Reassembly,
    cut,
    join,
    missing_indices,
    parse_fragment,
)
from antiphon.live.gate import OWN_CODES, Answer, Challenge, Gate, Known
from antiphon.live.keys import KeyRing
from antiphon.live.memory import keep_spare_memory
from antiphon.live.networks import Address, Network, Peers
from antiphon.live.resolving import Resolving
from antiphon.live.sealing import TAG_BYTES, Seals
from antiphon.live.sockets import Sockets

BOOT_BITS: Final = 64
REPAIR_BYTES_PER_TICK: Final = 4 << 20
"""Fragments sent again between two ticks, at most. Raising it costs bandwidth when many ask at once."""
GREETINGS: Final = 3
GREETING_PAUSE_NS: Final = 50 * MILLISECOND_NS
FAN_OUT_SILENCE_NS: Final = 10 * SECOND_NS
"""A peer that nobody has listed is sent multicasts for so long after its last word."""
MOST_FAN_OUT: Final = 256
MOST_ECHOES: Final = 1024
"""Own multicasts whose echo is awaited; those of further ones go unnoticed."""

UNKNOWN_SITE: Final = "not sent: the address is not known yet"
TOO_MUCH_REPAIR: Final = "not sent: too many fragments asked for at once"


class Hello(Pdu, frozen=True, gc=False):
    """A process says that it is there, so that it is challenged before it has anything to say."""

    code: ClassVar[int] = 3


class Here(Pdu, frozen=True, gc=False):
    """The answer to a greeting of one who greets no more itself: so that a newcomer knows where it is."""

    code: ClassVar[int] = 7


class Missing(Pdu, frozen=True, gc=False):
    """Please send these fragments of your PDU again: bit i, little-endian, is fragment i."""

    code: ClassVar[int] = 6
    counter: int
    bitmap: bytes


TRANSPORT_PDUS: Final[tuple[type[Pdu], ...]] = (Hello, Here, Challenge, Answer, Missing)
Arrival: TypeAlias = tuple[Site, Pdu, bool]
"""Who sent which PDU, and whether something is known to be lost between it and the one before."""


def with_own(codec: Codec) -> Codec:
    """A codec that has the transport's own PDUs, too."""
    for kind in set(codec.kinds) - set(TRANSPORT_PDUS):
        if kind.code in OWN_CODES:
            raise UsageError(f"{kind.__name__} has the PDU code {kind.code}, which is the transport's own.")
    return Codec(dict.fromkeys((*codec.kinds, *TRANSPORT_PDUS)))


class Transport:
    """One member's door to its network."""

    def __init__(
        self,
        *,
        site: Site,
        group: Group,
        codec: Codec,
        network: Network,
        keys: KeyRing | None,
        counters: Counters,
        notice_losses: bool = False,
        echoed: tuple[type[Pdu], ...] = (),
    ) -> None:
        """With `echoed`, own multicasts of these kinds are received too, where they passed on the channel.

        That takes notices of losses, and a network whose datagrams hold a whole PDU.
        """
        keep_spare_memory()
        self._site = site
        name = name_bytes(site)
        self._codec = with_own(codec)
        self._group = group_hash(group)
        self._counters = counters
        self.boot: Final = secrets.randbits(BOOT_BITS)
        seals = None if keys is None else Seals(keys, group)
        self._seal = None if seals is None else seals.own(self.boot)
        self._counter = 0
        self._buffer = bytearray(HEADER.size) + name
        self._body_begins = len(self._buffer)
        self._gate = Gate(
            site=site,
            group=group,
            boot=self.boot,
            codec=self._codec,
            seals=seals,
            counters=counters,
            reply=self._send_to,
        )
        self._reassembly = Reassembly(self._gate.is_member, counters)
        self._kept = Kept()
        self._now: Nanoseconds = 0
        self._greetings_left = GREETINGS
        self._greeted_ns: Nanoseconds = 0
        self._repair_bytes_left = REPAIR_BYTES_PER_TICK
        self._turn = 0
        self._sockets = Sockets(
            network, group, self.boot, counters, sealed=keys is not None, notice_losses=notice_losses
        )
        self.notices_losses: Final = self._sockets.notices_losses
        self._losses_told = 0
        self._echoed: Final = echoed
        self._echoes: dict[int, Pdu] = {}
        self.datagram_bytes: Final = self._sockets.datagram_bytes
        self.receive_buffer_bytes: Final = self._sockets.receive_buffer_bytes
        self._listed = self._sockets.destinations
        self._accepted = 0
        self._resolving: Resolving | None = None
        if isinstance(network, Peers):
            self._resolving = Resolving(network, self._sockets.family)
            self._sockets.destinations = self._fan_out()

    @property
    def addresses(self) -> Mapping[Site, Address]:
        """Where the members that have spoken are."""
        return {site: known.address for site, known in self._gate.sites.items()}

    def filenos(self) -> tuple[int, ...]:
        """Readable when something is to be received."""
        return tuple(sock.fileno() for sock in self._sockets.receiving)

    def close(self) -> None:
        self._sockets.close()

    # Sending

    def send(self, to: Site, pdu: Pdu) -> None:
        """Unicast to a member that has spoken before."""
        known = self._gate.find(to)
        if known is None:
            self._note_unknown(1)
        else:
            self._send_to(pdu, known.address)

    def multicast(self, pdu: Pdu, to: tuple[Site, ...] | None = None, hops: int | None = None) -> None:
        """To every other member, or to those named, or no further than so many links; sealed once."""
        if hops is not None:
            self._sockets.reach(hops)
            self.multicast(pdu, to)
            self._sockets.reach(None)
        elif to is None:
            if self._resolving is not None and self._accepted != self._gate.accepted:
                self._sockets.destinations = self._fan_out()
            self._send_to(pdu, *self._sockets.destinations)
            if self._echoed and type(pdu) in self._echoed and len(self._echoes) < MOST_ECHOES:
                self._echoes[self._counter] = pdu
        else:
            self._multicast_to(pdu, to)

    def _multicast_to(self, pdu: Pdu, to: tuple[Site, ...]) -> None:
        found = [known.address for site in to if (known := self._gate.find(site)) is not None]
        self._note_unknown(len(to) - len(found))
        if found:
            self._send_to(pdu, *found)

    def _note_unknown(self, count: int) -> None:
        """Greet once more: whoever is there answers, and then its address is known."""
        for _ in range(count):
            self._counters.drop(UNKNOWN_SITE)
            self._greetings_left = self._greetings_left or 1

    def _send_to(self, pdu: Pdu, *addresses: Address) -> None:
        """One PDU under one counter, to each address."""
        self._codec.encode_into(pdu, self._buffer, self._body_begins)
        # A counter is used once, whatever becomes of the PDU: nonces are made of it.
        self._counter = counter = self._counter + 1
        self._counters.pdus_sent += 1
        if self._seal is None:
            stamp(self._buffer, pdu.code, self._group, self.boot, counter)
            self._send_whole(counter, self._buffer, addresses)
            return
        length = len(self._buffer) - HEADER.size + TAG_BYTES
        prefix = PREFIX.pack(MAGIC, VERSION | SEALED, pdu.code, length, self._group, self.boot, counter)
        body = self._seal.seal(counter, prefix, memoryview(self._buffer)[HEADER.size :])
        head = prefix + CHECKSUM.pack(self._seal.identifier)
        if len(head) + length > self.datagram_bytes:
            self._send_cut(counter, head + body, addresses)
            return
        for address in addresses:
            self._sockets.send_two(head, body, address)

    def _send_whole(self, counter: int, pdu: Bytes, addresses: tuple[Address, ...]) -> None:
        if len(pdu) > self.datagram_bytes:
            self._send_cut(counter, bytes(pdu), addresses)
            return
        for address in addresses:
            self._sockets.send(pdu, address)

    def _send_cut(self, counter: int, pdu: bytes, addresses: tuple[Address, ...]) -> None:
        self._kept.add(counter, pdu)
        fragments = cut(pdu, self.datagram_bytes, self._group, self.boot, counter)
        for address in addresses:
            self._sockets.send_fragments(fragments, address)

    # Receiving

    def receive(
        self, limit: int, *, place: int | None = None, now: Nanoseconds | None = None
    ) -> list[Arrival]:
        """What can be read now without waiting, from the socket at this place in `filenos` or from all.

        Reading ends when there are `limit` PDUs. So many datagrams are read at most from each socket,
        whatever they hold, so that a flood of garbage does not keep us here; and the sockets take turns to be
        the first.
        """
        if now is not None:
            self._now = self._gate.now = now
        arrived: list[Arrival] = []
        receiving, read = self._sockets.receiving, self._sockets.read
        self._turn += 1
        turns = range(self._turn, self._turn + len(receiving)) if place is None else (place,)
        for turn in turns:
            sock = receiving[turn % len(receiving)]
            for _ in range(limit):
                if len(arrived) >= limit:
                    return arrived
                found = read(sock)
                if found is None:
                    break
                view, each, address = found
                if len(view) != PREFIX.size or not self._is_echo(view, address, arrived):
                    self._take(view, each, address, arrived)
        return arrived

    def _is_echo(self, view: memoryview, address: Address, arrived: list[Arrival]) -> bool:
        """Where losses are noticed, the heads of our own multicasts come back."""
        if not self.notices_losses or not self._sockets.is_own(address):
            return False
        *_, boot, counter = PREFIX.unpack_from(view)
        if boot != self.boot:
            return False
        pdu = self._echoes.pop(counter, None)
        if pdu is not None:
            self._arrive(self._site, pdu, arrived)
        return True

    def _arrive(self, site: Site, pdu: Pdu, arrived: list[Arrival]) -> None:
        losses = self._counters.datagrams_lost + self._counters.pdus_lost
        arrived.append((site, pdu, losses != self._losses_told))
        self._losses_told = losses

    def _take(self, view: memoryview, each: int, address: Address, arrived: list[Arrival]) -> None:
        """Take in what was read: one datagram, or several of one size that the kernel joined."""
        size = len(view)
        counters = self._counters
        counters.bytes_received += size
        counters.datagrams_received += -(-size // each) if each else 1
        if each:
            self._take_joined(view, each, address, arrived)
        elif size < PREFIX.size or view[3] != FRAGMENT:
            self._take_pdu(view, address, arrived)
        else:
            # It stays for long: where it is, if that is memory of its own.
            own = view if self._sockets.reads_last else memoryview(bytes(view))
            self._take_fragment(own, address, arrived)

    def _take_joined(self, view: memoryview, each: int, address: Address, arrived: list[Arrival]) -> None:
        joined = join(view, each, self._group)
        if joined is None:
            for begin in range(0, len(view), each):
                one = memoryview(bytes(view[begin : begin + each]))
                is_whole = len(one) < PREFIX.size or one[3] != FRAGMENT
                (self._take_pdu if is_whole else self._take_fragment)(one, address, arrived)
            return
        boot, counter, whole = joined
        if boot != self.boot and not self._reassembly.is_late(address, boot, counter):
            self._reassembly.finish(address, boot, counter)
            self._take_pdu(memoryview(whole), address, arrived)

    def _take_fragment(self, view: memoryview, address: Address, arrived: list[Arrival]) -> None:
        piece = parse_fragment(view, self._group)
        if isinstance(piece, str):
            self._counters.drop(piece)
        elif piece.boot != self.boot:
            whole = self._reassembly.take(address, piece, self._now)
            if whole is not None:
                self._take_pdu(memoryview(whole), address, arrived)

    def _take_pdu(self, view: memoryview, address: Address, arrived: list[Arrival]) -> None:
        found = self._gate.let_in(view, address)
        if found is None:
            return
        known, pdu = found
        self._counters.pdus_received += 1
        if pdu.code not in OWN_CODES:
            self._arrive(known.site, pdu, arrived)
        elif isinstance(pdu, Missing):
            self._repair(known, pdu)
        elif isinstance(pdu, Challenge):
            self._gate.answer(pdu, address, is_member=True)
        elif isinstance(pdu, Hello) and not self._greetings_left:
            self._send_to(Here(), known.address)

    def _repair(self, known: Known, missing: Missing) -> None:
        """Send fragments again to the one who asks."""
        pdu = self._kept.get(missing.counter)
        if pdu is None:
            return
        fragments = cut(pdu, self.datagram_bytes, self._group, self.boot, missing.counter)
        wanted = [fragments[index] for index in missing_indices(missing.bitmap) if index < len(fragments)]
        size = len(wanted) * self.datagram_bytes
        if not wanted:
            return
        if size > self._repair_bytes_left:
            self._counters.drop(TOO_MUCH_REPAIR)
            return
        self._repair_bytes_left -= size
        self._counters.fragments_resent += len(wanted)
        self._sockets.send_fragments(wanted, known.address)

    # As time passes

    @property
    def is_unfinished(self) -> bool:
        """Whether something waits for the next tick: fragments, greetings, or a budget that is used up."""
        return bool(
            self._reassembly.has_partials()
            or self._greetings_left
            or self._repair_bytes_left < REPAIR_BYTES_PER_TICK
            or self._gate.has_answered()
        )

    def tick(self, now: Nanoseconds) -> None:
        """Ask for fragments again, forget what is stale, greet, and look who the peers are."""
        self._now = now
        self._gate.tick(now)
        self._repair_bytes_left = REPAIR_BYTES_PER_TICK
        for partial in self._reassembly.tick(now):
            self._ask(partial)
        if self._resolving is not None:
            self._resolving.tick(now)
            self._sockets.destinations = self._fan_out()
        if self._greetings_left and (now - self._greeted_ns >= GREETING_PAUSE_NS):
            self._greetings_left -= 1
            self._greeted_ns = now
            self.multicast(Hello())

    def _ask(self, partial: Partial) -> None:
        """Only a known member is asked, at its own address: nobody can make us write to someone else."""
        known = self._gate.at(partial.address)
        if known is not None and known.boot == partial.boot:
            self._counters.fragments_requested += partial.missing
            self._send_to(Missing(partial.counter, partial.bitmap()), known.address)

    def _fan_out(self) -> tuple[Address, ...]:
        """Peers listed, peers that names stand for now, and members that have spoken lately."""
        assert self._resolving is not None
        self._accepted = self._gate.accepted
        spoken = [
            known.address
            for known in self._gate.sites.values()
            if self._now - known.heard_ns < FAN_OUT_SILENCE_NS
        ]
        everyone = dict.fromkeys((*self._listed, *self._resolving.addresses, *spoken))
        return tuple(address for address in everyone if not self._sockets.is_own(address))[:MOST_FAN_OUT]
