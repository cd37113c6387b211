"""A map from names to plain data, with compare-and-set, expiry and watches."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, NamedTuple

from antiphon.core.errors import UsageError
from antiphon.core.time import SECOND_NS
from antiphon.core.values import NOTHING, Value, canonical, decoded
from antiphon.replicated.objects.base import ObjectMachine
from antiphon.replicated.objects.handle import Handle, Replica

LONGEST_LIFETIME_NS: Final = 100 * 365 * 86_400 * SECOND_NS
"""The longest expiry. The time at which it ends must fit into the 64 bits of a snapshot's numbers."""


class Change(NamedTuple):
    """A key's new value; None if it has none any more."""

    key: str
    value: Value


class _Expiry:
    """When a key loses its value: `lifetime_ns` after the first tick that follows its setting."""

    __slots__ = ("deadline_ns", "lifetime_ns")

    def __init__(self, lifetime_ns: int, deadline_ns: int | None = None) -> None:
        self.lifetime_ns = lifetime_ns
        self.deadline_ns = deadline_ns


class MapMachine(ObjectMachine):
    """The values by key. Watchers of this replica are told of each change; they are no part of the state."""

    name = "map"

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        """Encoded, so that no caller can change them."""
        self._expiries: dict[str, _Expiry] = {}
        self._watchers: list[Callable[[str, Value], None]] = []

    @property
    def wants_ticks(self) -> bool:  # type: ignore[override]
        return bool(self._expiries)

    def apply(self, operation: str, arguments: Sequence[Any], caller: str) -> Any:  # noqa: ARG002
        match operation, arguments:
            case "get", (str(key),):
                return self.get(key)
            case "set", (str(key), value, lifetime_ns) if value is not None:
                return self._set(key, value, lifetime_ns)
            case "compare_and_set", (str(key), old, new, lifetime_ns):
                if self._values.get(key, NOTHING) != canonical(old):
                    return False
                if new is None:
                    self._remove(key)
                else:
                    self._set(key, new, lifetime_ns)
                return True
            case "delete", (str(key),):
                found = key in self._values
                self._remove(key)
                return found
        raise self.unknown(operation, arguments)

    def _set(self, key: str, value: Any, lifetime_ns: Any) -> None:
        if lifetime_ns is not None and not (
            isinstance(lifetime_ns, int) and 0 < lifetime_ns <= LONGEST_LIFETIME_NS
        ):
            raise UsageError("An expiry is a number of nanoseconds above 0, and at most 100 years.")
        self._values[key] = canonical(value)
        if lifetime_ns is None:
            self._expiries.pop(key, None)
        else:
            self._expiries[key] = _Expiry(lifetime_ns)
        self._tell(key, value)

    def _remove(self, key: str) -> None:
        self._expiries.pop(key, None)
        if self._values.pop(key, None) is not None:
            self._tell(key, None)

    def tick(self, time_ns: int) -> None:
        for key, expiry in list(self._expiries.items()):
            if expiry.deadline_ns is None:
                expiry.deadline_ns = time_ns + expiry.lifetime_ns
            elif time_ns >= expiry.deadline_ns:
                self._remove(key)

    def state(self) -> Any:
        expiries = {key: [each.lifetime_ns, each.deadline_ns] for key, each in self._expiries.items()}
        return [self._values, expiries]

    merges: ClassVar[bool] = True

    @staticmethod
    def merged(mine: Any, theirs: Any) -> Any:
        """The keys of both. Of two values of one key the greater, as it is encoded, is kept."""
        values, expiries = dict(mine[0]), dict(mine[1])
        for key, value in theirs[0].items():
            if key not in values or value > values[key]:
                values[key] = value
                expiries.pop(key, None)
                if key in theirs[1]:
                    expiries[key] = theirs[1][key]
        return [dict(sorted(values.items())), dict(sorted(expiries.items()))]

    def load(self, state: Any) -> None:
        before = self._values
        self._values, expiries = state
        self._expiries = {key: _Expiry(*pair) for key, pair in expiries.items()}
        if self._watchers:
            for key in before.keys() - self._values.keys():
                self._tell(key, None)
            for key, value in self._values.items():
                if before.get(key) != value:
                    self._tell(key, decoded(value))

    # What this replica does alone

    def get(self, key: str) -> Value:
        return decoded(self._values.get(key, NOTHING))

    def items(self) -> dict[str, Any]:
        return {key: decoded(value) for key, value in self._values.items()}

    @contextmanager
    def watched(self, told: Callable[[str, Value], None]) -> Any:
        """Tell a function of every change, for as long as the block runs."""
        self._watchers.append(told)
        try:
            yield
        finally:
            self._watchers.remove(told)

    def _tell(self, key: str, value: Value) -> None:
        for told in tuple(self._watchers):
            told(key, value)


class Map(Handle[MapMachine]):
    """A replicated map. Values are plain data; None means that a key has no value."""

    def __init__(self, replica: Replica, name: str = "map") -> None:
        super().__init__(replica, name, "map")

    async def get(self, key: str, default: Value = None) -> Value:
        """The value of a key, at some moment during this call."""
        _require_key(key)
        found = await self._recorded("get", (key,), self._read_latest(lambda machine: machine.get(key)))
        return default if found is None else found

    def peek(self, key: str, default: Value = None) -> Value:
        """The value that this replica has: at once, and perhaps out of date."""
        found = self._read(lambda machine: machine.get(key))
        return default if found is None else found

    async def set(self, key: str, value: Value, *, expiry: float | None = None) -> None:
        """Set a key. With an expiry it loses its value after that many seconds, or a little later."""
        _require_key(key)
        if value is None:
            raise UsageError("None is no value of a map.", "Use delete() to remove a key.")
        lifetime_ns = _lifetime_ns(expiry)
        arguments = (key, value) if expiry is None else (key, value, lifetime_ns)
        await self._recorded("set", arguments, self._ask("set", key, value, lifetime_ns))

    async def compare_and_set(self, key: str, old: Value, new: Value, *, expiry: float | None = None) -> bool:
        """Set a key if it has the old value; whether it had. None as a value means that there is none."""
        _require_key(key)
        lifetime_ns = _lifetime_ns(expiry)
        arguments = (key, old, new) if expiry is None else (key, old, new, lifetime_ns)
        done: bool = await self._recorded(
            "compare_and_set", arguments, self._ask("compare_and_set", key, old, new, lifetime_ns)
        )
        return done

    async def delete(self, key: str) -> bool:
        """Remove a key; whether it had a value."""
        _require_key(key)
        found: bool = await self._recorded("delete", (key,), self._ask("delete", key))
        return found

    async def items(self) -> dict[str, Any]:
        """All keys and values, at some moment during this call."""
        return await self._read_latest(lambda machine: machine.items())

    async def watch(self, key: str | None = None, *, prefix: str = "") -> AsyncIterator[Change]:
        """Every change of one key, or of those with a prefix, in the order in which they happen.

        A reader that falls behind gets the last value of each key, so that memory stays bounded.
        """
        pending: dict[str, Value] = {}
        changed = asyncio.Event()

        def told(name: str, value: Value) -> None:
            if name == key or (key is None and name.startswith(prefix)):
                pending.pop(name, None)
                pending[name] = value
                changed.set()

        machine = self._read(lambda machine: machine)
        with machine.watched(told):
            while True:
                await changed.wait()
                while pending:
                    name = next(iter(pending))
                    yield Change(name, pending.pop(name))
                changed.clear()


def _require_key(key: str) -> None:
    if not isinstance(key, str):
        raise UsageError(f"A key of a map is text, not {type(key).__name__}.")


def _lifetime_ns(expiry: float | None) -> int | None:
    if expiry is None:
        return None
    if not 0 < expiry <= LONGEST_LIFETIME_NS / SECOND_NS:
        raise UsageError("An expiry is a number of seconds above 0, and at most 100 years.")
    return max(int(expiry * SECOND_NS), 1)
