"""SCO members among strangers: nothing raises, nothing grows for ever."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.core.inputs import Admit, Received, Start, Suspected, TimerFired
from antiphon.core.packing import pack
from antiphon.core.wire import MAXIMUM_BODY_BYTES, Garbage, Packet, Pdu
from antiphon.protocols.fifo.pdus import Leaving
from antiphon.protocols.sco import PDUS, Sco, ScoConfiguration
from antiphon.protocols.sco.pdus import (
    LARGEST_BATCH_BYTES,
    LARGEST_LIFE,
    MOST_ASKED,
    MOST_HELD,
    MOST_NAMES,
    SPELL_BITS,
    TABLE_BYTES,
    Answer,
    Ask,
    Confirm,
    Control,
    Copy,
    Data,
    Heartbeat,
    Holding,
    Holds,
    Leave,
    Name,
    Query,
)
from antiphon.protocols.sco.peer import FAR, FOREVER, KEPT_TABLES, Claims, Entry, Peer, View
from antiphon.protocols.sco.roster import MOST_LIVES
from antiphon.protocols.sco.vectors import LARGEST, pack_bitmap, pack_numbers, pack_plain, pack_whole
from tests.protocols.harness.sco_group import CODEC, Group
from tests.protocols.harness.staging import pdus as sent_pdus
from tests.protocols.sco.lying import (
    FAR_LIFE,
    SILENCE_MS,
    SMALL,
    assert_works,
    bodies,
    control,
    control_of,
    data,
    for_b,
    join,
    lie,
    life_of,
    lives,
    names,
    noise,
    targets,
)

KNOBS = ScoConfiguration()
MEMBERS = ("a", "b", "c")

numbers = st.one_of(
    st.integers(0, 4), st.integers(0, 12), st.sampled_from([-1, LARGEST - 1, LARGEST, 2**63 - 1])
)
bitmaps = st.one_of(st.sets(st.integers(0, 2)).map(lambda chosen: pack_bitmap(chosen, 3)), noise)
packed = st.one_of(st.lists(st.integers(0, 6), max_size=4).map(pack_numbers), noise)
entries = st.lists(st.integers(0, 9), min_size=3, max_size=3)
vectors = st.one_of(entries.map(pack_whole), entries.map(pack_plain), noise)
versions = st.sampled_from([1, 1, 1, 2])
tables = st.one_of(st.none(), st.lists(names, max_size=5).map(tuple))
stamps: dict[str, Any] = {
    "destinations": bitmaps,
    "places": packed,
    "csn": vectors,
    "ack": vectors,
    "bodies": bodies,
}

pdus: st.SearchStrategy[Pdu] = st.one_of(
    st.builds(Data, life=lives, table=versions, number=numbers, atomic=numbers, buffers=numbers, **stamps),
    st.builds(
        Control, life=lives, serial=numbers, number=numbers, table=versions, targets=targets, ack=vectors,
        buffers=numbers, gone=numbers, final=st.booleans(), members=numbers, atomic=numbers,
        asks=st.booleans(), names=tables, over=tables,
    ),
    st.builds(Ask, lives, names, st.lists(numbers, max_size=4).map(tuple)),
    st.builds(Copy, life=lives, names=st.lists(names, max_size=4).map(tuple), number=numbers, **stamps),
    st.builds(
        Holds, lives, numbers,
        st.lists(st.builds(Holding, names, st.lists(numbers, max_size=4).map(tuple)), max_size=3).map(tuple),
    ),
    st.builds(Leave, lives),
    st.builds(Confirm, lives, lives, numbers, numbers),
    st.builds(Heartbeat, lives, numbers, numbers),
    st.builds(Query, lives, lives, names, numbers),
    st.builds(Answer, lives, numbers, names, numbers),
)  # fmt: skip
steps = st.one_of(
    st.tuples(st.sampled_from(["a", "c", "d", "b"]), pdus),
    st.tuples(st.sampled_from(["a", "c", "d", "b"]), pdus),
    st.sampled_from(["control", "confirm", "repair", "other", "admit"]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=40))
def test_whatever_comes_nothing_raises_and_what_is_held_is_bounded(script: list[Any]) -> None:
    member = Sco("b", MEMBERS, SMALL, Random(1))
    member.handle(0, Start())
    for now, step in enumerate(script, start=1):
        if step == "admit":
            member.handle(now * 10**6, Admit([b"x"]))
        elif isinstance(step, str):
            member.handle(now * 10**6, TimerFired(step))
        elif isinstance(packet := CODEC.decode(CODEC.encode(step[1])), Packet):
            member.handle(now * 10**6, Received(step[0], packet.pdu))
    peers, ordering = member._state.peers, member._ordering
    assert len(peers.present) <= 5
    assert len(ordering.own) <= SMALL.window
    for peer in (*peers.present.values(), *peers.departed):
        assert len(peer.stream.ahead) <= SMALL.reach
        assert len(peer.view.tables) <= 4
    assert ordering.held <= SMALL.buffers + len(peers.present) + len(peers.departed) * SMALL.reach + 5


def hostile(pdu: Pdu, sender: str = "a") -> Group:
    """A group in which one member has sent this; what it was for, it has not reached."""
    group = Group(3)
    before = group.figure("b", "ignored")
    group.give("b", Received(sender, pdu))
    assert group.figure("b", "ignored") == before + 1, pdu
    group.send("a")
    group.pass_time(60)
    assert group.delivered("b") == ["a0"]
    return group


def test_a_data_pdu_like_these_is_taken() -> None:
    group = Group(3)
    group.give("b", Received("a", data()))
    assert group.figure("b", "ignored") == 0
    assert group.peer("b", "a").stream.received == 1


def test_batches_that_cannot_be_are_counted_and_dropped() -> None:
    hostile(data(destinations=pack_bitmap({2}, 3)))  # for another
    hostile(data(destinations=b""))
    hostile(data(destinations=pack_bitmap({1}, 3) + b"\0"))
    hostile(data(destinations=pack_bitmap({1, 2}, 3)))  # one place too few
    hostile(data(places=pack_numbers([0, 0])))  # one too many
    hostile(data(places=b"\x80"))
    hostile(data(number=LARGEST - 1))
    hostile(data(csn=pack_whole([1, 0, 0])))  # follows itself
    hostile(data(csn=b""))
    hostile(data(ack=pack_plain([0, 0])))
    hostile(data(ack=pack_whole([0, 1, 0])))  # confirms a message that we have not sent
    hostile(data(atomic=1))  # every destination holds what was never sent
    hostile(Confirm(0, 0, 0, 1))
    hostile(Leaving(0, 0))
    hostile(data(), sender="b")  # in our own name


def test_the_last_number_there_is_can_be_sent() -> None:
    group = Group(3)
    group.give("b", Received("a", data(number=LARGEST - 2)))
    assert group.figure("b", "ignored") == 0


def test_a_number_that_was_there_before_is_not_delivered_again() -> None:
    group = Group(3)
    group.send("a", "b")
    group.pass_time(30)
    group.give("b", Received("a", data(number=0, places=pack_numbers([1]))))
    group.pass_time(30)
    assert group.delivered("b") == ["a0"]
    assert group.figure("b", "ignored") == 1


def test_a_place_far_ahead_is_not_kept() -> None:
    group = Group(3, SMALL)
    for place in (SMALL.reach, LARGEST - 1):
        group.give("b", Received("a", data(places=pack_numbers([place]))))
    assert not group.peer("b", "a").stream.ahead
    assert group.figure("b", "overruns") == 2


def test_control_messages_that_cannot_be_are_counted_and_dropped() -> None:
    hostile(control(targets=b"\xff"))
    hostile(control(targets=pack_bitmap({1}, 3)))
    hostile(control(targets=for_b(0, 1) + b"\0"))
    hostile(control(ack=b"\x07"))
    hostile(control(ack=pack_whole([0, 1, 0])))  # confirms a message that we have not sent
    hostile(control(targets=for_b(KNOBS.reach + 1, 1)))  # beyond every window
    hostile(control(targets=for_b(0, 2)))  # knows a table of ours that never was
    hostile(control(table=2, names=()))  # a table without its owner
    hostile(control(table=2, names=(Name("a", 0), Name("a", 0))))


def test_control_messages_at_the_limits_are_taken() -> None:
    group = Group(3)
    group.send("b", "ac")
    group.give("b", Received("a", control(ack=pack_whole([0, 1, 0]), targets=for_b(KNOBS.reach, 1))))
    group.give("b", Received("a", data(ack=pack_whole([0, 1, 0]))))
    assert group.figure("b", "ignored") == 0
    assert group.peer("b", "a").stream.needed == KNOBS.reach


NAME = Name("a", 0)
LONG = b"x" * (1 << 15)
MANY = tuple(Name(f"z{index}", 0) for index in range(2 * MOST_NAMES + 2))


@pytest.mark.parametrize(
    "pdu",
    [
        *(data(life=life) for life in (-1, LARGEST_LIFE)),
        *(
            data(**{field: value})
            for field in ("table", "number", "atomic", "buffers")
            for value in (-1, LARGEST)
        ),
        *(data(**{field: LONG}) for field in ("destinations", "places", "csn", "ack")),
        *(control(life=life) for life in (-1, LARGEST_LIFE)),
        *(
            control(**{field: value})
            for field in ("serial", "number", "table", "buffers", "members", "atomic")
            for value in (-1, LARGEST)
        ),
        *(control(gone=gone) for gone in (-1, 1 << 63)),
        *(control(**{field: b"x" * (1 << 16)}) for field in ("targets", "ack")),
        control(names=MANY),
        control(over=MANY[: MOST_NAMES + 1]),
        *(control(over=(name,)) for name in (Name("", 0), Name("z" * 65, 0), Name("z", -1))),
        control(names=(Name("z", LARGEST_LIFE),)),
        Ask(-1, NAME, ()),
        Ask(0, Name("a", -1), ()),
        Ask(0, NAME, (-1,)),
        Ask(0, NAME, (LARGEST,)),
        Ask(0, NAME, tuple(range(MOST_ASKED + 1))),
        Copy(0, (), 0, b"", b"", b"", b"", pack([b"x"])),
        Copy(0, MANY, 0, b"", b"", b"", b"", pack([b"x"])),
        Copy(-1, (NAME,), 0, b"", b"", b"", b"", pack([b"x"])),
        Copy(0, (NAME,), -1, b"", b"", b"", b"", pack([b"x"])),
        *(
            replace(Copy(0, (NAME,), 0, b"", b"", b"", b"", pack([b"x"])), **{field: LONG})
            for field in ("destinations", "places", "csn", "ack")
        ),
        Holds(-1, 0, ()),
        Holds(0, -1, ()),
        Holds(0, 0, (Holding(NAME, (-1,)),)),
        Holds(0, 0, (Holding(NAME, tuple(range(MOST_HELD + 1))),)),
        Holds(0, 0, tuple(Holding(NAME, ()) for _ in range(2 * MOST_NAMES + 1))),
        Leave(-1),
        Leave(LARGEST_LIFE),
        *(Confirm(*each) for each in ((-1, 0, 0, 0), (0, -1, 0, 0), (0, 0, -1, 0), (0, 0, 0, LARGEST))),
        *(Heartbeat(*each) for each in ((-1, 0, 0), (0, -1, 0), (0, 0, LARGEST))),
        *(Query(*each) for each in ((-1, 0, NAME, 0), (0, -1, NAME, 0), (0, 0, NAME, LARGEST))),
        *(Answer(*each) for each in ((-1, 0, NAME, 0), (0, -1, NAME, 0), (0, 0, NAME, LARGEST))),
    ],
)  # fmt: skip
def test_fields_out_of_bounds_do_not_pass_the_gate(pdu: Pdu) -> None:
    assert isinstance(CODEC.decode(CODEC.encode(pdu)), Garbage)


def test_fields_at_their_bounds_pass_the_gate() -> None:
    for pdu in (
        Copy(0, (NAME,), 0, b"", b"", b"", b"", pack([b"x"])),
        Leave(LARGEST_LIFE - 1),
        Ask(0, NAME, tuple(range(MOST_ASKED))),
    ):
        assert isinstance(CODEC.decode(CODEC.encode(pdu)), Packet), pdu


def test_a_control_message_of_an_old_or_equal_serial_does_not_outweigh_a_later_one() -> None:
    group = Group(3)
    peer = group.peer("b", "a")
    for serial, gone, taken in (
        (5, 1, 1),
        (5, 2, 1),
        (4, 3, 1),
        (6, 4, 4),
        (6 + FAR, 5, 5),
        (6, 6, 5),
        (5, 7, 7),
    ):
        group.give("b", Received("a", control(serial=serial, gone=gone, targets=for_b(0, 1))))
        assert peer.view.digest == taken, (serial, gone)


def test_a_version_of_a_table_is_learned_once_and_older_ones_never() -> None:
    view, me = View(0, final=True), Peer("b", 0, 0, 1)
    for version in (FAR + 5, FAR + 7):
        view.add_table(version, (), {}, me)
    wanted = {version: view.wants_table(version) for version in (7, FAR + 5, FAR + 6, FAR + 7, FAR + 8)}
    assert [version for version, is_wanted in wanted.items() if is_wanted] == [FAR + 8]
    assert view.known_table == FAR + 7
    assert view.wants_table(6), "the latest version was a mistake"
    assert view.known_table == 0


def test_the_latest_tables_of_a_peer_are_kept() -> None:
    view, me = View(0, final=True), Peer("b", 0, 0, 1)
    for version in range(1, KEPT_TABLES + 2):
        view.add_table(version, (), {}, me)
        assert list(view.tables) == list(range(max(1, version - KEPT_TABLES + 1), version + 1))


def test_a_peer_counts_us_by_its_latest_table() -> None:
    view, me, other = View(0, final=True), Peer("b", 0, 0, 1), Peer("a", 0, 0, 1)
    for version, members, counts_us in ((1, [other], False), (2, [other, me], True), (3, [me], True)):
        view.add_table(version, tuple(Entry(peer.site, peer) for peer in members), {}, me)
        assert view.counts_us is counts_us


def test_a_digest_is_agreed_on_once() -> None:
    view = View(0, final=True)
    assert [view.agree(digest) for digest in (5, 5, 6)] == [True, False, True]


def copy(life: int) -> Copy:
    """A batch of a for that life of b."""
    vector = pack_whole([0, 0])
    names = (Name("a", 0), Name("b", life))
    return Copy(0, names, 0, pack_bitmap({1}, 2), pack_numbers([0]), vector, vector, pack([b"x"]))


def test_a_copy_that_comes_twice_is_not_kept() -> None:
    group = Group(3)
    for duplicates in (0, 1):
        group.give("b", Received("a", copy(life=0)))
        assert group.figure("b", "duplicates") == duplicates
    assert (group.peer("b", "a").stream.received, group.peer("b", "a").stream.ahead) == (1, {})


def test_a_copy_for_an_earlier_life_of_ours_is_passed_over() -> None:
    group = Group(3)
    group.give("b", Received("a", copy(life=5)))
    assert (group.figure("b", "ignored"), group.peer("b", "a").stream.received) == (0, 0)


def test_the_first_answer_to_a_version_of_our_table_counts() -> None:
    """What a peer has sent later does not show that it had sent that before a batch came."""
    claims = Claims()
    assert [claims.note_answer(version, number) for version, number in ((2, 5), (2, 9), (1, 9))] == [
        True,
        False,
        False,
    ]
    assert [claims.most_sent(version) for version in (1, 2)] == [5, FOREVER]


def test_only_the_latest_word_of_a_member_on_departed_lives_counts() -> None:
    """A control message that was overtaken does not say whether its sender has all of them by now."""
    group = Group(3)
    peer = group.peer("b", "a")
    told = [
        (5, True, 1, True),
        (4, False, 0, True),
        (6, True, 0, False),
        (7, False, 1, False),
        (8, True, 2, False),
    ]
    for serial, final, has_all, expected in told:
        group.give("b", Received("a", control(serial=serial, final=final, targets=for_b(0, 1, has_all))))
        assert peer.view.final is expected, serial


def test_of_two_members_that_exclude_one_another_the_one_with_fewer_members_gives_in() -> None:
    group = Group(3)
    group.give("b", Suspected("a"))
    end = (Name("b", 0, gone=True),)
    for members, begun_anew in ((2, 0), (3, 1)):
        group.give("b", Received("a", control(members=members, over=end)))
        assert group.figure("b", "begun_anew") == begun_anew, members


def test_an_end_that_is_told_in_our_own_name_is_malformed() -> None:
    end = (Name("b", 0, gone=True),)
    group = hostile(control(members=9, over=end), sender="b")
    assert group.figure("b", "begun_anew") == 0


def test_a_false_end_does_not_hide_a_true_one() -> None:
    group = Group(3)
    for begun_anew, life in ((1, FAR_LIFE), (1, FAR_LIFE), (2, 1), (2, FAR_LIFE)):
        group.give("b", Received("a", control(over=(Name("b", life, gone=True),))))
        assert group.figure("b", "begun_anew") == begun_anew, life


def test_holdings_of_an_unknown_life_do_not_make_it_present() -> None:
    group = Group(3)
    group.give("b", Received("a", Holds(0, 0, (Holding(Name("z", 5), (0,)),))))
    assert set(group.members["b"]._state.peers.present) == {"a", "c"}
    assert group.figure("b", "holes") == 0


def test_invented_members_are_bounded_and_members_that_speak_find_room() -> None:
    group = Group(3)
    for version in range(2, 8):
        invented = tuple(Name(f"z{version}-{index}", 0) for index in range(MOST_NAMES))
        group.give(
            "b", Received("a", control(table=version, serial=version, names=(Name("a", 0), *invented)))
        )
    state = group.members["b"]._state
    assert len(state.peers.present) <= MOST_NAMES // 2 + 2
    group.give("b", Received("y", Leave(7)))
    assert state.lives.over["y"].life == 7


def test_a_member_that_speaks_finds_room_among_invented_ones_that_are_gone() -> None:
    """Those of which batches are held keep theirs."""
    group = Group(3)
    peers = group.members["b"]._state.peers
    group.give("b", Received("a", data(number=3)))
    group.give("b", Received("a", Leave(0)))
    for index in range(MOST_NAMES):
        group.give("b", Received(f"z{index}", Leave(0)))
        assert len(peers.departed) == peers.room.lives - len(peers.present)
    assert peers.room.bytes <= TABLE_BYTES
    group.give("b", Received("y", control(life=7)))
    assert group.peer("b", "y").heard
    assert peers.find("a", 0) is not None
    assert peers.room.lives > MOST_NAMES // 2, "no more are given up than it takes"


def test_the_lives_that_are_over_are_bounded_by_one_rule_for_all() -> None:
    one, other = Group(2).members["a"], Group(2).members["a"]
    lives = [Name(f"z{index}", index, gone=True) for index in range(2 * MOST_NAMES)]
    for member, order in ((one, lives), (other, lives[::-1])):
        for begin in range(0, len(order), 100):
            over = tuple(order[begin : begin + 100])
            member.handle(
                1, Received("b", control(serial=begin + 1, targets=b"\0", ack=pack_whole([0, 0]), over=over))
            )
    assert one._state.lives.over.keys() == other._state.lives.over.keys()
    assert len(one._state.lives.over) == MOST_NAMES
    assert one._state.lives.digest == other._state.lives.digest


def test_names_that_were_seen_are_bounded() -> None:
    member = Group(2).members["a"]
    for index in range(5 * MOST_NAMES):
        member._state.lives.note_site(f"z{index}")
    assert len(member._state.lives.seen) == 4 * MOST_NAMES
    for index in range(5 * MOST_NAMES):
        member._state.lives.note_heard(f"z{index}", 1)
    assert len(member._state.lives.heard) == 4 * MOST_NAMES


# Lies, and how they end


@pytest.mark.parametrize("far", [5, FAR_LIFE, LARGEST_LIFE - 1 - (2 << SPELL_BITS)])
def test_a_life_that_never_was_and_is_said_to_be_over_does_not_exclude_a_member(far: int) -> None:
    group = join(*"abcd")
    lie(group, control_of(group, over=(Name("a", life_of(group, "a") + far, gone=True),)), "b", "c")
    group.crash("d")
    group.pass_time(SILENCE_MS)
    assert_works(group, *"abc")
    assert life_of(group, "a") <= (1 << SPELL_BITS) + 10
    assert group.spells("b") == group.spells("c") == "+"


@pytest.mark.parametrize("gone", [False, True])
def test_a_life_that_never_was_and_is_named_in_a_table_does_not_exclude_a_member(gone: bool) -> None:
    group = join(*"abcd")
    names = (Name("d", life_of(group, "d")), Name("a", life_of(group, "a") + FAR_LIFE, gone=gone))
    lie(group, control_of(group, table=9, names=names), "b", "c")
    group.pass_time(100)
    group.crash("d")
    group.pass_time(SILENCE_MS)
    assert_works(group, *"abc")
    assert group.spells("b") == "+"


def test_what_is_said_of_a_member_again_and_again_is_not_believed_against_its_own_voice() -> None:
    group = join(*"abcd")
    claim = control_of(group, over=(Name("a", FAR_LIFE, gone=True),))
    lie(group, claim, "b", "c")
    group.pass_time(300)
    assert group.figure("a", "begun_anew") == 1
    lie(group, claim, "b", "c")
    group.pass_time(300)
    assert group.figure("a", "begun_anew") == 1
    for _ in range(3):
        lie(group, claim, "a")
        group.pass_time(300)
    assert group.figure("a", "begun_anew") == 2
    group.crash("d")
    group.pass_time(SILENCE_MS)
    assert_works(group, *"abc")


def test_invented_lives_that_are_over_do_not_push_out_present_ones() -> None:
    group = join(*"abcd")
    for begin in (0, MOST_NAMES):
        over = tuple(Name(f"z{index}", FAR_LIFE, gone=True) for index in range(begin, begin + MOST_NAMES))
        lie(group, control_of(group, serial=begin + 9000, over=over), "a", "b", "c")
    group.pass_time(100)
    assert len(group.members["b"]._state.lives.over) == MOST_NAMES
    assert [group.spells(name) for name in "abc"] == ["+"] * 3
    assert_works(group, *"abcd")


def test_a_life_that_is_over_stays_so_whatever_others_are_said_to_be() -> None:
    group = join(*"abcd")
    life = life_of(group, "d")
    group.crash("d")
    group.pass_time(1000)
    over = tuple(Name(f"z{index}", FAR_LIFE, gone=True) for index in range(MOST_NAMES))
    lie(group, control_of(group, "c", serial=9000, over=over), "b", sender="c")
    assert "d" not in group.members["b"]._state.lives.over
    lie(group, Leave(life), "b")
    lie(group, control_of(group), "b")
    assert "d" not in group.members["b"]._state.peers.present


def test_what_a_member_says_fits_a_pdu_whatever_names_were_invented() -> None:
    group = join(*"abcd")
    for turn in range(8):
        names = [Name(chr(0x10000 + turn) + chr(0x10000 + index) * 63, 1) for index in range(700)]
        lie(
            group,
            control_of(
                group, serial=9000 + turn, table=100 + turn, names=(Name("d", life_of(group, "d")), *names)
            ),
            "a",
            "b",
            "c",
        )
        lie(group, control_of(group, serial=9100 + turn, over=tuple(names[:350])), "a", "b", "c")
    group.send("a", None, b"x" * (LARGEST_BATCH_BYTES - 64))
    group.lost = lambda _source, _target, pdu: isinstance(pdu, Data)
    group.pass_time(1000)
    said = [pdu for name in "abc" for kind in PDUS for pdu in sent_pdus(group.effects[name], kind)]
    assert any(isinstance(pdu, Control) and pdu.over and len(pdu.over) > 100 for pdu in said)
    assert max(len(CODEC.encode(pdu)) for pdu in said) <= MAXIMUM_BODY_BYTES


def test_a_table_ends_no_life_that_is_present() -> None:
    """That is for the lives that are over to say; of an unknown life a table is believed."""
    group = Group(3)
    names = (Name("a", 0), Name("b", 0), Name("c", 0, gone=True), Name("z", 3, gone=True))
    group.give("b", Received("a", control(table=2, names=names)))
    state = group.members["b"]._state
    assert set(state.peers.present) == {"a", "c"}
    assert set(state.lives.over) == {"z"}


def test_of_each_site_a_few_departed_lives_are_kept() -> None:
    group = Group(3)
    departed = group.members["b"]._state.peers.departed
    for life in range(MOST_LIVES):
        group.give("b", Received("y", Leave(life)))
    assert [peer.life for peer in departed] == list(range(MOST_LIVES))
    group.give("b", Received("y", Leave(MOST_LIVES)))
    assert [peer.life for peer in departed] == list(range(1, MOST_LIVES + 1))
    group.give("b", Received("z", Leave(0)))
    assert len(departed) == MOST_LIVES + 1


def test_what_an_ended_life_sends_does_not_disprove_a_later_one() -> None:
    """b has c's new life by a's table; a PDU of c's earlier life was slow."""
    group = Group(3)
    names = (Name("a", 0), Name("b", 0), Name("c", 5))
    group.give("b", Received("a", control(table=2, names=names)))
    group.give("b", Received("c", Leave(0)))
    assert group.peer("b", "c").life == 5


def test_lives_that_a_liar_lives_through_are_bounded() -> None:
    group = join(*"abcd")
    first = life_of(group, "d")
    for step in range(1, 60):
        lie(group, Leave(first + step), "b")
    assert len(group.members["b"]._state.peers.departed) < 20
    group.crash("d")
    group.pass_time(SILENCE_MS)
    assert_works(group, *"abc")


def test_a_rejoining_member_is_not_present_before_it_has_heard_the_others() -> None:
    """d says to a that its life is over; what b sends meanwhile is for that life, and a is cut off."""
    group = join(*"abcd")
    lie(group, control_of(group, over=(Name("a", life_of(group, "a"), gone=True),)), "a")
    group.travelling.clear()
    group.cut.add("a")
    group.pass_time(100)
    group.send("b", "abc")
    group.pass_time(100)
    assert group.spells("a") == "+-"
    group.cut.clear()
    group.pass_time(200)
    assert group.spells("a") == "+-+"
    assert group.delivered("b") == group.delivered("c") == ["b0"]
    assert_works(group, *"abc")


def test_a_rejoining_member_sends_nothing_to_a_life_that_never_was() -> None:
    """d tells a of a life of c that there is not, and c is slow to say so."""
    group = join(*"abcd")
    slow = True
    group.lost = lambda source, target, _pdu: slow and {source, target} == {"a", "c"}
    lie(group, control_of(group, over=(Name("a", life_of(group, "a"), gone=True),)), "a")
    names = tuple(Name(name, life_of(group, name) + (name == "c")) for name in "abcd")
    group.give("a", Received("d", control_of(group, table=1 << 20, names=names)))
    group.pass_time(400)
    assert group.spells("a") == "+-"
    slow = False
    group.pass_time(600)
    assert group.spells("a") == "+-+"
    assert_works(group, *"abc")
