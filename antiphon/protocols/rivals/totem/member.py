"""A member of the ring: its four states, and the transitions between them."""

from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any, ClassVar

from antiphon.core.effects import (
    Admitted,
    Appeared,
    Arrived,
    CancelTimer,
    Effect,
    Multicast,
    Rejected,
    Send,
    SetTimer,
    Vanished,
)
from antiphon.core.ids import Site
from antiphon.core.inputs import Start
from antiphon.core.packing import Packed
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.rivals.totem.gathering import Gathering, Heard
from antiphon.protocols.rivals.totem.order import Order
from antiphon.protocols.rivals.totem.outbox import NOTHING
from antiphon.protocols.rivals.totem.pdus import (
    Announce,
    Commit,
    Evidence,
    Join,
    Leave,
    Message,
    Recovered,
    RingId,
    State,
    Token,
    TotemConfiguration,
    Wake,
)
from antiphon.protocols.rivals.totem.recovery import Attempt, Plan, Repetition, make_plan
from antiphon.protocols.rivals.totem.ring import Ring
from antiphon.protocols.rivals.totem.validation import makes_sense

QUIET_VISITS = 4
"""Visits without news after which the representative keeps the token for a while: by then every member knows
that all hold everything."""
RING_STEP = 4
"""What a new ring's number adds to the greatest known, as in Corosync."""


class Stage(Enum):
    """The paper's states."""

    GATHER = "asks who is there"
    COMMIT = "waits for everyone's evidence"
    RECOVERY = "exchanges what some lack of earlier rings"
    OPERATIONAL = "on a ring that stands"


class Member:
    """The whole protocol, except the validation of what an application hands in."""

    def __init__(
        self, site: Site, members: tuple[Site, ...], configuration: TotemConfiguration, random: Random
    ) -> None:
        self.ignored = 0
        self._site = site
        self._everyone = members
        self._names = frozenset(members)
        self._configuration = configuration
        self._random = random
        self._incarnation = 0
        self._stage = Stage.GATHER
        self._gathering = Gathering(site, members)
        self._ring: Ring | None = None
        """The ring that is operational, or was last."""
        self._forming: tuple[RingId, tuple[Site, ...]] | None = None
        """The ring that is being formed, and its members."""
        self._attempt: Attempt | None = None
        """The same ring once the evidence of all members is known."""
        self._unfinished: Attempt | None = None
        """The last ring whose recovery began here and did not end."""
        self._ring_seq = 0
        self._kept: Token | None = None
        self._woken = False
        self._passed: tuple[Site, Pdu] | None = None
        self._seen_ns: Nanoseconds = 0
        self._others: set[Site] = set()
        self._rings = self._losses = self._copies = 0
        self._effects: list[Effect] = []
        self._order = Order(site, configuration, self._effects)

    # Inputs

    def start(self, now: Nanoseconds, event: Start) -> None:
        self._incarnation = event.incarnation
        self._order.outbox.begin(event.next_number)
        if event.incarnation:
            self._order.absent = event.returning
            self._gather(now)
            return
        self._others = set(self._everyone) - {self._site}
        incarnations = dict.fromkeys(self._everyone, 0)
        ring = Ring(RingId(0, self._everyone[0], 0), self._site, incarnations, primary=True)
        ring.base = 0
        self._order.ring = ring
        self._operate(now, ring)
        if self._site == self._everyone[0]:
            self._circulate(now, ring, ring.first_token())

    def admit(self, now: Nanoseconds, bodies: Packed) -> None:
        if self._order.outbox.full():
            self._effects.append(Rejected("As many messages as are admitted at once wait for delivery."))
            return
        number = self._order.outbox.admit(bodies)
        self._effects.append(Admitted(number, len(bodies), bodies.size))
        ring = self._ring
        if self._stage is not Stage.OPERATIONAL or ring is None or not ring.primary:
            return
        first = ring.members[0]
        if self._kept is not None:
            self._resume_token(now)
        elif first != self._site and ring.quiet >= QUIET_VISITS - 1 and self._order.outbox.backlog() == 1:
            self._effects.append(Send(first, Wake(ring.id)))

    def receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        act = self._words.get(type(pdu))
        known = sender in self._names and sender != self._site
        if act is None or not known or not makes_sense(pdu, self._names):
            self.ignored += 1
        else:
            act(self, now, sender, pdu)

    def fire(self, now: Nanoseconds, name: str) -> None:
        if name == "token" and self._stage is not Stage.GATHER:
            self._losses += 1
            self._gather(now)
        elif name == "retransmit" and self._passed is not None:
            self._send_again()
        elif name == "rest" and self._kept is not None:
            self._resume_token(now)
        elif name == "join" and self._stage is Stage.GATHER:
            self._send_join()
        elif name == "consensus" and self._stage is Stage.GATHER:
            self._despair(now)
        elif name == "announce" and self._stage is Stage.OPERATIONAL:
            self._announce()

    def depart(self) -> None:
        self._order.be_absent()
        if self._configuration.says_goodbye:
            self._effects.append(Multicast(Leave(self._incarnation)))

    def come_back(self, now: Nanoseconds) -> None:
        """Stay on the ring if the token may still be waiting for this member; else it was replaced."""
        ring = self._ring
        left_ns = self._configuration.token_ns - (now - self._seen_ns)
        if self._stage is not Stage.OPERATIONAL or ring is None or left_ns <= 0:
            self._gather(now)
            return
        self._effects.append(SetTimer("token", left_ns))
        if self._passed is not None:
            self._effects.append(SetTimer("retransmit", self._configuration.retransmit_ns))
        if self._kept is not None:
            self._effects.append(SetTimer("rest", self._configuration.rest_ns))
        self._watch_for_others(ring)

    def effects(self) -> list[Effect]:
        effects = list(self._effects)
        self._effects.clear()
        return effects

    def figures(self) -> dict[str, int]:
        kept = [] if self._order.ring is None else self._order.ring.log.entries.values()
        return {
            "ignored": self.ignored,
            "copies": self._copies + (0 if self._ring is None else self._ring.copies),
            "rings": self._rings,
            "tokens_lost": self._losses,
            "kept_messages": sum(len(entry.bodies) for entry in kept if isinstance(entry, Message)),
            "kept_bytes": sum(entry.bodies.size for entry in kept if isinstance(entry, Message)),
        }

    # Messages

    def _message(self, now: Nanoseconds, sender: Site, pdu: Message | Recovered | State) -> None:
        ring = self._present_ring()
        if ring is None or pdu.ring != ring.id:
            self._foreign(now, sender, pdu.ring)
            return
        if sender not in ring.members or pdu.seq > ring.log.released + 4 * self._configuration.reach:
            self.ignored += 1
            return
        if self._passed is not None and isinstance(self._passed[1], Token) and pdu.seq > self._passed[1].seq:
            self._stop_sending()
        if not ring.log.put(pdu.seq, pdu):
            return
        if isinstance(pdu, Recovered):
            self._take_recovered(pdu)
        elif isinstance(pdu, Message):
            self._note_arrival(pdu)
        if self._stage is Stage.OPERATIONAL and ring.primary:
            self._order.progress()

    def _note_arrival(self, pdu: Message | Recovered) -> None:
        if pdu.sender != self._site:
            self._effects.append(Arrived(pdu.sender, pdu.number, len(pdu.bodies)))

    def _present_ring(self) -> Ring | None:
        """The ring whose messages and token this member takes."""
        if self._stage is Stage.OPERATIONAL:
            return self._ring
        return None if self._attempt is None else self._attempt.ring

    # The token

    def _token(self, now: Nanoseconds, sender: Site, pdu: Token) -> None:
        ring = self._present_ring()
        if ring is None or pdu.ring != ring.id or pdu.token_seq <= ring.token_seq:
            return
        within = ring.log.aru <= pdu.seq <= ring.safe + 4 * self._configuration.reach
        if sender not in ring.members or not within:
            self.ignored += 1
            return
        self._circulate(now, ring, pdu)

    def _circulate(self, now: Nanoseconds, ring: Ring, token: Token) -> None:
        """Hold the token, then pass it on; a member alone on its ring passes it to itself."""
        self._stop_sending()
        self._seen_ns = now
        token = self._hold(now, ring, token)
        while ring.alone and not self._may_rest(ring):
            token = self._hold(now, ring, token)
        self._effects.append(SetTimer("token", self._configuration.token_ns))
        if self._may_rest(ring):
            self._kept = token
            self._effects.append(SetTimer("rest", self._configuration.rest_ns))
        else:
            self._woken = False
            self._pass_on(ring.next_site, token)

    def _hold(self, now: Nanoseconds, ring: Ring, token: Token) -> Token:
        self._unload(ring, token)
        if self._attempt is not None:
            return self._hold_recovering(now, self._attempt, token)
        if not ring.primary:
            return ring.visit(token, NOTHING, self._configuration, self._effects)
        self._order.be_present()
        token = ring.visit(
            token, self._order.outbox, self._configuration, self._effects, carries=self._configuration.carries
        )
        self._order.progress()
        return token

    def _unload(self, ring: Ring, token: Token) -> None:
        """Take what the token carries."""
        for each in token.cargo:
            message = Message(ring.id, each.seq, each.sender, each.number, each.bodies)
            if ring.log.put(each.seq, message):
                self._note_arrival(message)

    def _may_rest(self, ring: Ring) -> bool:
        """An idle ring's representative keeps the token, unless a member has asked for it."""
        idle = ring.quiet >= QUIET_VISITS and not (ring.primary and self._order.outbox.backlog())
        first = ring.members[0] == self._site and self._stage is Stage.OPERATIONAL
        return first and idle and (ring.alone or not self._woken)

    def _resume_token(self, now: Nanoseconds) -> None:
        ring, token = self._ring, self._kept
        assert ring is not None
        assert token is not None
        self._kept = None
        self._woken = True
        self._effects.append(CancelTimer("rest"))
        self._circulate(now, ring, token)

    def _wake(self, now: Nanoseconds, _sender: Site, pdu: Wake) -> None:
        if self._stage is Stage.OPERATIONAL and self._ring is not None and pdu.ring == self._ring.id:
            self._woken = True
            if self._kept is not None:
                self._resume_token(now)

    def _pass_on(self, to: Site, pdu: Token | Commit) -> None:
        self._passed = to, pdu
        self._send_again()

    def _send_again(self) -> None:
        assert self._passed is not None
        to, pdu = self._passed
        self._effects += (Send(to, pdu), SetTimer("retransmit", self._configuration.retransmit_ns))

    def _stop_sending(self) -> None:
        if self._passed is not None:
            self._passed = None
            self._effects.append(CancelTimer("retransmit"))

    # Gather

    def _gather(self, now: Nanoseconds) -> None:
        """Begin to gather: ask which members are present."""
        self._stage = Stage.GATHER
        self._forming = self._attempt = self._kept = None
        self._stop_sending()
        self._seen_ns = now
        self._gathering.ask()
        self._effects += (CancelTimer("token"), CancelTimer("rest"), CancelTimer("announce"))
        self._effects.append(SetTimer("consensus", self._configuration.consensus_ns))
        self._send_join()

    def _send_join(self) -> None:
        gathering = self._gathering
        known, failed = tuple(sorted(gathering.known)), tuple(sorted(gathering.failed))
        self._effects.append(Multicast(Join(self._incarnation, self._ring_seq, known, failed)))
        pause_ns = self._configuration.join_ns
        # Spread out, within the time for which members wait for one another.
        self._effects.append(SetTimer("join", pause_ns + self._random.randint(0, pause_ns // 4)))

    def _foreign(self, now: Nanoseconds, sender: Site, ring: RingId) -> None:
        """A member is on another ring: gather, unless this was sent before this ring was formed."""
        if self._stage is Stage.OPERATIONAL:
            assert self._ring is not None
            late = sender in self._ring.members and ring.seq <= self._ring.id.seq
            if not late:
                self._gathering.meet(sender)
                self._gather(now)
        elif self._stage is Stage.GATHER and self._gathering.meet(sender):
            self._gather(now)

    def _announced(self, now: Nanoseconds, sender: Site, pdu: Announce) -> None:
        if self._ring is None or pdu.ring != self._ring.id:
            self._foreign(now, sender, pdu.ring)

    def _join(self, now: Nanoseconds, sender: Site, pdu: Join) -> None:
        if self._stage is not Stage.GATHER:
            if self._is_late(sender, pdu):
                return
            self._gathering.meet(sender)
            self._gather(now)
        self._ring_seq = max(self._ring_seq, pdu.ring_seq)
        heard = self._gathering.hear(sender, pdu)
        if heard is Heard.GREW:
            self._gather(now)
        elif heard is Heard.AGREED:
            self._see_whether_all_agree(now)

    def _is_late(self, sender: Site, pdu: Join) -> bool:
        """Whether a join was sent before the current ring was formed.

        On an operational ring, the join of a member that holds this one to have failed is ignored too: that
        member has to form its own ring first, else several that hold one another to have failed would never
        meet. Corosync does the same.
        """
        if self._stage is Stage.OPERATIONAL:
            assert self._ring is not None
            if self._site in pdu.failed:
                return True
            known = self._ring.incarnations.get(sender)
            return known is not None and pdu.ring_seq < self._ring.id.seq and pdu.incarnation <= known
        assert self._forming is not None
        ring, members = self._forming
        return sender not in members or pdu.ring_seq < ring.seq

    def _despair(self, now: Nanoseconds) -> None:
        """Consensus took too long: go on without the members that have not agreed; if all have, ask anew."""
        if self._gathering.complete() and len(self._gathering.candidates()) > 1:
            self._gather(now)
            return
        self._gathering.give_up()
        self._gather(now)
        self._see_whether_all_agree(now)

    def _see_whether_all_agree(self, now: Nanoseconds) -> None:
        """If all agree, the first member forms the ring; the others wait for its commit token."""
        candidates = self._gathering.candidates()
        if candidates[0] != self._site or not self._gathering.complete():
            return
        ring = RingId(self._ring_seq + RING_STEP, self._site, self._incarnation)
        self._commit_to(now, ring, candidates)
        evidence = (self._evidence(),)
        if len(candidates) == 1:
            self._recover(now, evidence)
            self._begin_ring(now)
        else:
            self._pass_on(candidates[1], Commit(ring, 1, candidates, evidence))

    def _left(self, now: Nanoseconds, sender: Site, pdu: Leave) -> None:
        """Go on without a member at once, unless it announces the end of an earlier incarnation."""
        if self._stage is Stage.OPERATIONAL:
            assert self._ring is not None
            incarnation = self._ring.incarnations.get(sender)
            if incarnation is None or incarnation > pdu.incarnation:
                return
        elif self._stage is not Stage.GATHER:
            return  # the token will be missed
        if self._gathering.miss(sender):
            self._gather(now)
            self._see_whether_all_agree(now)

    # Commit

    def _evidence(self) -> Evidence:
        order, unfinished = self._order.ring, self._unfinished
        attempt, attempt_aru = None, 0
        if unfinished is not None:
            attempt, attempt_aru = unfinished.ring.id, unfinished.ring.log.aru
        if order is None:
            return Evidence(self._incarnation, None, 0, 0, attempt, attempt_aru)
        return Evidence(self._incarnation, order.id, order.base, order.log.aru, attempt, attempt_aru)

    def _commit_to(self, now: Nanoseconds, ring: RingId, members: tuple[Site, ...]) -> None:
        self._stage = Stage.COMMIT
        self._ring_seq = ring.seq
        self._forming = ring, members
        self._seen_ns = now
        self._effects += (CancelTimer("join"), CancelTimer("consensus"))
        self._effects.append(SetTimer("token", self._configuration.token_ns))

    def _commit(self, now: Nanoseconds, _sender: Site, pdu: Commit) -> None:
        """The commit token's hops give the place of the member that is to take it, and the round."""
        members = pdu.members
        round_number, place = divmod(pdu.hop, len(members))
        if members[place] != self._site:
            self.ignored += 1
            return
        if round_number == 0 and place:
            if self._stage is Stage.GATHER and self._fits(pdu):
                self._commit_to(now, pdu.ring, members)
                self._send_on(pdu, (*pdu.evidence, self._evidence()))
            return
        if self._forming != (pdu.ring, members):
            return
        if self._stage is Stage.COMMIT and round_number == 1:
            self._recover(now, pdu.evidence)
            self._send_on(pdu, pdu.evidence)
        elif self._stage is Stage.RECOVERY and round_number == 2:
            self._begin_ring(now)

    def _fits(self, pdu: Commit) -> bool:
        return pdu.ring.seq > self._ring_seq and pdu.members == self._gathering.candidates()

    def _send_on(self, pdu: Commit, evidence: tuple[Evidence, ...]) -> None:
        to = pdu.members[(pdu.hop + 1) % len(pdu.members)]
        self._pass_on(to, Commit(pdu.ring, pdu.hop + 1, pdu.members, evidence))

    # Recovery

    def _recover(self, now: Nanoseconds, evidence: tuple[Evidence, ...]) -> None:
        """All evidence is known: find out what has to be repeated, and what this member has of it."""
        assert self._forming is not None
        name, members = self._forming
        brought = dict(zip(members, evidence, strict=True))
        plan = make_plan(self._everyone, brought)
        self._catch_up(plan)
        incarnations = {site: found.incarnation for site, found in brought.items()}
        ring = Ring(name, self._site, incarnations, primary=plan.primary)
        self._attempt = self._unfinished = Attempt(ring, plan, self._repetition(plan, members))
        self._stage = Stage.RECOVERY
        self._seen_ns = now
        self._effects.append(SetTimer("token", self._configuration.token_ns))

    def _repetition(self, plan: Plan, members: tuple[Site, ...]) -> Repetition | None:
        """What this member has to repeat, if it continues; the first that does sends the `State`."""
        order = self._order.ring
        if not plan.primary or order is None or order.id != plan.latest:
            return None
        tells = self._site == plan.continuing[0] and len(plan.continuing) < len(members)
        return Repetition(order.log, plan.low, self._order.streams, tells=tells)

    def _catch_up(self, plan: Plan) -> None:
        """Another member completed a recovery that did not end here: so all held everything, this one too."""
        unfinished = self._unfinished
        if unfinished is None or unfinished.ring.id != plan.latest:
            return
        if self._order.ring is not None and self._order.ring.id == plan.latest:
            return
        if unfinished.ring.log.aru >= plan.base:
            unfinished.ring.base = plan.base
            self._install(unfinished)

    def _begin_ring(self, now: Nanoseconds) -> None:
        """The commit token has been round twice: all members are ready for the regular one."""
        assert self._attempt is not None
        ring = self._attempt.ring
        if ring.token_seq == 0:
            self._circulate(now, ring, ring.first_token())

    def _take_recovered(self, pdu: Recovered) -> None:
        """Keep what was repeated of this member's old ring as if it had come there."""
        attempt, order = self._attempt, self._order.ring
        if attempt is None or attempt.repetition is None or order is None:
            return
        if not 0 < pdu.old_seq - attempt.plan.low <= 4 * self._configuration.reach:
            self.ignored += 1
            return
        attempt.repetition.cover(pdu.old_seq)
        entry = Message(order.id, pdu.old_seq, pdu.sender, pdu.number, pdu.bodies)
        if order.log.put(pdu.old_seq, entry):
            self._note_arrival(pdu)

    def _hold_recovering(self, now: Nanoseconds, attempt: Attempt, token: Token) -> Token:
        token = attempt.visit(token, self._configuration, self._effects)
        if attempt.complete():
            self._install(attempt)
            self._operate(now, attempt.ring)
        return token

    # On a new ring

    def _install(self, attempt: Attempt) -> None:
        """The ring is operational. If it continues the order, so does this member."""
        self._unfinished = None
        self._rings += 1
        attempt.ring.quiet = 0
        if attempt.plan.primary:
            self._order.follow(attempt.ring, attempt.plan)
        else:
            self._order.be_absent()

    def _operate(self, now: Nanoseconds, ring: Ring) -> None:
        """Take part in an operational ring."""
        self._copies += 0 if self._ring is None else self._ring.copies
        self._ring = ring
        self._forming = self._attempt = None
        self._stage = Stage.OPERATIONAL
        self._seen_ns = now
        self._ring_seq = max(self._ring_seq, ring.id.seq)
        self._gathering.settle(ring.members)
        self._tell_who_is_there(ring)
        self._effects.append(SetTimer("token", self._configuration.token_ns))
        self._watch_for_others(ring)

    def _watch_for_others(self, ring: Ring) -> None:
        if ring.members[0] == self._site:
            self._effects.append(SetTimer("announce", self._configuration.announce_ns))

    def _announce(self) -> None:
        """Announce the ring to members that are not on it, if there are any."""
        assert self._ring is not None
        if len(self._ring.members) < len(self._everyone):
            self._effects.append(Multicast(Announce(self._ring.id)))
        self._watch_for_others(self._ring)

    def _tell_who_is_there(self, ring: Ring) -> None:
        there = set(ring.members) - {self._site}
        for site in sorted(there - self._others):
            self._effects.append(Appeared(site))
        for site in sorted(self._others - there):
            self._effects.append(Vanished(site, "It is not on the new ring."))
        self._others = there

    # Functions, not bound methods: a member that refers to itself would be freed late.
    _words: ClassVar[dict[type, Callable[["Member", Nanoseconds, Site, Any], None]]] = {
        Message: _message,
        Recovered: _message,
        State: _message,
        Token: _token,
        Commit: _commit,
        Join: _join,
        Announce: _announced,
        Wake: _wake,
        Leave: _left,
    }
