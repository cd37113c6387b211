"""A bounded share of `make fuzz` for every order; and that the fuzzer notices what it is there for."""

import os
from collections import deque
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from antiphon.core import effects as fx
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received
from antiphon.core.protocol import Protocol
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Codec, Packet
from antiphon.live.orders import ORDERS
from tests.fuzz.arena import LIAR, Tally
from tests.fuzz.containers import Holdings
from tests.fuzz.pdus import Forge, datagram
from tests.fuzz.plans import CROWD, MEMBER, MISTAKEN, ORDER_NAMES, SERVICE_NAMES, Plan, draw_plan
from tests.fuzz.run import Outcome, run
from tests.fuzz.shrinking import as_ranges, from_ranges, shrink, smaller

PDUS = int(os.environ.get("ANTIPHON_FUZZ_PDUS", "12000"))
"""PDUs of liars for each order, or service of the total order."""
LARGEST_RUN = 2500
"""Floods are for `make fuzz`."""
LARGEST_CROWD = 200
"""Each of its names is a member that the others may have to wait for: a group of hundreds takes its time."""
PARTS = [
    *((order, None) for order in ORDER_NAMES if order != "total"),
    *(("total", service) for service in SERVICE_NAMES),
]


@pytest.mark.parametrize(("order", "service"), PARTS)
def test_an_order_outlives_its_liars(order: str, service: str | None) -> None:
    pdus = PDUS if service is None else PDUS // len(SERVICE_NAMES)
    tally = Tally()
    seed = 0
    while tally.said < pdus:
        plan = draw_plan(order, seed, service, most_pdus=LARGEST_RUN)
        if plan.liar == CROWD:
            plan = replace(plan, pdus=min(plan.pdus, LARGEST_CROWD))
        print(plan.told())
        outcome = run(plan)
        demand(outcome)
        tally.add(outcome.tally)
        seed += 1
    assert sum(tally.refused.values()) > 0
    assert sum(tally.decoded.values()) > tally.said / 2


@pytest.mark.parametrize(
    ("order", "seed"),
    [
        pytest.param("total-across", 300022, id="a place for a move that its site refuses"),
        pytest.param("total-across", 300072, id="a token where bodies go down the tree"),
        pytest.param("total-across", 300120, id="the same, before an entry that completes the row"),
    ],
)
def test_a_run_that_failed_once_passes(order: str, seed: int) -> None:
    demand(run(draw_plan(order, seed)))


def demand(outcome: Outcome) -> None:
    if outcome.failure is not None:
        pytest.fail(f"{outcome.story}{outcome.failure}\n{outcome.plan.command()}", pytrace=False)
    for error, data in outcome.tally.raised.items():
        pytest.fail(f"Decoding raised {error} at {data}.\n{outcome.plan.command()}", pytrace=False)


# That it notices


class Around:
    """A protocol object with something around it that is not as it should be."""

    def __init__(self, _site: Site, protocol: Protocol) -> None:
        self._protocol = protocol
        self._lies = 0

    def handle(self, now: Nanoseconds, event: Input) -> list[fx.Effect]:
        if isinstance(event, Received) and event.sender == LIAR:
            self._lies += 1
        return self.answer(event, self._protocol.handle(now, event))

    def answer(self, event: Input, effects: list[fx.Effect]) -> list[fx.Effect]:
        raise NotImplementedError


class Raising(Around):
    def answer(self, event: Input, effects: list[fx.Effect]) -> list[fx.Effect]:
        if self._lies == 40:
            raise IndexError("a number that was not checked")
        return effects


class Silenced(Around):
    """Delivers nothing any more once it was lied to often enough."""

    def answer(self, event: Input, effects: list[fx.Effect]) -> list[fx.Effect]:
        return [effect for effect in effects if self._lies < 40 or not isinstance(effect, fx.Deliver)]


class Repeating(Around):
    """Delivers everything twice, from then on."""

    def answer(self, event: Input, effects: list[fx.Effect]) -> list[fx.Effect]:
        if self._lies < 40:
            return effects
        return [again for effect in effects for again in [effect] * (1 + isinstance(effect, fx.Deliver))]


class Unsettled(Around):
    """Never learns that anything is stable."""

    def answer(self, event: Input, effects: list[fx.Effect]) -> list[fx.Effect]:
        return [effect for effect in effects if self._lies < 40 or not isinstance(effect, fx.Stable)]


class Unreadable(Around):
    """Passes on a number that no member accepts."""

    def answer(self, event: Input, effects: list[fx.Effect]) -> list[fx.Effect]:
        if self._lies == 40:
            self._lies += 1
            return [*effects, fx.Multicast(ORDERS["fifo"].pdus[0](1, -(1 << 70), 1, b"", None))]
        return effects


PLAIN = Plan(order="fifo", seed=3, honest=3, liar=MEMBER, pdus=120, span_ms=60)


def test_without_a_mutant_the_plain_plan_passes() -> None:
    demand(run(PLAIN))


@pytest.mark.parametrize(
    ("mutant", "told"),
    [
        (Raising, "raised IndexError"),
        (Silenced, "2 s after the silence"),
        (Repeating, "twice"),
        (Unsettled, "are not stable"),
        (Unreadable, "cannot be encoded"),
    ],
)
def test_a_mutant_is_caught(mutant: type[Around], told: str) -> None:
    outcome = run(PLAIN, wrap=mutant)
    assert outcome.failure is not None
    assert told in outcome.failure


def test_a_table_that_grows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.run.LARGEST_CONTAINER", 100)
    kept: list[Input] = []

    class Hoarding(Around):
        def __init__(self, site: Site, protocol: Protocol) -> None:
            super().__init__(site, protocol)
            vars(protocol)["hoard"] = kept

        def answer(self, event: Input, effects: list[fx.Effect]) -> list[fx.Effect]:
            kept.append(event)
            return effects

    outcome = run(replace(PLAIN, liar=CROWD), wrap=Hoarding)
    assert outcome.failure is not None
    assert outcome.failure.endswith("entries in Fifo.hoard")


def test_a_failure_is_replayed_by_few_of_its_lies() -> None:
    plan = replace(PLAIN, liar=MISTAKEN, share=1.0, pdus=0, span_ms=600)

    class Touchy(Around):
        def answer(self, event: Input, effects: list[fx.Effect]) -> list[fx.Effect]:
            if isinstance(event, Received) and event.sender == LIAR and getattr(event.pdu, "number", 0) > 500:
                raise IndexError("a number that leaps")
            return effects

    whole = run(plan, wrap=Touchy)
    assert whole.failure is not None
    places = shrink(whole, wrap=Touchy)
    assert len(places) < whole.lies / 4
    again = run(plan, frozenset(places), wrap=Touchy)
    assert again.failure is not None
    assert "a number that leaps" in again.failure


# Its parts


@pytest.mark.parametrize("order", ORDER_NAMES)
def test_a_run_is_a_function_of_its_seed(order: str) -> None:
    plan = draw_plan(order, 5, most_pdus=250)
    one, other = run(plan), run(plan)
    assert (one.failure, one.recovered_ms, one.lies) == (other.failure, other.recovered_ms, other.lies)
    assert one.tally.decoded == other.tally.decoded


@pytest.mark.parametrize("order", ORDER_NAMES)
def test_every_kind_of_pdu_is_drawn_so_that_it_decodes(order: str) -> None:
    kinds = ORDERS[order].pdus
    codec = Codec(kinds)
    forge = Forge(kinds, Random(1), ("m0", "m1", LIAR))
    seen: set[type[Any]] = set()
    for _ in range(400 * len(kinds)):
        found = codec.decode(datagram(LIAR, *forge.made()))
        if isinstance(found, Packet):
            seen.add(type(found.pdu))
            forge.observe(found.pdu)
    assert seen == set(kinds)


def test_every_container_of_an_object_is_found() -> None:
    class Slotted:
        __slots__ = ("queue",)

        def __init__(self) -> None:
            self.queue = deque(range(7))

    class Holder:
        def __init__(self) -> None:
            numbers = [1, 2, 3]
            self.table = {"a": numbers, "b": Slotted()}
            self.names = {"x" * 10}
            self.call = numbers.append

    held = Holdings(Holder())
    assert held.largest == {
        "Holder.table": 2,
        "Holder.table[]": 3,
        "Holder.table[].queue": 7,
        "Holder.names": 1,
    }
    assert held.bytes == len("a") + len("b") + len("x" * 10)
    assert held.above(2, {"queue": 7}) == {"Holder.table[]": 3}


def test_lies_are_left_out_until_none_can_be() -> None:
    assert smaller(list(range(64)), lambda places: {5, 40} <= set(places), lambda: False) == [5, 40]
    assert smaller(list(range(64)), lambda _: True, lambda: True) == list(range(64))
    assert from_ranges(as_ranges({1, 2, 3, 7})) == {1, 2, 3, 7}
