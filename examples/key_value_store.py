"""A replicated key-value store: three replicas of one map, and a counter that loses no increment.

Every replica applies the same commands in the same order. A majority holds each of them before it counts, so
a compare-and-set succeeds once, whichever replica it was asked at.
"""

import asyncio

import antiphon

REPLICAS = ("r0", "r1", "r2")
TURNS = 20


async def increment(store: antiphon.Map, key: str) -> None:
    """Add one, whatever the others do meanwhile."""
    while True:
        old = await store.get(key)
        new = old + 1 if isinstance(old, int) else 1
        if await store.compare_and_set(key, old, new):
            return


async def replica(name: str) -> object:
    objects = antiphon.Objects()
    async with antiphon.replicate("store", objects, name=name, members=REPLICAS) as group:
        store = antiphon.Map(group)
        for _ in range(TURNS):
            await increment(store, "counter")
        await antiphon.Barrier(group, parties=len(REPLICAS)).wait()
        return await store.get("counter")


async def main() -> None:
    found = await asyncio.gather(*map(replica, REPLICAS))
    print(*found)
    assert found == [len(REPLICAS) * TURNS] * len(REPLICAS)


if __name__ == "__main__":
    asyncio.run(main())
