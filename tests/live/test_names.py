"""Two processes with one name: the one that answers keeps it, and the other learns where that one is."""

import asyncio
from typing import Any

import pytest

from antiphon.live.errors import NameTakenError
from antiphon.live.group import Group
from antiphon.live.joining import join
from tests.live.members import a_group_name, joined, read, within
from tests.live.pairs import RING, Ear, acquaint, drive, ears, group_name, note, repeat

KEYS = pytest.mark.parametrize("key", [None, RING], ids=["open", "sealed"])
ORDERS = ("fifo", "causal", "sequencer", "total")


def port(group: Group) -> int:
    """The address from which a member sends."""
    assert group._transport is not None
    return int(group._transport._sockets._sending.getsockname()[1])


def options(order: str, key: Any) -> dict[str, Any]:
    return {"order": order, "key": key, **({"sequencer": "a"} if order == "sequencer" else {})}


@KEYS
@pytest.mark.parametrize("order", ORDERS)
def test_a_second_process_with_a_name_is_told_where_the_first_one_is(order: str, key: Any) -> None:
    async def body() -> None:
        group = a_group_name()
        async with joined("a", "b", "c", group=group, order=order, key=key) as (a, b, c):
            with pytest.raises(
                NameTakenError, match=f"'b' cannot .* 127.0.0.1:{port(b)} has that name"
            ) as told:
                async with join(group, name="b", **options(order, key)):
                    pass
            assert told.value.hint == "Give each process a name of its own."
            sent = await b.send(b"still here")
            for each in (a, b, c):
                assert await read(each, 1) == [("b", 0, b"still here")]
            await sent.stable()

    within(body())


@KEYS
def test_the_second_process_is_told_though_the_two_are_alone(key: Any) -> None:
    async def body() -> None:
        group = a_group_name()
        async with join(group, name="a", key=key) as a:
            with pytest.raises(NameTakenError, match=str(port(a))):
                async with join(group, name="a", key=key):
                    pass
            events = a.presence()
            told = await anext(events)
            assert told.kind == "refused"
            assert "also has this member's name, 'a'" in told.reason

    within(body())


@KEYS
def test_of_two_that_begin_at_once_one_remains(key: Any) -> None:
    async def body() -> None:
        group = a_group_name()
        members = [join(group, name="a", key=key) for _ in range(2)]
        ends = await asyncio.gather(*(member.__aenter__() for member in members), return_exceptions=True)
        assert sum(isinstance(end, NameTakenError) for end in ends) == 1
        (left,) = [end for end in ends if isinstance(end, Group)]
        await left.leave()

    within(body())


@KEYS
@pytest.mark.parametrize("order", ORDERS)
def test_a_member_that_died_is_restarted_at_once_under_its_name(order: str, key: Any) -> None:
    async def body() -> None:
        group = a_group_name()
        async with joined("a", "b", "c", group=group, order=order, key=key) as (a, b, c):
            assert c._member is not None
            assert c._transport is not None
            c._member.stop()  # as if killed: nothing is sent from now on
            c._transport._sockets.close()
            async with join(group, name="c", **options(order, key)) as again:
                await asyncio.gather(*(each.wait_for_members(3) for each in (a, b, again)))
                sent = await again.send(b"back")
                for each in (a, b, again):
                    assert (await read(each, 1))[0][2] == b"back"
                await sent.stable()
            c._lifecycle.is_out = True

    within(body())


@KEYS
def test_a_process_that_was_replaced_while_it_stood_still_learns_it(key: Any) -> None:
    async def body() -> None:
        group = a_group_name()
        async with joined("a", "b", "c", group=group, key=key) as (_, _, c):
            assert c._member is not None
            for number in c._member._transport.filenos():
                asyncio.get_running_loop().remove_reader(number)  # it stands still
            c._member._running = False
            async with join(group, name="c", key=key) as again:
                await again.wait_for_members(3)
                c._member._running = True
                c._member.listen()  # and goes on
                with pytest.raises(NameTakenError, match=str(port(again))):
                    await read(c, 1)
                with pytest.raises(NameTakenError):
                    await c.send(b"too late")

    within(body())


@KEYS
def test_a_lone_liar_ends_nobody_that_has_joined(key: Any) -> None:
    """A member that says of another that its name is taken is one voice of several."""
    from antiphon.live.handshake import Refused

    group = group_name()
    victim, liar, other = (Ear(site, group, key) for site in "vlo")
    with ears(victim, liar, other) as all_of_them:
        acquaint(*all_of_them)
        victim.transport.take_part()
        for _ in range(5):
            liar.transport.send("v", Refused(victim.transport.boot, "10.0.0.9:1", True))
        repeat(all_of_them, lambda: other.transport.multicast(note(1)), lambda: bool(victim.numbers("o")))
        assert victim.news.namesakes == []
        other.transport.send("v", Refused(victim.transport.boot, "10.0.0.9:1", True))
        drive(all_of_them, lambda: victim.news.namesakes == ["10.0.0.9:1"])
