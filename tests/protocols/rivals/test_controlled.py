"""C0, C1 and D0: what each scheme sends, causal order among chosen destinations, and what is lost."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest

from antiphon.core.effects import Admitted, Arrived, Deliver, Multicast, Send, Unstable
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Admit, Received, Start
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import MAXIMUM_BODY_BYTES, Codec, Packet, Pdu
from antiphon.protocols.rivals.co import Co, CoConfiguration
from antiphon.protocols.rivals.controlled import (
    PDUS,
    SCHEMES,
    Controlled,
    ControlledConfiguration,
    Coordinated,
    Scheme,
)
from antiphon.protocols.rivals.controlled.pdus import (
    Announce,
    Confirm,
    Data,
    Deferred,
    Done,
    Failure,
    Noted,
    Relayed,
    Reply,
    Rider,
    Submit,
)
from antiphon.protocols.rivals.vector_clock import VectorClock, VectorClockConfiguration
from tests.protocols.harness.fixed_group import Group

BATCH = pack([b"x"])
REPEAT_MS = ControlledConfiguration().repeat_ns / MILLISECOND_NS
CONFIRM_MS = ControlledConfiguration().confirm_ns / MILLISECOND_NS
LONG_MS = 20 * REPEAT_MS
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def group(scheme: Scheme, size: int = 3, **knobs: Any) -> Group:
    configuration = ControlledConfiguration(scheme=scheme, **knobs)
    return Group(lambda name, names: Controlled(name, names, configuration), size)


# What each scheme sends (section 2.3)


@pytest.mark.parametrize("destinations", ["b", "bc", "bcd", "bcdefgh"])
def test_c0_needs_three_messages_a_destination(destinations: str) -> None:
    members, count = group("C0", 8), len(destinations)
    members.send("a", destinations)
    members.pass_time(LONG_MS)
    assert members.sent == {"Data": count, "Reply": count, "Confirm": count}
    assert [name for name in members.names if members.delivered(name)] == list(destinations)


@pytest.mark.parametrize("destinations", ["b", "bc", "bcd", "bcdefgh"])
def test_d0_needs_its_confirmations_squared(destinations: str) -> None:
    members, count = group("D0", 8), len(destinations)
    members.send("a", destinations)
    members.pass_time(LONG_MS)
    assert members.sent == {"Data": count, "Announce": count * count}
    assert [name for name in members.names if members.delivered(name)] == list(destinations)


def test_c1_lets_replies_and_confirmations_ride_on_data() -> None:
    members = group("C1", 3)
    members.send("a", "b")
    members.settle()
    members.send("b", "ac")
    members.settle()
    assert members.stable("a") == ["a0"]  # b's message brought its reply
    members.send("a", "b")
    members.settle()
    assert members.delivered("b") == ["a0"]  # and this one the confirmation
    assert set(members.sent) == {"Data"}


def test_c1_sends_them_by_themselves_after_a_while() -> None:
    members = group("C1", 3)
    members.send("a", "bc")
    members.settle()
    assert set(members.sent) == {"Data"}
    members.pass_time(CONFIRM_MS)
    assert members.sent["Deferred"] == 2
    assert members.stable("a") == ["a0"]
    members.pass_time(CONFIRM_MS)
    assert members.sent["Deferred"] == 4
    assert members.delivered("b") == members.delivered("c") == ["a0"]
    members.pass_time(LONG_MS)
    assert members.sent == {"Data": 2, "Deferred": 4}


def test_c1_gathers_what_it_owes_a_member() -> None:
    members = group("C1", 2)
    for _ in range(5):
        members.send("a", "b")
    members.pass_time(LONG_MS)
    assert members.sent == {"Data": 5, "Deferred": 2}


# Full acceptance


@each_scheme
def test_nothing_is_delivered_before_all_destinations_have_it(scheme: Scheme) -> None:
    members = group(scheme, 4)
    members.lost = lambda _source, target, pdu: target == "d" and isinstance(pdu, Data)
    members.send("a", "abd")
    members.pass_time(LONG_MS)
    assert members.delivered("a") == members.delivered("b") == members.stable("a") == []
    members.lost = lambda *_: False
    members.pass_time(LONG_MS)
    for name in "abd":
        assert members.delivered(name) == members.stable(name) == ["a0"]
    assert members.delivered("c") == []


@each_scheme
def test_what_all_have_waits_for_what_stands_before_it(scheme: Scheme) -> None:
    """Both stand in one causal queue, and the first is not known to be at d."""
    members = group(scheme, 4)
    members.lost = lambda _source, target, pdu: target == "d" and isinstance(pdu, Data)
    members.send("a", "bd")
    members.settle()
    members.send("c", "b")
    members.pass_time(LONG_MS)
    assert members.stable("b") == ["c0"]
    assert members.delivered("b") == []
    members.lost = lambda *_: False
    members.pass_time(LONG_MS)
    assert members.delivered("b") == ["a0", "c0"]


@each_scheme
def test_a_sender_may_be_among_its_destinations_or_alone(scheme: Scheme) -> None:
    members = group(scheme, 3)
    assert members.send("a", "a", b"1", b"2")[0] == Admitted(0, 2, 2, frozenset("a"))
    assert members.delivered("a") == members.stable("a") == ["a0", "a1"]
    assert not members.travelling
    members.send("a", "ab")
    assert members.delivered("a") == ["a0", "a1"]
    members.pass_time(LONG_MS)
    assert members.delivered("a") == ["a0", "a1", "a2"]
    assert members.delivered("b") == ["a2"]


@each_scheme
def test_to_all_means_the_sender_too(scheme: Scheme) -> None:
    members = group(scheme, 3)
    members.send("b")
    members.pass_time(LONG_MS)
    assert [members.delivered(name) for name in "abc"] == [["b0"]] * 3
    delivery = next(effect for effect in members.effects["c"] if isinstance(effect, Deliver))
    assert delivery.destinations is None


@each_scheme
def test_whoever_is_away_is_waited_for(scheme: Scheme) -> None:
    members = group(scheme, 3)
    members.send("c", "a")
    members.settle()
    members.depart("c")
    members.send("a", "bc")
    members.pass_time(LONG_MS)
    assert members.delivered("b") == []
    members.come_back("c")
    members.pass_time(LONG_MS)
    assert members.delivered("b") == members.delivered("c") == ["a0"]
    assert members.delivered("a") == ["c0"]


def test_c1_tells_what_it_owes_as_soon_as_it_is_back() -> None:
    members = group("C1", 2)
    members.send("a", "b")
    members.settle()
    members.depart("b")
    members.come_back("b")
    assert members.sent["Deferred"] == 1
    members.settle()
    assert members.stable("a") == ["a0"]


# Causal order


@each_scheme
def test_figure_1_a_chain_through_others_is_followed(scheme: Scheme) -> None:
    """t and p from E1, r from E2 after p, q from E3 after r: E4 must take p before q."""
    members = group(scheme, 4)
    members.held = lambda source, target, pdu: (source, target) == ("a", "d") and isinstance(pdu, Data)
    members.send("a", "bc")
    members.send("a", "bd")
    members.pass_time(2 * CONFIRM_MS)
    members.send("b", "c")
    members.pass_time(2 * CONFIRM_MS)
    members.send("c", "d")
    members.pass_time(4 * CONFIRM_MS)
    assert members.delivered("d") == []
    members.held = lambda *_: False
    members.pass_time(LONG_MS)
    assert members.delivered("d") == ["a1", "c0"]


@each_scheme
def test_what_goes_elsewhere_holds_nothing_up(scheme: Scheme) -> None:
    """a's first message is not for c: c need not hear of it to take what follows it."""
    members = group(scheme, 3)
    members.send("a", "b")
    members.settle()
    members.send("b", "c")
    members.pass_time(LONG_MS)
    assert members.delivered("c") == ["b0"]


@each_scheme
def test_one_senders_messages_stay_in_order(scheme: Scheme) -> None:
    members = group(scheme, 2)
    members.held = lambda _source, _target, pdu: isinstance(pdu, Data) and pdu.number == 0
    members.send("a", "b")
    members.send("a", "b")
    members.pass_time(2 * CONFIRM_MS)
    assert members.delivered("b") == []
    members.held = lambda *_: False
    members.pass_time(LONG_MS)
    assert members.delivered("b") == ["a0", "a1"]


# Losses


def first_copy_lost(kind: type[Pdu]) -> Callable[[str, str, Pdu], bool]:
    """The first PDU of that kind on each channel is lost."""
    seen: set[tuple[str, str]] = set()

    def lost(source: str, target: str, pdu: Pdu) -> bool:
        fresh = isinstance(pdu, kind) and (source, target) not in seen
        if fresh:
            seen.add((source, target))
        return fresh

    return lost


@pytest.mark.parametrize(
    ("scheme", "kind"),
    [("C0", Data), ("C0", Reply), ("C0", Confirm), ("C1", Data), ("C1", Deferred), ("D0", Data),
     ("D0", Announce)],
)  # fmt: skip
def test_every_loss_is_made_up_for(scheme: Scheme, kind: type[Pdu]) -> None:
    members = group(scheme, 4)
    members.lost = first_copy_lost(kind)
    members.send("a", "bcd")
    members.pass_time(LONG_MS)
    assert [members.delivered(name) for name in "bcd"] == [["a0"]] * 3
    assert members.stable("a") == ["a0"]
    before = dict(members.sent)
    members.pass_time(LONG_MS)
    assert dict(members.sent) == before, "a group with nothing left to find out is silent"


def test_d0_word_that_comes_before_the_message_counts() -> None:
    members = group("D0", 3)
    members.held = lambda _source, target, pdu: target == "c" and isinstance(pdu, Data)
    members.send("a", "bc")
    members.settle()
    members.held = lambda *_: False
    members.settle()
    assert members.delivered("c") == ["a0"]
    assert members.sent["Announce"] == 4


@each_scheme
def test_a_copy_is_answered_and_not_taken_again(scheme: Scheme) -> None:
    members = group(scheme, 2)
    members.send("a", "b")
    data = members.travelling[0][2]
    members.pass_time(LONG_MS)
    effects = members.give("b", Received("a", data))
    assert not [effect for effect in effects if isinstance(effect, Deliver | Arrived)]
    members.pass_time(LONG_MS)
    assert members.delivered("b") == ["a0"]


# Bounds


@each_scheme
def test_a_full_window_refuses_until_something_is_accepted_by_all(scheme: Scheme) -> None:
    members = group(scheme, 2, window=2)
    for _ in range(3):
        members.send("a", "b")
    assert members.rejected("a") == 1
    assert members.figure("a", "kept") == 2
    members.pass_time(LONG_MS)
    members.send("a", "b")
    assert members.rejected("a") == 1


@each_scheme
def test_a_stream_with_a_hole_is_held_only_so_far(scheme: Scheme) -> None:
    members = group(scheme, 3, window=1)
    reach = ControlledConfiguration(window=1).reach
    for position in range(1, 50):
        members.give("b", Received("a", data_at(position)))
    assert members.figure("b", "refused") == 49 - (reach - 1)


def test_word_of_messages_that_never_come_is_bounded() -> None:
    members = group("D0", 3, window=1)
    for number in range(100):
        members.give("b", Received("c", Announce(0, number, number, False)))
    assert len(members.members["b"]._heard[0]) == ControlledConfiguration(window=1).reach


# Failures (section 4)

each_coordinating = pytest.mark.parametrize("scheme", ["C0", "C1"])
GIVE_UP_NS = int(4 * REPEAT_MS * MILLISECOND_NS)


@each_coordinating
def test_what_a_destination_does_not_accept_in_time_none_delivers(scheme: Scheme) -> None:
    members = group(scheme, 4, give_up_ns=GIVE_UP_NS)
    members.depart("d")
    members.send("a", "abd")
    members.settle()
    members.send("c", "b")
    members.pass_time(2 * REPEAT_MS)
    assert members.stable("b") == ["c0"]
    assert members.delivered("b") == [], "a's message stands before it, and may still be delivered"
    members.pass_time(LONG_MS)
    assert members.delivered("b") == ["c0"]
    assert members.delivered("a") == members.stable("a") == []
    assert [effect.number for effect in members.effects["a"] if isinstance(effect, Unstable)] == [0]
    members.come_back("d")
    members.send("a", "abd")
    members.pass_time(LONG_MS)
    assert [members.delivered(name) for name in "abd"] == [["a1"], ["c0", "a1"], ["a1"]]
    assert [members.figure(name, "undelivered") for name in "abd"] == [0, 0, 0]
    assert members.figure("a", "kept") == 0


@each_coordinating
@pytest.mark.parametrize("kind", [Data, Reply, Deferred, Failure, Noted])
def test_a_failure_is_repeated_until_all_have_noted_it(scheme: Scheme, kind: type[Pdu]) -> None:
    """b's replies are lost for longer than a waits; then one of each channel's PDUs of a kind."""
    members = group(scheme, 3, give_up_ns=GIVE_UP_NS)
    members.lost = lambda source, _target, pdu: source == "b" and isinstance(pdu, Reply | Deferred)
    members.send("a", "bc")
    members.pass_time(GIVE_UP_NS / MILLISECOND_NS - 1)
    assert members.figure("a", "given_up") == 0
    members.lost = first_copy_lost(kind)
    members.send("a", "c")
    members.pass_time(LONG_MS)
    if members.figure("a", "given_up"):
        assert members.delivered("b") == []
        assert members.delivered("c") == ["a1"]
    else:
        assert members.delivered("b") == ["a0"]
        assert members.delivered("c") == ["a0", "a1"]
    assert members.figure("a", "kept") == members.figure("c", "undelivered") == 0


def test_a_message_that_comes_after_its_failure_is_not_delivered() -> None:
    members = group("C0", 3, give_up_ns=GIVE_UP_NS)
    members.lost = lambda _source, target, pdu: target == "c" and isinstance(pdu, Data)
    members.send("a", "bc")
    data = members.travelling[0][2]
    members.pass_time(LONG_MS)
    assert members.figure("a", "given_up") == 1
    members.lost = lambda *_: False
    members.give("c", Received("a", data))
    members.give("b", Received("a", data))
    members.send("a", "bc")
    members.pass_time(LONG_MS)
    assert members.delivered("b") == members.delivered("c") == ["a1"]


def test_what_all_have_is_not_given_up() -> None:
    members = group("C0", 3, give_up_ns=GIVE_UP_NS)
    members.lost = lambda _source, _target, pdu: isinstance(pdu, Confirm)
    members.send("a", "bc")
    members.pass_time(LONG_MS)
    members.lost = lambda *_: False
    members.pass_time(LONG_MS)
    assert members.delivered("b") == members.delivered("c") == ["a0"]
    assert members.sent["Failure"] == 0


@pytest.mark.parametrize("knobs", [{"scheme": "D0"}, {"coordinator": "a"}])
def test_only_senders_that_coordinate_give_up(knobs: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="can give them up"):
        ControlledConfiguration(give_up_ns=GIVE_UP_NS, **knobs)
    with pytest.raises(UsageError, match="times are positive"):
        ControlledConfiguration(give_up_ns=-1)


# One coordinator for all (section 4)


def coordinated(scheme: Scheme, size: int = 4, **knobs: Any) -> Group:
    """Member a coordinates."""
    configuration = ControlledConfiguration(scheme=scheme, coordinator="a", **knobs)
    return Group(lambda name, names: Coordinated(name, names, configuration), size)


each_central = pytest.mark.parametrize("scheme", ["C0", "C1"])


@pytest.mark.parametrize("destinations", ["b", "bc", "bcd", "bcdefgh"])
def test_a_coordinator_of_all_costs_two_messages_more(destinations: str) -> None:
    members, count = coordinated("C0", 8), len(destinations)
    members.send("h", destinations)
    members.pass_time(LONG_MS)
    assert members.sent == {"Submit": 1, "Relayed": count, "Reply": count, "Confirm": count, "Done": 1}
    assert [name for name in members.names if members.delivered(name)] == list(destinations)
    assert members.stable("h") == ["h0"]


def test_the_coordinators_own_messages_cost_what_they_did() -> None:
    members = coordinated("C0")
    members.send("a", "bc")
    members.pass_time(LONG_MS)
    assert members.sent == {"Relayed": 2, "Reply": 2, "Confirm": 2}
    assert members.delivered("b") == members.delivered("c") == members.stable("a") == ["a0"]


def test_replies_ride_on_what_goes_to_the_coordinator() -> None:
    members = coordinated("C1", 3)
    members.send("b", "c")
    members.settle()
    members.send("c", "b")
    members.settle()
    members.send("b", "c")
    members.settle()
    assert members.delivered("c") == ["b0"]
    assert "Deferred" not in members.sent


@each_central
@pytest.mark.parametrize("kind", [Submit, Relayed, Reply, Confirm, Deferred, Done])
def test_a_coordinators_losses_are_made_up_for(scheme: Scheme, kind: type[Pdu]) -> None:
    members = coordinated(scheme)
    members.lost = first_copy_lost(kind)
    for sender, destinations in (("b", "cd"), ("a", "b"), ("c", "a"), ("b", "ac")):
        members.send(sender, destinations)
    members.pass_time(LONG_MS)
    assert members.delivered("c") == ["b0", "b1"]
    assert sorted(members.delivered("a")) == ["b1", "c0"]
    assert members.delivered("b") == ["a0"]
    assert members.delivered("d") == ["b0"]
    assert all(members.stable(name).count(f"{name}0") == 1 for name in "abc")


@each_central
def test_a_full_window_of_submissions_refuses(scheme: Scheme) -> None:
    for sender in "ab":
        members = coordinated(scheme, window=2)
        members.lost = lambda _source, target, _pdu: target == "c"
        for _ in range(3):
            members.send(sender, "c")
        assert members.rejected(sender) == 1


def test_a_submission_far_ahead_is_not_kept() -> None:
    members = coordinated("C0", window=2)
    members.give("a", Received("b", Submit(5, 2, (2,), (), BATCH)))
    assert members.figure("a", "ignored") == 1
    members.give("a", Received("b", Submit(5, 1, (2,), (), BATCH)))
    assert members.figure("a", "ignored") == 1
    assert members.sent["Relayed"] == 0


@pytest.mark.parametrize(
    ("target", "source", "pdu"),
    [
        ("b", "a", Submit(0, 0, (2,), (), BATCH)),
        ("a", "b", Submit(-1, 0, (2,), (), BATCH)),
        ("a", "b", Submit(0, 0, (9,), (), BATCH)),
        ("a", "b", Submit(0, 0, (2,), (Rider(0, (7,), ()),), BATCH)),
        ("b", "c", Relayed(0, (1,), bytes(64), (), BATCH, 2, 0)),
        ("b", "a", Relayed(0, (1,), bytes(64), (), BATCH, 9, 0)),
        ("b", "a", Relayed(0, (1,), bytes(64), (), BATCH, 2, -1)),
        ("b", "a", Data(0, (1,), bytes(64), (), BATCH)),
        ("b", "a", Failure(0, (1,), bytes(64))),
        ("b", "a", Noted(0)),
        ("b", "c", Done(0)),
    ],
)
def test_what_no_member_under_a_coordinator_says_is_dropped(target: str, source: str, pdu: Pdu) -> None:
    members = coordinated("C0")
    members.give(target, Received(source, pdu))
    assert members.figure(target, "ignored") == 1
    assert members.sent == {}


def test_where_senders_coordinate_nothing_is_relayed() -> None:
    members = group("C0", 4)
    members.give("b", Received("a", Relayed(0, (1,), bytes(64), (), BATCH, 2, 0)))
    assert members.figure("b", "ignored") == 1


def test_the_coordinator_must_be_a_member() -> None:
    with pytest.raises(UsageError, match="is no member"):
        Coordinated("a", "ab", ControlledConfiguration(coordinator="z"))
    with pytest.raises(UsageError, match="no member coordinates"):
        ControlledConfiguration(scheme="D0", coordinator="a")


# Garbage and misuse


def stamp(source: int, target: int, count: int) -> bytes:
    """This many batches from one member to another, of three, and nothing else."""
    counts = np.zeros((3, 3), dtype="<u4")
    counts[source, target] = count
    return counts.tobytes()


def data_at(position: int) -> Data:
    """From a to b, its batch at that position."""
    return Data(position, (1,), stamp(0, 1, position), (), BATCH)


FIRST = data_at(0)
NONSENSE: dict[str, tuple[Scheme, Pdu]] = {
    "a matrix of the wrong size": ("C0", Data(0, (1,), bytes(8), (), BATCH)),
    "a count that is too large": ("C0", Data(0, (1,), b"\xff" * 36, (), BATCH)),
    "more than was ever sent": ("C0", Data(0, (1,), stamp(1, 2, 1), (), BATCH)),
    "a negative number": ("C0", Data(-1, (1,), stamp(0, 1, 0), (), BATCH)),
    "a message for others": ("C0", Data(0, (2,), stamp(0, 1, 0), (), BATCH)),
    "a message without destinations": ("C0", Data(0, (), stamp(0, 1, 0), (), BATCH)),
    "a message for strangers": ("C0", Data(0, (1, 9), stamp(0, 1, 0), (), BATCH)),
    "a rider that replies to nothing": ("C1", Data(0, (1,), stamp(0, 1, 0), (Rider(1, (4,), ()),), BATCH)),
    "a reply to nothing": ("C0", Reply(0)),
    "a confirmation of nothing that can be": ("C0", Confirm(-5)),
    "a failure of a negative number": ("C0", Failure(-1, (1,), stamp(0, 1, 0))),
    "a failure for others": ("C0", Failure(0, (2,), stamp(0, 1, 0))),
    "a failure without a stamp": ("C1", Failure(0, (1,), b"")),
    "a failure under distributed control": ("D0", Failure(0, (1,), stamp(0, 1, 0))),
    "a note of nothing": ("C0", Noted(0)),
    "a note of a negative number": ("C0", Noted(-1)),
    "replies under distributed control": ("D0", Reply(0)),
    "a confirmation under distributed control": ("D0", Deferred((), (0,))),
    "an announcement under centralised control": ("C1", Announce(2, 0, 0, False)),
    "an announcement of no member's message": ("D0", Announce(7, 0, 0, False)),
    "an announcement of its sender's own message": ("D0", Announce(0, 0, 0, False)),
    "an announcement of what was never sent": ("D0", Announce(1, 0, 0, False)),
    "an announcement from below": ("D0", Announce(2, 0, -1, True)),
    "something else": ("C0", Pdu()),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_counted_and_dropped(name: str) -> None:
    scheme, pdu = NONSENSE[name]
    members = group(scheme, 3)
    effects = members.give("b", Received("a", pdu))
    assert not [effect for effect in effects if isinstance(effect, Deliver | Arrived | Send | Multicast)]
    assert members.figure("b", "ignored") == 1


@each_scheme
def test_what_was_nonsense_changed_nothing(scheme: Scheme) -> None:
    members = group(scheme, 3)
    for own_scheme, pdu in NONSENSE.values():
        if own_scheme == scheme:
            members.give("b", Received("a", pdu))
    members.send("a", "b")
    members.pass_time(LONG_MS)
    assert members.delivered("b") == ["a0"]


def test_strangers_and_oneself_are_not_listened_to() -> None:
    members = group("C0", 3)
    for sender in ("z", "b"):
        members.give("b", Received(sender, FIRST))
    assert members.figure("b", "ignored") == 2


def build_rival(name: str, names: Sequence[str] = ("a", "b", "c")) -> Any:
    if name == "CBCAST":
        return VectorClock("a", names, VectorClockConfiguration())
    if name == "CO":
        return Co("a", names, CoConfiguration())
    return Controlled("a", names, ControlledConfiguration(scheme=cast(Scheme, name)))


each_rival = pytest.mark.parametrize("rival", ["CBCAST", "CO", *SCHEMES])
MISUSE: dict[str, tuple[Admit, str]] = {
    "nothing": (Admit(()), "no body"),
    "without destinations": (Admit((b"x",), frozenset()), "at least one member"),
    "for a stranger": (Admit((b"x",), frozenset({"b", "z"})), "members only"),
    "of another group": (Admit((b"x",), None, "g"), "one group only"),
    "too large": (Admit((bytes(MAXIMUM_BODY_BYTES),)), "does not fit"),
}


@each_rival
@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_told_and_changes_nothing(rival: str, name: str) -> None:
    event, sentence = MISUSE[name]
    member = build_rival(rival)
    with pytest.raises(UsageError, match="only after its start"):
        member.handle(0, Admit((b"x",)))
    member.handle(0, Start())
    with pytest.raises(UsageError, match=sentence):
        member.handle(0, event)
    assert member.handle(0, Admit((b"x",), frozenset("bc")))[0] == Admitted(0, 1, 1, frozenset("bc"))


@each_rival
def test_a_member_must_be_one_of_the_members(rival: str) -> None:
    for names in (("b", "c"), ("a", "b", "b")):
        with pytest.raises(UsageError, match="one of the members"):
            build_rival(rival, names)


@pytest.mark.parametrize("wrong", [{"scheme": "D1"}, {"window": 0}, {"confirm_ns": 0}, {"repeat_ns": 0}])
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ControlledConfiguration(**wrong)


@pytest.mark.parametrize(
    "pdu",
    [Data(0, (1,), bytes(36), (Rider(1, (2, 3), (4,)),), BATCH), Reply(3), Confirm(4), Deferred((1,), (2,)),
     Announce(1, 2, 3, True), Submit(1, 2, (0,), (), BATCH), Done(3),
     Relayed(0, (1,), bytes(36), (), BATCH, 2, 5)],
)  # fmt: skip
def test_pdus_come_back_as_they_were_sent(pdu: Pdu) -> None:
    packet = Codec(PDUS).decode(Codec(PDUS).encode(pdu))
    assert isinstance(packet, Packet)
    assert packet.pdu == pdu
