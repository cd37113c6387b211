"""The region of a trace around a violation, and what the explorer of a report knows about it.

A region is read in two passes: the rows around the witness with all rows about the messages involved, then
the rows around these at every member, with the sends of whatever else is delivered there. It is bounded: the
rows that are furthest from the witness go first.

The script of the page (`assets/explorer.js`) draws a region, and finds the causal past and future of a
message in it. It knows messages as units: each unit is a stretch of one sender's numbers that every row of
the region covers as a whole or not at all.
"""

import json
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import MessageId, Site
from antiphon.report.diagram import Diagram, Item, ItemKind, hues_of, logs_of, message_range
from antiphon.report.escape import clean
from antiphon.report.svg import LABEL_CHARACTERS, details, label
from antiphon.report.text import WORDS
from antiphon.trace.schema import ACCEPTED, Event
from antiphon.trace.window import Wanted

REACH: Final = 16
"""Rows read before and after each row of the witness, and each row about the messages involved. Raising it
makes pages larger."""
MOST_SITES: Final = 24
"""Members of a region. Raising it makes it wider than a reader can follow."""
MOST_ROWS: Final = 1200
"""Rows of a region. Raising it makes the page slower to draw."""
PLACES_A_SITE: Final = 8
"""Places of a member beside the witness that a region reads around."""


def first_look(violation: Violation) -> Wanted:
    """What to read first: the rows around the witness, and all rows about the messages involved."""
    messages = {MessageId(violation.sender, violation.number)}
    for witness in violation.witness:
        if witness.sender is not None and witness.number is not None:
            messages.add(MessageId(witness.sender, witness.number))
    return Wanted(violation.run, _places(violation), frozenset(messages), reach=REACH)


def closer_look(violation: Violation, events: Sequence[Event]) -> Wanted:
    """What to read then, given the rows of the first look."""
    wanted = first_look(violation)
    logs = logs_of(events, violation.run)
    hues = hues_of(logs, violation)
    places = set(wanted.places)
    sent: set[MessageId] = set()
    for site in _sites(logs, violation):
        about = 0
        for event in logs[site]:
            covered = message_range(event)
            if covered is None:
                continue
            sent.add(MessageId(covered[0], covered[1]))
            involved = any(covered[1] <= number <= covered[2] for number in hues.get(covered[0], {}))
            if involved and about < PLACES_A_SITE:
                places.add((site, event.step))
                about += 1
    return wanted._replace(places=frozenset(places), sent=frozenset(sent))


def bounded(events: Sequence[Event], violation: Violation) -> tuple[list[Event], int]:
    """The rows of a region, those nearest to the witness if there are too many; and how many members that
    logged rows in it are left out."""
    logs = logs_of(events, violation.run)
    hues = hues_of(logs, violation)
    sites = _sites(logs, violation)
    ranked: list[tuple[int, int, Event]] = []
    for site in sites:
        anchors = sorted(step for where, step in _places(violation) if where == site)
        about = [event.step for event in logs[site] if _is_about(event, hues)]
        places = sorted({*anchors, *about})
        for event in logs[site]:
            if event.step in anchors:
                rank = -2
            elif _is_about(event, hues):
                rank = -1
            else:
                rank = _distance(event.step, places)
            ranked.append((rank, len(ranked), event))
    ranked.sort(key=lambda entry: entry[:2])
    kept = [event for _, _, event in ranked[:MOST_ROWS]]
    return sorted(kept, key=lambda event: (event.site, event.step)), len(logs) - len(sites)


def _is_about(event: Event, hues: dict[Site, dict[int, int]]) -> bool:
    covered = message_range(event)
    return covered is not None and any(
        covered[1] <= number <= covered[2] for number in hues.get(covered[0], ())
    )


def _places(violation: Violation) -> frozenset[tuple[Site, int]]:
    # All rows of `ACCEPTED` share their step: those of the messages are enough.
    return frozenset((each.site, each.step) for each in violation.witness if each.site != ACCEPTED)


def _sites(logs: dict[Site, list[Event]], violation: Violation) -> list[Site]:
    """The members that a region shows: those of the witness first, then those with the most rows."""
    named = {witness.site for witness in violation.witness} | {violation.site, violation.sender}
    ordered = sorted(logs, key=lambda site: (site not in named, -len(logs[site]), site))
    return ordered[:MOST_SITES]


def _distance(step: int, places: Sequence[int]) -> int:
    at = bisect_left(places, step)
    near = [abs(step - place) for place in places[max(at - 1, 0) : at + 1]]
    return min(near, default=1 << 62)


def message_names(events: Sequence[Event], violation: Violation) -> dict[MessageId, str]:
    """The names in their own system of the messages that a violation involves, where the trace has any."""
    wanted = first_look(violation).messages
    names: dict[MessageId, str] = {}
    for event in events:
        covered = message_range(event)
        if event.message_id is not None and covered is not None:
            message = MessageId(covered[0], covered[1])
            if message in wanted:
                names.setdefault(message, event.message_id)
    return names


def explorer_data(diagram: Diagram, violation: Violation, omitted: int) -> str:
    """What the explorer's script needs, as JSON that is safe within a script element."""
    units = _Units(diagram)
    data: dict[str, Any] = {
        "sites": [clean(site) for site in diagram.sites],
        "omitted": omitted,
        "width": LABEL_CHARACTERS,
        "items": [_entry(item, units) for item in diagram.items],
        "arrows": [[arrow.source, arrow.target, arrow.hue] for arrow in diagram.arrows],
        "absences": [[span.column, span.top, span.bottom] for span in diagram.absences],
        "units": units.names,
        "witness": _witness(diagram, violation),
    }
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _entry(item: Item, units: "_Units") -> dict[str, Any]:
    first, last = units.of(item)
    return {
        "column": item.column,
        "level": item.level,
        "kind": item.kind,
        "emphasis": item.emphasis,
        "hue": item.hue,
        "step": -1 if item.event is None else item.event.step,
        "label": label(item),
        "details": clean(details(item)),
        "units": [first, last],
    }


def _witness(diagram: Diagram, violation: Violation) -> list[int]:
    """The items of the witness in the order of the argument, then a missing delivery."""
    found: dict[int, None] = {}
    for witness in violation.witness:
        found |= {index: None for index, item in enumerate(diagram.items) if _rests_on(witness, item)}
    missing = (index for index, item in enumerate(diagram.items) if item.kind == "missing")
    return [*found, *missing]


def _rests_on(witness: Witness, item: Item) -> bool:
    if item.event is None or (item.event.site, item.event.step) != (witness.site, witness.step):
        return False
    covered = message_range(item.event)
    if witness.sender is None or witness.number is None or covered is None:
        return True
    return covered[0] == witness.sender and covered[1] <= witness.number <= covered[2]


class _Units:
    """The messages of a diagram, cut so that each row covers a stretch of whole units."""

    def __init__(self, diagram: Diagram) -> None:
        self.names: list[tuple[str, int]] = []
        """Each unit's name, and how many messages it is."""
        edges: dict[Site, set[int]] = {}
        ranges = [covered for item in diagram.items if (covered := _covered(item)) is not None]
        for sender, first, last in ranges:
            edges.setdefault(sender, set()).update((first, last + 1))
        self._edges = {sender: sorted(found) for sender, found in edges.items()}
        self._begin: dict[Site, int] = {}
        for sender, ordered in self._edges.items():
            self._begin[sender] = len(self.names)
            for first, end in pairwise(ordered):
                numbers = str(first) if end == first + 1 else f"{first}..{end - 1}"
                self.names.append((clean(f"{sender}:{numbers}"), end - first))

    def of(self, item: Item) -> tuple[int, int]:
        """The first unit that a row covers, and the one after its last."""
        covered = _covered(item)
        if covered is None:
            return 0, 0
        sender, first, last = covered
        begin, edges = self._begin[sender], self._edges[sender]
        return begin + bisect_left(edges, first), begin + bisect_left(edges, last + 1)


def _covered(item: Item) -> tuple[Site, int, int] | None:
    if item.message is not None:
        return item.message.sender, item.message.number, item.message.number
    return None if item.event is None else message_range(item.event)


def kinds_in(diagram: Diagram) -> list[ItemKind]:
    """The kinds of rows that a diagram shows, in the order of the legend."""
    used = {item.kind for item in diagram.items}
    return [kind for kind in WORDS if kind in used]
