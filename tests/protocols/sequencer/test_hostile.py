"""The fixed sequencer among members that say what cannot be: leaping numbers, others' numbers, long names."""

import pytest
from msgspec import structs

from antiphon.core.effects import Absent, Deliver, Present, Send
from antiphon.core.fields import INCARNATION_LIMIT, LONGEST_NAME, NUMBER_LIMIT
from antiphon.core.inputs import Departed, Received, Returned, Start, Suspected
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Codec, Garbage, Packet, Pdu
from antiphon.protocols.sequencer import PDUS, Sequencer
from antiphon.protocols.sequencer.log import Entry, Log
from antiphon.protocols.sequencer.member_table import LONGEST_LEAP
from antiphon.protocols.sequencer.pdus import (
    LARGEST_BATCH_BYTES,
    LATEST_HEARSAY,
    LONGEST_SETBACK,
    MOST_MEMBERS,
    MOST_MISSING,
    MOST_REASONS,
    NO_POSITION,
    Acknowledge,
    Enquire,
    Fetch,
    Heartbeat,
    Join,
    Lacking,
    Leave,
    Ordered,
    Recover,
    Report,
    Request,
    Resume,
    Roster,
)
from antiphon.protocols.sequencer.recovery import Recovery
from tests.protocols.harness.sequencer_group import BOOT, KNOBS, OpenGroup
from tests.protocols.harness.staging import pdus

BATCH = pack([b"x"])
LATER = BOOT + 1_000_000
"""An epoch that the sequencer of a group here may still hear of."""
SUSPECT_MS = KNOBS.suspect_after_ns / MILLISECOND_NS
GIVE_UP_MS = KNOBS.give_up_ns / MILLISECOND_NS


def group_of(names: str) -> OpenGroup:
    """These have begun, the sequencer a first, and all take part."""
    group = OpenGroup()
    for name in names:
        group.begin(name)
    group.pass_time(450)
    return group


def epoch_of(group: OpenGroup) -> int:
    return group.members["a"].incarnation_of("a")


def all_get_on(group: OpenGroup, names: str, within_ms: float = 500) -> bool:
    """Whether everyone delivers a new message of everyone."""
    before = {name: len(group.delivered(name)) for name in names}
    for name in names:
        group.admit(name)
    group.pass_time(within_ms)
    return all(len(group.delivered(name)) == before[name] + len(names) for name in names)


def words(epoch: int) -> list[Pdu]:
    """What a member says of its epoch while it takes part."""
    return [
        Acknowledge(epoch, 0, 0, 0),
        Request(epoch, 0, 0, 0, 0, BATCH),
        Enquire(epoch, 0, 0, (0,)),
    ]


# Fields


LIMITS: list[tuple[Pdu, dict[str, tuple[object, object]]]] = [
    (
        Request(1, 1, 1, 1, 1, BATCH),
        {
            "epoch": (INCARNATION_LIMIT - 1, INCARNATION_LIMIT),
            "incarnation": (INCARNATION_LIMIT - 1, INCARNATION_LIMIT),
            "position": (0, -1),
            "first": (NUMBER_LIMIT - 1, NUMBER_LIMIT),
            "number": (NUMBER_LIMIT - 1, NUMBER_LIMIT),
        },
    ),
    (
        Ordered(1, 1, 1, "b", "b", 1, BATCH),
        {
            "epoch": (0, -1),
            "position": (NUMBER_LIMIT - 1, NUMBER_LIMIT),
            "stable": (0, -1),
            "witness": ("", "w" * (LONGEST_NAME + 1)),
            "sender": ("ü" * LONGEST_NAME, ""),
            "number": (0, -1),
        },
    ),
    (
        Heartbeat(1, 1, 1, "b"),
        {
            "epoch": (INCARNATION_LIMIT - 1, INCARNATION_LIMIT),
            "next_position": (NUMBER_LIMIT - 1, NUMBER_LIMIT),
            "stable": (NUMBER_LIMIT - 1, NUMBER_LIMIT),
            "witness": ("", "w" * (LONGEST_NAME + 1)),
        },
    ),
    (
        Acknowledge(1, 1, 1, 1),
        {
            "epoch": (0, -1),
            "incarnation": (0, -1),
            "position": (NUMBER_LIMIT - 1, NUMBER_LIMIT),
            "roster": (-1, -2),
            "missing": ((1,) * MOST_MISSING, (1,) * (MOST_MISSING + 1)),
        },
    ),
    (
        Join(1, 1, 1, 1, 1, 1, newcomer=False),
        {
            "incarnation": (INCARNATION_LIMIT - 1, INCARNATION_LIMIT),
            "attempt": (NUMBER_LIMIT - 1, NUMBER_LIMIT),
            "first": (0, -1),
            "promised": (INCARNATION_LIMIT - 1, INCARNATION_LIMIT),
            "epoch": (INCARNATION_LIMIT - 1, INCARNATION_LIMIT),
            "position": (NO_POSITION, -2),
        },
    ),
    (
        Resume(1, 1, 1, 1, 1, True, False, {}),
        {
            "epoch": (0, -1),
            "incarnation": (0, -1),
            "attempt": (0, -1),
            "position": (0, -1),
            "stable": (0, -1),
            "streams": (
                {f"{index}": NUMBER_LIMIT - 1 for index in range(3692)},
                {f"{index}": 1 for index in range(3693)},
            ),
        },
    ),
    (Recover(1), {"epoch": (INCARNATION_LIMIT - 1, INCARNATION_LIMIT)}),
    (
        Report(1, 1, 1, 1, 1, 1, 1, False, 1, 1, {}),
        {
            "epoch": (0, -1),
            "incarnation": (0, -1),
            "attempt": (0, -1),
            "first": (0, -1),
            "promised": (0, -1),
            "order_epoch": (0, -1),
            "position": (NO_POSITION, -2),
            "kept_from": (0, -1),
            "stable": (0, -1),
            "streams": ({"b": NUMBER_LIMIT - 1}, {"b": NUMBER_LIMIT}),
        },
    ),
    (
        Fetch(1, (1,)),
        {"epoch": (0, -1), "missing": ((1,) * MOST_MISSING, (1,) * (MOST_MISSING + 1))},
    ),
    (Leave(1, 1), {"incarnation": (0, -1), "attempt": (0, -1)}),
    (
        Roster(1, 1, (), {}),
        {
            "epoch": (0, -1),
            "version": (0, -1),
            "members": (("b",) * 1024, ("b",) * 1025),
            "gone": (
                {f"{index}": "r" * 200 for index in range(MOST_REASONS)},
                {f"{index}": "r" for index in range(MOST_REASONS + 1)},
            ),
        },
    ),
    (Roster(1, 1, (), {}), {"gone": ({"b": ""}, {"b": "r" * 201})}),
    (
        Enquire(1, 1, 1, ()),
        {
            "epoch": (0, -1),
            "incarnation": (0, -1),
            "position": (0, -1),
            "numbers": ((1,) * MOST_MISSING, (1,) * (MOST_MISSING + 1)),
        },
    ),
    (
        Lacking(1, 1, ()),
        {
            "epoch": (0, -1),
            "incarnation": (0, -1),
            "numbers": ((NUMBER_LIMIT - 1,), (NUMBER_LIMIT,)),
        },
    ),
]


@pytest.mark.parametrize(
    ("pdu", "field", "last", "beyond"),
    [
        pytest.param(pdu, field, *values, id=f"{type(pdu).__name__}.{field}")
        for pdu, fields in LIMITS
        for field, values in fields.items()
    ],
)
def test_no_field_goes_beyond_its_bounds(pdu: Pdu, field: str, last: object, beyond: object) -> None:
    codec = Codec(PDUS)
    fits, does_not = (structs.replace(pdu, **{field: value}) for value in (last, beyond))
    assert isinstance(codec.decode(codec.encode(fits)), Packet)
    assert isinstance(codec.decode(codec.encode(does_not)), Garbage)


# Epochs


@pytest.mark.parametrize("word", range(3))
def test_a_strangers_epoch_is_not_believed(word: int) -> None:
    group = group_of("abc")
    group.give("a", Received("z", words(LATER)[word]))
    assert epoch_of(group) == BOOT
    assert group.members["a"].ignored == 1
    group.give("a", Received("z", words(BOOT - 1)[word]))
    assert group.members["a"].ignored == 1
    assert all_get_on(group, "abc")


@pytest.mark.parametrize("word", range(3))
def test_a_member_is_believed_and_its_order_goes_on(word: int) -> None:
    group = group_of("abc")
    group.give("a", Received("b", words(LATER)[word]))
    assert epoch_of(group) == LATER + 1
    assert all_get_on(group, "abc")
    assert not group.kinds("c", Absent)


@pytest.mark.parametrize("epoch", [BOOT + 2 * LONGEST_SETBACK, LATEST_HEARSAY + 1, INCARNATION_LIMIT - 1])
@pytest.mark.parametrize("restarts", [False, True])
def test_an_epoch_that_no_clock_has_shown_stops_no_sequencer(epoch: int, restarts: bool) -> None:
    """One datagram of a stranger did, for good or as soon as the sequencer restarted."""
    group = group_of("abc")
    lies = [*words(epoch), Join(5, 1, 0, epoch, 0, NO_POSITION, newcomer=True)]
    lies.append(Join(5, 1, 0, 0, epoch, 0, newcomer=False))
    for lie in lies:
        for liar in "bz":
            group.give("a", Received(liar, lie))
    assert epoch_of(group) == BOOT
    if restarts:
        group.crash("a")
        group.begin("a", returning=True)
        report = Report(group.incarnations["a"], 5, 1, 0, epoch, 0, 0, False, 0, 0, {})
        group.give("a", Received("z", report))
        group.pass_time(500)
        assert epoch_of(group) == group.incarnations["a"]
    assert all_get_on(group, "abc")


def test_an_epoch_leaps_as_far_as_a_clock_can_have_gone_back() -> None:
    group = group_of("ab")
    group.give("a", Received("b", Acknowledge(BOOT + LONGEST_SETBACK, 0, 0, 0)))
    assert epoch_of(group) == BOOT + LONGEST_SETBACK + 1
    group.pass_time(500)
    group.give("a", Received("b", Acknowledge(BOOT + LONGEST_SETBACK + 2, 0, 0, 0)))
    assert epoch_of(group) == BOOT + LONGEST_SETBACK + 1
    assert all_get_on(group, "ab")


def test_no_leap_takes_the_room_that_restarts_need() -> None:
    member = Sequencer("a", ("a", "b"), KNOBS)
    member.handle(0, Start(LATEST_HEARSAY - 10))
    for beyond, believed in ((1, False), (0, True)):
        report = Report(LATEST_HEARSAY - 10, 0, 1, 0, LATEST_HEARSAY + beyond, 0, 0, False, 0, 0, {})
        member.handle(0, Received("b", report))
        assert (member.incarnation_of("a") == LATEST_HEARSAY + 1) == believed


def test_members_have_time_to_take_up_an_epoch_before_the_next() -> None:
    group = group_of("abc")
    for later in range(1, 200):
        group.give("a", Received("c", Acknowledge(LATER + later, 0, 0, 0)))
        group.pass_time(1)
    assert epoch_of(group) == LATER + 2
    group.pass_time(200)
    group.give("a", Received("c", Acknowledge(LATER + 300, 0, 0, 0)))
    assert epoch_of(group) == LATER + 301
    assert all_get_on(group, "abc")
    assert not group.kinds("b", Absent)


def test_a_member_with_too_late_an_epoch_is_not_let_in_yet() -> None:
    group = group_of("ab")
    group.give("a", Received("c", Join(5, 1, 0, INCARNATION_LIMIT - 1, 0, NO_POSITION, newcomer=True)))
    assert group.members["a"].incarnation_of("c") == 0
    group.give("a", Received("c", Join(5, 1, 0, BOOT, 0, NO_POSITION, newcomer=True)))
    assert group.members["a"].incarnation_of("c") == 5


def test_a_member_that_its_sequencer_does_not_believe_begins_anew() -> None:
    """However it came by its epoch: it must not wait for ever."""
    group = group_of("abc")
    group.admit("b")
    group.pass_time(50)
    group.give("c", Received("a", Heartbeat(INCARNATION_LIMIT - 1, 0, 0, "b")))
    assert group.members["c"].incarnation_of("a") == INCARNATION_LIMIT - 1
    group.pass_time(SUSPECT_MS + GIVE_UP_MS - 50)
    assert group.kinds("c", Absent) == []
    group.pass_time(200)
    assert group.kinds("c", Absent, Present) == [Present, Absent, Present]
    assert all_get_on(group, "abc")


def test_a_member_corrects_a_sequencer_whose_epoch_is_over() -> None:
    """Its acknowledgements are a stranger's to a sequencer that does not know it."""
    group = group_of("abc")
    group.cut.add("b")
    group.crash("a")
    group.begin("a", incarnation=BOOT - 7, returning=True)
    group.crash("c")
    group.pass_time(600)
    assert epoch_of(group) == BOOT - 7
    group.cut.discard("b")
    group.pass_time(100)
    assert epoch_of(group) == BOOT + 1
    assert all_get_on(group, "ab")


def test_a_sequencer_that_asks_in_an_epoch_that_is_over_is_believed_in_the_end() -> None:
    """It may never get further than to ask."""
    group = group_of("ab")
    group.admit("b")
    group.pass_time(50)
    group.freeze("a")
    group.cut.discard("a")
    group.pass_time(SUSPECT_MS)
    for _ in range(round(GIVE_UP_MS) // 10):
        assert group.kinds("b", Absent) == []
        group.give("b", Received("a", Recover(BOOT - 1)))
        group.travelling.clear()
        group.now += 10 * MILLISECOND_NS
    group.give("b", Received("a", Recover(BOOT - 1)))
    assert group.kinds("b", Absent) == [Absent]
    (report,) = pdus(group.effects["b"], Report)[-1:]
    assert (report.promised, report.order_epoch, report.position) == (BOOT - 1, 0, NO_POSITION)


def test_a_late_pdu_of_an_earlier_epoch_is_dropped() -> None:
    group = group_of("ab")
    member = group.members["b"]
    rejoined = member.figures()["rejoined"]
    group.now += KNOBS.suspect_after_ns - 40 * MILLISECOND_NS
    for _ in range(2):
        assert group.give("b", Received("a", Heartbeat(BOOT - 1, 0, 0, "b"))) == []
        group.give("b", Received("a", Heartbeat(BOOT, 0, 0, "b")))
        group.now += KNOBS.suspect_after_ns - MILLISECOND_NS
    assert member.figures()["rejoined"] == rejoined


# What is reported of incarnations


def test_every_member_reports_the_incarnations_that_it_knows() -> None:
    group = group_of("abc")
    incarnations = group.incarnations
    known = {site: [group.members[site].incarnation_of(other) for other in "abcz"] for site in "abc"}
    assert known == {
        "a": [incarnations["a"], incarnations["b"], incarnations["c"], 0],
        "b": [incarnations["a"], incarnations["b"], 0, 0],
        "c": [incarnations["a"], 0, incarnations["c"], 0],
    }
    group.deaf.add(("b", Resume))
    group.give("b", Received("a", Recover(LATER)))
    assert group.members["b"].incarnation_of("a") == LATER


def test_a_sequencer_whose_clock_went_back_goes_on_beyond_what_its_followers_know() -> None:
    group = group_of("abc")
    group.admit("b")
    group.pass_time(50)
    group.crash("a")
    known = max(group.members[site].incarnation_of("a") for site in "bc")
    group.begin("a", incarnation=known + 1, returning=True)
    group.pass_time(400)
    assert epoch_of(group) == known + 1
    assert all_get_on(group, "abc")
    assert not group.kinds("b", Absent)


@pytest.mark.parametrize("word", [Join, Acknowledge])
def test_incarnations_do_not_run_out(word: type) -> None:
    """A process that takes another's name may leap, but the next one still has numbers beyond."""
    group = group_of("ab")
    furthest = LATEST_HEARSAY + LONGEST_LEAP
    for leap, believed in ((furthest + 1, False), (furthest, True)):
        site = f"z{believed}"
        if word is Join:
            group.give("a", Received(site, Join(leap, 1, 0, 0, 0, NO_POSITION, newcomer=True)))
        else:
            group.give("a", Received(site, Acknowledge(BOOT, leap, 0, 0)))
        assert (group.members["a"].incarnation_of(site) == leap) == believed
    group.give("a", Received("zTrue", Join(furthest + 1, 1, 0, 0, 0, NO_POSITION, newcomer=True)))
    assert group.members["a"].incarnation_of("zTrue") == furthest + 1


# Numbers and batches


def test_numbers_leave_room_to_count_on() -> None:
    """Otherwise the table of streams would fit no PDU, and no member could join any more."""
    group = group_of("ab")
    last = NUMBER_LIMIT - 3
    bodies = pack([b"x", b"y"])
    group.give("a", Received("b", Request(BOOT, group.incarnations["b"], 0, last + 1, last + 1, bodies)))
    assert group.members["a"].ignored == 1
    group.give("a", Received("b", Request(BOOT, group.incarnations["b"], 0, last, last, bodies)))
    assert group.members["a"].ignored == 1
    group.pass_time(50)
    group.begin("c")
    group.pass_time(50)
    (welcome,) = pdus(group.effects["a"], Resume)[-1:]
    assert isinstance(Codec(PDUS).decode(Codec(PDUS).encode(welcome)), Packet)
    assert all_get_on(group, "ac")


def test_a_request_below_its_own_first_makes_no_sense() -> None:
    group = group_of("ab")
    group.give("a", Received("b", Request(BOOT, group.incarnations["b"], 0, 5, 4, BATCH)))
    assert group.members["a"].ignored == 1
    group.give("a", Received("b", Request(BOOT, group.incarnations["b"], 0, 5, 5, BATCH)))
    assert group.members["a"].ignored == 1


def test_a_batch_that_could_not_be_passed_on_is_not_taken() -> None:
    group = group_of("ab")
    fits = pack([bytes(LARGEST_BATCH_BYTES - 8)])
    large = pack([bytes(LARGEST_BATCH_BYTES - 7)])
    assert len(fits.data) == LARGEST_BATCH_BYTES
    group.give("a", Received("b", Request(BOOT, group.incarnations["b"], 0, 0, 0, large)))
    assert group.members["a"].ignored == 1
    effects = group.give("a", Received("b", Request(BOOT, group.incarnations["b"], 0, 0, 0, fits)))
    assert len(pdus(effects, Ordered)) == 1


def test_a_follower_keeps_no_number_that_it_could_not_report() -> None:
    group = group_of("ab")
    group.give("b", Received("a", Ordered(BOOT, 0, 0, "b", "z", NUMBER_LIMIT - 1, BATCH)))
    assert group.members["b"].ignored == 1
    group.give("b", Received("a", Ordered(BOOT, 0, 0, "b", "z", NUMBER_LIMIT - 2, BATCH)))
    assert group.members["b"].ignored == 1
    assert group.delivered("b") == [f"z{NUMBER_LIMIT - 2}"]


def test_no_member_holds_what_has_no_place_yet() -> None:
    group = group_of("ab")
    group.give("a", Received("b", Acknowledge(BOOT, group.incarnations["b"], 1, 0)))
    assert group.members["a"].ignored == 1
    group.give("a", Received("b", Acknowledge(BOOT, group.incarnations["b"], 0, 0)))
    assert group.members["a"].ignored == 1


@pytest.mark.parametrize(("name", "fits"), [("n" * LONGEST_NAME, True), ("n" * 65, False), ("", False)])
def test_a_name_that_fits_no_place_in_the_order_is_not_met(name: str, fits: bool) -> None:
    group = group_of("ab")
    group.give("a", Received(name, Join(5, 1, 0, 0, 0, NO_POSITION, newcomer=True)))
    group.give("a", Received(name, Request(BOOT, 5, 0, 0, 0, BATCH)))
    assert (group.members["a"].incarnation_of(name) == 5) == fits
    assert bool(pdus(group.effects["a"], Ordered)) == fits


# Recovery among liars


def recovering(names: str) -> OpenGroup:
    """A group whose sequencer has just restarted, after b and c have sent two messages each."""
    group = group_of(names)
    for name in "bcbc":
        group.admit(name)
    group.pass_time(50)
    group.crash("a")
    group.pass_time(1)
    group.begin("a", returning=True)
    return group


def lie_of(group: OpenGroup, **changes: object) -> Report:
    """A report that beats the others': of their order, but further."""
    report = Report(group.incarnations["a"], 5, 1, 0, 0, BOOT, 40, False, 40, 40, {})
    return structs.replace(report, **changes)


@pytest.mark.parametrize("claimed", [0, NUMBER_LIMIT - 1])
@pytest.mark.parametrize("position", [4, 40])
def test_what_others_report_of_a_members_numbers_does_not_mute_it(claimed: int, position: int) -> None:
    """Whether it goes on without a gap or is let in anew."""
    group = recovering("abc")
    group.pass_time(100)
    streams = dict.fromkeys("abc", claimed)
    lie = lie_of(group, position=position, kept_from=position, stable=position, streams=streams)
    group.give("a", Received("z", lie))
    group.pass_time(1000)
    assert bool(group.kinds("b", Absent)) == (position > 4)
    assert all_get_on(group, "abc")
    assert group.delivered("b") == group.delivered("c")


def test_a_members_next_number_follows_its_join_and_what_has_a_place_since() -> None:
    log = Log()
    for sender, number in (("b", 5), ("c", 9), ("b", 6)):
        log.append(Entry(sender, number, BATCH, 0))
    assert [log.next_of("b", position, 5) for position in (0, 1, 3)] == [7, 7, 5]
    assert [log.next_of("c", position, 3) for position in (0, 2)] == [10, 3]
    assert log.next_of("b", 0, 8) == 8


def liar_among(group: OpenGroup, position: int) -> list[int]:
    """The liar's numbers in the order: 0 to 2, then those it sends after a join that counts from 1 again."""
    epoch = epoch_of(group)
    group.give("a", Received("c", Join(5, 1, 0, 0, 0, NO_POSITION, newcomer=True)))
    group.give("a", Received("c", Request(epoch, 5, 0, 0, 0, pack([b"x"] * 3))))
    group.give("a", Received("c", Join(5, 2, 1, epoch, epoch, position, newcomer=False)))
    for number in range(1, 5):
        group.give("a", Received("c", Request(epoch, 5, 0, 1, number, BATCH)))
    group.pass_time(100)
    delivered = [effect for effect in group.effects["b"] if isinstance(effect, Deliver)]
    return [
        effect.number + offset
        for effect in delivered
        if effect.sender == "c"
        for offset in range(len(effect.bodies))
    ]


@pytest.mark.parametrize("position", [NO_POSITION, 0])
def test_no_number_of_an_incarnation_gets_two_places(position: int) -> None:
    assert liar_among(group_of("ab"), position) == [0, 1, 2, 3, 4]


def test_an_answer_counts_only_from_one_that_holds_what_it_tells() -> None:
    group = group_of("abc")
    group.deaf.add(("a", Acknowledge))
    for name in "bc":
        group.admit(name)
    group.settle()
    group.crash("a")
    group.begin("a", returning=True)
    epoch = group.incarnations["a"]
    while not pdus(group.effects["a"], Fetch):
        group.pass_time(1)
    for place in (0, 1):
        group.give("a", Received("z", Ordered(epoch, place, 0, "z", "b", 77, pack([b"forged"]))))
    group.pass_time(1000)
    assert "b77" not in group.delivered("a")
    assert group.delivered("b")[:2] == ["b0", "c0"]


def recovery_of(*reports: tuple[str, Report]) -> Recovery:
    recovery = Recovery(2, tuple(site for site, _ in reports), KNOBS)
    recovery.begin(0)
    for site, report in reports:
        recovery.on_answer(0, site, report)
    return recovery


def report_of(position: int, kept_from: int = 0, *, order_epoch: int = 0) -> Report:
    return Report(2, 0, 1, 0, 2, order_epoch, position, False, kept_from, 0, {})


@pytest.mark.parametrize(
    ("sender", "place", "taken"),
    [("b", 1, False), ("b", 2, True), ("b", 4, True), ("b", 5, False), ("c", 2, False), ("z", 2, False)],
)
def test_only_holders_answer(sender: str, place: int, taken: bool) -> None:
    recovery = recovery_of(("b", report_of(5, 2)), ("c", report_of(9, order_epoch=-1)))
    recovery.on_answer(0, sender, Ordered(2, place, 0, sender, "b", 99, BATCH))
    for other in (2, 3, 4):
        recovery.on_answer(0, "b", Ordered(2, other, 0, "b", "b", other, BATCH))
    recovered = recovery.outcome()
    assert recovered is not None
    assert sorted(recovered.entries) == [2, 3, 4]
    assert (99 in [entry.number for entry in recovered.entries.values()]) == taken


def test_the_first_answer_counts() -> None:
    recovery = recovery_of(("b", report_of(1)), ("c", report_of(1)))
    for number, site in enumerate("bc"):
        recovery.on_answer(0, site, Ordered(2, 0, 0, site, "b", number, BATCH))
    recovered = recovery.outcome()
    assert recovered is not None
    assert recovered.entries[0].number == 0


def test_another_holder_is_asked_if_one_does_not_answer() -> None:
    recovery = recovery_of(("b", report_of(1)), ("c", report_of(1)))
    asked = [effect.to for _ in range(3) for effect in recovery.tick(1, ()) if isinstance(effect, Send)]
    assert asked == ["c", "b", "c"]


def test_a_batch_that_could_not_be_passed_on_is_not_fetched() -> None:
    member = Sequencer("a", ("a", "b"), KNOBS)
    member.handle(0, Start(2))
    member.handle(0, Received("b", structs.replace(report_of(1), order_epoch=0)))
    large = pack([bytes(LARGEST_BATCH_BYTES)])
    for number, bodies in ((0, large), (NUMBER_LIMIT - 1, BATCH)):
        assert member.handle(0, Received("b", Ordered(2, 0, 0, "b", "b", number, bodies))) == []
    assert member.ignored == 2
    assert member.handle(0, Received("b", Ordered(2, 0, 0, "b", "b", 0, BATCH))) != []


def test_a_recovery_ends_when_a_liar_falls_silent() -> None:
    """As long as it reports bodies that it does not give, there is none."""
    group = recovering("abc")
    lie = lie_of(group, position=60, kept_from=0, stable=40)
    for _ in range(100):
        group.give("a", Received("z", lie))
        group.pass_time(10)
    assert not group.kinds("a", Present)[1:]
    group.pass_time(1000)
    assert all_get_on(group, "abc")


def test_reports_are_bounded_and_the_latest_of_each_member_counts() -> None:
    recovery = Recovery(2, (), KNOBS)
    recovery.begin(0)
    for index in range(MOST_MEMBERS):
        recovery.on_answer(0, f"m{index}", report_of(0))
    recovery.on_answer(0, "one too many", structs.replace(report_of(5, 5), stable=5))
    recovery.on_answer(0, "m7", structs.replace(report_of(3, 3), stable=3))
    recovery.tick(KNOBS.recovery_ns, ())
    recovered = recovery.outcome()
    assert recovered is not None
    assert (len(recovered.reports), recovered.position) == (MOST_MEMBERS, 3)


@pytest.mark.parametrize("later", [0, 1])
def test_what_lies_beyond_a_gap_is_kept_in_its_own_epoch_only(later: int) -> None:
    group = group_of("ab")
    group.give("b", Received("a", Ordered(BOOT, 1, 0, "b", "a", 1, BATCH)))
    group.give("b", Departed())
    group.give("b", Returned())
    (join,) = pdus(group.effects["b"], Join)[-1:]
    welcome = Resume(BOOT + later, group.incarnations["b"], join.attempt, 0, 0, True, False, {})
    group.give("b", Received("a", welcome))
    group.give("b", Received("a", Ordered(BOOT + later, 0, 0, "b", "a", 0, BATCH)))
    assert group.delivered("b") == ["a0", "a1"][: 2 - later]


# Who counts


def test_a_member_that_was_left_behind_counts_when_it_holds_everything() -> None:
    group = group_of("abc")
    group.deaf |= {("c", Ordered), ("c", Heartbeat)}
    group.admit("b")
    group.admit("b")
    group.pass_time(KNOBS.lag_ns / MILLISECOND_NS + 100)
    assert group.presence("a")[-1] == "-c"
    group.give("a", Received("c", Acknowledge(BOOT, group.incarnations["c"], 1, 0)))
    assert group.presence("a")[-1] == "-c"
    group.give("a", Received("c", Acknowledge(BOOT, group.incarnations["c"], 2, 0)))
    assert group.presence("a")[-1] == "+c"


@pytest.mark.parametrize("later", [0, 1])
def test_a_member_in_a_later_incarnation_has_been_away(later: int) -> None:
    group = group_of("abc")
    before = group.presence("a")
    incarnation = group.incarnations["c"] + later
    group.give("a", Received("c", Join(incarnation, 7, 0, BOOT, BOOT, 0, newcomer=False)))
    assert group.presence("a") == before + ["-c", "+c"] * later


def test_a_sequencer_is_back_at_its_next_pdu() -> None:
    group = group_of("ab")
    before = group.presence("b")
    group.give("b", Suspected("a"))
    for _ in range(2):
        group.give("b", Received("a", Heartbeat(BOOT, 0, 0, "b")))
    assert group.presence("b") == [*before, "-a", "+a"]


def test_a_place_carries_what_is_stable() -> None:
    group = group_of("ab")
    for position in range(2):
        group.give("b", Received("a", Ordered(BOOT, position, position, "b", "a", position, BATCH)))
    assert group.stable("b") == ["a0"]


# Bounds


def test_tables_stay_small_whatever_pdus_come() -> None:
    group = group_of("abc")
    member = group.members["a"]
    for number in range(5000):
        site = f"{number}" + "z" * 50
        group.give("a", Received(site, Join(5, number, number, 0, 0, NO_POSITION, newcomer=False)))
        group.give("a", Received(site, Request(BOOT, 5, 0, number, number, BATCH)))
    group.timers = {key: time for key, time in group.timers.items() if key[0] in "abc"}
    assert member.figures()["kept_messages"] <= 2 * KNOBS.order_window
    group.travelling.clear()
    group.pass_time(1000)
    assert all_get_on(group, "abc")
    for pdu in pdus(group.effects["a"], Resume)[-1:] + pdus(group.effects["a"], Roster)[-1:]:
        assert isinstance(Codec(PDUS).decode(Codec(PDUS).encode(pdu)), Packet)


def test_a_strangers_pdu_in_the_present_epoch_begins_no_later_one() -> None:
    group = group_of("ab")
    epoch, ignored = epoch_of(group), group.members["a"].ignored
    group.give("a", Received("z", Enquire(epoch, 7, 0, (0,))))
    assert group.members["a"].ignored == ignored
    group.give("a", Received("y", Enquire(epoch + 1, 7, 0, (0,))))
    assert group.members["a"].ignored == ignored + 1


def test_a_question_in_the_present_epoch_is_not_of_an_earlier_one() -> None:
    """It comes late, after a silence of its sequencer; only one of an epoch that is over makes it join."""
    group = group_of("ab")
    epoch = epoch_of(group)
    group.lost = lambda source, target, _pdu: "a" in (source, target)
    group.pass_time(SUSPECT_MS - 5)
    group.now += 10 * MILLISECOND_NS
    assert pdus(group.give("b", Received("a", Recover(epoch))), Join) == []
    assert pdus(group.give("b", Received("a", Recover(epoch - 1))), Join) != []
