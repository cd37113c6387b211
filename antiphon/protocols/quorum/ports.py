"""What a driver of the quorum protocol gives and gets beside the inputs and effects of every protocol."""

import zlib
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from antiphon.core.effects import CancelTimer, Disagreed, Multicast, Send, SetTimer
from antiphon.core.fields import Hash, Incarnation, Name, Number
from antiphon.core.ids import Site
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.protocols.quorum.pdus import Config, Entry

HEAD_BYTES: Final = 4


class SessionState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member's latest session: which it is, the number of its next batch, and whether it is open."""

    life: Incarnation
    next: Number
    open: bool


class SnapshotHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the protocol keeps beside the machine's own snapshot."""

    index: Number
    term: Number
    config: Config
    sessions: Annotated[dict[Name, SessionState], Meta(max_length=1 << 16)]
    time_ns: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    is_sealed: bool = False
    is_touched: bool = True
    merging: list[bytes] = []
    """Pieces of another side's state that are not all there yet."""


class Snapshot:
    """The whole state up to an index: what a member needs instead of the entries up to there."""

    __slots__ = ("_checksum", "_prefix", "data", "head")

    def __init__(self, head: SnapshotHead, data: bytes) -> None:
        self.head: Final = head
        self.data: Final = data
        encoded = msgspec.msgpack.encode(head)
        self._prefix: Final = len(encoded).to_bytes(HEAD_BYTES, "big") + encoded
        self._checksum: int | None = None

    @property
    def index(self) -> int:
        return self.head.index

    @property
    def prefix(self) -> bytes:
        """The head as it travels, before the machine's own bytes."""
        return self._prefix

    @property
    def size(self) -> int:
        return len(self._prefix) + len(self.data)

    @property
    def checksum(self) -> int:
        if self._checksum is None:
            self._checksum = zlib.crc32(self.data, zlib.crc32(self._prefix))
        return self._checksum

    def part(self, begin: int, length: int) -> bytes:
        """Some bytes of it as it travels."""
        end, lead = begin + length, len(self._prefix)
        return self._prefix[begin:end] + self.data[max(0, begin - lead) : max(0, end - lead)]

    @staticmethod
    def read(blob: bytes | bytearray | memoryview) -> "Snapshot":
        """A snapshot from its bytes; ValueError if they make no sense."""
        view = memoryview(blob)
        length = int.from_bytes(view[:HEAD_BYTES], "big")
        end = HEAD_BYTES + length
        if end > len(view):
            raise ValueError("a snapshot without its head")
        try:
            head = msgspec.msgpack.decode(view[HEAD_BYTES:end], type=SnapshotHead)
        except msgspec.MsgspecError as error:
            raise ValueError("a snapshot whose head cannot be read") from error
        return Snapshot(head, bytes(view[end:]))


class Durable(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member must remember beside its log."""

    identity: Incarnation
    group: Hash
    base: Config
    """The members at the beginning of the log."""
    term: Number
    vote: Annotated[Site, Meta(max_length=64)]
    """The candidate that got this member's vote in `term`; empty if there is none."""


class Recovered(msgspec.Struct, frozen=True):
    """What a disk still has."""

    durable: Durable
    snapshot: Snapshot | None = None
    entries: tuple[Entry, ...] = ()
    """The entries behind the snapshot."""


# Inputs


class Call(msgspec.Struct, frozen=True, gc=False):
    """The application hands in a batch of commands. `ticket` names it at this member."""

    ticket: int
    body: bytes


class Abandon(msgspec.Struct, frozen=True, gc=False):
    """The application no longer waits for any of its batches: those without a place lose their commands."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """Everything up to this position of the effects `Store` and `Install` is on disk."""

    position: int


class Snapshotted(msgspec.Struct, frozen=True, gc=False):
    """The machine's snapshot, taken when everything committed so far was applied."""

    data: bytes


class Wish(msgspec.Struct, frozen=True, gc=False):
    """The application wants a member added, or removed."""

    name: Site
    remove: bool


class ClockTick(msgspec.Struct, frozen=True, gc=False):
    """The machine wants to know the time. Only a leader passes it on."""

    time_ns: int


class Leave(msgspec.Struct, frozen=True, gc=False):
    """This process is about to end."""


class Seal(msgspec.Struct, frozen=True, gc=False):
    """Let no batch take effect from now on, or let batches take effect again. Only a leader can."""

    on: bool


class TakeIn(msgspec.Struct, frozen=True, gc=False):
    """Merge another side's state, which came from `source`. Only a leader can."""

    source: Site
    data: bytes


class Taken(msgspec.Struct, frozen=True, gc=False):
    """The machine's state, as `TakeState` asked for it."""

    index: int
    data: bytes


QuorumInput: TypeAlias = (
    Start | Received | TimerFired | Call | Abandon | Stored | Snapshotted | Wish | ClockTick | Leave | Seal
    | TakeIn | Taken
)  # fmt: skip

# Effects


class Store(msgspec.Struct, frozen=True, gc=False):
    """Write this behind everything before it, and answer with `Stored` once it is on disk.

    Entries replace everything from index `first` on.
    """

    position: int
    durable: Durable | None = None
    first: int = 0
    entries: tuple[Entry, ...] = ()


class Install(msgspec.Struct, frozen=True):
    """Replace the machine's state, and everything stored, by a snapshot of another member."""

    position: int
    snapshot: Snapshot


class Compact(msgspec.Struct, frozen=True):
    """Store this snapshot of our own. The entries from index `first` on are still needed."""

    snapshot: Snapshot
    first: int


class Apply(msgspec.Struct, frozen=True, gc=False):
    """An entry is committed: apply it. `ticket` is set if it is a batch of this process."""

    index: int
    entry: Entry
    ticket: int | None = None


class Merge(msgspec.Struct, frozen=True, gc=False):
    """Another side's state is agreed upon at this place of the order: merge it into the machine's."""

    index: int
    source: Site
    data: bytes


class TakeState(msgspec.Struct, frozen=True, gc=False):
    """Answer with the machine's state, in which everything up to `index` is applied, as the input `Taken`."""

    index: int


class Parted(msgspec.Struct, frozen=True, gc=False):
    """This member goes on alone, from its own state. Its batches under way may have taken effect, or not."""

    reason: str


class Unanswered(msgspec.Struct, frozen=True, gc=False):
    """A batch of this process was applied elsewhere; its results went with the entries."""

    ticket: int


class Led(msgspec.Struct, frozen=True, gc=False):
    """The leader is this member; None while there is none."""

    leader: Site | None
    term: int


class Severed(msgspec.Struct, frozen=True, gc=False):
    """This member has no contact with a majority; `reason` is one plain sentence."""

    reason: str


class Rejoined(msgspec.Struct, frozen=True, gc=False):
    """This member is in contact with a majority again."""


class Founded(msgspec.Struct, frozen=True, gc=False):
    """This member belongs to a group from now on. `anew` says that the group began empty just now."""

    anew: bool


class Members(msgspec.Struct, frozen=True, gc=False):
    """The members, once the entry that names them is committed."""

    config: Config


class Expelled(msgspec.Struct, frozen=True, gc=False):
    """This member was removed from its group."""


QuorumEffect: TypeAlias = (
    Send | Multicast | SetTimer | CancelTimer | Disagreed | Store | Install | Compact | Apply | Unanswered
    | Led | Severed | Rejoined | Founded | Members | Expelled | Merge | TakeState | Parted
)  # fmt: skip
