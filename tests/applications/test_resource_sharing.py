"""Sharing a resource: what each message does, what disorder costs, and that no unit has two masters."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.applications.resource_sharing import (
    Allocation,
    Done,
    Granted,
    Release,
    Request,
    Revoked,
    Sharer,
    SharingConfiguration,
    TimedOut,
    Want,
)
from antiphon.applications.resource_sharing.messages import Message, decode, encode
from antiphon.applications.resource_sharing.replica import MOST_MEMBERS
from antiphon.applications.resource_sharing.sharer import LOOK, TIME_OUT, Outcome
from antiphon.core.effects import Deliver
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site, site_names
from antiphon.core.inputs import Admit, Departed, Returned, TimerFired

KNOBS = SharingConfiguration(timeout_ns=1000, operation_ns=300, slack_ns=100)


def said(outcomes: list[Outcome], units: int = 8) -> list[Message]:
    """The messages among what a member wants done."""
    bodies = [body for outcome in outcomes if isinstance(outcome, Admit) for body in outcome.bodies]
    messages = [decode(body, units) for body in bodies]
    assert None not in messages
    return [message for message in messages if message is not None]


def grants(outcomes: list[Outcome]) -> list[tuple[int, ...]]:
    return [outcome.units for outcome in outcomes if isinstance(outcome, Granted)]


def deliver(sharer: Sharer, sender: Site, *messages: Message, now: int = 0) -> list[Outcome]:
    return sharer.handle(now, Deliver(sender, 0, [encode(message) for message in messages]))


class Room:
    """Members, and the messages on their way: to all in one order, unless a test says otherwise."""

    def __init__(
        self,
        members: int,
        units: int,
        random: Random | None = None,
        knobs: SharingConfiguration = KNOBS,
    ) -> None:
        self.sites = site_names(members)
        keepers = [self.sites[unit % members] for unit in range(units)]
        self.sharers = {site: Sharer(site, keepers, knobs) for site in self.sites}
        self.order: list[tuple[Site, bytes]] = []
        self.waiting: dict[Site, list[tuple[Site, bytes]]] = {site: [] for site in self.sites}
        self.taken = dict.fromkeys(self.sites, 0)
        self.granted: dict[Site, tuple[int, ...]] = {}
        self.timeouts = 0
        self.random = random or Random(0)
        self.images: dict[int, object] = {}

    def give(self, site: Site, event: Want | Done | TimerFired | Deliver | Returned, now: int = 0) -> None:
        for outcome in self.sharers[site].handle(now, event):
            if isinstance(outcome, Admit):
                for body in outcome.bodies:
                    self.order.append((site, body))
                    for other in self.sites:
                        self.waiting[other].append((site, body))
            elif isinstance(outcome, Granted):
                self.granted[site] = outcome.units
            elif isinstance(outcome, TimedOut):
                self.timeouts += 1
        self.check_control()

    def take(self, site: Site, place: int = 0, now: int = 0) -> None:
        """A member delivers the next of its messages, or a later one."""
        sender, body = self.waiting[site].pop(place)
        self.taken[site] += 1
        self.give(site, Deliver(sender, 0, (body,)), now)

    def settle(self, now: int = 0) -> None:
        while any(self.waiting.values()):
            self.take(self.random.choice([site for site in self.sites if self.waiting[site]]), now=now)

    def check_control(self) -> None:
        held = [unit for sharer in self.sharers.values() for unit in sharer.held()]
        assert len(held) == len(set(held)), "a unit is controlled by two members"


# What a message does


def test_a_request_gets_idle_units_from_the_members_that_have_them() -> None:
    room = Room(members=3, units=3)
    room.give("s0", Want(2))
    room.settle()
    assert room.granted == {"s0": (0, 1)}
    assert [sharer.held() for sharer in room.sharers.values()] == [{0, 1}, set(), {2}]


def test_only_as_many_units_are_given_as_are_needed() -> None:
    room = Room(members=5, units=5)
    room.give("s4", Want(1))
    room.settle()
    assert [decode(body, 5) for _, body in room.order] == [Request(0, 1), Allocation("s4", 0, ((0, 1),))]


def test_a_release_and_what_follows_from_it_travel_together() -> None:
    room = Room(members=2, units=2)
    room.give("s0", Want(2))
    room.settle()
    room.give("s1", Want(1))
    room.settle()
    assert "s1" not in room.granted
    assert said(room.sharers["s0"].handle(5, Done())) == [Release(0), Allocation("s1", 0, ((0, 2),))]


def test_requests_are_served_first_in_first_out() -> None:
    room = Room(members=4, units=1)
    for site in ("s3", "s1", "s2"):
        room.give(site, Want(1))
    served = []
    for _ in range(3):
        room.settle()
        (site,) = room.granted
        served.append(site)
        del room.granted[site]
        room.give(site, Done())
    assert served == ["s3", "s1", "s2"]


def test_a_unit_too_many_goes_on_to_the_next() -> None:
    sharer = Sharer("a", ["b", "b", "c"], KNOBS)
    sharer.handle(0, Want(1))
    deliver(sharer, "a", Request(0, 1))
    deliver(sharer, "d", Request(0, 1))
    assert grants(deliver(sharer, "b", Allocation("a", 0, ((0, 1),)))) == [(0,)]
    outcomes = deliver(sharer, "c", Allocation("a", 0, ((2, 1),)))
    # Unit 1 is idle at b and comes first, so d's request is b's business, and unit 2 stays here.
    assert said(outcomes) == []
    outcomes = deliver(sharer, "e", Request(0, 1))
    assert said(outcomes) == [Allocation("e", 0, ((2, 2),))]


def test_an_allocation_that_another_has_beaten_is_void_everywhere() -> None:
    views = [Sharer(site, ["b"], KNOBS) for site in ("a", "b", "c")]
    for view in views:
        deliver(view, "x", Request(0, 1), Request(0, 1))
        deliver(view, "x", Allocation("x", 0, ((0, 1),), claimed=True))
        deliver(view, "b", Allocation("c", 0, ((0, 1),)))
    assert {view.replica.units[0].keeper for view in views} == {"x"}


# Section 2 of the paper


def test_two_that_collect_in_parallel_end_by_their_time_outs() -> None:
    """Two members see two requests in different orders: each requester gets one of the two units it needs."""
    room = Room(members=4, units=2)
    room.give("s2", Want(2))
    room.give("s3", Want(2))
    room.take("s1", place=1)  # the second request first
    room.settle()
    assert room.granted == {}
    assert [room.sharers[site].held() for site in ("s2", "s3")] == [{0}, {1}]

    room.give("s2", TimerFired(TIME_OUT), now=1000)
    room.settle(now=1000)
    assert room.granted == {"s3": (0, 1)}, "what the one gives back is what the other lacked"
    room.give("s3", Done(), now=1100)
    room.settle(now=1100)
    assert room.granted["s2"] == (0, 1)
    assert room.timeouts == 1


def test_a_member_out_of_time_gives_back_what_it_collected_and_requests_anew() -> None:
    sharer = Sharer("a", ["a", "b"], KNOBS)
    sharer.handle(0, Want(2))
    deliver(sharer, "a", Request(0, 2))
    deliver(sharer, "b", Request(0, 1))
    deliver(sharer, "a", Allocation("a", 0, ((0, 1),)))
    outcomes = sharer.handle(1000, TimerFired(TIME_OUT))
    assert said(outcomes) == [Release(0), Allocation("b", 0, ((0, 2),)), Request(1, 2)]
    assert [outcome for outcome in outcomes if isinstance(outcome, TimedOut)] == [TimedOut(1)]
    # Allocations to the request that was given up start no operation.
    assert not grants(deliver(sharer, "b", Allocation("a", 0, ((1, 1),)), now=1001))


def test_time_that_runs_out_after_the_units_have_come_changes_nothing() -> None:
    room = Room(members=2, units=1)
    room.give("s1", Want(1))
    room.settle()
    assert room.sharers["s1"].handle(1000, TimerFired(TIME_OUT)) == []


# Members that vanish


def without(room: Room, site: Site) -> None:
    """A member vanishes."""
    room.sharers[site].handle(0, Departed())
    room.sites.remove(site)
    del room.waiting[site]
    room.granted.pop(site, None)


@pytest.mark.parametrize(
    ("units", "operation_ns", "limit"), [(1, 300, 400), (2, 5000, 1100)], ids=["it operated", "it collected"]
)
def test_units_of_a_vanished_member_are_taken_by_the_first_in_line(
    units: int, operation_ns: int, limit: int
) -> None:
    knobs = SharingConfiguration(timeout_ns=1000, operation_ns=operation_ns, slack_ns=100)
    room = Room(members=4, units=units, knobs=knobs)
    if units == 2:
        room.give("s1", Want(1))
        room.settle()
    room.give("s2", Want(units))
    room.settle()
    without(room, "s2")
    room.give("s0", Want(1), now=20)
    room.give("s3", Want(1), now=30)
    room.settle(now=40)
    for now, site in ((limit, "s0"), (limit + 1, "s3")):
        before = len(room.order)
        room.give(site, TimerFired(LOOK), now=now)
        assert len(room.order) == before, "too early, or not the first in line"
    room.give("s0", TimerFired(LOOK), now=limit + 2)
    room.settle(now=limit + 3)
    assert room.granted["s0"] == (units - 1,)
    assert "s2" not in room.sharers["s0"].replica.queue


def test_an_idle_unit_that_no_member_gives_is_taken_too() -> None:
    room = Room(members=3, units=1)
    without(room, "s0")
    room.give("s2", Want(1), now=10_000)
    room.settle(now=10_000)
    room.give("s2", TimerFired(LOOK), now=10_100)
    room.settle(now=10_100)
    assert room.granted == {}
    room.give("s2", TimerFired(LOOK), now=10_101)
    room.settle(now=10_101)
    assert room.granted == {"s2": (0,)}


def test_what_a_member_that_returns_may_have_had_is_taken_at_once() -> None:
    room = Room(members=3, units=2)
    room.give("s1", Want(2))
    room.settle()
    room.give("s2", Want(1))
    room.settle()
    room.sharers["s1"].handle(5, Departed())
    room.give("s1", Returned(), now=6)
    room.settle(now=7)
    assert room.granted["s2"] == (0,)
    assert room.sharers["s1"].held() == frozenset()


def test_an_operation_that_takes_too_long_is_told_to_stop() -> None:
    sharer = Sharer("a", ["a", "b"], KNOBS)
    sharer.handle(0, Want(1))
    deliver(sharer, "a", Request(0, 1), Allocation("a", 0, ((0, 1),)))
    deliver(sharer, "b", Request(0, 2), now=10)
    outcomes = deliver(sharer, "b", Allocation("b", 0, ((0, 2),), claimed=True), now=5000)
    assert Revoked((0,)) in outcomes
    assert said(outcomes)[0] == Release(0)
    with pytest.raises(UsageError, match="No operation"):
        sharer.handle(5001, Done())


def test_a_member_that_returns_holds_nothing_and_believes_what_it_hears() -> None:
    sharer = Sharer("a", ["a", "a"], KNOBS)
    sharer.handle(0, Departed())
    assert deliver(sharer, "b", Request(0, 1)) == []
    with pytest.raises(UsageError, match="absent"):
        sharer.handle(5, Want(1))
    assert said(sharer.handle(10, Returned())) == [Release(0, forgotten=True)]
    assert sharer.held() == frozenset()
    assert said(deliver(sharer, "b", Allocation("a", 0, ((0, 9),)), now=11)) == []
    assert sharer.held() == frozenset(), "that was before all knew that this member has nothing"
    sharer.handle(12, Want(1))
    deliver(sharer, "a", Release(0, forgotten=True), Request(1, 1), now=13)
    assert grants(deliver(sharer, "c", Allocation("a", 1, ((1, 17),)), now=14)) == [(1,)]


def test_a_member_that_returns_believes_no_claim_on_a_unit_that_it_knows_nothing_of() -> None:
    """The claim may have been beaten by one from before the return."""
    sharer = Sharer("a", ["b", "b"], KNOBS)
    sharer.handle(0, Returned())
    deliver(sharer, "a", Release(0, forgotten=True))
    deliver(sharer, "c", Allocation("c", 4, ((0, 7),), claimed=True))
    deliver(sharer, "c", Allocation("d", 4, ((1, 7),)))
    assert [unit.keeper for unit in sharer.replica.units] == [None, "d"]


def test_a_release_that_is_lost_on_return_is_sent_again() -> None:
    sharer = Sharer("a", ["b"], KNOBS)
    sharer.handle(0, Returned())
    sharer.handle(1, Want(1))
    assert said(sharer.handle(1001, TimerFired(TIME_OUT))) == [Release(1, forgotten=True), Request(2, 1)]
    deliver(sharer, "a", Release(1, forgotten=True), Request(2, 1), now=1002)
    assert grants(deliver(sharer, "b", Allocation("a", 2, ((0, 1),)), now=1003)) == [(0,)]


def test_a_claim_ends_the_request_of_the_member_that_it_was_taken_from_but_not_a_later_one() -> None:
    for number, waits in ((0, False), (1, True)):
        sharer = Sharer("a", ["b"], KNOBS)
        deliver(sharer, "b", Request(0, 1), Allocation("b", 0, ((0, 1),)))
        deliver(sharer, "b", Request(number, 1))
        deliver(sharer, "c", Request(0, 1), Allocation("c", 0, ((0, 2),), claimed=True))
        assert ("b" in sharer.replica.queue) == waits


# Any order


@given(st.integers(0, 1 << 32), st.integers(2, 5), st.integers(1, 6))
def test_with_agreed_order_replicas_agree_and_everyone_gets_its_turn(
    seed: int, members: int, units: int
) -> None:
    random = Random(seed)
    room = Room(members, units, random)
    turns = dict.fromkeys(room.sites, 3)
    for site in room.sites:
        room.give(site, Want(random.randint(1, units)))
    for _ in range(3000):
        ready = [site for site in room.sites if room.waiting[site]]
        if ready and (not room.granted or random.random() < 0.7):
            site = random.choice(ready)
            room.take(site)
            image = room.sharers[site].replica.image()
            assert room.images.setdefault(room.taken[site], image) == image
        elif room.granted:
            site = random.choice(sorted(room.granted))
            del room.granted[site]
            turns[site] -= 1
            room.give(site, Done())
            if turns[site]:
                room.give(site, Want(random.randint(1, units)))
        else:
            break
    assert set(turns.values()) == {0}, "a member waits although nothing is under way"


@given(st.integers(0, 1 << 32), st.integers(2, 5), st.integers(1, 6))
def test_in_any_order_no_unit_has_two_masters_and_time_outs_end_every_deadlock(
    seed: int, members: int, units: int
) -> None:
    random = Random(seed)
    room = Room(members, units, random)
    for site in room.sites:
        room.give(site, Want(random.randint(1, units)))
    for _ in range(400):
        ready = [site for site in room.sites if room.waiting[site]]
        if ready and random.random() < 0.8:
            site = random.choice(ready)
            room.take(site, place=random.randrange(len(room.waiting[site])))
        elif room.granted and random.random() < 0.5:
            site = random.choice(sorted(room.granted))
            del room.granted[site]
            room.give(site, Done())
            room.give(site, Want(random.randint(1, units)))
        else:
            room.give(random.choice(room.sites), TimerFired(TIME_OUT))
    done: set[Site] = set()
    for _ in range(20 * members):
        room.settle()
        for site in sorted(room.granted):
            del room.granted[site]
            done.add(site)
            room.give(site, Done())
            room.settle()
        for site in set(room.sites) - done:
            room.give(site, TimerFired(TIME_OUT))
            room.settle()
    assert done == set(room.sites), "a member never stops waiting"


# Misuse and garbage


def test_misuse_is_refused_and_changes_nothing() -> None:
    sharer = Sharer("a", ["a", "b"], KNOBS)
    for event, why in ((Done(), "No operation"), (Want(0), "There are 2"), (Want(3), "There are 2")):
        with pytest.raises(UsageError, match=why):
            sharer.handle(0, event)
    assert said(sharer.handle(0, Want(1))) == [Request(0, 1)]
    with pytest.raises(UsageError, match="one thing"):
        sharer.handle(0, Want(1))
    with pytest.raises(UsageError, match="1 to"):
        Sharer("a", [], KNOBS)
    with pytest.raises(UsageError, match="take time"):
        SharingConfiguration(slack_ns=0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        encode(Request(-1, 1)),
        encode(Request(0, 3)),
        encode(Request(0, 0)),
        encode(Release(1 << 63)),
        encode(Allocation("", 0, ((0, 1),))),
        encode(Allocation("a" * 256, 0, ((0, 1),))),
        encode(Allocation("a", 0, ())),
        encode(Allocation("a", 0, ((2, 1),))),
        encode(Allocation("a", 0, ((-1, 1),))),
        encode(Allocation("a", 0, ((0, 1 << 62),))),
    ],
)
def test_a_message_that_makes_no_sense_is_counted_and_dropped(body: bytes) -> None:
    sharer = Sharer("a", ["a", "b"], KNOBS)
    before = sharer.replica.image()
    assert sharer.handle(0, Deliver("x", 0, (body,))) == []
    assert sharer.ignored == 1
    assert sharer.replica.image() == before


@given(st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=12)), max_size=20))
def test_no_bytes_raise_an_exception(deliveries: list[tuple[Site, bytes]]) -> None:
    sharer = Sharer("a", ["a", "b"], KNOBS)
    for sender, body in deliveries:
        sharer.handle(0, Deliver(sender, 0, (body,)))


def test_members_without_number_do_not_fill_the_memory() -> None:
    sharer = Sharer("a", ["a", "b"], KNOBS)
    for index in range(2 * MOST_MEMBERS):
        deliver(sharer, f"x{index}", Request(0, 2), now=index)
    assert len(sharer.replica.queue) <= MOST_MEMBERS
    assert len(sharer.replica._ended) <= MOST_MEMBERS
