"""What a member knows of the others, and how the one that holds the group up is named."""

import asyncio
import contextlib
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable

import pytest

from antiphon.core.protocol import PeerReport
from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.live.group import Group
from antiphon.live.joining import join
from antiphon.live.metrics import PEER_HELP, serve_metrics
from antiphon.live.node import node
from antiphon.live.peers import MOST_REMEMBERED, PATIENCE_NS, Holdups, Peer
from antiphon.protocols.probe import PAUSE_NS, Probe
from tests.live.members import a_group_name, joined, within

ORDERS = ("fifo", "causal", "sequencer", "total")

SLOW = """
import asyncio, sys, time
import antiphon

async def main():
    group, order = sys.argv[1:3]
    sequencer = sys.argv[3] or None
    async with antiphon.join(group, name="slow", order=order, sequencer=sequencer) as member:
        await member.for_each_batch(lambda batch: time.sleep(0.02))

asyncio.run(main())
"""


async def until(so: Callable[[], bool]) -> None:
    while not so():
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def a_slow_process(group: str, order: str, sequencer: str) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SLOW, group, order, sequencer)
    try:
        yield
    finally:
        process.kill()
        await process.wait()


def drain(*groups: Group) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(group.for_each_batch(lambda _: None)) for group in groups]


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_a_member_whose_application_blocks_is_named_by_the_others(order: str) -> None:
    async def body() -> None:
        name, sequencer = a_group_name(), "a" if order == "sequencer" else ""
        async with (
            joined("a", "b", group=name, order=order) as (a, b),
            a_slow_process(name, order, sequencer),
        ):
            await asyncio.gather(a.wait_for_members(3), b.wait_for_members(3))
            reading = drain(a, b)

            async def load() -> None:
                while True:
                    await a.send_records(bytes(a.batch_bytes), 100)

            loading = asyncio.create_task(load())
            await until(lambda: "slow" in a.peers and a.peers["slow"].held_us_up_s > 0.3)
            peers = a.peers
            assert set(peers) == {"b", "slow"}
            assert peers["b"].held_us_up_s < peers["slow"].held_us_up_s
            await until(lambda: a.peers["slow"].holding_us_up and (a.peers["slow"].lag or 0) > 0)
            silence_s = a.peers["slow"].silence_s
            assert silence_s is not None
            assert 0 <= silence_s < 120
            for task in (loading, *reading):
                task.cancel()

    within(body())


@pytest.mark.parametrize("order", ORDERS)
def test_a_group_at_rest_lags_in_nothing_and_waits_for_nobody(order: str) -> None:
    async def body() -> None:
        async with joined("a", "b", "c", order=order) as groups:
            reading = drain(*groups)
            for group in groups:
                await (await group.send(b"x")).stable()
            for group in groups:
                await until(lambda group=group: all(not peer.lag for peer in group.peers.values()))  # type: ignore[misc]
                peers = group.peers
                assert set(peers) == {"a", "b", "c"} - {group.name}
                assert list(peers) == sorted(peers)
                assert not any(peer.holding_us_up or peer.held_us_up_s for peer in peers.values())
            if order != "total":
                times = [peer.round_trip_s for peer in groups[0].peers.values()]
                assert all(each is not None and 0 < each < 5 for each in times), times
            for task in reading:
                task.cancel()
        assert groups[0].peers == {}

    within(body())


def test_a_node_knows_the_others_of_its_cluster() -> None:
    async def body() -> None:
        cluster = a_group_name()
        async with node(cluster, name="a") as a, node(cluster, name="b") as b:
            group = await a.join("orders")
            await b.join("orders")
            await asyncio.gather(a.wait_for_nodes(2), b.wait_for_nodes(2))
            await until(lambda: set(a.peers) == {"b"} and set(b.peers) == {"a"})
            await (await group.send(b"x")).stable()
            assert not a.peers["b"].lag
            assert not a.peers["b"].holding_us_up

    within(body())


def test_an_application_that_reads_slowly_is_seen_in_its_own_counters() -> None:
    async def body() -> None:
        async with joined("a") as (a,):
            await a.send_many([b"x"] * 1000)
            await until(lambda: a.counters["reader_lag"] == 1000)
            assert a.counters["reader_busy_s"] == 0
            async for batch in a.batches():
                await asyncio.sleep(0.05)
                if batch.numbers[-1] == 999:
                    break
            assert a.counters["reader_lag"] == 0
            await a.send(b"x")
            async for _ in a.batches():
                break
            reading = drain(a)
            before = a.counters["reader_busy_s"]
            await (await a.send(b"x")).stable()
            await until(lambda: a.counters["reader_busy_s"] > before)
            reading[0].cancel()

    within(body())


def test_peers_are_served_to_prometheus() -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            reading = drain(a, b)
            await (await a.send(b"x")).stable()
            port = serve_metrics(a, 0)
            text = await asyncio.to_thread(
                lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            )
            labels = f'{{group="{a.group}",member="a",peer="b"}}'
            for name in PEER_HELP:
                total = "_total" if name in ("lost", "held_us_up_s") else ""
                assert f"antiphon_peer_{name}{total}{labels}" in text
            for task in reading:
                task.cancel()

    within(body())


def test_short_waits_are_put_down_to_nobody_and_long_ones_to_whom_was_waited_for() -> None:
    asked: list[int] = []

    def ask() -> list[str]:
        asked.append(1)
        return ["b"]

    holdups, reports = Holdups(ask), {"b": PeerReport(5, 0, MILLISECOND_NS, 2, True), "c": PeerReport()}
    holdups.refused(0)
    holdups.refused(PATIENCE_NS - 1)
    holdups.taken(PATIENCE_NS)
    assert not asked
    assert holdups.view(PATIENCE_NS, reports)["b"].held_us_up_s == 0
    holdups.refused(0)
    for _ in range(3):
        holdups.refused(SECOND_NS)
    assert asked == [1], "it was just looked at"
    assert holdups.view(SECOND_NS, reports) == {
        "b": Peer("b", 5, 1.0, 0.001, 2, True, 1.0),
        "c": Peer("c", None, None, None, None, False, 0.0),
    }
    holdups.taken(2 * SECOND_NS)
    assert holdups.view(2 * SECOND_NS, reports)["b"] == Peer("b", 5, 2.0, 0.001, 2, False, 2.0)


def test_those_who_were_waited_for_longest_ago_are_forgotten_beyond_a_bound() -> None:
    names = iter([f"s{place}" for place in range(2 * MOST_REMEMBERED)])
    holdups = Holdups(lambda: [next(names)])
    for turn in range(2 * MOST_REMEMBERED):
        holdups.refused(2 * turn * SECOND_NS)
        holdups.refused((2 * turn + 1) * SECOND_NS)
        holdups.taken((2 * turn + 1) * SECOND_NS)
    assert len(holdups._waited_ns) == MOST_REMEMBERED
    last = f"s{2 * MOST_REMEMBERED - 1}"
    found = holdups.view(0, {"s0": PeerReport(), last: PeerReport()})
    assert (found["s0"].held_us_up_s, found[last].held_us_up_s) == (0, 1)


def test_one_batch_at_a_time_is_timed() -> None:
    probe = Probe()
    probe.sent(0, 10)
    probe.sent(PAUSE_NS - 1, 20)
    assert probe.held(5, 0, 9) is None
    assert probe.held(5, 0, 10) == 5
    assert probe.held(9, probe.serial, 20) is None, "it was timed already"
    probe.sent(PAUSE_NS, 30)
    assert probe.held(PAUSE_NS + 7, 1, 30) == 7


def test_a_process_that_is_alone_has_no_peers() -> None:
    async def body() -> None:
        member = join(a_group_name(), name="a")
        assert member.peers == {}
        async with member:
            assert member.peers == {}

    within(body())
