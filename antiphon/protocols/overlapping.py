"""What the rivals of meta-groups share: a site that multicasts to overlapping groups over reliable links.

Groups are open: any site may multicast to any group, a member of it or not. The groups are known to all sites
beforehand and do not change. No site crashes; absent sites are waited for. These protocols are here to be
measured beside meta-groups and to have their orders judged, not for live use. A site has a bounded number of
own multicasts unfinished, so every queue is bounded by that number times the sites.

A message is what one site sends to another; what a site does for itself needs none. A subclass says how a
batch gets its place in the order (`_begin`) and handles the PDUs that links bring (`_take`). A `Receipt`
tracks what it sends for a batch, so that the multicast is finished, and declared stable by its sender, when
every destination holds it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from antiphon.core.effects import Admitted, Arrived, Deliver, Effect, Rejected, Stable
from antiphon.core.errors import UsageError
from antiphon.core.ids import Group, Site
from antiphon.core.inputs import Admit, Input, Received, Returned, Start, TimerFired
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.protocols.admission import check_admission, pack_within
from antiphon.protocols.links import TICK, Done, Held, Linked, Links, LinksConfiguration

LARGEST_BATCH_BYTES: Final = 64 << 10
"""Bodies handed in at once, lengths included; fields and indices stay within a PDU beside them."""
Membership = Mapping[Group, tuple[Site, ...]]


def all_sites(membership: Membership, others: Iterable[Site] = ()) -> tuple[Site, ...]:
    """All sites in any group, and others, by name."""
    return tuple(sorted({*others, *(site for members in membership.values() for site in members)}))


class Batch(NamedTuple):
    """What is ordered as one: messages number, number+1, … of a sender to a group."""

    sender: Site
    number: int
    group: Group
    bodies: Packed


class Receipt:
    """Work that is finished when everything that was sent for it is."""

    __slots__ = ("_done", "_left")

    def __init__(self, left: int, done: Done) -> None:
        self._left = left
        self._done = done
        if not left:
            done()

    def settle(self) -> None:
        self._left -= 1
        if not self._left:
            self._done()


@dataclass(frozen=True, kw_only=True)
class GroupsConfiguration:
    """The options that all of them have; each says what raising it costs."""

    window: int = 64
    """Own batches that may be unfinished. Raising it costs memory, here and wherever they pass."""
    links: LinksConfiguration = field(default_factory=LinksConfiguration)

    def __post_init__(self) -> None:
        if self.window < 1:
            raise UsageError("A site may have at least one batch unfinished.")


class GroupMember(ABC):
    """One site, in any number of groups; implements `antiphon.core.protocol.Protocol`."""

    def __init__(
        self, site: Site, membership: Membership, sites: Iterable[Site], configuration: GroupsConfiguration
    ) -> None:
        self._sites = all_sites(membership, sites)
        if site not in self._sites:
            raise UsageError(f"The site {site} is not among the sites.")
        for group, members in membership.items():
            if not members or len(set(members)) != len(members):
                raise UsageError(f"The members of group {group} must be some, and differ.")
        self.ignored = 0
        self._site = site
        self._known = frozenset(self._sites)
        self._membership = dict(membership)
        self._mine = frozenset(group for group, members in membership.items() if site in members)
        self._configuration = configuration
        self._effects: list[Effect] = []
        self._links = Links(site, self._sites, configuration.links, self._effects)
        self._started = False
        self._next_number = 0
        self._unfinished = 0

    def figures(self) -> dict[str, int]:
        """What a user may want to watch: PDUs ignored and repeated, own batches not finished."""
        return {
            "ignored": self.ignored + self._links.ignored,
            "repeated": self._links.repeated,
            "unfinished": self._unfinished,
        }

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        self._links.now = now
        match event:
            case Received(sender=sender, pdu=Linked() | Held() as pdu):
                if self._started:
                    for taken in self._links.receive(sender, pdu):
                        self._take(sender, taken)
            case Received():
                self.ignored += 1
            case TimerFired(name=name):
                self._fire(name)
            case Admit():
                self._admit(event)
            case Start():
                self._start(event)
            case Returned():
                self._resume()
            case _:
                pass  # no site is given up, so suspicions do not matter
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    # What a subclass does

    @abstractmethod
    def _begin(self, batch: Batch, done: Done) -> None:
        """Get an own batch its place in the order; `done` is called when every destination holds it."""

    @abstractmethod
    def _take(self, sender: Site, pdu: Linked) -> None:
        """Do what a PDU of another site asks for, and sooner or later finish it."""

    def _fire(self, name: str) -> None:
        if name == TICK:
            self._links.tick()

    def _resume(self) -> None:
        """Set the timers again after an absence, in which nothing was forgotten."""
        self._links.resume()

    # What it does it with

    def _spread(self, targets: Iterable[Site], make: Callable[[Site], Linked], done: Done) -> None:
        """Send each target its PDU, this site left out; `done` when all have finished theirs."""
        others = [target for target in targets if target != self._site]
        receipt = Receipt(len(others), done)
        for target in others:
            self._links.send(target, make(target), receipt.settle)

    def _finisher(self, sender: Site, pdu: Linked) -> Done:
        """Finishes a PDU that came from another site."""
        return lambda: self._links.finish(sender, pdu.position)

    def _ignore(self, sender: Site, pdu: Linked) -> None:
        """A PDU that a link brought makes no sense."""
        self.ignored += 1
        self._links.finish(sender, pdu.position)

    def _makes_sense(self, batch: Batch) -> bool:
        return batch.sender in self._known and batch.number >= 0 and batch.group in self._membership

    def _arrived(self, batch: Batch) -> None:
        if batch.sender != self._site:
            self._effects.append(Arrived(batch.sender, batch.number, len(batch.bodies), batch.group))

    def _deliver(self, batch: Batch) -> None:
        self._effects.append(Deliver(batch.sender, batch.number, batch.bodies, batch.group))

    # Its own batches

    def _start(self, event: Start) -> None:
        if self._started:
            raise UsageError("This site has started already.")
        self._started = True
        self._next_number = event.next_number

    def _admit(self, event: Admit) -> None:
        bodies = self._checked(event)
        group = event.group
        assert group is not None, "admission without a group is refused"
        if self._unfinished >= self._configuration.window:
            self._effects.append(Rejected("As many batches as the window allows are not finished yet."))
            return
        number, count = self._next_number, len(bodies)
        self._next_number += count
        self._unfinished += 1
        destinations = frozenset(self._membership[group])
        self._effects.append(Admitted(number, count, bodies.size, destinations, group))
        self._begin(Batch(self._site, number, group, bodies), lambda: self._done(number, count, group))

    def _checked(self, event: Admit) -> Packed:
        check_admission(event, started=self._started)
        if event.destinations is not None:
            raise UsageError("Messages go to a whole group; name it instead of destinations.")
        if event.group not in self._membership:
            raise UsageError(
                f"There is no group {event.group}.", hint=f"There are: {', '.join(sorted(self._membership))}."
            )
        return pack_within(event.bodies, LARGEST_BATCH_BYTES)

    def _done(self, number: int, count: int, group: Group) -> None:
        self._unfinished -= 1
        self._effects.append(Stable(self._site, number, count, group))
