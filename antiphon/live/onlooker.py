"""Observing a group without taking part in it: its members, and the status that each reports.

An onlooker proves itself at the members' gates like any process, under a name of its own, and asks them for
their status. The protocols do not know it: no member waits for it, and nothing changes for the group but the
answers. Without multicast (`peers:`), members send it their multicasts as to any process that sent something
recently; it drops what it does not understand.
"""

import asyncio
import dataclasses
import os
import secrets
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from antiphon.core.ids import Group, Site
from antiphon.core.wire import Codec, Reason
from antiphon.live.counters import Counters
from antiphon.live.gate import UNKNOWN_KEY, UNSEALED
from antiphon.live.handshake import Terms
from antiphon.live.host import Bystander
from antiphon.live.keys import KeyFile
from antiphon.live.limits import require_group_name
from antiphon.live.members import MOST_MEMBERS
from antiphon.live.networks import Endpoint, Network, Peers, parse_network, require_key
from antiphon.live.status import Enquiry, Status
from antiphon.live.transport import Transport

TICK_S: Final = 0.05
READ_AT_ONCE: Final = 64
OTHER_KEY: Final = frozenset({UNKNOWN_KEY, UNSEALED, Reason.SEALED.value})
FORGET_S: Final = 10.0
"""A member that has not answered for this long is no longer shown."""


class Sight:
    """The last two statuses of one member."""

    def __init__(self, status: Status, now_s: float) -> None:
        self.status = self.before = status
        self.heard_s = now_s

    def tell(self, status: Status, now_s: float) -> None:
        """A later answer. After a restart of the member there is no earlier one to compare with."""
        self.before = self.status if status.incarnation == self.status.incarnation else status
        self.status = status
        self.heard_s = now_s

    def rate(self, name: str) -> float:
        """How much a count grows per second."""
        grown: int = getattr(self.status, name) - getattr(self.before, name)
        span_ms = self.status.uptime_ms - self.before.uptime_ms
        return 1000 * grown / span_ms if span_ms > 0 else 0.0


class Onlooker(Bystander):
    """Asks the members of a group how they are: `async with Onlooker(...) as onlooker`."""

    def __init__(
        self, group: Group, *, network: str = "loopback", key: Path | None = None, insecure: bool = False
    ) -> None:
        require_group_name(group)
        self.sights: dict[Site, Sight] = {}
        self.counters = Counters()
        self._group = group
        place = parse_network(network)
        keys = None if key is None else KeyFile(key)
        require_key(place, keys, insecure=insecure)
        self._network, self._keys = _aside(place), keys
        self._transport: Transport | None = None
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Onlooker":
        name = f"onlooker-{socket.gethostname()[:24]}-{os.getpid()}-{secrets.token_hex(3)}"
        self._transport = transport = Transport(
            site=name, group=self._group, codec=Codec(()), network=self._network, keys=self._keys,
            counters=self.counters, host=self, terms=Terms({}),
        )  # fmt: skip
        loop = asyncio.get_running_loop()
        for place, number in enumerate(transport.filenos()):
            loop.add_reader(number, self._read, transport, place)
        self._ticking = asyncio.create_task(self._tick(transport))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._transport is not None
        assert self._ticking is not None
        self._ticking.cancel()
        for number in self._transport.filenos():
            asyncio.get_running_loop().remove_reader(number)
        self._transport.close(farewell=True)

    def ask(self) -> None:
        """Ask everyone; answers arrive later. Members that have fallen silent are forgotten."""
        assert self._transport is not None
        self._transport.multicast(Enquiry())
        since_s = time.monotonic() - FORGET_S
        self.sights = {site: sight for site, sight in self.sights.items() if sight.heard_s >= since_s}

    @property
    def has_wrong_key(self) -> bool:
        """Whether the only processes heard have another key, have none, or have one while we do not."""
        return not self.sights and not OTHER_KEY.isdisjoint(self.counters.drops)

    def _read(self, transport: Transport, place: int) -> None:
        transport.receive(READ_AT_ONCE, place=place, now=time.monotonic_ns())

    async def _tick(self, transport: Transport) -> None:
        met = 0
        while True:
            transport.tick(time.monotonic_ns())
            if len(transport.addresses) > met:
                self.ask()  # a member asked before it knew us has not answered
            met = len(transport.addresses)
            await asyncio.sleep(TICK_S)

    # The gate's host

    def told(self, site: Site, status: Status) -> None:
        sight, now_s = self.sights.get(site), time.monotonic()
        if sight is None:
            if len(self.sights) < MOST_MEMBERS:
                self.sights[site] = Sight(status, now_s)
        else:
            sight.tell(status, now_s)


def _aside(network: Network) -> Network:
    """The same network from another port: the usual port may be a member's."""
    if isinstance(network, Peers) and network.listen is None:
        host = "0.0.0.0" if all(":" not in peer.host for peer in network.peers) else "::"
        return dataclasses.replace(network, listen=Endpoint(host, 0))
    return network
