"""A fault of ours that a peer finds: the member that has it begins anew, says so, and goes on."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.effects import SetTimer
from antiphon.core.inputs import Admit, Input, Received, Start, TimerFired
from antiphon.live import member as live_member
from antiphon.live.counters import Counters
from antiphon.live.group import Group
from antiphon.live.machine import Machine
from antiphon.live.member import CALM_NS, Member
from antiphon.live.poison import MOST_KEPT, POISON, PoisonRing
from antiphon.trace.files import read_trace
from tests.live.members import a_group_name, joined, read, within

ORDERS = ("fifo", "causal", "sequencer", "total")


def raise_once(group: Group, at: Callable[[Input], bool]) -> None:
    """Let a member's protocol raise at the first event of a kind, in the midst of its work."""
    member = group._member
    assert member is not None
    sound = member._handle

    def handle(now: int, event: Input) -> Any:
        if at(event):
            sound(now, event)  # what it wanted done is lost
            raise RuntimeError("a fault of ours")
        return sound(now, event)

    member._handle = handle


async def missed(group: Group) -> None:
    async for event in group.presence():
        if event.kind == "missed":
            return


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", [Received, TimerFired])
def test_a_member_outlives_what_its_protocol_cannot_handle(
    order: str, kind: type[Input], tmp_path: Path
) -> None:
    async def body() -> None:
        async with joined("a", "b", "c", order=order, trace=tmp_path) as (a, b, c):
            await b.send(b"before")
            await asyncio.gather(*(read(each, 1) for each in (a, b, c)))
            told = asyncio.ensure_future(missed(c))
            await asyncio.sleep(0)
            raise_once(c, lambda event: type(event) is kind)
            await told
            assert c.counters["drops"][POISON] == 1
            (poison,) = c.poison
            assert "RuntimeError: a fault of ours" in poison.error
            if kind is Received:
                assert poison.sender in ("a", "b")
                assert poison.data.startswith(b"An")
            else:
                assert (poison.sender, poison.data) == ("c", b"")
            await asyncio.gather(*(each.wait_for_members(3) for each in (a, b, c)))
            for each in (a, c):
                sent = await each.send(b"after")
                for reader in (a, b, c):
                    assert (await read(reader, 1))[0][2] == b"after"
                await sent.stable()
            await asyncio.gather(*(each.finish() for each in (a, b, c)))

    within(body())
    trace = read_trace(tmp_path)
    (run,) = trace.runs
    assert check_trace(trace.events, run, run.promises) == []
    absent = [event.site for event in trace.events if event.kind == "absent"]
    assert "c" in absent


def test_a_node_is_in_its_groups_again_after_a_fault() -> None:
    import antiphon

    async def body() -> None:
        cluster = a_group_name()
        async with antiphon.node(cluster, name="a") as a, antiphon.node(cluster, name="b") as b:
            group = await a.join("A")
            await b.join("A")
            raise_once(b._whole, lambda event: type(event) is TimerFired)
            await missed(b._whole)
            heard = asyncio.ensure_future(anext(aiter(b)))
            while not heard.done():  # until it is in its group again, it misses them
                await group.send(b"after")
                await asyncio.sleep(0.01)
            assert (await heard).body == b"after"

    within(body())


def test_a_member_whose_protocol_keeps_failing_pauses_ever_longer_and_goes_on_once_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            member = b._member
            assert member is not None
            sound = member._build

            class Broken:
                """Fails at all but its start."""

                def handle(self, now: int, event: Input) -> Any:
                    if type(event) is Start:
                        return [SetTimer("fail", 1)]
                    raise RuntimeError("a fault of ours")

                def incarnation_of(self, site: str) -> int:
                    return 0

            monkeypatch.setattr(member, "_build", lambda _: Broken())
            raise_once(b, lambda event: type(event) is TimerFired)
            while b.counters["drops"].get(POISON, 0) < 4:
                await asyncio.sleep(0.01)
            assert member._pause_ns >= 2 * live_member.FIRST_PAUSE_NS
            monkeypatch.setattr(member, "_build", sound)
            await missed(b)
            await b.wait_for_members(2)
            await a.send(b"again")
            while (await read(b, 1))[0][2] != b"again":
                pass

    within(body())


def test_a_fault_at_what_the_application_hands_in_is_the_application_s() -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            raise_once(a, lambda event: type(event) is Admit)
            await a.send(b"x")
            with pytest.raises(RuntimeError, match="a fault of ours"):
                await read(a, 1)
            await b.send(b"y")
            assert await read(b, 1) == [("b", 0, b"y")]

    within(body())


def test_a_datagram_that_the_gate_cannot_handle_is_kept_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, b):
            assert b._transport is not None
            gate = b._transport._gate
            sound = gate.let_in

            def let_in(view: memoryview, address: Any) -> Any:
                monkeypatch.setattr(gate, "let_in", sound)
                raise RuntimeError("a fault of ours")

            monkeypatch.setattr(gate, "let_in", let_in)
            await a.send(b"x")
            assert await read(b, 1) == [("a", 0, b"x")]
            assert [each.kind for each in b.poison] == ["datagram"]
            assert b.counters["drops"][POISON] == 1

    within(body())


def test_the_latest_few_are_kept() -> None:
    from antiphon.live.poison import MOST_BYTES, PoisonRing

    ring = PoisonRing()
    for number in range(3 * MOST_KEPT):
        ring.keep("x", str(number), ValueError("no"), bytes(2 * MOST_BYTES))
    kept = ring.all()
    assert [each.kind for each in kept] == [str(number) for number in range(2 * MOST_KEPT, 3 * MOST_KEPT)]
    assert {len(each.data) for each in kept} == {MOST_BYTES}


class Clock(Machine):
    """A machine whose time a test sets, and which only writes down what is to be done later."""

    def __init__(self) -> None:
        self.now = 0
        self.now_ns = lambda: self.now
        self.delays_s: list[float] = []

    def loop(self) -> Any:
        return self

    def call_later(self, delay: float, *_: object) -> None:
        self.delays_s.append(delay)


class Failing:
    def handle(self, now: int, event: Input) -> Any:
        raise RuntimeError("a fault of ours")


@pytest.mark.parametrize(("after_ns", "pauses"), [(CALM_NS, False), (CALM_NS - 1, True)])
def test_a_member_begins_anew_at_once_unless_the_last_fault_was_a_moment_ago(
    after_ns: int, pauses: bool
) -> None:
    clock, silent = Clock(), cast(Any, None)
    member = Member(
        site="b",
        group="g",
        build=lambda _: Failing(),  # type: ignore[arg-type, return-value]
        transport=silent,
        recorder=None,
        reader=silent,
        listener=silent,
        counters=Counters(),
        poison=PoisonRing(),
        machine=clock,
    )
    member._away, member._begun_anew_ns = False, 5
    clock.now = 5 + after_ns
    member._carry_out(clock.now, TimerFired("x"))
    assert [delay_s > 0 for delay_s in clock.delays_s] == [pauses]


def test_only_a_member_that_runs_begins_anew() -> None:
    async def body() -> None:
        async with joined("a", "b") as (a, _):
            member = a._member
            assert isinstance(member, Member)
        steps = member.steps
        member._begin_anew("A test.")
        member.outlive(1 << 40)
        assert member.steps == steps

    within(body())
