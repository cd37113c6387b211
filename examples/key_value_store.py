"""A replicated key-value store: every replica applies the same commands in the same order.

The order is total, so that two replicas that set the same key at the same moment still agree on who was
last, and a compare-and-set succeeds at all replicas or at none.
"""

import asyncio
import json

import antiphon

REPLICAS = ("r0", "r1", "r2")
TURNS = 20


class Store:
    """One replica. A command is multicast, and applied when it is delivered."""

    def __init__(self, group: antiphon.Group) -> None:
        self.data: dict[str, int] = {}
        self.applied = 0
        self._group = group
        self._results: dict[int, asyncio.Future[bool]] = {}
        self._serving = asyncio.create_task(self._serve())

    async def compare_and_set(self, key: str, old: int | None, new: int) -> bool:
        """Set a key if it has the old value; whether it had."""
        sent = await self._group.send(json.dumps([key, old, new]).encode())
        result = self._results.setdefault(sent.number, asyncio.get_running_loop().create_future())
        return await result

    async def _serve(self) -> None:
        async for message in self._group:
            key, old, new = json.loads(message.body)
            succeeds = self.data.get(key) == old
            if succeeds:
                self.data[key] = new
            self.applied += 1
            if message.sender == self._group.name:
                future = self._results.setdefault(message.number, asyncio.get_running_loop().create_future())
                future.set_result(succeeds)

    async def increment(self, key: str) -> None:
        """Add one, whatever the others do meanwhile."""
        while True:
            old = self.data.get(key)
            if await self.compare_and_set(key, old, (old or 0) + 1):
                return


async def replica(name: str) -> dict[str, int]:
    async with antiphon.join("store", name=name, order="total") as group:
        await group.wait_for_members(len(REPLICAS))
        store = Store(group)
        for _ in range(TURNS):
            await store.increment("counter")
        while store.data["counter"] < len(REPLICAS) * TURNS:
            await asyncio.sleep(0.01)
        return store.data


async def main() -> None:
    stores = await asyncio.gather(*map(replica, REPLICAS))
    print(*stores, sep="\n")
    assert all(store == {"counter": len(REPLICAS) * TURNS} for store in stores)


if __name__ == "__main__":
    asyncio.run(main())
