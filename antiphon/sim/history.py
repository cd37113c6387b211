"""The simulated half of late-join handling: logs in memory, read as live logs are from disk."""

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.core.effects import AwaitRoom, CaughtUp, Deliver, Effect, Recall, SetTimer
from antiphon.core.ids import Site
from antiphon.core.inputs import Departed, HasRoom, Input, Past, Recalled, Start, TimerFired
from antiphon.core.packing import Packed, pack
from antiphon.core.protocol import Protocol
from antiphon.core.time import Nanoseconds
from antiphon.protocols.fifo import HistoryRole

READ: Final = "log/read"


class MemoryLog:
    """What one site has delivered, without the oldest part if there is too much; it outlives its member."""

    def __init__(self, most_messages: int) -> None:
        self._most_messages = most_messages
        self._records: deque[Past] = deque()
        self._begin = 0
        """The position of the oldest record that is left."""
        self._messages = 0
        self._ends: dict[tuple[Site, int], int] = {}

    def append(self, effect: Deliver) -> None:
        """Log a delivery, unless an earlier incarnation of this member has."""
        batch = pack(effect.bodies)
        stream = (effect.sender, effect.incarnation)
        if effect.number < self._ends.get(stream, 0):
            return
        self._ends[stream] = effect.number + len(batch)
        self._records.append(Past(effect.sender, effect.incarnation, effect.number, bytes(batch.wire())))
        self._messages += len(batch)
        while self._messages > self._most_messages and len(self._records) > 1:
            self._messages -= len(Packed(self._records.popleft().bodies))
            self._begin += 1

    def recall(self, effect: Recall) -> Recalled:
        have = {site: (incarnation, number) for site, incarnation, number in effect.have}
        found: list[Past] = []
        place, size = max(effect.position - self._begin, 0), 0
        while effect.most_bytes and place < len(self._records):
            record = self._records[place]
            if have.get(record.sender, (-1, -1)) <= (record.incarnation, record.number):
                size += len(record.bodies)
                if found and size > effect.most_bytes:
                    break
                found.append(record)
            place += 1
        is_end = place >= len(self._records)
        return Recalled(effect.token, self._messages, tuple(found), self._begin + place, is_end)


class Archivist:
    """Wraps a member's protocol object: keeps its log, and remembers what it has delivered."""

    def __init__(
        self,
        protocol: Protocol,
        log: MemoryLog | None,
        delivered: dict[Site, int],
        read_ns: Nanoseconds = 0,
    ) -> None:
        """`log` and `delivered` are kept by the caller, which builds the next incarnation with them."""
        self._protocol = protocol
        self._log = log
        self._delivered = delivered
        self._read_ns = read_ns
        self._reading: deque[Recall] = deque()
        self._is_timed = False
        self.outcomes: list[CaughtUp] = []

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        if type(event) is TimerFired and event.name == READ:
            assert self._log is not None, "only a member that keeps a log reads it"
            event, self._is_timed = self._log.recall(self._reading.popleft()), False
        elif type(event) is Start:
            event = msgspec.structs.replace(event, delivered=dict(self._delivered))
        elif type(event) is Departed:
            self._reading.clear()
            self._is_timed = False
        return self._carry_out(now, event)

    def _carry_out(self, now: Nanoseconds, event: Input) -> list[Effect]:
        """The effects that are left for the world, after the log and the application have had theirs."""
        left: list[Effect] = []
        for effect in self._protocol.handle(now, event):
            match effect:
                case Recall():
                    self._reading.append(effect)
                case AwaitRoom():
                    left += self._carry_out(now, HasRoom())
                case CaughtUp():
                    self.outcomes.append(effect)
                case Deliver():
                    self._note(effect)
                    left.append(effect)
                case _:
                    left.append(effect)
        if self._reading and not self._is_timed:
            self._is_timed = True
            left.append(SetTimer(READ, self._read_ns))
        return left

    def _note(self, effect: Deliver) -> None:
        end = effect.number + len(effect.bodies)
        self._delivered[effect.sender] = max(end, self._delivered.get(effect.sender, 0))
        if self._log is not None:
            self._log.append(effect)


class Archive:
    """The logs of a whole group, in which the first few members are late-join handlers."""

    def __init__(self, handlers: int, most_messages: int, read_ns: Nanoseconds = 0) -> None:
        self._handlers = handlers
        self._most_messages = most_messages
        self._read_ns = read_ns
        self._logs: dict[Site, MemoryLog] = {}
        self._delivered: dict[Site, dict[Site, int]] = {}

    def role(self, site: Site, members: Sequence[Site]) -> HistoryRole:
        """A member's role: if there are handlers, every member that starts later catches up."""
        return HistoryRole(site in members[: self._handlers], self._handlers > 0)

    def keep(self, site: Site, role: HistoryRole, protocol: Protocol) -> Protocol:
        """The protocol with its log around it, which is that of its earlier incarnations."""
        if role == HistoryRole():
            return protocol
        log = self._logs.setdefault(site, MemoryLog(self._most_messages)) if role.keeps else None
        return Archivist(protocol, log, self._delivered.setdefault(site, {}), self._read_ns)
