"""Meta-groups on paper: formation, trees, changes and shortcuts, beside literal twins and brute force.

Paper: Jia and So, "A Multicast Mechanism with Ordering on Overlapping Groups".
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from graphlib import CycleError, TopologicalSorter
from itertools import chain, combinations, pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.protocols.metagroups.bypass import Shortcuts, bypassed, candidates
from antiphon.protocols.metagroups.changes import Change, change
from antiphon.protocols.metagroups.formation import Label, form_meta_groups, label_text, rank
from antiphon.protocols.metagroups.shapes import Shape, printed, shallow
from antiphon.protocols.metagroups.tree import Forest, Node, broken_rules, build_forest

BOTH: tuple[Shape, ...] = ("shallow", "printed")
FIGURE_2 = ("A", "B", "C", "D", "AB", "AC", "AD", "BC", "CD", "ABC")


def of_labels(*labels: str, sites: int = 1) -> dict[Group, list[Site]]:
    """A membership with this many sites in each of these meta-groups, named after it."""
    membership: dict[Group, list[Site]] = {group: [] for group in sorted(set("".join(labels)))}
    for label in labels:
        for group in label:
            membership[group] += [f"{label.lower()}{number}" for number in range(sites)]
    return membership


def named(*labels: str) -> tuple[Label, ...]:
    return tuple(tuple(label) for label in labels)


@st.composite
def memberships(draw: st.DrawFn, groups: str = "ABCDEF", sites: int = 9) -> dict[Group, set[Site]]:
    labels = draw(st.lists(st.sets(st.sampled_from(groups)), max_size=sites))
    found: dict[Group, set[Site]] = {group: set() for group in groups}
    for number, label in enumerate(labels):
        for group in label:
            found[group].add(f"s{number}")
    return found


def families(groups: str) -> Iterator[list[Label]]:
    """Every set of meta-groups that can exist over these groups."""
    labels = [label for size in range(1, len(groups) + 1) for label in combinations(groups, size)]
    return map(list, chain.from_iterable(combinations(labels, size) for size in range(len(labels) + 1)))


# Formation.


def test_sites_in_the_same_groups_form_a_meta_group() -> None:
    formed = form_meta_groups({"B": {"s1", "s2", "s4"}, "A": {"s2", "s1", "s3"}, "C": set()})
    assert formed == ((("A", "B"), ("s1", "s2")), (("A",), ("s3",)), (("B",), ("s4",)))


@given(memberships())
def test_meta_groups_are_disjoint_and_make_up_the_groups(membership: dict[Group, set[Site]]) -> None:
    formed = form_meta_groups(membership)
    sites = [site for meta_group in formed for site in meta_group.sites]
    assert len(sites) == len(set(sites))
    for group, members in membership.items():
        assert {site for label, part in formed if group in label for site in part} == members


def test_a_groups_members_given_as_one_text_are_refused() -> None:
    with pytest.raises(UsageError, match="one text"):
        form_meta_groups({"A": "s1"})


def test_labels_are_written_as_in_the_paper() -> None:
    assert label_text(("A", "B", "C")) == "<ABC>"
    assert label_text(("A", "news")) == "<A, news>"


# The paper's worked example.


@pytest.mark.parametrize("shape", BOTH)
def test_figures_2_to_4(shape: Shape) -> None:
    forest = build_forest(of_labels(*FIGURE_2), shape=shape)
    assert sorted(forest.nodes) == sorted(named(*FIGURE_2))
    assert forest.roots == named("ABC")
    abc = ("A", "B", "C")
    assert forest.primary_of == {"A": abc, "B": abc, "C": abc, "D": ("A", "D")}
    assert set(forest.nodes[abc].children) == set(named("A", "B", "C", "AB", "AC", "BC", "AD"))
    assert set(forest.nodes["A", "D"].children) == set(named("CD", "D"))
    assert forest.route("C").extra == named("AD")
    assert forest.leads(abc)["C"][-1:] == named("AD")
    assert forest.leads(("A", "D"))["C"] == named("CD")
    assert set(forest.leads(("A", "D"))["D"]) == set(named("CD", "D"))
    assert not broken_rules(forest)


def test_section_6_counts_n_and_e_messages_and_three_hops_where_the_depth_is_two() -> None:
    forest = build_forest(of_labels(*FIGURE_2, sites=3))
    route = forest.route("A")
    assert (route.messages, route.extra, route.depth, route.hops) == (15, (), 2, 3)
    assert (route.busiest, route.busiest_load) == ("abc0", 1 + 4 + 2)
    assert sum(forest.loads("A").values()) == 2 * 15 - 1, (
        "each is sent and received, the first by an outsider"
    )
    assert forest.loads("A")["a1"] == 1
    through = forest.route("C")
    assert (through.messages, through.extra, through.depth, through.hops) == (15 + 1, named("AD"), 3, 4)


# Trees.


def literal(labels: Sequence[Label]) -> tuple[dict[Label, Label | None], dict[Group, Label]]:
    """The paper's two procedures, as they are printed, with the joint list sorted by rank."""
    parents: dict[Label, Label | None] = {}
    primaries: dict[Group, Label] = {}

    def build_tree(primary: Label) -> None:
        for group in primary:
            primaries.setdefault(group, primary)
        for label in labels:
            if label not in parents and set(label) <= set(primary):
                parents[label] = primary
        joint = [label for label in labels if label not in parents and set(label) & set(primary)]
        for label in sorted(joint, key=rank):
            if label not in parents:
                parents[label] = primary
                build_tree(label)

    for group in sorted({group for label in labels for group in label}):
        if group not in primaries:
            root = min((label for label in labels if group in label), key=rank)
            parents[root] = None
            build_tree(root)
    return parents, primaries


def separated(labels: Sequence[Label]) -> tuple[dict[Label, Label | None], dict[Group, Label]]:
    """The shallow shape from above: the root, then each part that its groups held together, alike."""
    parents: dict[Label, Label | None] = {}
    primaries: dict[Group, Label] = {}

    def reach(label: Label) -> int:
        free = [group for group in label if group not in primaries]
        return sum(group in other for group in free for other in labels)

    def parts(of: list[Label]) -> Iterator[list[Label]]:
        rest = list(of)
        while rest:
            part = [rest.pop(0)]
            for label in part:
                free = {group for group in label if group not in primaries}
                near = [other for other in rest if free & set(other)]
                part += near
                rest = [other for other in rest if other not in near]
            yield part

    def build(part: list[Label], parent: Label | None) -> None:
        root = min(part, key=lambda label: (-reach(label), rank(label)))
        parents[root] = parent
        for group in root:
            primaries.setdefault(group, root)
        for smaller in list(parts([label for label in part if label != root])):
            build(smaller, root)

    for part in list(parts(list(labels))):
        build(part, None)
    return parents, primaries


@pytest.mark.slow
@settings(max_examples=300)
@given(memberships(groups="ABCDEFGH", sites=16))
def test_both_shapes_equal_their_literal_twins(membership: dict[Group, set[Site]]) -> None:
    labels = [meta_group.label for meta_group in form_meta_groups(membership)]
    assert printed(labels) == literal(labels)
    assert shallow(labels) == separated(labels)


def test_both_shapes_equal_their_literal_twins_where_many_small_meta_groups_overlap() -> None:
    for seed in range(60):
        random = Random(seed)
        drawn = {tuple(sorted(random.sample("ABCDEFGHIJ", random.randint(1, 3)))) for _ in range(25)}
        labels = sorted(drawn, key=rank)
        assert printed(labels) == literal(labels), seed
        assert shallow(labels) == separated(labels), seed


@pytest.mark.slow
@pytest.mark.parametrize("shape", BOTH)
def test_rules_1_and_2_for_every_family_of_meta_groups_over_three_groups_and_many_over_four(
    shape: Shape,
) -> None:
    every_third = [family for number, family in enumerate(families("ABCD")) if number % 3 == 0]
    for family in [*families("ABC"), *every_third]:
        forest = build_forest(of_labels(*map("".join, family)), shape=shape)
        assert not broken_rules(forest), family


@settings(max_examples=200)
@given(memberships(groups="ABCDEFGH", sites=16), st.sampled_from(BOTH))
def test_routes_flows_and_leads_tell_one_story(membership: dict[Group, set[Site]], shape: Shape) -> None:
    forest = build_forest(membership, shape=shape)
    assert not broken_rules(forest)
    for group, members in membership.items():
        assert set(forest.members(group)) == members
        if not members:
            assert forest.entry(group) is None
            continue
        route = forest.route(group)
        assert route.messages == len(members) + len(route.extra)
        assert forest.entry(group) == forest.nodes[forest.primary_of[group]].primary
        followed = set()
        stack = [forest.primary_of[group]]
        while stack:
            label = stack.pop()
            for child in forest.leads(label).get(group, ()):
                assert group in forest.flows(child)
                followed.add((label, child))
                stack.append(child)
        assert followed == set(route.edges)


def test_a_group_without_members_has_no_route() -> None:
    with pytest.raises(UsageError, match="B has no members"):
        build_forest({"A": {"s0"}, "B": set()}).route("B")


@pytest.mark.parametrize("shape", BOTH)
def test_a_chain_of_thousands_of_groups_overflows_no_stack(shape: Shape) -> None:
    names = [f"g{number:05d}" for number in range(5_000)]
    forest = build_forest(
        {name: [f"s{number:05d}", f"s{number + 1:05d}"] for number, name in enumerate(names)}, shape=shape
    )
    assert len(forest.roots) == 1
    assert len(list(forest.tree(forest.roots[0]))) == 5_001
    assert forest.route(names[2_500]).messages >= 2
    assert forest.flows(forest.roots[0]) == ()


def test_the_shallow_shape_does_not_string_up_what_shares_only_the_root() -> None:
    membership = of_labels(*(f"A{other}" for other in "BCDEFGHIJK"))
    assert build_forest(membership, shape="shallow").route("A").depth == 2
    assert build_forest(membership, shape="printed").route("A").depth == 10


def test_primary_sites_stay_where_they_were_as_long_as_they_can() -> None:
    membership = {"A": {"s1", "s2", "s3"}}
    assert build_forest(membership).entry("A") == "s1"
    assert build_forest(membership, primaries={("A",): "s2"}).entry("A") == "s2"
    assert build_forest(membership, primaries={("A",): "s9"}).entry("A") == "s1"


def test_broken_rules_are_found() -> None:
    good = build_forest(of_labels("AB", "BC", "AC"))
    nodes = dict(good.nodes)
    nodes["A", "C"] = nodes["A", "C"]._replace(parent=None)
    assert any(
        "another parent" in sentence for sentence in broken_rules(Forest(nodes, good.primary_of, "shallow"))
    )
    wrong = {**good.primary_of, "A": ("B", "C")}
    assert "The primary meta-group of A is none of its own." in broken_rules(
        Forest(good.nodes, wrong, "shallow")
    )
    late = {**good.primary_of, "A": ("A", "C")}
    assert any("No path" in sentence for sentence in broken_rules(Forest(good.nodes, late, "shallow")))
    ring: dict[Label, Node] = {
        label: Node(label, ("s",), "s", other, (other,))
        for label, other in ((("A",), ("A", "B")), (("A", "B"), ("A",)))
    }
    assert (
        "0 meta-groups are reached from roots, and there are 2."
        in broken_rules(Forest(ring, {"A": ("A",), "B": ("A", "B")}, "shallow"))[0]
    )


# The order, by every order of arrival.

Leads = Mapping[Label, Mapping[Group, tuple[Label, ...]]]


class Arrivals:
    """Nodes that pass messages on over links that keep their order; who comes first is open.

    A message is its group's name and a number. What `moves` offers is the next input of a node: from above,
    or a message that begins there.
    """

    def __init__(self, leads: Leads, sources: Mapping[str, Label]) -> None:
        self._leads = leads
        self.queues: dict[tuple[Label | str, Label], tuple[str, ...]] = {}
        self.logs: dict[Label, tuple[str, ...]] = {}
        for message, source in sources.items():
            self.queues[message, source] = (message,)
        self.inputs: dict[Label, int] = {}
        links = {(label, below) for label in leads for ways in leads[label].values() for below in ways}
        for _, below in links | set(self.queues):
            self.inputs[below] = self.inputs.get(below, 0) + 1

    def moves(self) -> list[tuple[Label | str, Label]]:
        """The links that have something; a node with a single input leaves no choice, so it goes first."""
        ready = sorted((link for link, queue in self.queues.items() if queue), key=str)
        forced = [link for link in ready if self.inputs[link[1]] == 1]
        return forced[:1] or ready

    def move(self, link: tuple[Label | str, Label]) -> None:
        node = link[1]
        message, self.queues[link] = self.queues[link][0], self.queues[link][1:]
        self.logs[node] = (*self.logs.get(node, ()), message)
        for below in self._leads[node].get(message[0], ()):
            self.queues[node, below] = (*self.queues.get((node, below), ()), message)

    def delivered(self) -> tuple[tuple[str, ...], ...]:
        """What each node's sites deliver, which is only what is addressed to them."""
        shown = {tuple(message for message in log if message[0] in label) for label, log in self.logs.items()}
        return tuple(sorted(log for log in shown if len(log) > 1))

    def state(self) -> tuple[object, ...]:
        queues = frozenset((link, queue) for link, queue in self.queues.items() if queue)
        return queues, frozenset(self.logs.items())


def outcomes(leads: Leads, sources: Mapping[str, Label]) -> set[tuple[tuple[str, ...], ...]]:
    """Everything that the sites together can deliver, over all orders of arrival."""
    found = set()
    seen = set()
    stack = [Arrivals(leads, sources)]
    while stack:
        arrivals = stack.pop()
        moves = arrivals.moves()
        if not moves:
            found.add(arrivals.delivered())
        for link in moves:
            following = copy(arrivals)
            following.queues, following.logs = dict(arrivals.queues), dict(arrivals.logs)
            following.move(link)
            if following.state() not in seen:
                seen.add(following.state())
                stack.append(following)
    return found


def in_one_order(logs: Sequence[Sequence[str]]) -> bool:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for log in logs:
        for before, after in pairwise(log):
            sorter.add(after, before)
    try:
        sorter.prepare()
    except CycleError:
        return False
    return True


def plain(forest: Forest) -> Leads:
    return {label: forest.leads(label) for label in forest.nodes}


def short(shortcuts: Shortcuts) -> Leads:
    return {label: shortcuts.leads(label) for label in shortcuts.forest.nodes}


@pytest.mark.parametrize("shape", BOTH)
def test_the_theorem_for_every_family_over_three_groups_and_every_order_of_arrival(shape: Shape) -> None:
    for family in families("ABC"):
        forest = build_forest(of_labels(*map("".join, family)), shape=shape)
        for logs in outcomes(plain(forest), forest.primary_of):
            assert in_one_order(logs), (family, logs)


@settings(max_examples=300)
@given(memberships(groups="ABCDEF", sites=14), st.sampled_from(BOTH), st.integers(0, 2**32))
def test_the_theorem_for_random_groups_with_three_messages_each(
    membership: dict[Group, set[Site]], shape: Shape, seed: int
) -> None:
    forest = build_forest(membership, shape=shape)
    random = Random(seed)
    sources = {f"{group}{number}": label for group, label in forest.primary_of.items() for number in range(3)}
    arrivals = Arrivals(plain(forest), sources)
    while moves := arrivals.moves():
        arrivals.move(random.choice(moves))
    assert in_one_order(arrivals.delivered())


# Shortcuts.


def test_section_4_2_takes_the_short_way_in_its_own_example() -> None:
    forest = build_forest(of_labels(*FIGURE_2))
    shortcuts = bypassed(forest)
    assert shortcuts.past == {"C": frozenset(named("AD"))}
    assert shortcuts.way("C", ("C", "D")) == named("ABC", "CD")
    assert shortcuts.leads(("A", "B", "C"))["C"] == named("AC", "BC", "C", "CD")
    assert "C" not in shortcuts.leads(("A", "D"))
    assert bypassed(forest, groups=["A"]).past == {}


def test_section_4_2_breaks_the_order_of_two_groups() -> None:
    """The chain <ABC> - <ABD> - <ACD>: C may go past <ABD>, A may not, and the ends see two orders."""
    forest = build_forest(of_labels("ABC", "ABD", "ACD"), shape="printed")
    assert [forest.nodes[label].parent for label in named("ABC", "ABD", "ACD")] == [
        None,
        *named("ABC", "ABD"),
    ]
    assert candidates(forest)["C"] == named("ABD")
    unsound = Shortcuts(forest, candidates(forest))
    assert [conflict.groups for conflict in unsound.conflicts()] == [("A", "C")]
    only_two = {group: forest.primary_of[group] for group in "AC"}
    assert (("A", "C"), ("C", "A")) in outcomes(short(unsound), only_two)
    assert bypassed(forest).past == {}


def test_any_shortcut_lets_three_groups_go_round_in_a_circle() -> None:
    """<AB> - <BC> - <AC> with A past <BC>: no two groups disagree, and yet b < a, a < c, c < b."""
    nodes: dict[Label, Node] = {
        ("A", "B"): Node(("A", "B"), ("ab0",), "ab0", None, named("BC")),
        ("B", "C"): Node(("B", "C"), ("bc0",), "bc0", ("A", "B"), named("AC")),
        ("A", "C"): Node(("A", "C"), ("ac0",), "ac0", ("B", "C"), ()),
    }
    chain_of_three = Forest(nodes, {"A": ("A", "B"), "B": ("A", "B"), "C": ("B", "C")}, "printed")
    assert not broken_rules(chain_of_three)
    shortcuts = bypassed(chain_of_three)
    assert shortcuts.past == {"A": frozenset(named("BC"))}
    seen = outcomes(short(shortcuts), chain_of_three.primary_of)
    assert (("A", "C"), ("B", "A"), ("C", "B")) in seen
    assert all(in_one_order(logs) for logs in outcomes(plain(chain_of_three), chain_of_three.primary_of))


def random_forests(count: int) -> Iterator[tuple[Random, Forest]]:
    """Small forests with something to go past."""
    random = Random(7)
    while count:
        labels = [label for label in combinations("ABCDE", random.choice((2, 3))) if random.random() < 0.35]
        forest = build_forest(of_labels(*map("".join, labels)), shape=random.choice(BOTH))
        if any(candidates(forest).values()):
            count -= 1
            yield random, forest


def test_two_groups_are_in_order_exactly_where_all_their_merge_points_are_one() -> None:
    broken = sound = 0
    for random, forest in random_forests(150):
        past = {
            group: [label for label in labels if random.random() < 0.7]
            for group, labels in candidates(forest).items()
        }
        shortcuts = Shortcuts(forest, past)
        conflicts = {conflict.groups for conflict in shortcuts.conflicts()}
        for pair in combinations(sorted(forest.primary_of), 2):
            sources = {group: forest.primary_of[group] for group in pair}
            agreed = all(len(logs) <= 1 for logs in outcomes(short(shortcuts), sources))
            assert agreed == (pair not in conflicts), (sorted(forest.nodes), past, pair)
        broken += bool(conflicts)
        sound += not conflicts
    assert broken > 20
    assert sound > 20


def test_sound_shortcuts_have_no_conflict_and_take_some_of_what_the_paper_takes() -> None:
    taken = offered = 0
    for _, forest in random_forests(150):
        shortcuts = bypassed(forest)
        assert shortcuts.conflicts() == []
        offers = candidates(forest)
        assert all(labels <= set(offers[group]) for group, labels in shortcuts.past.items())
        taken += sum(map(len, shortcuts.past.values()))
        offered += sum(map(len, offers.values()))
    assert 0 < taken < offered


def test_a_shortcut_past_a_fork_or_a_destination_is_refused() -> None:
    forest = build_forest(of_labels("ABC", "ADE", "CD", "CE"))
    assert forest.route("C").extra == named("ADE")
    for label in named("ADE", "CD"):
        with pytest.raises(UsageError, match=f"C cannot go past {label_text(label)}"):
            Shortcuts(forest, {"C": [label]})


# Changes.


@settings(max_examples=300)
@given(memberships(groups="ABCDE", sites=8), st.sampled_from(BOTH), st.integers(0, 2**32))
def test_a_changed_forest_equals_one_built_from_nothing(
    membership: dict[Group, set[Site]], shape: Shape, seed: int
) -> None:
    random = Random(seed)
    before = build_forest(membership, shape=shape)
    pairs = random.sample(
        [(f"s{site}", group) for site in range(10) for group in "ABCDEZ"], random.randint(1, 4)
    )
    leaves = [(site, group) for site, group in pairs if site in membership.get(group, ())]
    joins = [pair for pair in pairs if pair not in leaves]
    changed = change(before, joins, leaves)
    wanted = {group: set(members) for group, members in membership.items()} | {"Z": set()}
    for site, group in leaves:
        wanted[group].remove(site)
    for site, group in joins:
        wanted[group].add(site)
    primaries = {label: node.primary for label, node in before.nodes.items()}
    after = build_forest(wanted, primaries=primaries, shape=shape)
    assert changed.forest.nodes == after.nodes
    assert changed.forest.primary_of == after.primary_of
    check_account(before, after, changed)


def check_account(before: Forest, after: Forest, changed: Change) -> None:
    """What a change says of itself is what two forests side by side show."""
    assert changed.created == tuple(sorted(set(after.nodes) - set(before.nodes)))
    assert changed.deleted == tuple(sorted(set(before.nodes) - set(after.nodes)))
    assert changed.alters_trees == bool(changed.created or changed.deleted)
    assert sorted((*changed.kept, *changed.stopped)) == sorted(before.roots)
    assert sorted((*changed.kept, *changed.begun)) == sorted(after.roots)
    for root in changed.kept:
        assert list(before.tree(root)) == list(after.tree(root))
    for root in changed.stopped:
        assert root not in after.roots or list(before.tree(root)) != list(after.tree(root))
    both = set(before.nodes) & set(after.nodes)
    for what, labels in (("parent", changed.reparented), ("sites", changed.resized)):
        differing = {
            label for label in both if getattr(before.nodes[label], what) != getattr(after.nodes[label], what)
        }
        assert differing == set(labels)
    assert changed.moved == {
        label: (before.nodes[label].primary, after.nodes[label].primary)
        for label in both
        if before.nodes[label].primary != after.nodes[label].primary
    }


def test_a_change_that_creates_and_deletes_no_meta_group_alters_no_tree() -> None:
    forest = build_forest(of_labels(*FIGURE_2, sites=2))
    joined = change(forest, joins=[("a1", "B")])
    assert not joined.alters_trees
    assert joined.resized == named("A", "AB")
    assert joined.kept == named("ABC")
    assert joined.moved == {}
    left = change(forest, leaves=[("abc0", "C")])
    assert not left.alters_trees
    assert left.moved == {("A", "B", "C"): ("abc0", "abc1")}, "the newcomer in <AB> does not take over there"


def test_a_new_meta_group_joins_two_trees_and_its_loss_splits_them() -> None:
    forest = build_forest({**of_labels("AB", "B", sites=2), **of_labels("CD", "D"), **of_labels("E")})
    joined = change(forest, joins=[("b1", "C")])
    assert joined.stopped == named("AB", "CD")
    assert joined.kept == named("E")
    assert len(joined.begun) == 1
    split = change(joined.forest, leaves=[("b1", "C")])
    assert split.begun == named("AB", "CD")
    assert split.forest.nodes == forest.nodes


def test_moves_that_make_no_sense_are_refused() -> None:
    forest = build_forest({"A": {"s0"}})
    with pytest.raises(UsageError, match="s1 cannot leave A: it is not a member"):
        change(forest, leaves=[("s1", "A")])
    with pytest.raises(UsageError, match="s0 cannot join A: it is a member already"):
        change(forest, joins=[("s0", "A")])
    assert change(forest, joins=[("s0", "A")], leaves=[("s0", "A")]).forest.nodes == forest.nodes
