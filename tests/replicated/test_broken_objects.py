"""Every ready-made object under the audit: a busy history passes, and that of a broken machine is caught."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from antiphon import testing
from antiphon.audit.local import audit_locally
from antiphon.check.verdict import Verdict
from antiphon.replicated.errors import CutOffError
from antiphon.replicated.objects import (
    Barrier,
    Counter,
    Leader,
    Lock,
    Map,
    Objects,
    Queue,
    Semaphore,
    Set,
)
from antiphon.replicated.objects.barrier import BarrierMachine
from antiphon.replicated.objects.counter import CounterMachine
from antiphon.replicated.objects.lock import PermitMachine
from antiphon.replicated.objects.map import MapMachine
from antiphon.replicated.objects.queue import QueueMachine
from antiphon.replicated.objects.set import SetMachine
from antiphon.replicated.replica import Replicated

Shop = Replicated[Objects]
Work = Callable[[Shop, Random], Awaitable[None]]
Broken = tuple[type, str, Callable[..., Any]]


async def on_map(shop: Shop, random: Random) -> None:
    store, key = Map(shop), random.choice("xy")
    await store.set(key, random.random())
    await store.get(key)
    await store.compare_and_set(key, store.peek(key), random.random())


async def on_counter(shop: Shop, _: Random) -> None:
    await Counter(shop).add()
    await Counter(shop).get()


async def on_set(shop: Shop, random: Random) -> None:
    await Set(shop).add(random.choice("xy"))
    await Set(shop).remove(random.choice("xy"))
    await Set(shop).contains(random.choice("xy"))


async def on_lock(shop: Shop, random: Random) -> None:
    lock = Lock(shop)
    try:
        token = await lock.acquire(timeout=random.choice([0.002, 0.01, 5]))
    except TimeoutError:
        return
    await asyncio.sleep(0.01)
    await lock.release(token)


async def on_semaphore(shop: Shop, random: Random) -> None:
    semaphore = Semaphore(shop, permits=2)
    token = await (semaphore.acquire() if random.random() < 0.5 else semaphore.try_acquire())
    await asyncio.sleep(0.01)
    if token is not None:
        await semaphore.release(token)


async def on_leader(shop: Shop, random: Random) -> None:
    if random.random() < 0.5:
        await Leader(shop).current()
        return
    async with Leader(shop):
        await asyncio.sleep(0.01)


async def on_queue(shop: Shop, random: Random) -> None:
    queue = Queue(shop)
    await queue.put(random.random())
    item = await queue.try_take()
    await queue.size()
    if item is not None:
        await (item.confirm() if random.random() < 0.7 else item.give_back())


async def on_barrier(shop: Shop, random: Random) -> None:
    await asyncio.sleep(random.random() * 0.05)
    await Barrier(shop, parties=3).wait()


async def busy(shop: Shop, work: Work, turns: int) -> None:
    random = Random(f"work {shop.name}")
    for _ in range(turns):
        try:
            await work(shop, random)
        except CutOffError:
            await asyncio.sleep(0.1)
        await asyncio.sleep(random.random() * 0.02)


def verdict(work: Work, folder: Path, *, faults: bool) -> Verdict:
    """The audit's verdict on three members that do this work at the same time."""

    async def story() -> None:
        async with testing.cluster(0, seed=1) as cluster, asyncio.timeout(300):
            made = [
                cluster.replicate("shop", Objects(), name=name, members="abc", trace=folder) for name in "abc"
            ]
            shops = await asyncio.gather(*made)
            working = [asyncio.create_task(busy(shop, work, 40)) for shop in shops]
            if faults:
                await asyncio.sleep(0.2)
                cluster.partition({"a"}, {"b", "c"})
                await asyncio.sleep(1.5)
                cluster.heal()
            await asyncio.wait(working, timeout=20)
            for each in working:
                each.cancel()
            for end in await asyncio.gather(*working, return_exceptions=True):
                assert end is None or isinstance(end, asyncio.CancelledError), end

    testing.run(story())
    return audit_locally([folder], expect=["linearizable"]).verdict


WORKS: dict[str, Work] = {
    "map": on_map,
    "counter": on_counter,
    "set": on_set,
    "lock": on_lock,
    "semaphore": on_semaphore,
    "leader": on_leader,
    "queue": on_queue,
    "barrier": on_barrier,
}


@pytest.mark.parametrize("name", WORKS)
def test_a_busy_object_keeps_its_promise_over_a_partition(name: str, tmp_path: Path) -> None:
    assert verdict(WORKS[name], tmp_path, faults=True) is Verdict.PASS


def broken(kind: type, method: str) -> Callable[[Callable[..., Any]], Broken]:
    """A method that calls the whole one, and does something else now and then."""

    def make(body: Callable[..., Any]) -> Broken:
        whole = getattr(kind, method)
        return kind, method, lambda self, *given, **named: body(whole, self, *given, **named)

    return make


@broken(MapMachine, "apply")
def skip_a_set(whole: Any, self: Any, operation: str, arguments: Any, caller: str) -> Any:
    if operation == "set" and str(arguments[1])[-1] in "37":
        return None
    return whole(self, operation, arguments, caller)


@broken(CounterMachine, "apply")
def skip_an_addition(whole: Any, self: Any, operation: str, arguments: Any, caller: str) -> Any:
    if operation == "add" and self.sum % 5 == 4 and caller == "b":
        return self.sum + 1
    return whole(self, operation, arguments, caller)


@broken(SetMachine, "apply")
def add_what_is_there(whole: Any, self: Any, operation: str, arguments: Any, caller: str) -> Any:
    return whole(self, operation, arguments, caller) or operation == "add"


@broken(PermitMachine, "_grant")
def grant_too_many(whole: Any, self: Any) -> None:
    self._permits += 1
    whole(self)
    self._permits -= 1


@broken(PermitMachine, "_grant")
def repeat_a_term(whole: Any, self: Any) -> None:
    whole(self)
    self._greatest = min(self._greatest, 3)


@broken(QueueMachine, "_take")
def leave_what_was_taken(whole: Any, self: Any, ticket: str, caller: str) -> Any:
    found = whole(self, ticket, caller)
    if found is not None and found[0] % 4 == 3:
        self._waiting[found[0]] = self._taken[found[0]][2]
    return found


@broken(BarrierMachine, "outcome")
def pass_too_early(whole: Any, self: Any, ticket: str, belongs_to: int) -> bool | None:
    return True if len(self._arrived) == 2 else whole(self, ticket, belongs_to)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("map", skip_a_set),
        ("counter", skip_an_addition),
        ("set", add_what_is_there),
        ("lock", grant_too_many),
        ("semaphore", grant_too_many),
        ("leader", repeat_a_term),
        ("leader", grant_too_many),
        ("queue", leave_what_was_taken),
        ("barrier", pass_too_early),
    ],
)
def test_a_broken_machine_is_caught(
    name: str, fault: Broken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*fault)
    assert verdict(WORKS[name], tmp_path, faults=False) is Verdict.FAIL
