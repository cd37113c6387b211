"""A hostile process floods a group at full speed: nothing gets in, and the group goes on."""

import asyncio
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon.core.ids import Site
from antiphon.core.wire import Pdu, Reason
from antiphon.live import challenges, fragments, gate
from antiphon.live.group import Group
from antiphon.live.keys import KeyRing
from antiphon.live.transport import Transport
from tests.live.members import joined, within
from tests.live.pairs import RING, Ear, Note, acquaint, ears, group_name, note

FLOOD_S = 2.0
DEADLINE_S = 120.0
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="The process's memory is read from /proc."
)
MOST_GROWTH_BYTES = 48 << 20
LARGE = 80_000
"""More than a datagram: such PDUs travel in fragments here, too."""


@contextmanager
def hostile(group: str, *listeners: Ear) -> Iterator["subprocess.Popen[str]"]:
    ports = [str(ear.port()) for ear in listeners]
    command = [sys.executable, "-m", "tests.live.hostile", group, "1", str(FLOOD_S), *ports]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize("keys", [None, RING], ids=["open", "sealed"])
def test_a_flood_neither_gets_in_nor_stops_the_group(keys: KeyRing | None) -> None:
    """Also without a key: the flood answers no challenges."""
    group = group_name()
    with ears(Ear("a", group, keys), Ear("b", group, keys)) as (a, b):
        acquaint(a, b)
        with hostile(group, a, b) as process:
            b.transport.multicast(said(0)[1])
            before = resident_bytes()
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            during = converse(a, b, lambda: process.poll() is None)
            flooded = int(process.communicate()[0])
        assert flooded > 10_000
        assert during > 20, "the group did not go on"
        assert resident_bytes() - before < MOST_GROWTH_BYTES
        for ear in (a, b):
            check_bounds(ear.transport)
            expected = REASONS | (REASONS_WITHOUT_KEY if keys is None else REASONS_WITH_KEY)
            assert expected <= ear.drops.keys(), expected - ear.drops.keys()


def said(number: int) -> tuple[Site, Pdu]:
    """Which member sends what and when; nothing else may be delivered."""
    return "ba"[number % 2], note(number, LARGE if number % 5 == 0 else 100)


def converse(a: Ear, b: Ear, goes_on: Callable[[], bool]) -> int:
    """Each says one thing after another, each until it is heard; how many were heard while it went on."""
    heard_meanwhile, number, deadline = 0, 0, time.monotonic() + DEADLINE_S
    to_go = 5
    while to_go:
        number += 1
        speaker, listener = (a, b) if number % 2 else (b, a)
        while said(number) not in listener.heard:
            assert time.monotonic() < deadline, (a.counters.snapshot(), b.counters.snapshot())
            speaker.transport.multicast(said(number)[1])
            for ear in (a, b):
                ear.look()
        if goes_on():
            heard_meanwhile += 1
        else:
            to_go -= 1
        for ear in (a, b):
            for site, pdu in ear.heard:
                assert isinstance(pdu, Note)
                assert (site, pdu) == said(pdu.number)
                assert site != ear.site
            ear.heard.clear()
    return heard_meanwhile


def check_bounds(transport: Transport) -> None:
    assert transport._gate.sizes() == (1, 0, 0, 0)
    assert transport._fragments.reassembly.held_bytes <= fragments.MOST_PARTIAL_BYTES


REASONS = {
    Reason.SHORT.value,
    Reason.MAGIC.value,
    Reason.VERSION.value,
    Reason.LENGTH.value,
    gate.OTHER_GROUP,
    challenges.UNPROVEN,
    fragments.NONSENSE,
}
REASONS_WITH_KEY = {
    gate.FORGED,
    gate.REPLAYED,
    gate.UNKNOWN_KEY,
    gate.UNSEALED,
    fragments.FORGED,
    fragments.LATE,
}
REASONS_WITHOUT_KEY = {
    Reason.SEALED.value,
    Reason.CHECKSUM.value,
    gate.ELSEWHERE,
}


def test_memory_is_measured() -> None:
    """The bound above could be broken: a hoard of the size that it forbids is seen."""
    before = resident_bytes()
    with mmap.mmap(-1, MOST_GROWTH_BYTES) as hoard:  # what the process has given back would not be seen
        hoard.write(b"x" * MOST_GROWTH_BYTES)
        assert resident_bytes() - before > MOST_GROWTH_BYTES // 2


@pytest.mark.slow
@pytest.mark.parametrize("order", ["fifo", "sequencer", "total"])
def test_a_group_under_attack_delivers_what_its_members_sent_and_nothing_else(order: str) -> None:
    async def body() -> None:
        name = group_name()
        async with joined("a", "b", group=name, order=order, key=RING) as groups:
            before = resident_bytes()
            heard: list[list[tuple[Site, int, bytes]]] = [[], []]
            reading = [asyncio.create_task(listen(*pair)) for pair in zip(groups, heard, strict=True)]
            process = await attack(name, groups)
            while process.returncode is None:
                await groups[0].send(b"from a")
                await asyncio.sleep(0.002)
            last = [await group.send(b"the last") for group in groups]
            ends = {(message.sender, message.number) for message in last}
            while not all(ends <= {(sender, number) for sender, number, _ in log} for log in heard):
                await asyncio.sleep(0.01)
            assert resident_bytes() - before < MOST_GROWTH_BYTES
            assert sum(groups[1].counters["drops"].values()) > 1000
            for task in reading:
                task.cancel()
        for log in heard:
            assert {(sender, text) for sender, _, text in log} <= {
                ("a", b"from a"), ("a", b"the last"), ("b", b"the last"),
            }  # fmt: skip
            numbers = [number for sender, number, _ in log if sender == "a"]
            assert numbers == sorted(set(numbers))

    within(body())


async def attack(group: str, listeners: list[Group]) -> asyncio.subprocess.Process:
    """A hostile process that floods the group's meeting place and everyone's own port."""
    ports = [str(port) for member in listeners for port in ports_of(member)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.live.hostile", group, "1", str(FLOOD_S), *ports,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    assert await process.stdout.readline() == b"ready\n"
    process.stdin.write(b"go\n")
    return process


def ports_of(member: Group) -> list[int]:
    assert member._transport is not None
    return [sock.getsockname()[1] for sock in member._transport._sockets.receiving]


async def listen(group: Group, heard: list[tuple[Site, int, bytes]]) -> None:
    async for batch in group.batches():
        heard.extend((message.sender, message.number, message.body) for message in batch)
