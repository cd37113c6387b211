"""Challenges to other processes and answers to theirs, within a budget that strangers cannot exceed.

One datagram from an unproven address causes at most one reply, which is not larger. What strangers cause in
total between two ticks is bounded, and members do not share that budget.
"""

from collections.abc import Callable
from secrets import token_bytes
from typing import Final

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.live.counters import Counters
from antiphon.live.handshake import GREETING_BYTES, NUMBER_BYTES, Answer, Challenge, Cookies, Hello, Terms
from antiphon.live.host import Host
from antiphon.live.members import PRESS_NS, Known, Members
from antiphon.live.networks import Address
from antiphon.live.own_name import OwnName

LEAST_BYTES: Final = GREETING_BYTES - 1
"""Smallest datagram of a stranger that is answered. A greeting may be one byte shorter than intended, because
of the size of its length field."""
ANSWERS_PER_TICK: Final = 128
"""Challenges and answers that strangers may cause between two ticks. Raising it costs traffic in a flood."""
ANSWERS_PER_ADDRESS: Final = 8
"""The same for one address."""

UNPROVEN: Final = "its boot has not proved itself yet"


class Challenger:
    """Sends challenges, checks their answers, and answers the challenges of others."""

    def __init__(
        self,
        *,
        boot: int,
        own: OwnName,
        terms: Terms,
        members: Members,
        host: Host,
        counters: Counters,
        reply: Callable[[Pdu, Address, int, int | None], None],
    ) -> None:
        """`reply` sends a PDU to an address, for a boot, with at most that many bytes."""
        self._boot = boot
        self._own = own
        self._terms = terms
        self._members = members
        self._host = host
        self._counters = counters
        self._cookies = Cookies()
        self._answers_left = ANSWERS_PER_TICK
        self._answered: dict[Address, int] = {}
        self.reply: Final = reply
        self.should_greet = False
        """Whether a process was heard that cannot be challenged yet: a greeting makes it greet us."""

    def tick(self) -> None:
        self._answers_left = ANSWERS_PER_TICK
        self._answered.clear()

    @property
    def is_busy(self) -> bool:
        """Whether part of the budget is used up until the next tick."""
        return bool(self._answered)

    def may_answer(self, address: Address) -> bool:
        """Whether a reply is allowed before the next tick. Strangers use only their own budget."""
        given = self._answered.get(address, 0)
        if given >= ANSWERS_PER_ADDRESS:
            return False
        if self._members.at(address) is None:
            if self._answers_left <= 0:
                return False
            self._answers_left -= 1
        self._answered[address] = given + 1
        return True

    def challenge(self, boot: int, address: Address, size: int | None, now: Nanoseconds) -> bool:
        """Ask for a proof with at most `size` bytes; None if the address is a member's."""
        if not self.may_answer(address):
            return False
        self._counters.challenges_sent += 1
        self.reply(Challenge(boot, self._cookies.number(boot, address, now)), address, boot, size)
        return True

    def press(self, known: Known, now: Nanoseconds) -> bool:
        """Challenge a member at its address. Returns whether that was possible just now."""
        if now - known.pressed_ns < PRESS_NS or not self.challenge(known.boot, known.address, None, now):
            return False
        known.pressed_ns = now
        known.unanswered += 1
        return True

    def ask_for_counter(self, known: Known, now: Nanoseconds) -> None:
        """Challenge a member whose counters look old: its answer shows where they are."""
        if now - known.pressed_ns >= PRESS_NS and self.may_answer(known.address):
            known.pressed_ns = now
            known.number = token_bytes(NUMBER_BYTES)
            self._counters.challenges_sent += 1
            self.reply(Challenge(known.boot, known.number), known.address, known.boot, None)

    def call(self, boot: int, pdu: Pdu, address: Address, size: int) -> None:
        """Make a process greet whose datagram was too small for a challenge: send it a datagram as small."""
        self.should_greet = True
        # Two strangers would otherwise call each other for ever. One call between two ticks is enough.
        if not isinstance(pdu, Hello) and address not in self._answered and self.may_answer(address):
            self.reply(Hello(), address, boot, size)

    def is_right(self, answer: Answer, boot: int, address: Address, now: Nanoseconds) -> bool:
        """Whether an answer proves that the process of that boot runs now, at this address; counts if not."""
        is_right = self._cookies.is_right(answer.number, boot, address, now)
        if not is_right:
            self._counters.drop(UNPROVEN)
        return is_right

    def answer(self, challenge: Challenge, site: Site, address: Address, boot: int, size: int) -> None:
        """Prove that this process is running now, with at most as many bytes as the challenge had."""
        if challenge.boot == self._boot and size >= LEAST_BYTES and self.may_answer(address):
            self._counters.proofs_given += 1
            terms, yours = self._terms, self._host.incarnation_of(site)
            options = dict(terms.options)
            answer = Answer(challenge.number, terms.oldest, terms.newest, self._own.joined, yours, options)
            self.reply(answer, address, boot, size)
