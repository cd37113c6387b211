"""CO: each rule between fakes, and small groups driven by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from antiphon.core.effects import Admitted, Arrived, Deliver
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received, Start
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Codec, Packet, Pdu
from antiphon.protocols.rivals.co import PDUS, Co, CoConfiguration
from antiphon.protocols.rivals.co.pdus import Ask, Control, Data
from tests.protocols.harness.fixed_group import Group

KNOBS = CoConfiguration()
BATCH = pack([b"x"])
CONFIRM_MS = KNOBS.confirm_ns / MILLISECOND_NS
LONG_MS = 10 * KNOBS.heartbeat_ns / MILLISECOND_NS


def group(size: int = 3, knobs: CoConfiguration = KNOBS) -> Group:
    return Group(lambda name, names: Co(name, names, knobs), size)


def first_of(pdu: Pdu, number: int) -> bool:
    return isinstance(pdu, Data) and pdu.number == number


def test_section_3_3_acceptance_numbers_tell_what_precedes_a_message() -> None:
    """p precedes q of another sender exactly if p's number is below what q says to be accepted of p's."""
    members = group(3)
    members.held = lambda source, target, _pdu: (source, target) == ("a", "c")
    members.send("a", None, b"1", b"2")
    members.settle()
    (data,) = (pdu for source, _, pdu in members.travelling if isinstance(pdu, Data) and source == "a")
    members.send("b")
    after = next(pdu for source, _, pdu in members.travelling if isinstance(pdu, Data) and source == "b")
    assert data.number < after.accepted[0] == 2
    members.send("c")
    concurrent = next(pdu for source, _, pdu in members.travelling if isinstance(pdu, Data) and source == "c")
    assert not data.number < concurrent.accepted[0]


def test_a_message_waits_for_what_precedes_it() -> None:
    members = group(3)
    members.held = lambda source, target, pdu: (source, target) == ("a", "c") and isinstance(pdu, Data)
    members.send("a")
    members.settle()
    members.send("b")
    members.pass_time(2 * CONFIRM_MS)
    assert members.delivered("c") == []
    members.held = lambda *_: False
    members.pass_time(LONG_MS)
    assert members.delivered("c") == ["a0", "b0"]


def test_nothing_is_delivered_before_all_are_known_to_have_accepted_it() -> None:
    members = group(3)
    members.lost = lambda source, _target, pdu: source == "c" and isinstance(pdu, Control)
    members.send("a", None, b"1", b"2", b"3")
    members.pass_time(LONG_MS)
    assert members.delivered("a") == members.delivered("b") == []
    assert members.delivered("c") == ["a0", "a1", "a2"]
    members.lost = lambda *_: False
    members.pass_time(LONG_MS)
    assert members.delivered("a") == members.delivered("b") == members.stable("a") == ["a0", "a1", "a2"]


def test_data_takes_confirmations_along() -> None:
    members = group(2)
    members.send("a")
    members.settle()
    members.send("b")
    members.settle()
    assert members.delivered("a") == ["a0", "b0"]
    assert members.delivered("b") == ["a0"]  # nothing has told b that a has its message
    assert members.sent["Control"] == 0


def test_everything_goes_to_everyone_and_is_delivered_where_it_is_meant_to_be() -> None:
    members = group(4)
    assert members.send("a", "bd")[0] == Admitted(0, 1, 1, frozenset("bd"))
    members.pass_time(LONG_MS)
    assert members.sent["Data"] == 3
    assert [members.delivered(name) for name in "abcd"] == [[], ["a0"], [], ["a0"]]
    assert [members.stable(name) for name in "abcd"] == [["a0"]] * 4


def test_what_is_for_others_holds_nothing_up() -> None:
    """a's own message is not for a: what b sends meanwhile need not wait until that is confirmed."""
    members = group(3)
    members.send("a", "bc")
    members.send("b", "a")
    members.held = lambda source, target, pdu: (source, target) == ("a", "c") and first_of(pdu, 0)
    members.pass_time(2 * CONFIRM_MS)
    assert members.stable("a") == ["b0"]
    assert members.delivered("a") == ["b0"]


Lost = Callable[[str, str, Pdu], bool]
FINDINGS: dict[str, tuple[int, Lost, Lost]] = {
    "a gap": (2, lambda _, to, pdu: to == "c" and first_of(pdu, 0), lambda *_: False),
    "what another has accepted": (
        1,
        lambda source, to, _: (source, to) == ("a", "c"),
        lambda source, to, pdu: (source, to) == ("a", "c") and not isinstance(pdu, Data),
    ),
    "a heartbeat": (
        1,
        lambda source, to, pdu: (source, to) == ("b", "c") or (to == "c" and first_of(pdu, 0)),
        lambda source, to, _: (source, to) == ("b", "c"),
    ),
}
"""How c can find that it has missed a's message: how many a sends, and what is lost then and afterwards."""


@pytest.mark.parametrize("name", FINDINGS)
def test_a_loss_is_found_by(name: str) -> None:
    count, lost_first, lost_later = FINDINGS[name]
    members = group(3)
    members.lost = lost_first
    for _ in range(count):
        members.send("a")
    members.settle()
    members.lost = lost_later
    members.pass_time(LONG_MS)
    assert members.figure("c", "asks") >= 1
    assert members.figure("a", "repeats") == members.figure("c", "asks")
    members.lost = lambda *_: False
    members.pass_time(LONG_MS)
    assert "a0" in members.delivered("c")


def test_whoever_is_away_is_waited_for() -> None:
    members = group(3)
    members.depart("c")
    members.send("a")
    members.pass_time(LONG_MS)
    assert members.delivered("b") == []
    members.come_back("c")
    members.pass_time(LONG_MS)
    assert members.delivered("a") == members.delivered("b") == members.delivered("c") == ["a0"]


def test_a_full_window_refuses_until_something_is_confirmed() -> None:
    members = group(2, replace(KNOBS, window=2))
    for _ in range(3):
        members.send("a")
    assert members.rejected("a") == 1
    assert members.figure("a", "kept") == 2
    members.pass_time(LONG_MS)
    members.send("a")
    assert members.rejected("a") == 1


def test_what_is_accepted_and_not_delivered_is_bounded() -> None:
    """c never hears of b, while a and b go on: it stops accepting, and goes on once it hears of b."""
    members = group(3, replace(KNOBS, window=1))
    members.lost = lambda source, target, _pdu: (source, target) == ("b", "c")
    for _ in range(20):
        members.send("a")
        members.pass_time(CONFIRM_MS)
    assert members.figure("c", "undelivered") == replace(KNOBS, window=1).reach
    assert members.rejected("a") > 0
    members.lost = lambda *_: False
    members.pass_time(LONG_MS)
    assert members.delivered("c") == members.delivered("a") != []
    assert members.figure("c", "undelivered") == 0


NONSENSE: dict[str, Pdu] = {
    "a short vector": Data(0, (0, 0), None, BATCH),
    "a negative number": Data(0, (0, -1, 0), None, BATCH),
    "a huge number": Control((0, 0, 1 << 62)),
    "a number that is not what its sender has": Data(3, (0, 0, 0), None, BATCH),
    "having accepted what was never sent": Data(0, (0, 1, 0), None, BATCH),
    "a destination that no member has": Data(0, (0, 0, 0), (3,), BATCH),
    "a request for nothing": Ask(2, 2),
    "a request from below": Ask(-1, 2),
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
        members.give("b", Received(sender, Data(0, (0, 0, 0), None, BATCH)))
    assert members.figure("b", "ignored") == 2


def test_a_stream_with_a_hole_is_held_only_so_far() -> None:
    members = group(3, replace(KNOBS, window=1))
    for number in range(1, 50):
        members.give("b", Received("a", Data(number, (number, 0, 0), None, BATCH)))
    assert members.figure("b", "ignored") == 49 - replace(KNOBS, window=1).reach


@pytest.mark.parametrize("wrong", [{"window": 0}, {"confirm_ns": 0}, {"heartbeat_ns": 0}, {"repair_ns": -1}])
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        CoConfiguration(**wrong)


def test_a_member_begins_once_and_never_anew() -> None:
    member = Co("a", ("a", "b"), KNOBS)
    with pytest.raises(UsageError, match="reliable"):
        member.handle(0, Start(incarnation=1))
    member.handle(0, Start())
    with pytest.raises(UsageError, match="already"):
        member.handle(0, Start())


@pytest.mark.parametrize(
    "pdu", [Data(3, (1, 3, 0), (0, 2), BATCH), Data(3, (1, 3, 0), None, BATCH), Control((1, 2)), Ask(1, 2)]
)
def test_pdus_come_back_as_they_were_sent(pdu: Pdu) -> None:
    packet = Codec(PDUS).decode(Codec(PDUS).encode(pdu))
    assert isinstance(packet, Packet)
    assert packet.pdu == pdu
