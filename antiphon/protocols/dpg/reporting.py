"""Reports: what a member tells of its order, and what it learns from another's.

Source: Konorski, sections 4.1 and 4.3. A report tells the undelivered graph and, beyond the paper, the true
arcs of the latest incorporated vertices: whoever missed one that all others have delivered already would
otherwise never learn where it stands. Arcs into a vertex that we have incorporated teach us nothing any
more, except that a tail which is still in our graph came too late.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.order import MARKED_LINK, TRUE_LINK, Order
from antiphon.protocols.dpg.pdus import MOST_ARCS, ORIGIN, Arc, Message, Report, Tag
from antiphon.protocols.dpg.tag_lists import are_tags, unpack_tags

MARK: Final = 1 << 63


class Told(NamedTuple):
    """A report's lists, unpacked."""

    agreed: tuple[Tag, ...]
    links: bytes
    vertices: tuple[Tag, ...]
    arcs: tuple[Arc, ...]
    lost: tuple[Tag, ...]
    gone: tuple[Tag, ...]
    passed: tuple[Tag, ...]


class Learned(NamedTuple):
    """What came of a report."""

    news: bool
    """Whether it told an arc or a vertex that was not known here."""
    lacking: bool
    """Whether its sender does not know what we know of the order of its vertices."""
    behind: bool
    """Whether it tells no more of what follows what is agreed here: we have missed too much."""


def pack_arcs(arcs: Iterable[Arc]) -> bytes:
    chosen = [end for tail, head, marked in islice(arcs, MOST_ARCS) for end in (tail | marked * MARK, head)]
    return struct.pack(f">{len(chosen)}Q", *chosen)


def true_arcs(order: Order) -> Iterable[Arc]:
    """Of the graph's vertices first, then of the latest agreed ones."""
    graph = order.graph
    for head in graph:
        for tail, marked in graph.origins(head):
            yield tail, head, marked
    for head, origins in order.past.items():
        for tail, marked in origins:
            yield tail, head, marked


def arcs_as_sent(message: Message) -> list[Arc]:
    """What its sender knew when it handed it over."""
    return [(tail, message.tag, False) for tail in {message.previous, message.seen} - {ORIGIN, message.tag}]


def lists_bytes(report: Report) -> int:
    """What a report's lists take: most of it."""
    lists = (
        report.agreed, report.links, report.vertices, report.arcs, report.lost, report.gone, report.passed
    )  # fmt: skip
    return sum(map(len, lists)) + len(report.service)


def read(report: Report) -> Told | None:
    """A report's lists, or None if it makes no sense."""
    packed = (report.agreed, report.vertices, report.arcs, report.lost, report.gone, report.passed)
    whole = [tags for part in packed if (tags := unpack_tags(part)) is not None]
    if len(whole) < len(packed):
        return None
    agreed, vertices, ends, lost, gone, passed = whole
    if len(report.links) != len(agreed) or len(ends) % 2 or report.index < len(agreed):
        return None
    arcs = tuple((tail & ~MARK, head, tail >= MARK) for tail, head in zip(ends[::2], ends[1::2], strict=True))
    if not are_tags((*agreed, *vertices, *lost, *ends[1::2])):
        return None
    return Told(agreed, report.links, vertices, arcs, lost, gone, passed)


def unite(order: Order, time_ns: Nanoseconds, index: int, told: Told, *, shared: bool) -> Learned:
    """Join another's graph and history with ours; `index` is how far it has come.

    On a channel that reports share with messages (`shared`) nothing but reports tells what the channel did
    not: what they tell no more, or tell too late, will not be told.
    """
    lacking = _is_lacking(order, told)
    if shared:
        for tag in _passed_by(order, told.agreed):
            order.skip(tag)
    news, behind = _follow(order, time_ns, index, told.agreed, told.links)
    if shared and _is_untold(order, index, told.agreed):
        behind = True
    for tag in told.vertices:
        if not order.is_known(tag) and order.add(time_ns, tag):
            order.connect_as_sent(tag)
            news = True
    for tail, head, marked in told.arcs:
        if head in order.graph:
            if tail != head:
                news |= order.graph.connect(tail, head, marked=marked)
        elif tail in order.graph and order.is_placed(head):
            order.skip(tail)
    return Learned(news, lacking, behind)


def _is_lacking(order: Order, told: Told) -> bool:
    """Whether some of its vertices have their place here, or follow contiguously what it does not say."""
    marked = {head for _, head, is_marked in told.arcs if is_marked}
    graph = order.graph
    return any(
        graph.has_mark(tag) and tag not in marked if tag in graph else order.is_placed(tag)
        for tag in told.vertices
    )


def _passed_by(order: Order, agreed: Sequence[Tag]) -> list[Tag]:
    """What we never heard of, though it stands between two that have their places here: it is too late.

    What stands before the first of those may lie before our spell.
    """
    tombstones = order.tombstones
    if all(map(tombstones.__contains__, agreed)):
        return []
    placed = [place for place, tag in enumerate(agreed) if order.is_placed(tag)]
    return [tag for tag in agreed[placed[0] : placed[-1]] if not order.is_known(tag)] if placed else []


def _is_untold(order: Order, index: int, agreed: Sequence[Tag]) -> bool:
    """Whether the other tells no more of what follows what is agreed here."""
    is_beyond = bool(agreed) and index - len(agreed) > order.agreement.index
    return is_beyond and not any(tag in order.tombstones for tag in agreed)


def _follow(
    order: Order, time_ns: Nanoseconds, index: int, agreed: Sequence[Tag], links: bytes
) -> tuple[bool, bool]:
    """Take in what the other has agreed on beyond what is known here; whether there was some, or too much."""
    tombstones = order.tombstones
    if not agreed or agreed[-1] in tombstones:
        return False, False
    begin = len(agreed)
    while begin and agreed[begin - 1] not in tombstones:
        begin -= 1
    if begin == 0 and index > len(agreed) and agreed[0] not in order.graph:
        return False, True
    news = False
    for place in range(begin, len(agreed)):
        tag = agreed[place]
        if tag not in order.graph:
            if not order.add(time_ns, tag):
                break
            news = True
        link = links[place]
        if link & TRUE_LINK:
            tail = agreed[place - 1] if place else (ORIGIN if index == len(agreed) else None)
            if tail is not None:
                news |= order.graph.connect(tail, tag, marked=link & MARKED_LINK == MARKED_LINK)
    return news, False
