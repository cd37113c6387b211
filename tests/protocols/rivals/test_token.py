"""Token passing: what it costs, where the token goes, how requests find it, and what it promises."""

from typing import Any

import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.effects import Deliver, Effect, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received, Returned, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.rivals.token import (
    CHASE,
    MOST_MOVES,
    PDUS,
    PROMISES,
    Entry,
    Moved,
    Order,
    Request,
    Token,
    TokenConfiguration,
    TokenPassing,
    Whereabouts,
)
from antiphon.trace.schema import Run
from tests.protocols.harness.overlapping_group import FIGURE_2, HOP_NS, Overlapping, cost, faulty

KNOBS = TokenConfiguration(resilience=2, announces=False)
GROUPS = {"A": ("a", "b", "c"), "B": ("b", "c", "d")}
BATCH = pack([b"x"])
HERE = Whereabouts(0, "a")


def started(site: str, knobs: TokenConfiguration = KNOBS) -> TokenPassing:
    protocol = TokenPassing(site, GROUPS, knobs)
    protocol.handle(0, Start())
    return protocol


def sent(effects: list[Effect], kind: type[Any]) -> list[tuple[str, Any]]:
    return [
        (effect.to, effect.pdu)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.pdu, kind)
    ]


@pytest.mark.parametrize("size", [1, 3, 6])
@pytest.mark.parametrize("resilience", [1, 2, 3, 5])
def test_one_multicast_costs_its_members_and_its_holders_and_a_hop_for_each_holder(
    size: int, resilience: int
) -> None:
    """Jia and So, section 6: n+L messages and (L+1)T, with neither sender nor holders in the group."""
    membership = {"A": tuple(f"m{index}" for index in range(size))}
    holders = [f"h{index}" for index in range(5)]
    knobs = TokenConfiguration(resilience=resilience)
    sites = [*holders, *membership["A"], "outside"]
    assert cost(sites, lambda site: TokenPassing(site, membership, knobs, sites), PDUS, "outside", "A") == (
        size + resilience,
        resilience + 1.0,
    )


def test_the_token_goes_round_and_so_does_the_work() -> None:
    groups = Overlapping("abcd", lambda site: TokenPassing(site, GROUPS, KNOBS), PDUS)
    for turn in range(4):
        groups.admit("b", "A", at_ms=20 * turn)
    groups.run()
    orders = [source for source, _, pdu in groups.network.sent if isinstance(pdu, Order)]
    assert list(dict.fromkeys(orders)) == ["b", "c", "d", "a"]
    assert groups.figure("repeated") == groups.figure("ignored") == 0
    assert groups.figure("forwarded") == 0, "a member hears with each message where the token is"


def test_no_site_delivers_before_enough_sites_hold_a_message() -> None:
    groups = Overlapping("abcd", lambda site: TokenPassing(site, GROUPS, TokenConfiguration()), PDUS)
    groups.admit("d", "A")
    groups.world.run(3 * HOP_NS - 1)
    assert groups.kinds()["Entry"] == 2
    assert groups.delivered["c"] == []
    groups.world.run(3 * HOP_NS)
    assert groups.delivered["c"] == ["d0"], "the last holder is a member itself"


def test_a_request_follows_the_token_and_the_cost_of_that_is_counted() -> None:
    """d is not in A, so it does not hear that the token went on; its second request goes to a in vain."""
    groups = Overlapping("abcd", lambda site: TokenPassing(site, GROUPS, KNOBS), PDUS)
    groups.admit("d", "A")
    groups.admit("d", "A", at_ms=20)
    groups.run()
    assert groups.delivered["b"] == ["d0", "d1"]
    assert groups.figure("forwarded") == 1


def test_requests_go_where_the_token_was_announced() -> None:
    knobs = TokenConfiguration(resilience=2)
    groups = Overlapping("abcd", lambda site: TokenPassing(site, GROUPS, knobs), PDUS)
    groups.admit("d", "A")
    groups.admit("d", "A", at_ms=20)
    groups.run()
    assert groups.delivered["b"] == ["d0", "d1"]
    assert groups.figure("forwarded") == 0
    assert groups.kinds()["Moved"] == 2 * 3


@pytest.mark.parametrize(
    ("sender", "whereabouts"), [("z", HERE), ("b", Whereabouts(1, "z")), ("b", Whereabouts(-1, "c"))]
)
def test_nonsense_about_the_token_is_counted_and_dropped(sender: str, whereabouts: Whereabouts) -> None:
    site = started("c")
    assert site.handle(0, Received(sender, Moved(whereabouts))) == []
    assert site.figures()["ignored"] == 1


def test_a_request_that_overtook_an_earlier_one_waits_for_it() -> None:
    groups = Overlapping("abcd", lambda site: TokenPassing(site, GROUPS, KNOBS), PDUS)
    groups.network.slow = {("d", "a"): 10 * HOP_NS}
    groups.admit("d", "A")
    groups.admit("c", "B", at_ms=1)
    groups.admit("d", "B", at_ms=6)
    groups.run()
    assert groups.delivered["c"] == groups.delivered["b"] == ["c0", "d0", "d1"]
    assert groups.delivered["d"] == ["c0", "d1"]


def test_a_request_that_was_sent_often_waits_for_the_token_and_then_follows_again() -> None:
    site = started("d")
    gone = Whereabouts(4, "b")
    effects = site.handle(0, Received("c", Request(1, 0, 0, gone, 3, "c", 0, "A", BATCH)))
    assert sent(effects, Request) == []
    effects = site.handle(KNOBS.patience_ns, TimerFired(CHASE))
    ((to, request),) = sent(effects, Request)
    assert (to, request.sender, request.tries) == ("b", "c", 2)


def test_what_waits_is_ordered_when_the_token_comes_by() -> None:
    site = started("d")
    site.handle(0, Received("c", Request(1, 0, 0, Whereabouts(4, "b"), 3, "c", 0, "A", BATCH)))
    token = Token({"b": 1}, {"b": 1, "c": 1, "d": 1})
    entry = Entry(2, 0, 0, Whereabouts(5, "d"), 0, token, (1, 1, 1), "b", 0, "B", BATCH)
    effects = site.handle(0, Received("c", entry))
    ((to, handed_on),) = sent(effects, Entry)
    assert to == "a"
    assert (handed_on.sender, handed_on.counts, handed_on.whereabouts) == (
        "c",
        (1, 2, 2),
        Whereabouts(6, "a"),
    )
    assert handed_on.token == Token({"b": 1, "c": 1}, {"a": 1, "b": 2, "c": 2, "d": 1})
    assert [effect.number for effect in effects if isinstance(effect, Deliver)] == [0]


def test_what_comes_early_waits_for_its_place() -> None:
    site = started("c")
    early = site.handle(0, Received("b", Order(1, 0, 0, HERE, 2, "a", 1, "A", BATCH)))
    assert not any(isinstance(effect, Deliver) for effect in early)
    effects = site.handle(0, Received("d", Order(1, 0, 0, HERE, 1, "a", 0, "A", BATCH)))
    assert [effect.number for effect in effects if isinstance(effect, Deliver)] == [0, 1]


def waiting_for_the_token(site: TokenPassing, count: int, tries: int = 0) -> None:
    """That many requests of c at a site to which the token is on its way."""
    coming = Whereabouts(4, "d")
    for number in range(count):
        request = Request(number + 1, 0, 0, coming, tries, "c", number, "A", BATCH)
        site.handle(0, Received("c", request))


def test_a_visit_orders_a_bounded_number_and_the_others_follow_the_token() -> None:
    site = started("d", TokenConfiguration(resilience=2, visit=2))
    waiting_for_the_token(site, 3)
    entry = Entry(4, 0, 0, Whereabouts(4, "d"), 0, Token({}, {}), (0, 0, 0), "b", 0, "A", BATCH)
    effects = site.handle(0, Received("c", entry))
    assert [(to, pdu.number, pdu.token is None) for to, pdu in sent(effects, Entry)] == [
        ("a", 0, True),
        ("a", 1, False),
    ]
    assert [(to, pdu.number) for to, pdu in sent(effects, Request)] == [("a", 2)]


def test_where_the_token_stays_visits_follow_one_another() -> None:
    """What has waited for an earlier message of its sender is ordered with that, however many there are."""
    site = started("a", TokenConfiguration(resilience=1, visit=1))
    for position, number in enumerate((1, 2, 0), start=1):
        effects = site.handle(0, Received("c", Request(position, 0, 0, HERE, 1, "c", number, "A", BATCH)))
    assert [effect.number for effect in effects if isinstance(effect, Deliver)] == [0, 1, 2]


def test_what_waits_where_a_site_was_away_follows_again() -> None:
    site = started("d")
    site.handle(0, Received("c", Request(1, 0, 0, Whereabouts(4, "b"), 3, "c", 0, "A", BATCH)))
    effects = site.handle(0, Returned())
    assert SetTimer(CHASE, KNOBS.patience_ns) in effects


def test_with_one_holder_the_token_stays_and_everything_waiting_is_ordered() -> None:
    knobs = TokenConfiguration(resilience=1, visit=1)
    groups = Overlapping("abcd", lambda site: TokenPassing(site, GROUPS, knobs), PDUS)
    for site in "abcd":
        groups.admit(site, "A")
        groups.admit(site, "B")
    groups.run()
    assert len(groups.delivered["b"]) == 8
    assert groups.delivered["b"] == groups.delivered["c"]
    assert {source for source, _, pdu in groups.network.sent if isinstance(pdu, Order)} == {"a"}


@pytest.mark.parametrize("resilience", [1, 2, 4])
def test_losses_are_made_up_for(resilience: int) -> None:
    sites = sorted({site for members in FIGURE_2.values() for site in members})
    knobs = TokenConfiguration(resilience=resilience)
    groups = Overlapping(sites, lambda site: TokenPassing(site, FIGURE_2, knobs), PDUS, faulty(0.3))
    for index, site in enumerate(sites):
        for group in FIGURE_2:
            groups.admit(site, group, at_ms=index)
    groups.run(20.0)
    assert {site: len(got) for site, got in groups.delivered.items()} == {
        site: len(sites) * sum(site in members for members in FIGURE_2.values()) for site in sites
    }
    assert check_trace(groups.events(), Run(run="run"), PROMISES) == []
    assert len(groups.stable) == len(sites) * len(FIGURE_2)


@pytest.mark.parametrize(
    "pdu",
    [
        Request(1, 0, 0, Whereabouts(0, "z"), 0, "c", 0, "A", BATCH),
        Request(1, 0, 0, Whereabouts(MOST_MOVES, "a"), 0, "c", 0, "A", BATCH),
        Request(1, 0, 0, HERE, 0, "z", 0, "A", BATCH),
        Entry(1, 0, 0, HERE, 2, None, (1, 1, 1), "c", 0, "A", BATCH),
        Entry(1, 0, 0, HERE, -1, None, (1, 1, 1), "c", 0, "A", BATCH),
        Entry(1, 0, 0, HERE, 0, None, (1,), "c", 0, "A", BATCH),
        Order(1, 0, 0, HERE, 1, "c", 0, "B", BATCH),
        Order(1, 0, 0, HERE, 0, "c", 0, "A", BATCH),
        Order(1, 0, 0, HERE, 1 << 40, "c", 0, "A", BATCH),
    ],
)
def test_what_makes_no_sense_is_counted_and_dropped(pdu: Any) -> None:
    site = started("a")
    effects = site.handle(0, Received("c", pdu))
    assert not any(isinstance(effect, Deliver | Send) for effect in effects)
    assert site.figures()["ignored"] == 1


def test_the_same_request_or_place_twice_is_nonsense() -> None:
    site = started("c")
    gone = Whereabouts(4, "c")
    for position in (1, 2):
        site.handle(0, Received("b", Request(position, 0, 0, gone, 0, "b", 0, "A", BATCH)))
    for position in (3, 4):
        site.handle(0, Received("b", Order(position, 0, 0, gone, 5, "a", 1, "A", BATCH)))
    assert site.figures()["ignored"] == 2


@pytest.mark.parametrize("knobs", [{"resilience": 0}, {"visit": 0}, {"patience_ns": 0}, {"window": 0}])
def test_options_that_make_no_sense_are_refused(knobs: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        TokenConfiguration(**knobs)


def test_more_holders_than_sites_are_refused() -> None:
    with pytest.raises(UsageError):
        TokenPassing("a", GROUPS, TokenConfiguration(resilience=5))


def test_a_site_that_was_away_goes_on_where_it_was() -> None:
    groups = Overlapping("abcd", lambda site: TokenPassing(site, GROUPS, KNOBS), PDUS)
    groups.world.at(0, lambda: groups.world.depart("b"))
    groups.admit("d", "A", at_ms=1)
    groups.world.at(300 * MILLISECOND_NS, lambda: groups.world.come_back("b"))
    groups.run()
    assert groups.delivered["a"] == groups.delivered["b"] == ["d0"]
    assert groups.stable == ["d0"]
