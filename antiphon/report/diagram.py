"""The layout of a space-time diagram around one violation: which rows are shown, and where.

A column per member, time downward. Vertical places are levels, not clock readings: a row is below the row
before it at its site, and a reception or delivery is below the send of its message. Where a broken trace
makes both impossible, the site's own order wins and the message's arrow points upward.

The rows of the violation's witness are always shown. Around them are `context` rows before and after, the
sends of every message involved, and those messages' deliveries at the members shown; other rows are elided
with a count. `to_svg` and `to_text` draw the result.

`layout_region` places all rows that it is given, for the explorer of an audit's report.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

from antiphon.check.verdict import Violation, Witness
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import Kind, Property
from antiphon.report.escape import clean
from antiphon.trace.schema import Event

ROWS_WANTED: Final = 48
"""A window with more rows than this gets less context; the witness is shown at any size."""

FLIGHT_LEVELS: Final = 2
"""Levels between a send and its arrivals elsewhere: flatter arrows would cross the labels."""

PROPERTY_TITLES: Final[dict[Property, str]] = {
    "integrity": "Integrity",
    "duplicate": "Delivery at most once",
    "atomicity": "Atomicity",
    "fifo": "First-in-first-out order",
    "causal": "Causal order",
    "total": "Total order",
    "stability": "Stability",
    "pairwise": "Pairwise order",
    "causal-receipt": "Causal order by receipt",
    "gap": "Gaps",
    "safe": "Safe delivery",
    "linearizable": "Linearizability",
}

ItemKind = Kind | Literal["gap", "missing"]
Emphasis = Literal["witness", "involved", "context"]
Log = list[Event]
Hues = dict[Site, dict[int, int]]


@dataclass(frozen=True, eq=False)
class Item:
    """One mark in a column: a row of the trace, a gap of `hidden` rows, or a missing delivery.

    `hue` counts the involved messages from 0, so that a message has one colour in the whole diagram. Items
    compare by identity: a broken trace may hold the same row twice.
    """

    column: int
    level: int
    kind: ItemKind
    emphasis: Emphasis = "context"
    event: Event | None = None
    message: MessageId | None = None
    hidden: int = 0
    hue: int | None = None


@dataclass(frozen=True)
class Arrow:
    """A message in flight: indices of the diagram's items, from its send to its reception or delivery."""

    source: int
    target: int
    hue: int | None


@dataclass(frozen=True)
class Span:
    """A part of a member's column, from one level to another."""

    column: int
    top: int
    bottom: int


@dataclass(frozen=True)
class Diagram:
    """Everything that the two renderers draw. Items are ordered by level, then by column."""

    title: str
    explanation: str
    sites: tuple[Site, ...]
    levels: int
    items: tuple[Item, ...]
    arrows: tuple[Arrow, ...]
    absences: tuple[Span, ...]
    highlights: tuple[Span, ...]


@dataclass(frozen=True)
class _Window:
    """Positions in each member's log: those of the witness, and all that are shown."""

    anchors: dict[Site, set[int]]
    places: dict[Site, set[int]]


def layout(events: Iterable[Event], violation: Violation, context: int = 3) -> Diagram:
    """Choose and place the rows that show `violation`; rows of other runs are ignored."""
    logs = logs_of(events, violation.run)
    hues = hues_of(logs, violation)
    sites = _sites(logs, violation, hues)
    return _diagram(logs, sites, _window(logs, sites, violation, hues, context), violation, hues)


def layout_region(events: Iterable[Event], violation: Violation) -> Diagram:
    """Place all rows of the violation's run; each member that logged a row, or is accused, has a column."""
    logs = logs_of(events, violation.run)
    accused = [] if violation.site is None else [violation.site]
    sites = sorted({*logs, *accused}, key=_counting_order)
    places = {site: set(range(len(logs.get(site, [])))) for site in sites}
    window = _Window(_anchors(logs, sites, violation), places)
    return _diagram(logs, sites, window, violation, hues_of(logs, violation))


def _diagram(
    logs: dict[Site, Log], sites: list[Site], window: _Window, violation: Violation, hues: Hues
) -> Diagram:
    columns: list[list[Item]] = []
    for column, site in enumerate(sites):
        log, anchors = logs.get(site, []), window.anchors[site]
        columns.append(
            [
                _gap(column, hidden) if hidden else _row(column, log[place], place in anchors, hues)
                for place, hidden in _shown(log, window.places[site])
            ]
        )
    _add_missing(columns, sites, logs, violation)
    placed = _place(columns)
    items = sorted((item for column_items in placed for item in column_items), key=_reading_order)
    return Diagram(
        title=f"{PROPERTY_TITLES[violation.property]} violated in run {clean(violation.run)}",
        explanation=violation.explanation,
        sites=tuple(sites),
        levels=1 + max((item.level for item in items), default=0),
        items=tuple(items),
        arrows=tuple(_arrows(items)),
        absences=tuple(_absences(placed, [logs.get(site, []) for site in sites])),
        highlights=tuple(_highlights(placed)),
    )


def message_range(event: Event) -> tuple[Site, int, int] | None:
    """The sender, first and last number of the messages that a row covers.

    On a send row a null sender means the site itself.
    """
    sender = event.site if event.sender is None and event.kind == "send" else event.sender
    if sender is None or event.number is None:
        return None
    return sender, event.number, event.number + max(event.count or 1, 1) - 1


def _reading_order(item: Item) -> tuple[int, int]:
    return item.level, item.column


def logs_of(events: Iterable[Event], run: str) -> dict[Site, Log]:
    """Each site's rows of a run in the order of their steps."""
    logs: dict[Site, Log] = {}
    for event in events:
        if event.run == run:
            logs.setdefault(event.site, []).append(event)
    for log in logs.values():
        log.sort(key=lambda event: event.step)
    return logs


def _covers(event: Event, message: MessageId) -> bool:
    covered = message_range(event)
    return covered is not None and covered[0] == message.sender and covered[1] <= message.number <= covered[2]


def hues_of(logs: dict[Site, Log], violation: Violation) -> Hues:
    """The violation's message and those of its witness, numbered in the order in which they are named."""
    named = dict.fromkeys([MessageId(violation.sender, violation.number)])
    for witness in violation.witness:
        if witness.sender is not None and witness.number is not None:
            named[MessageId(witness.sender, witness.number)] = None
            continue
        for event in logs.get(witness.site, []):
            covered = message_range(event)
            if event.step == witness.step and covered is not None:
                named[MessageId(covered[0], covered[1])] = None
    hues: Hues = {}
    for hue, message in enumerate(named):
        hues.setdefault(message.sender, {})[message.number] = hue
    return hues


def _sites(logs: dict[Site, Log], violation: Violation, hues: Hues) -> list[Site]:
    """The members that get a column: those of the witness, the accused one, and the messages' senders."""
    sites = {witness.site for witness in violation.witness}
    if violation.site is not None:
        sites.add(violation.site)
    for site, log in logs.items():
        if any(event.kind == "send" and _hue(event, hues) is not None for event in log):
            sites.add(site)
    return sorted(sites, key=_counting_order)


def _counting_order(site: Site) -> list[tuple[int, str]]:
    """Natural order of names: s2 before s10. Digits compare by length first, without making a number."""
    pieces = re.split(r"(\d+)", site)
    return [
        (len(piece.lstrip("0")), piece.lstrip("0")) if place % 2 else (0, piece)
        for place, piece in enumerate(pieces)
    ]


def _window(
    logs: dict[Site, Log], sites: list[Site], violation: Violation, hues: Hues, context: int
) -> _Window:
    """The most context that keeps the diagram readable."""
    shown_kinds = {"send", "deliver"}
    if violation.property in ("stability", "safe"):
        shown_kinds |= {"receive", "stable", "discard"}
    anchors = _anchors(logs, sites, violation)
    related: dict[Site, set[int]] = {}
    for site in sites:
        log = logs.get(site, [])
        related[site] = {
            place
            for place, event in enumerate(log)
            if event.kind in shown_kinds and _hue(event, hues) is not None
        }
        if violation.property == "atomicity" and site == violation.site:
            related[site] |= _neighbours(log, MessageId(violation.sender, violation.number))
    for reach in range(max(context, 0), -1, -1):
        window = {site: _around(anchors[site], len(logs.get(site, [])), reach) for site in sites}
        window = {site: places | related[site] for site, places in window.items()}
        if sum(map(len, window.values())) <= ROWS_WANTED:
            return _Window(anchors, window)
    return _Window(anchors, anchors if sum(map(len, related.values())) > ROWS_WANTED else window)


def _anchors(logs: dict[Site, Log], sites: Iterable[Site], violation: Violation) -> dict[Site, set[int]]:
    """The positions of the witness in each member's log."""
    return {
        site: {
            place
            for place, event in enumerate(logs.get(site, []))
            for witness in violation.witness
            if witness.site == site and witness.step == event.step and _is_of(event, witness)
        }
        for site in sites
    }


def _is_of(event: Event, witness: Witness) -> bool:
    """Whether a row at a witness's step is about its message: unordered rows share their step."""
    if witness.sender is None or witness.number is None or message_range(event) is None:
        return True
    return _covers(event, MessageId(witness.sender, witness.number))


def _around(places: set[int], length: int, reach: int) -> set[int]:
    return {near for place in places for near in range(max(place - reach, 0), min(place + reach + 1, length))}


def _neighbours(log: Log, message: MessageId) -> set[int]:
    """Where a member delivered the nearest lower and higher messages of the same sender."""
    below: tuple[int, int] | None = None
    above: tuple[int, int] | None = None
    for place, event in enumerate(log):
        covered = message_range(event)
        if event.kind != "deliver" or covered is None or covered[0] != message.sender:
            continue
        if covered[2] < message.number and (below is None or covered[2] > below[0]):
            below = (covered[2], place)
        if covered[1] > message.number and (above is None or covered[1] < above[0]):
            above = (covered[1], place)
    return {edge[1] for edge in (below, above) if edge is not None}


def _hue(event: Event, hues: Hues) -> int | None:
    """The first involved message that a row covers."""
    covered = message_range(event)
    if covered is None or covered[0] not in hues:
        return None
    of_sender = hues[covered[0]]
    if covered[1] == covered[2]:
        return of_sender.get(covered[1])
    return min((hue for number, hue in of_sender.items() if covered[1] <= number <= covered[2]), default=None)


def _row(column: int, event: Event, witnessed: bool, hues: Hues) -> Item:
    hue = _hue(event, hues)
    emphasis: Emphasis = "context" if hue is None else "involved"
    if witnessed:
        emphasis = "witness"
    return Item(column, 0, event.kind, emphasis, event, hue=hue)


def _gap(column: int, hidden: int) -> Item:
    return Item(column, 0, "gap", hidden=hidden)


def _shown(log: Log, places: set[int]) -> Iterator[tuple[int, int]]:
    """These places, each with 0, and between them how many rows are left out.

    Rows that were not read count, too: steps tell how many there are. A single row is shown: its count would
    take as much room.
    """
    following, step = 0, -1
    for place in sorted(places):
        between = place - following
        hidden = max(between, log[place].step - step - 1)
        if hidden:
            yield following, 0 if hidden == between == 1 else hidden
        yield place, 0
        following, step = place + 1, log[place].step
    rest = len(log) - following
    if rest:
        yield following, 0 if rest == 1 else rest


def _add_missing(
    columns: list[list[Item]], sites: list[Site], logs: dict[Site, Log], violation: Violation
) -> None:
    """Atomicity's witness is a missing delivery: mark it at the foot of the accused column."""
    if violation.property != "atomicity" or violation.site is None:
        return
    message = MessageId(violation.sender, violation.number)
    log = logs.get(violation.site, [])
    if not any(event.kind == "deliver" and _covers(event, message) for event in log):
        column = sites.index(violation.site)
        columns[column].append(Item(column, 0, "missing", "witness", message=message, hue=0))


Sends = dict[Site, list[Item]]


def _sends(items: Iterable[Item]) -> Sends:
    """The send rows by the sender of their messages."""
    sends: Sends = {}
    for item in items:
        covered = None if item.event is None else message_range(item.event)
        if item.kind == "send" and covered is not None:
            sends.setdefault(covered[0], []).append(item)
    return sends


def _origins(item: Item, sends: Sends) -> list[Item]:
    """The sends, at other members, of what a row received or delivered."""
    covered = None if item.event is None else message_range(item.event)
    if covered is None or item.kind not in ("receive", "deliver"):
        return []
    own = sends.get(covered[0], [])
    return [send for send in own if send.column != item.column and _overlap(send, item)]


def _overlap(one: Item, other: Item) -> bool:
    """Whether two rows share a message."""
    if one.event is None or other.event is None:
        return False
    ranges = message_range(one.event), message_range(other.event)
    if ranges[0] is None or ranges[1] is None or ranges[0][0] != ranges[1][0]:
        return False
    return ranges[0][1] <= ranges[1][2] and ranges[1][1] <= ranges[0][2]


def _place(columns: list[list[Item]]) -> list[list[Item]]:
    """Give every item its level, as high as its member's order and its messages' sends allow."""
    sends = _sends(item for items in columns for item in items)
    origins = {item: _origins(item, sends) for items in columns for item in items}
    start = 1 if any(items and items[0].kind == "gap" for items in columns) else 0
    level_of: dict[Item, int] = {}
    following = [0] * len(columns)
    bottom = [start - 1] * len(columns)
    while open_columns := [c for c, items in enumerate(columns) if following[c] < len(items)]:
        ready = [
            c for c in open_columns if all(send in level_of for send in origins[columns[c][following[c]]])
        ] or [min(open_columns, key=lambda c: bottom[c])]
        for column in ready:
            item = columns[column][following[column]]
            if following[column] > 0 or item.kind != "gap":
                sent = [level_of[send] for send in origins[item] if send in level_of]
                bottom[column] = max([bottom[column] + 1, *(level + FLIGHT_LEVELS for level in sent)])
                level_of[item] = bottom[column]
            else:
                level_of[item] = 0
            following[column] += 1
    foot = max(bottom, default=0)
    return [_settled(items, level_of, foot) for items in columns]


def _settled(items: list[Item], level_of: dict[Item, int], foot: int) -> list[Item]:
    """The items at their levels; a gap or missing delivery that closes a column goes to the foot."""
    settled = [replace(item, level=level_of[item]) for item in items]
    closing = foot
    for place in range(len(settled) - 1, 0, -1):
        if settled[place].kind not in ("gap", "missing"):
            break
        settled[place] = replace(settled[place], level=closing)
        closing -= 1
    return settled


def _arrows(items: Sequence[Item]) -> list[Arrow]:
    """From each send to the first row about it at each other member."""
    arrows: list[Arrow] = []
    sends = _sends(items)
    place_of = {item: index for index, item in enumerate(items)}
    received: dict[tuple[int, Site], list[Item]] = {}
    for index, item in enumerate(items):
        covered = None if item.event is None else message_range(item.event)
        if covered is None:
            continue
        earlier = received.setdefault((item.column, covered[0]), [])
        if item.kind == "receive":
            earlier.append(item)
        elif item.kind != "deliver" or any(_overlap(early, item) for early in earlier):
            continue
        for send in _origins(item, sends):
            hue = item.hue if send.hue is not None else None
            arrows.append(Arrow(place_of[send], index, hue))
    return arrows


def _absences(placed: list[list[Item]], logs: list[Log]) -> list[Span]:
    """Where a member is absent, hidden rows included: from one shown item to the next."""
    spans: list[Span] = []
    foot = max((item.level for column in placed for item in column), default=0)
    for items, log in zip(placed, logs, strict=True):
        changes = [event for event in log if event.kind in ("present", "absent")]
        absent = bool(changes) and changes[0].kind == "present" and changes[0] is not log[0]
        seen = 0
        top = 0
        for place, item in enumerate(items):
            if absent and item.level > top:
                spans.append(Span(item.column, top, item.level))
            while seen < len(changes) and _is_before(changes[seen], items, place):
                absent = changes[seen].kind == "absent"
                seen += 1
            top = item.level
        if items and absent and foot > top:
            spans.append(Span(items[0].column, top, foot))
    return spans


def _is_before(change: Event, items: Sequence[Item], place: int) -> bool:
    """Whether a change of presence lies in an item, or above it. A gap reaches to the item that follows."""
    item = items[place]
    if item.event is not None:
        return change is item.event or change.step < item.event.step
    following = items[place + 1].event if place + 1 < len(items) else None
    return following is None or change.step < following.step


def _highlights(placed: list[list[Item]]) -> list[Span]:
    """From each witness row to the next one at the same member: the steps of the argument."""
    spans: list[Span] = []
    for items in placed:
        witnesses = [item for item in items if item.emphasis == "witness"]
        for upper, lower in pairwise(witnesses):
            spans.append(Span(upper.column, upper.level, lower.level))
    return spans
