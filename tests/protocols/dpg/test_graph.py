"""The precedence graph: observations 1 to 3 as far as they hold, incorporation, false input, bounds, cost."""

import doctest
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocols.dpg.graph import MOST_ORIGINS, PrecedenceGraph
from antiphon.protocols.dpg.pdus import ORIGIN, Arc, Tag
from tests.protocols.harness.graph_truth import Truth, check_inside
from tests.protocols.harness.literal_graph import Linearisation

A, B, C, D, E = 1, 2, 3, 4, 5
PAGE = Path(__file__).parents[3] / "docs" / "protocols" / "precedence-graph.md"


def graph_of(arcs: Iterable[Arc], root: Tag = ORIGIN) -> PrecedenceGraph:
    """All ends but the root added first, as a report's vertices are, then the arcs."""
    graph = PrecedenceGraph(root)
    told = list(arcs)
    for tag in dict.fromkeys(end for arc in told for end in arc[:2]):
        if tag != root:
            graph.add(tag, 0)
    for tail, head, marked in told:
        graph.connect(tail, head, marked=marked)
    return graph


def closure(graph: PrecedenceGraph) -> set[tuple[Tag, Tag]]:
    return {(x, y) for x in graph for y in graph if x != y and graph.precedes(x, y)}


# Observations 1 to 3


@dataclass
class Listener:
    """A site that builds its graph from what it receives, and from others' reports."""

    truth: list[Tag]
    all_sinks: bool
    graph: PrecedenceGraph = field(default_factory=PrecedenceGraph)
    latest: Tag = ORIGIN
    missed: bool = False
    pending: list[Tag | None] = field(default_factory=list)
    told: list[Arc] = field(default_factory=list)

    def receive(self, tag: Tag | None) -> None:
        """The next message on the channel, or None if it was missed."""
        if tag is None:
            self.missed = True
            return
        sinks = self.graph.sinks()
        if tag not in self.graph:
            self.graph.add(tag, 0)
        for sink in sinks if self.all_sinks else ():
            if sink != tag:
                self._connect(sink, tag, False)
        if not self.all_sinks or self.latest in sinks or self.latest == ORIGIN:
            self._connect(self.latest, tag, not self.missed)
        self.latest, self.missed = tag, False

    def unite(self, vertices: list[Tag], arcs: list[Arc]) -> None:
        for tag in vertices:
            if tag not in self.graph:
                self.graph.add(tag, 0)
        for arc in arcs:
            self._connect(*arc)

    def _connect(self, tail: Tag, head: Tag, marked: bool) -> None:
        self.told.append((tail, head, marked))
        self.graph.connect(tail, head, marked=marked)

    def report(self) -> tuple[list[Tag], list[Arc]]:
        return list(self.graph), [
            (tail, head, mark) for head in self.graph for tail, mark in self.graph.origins(head)
        ]

    def wrong(self) -> int:
        truth = Truth(self.truth, [])
        return sum(not truth.allows(*arc) for arc in self.graph.arcs()) + self.graph.contradictions


def listen(rng: Random, *, ordered: bool, all_sinks: bool) -> list[Listener]:
    """Messages and reports, lossy; where reports do not share the channel they may overtake messages."""
    truth = rng.sample(range(1, 100), 12)
    sites = [Listener(truth, all_sinks) for _ in range(4)]
    for tag in truth:
        for site in sites:
            site.pending.append(tag if rng.random() < 0.7 else None)
            while site.pending and (ordered or rng.random() < 0.6):
                site.receive(site.pending.pop(0))
        if rng.random() < 0.6:
            reporter = rng.choice(sites)
            told = reporter.report()
            for site in sites:
                if site is not reporter and rng.random() < 0.7:
                    site.unite(*told)
    return sites


def test_observation_1_paths_follow_the_true_order() -> None:
    for seed in range(150):
        for site in listen(Random(seed), ordered=True, all_sinks=True):
            assert site.wrong() == 0, f"listen(Random({seed}), ordered=True, all_sinks=True)"
            check_inside(site.graph)


def test_observation_1_needs_reports_on_the_channel_or_arcs_from_the_latest_alone() -> None:
    wrong = {True: 0, False: 0}
    for seed in range(150):
        for all_sinks in wrong:
            sites = listen(Random(seed), ordered=False, all_sinks=all_sinks)
            wrong[all_sinks] += sum(site.wrong() for site in sites)
    assert wrong[True] > 100
    assert wrong[False] == 0


def test_a_report_that_overtakes_a_message_makes_a_wrong_arc_from_all_sinks() -> None:
    """The true order is A B C. One site missed B and reports C; the report reaches another before B does."""
    for all_sinks, wrong in ((True, True), (False, False)):
        site = Listener([A, B, C], all_sinks)
        site.receive(A)
        site.unite([A, C], [(ORIGIN, A, True), (A, C, False)])
        site.receive(B)
        assert site.graph.precedes(C, B) is wrong


def test_observation_2_is_false_for_arcs() -> None:
    """A B C in truth: B is known from a report, C was received after A. D follows C at once: (A, C) goes."""
    graph = graph_of([(ORIGIN, A, True), (A, B, False), (A, C, False)])
    assert (A, C, False) in graph.arcs()
    graph.add(D, 0)
    for sink in (B, C):
        graph.connect(sink, D)
    graph.connect(C, D, marked=True)
    assert graph.arcs() == [(ORIGIN, A, True), (A, B, False), (B, C, False), (C, D, True)]


def test_observation_2_is_true_for_paths() -> None:
    for seed in range(150):
        rng = Random(seed)
        for site in listen(rng, ordered=True, all_sinks=True):
            before = closure(site.graph)
            site.missed |= rng.random() < 0.5
            site.receive(100)
            assert before <= closure(site.graph), seed


def test_observation_3_the_order_of_reports_does_not_matter() -> None:
    for seed in range(150):
        rng = Random(seed)
        reports = Truth.draw(rng, 9).heard[:3]
        results = set()
        for sequence in permutations(reports):
            graph = PrecedenceGraph()
            for arcs in sequence:
                for tail, head, marked in rng.sample(arcs, len(arcs)):
                    for tag in (tail, head):
                        if tag not in graph and tag != ORIGIN:
                            graph.add(tag, 0)
                    graph.connect(tail, head, marked=marked)
            results.add(tuple(graph.arcs()))
        assert len(results) == 1, seed


def test_rewriting_ends_within_its_bound_and_always_alike() -> None:
    """At most E (V - 1) steps, whichever rewriting is chosen each time."""
    most = 0
    for seed in range(150):
        rng = Random(seed)
        told = {arc for arcs in Truth.draw(rng, 8).heard for arc in arcs}
        vertices = {end for tail, head, _ in told for end in (tail, head)}
        arcs = {(tail, head) for tail, head, _ in told} | {(ORIGIN, tag) for tag in vertices - {ORIGIN}}
        marks = {(tail, head) for tail, head, marked in told if marked}
        results = set()
        for _ in range(3):
            literal = Linearisation(set(arcs), set(marks))
            literal.finish_by(rng.choice)
            assert literal.steps <= len(arcs) * (len(vertices) - 1), seed
            most = max(most, literal.steps)
            results.add(frozenset(literal.arcs))
        quick = Linearisation(set(arcs), set(marks))
        quick.finish()
        assert results | {frozenset(quick.arcs)} == results, seed
    assert most > 10


# Incorporation


def test_marks_are_followed_one_after_another() -> None:
    graph = graph_of([(ORIGIN, A, True), (A, B, True), (B, C, False), (B, D, False)])
    assert [graph.first(), graph.front(), graph.sinks()] == [A, [A], [C, D]]
    assert graph.take(A) == ((ORIGIN, True),)
    assert graph.first() == B
    assert graph.take(B) == ((A, True),)
    assert graph.first() is None
    assert sorted(graph.front()) == [C, D]
    assert graph.root == B


def test_the_successors_of_an_antichain_are_reached() -> None:
    """A and B are unordered, each with a successor of its own, that of B marked."""
    graph = graph_of([(A, C, False), (B, D, True)])
    for tag in sorted(graph.front(), reverse=True):
        graph.take(tag)
    assert graph.root == A
    assert graph.first() is None, "the mark from B is void: B is no longer the root"
    assert sorted(graph.front()) == [C, D]


def test_a_dropped_vertex_leaves_its_place_to_its_neighbours() -> None:
    graph = graph_of([(A, B, True), (B, C, True), (A, D, False), (D, E, False)])
    graph.drop(B)
    graph.drop(D)
    assert graph.arcs() == [(ORIGIN, A, False), (A, C, True), (C, E, False)]
    assert graph.origins(C) == ((B, True),), "what was told stays as it was told"


def test_an_arc_comes_into_force_when_its_tail_is_added() -> None:
    graph = PrecedenceGraph()
    graph.add(B, 7)
    assert not graph.connect(A, B, marked=True)
    assert graph.front() == [B]
    graph.add(A, 9)
    assert [graph.since(B), graph.since(A), list(graph)] == [7, 9, [B, A]]
    assert graph.arcs() == [(ORIGIN, A, False), (A, B, True)]
    assert graph.origins(B) == ((A, True),)


def test_news_is_what_was_not_implied() -> None:
    graph = graph_of([(A, B, False), (B, C, False)])
    assert not graph.connect(A, B)
    assert not graph.connect(A, C)
    assert graph.connect(A, B, marked=True)
    assert not graph.connect(A, B, marked=True)
    assert not graph.connect(ORIGIN, A)
    assert graph.connect(ORIGIN, A, marked=True)
    graph.add(D, 0)
    assert not graph.connect(B, D), "the root's chain precedes all others"
    assert graph.connect(C, D)
    assert graph.contradictions == 0


def test_a_reset_forgets_everything() -> None:
    graph = graph_of([(ORIGIN, A, True), (A, B, True), (C, D, False)])
    graph.connect(77, D)
    graph.reset(E)
    assert [graph.root, len(graph), graph.first(), graph.front(), graph.sinks(), graph.arcs()] == [
        E, 0, None, [], [], [],
    ]  # fmt: skip
    graph.add(D, 0)
    graph.add(77, 0)
    assert graph.arcs() == [(E, D, False), (E, 77, False)]


@pytest.mark.parametrize("heavier", [[], [(D, E, True)], [(D, E, True), (E, 6, True)]])
@pytest.mark.parametrize("beside", [[], [(A, B, False)], [(C, D, False)], [(A, B, False), (C, D, False)]])
def test_a_mark_joins_chains_whatever_stands_beside_them(heavier: list[Arc], beside: list[Arc]) -> None:
    graph = graph_of([*beside, (A, D, False), *heavier])
    assert graph.connect(A, D, marked=True)
    check_inside(graph)
    assert graph.is_marked(A, D)
    assert all(graph.precedes(C, A) for tail, _, _ in beside if tail == C)
    assert all(graph.precedes(D, B) for tail, _, _ in beside if tail == A)


# False arcs and marks


@pytest.mark.parametrize(
    ("known", "false"),
    [
        pytest.param([(A, B, False), (B, C, False)], (C, A, False), id="a cycle"),
        pytest.param([(A, B, False)], (A, A, False), id="an arc to itself"),
        pytest.param([(A, B, True), (B, C, True)], (C, A, False), id="against a chain"),
        pytest.param([(A, B, True), (A, C, False)], (C, B, False), id="between a marked pair"),
        pytest.param([(ORIGIN, A, True), (B, C, False)], (C, A, False), id="before the first"),
        pytest.param([(A, B, True), (A, C, False)], (A, C, True), id="a second mark out of a tail"),
        pytest.param([(A, B, True), (C, B, False)], (C, B, True), id="a second mark into a head"),
        pytest.param([(A, B, False), (B, C, False)], (A, C, True), id="a mark past another vertex"),
        pytest.param(
            [(A, B, False), (B, C, False), (A, D, False), (D, C, False)], (A, C, True), id="past two"
        ),
        pytest.param([(A, C, False), (A, B, False), (B, C, False)], (A, C, True), id="past one, arc known"),
        pytest.param([(ORIGIN, A, True), (B, C, False)], (A, C, True), id="the first's mark past another"),
        pytest.param([(ORIGIN, A, True), (A, B, False)], (ORIGIN, B, True), id="two marks out of the root"),
        pytest.param([(ORIGIN, A, True), (B, C, False)], (ORIGIN, B, True), id="two firsts"),
        pytest.param([(A, B, False)], (ORIGIN, B, True), id="first, but something precedes it"),
        pytest.param([(A, B, True)], (ORIGIN, B, True), id="first, but something is marked before it"),
    ],
)
def test_what_contradicts_is_counted_and_left_out(known: list[Arc], false: Arc) -> None:
    graph = graph_of(known)
    before = graph.arcs()
    tail, head, marked = false
    assert graph.contradictions == 0
    assert not graph.connect(tail, head, marked=marked)
    assert graph.contradictions == 1
    assert graph.arcs() == before
    assert (tail, True) not in graph.origins(head)
    check_inside(graph)


def test_a_second_mark_loses_its_mark_but_not_its_arc() -> None:
    graph = graph_of([(A, B, True)])
    graph.add(C, 0)
    assert graph.connect(A, C, marked=True)
    assert graph.contradictions == 1
    assert graph.arcs() == [(ORIGIN, A, False), (A, B, True), (B, C, False)]
    assert graph.origins(C) == ((A, False),)


def test_a_mark_from_an_unknown_tail_counts_too() -> None:
    graph = graph_of([(A, B, False)])
    graph.connect(77, B, marked=True)
    assert not graph.connect(A, B, marked=True)
    assert graph.contradictions == 1
    assert graph.origins(B) == ((A, False), (77, True))


def test_of_marks_that_waited_for_one_tail_the_first_counts() -> None:
    graph = PrecedenceGraph()
    for head in (B, C):
        graph.add(head, 0)
        graph.connect(A, head, marked=True)
    graph.add(A, 0)
    assert graph.contradictions == 1
    assert graph.arcs() == [(ORIGIN, A, False), (A, B, True), (B, C, False)]
    assert graph.origins(C) == ((A, False),)


def test_an_arc_that_waited_and_is_refused_is_no_origin() -> None:
    graph = PrecedenceGraph()
    for tag in (B, C):
        graph.add(tag, 0)
    graph.connect(A, B)
    graph.connect(ORIGIN, B, marked=True)
    graph.add(A, 0)
    assert graph.contradictions == 1
    assert graph.origins(B) == ((ORIGIN, True),)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_no_input_makes_a_cycle_or_an_empty_front(rng: Random) -> None:
    rave(rng, 60)


def test_much_false_input_makes_no_cycle_and_no_empty_front() -> None:
    contradictions = sum(rave(Random(seed), 150) for seed in range(60))
    assert contradictions > 1000


def rave(rng: Random, steps: int) -> int:
    """Arcs and marks at random; returns how many contradicted. At the end everything can be taken."""
    graph = PrecedenceGraph()
    unused = list(range(1, 40))
    for _ in range(steps):
        tags = list(graph)
        if unused and (not tags or rng.random() < 0.3):
            graph.add(unused.pop(rng.randrange(len(unused))), 0)
        elif rng.random() < 0.8:
            tail = rng.choice([*tags, *unused, graph.root, 99])
            graph.connect(tail, rng.choice(tags), marked=rng.random() < 0.4)
        elif rng.random() < 0.5:
            graph.take(rng.choice(graph.front()))
        else:
            graph.drop(rng.choice(tags))
        check_inside(graph)
    while len(graph):
        before = len(graph)
        graph.take(rng.choice(graph.front()))
        assert len(graph) == before - 1
    assert not graph._awaited
    return graph.contradictions


# Bounds and cost


def test_origins_are_bounded_and_the_marked_one_is_kept() -> None:
    graph = PrecedenceGraph()
    graph.add(A, 0)
    for tail in range(100, 100 + 2 * MOST_ORIGINS):
        graph.connect(tail, A)
    assert len(graph.origins(A)) == len(graph._awaited) == MOST_ORIGINS
    graph.connect(99, A, marked=True)
    assert len(graph.origins(A)) == len(graph._awaited) == MOST_ORIGINS
    assert (99, True) in graph.origins(A)
    for tail in range(300, 300 + 2 * MOST_ORIGINS):
        graph.connect(tail, A)
    assert (99, True) in graph.origins(A)
    graph.take(A)
    assert not graph._awaited


def test_an_arc_beyond_the_bound_is_in_force() -> None:
    graph = PrecedenceGraph()
    tails = range(100, 100 + 2 * MOST_ORIGINS)
    for tag in (*tails, A):
        graph.add(tag, 0)
    for tail in tails:
        graph.connect(tail, A)
    assert len(graph.origins(A)) == MOST_ORIGINS
    assert all(graph.precedes(tail, A) for tail in tails)


def flow(messages: int, *, standing: int, marks_after: int | None) -> PrecedenceGraph:
    """Two strands of messages that meet at every tenth, with a fixed number in the graph at any time.

    Each arc comes again with three reports; marks, if any, come in reports a number of messages later.
    """
    graph = PrecedenceGraph()
    for tag in range(1, messages + 1):
        sinks = graph.sinks()
        graph.add(tag, 0)
        for tail in sinks:
            if (tag - tail) % 2 == 0 or tag % 10 == 0:
                graph.connect(tail, tag)
        for earlier in (tag - 3, tag - 30, tag - 100):
            if earlier in graph:
                for tail, marked in graph.origins(earlier):
                    graph.connect(tail, earlier, marked=marked)
        if marks_after is not None and tag - marks_after in graph:
            graph.connect(tag - marks_after - 1, tag - marks_after, marked=True)
        while len(graph) > standing:
            graph.take(max(graph.front()))
    return graph


@pytest.mark.parametrize("standing", [50, 500])
@pytest.mark.parametrize("marks_after", [None, 1, 20])
def test_a_message_costs_the_same_however_many_stand_in_the_graph(
    standing: int, marks_after: int | None
) -> None:
    messages = 10_000
    graph = flow(messages, standing=standing, marks_after=marks_after)
    assert len(graph) == standing
    assert graph.contradictions == 0
    assert graph.work < 3 * messages


def test_marks_told_backwards_cost_no_more() -> None:
    graph = graph_of([(tag, tag + 1, False) for tag in range(1, 500)])
    for tag in reversed(range(1, 500)):
        graph.connect(tag, tag + 1, marked=True)
    assert graph.work < 3 * 500
    assert graph.sinks() == [500]


def test_a_new_vertex_is_placed_without_a_search() -> None:
    """Below a vertex that many follow; and marked below a sink that many others came after."""
    graph = graph_of([(ORIGIN, 1000, False), *((tag, tag + 1, False) for tag in range(1, 500))])
    before = graph.work
    graph.add(1001, 0)
    graph.connect(1, 1001)
    graph.add(1002, 0)
    graph.connect(500, 1002)
    graph.connect(1000, 1002, marked=True)
    assert graph.work - before < 5
    assert graph.is_marked(1000, 1002)
    check_inside(graph)


def test_contiguous_messages_cost_no_search_at_all() -> None:
    graph = PrecedenceGraph()
    for tag in range(1, 10_001):
        graph.add(tag, 0)
        graph.connect(graph.root, tag, marked=True)
        first = graph.first()
        assert first == tag
        graph.take(first)
    assert [graph.work, len(graph), graph.root] == [0, 0, 10_000]


def test_the_page_shows_what_happens() -> None:
    shown = doctest.testfile(str(PAGE), module_relative=False)
    assert shown.attempted > 5
    assert shown.failed == 0
