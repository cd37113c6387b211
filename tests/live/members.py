"""What the tests of live groups share: members on real sockets in one process."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable
from itertools import count
from typing import Any, TypeVar

from antiphon.live.group import Group
from antiphon.live.joining import join

DEADLINE_S = 120.0

T = TypeVar("T")
_groups = count()


def a_group_name() -> str:
    """A name of its own for each test and process, so that tests side by side do not meet."""
    return f"test-{os.getpid()}-{next(_groups)}"


def within(work: Awaitable[T]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work, DEADLINE_S)

    return asyncio.run(bounded())


@contextlib.asynccontextmanager
async def joined(*names: str, order: str = "fifo", **options: Any) -> AsyncIterator[list[Group]]:
    """These members of one group, all of them there."""
    group = options.pop("group", None) or a_group_name()
    sequencer = names[0] if order == "sequencer" else None
    members = [join(group, name=name, order=order, sequencer=sequencer, **options) for name in names]
    async with contextlib.AsyncExitStack() as stack:
        groups = await asyncio.gather(*(stack.enter_async_context(member) for member in members))
        await asyncio.gather(*(each.wait_for_members(len(names)) for each in groups))
        yield list(groups)


async def read(group: Group, wanted: int) -> list[tuple[str, int, bytes]]:
    found = []
    async for message in group:
        found.append((message.sender, message.number, message.body))
        if len(found) == wanted:
            break
    return found
