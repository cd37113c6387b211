"""What `stable()` and `delivered()` promise an application, and positions in total orders."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from antiphon.audit.local import audit_locally
from antiphon.check.verdict import Verdict
from antiphon.core import effects as fx
from antiphon.core.errors import UsageError
from antiphon.core.packing import pack
from antiphon.live.errors import LeftError, MissedError
from antiphon.live.figures import Figures, Watch
from antiphon.live.group import Group
from antiphon.live.inbox import POSITION_BITS, Inbox
from antiphon.live.joining import join
from antiphon.live.journal import Journal
from antiphon.live.lifecycle import Lifecycle
from antiphon.live.limits import Limits
from antiphon.live.messages import Batch, Message
from antiphon.live.node import node
from antiphon.live.orders import ORDERS, make_order
from antiphon.live.waits import DeliveryWaits, StabilityWaits
from tests.live.members import a_group_name, joined, within

LARGE = 8 << 20
ORDERED = ("total", "sequencer")
ONE_GROUP = ("fifo", "causal", *ORDERED)

MEMBER = """
import asyncio, sys, antiphon

async def main():
    async with antiphon.join(sys.argv[1], name="c", order="total") as group:
        print("in", flush=True)
        async for batch in group.batches():
            print(batch.number, flush=True)

asyncio.run(main())
"""


async def messages(group: Group, wanted: int) -> list[Message]:
    found = []
    async for message in group:
        found.append(message)
        if len(found) == wanted:
            break
    return found


@contextlib.contextmanager
def another_process(group: str) -> Iterator[subprocess.Popen[str]]:
    """A member `c` that is a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", MEMBER, group], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@contextlib.asynccontextmanager
async def with_another() -> AsyncIterator[tuple[list[Group], subprocess.Popen[str]]]:
    """Two members here, and one that is a process of its own."""
    name = a_group_name()
    async with joined("a", "b", order="total", group=name) as groups:
        with another_process(name) as process:
            await asyncio.gather(*(group.wait_for_members(3) for group in groups))
            yield groups, process


# Stability


@pytest.mark.parametrize("order", ONE_GROUP)
def test_a_large_message_is_stable_when_everyone_has_it_and_not_before(order: str) -> None:
    async def body() -> None:
        async with joined("a", "b", "c", order=order) as groups:
            body = os.urandom(LARGE)
            sent = await groups[0].send(body)
            await sent.stable()
            taken = [
                group.counters["delivered_bytes"] + group.counters["unfinished_bytes"] for group in groups
            ]
            assert order == "causal" or min(taken) >= LARGE
            for group in groups:
                (message,) = await messages(group, 1)
                assert message.body == body
                assert message.position == (await sent.delivered() if order in ORDERED else None)
                await message.stable()

    within(body())


def test_a_message_is_not_stable_while_a_member_that_stands_still_counts() -> None:
    async def body() -> None:
        async with with_another() as (groups, process):
            events = groups[0].presence()
            process.send_signal(signal.SIGSTOP)
            sent = await groups[0].send(b"x")
            waiting = asyncio.create_task(sent.stable())
            assert await sent.delivered() is not None
            async for event in events:
                assert not waiting.done() or event.kind == "appeared"
                if (event.kind, event.site) == ("vanished", "c"):
                    break
            await waiting

    within(body())


def test_a_member_that_stood_still_for_a_moment_is_waited_for() -> None:
    async def body() -> None:
        async with with_another() as (groups, process):
            assert process.stdout is not None
            assert process.stdout.readline() == "in\n"
            process.send_signal(signal.SIGSTOP)
            sent = await groups[0].send(b"x")
            waiting = asyncio.create_task(sent.stable())
            await sent.delivered()
            await messages(groups[1], 1)
            await asyncio.wait([waiting], timeout=0.3)
            assert not waiting.done()
            process.send_signal(signal.SIGCONT)
            await waiting
            assert process.stdout.readline() == f"{sent.number}\n"

    within(body())


@pytest.mark.parametrize("order", ONE_GROUP)
def test_a_member_that_left_is_not_waited_for(order: str) -> None:
    async def body() -> None:
        async with joined("a", "b", "c", order=order) as groups:
            await groups[2].leave()
            await (await groups[0].send(b"x")).stable()
            await (await groups[1].send(b"y")).stable()

    within(body())


def test_a_member_alone_calls_what_it_sent_stable() -> None:
    async def body() -> None:
        async with joined("a", order="total") as (group,):
            await (await group.send(b"x")).stable()

    within(body())


@pytest.mark.parametrize("order", ONE_GROUP)
def test_what_was_sent_before_an_absence_is_not_taken_for_stable_after_it(order: str) -> None:
    async def body() -> None:
        async with joined("a", "b", order=order) as groups:
            group = groups[1]
            events = group.presence()
            sent = await group.send(b"before")
            assert group._member is not None
            group._member.depart()
            with pytest.raises(MissedError):
                await sent.stable()
            group._member.come_back()
            async for event in events:
                if event.kind == "missed":
                    break
            with pytest.raises(MissedError):
                await sent.stable()
            with pytest.raises(MissedError):
                await sent.delivered()
            await (await group.send(b"after")).stable()

    within(body())


def test_what_a_member_began_again_without_is_raised() -> None:
    async def body() -> None:
        async with joined("a", "b", order="total") as groups:
            sent = await groups[0].send(b"x")
            groups[0]._listener.unstable(fx.Unstable("a", sent.number, 1, None, "It began again."))
            with pytest.raises(MissedError, match="began again"):
                await sent.stable()
            groups[0]._listener.unstable(fx.Unstable("b", 3, 2, None, "It began again."))
            with pytest.raises(MissedError, match="began again"):
                await groups[0]._listener.stability.wait("b", 4, 4)

    within(body())


# Delivery and positions


@pytest.mark.parametrize("order", ONE_GROUP)
def test_a_position_is_the_same_everywhere_and_only_grows(order: str) -> None:
    async def body() -> None:
        async with joined("a", "b", "c", order=order) as groups:
            for group in groups:
                await group.send_many(f"{group.name}{number}".encode() for number in range(50))
            sent = [await group.send(bytes(300_000)) for group in groups]
            await groups[0].send(b"for some", to={"b", "c"})
            found = [await messages(group, 153 if group is groups[0] else 154) for group in groups]
            known = [{message.id: message.position for message in each} for each in found]
            delivered = [await message.delivered() for message in sent]
            if order not in ORDERED:
                assert {position for each in known for position in each.values()} == {None}
                assert delivered == [None] * 3
                return
            assert delivered == [known[1][message.id] for message in sent]
            assert [message.position for message in sent] == delivered
            for each in found:
                places = [message.position or 0 for message in each]
                assert places == sorted(set(places))
            assert known[1] == known[2]
            assert known[0].items() <= known[1].items()

    within(body())


def test_positions_go_on_after_an_absence() -> None:
    async def body() -> None:
        async with joined("a", "b", order="total") as groups:
            before = await (await groups[1].send(b"before")).delivered()
            assert groups[1]._member is not None
            groups[1]._member.depart()
            between = await (await groups[0].send(b"between")).delivered()
            events = groups[1].presence()
            groups[1]._member.come_back()
            async for event in events:
                if event.kind == "missed":
                    break
            after = await (await groups[1].send(b"after")).delivered()
            assert before is not None
            assert between is not None
            assert after is not None
            assert before < between < after

    within(body())


def test_positions_never_go_back_whatever_order_is_taken_up() -> None:
    """Another order may have come less far, as after a network that was cut in two."""

    async def body() -> None:
        inbox = Inbox(
            "a", lifecycle=Lifecycle("a", "g"), limits=Limits(), figures=Figures(), watch=Watch(),
            notify=lambda _: None, journal=Journal("g", "a"), counts_all=True,
        )  # fmt: skip
        for number, place in enumerate((5, 6, 2, 3, 7)):
            bodies = pack([b"x", b"y"])
            inbox.delivered(fx.Deliver("b", 2 * number, bodies, place=place), bodies, None)
        batches = [batch for batch in inbox._queue if isinstance(batch, Batch)]
        positions = [position for batch in batches for position in batch.positions or ()]
        assert positions == sorted(set(positions))
        assert positions[:2] == [5 << POSITION_BITS, (5 << POSITION_BITS) + 1]
        assert positions[-1] == (7 << POSITION_BITS) + 1

    within(body())


def test_who_leaves_waits_for_no_delivery() -> None:
    async def body() -> None:
        board, stability = DeliveryWaits(), StabilityWaits()
        waits = [asyncio.create_task(board.wait(3)), asyncio.create_task(stability.wait("a", 3, 3))]
        await asyncio.sleep(0)
        for each in (board, stability):
            each.close(LeftError("left"))
        for waiting in waits:
            with pytest.raises(LeftError):
                await waiting

    within(body())


@pytest.mark.parametrize("order", ONE_GROUP)
def test_a_message_that_is_not_for_its_sender_is_not_delivered_there(order: str) -> None:
    async def body() -> None:
        async with joined("a", "b", order=order) as groups:
            own = await groups[0].send(b"y", to={"a"})
            assert (await own.delivered() is not None) == (order in ORDERED)
            sent = await groups[0].send(b"x", to={"b"})
            with pytest.raises(UsageError):
                await sent.delivered()
            await sent.stable()

    within(body())


def test_across_groups_a_message_is_delivered_where_its_sender_is_in_the_group() -> None:
    async def body() -> None:
        cluster = a_group_name()
        async with node(cluster, name="a") as one:
            orders = await one.join("orders")
            sent = await orders.send(b"x")
            assert await sent.delivered() is None
            await sent.stable()
            elsewhere = await one.group("stock").send(b"y")
            with pytest.raises(UsageError):
                await elsewhere.delivered()

    within(body())


def test_what_was_passed_over_is_raised() -> None:
    async def body() -> None:
        async with joined("a", "b", order="total") as groups:
            group = groups[0]
            sent = await group.send(b"x")
            later = asyncio.create_task(group._listener.deliveries.wait(sent.number + 2))
            await sent.delivered()
            group._listener.doubted(fx.Unavailable("It came too late.", "a", sent.number + 1, 2))
            for wait in (later, group._listener.stability.wait("a", sent.number + 1, sent.number + 1)):
                with pytest.raises(MissedError, match="too late"):
                    await wait

    within(body())


def test_every_order_promises_stability() -> None:
    assert all(
        "stability" in make_order(order, {"sequencer": "a"} if order == "sequencer" else {}).promises()
        for order in ORDERS
    )


@pytest.mark.parametrize("order", ["fifo", *ORDERED])
def test_members_may_deliver_only_what_is_stable(order: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined("a", "b", "c", order=order, deliver="stable", trace=tmp_path) as groups:
            for number in range(30):
                for group in groups:
                    await group.send(f"{group.name} {number}".encode())
            await asyncio.gather(*(messages(group, 90) for group in groups))

    within(scenario())
    result = audit_locally([tmp_path])
    assert (result.verdict, result.deliveries, result.violations["safe"]) == (Verdict.PASS, 270, 0)


def test_stable_delivery_and_history_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="History cannot be kept or read"):
        within(join(a_group_name(), name="a", deliver="stable", history=tmp_path).__aenter__())
