"""How a tree ends: one order for everything under way on it, computed from what its sites hold.

When one of its sites fails, the sites of a tree stop and report what they hold: the end of their streams, of
which a part is delivered, and their own batches that they do not know to be stable. The last deliveries of
all sites follow from that.

Why the result agrees with every delivery, also those of failed sites. Delivery is safe: a message is
delivered only when every destination holds it, and a stopped site acknowledges nothing more. So every
destination that reports holds each message that any site has delivered. Call messages that are held in this
way sure. A site's stream has all sure messages for it, in the order of the tree. So any order of the sure
messages that agrees with all streams agrees with the tree at each site. The orders of all sites together,
failed ones included, have no cycle, since the tree has none. (With shortcuts, streams may form a cycle. Then
no such order exists, and each site delivers the sure messages as they stand in its own stream: any two of
them stand there as in all other streams.) No site has delivered the rest. It comes last, in an order that
keeps senders' numbers.

For that, no message may be sure that stands in some stream after a message of the same sender that is not.
No site can have delivered such a message: either the same primary site ordered both, where readiness is a
prefix, or the sender waited until the first was stable. A batch that only its sender reports either has no
place yet, or was delivered by all destinations, which then know it.

A sender that reports knows best what it sent. If it does not name a batch that is not sure, the batch was
never sent: if it were stable, it would be sure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final

from antiphon.core.ids import Group, Site
from antiphon.protocols.metagroups.moving import NO_TURNS, Turns, is_named
from antiphon.protocols.metagroups.pdus import Ending, Holding, Item, TreeId

Name = tuple[Site, int]
"""A batch by its sender and first number."""


class Inventory:
    """What the sites of a tree have reported of its batches when it ends."""

    def __init__(self, members: Mapping[Group, frozenset[Site]], holdings: Mapping[Site, Holding]) -> None:
        self._members = members
        self._present = frozenset(holdings)
        self._changed: dict[tuple[Group, Site], Turns] = {}
        """Sites that have joined or left a group on this tree, by which moves."""
        for site, holding in holdings.items():
            for joins, listed in ((True, holding.joined), (False, holding.left)):
                for group, number in listed:
                    self._changed.setdefault((group, site), {})[number] = joins
        self.items: dict[Name, Item] = {}
        self.holders: dict[Name, set[Site]] = {}
        """The sites that have each batch in their streams."""
        self.sources: dict[Name, Site] = {}
        """A site that has each batch, in its stream or as its sender."""
        self.delivered: set[Name] = set()
        self.streams: list[list[Name]] = []
        reported: dict[Name, Counter[Item]] = {}
        for site in sorted(holdings):
            for item in self._reported_by(site, holdings[site]):
                reported.setdefault((item.sender, item.number), Counter())[item] += 1
        # If sites report a batch differently, its sender's report counts, else the most frequent one.
        self.items |= {name: max(items, key=lambda item: items[item]) for name, items in reported.items()}
        self.named: Final = {
            (site, item.number): item
            for site, holding in holdings.items()
            for item in holding.waiting
            if item.sender == site
        }
        self.items |= self.named
        for site in sorted(holdings):
            self._add(site, holdings[site])

    def _reported_by(self, site: Site, holding: Holding) -> Iterable[Item]:
        """What a site reports and can know: batches for it, and its own."""
        yield from (item for item in holding.stream if self._is_destination(site, item))
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
            if item.sender == site:
                self.sources.setdefault((site, item.number), site)

    def is_forged(self, name: Name) -> bool:
        """Whether a batch that is not sure was never sent, by its sender's report."""
        return name[0] in self._present and name not in self.named

    def _is_destination(self, site: Site, item: Item) -> bool:
        is_listed = site in self._members.get(item.group, ())
        return is_named(is_listed, self._changed.get((item.group, site), NO_TURNS), item.moves)

    def present(self, item: Item) -> frozenset[Site]:
        """The destinations of a batch that have reported."""
        found = self._members.get(item.group, frozenset()) & self._present
        if not self._changed:
            return found
        sites = found | {site for group, site in self._changed if group == item.group}
        return frozenset(site for site in sites if self._is_destination(site, item))

    def sure(self) -> set[Name]:
        """Batches that may have been delivered somewhere: every destination holds them and those before."""
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
    """The last deliveries of a tree, by what its sites have reported."""
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
    """The order in which a site with this stream delivers an ending.

    It is the ending's own order. Only with shortcuts can streams form a cycle that no order agrees with. Then
    a site keeps to its own stream, as every site has that delivered any of it.
    """
    sure = ending.items[: ending.sure]
    known = set(sure)
    own = [item for item in stream if item in known]
    mine = set(own)
    if [item for item in sure if item in mine] == own:
        return ending.items
    return (*own, *(item for item in ending.items if item not in mine))


def merge(streams: list[list[Name]]) -> list[Name]:
    """An order that agrees with all streams.

    If they disagree, some order that keeps each sender's numbers as the streams do.
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
