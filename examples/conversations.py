"""Overlapping conversations: no member sees an answer before its question.

    python examples/conversations.py

Four members talk in changing circles. Alice asks Bob and Carol; Bob asks Dave alone; Dave tells Bob and
Carol. Carol, who knows nothing of the talk between Bob and Dave, must still see Alice's question before
Dave's answer, since that came of it. That is causal order, kept across conversations of different members.
"""

import asyncio

import antiphon

ALICE, BOB, CAROL, DAVE = "alice", "bob", "carol", "dave"
NAMES = (ALICE, BOB, CAROL, DAVE)


async def next_words(group: antiphon.Group) -> antiphon.Message:
    message = await anext(aiter(group))
    to = ", ".join(sorted(message.to or ()))
    print(f"{group.name:>5} reads  {message.sender}: {message.body.decode()}  (to {to})")
    return message


async def alice(group: antiphon.Group) -> None:
    question = await group.send(b"Which day suits you?", to={BOB, CAROL})
    await question.atomic()
    print("alice knows that Bob and Carol both hold her question")


async def bob(group: antiphon.Group) -> None:
    await next_words(group)
    await group.send(b"Is the hall free on Friday?", to={DAVE})
    await next_words(group)


async def carol(group: antiphon.Group) -> None:
    read = [await next_words(group) for _ in range(2)]
    assert [message.sender for message in read] == [ALICE, DAVE], "an answer came before its question"


async def dave(group: antiphon.Group) -> None:
    await next_words(group)
    await group.send(b"Friday it is: the hall is free.", to={BOB, CAROL})


async def main() -> None:
    parts = {ALICE: alice, BOB: bob, CAROL: carol, DAVE: dave}
    finished = asyncio.Barrier(len(NAMES))

    async def take_part(name: str) -> None:
        async with antiphon.join("conversations-example", name=name, order="causal") as group:
            await group.wait_for_members(len(NAMES))
            await parts[name](group)
            await finished.wait()

    async with asyncio.TaskGroup() as tasks:
        for name in NAMES:
            tasks.create_task(take_part(name))


if __name__ == "__main__":
    asyncio.run(main())
