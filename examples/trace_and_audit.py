"""Prove it: a live group leaves a trace, and the checkers say whether it kept what it promised.

`antiphon audit FOLDER` does the same on Spark, at any size.
"""

import asyncio
import tempfile

import antiphon

MEMBERS = ("a", "b", "c")
MESSAGES = 200


async def take_part(name: str, folder: str) -> None:
    member = antiphon.join("proved", name=name, order="sequencer", sequencer="a", trace=folder)
    async with member as group:
        await group.wait_for_members(len(MEMBERS))
        await group.send_many(f"{name} {count}".encode() for count in range(MESSAGES))
        seen = 0
        async for batch in group.batches():
            seen += len(batch)
            if seen == len(MEMBERS) * MESSAGES:
                break
        await group.finish()  # no leave: the audit is to hold every member to every message


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await asyncio.gather(*(take_part(name, folder) for name in MEMBERS))
        trace = antiphon.read_trace(folder)
    violations = antiphon.check_trace(trace.events, trace.runs[0])
    promised = ", ".join(trace.runs[0].promises)
    deliveries = sum(event.count or 1 for event in trace.events if event.kind == "deliver")
    print(f"{deliveries} deliveries; promised: {promised}; violations: {len(violations)}")
    assert deliveries == len(MEMBERS) ** 2 * MESSAGES
    assert not violations


if __name__ == "__main__":
    asyncio.run(main())
