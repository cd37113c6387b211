"""Two-phase ABCAST: destinations propose timestamps, the sender takes the greatest, and all deliver by these.

Sources: Birman and Joseph, "Reliable Communication in the Presence of Failures" (1987), the protocol ABCAST,
which they owe to Skeen; as Jia and So describe it in section 2. A sender outside the group of n members sends
the message to each of them, each answers with a proposal, and the sender sends each the final timestamp: 3n
messages, in three transmissions one after the other. A sender that is a member saves three messages.

Assumes: the network may lose, delay, duplicate and reorder. No site crashes, and the groups are fixed.
Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*, *fifo*, *causal*,
*total* and *stability*, across any overlap of groups: final timestamps, senders' names and numbers breaking
ties, are one order of all messages, and every site delivers by it.

Deviations, with reasons.
- A sender fixes its timestamps in the order of its messages, each greater than all that it knows. The
  paper leaves first-in-first-out and causal order to another protocol, and plain ABCAST breaks both where
  groups differ: a message to a group with a busy member may get a greater timestamp than the sender's next
  to another group. This rule costs no message; a message may wait for the answers to those before it.
- Crash tolerance, which the paper has, is left out here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import ClassVar, Final, NamedTuple

from antiphon.core.ids import Group, MessageId, Site
from antiphon.core.packing import Packed
from antiphon.core.recording import Property
from antiphon.core.wire import Pdu
from antiphon.protocols.links import Done, Held, Linked
from antiphon.protocols.overlapping import Batch, GroupMember, GroupsConfiguration, Membership, Receipt

__all__ = ["PDUS", "PROMISES", "TwoPhase"]

PROMISES: Final[tuple[Property, ...]] = (
    "integrity",
    "duplicate",
    "atomicity",
    "fifo",
    "causal",
    "total",
    "stability",
)
LATEST: Final = 1 << 62
"""Timestamps must be smaller, so that arithmetic on them stays small; no run gets there."""


class Message(Linked, frozen=True, gc=False):
    """The first phase: messages number, number+1, … of the sender, which asks for a proposed timestamp."""

    code: ClassVar[int] = 140
    number: int
    group: Group
    bodies: Packed


class Proposal(Linked, frozen=True, gc=False):
    """A destination's answer to the message of that number."""

    code: ClassVar[int] = 141
    number: int
    timestamp: int


class Fixed(Linked, frozen=True, gc=False):
    """The second phase: the timestamp by which the message of that number is delivered."""

    code: ClassVar[int] = 142
    number: int
    timestamp: int


PDUS: Final[tuple[type[Pdu], ...]] = (Held, Message, Proposal, Fixed)


class Place(NamedTuple):
    """The place of a message in the order, by its timestamp so far; no two are equal."""

    timestamp: int
    sender: Site
    number: int


@dataclass(slots=True)
class Collection:
    """An own batch without a final timestamp: members that have not proposed, and the greatest proposal."""

    batch: Batch
    done: Done
    awaited: set[Site]
    timestamp: int = 0


@dataclass(slots=True)
class Pending:
    """A batch that is not delivered: its place and, once that is final, what to do on delivery."""

    batch: Batch
    place: Place
    finish: Done | None = None


class TwoPhase(GroupMember):
    """One site; implements `antiphon.core.protocol.Protocol`."""

    def __init__(
        self,
        site: Site,
        membership: Membership,
        configuration: GroupsConfiguration,
        sites: Iterable[Site] = (),
    ) -> None:
        """`sites` may name sites that are in no group."""
        super().__init__(site, membership, sites, configuration)
        self._clock = 0
        self._collections: dict[int, Collection] = {}
        """Own batches by number, in their order."""
        self._pending: dict[MessageId, Pending] = {}
        self._queue: list[Place] = []
        """A heap of the places of pending batches; outdated places are skipped."""

    # The sender's part

    def _begin(self, batch: Batch, done: Done) -> None:
        members = self._membership[batch.group]
        collection = Collection(batch, done, set(members))
        self._collections[batch.number] = collection
        message = Message(0, 0, 0, batch.number, batch.group, batch.bodies)
        for member in members:
            if member != self._site:
                self._links.send(member, message)
        if batch.group in self._mine:
            self._collect(collection, self._site, self._propose(batch))

    def _collect(self, collection: Collection, member: Site, timestamp: int) -> None:
        collection.awaited.discard(member)
        collection.timestamp = max(collection.timestamp, timestamp)
        self._fix_what_is_complete()

    def _fix_what_is_complete(self) -> None:
        """Fix own timestamps in the order of the batches, each greater than any known here before it."""
        while self._collections:
            number, collection = next(iter(self._collections.items()))
            if collection.awaited:
                return
            del self._collections[number]
            self._clock = timestamp = max(collection.timestamp, self._clock + 1)
            members = self._membership[collection.batch.group]
            receipt = Receipt(len(members), collection.done)
            fixed = Fixed(0, 0, 0, number, timestamp)
            for member in members:
                if member != self._site:
                    self._links.send(member, fixed, receipt.settle)
            if collection.batch.group in self._mine:
                self._fix(MessageId(self._site, number), timestamp, receipt.settle)

    # A destination's part

    def _take(self, sender: Site, pdu: Linked) -> None:
        match pdu:
            case Message():
                self._take_message(Batch(sender, pdu.number, pdu.group, pdu.bodies), sender, pdu)
            case Proposal():
                self._take_proposal(sender, pdu)
            case Fixed():
                self._take_fixed(sender, pdu)
            case _:
                self._ignore(sender, pdu)

    def _take_message(self, batch: Batch, sender: Site, pdu: Message) -> None:
        message = MessageId(sender, batch.number)
        if not self._makes_sense(batch) or batch.group not in self._mine or message in self._pending:
            self._ignore(sender, pdu)
            return
        self._arrived(batch)
        self._links.finish(sender, pdu.position)
        self._links.send(sender, Proposal(0, 0, 0, batch.number, self._propose(batch)))

    def _propose(self, batch: Batch) -> int:
        """A timestamp greater than all before it; the batch waits until the final one is known."""
        self._clock += 1
        place = Place(self._clock, batch.sender, batch.number)
        self._pending[MessageId(batch.sender, batch.number)] = Pending(batch, place)
        heappush(self._queue, place)
        return self._clock

    def _take_proposal(self, sender: Site, pdu: Proposal) -> None:
        collection = self._collections.get(pdu.number)
        if collection is None or sender not in collection.awaited or not 0 < pdu.timestamp < LATEST:
            self._ignore(sender, pdu)
            return
        self._links.finish(sender, pdu.position)
        self._collect(collection, sender, pdu.timestamp)

    def _take_fixed(self, sender: Site, pdu: Fixed) -> None:
        message = MessageId(sender, pdu.number)
        pending = self._pending.get(message)
        is_new = pending is not None and pending.finish is None
        if pending is None or not is_new or not pending.place.timestamp <= pdu.timestamp < LATEST:
            self._ignore(sender, pdu)
            return
        self._fix(message, pdu.timestamp, self._finisher(sender, pdu))

    def _fix(self, message: MessageId, timestamp: int, finish: Done) -> None:
        self._clock = max(self._clock, timestamp)
        pending = self._pending[message]
        pending.finish = finish
        if timestamp > pending.place.timestamp:
            pending.place = Place(timestamp, *message)
            heappush(self._queue, pending.place)
        self._deliver_what_is_first()

    def _deliver_what_is_first(self) -> None:
        """Deliver final batches that precede all pending ones: later batches get greater timestamps."""
        while self._queue:
            place = self._queue[0]
            message = MessageId(place.sender, place.number)
            pending = self._pending.get(message)
            is_current = pending is not None and pending.place == place
            if pending is not None and is_current and pending.finish is None:
                return
            heappop(self._queue)
            if pending is not None and is_current and pending.finish is not None:
                del self._pending[message]
                self._deliver(pending.batch)
                pending.finish()
