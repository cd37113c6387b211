"""Two-phase ABCAST: what it costs, each rule of its order, and whole groups over a network that loses."""

from typing import Any

import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.effects import Deliver, Effect, Send
from antiphon.core.inputs import Admit, Received, Start
from antiphon.core.packing import pack
from antiphon.protocols.overlapping import GroupsConfiguration
from antiphon.protocols.rivals.two_phase import LATEST, PDUS, PROMISES, Fixed, Message, Proposal, TwoPhase
from antiphon.trace.schema import Run
from tests.protocols.harness.overlapping_group import FIGURE_2, HOP_NS, Overlapping, cost, faulty

KNOBS = GroupsConfiguration()
BATCH = pack([b"x"])
PAIR: dict[str, tuple[str, ...]] = {"A": ("p", "q"), "B": ("q", "r")}


def started(site: str, membership: dict[str, tuple[str, ...]] = PAIR, *others: str) -> TwoPhase:
    protocol = TwoPhase(site, membership, KNOBS, others)
    protocol.handle(0, Start())
    return protocol


def deliveries(effects: list[Effect]) -> list[tuple[str, int]]:
    return [(effect.sender, effect.number) for effect in effects if isinstance(effect, Deliver)]


def sent(effects: list[Effect], kind: type[Any]) -> list[Any]:
    return [effect.pdu for effect in effects if isinstance(effect, Send) and isinstance(effect.pdu, kind)]


@pytest.mark.parametrize("size", [1, 3, 6])
def test_one_multicast_costs_three_messages_a_member_and_three_hops(size: int) -> None:
    """Jia and So, section 6: 3n messages and 3T, with the sender not in the group."""
    membership = {"A": tuple(f"m{index}" for index in range(size))}
    sites = [*membership["A"], "outside"]
    assert cost(sites, lambda site: TwoPhase(site, membership, KNOBS, ["outside"]), PDUS, "outside", "A") == (
        3 * size,
        3.0,
    )


def test_a_sender_that_is_a_member_saves_three_messages() -> None:
    membership = {"A": ("a", "b", "c")}
    assert cost("abc", lambda site: TwoPhase(site, membership, KNOBS), PDUS, "a", "A") == (6, 3.0)


def test_proposals_rise_and_the_greatest_is_fixed() -> None:
    sender = started("s", PAIR, "s")
    sender.handle(0, Admit([b"x"], group="A"))
    assert sent(sender.handle(0, Received("p", Proposal(1, 1, 1, 0, 9))), Fixed) == []
    fixed = sent(sender.handle(0, Received("q", Proposal(1, 1, 1, 0, 4))), Fixed)
    assert [pdu.timestamp for pdu in fixed] == [9, 9]


def test_a_message_waits_for_those_that_may_come_before_it() -> None:
    """q has proposed 1 for s's message and 2 for t's: t's final 2 may still be beaten, s's 7 comes later."""
    site = started("q", PAIR, "s", "t")
    proposals = [
        sent(site.handle(0, Received(sender, Message(1, 0, 0, 0, "A", BATCH))), Proposal)[0].timestamp
        for sender in ("s", "t")
    ]
    assert proposals == [1, 2]
    assert deliveries(site.handle(0, Received("t", Fixed(2, 1, 1, 0, 2)))) == []
    assert deliveries(site.handle(0, Received("s", Fixed(2, 1, 1, 0, 7)))) == [("t", 0), ("s", 0)]
    later = sent(site.handle(0, Received("s", Message(3, 1, 1, 1, "A", BATCH))), Proposal)
    assert later[0].timestamp == 8, "what is proposed is beyond all that was fixed"


def test_equal_timestamps_are_told_apart_by_their_senders() -> None:
    site = started("q", PAIR, "s", "t")
    for sender in ("t", "s"):
        site.handle(0, Received(sender, Message(1, 0, 0, 0, "A", BATCH)))
    assert deliveries(site.handle(0, Received("t", Fixed(2, 1, 1, 0, 5)))) == []
    assert deliveries(site.handle(0, Received("s", Fixed(2, 1, 1, 0, 5)))) == [("s", 0), ("t", 0)]


def test_a_senders_messages_stay_in_order_across_groups() -> None:
    """p's clock is far ahead, so that plain ABCAST would fix the first message beyond the second."""
    groups = Overlapping("pqrs", lambda site: TwoPhase(site, PAIR | {"P": ("p",)}, KNOBS, "s"), PDUS)
    for _ in range(5):
        groups.admit("p", "P")
    groups.admit("s", "A", at_ms=10)
    groups.admit("s", "B", at_ms=10)
    groups.run()
    assert groups.delivered["q"] == ["s0", "s1"]


def test_what_follows_a_delivery_is_ordered_after_it_everywhere() -> None:
    """p delivers s's message with a great timestamp and answers to B, whose members' clocks are behind."""
    membership = PAIR | {"P": ("p",)}
    groups = Overlapping("pqrs", lambda site: TwoPhase(site, membership, KNOBS, "s"), PDUS)
    for _ in range(5):
        groups.admit("p", "P")
    groups.admit("s", "A", at_ms=10)
    groups.world.at(round(11.5 * HOP_NS), lambda: groups.network.slow.update({("s", "q"): 20 * HOP_NS}))
    groups.admit("p", "B", at_ms=14)
    groups.run()
    assert groups.delivered["q"] == ["s0", "p5"]


@pytest.mark.parametrize("seed", range(3))
def test_losses_are_made_up_for(seed: int) -> None:
    sites = sorted({site for members in FIGURE_2.values() for site in members})
    groups = Overlapping(sites, lambda site: TwoPhase(site, FIGURE_2, KNOBS), PDUS, faulty(0.3, seed))
    for index, site in enumerate(sites):
        for group in FIGURE_2:
            groups.admit(site, group, at_ms=index)
    groups.run(10.0)
    assert {site: len(got) for site, got in groups.delivered.items()} == {
        site: len(sites) * sum(site in members for members in FIGURE_2.values()) for site in sites
    }
    assert check_trace(groups.events(), Run(run="run"), PROMISES) == []
    assert len(groups.stable) == len(sites) * len(FIGURE_2)


@pytest.mark.parametrize(
    ("sender", "pdu"),
    [
        ("s", Message(1, 0, 0, 0, "Z", BATCH)),
        ("s", Message(1, 0, 0, 0, "B", BATCH)),
        ("s", Message(1, 0, 0, -1, "A", BATCH)),
        ("s", Fixed(1, 0, 0, 0, 5)),
        ("q", Proposal(1, 0, 0, 0, 5)),
    ],
)
def test_what_makes_no_sense_is_counted_and_dropped(sender: str, pdu: Any) -> None:
    site = started("p", PAIR, "s")
    effects = site.handle(0, Received(sender, pdu))
    assert not any(isinstance(effect, Deliver | Send) for effect in effects)
    assert site.figures()["ignored"] == 1


@pytest.mark.parametrize("timestamp", [0, -1, LATEST])
def test_a_proposal_that_no_clock_shows_is_ignored(timestamp: int) -> None:
    site = started("s", PAIR, "s")
    site.handle(0, Admit([b"x"], group="A"))
    site.handle(0, Received("p", Proposal(1, 1, 1, 0, timestamp)))
    site.handle(0, Received("p", Proposal(2, 1, 1, 0, 3)))
    site.handle(0, Received("p", Proposal(3, 1, 1, 0, 3)))
    assert site.figures()["ignored"] == 2


@pytest.mark.parametrize("timestamp", [0, LATEST])
def test_a_timestamp_below_the_proposal_is_ignored(timestamp: int) -> None:
    site = started("q", PAIR, "s")
    site.handle(0, Received("s", Message(1, 0, 0, 0, "A", BATCH)))
    assert deliveries(site.handle(0, Received("s", Fixed(2, 1, 1, 0, timestamp)))) == []
    assert deliveries(site.handle(0, Received("s", Fixed(3, 1, 1, 0, 1)))) == [("s", 0)]
    assert site.figures()["ignored"] == 1
