"""The tasks of an epoch's sequencer: it takes tags, numbers and announces them, and places them itself."""

from collections import deque
from typing import Final, NamedTuple

from antiphon.core.effects import Send
from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.protocols.dpg.pdus import Tag
from antiphon.protocols.dpg.services.base import MemberView
from antiphon.protocols.dpg.services.tag_sequencer.announcer import Announcer
from antiphon.protocols.dpg.services.tag_sequencer.follower import Follower
from antiphon.protocols.dpg.services.tag_sequencer.number_requests import MOST_ASKED
from antiphon.protocols.dpg.services.tag_sequencer.numbering import MOST_SENDERS, TagSequencer
from antiphon.protocols.dpg.services.tag_sequencer.numbers import Numbers
from antiphon.protocols.dpg.services.tag_sequencer.pdus import Ask, SequencerOptions

LAST_WORDS: Final = 3
"""Repetitions of the last numbers by a sequencer that leaves. Raising it costs PDUs."""
STALE_NS: Final[Nanoseconds] = 400 * MILLISECOND_NS
"""A new sequencer numbers no older message by itself. Raising it risks a second place for a message."""
ASK_AGAIN_NS: Final[Nanoseconds] = 3 * MILLISECOND_NS
"""Pause before the sequencer asks the same sender again. Raising it costs latency after a loss."""


class Announced(NamedTuple):
    """Numbers that were announced and are not placed here yet."""

    first: int
    tags: list[Tag]
    since_ns: Nanoseconds


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
        self._announced: deque[Announced] = deque()

    def begin_epoch(self) -> None:
        """An own epoch begins, in which no number has been given yet."""
        self.active = False
        self._base = 0

    def begin(self, now: Nanoseconds, counter: int, next_number: int, known_by_all: int) -> None:
        """Go on from this number, and number received messages without one; `announce` follows."""
        sequencer, following = self.sequencer, self._follower
        sequencer.begin(next_number)
        # It is certain again that no other member gives these numbers: they have left late only from now on.
        self._announced = deque(each._replace(since_ns=now) for each in self._announced)
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
        while self._announced:
            self._place(now, self._announced.popleft())
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

        The sequencer itself uses them only when they have left this host (`on_left`): if it is stopped before
        that, and others number the same anew, it has delivered nothing.
        """
        sequencer, announcer = self.sequencer, self.announcer
        if not sequencer.ready:
            return True
        if announcer.is_stalled(now):
            return False
        while sequencer.ready and (announcer.may_speak(now) or at_once):
            first, tags = announcer.announce(now)
            self._announced.append(Announced(first, tags, now))
        return True

    def on_left(self, now: Nanoseconds, last: int) -> bool:
        """The numbers up to `last` have left this host: place them here.

        False if other members may have numbered the same messages meanwhile.
        """
        announcer, announced = self.announcer, self._announced
        while announced and announced[0].first <= last:
            announcer.took(now, now - announced[0].since_ns)
            if announcer.is_stalled(now):
                return False
            self._place(now, announced.popleft())
        return True

    def _place(self, now: Nanoseconds, announced: Announced) -> None:
        for number, tag in enumerate(announced.tags, announced.first):
            self._follower.place(now, number, tag)

    def withdraw(self) -> None:
        """Another member is the sequencer: it decides about numbers that are announced and not placed."""
        if self._announced:
            self._numbers.drop_from(self._announced[0].first)
            self._announced.clear()

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
