"""The sequencer's core: gives tags their numbers, and knows nothing of groups, bodies or clocks."""

from collections.abc import Sequence
from typing import Final

from antiphon.core.ids import Site
from antiphon.protocols.dpg.pdus import MOST_TAGS, ORIGIN, Tag
from antiphon.protocols.dpg.services.tag_sequencer.numbers import Numbers
from antiphon.protocols.dpg.services.tag_sequencer.pdus import FIRST_NUMBER

MOST_SENDERS: Final = 4096
"""Senders whose latest tag is remembered, or whose tags wait for another. Raising it costs memory."""
MOST_WAITING: Final = 64
"""Tags of a sender that wait for an earlier tag; a sender lists refused ones. Raising it costs memory."""
MOST_READY: Final = 4 * MOST_TAGS
"""Tags that wait for the next PDU. Raising it costs memory."""


class TagSequencer:
    """Numbers tags as they come, and each sender's in the order in which it sent them.

    A tag is numbered only after the sender's previous tag. If that is not known here, the tag waits until it
    comes or until the sender lists all its tags without a number.
    """

    def __init__(self, numbers: Numbers) -> None:
        self.next_number = FIRST_NUMBER
        self.ready: dict[Tag, Site] = {}
        self._numbers = numbers
        self._latest: dict[Site, Tag] = {}
        self._waiting: dict[Site, dict[Tag, Tag]] = {}

    def begin(self, next_number: int) -> None:
        """Go on from this number; unnumbered tags must be offered again."""
        self.next_number = next_number
        self.ready.clear()
        self._waiting.clear()

    def offer(self, sender: Site, tag: Tag, previous: Tag) -> bool:
        """A tag has come with its message; False if it must wait for an unknown tag."""
        if self._is_known(tag):
            return True
        if not (previous == ORIGIN or self._latest.get(sender) == previous or self._is_known(previous)):
            self._wait(sender, tag, previous)
            return False
        self._take(sender, tag)
        return True

    def request(self, sender: Site, tags: Sequence[Tag]) -> list[int]:
        """Take all tags without a number of a sender, in its order. Returns the numbers given before."""
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
        """Number the tags that are ready, as many as fit a PDU. Returns the first number and the tags."""
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
        """Number it next, and the tags that waited for it."""
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
