"""The search for an order of calls: Wing & Gong's, with the memo of Lowe and of Horn & Kroening.

Calls take effect one after the other, each between its start and its end, and each with the answer that it
got. The search extends an order call by call, and gives up a branch that reaches a configuration seen before:
the same answered calls, in the same state. A call that changes nothing, and fits, goes first: it could come
no better later. Calls without an answer may take effect at any time after their
start, or never. A configuration that has used more of these than another, and is the same otherwise, cannot
do more than that other, and is given up too.

G. Lowe, 'Testing for linearizability' (2017); A. Horn and D. Kroening, 'Faster linearizability checking via
P-compositionality' (2015).
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from antiphon.check.models import Model, State, is_passive
from antiphon.check.verdict import Verdict
from antiphon.core.calls import Call
from antiphon.core.values import canonical

BUDGET: Final = 200_000
"""Configurations that a search may visit before it answers `unknown`. Raising it takes time and memory."""


class Found(NamedTuple):
    """PASS with an order, FAIL without, or UNKNOWN if the budget ended first."""

    verdict: Verdict
    order: tuple[Call, ...] = ()
    visited: int = 0


class _Node(NamedTuple):
    """A configuration, and the call by which it was reached."""

    done: int
    used: int
    state: State
    call: Call | None = None
    parent: "_Node | None" = None


def search(calls: Sequence[Call], model: Model, budget: int = BUDGET) -> Found:
    """Whether these calls on one part of an object can have taken effect in one order."""
    return _Search(calls, model, budget).run()


def predecessors(calls: Sequence[Call], others: Sequence[Call]) -> list[int]:
    """For each call, the set of `others` that ended before it began, as bits."""
    ended: list[tuple[str, int, int]] = sorted(
        (other.clock or "", other.end, index) for index, other in enumerate(others) if other.end is not None
    )
    found = [0] * len(calls)
    clock, place, before = "", 0, 0
    for index in sorted(range(len(calls)), key=lambda i: (calls[i].clock or "", calls[i].start)):
        own = calls[index].clock or ""
        if own != clock:
            clock, before = own, 0
        while place < len(ended) and ended[place][:2] < (own, calls[index].start):
            before = before | 1 << ended[place][2] if ended[place][0] == own else before
            place += 1
        found[index] = before
    return found


class _Search:
    def __init__(self, calls: Sequence[Call], model: Model, budget: int) -> None:
        self._model = model
        self._budget = budget
        self._calls = sorted((call for call in calls if call.answered), key=lambda call: call.start)
        open_calls = [call for call in calls if not call.answered and call.operation not in model.reads]
        self._open = sorted(open_calls, key=lambda call: call.start)
        self._answers = [canonical(call.result) for call in self._calls]
        self._before = predecessors(self._calls, self._calls)
        self._before_open = predecessors(self._open, self._calls)
        self._passive = [is_passive(model, call) for call in self._calls]
        self._clocks = len({call.clock for call in self._calls})
        self._twins = self._equal_before()
        self._all = (1 << len(self._calls)) - 1
        self._seen: dict[tuple[int, int, State], list[int]] = {}

    def _equal_before(self) -> list[int]:
        """For each open call, the open calls of equal effect that began before it: those go first."""
        found, seen = [], dict[object, int]()
        for index, call in enumerate(self._open):
            client = call.client if self._model.by_client else None
            key = (call.clock, client, call.operation, canonical(call.arguments))
            found.append(seen.get(key, 0))
            seen[key] = found[-1] | 1 << index
        return found

    def run(self) -> Found:
        """Depth first, but configurations that use fewer open calls go first: those can do the most."""
        stacks = [[_Node(0, 0, self._model.initial)]]
        visited = 0
        while stacks:
            while stacks[0]:
                node = stacks[0].pop()
                if self._is_known(node):
                    continue
                visited += 1
                if node.done == self._all:
                    return Found(Verdict.PASS, _order(node), visited)
                if visited > self._budget:
                    return Found(Verdict.UNKNOWN, (), visited)
                following, is_forced = self._answered_next(node)
                stacks[0] += following
                if self._open and not is_forced:
                    if len(stacks) == 1:
                        stacks.append([])
                    stacks[1] += self._open_next(node)
            stacks.pop(0)
        return Found(Verdict.FAIL, (), visited)

    def _answered_next(self, node: _Node) -> tuple[list[_Node], bool]:
        """Every answered call that may take effect next; or a call that changes nothing, and True.

        The call that ends first comes last, on top.
        """
        found: list[_Node] = []
        for index in sorted(self._candidates(node.done), key=lambda i: -(self._calls[i].end or 0)):
            call = self._calls[index]
            for state, answer in self._model.outcomes(node.state, call):
                if canonical(answer) == self._answers[index]:
                    following = _Node(node.done | 1 << index, node.used, state, call, node)
                    if self._passive[index] and state == node.state:
                        return [following], True
                    found.append(following)
        return found, False

    def _open_next(self, node: _Node) -> Iterator[_Node]:
        for index, call in enumerate(self._open):
            if node.used >> index & 1 or self._before_open[index] & ~node.done:
                continue
            if self._twins[index] & ~node.used:
                continue
            for state, _ in self._model.outcomes(node.state, call):
                if state != node.state:
                    yield _Node(node.done, node.used | 1 << index, state, call, node)

    def _candidates(self, done: int) -> Iterator[int]:
        index = _lowest_zero(done)
        earliest: int | None = None
        while index < len(self._calls):
            call = self._calls[index]
            if self._clocks == 1 and earliest is not None and call.start > earliest:
                return
            if not done >> index & 1:
                if not self._before[index] & ~done:
                    yield index
                assert call.end is not None
                earliest = call.end if earliest is None else min(earliest, call.end)
            index += 1

    def _is_known(self, node: _Node) -> bool:
        low = _lowest_zero(node.done)
        key = (low, node.done >> low, node.state)
        known = self._seen.get(key)
        if known is None:
            self._seen[key] = [node.used]
            return False
        if any(used & node.used == used for used in known):
            return True
        known[:] = [used for used in known if used & node.used != node.used]
        known.append(node.used)
        return False


def _order(node: _Node) -> tuple[Call, ...]:
    found: list[Call] = []
    while node.call is not None and node.parent is not None:
        found.append(node.call)
        node = node.parent
    return tuple(reversed(found))


def _lowest_zero(mask: int) -> int:
    return (~mask & (mask + 1)).bit_length() - 1
