"""One member that shares a resource: it requests units, collects them, operates, and gives them away."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from antiphon.applications.resource_sharing.messages import (
    LONGEST_NAME,
    Allocation,
    Message,
    Release,
    Request,
    decode,
    encode,
)
from antiphon.applications.resource_sharing.replica import UNKNOWN, Replica, RequestId, Waiting
from antiphon.core.effects import CancelTimer, Deliver, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Departed, Returned, TimerFired
from antiphon.core.time import SECOND_NS, Nanoseconds

TIME_OUT: Final = "time-out"
LOOK: Final = "look"
LOOKS_PER_SLACK: Final = 2
"""Checks for units of vanished members in that time. Raising it costs work and finds them sooner."""
MOST_UNITS: Final = 1 << 16


@dataclass(frozen=True, kw_only=True)
class SharingConfiguration:
    """The options; each says what raising it costs."""

    timeout_ns: Nanoseconds = 3 * SECOND_NS
    """Time that a request may wait. Raising it lets units lie idle longer when several members collect."""
    operation_ns: Nanoseconds = 10 * SECOND_NS
    """Time that an operation may take. Raising it makes units of vanished members come back later."""
    slack_ns: Nanoseconds = 2 * SECOND_NS
    """How much later than another a member may deliver or answer a message. Raising it costs the same as
    `operation_ns`."""

    def __post_init__(self) -> None:
        if min(self.timeout_ns, self.operation_ns, self.slack_ns) <= 0:
            raise UsageError("A time-out, an operation and the slack take time.")


class Want(msgspec.Struct, frozen=True, gc=False):
    """The user of this member wants to operate on a number of units."""

    need: int


class Done(msgspec.Struct, frozen=True, gc=False):
    """The user's operation is over."""


class Granted(msgspec.Struct, frozen=True, gc=False):
    """The user may operate on these units until it says `Done`."""

    units: tuple[int, ...]
    waited_ns: Nanoseconds
    """Since `Want`, over all time-outs."""


class TimedOut(msgspec.Struct, frozen=True, gc=False):
    """A request has waited too long: what it collected was given back, and another one is under way."""

    collected: int


class Revoked(msgspec.Struct, frozen=True, gc=False):
    """The user must stop: another member took some of its units, having heard nothing for too long."""

    units: tuple[int, ...]


Event: TypeAlias = Want | Done | Deliver | TimerFired | Departed | Returned
"""A group's deliveries are an application's inputs, as `Admit` is its output and the group's input."""
Outcome: TypeAlias = Admit | SetTimer | CancelTimer | Granted | TimedOut | Revoked


class Sharer:
    """A pure state machine, driven like a protocol: inputs with their time go in, outputs come out."""

    def __init__(
        self,
        site: Site,
        keepers: Sequence[Site],
        configuration: SharingConfiguration,
        *,
        first_number: int = 0,
    ) -> None:
        """`keepers` names the member that controls each unit at the beginning, equally for all members.

        A member that restarts must begin with a greater request number than it has used.
        """
        if not 0 < len(keepers) <= MOST_UNITS:
            raise UsageError(f"A resource has 1 to {MOST_UNITS} units.")
        if not all(0 < len(name) <= LONGEST_NAME for name in (site, *keepers)):
            raise UsageError(f"A name has 1 to {LONGEST_NAME} characters.")
        self.replica = Replica(keepers)
        self.ignored = 0
        """Messages that made no sense."""
        self.claims = 0
        """Units that were taken from vanished members."""
        self._site = site
        self._configuration = configuration
        self._number = first_number - 1
        self._ended = first_number - 1
        """The last own request that is over, whether or not its release has been delivered."""
        self._need = 0
        """The units that the user wants; 0 when none."""
        self._since_ns: Nanoseconds = 0
        self._operating: tuple[int, ...] = ()
        self._promised: dict[int, tuple[int, RequestId]] = {}
        """Units given away by allocations that are not delivered yet: the transfer and the request."""
        self._present = True
        self._awaited: int | None = None
        """The release that this member waits for after its return: its new replica begins there."""
        self._outcomes: list[Outcome] = []

    def held(self) -> frozenset[int]:
        """The units that this member controls now."""
        return frozenset(
            index
            for index, unit in enumerate(self.replica.units)
            if unit.keeper == self._site and index not in self._promised
        )

    def handle(self, now: Nanoseconds, event: Event) -> list[Outcome]:
        match event:
            case Deliver():
                if self._present:
                    self._deliver(now, event)
            case TimerFired(name=name):
                if self._present:
                    self._fire(now, name)
            case Want(need=need):
                self._want(now, need)
            case Done():
                self._done(now)
            case Departed():
                self._forget(now)
                self._present = False
                self._outcomes += [CancelTimer(TIME_OUT), CancelTimer(LOOK)]
            case Returned():
                self._forget(now)
                self._present = True
                # A new number, also for a member that has not requested anything yet.
                self._awaited = self._ended = self._number = self._number + 1
                self._send([Release(self._awaited, forgotten=True)])
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    # The user

    def _want(self, now: Nanoseconds, need: int) -> None:
        if not 1 <= need <= len(self.replica.units):
            raise UsageError(f"There are {len(self.replica.units)} units, so no member can have {need}.")
        if self._need or not self._present:
            raise UsageError("A member wants one thing at a time, and nothing while it is absent.")
        self._need = need
        self._since_ns = now
        self._send([self._next_request()])

    def _done(self, now: Nanoseconds) -> None:
        if not self._operating:
            raise UsageError("No operation is under way.", hint="Wait for Granted before Done.")
        self._operating = ()
        self._need = 0
        self._ended = self._number
        self._send([Release(self._number), *self._allocations(now)])

    def _forget(self, now: Nanoseconds) -> None:
        """What happened during the absence is unknown: hold nothing, want nothing."""
        self.replica.forget(now)
        self._ended = self._number
        self._need = 0
        self._operating = ()
        self._promised.clear()

    # The group

    def _deliver(self, now: Nanoseconds, event: Deliver) -> None:
        replica = self.replica
        for body in event.bodies:
            message = decode(body, len(replica.units))
            if message is None:
                self.ignored += 1
                continue
            if self._awaited is None or self._is_awaited(event.sender, message):
                replica.apply(now, event.sender, message)
        self._keep_promises()
        self._check_operation(now)
        self._send(self._allocations(now))
        waiting = replica.queue.get(self._site)
        if self._need and not self._operating and waiting is not None:
            self._begin(now, waiting)
            if any(unit.keeper is None for unit in replica.units):
                self._claim(now)

    def _is_awaited(self, sender: Site, message: Message) -> bool:
        """Whether all members know from this delivery on that this member has nothing."""
        is_own = sender == self._site and isinstance(message, Release) and message.forgotten
        if not is_own or message.number != self._awaited:
            return False
        self._awaited = None
        return True

    def _keep_promises(self) -> None:
        """Forget own allocations that were delivered, or overtaken by another one of the same unit."""
        units = self.replica.units
        over = [index for index, (count, _) in self._promised.items() if count <= units[index].transfer]
        for index in over:
            del self._promised[index]

    def _check_operation(self, now: Nanoseconds) -> None:
        units = self.replica.units
        lost = tuple(index for index in self._operating if units[index].keeper != self._site)
        if lost:
            self._outcomes.append(Revoked(lost))
            self._done(now)

    def _begin(self, now: Nanoseconds, waiting: Waiting) -> None:
        """Operate if the current request has all the units that it needs."""
        if waiting.is_full and waiting.id == (self._site, self._number) and self._number > self._ended:
            self._operating = tuple(self.replica.collected(waiting.id))
            granted = Granted(self._operating, now - self._since_ns)
            self._outcomes += [CancelTimer(TIME_OUT), CancelTimer(LOOK), granted]

    # Giving

    def _allocations(self, now: Nanoseconds) -> list[Allocation]:
        """The units that this member has to give now, by the queue of its replica.

        Idle units by number are matched with requests by arrival; only this member's units are given.
        """
        if not any(map(self._is_idle_here, range(len(self.replica.units)))):
            return []
        idle = self._idle()
        given = []
        for waiting in self._line(now):
            matched = list(islice(idle, self._lacking(waiting)))
            given += self._give(waiting, [index for index in matched if self._is_idle_here(index)])
        return given

    def _give(self, waiting: Waiting, indices: list[int], *, claimed: bool = False) -> list[Allocation]:
        if not indices:
            return []
        transfers = tuple((index, self.replica.units[index].transfer + 1) for index in indices)
        for index, count in transfers:
            self._promised[index] = (count, waiting.id)
        return [Allocation(*waiting.id, transfers, claimed)]

    def _lacking(self, waiting: Waiting) -> int:
        """The units that a request still needs beyond own allocations under way."""
        promised = sum(request == waiting.id for _, request in self._promised.values())
        return max(0, waiting.need - len(self.replica.collected(waiting.id)) - promised)

    def _line(self, now: Nanoseconds) -> Iterator[Waiting]:
        """Requests that lack units, first in first out.

        A request that has waited too long is left out: its member has vanished, or it would have given up.
        """
        oldest_ns = now - self._configuration.timeout_ns - self._configuration.slack_ns
        for waiting in self.replica.queue.values():
            is_own_and_over = waiting.id[0] == self._site and waiting.id[1] <= self._ended
            if not (waiting.is_full or is_own_and_over or waiting.since_ns < oldest_ns):
                yield waiting

    def _idle(self) -> Iterator[int]:
        """The units that no member uses, as far as is known here."""
        for index, unit in enumerate(self.replica.units):
            if unit.keeper == self._site:
                if self._is_idle_here(index):
                    yield index
            elif unit.keeper is not None and unit.request is None:
                yield index

    def _is_idle_here(self, index: int) -> bool:
        """Whether this member controls a unit, has not given it away, and no longer needs it."""
        unit = self.replica.units[index]
        if unit.keeper != self._site or index in self._promised:
            return False
        return unit.request is None or unit.request[1] <= self._ended

    # Time

    def _fire(self, now: Nanoseconds, name: str) -> None:
        if not self._need or self._operating:
            return
        if name == TIME_OUT:
            self._start_anew(now)
        elif name == LOOK:
            self._outcomes.append(self._next_look())
            self._claim(now)

    def _start_anew(self, now: Nanoseconds) -> None:
        """Give back what was collected, and request again at the end of the queue."""
        over = self._ended = self._number
        self._outcomes.append(TimedOut(len(self.replica.collected((self._site, over)))))
        if self._awaited is not None:
            self._awaited = over  # the release before this one may be lost
        release = Release(over, forgotten=self._awaited is not None)
        self._send([release, *self._allocations(now), self._next_request()])

    def _next_request(self) -> Request:
        self._number += 1
        self._outcomes += [SetTimer(TIME_OUT, self._configuration.timeout_ns), self._next_look()]
        return Request(self._number, self._need)

    def _next_look(self) -> SetTimer:
        return SetTimer(LOOK, max(1, self._configuration.slack_ns // LOOKS_PER_SLACK))

    def _claim(self, now: Nanoseconds) -> None:
        """If this member is first in line, take the units of vanished members."""
        left = [index for index in range(len(self.replica.units)) if self._is_left(now, index)]
        first = next(self._line(now), None) if left else None
        if first is not None and first.id == (self._site, self._number):
            claimed = left[: self._lacking(first)]
            self.claims += len(claimed)
            self._send(self._give(first, claimed, claimed=True))

    def _is_left(self, now: Nanoseconds, index: int) -> bool:
        """Whether no member controls a unit, or its controller should have sent something by now."""
        unit = self.replica.units[index]
        if unit.keeper == self._site or unit.transfer == UNKNOWN or index in self._promised:
            return False
        if unit.keeper is None:
            return True
        since_ns = unit.since_ns + self._configuration.slack_ns
        if unit.request is None:
            # Idle units are to be given to waiting requests.
            return now > max(since_ns, (self.replica.hungry_since_ns or 0) + self._configuration.slack_ns)
        return now > since_ns + self._use_ns(unit.request)

    def _use_ns(self, request: RequestId) -> Nanoseconds:
        """Time for which a present member may keep a unit for a request without sending anything."""
        knobs, waiting = self._configuration, self.replica.queue.get(request[0])
        if waiting is not None and waiting.id == request:
            return knobs.operation_ns if waiting.is_full else knobs.timeout_ns
        if self.replica.is_over(request):
            return knobs.operation_ns
        # It came before this member returned: whether it still collects is unknown.
        return knobs.timeout_ns + knobs.operation_ns

    def _send(self, messages: Sequence[Message]) -> None:
        if messages:
            self._outcomes.append(Admit([encode(message) for message in messages]))
