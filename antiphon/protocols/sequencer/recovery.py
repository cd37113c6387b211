"""How a sequencer that lost its memory learns the order again: it asks, waits, and fetches.

The most advanced member's position is the end of the order. What a member holds beyond a gap has been
delivered nowhere, and its sender will ask for a place again. So nothing is lost by leaving it out, and the
order never depends on which of two members buffered what.

A sequencer that knows its group waits until all members have answered or the time is over, and then for the
first answer. A sequencer that knows no members, as in a live group, waits for the time to be over; if no
answer has come by then, there is no order, and it begins one.
"""

from collections.abc import Iterable
from typing import NamedTuple

from antiphon.core.effects import Effect, Multicast, Send, SetTimer
from antiphon.core.fields import NUMBER_LIMIT
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.sequencer.log import Entry
from antiphon.protocols.sequencer.pdus import (
    MOST_MEMBERS,
    MOST_MISSING,
    NO_POSITION,
    Fetch,
    Ordered,
    Recover,
    Report,
    SequencerConfiguration,
)


class Recovered(NamedTuple):
    """The order up to `position`, with what is not stable yet, as the members of `epoch` knew it."""

    epoch: int
    """-1 if no member knew any order."""
    position: int
    stable: int
    streams: dict[Site, int]
    entries: dict[int, Entry]
    reports: dict[Site, Report]

    def holders(self, place: int) -> list[Site]:
        """The members that have reported to hold the entry at a place."""
        return [
            site
            for site, report in self.reports.items()
            if report.order_epoch == self.epoch and report.kept_from <= place < report.position
        ]


class Recovery:
    """Repeats its questions until every answer needed has come."""

    def __init__(self, epoch: int, others: tuple[Site, ...], configuration: SequencerConfiguration) -> None:
        self._epoch = epoch
        self._others = others
        self._configuration = configuration
        self._deadline_ns: Nanoseconds = 0
        self._reports: dict[Site, Report] = {}
        self._waiting = set(others)
        self._plan: Recovered | None = None
        self._fetches = 0
        """How often the bodies of this plan were asked for."""

    def begin(self, now: Nanoseconds) -> list[Effect]:
        """Ask all members, and forget earlier answers."""
        self._deadline_ns = now + self._configuration.recovery_ns
        self._reports.clear()
        self._waiting = set(self._others)
        self._plan = None
        return self._multicast_recover()

    def makes_sense(self, report: Report) -> bool:
        """Whether a report is possible: the order never runs more than two windows ahead of what is stable.

        Twice that is refused, and so is a position that leaves too few numbers for the messages to come.
        """
        if report.position == NO_POSITION:
            return True
        if not max(report.kept_from, report.stable) <= report.position < NUMBER_LIMIT // 2:
            return False
        return report.position - report.stable <= 4 * self._configuration.order_window

    def on_answer(self, now: Nanoseconds, sender: Site, pdu: Report | Ordered) -> list[Effect]:
        """Take an answer that makes sense."""
        if isinstance(pdu, Report):
            room = sender in self._reports or len(self._reports) < MOST_MEMBERS
            if self._plan is None and room:
                self._reports[sender] = pdu
                self._waiting.discard(sender)
            return self._fetch() if self._make_plan(now) else []
        plan = self._plan
        place = pdu.position
        if plan is not None and place >= plan.stable and sender in plan.holders(place):
            plan.entries.setdefault(place, Entry(pdu.sender, pdu.number, pdu.bodies, pdu.incarnation))
        return []

    def tick(self, now: Nanoseconds, gone: Iterable[Site]) -> list[Effect]:
        """Repeat what was not answered; begin again if a member that holds something does not answer."""
        self._waiting.difference_update(gone)
        if self._make_plan(now):
            return self._fetch()
        if self._plan is None:
            return self._multicast_recover()
        return self._fetch() if now < self._deadline_ns else self.begin(now)

    def outcome(self) -> Recovered | None:
        """The order, once it is complete."""
        return self._plan if self._plan is not None and not self._lacking() else None

    def _multicast_recover(self) -> list[Effect]:
        return [
            Multicast(Recover(self._epoch)),
            SetTimer("recover", self._configuration.repeat_ns),
        ]

    def _make_plan(self, now: Nanoseconds) -> bool:
        """Decide what the order is, if enough members have answered."""
        if self._plan is not None or not self._has_enough(now):
            return False
        useful = [report for report in self._reports.values() if report.position >= 0]
        epoch = max((report.order_epoch for report in useful), default=-1)
        useful = [report for report in useful if report.order_epoch == epoch]
        position, streams = 0, dict[Site, int]()
        for report in useful:
            if report.position >= position:
                position, streams = report.position, report.streams
        stable = min(position, max((report.stable for report in useful), default=0))
        for place in range(stable, position):
            if not any(report.kept_from <= place < report.position for report in useful):
                stable = place + 1
        self._deadline_ns = now + self._configuration.recovery_ns
        self._plan = Recovered(epoch, position, stable, dict(streams), {}, dict(self._reports))
        self._fetches = 0
        return True

    def _has_enough(self, now: Nanoseconds) -> bool:
        if now < self._deadline_ns and (self._waiting or not self._others):
            return False
        return bool(self._reports) or not self._others

    def _lacking(self) -> list[int]:
        assert self._plan is not None
        plan = self._plan
        return [place for place in range(plan.stable, plan.position) if place not in plan.entries]

    def _fetch(self) -> list[Effect]:
        """Ask for the bodies, each from a member that holds it; in the next attempt from another."""
        assert self._plan is not None
        plan = self._plan
        wanted: dict[Site, list[int]] = {}
        for place in self._lacking()[:MOST_MISSING]:
            holders = plan.holders(place)
            wanted.setdefault(holders[self._fetches % len(holders)], []).append(place)
        self._fetches += 1
        effects: list[Effect] = [
            Send(site, Fetch(self._epoch, tuple(places))) for site, places in wanted.items()
        ]
        effects.append(SetTimer("recover", self._configuration.repeat_ns))
        return effects
