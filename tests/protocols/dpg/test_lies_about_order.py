"""A liar in a Distributed Precedence Graph group, on touch, orders, room and pace: it does not outlast."""

from collections.abc import Callable
from random import Random

import pytest

from antiphon.core.effects import Absent, Vanished
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.protocols.dpg import Dpg, DpgConfiguration
from antiphon.protocols.dpg.continuity import MEMORY_NS, PATIENCE_NS, Continuity, Relation
from antiphon.protocols.dpg.continuity import MOST_SITES as MOST_REPORTERS
from antiphon.protocols.dpg.member import BEGINS_AGAIN
from antiphon.protocols.dpg.pdus import LARGEST, MOST_ASKED, Report
from antiphon.protocols.dpg.peers import Peers
from antiphon.protocols.dpg.reports import read
from antiphon.protocols.dpg.services import SERVICES
from antiphon.protocols.dpg.spells import LONGEST_LEAP as LONGEST_ORDER_LEAP
from antiphon.protocols.dpg.spells import MOST_APART, MOST_WINDOWS, PATIENCE, Listening, State, Window
from antiphon.protocols.dpg.tag_lists import pack_tags
from tests.protocols.dpg.lying import EMPTY, changed, report
from tests.protocols.harness.dpg_group import Lan, message

MS = MILLISECOND_NS


# Losing touch


def test_two_reports_of_a_liar_end_no_spell_where_others_follow() -> None:
    lan = Lan("abc")
    for name in "abcabc":
        lan.admit(name)
        lan.pass_time(30)
    lan.pass_time(600)
    tags = [lan.members["a"]._tags.choose(lambda _tag: False) for _ in range(4)]
    for _ in range(6):
        lan.give("a", Received("x", report(tags, index=5000)))
    assert not lan.of("a", Absent)


SETTLING_NS = 200 * MS


def touched(*words: tuple[int, str, bool]) -> Continuity:
    touch = Continuity("a", SETTLING_NS)
    for time_ms, sender, behind in words:
        touch.on_report(time_ms * MS, sender, Relation.BEYOND if behind else Relation.FOLLOWS)
    return touch


def test_touch_is_lost_when_most_say_so_or_a_few_for_long() -> None:
    alone = touched((0, "b", True))
    assert not alone.is_lost(0), "one report says little"
    alone.on_report(MS, "b", Relation.BEYOND)
    assert alone.is_lost(MS)
    half = touched((0, "c", False), (1, "b", True), (2, "b", True))
    assert not half.is_lost(2 * MS)
    half.on_report(3 * MS, "d", Relation.BEYOND)
    assert half.is_lost(3 * MS)
    half.on_report(4 * MS, "d", Relation.FOLLOWS)
    assert not half.is_lost(4 * MS)
    half.on_report(PATIENCE_NS, "c", Relation.FOLLOWS)
    half.on_report(PATIENCE_NS, "b", Relation.BEYOND)
    assert not half.is_lost(PATIENCE_NS + MS)
    assert half.is_lost(PATIENCE_NS + MS + 1)
    half.on_report(PATIENCE_NS + 2 * MS, "b", Relation.FOLLOWS)
    assert not half.is_lost(PATIENCE_NS + 2 * MS), "it has taken that back"
    half.on_report(PATIENCE_NS + 3 * MS, "b", Relation.BEYOND)
    assert not half.is_lost(PATIENCE_NS + 3 * MS), "and begins anew"


def test_who_has_fallen_silent_is_no_witness() -> None:
    touch = touched((0, "c", False), (0, "d", False))
    for _ in range(2):
        touch.on_report(MEMORY_NS + 1, "b", Relation.BEYOND)
    assert touch.is_lost(MEMORY_NS + 1)
    late = touched((0, "c", False), (0, "d", False))
    for _ in range(2):
        late.on_report(MEMORY_NS, "b", Relation.BEYOND)
    assert not late.is_lost(MEMORY_NS)
    gone = touched((0, "b", True), (0, "b", True))
    assert gone.is_lost(MEMORY_NS)
    assert not gone.is_lost(3 * MEMORY_NS)
    gone.on_report(MEMORY_NS + 1, "c", Relation.FOLLOWS)
    assert not gone.is_lost(3 * MEMORY_NS)


@pytest.mark.parametrize(
    ("ours", "forked", "yields"),
    [("ab", "c", False), ("a", "bc", True), ("ab", "cd", False), ("ad", "bc", False), ("bd", "ac", True)],
)
def test_the_smaller_side_of_a_fork_yields_and_of_equal_sides_the_later_by_name(
    ours: str, forked: str, yields: bool
) -> None:
    side = Continuity(ours[0], SETTLING_NS)
    for now in (0, SETTLING_NS // 2, SETTLING_NS):
        for name in forked:
            side.on_report(now, name, Relation.FORKED)
        for name in ours[1:]:
            side.on_report(now, name, Relation.FOLLOWS)
        assert side.is_lost(now) is (yields and now == SETTLING_NS), "all are counted first"
    assert side.is_lost(PATIENCE_NS + 1) is yields, "a minority's order is not taken up after a while"


def test_what_was_reported_before_the_network_was_split_counts_for_no_side() -> None:
    """Only its first member is heard of a side, and the other side's latest reports are old."""
    for silent_ns, yields in ((SETTLING_NS, False), (SETTLING_NS + 1, True)):
        side = Continuity("c", SETTLING_NS)
        side.on_report(0, "a", Relation.FOLLOWS)
        side.on_report(silent_ns, "b", Relation.FORKED)
        side.on_report(silent_ns + SETTLING_NS, "b", Relation.FORKED)
        assert side.is_lost(silent_ns + SETTLING_NS) is yields


def test_a_fork_is_counted_for_as_long_again_as_it_settles() -> None:
    side = Continuity("a", SETTLING_NS)
    assert not side.is_undecided(0)
    side.on_report(0, "b", Relation.FORKED)
    assert side.is_undecided(2 * SETTLING_NS - 1)
    assert not side.is_undecided(2 * SETTLING_NS)


def test_witnesses_are_bounded() -> None:
    touch = Continuity("a", SETTLING_NS)
    for index in range(MOST_REPORTERS + 5):
        touch.on_report(0, f"x{index}", Relation.FOLLOWS)
    assert len(touch._relations) == MOST_REPORTERS


# Listening


def listened(lan: Lan) -> tuple[Listening, Callable[..., bool]]:
    member = lan.members["a"]
    knobs = DpgConfiguration(listen_reports=1)
    listening = Listening(knobs, -knobs.report_cycle_ns)

    def hear(sender: str, tags: list[int], index: int | None = None, now: int = 0) -> bool:
        told = report(tags, index, streams={"z": (0, 0)})
        lists = read(told)
        assert lists is not None
        return listening.hear(member._order, now, sender, told, lists)

    return listening, hear


def test_an_order_that_nobody_else_bears_out_is_taken_up_only_after_a_while() -> None:
    _, hear = listened(Lan("ab"))
    assert hear("b", [1, 2, 3]), "there is no other"
    assert not hear("x", [7, 8, 9])
    assert hear("b", [3, 4], index=4) is False, "nor is the other one's, now"
    _, hear = listened(Lan("ab"))
    hear("b", [1, 2, 3])
    waited = [hear("x", [7, 8, 9]) for _ in range(PATIENCE)]
    assert waited[0] is False
    assert waited[-1] is True
    listening, hear = listened(Lan("ab"))
    hear("c", [1, 2, 3])
    assert hear("b", [3, 4], index=4), "both tell of 3"
    assert not any(hear("x", [7, 8, 9]) for _ in range(3 * PATIENCE)), "more members have the other order"
    assert hear("x", [7, 8, 9], now=listening._configuration.listen_ns), "until they are silent"


def test_one_that_reports_faster_than_a_group_does_is_not_taken_for_the_group() -> None:
    listening, hear = listened(Lan("ab"))
    early = -listening._configuration.report_cycle_ns
    assert not any(hear("x", [7, 8, 9], now=now) for now in (early, early + 1, -1))
    assert hear("x", [7, 8, 9], now=0)
    _, hear = listened(Lan("ab"))
    assert not hear("x", [1, 2, 3], now=early)
    assert hear("b", [1, 2, 3], now=early + 1), "another bears it out"


def test_an_order_far_from_all_others_waits_until_they_are_silent() -> None:
    listening, hear = listened(Lan("ab"))
    hear("b", [1, 2, 3])
    far = 3 + LONGEST_ORDER_LEAP + 1
    assert not any(hear("x", [7, 8], index=far) for _ in range(3 * PATIENCE))
    assert hear("x", [7, 8], index=far - 1)
    silent_ns = listening._configuration.listen_ns
    assert not hear("x", [7, 8], index=far, now=silent_ns - 1)
    assert hear("x", [7, 8], index=far, now=silent_ns)


def test_no_order_is_taken_up_that_leaves_no_room_to_count_on() -> None:
    _, hear = listened(Lan("ab"))
    assert not any(hear("x", [7, 8], index=NUMBER_LIMIT // 2) for _ in range(3 * PATIENCE))
    assert hear("x", [7, 8], index=NUMBER_LIMIT // 2 - 1)


def test_two_orders_bear_one_another_out_where_a_message_has_about_the_same_place() -> None:
    window = Window(0, 2_000, (5, 6))
    assert window.confirms(2_000 + MOST_APART, (6,))
    assert not window.confirms(2_001 + MOST_APART, (6,))
    assert not window.confirms(2_000, (7,))
    assert not window.confirms(2_000, ())
    assert Window(0, 0, ()).confirms(0, ())
    assert not Window(0, 0, ()).confirms(1, (6,))
    assert window.is_near(2_000 + LONGEST_ORDER_LEAP)
    assert not window.is_near(2_001 + LONGEST_ORDER_LEAP)


def test_reporters_are_remembered_up_to_a_limit_while_listening() -> None:
    listening, hear = listened(Lan("ab"))
    for index in range(MOST_WINDOWS + 5):
        hear(f"x{index}", [1])
    assert len(listening._windows) == MOST_WINDOWS


@pytest.mark.parametrize("messages", [0, 1])
def test_who_takes_up_an_order_has_missed_what_is_in_it(messages: int) -> None:
    lan = Lan("abc")
    lan.crash("c")
    for _ in range(messages):
        lan.admit("a")
    lan.pass_time(100)
    lan.incarnations["c"] = 1
    lan.away.discard("c")
    lan._build("c")
    before = len(lan.of("c", Absent))
    lan.give("c", Start(1))
    lan.wait_for(lambda: lan.members["c"]._presence.state is State.PRESENT)
    assert len(lan.of("c", Absent)) == before + messages


def test_nobody_waits_for_one_that_begins_again() -> None:
    lan = Lan("abc")
    lan.admit("b")
    lan.pass_time(50)
    lan.give("a", Received("b", changed(EMPTY, listening=True)))
    assert [effect.reason for effect in lan.of("a", Vanished)] == [BEGINS_AGAIN]
    assert "b" not in lan.members["a"]._peers.sites()


# Room


def test_invented_tags_leave_half_of_the_graph_to_messages() -> None:
    member = Dpg("a", DpgConfiguration(graph_limit=8), SERVICES["sequencer"](), Random(1))
    member.handle(0, Start())
    tags = [member._tags.choose(lambda _tag: False) for _ in range(20)]
    member.handle(1, Received("x", changed(EMPTY, vertices=pack_tags(tags))))
    order = member._order
    assert len(order.graph) == len(order.lost) == 4
    order.store("b", message(tags[-1]))
    assert order.add(1, tags[-1])


def test_bodies_without_a_place_leave_their_buffers() -> None:
    lan = Lan("ab", ordering_buffers=8)
    order = lan.members["a"]._order
    dummy_ns, deliv_ns = lan.knobs.dummy_cycle_ns, lan.knobs.deliv_cycle_ns
    order.store("b", message(1))
    order.sweep(dummy_ns - 1)
    assert not order._without_place, "it is too early to look"
    order.sweep(dummy_ns)
    assert 1 in order.buffers
    order.store("b", message(2))
    order.store("b", message(3))
    order.add(0, 3)
    order.sweep(2 * dummy_ns)
    assert set(order.buffers) == {2, 3}
    for tag in range(10, 13):
        order.store("b", message(tag))
    order.sweep(2 * dummy_ns + deliv_ns - 1)
    assert 2 in order.buffers
    order.sweep(2 * dummy_ns + deliv_ns)
    assert set(order.buffers) == {3, 10, 11, 12}, "buffers are scarce: it looks sooner"
    order.sweep(2 * dummy_ns + 2 * deliv_ns)
    assert len(order.buffers) == 4, "they are not any more"


def test_a_flood_of_bodies_without_a_place_ends_with_the_liar() -> None:
    """Their stamps are too far ahead for the service to order them."""
    members = {name: Dpg(name, DpgConfiguration(), SERVICES["bounded-delay"](), Random(1)) for name in "ab"}
    member = members["a"]
    member.handle(0, Start())
    for number in range(2 * DpgConfiguration().ordering_buffers):
        tag = member._tags.choose(lambda _tag: False)
        member.handle(0, Received("x", message(tag, number=number, stamp=LARGEST - 1)))
    assert len(member._order.buffers) == DpgConfiguration().ordering_buffers
    for step in range(1, 12):
        member.handle(step * 100 * MS, TimerFired("report"))
    assert not member._order.buffers


def test_a_body_is_waited_for_since_it_was_first_lacking() -> None:
    lan = Lan("ab")
    order = lan.members["a"]._order
    order.add(100, 7)
    order.incorporate(250, 7)
    order.store("b", message(8))
    order.add(100, 8)
    order.incorporate(250, 8)
    assert [(queued.tag, queued.since_ns) for queued in order.queue] == [(7, 100), (8, 250)]


def asking_for(lan: Lan, name: str, tag: int) -> Dpg:
    """A member whose order has come to a message that no member has."""
    member = lan.members[name]
    order = member._order
    order.add(lan.now, tag)
    order.incorporate(lan.now, tag)
    return member


def test_what_another_has_passed_over_is_not_waited_for_longer_than_what_it_lacks() -> None:
    lan = Lan("ab")
    lan.pass_time(50)
    recovery = asking_for(lan, "a", 7)._recovery
    lan.members["b"]._order.exclude(7, 0)
    assert not recovery.may_pass(lan.now, 7)
    lan.pass_time(100)
    assert {report.passed for report in lan.sent(Report)} == {b"", pack_tags([7])}
    assert recovery.lacking(lan.now, 7) == {"b"}
    assert recovery.may_pass(lan.now, 7)
    recovery.on_passed(lan.now, "b", (9,))
    assert not recovery.lacking(lan.now, 9), "it is not lacking here"


def test_only_what_was_passed_over_is_told_to_be_and_not_too_much_of_it() -> None:
    lan = Lan("ab")
    member = lan.members["b"]
    tags = tuple(range(1, MOST_ASKED + 2))
    for tag in tags:
        member._order.exclude(tag, 0)
    assert not member._recovery.has_gone()
    member._recovery.on_request(0, 0, "a", (MOST_ASKED + 2,))
    assert not member._recovery.has_gone(), "it was never heard of"
    member._recovery.on_request(0, 0, "a", tags)
    assert member._recovery.has_gone()
    assert member._recovery.passed() == list(tags[:MOST_ASKED])
    assert not member._recovery.has_gone()


# Pace


def test_who_is_heard_but_does_not_get_on_is_waited_for_only_so_long() -> None:
    peers = Peers(50 * MS, SECOND_NS, busy=5, emit=lambda _: None)
    peers.on_progress(0, "x", 3, 3)
    peers.on_progress(0, "b", 400, 400)
    for now in (SECOND_NS, SECOND_NS + 1):
        peers.on_progress(now, "x", 2, 400)
        peers.on_progress(now, "x", 3, 400)
        peers.on_progress(now, "b", 400, 400)
        assert peers.is_any_behind(now, 400, 256) == (now == SECOND_NS)
    peers.on_progress(SECOND_NS + 2, "x", 4, 400)
    assert peers.is_any_behind(SECOND_NS + 2, 400, 256), "it gets on again"


def test_who_has_vanished_demands_nothing() -> None:
    lan = Lan("abc")
    flow = lan.members["a"]._flow
    lan.give("a", Received("x", changed(EMPTY, demand_ns=SECOND_NS, listening=True)))
    assert flow.cycle_ns(lan.now) == 0, "a listener does not deliver yet"
    lan.give("a", Received("x", changed(EMPTY, demand_ns=SECOND_NS)))
    assert 0 < flow.cycle_ns(lan.now) < SECOND_NS // 10, "one report is not believed to leap so far"
    lan.wait_for(lambda: "x" not in lan.members["a"]._peers.sites())
    assert flow.cycle_ns(lan.now) == 0
    flow.forget(lan.now, "x")


def test_arcs_into_agreed_messages_are_remembered_as_long_as_reports_tell_of_them() -> None:
    order = Lan("ab", history=3).members["a"]._order
    for tag in range(1, 6):
        order._place(0, tag, 1, [(100 + tag, False)])
        assert len(order.past) == min(tag, 3)
    assert list(order.past) == [3, 4, 5]
