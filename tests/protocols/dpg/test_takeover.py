"""Who numbers: what members conclude from claims, silence and leases of the tag sequencer service."""

from functools import partial
from itertools import pairwise

import pytest

from antiphon.core.time import MILLISECOND_NS, SECOND_NS
from antiphon.core.wire import Pdu
from antiphon.protocols.dpg.pdus import Message
from antiphon.protocols.dpg.services.tag_sequencer.lease import LONGEST_NS, Lease
from antiphon.protocols.dpg.services.tag_sequencer.pdus import Answer, Claim, Epoch, Numbered, TagRequest
from antiphon.protocols.dpg.tag_lists import pack_tags
from tests.protocols.dpg.numbering import NAMES, all_tags, begun, judge, others
from tests.protocols.harness.dpg_channel import message
from tests.protocols.harness.tag_sequencer_group import Group, Link, Member

TAKEOVER_MS = 90
"""No halt may be longer when a sequencer is lost."""


class TestTakeover:
    @pytest.mark.parametrize(
        ("how", "most_ms"), [("kill", TAKEOVER_MS), ("stop", TAKEOVER_MS), ("leave", 10), ("restart", 40)]
    )
    def test_no_long_halt_when_the_sequencer_is_lost(self, how: str, most_ms: int) -> None:
        group = begun()
        group.send_all(others(group), 300, 2)
        group.run(200)
        old = group.sequencer()
        begin = group.now
        {"kill": group.kill, "stop": group.stop, "leave": group.leave, "restart": group.kill}[how](old)
        if how == "restart":
            group.run(2)
            group.come_back(old)
        group.run(398)
        living = [member for name, member in group.members.items() if name != old]
        for member in living:
            times = sorted({time_ns for time_ns, _, _ in member.told if time_ns >= begin - MILLISECOND_NS})
            halts = [after - before for before, after in pairwise(times)]
            assert max(halts) < most_ms * MILLISECOND_NS
        group.run(600)
        assert len({tuple(member.order()) for member in living}) == 1
        assert all_tags(group) <= set(living[0].order()) | set(group.sent[f"{old}/0"] if old != "a" else ())
        assert len([name for name in group.sequencers() if name != old]) == 1
        judge(group)

    def test_numbers_that_only_one_has_seen_survive(self) -> None:
        group = begun(seed=4)
        old = group.sequencer()
        witness, claimant = others(group)[:2]
        group.drops = lambda who, to, pdu: who == old and to != witness and isinstance(pdu, Numbered)
        tags = [group.send(witness) for _ in range(20)]
        group.run(3)
        assert group.members[witness].order()[-20:] == tags
        group.kill(old)
        late = group.send(claimant)
        group.run(120)
        for member in group.living():
            assert member.order()[-21:] == [*tags, late]
        told_ns = min(at_ns for at_ns, who, pdu in group.carried if who != old and isinstance(pdu, Numbered))
        asked = [pdu for at_ns, _, pdu in group.carried if at_ns > told_ns and isinstance(pdu, TagRequest)]
        assert not asked, "all that some lacked was told at once"
        judge(group)

    def test_a_new_sequencer_numbers_what_it_has_received_and_need_not_be_asked(self) -> None:
        group = begun(seed=4)
        old, senders = group.sequencer(), others(group)
        group.kill(old)
        tags = {group.send(name) for name in senders}
        group.run(120)
        assert set(group.living()[0].order()[-len(tags) :]) == tags
        told_ns = min(at_ns for at_ns, who, pdu in group.carried if who != old and isinstance(pdu, Numbered))
        assert not [pdu for at_ns, _, pdu in group.carried if at_ns > told_ns and isinstance(pdu, TagRequest)]

    def test_a_claimant_that_stood_still_reads_the_answers_before_it_numbers(self) -> None:
        """An event loop may fire late timers before it has read all that came meanwhile."""
        group = begun(seed=4)
        old = group.sequencer()
        witness, claimant = others(group)[:2]
        group.drops = lambda who, to, pdu: who == old and to != witness and isinstance(pdu, Numbered)
        tag = group.send(witness)
        group.run(3)
        group.kill(old)
        group.drops = lambda *_: False
        late = group.send(claimant)
        member = group.members[claimant]
        group.run_until(lambda: member.service._claim is not None, 120)
        group.stop(claimant)
        group.run(100)
        backlog, member.backlog = member.backlog, []
        group.resume(claimant)
        for act in backlog:
            act()
        group.run(200)
        for each in group.living():
            assert each.order()[-2:] == [tag, late]
        judge(group)

    def test_members_that_hear_nothing_for_a_moment_do_not_number_alone(self) -> None:
        group = begun(NAMES[:3])
        group.drops = lambda *_: True
        for name in group.members:
            group.send(name)
        group.run(200)
        group.drops = lambda *_: False
        group.run(600)
        judge(group)
        assert len({tuple(member.order()) for member in group.members.values()}) == 1

    def test_the_last_of_several_members_goes_on_alone(self) -> None:
        group = begun(NAMES[:3])
        last = others(group)[0]
        for name in group.members:
            if name != last:
                group.kill(name)
        tag = group.send(last)
        group.run(700)
        assert group.members[last].order()[-1] == tag

    def test_a_number_given_anew_does_not_move_what_has_its_place(self) -> None:
        group = Group(["a"])
        member = group.members["a"]
        group.hand_in(member, "y", Numbered(1, 1, 0, 1, pack_tags([16, 32, 48])))
        del member.told[:]
        group.hand_in(member, "z", Numbered(2, 2, 0, 2, pack_tags([64, 32, 80])))
        assert group.arcs() == [(16, 64, True), (64, 80, True)]
        assert member.service.figures()["conflicts"] == 2
        group.hand_in(member, "y", Numbered(1, 1, 0, 4, pack_tags([96])))
        assert 96 not in member.known, "no member follows a past epoch"

    def test_a_number_given_anew_to_the_same_tag_is_no_conflict(self) -> None:
        group = Group(["a"])
        member = group.members["a"]
        group.hand_in(member, "y", Numbered(1, 1, 0, 1, pack_tags([16, 32])))
        group.hand_in(member, "z", Numbered(2, 2, 0, 2, pack_tags([32, 48])))
        assert member.order() == [16, 32, 48]
        judge(group)

    def test_a_sequencer_that_stood_still_asks_before_it_numbers(self) -> None:
        group = begun()
        old = group.sequencer()
        one, another = others(group)[:2]
        group.stop(old)
        group.drops = lambda who, to, pdu: who == one and to != old and isinstance(pdu, Message)
        group.send(one)  # only the one that stands still has it: to the others it comes second
        group.run(1)
        group.drops = lambda *_: False
        group.send(another)
        group.members[another].service._begin_claim(group.now)
        group.run(300)
        assert len(group.sequencers()) == 2, "it still takes itself for the sequencer"
        group.resume(old)
        group.run(400)
        assert group.sequencers() == [another]
        judge(group)
        assert len({tuple(member.order()) for member in group.members.values()}) == 1

    def test_a_sequencer_that_is_stopped_in_the_midst_of_a_step_has_ordered_nothing(self) -> None:
        group = begun()
        old, another = group.sequencer(), others(group)[0]
        group.drops = lambda who, _to, _pdu: who == old
        tag = group.send(old)  # it gets a number, but nothing goes out before the process is stopped
        group.stop(old)
        assert tag not in group.members[old].tags()
        group.drops = lambda *_: False
        group.send(another)
        group.run(300)
        assert another in group.sequencers()
        group.resume(old)
        group.run(400)
        judge(group)
        orders = {tuple(member.order()) for member in group.members.values()}
        assert len(orders) == 1
        assert tag in orders.pop()

    def test_a_sequencer_whose_announcement_waits_on_its_host_has_ordered_nothing(self) -> None:
        group = begun()
        old, another = group.sequencer(), others(group)[0]
        group.hold_back(old)
        tag = group.send(old)
        group.send(another)
        group.run(20)
        assert tag not in group.members[old].tags()
        group.run(300)
        assert another in group.sequencers(), "to the others it was silent"
        group.let_go(old)
        group.run(400)
        judge(group)
        orders = {tuple(member.order()) for member in group.members.values()}
        assert len(orders) == 1
        assert tag in orders.pop()

    @pytest.mark.parametrize("waits_ms", [60, 5000])
    def test_a_sequencer_asks_whether_it_still_is_after_an_announcement_that_left_late(
        self, waits_ms: int
    ) -> None:
        group = begun()
        old = group.sequencer()
        lease_ns = group.members[old].service.figures()["lease_ns"]
        del group.carried[:]
        group.hold_back(old)
        tag = group.send(old)
        group.run(waits_ms)
        group.let_go(old)
        group.run(50)
        assert group.said(Claim), "another may have numbered the same meanwhile"
        assert group.sequencer() == old
        assert group.members[old].order()[-1] == tag
        assert group.members[old].service.figures()["lease_ns"] > lease_ns, "the others must wait longer"
        judge(group)

    def test_a_sequencer_that_stood_still_unnoticed_goes_on(self) -> None:
        group = begun()
        old = group.sequencer()
        group.stop(old)
        group.run(300)
        group.resume(old)
        group.run(50)
        tag = group.send(others(group)[0])
        group.run(50)
        assert group.sequencer() == old
        assert group.members[old].order()[-1] == tag

    def test_one_that_returns_does_not_claim_or_number(self) -> None:
        group = begun(["a", "b"])
        old = group.sequencer()
        other = others(group)[0]
        group.drops = lambda *_: True
        group.stop(old)
        group.members[old].pending[16] = message(16)
        group.run(1300)
        group.drops = lambda *_: False
        group.send(other)
        group.run(200)
        group.carried.clear()
        group.resume(old)
        group.run(60)
        group.kill(other)
        group.run(30)
        assert not group.members[old].taking_part
        assert group.sequencers() == []
        spoken = {type(pdu) for _, who, pdu in group.carried if who == old}
        assert not spoken & {Claim, Numbered, TagRequest}
        group.run(30)
        tag = group.send(old)
        group.run(80)
        assert group.sequencers() == [old]
        assert tag in group.members[old].known

    def test_the_greater_of_two_claims_wins(self) -> None:
        group = begun()
        old = group.sequencer()
        group.kill(old)
        rest = others(group)[1:]
        for name in rest:
            group.members[name].service._begin_claim(group.now)
        group.send_all(rest, 20, 2)
        group.run(200)
        assert group.sequencer() == max(rest)
        judge(group)
        assert all(set(member.order()) == all_tags(group) for member in group.living())

    def test_nobody_numbers_before_a_rival_could_be_heard(self) -> None:
        group = Group(NAMES, link=Link(least_ns=2_000_000))
        for name, member in group.members.items():
            group.send(name)
            member.service._begin_claim(0)
        group.run(300)
        assert group.sequencer() == max(NAMES)
        judge(group)
        assert {tuple(member.order()) for member in group.members.values()} == {
            tuple(group.members["a"].order())
        }

    def test_one_that_stood_still_itself_does_not_take_the_sequencer_for_lost(self) -> None:
        group = begun()
        member = group.members[others(group)[0]]
        group.send(member.site)
        group.stop(member.site)
        group.run(200)
        assert member.overdue, "its timers are late, and what came meanwhile is still to be read"
        member.stopped_at = None
        for timer in member.overdue:
            member.service.on_timer(group.now, timer)
        assert member.service.figures()["claims"] == 0

    def test_a_sequencer_that_lives_but_numbers_nothing_is_replaced_in_the_end(self) -> None:
        group = begun()
        old, sender = group.sequencer(), others(group)[0]
        group.drops = lambda who, _, pdu: who == old and not isinstance(pdu, Message)
        for index in range(60):
            group.at(group.now + 5 * index * MILLISECOND_NS, partial(group.send, old))
        tag = group.send(sender)
        group.run(150)
        assert group.sequencers() == [old], "its messages are heard"
        group.run(150)
        assert tag in group.members[sender].known
        assert old not in group.sequencers()

    def test_what_a_sender_left_unnumbered_is_void_when_it_begins_anew(self) -> None:
        group = begun()
        old, sender = group.sequencer(), others(group)[-1]
        group.drops = lambda _, to, pdu: to == old and isinstance(pdu, Message)
        lost = group.send(sender)
        group.run(1)
        group.kill(sender)
        group.run(20)
        group.drops = lambda *_: False
        group.come_back(sender)
        group.run(120)
        group.send(sender)
        group.run(5)
        group.leave(old)
        group.run(50)
        assert all(lost not in member.known for member in group.members.values())

    def test_a_sequencer_that_stands_still_at_times_is_given_more_time(self) -> None:
        lease = Lease(40 * MILLISECOND_NS)
        assert lease.ns == 40 * MILLISECOND_NS
        lease.stood_still(0, 30 * MILLISECOND_NS)
        assert lease.ns == 90 * MILLISECOND_NS
        for second in range(1, 60):
            lease.stood_still(second * SECOND_NS, 0)
        assert lease.ns < 41 * MILLISECOND_NS
        lease.stood_still(60 * SECOND_NS, 100 * SECOND_NS)
        assert lease.ns == LONGEST_NS

    def test_others_keep_to_the_lease_that_they_were_told(self) -> None:
        group = begun(["a", "b", "c"])
        old, sender = group.sequencer(), others(group)[0]
        for name in others(group):
            told = Numbered(group.members[name].service.figures()["epoch"], 1, 300 * MILLISECOND_NS, 1, b"")
            group.hand_in(group.members[name], old, told)
        group.kill(old)
        group.send(sender)
        group.run(250)
        assert group.sequencers() == []
        group.run(350)
        assert len(group.sequencers()) == 1

    def test_a_message_that_came_long_ago_is_not_numbered_by_a_new_sequencer(self) -> None:
        group = begun()
        old, sender = group.sequencer(), others(group)[0]
        group.drops = lambda _, to, pdu: to == old and isinstance(pdu, Message)
        lost = group.send(sender)
        group.run(1)
        group.kill(sender)
        group.run(600)
        group.leave(old)
        group.run(50)
        assert len(group.sequencers()) == 1
        assert all(lost not in member.known for member in group.members.values())

    def test_a_farewell_that_overtakes_the_last_numbers_waits_for_them(self) -> None:
        group = begun(["a", "b"])
        old, new = group.sequencer(), others(group)[0]
        held: list[Numbered] = []

        def holds_up(_source: str, to: str, pdu: Pdu) -> bool:
            if to == new and isinstance(pdu, Numbered):
                held.append(pdu)
                return True
            return False

        group.drops = holds_up
        group.send(old)
        group.leave(old)
        group.run(3)
        group.drops = lambda *_: False
        assert held
        assert group.sequencers() == [], "it knows of numbers that it lacks"
        for pdu in held:
            group.hand_in(group.members[new], old, pdu)
        assert group.members[new].service.figures()["stale"] == 0, "they still count"
        group.send(new)
        group.run(60)
        assert group.sequencers() == [new], "and the departed member is still gone"
        judge(group)

    def test_claims_of_all_at_the_beginning_make_one_order(self) -> None:
        for seed in range(20):
            group = Group(NAMES, seed, link=Link(loss=0.1, jitter_ns=2_000_000))
            for name in NAMES:
                group.send(name)
            group.run(400)
            assert len(group.sequencers()) == 1
            judge(group)

    def test_an_old_sequencer_that_missed_the_claim_is_told(self) -> None:
        group = begun()
        old = group.sequencer()
        new = others(group)[0]
        group.drops = lambda _, to, pdu: to == old and not isinstance(pdu, Answer)
        group.members[new].service._begin_claim(group.now)
        group.run(50)
        assert set(group.sequencers()) == {old, new}
        group.send(old)
        group.run(50)
        assert group.sequencers() == [new]

    def test_the_sequencer_is_not_replaced_while_all_is_well(self) -> None:
        group = begun(link=Link(loss=0.02, jitter_ns=500_000))
        group.send_all(NAMES, 300, 5)
        group.run(2000)
        assert len(group.said(Claim)) <= 5
        assert sum(member.service.figures()["claims"] for member in group.members.values()) == 1


class TestUsurpers:
    """A member that has sent no message has no say while a sequencer works."""

    @staticmethod
    def working() -> tuple[Group, Member, int]:
        group = Group(["a", "b", "c"])
        group.send_all(["a", "b"], 10, 2)
        group.run(30)
        (sequencer,) = {member.service._epoch.sequencer for member in group.members.values()}
        follower = next(member for name, member in group.members.items() if name != sequencer)
        return group, follower, follower.service._epoch.counter

    @pytest.mark.parametrize("has_sent", [False, True])
    @pytest.mark.parametrize("leads", [False, True], ids=["a follower", "the sequencer"])
    def test_a_claim(self, has_sent: bool, leads: bool) -> None:
        group, member, counter = self.working()
        if leads:
            member = group.members[member.service._epoch.sequencer]
        member.silent = set() if has_sent else {"x"}
        member.service._patience.heard_ns = group.now
        group.hand_in(member, "x", Claim(counter + 1, 0))
        assert (member.service._epoch.sequencer == "x") is has_sent

    def test_of_a_sequencer_that_is_silent(self) -> None:
        group, member, counter = self.working()
        member.silent = {"x"}
        patience = member.service._patience
        patience.heard_ns = group.now - patience.lease_ns
        group.hand_in(member, "x", Claim(counter + 1, 0))
        assert member.service._epoch.sequencer != "x"
        patience.heard_ns -= 1
        group.hand_in(member, "x", Claim(counter + 2, 0))
        assert member.service._epoch.sequencer == "x"

    def test_of_a_place_that_is_vacant_or_before_it_takes_part(self) -> None:
        for name in ("_vacant", "_taking_part"):
            group, member, counter = self.working()
            member.silent = {"x"}
            member.service._patience.heard_ns = group.now
            setattr(member.service, name, name == "_vacant")
            group.hand_in(member, "x", Claim(counter + 1, 0))
            assert member.service._epoch.sequencer == "x"

    def test_a_sequencer_itself_goes_on_to_a_later_epoch(self) -> None:
        group, member, counter = self.working()
        sequencer = member.service._epoch.sequencer
        member.silent = {sequencer}
        group.hand_in(member, sequencer, Claim(counter + 1, 0))
        assert member.service._epoch == Epoch(counter + 1, sequencer)
