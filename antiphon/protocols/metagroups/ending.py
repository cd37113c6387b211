"""How a tree ends: one order for everything that was under way on it, made of what its sites hold.

When a tree is altered, or one of its sites is gone, its sites stop and say what they hold: the end of their
streams, of which they have delivered a part, and senders name their own batches that they do not know to be
stable. From that everyone's last deliveries follow.

Why the result agrees with everything that anybody has delivered, also those who are gone. Delivery is safe: a
message is delivered only when all for whom it is hold it, and whoever has stopped acknowledges nothing more.
So a message that anybody delivered is held by all for whom it is and who are there; call those messages sure.
A site's stream has them all in the order in which the trees put them. So any order of the sure ones that
agrees with all streams agrees, at each site, with the trees; and all sites' orders together, those of the
gone included, have no cycle, as the trees have none. (Where messages go past nodes, streams may be in a
circle. Then there is no such order, and each site delivers the sure ones as they stand in its own stream: any
two of them stand in it as in all others.) The rest nobody has delivered: it comes last, in
whatever order keeps senders' numbers. For that nothing may be sure that stands in some stream after something
of the same sender that is not. Nobody can have delivered such a message: either the same primary site put
both in its order, where readiness is a prefix, or the sender waited until the first was stable. A batch that
only its sender names has either no place yet, or was delivered by all, who then know it.

A sender that is there knows best what it sent. A batch of its that is not sure and that it does not name was
never sent: were it stable, it would be sure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final

from antiphon.core.ids import Group, Site
from antiphon.protocols.metagroups.pdus import Ending, Holding, Item, TreeId

Name = tuple[Site, int]
"""A batch by its sender and first number."""


class Inventory:
    """All that is known of a tree's batches when it ends."""

    def __init__(self, members: Mapping[Group, frozenset[Site]], holdings: Mapping[Site, Holding]) -> None:
        self._members = members
        self._present = frozenset(holdings)
        self.items: dict[Name, Item] = {}
        self.holders: dict[Name, set[Site]] = {}
        """In whose streams each is."""
        self.sources: dict[Name, Site] = {}
        """Who has it, in its stream or as its sender."""
        self.delivered: set[Name] = set()
        self.streams: list[list[Name]] = []
        said: dict[Name, Counter[Item]] = {}
        for site in sorted(holdings):
            for item in self._told_by(site, holdings[site]):
                said.setdefault((item.sender, item.number), Counter())[item] += 1
        # Should sites say different things of one batch, its sender's word counts, else that of most.
        self.items |= {name: max(items, key=lambda item: items[item]) for name, items in said.items()}
        self.named: Final = {
            (site, item.number): item
            for site, holding in holdings.items()
            for item in holding.waiting
            if item.sender == site
        }
        self.items |= self.named
        for site in sorted(holdings):
            self._add(site, holdings[site])

    def _told_by(self, site: Site, holding: Holding) -> Iterable[Item]:
        """What a site tells that it can know: what is for it, and its own."""
        yield from (item for item in holding.stream if site in self._members.get(item.group, ()))
        yield from (item for item in holding.waiting if item.sender == site)

    def _add(self, site: Site, holding: Holding) -> None:
        held = [
            ((item.sender, item.number), place < holding.delivered)
            for place, item in enumerate(holding.stream)
            if self.items.get((item.sender, item.number)) == item
        ]
        stream = [name for name, _ in held]
        self.streams.append(stream)
        self.delivered.update(name for name, is_delivered in held if is_delivered)
        for name in stream:
            self.holders.setdefault(name, set()).add(site)
            self.sources.setdefault(name, site)
        for item in holding.waiting:
            if item.sender == site and self.items.get((site, item.number)) == item:
                self.sources.setdefault((site, item.number), site)

    def is_forged(self, name: Name) -> bool:
        """Whether a batch that is not sure was never sent, by the word of its sender."""
        return name[0] in self._present and name not in self.named

    def present(self, item: Item) -> frozenset[Site]:
        """For whom a batch is, of those who are there."""
        return self._members.get(item.group, frozenset()) & self._present

    def sure(self) -> set[Name]:
        """What may have been delivered somewhere: all for whom it is hold it, and what comes before it."""
        found = set(self.delivered)
        doubtful: dict[Site, list[Name]] = {}
        for name in sorted(self.holders.keys() - found):
            present = self.present(self.items[name])
            earlier = doubtful.setdefault(name[0], [])
            if present <= self.holders[name] and not any(self.holders[other] & present for other in earlier):
                found.add(name)
            else:
                earlier.append(name)
        return found


def end_tree(
    tree: TreeId, members: Mapping[Group, frozenset[Site]], holdings: Mapping[Site, Holding]
) -> Ending:
    """The last deliveries of a tree, from what the sites that are there hold of it."""
    inventory = Inventory(members, holdings)
    sure = inventory.sure()
    streams = [[name for name in stream if name in sure] for stream in inventory.streams]
    doubtful = [name for name in inventory.items.keys() - sure if not inventory.is_forged(name)]
    rest = sorted(doubtful, key=lambda name: (name[1], name[0]))
    wanted = [name for name in (*merge(streams), *rest) if inventory.present(inventory.items[name])]
    items = tuple(inventory.items[name] for name in wanted)
    sources = tuple(inventory.sources[name] for name in wanted)
    return Ending(tree, items, sources, sum(name in sure for name in wanted))


def order_at(ending: Ending, stream: Iterable[Item]) -> tuple[Item, ...]:
    """In which order a site with this stream delivers an ending.

    It is the ending's own. Only where messages go past nodes can streams be in a circle that no one order
    agrees with; then a site keeps to its own stream, as everyone has who delivered any of it.
    """
    sure = ending.items[: ending.sure]
    known = set(sure)
    own = [item for item in stream if item in known]
    mine = set(own)
    if [item for item in sure if item in mine] == own:
        return ending.items
    return (*own, *(item for item in ending.items if item not in mine))


def merge(streams: list[list[Name]]) -> list[Name]:
    """One order that agrees with all streams; should they disagree, some order.

    Even then it keeps each sender's numbers as the streams do.
    """
    following: dict[Name, list[Name]] = {}
    before: dict[Name, int] = {}
    for stream in streams:
        last: dict[Site, Name] = {}
        for name in stream:
            before.setdefault(name, 0)
            following.setdefault(name, [])
            if name[0] in last:
                following[last[name[0]]].append(name)
                before[name] += 1
            last[name[0]] = name
        for first, second in pairwise(stream):
            following[first].append(second)
            before[second] += 1
    ready = [name for name, count in before.items() if not count]
    heapify(ready)
    order: list[Name] = []
    while before:
        name = heappop(ready) if ready else min(before)
        if before.pop(name, None) is None:
            continue
        order.append(name)
        for second in following[name]:
            if second in before:
                before[second] -= 1
                if not before[second]:
                    heappush(ready, second)
    return order
