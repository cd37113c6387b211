"""What was sent to each member, and what of it has come."""

from collections import Counter

from antiphon.live.congestion import Controller
from antiphon.live.members import Known
from antiphon.live.metering import HEARD_NS, MOST_ASKED, MOST_PULSES, PULSE_NS, Heard, Meter, Pulse


def member(name: str, boot: int) -> Known:
    return Known((boot, ("127.0.0.1", boot)), boot, name, ("127.0.0.1", boot), None, 0, 0)


def metered(count: int) -> tuple[Meter, Controller[Known], list[Known]]:
    controller: Controller[Known] = Controller()
    return Meter(controller), controller, [member(f"m{boot}", boot) for boot in range(1, count + 1)]


def ask(meter: Meter, now: int, members: list[Known]) -> Pulse:
    pulse = meter.pulse(now, members)
    assert pulse is not None
    meter.pulsed(now, pulse)
    return pulse


def test_pulses_keep_a_pause_and_ask_nobody_where_nobody_is() -> None:
    meter, _, members = metered(2)
    assert meter.pulse(PULSE_NS, []) is None
    assert meter.pulse(2 * PULSE_NS - 1, members) is None
    assert ask(meter, 2 * PULSE_NS, members).asked == (1, 2)


def test_an_answer_is_compared_with_what_was_sent_to_that_member_before_the_pulse() -> None:
    meter, controller, (a, b) = metered(2)
    meter.sent(None, 1000)
    meter.sent((b,), 500)
    pulse = ask(meter, PULSE_NS, [a, b])
    meter.sent(None, 7000)
    for known in (a, b):
        meter.hear(PULSE_NS + 1, known, Heard(pulse.serial, 900))
    assert (controller.receivers[a].sent, controller.receivers[b].sent) == (1000, 1500)
    meter.hear(PULSE_NS + 1, a, Heard(pulse.serial + 1, 5000))
    assert controller.receivers[a].received == 900, "no such pulse was sent"


def test_in_a_large_group_the_slowest_is_asked_each_time_and_the_others_by_turns() -> None:
    meter, controller, members = metered(20)
    controller.limiter = members[7]
    asked: set[int] = set()
    for turn in range(1, 20):
        pulse = ask(meter, turn * PULSE_NS, members)
        assert pulse.asked[0] == 8
        assert len(pulse.asked) <= MOST_ASKED
        asked.update(pulse.asked)
    assert len(asked) == 20


def test_members_that_crashed_do_not_keep_others_from_being_asked() -> None:
    meter, _, members = metered(1000)
    alive = members[::400]
    asked: Counter[int] = Counter()
    for turn in range(1, 2000):
        now = HEARD_NS + turn * PULSE_NS
        for known in alive:
            known.heard_ns = now
        asked.update(ask(meter, now, members).asked)
    assert [asked[known.boot] for known in alive] == [1999] * len(alive)
    assert len(asked) == 1000, "a member that is only quiet is asked as well"


def test_where_all_have_been_silent_one_is_asked_at_a_time() -> None:
    meter, _, members = metered(10)
    asked = [ask(meter, HEARD_NS + turn * PULSE_NS, members).asked for turn in range(1, 11)]
    assert sorted(asked) == [(boot,) for boot in range(1, 11)]


def test_pulses_are_remembered_up_to_a_limit_and_members_while_they_are_there() -> None:
    meter, controller, (a, b) = metered(2)
    for turn in range(1, 2 * MOST_PULSES):
        meter.sent((a, b), 10)
        pulse = ask(meter, turn * PULSE_NS, [a, b])
    assert len(meter._pulses) == MOST_PULSES
    meter.hear(turn * PULSE_NS, a, Heard(pulse.serial, 10))
    assert meter.known() == {a, b}
    meter.forget([a])
    assert meter.known() == {b}
    assert not controller.receivers
