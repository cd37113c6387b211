"""The gate: from the bytes of a PDU to who sent it and what it says, or a counted reason why not.

Assumes nothing about whoever sends. Guarantees, in a group with a key (a test floods it):
- nothing comes through that was not sealed by a holder of the key, for this group, unaltered;
- nothing comes through twice, nor after it has fallen far behind what its boot sent since;
- nothing comes through that a process sent which no longer runs. A boot met for the first time is challenged
  with a random number, and nothing else of it counts until it has answered. What it sent before is dropped:
  the protocols above ask for it again.

Without a key there is a checksum against accidents and nothing against malice, but every table is bounded.

A name belongs to one boot at a time. A later boot that proves itself takes the name over, as a restarted
member does, and the earlier one is refused from then on. Should both go on speaking, 'another process uses
this name' is counted; the name returns to an earlier boot only after the later one has long been silent.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from antiphon.core.ids import Group, Site
from antiphon.core.time import MILLISECOND_NS, SECOND_NS, Nanoseconds
from antiphon.core.wire import HEADER, PREFIX, Codec, Head, Pdu, Reason, checksum, group_hash, parse
from antiphon.live.counters import Counters
from antiphon.live.networks import Address
from antiphon.live.sealing import ReplayWindow, Seal, Seals

MOST_MEMBERS: Final = 1024
MOST_NEWCOMERS: Final = 256
MOST_RETIRED: Final = 1024
FIRST_PAUSE_NS: Final = 20 * MILLISECOND_NS
LONGEST_PAUSE_NS: Final = SECOND_NS
SILENCE_NS: Final = 5 * SECOND_NS
"""After so long without a word from its owner a name may go back to an earlier boot."""
ANSWERS_PER_TICK: Final = 128
"""Challenges and answers that strangers may cause between two ticks."""
NUMBER_BYTES: Final = 16
OWN_CODES: Final = range(2, 16)
"""PDU codes of the transport, which no protocol may use."""

OTHER_GROUP: Final = "of another group"
UNSEALED: Final = "not sealed, and there is a key"
UNKNOWN_KEY: Final = "sealed under a key that is not ours"
FORGED: Final = "seal does not open"
REPLAYED: Final = "seen before, or too late to tell"
UNPROVEN: Final = "its boot has not proved itself yet"
NAME_TAKEN: Final = "another process uses this name"
RENAMED: Final = "its boot has another name"


class Challenge(Pdu, frozen=True, gc=False):
    """Prove that you run now: send this number back."""

    code: ClassVar[int] = 4
    boot: int
    number: bytes


class Answer(Pdu, frozen=True, gc=False):
    """The number of a challenge, sealed under the challenged boot's key."""

    code: ClassVar[int] = 5
    number: bytes


class Known:
    """A member's boot that is heard."""

    __slots__ = ("address", "boot", "heard_ns", "seal", "site", "window")

    def __init__(
        self, boot: int, site: Site, address: Address, seal: Seal | None, top: int, now: Nanoseconds
    ) -> None:
        self.boot: Final = boot
        self.site: Final = site
        self.address = address
        self.seal: Final = seal
        self.window: Final = ReplayWindow(top)
        self.heard_ns = now


class Newcomer:
    """A boot that has not proved itself."""

    __slots__ = ("address", "challenged_ns", "number", "pause_ns", "seal", "window")

    def __init__(self, seal: Seal) -> None:
        self.seal: Final = seal
        self.window: Final = ReplayWindow()
        self.number = b""
        self.address: Address | None = None
        self.challenged_ns = 0
        self.pause_ns = FIRST_PAUSE_NS


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
        counters: Counters,
        reply: Callable[[Pdu, Address], None],
    ) -> None:
        self._site = site
        self._group = group_hash(group)
        self._boot = boot
        self._codec = codec
        self._seals = seals
        self._counters = counters
        self._reply = reply
        self._known: OrderedDict[int, Known] = OrderedDict()
        self._sites: dict[Site, Known] = {}
        self._addresses: dict[Address, Known] = {}
        self._newcomers: OrderedDict[int, Newcomer] = OrderedDict()
        self._retired: OrderedDict[int, Site] = OrderedDict()
        self._answers_left = ANSWERS_PER_TICK
        self.now: Nanoseconds = 0
        """As of the last tick, or of when something was last received."""
        self.accepted = 0
        """How many boots have been let in so far."""

    # Who is known

    @property
    def sites(self) -> Mapping[Site, Known]:
        return self._sites

    def find(self, site: Site) -> Known | None:
        return self._sites.get(site)

    def at(self, address: Address) -> Known | None:
        """The member that speaks from an address."""
        return self._addresses.get(address)

    def is_member(self, address: Address) -> bool:
        return address in self._addresses

    def sizes(self) -> tuple[int, int, int]:
        """How many boots are known, new and retired."""
        return len(self._known), len(self._newcomers), len(self._retired)

    def tick(self, now: Nanoseconds) -> None:
        self.now = now
        self._answers_left = ANSWERS_PER_TICK

    def has_answered(self) -> bool:
        """Whether some of what may be answered between two ticks is used up."""
        return self._answers_left < ANSWERS_PER_TICK

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
            return self._refuse(Reason.SEALED.value if head.sealed else UNSEALED)
        known = self._known.get(head.boot)
        if known is None:
            return self._meet(head, view, address)
        if self._seals is None:
            return self._read_unsealed(known, head, view, address)
        return self._read_sealed(known, head, view, address)

    def _read_sealed(
        self, known: Known, head: Head, view: memoryview, address: Address
    ) -> tuple[Known, Pdu] | None:
        assert known.seal is not None
        counter = head.counter
        if head.checksum != known.seal.identifier:
            return self._refuse(UNKNOWN_KEY)
        if not known.window.is_new(counter):
            return self._refuse(REPLAYED)
        body = known.seal.open(counter, view[: PREFIX.size], view[HEADER.size :])
        if body is None:
            return self._lose(FORGED)
        if address != known.address and counter > known.window.top:
            self._move(known, address)
        known.window.note(counter)
        return self._finish(known, self._codec.decode_body(head.code, body))

    def _read_unsealed(
        self, known: Known, head: Head, view: memoryview, address: Address
    ) -> tuple[Known, Pdu] | None:
        if checksum(view) != head.checksum:
            return self._lose(Reason.CHECKSUM.value)
        if address != known.address:
            self._move(known, address)
        return self._finish(known, self._codec.decode_body(head.code, view[HEADER.size :]))

    def _finish(self, known: Known, found: tuple[Site, Pdu] | Reason) -> tuple[Known, Pdu] | None:
        if isinstance(found, Reason):
            return self._lose(found.value)
        if found[0] != known.site:
            return self._refuse(RENAMED)
        known.heard_ns = self.now
        self._known.move_to_end(known.boot)
        return known, found[1]

    def _move(self, known: Known, address: Address) -> None:
        """A member speaks from elsewhere. Sealed, only its newest PDU tells: whoever repeats one does not."""
        if self._addresses.get(known.address) is known:
            del self._addresses[known.address]
        known.address = address
        self._addresses[address] = known

    def _refuse(self, reason: str) -> tuple[Known, Pdu] | None:
        self._counters.drop(reason)
        return None

    def _lose(self, reason: str) -> tuple[Known, Pdu] | None:
        """Refuse what a member may have said."""
        self._counters.lose(reason)
        return None

    # Boots that are not known

    def _meet(self, head: Head, view: memoryview, address: Address) -> tuple[Known, Pdu] | None:
        if self._is_refused(head.boot):
            return self._refuse(NAME_TAKEN)
        if self._seals is None:
            return self._meet_unsealed(head, view, address)
        return self._meet_sealed(head, view, address)

    def _is_refused(self, boot: int) -> bool:
        """Whether a later boot has this one's name and still speaks."""
        site = self._retired.get(boot)
        owner = self._sites.get(site) if site is not None else None
        return owner is not None and self.now - owner.heard_ns < SILENCE_NS

    def _meet_unsealed(self, head: Head, view: memoryview, address: Address) -> tuple[Known, Pdu] | None:
        if checksum(view) != head.checksum:
            return self._refuse(Reason.CHECKSUM.value)
        found = self._codec.decode_body(head.code, view[HEADER.size :])
        if isinstance(found, Reason):
            return self._refuse(found.value)
        known = self._accept(Known(head.boot, found[0], address, None, -1, self.now))
        return None if known is None else (known, found[1])

    def _meet_sealed(self, head: Head, view: memoryview, address: Address) -> tuple[Known, Pdu] | None:
        newcomer = self._newcomers.get(head.boot) or self._newcomer(head)
        if newcomer is None or head.checksum != newcomer.seal.identifier:
            return self._refuse(UNKNOWN_KEY)
        if not newcomer.window.is_new(head.counter):
            return self._refuse(REPLAYED)
        body = newcomer.seal.open(head.counter, view[: PREFIX.size], view[HEADER.size :])
        if body is None:
            return self._refuse(FORGED)
        is_newest = head.counter > newcomer.window.top
        newcomer.window.note(head.counter)
        self._remember(head.boot, newcomer)
        found = self._codec.decode_body(head.code, body)
        if isinstance(found, Reason):
            return self._refuse(found.value)
        self._hear(newcomer, head.boot, found[0], found[1], address, is_newest)
        return None

    def _newcomer(self, head: Head) -> Newcomer | None:
        assert self._seals is not None
        seal = self._seals.find(head.boot, head.checksum)
        return None if seal is None else Newcomer(seal)

    def _remember(self, boot: int, newcomer: Newcomer) -> None:
        """Only boots that a key has sealed for are remembered, and of those the last to speak."""
        self._newcomers[boot] = newcomer
        self._newcomers.move_to_end(boot)
        if len(self._newcomers) > MOST_NEWCOMERS:
            self._newcomers.popitem(last=False)

    def _hear(
        self, newcomer: Newcomer, boot: int, site: Site, pdu: Pdu, address: Address, is_newest: bool
    ) -> None:
        """What a boot may say before it has proved itself: a challenge, and the answer to ours."""
        if site == self._site:
            self._counters.drop(NAME_TAKEN)
            return
        if isinstance(pdu, Answer):
            if newcomer.number and secrets.compare_digest(pdu.number, newcomer.number):
                del self._newcomers[boot]
                self._accept(Known(boot, site, address, newcomer.seal, newcomer.window.top, self.now))
            else:
                self._counters.drop(UNPROVEN)
            return
        if isinstance(pdu, Challenge):
            self.answer(pdu, address, is_member=False)
        elif pdu.code in OWN_CODES:
            self._counters.drop(UNPROVEN)
        else:
            self._counters.lose(UNPROVEN)
        # A recorded PDU is never the newest of a boot that still speaks, so that whoever repeats old ones
        # cannot draw our challenges to himself for long.
        if is_newest:
            self._challenge(newcomer, boot, address)

    def _challenge(self, newcomer: Newcomer, boot: int, address: Address) -> None:
        waited = self.now - newcomer.challenged_ns >= newcomer.pause_ns
        if (newcomer.number and address == newcomer.address and not waited) or not self._may_answer():
            return
        if newcomer.number and waited:
            newcomer.pause_ns = min(2 * newcomer.pause_ns, LONGEST_PAUSE_NS)
        newcomer.number = newcomer.number or secrets.token_bytes(NUMBER_BYTES)
        newcomer.address = address
        newcomer.challenged_ns = self.now
        self._counters.challenges_sent += 1
        self._reply(Challenge(boot, newcomer.number), address)

    def answer(self, challenge: Challenge, address: Address, *, is_member: bool) -> None:
        """Prove that this process runs now."""
        mine = challenge.boot == self._boot and len(challenge.number) == NUMBER_BYTES
        if mine and (is_member or self._may_answer()):
            self._counters.proofs_given += 1
            self._reply(Answer(challenge.number), address)

    def _may_answer(self) -> bool:
        self._answers_left -= 1
        return self._answers_left >= 0

    def _accept(self, known: Known) -> Known | None:
        """Let a boot take part under its name, in place of any that had it before."""
        if known.site == self._site:
            self._counters.drop(NAME_TAKEN)
            return None
        former = self._sites.get(known.site)
        if former is not None:
            self._forget(former)
            self._retired[former.boot] = former.site
            if len(self._retired) > MOST_RETIRED:
                self._retired.popitem(last=False)
        self._retired.pop(known.boot, None)
        if len(self._known) >= MOST_MEMBERS:
            self._forget(next(iter(self._known.values())))
        self.accepted += 1
        self._known[known.boot] = known
        self._sites[known.site] = known
        self._addresses[known.address] = known
        return known

    def _forget(self, known: Known) -> None:
        del self._known[known.boot]
        del self._sites[known.site]
        # Another may speak from there by now.
        if self._addresses.get(known.address) is known:
            del self._addresses[known.address]
