"""A member of a group without a quorum that adds items to a set until it is told to end."""

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path

import antiphon


async def work(items: antiphon.Set, name: str) -> None:
    turn = 0
    while True:
        turn += 1
        with suppress(antiphon.CutOffError, antiphon.ResultLostError):
            await items.add(f"{name}{turn}")
        await asyncio.sleep(0.02)


async def main(name: str, folder: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with antiphon.replicate(
        "shop", antiphon.Objects(), name=name, quorum=None, network="multicast:eth0", insecure=True,
        limits=antiphon.Limits(join_s=120), trace=Path(folder) / "trace",
    ) as shop:  # fmt: skip
        items = antiphon.Set(shop)
        print("in", flush=True)
        working = asyncio.create_task(work(items, name))
        await ended.wait()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        while shop.members != {"a", "b", "c"}:
            await asyncio.sleep(0.05)
        print(" ".join(sorted(map(str, await items.items()))), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
