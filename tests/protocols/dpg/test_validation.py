"""What a member makes of another's PDUs: each case fails if one comparison of it is turned around."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from antiphon.core.effects import Absent, Deliver, Disagreed, Effect, Multicast, Send
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit, Received, Start, TimerFired
from antiphon.core.time import MILLISECOND_NS
from antiphon.protocols.dpg import Dpg, DpgConfiguration
from antiphon.protocols.dpg.agreement import Agreement
from antiphon.protocols.dpg.channel import Channel
from antiphon.protocols.dpg.continuity import BEHIND
from antiphon.protocols.dpg.order import MEMORY, TRUE_LINK, Order
from antiphon.protocols.dpg.pdus import (
    IDLE_CYCLES,
    MOST_ASKED,
    MOST_TAGS,
    ORIGIN,
    TAG_LIMIT,
    Arc,
    Message,
    Progress,
    Report,
    Request,
    Tag,
)
from antiphon.protocols.dpg.peers import MOST_SITES, Peers
from antiphon.protocols.dpg.report_merge import ReportMerge
from antiphon.protocols.dpg.reports import (
    Merged,
    ReportLists,
    _follow,
    _is_untold,
    _lacking,
    _run_to_root,
    graph_lists,
    merge,
    pack_arcs,
    read,
    tells_place,
)
from antiphon.protocols.dpg.services.lan import LanService
from antiphon.protocols.dpg.services.tag_sequencer import SequencerOptions, SequencerService
from antiphon.protocols.dpg.services.tag_sequencer.pdus import Answer, Ask, Numbered, TagRequest, read_tags
from antiphon.protocols.dpg.spells import PATIENCE, Listening, State, adopt, is_recent
from antiphon.protocols.dpg.tag_lists import pack_tags
from antiphon.protocols.dpg.validation import MOST_RECEIVED
from tests.protocols.harness.dpg_channel import FakeMember
from tests.protocols.harness.dpg_group import ChosenTags, Lan, an_order, message

MS = MILLISECOND_NS


def quiet(_effect: Effect) -> None:
    """What an order says is of no interest."""


def ignore_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number is a tag of the group."""
    monkeypatch.setattr("antiphon.protocols.dpg.member.Tags", ChosenTags())


def report(tags: list[Tag], index: int | None = None, **fields: Any) -> Report:
    told: dict[str, Any] = {
        "incarnation": 0, "serial": 1, "clock_ns": 0, "index": len(tags) if index is None else index,
        "digest": 0, "agreed": pack_tags(tags), "links": bytes(len(tags)), "vertices": b"", "arcs": b"",
        "lost": b"", "demand_ns": 0, "listening": False, "streams": {}, "service": b"",
    }  # fmt: skip
    return Report(**(told | fields))


def lists_of(told: Report) -> ReportLists:
    lists = read(told)
    assert lists is not None
    return lists


# Messages


def test_a_listening_member_does_not_slow_the_group_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of what it holds lies before its spell; a present one has an overflow to report."""
    ignore_tags(monkeypatch)
    for listens in (False, True):
        lan = Lan("ab", ordering_buffers=1)
        member = lan.members["a"]
        if listens:
            member._listen(lan.now)
        for number, tag in enumerate((5, 6, 7)):
            behind_a_gap = message(tag, number=10 + number, previous=99)
            lan.give("a", Received("b", behind_a_gap, after_loss=True))
        assert (member._flow.own_ns > member._flow._floor_ns) == (not listens)


def test_the_latest_tags_are_known_to_have_come_and_no_more() -> None:
    validation = Lan("ab").members["a"]._validation
    for tag in range(MOST_RECEIVED):
        assert validation.is_fresh(tag)
    assert not validation.is_fresh(0)
    assert validation.is_fresh(MOST_RECEIVED)
    assert validation.is_fresh(0), "it was forgotten"
    assert not validation.is_fresh(2)


@pytest.mark.parametrize(("number", "is_missing"), [(3, True), (2, False), (1, False)])
def test_the_message_before_one_beyond_the_next_is_missing(
    monkeypatch: pytest.MonkeyPatch, number: int, is_missing: bool
) -> None:
    ignore_tags(monkeypatch)
    member = Lan("ab").members["a"]
    member._order.expect("b", (0, 2))
    member._validation.take(0, "b", message(9, number=number, previous=8), present=True)
    assert (8 in member._order.graph) == is_missing


def test_a_missing_message_follows_the_latest_of_its_sender_in_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignore_tags(monkeypatch)
    member = Lan("ab").members["a"]
    order = member._order
    for tag, number in ((4, 4), (5, 5), (7, 7)):
        order.store("b", message(tag, number=number))
    order.store("c", message(6, number=6))
    for tag in (4, 6, 7):
        order.add(0, tag)
    member._validation.take(0, "b", message(9, number=7, previous=8), present=True)
    assert order.graph.origins(8) == ((4, False),)


def hears_itself() -> Dpg:
    member = Dpg("a", DpgConfiguration(), LanService(hears_itself=True), Random(0))
    member.handle(0, Start())
    return member


def test_own_messages_count_once_and_only_on_a_channel_on_which_a_member_hears_itself() -> None:
    member = hears_itself()
    effects = member.handle(1, Admit((b"x",)))
    own = next(effect.pdu for effect in effects if isinstance(effect, Multicast))
    assert isinstance(own, Message)
    assert not any(isinstance(effect, Deliver) for effect in member.handle(2, Received("a", report([]))))
    assert member.ignored == 1
    assert any(isinstance(effect, Deliver) for effect in member.handle(3, Received("a", own)))
    member.handle(4, Received("a", own))
    assert member.ignored == 2
    lan = Lan("ab")
    lan.admit("a")
    tag = next(iter(lan.members["a"]._own.unlocated))
    lan.give("a", Received("a", lan.members["a"]._own.unlocated[tag][0]))
    assert lan.members["a"].ignored == 1


@pytest.mark.parametrize(("sender", "number", "collides"), [("b", 0, False), ("b", 1, True), ("c", 0, True)])
def test_a_tag_that_comes_with_another_sender_or_number_collides(
    sender: str, number: int, collides: bool
) -> None:
    lan = Lan("abc")
    lan.admit("b")
    lan.settle()
    member = lan.members["a"]
    (tag,) = lan.tags()
    lan.give("a", Received(sender, message(tag, number=number)))
    assert member.collisions == collides


def test_only_a_message_without_room_slows_the_group_down(monkeypatch: pytest.MonkeyPatch) -> None:
    ignore_tags(monkeypatch)
    lan = Lan("ab", graph_limit=2)
    member = lan.members["a"]
    for tag in (5, 6):
        lan.give("a", Received("b", message(tag, number=tag), after_loss=True))
    assert member._flow.own_ns == 0
    lan.give("a", Received("b", message(7, number=7), after_loss=True))
    assert member._flow.own_ns > 0


def channel_with(monkeypatch: pytest.MonkeyPatch) -> tuple[Channel, Order]:
    ignore_tags(monkeypatch)
    member = Lan("ab").members["a"]
    return member._channel, member._order


def test_a_contiguous_message_has_its_place_only_behind_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    channel, order = channel_with(monkeypatch)
    for tag in (5, 6, 7, 8):
        order.store("b", message(tag, number=tag))
    assert channel.on_message(0, 5, contiguous=True, present=True)
    assert order.agreement.root == 5
    order.add(0, 6)
    order.incorporate(0, 6)
    order.deliver(0, lambda _time_ns, _tag: False)
    assert channel.on_message(0, 7, contiguous=True, present=True)
    assert order.agreement.root == 6, "what came before 7 is not the root"
    assert list(order.graph) == [7]
    assert order.graph.first() is None


def test_a_contiguous_message_is_marked_while_others_wait_for_their_bodies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel, order = channel_with(monkeypatch)
    assert channel.on_message(0, 5, contiguous=True, present=True), "its body is missing"
    order.incorporate_marked(0)
    assert (order.agreement.root, order.is_done()) == (5, False)
    order.store("b", message(6))
    assert channel.on_message(0, 6, contiguous=True, present=True)
    assert order.graph.first() == 6


@pytest.mark.parametrize(
    ("arcs", "is_held", "present", "is_placed"),
    [
        ([(1, 5, True)], True, True, True),
        ([(1, 5, True)], True, False, False),
        ([(1, 5, True)], False, True, False),
        ([(1, 5, False)], True, True, False),
        ([(ORIGIN, 5, True)], True, True, False),
        ([(1, 5, True), (5, 9, True)], True, True, False),
        ([], True, True, False),
    ],
)
def test_a_number_behind_the_root_builds_no_vertex(
    monkeypatch: pytest.MonkeyPatch, arcs: list[Arc], is_held: bool, present: bool, is_placed: bool
) -> None:
    channel, order = channel_with(monkeypatch)
    order.store("b", message(1))
    order.follow(0, 1)
    order.deliver(0, lambda _time_ns, _tag: False)
    if is_held:
        order.store("b", message(5, number=1))
    assert channel.on_placement(0, 5, arcs, present=present)
    assert (order.agreement.root == 5) == is_placed
    assert (5 in order.graph) == (not is_placed)


def test_a_number_behind_the_root_waits_while_others_wait_for_their_bodies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel, order = channel_with(monkeypatch)
    order.follow(0, 1)
    order.store("b", message(5))
    assert channel.on_placement(0, 5, [(1, 5, True)], present=True)
    assert order.graph.first() == 5


@pytest.mark.parametrize(
    ("arcs", "is_late"), [([(5, 1, False)], True), ([(1, 5, False)], False), ([(5, 9, False)], False)]
)
def test_a_placement_before_a_placed_message_is_too_late(
    monkeypatch: pytest.MonkeyPatch, arcs: list[Arc], is_late: bool
) -> None:
    channel, order = channel_with(monkeypatch)
    order.follow(0, 1)
    order.add(0, 9)
    assert channel.on_placement(0, 5, arcs, present=True)
    assert order.was_passed(5) == is_late
    assert (5 in order.graph) == (not is_late)


@pytest.mark.parametrize("detector", [True, False])
def test_arcs_of_a_placement_are_drawn_to_what_is_in_the_graph(
    monkeypatch: pytest.MonkeyPatch, detector: bool
) -> None:
    ignore_tags(monkeypatch)
    member = Lan("ab", detector=detector).members["a"]
    order = member._order
    for tag in (8, 9):
        order.add(0, tag)
    assert member._channel.on_placement(0, 5, [(8, 5, False), (5, 9, True), (5, 7, False)], present=True)
    assert order.graph.origins(5) == ((8, False),)
    assert order.graph.origins(9) == ((5, detector),)


# Reports


def test_a_marked_arc_may_lead_from_the_origin() -> None:
    told = lists_of(report([], arcs=pack_arcs([(ORIGIN, 5, True), (5, 6, False), (6, 7, True)])))
    assert told.arcs == ((ORIGIN, 5, True), (5, 6, False), (6, 7, True))


@pytest.mark.parametrize(
    ("is_marked_here", "is_marked_there", "is_lacking"),
    [(False, False, False), (True, False, True), (True, True, False), (False, True, False)],
)
def test_a_reporter_lacks_the_marks_that_it_does_not_tell(
    is_marked_here: bool, is_marked_there: bool, is_lacking: bool
) -> None:
    order = an_order(quiet)
    for tag in (5, 6):
        order.add(0, tag)
    order.graph.connect(5, 6, marked=is_marked_here)
    arcs = pack_arcs([(5, 6, is_marked_there)])
    lacking = _lacking(order, lists_of(report([], vertices=pack_tags([6]), arcs=arcs)))
    assert lacking == (6 if is_lacking else None)


def agreed_order(*tags: Tag) -> Order:
    order = an_order(quiet)
    for tag in tags:
        order.add(0, tag)
        order.incorporate(0, tag)
    return order


@pytest.mark.parametrize(
    ("index", "agreed", "is_untold"),
    [(5, [8, 9], True), (4, [8, 9], False), (5, [2, 9], False), (5, [9, 2], False), (5, [], False)],
)
def test_a_reporter_tells_no_more_of_what_follows_our_order(
    index: int, agreed: list[Tag], is_untold: bool
) -> None:
    assert _is_untold(agreed_order(1, 2), index, agreed) == is_untold


@pytest.mark.parametrize(
    ("index", "agreed", "known", "news", "behind"),
    [
        (9, [7, 8], (), False, True),
        (9, [7, 8], (7,), True, False),
        (9, [7, 8], (8,), False, True),
        (2, [7, 8], (), True, False),
        (9, [2, 8], (), True, False),
        (9, [7, 2], (), False, False),
        (9, [1, 7, 8], (), True, False),
        (9, [], (), False, False),
    ],
)
def test_what_another_has_agreed_on_is_followed_if_it_goes_on_from_what_is_known(
    index: int, agreed: list[Tag], known: tuple[Tag, ...], news: bool, behind: bool
) -> None:
    order = agreed_order(1, 2)
    for tag in known:
        order.add(0, tag)
    assert _follow(order, 0, index, agreed, bytes([1] * len(agreed))) == (news, behind)
    assert all(tag in order.graph for tag in agreed if tag not in (1, 2)) == (not behind and agreed != [7, 2])


@pytest.mark.parametrize("cause", ["gone", "untold"])
def test_a_spell_ends_when_either_a_body_or_the_order_is_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    ignore_tags(monkeypatch)
    lan = Lan("ab")
    member = lan.members["a"]
    for tag in (1, 2):
        member._order.add(lan.now, tag)
        member._order.incorporate(lan.now, tag)
    if cause == "gone":
        lan.give("a", Received("b", report([1, 2], gone=pack_tags([1]))))
    else:
        for _ in range(BEHIND):
            assert not lan.of("a", Absent)
            lan.give("a", Received("b", report([8, 9], index=9, oldest=8)))
    assert lan.of("a", Absent)


def test_a_disagreement_names_the_others_message_if_ours_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignore_tags(monkeypatch)
    lan = Lan("ab")
    member = lan.members["a"]
    order = member._order
    for tag in (1, 2, 3):
        order.add(0, tag)
        order.incorporate(0, tag)
    order.names[3] = ("c", 30)
    theirs = Agreement(10)
    for tag in (1, 3, 2):
        theirs.append(tag, 1)
    lan.give("a", Received("b", report([1, 3, 2], digest=theirs.digest)))
    (told,) = lan.of("a", Disagreed)
    assert (told.sender, told.number) == ("c", 30)


@pytest.mark.parametrize(("vertices", "cycles"), [(0, IDLE_CYCLES), (1, 1), (2, 1)])
def test_a_member_with_something_to_report_reports_soon_after_another(vertices: int, cycles: int) -> None:
    member = Lan("ab").members["a"]
    for tag in range(1, vertices + 1):
        member._order.add(0, tag)
    member._report_sender.changed = False
    told = Merged(news=False, lacking=None, behind=False, apart=False)
    member._report_sender.on_report(0, 0, "b", told, 0, ReportLists((), b"", (), (), (), (), ()))
    cycle_ns = cycles * member._configuration.report_cycle_ns
    assert cycle_ns <= member._report_sender._heartbeat.next_ns <= 2 * cycle_ns


# Listening


def listening_order(**knobs: Any) -> tuple[Order, Callable[..., bool]]:
    order = an_order(quiet)
    listening = Listening(DpgConfiguration(listen_reports=1, **knobs), -MS * 1000)

    def hear(told: Report) -> bool:
        return listening.hear(order, 0, "b", told, lists_of(told))

    return order, hear


def test_reports_that_tell_no_streams_are_not_taken_up_unless_nothing_was_sent() -> None:
    _, hear = listening_order()
    assert not hear(report([1, 2]))
    assert hear(report([1, 2], streams={"z": (0, 0)}))
    assert hear(report([]))


def test_enough_reports_are_heard_first() -> None:
    order = an_order(quiet)
    listening = Listening(DpgConfiguration(listen_reports=3), -MS * 1000)
    told = report([], streams={"z": (0, 0)})
    assert [listening.hear(order, 0, "b", told, lists_of(told)) for _ in range(3)] == [False, False, True]


def test_one_that_is_behind_us_is_taken_up_only_after_a_while() -> None:
    order, hear = listening_order()
    for tag in (1, 2, 3):
        order.add(0, tag)
        order.incorporate(0, tag)
    behind = report([1, 2], streams={"z": (0, 0)})
    assert [hear(behind) for _ in range(PATIENCE)] == [False] * (PATIENCE - 1) + [True]
    assert hear(behind)


def test_what_cannot_be_placed_is_given_up_after_a_while() -> None:
    order, hear = listening_order()
    order.add(0, 50)
    told = report([1, 2], streams={"z": (0, 0)})
    assert [hear(told) for _ in range(PATIENCE)] == [False] * PATIENCE
    assert 50 not in order.graph
    order.add(0, 51)
    assert [hear(told) for _ in range(PATIENCE - 1)] == [False] * (PATIENCE - 1)
    assert 51 in order.graph, "patience begins anew"


@pytest.mark.parametrize(
    ("vertices", "index", "can"), [((), 1, False), ((50,), 1, True), ((), 2, True), ((51,), 1, False)]
)
def test_a_root_is_taken_up_if_it_is_known_what_follows_it(
    vertices: tuple[Tag, ...], index: int, can: bool
) -> None:
    """Message 50 was heard; its sender had come as far as `index`. The reporter's window begins at 2."""
    order, hear = listening_order()
    order.store("c", message(50, index=index))
    order.add(0, 50)
    told = report([1, 2], index=4, vertices=pack_tags(vertices), streams={"z": (0, 0)})
    assert hear(told) == can


def test_a_root_that_was_heard_is_taken_up() -> None:
    order, hear = listening_order()
    for tag in (2, 50):
        order.add(0, tag)
    assert hear(report([1, 2], streams={"z": (0, 0)}))
    order, hear = listening_order()
    for tag in (1, 50):
        order.add(0, tag)
    assert not hear(report([1, 2], streams={"z": (0, 0)})), "only the root tells what follows it"


def test_of_what_was_heard_only_that_is_kept_which_lies_behind_the_root() -> None:
    order = an_order(quiet)
    for tag, index in ((10, 9), (11, 0), (12, 0), (13, 3), (14, 2)):
        order.store("c", message(tag, number=tag, index=index))
        order.add(0, tag)
    order.graph.connect(2, 12)
    order.add(0, 2)
    told = report([10, 1, 2], index=6, vertices=pack_tags([11]))
    adopt(order, 0, told, lists_of(told), {})
    assert set(order.graph) == {11, 12, 13}


def test_messages_of_those_that_had_come_as_far_as_the_window_are_recent() -> None:
    order = an_order(quiet)
    told = report([1, 2], index=5)
    for tag, index in ((10, 2), (11, 3), (12, 4)):
        order.store("c", message(tag, index=index))
    recent = [is_recent(order, tag, told, lists_of(told)) for tag in (10, 11, 12, 13)]
    assert recent == [False, True, True, False]


def test_what_another_expects_is_doubtful_only_if_it_is_more() -> None:
    order = an_order(quiet)
    for sender in "bcd":
        order.expect(sender, (0, 5))
    told = report([1, 2])
    adopt(order, 0, told, lists_of(told), {"b": (0, 5), "c": (0, 6), "d": (0, 4)})
    assert order.streams == {"b": (0, 5), "c": (0, 6), "d": (0, 5)}
    assert order._doubtful == {"c": (0, 5)}


# Recovery


def test_tags_that_reports_tell_no_more_are_told_to_be_gone_up_to_a_limit() -> None:
    lan = Lan("ab", history=1)
    order, recovery = lan.members["a"]._order, lan.members["a"]._recovery
    tags = tuple(range(1, MOST_ASKED + 5))
    for tag in tags:
        order.add(0, tag)
        order.incorporate(0, tag)
    recovery.on_vertices(tags)
    assert recovery.gone() == list(tags[:MOST_ASKED])


def test_tags_that_were_delivered_and_are_not_kept_are_told_to_be_gone_up_to_a_limit() -> None:
    lan = Lan("ab")
    order, recovery = lan.members["a"]._order, lan.members["a"]._recovery
    tags = tuple(range(1, MOST_ASKED + 3))
    for tag in tags:
        order.tombstones.add(tag, tag)
    recovery.on_request(0, 0, "b", tags)
    assert recovery.gone() == list(tags[:MOST_ASKED])


class Fixed(Random):
    """Draws one number."""

    drawn = 0.0

    def random(self) -> float:
        return self.drawn


def answering(sender: str = "c") -> tuple[Dpg, Any]:
    """A member that holds the body 7 of a sender, in a group of a, b, c, d, heard a moment ago."""
    lan = Lan("abcd")
    member = lan.members["a"]
    member._order.store(sender, message(7))
    for name in "bcd":
        member._peers.on_progress(lan.now, name, 0, 0)
    return member, member._recovery


@pytest.mark.parametrize(
    ("after_ns", "is_due"), [(0, False), (20 * MS, False), (20 * MS + 1, True), (30 * MS, True)]
)
def test_what_all_were_told_a_moment_ago_is_not_told_again(after_ns: int, is_due: bool) -> None:
    _, recovery = answering(sender="a")
    recovery.on_request(0, 0, "b", (7,))
    recovery.on_retransmission(0, 7)
    recovery.on_request(after_ns, after_ns, "d", (7,))
    assert (recovery._answers[7].due_ns is not None) == is_due


@pytest.mark.parametrize(
    ("sender", "tag", "is_due"), [("c", 8, False), ("x", 9, True), ("x", 8, False), ("a", 8, True)]
)
def test_the_sender_answers_or_one_that_all_agree_on(sender: str, tag: Tag, is_due: bool) -> None:
    """Able are a, c and d: of those the tag chooses if the sender is not there."""
    member, recovery = answering()
    member._order.store(sender, message(tag))
    recovery.on_request(0, 0, "b", (tag,))
    assert (recovery._answers[tag].due_ns is not None) == is_due


@pytest.mark.parametrize(("drawn", "is_due"), [(0.32, True), (0.34, False)])
def test_later_about_one_of_those_that_may_have_it_answers(drawn: float, is_due: bool) -> None:
    _, recovery = answering()
    random = Fixed()
    random.drawn = drawn
    recovery._random = random
    recovery.on_request(0, 0, "b", (7,))
    assert recovery._answers[7].due_ns is None
    recovery.on_request(20 * MS, 20 * MS, "b", (7,))
    assert (recovery._answers[7].due_ns is not None) == is_due


@pytest.mark.parametrize(("cycles", "is_due"), [(16, True), (32, True), (33, False)])
def test_the_next_request_after_the_longest_pause_is_still_a_later_one(cycles: int, is_due: bool) -> None:
    """Else only the member that the tag chooses would answer all requests in vain, and it may lack it."""
    member, recovery = answering()
    recovery._random = Fixed()
    recovery.on_request(0, 0, "b", (7,))
    later_ns = cycles * 20 * MS
    for name in "bcd":
        member._peers.on_progress(later_ns, name, 0, 0)
    recovery.on_request(later_ns, later_ns, "b", (7,))
    answered = recovery._answers[7].told_ns is not None or recovery._answers[7].due_ns is not None
    assert answered == is_due


@pytest.mark.parametrize(("sender", "share"), [("a", 0.0), ("x", 0.1)])
def test_the_sender_answers_sooner_than_others(sender: str, share: float) -> None:
    member, recovery = answering()
    recovery._random = Fixed()
    member._order.store(sender, message(9))
    recovery.on_request(0, 0, "b", (9,))
    due_ns = recovery._answers[9].due_ns
    assert (0 if due_ns is None else due_ns) == share * member._configuration.retr_cycle_ns
    assert (due_ns is None) == (sender == "a"), "it was answered at once"


# Reports


def test_the_latest_reports_are_remembered_from_the_first_of_a_spell_on() -> None:
    delivery = Lan("ab").members["a"]._delivery
    for time_ns in (5, 6):
        delivery.on_report(time_ns)
    assert list(delivery._reports) == [5, 6]


def test_checkpoints_that_contradict_are_told_once_and_odd_ones_say_nothing() -> None:
    lan = Lan("ab")
    member = lan.members["a"]
    member._order.agreement.digests._sparse[64] = 7

    def disagreements(checkpoints: bytes) -> int:
        told = report([], checkpoints=checkpoints)
        member._report_merge.compare("b", told, lists_of(told))
        return member._report_merge.disagreements

    assert disagreements(b"odd") == 0
    assert disagreements(pack_tags([64, 7])) == 0
    assert disagreements(pack_tags([64, 8])) == 1
    assert disagreements(pack_tags([64, 8])) == 1


def test_arcs_that_follow_from_steps_and_links_are_left_out_and_no_others() -> None:
    order = Lan("ab").members["a"]._order
    for tag in (1, 2, 3):
        order.follow(0, tag)
    arcs = [(3, 4), (4, 5), (3, 5), (4, 6), (6, 7), (4, 7), (7, 8), (6, 8), (8, 9), (3, 9)]
    for tail, head in arcs:
        if head not in order.graph:
            order.add(0, head)
        order.graph.connect(tail, head)
    told = graph_lists(order, [], *order.agreement.recent(8), 100)
    assert told.vertices == [4, 5, 6, 7, 8, 9]
    assert list(told.steps) == [TRUE_LINK, TRUE_LINK, 0, TRUE_LINK, TRUE_LINK, TRUE_LINK]
    assert told.arcs == [(4, 6, False), (4, 7, False), (3, 9, False)]


@pytest.mark.parametrize(
    ("fields", "is_read"),
    [
        ({"vertices": pack_tags([5, 6]), "steps": b"\x01\x01"}, True),
        ({"vertices": pack_tags([5, 6]), "steps": b"\x01\x01\x01"}, False),
        ({"vertices": pack_tags([ORIGIN, 6]), "steps": b"\x01"}, False),
    ],
)
def test_steps_are_between_tags_that_are_listed(fields: dict[str, Any], is_read: bool) -> None:
    assert (read(report([], **fields)) is not None) == is_read


@pytest.mark.parametrize(
    ("arcs", "agreed", "is_told"),
    [
        ([], [9], True),
        ([(1, 9, True)], [], True),
        ([(1, 9, False)], [], False),
        ([(1, 8, True)], [], False),
        ([(9, 8, True), (1, 9, False)], [], False),
    ],
)
def test_a_place_is_told_by_the_agreed_order_or_by_a_mark(
    arcs: list[Arc], agreed: list[Tag], is_told: bool
) -> None:
    assert tells_place(lists_of(report(agreed, arcs=pack_arcs(arcs))), 9) == is_told


@pytest.mark.parametrize(("oldest", "is_behind"), [(3, False), (4, False), (5, True)])
def test_a_member_is_behind_a_report_that_cannot_tell_what_follows_its_order(
    oldest: int, is_behind: bool
) -> None:
    """It has three places; the report tells from the seventh on, and its sender from `oldest` on."""
    order = Lan("ab").members["a"]._order
    for tag in (1, 2, 3):
        order.follow(0, tag)
    told = report([7, 8], index=8)
    merged = merge(order, 0, 8, oldest, lists_of(told), shared=True)
    assert (merged.apart, merged.behind) == (True, is_behind)
    order.add(0, 7)
    merged = merge(order, 0, 8, oldest, lists_of(told), shared=True)
    assert (merged.apart, merged.behind) == (True, is_behind), "although it has heard of the seventh"
    near = report([3, 4], index=4)
    merged = merge(order, 0, 4, 9, lists_of(near), shared=True)
    assert (merged.apart, merged.behind) == (False, False)


@pytest.mark.parametrize(("lacking", "index", "needed"), [(9, 2, 2), (9, 3, None), (None, 2, None)], ids=str)
def test_reports_reach_back_to_a_member_that_lacks_what_follows(
    lacking: Tag | None, index: int, needed: int | None
) -> None:
    lan = Lan("abc")
    member = lan.members["a"]
    for tag in (1, 2, 3):
        member._order.add(0, tag)
        member._order.incorporate(0, tag)
    told = report([], index=index)
    merged = Merged(False, lacking, False, False)
    member._report_sender.on_report(lan.now, lan.now, "b", merged, index, lists_of(told))
    assert member._report_sender._needed == needed


@pytest.mark.parametrize(("owed", "is_hurried"), [(1, False), (2, True)])
def test_a_listener_is_owed_its_reports_without_delay(owed: int, is_hurried: bool) -> None:
    """The report that has just come is one of them."""
    lan = Lan("abc")
    member = lan.members["a"]
    member._report_sender._owed = owed
    told = report([])
    merged = Merged(False, None, False, False)
    member._report_sender.on_report(lan.now, lan.now, "b", merged, 0, lists_of(told))
    assert member._report_sender._heartbeat._is_hurried == is_hurried


# Order


def test_messages_behind_agreed_tags_are_named_as_long_as_they_may_be_compared() -> None:
    order = an_order(quiet, history=2)
    for tag in range(1, MEMORY * 2 + 2):
        order.store("b", message(tag, number=tag - 1))
        order.add(0, tag)
        order.incorporate(0, tag)
        order.deliver(0, lambda _time_ns, _tag: False)
        assert len(order.names) == min(tag, MEMORY * 2)


def delivered(order: Order, effects: list[Effect], tag: Tag) -> list[tuple[int, int]]:
    order.add(0, tag)
    order.incorporate(0, tag)
    order.deliver(0, lambda _time_ns, _tag: False)
    return [(effect.incarnation, effect.number) for effect in effects if isinstance(effect, Deliver)]


def test_an_earlier_message_of_the_same_incarnation_is_delivered_first_and_none_of_another() -> None:
    effects: list[Effect] = []
    order = an_order(effects.append)
    for tag, incarnation, number in ((10, 0, 1), (11, 0, 0), (12, 0, 1)):
        order.store("b", message(tag, incarnation=incarnation, number=number))
    assert delivered(order, effects, 10) == [(0, 0), (0, 1)]
    effects = []
    order = an_order(effects.append)
    order.store("b", message(10, incarnation=1, number=5))
    order.store("b", message(11, number=0))
    assert delivered(order, effects, 10) == [(1, 5)]


# Configuration


SPANS = (
    "report_cycle_ns", "deliv_cycle_ns", "dummy_cycle_ns", "retr_cycle_ns", "remove_cycle_ns",
    "locate_cycle_ns", "fc_cycle_ns", "listen_ns", "absence_ns", "lately_ns",
)  # fmt: skip
PAUSES = ("message_cycle_ns", "delta_ns", "longest_message_cycle_ns", "tell_ns")
COUNTS = (
    "window", "lag", "admission_buffers", "ordering_buffers", "kept_bodies", "kept_bytes", "graph_limit",
    "history", "tombstones", "listen_reports",
)  # fmt: skip


@pytest.mark.parametrize(("names", "least"), [(SPANS, 1), (PAUSES, 0), (COUNTS, 1)])
def test_every_knob_has_a_least_value(names: tuple[str, ...], least: int) -> None:
    for name in names:
        knobs: dict[str, Any] = {"report_cycle_ns": 1, "deliv_cycle_ns": 3}
        if name != "deliv_cycle_ns":
            assert getattr(DpgConfiguration(**(knobs | {name: least})), name) == least
        with pytest.raises(UsageError):
            DpgConfiguration(**(knobs | {name: least - 1}))
    with pytest.raises(UsageError, match="leave time for reports"):
        DpgConfiguration(report_cycle_ns=1, deliv_cycle_ns=2)


# The tag sequencer


def following(*, taking_part: bool = True) -> tuple[SequencerService, FakeMember]:
    """A member that follows the sequencer s, and has a message without a number."""
    service, member = SequencerService(), FakeMember("a", "bs")
    member.attach_to(service)
    service.start(0, 0)
    if taking_part:
        service.take_part(0)
    service.on_other_pdu(0, "s", Numbered(3, 1, 0, 1, pack_tags([5])), after_loss=False)
    member.pending = (message(9),)
    member.effects.clear()
    return service, member


@pytest.mark.parametrize(("sender", "heard_ns"), [("s", 7), ("b", 0)])
def test_any_word_of_the_sequencer_tells_that_it_lives(sender: str, heard_ns: int) -> None:
    service, _ = following()
    service.on_other_pdu(7, sender, Request(b""), after_loss=False)
    assert service._patience.heard_ns == heard_ns


@pytest.mark.parametrize(
    ("sender", "pending", "taking_part", "answers"),
    [("s", True, True, 1), ("b", True, True, 0), ("s", False, True, 0), ("s", True, False, 0)],
)
def test_only_the_sequencer_is_told_of_messages_without_a_number(
    sender: str, pending: bool, taking_part: bool, answers: int
) -> None:
    service, member = following(taking_part=taking_part)
    member.pending = (message(9),) if pending else ()
    service.on_other_pdu(1, sender, Ask(), after_loss=False)
    told = [effect for effect in member.effects if isinstance(effect, Send)]
    assert told == [Send("s", TagRequest(pack_tags([9]), 1, 0))] * answers


def test_one_that_is_not_the_sequencer_says_who_is_unless_it_claims_to_be() -> None:
    service, member = following()
    request = TagRequest(pack_tags([7]), 1, 0)
    service.on_other_pdu(1, "b", request, after_loss=False)
    assert [type(effect.pdu) for effect in member.effects if isinstance(effect, Send)] == [Answer]
    service._begin_claim(2)
    member.effects.clear()
    service.on_other_pdu(3, "b", request, after_loss=False)
    assert not member.effects


def test_answers_may_leave_tags_open_and_announcements_may_not() -> None:
    packed = pack_tags([5, ORIGIN, 7])
    assert read_tags(packed, unknown=True) == (5, ORIGIN, 7)
    assert read_tags(packed) is None
    assert read_tags(pack_tags([5, TAG_LIMIT]), unknown=True) is None
    assert read_tags(pack_tags([TAG_LIMIT - 1])) == (TAG_LIMIT - 1,)


def test_the_sequencers_knobs_have_limits() -> None:
    for name in ("repeat_ns", "gap_ns", "takeover_ns", "spread_ns", "gather_answers_ns"):
        assert getattr(SequencerOptions(**{name: 1}), name) == 1  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            SequencerOptions(**{name: 0})  # type: ignore[arg-type]
    assert SequencerOptions(gather_ns=0, repeats=0, memory=MOST_TAGS).repeats == 0
    assert SequencerOptions(repeats=MOST_TAGS // 2).repeats == MOST_TAGS // 2
    refused: list[dict[str, Any]] = [
        {"gather_ns": -1}, {"repeats": -1}, {"repeats": MOST_TAGS // 2 + 1}, {"memory": MOST_TAGS - 1}
    ]  # fmt: skip
    for options in refused:
        with pytest.raises(UsageError):
            SequencerOptions(**options)


@pytest.mark.parametrize(("after_ns", "claims"), [(0, 0), (1, 1)])
def test_a_sequencer_that_tells_an_earlier_epoch_after_its_lease_has_lost_the_role(
    after_ns: int, claims: int
) -> None:
    service, _ = following()
    lease_ns = service.figures()["lease_ns"]
    answer = Answer(2, "s", 0, 1, b"")
    service.on_other_pdu(lease_ns + after_ns, "s", answer, after_loss=False)
    assert service.figures()["claims"] == claims


# Peers


def test_peers_are_remembered_up_to_a_limit() -> None:
    peers = Peers(MS, MS, busy=1, emit=quiet)
    for number in range(MOST_SITES + 1):
        peers.on_progress(0, str(number), 0, 0)
    assert len(peers.sites()) == MOST_SITES


@pytest.mark.parametrize(("own", "is_patient"), [(5, True), (4, False)])
def test_a_silence_counts_if_there_was_something_to_report(own: int, is_patient: bool) -> None:
    peers = Peers(MS, 1000 * MS, busy=5, emit=quiet)
    peers.on_progress(0, "b", 0, 0)
    peers.on_progress(10 * MS, "b", 0, own)
    assert ("b" in peers.lately(25 * MS)) == is_patient


# Standing still


def test_a_member_that_stood_still_ends_its_spell_or_listens_anew() -> None:
    lan = Lan("ab")
    lan.now += lan.knobs.absence_ns + 1
    lan.give("a", TimerFired("send"))
    member = lan.members["a"]
    assert lan.of("a", Absent)
    assert member._presence.state is State.LISTENING
    before = member._presence.listening
    lan.now += lan.knobs.absence_ns
    lan.give("a", TimerFired("send"))
    assert member._presence.listening is before
    lan.now += lan.knobs.absence_ns + 1
    lan.give("a", TimerFired("send"))
    assert member._presence.listening is not before


@pytest.mark.parametrize(
    ("timer", "is_present", "tells"), [("tell", True, 1), ("tell", False, 0), ("x", True, 0)]
)
def test_progress_is_told_by_its_timer_while_a_member_is_present(
    timer: str, is_present: bool, tells: int
) -> None:
    lan = Lan("ab", tell_ns=MS)
    member = lan.members["a"]
    member._stability.index = 5
    if not is_present:
        member._presence.listen(0)
    told = [effect.pdu for effect in lan.give("a", TimerFired(timer)) if isinstance(effect, Multicast)]
    assert [type(pdu) for pdu in told] == [Progress] * tells


@pytest.mark.parametrize(
    ("links", "led"), [((1, 1, 1), {5, 6, 7}), ((0, 1, 1), {5, 6, 7}), ((1, 0, 1), {6, 7}), ((1, 1, 0), {7})]
)
def test_true_links_lead_to_the_root_up_to_the_last_that_is_not_true(
    links: tuple[int, ...], led: set[Tag]
) -> None:
    assert _run_to_root((5, 6, 7), bytes(TRUE_LINK * link for link in links)) == led


@pytest.mark.parametrize(("ahead", "index", "furthest"), [(None, 3, 5), (0, 3, 5), (4, 7, 7)])
def test_a_peer_is_counted_anew_only_where_its_order_differs_by_more_or_less(
    ahead: int | None, index: int, furthest: int
) -> None:
    peers = Peers(1, 1, 1, quiet)
    peers.on_progress(0, "b", 3, 3)
    peer = peers._sites["b"]
    peer.index, peer.furthest, peer.ahead = 3, 5, 0
    peers.align("b", ahead)
    assert (peer.index, peer.furthest, peer.ahead) == (index, furthest, ahead or 0)


def merging(*tags: Tag) -> tuple[ReportMerge, Agreement]:
    """What merges reports at a member that has agreed on these, and its order."""
    member = hears_itself()
    for tag in tags:
        member._order.agreement.append(tag, 1)
    return member._report_merge, member._order.agreement


@pytest.mark.parametrize(
    ("theirs", "forks"), [((1, 2, 3, 4, 9), 0), ((1, 2, 3, 9, 8), 1), ((1, 9, 8), 1), ((1, 2, 3, 4), 0)]
)
def test_a_fork_is_told_if_something_delivered_is_not_in_the_others_order(
    theirs: tuple[Tag, ...], forks: int
) -> None:
    reports, _ = merging(1, 2, 3, 4)
    _, other = merging(*theirs)
    told = report([*theirs], digest=other.digest)
    reports._tell_fork("b", told, lists_of(told))
    assert reports.forks == forks


@pytest.mark.parametrize(("off_by", "is_fork"), [(0, False), (1, True)])
def test_checkpoints_of_a_report_show_a_fork_or_that_there_is_none(off_by: int, is_fork: bool) -> None:
    reports, own = merging(1, 2, 3, 4)
    told = report([77, 78], 50, checkpoints=pack_tags([4, own.digest + off_by]))
    assert reports._is_fork(told, lists_of(told)) == is_fork
    reports._tell_fork("b", told, lists_of(told))
    assert reports.forks == int(is_fork)
