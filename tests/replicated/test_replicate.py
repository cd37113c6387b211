"""`antiphon.replicate` on simulated time: calls, faults, state transfer, changes of the members."""

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon
from antiphon.core.errors import UsageError
from antiphon.replicated import events as ev
from antiphon.replicated import replica
from antiphon.testing import cluster, run
from antiphon.testing.clusters import Cluster

NAMES = ("a", "b", "c")
Story = Callable[[], Coroutine[Any, Any, None]]


class Board:
    """A map that also notes departures and the time."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.departures: list[str] = []
        self.time_ns = 0
        self.wants_ticks = False

    def apply_from(self, command: Any, caller: str) -> Any:
        match command:
            case ["set", key, value]:
                self.values[key] = value
                return [caller, len(self.values)]
            case ["clock", wanted]:
                self.wants_ticks = wanted
                return None
        raise KeyError(f"no command {command!r}")

    def apply(self, command: Any) -> Any:
        raise AssertionError("this machine wants to know the caller")

    def departed(self, member: str) -> None:
        self.departures.append(member)

    def tick(self, time_ns: int) -> None:
        assert time_ns > self.time_ns
        self.time_ns = time_ns

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode([self.values, self.departures, self.time_ns, self.wants_ticks])

    def restore(self, data: bytes) -> None:
        self.values, self.departures, self.time_ns, self.wants_ticks = msgspec.msgpack.decode(data)


Shop = antiphon.Replicated[Board]


async def started(world: Cluster, names: tuple[str, ...] = NAMES, **options: Any) -> dict[str, Shop]:
    shops = [world.replicate("shop", Board(), name=name, members=NAMES, **options) for name in names]
    return dict(zip(names, await asyncio.gather(*shops), strict=True))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def end_of(events: Any) -> None:
    async for _ in events:
        pass


def others(shops: dict[str, Shop], name: str | None) -> list[Shop]:
    return [shop for each, shop in shops.items() if each != name]


def test_a_call_returns_the_local_result_and_sync_makes_reads_up_to_date() -> None:
    async def story() -> None:
        async with cluster(0, seed=1) as world:
            shops = await started(world)
            assert await shops["a"].call(["set", "x", 1]) == ["a", 1]
            assert await shops["b"].call(["set", "y", {"deep": [None, b"z", 1.5]}]) == ["b", 2]
            await shops["c"].sync()
            assert shops["c"].read(lambda board: board.values) == {"x": 1, "y": {"deep": [None, b"z", 1.5]}}
            keys = [(name, f"{name}{number}") for number in range(50) for name in NAMES]
            await asyncio.gather(*(shops[name].call(["set", key, 1]) for name, key in keys))
            for shop in shops.values():
                await shop.sync()
            assert len({shop.read(lambda board: board.snapshot()) for shop in shops.values()}) == 1

    run(story())


def test_an_exception_of_the_machine_is_the_result_of_its_call() -> None:
    async def story() -> None:
        async with cluster(0, seed=2) as world:
            shops = await started(world)
            with pytest.raises(KeyError, match="no command"):
                await shops["b"].call(["nonsense"])
            assert await shops["b"].call(["set", "x", 1]) == ["b", 1]

    run(story())


@pytest.mark.parametrize("seed", range(5))
def test_after_the_leader_is_killed_the_next_call_takes_less_than_150_ms(seed: int) -> None:
    async def story() -> None:
        async with cluster(0, seed=seed) as world:
            shops = await started(world)
            await shops["a"].call(["set", "x", 1])
            leader = shops["a"].leader
            assert leader is not None
            world.kill(leader)
            survivor, before = others(shops, leader)[0], asyncio.get_running_loop().time()
            await survivor.call(["set", "y", 2])
            assert asyncio.get_running_loop().time() - before < 0.15
            await survivor.sync()
            assert survivor.read(lambda board: board.values) == {"x": 1, "y": 2}
            await until(lambda: survivor.read(lambda board: board.departures) == [leader])

    run(story())


def test_a_leader_that_leaves_hands_over_at_once() -> None:
    async def story() -> None:
        async with cluster(0, seed=13) as world:
            shops = await started(world)
            await shops["a"].call(["set", "x", 1])
            leader = shops["a"].leader
            assert leader is not None
            survivor = others(shops, leader)[0]
            before = asyncio.get_running_loop().time()
            await shops[leader].leave()
            await survivor.call(["set", "y", 2])
            assert asyncio.get_running_loop().time() - before < 0.03
            await until(lambda: survivor.read(lambda board: board.departures) == [leader])
            assert asyncio.get_running_loop().time() - before < 0.1
            with pytest.raises(antiphon.LeftError):
                await shops[leader].call(["set", "z", 3])

    run(story())


def test_a_minority_is_cut_off_and_takes_up_the_majoritys_state() -> None:
    async def story() -> None:
        async with cluster(0, seed=3) as world:
            shops = await started(world)
            await shops["a"].call(["set", "x", 1])
            alone = shops["a"].leader
            assert alone is not None
            events = shops[alone].events()
            world.partition({alone}, set(NAMES) - {alone})
            with pytest.raises(antiphon.CutOffError) as lost:
                await shops[alone].call(["set", "x", "lost?"])
            assert lost.value.uncertain
            with pytest.raises(antiphon.CutOffError, match="does not reach a majority") as refused:
                await shops[alone].call(["set", "x", "refused"])
            assert not refused.value.uncertain
            await others(shops, alone)[0].call(["set", "x", 2])
            world.heal()
            await until(lambda: not shops[alone].is_cut_off)
            await shops[alone].sync()
            assert shops[alone].read(lambda board: board.values) == {"x": 2}
            seen = [type(await anext(events)) for _ in range(4)]
            assert antiphon.CutOff in seen
            assert ev.Restored in seen

    run(story())


def test_a_member_without_a_store_comes_back_with_the_others_state() -> None:
    async def story() -> None:
        async with cluster(0, seed=4) as world:
            shops = await started(world)
            await asyncio.gather(*(shops["a"].call(["set", str(number), number]) for number in range(100)))
            world.kill("b")
            await shops["a"].call(["set", "x", 1])
            back = (await started(world, ("b",)))["b"]
            await back.sync()
            assert len(back.read(lambda board: board.values)) == 101
            await until(lambda: back.members == set(NAMES))
            world.kill("c")
            assert await back.call(["set", "y", 1]) == ["b", 102]

    run(story())


def test_large_state_is_transferred_while_calls_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "SNAPSHOT_BYTES", 300_000)

    async def story() -> None:
        async with cluster(0, seed=5) as world:
            shops = await started(world)
            for number in range(60):
                await shops["a"].call(["set", f"big{number}", bytes([number]) * 100_000])
            world.kill("c")
            calls = 0

            async def go_on() -> None:
                nonlocal calls
                while True:
                    await shops["a"].call(["set", "count", calls])
                    calls += 1

            going = asyncio.ensure_future(go_on())
            shop = world.replicate("shop", Board(), name="c", members=NAMES)
            events = shop.events()
            await shop
            going.cancel()
            await shop.sync()
            assert shop.read(lambda board: board.values["big59"]) == bytes([59]) * 100_000
            assert calls > 20
            assert shop.counters["fetched_bytes"] > 3_000_000
            kinds = [event async for event in _some(events, 4)]
            assert any(isinstance(event, ev.Transferred) and event.size > 3_000_000 for event in kinds)

    async def _some(events: Any, count: int) -> Any:
        for _ in range(count):
            yield await anext(events)

    run(story())


def test_members_are_added_and_removed_while_it_runs() -> None:
    async def story() -> None:
        async with cluster(0, seed=6) as world:
            shops = await started(world)
            await shops["a"].call(["set", "x", 1])
            newcomer = world.replicate("shop", Board(), name="d", members=NAMES)
            joining = asyncio.ensure_future(newcomer.__aenter__())
            await shops["b"].add("d")
            await joining
            assert newcomer.read(lambda board: board.values) == {"x": 1}
            leader = newcomer.leader
            assert leader is not None
            removed = asyncio.ensure_future(end_of(shops[leader].events()))
            await newcomer.remove(leader)  # the leader itself
            assert newcomer.members == {*NAMES, "d"} - {leader}
            await removed
            with pytest.raises(antiphon.RemovedError, match="was removed"):
                await shops[leader].call(["set", "y", 1])
            assert await newcomer.call(["set", "z", 1]) == ["d", 2]

    run(story())


def test_the_agreed_clock_runs_while_the_machine_wants_it() -> None:
    async def story() -> None:
        async with cluster(0, seed=7) as world:
            shops = await started(world)
            await shops["a"].call(["clock", True])
            board = shops["b"].read(lambda board: board)
            await until(lambda: board.time_ns > 0)
            first = board.time_ns
            await asyncio.sleep(1)
            assert board.time_ns - first > 500_000_000
            await shops["a"].call(["clock", False])
            await asyncio.sleep(0.2)
            last = board.time_ns
            await asyncio.sleep(1)
            assert board.time_ns == last

    run(story())


def test_a_group_that_has_lost_all_members_begins_empty_and_says_so() -> None:
    async def story() -> None:
        async with cluster(0, seed=8) as world:
            shops = await started(world)
            await shops["a"].call(["set", "x", 1])
            for name in NAMES:
                world.kill(name)
            fresh = [world.replicate("shop", Board(), name=name, members=NAMES) for name in NAMES]
            events = fresh[1].events()
            await asyncio.gather(*fresh)
            assert await anext(events) == ev.Began(NAMES)
            assert fresh[0].read(lambda board: board.values) == {}

    run(story())


def test_stores_bring_everything_back_after_all_members_were_killed(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(0, seed=9) as world:

            async def all_started() -> dict[str, Shop]:
                shops = [
                    world.replicate("shop", Board(), name=name, members=NAMES, store=tmp_path / name)
                    for name in NAMES
                ]
                return dict(zip(NAMES, await asyncio.gather(*shops), strict=True))

            shops = await all_started()
            for number in range(40):
                await shops[NAMES[number % 3]].call(["set", str(number), number])
            for name in NAMES:
                world.kill(name)
            shops = await all_started()
            await shops["b"].sync()
            assert shops["b"].read(lambda board: board.values) == {str(each): each for each in range(40)}

    run(story())


def test_a_full_disk_stops_a_member_and_not_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    full: set[int] = set()

    def sparing(file: int, data: Any) -> int:
        if full and "/b/" in str(Path(f"/proc/self/fd/{file}").readlink()):
            raise OSError(28, "No space left on device")
        return write(file, data)

    async def story() -> None:
        async with cluster(0, seed=10) as world:
            shops = {
                name: world.replicate("shop", Board(), name=name, members=NAMES, store=tmp_path / name)
                for name in NAMES
            }
            await asyncio.gather(*shops.values())
            events = shops["b"].events()
            monkeypatch.setattr(os, "write", sparing)
            full.add(1)
            await shops["a"].call(["set", "x", 1])
            await until(lambda: shops["b"].counters["unstored_bytes"] > 0)
            full.clear()
            kinds = [type(await anext(events)) for _ in range(2)]
            assert kinds == [ev.StoreFailed, ev.StoreRecovered]
            assert await shops["b"].call(["set", "y", 1]) == ["b", 2]

    run(story())


def test_a_start_without_the_others_says_what_is_missing() -> None:
    async def story() -> None:
        async with cluster(0, seed=11) as world:
            with pytest.raises(
                antiphon.CutOffError, match="all members, without store=; the missing ones are 'b', 'c'"
            ):
                await world.replicate(
                    "shop", Board(), name="a", members=NAMES, limits=antiphon.Limits(join_s=1)
                )

    run(story())


def test_a_start_that_fails_says_what_the_others_are_in() -> None:
    async def story() -> None:
        async with cluster(0, seed=14) as world:
            shops = await started(world)
            soon = antiphon.Limits(join_s=1)
            with pytest.raises(antiphon.CutOffError, match=r"has not added it.*shop.add\('d'\)"):
                await world.replicate("shop", Board(), name="d", members=NAMES, limits=soon)
            await shops["c"].call(["set", "x", 1])
            world.kill("a")
            world.kill("b")
            with pytest.raises(antiphon.CutOffError, match="restart all of them to begin empty"):
                await world.replicate("shop", Board(), name="a", members=NAMES, limits=soon)

    run(story())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"members": "abc"}, "the set of all members"),
        ({"members": ()}, "the names of all members, or how many"),
        ({"expected": 3}, "the names of all members, or how many"),
        ({"members": (), "expected": 0}, "has 1 to 64 members"),
        ({"machine": object()}, "object is no machine"),
        ({"quorum": None}, "every side of a partition"),
        ({"quorum": "two"}, "no quorum 'two'"),
        ({"departed_after_s": 0}, "must be positive"),
        ({"name": "a b"}, "no name for a member"),
        ({"network": "peers:10.0.0.1:4000"}, "key"),
    ],
)
def test_mistakes_get_a_sentence(options: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"machine": Board(), "name": "a", "members": NAMES} | options
    with pytest.raises(antiphon.AntiphonError, match=sentence):
        antiphon.replicate("shop", given.pop("machine"), **given)


def test_commands_are_plain_data_of_bounded_size() -> None:
    async def story() -> None:
        async with cluster(0, seed=12) as world:
            shops = await started(world)
            with pytest.raises(UsageError, match="no plain data"):
                await shops["a"].call(["set", "x", object()])
            with pytest.raises(UsageError, match="too large"):
                await shops["a"].call(["set", "x", bytes(300_000)])
            assert await shops["a"].call(["set", "x", bytes(200_000)]) == ["a", 1]

    run(story())


def counted(world: Cluster, name: str, expected: int = 3, **options: Any) -> Shop:
    options = {"limits": antiphon.Limits(join_s=3)} | options
    return world.replicate("shop", Board(), name=name, expected=expected, **options)


def test_a_group_forms_once_the_expected_number_is_there() -> None:
    async def story() -> None:
        async with cluster(0, seed=31) as world:
            early = [asyncio.ensure_future(counted(world, name).__aenter__()) for name in ("x", "m")]
            await asyncio.sleep(1)
            assert not any(each.done() for each in early)
            third = await counted(world, "a")
            assert await third.call(["set", "x", 1]) == ["a", 1]
            assert {shop.members for shop in await asyncio.gather(*early)} == {frozenset("amx")}
            with pytest.raises(antiphon.CutOffError, match="'a', 'm', 'x' has not added it"):
                await counted(world, "late")
            arriving = asyncio.ensure_future(counted(world, "late").__aenter__())
            await third.add("late")
            assert (await arriving).read(lambda board: board.values) == {"x": 1}
            world.kill("m")
            again = await counted(world, "m")
            assert again.read(lambda board: board.values) == {"x": 1}

    run(story())


@pytest.mark.parametrize(
    ("expected", "sentence"),
    [
        ((3, 3), "it expects 3 members, and 2 are there: 'a', 'b'"),
        ((3, 3, 3, 3), "it expects 3 members, and 4 are there: 'a', 'b', 'c', 'd'"),
        ((2, 3), "it expects . members, and '.' ."),
    ],
)
def test_a_group_that_cannot_form_says_why(expected: tuple[int, ...], sentence: str) -> None:
    async def story() -> None:
        async with cluster(0, seed=32) as world:
            shops = [counted(world, "abcd"[place], each) for place, each in enumerate(expected)]
            ends = await asyncio.gather(*(shop.__aenter__() for shop in shops), return_exceptions=True)
            for end in ends:
                assert isinstance(end, antiphon.CutOffError)
                assert re.search(sentence, end.sentence)

    run(story())


def test_with_stores_a_majority_is_enough_for_the_first_start(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(0, seed=33) as world:
            shops = {
                name: world.replicate("shop", Board(), name=name, members=NAMES, store=tmp_path / name)
                for name in NAMES
            }
            await asyncio.gather(shops["b"].__aenter__(), shops["c"].__aenter__())
            assert await shops["b"].call(["set", "x", 1]) == ["b", 1]
            await shops["a"].__aenter__()
            assert shops["a"].read(lambda board: board.values) == {"x": 1}
            world.kill("b")
            assert await shops["c"].call(["set", "x", 2]) == ["c", 1]
            assert shops["a"].members == frozenset(NAMES)

    run(story())


def test_without_a_store_at_each_member_the_first_start_needs_all(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(0, seed=34) as world:
            soon = antiphon.Limits(join_s=4)
            stores = {"b": tmp_path / "b", "c": None}
            shops = [
                world.replicate("shop", Board(), name=name, members=NAMES, store=store, limits=soon)
                for name, store in stores.items()
            ]
            ends = await asyncio.gather(*(shop.__aenter__() for shop in shops), return_exceptions=True)
            assert all("the missing ones are 'a'" in str(end) for end in ends)

    run(story())
