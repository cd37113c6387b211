"""Three ways to find out that all destinations of a message have it; the fourth, D1, is SCO.

C0: each destination replies to the sender at once, and once all have, the sender confirms to each. C1: the
same, but replies and confirmations ride on data that goes to the same member; after `confirm_ns` without data
they are sent by themselves. D0: each destination at once tells the sender and all other destinations.

A scheme appends what it sends to its member's list of effects.
"""

from collections.abc import Iterable
from typing import Final
from typing import Protocol as Interface

from antiphon.core.effects import CancelTimer, Effect, Multicast, Send, SetTimer
from antiphon.protocols.rivals.controlled.order import Batch
from antiphon.protocols.rivals.controlled.pdus import (
    Announce,
    Confirm,
    ControlledConfiguration,
    Deferred,
    Reply,
    Rider,
)
from antiphon.protocols.roster import Roster

DEFER: Final = "defer/"
"""Prefix of C1's timers; the member's place follows."""


class Control(Interface):
    """What a scheme does at each step of a batch."""

    def accepted(self, batch: Batch) -> None:
        """A batch of another member is causally accepted here."""

    def again(self, batch: Batch) -> None:
        """It has come again: its sender lacks our reply."""

    def ask(self, batch: Batch) -> None:
        """It is overdue: some destination is still not known to have it."""

    def completed(self, number: int, remote: Iterable[int]) -> None:
        """All these destinations have an own batch."""

    def riders(self, remote: Iterable[int]) -> tuple[Rider, ...]:
        """What rides on data to these destinations."""


class Centralised:
    """C0: the sender coordinates."""

    def __init__(self, roster: Roster, effects: list[Effect]) -> None:
        self._roster = roster
        self._effects = effects

    def accepted(self, batch: Batch) -> None:
        self.ask(batch)

    def again(self, batch: Batch) -> None:
        self.accepted(batch)

    def ask(self, batch: Batch) -> None:
        self._effects.append(Send(self._roster.members[batch.place], Reply(batch.number)))

    def completed(self, number: int, remote: Iterable[int]) -> None:
        to = tuple(self._roster.members[place] for place in remote)
        self._effects.append(Multicast(Confirm(number), to))

    def riders(self, remote: Iterable[int]) -> tuple[Rider, ...]:  # noqa: ARG002
        return ()


class Deferring(Centralised):
    """C1: the sender coordinates, and replies and confirmations ride on data."""

    def __init__(self, roster: Roster, effects: list[Effect], configuration: ControlledConfiguration) -> None:
        super().__init__(roster, effects)
        self._confirm_ns = configuration.confirm_ns
        self._replies: list[dict[int, None]] = [{} for _ in roster.everyone]
        self._confirms: list[dict[int, None]] = [{} for _ in roster.everyone]
        """Replies to each member's batches, and confirmations of our own for it; ordered sets."""

    def accepted(self, batch: Batch) -> None:
        self._owe(batch.place)
        self._replies[batch.place][batch.number] = None

    def completed(self, number: int, remote: Iterable[int]) -> None:
        for place in remote:
            self._owe(place)
            self._confirms[place][number] = None

    def riders(self, remote: Iterable[int]) -> tuple[Rider, ...]:
        due = [place for place in remote if self._owes(place)]
        self._effects += [CancelTimer(f"{DEFER}{place}") for place in due]
        return tuple(Rider(place, *self._settle(place)) for place in due)

    def send(self, place: int) -> None:
        """Send what found no data to ride on."""
        if self._owes(place):
            self._effects.append(Send(self._roster.members[place], Deferred(*self._settle(place))))

    def send_all(self) -> None:
        """Send all of it: after an absence the timers are gone."""
        for place in self._roster.everyone:
            self.send(place)

    def _owes(self, place: int) -> bool:
        return bool(self._replies[place] or self._confirms[place])

    def _owe(self, place: int) -> None:
        if not self._owes(place):
            self._effects.append(SetTimer(f"{DEFER}{place}", self._confirm_ns))

    def _settle(self, place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        told = tuple(self._replies[place]), tuple(self._confirms[place])
        self._replies[place].clear()
        self._confirms[place].clear()
        return told


class Distributed:
    """D0: each destination tells the sender and the other destinations."""

    def __init__(self, roster: Roster, effects: list[Effect]) -> None:
        self._roster = roster
        self._effects = effects

    def accepted(self, batch: Batch) -> None:
        self._effects.append(self._announce(batch, batch.place))
        self._effects += [self._announce(batch, place) for place in self.other_destinations(batch)]

    def again(self, batch: Batch) -> None:
        self._effects.append(self._announce(batch, batch.place))

    def ask(self, batch: Batch) -> None:
        self._effects += [self._announce(batch, place, asks=True) for place in sorted(batch.missing)]

    def completed(self, number: int, remote: Iterable[int]) -> None:
        pass  # each destination finds out for itself

    def riders(self, remote: Iterable[int]) -> tuple[Rider, ...]:  # noqa: ARG002
        return ()

    def other_destinations(self, batch: Batch) -> list[int]:
        """The destinations that exchange announcements with this one; the sender has what it sent."""
        places = self._roster.everyone if batch.places is None else batch.places
        return [place for place in places if place not in (self._roster.place, batch.place)]

    def _announce(self, batch: Batch, to: int, *, asks: bool = False) -> Send:
        position = int(batch.sent[batch.place, to])
        return Send(self._roster.members[to], Announce(batch.place, batch.number, position, asks))
