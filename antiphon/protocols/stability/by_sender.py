"""By the sender: each sender asks all members how much of its own messages they hold, and tells the least.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 2.1.3: in protocols such as XTP, NAPP
and MFTP the sender is in charge of releasing a message at all members, once every receiver has acknowledged
it; the sender asks for acknowledgements now and then (NAPP's poll). The text says no more of their form.
A poll is multicast and has how far the sender's messages go; each member answers by unicast with how much of
them it holds, also when that is less; the least of the answers is multicast as the result.

Assumes: an owner that triggers a check now and then at every member, reports what is held, and begins a new
view when a member is gone. Nothing is assumed of the network.
Guarantees: a member declares stable only what it holds itself and what the sender has heard that every member
of the view holds (checker: stability); nothing declared is taken back.

A poll is repeated to those that have not answered with all that was asked for, at growing pauses. A member
that has heard no result for some of the owner's checks tells its count unasked; the sender then answers with
the last result, so that a result that was lost comes again.
"""

from collections.abc import Sequence
from random import Random
from typing import ClassVar, Final

from antiphon.core.effects import CancelTimer, Effect, Multicast, Send, SetTimer
from antiphon.core.fields import Hash, Number
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, RoundTriggered, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import Configuration, Stability

POLL: Final = "poll"
"""The sender's timer: ask again those that have not answered."""
PATIENCE: Final = 4
"""Checks without a result after which a member tells its count unasked; then after twice as many, and so on.
Raising it costs time after a result was lost, and saves PDUs."""


class SenderPoll(Pdu, frozen=True, gc=False):
    """Its sender has sent everything below `held`; all members hold everything below `stable` of that.

    Where the sender `asks`, the receiver answers.
    """

    code: ClassVar[int] = 61
    held: Number
    stable: Number
    asks: bool
    view: Hash = 0


class HoldAnswer(Pdu, frozen=True, gc=False):
    """Its sender holds everything below `held` of the receiver's messages, and knows what lies below `stable`
    to be stable."""

    code: ClassVar[int] = 62
    held: Number
    stable: Number
    view: Hash = 0


PDUS: Final = (SenderPoll, HoldAnswer)


class BySender(Stability):
    """One member's part for one view; members and senders are the same sites."""

    __slots__ = ("_asked", "_before", "_own", "_quiet", "_rows", "_wait_ns")

    def __init__(
        self, site: Site, members: Sequence[Site], configuration: Configuration, random: Random
    ) -> None:
        super().__init__(site, members, members, configuration, random)
        self._own = self._place[site]
        self._rows = dict.fromkeys((member for member in members if member != site), 0)
        """How many of our messages each member has told to hold."""
        self._asked: int | None = None
        """What the poll under way asks for."""
        self._wait_ns: Nanoseconds = 0
        self._before = [0] * len(members)
        self._quiet = [0] * len(members)
        """For each sender: what was held at the last check, and the checks since without a result."""

    @property
    def coordinator(self) -> Site:
        """Each member asks for its own messages."""
        return self.site

    @property
    def under_way(self) -> bool:
        return self._asked is not None

    def abandon(self) -> None:
        """Forget the poll that is under way here: the next one makes up for it."""
        self._asked = None

    def held_by(self, site: Site) -> int:
        """How many of our own messages a member has told to hold."""
        return self._rows.get(site, 0)

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:  # noqa: ARG002
        if type(event) is Received:
            sender, pdu = event.sender, event.pdu
            if sender not in self._rows:
                return self._ignore()
            if getattr(pdu, "view", self._view) != self._view:
                return []
            if type(pdu) is SenderPoll:
                return self._on_poll(sender, pdu)
            return self._on_answer(sender, pdu) if type(pdu) is HoldAnswer else self._ignore()
        if type(event) is RoundTriggered:
            return self._on_trigger()
        if type(event) is TimerFired and event.name == POLL and self._asked is not None:
            return self._ask_again(self._asked)
        return []

    # The sender

    def _on_trigger(self) -> list[Effect]:
        """Poll, if something of ours is not stable; tell senders whose results are long in coming."""
        effects = self._tell_unasked()
        own, stable = int(self._held[self._own]), int(self._stable[self._own])
        if own <= stable or self._asked is not None:
            return effects
        if not self._rows:
            return effects + self._finish(own)
        self._asked = own
        self._wait_ns = 0 if self._repetition is None else self._repetition.first_ns
        return [*effects, Multicast(SenderPoll(own, stable, True, self._view)), *self._wait()]

    def _wait(self) -> list[Effect]:
        return [] if self._repetition is None else [SetTimer(POLL, self._wait_ns)]

    def _ask_again(self, asked: int) -> list[Effect]:
        assert self._repetition is not None, "without repetition no timer is set"
        self._wait_ns = self._repetition.after(self._wait_ns)
        behind = tuple(member for member, held in self._rows.items() if held < asked)
        poll = SenderPoll(asked, int(self._stable[self._own]), True, self._view)
        return [Multicast(poll, behind), *self._wait()]

    def _on_answer(self, sender: Site, pdu: HoldAnswer) -> list[Effect]:
        own = int(self._held[self._own])
        if pdu.held > own:
            return self._ignore()
        self._rows[sender] = max(self._rows[sender], pdu.held)
        asked, stable = self._asked, int(self._stable[self._own])
        if asked is not None and min(self._rows.values()) >= asked:
            return self._finish(asked)
        if pdu.stable < stable and asked is None:
            return [Send(sender, SenderPoll(own, stable, False, self._view))]
        return []

    def _finish(self, asked: int) -> list[Effect]:
        self._asked = None
        self.rounds_finished += 1
        told = SenderPoll(int(self._held[self._own]), asked, False, self._view)
        return [CancelTimer(POLL), Multicast(told), *self._declare_one(self._own, asked)]

    # The members

    def _on_poll(self, sender: Site, pdu: SenderPoll) -> list[Effect]:
        place = self._place[sender]
        held = int(self._held[place])
        if pdu.stable > min(held, pdu.held):
            return self._ignore()  # what all hold is held here
        effects = self._declare_one(place, pdu.stable)
        if pdu.asks:
            effects.append(self._answer(sender, place))
        return effects

    def _answer(self, sender: Site, place: int) -> Effect:
        return Send(sender, HoldAnswer(int(self._held[place]), int(self._stable[place]), self._view))

    def _tell_unasked(self) -> list[Effect]:
        """Answer senders that have not told for long that what we hold is stable."""
        effects: list[Effect] = []
        for sender in self._rows:
            place = self._place[sender]
            if self._before[place] <= self._stable[place]:
                self._quiet[place] = 0
            else:
                self._quiet[place] += 1
                checks = self._quiet[place]
                if checks >= PATIENCE and checks & (checks - 1) == 0:
                    effects.append(self._answer(sender, place))
        self._before = self._held.tolist()
        return effects

    def _declare_one(self, place: int, stable: int) -> list[Effect]:
        """One sender's messages are stable up to here."""
        if stable <= self._stable[place]:
            return []
        result = self._stable.copy()
        result[place] = stable
        return self._declare(result)
