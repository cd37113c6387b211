"""The tag sequencer service among garbage and lies: nothing raises, all is bounded."""

from random import Random
from typing import Any

import pytest
from msgspec.msgpack import encode

from antiphon.core.errors import UsageError
from antiphon.core.fields import LONGEST_NAME, NUMBER_LIMIT
from antiphon.core.wire import Packet, Pdu
from antiphon.protocols.dpg.pdus import MOST_TAGS, ORIGIN, TAG_LIMIT, Farewell
from antiphon.protocols.dpg.services.tag_sequencer import SequencerOptions
from antiphon.protocols.dpg.services.tag_sequencer.claim_round import ClaimRound
from antiphon.protocols.dpg.services.tag_sequencer.follower import MOST_DISPLACED, MOST_UNNUMBERED
from antiphon.protocols.dpg.services.tag_sequencer.number_requests import MOST_ASKED
from antiphon.protocols.dpg.services.tag_sequencer.numbers import Numbers
from antiphon.protocols.dpg.services.tag_sequencer.pdus import (
    FIRST_NUMBER,
    LAST_NUMBER,
    LONGEST_LEAP,
    NO_EPOCH,
    Answer,
    Ask,
    Claim,
    Epoch,
    Numbered,
    TagRequest,
    pack_note,
)
from antiphon.protocols.dpg.tag_lists import pack_tags
from tests.protocols.dpg.numbering import NAMES, begun, others
from tests.protocols.harness.dpg_channel import message, report
from tests.protocols.harness.tag_sequencer_group import CODEC


class TestHostile:
    def test_garbage_is_counted_and_changes_nothing(self) -> None:
        group = begun()
        member = group.members[others(group)[0]]
        counter = member.service.figures()["epoch"]
        sequencer = group.sequencer()
        before = list(member.told)
        newest = member.service._numbers.newest
        garbage: list[Pdu] = [
            Numbered(counter, 1, 0, 5, b"odd"),
            Numbered(counter, 1, 0, 5, pack_tags([ORIGIN])),
            Numbered(counter, 1, 0, 5, pack_tags([TAG_LIMIT])),
            Claim(counter + LONGEST_LEAP + 1, 0),
            Answer(counter + LONGEST_LEAP + 1, "nobody", 0, 1, b""),
            Answer(counter + 1, "", 0, 1, b""),
            Answer(counter, sequencer, 0, newest + LONGEST_LEAP + 1, b""),
            Answer(counter, sequencer, 0, 1, b"odd"),
            TagRequest(b"odd", 1, 0),
            TagRequest(pack_tags([ORIGIN]), 1, 0),
            report(b"not a note"),
            report(b"\x93\x05\xa1x\xff"),
            report(encode((counter, "x" * (LONGEST_NAME + 1), 1))),
            report(encode((NUMBER_LIMIT, "x", 1))),
            report(encode((counter, "x", NUMBER_LIMIT))),
        ]
        for pdu in garbage:
            ignored = member.service.figures()["ignored"]
            group.hand_in(member, sequencer, pdu)
            assert member.service.figures()["ignored"] == ignored + 1, pdu
        assert member.told == before
        assert member.service.figures()["epoch"] == counter

    def test_nothing_that_is_said_raises_or_stops_the_group(self) -> None:
        for seed in range(30):
            random = Random(seed)
            group = begun(NAMES[:3], seed=seed)

            def number(random: Random = random) -> int:
                return random.choice(
                    (0, 1, 2, 3, 5, 20, 1 << 31, 1 << 33, NUMBER_LIMIT // 2 - 1, NUMBER_LIMIT - 1)
                )

            def tags(random: Random = random) -> bytes:
                return b"".join(
                    random.choice((bytes(8), random.randbytes(8), (16).to_bytes(8)))
                    for _ in range(random.randrange(5))
                )

            for _ in range(100):
                pdu: Pdu = random.choice((
                    TagRequest(tags(), number(), number()),
                    Numbered(number(), number(), number(), number(), tags()),
                    Claim(number(), number()),
                    Answer(number(), random.choice(("", "a", "b", "x" * 64)), number(), number(), tags()),
                    Ask(),
                    Farewell(number()),
                ))  # fmt: skip
                for member in group.members.values():
                    sender = random.choice(("a", "b", "c", "x"))
                    if sender != member.site and isinstance(CODEC.decode(CODEC.encode(pdu)), Packet):
                        group.hand_in(member, sender, pdu)
                group.run(random.choice((0, 0.1, 5)))
            group.run(500)
            wanted = [group.send(name) for name in NAMES[:3]]
            group.run(1500)
            for member in group.members.values():
                assert not member.pending
            assert all(wanted)

    def test_a_number_at_the_end_of_all_numbers_is_followed_by_the_first(self) -> None:
        """The liar is the sequencer; once it is silent, another is, and its numbers can be told."""
        group = begun(NAMES[:3])
        counter = max(member.service._epoch.counter for member in group.members.values()) + 1
        for first in (LAST_NUMBER, NUMBER_LIMIT // 2 - MOST_TAGS):
            for member in group.members.values():
                group.hand_in(member, "x", Numbered(counter, first, 0, first, pack_tags([16, 32])))
        sent = [group.send(name) for name in NAMES[:3]]
        group.run(1500)
        assert all(not member.pending for member in group.members.values())
        assert all(sent)
        newest = {member.service._numbers.newest for member in group.members.values()}
        assert max(newest) < FIRST_NUMBER + 20

    def test_numbers_go_on_as_long_as_there_is_room(self) -> None:
        group = begun(NAMES[:3])
        counter = max(member.service._epoch.counter for member in group.members.values()) + 1
        for member in group.members.values():
            group.hand_in(member, "x", Numbered(counter, 1, 0, LAST_NUMBER - 1, pack_tags([16])))
        group.send("a")
        group.run(1500)
        assert {member.service._numbers.newest for member in group.members.values()} == {LAST_NUMBER}

    def test_who_alone_believes_in_an_epoch_far_ahead_gives_in_to_the_others(self) -> None:
        group = begun(NAMES[:4])
        misled = group.members[others(group)[0]]
        misled.service._epoch = misled.service._epoch._replace(counter=0)  # it knows of none
        group.hand_in(misled, "x", Claim(1 << 40, 0))
        assert misled.service.figures()["epoch"] == 1 << 40
        group.send(misled.site)
        group.run(1500)
        assert not misled.pending
        assert len({member.service._epoch for member in group.members.values()}) == 1
        assert misled.service.figures()["epoch"] < LONGEST_LEAP

    def test_who_gives_in_to_an_epoch_that_was_its_own_claims_the_next(self) -> None:
        group = begun(NAMES[:4])
        leader = group.members[group.sequencer()]
        counter = leader.service.figures()["epoch"]
        leader.service._counter = 1 << 40
        leader.service._begin_claim(group.now)
        group.run(1000)
        group.send(leader.site)
        group.run(500)
        assert not leader.pending
        assert {member.service._epoch for member in group.members.values()} == {
            Epoch(counter + 1, leader.site)
        }

    def test_who_is_told_to_be_the_sequencer_claims_a_later_epoch_if_ever(self) -> None:
        group = begun(NAMES[:3])
        service = group.members[others(group)[0]].service
        counter = service.figures()["epoch"]
        for told, known in ((counter + 5, counter + 5), (counter + 3, counter + 5)):
            group.hand_in(
                group.members[service._member.site], "x", Answer(told, service._member.site, 0, 1, b"")
            )
            assert service._counter == known
        assert service.figures()["epoch"] == counter

    def test_a_sequencer_that_is_told_of_a_later_epoch_of_its_own_claims_one_behind_it(self) -> None:
        group = begun(NAMES[:3])
        leader = group.members[group.sequencer()]
        counter = leader.service.figures()["epoch"] + 5
        group.hand_in(leader, others(group)[0], Answer(counter, leader.site, 0, 1, b""))
        group.run(100)
        assert {member.service._epoch for member in group.members.values()} == {
            Epoch(counter + 1, leader.site)
        }

    def test_a_farewell_with_a_senseless_note_is_a_farewell_all_the_same(self) -> None:
        for note, senseless in ((b"not a note", 1), (None, 0)):
            group = begun(NAMES[:3])
            member = group.members[others(group)[0]]
            sequencer, ignored = group.sequencer(), member.service.figures()["ignored"]
            told = pack_note(member.service._epoch, 1) if note is None else note
            group.hand_in(member, sequencer, Farewell(0, told))
            assert member.service.figures()["ignored"] == ignored + senseless
            assert member.service._has_left or member.service._claim is not None

    def test_a_claim_is_not_given_up_for_an_epoch_that_leaves_no_room_for_later_ones(self) -> None:
        group = begun(NAMES[:4])
        member = group.members[others(group)[0]]
        member.service._begin_claim(group.now)
        for counter, is_refusal in ((NUMBER_LIMIT // 2 - 1, True), (NUMBER_LIMIT // 2, False)):
            claim = member.service._claim
            assert claim is not None
            claim._refusing.clear()
            group.hand_in(member, "x", Answer(counter, "x", 0, 1, b""))
            assert bool(claim._refusing) == is_refusal

    def test_one_liar_cannot_have_a_claim_given_up(self) -> None:
        claim = ClaimRound(frozenset("bc"), 5, 0, 10, is_first=False)
        claim.refuse("x", Epoch(3, "x"))
        assert claim.refused_for() == Epoch(3, "x")
        claim.hear("b", 5)
        assert claim.refused_for() is None
        claim.refuse("b", Epoch(9, "b"))
        assert claim.refused_for() is None, "it has accepted before"
        claim.refuse("c", Epoch(2, "c"))
        claim.refuse("d", NO_EPOCH)
        assert claim.refused_for() == Epoch(3, "x")
        claim.hear("c", 5)
        assert claim.refused_for() is None

    def test_a_number_far_beyond_those_known_is_not_asked_for(self) -> None:
        group = begun(NAMES[:3])
        member = group.members[others(group)[0]]
        service = member.service
        newest = service._numbers.newest
        group.hand_in(member, "x", report(pack_note(service._epoch, newest + LONGEST_LEAP + 1)))
        assert service._number_requests.told <= newest
        group.hand_in(member, "x", report(pack_note(service._epoch, newest + LONGEST_LEAP)))
        assert service._number_requests.told == newest + LONGEST_LEAP

    def test_an_answer_tells_from_behind_the_newest_whatever_the_claimant_says_to_know(self) -> None:
        numbers = Numbers(MOST_TAGS)
        numbers.add(7, 16)
        assert numbers.listed(NUMBER_LIMIT) == (8, [])
        assert numbers.listed(8) == (8, [])
        assert numbers.listed(7) == (7, [16])

    def test_one_request_is_told_a_few_numbers_only(self) -> None:
        group = begun(NAMES[:2])
        leader = group.members[group.sequencer()].service
        for _ in range(60):
            leader._numbers.add(leader._numbers.newest + 2, 16 * leader._numbers.newest)
        told: list[tuple[int, int]] = []
        announcer: Any = leader._leader.announcer
        announcer.tell = lambda _to, first, last: told.append((first, last))
        leader._leader.take_all("x", (), 3, NUMBER_LIMIT - 1)
        leader._leader.take_all("x", (), 3, 9)
        assert told == [(3, 2 + MOST_ASKED), (3, 9)]

    def test_tables_are_bounded(self) -> None:
        group = begun(["a", "b"])
        member = group.members[others(group)[0]]
        service = member.service
        for index in range(MOST_UNNUMBERED + 500):
            tag = (index + 1) * 16
            sender = f"x{index}"
            service.on_message(group.now, sender, message(tag, previous=5), after_loss=False, fresh=True)
        assert len(service._follower.unnumbered) <= MOST_UNNUMBERED
        assert len(service._neighbours) <= 4096
        leader = group.members[group.sequencer()].service
        for index in range(6000):
            told = message((index + 1) * 16, previous=5)
            leader.on_message(group.now, f"x{index}", told, after_loss=False, fresh=True)
        assert len(leader._leader.sequencer._waiting) <= 4096
        assert len(leader._leader._asked) <= 4096
        for epoch in range(2, 12):
            for first in range(1, 2000, 500):
                told_tags = [16 * (epoch * 10_000 + first + index) for index in range(500)]
                group.hand_in(member, "z", Numbered(epoch * 10, 1, 0, first, pack_tags(told_tags)))
        assert len(service._follower._displaced) <= MOST_DISPLACED

    def test_options_make_sense(self) -> None:
        for knobs in ({"repeat_ns": 0}, {"gather_ns": -1}, {"repeats": -1}, {"memory": 5}):
            with pytest.raises(UsageError):
                SequencerOptions(**knobs)  # type: ignore[arg-type]
