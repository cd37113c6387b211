"""Clocks that were set back: a member that is restarted takes an incarnation above those that are known."""

import asyncio
import time
from typing import Any

import pytest

from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.live.group import Group
from antiphon.live.group_host import LARGEST_LEAP
from antiphon.live.joining import join
from antiphon.live.machine import Machine
from antiphon.live.networks import Loopback
from tests.live.members import a_group_name, joined, read, within
from tests.live.pairs import RING

ORDERS = ("fifo", "causal", "sequencer", "total")
SET_BACK_S = {"3 s": 3, "an hour": 3600, "to 1970": time.time() - 1}
YEAR_S = 365.25 * 86400


class SlowMachine(Machine):
    """One whose time of day is some seconds ago."""

    def __init__(self, seconds: float) -> None:
        self._back_ns = int(seconds * SECOND_NS)

    def wall_ns(self) -> int:
        return time.time_ns() - self._back_ns


def incarnation(group: Group) -> int:
    assert group._member is not None
    assert group._member._start is not None
    return group._member._start.incarnation


@pytest.mark.parametrize("back", SET_BACK_S.values(), ids=SET_BACK_S)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("whose", ["b", "a"])
def test_a_member_whose_clock_was_set_back_is_heard_again(order: str, back: float, whose: str) -> None:
    """`a` is the sequencer where there is one."""

    async def body() -> None:
        group = a_group_name()
        options: dict[str, Any] = {"order": order, **({"sequencer": "a"} if order == "sequencer" else {})}
        members = {name: join(group, name=name, **options) for name in "abc"}
        await asyncio.gather(*(member.__aenter__() for member in members.values()))
        await asyncio.gather(*(member.wait_for_members(3) for member in members.values()))
        await members[whose].send(b"before")
        await asyncio.gather(*(read(member, 1) for member in members.values()))
        before = incarnation(members[whose])
        await members[whose].leave()
        slow = Loopback(machine=SlowMachine(back))
        members[whose] = again = await join(group, name=whose, network=slow, **options)
        assert incarnation(again) > before
        await asyncio.gather(*(member.wait_for_members(3) for member in members.values()))
        sent = await again.send(b"after")
        for member in members.values():
            assert (await read(member, 1))[0][2] == b"after"
        await sent.stable()
        for member in members.values():
            await member.leave(linger=False)

    within(body())


@pytest.mark.parametrize("order", ORDERS)
def test_a_member_whose_clock_was_far_ahead_is_heard_again_once_it_is_right(order: str) -> None:
    """Clocks that lost their battery say 2106 and 1970 as well as any other year."""

    async def body() -> None:
        group = a_group_name()
        options: dict[str, Any] = {"order": order, **({"sequencer": "a"} if order == "sequencer" else {})}
        async with join(group, name="a", **options) as a:
            for ahead in (2106, 2262, 1970, None):
                back = 0 if ahead is None else time.time() - (ahead - 1970) * YEAR_S - 1
                network = Loopback(machine=SlowMachine(back))
                again = await join(group, name="b", network=network, **options)
                await asyncio.gather(a.wait_for_members(2), again.wait_for_members(2))
                await again.send(b"here")
                for each in (a, again):
                    assert (await read(each, 1))[0][2] == b"here"
                await again.leave(linger=False)

    within(body())


@pytest.mark.parametrize("key", [None, RING], ids=["open", "sealed"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_member_that_learns_late_of_a_later_incarnation_begins_anew(order: str, key: Any) -> None:
    async def body() -> None:
        async with joined("a", "b", "c", order=order, key=key) as (a, b, c):
            later = incarnation(b) + 3600 * 1000
            b._host.reported(later)
            events = b.presence()
            async for event in events:
                if event.kind == "missed":
                    break
            assert incarnation(b) == later + 1
            await asyncio.gather(*(each.wait_for_members(3) for each in (a, b, c)))
            sent = await b.send(b"anew")
            for each in (a, b, c):
                assert (await read(each, 1))[0][2] == b"anew"
            await sent.stable()
            b._host.reported(incarnation(b) - 1)
            await b.send(b"nothing has changed")
            for each in (a, b, c):
                assert (await read(each, 1))[0][2] == b"nothing has changed"
            assert incarnation(b) == later + 1

    within(body())


def test_an_incarnation_of_another_century_is_not_believed() -> None:
    """It would leave no room for the next one, and a member that is restarted would not be heard."""

    async def body() -> None:
        async with joined("a") as (a,):
            before, now = incarnation(a), time.time_ns() // MILLISECOND_NS
            a._host.reported(now + 2 * LARGEST_LEAP)
            await asyncio.sleep(0)
            assert (a._host._reported, incarnation(a)) == (0, before)
            (told,) = a.counters["refusals"]
            assert "under an incarnation that no clock can give" in told
            assert told.endswith("give it another name.")
            a._host.reported(now + LARGEST_LEAP)
            assert a._host._reported == now + LARGEST_LEAP

    within(body())


def test_no_incarnation_is_above_what_can_be_told() -> None:
    assert time.time_ns() // MILLISECOND_NS < 1 << 45
