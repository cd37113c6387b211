"""What the members of a reliable FIFO group say to one another, and what a user may turn."""

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, get_args

import msgspec

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability import coordp

Repair = Literal["acknowledge", "request", "request-all", "any", "hybrid"]
REPAIRS: Final[tuple[str, ...]] = get_args(Repair)
"""How losses are made up for; see the package's head."""

NOT_FOLLOWED: Final = -1
"""What is held of a stream that a member has heard of but not begun to follow."""
LARGEST: Final = 1 << 62
"""No honest number, incarnation or count gets this far."""
LONGEST_NAME: Final = 255
MOST_SPANS: Final = 16
"""Gaps that one request names at most, so that one PDU cannot ask for everything."""


class Data(Pdu, frozen=True, gc=False):
    """Messages number, number+1, … of whoever sent this.

    `held` tells how far its sender holds the stream of each member of `view`, in the order of the view, as
    integers of 64 bits: where everyone sends, nobody has to acknowledge.
    """

    code: ClassVar[int] = 48
    incarnation: int
    number: int
    view: int
    held: bytes
    bodies: Packed


class Copy(Pdu, frozen=True, gc=False):
    """The same messages again, from their sender or from anyone who holds them."""

    code: ClassVar[int] = 49
    site: Site
    incarnation: int
    number: int
    bodies: Packed


class Ask(Pdu, frozen=True, gc=False):
    """A request (NAK) for the messages of a stream in these spans: from, to, from, to, …"""

    code: ClassVar[int] = 50
    site: Site
    incarnation: int
    spans: tuple[int, ...]


class Position(Pdu, frozen=True, gc=False):
    """An acknowledgement (ACK): everything of your stream below `held` is held here."""

    code: ClassVar[int] = 51
    incarnation: int
    stream: int
    held: int


class Extent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member knows of one site's stream, that of its `incarnation`, which began at `first`.

    It holds everything below `held`, keeps for others what lies from `kept_from` on, and knows that everyone
    holds what lies below `stable`. `next_incarnation` tells that a later incarnation of the site is known, so
    that this stream grows no more; `previous` that an earlier one, up to `previous_end`, is kept for others.
    The latest incarnation known was `heard` of lately or not, and is `counted` or not.
    """

    site: Site
    incarnation: int
    heard: bool
    counted: bool
    first: int
    held: int
    stable: int
    kept_from: int
    next_incarnation: int = -1
    next_first: int = 0
    previous: int = -1
    previous_end: int = 0

    def makes_sense(self) -> bool:
        least = min(self.incarnation, self.first, self.stable, self.kept_from, self.next_first)
        greatest = max(self.incarnation, self.first, self.stable, self.kept_from, self.held)
        further = max(self.next_incarnation, self.next_first, self.previous, self.previous_end)
        return (
            least >= 0
            and max(greatest, further) < LARGEST
            and min(self.held, self.next_incarnation, self.previous, self.previous_end) >= -1
            and 0 < len(self.site) <= LONGEST_NAME
        )


class Mark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something was called stable without this member in this spell of its presence."""

    site: Site
    incarnation: int
    spell: int


class Status(Pdu, frozen=True, gc=False):
    """A member is there, sees the group so, and holds this; `serial` tells the later of two."""

    code: ClassVar[int] = 52
    incarnation: int
    spell: int
    serial: int
    view: int
    extents: tuple[Extent, ...]
    left_out: tuple[Mark, ...] = ()


class Leaving(Pdu, frozen=True, gc=False):
    """A member goes, and is not to be waited for."""

    code: ClassVar[int] = 53
    incarnation: int
    serial: int


PDUS: Final[tuple[type[Pdu], ...]] = (Data, Copy, Ask, Position, Status, Leaving, *coordp.PDUS)


@dataclass(frozen=True, kw_only=True)
class FifoConfiguration:
    """The knobs; each says what raising it costs. Members of one group use the same."""

    repair: str = "hybrid"
    """How losses are made up for: one of `REPAIRS`."""
    window_bytes: int = 1 << 20
    """How far a sender may be ahead of the slowest member. Raising it costs receivers' socket buffers."""
    retain_bytes: int = 16 << 20
    """What a sender may have admitted that is not stable. Raising it costs memory at every member."""
    acknowledge_ns: Nanoseconds = 2 * MILLISECOND_NS
    """How long a member with nothing to send keeps its position to itself. Raising it costs throughput."""
    gap_ns: Nanoseconds = MILLISECOND_NS
    """How long a gap may be mere reordering. Raising it costs latency when something is lost."""
    repair_ns: Nanoseconds = 10 * MILLISECOND_NS
    """Pause before a request, or an unacknowledged message, is repeated. Raising it costs the same."""
    answer_ns: Nanoseconds = MILLISECOND_NS
    """With `any`, how long one waits for another to answer. Raising it costs latency, and saves copies."""
    announce_ns: Nanoseconds = 10 * MILLISECOND_NS
    """When the end of a burst is told that not all have acknowledged. Raising it costs latency of a tail."""
    heartbeat_ns: Nanoseconds = 50 * MILLISECOND_NS
    """Pause between statuses. Raising it costs time to find losses of those who are gone."""
    settle_ns: Nanoseconds = 60 * MILLISECOND_NS
    """How long a newcomer listens before it takes part. Raising it costs time to join."""
    suspect_after_ns: Nanoseconds = 500 * MILLISECOND_NS
    """Silence after which a member no longer counts. Raising it costs a longer halt when one is gone."""
    lag_ns: Nanoseconds = 2 * SECOND_NS
    """How long a member that is heard of may make no progress. Raising it costs a longer halt likewise."""
    round_ns: Nanoseconds = 10 * MILLISECOND_NS
    """Pause between rounds of stability detection. Raising it costs memory: release comes later."""
    round_bytes: int = 4 << 20
    """What may come in before a round begins at once. Raising it costs the same."""
    stability_repeat_ns: Nanoseconds = 20 * MILLISECOND_NS
    """Pause before stability's PDUs are repeated. Raising it costs memory when one is lost."""
    largest_group: int = 1024
    """Members known at a time. Raising it costs memory, should a peer invent members."""

    def __post_init__(self) -> None:
        if self.repair not in REPAIRS:
            raise UsageError(
                f"There is no repair '{self.repair}'.", hint=f"Choose from: {', '.join(REPAIRS)}."
            )
        if min(self.window_bytes, self.retain_bytes, self.round_bytes, self.largest_group) < 1:
            raise UsageError("Windows, buffers and groups have room for something.")
        spans = [getattr(self, name) for name in self.__dataclass_fields__ if name.endswith("_ns")]
        if min(spans) < 1:
            raise UsageError("A reliable multicast's times are positive.")
        if self.suspect_after_ns <= self.heartbeat_ns:
            raise UsageError("Nobody can be heard of more often than his heartbeat comes.")

    @property
    def others_keep(self) -> bool:
        """Whether receivers keep copies for one another until they are stable."""
        return self.repair in ("any", "hybrid")

    @property
    def tell_bytes(self) -> int:
        """What a member takes from a sender before it acknowledges without waiting: a part of the window."""
        return max(1, self.window_bytes // 4)

    @property
    def forget_after_ns(self) -> Nanoseconds:
        """When nothing more is remembered of a member that is gone."""
        return 20 * self.suspect_after_ns
