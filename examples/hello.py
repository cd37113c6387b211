"""The least that is a live member: it joins a group, says hello, and reads until it has heard itself."""

import asyncio

import antiphon


async def main() -> None:
    async with antiphon.join("orders", name="alice") as group:
        sent = await group.send(b"hello")
        async for message in group:
            print(message.sender, message.number, message.body)
            if message.id == sent.id:
                break
        await sent.stable()  # everyone in the group has it


asyncio.run(main())
