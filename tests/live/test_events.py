"""One stream of messages and of what happens between them: each event in its place, nothing silent."""

import asyncio
import itertools
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import antiphon
from antiphon.core import effects as fx
from antiphon.core.packing import pack
from antiphon.live import events as ev
from antiphon.live.events import Appeared, CutOff, Missed, Restarted, Unread, Vanished
from antiphon.live.figures import Figures, Watch
from antiphon.live.group import Group
from antiphon.live.inbox import MOST_EVENTS, Inbox
from antiphon.live.joining import join
from antiphon.live.journal import Journal
from antiphon.live.lifecycle import Lifecycle
from antiphon.live.limits import Limits
from antiphon.live.messages import Batch, Message, UniqueId
from antiphon.live.places import MOST_SENDERS, Gaps, Restarts
from tests.live.members import a_group_name, joined, read, within

ORDERS = ("fifo", "causal", "sequencer", "total")


# The queue


def an_inbox(*, counts_all: bool = True) -> Inbox:
    box: list[Inbox] = []
    box.append(
        Inbox(
            "me", lifecycle=Lifecycle("me", "g"), limits=Limits(), figures=Figures(), watch=Watch(),
            notify=lambda event: box[0].happened(event), journal=Journal("g", "me"),
            counts_all=counts_all,
        )
    )  # fmt: skip
    return box[0]


def deliver(inbox: Inbox, sender: str, number: int, incarnation: int = 1) -> None:
    bodies = pack([b"x"])
    inbox.delivered(fx.Deliver(sender, number, bodies, None, incarnation), bodies, None)


async def waiting(inbox: Inbox) -> list[Any]:
    """What stands in the queue: events as they are, messages by sender and number."""
    found: list[Any] = []
    items = inbox.items()
    while inbox._queue:
        item = await anext(items)
        found += [(one.sender, one.number) for one in item] if isinstance(item, Batch) else [item]
    return found


def test_a_gap_stands_between_the_messages_around_it() -> None:
    async def body() -> None:
        inbox = an_inbox()
        for sender, number in (("a", 0), ("b", 7), ("a", 1), ("a", 5), ("b", 8)):
            deliver(inbox, sender, number)
        missed = Missed("a", 2, 3, "The next message of this sender comes from behind them.")
        assert await waiting(inbox) == [("a", 0), ("b", 7), ("a", 1), missed, ("a", 5), ("b", 8)]

    within(body())


def test_numbers_of_messages_for_others_are_no_gap() -> None:
    async def body() -> None:
        inbox = an_inbox()
        deliver(inbox, "a", 0)
        inbox.passed(fx.Deliver("a", 1, pack([b"for others"]), None, 1), 1)
        deliver(inbox, "a", 2)
        selective = an_inbox(counts_all=False)
        deliver(selective, "a", 0)
        deliver(selective, "a", 2)
        assert await waiting(inbox) == await waiting(selective) == [("a", 0), ("a", 2)]

    within(body())


def test_a_sender_that_begins_anew_is_told_before_its_next_message() -> None:
    async def body() -> None:
        inbox = an_inbox()
        deliver(inbox, "a", 0, incarnation=1)
        deliver(inbox, "a", 0, incarnation=2)
        deliver(inbox, "me", 0, incarnation=1)
        deliver(inbox, "me", 1, incarnation=2)  # our own restart is reported in another way
        assert await waiting(inbox) == [("a", 0), Restarted("a"), ("a", 0), ("me", 0), ("me", 1)]

    within(body())


def test_a_restart_is_told_once_whether_the_process_or_its_message_comes_first() -> None:
    async def body() -> None:
        inbox = an_inbox()
        for site, boot in (("a", 1), ("b", 1), ("a", 1)):
            inbox.met(site, boot)
        deliver(inbox, "a", 0, incarnation=1)
        deliver(inbox, "b", 0, incarnation=1)
        inbox.met("a", 2)
        deliver(inbox, "a", 0, incarnation=2)
        deliver(inbox, "b", 0, incarnation=2)
        inbox.met("b", 2)
        assert await waiting(inbox) == [
            ("a", 0), ("b", 0), Restarted("a"), ("a", 0), Restarted("b"), ("b", 0)
        ]  # fmt: skip

    within(body())


def test_events_that_nobody_reads_are_bounded_and_counted_in_their_places() -> None:
    async def body() -> None:
        inbox = an_inbox()
        deliver(inbox, "a", 0)
        for turn in range(MOST_EVENTS):
            inbox.happened(Appeared(f"s{turn}"))
        for turn in range(10_000):
            inbox.happened(Vanished(f"s{turn}", "It left."))
        deliver(inbox, "a", 1)
        inbox.happened(Missed())
        assert len(inbox._queue) == MOST_EVENTS + 4
        found = await waiting(inbox)
        assert found[-3:] == [Unread(10_000, missed=False), ("a", 1), Unread(1, missed=True)]
        inbox.happened(Appeared("late"))
        assert await waiting(inbox) == [Appeared("late")]

    within(body())


def test_an_absence_that_is_over_before_anyone_reads_of_it_is_one_gap() -> None:
    async def body() -> None:
        inbox = an_inbox()
        inbox.happened(CutOff("This member is absent."))
        inbox.happened(Missed())
        deliver(inbox, "a", 0)
        assert await waiting(inbox) == [Missed(), ("a", 0)]

    within(body())


def test_readers_of_batches_pass_over_events() -> None:
    async def body() -> None:
        inbox = an_inbox()
        inbox.happened(Appeared("a"))
        deliver(inbox, "a", 0)
        inbox.happened(Vanished("a", "It left."))
        deliver(inbox, "a", 1)
        batches = inbox.batches()
        assert [(await anext(batches)).number, (await anext(batches)).number] == [0, 1]
        heard: list[Batch] = []
        reading = asyncio.create_task(inbox.for_each(heard.append))
        await asyncio.sleep(0)
        inbox.happened(Appeared("a"))
        deliver(inbox, "a", 2)
        assert inbox.hand_out()
        assert [batch.number for batch in heard] == [2]
        assert inbox._events == 0
        reading.cancel()

    within(body())


def test_what_is_remembered_of_senders_is_bounded() -> None:
    gaps, restarts = Gaps(), Restarts()
    for place in range(2 * MOST_SENDERS):
        gaps.before(f"s{place}", 1, 0, 1)
        restarts.met(f"s{place}", 1)
        restarts.met(f"s{place}", 2)
        restarts.delivered(f"s{place}", 1)
        restarts.delivered(f"s{place}", 2)
    kept = [len(gaps._next), len(restarts._boots), len(restarts._incarnations)]
    assert max(*kept, len(restarts._met), len(restarts._foretold)) <= MOST_SENDERS


# Live members


class Log:
    """What a member's application reads, as it comes."""

    def __init__(self, group: Group) -> None:
        self.found: list[ev.Event] = []
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read(group.events()))

    async def _read(self, events: AsyncIterator[ev.Event]) -> None:
        async for event in events:
            self.found.append(event)
            self._news.set()

    async def until(self, enough: Callable[[], object]) -> None:
        while not enough():
            assert not self._reading.done(), "the membership is over"
            self._news.clear()
            await self._news.wait()

    def place(self, event: ev.Event) -> int:
        return self.found.index(event)

    def messages(self) -> list[Message]:
        return [event for event in self.found if isinstance(event, Message)]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.found if isinstance(event, kind)]

    def stop(self) -> None:
        self._reading.cancel()


@pytest.mark.parametrize("order", ORDERS)
def test_who_comes_and_goes_is_told_between_messages(order: str) -> None:
    async def body() -> None:
        async with joined("a", "b", order=order) as (a, b):
            log = Log(a)
            await b.send(b"hello")
            await log.until(lambda: log.messages())
            await b.leave()
            await log.until(lambda: log.of(Vanished))
            assert [type(event) for event in log.found] == [Appeared, Message, Vanished]
        assert not log.of(CutOff), "neither a leave of another nor one's own is being cut off"

    within(body())


@pytest.mark.parametrize("order", ORDERS)
def test_what_a_slow_reader_misses_stands_at_its_gap(order: str) -> None:
    """However much waits to be read, the gap stands between the messages before and after it."""

    async def body() -> None:
        small = Limits(queue_bytes=300_000, patience_s=0.1)
        group = a_group_name()
        async with (
            joined("a", "b", group=group, order=order) as (a, b),
            join(group, name="slow", order=order, sequencer="a" if order == "sequencer" else None,
                 limits=small) as slow,
        ):  # fmt: skip
            await asyncio.gather(*(each.wait_for_members(3) for each in (a, b, slow)))
            reading = [asyncio.create_task(each.for_each_batch(lambda _: None)) for each in (a, b)]
            await a.send_many(bytes(10_000) for _ in range(1000))
            while "slow" in a.members:
                await asyncio.sleep(0.01)
            await a.settle()  # so that nothing addressed to 'slow' is sent after what is not
            await a.send_many(bytes(1000) for _ in range(100))
            log = Log(slow)
            await log.until(lambda: log.of(Missed))
            await asyncio.gather(*(each.wait_for_members(3) for each in (a, b, slow)))
            sent = await a.send(b"the last")
            await log.until(lambda: log.messages() and log.messages()[-1].body == b"the last")
            assert log.messages()[-1].number == sent.number
            places = [place for place, event in enumerate(log.found) if isinstance(event, Message)]
            for before, after in itertools.pairwise(places):
                first, second = log.found[before], log.found[after]
                assert isinstance(first, Message)
                assert isinstance(second, Message)
                between = log.found[before + 1 : after]
                if second.number != first.number + 1:
                    assert Missed() in between, (first, second)
                    exact = [event for event in between if isinstance(event, Missed) and event.sender]
                    if order != "causal":
                        gap = (first.number + 1, second.number - first.number - 1)
                        assert [(event.number, event.count) for event in exact] == [gap]
            for task in reading:
                task.cancel()

    within(body())


SENDER = """
import asyncio, sys
import antiphon

async def main():
    group, name, order = sys.argv[1:4]
    sequencer = sys.argv[4] or None
    async with antiphon.join(group, name=name, order=order, sequencer=sequencer) as member:
        await member.wait_for_members(2)
        asyncio.create_task(member.for_each_batch(lambda batch: None))
        while True:
            await member.send(b"x")
            await asyncio.sleep(0.002)

asyncio.run(main())
"""


async def a_process(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-c", SENDER, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_a_member_that_is_killed_and_restarted_at_once_is_told_before_its_next_message(order: str) -> None:
    async def body() -> None:
        name = a_group_name()
        async with joined("a", order=order, group=name) as (a,):
            news = a.presence()
            arguments = (name, "b", order, "a" if order == "sequencer" else "")
            log = Log(a)
            process = await a_process(*arguments)
            try:
                await log.until(lambda: len(log.messages()) > 5)
                process.kill()
                await process.wait()
                process = await a_process(*arguments)
                await log.until(
                    lambda: (
                        log.of(Restarted)
                        and isinstance(log.found[-1], Message)
                        and log.found[-1].incarnation != log.messages()[0].incarnation
                    )
                )
            finally:
                process.kill()
                await process.wait()
            assert log.of(Restarted) == [Restarted("b")]
            border = log.place(Restarted("b"))
            before = [event for event in log.found[:border] if isinstance(event, Message)]
            incarnation = before[0].incarnation
            assert {event.incarnation for event in before} == {incarnation}
            assert log.messages()[-1].incarnation > incarnation
            names = [message.id for message in log.messages()]
            assert len(set(names)) == len(names)
            assert names == sorted(names)
            async for event in news:
                if event.kind == "restarted":
                    assert event.site == "b"
                    break

    within(body())


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["a", "z"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_member_that_stood_still_is_told_what_it_missed(order: str, reader: str) -> None:
    """Of two, whichever of them holds the other to be gone."""

    async def body() -> None:
        name = a_group_name()
        other = "m"
        sequencer = other if order == "sequencer" else ""
        process = await a_process(name, other, order, sequencer)
        try:
            async with join(name, name=reader, order=order, sequencer=sequencer or None) as member:
                log = Log(member)
                await log.until(lambda: len(log.messages()) > 5)
                # Lifecycle still as a stopped process does: the whole event loop waits.
                time.sleep(1.5)
                stood = len(log.messages())
                await log.until(lambda: log.of(Missed))
                await log.until(lambda: isinstance(log.found[-1], Message))
                await log.until(lambda: len(log.messages()) > stood + 5)
            numbers = [message.number for message in log.messages()]
            places = [place for place, event in enumerate(log.found) if isinstance(event, Message)]
            holes = [
                (places[at], places[at + 1])
                for at, (first, second) in enumerate(itertools.pairwise(numbers))
                if second != first + 1
            ]
            assert holes, "nothing was missed: the test has stood still for too short a time"
            for before, after in holes:
                assert Missed() in log.found[before:after]
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()

    within(body())


def test_a_message_that_is_sent_has_the_id_of_the_one_that_is_delivered() -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            sent = await a.send(b"x")
            async for message in b:
                assert message.id == sent.id == UniqueId("a", sent.incarnation, 0)
                assert str(message.id) == f"a:{sent.incarnation}:0"
                break
            assert sent.incarnation > 0

    within(body())


def test_events_end_with_the_membership() -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            await b.send(b"before")
            await read(a, 1)
            await b.send(b"unread")
            while not a._inbox._queue:
                await asyncio.sleep(0.01)
            await a.leave(linger=False)
            found = [event async for event in a.events() if isinstance(event, Message)]
            assert [message.body for message in found] == [b"unread"]

    within(body())


def test_the_package_offers_the_events_by_name() -> None:
    for kind in ev.Happening.__args__:
        assert getattr(antiphon, kind.__name__) is kind
        assert kind.__name__ in antiphon.__all__
