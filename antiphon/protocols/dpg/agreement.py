"""Digests of the agreed order, by which members find out that their orders differ.

Beyond the paper: its order is agreed only almost always. So the reports of a member carry its index in the
order, the tags that it incorporated recently, and a digest of all that it ever incorporated. The digest is a
sum over neighbours: members that go on alike add alike. The difference of two members' digests at a common
message stays the same while nothing else diverges, even if reports are lost. Only a change of it is news.

Guarantees, except for collisions of 63-bit sums: members whose orders are equal never disagree. A divergence
is reported once, at the next comparison that finds a message in both windows. There is one exception. If a
divergence was reported before it ended, and has left the windows when it ends, then its end is not seen: it
may be reported again, or a divergence right behind it may count as part of it.

Windows of members that were apart for long have no tag in common. So reports also carry checkpoints, digests
at a few indices further and further back: see `checkpoints`.
"""

from collections.abc import Sequence
from itertools import pairwise, repeat
from typing import Final, NamedTuple

from antiphon.core.ids import Site
from antiphon.protocols.dpg.checkpoints import DigestLog
from antiphon.protocols.dpg.pdus import DIGEST_LIMIT, ORIGIN, Tag

MOST_SITES: Final = 1024
"""Other members whose standing is remembered. Raising it costs memory."""
DIGEST_MASK: Final = DIGEST_LIMIT - 1
WORD_MASK: Final = (1 << 64) - 1
NOWHERE: Final = -1
"""Before every index: the place of a tag that is not there."""

OTHER_ORDER: Final = "It delivers these in another order than we do."
IT_LACKS: Final = "It passed over a message that has a place here."
WE_LACK: Final = "It has a message in this place that we passed over."
ANOTHER: Final = "It has another message in this place than we have."
UNSEEN: Final = "Its order differs from ours, further back than either of us still remembers."


class Disagreement(NamedTuple):
    """Where two orders diverge: what each has next after the last common message, if that is known.

    `position` is the index of `mine` in our order.
    """

    mine: Tag | None
    theirs: Tag | None
    position: int | None
    reason: str


class Standing:
    """What has been found of another's order, up to a message that both had."""

    __slots__ = ("difference", "is_open", "position")

    def __init__(self, difference: int, position: int, is_open: bool) -> None:
        self.difference = difference
        """Our digest less theirs, at that message."""
        self.position = position
        """Our index of it."""
        self.is_open = is_open
        """Whether the orders are known to diverge right after it."""

    def has_judged(self, position: int) -> bool:
        """Whether a divergence after the message at this index of ours has been reported already."""
        return position < self.position or (self.is_open and position == self.position)


def mix(previous: Tag, tag: Tag) -> int:
    """A 64-bit hash of two neighbours: a linear combination, then the finaliser of splitmix64."""
    word = previous * 0x9E3779B97F4A7C15 + tag * 0xD1B54A32D192ED03 & WORD_MASK
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & WORD_MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & WORD_MASK
    return word ^ word >> 31


def digests_of(tags: Sequence[Tag], last: int) -> list[int]:
    """The digests at each of these consecutive tags, if it is `last` at the last of them."""
    digests = [last & DIGEST_MASK] * len(tags)
    for place in range(len(tags) - 1, 0, -1):
        digests[place - 1] = digests[place] - mix(tags[place - 1], tags[place]) & DIGEST_MASK
    return digests


class Agreement:
    """The agreed sequence: index, digest, and at least the last `limit` tags with their digests.

    At most twice as many are remembered. The first tag has the index 1.
    """

    __slots__ = (
        "_adopted", "_begin", "_digests", "_limit", "_links", "_positions", "_standings", "_tags", "digest",
        "digests", "index", "root",
    )  # fmt: skip

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._standings: dict[Site, Standing] = {}
        self._adopted: int | None = None
        """The index at which another's order was taken up; None if ours is our own from the beginning."""
        self.digests: Final = DigestLog()
        """Digests also of places whose tags are forgotten."""
        self._remember([ORIGIN], 0, 0)

    def _remember(self, tags: list[Tag], index: int, digest: int) -> None:
        self.root: Tag = tags[-1]
        self.index = index
        self.digest = digest & DIGEST_MASK
        self._begin = index - len(tags) + 1
        self._tags = tags
        self._digests = digests_of(tags, digest)
        self._links = bytearray(len(tags))
        self._positions = {tag: self._begin + place for place, tag in enumerate(tags)}

    def append(self, tag: Tag, link: int) -> None:
        """The next tag; `link` is what reports tell of the arc to it."""
        self.digest = self.digest + mix(self.root, tag) & DIGEST_MASK
        self.index += 1
        self.root = tag
        self._tags.append(tag)
        self._digests.append(self.digest)
        self._links.append(link)
        self._positions[tag] = self.index
        self.digests.append(self.digest)
        if len(self._tags) > 2 * self._limit:
            self._trim()

    def contradicts(self, other: Site, checkpoints: Sequence[int]) -> bool:
        """Whether another's checkpoints show that its order forked from ours, and nothing showed it before.

        Only the latest common one counts. A member whose order is known to differ is judged by its windows.
        """
        standing = self._standings.get(other)
        if standing is not None and (standing.difference or standing.is_open):
            return False
        index = self.digests.forks(checkpoints)
        if index is None:
            return False
        theirs = dict(zip(checkpoints[::2], checkpoints[1::2], strict=False))[index]
        self._stand(other, (self.digests.at(index) or 0) - theirs & DIGEST_MASK, index, is_open=True)
        return True

    def is_fork(self, index: int, digest: int, agreed: Sequence[Tag], checkpoints: Sequence[int]) -> bool:
        """Whether both orders have gone on differently, for all that a report shows."""
        if self.digests.forks((index, digest, *checkpoints)) is not None:
            return True
        theirs = self._from_the_origin(index, agreed)
        for place in range(len(theirs) - 1, -1, -1):
            position = self._positions.get(theirs[place])
            if position is not None:
                return place < len(theirs) - 1 and position < self.index
        return False

    def common(self, index: int, digest: int, agreed: Sequence[Tag], checkpoints: Sequence[int]) -> int:
        """Up to which index our order is known to be another's as well."""
        theirs = self._from_the_origin(index, agreed)
        begin = index - len(theirs) + 1
        shared = [
            begin + place
            for place, each in enumerate(digests_of(theirs, digest))
            if self.digests.at(begin + place) == each
        ]
        return max(self.digests.common((index, digest, *checkpoints), self.index), max(shared, default=0))

    def rewind(self, index: int) -> bool:
        """Go back to an index; returns whether its tag is still remembered."""
        surplus = self.index - index
        if not 0 <= surplus < len(self._tags):
            return False
        for tag in self._tags[len(self._tags) - surplus :]:
            self._positions.pop(tag, None)
        if surplus:
            del self._tags[-surplus:], self._digests[-surplus:], self._links[-surplus:]
        self.digests.rewind(index)
        self.root, self.index, self.digest = self._tags[-1], index, self._digests[-1]
        self._standings = {site: each for site, each in self._standings.items() if each.position <= index}
        return True

    def _trim(self) -> None:
        surplus = len(self._tags) - self._limit
        for place in range(surplus):
            tag = self._tags[place]
            if self._positions.get(tag) == self._begin + place:
                del self._positions[tag]
        del self._tags[:surplus], self._digests[:surplus], self._links[:surplus]
        self._begin += surplus

    def recent(self, most: int) -> tuple[list[Tag], bytes]:
        """The latest tags, the root last, and a byte of link for each; empty before the first."""
        begin = max(len(self._tags) - most, int(self._tags[0] == ORIGIN))
        return self._tags[begin:], bytes(self._links[begin:])

    @property
    def adopted(self) -> int:
        """The index from which on our order is our own."""
        return self._adopted or 0

    def oldest(self) -> int:
        """The index of the first tag that is remembered."""
        return self._begin + int(self._tags[0] == ORIGIN)

    def adopt(
        self,
        root: Tag,
        index: int,
        digest: int,
        agreed: Sequence[Tag],
        checkpoints: Sequence[int] = (),
        waiting: int = 0,
    ) -> None:
        """Go on from another's root after an absence; `agreed` are its latest tags, the root the last.

        The last of them, `waiting` in number, are still to be delivered.
        """
        tags = list(self._from_the_origin(index, agreed))
        if not tags or tags[-1] != root:
            tags = [root]
        self._adopted = index - waiting
        self._standings.clear()
        self._remember(tags[-2 * self._limit :], index, digest)
        self.digests.begin(index, self._digests, checkpoints)

    def forget(self, other: Site) -> None:
        """Another member began anew and adopted an order: what was found of its own order is void."""
        self._standings.pop(other, None)

    @staticmethod
    def _from_the_origin(index: int, agreed: Sequence[Tag]) -> Sequence[Tag]:
        """A window that reaches back to the beginning begins with the origin, which all have in common."""
        return (ORIGIN, *agreed) if index == len(agreed) else agreed

    # Comparison

    def ahead_of(self, index: int, agreed: Sequence[Tag]) -> int | None:
        """How much further we count than another that has come as far; None without a message in common.

        It has come as far in our order as the furthest of its messages, plus those behind its last message in
        common. Where orders differ, the place of that last message alone tells nothing: it may lie anywhere.
        """
        known = self._positions
        for place in range(len(agreed) - 1, -1, -1):
            position = known.get(agreed[place])
            if position is not None:
                if position < self.index:
                    # In one call: this runs for each report.
                    position = max(map(known.get, agreed[: place + 1], repeat(position)))
                return position - (index - len(agreed) + place + 1)
        return None

    def compare(self, other: Site, index: int, digest: int, agreed: Sequence[Tag]) -> Disagreement | None:
        """What a report says of another's order, against ours; None if that is no news."""
        theirs = self._from_the_origin(index, agreed)
        place = len(theirs) - 1
        while place >= 0 and theirs[place] not in self._positions:
            digest -= mix(theirs[place - 1], theirs[place]) if place else 0
            place -= 1
        if place < 0:
            return None
        position = self._positions[theirs[place]]
        difference = self._difference(position, digest)
        standing = self._standings.get(other)
        apart = place < len(theirs) - 1 and position < self.index
        if not apart and (difference == 0 or (standing and standing.difference == difference)):
            self._stand(other, difference, position, is_open=False)
            return None
        return self._examine(other, theirs, digests_of(theirs[: place + 1], digest))

    def _difference(self, position: int, digest: int) -> int:
        return self._digests[position - self._begin] - digest & DIGEST_MASK

    def _stand(self, other: Site, difference: int, position: int, *, is_open: bool) -> None:
        """Remember what was found, unless more is known already. The member heard last is forgotten last."""
        standing = self._standings.pop(other, None)
        if standing is None and len(self._standings) >= MOST_SITES:
            del self._standings[next(iter(self._standings))]
        if standing is None or position > standing.position:
            standing = Standing(difference, position, is_open)
        elif position == standing.position:
            standing = Standing(difference, position, is_open or standing.is_open)
        self._standings[other] = standing

    def _examine(self, other: Site, theirs: Sequence[Tag], digests: Sequence[int]) -> Disagreement | None:
        """The digests' difference has changed, or both orders have gone on differently: find out where.

        `digests` are theirs, as far as the last of their tags that we have.
        """
        cuts = self._cuts(theirs)
        if not cuts:
            return self._judge_blindly(other, theirs[len(digests) - 1], digests[-1])
        first, last = (self._positions[theirs[cut]] for cut in (cuts[0], cuts[-1]))
        difference = self._difference(first, digests[cuts[0]])
        standing = self._standings.get(other) or self._presume(first, difference)
        forks = self._forks(theirs, cuts)
        is_open = bool(forks) and forks[-1] == cuts[-1]
        self._stand(other, self._difference(last, digests[cuts[-1]]), last, is_open=is_open)
        if first > standing.position and not standing.is_open and difference not in (0, standing.difference):
            return Disagreement(None, None, None, UNSEEN)
        news = (fork for fork in forks if not standing.has_judged(self._positions[theirs[fork]]))
        return next((self._describe(theirs, fork) for fork in news), None)

    def _judge_blindly(self, other: Site, tag: Tag, digest: int) -> Disagreement | None:
        """The windows have tags in common, but none that shows where the orders diverged."""
        standing = self._standings.get(other)
        position = self._positions[tag]
        self._stand(other, self._difference(position, digest), position, is_open=True)
        is_told = standing is not None and (standing.is_open or position < standing.position)
        return None if is_told else Disagreement(None, None, None, UNSEEN)

    def _presume(self, first: int, difference: int) -> Standing:
        """What is expected of a member whose first window meets ours with this difference.

        A member that adopted an order does not answer for what lies before. Two members that were present
        from the beginning have no difference, unless the other adopted the order of a third.
        """
        if self._adopted is not None:
            return Standing(difference, max(first, self._adopted), is_open=False)
        is_thirds = any(standing.difference == difference for standing in self._standings.values())
        return Standing(difference if is_thirds else 0, NOWHERE, is_open=False)

    def _cuts(self, theirs: Sequence[Tag]) -> list[int]:
        """Places in their window of tags that have the same common tags before and after them in both."""
        positions = [self._positions.get(tag, NOWHERE) for tag in theirs]
        lowest_after = [self.index + 1] * len(positions)
        for place in range(len(positions) - 1, 0, -1):
            after = lowest_after[place]
            lowest_after[place - 1] = after if positions[place] == NOWHERE else min(after, positions[place])
        cuts, highest = [], NOWHERE
        for place, position in enumerate(positions):
            if highest < position < lowest_after[place]:
                cuts.append(place)
            highest = max(highest, position)
        return cuts

    def _forks(self, theirs: Sequence[Tag], cuts: Sequence[int]) -> list[int]:
        """The cuts after which the orders diverge."""
        forks = []
        for cut, following in pairwise(cuts):
            steps = self._positions[theirs[following]] - self._positions[theirs[cut]]
            if following - cut != 1 or steps != 1:
                forks.append(cut)
        if cuts[-1] < len(theirs) - 1 and self._positions[theirs[cuts[-1]]] < self.index:
            forks.append(cuts[-1])
        return forks

    def _describe(self, theirs: Sequence[Tag], fork: int) -> Disagreement:
        position = self._positions[theirs[fork]] + 1
        mine, their = self._tags[position - self._begin], theirs[fork + 1]
        if mine in theirs:
            reason = OTHER_ORDER if their in self._positions else WE_LACK
        else:
            reason = IT_LACKS if their in self._positions else ANOTHER
        return Disagreement(mine, their, position, reason)
