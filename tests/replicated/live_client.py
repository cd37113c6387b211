"""A member of a replicated group that calls its objects until it is told to end: for tests on hosts."""

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import antiphon

KEYS = ("x", "y")


async def work(shop: antiphon.Replicated[antiphon.Objects], random: Random, lives: str) -> None:
    store, counter, jobs = antiphon.Map(shop), antiphon.Counter(shop), antiphon.Queue(shop)
    turn = 0
    while True:
        turn += 1
        key, value = random.choice(KEYS), f"{lives}/{turn}"
        try:
            match random.randrange(6):
                case 0 | 1:
                    await store.get(key)
                case 2:
                    await store.set(key, value)
                case 3:
                    await store.compare_and_set(key, store.peek(key), value)
                case 4:
                    await counter.add()
                case 5:
                    await jobs.put(value)
        except (antiphon.CutOffError, antiphon.ResultLostError):
            await asyncio.sleep(0.05)
        await asyncio.sleep(random.random() * 0.02)


async def main(name: str, members: str, folder: str, life: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with antiphon.replicate(
        "shop", antiphon.Objects(), name=name, members=set(members.split(",")), network="multicast:eth0",
        insecure=True, limits=antiphon.Limits(join_s=120),
        store=Path(folder) / name, trace=Path(folder) / "trace",
    ) as shop:  # fmt: skip
        print("in", flush=True)
        working = asyncio.create_task(work(shop, Random(name + life), f"{name}{life}"))
        await ended.wait()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        print(await asyncio.wait_for(antiphon.Counter(shop).get(), 60), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
