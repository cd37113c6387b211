"""The known numbers of tags: a bounded window of the latest."""

from collections.abc import Iterator
from typing import Final

from antiphon.protocols.dpg.pdus import MOST_TAGS, ORIGIN, Tag
from antiphon.protocols.dpg.services.tag_sequencer.pdus import FIRST_NUMBER

SLACK: Final = 256
"""Numbers kept beyond the limit, so that forgetting costs little each. Raising it costs memory."""


class Numbers:
    """Numbers and tags, both ways.

    `tags` gives a number's tag, `places` a tag's number: the first one known, if it was numbered twice.
    From `start` to `through` everything has been known without a gap; `newest` is the greatest number known.
    All three are 0 as long as nothing is known.
    """

    def __init__(self, limit: int) -> None:
        self.tags: dict[int, Tag] = {}
        self.places: dict[Tag, int] = {}
        self.start = 0
        self.through = 0
        self.newest = 0
        self.limit = limit
        self._floor = 0
        self._least = 0
        self._whole = False

    def begin_at(self, least: int) -> None:
        """Forget lower numbers, and learn none of them again."""
        self._least = least
        for number in [number for number in self.tags if number < least]:
            self._forget(number)
        if not self.tags:
            self.start = self.through = self.newest = self._floor = 0
        elif self.start < least:
            self.start = self.through = min(self.tags)
            self._floor = self.start - 1
            self._extend()

    def expect_all(self) -> None:
        """No number has been given yet: all numbers before the first to arrive are missing."""
        self._whole = not self.tags

    def add(self, number: int, tag: Tag) -> bool:
        """Learn a number; False if it was known already, or lies too far back."""
        tags = self.tags
        if number in tags or number <= self.newest - self.limit or number < self._least:
            return False
        if not tags and self._whole:
            self.start, self.through, self._floor = FIRST_NUMBER, FIRST_NUMBER - 1, 0
        elif not tags:
            self.start = self.through = number
            self._floor = number - 1
        tags[number] = tag
        self.places.setdefault(tag, number)
        if number > self.newest:
            self.newest = number
            if number - self._floor > self.limit + SLACK:
                self._forget_below(number - self.limit)
        elif number <= self._floor:
            self._floor = number - 1
        if number == self.through + 1:
            self._extend()
        elif number == self.start - 1:
            self._extend_down()
        return True

    def knows_between(self, low: int, high: int) -> bool:
        """Whether every number between these two has been seen."""
        if high - low == 1 or (self.start <= low and high <= self.through):
            return True
        return high - low - 1 <= len(self.tags) and all(n in self.tags for n in range(low + 1, high))

    def listed(self, first: int) -> tuple[int, list[Tag]]:
        """The tags from `first` on to the newest, `ORIGIN` for the unknown; the latest ones of too many."""
        first = max(min(first, self.newest + 1), self.newest - MOST_TAGS + 1, 1)
        return first, [self.tags.get(number, ORIGIN) for number in range(first, self.newest + 1)]

    def runs(self, first: int, last: int) -> Iterator[tuple[int, list[Tag]]]:
        """What is known of these numbers, in pieces without gaps that each fit a PDU."""
        run: list[Tag] = []
        begin = first
        for number in range(max(first, self._floor + 1), min(last, self.newest) + 1):
            tag = self.tags.get(number)
            if run and (tag is None or len(run) == MOST_TAGS):
                yield begin, run
                run = []
            if tag is not None:
                begin = begin if run else number
                run.append(tag)
        if run:
            yield begin, run

    def hole(self) -> tuple[int, int] | None:
        """The first numbers that are missing below the newest."""
        if self.through >= self.newest:
            return None
        return self.through + 1, self._next_known() - 1

    def skip_hole(self) -> None:
        """The numbers of the first hole stay unknown: go on behind it."""
        if self.through < self.newest:
            self.start = self.through = self._next_known()
            self._extend()

    def drop_from(self, base: int) -> list[tuple[int, Tag]]:
        """Forget the numbers from `base` on, which are given anew. Returns them with their tags."""
        self._least = min(self._least, base)
        dropped = [(number, tag) for number, tag in self.tags.items() if number >= base]
        for number, _ in dropped:
            self._forget(number)
        if not self.tags:
            self.start = self.through = self.newest = self._floor = 0
        elif dropped:
            self.newest = max(self.tags)
            if self.through > self.newest:
                self.through = self.newest
                self.start = min(self.start, self.newest)
        return dropped

    def _forget(self, number: int) -> None:
        tag = self.tags.pop(number)
        if self.places.get(tag) == number:
            del self.places[tag]

    def _extend(self) -> None:
        tags = self.tags
        through = self.through
        while through + 1 in tags:
            through += 1
        self.through = through

    def _extend_down(self) -> None:
        while self.start - 1 in self.tags:
            self.start -= 1

    def _next_known(self) -> int:
        """The least number known beyond `through`."""
        if self.newest - self.through > len(self.tags):
            return min(number for number in self.tags if number > self.through)
        number = self.through + 1
        while number not in self.tags:
            number += 1
        return number

    def _forget_below(self, floor: int) -> None:
        """Forget the numbers up to `floor`."""
        if floor - self._floor > len(self.tags):
            stale = [number for number in self.tags if number <= floor]
        else:
            stale = [number for number in range(self._floor + 1, floor + 1) if number in self.tags]
        for number in stale:
            self._forget(number)
        self._floor = floor
        if self.through < floor:
            self.through = floor
            self.start = floor + 1
            self._extend()
