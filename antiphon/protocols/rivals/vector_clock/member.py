"""A member of CBCAST's group: what it has delivered, what waits for its past, and what is stable."""

from collections import deque
from collections.abc import Sequence

from antiphon.core.effects import (
    Admitted,
    Arrived,
    CancelTimer,
    Deliver,
    Effect,
    Multicast,
    Rejected,
    SetTimer,
    Stable,
)
from antiphon.core.ids import Site
from antiphon.core.inputs import Input
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.fixed import FixedMember
from antiphon.protocols.links import TICK, Held, Linked, Links, LinksConfiguration
from antiphon.protocols.rivals.vector_clock.pdus import Delivered, Message, VectorClockConfiguration
from antiphon.protocols.roster import Handed, raise_to

CONFIRM = "confirm"


class VectorClock(FixedMember):
    """One member of the group."""

    def __init__(self, site: Site, members: Sequence[Site], configuration: VectorClockConfiguration) -> None:
        super().__init__(site, members, "CBCAST")
        roster = self._roster
        self._configuration = configuration
        self._told = 0
        self._links = Links(
            site,
            members,
            LinksConfiguration(
                window=2 * configuration.window,
                acknowledge_ns=configuration.acknowledge_ns,
                repeat_ns=configuration.repeat_ns,
            ),
            self._effects,
        )
        self._delivered = [0] * roster.size
        """The vector clock: each member's messages below this number are delivered."""
        self._known = [[0] * roster.size for _ in roster.everyone]
        """The vector clock of each member, as far as is known."""
        self._pending: list[deque[Message]] = [deque() for _ in roster.everyone]
        """Messages of each sender, in order, that wait for what precedes them."""
        self._unstable: list[deque[tuple[int, int]]] = [deque() for _ in roster.everyone]
        """Delivered batches of each sender that are not stable: number and count, in order."""
        self._confirming = False
        """Whether deliveries have not been confirmed to the others."""

    def figures(self) -> dict[str, int]:
        """Counters, and what is kept."""
        return {
            "ignored": self._ignored + self._links.ignored,
            "confirmations": self._told,
            "repeats": self._links.repeated,
            "pending": sum(map(len, self._pending)),
            "unstable": sum(map(len, self._unstable)),
        }

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        self._links.now = now
        return super().handle(now, event)

    def _resume(self) -> None:
        self._fire(TICK)
        if self._confirming:
            self._fire(CONFIRM)

    # Sending

    def _send(self, handed: Handed) -> None:
        batch, places, destinations = handed
        place = self._roster.place
        if len(self._unstable[place]) >= self._configuration.window:
            self._effects.append(Rejected("As many batches as may be under way are not stable yet."))
            return
        message = Message(0, 0, 0, tuple(self._delivered), places, batch)
        self._effects.append(Admitted(self._delivered[place], len(batch), batch.size, destinations))
        self._multicast(message)
        self._confirmed()
        self._deliver(place, message)
        self._detect()

    def _multicast(self, pdu: Linked) -> None:
        if self._configuration.reliable_network:
            self._effects.append(Multicast(pdu))
            return
        for other in self._roster.others:
            self._links.send(other, pdu)

    def _fire(self, name: str) -> None:
        if name == TICK and not self._configuration.reliable_network:
            self._links.tick()
        elif name == CONFIRM and self._confirming:
            self._confirming = False
            self._told += 1
            self._multicast(Delivered(0, 0, 0, tuple(self._delivered)))

    def _confirmed(self) -> None:
        """A message has carried what a confirmation would carry."""
        if self._confirming:
            self._confirming = False
            self._effects.append(CancelTimer(CONFIRM))

    # Receiving

    def _take(self, place: int, pdu: Pdu) -> bool:
        if not self._makes_sense(pdu):
            return False
        for taken in self._through_links(self._roster.members[place], pdu):
            self._on_next(place, taken)
        self._progress()
        return True

    def _makes_sense(self, pdu: Pdu) -> bool:
        if isinstance(pdu, Message):
            return self._roster.is_vector(pdu.vector) and self._roster.are_places(pdu.destinations)
        if isinstance(pdu, Delivered):
            return self._roster.is_vector(pdu.vector)
        return isinstance(pdu, Held) and not self._configuration.reliable_network

    def _through_links(self, sender: Site, pdu: Pdu) -> Sequence[Linked]:
        """The PDUs that this one completes, in their sender's order."""
        if self._configuration.reliable_network:
            return [pdu] if isinstance(pdu, Linked) else []
        if not isinstance(pdu, Linked | Held):
            return []
        taken = self._links.receive(sender, pdu)
        for each in taken:
            self._links.finish(sender, each.position)
        return taken

    def _on_next(self, place: int, pdu: Linked) -> None:
        """Take the next PDU of a sender; messages that do not continue its own numbers are dropped."""
        if isinstance(pdu, Message):
            waiting = self._pending[place]
            expected = (
                waiting[-1].vector[place] + len(waiting[-1].bodies) if waiting else self._delivered[place]
            )
            if pdu.vector[place] != expected or len(waiting) >= self._most_pending:
                self._ignored += 1
                return
            waiting.append(pdu)
            self._effects.append(Arrived(self._roster.members[place], expected, len(pdu.bodies)))
            raise_to(self._known[place], pdu.vector)
            # A sender delivers a message by sending it.
            self._known[place][place] = expected + len(pdu.bodies)
        elif isinstance(pdu, Delivered):
            raise_to(self._known[place], pdu.vector)

    @property
    def _most_pending(self) -> int:
        """Messages of a sender that may wait: it sends no more until all members have delivered some."""
        return self._configuration.window

    # Delivering

    def _progress(self) -> None:
        before = list(self._delivered)
        moved = True
        while moved:
            moved = False
            for place in self._roster.everyone:
                while self._pending[place] and self._is_next(place, self._pending[place][0]):
                    self._deliver(place, self._pending[place].popleft())
                    moved = True
        if self._delivered != before and not self._confirming:
            self._confirming = True
            self._effects.append(SetTimer(CONFIRM, self._configuration.confirm_ns))
        self._detect()

    def _is_next(self, sender: int, message: Message) -> bool:
        """Whether everything that precedes a message is delivered."""
        return all(
            number <= self._delivered[place] for place, number in enumerate(message.vector) if place != sender
        )

    def _deliver(self, place: int, message: Message) -> None:
        number, bodies = message.vector[place], message.bodies
        assert number == self._delivered[place], "a sender's messages are delivered in their order"
        self._delivered[place] = number + len(bodies)
        self._unstable[place].append((number, len(bodies)))
        if self._roster.includes(message.destinations):
            destinations = self._roster.sites(message.destinations)
            sender = self._roster.members[place]
            self._effects.append(Deliver(sender, number, bodies, destinations=destinations))

    def _detect(self) -> None:
        """Messages that all members have delivered are stable."""
        self._known[self._roster.place] = self._delivered
        for place, unstable in enumerate(self._unstable):
            if not unstable:
                continue
            everywhere = min(vector[place] for vector in self._known)
            while unstable and sum(unstable[0]) <= everywhere:
                number, count = unstable.popleft()
                self._effects.append(Stable(self._roster.members[place], number, count))
