"""The tasks of an epoch's sequencer: it takes tags, numbers and announces them, and places them itself."""

from typing import Final

from antiphon.core.effects import Send, SetTimer
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.protocols.dpg.pdus import Tag
from antiphon.protocols.dpg.services.base import PREFIX, MemberView
from antiphon.protocols.dpg.services.tag_sequencer.announcer import Announcer
from antiphon.protocols.dpg.services.tag_sequencer.follower import Follower
from antiphon.protocols.dpg.services.tag_sequencer.number_requests import MOST_ASKED
from antiphon.protocols.dpg.services.tag_sequencer.numbering import MOST_SENDERS, TagSequencer
from antiphon.protocols.dpg.services.tag_sequencer.numbers import Numbers
from antiphon.protocols.dpg.services.tag_sequencer.pdus import Ask, SequencerOptions

PLACE: Final = PREFIX + "place"
LAST_WORDS: Final = 3
"""Repetitions of the last numbers by a sequencer that leaves. Raising it costs PDUs."""
STALE_NS: Final[Nanoseconds] = 400 * MILLISECOND_NS
"""A new sequencer numbers no older message by itself. Raising it risks a second place for a message."""
ASK_AGAIN_NS: Final[Nanoseconds] = 3 * MILLISECOND_NS
"""Pause before the sequencer asks the same sender again. Raising it costs latency after a loss."""


class Leader:
    """The sequencer's part of a member, which is the sequencer while this is `active`.

    A sequencer that stood still for long may have been replaced. Then it does nothing, and returns False.
    """

    def __init__(
        self, member: MemberView, options: SequencerOptions, numbers: Numbers, following: Follower
    ) -> None:
        self.active = False
        self._numbers = numbers
        self.sequencer = TagSequencer(numbers)
        self.announcer = Announcer(member.emit, options, self.sequencer, numbers)
        self._member = member
        self._follower = following
        self._base = 0
        self._asked: dict[Site, Nanoseconds] = {}
        self._told: list[tuple[int, Tag]] = []
        """Announced numbers that are not placed here yet."""
        self._armed = False

    def begin_epoch(self) -> None:
        """An own epoch begins, in which no number has been given yet."""
        self.active = False
        self._base = 0

    def begin(self, now: Nanoseconds, counter: int, next_number: int, known_by_all: int) -> None:
        """Go on from this number, and number received messages without one; `announce` follows."""
        sequencer, following = self.sequencer, self._follower
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
        """End, and tell the successor where to go on; announced numbers are placed, as no step follows."""
        self.place(now)
        for _ in range(LAST_WORDS):
            self.announcer.say_again()
        self.active = False

    def take(self, now: Nanoseconds, sender: Site, tag: Tag, previous: Tag) -> None:
        """A message was received; its sender is asked if an earlier one is missing."""
        if self.sequencer.offer(sender, tag, previous):
            return
        if sender == self._member.site:  # the previous message got its place without a number
            self._take_own()
        else:
            self._ask_sender(now, sender)

    def _take_own(self) -> None:
        self.sequencer.request(self._member.site, [message.tag for message in self._member.unlocated()])

    def take_all(self, sender: Site, tags: tuple[Tag, ...], first: int, last: int) -> None:
        """A sender lists its tags without a number; answer with the numbers that it lacks."""
        self.announcer.tell_places(sender, self.sequencer.request(sender, tags))
        self.announcer.tell(sender, first, min(last, first + MOST_ASKED - 1))

    def announce(self, now: Nanoseconds, *, at_once: bool) -> bool:
        """Announce the numbers of what is ready, unless it is too early. False if this process stood still.

        The sequencer itself uses them only in the next step, when they are on their way (`place`): if it is
        stopped before that, and others number the same anew, it has delivered nothing.
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
            self._member.emit(SetTimer(PLACE, 1))
        return True

    def place(self, now: Nanoseconds) -> None:
        """Place announced numbers here, unless others may have numbered the same meanwhile."""
        if self._told and self.active and not self.announcer.is_stalled(now):
            told, self._told = self._told, []
            for number, tag in told:
                self._follower.place(now, number, tag)

    def fire_place(self, now: Nanoseconds) -> None:
        """The timer `PLACE`: nothing else has happened since."""
        self._armed = False
        self.place(now)

    def withdraw(self) -> None:
        """Another member is the sequencer: it decides about numbers that are announced and not placed."""
        if self._told:
            self._numbers.drop_from(self._told[0][0])
            self._told.clear()

    def tick(self, now: Nanoseconds) -> bool:
        """Repeat the last numbers if due. False if this process stood still."""
        if self.announcer.is_stalled(now):
            return False
        self.announcer.fire_tick(now)
        return True

    def _ask_sender(self, now: Nanoseconds, sender: Site) -> None:
        """Ask a sender for its missing tags, not too often."""
        if now < self._asked.get(sender, 0) or sender == self._member.site:
            return
        if len(self._asked) >= MOST_SENDERS:
            self._asked.clear()
        self._asked[sender] = now + ASK_AGAIN_NS
        self._member.emit(Send(sender, Ask()))
