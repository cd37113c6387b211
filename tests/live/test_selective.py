"""Messages to chosen members, over real sockets, in every order."""

from pathlib import Path
from random import Random

import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.errors import UsageError
from antiphon.live.orders import ORDERS, make_order
from antiphon.trace.files import read_trace
from tests.live.members import joined, read, within

NAMES = ("a", "b", "c", "d")


@pytest.mark.parametrize("order", [name for name, order in ORDERS.items() if not order.several])
def test_each_message_reaches_whom_it_is_for_and_nobody_else(order: str, tmp_path: Path) -> None:
    random = Random(order)
    meant: dict[str, list[tuple[str, bytes]]] = {name: [] for name in NAMES}

    async def body() -> None:
        async with joined(*NAMES, order=order, trace=tmp_path) as groups:
            for turn in range(60):
                for group in groups:
                    to = frozenset(random.sample(NAMES, random.randint(1, 4))) if turn % 7 else None
                    text = f"{group.name}{turn}".encode()
                    message = await group.send(text, to=to)
                    for name in to or NAMES:
                        meant[name].append((group.name, text))
            await message.atomic()
            for group in groups:
                heard = await read(group, len(meant[group.name]))
                assert sorted((sender, text) for sender, _, text in heard) == sorted(meant[group.name])
            for group in groups:
                await group.finish()

    within(body())
    trace = read_trace(tmp_path)
    (run,) = trace.runs
    broken = {violation.property for violation in check_trace(trace.events, run)}
    assert not broken & set(make_order(order, {"sequencer": "a"} if order == "sequencer" else {}).promises())
    sent = [event for event in trace.events if event.kind == "send"]
    assert any(event.destinations is not None for event in sent)
    delivered = sum(event.count or 1 for event in trace.events if event.kind == "deliver")
    assert delivered == sum(map(len, meant.values()))


def test_a_message_says_to_whom_it_went() -> None:
    async def body() -> None:
        async with joined("a", "b", "c") as (a, b, _):
            sent = await a.send(b"both", to=["b", "a"])
            await a.send_many([b"x", b"y"], to={"c"})
            await a.send_records(b"1122", 2, to={"b"})
            await a.send(b"all")
            heard = []
            async for message in b:
                heard.append((message.number, message.body, message.to))
                if message.body == b"all":
                    break
            both, only = frozenset({"a", "b"}), frozenset({"b"})
            assert sent.to == both
            assert heard == [(0, b"both", both), (3, b"11", only), (4, b"22", only), (5, b"all", None)]

    within(body())


@pytest.mark.parametrize(
    ("to", "sentence"),
    [((), "at least one destination"), ("b", "not a set"), ({"b", "z"}, "'z' is not a member")],
)
def test_nobody_and_strangers_are_no_destinations(to: object, sentence: str) -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            with pytest.raises(UsageError, match=sentence):
                await a.send(b"x", to=to)  # type: ignore[arg-type]
            await a.send(b"next")
            assert await read(b, 1) == [("a", 0, b"next")]

    within(body())
