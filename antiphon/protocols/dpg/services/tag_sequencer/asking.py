"""What a member asks the sequencer for: numbers of its own tags, and numbers that it missed."""

from typing import Final

from antiphon.core.effects import SetTimer
from antiphon.core.time import NEVER_NS, Nanoseconds
from antiphon.protocols.dpg.pdus import Tag
from antiphon.protocols.dpg.services.base import PREFIX, Channel
from antiphon.protocols.dpg.services.tag_sequencer.numbers import Numbers
from antiphon.protocols.dpg.services.tag_sequencer.pdus import SequencerOptions, TagRequest
from antiphon.protocols.dpg.tag_lists import pack_tags

ASK: Final = PREFIX + "ask"
MOST_TRIES: Final = 6
"""How often a missing number is asked for, with growing pauses; then nobody is taken to know it."""
MOST_ASKED: Final = 512
"""Missing numbers that one request asks for."""
LONGEST_PAUSE: Final = 8
"""How many times the first pause the pause between requests may grow to."""


class Asking:
    """When to ask, and for what. Its timer is `ASK`.

    A sender waits for `repeat_ns`, or for twice as long as its numbers have taken lately if that is more: a
    busy sequencer is not to be asked after what it will number anyway.
    """

    def __init__(self, channel: Channel, numbers: Numbers, options: SequencerOptions) -> None:
        self.own: dict[Tag, Nanoseconds] = {}
        """Own tags without a number, oldest first, and since when."""
        self.told = 0
        """The greatest number that somebody says was given."""
        self._channel = channel
        self._numbers = numbers
        self._options = options
        self.least_ns: Nanoseconds = 0
        """What a number takes at least, there and back and little else; 0 if that is not known."""
        self._usual_ns: Nanoseconds = 0
        self._pause_ns: Nanoseconds = 0
        self._request_due_ns: Nanoseconds = 0
        self._gap_due_ns: Nanoseconds = NEVER_NS
        self._tries = 0
        self._given_up = 0
        self._wake_ns: Nanoseconds = NEVER_NS

    @property
    def patience_ns(self) -> Nanoseconds:
        """How long a number is waited for before it is asked for."""
        return min(max(self._options.repeat_ns, 2 * self._usual_ns), self._options.takeover_ns)

    def oldest_ns(self) -> Nanoseconds | None:
        """Since when our oldest message without a number has waited."""
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
        """Another sequencer: it gets time to number what it has seen."""
        self.told = self._given_up = 0
        self._pause_ns = 0
        self._request_due_ns = now + self._options.repeat_ns
        self._gap_due_ns = NEVER_NS
        self._tries = 0

    def reconcile(self, now: Nanoseconds) -> None:
        """The member knows which of its messages still have no place."""
        self.own = {message.tag: self.own.get(message.tag, now) for message in self._channel.unlocated()}

    def hear_of(self, number: int) -> bool:
        """Somebody tells of a number; whether we should know it."""
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
        """Have the timer run out when there may be something to ask for."""
        self._wake_by(now, self._due_ns())

    def wake_again(self, now: Nanoseconds, limit_ns: Nanoseconds) -> None:
        """The timer has run out: have it do so again, by `limit_ns` at the latest."""
        self._wake_by(now, max(now + 1, min(self._due_ns(), limit_ns)))

    def _wake_by(self, now: Nanoseconds, due_ns: Nanoseconds) -> None:
        if due_ns < self._wake_ns:
            self._wake_ns = due_ns
            self._channel.emit(SetTimer(ASK, max(1, due_ns - now)))

    def woke(self, now: Nanoseconds) -> Nanoseconds:
        """The timer has run out; how late it is."""
        late_ns = now - self._wake_ns
        self._wake_ns = NEVER_NS
        return late_ns

    def _due_ns(self) -> Nanoseconds:
        """When there may be something to ask for."""
        oldest_ns = self.oldest_ns()
        if oldest_ns is None:
            return self._gap_due_ns
        return min(self._gap_due_ns, max(oldest_ns + self.patience_ns, self._request_due_ns))

    def listed(self) -> bytes:
        """All own tags without a number, oldest first, packed."""
        return pack_tags(message.tag for message in self._channel.unlocated())

    def request(self, now: Nanoseconds) -> TagRequest | None:
        """What is to be asked for now."""
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
