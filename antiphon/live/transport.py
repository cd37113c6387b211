"""The transport: PDUs of a group's members to and from datagrams.

It assumes that datagrams may be lost, repeated, reordered, altered or invented. It guarantees that `receive`
returns only whole PDUs of this group's members with their sender's name (`gate` says how sure that is), and
that neither a peer's bytes nor the network's errors raise. It does not guarantee that a PDU arrives: the
protocols repair losses. Each PDU comes with a flag that is set if something is known to be lost just before
it. With `notice_losses` that includes datagrams that the kernel dropped because a receive buffer was full;
losses in the network cannot be detected here. All tables are bounded: see `fragments` and `gate`.

`framing` makes the datagrams, `fragment_reader` puts them together. A PDU that is too large to be encoded is
counted and not sent.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta

from antiphon.core.errors import InputError, UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.core.wire import PREFIX, Codec, Pdu, group_hash
from antiphon.live.congestion import Controller
from antiphon.live.counters import Counters
from antiphon.live.fragment_reader import FragmentReader
from antiphon.live.fragments import FRAGMENT, MOST_FRAGMENTS, Partial, join, missing_indices
from antiphon.live.framing import Framer
from antiphon.live.gate import Gate
from antiphon.live.greetings import Greetings
from antiphon.live.handshake import OWN_CODES, Answer, Bye, Challenge, Hello, Here, Refused, Terms, shown
from antiphon.live.host import Host
from antiphon.live.keys import KeyFile, KeyRing
from antiphon.live.members import Known
from antiphon.live.memory import keep_spare_memory
from antiphon.live.metering import Heard, Meter, Pulse
from antiphon.live.networks import Address, Network, Peers
from antiphon.live.pacing import Datagrams, Pacer, Waiting
from antiphon.live.poison import POISON, PoisonRing
from antiphon.live.resolving import Resolving
from antiphon.live.sealing import Seals
from antiphon.live.sockets import Sockets
from antiphon.live.status import Answers, Enquiry, Status

REPAIR_BYTES_PER_TICK: Final = 4 << 20
"""Bytes of fragments resent between two ticks. Raising it costs bandwidth when many members ask at once."""
REPAIR_BYTES_PER_MEMBER: Final = 1 << 20
"""The same for one member, so that a member that asks without end leaves some to the others."""
FAN_OUT_SILENCE_NS: Final = 10 * SECOND_NS
"""A peer that is not listed gets multicasts for this long after its last datagram. Raising it costs
traffic."""
MOST_FAN_OUT: Final = 256
MOST_ECHOES: Final = 1024
"""Own multicasts whose echo is awaited; the echoes of further multicasts are ignored."""

KEY_LOOK_NS: Final = SECOND_NS
"""Pause between looks at the key file. Raising it costs time until a changed key is used."""

UNKNOWN_SITE: Final = "not sent: the address is not known yet"
TOO_MUCH_REPAIR: Final = "not sent: too many fragments asked for at once"
UNDER_WAY: Final = "not sent: the same is on its way already"
TOO_FAST: Final = "not sent: too much waits for its turn"
TOO_LARGE: Final = "not sent: it does not fit a PDU"
AMPLIFYING: Final = "not sent: larger than what it answers"


class Missing(Pdu, frozen=True, gc=False):
    """Asks for fragments of a PDU again: bit i, little-endian, is fragment i."""

    code: ClassVar[int] = 6
    counter: Annotated[int, Meta(ge=0)]
    bitmap: Annotated[bytes, Meta(max_length=MOST_FRAGMENTS // 8)]


TRANSPORT_PDUS: Final[tuple[type[Pdu], ...]] = (
    Hello, Here, Challenge, Answer, Refused, Missing, Bye, Enquiry, Status, Pulse, Heard
)  # fmt: skip
Arrival: TypeAlias = tuple[Site, Pdu, bool]
"""The sender of a PDU, the PDU, and whether something is known to be lost just before it."""


def with_own(codec: Codec) -> Codec:
    """A codec that also has the transport's own PDUs."""
    for kind in set(codec.kinds) - set(TRANSPORT_PDUS):
        if kind.code in OWN_CODES:
            raise UsageError(f"{kind.__name__} has the PDU code {kind.code}, which is the transport's own.")
    return Codec(dict.fromkeys((*codec.kinds, *TRANSPORT_PDUS)))


class Transport:
    """One member's PDUs to and from the network.

    Its `Member` calls `send`, `multicast`, `receive` and `tick`. It asks the `Gate` which datagrams are from
    members; the gate's `Host` is the `Group` (or an `Onlooker`). Below it are the `Framer` and the
    `FragmentReader`, the `Pacer` with its congestion `Controller` for the rate, and the `Sockets`.
    """

    def __init__(
        self,
        *,
        site: Site,
        group: Group,
        codec: Codec,
        network: Network,
        keys: KeyRing | KeyFile | None,
        counters: Counters,
        host: Host,
        terms: Terms | None = None,
        poison: PoisonRing | None = None,
        notice_losses: bool = False,
        echoed: tuple[type[Pdu], ...] = (),
        rate_bytes_s: float | None = None,
    ) -> None:
        """With `echoed`, own multicasts of these kinds are also received, once they have passed on the
        channel.

        That needs notices of losses, and a network whose datagrams hold a whole PDU.
        """
        keep_spare_memory()
        self._site = site
        self._codec = with_own(codec)
        self._group = group_hash(group)
        self._counters = counters
        self._host = host
        self._poison = PoisonRing() if poison is None else poison
        self._clock_ns = network.machine.now_ns
        self.boot: Final = network.machine.boot()
        self._key_file = keys if isinstance(keys, KeyFile) else None
        self._key_looked_ns: Nanoseconds = 0
        ring = keys.ring if isinstance(keys, KeyFile) else keys
        self._seals = None if ring is None else Seals(ring, group)
        self._gate = Gate(
            site=site,
            group=group,
            boot=self.boot,
            codec=self._codec,
            seals=self._seals,
            terms=terms or Terms({}),
            counters=counters,
            host=self._host,
            reply=self._reply,
        )
        self._fragments = FragmentReader(
            group=self._group, boot=self.boot, gate=self._gate, seals=self._seals, counters=counters
        )
        self._answers = Answers()
        self._now: Nanoseconds = 0
        self._greetings = Greetings()
        self._repair_bytes_left = REPAIR_BYTES_PER_TICK
        self._repaired: dict[Known, int] = {}
        """Bytes of fragments resent to each member since the last tick."""
        self._turn = 0
        self._sockets = Sockets(
            network, group, self.boot, counters, sealed=keys is not None, notice_losses=notice_losses
        )
        self.notices_losses: Final = self._sockets.notices_losses
        self._losses_reported = 0
        self._echoed: Final = echoed
        self._echoes: dict[int, Pdu] = {}
        self.datagram_bytes: Final = self._sockets.datagram_bytes
        self.receive_buffer_bytes: Final = self._sockets.receive_buffer_bytes
        self._listed = self._sockets.destinations
        self._controller: Controller[Known] = Controller(rate_bytes_s)
        self._meter = Meter(self._controller)
        self._pacer = Pacer(self._controller, self._transmit)
        self._is_paced = not network.is_loopback or rate_bytes_s is not None
        """Members on one machine share no link: their own speed limits them, not the pacer."""
        self._framer = Framer(
            site=site, group=self._group, boot=self.boot, codec=self._codec, seals=self._seals,
            datagram_bytes=self.datagram_bytes, copies=self._is_paced, now=network.machine.now_ns(),
        )  # fmt: skip
        self._named: set[Site] = set()
        """Members that were reported as left behind."""
        self._accepted = 0
        self._resolving: Resolving | None = None
        if isinstance(network, Peers):
            self._resolving = Resolving(network, self._sockets.family)
            self._sockets.destinations = self._fan_out()

    @property
    def addresses(self) -> Mapping[Site, Address]:
        """The addresses of the members that are known."""
        return {site: known.address for site, known in self._gate.sites.items()}

    def filenos(self) -> tuple[int, ...]:
        """The sockets to watch for reading."""
        return tuple(sock.fileno() for sock in self._sockets.receiving)

    def close(self, *, farewell: bool = False) -> None:
        """Close the sockets. With `farewell` the other members learn at once that the name is free."""
        if farewell:
            self.multicast(Bye())
        self._sockets.close()

    def take_part(self) -> None:
        """This process has joined: a later process with its name is refused."""
        self._gate.take_part()

    def is_pending(self, within_ns: Nanoseconds) -> bool:
        """Whether a member said within this time that it does not know yet whether our name is free."""
        return self._gate.is_pending(within_ns)

    def is_meeting(self, within_ns: Nanoseconds) -> bool:
        """Whether a process that sent something within this time has not proved itself yet."""
        return self._gate.is_meeting(within_ns)

    def figures(self, now: Nanoseconds) -> dict[str, int]:
        """The rate at which this member may send; the age of its key, and how many PDUs that has sealed."""
        rate = {"rate_bytes_s": round(self._controller.rate)} if self._is_paced else {}
        key = self._framer.key
        if key is None:
            return rate
        return rate | {
            "key_age_s": key.age_ns(now) // SECOND_NS,
            "key_sealed_pdus": key.sealed(self._framer.counter),
        }

    # Sending

    def send(self, to: Site, pdu: Pdu) -> None:
        """Unicast to a known member."""
        known = self._gate.find(to)
        if known is None:
            self._note_unknown(1)
        else:
            self._send_to(pdu, known.address, to=known.boot, members=(known,))

    def multicast(self, pdu: Pdu, to: tuple[Site, ...] | None = None, hops: int | None = None) -> int:
        """Multicast to every other member, or to those named, or across at most `hops` links; sealed once.

        Returns the PDU's counter, for `is_waiting`.
        """
        if hops is not None:
            self._sockets.reach(hops)
            counter = self.multicast(pdu, to)
            self._sockets.reach(None)
        elif to is not None:
            counter = self._multicast_to(pdu, to)
        else:
            if self._resolving is not None and self._accepted != self._gate.accepted:
                self._sockets.destinations = self._fan_out()
            counter = self._send_to(pdu, *self._sockets.destinations, members=None)
            if self._echoed and type(pdu) in self._echoed and len(self._echoes) < MOST_ECHOES:
                self._echoes[counter] = pdu
        return counter

    def is_waiting(self, counter: int) -> bool:
        """Whether datagrams of a PDU still wait for their turn."""
        return self._pacer.is_waiting(counter)

    def _multicast_to(self, pdu: Pdu, to: tuple[Site, ...]) -> int:
        found = tuple(known for site in to if (known := self._gate.find(site)) is not None)
        self._note_unknown(len(to) - len(found))
        if not found:
            return self._framer.counter
        return self._send_to(pdu, *(known.address for known in found), members=found)

    def _note_unknown(self, count: int) -> None:
        """Greet again: the members that are there answer, and then their addresses are known."""
        for _ in range(count):
            self._counters.drop(UNKNOWN_SITE)
            self._greetings.want()

    def _reply(self, pdu: Pdu, address: Address, boot: int, most_bytes: int | None) -> None:
        """Answer a process, with at most `most_bytes` where it has not proved its address."""
        self._send_to(pdu, address, to=boot, most_bytes=most_bytes)

    def _send_to(
        self,
        pdu: Pdu,
        *addresses: Address,
        to: int | None = None,
        most_bytes: int | None = None,
        members: tuple[Known, ...] | None = (),
    ) -> int:
        """Send one PDU under one counter to each address; with `to`, only the process of that boot accepts
        it.

        `members` are the destinations that the meter counts; None means everyone. Returns the counter.
        """
        framer = self._framer
        if not framer.encode(pdu, most_bytes):
            self._counters.drop(TOO_LARGE)
            return framer.counter
        if most_bytes is not None and framer.length > most_bytes:
            self._counters.drop(AMPLIFYING)
            return framer.counter
        self._counters.pdus_sent += 1
        datagrams = framer.datagrams(pdu.code, to)
        if not self._is_paced:
            self._hand_over(datagrams, addresses)
            return framer.counter
        waiting = Waiting(framer.counter, datagrams, addresses, members, getattr(pdu, "bodies", None))
        is_held_back = self._pacer.has_queue or waiting.bodies is not None
        if pdu.code in OWN_CODES or pdu.urgent or not is_held_back:
            self._pacer.charge(self._transmit(waiting))
        else:
            self._queue(self._clock_ns(), waiting)
        return waiting.counter

    def _transmit(self, waiting: Waiting) -> int:
        """Hand datagrams to the sockets. Returns the number of bytes that each address gets."""
        self._hand_over(waiting.datagrams, waiting.addresses)
        size = sum(len(head) + len(body) for head, body in waiting.datagrams)
        self._meter.sent(waiting.members, size)
        return size

    def _hand_over(self, datagrams: Datagrams, addresses: tuple[Address, ...]) -> None:
        sockets = self._sockets
        if len(datagrams) > 1:
            for address in addresses:
                sockets.send_fragments(datagrams, address)
        else:
            head, body = datagrams[0]
            for address in addresses:
                if body:
                    sockets.send_two(head, body, address)
                else:
                    sockets.send(head, address)

    # Pace

    def _queue(self, now: Nanoseconds, waiting: Waiting) -> None:
        if self._pacer.is_under_way(now, waiting):
            self._counters.drop(UNDER_WAY)
        elif not self._pacer.add(waiting):
            self._counters.lose(TOO_FAST)
        else:
            self._pacer.drain(now)
            self._pulse(now)

    def is_clear(self) -> bool:
        """Whether a new PDU may be sent at once."""
        return not self._is_paced or self._pacer.is_clear(self._clock_ns())

    @property
    def has_queue(self) -> bool:
        """Whether PDUs are queued."""
        return self._pacer.has_queue

    def clear_ns(self, now: Nanoseconds) -> Nanoseconds:
        """When the next datagram may leave."""
        return self._pacer.due_ns(now)

    def pace(self, now: Nanoseconds) -> None:
        """Send the queued PDUs that are due."""
        if self._pacer.has_queue:
            self._pacer.drain(now)
            self._pulse(now)

    @property
    def limited_by(self) -> Site | None:
        """The member whose losses last reduced the rate."""
        limiter = self._controller.limiter
        return None if limiter is None else limiter.site

    @property
    def rate_bytes_s(self) -> float | None:
        """Bytes per second that may be sent to each member; None if unlimited."""
        return self._controller.rate if self._is_paced else None

    def _pulse(self, now: Nanoseconds) -> None:
        """Ask the members what has arrived, if it is time to."""
        pulse = self._meter.pulse(now, list(self._gate.sites.values()))
        if pulse is not None:
            self._send_to(pulse, *self._sockets.destinations, members=None)
            self._meter.pulsed(now, pulse)

    def _look_after_pace(self) -> None:
        """Forget what has left and departed members, and report the members that cannot keep up."""
        self._pacer.forget(self._now)
        self._meter.forget([known for known in self._meter.known() if not self._gate.knows(known)])
        left = {known.site for known in self._controller.left_behind()}
        for site in left - self._named:
            self._host.left_behind(site)
        self._named = left

    # Receiving

    def receive(
        self, limit: int, *, place: int | None = None, now: Nanoseconds | None = None
    ) -> list[Arrival]:
        """Read what has arrived, without waiting, from the socket at `place` in `filenos` or from all.

        Reading ends after `limit` PDUs. It also reads at most `limit` datagrams from each socket, so that a
        flood of garbage does not keep it here. The sockets take turns to be first.
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
                try:
                    if len(view) != PREFIX.size or not self._is_echo(view, address, arrived):
                        self._take(view, each, address, arrived)
                except Exception as error:
                    # A fault of ours. A peer that triggers it must not be able to end this member.
                    self._counters.lose(POISON)
                    self._poison.keep(shown(address), "datagram", error, bytes(view))
        return arrived

    def encoded(self, pdu: Pdu) -> bytes:
        """A PDU as bytes, for inspection."""
        return self._codec.encode(pdu, self._group)

    def _is_echo(self, view: memoryview, address: Address, arrived: list[Arrival]) -> bool:
        """Where losses are noticed, the heads of our own multicasts come back: take them for echoes."""
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
        arrived.append((site, pdu, losses != self._losses_reported))
        self._losses_reported = losses

    def _take(self, view: memoryview, each: int, address: Address, arrived: list[Arrival]) -> None:
        """Process what was read: one datagram, or several of one size that the kernel joined."""
        size = len(view)
        counters = self._counters
        counters.bytes_received += size
        counters.datagrams_received += -(-size // each) if each else 1
        if each:
            self._take_joined(view, each, address, arrived)
        elif _is_fragment(view):
            # A fragment is kept for long. It is copied unless the read has memory of its own.
            own = view if self._sockets.reads_last else memoryview(bytes(view))
            self._take_whole(self._fragments.take(own, address, self._now), address, arrived)
        else:
            self._take_pdu(view, address, arrived, size)

    def _take_joined(self, view: memoryview, each: int, address: Address, arrived: list[Arrival]) -> None:
        joined = join(view, each, self._group)
        if joined is not None:
            self._take_whole(self._fragments.take_joined(joined, address, len(view)), address, arrived)
            return
        for begin in range(0, len(view), each):
            datagram = memoryview(bytes(view[begin : begin + each]))
            if _is_fragment(datagram):
                self._take_whole(self._fragments.take(datagram, address, self._now), address, arrived)
            else:
                self._take_pdu(datagram, address, arrived, len(datagram))

    def _take_whole(self, whole: bytes | None, address: Address, arrived: list[Arrival]) -> None:
        """Process a PDU that came in fragments, if it is complete now."""
        if whole is not None:
            self._take_pdu(memoryview(whole), address, arrived, 0)

    def _take_pdu(self, view: memoryview, address: Address, arrived: list[Arrival], size: int) -> None:
        """Process a PDU. `size` is its bytes on the wire, 0 if they were counted fragment by fragment."""
        found = self._gate.let_in(view, address)
        if found is None:
            return
        known, pdu = found
        known.received_bytes += size
        self._counters.pdus_received += 1
        if pdu.code not in OWN_CODES:
            self._arrive(known.site, pdu, arrived)
        elif isinstance(pdu, Missing):
            self._repair(known, pdu)
        elif isinstance(pdu, Pulse):
            if self.boot in pdu.asked:
                heard = Heard(pdu.serial, known.received_bytes)
                self._send_to(heard, known.address, to=known.boot, members=(known,))
        elif isinstance(pdu, Heard):
            self._meter.hear(self._clock_ns(), known, pdu)
        elif isinstance(pdu, Bye):
            self._gate.part_with(known)
        elif isinstance(pdu, Enquiry):
            self._send_status(known)
        elif isinstance(pdu, Status):
            self._host.told(known.site, pdu)
        elif isinstance(pdu, Hello) and not self._greetings.is_due:
            self._send_to(Here(), known.address, to=known.boot, members=(known,))

    def _send_status(self, known: Known) -> None:
        status = self._host.status() if self._answers.may_give(known.boot, self._now) else None
        if status is not None:
            self._send_to(status, known.address, to=known.boot)

    def _repair(self, known: Known, missing: Missing) -> None:
        """Resend fragments to the member that asks."""
        indices = self._framer.kept(missing.counter, missing_indices(missing.bitmap))
        if not indices or self._pacer.is_waiting(missing.counter):
            return
        size = len(indices) * self.datagram_bytes
        sent = self._repaired.get(known, 0) + size
        if size > self._repair_bytes_left or sent > REPAIR_BYTES_PER_MEMBER:
            self._counters.drop(TOO_MUCH_REPAIR)
            return
        self._repair_bytes_left -= size
        self._repaired[known] = sent
        fragments = self._framer.fragments(missing.counter, indices)
        waiting = Waiting(missing.counter, fragments, (known.address,), (known,), None)
        if not self._is_paced:
            self._hand_over(waiting.datagrams, waiting.addresses)
        elif not self._pacer.add(waiting, is_repair=True):
            self._counters.drop(TOO_MUCH_REPAIR)
            return
        self._counters.fragments_resent += len(indices)

    # Housekeeping

    @property
    def is_unfinished(self) -> bool:
        """Whether something waits for the next tick: fragments, greetings, or a budget that is used up."""
        return bool(
            self._fragments.reassembly.has_partials()
            or self._greetings.is_due
            or self._repair_bytes_left < REPAIR_BYTES_PER_TICK
            or self._gate.is_busy()
            or self._gate.should_greet
        )

    def tick(self, now: Nanoseconds) -> None:
        """Send what is due, ask for fragments again, drop what is stale, greet, look up peers."""
        self._now = now
        self.pace(now)
        self._gate.tick(now)
        self._repair_bytes_left = REPAIR_BYTES_PER_TICK
        self._repaired.clear()
        self._look_after_pace()
        for partial in self._fragments.reassembly.tick(now, self._gate.knows):
            self._ask(partial)
        self._look_after_keys(now)
        if self._resolving is not None:
            self._resolving.tick(now)
            for peer in self._resolving.take_unfound():
                self._host.refused(
                    self._site,
                    f"The address of the peer {peer} cannot be found: is its name right, and is it up?",
                )
            self._sockets.destinations = self._fan_out()
        self._greet(now)

    def _greet(self, now: Nanoseconds) -> None:
        """Greet if there is a reason to."""
        if self._greetings.take(now, self._gate.should_greet):
            self._gate.greeted()
            self.multicast(Hello())

    def _ask(self, partial: Partial[Known]) -> None:
        """Ask a member for fragments at its own address, so that nothing can aim our requests at another."""
        known = partial.sender
        self._counters.fragments_requested += partial.missing
        self._send_to(
            Missing(partial.counter, partial.bitmap()), known.address, to=known.boot, members=(known,)
        )

    def _look_after_keys(self, now: Nanoseconds) -> None:
        """Renew a key that has been used for long, and load a changed key file."""
        if self._framer.key is None or now - self._key_looked_ns < KEY_LOOK_NS:
            return
        self._key_looked_ns = now
        self._framer.renew_key(now)
        if self._key_file is None:
            return
        try:
            ring = self._key_file.look()
        except InputError as error:
            self._host.refused(self._site, f"{error.sentence} The previous keys stay in use. {error.hint}")
            return
        if ring is not None:
            self.rekey(ring, now)

    def rekey(self, ring: KeyRing, now: Nanoseconds) -> None:
        """Switch to another key ring: its first key seals, all of them open."""
        assert self._seals is not None
        self._seals.replace(ring)
        self._framer.replace_key(now)
        self._gate.rekey()
        self._counters.key_changes += 1

    def _fan_out(self) -> tuple[Address, ...]:
        """The destinations: listed peers, the addresses that names resolve to, and members heard recently."""
        assert self._resolving is not None
        self._accepted = self._gate.accepted
        spoken = [
            known.address
            for known in self._gate.sites.values()
            if self._now - known.heard_ns < FAN_OUT_SILENCE_NS
        ]
        everyone = dict.fromkeys((*self._listed, *self._resolving.addresses, *spoken))
        return tuple(address for address in everyone if not self._sockets.is_own(address))[:MOST_FAN_OUT]


def _is_fragment(view: memoryview) -> bool:
    return len(view) >= PREFIX.size and view[3] == FRAGMENT
