"""The checkers against the definitions of docs/audit.md taken word for word, on random traces.

Here nothing is indexed or clever: relations are sets of pairs, closed by trying every pair. That is far too
slow for real traces and leaves hardly any room for a mistake.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from random import Random
from typing import NamedTuple, TypeVar

import pytest

from antiphon.check.checkers import check_trace
from antiphon.core.recording import Property
from antiphon.trace.schema import TIE_PHASES, Event, Run
from tests.strategies import FLAVOURS, Flavour, as_imported, random_trace

Item = TypeVar("Item", bound=Hashable)
Message = tuple[str, int]
Found = Counter[tuple[str | None, Message]]
"""How often each (site, message) is blamed."""

TRACES = 200
"""For each flavour, as recorded and as imported; together they break every property many times."""


class Row(NamedTuple):
    """One message of one event, at its place in the site's log."""

    site: str
    place: int
    kind: str
    message: Message
    event: Event

    def is_before(self, other: "Row") -> bool:
        """Whether the log shows that this came first at its site."""
        if self.event is other.event:
            return self.place < other.place
        return self.site == other.site and self.event.step < other.event.step


def expanded(events: list[Event]) -> list[Row]:
    rows: list[Row] = []
    places: Counter[str] = Counter()
    for event in sorted(events, key=layout):
        for offset in range(event.count or 1):
            message = (event.sender or event.site, (event.number or 0) + offset)
            rows.append(Row(event.site, places[event.site], event.kind, message, event))
            places[event.site] += 1
    return rows


def layout(event: Event) -> tuple[object, ...]:
    """Which of several rows of one step stands for all where one has to be named."""
    sender = event.site if event.kind == "send" and event.sender is None else event.sender or ""
    rank = sender, event.number or 0, event.count or 1, event.kind
    return event.step, TIE_PHASES[event.kind], *rank


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
        steps = {site: {event.step for event in events if event.site == site} for site in self.sites}
        self.holed = {site for site in self.sites if steps[site] != set(range(len(steps[site])))}
        self.domains = {row.message: row.event.domain for row in self.rows if row.event.domain is not None}
        self.firsts: list[Row] = []
        for row in sorted(self.deliveries):
            if (row.site, row.message) not in {(first.site, first.message) for first in self.firsts}:
                self.firsts.append(row)
        self.arcs = {
            (one.message, other.message)
            for one in self.firsts
            for other in self.firsts
            if self.are_ordered(one, other)
            and not any(self.are_ordered(one, row) and self.are_ordered(row, other) for row in self.firsts)
        }
        self.path = closure(self.arcs)

    def are_ordered(self, one: Row, other: Row) -> bool:
        """Whether a site delivers one before the other, within a domain."""
        return one.is_before(other) and self.domains.get(one.message) == self.domains.get(other.message)

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
            (row.site, row.message)
            for row in self.deliveries
            if row.site not in self.to(row.message)
            and (row.message in self.sends or (self.sends and not self.holed))
        )

    def duplicate(self) -> Found:
        times = Counter((row.site, row.message) for row in self.deliveries)
        return Counter({what: count - 1 for what, count in times.items() if count > 1})

    def fifo(self) -> Found:
        return Counter(
            (row.site, row.message)
            for row in self.firsts
            if any(
                self.are_ordered(before, row)
                and before.message[0] == row.message[0]
                and before.message[1] > row.message[1]
                for before in self.firsts
            )
        )

    def causal(self) -> Found:
        precedes = closure(
            (before.message, send.message)
            for send in self.sends.values()
            for before in self.rows
            if before.is_before(send)
            and (before.kind == "deliver" or self.sends.get(before.message) == before)
        )
        return Counter(
            {
                (effect.site, effect.message): 1
                for effect in self.firsts
                for cause in self.firsts
                if self.are_ordered(effect, cause) and (cause.message, effect.message) in precedes
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
            for site in self.to(message) - self.absentees - self.holed
            if message not in {row.message for row in self.at(site)}
        }
        for site in self.absentees - self.holed:
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
        spell = [row for row in spell if self.domains.get(row.message) == self.domains.get(message)]
        if any(one == other for one, other in self.path):
            numbers = [number for sender, number in (row.message for row in spell) if sender == message[0]]
            return bool(numbers) and min(numbers) < message[1] < max(numbers)
        first = {row.message for row in spell if row.event.step == spell[0].event.step}
        last = {row.message for row in spell if row.event.step == spell[-1].event.step}
        return any((one, message) in self.path for one in first) and any(
            (message, one) in self.path for one in last
        )

    def stability(self) -> Found:
        return self.declared_too_early("stable", "discard")

    def safe(self) -> Found:
        return self.declared_too_early("deliver")

    def declared_too_early(self, *kinds: str) -> Found:
        declarations: dict[tuple[str, Message], Row] = {}
        for row in sorted(self.rows):
            if row.kind in kinds and row.message in self.sends:
                declarations.setdefault((row.site, row.message), row)
        before = self.happens_before() if declarations else set()
        return Counter({what: 1 for what, row in declarations.items() if self.too_early(row, before)})

    def happens_before(self) -> set[tuple[tuple[str, int], tuple[str, int]]]:
        pairs = {(one[:2], other[:2]) for one in self.rows for other in self.rows if one.is_before(other)}
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
        for site in self.to(declaration.message) - self.absentees - self.holed:
            receptions = [
                row
                for row in self.rows
                if row.site == site
                and row.message == declaration.message
                and (row.kind in ("receive", "deliver") or self.sends[row.message] == row)
            ]
            if not receptions:
                return True
            first = min(receptions)
            if site == declaration.site and declaration.is_before(first):
                return True
            if site != declaration.site and (declaration[:2], first[:2]) in before:
                return True
        return False

    def pairwise(self) -> Found:
        found: dict[tuple[str, str], None] = {}
        for one in self.firsts:
            for other in self.firsts:
                for there in (row for row in self.firsts if row.message == one.message):
                    for back in (row for row in self.firsts if row.message == other.message):
                        if self.are_ordered(one, other) and self.are_ordered(back, there):
                            found[min(one.site, there.site), max(one.site, there.site)] = None
        return Counter((site, (other, 0)) for site, other in found)

    def gap(self) -> Found:
        found: set[tuple[str, Message]] = set()
        for site in self.sites - self.holed:
            known = {row.message for row in self.at(site)} | set(self.sends)
            for spell in self.spells(site):
                for sender in {row.message[0] for row in spell}:
                    numbers = [row.message[1] for row in spell if row.message[0] == sender]
                    inside = [each for name, each in known if name == sender and min(numbers) <= each]
                    for number in (each + 1 for each in inside if each < max(numbers)):
                        if number not in inside:
                            found.add((site, (sender, number)))
        return Counter(found)


def blamed(events: list[Event], run: Run, name: Property) -> Found:
    if name == "pairwise":
        pairs = (sorted({row.site for row in found.witness}) for found in check_trace(events, run, [name]))
        return Counter((site, (other, 0)) for site, other in pairs)
    return Counter(
        (violation.site, (violation.sender, violation.number))
        for violation in check_trace(events, run, [name])
    )


@pytest.mark.slow
@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_checkers_equal_the_definitions(flavour: Flavour, imported: bool) -> None:
    for seed in range(TRACES):
        rng = Random(seed)
        events, run = random_trace(rng, f"{flavour}-{seed}", flavour, 4, 12)
        if imported:
            events = as_imported(rng, events)
        literal = Literal(events, run)
        definitions: dict[Property, Callable[[], Found]] = {
            "integrity": literal.integrity,
            "duplicate": literal.duplicate,
            "atomicity": literal.atomicity,
            "fifo": literal.fifo,
            "causal": literal.causal,
            "total": literal.total,
            "stability": literal.stability,
            "pairwise": literal.pairwise,
            "gap": literal.gap,
            "safe": literal.safe,
        }
        for name in definitions:
            assert blamed(events, run, name) == definitions[name](), f"{name} of {flavour}-{seed}"
