"""Networks: what their texts mean, and members that meet on each of them."""

import itertools
import socket
import threading
from collections.abc import Iterator

import pytest

from antiphon.core.errors import UsageError
from antiphon.live import networks, sockets, transport
from antiphon.live.fragments import MISSING, cut
from antiphon.live.keys import KeyRing
from antiphon.live.networks import (
    Address,
    Endpoint,
    Loopback,
    Multicast,
    Network,
    Peers,
    parse_network,
    require_key,
)
from antiphon.live.resolving import EVERY_NS, Resolving
from antiphon.live.sockets import clamped, derived_endpoint
from antiphon.live.transport import REPAIR_BYTES_PER_MEMBER, TOO_MUCH_REPAIR, Missing
from tests.live.hosts import Hosts, skip_unless_allowed
from tests.live.pairs import (
    RING,
    Ear,
    acquaint,
    drive,
    ears,
    free_port,
    group_name,
    inside,
    note,
    repeat,
    settle,
)

KEYS = pytest.mark.parametrize("keys", [None, RING], ids=["open", "sealed"])
HOME = Endpoint("127.0.0.1", 7400)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("loopback", Loopback()),
        ("multicast:eth0", Multicast("eth0")),
        ("multicast:eth0,239.1.2.3:7400", Multicast("eth0", Endpoint("239.1.2.3", 7400))),
        ("multicast:eth0, ttl=4, ipv6", Multicast("eth0", None, 4, True)),
        ("multicast:eth0,[ff15::7]:7400", Multicast("eth0", Endpoint("ff15::7", 7400), ipv6=True)),
        ("peers:a:7400,b:7400", Peers((Endpoint("a", 7400), Endpoint("b", 7400)))),
        ("peers:[::1]:7400,listen=[::1]:7401", Peers((Endpoint("::1", 7400),), Endpoint("::1", 7401))),
        ("peers:listen=127.0.0.1:7400,x.org:1", Peers((Endpoint("x.org", 1),), HOME)),
    ],
)
def test_a_text_means_a_network(text: str, expected: Network) -> None:
    assert parse_network(text) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "There is no network ''"),
        ("lopback", "There is no network 'lopback'"),
        ("loopback:eth0", "There is no network"),
        ("multicast", "There is no network"),
        ("multicast:", "There is no network"),
        ("multicast:eth0,10.0.0.1:7400", "no multicast address"),
        ("multicast:eth0,somewhere:7400", "no multicast address"),
        ("multicast:eth0,239.1.2.3", "no host and port"),
        ("multicast:eth0,239.1.2.3:7400,ipv6", "no IPv6 address"),
        ("multicast:eth0,239.1.2.3:7400,239.1.2.4:7400", "cannot use"),
        ("multicast:eth0,ttl=999", "no number from 0 to 255"),
        ("multicast:eth0,ttl=" + "9" * 5000, "no number from 0 to 255"),
        ("multicast:lo,ipv6", "no IPv6 multicast"),
        ("peers:", "There is no network"),
        ("peers:listen=0.0.0.0:7400", "Unicast to which peers?"),
        ("peers:a:7400,b:7401", "different ports"),
        ("peers:a", "no host and port"),
        ("peers:a:0", "no number"),
        ("peers:a:70000", "no number"),
        ("peers:a:-1", "no number"),
        ("peers:::1:7400", "no host and port"),
        ("peers:a:7400,listen=b:7400", "no address to listen on"),
        ("peers:a:7400,listen=1.2.3.4:1,listen=1.2.3.4:2", "one address"),
    ],
)
def test_a_text_that_means_nothing_is_told(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence.replace("?", r"\?")):
        parse_network(text)


@pytest.mark.parametrize("size", [1, 65_508])
def test_a_datagram_has_a_possible_size(size: int) -> None:
    with pytest.raises(UsageError, match="cannot be used"):
        Peers((HOME,), datagram_bytes=size)


@pytest.mark.parametrize(
    ("network", "needed"),
    [
        (Loopback(), False),
        (Multicast("lo"), False),
        (Multicast("eth0"), True),
        (Peers((HOME,)), True),
        (Peers((HOME,), Endpoint("0.0.0.0", 7400)), True),
        (Peers((HOME,), HOME), False),
        (Peers((HOME,), Endpoint("::1", 7400)), False),
        (Peers((Endpoint("a", 7400),), Endpoint("10.0.0.1", 7400)), True),
    ],
)
def test_beyond_loopback_a_key_is_needed_unless_it_is_said_not_to_be(network: Network, needed: bool) -> None:
    require_key(network, RING, insecure=False)
    require_key(network, None, insecure=True)
    if needed:
        with pytest.raises(UsageError, match="needs a key") as caught:
            require_key(network, None, insecure=False)
        assert "antiphon keygen" in (caught.value.hint or "")
    else:
        require_key(network, None, insecure=False)


def test_groups_meet_at_places_of_their_own() -> None:
    places = {derived_endpoint(f"group {number}") for number in range(1000)}
    assert len({place.host for place in places}) > 990
    assert all(place.host.split(".")[0] == "239" and 10_000 <= place.port < 30_000 for place in places)
    assert derived_endpoint("g") == derived_endpoint("g")
    for wide, scope in ((False, "ff02:"), (True, "ff05:")):
        place = derived_endpoint("g", ipv6=True, wide=wide)
        assert place.host.startswith(scope)
        assert socket.inet_pton(socket.AF_INET6, place.host)


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (Multicast("none0"), "There is no interface 'none0'"),
        (Peers((HOME,), Endpoint("192.0.2.9", 7400)), "cannot be opened"),
        (Peers((Endpoint("::1", 1),), Endpoint("127.0.0.1", 1)), "cannot be reached from an IPv4 address"),
    ],
)
def test_what_cannot_be_opened_is_told(network: Network, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Ear("a", group_name(), None, network)


def test_a_port_that_is_taken_is_told() -> None:
    port = free_port()
    network = Peers((Endpoint("127.0.0.1", port),), Endpoint("127.0.0.1", port))
    with ears(Ear("a", group_name(), None, network)), pytest.raises(UsageError, match="in use") as caught:
        Ear("b", group_name(), None, network)
    assert "another port" in (caught.value.hint or "")


def converse(*listeners: Ear) -> None:
    """Everyone hears what everyone else says, small and large, by multicast and by unicast."""
    acquaint(*listeners)
    for ear in listeners:
        ear.heard.clear()
        ear.transport.multicast(note(1))
        ear.transport.multicast(note(2, 60_000))
        for other in listeners:
            if other is not ear:
                ear.transport.send(other.site, note(3, 30_000))
    pairs = list(itertools.permutations(listeners, 2))
    drive(listeners, lambda: all(sorted(to.numbers(by.site)) == [1, 2, 3] for by, to in pairs))
    for by, to in pairs:
        sizes = {1: 10, 2: 60_000, 3: 30_000}
        said = [pdu for site, pdu in to.heard if site == by.site]
        assert all(pdu == note(number, sizes[number]) for pdu in said for number in [pdu.number])  # type: ignore[attr-defined]


def peers_on(host: str, count: int, **options: int | bool) -> list[Peers]:
    places = [Endpoint(host, free_port()) for _ in range(count)]
    return [Peers(tuple(places), place, **options) for place in places]  # type: ignore[arg-type]


@KEYS
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_peers_meet_by_unicast_though_each_is_in_its_own_list(keys: KeyRing | None, host: str) -> None:
    if host == "::1" and not has_ipv6_loopback():
        pytest.skip("There is no IPv6 loopback address here.")
    group = group_name()
    places = peers_on(host, 3)
    with ears(*(Ear("abc"[n], group, keys, places[n]) for n in range(3))) as members:
        converse(*members)
        assert all(len(ear.transport._sockets.destinations) == 2 for ear in members)
        assert members[0].transport.datagram_bytes == networks.LARGEST_DATAGRAM_BYTES


def has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@KEYS
def test_a_member_that_nobody_has_listed_is_learned(keys: KeyRing | None) -> None:
    group, (first, second, third) = group_name(), [Endpoint("127.0.0.1", free_port()) for _ in range(3)]
    with ears(
        Ear("a", group, keys, Peers((first,), first)),
        Ear("b", group, keys, Peers((first,), second)),
        Ear("c", group, keys, Peers((first, second), third)),
    ) as members:
        converse(*members)


@KEYS
@pytest.mark.parametrize("offload", [True, False], ids=["offload", "plain"])
def test_fragments_go_by_one_call_where_the_kernel_can(keys: KeyRing | None, offload: bool) -> None:
    if offload and not kernel_has_offload():
        pytest.skip("The kernel has no segmentation offload for UDP.")
    group = group_name()
    places = peers_on("127.0.0.1", 2, datagram_bytes=1472, offload=offload)
    with ears(*(Ear("ab"[n], group, keys, places[n]) for n in range(2))) as (a, b):
        converse(a, b)
        settle(a, b)
        reads = count_reads(b)
        before = b.counters.datagrams_received
        a.transport.multicast(note(9, 60_000))
        drive([a, b], lambda: 9 in b.numbers("a"))
        assert b.counters.datagrams_received - before == 42
        assert (len(reads) < 5) == offload


def kernel_has_offload() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return sockets.has_option(probe, sockets.UDP_SEGMENT) and sockets.turn_on(probe, sockets.UDP_GRO)


def count_reads(ear: Ear) -> list[int]:
    """How many bytes each read brings, from now on."""
    reads: list[int] = []
    inner = ear.transport._sockets.read

    def counting(sock: socket.socket) -> sockets.Found | None:
        found = inner(sock)
        if found is not None:
            reads.append(len(found[0]))
        return found

    ear.transport._sockets.read = counting
    return reads


def test_only_so_much_is_sent_again_between_two_ticks() -> None:
    group, places = group_name(), peers_on("127.0.0.1", 2, datagram_bytes=1472)
    with ears(*(Ear("ab"[n], group, RING, places[n]) for n in range(2))) as (a, b):
        settle(a, b)
        a.transport.multicast(note(1, 60_000))
        counter = a.transport._framer.counter
        drive([b], lambda: bool(b.heard))
        before = a.counters.datagrams_sent
        for _ in range(50):
            b.transport.send("a", Missing(counter, b"\xff" * 80))
        b.transport.send("a", Missing(counter + 1, b"\xff"))
        b.transport.send("a", Missing(counter, b""))
        assert a.transport.receive(1000) == []
        times = REPAIR_BYTES_PER_MEMBER // (42 * 1472)
        assert a.counters.datagrams_sent - before == a.counters.fragments_resent == 42 * times
        assert a.drops[TOO_MUCH_REPAIR] == 50 - times
        assert b.transport.receive(1000) == []
        assert a.transport.is_unfinished
        a.look()
        b.transport.send("a", Missing(counter, b"\x01"))
        assert a.transport.receive(1000) == []
        assert a.counters.fragments_resent == 42 * times + 1


def test_all_members_together_get_only_so_much_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "REPAIR_BYTES_PER_TICK", 3 * 1472)
    group, places = group_name(), peers_on("127.0.0.1", 3, datagram_bytes=1472)
    with ears(*(Ear("abc"[n], group, RING, places[n]) for n in range(3))) as (a, b, c):
        settle(a, b, c)
        a.transport.multicast(note(1, 60_000))
        a.transport.tick(a.transport._now)
        for ear, bitmap in ((b, b"\x03"), (c, b"\x03"), (c, b"\x01")):
            ear.transport.send("a", Missing(a.transport._framer.counter, bitmap))
        assert a.transport.receive(1000) == []
        assert a.counters.fragments_resent == 3
        assert a.drops[TOO_MUCH_REPAIR] == 1


def test_what_waits_for_the_next_tick_is_told() -> None:
    group, places = group_name(), peers_on("127.0.0.1", 2, datagram_bytes=1472)
    with ears(*(Ear("ab"[n], group, None, places[n]) for n in range(2))) as (a, b):
        assert a.transport.is_unfinished, "it has not greeted yet"
        settle(a, b)
        begun, *_ = cut(bytes(10_000), 1472, a.transport._group, a.transport.boot, 10**6)
        a.transport._sockets.send_two(*begun, a.transport.addresses["b"])
        b.take(64)
        assert b.transport.is_unfinished, "one fragment of several has come"
        drive([a, b], lambda: not b.transport.is_unfinished)
        assert b.drops[MISSING] == 1


def test_a_kernel_that_refuses_offload_costs_calls_and_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    group, places = group_name(), peers_on("127.0.0.1", 2, datagram_bytes=1472)
    # An option that no kernel has is refused as one that this kernel lacks would be.
    monkeypatch.setattr(sockets, "UDP_SEGMENT", 9999)
    with ears(*(Ear("ab"[n], group, None, places[n]) for n in range(2))) as (a, b):
        a.transport._sockets.segments = b.transport._sockets.segments = True
        converse(a, b)
        assert not a.transport._sockets.segments


# Names


class Names:
    """A name server whose answers the test sets."""

    def __init__(self, *addresses: Address) -> None:
        self.addresses = list(addresses)
        self.asked: list[tuple[str, int, int]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def look_up(self, host: str, port: int, family: int) -> list[Address]:
        self.asked.append((host, port, family))
        self.may_answer.wait()
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "nobody")
        return list(self.addresses)


@KEYS
def test_a_name_may_stand_for_many_peers(keys: KeyRing | None) -> None:
    group, places = group_name(), [Endpoint("127.0.0.1", free_port()) for _ in range(3)]
    names = Names(*places)
    name = (Endpoint("members.test", 1),)
    with ears(
        *(Ear("abc"[n], group, keys, Peers(name, places[n], resolve=names.look_up)) for n in range(3))
    ) as members:
        converse(*members)
    assert ("members.test", 1, socket.AF_INET) in names.asked


def looked_up(resolving: Resolving) -> None:
    assert resolving._thread is not None
    resolving._thread.join(10)


def ports(resolving: Resolving) -> list[int]:
    return [address[1] for address in resolving.addresses]


def test_names_are_looked_up_again_without_making_anyone_wait() -> None:
    names = Names(("127.0.0.1", 1))
    network = Peers((Endpoint("members.test", 1), HOME), HOME, resolve=names.look_up)
    resolving = Resolving(network, socket.AF_INET)
    looked_up(resolving)
    assert ports(resolving) == [1]
    names.addresses, now = [("127.0.0.1", 2), ("127.0.0.1", 3)], 5
    resolving.tick(now)
    resolving.tick(now + EVERY_NS - 1)
    assert len(names.asked) == 1
    names.may_answer.clear()
    for _ in range(3):
        now += EVERY_NS
        resolving.tick(now)
    assert len(names.asked) == 2, "one question at a time"
    assert ports(resolving) == [1]
    names.may_answer.set()
    looked_up(resolving)
    assert ports(resolving) == [2, 3]
    names.addresses = []
    resolving.tick(now + EVERY_NS)
    looked_up(resolving)
    assert ports(resolving) == [2, 3], "the last ones known"


def test_a_peer_whose_name_cannot_be_found_is_told() -> None:
    names, home = Names(), Endpoint("127.0.0.1", free_port())
    network = Peers((Endpoint("mistyped.test", 1), home), home, resolve=names.look_up)
    with ears(Ear("a", group_name(), None, network)) as (a,):
        drive([a], lambda: bool(a.news.refusals))
        told = "The address of the peer mistyped.test:1 cannot be found: is its name right, and is it up?"
        assert a.news.refusals == [("a", told)]


def test_the_system_s_names_are_used_by_default() -> None:
    assert ("127.0.0.1", 7400) in networks.look_up("localhost", 7400, socket.AF_INET)


# Multicast


@KEYS
def test_multicast_on_the_loopback_interface(keys: KeyRing | None) -> None:
    group = group_name()
    with ears(*(Ear(site, group, keys, Multicast("lo")) for site in "abc")) as members:
        converse(*members)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    skip_unless_allowed()
    with Hosts(2) as made:
        yield made


@pytest.mark.live
@pytest.mark.parametrize(
    "network", ["multicast:eth0", "multicast:eth0,ipv6", "multicast:eth0,[ff05::7]:7400,ttl=2"]
)
def test_multicast_between_hosts(hosts: Hosts, network: str) -> None:
    group, place = group_name(), parse_network(network)
    made = [inside(hosts, n, lambda n=n: Ear("ab"[n], group, RING, place)) for n in (0, 1)]  # type: ignore[misc]
    with ears(*made) as (a, b):
        converse(a, b)
        assert a.transport.datagram_bytes == clamped(1500 - (48 if place.ipv6 else 28))  # type: ignore[attr-defined]
        assert b.counters.reassembled > 0


@pytest.mark.live
def test_members_of_one_host_and_of_another_meet(hosts: Hosts) -> None:
    group, place = group_name(), parse_network("multicast:eth0,ipv6")
    sites = ((0, "a"), (0, "b"), (1, "c"))
    made = [inside(hosts, host, lambda site=site: Ear(site, group, RING, place)) for host, site in sites]  # type: ignore[misc]
    with ears(*made) as members:
        converse(*members)


@pytest.mark.live
def test_peers_between_hosts_of_both_kinds_of_address(hosts: Hosts) -> None:
    group = group_name()
    place = parse_network(f"peers:{hosts.address(0)}:7400,[{hosts.address6(1)}]:7400")
    made = [inside(hosts, n, lambda n=n: Ear("ab"[n], group, RING, place)) for n in (0, 1)]  # type: ignore[misc]
    with ears(*made) as (a, b):
        converse(a, b)
        assert a.transport.datagram_bytes == networks.ROUTED_DATAGRAM_BYTES


@pytest.mark.live
@pytest.mark.parametrize("offload", [True, False], ids=["offload", "plain"])
def test_large_pdus_arrive_whole_though_every_fifth_datagram_is_lost(hosts: Hosts, offload: bool) -> None:
    """Of 42 fragments all arrive once in ten thousand times: these PDUs are sent once and repaired."""
    group, place = group_name(), Multicast("eth0", offload=offload)
    made = [inside(hosts, n, lambda n=n: Ear("ab"[n], group, RING, place)) for n in (0, 1)]  # type: ignore[misc]
    with ears(*made) as (a, b):
        acquaint(a, b)
        hosts.weather.trouble(loss=0.2)
        numbers = range(100, 130)
        for number in numbers:
            drive([a, b], a.transport.is_clear)
            a.transport.multicast(note(number, 60_000))
        drive([a, b], lambda: set(b.numbers("a")) == set(numbers))
        assert b.counters.fragments_requested > 100
        assert len(b.heard) == len(numbers)
        assert not b.transport._fragments.reassembly.has_partials()
        hosts.weather.heal()
        repeat([a, b], lambda: a.transport.multicast(note(1)), lambda: 1 in b.numbers("a"))
