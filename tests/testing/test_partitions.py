"""What an application is told of a partition, over the live stack on simulated time."""

import asyncio
from typing import Any

import pytest

import antiphon
from antiphon.core.errors import UsageError
from antiphon.testing import cluster, run
from antiphon.testing.clusters import Cluster

SERVICES = ("sequencer", "bounded-delay")
MAJORITY, MINORITY = {"m0", "m1", "m2"}, {"m3", "m4"}


class Reader:
    """Reads all events of a member."""

    def __init__(self, group: antiphon.Group) -> None:
        self.bodies: list[bytes] = []
        self.positions: dict[bytes, int | None] = {}
        self.events: list[Any] = []
        self._group = group
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self._group.events():
            if isinstance(event, antiphon.Message):
                self.bodies.append(bytes(event.body))
                self.positions[bytes(event.body)] = event.position
            else:
                self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until_read(self, body: bytes) -> None:
        while body not in self.bodies:
            await asyncio.sleep(0.01)

    async def until_told(self, kind: type) -> None:
        while not self.of(kind):
            await asyncio.sleep(0.01)


async def begun(members: Cluster) -> dict[str, Reader]:
    for name in members.names:
        await members[name].wait_for_members(len(members.names))
    readers = {name: Reader(members[name]) for name in members.names}
    await members["m0"].send(b"before")
    for reader in readers.values():
        await reader.until_read(b"before")
    return readers


@pytest.mark.parametrize("service", SERVICES)
def test_the_smaller_side_is_told_what_it_delivered_alone(service: str) -> None:
    async def story() -> None:
        async with cluster(5, seed=1, order=antiphon.Total(service=service)) as members:
            readers = await begun(members)
            members.partition(MAJORITY, MINORITY)
            await asyncio.sleep(2.0)
            await members["m3"].send(b"alone")
            await members["m0"].send(b"together")
            await readers["m4"].until_read(b"alone")
            await readers["m1"].until_read(b"together")
            members.heal()
            for name in MINORITY:
                await readers[name].until_told(antiphon.Forked)
                (fork,) = readers[name].of(antiphon.Forked)
                assert fork.site in MAJORITY
                assert fork.first <= (readers[name].positions[b"alone"] or 0) <= fork.last
                assert (readers[name].positions[b"before"] or 0) < fork.first
            await members["m4"].send(b"after")
            for reader in readers.values():
                await reader.until_read(b"after")
            for name in MAJORITY:
                assert not readers[name].of(antiphon.Forked)
                assert not readers[name].of(antiphon.Missed), "the larger side goes on"

    run(story())


@pytest.mark.parametrize("service", SERVICES)
def test_with_a_quorum_a_minority_delivers_nothing_and_goes_on_after_healing(service: str) -> None:
    async def story() -> None:
        async with cluster(5, seed=1, order=antiphon.Total(service=service, quorum=3)) as members:
            readers = await begun(members)
            members.partition(MAJORITY, MINORITY)
            sending = asyncio.create_task(members["m3"].send(b"alone"))
            await members["m0"].send(b"together")
            await readers["m2"].until_read(b"together")
            for name in MINORITY:
                await readers[name].until_told(antiphon.CutOff)
            await asyncio.sleep(2.0)
            assert all(readers[name].bodies == [b"before"] for name in MINORITY)
            members.heal()
            await sending
            for name in MINORITY:
                await readers[name].until_told(antiphon.Missed)
            await members["m4"].send(b"after")
            for reader in readers.values():
                await reader.until_read(b"after")
            for name in MAJORITY:
                await readers[name].until_read(b"alone")
            assert not any(reader.of(antiphon.Forked) for reader in readers.values())
            whole = readers["m0"].bodies
            for reader in readers.values():
                assert reader.bodies == [body for body in whole if body in reader.bodies]

    run(story())


def test_a_quorum_is_a_number_of_members() -> None:
    with pytest.raises(UsageError, match="quorum=0 is too small"):
        antiphon.Total(quorum=0)
    with pytest.raises(UsageError, match="has no option quorum="):
        antiphon.join("g", name="a", order="fifo", quorum=3)
