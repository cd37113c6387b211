"""Guo, section 4.2.1: Amoeba's, PA's and Tandem's ways, as options of the fixed sequencer."""

from typing import Any

from antiphon.core.effects import Deliver, Multicast, Rejected, Send
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.sequencer import SequencerConfiguration
from antiphon.protocols.sequencer.pdus import Acknowledge, Ordered
from tests.protocols.harness.sequencer_group import Group

REPEAT_MS = SequencerConfiguration().repeat_ns / MILLISECOND_NS


class LoseFirst:
    """Loses the first copy of one place of the order on its way to c."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __call__(self, _source: str, target: str, pdu: Pdu) -> bool:
        lost = target == "c" and isinstance(pdu, Ordered) and pdu.position == self._place
        if lost:
            self._place = -1
        return lost


def sent(group: Group, name: str, kind: type[Pdu]) -> list[Any]:
    return [each for each in group.effects[name] if isinstance(each, Send) and isinstance(each.pdu, kind)]


def delivered(group: Group, name: str) -> list[int]:
    return [each.number for each in group.effects[name] if isinstance(each, Deliver)]


def three(group: Group) -> None:
    group.lost = LoseFirst(1)
    for _ in range(3):
        group.admit("a")
        group.settle()


def test_with_receipts_each_entry_is_acknowledged_and_nothing_is_asked_for() -> None:
    group = Group(3, SequencerConfiguration(receipts=True))
    three(group)
    group.pass_time(REPEAT_MS / 2)
    assert len(sent(group, "b", Acknowledge)) == 3
    assert delivered(group, "c") == [0]
    group.pass_time(3 * REPEAT_MS)
    assert delivered(group, "c") == [0, 1, 2]
    assert not any(each.pdu.missing for each in sent(group, "c", Acknowledge))
    (again, *_) = sent(group, "a", Ordered)
    assert (again.to, again.pdu.position) == ("c", 1)


def test_without_receipts_the_gap_is_asked_for_at_once() -> None:
    group = Group(3)
    three(group)
    group.pass_time(REPEAT_MS / 2)
    assert delivered(group, "c") == [0, 1, 2]
    assert any(each.pdu.missing == (1,) for each in sent(group, "c", Acknowledge))


def test_a_receipt_that_was_lost_is_given_again() -> None:
    group = Group(3, SequencerConfiguration(receipts=True))
    group.lost = lambda source, _target, pdu: source == "c" and isinstance(pdu, Acknowledge)
    group.admit("a")
    group.settle()
    group.lost = lambda _source, _target, _pdu: False
    group.pass_time(3 * REPEAT_MS)
    assert group.members["a"].figures()["kept_bytes"] == 0


def test_a_window_of_one_sends_one_message_at_a_time() -> None:
    group = Group(3, SequencerConfiguration(window=1))
    group.admit("b")
    assert any(isinstance(each, Rejected) for each in group.admit("b"))
    group.settle()
    assert not any(isinstance(each, Rejected) for each in group.admit("b"))


def test_in_lock_step_the_next_message_waits_until_all_hold_the_last_one() -> None:
    group = Group(4, SequencerConfiguration(receipts=True, window=1, order_window=1))
    group.deaf.add(("c", Ordered))
    for name in "bd":
        group.admit(name)
    group.pass_time(5 * REPEAT_MS)

    def places() -> set[int]:
        multicasts = [each.pdu for each in group.effects["a"] if isinstance(each, Multicast)]
        return {pdu.position for pdu in multicasts if isinstance(pdu, Ordered)}

    assert places() == {0}
    group.deaf.clear()
    group.pass_time(5 * REPEAT_MS)
    assert places() == {0, 1}
    assert len(delivered(group, "c")) == 2
