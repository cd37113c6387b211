"""How a tree ends, as a pure function of what its sites hold; quorums; and what a plan keeps of the trees."""

from itertools import combinations
from random import Random

import pytest

from antiphon.protocols.metagroups.attempt import Attempt, Outcome
from antiphon.protocols.metagroups.ending import Name, end_tree, merge, order_at
from antiphon.protocols.metagroups.pdus import (
    MOST_RETIRING,
    Decision,
    Ending,
    Holding,
    Item,
    Report,
    SiteRecord,
    Vote,
)
from antiphon.protocols.metagroups.view import (
    NO_FOUNDER,
    View,
    decide,
    first_decision,
    plan_trees,
    retire,
    view_of,
)

TREE = (1, 0)
MEMBERS = {"A": frozenset("abc"), "B": frozenset("bcd")}


def items(text: str) -> tuple[Item, ...]:
    """Batches by sender, number and group, such as `a0A b3B`."""
    return tuple(Item(name[0], int(name[1:-1]), 1, name[-1]) for name in text.split())


def end(**holdings: tuple[str, int, str]) -> str:
    """The order that follows from streams, the delivered parts of them, and what waits."""
    ending = end_tree(
        TREE,
        MEMBERS,
        {
            site: Holding(TREE, items(stream), delivered, items(waiting))
            for site, (stream, delivered, waiting) in holdings.items()
        },
    )
    return " ".join(f"{item.sender}{item.number}{item.group}" for item in ending.items)


def test_what_all_hold_comes_in_the_order_of_the_streams() -> None:
    assert end(
        a=("c0A d0A", 0, ""), b=("c0A b0B d0A", 0, ""), c=("c0A b0B d0A", 0, ""), d=("b0B", 0, "")
    ) == ("c0A b0B d0A")


def test_what_a_destination_lacks_comes_last() -> None:
    """No site can have delivered it, so its place is free."""
    assert end(a=("c0A d0A", 0, ""), b=("d0A", 0, ""), c=("c0A d0A", 0, "c0A"), d=("", 0, "")) == "d0A c0A"


def test_what_a_destination_lacks_and_its_sender_does_not_name_was_never_sent() -> None:
    assert end(a=("c0A d0A", 0, ""), b=("d0A", 0, ""), c=("d0A", 0, ""), d=("", 0, "")) == "d0A"
    assert end(a=("c0A d0A", 0, ""), b=("d0A", 0, "")) == "d0A c0A"


def test_the_report_of_the_sender_of_a_batch_counts_most() -> None:
    holdings = {site: Holding(TREE, (Item("c", 0, 5, "A"),), 0, ()) for site in "ab"}
    own = Holding(TREE, (), 0, items("c0A"))
    assert end_tree(TREE, MEMBERS, holdings | {"c": own}).items == items("c0A")


def test_what_one_site_delivered_is_sure_even_if_another_has_forgotten_it() -> None:
    """A site forgets the names of what all have delivered before all know that they have."""
    assert end(a=("c0A d0A", 1, ""), b=("d0A", 0, ""), c=("c0A d0A", 2, ""), d=("", 0, "")) == "c0A d0A"


def test_nothing_is_sure_that_follows_its_senders_doubtful_one() -> None:
    """d1B is held by all of B, yet c got it after d0A, which b lacks: no site has delivered d1B."""
    order = end(a=("d0A", 0, ""), b=("a0B d1B", 0, ""), c=("d0A a0B d1B", 0, ""), d=("a0B d1B", 0, "d0A d1B"))
    assert order == "a0B d0A d1B"


def test_a_batch_that_only_its_sender_names_holds_up_nothing() -> None:
    """It was delivered by all long ago, and its sender has not heard so; what followed may be delivered."""
    assert end(a=("a1A", 0, "a0A a1A"), b=("c0A a1A", 1, ""), c=("c0A a1A", 1, ""), d=("", 0, "")) == (
        "c0A a1A a0A"
    )


def test_own_batches_without_a_place_come_last_in_their_senders_order() -> None:
    assert end(a=("", 0, "a4A a5A"), b=("", 0, "b3B b9A"), c=("", 0, ""), d=("", 0, "")) == "b3B a4A a5A b9A"


def test_what_has_no_destination_that_reports_is_dropped() -> None:
    assert end(d=("", 0, "d0A d1B")) == "d1B"


def test_no_site_names_batches_of_others() -> None:
    assert end(a=("", 0, "b0A")) == ""


@pytest.mark.parametrize(
    ("stream", "order"),
    [
        ("", "a0A b0A c0A d0A"),
        ("a0A b0A c0A", "a0A b0A c0A d0A"),
        ("a0A c0A", "a0A b0A c0A d0A"),
        ("d0A a0A", "a0A b0A c0A d0A"),
        ("b0A a0A", "b0A a0A c0A d0A"),
        ("c0A d0A a0A", "c0A a0A b0A d0A"),
    ],
)
def test_a_site_keeps_to_its_own_stream_only_where_the_ending_contradicts_it(stream: str, order: str) -> None:
    """What is not sure, such as d0A, has no place in a stream."""
    ending = Ending(TREE, items("a0A b0A c0A d0A"), ("a", "a", "a", "a"), 3)
    assert order_at(ending, items(stream)) == items(order)


@pytest.mark.parametrize("seed", range(50))
def test_the_merged_order_agrees_with_every_stream(seed: int) -> None:
    random = Random(seed)
    whole: list[Name] = [("x", number) for number in random.sample(range(100), 30)]
    streams = [[name for name in whole if random.random() < 0.4] for _ in range(5)]
    order = merge(streams)
    assert sorted(order) == sorted({name for stream in streams for name in stream})
    for stream in streams:
        assert sorted(stream, key=order.index) == stream


def test_streams_that_contradict_each_other_give_some_order() -> None:
    one, other = ("a", 0), ("b", 0)
    assert sorted(merge([[one, other], [other, one]])) == [one, other]


# Attempts


def attempt(round_: int) -> Attempt:
    table = view(a="A", b="A", c="A", d="A", e="A")
    return Attempt(table, (round_, "a"), table.sessions, frozenset(table.trees), 0)


def report(round_: int, vote: Vote | None) -> Report:
    return Report(2, round_, (0, 0), vote, (Holding(TREE, (), 0, ()),))


def conclude(found: Attempt, votes: dict[str, Vote | None]) -> Outcome:
    found.reports.update({site: report(found.ballot[0], vote) for site, vote in votes.items()})
    return found.conclude({}, set("abcde") - votes.keys(), (), "shallow", set("abcde"))


def earlier_decision() -> Decision:
    """What an earlier attempt decided with a, b, c and d."""
    found = attempt(1)
    assert conclude(found, dict.fromkeys("abcd")) is Outcome.DECIDED
    assert found.decision is not None
    return found.decision


def test_a_decision_that_all_reporting_sites_have_accepted_is_adopted() -> None:
    earlier = earlier_decision()
    vote = Vote((1, "a"), False, True, earlier)
    found = attempt(2)
    assert conclude(found, {"b": vote, "c": vote, "d": vote}) is Outcome.DECIDED
    assert found.decision == earlier
    assert found.adopted


def test_a_decision_that_a_reporting_site_has_not_accepted_was_not_installed() -> None:
    earlier = earlier_decision()
    vote = Vote((1, "a"), False, True, earlier)
    found = attempt(2)
    assert conclude(found, {"b": vote, "c": vote, "d": None}) is Outcome.DECIDED
    assert found.decision is not None
    assert found.decision.ballot == (2, "a")


def test_what_was_adopted_once_is_adopted_again() -> None:
    """Then it may be in force although one of those in it was not heard and has not accepted it."""
    earlier = earlier_decision()
    vote = Vote((2, "b"), True, True, earlier)
    found = attempt(3)
    assert conclude(found, {"b": vote, "c": vote, "d": None, "e": None}) is Outcome.DECIDED
    assert found.decision == earlier


def test_too_few_decide_nothing() -> None:
    assert conclude(attempt(1), dict.fromkeys("de")) is Outcome.WAIT


# Views


def view(**groups: str) -> View:
    records = tuple(
        SiteRecord(site, (0, 0), 1, tuple(sorted(wanted))) for site, wanted in sorted(groups.items())
    )
    return view_of(first_decision(NO_FOUNDER, records, "shallow"), "shallow")


@pytest.mark.parametrize("size", range(1, 8))
def test_any_two_quorums_have_a_site_in_common(size: int) -> None:
    sites = "abcdefgh"[:size]
    table = view(**dict.fromkeys(sites, "A"))
    quorums = [
        set(chosen)
        for count in range(size + 1)
        for chosen in combinations(sites, count)
        if table.is_quorum(chosen)
    ]
    assert quorums
    assert all(one & other for one in quorums for other in quorums)


def moved(table: View, **groups: str | None) -> list[SiteRecord]:
    """The same records, but for some; None means that a site is gone, and a ! that it has lost its memory."""
    records = {site: record for site, record in table.records.items() if groups.get(site, "") is not None}
    for site, wanted in groups.items():
        if wanted is not None:
            session = (1, 0) if "!" in wanted else (0, 0)
            records[site] = SiteRecord(site, session, 2, tuple(sorted(wanted.replace("!", ""))))
    return list(records.values())


@pytest.mark.parametrize(
    ("change", "kept", "handed_over", "ended"),
    [
        ({}, 2, 0, 0),
        ({"b": "AB"}, 1, 1, 0),
        ({"b": ""}, 1, 1, 0),
        ({"z": "A"}, 1, 1, 0),
        ({"a": ""}, 1, 1, 0),
        ({"b": None}, 1, 0, 1),
        ({"b": "A!"}, 1, 0, 1),
        ({"b": "AX"}, 0, 2, 0),
        ({"b": "AX", "y": None}, 0, 1, 1),
        ({"d": "A"}, 1, 1, 0),
        ({"c": "A", "d": "A"}, 1, 1, 0),
        ({"x": "", "y": ""}, 1, 1, 0),
    ],
    ids=str,
)
def test_which_trees_a_change_touches(
    change: dict[str, str | None], kept: int, handed_over: int, ended: int
) -> None:
    """a to e are on one tree, where a is a primary site; x, y on another."""
    table = view(a="A", b="A", c="AB", d="AB", e="B", f="B", x="X", y="X")
    plan = plan_trees(table, moved(table, **change), (), "shallow")
    assert (len(plan.kept), len(plan.handed_over), len(plan.ended)) == (kept, handed_over, ended)


def test_a_retiring_tree_ends_together_with_trees_that_share_a_site() -> None:
    """A site that has moved delivers on its new tree only after the old one; so neither ends alone."""
    table = view(a="A", b="A", c="A", x="X", y="X")
    records = moved(table, c="X")
    plan = plan_trees(table, records, (), "shallow")
    assert len(plan.handed_over) == 2
    retiring = retire(table, plan, ())
    following = view_of(decide(NO_FOUNDER, 2, (1, "a"), records, plan, retiring), "shallow")
    assert len(following.all_trees()) == 4
    gone = plan_trees(following, moved(following, y=None), (), "shallow")
    assert gone.ended == following.all_trees()
    assert not retire(following, gone, ())


def test_no_more_trees_hand_over_than_may() -> None:
    """One after another, and none comes to its end: then the next is stopped, and all that wait for it."""
    table, sites = view(a="A", b="A", c="B"), "AB"
    for version in range(2, MOST_RETIRING + 2):
        records = moved(table, b=sites[version % 2])
        plan = plan_trees(table, records, (), "shallow")
        if plan.ended:
            break
        retiring = retire(table, plan, ())
        assert len(retiring) <= MOST_RETIRING
        table = view_of(decide(NO_FOUNDER, version, (1, "a"), records, plan, retiring), "shallow")
    assert len(table.retiring) == MOST_RETIRING
    assert plan.ended == table.all_trees()
