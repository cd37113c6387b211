"""From records to rows of a trace: message ids become senders and numbers, positions become steps.

- A message that its log names by id alone gets its place among its sender's sends as its number. An id that
  no send names gets a sender of its own, so that no order is made up for it.
- A site's rows are ordered by what the log orders them by; rows with equal values get equal steps.
- A message has one domain: the one that its send names, else the one on which its other records agree. All
  its rows have it.
- A send without destinations is for the sites that read its domain, and for no publisher: `readers` has the
  rules. A message whose domain no record tells gets a domain of its own, so that no order is made up for it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from antiphon.core.ids import Site
from antiphon.core.recording import Property
from antiphon.trace.adapters.notes import (
    LEAST_STRANGERS,
    MOST_COMPARED,
    Evidence,
    group_note,
    judgeable,
    members,
    reach_note,
    repeat_note,
    torn_note,
    undecided_note,
)
from antiphon.trace.adapters.readers import Readers
from antiphon.trace.adapters.record import Record
from antiphon.trace.schema import ACCEPTED, Event, Run

Audience = Literal["consumers", "everyone"]
UNNAMED = "messages"
"""The sender of messages that have a number but neither a sender nor a domain."""


Place = tuple[int, int, int]
"""Where a record stood: the file's place among the files, the line, the record's place in the file."""


class Placed(NamedTuple):
    """A record and where it stood."""

    record: Record
    place: Place


class Numbered(msgspec.Struct, frozen=True):
    """One run of an imported trace, and sentences about what its log cannot tell."""

    run: Run
    events: list[Event]
    notes: tuple[str, ...]


class _Message(NamedTuple):
    sender: Site
    number: int


def _text(message: _Message) -> str:
    return f"{message.sender}:{message.number}"


def number_records(
    run: str, placed: Sequence[Placed], promises: Iterable[Property], protocol: str, *,
    audience: Audience = "consumers", marks_acceptance: bool = False,
    holed: Collection[Site] = (), merged: Site | None = None, is_routed: bool = False,
) -> Numbered:  # fmt: skip
    """The rows of one run. `holed` sites may lack rows; `merged` is the site that stands for consumers.

    With `is_routed` only those destinations count that consumed anything.
    """
    numbering = _Numbering(placed)
    rows = _Rows(run, placed, numbering, audience, marks_acceptance, holed, is_routed)
    events = rows.events()
    groups = [] if audience == "everyone" else list(rows.consumer_groups())
    undecided = [] if audience == "everyone" else list(rows.undecided())
    beyond = list(_reach_notes(placed))
    files = {
        place[0]
        for record, place in placed
        if record.site == merged and record.kind == "deliver" and record.order is None
    }
    evidence = Evidence(
        numbering.has_sends, numbering.tied_sends, bool(numbering.unsent), bool(groups), len(files) > 1,
        bool(beyond), _are_strangers(placed, numbering), rows.are_astray(), bool(undecided),
        rows.unordered(),
    )  # fmt: skip
    kept, notes = judgeable(promises, evidence)
    notes += [*groups, *undecided, *numbering.torn_notes(), *beyond, *_repeat_notes(placed)]
    return Numbered(Run(run, protocol, kept), events, tuple(notes))


class _Numbering:
    """Which message each record speaks of, and which domain and group each message has."""

    def __init__(self, placed: Sequence[Placed]) -> None:
        sends = [each for each in placed if each.record.kind == "send"]
        self.has_sends = bool(sends)
        self.tied_sends = 0
        self.unsent: set[str] = set()
        self._by_id: dict[str, _Message] = {}
        self._number_sends(sends)
        self._groups: dict[_Message, str | None] = {}
        for each in sends:
            self._groups.setdefault(self.message(each.record), each.record.group)
        self._domains: dict[_Message, str | None] = {}
        self._torn: set[str] = set()
        self._plain: set[_Message] = set()
        self.is_mixed = False
        self._place([record for record, _ in placed if record.kind not in ("present", "absent")])

    def _number_sends(self, sends: Iterable[Placed]) -> None:
        """Each id's first send gives it its place among its sender's messages."""
        counts: Counter[Site] = Counter()
        last: dict[Site, Place] = {}
        for each in sorted(sends, key=lambda each: (_position(each), _sender(each.record), each.place)):
            identity, number, sender = each.record.message_id, each.record.number, _sender(each.record)
            if identity is None or identity in self._by_id:
                continue
            self._by_id[identity] = _Message(sender, counts[sender] if number is None else number)
            self.tied_sends += number is None and last.get(sender) == _position(each)
            counts[sender] += 1
            last[sender] = _position(each)

    def _place(self, records: Sequence[Record]) -> None:
        """Find each message's domain, and the messages that have none."""
        naming = [record for record in records if record.domain is not None]
        sent: dict[_Message, str | None] = {}
        for record in naming:
            message = self.message(record)
            if self._domains.setdefault(message, record.domain) != record.domain:
                self._domains[message] = None
                self._torn.add(self.label(record))
            if record.kind == "send":
                sent.setdefault(message, record.domain)
        self._domains.update(sent)
        self.is_mixed = bool(naming) and (len(naming) < len(records) or bool(self._torn))
        sites = {record.site for record in naming if record.kind == "deliver"}
        for record in records if self.is_mixed else ():
            if record.domain is None and record.kind == "deliver" and record.site in sites:
                self._plain.add(self.message(record))
        self._plain.difference_update(self._domains)

    def message(self, record: Record) -> _Message:
        if record.number is not None:
            return _Message(record.sender or record.domain or UNNAMED, record.number)
        assert record.message_id is not None, "a parser lets no message through without a name"
        found = self._by_id.get(record.message_id)
        if found is None:
            self.unsent.add(record.message_id)
            return _Message(f"?{record.message_id}", 0)
        return found

    def label(self, record: Record) -> str:
        """What a note calls a record's message."""
        return _text(self.message(record)) if record.number is not None else record.message_id or ""

    def group(self, record: Record) -> str | None:
        """The group that a record's message was sent to."""
        return self._groups.get(self.message(record))

    def domain(self, record: Record) -> str | None:
        """The domain of a record's message."""
        return self._domains.get(self.message(record))

    def is_nameless(self, record: Record) -> bool:
        """Whether no record tells the message's domain, although some name domains."""
        if not self.is_mixed:
            return False
        message = self.message(record)
        return self._domains.get(message) is None and message not in self._plain

    def torn_notes(self) -> Iterator[str]:
        if self._torn:
            yield torn_note(len(self._torn), min(self._torn))


class _Rows:
    """Makes the events of a run."""

    def __init__(
        self,
        run: str,
        placed: Sequence[Placed],
        numbering: _Numbering,
        audience: Audience,
        marks_acceptance: bool,
        holed: Collection[Site],
        is_routed: bool,
    ) -> None:
        self._run, self._placed, self._numbering = run, placed, numbering
        self._audience, self._marks_acceptance, self._holed = audience, marks_acceptance, holed
        self._is_routed = is_routed
        self._accepted = {
            numbering.message(record)
            for record, _ in placed
            if record.site == ACCEPTED and record.kind == "deliver"
        }
        self._deliveries: Collection[Record] = [
            record for record, _ in placed if record.kind == "deliver" and record.site != ACCEPTED
        ]
        self._readers = Readers()
        self._holders: defaultdict[_Message, set[Site]] = defaultdict(set)
        self._read()

    def _read(self) -> None:
        """Find who reads what, and who holds the messages that may be unplaced."""
        numbering = self._numbering
        counts: Counter[tuple[str | None, str | None, Site]] = Counter()
        firsts = self._deliveries
        if numbering.is_mixed:
            firsts = {(numbering.message(record), record.site): record for record in firsts}.values()
        for record in firsts:
            message, group = numbering.message(record), numbering.group(record)
            if not numbering.is_nameless(record):
                counts[group, numbering.domain(record), record.site] += 1
                continue
            self._readers.add_nameless(group, None, message not in self._holders)
            self._readers.add_nameless(group, record.site, 1)
            self._holders[message].add(record.site)
        for (group, domain, site), count in counts.items():
            self._readers.add(group, domain, site, count)

    def _is_unplaced(self, record: Record) -> bool:
        """Whether the record's message has a domain that no record tells."""
        numbering = self._numbering
        return numbering.is_nameless(record) and self._readers.has_domains(numbering.group(record))

    def _domain(self, record: Record) -> str | None:
        """The domain of a record's message; one of its own, if no record tells which it is."""
        if self._is_unplaced(record):
            return f"?{_text(self._numbering.message(record))}"
        return self._numbering.domain(record)

    def events(self) -> list[Event]:
        by_site: defaultdict[Site, list[Placed]] = defaultdict(list)
        for each in self._placed:
            by_site[each.record.site].append(each)
        found = [event for site in sorted(by_site) for event in self._site_events(site, by_site[site])]
        return found if self._marks_acceptance else [*found, *self._acceptances()]

    def _site_events(self, site: Site, own: list[Placed]) -> Iterator[Event]:
        """A site whose log has lines that cannot be read begins at step 1: a hole, wherever it was."""
        own.sort(key=_position)
        step, last = int(site in self._holed) - 1, None
        for each in own:
            step += _position(each) != last
            last = _position(each)
            yield self._event(each.record, step)

    def _event(self, record: Record, step: int) -> Event:
        if record.kind in ("present", "absent"):
            return Event(self._run, record.site, step, record.kind, time_ns=record.time_ns)
        message = self._numbering.message(record)
        return Event(
            self._run, record.site, step, record.kind, message.sender, message.number, None, record.group,
            self._destinations(record), record.size, record.time_ns,
            message_id=record.message_id, attempt=record.attempt, domain=self._domain(record),
        )  # fmt: skip

    def _destinations(self, record: Record) -> tuple[Site, ...] | None:
        if record.kind != "send":
            return None
        accepted = not self._marks_acceptance or self._numbering.message(record) in self._accepted
        if record.destinations is not None:
            return (*self._known(record.destinations), ACCEPTED)[: None if accepted else -1]
        if self._audience == "everyone":
            return None
        return (*sorted(self._readers_of(record)), ACCEPTED)[: None if accepted else -1]

    def _readers_of(self, record: Record) -> Collection[Site]:
        """Who a send without destinations is for."""
        numbering, readers = self._numbering, self._readers
        if not self._is_unplaced(record):
            return readers.of(record.group, numbering.domain(record))
        return readers.of_unplaced(record.group, self._holders.get(numbering.message(record), frozenset()))

    def _known(self, destinations: Sequence[Site]) -> Sequence[Site]:
        consumers = self._readers.everyone()
        return [name for name in destinations if name in consumers] if self._is_routed else destinations

    def are_astray(self) -> bool:
        """Whether messages were routed, and none of them to what a consumer is named like."""
        routed = [record.destinations for record, _ in self._placed if record.destinations]
        return self._is_routed and bool(routed) and not any(map(self._known, routed))

    def _acceptances(self) -> list[Event]:
        """Every message that was sent, held by the system itself; all at one step, so in no order."""
        return [
            Event(
                self._run, ACCEPTED, 0, "deliver", message.sender, message.number,
                message_id=record.message_id, domain=self._domain(record),
            )
            for message, record in self._sent().items()
        ]  # fmt: skip

    def _sent(self) -> dict[_Message, Record]:
        """Each message's first send in the logs."""
        sent: dict[_Message, Record] = {}
        for record, _ in self._placed:
            if record.kind == "send":
                sent.setdefault(self._numbering.message(record), record)
        return sent

    def unordered(self) -> int:
        """How many messages were sent and delivered, and have a domain that no record tells."""
        return sum(
            message in self._holders and self._is_unplaced(record) for message, record in self._sent().items()
        )

    def undecided(self) -> Iterator[str]:
        """A sentence for each group with unplaced messages that a doubtful site did not deliver."""
        found: defaultdict[str | None, list[str]] = defaultdict(list)
        for message, record in self._sent().items():
            if record.destinations is not None or not self._is_unplaced(record):
                continue
            if self._readers.doubtful(record.group) - self._holders.get(message, set()):
                found[record.group].append(self._numbering.label(record))
        for group, names in sorted(found.items(), key=lambda each: str(each[0])):
            yield undecided_note(group, len(names), min(names), self._readers.doubtful(group))

    def consumer_groups(self) -> Iterator[str]:
        """A sentence for each domain, or group and domain, that looks like a consumer group's.

        Messages whose sends say who they are for are left out, and those without a domain that records tell.
        """
        message, domain, group = self._numbering.message, self._numbering.domain, self._numbering.group
        addressed = {
            message(record)
            for record, _ in self._placed
            if record.kind == "send" and record.destinations is not None
        }
        seen: defaultdict[tuple[str | None, str | None], defaultdict[_Message, set[Site]]]
        seen = defaultdict(lambda: defaultdict(set))
        for record in self._deliveries:
            if message(record) not in addressed and not self._is_unplaced(record):
                seen[group(record), domain(record)][message(record)].add(record.site)
        for (to, name), holders in sorted(seen.items(), key=lambda found: str(found[0])):
            sites = sorted(self._readers.of(to, name))[:MOST_COMPARED]
            together = members(sites, _both(sites, Counter(map(frozenset, holders.values()))))
            if together:
                yield group_note(name or to, together)


def _both(sites: Sequence[Site], holders: Counter[frozenset[Site]]) -> Any:
    """For each two sites how many messages both hold; `holders` counts messages by who holds them."""
    held = np.array([[site in found for site in sites] for found in holders], np.int64)
    return (held * np.array(list(holders.values()))[:, None]).T @ held


def _sender(record: Record) -> Site:
    return record.sender or record.site


def _position(each: Placed) -> Place:
    return each.place if each.record.order is None else (each.record.order, 0, 0)


def _repeat_notes(placed: Iterable[Placed]) -> Iterator[str]:
    """A sentence for each domain that numbers its messages, and in which a number was sent again."""
    numbers: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for record, _ in placed:
        domain, number = record.domain, record.number
        if record.kind != "send" or domain is None or number is None:
            continue
        if record.sender in (None, domain):
            numbers[domain][number] += 1
    for domain, found in sorted(numbers.items()):
        if found.total() > len(found):
            yield repeat_note(domain, found.total() - len(found))


def _are_strangers(placed: Sequence[Placed], numbering: _Numbering) -> bool:
    """Whether no message was both sent and delivered, although there is a number of each."""
    sent = [numbering.message(record) for record, _ in placed if record.kind == "send"]
    delivered = [
        numbering.message(record)
        for record, _ in placed
        if record.kind == "deliver" and record.site != ACCEPTED
    ]
    is_enough = min(len(sent), len(delivered)) >= LEAST_STRANGERS
    return is_enough and set(sent).isdisjoint(delivered)


def _reach_notes(placed: Iterable[Placed]) -> Iterator[str]:
    """A sentence for each domain that numbers its messages, and whose sends do not reach back far enough."""
    first: dict[tuple[str, str], int] = {}
    for record, _ in placed:
        domain, number = record.domain, record.number
        if domain is None or number is None or record.site == ACCEPTED:
            continue
        if record.sender in (None, domain):
            first[domain, record.kind] = min(first.get((domain, record.kind), number), number)
    for domain, kind in sorted(first):
        sent = first.get((domain, "send"))
        if kind == "deliver" and sent is not None and first[domain, kind] < sent:
            yield reach_note(domain, sent, first[domain, kind])
