"""The live total order: its services, and what an application gets when an order has diverged."""

import asyncio

import pytest

from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.live.group import Group
from antiphon.live.joining import join
from antiphon.protocols.dpg.services import SERVICES
from tests.live.members import a_group_name, joined, read, within


@pytest.mark.parametrize(
    "options",
    [*({"service": name} for name in SERVICES), {"service": "bounded-delay", "contiguity": "delays"}],
)
def test_every_service_brings_everything_to_everyone(options: dict[str, str]) -> None:
    async def body() -> None:
        async with joined("a", "b", "c", order="total", **options) as groups:
            # One after another: processors side by side may carry what is sent at once in two orders.
            for turn in range(10):
                for group in groups:
                    sent = await group.send(f"{group.name}{turn}".encode())
                    heard = await asyncio.gather(*(read(each, 1) for each in groups))
                    assert heard == [[(sent.sender, sent.number, sent.body)]] * 3

    within(body())


async def the_sequencer(groups: list[Group]) -> Group:
    """Wait until there is one: on a busy machine it asks now and then whether it still is."""
    while True:
        found = [group for group in groups if group.counters["is_sequencer"]]
        if len(found) == 1:
            return found[0]
        await asyncio.sleep(0.01)


def test_the_others_go_on_when_whoever_numbers_leaves() -> None:
    async def body() -> None:
        async with joined("a", "b", "c", order="total") as groups:
            for group in groups:
                await group.send(b"before " + group.name.encode())
            await asyncio.gather(*(read(group, 3) for group in groups))
            numbering = await the_sequencer(groups)
            others = [group for group in groups if group is not numbering]
            await numbering.leave()
            for group in others:
                await group.send(b"after " + group.name.encode())
            after = await asyncio.gather(*(read(group, 2) for group in others))
            assert after[0] == after[1]
            await the_sequencer(others)

    within(body())


def test_a_member_that_comes_later_begins_with_the_present() -> None:
    async def body() -> None:
        name = a_group_name()
        async with joined("a", "b", order="total", group=name) as groups:
            await groups[0].send(b"early")
            await asyncio.gather(*(read(group, 1) for group in groups))
            async with join(name, name="c", order="total") as late:
                await late.wait_for_members(3)
                await groups[1].send(b"now")
                assert [body for _, _, body in await read(late, 1)] == [b"now"]

    within(body())


def test_the_application_is_told_when_an_order_went_apart() -> None:
    async def body() -> None:
        async with joined("a", "b", order="total") as (group, _):
            news = group.presence()
            assert (await anext(news)).kind == "appeared"
            group._listener.doubted(
                fx.Disagreed("b", "It delivers these in another order than we do.", "b", 7)
            )
            event = await anext(news)
            assert (event.kind, event.site) == ("disagreed", "b")
            assert "b:7" in event.reason
            group._listener.doubted(fx.Unavailable("No member has it."))
            event = await anext(news)
            assert (event.kind, event.site, event.reason) == ("unavailable", "a", "No member has it.")

    within(body())


def test_services_that_do_not_exist_or_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="no service 'wan'"):
        join("g", name="a", order="total", service="wan")
    with pytest.raises(UsageError, match="infers contiguity in one way only"):
        join("g", name="a", order="total", service="lan", contiguity="delays")
    with pytest.raises(UsageError, match="has no option service="):
        join("g", name="a", order="fifo", service="lan")
