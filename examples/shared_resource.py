"""Members of a group share the units of a resource: licences, slots, machines. No member is in charge.

Who wants units multicasts a request; who has some that it does not need gives them to the request that came
first. Everyone delivers the same messages in the same order, so everyone agrees on who is next. A member that
has not got enough in time gives back what it has and asks again, so that nothing waits in a circle.
"""

import argparse
import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import antiphon
from antiphon.applications.resource_sharing import Done, Granted, Sharer, SharingConfiguration, TimedOut, Want
from antiphon.applications.resource_sharing.sharer import Event
from antiphon.core.effects import CancelTimer, Deliver, SetTimer
from antiphon.core.inputs import Admit, TimerFired
from antiphon.core.time import to_seconds

MEMBERS = ("m0", "m1", "m2", "m3")
UNITS = 5
TURNS = 10


class Resource:
    """One member's access to the resource: `async with resource.take(3) as units`."""

    def __init__(self, group: antiphon.Group) -> None:
        keepers = [MEMBERS[unit % len(MEMBERS)] for unit in range(UNITS)]
        self.timeouts = 0
        self._group = group
        self._sharer = Sharer(group.name, keepers, SharingConfiguration())
        self._granted: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        self._outgoing: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]

    @asynccontextmanager
    async def take(self, need: int) -> AsyncIterator[tuple[int, ...]]:
        """Wait for that many units and give them back in the end."""
        self._granted = asyncio.get_running_loop().create_future()
        self._handle(Want(need))
        yield await self._granted
        self._handle(Done())

    async def _read(self) -> None:
        async for message in self._group:
            self._handle(Deliver(message.sender, message.number, (message.body,)))

    async def _write(self) -> None:
        while True:
            await self._group.send_many(await self._outgoing.get())

    def _handle(self, event: Event) -> None:
        """The state machine says what to do; here it is done."""
        for outcome in self._sharer.handle(time.monotonic_ns(), event):
            match outcome:
                case Admit(bodies=bodies):
                    self._outgoing.put_nowait(list(bodies))
                case SetTimer(name=name, after_ns=after_ns):
                    self._set_timer(name, to_seconds(after_ns))
                case CancelTimer(name=name) if name in self._timers:
                    self._timers.pop(name).cancel()
                case Granted(units=units):
                    self._granted.set_result(units)
                case TimedOut():
                    self.timeouts += 1

    def _set_timer(self, name: str, after_s: float) -> None:
        if name in self._timers:
            self._timers[name].cancel()
        fire = partial(self._handle, TimerFired(name))
        self._timers[name] = asyncio.get_running_loop().call_later(after_s, fire)


async def member(name: str, order: str, in_use: dict[int, str], everyone: asyncio.Barrier) -> str:
    random = Random(name)
    sequencer = MEMBERS[0] if order == "sequencer" else None
    place = f"shared-resource-{os.getpid()}"
    async with antiphon.join(place, name=name, order=order, sequencer=sequencer) as group:
        await group.wait_for_members(len(MEMBERS))
        resource = Resource(group)
        used = 0
        for _ in range(TURNS):
            async with resource.take(random.randint(1, 3)) as units:
                for unit in units:
                    assert unit not in in_use, f"{name} and {in_use[unit]} both have unit {unit}"
                    in_use[unit] = name
                await asyncio.sleep(0.01)
                used += len(units)
                for unit in units:
                    del in_use[unit]
        await everyone.wait()  # a member that left earlier would take its units along
        await group.settle()
        await everyone.wait()  # and a sequencer the order of what the others have yet to deliver
    return f"{name}: {TURNS} operations on {used} units, {resource.timeouts} time-outs"


async def main(order: str) -> None:
    in_use: dict[int, str] = {}
    everyone = asyncio.Barrier(len(MEMBERS))
    print(*await asyncio.gather(*(member(name, order, in_use, everyone) for name in MEMBERS)), sep="\n")
    print(f"{len(MEMBERS) * TURNS} operations on {UNITS} units, and no unit was held twice")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--order", default="sequencer", help="any order of antiphon.join that is total")
    asyncio.run(main(parser.parse_args().order))
