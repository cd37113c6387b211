"""The gate by itself: which processes it lets in under which name, and how much strangers can cause."""

import pytest

from antiphon.core.fields import INCARNATION_LIMIT
from antiphon.core.time import SECOND_NS
from antiphon.core.wire import OLDEST, VERSION, Reason, group_hash
from antiphon.live import admission, challenges, gate
from antiphon.live.admission import MOST_UNMET, NAME_SILENCE_NS
from antiphon.live.challenges import LEAST_BYTES
from antiphon.live.handshake import SLOT_NS, Answer, Challenge, Cookies, Hello, Here, Refused, Terms, shown
from antiphon.live.keys import KeyRing
from antiphon.live.members import PRESS_NS, SILENCE_NS, UNANSWERED
from tests.live.gates import KEYS, members, place, strangers
from tests.live.guarded import GROUP, HELLO, HERE, KINDS, OURS, THERE, Guarded, answer_to, sealed
from tests.live.pairs import OTHER_RING, RING, Note, note

# Proofs


@KEYS
def test_a_boot_is_heard_once_it_has_answered(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    assert here.hear(note(0), 7) is None
    here.acquaint(7)
    assert here.hear(note(5), 7) == note(5)
    assert here.drops == {challenges.UNPROVEN: 2}
    assert here.counters.pdus_lost == 1, "a note may have been for the protocol, a greeting was not"


@KEYS
def test_only_the_right_answer_from_the_right_place_counts(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.hear(HELLO, 7)
    right = answer_to(here.challenges()[0])
    wrong = Answer(bytes(16), VERSION, VERSION, True, 0, {})
    nearly = Answer(right.number[:-1] + bytes([right.number[-1] ^ 1]), VERSION, VERSION, True, 0, {})
    here.replies.clear()
    for answer in (wrong, nearly):
        here.hear(answer, 7)
    here.hear(right, 8)
    here.hear(right, 7, address=THERE)
    assert not here.gate.sites
    assert here.replies == [], "an answer is not worth a challenge"
    here.hear(right, 7)
    assert set(here.gate.sites) == {"x"}


@KEYS
@pytest.mark.parametrize(
    ("slots", "counts"), [(0, True), (1, True), (2, False), (3, False), (-1, False)], ids=str
)
def test_an_answer_counts_in_the_slot_of_its_challenge_and_in_the_next(
    keys: KeyRing | None, slots: int, counts: bool
) -> None:
    here = Guarded(keys)
    here.tick(10 * SLOT_NS)
    here.hear(HELLO, 7)
    here.tick((10 + slots) * SLOT_NS)
    here.hear(answer_to(here.challenges()[0]), 7)
    assert bool(here.gate.sites) == counts


def test_an_address_is_shown_as_people_write_it() -> None:
    assert shown(("10.0.0.1", 7400)) == "10.0.0.1:7400"
    assert shown(("fe80::1", 7400, 0, 2)) == "[fe80::1]:7400"
    assert len(shown(("x" * 200, 1))) == 80


def test_cookies_are_of_one_process_at_one_place_by_one_secret() -> None:
    cookies, now = Cookies(), 7 * SLOT_NS
    number = cookies.number(7, HERE, now)
    assert cookies.is_right(number, 7, HERE, now + SLOT_NS)
    assert not cookies.is_right(number, 8, HERE, now)
    assert not cookies.is_right(number, 7, THERE, now)
    assert not Cookies().is_right(number, 7, HERE, now)
    assert len(number) == 16


@KEYS
def test_a_process_that_was_forgotten_cannot_come_back_with_its_old_answer(keys: KeyRing | None) -> None:
    """It answers a challenge in the name of a successor, which has the name by then."""
    here = Guarded(keys)
    here.hear(HELLO, 7)
    answer = answer_to(here.challenges()[0])
    here.hear(answer, 7)
    here.tick(SILENCE_NS)
    here.acquaint(8, address=THERE)
    here.hear(answer, 7)
    assert here.gate.sites["x"].boot == 8


def test_an_answer_that_was_overtaken_still_counts_and_what_came_before_it_stays_dropped() -> None:
    here = Guarded(RING)
    here.hear(HELLO, 7, counter=1)
    for counter in range(10, 20):
        here.hear(note(counter), 7, counter=counter)
    here.hear(answer_to(here.challenges()[0]), 7, counter=5)
    assert here.hear(note(3), 7, counter=3) is None
    assert here.hear(note(5), 7, counter=5) is None
    assert here.hear(note(20), 7, counter=20) == note(20)
    assert here.hear(note(20), 7, counter=20) is None
    assert here.hear(note(6), 7, counter=6) == note(6), "late, and never heard"
    assert here.drops[gate.REPLAYED] == 3


def test_what_a_process_said_before_it_was_forgotten_is_not_heard_again() -> None:
    here = Guarded(RING)
    here.acquaint(7)
    assert here.hear(note(1), 7, counter=50) is not None
    here.tick(SILENCE_NS)
    here.acquaint(8)
    here.tick(2 * SILENCE_NS)
    here.acquaint(7)
    assert here.hear(note(1), 7, counter=50) is None
    assert here.hear(note(1), 7, counter=49) is None
    assert here.hear(note(1), 7, counter=51) is not None


@KEYS
def test_challenges_for_this_boot_are_answered_and_no_others(keys: KeyRing | None) -> None:
    here = Guarded(keys, {"order": "fifo"})
    here.news.incarnations["x"] = 77
    ours = Challenge(OURS, b"n" * 16, bytes(520))
    here.hear(ours, 7)
    expected = Answer(b"n" * 16, OLDEST, VERSION, False, 77, {"order": "fifo"})
    assert [(pdu, address, boot) for pdu, address, boot, _ in here.replies] == [(expected, HERE, 7)]
    here.gate.take_part()
    here.hear(ours, 7)
    assert here.replies[1][0] == Answer(b"n" * 16, OLDEST, VERSION, True, 77, {"order": "fifo"})
    here.hear(Challenge(OURS + 1, b"n" * 16, bytes(520)), 7)
    here.hear(Challenge(OURS, b"n" * 16), 7)
    here.acquaint(7)
    before = len(here.replies)
    here.hear(Challenge(OURS + 1, b"n" * 16, bytes(520)), 7)
    here.hear(Challenge(OURS, b"n" * 16), 7)
    assert before == len(here.replies) == 4, "two answers, a challenge and a greeting"
    here.hear(ours, 7)
    assert isinstance(here.replies[-1][0], Answer)
    assert here.counters.proofs_given == 3


@KEYS
def test_a_process_that_has_proved_itself_is_greeted_so_that_it_asks_for_our_proof(
    keys: KeyRing | None,
) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    assert [type(pdu) for pdu, *_ in here.replies] == [Challenge, Here]
    assert here.replies[-1][1:] == (HERE, 7, None)


@KEYS
def test_a_stranger_that_says_too_little_is_called_with_as_little(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    small = here.datagram(note(0), 7)
    assert len(small) < LEAST_BYTES
    here.take(small)
    assert here.gate.should_greet
    assert [(type(pdu), address, most) for pdu, address, _, most in here.replies] == [
        (Hello, HERE, len(small))
    ]
    here.hear(note(0), 7)
    assert len(here.replies) == 1, "one call between two ticks will do"
    here.tick(1)
    here.hear(note(0), 7)
    assert len(here.replies) == 2
    here.tick(2)
    here.replies.clear()
    here.gate.greeted()
    here.hear(Hello(), 7)
    assert here.replies == [], "two that call each other would never end"
    assert here.gate.should_greet


@KEYS
def test_a_greeting_is_large_enough_though_a_byte_is_missing(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    padding = LEAST_BYTES - len(here.datagram(Hello(padding=bytes(300)), 7)) + 300
    here.hear(Hello(padding=bytes(padding - 1)), 7)
    assert here.challenges() == []
    here.hear(Hello(padding=bytes(padding)), 7)
    assert len(here.challenges()) == 1
    asking = Challenge(OURS, b"n" * 16, bytes(300))
    padding = LEAST_BYTES - len(here.datagram(asking, 7)) + 300
    here.hear(Challenge(OURS, b"n" * 16, bytes(padding - 1)), 7)
    assert here.counters.proofs_given == 0
    here.hear(Challenge(OURS, b"n" * 16, bytes(padding)), 7)
    assert here.counters.proofs_given == 1


# What is not for us


@KEYS
def test_what_is_for_one_process_is_refused_by_others(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    reason = Reason.CHECKSUM.value if keys is None else gate.FORGED
    here.hear(HELLO, 7, to=OURS + 1)
    assert here.replies == []
    assert here.drops == {reason: 1}
    here.acquaint(7)
    assert here.hear(note(1), 7, to=OURS) == note(1)
    assert here.hear(note(2), 7, to=OURS + 1) is None
    assert here.drops[reason] == 2
    assert here.counters.pdus_lost == 1
    assert here.hear(note(3), 7) == note(3)


@KEYS
def test_other_groups_other_keys_and_our_own_echo_are_not_heard(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    foreign = KINDS.encode(HELLO, group_hash("order"), 7, 1, "x")
    here.take(sealed(HELLO, 7, 1, "x", RING, group="order") if keys else foreign)
    here.take(sealed(HELLO, 7, 1, "x", OTHER_RING))
    here.take(KINDS.encode(HELLO, group_hash(GROUP), 7, 1, "x"))
    here.hear(HELLO, OURS, "me")
    if keys is None:
        assert here.drops == {gate.OTHER_GROUP: 1, Reason.SEALED.value: 1, challenges.UNPROVEN: 1}
    else:
        assert here.drops == {gate.OTHER_GROUP: 1, gate.UNKNOWN_KEY: 1, gate.UNSEALED: 1}
        assert here.replies == []


@KEYS
def test_a_boot_keeps_its_name(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    assert here.hear(note(1), 7, "y") is None
    assert here.drops[gate.RENAMED] == 1
    assert set(here.gate.sites) == {"x"}


class NoteOfLater(Note, frozen=True):
    """A note as a later version may have it."""

    more: int = 5


@KEYS
def test_fields_of_a_later_version_are_skipped_and_counted(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    assert here.hear(note(1), 7) == note(1)
    assert gate.LATER_FIELDS not in here.drops
    assert here.hear(NoteOfLater(1, note(1).bodies), 7) == note(1)
    assert here.drops[gate.LATER_FIELDS] == 1


@KEYS
def test_what_a_member_said_in_vain_is_a_loss_and_what_strangers_make_up_is_not(
    keys: KeyRing | None,
) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    right = here.datagram(note(1), 7)
    damaged = right[:-1] + bytes([right[-1] ^ 1])
    assert here.take(damaged, THERE) is None
    assert here.counters.pdus_lost == 0
    assert here.take(damaged) is None
    assert here.counters.pdus_lost == 1
    assert here.take(right) == note(1)


# What members must agree on


def test_terms_agree_where_both_sides_know_an_option_and_a_version() -> None:
    terms = Terms({"order": "fifo", "repair": "any"}, oldest=2, newest=4)

    def difference(oldest: int, newest: int, **options: str) -> str:
        return terms.difference("x", Answer(b"n" * 16, oldest, newest, True, 0, options))

    assert difference(2, 4, order="fifo", repair="any") == ""
    assert difference(1, 2, order="fifo") == ""
    assert difference(4, 9, repair="any", news="of later") == ""
    assert "wire versions 5 to 9, this member 2 to 4" in difference(5, 9)
    assert "wire versions 0 to 1, this member 2 to 4" in difference(0, 1)
    told = difference(2, 4, order="total", repair="any")
    assert told == "'x' has order='total' and this member order='fifo': give all members the same."


@KEYS
def test_a_process_that_was_told_something_else_is_refused_for_good_and_can_learn_why(
    keys: KeyRing | None,
) -> None:
    here = Guarded(keys, {"order": "fifo"})
    here.prove(7, options={"order": "total"})
    assert not here.gate.sites
    assert here.news.refusals == [
        ("x", "'x' has order='total' and this member order='fifo': give all members the same.")
    ]
    assert [type(pdu) for pdu, *_ in here.replies] == [Challenge, Here]
    here.hear(HELLO, 7)
    here.hear(answer_to(here.challenges()[0], options={"order": "fifo"}), 7)
    assert len(here.replies) == 2
    assert here.drops[admission.DIFFERS] == 3
    here.hear(Challenge(OURS, b"n" * 16, bytes(520)), 7)
    assert isinstance(here.replies[-1][0], Answer)
    here.acquaint(8)


@KEYS
@pytest.mark.parametrize("name", ["a b", "line\n", "x" * 65, "\x1b[31m", "e\u0301"])
def test_a_process_without_a_proper_name_is_refused(keys: KeyRing | None, name: str) -> None:
    here = Guarded(keys)
    here.prove(7, name)
    assert not here.gate.sites
    assert here.drops[admission.BAD_NAME] == 1
    here.prove(8, "x" * 64)
    assert "x" * 64 in here.gate.sites


@pytest.mark.parametrize(
    ("told", "heard"), [(0, []), (1, [1]), (INCARNATION_LIMIT - 1, [INCARNATION_LIMIT - 1])]
)
def test_incarnations_of_our_name_are_told(told: int, heard: list[int]) -> None:
    here = Guarded(RING)
    here.prove(7, yours=told)
    assert here.news.reports == heard


@pytest.mark.parametrize(
    ("told", "believed"),
    [
        ([5], [5]),
        ([5, 7], [5, 5]),
        ([0, 7], []),
        ([0, 0, 7], []),
        ([0, 7, 7], [7]),
        ([7, 0, 0, 9, 9], [7, 7]),
    ],
    ids=str,
)
def test_a_process_that_has_joined_believes_what_most_members_tell_of_its_incarnation(
    told: list[int], believed: list[int]
) -> None:
    here = Guarded(None)
    here.gate.take_part()
    for number, yours in enumerate(told):
        here.prove(number + 1, f"site{number}", place(number), yours=yours)
    assert len(here.gate.sites) == len(told)
    assert here.news.reports == believed


def test_members_that_have_been_silent_tell_nothing_of_incarnations() -> None:
    here = Guarded(None)
    here.gate.take_part()
    for number in range(2):
        here.prove(number + 1, f"site{number}", place(number))
    here.tick(SILENCE_NS - 1)
    here.prove(50, "x", yours=7)
    assert here.news.reports == []
    here.tick(SILENCE_NS)
    here.prove(51, "y", THERE, yours=7)
    assert here.news.reports == [7]


# Names


@KEYS
def test_a_name_is_its_owner_s_as_long_as_it_answers(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    now = NAME_SILENCE_NS + SECOND_NS
    here.tick(now)
    here.prove(8, address=THERE)
    assert here.gate.sites["x"].boot == 7, "an owner that was silent is asked before it loses its name"
    assert here.refusals(THERE) == [Refused(8, shown(HERE), False)]
    assert len(here.challenges()) == 2
    here.tick(now + NAME_SILENCE_NS - 1)
    assert here.gate.is_busy()
    here.stay(7)
    here.tick(now + 2 * NAME_SILENCE_NS)
    assert here.gate.sites["x"].boot == 7
    assert here.refusals(THERE)[-1] == Refused(8, shown(HERE), True)
    assert [refused.final for refused in here.refusals(THERE)].count(True) == 1
    ((site, told),) = here.news.refusals
    assert (site, shown(HERE) in told, shown(THERE) in told) == ("x", True, True)
    assert here.drops[admission.NAME_TAKEN] == 1
    assert here.hear(note(1), 7) == note(1)
    assert here.hear(note(2), 8, address=THERE) is None


@KEYS
def test_a_name_goes_on_to_the_next_once_its_owner_does_not_answer(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.prove(8, address=THERE)
    here.pass_time(NAME_SILENCE_NS - 1)
    assert here.gate.sites["x"].boot == 7
    here.tick(NAME_SILENCE_NS)
    assert here.gate.sites["x"].boot == 8
    assert not here.gate.is_busy()
    assert here.hear(note(1), 7) is None
    assert here.hear(note(2), 8, address=THERE) == note(2)
    assert here.gate.at(HERE) is None
    assert here.gate.at(THERE) is here.gate.find("x")


@KEYS
def test_an_owner_does_not_lose_its_name_while_we_stand_still(keys: KeyRing | None) -> None:
    """Its answer waits to be read: the next tick comes before that."""
    here = Guarded(keys)
    here.acquaint(7)
    here.prove(8, address=THERE)
    here.tick(SECOND_NS)
    assert here.gate.sites["x"].boot == 7
    for step in range(1, UNANSWERED - 1):
        here.tick(SECOND_NS + step * PRESS_NS)
        assert here.gate.sites["x"].boot == 7
    here.stay(7)
    here.pass_time(2 * SECOND_NS)
    assert here.gate.sites["x"].boot == 7


@KEYS
def test_an_owner_that_speaks_keeps_its_name_though_its_answers_are_lost(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.prove(8, address=THERE)
    for step in range(1, 20):
        here.tick(step * (NAME_SILENCE_NS - 1))
        assert here.hear(note(step), 7) == note(step)
    assert here.gate.is_busy(), "whether it answers is not known yet"
    assert not any(refused.final for refused in here.refusals(THERE))


@KEYS
def test_a_name_of_long_ago_is_free_at_once(keys: KeyRing | None) -> None:
    for silence, owner in ((SILENCE_NS - 1, 7), (SILENCE_NS, 8)):
        here = Guarded(keys)
        here.acquaint(7)
        here.tick(silence)
        here.prove(8, address=THERE)
        assert here.gate.sites["x"].boot == owner


@KEYS
def test_an_answer_of_the_owner_that_is_too_late_still_counts_if_it_comes_before_the_decision(
    keys: KeyRing | None,
) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.prove(8, address=THERE)
    here.gate.now = 2 * NAME_SILENCE_NS
    here.stay(7)
    here.tick(2 * NAME_SILENCE_NS)
    assert here.gate.sites["x"].boot == 7
    assert here.refusals(THERE)[-1].final


@KEYS
def test_repeated_claims_cost_an_owner_only_so_many_challenges(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    answer = here.prove(8, address=THERE)
    told, asked = len(here.refusals(THERE)), len(here.challenges())
    assert (told, asked) == (1, 2)
    for _ in range(50):
        here.hear(answer, 8, address=THERE)
        here.hear(HELLO, 8, address=THERE)
        here.prove(9, address=place(9))
        here.gate._admission._claims.popitem()
        here.tick(PRESS_NS - 1)
    assert len(here.refusals(THERE)) == told
    assert len(here.challenges()) == asked
    here.tick(PRESS_NS)
    assert len(here.refusals(THERE)) == told + 1
    assert len(here.challenges()) == asked + 1


@KEYS
def test_of_two_claims_the_first_one_has_the_name_and_the_other_one_is_refused(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    here.prove(8, address=THERE)
    here.prove(9, address=place(9))
    here.pass_time(NAME_SILENCE_NS)
    assert here.gate.sites["x"].boot == 8
    here.tick(NAME_SILENCE_NS + 1)
    assert here.refusals(place(9))[-1] == Refused(9, shown(THERE), True)


@KEYS
def test_the_name_of_a_member_that_has_gone_is_free_at_once(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.acquaint(7)
    gone = here.gate.sites["x"]
    here.prove(8, address=THERE)
    assert here.gate.sites["x"].boot == 7
    here.gate.part_with(gone)
    assert here.gate.sites["x"].boot == 8
    here.gate.part_with(gone)
    assert here.gate.sites["x"].boot == 8, "it has gone already"
    assert here.hear(note(1), 7) is None


@KEYS
def test_those_that_have_spoken_and_proved_nothing_are_waited_for(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    assert not here.gate.is_meeting(100)
    here.tick(1000)
    here.hear(Challenge(OURS, b"n" * 16, bytes(520)), 7)
    assert here.gate.is_meeting(100)
    here.tick(1099)
    assert here.gate.is_meeting(100)
    here.tick(1100)
    assert not here.gate.is_meeting(100)
    here.hear(note(1), 7)
    assert here.gate.is_meeting(100)
    here.acquaint(7)
    assert not here.gate.is_meeting(100)
    here.prove(8, "a b", THERE)
    here.hear(Challenge(OURS, b"n" * 16, bytes(520)), 8, "a b", THERE)
    here.hear(note(1), 8, "a b", THERE)
    assert not here.gate.is_meeting(100), "it was refused for good"
    for boot, site, address in strangers(2 * MOST_UNMET):
        here.tick(here.gate.now + 1)
        here.hear(HELLO, boot, site, address)
    assert len(here.gate._admission._unmet) == MOST_UNMET


@KEYS
def test_our_own_name_is_ours_once_we_have_joined(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    here.gate.take_part()
    here.prove(7, "me", joined=True)
    assert here.news.namesakes == []
    assert here.drops[admission.NAME_TAKEN] == 1
    ((site, told),) = here.news.refusals
    assert (site, "'me'" in told, shown(HERE) in told) == ("me", True, True)
    before = len(here.replies)
    here.hear(HELLO, 7, "me")
    assert len(here.replies) == before, "it was refused for good"
    assert not here.gate.sites


@KEYS
@pytest.mark.parametrize(
    ("boot", "joined", "theirs"),
    [(OURS - 1, False, True), (OURS + 1, False, False), (OURS + 1, True, True), (OURS - 1, True, True)],
)
def test_of_two_that_are_joining_the_lower_boot_has_the_name(
    keys: KeyRing | None, boot: int, joined: bool, theirs: bool
) -> None:
    here = Guarded(keys)
    here.prove(boot, "me", joined=joined)
    assert here.news.namesakes == ([shown(HERE)] if theirs else [])
    assert bool(here.news.refusals) != theirs


# Refusals that we hear


def refuse(here: Guarded, number: int, boot: int = OURS, *, final: bool = True) -> None:
    here.hear(Refused(boot, "10.9.9.9:9", final), number + 1, f"site{number}", place(number))


@KEYS
def test_a_process_that_is_joining_believes_one_member(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    members(here, 5)
    refuse(here, 0, OURS + 1)
    assert here.news.namesakes == []
    refuse(here, 0)
    assert here.news.namesakes == ["10.9.9.9:9"]


@KEYS
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_process_that_has_joined_gives_up_only_if_most_members_refuse_it(
    keys: KeyRing | None, count: int
) -> None:
    here = Guarded(keys)
    members(here, count)
    here.gate.take_part()
    for number in range(count // 2):
        for _ in range(3):
            refuse(here, number)
    assert here.news.namesakes == []
    refuse(here, count // 2)
    assert here.news.namesakes == ["10.9.9.9:9"]


@KEYS
def test_refusals_of_long_ago_and_silent_members_do_not_count(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    members(here, 4)
    here.gate.take_part()
    refuse(here, 0)
    refuse(here, 1)
    here.tick(SILENCE_NS)
    for number in range(4):
        here.hear(note(0), number + 1, f"site{number}", place(number))
    refuse(here, 2)
    assert here.news.namesakes == [], "two of the three were told five seconds ago"
    refuse(here, 3)
    assert here.news.namesakes == []
    here.tick(2 * SILENCE_NS - 1)
    refuse(here, 0)
    assert here.news.namesakes == ["10.9.9.9:9"], "three of the four, within five seconds"
    quiet = Guarded(keys)
    members(quiet, 4)
    quiet.gate.take_part()
    quiet.tick(SILENCE_NS)
    refuse(quiet, 0)
    assert quiet.news.namesakes == ["10.9.9.9:9"], "the others have been silent"


@KEYS
def test_members_that_are_forgotten_refuse_no_more(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    members(here, 4)
    here.gate.take_part()
    refuse(here, 0)
    refuse(here, 1)
    here.prove(77, "site0", THERE)
    here.pass_time(NAME_SILENCE_NS)
    assert here.gate.sites["site0"].boot == 77
    refuse(here, 2)
    assert here.news.namesakes == [], "two of four"


@KEYS
def test_a_refusal_that_is_not_final_is_a_reason_to_wait(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    members(here, 1)
    here.tick(5)
    assert here.gate._own.pending_ns is None
    refuse(here, 0, OURS + 1, final=False)
    assert here.gate._own.pending_ns is None
    refuse(here, 0, final=False)
    assert here.gate._own.pending_ns == 5
    assert here.news.namesakes == []


@KEYS
def test_strangers_refuse_nobody_and_can_only_make_a_newcomer_wait(keys: KeyRing | None) -> None:
    here = Guarded(keys)
    refuse(here, 0)
    assert here.gate._own.pending_ns is None
    refuse(here, 0, final=False)
    assert here.gate._own.pending_ns == here.gate.now
    assert here.news.namesakes == []


def test_addresses_in_refusals_are_shown_only_if_they_can_be() -> None:
    here = Guarded(RING)
    members(here, 1)
    here.hear(Refused(OURS, "\x1b[31m", True), 1, "site0", place(0))
    assert here.news.namesakes == ["?"]
