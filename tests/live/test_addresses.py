"""Addresses: none is written to before it is proved, and none is taken for a member's that is not."""

import contextlib
import itertools
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.core.wire import Pdu, Reason, group_hash
from antiphon.live import challenges, fragments, gate, transport
from antiphon.live.admission import NAME_SILENCE_NS
from antiphon.live.challenges import ANSWERS_PER_ADDRESS, ANSWERS_PER_TICK, LEAST_BYTES
from antiphon.live.fragments import cut, no_tokens
from antiphon.live.greetings import GREETING_PAUSE_NS, GREETINGS, LONGEST_GREETING_PAUSE_NS
from antiphon.live.handshake import GREETING_BYTES, Answer, Challenge, Hello, Here, Refused
from antiphon.live.keys import KeyRing
from antiphon.live.members import MOVE_PAUSE_NS, PRESS_NS, SILENCE_NS, UNANSWERED
from antiphon.live.moves import MOVE_NS
from antiphon.live.networks import Address, Endpoint, Peers
from antiphon.live.sealing import TAG_BYTES
from tests.live.guarded import HELLO, HERE, KINDS, OURS, THERE, Guarded, answer_to, sealed
from tests.live.pairs import RING, Ear, drive, ears, free_port, group_name, note, repeat, settle
from tests.live.test_networks import peers_on

KEYS = pytest.mark.parametrize("keys", [None, RING], ids=["open", "sealed"])
VICTIMS: tuple[Address, ...] = (("192.0.2.1", 9), ("192.0.2.2", 9))
"""Source addresses that another process's datagrams seem to come from."""


# Amplification


class Account:
    """A member of a busy group by unicast, and what each address has got from it for what came from there."""

    def __init__(self, keys: KeyRing | None) -> None:
        self.keys = keys
        self.group = group_name()
        self.member: Address = ("192.0.2.9", 9)
        listen = Endpoint("127.0.0.1", free_port())
        self.ear = Ear("me", self.group, keys, Peers((listen,), listen))
        self.balance: Counter[Address] = Counter()
        self.sent: list[tuple[Address, int, bytes]] = []
        self.counters: Counter[int] = Counter()
        self.now = 10 * SECOND_NS
        places = self.ear.transport._sockets
        places.send = lambda data, address: self._send(bytes(data), address)  # type: ignore[method-assign]
        places.send_two = (  # type: ignore[method-assign]
            lambda head, body, address: self._send(bytes(head) + bytes(body), address)
        )
        self.hear(HELLO, 7, "b", self.member)
        self.hear(answer_to(self.challenge()), 7, "b", self.member)
        assert set(self.ear.transport.addresses) == {"b"}

    def _send(self, datagram: bytes, address: Address) -> None:
        self.balance[address] -= len(datagram)
        self.sent.append((address, datagram[3], datagram))

    def challenge(self) -> Challenge:
        """The latest one to the member, as it reads it."""
        gate_of = self.ear.transport._gate
        return Challenge(7, gate_of._challenger._cookies.number(7, self.member, gate_of.now))

    def hear(self, pdu: Pdu, boot: int, site: str, address: Address) -> None:
        self.counters[boot] = counter = self.counters[boot] + 1
        if self.keys is None:
            datagram = KINDS.encode(pdu, group_hash(self.group), boot, counter, site)
        else:
            datagram = sealed(pdu, boot, counter, site, self.keys, group=self.group)
        self.balance[address] += len(datagram)
        self.ear.transport._take(memoryview(datagram), 0, address, [])

    def pass_time(self, pause_ns: int) -> None:
        self.now += pause_ns
        self.ear.transport.tick(self.now)
        self.ear.transport.multicast(note(1, 5000))
        self.ear.transport.send("b", note(2, 5000))


@pytest.fixture(scope="module", params=[None, RING], ids=["open", "sealed"])
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    made = Account(request.param)
    yield made
    made.ear.transport.close()


PADDING = st.sampled_from([0, 1, 100, 480, 500, 520, 560]).map(bytes)
NUMBERS = st.binary(min_size=16, max_size=16)
SAID: st.SearchStrategy[Pdu] = st.one_of(
    st.builds(Hello, padding=PADDING),
    st.builds(Here, padding=PADDING),
    st.builds(Challenge, st.just(0), NUMBERS, PADDING),
    st.builds(Answer, NUMBERS, st.just(2), st.just(2), st.booleans(), st.just(0), st.just({})),
    st.builds(Refused, st.just(0), st.just("x"), st.booleans()),
    st.builds(note, st.just(1), st.sampled_from([0, 100, 600, 5000])),
)
STEPS = st.lists(
    st.tuples(
        SAID,
        st.sampled_from([7, 8, 9]),
        st.sampled_from(["b", "c", "me"]),
        st.sampled_from(VICTIMS),
        st.sampled_from([0, 0, 0, MILLISECOND_NS, PRESS_NS, SECOND_NS, SILENCE_NS]),
    ),
    min_size=1,
    max_size=30,
)


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_an_address_that_is_not_proved_gets_no_more_than_came_from_there(
    account: Account, steps: list[tuple[Pdu, int, str, Address, int]]
) -> None:
    """Whatever is said, in whose name and by whose boot, and although the group is busy."""
    account.balance.clear()
    for pdu, boot, site, address, pause_ns in steps:
        ours = account.ear.transport.boot
        said = Challenge(ours, pdu.number, pdu.padding) if isinstance(pdu, Challenge) else pdu
        account.hear(said, boot, site, address)
        account.pass_time(pause_ns)
        # The member goes on speaking: it is at its address.
        account.hear(note(1), 7, "b", account.member)
        account.hear(answer_to(account.challenge()), 7, "b", account.member)
        assert all(account.balance[victim] >= 0 for victim in VICTIMS), account.sent[-5:]
    assert set(account.ear.transport.addresses) == {"b"}
    assert account.ear.transport.addresses["b"] == account.member


def test_the_account_would_tell(account: Account) -> None:
    """Strangers are answered, and as much as is allowed."""
    account.balance.clear()
    account.pass_time(SILENCE_NS)
    account.hear(HELLO, 50, "c", VICTIMS[0])
    assert 0 <= account.balance[VICTIMS[0]] < GREETING_BYTES
    account.pass_time(SECOND_NS)
    account.hear(Challenge(account.ear.transport.boot, b"n" * 16, bytes(500)), 50, "c", VICTIMS[1])
    sent = [(address, code) for address, code, _ in account.sent if address in VICTIMS]
    assert sent[-2:] == [(VICTIMS[0], Challenge.code), (VICTIMS[1], Answer.code)]


@KEYS
@pytest.mark.parametrize("name", ["a", "m" * 64], ids=["short", "long"])
def test_greetings_are_of_one_size_whatever_the_name(keys: KeyRing | None, name: str) -> None:
    group = group_name()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as witness,
        contextlib.ExitStack() as stack,
    ):
        witness.bind(("127.0.0.1", 0))
        witness.settimeout(20)
        place = Endpoint(*witness.getsockname())
        listen = Endpoint("127.0.0.1", free_port())
        (a,) = stack.enter_context(ears(Ear(name, group, keys, Peers((place,), listen))))
        for pdu in (Hello(), Here(), Challenge(1, b"n" * 16)):
            a.transport._send_to(pdu, place)
            assert LEAST_BYTES <= len(witness.recv(2048)) <= GREETING_BYTES
            a.transport._send_to(pdu, place, most_bytes=300)
            assert 299 <= len(witness.recv(2048)) <= 300
            bare = len(a.transport._framer._buffer) + (TAG_BYTES if keys else 0)
            a.transport._send_to(pdu, place, most_bytes=20)
            assert a.drops == {transport.AMPLIFYING: 1}
            a.drops.clear()
            assert bare <= 300


@KEYS
@pytest.mark.parametrize(
    "pdu",
    [HELLO, Here(bytes(520)), Hello(), note(1), Challenge(0, b"n" * 16, bytes(520))],
    ids=["hello", "here", "short", "note", "challenge"],
)
def test_one_datagram_of_a_stranger_draws_no_more_than_its_own_size(keys: KeyRing | None, pdu: Pdu) -> None:
    """By unicast, in a group that talks all the time."""
    group, places = group_name(), peers_on("127.0.0.1", 3)
    with (
        ears(*(Ear("abc"[n], group, keys, places[n]) for n in range(3))) as (a, b, c),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        settle(a, b, c)
        stranger.bind(("127.0.0.1", 0))
        stranger.setblocking(False)
        said = Challenge(a.transport.boot, pdu.number, pdu.padding) if isinstance(pdu, Challenge) else pdu
        datagram = (
            sealed(said, 50, 1, "x", RING, group=group)
            if keys
            else KINDS.encode(said, group_hash(group), 50, 1, "x")
        )
        stranger.sendto(datagram, ("127.0.0.1", a.port()))

        def talk() -> None:
            for ear in (a, b, c):
                ear.transport.multicast(note(1, 3000))

        repeat([a, b, c], talk, lambda: min(len(ear.heard) for ear in (a, b, c)) >= 300)
        drawn = read_all(stranger)
        assert len(drawn) <= 1
        assert sum(map(len, drawn)) <= len(datagram)
        assert bool(drawn) == (pdu != Hello())


def read_all(sock: socket.socket) -> list[bytes]:
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(sock.recv(1 << 16))
    return found


@KEYS
def test_greetings_for_strangers_come_ever_more_seldom(keys: KeyRing | None) -> None:
    with ears(Ear("a", group_name(), keys)) as (a,):
        now, greeted = SECOND_NS, []
        for _ in range(1000):
            now += 10 * MILLISECOND_NS
            before = a.counters.pdus_sent
            a.transport._gate._challenger.should_greet = True
            a.transport.tick(now)
            if a.counters.pdus_sent > before:
                greeted.append(now)
        pauses = [later - earlier for earlier, later in itertools.pairwise(greeted)]
        assert pauses[: GREETINGS - 1] == [GREETING_PAUSE_NS] * (GREETINGS - 1)
        assert pauses == sorted(pauses)
        assert pauses[-1] == LONGEST_GREETING_PAUSE_NS
        assert not a.transport._gate.should_greet or a.transport.is_unfinished
        a.transport.send("nobody", note(1))
        a.transport.tick(now + GREETING_PAUSE_NS)
        a.transport._gate._challenger.should_greet = True
        before = a.counters.pdus_sent
        a.transport.tick(now + 2 * GREETING_PAUSE_NS)
        assert a.counters.pdus_sent == before + 1, "a reason of its own begins the pauses anew"


# Moves


def elsewhere(here: Guarded, pdu: Pdu = HELLO) -> None:
    """The member of boot 7 sends from another address, or seems to."""
    here.hear(pdu, 7, address=THERE)


def answer_there(here: Guarded) -> None:
    here.hear(answer_to(here.challenges(THERE)[-1]), 7, address=THERE, to=OURS)


def moved(here: Guarded) -> bool:
    assert here.gate.at(here.gate.sites["x"].address) is here.gate.sites["x"]
    assert here.gate.sizes()[0] == 1
    return here.gate.sites["x"].address == THERE


@KEYS
def test_a_member_that_speaks_from_elsewhere_is_asked_there_and_at_its_address(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(SECOND_NS)
    here.replies.clear()
    heard = here.hear(HELLO, 7, address=THERE)
    assert (heard is None) == (keys is None)
    assert [(type(pdu), address) for pdu, address, *_ in here.replies] == [
        (Challenge, HERE),
        (Challenge, THERE),
    ]
    assert here.replies[0][3] is None
    assert here.replies[1][3] is not None
    assert here.challenges(HERE) != here.challenges(THERE)
    assert not moved(here)


@KEYS
def test_a_member_has_moved_once_it_answers_there_and_no_longer_here(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(SECOND_NS)
    elsewhere(here)
    here.tick(2 * SECOND_NS - 2)
    answer_there(here)
    here.gate.now = SECOND_NS
    here.pass_time(SECOND_NS + MOVE_NS - 1)
    assert here.gate.is_busy()
    assert not moved(here)
    here.tick(SECOND_NS + MOVE_NS)
    assert moved(here)
    assert not here.gate.is_busy()
    assert here.gate.at(HERE) is None
    assert here.hear(note(1), 7, address=THERE) == note(1)
    known = here.gate.known(7, THERE)
    assert known is here.gate.sites["x"]
    assert here.gate.knows(known)
    if keys is None:
        assert here.gate.known(7, HERE) is None


@KEYS
def test_a_member_does_not_move_while_we_stand_still(keys: KeyRing | None) -> None:
    """Its answer from its old address waits to be read: the next tick comes before that."""
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(SECOND_NS)
    elsewhere(here)
    answer_there(here)
    for step in range(UNANSWERED - 1):
        here.tick(SECOND_NS + 2 * MOVE_NS + step * PRESS_NS)
        if keys is not None:
            here.hear(note(1), 7, address=THERE)
        assert not moved(here)
    here.tick(SECOND_NS + 3 * MOVE_NS)
    assert moved(here)


@KEYS
def test_a_member_that_still_answers_at_its_address_has_not_moved(keys: KeyRing | None) -> None:
    """What answers elsewhere: a forwarder, or in an open group a liar."""
    here = Guarded(keys)
    here.acquaint(7)
    now = 0
    for there_first in (True, False):
        now += 2 * SECOND_NS
        here.tick(now)
        elsewhere(here)
        for at in (THERE, HERE) if there_first else (HERE, THERE):
            here.gate.now += 1
            answer_there(here) if at == THERE else here.stay(7)
        for step in range(20):
            here.tick(now + step * 100 * MILLISECOND_NS)
            assert not moved(here)
    assert not here.gate.is_busy()


@KEYS
def test_an_answer_at_the_old_address_in_the_same_moment_counts(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    elsewhere(here)
    here.stay(7)
    answer_there(here)
    assert not here.gate._moves
    here.pass_time(2 * MOVE_NS)
    assert not moved(here)


@KEYS
def test_an_old_address_is_asked_again_and_again_before_it_is_given_up(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    now = SECOND_NS
    here.tick(now)
    elsewhere(here)
    answer_there(here)
    asked = len(here.challenges())
    here.tick(now + PRESS_NS - 1)
    assert len(here.challenges()) == asked
    for step in range(1, MOVE_NS // PRESS_NS):
        here.tick(now + step * PRESS_NS)
        assert len(here.challenges()) == asked + step
    here.stay(7)
    here.tick(now + 2 * MOVE_NS)
    assert not moved(here)


@KEYS
def test_only_an_answer_to_our_own_challenge_there_moves_a_member(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(SECOND_NS)
    elsewhere(here)
    for answer in (answer_to(here.challenges(HERE)[-1]), answer_to(Challenge(7, bytes(16)))):
        here.hear(answer, 7, address=THERE)
    unproven = here.drops[challenges.UNPROVEN]
    assert unproven >= 3
    here.tick(SECOND_NS + 2 * MOVE_NS)
    assert not moved(here)
    assert not here.gate.is_busy()
    stale = answer_to(here.challenges(THERE)[-1])
    here.tick(5 * SECOND_NS)
    here.hear(stale, 7, address=THERE)
    here.tick(9 * SECOND_NS)
    assert not moved(here)


@KEYS
def test_a_member_is_asked_for_its_address_only_once_in_a_while(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(SECOND_NS)
    elsewhere(here)
    asked = len(here.replies)
    here.tick(SECOND_NS + MOVE_PAUSE_NS - 1)
    for number in range(20):
        here.hear(HELLO, 7, address=("10.0.0.9", number + 1))
    assert len(here.replies) == asked
    here.tick(SECOND_NS + MOVE_PAUSE_NS)
    elsewhere(here)
    assert len(here.replies) == asked + 2


@KEYS
def test_while_a_move_is_decided_no_other_one_begins(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(SECOND_NS)
    elsewhere(here)
    answer_there(here)
    here.gate.now = SECOND_NS + MOVE_PAUSE_NS
    asked = len(here.replies)
    here.hear(HELLO, 7, address=("10.0.0.9", 1))
    assert len(here.replies) == asked


@KEYS
def test_no_address_is_asked_unless_the_old_one_can_be(keys: KeyRing | None) -> None:
    """Otherwise it could be made to lose by using up what may be sent to it."""
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(SECOND_NS)
    for _ in range(ANSWERS_PER_ADDRESS):
        here.hear(Challenge(OURS, b"n" * 16, bytes(520)), 7)
    elsewhere(here)
    assert here.challenges(THERE) == []
    here.tick(SECOND_NS + 1)
    elsewhere(here)
    assert len(here.challenges(THERE)) == 1


@KEYS
def test_small_pdus_from_elsewhere_are_called(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(SECOND_NS)
    here.replies.clear()
    elsewhere(here, note(1))
    assert [(type(pdu), address) for pdu, address, *_ in here.replies] == [(Hello, THERE)]
    assert here.gate.should_greet
    padding = LEAST_BYTES - len(here.datagram(Here(bytes(300)), 7)) + 300
    elsewhere(here, Here(bytes(padding - 1)))
    assert here.challenges(THERE) == []
    elsewhere(here, Here(bytes(padding)))
    assert len(here.challenges(THERE)) == 1


@KEYS
def test_a_challenge_from_elsewhere_draws_one_reply(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(SECOND_NS)
    here.replies.clear()
    elsewhere(here, Challenge(OURS, b"n" * 16, bytes(520)))
    assert [(type(pdu), address) for pdu, address, *_ in here.replies] == [(Answer, THERE)]


def test_what_a_liar_says_from_elsewhere_in_an_open_group_is_dropped() -> None:
    here = Guarded(None)
    here.gate.take_part()
    here.acquaint(7)
    heard = here.gate.sites["x"].heard_ns
    here.tick(SECOND_NS)
    for pdu in (note(1), Refused(OURS, "x", True), Refused(OURS, "x", False), Here(bytes(520))):
        assert here.hear(pdu, 7, address=THERE) is None
    assert here.drops[gate.ELSEWHERE] == 4
    assert here.news.namesakes == []
    assert here.gate._own.pending_ns is None
    assert here.gate.sites["x"].heard_ns == heard, "it could keep a name alive"
    assert not moved(here)


@KEYS
@pytest.mark.parametrize("ill", ["known", "refused", "claiming"])
def test_a_liar_cannot_keep_a_member_out_by_calling_itself_by_its_boot(
    keys: KeyRing | None, ill: str
) -> None:
    """A boot is anyone's in the group: known, refused or claiming, it is so at one address."""
    here = Guarded(keys, {"order": "fifo"})
    here.acquaint(9, "taken", ("10.0.0.9", 1))
    liar = {"known": "y", "refused": "y", "claiming": "taken"}[ill]
    order = "total" if ill == "refused" else "fifo"
    here.prove(7, liar, THERE, options={"order": order})
    here.acquaint(7)
    assert here.hear(note(1), 7) == note(1)
    assert here.gate.sites["x"].address == HERE
    if keys is None:
        assert here.hear(note(1), 7, "x", THERE) is None


def test_a_key_holder_that_tells_two_names_under_a_boot_is_known_by_the_latest_one_proved() -> None:
    here = Guarded(RING)
    here.acquaint(7)
    here.prove(7, "y", THERE)
    assert set(here.gate.sites) == {"y"}
    assert here.hear(note(1), 7) is None
    here.acquaint(7)
    assert here.hear(note(2), 7) == note(2)
    assert set(here.gate.sites) == {"x"}
    assert here.gate.sizes()[0] == 1


# Counters that another process has used up


def spoiled(top: int, address: Address = HERE) -> Guarded:
    """A key holder has sent as the member of boot 7."""
    here = Guarded(RING)
    here.acquaint(7)
    here.tick(SECOND_NS)
    assert here.hear(note(1), 7, address=address, counter=top) == note(1)
    here.replies.clear()
    return here


@pytest.mark.parametrize("liar", [HERE, THERE], ids=["forged", "elsewhere"])
@pytest.mark.parametrize("top", [100_000, 1 << 40, (1 << 64) - 1])
def test_a_member_whose_counters_are_used_up_is_heard_again_once_it_answers(top: int, liar: Address) -> None:
    here = spoiled(top, liar)
    assert here.hear(note(2), 7) is None
    (challenge,) = here.challenges()
    assert here.hear(answer_to(challenge), 7, to=OURS) is None
    assert here.hear(note(3), 7) == note(3)
    assert here.hear(note(3), 7, counter=here.sent[7]) is None, "what was heard since is not heard twice"
    assert here.drops[gate.REPLAYED] == 3


def test_an_answer_of_before_does_not_bring_counters_back() -> None:
    """It may have been held back, so that what the member said since could be replayed."""
    here = spoiled(100_000)
    assert here.hear(note(2), 7) is None
    answer = here.datagram(answer_to(here.challenges()[-1]), 7, to=OURS)
    assert here.hear(note(3), 7, counter=100_001) == note(3)
    assert here.take(answer) is None
    assert here.hear(note(3), 7, counter=100_001) is None
    assert here.hear(note(4), 7) is None


def test_only_the_answer_to_that_challenge_brings_counters_back() -> None:
    here = spoiled(100_000)
    assert here.hear(note(2), 7) is None
    usual = Challenge(7, here.gate._challenger._cookies.number(7, HERE, here.gate.now))
    here.hear(answer_to(usual), 7, to=OURS)
    assert here.hear(note(3), 7) is None
    here.hear(answer_to(here.challenges()[-1]), 7, to=OURS)
    assert here.hear(note(4), 7) == note(4)


def test_old_pdus_that_are_replayed_draw_few_challenges_and_only_to_the_member() -> None:
    here = spoiled(100_000)
    old = [here.datagram(note(2), 7) for _ in range(20)]
    for datagram in old:
        here.take(datagram)
        here.take(datagram, THERE)
    assert [(type(pdu), address) for pdu, address, *_ in here.replies] == [(Challenge, HERE)]
    here.tick(SECOND_NS + PRESS_NS)
    here.take(old[0])
    assert len(here.challenges()) == 2


def test_two_members_whose_counters_are_used_up_at_each_other_are_heard_again() -> None:
    """The challenge of one is past at the other, and is answered all the same."""
    here = spoiled(100_000)
    here.hear(Challenge(OURS, b"n" * 16, bytes(520)), 7, to=OURS)
    assert [type(pdu) for pdu, *_ in here.replies] == [Answer]


def test_a_process_that_moves_to_where_it_told_another_name_is_known_by_one() -> None:
    here = Guarded(None)
    here.acquaint(7)
    here.tick(SECOND_NS)
    elsewhere(here)
    answer_there(here)
    here.prove(7, "y", THERE)
    assert set(here.gate.sites) == {"x", "y"}
    here.pass_time(SECOND_NS + MOVE_NS)
    assert set(here.gate.sites) == {"x"}
    assert moved(here)


@KEYS
def test_a_member_that_is_forgotten_moves_no_more(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(SILENCE_NS)
    elsewhere(here)
    answer_there(here)
    here.prove(8, address=("10.0.0.9", 1))
    here.pass_time(SILENCE_NS + NAME_SILENCE_NS + PRESS_NS)
    assert here.gate.sites["x"].boot == 8
    here.pass_time(2 * SILENCE_NS)
    assert here.gate.sites["x"].boot == 8
    assert here.gate.sites["x"].address == ("10.0.0.9", 1)


@KEYS
def test_an_address_that_another_member_has_by_now_stays_its_own(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.acquaint(8, "y")
    assert here.gate.at(HERE) is here.gate.sites["y"]
    here.tick(SECOND_NS)
    elsewhere(here)
    answer_there(here)
    here.pass_time(SECOND_NS + MOVE_NS)
    assert here.gate.sites["x"].address == THERE
    assert here.gate.at(HERE) is here.gate.sites["y"]


def test_answers_to_members_do_not_wait_for_those_to_strangers() -> None:
    here = Guarded(None)
    here.acquaint(7)
    here.tick(SECOND_NS)
    for number in range(ANSWERS_PER_TICK):
        here.hear(HELLO, 100 + number, f"s{number}", ("10.2.0.1", number + 1))
    asked = len(here.challenges())
    here.gate._admission._claims.clear()
    assert here.gate._challenger.press(here.gate.sites["x"], here.gate.now)
    assert len(here.challenges()) == asked + 1


# On real sockets


class Forwarder:
    """A process without a key that receives what a member sends, and repeats it from its own address."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]

    def say(self, datagram: bytes, to: Ear) -> None:
        self._socket.sendto(datagram, ("127.0.0.1", to.port()))

    def relay(self, to: Ear) -> int:
        """Send on what came here; how much that was."""
        came = read_all(self._socket)
        for datagram in came:
            self.say(datagram, to)
        return len(came)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def forwarder() -> Iterator[Forwarder]:
    made = Forwarder()
    yield made
    made.close()


@contextlib.contextmanager
def overheard(speaker: Ear, *, lose: Callable[[Address], bool] = lambda _: False) -> Iterator[list[bytes]]:
    """What a member sends meanwhile; some of it is lost on its way."""
    heard: list[bytes] = []
    places = speaker.transport._sockets
    real = places.send

    def send(data: bytes, address: Address) -> None:
        heard.append(bytes(data))
        if not lose(address):
            real(data, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "send", send)
        patch.setattr(places, "send_two", lambda head, body, to: send(bytes(head) + bytes(body), to))
        yield heard


@KEYS
@pytest.mark.parametrize("relays", [False, True], ids=["deaf", "relaying"])
def test_someone_who_forwards_what_a_member_says_moves_nobody(
    keys: KeyRing | None, forwarder: Forwarder, relays: bool
) -> None:
    """It also forwards the challenge that it draws, so that the member answers there, too."""
    group = group_name()
    with ears(Ear("a", group, keys), Ear("b", group, keys)) as (a, b):
        settle(a, b)
        home = b.transport.addresses["a"]
        begun = b.counters.challenges_sent
        with overheard(a, lose=lambda _: True) as heard:
            a.transport.multicast(Hello())
            a.transport.send("b", note(1, 1000))
        for datagram in heard:
            forwarder.say(datagram, b)
        rounds = 0

        def asked() -> bool:
            nonlocal rounds
            if relays:
                forwarder.relay(a)
            rounds += 1
            return b.counters.challenges_sent >= begun + 2 and not b.transport.is_unfinished and rounds > 20

        drive([a, b], asked)
        assert b.transport.addresses["a"] == home
        assert bool(b.heard) == (keys is not None)
        a.transport.multicast(note(2))
        drive([a, b], lambda: 2 in b.numbers("a"))


@KEYS
def test_a_member_that_has_moved_is_found_again(keys: KeyRing | None) -> None:
    """Its old port is closed, as after a change of its network; it says only little things."""
    group, places = group_name(), peers_on("127.0.0.1", 2)
    with ears(*(Ear("ab"[n], group, keys, places[n]) for n in range(2))) as (a, b):
        settle(a, b)
        old = b.transport.addresses["a"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as fresh:
            fresh.bind(("127.0.0.1", 0))
            fresh.setblocking(False)
            os.dup2(fresh.fileno(), a.transport._sockets._sending.fileno())
        assert a.port() != old[1]
        repeat(
            [a, b],
            lambda: a.transport.multicast(note(1)),
            lambda: b.transport.addresses["a"] == ("127.0.0.1", a.port()),
        )
        b.transport.send("a", note(5))
        b.transport.multicast(note(6))
        drive([a, b], lambda: a.numbers("b") == [5, 6])
        a.transport.multicast(note(7))
        drive([a, b], lambda: 7 in b.numbers("a"))


@KEYS
def test_a_unicast_that_is_handed_to_another_member_is_refused(keys: KeyRing | None) -> None:
    group = group_name()
    with ears(*(Ear(site, group, keys) for site in "abc")) as (a, b, c):
        settle(a, b, c)
        with overheard(a) as heard:
            a.transport.send("b", note(1))
        drive([b], lambda: b.numbers("a") == [1])
        dropped = sum(c.drops.values())
        a.transport._sockets.send(heard[0], ("127.0.0.1", c.port()))
        drive([c], lambda: sum(c.drops.values()) > dropped)
        assert c.heard == []


@KEYS
def test_a_large_unicast_that_is_handed_to_another_member_is_refused(keys: KeyRing | None) -> None:
    group = group_name()
    with ears(*(Ear(site, group, keys) for site in "abc")) as (a, b, c):
        settle(a, b, c)
        with overheard(a) as heard:
            a.transport.send("b", note(1, 90_000))
        assert len(heard) == 2
        for datagram in heard:
            a.transport._sockets.send(datagram, ("127.0.0.1", c.port()))
        drive([b, c], lambda: b.numbers("a") == [1] and c.counters.reassembled == 1)
        assert c.heard == []


# Fragments of strangers


@KEYS
def test_invented_fragments_cost_no_large_pdu(keys: KeyRing | None, forwarder: Forwarder) -> None:
    """With the boot and the counters of a member, before its own fragments come, from another address."""
    group, places = group_name(), peers_on("127.0.0.1", 2, datagram_bytes=1472)
    with ears(*(Ear("ab"[n], group, keys, places[n]) for n in range(2))) as (a, b):
        settle(a, b)
        count = 30
        for number in range(count):
            following = a.transport._framer.counter + 1
            invented = cut(os.urandom(60_000), 1472, a.transport._group, a.transport.boot, following)
            for head, body in invented[:20] + invented[-1:]:
                token = os.urandom(8) if number % 2 else head[-8:]
                forwarder.say(head[:-8] + token + bytes(body), b)
            b.look()
            a.transport.multicast(note(number, 60_000))
            drive([a, b], lambda number=number: number in b.numbers("a"))  # type: ignore[misc]
        assert [pdu for _, pdu in b.heard] == [note(number, 60_000) for number in range(count)]
        assert b.counters.pdus_lost == 0
        assert not b.transport._fragments.reassembly.has_partials()
        dropped = b.drops.get(fragments.FORGED, 0) + b.drops.get(challenges.UNPROVEN, 0)
        assert dropped >= 20 * count


def test_fragments_of_strangers_do_not_get_into_what_a_member_has_begun(forwarder: Forwarder) -> None:
    """In an open group there are no tokens, but there are addresses."""
    group, places = group_name(), peers_on("127.0.0.1", 2, datagram_bytes=1472, offload=False)
    with ears(*(Ear("ab"[n], group, None, places[n]) for n in range(2))) as (a, b):
        settle(a, b)
        lost = Counter[Address]()

        def lose(address: Address) -> bool:
            lost[address] += 1
            return lost[address] % 2 == 0

        with overheard(a, lose=lose):
            a.transport.multicast(note(1, 10_000))
        b.look()
        assert b.transport._fragments.reassembly.has_partials()
        for head, body in cut(
            bytes(10_100), 1472, a.transport._group, a.transport.boot, a.transport._framer.counter
        ):
            forwarder.say(head + bytes(body), b)
        drive([a, b], lambda: bool(b.heard))
        assert b.heard == [("a", note(1, 10_000))]


def test_datagrams_that_the_kernel_joined_have_all_their_tokens_looked_at() -> None:
    group, places = group_name(), peers_on("127.0.0.1", 2, datagram_bytes=1472)
    with ears(*(Ear("ab"[n], group, RING, places[n]) for n in range(2))) as (a, b):
        settle(a, b)
        here, key = a.transport, a.transport._framer.key
        assert key is not None
        address = b.transport.addresses["a"]

        def joined(counter: int, tokens: fragments.Tokens) -> memoryview:
            return memoryview(
                b"".join(
                    head + bytes(body)
                    for head, body in cut(bytes(5000), 1472, here._group, here.boot, counter, tokens)
                )
            )

        def wrong_last(counter: int, count: int) -> bytes:
            return key.seal.tokens(counter, count)[:-8] + bytes(8)

        for counter, tokens in ((10**6, no_tokens), (10**6, wrong_last)):
            b.transport._take(joined(counter, tokens), 1472, address, [])
        assert b.drops[fragments.FORGED] == 2
        assert b.counters.reassembled == 0
        b.transport._take(joined(10**6, key.seal.tokens), 1472, address, [])
        assert b.counters.reassembled == 1
        b.transport._take(joined(10**6, key.seal.tokens), 1472, address, [])
        assert b.drops[fragments.LATE] == 1
        before = dict(b.drops)
        own = cut(bytes(5000), 1472, here._group, b.transport.boot, 5)
        b.transport._take(memoryview(b"".join(h + bytes(d) for h, d in own)), 1472, address, [])
        assert b.drops == before, "its own"


@KEYS
def test_datagrams_that_the_kernel_joined_may_be_of_any_kind(keys: KeyRing | None) -> None:
    group, places = group_name(), peers_on("127.0.0.1", 2, datagram_bytes=1472, offload=False)
    with ears(*(Ear("ab"[n], group, keys, places[n]) for n in range(2))) as (a, b):
        settle(a, b)
        with overheard(a, lose=lambda _: True) as heard:
            for number in (1, 2, 3):
                a.transport.multicast(note(number))
            a.transport.multicast(note(4, 6000))
        whole, pieces = heard[:3], heard[3:]
        address = b.transport.addresses["a"]
        short = b.drops.get(Reason.SHORT.value, 0)
        arrived: list[transport.Arrival] = []
        for several in ([*whole, b"short"], [*reversed(pieces[:-1]), b"short"], [pieces[-1]]):
            each = len(several[0]) if len(several) > 1 else 0
            b.transport._take(memoryview(b"".join(several)), each, address, arrived)
        assert [pdu for _, pdu, _ in arrived] == [note(1), note(2), note(3), note(4, 6000)]
        assert b.drops[Reason.SHORT.value] == short + 2
