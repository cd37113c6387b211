"""Admission: which processes that are not members are let in, and under which name.

An unproven process may send a challenge, and the answer to ours; the rest is dropped. A process that has
answered is let in, refused for good, or waits until it is known whether its name is free: a name belongs to
one process at a time, and an owner that no longer answers loses it. Every table is bounded. In a full one a
newcomer displaces only a member that no longer answers.
"""

from collections import OrderedDict
from itertools import islice
from typing import Final, NamedTuple

from antiphon.core.ids import Site
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.live.challenges import LEAST_BYTES, UNPROVEN, Challenger
from antiphon.live.counters import Counters
from antiphon.live.handshake import OWN_CODES, Answer, Challenge, Here, Refused, Terms, shown
from antiphon.live.host import Host
from antiphon.live.limits import is_name
from antiphon.live.members import MOST_MEMBERS, PRESS_NS, SILENCE_NS, UNANSWERED, Identity, Known, Members
from antiphon.live.moves import Moves
from antiphon.live.networks import Address
from antiphon.live.own_name import OwnName
from antiphon.live.sealing import Seal

MOST_REFUSED: Final = 1024
MOST_UNMET: Final = 64
MOST_CLAIMS: Final = 64
"""Processes that wait for a name whose owner may be gone."""
NAME_SILENCE_NS: Final = 250 * MILLISECOND_NS
"""A member that was challenged and stays silent for this long loses its name to a claimant, and its place in
a full table to a newcomer. Raising it costs time to restart a member; lowering it costs members on a busy
machine their names."""
MOST_PRESSED: Final = 8
"""Silent members of a full table that are challenged at a time. Raising it costs traffic; lowering it costs
time where many processes wait for a place."""
CROWDED_NS: Final = SECOND_NS
"""Time for which silent members of a full table are challenged after a newcomer found no place."""

NAME_TAKEN: Final = "another process uses this name"
BAD_NAME: Final = "its name is not allowed"
DIFFERS: Final = "its options differ from this group's"
FULL: Final = "there are too many members"


class Stranger(NamedTuple):
    """A process that is not a member, as one PDU shows it."""

    boot: int
    site: Site
    address: Address
    seal: Seal | None
    counter: int

    @property
    def identity(self) -> tuple[int, Address]:
        return self.boot, self.address


class Claim:
    """A process that has proved itself, and whose name another process has."""

    __slots__ = ("answer", "asked_ns", "since_ns", "stranger")

    def __init__(self, stranger: Stranger, answer: Answer, now: Nanoseconds) -> None:
        self.stranger = stranger
        self.answer = answer
        self.since_ns: Final = now
        self.asked_ns = now - PRESS_NS
        """When it was last asked to wait."""


class Admission:
    """Decides on processes that are not members, and adds them to the table of members."""

    def __init__(
        self,
        *,
        boot: int,
        own: OwnName,
        terms: Terms,
        members: Members,
        challenger: Challenger,
        moves: Moves,
        host: Host,
        counters: Counters,
    ) -> None:
        self._boot = boot
        self._own = own
        self._terms = terms
        self._members = members
        self._challenger = challenger
        self._moves = moves
        self._host = host
        self._counters = counters
        self._claims: OrderedDict[Identity, Claim] = OrderedDict()
        self._unmet: OrderedDict[Identity, Nanoseconds] = OrderedDict()
        """Processes that have not proved themselves, with the time of their last datagram."""
        self._refused: OrderedDict[Identity, str] = OrderedDict()
        """Processes that were refused for good, with the reason."""
        self._crowded_ns: Nanoseconds = -CROWDED_NS
        """When a newcomer last found no place in the table."""
        self.accepted = 0
        """Number of boots let in so far."""

    @property
    def claims(self) -> int:
        """The number of processes that wait for a name."""
        return len(self._claims)

    @property
    def refused(self) -> int:
        """The number of processes refused for good that are remembered."""
        return len(self._refused)

    def tick(self, now: Nanoseconds) -> None:
        for claim in list(self._claims.values()):
            self._settle(claim, now)

    def press_silent(self, now: Nanoseconds) -> None:
        """Where a newcomer found no place, challenge the members that have been silent for longest."""
        if self._is_crowded(now):
            for known in list(islice(self._members.all(), MOST_PRESSED)):
                if now - known.heard_ns >= PRESS_NS:
                    self._challenger.press(known, now)

    def is_busy(self, now: Nanoseconds) -> bool:
        """Whether a process waits for a name or for a place."""
        return bool(self._claims) or self._is_crowded(now)

    def _is_crowded(self, now: Nanoseconds) -> bool:
        return now - self._crowded_ns < CROWDED_NS

    def is_meeting(self, now: Nanoseconds, within_ns: Nanoseconds) -> bool:
        """Whether a process that sent something within this time has not proved itself yet."""
        return any(now - spoke < within_ns for spoke in self._unmet.values())

    def part_with(self, known: Known, now: Nanoseconds) -> None:
        """A member has left: its name is free at once."""
        if self._members.knows(known):
            self._forget(known)
        self.settle_claims(known.site, now)

    def settle_claims(self, site: Site, now: Nanoseconds) -> None:
        """Decide on the processes that wait for this name, where that is possible now."""
        for claim in [claim for claim in self._claims.values() if claim.stranger.site == site]:
            self._settle(claim, now)

    def on_pdu(self, stranger: Stranger, pdu: Pdu, size: int, now: Nanoseconds) -> None:
        """A PDU of `size` bytes came from a process that is not a member."""
        refusal = self._refused.get(stranger.identity)
        if isinstance(pdu, Answer):
            self._on_answer(stranger, pdu, refusal, now)
        elif isinstance(pdu, Challenge):
            # Also to a refused process: it must learn the reason.
            self._challenger.answer(pdu, stranger.site, stranger.address, stranger.boot, size)
            if refusal is None:
                self._note_unmet(stranger, now)
        elif refusal is not None:
            self._counters.drop(refusal)
        else:
            self._on_other(stranger, pdu, size, now)

    def _on_other(self, stranger: Stranger, pdu: Pdu, size: int, now: Nanoseconds) -> None:
        if pdu.code in OWN_CODES:
            self._counters.drop(UNPROVEN)
        else:
            self._counters.lose(UNPROVEN)
        if stranger.identity in self._claims:
            return
        if isinstance(pdu, Refused) and pdu.boot == self._boot and not pdu.final:
            # This only makes a newcomer wait, so it needs no proof.
            self._own.pending_ns = now
        self._note_unmet(stranger, now)
        if size >= LEAST_BYTES:
            self._challenger.challenge(stranger.boot, stranger.address, size, now)
        else:
            self._challenger.call(stranger.boot, pdu, stranger.address, size)

    def _note_unmet(self, stranger: Stranger, now: Nanoseconds) -> None:
        self._unmet[stranger.identity] = now
        self._unmet.move_to_end(stranger.identity)
        if len(self._unmet) > MOST_UNMET:
            self._unmet.popitem(last=False)

    def _on_answer(self, stranger: Stranger, answer: Answer, refusal: str | None, now: Nanoseconds) -> None:
        """A process has answered: let it in, refuse it, or let it wait for its name."""
        if not self._challenger.is_right(answer, stranger.boot, stranger.address, now):
            return
        self._unmet.pop(stranger.identity, None)
        if refusal is not None:
            self._counters.drop(refusal)
        elif stranger.identity not in self._claims:
            # Its address is proved now: it may challenge us in turn, and learn the reason if it is refused.
            if self._challenger.may_answer(stranger.address):
                self._challenger.reply(Here(), stranger.address, stranger.boot, None)
            self._decide(stranger, answer, now)

    def _decide(self, stranger: Stranger, answer: Answer, now: Nanoseconds) -> None:
        if not is_name(stranger.site):
            self._keep_out(stranger, BAD_NAME)
        elif difference := self._terms.difference(stranger.site, answer):
            self._keep_out(stranger, DIFFERS)
            self._host.refused(stranger.site, difference)
        elif stranger.site == self._own.site:
            self._decide_on_namesake(stranger, answer)
        else:
            self._decide_on_name(stranger, answer, now)

    def _keep_out(self, stranger: Stranger, reason: str) -> None:
        self._counters.drop(reason)
        self._refused[stranger.identity] = reason
        if len(self._refused) > MOST_REFUSED:
            self._refused.popitem(last=False)

    def _decide_on_namesake(self, stranger: Stranger, answer: Answer) -> None:
        """Another process has our name and answers."""
        where = shown(stranger.address)
        if self._own.yields_to(stranger.boot, answer):
            self._counters.drop(NAME_TAKEN)
            self._host.namesake(where)
            return
        self._keep_out(stranger, NAME_TAKEN)
        self._host.refused(
            stranger.site,
            f"A process at {where} also has this member's name, '{self._own.site}': give it another one.",
        )

    def _decide_on_name(self, stranger: Stranger, answer: Answer, now: Nanoseconds) -> None:
        owner = self._members.named(stranger.site)
        if owner is None or now - owner.heard_ns >= SILENCE_NS:
            self._accept(stranger, answer, now)
            return
        claim = Claim(stranger, answer, now)
        self._claims[stranger.identity] = claim
        if len(self._claims) > MOST_CLAIMS:
            self._claims.popitem(last=False)
        self._settle(claim, now)

    def _settle(self, claim: Claim, now: Nanoseconds) -> None:
        """Give a process its name if the owner is gone; refuse it if the owner has answered since."""
        stranger = claim.stranger
        owner = self._members.named(stranger.site)
        if owner is None or _is_silent(owner, claim.since_ns, now):
            del self._claims[stranger.identity]
            self._accept(stranger, claim.answer, now)
        elif owner.answered_ns > claim.since_ns:
            del self._claims[stranger.identity]
            self._counters.drop(NAME_TAKEN)
            self._send_refusal(stranger, owner, final=True)
            self._host.refused(
                stranger.site,
                f"A process at {shown(stranger.address)} wants the name '{stranger.site}', which the one at "
                f"{shown(owner.address)} has: give it another one.",
            )
        else:
            self._challenger.press(owner, now)
            if now - claim.asked_ns >= PRESS_NS:
                claim.asked_ns = now
                self._send_refusal(stranger, owner, final=False)

    def _send_refusal(self, stranger: Stranger, owner: Known, *, final: bool) -> None:
        refused = Refused(stranger.boot, shown(owner.address), final)
        self._challenger.reply(refused, stranger.address, stranger.boot, None)

    def _accept(self, stranger: Stranger, answer: Answer, now: Nanoseconds) -> None:
        """Let a process in under its name, in place of the process that had it before."""
        former = self._members.named(stranger.site)
        if former is not None:
            self._forget(former)
        if len(self._members) >= MOST_MEMBERS and not self._make_room(stranger, now):
            self._counters.drop(FULL)
            return
        identity = self._members.identity(stranger.boot, stranger.address)
        top = max(stranger.counter, self._members.recall(identity))
        known = Known(identity, stranger.boot, stranger.site, stranger.address, stranger.seal, top, now)
        self.accepted += 1
        self._moves.cancel(self._members.add(known))
        self._host.met(known.site, known.boot)
        if answer.yours:
            known.known_incarnation = answer.yours
            self._own.on_incarnation(known, now)

    def _make_room(self, stranger: Stranger, now: Nanoseconds) -> bool:
        """Remove a member that no longer answers from a full table. Returns whether there is one.

        Silent members are challenged until the next attempt of the newcomer.
        """
        quietest = next(iter(self._members.all()))
        silence = now - quietest.heard_ns
        if silence >= SILENCE_NS or _is_silent(quietest, quietest.heard_ns, now):
            self._forget(quietest)
            return True
        self._crowded_ns = now
        if silence < NAME_SILENCE_NS:
            self._host.refused(
                stranger.site,
                f"There is no room for '{stranger.site}' at {shown(stranger.address)}: this member knows "
                f"{MOST_MEMBERS} other active members. Let some of them leave.",
            )
        return False

    def _forget(self, known: Known) -> None:
        self._members.remove(known)
        self._moves.cancel(known)


def _is_silent(owner: Known, since: Nanoseconds, now: Nanoseconds) -> bool:
    silence = now - max(owner.heard_ns, since)
    return silence >= NAME_SILENCE_NS and owner.unanswered >= UNANSWERED
