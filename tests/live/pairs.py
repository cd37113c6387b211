"""What the transport's tests share: members on real sockets, and a way to wait for what they should hear."""

import contextlib
import ctypes
import itertools
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

from antiphon.core.ids import Site
from antiphon.core.packing import Packed, pack
from antiphon.core.wire import Codec, Pdu
from antiphon.live.counters import Counters
from antiphon.live.handshake import Terms
from antiphon.live.keys import KeyFile, KeyRing
from antiphon.live.networks import Loopback, Network
from antiphon.live.status import Status
from antiphon.live.transport import Transport
from tests.live.hosts import Hosts

Result = TypeVar("Result")
DEADLINE_S = 120.0
NEW_NET = 0x40000000


class Note(Pdu, frozen=True):
    """Something to send, small or large."""

    code: ClassVar[int] = 100
    number: int
    bodies: Packed


CODEC = Codec([Note])
RING = KeyRing((b"k" * 32,))
OTHER_RING = KeyRing((b"o" * 32,))
_counter = itertools.count()


def note(number: int, size: int = 10) -> Note:
    return Note(number, pack([number.to_bytes(4, "big") * (size // 4 + 1)]))


def group_name() -> str:
    """A group that no other test and no other process uses."""
    return f"test-{os.getpid()}-{next(_counter)}"


def free_port() -> int:
    """A port on which no process listens at the moment."""
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


class News:
    """The host of a gate, which records what the gate reports."""

    def __init__(self) -> None:
        self.refusals: list[tuple[Site, str]] = []
        self.namesakes: list[str] = []
        self.boots: list[tuple[Site, int]] = []
        self.own_status: Status | None = None
        self.statuses: list[tuple[Site, Status]] = []
        self.reports: list[int] = []
        self.left: list[Site] = []
        self.incarnations: dict[Site, int] = {}

    def incarnation_of(self, site: Site) -> int:
        return self.incarnations.get(site, 0)

    def reported(self, incarnation: int) -> None:
        self.reports.append(incarnation)

    def status(self) -> Status | None:
        return self.own_status

    def told(self, site: Site, status: Status) -> None:
        self.statuses.append((site, status))

    def met(self, site: Site, boot: int) -> None:
        self.boots.append((site, boot))

    def refused(self, site: Site, reason: str) -> None:
        self.refusals.append((site, reason))

    def left_behind(self, site: Site) -> None:
        self.left.append(site)

    def namesake(self, address: str) -> None:
        self.namesakes.append(address)


class Ear:
    """A transport, and everything that it has returned."""

    def __init__(
        self,
        site: Site,
        group: str,
        keys: KeyRing | KeyFile | None = None,
        network: Network | None = None,
        *,
        notice_losses: bool = False,
        echoed: tuple[type[Pdu], ...] = (),
        terms: Terms | None = None,
        codec: Codec | None = None,
        rate_bytes_s: float | None = None,
    ) -> None:
        self.site = site
        self.news = News()
        self.counters = Counters()
        self.heard: list[tuple[Site, Pdu]] = []
        self.after_loss: list[int] = []
        self.transport = Transport(
            site=site,
            group=group,
            codec=codec or CODEC,
            network=network or Loopback(),
            keys=keys,
            counters=self.counters,
            host=self.news,
            terms=terms,
            notice_losses=notice_losses,
            echoed=echoed,
            rate_bytes_s=rate_bytes_s,
        )

    @property
    def drops(self) -> dict[str, int]:
        return self.counters.drops

    def numbers(self, sender: Site) -> list[int]:
        return [pdu.number for site, pdu in self.heard if site == sender and isinstance(pdu, Note)]

    def look(self) -> None:
        self.transport.tick(time.monotonic_ns())
        self.take(64)

    def take(self, limit: int) -> None:
        """Hear what there is, and remember before what something was lost."""
        for site, pdu, after_loss in self.transport.receive(limit):
            self.heard.append((site, pdu))
            if after_loss and isinstance(pdu, Note):
                self.after_loss.append(pdu.number)

    def port(self) -> int:
        """Where its unicasts arrive, on 127.0.0.1 if it is on loopback."""
        return int(self.transport._sockets._sending.getsockname()[1])


@contextlib.contextmanager
def ears(*made: Ear) -> Iterator[tuple[Ear, ...]]:
    try:
        yield made
    finally:
        for ear in made:
            ear.transport.close()


def drive(listeners: Sequence[Ear], until: Callable[[], bool]) -> None:
    """Let members receive and tick until a condition holds; fail after a generous deadline."""
    deadline = time.monotonic() + DEADLINE_S
    handles = [handle for ear in listeners for handle in ear.transport.filenos()]
    while not until():
        assert time.monotonic() < deadline, [(ear.site, ear.counters.snapshot()) for ear in listeners]
        select.select(handles, [], [], 0.002)
        for ear in listeners:
            ear.look()


def acquaint(*listeners: Ear) -> None:
    """Until each knows where all the others are."""
    drive(listeners, lambda: all(len(ear.transport.addresses) == len(listeners) - 1 for ear in listeners))


def settle(*listeners: Ear) -> None:
    """Until they know each other and nothing is under way."""
    acquaint(*listeners)
    quiet = 0

    def rests() -> bool:
        nonlocal quiet
        quiet = 0 if any(ear.transport.is_unfinished for ear in listeners) else quiet + 1
        return quiet > 3

    drive(listeners, rests)


def repeat(listeners: Sequence[Ear], send: Callable[[], object], until: Callable[[], bool]) -> None:
    """Send again and again, as the protocols above do, until it has arrived."""
    deadline = time.monotonic() + DEADLINE_S
    while not until():
        assert time.monotonic() < deadline, [(ear.site, ear.counters.snapshot()) for ear in listeners]
        send()
        time.sleep(0.002)
        for ear in listeners:
            ear.look()


def inside(hosts: Hosts, host: int, make: Callable[[], Result]) -> Result:
    """Run a function on a host, in a thread of its own; sockets that it opens stay there."""
    made: list[Result] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            library = ctypes.CDLL(None, use_errno=True)
            with Path(f"/proc/{hosts._holders[host].pid}/ns/net").open() as namespace:
                assert library.setns(namespace.fileno(), NEW_NET) == 0, os.strerror(ctypes.get_errno())
            made.append(make())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]
