"""How fast a member may send: on a link that is modelled here, byte by byte, without a clock."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.live.congestion import (
    DECREASE,
    FIRST_BYTES_S,
    FLOOR_BYTES_S,
    LEAST_BYTES,
    MOST_TOLERATED,
    PATIENCE_NS,
    QUEUE_NS,
    SILENCE_NS,
    STANDING_NS,
    START,
    TOLERATED,
    Controller,
    Receiver,
)

MS = MILLISECOND_NS
STEP_S = 0.001
TRIP_S = 0.002
PULSE_STEPS = 10


@dataclass
class Flow:
    """One sender on a link."""

    controller: Controller[str]
    used: float = 1.0
    """The share of its allowance that it sends."""
    sent: float = 0.0
    arrived: float = 0.0
    told: float = 0.0
    rates: Sequence[float] = ()


def share(
    flows: list[Flow],
    *,
    capacity: float,
    queue_bytes: float,
    seconds: float,
    loss: float = 0.0,
    since_s: float = 0.0,
) -> list[float]:
    """What each flow gets of a link, in bytes a second, once a second has passed; sends go in steps."""
    queue = 0.0
    answers: list[tuple[float, Flow, int, int, int]] = []
    begun = [0.0] * len(flows)
    steps = round(seconds / STEP_S)
    for step in range(steps):
        now_s = step * STEP_S
        now = round((since_s + now_s) * SECOND_NS) + 1
        offers = [flow.used * flow.controller.rate * STEP_S for flow in flows]
        room = capacity * STEP_S + queue_bytes - queue
        taken = min(1.0, room / sum(offers))
        for place, (flow, offer) in enumerate(zip(flows, offers, strict=True)):
            flow.sent += offer
            flow.arrived += offer * taken * (1 - loss)
            if now_s <= 1:
                begun[place] = flow.arrived
            flow.rates = (*flow.rates[-2000:], flow.controller.rate)
        queue = max(0.0, queue + sum(offers) * taken - capacity * STEP_S)
        if step % PULSE_STEPS == 0:
            for flow in flows:
                flow.controller.close_round(now, round(flow.sent - flow.told))
                flow.told = flow.sent
                due_s = now_s + TRIP_S + queue / capacity
                answers.append((due_s, flow, now, round(flow.sent), round(flow.arrived)))
        for answer in [answer for answer in answers if answer[0] <= now_s]:
            answers.remove(answer)
            _, flow, sent_ns, sent, arrived = answer
            flow.controller.hear(now, "r", sent_ns, sent, arrived)
    return [(flow.arrived - before) / (seconds - 1) for flow, before in zip(flows, begun, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("senders", [1, 2, 6])
@pytest.mark.parametrize(
    ("capacity", "queue_bytes"), [(2.5e6, 12_500), (12.5e6, 256_000), (125e6, 512_000)], ids=str
)
def test_senders_use_a_link_and_share_it(capacity: float, queue_bytes: float, senders: int) -> None:
    flows = [Flow(Controller()) for _ in range(senders)]
    got = share(flows, capacity=capacity, queue_bytes=queue_bytes, seconds=6)
    assert sum(got) > 0.7 * capacity
    assert min(got) > 0.8 * max(got)


def test_a_sender_that_comes_later_gets_its_share() -> None:
    first, second = Flow(Controller()), Flow(Controller())
    share([first], capacity=12.5e6, queue_bytes=256_000, seconds=3)
    got = share([first, second], capacity=12.5e6, queue_bytes=256_000, seconds=15, since_s=3)
    assert sum(got) > 0.7 * 12.5e6
    assert min(got) > 0.25 * max(got)


def test_where_slowing_down_does_not_help_losses_are_tolerated() -> None:
    (got,) = share([Flow(Controller())], capacity=12.5e6, queue_bytes=256_000, seconds=8, loss=0.1)
    assert got > 0.3 * 12.5e6
    flow = Flow(Controller())
    share([flow], capacity=2.5e6, queue_bytes=12_500, seconds=6, loss=0.2)
    assert TOLERATED < flow.controller._tolerated <= MOST_TOLERATED
    share([flow], capacity=125e6, queue_bytes=512_000, seconds=6, since_s=6)
    assert flow.controller._tolerated < 2 * TOLERATED, "and only as long as there are such losses"


def test_who_sends_little_gets_no_higher_rate() -> None:
    flow = Flow(Controller(), used=0.3)
    share([flow], capacity=125e6, queue_bytes=512_000, seconds=2)
    assert flow.controller.rate == FIRST_BYTES_S


def test_a_cap_is_kept() -> None:
    flow = Flow(Controller(3e6))
    share([flow], capacity=125e6, queue_bytes=512_000, seconds=2)
    assert max(flow.rates) == 3e6
    assert Controller(1.0).rate == FLOOR_BYTES_S


def answer(controller: Controller[str], now: int, sent: int, received: int, peer: str = "r") -> None:
    """An answer to a pulse of a millisecond ago."""
    controller.close_round(now - MS, 1 << 40)
    controller.hear(now, peer, now - MS, sent, received)


def test_the_first_answer_is_where_counting_begins() -> None:
    controller: Controller[str] = Controller()
    answer(controller, 10 * MS, 1_000_000, 0)
    answer(controller, 20 * MS, 1_010_000, 10_000)
    answer(controller, 30 * MS, 1_020_000, 20_000)
    assert controller.cuts == 0


def test_what_comes_late_is_not_lost() -> None:
    controller: Controller[str] = Controller()
    for step, received in enumerate((0, 10_000, 12_000, 30_000, 40_000)):
        answer(controller, (step + 1) * 10 * MS, step * 10_000, received)
    assert controller.cuts == 0
    assert controller.receivers["r"].lost == 0


def test_a_loss_is_confirmed_by_the_next_answer_and_counts_once() -> None:
    controller: Controller[str] = Controller()
    answer(controller, 10 * MS, 0, 0)
    answer(controller, 20 * MS, 10_000, 5_000)
    assert controller.cuts == 0
    answer(controller, 30 * MS, 20_000, 15_000)
    assert controller.cuts == 1
    assert controller.limiter == "r"
    for step in range(4, 8):
        answer(controller, step * 10 * MS, (step - 1) * 10_000, (step - 1) * 10_000 - 5_000)
    assert controller.cuts == 1


def test_one_datagram_does_not_slow_a_sender_down() -> None:
    receiver = Receiver()
    receiver.note(10_000, 10_000 - LEAST_BYTES, 10 * MS)
    receiver.note(10_000, 10_000, 10 * MS)
    assert receiver.lost == 0
    receiver.note(10_000, 10_000 - LEAST_BYTES, 10 * MS)
    receiver.note(10_000, 10_000, 10 * MS)
    assert receiver.lost > 0


def test_answers_that_were_overtaken_or_tell_of_a_past_rate_do_not_count() -> None:
    controller: Controller[str] = Controller()
    answer(controller, 10 * MS, 0, 0)
    answer(controller, 20 * MS, 50_000, 0)
    answer(controller, 30 * MS, 60_000, 10_000)
    assert controller.cuts == 1
    controller.hear(31 * MS, "r", 15 * MS, 30_000, 0)
    assert controller.receivers["r"].sent == 60_000
    controller.hear(40 * MS, "r", 30 * MS, 90_000, 10_000)
    controller.hear(50 * MS, "r", 45 * MS, 100_000, 20_000)
    assert controller.cuts == 1, "what was sent before the rate fell was lost then"


def test_an_answer_that_comes_twice_counts_once() -> None:
    """A repeated datagram that is late is no queue on the way."""
    controller: Controller[str] = Controller()
    answer(controller, 10 * MS, 0, 0)
    answer(controller, 20 * MS, 10_000, 10_000)
    receiver = controller.receivers["r"]
    before = receiver.trip_ns, receiver.answered_ns
    controller.hear(900 * MS, "r", 19 * MS, 10_000, 10_000)
    assert (receiver.trip_ns, receiver.answered_ns) == before


@pytest.mark.parametrize(
    ("sent", "received", "counts"),
    [
        pytest.param(20_000, 15_000, True, id="half of it"),
        pytest.param(20_000, 9_999, False, id="the receiver has counted less"),
        pytest.param(10_000, 10_500, False, id="nothing was sent"),
        pytest.param(9_000, 10_500, False, id="the sender has counted less"),
        pytest.param(10_001, 10_500, True, id="one byte was sent"),
    ],
)
def test_an_answer_counts_from_the_one_before_if_the_counters_have_grown(
    sent: int, received: int, counts: bool
) -> None:
    controller: Controller[str] = Controller()
    answer(controller, 10 * MS, 10_000, 10_000)
    answer(controller, 20 * MS, sent, received)
    assert (controller.receivers["r"].arriving != 0) == counts


def test_the_slowest_receiver_counts() -> None:
    controller: Controller[str] = Controller()
    for step in range(1, 6):
        now = step * 10 * MS
        controller.close_round(now - MS, 1 << 40)
        controller.hear(now, "good", now - MS, step * 50_000, step * 50_000)
        controller.hear(now, "bad", now - MS, step * 50_000, step * 25_000)
    assert controller.limiter == "bad"
    assert controller.rate < FIRST_BYTES_S
    controller.forget("bad")
    assert controller.limiter is None
    assert list(controller.receivers) == ["good"]


def test_the_rate_does_not_rise_while_a_queue_stands_on_the_way() -> None:
    controller: Controller[str] = Controller()
    rates = []
    for step in range(1, 30):
        sent_ns = step * 100 * MS
        trip_ns = MS if step < 3 else 2 * QUEUE_NS
        controller.close_round(sent_ns, 1 << 40)
        controller.hear(sent_ns + trip_ns, "r", sent_ns, step * 10_000, step * 10_000)
        rates.append(controller.rate)
    assert rates[4] > FIRST_BYTES_S
    assert rates[-1] == rates[-10]


def test_a_queue_on_the_way_to_a_receiver_that_answers_no_more_is_forgotten() -> None:
    """It has crashed, or answered one pulse very late and fallen silent. It stays a member for long."""
    controller: Controller[str] = Controller()
    rates = []
    for step in range(1, 60):
        now = step * 100 * MS
        controller.close_round(now, 1 << 40)
        answer(controller, now, step * 10_000, step * 10_000)
        if step < 3:
            trip_ns = MS if step == 1 else 10 * QUEUE_NS
            controller.hear(now + trip_ns, "silent", now, step * 10_000, step * 10_000)
        rates.append(controller.rate)
    assert rates[4] == rates[10] < rates[-1]


def risen(queue_ns: int) -> float:
    """How far the rate rises in half a second after a loss, with this queue on the way."""
    controller: Controller[str] = Controller()
    controller._is_starting = False
    controller._reached, controller.rate = 1_000_000.0, DECREASE * 1_000_000.0
    for step in range(1, 51):
        sent_ns = step * 10 * MS
        controller.close_round(sent_ns, 1 << 40)
        controller.hear(sent_ns + MS + (queue_ns if step > 2 else 0), "r", sent_ns, step * 1000, step * 1000)
    return controller.rate


def test_the_rate_rises_slowly_while_a_short_queue_stands_on_the_way() -> None:
    assert risen(STANDING_NS // 2) == risen(0)
    assert DECREASE * 1_000_000 < risen(2 * STANDING_NS) < 0.7 * risen(0)


def test_where_nobody_answers_any_more_the_rate_falls() -> None:
    controller: Controller[str] = Controller()
    answer(controller, 10 * MS, 10_000, 10_000)
    answer(controller, 20 * MS, 20_000, 20_000)
    controller.close_round(30 * MS, 1 << 40)
    rate = controller.rate
    controller.close_round(20 * MS + SILENCE_NS, 1 << 40)
    assert controller.rate == rate
    controller.close_round(21 * MS + SILENCE_NS, 1 << 40)
    assert controller.rate == rate / 2
    alone: Controller[str] = Controller()
    alone.close_round(10 * SILENCE_NS, 1 << 40)
    assert alone.rate == FIRST_BYTES_S


def test_a_receiver_that_cannot_keep_up_at_any_rate_is_left_behind_and_taken_back() -> None:
    controller: Controller[str] = Controller()
    now = sent = 0
    received = {"good": 0, "bad": 0}

    def pass_time(seconds: float, keeps: float) -> None:
        nonlocal now, sent
        for _ in range(round(seconds * 100)):
            now += 10 * MS
            sent += 50_000
            controller.close_round(now - MS, 1 << 40)
            received["good"] += 50_000
            received["bad"] += round(50_000 * keeps)
            for peer, count in received.items():
                controller.hear(now, peer, now - MS, sent, count)

    pass_time(3, keeps=0.3)
    assert controller.rate == FLOOR_BYTES_S
    assert controller.left_behind() == []
    pass_time(1 + PATIENCE_NS / SECOND_NS, keeps=0.3)
    assert controller.left_behind() == ["bad"]
    pass_time(2, keeps=0.3)
    assert controller.rate > 10 * FLOOR_BYTES_S, "the others go on without it"
    pass_time(1 + PATIENCE_NS / SECOND_NS, keeps=1.0)
    assert controller.left_behind() == []


def test_a_loss_leaves_most_of_the_rate() -> None:
    controller: Controller[str] = Controller()
    answer(controller, 10 * MS, 0, 0)
    answer(controller, 20 * MS, 10_000, 7_000)
    before = controller.rate
    answer(controller, 30 * MS, 20_000, 17_000)
    assert controller.cuts == 1
    assert controller.rate <= DECREASE * before * START
