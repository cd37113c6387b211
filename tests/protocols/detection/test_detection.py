"""The three failure detectors between fakes: what they notice, when they trust again, and what they bound."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.effects import Appeared, Multicast, Send, Vanished
from antiphon.core.errors import UsageError
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.inputs import Departed, Received, Returned, Start, TimerFired
from antiphon.core.wire import MAXIMUM_BODY_BYTES, Codec
from antiphon.protocols.detection import (
    DETECTORS,
    PDUS,
    GossipConfiguration,
    GossipDetection,
    HeartbeatConfiguration,
    PollingConfiguration,
)
from antiphon.protocols.detection.base import Farewell
from antiphon.protocols.detection.gossip import LIFE_BYTES, LONG_SILENCE, MOST_AHEAD, Gossip, Life
from antiphon.protocols.detection.heartbeat import Alive, missing_for
from antiphon.protocols.detection.polling import Poll, PollAnswer, retries_for
from tests.protocols.harness.detection_group import K_FAIL, SILENCE_S, Group, build
from tests.protocols.harness.gate import pass_gate

kinds = pytest.mark.parametrize("kind", DETECTORS)


@kinds
def test_no_member_suspects_another_while_all_are_alive(kind: str) -> None:
    group = Group(kind, 6)
    group.pass_time(80)
    assert group.events == {}


@kinds
def test_a_crashed_member_is_suspected_by_all_once(kind: str) -> None:
    group = Group(kind)
    group.pass_time(20)
    group.crash("b")
    group.pass_time(SILENCE_S[kind])
    assert group.suspecting("b") == {"a", "c", "d"}
    group.pass_time(150)
    assert {site: group.told(site, Vanished) for site in "acd"} == {"a": ["b"], "c": ["b"], "d": ["b"]}
    assert not any(group.told(site, Appeared) for site in "acd")


@kinds
def test_who_was_only_cut_off_comes_back(kind: str) -> None:
    group = Group(kind)
    group.pass_time(20)
    group.drop = lambda source, target, _: "b" in (source, target)
    group.pass_time(SILENCE_S[kind])
    assert group.suspecting("b") == {"a", "c", "d"}
    group.drop = lambda _source, _target, _pdu: False
    group.pass_time(3 * K_FAIL)
    assert not any(group.suspecting(site) for site in "abcd")
    assert all(group.told(site, Appeared) == ["b"] for site in "acd")


@kinds
def test_halves_of_a_group_find_each_other_after_long(kind: str) -> None:
    group = Group(kind)
    group.pass_time(20)
    group.drop = lambda source, target, _: (source in "ab") != (target in "ab")
    group.pass_time(20 * K_FAIL)
    assert group.suspecting("a") == {"c", "d"}
    group.drop = lambda _source, _target, _pdu: False
    group.pass_time(5 * K_FAIL)
    assert not any(group.suspecting(site) for site in "abcd")


@kinds
def test_a_joiner_is_known_to_all_and_knows_all(kind: str) -> None:
    group = Group(kind, 3)
    group.pass_time(20)
    group.join("g")
    group.pass_time(K_FAIL)
    assert all(group.told(site, Appeared) == ["g"] for site in "abc")
    assert set(group.members["g"].trusted) == set("abc")
    group.crash("g")
    group.pass_time(SILENCE_S[kind])
    assert group.suspecting("g") == set("abc")


@kinds
def test_a_restart_is_a_new_incarnation(kind: str) -> None:
    group = Group(kind)
    group.pass_time(20)
    group.crash("b")
    group.join("b", incarnation=1)
    group.pass_time(K_FAIL)
    for site in "acd":
        assert [type(event) for event in group.events[site]] == [Vanished, Appeared]
        assert group.events[site][0] == Vanished("b", "It began anew.")
    # Nothing of its earlier life counts as a sign of this one.
    group.crash("b")
    group.pass_time(SILENCE_S[kind])
    group.carry_out("a", group.members["a"].on_activity(group.now, "b", 0))
    assert group.suspecting("b") == set("acd")


@kinds
def test_who_leaves_is_gone_at_once_and_may_return(kind: str) -> None:
    group = Group(kind)
    group.pass_time(20)
    group.leave("b")
    assert group.suspecting("b") == set("acd")
    assert group.events["a"] == [Vanished("b", "It has left.")]
    # Its earlier PDUs do not revive it, whichever member passes them on.
    assert group.members["a"].on_activity(group.now, "b") == []
    group.pass_time(3)
    assert group.suspecting("b") == set("acd")
    group.come_back("b")
    group.pass_time(4 * K_FAIL)
    assert not any(group.suspecting(site) for site in "abcd")


@kinds
def test_a_farewell_that_comes_late_is_passed_over(kind: str) -> None:
    group = Group(kind)
    group.pass_time(5)
    farewells = []
    group.drop = lambda _source, _target, pdu: isinstance(pdu, Farewell) and not farewells.append(pdu)  # type: ignore[func-returns-value]
    group.leave("b")
    group.come_back("b")
    group.pass_time(3 * K_FAIL)
    assert group.give("a", Received("b", farewells[0])) == []
    assert not group.members["a"].suspects("b")


@pytest.mark.parametrize(("kind", "word"), [("heartbeat", Alive), ("polling", PollAnswer)])
def test_what_was_overtaken_on_the_way_is_no_sign_of_life(kind: str, word: Any) -> None:
    group = Group(kind, 2)
    group.give("a", Received("b", word(0, 1000)))
    group.crash("b")
    group.pass_time(SILENCE_S[kind])
    assert presence(group.give("a", Received("b", word(0, 999)))) == []
    assert presence(group.give("a", Received("b", word(0, 1001)))) == [Appeared("b")]


@kinds
def test_any_pdu_is_a_sign_of_life(kind: str) -> None:
    group = Group(kind, 3)
    group.drop = lambda source, target, _: "b" in (source, target)
    for _ in range(40):
        group.pass_time(1)
        group.carry_out("a", group.members["a"].on_activity(group.now, "b"))
    assert group.suspecting("b") == {"c"}
    assert "b" not in group.told("a", Vanished)


@kinds
def test_a_member_that_was_paused_suspects_no_other_for_it(kind: str) -> None:
    group = Group(kind)
    group.pass_time(10)
    timers = {key: time for key, time in group.timers.items() if key[0] == "a"}
    for key in timers:
        del group.timers[key]
    group.drop = lambda _source, target, _: target == "a"
    group.pass_time(60)
    group.drop = lambda _source, _target, _pdu: False
    group.timers |= dict.fromkeys(timers, group.now)
    group.pass_time(3 * K_FAIL)
    assert not group.told("a", Vanished)


# Polling


def test_traffic_spares_the_question_and_so_does_being_asked() -> None:
    group = Group("polling", 2)
    group.sent.clear()
    group.pass_time(100)
    polls = [source for source, _, pdu in group.sent if isinstance(pdu, Poll)]
    answers = [source for source, _, pdu in group.sent if isinstance(pdu, PollAnswer)]
    assert len(polls) == len(answers)
    assert 0 < len(polls) < 100, "each asking once a period would make 200"
    group.sent.clear()
    for _ in range(100):
        for site, other in ("ab", "ba"):
            group.members[site].on_activity(group.now, other)
        group.pass_time(0.5)
    greetings = [source for source, _, pdu in group.sent if isinstance(pdu, Poll)]
    assert len(greetings) == 10, "only everyone's question to all, every tenth period"


def test_two_newcomers_meet_although_the_first_question_was_lost() -> None:
    group = Group("polling", 2)
    group.join("g")
    group.drop = lambda source, target, _: {source, target} == {"g", "h"}
    group.join("h")
    group.drop = lambda _source, _target, _pdu: False
    group.pass_time(15)
    assert not group.suspecting("g")
    assert not group.suspecting("h")


def test_a_poll_is_repeated_before_anyone_is_suspected() -> None:
    group = Group("polling", 2)
    group.pass_time(10)
    lost: list[Any] = []
    group.drop = lambda _source, target, pdu: target == "b" and len(lost) < 2 and not lost.append(pdu)  # type: ignore[func-returns-value]
    group.pass_time(10)
    assert len(lost) == 2
    assert group.events == {}


# Gossip


def a_gossip(site: str = "a", members: str = "abc", **knobs: Any) -> GossipDetection:
    detector = build("gossip", site, tuple(members), **knobs)
    assert isinstance(detector, GossipDetection)
    detector.handle(0, Start())
    return detector


def tell(detector: GossipDetection, source: str, counter: int, *others: tuple[str, int, int]) -> list[Any]:
    lives = (Life(source, 0, counter), *(Life(*other) for other in others))
    return detector.handle(0, Received(source, Gossip(lives)))


def step(detector: GossipDetection, count: int = 1) -> list[Any]:
    return [effect for _ in range(count) for effect in detector.handle(0, TimerFired("tick"))]


def presence(effects: list[Any]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, Appeared | Vanished)]


def test_only_a_counter_that_rises_resets_an_age() -> None:
    detector = a_gossip()
    tell(detector, "b", 5, ("c", 0, 7))
    for counter in range(6, 5 + K_FAIL):
        assert presence(step(detector)) == []
        tell(detector, "b", counter, ("c", 0, 7))
    assert presence(step(detector)) == [Vanished("c", f"Its counter has not risen for {K_FAIL} steps.")]


def test_hearsay_does_not_revive_a_failed_member_for_two_k_fail() -> None:
    detector = a_gossip()
    tell(detector, "b", 1, ("c", 0, 1))
    for counter in range(2, K_FAIL + 2):
        step(detector)
        tell(detector, "b", counter)
    assert detector.suspects("c")
    for offset in range(2 * K_FAIL - 1):
        assert presence(tell(detector, "b", 100 + offset, ("c", 0, 2 + offset))) == []
        assert presence(step(detector)) == []
    step(detector)
    assert detector.suspects("c")
    # It is forgotten now, but not how far it had counted.
    assert presence(tell(detector, "b", 200, ("c", 0, 2 * K_FAIL))) == []
    assert presence(tell(detector, "b", 201, ("c", 0, 500))) == [Appeared("c")]


def test_hearsay_that_is_no_news_does_not_revive_a_failed_member() -> None:
    detector = a_gossip(members="ab")
    tell(detector, "b", 1, ("c", 0, 5))
    for counter in range(2, K_FAIL + 2):
        step(detector)
        tell(detector, "b", counter)
    assert detector.suspects("c")
    assert presence(tell(detector, "b", 100, ("c", 0, 5))) == []


def test_a_forgotten_member_that_is_back_counts_from_where_it_is() -> None:
    detector = a_gossip(members="ab")
    tell(detector, "b", 1, ("c", 0, 5))
    for counter in range(2, 3 * K_FAIL + 2):
        step(detector)
        tell(detector, "b", counter)
    assert presence(tell(detector, "c", 5)) == []
    assert presence(detector.on_activity(0, "c")) == [Appeared("c")]
    for counter in range(100, 100 + K_FAIL):
        tell(detector, "c", 5)
        tell(detector, "b", counter)
        assert presence(step(detector)) == []


@pytest.mark.parametrize(("spare_bytes", "fit"), [(0, 3), (-1, 2)])
def test_as_many_are_gossiped_of_as_fit(monkeypatch: pytest.MonkeyPatch, spare_bytes: int, fit: int) -> None:
    most = "antiphon.protocols.detection.gossip.MOST_BYTES"
    monkeypatch.setattr(most, 3 * (LIFE_BYTES + 1) + spare_bytes)
    detector = a_gossip()
    tell(detector, "b", 1, *((site, 0, 1) for site in "cdef"))
    sent = [effect.pdu for effect in step(detector) if isinstance(effect, Send | Multicast)]
    assert {len(pdu.lives) for pdu in sent if isinstance(pdu, Gossip)} == {1 + fit}


def test_a_pdu_of_its_own_revives_it_at_once() -> None:
    detector = a_gossip()
    step(detector, K_FAIL)
    assert detector.trusted == ()
    assert presence(tell(detector, "c", 3)) == [Appeared("c")]
    assert presence(detector.on_activity(0, "b")) == [Appeared("b")]


def test_a_farewell_is_later_than_other_pdus_with_its_counter() -> None:
    detector = a_gossip()
    tell(detector, "b", 5)
    assert presence(detector.handle(0, Received("b", Farewell(0, 4)))) == []
    assert presence(detector.handle(0, Received("b", Farewell(0, 5)))) == [Vanished("b", "It has left.")]
    assert presence(tell(detector, "b", 5)) == []
    assert presence(tell(detector, "b", 6)) == [Appeared("b")]


def test_as_many_are_gossiped_of_as_are_watched_and_its_sender() -> None:
    detector = a_gossip(members="ab", largest_group=3)
    assert presence(tell(detector, "b", 5, ("a", 0, 1), ("c", 0, 1), ("d", 0, 1))) != []
    assert presence(tell(detector, "b", 6, ("a", 0, 1), ("c", 0, 2), ("d", 0, 2), ("e", 0, 1))) == []
    assert detector.ignored == 1


def test_the_owner_knows_a_site_by_an_incarnation_and_later_ones_are_not_believed() -> None:
    detector = a_gossip()
    began_anew = [Vanished("b", "It began anew."), Appeared("b")]
    heard = detector.handle(0, Received("b", Gossip((Life("b", 5, 1),))))
    detector.believe("nobody", 5)
    detector.believe("b", 5)
    # It has just sent a PDU itself, so that no other can report a later incarnation.
    assert presence(heard + tell(detector, "c", 1, ("b", 9, 1))) == []
    assert presence(detector.on_activity(0, "b", 4)) == []
    detector.believe("b", 4)
    assert presence(detector.on_activity(0, "b", 4)) == began_anew


def test_who_was_only_named_is_not_gossiped_of() -> None:
    """A joiner knows names; if it gossiped about them, it would revive dead members that others forgot."""
    detector = a_gossip()
    tell(detector, "b", 5)
    sent = [effect for effect in step(detector, 5) if isinstance(effect, Send | Multicast)]
    assert sent
    for effect in sent:
        assert isinstance(effect.pdu, Gossip)
        assert {life.site for life in effect.pdu.lives} == {"a", "b"}


def test_who_hears_a_lie_of_itself_goes_on_above_it() -> None:
    detector = a_gossip()
    tell(detector, "b", 5, ("a", 0, 1000))
    sent = [effect for effect in step(detector) if isinstance(effect, Send)]
    assert isinstance(sent[0].pdu, Gossip)
    assert sent[0].pdu.lives[0] == Life("a", 0, 1002)


def test_k_fail_follows_the_group() -> None:
    detector = a_gossip(members="abcdefgh", k_fail=None)
    assert detector.k_fail == 22
    step(detector, 22)
    step(detector)
    assert detector.trusted == ()
    assert detector.k_fail == 11


def test_a_longer_horizon_takes_the_probability_per_step() -> None:
    long = GossipConfiguration(mistake=1e-3, horizon_steps=1000)
    assert long.steps_to_fail(64) == GossipConfiguration(mistake=1e-6).steps_to_fail(64) == 30


def test_a_gossip_fits_a_pdu_whatever_the_names() -> None:
    names = tuple(f"{index:0200d}" for index in range(1000))
    detector = GossipDetection(names[0], names, GossipConfiguration(k_fail=100), Random(0))
    detector.handle(0, Start())
    for name in names[1:]:
        detector.handle(0, Received(name, Gossip((Life(name, 0, MOST_AHEAD),))))
    codec, spread = Codec(PDUS), set()
    for effect in step(detector, 12):
        if isinstance(effect, Send):
            assert len(codec.encode(effect.pdu)) < MAXIMUM_BODY_BYTES
            assert isinstance(effect.pdu, Gossip)
            spread |= {life.site for life in effect.pdu.lives}
    assert len(spread) == 1000


# Peers that make no sense


@kinds
def test_invented_members_are_bounded(kind: str) -> None:
    detector = build(kind, "a", ("a", "b"), largest_group=5)
    detector.handle(0, Start())
    for index in range(50):
        name = f"x{index}"
        for pdu in (Alive(0, 1), Poll(0, 1), Gossip((Life(name, 0, 1), Life(f"y{index}", 0, 1)))):
            detector.handle(0, Received(name, pdu))
    assert len(detector.trusted) == 5
    assert detector.ignored > 40


@kinds
@pytest.mark.parametrize(
    "pdu",
    [
        Alive(-1, 0), Alive(0, NUMBER_LIMIT), Poll(NUMBER_LIMIT, 0), PollAnswer(0, -5), Farewell(-2, 1),
        Gossip(()), Gossip((Life("someone else", 0, 1),)), Gossip((Life("b", 0, -1),)),
        Gossip((Life("b", 0, MOST_AHEAD + 5),)), Gossip((Life("b", 0, 1), Life("", 0, 1))),
        Gossip((Life("b", 0, 1), Life("e" * 300, 0, 1))),
        Gossip((Life("b", 0, 1), Life("z", NUMBER_LIMIT, 1))),
        Gossip(tuple(Life("b", 0, 1) for _ in range(2000))),
    ],
)  # fmt: skip
def test_nonsense_is_counted_and_dropped(kind: str, pdu: Any) -> None:
    detector = build(kind, "a", ("a", "b"))
    detector.handle(0, Start())
    received = pass_gate(Codec(PDUS), "b", pdu)
    assert received is None or presence(detector.handle(0, received)) == []
    assert received is None or detector.ignored == 1
    assert detector.trusted == ("b",)


integers = st.one_of(
    st.integers(-2, 6), st.sampled_from([-(1 << 63), NUMBER_LIMIT - 1, NUMBER_LIMIT, (1 << 64) - 1])
)
names = st.sampled_from(["a", "b", "c", "d", "e", "", "x" * 300, "é" * 200])
lives = st.lists(st.builds(Life, names, integers, integers), max_size=5).map(tuple)
pdus = st.one_of(
    *(st.builds(kind, integers, integers) for kind in (Alive, Farewell, Poll, PollAnswer)),
    st.builds(Gossip, lives),
    st.builds(lambda name, *numbers: Gossip((Life(name, *numbers),)), names, integers, integers),
)
happenings = st.one_of(
    st.tuples(st.sampled_from("abcdeé"), pdus).map(lambda said: Received(*said)),
    st.builds(TimerFired, st.sampled_from(["tick", "tick", "retry", "nothing"])),
    st.sampled_from([Departed(), Returned()]),
)


@kinds
@given(events=st.lists(happenings, max_size=40))
@settings(max_examples=60, deadline=None)
def test_whatever_peers_say_nothing_is_raised_and_all_is_bounded(kind: str, events: list[Any]) -> None:
    detector = build(kind, "a", ("a", "b"), largest_group=3)
    codec, present = Codec(PDUS), {"b"}
    for happening in (Start(), *events):
        event = happening
        if isinstance(event, Received):
            event = pass_gate(codec, event.sender, event.pdu)
        for effect in [] if event is None else detector.handle(0, event):
            if isinstance(effect, Appeared):
                assert effect.site not in present
                present.add(effect.site)
            elif isinstance(effect, Vanished):
                present.remove(effect.site)
            elif isinstance(effect, Send | Multicast):
                codec.encode(effect.pdu)
    assert present == set(detector.trusted)
    assert len(present) <= 3


@kinds
def test_pdus_in_our_own_name_are_dropped(kind: str) -> None:
    detector = build(kind, "a", ("a", "b"))
    assert detector.handle(0, Received("a", Alive(0, 1))) == []
    assert detector.ignored == 1


# Knobs


def test_thresholds_follow_from_the_mistake_allowed() -> None:
    assert missing_for(10, 1e-6) == 1
    missing = missing_for(10, 1e-6, 0.9)
    assert 90 * 0.1**missing <= 1e-6 < 90 * 0.1 ** (missing - 1)
    requests = 1 + retries_for(10, 1e-6, 0.9)
    assert 90 * 0.19**requests <= 1e-6 < 90 * 0.19 ** (requests - 1)
    assert retries_for(10, 1e-6) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: HeartbeatConfiguration(period_ns=0),
        lambda: HeartbeatConfiguration(missing=0),
        lambda: PollingConfiguration(timeout_ns=10**9),
        lambda: PollingConfiguration(retries=-1),
        lambda: GossipConfiguration(subset=0),
        lambda: GossipConfiguration(mistake=0.0),
        lambda: GossipConfiguration(mistake=1e-20, horizon_steps=10**15),
        lambda: GossipConfiguration(arrival=0.0),
        lambda: GossipConfiguration(k_fail=0),
        lambda: GossipConfiguration(largest_group=0),
        lambda: build("heartbeat", "a", ("a", "a")),
        lambda: build("heartbeat", "a", ("a", "b", "c"), largest_group=2),
        lambda: missing_for(1, 0.5),
        lambda: retries_for(5, 0.0),
    ],
)
def test_what_makes_no_sense_is_said(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


# What a member says itself, and what others say of it


def gossiper(*named: str, largest_group: int = 8) -> GossipDetection:
    detector = build("gossip", "a", ("a", *named), largest_group=largest_group)
    assert isinstance(detector, GossipDetection)
    detector.handle(0, Start())
    return detector


def gossip(detector: GossipDetection, sender: str, counter: int, *others: Life, incarnation: int = 1) -> None:
    detector.handle(0, Received(sender, Gossip((Life(sender, incarnation, counter), *others))))


def test_hearsay_cannot_give_a_live_member_a_new_incarnation() -> None:
    detector = gossiper("b", "c")
    gossip(detector, "b", 5)
    step(detector, LONG_SILENCE - 1)
    gossip(detector, "c", 5, Life("b", 9, 1))
    assert detector._watches["b"].incarnation == 1
    step(detector, 1)
    gossip(detector, "c", 6, Life("b", 9, 1))
    assert detector._watches["b"].incarnation == 9
    gossip(detector, "b", 6)
    assert detector._watches["b"].incarnation == 1
    gossip(detector, "b", 1, incarnation=2)
    gossip(detector, "b", 9, incarnation=1)
    assert (detector._watches["b"].incarnation, detector._watches["b"].counter) == (2, 1)


def test_a_members_own_pdu_corrects_a_counter_that_others_have_raised() -> None:
    detector = gossiper("b", "c")
    gossip(detector, "b", 5)
    gossip(detector, "c", 5, Life("b", 1, 5 + MOST_AHEAD))
    assert detector._watches["b"].counter == 5 + MOST_AHEAD
    step(detector, 2)
    gossip(detector, "b", 6)
    assert (detector._watches["b"].counter, detector._watches["b"].age) == (6, 0)
    step(detector, 1)
    gossip(detector, "b", 5)
    assert (detector._watches["b"].counter, detector._watches["b"].age) == (6, 1)
    gossip(detector, "c", 6, Life("b", 1, 7 + MOST_AHEAD))
    assert detector._watches["b"].counter == 6


def test_a_farewell_counts_although_others_have_raised_the_counter() -> None:
    detector = gossiper("b", "c")
    gossip(detector, "b", 5)
    gossip(detector, "c", 5, Life("b", 1, 500))
    detector.handle(0, Received("b", Farewell(1, 4)))
    assert not detector.suspects("b")
    detector.handle(0, Received("b", Farewell(2, 6)))
    assert not detector.suspects("b")
    detector.handle(0, Received("b", Farewell(1, 6)))
    assert detector.suspects("b")


def test_lies_about_our_own_counter_do_not_use_it_up() -> None:
    detector = gossiper("b")
    gossip(detector, "b", 1, Life("a", 0, detector._counter + MOST_AHEAD + 1))
    assert detector._counter == 1
    gossip(detector, "b", 2, Life("a", 0, detector._counter + MOST_AHEAD))
    assert detector._counter == MOST_AHEAD + 2
    gossip(detector, "b", 3, Life("a", 0, 7))
    gossip(detector, "b", 4, Life("a", 0, detector._counter))
    assert detector._counter == MOST_AHEAD + 2
    detector._counter = NUMBER_LIMIT // 2 - 1
    gossip(detector, "b", 5, Life("a", 0, NUMBER_LIMIT // 2 + 5))
    assert detector._counter == NUMBER_LIMIT // 2 - 1
    gossip(detector, "b", 5, Life("a", 0, NUMBER_LIMIT // 2))
    assert detector._counter == NUMBER_LIMIT // 2 + 1
    gossip(detector, "b", 6, Life("a", 1, detector._counter + 5))
    assert detector._counter == NUMBER_LIMIT // 2 + 1


def test_members_that_others_invent_make_room_for_those_that_speak() -> None:
    detector = gossiper("b", largest_group=4)
    gossip(detector, "b", 1, *(Life(f"x{number}", 1, 1) for number in range(3)))
    assert set(detector._watches) == {"b", "x0", "x1", "x2"}
    gossip(detector, "b", 2, Life("x3", 1, 1))
    assert set(detector._watches) == {"b", "x0", "x1", "x2"}
    for name in "cde":
        gossip(detector, name, 1)
    assert set(detector._watches) == {"b", "c", "d", "e"}
    gossip(detector, "f", 1)
    assert set(detector._watches) == {"b", "c", "d", "e"}
    detector.handle(0, Received("c", Farewell(1, 2)))
    gossip(detector, "b", 3, Life("x4", 1, 1))
    assert set(detector._watches) == {"b", "c", "d", "e"}
    gossip(detector, "f", 2)
    assert set(detector._watches) == {"b", "d", "e", "f"}


def test_named_members_do_not_make_room_before_they_have_spoken() -> None:
    detector = gossiper("b", "c", largest_group=3)
    gossip(detector, "d", 1)
    gossip(detector, "e", 1)
    assert set(detector._watches) == {"b", "c", "d"}


def test_members_that_come_one_by_one_cost_few_computations() -> None:
    detector = GossipDetection("a", ("a",), GossipConfiguration(), Random(0))
    detector.handle(0, Start())
    gossip(detector, "b", 1, *(Life(f"x{number}", 1, 1) for number in range(200)))
    step(detector, 1)
    assert detector.k_fail == GossipConfiguration().steps_to_fail(256)
    detector = GossipDetection("a", ("a",), GossipConfiguration(), Random(0))
    gossip(detector, "b", 1, *(Life(f"x{number}", 1, 1) for number in range(62)))
    step(detector, 1)
    assert detector.k_fail == GossipConfiguration().steps_to_fail(64)
