"""From a history that no order explains to the few calls that show it.

Only what a linearizable history would survive is done, so that what is left still proves the violation:

- the history is cut at a moment: calls that began later are dropped, and calls that ended later become open;
- a call that only reads, or was refused, is dropped;
- a call that changes the object becomes open: it may have taken effect at any time after its start, or not.

A call that changes the object is never dropped: without it, what others read would seem to come from nowhere.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from antiphon.check.linear_search import search
from antiphon.check.models import Model, is_passive
from antiphon.check.verdict import Verdict
from antiphon.core.calls import Call

SHRINK_BUDGET: Final = 20_000
"""Configurations that each attempt may visit. An attempt that needs more is not made. Raising it shrinks
further, and takes longer."""
SHRINK_ATTEMPTS: Final = 400
"""Searches of a shrinking in all."""


def shrink(calls: Sequence[Call], model: Model) -> tuple[list[Call], list[Call]]:
    """The calls whose answers contradict one another, and the open calls that do not resolve it."""
    attempts = SHRINK_ATTEMPTS

    def fails(history: Sequence[Call]) -> bool:
        nonlocal attempts
        attempts -= 1
        return attempts >= 0 and search(history, model, SHRINK_BUDGET).verdict is Verdict.FAIL

    # With several clocks there is no moment at which a history could be cut.
    several = len({call.clock for call in calls}) > 1
    history = _relaxed(list(calls) if several else _shortest_prefix(calls, fails), model, fails)
    answered = [call for call in history if call.answered]
    useful = [call for call in history if not call.answered and not is_passive(model, call)]
    return answered, useful


def _shortest_prefix(calls: Sequence[Call], fails: Callable[[Sequence[Call]], bool]) -> list[Call]:
    moments = sorted({call.end for call in calls if call.end is not None})
    low, high = 0, len(moments) - 1
    while low < high:
        middle = (low + high) // 2
        if fails(until(calls, moments[middle])):
            high = middle
        else:
            low = middle + 1
    cut = until(calls, moments[high])
    return cut if fails(cut) else list(calls)


def until(calls: Sequence[Call], moment: int) -> list[Call]:
    """The history as it stood at a moment."""
    return [
        call if call.end is not None and call.end <= moment else _opened(call)
        for call in calls
        if call.start <= moment
    ]


def _opened(call: Call) -> Call:
    return msgspec.structs.replace(call, end=None, result=None)


def _relaxed(history: list[Call], model: Model, fails: Callable[[Sequence[Call]], bool]) -> list[Call]:
    """Relax ever smaller pieces of the history, until no single call can be relaxed."""
    size = max(len(history) // 2, 1)
    while True:
        shrunk = False
        place = 0
        while place < len(history):
            piece = history[place : place + size]
            if any(call.answered for call in piece):
                relaxed = [_opened(call) for call in piece if not is_passive(model, call)]
                attempt = [*history[:place], *relaxed, *history[place + size :]]
                if any(call.answered for call in attempt) and fails(attempt):
                    history, shrunk = attempt, True
                    place += len(relaxed)
                    continue
            place += size
        if size == 1 and not shrunk:
            return history
        size = max(size // 2, 1) if not shrunk or size > 1 else 1
