"""Live members on simulated time under drawn faults: they must go on afterwards, and the audit finds nothing.

    python -m tests.testing.drawn_faults --order total-across --seed 129
    python -m tests.testing.drawn_faults --order causal --seed 0 --runs 200

In a run of some seconds members multicast to random groups, or to random members, and join and leave groups.
Meanwhile members are killed and restarted (more often those in most groups: they are primary sites), paused,
cut off, and their datagrams lost. Then all of that ends. Every member must deliver what every other one then
sends to it, and the trace must keep all promises. The same seed gives the same run.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, Final

from antiphon import testing
from antiphon.audit.local import audit_locally
from antiphon.check.verdict import Verdict
from antiphon.core.errors import AntiphonError, UsageError
from antiphon.live.errors import NameTakenError
from antiphon.live.group import Group

ORDERS: Final = ("total-across", "causal")
EVENTS_PER_S: Final = 60.0
DEEDS: Final = {"send": 80, "move": 10, "kill": 3, "partition": 3, "pause": 2, "lose": 2}
"""What happens, by how often."""
SPAN_S: Final = 2.0
LONGEST_FAULT_S: Final = 1.0
ROUNDS: Final = 10
"""Closing messages that are tried: one that is sent as its sender is left out may be lost with its spell."""
ROUND_S: Final = 5.0
PATIENCE_S: Final = 30.0


class Ordeal:
    """One run."""

    def __init__(self, order: str, seed: int, folder: Path) -> None:
        self._random = Random(f"{order}/{seed}")
        self._seed = seed
        self._across = order == "total-across"
        self._names = [f"m{index}" for index in range(self._random.randint(3, 7))]
        self._groups = [f"g{index}" for index in range(self._random.randint(2, 4))] if self._across else [""]
        self.options: dict[str, Any] = {"order": order, "trace": str(folder)}
        if self._across:
            self.options |= {
                "bodies": self._random.choice(["tree", "tree", "direct"]),
                "causal": self._random.random() < 0.3,
            }
        self._wanted = {name: {each for each in self._groups if self._is_heads()} for name in self._names}
        self._delivered: dict[str, set[bytes]] = {name: set() for name in self._names}
        self._dead: set[str] = set()
        self._paused: set[str] = set()
        self._healed_s = 0.0
        self._sent = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def _is_heads(self) -> bool:
        return self._random.random() < 0.6

    async def run(self) -> None:
        self._cluster = testing.cluster(self._names, seed=self._seed, **self.options)
        async with self._cluster:
            for name in self._names:
                self._begin(name)
            loop = asyncio.get_running_loop()
            end_s = loop.time() + SPAN_S
            while loop.time() < end_s:
                await asyncio.sleep(self._random.expovariate(EVENTS_PER_S))
                (deed,) = self._random.choices(list(DEEDS), list(DEEDS.values()))
                getattr(self, f"_{deed}")(loop.time())
            await asyncio.sleep(LONGEST_FAULT_S)
            await self._recover()
            await self._close()
        for task in self._tasks:
            task.cancel()

    # Members

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this beside the rest; a member that is killed meanwhile ends it."""

        async def do() -> None:
            with contextlib.suppress(AntiphonError):
                await work

        task = asyncio.ensure_future(do())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _begin(self, name: str) -> None:
        """A member reads, and enters its groups."""
        self._spawn(self._read(name, self._cluster[name]))
        if self._across:
            for group in sorted(self._wanted[name]):
                self._spawn(self._cluster[name].enter(group))

    async def _read(self, name: str, group: Group) -> None:
        async for message in group:
            self._delivered[name].add(message.body)

    def _live(self) -> list[str]:
        return [name for name in self._names if name not in self._dead]

    # What happens

    def _send(self, _now_s: float) -> None:
        name = self._random.choice(self._live())
        self._sent += 1
        body = f"{name}/{self._sent}".encode() * self._random.choice([1, 1, 1, 4000])
        member = self._cluster[name]
        if self._across:
            self._spawn(_handed(member, body, group=self._random.choice(self._groups)))
        else:
            others = sorted(member.members)
            to = frozenset(self._random.sample(others, self._random.randint(1, len(others))))
            self._spawn(_handed(member, body, to=to))

    def _move(self, _now_s: float) -> None:
        name, group = self._random.choice(self._live()), self._random.choice(self._groups)
        if self._across:
            joins = group not in self._wanted[name]
            self._wanted[name] ^= {group}
            member = self._cluster[name]
            self._spawn(member.enter(group) if joins else member.exit(group))

    def _kill(self, _now_s: float) -> None:
        live = self._live()
        name = self._random.choice(live)
        if self._is_heads():
            name = max(live, key=lambda each: (len(self._wanted[each]), -self._names.index(each)))
        if len(self._dead) < (len(self._names) - 1) // 2 and name not in self._paused:
            self._dead.add(name)
            self._cluster.kill(name)
            self._spawn(self._restart(name, self._random.choice([0.05, 0.2, 0.8])))

    async def _restart(self, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        while name in self._dead:
            with contextlib.suppress(NameTakenError):  # the others have not missed the killed one yet
                await self._cluster.restart(name)
                self._dead.discard(name)
        self._begin(name)

    def _pause(self, _now_s: float) -> None:
        name = self._random.choice(self._live())
        if name not in self._paused:
            self._paused.add(name)
            self._cluster.pause(name)
            self._spawn(self._resume(name, self._random.choice([0.03, 0.2, 0.6])))

    async def _resume(self, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._cluster.resume(name)
        self._paused.discard(name)

    def _partition(self, now_s: float) -> None:
        if now_s >= self._healed_s:
            cell = set(self._random.sample(self._names, self._random.randint(1, len(self._names) - 1)))
            self._cluster.partition(cell, set(self._names) - cell)
            self._heal_after(now_s, self._random.choice([0.05, 0.3, LONGEST_FAULT_S]))

    def _lose(self, now_s: float) -> None:
        if now_s >= self._healed_s:
            self._cluster.loss(self._random.choice([0.05, 0.2]))
            self._heal_after(now_s, 0.3)

    def _heal_after(self, now_s: float, after_s: float) -> None:
        self._healed_s = now_s + after_s
        asyncio.get_running_loop().call_later(after_s, self._cluster.heal)

    # Afterwards

    async def _recover(self) -> None:
        """All members are there, in the groups that they want; each group has a member."""
        while self._dead or self._paused:
            await asyncio.sleep(0.05)
        for name in self._names:
            waiting = self._cluster[name].wait_for_members(len(self._names))
            await asyncio.wait_for(waiting, PATIENCE_S)
        if self._across:
            await asyncio.wait_for(self._enter_and_exit(), PATIENCE_S)

    async def _enter_and_exit(self) -> None:
        for group in self._groups:
            # What goes to a group without members waits, and all that follows it.
            if not any(group in wanted for wanted in self._wanted.values()):
                self._wanted[self._names[0]].add(group)
        for name in self._names:
            for group in self._groups:
                await self._be_where_wanted(name, group)

    async def _be_where_wanted(self, name: str, group: str) -> None:
        member = self._cluster[name]
        while True:
            try:
                await (member.enter(group) if group in self._wanted[name] else member.exit(group))
            except UsageError:  # an earlier change is under way
                await asyncio.sleep(0.05)
            else:
                return

    async def _close(self) -> None:
        """Every member delivers what every other one sends to it."""
        lacking: set[tuple[str, bytes]] = set()
        for turn in range(ROUNDS):
            lacking = {
                (receiver, body)
                for group in self._groups
                for body in [self._closing(turn, name, group) for name in self._names]
                for receiver in self._names
                if not self._across or group in self._wanted[receiver]
            }
            end_s = asyncio.get_running_loop().time() + ROUND_S
            while lacking and asyncio.get_running_loop().time() < end_s:
                await asyncio.sleep(0.05)
                lacking = {(name, body) for name, body in lacking if body not in self._delivered[name]}
            if not lacking:
                return
        raise AssertionError(f"The faults are over, and these were not delivered: {sorted(lacking)[:5]}")

    def _closing(self, turn: int, name: str, group: str) -> bytes:
        body = f"closing/{turn}/{name}/{group}".encode()
        self._spawn(_handed(self._cluster[name], body, **({"group": group} if self._across else {})))
        return body


async def _handed(member: Group, body: bytes, **where: Any) -> None:
    await member.send(body, **where)


def judge(order: str, seed: int) -> None:
    """One run; if it fails, the message ends with the command that replays it."""
    command = f"python -m tests.testing.drawn_faults --order {order} --seed {seed}"
    with tempfile.TemporaryDirectory(prefix="antiphon-faults-") as folder:
        ordeal = Ordeal(order, seed, Path(folder))
        try:
            testing.run(ordeal.run())
        except Exception as error:
            raise AssertionError(f"{error!r}\n{command}") from error
        result = audit_locally([folder], by_promise=True)
        told = f"{result.verdict.value}: {dict(result.broken)}, {ordeal.options}"
        assert result.verdict is Verdict.PASS, f"{told}\n{command}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--order", choices=ORDERS, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1)
    asked = parser.parse_args()
    failed = 0
    for seed in range(asked.seed, asked.seed + asked.runs):
        try:
            judge(asked.order, seed)
        except AssertionError as error:
            failed += 1
            print(error, flush=True)
    print(f"{asked.runs} runs of {asked.order}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
