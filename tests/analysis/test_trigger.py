"""The trigger: the text's threshold and the sound one, judged by a buffer that is followed round by round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.analysis.trigger import (
    Trigger,
    is_sound,
    simulate_buffer,
    sound_threshold,
    text_threshold,
)
from antiphon.core.errors import UsageError
from antiphon.core.time import MILLISECOND_NS, SECOND_NS

CAPACITY = 640


def test_the_text_s_threshold_overflows_where_rounds_follow_one_another() -> None:
    """Chapter 6 with alpha = 0.2, r = 60, g = 640, f = 2: only the second round was looked at."""
    threshold = text_threshold(CAPACITY, 60, 2, 0.2)
    assert threshold == pytest.approx(500)
    assert simulate_buffer(threshold, 60, 2, 0.2, rounds=2).peak <= CAPACITY
    assert simulate_buffer(threshold, 60, 2, 0.2).peak == pytest.approx(720)
    assert sound_threshold(CAPACITY, 60, 2, 0.2) is None


def test_the_figures_of_chapter_6() -> None:
    """Figure 6.1: g - 2r; figure 6.2: the lesser of it and (640 - 4r) / 0.8, from r = 64 on."""
    assert [text_threshold(CAPACITY, rate, 2, 1.0) for rate in (10, 50, 100)] == [620, 540, 440]
    assert [text_threshold(CAPACITY, rate, 2, 0.2) for rate in (10, 50, 100)] == pytest.approx(
        [620, 540, 300]
    )
    assert text_threshold(CAPACITY, 10, 2, 0.0) == CAPACITY - 40


@given(
    rate=st.floats(0, 200),
    duration_s=st.floats(0, 10),
    share=st.floats(0.01, 1),
    capacity=st.floats(1, 2000),
)
def test_the_sound_threshold_never_overflows_and_a_larger_one_does(
    rate: float, duration_s: float, share: float, capacity: float
) -> None:
    threshold = sound_threshold(capacity, rate, duration_s, share)
    if threshold is None:
        # Nothing helps: not even rounds that begin with an empty buffer and never pause.
        assert simulate_buffer(0, rate, duration_s, share, rounds=4000).peak >= capacity * (1 - 1e-9)
    else:
        assert simulate_buffer(threshold, rate, duration_s, share).peak <= capacity * (1 + 1e-9)
        larger = threshold + 0.01 * capacity
        assert simulate_buffer(larger, rate, duration_s, share).peak > capacity


def test_nothing_released_is_sound_only_if_nothing_is_sent() -> None:
    assert is_sound(10, 0, 1, 0.0)
    assert not is_sound(10, 1, 1, 0.0)


@pytest.mark.parametrize("arguments", [(0, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, 1.1)])
def test_what_makes_no_sense_is_told(arguments: tuple[float, float, float, float]) -> None:
    with pytest.raises(UsageError):
        sound_threshold(*arguments)
    with pytest.raises(UsageError):
        text_threshold(*arguments)


class Sender:
    """A sender at a constant rate whose rounds take a constant time, driven by a `Trigger`."""

    def __init__(self, capacity: int, per_ms: int, duration_ms: int, share: float) -> None:
        self.trigger = Trigger(capacity)
        self.fill = self.peak = 0
        self.per_ms = per_ms
        self._duration_ms = duration_ms
        self._share = share
        self._covered = 0
        self._ends_at_ms: int | None = None
        self._now_ms = 0

    def run(self, milliseconds: int) -> None:
        for _ in range(milliseconds):
            self._now_ms += 1
            now = self._now_ms * MILLISECOND_NS
            self.fill += self.per_ms
            self.trigger.sent(now, self.per_ms)
            self.peak = max(self.peak, self.fill)
            if self._ends_at_ms == self._now_ms:
                released = int(self._covered * self._share)
                self.fill -= released
                self.trigger.round_ended(now, released)
                self._ends_at_ms = None
            if self.trigger.due(self.fill):
                self.trigger.round_began(now)
                self._covered = self.fill
                self._ends_at_ms = self._now_ms + self._duration_ms


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_a_live_trigger_learns_the_threshold_and_never_overflows(share: float) -> None:
    sender = Sender(capacity=10_000, per_ms=10, duration_ms=200, share=share)
    sender.run(20_000)
    assert sender.peak <= 10_000
    assert sender.trigger.is_sound
    assert sender.trigger.rate_per_s == pytest.approx(10_000, rel=0.05)
    assert sender.trigger.duration_ns == pytest.approx(200 * MILLISECOND_NS, rel=0.01)
    assert sender.trigger.released_share == pytest.approx(share, rel=0.01)
    assert sender.trigger.threshold == pytest.approx(8000, rel=0.05)


def test_a_live_trigger_says_when_no_threshold_is_sound_and_never_pauses() -> None:
    sender = Sender(capacity=10_000, per_ms=30, duration_ms=200, share=0.5)
    sender.run(10_000)
    assert sender.trigger.is_sound is False
    # Round on round: 10 s hold 50 rounds of 200 ms, but for the fill before the first.
    assert sender.trigger.rounds >= 45


def test_a_live_trigger_follows_a_rate_that_rises() -> None:
    sender = Sender(capacity=10_000, per_ms=5, duration_ms=200, share=1.0)
    sender.run(5_000)
    before = sender.trigger.threshold
    sender.per_ms = 20
    sender.run(5_000)
    assert before > 8500 > sender.trigger.threshold


def test_a_pause_does_not_make_the_trigger_forget_the_rate() -> None:
    sender = Sender(capacity=10_000, per_ms=10, duration_ms=200, share=1.0)
    sender.run(5_000)
    before = sender.trigger.threshold
    sender.trigger.sent(100 * SECOND_NS, 10)
    assert sender.trigger.threshold == pytest.approx(before, rel=0.05)


def test_before_the_first_round_half_the_capacity_is_the_threshold() -> None:
    trigger = Trigger(100)
    assert (trigger.threshold, trigger.due(49), trigger.due(50)) == (50, False, True)
    assert trigger.is_sound is None


def test_no_round_is_due_while_one_is_under_way() -> None:
    trigger = Trigger(100)
    trigger.round_began(0)
    assert not trigger.due(100)
    trigger.round_ended(1, 100)
    assert trigger.due(100)


def test_an_end_without_a_beginning_measures_nothing() -> None:
    trigger = Trigger(100)
    trigger.round_ended(5, 10)
    assert (trigger.rounds, trigger.duration_ns) == (0, None)


def test_the_threshold_stays_between_its_shares_whatever_is_measured() -> None:
    slow, idle = Trigger(1000), Trigger(1000)
    for trigger, amount in ((slow, 10_000), (idle, 0)):
        for second in range(5):
            trigger.sent(second * SECOND_NS, amount)
            trigger.round_began(second * SECOND_NS)
            trigger.round_ended(second * SECOND_NS + SECOND_NS // 2, amount)
    assert slow.threshold == 1000 // 16
    assert idle.threshold == 875


@pytest.mark.parametrize(
    "options", [{"capacity": 0}, {"capacity": 5, "least_share": 0.9}, {"capacity": 5, "window_ns": 0}]
)
def test_a_trigger_that_makes_no_sense_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Trigger(**options)
