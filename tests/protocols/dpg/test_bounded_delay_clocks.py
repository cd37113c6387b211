"""The clocks of bounded delay: what they agree on, the bound, and what a liar can do to them."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.errors import UsageError
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.protocols.dpg.pdus import LARGEST, ORIGIN, Report
from antiphon.protocols.dpg.services import bounded_delay, clocks
from antiphon.protocols.dpg.services.bounded_delay import ALONE_NS, RELEASE, BoundedDelayService, Vouch
from antiphon.protocols.dpg.services.clocks import Note, agreed
from antiphon.protocols.dpg.services.streams import MOST_STREAMS, Streams
from tests.protocols.dpg.delays import BOUND, MS, START, at, hear, release, started, vouch
from tests.protocols.harness.bounded_delay_group import Group
from tests.protocols.harness.dpg_channel import message, remulticast, report

# Clocks


def apart(index: int, now: Nanoseconds) -> Nanoseconds:
    """Clocks of machines that booted hours apart, and whose crystals differ by up to 100 in a million."""
    return 10**15 + index * 3600 * SECOND_NS + now + now * (index * 30) // 1_000_000


def spread_ns(group: Group, *indices: int) -> Nanoseconds:
    """How far the group's clocks are apart, at this moment."""
    shown = [group.services[i]._clock.read(group.clock(i)) for i in indices or range(len(group.services))]
    return max(shown) - min(shown)


def test_clocks_hours_apart_agree_and_drift_does_not_part_them() -> None:
    group = Group(3, 4, clocks=apart)
    group.report_every(100 * MS)
    group.run(SECOND_NS)
    assert spread_ns(group) < MS
    group.take_part()
    for _ in range(10):
        group.run(2 * SECOND_NS)
        assert spread_ns(group) < MS
    assert sum(group.figures("clock_steps")) <= 6


def test_who_listens_follows_those_who_take_part_and_moves_nobody() -> None:
    group = Group(3, 4, clocks=apart)
    group.report_every(50 * MS, 0, 1, 2)
    group.run(SECOND_NS)
    group.take_part(0, 1, 2)
    group.run(SECOND_NS)
    before = group.figures("clock_adjustment_ns")[:3]
    group.report_every(50 * MS, 3)
    group.run(SECOND_NS)
    assert spread_ns(group) < MS
    moved = [abs(now - then) for now, then in zip(group.figures("clock_adjustment_ns"), before, strict=False)]
    assert max(moved) < MS


def test_two_that_each_began_a_group_meet_at_the_later_clock() -> None:
    group = Group(3, 2, clocks=apart)
    group.take_part()
    first = group.send(0)
    group.report_every(50 * MS)
    group.run(2 * SECOND_NS)
    assert spread_ns(group) < MS
    assert group.figures("clock_adjustment_ns")[1] < MS
    group.send(1)
    group.run(SECOND_NS)
    assert first.stamp < group.sent[1].stamp
    assert group.judge()[1] == 0


@pytest.mark.parametrize("listeners", [(1,), (1, 2)], ids=["one", "two"])
def test_listeners_with_later_clocks_follow_the_one_who_takes_part(listeners: tuple[int, ...]) -> None:
    for seed in range(6):
        group = Group(seed, 3, clocks=apart)
        group.take_part(0)
        group.report_every(50 * MS, *listeners)
        group.run(SECOND_NS)
        group.report_every(50 * MS, 0)
        group.run(SECOND_NS)
        assert group.figures("clock_adjustment_ns")[0] == 0
        assert spread_ns(group, 0, *listeners) < MS


def test_one_that_was_alone_ahead_of_all_steps_back_and_begins_anew() -> None:
    group = Group(3, 4, clocks=apart)
    group.take_part(3)
    group.send(3)
    group.report_every(50 * MS, 0, 1, 2)
    group.run(SECOND_NS)
    group.take_part(0, 1, 2)
    steps = group.figures("clock_steps")
    group.report_every(50 * MS, 3)
    group.run(2 * SECOND_NS)
    assert spread_ns(group) < MS
    assert group.figures("clock_steps") == [*steps[:3], 1]
    refused = group.figures("refused_stamps")
    later = [group.send(index).tag for index in (3, 0, 3)]
    group.run(SECOND_NS)
    for channel in group.channels:
        assert set(later) <= {tag for tag, _ in channel.placed_tags}
    assert group.figures("late_messages") == [0] * 4
    assert group.figures("refused_stamps") == refused


def test_delays_by_clocks_that_have_not_met_do_not_count() -> None:
    group = Group(3, 2, clocks=apart)
    group.take_part(0)
    group.send_every(MS, 50, 0)
    group.run(100 * MS)
    group.take_part(1)
    group.send_every(MS, 50, 0)
    group.report_every(10 * MS)
    group.run(2 * SECOND_NS)
    assert all(MS < bound < 4 * MS for bound in group.figures("bound_ns"))


def test_who_listens_demands_nothing() -> None:
    group = Group(3, 2, clocks=lambda index, now: now + index * SECOND_NS // 2)
    group.take_part(0)
    group.send_every(MS, 50, 0)
    group.run(100 * MS)
    told = clocks.read_note(group.services[1].note(group.clock(1)))
    assert told is not None
    assert told.bound_ns == 50 * MS


@pytest.mark.parametrize("lead_ns", [-3 * MS, 3 * MS, 3600 * SECOND_NS, -3600 * SECOND_NS])
def test_one_liar_among_four_neither_parts_the_others_nor_takes_them_far(lead_ns: Nanoseconds) -> None:
    """Together they may go a thousandth faster or slower, which no order depends on."""
    span_ns = 5 * SECOND_NS
    group = Group(3, 4, clocks=lambda _, now: now + 7200 * SECOND_NS)
    group.take_part()
    group.report_every(20 * MS, 0, 1, 2)

    def lie(lead_ns: Nanoseconds) -> None:
        truth = clocks.read_note(group.services[3].note(group.clock(3)))
        assert truth is not None
        told = truth._replace(adjustment_ns=lead_ns, bound_ns=LARGEST - 1)
        group.transmit(3, report(told.pack(), incarnation=1))

    lie(0)
    group.run(SECOND_NS)
    before = group.figures("clock_adjustment_ns")
    for time_ns in range(0, span_ns, 20 * MS):
        group.later(time_ns, lambda: lie(lead_ns))
    group.run(span_ns)
    assert spread_ns(group, 0, 1, 2) < MS
    after = group.figures("clock_adjustment_ns")
    assert max(abs(now - then) for now, then in zip(after[:3], before, strict=False)) <= span_ns // 1000
    assert max(group.figures("bound_ns")) == 50 * MS, "no more than the bound that all begin with"


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=20), st.data())
def test_fewer_than_a_third_of_liars_cannot_take_the_clock_beyond_the_honest(
    honest: list[int], data: st.DataObject
) -> None:
    most = (len(honest) - 1) // 2
    liars = data.draw(st.lists(st.integers(-(10**15), 10**15), max_size=most))
    assert len(liars) <= (len(honest) + len(liars) - 1) // 3
    assert min(honest) <= agreed([*honest, *liars], 10_000, 10_000, len(liars)) <= max(honest)


# The bound


def test_the_bound_comes_down_to_what_delays_need_and_goes_up_again() -> None:
    slow = 0

    def delay(random: Random, now: Nanoseconds, source: int, target: int) -> Nanoseconds:
        return MS + random.randrange(MS) + (slow if target == 2 else 0)

    group = Group(3, 3, delay=delay)
    group.take_part()
    group.report_every(50 * MS)
    group.send_every(4 * MS, 200)
    group.run(SECOND_NS)
    assert all(2 * MS < bound < 4 * MS for bound in group.figures("bound_ns"))
    slow = 30 * MS
    group.send_every(4 * MS, 200)
    group.run(SECOND_NS)
    assert all(30 * MS < bound < 50 * MS for bound in group.figures("bound_ns"))
    assert group.judge()[1] == 0


def test_a_fixed_bound_stays_and_an_adaptive_one_keeps_to_its_limits() -> None:
    for options, expected in (
        ({"adaptive": False, "bound_ns": 7 * MS}, 7 * MS),
        ({"least_ns": 9 * MS, "bound_ns": 50 * MS}, 9 * MS),
        ({"most_ns": 2 * MS, "bound_ns": 2 * MS}, 2 * MS),
    ):
        group = Group(3, 3, **options)  # type: ignore[arg-type]
        group.take_part()
        group.report_every(50 * MS)
        group.send_every(4 * MS, 100)
        group.run(SECOND_NS)
        assert group.figures("bound_ns") == [expected] * 3


@pytest.mark.parametrize(
    "options",
    [
        {"detector": "psychic"},
        {"bound_ns": 0},
        {"bound_ns": 2 * SECOND_NS},
        {"most_ns": 60 * SECOND_NS},
        {"queue_limit": 0},
        {"vouch_ns": 0},
        {"patience_ns": 0},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        BoundedDelayService(**options)  # type: ignore[arg-type]


# Whatever peers send


@given(st.binary(max_size=200))
def test_a_note_of_any_bytes_is_taken_or_refused_and_never_raises(data: bytes) -> None:
    service, _ = started("evidence")
    hear(service, 10, 0, 0)
    service.on_report(START, "b", report(data), after_loss=False)
    release(service, MS)
    assert clocks.read_note(service.note(START + MS)) is not None


numbers = st.integers(-(1 << 63), (1 << 63) - 1)


@given(
    st.lists(
        st.tuples(st.sampled_from("bcd"), numbers, numbers, numbers, numbers, numbers, st.booleans()),
        max_size=6,
    )
)
def test_notes_of_any_numbers_do_no_harm(told: list[tuple[str, int, int, int, int, int, bool]]) -> None:
    service, channel = started("evidence")
    for step, (site, *values, settled) in enumerate(told):
        clock_ns, adjustment_ns, bound_ns, number, floor = values
        table = clocks.DIFFERENCE.pack(b"12345678", clock_ns)
        note = Note(clock_ns, adjustment_ns, bound_ns, number, floor, settled, table)
        service.on_report(START + step * MS, site, report(note.pack(), values[1]), after_loss=False)
        vouched = Vouch(values[0], values[1], values[2])
        service.on_other_pdu(START + step * MS, site, vouched, after_loss=False)
    now = START + 10 * MS
    stamp = service.stamp(now)
    service.hand_over(now, message(90, stamp=stamp, incarnation=1))
    service.on_timer(now + 10 * SECOND_NS, RELEASE)
    assert clocks.read_note(service.note(now)) is not None
    assert [tag for tag, _ in channel.placed_tags] in ([90], [])


@given(st.lists(st.tuples(st.sampled_from("bc"), st.integers(0, 3), numbers, numbers, numbers), max_size=20))
def test_messages_of_any_numbers_do_no_harm(told: list[tuple[str, int, int, int, int]]) -> None:
    service, _ = started("evidence")
    for step, (site, incarnation, number, stamp, tag) in enumerate(told):
        near = START + stamp % SECOND_NS if stamp % 3 else stamp
        pdu = message(tag, stamp=near, number=number, previous=tag, incarnation=incarnation)
        service.on_message(START + step * MS, site, pdu, after_loss=step % 5 == 0, fresh=True)
        service.on_other_pdu(START + step * MS, site, remulticast("d", pdu), after_loss=False)
        service.on_timer(START + step * MS, RELEASE)
    service.on_timer(START + 10 * SECOND_NS, RELEASE)
    assert service.figures()["waiting_messages"] == 0


def test_tables_are_bounded_whoever_speaks() -> None:
    service, _ = started("evidence")
    other, _ = started()
    for index in range(1000):
        told = report(other.note(START), incarnation=1)
        service.on_report(START, f"x{index}", told, after_loss=False)
        hear(service, 5000 + index, 7, 0, sender=f"y{index}", previous=3)
    assert len(service._clock._peers) <= clocks.MOST_PEERS
    assert len(service._streams._streams) <= MOST_STREAMS
    assert len(service._streams._gaps) <= MOST_STREAMS
    assert len(service.note(START)) < 8192


# Streams


def test_a_gap_with_many_holes_is_bounded_and_closes_only_when_all_are_filled() -> None:
    streams = Streams(MS)
    streams.take(1, "b", 1, 0, 1, 100, 0)
    for number in range(2, 20, 2):
        streams.take(1, "b", 1, number, 1, 100 + 10 * number, 7)
    assert not streams.is_whole(100, 110)
    for number in range(1, 17, 2):
        streams.take(1, "b", 1, number, 1, 105 + 10 * number, 7)
        assert not streams.is_whole(100, 110)
    streams.take(1, "b", 1, 17, 1, 275, 7)
    assert streams.is_whole(100, 110)
    for number in range(20, 400, 2):
        streams.take(1, "b", 1, number, 1, 100 + 10 * number, 7)
    assert len(streams._gaps["b"].holes) <= 16
    assert streams.is_whole(5000, 5001)


def test_an_earlier_incarnation_says_nothing_and_a_later_one_begins_anew() -> None:
    streams = Streams(MS)
    streams.take(1, "b", 2, 5, 1, 100, 0)
    streams.take(1, "b", 1, 50, 1, 900, 3)
    streams.tell(1, "b", 1, 60, 950)
    assert streams.reached() == 100
    assert streams.is_whole(0, 1000)
    streams.tell(1, "b", 3, -1, 200)
    assert streams.reached() == 200
    streams.take(1, "b", 3, 77, 1, 300, 0)
    assert streams.is_whole(0, 1000)


def test_a_gap_that_a_vouch_opens_is_filled_by_what_was_missing() -> None:
    streams = Streams(MS)
    streams.take(0, "b", 1, 4, 1, 100, 0)
    streams.tell(0, "b", 1, 7, 200)
    assert not streams.is_whole(100, 200)
    streams.take(0, "b", 1, 5, 2, 150, 3)
    assert streams.is_whole(100, 200)


def test_a_message_that_is_sent_anew_says_nothing_of_its_stamp() -> None:
    """Of two that are sent anew the second may come first, and the first then has a lower stamp."""
    streams = Streams(MS)
    streams.take(0, "b", 1, 4, 2, 100, 0)
    streams.take(0, "b", 1, 5, 1, 900, 3)
    assert streams.reached() == 100


@pytest.mark.parametrize(
    ("whole", "sent", "number", "counts"),
    [
        pytest.param(True, 0, -1, True, id="none was sent"),
        pytest.param(True, 0, 0, True, id="the first comes next"),
        pytest.param(False, 0, -1, True, id="none was sent here so far"),
        pytest.param(True, 1, 1, True, id="all came"),
        pytest.param(True, 1, 2, True, id="one is missing"),
        pytest.param(True, 1, 0, False, id="overtaken by a message"),
        pytest.param(True, 1, -1, False, id="overtaken by the first message"),
        pytest.param(True, 2, -1, False, id="overtaken by two messages"),
    ],
)
def test_a_vouch_tells_how_far_its_sender_has_come_unless_a_message_overtook_it(
    whole: bool, sent: int, number: int, counts: bool
) -> None:
    streams = Streams(MS)
    streams.begin(whole=whole)
    for each in range(sent):
        streams.take(0, "b", 0, each, 1, 10, ORIGIN)
    streams.tell(0, "b", 0, number, 500)
    assert (streams.reached() == 500) == counts


# One member's word


def test_what_comes_remulticast_does_not_tell_how_far_its_sender_has_come() -> None:
    service, channel = started("evidence")
    vouch(service, "b", 0, -MS)
    lie = remulticast("b", message(20, stamp=at(MS), number=1 << 40, incarnation=1))
    service.on_other_pdu(START + 2 * MS, "c", lie, after_loss=False)
    hear(service, 30, 0, 2 * MS)
    hear(service, 40, 1, 3 * MS, previous=30)
    vouch(service, "b", 2, 4 * MS)
    release(service, 4 * MS)
    assert (30, 40, True) in channel.arcs()


def test_what_came_remulticast_fills_the_gap_that_its_sender_tells_of_later() -> None:
    streams = Streams(MS)
    streams.take(0, "b", 1, 4, 1, 100, 0)
    streams.take_again("b", 1, 5, 2)
    streams.take_again("b", 2, 9, 1)
    streams.take(0, "b", 1, 7, 1, 200, 3)
    assert streams.opened == 1
    assert streams.is_whole(100, 200)
    streams.take(0, "b", 1, 9, 1, 300, 3)
    assert not streams.is_whole(200, 300)
    streams.take_again("b", 2, 8, 1)
    assert not streams.is_whole(200, 300), "another incarnation's"
    streams.take_again("nobody", 1, 8, 1)
    streams.take_again("b", 1, 8, 1)
    assert streams.is_whole(200, 300)


def test_a_remulticast_that_the_member_does_not_lack_gets_no_place() -> None:
    service, channel = started()
    hear(service, 10, 0, 0)
    release(service, 0)
    again = remulticast("b", message(20, stamp=at(MS), number=1, incarnation=1))
    channel.is_ahead = lambda tag: tag != 20  # type: ignore[method-assign]
    service.on_other_pdu(START + 2 * MS, "c", again, after_loss=False)
    assert service.figures()["waiting_messages"] == 0
    channel.is_ahead = lambda tag: tag == 20  # type: ignore[method-assign]
    service.on_other_pdu(START + 2 * MS, "c", again, after_loss=False)
    assert service.figures()["waiting_messages"] == 1


@pytest.mark.parametrize(
    ("tag", "is_taken"),
    [
        pytest.param(9, False, id="older than all that are kept"),
        pytest.param(10, True, id="the oldest"),
        pytest.param(11, True, id="later than the oldest"),
    ],
)
def test_a_remulticast_is_taken_from_the_oldest_place_on(tag: int, is_taken: bool) -> None:
    """What is taken fills the gap between its neighbours by its number; all three have one stamp."""
    service, channel = started()
    hear(service, 10, 0, 0)
    release(service, 0)
    again = remulticast("b", message(tag, stamp=at(0), number=1, incarnation=1))
    service.on_other_pdu(START + MS, "c", again, after_loss=False)
    hear(service, 30, 2, 2 * MS, previous=10)
    release(service, 2 * MS)
    (last,) = [arc for arc in channel.arcs() if arc[1] == 30]
    assert last[2] == is_taken


def test_before_anything_is_released_a_remulticast_has_no_place() -> None:
    service, _ = started()
    again = remulticast("b", message(20, stamp=at(MS), number=1, incarnation=1))
    service.on_other_pdu(START + 2 * MS, "c", again, after_loss=False)
    assert service.figures()["waiting_messages"] == 0


def test_the_gap_of_one_that_has_vanished_ends_where_time_stands() -> None:
    streams = Streams(MS)
    streams.tell(0, "b", 1, 5, 100)
    streams.tell(0, "b", 1, 9, 10_000)
    streams.tell(0, "c", 1, 0, 50)
    assert streams.reached() == 50
    streams.close("b", 2_000)
    streams.close("c", 2_000)
    streams.close("nobody", 2_000)
    assert not streams.is_whole(1_000, 1_500)
    assert streams.is_whole(2_000, 2_500)
    assert streams.reached() > 10_000, "and no member waits for them"


def test_the_gap_of_one_that_has_only_vouched_ends_when_it_has_been_silent_for_long() -> None:
    """No member reports that it vanishes: it never was a peer."""
    service, _ = started("evidence")
    streams, heard_ns = service._streams, START + 10 * MS
    service.on_other_pdu(heard_ns, "x", Vouch(1, 5, at(ALONE_NS + 500 * MS)), after_loss=False)
    service.note(heard_ns + ALONE_NS)
    assert not streams.is_whole(at(ALONE_NS + 20 * MS), at(ALONE_NS + 30 * MS))
    service.note(heard_ns + ALONE_NS + 1)
    assert streams.is_whole(at(ALONE_NS + 20 * MS), at(ALONE_NS + 30 * MS))


def test_a_crowd_of_strangers_that_are_all_late_changes_no_demand() -> None:
    bound = clocks.DelayBound(BOUND, MS, SECOND_NS, adaptive=True)
    for number in range(2 * clocks.FEWEST_DELAYS):
        bound.observe(f"x{number}", SECOND_NS)
    bound.choose(())
    assert bound.demand_ns == BOUND


def test_a_crowd_of_names_displaces_no_clock_and_no_delay() -> None:
    group = Group(3, 3)
    group.take_part()
    group.report_every(20 * MS)
    group.run(SECOND_NS)
    service, now = group.services[0], group.clock(0)
    demand_ns = service._bound.demand_ns
    assert demand_ns < 10 * MS
    for turn in range(10 * clocks.FEWEST_OF_ONE):
        for name in range(clocks.MOST_PEERS):
            late = Note(now + turn * MS - 600 * MS, 0, 50 * MS, -1, START, True, b"")
            told = report(late.pack(), incarnation=1)
            service.on_report(now + turn * MS, f"x{name}", told, after_loss=False)
    assert set(group.names[1:]) < service._clock._peers.keys()
    assert len(service._clock._peers) == clocks.MOST_PEERS
    assert service._bound.demand_ns == demand_ns


def test_a_newcomer_has_a_say_once_it_was_heard_for_long_or_if_nobody_was() -> None:
    clock = clocks.GroupClock(SECOND_NS)
    clock.begin(START, "a", 1)
    assert clock.has_say("b")

    def hear(site: str, now: Nanoseconds) -> None:
        clock.hear(now, site, 1, Note(now, 0, MS, -1, START, True, b""))

    for turn in range(clocks.FEWEST_OF_ONE):
        hear("b", START + turn * clocks.LONG_NS)
    hear("c", START)
    assert clock.has_say("b")
    assert not clock.has_say("c")
    assert not clock.has_say("d")
    clock.forget("b")
    assert clock.has_say("c")


def test_clock_and_delays_of_one_that_has_vanished_do_not_count() -> None:
    group = Group(3, 4)
    group.take_part()
    group.report_every(20 * MS)
    group.run(SECOND_NS)
    service = group.services[0]
    for _ in range(100):
        service._bound.observe(group.names[3], 500 * MS)
    assert group.names[3] in service._clock._peers
    service.on_vanished(group.clock(0), group.names[3])
    assert group.names[3] not in service._clock._peers
    assert max(service._bound._delays)[0] < 50 * MS
    service.on_vanished(group.clock(0), "nobody")


def test_who_only_listens_has_no_say_in_the_bound() -> None:
    service, _ = started()
    service._bound = clocks.DelayBound(10 * MS, MS, SECOND_NS, adaptive=True)  # type: ignore[misc]
    note = Note(START, 0, 80 * MS, -1, START, True, b"").pack()
    service.on_report(START, "b", listening_report(note), after_loss=False)
    assert service.figures()["bound_ns"] == 10 * MS
    service.on_report(START, "b", report(note, incarnation=1), after_loss=False)
    assert service.figures()["bound_ns"] == clocks.MOST_TIMES * 10 * MS


def listening_report(note: bytes) -> Report:
    told = report(note, incarnation=1)
    fields = {name: getattr(told, name) for name in Report.__struct_fields__}
    return Report(**(fields | {"listening": True}))


def observed(bound: clocks.DelayBound, **delays_ms: int) -> int:
    for _ in range(20):
        for sender, delay_ms in delays_ms.items():
            bound.observe(sender, delay_ms * MS)
    bound.choose(())
    return round(bound.demand_ns / MS)


def test_one_sender_alone_cannot_make_the_bound_much_longer() -> None:
    bound = clocks.DelayBound(10 * MS, MS, SECOND_NS, adaptive=True)
    assert observed(bound, b=2, c=2, x=2) == 3
    assert observed(bound, b=2, c=2, x=600) == 3
    assert observed(bound, b=2, c=2, x=-600) == 3
    bound.forget("x")
    assert observed(bound, b=4, c=4, d=4) == 5, "what all see counts"
    for _ in range(10):
        observed(bound, b=400, c=400, d=400)
    assert bound.demand_ns > 400 * MS


def test_a_clock_that_leaves_no_room_to_go_on_makes_no_sense() -> None:
    latest = clocks.LATEST_NS
    for clock_ns, is_read in ((latest - 1, True), (latest, False), (-1, False), (0, True)):
        assert (clocks.read_note(Note(clock_ns, 0, 0, 0, 0, True, b"").pack()) is not None) == is_read
    for bound_ns, is_read in ((0, True), (LARGEST - 1, True), (LARGEST, False), (-1, False)):
        assert (clocks.read_note(Note(0, 0, bound_ns, 0, 0, True, b"").pack()) is not None) == is_read
    for number, is_read in ((-1, True), (NUMBER_LIMIT - 1, True), (NUMBER_LIMIT, False), (-2, False)):
        assert (clocks.read_note(Note(0, 0, 0, number, 0, True, b"").pack()) is not None) == is_read


@pytest.mark.parametrize(("back_ns", "is_void"), [(SECOND_NS, False), (SECOND_NS + 1, True)])
def test_stamps_are_void_when_the_clock_goes_back_further_than_the_longest_bound(
    monkeypatch: pytest.MonkeyPatch, back_ns: Nanoseconds, is_void: bool
) -> None:
    service, _ = started()
    hear(service, 5, 0, 0)
    monkeypatch.setattr(service._clock, "hear", lambda *_: -back_ns)
    note = Note(START, 0, MS, -1, START, True, b"")
    service.on_report(START, "b", report(note.pack(), incarnation=1), after_loss=False)
    assert service.figures()["waiting_messages"] == (not is_void)


def test_a_note_has_as_many_differences_as_there_are_clocks_at_most() -> None:
    difference = clocks.DIFFERENCE.pack(bytes(8), 0)
    note = Note(START, 0, MS, -1, START, True, b"")
    for count, is_read in ((0, True), (clocks.MOST_PEERS, True), (clocks.MOST_PEERS + 1, False)):
        assert (clocks.read_note(note.pack() + count * difference) is not None) == is_read
    assert clocks.read_note(note.pack()[:-1]) is None
    assert clocks.read_note(note.pack() + difference[:-1]) is None


def test_a_listener_follows_two_honest_clocks_of_three() -> None:
    clock = clocks.GroupClock(SECOND_NS)
    clock.begin(START, "a", 1)
    for site, lead_ns in (("b", 0), ("c", 0), ("x", 300 * MS), ("b", 0)):
        clock.hear(START, site, 1, Note(START, lead_ns, MS, -1, START, True, b""))
    assert clock.adjustment_ns == 0


def hear_for_long(clock: clocks.GroupClock, since_ns: int, ahead_ns: int) -> int:
    """Member 'b', whose clock is ahead, is heard until it is usual. Returns when."""
    for turn in range(clocks.FEWEST_OF_ONE):
        now = since_ns + turn * clocks.LONG_NS // 2
        table = clocks.DIFFERENCE.pack(clocks.identity_of("a", 1), ahead_ns)
        clock.hear(now, "b", 1, Note(now + ahead_ns, 0, MS, -1, START, True, table))
    return now


def test_a_member_that_took_part_by_a_wrong_clock_steps_as_soon_as_others_are_usual() -> None:
    """A crowd had told it the clock; it has fallen silent, and members report only now and then."""
    clock = clocks.GroupClock(SECOND_NS, 50 * MS)
    clock.begin(START, "a", 1)
    clock.hear(START, "liar", 1, Note(START - 300 * MS, 0, MS, -1, START, True, b""))
    assert clock.adjustment_ns == -300 * MS
    clock.settle()
    clock.forget("liar")
    hear_for_long(clock, START + 3 * clocks.PATIENCE_NS, 0)
    assert clock.steps == 2
    assert clock.adjustment_ns == 0


def test_a_member_whose_clock_was_near_the_others_steps_only_after_a_while() -> None:
    clock = clocks.GroupClock(SECOND_NS, 50 * MS)
    clock.begin(START, "a", 1)
    clock.settle()
    now = hear_for_long(clock, START, 0)
    clock.forget("b")
    hear_for_long(clock, now + MS, 300 * MS)
    assert clock.steps == 0
    hear_for_long(clock, now + clocks.PATIENCE_NS, 300 * MS)
    assert clock.steps == 1


@pytest.mark.parametrize(
    ("delay_ns", "is_late"),
    [(BOUND - BOUND // bounded_delay.GUARD, False), (BOUND - BOUND // bounded_delay.GUARD + 1, True)],
)
def test_a_pdu_is_late_if_it_took_more_than_the_bound_without_its_guard(
    delay_ns: Nanoseconds, is_late: bool
) -> None:
    service, _ = started()
    service._watch("b", delay_ns, BOUND)
    assert service._late_pdus == int(is_late)


@pytest.mark.parametrize(("beyond_ns", "is_observed"), [(0, True), (1, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_delay_beyond_the_longest_bound_is_not_the_networks(
    monkeypatch: pytest.MonkeyPatch, beyond_ns: Nanoseconds, is_observed: bool, sign: int
) -> None:
    service, _ = started()
    observed: list[Nanoseconds] = []
    monkeypatch.setattr(service._clock, "has_say", lambda _sender: True)
    monkeypatch.setattr(service._bound, "observe", lambda _sender, delay_ns: observed.append(delay_ns))
    delay_ns = sign * (service._most_ns + beyond_ns)
    service._watch("b", delay_ns, BOUND)
    assert observed == [delay_ns] * is_observed
