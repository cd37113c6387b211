"""A member that lies about what is stable or who exists: the others go on as if it had said nothing."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from antiphon.core.effects import Absent, Multicast, Present, Send, SetTimer, Stable, Vanished
from antiphon.core.fields import LONGEST_NAME, MOST_NAMES
from antiphon.core.inputs import Received, Start, TimerFired
from antiphon.core.packing import pack
from antiphon.core.time import MILLISECOND_NS
from antiphon.core.wire import Packet, Pdu
from antiphon.protocols.fifo import Fifo, FifoConfiguration
from antiphon.protocols.fifo.group import Peer
from antiphon.protocols.fifo.layer_host import LONGEST_ROUND, MOST_PAST_VIEWS
from antiphon.protocols.fifo.pdus import Copy, Data, Extent, Mark, Position, Status
from antiphon.protocols.fifo.repair import holds
from antiphon.protocols.fifo.streams import Stream
from antiphon.protocols.stability import PDUS as STABILITY_PDUS
from antiphon.protocols.stability import PROTOCOLS
from antiphon.protocols.stability.base import read_counts
from antiphon.protocols.stability.coordp import Acknowledgement, Information, StartRound
from antiphon.protocols.stability.fulldist import Purpose, Row
from antiphon.protocols.stability.s_coordp import ChildReport
from antiphon.protocols.stability.s_train import SiblingReport
from antiphon.protocols.stability.train import Carriage, Receipt
from tests.protocols.fifo.lying import CODEC, FAR, ONE, all_deliver, claim, lie, peer, stream
from tests.protocols.harness.fifo_group import KNOBS, Group
from tests.protocols.harness.gate import pass_gate

# Stability


def test_nothing_is_stable_because_of_one_members_status() -> None:
    members = Group(3)
    members.drop = lambda _source, target, pdu: target == "c" and isinstance(pdu, Data | Copy)
    members.admit("a")
    members.admit("b")
    members.pass_time(60)
    lie(members, "b", "a", claim("a", 1, stable=1), claim("b", 1, stable=1))
    assert members.of("a", Stable) == []
    lie(members, "c", "a", claim("a", 1), claim("b", 1))
    lie(members, "b", "a", claim("a", 1, stable=1), claim("b", 1, stable=1))
    assert members.of("a", Stable) == [Stable("a", 0, 1), Stable("b", 0, 1)]


def test_our_own_messages_are_stable_when_all_have_acknowledged_them() -> None:
    members = Group(3)
    members.drop = lambda _source, target, pdu: target == "c" and isinstance(pdu, Data | Copy)
    members.admit("a")
    members.admit("b")
    members.pass_time(60)
    members.give("a", Received("c", Position(0, 0, 1)))
    lie(members, "b", "a", claim("a", 1, stable=1), claim("b", 1, stable=1))
    assert members.of("a", Stable) == [Stable("a", 0, 1)]


@pytest.mark.parametrize(
    ("extents", "excluded_spell"),
    [
        ((), 4),
        ((claim("b", 2),), 4),
        ((claim("b", 3),), -1),
        ((claim("b", 9),), -1),
        ((claim("b", 9, incarnation=1),), 4),
        ((claim("a", 9),), 4),
    ],
)
def test_who_is_away_must_hold_what_is_called_stable(
    extents: tuple[Extent, ...], excluded_spell: int
) -> None:
    members = Group(3)
    members.pass_time(10)
    stability, group = members.members["a"]._stability, members.members["a"]._group
    away = peer(members, "c", "a")
    away.in_view, away.spell = False, 4
    away.extents = {extent.site: extent for extent in extents}
    group.outside.append(away)
    followed = stream(members, "b", "a")
    followed.take(0, pack([b"x"] * 5), keep=True)
    stability.release(followed, 3)
    assert away.excluded_spell == excluded_spell


@pytest.mark.parametrize(
    ("extent", "stable"),
    [
        (None, 5),
        (claim("c", 2), 2),
        (claim("c", 2, incarnation=1), 5),
        (claim("c", 0), 0),
        (claim("c", -1), 5),
        (claim("c", 9), 5),
    ],
)
def test_messages_of_a_departed_member_are_stable_when_all_followers_hold_them(
    extent: Extent | None, stable: int
) -> None:
    members = Group(3)
    members.pass_time(60)
    stability = members.members["a"]._stability
    gone = peer(members, "c", "a")
    gone.in_view = False
    members.members["a"]._group.outside.append(gone)
    gone.stream.take(0, pack([b"x"] * 5), keep=True)
    other = peer(members, "b", "a")
    other.extents = {"b": claim("b")} if extent is None else {"c": extent}
    stability.release_departed()
    assert gone.stream.stable == stable
    gone.stream.stable, gone.successor = 0, Stream("c", 1)
    stability.release_departed()
    assert gone.stream.stable == 0
    gone.successor, other.extents = None, {}
    stability.release_departed()
    assert gone.stream.stable == 0


@pytest.mark.parametrize(
    ("extent", "is_over"),
    [
        (None, True),
        (claim("c", incarnation=1), False),
        (claim("c", incarnation=0), False),
        (claim("c", incarnation=2), True),
    ],
)
def test_an_earlier_incarnation_is_kept_until_all_are_beyond_it(extent: Extent | None, is_over: bool) -> None:
    members = Group(3)
    members.pass_time(60)
    reborn = peer(members, "c", "a")
    reborn.past = Stream("c", 1)
    reborn.past.begin(0, 0, 0)
    reborn.extents["c"] = claim("c", incarnation=1)
    other = peer(members, "b", "a")
    other.extents = {"b": claim("b")} if extent is None else {"c": extent}
    members.members["a"]._stability.release_departed()
    assert (reborn.past is None) == is_over


@pytest.mark.parametrize("repair", ["any", "hybrid"])
def test_what_is_not_kept_of_an_earlier_incarnation_is_not_waited_for(repair: str) -> None:
    members = Group(3, FifoConfiguration(repair=repair))
    members.pass_time(100)
    ended = peer(members, "b", "a")
    ended.stream.take(0, ONE, keep=True)
    own = claim("b", 6, incarnation=1, first=6, kept_from=6)
    members.cut.add("b")
    members.give("a", Received("b", Status(1, 1, 1, 0, (own, claim("a")))))
    kept = claim("b", 6, incarnation=1, first=6, previous=0, previous_end=6, previous_from=1)
    lie(members, "c", "a", kept)
    assert ended.stream.incarnation == 0
    lie(members, "c", "a", msgspec.structs.replace(kept, previous_from=2))
    assert (ended.stream.incarnation, ended.stream.expected) == (1, 6)
    assert members.of("a", Absent) == [Absent()]


@pytest.mark.parametrize(
    ("extent", "is_held"),
    [
        (None, False),
        (claim("b", 4, kept_from=3), True),
        (claim("b", 4, kept_from=4), False),
        (claim("b", 3, kept_from=3), False),
        (claim("b", 9, kept_from=0, incarnation=1), False),
        (claim("b", 9, incarnation=1, previous=0, previous_from=3, previous_end=4), True),
        (claim("b", 9, incarnation=1, previous=0, previous_from=4, previous_end=5), False),
        (claim("b", 9, incarnation=1, previous=0, previous_from=3, previous_end=3), False),
        (claim("b", 9, incarnation=2, previous=1, previous_from=3, previous_end=4), False),
    ],
)
def test_who_holds_what_comes_next(extent: Extent | None, is_held: bool) -> None:
    other, followed = Peer("c", 0, 0), Stream("b", 0)
    followed.begin(0, 3, 3)
    other.extents = {} if extent is None else {"b": extent}
    assert holds(other, followed) == is_held


@pytest.mark.parametrize("repair", ["request", "hybrid"])
def test_what_comes_behind_a_gap_is_asked_for_and_what_fills_it_acknowledged(repair: str) -> None:
    members = Group(2, FifoConfiguration(repair=repair))
    timers = {effect.name for effect in members.give("a", Received("b", Data(0, 1, 0, b"", ONE)))
              if isinstance(effect, SetTimer)}  # fmt: skip
    assert timers == {"repair"}
    members.timers.clear()
    timers = {effect.name for effect in members.give("a", Received("b", Data(0, 0, 0, b"", ONE)))
              if isinstance(effect, SetTimer)}  # fmt: skip
    assert "acknowledge" in timers
    assert "repair" not in timers


def a_result(stability: str, number: int, view: int) -> Pdu:
    nothing = bytes(8 * 4)
    if stability == "train":
        return Carriage(number, 0, nothing, result=True, view=view)
    return Information(number, nothing, view)


@pytest.mark.parametrize("stability", ["train", "s-coordp", "s-train"])
def test_a_round_that_a_lie_holds_up_is_given_up(stability: str) -> None:
    members = Group(4, FifoConfiguration(stability=stability))
    members.pass_time(100)
    members.drop = lambda _source, target, pdu: target == "b" and isinstance(pdu, STABILITY_PDUS)
    members.admit("c")
    members.pass_time(40)
    host = members.members["a"]._stability._host
    layer: Any = host.layer
    assert host.under_way
    members.drop = lambda _source, _target, _pdu: False
    members.give("b", Received("d", a_result(stability, layer._round, host.view)))
    longest_ms = LONGEST_ROUND * members.knobs.stability_repeat_ns / MILLISECOND_NS
    members.pass_time(longest_ms - 200)
    assert members.of("a", Stable) == []
    members.pass_time(600)
    assert all(members.of(name, Stable) == [Stable("c", 0, 1)] for name in "abcd")


@pytest.mark.parametrize("stability", ["coordp", "s-coordp", "s-train", "train", "fulldist"])
def test_only_the_first_member_of_a_view_has_rounds(stability: str) -> None:
    members = Group(3, FifoConfiguration(stability=stability))
    members.pass_time(100)
    view = members.members["b"]._group.view.number
    layer: Any = members.members["b"]._stability._host.layer
    counts = bytes(8 * 3)
    for pdu in (
        StartRound(5, view), Acknowledgement(5, counts, view), Information(5, counts, view),
        Carriage(5, 0, counts, view=view), Carriage(5, 0, counts, result=True, view=view),
        Receipt(5, 0, view=view), ChildReport(5, counts, view=view), SiblingReport(5, counts, view=view),
        Row(5, counts, view=view), Row(5, counts, Purpose.RESULT, view=view),
    ):  # fmt: skip
        members.give("b", Received("c", pdu))
        assert layer._round == -1, pdu
    assert members.members["b"].ignored == 10


def test_objects_of_views_that_are_over_are_bounded_and_not_taken_up_after_long() -> None:
    members = Group(2)
    host, group = members.members["a"]._stability._host, members.members["a"]._group
    first = host.layer
    host.on_view(0, (0, 0), (0, 0))
    assert host.layer is first
    host.on_view(members.knobs.forget_after_ns, (0, 0), (0, 0))
    assert host.layer is first
    host.on_view(members.knobs.forget_after_ns, (1, 0), (0, 0))
    assert host.layer is first
    host._forward(members.knobs.forget_after_ns, TimerFired("x"), (1, 0))
    host.on_view(members.knobs.forget_after_ns, (0, 0), (0, 0))
    assert host.layer is not first
    second = host.layer
    assert second is not None
    host._past[host.view] = (second, set(), -1)
    host.layer = None
    host.on_view(members.knobs.forget_after_ns, (0, 0), (0, 0))
    assert host.layer is not second
    for number in range(MOST_PAST_VIEWS + 5):
        group.view.number = number
        host.on_view(0, (0, 0), (0, 0))
    assert len(host._past) == MOST_PAST_VIEWS


@pytest.mark.parametrize("stability", PROTOCOLS)
def test_error_detection_forgets_what_no_member_has_seen(stability: str) -> None:
    members = Group(3, FifoConfiguration(stability="coordp", errors=stability))
    members.pass_time(100)
    host = members.members["a"]._errors._host
    assert host is not None
    layer: Any = host.layer
    far = (0).to_bytes(8, "little") + FAR.to_bytes(8, "little") + (0).to_bytes(8, "little")
    layer._declare(read_counts(far))
    assert layer.stable[1] == FAR
    members.pass_time(1_000)
    assert layer.stable[1] == 0
    assert all_deliver(members, "b", "ac")


# Members that were invented


def invent(member: Fifo, names: Iterable[str], now: int) -> None:
    for name in names:
        status = Status(
            1, 0, 1, 0, (Extent(name, 1, True, True, 0, 0, 0, 0), Extent("a", 1, True, True, 0, 0, 0, 0))
        )
        received = pass_gate(CODEC, name, status)
        assert received is not None
        member.handle(now, received)


def spoken(member: Fifo, now: int, timer: str = "heartbeat") -> list[Status]:
    """The statuses that a timer brings; each passes the gate."""
    effects = member.handle(now, TimerFired(timer))
    said = [effect.pdu for effect in effects if isinstance(effect, Multicast)]
    assert all(isinstance(CODEC.decode(CODEC.encode(pdu)), Packet) for pdu in said)
    return [pdu for pdu in said if isinstance(pdu, Status)]


def test_a_status_fits_a_pdu_whatever_members_were_invented() -> None:
    member = Fifo("a", ("a",), KNOBS, Random(1))
    member.handle(0, Start(1))
    names = [chr(0x10000 + number) * (LONGEST_NAME - 1) for number in range(MOST_NAMES - 1)]
    invent(member, ["real", *names], 1)
    (status,) = spoken(member, 60 * MILLISECOND_NS)
    assert [extent.site for extent in status.extents[:2]] == ["a", "real"]
    assert 500 < len(status.extents) < MOST_NAMES
    for each in member._group.peers.values():
        each.excluded_spell = 5
    (status,) = spoken(member, 200 * MILLISECOND_NS)
    assert status.left_out[0].site == "real"
    assert 200 < len(status.left_out) < MOST_NAMES


def test_a_status_has_the_members_of_the_view_first() -> None:
    member = Fifo("a", ("a",), KNOBS, Random(1))
    member.handle(0, Start(1))
    names = [chr(0x10000 + number) * (LONGEST_NAME - 1) for number in range(MOST_NAMES - 1)]
    invent(member, [*names, "real"], 1)
    for name in names:
        member._group.peers[name].left = True
    member.handle(2, TimerFired("heartbeat"))
    (status,) = spoken(member, 60 * MILLISECOND_NS)
    assert [extent.site for extent in status.extents[:2]] == ["a", "real"]


def test_silent_members_make_room_for_new_ones() -> None:
    knobs = replace(KNOBS, largest_group=4)
    member = Fifo("a", ("a",), knobs, Random(1))
    member.handle(0, Start(1))
    invent(member, ["u", "v", "w", "x"], 1)
    invent(member, ["real"], 2)
    assert "real" not in member._group.peers
    assert member.ignored == 1
    now = 0
    while now <= knobs.suspect_after_ns:
        now += knobs.heartbeat_ns
        member.handle(now, TimerFired("heartbeat"))
    for name in "vwx":
        member._group.peers[name].stream.begun = False
    member._group.peers["w"].stream.kept[0] = ONE
    invent(member, ["real"], now + 1)
    assert set(member._group.peers) == {"u", "w", "x", "real"}
    invent(member, ["more"], now + 2)
    assert set(member._group.peers) == {"u", "w", "real", "more"}
    assert not member._group.may_have_forgotten
    invent(member, ["even more"], now + 3)
    assert set(member._group.peers) == {"w", "real", "more", "even more"}
    assert member._group.may_have_forgotten
    invent(member, ["too many"], now + 4)
    assert "too many" not in member._group.peers


def test_a_member_that_began_anew_and_went_is_forgotten_although_others_never_heard_of_it() -> None:
    members = Group(3)
    members.pass_time(100)
    for name in "bc":
        peer(members, name, "a").stream.take(0, ONE, keep=True)
    peer(members, "c", "a").extents["b"] = claim("b", 1)
    own = claim("b", 1, incarnation=1)
    members.give("a", Received("b", Status(1, 1, 1, 0, (own, claim("a")))))
    assert peer(members, "b", "a").successor is not None
    group, views = members.members["a"]._group, members.members["a"]._membership._views
    group.outside = list(group.peers.values())
    last_ns = peer(members, "b", "a").heard_ns
    views.forget(last_ns + members.knobs.forget_after_ns)
    assert set(group.peers) == {"b", "c"}
    views.forget(last_ns + members.knobs.forget_after_ns + 1)
    assert set(group.peers) == {"c"}


def test_a_member_whose_earlier_incarnation_is_not_complete_makes_room_last() -> None:
    members = Group(3, replace(KNOBS, largest_group=2))
    group, views = members.members["a"]._group, members.members["a"]._membership._views
    group.outside = list(group.peers.values())
    group.peers["b"].successor = Stream("b", 1)
    assert views.make_room()
    assert set(group.peers) == {"b"}
    assert views.make_room()
    assert set(group.peers) == {"b"}


def test_a_member_that_returns_skips_a_gap_once_the_sender_has_it_in_its_view() -> None:
    """Until then the sender may discard more: the gap would be reported twice."""
    members = Group(3)
    members.pass_time(100)
    members.depart("c")
    members.pass_time(20)
    members.come_back("c")
    told = peer(members, "b", "c")
    own = Extent("b", 0, True, True, 0, 9, 0, 9)
    before = members.give("c", Received("b", Status(0, 0, told.serial + 1, 0, (own,))))
    assert Send("b", Position(0, 0, 9)) not in before
    counted = Extent("c", 0, True, True, 0, 0, 0, 0)
    after = members.give("c", Received("b", Status(0, 0, told.serial + 1, 0, (own, counted))))
    assert Send("b", Position(0, 0, 9)) in after


@pytest.mark.parametrize(
    ("mark", "left_out"),
    [
        (Mark("a", 0, 0), "a"),
        (Mark("a", 0, 1), ""),
        (Mark("a", 1, 0), ""),
        (Mark("b", 0, 0), "b"),
        (Mark("b", 0, 1), ""),
        (Mark("b", 1, 0), ""),
        (Mark("nobody", 0, 0), ""),
    ],
)
def test_who_is_left_behind_is_so_in_one_incarnation_and_spell(mark: Mark, left_out: str) -> None:
    members = Group(3)
    members.pass_time(100)
    lie(members, "c", "a", marks=(mark,))
    assert members.of("a", Absent) == ([Absent()] if left_out == "a" else [])
    gone = [Vanished("b", "It was left behind.")] if left_out == "b" else []
    assert members.of("a", Vanished) == gone


def test_ghosts_of_one_status_end_one_spell() -> None:
    members = Group(3)
    members.pass_time(100)
    ghosts = [claim(f"ghost {number}", 1, counted=False) for number in range(50)]
    lie(members, "c", "a", *ghosts)
    lie(members, "c", "a", *ghosts)
    assert members.of("a", Absent, Present) == [Absent(), Present()]
    lie(members, "c", "a", claim("empty", 0, counted=False), claim("there", 1), claim("a", 5, counted=False))
    assert members.of("a", Absent, Present) == [Absent(), Present()]
    assert set(members.members["a"]._group.peers) == {"b", "c"}
