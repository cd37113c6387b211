"""Messages out of the agreed order, as many as asked for, and a count of how many there really were.

Of all messages a share is chosen, and for each of these some sites. Such a site delivers the message later
than it should: after several others that follow it in its order. What was delivered out of order is then
counted from the deliveries themselves.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from antiphon.core.effects import Deliver, Effect
from antiphon.core.ids import MessageId, Site
from antiphon.core.inputs import Departed, Input
from antiphon.core.protocol import Protocol
from antiphon.core.seeds import Seeds
from antiphon.core.time import Nanoseconds


class Disorder:
    """Chooses the messages and the sites."""

    def __init__(
        self, seeds: Seeds, members: Sequence[Site], *, share: float, sites_each: int, shift: int
    ) -> None:
        self.share = share
        self.shift = shift
        self._sites_each = sites_each
        self._members = members
        self._random = seeds.stream("disorder")
        self._late: dict[MessageId, frozenset[Site]] = {}

    def is_late(self, message: MessageId, site: Site) -> bool:
        """Whether that site is to deliver that message too late; drawn when it is first asked about."""
        late = self._late.get(message)
        if late is None:
            is_chosen = self._random.random() < self.share
            late = frozenset(self._random.sample(self._members, self._sites_each) if is_chosen else ())
            self._late[message] = late
        return site in late


class Disordered:
    """A protocol object that delivers some messages too late."""

    def __init__(self, protocol: Protocol, site: Site, disorder: Disorder) -> None:
        self.undisturbed: list[MessageId] = []
        """What the protocol delivered, in its own order."""
        self._handle = protocol.handle
        self._site = site
        self._disorder = disorder
        self._held: list[tuple[int, Deliver]] = []
        """Deliveries that wait, and how many others must go by first."""

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        if isinstance(event, Departed):
            self._held.clear()
        effects = self._handle(now, event)
        return [outcome for effect in effects for outcome in self._outcomes(effect)]

    def _outcomes(self, effect: Effect) -> Iterator[Effect]:
        if not isinstance(effect, Deliver):
            yield effect
            return
        for number, body in enumerate(effect.bodies, effect.number):
            message = MessageId(effect.sender, number)
            single = Deliver(effect.sender, number, (body,), effect.group, effect.incarnation)
            self.undisturbed.append(message)
            if self._disorder.is_late(message, self._site):
                self._held.append((self._disorder.shift, single))
            else:
                yield single
                yield from self._overdue()

    def _overdue(self) -> Iterator[Deliver]:
        """One more message has passed."""
        waiting = [(left - 1, single) for left, single in self._held]
        self._held = [(left, single) for left, single in waiting if left]
        yield from (single for left, single in waiting if not left)


def out_of_order(
    reference: Iterable[MessageId], deliveries: Mapping[Site, Iterable[MessageId]]
) -> set[MessageId]:
    """The messages that some site delivered after one that comes later in the reference order.

    >>> a, b, c = (MessageId("s", number) for number in range(3))
    >>> out_of_order([a, b, c], {"x": [a, b, c], "y": [b, a, c]}) == {a}
    True
    """
    place = {message: index for index, message in enumerate(reference)}
    late: set[MessageId] = set()
    for sequence in deliveries.values():
        furthest = -1
        for message in sequence:
            if message not in place:
                continue
            if place[message] < furthest:
                late.add(message)
            furthest = max(furthest, place[message])
    return late
