"""Handles of objects on live replicas in simulated time: waits, watches, and what a dead member held."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from antiphon import testing
from antiphon.audit.local import audit_locally
from antiphon.check.verdict import Verdict
from antiphon.core.errors import UsageError
from antiphon.live.errors import LeftError
from antiphon.replicated.errors import CutOffError
from antiphon.replicated.objects import (
    Barrier,
    Change,
    Counter,
    Item,
    Leader,
    Leadership,
    Lock,
    LockLostError,
    Map,
    Objects,
    Queue,
    Semaphore,
    Set,
)
from antiphon.replicated.replica import Replicated
from antiphon.testing.clusters import Cluster

Shop = Replicated[Objects]
Story = Callable[[Cluster, Shop, Shop, Shop], Awaitable[None]]


@asynccontextmanager
async def group(seed: int = 1, **options: Any) -> AsyncIterator[tuple[Cluster, Shop, Shop, Shop]]:
    async with testing.cluster(0, seed=seed) as cluster:
        names = ("a", "b", "c")
        made = [cluster.replicate("shop", Objects(), name=name, members=names, **options) for name in names]
        first, second, third = await asyncio.gather(*made)
        yield cluster, first, second, third


def play(story: Story, **options: Any) -> None:
    async def whole() -> None:
        async with group(**options) as (cluster, a, b, c), asyncio.timeout(300):
            await story(cluster, a, b, c)

    testing.run(whole())


async def collect(source: AsyncIterator[Any], into: list[Any]) -> None:
    async for each in source:
        into.append(each)  # noqa: PERF401 (what came so far counts)


def test_a_map_is_the_same_everywhere() -> None:
    async def story(_: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        prices = [Map(shop, "prices") for shop in (a, b, c)]
        await prices[0].set("apple", 3)
        assert [await each.get("apple") for each in prices] == [3, 3, 3]
        assert await prices[1].compare_and_set("apple", 3, [4, None])
        assert not await prices[2].compare_and_set("apple", 3, 5)
        assert await prices[2].get("apple") == [4, None]
        assert await prices[0].get("pear", 7) == 7
        assert await prices[1].items() == {"apple": [4, None]}
        assert await prices[1].delete("apple")
        assert not await prices[0].delete("apple")
        assert prices[0].peek("apple") is None

    play(story)


def test_a_key_expires_everywhere() -> None:
    async def story(_: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        await Map(a).set("session", "x", expiry=5)
        await asyncio.sleep(4.9)
        assert await Map(b).get("session") == "x"
        await asyncio.sleep(0.5)
        assert [await Map(shop).get("session") for shop in (a, b, c)] == [None] * 3

    play(story)


def test_a_watch_sees_every_change_in_order() -> None:
    async def story(_: Cluster, a: Shop, b: Shop, _c: Shop) -> None:
        seen: list[Change] = []

        watching = asyncio.create_task(collect(Map(b).watch(prefix="x"), seen))
        await asyncio.sleep(0)
        for key, value in (("x1", 1), ("y", 1), ("x2", 2), ("x1", 3)):
            await Map(a).set(key, value)
        await Map(a).delete("x2")
        await Map(b).get("x1")
        await asyncio.sleep(0)
        watching.cancel()
        assert seen == [("x1", 1), ("x2", 2), ("x1", 3), ("x2", None)]

    play(story)


def test_a_counter_and_a_set_lose_nothing() -> None:
    async def story(_: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        sums = await asyncio.gather(*(Counter(shop).add() for shop in (a, b, c) for _ in range(20)))
        assert sorted(sums) == list(range(1, 61))
        assert await Counter(c).get() == 60
        assert sorted(await asyncio.gather(*(Set(shop).add("x") for shop in (a, b, c)))) == [
            False,
            False,
            True,
        ]
        assert await Set(b).contains("x")
        assert await Set(b).items() == ["x"]
        assert await Set(c).remove("x")

    play(story)


def test_a_lock_is_held_once_and_handed_on_with_growing_tokens() -> None:
    async def story(_: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        inside = 0
        tokens: list[int] = []

        async def work(shop: Shop) -> None:
            nonlocal inside
            for _ in range(5):
                async with Lock(shop, "till") as token:
                    inside += 1
                    assert inside == 1
                    tokens.append(token)
                    await asyncio.sleep(0.01)
                    inside -= 1

        await asyncio.gather(*(work(shop) for shop in (a, a, b, c)))
        assert tokens == list(range(1, 21))

    play(story)


def test_a_lock_of_a_dead_member_is_free_and_its_token_is_old() -> None:
    async def story(cluster: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        old = await Lock(c, "till").acquire()
        waiting = asyncio.create_task(Lock(a, "till").acquire())
        assert await Lock(b, "till").try_acquire() is None
        with pytest.raises(TimeoutError):
            await Lock(b, "till").acquire(timeout=0.1)
        cluster.kill("c")
        token = await waiting
        assert token > old
        assert Lock(a, "till").holds(token)
        assert not Lock(a, "till").holds(old)
        assert not await Lock(b, "till").release(token), "only its holder releases a lock"
        assert await Lock(a, "till").release(token)
        assert await Lock(b, "till").acquire() == token + 1, "a request that timed out holds nothing"

    play(story)


def test_a_holder_that_is_cut_off_learns_that_its_lock_may_be_lost() -> None:
    async def story(cluster: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        lock = Lock(a, "till")
        with pytest.raises(LockLostError, match="was lost while it was held"):  # noqa: PT012
            async with lock as token:
                waiting = asyncio.create_task(Lock(b, "till").acquire())
                cluster.partition({"a"}, {"b", "c"})
                await lock.lost(token)
                assert a.is_cut_off
                assert not lock.holds(token)
                with pytest.raises(CutOffError):
                    await Map(a).set("x", 1)
                assert await waiting > token
                cluster.heal()
                await until(lambda: not a.is_cut_off)
        await Map(c).set("x", 2)
        assert await Map(a).get("x") == 2

    play(story)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.05)


def test_a_request_that_is_cancelled_does_not_keep_the_lock() -> None:
    async def story(_: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        held = await Lock(a).acquire()
        waiting = asyncio.create_task(Lock(b).acquire())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await Lock(a).release(held)
        assert await asyncio.wait_for(Lock(c).acquire(), 5)

    play(story)


def test_a_wait_ends_when_its_replica_is_over() -> None:
    async def story(cluster: Cluster, a: Shop, b: Shop, _: Shop) -> None:
        await Lock(a).acquire()
        waiting = asyncio.create_task(Lock(b).acquire())
        await asyncio.sleep(0.1)
        cluster.kill("b")
        with pytest.raises(LeftError):
            await waiting

    play(story)


def test_a_semaphore_has_as_many_holders_as_permits() -> None:
    async def story(_: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        first = await Semaphore(a, permits=2).acquire()
        await Semaphore(b, permits=2).acquire()
        assert await Semaphore(c, permits=2).try_acquire() is None
        await Semaphore(a, permits=2).release(first)
        assert await Semaphore(c, permits=2).try_acquire() == 3

    play(story)


def test_another_member_leads_when_the_leader_is_gone() -> None:
    async def story(cluster: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        seen: list[Leadership | None] = []

        watching = asyncio.create_task(collect(Leader(a).watch(), seen))
        leader, follower = Leader(c), Leader(b)
        first = await leader.campaign()
        assert leader.leads
        with pytest.raises(UsageError, match="leads already"):
            await leader.campaign()
        coming = asyncio.create_task(follower.campaign())
        assert await Leader(a).current() == Leadership("c", first)
        cluster.kill("c")
        second = await coming
        assert second > first
        assert follower.leads
        assert await follower.resign()
        assert not follower.leads
        assert await Leader(a).current() is None
        watching.cancel()
        assert [each for each in seen if each] == [Leadership("c", first), Leadership("b", second)]

    play(story)


def test_each_item_is_taken_once_and_comes_back_from_the_dead() -> None:
    async def story(cluster: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        jobs = [Queue(shop, "jobs") for shop in (a, b, c)]
        done: list[int] = []

        async def work(queue: Queue) -> None:
            async for item in queue:
                async with item as value:
                    done.append(value)

        lost: Item = await take_after(jobs[2], jobs[0].put("lost"))
        assert (lost.number, lost.value) == (0, "lost")
        working = [asyncio.create_task(work(queue)) for queue in jobs[:2]]
        for number in range(20):
            await jobs[0].put(number)
        await until(lambda: len(done) == 20)
        cluster.kill("c")
        await until(lambda: len(done) == 21)
        for task in working:
            task.cancel()
        assert sorted(map(str, done)) == sorted(map(str, [*range(20), "lost"]))
        assert await jobs[0].size() == (0, 0)

    play(story)


async def take_after(queue: Queue, putting: Awaitable[int]) -> Item:
    await putting
    return await queue.take()


def test_an_item_whose_work_fails_waits_again_in_front() -> None:
    async def story(_: Cluster, a: Shop, b: Shop, _c: Shop) -> None:
        for value in ("x", "y"):
            await Queue(a).put(value)
        with pytest.raises(ZeroDivisionError):
            async with await Queue(a).take():
                raise ZeroDivisionError
        item = await Queue(b).take()
        assert item.value == "x"
        assert await item.confirm()
        assert not await item.confirm()

    play(story)


def test_a_barrier_waits_for_all_parties() -> None:
    async def story(_: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        passed: list[str] = []

        async def go(shop: Shop) -> None:
            for _ in range(3):
                await Barrier(shop, parties=3).wait()
                passed.append(shop.name)

        await asyncio.gather(*(go(shop) for shop in (a, b, c)))
        assert [sorted(passed[place : place + 3]) for place in (0, 3, 6)] == [["a", "b", "c"]] * 3

    play(story)


def test_mistakes_get_a_sentence() -> None:
    async def story(_: Cluster, a: Shop, _b: Shop, _c: Shop) -> None:
        await Map(a, "x").set("k", 1)
        for make, sentence in (
            (lambda: Counter(a, "x"), "The object x is a map, not a counter."),
            (lambda: Map(a, ""), "An object needs a name."),
            (lambda: Semaphore(a, permits=0), "at least one permit"),
            (lambda: Barrier(a, parties=0), "at least one party"),
        ):
            with pytest.raises(UsageError, match=sentence):
                make()
        with pytest.raises(UsageError, match="None is no value"):
            await Map(a).set("k", None)
        with pytest.raises(UsageError, match="A key of a map is text"):
            await Map(a).get(5)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="seconds above 0"):
            await Map(a).set("k", 1, expiry=0)

    play(story)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_calls_of_a_troubled_group_are_linearizable(tmp_path: Path, seed: int) -> None:
    """Calls of all kinds while members are killed and cut off; the audit judges what was recorded."""

    async def story(cluster: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        async def work(shop: Shop, turns: int) -> None:
            for turn in range(turns):
                with suppress(CutOffError, LeftError, LockLostError, TimeoutError):
                    await Map(shop).set("x", f"{shop.name}{turn}")
                    await Map(shop).get("x")
                    await Counter(shop).add()
                    await Map(shop).compare_and_set("x", f"a{turn}", turn)
                    await Queue(shop).put(turn)
                    await Set(shop).add(turn % 3)
                await asyncio.sleep(0.05)

        working = [asyncio.create_task(work(shop, 60)) for shop in (a, b, c)]
        await asyncio.sleep(0.5)
        cluster.partition({"a"}, {"b", "c"})
        await asyncio.sleep(1)
        cluster.heal()
        await asyncio.sleep(1)
        cluster.loss(0.1)
        cluster.kill("c")
        await asyncio.gather(*working)

    play(story, seed=seed, trace=tmp_path)
    result = audit_locally([tmp_path], expect=["linearizable"])
    assert result.verdict is Verdict.PASS, result
    assert sum(1 for file in (tmp_path / "calls").iterdir() for _ in file.open()) > 500


def test_a_lock_and_an_item_of_a_dead_member_are_no_violation(tmp_path: Path) -> None:
    async def story(cluster: Cluster, a: Shop, b: Shop, c: Shop) -> None:
        old = await Lock(c).acquire()
        await Queue(c).put("job")
        assert await Queue(c).try_take() is not None
        waiting = asyncio.create_task(Lock(a).acquire())
        await asyncio.sleep(0.1)
        cluster.kill("c")
        assert await waiting > old
        assert (await Queue(b).take()).value == "job"

    play(story, trace=tmp_path)
    result = audit_locally([tmp_path], expect=["linearizable"])
    assert result.verdict is Verdict.PASS, result
    text = "".join(file.read_text() for file in (tmp_path / "calls").iterdir())
    assert text.count('"departed"') >= 2
    for file in (tmp_path / "calls").iterdir():  # without the departures it would be one
        kept = [line for line in file.read_text().splitlines() if '"departed"' not in line]
        file.write_text("\n".join(kept))
    assert audit_locally([tmp_path], expect=["linearizable"]).verdict is Verdict.FAIL
