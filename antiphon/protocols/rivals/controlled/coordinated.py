"""C0 and C1 with one fixed coordinator for the group, as section 4 of the paper has it.

A sender submits its batch to the coordinator, which sends it to the destinations as one of its own, collects
their replies, and confirms. So it takes a round more than if each sender coordinates, and for each batch of
another member two messages more: the submission, and the word that all destinations have it.

The coordinator sends each member's batches in their order, and what a member submits after a delivery comes
behind what was delivered; so the order of the coordinator's own batches is causal for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from antiphon.core.effects import Admitted, Arrived, Rejected, Send, Stable
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.rivals.controlled.member import MOST_AT_ONCE, Controlled
from antiphon.protocols.rivals.controlled.order import Batch
from antiphon.protocols.rivals.controlled.pdus import (
    ControlledConfiguration,
    Data,
    Done,
    Failure,
    Noted,
    Relayed,
    Submit,
)
from antiphon.protocols.roster import Handed, are_numbers


@dataclass(slots=True)
class Submitted:
    """An own batch that the coordinator has not completed."""

    submit: Submit
    since_ns: Nanoseconds


class Coordinated(Controlled):
    """One member of a group with a fixed coordinator."""

    def __init__(self, site: Site, members: Sequence[Site], configuration: ControlledConfiguration) -> None:
        super().__init__(site, members, configuration)
        if configuration.coordinator not in members:
            raise UsageError(
                f"The coordinator {configuration.coordinator} is no member.",
                hint=f"The members are: {', '.join(members)}.",
            )
        self._coordinator = list(members).index(configuration.coordinator)
        self._coordinates = site == configuration.coordinator
        self._reach = configuration.reach * len(members)
        self._own_number = self._own_turn = 0
        self._submitted: dict[int, Submitted] = {}
        self._next_turns = [0] * len(members)
        self._early: list[dict[int, Submit]] = [{} for _ in members]
        self._relayed: dict[int, tuple[int, int]] = {}
        """At the coordinator: the place and number of each batch under way, by its number here."""

    # Sending

    def _send(self, handed: Handed) -> None:
        batch, places, destinations = handed
        own = sum(place == self._roster.place for place, _ in self._relayed.values())
        if max(len(self._submitted), own) >= self._configuration.window:
            self._effects.append(Rejected("As many batches as may be under way are not accepted by all yet."))
            return
        number, turn = self._own_number, self._own_turn
        self._own_number, self._own_turn = number + len(batch), turn + 1
        self._effects.append(Admitted(number, len(batch), batch.size, destinations))
        if self._coordinates:
            self._relay(self._roster.place, Submit(number, turn, places, (), batch))
            return
        submit = Submit(number, turn, places, self._scheme.riders((self._coordinator,)), batch)
        self._submitted[number] = Submitted(replace(submit, riders=()), self._now)
        self._effects.append(Send(self._configuration.coordinator, submit))
        self._keep_repeating()

    def _relay(self, place: int, submit: Submit) -> None:
        """Send a batch as one of the coordinator's own."""
        self._relayed[self._next_number] = (place, submit.number)
        if place != self._roster.place and self._roster.includes(submit.destinations):
            sender = self._roster.members[place]
            self._effects.append(Arrived(sender, submit.number, len(submit.bodies)))
        riders = self._scheme.riders(self._remote(submit.destinations))
        head = (self._next_number, submit.destinations, self._order.stamp(), riders, submit.bodies)
        self._issue(Relayed(*head, place, submit.number))

    def _finish(self, number: int, count: int, *, is_here: bool) -> None:
        place, submitted = self._relayed.pop(number)
        if place != self._roster.place:
            self._effects.append(Send(self._roster.members[place], Done(submitted)))
        elif not is_here:
            self._effects.append(Stable(self._roster.site, submitted, count))

    def _name(self, batch: Batch) -> tuple[Site, int]:
        assert batch.origin is not None, "every batch comes from the coordinator"
        place, number = batch.origin
        return self._roster.members[place], number

    # Receiving

    def _take(self, place: int, pdu: Pdu) -> bool:
        match pdu:
            case Submit():
                return self._coordinates and self._on_submit(place, pdu)
            case Relayed():
                is_origin = 0 <= pdu.origin < self._roster.size and are_numbers((pdu.origin_number,))
                return place == self._coordinator and is_origin and self._on_data(place, pdu)
            case Data() | Failure() | Noted():
                return False  # only the coordinator sends, says whose it is, and gives nothing up
            case Done(number=number):
                return place == self._coordinator and self._on_done(number)
            case _:
                return super()._take(place, pdu)

    def _on_submit(self, place: int, pdu: Submit) -> bool:
        """A member's batch: relay it in its turn, or say again that it is done."""
        if not are_numbers((pdu.number, pdu.turn)) or not self._roster.are_places(pdu.destinations):
            return False
        for rider in pdu.riders:
            if rider.to == self._roster.place and not self._on_news(place, rider.replies, rider.confirms):
                return False
        if pdu.turn < self._next_turns[place]:
            if (place, pdu.number) not in self._relayed.values():
                self._effects.append(Send(self._roster.members[place], Done(pdu.number)))
            return True
        if pdu.turn >= self._next_turns[place] + self._configuration.window:
            return False
        early = self._early[place]
        early[pdu.turn] = pdu
        while (submit := early.pop(self._next_turns[place], None)) is not None:
            self._next_turns[place] += 1
            self._relay(place, submit)
        return True

    def _on_done(self, number: int) -> bool:
        found = self._submitted.pop(number, None)
        if found is not None and not self._roster.includes(found.submit.destinations):
            self._effects.append(Stable(self._roster.site, number, len(found.submit.bodies)))
        return True

    # Timers

    def _is_waiting(self) -> bool:
        return bool(self._submitted) or super()._is_waiting()

    def _repeat(self) -> None:
        super()._repeat()
        overdue = [own for own in self._submitted.values() if self._is_overdue(own.since_ns)]
        for own in overdue[:MOST_AT_ONCE]:
            own.since_ns = self._now
            self._repeats += 1
            self._effects.append(Send(self._configuration.coordinator, own.submit))
