"""Replicas without a quorum, on simulated time: every side goes on, and sides that meet merge."""

import asyncio
import json
from typing import Any

import pytest

import antiphon
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received
from antiphon.core.wire import Pdu
from antiphon.protocols.quorum.sides import Dissolved, Merged, Part, Sides, Want
from antiphon.replicated import events as ev
from antiphon.testing import cluster, run
from antiphon.testing.clusters import Cluster

NAMES = ("a", "b", "c", "d", "e")


class Basket:
    """A set of items that only grows."""

    def __init__(self) -> None:
        self.items: set[str] = set()

    def apply(self, command: str) -> int:
        self.items.add(command)
        return len(self.items)

    def snapshot(self) -> bytes:
        return json.dumps(sorted(self.items)).encode()

    def restore(self, data: bytes) -> None:
        self.items = set(json.loads(data))


def union(mine: bytes, theirs: bytes) -> bytes:
    return json.dumps(sorted({*json.loads(mine), *json.loads(theirs)})).encode()


Shop = antiphon.Replicated[Basket]


def replicate(world: Cluster, name: str, merge: Any = union, basket: Basket | None = None) -> Shop:
    return world.replicate("shop", basket or Basket(), name=name, quorum=None, merge=merge)


async def together(*shops: Shop) -> None:
    """Wait until these members are on one side, and no other is."""
    names = {shop.name for shop in shops}
    while not all(shop.members == names and shop.leader for shop in shops):
        await asyncio.sleep(0.02)


def items(shop: Shop) -> set[str]:
    return set(shop.read(lambda basket: basket.items))


async def equal(*shops: Shop) -> set[str]:
    """What all hold, once all hold the same."""
    while len({frozenset(items(shop)) for shop in shops}) > 1:
        await asyncio.sleep(0.02)
    return items(shops[0])


async def begun(world: Cluster, count: int = 3) -> list[Shop]:
    shops = list(await asyncio.gather(*(replicate(world, name) for name in NAMES[:count])))
    await together(*shops)
    return shops


def test_members_find_each_other_and_hold_the_same() -> None:
    async def story() -> None:
        async with cluster(0, seed=1) as world:
            a, b, c = await begun(world)
            assert await a.call("apple") == 1
            assert await b.call("pear") == 2
            await c.sync()
            assert items(c) == {"apple", "pear"}

    run(story())


@pytest.mark.parametrize("seed", range(3))
def test_both_sides_go_on_and_are_merged(seed: int) -> None:
    async def story() -> None:
        async with cluster(0, seed=seed) as world:
            a, b, c = await begun(world)
            await a.call("before")
            world.partition({"a"}, {"b", "c"})
            assert await b.call("pear") == 2
            while a.members != {"a"}:
                await asyncio.sleep(0.02)
            assert await a.call("apple") == 2
            world.heal()
            await together(a, b, c)
            assert await equal(a, b, c) == {"before", "apple", "pear"}
            assert await c.call("plum") == 4

    run(story())


def test_no_side_needs_a_majority() -> None:
    async def story() -> None:
        async with cluster(0, seed=1) as world:
            shops = await begun(world, 4)
            a, b, c, d = shops
            world.partition({"a", "b"}, {"c", "d"})
            await asyncio.gather(together(a, b), together(c, d))
            await asyncio.gather(a.call("apple"), d.call("pear"))
            assert await equal(a, b) == {"apple"}
            assert await equal(c, d) == {"pear"}
            world.heal()
            await together(*shops)
            assert await equal(*shops) == {"apple", "pear"}

    run(story())


def test_one_member_is_enough_and_a_newcomer_takes_up_its_state() -> None:
    async def story() -> None:
        async with cluster(0, seed=1) as world:
            a = await replicate(world, "a")
            assert await a.call("apple") == 1
            b = await replicate(world, "b")
            await together(a, b)
            assert await equal(a, b) == {"apple"}
            world.kill("a")
            while b.members != {"b"}:
                await asyncio.sleep(0.02)
            assert await b.call("pear") == 2

    run(story())


def test_a_state_of_many_pieces_is_merged() -> None:
    async def story() -> None:
        async with cluster(0, seed=1) as world:
            a, b = await begun(world, 2)
            world.partition({"a"}, {"b"})
            while a.members != {"a"} or b.members != {"b"}:
                await asyncio.sleep(0.02)
            for number in range(12):
                await a.call(f"{number}" + "a" * 50_000)
                await b.call(f"{number}" + "b" * 50_000)
            world.heal()
            await together(a, b)
            assert len(await equal(a, b)) == 24

    run(story())


def test_a_call_under_way_when_a_member_parts_is_in_doubt() -> None:
    async def story() -> None:
        async with cluster(0, seed=1) as world:
            a, _, _ = await begun(world)
            world.partition({"a"}, {"b", "c"})
            with pytest.raises(antiphon.CutOffError, match="may have been applied") as raised:
                await a.call("apple")
            assert raised.value.uncertain

    run(story())


def test_events_tell_of_parting_and_merging() -> None:
    async def story() -> None:
        async with cluster(0, seed=1) as world:
            a, b, c = await begun(world)
            await b.call("before")
            alone, rest = a.events(), b.events()
            world.partition({"a"}, {"b", "c"})
            while a.members != {"a"}:
                await asyncio.sleep(0.02)
            await a.call("apple")
            world.heal()
            await together(a, b, c)
            found = [await anext(alone) for _ in range(2)]
            while not isinstance(found[-1], ev.Transferred):
                found.append(await anext(alone))
            assert ev.Parted() in found
            while not isinstance(event := await anext(rest), ev.Merged):
                pass
            assert event.source == "a"

    run(story())


def test_a_merge_that_raises_is_reported_and_the_group_goes_on() -> None:
    def broken(_mine: bytes, _theirs: bytes) -> bytes:
        raise ValueError("these do not fit")

    async def story() -> None:
        async with cluster(0, seed=1) as world:
            shops = await asyncio.gather(*(replicate(world, name, broken) for name in "ab"))
            a, b = shops
            await together(a, b)
            events = [each.events() for each in shops]
            world.partition({"a"}, {"b"})
            while a.members != {"a"} or b.members != {"b"}:
                await asyncio.sleep(0.02)
            await asyncio.gather(a.call("apple"), b.call("pear"))
            world.heal()
            await together(a, b)
            assert len(await equal(a, b)) == 1

            async def failure(feed: Any) -> ev.MergeFailed:
                while not isinstance(event := await anext(feed), ev.MergeFailed):
                    pass
                return event

            tasks = [asyncio.ensure_future(failure(each)) for each in events]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            assert done.pop().result().reason == "ValueError: these do not fit"
            for task in tasks:
                task.cancel()

    run(story())


# What others say of a side


def hear(shop: Shop, sender: str, pdu: Pdu) -> Sides:
    """A PDU that no honest process sends has come from a member."""
    assert shop._driver is not None
    shop._driver.feed(Received(sender, pdu))
    assert isinstance(shop._protocol, Sides)
    return shop._protocol


@pytest.mark.parametrize("heard", ["leader", "others", "all"])
def test_only_its_leader_dissolves_a_side(heard: str) -> None:
    """A member without a side waits for seconds before it begins one of its own."""

    async def story() -> None:
        async with cluster(0, seed=1) as world:
            shops = await begun(world)
            leader = shops[0].leader
            told = [shop for shop in shops if heard == "all" or (shop.name == leader) == (heard == "leader")]
            for shop in told:
                for sender in ("q", *({"a", "b", "c"} - {shop.name, leader})):
                    hear(shop, sender, Dissolved(hear(shop, "q", Dissolved(0)).present.group))
            assert all(shop.members == {"a", "b", "c"} for shop in shops)
            await asyncio.gather(*(shop.call(shop.name) for shop in shops))
            assert await equal(*shops) == {"a", "b", "c"}

    run(story())


async def meeting(world: Cluster) -> tuple[Shop, Shop, Sides, Sides]:
    """`a` alone gives its state to `b`, which has asked for it; with both members' parts of the protocol."""
    a, b = await begun(world, 2)
    world.partition({"a"}, {"b"})
    await asyncio.gather(together(a), together(b))
    await asyncio.gather(a.call("apple"), b.call("pear"))
    world.heal()
    ours, theirs = (hear(shop, "q", Dissolved(0)) for shop in (a, b))
    if ours._rank > theirs._rank:
        a, b, ours, theirs = b, a, theirs, ours
    while not theirs._taking:
        await asyncio.sleep(0.00001)
    assert ours._giving is not None
    return a, b, ours, theirs


def test_only_the_leader_that_has_taken_a_state_in_says_so() -> None:
    """What was acknowledged on the lesser side would be lost."""

    async def story() -> None:
        async with cluster(0, seed=1) as world:
            a, b, ours, _ = await meeting(world)
            assert ours._giving is not None
            hear(a, "q", Merged(ours.present.group, ours._giving.number))
            assert a.members == {a.name}
            await together(a, b)
            assert await equal(a, b) == {"apple", "pear"}

    run(story())


def test_a_state_goes_only_from_the_leader_that_gives_it_to_the_one_that_takes_it() -> None:
    async def story() -> None:
        async with cluster(0, seed=1) as world:
            a, b, ours, theirs = await meeting(world)
            assert ours._giving is not None
            group, number = ours.present.group, ours._giving.number
            moved_ns = ours._giving.moved_ns
            hear(a, "q", Want(group, number, (0,)))
            assert ours._giving.moved_ns == moved_ns
            hear(b, "q", Part(group, number, 0, b"no state"))
            assert not theirs._taking[group].pieces
            await together(a, b)
            assert await equal(a, b) == {"apple", "pear"}

    run(story())


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="needs merge="):
        antiphon.replicate("shop", Basket(), name="a", quorum=None)
    with pytest.raises(UsageError, match="keeps no store"):
        antiphon.replicate("shop", Basket(), name="a", quorum=None, merge=union, store="out")
    with pytest.raises(UsageError, match="is for quorum=None"):
        antiphon.replicate("shop", Basket(), name="a", members={"a"}, merge=union)

    async def story() -> None:
        async with cluster(0, seed=1) as world:
            a = await replicate(world, "a")
            with pytest.raises(UsageError, match="come and go by themselves"):
                await a.add("b")

    run(story())
