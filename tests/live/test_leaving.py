"""When PDUs leave a host: urgent PDUs at once, others in their turn, and the protocol learns when."""

import asyncio
from typing import Any, ClassVar

from antiphon.core import effects as fx
from antiphon.core.inputs import Input, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Codec, Pdu
from antiphon.live.counters import Counters
from antiphon.live.member import Member
from antiphon.live.poison import PoisonRing
from tests.live.pairs import Ear, Note, acquaint, drive, ears, group_name, note

RATE_BYTES_S = 500_000.0


class Plain(Pdu, frozen=True):
    """Has no bodies, and may refer to PDUs that were sent before it."""

    code: ClassVar[int] = 101


class Urgent(Pdu, frozen=True):
    """Refers to nothing."""

    code: ClassVar[int] = 102
    urgent: ClassVar[bool] = True


CODEC = Codec([Note, Plain, Urgent])


def test_urgent_pdus_overtake_those_that_wait_for_their_turn() -> None:
    group = group_name()
    a, b = (Ear(site, group, codec=CODEC, rate_bytes_s=RATE_BYTES_S) for site in "ab")
    with ears(a, b):
        acquaint(a, b)
        b.heard.clear()
        counters = [a.transport.multicast(pdu) for pdu in (note(1, 100_000), Plain(), Urgent())]
        assert [a.transport.is_waiting(counter) for counter in counters] == [True, True, False]
        drive([a, b], lambda: {type(pdu) for _, pdu in b.heard} >= {Note, Plain, Urgent})
        assert not any(a.transport.is_waiting(counter) for counter in counters)
        kinds = [type(pdu) for _, pdu in b.heard]
        assert kinds.index(Urgent) < min(kinds.index(Note), kinds.index(Plain))


class Chain:
    """A protocol that sends the next PDU when the previous one has left."""

    def __init__(self) -> None:
        self.fired: list[str] = []

    def handle(self, now: Nanoseconds, event: Input) -> list[fx.Effect]:
        if not isinstance(event, TimerFired):
            return []
        self.fired.append(event.name)
        if event.name == "begin":
            return [fx.Multicast(Plain(), left="first"), fx.Multicast(Plain(), left="held")]
        return [fx.Multicast(Plain(), left="second")] if event.name == "first" else []


class Road:
    """A transport whose PDUs leave unless they are held."""

    is_unfinished = has_queue = False

    def __init__(self) -> None:
        self.sent = 0
        self.held: set[int] = set()

    def multicast(self, *_: object) -> int:
        self.sent += 1
        return self.sent

    def is_waiting(self, counter: int) -> bool:
        return counter in self.held

    def filenos(self) -> tuple[int, ...]:
        return ()


class Log:
    """A history log that only counts what was sent when it was written."""

    failure = None

    def __init__(self, road: Road) -> None:
        self._road = road
        self.written_after: list[int] = []

    def flush(self) -> None:
        self.written_after.append(self._road.sent)


def member_on(road: Road, protocol: Chain, history: Log | None = None) -> Member:
    silent: Any = None
    member = Member(
        site="b",
        group="g",
        build=lambda _: protocol,  # type: ignore[arg-type, return-value]
        transport=road,  # type: ignore[arg-type]
        recorder=None,
        reader=silent,
        listener=silent,
        counters=Counters(),
        poison=PoisonRing(),
        history=history,  # type: ignore[arg-type]
    )
    member._away = False
    return member


def test_with_a_history_log_the_pdus_of_a_step_leave_together_after_it_is_written() -> None:
    async def run() -> None:
        road = Road()
        log = Log(road)
        member = member_on(road, Chain(), log)
        for name in ("first", "first"):
            member._carry_out(0, TimerFired(name))
        assert (road.sent, log.written_after) == (0, [])
        member._let_go()
        assert road.sent == 2
        assert log.written_after[0] == 0
        at_once = member_on(other := Road(), Chain())
        at_once._carry_out(0, TimerFired("second"))
        at_once._carry_out(0, TimerFired("begin"))
        assert other.sent == 3

    asyncio.run(run())


def test_a_protocol_learns_once_when_a_pdu_has_left() -> None:
    async def run() -> None:
        protocol, road = Chain(), Road()
        member = member_on(road, protocol)
        road.held = {2}
        member._carry_out(0, TimerFired("begin"))
        assert protocol.fired == ["begin", "first", "second"]
        member._let_go()
        assert protocol.fired == ["begin", "first", "second"]
        road.held.clear()
        member._let_go()
        member._let_go()
        assert protocol.fired == ["begin", "first", "second", "held"]

    asyncio.run(run())
