"""The gate: decides from the bytes of a PDU which member sent it, or counts the reason why it is dropped.

It assumes nothing about the sender. With a key or without, it guarantees:

- Nothing passes from a process that has not proved that it is running now and is reachable at its source
  address (see `handshake`), or whose options or wire versions do not match this group's.
- A name belongs to one process at a time. A second process that claims it is refused while the first one
  answers. If the owner no longer answers, the claimant gets the name: that is how a member restarts. A
  refused process learns the address of the owner.
- A PDU for one process is refused by all others.
- A member that sends from a new address still gets its PDUs at the old one, until it has answered at the new
  address and no longer answers at the old one.
- One datagram from an unproven address causes at most one reply, which is not larger.
- Every table is bounded, and newcomers displace only members that have been silent for long.

In a group with a key it also guarantees (a test floods it):

- Nothing passes that was not sealed by a holder of the key, for this group, unaltered.
- Nothing passes twice, nor after it has fallen far behind the newest PDU of its boot.

Without a key a checksum protects against accidents. Nothing protects against forged source addresses, and any
process may use another's boot, so a process is identified by boot and address together. PDUs of a process
that has not proved itself are dropped: the protocols ask for them again.

A holder of the key can seal as any boot. It can use up a member's counters, so that the member's own PDUs
look like replays: such a member is challenged, and its answer shows where its counters are. It can use a
member's boot under another name: the member must then prove itself like a stranger, and the latest proof
counts.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from secrets import compare_digest, token_bytes
from typing import Final, NamedTuple
from typing import Protocol as Interface

from antiphon.core.ids import Group, Site
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import (
    BOOT,
    GREETINGS,
    HEADER,
    PREFIX,
    Bytes,
    Codec,
    Head,
    Pdu,
    Reason,
    checksum,
    group_hash,
    parse,
)
from antiphon.live.counters import Counters
from antiphon.live.handshake import (
    GREETING_BYTES,
    NUMBER_BYTES,
    Answer,
    Challenge,
    Cookies,
    Hello,
    Here,
    Refused,
    Terms,
    shown,
)
from antiphon.live.limits import is_name
from antiphon.live.members import MOST_MEMBERS, MOVE_PAUSE_NS, PRESS_NS, Identity, Known, Members, Move
from antiphon.live.networks import Address
from antiphon.live.sealing import GENERATION_BITS, ReplayWindow, Seal, Seals
from antiphon.live.status import Status

MOST_REFUSED: Final = 1024
MOST_UNMET: Final = 64
MOST_CLAIMS: Final = 64
"""Processes that wait for a name whose owner may be gone."""
LEAST_BYTES: Final = GREETING_BYTES - 1
"""Smallest datagram of a stranger that is answered. A greeting may be one byte shorter than intended, because
of the size of its length field."""
SILENCE_NS: Final = 5 * SECOND_NS
"""After this silence a member has no vote on refusing us, its name is free at once, and a newcomer may take
its place."""
NAME_SILENCE_NS: Final = 250 * MILLISECOND_NS
"""An owner that was challenged and stays silent for this long loses its name. Raising it costs time to
restart a member; lowering it costs members on a busy machine their names."""
UNANSWERED: Final = 5
"""Challenges that a member must leave unanswered before it counts as silent. Time alone is not enough: this
process may have been stopped while the answers waited to be read."""
MOVE_NS: Final = SECOND_NS
"""Time that an old address has to answer before the new address is used. Raising it costs time after a move;
lowering it makes a member on a busy machine easier to mistake for a moved one."""
ANSWERS_PER_TICK: Final = 128
"""Challenges and answers that strangers may cause between two ticks. Raising it costs traffic in a flood."""
ANSWERS_PER_ADDRESS: Final = 8
"""The same for one address."""
DERIVED_PER_TICK: Final = 64
"""Keys of strangers derived between two ticks. Raising it costs time under a flood of replays."""
KEY_TOLD_NS: Final = 60 * SECOND_NS
"""Shortest interval between reports that a process has another key, or none: anyone can fake that."""
OWN_CODES: Final = range(2, 16)
"""PDU codes reserved for the transport."""

OTHER_GROUP: Final = "of another group"
UNSEALED: Final = "not sealed, and there is a key"
UNKNOWN_KEY: Final = "sealed under a key that is not ours"
FORGED: Final = "seal does not open"
REPLAYED: Final = "seen before, or too old to judge"
UNPROVEN: Final = "its boot has not proved itself yet"
ELSEWHERE: Final = "from an address that has not been proved"
NAME_TAKEN: Final = "another process uses this name"
RENAMED: Final = "its boot has another name"
BAD_NAME: Final = "its name is not allowed"
DIFFERS: Final = "its options differ from this group's"
LATER_FIELDS: Final = "fields of a later version, skipped"
FULL: Final = "there are too many members"

OTHER_KEYS: Final = {
    Reason.SEALED.value: "with a key, and this member has none",
    UNSEALED: "without a key, and this member has one",
    UNKNOWN_KEY: "with a key that this member does not have",
}


class Host(Interface):
    """The process that a gate guards: a `Group` or an `Onlooker`."""

    def incarnation_of(self, site: Site) -> int:
        """The latest known incarnation of a site; 0 if there is none."""
        ...

    def reported(self, incarnation: int) -> None:
        """A member knows an incarnation of our name."""

    def met(self, site: Site, boot: int) -> None:
        """A process was let in under its name. None of its PDUs has been passed on yet."""

    def status(self) -> Status | None:
        """This member's status, for a proven process that asks; None for no answer."""
        ...

    def told(self, site: Site, status: Status) -> None:
        """The status of another member, which we asked for."""

    def refused(self, site: Site, reason: str) -> None:
        """A process was refused, or refuses us. The reason is shown to people."""

    def left_behind(self, site: Site) -> None:
        """A member cannot keep up at any useful rate. The group does not wait for it."""

    def namesake(self, address: str) -> None:
        """The other members follow a process at that address under our name: this process must end."""


class Stranger(NamedTuple):
    """A process that is not a member, as one PDU shows it."""

    identity: tuple[int, Address]
    boot: int
    site: Site
    address: Address
    seal: Seal | None
    counter: int


class Claim:
    """A process that has proved itself, and whose name another process has."""

    __slots__ = ("answer", "since_ns", "stranger", "told_ns")

    def __init__(self, stranger: Stranger, answer: Answer, now: Nanoseconds) -> None:
        self.stranger = stranger
        self.answer = answer
        self.since_ns: Final = now
        self.told_ns = now - PRESS_NS
        """When it was last asked to wait."""


class Gate:
    """Decides which PDUs are let in at one member.

    The `Transport` passes each PDU to `let_in`, and sends the gate's challenges and answers (`reply`). The
    gate keeps its table in `Members`, takes proofs as `handshake` defines them, opens seals with `Seals`, and
    reports to its `Host`.
    """

    def __init__(
        self,
        *,
        site: Site,
        group: Group,
        boot: int,
        codec: Codec,
        seals: Seals | None,
        terms: Terms,
        counters: Counters,
        host: Host,
        reply: Callable[[Pdu, Address, int, int | None], None],
    ) -> None:
        """`reply` sends a PDU to an address, for a boot, with at most that many bytes."""
        self._site = site
        self._group = group_hash(group)
        self._boot = boot
        self._codec = codec
        self._seals = seals
        self._terms = terms
        self._counters = counters
        self._host = host
        self._reply = reply
        self._cookies = Cookies()
        self._members = Members(keyed=seals is not None)
        self._moving: set[Known] = set()
        """Members that have answered at a new address."""
        self._claims: OrderedDict[Identity, Claim] = OrderedDict()
        self._unmet: OrderedDict[Identity, Nanoseconds] = OrderedDict()
        """Processes that have not proved themselves, with the time of their last datagram."""
        self._refused: OrderedDict[Identity, str] = OrderedDict()
        """Processes that were refused for good, with the reason."""
        self._refusers: dict[Known, Nanoseconds] = {}
        """Members that refuse us because another process has our name, with the time of the refusal."""
        self._answers_left = ANSWERS_PER_TICK
        self._answered: dict[Address, int] = {}
        self._derived_left = DERIVED_PER_TICK
        self._key_reported: dict[str, Nanoseconds] = {}
        """When it was last reported that a process has another key, or none."""
        self.now: Nanoseconds = 0
        """The time of the last tick or the last read."""
        self.accepted = 0
        """Number of boots let in so far."""
        self.joined = False
        """Whether this process has joined: a later process with its name is refused."""
        self.pending_ns: Nanoseconds | None = None
        """When a member last said that our name may be taken and that it is finding out."""
        self.should_greet = False
        """Whether a process was heard that cannot be challenged yet: a greeting makes it greet us."""

    # Members

    @property
    def sites(self) -> Mapping[Site, Known]:
        return self._members.sites

    def find(self, site: Site) -> Known | None:
        return self._members.named(site)

    def known(self, boot: int, address: Address) -> Known | None:
        """The member of this boot; without a key only if the datagram is from its own address."""
        return self._members.get(boot, address)

    def knows(self, known: Known) -> bool:
        """Whether a member is still in the table."""
        return self._members.knows(known)

    def at(self, address: Address) -> Known | None:
        """The member at an address."""
        return self._members.at(address)

    def part_with(self, known: Known) -> None:
        """A member has left: its name is free at once."""
        if self.knows(known):
            self._forget(known)
        for claim in [claim for claim in self._claims.values() if claim.stranger.site == known.site]:
            self._settle_claim(claim)

    def sizes(self) -> tuple[int, int, int, int]:
        """The number of boots that are known, claim a name, are refused and are retired."""
        return len(self._members), len(self._claims), len(self._refused), self._members.retired

    def tick(self, now: Nanoseconds) -> None:
        self.now = now
        self._answers_left = ANSWERS_PER_TICK
        self._answered.clear()
        self._derived_left = DERIVED_PER_TICK
        for claim in list(self._claims.values()):
            self._settle_claim(claim)
        for known in list(self._moving):
            self._settle_move(known)

    def is_busy(self) -> bool:
        """Whether something waits for the next tick."""
        return bool(self._answered or self._claims or self._moving)

    def rekey(self) -> None:
        """The ring has changed: PDUs sealed under a removed key no longer open."""
        assert self._seals is not None
        for known in self._members.all():
            if known.seal is not None:
                known.seal = self._seals.find(known.boot, known.seal.identifier, known.seal.generation)

    # Incoming PDUs

    def let_in(self, view: memoryview, address: Address) -> tuple[Known, Pdu] | None:
        """The sender of a PDU and the PDU; None if it is dropped, with the reason counted."""
        head = parse(view)
        if isinstance(head, Reason):
            return self._refuse(head.value)
        if head.boot == self._boot:
            return None
        if head.group != self._group:
            return self._refuse(OTHER_GROUP)
        if head.sealed != (self._seals is not None):
            return self._refuse_key(Reason.SEALED.value if head.sealed else UNSEALED, address)
        known = self._members.get(head.boot, address)
        if known is None:
            return self._meet(head, view, address)
        if self._seals is None:
            return self._read_unsealed(known, head, view, address)
        return self._read_sealed(known, head, view, address)

    def _read_sealed(
        self, known: Known, head: Head, view: memoryview, address: Address
    ) -> tuple[Known, Pdu] | None:
        counter, seal = head.counter, known.seal
        is_new = known.window.is_new(counter)
        if not is_new and not known.window.is_past(counter):
            return self._refuse(REPLAYED)
        if seal is None or head.checksum != seal.identifier:
            # The sender has switched to another key, or to its next generation.
            assert self._seals is not None
            seal = self._seals.find(head.boot, head.checksum, counter >> GENERATION_BITS)
            if seal is None:
                return self._refuse(UNKNOWN_KEY)
        body = seal.open(counter, self._associated(head, view), view[HEADER.size :])
        if body is None:
            return self._lose(FORGED) if is_new and address == known.address else self._refuse(FORGED)
        if not is_new:
            return self._read_past(known, seal, head, body, address, len(view))
        if counter > known.window.top:
            known.seal = seal
        known.window.note(counter)
        return self._finish(known, head, body, address, len(view))

    def _read_past(
        self, known: Known, seal: Seal, head: Head, body: Bytes, address: Address, size: int
    ) -> tuple[Known, Pdu] | None:
        """A counter too old to judge: a replay, or a member whose counters another key holder has used up.

        A member that answers a challenge with such a counter is genuine if nothing newer was received since
        the challenge: the newer counters were not its own.
        """
        self._counters.drop(REPLAYED)
        found = self._codec.decode_body(head.code, body)
        pdu = None if isinstance(found, Reason) else found[1]
        if isinstance(pdu, Answer) and known.number and compare_digest(pdu.number, known.number):
            known.window = ReplayWindow(head.counter)
            known.seal = seal
            known.number = b""
        elif isinstance(pdu, Challenge):
            # It may be in the same situation.
            self._answer(pdu, known.site, address, known.boot, size)
        elif self.now - known.pressed_ns >= PRESS_NS and self._may_answer(known.address):
            known.pressed_ns = self.now
            known.number = token_bytes(NUMBER_BYTES)
            self._counters.challenges_sent += 1
            self._reply(Challenge(known.boot, known.number), known.address, known.boot, None)
        return None

    def _associated(self, head: Head, view: memoryview) -> Bytes:
        prefix = view[: PREFIX.size]
        return bytes(prefix) + BOOT.pack(self._boot) if head.direct else prefix

    def _read_unsealed(
        self, known: Known, head: Head, view: memoryview, address: Address
    ) -> tuple[Known, Pdu] | None:
        if checksum(view, self._boot if head.direct else None) != head.checksum:
            return self._lose(Reason.CHECKSUM.value)
        return self._finish(known, head, view[HEADER.size :], address, len(view))

    def _finish(
        self, known: Known, head: Head, body: Bytes, address: Address, size: int
    ) -> tuple[Known, Pdu] | None:
        found = self._codec.decode_body(head.code, body)
        if isinstance(found, Reason):
            return self._lose(found.value)
        site, pdu, is_later = found
        if site != known.site:
            if address != known.address:
                # One of the two processes lies: the other must be able to prove itself.
                identity = (head.boot, address)
                stranger = Stranger(identity, head.boot, site, address, known.seal, head.counter)
                self._hear(stranger, pdu, size)
            return self._refuse(RENAMED)
        if is_later:
            self._counters.drop(LATER_FIELDS)
        known.heard_ns = self.now
        if address == known.address:
            known.unanswered = 0
        known.number = b""
        self._members.heard(known)
        if head.code in GREETINGS:
            self._greeted(known, pdu, address, size)
        if address != known.address and not isinstance(pdu, Challenge | Answer):
            self._elsewhere(known, pdu, address, size)
        return known, pdu

    def _refuse(self, reason: str) -> tuple[Known, Pdu] | None:
        self._counters.drop(reason)
        return None

    def _refuse_key(self, reason: str, address: Address) -> tuple[Known, Pdu] | None:
        """Refuse a PDU that is sealed with another key, or not sealed as ours. It may be a mistake: report
        it."""
        told = self._key_reported.get(reason)
        if told is None or self.now - told >= KEY_TOLD_NS:
            self._key_reported[reason] = self.now
            how = OTHER_KEYS[reason]
            self._host.refused(
                self._site,
                f"A process at {shown(address)} is in this group {how}: give all members the same key file.",
            )
        return self._refuse(reason)

    def _lose(self, reason: str) -> tuple[Known, Pdu] | None:
        """Refuse a PDU that a member may have sent."""
        self._counters.lose(reason)
        return None

    # Handshake PDUs of members

    def _greeted(self, known: Known, pdu: Pdu, address: Address, size: int) -> None:
        if isinstance(pdu, Challenge):
            self._answer(pdu, known.site, address, known.boot, size)
        elif isinstance(pdu, Answer):
            self._answered_again(known, pdu, address)
        elif isinstance(pdu, Refused) and pdu.boot == self._boot:
            self._was_refused(known, pdu)

    def _answered_again(self, known: Known, answer: Answer, address: Address) -> None:
        """A member has answered, at its address or at another."""
        if not self._cookies.is_right(answer.number, known.boot, address, self.now):
            self._counters.drop(UNPROVEN)
        elif address == known.address:
            known.answered_ns = self.now
            self._stop_moving(known)
            for claim in [claim for claim in self._claims.values() if claim.stranger.site == known.site]:
                self._settle_claim(claim)
        elif known.move is None and known.answered_ns < known.moved_ns:
            known.move = Move(address, known.moved_ns)
            self._moving.add(known)

    def _stop_moving(self, known: Known | None) -> None:
        if known is not None:
            known.move = None
            self._moving.discard(known)

    def _elsewhere(self, known: Known, pdu: Pdu, address: Address, size: int) -> None:
        """A member sends from a new address: challenge it there and at the old one."""
        if self.now - known.moved_ns < MOVE_PAUSE_NS or known.move is not None:
            return
        if size < LEAST_BYTES:
            self._call(known.boot, pdu, address, size)
        elif self._press(known):
            known.moved_ns = self.now
            self._challenge(known.boot, address, size)

    def _press(self, known: Known) -> bool:
        """Challenge a member at its address. Returns whether that was possible just now."""
        if self.now - known.pressed_ns < PRESS_NS or not self._challenge(known.boot, known.address, None):
            return False
        known.pressed_ns = self.now
        known.unanswered += 1
        return True

    def _settle_move(self, known: Known) -> None:
        assert known.move is not None
        address, since = known.move
        if self.now - since < MOVE_NS or known.unanswered < UNANSWERED:
            self._press(known)
            return
        self._stop_moving(known)
        known.answered_ns = self.now
        known.unanswered = 0
        self._stop_moving(self._members.move(known, address))

    def _was_refused(self, known: Known, refused: Refused) -> None:
        """A member follows another process under our name.

        A process that has joined gives up only if most members say so, since one member may lie.
        """
        if not refused.final:
            self.pending_ns = self.now
            return
        self._refusers[known] = self.now
        recent = self.now - SILENCE_NS
        self._refusers = {
            each: told for each, told in self._refusers.items() if self.knows(each) and told > recent
        }
        heard = len(self._members.heard_since(recent))
        if not self.joined or 2 * len(self._refusers) > max(heard, 1):
            self._host.namesake(refused.address if refused.address.isprintable() else "?")

    # Strangers

    def _meet(self, head: Head, view: memoryview, address: Address) -> tuple[Known, Pdu] | None:
        seal, body = None, view[HEADER.size :]
        if self._seals is not None:
            seal = self._seal_of_stranger(self._seals, head)
            if seal is None:
                if self._derived_left < 0:
                    return self._refuse(UNKNOWN_KEY)  # the budget is used up: it may be a member's
                return self._refuse_key(UNKNOWN_KEY, address)
            opened = seal.open(head.counter, self._associated(head, view), body)
            if opened is None:
                return self._refuse(FORGED)
            body = memoryview(opened)
        elif checksum(view, self._boot if head.direct else None) != head.checksum:
            return self._refuse(Reason.CHECKSUM.value)
        found = self._codec.decode_body(head.code, body)
        if isinstance(found, Reason):
            return self._refuse(found.value)
        site, pdu, _ = found
        owner = self._members.named(site)
        if self._seals is None and owner is not None and owner.boot == head.boot:
            if isinstance(pdu, Challenge | Answer):
                self._greeted(owner, pdu, address, len(view))
            else:
                self._elsewhere(owner, pdu, address, len(view))
            return self._refuse(ELSEWHERE)
        identity = (head.boot, address)
        self._hear(Stranger(identity, head.boot, site, address, seal, head.counter), pdu, len(view))
        return None

    def _seal_of_stranger(self, seals: Seals, head: Head) -> Seal | None:
        return seals.find(head.boot, head.checksum, head.counter >> GENERATION_BITS, self._may_derive)

    def _may_derive(self) -> bool:
        self._derived_left -= 1
        return self._derived_left >= 0

    def _hear(self, stranger: Stranger, pdu: Pdu, size: int) -> None:
        """An unproven process may send a challenge, and the answer to ours. The rest is dropped."""
        refusal = self._refused.get(stranger.identity)
        if isinstance(pdu, Answer):
            self._judge(stranger, pdu, refusal)
        elif isinstance(pdu, Challenge):
            # Also to a refused process: it must learn the reason.
            self._answer(pdu, stranger.site, stranger.address, stranger.boot, size)
            if refusal is None:
                self._note_unmet(stranger)
        elif refusal is not None:
            self._counters.drop(refusal)
        else:
            self._note_unproven(pdu)
            if stranger.identity in self._claims:
                return
            if isinstance(pdu, Refused) and pdu.boot == self._boot and not pdu.final:
                # This only makes a newcomer wait, so it needs no proof.
                self.pending_ns = self.now
            self._note_unmet(stranger)
            if size >= LEAST_BYTES:
                self._challenge(stranger.boot, stranger.address, size)
            else:
                self._call(stranger.boot, pdu, stranger.address, size)

    def _note_unproven(self, pdu: Pdu) -> None:
        if pdu.code in OWN_CODES:
            self._counters.drop(UNPROVEN)
        else:
            self._counters.lose(UNPROVEN)

    def _note_unmet(self, stranger: Stranger) -> None:
        self._unmet[stranger.identity] = self.now
        self._unmet.move_to_end(stranger.identity)
        if len(self._unmet) > MOST_UNMET:
            self._unmet.popitem(last=False)

    def is_meeting(self, within_ns: Nanoseconds) -> bool:
        """Whether a process that sent something within this time has not proved itself yet."""
        return any(self.now - spoke < within_ns for spoke in self._unmet.values())

    def _call(self, boot: int, pdu: Pdu, address: Address, size: int) -> None:
        """Make a process greet whose datagram was too small for a challenge: send it a datagram as small."""
        self.should_greet = True
        # Two strangers would otherwise call each other for ever. One call between two ticks is enough.
        if not isinstance(pdu, Hello) and address not in self._answered and self._may_answer(address):
            self._reply(Hello(), address, boot, size)

    def _challenge(self, boot: int, address: Address, size: int | None) -> bool:
        """Ask for a proof with at most `size` bytes; None if the address is a member's."""
        if not self._may_answer(address):
            return False
        self._counters.challenges_sent += 1
        number = self._cookies.number(boot, address, self.now)
        self._reply(Challenge(boot, number), address, boot, size)
        return True

    def _answer(self, challenge: Challenge, site: Site, address: Address, boot: int, size: int) -> None:
        """Prove that this process is running now, with at most as many bytes as the challenge had."""
        if challenge.boot == self._boot and size >= LEAST_BYTES and self._may_answer(address):
            self._counters.proofs_given += 1
            terms, yours = self._terms, self._host.incarnation_of(site)
            answer = Answer(
                challenge.number, terms.oldest, terms.newest, self.joined, yours, dict(terms.options)
            )
            self._reply(answer, address, boot, size)

    def _may_answer(self, address: Address) -> bool:
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

    def _judge(self, stranger: Stranger, answer: Answer, refusal: str | None) -> None:
        """A process has answered: let it in, refuse it, or let it wait for its name."""
        if not self._cookies.is_right(answer.number, stranger.boot, stranger.address, self.now):
            self._counters.drop(UNPROVEN)
            return
        self._unmet.pop(stranger.identity, None)
        if refusal is not None:
            self._counters.drop(refusal)
        elif stranger.identity not in self._claims:
            # Its address is proved now: it may challenge us in turn, and learn the reason if it is refused.
            if self._may_answer(stranger.address):
                self._reply(Here(), stranger.address, stranger.boot, None)
            self._decide(stranger, answer)

    def _decide(self, stranger: Stranger, answer: Answer) -> None:
        if not is_name(stranger.site):
            self._keep_out(stranger, BAD_NAME)
        elif difference := self._terms.difference(stranger.site, answer):
            self._keep_out(stranger, DIFFERS)
            self._host.refused(stranger.site, difference)
        elif stranger.site == self._site:
            self._meet_namesake(stranger, answer)
        else:
            self._consider(stranger, answer)

    def _keep_out(self, stranger: Stranger, reason: str) -> None:
        self._counters.drop(reason)
        self._refused[stranger.identity] = reason
        if len(self._refused) > MOST_REFUSED:
            self._refused.popitem(last=False)

    def _meet_namesake(self, stranger: Stranger, answer: Answer) -> None:
        """Another process has our name and answers. The process that joined first keeps it.

        If neither has joined, the process with the lower boot keeps it. If both joined, in separated parts of
        a network, each keeps it among the members that know it.
        """
        where = shown(stranger.address)
        if not self.joined and (answer.joined or stranger.boot < self._boot):
            self._counters.drop(NAME_TAKEN)
            self._host.namesake(where)
            return
        self._keep_out(stranger, NAME_TAKEN)
        self._host.refused(
            stranger.site,
            f"A process at {where} also has this member's name, '{self._site}': give it another one.",
        )

    def _consider(self, stranger: Stranger, answer: Answer) -> None:
        owner = self._members.named(stranger.site)
        if owner is None or self.now - owner.heard_ns >= SILENCE_NS:
            self._accept(stranger, answer)
            return
        claim = Claim(stranger, answer, self.now)
        self._claims[stranger.identity] = claim
        if len(self._claims) > MOST_CLAIMS:
            self._claims.popitem(last=False)
        self._settle_claim(claim)

    def _settle_claim(self, claim: Claim) -> None:
        """Give a process its name if the owner is gone; refuse it if the owner has answered since."""
        stranger = claim.stranger
        owner = self._members.named(stranger.site)
        if owner is None or self._is_silent(owner, claim.since_ns):
            del self._claims[stranger.identity]
            self._accept(stranger, claim.answer)
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
            self._press(owner)
            if self.now - claim.told_ns >= PRESS_NS:
                claim.told_ns = self.now
                self._send_refusal(stranger, owner, final=False)

    def _is_silent(self, owner: Known, since: Nanoseconds) -> bool:
        silence = self.now - max(owner.heard_ns, since)
        return silence >= NAME_SILENCE_NS and owner.unanswered >= UNANSWERED

    def _send_refusal(self, stranger: Stranger, owner: Known, *, final: bool) -> None:
        refused = Refused(stranger.boot, shown(owner.address), final)
        self._reply(refused, stranger.address, stranger.boot, None)

    def _accept(self, stranger: Stranger, answer: Answer) -> None:
        """Let a process in under its name, in place of the process that had it before."""
        former = self._members.named(stranger.site)
        if former is not None:
            self._forget(former)
        if len(self._members) >= MOST_MEMBERS:
            quietest = next(iter(self._members.all()))
            if self.now - quietest.heard_ns < SILENCE_NS:
                self._counters.drop(FULL)
                self._host.refused(
                    stranger.site,
                    f"There is no room for '{stranger.site}' at {shown(stranger.address)}: this member knows "
                    f"{MOST_MEMBERS} other active members. Let some of them leave.",
                )
                return
            self._forget(quietest)
        identity = self._members.identity(stranger.boot, stranger.address)
        top = max(stranger.counter, self._members.recall(identity))
        known = Known(identity, stranger.boot, stranger.site, stranger.address, stranger.seal, top, self.now)
        self.accepted += 1
        self._stop_moving(self._members.add(known))
        self._host.met(known.site, known.boot)
        if answer.yours:
            known.told = answer.yours
            self._report(known)

    def _report(self, known: Known) -> None:
        """A process knows an incarnation of our name.

        A joined process restarts above it, so it believes only what most members report: one member may lie.
        """
        told = known.told
        if self.joined:
            recent = self.now - SILENCE_NS
            heard = [each.told for each in self._members.heard_since(recent)]
            told = sorted(heard, reverse=True)[len(heard) // 2]
        if told:
            self._host.reported(told)

    def _forget(self, known: Known) -> None:
        self._members.remove(known)
        self._stop_moving(known)
