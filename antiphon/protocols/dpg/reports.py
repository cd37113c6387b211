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
STREAM_BYTES: Final = 20
"""About what a sender's next number takes in a report."""


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
    lacking: Tag | None
    """A vertex of its sender's, if there is one, of whose order more is known here."""
    behind: bool
    """Whether its sender can no longer report what follows our agreed order: this member missed too much."""
    apart: bool
    """Whether it leaves out what follows our agreed order, though its sender could report that."""


def pack_arcs(arcs: Iterable[Arc]) -> bytes:
    chosen = [end for tail, head, marked in islice(arcs, MOST_ARCS) for end in (tail | marked * MARK, head)]
    return struct.pack(f">{len(chosen)}Q", *chosen)


class GraphLists(NamedTuple):
    """A member's graph as its report tells it: the lists `vertices`, `steps` and `arcs`."""

    vertices: list[Tag]
    steps: bytes
    arcs: list[Arc]


def graph_lists(
    order: Order, own: Sequence[Message], agreed: Sequence[Tag], links: bytes, most: int
) -> GraphLists:
    """The oldest vertices, `most` at most, and their true arcs, then those of the `agreed` tags.

    `own` are own messages without a vertex. An arc along the listed tags takes a byte as a step. Arcs that
    follow from an unbroken run of steps and links are left out.
    """
    vertices = [message.tag for message in own]
    steps = bytearray(len(vertices))
    arcs = [arc for message in own for arc in arcs_as_sent(message)]
    before = vertices[-1] if vertices else agreed[-1] if agreed else ORIGIN
    run = set() if own else _run_to_root(agreed, links)
    is_anchored = not own
    for tag in islice(order.graph, max(0, most - len(own))):
        origins = dict(order.graph.origins(tag))
        marked = origins.pop(before, None)
        if marked is None:
            run, is_anchored = set(), False
        arcs += [
            (tail, tag, mark)
            for tail, mark in origins.items()
            if mark or not (tail in run or (is_anchored and order.is_linked(tail)))
        ]
        steps.append(0 if marked is None else MARKED_LINK if marked else TRUE_LINK)
        vertices.append(tag)
        run.add(tag)
        before = tag
    arcs += [(tail, head, mark) for head in agreed for tail, mark in order.past.get(head, ())]
    return GraphLists(vertices, bytes(steps), arcs)


def _run_to_root(agreed: Sequence[Tag], links: bytes) -> set[Tag]:
    """The agreed tags from which true links lead to the root."""
    place = len(agreed) - 1
    while place > 0 and links[place] & TRUE_LINK:
        place -= 1
    return set(agreed[max(0, place) :])


def _along(before: Tag, vertices: Sequence[Tag], steps: bytes) -> list[Arc]:
    """The arcs that steps stand for."""
    tails = (before, *vertices)
    return [
        (tail, head, step & MARKED_LINK == MARKED_LINK)
        for tail, head, step in zip(tails, vertices, steps, strict=False)
        if step & TRUE_LINK
    ]


def arcs_as_sent(message: Message) -> list[Arc]:
    """The arcs that its sender knew when it handed the message over."""
    return [(tail, message.tag, False) for tail in {message.previous, message.seen} - {ORIGIN, message.tag}]


def lists_bytes(report: Report) -> int:
    """The bytes of a report's lists, which are most of it."""
    lists = (
        report.agreed, report.links, report.vertices, report.steps, report.arcs, report.lost, report.gone,
        report.passed, report.service, report.checkpoints,
    )  # fmt: skip
    return sum(map(len, lists)) + STREAM_BYTES * len(report.streams)


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
    if not are_tags((*agreed, *vertices, *lost, *ends[1::2])) or len(report.steps) > len(vertices):
        return None
    arcs += tuple(_along(agreed[-1] if agreed else ORIGIN, vertices, report.steps))
    return ReportLists(agreed, report.links, vertices, arcs, lost, gone, passed)


def merge(
    order: Order, time_ns: Nanoseconds, index: int, oldest: int, lists: ReportLists, *, shared: bool
) -> Merged:
    """Merge another member's graph and history into ours; `index` is its index.

    On a channel that reports share with messages (`shared`) only reports recover order that the channel did
    not deliver: what they no longer carry, or carry too late, is lost.
    """
    lacking = _lacking(order, lists)
    if shared:
        for tag in _passed_by(order, lists.agreed):
            order.skip(tag)
    news, apart = _follow(order, time_ns, index, lists.agreed, lists.links)
    if shared:
        apart = apart or _is_untold(order, index, lists.agreed)
        behind = apart and oldest > order.agreement.index + 1
    else:
        behind = apart
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
    return Merged(news, lacking, behind, apart)


def _lacking(order: Order, lists: ReportLists) -> Tag | None:
    """The first of its vertices that has a place here, or a mark here that it does not report."""
    marked = {head for _, head, is_marked in lists.arcs if is_marked}
    graph = order.graph
    return next(
        (
            tag
            for tag in lists.vertices
            if (graph.has_mark(tag) and tag not in marked if tag in graph else order.is_placed(tag))
        ),
        None,
    )


def tells_place(lists: ReportLists, tag: Tag) -> bool:
    """Whether a report tells a vertex's place, or what it follows contiguously."""
    return tag in lists.agreed or any(head == tag and is_marked for _, head, is_marked in lists.arcs)


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
    """Whether the other does not report what follows our agreed order."""
    is_beyond = bool(agreed) and index - len(agreed) > order.agreement.index
    return is_beyond and not any(tag in order.tombstones for tag in agreed)


def _follow(
    order: Order, time_ns: Nanoseconds, index: int, agreed: Sequence[Tag], links: bytes
) -> tuple[bool, bool]:
    """Merge the other's agreed tags beyond those known here.

    Returns whether there were any, and whether there is a gap before them: then they teach nothing.
    """
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
