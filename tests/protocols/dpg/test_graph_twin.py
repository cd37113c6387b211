"""The precedence graph and its literal twin are equal, whatever true things they are told in any order."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocols.dpg.graph import PrecedenceGraph
from antiphon.protocols.dpg.pdus import ORIGIN, Arc, Tag
from tests.protocols.harness.graph_truth import Truth, check_inside
from tests.protocols.harness.literal_graph import LiteralGraph


@dataclass
class Pair:
    """A graph and its twin, told the same."""

    graph: PrecedenceGraph = field(default_factory=PrecedenceGraph)
    twin: LiteralGraph = field(default_factory=LiteralGraph)
    gone: set[Tag] = field(default_factory=set)
    guessed: bool = False

    def tell(self, rng: Random, arcs: list[Arc]) -> None:
        """Part of a report: sometimes the vertices come late, or only the heads are known."""
        for tail, head, marked in arcs:
            if head in self.gone:
                continue
            for tag in (tail, head) if rng.random() < 0.7 else (head,):
                if tag not in self.graph and tag not in self.gone and tag != ORIGIN:
                    self.graph.add(tag, 0)
                    self.twin.add(tag)
            self.graph.connect(tail, head, marked=marked)
            if self.graph.contradictions:
                return
            self.twin.unite([(tail, head, marked)])

    def take(self, tag: Tag) -> None:
        self.graph.take(tag)
        self.twin.take(tag)
        self.gone.add(tag)

    def proceed(self, rng: Random) -> None:
        """Incorporate by mark, or all immediate successors by tag, or skip one."""
        chance = rng.random()
        if chance < 0.3:
            while (first := self.graph.first()) is not None:
                self.take(first)
        elif chance < 0.4:
            front = self.graph.front()
            self.guessed |= len(front) > 1 or self.graph.first() is None
            for tag in sorted(front, reverse=True):
                self.take(tag)
        elif chance < 0.5 and len(self.graph):
            tag = rng.choice(list(self.graph))
            self.graph.drop(tag)
            self.twin.drop(tag)
            self.gone.add(tag)

    def compare(self) -> None:
        arcs = self.twin.arcs()
        assert self.graph.arcs() == arcs
        assert sorted(self.graph.front()) == sorted(self.twin.front())
        assert self.graph.first() == self.twin.leader
        assert set(self.graph.sinks()) == self.twin.sinks()
        assert all(self.graph.is_marked(*arc[:2]) == arc[2] for arc in arcs)


def drive(rng: Random, most: int) -> bool:
    """Reports of several sites in any interleaving, with incorporation between; False if order was lost.

    That can happen only after vertices whose order was unknown were ordered by tag.
    """
    truth, pair = Truth.draw(rng, most), Pair()
    reports = [list(arcs) for arcs in truth.heard]
    while any(reports):
        arcs = rng.choice([arcs for arcs in reports if arcs])
        told = [arcs.pop(0) for _ in range(min(len(arcs), rng.randint(1, 4)))]
        pair.tell(rng, told)
        check_inside(pair.graph)
        if pair.graph.contradictions:
            assert pair.guessed, "true arcs and marks never contradict one another"
            return False
        pair.compare()
        pair.proceed(rng)
        pair.compare()
    known = pair.twin.view()
    for tag in pair.graph:
        assert {other for other in pair.graph if other != tag and pair.graph.precedes(tag, other)} == (
            known.successors(tag)
        )
    return True


@pytest.mark.slow
def test_equals_the_literal_twin_on_many_graphs() -> None:
    whole = 0
    for seed in range(5000):
        try:
            whole += drive(Random(seed), 9)
        except AssertionError as error:
            raise AssertionError(f"drive(Random({seed}), 9)") from error
    assert whole > 4900


def test_equals_the_literal_twin_on_larger_graphs() -> None:
    for seed in range(40):
        drive(Random(f"large {seed}"), 25)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_equals_the_literal_twin_on_graphs_of_any_shape(rng: Random) -> None:
    drive(rng, 7)
