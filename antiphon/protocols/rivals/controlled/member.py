"""A member under one of the control schemes: what it has sent, what it holds, and what it knows of both."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from antiphon.core.effects import (
    Admitted,
    Arrived,
    Deliver,
    Multicast,
    Rejected,
    Send,
    SetTimer,
    Stable,
    Unstable,
)
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fixed import FixedMember
from antiphon.protocols.rivals.controlled.order import Batch, CausalOrder
from antiphon.protocols.rivals.controlled.pdus import (
    COUNT_BYTES,
    Announce,
    Confirm,
    ControlledConfiguration,
    Data,
    Deferred,
    Failure,
    Noted,
    Reply,
)
from antiphon.protocols.rivals.controlled.schemes import DEFER, Centralised, Control, Deferring, Distributed
from antiphon.protocols.roster import Handed, Places, are_numbers

REPEAT: Final = "repeat"
GIVEN_UP: Final = "Not every destination has accepted it in time, so no destination delivers it."
MOST_AT_ONCE: Final = 16
"""Batches repeated, and batches asked about, at a time. Raising it costs bursts."""


@dataclass(slots=True)
class Outgoing:
    """An own batch that some other destination is not known to have."""

    data: Data
    count: int
    remote: tuple[int, ...]
    lacking: set[int]
    """Destinations that have not answered."""
    since_ns: Nanoseconds
    begun_ns: Nanoseconds
    failure: Failure | None = None
    """What is repeated instead, once the batch is given up: destinations answer that they have noted it."""


class Controlled(FixedMember):
    """One member of the group."""

    def __init__(self, site: Site, members: Sequence[Site], configuration: ControlledConfiguration) -> None:
        super().__init__(site, members, configuration.scheme)
        roster = self._roster
        self._fields_bytes = COUNT_BYTES * roster.size**2
        self._configuration = configuration
        self._reach = configuration.reach
        self._repeats = self._refused = self._given_up = 0
        self._deferring = Deferring(roster, self._effects, configuration)
        self._distributed = Distributed(roster, self._effects)
        schemes: dict[str, Control] = {
            "C0": Centralised(roster, self._effects),
            "C1": self._deferring,
            "D0": self._distributed,
        }
        self._scheme = schemes[configuration.scheme]
        self._is_distributed = configuration.scheme == "D0"
        self._order = CausalOrder(roster)
        self._next_number = 0
        self._outgoing: dict[int, Outgoing] = {}
        self._uncertain: dict[tuple[int, int], Batch] = {}
        """Batches accepted here that some destination is not known to have, by sender and number."""
        self._causal: deque[Batch] = deque()
        """Batches accepted here and not delivered, in causal order."""
        self._undelivered = [0] * roster.size
        self._heard: list[dict[int, set[int]]] = [{} for _ in roster.everyone]
        """Members that have announced batches which are not accepted here yet: of each sender, by number."""
        self._repeating = False

    def figures(self) -> dict[str, int]:
        """Counters, and what is kept."""
        return {
            "ignored": self._ignored,
            "refused": self._refused,
            "repeats": self._repeats,
            "given_up": self._given_up,
            "kept": len(self._outgoing),
            "undelivered": len(self._causal),
        }

    def _resume(self) -> None:
        self._deferring.send_all()
        if self._repeating:
            self._fire(REPEAT)

    # Sending

    def _send(self, handed: Handed) -> None:
        batch, places, destinations = handed
        is_full = len(self._outgoing) >= self._configuration.window
        if is_full or self._undelivered[self._roster.place] >= self._reach:
            self._effects.append(Rejected("As many batches as may be under way are not accepted by all yet."))
            return
        self._effects.append(Admitted(self._next_number, len(batch), batch.size, destinations))
        riders = self._scheme.riders(self._remote(places))
        self._issue(Data(self._next_number, places, self._order.stamp(), riders, batch))

    def _issue(self, data: Data) -> None:
        """Multicast a batch to its other destinations, and take it here if it is for this member."""
        batch, places = data.bodies, data.destinations
        remote = self._remote(places)
        self._next_number += len(batch)
        if remote:
            self._effects.append(Multicast(data, tuple(self._roster.members[place] for place in remote)))
        own = self._order.read(self._roster.place, data) if self._roster.includes(places) else None
        self._order.note_sending(places)
        kept = replace(data, riders=())
        self._outgoing[data.number] = Outgoing(kept, len(batch), remote, set(remote), self._now, self._now)
        self._keep_repeating()
        if own is not None:
            self._put(own)
        self._complete(data.number)

    def _remote(self, places: Places) -> tuple[int, ...]:
        wanted = self._roster.everyone if places is None else places
        return tuple(place for place in wanted if place != self._roster.place)

    def _note_reply(self, place: int, number: int) -> None:
        """A destination has an own batch; if it repeats that, it asks whether all have."""
        outgoing = self._outgoing.get(number)
        if outgoing is None:
            if not self._is_distributed:
                self._effects.append(Send(self._roster.members[place], Confirm(number)))
            return
        if outgoing.failure is None:
            outgoing.lacking.discard(place)
            self._complete(number)

    def _complete(self, number: int) -> None:
        """Complete an own batch if all other destinations have it."""
        outgoing = self._outgoing[number]
        if outgoing.lacking:
            return
        del self._outgoing[number]
        if outgoing.remote:
            self._scheme.completed(number, outgoing.remote)
        own = self._uncertain.get((self._roster.place, number))
        if own is not None:
            self._settle(own)
        self._finish(number, outgoing.count, is_here=own is not None)

    def _finish(self, number: int, count: int, *, is_here: bool) -> None:
        """All destinations have an own batch; `is_here` says that this member is one of them."""
        if not is_here:
            self._effects.append(Stable(self._roster.site, number, count))

    def _name(self, batch: Batch) -> tuple[Site, int]:
        """Whose batch it is, and its first number."""
        return self._roster.members[batch.place], batch.number

    # Receiving

    def _take(self, place: int, pdu: Pdu) -> bool:
        match pdu:
            case Data() if type(pdu) is Data:
                return self._on_data(place, pdu)
            case Reply(number=number):
                return self._on_news(place, (number,), ())
            case Confirm(number=number):
                return self._on_news(place, (), (number,))
            case Deferred(replies=replies, confirms=confirms):
                return self._on_news(place, replies, confirms)
            case Announce():
                return self._on_announce(place, pdu)
            case Failure():
                return self._on_failure(place, pdu)
            case Noted(number=number):
                return self._on_noted(place, number)
        return False

    def _on_news(self, place: int, replies: tuple[int, ...], confirms: tuple[int, ...]) -> bool:
        if self._is_distributed or not are_numbers(confirms):
            return False
        if not all(0 <= number < self._next_number for number in replies):
            return False  # it claims to have what was never sent
        for number in replies:
            self._note_reply(place, number)
        for number in confirms:
            batch = self._uncertain.get((place, number))
            if batch is not None:
                self._settle(batch)
        return True

    def _on_data(self, place: int, data: Data) -> bool:
        if not are_numbers((data.number,)) or not self._roster.are_places(data.destinations):
            return False
        batch = self._order.read(place, data)
        if batch is None or not self._roster.includes(data.destinations):
            return False
        here = self._roster.place
        for rider in data.riders:
            if rider.to == here and not self._on_news(place, rider.replies, rider.confirms):
                return False
        if batch.position < self._order.turns[place]:
            self._scheme.again(batch)
        elif not self._order.has(place, batch.position):
            self._hold(batch)
        return True

    def _hold(self, batch: Batch) -> bool:
        """Take a batch if there is room for it; if not, its sender repeats it."""
        place, reach = batch.place, self._reach
        held = self._undelivered[place] + self._order.held(place)
        if held >= reach or batch.position >= self._order.turns[place] + reach:
            self._refused += 1
            return False
        if not batch.has_failed:
            self._effects.append(Arrived(*self._name(batch), len(batch.bodies)))
        self._put(batch)
        return True

    def _on_announce(self, place: int, news: Announce) -> bool:
        if not self._is_distributed or not are_numbers((news.number, news.position)):
            return False
        if not 0 <= news.sender < self._roster.size or news.sender == place:
            return False
        if news.sender == self._roster.place:
            if news.number >= self._next_number:
                return False
            self._note_reply(place, news.number)
            return True
        accepted = news.position < self._order.turns[news.sender]
        if accepted and news.asks:
            answer = Announce(news.sender, news.number, 0, False)
            self._effects.append(Send(self._roster.members[place], answer))
        self._note_announcement(place, news, accepted=accepted)
        return True

    def _note_announcement(self, place: int, news: Announce, *, accepted: bool) -> None:
        """A destination has a batch, which this one may have, may still get, or may be done with."""
        batch = self._uncertain.get((news.sender, news.number))
        if batch is not None:
            batch.missing.discard(place)
            if not batch.missing:
                self._settle(batch)
        elif not accepted:
            heard = self._heard[news.sender]
            if news.number in heard or len(heard) < self._reach:
                heard.setdefault(news.number, set()).add(place)

    # Giving up

    def _give_up(self, number: int) -> None:
        """Some destination has not answered for too long: no destination delivers an own batch."""
        outgoing = self._outgoing[number]
        data, remote = outgoing.data, outgoing.remote
        outgoing.failure = Failure(number, data.destinations, data.sent)
        outgoing.lacking, outgoing.since_ns = set(remote), self._now
        self._given_up += 1
        to = tuple(self._roster.members[place] for place in remote)
        self._effects.append(Multicast(outgoing.failure, to))
        self._effects.append(Unstable(self._roster.site, number, outgoing.count, None, GIVEN_UP))
        own = self._order.read(self._roster.place, data)
        if own is not None and self._roster.includes(data.destinations):
            self._fail(own)

    def _on_failure(self, place: int, failure: Failure) -> bool:
        """A sender has given up a batch, which is held here, is accepted here, or never came."""
        is_sound = are_numbers((failure.number,)) and self._roster.are_places(failure.destinations)
        if self._is_distributed or not is_sound or not self._roster.includes(failure.destinations):
            return False
        batch = self._order.read(place, failure)
        if batch is None:
            return False
        if self._fail(batch):
            self._effects.append(Send(self._roster.members[place], Noted(failure.number)))
        return True

    def _fail(self, failed: Batch) -> bool:
        """Deliver a batch never; False if there is no room to remember that."""
        name = (failed.place, failed.number)
        held = self._uncertain.pop(name, None) or self._order.find(failed.place, failed.position)
        if held is None:
            return failed.position < self._order.turns[failed.place] or self._hold(failed)
        held.has_failed = True
        self._deliver_causally()
        return True

    def _on_noted(self, place: int, number: int) -> bool:
        outgoing = self._outgoing.get(number)
        if outgoing is None:
            return are_numbers((number,)) and number < self._next_number
        if outgoing.failure is None:
            return False
        outgoing.lacking.discard(place)
        if not outgoing.lacking:
            del self._outgoing[number]
        return True

    # Accepting and delivering

    def _put(self, batch: Batch) -> None:
        self._order.put(batch)
        for accepted in self._order.advance():
            self._accept(accepted)

    def _accept(self, batch: Batch) -> None:
        """Accept a batch causally: its turn has come."""
        if batch.has_failed:
            return
        batch.since_ns = self._now
        self._causal.append(batch)
        self._undelivered[batch.place] += 1
        self._uncertain[batch.place, batch.number] = batch
        if batch.place == self._roster.place:
            return  # the replies to the sender say who has it
        self._keep_repeating()
        self._scheme.accepted(batch)
        if self._is_distributed:
            heard = self._heard[batch.place].pop(batch.number, set())
            batch.missing = set(self._distributed.other_destinations(batch)) - heard
            if not batch.missing:
                self._settle(batch)

    def _settle(self, batch: Batch) -> None:
        """Accept a batch atomically: all destinations are known to have it."""
        del self._uncertain[batch.place, batch.number]
        batch.is_everywhere = True
        self._effects.append(Stable(*self._name(batch), len(batch.bodies)))
        self._deliver_causally()

    def _deliver_causally(self) -> None:
        """Deliver what stands first in the causal order, and pass over what was given up."""
        while self._causal and (self._causal[0].is_everywhere or self._causal[0].has_failed):
            batch = self._causal.popleft()
            self._undelivered[batch.place] -= 1
            if not batch.has_failed:
                self._deliver(batch)

    def _deliver(self, batch: Batch) -> None:
        destinations = self._roster.sites(batch.places)
        self._effects.append(Deliver(*self._name(batch), batch.bodies, destinations=destinations))

    # Timers

    def _fire(self, name: str) -> None:
        if name.startswith(DEFER):
            self._deferring.send(int(name.removeprefix(DEFER)))
        elif name == REPEAT and self._repeating:
            self._repeating = False
            self._repeat()
            self._ask()
            self._keep_repeating()

    def _keep_repeating(self) -> None:
        if not self._repeating and self._is_waiting():
            self._repeating = True
            self._effects.append(SetTimer(REPEAT, self._configuration.repeat_ns))

    def _is_waiting(self) -> bool:
        """Whether some batch is not known to be held by all its destinations."""
        return bool(self._outgoing or self._uncertain)

    def _repeat(self) -> None:
        """Send overdue batches again to destinations that have not answered, or give them up."""
        for number in [number for number, out in self._outgoing.items() if self._is_hopeless(out)]:
            self._give_up(number)
        overdue = [out for out in self._outgoing.values() if self._is_overdue(out.since_ns)]
        for outgoing in overdue[:MOST_AT_ONCE]:
            outgoing.since_ns = self._now
            for place in sorted(outgoing.lacking):
                self._repeats += 1
                again = outgoing.data if outgoing.failure is None else outgoing.failure
                self._effects.append(Send(self._roster.members[place], again))

    def _is_hopeless(self, outgoing: Outgoing) -> bool:
        patience_ns = self._configuration.give_up_ns
        is_late = self._now - outgoing.begun_ns >= patience_ns
        return bool(patience_ns) and is_late and outgoing.failure is None

    def _ask(self) -> None:
        """Ask about overdue batches of others; own ones are repeated instead."""
        others = (batch for batch in self._uncertain.values() if batch.place != self._roster.place)
        overdue = [batch for batch in others if self._is_overdue(batch.since_ns)]
        for batch in overdue[:MOST_AT_ONCE]:
            batch.since_ns = self._now
            self._scheme.ask(batch)

    def _is_overdue(self, since_ns: Nanoseconds) -> bool:
        return self._now - since_ns >= self._configuration.repeat_ns
