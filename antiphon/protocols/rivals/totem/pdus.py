"""Totem's PDUs and options."""

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import MAXIMUM_BODY_BYTES, Pdu

NOBODY: Final[Site] = ""
"""In a token's `aru_site` while no member is known to lack anything."""
MOST_MISSING: Final = 30
"""Sequence numbers that a token asks for at most, as in Corosync."""
LARGEST: Final = 1 << 62
"""Numbers from peers must be smaller, so that counters never run out, here and on the wire."""
LARGEST_BATCH_BYTES: Final = MAXIMUM_BODY_BYTES - 4096
"""Bytes of a batch on the wire. The rest of a PDU is kept for its ring and its names."""
MOST_CARGO_BYTES: Final = LARGEST_BATCH_BYTES * 3 // 4
"""Bytes on a train beyond which no member adds to it. Raising it costs the length of a batch."""
UNKNOWN: Final = -1
"""A token's `base` while what has to be recovered is not complete."""


class RingId(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """A unique ring; of two rings that a member was on, the later one is greater.

    The incarnation is the representative's, since a representative that lost its memory may use the same
    number again.
    """

    seq: int
    representative: Site
    incarnation: int


class Message(Pdu, frozen=True, gc=False):
    """The batch at a sequence number of a ring: messages number, number+1, … of a sender."""

    code: ClassVar[int] = 80
    ring: RingId
    seq: int
    sender: Site
    number: int
    bodies: Packed


class Recovered(Pdu, frozen=True, gc=False):
    """A batch of an earlier ring, where it stood at `old_seq`, repeated on the new one."""

    code: ClassVar[int] = 81
    ring: RingId
    seq: int
    old_seq: int
    sender: Site
    number: int
    bodies: Packed


class State(Pdu, frozen=True, gc=False):
    """For members from other rings: up to `old_seq`, the messages below these numbers have a place."""

    code: ClassVar[int] = 82
    ring: RingId
    seq: int
    old_seq: int
    streams: dict[Site, int]


Entry: TypeAlias = Message | Recovered | State
"""What can stand at a sequence number of a ring."""


class Carried(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch on the token: messages number, number+1, … of a sender, at this sequence number of the ring."""

    seq: int
    sender: Site
    number: int
    bodies: Packed


class Token(Pdu, frozen=True, gc=False):
    """The regular token: its holder may multicast, or add to the `cargo` that it carries.

    All members hold messages up to `aru`, except any that lack some and were not visited since; `aru_site`
    lowered it and is to raise it again. `sent` counts the multicasts of the last rotation and `backlog` what
    waits. While a ring recovers, `unfinished` counts the members that have something left to repeat; all that
    is recovered stands at or below `base`.
    """

    code: ClassVar[int] = 83
    ring: RingId
    token_seq: int
    seq: int
    aru: int
    aru_site: Site
    sent: int
    backlog: int
    unfinished: int
    base: int
    missing: tuple[int, ...]
    cargo: tuple[Carried, ...] = ()

    @property
    def bodies(self) -> tuple[bytes, ...]:
        """The messages' bodies that it carries."""
        return tuple(body for each in self.cargo for body in each.bodies)


class Evidence(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member brings to a new ring.

    `ring` is the last one on which it took part in the order (None if it remembers none), which began after
    `base` and of which it holds everything up to `aru`. `attempt` is a later ring on which it has begun to
    recover, and of which it holds everything up to `attempt_aru`: others may have completed that recovery.
    """

    incarnation: int
    ring: RingId | None
    base: int
    aru: int
    attempt: RingId | None
    attempt_aru: int


class Commit(Pdu, frozen=True, gc=False):
    """The commit token: it visits its members twice, and each adds its evidence in the first round."""

    code: ClassVar[int] = 84
    ring: RingId
    hop: int
    members: tuple[Site, ...]
    evidence: tuple[Evidence, ...]


class Join(Pdu, frozen=True, gc=False):
    """The members that the sender knows (`known`), and those of them that have failed (`failed`)."""

    code: ClassVar[int] = 85
    incarnation: int
    ring_seq: int
    known: tuple[Site, ...]
    failed: tuple[Site, ...]


class Announce(Pdu, frozen=True, gc=False):
    """A ring's representative announces the ring, so that rings meet that have nothing to send."""

    code: ClassVar[int] = 86
    ring: RingId


class Wake(Pdu, frozen=True, gc=False):
    """Asks the representative not to keep the token, since there is something to send."""

    code: ClassVar[int] = 87
    ring: RingId


class Leave(Pdu, frozen=True, gc=False):
    """The sender leaves, and need not be waited for."""

    code: ClassVar[int] = 88
    incarnation: int


PDUS: Final[tuple[type[Pdu], ...]] = (
    Message,
    Recovered,
    State,
    Token,
    Commit,
    Join,
    Announce,
    Wake,
    Leave,
)


@dataclass(frozen=True, kw_only=True)
class TotemConfiguration:
    """The options, with Corosync's defaults where it has them; each says what raising it costs."""

    delivery: Literal["safe", "agreed"] = "safe"
    """Safe delivers what all members of the ring hold, and costs a rotation or two of latency. Agreed
    delivers what has no gap before it, and loses messages that only crashed members held."""
    token_ns: Nanoseconds = 1000 * MILLISECOND_NS
    """Time without a token after which it is lost. Raising it costs a longer halt when a member fails."""
    retransmits: int = 4
    """Times that a token is sent again before it is lost. Raising it costs traffic."""
    join_ns: Nanoseconds = 50 * MILLISECOND_NS
    """Time between join messages. Raising it costs a longer halt when a join is lost."""
    consensus_ns: Nanoseconds = 1200 * MILLISECOND_NS
    """Time in which members must agree on a ring. Raising it costs a longer halt when a member has failed."""
    announce_ns: Nanoseconds = 200 * MILLISECOND_NS
    """Time between announcements of a ring. Raising it delays the merging of rings."""
    window: int = 50
    """Multicasts in one rotation. Raising it costs memory, and losses where receivers are slow."""
    max_messages: int = 17
    """Multicasts in one visit of the token. Raising it costs the others latency."""
    admission: int = 256
    """Own batches admitted and not delivered yet. Raising it costs memory."""
    carries: bool = False
    """Whether messages travel on the token, which is then a train, instead of being multicast. It costs
    latency and the length of the token, and saves requests for what was lost."""
    says_goodbye: bool = False
    """Whether a member that leaves announces it, as Corosync does on shutdown; the paper's members do not. It
    costs one PDU, and helps only members that leave on purpose."""

    def __post_init__(self) -> None:
        if self.delivery not in ("safe", "agreed"):
            raise UsageError(f"There is no delivery '{self.delivery}'.", hint="Choose safe or agreed.")
        if min(self.window, self.max_messages, self.admission, self.retransmits) < 1:
            raise UsageError("Totem's windows hold at least one message, and a token is sent again once.")
        if min(self.token_ns, self.join_ns, self.consensus_ns, self.announce_ns) <= 0:
            raise UsageError("Totem's times are positive.")

    @property
    def retransmit_ns(self) -> Nanoseconds:
        """Time before a token is sent again: Corosync's formula."""
        return max(1, self.token_ns * 10 // (10 * self.retransmits + 2))

    @property
    def largest_batch_bytes(self) -> int:
        """Bytes of a batch on the wire; a train has room for some of them."""
        return LARGEST_BATCH_BYTES - MOST_CARGO_BYTES if self.carries else LARGEST_BATCH_BYTES

    @property
    def rest_ns(self) -> Nanoseconds:
        """Time for which the representative keeps an idle ring's token: too short for it to seem lost."""
        return max(1, self.retransmit_ns * 8 // 10)

    @property
    def reach(self) -> int:
        """How far sequence numbers may run ahead of what all hold; reached only if a member is stuck."""
        return 8 * (self.window + self.max_messages)
