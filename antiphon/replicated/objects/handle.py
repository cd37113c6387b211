"""What the handles of all objects have in common: commands, reads, waits and the record of calls."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Generic, Protocol, TypeVar, cast

from antiphon.core.errors import OutputError, UsageError
from antiphon.core.values import Value
from antiphon.live.events import CutOff
from antiphon.replicated.errors import ResultLostError
from antiphon.replicated.objects.base import ObjectMachine
from antiphon.trace.call_log import CallLog

Machine = TypeVar("Machine", bound=ObjectMachine)
Result = TypeVar("Result")


class Replica(Protocol):
    """What a handle needs of `antiphon.replicate`."""

    @property
    def name(self) -> str: ...
    @property
    def call_log(self) -> CallLog | None:
        """Where calls are recorded, if a trace is kept."""
        ...

    @property
    def is_cut_off(self) -> bool: ...
    @property
    def has_quorum(self) -> bool:
        """Whether a majority decides; else every side of a partition goes on."""
        ...

    def events(self) -> AsyncIterator[Any]:
        """What happens, until this replica is over."""
        ...

    async def call(self, command: Any, /) -> Any: ...
    async def sync(self) -> None: ...
    def read(self, function: Callable[[Any], Result], /) -> Result: ...


class Handle(Generic[Machine]):
    """One object of a group, as a program uses it. Any number of handles may name the same object."""

    def __init__(self, replica: Replica, name: str, kind: str) -> None:
        if not name:
            raise UsageError("An object needs a name.")
        self._replica = replica
        self.name = name
        self.kind = kind
        machine = replica.read(self._local)  # a wrong kind, or a group without objects, is reported at once
        if not replica.has_quorum and not machine.merges:
            raise UsageError(
                f"A {kind} needs a quorum: two sides' states of it cannot be merged.",
                "Leave out quorum=None, or use a Map or a Set.",
            )

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"

    def _local(self, machine: Any) -> Machine:
        find = getattr(machine, "find", None)
        if find is None:
            raise UsageError(
                "This group holds no objects.", 'Its machine must be Objects(): replicate("shop", Objects()).'
            )
        return cast("Machine", find(self.name, self.kind))

    async def _ask(self, operation: str, *arguments: Value) -> Any:
        return await self._replica.call([self.name, self.kind, operation, *arguments])

    async def _ask_again(self, operation: str, *arguments: Value) -> Any:
        """Ask something that has the same answer when it is asked again, and do so if the answer was lost."""
        while True:
            try:
                return await self._ask(operation, *arguments)
            except ResultLostError:
                continue

    def _read(self, function: Callable[[Machine], Result]) -> Result:
        """Read this replica's copy, which may lack the last changes."""
        return self._replica.read(lambda machine: function(self._local(machine)))

    async def _read_latest(self, function: Callable[[Machine], Result]) -> Result:
        await self._replica.sync()
        return self._read(function)

    async def _recorded(
        self, operation: str, arguments: tuple[Value, ...], work: Coroutine[Any, Any, Result]
    ) -> Result:
        """Do a call, and record it if a trace is kept. Without an answer its effect is unknown."""
        log = self._replica.call_log
        if log is None or log.is_closed:
            return await work
        try:
            number = log.begin(self.name, self.kind, operation, arguments)
        except OutputError:
            work.close()  # a call that left no record must not take effect
            raise
        result = await work
        with suppress(OutputError):  # without its answer, the record says less, and nothing wrong
            log.end(number, cast("Value", result))
        return result

    @contextmanager
    def _listening(self, changed: Callable[[], None]) -> Iterator[None]:
        objects = self._replica.read(lambda machine: machine)
        with objects.listening(self.name, changed):
            yield

    async def _until(self, condition: Callable[[Machine], Result | None]) -> Result:
        """Wait until this replica's copy meets a condition; what the condition found.

        If the replica is over before, raise what its calls raise.
        """
        waiting = asyncio.ensure_future(self._met(condition))
        over = asyncio.ensure_future(self._over())
        try:
            await asyncio.wait((waiting, over), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                await self._replica.sync()
            return await waiting
        finally:
            waiting.cancel()
            over.cancel()

    async def _met(self, condition: Callable[[Machine], Result | None]) -> Result:
        changed = asyncio.Event()
        with self._listening(changed.set):
            while (found := self._read(condition)) is None:
                await changed.wait()
                changed.clear()
        return found

    async def _over(self) -> None:
        async for _ in self._replica.events():
            pass

    async def _cut_off(self) -> None:
        """Wait until this replica reaches no majority, or is over."""
        events = self._replica.events()
        if self._replica.is_cut_off:
            return
        async for event in events:
            if isinstance(event, CutOff):
                return

    async def _not_held(self, token: int, is_held: Callable[[Machine, int], bool]) -> None:
        """Wait until something is not held any more, or until this replica cannot know."""
        waiting = asyncio.ensure_future(self._met(lambda machine: None if is_held(machine, token) else True))
        severed = asyncio.ensure_future(self._cut_off())
        try:
            await asyncio.wait((waiting, severed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            severed.cancel()

    @asynccontextmanager
    async def _ticket(self) -> AsyncIterator[str]:
        """A name for one request. If the block fails or is cancelled, the request is withdrawn."""
        ticket = secrets.token_hex(8)
        try:
            yield ticket
        except BaseException:
            self._record_withdrawal(ticket)
            withdrawal = asyncio.ensure_future(self._ask("cancel", ticket))
            _WITHDRAWALS.add(withdrawal)
            withdrawal.add_done_callback(_withdrawn)
            raise

    def _record_withdrawal(self, ticket: str) -> None:
        log = self._replica.call_log
        if log is not None and not log.is_closed:
            with suppress(OutputError):
                log.begin(self.name, self.kind, "cancel", (ticket,))


_WITHDRAWALS: "set[asyncio.Future[Any]]" = set()


def _withdrawn(done: "asyncio.Future[Any]") -> None:
    """A withdrawal that fails is of no interest: a member that is gone holds nothing."""
    _WITHDRAWALS.discard(done)
    if not done.cancelled():
        done.exception()
