"""Whole traces for property tests: good ones, good ones with something planted, and wholly random ones.

Underneath everything is `random_trace`, a plain function of a `random.Random`, so that thousands of traces
can be made quickly for one Spark job; the hypothesis strategies draw its seed.

Good traces come from a small model of a correct system in real time. A totally ordered one delivers in the
order of the sends; a causally ordered one delivers any message whose past, as far as it is addressed to the
site, has been delivered there. Logs are drafted one message a row; only at the end are rows packed into
batches, which changes nothing that the properties speak of.
"""

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Final, Literal

import msgspec
from hypothesis import strategies as st

from antiphon.core.ids import Group, MessageId, Site
from antiphon.core.recording import KINDS, PROPERTIES, Kind, Property
from antiphon.trace.schema import Event, Run

Flavour = Literal["total", "causal", "planted", "wild"]
FLAVOURS: Final[tuple[Flavour, ...]] = ("total", "causal", "planted", "wild")
WITHOUT_TOTAL: Final = tuple(name for name in PROPERTIES if name != "total")

Logs = dict[Site, list[Event]]
"""Each site's rows in order, one message a row, steps not yet counted."""


def random_trace(
    rng: Random,
    name: str = "run",
    flavour: Flavour | None = None,
    most_sites: int = 6,
    most_messages: int = 40,
) -> tuple[list[Event], Run]:
    """One run: its events in no particular order, and its row of `runs` with what it promises.

    Flavours `total` and `causal` keep their promises; `planted` breaks them somewhere, most often; `wild` is
    noise. Without a flavour, one is drawn.
    """
    flavour = flavour or rng.choice((*FLAVOURS, "planted", "planted"))
    if flavour == "wild":
        logs, run = _wild(rng, name, most_sites, most_messages)
    else:
        order = rng.choice(("total", "causal")) if flavour == "planted" else flavour
        model = Model(rng, name, most_sites, most_messages, total=order == "total")
        logs, run = model.logs, model.row()
        for _ in range(rng.randint(1, 4) if flavour == "planted" else 0):
            rng.choice(PLANTS)(rng, logs, run)
    return finish(rng, logs), run


def traces(flavour: Flavour | None = None) -> st.SearchStrategy[tuple[list[Event], Run]]:
    """Hypothesis draws the seed and the sizes, so that a failing trace shrinks to a small one."""
    return st.builds(
        lambda seed, sites, messages: random_trace(Random(seed), "run", flavour, sites, messages),
        st.integers(0, 2**32),
        st.integers(1, 6),
        st.integers(0, 40),
    )


def finish(rng: Random, logs: Logs) -> list[Event]:
    """Pack some rows into batches, count the steps and shuffle the rows."""
    events = [
        msgspec.structs.replace(row, step=step)
        for log in logs.values()
        for step, row in enumerate(_packed(rng, log))
    ]
    rng.shuffle(events)
    return events


def as_imported(rng: Random, events: list[Event]) -> list[Event]:
    """The same run as another system's logs may tell it.

    Some steps are shared, some rows are lost, messages belong to domains and have names, or no site logs a
    send: each of these in some traces and not in others.
    """
    if rng.random() < 0.7:
        events = _with_ties(rng, events)
    if rng.random() < 0.3:
        events = [event for event in events if rng.random() < 0.97]
    if rng.random() < 0.15:
        events = [event for event in events if event.kind != "send"]
    if rng.random() < 0.4:
        domains = rng.choice((("p", "q"), (None, "p"), ("p", "q", "r", None)))
        width = rng.choice((1, 4))
        events = [
            event
            if event.number is None
            else msgspec.structs.replace(
                event,
                count=None,
                domain=domains[(event.number // width + len(event.sender or event.site)) % len(domains)],
            )
            for event in events
        ]
    if rng.random() < 0.3:
        events = [
            msgspec.structs.replace(event, message_id=f"m-{event.sender or event.site}-{event.number}")
            if event.number is not None and (event.count or 1) == 1
            else event
            for event in events
        ]
    return events


def _with_ties(rng: Random, events: list[Event]) -> list[Event]:
    """Let some rows share the step of the row before."""
    share, steps = rng.choice((0.1, 0.5, 0.9)), {}
    for site in {event.site for event in events}:
        step = -1
        for row in range(sum(event.site == site for event in events)):
            step += 1 if row == 0 or rng.random() > share else 0
            steps[site, row] = step
    return [msgspec.structs.replace(event, step=steps[event.site, event.step]) for event in events]


def _packed(rng: Random, log: list[Event]) -> list[Event]:
    """Join neighbours that one row can stand for, more or less eagerly; leave the sender of sends out."""
    eagerness = rng.choice((0.0, 0.5, 1.0))
    rows: list[Event] = []
    for row in log:
        last = rows[-1] if rows else None
        if last is not None and _continues(last, row) and rng.random() < eagerness:
            rows[-1] = msgspec.structs.replace(last, count=(last.count or 1) + 1)
        else:
            rows.append(row)
    terse = rng.random() < 0.3
    return [_terse(row) if terse else row for row in rows]


def _continues(last: Event, row: Event) -> bool:
    if last.number is None or row.number is None or last.number + (last.count or 1) != row.number:
        return False
    same_address = last.group == row.group and last.destinations == row.destinations
    return last.kind == row.kind and last.sender == row.sender and same_address


def _terse(row: Event) -> Event:
    """On a send row a null sender means the site itself."""
    if row.kind == "send" and row.sender == row.site:
        return msgspec.structs.replace(row, sender=None)
    return row


# A correct system


class Member:
    """A site of the model: what waits for it, what it knows, and whether it is there."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.present = True
        self.was_absent = False
        self.next_number = 0
        self.waiting: list[MessageId] = []
        self.received: set[MessageId] = set()
        self.known: set[MessageId] = set()
        self.declared: set[MessageId] = set()


class Model:
    """Runs a correct system to its end; `logs` is what its sites wrote down."""

    def __init__(self, rng: Random, name: str, most_sites: int, most_messages: int, *, total: bool) -> None:
        self.rng = rng
        self.name = name
        self.total = total
        self.sites = [f"s{index}" for index in range(rng.randint(1, most_sites))]
        self.members = {site: Member(site) for site in self.sites}
        self.groups = _random_groups(rng, self.sites)
        self.logs: Logs = {site: [] for site in self.sites}
        self.destinations: dict[MessageId, tuple[Site, ...]] = {}
        self.pasts: dict[MessageId, set[MessageId]] = {}
        self._run(rng.randint(0, most_messages))

    def row(self) -> Run:
        promises = PROPERTIES if self.total else WITHOUT_TOTAL
        return Run(self.name, "model", promises, self.groups, None, self.rng.randint(0, 99))

    def _run(self, messages: int) -> None:
        rng = self.rng
        # Absences are modelled for the total order only: a causal order without agreed gaps would leave
        # holes that the spell rule rightly blames.
        restless = self.total and rng.random() < 0.5
        receipts, lag = rng.random() < 0.5, rng.choice((1, 3, 6))
        while messages:
            member = self.members[rng.choice(self.sites)]
            action = rng.randrange(4 + lag)
            if action == 0 and restless:
                self._toggle(member)
            elif action == 1:
                self._declare(member)
            elif action == 2 and receipts:
                self._receive(member)
            elif action == 3 and member.present:
                self._send(member)
                messages -= 1
            else:
                self._deliver(member)
        for member in self.members.values():
            while self._deliver(member):
                pass
            if not self.logs[member.site]:
                self._write(member, "present")
        for member in self.members.values():
            self._declare(member)

    def _write(
        self,
        member: Member,
        kind: Kind,
        message: MessageId | None = None,
        group: Group | None = None,
        destinations: tuple[Site, ...] | None = None,
    ) -> None:
        # Clocks that make no sense show that nothing relies on them.
        time_ns = self.rng.choice((None, self.rng.randint(0, 10**9)))
        sender, number = message or (None, None)
        row = Event(self.name, member.site, 0, kind, sender, number, None, group, destinations, None, time_ns)
        self.logs[member.site].append(row)

    def _toggle(self, member: Member) -> None:
        """Leave, losing what is under way, or return."""
        self._write(member, "absent" if member.present else "present")
        member.present = not member.present
        member.was_absent = True
        member.waiting.clear()

    def _send(self, member: Member) -> None:
        group, destinations, addressed = self._address()
        if self.rng.random() < 0.1:
            member.next_number += self.rng.choice((1, 2, 1 << 40))
        message = MessageId(member.site, member.next_number)
        member.next_number += 1
        self._write(member, "send", message, group, destinations)
        self.destinations[message] = addressed
        self.pasts[message] = set(member.known)
        self._learn(member, message)
        member.received.add(message)
        for site in addressed:
            if self.members[site].present:
                self.members[site].waiting.append(message)

    def _address(self) -> tuple[Group | None, tuple[Site, ...] | None, tuple[Site, ...]]:
        """A group, explicit destinations or neither, and the sites that are meant by it."""
        if self.rng.random() < 0.3:
            chosen = _subset(self.rng, self.sites)
            return None, chosen, chosen
        group = self.rng.choice((None, "nowhere", *(self.groups or ())))
        members = (self.groups or {}).get(group or "", tuple(self.sites))
        return group, None, members

    def _learn(self, member: Member, message: MessageId) -> None:
        member.known.add(message)
        member.known |= self.pasts[message]

    def _receive(self, member: Member) -> None:
        fresh = [message for message in member.waiting if message not in member.received]
        if fresh:
            message = self.rng.choice(fresh)
            member.received.add(message)
            self._write(member, "receive", message)

    def _deliver(self, member: Member) -> bool:
        """Deliver the next message, or any whose past has been delivered; say whether there was one."""
        waiting = set(member.waiting)
        ready = [message for message in member.waiting if not self.pasts[message] & waiting]
        if not ready:
            return False
        message = member.waiting[0] if self.total else self.rng.choice(ready)
        member.waiting.remove(message)
        member.received.add(message)
        self._learn(member, message)
        self._write(member, "deliver", message)
        return True

    def _declare(self, member: Member) -> None:
        """Declare or discard some messages that every destination without absences holds by now."""
        for message, addressed in self.destinations.items():
            holders = (self.members[site] for site in addressed)
            held = all(message in holder.received or holder.was_absent for holder in holders)
            if held and message not in member.declared and self.rng.random() < 0.3:
                member.declared.add(message)
                self._write(member, self.rng.choice(("stable", "discard")), message)


def _subset(rng: Random, sites: list[Site]) -> tuple[Site, ...]:
    return tuple(site for site in sites if rng.random() < 0.6)


def _random_groups(rng: Random, sites: list[Site]) -> dict[Group, tuple[Site, ...]] | None:
    if rng.random() < 0.3:
        return None
    return {f"g{index}": _subset(rng, sites) for index in range(rng.randint(0, 3))}


# Something planted

Plant = Callable[[Random, Logs, Run], Property | None]
"""Changes the logs of a run and names a property that is surely broken now; None if none is for certain."""


def _places(logs: Logs, kind: Kind) -> list[tuple[Site, int]]:
    return [(site, place) for site, log in logs.items() for place, row in enumerate(log) if row.kind == kind]


def _insert(rng: Random, logs: Logs, row: Event, begin: int = 0) -> None:
    log = logs[row.site]
    log.insert(rng.randint(min(begin, len(log)), len(log)), row)


def plant_duplicate(rng: Random, logs: Logs, run: Run) -> Property | None:
    """Deliver something again, later."""
    places = _places(logs, "deliver")
    if not places:
        return None
    site, place = rng.choice(places)
    _insert(rng, logs, logs[site][place], place + 1)
    return "duplicate"


def plant_forgery(rng: Random, logs: Logs, run: Run) -> Property | None:
    """Deliver something that was never sent, of a sender known or unknown."""
    site = rng.choice(list(logs))
    sender = rng.choice((*logs, "stranger"))
    _insert(rng, logs, Event(run.run, site, 0, "deliver", sender, (1 << 50) + rng.randrange(5)))
    return "integrity"


def plant_misaddressed(rng: Random, logs: Logs, run: Run) -> Property | None:
    """Deliver something at a site to which it was not addressed."""
    found = [
        (site, row)
        for log in logs.values()
        for row in log
        if row.kind == "send" and row.destinations is not None
        for site in logs
        if site not in row.destinations
    ]
    if not found:
        return None
    site, row = rng.choice(found)
    _insert(rng, logs, Event(run.run, site, 0, "deliver", row.sender, row.number))
    return "integrity"


def plant_drop(rng: Random, logs: Logs, run: Run) -> Property | None:
    """Lose one delivery of a message that was delivered elsewhere too."""
    copies: dict[tuple[Site | None, int | None], list[tuple[Site, int]]] = {}
    for site, place in _places(logs, "deliver"):
        row = logs[site][place]
        copies.setdefault((row.sender, row.number), []).append((site, place))
    found = [where for places in copies.values() if len({site for site, _ in places}) > 1 for where in places]
    if not found:
        return None
    site, place = rng.choice(found)
    del logs[site][place]
    always_there = all(row.kind != "absent" for row in logs[site])
    return "atomicity" if always_there and logs[site] else None


def plant_swap(rng: Random, logs: Logs, run: Run) -> Property | None:
    """Exchange two deliveries that are neighbours among a site's deliveries."""
    pairs = [
        (site, [place for place, row in enumerate(log) if row.kind == "deliver"])
        for site, log in logs.items()
    ]
    found = [(site, one, other) for site, row in pairs for one, other in pairwise(row)]
    if not found:
        return None
    site, one, other = rng.choice(found)
    log = logs[site]
    first, second = log[one], log[other]
    log[one], log[other] = second, first
    if first.sender == second.sender and first.number != second.number:
        return "fifo"
    return None


def plant_move(rng: Random, logs: Logs, run: Run) -> Property | None:
    """Move any row anywhere in its log, which may make the log impossible."""
    site = rng.choice(list(logs))
    if logs[site]:
        _insert(rng, logs, logs[site].pop(rng.randrange(len(logs[site]))))
    return None


def plant_early_declaration(rng: Random, logs: Logs, run: Run) -> Property | None:
    """Declare a message stable, or discard it, before the declaring site itself has it."""
    found = [
        (site, place)
        for site, place in _places(logs, "deliver")
        if not any(
            row.sender == logs[site][place].sender and row.number == logs[site][place].number
            for row in logs[site][:place]
        )
        and all(row.kind != "absent" for row in logs[site])
    ]
    if not found:
        return None
    site, place = rng.choice(found)
    row = logs[site][place]
    kind: Kind = rng.choice(("stable", "discard"))
    declaration = Event(run.run, site, 0, kind, row.sender, row.number)
    logs[site].insert(rng.randint(0, place), declaration)
    return "stability"


def plant_rash_declaration(rng: Random, logs: Logs, run: Run) -> Property | None:
    """Declare some message stable at any site at any time."""
    places = _places(logs, "send")
    if places:
        site, place = rng.choice(places)
        row = logs[site][place]
        kind: Kind = rng.choice(("stable", "discard"))
        _insert(rng, logs, Event(run.run, rng.choice(list(logs)), 0, kind, row.sender, row.number))
    return None


def plant_absence(rng: Random, logs: Logs, run: Run) -> Property | None:
    """Let a site claim an absence at some point of its log."""
    site = rng.choice(list(logs))
    _insert(rng, logs, Event(run.run, site, 0, "absent"))
    return None


def plant_silence(rng: Random, logs: Logs, run: Run) -> Property | None:
    """Lose the whole log of a site."""
    logs[rng.choice(list(logs))].clear()
    return None


def plant_lost_row(rng: Random, logs: Logs, run: Run) -> Property | None:
    """Lose any row, such as a send or the only receipt."""
    site = rng.choice(list(logs))
    if logs[site]:
        del logs[site][rng.randrange(len(logs[site]))]
    return None


def plant_repeated_send(rng: Random, logs: Logs, run: Run) -> Property | None:
    """Log a send again, there or at another site, perhaps with other destinations."""
    places = _places(logs, "send")
    if places:
        site, place = rng.choice(places)
        row = msgspec.structs.replace(logs[site][place], site=rng.choice(list(logs)))
        if rng.random() < 0.5:
            row = msgspec.structs.replace(row, destinations=_subset(rng, list(logs)))
        _insert(rng, logs, row)
    return None


PLANTS: Final[tuple[Plant, ...]] = (
    plant_duplicate,
    plant_forgery,
    plant_misaddressed,
    plant_drop,
    plant_swap,
    plant_move,
    plant_early_declaration,
    plant_rash_declaration,
    plant_absence,
    plant_silence,
    plant_lost_row,
    plant_repeated_send,
)


# Noise


def _wild(rng: Random, name: str, most_sites: int, most_messages: int) -> tuple[Logs, Run]:
    """Rows without any system behind them, over few messages so that they meet one another."""
    sites = [f"s{index}" for index in range(rng.randint(1, most_sites))]
    senders = [*sites, "stranger"]
    numbers = rng.randint(1, 4)
    kinds: tuple[Kind, ...] = rng.choice(
        (KINDS, ("send", "deliver"), ("send", "receive", "deliver", "stable"))
    )
    logs: Logs = {site: [] for site in sites}
    groups = _random_groups(rng, sites)
    for _ in range(rng.randint(0, 2 * most_messages)):
        site = rng.choice(sites)
        kind = rng.choice(kinds)
        row = Event(name, site, 0, kind)
        if kind not in ("present", "absent"):
            sender = site if kind == "send" and rng.random() < 0.8 else rng.choice(senders)
            number = rng.randrange(numbers)
            group = rng.choice((None, "nowhere", "g0", "g1"))
            chosen = _subset(rng, sites) if kind == "send" and rng.random() < 0.5 else None
            row = Event(name, site, 0, kind, sender, number, None, group, chosen)
        logs[site].append(row)
    return logs, Run(name, None, PROPERTIES, groups)
