"""A member's view of the numbering: what it learns becomes arcs of the precedence graph."""

from bisect import bisect_left
from itertools import chain
from typing import Final, NamedTuple

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.pdus import ORIGIN, Arc, Tag
from antiphon.protocols.dpg.services.base import MemberView, Placement, Placements
from antiphon.protocols.dpg.services.tag_sequencer.number_requests import NumberRequests
from antiphon.protocols.dpg.services.tag_sequencer.numbers import Numbers
from antiphon.protocols.dpg.services.tag_sequencer.pdus import FIRST_NUMBER

MOST_UNNUMBERED: Final = 4096
"""Tags without a number that are remembered; senders ask for forgotten ones. Raising it costs memory."""
MOST_DISPLACED: Final = 4096
"""Tags displaced by another epoch's numbers that are remembered. Raising it costs memory."""


class Unnumbered(NamedTuple):
    """A received message that has no number yet."""

    sender: Site
    previous: Tag
    since_ns: Nanoseconds


class Follower:
    """Finds the place of each tag whose number becomes known, in any order.

    A number may belong to another group, or to a tag that has a place from an earlier epoch already: then
    nothing of ours stands there, and its neighbours are contiguous across it.
    """

    def __init__(self, member: MemberView, numbers: Numbers, asking: NumberRequests) -> None:
        self.unnumbered: dict[Tag, Unnumbered] = {}
        self._placed: list[Placement] = []
        """Placements that the member has not got yet."""
        self.conflicts = 0
        """Numbers that had another tag in an earlier epoch that was followed here."""
        self._displaced: dict[Tag, int] = {}
        self._contested: dict[int, Tag] = {}
        self._member = member
        self._numbers = numbers
        self._number_requests = asking
        self._ours: list[int] = []

    def take_part(self) -> None:
        """A spell begins at the member's root: what has a lower number lies before it.

        A member that stood still finds old PDUs in its buffers, and then present ones. The numbers between
        were given before its spell, and need not be requested.
        """
        numbers, member = self._numbers, self._member
        ours = (number for number, tag in numbers.tags.items() if member.is_ours(tag))
        last = max((number for number in ours if not member.is_ahead(numbers.tags[number])), default=0)
        begin = last if numbers.tags.get(last) == member.root() else last + 1
        numbers.begin_at(begin)
        del self._ours[: bisect_left(self._ours, begin)]

    def note(self, now: Nanoseconds, sender: Site, tag: Tag, previous: Tag) -> None:
        """A message was received or handed over: remember it if it has no number yet."""
        if tag not in self._numbers.places:
            if len(self.unnumbered) >= MOST_UNNUMBERED:
                del self.unnumbered[next(iter(self.unnumbered))]
            self.unnumbered[tag] = Unnumbered(sender, previous, now)

    def learn(self, now: Nanoseconds, number: int, tag: Tag) -> bool:
        """A numbered tag; False if the number was known."""
        if not self._numbers.add(number, tag):
            return False
        if self._contested and self._contested.pop(number, tag) != tag:
            self.conflicts += 1
        self.place(now, number, tag)
        return True

    def learn_all(self, now: Nanoseconds, first: int, tags: tuple[Tag, ...]) -> None:
        """The tags from a number on, most of them known already."""
        numbers, end = self._numbers, first + len(tags)
        unknown = chain(range(first, min(numbers.start, end)), range(max(first, numbers.through + 1), end))
        for number in unknown:
            self.learn(now, number, tags[number - first])
        self._number_requests.look_for_gaps(now)

    def place(self, now: Nanoseconds, number: int, tag: Tag) -> None:
        """Find the placements that follow from a number that has just become known."""
        entry = self.unnumbered.pop(tag, None)
        if entry is not None and entry.sender == self._member.site:
            self._number_requests.numbered(now, tag)
        ours = self._ours
        index = len(ours) if not ours or number > ours[-1] else bisect_left(ours, number)
        below, above = self._below(index, number), self._above(index, number)
        first_place = self._numbers.places.get(tag) == number == self._displaced.get(tag, number)
        if not (first_place and self._member.is_ours(tag)):
            if below is not None and above is not None and below[1] and above[1]:
                self._placed.append(Placement(above[0], ((below[0], above[0], True),)))
            return
        arcs: list[Arc] = []
        if below is not None:
            arcs.append((below[0], tag, below[1]))
        if above is not None:
            arcs.append((tag, above[0], above[1]))
        ours.insert(index, number)
        if len(ours) > 2 * self._numbers.limit:
            del ours[: self._numbers.limit]
        self._placed.append(Placement(tag, arcs))

    def take_placed(self) -> Placements:
        """The places found since the last call."""
        placed = self._placed
        if placed:
            self._placed = []
        return placed

    def forget_older(self, since_ns: Nanoseconds) -> None:
        """Older messages were ordered without a number, or their senders ask for one."""
        for tag in [tag for tag, entry in self.unnumbered.items() if entry.since_ns < since_ns]:
            del self.unnumbered[tag]

    def forget_sender(self, sender: Site) -> None:
        """A sender began anew: messages of its earlier process get no number."""
        for tag in [tag for tag, entry in self.unnumbered.items() if entry.sender == sender]:
            del self.unnumbered[tag]

    def drop_from(self, base: int) -> None:
        """Another epoch gives the numbers from `base` on anew. Their tags have their places here already."""
        dropped = self._numbers.drop_from(base)[-MOST_DISPLACED:]
        del self._ours[bisect_left(self._ours, base) :]
        self._contested = dict(dropped)
        self._displaced.update((tag, number) for number, tag in dropped if self._member.is_ours(tag))
        while len(self._displaced) > MOST_DISPLACED:
            del self._displaced[next(iter(self._displaced))]

    def _below(self, index: int, number: int) -> tuple[Tag, bool] | None:
        """Our tag with the next lower number, and whether nothing lies between."""
        numbers = self._numbers
        if index == 0:
            whole = numbers.start == FIRST_NUMBER and number <= numbers.through
            return (ORIGIN, True) if whole or number == FIRST_NUMBER else None
        low = self._ours[index - 1]
        tag = numbers.tags.get(low)
        return None if tag is None else (tag, numbers.knows_between(low, number))

    def _above(self, index: int, number: int) -> tuple[Tag, bool] | None:
        """Our tag with the next higher number, and whether nothing lies between."""
        if index == len(self._ours):
            return None
        high = self._ours[index]
        tag = self._numbers.tags.get(high)
        return None if tag is None else (tag, self._numbers.knows_between(number, high))
