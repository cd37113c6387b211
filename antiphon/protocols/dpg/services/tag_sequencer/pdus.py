"""The PDUs and the options of the tag sequencer.

Lists of tags are packed, as `tag_lists` says.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from antiphon.core.errors import UsageError
from antiphon.core.fields import LONGEST_NAME, NUMBER_LIMIT, Number
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg.pdus import MOST_TAGS, ORIGIN, PackedTags, Tag, Time
from antiphon.protocols.dpg.tag_lists import are_tags, unpack_tags

LONGEST_LEAP: Final = 1 << 16
"""How far a peer's counter or number may exceed what is known here. Raising it lets a liar skip more."""
FIRST_NUMBER: Final = 1
"""The number of the first tag; `ORIGIN` stands before it."""
LAST_NUMBER: Final = NUMBER_LIMIT // 4
"""Beyond it a new epoch begins again at the first number: only a liar has got there."""

TagNumber: TypeAlias = Annotated[int, Meta(ge=FIRST_NUMBER, le=NUMBER_LIMIT // 2)]
"""A number in a request or an answer."""
GivenNumber: TypeAlias = Annotated[int, Meta(ge=FIRST_NUMBER, le=NUMBER_LIMIT // 2 - MOST_TAGS)]
"""A number that a sequencer gives: the numbers of the tags behind it fit as well."""
Sequencer: TypeAlias = Annotated[Site, Meta(max_length=LONGEST_NAME)]
"""The name of an epoch's sequencer; empty if there is no epoch."""

NOTE: Final = msgspec.msgpack.Decoder(tuple[Number, Sequencer, Number])


class Epoch(NamedTuple):
    """The term of one sequencer; of two, the greater counts."""

    counter: int
    sequencer: Site


NO_EPOCH: Final = Epoch(0, "")
FIRST_EPOCH: Final = 1
"""The counter of a claim if no epoch is known."""


class TagRequest(Pdu, frozen=True, gc=False):
    """A sender's tags that have no number yet, all of them, oldest first; and numbers that it lacks.

    The numbers from `first` to `last` are asked for; none if `last` is below `first`.
    """

    code: ClassVar[int] = 74
    tags: PackedTags
    first: TagNumber
    last: Number


class Numbered(Pdu, frozen=True, gc=False):
    """The tags that have the numbers first, first+1, …, told by the sequencer of an epoch.

    The numbers from `base` on were given in this epoch, those below in earlier epochs. No member may replace
    this sequencer before it has been silent for `lease_ns`.
    """

    code: ClassVar[int] = 75
    counter: Number
    base: GivenNumber
    lease_ns: Time
    first: GivenNumber
    tags: PackedTags


class Claim(Pdu, frozen=True, gc=False):
    """The sender is the sequencer of this epoch from now on, or asks whether it still is.

    It knows the numbers up to `through`.
    """

    code: ClassVar[int] = 76
    urgent: ClassVar[bool] = True
    counter: Number
    through: Number


class Answer(Pdu, frozen=True, gc=False):
    """The latest epoch that the sender knows, and the numbers that a claimant lacks.

    It knows all numbers up to `through`, and these tags under first, first+1, …: 0 stands for unknown.
    """

    code: ClassVar[int] = 77
    urgent: ClassVar[bool] = True
    counter: Number
    sequencer: Sequencer
    through: Number
    first: TagNumber
    tags: PackedTags


class Ask(Pdu, frozen=True, gc=False):
    """The sequencer asks a sender for its tags without number: it lacks one before another."""

    code: ClassVar[int] = 78


PDUS: Final[tuple[type[Pdu], ...]] = (TagRequest, Numbered, Claim, Answer, Ask)


@dataclass(frozen=True, kw_only=True)
class SequencerOptions:
    """The knobs; each says what raising it costs."""

    gather_ns: Nanoseconds = MILLISECOND_NS // 4
    """Least pause between the sequencer's PDUs. Raising it costs latency under load."""
    repeat_ns: Nanoseconds = 10 * MILLISECOND_NS
    """How long a sender waits for a number before it asks. Raising it costs latency after a loss."""
    gap_ns: Nanoseconds = 3 * MILLISECOND_NS
    """How long a missing number may be mere reordering. Raising it costs latency after a loss."""
    takeover_ns: Nanoseconds = 40 * MILLISECOND_NS
    """Least silence after which a sequencer is replaced. Raising it costs a longer halt when it is gone."""
    spread_ns: Nanoseconds = 10 * MILLISECOND_NS
    """Random part of every wait before a claim. Raising it costs the same; lowering it, rival claims."""
    gather_answers_ns: Nanoseconds = 25 * MILLISECOND_NS
    """How long a claimant waits for answers. Raising it costs a longer halt when another is gone too."""
    repeats: int = 16
    """Numbers before its own that each PDU tells again. Raising it costs bytes."""
    memory: int = 1 << 14
    """Numbers remembered. Raising it costs memory."""
    outside: Site | None = None
    """A sequencer that is no member: tags are unicast to it at once, and no member replaces it."""

    def __post_init__(self) -> None:
        spans = (self.repeat_ns, self.gap_ns, self.takeover_ns, self.spread_ns, self.gather_answers_ns)
        if min(spans) <= 0 or self.gather_ns < 0:
            raise UsageError("The tag sequencer's pauses are positive.")
        if not 0 <= self.repeats <= MOST_TAGS // 2:
            raise UsageError(f"A PDU may tell 0 to {MOST_TAGS // 2} numbers again.")
        if self.memory < MOST_TAGS:
            raise UsageError(f"The tag sequencer must remember at least {MOST_TAGS} numbers.")

    @property
    def tick_ns(self) -> Nanoseconds:
        """How often a sequencer looks after itself."""
        return max(1, self.takeover_ns // 4)


def read_tags(packed: bytes, *, unknown: bool = False) -> tuple[Tag, ...] | None:
    """The tags in a packed list; None if it makes no sense. `ORIGIN` may stand for an unknown one."""
    tags = unpack_tags(packed)
    named = [tag for tag in tags or () if tag != ORIGIN] if unknown else tags or ()
    return tags if are_tags(named) else None


def is_leap(number: int, known: int) -> bool:
    """Whether what a peer tells lies too far beyond what is known here (0: nothing) to be believed."""
    return number >= NUMBER_LIMIT // 2 or (known != 0 and number > known + LONGEST_LEAP)


def pack_note(epoch: Epoch, newest: int) -> bytes:
    """The note in reports: the epoch that a member follows, and the greatest number that it knows."""
    return msgspec.msgpack.encode((*epoch, newest))


def read_note(data: bytes) -> tuple[Epoch, int] | None:
    """Another member's note; None if it is invalid."""
    try:
        counter, sequencer, newest = NOTE.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError):
        return None
    return Epoch(counter, sequencer), newest
