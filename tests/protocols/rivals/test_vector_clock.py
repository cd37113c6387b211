"""CBCAST: each rule between fakes, and small groups driven by hand."""

from dataclasses import replace
from typing import Any

import pytest

from antiphon.core.effects import Admitted, Arrived, Deliver
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received, Start
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.rivals.vector_clock import PDUS, VectorClock, VectorClockConfiguration
from antiphon.protocols.rivals.vector_clock.pdus import Delivered, Message
from tests.protocols.harness.fixed_group import Group

KNOBS = VectorClockConfiguration()
RELIABLE = replace(KNOBS, reliable_network=True)
BATCH = pack([b"x"])
LONG_MS = 20 * KNOBS.repeat_ns / MILLISECOND_NS


def group(size: int = 3, knobs: VectorClockConfiguration = KNOBS) -> Group:
    return Group(lambda name, names: VectorClock(name, names, knobs), size)


def test_a_message_waits_for_what_its_sender_had_delivered() -> None:
    members = group(3, RELIABLE)
    members.held = lambda source, target, _pdu: (source, target) == ("a", "c")
    members.send("a")
    members.settle()
    members.send("b")
    members.settle()
    assert members.delivered("b") == ["a0", "b0"]
    assert members.delivered("c") == []
    members.held = lambda *_: False
    members.settle()
    assert members.delivered("c") == ["a0", "b0"]


def test_concurrent_messages_wait_for_nobody() -> None:
    members = group(3, RELIABLE)
    members.held = lambda source, target, _pdu: (source, target) == ("a", "c")
    members.send("a")
    members.send("b")
    members.settle()
    assert members.delivered("c") == ["b0"]
    assert members.delivered("b") == ["b0", "a0"]


def test_everything_goes_to_everyone_and_is_delivered_where_it_is_meant_to_be() -> None:
    members = group(4, RELIABLE)
    admitted = members.send("a", "bd", b"x", b"y")[0]
    assert admitted == Admitted(0, 2, 2, frozenset("bd"))
    members.settle()
    assert members.sent["Message"] == 3
    assert [members.delivered(name) for name in "abcd"] == [[], ["a0", "a1"], [], ["a0", "a1"]]
    delivery = next(effect for effect in members.effects["b"] if isinstance(effect, Deliver))
    assert delivery.destinations == frozenset("bd")


def test_order_holds_across_a_member_that_was_not_meant() -> None:
    """b sends after a message that was not for it: it counts in its vector all the same."""
    members = group(3, RELIABLE)
    members.held = lambda source, target, _pdu: (source, target) == ("a", "c")
    members.send("a", "c")
    members.settle()
    members.send("b", "c")
    members.settle()
    assert members.delivered("c") == []
    members.held = lambda *_: False
    members.settle()
    assert members.delivered("c") == ["a0", "b0"]


def test_a_message_is_stable_once_all_have_said_that_they_delivered_it() -> None:
    members = group(3, RELIABLE)
    members.send("a")
    members.settle()
    assert members.stable("a") == []
    members.lost = lambda source, _target, pdu: source == "c" and isinstance(pdu, Delivered)
    members.pass_time(KNOBS.confirm_ns / MILLISECOND_NS)
    assert members.sent["Delivered"] == 4
    assert members.stable("a") == members.stable("b") == []
    members.lost = lambda *_: False
    members.send("c")
    members.settle()
    assert "a0" in members.stable("a")


def test_a_message_takes_the_news_along_and_no_confirmation_goes() -> None:
    members = group(3, RELIABLE)
    members.send("a")
    members.settle()
    members.send("b")
    members.send("c")
    members.settle()
    assert members.stable("a") == ["a0"]
    members.pass_time(LONG_MS)
    # b and c delivered each other's message after they had sent their own; a delivered both.
    assert members.sent["Delivered"] == 3 * 2


def test_a_full_window_refuses_until_something_is_stable() -> None:
    members = group(2, replace(RELIABLE, window=2))
    for _ in range(3):
        members.send("a")
    assert members.rejected("a") == 1
    members.pass_time(LONG_MS)
    members.send("a")
    assert members.rejected("a") == 1
    assert members.delivered("a") == ["a0", "a1", "a2"]


def test_links_make_up_for_losses_also_of_the_last() -> None:
    members = group(3)
    lost: list[Pdu] = []

    def lose_each_once(_source: str, _target: str, pdu: Pdu) -> bool:
        fresh = isinstance(pdu, Message | Delivered) and not any(pdu is other for other in lost)
        lost.append(pdu)
        return fresh and len(lost) % 2 == 1

    members.lost = lose_each_once
    for sender in "abc":
        members.send(sender)
    members.pass_time(LONG_MS)
    for name in "abc":
        assert sorted(members.delivered(name)) == ["a0", "b0", "c0"]
        assert sorted(members.stable(name)) == ["a0", "b0", "c0"]
    assert sum(members.figure(name, "repeats") for name in "abc") > 0


def test_whoever_is_away_is_waited_for() -> None:
    members = group(3)
    members.depart("c")
    members.send("a")
    members.pass_time(LONG_MS)
    assert members.delivered("b") == ["a0"]
    assert members.stable("b") == []
    members.come_back("c")
    members.pass_time(LONG_MS)
    assert members.delivered("c") == ["a0"]
    assert members.stable("b") == ["a0"]


def test_on_a_reliable_network_nothing_is_acknowledged() -> None:
    members = group(3, RELIABLE)
    members.send("a")
    members.pass_time(LONG_MS)
    assert set(members.sent) == {"Message", "Delivered"}


NONSENSE: dict[str, Pdu] = {
    "a short vector": Message(1, 0, 0, (0, 0), None, BATCH),
    "a negative number": Message(1, 0, 0, (0, -1, 0), None, BATCH),
    "a huge number": Message(1, 0, 0, (0, 1 << 63, 0), None, BATCH),
    "not its sender's next message": Message(1, 0, 0, (7, 0, 0), None, BATCH),
    "a destination that no member has": Message(1, 0, 0, (0, 0, 0), (3,), BATCH),
    "one destination twice": Message(1, 0, 0, (0, 0, 0), (1, 1), BATCH),
    "no destination": Message(1, 0, 0, (0, 0, 0), (), BATCH),
    "a confirmation without a vector": Delivered(1, 0, 0, ()),
    "a position that does not exist": Message(-1, 0, 0, (0, 0, 0), None, BATCH),
    "something else": Pdu(),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_counted_and_dropped(name: str) -> None:
    members = group(3)
    effects = members.give("b", Received("a", NONSENSE[name]))
    assert not [effect for effect in effects if isinstance(effect, Deliver | Arrived)]
    assert members.figure("b", "ignored") == 1


def test_strangers_and_oneself_are_not_listened_to() -> None:
    members = group(3)
    for sender in ("z", "b"):
        members.give("b", Received(sender, Message(1, 0, 0, (0, 0, 0), None, BATCH)))
    assert members.figure("b", "ignored") == 2
    assert members.delivered("b") == []


def test_what_waits_for_its_past_is_bounded() -> None:
    members = group(3, replace(RELIABLE, window=4))
    for number in range(50):
        members.give("b", Received("a", Message(0, 0, 0, (number, 0, 1), None, BATCH)))
    assert members.figure("b", "pending") == 4
    assert members.delivered("b") == []


@pytest.mark.parametrize(
    "wrong",
    [{"window": 0}, {"confirm_ns": 0}, {"acknowledge_ns": 0}, {"repeat_ns": -1}],
)
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        VectorClockConfiguration(**wrong)


def test_a_member_begins_once_and_never_anew() -> None:
    member = VectorClock("a", ("a", "b"), KNOBS)
    with pytest.raises(UsageError, match="reliable"):
        member.handle(0, Start(incarnation=1))
    member.handle(0, Start())
    with pytest.raises(UsageError, match="already"):
        member.handle(0, Start())


@pytest.mark.parametrize(
    "pdu",
    [Message(3, 2, 1, (1, 2, 3), (0, 2), BATCH), Message(3, 2, 1, (1, 2, 3), None, BATCH),
     Delivered(1, 2, 1, (4, 5, 6))],
)  # fmt: skip
def test_pdus_come_back_as_they_were_sent(pdu: Pdu) -> None:
    packet = Codec(PDUS).decode(Codec(PDUS).encode(pdu))
    assert isinstance(packet, Packet)
    assert packet.pdu == pdu
