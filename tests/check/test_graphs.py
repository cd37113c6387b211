"""The graph algorithms on small graphs whose answers are plain to see."""

from random import Random

from antiphon.check.graphs import reachable, reverse, shortest_cycle, strong_components

GRAPH = {1: [2], 2: [3, 4], 3: [1], 4: [5], 5: [4, 6]}


def test_components_come_after_those_that_they_point_to() -> None:
    assert [sorted(component) for component in strong_components(GRAPH)] == [[6], [4, 5], [1, 2, 3]]


def test_a_long_chain_needs_no_recursion() -> None:
    chain = {node: [node + 1] for node in range(5_000)}
    assert len(strong_components(chain)) == 5_001
    chain[5_000] = [0]
    assert len(strong_components(chain)) == 1


def test_reachable_and_reverse() -> None:
    assert reachable(GRAPH, 4) == {4, 5, 6}
    assert reachable(reverse(GRAPH), 4) == {1, 2, 3, 4, 5}
    assert reachable(GRAPH, 6) == {6}


def test_the_shortest_of_several_cycles() -> None:
    assert shortest_cycle({1: [2], 2: [3], 3: [1, 4], 4: [3]}, [1, 2, 3, 4]) == [3, 4]
    assert shortest_cycle({1: [2], 2: [3], 3: [4], 4: [1, 2]}, [1, 2, 3, 4]) == [2, 3, 4]


def test_shortest_cycles_are_cycles_of_the_least_length() -> None:
    for seed in range(100):
        rng = Random(seed)
        graph = {node: rng.sample(range(9), 2) for node in range(9)}
        graph = {node: [other for other in after if other != node] for node, after in graph.items()}
        for component in strong_components(graph):
            if len(component) > 1:
                cycle = shortest_cycle(graph, component)
                assert all(b in graph[a] for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
                assert len(cycle) == min(_return_length(graph, node) for node in component)


def _return_length(graph: dict[int, list[int]], start: int) -> int:
    """How many arcs lead back to the start at least."""
    level, length = {start}, 0
    while True:
        level = {after for node in level for after in graph[node]}
        length += 1
        if start in level:
            return length
        assert length < 20
