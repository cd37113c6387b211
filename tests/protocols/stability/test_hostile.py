"""The stability protocols and numbers that leap: lies cannot use up the rounds, nor the counts."""

from random import Random
from typing import Any

import numpy as np
import pytest

from antiphon.core.effects import Missing, Send, Stable
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.inputs import Received, RoundTriggered, TimerFired
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Codec, Pdu
from antiphon.protocols.stability import PDUS, PROTOCOLS, Setting
from antiphon.protocols.stability.base import FIRST_LIMIT, MOST_AHEAD, WIRE_COUNTS, Objective, read_counts
from antiphon.protocols.stability.coordp import Acknowledgement, Information, StartRound
from antiphon.protocols.stability.fulldist import Purpose, Row
from antiphon.protocols.stability.gossip import Outcome, Rumour
from antiphon.protocols.stability.s_coordp import ChildReport
from antiphon.protocols.stability.s_gossip import GroupRumour, LocalOutcome
from antiphon.protocols.stability.s_train import SiblingReport
from antiphon.protocols.stability.train import Carriage, Receipt
from tests.protocols.harness.gate import pass_gate

MEMBERS = tuple("abcd")
SIZE = len(MEMBERS)
CODEC = Codec(PDUS)


def counts(*values: int) -> bytes:
    return np.array(values or [0] * SIZE, WIRE_COUNTS).tobytes()


def build(name: str, objective: Objective = Objective.LEAST, site: str = "b") -> Any:
    setting = Setting(
        site=site,
        members=MEMBERS,
        view=5,
        objective=objective,
        repeat_ns=10 * MILLISECOND_NS,
        round_ns=10 * MILLISECOND_NS,
        random=Random(1),
        steady=True,
    )
    layer = PROTOCOLS[name].make(setting)
    layer.begin([3] * SIZE, [0] * SIZE)
    return layer


def words(name: str, number: int, told: bytes) -> list[tuple[str, Pdu]]:
    """What may be said of a round, and who may say it to b."""
    bit, all_bits = b"\x01", b"\x0f"
    said: dict[str, list[tuple[str, Pdu]]] = {
        "coordp": [("a", StartRound(number, 5)), ("a", Information(number, told, 5))],
        "fulldist": [
            ("a", Row(number, told, view=5)),
            ("c", Row(number, told, Purpose.ASK, all_bits, view=5)),
            ("c", Row(number, told, Purpose.RESULT, view=5)),
        ],
        "train": [
            ("a", Carriage(number, 0, told, view=5)),
            ("c", Carriage(number, 0, told, result=True, view=5)),
        ],
        "gossip": [("c", Rumour(number, bit, told, 5)), ("c", Outcome(number, told, view=5))],
        "s-coordp": [
            ("a", StartRound(number, 5)),
            ("c", ChildReport(number, told, view=5)),
            ("c", Information(number, told, 5)),
        ],
        "s-train": [
            ("a", StartRound(number, 5)),
            ("c", SiblingReport(number, told, view=5)),
            ("c", Information(number, told, 5)),
        ],
        "s-gossip": [
            ("a", Rumour(number, bit, told, 5)),
            ("a", LocalOutcome(number, told, view=5)),
            ("c", GroupRumour(number, bit, told, view=5)),
            ("c", Outcome(number, told, view=5)),
        ],
    }
    return said[name]


WORDS = [(name, which) for name in PROTOCOLS if "-a" not in name and "-h" not in name
         for which in range(len(words(name, 0, counts())))]  # fmt: skip
every_word = pytest.mark.parametrize(("name", "which"), WORDS)


def hear(layer: Any, name: str, which: int, number: int, told: bytes = b"") -> int:
    """The greatest round known after a PDU."""
    sender, pdu = words(name, number, told or counts())[which]
    received = pass_gate(CODEC, sender, pdu)
    assert received is not None
    layer.handle(0, received)
    found: int = layer._round
    return found


@every_word
def test_a_round_that_leaps_is_not_heard_of(name: str, which: int) -> None:
    layer = build(name)
    first = FIRST_LIMIT - FIRST_LIMIT % SIZE
    assert hear(layer, name, which, first + SIZE) <= 0
    assert layer.ignored == 1
    before = hear(layer, name, which, first - SIZE)
    assert before >= first - SIZE
    furthest = before + MOST_AHEAD - (before + MOST_AHEAD) % SIZE
    assert hear(layer, name, which, furthest + SIZE) == before
    assert layer.ignored == 2
    assert hear(layer, name, which, furthest) >= furthest
    assert layer.ignored == 2


@pytest.mark.parametrize("name", ["coordp", "train", "s-coordp", "s-train", "fulldist"])
def test_an_answer_to_a_round_that_leaps_uses_up_no_numbers(name: str) -> None:
    layer = build(name, site="a")
    layer.handle(0, RoundTriggered())
    before = layer._round
    stray: dict[str, Pdu] = {
        "coordp": Acknowledgement(before + 2 * SIZE + MOST_AHEAD, counts(), 5),
        "train": Receipt(before + 2 * SIZE + MOST_AHEAD, 0, view=5),
        "s-coordp": ChildReport(before + 2 * SIZE + MOST_AHEAD, counts(), view=5),
        "s-train": SiblingReport(before + 2 * SIZE + MOST_AHEAD, counts(), view=5),
        "fulldist": Row(before + 2 * SIZE + MOST_AHEAD, counts(), view=5),
    }
    layer._round = before = SIZE
    layer.handle(0, Received("b", stray[name]))
    assert layer._round == before
    assert layer.ignored == 1


@every_word
def test_how_far_something_was_seen_has_a_limit(name: str, which: int) -> None:
    layer = build(name, Objective.GREATEST)
    hear(layer, name, which, SIZE, counts(*[NUMBER_LIMIT] * SIZE))
    assert layer.ignored == (0 if isinstance(words(name, 0, b"")[which][1], StartRound) else 1)
    hear(layer, name, which, SIZE, counts(*[NUMBER_LIMIT - 1] * SIZE))
    assert layer.ignored == (0 if isinstance(words(name, 0, b"")[which][1], StartRound) else 1)


def test_an_answer_with_impossible_counts_is_none() -> None:
    layer = build("coordp", Objective.GREATEST, site="a")
    layer.handle(0, RoundTriggered())
    layer.handle(0, Received("b", Acknowledgement(layer._round, counts(*[NUMBER_LIMIT] * SIZE), 5)))
    assert layer.ignored == 1
    layer.handle(0, Received("b", Acknowledgement(layer._round, counts(*[NUMBER_LIMIT - 1] * SIZE), 5)))
    assert layer.ignored == 1


def test_what_was_seen_is_revised_and_what_is_stable_is_not() -> None:
    layer = build("coordp", Objective.GREATEST)
    assert layer._declare(read_counts(counts(9, 3, 2, 5))) == [Missing("a", 3, 6), Missing("d", 3, 2)]
    assert layer._declare(read_counts(counts(9, 3, 2, 5))) == []
    assert layer._declare(read_counts(counts(4, 3, 2, 6))) == [Missing("d", 5, 1)]
    assert layer.stable == (4, 3, 2, 6)
    assert layer._declare(read_counts(counts(6, 3, 2, 6))) == [Missing("a", 4, 2)]
    assert layer._result(read_counts(counts(1, 1, 1, 1))).tolist() == [1, 1, 1, 1]
    least = build("coordp")
    assert least._declare(read_counts(counts(2, 1, 0, 0))) == [Stable("a", 0, 2), Stable("b", 0, 1)]
    assert least._declare(read_counts(counts(1, 2, 0, 0))) == [Stable("b", 1, 1)]
    assert least._result(read_counts(counts())).tolist() == [2, 2, 0, 0]


@pytest.mark.parametrize("name", ["coordp", "fulldist", "train", "s-coordp", "s-train"])
def test_a_round_that_is_given_up_is_followed_by_another(name: str) -> None:
    layer = build(name, site="a")
    layer.handle(0, RoundTriggered())
    first = layer._round
    assert layer.under_way
    layer.abandon()
    assert not layer.under_way
    layer.handle(0, RoundTriggered())
    assert layer.under_way
    assert layer._round > first


@pytest.mark.parametrize("name", ["s-coordp", "s-train"])
def test_a_member_that_forwards_a_finished_round_gets_its_result(name: str) -> None:
    layer = build(name)
    result = Information(0, counts(1, 1, 1, 1), 5)
    assert layer.handle(0, Received("a", result)) != []
    assert layer.handle(0, Received("c", result)) == []
    assert layer.handle(0, Received("a", StartRound(0, 5))) == []
    again = Information(0, counts(1, 1, 1, 1), 5, repeated=True)
    assert layer.handle(0, Received("c", StartRound(0, 5))) == [Send("c", again)]


@pytest.mark.parametrize("name", ["s-coordp", "s-train"])
def test_a_result_of_the_past_ends_no_later_round(name: str) -> None:
    layer = build(name)
    layer.handle(0, Received("a", StartRound(SIZE, 5)))
    layer.handle(0, Received("a", Information(0, counts(1, 1, 1, 1), 5)))
    assert layer.under_way
    assert layer.stable == (1, 1, 1, 1)


def test_only_its_own_timers_make_a_member_gossip() -> None:
    layer = build("s-gossip")
    layer.handle(0, RoundTriggered())
    assert layer.gossips_locally
    assert layer.handle(0, TimerFired("another")) == []
