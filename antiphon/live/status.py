"""How members report their status to an onlooker: a question, and an answer of bounded size and rate.

An onlooker is a process that has proved itself at the gate and takes no part: no protocol receives anything
from it. The answer goes to the address that the onlooker has proved, so it cannot be aimed at another.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec import Meta

from antiphon.core.fields import NUMBER_LIMIT, Incarnation, Name, Number, NumberOrNone
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.live.peers import Peer

MOST_PEERS: Final = 8
"""Members named in a status: those that hold its sender up most, or are furthest behind. Raising it costs
bytes: some 90 each."""
LONGEST_REASON: Final = 160
"""Characters kept of the latest refusal."""
STATUSES_PER_SECOND: Final = 32
"""Answers per second. Raising it costs time that questions can make a member waste."""
STATUSES_PER_ASKER: Final = 4
"""The same for one process."""

Text: TypeAlias = Annotated[str, Meta(max_length=LONGEST_REASON)]


class Enquiry(Pdu, frozen=True, gc=False):
    """Asks a member for its status."""

    code: ClassVar[int] = 10


class PeerStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the sender of a status knows of another member; -1 for unknown."""

    site: Name
    lag: NumberOrNone
    round_trip_us: NumberOrNone
    lost: NumberOrNone
    is_holding_up: bool
    held_up_ms: Number


class Status(Pdu, frozen=True, gc=False):
    """The answer. Counts only grow, so that two answers and their `uptime_ms` give rates."""

    code: ClassVar[int] = 11
    order: Name
    incarnation: Incarnation
    uptime_ms: Number
    members: Number
    admitted: Number
    delivered: Number
    delivered_bytes: Number
    repeated: Number
    """Batches and fragments that it has resent."""
    reader_lag: Number
    reader_busy_ms: Number
    absences: Number
    refusals: Number
    refusal: Text
    """The latest reason for which a process was refused."""
    peers: Annotated[tuple[PeerStatus, ...], Meta(max_length=MOST_PEERS)]


def status_of(
    order: str,
    incarnation: int,
    uptime_ns: Nanoseconds,
    counters: Mapping[str, Any],
    peers: Mapping[str, Peer],
) -> Status:
    """A member's status from its counters and its peers."""

    def count(name: str, scale: int = 1) -> int:
        return min(int(counters.get(name, 0) * scale), NUMBER_LIMIT - 1)

    refusals: dict[str, int] = counters["refusals"]
    worst = sorted(peers.values(), key=lambda peer: (-peer.held_us_up_s, -(peer.lag or 0), peer.site))
    return Status(
        order=order,
        incarnation=incarnation,
        uptime_ms=uptime_ns * 1000 // SECOND_NS,
        members=count("members"),
        admitted=count("admitted_messages"),
        delivered=count("delivered_messages"),
        delivered_bytes=count("delivered_bytes"),
        repeated=count("copies") + count("retransmissions") + count("repeated") + count("fragments_resent"),
        reader_lag=count("reader_lag"),
        reader_busy_ms=count("reader_busy_s", 1000),
        absences=count("absences"),
        refusals=sum(refusals.values()),
        refusal=next(reversed(refusals), "")[:LONGEST_REASON],
        peers=tuple(map(_peer_status, worst[:MOST_PEERS])),
    )


def _peer_status(peer: Peer) -> PeerStatus:
    return PeerStatus(
        peer.site,
        -1 if peer.lag is None else peer.lag,
        -1 if peer.round_trip_s is None else round(peer.round_trip_s * 1e6),
        -1 if peer.lost is None else peer.lost,
        peer.holding_us_up,
        round(peer.held_us_up_s * 1000),
    )


class Answers:
    """Limits how many questions are answered per second."""

    def __init__(self) -> None:
        self._begin_ns: Nanoseconds = -SECOND_NS
        self._given: dict[int, int] = {}
        self._left = 0

    def may_give(self, boot: int, now: Nanoseconds) -> bool:
        if now - self._begin_ns >= SECOND_NS:
            self._begin_ns, self._left = now, STATUSES_PER_SECOND
            self._given.clear()
        given = self._given.get(boot, 0)
        if not self._left or given >= STATUSES_PER_ASKER:
            return False
        self._left -= 1
        self._given[boot] = given + 1
        return True
