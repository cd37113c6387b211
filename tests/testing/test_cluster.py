"""A cluster on simulated time: the same API, faults on demand, and the same run for the same seed."""

import asyncio
import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import testing
from antiphon.check.checkers import check_all
from antiphon.core.errors import UsageError
from antiphon.live.errors import LeftError
from antiphon.live.group import Group
from antiphon.live.keys import KeyRing
from antiphon.trace.files import read_trace
from tests.live.members import joined, within
from tests.live.members import read as read_some

ORDERS = ("fifo", "causal", "sequencer", "total")

Story = Callable[[list[Group]], Awaitable[None]]


async def until(group: Group, kind: str, site: str) -> None:
    """Wait until a member hears this of another."""
    async for event in group.presence():
        if (event.kind, event.site) == (kind, site):
            return


# The fake is verified: the same stories on both


async def everyone_delivers_everything(groups: list[Group]) -> None:
    for turn in range(10):
        for group in groups:
            await group.send(f"{group.name}{turn}".encode())
    logs = await asyncio.gather(*(read_some(group, 10 * len(groups)) for group in groups))
    for log in logs:
        assert sorted(log) == sorted(logs[0])
        for name in (group.name for group in groups):
            assert [number for sender, number, _ in log if sender == name] == list(range(10))
    if groups[0].order in ("sequencer", "total"):
        assert all(log == logs[0] for log in logs)


async def a_long_message_is_stable_and_whole(groups: list[Group]) -> None:
    body = bytes(range(256)) * 1000
    sent = await groups[0].send(body)
    await sent.stable()
    for group in groups:
        assert (await read_some(group, 1))[0][2] == body


async def a_leave_is_told(groups: list[Group]) -> None:
    await groups[-1].leave()
    await until(groups[0], "vanished", groups[-1].name)
    assert groups[0].members == {group.name for group in groups[:-1]}


async def an_answer_goes_to_those_who_are_left(groups: list[Group]) -> None:
    """The reply that docs/causal.md shows, after a destination of the question has left."""
    first, second, third = groups
    await first.send(b"question", to={second.name, third.name})
    question = await anext(aiter(second))
    await third.leave()
    await until(second, "vanished", third.name)
    assert question.to is not None
    answer = await second.send(b"answer", to=question.to | {question.sender})
    assert (answer.to, answer.skipped) == (frozenset({first.name, second.name}), frozenset({third.name}))
    await answer.atomic()
    heard = await anext(aiter(first))
    assert (heard.body, heard.skipped) == (b"answer", frozenset())
    lonely = await second.send(b"anyone?", to={third.name})
    assert (lonely.to, lonely.skipped) == (frozenset(), frozenset({third.name}))
    await lonely.atomic()
    with pytest.raises(UsageError, match="never was"):
        await second.send(b"x", to={"stranger"})


async def a_batch_is_read_by_a_function(groups: list[Group]) -> None:
    found: list[bytes] = []
    reading = asyncio.create_task(groups[1].for_each_batch(lambda batch: found.extend(batch.bodies)))
    await groups[0].send_many([b"%d" % number for number in range(100)])
    while len(found) < 100:
        await asyncio.sleep(0.001)
    reading.cancel()
    assert found == [b"%d" % number for number in range(100)]


STORIES = (
    everyone_delivers_everything,
    a_long_message_is_stable_and_whole,
    a_leave_is_told,
    an_answer_goes_to_those_who_are_left,
    a_batch_is_read_by_a_function,
)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_goes_the_same_way_on_simulated_time(story: Story, order: str) -> None:
    async def body() -> None:
        async with testing.cluster(3, order=order) as cluster:
            await story(list(cluster))

    testing.run(body())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_and_on_real_sockets(story: Story, order: str) -> None:
    async def body() -> None:
        async with joined("m0", "m1", "m2", order=order) as groups:
            await story(groups)

    within(body())


# Faults


@pytest.mark.parametrize("order", ORDERS)
def test_a_member_that_is_killed_is_missed_and_may_be_restarted(order: str) -> None:
    async def body() -> None:
        async with testing.cluster(3, order=order) as cluster:
            old = cluster["m2"]
            reading = asyncio.create_task(read_some(old, 1))
            await asyncio.sleep(0)
            cluster.kill("m2")
            with pytest.raises(LeftError, match="'m2' was killed"):
                await reading
            with pytest.raises(LeftError):
                await old.send(b"too late")
            await until(cluster["m0"], "vanished", "m2")
            again = await cluster.restart("m2")
            assert cluster["m2"] is again is not old
            await asyncio.gather(*(group.wait_for_members(3) for group in cluster))
            await again.send(b"again")
            assert [(await read_some(group, 1))[0][2] for group in cluster] == [b"again"] * 3

    testing.run(body())


@pytest.mark.parametrize("order", ORDERS)
def test_parts_of_a_network_miss_each_other_until_it_is_healed(order: str) -> None:
    async def body() -> None:
        async with testing.cluster(4, order=order) as cluster:
            cluster.partition({"m0", "m1"})
            await until(cluster["m0"], "vanished", "m3")
            assert cluster["m0"].members == {"m0", "m1"}
            cluster.heal()
            await asyncio.gather(*(group.wait_for_members(4) for group in cluster))

    testing.run(body())


@pytest.mark.parametrize("order", ORDERS)
def test_a_paused_member_stands_still_and_goes_on(order: str) -> None:
    async def body() -> None:
        async with testing.cluster(3, order=order) as cluster:
            cluster.pause("m1")
            await cluster["m0"].send(b"while it stands")
            await asyncio.sleep(0.1)
            assert cluster["m1"].counters["delivered_messages"] == 0
            cluster.resume("m1")
            assert (await read_some(cluster["m1"], 1))[0][2] == b"while it stands"
            cluster.pause("m1")
            await until(cluster["m0"], "vanished", "m1")
            cluster.resume("m1")
            await asyncio.gather(*(group.wait_for_members(3) for group in cluster))

    testing.run(body())


@pytest.mark.parametrize("key", [None, KeyRing.generate()], ids=["open", "sealed"])
@pytest.mark.parametrize("order", ORDERS)
def test_what_is_lost_is_repaired_and_the_trace_holds(
    order: str, key: KeyRing | None, tmp_path: Path
) -> None:
    async def body() -> None:
        async with testing.cluster(3, order=order, trace=tmp_path, key=key, seed=7) as cluster:
            cluster.loss(0.2)
            for turn in range(30):
                await cluster[f"m{turn % 3}"].send(bytes([turn]))
            logs = await asyncio.gather(*(read_some(group, 30) for group in cluster))
            assert all(len(log) == 30 for log in logs)
            assert any(group.counters["datagrams_received"] for group in cluster)
            cluster.heal()
            await asyncio.gather(*(group.finish() for group in cluster))

    testing.run(body())
    trace = read_trace(tmp_path)
    (run,) = trace.runs
    (violations,) = check_all(trace).values()
    assert not [each for each in violations if each.property in run.promises]


def test_groups_of_several_kinds_share_a_network() -> None:
    async def body() -> None:
        async with testing.cluster(0) as cluster:
            alice, bob = await asyncio.gather(*(cluster.node("shop", name=name) for name in ("alice", "bob")))
            await alice.wait_for_nodes(2)
            orders = await alice.join("orders")
            await bob.group("orders").send(b"a book")
            message = await anext(aiter(alice))
            assert (message.group, message.body) == ("orders", b"a book")
            await orders.leave()
            other = await cluster.join("other", name="alice", order="causal")
            cluster.kill("alice")
            for group in (alice.join("x"), other.send(b"x")):
                with pytest.raises(LeftError, match="killed"):
                    await group

    testing.run(body())


def test_a_late_joiner_is_given_the_history_that_is_on_disk(tmp_path: Path) -> None:
    async def body() -> None:
        async with testing.cluster(2, history=tmp_path) as cluster:
            await cluster["m0"].send(b"before")
            await asyncio.gather(*(read_some(group, 1) for group in cluster))
            late = await cluster.join(cluster.group, name="late", catch_up=True)
            assert (await read_some(late, 1))[0][2] == b"before"
            assert await late.wait_for_history()

    testing.run(body())


# Determinism


async def eventful(seed: int) -> str:
    """What each member delivers and hears under faults, and when, as a hash."""
    told: list[str] = []
    tasks: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()

    def follow(group: Group) -> None:
        tasks.extend(
            asyncio.create_task(note(group.name, events)) for events in (aiter(group), group.presence())
        )

    async def note(name: str, events: AsyncIterator[object]) -> None:
        with contextlib.suppress(LeftError):
            async for event in events:
                tell(name, event)

    def tell(name: str, event: object) -> None:
        told.append(f"{loop.time()} {name} {event}")

    async with testing.cluster(4, seed=seed, order="total") as cluster:
        for group in cluster:
            follow(group)
        cluster.loss(0.1)
        for turn in range(40):
            await cluster[f"m{turn % 3}"].send(f"{turn}".encode())
            await asyncio.sleep(0.003)
        cluster.partition({"m0"})
        await cluster["m1"].send(b"apart")
        await asyncio.sleep(2)
        cluster.heal()
        cluster.kill("m3")
        follow(await cluster.restart("m3"))
        await cluster["m0"].send(b"together")
        await asyncio.sleep(2)
    await asyncio.gather(*tasks)
    assert len(told) > 120
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def test_the_same_seed_gives_the_same_deliveries_at_the_same_times() -> None:
    first, again, other = (testing.run(eventful(seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_the_same_seed_gives_the_same_deliveries_in_another_process() -> None:
    program = "from tests.testing.test_cluster import *; print(testing.run(eventful(1)))"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1


# Time


def test_simulated_hours_pass_at_once() -> None:
    async def body() -> float:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await asyncio.sleep(3600)
        return loop.time() - begin

    began = time.monotonic()
    assert testing.run(body(), limit_s=4000) == pytest.approx(3600)
    assert time.monotonic() - began < 10


def hang(cluster_of: int) -> Coroutine[Any, Any, None]:
    async def body() -> None:
        async with testing.cluster(cluster_of):
            await asyncio.get_running_loop().create_future()

    return body()


def test_a_test_that_hangs_is_ended_after_a_while_of_simulated_time() -> None:
    with pytest.raises(TimeoutError, match="not ended after 5 s of simulated time"):
        testing.run(hang(2), limit_s=5)


def test_mistakes_are_told() -> None:
    async def body() -> None:
        async with testing.cluster(["alice", "bob"]) as cluster:
            for call in (cluster.kill, cluster.pause, cluster.resume, cluster.__getitem__):
                with pytest.raises(UsageError, match="no member 'carol'"):
                    call("carol")
            with pytest.raises(UsageError, match="no member 'carol'"):
                cluster.partition({"alice"}, {"carol"})
            with pytest.raises(UsageError, match="from 0 to 1"):
                cluster.loss(2)
            with pytest.raises(UsageError, match="its own network"):
                cluster.join("g", name="carol", network="loopback")
            with pytest.raises(UsageError, match="'lan' needs one channel"):
                cluster.join("g", name="carol", order="total", service="lan")

    testing.run(body())
    with pytest.raises(UsageError, match="simulated time"):
        asyncio.run(hang(2))
    with pytest.raises(UsageError, match="name of its own"):
        testing.cluster(["a", "a"])
    with pytest.raises(UsageError, match="not run yet"):
        testing.cluster(1).heal()
    assert antiphon.testing is testing
