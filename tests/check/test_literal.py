"""The checkers against the definitions of docs/audit.md taken word for word, on random traces.

Here nothing is indexed or clever: relations are sets of pairs, closed by trying every pair. That is far too
slow for real traces and leaves hardly any room for a mistake.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import pairwise
from random import Random
from typing import NamedTuple, TypeVar

import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.recording import PROPERTIES, Property
from antiphon.trace.schema import Event, Run
from tests.strategies import FLAVOURS, Flavour, random_trace

Item = TypeVar("Item", bound=Hashable)
Message = tuple[str, int]
Found = Counter[tuple[str | None, Message]]
"""How often each (site, message) is blamed."""

TRACES = 500
"""For each flavour; together they break every property many times."""


class Row(NamedTuple):
    """One message of one event, at its place in the site's log."""

    site: str
    place: int
    kind: str
    message: Message
    event: Event


def expanded(events: list[Event]) -> list[Row]:
    rows: list[Row] = []
    places: Counter[str] = Counter()
    for event in sorted(events, key=lambda event: event.step):
        for offset in range(event.count or 1):
            message = (event.sender or event.site, (event.number or 0) + offset)
            rows.append(Row(event.site, places[event.site], event.kind, message, event))
            places[event.site] += 1
    return rows


def closure(pairs: Iterable[tuple[Item, Item]]) -> set[tuple[Item, Item]]:
    """Join what can be joined until nothing new comes."""
    closed = set(pairs)
    for middle in {item for pair in closed for item in pair}:
        into = [first for first, second in closed if second == middle]
        out = [second for first, second in closed if first == middle]
        closed |= {(first, second) for first in into for second in out}
    return closed


class Literal:
    """One run, and each property of it by its definition."""

    def __init__(self, events: list[Event], run: Run) -> None:
        self.run = run
        self.rows = expanded(events)
        self.sites = {event.site for event in events}
        self.absentees = {event.site for event in events if event.kind == "absent"}
        self.deliveries = [row for row in self.rows if row.kind == "deliver"]
        self.sends: dict[Message, Row] = {}
        for row in sorted(self.rows, key=lambda row: (row.site != row.message[0], row.site, row.place)):
            if row.kind == "send":
                self.sends.setdefault(row.message, row)
        self.arcs = {
            (one.message, other.message)
            for site in self.sites
            for one, other in pairwise(self.at(site))
            if one.message != other.message
        }
        self.path = closure(self.arcs)

    def at(self, site: str) -> list[Row]:
        return sorted(row for row in self.deliveries if row.site == site)

    def to(self, message: Message) -> set[str]:
        if message not in self.sends:
            return set()
        event, groups = self.sends[message].event, self.run.groups or {}
        if event.destinations is not None:
            return set(event.destinations)
        return set(groups[event.group]) if event.group in groups else self.sites

    def integrity(self) -> Found:
        return Counter(
            (row.site, row.message) for row in self.deliveries if row.site not in self.to(row.message)
        )

    def duplicate(self) -> Found:
        times = Counter((row.site, row.message) for row in self.deliveries)
        return Counter({what: count - 1 for what, count in times.items() if count > 1})

    def fifo(self) -> Found:
        return Counter(
            (row.site, row.message)
            for row in self.deliveries
            if any(
                before.site == row.site
                and before.place < row.place
                and before.message[0] == row.message[0]
                and before.message[1] > row.message[1]
                for before in self.deliveries
            )
        )

    def causal(self) -> Found:
        precedes = closure(
            (before.message, send.message)
            for send in self.sends.values()
            for before in self.rows
            if before.site == send.site
            and before.place < send.place
            and (before.kind == "deliver" or self.sends.get(before.message) == before)
        )
        return Counter(
            {
                (effect.site, effect.message): 1
                for effect in self.deliveries
                for cause in self.deliveries
                if cause.site == effect.site
                and cause.place > effect.place
                and cause.message != effect.message
                and (cause.message, effect.message) in precedes
            }
        )

    def total(self) -> Found:
        tangled = {one for one, other in self.path if one == other}
        least = {
            min(other for other in tangled if {(one, other), (other, one)} <= self.path) for one in tangled
        }
        return Counter((None, message) for message in least)

    def atomicity(self) -> Found:
        delivered = {row.message for row in self.deliveries}
        missing = {
            (site, message)
            for message in delivered
            for site in self.to(message) - self.absentees
            if message not in {row.message for row in self.at(site)}
        }
        for site in self.absentees:
            for spell in self.spells(site):
                here = {row.message for row in spell}
                lacking = {message for message in delivered - here if site in self.to(message)}
                missing |= {(site, message) for message in lacking if self.between(spell, message)}
        return Counter(dict.fromkeys(missing, 1))

    def spells(self, site: str) -> list[list[Row]]:
        cuts = [row.place for row in self.rows if row.site == site and row.kind == "absent"]
        by_spell: dict[int, list[Row]] = {}
        for row in self.at(site):
            by_spell.setdefault(sum(cut < row.place for cut in cuts), []).append(row)
        return list(by_spell.values())

    def between(self, spell: list[Row], message: Message) -> bool:
        if any(one == other for one, other in self.path):
            numbers = [number for sender, number in (row.message for row in spell) if sender == message[0]]
            return bool(numbers) and min(numbers) < message[1] < max(numbers)
        return {(spell[0].message, message), (message, spell[-1].message)} <= self.path

    def stability(self) -> Found:
        declarations: dict[tuple[str, Message], Row] = {}
        for row in sorted(self.rows):
            if row.kind in ("stable", "discard") and row.message in self.sends:
                declarations.setdefault((row.site, row.message), row)
        before = self.happens_before() if declarations else set()
        return Counter({what: 1 for what, row in declarations.items() if self.too_early(row, before)})

    def happens_before(self) -> set[tuple[tuple[str, int], tuple[str, int]]]:
        pairs = {(row[:2], (row.site, row.place + 1)) for row in self.rows}
        for send in self.sends.values():
            for row in self.rows:
                if (
                    row.message == send.message
                    and row.kind in ("receive", "deliver")
                    and row.site != send.site
                ):
                    pairs.add((send[:2], row[:2]))
        return closure(pairs)

    def too_early(self, declaration: Row, before: set[tuple[tuple[str, int], tuple[str, int]]]) -> bool:
        for site in self.to(declaration.message) - self.absentees:
            receptions = [
                row.place
                for row in self.rows
                if row.site == site
                and row.message == declaration.message
                and (row.kind in ("receive", "deliver") or self.sends[row.message] == row)
            ]
            if not receptions:
                return True
            first = min(receptions)
            if site == declaration.site and first > declaration.place:
                return True
            if site != declaration.site and (declaration[:2], (site, first)) in before:
                return True
        return False


def blamed(events: list[Event], run: Run, name: Property) -> Found:
    return Counter(
        (violation.site, (violation.sender, violation.number))
        for violation in check_trace(events, run, [name])
    )


@pytest.mark.slow
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_checkers_equal_the_definitions(flavour: Flavour) -> None:
    for seed in range(TRACES):
        events, run = random_trace(Random(seed), f"{flavour}-{seed}", flavour, 4, 12)
        literal = Literal(events, run)
        definitions: dict[Property, Callable[[], Found]] = {
            "integrity": literal.integrity,
            "duplicate": literal.duplicate,
            "atomicity": literal.atomicity,
            "fifo": literal.fifo,
            "causal": literal.causal,
            "total": literal.total,
            "stability": literal.stability,
        }
        for name in PROPERTIES:
            assert blamed(events, run, name) == definitions[name](), f"{name} of {flavour}-{seed}"
