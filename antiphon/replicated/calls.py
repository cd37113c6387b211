"""Calls on their way: commands are collected into batches, and each caller gets its own result.

While batches are under way, further commands are collected: the more callers there are, the larger are the
batches, and the less does each command cost.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from antiphon.core.errors import UsageError
from antiphon.protocols.quorum import LARGEST_BODY_BYTES
from antiphon.protocols.quorum.applying import Raised
from antiphon.replicated.errors import CutOffError, ResultLostError

_encode: Final = msgspec.msgpack.Encoder().encode
HEAD_BYTES: Final = 3
"""Bytes of a batch beside its commands, at most."""
LARGEST_COMMAND_BYTES: Final = LARGEST_BODY_BYTES - HEAD_BYTES
BATCH_BYTES: Final = 60_000
"""Bytes of commands in one batch, unless a single command has more. Raising it costs latency."""
MOST_COMMANDS: Final = 4096
"""Commands in one batch."""
UNDER_WAY: Final = 2
"""Batches under way. Raising it costs smaller batches."""

Waiter = tuple[bytes | None, "asyncio.Future[Any]"]
"""A command and where its result goes; no command for a wait until everything before is applied."""


def encode_command(command: Any) -> bytes:
    """A command as it travels. Anything but plain data is the caller's mistake."""
    try:
        data = _encode(command)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(
            f"This command is no plain data: {error}",
            hint="Use None, numbers, strings, bytes, lists and dictionaries of these.",
        ) from error
    if len(data) > LARGEST_COMMAND_BYTES:
        raise UsageError(
            f"A command of {len(data):,} bytes is too large.",
            hint=f"At most {LARGEST_COMMAND_BYTES:,} bytes fit; cut it into several.",
        )
    return data


def batch_body(commands: list[bytes]) -> bytes:
    """Encoded commands as an encoded list of commands."""
    count = len(commands)
    head = bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
    return b"".join((head, *commands))


class Calls:
    """The calls of one member, from the application to the protocol and back."""

    def __init__(self, hand_in: Callable[[int, bytes], None]) -> None:
        """`hand_in` gets a ticket and a batch."""
        self._hand_in: Final = hand_in
        self._queue: deque[Waiter] = deque()
        self._under_way: dict[int, list[Waiter]] = {}
        self._ticket = 0

    @property
    def waiting(self) -> int:
        """Calls without a result."""
        return len(self._queue) + sum(map(len, self._under_way.values()))

    def add(self, data: bytes | None, future: "asyncio.Future[Any]") -> None:
        self._queue.append((data, future))

    def pump(self) -> None:
        """Hand in what may be handed in now."""
        while self._queue and len(self._under_way) < UNDER_WAY:
            batch = self._take()
            self._ticket += 1
            self._under_way[self._ticket] = batch
            self._hand_in(self._ticket, batch_body([data for data, _ in batch if data is not None]))

    def _take(self) -> list[Waiter]:
        queue, size = self._queue, 0
        batch: list[Waiter] = []
        while queue and len(batch) < MOST_COMMANDS:
            data = queue[0][0]
            size += 0 if data is None else len(data)
            if batch and size > BATCH_BYTES:
                break
            batch.append(queue.popleft())
        return batch

    def applied(self, ticket: int, results: list[Any]) -> None:
        """A batch has taken effect: answer its callers."""
        batch = self._under_way.pop(ticket, None)
        if batch is None:
            return
        answers = iter(results)
        for data, future in batch:
            result = None if data is None else next(answers)
            if future.done():
                continue
            if type(result) is Raised:
                future.set_exception(result.error)
            else:
                future.set_result(result)

    def result_lost(self, ticket: int) -> None:
        """A batch has taken effect elsewhere, and its results are unknown here."""
        for data, future in self._under_way.pop(ticket, ()):
            if future.done():
                continue
            if data is None:
                future.set_result(None)
            else:
                sentence = "The command was applied, but its result was lost with a state transfer."
                future.set_exception(ResultLostError(sentence))

    def cut_off(self, reason: str, hint: str) -> None:
        """Nothing can be agreed upon: every caller learns whether its command may still take effect."""
        doubt = f"{reason} The command may have been applied, or not."
        for batch in self._under_way.values():
            for _, future in batch:
                _fail(future, CutOffError(doubt, hint, uncertain=True))
        self._under_way.clear()
        self.refuse(lambda: CutOffError(f"{reason} The command was not applied.", hint))

    def doubt(self, reason: str) -> None:
        """The callers of batches under way learn that these may have been applied; the rest waits on."""
        doubt = f"{reason} The command may have been applied, or not."
        for batch in self._under_way.values():
            for _, future in batch:
                _fail(future, CutOffError(doubt, uncertain=True))
        self._under_way.clear()

    def refuse(self, error: Callable[[], BaseException]) -> None:
        """Fail the calls that were not handed in."""
        while self._queue:
            _fail(self._queue.popleft()[1], error())

    def close(self, error: Callable[[], BaseException]) -> None:
        """The membership is over."""
        for batch in self._under_way.values():
            for _, future in batch:
                _fail(future, error())
        self._under_way.clear()
        self.refuse(error)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
