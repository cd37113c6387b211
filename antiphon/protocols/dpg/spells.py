"""Presence spells: how a member that begins or returns finds its place in the others' order.

Source: Konorski, observation 4, with the rule that a naive reset lacks. The member listens without delivering
or sending until it has heard a number of reports, and takes up a reporter's root: of what it has heard
meanwhile it keeps the root's successors, and the rest lies before its spell. So it delivers nothing twice
and has no gap. If nobody answers it is alone: one with a memory goes on where it was, one without begins an
order.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

import msgspec

from antiphon.core.effects import Absent, Effect, Present
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.order import Expected, Order
from antiphon.protocols.dpg.pdus import ORIGIN, DpgConfiguration, Report, Tag
from antiphon.protocols.dpg.reporting import Told

PATIENCE: Final = 4
"""How many times the usual number of reports may pass before whatever was heard is given up."""
MOST_WINDOWS: Final = 64
"""Reporters that are remembered while a member listens. Raising it costs memory."""
MOST_APART: Final = 1024
"""Places by which two members' orders may differ at one message: as many as one has passed over."""
LONGEST_LEAP: Final = 1 << 16
"""How far a member's order may be ahead of another's. Raising it lets a liar lead newcomers further off."""


class Window(msgspec.Struct, frozen=True, gc=False):
    """What a reporter has told of its order, and when."""

    heard_ns: Nanoseconds
    index: int
    agreed: tuple[Tag, ...]

    def bears_out(self, index: int, agreed: tuple[Tag, ...]) -> bool:
        """Whether another's latest tags stand in about the same places here."""
        if not agreed or not self.agreed:
            return index == self.index == 0
        places = {tag: place for place, tag in enumerate(agreed, index - len(agreed))}
        shared = (
            (place, places[tag])
            for place, tag in enumerate(self.agreed, self.index - len(self.agreed))
            if tag in places
        )
        return any(abs(place - other) <= MOST_APART for place, other in shared)

    def is_near(self, index: int) -> bool:
        """Whether another may have come so far, though it tells of nothing that is told here."""
        return abs(index - self.index) <= LONGEST_LEAP


class Listening:
    """What a member has heard since it began to listen.

    A reporter's order is taken up if another reporter bears it out; if none does, only after a while; and if
    it is far from all of them, only when they have fallen silent.
    """

    def __init__(self, configuration: DpgConfiguration, now: Nanoseconds) -> None:
        self._configuration = configuration
        self._begin_ns = now
        self._reports = 0
        self._empty_handed = 0
        self._heard_ns = now
        self._windows: dict[Site, Window] = {}

    def is_alone(self, now: Nanoseconds) -> bool:
        """Whether nobody who takes part has been heard for long enough."""
        return now - self._heard_ns >= self._configuration.listen_ns

    def hear(self, order: Order, now: Nanoseconds, sender: Site, report: Report, told: Told) -> bool:
        """Whether this report's root can be taken up."""
        self._reports += 1
        self._heard_ns = now
        self._note(now, sender, report.index, told.agreed)
        if self._reports < self._configuration.listen_reports or (report.index and not report.streams):
            return False
        if len(self._windows) == 1 and now - self._begin_ns < self._least_ns():
            return False  # whoever reports faster than members do is not to be the only one that was heard
        self._empty_handed += 1
        if report.index < order.agreement.index and self._empty_handed < PATIENCE:
            return False  # it is behind ourselves
        if not self._is_borne_out(now, sender):
            return False
        if self._is_connected(order, report, told):
            return True
        if self._empty_handed >= PATIENCE:
            order.forget_graph()
            self._empty_handed = 0
        return False

    def _least_ns(self) -> Nanoseconds:
        """What so many reports take if they come as fast as a group reports."""
        return self._configuration.listen_reports * self._configuration.report_cycle_ns

    def _note(self, now: Nanoseconds, sender: Site, index: int, agreed: tuple[Tag, ...]) -> None:
        windows = self._windows
        windows.pop(sender, None)
        if len(windows) >= MOST_WINDOWS:
            del windows[next(iter(windows))]
        windows[sender] = Window(now, index, agreed)

    def _is_borne_out(self, now: Nanoseconds, sender: Site) -> bool:
        """Whether others who have reported lately leave it possible that this one's order is the group's."""
        told = self._windows[sender]
        if told.index >= NUMBER_LIMIT // 2:
            return False
        since_ns = now - self._configuration.listen_ns
        others = [
            window for site, window in self._windows.items() if site != sender and window.heard_ns > since_ns
        ]
        if not others or any(window.bears_out(told.index, told.agreed) for window in others):
            return True
        return self._empty_handed >= PATIENCE and any(window.is_near(told.index) for window in others)

    @staticmethod
    def _is_connected(order: Order, report: Report, told: Told) -> bool:
        """Whether it can be told which of what was heard lies after the reporter's root."""
        if not told.agreed or told.agreed[-1] in order.graph:
            return True
        known = {*told.agreed, *told.vertices}
        return all(tag in known or is_recent(order, tag, report, told) for tag in order.graph)


class State(Enum):
    """Where a member is in its spells."""

    AWAY = "away"
    LISTENING = "listening"
    PRESENT = "present"


class Presence:
    """A member's way through its spells. Its application is told where one ends and where the next begins."""

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
        """What came before this member's start was a spell, and its end has been told."""
        self._is_absent = True

    def listen(self, now: Nanoseconds) -> None:
        """Begin to listen, whatever was before."""
        self.state = State.LISTENING
        self.listening = Listening(self._configuration, now)

    def take_part(self) -> None:
        """A spell begins, or goes on if nothing was missed."""
        self.state = State.PRESENT
        self._is_absent = False
        self._emit(Present())

    def be_absent(self) -> None:
        """A spell is over, if that was not told before."""
        if not self._is_absent:
            self._is_absent = True
            self._emit(Absent())

    def leave(self) -> None:
        self.state = State.AWAY


def take_up(
    order: Order, time_ns: Nanoseconds, report: Report, told: Told, streams: Mapping[Site, Expected]
) -> None:
    """Go on from a reporter's root, and expect of senders what is to be believed of what it expects."""
    root = told.agreed[-1] if told.agreed else ORIGIN
    agreed = set(told.agreed)
    live = set(told.vertices)
    kept = [
        tag
        for tag in order.graph
        if tag not in agreed
        and (tag in live or follows(order, root, tag) or is_recent(order, tag, report, told))
    ]
    order.begin_again(root, report.index, report.digest, list(told.agreed), kept, time_ns)
    order.stability.take_up(root, report.index, report.held_digest)
    order.lead = min(report.lead, NUMBER_LIMIT // 2)
    for sender, expected in streams.items():
        if expected > order.streams.get(sender, (0, 0)):
            order.expect(sender, expected, doubtful=True)


def follows(order: Order, root: Tag, tag: Tag) -> bool:
    return root == ORIGIN or (root in order.graph and order.graph.precedes(root, tag))


def is_recent(order: Order, tag: Tag, report: Report, told: Told) -> bool:
    """Whether a message lies in the reporter's window or after it: its sender had come so far already."""
    held = order.body(tag)
    return held is not None and held.message.index >= report.index - len(told.agreed)
