"""What the stability protocols share: members, counts, suspicion, views, and the use of a result.

Source: K. Guo, Scalable Message Stability Detection Protocols, sections 4.1 and 7.
Each member holds, of every sender, the messages 0 to count-1 without a gap. A round finds for every sender
the least of the members' counts; everything below it is stable. With `GREATEST` the same protocols detect
errors: members report how far they have *seen* each sender's messages, a round finds the greatest, and a
member that has seen less learns what it is missing (chapter 7).

Deviations from the text: counts of contiguous messages instead of 'the maximum sequence number', which is
unsafe when messages overtake each other, and everything below a count is stable (erratum G6). PDUs name the
view that they belong to: an owner whose membership changes makes a new object for each view.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Annotated, Final, Generic, TypeAlias, TypeVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from antiphon.core.effects import Effect, Missing, Stable
from antiphon.core.errors import UsageError
from antiphon.core.fields import MOST_NAMES, NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.protocols.stability.round_trips import USUAL, Repetition, RoundTrips

Counts: TypeAlias = NDArray[np.int64]

COUNT_BYTES: Final = 8
WIRE_COUNTS: Final = np.dtype("<i8")
LARGEST_COUNT: Final = (1 << 63) - 1
MOST_AHEAD: Final = 1 << 20
"""The furthest that an honest round is ahead of the last one known. Raising it costs numbers that a liar can
use up."""

FIRST_LIMIT: Final = NUMBER_LIMIT // 2
"""The first round that is known is below this, so that enough numbers are left."""
CountBytes: TypeAlias = Annotated[bytes, Meta(max_length=COUNT_BYTES * MOST_NAMES)]
"""A count for each sender of messages."""
Bitmap: TypeAlias = Annotated[bytes, Meta(max_length=MOST_NAMES // 8)]
"""A bit for each member."""

MOST_KEPT: Final = 8
"""Objects of each kind that the members of one process share, the latest. Raising it costs memory."""
Made = TypeVar("Made")


class Objective(Enum):
    """What a round finds of each sender's counts."""

    LEAST = "stability"
    """What all members hold."""
    GREATEST = "errors"
    """The furthest that any member has seen."""

    def fold(self, first: Counts, second: Counts) -> Counts:
        return np.minimum(first, second) if self is Objective.LEAST else np.maximum(first, second)

    def fold_rows(self, rows: Counts) -> Counts:
        """Of many members' counts at once, one row each."""
        found: Counts
        if self is Objective.LEAST:
            found = rows.min(axis=0, initial=LARGEST_COUNT)
        else:
            found = rows.max(axis=0, initial=0)
        return found


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The knobs of all protocols."""

    coordinator: Site | None = None
    """The member that triggers rounds while it is not suspected; None means the first member."""
    repetition: Repetition | None = USUAL
    """None where nothing is ever lost: then no PDU is sent twice."""
    view: int = 0
    """The number of the view of a changing group; PDUs of another view are dropped."""
    objective: Objective = Objective.LEAST
    steady: bool = False
    """Whether no member is ever suspected: then only rounds of the first member are believed."""


@dataclass(frozen=True, eq=False)
class Roster:
    """The members of a group, shared by all of them in one process."""

    order: tuple[Site, ...]
    """The members in the order in which they take over from each other."""
    rank: dict[Site, int]
    senders: tuple[Site, ...]
    place: dict[Site, int]


class Kept(Generic[Made]):
    """Objects made once for all members of a process, found again by the identity of their sources.

    To hash a hundred thousand names for each of a hundred thousand members takes minutes. The sources are
    kept too, so that nothing else can take their place in memory.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[int, ...], tuple[tuple[object, ...], Made]] = {}

    def find(self, sources: tuple[object, ...], make: Callable[[], Made]) -> Made:
        key = tuple(map(id, sources))
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= MOST_KEPT:
                del self._found[next(iter(self._found))]
            found = self._found[key] = (sources, make())
        return found[1]


_rosters: Final = Kept[Roster]()


def _make_roster(members: tuple[Site, ...], senders: tuple[Site, ...], first: Site) -> Roster:
    if len(set(members)) != len(members) or len(set(senders)) != len(senders):
        raise UsageError("A site stands twice among the members or the senders.")
    if first not in members:
        raise UsageError(f"The coordinator '{first}' is not among the members.")
    order = (first, *(member for member in members if member != first))
    ranks = {member: rank for rank, member in enumerate(order)}
    return Roster(order, ranks, senders, {sender: place for place, sender in enumerate(senders)})


class Stability:
    """One member's part of any of the protocols; each adds its own `handle`."""

    __slots__ = (
        "_array_bytes", "_held", "_objective", "_order", "_place", "_random", "_rank", "_repetition",
        "_stable", "_steady", "_suspected", "_view", "ignored", "rounds_finished", "senders", "site", "trips",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        members: Sequence[Site],
        senders: Sequence[Site],
        configuration: Configuration,
        random: Random | None = None,
    ) -> None:
        if not members:
            raise UsageError("A group needs members.")
        order, sources, first = tuple(members), tuple(senders), configuration.coordinator or members[0]
        roster = _rosters.find((order, sources, first), lambda: _make_roster(order, sources, first))
        if site not in roster.rank:
            raise UsageError(f"'{site}' is not among the members.")
        if configuration.repetition is not None and random is None:
            raise UsageError("Repetition needs a source of randomness to spread the members' repetitions.")
        self.site = site
        self.senders = roster.senders
        self._order, self._rank, self._place = roster.order, roster.rank, roster.place
        self._array_bytes = COUNT_BYTES * len(self.senders)
        self._repetition = configuration.repetition
        self._view = configuration.view
        self._objective = configuration.objective
        self._steady = configuration.steady
        self._random = random
        self._held: Counts = np.zeros(len(self.senders), WIRE_COUNTS)
        self._stable: Counts = self._held
        self._suspected: set[Site] = set()
        self.ignored = 0
        """PDUs that made no sense."""
        self.rounds_finished = 0
        """Rounds whose result this member has computed itself."""
        self.trips: RoundTrips | None = None if configuration.repetition is None else RoundTrips()
        """How long answers have taken; an owner hands on to a new object what an earlier one has measured."""

    # For the owner

    @property
    def coordinator(self) -> Site:
        """The member that triggers rounds: the first in order that this member does not suspect."""
        return next(member for member in self._order if member not in self._suspected)

    @property
    def held(self) -> tuple[int, ...]:
        return tuple(self._held.tolist())

    @property
    def stable(self) -> tuple[int, ...]:
        """What is known to be stable; in error detection, the furthest that any member has seen."""
        return tuple(self._stable.tolist())

    def hold(self, sender: Site, count: int) -> None:
        """Messages 0 to count-1 of a sender are held here, without a gap."""
        place = self._place.get(sender)
        if place is None:
            raise UsageError(f"'{sender}' is not among the senders.")
        if count < self._held[place]:
            raise UsageError(f"What is held of '{sender}' cannot go back to {count}.")
        # A new array: the old one may be part of a PDU.
        held = self._held.copy()
        held[place] = count
        self._held = held

    def hold_all(self, counts: Sequence[int] | Counts) -> None:
        """The same for every sender at once, in the order of the senders."""
        given = np.array(counts, WIRE_COUNTS)
        if not self.can_hold(given):
            raise UsageError("What is held needs one count for each sender, none going back.")
        self._held = given

    def can_hold(self, counts: Sequence[int] | Counts) -> bool:
        """Whether these are counts for each sender, none less than what was held before."""
        given = np.asarray(counts, WIRE_COUNTS)
        return given.shape == self._held.shape and not (given < self._held).any()

    def begin(self, held: Sequence[int], stable: Sequence[int]) -> None:
        """What is held and stable when a new view begins: nothing of it is declared again."""
        self.hold_all(held)
        given = np.array(stable, WIRE_COUNTS)
        beyond = self._objective is Objective.LEAST and given.shape == self._held.shape
        if given.shape != self._stable.shape or (given < self._stable).any():
            raise UsageError("What is stable needs one count for each sender, none going back.")
        if beyond and (given > self._held).any():
            raise UsageError("What is stable cannot go beyond what is held.")
        self._stable = given

    # Results

    def _are_counts(self, counts: bytes) -> bool:
        """Whether these bytes are a count for each sender.

        A count that is too great does no harm where the least is sought.
        """
        if len(counts) != self._array_bytes:
            return False
        return self._objective is Objective.LEAST or not (read_counts(counts) >= NUMBER_LIMIT).any()

    def _is_result(self, counts: bytes) -> bool:
        """Whether these bytes can be the result of a round: a count for each sender, none impossible."""
        if not self._are_counts(counts) or not none_negative(counts):
            return False
        return self._objective is not Objective.LEAST or not (read_counts(counts) > self._held).any()

    def _result(self, found: Counts) -> Counts:
        """The result of a round, joined with those of earlier ones."""
        return found if self._revises else np.maximum(self._stable, found)

    @property
    def _revises(self) -> bool:
        """Whether a later result corrects an earlier one, which may have been a lie."""
        return self._steady and self._objective is Objective.GREATEST

    def _declare(self, result: Counts) -> list[Effect]:
        """What is newly known, sender by sender."""
        if self._revises:
            # What was found before and is not found any more was wrong, and is dropped.
            self._stable = np.minimum(self._stable, np.maximum(result, self._held))
        if not (result > self._stable).any():
            return []
        before, self._stable = self._stable, np.maximum(self._stable, result)
        if self._objective is Objective.LEAST:
            rows = zip(self.senders, before.tolist(), self._stable.tolist(), strict=True)
            return [Stable(sender, then, now - then) for sender, then, now in rows if now > then]
        rows = zip(self.senders, np.maximum(before, self._held).tolist(), self._stable.tolist(), strict=True)
        return [Missing(sender, seen, now - seen) for sender, seen, now in rows if now > seen]

    def _may_follow(self, last: int, number: int) -> bool:
        """Whether a round may have this number if `last` is the greatest known."""
        return number < FIRST_LIMIT if last <= 0 else number <= last + MOST_AHEAD

    def _ignore(self) -> list[Effect]:
        self.ignored += 1
        return []


def read_counts(counts: bytes) -> Counts:
    return np.frombuffer(counts, WIRE_COUNTS)


def none_negative(counts: bytes) -> bool:
    """Whether no count is negative: the highest byte of each has its sign bit clear, as ASCII has."""
    return counts[COUNT_BYTES - 1 :: COUNT_BYTES].isascii()
