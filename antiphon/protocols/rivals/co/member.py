"""A member of CO's group: what it has accepted, what the others have, and what waits for either."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from antiphon.core.effects import (
    Admitted,
    Arrived,
    CancelTimer,
    Deliver,
    Multicast,
    Rejected,
    Send,
    SetTimer,
    Stable,
)
from antiphon.core.ids import Site
from antiphon.core.inputs import Start
from antiphon.core.wire import Pdu
from antiphon.protocols.fixed import FixedMember
from antiphon.protocols.rivals.co.pdus import Ask, CoConfiguration, Control, Data
from antiphon.protocols.roster import Handed, are_numbers, raise_to

CONFIRM, HEARTBEAT, REPAIR = "confirm", "heartbeat", "repair"


class Accepted(NamedTuple):
    """A batch of a sender, known by its place."""

    place: int
    data: Data

    @property
    def end(self) -> int:
        return self.data.number + len(self.data.bodies)


class Co(FixedMember):
    """One member of the group."""

    def __init__(self, site: Site, members: Sequence[Site], configuration: CoConfiguration) -> None:
        super().__init__(site, members, "CO")
        roster = self._roster
        self._configuration = configuration
        self._repeats = self._asks = self._controls = 0
        self._known = [[0] * roster.size for _ in roster.everyone]
        """The number below which each member has accepted each sender's messages, as far as is known."""
        self._accepted = self._known[roster.place]
        """The row of this member."""
        self._ordered = [0] * roster.size
        """The number below which each sender's messages have a place in the causal order here."""
        self._exists = [0] * roster.size
        """The number of messages that each sender is known to have sent."""
        self._early: list[dict[int, Data]] = [{} for _ in roster.everyone]
        self._receipt: list[deque[Data]] = [deque() for _ in roster.everyone]
        """Accepted batches of each sender that wait for what precedes them."""
        self._causal: deque[Accepted] = deque()
        """Batches for this member, in causal order, that wait until all members have accepted them."""
        self._undelivered = [0] * roster.size
        """Batches of each sender that are accepted and neither delivered nor passed over."""
        self._unstable: list[deque[tuple[int, int]]] = [deque() for _ in roster.everyone]
        """Accepted batches of each sender that are not stable: number and count."""
        self._kept: deque[Data] = deque()
        """Own batches that some member may lack."""
        self._confirming = self._repairing = False

    def figures(self) -> dict[str, int]:
        """Counters, and what is kept."""
        return {
            "ignored": self._ignored,
            "controls": self._controls,
            "asks": self._asks,
            "repeats": self._repeats,
            "kept": len(self._kept),
            "undelivered": sum(self._undelivered),
        }

    def _start(self, event: Start) -> None:
        super()._start(event)
        self._effects.append(SetTimer(HEARTBEAT, self._configuration.heartbeat_ns))

    def _resume(self) -> None:
        self._control()
        if self._repairing:
            self._fire(REPAIR)

    # Sending

    def _send(self, handed: Handed) -> None:
        batch, places, destinations = handed
        place = self._roster.place
        # Confirmed batches may still wait here for an unconfirmed one of another member.
        if len(self._kept) >= self._configuration.window or not self._has_room(place):
            self._effects.append(Rejected("As many batches as may be under way are not accepted by all yet."))
            return
        data = Data(self._accepted[place], tuple(self._accepted), places, batch)
        self._effects.append(Admitted(data.number, len(batch), batch.size, destinations))
        self._kept.append(data)
        self._effects.append(Multicast(data))
        self._note_told()
        self._accept(place, data)
        self._progress()

    def _note_told(self) -> None:
        """All members were just sent our acceptance numbers: nothing is due before the next heartbeat."""
        if self._confirming:
            self._confirming = False
            self._effects.append(CancelTimer(CONFIRM))
        self._effects.append(SetTimer(HEARTBEAT, self._configuration.heartbeat_ns))

    def _control(self) -> None:
        self._controls += 1
        self._effects.append(Multicast(Control(tuple(self._accepted))))
        self._note_told()

    def _fire(self, name: str) -> None:
        if name == HEARTBEAT or (name == CONFIRM and self._confirming):
            self._confirming = False
            self._control()
        elif name == REPAIR and self._repairing:
            self._repairing = False
            self._seek()

    # Receiving

    def _take(self, place: int, pdu: Pdu) -> bool:
        if not self._makes_sense(place, pdu):
            return False
        if isinstance(pdu, Ask):
            self._on_ask(self._roster.members[place], pdu)
            return True
        assert isinstance(pdu, Data | Control)
        # Acceptance numbers hold whether or not the PDU comes in order.
        raise_to(self._known[place], pdu.accepted)
        raise_to(self._exists, pdu.accepted)
        if isinstance(pdu, Data):
            self._on_data(place, pdu)
        self._seek_soon()
        self._progress()
        return True

    def _makes_sense(self, place: int, pdu: Pdu) -> bool:
        if isinstance(pdu, Ask):
            return are_numbers((pdu.begin, pdu.end)) and pdu.begin < pdu.end
        if not isinstance(pdu, Data | Control) or not self._roster.is_vector(pdu.accepted):
            return False
        if pdu.accepted[self._roster.place] > self._accepted[self._roster.place]:
            return False  # it claims to have accepted what was never sent
        if isinstance(pdu, Control):
            return True
        return self._roster.are_places(pdu.destinations) and pdu.accepted[place] == pdu.number

    def _on_data(self, place: int, data: Data) -> None:
        early = self._early[place]
        end = data.number + len(data.bodies)
        self._exists[place] = max(self._exists[place], end)
        # Its sender has accepted it by sending it.
        self._known[place][place] = max(self._known[place][place], end)
        if data.number < self._accepted[place] or data.number in early:
            return  # again
        if len(early) >= self._configuration.reach:
            self._ignored += 1
            return
        early[data.number] = data
        self._effects.append(Arrived(self._roster.members[place], data.number, len(data.bodies)))
        self._accept_early(place)

    def _accept_early(self, place: int) -> None:
        """Accept what follows without a gap, as far as there is room for it."""
        early = self._early[place]
        while self._has_room(place):
            data = early.pop(self._accepted[place], None)
            if data is None:
                return
            self._accept(place, data)
            self._owe()

    def _has_room(self, place: int) -> bool:
        """Whether another batch of a sender may be accepted."""
        return max(self._undelivered[place], len(self._unstable[place])) < self._configuration.reach

    def _accept(self, place: int, data: Data) -> None:
        self._accepted[place] = data.number + len(data.bodies)
        self._exists[place] = max(self._exists[place], self._accepted[place])
        self._receipt[place].append(data)
        self._undelivered[place] += 1
        self._unstable[place].append((data.number, len(data.bodies)))

    def _owe(self) -> None:
        """A confirmation is due; it may ride on data that goes out soon."""
        if not self._confirming:
            self._confirming = True
            self._effects.append(SetTimer(CONFIRM, self._configuration.confirm_ns))

    # Ordering and delivering

    def _progress(self) -> None:
        """Order, detect stability and deliver; repeat while that makes room to accept more."""
        accepted = -1
        while accepted != sum(self._accepted):
            accepted = sum(self._accepted)
            self._order()
            everywhere = [min(column) for column in zip(*self._known, strict=True)]
            self._detect(everywhere)
            while self._causal and self._causal[0].end <= everywhere[self._causal[0].place]:
                self._deliver(self._causal.popleft())
            for place in self._roster.everyone:
                self._accept_early(place)

    def _detect(self, everywhere: list[int]) -> None:
        """Batches that all members have accepted are stable, and are kept no longer."""
        for place, unstable in enumerate(self._unstable):
            while unstable and sum(unstable[0]) <= everywhere[place]:
                self._effects.append(Stable(self._roster.members[place], *unstable.popleft()))
        own = everywhere[self._roster.place]
        while self._kept and self._kept[0].number + len(self._kept[0].bodies) <= own:
            self._kept.popleft()

    def _order(self) -> None:
        """Move batches into the causal order after all that precede them; pass over those for others."""
        moved = True
        while moved:
            moved = False
            for place, receipt in enumerate(self._receipt):
                while receipt and self._is_next(place, receipt[0]):
                    data = receipt.popleft()
                    self._ordered[place] = data.number + len(data.bodies)
                    if self._roster.includes(data.destinations):
                        self._causal.append(Accepted(place, data))
                    else:
                        self._undelivered[place] -= 1
                    moved = True

    def _is_next(self, place: int, data: Data) -> bool:
        return all(
            number <= self._ordered[other] for other, number in enumerate(data.accepted) if other != place
        )

    def _deliver(self, batch: Accepted) -> None:
        place, data = batch
        self._undelivered[place] -= 1
        sender, destinations = self._roster.members[place], self._roster.sites(data.destinations)
        self._effects.append(Deliver(sender, data.number, data.bodies, destinations=destinations))

    # Repairing

    def _seek_soon(self) -> None:
        """Request what is missing after a pause: it may still be on its way."""
        if not self._repairing and any(map(int.__lt__, self._accepted, self._exists)):
            self._repairing = True
            self._effects.append(SetTimer(REPAIR, self._configuration.repair_ns))

    def _seek(self) -> None:
        """Ask each sender for its first messages that are missing here."""
        for place, accepted in enumerate(self._accepted):
            end = min(self._early[place], default=self._exists[place])
            if accepted < end:
                self._asks += 1
                self._effects.append(Send(self._roster.members[place], Ask(accepted, end)))
        self._seek_soon()

    def _on_ask(self, asker: Site, ask: Ask) -> None:
        for data in self._kept:
            if ask.begin < data.number + len(data.bodies) and data.number < ask.end:
                self._repeats += 1
                self._effects.append(Send(asker, data))
