"""The PDUs of reliable FIFO multicast, and its configuration."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeAlias

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
from antiphon.protocols.fifo.conduct import USUAL, Conduct
from antiphon.protocols.fifo.ways import WAYS, Way
from antiphon.protocols.stability.tuning import UNTUNED, Tuning

REPAIRS: Final = tuple(WAYS)
"""The ways to repair losses; the package describes them."""
TRIGGERS: Final = ("timer", "adaptive")
"""When rounds of stability detection begin: by the clock, or by the fill of the buffers."""

NOT_FOLLOWED: Final = -1
"""The `held` of a stream that a member knows but has not begun to follow."""
MOST_SPANS: Final = 16
"""Gaps that one request names. Raising it costs work for one PDU of a liar."""
MOST_PLACES: Final = 256
"""Places of each kind that one request for history names. Raising it costs the same."""
MOST_RECORDS: Final = 1 << 13
"""Batches in one answer with history; a limit of bytes ends it sooner, unless they are tiny. Raising it
costs memory."""
MOST_NEIGHBOURS: Final = 64
"""The most that `neighbours` may be. Raising it costs room in a sign of life."""
BATCH_LIMIT: Final = 1 << 20
"""A batch has fewer messages than this: the table of their lengths would fit no PDU."""
ROW_BYTES: Final = 10 * (MOST_NAMES + 1) + 1
"""A row of counts: a byte for its form, and 10 for each count with its place."""

FirstNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=NUMBER_LIMIT - BATCH_LIMIT)]
"""The number of a batch's first message, which leaves room for those of the others."""
RowBytes: TypeAlias = Annotated[bytes, Meta(max_length=ROW_BYTES)]
Spans: TypeAlias = Annotated[tuple[Number, ...], Meta(min_length=2, max_length=2 * MOST_SPANS)]


Rank: TypeAlias = Annotated[int, Meta(ge=0, lt=MOST_NAMES)]
"""A member's place in a view."""


class Data(Pdu, frozen=True, gc=False):
    """Messages number, number+1, … of its sender.

    `held` has the position of its sender in the stream of each member of `view`, in the order of the view, as
    integers of 64 bits: where all members send, no other acknowledgement is needed.
    """

    code: ClassVar[int] = 48
    incarnation: Incarnation
    number: FirstNumber
    view: Hash
    held: RowBytes
    bodies: Packed


class RidingData(Pdu, frozen=True, gc=False):
    """The same, with a row in the form of `antiphon.protocols.stability.riding`."""

    code: ClassVar[int] = 58
    incarnation: Incarnation
    number: FirstNumber
    view: Hash
    row: RowBytes
    bodies: Packed


class Copy(Pdu, frozen=True, gc=False):
    """A repeated batch, from its sender or from a member that holds it."""

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
    """An acknowledgement (ACK): its sender holds everything of the receiver's stream below `held`."""

    code: ClassVar[int] = 51
    incarnation: Incarnation
    stream: Incarnation
    held: Number


class Extent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member reports of one site's stream, that of its `incarnation`, which began at `first`.

    The member holds everything below `held`, keeps everything from `kept_from` on for others, and knows that
    everything below `stable` is stable. `next_incarnation` is a later incarnation that it knows, so that this
    stream grows no more; `previous` an earlier one that it keeps for others, from `previous_from` up to
    `previous_end`. Of the latest incarnation, `heard` says whether the member hears it, and `counted` whether
    it has it in its view.
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
    """Something was declared stable without this member in this spell of its presence."""

    site: Name
    incarnation: Incarnation
    spell: Number


class Status(Pdu, frozen=True, gc=False):
    """A member's report of itself, its view and all streams; the greater `serial` is the later one."""

    code: ClassVar[int] = 52
    incarnation: Incarnation
    spell: Number
    serial: Number
    view: Hash
    extents: Annotated[tuple[Extent, ...], Meta(min_length=1, max_length=MOST_NAMES + 1)]
    left_out: Annotated[tuple[Mark, ...], Meta(max_length=MOST_NAMES)] = ()


class Sign(Pdu, frozen=True, gc=False):
    """A sign of life: its sender has sent everything below `sent`, and hears its neighbours in its view.

    Except for those in `unheard`, by their places in the view. Where the sender `asks`, the receiver answers.
    """

    code: ClassVar[int] = 60
    incarnation: Incarnation
    view: Hash
    sent: Number
    asks: bool = False
    unheard: Annotated[tuple[Rank, ...], Meta(max_length=MOST_NEIGHBOURS)] = ()


class Leaving(Pdu, frozen=True, gc=False):
    """A member leaves, and need not be waited for."""

    code: ClassVar[int] = 53
    incarnation: Incarnation
    serial: Number


class Inquire(Pdu, frozen=True, gc=False):
    """A newcomer asks which members keep history."""

    code: ClassVar[int] = 54
    incarnation: Incarnation


class Offer(Pdu, frozen=True, gc=False):
    """The answer of a member that keeps history: how many messages it has."""

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
    """A newcomer asks for a log from a position on, without what lies below the places in `have`.

    The answer says whether the log will still reach the places in `wanted`.
    """

    code: ClassVar[int] = 56
    incarnation: Incarnation
    serial: Number
    position: Number
    have: Places = ()
    wanted: Places = ()


class Chunk(Pdu, frozen=True, gc=False):
    """The answer: batches in the order of the log, and the position to go on from.

    `behind` names the sites of which this member will still deliver, and so log, what is wanted.
    """

    code: ClassVar[int] = 57
    incarnation: Incarnation
    serial: Number
    following: Number
    is_end: bool
    behind: Annotated[tuple[Name, ...], Meta(max_length=MOST_PLACES)]
    records: Annotated[tuple[Past, ...], Meta(max_length=MOST_RECORDS)]


PDUS: Final[tuple[type[Pdu], ...]] = (
    *(Data, RidingData, Copy, Ask, Position, Status, Sign, Leaving),
    *(Inquire, Offer, Fetch, Chunk),
    *stability.PDUS,
    *detection.PDUS,
)


@dataclass(frozen=True, kw_only=True)
class FifoConfiguration:
    """The knobs, each with what raising it costs. Members of one group use the same."""

    repair: str = "hybrid"
    """The way to repair losses: one of `REPAIRS`."""
    stability: str = "coordp"
    """The stability protocol: one of `antiphon.protocols.stability.PROTOCOLS` or `WITHOUT_ROUNDS`."""
    tuning: Tuning = UNTUNED
    """The knobs of that protocol, and of local groups and trees, which the group has turned."""
    conduct: Conduct = USUAL
    """How members acknowledge, announce and hold back."""
    rows: str = "whole"
    """With `fulldist`, how members' rows travel: one of `antiphon.protocols.stability.ROWS`."""
    errors: str | None = None
    """The protocol of error detection, as for `stability`; with None senders announce the end of a burst."""
    trigger: str = "timer"
    """When rounds begin: one of `TRIGGERS`."""
    window_bytes: int = 1 << 20
    """Bytes that a sender may be ahead of the slowest member. Raising it costs receivers' socket buffers."""
    retain_bytes: int = 16 << 20
    """Bytes that a sender may have admitted that are not stable. Raising it costs memory at every member."""
    acknowledge_ns: Nanoseconds = 2 * MILLISECOND_NS
    """The longest delay of an acknowledgement by a member that does not send. Raising it costs throughput."""
    gap_ns: Nanoseconds = MILLISECOND_NS
    """How long a gap may be mere reordering. Raising it costs latency when something is lost."""
    repair_ns: Nanoseconds = 10 * MILLISECOND_NS
    """Pause before a request, or an unacknowledged message, is repeated. Raising it costs the same."""
    answer_ns: Nanoseconds = MILLISECOND_NS
    """With `any` and `local`, how long a member waits for another answer. Raising it costs latency, and saves
    copies. With `distance`, the time to a member until that was measured."""
    announce_ns: Nanoseconds = 10 * MILLISECOND_NS
    """Pause before the end of an unacknowledged burst is announced. Raising it costs latency of a tail."""
    heartbeat_ns: Nanoseconds = 50 * MILLISECOND_NS
    """Least pause between statuses, which grows while nothing happens. Raising it costs time to agree."""
    settle_ns: Nanoseconds = 60 * MILLISECOND_NS
    """How long a newcomer listens before it takes part. Raising it costs time to join."""
    detector: str = "heartbeat"
    """The failure detector: one of `antiphon.protocols.detection.DETECTORS`."""
    detector_subset: int = 1
    """With `gossip`, members gossiped to in a step. Raising it costs PDUs, and saves time to detect."""
    mistake: float = 1e-6
    """With `gossip`, the probability of a mistake per step. Raising it costs mistakes, and saves time."""
    neighbours: int = 6
    """Members with which a member exchanges signs of life; a group with more others is a large one. Raising
    it costs PDUs, and saves time to notice a partition."""
    suspect_after_ns: Nanoseconds = 500 * MILLISECOND_NS
    """Silence after which a member is excluded. Raising it costs a longer halt after a crash. The other
    detectors take their times from it."""
    lag_ns: Nanoseconds = 2 * SECOND_NS
    """How long a live member may make no progress. Raising it costs a longer halt when a member is stuck."""
    round_ns: Nanoseconds = 10 * MILLISECOND_NS
    """Pause between rounds of stability detection. Raising it costs memory: release comes later."""
    round_bytes: int = 4 << 20
    """Bytes that may come before a round begins at once. Raising it costs the same."""
    quiet_round_ns: Nanoseconds = 200 * MILLISECOND_NS
    """The pause with `adaptive`, where fuller buffers shorten it. Raising it costs the same."""
    stability_repeat_ns: Nanoseconds = 20 * MILLISECOND_NS
    """Pause before the stability protocol repeats a PDU. Raising it costs memory after a loss."""
    history_ns: Nanoseconds = SECOND_NS
    """How long a newcomer waits for a handler. Raising it costs its time if there is none."""
    history_bytes: int = 32 << 20
    """Bytes that a newcomer may hold back while it reads history. Raising it costs memory."""
    largest_group: int = 1024
    """Members known at a time. Raising it costs memory if a peer invents members."""

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
            raise UsageError("Windows, buffers and groups have room for at least one byte or member.")
        if not 2 <= self.neighbours <= MOST_NEIGHBOURS or self.neighbours % 2:
            raise UsageError(f"The neighbours of a member are an even number from 2 to {MOST_NEIGHBOURS}.")
        if self.largest_group > MOST_NAMES:
            raise UsageError(f"No status has room for more than {MOST_NAMES} members.")
        spans = [getattr(self, name) for name in self.__dataclass_fields__ if name.endswith("_ns")]
        if min(spans) < 1:
            raise UsageError("A reliable multicast's times are positive.")
        if self.suspect_after_ns <= self.heartbeat_ns:
            raise UsageError("A member is suspected only after more than one heartbeat.")

    def _check_stability(self) -> None:
        takes = stability.find_protocol(self.stability).takes if self.rows == "whole" else ()
        near = self.way.asks in ("tree", "group")
        self.tuning.require_taken(self.stability, takes, ("subgroup", "heads") if near else ())
        if self.errors is not None:
            stability.find_protocol(self.errors)
            if self.errors not in stability.PROTOCOLS:
                raise UsageError(
                    f"The protocol '{self.errors}' finds no errors.",
                    hint=f"Choose from: {', '.join(stability.PROTOCOLS)}.",
                )
        if self.rows not in stability.ROWS:
            raise UsageError(
                f"Rows do not travel '{self.rows}'.", hint=f"Choose from: {', '.join(stability.ROWS)}."
            )
        if self.rows != "whole" and self.stability != "fulldist":
            raise UsageError(
                f"The protocol '{self.stability}' has no rows that could ride on messages.",
                hint="Choose fulldist.",
            )
        without_rounds = self.rows != "whole" or self.stability in stability.WITHOUT_ROUNDS
        if without_rounds and self.trigger != "timer":
            raise UsageError("Counts that travel without rounds need no trigger.", hint="Leave it out.")
        if self.trigger not in TRIGGERS:
            raise UsageError(
                f"There is no trigger '{self.trigger}'.", hint=f"Choose from: {', '.join(TRIGGERS)}."
            )
        keeping = [name for name, way in WAYS.items() if way.others_keep]
        if self.trigger == "adaptive" and not self.others_keep:
            raise UsageError(
                f"With the repair '{self.repair}' no member knows how full another's buffer is.",
                hint=f"The adaptive trigger goes with repairs where they keep copies: {', '.join(keeping)}.",
            )

    @property
    def way(self) -> Way:
        """The way to repair losses."""
        return WAYS[self.repair]

    @property
    def others_keep(self) -> bool:
        """Whether receivers keep copies for one another until they are stable."""
        return self.way.others_keep

    @property
    def announces(self) -> bool:
        """Whether a sender announces the end of its messages before the next heartbeat."""
        return self.errors is None

    @property
    def acknowledge_bytes(self) -> int:
        """Bytes after which a member acknowledges at once: a part of the window."""
        return max(1, self.window_bytes // 4)

    @property
    def forget_after_ns(self) -> Nanoseconds:
        """Silence after which a member is forgotten."""
        return 20 * self.suspect_after_ns
