"""What the members of a Distributed Precedence Graph group call stable: what all who are present hold."""

from typing import Any

import pytest

from antiphon.core.effects import Deliver, Effect, Multicast, Send, Stable, Unstable
from antiphon.core.ids import Site
from antiphon.core.inputs import Received
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg.agreement import mix
from antiphon.protocols.dpg.order import MOST_APART
from antiphon.protocols.dpg.pdus import ORIGIN, Message, Progress, Remulticast, Report, Request
from antiphon.protocols.dpg.peers import MOST_SITES, Peers
from antiphon.protocols.dpg.report_sender import FEW, ProgressPacing
from antiphon.protocols.dpg.spells import State
from antiphon.protocols.dpg.stability import (
    BEGAN_AGAIN,
    HELD_APART,
    MOST_AHEAD,
    MOST_DOUBTS,
    MOST_REACHED,
    TOO_MANY,
    Delivered,
    Stability,
)
from tests.protocols.harness.dpg_group import Lan, an_order

MEETING_MS = 500
"""Long enough for all members of a group to have been heard."""


def met(sites: str = "abc", **knobs: Any) -> Lan:
    """A group whose members have heard of one another."""
    lan = Lan(sites, **knobs)
    lan.pass_time(MEETING_MS)
    return lan


def stable(lan: Lan, name: Site) -> list[str]:
    return [f"{effect.sender}{effect.number}" for effect in lan.of(name, Stable)]


def unstable(lan: Lan, name: Site) -> list[tuple[str, str]]:
    return [(f"{effect.sender}{effect.number}", effect.reason) for effect in lan.of(name, Unstable)]


# A group


def test_what_all_hold_is_stable_at_all() -> None:
    lan = met()
    lan.admit("a")
    lan.admit("b")
    lan.wait_for(lambda: all(sorted(stable(lan, name)) == ["a0", "b0"] for name in "abc"), 1.0)
    assert not any(unstable(lan, name) for name in "abc")


def test_a_message_is_not_stable_while_a_member_that_is_present_lacks_its_body() -> None:
    """It knows the message's place by the others' reports: by its index it has come as far as they have."""
    lan = met(dummy_cycle_ns=60 * SECOND_NS)
    lan.misses = lambda _source, target, pdu: target == "c" and isinstance(pdu, Message | Remulticast)
    lan.admit("a")
    lan.wait_for(lambda: lan.delivered("a") == lan.delivered("b") == ["a0"])
    lan.wait_for(lambda: lan.members["c"]._order.agreement.index == 1)
    lan.pass_time(5_000)
    assert lan.delivered("c") == []
    assert stable(lan, "a") == stable(lan, "b") == []
    lan.misses = lambda *_: False
    lan.wait_for(lambda: stable(lan, "a") == stable(lan, "b") == ["a0"], 2.0)
    assert lan.delivered("c") == ["a0"]


def test_a_message_that_the_last_lacked_is_stable_when_that_is_gone() -> None:
    lan = met()
    lan.misses = lambda _source, target, pdu: target == "c" and isinstance(pdu, Message | Remulticast)
    lan.admit("a")
    lan.pass_time(100)
    lan.crash("c")
    lan.pass_time(900)
    assert stable(lan, "a") == [], "it is silent, and may only be late"
    lan.wait_for(lambda: stable(lan, "a") == stable(lan, "b") == ["a0"], 2.0)


def test_a_member_that_leaves_counts_no_more() -> None:
    lan = met()
    lan.misses = lambda _source, target, pdu: target == "c" and isinstance(pdu, Message | Remulticast)
    lan.admit("a")
    lan.pass_time(100)
    lan.depart("c")
    lan.wait_for(lambda: stable(lan, "a") == stable(lan, "b") == ["a0"], 0.5)


def test_a_message_is_not_called_stable_that_a_member_began_again_without() -> None:
    """It asks in vain, and the others have the message: it ends its spell, and comes back without it."""
    lan = met()
    lan.misses = lambda _source, target, pdu: target == "c" and isinstance(pdu, Message | Remulticast)
    lan.admit("a")
    lan.wait_for(lambda: unstable(lan, "a") != [], 5.0)
    assert unstable(lan, "a") == [("a0", BEGAN_AGAIN)]
    assert stable(lan, "a") == []
    lan.misses = lambda *_: False
    lan.admit("a")
    lan.wait_for(lambda: all(stable(lan, name)[-1:] == ["a1"] for name in "abc"))
    assert lan.delivered("c") == ["a1"]


def test_a_member_that_restarts_is_another_and_what_the_former_lacked_is_stable() -> None:
    lan = met()
    lan.misses = lambda _source, target, pdu: target == "c" and isinstance(pdu, Message | Remulticast)
    lan.admit("a")
    lan.pass_time(50)
    lan.crash("c")
    lan.misses = lambda *_: False
    lan.restart("c")
    lan.wait_for(lambda: stable(lan, "a") == ["a0"], 2.0)
    assert unstable(lan, "a") == []


def test_nothing_is_stable_before_all_had_time_to_be_heard() -> None:
    lan = Lan()
    lan.misses = lambda source, target, pdu: source == "c" or (target == "c" and isinstance(pdu, Message))
    lan.admit("a")
    lan.wait_for(lambda: lan.delivered("b") == ["a0"])
    lan.pass_time(150)
    assert stable(lan, "a") == [], "b holds it, and c was not heard of"


def test_nothing_is_stable_while_a_member_listens() -> None:
    lan = met(tell_ns=MILLISECOND_NS)
    lan.depart("c")
    lan.come_back("c")
    lan.pass_time(5)
    lan.misses = lambda _source, target, pdu: target == "c" and isinstance(pdu, Report)
    lan.admit("a")
    lan.wait_for(lambda: lan.delivered("a") == lan.delivered("b") == ["a0"], 0.1)
    lan.pass_time(100)
    assert lan.members["c"]._presence.state is State.LISTENING
    assert stable(lan, "a") == [], "c may take up what lies before it"
    lan.misses = lambda *_: False
    lan.wait_for(lambda: stable(lan, "a") == ["a0"], 2.0)


def test_a_liars_word_holds_stability_up_no_longer_than_it_speaks() -> None:
    lan = met()
    lan.give("a", Received("x", Progress(0)))
    lan.give("b", Received("x", Progress(0, 0, 77, 5)))
    lan.admit("a")
    lan.pass_time(500)
    assert stable(lan, "a") == stable(lan, "b") == []
    lan.wait_for(lambda: stable(lan, "a") == stable(lan, "b") == ["a0"], 2.0)
    assert unstable(lan, "a") == unstable(lan, "b") == []


@pytest.mark.parametrize("tag", [0, 7, (1 << 63) - 1])
def test_whatever_is_told_of_what_is_held_is_survived(tag: int) -> None:
    lan = met()
    lan.admit("a")
    for digest in range(5):
        lan.give("a", Received("x", Progress(0, 0, tag, digest)))
        lan.give("a", Received("b", Progress(9, 0, tag + 1 if tag == 0 else tag, digest)))
    lan.wait_for(lambda: lan.delivered("c") == ["a0"])


# When it is told


def spoken(lan: Lan, since: int) -> list[Pdu]:
    return [pdu for _, _, pdu in lan.transmitted[since:] if isinstance(pdu, Progress)]


def test_in_a_group_at_rest_a_message_is_soon_stable() -> None:
    lan = met(tell_ns=MILLISECOND_NS // 2)
    for turn in range(20):
        lan.pass_time(100 + turn)
        lan.admit("a")
        lan.wait_for(lambda count=turn + 1: lan.all_delivered(count))  # type: ignore[misc]
        lan.pass_time(5)
        assert all(len(stable(lan, name)) == turn + 1 for name in "abc")


def test_words_on_what_is_held_become_fewer_where_messages_are_many() -> None:
    haste = ProgressPacing(MILLISECOND_NS, 20 * MILLISECOND_NS)
    now = words = 0
    for index in range(1, 10_001):
        now += MILLISECOND_NS // 10
        if haste.wait_ns(now, index) == 0:
            haste.told(now, index, 2)
            words += 1
    assert 45 <= words <= 60, "one in 20 ms"
    for index in range(10_001, 10_011):
        now += 100 * MILLISECOND_NS
        assert haste.wait_ns(now, index) == 0
        haste.told(now, index, 2)
    assert haste.wait_ns(now, 10_010) is None
    assert haste.wait_ns(now, 10_011) == 2 * MILLISECOND_NS, "one for each receiver"


def test_in_a_large_group_only_the_sender_is_told_at_once() -> None:
    names = "abcdefghijkl"
    assert len(names) > FEW + 1
    lan = met(names, tell_ns=MILLISECOND_NS)
    lan.admit("a")
    lan.wait_for(lambda: lan.all_delivered(1))
    sent: dict[Site, list[Effect]] = {
        name: [effect for effect in lan.effects[name] if isinstance(effect, Send)] for name in names
    }
    assert {effect.to for name in names for effect in sent[name]} == {"a"}  # type: ignore[union-attr]
    assert all(len(sent[name]) == 1 for name in names if name != "a")
    lan.wait_for(lambda: stable(lan, "a") == ["a0"], 0.3)


def test_a_member_says_what_it_holds_as_soon_as_it_takes_part() -> None:
    lan = met("ab")
    lan.depart("b")
    lan.come_back("b")
    before = len(lan.transmitted)
    lan.wait_for(lambda: bool(spoken(lan, before)))
    assert lan.members["b"]._presence.state is State.PRESENT


# One member's knowledge


class Others:
    """A member's knowledge of what the others hold, and who they are."""

    def __init__(self, *sites: Site, most: int = 100) -> None:
        self.effects: list[Effect] = []
        self.peers = Peers(1, 10, 1, lambda _: None)
        self.stability = Stability(self.peers, 10, 4, 0, most, self.effects.append)
        for site in sites:
            self.peers.on_progress(0, site, 0, 0)

    def deliver(self, *tags: int, held: bool = True) -> None:
        for tag in tags:
            place = self.stability.index + 1
            if held:
                self.stability.note(Delivered(place, "s", tag, 1))
            self.stability.reach(tag, place, held=held)

    def told(self, site: Site, tag: int, holds: tuple[int, ...]) -> None:
        self.stability.told(site, tag, digest(*holds))
        self.stability.settle(0)

    def said(self) -> list[int]:
        """The numbers that were called stable, and less those that never will be."""
        said = [
            effect.number if isinstance(effect, Stable) else -effect.number
            for effect in self.effects
            if isinstance(effect, Stable | Unstable)
        ]
        self.effects.clear()
        return said


def digest(*tags: int) -> int:
    return sum(mix(ORIGIN, tag) for tag in tags) % (1 << 63)


def test_the_least_that_all_have_told_is_stable() -> None:
    others = Others("b", "c")
    others.deliver(1, 2, 3)
    others.told("b", 3, (1, 2, 3))
    assert others.said() == []
    others.told("c", 2, (1, 2))
    assert others.said() == [1, 2]
    others.told("c", 1, (1,))
    others.told("c", 3, (1, 2, 3))
    assert others.said() == [3]


def test_a_word_from_one_who_is_ahead_counts_when_we_get_there() -> None:
    others = Others("b")
    for tag in range(1, MOST_AHEAD + 10):
        others.told("b", tag, tuple(range(1, tag + 1)))
    assert len(others.stability._holders["b"].ahead) == MOST_AHEAD
    others.deliver(*range(1, 20))
    others.stability.settle(0)
    assert others.said() == list(range(1, 20))


def test_what_only_one_of_two_holds_is_not_stable_and_what_follows_is() -> None:
    others = Others("b")
    others.deliver(1, 2, 3, 4, 5)
    others.told("b", 1, (1,))
    others.told("b", 3, (1, 3))
    others.told("b", 4, (1, 3, 4))
    assert others.said() == [1, -2, -3, 4]
    others.told("b", 5, (1, 3, 4, 5))
    assert others.said() == [5]


def test_what_nobody_has_is_no_reason_against_what_follows() -> None:
    others = Others("b")
    others.deliver(1)
    others.deliver(2, held=False)
    others.deliver(3)
    others.told("b", 3, (1, 3))
    assert others.said() == [1, 3]


def test_reasons_say_which() -> None:
    others = Others("b", most=2)
    others.deliver(1, 2, 3)
    assert [effect.reason for effect in others.effects if isinstance(effect, Unstable)] == [TOO_MANY]
    others.told("b", 3, (1, 3))
    others.effects = [effect for effect in others.effects if isinstance(effect, Unstable)]
    assert {effect.reason for effect in others.effects if isinstance(effect, Unstable)} == {
        TOO_MANY,
        HELD_APART,
    }


@pytest.mark.parametrize("told", [None, 2])
def test_only_what_a_member_has_not_told_to_hold_suffers_when_it_begins_again(told: int | None) -> None:
    others = Others("b", "c")
    others.deliver(1)
    for site in "bc":
        others.told(site, 1, (1,))
    assert others.said() == [1]
    others.deliver(2, 3)
    if told is not None:
        others.told("b", told, (1, 2))
    others.peers.leave("b")
    others.stability.begins_again(0, "b", 3, anew=False)
    others.told("c", 3, (1, 2, 3))
    assert others.said() == [], "while it listens"
    others.peers.on_progress(0, "b", 3, 3)
    others.told("b", 3, (1, 2, 3))
    assert others.said() == [-2 if told is None else 2, -3]
    others.deliver(4)
    for site in "bc":
        others.told(site, 4, (1, 2, 3, 4))
    assert others.said() == [4]


def test_who_listens_is_waited_for_as_long_as_it_is_heard() -> None:
    others = Others()
    for site in range(2 * MOST_SITES):
        others.stability.begins_again(0, f"s{site}", 0, anew=True)
    assert len(others.stability._awaited) == MOST_SITES
    others.stability.begins_again(5, "s0", 0, anew=True)
    others.deliver(1)
    for now, is_stable in ((10, False), (15, False), (16, True)):
        others.stability.settle(now)
        assert others.said() == ([1] if is_stable else [])


def test_one_that_vanished_is_waited_for_a_little_longer() -> None:
    others = Others("b")
    others.told("b", ORIGIN, ())
    others.deliver(1)
    others.peers.leave("b")
    others.stability.vanish(20, "b")
    for now, is_stable in ((20, False), (24, False), (25, True)):
        others.stability.settle(now)
        assert others.said() == ([1] if is_stable else [])
    others.stability.vanish(30, "never heard")
    others.deliver(2)
    others.stability.settle(30)
    assert others.said() == [2]


def test_who_takes_up_anothers_order_begins_with_what_that_holds() -> None:
    others = Others("b", "c")
    others.told("c", 9, (7, 9))
    others.stability.adopt(9, 20, digest(7, 9))
    others.deliver(10)
    others.told("b", 10, (7, 9, 10))
    assert others.said() == []
    others.told("c", 10, (7, 9, 10))
    assert others.said() == [10]


def test_all_that_is_remembered_is_bounded() -> None:
    others = Others("b", most=10 * MOST_REACHED)
    others.deliver(*range(1, 2 * MOST_REACHED))
    assert len(others.stability._reached) == MOST_REACHED
    for place in range(MOST_REACHED, 2 * MOST_REACHED - 1):
        others.stability.told("b", place, place)
    assert len(others.stability._doubts) <= MOST_DOUBTS
    others.stability.settle(0)
    assert len(others.said()) == 2 * MOST_REACHED - 2


def places(lan: Lan, name: Site, begin: int) -> list[tuple[Site, int, int]]:
    return [(effect.sender, effect.number, effect.place) for effect in lan.of(name, Deliver)[begin:]]


def test_who_has_passed_a_message_over_soon_counts_as_the_others_do() -> None:
    lan = met()
    lan.admit("a")
    lan.wait_for(lambda: lan.all_delivered(1))
    agreement = lan.members["c"]._order.agreement
    agreement._remember([agreement.root], agreement.index - 1, agreement.digest)
    lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(2))
    lan.pass_time(100)
    lan.admit("a")
    lan.wait_for(lambda: lan.all_delivered(3))
    assert places(lan, "a", 0) == [("a", 0, 1), ("b", 0, 2), ("a", 1, 3)]
    assert places(lan, "c", 2) == places(lan, "b", 2) == [("a", 1, 3)]
    lan.depart("b")
    lan.come_back("b")
    lan.depart("a")
    lan.wait_for(lambda: lan.members["b"]._presence.state is State.PRESENT)
    lan.admit("c")
    lan.wait_for(lambda: len(lan.delivered("b")) == len(lan.delivered("c")) == 4)
    assert places(lan, "b", 3) == places(lan, "c", 3) == [("c", 0, 4)], "c has told how it counts"


def test_one_who_counts_absurdly_far_is_not_believed() -> None:
    order = an_order(lambda _: None)
    for ahead, lead, expected in (
        (None, 5, 0),
        (0, 0, 0),
        (3, 1, 0),
        (-1, 0, 1),
        (0, 1, 1),
        (0, MOST_APART + 2, 1),
        (-1, MOST_APART, MOST_APART + 1),
    ):
        order.keep_up(ahead, lead)
        assert order.lead == expected


def test_a_delivery_tells_its_place() -> None:
    lan = met()
    lan.admit("a", b"x", b"y")
    lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(3))
    assert places(lan, "a", 0) == places(lan, "b", 0) == places(lan, "c", 0)
    assert [place for *_, place in places(lan, "a", 0)] == [1, 2]
    assert not any(
        isinstance(effect, Multicast) and isinstance(effect.pdu, Request) for effect in lan.effects
    )
