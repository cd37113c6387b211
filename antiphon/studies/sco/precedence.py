"""Causal precedence by section 2.1's definition: from who sent and held what, not from any stamp.

A message precedes another if its sending happened before the other's. A message that a site sent or has
continuously accepted happened before every message that it sends afterwards. Continuous acceptance is when a
site holds a message and all that its sender sent there before. This is observed from outside, without a
protocol's help.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from antiphon.core import effects as fx
from antiphon.core.ids import MessageId, Site
from antiphon.core.inputs import Input
from antiphon.core.protocol import Protocol
from antiphon.core.time import Nanoseconds


class Precedence:
    """Observes a run; the predecessors of each message are a set of bits."""

    def __init__(self) -> None:
        self._bits: dict[MessageId, int] = {}
        self._pasts: dict[MessageId, int] = {}
        self._known: dict[Site, int] = {}
        """All that precedes what a site sends next."""
        self._coming: dict[tuple[Site, Site], deque[MessageId]] = {}
        """By sender and destination, in the order of sending, what is not yet continuously accepted."""
        self._held: dict[Site, set[MessageId]] = {}

    @property
    def messages(self) -> list[MessageId]:
        """All messages in the order of their sends."""
        return list(self._bits)

    def sent(self, message: MessageId, destinations: Iterable[Site]) -> None:
        site = message.sender
        self._bits[message] = bit = 1 << len(self._bits)
        self._pasts[message] = past = self._known.get(site, 0)
        self._known[site] = past | bit
        for destination in destinations:
            if destination != site:
                self._coming.setdefault((site, destination), deque()).append(message)

    def held(self, site: Site, message: MessageId) -> None:
        """A site holds a message; others may become accepted with it."""
        held = self._held.setdefault(site, set())
        held.add(message)
        coming = self._coming.get((message.sender, site), deque())
        while coming and coming[0] in held:
            accepted = coming.popleft()
            held.discard(accepted)
            self._known[site] = self._known.get(site, 0) | self._pasts[accepted] | self._bits[accepted]

    def out_of_order(self, delivered: Sequence[MessageId]) -> int:
        """Messages that a site delivered before one of their predecessors."""
        later = count = 0
        for message in reversed(delivered):
            count += bool(later & self._pasts[message])
            later |= self._bits[message]
        return count

    def precedes(self, first: MessageId, second: MessageId) -> bool:
        return bool(self._bits[first] & self._pasts[second])


class Witness:
    """Observes what a member sends, holds and delivers; implements `antiphon.core.protocol.Protocol`.

    Messages travel to `reached`, whatever their destinations, where those are not a matter of the network.
    """

    def __init__(
        self, site: Site, protocol: Protocol, truth: Precedence, reached: Sequence[Site] | None = None
    ) -> None:
        self.delivered: list[MessageId] = []
        self._site = site
        self._handle = protocol.handle
        self._truth = truth
        self._reached = reached

    def handle(self, now: Nanoseconds, event: Input) -> list[fx.Effect]:
        effects = self._handle(now, event)
        for effect in effects:
            match effect:
                case fx.Admitted(number=number, destinations=destinations):
                    travels_to = destinations if self._reached is None else self._reached
                    assert travels_to is not None, "a message with a choice of destinations names them"
                    self._truth.sent(MessageId(self._site, number), travels_to)
                case fx.Arrived(sender=sender, number=number) if sender != self._site:
                    self._truth.held(self._site, MessageId(sender, number))
                case fx.Deliver(sender=sender, number=number):
                    self.delivered.append(MessageId(sender, number))
        return effects
