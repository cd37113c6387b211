"""The parts of a member of a precedence-graph group: buffers, tags, clocks, flow control, heartbeat."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from antiphon.core.errors import UsageError
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS, NEVER_NS, SECOND_NS
from antiphon.protocols.dpg.buffers import Held, KeptBodies, OrderingBuffers, Tombstones
from antiphon.protocols.dpg.channel_queue import MOST_SITES, PERIOD_NS, ChannelQueue
from antiphon.protocols.dpg.cycles import MOST_OFF, Clock, CountClock, RateClock
from antiphon.protocols.dpg.cycles import MOST_SITES as MOST_CLOCKS
from antiphon.protocols.dpg.flow import MOST_SITES as MOST_DEMANDS
from antiphon.protocols.dpg.flow import Flow
from antiphon.protocols.dpg.heartbeat import ReportHeartbeat
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import ORIGIN, TAG_LIMIT, Message, Tag
from antiphon.protocols.dpg.peers import Peers
from antiphon.protocols.dpg.printed import PrintedFlow
from antiphon.protocols.dpg.tags import Tags
from tests.protocols.harness.dpg_group import an_order

CYCLE_NS = 1000
IDLE_NS = 10_000


def held(tag: Tag) -> Held:
    message = Message(
        tag=tag, previous=0, seen=0, stamp=0, index=0, incarnation=0, number=tag, bodies=pack([b"body"])
    )
    return Held("a", message)


# Buffers


def buffers(limit: int, *tags: Tag) -> OrderingBuffers:
    made = OrderingBuffers(limit)
    for tag in tags:
        assert made.put(tag, held(tag), never) is None
    return made


def never() -> Tag | None:
    raise AssertionError("nothing is to be seized while there is room")


def test_a_body_is_held_until_it_is_taken_out() -> None:
    made = buffers(3, 1, 2)
    assert (len(made), list(made), list(reversed(made))) == (2, [1, 2], [2, 1])
    assert made.pop(1) == held(1)
    assert list(made) == [2]


def test_a_body_without_room_is_lost_or_seizes_the_buffer_of_another() -> None:
    made = buffers(2, 5, 6)
    assert made.put(1, held(1), lambda: None) == 1
    assert made.put(2, held(2), lambda: 6) == 6
    assert (list(made), made.overflows) == ([5, 2], 2)
    assert made.put(5, held(5), never) is None


def test_kept_bodies_leave_when_nobody_speaks_of_them() -> None:
    kept = KeptBodies(limit=10, most_bytes=1000, quiet_ns=100)
    for tag in (1, 2, 3):
        kept.keep(tag, tag, held(tag))
    kept.touch(50, 1)
    kept.touch(50, 99)
    assert kept.expire(101) == []
    assert kept.expire(102) == [held(2)]
    assert kept.expire(103) == [held(3)]
    assert kept.expire(149) == []
    assert kept.get(1) == held(1)
    assert kept.expire(150) == [held(1)]
    assert kept.get(1) is None
    assert len(kept) == 0


def test_kept_bodies_beyond_the_limit_leave_the_longest_quiet_first() -> None:
    kept = KeptBodies(limit=2, most_bytes=1000, quiet_ns=100)
    for tag in (1, 2, 3):
        kept.keep(0, tag, held(tag))
    kept.touch(1, 1)
    assert kept.expire(1) == [held(2)]
    assert len(kept) == 2
    kept.keep(50, 3, held(3))
    assert kept.expire(101) == [held(1)]
    assert kept.expire(149) == []


def test_kept_bodies_that_are_too_large_together_leave_the_longest_quiet_first() -> None:
    size = held(1).message.bodies.weight
    kept = KeptBodies(limit=10, most_bytes=2 * size, quiet_ns=100)
    for tag in (1, 2, 3):
        kept.keep(0, tag, held(tag))
    kept.keep(0, 3, held(3))
    assert kept.size == 3 * size
    assert kept.expire(1) == [held(1)]
    assert (len(kept), kept.size) == (2, 2 * size)
    assert kept.expire(100) == [held(2), held(3)]
    assert kept.size == 0


def test_quiet_bodies_leave_one_in_each_pause_and_those_beyond_the_limit_at_once() -> None:
    kept = KeptBodies(limit=3, most_bytes=1000, quiet_ns=100)
    for tag in (1, 2, 3):
        kept.keep(0, tag, held(tag))
    assert kept.expire(99, 10) == []
    assert kept.expire(100, 10) == [held(1)]
    assert kept.expire(109, 10) == []
    assert kept.expire(110, 10) == [held(2)]
    for tag in (4, 5, 6):
        kept.keep(110, tag, held(tag))
    assert kept.expire(111, 10) == [held(3)], "there is no room for it"
    assert kept.expire(220, 10) == [held(4), held(5)], "a pause begins when a body is due"
    assert kept.expire(221, 0) == []
    assert kept.expire(230, 0) == [held(6)]


def test_no_more_bodies_are_wanted_than_there_is_room_for_and_the_next_ones_first() -> None:
    order = an_order(lambda _: None, ordering_buffers=2)
    for tail, tag in ((ORIGIN, 5), (5, 3), (3, 7)):
        order.graph.add(tag, 0)
        order.graph.connect(tail, tag, marked=True)
    for tag in (7, 3, 5):
        order.lost[tag] = 0
    order.incorporate_marked(0)
    assert order.fitting() == [5, 3]
    order.buffers.put(8, held(8), never)
    order.buffers.put(9, held(9), never)
    assert order.fitting() == [5], "it may seize a buffer"
    order.buffers.clear()
    del order.lost[5]
    assert order.fitting() == [7, 3], "there is room for all of them"


def ordered(tag: Tag) -> Order:
    """An order in which this is to be delivered next, whose body is kept as if that had been done before."""
    order = an_order(lambda _: None)
    order.expect("a", (0, tag + 1))
    order.kept.keep(0, tag, held(tag))
    assert order.add(0, tag)
    order.graph.connect(ORIGIN, tag, marked=True)
    order.incorporate_marked(0)
    return order


def test_a_message_that_was_delivered_under_another_tag_does_not_hold_up_the_order() -> None:
    order = ordered(3)
    order.deliver(0, lambda *_: False)
    assert (order.is_done(), order.repeated, order.lost) == (True, 1, {})


def test_a_body_that_was_kept_and_is_no_more_is_asked_for() -> None:
    order = ordered(3)
    assert order.kept.expire(1 << 40) == [held(3)]
    order.deliver(0, lambda *_: False)
    assert (order.is_done(), list(order.lost), order.newly_lost) == (False, [3], True)


def test_tombstones_remember_places_and_forget_the_oldest() -> None:
    stones = Tombstones(limit=3)
    for index, tag in enumerate((10, 11, 12)):
        stones.add(tag, index, skipped=tag == 11)
    assert [stones.index(tag) for tag in (10, 11, 12, 13)] == [0, 1, 2, None]
    assert [stones.is_skipped(tag) for tag in (10, 11, 12, 13)] == [False, True, False, False]
    stones.add(13, 3)
    assert (len(stones), 10 in stones, 11 in stones) == (3, False, True)
    stones.add(11, 5)
    assert (len(stones), stones.index(11), stones.is_skipped(11)) == (3, 5, False)


# Tags


def free(_: Tag) -> bool:
    return False


def test_a_group_knows_its_own_tags_and_hardly_any_other() -> None:
    ours, again = Tags(b"secret", Random(1)), Tags(b"secret", Random(2))
    foreign = Tags(b"another", Random(3))
    for _ in range(500):
        tag = ours.choose(free)
        assert 0 < tag < TAG_LIMIT
        assert again.is_ours(tag)
        assert not again.is_ours(tag ^ 1)
        assert not again.is_ours(tag + TAG_LIMIT)
        assert not again.is_ours(foreign.choose(free))
    assert not ours.is_ours(0)
    assert not ours.is_ours(-1)


def test_foreign_tags_fit_as_often_as_chance_has_it() -> None:
    ours, foreign = Tags(b"secret", Random(1), check_bits=4), Tags(b"another", Random(3), check_bits=4)
    assert 200 < sum(ours.is_ours(foreign.choose(free)) for _ in range(4000)) < 300


def test_tags_look_random() -> None:
    tags = [Tags(b"secret", Random(seed)).choose(free) for seed in range(2000)]
    for bit in range(63):
        assert 0.45 < sum(tag >> bit & 1 for tag in tags) / len(tags) < 0.55


@pytest.mark.parametrize("check_bits", [0, 3])
def test_few_bits_are_used_up_before_there_is_an_error(check_bits: int) -> None:
    tags = Tags(b"secret", Random(1), bits=8, check_bits=check_bits)
    used: set[Tag] = set()
    while len(used) < (1 << 8 - check_bits) - 1:
        used.add(tags.choose(used.__contains__))
    assert all(map(tags.is_ours, used))
    assert not any(map(tags.is_ours, (ORIGIN, *range(256, 1024))))
    assert max(used) < 256
    taken = used | {tag for tag in range(256) if tags.is_ours(tag)}
    with pytest.raises(UsageError):
        tags.choose(taken.__contains__)


@pytest.mark.parametrize(("bits", "check_bits"), [(64, 20), (20, 20), (8, -1)])
def test_tags_that_are_none_are_refused(bits: int, check_bits: int) -> None:
    with pytest.raises(UsageError):
        Tags(b"", Random(1), bits=bits, check_bits=check_bits)


# Clocks


def follow(clock: RateClock, speeds: dict[str, float], seconds: int, since: int = 0) -> None:
    for tick in range(10 * seconds):
        now = since + tick * SECOND_NS // 10
        for site, speed in speeds.items():
            clock.on_report(now, site, round(now * speed))


def test_a_plain_clock_is_real_time() -> None:
    clock = Clock()
    clock.message(5)
    clock.on_report(5, "b", 7)
    assert (clock.time(10), clock.until(10, 30), clock.until(10, 3)) == (10, 20, 1)


def test_clocks_of_different_speeds_get_one_rate() -> None:
    speeds = {"a": 0.995, "b": 1.0, "c": 1.004, "d": 1.01}
    own = {}
    for site, speed in speeds.items():
        clock = RateClock()
        follow(clock, {other: theirs / speed for other, theirs in speeds.items() if other != site}, 60)
        own[site] = speed * clock.rate
    assert max(own.values()) - min(own.values()) < 1e-4
    assert own["a"] == pytest.approx(1.002, abs=1e-4)


def test_a_clock_never_goes_back_and_finds_its_deadlines() -> None:
    clock, random, last = RateClock(), Random(1), 0
    for tick in range(3000):
        now = (1 << 60) + tick * 20 * MILLISECOND_NS
        clock.on_report(now, "b", round(tick * 20.3) * MILLISECOND_NS)
        assert clock.time(now) >= last
        last = clock.time(now)
        deadline = last + random.randint(-5, SECOND_NS)
        pause = clock.until(now, deadline)
        assert pause >= 1
        assert clock.time(now + pause) >= deadline - 1
        assert pause == 1 or clock.time(now + pause - 2) < deadline
    assert clock.rate == pytest.approx(1.0075, abs=1e-3)


def test_a_clock_that_jumped_is_measured_anew() -> None:
    clock = RateClock()
    follow(clock, {"b": 1.0}, 10)
    clock.on_report(10 * SECOND_NS, "b", 500 * SECOND_NS)
    clock.on_report(13 * SECOND_NS, "b", 1)
    assert clock.rate == 1.0
    for second in range(14, 60):
        clock.on_report(second * SECOND_NS, "b", (second - 13) * SECOND_NS * 101 // 100)
    assert clock.rate == pytest.approx(1.005, abs=1e-3)


def test_nobody_drags_a_clock_far_and_the_silent_do_not_count() -> None:
    clock = RateClock()
    follow(clock, {"b": 1.4, "c": 1.4, "d": 1.4}, 60)
    assert clock.rate == pytest.approx(1 + MOST_OFF, abs=1e-4)
    follow(clock, {"e": 1.0}, 60, since=100 * SECOND_NS)
    assert clock.rate == pytest.approx(1.0, abs=1e-4)
    follow(clock, {str(site): 1.0 for site in range(3 * MOST_CLOCKS)}, 1, since=200 * SECOND_NS)
    assert len(clock._heard) <= MOST_CLOCKS


def test_counted_time_goes_by_messages_and_in_silence_by_real_time() -> None:
    clock = CountClock(unit_ns=100, idle_ns=1000)
    begin = clock.time(0)
    for now in range(0, 500, 50):
        clock.message(now)
        assert clock.time(now) == clock.time(now + 1000)
    assert clock.time(450) == begin + 1000
    assert clock.time(1450 + 7) == begin + 1007
    clock.message(2000)
    assert clock.time(2000) == begin + 1000 + 550 + 100


def test_counted_deadlines_are_looked_for_when_they_may_be_reached() -> None:
    clock = CountClock(unit_ns=100, idle_ns=1000)
    assert clock.until(0, clock.time(0) + 1000) == 2000
    for now in range(0, 2000, 20):
        clock.message(now)
    now, deadline = 1980, clock.time(1980) + 1000
    assert 200 <= clock.until(now, deadline) <= 400
    assert clock.until(now, clock.time(now)) == 1
    looks = 0
    while clock.time(now) < deadline:
        now += clock.until(now, deadline)
        looks += 1
    assert now == 1980 + 1000 + 1000
    assert looks < 20


# Flow control


def flow() -> Flow:
    return Flow(floor_ns=10, delta_ns=5, fc_cycle_ns=100, longest_ns=40, memory_ns=1000)


def test_own_demand_goes_up_with_overflows_and_down_by_and_by() -> None:
    made = flow()
    made.tick(995)
    made.overflowed(1000)
    made.overflowed(1001)
    assert made.own_ns == 20
    steps = []
    for now in (1099, 1100, 1199, 1200, 1300):
        made.tick(now)
        steps.append(made.own_ns)
    assert steps == [20, 15, 15, 10, 10]
    for _ in range(20):
        made.overflowed(2000)
    assert made.own_ns == 40
    made.tick(2350)
    assert made.own_ns == 25
    made.tick(2400)
    assert made.own_ns == 20


def test_the_greatest_demand_heard_lately_counts() -> None:
    made = flow()
    made.on_report(0, "b", 30)
    made.on_report(1, "c", 25)
    assert (made.cycle_ns(1), made.own_ns) == (30, 10)
    made.on_report(2, "b", 12)
    assert made.cycle_ns(2) == 25
    assert made.cycle_ns(1001) == 12
    assert made.cycle_ns(1002) == 10
    made.on_report(2000, "b", 1 << 62)
    assert made.cycle_ns(2000) == 40
    made.on_report(2001, "b", -5)
    assert made.cycle_ns(2001) == 10


def test_a_demand_that_leaps_up_is_believed_step_by_step() -> None:
    made = Flow(floor_ns=0, delta_ns=5, fc_cycle_ns=100, longest_ns=200, memory_ns=1000)
    told = []
    for now in range(4):
        made.on_report(now, "b", 1000)
        told.append(made.cycle_ns(now))
    assert told == [80, 160, 200, 200]
    made.on_report(4, "b", 150)
    assert made.cycle_ns(4) == 150
    made.on_report(5, "b", 160)
    assert made.cycle_ns(5) == 160
    assert made.cycle_ns(1005) == 0


def test_demands_are_bounded_in_number() -> None:
    made = flow()
    for site in range(2 * MOST_DEMANDS):
        made.on_report(0, str(site), 20)
    assert len(made._demands) == MOST_DEMANDS
    assert made.cycle_ns(1000) == 10
    assert not made._demands
    made.on_report(1000, "a", 10)
    assert not made._demands, "who asks for no more than the usual pause takes no room"


def test_messages_are_paced() -> None:
    made = flow()
    assert made.ready(0)
    made.sent(0)
    assert [made.wait_ns(now) for now in (0, 4, 10, 50)] == [10, 6, 0, 0]
    assert not made.ready(9)
    made.on_report(9, "b", 30)
    assert (made.ready(29), made.ready(30)) == (False, True)


def test_as_published_a_demand_is_adopted_and_steps_down_come_at_moments_of_its_own() -> None:
    made = PrintedFlow(0, 10, 100, 200, 1000, phase=0.25)
    for now, demand_ns, own_ns in (
        (1010, 50, 50),
        (1074, 70, 70),
        (1075, 60, 60),
        (1174, 60, 60),
        (1175, 0, 50),
    ):
        made.on_report(now, "b", demand_ns)
        made.tick(now)
        assert made.own_ns == own_ns


class LiteralFlow:
    """Message_Cycle as section 4.5 has it: the greatest heard of is taken over and told on."""

    def __init__(self) -> None:
        self.own_ns = 10

    def on_report(self, now: int, site: str, demand_ns: int) -> None:
        del now, site
        self.own_ns = max(self.own_ns, demand_ns)

    def overflowed(self, now: int) -> None:
        del now
        self.own_ns += 5

    def step_down(self) -> None:
        self.own_ns = max(self.own_ns - 5, 10)


def ratchet(members: Sequence[LiteralFlow | Flow]) -> int:
    """All report in turn, twenty times in an Fc_Cycle of 100 together; one overflows in the beginning."""
    for _ in range(4):
        members[0].overflowed(0)
    for now in range(1, 10_000):
        for place, member in enumerate(members):
            if isinstance(member, Flow):
                member.tick(now)
            elif now % 100 == 14 * place:
                member.step_down()
        if now % 5 == 0:
            speaker = now // 5 % len(members)
            for place, member in enumerate(members):
                if place != speaker:
                    member.on_report(now, str(speaker), members[speaker].own_ns)
    return max(member.cycle_ns(10_000) if isinstance(member, Flow) else member.own_ns for member in members)


def test_own_demands_come_down_where_the_literal_rule_never_does() -> None:
    assert ratchet([LiteralFlow() for _ in range(7)]) == 30
    assert ratchet([flow() for _ in range(7)]) == 10


# Report heartbeat


def beat(seed: int = 1) -> ReportHeartbeat:
    return ReportHeartbeat(CYCLE_NS, IDLE_NS, Random(seed), ChannelQueue())


def test_the_next_report_is_due_within_bounds_that_depend_on_what_happened() -> None:
    for seed in range(300):
        made = beat(seed)
        assert not made.due(NEVER_NS - 1)
        made.begin(0)
        assert 0 <= made.next_ns <= CYCLE_NS
        made.reported(0, busy=True)
        assert CYCLE_NS <= made.next_ns <= 2 * CYCLE_NS
        made.reported(0, busy=False)
        assert IDLE_NS <= made.next_ns <= 2 * IDLE_NS
        made.on_report(5, waive=False, busy=True)
        assert 5 + CYCLE_NS <= made.next_ns <= 5 + 2 * CYCLE_NS
        made.on_report(10, waive=True, busy=True)
        assert 10 + CYCLE_NS // 20 <= made.next_ns <= 10 + CYCLE_NS + CYCLE_NS // 20
        made.reported(20, busy=False)
        made.urge(20)
        assert 20 <= made.next_ns <= 20 + CYCLE_NS
        assert made.due(made.next_ns)
        assert not made.due(made.next_ns - 1)


def test_urging_never_puts_a_report_off() -> None:
    for seed in range(300):
        made = beat(seed)
        made.begin(0)
        for now in range(0, CYCLE_NS, 100):
            before = made.next_ns
            made.urge(now)
            made.stir(now)
            assert made.next_ns <= before


@pytest.mark.parametrize("members", [2, 7, 50])
def test_a_group_of_any_size_reports_about_once_a_cycle(members: int) -> None:
    hearts = [beat(seed) for seed in range(members)]
    for heart in hearts:
        heart.begin(0)
    spoken: list[int] = []
    speakers = set()
    for _ in range(60 * members):
        speaker = min(hearts, key=lambda heart: heart.next_ns)
        now = speaker.next_ns
        spoken.append(now)
        speakers.add(hearts.index(speaker))
        for place, heart in enumerate(hearts):
            heart.rank = (place - hearts.index(speaker) - 1) % members
            if heart is speaker:
                heart.reported(now, busy=True)
            else:
                heart.on_report(now, waive=False, busy=True)
    pauses = [after - before for before, after in pairwise(spoken)]
    assert min(pauses) >= CYCLE_NS
    assert sum(pauses) / len(pauses) < CYCLE_NS * (1 + 2 / members)
    assert len(speakers) == members


def reports_before_they_are_heard(members: int, cycles: int, delay_ns: int) -> float:
    """How many of a group report in a cycle if a report takes that long to be heard, and none has a turn."""
    hearts = [beat(seed) for seed in range(members)]
    reports = 0
    for cycle in range(cycles):
        for heart in hearts:
            heart.members = members
            heart.on_report(cycle, waive=False, busy=True)
        dues = sorted(heart.next_ns for heart in hearts)
        reports += sum(due <= dues[0] + delay_ns for due in dues)
    return reports / cycles


def test_few_report_before_they_hear_each_other_however_large_the_group_is() -> None:
    assert reports_before_they_are_heard(10, 200, CYCLE_NS // 20) < 3
    assert reports_before_they_are_heard(1000, 50, CYCLE_NS // 20) < 5


def test_a_pause_is_stretched_while_pdus_wait_for_the_channel() -> None:
    queue = ChannelQueue()
    made = ReportHeartbeat(CYCLE_NS, IDLE_NS, Random(1), queue)
    made.reported(0, busy=True)
    before = made.next_ns
    queue.wait_ns = CYCLE_NS
    assert made.next_ns > 2 * before
    made.on_report(10, waive=True, busy=True)
    assert made.next_ns > 10 + 2 * CYCLE_NS, "nothing is waived on a full channel"
    queue.wait_ns = 0
    assert made.next_ns <= 10 + 2 * CYCLE_NS


def test_to_be_urged_again_and_again_shortens_a_pause_once() -> None:
    made = beat()
    made.reported(0, busy=True)
    made.urge(0)
    due = made.next_ns
    for _ in range(50):
        made.urge(0)
    assert made.next_ns == due


def test_the_wait_for_a_channel_is_what_clocks_differ_by_more_than_usual() -> None:
    queue, off = ChannelQueue(), {"b": 10**12, "c": -5000}
    for now, site in ((6000, "b"), (7000, "c"), (8000, "b")):
        queue.on_clock(now, site, now - 100 + off[site])
    assert queue.wait_ns == 0
    queue.on_clock(9000, "b", 9000 - 700 + off["b"])
    assert queue.wait_ns == 0, "a single peer may lie"
    queue.on_clock(9100, "b", 9100 - 900 + off["b"])
    assert queue.wait_ns == 0
    queue.on_clock(9200, "c", 9200 - 500 + off["c"])
    assert queue.wait_ns == 400
    for now in range(10_000, 20_000, 10):
        queue.on_clock(now, "bc"[now // 10 % 2], now - 100 + off["bc"[now // 10 % 2]])
    assert queue.wait_ns < 40


def test_what_clocks_usually_differ_by_is_learnt_anew_after_two_periods() -> None:
    """A peer's clock was set back: its PDUs seem to wait, until the differences of before are forgotten."""
    queue = ChannelQueue()
    for site in "bc":
        queue.on_clock(0, site, 0)
    waits = []
    for now in (1, PERIOD_NS, PERIOD_NS + 1, 2 * PERIOD_NS + 1, 2 * PERIOD_NS + 2):
        for site in "bcbc":
            queue.on_clock(now, site, now - 1000)
        waits.append(queue.wait_ns)
        queue.wait_ns = 0
    assert waits == [1000, 1000, 1000, 1000, 0]
    queue.on_clock(4 * PERIOD_NS, "b", 0)
    queue.on_clock(6 * PERIOD_NS, "b", 0)
    assert list(queue._least) == ["b"], "c was not heard for a period"


def test_so_many_peers_clocks_are_compared_and_a_known_one_displaces_none() -> None:
    queue = ChannelQueue()
    for place in range(MOST_SITES):
        queue.on_clock(0, f"m{place}", 0)
    queue.on_clock(0, "m7", 0)
    assert len(queue._least) == MOST_SITES
    queue.on_clock(0, "newcomer", 0)
    assert len(queue._least) == MOST_SITES
    assert "m0" not in queue._least
    assert {"m1", "m7", "newcomer"} <= queue._least.keys()


# Peers


def test_who_is_there_holds_the_others_and_who_is_silent_is_left_behind_step_by_step() -> None:
    lately_ns, lag = 50 * MILLISECOND_NS, 20
    peers = Peers(lately_ns, SECOND_NS, busy=5, emit=lambda _: None)
    peers.on_progress(0, "b", 100, 100)

    def furthest(now: int) -> int:
        """How far one gets at this time."""
        return next((index for index in range(100, 1000) if peers.is_any_behind(now, index, lag)), 1000)

    assert furthest(0) == 100 + lag
    steps = [furthest(silence * MILLISECOND_NS) for silence in range(0, 200, 10)]
    assert steps == sorted(steps)
    assert steps[1] > 100 + lag
    assert max(later - before for before, later in pairwise(steps)) <= 3  # no member runs away at once
    assert 100 + 3 * lag < steps[-1] <= 100 + 4 * lag
    assert furthest(4 * lately_ns) == 1000
    peers.on_progress(2 * lately_ns, "b", 101, 100)
    assert furthest(2 * lately_ns) == 101 + lag


def test_who_is_silent_at_times_is_waited_for_as_long() -> None:
    peers = Peers(50 * MILLISECOND_NS, SECOND_NS, busy=5, emit=lambda _: None)
    peers.on_progress(0, "b", 100, 100)
    peers.on_progress(120 * MILLISECOND_NS, "b", 110, 110)
    assert peers.lately(350 * MILLISECOND_NS) == {"b"}
    assert peers.lately(370 * MILLISECOND_NS) == set()
    assert peers.is_any_behind(450 * MILLISECOND_NS, 185, 20)
    assert not peers.is_any_behind(520 * MILLISECOND_NS, 500, 20)


def test_a_tag_lies_behind_another_that_got_its_place_later_or_has_none_yet() -> None:
    order = an_order(lambda _: None)
    for tag in (1, 2, 3, 4):
        order.add(0, tag)
    order.incorporate(0, 2)
    order.skip(1)
    order.incorporate(0, 3)
    assert order.is_behind(2, 3)
    assert not order.is_behind(3, 2)
    assert order.is_behind(2, 4)
    assert order.is_behind(1, 3)
    assert order.is_behind(1, 2)
    assert not order.is_behind(4, 3)
    assert order.is_behind(2, 9), "that has no place yet"
    assert not order.is_behind(2, ORIGIN)
