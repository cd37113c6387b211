"""Levels of acceptance as an application of a causal group sees them."""

import asyncio
from pathlib import Path
from random import Random

import pytest

import antiphon
from antiphon import testing
from antiphon.core.effects import Reached
from antiphon.core.errors import UsageError
from antiphon.live.errors import MissedError
from antiphon.live.group import Group
from antiphon.live.levels import LevelWaits
from antiphon.live.orders import Causal, Settings
from antiphon.protocols import sco
from antiphon.protocols.sco import LEVELS, Level

WATCHED = Causal(levels=True)


def test_a_message_reaches_every_level_at_its_sender_and_at_its_destinations() -> None:
    async def body() -> None:
        async with testing.cluster("abc", order=WATCHED) as cluster:
            await story(*(cluster[name] for name in "abc"))

    async def story(a: Group, b: Group, c: Group) -> None:
        sent = await a.send(b"x", to={"b", "c"})
        assert Level.FULL not in sent.level()
        await sent.reached("atomic")
        assert Level.ATOMIC in sent.level()
        await sent.reached(Level.FULL)
        assert all(level in sent.level() for level in LEVELS)
        for group in (b, c):
            message = await anext(aiter(group))
            await message.reached("full")
            assert message.level().label.endswith("full")

    testing.run(body())


def test_with_causal_delivery_a_receiver_waits_for_more() -> None:
    async def body() -> None:
        async with testing.cluster("abc", order=Causal(levels=True, delivery="causal")) as cluster:
            await story(cluster["a"], cluster["b"])

    async def story(a: Group, b: Group) -> None:
        await a.send(b"x")
        message = await anext(aiter(b))
        assert Level.CAUSAL in message.level()
        assert Level.FULL not in message.level()
        await message.reached("causally-atomic")
        assert Level.ATOMIC in message.level()

    testing.run(body())


def test_levels_have_to_be_asked_for() -> None:
    async def body() -> None:
        async with testing.cluster("ab", order="causal") as cluster:
            sent = await cluster["a"].send(b"x")
            with pytest.raises(UsageError, match="not watched"):
                sent.level()
            with pytest.raises(UsageError, match="not watched"):
                await sent.reached("atomic")

    testing.run(body())


def test_the_options_reach_the_protocol() -> None:
    assert Causal().promises() == sco.PROMISES
    assert Causal(delivery="causal").promises() == sco.CAUSAL_PROMISES
    with pytest.raises(UsageError, match="delivery"):
        Causal(delivery="safe")


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (Causal(), ("continuous", "full", True, False)),
        (Causal(confirm="causal"), ("causal", "full", True, False)),
        (Causal(delivery="causal"), ("continuous", "causal", True, False)),
        (Causal(splits=False), ("continuous", "full", False, False)),
        (Causal(levels=True), ("continuous", "full", True, True)),
    ],
    ids=["none", "confirm", "delivery", "splits", "levels"],
)
def test_each_option_sets_its_knob(chosen: Causal, expected: tuple[str, str, bool, bool]) -> None:
    member = chosen.build(Settings(site="a", receive_buffer_bytes=1 << 20, random=Random(1)))
    assert isinstance(member, sco.Sco)
    knobs = member._state.configuration
    assert (knobs.acknowledge, knobs.delivery, knobs.splits, knobs.observe) == expected


def test_the_trace_of_a_live_group_has_the_levels(tmp_path: Path) -> None:
    async def body() -> None:
        async with testing.cluster("ab", order=WATCHED, trace=tmp_path) as cluster:
            sent = await cluster["a"].send(b"x")
            message = await anext(aiter(cluster["b"]))
            await asyncio.gather(sent.reached("full"), message.reached("full"))

    testing.run(body())
    found = {(row.site, row.level) for row in antiphon.read_levels(tmp_path) if row.sender == "a"}
    assert found == {(site, level.label) for site in "ab" for level in LEVELS}


# The waits


def note(waits: LevelWaits, number: int, count: int, *levels: str) -> None:
    for level in levels:
        waits.note(Reached("a", number, count, level))


def test_a_long_message_has_the_levels_of_all_its_pieces() -> None:
    waits = LevelWaits(watched=True)
    note(waits, 4, 1, "simple", "atomic")
    note(waits, 5, 1, "simple")
    assert waits.level("a", 4, 4) == Level.SIMPLE | Level.ATOMIC
    assert waits.level("a", 4, 5) == Level.SIMPLE
    assert waits.level("a", 4, 6) == Level(0)
    assert waits.level("b", 4, 4) == Level(0)


def test_waits_end_with_the_level_or_with_the_spell() -> None:
    async def story() -> None:
        waits = LevelWaits(watched=True)
        first = asyncio.ensure_future(waits.wait("a", 0, 1, Level.ATOMIC))
        second = asyncio.ensure_future(waits.wait("a", 9, 9, Level.ATOMIC))
        await asyncio.sleep(0)
        note(waits, 0, 1, "atomic")
        await asyncio.sleep(0)
        assert not first.done()
        note(waits, 1, 1, "atomic")
        await first
        waits.close(MissedError("gone"))
        with pytest.raises(MissedError, match="gone"):
            await second
        with pytest.raises(MissedError, match="gone"):
            await waits.wait("a", 9, 9, Level.FULL)

    asyncio.run(story())


def test_levels_are_public() -> None:
    assert antiphon.Level is Level
