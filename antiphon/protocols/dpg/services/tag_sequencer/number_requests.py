"""A member's requests to the sequencer: for numbers of its own tags, and for missed numbers."""

from typing import Final

from antiphon.core.effects import SetTimer
from antiphon.core.time import NEVER_NS, Nanoseconds
from antiphon.protocols.dpg.pdus import Tag
from antiphon.protocols.dpg.services.base import PREFIX, MemberView
from antiphon.protocols.dpg.services.tag_sequencer.numbers import Numbers
from antiphon.protocols.dpg.services.tag_sequencer.pdus import SequencerOptions, TagRequest
from antiphon.protocols.dpg.tag_lists import pack_tags

ASK: Final = PREFIX + "ask"
MOST_TRIES: Final = 6
"""Requests for a missing number, with growing pauses, before it is given up. Raising it costs PDUs."""
MOST_ASKED: Final = 512
"""Missing numbers in one request. Raising it lets a request cost more."""
LONGEST_PAUSE: Final = 8
"""The longest pause between requests, in multiples of the first. Raising it costs latency after losses."""


class NumberRequests:
    """When to request, and what. Its timer is `ASK`.

    A sender waits for `repeat_ns`, or for twice as long as its numbers took recently if that is more: a busy
    sequencer must not be asked for what it will number anyway.
    """

    def __init__(self, member: MemberView, numbers: Numbers, options: SequencerOptions) -> None:
        self.own: dict[Tag, Nanoseconds] = {}
        """Own tags without a number, oldest first, and since when."""
        self.told = 0
        """The greatest number that a peer says was given."""
        self._member = member
        self._numbers = numbers
        self._options = options
        self.least_ns: Nanoseconds = 0
        """The shortest time that a number took; 0 if that is not known."""
        self._usual_ns: Nanoseconds = 0
        self._pause_ns: Nanoseconds = 0
        self._request_due_ns: Nanoseconds = 0
        self._gap_due_ns: Nanoseconds = NEVER_NS
        self._tries = 0
        self._given_up = 0
        self._wake_ns: Nanoseconds = NEVER_NS

    @property
    def patience_ns(self) -> Nanoseconds:
        """How long a number is awaited before it is requested."""
        return min(max(self._options.repeat_ns, 2 * self._usual_ns), self._options.takeover_ns)

    def oldest_ns(self) -> Nanoseconds | None:
        """Since when the oldest own message without a number has waited."""
        return next(iter(self.own.values()), None)

    def numbered(self, now: Nanoseconds, tag: Tag) -> None:
        """An own tag got its number."""
        since_ns = self.own.pop(tag, None)
        if since_ns is not None:
            took_ns = now - since_ns
            self._usual_ns += (took_ns - self._usual_ns) // 8
            known_ns = self.least_ns or took_ns
            self.least_ns = min(took_ns, known_ns + (took_ns - known_ns) // 64)
        self._pause_ns = 0
        self._request_due_ns = 0

    def begin_anew(self, now: Nanoseconds) -> None:
        """Another sequencer: it gets time to number what it has received."""
        self.told = self._given_up = 0
        self._pause_ns = 0
        self._request_due_ns = now + self._options.repeat_ns
        self._gap_due_ns = NEVER_NS
        self._tries = 0

    def reconcile(self, now: Nanoseconds) -> None:
        """Take over from the member which own messages have no place."""
        self.own = {message.tag: self.own.get(message.tag, now) for message in self._member.unlocated()}

    def hear_of(self, number: int) -> bool:
        """A peer tells the greatest number it knows. Returns whether it is missing here."""
        if number <= max(self.told, self._given_up):
            return False
        self.told = number
        return number > self._numbers.newest

    def look_for_gaps(self, now: Nanoseconds) -> None:
        """Numbers may be missing, or no longer so."""
        numbers = self._numbers
        is_gap = numbers.through < numbers.newest or numbers.newest < self.told
        if is_gap or self._gap_due_ns != NEVER_NS:
            self._mind_gaps(now)
            self.wake(now)

    def _mind_gaps(self, now: Nanoseconds) -> None:
        numbers = self._numbers
        if not numbers.newest or numbers.through >= max(numbers.newest, self.told):
            self._gap_due_ns = NEVER_NS
            self._tries = 0
        elif self._gap_due_ns == NEVER_NS:
            self._gap_due_ns = now + self._options.gap_ns

    def wake(self, now: Nanoseconds) -> None:
        """Arm the timer for when there may be something to request."""
        self._wake_by(now, self._due_ns())

    def wake_again(self, now: Nanoseconds, limit_ns: Nanoseconds) -> None:
        """The timer has run out: arm it again, for `limit_ns` at the latest."""
        self._wake_by(now, max(now + 1, min(self._due_ns(), limit_ns)))

    def _wake_by(self, now: Nanoseconds, due_ns: Nanoseconds) -> None:
        if due_ns < self._wake_ns:
            self._wake_ns = due_ns
            self._member.emit(SetTimer(ASK, max(1, due_ns - now)))

    def woke(self, now: Nanoseconds) -> Nanoseconds:
        """The timer has run out. Returns how late it is."""
        late_ns = now - self._wake_ns
        self._wake_ns = NEVER_NS
        return late_ns

    def _due_ns(self) -> Nanoseconds:
        """When there may be something to request."""
        oldest_ns = self.oldest_ns()
        if oldest_ns is None:
            return self._gap_due_ns
        return min(self._gap_due_ns, max(oldest_ns + self.patience_ns, self._request_due_ns))

    def listed(self) -> bytes:
        """All own tags without a number, oldest first, packed."""
        return pack_tags(message.tag for message in self._member.unlocated())

    def request(self, now: Nanoseconds) -> TagRequest | None:
        """What to request now."""
        tags = b""
        oldest_ns = self.oldest_ns()
        if oldest_ns is not None and now >= max(oldest_ns + self.patience_ns, self._request_due_ns):
            tags = self.listed()
            first_ns = self.patience_ns
            self._pause_ns = min(max(2 * self._pause_ns, first_ns), LONGEST_PAUSE * first_ns)
            self._request_due_ns = now + self._pause_ns
        first, last = self._gap(now) if now >= self._gap_due_ns else (1, 0)
        return TagRequest(tags, first, last) if tags or last >= first else None

    def _gap(self, now: Nanoseconds) -> tuple[int, int]:
        """The first missing numbers; after some tries they are given up."""
        if self._tries >= MOST_TRIES:
            self._numbers.skip_hole()
            self._given_up = self.told
            self.told = min(self.told, self._numbers.newest)
            self._gap_due_ns = NEVER_NS
            self._tries = 0
            self._mind_gaps(now)
            return 1, 0
        first, last = self._numbers.hole() or (self._numbers.newest + 1, self.told)
        self._gap_due_ns = now + (self._options.gap_ns << self._tries + 1)
        self._tries += 1
        return first, min(last, first + MOST_ASKED - 1)
