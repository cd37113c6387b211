"""How far the messages of a causal group are accepted here, and the application's waits for that."""

import asyncio
from collections import OrderedDict
from typing import Final, NamedTuple

from antiphon.core.effects import Reached
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.live.errors import MissedError
from antiphon.protocols.sco.levels import Level as Level

BATCHES_KEPT: Final = 4096
"""Batches whose levels are kept. Raising it costs memory: 200 bytes each."""
FORGOTTEN: Final = "The level of the message is not known: it is too old, or came before this member did."
NONE: Final = Level(0)


class Wait(NamedTuple):
    """A wait until all messages of a span have reached a level."""

    sender: Site
    first: int
    last: int
    level: Level
    future: "asyncio.Future[None]"


class LevelWaits:
    """The levels of messages in one presence spell of this member, if they are watched."""

    def __init__(self, *, watched: bool) -> None:
        self._is_watched = watched
        self._batches: OrderedDict[tuple[Site, int], tuple[int, Level]] = OrderedDict()
        """By sender and first number: the number after the last, and the levels reached."""
        self._waiting: list[Wait] = []
        self._closed: BaseException | None = None

    def note(self, effect: Reached) -> None:
        """Messages have reached a level."""
        key = (effect.sender, effect.number)
        _, before = self._batches.get(key, (0, NONE))
        self._batches[key] = (effect.number + effect.count, before | Level.of(effect.level))
        if len(self._batches) > BATCHES_KEPT:
            self._batches.popitem(last=False)
        still = []
        for wait in self._waiting:
            if wait.sender == effect.sender and wait.level in self._find(wait.sender, wait.first, wait.last):
                if not wait.future.done():
                    wait.future.set_result(None)
            elif not wait.future.done():
                still.append(wait)
        self._waiting = still

    def level(self, sender: Site, first: int, last: int) -> Level:
        """The levels that all of these messages have reached."""
        self._require_watched()
        return self._find(sender, first, last)

    def _find(self, sender: Site, first: int, last: int) -> Level:
        found: Level | None = None
        covered = 0
        for (site, number), (end, level) in reversed(self._batches.items()):
            if site == sender and number <= last and first < end:
                found = level if found is None else found & level
                covered += min(end, last + 1) - max(number, first)
        return found if found is not None and covered == last + 1 - first else NONE

    async def wait(self, sender: Site, first: int, last: int, level: Level) -> None:
        """Wait until all of these messages have reached a level."""
        self._require_watched()
        if level in self._find(sender, first, last):
            return
        if self._closed is not None:
            raise self._closed
        if self._is_forgotten(sender, last):
            raise MissedError(FORGOTTEN)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(Wait(sender, first, last, level, future))
        await future

    def _is_forgotten(self, sender: Site, last: int) -> bool:
        """Whether batches of a sender were dropped, and this message may have been among them."""
        known = [number for site, number in self._batches if site == sender]
        return len(self._batches) >= BATCHES_KEPT and (not known or last < min(known))

    def _require_watched(self) -> None:
        if not self._is_watched:
            raise UsageError(
                "Levels of acceptance are not watched here.",
                hint="Join with order=antiphon.Causal(levels=True).",
            )

    def close(self, error: BaseException) -> None:
        """Fail every wait: later levels will not be known."""
        self._closed = error
        for wait in self._waiting:
            if not wait.future.done():
                wait.future.set_exception(error)
                wait.future.exception()  # the waiting task may be gone; asyncio must not log that
        self._waiting.clear()
