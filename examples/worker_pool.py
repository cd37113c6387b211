"""A pool of workers with a leader: the leader plans jobs, and each job is taken by one member.

Whichever member leads puts jobs into a queue, and notes in a map how far it got. When it leaves, another
member leads in a later term and goes on from there.
"""

import asyncio

import antiphon

MEMBERS = ("ann", "ben", "cleo")
JOBS = 12
SHIFT = 4
"""Jobs that a leader plans before it hands over."""


async def plan(pool: antiphon.Replicated[antiphon.Objects], log: list[str]) -> None:
    """Lead for a shift at a time, until all jobs are planned."""
    jobs, plans, leader = antiphon.Queue(pool, "jobs"), antiphon.Map(pool, "plans"), antiphon.Leader(pool)
    while True:
        async with leader as term:
            first = await plans.get("next", 0)
            assert isinstance(first, int)
            if first >= JOBS:
                return
            log.append(f"{pool.name} leads in term {term}, from job {first} on")
            for job in range(first, min(first + SHIFT, JOBS)):
                await jobs.put(job)
                await plans.set("next", job + 1)


async def work(pool: antiphon.Replicated[antiphon.Objects]) -> None:
    """Take jobs and do them. A job whose block fails, or whose member is gone, waits again."""
    done = antiphon.Set(pool, "done")
    async for item in antiphon.Queue(pool, "jobs"):
        async with item as job:
            await done.add(job)


async def member(name: str, log: list[str]) -> None:
    async with antiphon.replicate("pool", antiphon.Objects(), name=name, members=MEMBERS) as pool:
        working = asyncio.create_task(work(pool))
        await plan(pool, log)
        while len(done := await antiphon.Set(pool, "done").items()) < JOBS:
            await asyncio.sleep(0.05)
        await antiphon.Barrier(pool, "all done", parties=len(MEMBERS)).wait()
        working.cancel()
        log.append(f"{name}: {len(done)} jobs are done")


async def main() -> None:
    log: list[str] = []
    await asyncio.gather(*(member(name, log) for name in MEMBERS))
    print(*log, sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
