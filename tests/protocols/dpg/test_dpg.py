"""The member of a Distributed Precedence Graph group, on small schedules made by hand."""

from typing import Any

import pytest

from antiphon.core.effects import (
    Absent,
    Admitted,
    Arrived,
    Deliver,
    Disagreed,
    Multicast,
    Present,
    Rejected,
    Unavailable,
)
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit, Received, Start
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg import member as member_module
from antiphon.protocols.dpg.pdus import (
    LARGEST_BATCH_BYTES,
    DpgConfiguration,
    Message,
    Remulticast,
    Report,
    Request,
)
from antiphon.protocols.dpg.reports import pack_arcs
from antiphon.protocols.dpg.tag_lists import pack_tags
from tests.protocols.harness.dpg_group import ChosenTags, Lan, Unordered, false_marks, message

HEARTBEAT_MS = 20


def is_about(pdu: Pdu, *kinds: type[Pdu]) -> bool:
    return isinstance(pdu, kinds)


# Admission


def test_admitted_messages_are_numbered_and_multicast() -> None:
    lan = Lan()
    first = lan.admit("a", b"one", b"two")
    second = lan.admit("a", b"three")
    assert [effect for effect in first + second if isinstance(effect, Admitted)] == [
        Admitted(0, 2, 6),
        Admitted(2, 1, 5),
    ]
    sent = [effect.pdu for effect in first + second if isinstance(effect, Multicast)]
    assert [(pdu.number, list(pdu.bodies)) for pdu in sent if isinstance(pdu, Message)] == [
        (0, [b"one", b"two"]),
        (2, [b"three"]),
    ]


def test_what_the_admission_buffers_do_not_hold_is_rejected() -> None:
    lan = Lan("ab", window=1, admission_buffers=2)
    answers = [lan.admit("a")[0] for _ in range(5)]
    assert [type(answer) for answer in answers] == [Admitted, Admitted, Admitted, Rejected, Rejected]
    lan.wait_for(lambda: lan.all_delivered(3))
    assert isinstance(lan.admit("a")[0], Admitted), "there is room again"
    lan.wait_for(lambda: lan.all_delivered(4))
    assert lan.agreed() == ["a0", "a1", "a2", "a3"]


@pytest.mark.parametrize(
    "event",
    [
        Admit(()),
        Admit((b"x",), destinations=frozenset({"b"})),
        Admit((b"x",), group="g"),
        Admit((bytes(LARGEST_BATCH_BYTES),)),
        Start(),
    ],
    ids=["nothing", "destinations", "another group", "too large", "started twice"],
)
def test_misuse_raises_and_changes_nothing(event: Any) -> None:
    lan = Lan()
    with pytest.raises(UsageError):
        lan.members["a"].handle(lan.now, event)
    assert lan.admit("a")[0] == Admitted(0, 1, 1)
    lan.wait_for(lambda: lan.all_delivered(1))


def test_nothing_is_admitted_before_the_start() -> None:
    member = member_module.Dpg(
        "a", DpgConfiguration(), Lan().members["a"]._service, Lan().members["a"].random
    )
    with pytest.raises(UsageError):
        member.handle(0, Admit((b"x",)))


def test_no_more_than_a_window_is_under_way() -> None:
    lan = Lan("abc", window=3)
    lan.misses = lambda _source, _target, _pdu: True
    for _ in range(8):
        lan.admit("a")
    lan.settle()
    assert len(lan.sent(Message)) == 3
    lan.misses = lambda _source, _target, _pdu: False
    lan.wait_for(lambda: lan.all_delivered(8))
    assert lan.agreed() == [f"a{number}" for number in range(8)]


def test_a_packed_batch_is_one_vertex() -> None:
    lan = Lan("ab")
    lan.admit("a", b"one", b"two", b"three")
    lan.admit("b", b"four")
    lan.settle()
    assert len(lan.tags()) == 2
    assert lan.members["b"].vertices == 1, "its own has no place yet"
    lan.wait_for(lambda: lan.all_delivered(4))
    delivered = lan.of("b", Deliver)
    assert sorted(list(effect.bodies) for effect in delivered) == [[b"four"], [b"one", b"two", b"three"]]
    assert lan.agreed() in (["a0", "a1", "a2", "b0"], ["b0", "a0", "a1", "a2"])


# Deliverability


def test_what_surely_follows_the_latest_deliverable_is_delivered_at_once() -> None:
    lan = Lan("abc")
    lan.admit("a")
    lan.admit("b")
    lan.settle()
    assert lan.delivered("c") == ["a0", "b0"], "c heard everything from the beginning"
    assert lan.delivered("a") == lan.delivered("b") == [], "who sent must first learn where that stands"
    lan.wait_for(lambda: lan.all_delivered(2), at_most_s=0.15)  # by reports, long before Deliv_Cycle
    assert lan.agreed() == ["a0", "b0"]
    assert lan.members["a"].figures()["committed"] == 0


def test_what_nobody_can_order_is_ordered_by_decreasing_tags_after_deliv_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member_module, "Tags", ChosenTags(5, 7, 6))
    lan = Lan("ab")
    lan.admit("a")  # 5
    lan.admit("b")  # 7: neither hears its own, and no other member is there
    lan.pass_time(150)
    assert lan.delivered("a") == lan.delivered("b") == [], "it may still become known"
    lan.wait_for(lambda: lan.all_delivered(2))
    assert lan.agreed() == ["b0", "a0"]
    assert lan.members["a"].figures()["committed"] == lan.members["b"].figures()["committed"] == 1


def test_messages_behind_an_antichain_are_reached() -> None:
    """Item 4: what follows the antichain's other elements hangs under the root afterwards."""
    lan = Lan("ab")
    for _ in range(4):
        lan.admit("a")
        lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(8))
    order = lan.agreed()
    assert [name for name in order if name[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert [name for name in order if name[0] == "b"] == ["b0", "b1", "b2", "b3"]


def test_without_the_detector_nothing_is_marked_and_all_waits_for_deliv_cycle() -> None:
    lan = Lan("abc", detector=False)
    lan.admit("a")
    lan.admit("b")
    lan.pass_time(150)
    assert lan.delivered("c") == []
    lan.wait_for(lambda: lan.all_delivered(2))
    assert lan.agreed() == ["a0", "b0"], "the arc is known all the same"
    assert not lan.told_marks()


@pytest.mark.parametrize("cycles", ["clock", "count"])
def test_everyone_delivers_all_in_one_order_although_a_tenth_is_missed(cycles: str) -> None:
    lan = Lan("abcd", seed=3, cycles=cycles)
    chance = Lan("a").members["a"].random
    lan.misses = lambda _source, _target, _pdu: chance.random() < 0.1
    for _ in range(30):
        for name in lan.names:
            lan.admit(name)
        lan.pass_time(10)
    admitted = sum(lan.admitted.values())
    lan.wait_for(lambda: lan.all_delivered(admitted))
    assert len(lan.agreed()) == admitted >= 100
    assert not lan.doubts()


# Lost bodies


def missing_once(lan: Lan, target: str, sender: str) -> None:
    """This member misses the first message of another."""
    lan.misses = lambda source, to, pdu: (
        to == target and source == sender and type(pdu) is Message and pdu.number == 0
    )


def test_a_missed_message_is_found_through_reports_and_asked_for() -> None:
    lan = Lan("abc")
    missing_once(lan, "c", "a")
    lan.admit("a")
    lan.admit("b")
    lan.settle()
    assert lan.delivered("c") == [], "b0 is there, but what it follows is not known"
    lan.wait_for(lambda: lan.all_delivered(2))
    assert lan.agreed() == ["a0", "b0"]
    assert lan.sent(Remulticast), "its body came once more"
    assert not lan.doubts()


def test_a_body_is_asked_for_again_after_retr_cycle_and_ever_later() -> None:
    lan = Lan("abc", retr_cycle_ns=20 * MILLISECOND_NS, dummy_cycle_ns=5_000 * MILLISECOND_NS)
    lan.misses = lambda source, to, pdu: to == "c" and source == "a" and type(pdu) in (Message, Remulticast)
    lan.admit("a")
    lan.admit("b")
    lan.pass_time(600)
    asked = lan.sent_ns(Request, "c") + [
        time for time, source, pdu in lan.transmitted if source == "c" and type(pdu) is Report and pdu.lost
    ]
    pauses = [after - before for before, after in zip(sorted(asked), sorted(asked)[1:], strict=False)]
    assert 3 <= len(asked) <= 10
    assert min(pauses) >= 20 * MILLISECOND_NS
    assert pauses[-1] > 2 * pauses[0], "the longer it was in vain, the rarer"


def test_an_answer_on_its_way_is_not_given_twice() -> None:
    lan = Lan("abcdefg")
    missing_once(lan, "g", "a")
    lan.admit("a")
    lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(2))
    assert len(lan.sent(Remulticast)) <= 2, "the sender is quickest, and the others hear it"


def test_after_dummy_cycle_the_order_goes_on_without_a_body_that_all_lack() -> None:
    lan = Lan("abcd")
    lan.admit("a")
    lan.wait_for(lambda: lan.all_delivered(1))
    # Only d receives a1, of which the others hear; then both who have it are gone.
    lan.misses = lambda source, to, pdu: (
        to in "bc" and (isinstance(pdu, Remulticast) or (source == "a" and isinstance(pdu, Message)))
    )
    lan.admit("a")
    lan.admit("b")
    lan.wait_for(lambda: all(lan.members[name].figures()["lost_bodies"] == 1 for name in "bc"))
    lan.crash("a")
    lan.crash("d")
    lan.wait_for(lambda: all(lan.of(name, Unavailable) for name in "bc"))
    for name in "bc":
        assert lan.delivered(name) == ["a0", "b0"]
        assert [doubt.reason for doubt in lan.of(name, Unavailable)] == [
            "No present member has the message at this place in the order."
        ]
        assert lan.members[name].figures()["dummies"] == 1
        assert not lan.of(name, Absent)


def test_nobody_is_left_who_could_tell_whether_a_body_was_delivered() -> None:
    lan = Lan("abc")
    lan.misses = lambda _, to, pdu: to == "c" and isinstance(pdu, Message | Remulticast) and pdu.number == 1
    for _ in range(3):
        lan.admit("a")
    lan.wait_for(lambda: lan.members["c"].figures()["lost_bodies"] == 1)
    lan.crash("a")
    lan.crash("b")
    lan.wait_for(lambda: bool(lan.of("c", Present)))
    assert lan.of("c", Absent), "what it goes on without may have been delivered by those who are gone"
    lan.admit("c")
    lan.wait_for(lambda: lan.delivered("c") == ["a0", "c0"])


def test_whoever_alone_lacks_a_body_ends_its_spell_instead() -> None:
    """As a slow reader does that refuses bodies for longer than Dummy_Cycle: a dummy would be a hole."""
    lan = Lan("abc")
    lan.misses = lambda _, to, pdu: to == "c" and isinstance(pdu, Message | Remulticast) and pdu.number == 1
    for _ in range(3):
        lan.admit("a")
    lan.wait_for(lambda: bool(lan.of("c", Present)))
    lan.admit("b")
    lan.wait_for(lambda: "b0" in lan.delivered("c"))
    assert not lan.of("c", Unavailable)
    assert [kind for kind in map(type, lan.effects["c"]) if kind in (Absent, Present)] == [Absent, Present]
    assert lan.delivered("c") == ["a0", "b0"], "the spell before ends where the body is missing"


def test_a_body_that_others_no_longer_keep_ends_the_spell_instead() -> None:
    """Item 8: how long bodies are kept can't depend on who is there; a dummy would be a hole of its own."""
    lan = Lan("abc", remove_cycle_ns=50 * MILLISECOND_NS, dummy_cycle_ns=5_000 * MILLISECOND_NS)
    lan.misses = lambda source, to, pdu: (
        (to == "c" and is_about(pdu, Message, Remulticast, Request))
        or (source == "c" and is_about(pdu, Report, Request))
    )
    for _ in range(3):
        lan.admit("a")
        lan.admit("b")
    lan.pass_time(800)
    assert len(lan.delivered("a")) == len(lan.delivered("b")) == 6
    lan.misses = lambda _source, _target, _pdu: False
    lan.wait_for(lambda: bool(lan.of("c", Present)))
    assert lan.of("c", Absent), "it said that it has missed something"
    lan.admit("a")
    lan.wait_for(lambda: "a3" in lan.delivered("c"))
    assert lan.delivered("c") == ["a3"]
    assert not lan.of("c", Unavailable)


# Ordering buffers and flow control


def test_a_predecessor_seizes_the_buffer_of_a_successor_which_is_lost_instead() -> None:
    lan = Lan("abc", ordering_buffers=2)
    missing_once(lan, "c", "a")
    lan.admit("a")
    for _ in range(2):
        lan.admit("b")
    lan.settle()
    c = lan.members["c"]
    assert c.figures()["ordering_buffers"] == 2
    assert lan.delivered("c") == [], "a0 belongs before both, and there is no room for it"
    lan.wait_for(lambda: lan.all_delivered(3))
    assert lan.agreed() == ["a0", "b0", "b1"]
    assert c.figures()["overflows"] >= 1
    arrivals = [(effect.sender, effect.number) for effect in lan.of("c", Arrived)]
    assert arrivals.count(("b", 1)) == 2, "b1 gave way and came again"


def test_an_overflow_slows_all_senders_and_then_comes_down() -> None:
    lan = Lan("abc", ordering_buffers=2, delta_ns=20 * MILLISECOND_NS, fc_cycle_ns=100 * MILLISECOND_NS)
    missing_once(lan, "c", "a")
    lan.admit("a")
    for _ in range(4):
        lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(5))
    assert any(report.demand_ns >= 20 * MILLISECOND_NS for report in lan.sent(Report, "c"))
    before = len(lan.sent(Message))
    for _ in range(3):
        lan.admit("a")
    lan.settle()
    assert len(lan.sent(Message)) - before < 3, "a leaves pauses although nothing overflowed there"
    lan.wait_for(lambda: lan.all_delivered(8))
    lan.pass_time(2_000)
    assert lan.members["c"].figures()["message_cycle_ns"] == 0
    before = len(lan.sent(Message))
    for _ in range(3):
        lan.admit("a")
    lan.settle()
    assert len(lan.sent(Message)) - before == 3, "and does so no longer"


# Reports


def test_one_report_a_cycle_serves_a_group_of_any_size() -> None:
    counts = {}
    for sites in ("abc", "abcdefghijkl"):
        lan = Lan(sites)
        lan.pass_time(5_000)
        counts[sites] = len(lan.sent(Report))
    assert counts["abcdefghijkl"] < 2 * counts["abc"]


def strangers_report(**fields: Any) -> Report:
    """A stranger's report that tells these things alone."""
    told: dict[str, Any] = {
        "incarnation": 0, "serial": 0, "clock_ns": 0, "index": 0, "digest": 0, "agreed": b"", "links": b"",
        "vertices": b"", "arcs": b"", "lost": b"", "demand_ns": 0, "listening": False, "streams": {},
        "service": b"",
    }  # fmt: skip
    return Report(**(told | fields))


def test_the_first_message_after_an_idle_stretch_is_reported_soon() -> None:
    lan = Lan("abc")
    lan.pass_time(3_000)
    begun_ns = lan.now
    lan.admit("a")
    lan.settle()
    lan.wait_for(lambda: lan.all_delivered(1))
    assert lan.now - begun_ns < 5 * HEARTBEAT_MS * MILLISECOND_NS, "not an idle pause later"


# Suspended Delivery


def run_at_random(seed: int, **knobs: Any) -> Lan:
    """Five members send in bursts while they miss a part of what is sent."""
    lan = Lan("abcde", seed=seed, **knobs)
    chance = Lan("a", seed=seed + 1000).members["a"].random
    lan.misses = lambda _source, _target, _pdu: chance.random() < 0.08
    for _ in range(25):
        for name in chance.sample(lan.names, 3):
            lan.admit(name)
        lan.pass_time(chance.choice([0.0, 1.0, 8.0]))
    lan.wait_for(lambda: lan.all_delivered(75))
    return lan


def test_no_report_tells_a_mark_that_is_not_true() -> None:
    marks = 0
    for seed in range(8):
        lan = run_at_random(seed)
        assert false_marks(lan) == []
        marks += len(lan.told_marks())
    assert marks > 300


def test_marks_are_found_across_own_messages_only_with_suspended_delivery() -> None:
    """Two members that take turns: a member that hears the other again has sent in between."""

    def marks(**knobs: Any) -> int:
        lan = Lan("abc", **knobs)
        lan.misses = lambda _source, to, pdu: to == "c" and isinstance(pdu, Message)
        for _ in range(6):
            for name in "ab":
                lan.admit(name)
                lan.pass_time(2)
        lan.wait_for(lambda: lan.all_delivered(12))
        assert false_marks(lan) == []
        return len(lan.told_marks())

    assert marks(suspended_delivery=True) > marks(suspended_delivery=False)


# Presence


def test_who_returns_delivers_a_segment_of_the_order_and_nothing_twice() -> None:
    lan = Lan("abcd")
    for step in range(60):
        lan.admit(lan.names[step % 3])
        lan.pass_time(4)
        if step == 15:
            lan.depart("d")
        if step == 35:
            lan.come_back("d")
    lan.wait_for(lambda: all(len(lan.delivered(name)) == 60 for name in "abc"))
    lan.wait_for(lambda: lan.delivered("d")[-1:] == lan.delivered("a")[-1:])
    whole = lan.delivered("a")
    assert lan.delivered("b") == lan.delivered("c") == whole
    log = lan.of("d", (Deliver, Absent))  # type: ignore[arg-type]
    cut = next(place for place, effect in enumerate(log) if isinstance(effect, Absent))
    first, second = lan.delivered("d")[:cut], lan.delivered("d")[cut:]
    assert first == whole[: len(first)]
    assert second == whole[whole.index(second[0]) :]
    assert len(first) + len(second) < 60, "something happened while it was away"
    assert not lan.doubts()


def test_who_returns_hands_over_anew_what_nobody_heard() -> None:
    lan = Lan("abc")
    lan.misses = lambda source, _target, pdu: source == "a" and isinstance(pdu, Message)
    lan.admit("a")
    lan.admit("a")
    lan.settle()
    lan.depart("a")
    lan.misses = lambda _source, _target, _pdu: False
    lan.admit("b")
    lan.pass_time(500)
    lan.come_back("a")
    lan.admit("a")
    lan.wait_for(lambda: all(lan.delivered(name)[-1:] == ["a2"] for name in "abc"))
    assert lan.delivered("b") == lan.delivered("c") == ["b0", "a0", "a1", "a2"]
    assert lan.delivered("a") == ["a0", "a1", "a2"]


def test_who_returns_gets_in_although_nobody_reports_what_it_hears() -> None:
    """Of a lone sender's messages no report tells; that they lie after its root they tell themselves."""
    lan = Lan("ab", locate_cycle_ns=5_000 * MILLISECOND_NS)
    lan.admit("a")
    lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(2))
    lan.depart("b")
    lan.come_back("b")
    before = len(lan.sent(Report, "a"))
    while not lan.of("b", Present):
        lan.admit("a")
        lan.pass_time(10)
    assert len(lan.sent(Report, "a")) - before <= lan.knobs.listen_reports + 1, "the first that will do"
    sent = lan.admitted["a"] - 1
    lan.wait_for(lambda: lan.delivered("b")[-1:] == [f"a{sent}"])
    assert lan.delivered("b")[2:] == [f"a{number}" for number in range(1, sent + 1)]


def gone_with_a_gap(lan: Lan) -> None:
    """No member hears the first of a's messages, and all hear the second; then a is away."""
    lan.misses = lambda source, _target, pdu: (
        source == "a" and (is_about(pdu, Report) or (isinstance(pdu, Message) and pdu.number == 0))
    )
    lan.admit("a")
    lan.admit("a")
    lan.settle()
    lan.depart("a")
    lan.misses = lambda _source, _target, _pdu: False


def test_who_returns_puts_what_nobody_heard_before_what_the_others_have() -> None:
    """Handed over again it would come behind its successor, and no member could deliver it any more."""
    lan = Lan("abc", service=Unordered, deliv_cycle_ns=2_000 * MILLISECOND_NS)
    gone_with_a_gap(lan)
    lan.come_back("a")
    lan.wait_for(lambda: lan.all_delivered(2))
    assert lan.agreed() == ["a0", "a1"]
    assert not lan.doubts()


def test_who_returns_is_told_what_the_others_passed_over() -> None:
    lan = Lan("abc", service=Unordered)
    gone_with_a_gap(lan)
    lan.wait_for(lambda: lan.all_delivered(1))
    lan.come_back("a")
    lan.admit("a")
    lan.wait_for(lambda: lan.delivered("a") == ["a2"])
    assert lan.delivered("b") == lan.delivered("c") == ["a1", "a2"]
    assert [(doubt.sender, doubt.number) for doubt in lan.doubts()] == [("a", 0)]


def test_who_returns_is_asked_at_once_for_what_was_asked_for_in_vain() -> None:
    """And still has it: no member could report it while it was away."""
    lan = Lan("ab", dummy_cycle_ns=9_000 * MILLISECOND_NS, remove_cycle_ns=500 * MILLISECOND_NS)
    lan.misses = lambda _source, to, pdu: (
        to == "b" and (is_about(pdu, Remulticast) or (isinstance(pdu, Message) and pdu.number == 0))
    )
    lan.admit("a")
    lan.admit("a")
    lan.wait_for(lambda: lan.delivered("a") == ["a0", "a1"])
    lan.depart("a")
    lan.misses = lambda _source, _target, _pdu: False
    lan.pass_time(1_000)

    def requests() -> int:
        return len(lan.sent(Request, "b")) + sum(bool(report.lost) for report in lan.sent(Report, "b"))

    before = requests()
    lan.wait_for(lambda: requests() > before)
    lan.come_back("a")
    lan.pass_time(100)  # far less than the pause that b has come to make
    assert lan.delivered("b") == ["a0", "a1"]


def test_what_a_returning_member_knows_from_reports_precedes_what_it_sends() -> None:
    lan = Lan("ab")
    lan.admit("a")
    lan.wait_for(lambda: lan.all_delivered(1))
    lan.depart("b")
    lan.admit("a")
    lan.wait_for(lambda: len(lan.delivered("a")) == 2)
    lan.come_back("b")
    lan.wait_for(lambda: bool(lan.of("b", Present)))
    lan.admit("b")
    lan.settle()
    (sent,) = lan.sent(Message, "b")
    assert sent.seen == lan.sent(Message, "a")[-1].tag


def test_nobody_tells_how_far_it_has_come_with_each_sender_while_a_body_is_lacking() -> None:
    """A listener would take up a root beyond what these numbers say, and deliver something again."""
    lan = Lan("abc", dummy_cycle_ns=9_000 * MILLISECOND_NS)
    lan.admit("a")
    lan.wait_for(lambda: lan.all_delivered(1))
    lan.misses = lambda _source, to, pdu: to == "c" and is_about(pdu, Message, Remulticast)
    lan.admit("a")
    lan.wait_for(lambda: bool(lan.members["c"]._order.queue))
    before = len(lan.sent(Report, "c"))
    lan.depart("b")
    lan.come_back("b")
    lan.wait_for(lambda: bool(lan.of("b", Present)))
    told = lan.sent(Report, "c")[before:]
    assert told
    assert not any(report.streams for report in told)
    lan.misses = lambda _source, _target, _pdu: False
    lan.wait_for(lambda: lan.delivered("c") == ["a0", "a1"])


def test_what_had_a_place_but_was_not_delivered_may_come_in_the_next_spell() -> None:
    lan = Lan("abcd", deliv_cycle_ns=1_000 * MILLISECOND_NS, dummy_cycle_ns=9_000 * MILLISECOND_NS)
    # d alone hears both messages, c alone hears d: so c knows their order, and has no bodies.
    lan.misses = lambda source, to, pdu: (
        (to == "c" and is_about(pdu, Message, Remulticast))
        or (source == "d" and to != "c")
        or (source == "c" and is_about(pdu, Report))
    )
    lan.admit("a")
    lan.admit("b")
    lan.wait_for(lambda: len(lan.members["c"]._order.queue) == 2)
    lan.depart("c")
    lan.crash("d")
    lan.misses = lambda _source, _target, _pdu: False
    lan.come_back("c")
    lan.wait_for(lambda: lan.all_delivered(2))
    assert sorted(lan.agreed()) == ["a0", "b0"]


def test_who_restarts_without_memory_takes_up_the_order_and_numbers_on() -> None:
    lan = Lan("abc")
    for name in "abc":
        lan.admit(name)
    lan.wait_for(lambda: lan.all_delivered(3))
    lan.crash("c")
    lan.admit("a")
    lan.wait_for(lambda: lan.all_delivered(4))
    lan.restart("c")
    lan.admit("c")
    lan.wait_for(lambda: all(lan.delivered(name)[-1:] == ["c1"] for name in "abc"))
    assert lan.delivered("c")[3:] == ["c1"]
    assert not lan.doubts()


def test_a_member_alone_delivers_its_own_messages() -> None:
    lan = Lan("a")
    lan.admit("a")
    lan.admit("a")
    lan.wait_for(lambda: lan.all_delivered(2))
    assert lan.agreed() == ["a0", "a1"]


def test_whoever_stood_still_for_long_begins_a_new_spell() -> None:
    lan = Lan("abc")
    lan.admit("a")
    lan.wait_for(lambda: lan.all_delivered(1))
    timers = {key: time for key, time in lan.timers.items() if key[0] == "c"}
    lan.away.add("c")  # stopped, not gone: it is not told
    lan.timers = {key: time for key, time in lan.timers.items() if key[0] != "c"}
    lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(2))
    lan.pass_time(2_000)
    lan.away.discard("c")
    lan.timers |= timers
    lan.wait_for(lambda: bool(lan.of("c", Present)))
    assert len(lan.of("c", Absent)) == 1
    lan.admit("a")
    lan.wait_for(lambda: lan.delivered("c")[-1:] == ["a1"])
    assert lan.delivered("c") == ["a0", "a1"]


# Own messages


def test_an_own_message_that_everyone_missed_is_reported_by_its_sender() -> None:
    lan = Lan("abc")
    lan.misses = lambda source, _target, pdu: source == "a" and isinstance(pdu, Message) and pdu.number == 0
    lan.admit("a")
    lan.wait_for(lambda: lan.all_delivered(1))
    assert lan.agreed() == ["a0"]
    assert len(lan.tags()) == 1, "under its own tag, as a copy"


def test_several_that_everyone_missed_keep_their_order_before_one_that_was_heard() -> None:
    lan = Lan("abc")
    lan.misses = lambda source, _target, pdu: source == "a" and isinstance(pdu, Message) and pdu.number < 3
    for _ in range(4):
        lan.admit("a")
    lan.wait_for(lambda: lan.all_delivered(4))
    assert lan.agreed() == ["a0", "a1", "a2", "a3"]
    assert not lan.doubts()


def test_two_messages_under_one_tag_are_both_delivered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "Tags", ChosenTags(5, 5))
    lan = Lan("abc")
    lan.admit("a")
    lan.admit("b")
    lan.wait_for(lambda: lan.all_delivered(2))
    assert sorted(lan.agreed()) == ["a0", "b0"]
    assert sum(member.collisions for member in lan.members.values()) >= 2
    assert len(set(lan.tags())) > 1, "a new tag was chosen"


# Doubts


def without_the_second_and_reports(source: str, target: str, pdu: Pdu) -> bool:
    """What b misses: d's message, and everything by which it could learn of it; nor is it heard itself."""
    tells = is_about(pdu, Report, Remulticast, Request)
    return (target == "b" and (tells or (source == "d" and isinstance(pdu, Message)))) or (
        source == "b" and tells
    )


def test_orders_that_went_apart_are_found_and_the_first_difference_is_named() -> None:
    """Item 11: b misses the second message, and all reports for longer than Deliv_Cycle."""
    lan = Lan("abcd")
    lan.misses = without_the_second_and_reports
    for name in ("c", "d", "c", "c"):
        lan.admit(name)
        lan.settle()
    lan.pass_time(700)
    assert lan.delivered("a") == ["c0", "d0", "c1", "c2"]
    assert lan.delivered("b") == ["c0", "c1", "c2"]
    assert not lan.doubts()
    lan.misses = lambda _source, _target, _pdu: False
    lan.admit("c")
    lan.wait_for(lambda: all("c3" in lan.delivered(name) for name in "abcd"))
    lan.pass_time(300)
    assert lan.delivered("b") == ["c0", "c1", "c2", "c3"], "order is kept, atomicity is not"
    disagreed = lan.of("b", Disagreed) + lan.of("a", Disagreed)
    assert ("d", 0) in {(doubt.sender, doubt.number) for doubt in disagreed}


def test_a_message_that_comes_too_late_for_its_place_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "Tags", ChosenTags())
    lan = Lan("b")
    lan.give("b", Received("c", message(5)))
    lan.give("b", Received("c", message(9, number=1, previous=5), after_loss=True))
    lan.wait_for(lambda: lan.delivered("b") == ["c0", "c1"])
    told = {"vertices": pack_tags([7]), "arcs": pack_arcs([(5, 7, False), (7, 9, False)])}
    lan.give("b", Received("c", strangers_report(**told)))
    assert [doubt.reason for doubt in lan.of("b", Unavailable)] == [
        "A message became known only after others that it precedes had been delivered."
    ]
    lan.give("b", Received("d", message(7)))
    lan.pass_time(1_000)
    assert lan.delivered("b") == ["c0", "c1"], "order is kept, atomicity is not"


def test_who_returns_finds_that_the_others_have_another_order() -> None:
    lan = Lan("abcd")
    lan.misses = without_the_second_and_reports
    for name in ("c", "d", "c", "c"):
        lan.admit(name)
        lan.settle()
    lan.pass_time(700)
    lan.depart("b")
    lan.misses = lambda _source, _target, _pdu: False
    lan.come_back("b")
    lan.wait_for(lambda: bool(lan.of("b", Present)))
    assert lan.of("b", Disagreed)


def test_members_whose_orders_are_one_never_disagree() -> None:
    for seed in range(4):
        assert not run_at_random(seed).doubts()


def test_what_only_the_leaving_member_knows_is_told_before_it_goes() -> None:
    lan = Lan("abc")
    lan.admit("a")
    lan.admit("b")
    lan.settle()
    lan.depart("c")  # it alone has heard both
    lan.settle()
    assert lan.delivered("a") == lan.delivered("b") == ["a0", "b0"]


# Determinism


def test_equal_seeds_make_equal_runs() -> None:
    one, other = run_at_random(5), run_at_random(5)
    assert one.transmitted == other.transmitted
    assert one.effects == other.effects
