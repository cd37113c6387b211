"""Presence spells: how a member that begins or returns finds its place in the others' order.

Source: Konorski, observation 4, with a rule that the paper's naive reset lacks. The member listens without
delivering or sending until it has heard a number of reports. Then it adopts a reporter's root: of what it has
received meanwhile it keeps the root's successors, and the rest lies before its spell. So it delivers nothing
twice and has no gap. If no member answers it is alone: it goes on where it was, or begins an order.
"""

from collections.abc import Callable, Mapping, Set
from enum import Enum
from typing import Final

import msgspec

from antiphon.core.effects import Absent, Effect, Present
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.order import Expected, Order
from antiphon.protocols.dpg.pdus import ORIGIN, DpgConfiguration, Report, Tag
from antiphon.protocols.dpg.reports import ReportLists
from antiphon.protocols.dpg.tag_lists import unpack_tags

PATIENCE: Final = 4
"""Reports without success after which the graph is given up. Raising it costs time to join."""
MOST_WINDOWS: Final = 64
"""Reporters that are remembered while a member listens. Raising it costs memory."""
MOST_APART: Final = 1024
"""Places by which two members' orders may differ at a message. Raising it believes worse orders."""
UNTOLD: Final = 8
"""Reports that may leave open whether this member's order is theirs. Raising it costs time to return."""
LONGEST_LEAP: Final = 1 << 16
"""Places by which an order may be ahead of another. Raising it lets a liar lead newcomers further astray."""


class Window(msgspec.Struct, frozen=True, gc=False):
    """The agreed tags that a member reported, and when."""

    heard_ns: Nanoseconds
    index: int
    agreed: tuple[Tag, ...]

    def confirms(self, index: int, agreed: tuple[Tag, ...]) -> bool:
        """Whether another member's latest tags have about the same places here."""
        if not agreed or not self.agreed:
            return index == self.index == 0
        places = {tag: place for place, tag in enumerate(agreed, index - len(agreed))}
        shared = (
            (place, places[tag])
            for place, tag in enumerate(self.agreed, self.index - len(self.agreed))
            if tag in places
        )
        return any(abs(place - other) <= MOST_APART for place, other in shared)

    def is_fork_of(self, other: "Window") -> bool:
        """Whether both orders went on differently, or have no tag in common."""
        places = {tag: place for place, tag in enumerate(other.agreed)}
        for place in range(len(self.agreed) - 1, -1, -1):
            if self.agreed[place] in places:
                after = places[self.agreed[place]] < len(other.agreed) - 1
                return after and place < len(self.agreed) - 1
        return bool(self.agreed and other.agreed)

    def is_near(self, index: int) -> bool:
        """Whether another member may have this index, though the windows have no tag in common."""
        return abs(index - self.index) <= LONGEST_LEAP


class Listening:
    """What a member has heard since it began to listen.

    A reporter's order is adopted if another reporter confirms it; if none does, only after a while; and if
    it is far from all others, only when they have fallen silent. Of two orders that forked, the order of more
    reporters is adopted.
    """

    def __init__(self, configuration: DpgConfiguration, now: Nanoseconds) -> None:
        self._configuration = configuration
        self._begin_ns = now
        self._reports = 0
        self._empty_handed = 0
        self._untold = 0
        self._heard_ns = now
        self._windows: dict[Site, Window] = {}

    def is_alone(self, now: Nanoseconds) -> bool:
        """Whether no member that takes part was heard for long enough."""
        return now - self._heard_ns >= self._configuration.listen_ns

    def hear(self, order: Order, now: Nanoseconds, sender: Site, report: Report, lists: ReportLists) -> bool:
        """Whether this report's root can be adopted."""
        self._reports += 1
        self._heard_ns = now
        self._note(now, sender, report.index, lists.agreed)
        if self._reports < self._configuration.listen_reports or (report.index and not report.streams):
            return False
        if len(self._windows) == 1 and now - self._begin_ns < self._least_ns():
            return False  # a liar that reports faster than members do must not be the only one heard
        self._empty_handed += 1
        if report.index < order.agreement.index and self._empty_handed < PATIENCE:
            return False  # it is behind this member
        if not self._is_confirmed(now, sender) or self._is_smaller_side(now, sender):
            return False
        if not _tells_fork(order, report, lists) and self._untold < UNTOLD:
            self._untold += 1
            return False
        if self._is_connected(order, report, lists):
            return True
        if self._empty_handed >= PATIENCE:
            order.forget_graph()
            self._empty_handed = 0
        return False

    def _least_ns(self) -> Nanoseconds:
        """The time of `listen_reports` report cycles."""
        return self._configuration.listen_reports * self._configuration.report_cycle_ns

    def _note(self, now: Nanoseconds, sender: Site, index: int, agreed: tuple[Tag, ...]) -> None:
        windows = self._windows
        windows.pop(sender, None)
        if len(windows) >= MOST_WINDOWS:
            del windows[next(iter(windows))]
        windows[sender] = Window(now, index, agreed)

    def _is_confirmed(self, now: Nanoseconds, sender: Site) -> bool:
        """Whether recent reports of others allow that this order is the group's."""
        reported = self._windows[sender]
        if reported.index >= NUMBER_LIMIT // 2:
            return False
        since_ns = now - self._configuration.listen_ns
        others = [
            window for site, window in self._windows.items() if site != sender and window.heard_ns > since_ns
        ]
        if not others or any(window.confirms(reported.index, reported.agreed) for window in others):
            return True
        return self._empty_handed >= PATIENCE and any(window.is_near(reported.index) for window in others)

    def _is_smaller_side(self, now: Nanoseconds, sender: Site) -> bool:
        """Whether more members report an order that forked from this reporter's."""
        reported, since_ns = self._windows[sender], now - self._configuration.listen_ns
        lately = {site: window for site, window in self._windows.items() if window.heard_ns > since_ns}
        rivals = {site for site, window in lately.items() if window.is_fork_of(reported)}
        return len(lately) < 2 * len(rivals)

    @staticmethod
    def _is_connected(order: Order, report: Report, lists: ReportLists) -> bool:
        """Whether it is known which received messages lie after the reporter's root."""
        if not lists.agreed or lists.agreed[-1] in order.graph:
            return True
        known = {*lists.agreed, *lists.vertices}
        return all(tag in known or is_recent(order, tag, report, lists) for tag in order.graph)


def is_smaller(side: Set[Site], other: Set[Site]) -> bool:
    """Whether a side of a fork has to yield to the other: the smaller side, or the later by name."""
    if len(side) != len(other):
        return len(side) < len(other)
    return min(other) < min(side)


def _tells_fork(order: Order, report: Report, lists: ReportLists) -> bool:
    """Whether a report shows up to where this member's order is its sender's."""
    agreement = order.agreement
    if agreement.index == 0 or report.index - len(lists.agreed) <= agreement.index:
        return True
    told = (unpack_tags(report.checkpoints) or ())[::2]
    return agreement.index in told or not told


class State(Enum):
    """Where a member is in its spells."""

    AWAY = "away"
    LISTENING = "listening"
    PRESENT = "present"


class Presence:
    """A member's spells. Its application learns where a spell ends and where the next begins."""

    def __init__(self, configuration: DpgConfiguration, emit: Callable[[Effect], None]) -> None:
        self._configuration = configuration
        self._emit = emit
        self._is_absent = False
        self.state = State.AWAY
        self.listening = Listening(configuration, 0)

    def begin(self) -> None:
        """A member without a past is present from the first."""
        self.state = State.PRESENT

    def begin_absent(self) -> None:
        """A spell preceded this member's start, and its end was told."""
        self._is_absent = True

    def listen(self, now: Nanoseconds) -> None:
        """Begin to listen."""
        self.state = State.LISTENING
        self.listening = Listening(self._configuration, now)

    def take_part(self) -> None:
        """A spell begins, or goes on if nothing was missed."""
        self.state = State.PRESENT
        self._is_absent = False
        self._emit(Present())

    def be_absent(self) -> None:
        """A spell is over, unless that was told before."""
        if not self._is_absent:
            self._is_absent = True
            self._emit(Absent())

    def leave(self) -> None:
        self.state = State.AWAY


def adopt(
    order: Order, time_ns: Nanoseconds, report: Report, lists: ReportLists, streams: Mapping[Site, Expected]
) -> None:
    """Adopt a reporter's root, and its believable `streams`."""
    root = lists.agreed[-1] if lists.agreed else ORIGIN
    agreed = set(lists.agreed)
    live = set(lists.vertices)
    kept = [
        tag
        for tag in order.graph
        if tag not in agreed
        and (tag in live or follows(order, root, tag) or is_recent(order, tag, report, lists))
    ]
    checkpoints = unpack_tags(report.checkpoints) or ()
    waiting = waiting_tags(report, lists) if order.needs_quorum else []
    order.adopt(root, report.index, report.digest, lists.agreed, checkpoints, kept, waiting, time_ns)
    order.stability.adopt(report.held if waiting else root, report.index - len(waiting), report.held_digest)
    order.lead = min(report.lead, NUMBER_LIMIT // 2)
    for sender, expected in streams.items():
        if expected > order.streams.get(sender, (0, 0)):
            order.expect(sender, expected, doubtful=True)


def waiting_tags(report: Report, lists: ReportLists) -> list[Tag]:
    """What its sender has incorporated and not delivered: it waits for a quorum."""
    agreed = list(lists.agreed)
    if report.held == ORIGIN and report.index == len(agreed):
        return agreed
    return agreed[agreed.index(report.held) + 1 :] if report.held in agreed else []


def follows(order: Order, root: Tag, tag: Tag) -> bool:
    return root == ORIGIN or (root in order.graph and order.graph.precedes(root, tag))


def is_recent(order: Order, tag: Tag, report: Report, lists: ReportLists) -> bool:
    """Whether a message lies in the reporter's window or after it, by its sender's index."""
    held = order.body(tag)
    return held is not None and held.message.index >= report.index - len(lists.agreed)
