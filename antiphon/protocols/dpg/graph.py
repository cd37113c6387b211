"""The precedence graph: what a member knows of the one order, as an acyclic graph with marked arcs.

Source: Konorski, section 4.1 (vertices, arcs, marks, linearisation), 4.2 (immediate successors of L_DELIV,
here the root) and 5 (observations 1 to 3).

Assumes that arcs and marks are true, as a one-channel service with ContiguityDetector and honest reports make
them. False arcs are believed only where nothing else is known: an arc that contradicts the graph is counted
and left out, so the graph stays acyclic, and its front is empty only if the graph is.

Guarantees that `arcs`, `front` and `first` are those of the paper's rewriting, without ever rewriting. A
marked arc lets nothing between its ends, so whatever precedes one vertex of a chain of marked arcs precedes
them all, and whatever follows one follows them all. Chains are therefore contracted, and only which chain
precedes which is kept; the front is the heads of the chains that nothing precedes. The chains carry ranks
that grow along every arc (the dynamic topological order of Pearce and Kelly, 2006), so an arc below
everything known costs nothing to check, and any other only a search of the chains ranked between its ends.

Deviations: Z differs from X and Y, and marked arcs are never rewritten, else rewriting need not end. Vertices
whose predecessors are gone hang under the root, else the successors of an antichain's other elements would
never be reached. That a vertex hangs under the root is no arc: it moves on with the root.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.pdus import ORIGIN, Arc, Tag

MOST_ORIGINS: Final = 64
"""Arcs into one vertex that are remembered as they were given. Raising it costs report bytes and memory."""


class _Chain:
    """Vertices with nothing between one and the next, and the chains before and after all of them."""

    __slots__ = ("members", "predecessors", "rank", "successors")

    def __init__(self, vertex: "_Vertex", rank: int) -> None:
        self.members = deque((vertex,))
        self.rank = rank
        self.predecessors: dict[_Chain, None] = {}  # Dictionaries as sets that keep their order:
        self.successors: dict[_Chain, None] = {}  # equal runs must stay equal.

    def weight(self) -> int:
        """What it costs to move it into another chain."""
        return len(self.members) + len(self.predecessors) + len(self.successors)


class _Vertex:
    """A tag in the graph; `position` counts along its chain, from anywhere."""

    __slots__ = ("chain", "mark", "origins", "position", "since", "tag")

    def __init__(self, tag: Tag, since: Nanoseconds, rank: int) -> None:
        self.tag = tag
        self.since = since
        self.position = 0
        self.mark: Tag | None = None  # The tail of the marked arc among the origins.
        self.origins: dict[Tag, bool] = {}
        self.chain = _Chain(self, rank)


class PrecedenceGraph:
    """Tags after the root, and what is known of their order.

    `contradictions` counts arcs and marks that were refused, `work` the chains visited in searches and the
    vertices and arcs moved between chains: all that a call costs beyond a constant.
    """

    def __init__(self, root: Tag = ORIGIN) -> None:
        self.root = root
        self.contradictions = 0
        self.work = 0
        self._ranks = 0
        self.vertices: Final[dict[Tag, _Vertex]] = {}
        """By their tags. Other modules only test which tags are in it."""
        self._sources: dict[_Chain, None] = {}
        self._sinks: dict[_Chain, None] = {}
        self._lead: _Chain | None = None
        """The chain that a marked arc joins to the root, so that it precedes all others."""
        self._awaited: dict[Tag, dict[Tag, None]] = {}
        """Tails that are not in the graph, each with its heads."""

    def __len__(self) -> int:
        return len(self.vertices)

    def __contains__(self, tag: object) -> bool:
        return tag in self.vertices

    def __iter__(self) -> Iterator[Tag]:
        """The tags, in the order in which they were added."""
        return iter(self.vertices)

    def reset(self, root: Tag) -> None:
        """Forget every vertex and begin again under a root."""
        self.root = root
        self._lead = None
        for table in (self.vertices, self._sources, self._sinks, self._awaited):
            table.clear()

    def add(self, tag: Tag, now: Nanoseconds) -> None:
        """Take a new vertex in; it hangs under the root until an arc says otherwise."""
        assert tag not in self.vertices, "the vertex is new"
        self._ranks = rank = self._ranks + 1
        vertex = self.vertices[tag] = _Vertex(tag, now, rank)
        self._sources[vertex.chain] = self._sinks[vertex.chain] = None
        if tag in self._awaited:
            self._come_into_force(vertex)

    def since(self, tag: Tag) -> Nanoseconds:
        """When the vertex was added."""
        return self.vertices[tag].since

    def connect(self, tail: Tag, head: Tag, *, marked: bool = False) -> bool:
        """Learn that the tail precedes the head, and nothing between them if marked; True if that is news.

        The head is in the graph. If the tail is neither there nor the root, it was incorporated long ago or
        is not yet known: the arc is remembered as an origin, and comes into force if the tail is added later.
        """
        vertex = self.vertices[head]
        known = vertex.origins.get(tail)
        if known or (known is not None and not marked):
            return False
        if marked and vertex.mark is not None:
            self.contradictions += 1
            marked = (
                False  # From here on, the head of a marked arc heads its chain: nothing is marked into it.
            )
        source = self.vertices.get(tail)
        if source is not None:
            news = self._order(source, vertex)
            if news is None:
                self.contradictions += 1
                return False
            if marked:
                marked = self._contract(source, vertex)
                news = news or marked
        elif tail == self.root:
            news = marked = marked and self._lead_with(vertex)
        else:
            news = False
        if self._remember(vertex, tail, marked) and source is None and tail != self.root:
            self._awaited.setdefault(tail, {})[head] = None
        return news

    def origins(self, tag: Tag) -> tuple[tuple[Tag, bool], ...]:
        """The arcs into a vertex as they were given, and whether marked; the marked arc is always kept."""
        return tuple(self.vertices[tag].origins.items())

    def has_mark(self, tag: Tag) -> bool:
        """Whether a marked arc leads to a vertex."""
        return self.vertices[tag].mark is not None

    def first(self) -> Tag | None:
        """The vertex that follows the root with nothing between them, if it is known."""
        lead = self._lead
        return lead.members[0].tag if lead is not None else None

    def front(self) -> list[Tag]:
        """The immediate successors of the root."""
        if self._lead is not None:
            return [self._lead.members[0].tag]
        return [chain.members[0].tag for chain in self._sources]

    def sinks(self) -> list[Tag]:
        """The vertices without successor."""
        if len(self._sinks) == 1:
            return [chain.members[-1].tag for chain in self._sinks]
        return [chain.members[-1].tag for chain in self._sinks if chain is not self._lead]

    def take(self, tag: Tag) -> tuple[tuple[Tag, bool], ...]:
        """Make a vertex of the front the root, and return its origins.

        Its marked successor is first from now on, and a mark from the root before is void. While an antichain
        is taken, vertex by vertex, its others remain takeable although the first of them may bring a
        successor of its own to the front.
        """
        vertex = self.vertices.pop(tag)
        chain = vertex.chain
        members = chain.members
        assert members[0] is vertex, "the marked predecessor of what is taken has gone"
        assert not chain.predecessors, "nothing in the graph precedes what is taken"
        self.root = tag
        members.popleft()
        if members:
            self._lead = chain
        else:
            self._lead = None
            self._remove(chain)
        if self._awaited:
            self._forget(vertex)
        return tuple(vertex.origins.items())

    def follow(self, tag: Tag) -> None:
        """What follows the root with nothing between, and was not in the graph, which is empty, is the root.

        The same as to add it, to connect it by a marked arc, and to take it.
        """
        assert not self.vertices, "nothing else is known"
        self.root = tag

    def drop(self, tag: Tag) -> None:
        """Let a vertex leave that came too late to be taken; its successors inherit its predecessors."""
        vertex = self.vertices.pop(tag)
        chain = vertex.chain
        chain.members.remove(vertex)
        for member in chain.members:
            if member.position > vertex.position:
                member.position -= 1
        if not chain.members:
            for before in chain.predecessors:
                for after in chain.successors:
                    before.successors[after] = after.predecessors[before] = None
            self._remove(chain)
            if chain is self._lead:
                self._lead = None
        self._forget(vertex)

    def precedes(self, before: Tag, after: Tag) -> bool:
        """Whether a path leads from one vertex to another, marks used."""
        source, vertex = self.vertices[before], self.vertices[after]
        if source.chain is vertex.chain:
            return source.position < vertex.position
        if source.chain is self._lead or vertex.chain is self._lead:
            return source.chain is self._lead
        return self._reaches(source.chain, vertex.chain)

    def is_marked(self, tail: Tag, head: Tag) -> bool:
        """Whether it is known that nothing lies between the root or a vertex and another."""
        vertex = self.vertices.get(head)
        if vertex is None:
            return False
        if tail == self.root:
            return vertex.chain is self._lead and vertex.chain.members[0] is vertex
        source = self.vertices.get(tail)
        return source is not None and source.chain is vertex.chain and source.position + 1 == vertex.position

    def arcs(self) -> list[Arc]:
        """The graph linearised, the root included as a tail, sorted."""
        chains = {vertex.chain: None for vertex in self.vertices.values()}
        arcs = [(self.root, tag, self._lead is not None) for tag in self.front()]
        for chain in chains:
            tags = [vertex.tag for vertex in chain.members]
            arcs += [(tail, head, True) for tail, head in pairwise(tags)]
            heads = self._immediate(chain, chains)
            arcs += [(tags[-1], after.members[0].tag, False) for after in heads]
        return sorted(arcs)

    def _immediate(self, chain: _Chain, chains: Iterable[_Chain]) -> list[_Chain]:
        """The chains that follow one with none between."""
        if chain is self._lead:
            return [
                after for after in chains if after is not chain and not after.predecessors.keys() - {chain}
            ]
        successors = list(chain.successors)
        beyond: set[_Chain] = set()
        for after in successors:
            beyond |= self._reachable(after, self._ranks)
        return [after for after in successors if after not in beyond]

    def _order(self, source: _Vertex, vertex: _Vertex) -> bool | None:
        """Put one vertex's chain before another's; whether that is news, or None if it contradicts."""
        before, after = source.chain, vertex.chain
        if before is after:
            return False if source.position < vertex.position else None
        if after is self._lead:
            return None
        if before.rank < after.rank:
            if self._reaches(before, after):
                return False
        elif not self._reorder(before, after):
            return None
        if not before.successors:
            del self._sinks[before]
        if not after.predecessors:
            del self._sources[after]
        before.successors[after] = after.predecessors[before] = None
        return before is not self._lead

    def _lead_with(self, vertex: _Vertex) -> bool:
        """Mark the arc from the root to a vertex that heads its chain; False if it contradicts."""
        if self._lead is None and not vertex.chain.predecessors:
            self._lead = vertex.chain
            return True
        self.contradictions += 1
        return False

    def _contract(self, source: _Vertex, vertex: _Vertex) -> bool:
        """Mark the arc from a vertex to a later vertex that heads its chain; False if it contradicts."""
        before, after = source.chain, vertex.chain
        if before.members[-1] is source and self._bring_together(before, after):
            self._merge(before, after)
            return True
        self.contradictions += 1
        return False

    def _bring_together(self, before: _Chain, after: _Chain) -> bool:
        """Give two chains, one before the other, one rank; False if another lies between."""
        if before not in after.predecessors:
            return False
        if len(after.predecessors) == 1:
            after.rank = before.rank
            return True
        if before is self._lead:
            return False
        behind = self._reachable(before, after.rank - 1)
        if not behind:
            before.rank = after.rank
            return True
        if any(after in chain.successors for chain in behind):
            return False
        ahead = self._reaching(after, before.rank + 1)
        pool = [chain.rank for chain in (*ahead, before, *behind)]
        self._assign([*_ranked(ahead), before, *_ranked(behind)], pool)
        after.rank = before.rank
        return True

    def _merge(self, before: _Chain, after: _Chain) -> None:
        """Join two chains of equal rank; the lighter one moves into the heavier."""
        del before.successors[after]
        del after.predecessors[before]
        if before.weight() < after.weight():
            kept, moved = after, before
            position = after.members[0].position
            for vertex in reversed(before.members):
                position -= 1
                vertex.position = position
                vertex.chain = after
                after.members.appendleft(vertex)
        else:
            kept, moved = before, after
            position = before.members[-1].position
            for vertex in after.members:
                position += 1
                vertex.position = position
                vertex.chain = before
                before.members.append(vertex)
        self.work += moved.weight()
        for other in moved.predecessors:
            del other.successors[moved]
            other.successors[kept] = kept.predecessors[other] = None
        for other in moved.successors:
            del other.predecessors[moved]
            other.predecessors[kept] = kept.successors[other] = None
        if self._lead is moved:
            self._lead = kept
        self._sources.pop(moved, None)
        self._sinks.pop(moved, None)
        _belongs(self._sources, kept, not kept.predecessors)
        _belongs(self._sinks, kept, not kept.successors)

    def _remove(self, chain: _Chain) -> None:
        """Take an empty chain out; what only it preceded or followed is free."""
        self._sources.pop(chain, None)
        self._sinks.pop(chain, None)
        for after in chain.successors:
            del after.predecessors[chain]
            if not after.predecessors:
                self._sources[after] = None
        for before in chain.predecessors:
            del before.successors[chain]
            if not before.successors:
                self._sinks[before] = None

    def _remember(self, vertex: _Vertex, tail: Tag, marked: bool) -> bool:
        """Keep an arc as it was given, if there is room; a marked one finds room."""
        origins = vertex.origins
        if len(origins) >= MOST_ORIGINS and tail not in origins:
            if not marked:
                return False
            evicted = next(iter(origins))
            del origins[evicted]
            self._awaits_no_longer(evicted, vertex.tag)
        origins[tail] = marked
        if marked:
            vertex.mark = tail
        return True

    def _come_into_force(self, vertex: _Vertex) -> None:
        """Learn the arcs that waited for this tail. An arc that is refused now was no true origin."""
        for head in self._awaited.pop(vertex.tag):
            marked = self.vertices[head].origins.pop(vertex.tag)
            if marked:
                self.vertices[head].mark = None
            self.connect(vertex.tag, head, marked=marked)

    def _forget(self, vertex: _Vertex) -> None:
        """No longer wait for tails of arcs into a vertex that leaves."""
        for tail in vertex.origins:
            self._awaits_no_longer(tail, vertex.tag)

    def _awaits_no_longer(self, tail: Tag, head: Tag) -> None:
        heads = self._awaited.get(tail)
        if heads is not None and head in heads:
            del heads[head]
            if not heads:
                del self._awaited[tail]

    def _reaches(self, start: _Chain, goal: _Chain) -> bool:
        """Whether a path leads from one chain to another."""
        if goal in start.successors:
            return True
        return bool(goal.predecessors) and any(
            goal in chain.successors for chain in self._reachable(start, goal.rank - 1)
        )

    def _reorder(self, before: _Chain, after: _Chain) -> bool:
        """Rerank so that one chain may precede another of lower rank; False if that would close a cycle."""
        behind = self._reachable(after, before.rank)
        if before in behind:
            return False
        ahead = self._reaching(before, after.rank)
        chains = [*_ranked(ahead), before, after, *_ranked(behind)]
        self._assign(chains, [chain.rank for chain in chains])
        return True

    def _assign(self, chains: list[_Chain], pool: list[int]) -> None:
        for chain, rank in zip(chains, sorted(pool), strict=True):
            chain.rank = rank

    def _reachable(self, start: _Chain, highest: int) -> set[_Chain]:
        """The chains after one, up to a rank."""
        found: set[_Chain] = set()
        stack = [start]
        while stack:
            for chain in stack.pop().successors:
                if chain.rank <= highest and chain not in found:
                    found.add(chain)
                    stack.append(chain)
        self.work += len(found)
        return found

    def _reaching(self, goal: _Chain, lowest: int) -> set[_Chain]:
        """The chains before one, down to a rank."""
        found: set[_Chain] = set()
        stack = [goal]
        while stack:
            for chain in stack.pop().predecessors:
                if chain.rank >= lowest and chain not in found:
                    found.add(chain)
                    stack.append(chain)
        self.work += len(found)
        return found


def _ranked(chains: Iterable[_Chain]) -> list[_Chain]:
    return sorted(chains, key=lambda chain: chain.rank)


def _belongs(table: dict[_Chain, None], chain: _Chain, belongs: bool) -> None:
    if belongs:
        table[chain] = None
    else:
        table.pop(chain, None)
