"""A run's events, indexed for the checkers.

Batch rows are expanded first: a row that covers three messages becomes three actions of one step, in order.
An action's place is its index in its site's expanded log, so that 'before' at a site is simply '<'.

A message's send is the sender's own send row of least step or, if the sender logged none, the send row of
least (site, step). Further send rows of the message are repetitions: they change neither its place in the
causal order nor its destinations.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from antiphon.core.errors import InputError
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import Kind
from antiphon.trace.schema import Event, Run

MOST_EXPANDED: Final = 100_000
"""Actions that a run of few rows may expand to. Raising it costs memory: the causal pasts of n messages take
about n * n / 16 bytes."""
EXPANDED_PER_ROW: Final = 64
"""Actions per row that a run of many rows may expand to. Raising it costs memory in the same way."""


class Action(NamedTuple):
    """One event of a site for one message; or, without a message, an absence or a return."""

    step: int
    kind: Kind
    message: MessageId | None


class Sending(NamedTuple):
    """The send of a message: where it is logged, and the message's destinations."""

    site: Site
    place: int
    step: int
    destinations: frozenset[Site]


class Delivery(NamedTuple):
    """One delivery at a site, by its place in that site's log."""

    place: int
    step: int
    message: MessageId


class History:
    """One run: each site's log and deliveries, and each message's send, destinations and first delivery."""

    def __init__(self, events: Iterable[Event], run: Run) -> None:
        self.run = run.run
        rows: dict[Site, list[Event]] = {}
        for event in events:
            rows.setdefault(event.site, []).append(event)
        _require_affordable(run.run, rows)
        self.logs: dict[Site, list[Action]] = {}
        self.deliveries: dict[Site, list[Delivery]] = {}
        self.sendings: dict[MessageId, Sending] = {}
        self.absentees: set[Site] = set()
        logged = frozenset(rows)
        members = {group: frozenset(sites) for group, sites in (run.groups or {}).items()}
        for site in sorted(rows):
            self._index(site, sorted(rows[site], key=lambda row: row.step), members, logged)
        self.delivered: dict[MessageId, tuple[Site, int]] = {}
        for site, deliveries in self.deliveries.items():
            for delivery in deliveries:
                self.delivered.setdefault(delivery.message, (site, delivery.step))

    def _index(
        self,
        site: Site,
        rows: Iterable[Event],
        members: Mapping[str, frozenset[Site]],
        logged: frozenset[Site],
    ) -> None:
        """Expand one site's rows into its log."""
        log: list[Action] = []
        for row in rows:
            if row.kind == "absent":
                self.absentees.add(site)
            for message in row_messages(row):
                if row.kind == "send":
                    destinations = _destinations(row, members, logged)
                    self._note_sending(message, Sending(site, len(log), row.step, destinations))
                log.append(Action(row.step, row.kind, message))
            if row.kind in ("present", "absent"):
                log.append(Action(row.step, row.kind, None))
        self.logs[site] = log
        self.deliveries[site] = [
            Delivery(place, action.step, action.message)
            for place, action in enumerate(log)
            if action.kind == "deliver" and action.message is not None
        ]

    def _note_sending(self, message: MessageId, sending: Sending) -> None:
        """Sites come in order of name, rows in order of step; only the sender's own row overrules."""
        known = self.sendings.get(message)
        if known is None or (sending.site == message.sender != known.site):
            self.sendings[message] = sending

    def destinations(self, message: MessageId) -> frozenset[Site]:
        """The sites that a message is addressed to; none if it was not sent."""
        sending = self.sendings.get(message)
        return frozenset() if sending is None else sending.destinations

    def is_send(self, site: Site, place: int, message: MessageId) -> bool:
        """Whether the send action at this place is the message's send, and no repetition."""
        sending = self.sendings[message]
        return sending.site == site and sending.place == place


def _require_affordable(run: str, rows: Mapping[Site, list[Event]]) -> None:
    """Refuse a run that would expand too far: a few bytes may claim billions of messages."""
    logged = sum(map(len, rows.values()))
    actions = sum(row.count or 1 for log in rows.values() for row in log)
    most = max(MOST_EXPANDED, EXPANDED_PER_ROW * logged)
    if actions > most:
        raise InputError(
            f"Run {run} cannot be judged here: its {logged:,} rows cover {actions:,} messages, "
            f"and {most:,} at most are taken one by one.",
            hint="antiphon audit judges batches as wholes.",
        )


def row_messages(row: Event) -> list[MessageId]:
    """The messages that a row is about; on a send row a null sender means the site itself."""
    if row.kind in ("present", "absent") or row.number is None:
        return []
    sender = row.site if row.sender is None else row.sender
    return [MessageId(sender, row.number + offset) for offset in range(row.count or 1)]


def _destinations(
    row: Event, members: Mapping[str, frozenset[Site]], logged: frozenset[Site]
) -> frozenset[Site]:
    if row.destinations is not None:
        return frozenset(row.destinations)
    return logged if row.group is None else members.get(row.group, logged)
