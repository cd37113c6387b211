"""What the ready-made objects promise, as sequential specifications for the linearizability checker.

A model says what an object would answer if calls came one after the other. `outcomes(state, call)` lists the
ways in which a call can take effect in a state: the state that follows, and the answer. Most calls have one
outcome. A call that would have to wait, such as an acquisition of a lock that is held, has none. States are
hashable and compare by value.

Where an object's parts are independent, `part` names the part that a call is about, and each part is judged
by itself: linearizability is local (Herlihy & Wing, 1990), so the whole is linearizable exactly if each part
is.

By the operation `departed` a history says that a client is gone; its argument is the client. By `cancel` a
client withdraws a request that it gave up; its argument names the request. Without an end, both may take
effect at any time after their start.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from antiphon.core.calls import ERROR, Call
from antiphon.core.values import NOTHING, Value, canonical, decoded

State = Any
Outcome = tuple[State, Value]


class Model(Protocol):
    """A sequential specification."""

    initial: State
    reads: frozenset[str]
    """Operations that never change the state."""
    refusals: frozenset[str]
    """Operations that change nothing if they answer False or None."""
    by_client: bool
    """Whether it matters which client calls."""

    def part(self, call: Call) -> str | None:
        """The independent part of the object that a call is about; None if there are no parts."""
        ...

    def outcomes(self, state: State, call: Call) -> Sequence[Outcome]:
        """The ways in which a call can take effect here."""
        ...


def is_passive(model: Model, call: Call) -> bool:
    """Whether a call, with the answer that it got, changes nothing wherever it takes effect."""
    if call.operation in model.reads:
        return True
    return call.answered and call.operation in model.refusals and call.result in (False, None)


class UnknownOperationError(Exception):
    """A call that the model of its object does not know."""


def _key(call: Call) -> str | None:
    return repr(call.arguments[0]) if call.arguments else None


def _whole(_: Call) -> None:
    return None


class MapModel:
    """get(key), set(key, value[, expiry]), compare_and_set(key, old, new[, expiry]), delete(key): the state
    is the value of one key, and whether it may expire.

    None means that there is no value. A key with an expiry may lose its value at any moment.
    """

    initial: State = (NOTHING, False)
    reads = frozenset({"get"})
    refusals = frozenset({"compare_and_set", "delete"})
    by_client = False
    part = staticmethod(_key)

    def outcomes(self, state: State, call: Call) -> Sequence[Outcome]:
        found = self._outcome(state, call)
        return [found, self._outcome(self.initial, call)] if state[1] else [found]

    def _outcome(self, state: State, call: Call) -> Outcome:
        match call.operation, call.arguments:
            case "get", (_,):
                return state, decoded(state[0])
            case "set", (_, value, *expiry):
                return (canonical(value), bool(expiry and expiry[0] is not None)), None
            case "compare_and_set", (_, old, new, *expiry):
                if canonical(old) != state[0]:
                    return state, False
                return (canonical(new), bool(expiry and expiry[0] is not None)), True
            case "delete", (_,):
                return self.initial, state[0] != NOTHING
        raise UnknownOperationError(call.operation)


class RegisterModel:
    """read(), write(value), compare_and_set(old, new): the state is the value."""

    initial: State = NOTHING
    reads = frozenset({"read"})
    refusals = frozenset({"compare_and_set"})
    by_client = False

    part = staticmethod(_whole)

    def outcomes(self, state: State, call: Call) -> Sequence[Outcome]:
        match call.operation, call.arguments:
            case "read", ():
                return [(state, decoded(state))]
            case "write", (value,):
                return [(canonical(value), None)]
            case "compare_and_set", (old, new):
                return [(canonical(new), True) if canonical(old) == state else (state, False)]
        raise UnknownOperationError(call.operation)


class CounterModel:
    """add(amount), which answers the sum, and get()."""

    initial: State = 0
    reads = frozenset({"get"})
    refusals: frozenset[str] = frozenset()
    by_client = False

    part = staticmethod(_whole)

    def outcomes(self, state: State, call: Call) -> Sequence[Outcome]:
        match call.operation, call.arguments:
            case "get", ():
                return [(state, state)]
            case "add", (amount,):
                return [(state + amount, state + amount)]
        raise UnknownOperationError(call.operation)


class SetModel:
    """add(item), remove(item), contains(item): the state is whether one item is in."""

    initial: State = False
    reads = frozenset({"contains"})
    refusals = frozenset({"add", "remove"})
    by_client = False
    part = staticmethod(_key)

    def outcomes(self, state: State, call: Call) -> Sequence[Outcome]:
        match call.operation, call.arguments:
            case "contains", (_,):
                return [(state, state)]
            case "add", (_,):
                return [(True, not state)]
            case "remove", (_,):
                return [(False, state)]
        raise UnknownOperationError(call.operation)


class LockModel:
    """acquire(), try_acquire(), release(token): the holder, its token, and the greatest token so far.

    A token is greater than all before it. An acquisition of a held lock waits, so it has no outcome;
    try_acquire answers None then, and release answers whether the token was the holder's. The lock of a
    client that is gone is free.
    """

    initial: State = (None, 0, 0)
    reads = frozenset({"holder"})
    refusals = frozenset({"try_acquire", "release"})
    by_client = True

    part = staticmethod(_whole)

    def outcomes(self, state: State, call: Call) -> Sequence[Outcome]:
        holder, held, greatest = state
        match call.operation, call.arguments:
            case "holder", ():
                return [(state, holder)]
            case "acquire" | "try_acquire", ():
                if holder is None:
                    token = _token(call, greatest)
                    return [((call.client, token, token), token)]
                return [] if call.operation == "acquire" else [(state, None)]
            case "release", (token,):
                mine = holder == call.client and held == token
                return [((None, 0, greatest), True)] if mine else [(state, False)]
            case "cancel", (_,):
                return [((None, 0, greatest) if holder == call.client else state, None)]
            case "departed", (client,):
                return [((None, 0, greatest) if holder == client else state, None)]
        raise UnknownOperationError(call.operation)


class LeaderModel(LockModel):
    """campaign(), which waits and answers the term, resign(term), and current(), which answers None or
    [leader, term]: a lock whose tokens are terms."""

    reads = frozenset({"current"})
    refusals = frozenset({"resign"})
    _names: Final = {"campaign": "acquire", "resign": "release"}

    def outcomes(self, state: State, call: Call) -> Sequence[Outcome]:
        leader, term, _ = state
        if call.operation == "current":
            return [(state, None if leader is None else [leader, term])]
        name = self._names.get(call.operation, call.operation)
        return super().outcomes(state, msgspec.structs.replace(call, operation=name))


class SemaphoreModel:
    """As a lock, with several permits: the state is the permits, the holders with their tokens, and the
    greatest token."""

    reads: frozenset[str] = frozenset()
    refusals = frozenset({"try_acquire", "release"})
    by_client = True

    def __init__(self, permits: int) -> None:
        self.permits = permits
        self.initial: State = (frozenset(), 0)

    part = staticmethod(_whole)

    def outcomes(self, state: State, call: Call) -> Sequence[Outcome]:
        held, greatest = state
        match call.operation, call.arguments:
            case "acquire" | "try_acquire", ():
                if len(held) < self.permits:
                    token = _token(call, greatest)
                    return [((held | {(call.client, token)}, token), token)]
                return [] if call.operation == "acquire" else [(state, None)]
            case "release", (token,):
                pair = (call.client, token)
                return [((held - {pair}, greatest), pair in held)]
            case "cancel", (_,):
                return [((held - {pair}, greatest), None) for pair in held if pair[0] == call.client]
            case "departed", (client,):
                return [((frozenset(pair for pair in held if pair[0] != client), greatest), None)]
        raise UnknownOperationError(call.operation)


def _token(call: Call, greatest: int) -> int:
    """The token that the call was given if it can be: any that is greater than all before."""
    given = call.result
    return given if call.answered and isinstance(given, int) and given > greatest else greatest + 1


class QueueModel:
    """put(item), take(), confirm(number), give_back(number) and size(), where take answers None or
    [number, item], and size how many items wait and how many are taken.

    The state is what waits, in order, what was taken by which client and is not confirmed, and the next
    number. Items of a client that is gone wait again, in front, in the order of their numbers.
    """

    initial: State = ((), frozenset(), 0)
    reads = frozenset({"size"})
    refusals = frozenset({"take", "confirm", "give_back"})
    by_client = True

    part = staticmethod(_whole)

    def outcomes(self, state: State, call: Call) -> Sequence[Outcome]:
        waiting, taken, following = state
        match call.operation, call.arguments:
            case "put", (item,):
                return [(((*waiting, (following, canonical(item))), taken, following + 1), following)]
            case "take", ():
                if not waiting:
                    return [(state, None)]
                number, item = waiting[0]
                held = taken | {(number, item, call.client)}
                return [((waiting[1:], held, following), [number, decoded(item)])]
            case "size", ():
                return [(state, [len(waiting), len(taken)])]
            case "cancel", (_,):
                return [
                    ((tuple(sorted((row[:2], *waiting))), taken - {row}, following), None)
                    for row in taken
                    if row[2] == call.client
                ]
            case "confirm", (number,):
                left = frozenset(row for row in taken if (row[0], row[2]) != (number, call.client))
                return [((waiting, left, following), len(left) < len(taken))]
            case "give_back", (number,):
                back = tuple(row[:2] for row in taken if (row[0], row[2]) == (number, call.client))
                left = frozenset(row for row in taken if (row[0], row[2]) != (number, call.client))
                return [((tuple(sorted(back + waiting)), left, following), bool(back))]
            case "departed", (client,):
                back = tuple(sorted(row[:2] for row in taken if row[2] == client))
                left = frozenset(row for row in taken if row[2] != client)
                return [((tuple(sorted(back + waiting)), left, following), None)]
        raise UnknownOperationError(call.operation)


class BarrierModel:
    """arrive(request), which answers the round, and pass(request, round), which waits until that round is
    over and answers True; False if the request was dropped meanwhile.

    The state is who has arrived in this round, with which request, and the round.
    """

    reads = frozenset({"pass"})
    refusals: frozenset[str] = frozenset()
    by_client = True
    initial: State = (frozenset(), 0)

    def __init__(self, parties: int) -> None:
        self.parties = parties

    part = staticmethod(_whole)

    def outcomes(self, state: State, call: Call) -> Sequence[Outcome]:
        arrived, current = state
        match call.operation, call.arguments:
            case "arrive", (request,):
                arrived |= {(call.client, request)}
                is_over = len(arrived) >= self.parties
                return [((frozenset(), current + 1) if is_over else (arrived, current), current)]
            case "pass", (request, belongs_to):
                passed = [(state, True)] if current > belongs_to else []
                return passed + [(state, False)] * ((call.client, request) not in arrived)
            case "cancel", (request,):
                return [((arrived - {(call.client, request)}, current), None)]
            case "departed", (client,):
                return [((frozenset(each for each in arrived if each[0] != client), current), None)]
        raise UnknownOperationError(call.operation)


class MachineModel:
    """An application's own machine as its specification: the state is its snapshot.

    The call's operation is ignored; its single argument is the command.
    """

    reads: frozenset[str] = frozenset()
    refusals: frozenset[str] = frozenset()
    by_client = True

    def __init__(self, make: Callable[[], Any]) -> None:
        self._machine = make()
        self.initial: State = self._machine.snapshot()

    part = staticmethod(_whole)

    def outcomes(self, state: State, call: Call) -> Sequence[Outcome]:
        machine = self._machine
        machine.restore(state)
        (command,) = call.arguments
        try:
            named = getattr(machine, "apply_from", None)
            answer = machine.apply(command) if named is None else named(command, call.client)
        except Exception as error:
            answer = {ERROR: str(error)}
        return [(machine.snapshot(), answer)]


MODELS: Final[Mapping[str, Callable[[], Model]]] = {
    "map": MapModel,
    "register": RegisterModel,
    "counter": CounterModel,
    "set": SetModel,
    "lock": LockModel,
    "queue": QueueModel,
    "leader": LeaderModel,
}
"""The models by the names that a trace uses."""
NUMBERED: Final[Mapping[str, Callable[[int], Model]]] = {"semaphore": SemaphoreModel, "barrier": BarrierModel}
"""`semaphore(3)` names a model with its permits, `barrier(3)` one with its parties."""


def find_model(name: str | None) -> Model | None:
    """The model of this name; None if there is no such model."""
    if name is None:
        return None
    word, _, rest = name.partition("(")
    if word in NUMBERED and rest[:-1].isdigit():
        return NUMBERED[word](int(rest[:-1]))
    make = MODELS.get(name)
    return None if make is None else make()
