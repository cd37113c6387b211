"""Nodes in several groups over real sockets: one order for all that two of them both deliver."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

import antiphon
from antiphon.check.checkers import check_trace
from antiphon.core.errors import UsageError
from antiphon.core.recording import Property
from antiphon.live.node import Node
from antiphon.live.orders import find_order
from antiphon.trace.files import read_trace
from tests.live.members import a_group_name, joined, within

MEMBERSHIP = {"A": "abc", "B": "bcd", "C": "ad"}
NAMES = "abcd"


@contextlib.asynccontextmanager
async def nodes(names: str, **options: Any) -> AsyncIterator[dict[str, Node]]:
    cluster = a_group_name()
    async with contextlib.AsyncExitStack() as stack:
        found = [antiphon.node(cluster, name=name, **options) for name in names]
        await asyncio.gather(*(stack.enter_async_context(each) for each in found))
        await asyncio.gather(*(each.wait_for_nodes(len(names)) for each in found))
        yield {each.name: each for each in found}


async def enter(members: dict[str, Node], membership: dict[str, str]) -> None:
    await asyncio.gather(
        *(members[name].join(group) for group, names in membership.items() for name in names)
    )


async def read(node: Node, wanted: int) -> list[tuple[str | None, str, int, bytes]]:
    found = []
    if wanted:
        async for message in node:
            found.append((message.group, message.sender, message.number, message.body))
            if len(found) == wanted:
                break
    return found


def violations(folder: Path) -> set[Property]:
    """The promises that the trace breaks."""
    trace = read_trace(folder)
    (run,) = trace.runs
    broken = {violation.property for violation in check_trace(trace.events, run)}
    return broken & set(find_order("total-across").promises("hybrid"))


def test_common_members_of_overlapping_groups_deliver_in_one_order(tmp_path: Path) -> None:
    random = Random(7)

    async def body() -> None:
        async with nodes(NAMES, trace=tmp_path) as members:
            await enter(members, MEMBERSHIP)
            assert {name: node.groups for name, node in members.items()} == {
                name: frozenset(group for group, names in MEMBERSHIP.items() if name in names)
                for name in NAMES
            }
            meant = dict.fromkeys(NAMES, 0)
            for turn in range(150):
                group = random.choice("ABC")
                # Groups are open: whoever sends need not be a member.
                await members[random.choice(NAMES)].group(group).send(b"%d" % turn)
                for name in MEMBERSHIP[group]:
                    meant[name] += 1
            heard = dict(
                zip(NAMES, await asyncio.gather(*(read(members[n], meant[n]) for n in NAMES)), strict=True)
            )
            for one, other in pairwise([*NAMES, "a"]):
                common = set(heard[one]) & set(heard[other])
                assert [each for each in heard[one] if each in common] == [
                    each for each in heard[other] if each in common
                ]
            for node in members.values():
                await node.finish()

    within(body())
    assert not violations(tmp_path)


def test_groups_are_joined_and_left_while_messages_flow(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes("abc", trace=tmp_path) as members:
            await enter(members, {"A": "ab", "B": "bc"})
            a, b, c = (members[name] for name in "abc")
            flowing = asyncio.create_task(flow(a, b))
            joined = await c.join("A")
            await b.leave("B")
            await a.join("B")
            await flowing
            await (await joined.send(b"last")).stable()
            seen = [message async for message in until(a, b"last")]
            assert b.groups == {"A"}
            assert a.groups == {"A", "B"}
            assert [message.body for message in seen if message.group == "A"][-1] == b"last"
            for node in members.values():
                await node.finish()

    async def flow(a: Node, b: Node) -> None:
        for turn in range(100):
            await a.group("A").send(b"A%d" % turn)
            await b.group("B").send(b"B%d" % turn)

    async def until(node: Node, last: bytes) -> AsyncIterator[antiphon.Message]:
        async for message in node:
            yield message
            if message.body == last:
                return

    within(body())
    assert not violations(tmp_path)


def test_misuse_is_told_in_a_sentence() -> None:
    async def body() -> None:
        async with nodes("ab") as members:
            group = await members["a"].join("A")
            whole = group._whole
            with pytest.raises(UsageError, match="several groups"):
                await whole.send(b"x")
            with pytest.raises(UsageError, match="all of its members"):
                await whole.send(b"x", to={"a"}, group="A")
            with pytest.raises(UsageError, match="no name for a group"):
                await members["a"].join("")
            await members["a"].join("A")  # once more changes nothing
            await members["b"].leave("A")  # nor does leaving where one is not
        async with joined("a", "b") as (alone, _):
            with pytest.raises(UsageError, match="one group"):
                await alone.send(b"x", group="A")
            with pytest.raises(UsageError, match="one group"):
                await alone.enter("A")

    within(body())
