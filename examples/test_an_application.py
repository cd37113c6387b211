"""An application and its test: three replicas of a counter, on simulated time, while one of them dies.

The application is written against `antiphon.Group` and knows nothing of the simulation.
"""

import asyncio

import antiphon
from antiphon import testing


class Counter:
    """A replicated counter: additions are multicast, and applied when they are delivered."""

    def __init__(self, group: antiphon.Group) -> None:
        self.value = 0
        self._group = group

    async def add(self, amount: int) -> None:
        """Add, and return when every replica holds the addition."""
        sent = await self._group.send(str(amount).encode())
        await sent.stable()

    async def serve(self) -> None:
        async for message in self._group:
            self.value += int(message.body)


async def a_counter_survives_a_crash() -> None:
    async with testing.cluster(3, seed=1, order="total") as cluster:
        counters = {group.name: Counter(group) for group in cluster}
        serving = [asyncio.create_task(counter.serve()) for counter in counters.values()]
        cluster.loss(0.1)
        await asyncio.gather(*(counter.add(1) for counter in counters.values()))
        cluster.kill("m2")
        await counters["m0"].add(10)
        await asyncio.sleep(60)  # simulated: it takes a moment
        cluster.heal()
    await asyncio.gather(*serving, return_exceptions=True)
    print({name: counter.value for name, counter in counters.items()})
    assert counters["m0"].value == counters["m1"].value == 13


def test_a_counter_survives_a_crash() -> None:
    testing.run(a_counter_survives_a_crash())


if __name__ == "__main__":
    test_a_counter_survives_a_crash()
