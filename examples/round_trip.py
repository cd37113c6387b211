"""How long does a message take to a member that answers at once, and back?

Both read by a function that is called as soon as something is delivered: the quickest way there is.
"""

import asyncio
import statistics
import time

import antiphon

ROUNDS = 200


async def answer() -> None:
    async with antiphon.join("round-trip", name="bob", order="total") as group:
        answers: set[asyncio.Task[antiphon.Message]] = set()

        def reply(batch: antiphon.Batch) -> None:
            if batch.sender == "alice":
                answers.add(asyncio.create_task(group.send(b"here")))

        reading = asyncio.create_task(group.for_each_batch(reply))
        while len(answers) < ROUNDS:
            await asyncio.sleep(0.05)
        await asyncio.gather(*answers)
    await reading


async def ask() -> list[float]:
    trips: list[float] = []
    async with antiphon.join("round-trip", name="alice", order="total") as group:
        answered = asyncio.Event()

        def note(batch: antiphon.Batch) -> None:
            if batch.sender == "bob":
                answered.set()

        reading = asyncio.create_task(group.for_each_batch(note))
        await group.wait_for_members(2)
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            await group.send(b"are you there?")
            await answered.wait()
            answered.clear()
            trips.append(time.perf_counter() - begun)
    await reading
    return trips


async def main() -> None:
    trips, _ = await asyncio.gather(ask(), answer())
    print(f"{ROUNDS} round trips in total order, half of them within {statistics.median(trips) * 1e3:.2f} ms")


if __name__ == "__main__":
    asyncio.run(main())
