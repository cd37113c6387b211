"""What is said about numbers of tags, and what a user may turn.

Lists of tags are packed, as `tag_lists` says.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import msgspec

from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import MAXIMUM_NAME_BYTES, Pdu
from antiphon.protocols.dpg.pdus import LARGEST, MOST_TAGS, ORIGIN, Tag
from antiphon.protocols.dpg.tag_lists import are_tags, unpack_tags

LONGEST_LEAP: Final = 1 << 32
"""How far beyond what is known here a counter or number may lie that somebody tells."""
FIRST_NUMBER: Final = 1
"""The number of the first tag; `ORIGIN` stands before it."""


NOTE: Final = msgspec.msgpack.Decoder(tuple[int, str, int])


class Epoch(NamedTuple):
    """The reign of one sequencer; of two, the greater counts."""

    counter: int
    sequencer: Site


NO_EPOCH: Final = Epoch(0, "")


class TagRequest(Pdu, frozen=True, gc=False):
    """A sender's tags that have no number yet, all of them, oldest first; and numbers that it lacks.

    The numbers from `first` to `last` are asked for; none if `last` is below `first`.
    """

    code: ClassVar[int] = 74
    tags: bytes
    first: int
    last: int


class Numbered(Pdu, frozen=True, gc=False):
    """The tags that have the numbers first, first+1, …, told by the sequencer of an epoch.

    The numbers from `base` on were given in this epoch, those below in earlier ones. Nobody is to replace
    this sequencer before it has been silent for `lease_ns`.
    """

    code: ClassVar[int] = 75
    counter: int
    base: int
    lease_ns: int
    first: int
    tags: bytes


class Claim(Pdu, frozen=True, gc=False):
    """The sender is the sequencer of this epoch from now on, or asks whether it still is.

    It knows the numbers up to `through`.
    """

    code: ClassVar[int] = 76
    counter: int
    through: int


class Answer(Pdu, frozen=True, gc=False):
    """Which epoch the sender holds for the latest, and the numbers it has beyond those of a claimant.

    It knows all numbers up to `through`, and these tags under first, first+1, …: 0 stands for unknown.
    """

    code: ClassVar[int] = 77
    counter: int
    sequencer: Site
    through: int
    first: int
    tags: bytes


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
    """How long a sender waits for a number before it asks. Raising it costs latency when one is lost."""
    gap_ns: Nanoseconds = 3 * MILLISECOND_NS
    """How long a missing number may be mere reordering. Raising it costs latency when one is lost."""
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
    """A sequencer that is no member: tags are unicast to it at once."""

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


def is_name(site: Site) -> bool:
    """Whether a name that a peer tells can be one."""
    return 0 < len(site) <= MAXIMUM_NAME_BYTES


def is_number(number: int, known: int) -> bool:
    """Whether a number or counter that a peer tells is believed, given what is known here (0: nothing)."""
    return 0 <= number < LARGEST and (known == 0 or number <= known + LONGEST_LEAP)


def read_answer(answer: Answer, known: int) -> tuple[Tag, ...] | None:
    """The tags that somebody answers with, given what is known here; None if it makes no sense."""
    tags = read_tags(answer.tags, unknown=True)
    if tags is None or not 0 <= answer.through <= LARGEST or not 0 < answer.first <= LARGEST:
        return None
    return tags if is_number(answer.first + len(tags), known) else None


def pack_note(epoch: Epoch, newest: int) -> bytes:
    """What rides on reports: the epoch that a member follows, and the greatest number that it knows."""
    return msgspec.msgpack.encode((*epoch, newest))


def read_note(data: bytes, known: int) -> tuple[Epoch, int] | None:
    """The same of another, given the greatest number known here; None if it makes no sense."""
    try:
        counter, sequencer, newest = NOTE.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError):
        return None
    return (Epoch(counter, sequencer), newest) if is_number(newest, known) else None
