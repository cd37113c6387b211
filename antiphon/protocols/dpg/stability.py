"""What every member that is present holds: `Stable`, and `Unstable` where that cannot be.

Beyond the paper, which has no membership. A member tells how far it has delivered: the tag of the last
vertex, and a digest of the bodies that it holds up to there. A tag means the same at all members. An index
does not: members that passed a vertex over count differently. The digest is a sum over the tags whose bodies
are held, so two members' digests at a tag differ by what only one of them holds. While that difference stays
the same, both hold what lies between two reports of a member. If it has changed, one of them lacks something
in between, and none of it becomes stable.

A member counts from its first report until it leaves, or until it has been silent for longer than a process
can stand still without ending its spell. Nothing becomes stable while a member listens: it will hold what
follows the root that it adopts, and that root is not known yet. Nor does anything become stable before all
present members have had time to be heard. A member that begins again without having told that it holds a
message makes it `Unstable`: it was present, and it will be again.
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
from antiphon.protocols.dpg.pdus import ORIGIN, Tag
from antiphon.protocols.dpg.peers import MOST_SITES, Peers

MOST_REACHED: Final = 4096
"""Delivered vertices that others' reports may refer to. Raising it costs memory."""
MOST_AHEAD: Final = 32
"""Reports of a member that is ahead, kept until this member gets there. Raising it costs memory."""
MOST_DOUBTS: Final = 64
"""Ranges that are not held alike; more are merged. Raising it costs memory."""

HELD_APART: Final = "Not every member holds this message, or one near it in the order."
BEGAN_AGAIN: Final = "A member began again before it told that it holds this message."
TOO_MANY: Final = "Too many messages wait for a member's word on what it holds."


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A delivered batch that is not known to be held by all."""

    place: int
    sender: Site
    number: int
    messages: int


class Doubt(msgspec.Struct, frozen=True, gc=False):
    """Places after `begin` and up to `end` cannot become stable."""

    begin: int
    end: int
    reason: str


class Holder:
    """What another member has told of the bodies that it holds."""

    __slots__ = ("ahead", "difference", "place")

    def __init__(self) -> None:
        self.place: int | None = None
        """Its place in our order; None before it reported a tag that is known here."""
        self.difference = 0
        """Our digest less its own at that place."""
        self.ahead: dict[Tag, int] = {}
        """Its digests at tags that are not delivered here yet."""


class Stability:
    """One member's knowledge of what the others hold."""

    def __init__(
        self,
        peers: Peers,
        gone_ns: Nanoseconds,
        vanished_ns: Nanoseconds,
        meeting_ns: Nanoseconds,
        most_unstable: int,
        emit: Callable[[Effect], None],
    ) -> None:
        """A listener counts until it was silent for `gone_ns`, a member for `vanished_ns` after it vanished.

        Within `meeting_ns` all present members are heard.
        """
        self._peers = peers
        self._gone_ns = gone_ns
        self._vanished_ns = vanished_ns
        self._meeting_ns = meeting_ns
        self._most_unstable = most_unstable
        self._emit = emit
        self._since_ns: Nanoseconds = 0
        """When this member began to hear the others."""
        self._holders: dict[Site, Holder] = {}
        self._awaited: dict[Site, Nanoseconds] = {}
        """Until when listening and vanished members count."""
        self._doubts: list[Doubt] = []
        self._unstable: deque[Delivered] = deque()
        self._settled = 0
        """Up to this place everything is stable, or never will be."""
        self._slowest: Site | None = None
        """The slowest member when this was last computed."""
        self._begin(ORIGIN, 0, 0)

    def _begin(self, tag: Tag, index: int, digest: int) -> None:
        self.tag = tag
        """The last vertex that was delivered here, or passed over since no member has its body."""
        self.index = index
        """Its place."""
        self.digest = digest
        """Of the bodies that are held here up to that place."""
        self._reached: OrderedDict[Tag, tuple[int, int]] = OrderedDict({tag: (index, digest)})

    # What is held here

    def reach(self, tag: Tag, index: int, *, held: bool) -> None:
        """The next vertex was delivered, or passed over if its body is not `held` here."""
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
        """This batch was delivered, and may become stable."""
        self._unstable.append(delivered)
        if len(self._unstable) > self._most_unstable:
            self._give_up(self._unstable.popleft(), TOO_MANY)

    def messages_since(self, index: int) -> int:
        """Messages delivered here after a place, as far as they are not stable."""
        messages = 0
        for each in reversed(self._unstable):
            if each.place <= index:
                break
            messages += each.messages
        return messages

    def senders_since(self, index: int) -> set[Site]:
        """The senders of messages that were delivered after this place and are not stable."""
        return {each.sender for each in takewhile(lambda each: each.place > index, reversed(self._unstable))}

    # Spells of our own

    def listen(self, now: Nanoseconds) -> None:
        """A spell is over: nothing more will be known of what was delivered in it."""
        self._since_ns = now
        self._unstable.clear()
        self._doubts.clear()
        self._holders.clear()
        self._awaited.clear()

    def adopt(self, root: Tag, index: int, digest: int) -> None:
        """Adopt another member's root; what lies before it does not count."""
        self._begin(root, index, digest)
        self._settled = index
        for holder in self._holders.values():
            holder.place = None
            if root in holder.ahead:
                self._understand(holder, root, holder.ahead[root])

    # What others tell

    def told(self, site: Site, tag: Tag, digest: int) -> None:
        """Another member tells the digest of what it holds up to this tag."""
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
        """Another member has reported a tag that was delivered here."""
        if tag in holder.ahead:
            while next(iter(holder.ahead)) != tag:
                del holder.ahead[next(iter(holder.ahead))]
            del holder.ahead[tag]
        place, own = self._reached[tag]
        begin = self._settled if holder.place is None else holder.place
        if holder.place is not None and place < holder.place:
            return  # it has reported more before; this was overtaken
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
        """Another member leaves: it no longer counts."""
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
        """Emit what has become stable, and what will not."""
        if self._unstable and not self._is_meeting(now):
            index = self._least()
            if index > self._settled:
                self._settle(index)

    def _is_meeting(self, now: Nanoseconds) -> bool:
        """Whether it is unknown which members will hold the next messages."""
        if self._awaited:
            self._awaited = {site: until_ns for site, until_ns in self._awaited.items() if until_ns >= now}
        return bool(self._awaited) or now - self._since_ns < self._meeting_ns

    def _least(self) -> int:
        """The least place that all peers have reported."""
        sites, holders, settled = self._peers.sites(), self._holders, self._settled
        slowest = self._slowest
        if slowest is not None and slowest in sites:
            holder = holders.get(slowest)
            if holder is None or holder.place is None or holder.place <= settled:
                return settled
        least = self.index
        for site in sites:
            holder = holders.get(site)
            if holder is None or holder.place is None:
                self._slowest = site
                return settled
            if holder.place < least:
                self._slowest, least = site, holder.place
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
