"""Jepsen: histories (`history.edn`, an operation a line) of Maelstrom's broadcast and of queues.

Broadcast: `:broadcast` is a send, and a `:read` that ends well tells which messages its node holds by then.
Messages that one read shows for the first time are unordered; a last read that lacks what an earlier one
showed is told as a line that cannot be used. A process p talks to node p mod `nodes`.
Queues: `:enqueue` is a send and `:dequeue` (or `:drain`) a delivery to the one site `consumers`: an item is
for the first that takes it, so a second delivery is a duplicate. Operations that fail did not happen.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from antiphon.core.recording import Property
from antiphon.trace.adapters import edn
from antiphon.trace.adapters.record import BadLine, BadLineError, Line, Record
from antiphon.trace.adapters.values import bad, integer, parsed, required
from antiphon.trace.schema import ACCEPTED

CONSUMERS = "consumers"


class Jepsen(msgspec.Struct, frozen=True):
    """`nodes` is the number of nodes of a broadcast test; without it each process is a site of its own."""

    nodes: int | None = None
    name: str = "jepsen"
    promises: tuple[Property, ...] = ("integrity", "duplicate", "atomicity")
    marks_acceptance: bool = True
    is_numbered: bool = False
    is_ordered: bool = True
    reads_any_bytes: bool = False
    is_routed: bool = False

    def parse(self, _stem: str, lines: Iterator[Line]) -> Iterator[Record | BadLine]:
        history = _History(self.nodes)
        yield from parsed(lines, history.records)
        yield from history.withdrawn()


class _History:
    """Remembers what each node has shown, so that a read yields only what is new."""

    def __init__(self, nodes: int | None) -> None:
        self._nodes = nodes
        self._shown: dict[str, set[str]] = {}
        self._last: dict[str, tuple[Line, set[str]]] = {}

    def records(self, line: Line) -> Iterable[Record]:
        operation = _operation(line.text)
        process, kind = operation.get("process"), required(operation, "type")
        if not isinstance(process, int):
            return []  # the nemesis
        what, value = required(operation, "f"), operation.get("value")
        at = integer(operation.get("time") or 0, "the time")
        if what in ("broadcast", "enqueue", "send") and kind == "invoke":
            site = self._site(process) if what == "broadcast" else f"p{process}"
            return [Record(site, "send", sender=site, message_id=_name(value), order=line.number, time_ns=at)]
        if kind != "ok" or value is None:
            return []
        if what in ("broadcast", "enqueue", "send"):
            return [Record(ACCEPTED, "deliver", message_id=_name(value), order=0)]
        if what == "read":
            return self._read(self._site(process), value, line, at)
        if what in ("dequeue", "drain", "poll"):
            values = value if isinstance(value, list) else [value]
            return [
                Record(CONSUMERS, "deliver", message_id=_name(each), order=line.number, time_ns=at)
                for each in values
            ]
        return []

    def _site(self, process: int) -> str:
        return f"n{process % self._nodes}" if self._nodes else f"p{process}"

    def withdrawn(self) -> Iterator[BadLine]:
        """The last reads that lack what an earlier read of the same node had."""
        for site, (line, held) in sorted(self._last.items()):
            lost = sorted(self._shown[site] - held)
            if lost:
                names = ", ".join(lost[:5]) + (" and others" if len(lost) > 5 else "")
                yield bad(line, f"the last read of {site} lacks {names}, which an earlier one has", False)

    def _read(self, site: str, value: Any, line: Line, at: int) -> list[Record]:
        if not isinstance(value, list):
            raise BadLineError("a read's value is no list of messages")
        shown = self._shown.setdefault(site, set())
        names = dict.fromkeys(map(_name, value))
        fresh = [name for name in names if name not in shown]
        shown.update(fresh)
        self._last[site] = line, set(names)
        return [Record(site, "deliver", message_id=name, order=line.number, time_ns=at) for name in fresh]


def _operation(text: str) -> dict[str, Any]:
    try:
        operation = edn.loads(text)
    except ValueError as error:
        raise BadLineError(f"no EDN: {error}") from None
    if not isinstance(operation, dict):
        raise BadLineError("the EDN value is no map")
    return operation


def _name(value: Any) -> str:
    if value is None or isinstance(value, list | dict):
        raise BadLineError("an operation without a message")
    return str(value)
