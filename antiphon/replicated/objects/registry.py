"""The machine of a group of objects: a registry that routes each command to the object that it names.

A command is `[object, kind, operation, *arguments]`. An object is made by the first command that names it,
and keeps its kind.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec

from antiphon.core.errors import OutputError, UsageError
from antiphon.replicated.objects.barrier import BarrierMachine
from antiphon.replicated.objects.base import ObjectMachine
from antiphon.replicated.objects.counter import CounterMachine
from antiphon.replicated.objects.lock import PermitMachine
from antiphon.replicated.objects.map import MapMachine
from antiphon.replicated.objects.queue import QueueMachine
from antiphon.replicated.objects.set import SetMachine
from antiphon.trace.call_log import CallLog

MOST_NUMBER: Final = 1_000_000
"""The greatest number of permits or parties."""

PLAIN: Final[dict[str, Callable[[], ObjectMachine]]] = {
    "map": MapMachine,
    "counter": CounterMachine,
    "set": SetMachine,
    "queue": QueueMachine,
    "lock": lambda: PermitMachine(1),
    "leader": lambda: PermitMachine(1),
}
NUMBERED: Final[dict[str, Callable[[int], ObjectMachine]]] = {
    "semaphore": PermitMachine,
    "barrier": BarrierMachine,
}


def make_object(kind: str) -> ObjectMachine:
    """An empty object of a kind such as `map` or `semaphore(3)`."""
    if kind in PLAIN:
        return PLAIN[kind]()
    word, _, rest = kind.partition("(")
    number = rest[:-1]
    if word in NUMBERED and rest.endswith(")") and number.isdecimal() and 0 < int(number) <= MOST_NUMBER:
        return NUMBERED[word](int(number))
    raise UsageError(f"There is no kind of object {kind!r}.", f"There are: {', '.join([*PLAIN, *NUMBERED])}.")


class Objects:
    """A replicated machine: any number of objects by name.

    >>> objects = Objects()
    >>> objects.apply_from(["prices", "map", "set", "apple", 3, None], "a")
    >>> objects.apply_from(["prices", "map", "get", "apple"], "b")
    3
    """

    def __init__(self) -> None:
        self._objects: dict[str, tuple[str, ObjectMachine]] = {}
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self._call_log: CallLog | None = None
        self._unmade: dict[str, tuple[str, ObjectMachine]] = {}
        """Empty objects that handles of this replica have asked for, and no command has named yet."""

    # What every replica does in the same order

    def apply_from(self, command: Any, caller: str) -> Any:
        """Carry out a command of a member."""
        name, kind, operation, arguments = _parsed(command)
        machine = self._find(name, kind)
        result = machine.apply(operation, arguments, caller)
        if name not in self._objects:
            self._objects[name] = (kind, machine)
            self._unmade.pop(name, None)
        self._tell(name)
        return result

    def apply(self, command: Any) -> Any:
        """Carry out a command without a caller: for a machine that is used alone."""
        return self.apply_from(command, "")

    def departed(self, member: str) -> None:
        for name, (kind, machine) in self._objects.items():
            self._record_departure(name, kind, member)
            machine.departed(member)
            self._tell(name)

    def _record_departure(self, name: str, kind: str, member: str) -> None:
        log = self._call_log
        if log is not None and not log.is_closed and kind not in ("map", "counter", "set"):
            with suppress(OutputError):
                log.departed(name, kind, member)

    @property
    def wants_ticks(self) -> bool:
        return any(machine.wants_ticks for _, machine in self._objects.values())

    def tick(self, time_ns: int) -> None:
        for name, (_, machine) in self._objects.items():
            if machine.wants_ticks:
                machine.tick(time_ns)
                self._tell(name)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(
            [[name, kind, machine.state()] for name, (kind, machine) in self._objects.items()]
        )

    def restore(self, data: bytes) -> None:
        rows = msgspec.msgpack.decode(data)
        kept = self._unmade | self._objects
        self._objects = {}
        for name, kind, state in rows:
            # An object stays the same one, so that its watchers are told what has changed.
            before = kept.pop(name, None)
            machine = before[1] if before is not None and before[0] == kind else make_object(kind)
            machine.load(state)
            self._objects[name] = (kind, machine)
        for kind, machine in kept.values():
            machine.load(make_object(kind).state())
        self._unmade = kept
        for name in list(self._listeners):
            self._tell(name)

    @staticmethod
    def merge(mine: bytes, theirs: bytes) -> bytes:
        """Make one state of two sides' states, where there is no quorum: each object by the rule of its kind.

        An object that only one side has is kept. Where a name has two kinds, the lesser kind is kept.
        """
        both: dict[str, tuple[str, Any]] = {}
        for name, kind, state in msgspec.msgpack.decode(mine) + msgspec.msgpack.decode(theirs):
            known = both.get(name)
            if known is None or kind < known[0]:
                both[name] = (kind, state)
            elif kind == known[0]:
                both[name] = (kind, type(make_object(kind)).merged(known[1], state))
        return msgspec.msgpack.encode([[name, *both[name]] for name in sorted(both)])

    # What this replica does alone

    def find(self, name: str, kind: str) -> ObjectMachine:
        """An object as this replica has it; an empty one if no command has named it yet."""
        machine = self._find(name, kind)
        if name not in self._objects:
            self._unmade[name] = (kind, machine)
        return machine

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Names and kinds, in the order in which the objects were made."""
        return ((name, kind) for name, (kind, _) in self._objects.items())

    def record_departures(self, log: CallLog) -> None:
        """Note in this replica's record of calls which members are gone: what they held is free."""
        self._call_log = log

    @contextmanager
    def listening(self, name: str, changed: Callable[[], None]) -> Iterator[None]:
        """Call a function after every change of an object, for as long as the block runs."""
        listeners = self._listeners.setdefault(name, [])
        listeners.append(changed)
        try:
            yield
        finally:
            listeners.remove(changed)
            if not listeners:
                self._listeners.pop(name, None)

    def _find(self, name: str, kind: str) -> ObjectMachine:
        found = self._objects.get(name)
        if found is not None and found[0] != kind:
            raise UsageError(
                f"The object {name} is a {found[0]}, not a {kind}.",
                "Objects of different kinds need different names.",
            )
        found = found or self._unmade.get(name)
        return found[1] if found is not None and found[0] == kind else make_object(kind)

    def _tell(self, name: str) -> None:
        for changed in tuple(self._listeners.get(name, ())):
            changed()


def _parsed(command: Any) -> tuple[str, str, str, list[Any]]:
    if (
        isinstance(command, list | tuple)
        and len(command) >= 3
        and all(isinstance(w, str) for w in command[:3])
    ):
        name, kind, operation, *arguments = command
        return name, kind, operation, arguments
    raise UsageError(
        "A command to objects is a list: the object's name, its kind, the operation and its arguments."
    )
