"""Which network a group lives on: loopback, multicast on an interface, or unicast to peers.

A network is plain data; `sockets` opens it. `parse_network` reads the forms of the command line:

    loopback
    multicast:eth0
    multicast:eth0,239.1.2.3:7400,ttl=4
    multicast:eth0,ipv6
    multicast:eth0,[ff15::7]:7400
    peers:alpha:7400,beta:7400
    peers:members.example.org:7400,listen=0.0.0.0:7400
    peers:127.0.0.1:7401,127.0.0.1:7402,listen=127.0.0.1:7401
"""

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from antiphon.core.errors import UsageError
from antiphon.live.keys import KeyFile, KeyRing
from antiphon.live.machine import REAL, Machine

Address: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
"""As the socket module has it: host and port, in IPv6 followed by flow and scope."""

LARGEST_DATAGRAM_BYTES: Final = 65_507
SMALLEST_DATAGRAM_BYTES: Final = 576
ROUTED_DATAGRAM_BYTES: Final = 1_400
"""What goes unfragmented through most tunnels, too."""
BUFFER_BYTES: Final = 8 << 20
FORMS: Final = "loopback, multicast:INTERFACE, multicast:INTERFACE,ADDRESS:PORT, peers:HOST:PORT,HOST:PORT"


class Endpoint(NamedTuple):
    """A host, by name or address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Network:
    """What all networks have."""

    buffer_bytes: int = BUFFER_BYTES
    """Kernel memory asked for each socket's buffer. Raising it costs that memory when a member lags."""
    offload: bool = True
    """Let the kernel cut and join fragments where it can."""
    machine: Machine = field(default=REAL, compare=False, repr=False)
    """The machine that members run on."""

    @property
    def is_loopback(self) -> bool:
        """Whether nothing leaves this machine, and nothing from elsewhere arrives."""
        raise NotImplementedError


@dataclass(frozen=True)
class Loopback(Network):
    """Members on one machine: multicast on the loopback interface; the group's name gives address and
    port."""

    @property
    def is_loopback(self) -> bool:
        return True


@dataclass(frozen=True)
class Multicast(Network):
    """Multicast on an interface; without an address, the group's name gives address and port."""

    interface: str
    group: Endpoint | None = None
    ttl: int = 1
    """Routers that a datagram may pass, plus one. Raising it costs traffic further away."""
    ipv6: bool = False

    def __post_init__(self) -> None:
        if not self.interface:
            raise UsageError("Multicast on which interface?", hint="For example: multicast:eth0")
        if not 0 <= self.ttl <= 255:
            raise UsageError(f"A time to live is from 0 to 255, not {self.ttl}.")
        if self.group is not None:
            address = literal(self.group.host)
            if address is None or not address.is_multicast:
                raise UsageError(
                    f"{self.group.host} is no multicast address.",
                    hint="Take one from 239.0.0.0/8, or ff02::/16 and ff05::/16 in IPv6.",
                )
            if address.version == 6 and not self.ipv6:
                object.__setattr__(self, "ipv6", True)
            if address.version == 4 and self.ipv6:
                raise UsageError(f"{self.group.host} is no IPv6 address.")
        if self.ipv6 and self.is_loopback:
            raise UsageError(
                "The loopback interface has no IPv6 multicast.", hint="Use the network 'loopback'."
            )

    @property
    def is_loopback(self) -> bool:
        return self.interface == "lo"


def look_up(host: str, port: int, family: int) -> list[Address]:
    """Every address of a name, as a socket of that family can use it."""
    flags = socket.AI_V4MAPPED | socket.AI_ALL if family == socket.AF_INET6 else 0
    found = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM, flags=flags)
    return [address for *_, address in found]  # type: ignore[misc]


Resolver: TypeAlias = Callable[[str, int, int], list[Address]]


@dataclass(frozen=True)
class Peers(Network):
    """Unicast to every peer where there is no multicast. A name may stand for many peers; our own is
    skipped."""

    peers: tuple[Endpoint, ...]
    listen: Endpoint | None = None
    """Where this member listens; by default on all addresses, on the port that all peers share."""
    datagram_bytes: int | None = None
    """The largest datagram; by default what every route carries, or on loopback all that UDP can."""
    resolve: Resolver = field(default=look_up, compare=False)

    def __post_init__(self) -> None:
        if not self.peers:
            raise UsageError("Unicast to which peers?", hint="For example: peers:alpha:7400,beta:7400")
        if self.listen is None:
            ports = {peer.port for peer in self.peers}
            if len(ports) > 1:
                raise UsageError(
                    "The peers have different ports, so it is not clear where this member listens.",
                    hint=f"Say it: listen={self.peers[0]}",
                )
        elif literal(self.listen.host) is None:
            raise UsageError(f"{self.listen.host} is no address to listen on.", hint="Give an IP address.")
        size = self.datagram_bytes
        if size is not None and not SMALLEST_DATAGRAM_BYTES <= size <= LARGEST_DATAGRAM_BYTES:
            raise UsageError(
                f"A datagram of {size} bytes cannot be used.",
                hint=f"Take {SMALLEST_DATAGRAM_BYTES} to {LARGEST_DATAGRAM_BYTES}.",
            )

    @property
    def is_loopback(self) -> bool:
        """Peers elsewhere cannot reach a member that listens on a loopback address, nor be reached from
        it."""
        address = literal(self.listen.host) if self.listen is not None else None
        return address is not None and address.is_loopback


def literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is written as, or None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def require_key(network: Network, keys: KeyRing | KeyFile | None, *, insecure: bool) -> None:
    """Beyond loopback any process may listen and send: a group has a key unless `insecure` says otherwise."""
    if keys is None and not insecure and not network.is_loopback:
        raise UsageError(
            "A group beyond this machine needs a key.",
            hint="Make one with 'antiphon keygen FILE' for --key FILE; --insecure does without.",
        )


def parse_network(text: str) -> Network:
    """The network that a text on the command line means."""
    kind, _, rest = text.partition(":")
    words = [word.strip() for word in rest.split(",") if word.strip()]
    if kind == "loopback" and not words:
        return Loopback()
    if kind == "multicast" and words:
        return _parse_multicast(words)
    if kind == "peers" and words:
        return _parse_peers(words)
    raise UsageError(f"There is no network '{text}'.", hint=f"There are: {FORMS}.")


def _parse_multicast(words: list[str]) -> Multicast:
    group, ttl, ipv6 = None, 1, False
    for word in words[1:]:
        if word == "ipv6":
            ipv6 = True
        elif word.startswith("ttl="):
            ttl = _number(word.removeprefix("ttl="), 0, 255)
        elif group is None:
            group = parse_endpoint(word)
        else:
            raise UsageError(f"Multicast cannot use '{word}'.", hint="multicast:INTERFACE,ADDRESS:PORT,ttl=N")
    return Multicast(words[0], group, ttl, ipv6)


def _parse_peers(words: list[str]) -> Peers:
    listens = [word.removeprefix("listen=") for word in words if word.startswith("listen=")]
    if len(listens) > 1:
        raise UsageError("A member listens at one address.")
    peers = tuple(parse_endpoint(word) for word in words if not word.startswith("listen="))
    return Peers(peers, parse_endpoint(listens[0]) if listens else None)


def parse_endpoint(text: str) -> Endpoint:
    """host:port, or [address]:port for IPv6.

    >>> parse_endpoint("[::1]:7400")
    Endpoint(host='::1', port=7400)
    """
    host, colon, port = text.rpartition(":")
    bracketed = host[:1] + host[-1:] == "[]"
    if not colon or not host or (":" in host and not bracketed):
        raise UsageError(f"'{text}' is no host and port.", hint="For example: alpha:7400 or [::1]:7400")
    return Endpoint(host[1:-1] if bracketed else host, _number(port, 1, 65_535))


def _number(text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or not least <= int(text) <= most:
        raise UsageError(f"'{text}' is no number from {least} to {most}.")
    return int(text)
