"""What falls to an epoch's sequencer: it takes tags, numbers and announces them, and places them itself."""

from typing import Final

from antiphon.core.effects import Send, SetTimer
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.protocols.dpg.pdus import Tag
from antiphon.protocols.dpg.services.base import PREFIX, Channel
from antiphon.protocols.dpg.services.tag_sequencer.announcing import Announcer
from antiphon.protocols.dpg.services.tag_sequencer.asking import MOST_ASKED
from antiphon.protocols.dpg.services.tag_sequencer.following import Following
from antiphon.protocols.dpg.services.tag_sequencer.numbering import MOST_SENDERS, TagSequencer
from antiphon.protocols.dpg.services.tag_sequencer.numbers import Numbers
from antiphon.protocols.dpg.services.tag_sequencer.pdus import Ask, SequencerOptions

PLACE: Final = PREFIX + "place"
LAST_WORDS: Final = 3
"""How often a sequencer that leaves tells its last numbers again."""
STALE_NS: Final[Nanoseconds] = 400 * MILLISECOND_NS
"""A new sequencer numbers no message by itself that came longer ago: it may have been ordered without."""
ASK_AGAIN_NS: Final[Nanoseconds] = 3 * MILLISECOND_NS
"""Pause before the sequencer asks the same sender again."""


class Leading:
    """One member's, which is the sequencer while it is `active`.

    Whoever stood still for long may have been replaced. It does nothing then, and says so.
    """

    def __init__(
        self, channel: Channel, options: SequencerOptions, numbers: Numbers, following: Following
    ) -> None:
        self.active = False
        self._numbers = numbers
        self.sequencer = TagSequencer(numbers)
        self.announcer = Announcer(channel.emit, options, self.sequencer, numbers)
        self._channel = channel
        self._following = following
        self._base = 0
        self._asked: dict[Site, Nanoseconds] = {}
        self._told: list[tuple[int, Tag]] = []
        """Numbers that were announced and have no place in our own view yet."""
        self._armed = False

    def begin_epoch(self) -> None:
        """An epoch of ours, in which no number has been given yet."""
        self.active = False
        self._base = 0

    def begin(self, now: Nanoseconds, counter: int, next_number: int, known_by_all: int) -> None:
        """Go on from this number, and number what we have seen without one; `announce` comes next."""
        sequencer, following = self.sequencer, self._following
        sequencer.begin(next_number)
        self._base = self._base or next_number
        self.active = True
        self.announcer.begin(now, counter, self._base, known_by_all)
        following.forget_older(now - STALE_NS)
        for tag, entry in following.unnumbered.items():
            self.take(now, entry.sender, tag, entry.previous)
        self._take_own()

    def end(self) -> None:
        """No longer be the sequencer."""
        self.active = False

    def leave(self, now: Nanoseconds) -> None:
        """End, and tell whoever follows us where to go on; what was told is placed, as no step follows."""
        self.place(now)
        for _ in range(LAST_WORDS):
            self.announcer.say_again()
        self.active = False

    def take(self, now: Nanoseconds, sender: Site, tag: Tag, previous: Tag) -> None:
        """A tag has come with its message; its sender is asked if one before it has not."""
        if self.sequencer.offer(sender, tag, previous):
            return
        if sender == self._channel.site:  # the one before got its place without a number of ours
            self._take_own()
        else:
            self._ask_sender(now, sender)

    def _take_own(self) -> None:
        self.sequencer.request(self._channel.site, [message.tag for message in self._channel.unlocated()])

    def take_all(self, sender: Site, tags: tuple[Tag, ...], first: int, last: int) -> None:
        """A sender lists its tags without number; it is told these and other numbers that it lacks."""
        self.announcer.tell_places(sender, self.sequencer.request(sender, tags))
        self.announcer.tell(sender, first, min(last, first + MOST_ASKED - 1))

    def announce(self, now: Nanoseconds, *, at_once: bool) -> bool:
        """Tell the numbers of what is ready, unless it is too early. False if we stood still.

        They count for ourselves only when this step is over and they are on their way (`place`): whoever is
        stopped before that, and wakes up when others have numbered the same anew, has delivered nothing.
        """
        sequencer, announcer = self.sequencer, self.announcer
        if not sequencer.ready:
            return True
        if announcer.is_stalled(now):
            return False
        while sequencer.ready and (announcer.may_speak(now) or at_once):
            first, tags = announcer.announce(now)
            self._told.extend(enumerate(tags, first))
        if self._told and not self._armed:
            self._armed = True
            self._channel.emit(SetTimer(PLACE, 1))
        return True

    def place(self, now: Nanoseconds) -> None:
        """Take what was told into our own view, unless others may have numbered the same meanwhile."""
        if self._told and self.active and not self.announcer.is_stalled(now):
            # The member may hand over the next message as soon as one has its place: that one comes later.
            told, self._told = self._told, []
            for number, tag in told:
                self._following.place(now, number, tag)

    def fire_place(self, now: Nanoseconds) -> None:
        """The timer `PLACE`: nothing else has happened since."""
        self._armed = False
        self.place(now)

    def withdraw(self) -> None:
        """Another is the sequencer now: what we told and have not placed has the number that it says."""
        if self._told:
            self._numbers.drop_from(self._told[0][0])
            self._told.clear()

    def tick(self, now: Nanoseconds) -> bool:
        """See whether the last numbers are to be told again. False if we stood still."""
        if self.announcer.is_stalled(now):
            return False
        self.announcer.fire_tick(now)
        return True

    def _ask_sender(self, now: Nanoseconds, sender: Site) -> None:
        """Ask a sender for what we lack of it, not too often."""
        if now < self._asked.get(sender, 0) or sender == self._channel.site:
            return
        if len(self._asked) >= MOST_SENDERS:
            self._asked.clear()
        self._asked[sender] = now + ASK_AGAIN_NS
        self._channel.emit(Send(sender, Ask()))
