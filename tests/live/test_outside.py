"""A tag sequencer of its own, shared by two groups: on simulated time, and as a process that is killed."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.errors import UsageError
from antiphon.core.wire import Pdu
from antiphon.live.errors import NameTakenError
from antiphon.live.joining import join
from antiphon.live.keys import KeyFile, KeyRing, write_keys
from antiphon.live.networks import Loopback
from antiphon.live.orders import Total
from antiphon.live.tag_channel import TagChannel
from antiphon.live.tag_server import MOST_TOLD, TagServer
from antiphon.protocols.dpg.services.tag_sequencer.pdus import Answer, TagRequest
from antiphon.protocols.dpg.services.tag_sequencer.site import TagSequencerSite
from antiphon.testing import clusters, run
from antiphon.testing.clusters import Cluster
from antiphon.trace.files import read_trace
from tests.live.members import DEADLINE_S, a_group_name, joined, read, within
from tests.promises import broken_promises

TAGS = "tags"


def server_of(cluster: Cluster, life: int = 0) -> TagServer:
    machine = cluster._machine_for(f"server-{life}")
    return TagServer(TagChannel(name=TAGS, network=Loopback(machine=machine), keys=None))


async def bodies(group: Any, wanted: int) -> list[bytes]:
    return [body for _, _, body in await read(group, wanted)]


class TestOnSimulatedTime:
    def test_two_groups_share_it_and_it_learns_neither_names_nor_groups(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        heard: list[tuple[str, Pdu]] = []
        handle = TagSequencerSite.handle

        def listen(self: TagSequencerSite, now: int, event: Any) -> Any:
            if hasattr(event, "pdu"):
                heard.append((event.sender, event.pdu))
            return handle(self, now, event)

        monkeypatch.setattr(TagSequencerSite, "handle", listen)

        async def story() -> None:
            async with (
                clusters.cluster(3, seed=1, order=Total(outside=TAGS)) as cluster,
                server_of(cluster) as server,
            ):
                others = [cluster.join("other", name=name, order=Total(outside=TAGS)) for name in "xy"]
                await asyncio.gather(*others)
                for number in range(30):
                    for group in (*cluster, *others):
                        await group.send(f"{group.name}/{number}".encode())
                first = await asyncio.gather(*(bodies(group, 90) for group in cluster))
                second = await asyncio.gather(*(bodies(group, 60) for group in others))
                assert first[0] == first[1] == first[2]
                assert second[0] == second[1]
                assert all(body.startswith(b"m") for body in first[0])
                assert server.numbered > 0
                assert all(not group.counters["claims"] for group in (*cluster, *others))

        run(story())
        assert {type(pdu) for _, pdu in heard} <= {TagRequest, Answer}, "tags only"
        senders = {sender for sender, _ in heard}
        assert len(senders) == 5
        assert all(sender.startswith("tags-") for sender in senders)

    @pytest.mark.parametrize("seed", range(4))
    def test_while_it_is_away_nothing_is_delivered_and_then_nothing_is_lost(self, seed: int) -> None:
        async def story() -> None:
            async with clusters.cluster(3, seed=seed, order=Total(outside=TAGS)) as cluster:
                server = await server_of(cluster).__aenter__()
                for number in range(20):
                    for group in cluster:
                        await group.send(f"{group.name}/{number}".encode())
                before = await asyncio.gather(*(bodies(group, 60) for group in cluster))
                server.kill()
                for group in cluster:
                    await group.send(f"{group.name}/later".encode())
                await asyncio.sleep(5)
                assert all(group.counters["delivered_messages"] == 60 for group in cluster)
                async with server_of(cluster, 1):
                    after = await asyncio.gather(*(bodies(group, 3) for group in cluster))
                    assert before[0] == before[1] == before[2]
                    assert after[0] == after[1] == after[2]
                    for group in cluster:
                        assert not group.counters["absences"]
                        assert not group.counters["committed"]
                        assert not group.counters["disagreements"]

        run(story())


class Process:
    """`antiphon sequencer` in a process of its own."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, "-m", "antiphon.cli.main", "sequencer", name]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._numbers = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for _ in self.process.stderr:
            self._numbers.set()

    def wait(self) -> None:
        assert self._numbers.wait(DEADLINE_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def a_process(name: str) -> Iterator[Process]:
    process = Process(name)
    try:
        yield process
    finally:
        process.kill()


@pytest.mark.slow
def test_the_audit_finds_nothing_when_its_process_is_killed_and_restarted(tmp_path: Path) -> None:
    name, group = a_group_name(), a_group_name()

    async def body() -> None:
        with a_process(name) as process:
            await asyncio.to_thread(process.wait)
            async with joined(
                "a", "b", "c", order="total", outside=name, group=group, trace=tmp_path
            ) as members:
                for number in range(50):
                    for member in members:
                        await member.send(b"%d" % number)
                before = await asyncio.gather(*(read(member, 150) for member in members))
                process.kill()
                for member in members:
                    await member.send(b"while it is away")
                with a_process(name) as again:
                    await asyncio.to_thread(again.wait)
                    after = await asyncio.gather(*(read(member, 3) for member in members))
                    for member in members:
                        await member.finish()
                assert before[0] == before[1] == before[2]
                assert after[0] == after[1] == after[2]

    within(body())
    trace = read_trace(tmp_path)
    (found,) = trace.runs
    assert found.promises
    assert broken_promises(found.promises, trace.events, found) == []


def test_a_second_sequencer_of_that_name_is_refused() -> None:
    async def body() -> None:
        channel = TagChannel(name=a_group_name(), network=Loopback(), keys=None)
        async with TagServer(channel):
            with pytest.raises(NameTakenError, match="has a tag sequencer already"):
                async with TagServer(channel) as second:
                    await second.failed()

    within(body())


def test_a_flood_of_reasons_is_no_flood_of_lines() -> None:
    said: list[str] = []
    server = TagServer(TagChannel(name="tags", network=Loopback(), keys=None), said.append)
    for number in range(2 * MOST_TOLD):
        server.refused("x", f"reason {number // 2}")
    server.refused("x", "one more")
    assert said == [f"reason {number}" for number in range(MOST_TOLD)]


def test_members_are_told_that_the_sequencer_has_another_key(tmp_path: Path) -> None:
    for each in ("ours", "theirs"):
        write_keys(tmp_path / each, KeyRing.generate())

    async def body() -> None:
        name = a_group_name()
        ours, theirs = tmp_path / "ours", tmp_path / "theirs"
        channel = TagChannel(name=name, network=Loopback(), keys=KeyFile(theirs))
        said: list[str] = []
        async with (
            TagServer(channel, said.append),
            joined("a", order="total", outside=name, key=ours) as (a,),
        ):
            while not (a.counters["refusals"] and said):
                await asyncio.sleep(0.01)
        assert "with a key that this member does not have" in said[0]
        async with (
            TagServer(channel),
            joined("a", order="total", outside=name, key=ours, outside_key=str(theirs)) as (a,),
        ):
            await a.send(b"x")
            assert (await read(a, 1))[0][2] == b"x"

    within(body())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"outside": "tags", "service": "lan"}, "has no sequencer"),
        ({"outside_key": "file"}, "Which outside sequencer"),
        ({"outside": "tags", "network": "peers:127.0.0.1:7401,listen=127.0.0.1:7401"}, "Where is"),
        ({"outside": ""}, "is no name"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        join("g", name="a", order="total", **options)
