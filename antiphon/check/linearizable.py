"""Linearizability: all calls on an object take effect in one order, each between its start and its end.

Herlihy & Wing, 'Linearizability: a correctness condition for concurrent objects' (1990). Each part of each
object is searched for such an order (`linear_search`). A part without an order is a violation; its history is
shrunk to the calls that contradict one another (`linear_shrink`). A search that takes too long is `unknown`,
never a pass.

The models of the ready-made objects are in `models`. `MachineModel` makes an application's own machine its
specification.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Final

import msgspec

from antiphon.check.explain import NAMES_SHOWN, listed
from antiphon.check.linear_search import BUDGET, predecessors, search
from antiphon.check.linear_shrink import shrink
from antiphon.check.models import Model, UnknownOperationError, find_model
from antiphon.check.verdict import Verdict, Violation, Witness
from antiphon.core.calls import ERROR, Call
from antiphon.core.values import Value, canonical

CALLS_ORDERED: Final = 5
"""Contradicting calls whose possible orders are all told; more would be 720 orders or above."""
TEXT_SHOWN: Final = 40
"""Characters of a value that an explanation shows."""


class Contradiction(msgspec.Struct, frozen=True):
    """One part of an object whose calls have no order."""

    object: str
    part: str | None
    calls: tuple[Call, ...]
    """The fewest calls that contradict one another, in order of their starts."""
    others: tuple[Call, ...]
    """Calls that may have taken effect or not, and do not resolve it."""
    explanation: str

    def violation(self, run: str) -> Violation:
        """As a row of the audit: named by the call that was answered last."""
        last = max(self.calls, key=lambda call: call.end or 0)
        rows = tuple(Witness(call.client, call.number) for call in self.calls)
        return Violation(
            "linearizable", run, last.client, last.client, last.number, self.explanation, rows, len(rows)
        )


class Linearizability(msgspec.Struct, frozen=True):
    """The judgement on a history of calls."""

    verdict: Verdict
    contradictions: tuple[Contradiction, ...] = ()
    doubts: tuple[str, ...] = ()
    """Why parts of the history could not be judged, as clauses."""
    calls: int = 0
    parts: int = 0


def check_calls(
    calls: Iterable[Call], models: Mapping[str, Model] | None = None, *, budget: int = BUDGET
) -> Linearizability:
    """Judge a history of calls of one run.

    `models` gives the models of objects by name, where the calls do not name them. `budget` bounds the search
    of each part.
    """
    history = list(calls)
    contradictions: list[Contradiction] = []
    doubts: list[str] = []
    parts = 0
    for name, own in _grouped(history).items():
        model = (models or {}).get(name) or find_model(own[0].model)
        if model is None:
            doubts.append(f"the object {name} has no model")
            continue
        for part, some in _parted(own, model).items():
            parts += 1
            try:
                verdict = search(some, model, budget).verdict
            except UnknownOperationError as error:
                doubts.append(f"a call on {name} has the unknown operation or arguments of {error}")
                continue
            if verdict is Verdict.FAIL:
                contradictions.append(_contradiction(name, part, some, model))
            elif verdict is Verdict.UNKNOWN:
                where = name if part is None else f"{name}[{part}]"
                doubts.append(f"no order of the {len(some)} calls on {where} was found within the budget")
    verdict = Verdict.FAIL if contradictions else Verdict.UNKNOWN if doubts else Verdict.PASS
    return Linearizability(verdict, tuple(contradictions), tuple(doubts), len(history), parts)


def _grouped(calls: Sequence[Call]) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    for call in calls:
        found.setdefault(call.object, []).append(call)
    return found


def _parted(calls: Sequence[Call], model: Model) -> dict[str | None, list[Call]]:
    found: dict[str | None, list[Call]] = {}
    for call in calls:
        found.setdefault(model.part(call), []).append(call)
    return found


# Explanations


def _contradiction(name: str, part: str | None, calls: Sequence[Call], model: Model) -> Contradiction:
    essential, others = shrink(calls, model)
    essential.sort(key=lambda call: (call.start, call.client, call.number))
    story = _explanation(name, part, essential, len(others), model)
    return Contradiction(name, part, tuple(essential), tuple(others), story)


def _explanation(name: str, part: str | None, calls: Sequence[Call], others: int, model: Model) -> str:
    where = name if part is None else f"{name}[{part}]"
    befores = predecessors(calls, calls)
    arcs = [
        f"{call_text(calls[first])} ended before {call_text(call)} began"
        for second, call in enumerate(calls)
        for first in range(len(calls))
        if befores[second] >> first & 1 and not _between(befores, first, second)
    ]
    because = (
        f"Because {listed(arcs)}, they take effect in that order."
        if arcs
        else "Because they overlap, any order is possible."
    )
    if len(calls) == 1:
        because = f"Because {where} starts empty, {call_text(calls[0])} finds nothing there."
    but = _refutation(calls, befores, model)
    rest = ""
    if others == 1:
        rest = " Another call, whether it took effect or not, does not resolve it."
    elif others:
        rest = f" {others} further calls, whether they took effect or not, do not resolve it."
    return (
        f"Let each call on {where} take effect at one moment between its start and its end. {because} "
        f"But {but}: a contradiction.{rest}"
    )


def _between(befores: Sequence[int], first: int, second: int) -> bool:
    """Whether some call lies between two others, so that their order follows from its."""
    middle = befores[second]
    return any(middle >> index & 1 and befores[index] >> first & 1 for index in range(len(befores)))


def _refutation(calls: Sequence[Call], befores: Sequence[int], model: Model) -> str:
    """What is wrong with each order that the starts and ends allow."""
    if len(calls) > CALLS_ORDERED:
        return f"no order of these {len(calls)} calls gives the answers that they got"
    faults = dict.fromkeys(
        _fault([calls[index] for index in order], model)
        for order in permutations(range(len(calls)))
        if all(not befores[index] & _bits(order[place + 1 :]) for place, index in enumerate(order))
    )
    if len(faults) == 1:
        return next(iter(faults))
    shown = list(faults)[:NAMES_SHOWN]
    more = f"; and so in {len(faults) - len(shown)} more ways" if len(faults) > len(shown) else ""
    return "in no possible order do all get their answers: " + "; ".join(shown) + more


def _bits(indices: Iterable[int]) -> int:
    return sum(1 << index for index in indices)


def _fault(order: Sequence[Call], model: Model) -> str:
    """The first call of an order that would get another answer."""
    states = [model.initial]
    for place, call in enumerate(order):
        outcomes = [found for state in states for found in model.outcomes(state, call)]
        following = [state for state, answer in outcomes if canonical(answer) == canonical(call.result)]
        if not following:
            after = f"after {listed(map(call_text, order[:place]))} " if place else ""
            would = shown(outcomes[0][1]) if outcomes else "nothing, since it has to wait"
            asked = call_text(call, answered=False)
            return f"{after}{asked} answers {would}, and it answered {shown(call.result)}"
        states = following
    raise AssertionError("an order of contradicting calls explains them")


def call_text(call: Call, *, answered: bool = True) -> str:
    """`a's set('x', 1)`, with the call's number, and its answer if it got one that says something."""
    arguments = ", ".join(map(shown, call.arguments))
    answer = f" = {shown(call.result)}" if answered and call.answered and call.result is not None else ""
    return f"{call.client}'s {call.operation}({arguments}){answer} (call {call.number})"


def shown(value: Value) -> str:
    """A value as an explanation shows it."""
    if isinstance(value, dict) and list(value) == [ERROR]:
        return f"the error {value[ERROR]!r}"
    text = repr(value)
    return text if len(text) <= TEXT_SHOWN else f"{text[: TEXT_SHOWN - 1]}…"
