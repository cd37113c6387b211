"""The promises of an order among honest members, for what was sent after a liar fell silent."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from antiphon.check.verdict import Violation
from antiphon.core.ids import MessageId, Site
from antiphon.core.time import Nanoseconds
from antiphon.trace.schema import Event, Run
from tests.promises import broken_promises


class After:
    """What honest sites did with messages that were sent after a moment, and which promises that breaks."""

    def __init__(
        self,
        sites: Sequence[Site],
        silent_ns: Nanoseconds,
        recovered_ns: Nanoseconds,
        forged: Collection[MessageId] = (),
    ) -> None:
        """Nothing is promised of messages that are `forged`: the liar made them up before they were sent."""
        self._sites: Final = frozenset(sites)
        self._silent_ns: Final = silent_ns
        self._recovered_ns: Final = recovered_ns
        self._forged: Final = forged
        self._sent_ns: dict[MessageId, Nanoseconds] = {}

    def broken(self, events: Iterable[Event], run: Run) -> list[Violation]:
        own = [event for event in events if event.site in self._sites and event.run == run.run]
        for event in own:
            if event.kind == "send":
                for message in _messages(event):
                    self._sent_ns.setdefault(message, event.time_ns or 0)
        return broken_promises(run.promises, self._rows(own), run)

    def is_late(self, message: MessageId) -> bool:
        """Whether a message was sent after the recovery, or never."""
        return self._sent_ns.get(message, self._recovered_ns) >= self._recovered_ns

    def _rows(self, events: Sequence[Event]) -> list[Event]:
        """A row for each message, and the absences; steps are counted anew."""
        rows: list[Event] = []
        for site in sorted(self._sites):
            away = False
            of_site: list[Event] = []
            for event in (event for event in events if event.site == site):
                late = (event.time_ns or 0) >= self._silent_ns
                if event.kind in ("absent", "present"):
                    if late:
                        of_site.append(event)
                    else:
                        away = event.kind == "absent"
                    continue
                messages = [message for message in _messages(event) if self._is_judged(event, message)]
                of_site += [self._row(event, message) for message in messages]
            if away and of_site:
                of_site.insert(0, Event(of_site[0].run, site, 0, "absent"))
            rows += [replace(event, step=step) for step, event in enumerate(of_site)]
        return rows

    def _is_judged(self, event: Event, message: MessageId) -> bool:
        if message.sender not in self._sites or message in self._forged:
            return False
        sent_ns = self._sent_ns.get(message)
        if sent_ns is None:  # never sent: a lie of before may still be delivered, but not for ever
            return event.kind == "deliver" and (event.time_ns or 0) > self._recovered_ns
        return sent_ns >= self._silent_ns

    def _row(self, event: Event, message: MessageId) -> Event:
        destinations = event.destinations
        if destinations is not None:
            destinations = tuple(site for site in destinations if site in self._sites)
        return replace(event, number=message.number, count=None, destinations=destinations)


def _messages(event: Event) -> list[MessageId]:
    assert event.number is not None
    sender = event.site if event.sender is None else event.sender
    return [MessageId(sender, event.number + place) for place in range(event.count or 1)]
