"""A price feed whose updates are atomic: readers see all prices of an update, or none, and all see the same.

The feed moves money between instruments, so the sum of all prices never changes. An update is one message.
A reader shows it only once it is stable: then every reader holds it, and no reader can have seen more.
"""

import asyncio
import json
import random

import antiphon

UPDATES = 50
READERS = ("reader-1", "reader-2")
PRICES = {"iron": 100, "salt": 100, "silk": 100}


async def feed() -> None:
    chance = random.Random(1)
    prices = dict(PRICES)
    async with antiphon.join("prices", name="feed") as group:
        await group.wait_for_members(1 + len(READERS))
        for _ in range(UPDATES):
            cheaper, dearer = chance.sample(sorted(prices), 2)
            prices[cheaper] -= 1
            prices[dearer] += 1
            await group.send(json.dumps(prices).encode())


async def read(name: str) -> list[dict[str, int]]:
    seen: list[dict[str, int]] = []
    async with antiphon.join("prices", name=name) as group:
        async for message in group:
            await message.stable()
            seen.append(json.loads(message.body))
            if len(seen) == UPDATES:
                return seen
    return seen


async def main() -> None:
    feeding = asyncio.create_task(feed())
    pictures = await asyncio.gather(*map(read, READERS))
    await feeding
    assert pictures[0] == pictures[1]
    assert all(sum(prices.values()) == sum(PRICES.values()) for prices in pictures[0])
    print(f"{UPDATES} updates, the last: {pictures[0][-1]}; every reader saw the same")


if __name__ == "__main__":
    asyncio.run(main())
