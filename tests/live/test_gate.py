"""The gate by itself: whom it lets in, whom it challenges, and how much strangers can make it do."""

import itertools

from antiphon.core.wire import (
    CHECKSUM,
    HEADER,
    MAGIC,
    PREFIX,
    SEALED,
    VERSION,
    Codec,
    Pdu,
    group_hash,
    name_bytes,
)
from antiphon.live import gate
from antiphon.live.counters import Counters
from antiphon.live.gate import ANSWERS_PER_TICK, FIRST_PAUSE_NS, Answer, Challenge, Gate
from antiphon.live.keys import KeyRing
from antiphon.live.networks import Address
from antiphon.live.sealing import TAG_BYTES, Seals
from tests.live.pairs import CODEC, RING, Note, note

GROUP = "orders"
OURS = 99
KINDS = Codec([Note, Challenge, Answer])
HERE: Address = ("10.0.0.1", 1)
THERE: Address = ("10.0.0.1", 2)


def sealed(pdu: Pdu, boot: int, counter: int, site: str, ring: KeyRing = RING) -> memoryview:
    """A PDU as the process of that boot would send it."""
    seal = Seals(ring, GROUP).own(boot)
    buffer = bytearray(HEADER.size) + name_bytes(site)
    KINDS.encode_into(pdu, buffer, len(buffer))
    length = len(buffer) - HEADER.size + TAG_BYTES
    prefix = PREFIX.pack(MAGIC, VERSION | SEALED, pdu.code, length, group_hash(GROUP), boot, counter)
    body = seal.seal(counter, prefix, bytes(buffer[HEADER.size :]))
    return memoryview(prefix + CHECKSUM.pack(seal.identifier) + body)


class Guarded:
    """A gate, and what it replied."""

    def __init__(self, ring: KeyRing | None = RING) -> None:
        self.replies: list[tuple[Pdu, Address]] = []
        self.counters = Counters()
        self.gate = Gate(
            site="me",
            group=GROUP,
            boot=OURS,
            codec=KINDS,
            seals=None if ring is None else Seals(ring, GROUP),
            counters=self.counters,
            reply=lambda pdu, address: self.replies.append((pdu, address)),
        )

    def hear(self, pdu: Pdu, boot: int, counter: int, site: str = "x", address: Address = HERE) -> Pdu | None:
        found = self.gate.let_in(sealed(pdu, boot, counter, site), address)
        return None if found is None else found[1]

    def challenge(self) -> Challenge:
        (pdu, _), *_ = reversed(self.replies)
        assert isinstance(pdu, Challenge)
        return pdu

    def acquaint(self, boot: int, counter: int = 1, site: str = "x") -> None:
        assert self.hear(note(0), boot, counter, site) is None
        assert self.hear(Answer(self.challenge().number), boot, counter + 1, site) is None


def test_a_boot_is_heard_once_it_has_answered() -> None:
    here = Guarded()
    here.acquaint(7)
    assert here.hear(note(5), 7, 3) == note(5)
    assert here.hear(note(5), 7, 3) is None
    assert here.hear(note(0), 7, 1) is None
    assert here.counters.drops == {gate.UNPROVEN: 1, gate.REPLAYED: 2}


def test_only_the_right_answer_to_our_own_challenge_counts() -> None:
    here = Guarded()
    assert here.hear(Answer(b""), 7, 1) is None
    assert here.hear(Answer(b"x" * 16), 7, 2) is None
    assert here.replies == [], "an answer is not worth a challenge"
    here.hear(note(0), 7, 3)
    right = here.challenge().number
    here.hear(Answer(right), 8, 4, "y")
    here.hear(Answer(b""), 7, 5)
    here.hear(Answer(right[:-1] + bytes([right[-1] ^ 1])), 7, 6)
    assert not here.gate.sites
    here.hear(Answer(right), 7, 7)
    assert set(here.gate.sites) == {"x"}


def test_an_answer_that_was_overtaken_still_counts_and_what_overtook_it_stays_dropped() -> None:
    here = Guarded()
    here.hear(note(0), 7, 1)
    for counter in range(10, 20):
        here.hear(note(counter), 7, counter)
    here.hear(Answer(here.challenge().number), 7, 2)
    assert here.hear(note(3), 7, 3) is None
    assert here.hear(note(15), 7, 15) is None
    assert here.hear(note(20), 7, 20) == note(20)


def test_challenges_for_this_boot_are_answered_and_no_others() -> None:
    here = Guarded()
    here.hear(Challenge(OURS, b"n" * 16), 7, 1)
    assert (Answer(b"n" * 16), HERE) in here.replies
    here.replies.clear()
    here.hear(Challenge(OURS + 1, b"m" * 16), 7, 2)
    here.hear(Challenge(OURS, b"short"), 7, 3)
    here.hear(Challenge(OURS, b"n" * 16), 7, 1)
    assert not [pdu for pdu, _ in here.replies if isinstance(pdu, Answer)]


def test_challenges_are_repeated_with_growing_pauses() -> None:
    here, times, now = Guarded(), [], 0
    for counter in range(1, 2000):
        now += FIRST_PAUSE_NS // 4
        here.gate.tick(now)
        before = len(here.replies)
        here.hear(note(0), 7, counter)
        if len(here.replies) > before:
            times.append(now)
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= FIRST_PAUSE_NS
    assert pauses[-1] == gate.LONGEST_PAUSE_NS
    assert len({pdu.number for pdu, _ in here.replies if isinstance(pdu, Challenge)}) == 1


def test_repeating_old_pdus_does_not_draw_challenges_away_from_their_sender() -> None:
    here = Guarded()
    here.hear(note(0), 7, 100)
    here.replies.clear()
    for counter in range(1, 100):
        here.hear(note(0), 7, counter, address=THERE)
        here.hear(note(0), 7, 100, address=THERE)
    assert here.replies == []
    here.hear(note(0), 7, 101, address=THERE)
    here.hear(note(0), 7, 102, address=HERE)
    assert [address for _, address in here.replies] == [THERE, HERE]


def test_strangers_cause_only_so_many_replies_between_two_ticks() -> None:
    here = Guarded()
    for boot in range(3 * gate.MOST_NEWCOMERS):
        here.hear(note(0), boot + 100, 1, f"site{boot}")
        here.hear(Challenge(OURS, b"n" * 16), boot + 100, 2, f"site{boot}")
    assert len(here.replies) == ANSWERS_PER_TICK
    assert here.gate.sizes() == (0, gate.MOST_NEWCOMERS, 0)
    here.gate.tick(1)
    here.hear(note(0), 50, 1)
    assert len(here.replies) == ANSWERS_PER_TICK + 1


def test_only_boots_that_a_key_has_sealed_for_are_remembered() -> None:
    here = Guarded()
    other = KeyRing((b"o" * 32,))
    for boot in range(500):
        forged = sealed(note(0), boot + 100, 1, "x", other)
        assert here.gate.let_in(forged, HERE) is None
        mixed = bytes(forged[: PREFIX.size]) + bytes(
            sealed(note(0), boot + 100, 1, "x")[PREFIX.size : HEADER.size]
        )
        assert here.gate.let_in(memoryview(mixed + bytes(forged[HEADER.size :])), HERE) is None
    assert here.gate.sizes() == (0, 0, 0)
    assert here.counters.drops == {gate.UNKNOWN_KEY: 500, gate.FORGED: 500}


def test_a_boot_keeps_its_name() -> None:
    here = Guarded()
    here.acquaint(7)
    assert here.hear(note(1), 7, 10, "y") is None
    assert here.counters.drops[gate.RENAMED] == 1
    open_here = Guarded(None)
    first, second = (CODEC.encode(note(1), group_hash(GROUP), 7, 1, site) for site in "xy")
    assert open_here.gate.let_in(memoryview(first), HERE) is not None
    assert open_here.gate.let_in(memoryview(second), HERE) is None


def test_a_member_is_found_where_its_newest_pdu_came_from() -> None:
    here = Guarded()
    here.acquaint(7)
    assert here.hear(note(5), 7, 5, address=THERE) == note(5)
    assert here.gate.sites["x"].address == THERE
    assert (here.gate.is_member(HERE), here.gate.is_member(THERE)) == (False, True)
    assert here.hear(note(4), 7, 4, address=HERE) == note(4), "late, but heard"
    assert here.hear(note(5), 7, 5, address=HERE) is None
    assert here.gate.sites["x"].address == THERE
    assert here.hear(note(6), 7, 6, address=HERE) == note(6)
    assert here.gate.at(HERE) is here.gate.sites["x"]


def test_our_own_name_is_nobody_else_s() -> None:
    here = Guarded()
    here.hear(note(0), 7, 1, "me")
    assert here.replies == []
    assert here.counters.drops == {gate.NAME_TAKEN: 1}
    open_here = Guarded(None)
    namesake = CODEC.encode(note(1), group_hash(GROUP), 7, 1, "me")
    assert open_here.gate.let_in(memoryview(namesake), HERE) is None
    assert open_here.counters.drops == {gate.NAME_TAKEN: 1}


def test_known_and_retired_boots_are_bounded() -> None:
    here = Guarded()
    for boot in range(gate.MOST_RETIRED + 50):
        here.gate.tick(boot)
        here.acquaint(boot + 100)
    assert here.gate.sizes() == (1, 0, gate.MOST_RETIRED)
    for boot in range(gate.MOST_MEMBERS + 50):
        here.gate.tick(boot)
        here.acquaint(boot + 10_000, site=f"site{boot}")
    assert here.gate.sizes() == (gate.MOST_MEMBERS, 0, gate.MOST_RETIRED)
    assert "site0" not in here.gate.sites
    assert not here.gate.is_member(THERE)
