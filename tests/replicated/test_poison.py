"""A fault of ours that a peer's PDU brings to light: the replica drops the PDU, keeps it, and goes on."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon.live.poison import POISON
from antiphon.protocols.quorum import Quorum
from antiphon.protocols.quorum.sides import Sides
from antiphon.replicated.objects import Map, Objects
from antiphon.testing import cluster, run
from antiphon.testing.clusters import Cluster

NAMES = ("a", "b", "c")
Shop = antiphon.Replicated[Objects]
Part = Callable[[Quorum], tuple[Any, str]]

PLACES: dict[str, Part] = {
    "a follower at entries": lambda protocol: (protocol._follower, "on_append"),
    "a leader at an answer": lambda protocol: (protocol._leader, "on_acknowledge"),
    "a leader at a batch": lambda protocol: (protocol._leader, "on_forward"),
    "a timer of the leader": lambda protocol: (protocol._leader, "fire"),
    "a timer of a follower": lambda protocol: (protocol._caller, "fire"),
    "a greeting's timer": lambda protocol: (protocol._membership, "fire"),
}


async def started(world: Cluster, store: Path | None, names: tuple[str, ...] = NAMES) -> list[Shop]:
    options = {name: {} if store is None else {"store": store / name} for name in names}
    return list(
        await asyncio.gather(
            *(world.replicate("shop", Objects(), name=name, members=NAMES, **options[name]) for name in names)
        )
    )


def side(shop: Shop) -> Quorum:
    protocol = shop._protocol
    assert protocol is not None
    return protocol.present if isinstance(protocol, Sides) else protocol


def raise_once(shop: Shop, place: Part) -> None:
    """Let a part of the protocol raise once, after it has done its work."""
    part, name = place(side(shop))
    sound = getattr(part, name)

    def faulty(*arguments: Any) -> Any:
        setattr(part, name, sound)
        sound(*arguments)
        raise RuntimeError("a fault of ours")

    setattr(part, name, faulty)


async def set_everywhere(shops: list[Shop], value: int) -> None:
    for shop in shops:
        while True:
            try:
                await Map(shop).set(shop.name, value)
                break
            except antiphon.CutOffError:
                await asyncio.sleep(0.05)
    for shop in shops:
        await shop.sync()
    assert len({shop.read(lambda objects: objects.snapshot()) for shop in shops}) == 1


async def faults(shops: list[Shop], place: str) -> None:
    """Let every member that can have a fault at this place have it, one after another."""
    for turn, shop in enumerate(shops):
        raise_once(shop, PLACES[place])
        await set_everywhere(shops, turn)
        await asyncio.sleep(1)
    found = [poison for shop in shops for poison in shop.poison]
    assert found, "there was a fault"
    assert all("RuntimeError: a fault of ours" in poison.error for poison in found)
    assert sum(shop.counters["drops"].get(POISON, 0) for shop in shops) == len(found)
    if "timer" not in place:
        assert all(poison.data.startswith(b"An") for poison in found)


@pytest.mark.parametrize("place", PLACES)
def test_a_replica_outlives_what_its_protocol_cannot_handle(place: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(0, seed=1) as world:
            shops = await started(world, tmp_path)
            await set_everywhere(shops, 100)
            await faults(shops, place)
            for shop in shops:
                await shop.leave(linger=False)
            again = await started(world, tmp_path)
            assert await Map(again[0]).items() == dict.fromkeys(NAMES, 2)  # from what is on disk
            await set_everywhere(again, 200)

    run(story())


@pytest.mark.parametrize("place", ["a follower at entries", "a leader at an answer"])
def test_it_does_so_without_a_disk(place: str) -> None:
    async def story() -> None:
        async with cluster(0, seed=2) as world:
            await faults(await started(world, None), place)

    run(story())


def test_it_does_so_without_a_quorum() -> None:
    async def story() -> None:
        async with cluster(0, seed=3) as world:
            made = (world.replicate("shop", Objects(), name=name, quorum=None) for name in NAMES)
            shops = list(await asyncio.gather(*made))
            while not all(shop.members == set(NAMES) and shop.leader for shop in shops):
                await asyncio.sleep(0.02)
            await faults(shops, "a follower at entries")

    run(story())


async def call_on(shop: antiphon.Replicated[Any]) -> None:
    while True:
        await Map(shop).set("x", 1)
        await asyncio.sleep(0.05)


def test_what_the_application_raises_ends_its_replica() -> None:
    class Broken(Objects):
        def departed(self, member: str) -> None:
            raise RuntimeError(f"not told of {member}")

    async def story() -> None:
        async with cluster(0, seed=4) as world:
            made = [world.replicate("shop", Broken(), name=name, members=NAMES) for name in NAMES]
            shops = await asyncio.gather(*made)
            await shops[0].leave()
            with pytest.raises((RuntimeError, antiphon.CutOffError)):
                await call_on(shops[1])
            assert shops[1].poison == ()

    run(story())
