"""Late-join handlers: newcomers are brought to the present, in order, whatever happens meanwhile."""

import dataclasses
from random import Random

import pytest

from antiphon.core.effects import Absent, CaughtUp, Deliver, Recall, Send
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.inputs import Admit, HasRoom, Past, Recalled, Received, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import SECOND_NS
from antiphon.core.wire import Codec, Garbage, Pdu, Reason
from antiphon.protocols.fifo import PDUS, REPAIRS, Fifo, HistoryRole
from antiphon.protocols.fifo.history import MOST_ASKERS
from antiphon.protocols.fifo.history_reader import MOST_OFFERS
from antiphon.protocols.fifo.pdus import (
    MOST_PLACES,
    Chunk,
    Copy,
    Data,
    Extent,
    Fetch,
    Inquire,
    Offer,
    Place,
    Status,
)
from antiphon.sim.history import MemoryLog
from tests.protocols.harness.history_stage import KNOBS, Stage


def test_a_latecomer_gets_everything_in_order_and_then_what_is_live() -> None:
    stage = Stage()
    for _ in range(20):
        stage.send("c", 2)
        stage.send("b", 1)
    stage.pass_time(200)
    stage.begin("j")
    stage.send("c", 100)
    assert stage.wait_until_caught_up("j").complete
    stage.send("c", 5)
    stage.pass_time(100)
    assert stage.numbers("j", "b") == list(range(20))
    assert stage.numbers("j", "c") == list(range(145))
    assert stage.figure("j", "history_messages") >= 60
    assert stage.violations() == []


def test_history_comes_in_the_order_of_the_handlers_log() -> None:
    stage = Stage(handlers="a")
    for _ in range(10):
        stage.send("b", 1)
        stage.send("c", 2)
    stage.pass_time(200)
    stage.begin("j")
    stage.wait_until_caught_up("j")
    assert stage.order("j") == stage.order("a")


@pytest.mark.slow
@pytest.mark.parametrize("repair", REPAIRS)
def test_history_works_with_every_way_of_repair(repair: str) -> None:
    stage = Stage(knobs=dataclasses.replace(KNOBS, repair=repair), faults=0.1)
    stage.send("c", 40)
    stage.begin("j")
    stage.send("c", 200)
    assert stage.wait_until_caught_up("j").complete
    stage.pass_time(500)
    assert stage.numbers("j", "c") == list(range(240))
    assert stage.violations() == []


@pytest.mark.parametrize("seed", range(12))
def test_a_handler_that_dies_while_it_serves_is_left_for_the_other(seed: int) -> None:
    """Under loss, duplication and reordering; nothing is missing, nothing comes twice."""
    stage = Stage(seed=seed, faults=0.15, read_ms=2)
    for _ in range(30):
        stage.send("c", 3, size=20_000)
        stage.send("b", 1)
    stage.pass_time(300)
    stage.begin("j")
    while not stage.figure("j", "history_messages"):
        stage.pass_time(1)
    serving = max("ab", key=lambda site: stage.figure(site, "history_answers"))
    stage.world.crash(serving)
    stage.send("c", 20)
    assert stage.wait_until_caught_up("j").complete
    assert stage.figure("j", "history_switches") == 1
    stage.pass_time(1000)
    stage.send("c", 1)
    stage.pass_time(500)
    assert stage.numbers("j", "c") == list(range(111))
    assert stage.numbers("j", "b") == list(range(30))
    assert stage.violations() == []


def test_a_bounded_log_begins_where_it_begins() -> None:
    stage = Stage(log=30)
    stage.send("b", 20)
    stage.send("c", 50)
    stage.pass_time(200)
    stage.begin("j")
    assert stage.wait_until_caught_up("j").complete
    stage.send("c", 3)
    stage.send("b", 3)
    stage.pass_time(100)
    assert stage.numbers("j", "c") == list(range(20, 53))
    assert stage.numbers("j", "b") == [20, 21, 22]
    assert stage.figure("j", "history_gaps") == 0
    assert stage.violations() == []


def test_where_no_member_keeps_history_the_latecomer_goes_on_and_reports_it() -> None:
    stage = Stage(handlers="")
    stage.send("c", 20)
    stage.pass_time(200)
    stage.begin("j")
    stage.send("c", 10)
    outcome = stage.wait_until_caught_up("j")
    assert not outcome.complete
    assert "No member" in outcome.reason
    stage.send("c", 5)
    stage.pass_time(100)
    live = stage.numbers("j", "c")
    assert live == list(range(live[0], 35))
    assert live[0] >= 20
    assert stage.figure("j", "history_given_up") == 1
    assert stage.violations() == []


def away(stage: Stage, site: str, sender: str, count: int) -> None:
    """A member misses some messages for good: it is away until the others no longer keep them."""
    stage.world.depart(site)
    stage.pass_time(700)
    stage.send(sender, count)
    stage.pass_time(300)
    stage.world.come_back(site)
    stage.pass_time(500)


def test_what_one_log_lacks_comes_from_another() -> None:
    stage = Stage(early="abcd")
    stage.send("c", 10)
    away(stage, "a", "d", 15)
    stage.send("c", 5)
    away(stage, "b", "c", 5)
    stage.send("c", 10)
    stage.pass_time(200)
    assert stage.numbers("b", "c") == [*range(15), *range(20, 30)]
    assert stage.numbers("a", "d") == []
    stage.begin("j")
    assert stage.wait_until_caught_up("j").complete
    assert stage.numbers("j", "c") == list(range(30))
    assert stage.numbers("j", "d") == list(range(15))
    assert stage.figure("j", "history_gaps") == 0
    assert stage.violations() == []


def test_what_no_log_has_ends_a_spell_and_nothing_else() -> None:
    stage = Stage(early="abcd")
    stage.send("c", 10)
    stage.world.depart("a")
    away(stage, "b", "c", 10)
    stage.world.come_back("a")
    stage.pass_time(500)
    stage.send("c", 10)
    stage.pass_time(200)
    stage.begin("j")
    assert stage.wait_until_caught_up("j").complete
    stage.send("c", 1)
    stage.pass_time(100)
    assert stage.numbers("j", "c") == [*range(10), *range(20, 31)]
    assert stage.figure("j", "history_gaps") == 1
    kinds = [row.kind for row in stage.rows("j", "present", "absent", "deliver")]
    assert kinds[-12:] == ["present", *["deliver"] * 11]
    assert stage.violations() == []


def test_departed_members_and_earlier_incarnations_belong_to_the_history() -> None:
    stage = Stage(early="abcd")
    stage.send("d", 5)
    stage.send("c", 5)
    stage.pass_time(200)
    stage.world.crash("d")
    stage.world.crash("c")
    stage.pass_time(1000)
    stage.world.restart("c")
    stage.pass_time(500)
    stage.send("c", 5)
    stage.pass_time(300)
    stage.begin("j")
    assert stage.wait_until_caught_up("j").complete
    assert stage.numbers("j", "d") == list(range(5))
    assert stage.numbers("j", "c") == list(range(10))
    stage.pass_time(500)
    stage.world.restart("d")
    stage.pass_time(500)
    stage.send("d", 2)
    stage.pass_time(200)
    assert stage.numbers("j", "d") == list(range(7))
    assert stage.violations() == []


def test_a_member_that_returns_gets_what_it_has_missed_and_nothing_twice() -> None:
    stage = Stage()
    stage.send("c", 10)
    stage.begin("j")
    stage.wait_until_caught_up("j")
    stage.send("c", 10)
    stage.pass_time(200)
    stage.world.crash("j")
    stage.pass_time(1000)
    stage.send("c", 30)
    stage.pass_time(300)
    stage.world.restart("j")
    stage.pass_time(50)
    assert stage.wait_until_caught_up("j").complete
    stage.send("c", 5)
    stage.pass_time(200)
    assert stage.numbers("j", "c") == list(range(55))
    assert stage.violations() == []


def test_who_does_not_know_what_it_has_delivered_asks_for_nothing() -> None:
    fifo = Fifo("j", ("j",), KNOBS, Random(1), history=HistoryRole(catches_up=True))
    effects = fifo.handle(0, Start(2, 0, returning=True))
    assert [effect for effect in effects if "is not known" in str(effect)]
    assert fifo.figures()["history_given_up"] == 1


def test_a_handler_that_comes_back_goes_on_with_its_log_and_fills_it() -> None:
    stage = Stage(early="bc", late="aj", handlers="ab")
    stage.begin("a")
    stage.wait_until_caught_up("a")
    stage.send("c", 10)
    stage.pass_time(200)
    stage.world.crash("a")
    stage.pass_time(1000)
    stage.send("c", 10)
    stage.pass_time(300)
    stage.world.restart("a")
    stage.wait_until_caught_up("a")
    stage.send("c", 10)
    stage.pass_time(100)
    stage.world.crash("b")
    stage.pass_time(1000)
    stage.begin("j")
    assert stage.wait_until_caught_up("j").complete
    assert stage.numbers("j", "c") == list(range(30))
    assert stage.figure("j", "history_gaps") == 0
    assert stage.violations() == []


def test_what_is_held_back_is_bounded_and_comes_from_the_log_instead() -> None:
    stage = Stage(knobs=dataclasses.replace(KNOBS, history_bytes=5_000), read_ms=20)
    stage.send("c", 100, size=10_000)
    stage.pass_time(200)
    stage.begin("j")
    stage.pass_time(150)
    most = 0
    for _ in range(100):
        stage.send("c", 2, size=1_000)
        most = max(most, stage.figure("j", "held_back_bytes"))
    assert 0 < most <= 5_000
    assert stage.wait_until_caught_up("j").complete
    stage.pass_time(200)
    assert stage.numbers("j", "c") == list(range(300))
    assert stage.figure("j", "history_gaps") == 0
    assert stage.violations() == []


def test_ones_own_messages_wait_for_the_history_and_are_not_lost() -> None:
    stage = Stage(knobs=dataclasses.replace(KNOBS, history_bytes=500), read_ms=20)
    stage.send("c", 50, size=10_000)
    stage.pass_time(200)
    stage.begin("j")
    stage.pass_time(100)
    for _ in range(100):
        stage.send("j", 1, size=100)
    admitted = stage.world.host("j").admitted
    assert 0 < admitted < 100
    stage.wait_until_caught_up("j")
    stage.send("j", 1)
    stage.pass_time(200)
    assert stage.numbers("j", "j") == list(range(admitted + 1))
    assert stage.order("j")[:50] == [("c", number) for number in range(50)]
    assert stage.violations() == []


def test_ones_own_messages_that_no_log_has_are_not_let_go_of() -> None:
    knobs = dataclasses.replace(KNOBS, history_bytes=5_000, history_ns=5 * SECOND_NS)
    stage = Stage(early="c", late="ja", handlers="a", knobs=knobs, read_ms=100)
    stage.begin("j")
    stage.pass_time(200)
    stage.send("j", 3)
    stage.pass_time(200)
    stage.begin("a")
    while stage.source("j") != "a":
        stage.pass_time(1)
    most = 0
    for _ in range(40):
        stage.send("c", 1, size=1_000)
        most = max(most, stage.figure("j", "held_back_bytes"))
    assert 4_000 < most < 6_000
    assert stage.wait_until_caught_up("j").complete
    assert stage.numbers("j", "j") == [0, 1, 2]
    assert stage.numbers("j", "c") == list(range(40))
    assert stage.violations() == []


def test_an_absence_while_history_comes_is_filled_by_it_too() -> None:
    stage = Stage(read_ms=20)
    stage.send("c", 50, size=10_000)
    stage.pass_time(200)
    stage.begin("j")
    while not stage.figure("j", "history_messages"):
        stage.pass_time(1)
    stage.send("c", 5)
    assert 0 < len(stage.numbers("j", "c")) < 50
    away(stage, "j", "c", 30)
    stage.send("c", 5)
    assert stage.wait_until_caught_up("j").complete
    stage.pass_time(200)
    assert stage.numbers("j", "c") == list(range(90))
    assert stage.violations() == []


def test_what_was_let_go_of_and_left_every_log_is_known_to_be_missing() -> None:
    """The newcomer follows from the first message, and so must have everything unless it says otherwise."""
    knobs = dataclasses.replace(KNOBS, history_bytes=5_000, round_ns=100 * SECOND_NS)
    stage = Stage(handlers="a", knobs=knobs, log=1, read_ms=100)
    stage.send("c", 3)
    stage.begin("j")
    while stage.source("j") != "a":
        stage.pass_time(1)
    assert stage.rows("j", "absent") == []
    stage.send("c", 20, size=1_000)
    stage.wait_until_caught_up("j")
    stage.send("c", 1)
    stage.pass_time(200)
    assert stage.numbers("j", "c")[-1] == 23
    assert len(stage.numbers("j", "c")) < 24
    assert stage.rows("j", "absent") != []
    assert stage.violations() == []


def test_what_is_still_kept_comes_live_even_if_the_log_begins_later() -> None:
    stage = Stage(log=5, knobs=dataclasses.replace(KNOBS, round_ns=100 * SECOND_NS))
    stage.send("c", 20)
    stage.pass_time(100)
    stage.begin("j")
    assert stage.wait_until_caught_up("j").complete
    assert stage.numbers("j", "c") == list(range(20))
    assert stage.rows("j", "absent") == []
    assert stage.violations() == []


def test_a_handler_that_is_not_as_far_as_the_newcomer_is_waited_for() -> None:
    stage = Stage(handlers="a", knobs=dataclasses.replace(KNOBS, lag_ns=10 * SECOND_NS))
    stage.send("c", 20)
    stage.pass_time(100)
    handler = stage.world.host("a").index
    stage.drop.is_lost = lambda arrival: arrival.target == handler and isinstance(arrival.pdu, Data | Copy)
    stage.send("c", 10)
    stage.begin("j")
    stage.pass_time(300)
    assert stage.archivists["j"].outcomes == []
    stage.drop.is_lost = lambda _: False
    assert stage.wait_until_caught_up("j").complete
    assert stage.numbers("j", "c") == list(range(30))
    assert stage.figure("j", "history_gaps") == 0
    assert stage.violations() == []


def test_a_gap_between_history_and_a_sender_that_comes_back_ends_a_spell() -> None:
    """What the sender sent in between was delivered, but by no handler."""
    stage = Stage(early="acd", handlers="a")
    stage.send("d", 5)
    stage.pass_time(200)
    away(stage, "a", "d", 2)
    assert stage.numbers("c", "d") == list(range(7))
    assert stage.numbers("a", "d") == list(range(5))
    stage.world.crash("d")
    stage.pass_time(1000)
    stage.begin("j")
    assert stage.wait_until_caught_up("j").complete
    stage.pass_time(500)
    stage.world.restart("d")
    stage.pass_time(500)
    stage.send("d", 2)
    stage.pass_time(200)
    assert stage.numbers("j", "d") == [0, 1, 2, 3, 4, 7, 8]
    assert stage.figure("j", "history_gaps") == 1
    assert stage.violations() == []


def test_the_first_member_of_a_group_does_not_wait_for_ever() -> None:
    stage = Stage(early="", late="j", handlers="")
    stage.begin("j")
    stage.pass_time(200)
    stage.send("j", 3)
    assert not stage.wait_until_caught_up("j").complete
    assert stage.numbers("j", "j") == [0, 1, 2]


# What peers may do to a handler and to a newcomer


def keeper() -> Fifo:
    """A handler that counts the member n."""
    fifo = Fifo("a", ("a", "n"), KNOBS, Random(1), history=HistoryRole(keeps=True))
    fifo.handle(0, Start())
    return fifo


@pytest.mark.parametrize(
    "pdu",
    [
        Fetch(0, -1, 0),
        Fetch(0, 0, -1),
        Fetch(0, 0, NUMBER_LIMIT),
        Fetch(0, 0, 0, tuple(Place("c", 0, 0) for _ in range(MOST_PLACES + 1))),
        Fetch(0, 0, 0, (), tuple(Place("c", 0, 0) for _ in range(MOST_PLACES + 1))),
        Fetch(0, 0, 0, (Place("c" * 300, 0, 0),)),
        Fetch(0, 0, 0, (Place("c", -2, 0),)),
    ],
)
def test_a_request_that_makes_no_sense_does_not_pass_the_gate(pdu: Pdu) -> None:
    codec = Codec(PDUS)
    assert codec.decode(codec.encode(pdu)) == Garbage(Reason.BODY)


def test_a_handler_serves_members_that_count_one_request_at_a_time() -> None:
    fifo = keeper()
    assert fifo.handle(1, Received("stranger", Fetch(0, 1, 0))) == []
    assert fifo.handle(1, Received("n", Fetch(7, 1, 0))) == []
    (recall,) = fifo.handle(1, Received("n", Fetch(0, 1, 0)))
    assert isinstance(recall, Recall)
    assert fifo.handle(1, Received("n", Fetch(0, 1, 0))) == []
    (later,) = fifo.handle(1, Received("n", Fetch(0, 2, 0)))
    assert isinstance(later, Recall)
    assert fifo.handle(1, Recalled(recall.token, 0)) == []
    (answer,) = fifo.handle(1, Recalled(later.token, 3, (Past("c", 0, 0, b""),), 9, False))
    assert answer == Send("n", Chunk(0, 2, 9, False, (), (Past("c", 0, 0, b""),)))


def test_a_handler_has_a_bounded_number_of_requests_under_way() -> None:
    names = tuple(f"n{index}" for index in range(MOST_ASKERS + 5))
    fifo = Fifo("a", ("a", *names), KNOBS, Random(1), history=HistoryRole(keeps=True))
    fifo.handle(0, Start())
    asked = [effect for name in names for effect in fifo.handle(1, Received(name, Inquire(0)))]
    assert len(asked) == MOST_ASKERS


def test_a_log_that_cannot_be_read_is_no_offer() -> None:
    fifo = keeper()
    (recall,) = fifo.handle(1, Received("n", Inquire(0)))
    assert isinstance(recall, Recall)
    assert fifo.handle(1, Recalled(recall.token, -1)) == []


def test_a_handler_names_the_sites_of_which_it_will_still_log_something() -> None:
    fifo = keeper()
    fifo.handle(1, Admit((b"x",)))  # no other member holds it yet, so it is not delivered
    wanted = (Place("a", 0, 1), Place("n", 0, 0), Place("gone", 0, 1))
    (recall,) = fifo.handle(1, Received("n", Fetch(0, 1, 0, (), wanted)))
    assert isinstance(recall, Recall)
    (answer,) = fifo.handle(1, Recalled(recall.token, 0))
    assert isinstance(answer, Send)
    assert isinstance(answer.pdu, Chunk)
    assert answer.pdu.behind == ("a",)


@pytest.mark.parametrize("wanted", [Place("a", 0, 0), Place("n", 0, 5)])
def test_a_handler_will_log_nothing_that_it_has_delivered_or_does_not_follow(wanted: Place) -> None:
    fifo = keeper()
    fifo._group.peers["n"].stream.begun = False
    (recall,) = fifo.handle(1, Received("n", Fetch(0, 1, 0, (), (wanted,))))
    assert isinstance(recall, Recall)
    (answer,) = fifo.handle(1, Recalled(recall.token, 0))
    assert isinstance(answer, Send)
    assert isinstance(answer.pdu, Chunk)
    assert answer.pdu.behind == ()


def newcomer() -> tuple[Fifo, Fetch]:
    """A newcomer that reads the log of h; and what it has asked for."""
    fifo = Fifo("j", ("j",), KNOBS, Random(1), history=HistoryRole(catches_up=True))
    fifo.handle(0, Start(1))
    own = Extent("h", 1, True, True, 0, 3, 0, 3)
    us = Extent("j", 1, True, True, 0, 0, 0, 0)
    now = 0
    for serial in range(1, 8):
        now += KNOBS.settle_ns // 2
        fifo.handle(now, Received("h", Status(1, 0, serial, 0, (own, us))))
        fifo.handle(now, TimerFired("settle"))
    fifo.handle(now, Received("h", Offer(1, 10)))
    effects = fifo.handle(now + KNOBS.heartbeat_ns, TimerFired("history"))
    assert "AwaitRoom" in str(effects)
    (sent,) = [effect for effect in fifo.handle(now, HasRoom()) if isinstance(effect, Send)]
    assert isinstance(sent.pdu, Fetch)
    return fifo, sent.pdu


HAS_ROOM = __import__("antiphon.core.inputs", fromlist=["HasRoom"]).HasRoom()


def batch(*bodies: bytes) -> bytes:
    return bytes(pack(bodies).wire())


def delivered(fifo: Fifo, sender: str, pdu: Pdu) -> list[int]:
    effects = fifo.handle(10**9, Received(sender, pdu))
    return [effect.number for effect in effects if isinstance(effect, Deliver)]


def test_a_newcomer_takes_only_the_answer_that_it_waits_for() -> None:
    fifo, asked = newcomer()
    records = (Past("c", 1, 0, batch(b"x", b"y")), Past("c", 1, 2, batch(b"z")))
    assert delivered(fifo, "other", Chunk(1, asked.serial, 5, False, (), records)) == []
    assert delivered(fifo, "h", Chunk(1, asked.serial + 1, 5, False, (), records)) == []
    assert delivered(fifo, "h", Chunk(1, asked.serial, 5, False, (), records)) == [0, 2]
    assert delivered(fifo, "h", Chunk(1, asked.serial, 5, False, (), records)) == []


@pytest.mark.parametrize(
    "record",
    [
        Past("c", 1, 0, b"garbage"),
        Past("c", 1, NUMBER_LIMIT - 1, batch(b"x")),
        Past("h", 1, 0, batch(b"x", b"y", b"z", b"more than it has sent")),
        Past("h", 2, 0, batch(b"x")),
        Past("j", 1, 0, batch(b"x")),
    ],
)
def test_history_that_makes_no_sense_is_counted_and_passed_over(record: Past) -> None:
    fifo, asked = newcomer()
    good = Past("c", 1, 0, batch(b"x"))
    assert delivered(fifo, "h", Chunk(1, asked.serial, 5, False, (), (record, good))) == [0]
    assert fifo.ignored == 1


def test_history_that_was_never_sent_keeps_nothing_live_away() -> None:
    fifo, asked = newcomer()
    far = Past("c", 1 << 40, 1 << 40, batch(b"x"))
    assert delivered(fifo, "h", Chunk(1, asked.serial, 5, True, (), (far,))) == [1 << 40]
    fifo.handle(10**9, Received("h", Chunk(1, asked.serial + 1, 5, True, (), ())))
    assert not fifo._history._under_way
    own = Extent("c", 1, True, True, 0, 0, 0, 0)
    us = Extent("j", 1, True, True, 0, 0, 0, 0)
    fifo.handle(10**9, Received("c", Status(1, 0, 1, 0, (own, us))))
    effects = fifo.handle(10**9, Received("c", Data(1, 0, 0, b"", pack([b"live"]))))
    assert [effect.number for effect in effects if isinstance(effect, Deliver)] == [0]
    assert Absent() in effects
    effects = fifo.handle(10**9, Received("c", Data(1, 1, 0, b"", pack([b"live"]))))
    assert [effect.number for effect in effects if isinstance(effect, Deliver)] == [1]
    assert Absent() not in effects


def test_the_newcomers_own_messages_count_up_to_the_last() -> None:
    fifo, asked = newcomer()
    fifo.handle(10**9, Admit((b"x",)))
    records = (Past("j", 1, 0, batch(b"x")),)
    assert delivered(fifo, "h", Chunk(1, asked.serial, 5, False, (), records)) == [0]


def test_history_may_begin_where_the_live_messages_do_and_not_beyond() -> None:
    fifo, asked = newcomer()
    at, beyond = (Past("h", 1, number, batch(b"x")) for number in (0, 1))
    fifo._group.peers["h"].stream.expected = 0
    assert delivered(fifo, "h", Chunk(1, asked.serial, 5, False, (), (beyond, at))) == [0]


def test_after_a_switch_a_newcomer_says_what_it_has() -> None:
    fifo, asked = newcomer()
    records = (Past("c", 1, 0, batch(b"x", b"y")),)
    fifo.handle(10**9, Received("h", Chunk(1, asked.serial, 5, False, (), records)))
    (again,) = [effect.pdu for effect in fifo.handle(10**9, HasRoom()) if isinstance(effect, Send)]
    assert isinstance(again, Fetch)
    assert again.have == ()
    fifo.handle(10**9, Received("h", Chunk(1, again.serial, 5, False, (), ())))
    assert fifo.figures()["history_switches"] == 1
    fifo.handle(10**9, Received("h", Offer(1, 10)))
    fifo.handle(10**9 + KNOBS.heartbeat_ns, TimerFired("history"))
    (third,) = [effect.pdu for effect in fifo.handle(10**9, HasRoom()) if isinstance(effect, Send)]
    assert isinstance(third, Fetch)
    assert third.have == (Place("c", 1, 2),)


def test_an_offer_from_outside_the_view_is_dropped_and_a_later_one_replaces_the_first() -> None:
    fifo, _ = newcomer()
    offers = fifo._history._offers
    assert offers == {"h": 10}
    fifo.handle(10**9, Received("stranger", Offer(1, 99)))
    fifo.handle(10**9, Received("h", Offer(1, 11)))
    assert offers == {"h": 11}


def test_offers_are_bounded_and_those_that_are_known_may_change() -> None:
    fifo, _ = newcomer()
    us = Extent("j", 1, True, True, 0, 0, 0, 0)
    for number in range(MOST_OFFERS + 3):
        own = Extent(f"x{number}", 1, True, True, 0, 0, 0, 0)
        fifo.handle(10**9, Received(own.site, Status(1, 0, 1, 0, (own, us))))
        fifo.handle(10**9, Received(own.site, Offer(1, 5)))
    fifo.handle(10**9, Received("h", Offer(1, 11)))
    offers = fifo._history._offers
    assert len(offers) == MOST_OFFERS
    assert offers["h"] == 11


@pytest.mark.parametrize("grows", [True, False])
def test_a_handler_that_is_behind_is_waited_for_while_its_log_grows(*, grows: bool) -> None:
    """Although it has nothing new for us; but not if it only says that there will be more."""
    fifo, asked = newcomer()
    now, serial, end = 10**9, asked.serial, 5
    for _ in range(20):
        effects = fifo.handle(now, Received("h", Chunk(1, serial, end, True, ("h",), ())))
        now += KNOBS.history_ns * 3 // 5
        effects += fifo.handle(now, TimerFired("history"))
        asked_again = [effect.pdu for effect in effects if isinstance(effect, Send)]
        serial = next((pdu.serial for pdu in reversed(asked_again) if isinstance(pdu, Fetch)), serial)
        end += grows
        if any(isinstance(effect, CaughtUp) for effect in effects):
            break
    assert grows == (now > 10**9 + 10 * KNOBS.history_ns)


def test_an_answer_that_leads_nowhere_is_the_last_of_its_handler() -> None:
    fifo, asked = newcomer()
    assert delivered(fifo, "h", Chunk(1, asked.serial, 0, False, (), ())) == []
    assert fifo.figures()["history_switches"] == 1


def test_the_pdus_of_history_have_codes_of_their_own() -> None:
    assert [kind.code for kind in (Inquire, Offer, Fetch, Chunk)] == [54, 55, 56, 57]
    assert len({kind.code for kind in PDUS}) == len(PDUS)


# The simulated log


def test_a_log_leaves_out_what_its_reader_has() -> None:
    log = MemoryLog(100)
    for number in range(5):
        log.append(Deliver("c", number, [b"x"], None, 3))
    log.append(Deliver("c", 2, [b"again"], None, 3))
    found = log.recall(Recall(1, 0, 1000, (("c", 3, 3),)))
    assert [record.number for record in found.records] == [3, 4]
    assert found.is_end
    first = log.recall(Recall(1, 0, 1))
    assert [record.number for record in first.records] == [0]
    assert not first.is_end
    assert log.recall(Recall(1, first.following, 1)).records[0].number == 1


def test_a_single_batch_is_progress() -> None:
    fifo, asked = newcomer()
    assert not fifo._history._moved
    delivered(fifo, "h", Chunk(1, asked.serial, 5, False, (), (Past("c", 1, 0, batch(b"x")),)))
    assert fifo._history._moved
