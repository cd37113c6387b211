"""Presence spells: how a member that begins or returns finds its place in the others' order.

Source: Konorski, observation 4, with the rule that a naive reset lacks. The member listens without delivering
or sending until it has heard a number of reports, and takes up a reporter's root: of what it has heard
meanwhile it keeps the root's successors, and the rest lies before its spell. So it delivers nothing twice
and has no gap. If nobody answers it is alone: one with a memory goes on where it was, one without begins an
order.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from antiphon.core.effects import Absent, Effect, Present
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.order import Order
from antiphon.protocols.dpg.pdus import ORIGIN, DpgConfiguration, Report, Tag
from antiphon.protocols.dpg.reporting import Told

PATIENCE: Final = 4
"""How many times the usual number of reports may pass before whatever was heard is given up."""


class Listening:
    """What a member has heard since it began to listen."""

    def __init__(self, configuration: DpgConfiguration, now: Nanoseconds) -> None:
        self._configuration = configuration
        self._reports = 0
        self._empty_handed = 0
        self._heard_ns = now

    def is_alone(self, now: Nanoseconds) -> bool:
        """Whether nobody who takes part has been heard for long enough."""
        return now - self._heard_ns >= self._configuration.listen_ns

    def hear(self, order: Order, now: Nanoseconds, report: Report, told: Told) -> bool:
        """Whether this report's root can be taken up."""
        if report.listening:
            return False
        self._reports += 1
        self._heard_ns = now
        if self._reports < self._configuration.listen_reports or (report.index and not report.streams):
            return False
        self._empty_handed += 1
        if report.index < order.agreement.index and self._empty_handed < PATIENCE:
            return False  # it is behind ourselves
        if self._is_connected(order, report, told):
            return True
        if self._empty_handed >= PATIENCE:
            order.forget_graph()
            self._empty_handed = 0
        return False

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


def take_up(order: Order, time_ns: Nanoseconds, report: Report, told: Told) -> None:
    """Go on from a reporter's root."""
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
    for sender, expected in report.streams.items():
        if expected > order.streams.get(sender, (0, 0)):
            order.expect(sender, expected)


def follows(order: Order, root: Tag, tag: Tag) -> bool:
    return root == ORIGIN or (root in order.graph and order.graph.precedes(root, tag))


def is_recent(order: Order, tag: Tag, report: Report, told: Told) -> bool:
    """Whether a message lies in the reporter's window or after it: its sender had come so far already."""
    held = order.body(tag)
    return held is not None and held.message.index >= report.index - len(told.agreed)
