"""How much strangers can make a member do, and the bounds of what the gate keeps."""

import pytest

from antiphon.core.time import SECOND_NS
from antiphon.core.wire import PREFIX
from antiphon.live import admission, gate
from antiphon.live.admission import CROWDED_NS, MOST_CLAIMS, MOST_PRESSED, MOST_REFUSED, NAME_SILENCE_NS
from antiphon.live.challenges import ANSWERS_PER_ADDRESS, ANSWERS_PER_TICK
from antiphon.live.gate import DERIVED_PER_TICK, KEY_REPORT_NS
from antiphon.live.handshake import Answer, Challenge
from antiphon.live.keys import KeyRing
from antiphon.live.members import MOST_MEMBERS, MOST_RETIRED, PRESS_NS, SILENCE_NS, UNANSWERED
from antiphon.live.sealing import GENERATION_BITS
from tests.live.gates import KEYS, members, place, strangers
from tests.live.guarded import HELLO, HERE, OURS, THERE, Guarded, answer_to, sealed
from tests.live.pairs import OTHER_RING, RING, note

# How much strangers can make us do


@KEYS
def test_strangers_cause_only_so_many_replies_between_two_ticks(keys: KeyRing | None) -> None:
    for pdu in (HELLO, Challenge(OURS, b"n" * 16, bytes(520)), note(0)):
        here = Guarded(keys)
        if keys is not None:
            here.gate._derived_left = 10 * ANSWERS_PER_TICK
        for boot, site, address in strangers(2 * ANSWERS_PER_TICK):
            here.hear(pdu, boot, site, address)
        assert len(here.replies) == ANSWERS_PER_TICK
        assert here.gate.is_busy()
        here.tick(1)
        assert not here.gate.is_busy()
        here.hear(HELLO, 50)
        assert len(here.replies) == ANSWERS_PER_TICK + 1


@KEYS
def test_one_address_causes_only_so_many(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    for boot, site, _ in strangers(2 * ANSWERS_PER_ADDRESS):
        here.hear(HELLO, boot, site)
    assert len(here.replies) == ANSWERS_PER_ADDRESS
    here.hear(HELLO, 50, address=THERE)
    assert len(here.replies) == ANSWERS_PER_ADDRESS + 1
    here.tick(1)
    here.hear(HELLO, 50)
    assert len(here.replies) == ANSWERS_PER_ADDRESS + 2


@KEYS
def test_strangers_do_not_use_up_the_answers_of_members(keys: KeyRing | None) -> None:
    """A member that is asked for a sign of life could lose its name otherwise."""
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(1)
    if keys is not None:
        here.gate._derived_left = 10 * ANSWERS_PER_TICK
    for boot, site, address in strangers(2 * ANSWERS_PER_TICK):
        here.hear(HELLO, boot, site, address)
    here.replies.clear()
    for _ in range(2 * ANSWERS_PER_ADDRESS):
        here.hear(Challenge(OURS, b"n" * 16, bytes(520)), 7)
    assert [type(pdu) for pdu, *_ in here.replies] == [Answer] * ANSWERS_PER_ADDRESS


@KEYS
def test_nothing_is_remembered_of_those_that_prove_nothing(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    for number, (boot, site, address) in enumerate(strangers(500)):
        here.tick(number)
        asking = Challenge(OURS, b"n" * 16, bytes(520))
        for pdu in (HELLO, note(1), asking, answer_to(asking)):
            here.hear(pdu, boot, site, address)
        assert here.gate.sizes() == (0, 0, 0, 0)
        assert len(here.gate._challenger._answered) <= 1


def test_invented_senders_cost_no_derived_keys() -> None:
    here = Guarded(RING)
    for boot in range(10 * DERIVED_PER_TICK):
        here.take(sealed(HELLO, boot + 100, 1, "x", OTHER_RING))
    assert here.drops == {gate.UNKNOWN_KEY: 10 * DERIVED_PER_TICK}
    assert here.gate._derived_left == DERIVED_PER_TICK
    assert here.seals is not None
    assert not here.seals._made
    here.acquaint(7)


@KEYS
def test_that_others_have_another_key_or_none_is_told_once_a_minute(keys: KeyRing | None) -> None:
    """Anyone can make it seem so, from any address."""
    here, other = Guarded(keys), Guarded(RING if keys is None else None)
    for minute in range(3):
        here.tick(minute * KEY_REPORT_NS)
        for number in range(20):
            here.take(other.datagram(HELLO, 7), place(number))
            here.take(sealed(HELLO, 8, number + 1, "x", OTHER_RING), place(number))
        kinds = 1 if keys is None else 2
        assert len(here.news.refusals) == kinds * (minute + 1)
        assert all("A process at 10.1.0.1:1 is in" in reason for _, reason in here.news.refusals)


def test_keys_that_are_not_derived_for_now_are_not_called_others() -> None:
    here = Guarded(RING)
    for boot in range(DERIVED_PER_TICK + 5):
        here.hear(note(1), boot + 1, address=place(boot))
    assert here.drops[gate.UNKNOWN_KEY] == 5
    assert here.news.refusals == []


def test_the_name_of_a_key_is_good_for_one_boot_and_one_generation() -> None:
    """A listener that has heard one cannot have others derived."""
    here = Guarded(RING)
    heard = here.datagram(HELLO, 7)
    for boot, generation in ((8, 0), (7, 1), (7, 2**31)):
        prefix = list(PREFIX.unpack_from(heard))
        prefix[-2:] = [boot, generation << GENERATION_BITS | 1]
        here.take(PREFIX.pack(*prefix) + heard[PREFIX.size :])
    assert here.drops == {gate.UNKNOWN_KEY: 3}
    assert here.gate._derived_left == DERIVED_PER_TICK


def test_keys_of_strangers_are_derived_only_so_often_and_those_of_members_always() -> None:
    here = Guarded(RING)
    here.acquaint(7)
    here.tick(1)
    for boot, site, address in strangers(2 * DERIVED_PER_TICK):
        here.hear(HELLO, boot, site, address)
    assert here.drops[gate.UNKNOWN_KEY] == DERIVED_PER_TICK
    assert len(here.replies) == 2 + DERIVED_PER_TICK
    here.hear(HELLO, 1000, "site0", place(0))
    assert len(here.replies) == 3 + DERIVED_PER_TICK, "one that is derived already costs nothing"
    assert here.hear(note(1), 7, counter=1 << GENERATION_BITS) == note(1)
    here.tick(2)
    here.hear(HELLO, 1000 + 2 * DERIVED_PER_TICK, "y", THERE)
    assert len(here.challenges(THERE)) == 1


def test_what_is_sealed_right_for_another_header_does_not_open() -> None:
    here = Guarded(RING)
    forged, right = sealed(HELLO, 7, 1, "x", OTHER_RING), here.datagram(HELLO, 7, counter=1)
    here.take(right[:36] + forged[36:])
    assert here.drops == {gate.FORGED: 1}
    assert here.replies == []


# Generations and rings of keys


def test_a_member_goes_on_to_later_generations_also_after_a_long_absence() -> None:
    here = Guarded(RING)
    here.acquaint(7)
    for generation in (1, 2, 50):
        assert here.hear(note(1), 7, counter=generation << GENERATION_BITS | 5) == note(1)
    right = here.datagram(note(1), 7, counter=51 << GENERATION_BITS)
    forged = list(PREFIX.unpack_from(right))
    forged[-1] += 1 << GENERATION_BITS
    assert here.take(PREFIX.pack(*forged) + right[PREFIX.size :]) is None
    assert here.drops[gate.UNKNOWN_KEY] == 1


def test_what_is_late_of_the_generation_before_is_heard() -> None:
    here = Guarded(RING)
    here.acquaint(7)
    last = (1 << GENERATION_BITS) - 1
    assert here.hear(note(1), 7, counter=last - 5) == note(1)
    assert here.hear(note(2), 7, counter=last + 1) == note(2)
    seal = here.gate.sites["x"].seal
    assert seal is not None
    assert seal.generation == 1
    assert here.hear(note(3), 7, counter=last) == note(3)
    assert here.gate.sites["x"].seal is seal, "what is late does not bring the earlier key back"
    assert here.hear(note(3), 7, counter=last) is None


def test_members_go_on_to_another_key_of_the_ring_one_by_one() -> None:
    both = KeyRing((b"1" * 32, b"2" * 32))
    here = Guarded(both)
    here.acquaint(7)
    second = both.promoted()
    assert here.take(sealed(note(1), 7, 10, "x", second)) == note(1)
    assert here.take(sealed(note(2), 7, 11, "x", second)) == note(2)
    assert here.take(sealed(note(3), 7, 12, "x", both)) == note(3)
    assert here.take(sealed(note(3), 7, 12, "x", second)) is None
    assert here.drops[gate.REPLAYED] == 1


def test_a_key_that_was_retired_opens_nothing_more() -> None:
    both = KeyRing((b"1" * 32, b"2" * 32))
    here = Guarded(both)
    here.acquaint(7)
    here.acquaint(8, "y", THERE)
    assert here.take(sealed(note(1), 8, 10, "y", both.promoted()), THERE) == note(1)
    assert here.seals is not None
    here.seals.replace(both.promoted().retired())
    here.gate.rekey()
    assert here.take(sealed(note(2), 7, 10, "x", both)) is None
    assert here.drops[gate.UNKNOWN_KEY] == 1
    assert here.take(sealed(note(3), 8, 11, "y", both.promoted()), THERE) == note(3)
    assert here.take(sealed(note(4), 7, 10, "x", both.promoted())) == note(4), "it is a member still"


# Bounds


@KEYS
def test_a_full_table_lets_nobody_in_while_its_members_speak(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    for number in range(MOST_MEMBERS):
        here.tick(number)
        here.acquaint(number + 1000, f"site{number}", place(number))
    here.prove(1, "x")
    assert "x" not in here.gate.sites
    assert here.drops[admission.FULL] == 1
    (told,) = here.news.refusals
    assert told[0] == "x"
    assert told[1].startswith("There is no room for 'x' at 10.0.0.1:1: this member knows 1024 other active")
    assert here.gate.sizes() == (MOST_MEMBERS, 0, 0, 0)
    assert here.gate.is_busy(), "a process waits for a place"
    here.gate._admission._crowded_ns = here.gate.now - admission.CROWDED_NS
    assert not here.gate._admission.is_busy(here.gate.now)
    here.tick(SILENCE_NS)
    here.hear(note(1), 1000, "site0", place(0))
    here.prove(1, "x")
    assert "x" not in here.gate.sites, "site1 spoke a nanosecond less than five seconds ago"
    assert len(here.news.refusals) == 1, "whether it still answers is being found out"
    here.tick(SILENCE_NS + 1)
    here.acquaint(1)
    assert here.gate.sizes() == (MOST_MEMBERS, 0, 0, 1)
    assert {"site0", "site2"} <= set(here.gate.sites)
    assert "site1" not in here.gate.sites


@KEYS
def test_a_full_table_makes_room_in_place_of_a_member_that_no_longer_answers(
    keys: KeyRing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MOST_MEMBERS", 3)
    here = Guarded(keys)
    members(here, 3)
    silent_ns = here.gate.now
    here.prove(50, "x")
    for now in range(silent_ns, silent_ns + NAME_SILENCE_NS, PRESS_NS):
        here.tick(now)
        for number in (0, 2):
            here.hear(note(1), number + 1, f"site{number}", place(number))
        here.prove(50, "x")
        assert "x" not in here.gate.sites
    here.tick(silent_ns + NAME_SILENCE_NS)
    here.acquaint(50)
    assert set(here.gate.sites) == {"site0", "site2", "x"}


@KEYS
def test_members_of_a_full_table_that_answer_keep_their_places_although_they_say_nothing_else(
    keys: KeyRing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MOST_MEMBERS", 3)
    here = Guarded(keys)
    members(here, 3)
    for now in range(here.gate.now, SILENCE_NS - 1, PRESS_NS):
        here.tick(now)
        for number in range(3):
            if here.challenges(place(number)):
                here.stay(number + 1, f"site{number}", place(number))
        here.prove(50, "x")
    assert set(here.gate.sites) == {"site0", "site1", "site2"}
    assert len(here.challenges(place(0))) >= UNANSWERED


@KEYS
def test_silent_members_of_a_full_table_are_challenged_a_few_at_a_time_and_for_a_while(
    keys: KeyRing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MOST_MEMBERS", 2 * MOST_PRESSED)
    here = Guarded(keys)
    members(here, 2 * MOST_PRESSED)
    here.pass_time(SECOND_NS)
    challenged = here.counters.challenges_sent
    assert not here.gate.is_busy(), "no newcomer asks for a place"
    here.prove(50, "x")
    challenged += 1
    assert here.gate.is_busy()
    here.tick(SECOND_NS + 1)
    assert here.counters.challenges_sent == challenged + MOST_PRESSED
    here.pass_time(SECOND_NS + CROWDED_NS)
    challenged = here.counters.challenges_sent
    here.tick(SECOND_NS + CROWDED_NS + PRESS_NS)
    assert here.counters.challenges_sent == challenged
    assert not here.gate.is_busy()


@KEYS
def test_a_member_that_is_restarted_has_its_place_in_a_full_table(
    keys: KeyRing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MOST_MEMBERS", 2)
    here = Guarded(keys)
    members(here, 2)
    here.prove(50, "site0", THERE)
    here.pass_time(NAME_SILENCE_NS)
    assert here.gate.sites["site0"].boot == 50
    assert admission.FULL not in here.drops


@KEYS
def test_claims_refusals_and_what_is_retired_are_bounded(keys: KeyRing | None) -> None:
    here = Guarded(keys, {"order": "fifo"})
    here.acquaint(7)
    for boot, _, address in strangers(MOST_CLAIMS + 5):
        here.tick(1)
        here.prove(boot, "x", address)
    assert here.gate.sizes() == (1, MOST_CLAIMS, 0, 0)
    here = Guarded(keys, {"order": "fifo"})
    for boot, site, address in strangers(MOST_REFUSED + 5):
        here.tick(1)
        here.prove(boot, site, address, options={"order": "total"})
    assert here.gate.sizes() == (0, 0, MOST_REFUSED, 0)
    here = Guarded(keys)
    for boot, _, address in strangers(MOST_RETIRED + 5):
        here.tick(here.gate.now + SILENCE_NS)
        here.acquaint(boot, "x", address)
    assert here.gate.sizes() == (1, 0, 0, MOST_RETIRED)


@KEYS
def test_a_process_that_tells_two_names_is_known_by_one(keys: KeyRing | None) -> None:
    """It claims a name that is taken, and is let in under another one meanwhile."""
    here = Guarded(keys)
    here.acquaint(7)
    here.prove(8, "x", THERE)
    here.hear(answer_to(here.challenges(THERE)[-1]), 8, "y", THERE)
    here.pass_time(NAME_SILENCE_NS)
    assert {site: known.boot for site, known in here.gate.sites.items()} == {"x": 8}
    assert here.gate.sizes()[0] == 1
    here.tick(2 * NAME_SILENCE_NS)
    here.prove(9, "x", place(9))
    here.pass_time(3 * NAME_SILENCE_NS)
    assert here.gate.sites["x"].boot == 9


# At the bounds


@KEYS
def test_a_gate_is_busy_while_a_process_waits_for_a_name(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.pass_time(SECOND_NS)
    assert not here.gate._admission.is_busy(here.gate.now)
    here.prove(8, "x", THERE)
    assert here.gate._admission.is_busy(here.gate.now)


@KEYS
def test_a_newcomer_is_refused_a_place_aloud_only_while_the_quietest_member_may_just_be_slow(
    keys: KeyRing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MOST_MEMBERS", 1)
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(here.gate.sites["x"].heard_ns + NAME_SILENCE_NS)
    here.prove(8, "y", THERE)
    assert here.drops[admission.FULL] == 1
    assert here.news.refusals == []


@KEYS
def test_a_claim_is_refused_as_soon_as_the_owner_answers(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.tick(PRESS_NS)
    here.prove(8, "x", THERE)
    here.gate.now += 1
    here.stay(7)
    assert [refusal.final for refusal in here.refusals(THERE)] == [False, True]


def test_another_key_is_reported_also_when_the_last_key_was_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "DERIVED_PER_TICK", 1)
    here = Guarded(RING)
    here.tick(1)
    here.hear(HELLO, 7)
    assert here.take(sealed(HELLO, 8, 1, "y", OTHER_RING)) is None
    assert len(here.news.refusals) == 1


@KEYS
def test_a_table_that_a_crowd_filled_has_room_again_within_two_seconds(
    keys: KeyRing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crowd has one address, and strangers there go on greeting. Newcomers try once a second."""
    monkeypatch.setattr(admission, "MOST_MEMBERS", 40)
    here = Guarded(keys)
    for number in range(40):
        here.tick(number)
        here.acquaint(number + 1000, f"crowd{number}", HERE)
    silent_ns, newcomers = here.gate.now, range(5)
    for turn in range(3):
        for number in newcomers:
            if f"new{number}" not in here.gate.sites:
                here.prove(number + 1, f"new{number}", place(number))
        for now in range(silent_ns + turn * SECOND_NS, silent_ns + (turn + 1) * SECOND_NS, PRESS_NS):
            here.tick(now)
            for number in range(ANSWERS_PER_ADDRESS + 1):
                here.hear(HELLO, now + number + 5000, "stranger", HERE)
    assert {f"new{number}" for number in newcomers} <= set(here.gate.sites)
