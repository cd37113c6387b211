"""Every container that an object holds, with its size and the way to it: what grows shows here.

The walk follows attributes (in `__dict__` and in slots), the entries of containers, the fields of Structs and
bound methods. Keys and indices are left out of a path, so that one path stands for all alike.
"""

from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final

import msgspec

PLAIN: Final = (int, float, bool, type(None), type, Random)
SEQUENCES: Final = (list, tuple, set, frozenset, deque)
LARGEST_BUFFER: Final = 1 << 20
"""Bytes that a buffer may have without being listed as a container."""
BUFFERS: Final = (bytes, bytearray, str, array)


class Holdings:
    """The largest container under each path, and all bytes held."""

    def __init__(self, root: object) -> None:
        self.largest: dict[str, int] = {}
        self.bytes = 0
        seen: set[int] = set()
        waiting: deque[tuple[str, Any]] = deque([(type(root).__name__, root)])
        while waiting:  # the shortest path to each thing comes first
            path, thing = waiting.popleft()
            if isinstance(thing, PLAIN) or id(thing) in seen:
                continue
            seen.add(id(thing))
            if isinstance(thing, BUFFERS):
                self.bytes += len(thing)
                if isinstance(thing, bytearray) and len(thing) > LARGEST_BUFFER:
                    self._note(path, len(thing))
                continue
            if isinstance(thing, (Mapping, *SEQUENCES)):
                self._note(path, len(thing))
            waiting.extend(_inside(path, thing))

    def _note(self, path: str, size: int) -> None:
        if size > self.largest.get(path, -1):
            self.largest[path] = size

    def above(self, limit: int, allowed: Mapping[str, int]) -> dict[str, int]:
        """Containers above the limit; `allowed` names the ends of paths that may hold more, and how much."""
        return {
            path: size
            for path, size in self.largest.items()
            if size > next((most for end, most in allowed.items() if path.endswith(end)), limit)
        }


def _inside(path: str, thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, Mapping):
        for key, value in thing.items():
            yield f"{path}.keys", key
            yield f"{path}[]", value
    elif isinstance(thing, SEQUENCES):
        for item in thing:
            yield f"{path}[]", item
    if isinstance(thing, msgspec.Struct):
        for name in thing.__struct_fields__:
            yield f"{path}.{name}", getattr(thing, name)
        return
    owner = getattr(thing, "__self__", None)
    if owner is not None and not isinstance(owner, type(msgspec)):
        yield f"{path}.self", owner
    if type(thing).__module__.partition(".")[0] in ("antiphon", "tests"):
        yield from _attributes(path, thing)


def _attributes(path: str, thing: Any) -> Iterator[tuple[str, Any]]:
    for name, value in getattr(thing, "__dict__", {}).items():
        yield f"{path}.{name}", value
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{kind.__name__}{name}"
            if hasattr(thing, name):
                yield f"{path}.{name}", getattr(thing, name)
