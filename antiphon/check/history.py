"""A run's events, indexed for the checkers.

Batch rows are expanded first: a row that covers three messages becomes three actions of one step, in order.
An action's place is its index in its site's expanded log. One action comes before another at its site if its
step is lower, or if both belong to one row and its place is lower: rows of one step are unordered, and their
places only lay them out (`TIE_PHASES`).

A message's send is the sender's own send row of least step or, if the sender logged none, the send row of
least (site, step). Further send rows of the message are repetitions: they change neither its place in the
causal order nor its destinations.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple, TypeVar

from antiphon.check.evidence import Evidence
from antiphon.core.errors import InputError
from antiphon.core.ids import MessageId, Site
from antiphon.core.recording import Kind
from antiphon.trace.sanity import several_domains
from antiphon.trace.schema import Event, Run, tie_order

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
    row: int
    """The index of its row in the site's log."""


class Sending(NamedTuple):
    """The send of a message: where it is logged, and the message's destinations."""

    site: Site
    place: int
    step: int
    row: int
    destinations: frozenset[Site]


class Delivery(NamedTuple):
    """One delivery at a site, by its place in that site's log."""

    place: int
    step: int
    message: MessageId
    row: int

    def is_before(self, other: "Delivery") -> bool:
        """Whether the log shows that this delivery came first; both are of one site."""
        return self.step < other.step or (self.row == other.row and self.place < other.place)


class NamedMessage(MessageId):
    """A message that has a name in its own system; explanations show it."""

    name: str

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.name})"


def named_message(message: MessageId, name: str) -> NamedMessage:
    """The same message, shown with its name."""
    named = NamedMessage(*message)
    named.name = name
    return named


Domain = str | None
Stepped = TypeVar("Stepped", Action, Delivery)


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
        self.domains = _domains(run.run, rows)
        self._names = _names(rows)
        logged = frozenset(rows)
        members = {group: frozenset(sites) for group, sites in (run.groups or {}).items()}
        for site in sorted(rows):
            self._index(site, sorted(rows[site], key=tie_order), members, logged)
        self.delivered: dict[MessageId, tuple[Site, int]] = {}
        for site, deliveries in self.deliveries.items():
            for delivery in deliveries:
                self.delivered.setdefault(delivery.message, (site, delivery.step))
        self.firsts = {site: first_deliveries(deliveries) for site, deliveries in self.deliveries.items()}
        self.evidence = self._evidence()
        self.holed = {site for site, _ in self.evidence.holes}

    def _index(
        self,
        site: Site,
        rows: Iterable[Event],
        members: Mapping[str, frozenset[Site]],
        logged: frozenset[Site],
    ) -> None:
        """Expand one site's rows into its log."""
        log: list[Action] = []
        for index, row in enumerate(rows):
            if row.kind == "absent":
                self.absentees.add(site)
            for message in map(self._named, row_messages(row)):
                if row.kind == "send":
                    destinations = _destinations(row, members, logged)
                    self._note_sending(message, Sending(site, len(log), row.step, index, destinations))
                log.append(Action(row.step, row.kind, message, index))
            if row.kind in ("present", "absent"):
                log.append(Action(row.step, row.kind, None, index))
        self.logs[site] = log
        self.deliveries[site] = [
            Delivery(place, action.step, action.message, action.row)
            for place, action in enumerate(log)
            if action.kind == "deliver" and action.message is not None
        ]

    def _named(self, message: MessageId) -> MessageId:
        name = self._names.get(message)
        return message if name is None else named_message(message, name)

    def _evidence(self) -> Evidence:
        kinds = {action.kind for log in self.logs.values() for action in log}
        holes = ((site, first_hole(action.step for action in self.logs[site])) for site in sorted(self.logs))
        return Evidence(
            rows=bool(kinds),
            messages=bool(kinds & {"deliver", "stable", "discard"}),
            sends="send" in kinds,
            holes=tuple((site, step) for site, step in holes if step is not None),
        )

    def lanes(self) -> Iterator[tuple[Site, list[Delivery]]]:
        """Each site's first deliveries, domain by domain: what the order properties judge."""
        for site, deliveries in self.firsts.items():
            by_domain: dict[Domain, list[Delivery]] = {}
            for delivery in deliveries:
                by_domain.setdefault(self.domains.get(delivery.message), []).append(delivery)
            for lane in by_domain.values():
                yield site, lane

    def _note_sending(self, message: MessageId, sending: Sending) -> None:
        """Sites come in order of name, rows in order of step; only the sender's own row overrules."""
        known = self.sendings.get(message)
        if known is None or (sending.site == message.sender != known.site):
            self.sendings[message] = sending

    def destinations(self, message: MessageId) -> frozenset[Site]:
        """The sites that a message is addressed to; none if it was not sent."""
        sending = self.sendings.get(message)
        return frozenset() if sending is None else sending.destinations

    def is_send(self, site: Site, action: Action, message: MessageId) -> bool:
        """Whether this send action of the site is the message's send, and no repetition."""
        sending = self.sendings[message]
        return sending.site == site and sending.row == action.row


def first_deliveries(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """The first delivery of each message, in their order."""
    found: dict[MessageId, Delivery] = {}
    for delivery in deliveries:
        found.setdefault(delivery.message, delivery)
    return list(found.values())


def by_step(items: Sequence[Stepped]) -> list[list[list[Stepped]]]:
    """Items of one site in order: for each step its rows, for each row its items."""
    return [
        [list(row) for _, row in groupby(step, key=lambda item: item.row)]
        for _, step in groupby(items, key=lambda item: item.step)
    ]


def first_hole(steps: Iterable[int]) -> int | None:
    """The first number missing from ascending steps, which may repeat.

    >>> first_hole([0, 1, 1, 3])
    2
    """
    following = 0
    for step in steps:
        if step > following:
            return following
        following = step + 1
    return None


def _domains(run: str, rows: Mapping[Site, list[Event]]) -> dict[MessageId, str]:
    """The domain of each message that has one; InputError if rows of one message name two."""
    found: dict[MessageId, str] = {}
    for row in (row for log in rows.values() for row in log if row.domain is not None):
        for message in row_messages(row):
            known = found.setdefault(message, row.domain or "")
            if known != row.domain:
                raise several_domains(run, message, known, row.domain or "")
    return found


def _names(rows: Mapping[Site, list[Event]]) -> dict[MessageId, str]:
    """The name of each message that has one in its own system; the least, if rows name several."""
    found: dict[MessageId, str] = {}
    for row in (row for log in rows.values() for row in log if row.message_id is not None):
        for message in row_messages(row):
            found[message] = min(found.get(message, row.message_id or ""), row.message_id or "")
    return found


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
