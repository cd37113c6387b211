"""The channel between the members of several groups and the tag sequencer that they share.

It is a network of its own beside each group's: members unicast tags on it to the sequencer, which multicasts
numbered tags to all of them (`tag_server`). On it a member has a random name for each process, so that
neither names nor tags tell which group it is in.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Codec, Pdu
from antiphon.live.counters import Counters
from antiphon.live.handshake import Terms
from antiphon.live.host import Bystander
from antiphon.live.keys import KeyFile, KeyRing
from antiphon.live.limits import require_group_name
from antiphon.live.networks import Multicast, Network, Peers, parse_network, require_key
from antiphon.live.transport import Arrival, Transport
from antiphon.protocols.dpg.services.tag_sequencer import PDUS

SEQUENCER: Final[Site] = "tag sequencer"
"""The sequencer's name in the protocol; no member has it, since names have no spaces."""
ON_CHANNEL: Final[Site] = "sequencer"
"""Its name on the channel."""
TERMS: Final = Terms({"serves": "tags"})
CODEC: Final = Codec(PDUS)


@dataclass(frozen=True, kw_only=True)
class TagChannel:
    """Where a tag sequencer is found."""

    name: str
    network: Network
    keys: KeyRing | KeyFile | None

    @property
    def group(self) -> Group:
        """Its name on the wire: no group with a member has it by accident."""
        return f"{SEQUENCER} {self.name}"


def open_channel(
    name: str, network: Network, keys: KeyRing | KeyFile | None, *, insecure: bool
) -> TagChannel:
    """Check what a user says about a channel."""
    require_group_name(name)
    require_key(network, keys, insecure=insecure)
    return TagChannel(name=name, network=network, keys=keys)


def find_channel(
    name: str, place: str | None, key: str | None, network: Network, keys: KeyRing | KeyFile | None,
    *, insecure: bool,
) -> TagChannel:  # fmt: skip
    """A member's channel: by default on the network of its group, with the group's key."""
    if place is not None:
        network = dataclasses.replace(parse_network(place), machine=network.machine)
    elif isinstance(network, Multicast):
        network = dataclasses.replace(network, group=None)  # its own address, by its name
    elif isinstance(network, Peers):
        raise UsageError(
            f"Where is the tag sequencer '{name}'?",
            hint="Say it, with a port of this member's own: peers:HOST:PORT,listen=0.0.0.0:PORT",
        )
    chosen = keys if key is None else KeyFile(Path(key))
    return open_channel(name, network, chosen, insecure=insecure)


class Client(Bystander):
    """The gate's host at a member's end."""

    def __init__(self, tell: Callable[[Site, str], None]) -> None:
        self._tell: Final = tell

    def refused(self, site: Site, reason: str) -> None:
        self._tell(site, reason)


class SequencedTransport(Transport):
    """A member's transport to its group, and beside it one to the tag sequencer."""

    def __init__(
        self, channel: TagChannel, refused: Callable[[Site, str], None], counters: Counters, **options: Any
    ) -> None:
        super().__init__(counters=counters, **options)
        self._uplink: Final = Transport(
            site=f"tags-{channel.network.machine.random().getrandbits(64):016x}", group=channel.group,
            codec=CODEC, network=channel.network, keys=channel.keys, counters=counters,
            host=Client(refused), terms=TERMS,
        )  # fmt: skip
        self._files: Final = len(super().filenos())

    def filenos(self) -> tuple[int, ...]:
        return (*super().filenos(), *self._uplink.filenos())

    def close(self, *, farewell: bool = False) -> None:
        self._uplink.close(farewell=farewell)
        super().close(farewell=farewell)

    def send(self, to: Site, pdu: Pdu) -> None:
        if to == SEQUENCER:
            self._uplink.send(ON_CHANNEL, pdu)
        else:
            super().send(to, pdu)

    def receive(
        self, limit: int, *, place: int | None = None, now: Nanoseconds | None = None
    ) -> list[Arrival]:
        assert place is not None, "a member reads the socket that has something"
        if place < self._files:
            return super().receive(limit, place=place, now=now)
        arrived = self._uplink.receive(limit, place=place - self._files, now=now)
        return [(SEQUENCER, pdu, after_loss) for sender, pdu, after_loss in arrived if sender == ON_CHANNEL]

    @property
    def has_queue(self) -> bool:
        return super().has_queue or self._uplink.has_queue

    def clear_ns(self, now: Nanoseconds) -> Nanoseconds:
        due_ns, uplink = super().clear_ns(now), self._uplink
        if not uplink.has_queue:
            return due_ns
        return min(due_ns, uplink.clear_ns(now)) if super().has_queue else uplink.clear_ns(now)

    def pace(self, now: Nanoseconds) -> None:
        super().pace(now)
        self._uplink.pace(now)

    @property
    def is_unfinished(self) -> bool:
        return super().is_unfinished or self._uplink.is_unfinished

    def tick(self, now: Nanoseconds) -> None:
        super().tick(now)
        self._uplink.tick(now)
