"""Token passing: the token site orders, and the token moves on several times before anything is delivered.

Sources: Chang and Maxemchuk, "Reliable Broadcast Protocols" (1984), as Jia and So count it in section 6. A
message goes to the token site, which gives it its place. It then moves with the token from site to site along
a ring until `resilience` sites L hold it, the token site among them; the last of these sends it to the n
members of its group. That makes n+L messages, in L+1 transmissions one after the other. The last of the L is
the next token site, so that the work goes round; with L = 1 the token stays, and all is as with one
sequencer.

Assumes: the network may lose, delay, duplicate and reorder. No site crashes, and the groups are fixed.
Guarantees, each proved by the checker of that name: *integrity*, *duplicate*, *atomicity*, *fifo*, *causal*,
*total* and *stability*, across any overlap of groups: every site delivers a part of the token's one sequence.

Since different sites multicast what is ordered, the token counts the messages addressed to each site, and
each message carries the counts of its members, by which they put it in place. The token also carries the next
number of each sender, so that none of its messages overtakes another on the way to the token.

Deviations, with reasons.
- In the paper senders broadcast and the token site acknowledges by a broadcast, so all sites always know
  where the token is. With one message for each receiver that would cost the number of all sites twice, and
  Jia and So do not count it. Here each message says where the token goes, and the token site announces it to
  all by a `Moved`, which is counted among the acknowledgements and may be lost (`announces`). A request that
  reaches a site without the token follows it; `forwarded` counts what that costs beyond n+L.
- A request that has followed the token `CHASES` times stays where it is until the token comes by, as it does
  when there is much to order, or until `patience_ns` have passed; then it follows again.
- Crash tolerance, the purpose of the L copies, is left out here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import msgspec

from antiphon.core.effects import Effect, Multicast, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import Input, Received
from antiphon.core.packing import Packed
from antiphon.core.recording import Property
from antiphon.core.time import MILLISECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.links import Done, Held, Linked
from antiphon.protocols.overlapping import Batch, GroupMember, GroupsConfiguration, Membership, Receipt

__all__ = ["PDUS", "PROMISES", "TokenConfiguration", "TokenPassing"]

PROMISES: Final[tuple[Property, ...]] = (
    "integrity",
    "duplicate",
    "atomicity",
    "fifo",
    "causal",
    "total",
    "stability",
)
CHASE: Final = "token/chase"
CHASES: Final = 3
"""Times that a request follows the token before it waits. Raising it costs messages."""
MOST_MOVES: Final = 1 << 62
"""Numbers from peers must be smaller, so that arithmetic on them stays small; no run gets there."""


class Whereabouts(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """The site of the token after a number of moves; of two, the greater one is the later."""

    moves: int
    site: Site


class Token(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The token: each sender's next number, and the count of messages addressed to each site."""

    numbers: dict[Site, int]
    counts: dict[Site, int]


class Request(Linked, frozen=True, gc=False):
    """Messages for the token site to order, with the number of times that they have followed it."""

    code: ClassVar[int] = 145
    whereabouts: Whereabouts
    tries: int
    sender: Site
    number: int
    group: Group
    bodies: Packed


class Entry(Linked, frozen=True, gc=False):
    """Ordered messages, with the number of sites that still have to hold them; the last one has the token.

    `counts` are those of the group's members, in their order.
    """

    code: ClassVar[int] = 146
    whereabouts: Whereabouts
    left: int
    token: Token | None
    counts: tuple[int, ...]
    sender: Site
    number: int
    group: Group
    bodies: Packed


class Order(Linked, frozen=True, gc=False):
    """Messages with their place, the `count`-th of those addressed to the receiver."""

    code: ClassVar[int] = 147
    whereabouts: Whereabouts
    count: int
    sender: Site
    number: int
    group: Group
    bodies: Packed


class Moved(Pdu, frozen=True, gc=False):
    """The next site of the token after the sender; a hint that nothing depends on."""

    code: ClassVar[int] = 148
    whereabouts: Whereabouts


PDUS: Final[tuple[type[Pdu], ...]] = (Held, Request, Entry, Order, Moved)


@dataclass(frozen=True, kw_only=True)
class TokenConfiguration(GroupsConfiguration):
    """The shared options and the token's own."""

    resilience: int = 3
    """L: sites that hold a message before it is delivered. Each more costs a message and the time of a
    transmission for every multicast."""
    announces: bool = True
    """Whether the token's moves are announced to all sites. True costs a broadcast for each move; False costs
    requests that follow the token."""
    visit: int = 64
    """Batches ordered in one visit of the token. Raising it costs the others latency."""
    patience_ns: Nanoseconds = 100 * MILLISECOND_NS
    """Time for which a request waits for the token. Raising it costs latency when the token rests elsewhere;
    below the time of a rotation it costs needless messages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resilience < 1 or self.visit < 1 or self.patience_ns <= 0:
            raise UsageError(
                "At least one site holds a message, a visit orders one, and patience is positive."
            )


class Waiting(NamedTuple):
    """A request that waits for the token, or for its sender's earlier requests."""

    batch: Batch
    tries: int
    done: Done


class TokenPassing(GroupMember):
    """One site; implements `antiphon.core.protocol.Protocol`. All sites, in order of name, are the ring."""

    def __init__(
        self,
        site: Site,
        membership: Membership,
        configuration: TokenConfiguration,
        sites: Iterable[Site] = (),
    ) -> None:
        """`sites` may name sites that are in no group."""
        super().__init__(site, membership, sites, configuration)
        if configuration.resilience > len(self._sites):
            raise UsageError(f"There are no {configuration.resilience} sites that could hold a message.")
        self.forwarded = 0
        self._options = configuration
        self._others = tuple(other for other in self._sites if other != site)
        place = self._sites.index(site)
        self._successor = self._sites[(place + 1) % len(self._sites)]
        self._heir = self._sites[(place + configuration.resilience - 1) % len(self._sites)]
        """Where the token goes from here."""
        self._whereabouts = Whereabouts(0, self._sites[0])
        self._token = Token({}, {}) if place == 0 else None
        self._waiting: dict[Site, dict[int, Waiting]] = {}
        """By sender and number."""
        self._is_patient = False
        """Whether a timer is set after which waiting requests follow the token again."""
        self._count = 0
        """Messages addressed to this site that are delivered."""
        self._early: dict[int, tuple[Batch, Done]] = {}

    def figures(self) -> dict[str, int]:
        """The shared figures, and how often a request has followed the token."""
        return super().figures() | {"forwarded": self.forwarded}

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        if isinstance(event, Received) and isinstance(event.pdu, Moved):
            if self._started and event.sender in self._known and self._is_sane(event.pdu.whereabouts):
                self._learn(event.pdu.whereabouts)
            else:
                self.ignored += 1
            return []
        return super().handle(now, event)

    def _begin(self, batch: Batch, done: Done) -> None:
        self._request(Waiting(batch, 0, done))

    def _take(self, sender: Site, pdu: Linked) -> None:
        if isinstance(pdu, Request | Entry | Order):
            batch = Batch(pdu.sender, pdu.number, pdu.group, pdu.bodies)
            if self._makes_sense(batch) and self._is_sane(pdu.whereabouts):
                self._learn(pdu.whereabouts)
                self._take_batch(batch, sender, pdu)
                return
        self._ignore(sender, pdu)

    def _take_batch(self, batch: Batch, sender: Site, pdu: Request | Entry | Order) -> None:
        done = self._finisher(sender, pdu)
        match pdu:
            case Request() if self._is_new(batch):
                self._request(Waiting(batch, pdu.tries, done))
            case Entry() if self._is_whole(pdu):
                self._pass_on(pdu, batch, done)
            case Order() if batch.group in self._mine and self._is_ahead(pdu.count):
                self._put_in_place(pdu.count, batch, done)
            case _:
                self._ignore(sender, pdu)

    def _is_new(self, batch: Batch) -> bool:
        requests = self._waiting.get(batch.sender, {})
        if batch.number in requests or len(requests) >= self._options.window:
            return False
        return self._token is None or batch.number >= self._token.numbers.get(batch.sender, 0)

    def _is_whole(self, entry: Entry) -> bool:
        members = self._membership[entry.group]
        return 0 <= entry.left < self._options.resilience and len(entry.counts) == len(members)

    def _is_ahead(self, count: int) -> bool:
        """No count can be further ahead than all batches that all sites may have unfinished."""
        farthest = self._count + len(self._sites) * self._options.window
        return self._count < count <= farthest and count not in self._early

    def _is_sane(self, whereabouts: Whereabouts) -> bool:
        return whereabouts.site in self._known and 0 <= whereabouts.moves < MOST_MOVES

    def _learn(self, whereabouts: Whereabouts) -> None:
        self._whereabouts = max(self._whereabouts, whereabouts)

    # Requests

    def _request(self, waiting: Waiting) -> None:
        self._waiting.setdefault(waiting.batch.sender, {})[waiting.batch.number] = waiting
        if self._token is None:
            self._follow()
        else:
            self._order()

    def _follow(self) -> None:
        """Send waiting requests after the token, unless it is on its way here."""
        if self._whereabouts.site == self._site:
            return
        for waiting in [waiting for requests in self._waiting.values() for waiting in requests.values()]:
            if waiting.tries < CHASES:
                self._forward(waiting)
        if self._waiting and not self._is_patient:
            self._is_patient = True
            self._effects.append(SetTimer(CHASE, self._options.patience_ns))

    def _forward(self, waiting: Waiting) -> None:
        batch = waiting.batch
        self._remove(batch)
        is_own = batch.sender == self._site and waiting.tries == 0
        self.forwarded += not is_own
        request = Request(0, 0, 0, self._whereabouts, waiting.tries + 1, *batch)
        self._links.send(self._whereabouts.site, request, waiting.done)

    def _remove(self, batch: Batch) -> None:
        requests = self._waiting[batch.sender]
        del requests[batch.number]
        if not requests:
            del self._waiting[batch.sender]

    def _fire(self, name: str) -> None:
        super()._fire(name)
        if name == CHASE:
            self._is_patient = False
            for requests in self._waiting.values():
                for number, waiting in requests.items():
                    requests[number] = waiting._replace(tries=1)
            if self._token is None:
                self._follow()

    def _resume(self) -> None:
        super()._resume()
        self._is_patient = False
        if self._token is None:
            self._follow()

    # The token site's part

    def _order(self) -> None:
        """Order the requests that are next from their senders, then pass the token on."""
        assert self._token is not None, "only who has the token orders"
        visit: list[tuple[Waiting, tuple[int, ...]]] = []
        for sender in list(self._waiting):
            while len(visit) < self._options.visit and (found := self._next_of(sender)) is not None:
                self._remove(found.batch)
                visit.append((found, self._give_places(found.batch)))
        if visit:
            self._send_off(visit)

    def _next_of(self, sender: Site) -> Waiting | None:
        assert self._token is not None
        return self._waiting.get(sender, {}).get(self._token.numbers.get(sender, 0))

    def _give_places(self, batch: Batch) -> tuple[int, ...]:
        assert self._token is not None
        counts = self._token.counts
        self._token.numbers[batch.sender] = batch.number + len(batch.bodies)
        members = self._membership[batch.group]
        for member in members:
            counts[member] = counts.get(member, 0) + 1
        return tuple(counts[member] for member in members)

    def _send_off(self, visit: list[tuple[Waiting, tuple[int, ...]]]) -> None:
        left = self._options.resilience - 1
        token = self._token
        if left:
            self._token = None
            self._learn(Whereabouts(self._whereabouts.moves + 1, self._heir))
            if self._options.announces:
                self._effects.append(Multicast(Moved(self._whereabouts), self._others))
        for place, (waiting, counts) in enumerate(visit, start=1):
            carried = token if left and place == len(visit) else None
            entry = Entry(0, 0, 0, self._whereabouts, left, carried, counts, *waiting.batch)
            if left:
                self._hand_on(entry, waiting.done)
            else:
                self._send_out(entry, waiting.batch, waiting.done)
        if left:
            self._follow()
        elif len(visit) == self._options.visit:
            self._order()

    # Along the ring

    def _hand_on(self, entry: Entry, done: Done) -> None:
        self._links.send(self._successor, msgspec.structs.replace(entry, left=entry.left - 1), done)

    def _pass_on(self, entry: Entry, batch: Batch, done: Done) -> None:
        if entry.left > 0:
            self._hand_on(entry, done)
            return
        self._send_out(entry, batch, done)
        if entry.token is not None:
            self._token = Token(dict(entry.token.numbers), dict(entry.token.counts))
            self._order()

    def _send_out(self, entry: Entry, batch: Batch, done: Done) -> None:
        """L sites hold it: send it to the members."""
        members = self._membership[batch.group]
        receipt = Receipt(len(members), done)
        for member, count in zip(members, entry.counts, strict=True):
            if member == self._site:
                self._put_in_place(count, batch, receipt.settle)
            else:
                order = Order(0, 0, 0, self._whereabouts, count, *batch)
                self._links.send(member, order, receipt.settle)

    # A member's part

    def _put_in_place(self, count: int, batch: Batch, done: Done) -> None:
        self._arrived(batch)
        self._early[count] = (batch, done)
        while self._count + 1 in self._early:
            self._count += 1
            delivered, finish = self._early.pop(self._count)
            self._deliver(delivered)
            finish()
