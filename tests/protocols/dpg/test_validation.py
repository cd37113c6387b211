"""What a member makes of another's PDUs: each case fails if one comparison of it is turned around."""

from collections.abc import Callable
from typing import Any

import pytest

from antiphon.core.effects import Absent, Deliver, Disagreed, Multicast
from antiphon.core.inputs import Admit, Received
from antiphon.protocols.dpg import DpgConfiguration
from antiphon.protocols.dpg.agreement import Agreement
from antiphon.protocols.dpg.channel import Channel
from antiphon.protocols.dpg.continuity import BEHIND
from antiphon.protocols.dpg.order import TRUE_LINK, Order
from antiphon.protocols.dpg.pdus import IDLE_CYCLES, ORIGIN, Arc, Message, Report, Tag
from antiphon.protocols.dpg.reports import (
    Merged,
    ReportLists,
    _follow,
    _is_untold,
    _lacking,
    graph_lists,
    merge,
    pack_arcs,
    read,
    tells_place,
)
from antiphon.protocols.dpg.spells import PATIENCE, UNTOLD, Listening, adopt, is_recent
from antiphon.protocols.dpg.tag_lists import pack_tags
from antiphon.protocols.dpg.validation import MOST_RECEIVED
from tests.protocols.dpg.validated import MS, hears_itself, lists_of, quiet, report
from tests.protocols.harness.dpg_group import ChosenTags, Lan, an_order, message


def ignore_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number is a tag of the group."""
    monkeypatch.setattr("antiphon.protocols.dpg.member.Tags", ChosenTags())


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


@pytest.mark.parametrize(
    ("own", "agreed", "checkpoints", "waits"),
    [
        pytest.param([], [8, 9], pack_tags([4, 7]), False, id="there is no own order"),
        pytest.param([1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9], pack_tags([2, 7]), False, id="all is listed"),
        pytest.param([1, 2, 3], [4, 5, 6, 7, 8, 9], pack_tags([2, 7]), False, id="all behind it is listed"),
        pytest.param([1, 2, 3], [5, 6, 7, 8, 9], pack_tags([2, 7]), True, id="one behind it is not"),
        pytest.param([1, 2, 3], [8, 9], pack_tags([3, 7]), False, id="a checkpoint tells"),
        pytest.param([1, 2, 3], [8, 9], pack_tags([5, 7, 3, 7]), False, id="the second checkpoint tells"),
        pytest.param([1, 2, 3], [8, 9], pack_tags([5, 3]), True, id="its digest is not an index"),
        pytest.param([1, 2, 3], [8, 9], b"", False, id="there are no checkpoints"),
        pytest.param([1, 2, 3], [8, 9], b"odd", False, id="torn checkpoints"),
    ],
)
def test_an_order_is_taken_up_once_it_is_told_how_far_it_is_ours_or_after_a_while(
    own: list[Tag], agreed: list[Tag], checkpoints: bytes, waits: bool
) -> None:
    order, hear = listening_order()
    for tag in own:
        order.follow(0, tag)
    told = report(agreed, index=9, checkpoints=checkpoints, streams={"z": (0, 0)})
    assert [hear(told) for _ in range(UNTOLD + 1)] == [not waits] * UNTOLD + [True]


def test_checkpoints_of_an_order_are_taken_up_with_it() -> None:
    order = an_order(quiet)
    told = report([8, 9], index=9, checkpoints=pack_tags([4, 77]))
    adopt(order, 0, told, lists_of(told), {})
    assert order.agreement.digests.at(4) == 77


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


def test_an_arc_from_the_message_whose_place_was_chosen_last_is_left_out_as_well() -> None:
    """True links lead from it to all later messages."""
    order = Lan("ab").members["a"]._order
    for tag in (1, 2):
        order.add(0, tag)
    order.commit(0)
    assert order.agreement.root == 1, "2 comes before it, but no arc tells that"
    order.follow(0, 3)
    order.follow(0, 4, [1])
    order.add(0, 5)
    for tail in (4, 1, 2):
        order.graph.connect(tail, 5)
    assert graph_lists(order, [], *order.agreement.recent(8), 100).arcs == [(2, 5, False)]


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
