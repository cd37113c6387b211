"""What the members of a reliable FIFO group say to one another, and what a user may turn."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from antiphon.core.errors import UsageError
from antiphon.core.fields import (
    MOST_NAMES,
    NUMBER_LIMIT,
    Hash,
    Incarnation,
    IncarnationOrNone,
    Name,
    Number,
    NumberOrNone,
)
from antiphon.core.inputs import Past
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols import detection, stability

Repair = Literal["acknowledge", "request", "request-all", "any", "hybrid"]
REPAIRS: Final[tuple[str, ...]] = get_args(Repair)
"""How losses are made up for; see the package's head."""
TRIGGERS: Final = ("timer", "adaptive")
"""When rounds of stability detection begin: by the clock, or by how full the buffers are."""

NOT_FOLLOWED: Final = -1
"""What is held of a stream that a member has heard of but not begun to follow."""
MOST_SPANS: Final = 16
"""Gaps that one request names at most, so that one PDU cannot ask for everything."""
MOST_PLACES: Final = 256
"""Places that one request for history names at most, of each kind."""
MOST_RECORDS: Final = 1 << 13
"""Batches in one answer with history; its bytes end it sooner, unless the batches are next to nothing."""
BATCH_LIMIT: Final = 1 << 20
"""No batch has as many messages: the table of their lengths would fit no PDU."""
ROW_BYTES: Final = 10 * (MOST_NAMES + 1) + 1
"""A row of counts, of 10 bytes with their places, and its form."""

FirstNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=NUMBER_LIMIT - BATCH_LIMIT)]
"""The number of a batch's first message, so that those of all others are numbers too."""
RowBytes: TypeAlias = Annotated[bytes, Meta(max_length=ROW_BYTES)]
Spans: TypeAlias = Annotated[tuple[Number, ...], Meta(min_length=2, max_length=2 * MOST_SPANS)]


class Data(Pdu, frozen=True, gc=False):
    """Messages number, number+1, … of whoever sent this.

    `held` tells how far its sender holds the stream of each member of `view`, in the order of the view, as
    integers of 64 bits: where everyone sends, nobody has to acknowledge.
    """

    code: ClassVar[int] = 48
    incarnation: Incarnation
    number: FirstNumber
    view: Hash
    held: RowBytes
    bodies: Packed


class RidingData(Pdu, frozen=True, gc=False):
    """The same, with what its sender holds told as `antiphon.protocols.stability.riding` does."""

    code: ClassVar[int] = 58
    incarnation: Incarnation
    number: FirstNumber
    view: Hash
    row: RowBytes
    bodies: Packed


class Copy(Pdu, frozen=True, gc=False):
    """The same messages again, from their sender or from anyone who holds them."""

    code: ClassVar[int] = 49
    site: Name
    incarnation: Incarnation
    number: FirstNumber
    bodies: Packed


class Ask(Pdu, frozen=True, gc=False):
    """A request (NAK) for the messages of a stream in these spans: from, to, from, to, …"""

    code: ClassVar[int] = 50
    site: Name
    incarnation: Incarnation
    spans: Spans


class Position(Pdu, frozen=True, gc=False):
    """An acknowledgement (ACK): everything of your stream below `held` is held here."""

    code: ClassVar[int] = 51
    incarnation: Incarnation
    stream: Incarnation
    held: Number


class Extent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member knows of one site's stream, that of its `incarnation`, which began at `first`.

    It holds everything below `held`, keeps for others what lies from `kept_from` on, and knows that everyone
    holds what lies below `stable`. `next_incarnation` tells that a later incarnation of the site is known, so
    that this stream grows no more; `previous` that an earlier one is kept for others, from `previous_from` up
    to `previous_end`.
    The latest incarnation known was `heard` of lately or not, and is `counted` or not.
    """

    site: Name
    incarnation: Incarnation
    heard: bool
    counted: bool
    first: Number
    held: NumberOrNone
    stable: Number
    kept_from: Number
    next_incarnation: IncarnationOrNone = -1
    next_first: Number = 0
    previous: IncarnationOrNone = -1
    previous_end: Number = 0
    previous_from: Number = 0


class Mark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something was called stable without this member in this spell of its presence."""

    site: Name
    incarnation: Incarnation
    spell: Number


class Status(Pdu, frozen=True, gc=False):
    """A member is there, sees the group so, and holds this; `serial` tells the later of two."""

    code: ClassVar[int] = 52
    incarnation: Incarnation
    spell: Number
    serial: Number
    view: Hash
    extents: Annotated[tuple[Extent, ...], Meta(min_length=1, max_length=MOST_NAMES + 1)]
    left_out: Annotated[tuple[Mark, ...], Meta(max_length=MOST_NAMES)] = ()


class Leaving(Pdu, frozen=True, gc=False):
    """A member goes, and is not to be waited for."""

    code: ClassVar[int] = 53
    incarnation: Incarnation
    serial: Number


class Inquire(Pdu, frozen=True, gc=False):
    """A newcomer asks who keeps history."""

    code: ClassVar[int] = 54
    incarnation: Incarnation


class Offer(Pdu, frozen=True, gc=False):
    """I keep history: so many messages of it."""

    code: ClassVar[int] = 55
    incarnation: Incarnation
    messages: Number


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A place in the messages of a site's incarnation."""

    site: Name
    incarnation: Incarnation
    number: Number


Places: TypeAlias = Annotated[tuple[Place, ...], Meta(max_length=MOST_PLACES)]


class Fetch(Pdu, frozen=True, gc=False):
    """A newcomer asks for what a log has from a position on, save what lies below the places in `have`.

    The answer is to tell how things stand with the places in `wanted`, up to which history must close.
    """

    code: ClassVar[int] = 56
    incarnation: Incarnation
    serial: Number
    position: Number
    have: Places = ()
    wanted: Places = ()


class Chunk(Pdu, frozen=True, gc=False):
    """The answer: batches in the order of the log, and the position to go on from.

    `behind` names the sites of which this member will still deliver, and so log, what was wanted.
    """

    code: ClassVar[int] = 57
    incarnation: Incarnation
    serial: Number
    following: Number
    is_end: bool
    behind: Annotated[tuple[Name, ...], Meta(max_length=MOST_PLACES)]
    records: Annotated[tuple[Past, ...], Meta(max_length=MOST_RECORDS)]


PDUS: Final[tuple[type[Pdu], ...]] = (
    *(Data, RidingData, Copy, Ask, Position, Status, Leaving),
    *(Inquire, Offer, Fetch, Chunk),
    *stability.PDUS,
    *detection.PDUS,
)


@dataclass(frozen=True, kw_only=True)
class FifoConfiguration:
    """The knobs; each says what raising it costs. Members of one group use the same."""

    repair: str = "hybrid"
    """How losses are made up for: one of `REPAIRS`."""
    stability: str = "coordp"
    """How what all hold is found: one of `antiphon.protocols.stability.PROTOCOLS`."""
    rows: str = "whole"
    """With `fulldist`, how members' rows travel: one of `antiphon.protocols.stability.ROWS`."""
    errors: str | None = None
    """The protocol by which members tell one another how far they have seen; None leaves it to senders."""
    trigger: str = "timer"
    """When rounds begin: one of `TRIGGERS`."""
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
    detector: str = "heartbeat"
    """How it is found out who is gone: one of `antiphon.protocols.detection.DETECTORS`."""
    detector_subset: int = 1
    """With `gossip`, to how many each gossips. Raising it costs PDUs, and saves time to find out."""
    mistake: float = 1e-6
    """With `gossip`, how probable a wrong suspicion may be per step. Raising it saves time likewise."""
    suspect_after_ns: Nanoseconds = 500 * MILLISECOND_NS
    """Silence after which a member no longer counts. Raising it costs a longer halt when one is gone.
    Other detectors than the heartbeat take their times from it."""
    lag_ns: Nanoseconds = 2 * SECOND_NS
    """How long a member that is heard of may make no progress. Raising it costs a longer halt likewise."""
    round_ns: Nanoseconds = 10 * MILLISECOND_NS
    """Pause between rounds of stability detection. Raising it costs memory: release comes later."""
    round_bytes: int = 4 << 20
    """What may come in before a round begins at once. Raising it costs the same."""
    quiet_round_ns: Nanoseconds = 200 * MILLISECOND_NS
    """The same pause with `adaptive`, where fuller buffers shorten it. Raising it costs the same."""
    stability_repeat_ns: Nanoseconds = 20 * MILLISECOND_NS
    """Pause before stability's PDUs are repeated. Raising it costs memory when one is lost."""
    history_ns: Nanoseconds = SECOND_NS
    """How long a newcomer waits for those who keep history. Raising it costs its time if nobody does."""
    history_bytes: int = 32 << 20
    """What a newcomer may hold back while history comes. Raising it costs memory, and saves repetition."""
    largest_group: int = 1024
    """Members known at a time. Raising it costs memory, should a peer invent members."""

    def __post_init__(self) -> None:
        if self.repair not in REPAIRS:
            raise UsageError(
                f"There is no repair '{self.repair}'.", hint=f"Choose from: {', '.join(REPAIRS)}."
            )
        self._check_stability()
        if self.detector not in detection.DETECTORS:
            raise UsageError(
                f"There is no detector '{self.detector}'.",
                hint=f"Choose from: {', '.join(detection.DETECTORS)}.",
            )
        detection.GossipConfiguration(subset=self.detector_subset, mistake=self.mistake)
        if min(self.window_bytes, self.retain_bytes, self.round_bytes, self.largest_group) < 1:
            raise UsageError("Windows, buffers and groups have room for something.")
        if self.largest_group > MOST_NAMES:
            raise UsageError(f"No status has room for more than {MOST_NAMES} members.")
        spans = [getattr(self, name) for name in self.__dataclass_fields__ if name.endswith("_ns")]
        if min(spans) < 1:
            raise UsageError("A reliable multicast's times are positive.")
        if self.suspect_after_ns <= self.heartbeat_ns:
            raise UsageError("Nobody can be heard of more often than his heartbeat comes.")

    def _check_stability(self) -> None:
        stability.find_protocol(self.stability)
        if self.errors is not None:
            stability.find_protocol(self.errors)
        if self.rows not in stability.ROWS:
            raise UsageError(
                f"Rows do not travel '{self.rows}'.", hint=f"Choose from: {', '.join(stability.ROWS)}."
            )
        if self.rows != "whole" and self.stability != "fulldist":
            raise UsageError(
                f"The protocol '{self.stability}' has no rows that could ride on messages.",
                hint="Choose fulldist.",
            )
        if self.rows != "whole" and self.trigger != "timer":
            raise UsageError("Rows that travel without rounds need no trigger.", hint="Leave it out.")
        if self.trigger not in TRIGGERS:
            raise UsageError(
                f"There is no trigger '{self.trigger}'.", hint=f"Choose from: {', '.join(TRIGGERS)}."
            )
        if self.trigger == "adaptive" and not self.others_keep:
            raise UsageError(
                f"With the repair '{self.repair}' nobody knows how full another's buffer is.",
                hint="The adaptive trigger goes with the repairs hybrid and any, where members keep copies.",
            )

    @property
    def others_keep(self) -> bool:
        """Whether receivers keep copies for one another until they are stable."""
        return self.repair in ("any", "hybrid")

    @property
    def announces(self) -> bool:
        """Whether a sender tells how far its messages go before the next heartbeat."""
        return self.errors is None

    @property
    def tell_bytes(self) -> int:
        """What a member takes from a sender before it acknowledges without waiting: a part of the window."""
        return max(1, self.window_bytes // 4)

    @property
    def forget_after_ns(self) -> Nanoseconds:
        """When nothing more is remembered of a member that is gone."""
        return 20 * self.suspect_after_ns
