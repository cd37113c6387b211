"""The sockets of a network: opened, read and written without waiting; errors are counted, never raised.

Everything that a member sends leaves by one socket, so that receivers know where to answer. On networks with
multicast a second socket receives the group. A socket filter in the kernel drops a member's own multicasts.

With notices of losses, each datagram comes with the number of datagrams that the kernel dropped before it
because the receive buffer was full. The kernel also counts what a filter refuses as dropped, so in this case
the filter passes the heads of a member's own multicasts, which also show when each of them passed.

Where the kernel has them, `UDP_SEGMENT` sends all fragments of a PDU in one call and `UDP_GRO` receives them
in one. Both are tried once; a kernel, interface or route that refuses costs a call per datagram.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, TypeAlias

from antiphon.core.errors import MissingRequirementError, UsageError
from antiphon.core.ids import Group
from antiphon.core.wire import PREFIX, Bytes, group_hash
from antiphon.live.counters import Counters
from antiphon.live.networks import (
    LARGEST_DATAGRAM_BYTES,
    ROUTED_DATAGRAM_BYTES,
    SMALLEST_DATAGRAM_BYTES,
    Address,
    Endpoint,
    Loopback,
    Multicast,
    Network,
    Peers,
    literal,
)

Found: TypeAlias = tuple[memoryview, int, Address]

SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
SO_ATTACH_FILTER: Final = 26
SO_RCVBUFFORCE: Final = 33
SO_SNDBUFFORCE: Final = 32
SO_RXQ_OVFL: Final = 40
IP_MTU_DISCOVER: Final = 10
IP_MULTICAST_ALL: Final = 49
IPV6_MTU_DISCOVER: Final = 23
IPV6_MULTICAST_ALL: Final = 29
INTERFACE_ADDRESS: Final = 0x8915
INTERFACE_MTU: Final = 0x8921

MOST_SEGMENTS: Final = 64
MOST_SEGMENTED_BYTES: Final = 65_000
READ_BYTES: Final = 1 << 16
ANCILLARY_BYTES: Final = 2 * socket.CMSG_SPACE(4)
MOST_ADDRESSES: Final = 1024
UDP_HEADER_BYTES: Final = 8
IPV4_OVERHEAD: Final = 28
IPV6_OVERHEAD: Final = 48

UNSENT: Final = {
    errno.EAGAIN: "not sent: the send buffer is full",
    errno.ENOBUFS: "not sent: the interface's queue is full",
    errno.ECONNREFUSED: "not sent: no process listens there",
    errno.EPERM: "not sent: not permitted",
    errno.EACCES: "not sent: not permitted",
    errno.ENETUNREACH: "not sent: unreachable",
    errno.EHOSTUNREACH: "not sent: unreachable",
    errno.ENETDOWN: "not sent: the network is down",
    errno.EMSGSIZE: "not sent: too large for the route",
}
UNSENT_OTHERWISE: Final = "not sent: another error of the network"
UNREAD: Final = "an error of the network while receiving"
OFFLOAD_REFUSED: Final = (errno.EINVAL, errno.EIO, errno.EMSGSIZE, errno.EOPNOTSUPP, errno.ENOPROTOOPT)


@dataclass
class Opened:
    """A network's open sockets."""

    sending: socket.socket
    receiving: tuple[socket.socket, ...]
    destinations: tuple[Address, ...]
    """The destinations of a multicast."""
    datagram_bytes: int
    hops: int | None = None
    """How many links a multicast may cross; None where each destination is an address."""


class Sockets:
    """The open sockets of one member."""

    def __init__(
        self,
        network: Network,
        group: Group,
        boot: int,
        counters: Counters,
        *,
        sealed: bool,
        notice_losses: bool = False,
    ) -> None:
        opened = network.machine.open(group) or open_network(network, group)
        self._buffer = memoryview(bytearray(READ_BYTES))
        self.receiving: Final = opened.receiving
        self.datagram_bytes: Final = opened.datagram_bytes
        self.destinations = opened.destinations
        self._hops = opened.hops
        self._sending = opened.sending
        self._counters = counters
        self._own: dict[Address, bool] = {}
        for each in {self._sending, *self.receiving}:
            each.setblocking(False)
            enlarge_buffers(each, network.buffer_bytes)
        self.notices_losses: Final = notice_losses and all(map(notice_overflow, self.receiving))
        """Whether `datagrams_lost` is counted, up to the last read."""
        for each in {self._sending, *self.receiving}:
            ignore_own(each, boot, keep_head=self.notices_losses)
        self._overflows = dict.fromkeys(self.receiving, 0)
        sizes = [each.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for each in self.receiving]
        self.receive_buffer_bytes: Final = min(sizes)
        # Where datagrams hold a whole PDU, joining has no benefit, and plain reads are faster.
        wanted = network.offload and self.datagram_bytes < LARGEST_DATAGRAM_BYTES
        self.segments = wanted and has_option(self._sending, UDP_SEGMENT)
        joined = [wanted and turn_on(each, UDP_GRO) for each in self.receiving]
        self.reads_last: Final = not sealed
        """Whether each read has memory of its own, which lasts as long as it is referenced."""
        self.read: Callable[[socket.socket], Found | None]
        """Returns the bytes read, the size of each datagram in them (0 if it is one), and the source address.

        Unsealed bodies stay where the kernel has put them as long as they are referenced, so each read has
        memory of its own. Opening a seal copies them anyway; then one buffer, which stays in the processor's
        cache, serves all reads, and its bytes are valid only until the next read.
        """
        if self.notices_losses:
            self.read = self._read_noticing
        elif any(joined):
            self.read = self._read_joined
        else:
            self.read = self._read_again if sealed else self._read_one

    def _read_again(self, sock: socket.socket) -> Found | None:
        try:
            size, address = sock.recvfrom_into(self._buffer)
        except BlockingIOError:
            return None
        except OSError:
            self._counters.drop(UNREAD)
            return None
        return self._buffer[:size], 0, address

    def _read_one(self, sock: socket.socket) -> Found | None:
        try:
            data, address = sock.recvfrom(READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            self._counters.drop(UNREAD)
            return None
        return memoryview(data), 0, address

    def _read_joined(self, sock: socket.socket) -> Found | None:
        """Read where the kernel may join datagrams of one sender."""
        try:
            data, ancillary, _, address = sock.recvmsg(READ_BYTES, ANCILLARY_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            self._counters.drop(UNREAD)
            return None
        for level, kind, option in ancillary:
            if level == SOL_UDP and kind == UDP_GRO and len(option) >= 4:
                each = int.from_bytes(option[:4], sys.byteorder)
                return memoryview(data), each if each < len(data) else 0, address
        return memoryview(data), 0, address

    def _read_noticing(self, sock: socket.socket) -> Found | None:
        """Read where each datagram comes with the number of datagrams dropped before it."""
        try:
            data, ancillary, _, address = sock.recvmsg(READ_BYTES, ANCILLARY_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            self._counters.drop(UNREAD)
            return None
        each = 0
        for level, kind, option in ancillary:
            number = int.from_bytes(option[:4], sys.byteorder)
            if level == SOL_UDP and kind == UDP_GRO:
                each = number if number < len(data) else 0
            elif level == socket.SOL_SOCKET and kind == SO_RXQ_OVFL and number != self._overflows[sock]:
                # The count has 32 bits and wraps around.
                self._counters.datagrams_lost += (number - self._overflows[sock]) & 0xFFFFFFFF
                self._overflows[sock] = number
        return memoryview(data), each, address

    def reach(self, hops: int | None) -> None:
        """Limit how many links later multicasts may cross; None, or more, means the network's limit.

        Where a multicast is sent to one address after another, it always goes to all.
        """
        if self._hops is None:
            return
        links = self._hops if hops is None else max(0, min(hops, self._hops))
        if self._sending.family == socket.AF_INET6:
            self._sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, links)
        else:
            self._sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, links)

    def send(self, data: Bytes, address: Address) -> None:
        """Send one datagram."""
        try:
            self._count(self._sending.sendto(data, address), 1)
        except OSError as error:
            self._fail(error)

    def send_two(self, head: Bytes, body: Bytes, address: Address) -> None:
        """Send one datagram whose bytes lie in two places."""
        try:
            self._count(self._sending.sendmsg((head, body), (), 0, address), 1)
        except OSError as error:
            self._fail(error)

    def send_fragments(self, fragments: Sequence[tuple[Bytes, memoryview]], address: Address) -> None:
        """Send datagrams of one size; the last may be shorter."""
        size = len(fragments[0][0]) + len(fragments[0][1])
        at_once = max(1, min(MOST_SEGMENTS, MOST_SEGMENTED_BYTES // size))
        for begin in range(0, len(fragments), at_once):
            some = fragments[begin : begin + at_once]
            if not (self.segments and len(some) > 1 and self._send_segments(some, size, address)):
                for head, body in some:
                    self.send_two(head, body, address)

    def _send_segments(
        self, fragments: Sequence[tuple[Bytes, memoryview]], size: int, address: Address
    ) -> bool:
        """Send in one call. Returns whether that is possible here."""
        pieces = [piece for fragment in fragments for piece in fragment]
        option = (SOL_UDP, UDP_SEGMENT, struct.pack("=H", size))
        try:
            self._count(self._sending.sendmsg(pieces, (option,), 0, address), len(fragments))
        except OSError as error:
            if error.errno in OFFLOAD_REFUSED:
                self.segments = False
                return False
            self._fail(error)
        return True

    def _count(self, size: int, datagrams: int) -> None:
        self._counters.datagrams_sent += datagrams
        self._counters.bytes_sent += size

    def _fail(self, error: OSError) -> None:
        self._counters.drop(UNSENT.get(error.errno or 0, UNSENT_OTHERWISE))

    @property
    def family(self) -> int:
        return self._sending.family

    def is_own(self, address: Address) -> bool:
        """Whether this member itself listens at an address; cached, since finding out takes system calls."""
        if address not in self._own:
            if len(self._own) >= MOST_ADDRESSES:
                self._own.clear()
            self._own[address] = self._find_own(address)
        return self._own[address]

    def _find_own(self, address: Address) -> bool:
        host, port = self._sending.getsockname()[:2]
        if address[1] != port:
            return False
        if host not in ("0.0.0.0", "::"):
            return bool(address[0] == host)
        try:
            with socket.socket(self._sending.family, socket.SOCK_DGRAM) as probe:
                probe.bind((address[0], 0, *address[2:]))
        except OSError:
            return False
        return True

    def close(self) -> None:
        for each in {self._sending, *self.receiving}:
            each.close()


# Opening


def open_network(network: Network, group: Group) -> Opened:
    """Open the sockets of a network. A socket that cannot be opened raises as the caller's mistake."""
    with contextlib.ExitStack() as opening:
        try:
            if isinstance(network, Loopback):
                opened = _open_loopback(group, opening)
            elif isinstance(network, Multicast):
                opened = (_open_ipv6 if network.ipv6 else _open_ipv4)(network, group, opening)
            else:
                assert isinstance(network, Peers)
                opened = _open_peers(network, opening)
        except OSError as error:
            raise _as_mistake(error) from None
        opening.pop_all()
    return opened


def _as_mistake(error: OSError) -> UsageError | MissingRequirementError:
    if error.errno == errno.EAFNOSUPPORT:
        return MissingRequirementError("This machine has no IPv6.", hint="Use IPv4 addresses.")
    hint = None
    if error.errno == errno.EADDRINUSE:
        hint = "Another process listens there; choose another port."
    if error.errno == errno.EADDRNOTAVAIL:
        hint = "That address is not one of this machine's."
    return UsageError(f"The network cannot be opened: {error.strerror or error}.", hint)


def _made(family: int, opening: contextlib.ExitStack) -> socket.socket:
    return opening.enter_context(socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC))


def derived_endpoint(group: Group, *, ipv6: bool = False, wide: bool = False) -> Endpoint:
    """The multicast address of a group by its name: a private address and a quiet port."""
    number = group_hash(group)
    port = 10_000 + number % 20_000
    if ipv6:
        words = ":".join(f"{number >> shift & 0xFFFF:x}" for shift in (48, 32, 16, 0))
        return Endpoint(f"{'ff05' if wide else 'ff02'}::{words}", port)
    # 239.192.0.0/14 is for use within an organisation (RFC 2365).
    low = number >> 20 & 0x3FFFF
    return Endpoint(f"239.{192 + (low >> 16)}.{low >> 8 & 0xFF}.{low & 0xFF}", port)


def _open_loopback(group: Group, opening: contextlib.ExitStack) -> Opened:
    return _ipv4_pair(derived_endpoint(group), "127.0.0.1", 0, 1, LARGEST_DATAGRAM_BYTES, opening)


def _open_ipv4(network: Multicast, group: Group, opening: contextlib.ExitStack) -> Opened:
    index = interface_index(network.interface)
    own = interface_address(network.interface)
    largest = interface_mtu(network.interface) - IPV4_OVERHEAD
    where = network.group or derived_endpoint(group)
    return _ipv4_pair(where, own, index, network.ttl, largest, opening)


def _ipv4_pair(
    where: Endpoint, own: str, index: int, ttl: int, largest: int, opening: contextlib.ExitStack
) -> Opened:
    member = struct.pack("=4s4si", socket.inet_aton(where.host), socket.inet_aton(own), index)
    hearing = _made(socket.AF_INET, opening)
    hearing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    hearing.bind(where)
    hearing.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    with contextlib.suppress(OSError):
        hearing.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
    sending = _made(socket.AF_INET, opening)
    sending.bind((own, 0))
    sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, member)
    sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
    sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    return Opened(sending, (sending, hearing), ((where.host, where.port),), clamped(largest), ttl)


def _open_ipv6(network: Multicast, group: Group, opening: contextlib.ExitStack) -> Opened:
    index = interface_index(network.interface)
    where = network.group or derived_endpoint(group, ipv6=True, wide=network.ttl > 1)
    hearing = _made(socket.AF_INET6, opening)
    hearing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    hearing.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    hearing.bind((where.host, where.port, 0, index))
    member = struct.pack("=16sI", socket.inet_pton(socket.AF_INET6, where.host), index)
    hearing.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
    with contextlib.suppress(OSError):
        hearing.setsockopt(socket.IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0)
    sending = _made(socket.AF_INET6, opening)
    sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sending.bind(("::1" if network.is_loopback else "::", 0))
    sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, network.ttl)
    sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
    largest = clamped(interface_mtu(network.interface) - IPV6_OVERHEAD)
    return Opened(sending, (sending, hearing), ((where.host, where.port, 0, index),), largest, network.ttl)


def _open_peers(network: Peers, opening: contextlib.ExitStack) -> Opened:
    listen = network.listen or Endpoint(_everywhere(network.peers), network.peers[0].port)
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    both = _made(family, opening)
    if family == socket.AF_INET6:
        both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        both.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, 0)
    else:
        both.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, 0)
    both.bind(listen)
    largest = LARGEST_DATAGRAM_BYTES if network.is_loopback else ROUTED_DATAGRAM_BYTES
    addresses = [static_address(peer, family) for peer in network.peers if literal(peer.host) is not None]
    return Opened(both, (both,), tuple(addresses), network.datagram_bytes or largest)


def _everywhere(peers: Sequence[Endpoint]) -> str:
    """IPv4 alone if all peers are given so; otherwise both families, where the machine has both."""
    addresses = [literal(peer.host) for peer in peers]
    if all(address is not None and address.version == 4 for address in addresses):
        return "0.0.0.0"
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


def static_address(peer: Endpoint, family: int) -> Address:
    """The socket address of a peer that is given by its address."""
    address = literal(peer.host)
    assert address is not None
    if family == socket.AF_INET:
        if address.version == 6:
            raise UsageError(
                f"The peer {peer} cannot be reached from an IPv4 address.", hint="Listen on [::]:PORT."
            )
        return str(address), peer.port
    mapped = f"::ffff:{address}" if address.version == 4 else str(address)
    return mapped, peer.port, 0, _scope_of(address)


def _scope_of(address: IPv4Address | IPv6Address) -> int:
    """The index of the interface that a link-local address names, as in fe80::1%eth0; 0 if it names none."""
    scope = address.scope_id if isinstance(address, IPv6Address) else None
    if scope is None:
        return 0
    return int(scope) if scope.isdecimal() else interface_index(scope)


def clamped(size: int) -> int:
    return max(SMALLEST_DATAGRAM_BYTES, min(LARGEST_DATAGRAM_BYTES, size))


# Socket options


def interface_index(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except (OSError, ValueError):
        there = ", ".join(each for _, each in socket.if_nameindex())
        raise UsageError(f"There is no interface '{name}'.", hint=f"There are: {there}.") from None


def interface_address(name: str) -> str:
    try:
        return socket.inet_ntoa(_ask_interface(name, INTERFACE_ADDRESS)[20:24])
    except OSError:
        raise UsageError(
            f"The interface '{name}' has no IPv4 address.", hint=f"For IPv6: multicast:{name},ipv6"
        ) from None


def interface_mtu(name: str) -> int:
    (mtu,) = struct.unpack("=i", _ask_interface(name, INTERFACE_MTU)[16:20])
    return int(mtu)


def _ask_interface(name: str, question: int) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return fcntl.ioctl(sock.fileno(), question, struct.pack("16s240x", os.fsencode(name)))


def enlarge_buffers(sock: socket.socket, size: int) -> None:
    """Ask for large buffers; beyond the system's limit only privileged processes get them."""
    for forced, plain in ((SO_RCVBUFFORCE, socket.SO_RCVBUF), (SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, size)
        except OSError:
            sock.setsockopt(socket.SOL_SOCKET, plain, size)


def has_option(sock: socket.socket, option: int) -> bool:
    try:
        sock.getsockopt(SOL_UDP, option)
    except OSError:
        return False
    return True


def turn_on(sock: socket.socket, option: int) -> bool:
    try:
        sock.setsockopt(SOL_UDP, option, 1)
    except OSError:
        return False
    return True


def notice_overflow(sock: socket.socket) -> bool:
    """Ask for the number of dropped datagrams with each datagram. Returns whether the kernel gives it."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
    except OSError:
        return False
    return True


def ignore_own(sock: socket.socket, boot: int, *, keep_head: bool = False) -> None:
    """Let the kernel drop datagrams with our own boot; otherwise we drop them, at a higher cost.

    With `keep_head` it passes their heads, so that they do not count as dropped.
    """
    offset = UDP_HEADER_BYTES + PREFIX.size - 16  # behind UDP's own header; boot and counter end the prefix
    program: list[tuple[int, int, int, int]] = [
        (0x80, 0, 0, 0),  # length
        (0x35, 0, 4, offset + 8),  # too short to judge: keep
        (0x20, 0, 0, offset),  # the boot's high half
        (0x15, 0, 2, boot >> 32),
        (0x20, 0, 0, offset + 4),  # and its low half
        (0x15, 1, 0, boot & 0xFFFFFFFF),
        (0x06, 0, 0, 0xFFFFFFFF),  # keep
        (0x06, 0, 0, UDP_HEADER_BYTES + PREFIX.size if keep_head else 0),  # cut it, or drop it
    ]
    code: Any = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    with contextlib.suppress(OSError):
        described = struct.pack("HP", len(program), ctypes.addressof(code))
        sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)
