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
- Every table is bounded. In a full one a newcomer displaces only a member that no longer answers.

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

from collections.abc import Callable, Mapping
from secrets import compare_digest
from typing import Final

from antiphon.core.ids import Group, Site
from antiphon.core.time import SECOND_NS, Nanoseconds
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
from antiphon.live.admission import Admission, Stranger
from antiphon.live.challenges import Challenger
from antiphon.live.counters import Counters
from antiphon.live.handshake import Answer, Challenge, Refused, Terms, shown
from antiphon.live.host import Host
from antiphon.live.members import Known, Members
from antiphon.live.moves import Moves
from antiphon.live.networks import Address
from antiphon.live.own_name import OwnName
from antiphon.live.sealing import GENERATION_BITS, ReplayWindow, Seal, Seals

DERIVED_PER_TICK: Final = 64
"""Keys of strangers derived between two ticks. Raising it costs time under a flood of replays."""
KEY_REPORT_NS: Final = 60 * SECOND_NS
"""Shortest interval between reports that a process has another key, or none: anyone can fake that."""

OTHER_GROUP: Final = "of another group"
UNSEALED: Final = "not sealed, and there is a key"
UNKNOWN_KEY: Final = "sealed under a key that is not ours"
FORGED: Final = "seal does not open"
REPLAYED: Final = "seen before, or too old to judge"
ELSEWHERE: Final = "from an address that has not been proved"
RENAMED: Final = "its boot has another name"
LATER_FIELDS: Final = "fields of a later version, skipped"

OTHER_KEYS: Final = {
    Reason.SEALED.value: "with a key, and this member has none",
    UNSEALED: "without a key, and this member has one",
    UNKNOWN_KEY: "with a key that this member does not have",
}


class Gate:
    """Decides which PDUs are let in at one member.

    The `Transport` passes each PDU to `let_in`, and sends the gate's challenges and answers (`reply`). The
    gate opens seals with `Seals` and reports to its `Host`. Behind it are the table of `Members`, the
    `Challenger` that takes proofs, `Moves` of members to new addresses, and the `Admission` of strangers.
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
        self._counters = counters
        self._host = host
        self._members = members = Members(keyed=seals is not None)
        self._own = own = OwnName(site, boot, members, host)
        self._challenger = challenger = Challenger(
            boot=boot, own=own, terms=terms, members=members, host=host, counters=counters, reply=reply
        )
        self._moves = moves = Moves(members, challenger)
        self._admission = Admission(
            boot=boot, own=own, terms=terms, members=members, challenger=challenger, moves=moves, host=host,
            counters=counters,
        )  # fmt: skip
        self._derived_left = DERIVED_PER_TICK
        self._key_reported: dict[str, Nanoseconds] = {}
        """When it was last reported that a process has another key, or none."""
        self.now: Nanoseconds = 0
        """The time of the last tick or the last read."""

    # Members

    @property
    def sites(self) -> Mapping[Site, Known]:
        return self._members.sites

    @property
    def accepted(self) -> int:
        """Number of boots let in so far."""
        return self._admission.accepted

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
        self._admission.part_with(known, self.now)

    def sizes(self) -> tuple[int, int, int, int]:
        """The number of boots that are known, claim a name, are refused and are retired."""
        return len(self._members), self._admission.claims, self._admission.refused, self._members.retired

    # This process

    def take_part(self) -> None:
        """This process has joined: a later process with its name is refused."""
        self._own.joined = True

    def is_pending(self, within_ns: Nanoseconds) -> bool:
        """Whether a member said within this time that it does not know yet whether our name is free."""
        pending_ns = self._own.pending_ns
        return pending_ns is not None and self.now - pending_ns < within_ns

    def is_meeting(self, within_ns: Nanoseconds) -> bool:
        """Whether a process that sent something within this time has not proved itself yet."""
        return self._admission.is_meeting(self.now, within_ns)

    @property
    def should_greet(self) -> bool:
        """Whether a process was heard that cannot be challenged yet: a greeting makes it greet us."""
        return self._challenger.should_greet

    def greeted(self) -> None:
        """This process has greeted everyone."""
        self._challenger.should_greet = False

    def tick(self, now: Nanoseconds) -> None:
        self.now = now
        self._derived_left = DERIVED_PER_TICK
        self._challenger.tick()
        self._admission.tick(now)
        self._moves.tick(now)
        self._admission.press_silent(now)

    def is_busy(self) -> bool:
        """Whether something waits for the next tick."""
        return bool(self._challenger.is_busy or self._admission.is_busy(self.now) or self._moves)

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
            self._challenger.answer(pdu, known.site, address, known.boot, size)
        else:
            self._challenger.ask_for_counter(known, self.now)
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
                stranger = Stranger(head.boot, site, address, known.seal, head.counter)
                self._admission.on_pdu(stranger, pdu, size, self.now)
            return self._refuse(RENAMED)
        if is_later:
            self._counters.drop(LATER_FIELDS)
        known.heard_ns = self.now
        if address == known.address:
            known.unanswered = 0
        known.number = b""
        self._members.heard(known)
        if head.code in GREETINGS:
            self._on_greeting(known, pdu, address, size)
        if address != known.address and not isinstance(pdu, Challenge | Answer):
            self._moves.on_elsewhere(known, pdu, address, size, self.now)
        return known, pdu

    def _refuse(self, reason: str) -> tuple[Known, Pdu] | None:
        self._counters.drop(reason)
        return None

    def _refuse_key(self, reason: str, address: Address) -> tuple[Known, Pdu] | None:
        """Refuse a PDU that is sealed with another key, or not sealed as ours. It may be a mistake: report
        it."""
        reported = self._key_reported.get(reason)
        if reported is None or self.now - reported >= KEY_REPORT_NS:
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

    def _on_greeting(self, known: Known, pdu: Pdu, address: Address, size: int) -> None:
        """A member sent a handshake PDU."""
        if isinstance(pdu, Challenge):
            self._challenger.answer(pdu, known.site, address, known.boot, size)
        elif isinstance(pdu, Answer):
            if self._challenger.is_right(pdu, known.boot, address, self.now):
                self._moves.on_answer(known, address, self.now)
                if address == known.address:
                    self._admission.settle_claims(known.site, self.now)
        elif isinstance(pdu, Refused) and pdu.boot == self._boot:
            self._own.on_refused(known, pdu, self.now)

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
                self._on_greeting(owner, pdu, address, len(view))
            else:
                self._moves.on_elsewhere(owner, pdu, address, len(view), self.now)
            return self._refuse(ELSEWHERE)
        stranger = Stranger(head.boot, site, address, seal, head.counter)
        self._admission.on_pdu(stranger, pdu, len(view), self.now)
        return None

    def _seal_of_stranger(self, seals: Seals, head: Head) -> Seal | None:
        return seals.find(head.boot, head.checksum, head.counter >> GENERATION_BITS, self._may_derive)

    def _may_derive(self) -> bool:
        self._derived_left -= 1
        return self._derived_left >= 0
