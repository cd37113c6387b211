"""The transport between real sockets on loopback: what is sent arrives once, under its sender's name."""

import select
import socket
import sys
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import UsageError
from antiphon.core.wire import (
    DIRECT,
    HEADER,
    PREFIX,
    SEALED,
    VERSION,
    Codec,
    Garbage,
    Packet,
    Pdu,
    Reason,
    group_hash,
)
from antiphon.live import challenges, gate, members, sockets, transport
from antiphon.live.counters import Counters
from antiphon.live.fragments import FRAGMENT, MOST_FRAGMENTS, NOT_NEW, cut
from antiphon.live.greetings import GREETINGS
from antiphon.live.handshake import GREETING_BYTES, Hello
from antiphon.live.keys import KeyRing
from antiphon.live.members import Known
from antiphon.live.metering import MOST_ASKED, Pulse
from antiphon.live.networks import Address, Endpoint, Loopback, Multicast, Peers
from antiphon.live.poison import POISON
from antiphon.live.sealing import GENERATION_BITS, TOKEN_BYTES, ReplayWindow, Seals
from antiphon.live.sockets import derived_endpoint
from antiphon.live.transport import FAN_OUT_SILENCE_NS, TRANSPORT_PDUS, UNKNOWN_SITE, Missing, Transport
from tests.live.pairs import (
    CODEC,
    OTHER_RING,
    RING,
    Ear,
    News,
    Note,
    acquaint,
    drive,
    ears,
    free_port,
    group_name,
    note,
    repeat,
    settle,
)

IP_RECVTTL = 12
KNOWN = Known(7, 7, "b", ("127.0.0.1", 9), None, -1, 0)
"""A member that this machine does not reach."""
KEYS = pytest.mark.parametrize("keys", [None, RING], ids=["open", "sealed"])


@KEYS
@pytest.mark.parametrize("size", [0, 100, 60_000, 110_000])
def test_a_multicast_reaches_every_other_member_once(keys: KeyRing | None, size: int) -> None:
    group = group_name()
    with ears(*(Ear(site, group, keys) for site in "abc")) as (a, b, c):
        acquaint(a, b, c)
        for number in range(3):
            a.transport.multicast(note(number, size))
        drive([a, b, c], lambda: len(b.heard) >= 3 and len(c.heard) >= 3)
        for _ in range(5):
            for ear in (a, b, c):
                ear.look()
        assert b.heard == c.heard == [("a", note(number, size)) for number in range(3)]
        assert a.heard == []
        assert set(b.drops) <= {challenges.UNPROVEN, gate.REPLAYED, gate.ELSEWHERE}


@KEYS
def test_a_unicast_reaches_the_one_it_is_for(keys: KeyRing | None) -> None:
    group = group_name()
    with ears(*(Ear(site, group, keys) for site in "abc")) as (a, b, c):
        acquaint(a, b, c)
        a.transport.send("b", note(1))
        a.transport.multicast(note(2), to=("b",))
        a.transport.multicast(note(3))
        drive([a, b, c], lambda: bool(b.numbers("a")[2:] and c.numbers("a")))
        assert sorted(b.numbers("a")) == [1, 2, 3]
        assert c.numbers("a") == [3]


def test_a_multicast_may_be_limited_to_fewer_links_than_the_network_allows() -> None:
    """The kernel reports the time to live with which each datagram arrived."""
    where = Endpoint("239.255.77.1", free_port())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as witness:
        witness.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        witness.bind(where)
        member = socket.inet_aton(where.host) + socket.inet_aton("127.0.0.1")
        witness.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        witness.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        witness.settimeout(20)
        with ears(Ear("a", group_name(), None, Multicast("lo", where, ttl=5))) as (a,):
            seen = []
            for hops in (None, 3, 9, None):
                a.transport.multicast(note(1), hops=hops)
                _, ancillary, _, _ = witness.recvmsg(2048, 64)
                seen += [int.from_bytes(value[:4], "little") for *_, value in ancillary]
    assert seen == [5, 3, 5, 5]


@KEYS
def test_a_newcomer_gets_to_know_those_who_have_greeted_long_ago(keys: KeyRing | None) -> None:
    group = group_name()
    with ears(Ear("a", group, keys)) as (a,):
        drive([a], lambda: a.counters.pdus_sent >= GREETINGS)
        with ears(Ear("b", group, keys)) as (b,):
            acquaint(a, b)
            b.transport.send("a", note(1))
            drive([a, b], lambda: a.numbers("b") == [1])


def test_whom_one_cannot_find_one_greets_again() -> None:
    group = group_name()
    with ears(Ear("a", group)) as (a,):
        drive([a], lambda: a.counters.pdus_sent >= GREETINGS)
        with ears(Ear("b", group)) as (b,):
            b.transport._greetings._left = 0
            assert not a.transport.addresses
            a.transport.send("b", note(1))
            drive([a, b], lambda: "b" in a.transport.addresses)


def test_what_is_for_nobody_known_is_counted() -> None:
    with ears(Ear("a", group_name())) as (a,):
        a.transport.send("z", note(1))
        a.transport.multicast(note(1), to=("y", "z"))
        assert a.drops == {UNKNOWN_SITE: 3}
        assert a.counters.datagrams_sent == 0


def test_own_multicasts_do_not_even_reach_the_process() -> None:
    with ears(*(Ear(site, g, None) for g in [group_name()] for site in "ab")) as (a, b):
        settle(a, b)
        before = a.counters.datagrams_received
        for number in range(10):
            a.transport.multicast(note(number))
        drive([b], lambda: len(b.heard) == 10)
        a.look()
        assert a.counters.datagrams_received == before


def test_own_multicasts_are_dropped_silently_where_the_kernel_has_no_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "ignore_own", lambda *_, **__: None)
    with ears(*(Ear(site, g, None) for g in [group_name()] for site in "ab")) as (a, b):
        settle(a, b)
        dropped = dict(a.drops)
        before = a.counters.datagrams_received
        a.transport.multicast(note(1, 60_000))
        a.transport.multicast(note(2, 100_000))
        drive([a, b], lambda: len(b.heard) == 2 and a.counters.datagrams_received >= before + 3)
        assert (a.heard, a.drops) == ([], dropped)


def test_reading_ends_at_the_limit_and_goes_on_where_it_ended() -> None:
    with ears(*(Ear(site, g, None) for g in [group_name()] for site in "ab")) as (a, b):
        settle(a, b)
        for number in range(10):
            a.transport.multicast(note(number))
        heard = [b.transport.receive(4), b.transport.receive(4), b.transport.receive(4)]
        assert [len(part) for part in heard] == [4, 4, 2]
        assert [pdu.number for part in heard for _, pdu, _ in part] == list(range(10))  # type: ignore[attr-defined]
        assert b.transport.receive(4) == []


def test_one_socket_can_be_read_and_the_other_keeps_what_it_has() -> None:
    with ears(*(Ear(site, g, None) for g in [group_name()] for site in "ab")) as (a, b):
        settle(a, b)
        a.transport.send("b", note(1))
        a.transport.multicast(note(2))
        heard = [b.transport.receive(4, place=place) for place in range(2)]
        assert [[pdu.number for _, pdu, _ in part if isinstance(pdu, Note)] for part in heard] == [[1], [2]]


def test_groups_that_share_an_address_do_not_meet() -> None:
    groups, place = [group_name(), group_name()], derived_endpoint(group_name())
    network = Multicast("lo", place)
    with ears(*(Ear("ab"[index], groups[index], None, network) for index in (0, 1))) as (a, b):
        a.transport.multicast(note(1))
        a.transport.multicast(note(2, 100_000))
        drive([b], lambda: gate.OTHER_GROUP in b.drops and b.counters.datagrams_received >= 3)
        assert b.heard == []
        assert b.transport.addresses == {}


@pytest.mark.parametrize(
    ("mine", "theirs", "reason"),
    [
        (RING, None, gate.UNSEALED),
        (None, RING, Reason.SEALED.value),
        (RING, OTHER_RING, gate.UNKNOWN_KEY),
    ],
)
def test_members_without_the_same_key_do_not_hear_each_other(
    mine: KeyRing | None, theirs: KeyRing | None, reason: str
) -> None:
    group = group_name()
    with ears(Ear("a", group, mine), Ear("b", group, theirs)) as (a, b):
        repeat([a, b], lambda: b.transport.multicast(note(1)), lambda: a.drops.get(reason, 0) > 5)
        assert set(a.drops) == {reason}
        assert a.heard == []
        assert a.transport.addresses == {}


def test_a_key_that_is_not_the_first_still_opens() -> None:
    group = group_name()
    before = KeyRing((b"1" * 32, b"2" * 32))
    with ears(Ear("a", group, before), Ear("b", group, before.promoted())) as (a, b):
        acquaint(a, b)
        a.transport.multicast(note(1))
        b.transport.multicast(note(2))
        drive([a, b], lambda: a.numbers("b") == [2] and b.numbers("a") == [1])


class Tap:
    """A process on the same machine that records a group's datagrams and repeats them."""

    def __init__(self, group: str) -> None:
        self.place = derived_endpoint(group)
        opened = sockets.open_network(Loopback(), group)
        self._sending, self._hearing = opened.sending, opened.receiving[1]
        for sock in (self._sending, self._hearing):
            sock.setblocking(False)
        sockets.enlarge_buffers(self._hearing, 1 << 22)

    def recorded(self) -> list[bytes]:
        found = []
        while True:
            try:
                found.append(self._hearing.recv(1 << 16))
            except BlockingIOError:
                return found

    def say(self, datagram: bytes, port: int | None = None) -> None:
        self._sending.sendto(datagram, self.place if port is None else ("127.0.0.1", port))

    def close(self) -> None:
        self._sending.close()
        self._hearing.close()


def test_what_is_repeated_by_others_is_dropped() -> None:
    group = group_name()
    tap = Tap(group)
    with ears(*(Ear(site, group, RING) for site in "ab")) as (a, b):
        acquaint(a, b)
        for number in range(20):
            a.transport.multicast(note(number))
        drive([b], lambda: len(b.heard) == 20)
        for datagram in tap.recorded():
            tap.say(datagram)
            tap.say(datagram, b.port())
        drive([a, b], lambda: b.drops.get(gate.REPLAYED, 0) >= 40)
        assert len(b.heard) == 20
        assert a.heard == []
    tap.close()


def test_a_dead_process_recorded_traffic_is_not_accepted_by_a_fresh_member() -> None:
    group = group_name()
    tap = Tap(group)
    with ears(Ear("a", group, RING)) as (a,):
        a.look()
        for number in range(20):
            a.transport.multicast(note(number))
    with ears(Ear("b", group, RING)) as (b,):
        for datagram in tap.recorded():
            tap.say(datagram)
        drive([b], lambda: b.drops.get(challenges.UNPROVEN, 0) >= 20)
        assert b.heard == []
        assert b.transport.addresses == {}
        assert b.counters.challenges_sent >= 1
    tap.close()


def test_what_a_live_process_sent_before_it_was_met_is_not_accepted_afterwards() -> None:
    group = group_name()
    tap = Tap(group)
    with ears(Ear("a", group, RING)) as (a,):
        for number in range(20):
            a.transport.multicast(note(number))
        old = tap.recorded()
        with ears(Ear("b", group, RING)) as (b,):
            acquaint(a, b)
            before = b.drops.get(gate.REPLAYED, 0)
            for datagram in old:
                tap.say(datagram)
            drive([b], lambda: b.drops.get(gate.REPLAYED, 0) >= before + 20)
            a.transport.multicast(note(100))
            drive([a, b], lambda: bool(b.heard))
            assert b.heard == [("a", note(100))]
    tap.close()


def test_nobody_can_answer_for_another() -> None:
    """A recorded answer to one challenge does not answer another, nor does one's own come back count."""
    group = group_name()
    tap = Tap(group)
    with ears(Ear("a", group, RING), Ear("c", group, RING)) as (a, c):
        acquaint(a, c)
        a.transport.multicast(note(1))
        recorded = tap.recorded()
        a.transport.close()
        with ears(Ear("b", group, RING)) as (b,):
            for _ in range(3):
                for datagram in recorded:
                    tap.say(datagram)
                    tap.say(datagram, b.port())
                for ear in (b, c):
                    ear.look()
            drive([b, c], lambda: "c" in b.transport.addresses)
            assert "a" not in b.transport.addresses
            assert b.numbers("a") == []
    tap.close()


@KEYS
def test_a_restarted_member_takes_its_name_over(keys: KeyRing | None) -> None:
    group = group_name()
    with ears(Ear("a", group, keys), Ear("b", group, keys)) as (old, b):
        acquaint(old, b)
        with ears(Ear("a", group, keys)) as (new,):
            repeat([new, b], lambda: new.transport.multicast(note(2)), lambda: 2 in b.numbers("a"))
            assert b.transport.addresses["a"][1] == new.port()
            assert new.news.namesakes == []
            b.heard.clear()
            for _ in range(10):
                old.transport.multicast(note(1))
                new.transport.multicast(note(2))
            drive([b], lambda: len(b.heard) >= 10)
            assert set(b.numbers("a")) == {2}
            new.look()
            assert "a" not in new.transport.addresses


@KEYS
def test_a_process_is_refused_as_long_as_another_one_answers_under_its_name(keys: KeyRing | None) -> None:
    group = group_name()
    with ears(*(Ear(site, group, keys) for site in "abc")) as (a, b, c):
        acquaint(a, b, c)
        for ear in (a, b, c):
            ear.transport.take_part()
        with ears(Ear("b", group, keys)) as (late,):
            drive([a, b, c, late], lambda: bool(late.news.namesakes and a.news.refusals))
            assert set(late.news.namesakes) == {f"127.0.0.1:{b.port()}"}
            late.transport.multicast(note(1))
            b.transport.multicast(note(2))
            drive([a, b, c, late], lambda: bool(a.heard and c.heard))
            assert a.numbers("b") == c.numbers("b") == [2]
            assert b.news.namesakes == []
            assert any(site == "b" and str(late.port()) in told for site, told in a.news.refusals)


@KEYS
def test_a_process_that_stood_still_learns_that_another_one_has_its_name(keys: KeyRing | None) -> None:
    group = group_name()
    with ears(*(Ear(site, group, keys) for site in "abc")) as (a, b, c):
        acquaint(a, b, c)
        for ear in (a, b, c):
            ear.transport.take_part()
        with ears(Ear("a", group, keys)) as (new,):
            drive([b, c, new], lambda: all(ear.transport.addresses["a"][1] == new.port() for ear in (b, c)))
            new.transport.take_part()
            repeat([a, b, c, new], lambda: a.transport.multicast(note(1)), lambda: bool(a.news.namesakes))
            assert set(a.news.namesakes) == {f"127.0.0.1:{new.port()}"}
            assert new.news.namesakes == []
            assert b.numbers("a") == c.numbers("a") == []


def test_a_newcomer_knows_whether_it_was_told_to_wait_just_now() -> None:
    with ears(Ear("a", group_name())) as (a,):
        assert not a.transport.is_pending(100)
        a.transport._gate._own.pending_ns = 1000
        for now, pending in ((1000, True), (1099, True), (1100, False)):
            a.transport._gate.now = now
            assert a.transport.is_pending(100) == pending


@KEYS
def test_a_member_that_nobody_has_listed_gets_multicasts_while_it_speaks(keys: KeyRing | None) -> None:
    group, (first, second) = group_name(), [Endpoint("127.0.0.1", free_port()) for _ in range(2)]
    with ears(
        Ear("a", group, keys, Peers((first,), first)), Ear("b", group, keys, Peers((first,), second))
    ) as (a, b):
        acquaint(a, b)
        a.transport.multicast(note(1))
        drive([b], lambda: b.numbers("a") == [1])
        places = a.transport._sockets
        places.destinations = ()
        a.transport._accepted -= 1
        a.transport.multicast(note(2))
        drive([b], lambda: b.numbers("a") == [1, 2])
        heard = a.transport._gate.sites["b"].heard_ns
        a.transport.tick(heard + FAN_OUT_SILENCE_NS - 1)
        assert list(places.destinations) == [second]
        a.transport.tick(heard + FAN_OUT_SILENCE_NS)
        assert list(places.destinations) == []


@KEYS
def test_what_just_fits_a_datagram_goes_as_one(keys: KeyRing | None) -> None:
    group = group_name()
    with ears(Ear("a", group, keys), Ear("b", group, keys)) as (a, b):
        settle(a, b)
        sizes = {}
        for size in range(65_300, 65_507, 4):
            before = a.counters.datagrams_sent, a.counters.bytes_sent
            a.transport.multicast(note(size, size))
            drive([b], lambda size=size: size in b.numbers("a"))  # type: ignore[misc]
            sizes[a.counters.bytes_sent - before[1]] = a.counters.datagrams_sent - before[0]
        assert set(sizes.values()) == {1, 2}
        largest = max(size for size, datagrams in sizes.items() if datagrams == 1)
        assert a.transport.datagram_bytes - 4 < largest <= a.transport.datagram_bytes


def test_network_errors_are_counted_and_not_raised() -> None:
    far = Peers((Endpoint("192.0.2.1", 9),), Endpoint("127.0.0.1", free_port()))
    with ears(Ear("a", group_name(), None, far)) as (a,):
        for number in range(3):
            a.transport.multicast(note(number))
        assert sum(a.drops.values()) == 3
        assert all(reason.startswith("not sent") for reason in a.drops)
    a.transport.multicast(note(9))
    assert a.transport.receive(5) == []


def test_a_transport_keeps_its_codes_to_itself() -> None:
    class Intruder(Pdu, frozen=True):
        code: ClassVar[int] = 2

    with pytest.raises(UsageError, match="the transport's own"):
        Transport(
            site="a",
            group="g",
            codec=Codec([Intruder]),
            network=Loopback(),
            keys=None,
            counters=Counters(),
            host=News(),
        )
    with pytest.raises(UsageError, match="does not fit a PDU"):
        Transport(
            site="", group="g", codec=CODEC, network=Loopback(), keys=None, counters=Counters(), host=News()
        )


def test_counters_never_repeat_under_a_boot() -> None:
    group = group_name()
    tap = Tap(group)
    with ears(*(Ear(site, group, RING) for site in "ab")) as (a, b):
        acquaint(a, b)
        for number in range(50):
            a.transport.multicast(note(number, 10 if number % 10 else 100_000))
        seen: dict[tuple[int, int], bytes] = {}
        for datagram in tap.recorded():
            if datagram[3] != FRAGMENT:
                boot, counter = PREFIX.unpack_from(datagram)[-2:]
                assert seen.setdefault((boot, counter), datagram) == datagram
        assert len(seen) >= 45
    tap.close()


def test_the_kernel_grants_what_it_says() -> None:
    with ears(Ear("a", group_name())) as (a,):
        granted = [
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for sock in a.transport._sockets.receiving
        ]
        assert a.transport.receive_buffer_bytes == min(granted) > 100_000
        assert a.transport.datagram_bytes == 65_507


# The gate under fire


class Target:
    """A member with a friend, and samples of what the friend really says."""

    def __init__(self, keys: KeyRing | None) -> None:
        group = group_name()
        self.tap = Tap(group)
        self.ear, self.friend = Ear("a", group, keys), Ear("b", group, keys)
        settle(self.ear, self.friend)
        self.tap.recorded()
        self.friend.transport.multicast(note(1, 200))
        self.friend.transport.multicast(note(2, 80_000))
        drive([self.ear], lambda: len(self.ear.heard) == 2)
        self.samples = [one for one in self.tap.recorded() if len(one) > HEADER.size]
        self.ear.heard.clear()

    def refuses(self, datagrams: list[bytes]) -> None:
        for datagram in datagrams:
            self.tap.say(datagram)
            self.tap.say(datagram, self.ear.port())
        read = self.ear.counters.datagrams_received
        self.ear.look()
        assert self.ear.heard == []
        assert self.ear.counters.datagrams_received == read + 2 * len(datagrams)
        self.bounded()

    def bounded(self) -> None:
        assert self.ear.transport._gate.sizes() == (1, 0, 0, 0)
        assert not self.ear.transport._fragments.reassembly.has_partials()


@pytest.fixture(scope="module")
def target() -> Target:
    return Target(RING)


@given(st.lists(st.binary(max_size=120), min_size=1, max_size=5))
@settings(max_examples=100)
def test_random_bytes_are_refused(target: Target, datagrams: list[bytes]) -> None:
    target.refuses(datagrams)


@given(st.data())
@settings(max_examples=300)
def test_altered_datagrams_are_refused(target: Target, data: st.DataObject) -> None:
    """Flipped bits, cuts, and what is put together from different datagrams: nothing sealed comes through."""
    sample = bytearray(data.draw(st.sampled_from(target.samples)))
    change = data.draw(st.sampled_from(["flip", "cut", "longer", "splice", "as it is"]))
    if change == "flip":
        bit = data.draw(st.integers(0, min(len(sample), 400) * 8 - 1))
        sample[bit // 8] ^= 1 << bit % 8
    elif change == "cut":
        del sample[data.draw(st.integers(0, min(len(sample) - 1, 300))) :]
    elif change == "longer":
        sample += data.draw(st.binary(min_size=1, max_size=40))
    elif change == "splice":
        other = data.draw(st.sampled_from(target.samples))
        place = data.draw(st.integers(0, PREFIX.size + 8))
        sample = bytearray(other[:place] + bytes(sample[place:]))
    target.refuses([bytes(sample[:65_000])])


HEADS = st.builds(
    PREFIX.pack,
    st.sampled_from([b"An", b"AN"]),
    st.sampled_from([VERSION, VERSION | SEALED, VERSION | SEALED | DIRECT, VERSION + 1, 0xFF]),
    st.integers(0, 255) | st.just(FRAGMENT),
    st.integers(0, 2**32 - 1) | st.integers(0, 300).map(lambda n: n << 16 | 300 - n),
    st.sampled_from([0, 1]),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
)


@given(HEADS, st.binary(max_size=80), st.booleans())
@settings(max_examples=300)
def test_forged_headers_and_fragments_are_refused(
    target: Target, head: bytes, rest: bytes, right: bool
) -> None:
    """Also with the group and the boot copied from honest traffic."""
    if right:
        head = head[:8] + target.samples[0][8:24] + head[24:]
    target.refuses([head + rest])


def test_an_open_group_never_raises_and_hears_only_who_has_proved_itself() -> None:
    target = Target(None)
    for number in range(3 * members.MOST_MEMBERS):
        pdu = CODEC.encode(note(number), target.ear.transport._group, number, 1, f"site{number}")
        target.tap.say(pdu, target.ear.port())
        if number % 50 == 0:
            target.ear.look()
    for number in range(200):
        target.tap.say(CODEC.encode(note(1), target.ear.transport._group, 5000 + number, 1, "b"))
    drive([target.ear], lambda: target.ear.drops.get(challenges.UNPROVEN, 0) > 3 * members.MOST_MEMBERS)
    target.bounded()
    assert target.ear.heard == []


@KEYS
def test_an_exception_of_ours_ends_nothing_and_is_kept(
    keys: KeyRing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ears(*(Ear(site, g, keys) for g in [group_name()] for site in "ab")) as (a, b):
        settle(a, b)

        def fail(*_: object) -> None:
            raise RuntimeError("a fault")

        with monkeypatch.context() as patch:
            patch.setattr(b.transport._gate, "let_in", fail)
            a.transport.multicast(note(1))
            drive([b], lambda: b.drops.get(POISON, 0) == 1)
        a.transport.multicast(note(2))
        drive([b], lambda: bool(b.heard))
        assert b.numbers("a") == [2]
        ((_, sender, _, error, data),) = b.transport._poison.all()
        assert sender == f"127.0.0.1:{a.port()}"
        assert "RuntimeError: a fault" in error
        assert len(data) > HEADER.size


# At the bounds


def test_reading_ends_at_the_limit_also_at_the_second_socket() -> None:
    group = group_name()
    with ears(Ear("a", group), Ear("b", group)) as (a, b):
        settle(a, b)
        b.transport.multicast(note(1))
        b.transport.send("a", note(2))
        drive([], lambda: all(select.select([each], [], [], 0)[0] for each in a.transport.filenos()))
        assert len(a.transport.receive(1)) == 1


def test_echoes_are_awaited_only_of_kinds_that_are_echoed() -> None:
    with ears(Ear("a", group_name())) as (a,):
        a.transport.multicast(note(1))
        assert a.transport._echoes == {}


def test_a_repeated_fragment_is_no_fault_of_ours() -> None:
    group = group_name()
    with ears(Ear("a", group), Ear("b", group)) as (a, b):
        acquaint(a, b)
        data = b.transport._codec.encode(note(1, 1500), group_hash(group), b.transport.boot, 1 << 20, "b")
        heads = cut(data, 600, group_hash(group), b.transport.boot, 1 << 20)
        fragments = [memoryview(head + bytes(body)) for head, body in heads]
        reader, address = a.transport._fragments, b.transport._sockets._sending.getsockname()
        for each in (fragments[0], fragments[0], fragments[1]):
            assert reader.take(each, address, 1) is None
        assert a.drops[NOT_NEW] == 1


def test_fragments_of_the_generations_around_the_newest_are_taken() -> None:
    group = group_name()
    with ears(Ear("a", group, RING), Ear("b", group, RING)) as (a, b):
        acquaint(a, b)
        reader, known = a.transport._fragments, a.transport._gate.sites["b"]
        known.window = ReplayWindow(5 << GENERATION_BITS)
        seals = Seals(RING, group)
        for generation, is_taken in ((3, False), (4, True), (5, True), (6, True), (7, False)):
            counter = generation << GENERATION_BITS
            tokens = seals.own(known.boot, generation).tokens(counter, 2)
            found = reader._tokens_of(known, counter, 2, tokens[:TOKEN_BYTES], 0)
            assert (found == tokens) == is_taken


@pytest.mark.parametrize("bitmap", [b"", b"\x00"])
def test_a_member_that_asks_for_no_fragment_gets_none(bitmap: bytes) -> None:
    with ears(Ear("a", group_name())) as (a,):
        a.transport._repair(KNOWN, Missing(1, bitmap))
        assert a.counters.fragments_resent == 0


def test_a_member_gets_fragments_again_up_to_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    with ears(Ear("a", group_name())) as (a,):
        counter = a.transport.multicast(note(1, 140_000))
        monkeypatch.setattr(transport, "REPAIR_BYTES_PER_MEMBER", 2 * a.transport.datagram_bytes)
        a.transport._repair(KNOWN, Missing(counter, b"\x03"))
        assert a.counters.fragments_resent == 2
        a.transport._repair(KNOWN, Missing(counter, b"\x01"))
        assert a.counters.fragments_resent == 2
        assert a.drops[transport.TOO_MUCH_REPAIR] == 1


@pytest.mark.parametrize(
    ("last", "beyond"),
    [
        pytest.param(Missing(0, b""), Missing(-1, b""), id="a counter"),
        pytest.param(
            Missing(1, bytes(MOST_FRAGMENTS // 8)), Missing(1, bytes(MOST_FRAGMENTS // 8 + 1)), id="a bitmap"
        ),
        pytest.param(Pulse(1, (0,)), Pulse(1, (-1,)), id="a boot"),
        pytest.param(Pulse(1, (1,) * MOST_ASKED), Pulse(1, (1,) * (MOST_ASKED + 1)), id="the boots asked"),
    ],
)
def test_no_field_goes_beyond_its_bounds(last: Pdu, beyond: Pdu) -> None:
    codec = Codec(TRANSPORT_PDUS)
    assert isinstance(codec.decode(codec.encode(last)), Packet)
    assert isinstance(codec.decode(codec.encode(beyond)), Garbage)


def test_only_a_member_that_a_pulse_asks_answers_it() -> None:
    group = group_name()
    with ears(Ear("a", group), Ear("b", group)) as (a, b):
        settle(a, b)
        sent = a.counters.pdus_sent
        b.transport.send("a", Pulse(1, ()))
        b.transport.send("a", note(1))
        drive((a,), lambda: bool(a.heard))
        assert a.counters.pdus_sent == sent
        b.transport.send("a", Pulse(2, (a.transport.boot,)))
        drive((a,), lambda: a.counters.pdus_sent > sent)


def test_a_greeting_is_padded_to_the_size_of_what_it_answers_and_never_beyond() -> None:
    """From 256 bytes on, the length of the padding takes one more byte: one size cannot be met."""
    with ears(Ear("a", group_name())) as (a,):
        framer, found = a.transport._framer, {}
        assert framer.encode(Hello(), 0)
        least = framer.length
        for size in range(least, GREETING_BYTES + 1):
            assert framer.encode(Hello(), size)
            found[size] = framer.length - size
        assert {size - least: found[size] for size in found if found[size]} == {256: -1}


@KEYS
def test_what_is_read_lasts_unless_opening_a_seal_copies_it_anyway(keys: KeyRing | None) -> None:
    group = group_name()
    with ears(Ear("a", group, keys), Ear("b", group, keys)) as (a, b):
        sockets_of_b, views = b.transport._sockets, []
        for number in range(2):
            a.transport.multicast(note(number))
            (receiving, *_), _, _ = select.select(sockets_of_b.receiving, [], [])
            found = sockets_of_b.read(receiving)
            assert found is not None
            views.append(found[0])
        assert (views[0] != views[1]) == sockets_of_b.reads_last == (keys is None)


class Joining:
    """A socket whose kernel says these things beside a datagram."""

    def __init__(self, *ancillary: tuple[int, int, bytes]) -> None:
        self.ancillary = list(ancillary)

    def recvmsg(self, *_sizes: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, Address]:
        return bytes(10), self.ancillary, 0, ("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("level", "kind", "option", "each"),
    [
        (sockets.SOL_UDP, sockets.UDP_GRO, (4).to_bytes(4, sys.byteorder), 4),
        (sockets.SOL_UDP, sockets.UDP_GRO, (10).to_bytes(4, sys.byteorder), 0),
        (sockets.SOL_UDP, sockets.UDP_GRO, b"\x04\x00\x00", 0),
        (sockets.SOL_UDP + 1, sockets.UDP_GRO, (4).to_bytes(4, sys.byteorder), 0),
        (sockets.SOL_UDP, sockets.UDP_GRO + 1, (4).to_bytes(4, sys.byteorder), 0),
    ],
)
def test_datagrams_are_joined_only_if_the_kernel_says_so(
    level: int, kind: int, option: bytes, each: int
) -> None:
    with ears(Ear("a", group_name())) as (a,):
        stub: Any = Joining((level, kind, option))
        found = a.transport._sockets._read_joined(stub)
        assert found is not None
        assert found[1] == each


@pytest.mark.parametrize(
    ("level", "kind", "number", "each", "lost"),
    [
        pytest.param(sockets.SOL_UDP, sockets.UDP_GRO, 4, 4, 0, id="joined"),
        pytest.param(sockets.SOL_UDP, sockets.UDP_GRO, 10, 0, 0, id="one alone"),
        pytest.param(sockets.SOL_UDP + 1, sockets.UDP_GRO, 4, 0, 0, id="of another level"),
        pytest.param(sockets.SOL_UDP, sockets.UDP_GRO + 1, 4, 0, 0, id="of another kind"),
        pytest.param(socket.SOL_SOCKET, sockets.SO_RXQ_OVFL, 9, 0, 2, id="two more dropped"),
        pytest.param(socket.SOL_SOCKET, sockets.SO_RXQ_OVFL, 7, 0, 0, id="no more dropped"),
        pytest.param(socket.SOL_SOCKET, sockets.SO_RXQ_OVFL, 6, 0, (1 << 32) - 1, id="the count wraps"),
        pytest.param(socket.SOL_SOCKET + 1, sockets.SO_RXQ_OVFL, 9, 0, 0, id="a count of another level"),
        pytest.param(socket.SOL_SOCKET, sockets.SO_RXQ_OVFL + 1, 9, 0, 0, id="a count of another kind"),
    ],
)
def test_datagrams_are_joined_or_lost_only_if_the_kernel_says_so(
    level: int, kind: int, number: int, each: int, lost: int
) -> None:
    with ears(Ear("a", group_name())) as (a,):
        stub: Any = Joining((level, kind, number.to_bytes(4, sys.byteorder)))
        a.transport._sockets._overflows[stub] = 7
        found = a.transport._sockets._read_noticing(stub)
        assert found is not None
        assert found[1] == each
        assert a.counters.datagrams_lost == lost
