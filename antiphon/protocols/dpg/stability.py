"""What every member that is present holds: `Stable`, and `Unstable` where that cannot be.

Beyond the paper, which has no membership to ask. A member tells how far it has delivered: the tag of the last
vertex, and a digest of the bodies that it holds as far as there. A tag has one meaning at all members, where
an index has not: members that passed a vertex over count differently. The digest is a sum over the tags whose
bodies are held, so two members' digests at one tag differ by what only one of them holds. As long as that
difference stays what it is, what lies between two words of a member is held by both. If it has changed,
something in between is held by one alone, and none of it is called stable.

A member counts from its first word until it says that it leaves, or has been silent for longer than a process
can stand still without ending its spell. Nothing is called stable while a member listens: it will hold what
follows the place that it takes up, and nobody knows that place yet. And nothing is, until all who are there
have had time to be heard. A member that begins again without having told that it holds a message makes it
`Unstable`: it was there, and it will be again.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import takewhile
from typing import Final

import msgspec

from antiphon.core.effects import Effect, Stable, Unstable
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.agreement import DIGEST_MASK, mix
from antiphon.protocols.dpg.company import MOST_SITES, Company
from antiphon.protocols.dpg.pdus import ORIGIN, Tag

MOST_REACHED: Final = 4096
"""Delivered vertices by which others' words are understood. Raising it costs memory."""
MOST_AHEAD: Final = 32
"""Words of a member that is ahead of us, kept until we get there. Raising it costs memory."""
MOST_DOUBTS: Final = 64
"""Stretches that are not held alike; more are taken for one."""

HELD_APART: Final = "Not every member holds this message, or one near it in the order."
BEGAN_AGAIN: Final = "A member began again before it told that it holds this message."
TOO_MANY: Final = "Too many messages wait for a member's word on what it holds."


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A delivered batch that is not known to be everywhere."""

    place: int
    sender: Site
    number: int
    messages: int


class Doubt(msgspec.Struct, frozen=True, gc=False):
    """What has its place after `begin` and not after `end` cannot be called stable."""

    begin: int
    end: int
    reason: str


class Holder:
    """What another member has told of the bodies that it holds."""

    __slots__ = ("ahead", "difference", "place")

    def __init__(self) -> None:
        self.place: int | None = None
        """How far it has come, in our order; None before it told something that we understand."""
        self.difference = 0
        """Our digest less its own, there."""
        self.ahead: dict[Tag, int] = {}
        """What it has told of tags that we have not delivered: its digest at each."""


class Stability:
    """One member's knowledge of what the others hold."""

    def __init__(
        self,
        company: Company,
        gone_ns: Nanoseconds,
        vanished_ns: Nanoseconds,
        meeting_ns: Nanoseconds,
        most_unstable: int,
        emit: Callable[[Effect], None],
    ) -> None:
        """A listener counts until it was silent for `gone_ns`, a member for `vanished_ns` after it vanished.

        Within `meeting_ns` all who are present are heard.
        """
        self._company = company
        self._gone_ns = gone_ns
        self._vanished_ns = vanished_ns
        self._meeting_ns = meeting_ns
        self._most_unstable = most_unstable
        self._emit = emit
        self._since_ns: Nanoseconds = 0
        """When this member began to hear the others."""
        self._holders: dict[Site, Holder] = {}
        self._awaited: dict[Site, Nanoseconds] = {}
        """Until when members count that listen before they take part, or have vanished."""
        self._doubts: list[Doubt] = []
        self._unstable: deque[Delivered] = deque()
        self._settled = 0
        """What has its place as far as this was called stable, or never will be."""
        self._begin(ORIGIN, 0, 0)

    def _begin(self, tag: Tag, index: int, digest: int) -> None:
        self.tag = tag
        """The last vertex that was delivered here, or passed over since nobody has its body."""
        self.index = index
        """Its place."""
        self.digest = digest
        """Of the bodies that are held here as far as there."""
        self._reached: OrderedDict[Tag, tuple[int, int]] = OrderedDict({tag: (index, digest)})

    # What is held here

    def reach(self, tag: Tag, index: int, *, held: bool) -> None:
        """The next vertex is done with: delivered, unless its body is not `held` here."""
        if held:
            self.digest = self.digest + mix(ORIGIN, tag) & DIGEST_MASK
        self.tag, self.index = tag, index
        self._reached[tag] = (index, self.digest)
        if len(self._reached) > MOST_REACHED:
            self._reached.popitem(last=False)
        for holder in self._holders.values():
            if tag in holder.ahead:
                self._understand(holder, tag, holder.ahead[tag])

    def note(self, delivered: Delivered) -> None:
        """This was handed up, and may become stable."""
        self._unstable.append(delivered)
        if len(self._unstable) > self._most_unstable:
            self._give_up(self._unstable.popleft(), TOO_MANY)

    def messages_since(self, index: int) -> int:
        """Messages delivered here behind a place, as far as they are not stable."""
        behind = takewhile(lambda each: each.place > index, reversed(self._unstable))
        return sum(each.messages for each in behind)

    def senders_since(self, index: int) -> set[Site]:
        """Whose messages were handed up after this place, of those that are not stable."""
        return {each.sender for each in takewhile(lambda each: each.place > index, reversed(self._unstable))}

    # Spells of our own

    def listen(self, now: Nanoseconds) -> None:
        """A spell is over: of what was delivered in it nothing more will be known."""
        self._since_ns = now
        self._unstable.clear()
        self._doubts.clear()
        self._holders.clear()
        self._awaited.clear()

    def take_up(self, root: Tag, index: int, digest: int) -> None:
        """Go on from another's root; nobody asks whether we hold what lies before it."""
        self._begin(root, index, digest)
        self._settled = index
        for holder in self._holders.values():
            holder.place = None
            if root in holder.ahead:
                self._understand(holder, root, holder.ahead[root])

    # What others tell

    def told(self, site: Site, tag: Tag, digest: int) -> None:
        """Another holds what its digest says as far as this tag."""
        self._awaited.pop(site, None)
        holder = self._holders.get(site)
        if holder is None:
            if len(self._holders) >= MOST_SITES:
                return
            holder = self._holders[site] = Holder()
        if tag in self._reached:
            self._understand(holder, tag, digest)
            return
        holder.ahead[tag] = digest
        if len(holder.ahead) > MOST_AHEAD:
            del holder.ahead[next(iter(holder.ahead))]

    def _understand(self, holder: Holder, tag: Tag, digest: int) -> None:
        """Another has told of a tag that was delivered here."""
        if tag in holder.ahead:
            while next(iter(holder.ahead)) != tag:
                del holder.ahead[next(iter(holder.ahead))]
            del holder.ahead[tag]
        place, own = self._reached[tag]
        begin = self._settled if holder.place is None else holder.place
        if holder.place is not None and place < holder.place:
            return  # it has said more before, and this was overtaken
        difference = own - digest & DIGEST_MASK
        if difference != holder.difference:
            self._doubt(begin, place, HELD_APART)
            holder.difference = difference
        holder.place = place

    def begins_again(self, now: Nanoseconds, site: Site, index: int, *, anew: bool) -> None:
        """Another listens; `anew` if it is a new process. Our order has come as far as `index`."""
        holder = self._holders.pop(site, None)
        if holder is not None and not anew:
            begin = self._settled if holder.place is None else holder.place
            self._doubt(begin, index, BEGAN_AGAIN)
        self._await(site, now + self._gone_ns)

    def vanish(self, now: Nanoseconds, site: Site) -> None:
        """Another has been silent for long; it may have been stopped, and go on with its spell."""
        if self._holders.pop(site, None) is not None:
            self._await(site, now + self._vanished_ns)

    def _await(self, site: Site, until_ns: Nanoseconds) -> None:
        if site in self._awaited or len(self._awaited) < MOST_SITES:
            self._awaited[site] = until_ns

    def leave(self, site: Site) -> None:
        """Another says that it goes: it counts no more."""
        self._holders.pop(site, None)
        self._awaited.pop(site, None)

    def _doubt(self, begin: int, end: int, reason: str) -> None:
        if end <= max(begin, self._settled):
            return
        self._doubts.append(Doubt(begin, end, reason))
        if len(self._doubts) > MOST_DOUBTS:
            first, second = self._doubts[:2]
            both = Doubt(min(first.begin, second.begin), max(first.end, second.end), first.reason)
            self._doubts[:2] = [both]

    # What all hold

    def settle(self, now: Nanoseconds) -> None:
        """Say what has become stable, and what will not."""
        if self._unstable and not self._is_meeting(now):
            index = self._least()
            if index > self._settled:
                self._settle(index)

    def _is_meeting(self, now: Nanoseconds) -> bool:
        """Whether it is unknown who will hold what comes."""
        if self._awaited:
            self._awaited = {site: until_ns for site, until_ns in self._awaited.items() if until_ns >= now}
        return bool(self._awaited) or now - self._since_ns < self._meeting_ns

    def _least(self) -> int:
        """As far as this everyone has come, as they have told."""
        least = self.index
        for site in self._company.sites():
            holder = self._holders.get(site)
            if holder is None or holder.place is None:
                return self._settled
            least = min(least, holder.place)
        return least

    def _settle(self, index: int) -> None:
        self._settled = index
        unstable = self._unstable
        while unstable and unstable[0].place <= index:
            each = unstable.popleft()
            reason = self._reason_against(each.place)
            if reason is None:
                self._emit(Stable(each.sender, each.number, each.messages))
            else:
                self._give_up(each, reason)
        self._doubts = [doubt for doubt in self._doubts if doubt.end > index]

    def _reason_against(self, place: int) -> str | None:
        return next((doubt.reason for doubt in self._doubts if doubt.begin < place <= doubt.end), None)

    def _give_up(self, each: Delivered, reason: str) -> None:
        self._emit(Unstable(each.sender, each.number, each.messages, None, reason))
