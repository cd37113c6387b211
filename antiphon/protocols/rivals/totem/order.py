"""A member's part of the agreed order: what it has delivered, what it keeps, and whether it is present."""

from antiphon.core.effects import Absent, Deliver, Discard, Effect, Present, Stable
from antiphon.core.ids import Site
from antiphon.protocols.rivals.totem.outbox import Outbox
from antiphon.protocols.rivals.totem.pdus import Message, TotemConfiguration
from antiphon.protocols.rivals.totem.recovery import Plan, note, streams_told
from antiphon.protocols.rivals.totem.ring import Ring


class Order:
    """The order, from ring to ring; effects go into the list that all parts of a member share."""

    __slots__ = ("_agreed", "_effects", "_site", "absent", "outbox", "ring", "streams")

    def __init__(self, site: Site, configuration: TotemConfiguration, effects: list[Effect]) -> None:
        self.ring: Ring | None = None
        """The last ring that continued the order."""
        self.outbox = Outbox(site, configuration.admission)
        self.streams: dict[Site, int] = {}
        """The number of the first message of each sender that is not delivered here."""
        self.absent = False
        self._agreed = configuration.delivery == "agreed"
        self._site = site
        self._effects = effects

    def progress(self) -> None:
        """Deliver what can be delivered by now, and release what all members hold."""
        ring = self.ring
        assert ring is not None
        self._deliver(ring, ring.log.aru if self._agreed else ring.safe)
        self._release(ring, ring.safe)

    def follow(self, ring: Ring, plan: Plan) -> None:
        """Continue the order on a new ring; end this presence spell if something was missed."""
        before = self.ring
        if before is not None and before.id == plan.latest:
            self.be_present()
            self._deliver(before, before.log.aru)
            self._release(before, before.log.aru)
        if before is None or before.id != plan.latest or not plan.whole:
            self.be_absent()
        for sender, number in streams_told(ring.log, ring.base).items():
            self.streams[sender] = max(number, self.streams.get(sender, 0))
        self.be_present()
        self.outbox.settle(self.streams.get(self._site, 0))
        self.outbox.begin_ring()
        ring.log.delivered = ring.base
        self.ring = ring

    def _deliver(self, ring: Ring, limit: int) -> None:
        log = ring.log
        while log.delivered < limit:
            log.delivered += 1
            entry = log.entries[log.delivered]
            if not isinstance(entry, Message):
                continue
            sender, number, bodies = entry.sender, entry.number, entry.bodies
            # With agreed delivery a sender may have to repeat what some have delivered already.
            if number >= self.streams.get(sender, 0):
                self.be_present()
                self._effects.append(Deliver(sender, number, bodies))
                note(self.streams, entry)
            if sender == self._site:
                self.outbox.settle(number + len(bodies))

    def _release(self, ring: Ring, limit: int) -> None:
        log = ring.log
        assert limit <= log.delivered, "a member would call stable what it has not delivered"
        while log.released < limit:
            log.released += 1
            entry = log.entries.pop(log.released)
            if isinstance(entry, Message):
                place = entry.sender, entry.number, len(entry.bodies)
                self._effects += (Stable(*place), Discard(*place))

    def be_absent(self) -> None:
        if not self.absent:
            self.absent = True
            self._effects.append(Absent())

    def be_present(self) -> None:
        if self.absent:
            self.absent = False
            self._effects.append(Present())
