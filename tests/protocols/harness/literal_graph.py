"""The precedence graph as section 4.1 of Konorski prints it: sets of arcs, rewritten until nothing changes.

Beside the text: a vertex Z that an arc moves to differs from both its ends, marked arcs are never rewritten,
and the root is kept apart from the rest: that everything lies after it is added only when one looks.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from antiphon.protocols.dpg.pdus import ORIGIN, Arc, Tag

Pair = tuple[Tag, Tag]
Rewriting = tuple[Pair, Pair | None]
"""An arc, and the one that replaces it; None if it is only removed."""


@dataclass
class Linearisation:
    """Arcs and the marked ones among them; `steps` counts replacements and removals."""

    arcs: set[Pair]
    marks: set[Pair]
    steps: int = 0

    def successors(self, tag: Tag) -> set[Tag]:
        """All that a path leads to."""
        found: set[Tag] = set()
        stack = [tag]
        while stack:
            tail = stack.pop()
            heads = {head for end, head in self.arcs if end == tail} - found
            found |= heads
            stack += heads
        return found

    def replacement(self, arc: Pair) -> Pair | None:
        """What the first rule makes of an arc, if it applies."""
        x, y = arc
        for tail, head in self.marks:
            if tail == x and head not in arc:
                return head, y
            if head == y and tail not in arc:
                return x, tail
        return None

    def is_detour(self, arc: Pair) -> bool:
        """Whether a path of more than one arc joins the ends, so that the second rule removes the arc."""
        x, y = arc
        return any(y in self.successors(head) for tail, head in self.arcs if tail == x and head != y)

    def rewritings(self) -> list[Rewriting]:
        """All that either rule allows now."""
        found: list[Rewriting] = []
        for arc in sorted(self.arcs - self.marks):
            replacement = self.replacement(arc)
            if replacement is not None:
                found.append((arc, replacement))
            if self.is_detour(arc):
                found.append((arc, None))
        return found

    def rewrite(self, rewriting: Rewriting) -> None:
        arc, replacement = rewriting
        self.arcs.discard(arc)
        if replacement is not None:
            self.arcs.add(replacement)
        self.steps += 1

    def finish(self) -> None:
        """Rewrite until nothing changes, replacements first: they are the cheaper ones to find."""
        pending = sorted(self.arcs - self.marks)
        while pending:
            arc = pending.pop()
            replacement = self.replacement(arc)
            if replacement is not None:
                self.rewrite((arc, replacement))
                if replacement not in self.marks:
                    pending.append(replacement)
        for arc in sorted(self.arcs - self.marks):
            if self.is_detour(arc):
                self.rewrite((arc, None))

    def finish_by(self, choose: Callable[[Sequence[Rewriting]], Rewriting]) -> None:
        """Rewrite until nothing changes, one chosen step after another."""
        while found := self.rewritings():
            self.rewrite(choose(found))


@dataclass
class LiteralGraph:
    """The simple twin of `PrecedenceGraph`, for true arcs and marks only."""

    root: Tag = ORIGIN
    vertices: set[Tag] = field(default_factory=set)
    graph: Linearisation = field(default_factory=lambda: Linearisation(set(), set()))
    leader: Tag | None = None
    waiting: set[Arc] = field(default_factory=set)

    def add(self, tag: Tag) -> None:
        self.vertices.add(tag)
        told = {arc for arc in self.waiting if arc[0] == tag}
        self.waiting -= told
        self.unite(told)

    def unite(self, arcs: Iterable[Arc]) -> None:
        """G := lin(G ∪ G'), an arc being marked that is marked in either."""
        for tail, head, marked in arcs:
            if tail in self.vertices:
                self.graph.arcs.add((tail, head))
                if marked:
                    self.graph.marks.add((tail, head))
            elif tail != self.root:
                self.waiting.add((tail, head, marked))
            elif marked:
                self.leader = head
        self.graph.finish()

    def view(self) -> Linearisation:
        """The linearised graph below the root."""
        arcs = self.graph.arcs | {(self.root, tag) for tag in self.vertices}
        marks = self.graph.marks | ({(self.root, self.leader)} if self.leader is not None else set())
        view = Linearisation(arcs, marks)
        view.finish()
        return view

    def arcs(self) -> list[Arc]:
        view = self.view()
        return sorted((tail, head, (tail, head) in view.marks) for tail, head in view.arcs)

    def front(self) -> set[Tag]:
        return {head for tail, head in self.view().arcs if tail == self.root}

    def sinks(self) -> set[Tag]:
        return self.vertices - {tail for tail, _ in self.view().arcs}

    def take(self, tag: Tag) -> None:
        """The vertex becomes the root; what it has marked is first."""
        self.leader = next((head for tail, head in self.graph.marks if tail == tag), None)
        self.root = tag
        self._remove(tag)

    def drop(self, tag: Tag) -> None:
        """The vertex leaves; each predecessor gets an arc to each successor."""
        marks = self.graph.marks | ({(self.root, self.leader)} if self.leader is not None else set())
        before = [tail for tail, head in self.graph.arcs | marks if head == tag]
        after = [head for tail, head in self.graph.arcs if tail == tag]
        inherited = [
            (tail, head, (tail, tag) in marks and (tag, head) in marks) for tail in before for head in after
        ]
        if self.leader == tag:
            self.leader = None
        self._remove(tag)
        self.unite(inherited)

    def _remove(self, tag: Tag) -> None:
        self.vertices.discard(tag)
        self.waiting = {arc for arc in self.waiting if arc[1] != tag}
        self.graph.arcs = {arc for arc in self.graph.arcs if tag not in arc}
        self.graph.marks &= self.graph.arcs
