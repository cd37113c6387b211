"""Loss notices on real sockets: a PDU shows that something was lost before it, and only the right PDU."""

import asyncio
import socket
import struct
from collections.abc import Iterator

import pytest

from antiphon.core.effects import Effect
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import HEADER, MAGIC, PREFIX, VERSION, Reason, group_hash
from antiphon.live import challenges, sockets
from antiphon.live.counters import Counters
from antiphon.live.fragments import FORGED, MISSING, cut, no_tokens
from antiphon.live.greetings import GREETINGS
from antiphon.live.handshake import Hello
from antiphon.live.keys import KeyRing
from antiphon.live.member import Member
from antiphon.live.networks import Loopback, Network
from antiphon.live.poison import PoisonRing
from antiphon.live.transport import MOST_ECHOES, Arrival
from tests.live.pairs import RING, Ear, Note, acquaint, drive, ears, group_name, note, settle
from tests.live.test_networks import peers_on

KEYS = pytest.mark.parametrize("keys", [None, RING], ids=["open", "sealed"])
SMALL_BUFFER = 1 << 15


def notices_work() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return sockets.notice_overflow(probe)


pytestmark = pytest.mark.skipif(not notices_work(), reason="The kernel tells of no dropped datagrams.")


def pair(keys: KeyRing | None, *places: Network) -> tuple[Ear, Ear]:
    group = group_name()
    speaker = Ear("a", group, keys, places[0])
    return speaker, Ear("b", group, keys, places[-1], notice_losses=True)


def flood(speaker: Ear, first: int, count: int, size: int = 1000, *, to: Site | None = None) -> None:
    for number in range(first, first + count):
        if to is None:
            speaker.transport.multicast(note(number, size))
        else:
            speaker.transport.send(to, note(number, size))


def hear_all(listener: Ear, until: int) -> None:
    drive([listener], lambda: until in listener.numbers("a"))


@KEYS
def test_the_first_pdu_after_a_flood_tells_of_the_loss_and_no_other_does(keys: KeyRing | None) -> None:
    with ears(*pair(keys, Loopback(buffer_bytes=SMALL_BUFFER))) as (a, b):
        acquaint(a, b)
        assert b.transport.notices_losses
        flood(a, 0, 10)
        hear_all(b, 9)
        assert b.after_loss == []
        flood(a, 100, 500)
        flood_ends = drained(b)
        lost = 510 - len(b.numbers("a"))
        assert lost > 0
        assert b.after_loss == []
        flood(a, 1000, 5)
        hear_all(b, 1004)
        assert b.numbers("a")[flood_ends:] == list(range(1000, 1005))
        assert b.after_loss == [1000]
        # Greetings may be among what was lost.
        assert lost <= b.counters.datagrams_lost <= lost + 2 * GREETINGS


def drained(listener: Ear) -> int:
    """Hear what has come so far; how much that is altogether."""
    before = -1
    while before != len(listener.heard):
        before = len(listener.heard)
        listener.look()
    return before


def test_a_loss_amid_what_is_waiting_is_told_where_it_happened() -> None:
    with ears(*pair(None, Loopback(buffer_bytes=SMALL_BUFFER))) as (a, b):
        acquaint(a, b)
        flood(a, 0, 500)
        b.take(18)
        # There is room for more now, behind those that still wait; the kernel gives it back in large pieces.
        flood(a, 1000, 1)
        drained(b)
        heard = b.numbers("a")
        assert len(heard) > 20
        assert heard[-1] == 1000
        assert heard[:-1] == list(range(len(heard) - 1))
        assert b.after_loss == [1000]
        flood(a, 2000, 2)
        hear_all(b, 2001)
        assert b.after_loss == [1000]


def test_a_loss_on_the_unicast_socket_is_a_loss_as_well() -> None:
    with ears(*pair(None, Loopback(buffer_bytes=SMALL_BUFFER))) as (a, b):
        acquaint(a, b)
        flood(a, 0, 500, to="b")
        drained(b)
        flood(a, 1000, 1)
        flood(a, 1001, 1, to="b")
        drained(b)
        assert 0 < b.counters.datagrams_lost == 500 - len([n for n in b.numbers("a") if n < 500])
        assert b.after_loss == [1001]


def test_own_multicasts_are_neither_heard_nor_lost() -> None:
    with ears(*pair(None, Loopback())) as (a, b):
        settle(a, b)
        before, dropped = b.counters.datagrams_received, dict(b.drops)
        for number in range(50):
            b.transport.multicast(note(number, 60_000))
        flood(a, 1000, 1)
        hear_all(b, 1000)
        assert b.counters.datagrams_received == before + 1
        assert (b.after_loss, b.counters.datagrams_lost, b.drops) == ([], 0, dropped)
        assert b.numbers("b") == []


def test_own_multicasts_of_some_kinds_are_heard_where_they_passed() -> None:
    group = group_name()
    with ears(
        Ear("a", group),
        Ear("b", group, notice_losses=True, echoed=(Note,)),
        Ear("c", group, notice_losses=True),
    ) as (a, b, c):
        settle(a, b, c)
        a.transport.multicast(note(1))
        b.transport.multicast(note(2))
        b.transport.multicast(Hello())
        c.transport.multicast(note(3))
        a.transport.multicast(note(4))
        drive([b, c], lambda: len(b.heard) == 4 and len(c.heard) == 3)
        assert b.heard == [("a", note(1)), ("b", note(2)), ("c", note(3)), ("a", note(4))]
        assert c.numbers("c") == []
        assert b.transport._echoes == {}
        for number in range(MOST_ECHOES + 5):
            b.transport.multicast(note(number))
        assert len(b.transport._echoes) == MOST_ECHOES


def test_the_head_of_an_own_multicast_counts_only_from_the_own_address() -> None:
    group = group_name()
    with ears(Ear("a", group, notice_losses=True, echoed=(Note,))) as (a,):
        head = PREFIX.pack(MAGIC, VERSION, Note.code, 0, group_hash(group), a.transport.boot, 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(head, ("127.0.0.1", a.port()))
        drive([a], lambda: a.drops.get(Reason.SHORT.value, 0) == 1)
        assert a.heard == []


@pytest.mark.parametrize(
    ("notices", "is_own_address", "is_own_boot", "is_echo"),
    [
        pytest.param(True, True, True, True, id="an own one"),
        pytest.param(False, True, True, False, id="where losses are not noticed"),
        pytest.param(True, False, True, False, id="from another address"),
        pytest.param(True, True, False, False, id="of an earlier process"),
    ],
)
def test_a_head_alone_is_an_echo_if_it_is_an_own_one_and_losses_are_noticed(
    notices: bool, is_own_address: bool, is_own_boot: bool, is_echo: bool
) -> None:
    group = group_name()
    with ears(Ear("a", group, notice_losses=notices)) as (a,):
        boot = a.transport.boot if is_own_boot else a.transport.boot ^ 1
        head = PREFIX.pack(MAGIC, VERSION, Note.code, 0, group_hash(group), boot, 1)
        port = a.transport._sockets._sending.getsockname()[1]
        address = ("127.0.0.1", port if is_own_address else port ^ 1)
        assert a.transport._is_echo(memoryview(head), address, []) == is_echo


def test_an_empty_datagram_of_a_stranger_is_garbage_all_the_same() -> None:
    with ears(*pair(None, Loopback())) as (a, b):
        settle(a, b)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"", ("127.0.0.1", b.port()))
        drive([b], lambda: b.drops.get(Reason.SHORT.value, 0) == 1)


@KEYS
def test_datagrams_that_the_kernel_joins_tell_of_losses_too(keys: KeyRing | None) -> None:
    places = peers_on("127.0.0.1", 2, datagram_bytes=1472, buffer_bytes=1 << 17)
    with ears(*pair(keys, *places)) as (a, b):
        acquaint(a, b)
        a.transport.multicast(note(0, 20_000))
        hear_all(b, 0)
        assert b.after_loss == []
        flood(a, 1, 200, 1200)
        drained(b)
        a.transport.multicast(note(1000, 20_000))
        hear_all(b, 1000)
        assert b.after_loss == [1000]


def test_the_count_goes_round() -> None:
    with ears(*pair(None, Loopback())) as (a, b):
        acquaint(a, b)
        totals = iter([0xFFFFFFFE, 1, 1])
        places = b.transport._sockets
        real = places.receiving

        class Told:
            """A socket that reports what the test says."""

            def recvmsg(
                self, size: int, room: int
            ) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
                data, _, flags, address = real[1].recvmsg(size, room)
                return (
                    data,
                    [(socket.SOL_SOCKET, sockets.SO_RXQ_OVFL, struct.pack("=I", next(totals)))],
                    flags,
                    address,
                )

        told = Told()
        places._overflows[told] = 0xFFFFFFF0  # type: ignore[index]
        flood(a, 0, 3)
        for _ in range(3):
            assert places._read_noticing(told) is not None  # type: ignore[arg-type]
        assert b.counters.datagrams_lost == 14 + 3


def test_a_kernel_that_cannot_tell_leaves_everything_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "SO_RXQ_OVFL", 9999)
    with ears(*pair(None, Loopback())) as (a, b):
        assert not b.transport.notices_losses
        acquaint(a, b)
        b.transport.multicast(note(5))
        flood(a, 0, 3)
        hear_all(b, 2)
        assert b.after_loss == []


# What is lost further up


@KEYS
def test_a_members_pdu_that_was_damaged_is_a_loss(keys: KeyRing | None) -> None:
    with ears(*pair(keys, Loopback())) as (a, b):
        acquaint(a, b)
        flood(a, 0, 1)
        hear_all(b, 0)
        pdu = capture(a)
        damaged = pdu[:-1] + bytes([pdu[-1] ^ 1])
        dropped = sum(b.drops.values())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as somewhere:
            somewhere.sendto(damaged, ("127.0.0.1", b.port()))
        drive([b], lambda: sum(b.drops.values()) == dropped + 1)
        flood(a, 2, 1)
        hear_all(b, 2)
        assert b.after_loss == [], "others cannot damage what a member says"
        a.transport._sockets.send(damaged, ("127.0.0.1", b.port()))
        drive([b], lambda: sum(b.drops.values()) == dropped + 2)
        flood(a, 3, 2)
        hear_all(b, 4)
        assert b.after_loss == [3]


def capture(speaker: Ear) -> bytes:
    """A PDU of a member, as it would leave."""
    sent: list[bytes] = []
    places = speaker.transport._sockets
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "send", lambda data, _: sent.append(bytes(data)))
        patch.setattr(places, "send_two", lambda head, body, _: sent.append(bytes(head) + bytes(body)))
        speaker.transport.multicast(note(1))
    assert len(sent[0]) > HEADER.size
    return sent[0]


@KEYS
def test_what_a_boot_says_before_it_has_proved_itself_is_a_loss(keys: KeyRing | None) -> None:
    with ears(*pair(keys, Loopback())) as (a, b):
        flood(a, 0, 1)
        drive([b], lambda: b.drops.get(challenges.UNPROVEN, 0) >= 1)
        acquaint(a, b)
        flood(a, 1, 2)
        hear_all(b, 2)
        assert b.after_loss == [1]


@KEYS
def test_a_members_pdu_whose_fragments_are_given_up_is_a_loss_and_a_strangers_is_not(
    keys: KeyRing | None,
) -> None:
    with ears(*pair(keys, Loopback())) as (a, b):
        settle(a, b)
        flood(a, 0, 1)
        hear_all(b, 0)
        key = a.transport._framer.key
        tokens = no_tokens if key is None else key.seal.tokens
        begun = b"".join(cut(bytes(90_000), 65_507, a.transport._group, a.transport.boot, 10**6, tokens)[0])
        invented = begun[:16] + bytes(8) + begun[24:]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for fragment in (invented, begun[:32] + bytes(8) + begun[40:]) if keys else (invented, begun):
                stranger.sendto(fragment, ("127.0.0.1", b.port()))
        drive([b], lambda: b.drops.get(challenges.UNPROVEN, 0) + b.drops.get(FORGED, 0) >= 2)
        assert not b.transport._fragments.reassembly.has_partials()
        flood(a, 1, 1)
        hear_all(b, 1)
        assert (b.after_loss, b.counters.pdus_lost) == ([], 0)
        a.transport._sockets.send(begun, ("127.0.0.1", b.port()))
        drive([b], lambda: b.drops.get(MISSING, 0) == 1)
        flood(a, 2, 2)
        hear_all(b, 3)
        assert (b.after_loss, b.counters.pdus_lost) == ([2], 1)


# What the protocol gets


class Deaf:
    """A protocol that only records its inputs."""

    def __init__(self) -> None:
        self.told: list[tuple[int, bool]] = []

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        if isinstance(event, Received):
            self.told.append((getattr(event.pdu, "number", -1), event.after_loss))
        return []


class Scripted:
    """A transport that hands out what it was given."""

    def __init__(self) -> None:
        self.waiting: list[list[Arrival]] = []

    is_unfinished = False

    def receive(self, limit: int, *, place: int, now: Nanoseconds) -> list[Arrival]:
        return self.waiting.pop(0)

    def filenos(self) -> Iterator[int]:
        return iter(())

    def tick(self, now: Nanoseconds) -> None: ...


class Reader:
    """An application that can read too slowly."""

    pressed = False

    def failed(self, error: BaseException) -> None:
        raise error

    def stepped(self) -> None: ...

    def hand_out(self) -> bool:
        return False

    def wake(self) -> None: ...

    def has_room(self) -> bool:
        return True


class Empty:
    """A PDU without bodies."""

    number = 50


def test_a_member_passes_losses_on_and_what_a_slow_reader_refuses_is_one() -> None:
    async def run() -> list[tuple[int, bool]]:
        protocol, transport, reader = Deaf(), Scripted(), Reader()
        member = Member(
            site="b",
            group="g",
            build=lambda _: protocol,  # type: ignore[arg-type, return-value]
            transport=transport,  # type: ignore[arg-type]
            recorder=None,
            reader=reader,  # type: ignore[arg-type]
            listener=reader,  # type: ignore[arg-type]
            counters=Counters(),
            poison=PoisonRing(),
        )
        member._running, member._away = True, False
        transport.waiting = [
            [("a", note(1), False), ("a", note(2), True)],
            [("a", note(3), False)],
            [("a", note(4), False), ("a", note(5), False)],
        ]
        member._receive(0)
        reader.pressed = True
        member._receive(0)
        reader.pressed = False
        member._receive(0)
        transport.waiting = [[("a", note(6), False), ("a", Empty(), False), ("a", Empty(), False)]]  # type: ignore[list-item]
        reader.pressed = True
        member._receive(0)
        member.stop()
        assert member.refused_bodies == 2
        return protocol.told

    told = asyncio.run(run())
    assert told == [(1, False), (2, True), (4, True), (5, False), (50, True), (50, False)]
