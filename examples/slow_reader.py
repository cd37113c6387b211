"""A reader that is too slow: it holds the group up for a moment, then steps aside, and comes back later.

No member's memory grows: what waits for the slow reader is bounded, and the others go on without it. It
learns that it has missed something, and so can ask for a fresh state instead of trusting what it has.
"""

import asyncio
import time

import antiphon

BODY = bytes(50_000)
SMALL = antiphon.Limits(queue_bytes=2_000_000, patience_s=0.3)


async def write(group: antiphon.Group, until: asyncio.Event) -> int:
    count = 0
    while not until.is_set():
        await group.send(BODY)
        count += 1
        await asyncio.sleep(0.001)
    return count


async def read(group: antiphon.Group) -> int:
    count = 0
    async for batch in group.batches():
        count += len(batch)
    return count


async def main() -> None:
    finished = asyncio.Event()
    async with antiphon.join("slow", name="writer") as writer, antiphon.join("slow", name="quick") as quick:
        async with antiphon.join("slow", name="slow", limits=SMALL) as slow:
            await writer.wait_for_members(3)
            news = slow.presence()
            reading = [asyncio.create_task(read(group)) for group in (writer, quick)]
            writing = asyncio.create_task(write(writer, finished))
            begin = time.monotonic()
            while slow.counters["absences"] == 0:  # it reads nothing at all, until it had to step aside
                await asyncio.sleep(0.05)
            print(f"the slow reader stepped aside after {time.monotonic() - begin:.1f} s,")
            print(f"with {slow.counters['queued_bytes']:,} bytes waiting for it")
            sent_by_then = writer.counters["admitted_messages"]
            while writer.counters["stable_messages"] <= sent_by_then:  # the others go on without it
                await asyncio.sleep(0.05)
            catching_up = asyncio.create_task(read(slow))
            async for event in news:
                if event.kind == "missed":
                    print(f"it is back and knows: {event.reason}")
                    break
            finished.set()
            sent = await writing
            await writer.leave()
            await quick.leave()
        received = await asyncio.gather(*reading)
        assert received == [sent, sent], (received, sent)
        missed = sent - await catching_up
        print(f"the others got all {sent} messages; the slow reader missed {missed}")
        assert missed > 0


if __name__ == "__main__":
    asyncio.run(main())
