"""The contents of reports: packing, reading, and merging them into an order.

Source: Konorski, sections 4.1 and 4.3. A report carries the undelivered graph and, beyond the paper, the true
arcs of the latest incorporated vertices: a member that missed a vertex which all others have delivered would
otherwise never learn its place. Arcs into a vertex that is incorporated here teach nothing any more, except
that a tail which is still in the graph came too late.
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


class ReportLists(NamedTuple):
    """A report's lists, unpacked."""

    agreed: tuple[Tag, ...]
    links: bytes
    vertices: tuple[Tag, ...]
    arcs: tuple[Arc, ...]
    lost: tuple[Tag, ...]
    gone: tuple[Tag, ...]
    passed: tuple[Tag, ...]


class Merged(NamedTuple):
    """What came of a report."""

    news: bool
    """Whether it brought an arc or a vertex that was not known here."""
    lacking: bool
    """Whether its sender lacks order of its vertices that is known here."""
    behind: bool
    """Whether it no longer carries what follows our agreed order: this member missed too much."""


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
    """The arcs that its sender knew when it handed the message over."""
    return [(tail, message.tag, False) for tail in {message.previous, message.seen} - {ORIGIN, message.tag}]


def lists_bytes(report: Report) -> int:
    """The bytes of a report's lists, which are most of it."""
    lists = (
        report.agreed, report.links, report.vertices, report.arcs, report.lost, report.gone, report.passed
    )  # fmt: skip
    return sum(map(len, lists)) + len(report.service)


def read(report: Report) -> ReportLists | None:
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
    return ReportLists(agreed, report.links, vertices, arcs, lost, gone, passed)


def merge(order: Order, time_ns: Nanoseconds, index: int, lists: ReportLists, *, shared: bool) -> Merged:
    """Merge another member's graph and history into ours; `index` is its index.

    On a channel that reports share with messages (`shared`) only reports recover order that the channel did
    not deliver: what they no longer carry, or carry too late, is lost.
    """
    lacking = _is_lacking(order, lists)
    if shared:
        for tag in _passed_by(order, lists.agreed):
            order.skip(tag)
    news, behind = _follow(order, time_ns, index, lists.agreed, lists.links)
    if shared and _is_untold(order, index, lists.agreed):
        behind = True
    for tag in lists.vertices:
        if not order.is_known(tag) and order.add(time_ns, tag):
            order.connect_as_sent(tag)
            news = True
    for tail, head, marked in lists.arcs:
        if head in order.graph:
            if tail != head:
                news |= order.graph.connect(tail, head, marked=marked)
        elif tail in order.graph and order.is_placed(head):
            order.skip(tail)
    return Merged(news, lacking, behind)


def _is_lacking(order: Order, lists: ReportLists) -> bool:
    """Whether some of its vertices have a place here, or a mark here that it does not report."""
    marked = {head for _, head, is_marked in lists.arcs if is_marked}
    graph = order.graph
    return any(
        graph.has_mark(tag) and tag not in marked if tag in graph else order.is_placed(tag)
        for tag in lists.vertices
    )


def _passed_by(order: Order, agreed: Sequence[Tag]) -> list[Tag]:
    """Unknown tags between two that have places here: they are too late.

    A tag before the first of those may lie before this spell.
    """
    tombstones = order.tombstones
    if all(map(tombstones.__contains__, agreed)):
        return []
    placed = [place for place, tag in enumerate(agreed) if order.is_placed(tag)]
    return [tag for tag in agreed[placed[0] : placed[-1]] if not order.is_known(tag)] if placed else []


def _is_untold(order: Order, index: int, agreed: Sequence[Tag]) -> bool:
    """Whether the other no longer reports what follows our agreed order."""
    is_beyond = bool(agreed) and index - len(agreed) > order.agreement.index
    return is_beyond and not any(tag in order.tombstones for tag in agreed)


def _follow(
    order: Order, time_ns: Nanoseconds, index: int, agreed: Sequence[Tag], links: bytes
) -> tuple[bool, bool]:
    """Merge the other's agreed tags beyond those known here. Returns whether there were any, or too many."""
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
