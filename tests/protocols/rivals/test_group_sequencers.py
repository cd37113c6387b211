"""Sequencers for overlapping groups: what they cost, what one of them promises, and what several break."""

from collections.abc import Mapping
from typing import Any

import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.effects import Deliver, Rejected, Send
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit, Received, Start
from antiphon.core.packing import pack
from antiphon.core.protocol import Protocol
from antiphon.protocols.links import Held
from antiphon.protocols.rivals.group_sequencers import (
    EACH_PROMISES,
    PDUS,
    PROMISES,
    GroupSequencers,
    GroupSequencersConfiguration,
    Order,
    Request,
)
from antiphon.sim.network import Arrival
from antiphon.trace.schema import Run
from tests.protocols.harness.overlapping_group import (
    FIGURE_2,
    HOP_NS,
    Build,
    Dropping,
    Overlapping,
    cost,
    faulty,
)

ONE = GroupSequencersConfiguration()
EACH = GroupSequencersConfiguration(sequencers="each")
TWO = {"A": ("a", "b", "c"), "B": ("b", "d", "c")}
"""Two groups that have b and c in common, managed by a and by d."""


def building(
    membership: Mapping[str, tuple[str, ...]], knobs: GroupSequencersConfiguration, *others: str
) -> Build:
    return lambda site: GroupSequencers(site, membership, knobs, others)


def sites_of(membership: Mapping[str, tuple[str, ...]], *others: str) -> list[str]:
    return sorted({*others, *(site for members in membership.values() for site in members)})


def started(site: str, knobs: GroupSequencersConfiguration = ONE) -> GroupSequencers:
    protocol = GroupSequencers(site, TWO, knobs)
    protocol.handle(0, Start())
    return protocol


@pytest.mark.parametrize("size", [1, 3, 6])
def test_one_multicast_costs_one_more_than_its_members_and_two_hops(size: int) -> None:
    """Jia and So, section 6: n+1 messages and 2T, with neither sender nor sequencer in the group."""
    membership = {"A": tuple(f"m{index}" for index in range(size))}
    knobs = GroupSequencersConfiguration(central="center")
    sites = sites_of(membership, "center", "outside")
    build = building(membership, knobs, "center", "outside")
    assert cost(sites, build, PDUS, "outside", "A") == (size + 1, 2.0)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_a_manager_that_is_a_member_saves_a_message(size: int) -> None:
    membership = {"A": tuple(f"m{index}" for index in range(size))}
    build = building(membership, EACH, "outside")
    assert cost(sites_of(membership, "outside"), build, PDUS, "outside", "A") == (size, 2.0)
    assert cost(sites_of(membership, "outside"), build, PDUS, "m0", "A") == (size - 1, 1.0)


def test_one_sequencer_orders_across_groups_where_several_do_not() -> None:
    """Two senders, two groups with b and c in common, and b hears the manager of B late.

    b delivers a's message before d's and c the other way round: a cycle that the checkers find.
    """

    def violated(knobs: GroupSequencersConfiguration) -> set[str]:
        groups = Overlapping(sites_of(TWO), building(TWO, knobs), PDUS)
        groups.network.slow = {("d", "b"): 5 * HOP_NS, ("a", "c"): 5 * HOP_NS}
        groups.admit("a", "A")
        groups.admit("d", "B")
        groups.run()
        assert sorted(groups.delivered["b"]) == sorted(groups.delivered["c"]) == ["a0", "d0"]
        found = check_trace(groups.events(), Run(run="run"), PROMISES)
        return {violation.property for violation in found}

    assert violated(EACH) == {"total"}
    assert violated(ONE) == set()


def test_managers_break_a_senders_order_across_groups_and_keep_it_within_one() -> None:
    groups = Overlapping(sites_of(TWO, "s"), building(TWO, EACH, "s"), PDUS)
    groups.network.slow = {("s", "a"): 5 * HOP_NS}
    groups.admit("s", "A")
    groups.admit("s", "B", at_ms=0.1)
    groups.admit("s", "A", at_ms=0.2)
    groups.run()
    assert groups.delivered["b"] == groups.delivered["c"] == ["s1", "s0", "s2"]
    assert groups.delivered["a"] == ["s0", "s2"]
    assert not {"fifo", "causal", "total"} & set(EACH_PROMISES)


def test_the_sender_learns_when_every_member_has_it() -> None:
    groups = Overlapping(sites_of(TWO, "s"), building(TWO, ONE, "s"), PDUS)
    groups.admit("s", "A", b"1", b"2")
    groups.world.run(3 * HOP_NS)
    assert groups.stable == []
    groups.run()
    assert groups.stable == ["s0", "s1"]
    assert groups.delivered["a"] == ["s0", "s1"]


def test_a_sender_that_was_away_repeats_what_was_lost() -> None:
    def is_lost(arrival: Arrival) -> bool:
        return arrival.time_ns < 2 * HOP_NS

    groups = Overlapping(sites_of(TWO), building(TWO, ONE), PDUS, [Dropping(is_lost)])
    groups.admit("d", "A")
    groups.world.at(HOP_NS // 2, lambda: groups.world.depart("d"))
    groups.world.at(300 * HOP_NS, lambda: groups.world.come_back("d"))
    groups.run()
    assert groups.delivered["a"] == groups.stable == ["d0"]


@pytest.mark.parametrize("seed", range(3))
def test_losses_are_made_up_for(seed: int) -> None:
    sites = sites_of(FIGURE_2)
    groups = Overlapping(sites, building(FIGURE_2, ONE), PDUS, faulty(0.3, seed))
    for index, site in enumerate(sites):
        for group in FIGURE_2:
            groups.admit(site, group, at_ms=index)
    groups.run(10.0)
    assert {site: len(got) for site, got in groups.delivered.items()} == {
        site: len(sites) * sum(site in members for members in FIGURE_2.values()) for site in sites
    }
    assert check_trace(groups.events(), Run(run="run"), PROMISES) == []


def test_a_full_window_refuses_politely_until_something_is_finished() -> None:
    knobs = GroupSequencersConfiguration(window=1)
    groups = Overlapping(sites_of(TWO), building(TWO, knobs), PDUS)
    groups.admit("d", "A")
    groups.admit("d", "A", at_ms=1)
    groups.admit("d", "A", at_ms=100)
    groups.run()
    assert groups.world.rejections == 1
    assert groups.delivered["b"] == ["d0", "d1"]
    site = started("d", knobs)
    site.handle(0, Admit([b"x"], group="A"))
    (refused,) = site.handle(0, Admit([b"x"], group="A"))
    assert isinstance(refused, Rejected)


@pytest.mark.parametrize(
    "event",
    [
        Admit([], group="A"),
        Admit([b"x"]),
        Admit([b"x"], group="Z"),
        Admit([b"x"], frozenset({"a"}), "A"),
        Admit([bytes(100_000)], group="A"),
        Start(),
    ],
)
def test_misuse_raises_and_changes_nothing(event: Any) -> None:
    site = started("d")
    with pytest.raises(UsageError):
        site.handle(0, event)
    admitted, *_ = site.handle(0, Admit([b"x"], group="A"))
    assert admitted.number == 0  # type: ignore[union-attr]


def test_nothing_is_taken_before_the_start() -> None:
    site = GroupSequencers("a", TWO, ONE)
    with pytest.raises(UsageError):
        site.handle(0, Admit([b"x"], group="A"))
    assert site.handle(0, Received("b", Request(1, 0, 0, 0, "A", pack([b"x"])))) == []


@pytest.mark.parametrize(
    ("site", "sender", "pdu"),
    [
        ("a", "b", Request(1, 0, 0, 0, "Z", pack([b"x"]))),
        ("a", "b", Request(1, 0, 0, -1, "A", pack([b"x"]))),
        ("b", "a", Request(1, 0, 0, 0, "A", pack([b"x"]))),
        ("b", "c", Order(1, 0, 0, "c", 0, "A", pack([b"x"]))),
        ("b", "a", Order(1, 0, 0, "z", 0, "A", pack([b"x"]))),
        ("d", "a", Order(1, 0, 0, "b", 0, "A", pack([b"x"]))),
        ("b", "z", Order(1, 0, 0, "z", 0, "A", pack([b"x"]))),
    ],
)
def test_what_makes_no_sense_is_counted_and_dropped(site: str, sender: str, pdu: Any) -> None:
    protocol = started(site)
    effects = protocol.handle(0, Received(sender, pdu))
    assert not any(isinstance(effect, Deliver | Send) for effect in effects)
    assert protocol.figures()["ignored"] == 1


def test_a_pdu_of_another_protocol_is_counted_and_dropped() -> None:
    class Other(Held, frozen=True, gc=False):
        pass

    protocol: Protocol = started("b")
    assert protocol.handle(0, Received("a", Other(5, 5, b"", False, ()))) == []


@pytest.mark.parametrize(
    ("membership", "site", "knobs"),
    [
        (TWO, "z", ONE),
        ({"A": ()}, "a", ONE),
        ({"A": ("a", "a")}, "a", ONE),
        (TWO, "a", GroupSequencersConfiguration(central="z")),
    ],
)
def test_groups_that_make_no_sense_are_refused(
    membership: dict[str, tuple[str, ...]], site: str, knobs: GroupSequencersConfiguration
) -> None:
    with pytest.raises(UsageError):
        GroupSequencers(site, membership, knobs)


@pytest.mark.parametrize("knobs", [{"window": 0}, {"sequencers": "some"}])
def test_options_that_make_no_sense_are_refused(knobs: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        GroupSequencersConfiguration(**knobs)
