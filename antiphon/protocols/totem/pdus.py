"""What Totem's members say to one another, and what a user may turn."""

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.packing import Packed
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import MAXIMUM_BODY_BYTES, Pdu

NOBODY: Final[Site] = ""
"""In a token's `aru_site` while everyone is believed to have everything."""
MOST_MISSING: Final = 30
"""Sequence numbers that a token asks for at most, as in Corosync."""
LARGEST: Final = 1 << 62
"""No number that a peer tells may be as large: there is always room to count on, here and on the wire."""
LARGEST_BATCH_BYTES: Final = MAXIMUM_BODY_BYTES - 4096
"""What a batch may take on the wire, so that it also fits with its ring and its names around it."""
UNKNOWN: Final = -1
"""A token's `base` while what has to be recovered is not complete."""


class RingId(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """A ring: no two have the same, and one that a member was on later is greater.

    The incarnation is the representative's, since a representative that lost its memory may count again from
    where it was.
    """

    seq: int
    representative: Site
    incarnation: int


class Message(Pdu, frozen=True, gc=False):
    """What stands at a sequence number of a ring: messages number, number+1, … of a sender."""

    code: ClassVar[int] = 80
    ring: RingId
    seq: int
    sender: Site
    number: int
    bodies: Packed


class Recovered(Pdu, frozen=True, gc=False):
    """The same of an earlier ring, where it stood at `old_seq`, repeated on the new one."""

    code: ClassVar[int] = 81
    ring: RingId
    seq: int
    old_seq: int
    sender: Site
    number: int
    bodies: Packed


class State(Pdu, frozen=True, gc=False):
    """For those who come from elsewhere: up to `old_seq`, the messages below these numbers have a place."""

    code: ClassVar[int] = 82
    ring: RingId
    seq: int
    old_seq: int
    streams: dict[Site, int]


Entry: TypeAlias = Message | Recovered | State
"""What can stand at a sequence number of a ring."""


class Token(Pdu, frozen=True, gc=False):
    """The regular token: who holds it may multicast.

    Everyone holds what lies up to `aru`, unless somebody not visited since lacks it; `aru_site` lowered it
    and is to raise it again. `sent` counts what the last rotation multicast and `backlog` what waits. While
    a ring recovers, `unfinished` counts the members that have something left to repeat; all that is
    recovered stands at or below `base`.
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


class Evidence(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member brings to a new ring.

    `ring` is the last one on which it took part in the order (None if it remembers none), which began after
    `base` and of which it holds everything up to `aru`. `attempt` is a later one on which it has begun to
    recover, and of which it holds everything up to `attempt_aru`: others may have got further there.
    """

    incarnation: int
    ring: RingId | None
    base: int
    aru: int
    attempt: RingId | None
    attempt_aru: int


class Commit(Pdu, frozen=True, gc=False):
    """The commit token: two rounds along its list, on the first of which each member adds its evidence."""

    code: ClassVar[int] = 84
    ring: RingId
    hop: int
    members: tuple[Site, ...]
    evidence: tuple[Evidence, ...]


class Join(Pdu, frozen=True, gc=False):
    """Whom its sender knows of (`known`), and whom of them it holds to be gone (`failed`)."""

    code: ClassVar[int] = 85
    incarnation: int
    ring_seq: int
    known: tuple[Site, ...]
    failed: tuple[Site, ...]


class Announce(Pdu, frozen=True, gc=False):
    """A ring's representative tells that there is one, so that rings meet that have nothing to send."""

    code: ClassVar[int] = 86
    ring: RingId


class Wake(Pdu, frozen=True, gc=False):
    """Asks the representative not to keep the token, since there is something to send."""

    code: ClassVar[int] = 87
    ring: RingId


class Leave(Pdu, frozen=True, gc=False):
    """Its sender goes; nobody need wait until it is missed."""

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
    """The knobs, with Corosync's defaults where it has them; each says what raising it costs."""

    delivery: Literal["safe", "agreed"] = "safe"
    """Deliver what all on the ring hold, or what is known to lack nothing before it. Safe costs a rotation
    or two of latency; agreed costs what a message is worth that only its sender had when it crashed."""
    token_ns: Nanoseconds = 1000 * MILLISECOND_NS
    """How long the token may be missing. Raising it costs a longer halt when someone goes."""
    retransmits: int = 4
    """How often a token is sent again before it is held to be lost. Raising it costs traffic."""
    join_ns: Nanoseconds = 50 * MILLISECOND_NS
    """Pause between join messages. Raising it costs a longer halt when one is lost."""
    consensus_ns: Nanoseconds = 1200 * MILLISECOND_NS
    """How long members may take to agree on who is there. Raising it costs a longer halt when one is not."""
    announce_ns: Nanoseconds = 200 * MILLISECOND_NS
    """Pause between announcements of a ring. Raising it costs time until rings that can meet do."""
    window: int = 50
    """Multicasts in one rotation. Raising it costs memory, and losses where receivers are slow."""
    max_messages: int = 17
    """Multicasts in one visit of the token. Raising it costs the others latency."""
    admission: int = 256
    """Own batches admitted and not delivered yet. Raising it costs memory."""
    says_goodbye: bool = False
    """Whether a member that leaves tells the others, as a Corosync that is shut down does; the paper's does
    not. True costs nothing but helps only where members know beforehand that they go."""

    def __post_init__(self) -> None:
        if self.delivery not in ("safe", "agreed"):
            raise UsageError(f"There is no delivery '{self.delivery}'.", hint="Choose safe or agreed.")
        if min(self.window, self.max_messages, self.admission, self.retransmits) < 1:
            raise UsageError("Totem's windows hold at least one message, and a token is sent again once.")
        if min(self.token_ns, self.join_ns, self.consensus_ns, self.announce_ns) <= 0:
            raise UsageError("Totem's times are positive.")

    @property
    def retransmit_ns(self) -> Nanoseconds:
        """Pause before a token is sent again: Corosync's formula."""
        return max(1, self.token_ns * 10 // (10 * self.retransmits + 2))

    @property
    def rest_ns(self) -> Nanoseconds:
        """How long the representative keeps an idle ring's token: nobody must hold it to be lost."""
        return max(1, self.retransmit_ns * 8 // 10)

    @property
    def reach(self) -> int:
        """How far sequence numbers run ahead of what all are known to hold; not felt unless one is stuck."""
        return 8 * (self.window + self.max_messages)
