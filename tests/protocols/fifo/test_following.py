"""Following another member's stream: where it begins and what is skipped, at the values that decide."""

from dataclasses import replace

import pytest

from antiphon.core.packing import pack
from antiphon.core.time import SECOND_NS
from antiphon.protocols.fifo.following import Following
from antiphon.protocols.fifo.group import Peer
from antiphon.protocols.fifo.pdus import Extent
from antiphon.protocols.fifo.streams import Stream
from tests.protocols.harness.fifo_group import KNOBS, Group

ONE = pack([b"x"])


def following(members: Group) -> Following:
    return members.members["a"]._membership._following


def peer(members: Group, site: str) -> Peer:
    return members.members["a"]._group.peers[site]


def spells(members: Group) -> int:
    return members.members["a"]._presence.spell


def extent(site: str, *, first: int = 0, held: int = 0, kept_from: int = 0) -> Extent:
    return Extent(site, 0, True, True, first, held, 0, kept_from)


@pytest.mark.parametrize(
    ("own", "was_absent", "is_gap"),
    [
        (extent("b"), False, False),
        (extent("b", held=1, kept_from=1), False, True),
        (extent("b", held=1, kept_from=1), True, True),
        (extent("b", first=1, held=1, kept_from=1), False, True),
        (extent("b", first=1, held=1, kept_from=1), True, False),
    ],
)
def test_a_stream_that_begins_behind_its_beginning_ends_the_spell(
    own: Extent, was_absent: bool, is_gap: bool
) -> None:
    """So does one that begins above 0 at a member that must have had everything."""
    members = Group(2)
    members.members["a"]._presence.was_absent = was_absent
    peer(members, "b").stream = Stream("b", 0)
    following(members).begin(0, peer(members, "b"), own)
    assert spells(members) == int(is_gap)


def stuck(members: Group, *reports: tuple[str, Extent]) -> Stream:
    """The stream of b, that has gone and lacks messages at a; the others report this of it."""
    gone = peer(members, "b")
    gone.in_view = False
    gone.stream.expected, gone.stream.end = 1, 5
    for site, report in reports:
        peer(members, site).extents = {"b": report}
    return gone.stream


def test_what_no_member_keeps_is_skipped_to_where_a_member_that_is_further_keeps_it() -> None:
    members = Group(4)
    reports = ("c", extent("b", held=5, kept_from=3)), ("d", extent("b", held=1))
    stream = stuck(members, *reports)
    following(members).resolve(0, peer(members, "b"))
    assert (stream.expected, stream.unconfirmed, spells(members)) == (3, 3, 1)


@pytest.mark.parametrize(("repair", "kept_from", "expected"), [("acknowledge", 1, 1), ("acknowledge", 2, 2)])
def test_nothing_is_skipped_that_is_said_to_be_kept(repair: str, kept_from: int, expected: int) -> None:
    members = Group(3, replace(KNOBS, repair=repair))
    stream = stuck(members, ("c", extent("b", held=5, kept_from=kept_from)))
    following(members).resolve(0, peer(members, "b"))
    assert (stream.expected, spells(members)) == (expected, expected - 1)


def test_a_sender_in_the_view_says_itself_where_it_can_be_followed() -> None:
    members = Group(2)
    sender = peer(members, "b")
    sender.extents = {"b": extent("b", held=5, kept_from=3)}
    following(members).resolve(0, sender)
    assert (sender.stream.expected, spells(members)) == (0, 0), "nothing is missing"
    sender.stream.end = 5
    sender.successor = Stream("b", 1)
    following(members).resolve(0, sender)
    assert (sender.stream.expected, spells(members)) == (0, 0), "an earlier incarnation is being completed"
    sender.successor = None
    following(members).resolve(0, sender)
    assert (sender.stream.expected, sender.stream.unconfirmed, spells(members)) == (3, None, 1)


@pytest.mark.parametrize(
    ("is_neighbour", "doubted_ns", "silent_ns", "speaks"),
    [
        (False, -1, SECOND_NS, True),
        (False, 0, SECOND_NS, False),
        (False, 1, SECOND_NS, False),
        (False, 1, 0, True),
        (True, -1, SECOND_NS, False),
        (True, -1, 0, True),
    ],
)
def test_a_member_speaks_for_itself_if_it_was_heard_and_no_neighbour_doubts_it(
    is_neighbour: bool, doubted_ns: int, silent_ns: int, speaks: bool
) -> None:
    members = Group(2)
    group = members.members["a"]._group
    group.view.neighbours = {"b": None} if is_neighbour else {}
    peer(members, "b").doubted_ns = peer(members, "b").heard_ns + doubted_ns
    assert group.speaks_for_itself(silent_ns, peer(members, "b"), 0) == speaks


# Requests for what is missing


def test_a_gap_that_is_noticed_again_is_not_asked_for_later() -> None:
    members = Group(2)
    repair, stream = members.members["a"]._repair, peer(members, "b").stream
    stream.end = 5
    repair.notice(0, stream)
    due_ns = stream.ask_ns
    repair.notice(1, stream)
    assert stream.ask_ns == due_ns


@pytest.mark.parametrize(("asked_to", "attempts"), [(1, 3), (0, 0)])
def test_a_new_gap_behind_what_was_asked_for_is_asked_for_afresh(asked_to: int, attempts: int) -> None:
    members = Group(2)
    repair, stream = members.members["a"]._repair, peer(members, "b").stream
    stream.end, stream.ask_ns, stream.attempts, stream.asked_to = 5, 7, 3, asked_to
    repair.notice(0, stream)
    assert stream.attempts == attempts


@pytest.mark.parametrize(
    ("ask_ns", "spans", "asked_to"), [(9, (0, 3), 3), (None, (0, 3), 0), (9, (1, 3), 0), (9, (0, 0), 0)]
)
def test_a_request_of_another_spares_ours_if_we_miss_the_same(
    ask_ns: int | None, spans: tuple[int, ...], asked_to: int
) -> None:
    members = Group(2)
    repair, stream = members.members["a"]._repair, peer(members, "b").stream
    stream.end, stream.ask_ns = 5, ask_ns
    repair._suppress(0, stream, spans)
    assert (stream.asked_to, stream.attempts) == (asked_to, int(asked_to > 0))
