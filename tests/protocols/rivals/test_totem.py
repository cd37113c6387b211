"""Totem's single ring: each rule between fakes, and small groups driven by hand."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from antiphon.core.effects import (
    Absent,
    Arrived,
    CancelTimer,
    Deliver,
    Discard,
    Effect,
    Multicast,
    Rejected,
    Stable,
)
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit, Received, Start, Suspected, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import MAXIMUM_BODY_BYTES, Codec, Packet, Pdu
from antiphon.protocols.rivals.totem import PDUS, Totem, TotemConfiguration
from antiphon.protocols.rivals.totem.gathering import Gathering, Heard
from antiphon.protocols.rivals.totem.pdus import (
    MOST_MISSING,
    NOBODY,
    UNKNOWN,
    Announce,
    Commit,
    Evidence,
    Join,
    Leave,
    Message,
    Recovered,
    RingId,
    State,
    Token,
    Wake,
)
from antiphon.protocols.rivals.totem.recovery import make_plan
from antiphon.protocols.rivals.totem.ring import Ring
from tests.protocols.harness.staging import pdus
from tests.protocols.harness.totem_group import KNOBS, Group

AGREED = replace(KNOBS, delivery="agreed")
GOODBYE = replace(KNOBS, says_goodbye=True)
MEMBERS = ("a", "b", "c")
RING = RingId(0, "a", 0)
BATCH = pack([b"x"])
HALT_MS = (KNOBS.token_ns + KNOBS.consensus_ns) / MILLISECOND_NS
"""How long a ring halts when a member is gone: until the token is missed, then until others agree."""


def member(knobs: TotemConfiguration = KNOBS, name: str = "b") -> Totem:
    totem = Totem(name, MEMBERS, knobs, Random(0))
    totem.handle(0, Start())
    return totem


def message(seq: int, *, sender: str = "a", ring: RingId = RING) -> Received:
    return Received(sender, Message(ring, seq, sender, seq - 1, BATCH))


def token(
    token_seq: int, seq: int, aru: int, aru_site: str = NOBODY, missing: tuple[int, ...] = ()
) -> Received:
    return Received("a", Token(RING, token_seq, seq, aru, aru_site, 0, 0, 0, 0, missing))


def deliveries(effects: list[Effect]) -> list[tuple[str, int]]:
    return [(effect.sender, effect.number) for effect in effects if isinstance(effect, Deliver)]


# Order


@pytest.mark.parametrize("knobs", [KNOBS, AGREED])
def test_all_members_deliver_everything_in_one_order(knobs: TotemConfiguration) -> None:
    group = Group(3, knobs)
    for name in "bca":
        group.admit(name, b"x", b"y")
        group.admit(name)
    group.settle()
    assert group.delivered("a") == group.delivered("b") == group.delivered("c")
    assert sorted(group.delivered("a")) == ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"]


def test_only_the_token_holder_multicasts() -> None:
    totem = member()
    assert pdus(totem.handle(0, Admit([b"x"])), Message) == []
    sent = totem.handle(1, token(1, 4, 0))
    assert pdus(sent, Message) == [Message(RING, 5, "b", 0, BATCH)]
    assert [pdu.seq for pdu in pdus(sent, Token)] == [5]


def test_agreed_delivery_waits_for_what_comes_before_and_for_nothing_else() -> None:
    totem = member(AGREED)
    assert deliveries(totem.handle(0, message(2))) == []
    assert deliveries(totem.handle(0, message(1))) == [("a", 0), ("a", 1)]
    assert totem.handle(0, message(1)) == []


def test_safe_delivery_waits_until_the_token_has_twice_said_that_all_have_it() -> None:
    totem = member()
    totem.handle(0, message(1))
    assert deliveries(totem.handle(1, token(1, 1, 1))) == []
    effects = totem.handle(2, token(4, 1, 1))
    assert deliveries(effects) == [("a", 0)]
    assert {Stable("a", 0), Discard("a", 0)} <= set(effects)


def test_safe_delivery_waits_for_the_member_that_lowered_aru() -> None:
    totem = member()
    totem.handle(0, message(1))
    assert deliveries(totem.handle(1, token(1, 1, 1))) == []
    assert deliveries(totem.handle(2, token(4, 1, 0, "c"))) == []
    assert deliveries(totem.handle(3, token(7, 1, 1))) == []
    assert deliveries(totem.handle(4, token(10, 1, 1))) == [("a", 0)]


def test_a_token_that_comes_twice_is_taken_once() -> None:
    totem = member()
    assert pdus(totem.handle(0, token(1, 0, 0)), Token)
    assert totem.handle(0, token(1, 0, 0)) == []


def test_aru_is_lowered_by_a_member_that_lacks_something_and_raised_by_it_alone() -> None:
    totem = member()
    assert pdus(totem.handle(0, token(1, 2, 2)), Token)[0].aru_site == "b"
    totem.handle(0, message(1))
    totem.handle(0, message(2))
    held = pdus(totem.handle(1, token(4, 2, 0, "b")), Token)[0]
    assert (held.aru, held.aru_site) == (2, NOBODY)
    held = pdus(totem.handle(2, token(7, 2, 1, "c")), Token)[0]
    assert (held.aru, held.aru_site) == (1, "c")


# Loss


def test_what_is_lacking_is_asked_for_on_the_token() -> None:
    totem = member()
    totem.handle(0, message(2))
    asked = pdus(totem.handle(0, token(1, 3, 3)), Token)[0]
    assert (asked.missing, asked.aru, asked.aru_site) == ((1, 3), 0, "b")


def test_a_member_that_has_it_multicasts_it_again() -> None:
    totem = member()
    totem.handle(0, message(1))
    effects = totem.handle(0, token(1, 2, 0, "c", (1, 2)))
    assert pdus(effects, Message) == [Message(RING, 1, "a", 0, BATCH)]
    assert pdus(effects, Token)[0].missing == (2,)


def test_a_lost_message_reaches_everyone_in_its_place() -> None:
    group = Group()
    first = [True]
    group.lost = lambda source, target, pdu: (
        isinstance(pdu, Message) and target == "c" and source == "a" and bool(first) and first.pop()
    )
    group.admit("a")
    group.admit("b")
    group.settle()
    assert group.delivered("a") == group.delivered("b") == group.delivered("c") == ["b0", "a0"]
    assert sum(group.figure(name, "copies") for name in "abc") == 1


def test_a_lost_token_is_sent_again_and_the_ring_stays() -> None:
    group = Group()
    group.settle()
    group.lost = lambda _source, target, pdu: isinstance(pdu, Token) and target == "b"
    group.admit("a")
    group.settle()
    group.lost = lambda *_: False
    group.pass_time(KNOBS.retransmit_ns / MILLISECOND_NS)
    assert group.delivered("a") == group.delivered("c") == ["a0"]
    assert [group.figure(name, "rings") for name in "abc"] == [0, 0, 0]


def test_a_message_beyond_it_shows_that_the_token_was_not_lost() -> None:
    totem = member()
    totem.handle(0, token(1, 0, 0))
    assert CancelTimer("retransmit") in totem.handle(1, message(1))


def test_an_idle_ring_lets_the_token_rest_until_someone_has_something_to_say() -> None:
    group = Group()
    group.pass_time(1000)
    passed = sum(len(pdus(group.effects[name], Token)) for name in "abc")
    assert passed < 60
    group.admit("c")
    assert pdus(group.effects["c"], Wake) == [Wake(RING)]
    group.settle()
    assert group.delivered("a") == group.delivered("b") == ["c0"]


# Flow control


def test_a_visit_multicasts_no_more_than_it_may() -> None:
    totem = member(replace(KNOBS, max_messages=3))
    for _ in range(10):
        totem.handle(0, Admit([b"x"]))
    held = totem.handle(0, token(1, 0, 0))
    assert len(pdus(held, Message)) == 3
    assert (pdus(held, Token)[0].sent, pdus(held, Token)[0].backlog) == (3, 7)


def test_a_large_backlog_does_not_starve_a_small_one() -> None:
    group = Group(3, replace(KNOBS, window=4, max_messages=4))
    for _ in range(40):
        group.admit("a")
    group.admit("b")
    group.settle()
    assert group.delivered("c").index("b0") < 10


def test_sequence_numbers_do_not_run_away_from_a_member_that_gets_nothing() -> None:
    group = Group(3, replace(KNOBS, admission=10_000))
    group.lost = lambda _source, target, pdu: isinstance(pdu, Message) and target == "c"
    for _ in range(2000):
        group.admit("a")
    for _ in range(5000):
        group.step()
    sent = {pdu.seq for pdu in pdus(group.effects["a"], Message)}
    assert max(sent) == KNOBS.reach
    assert group.figure("b", "kept_messages") == KNOBS.reach
    group.lost = lambda *_: False
    group.settle()
    assert len(group.delivered("c")) == 2000


def test_what_finds_no_room_is_rejected_until_something_is_delivered() -> None:
    group = Group(3, replace(KNOBS, admission=2))
    group.lost = lambda _source, _target, pdu: isinstance(pdu, Message)
    group.admit("a")
    group.admit("a")
    assert isinstance(group.admit("a")[0], Rejected)
    group.lost = lambda *_: False
    group.settle()
    assert not isinstance(group.admit("a")[0], Rejected)
    group.settle()
    assert group.delivered("b") == ["a0", "a1", "a2"]


# A member goes


def test_without_a_crashed_member_the_ring_goes_on_after_token_and_consensus_timeouts() -> None:
    group = Group()
    group.settle()
    group.crash("c")
    group.admit("a")
    group.pass_time(HALT_MS - 50)
    assert group.delivered("b") == []
    group.pass_time(300)
    assert group.delivered("a") == group.delivered("b") == ["a0"]
    assert group.presence("a") == group.presence("b") == ["-c"]
    assert group.spells("a") == group.spells("b") == ""


def test_a_member_that_says_goodbye_is_not_waited_for() -> None:
    group = Group(3, GOODBYE)
    group.settle()
    group.depart("b")
    group.admit("a")
    group.pass_time(1)
    assert group.delivered("c") == ["a0"]
    assert group.presence("c") == ["-b"]


def test_what_a_crashed_sender_brought_to_one_member_reaches_all_that_stay() -> None:
    group = Group()
    group.lost = lambda source, target, pdu: isinstance(pdu, Message) and source == "b" and target != "c"
    group.admit("b")
    group.admit("c")
    while not pdus(group.effects["c"], Message):
        group.step()
    group.crash("b")
    group.pass_time(HALT_MS + 500)
    assert group.delivered("a") == group.delivered("c") == ["b0", "c0"]
    assert pdus(group.effects["c"], Recovered)


def test_what_lies_behind_a_message_that_no_member_has_is_sent_again() -> None:
    group = Group()
    group.lost = lambda source, _target, pdu: isinstance(pdu, Message) and source == "b"
    group.admit("b")
    group.admit("c")
    while not pdus(group.effects["c"], Message):
        group.step()
    group.crash("b")
    group.pass_time(HALT_MS + 500)
    assert group.delivered("a") == group.delivered("c") == ["c0"]
    assert [pdu.seq for pdu in pdus(group.effects["c"], Message)] == [2, 2]


def test_with_agreed_delivery_a_crashed_sender_may_have_delivered_what_no_other_gets() -> None:
    for knobs, delivered in ((AGREED, ["b0"]), (KNOBS, [])):
        group = Group(3, knobs)
        group.lost = lambda source, _target, pdu: isinstance(pdu, Message) and source == "b"
        group.admit("b")
        while not pdus(group.effects["b"], Message):
            group.step()
        group.crash("b")
        group.pass_time(HALT_MS + 500)
        assert group.delivered("b") == delivered
        assert group.delivered("a") == group.delivered("c") == []


def test_half_without_the_first_member_waits_and_half_with_it_goes_on() -> None:
    for gone, left in (("a", "b"), ("b", "a")):
        group = Group(2)
        group.settle()
        group.crash(gone)
        group.admit(left)
        group.pass_time(HALT_MS + 500)
        assert group.delivered(left) == ([] if left == "b" else ["a0"])
        assert group.spells(left) == ("-" if left == "b" else "")


def test_a_member_that_was_not_there_when_the_ring_stood_gets_on_it_by_the_next() -> None:
    group = Group(5)
    group.admit("c")
    group.settle()
    group.crash("e")
    group.lost = lambda source, _target, pdu: (
        isinstance(pdu, Token) and pdu.ring.seq == 4 and source == "a" and pdu.base != UNKNOWN
    )
    group.pass_time(HALT_MS + 300)
    assert [group.figure(name, "rings") for name in "abcd"] == [1, 0, 0, 0]
    group.crash("d")
    group.admit("b")
    group.pass_time(HALT_MS + 500)
    assert [group.delivered(name) for name in "abc"] == [["c0", "b0"]] * 3
    assert [group.spells(name) for name in "abc"] == ["", "", ""]
    assert [group.figure(name, "rings") for name in "abc"] == [2, 2, 2]


# A member comes


def test_a_restarted_member_begins_at_the_end_and_is_heard() -> None:
    group = Group()
    group.admit("c")
    group.settle()
    group.crash("c")
    group.admit("a")
    group.pass_time(HALT_MS + 500)
    group.restart("c")
    group.pass_time(500)
    group.admit("c")
    group.admit("b")
    group.settle()
    assert group.delivered("a") == group.delivered("b") == ["c0", "a0", *group.delivered("c")[1:]]
    assert sorted(group.delivered("c")) == ["b0", "c0", "c1"]
    assert group.spells("c") == "-+"
    assert group.presence("a") == ["-c", "+c"]


def test_a_member_that_restarts_at_once_need_not_be_missed_first() -> None:
    group = Group()
    group.settle()
    for _ in range(2):  # the second time it knows of no ring as late as the others'
        group.crash("b")
        group.restart("b")
        group.pass_time(100)
    group.admit("a")
    group.settle()
    assert group.delivered("a") == group.delivered("b") == group.delivered("c") == ["a0"]


def test_a_short_absence_makes_the_ring_wait_and_no_more() -> None:
    group = Group()
    group.settle()
    group.depart("b")
    group.admit("a")
    group.pass_time(500)
    assert group.delivered("c") == []
    group.come_back("b")
    group.pass_time(400)
    assert group.delivered("a") == group.delivered("b") == group.delivered("c") == ["a0"]
    assert group.spells("b") == "-+"
    assert group.figure("b", "rings") == 0


def test_after_a_long_absence_a_member_begins_a_spell_at_the_end_and_sends_what_it_kept() -> None:
    group = Group()
    group.settle()
    group.admit("b")
    group.depart("b")
    group.admit("a")
    group.pass_time(HALT_MS + 500)
    assert group.delivered("c") == ["a0"]
    group.come_back("b")
    group.pass_time(500)
    assert group.delivered("a") == group.delivered("c") == ["a0", "b0"]
    assert group.delivered("b") == ["b0"]
    assert group.spells("b") == "-+"


def test_a_returning_member_does_not_send_again_what_others_have_delivered() -> None:
    group = Group()
    group.admit("b")
    while Arrived("b", 0) not in group.effects["c"]:
        group.step()
    group.depart("b")
    group.pass_time(HALT_MS + 500)
    assert group.delivered("a") == group.delivered("c") == ["b0"]
    group.come_back("b")
    group.pass_time(500)
    group.admit("b")
    group.settle()
    assert group.delivered("a") == group.delivered("c") == ["b0", "b1"]
    assert group.delivered("b") == ["b1"]


@pytest.mark.parametrize("reached", ["bcd", "c"])
def test_a_member_passes_on_the_state_that_it_has_received(reached: str) -> None:
    """Member a starts a new spell while what e sent is recovered, so it never sees it; later a informs e."""
    group = Group(5)
    group.lost = lambda source, target, pdu: (
        isinstance(pdu, Message) and source == "e" and target not in reached
    )
    group.admit("e")
    while Arrived("e", 0) not in group.effects["c"]:
        group.step()
    group.depart("e")
    group.crash("a")
    group.restart("a")
    group.pass_time(2 * HALT_MS)
    assert [group.delivered(name) for name in "abcd"] == [[], ["e0"], ["e0"], ["e0"]]
    group.come_back("e")
    group.pass_time(500)
    group.lost = lambda *_: False
    group.admit("e")
    group.settle()
    assert [group.delivered(name) for name in "abe"] == [["e1"], ["e0", "e1"], ["e1"]]


def test_if_no_majority_remembers_the_group_waits_for_all_and_every_spell_ends() -> None:
    group = Group()
    group.admit("a")
    group.settle()
    group.crash("a")
    group.crash("b")
    group.restart("a")
    group.admit("c")
    group.pass_time(2 * HALT_MS)
    assert group.delivered("c") == ["a0"]
    group.restart("b")
    group.pass_time(2 * HALT_MS)
    assert group.delivered("a") == group.delivered("c") == ["a0", "c0"]
    assert group.spells("c")[-2:] == "-+"


def test_a_member_that_was_left_out_without_knowing_says_that_it_missed_something() -> None:
    group = Group()
    group.settle()
    group.freeze("c")
    group.admit("a")
    group.pass_time(HALT_MS + 500)
    group.cut.clear()
    group.pass_time(1000)
    group.admit("b")
    group.settle()
    assert group.delivered("a") == ["a0", "b0"]
    assert group.delivered("c") == ["b0"]
    assert group.spells("c") == "-+"


def test_a_member_that_alone_remembers_cannot_know_what_was_ordered_without_it() -> None:
    group = Group()
    group.settle()
    group.depart("c")
    group.admit("a")
    group.pass_time(HALT_MS + 500)
    assert group.delivered("b") == ["a0"]
    for name in "ab":
        group.crash(name)
        group.restart(name)
    group.come_back("c")
    group.pass_time(500)
    assert group.spells("c") == "-+-+"
    assert group.spells("a") == group.spells("b") == "-+"


# Partitions


def test_a_minority_orders_nothing_and_both_are_one_again_when_they_meet() -> None:
    group = Group(5)
    group.settle()
    group.lost = lambda source, target, _pdu: (source in "ab") != (target in "ab")
    group.admit("b")
    group.admit("c")
    group.pass_time(2 * HALT_MS)
    assert [group.delivered(name) for name in "abcde"] == [[], [], ["c0"], ["c0"], ["c0"]]
    assert [group.spells(name) for name in "abcde"] == ["-", "-", "", "", ""]
    group.lost = lambda *_: False
    group.pass_time(2 * HALT_MS)
    assert [group.delivered(name) for name in "abcde"] == [["b0"], ["b0"], *[["c0", "b0"]] * 3]
    assert [group.spells(name) for name in "abcde"] == ["-+", "-+", "", "", ""]
    assert group.presence("c") == ["-a", "-b", "+a", "+b"]


def test_rings_that_say_nothing_meet_by_their_announcements() -> None:
    group = Group()
    group.settle()
    group.cut.add("c")
    group.pass_time(2 * HALT_MS)
    group.cut.clear()
    group.pass_time(1000)
    assert group.presence("a") == ["-c", "+c"]
    assert pdus(group.effects["a"], Announce)


# Agreeing on who is there


def heard(gathering: Gathering, sender: str, known: str, failed: str = "") -> Heard:
    return gathering.hear(sender, Join(0, 0, tuple(known), tuple(failed)))


def test_sets_grow_until_all_remaining_members_agree() -> None:
    gathering = Gathering("b", ("a", "b", "c", "d"))
    assert heard(gathering, "c", "cd") is Heard.GREW
    assert heard(gathering, "c", "c") is Heard.NOTHING
    assert heard(gathering, "c", "bcd") is Heard.AGREED
    assert not gathering.complete()
    gathering.give_up()
    assert gathering.candidates() == ("b", "c")
    gathering.ask()
    assert heard(gathering, "c", "bcd", "d") is Heard.AGREED
    assert gathering.complete()


def test_a_member_that_holds_this_one_to_have_failed_is_held_to_have_failed() -> None:
    gathering = Gathering("b", MEMBERS)
    assert heard(gathering, "a", "abc", "b") is Heard.GREW
    assert gathering.candidates() == ("b", "c")
    assert heard(gathering, "a", "abc", "c") is Heard.NOTHING


@pytest.mark.parametrize(
    ("remember", "forgot", "primary", "whole"),
    [
        ("abc", "", True, True),
        ("de", "", False, False),
        ("de", "abc", True, False),
        ("ab", "cd", False, False),
        ("", "abcde", True, False),
    ],
)
def test_a_ring_orders_if_a_majority_remembers_or_no_member_is_missing(
    remember: str, forgot: str, primary: bool, whole: bool
) -> None:
    brought = {site: Evidence(0, RING, 0, 0, None, 0) for site in remember}
    brought |= {site: Evidence(1, None, 0, 0, None, 0) for site in forgot}
    plan = make_plan(tuple("abcde"), brought)
    assert (plan.primary, plan.whole) == (primary, whole)


def test_the_latest_ring_is_continued_also_by_members_that_had_begun_to_recover_on_it() -> None:
    later = RingId(4, "a", 0)
    plan = make_plan(
        MEMBERS,
        {
            "a": Evidence(0, later, 2, 9, None, 0),
            "b": Evidence(0, RING, 0, 30, later, 5),
            "c": Evidence(0, RING, 0, 30, None, 0),
        },
    )
    assert plan.continuing == ("a", "b")
    assert (plan.latest, plan.base, plan.low) == (later, 2, 5)


def test_a_ring_counts_messages_that_wait_and_that_were_sent() -> None:
    ring = Ring(RING, "a", dict.fromkeys(MEMBERS, 0), primary=True)
    first = ring.first_token()
    assert (first.base, ring.next_site, ring.alone) == (UNKNOWN, "b", False)
    assert Ring(RING, "c", dict.fromkeys(MEMBERS, 0), primary=True).next_site == "a"


# The three kinds of wrong


def test_misuse_raises_and_changes_nothing() -> None:
    with pytest.raises(UsageError):
        Totem("z", MEMBERS, KNOBS, Random(0))
    totem = Totem("b", MEMBERS, KNOBS, Random(0))
    with pytest.raises(UsageError):
        totem.handle(0, Admit([b"x"]))
    totem.handle(0, Start())
    for event in (
        Start(),
        Admit([]),
        Admit([b"x"], frozenset("a")),
        Admit([b"x"], None, "g"),
        Admit([bytes(MAXIMUM_BODY_BYTES)]),
    ):
        with pytest.raises(UsageError):
            totem.handle(0, event)
    assert totem.handle(0, Suspected("a")) == []
    for wrong in ({"window": 0}, {"token_ns": 0}, {"delivery": "some"}, {"retransmits": 0}):
        with pytest.raises(UsageError):
            TotemConfiguration(**wrong)


NUMBERS = [-(1 << 63), -1, 0, 1, 2, 3, 5, 40, 1000, (1 << 62) - 1, (1 << 63) - 1]
SITES = ["a", "b", "c", "z", ""]


def hostile_pdu(random: Random, rings: list[RingId]) -> Pdu:
    """A PDU that comes through the gate and is otherwise arbitrary."""

    def number() -> int:
        return random.choice(NUMBERS[2:8]) if random.random() < 0.8 else random.choice(NUMBERS)

    def site() -> str:
        return random.choice(SITES)

    def ring() -> RingId:
        return random.choice([*rings, RingId(number(), site(), number())])

    def sites() -> tuple[str, ...]:
        return tuple(site() for _ in range(random.choice([0, 1, 2, 3, 3, 9])))

    def evidence() -> Evidence:
        return Evidence(number(), random.choice([None, ring()]), number(), number(), ring(), number())

    def commit() -> Commit:
        members = random.choice([MEMBERS, ("a", "b"), ("b", "c"), sites()])
        hop = random.randint(0, 7)
        brought = tuple(evidence() for _ in range(random.choice([hop, len(members)])))
        return Commit(ring(), hop, members, brought)

    makers: dict[type[Pdu], Any] = {
        Message: lambda: Message(ring(), number(), site(), number(), BATCH),
        Recovered: lambda: Recovered(ring(), number(), number(), site(), number(), BATCH),
        State: lambda: State(ring(), number(), number(), {site(): number()}),
        Token: lambda: Token(
            ring(), number(), number(), number(), site(), number(), number(), number(), number(),
            tuple(number() for _ in range(random.choice([0, 1, 3, MOST_MISSING + 1]))),
        ),
        Commit: commit,
        Join: lambda: Join(number(), number(), sites(), sites()),
        Announce: lambda: Announce(ring()),
        Wake: lambda: Wake(ring()),
        Leave: lambda: Leave(number()),
    }  # fmt: skip
    assert set(makers) == set(PDUS)
    pdu: Pdu = makers[random.choice(PDUS)]()
    return pdu


@pytest.mark.parametrize("seed", range(30))
def test_no_peer_can_make_a_member_raise(seed: int) -> None:
    random = Random(seed)
    totem = Totem("b", MEMBERS, random.choice([KNOBS, AGREED]), Random(seed))
    totem.handle(0, Start(random.choice([0, 1])))
    rings = [RING]
    timers = ["token", "retransmit", "rest", "join", "consensus", "announce"]
    for now in range(400):
        if random.random() < 0.05:
            effects = totem.handle(now, TimerFired(random.choice(timers)))
        elif random.random() < 0.05:
            effects = totem.handle(now, Admit([b"x"]))
        else:
            effects = totem.handle(now, Received(random.choice(["a", "c"]), hostile_pdu(random, rings)))
        for effect in effects:
            if isinstance(effect, Multicast) and isinstance(effect.pdu, Join):
                # Agree with it, so that it also gets further than Gather.
                agreement = Join(0, effect.pdu.ring_seq, effect.pdu.known, effect.pdu.failed)
                for other in "ac":
                    totem.handle(now, Received(other, agreement))
            rings += [pdu.ring for pdu in pdus([effect], Commit)]
    assert totem.ignored > 50


def harass(group: Group, random: Random) -> None:
    """Let one thing happen: PDUs travel, a message is admitted, a timer fires, or a peer lies."""
    draw = random.random()
    name = random.choice(group.names)
    if draw < 0.4:
        for _ in range(min(len(group.travelling), 10)):
            group.step()
    elif draw < 0.5:
        group.admit(name)
    elif draw < 0.6:
        time, key = min((time, key) for key, time in group.timers.items())
        group.now = max(group.now, time)
        del group.timers[key]
        group.give(key[0], TimerFired(key[1]))
    else:
        rings = [pdu.ring for pdu in pdus(group.effects[name][-20:], Pdu) if hasattr(pdu, "ring")]
        liar = random.choice([other for other in group.names if other != name])
        group.give(name, Received(liar, hostile_pdu(random, rings[-2:])))


@pytest.mark.parametrize("seed", range(20))
def test_lies_among_the_truth_make_no_member_raise(seed: int) -> None:
    random = Random(seed)
    group = Group(3, random.choice([KNOBS, AGREED]))
    for _ in range(300):
        harass(group, random)
    assert all(totem.ignored for totem in group.members.values())


def test_what_was_delivered_in_our_name_is_not_sent() -> None:
    totem = member(AGREED)
    totem.handle(0, Admit([b"x"]))
    totem.handle(0, Received("a", Message(RING, 1, "b", 0, BATCH)))
    assert pdus(totem.handle(0, token(1, 1, 1)), Message) == []


def test_nonsense_is_counted_and_dropped() -> None:
    totem = member()
    nonsense: list[Received] = [
        Received("z", Announce(RING)),
        Received("b", Announce(RING)),
        Received("a", Pdu()),
        Received("a", Message(RING, 0, "a", 0, BATCH)),
        Received("a", Message(RING, 1, "z", 0, BATCH)),
        message(5 * KNOBS.reach),
        token(1, 5 * KNOBS.reach, 0),
        token(1, 1, 2),
        token(1, 1, 0, NOBODY, tuple(range(MOST_MISSING + 1))),
        Received("a", Join(0, 0, ("a", "z"), ())),
        Received("a", Commit(RING, 1, ("a", "a"), (Evidence(0, None, 0, 0, None, 0),))),
        Received("a", Leave(-1)),
    ]
    for event in nonsense:
        assert totem.handle(0, event) == []
    assert totem.ignored == len(nonsense)


def test_what_is_late_from_an_earlier_ring_does_not_break_the_present_one() -> None:
    group = Group()
    group.settle()
    group.crash("c")
    group.pass_time(HALT_MS + 500)
    for pdu in (Message(RING, 1, "a", 0, BATCH), Announce(RING), Join(0, 0, MEMBERS, ())):
        assert group.give("b", Received("a", pdu)) == []
    assert group.figure("b", "rings") == 1


def test_every_pdu_travels() -> None:
    codec = Codec(PDUS)
    random = Random(1)
    for _ in range(300):
        pdu = hostile_pdu(random, [RING])
        packet = codec.decode(codec.encode(pdu))
        assert isinstance(packet, Packet)
        assert packet.pdu == pdu


def test_a_departure_is_told_once() -> None:
    group = Group(3, GOODBYE)
    group.settle()
    group.depart("c")
    assert [type(effect) for effect in group.effects["c"]].count(Absent) == 1
    assert pdus(group.effects["c"], Leave) == [Leave(0)]
