"""The public API over real sockets: several members in one process, each with its own."""

import asyncio
import contextlib
import gc
import os
import socket
import urllib.request
import weakref
from array import array
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import antiphon
from antiphon.check.checkers import check_trace
from antiphon.core import errors
from antiphon.core.errors import OutputError, UsageError
from antiphon.core.packing import LENGTH_BYTES
from antiphon.live import errors as live_errors
from antiphon.live.errors import LeftError, MissedError
from antiphon.live.group import Group
from antiphon.live.joining import join
from antiphon.live.keys import KeyRing
from antiphon.live.limits import Limits
from antiphon.live.member import Member
from antiphon.live.messages import Batch, Presence
from antiphon.live.metrics import serve_metrics
from antiphon.live.orders import Fifo, Settings, Total, make_order
from antiphon.live.pieces import BATCH_BYTES, LARGEST_MESSAGE_BYTES, SMALL_BATCH_BYTES, Outgoing
from antiphon.live.presence import PresenceNews
from antiphon.live.transport import Transport
from antiphon.live.waits import PLACES_KEPT, SENDERS_KEPT, DeliveryWaits, StabilityWaits
from antiphon.protocols.dpg.peers import LEASH
from antiphon.trace.files import read_trace
from antiphon.trace.segments import SegmentRecorder
from tests.live.members import a_group_name, joined, read, within
from tests.live.pairs import RING

ORDERS = ("fifo", "causal", "sequencer", "total")


@pytest.mark.parametrize("order", ORDERS)
def test_everyone_delivers_everything_in_each_senders_order(order: str) -> None:
    async def body() -> None:
        async with joined("a", "b", "c", order=order) as groups:
            for turn in range(50):
                for group in groups:
                    await group.send(f"{group.name}{turn}".encode())
            heard = await asyncio.gather(*(read(group, 150) for group in groups))
        for log in heard:
            for name in ("a", "b", "c"):
                own = [(number, text) for sender, number, text in log if sender == name]
                assert own == [(turn, f"{name}{turn}".encode()) for turn in range(50)]
        if order not in ("fifo", "causal"):
            assert heard[0] == heard[1] == heard[2]

    within(body())


@pytest.mark.parametrize("order", ORDERS)
def test_a_long_message_arrives_whole_between_short_ones(order: str) -> None:
    long = os.urandom(LARGEST_MESSAGE_BYTES)

    async def body() -> None:
        async with joined("a", "b", order=order) as (a, b):
            await a.send(b"before")
            sent = await a.send(long)
            await a.send(b"after")
            heard = await read(b, 3)
            assert [text for _, _, text in heard] == [b"before", long, b"after"]
            assert heard[1][1] == sent.number
            await sent.stable()

    within(body())


def test_batches_show_how_messages_travelled() -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            await a.send_many([b"x"] * 1000)
            got, batches = 0, 0
            async for batch in b.batches():
                assert [message.number for message in batch] == list(
                    range(batch.number, batch.number + len(batch))
                )
                assert set(batch.bodies) == {b"x"}
                got, batches = got + len(batch), batches + 1
                if got == 1000:
                    break
            assert batches < 1000
            await batch.stable()

    within(body())


@pytest.mark.parametrize("order", ORDERS)
def test_a_function_is_called_with_everything_in_order(order: str) -> None:
    async def body() -> None:
        async with joined("a", "b", order=order) as (a, b):
            await a.send(b"waits already")
            heard: dict[str, list[tuple[str, int, bytes]]] = {"a": [], "b": []}

            def note(name: str, batch: Batch) -> None:
                heard[name] += [(message.sender, message.number, message.body) for message in batch]

            reading = [
                asyncio.create_task(group.for_each_batch(partial(note, group.name))) for group in (a, b)
            ]
            for turn in range(50):
                await a.send(f"a{turn}".encode())
                await b.send(f"b{turn}".encode())
            while min(map(len, heard.values())) < 101:
                await asyncio.sleep(0.01)
            assert not any(task.done() for task in reading)
        await asyncio.gather(*reading)  # which ends with the membership
        for log in heard.values():
            assert [text for sender, _, text in log if sender == "b"] == [b"b%d" % n for n in range(50)]
            assert [number for sender, number, _ in log if sender == "a"] == list(range(51))
        if order not in ("fifo", "causal"):
            assert heard["a"] == heard["b"]

    within(body())


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError, GeneratorExit])
def test_what_a_function_raises_reaches_who_gave_it_and_the_rest_can_be_read(
    kind: type[BaseException],
) -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            heard: list[bytes] = []

            def choke(batch: Batch) -> None:
                for body in batch.bodies:
                    if body == b"2":
                        raise kind("no twos")
                    heard.append(body)

            reading = asyncio.create_task(b.for_each_batch(choke))
            for turn in range(5):
                await (await a.send(b"%d" % turn)).stable()
            with pytest.raises(kind):
                await reading
            assert heard == [b"0", b"1"]
            assert [text for _, _, text in await read(b, 2)] == [b"3", b"4"]

    within(body())


def test_one_reads_in_one_way_and_may_change_it() -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            heard: list[bytes] = []
            reading = asyncio.create_task(b.for_each_batch(lambda batch: heard.extend(batch.bodies)))
            await (await a.send(b"called")).stable()
            with pytest.raises(UsageError, match="Another function"):
                await b.for_each_batch(print)
            for no_function in (None, b.send):
                with pytest.raises(UsageError, match="is not a function"):
                    await b.for_each_batch(no_function)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="A function is called"):
                await read(b, 1)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            await a.send(b"iterated")
            assert heard == [b"called"]
            assert [text for _, _, text in await read(b, 1)] == [b"iterated"]

    within(body())


def test_a_function_may_send_and_is_not_called_within_its_own_call() -> None:
    """As with tasks that begin to run within the call that makes them."""

    async def body() -> None:
        async with joined("a", "b") as (a, b):
            depth, deepest, echoed = 0, 0, 0

            def answer(batch: Batch) -> None:
                nonlocal depth, deepest, echoed
                depth += 1
                deepest = max(deepest, depth)
                echoed += sum(message.sender == "b" for message in batch)
                if batch.sender == "a":
                    sending = b.send(b"answer")
                    with contextlib.suppress(StopIteration):
                        sending.send(None)  # fifo delivers one's own at once
                depth -= 1

            reading = asyncio.create_task(b.for_each_batch(answer))
            for _ in range(20):
                await (await a.send(b"question")).stable()
            while echoed < 20:
                await asyncio.sleep(0.01)
            assert deepest == 1
        await reading

    within(body())


@given(st.integers(1, 40), st.integers(1, 5000))
def test_records_are_messages_like_any_others(size: int, count: int) -> None:
    outgoing = Outgoing()
    records = bytes(place % 251 for place in range(size * count))
    assert outgoing.add_records(memoryview(records), size) == count
    assert outgoing.size == len(records) + LENGTH_BYTES * count
    bodies: list[bytes] = []
    while outgoing:
        assert len(outgoing.first().bodies.data) <= BATCH_BYTES
        bodies += outgoing.first().bodies
        outgoing.take()
    assert bodies == [records[begin : begin + size] for begin in range(0, len(records), size)]


@pytest.mark.parametrize("key", [None, RING], ids=["open", "sealed"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_batch_of_several_datagrams_arrives_as_it_was(order: str, key: KeyRing | None) -> None:
    async def body() -> None:
        bodies = [bytes([place]) * 10_000 for place in range(100)]
        async with joined("a", "b", "c", order=order, key=key) as groups:
            await asyncio.gather(*(group.send_many(bodies) for group in groups))
            for group in groups:
                heard = await read(group, 300)
                for name in ("a", "b", "c"):
                    assert [text for sender, _, text in heard if sender == name] == bodies
            if groups[0].batch_bytes > SMALL_BATCH_BYTES:  # as everywhere where buffers may be large enough
                assert groups[0].counters["reassembled"] > 0

    within(body())


BUFFERS = (100_000, 425_984, 2 << 20, 5 << 20, 16 << 20, 1 << 30)


def settings(receive_buffer_bytes: int) -> Settings:
    return Settings(site="a", receive_buffer_bytes=receive_buffer_bytes, random=Random(1))


def test_batches_are_smaller_where_buffers_are_and_where_a_channel_brings_the_order() -> None:
    for size in BUFFERS:
        found = settings(size)
        for order in (Fifo(), Total()):
            batch_bytes = order.batch_bytes(found)
            assert SMALL_BATCH_BYTES <= batch_bytes <= BATCH_BYTES
            assert batch_bytes == SMALL_BATCH_BYTES or order.window_batches(found) >= 4
        for service in ("lan", "bounded-delay"):
            assert Total(service=service).batch_bytes(found) == SMALL_BATCH_BYTES
    assert Fifo().batch_bytes(settings(425_984)) == SMALL_BATCH_BYTES
    assert Fifo().batch_bytes(settings(16 << 20)) == BATCH_BYTES


@pytest.mark.parametrize("service", ["sequencer", "lan", "bounded-delay"])
@pytest.mark.parametrize("size", BUFFERS)
def test_as_much_is_kept_as_a_silent_member_is_left_behind(size: int, service: str) -> None:
    order = Total(service=service)
    configuration = order.configuration(settings(size))
    left_behind = (1 + LEASH) * configuration.lag
    assert left_behind <= configuration.kept_bodies
    assert left_behind * order.batch_bytes(settings(size)) <= configuration.kept_bytes


def test_records_travel_between_other_messages_in_order() -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            await a.send(b"before")
            await a.send_records(bytearray(b"aabbcc"), 2)
            await a.send(b"after")
            heard = await read(b, 5)
            assert heard == [
                ("a", place, text) for place, text in enumerate([b"before", b"aa", b"bb", b"cc", b"after"])
            ]
            for records, size in ((b"abc", 2), (b"abc", 0), (b"", -1)):
                with pytest.raises(UsageError, match="records"):
                    await a.send_records(records, size)

    within(body())


def test_send_waits_while_the_group_cannot_take_more() -> None:
    async def body() -> None:
        limits = Limits(outgoing_bytes=10_000)
        async with joined("a", "b", limits=limits) as (a, b):

            async def flood() -> None:
                for _ in range(2000):
                    await a.send(bytes(5000))

            highest = 0
            flooding = asyncio.create_task(flood())
            reading = asyncio.create_task(read(b, 2000))
            draining = asyncio.create_task(read(a, 2000))
            while not flooding.done():
                highest = max(highest, a.counters["outgoing_bytes"])
                await asyncio.sleep(0)
            assert highest <= 10_000 + 5000
            await asyncio.gather(flooding, reading, draining)

    within(body())


@pytest.mark.parametrize("order", ORDERS)
def test_members_hear_of_those_who_come_and_go(order: str) -> None:
    async def body() -> None:
        async with joined("a", "b", order=order) as (a, b):
            events = []
            async for event in a.presence():
                events.append((event.kind, event.site))
                if len(events) == 1:
                    assert a.members == {"a", "b"}
                    await b.leave()
                if len(events) == 2:
                    break
            assert events == [("appeared", "b"), ("vanished", "b")]
            assert a.members == {"a"}

    within(body())


def test_news_are_kept_for_a_reader_from_the_moment_that_it_asks() -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            news = a.presence()
            await b.leave()
            while a.members != {"a"}:
                await asyncio.sleep(0.01)
            assert [(await anext(news)).kind for _ in range(2)] == ["appeared", "vanished"]
            await a.leave()
            assert [event async for event in news] == []

    within(body())


def test_a_reader_of_news_that_is_given_up_is_forgotten() -> None:
    async def body() -> None:
        board = PresenceNews()
        kept, given_up = board.read(), board.read()
        forgotten = weakref.ref(given_up)
        del given_up
        gc.collect()
        assert forgotten() is None
        board.post(Presence("appeared", "b"))
        assert (await anext(kept)).site == "b"

    within(body())


def test_what_was_delivered_can_be_read_after_a_leave_but_nothing_can_be_sent() -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, _):
            await a.send(b"last")
            await a.leave()
            assert [message.body async for message in a] == [b"last"]
            with pytest.raises(LeftError):
                await a.send(b"too late")
            with pytest.raises(LeftError):
                a.presence()
            await a.leave()

    within(body())


def test_a_leave_waits_until_everyone_holds_what_was_sent() -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            await a.send_many([bytes(1000)] * 500)
            await a.leave()
            assert len(await read(b, 500)) == 500

    within(body())


@pytest.mark.parametrize("order", ORDERS)
def test_a_message_is_on_file_before_it_goes_and_a_delivery_after_what_led_to_it(
    order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a member which is killed anywhere in between leaves a log that agrees with everyone's."""
    unwritten: dict[str, list[str]] = {}
    written_while_unsent: list[str] = []
    sent_while_unwritten: list[str] = []
    record, flush, multicast = SegmentRecorder.record, SegmentRecorder.flush, Transport.multicast

    def note(recorder: SegmentRecorder, site: str, kind: Any, *rest: Any) -> None:
        unwritten.setdefault(site, []).append(kind)
        record(recorder, site, kind, *rest)

    def write(recorder: SegmentRecorder) -> None:
        if members[recorder.site]._outgoing:
            written_while_unsent.extend(unwritten.get(recorder.site, []))
        unwritten[recorder.site] = []
        flush(recorder)

    def send(transport: Transport, *rest: Any) -> None:
        sent_while_unwritten.extend(unwritten.get(sites[transport], []))
        multicast(transport, *rest)

    async def body() -> None:
        async with joined("a", "b", "c", order=order, trace=tmp_path) as groups:
            for group in groups:
                assert group._member is not None
                assert group._transport is not None
                members[group.name] = group._member
                sites[group._transport] = group.name
            monkeypatch.setattr(SegmentRecorder, "record", note)
            monkeypatch.setattr(SegmentRecorder, "flush", write)
            monkeypatch.setattr(Transport, "multicast", send)
            for _ in range(5):
                for group in groups:
                    await group.send(b"x")
            await asyncio.gather(*(read(group, 15) for group in groups))
            monkeypatch.undo()

    members: dict[str, Member] = {}
    sites: dict[Transport, str] = {}
    within(body())
    assert "send" not in sent_while_unwritten
    assert "deliver" not in written_while_unsent
    assert unwritten.keys() == {"a", "b", "c"}


@pytest.mark.parametrize("order", ORDERS)
def test_a_late_comer_and_a_member_that_returns_leave_a_trace_that_holds(order: str, tmp_path: Path) -> None:
    async def body(group: str) -> None:
        sequencer = "a" if order == "sequencer" else None
        options: dict[str, Any] = {"group": group, "trace": tmp_path, "order": order}
        async with joined("a", "b", **options) as (a, b):
            await a.send_many([b"early"] * 20)
            await read(b, 20)
            for _ in range(2):  # the first time it is new, the second time it returns
                late = join(group, name="c", order=order, sequencer=sequencer, trace=tmp_path)
                async with late as c:
                    await asyncio.gather(*(each.wait_for_members(3) for each in (a, b, c)))
                    sent = await c.send(b"from c")
                    await a.send(b"to c")
                    heard = await read(c, 2)
                    assert {text for _, _, text in heard} <= {b"from c", b"to c", b"early"}
                    await sent.stable()

    name = a_group_name()
    within(body(name))
    trace = read_trace(tmp_path)
    (run,) = trace.runs
    assert run.promises == make_order(order, {"sequencer": "a"} if order == "sequencer" else {}).promises()
    assert check_trace(trace.events, run, run.promises) == []
    sends = [
        (event.number, event.count) for event in trace.events if (event.site, event.kind) == ("c", "send")
    ]
    assert sends == [(0, None), (1, None)], "numbers go on where the earlier membership ended"


def test_a_run_that_is_over_leaves_no_absence_so_that_everything_is_expected_of_everyone(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with joined("a", "b", trace=tmp_path) as groups:
            for group in groups:
                await group.send(b"x")
            await asyncio.gather(*(read(group, 2) for group in groups))
            await asyncio.gather(*(group.finish() for group in groups))
            with pytest.raises(LeftError):
                await groups[0].send(b"too late")

    within(body())
    trace = read_trace(tmp_path)
    assert not [event for event in trace.events if event.kind == "absent"]
    assert check_trace(trace.events, trace.runs[0], trace.runs[0].promises) == []
    logs = {site: [event for event in trace.events if event.site == site] for site in ("a", "b")}
    logs["b"] = [event for event in logs["b"] if event.kind != "deliver"]
    lacking = [
        msgspec.structs.replace(event, step=step)  # a log without a hole: b really delivered nothing
        for log in logs.values()
        for step, event in enumerate(sorted(log, key=lambda event: event.step))
    ]
    found = check_trace(lacking, trace.runs[0], ["atomicity"])
    assert {violation.property for violation in found} == {"atomicity"}


def test_a_slow_reader_steps_aside_and_returns_and_knows() -> None:
    async def body() -> None:
        small = Limits(queue_bytes=300_000, patience_s=0.1)
        group = a_group_name()
        async with joined("a", "b", group=group) as (a, b), join(group, name="slow", limits=small) as slow:
            await asyncio.gather(*(each.wait_for_members(3) for each in (a, b, slow)))
            news = slow.presence()
            writing = a.send_many(bytes(10_000) for _ in range(2000))
            await asyncio.gather(writing, read(b, 2000), read(a, 2000))
            assert slow.counters["slow_reader_spells"] >= 1
            assert slow.counters["queued_bytes"] < 3_000_000
            drained = asyncio.create_task(read(slow, 2000))
            async for event in news:
                if event.kind == "missed":
                    break
            await slow.wait_for_members(3)
            drained.cancel()

    within(body())


@pytest.mark.slow
@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_empty_messages_hold_up_who_sends_them_and_fill_the_queue_of_a_slow_reader(order: str) -> None:
    async def body() -> None:
        small = Limits(queue_bytes=100_000)
        async with joined("a", "b", order=order, limits=small) as (a, b):

            async def flood() -> None:
                while True:
                    await a.send(b"")

            reading, sending = asyncio.create_task(read(a, -1)), asyncio.create_task(flood())
            while not b.counters["slow_reader_spells"]:
                await asyncio.sleep(0.01)
            assert not sending.done()
            sending.cancel()
            reading.cancel()
            await a.leave(linger=False)

    within(body())


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_members_meet_by_unicast_where_there_is_no_multicast(host: str) -> None:
    address = "[::1]" if host == "[::1]" else "127.0.0.1"

    async def body() -> None:
        family = socket.AF_INET6 if address == "[::1]" else socket.AF_INET
        ports = free_ports(family, address.strip("[]"), 3)
        peers = ",".join(f"{host}:{port}" for port in ports)
        group, long = a_group_name(), os.urandom(1_000_000)
        members = [
            join(group, name=name, network=f"peers:{peers},listen={address}:{port}", key=RING)
            for name, port in zip("abc", ports, strict=True)
        ]
        async with members[0] as a, members[1] as b, members[2] as c:
            await asyncio.gather(*(each.wait_for_members(3) for each in (a, b, c)))
            await a.send(long)
            await c.send(b"short")
            for each in (a, b, c):
                assert {text for _, _, text in await read(each, 2)} == {long, b"short"}

    within(body())


def free_ports(family: int, host: str, count: int) -> list[int]:
    """Ports that no process uses at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(family, socket.SOCK_DGRAM)) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]


def test_waiting_for_stability_ends_with_the_membership() -> None:
    async def body() -> None:
        board = StabilityWaits()
        waits = [asyncio.create_task(board.wait("a", number, number)) for number in (5, 1, 3)]
        await asyncio.sleep(0)
        board.advance("a", 0, 4)
        await asyncio.gather(*waits[1:])
        board.close(LeftError("left"))
        with pytest.raises(LeftError):
            await waits[0]
        await board.wait("a", 3, 3)
        with pytest.raises(LeftError):
            await board.wait("a", 4, 4)

    within(body())


def test_a_board_forgets_senders_beyond_a_bound_but_never_its_own() -> None:
    async def body() -> None:
        board = StabilityWaits()
        board.begin("me", 7)
        waiting = asyncio.create_task(board.wait("s0", 9, 9))
        await asyncio.sleep(0)
        for number in range(3 * SENDERS_KEPT):
            board.advance(f"s{number}", 0, 5)
        assert len(board._senders) == SENDERS_KEPT
        assert board.limit("me") == 7
        assert board.limit(f"s{3 * SENDERS_KEPT - 1}") == 5
        board.advance("s0", 5, 10)
        await waiting
        assert board._senders["s0"].waiting == []

    within(body())


def test_own_messages_to_different_members_are_stable_in_any_order() -> None:
    async def body() -> None:
        board = StabilityWaits()
        board.begin("a", 10)
        waits = {number: asyncio.create_task(board.wait("a", number, number)) for number in (10, 12, 13)}
        other = asyncio.create_task(board.wait("b", 12, 12))
        await asyncio.sleep(0)
        board.settle("a", 12, 14)
        await asyncio.gather(waits[12], waits[13])
        await board.wait("a", 13, 13)
        assert board.limit("a") == 10
        assert not waits[10].done()
        assert not other.done()
        board.settle("a", 11, 12)
        board.settle("a", 10, 11)
        await waits[10]
        assert board.limit("a") == 14
        other.cancel()

    within(body())


def test_what_was_left_out_is_not_stable_though_later_messages_are() -> None:
    async def body() -> None:
        board = StabilityWaits()
        board.advance("a", 0, 3)
        between, behind = (asyncio.create_task(board.wait("a", number, number)) for number in (4, 8))
        await asyncio.sleep(0)
        board.advance("a", 5, 8)
        for number in (3, 4):
            with pytest.raises(MissedError):
                await board.wait("a", number, number)
        with pytest.raises(MissedError):
            await between
        await board.wait("a", 2, 2)
        await board.wait("a", 5, 7)
        with pytest.raises(MissedError):
            await board.wait("a", 2, 6)
        board.lose("a", 8, 9, MissedError("lost"))
        with pytest.raises(MissedError, match="lost"):
            await behind
        with pytest.raises(MissedError, match="lost"):
            await board.wait("a", 8, 12)
        assert board.limit("a") == 9

    within(body())


def test_a_sender_that_counts_from_anew_is_not_taken_for_what_it_was() -> None:
    async def body() -> None:
        board = StabilityWaits()
        board.delivered("a", 0, 8)
        board.advance("a", 0, 6)
        old = asyncio.create_task(board.wait("a", 7, 7))
        await asyncio.sleep(0)
        board.delivered("a", 0, 2)
        with pytest.raises(MissedError):
            await old
        new = asyncio.create_task(board.wait("a", 1, 1))
        await asyncio.sleep(0)
        assert not new.done()
        board.advance("a", 0, 2)
        await new

    within(body())


def test_a_position_is_known_once_the_message_is_delivered() -> None:
    async def body() -> None:
        board = DeliveryWaits()
        waits = [asyncio.create_task(board.wait(number)) for number in (9, 3, 5)]
        await asyncio.sleep(0)
        board.note(3, 5, 100)
        board.note(6, 9, 200)
        assert await waits[1] == 100
        assert [await board.wait(number) for number in (4, 8)] == [101, 202]
        with pytest.raises(MissedError):
            await waits[2]
        with pytest.raises(MissedError):
            await board.wait(5)
        board.close(LeftError("left"))
        with pytest.raises(LeftError):
            await waits[0]
        assert await board.wait(7) == 201
        for number in range(PLACES_KEPT):
            board.note(10 + number, 11 + number, 300 + number)
        with pytest.raises(MissedError):
            await board.wait(3)

    within(body())


def test_without_one_order_it_is_known_that_a_message_is_delivered_however_long_ago() -> None:
    async def body() -> None:
        board = DeliveryWaits()
        for number in range(2 * PLACES_KEPT):
            board.note(number, number + 1, None)
        assert await board.wait(0) is None

    within(body())


def test_mistakes_are_told_before_anything_is_opened(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"name": ""},
        {"name": "two words"},
        {"name": "x" * 65},
        {"order": "fify"},
        {"repair": "magic"},
        {"network": "carrier-pigeon"},
        {"network": "multicast:eth0"},
    ]
    for options in wrong:
        with pytest.raises(UsageError):
            join("g", **options)
    with pytest.raises(UsageError):
        join("")
    with pytest.raises(UsageError):
        Limits(queue_bytes=0)
    with pytest.raises(UsageError, match="member that orders"):
        within(join("g", order="sequencer").__aenter__())


@pytest.mark.parametrize("limit", ["queue_bytes", "outgoing_bytes", "patience_s", "linger_s", "join_s"])
def test_a_limit_that_is_no_number_is_none(limit: str) -> None:
    wrong: dict[str, Any] = {limit: float("nan")}
    with pytest.raises(UsageError):
        Limits(**wrong)


@pytest.mark.parametrize("wrong", [5, 1 << 40, "text", None, [1, 2]], ids=repr)
def test_a_body_that_is_no_bytes_is_refused(wrong: Any) -> None:
    """A number would become that many zeros."""

    async def body() -> None:
        async with joined("a") as (a,):
            no_bodies: Any = b"fine"
            with pytest.raises(UsageError, match="A message is bytes"):
                await a.send(wrong)
            with pytest.raises(UsageError, match="A message is bytes"):
                await a.send_many([b"fine", wrong])
            with pytest.raises(UsageError, match="A message is bytes"):
                await a.send_many(no_bodies)
            await a.send(memoryview(b"f-i-n-e")[::2])
            assert await read(a, 1) == [("a", 0, b"fine")]

    within(body())


def test_a_message_beyond_the_limit_and_a_second_join_are_refused() -> None:
    async def body() -> None:
        async with joined("a") as (a,):
            with pytest.raises(UsageError, match="too long"):
                await a.send(bytes(LARGEST_MESSAGE_BYTES + 1))
            with pytest.raises(UsageError):
                await a.__aenter__()
            assert (await a.send(b"fine")).number == 0

    within(body())


def test_a_member_can_be_awaited_and_leaves_when_it_is_told() -> None:
    async def body() -> None:
        name = a_group_name()
        alice = await join(name, name="alice")
        bob = await join(name, name="bob")
        await bob.wait_for_members(2)
        await alice.send(b"x")
        assert await read(bob, 1) == [("alice", 0, b"x")]
        with pytest.raises(UsageError, match="joined before"):
            await alice
        news = bob.presence()
        await alice.leave()
        assert [(await anext(news)).kind for _ in range(2)] == ["appeared", "vanished"]
        await bob.leave()

    within(body())


@pytest.mark.parametrize("body", [5, "text", None, [1, 2]])
def test_only_bytes_can_be_sent(body: Any) -> None:
    async def misuse() -> None:
        async with joined("a") as (group,):
            for call in (group.send(body), group.send_many([b"x", body]), group.send_records(body, 1)):
                with pytest.raises(UsageError, match=f"bytes, not {type(body).__name__}"):
                    await call
            assert group.counters["admitted_messages"] == 0

    within(misuse())


def test_whatever_lies_in_memory_as_bytes_can_be_sent() -> None:
    bodies = [bytearray(b"ab"), memoryview(b"a.b.")[::2], array("H", [1]), memoryview(b"")]

    async def body() -> None:
        async with joined("a") as (group,):
            for each in bodies:
                await group.send(each)  # type: ignore[arg-type]
            assert [text for *_, text in await read(group, 4)] == [bytes(each) for each in bodies]

    within(body())


def test_another_threads_calls_are_refused() -> None:
    async def body() -> None:
        async with joined("a") as (group,):
            for call in (group.send(b"x"), group.send_many([b"x"])):
                with pytest.raises(UsageError, match=r"another thread.*antiphon\.sync"):
                    await asyncio.to_thread(asyncio.run, call)

    within(body())


def test_a_follower_without_its_sequencer_says_who_is_missing() -> None:
    limits = Limits(join_s=0.3)
    with pytest.raises(LeftError, match="'ghost' did not answer"):
        within(
            join(a_group_name(), name="b", order="sequencer", sequencer="ghost", limits=limits).__aenter__()
        )


def test_a_trace_that_cannot_be_written_ends_the_membership_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "events").write_text("in the way")
    with pytest.raises(OutputError):
        within(join(a_group_name(), name="a", trace=tmp_path).__aenter__())


def test_figures_are_served_to_prometheus() -> None:
    async def body() -> str:
        async with joined("a", "b") as (a, b):
            sent = await a.send(b"hello")
            await read(b, 1)
            await sent.stable()
            port = serve_metrics(a, 0)
            return await asyncio.to_thread(
                lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
            )

    text = within(body())
    assert 'antiphon_delivered_messages_total{group="' in text
    assert 'member="a"} 1.0' in text
    assert "antiphon_stability_seconds_bucket" in text
    assert "antiphon_queued_bytes" in text


def test_the_package_offers_the_api_by_name() -> None:
    assert antiphon.join is join
    assert antiphon.Group is Group
    assert not hasattr(antiphon, "nothing")


def test_all_errors_that_an_application_may_meet_are_the_packages() -> None:
    told = [
        each for module in (errors, live_errors) for each in vars(module).values() if isinstance(each, type)
    ]
    for each in told:
        if issubclass(each, errors.AntiphonError):
            assert getattr(antiphon, each.__name__) is each
            assert each.__name__ in antiphon.__all__


def test_destinations_and_sizes_that_make_no_sense_get_a_sentence() -> None:
    async def work() -> None:
        async with joined("a") as (group,):
            with pytest.raises(UsageError, match="is not a set of members"):
                await group.send(b"x", to=5)  # type: ignore[arg-type]
            for size in (2.0, "2", None):
                with pytest.raises(UsageError, match="are not records"):
                    await group.send_records(b"abcd", size)  # type: ignore[arg-type]

    within(work())
