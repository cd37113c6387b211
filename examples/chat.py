"""A chat without a server: everyone in the group reads what everyone writes.

    python examples/chat.py alice     # in one terminal, and in another:
    python examples/chat.py bob

Without a name it shows a short conversation of three members in one process.
"""

import asyncio
import sys

import antiphon


async def show(group: antiphon.Group) -> None:
    async for message in group:
        if message.sender != group.name:
            print(f"{message.sender}: {message.body.decode()}")


async def announce(group: antiphon.Group) -> None:
    async for event in group.presence():
        print(f"* {event.site} {event.kind}")


async def chat(name: str) -> None:
    async with antiphon.join("chat", name=name) as group:
        tasks = [asyncio.create_task(show(group)), asyncio.create_task(announce(group))]
        while line := await asyncio.to_thread(sys.stdin.readline):
            await group.send(line.rstrip("\n").encode())
        await group.leave()
        await asyncio.gather(*tasks)


async def conversation() -> None:
    """Three members; each reads until it has seen the last word."""
    lines = {"alice": "Is everyone here?", "bob": "I am.", "carol": "So am I."}

    async def take_part(name: str) -> list[str]:
        async with antiphon.join("chat-example", name=name) as group:
            await group.wait_for_members(len(lines))
            await group.send(lines[name].encode())
            heard: dict[str, str] = {}
            async for message in group:
                heard[message.sender] = message.body.decode()
                if len(heard) == len(lines):
                    break
            return [f"{sender}: {text}" for sender, text in sorted(heard.items())]

    scripts = await asyncio.gather(*map(take_part, lines))
    assert all(script == scripts[0] for script in scripts)
    print("\n".join(scripts[0]))


if __name__ == "__main__":
    asyncio.run(chat(sys.argv[1]) if len(sys.argv) > 1 else conversation())
