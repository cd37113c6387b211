"""The gate: from the bytes of a PDU to who sent it and what it says, or a counted reason why not.

It assumes nothing about whoever sends. What it guarantees, with a key or without:
- nothing comes through from a process that has not proved that it runs now and is reachable where its PDUs
  come from (see `handshake`), or that was told something else than this group, or speaks other versions;
- a name belongs to one process at a time. A second one that claims it is refused as long as the first one
  answers. One that does not answer any more loses its name to the next that asks, as when a member is
  restarted. The process that is refused learns it, with the address of the other;
- a PDU for one process is refused by all others;
- a process that speaks from a new address is still spoken to at its old one, until it has answered at the
  new one and no longer answers at the old one;
- one datagram from an address that has not been proved draws at most one reply, which is not larger;
- every table is bounded, and newcomers push out only members that have been silent for long.

In a group with a key, moreover (a test floods it):
- nothing comes through that was not sealed by a holder of the key, for this group, unaltered;
- nothing comes through twice, nor after it has fallen far behind what its boot sent since.

Without a key there is a checksum against accidents, and nothing against a process that forges source
addresses. A boot is then known together with its address, since anyone may call itself by another's boot.
What a process sent before it has proved itself is dropped: the protocols ask for it again.

A key holder can seal as any boot. It can use up a member's counters, so that all that the member says seems
to be a replay: such a member is challenged, and its answer shows where its counters are. It can tell another
name under a member's boot: then the member is asked for a proof as any stranger, and the latest one counts.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from secrets import compare_digest, token_bytes
from typing import Final, NamedTuple, TypeAlias
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
from antiphon.live.networks import Address
from antiphon.live.sealing import GENERATION_BITS, ReplayWindow, Seal, Seals
from antiphon.live.status import Status

MOST_MEMBERS: Final = 1024
MOST_RETIRED: Final = 1024
MOST_REFUSED: Final = 1024
MOST_UNMET: Final = 64
MOST_CLAIMS: Final = 64
"""Processes that wait for a name that another one may have given up."""
LEAST_BYTES: Final = GREETING_BYTES - 1
"""What a stranger must send to be answered. A greeting may lack one byte: lengths take more bytes to tell."""
SILENCE_NS: Final = 5 * SECOND_NS
"""A member that said nothing for so long does not count among those that may refuse us, its name is free at
once, and a newcomer may have its place."""
NAME_SILENCE_NS: Final = 250 * MILLISECOND_NS
"""An owner that was asked, and said nothing for so long, loses its name. Raising it costs time to restart a
member, lowering it costs names of members that a busy machine holds up."""
UNANSWERED: Final = 5
"""Challenges that a member must leave unanswered before it counts as silent: time alone may have passed while
this process stood still, and its answers wait to be read."""
PRESS_NS: Final = 50 * MILLISECOND_NS
"""Pause between challenges to a member since another process claims its name, or since it may have moved."""
MOVE_NS: Final = SECOND_NS
"""How long an old address may take to answer before the new one is used. Raising it costs time after a move,
lowering it makes a member that a busy machine holds up easier to take for one that has moved."""
MOVE_PAUSE_NS: Final = SECOND_NS
"""Pause between challenges because of one member's new address."""
ANSWERS_PER_TICK: Final = 128
"""Challenges and answers that strangers may cause between two ticks."""
ANSWERS_PER_ADDRESS: Final = 8
"""The same for one address."""
DERIVED_PER_TICK: Final = 64
"""Keys of strangers that are derived between two ticks. Raising it costs time under a flood of replays."""
KEY_TOLD_NS: Final = 60 * SECOND_NS
"""That another process has another key, or none, is told so often at most: anyone can make it seem so."""
OWN_CODES: Final = range(2, 16)
"""PDU codes of the transport, which no protocol may use."""

OTHER_GROUP: Final = "of another group"
UNSEALED: Final = "not sealed, and there is a key"
UNKNOWN_KEY: Final = "sealed under a key that is not ours"
FORGED: Final = "seal does not open"
REPLAYED: Final = "seen before, or too late to tell"
UNPROVEN: Final = "its boot has not proved itself yet"
ELSEWHERE: Final = "from an address that has not been proved"
NAME_TAKEN: Final = "another process uses this name"
RENAMED: Final = "its boot has another name"
BAD_NAME: Final = "no member can be called that"
DIFFERS: Final = "told something else than this group"
LATER_FIELDS: Final = "fields of a later version, skipped"
FULL: Final = "there are too many members"

OTHER_KEYS: Final = {
    Reason.SEALED.value: "with a key, and this member has none",
    UNSEALED: "without a key, and this member has one",
    UNKNOWN_KEY: "with a key that this member does not have",
}

Identity: TypeAlias = int | tuple[int, Address]
"""What a process is known by: its boot, and without a key its address, too."""


class Host(Interface):
    """The process that a gate guards."""

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation of a site that is known here; 0 if there is none."""
        ...

    def reported(self, incarnation: int) -> None:
        """A member knows an incarnation of our name."""

    def met(self, site: Site, boot: int) -> None:
        """A process was let in under its name; nothing of what it says has been passed on yet."""

    def status(self) -> Status | None:
        """How this member is, for a process that has proved itself and asks; None to say nothing."""
        ...

    def told(self, site: Site, status: Status) -> None:
        """How another member is, since we asked."""

    def refused(self, site: Site, reason: str) -> None:
        """Another process was refused, or refuses us, for a reason that people should know."""

    def left_behind(self, site: Site) -> None:
        """A member cannot keep up with what is sent to it at any useful rate: nobody waits for it."""

    def namesake(self, address: str) -> None:
        """The others follow a process at that address under our name: this one cannot go on."""


class Known:
    """A member's boot that is heard."""

    __slots__ = (
        "address",
        "answered_ns",
        "boot",
        "heard_ns",
        "identity",
        "move",
        "moved_ns",
        "number",
        "pressed_ns",
        "received_bytes",
        "seal",
        "site",
        "told",
        "unanswered",
        "window",
    )

    def __init__(
        self,
        identity: Identity,
        boot: int,
        site: Site,
        address: Address,
        seal: Seal | None,
        top: int,
        now: Nanoseconds,
    ) -> None:
        self.identity = identity
        self.boot: Final = boot
        self.site: Final = site
        self.address = address
        self.seal = seal
        self.window = ReplayWindow(top)
        self.heard_ns = now
        self.answered_ns = now
        """When it last answered a challenge at its address."""
        self.move: Move | None = None
        self.moved_ns = now - MOVE_PAUSE_NS
        """When it was last challenged since it spoke from elsewhere."""
        self.pressed_ns = now - PRESS_NS
        """When it was last challenged at its address."""
        self.unanswered = 0
        """Challenges at its address since it was last heard from there."""
        self.received_bytes = 0
        """What has come from it."""
        self.number = b""
        """Of the challenge that is to show where its counters are; none once something newer was heard."""
        self.told = 0
        """The incarnation of our name that it knew when it was let in; 0 if there was none."""


class Move(NamedTuple):
    """A new address at which a member has answered."""

    address: Address
    since_ns: Nanoseconds


class Stranger(NamedTuple):
    """A process that is not known, as one PDU shows it."""

    identity: tuple[int, Address]
    boot: int
    site: Site
    address: Address
    seal: Seal | None
    counter: int


class Claim:
    """A process that has proved itself, and whose name another one has."""

    __slots__ = ("answer", "since_ns", "stranger", "told_ns")

    def __init__(self, stranger: Stranger, answer: Answer, now: Nanoseconds) -> None:
        self.stranger = stranger
        self.answer = answer
        self.since_ns: Final = now
        self.told_ns = now - PRESS_NS
        """When it was last told to wait."""


class Gate:
    """Decides what is let in at one member."""

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
        """`reply` sends a PDU to an address, for a boot, with so many bytes at most."""
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
        self._known: OrderedDict[Identity, Known] = OrderedDict()
        """Those that were heard last are at the end."""
        self._sites: dict[Site, Known] = {}
        self._addresses: dict[Address, Known] = {}
        self._moving: set[Known] = set()
        """Members that have answered at a new address."""
        self._claims: OrderedDict[Identity, Claim] = OrderedDict()
        self._unmet: OrderedDict[Identity, Nanoseconds] = OrderedDict()
        """Processes that spoke and have not proved themselves, and when they spoke last."""
        self._refused: OrderedDict[Identity, str] = OrderedDict()
        """Processes that were refused for good, and why."""
        self._retired: OrderedDict[Identity, int] = OrderedDict()
        """Processes that are known no more, and the newest counter that was heard of each."""
        self._refusers: dict[Known, Nanoseconds] = {}
        """Members that refuse us since another process has our name, and when they said so."""
        self._answers_left = ANSWERS_PER_TICK
        self._answered: dict[Address, int] = {}
        self._derived_left = DERIVED_PER_TICK
        self._key_told: dict[str, Nanoseconds] = {}
        """When it was last told that another process has another key, or none."""
        self.now: Nanoseconds = 0
        """As of the last tick, or of when something was last received."""
        self.accepted = 0
        """How many boots have been let in so far."""
        self.joined = False
        """Whether this process takes part, so that others with its name come too late."""
        self.pending_ns: Nanoseconds | None = None
        """When a member last said that our name may be another's, which it would find out."""
        self.should_greet = False
        """Whether somebody spoke whom we cannot challenge yet: if it hears us, it greets."""

    # Who is known

    @property
    def sites(self) -> Mapping[Site, Known]:
        return self._sites

    def find(self, site: Site) -> Known | None:
        return self._sites.get(site)

    def known(self, boot: int, address: Address) -> Known | None:
        """The member of this boot; without a key only if it speaks from its own address."""
        return self._known.get(self._identity(boot, address))

    def knows(self, known: Known) -> bool:
        """Whether a member is still one."""
        return self._known.get(known.identity) is known

    def _identity(self, boot: int, address: Address) -> Identity:
        return (boot, address) if self._seals is None else boot

    def at(self, address: Address) -> Known | None:
        """The member that speaks from an address."""
        return self._addresses.get(address)

    def part_with(self, known: Known) -> None:
        """A member is gone: its name is free at once."""
        if self.knows(known):
            self._forget(known)
        for claim in [claim for claim in self._claims.values() if claim.stranger.site == known.site]:
            self._settle_claim(claim)

    def sizes(self) -> tuple[int, int, int, int]:
        """How many boots are known, claim a name, are refused and are retired."""
        return len(self._known), len(self._claims), len(self._refused), len(self._retired)

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
        """The ring has changed: what was sealed under a key that it no longer has does not open."""
        assert self._seals is not None
        for known in self._known.values():
            if known.seal is not None:
                known.seal = self._seals.find(known.boot, known.seal.identifier, known.seal.generation)

    # What has come

    def let_in(self, view: memoryview, address: Address) -> tuple[Known, Pdu] | None:
        """Who sent a PDU and what it says; None if it is not for us, and why is counted."""
        head = parse(view)
        if isinstance(head, Reason):
            return self._refuse(head.value)
        if head.boot == self._boot:
            return None
        if head.group != self._group:
            return self._refuse(OTHER_GROUP)
        if head.sealed != (self._seals is not None):
            return self._refuse_key(Reason.SEALED.value if head.sealed else UNSEALED, address)
        known = self._known.get(self._identity(head.boot, address))
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
            # It has gone on to another key, or to another generation of its own.
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
        """What is too late to tell may be a replay, or a member whose counters somebody else has used up.

        A member that answers a challenge with such a counter, although nothing newer of it was heard since
        the challenge, is there: what is newer was not its own.
        """
        self._counters.drop(REPLAYED)
        found = self._codec.decode_body(head.code, body)
        pdu = None if isinstance(found, Reason) else found[1]
        if isinstance(pdu, Answer) and known.number and compare_digest(pdu.number, known.number):
            known.window = ReplayWindow(head.counter)
            known.seal = seal
            known.number = b""
        elif isinstance(pdu, Challenge):
            # It may be in the same plight.
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
        site, pdu = found
        if site != known.site:
            if address != known.address:
                # One of the two is a liar: the other one must be able to prove itself.
                identity = (head.boot, address)
                stranger = Stranger(identity, head.boot, site, address, known.seal, head.counter)
                self._hear(stranger, pdu, size)
            return self._refuse(RENAMED)
        if self._codec.has_later_fields(head.code, body):
            self._counters.drop(LATER_FIELDS)
        known.heard_ns = self.now
        if address == known.address:
            known.unanswered = 0
        known.number = b""
        self._known.move_to_end(known.identity)
        if head.code in GREETINGS:
            self._greeted(known, pdu, address, size)
        if address != known.address and not isinstance(pdu, Challenge | Answer):
            self._elsewhere(known, pdu, address, size)
        return known, pdu

    def _refuse(self, reason: str) -> tuple[Known, Pdu] | None:
        self._counters.drop(reason)
        return None

    def _refuse_key(self, reason: str, address: Address) -> tuple[Known, Pdu] | None:
        """Refuse what is sealed otherwise than we seal; people should know, since it may be a mistake."""
        told = self._key_told.get(reason)
        if told is None or self.now - told >= KEY_TOLD_NS:
            self._key_told[reason] = self.now
            how = OTHER_KEYS[reason]
            self._host.refused(
                self._site,
                f"A process at {shown(address)} is in this group {how}: give all members the same key file.",
            )
        return self._refuse(reason)

    def _lose(self, reason: str) -> tuple[Known, Pdu] | None:
        """Refuse what a member may have said."""
        self._counters.lose(reason)
        return None

    # What members say at the gate

    def _greeted(self, known: Known, pdu: Pdu, address: Address, size: int) -> None:
        if isinstance(pdu, Challenge):
            self._answer(pdu, known.site, address, known.boot, size)
        elif isinstance(pdu, Answer):
            self._answered_again(known, pdu, address)
        elif isinstance(pdu, Refused) and pdu.boot == self._boot:
            self._was_refused(known, pdu)

    def _answered_again(self, known: Known, answer: Answer, address: Address) -> None:
        """A member is still there, where it was or elsewhere."""
        if not self._cookies.is_right(answer.number, known.boot, address, self.now):
            self._counters.drop(UNPROVEN)
        elif address == known.address:
            known.answered_ns = self.now
            self._stay(known)
            for claim in [claim for claim in self._claims.values() if claim.stranger.site == known.site]:
                self._settle_claim(claim)
        elif known.move is None and known.answered_ns < known.moved_ns:
            known.move = Move(address, known.moved_ns)
            self._moving.add(known)

    def _stay(self, known: Known) -> None:
        known.move = None
        self._moving.discard(known)

    def _elsewhere(self, known: Known, pdu: Pdu, address: Address, size: int) -> None:
        """A member speaks from a new address: ask there and at the old one whether it is there."""
        if self.now - known.moved_ns < MOVE_PAUSE_NS or known.move is not None:
            return
        if size < LEAST_BYTES:
            self._call(known.boot, pdu, address, size)
        elif self._press(known):
            known.moved_ns = self.now
            self._challenge(known.boot, address, size)

    def _press(self, known: Known) -> bool:
        """Ask a member for a sign of life at its address; whether that was possible just now."""
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
        self._stay(known)
        self._unlist(known)
        known.answered_ns = self.now
        known.unanswered = 0
        known.address = address
        known.identity = self._identity(known.boot, address)
        self._enlist(known)

    def _enlist(self, known: Known) -> None:
        """Know a process from now on, and no other by the same identity: such a one has told two names."""
        other = self._known.get(known.identity)
        if other is not None:
            self._forget(other)
        self._known[known.identity] = known
        self._addresses[known.address] = known

    def _unlist(self, known: Known) -> None:
        del self._known[known.identity]
        # Another may speak from there by now.
        if self._addresses.get(known.address) is known:
            del self._addresses[known.address]

    def _was_refused(self, known: Known, refused: Refused) -> None:
        """A member follows another process under our name.

        A process that has joined gives up only if most members say so: it may be one that lies.
        """
        if not refused.final:
            self.pending_ns = self.now
            return
        self._refusers[known] = self.now
        recent = self.now - SILENCE_NS
        self._refusers = {
            each: told for each, told in self._refusers.items() if self.knows(each) and told > recent
        }
        heard = sum(1 for each in self._known.values() if each.heard_ns > recent)
        if not self.joined or 2 * len(self._refusers) > max(heard, 1):
            self._host.namesake(refused.address if refused.address.isprintable() else "?")

    # Processes that are not known

    def _meet(self, head: Head, view: memoryview, address: Address) -> tuple[Known, Pdu] | None:
        seal, body = None, view[HEADER.size :]
        if self._seals is not None:
            seal = self._seal_of_stranger(self._seals, head)
            if seal is None:
                if self._derived_left < 0:
                    return self._refuse(UNKNOWN_KEY)  # too many were derived lately: it may be one of ours
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
        site, pdu = found
        owner = self._sites.get(site)
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
        """What a process may say before it has proved itself: a challenge, and the answer to ours."""
        refusal = self._refused.get(stranger.identity)
        if isinstance(pdu, Answer):
            self._judge(stranger, pdu, refusal)
        elif isinstance(pdu, Challenge):
            # Also of one that was refused: it is to learn why.
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
                # That only makes a newcomer wait, so it need not be proved.
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
        """Whether a process that spoke within this time has yet to prove itself."""
        return any(self.now - spoke < within_ns for spoke in self._unmet.values())

    def _call(self, boot: int, pdu: Pdu, address: Address, size: int) -> None:
        """Make a process greet that said too little to be challenged: say something as small to it."""
        self.should_greet = True
        # Two that do not know each other would otherwise call for ever. One call between two ticks will do.
        if not isinstance(pdu, Hello) and address not in self._answered and self._may_answer(address):
            self._reply(Hello(), address, boot, size)

    def _challenge(self, boot: int, address: Address, size: int | None) -> bool:
        """Ask for a proof with no more bytes than `size`; None where the address is a member's."""
        if not self._may_answer(address):
            return False
        self._counters.challenges_sent += 1
        number = self._cookies.number(boot, address, self.now)
        self._reply(Challenge(boot, number), address, boot, size)
        return True

    def _answer(self, challenge: Challenge, site: Site, address: Address, boot: int, size: int) -> None:
        """Prove that this process runs now, with no more bytes than the challenge had."""
        if challenge.boot == self._boot and size >= LEAST_BYTES and self._may_answer(address):
            self._counters.proofs_given += 1
            terms, yours = self._terms, self._host.incarnation_of(site)
            answer = Answer(
                challenge.number, terms.oldest, terms.newest, self.joined, yours, dict(terms.options)
            )
            self._reply(answer, address, boot, size)

    def _may_answer(self, address: Address) -> bool:
        """Whether there may be one more reply before the next tick; strangers use up only what is theirs."""
        given = self._answered.get(address, 0)
        if given >= ANSWERS_PER_ADDRESS:
            return False
        if address not in self._addresses:
            if self._answers_left <= 0:
                return False
            self._answers_left -= 1
        self._answered[address] = given + 1
        return True

    def _judge(self, stranger: Stranger, answer: Answer, refusal: str | None) -> None:
        """A process has answered: it is let in, or refused, or waits for its name."""
        if not self._cookies.is_right(answer.number, stranger.boot, stranger.address, self.now):
            self._counters.drop(UNPROVEN)
            return
        self._unmet.pop(stranger.identity, None)
        if refusal is not None:
            self._counters.drop(refusal)
        elif stranger.identity not in self._claims:
            # Its address is proved now: it is to challenge us in turn, and to learn why if it is refused.
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
        """Another process has our name, and answers. The one that joined first keeps it.

        Of two that are joining the one with the lower boot does. If both have joined, in parts of a network
        that were apart, each keeps it among those that know it.
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
        owner = self._sites.get(stranger.site)
        if owner is None or self.now - owner.heard_ns >= SILENCE_NS:
            self._accept(stranger, answer)
            return
        claim = Claim(stranger, answer, self.now)
        self._claims[stranger.identity] = claim
        if len(self._claims) > MOST_CLAIMS:
            self._claims.popitem(last=False)
        self._settle_claim(claim)

    def _settle_claim(self, claim: Claim) -> None:
        """Let a process have its name if the owner is gone, refuse it if the owner has answered since."""
        stranger = claim.stranger
        owner = self._sites.get(stranger.site)
        if owner is None or self._is_silent(owner, claim.since_ns):
            del self._claims[stranger.identity]
            self._accept(stranger, claim.answer)
        elif owner.answered_ns > claim.since_ns:
            del self._claims[stranger.identity]
            self._counters.drop(NAME_TAKEN)
            self._tell(stranger, owner, final=True)
            self._host.refused(
                stranger.site,
                f"A process at {shown(stranger.address)} wants the name '{stranger.site}', which the one at "
                f"{shown(owner.address)} has: give it another one.",
            )
        else:
            self._press(owner)
            if self.now - claim.told_ns >= PRESS_NS:
                claim.told_ns = self.now
                self._tell(stranger, owner, final=False)

    def _is_silent(self, owner: Known, since: Nanoseconds) -> bool:
        silence = self.now - max(owner.heard_ns, since)
        return silence >= NAME_SILENCE_NS and owner.unanswered >= UNANSWERED

    def _tell(self, stranger: Stranger, owner: Known, *, final: bool) -> None:
        refused = Refused(stranger.boot, shown(owner.address), final)
        self._reply(refused, stranger.address, stranger.boot, None)

    def _accept(self, stranger: Stranger, answer: Answer) -> None:
        """Let a process take part under its name, in place of any that had it before."""
        former = self._sites.get(stranger.site)
        if former is not None:
            self._forget(former)
        if len(self._known) >= MOST_MEMBERS:
            quietest = next(iter(self._known.values()))
            if self.now - quietest.heard_ns < SILENCE_NS:
                self._counters.drop(FULL)
                self._host.refused(
                    stranger.site,
                    f"There is no room for '{stranger.site}' at {shown(stranger.address)}: this member knows "
                    f"{MOST_MEMBERS} others that speak. Let some of them leave.",
                )
                return
            self._forget(quietest)
        identity = self._identity(stranger.boot, stranger.address)
        top = max(stranger.counter, self._retired.pop(identity, -1))
        known = Known(identity, stranger.boot, stranger.site, stranger.address, stranger.seal, top, self.now)
        self.accepted += 1
        self._enlist(known)
        self._sites[known.site] = known
        self._host.met(known.site, known.boot)
        if answer.yours:
            known.told = answer.yours
            self._report(known)

    def _report(self, known: Known) -> None:
        """A process knows an incarnation of our name.

        One that has joined begins anew above that, so it believes only what most members tell: one may lie.
        """
        told = known.told
        if self.joined:
            recent = self.now - SILENCE_NS
            heard = [each.told for each in self._known.values() if each.heard_ns > recent]
            told = sorted(heard, reverse=True)[len(heard) // 2]
        if told:
            self._host.reported(told)

    def _forget(self, known: Known) -> None:
        self._unlist(known)
        del self._sites[known.site]
        self._stay(known)
        self._retired[known.identity] = known.window.top
        if len(self._retired) > MOST_RETIRED:
            self._retired.popitem(last=False)
