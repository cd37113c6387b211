"""The sequencer's core: gives tags their numbers, and knows nothing of groups, bodies or clocks."""

from collections.abc import Sequence
from typing import Final

from antiphon.core.ids import Site
from antiphon.protocols.dpg.pdus import MOST_TAGS, ORIGIN, Tag
from antiphon.protocols.dpg.services.tag_sequencer.numbers import Numbers
from antiphon.protocols.dpg.services.tag_sequencer.pdus import FIRST_NUMBER

MOST_SENDERS: Final = 4096
"""Senders whose latest tag is remembered, and senders of whom a tag may wait for another."""
MOST_WAITING: Final = 64
"""Tags of one sender that wait for an earlier one. A sender lists what is refused when it asks."""
MOST_READY: Final = 4 * MOST_TAGS
"""Tags that wait for the next PDU."""


class TagSequencer:
    """Numbers tags: each sender's in the order in which it sent them, all of them as they come.

    A tag is numbered only after the one before it of the same sender. If that one is not known here, the tag
    waits until it comes or until the sender lists all its tags without number.
    """

    def __init__(self, numbers: Numbers) -> None:
        self.next_number = FIRST_NUMBER
        self.ready: dict[Tag, Site] = {}
        self._numbers = numbers
        self._latest: dict[Site, Tag] = {}
        self._waiting: dict[Site, dict[Tag, Tag]] = {}

    def begin(self, next_number: int) -> None:
        """Go on from here; whatever was to be numbered must be offered again."""
        self.next_number = next_number
        self.ready.clear()
        self._waiting.clear()

    def offer(self, sender: Site, tag: Tag, previous: Tag) -> bool:
        """A tag has come with its message; False if it must wait for one that is not known."""
        if self._is_known(tag):
            return True
        if not (previous == ORIGIN or self._latest.get(sender) == previous or self._is_known(previous)):
            self._wait(sender, tag, previous)
            return False
        self._take(sender, tag)
        return True

    def request(self, sender: Site, tags: Sequence[Tag]) -> list[int]:
        """All tags of a sender that it knows no number of, in its order; returns the numbers given before."""
        places = self._numbers.places
        for tag in tags:
            if not self._is_known(tag):
                self._take(sender, tag)
        waiting = self._waiting.get(sender)
        if waiting:
            left = {before: tag for before, tag in waiting.items() if not self._is_known(tag)}
            self._waiting[sender] = left
        return [places[tag] for tag in tags if tag in places]

    def number(self) -> tuple[int, list[Tag]]:
        """Give those that are ready their numbers, as many as fit a PDU: the first number, and the tags."""
        tags = list(self.ready)
        if len(tags) > MOST_TAGS // 2:
            tags = tags[: MOST_TAGS // 2]
            for tag in tags:
                del self.ready[tag]
        else:
            self.ready.clear()
        first = self.next_number
        for number, tag in enumerate(tags, first):
            self._numbers.add(number, tag)
        self.next_number = first + len(tags)
        return first, tags

    def _is_known(self, tag: Tag) -> bool:
        return tag in self._numbers.places or tag in self.ready

    def _take(self, sender: Site, tag: Tag) -> None:
        """Number it next, and whatever waited for it."""
        if len(self.ready) >= MOST_READY:
            return
        self.ready[tag] = sender
        waiting = self._waiting.get(sender)
        while waiting and (following := waiting.pop(tag, None)) is not None:
            tag = following
            if not self._is_known(tag):
                self.ready[tag] = sender
        if sender not in self._latest and len(self._latest) >= MOST_SENDERS:
            del self._latest[next(iter(self._latest))]
        self._latest[sender] = tag

    def _wait(self, sender: Site, tag: Tag, previous: Tag) -> None:
        waiting = self._waiting.get(sender)
        if waiting is None:
            if len(self._waiting) >= MOST_SENDERS:
                del self._waiting[next(iter(self._waiting))]
            waiting = self._waiting[sender] = {}
        if len(waiting) < MOST_WAITING:
            waiting[previous] = tag
