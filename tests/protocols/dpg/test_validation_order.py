"""What recovery, the order and peers make of another's PDUs: each case fails if a comparison is turned."""

from random import Random
from typing import Any

import pytest

from antiphon.core.effects import Absent, CutOff, Deliver, Effect, Multicast, Present, Send, Vanished
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Received, TimerFired
from antiphon.protocols.dpg import Dpg, DpgConfiguration
from antiphon.protocols.dpg.agreement import Agreement
from antiphon.protocols.dpg.order import MEMORY, TRUE_LINK, Order
from antiphon.protocols.dpg.pdus import (
    MOST_ASKED,
    MOST_TAGS,
    ORIGIN,
    TAG_LIMIT,
    Message,
    Progress,
    Request,
    Tag,
)
from antiphon.protocols.dpg.peers import MOST_SITES, Peers
from antiphon.protocols.dpg.report_merge import ReportMerge
from antiphon.protocols.dpg.reports import _run_to_root
from antiphon.protocols.dpg.services.tag_sequencer import SequencerOptions, SequencerService
from antiphon.protocols.dpg.services.tag_sequencer.number_requests import NumberRequests
from antiphon.protocols.dpg.services.tag_sequencer.numbers import Numbers
from antiphon.protocols.dpg.services.tag_sequencer.pdus import Answer, Ask, Numbered, TagRequest, read_tags
from antiphon.protocols.dpg.spells import State
from antiphon.protocols.dpg.tag_lists import pack_tags
from tests.protocols.dpg.validated import MS, hears_itself, lists_of, quiet, report
from tests.protocols.harness.dpg_channel import FakeMember
from tests.protocols.harness.dpg_group import Lan, an_order, message

# Recovery


def test_tags_that_reports_tell_no_more_are_told_to_be_gone_up_to_a_limit() -> None:
    lan = Lan("ab", history=1)
    order, recovery = lan.members["a"]._order, lan.members["a"]._recovery
    tags = tuple(range(1, MOST_ASKED + 5))
    for tag in tags:
        order.add(0, tag)
        order.incorporate(0, tag)
    recovery.on_vertices(tags)
    assert recovery.gone() == list(tags[:MOST_ASKED])


def test_tags_that_were_delivered_and_are_not_kept_are_told_to_be_gone_up_to_a_limit() -> None:
    lan = Lan("ab")
    order, recovery = lan.members["a"]._order, lan.members["a"]._recovery
    tags = tuple(range(1, MOST_ASKED + 3))
    for tag in tags:
        order.tombstones.add(tag, tag)
    recovery.on_request(0, 0, "b", tags)
    assert recovery.gone() == list(tags[:MOST_ASKED])


class Fixed(Random):
    """Draws one number."""

    drawn = 0.0

    def random(self) -> float:
        return self.drawn


def answering(sender: str = "c") -> tuple[Dpg, Any]:
    """A member that holds the body 7 of a sender, in a group of a, b, c, d, heard a moment ago."""
    lan = Lan("abcd")
    member = lan.members["a"]
    member._order.store(sender, message(7))
    for name in "bcd":
        member._peers.on_progress(lan.now, name, 0, 0)
    return member, member._recovery


@pytest.mark.parametrize(
    ("after_ns", "is_due"), [(0, False), (20 * MS, False), (20 * MS + 1, True), (30 * MS, True)]
)
def test_what_all_were_told_a_moment_ago_is_not_told_again(after_ns: int, is_due: bool) -> None:
    _, recovery = answering(sender="a")
    recovery.on_request(0, 0, "b", (7,))
    recovery.on_retransmission(0, 7)
    recovery.on_request(after_ns, after_ns, "d", (7,))
    assert (recovery._answers[7].due_ns is not None) == is_due


@pytest.mark.parametrize(
    ("sender", "tag", "is_due"), [("c", 8, False), ("x", 9, True), ("x", 8, False), ("a", 8, True)]
)
def test_the_sender_answers_or_one_that_all_agree_on(sender: str, tag: Tag, is_due: bool) -> None:
    """Able are a, c and d: of those the tag chooses if the sender is not there."""
    member, recovery = answering()
    member._order.store(sender, message(tag))
    recovery.on_request(0, 0, "b", (tag,))
    assert (recovery._answers[tag].due_ns is not None) == is_due


@pytest.mark.parametrize(("drawn", "is_due"), [(0.32, True), (0.34, False)])
def test_later_about_one_of_those_that_may_have_it_answers(drawn: float, is_due: bool) -> None:
    _, recovery = answering()
    random = Fixed()
    random.drawn = drawn
    recovery._random = random
    recovery.on_request(0, 0, "b", (7,))
    assert recovery._answers[7].due_ns is None
    recovery.on_request(20 * MS, 20 * MS, "b", (7,))
    assert (recovery._answers[7].due_ns is not None) == is_due


@pytest.mark.parametrize(("cycles", "is_due"), [(16, True), (32, True), (33, False)])
def test_the_next_request_after_the_longest_pause_is_still_a_later_one(cycles: int, is_due: bool) -> None:
    """Else only the member that the tag chooses would answer all requests in vain, and it may lack it."""
    member, recovery = answering()
    recovery._random = Fixed()
    recovery.on_request(0, 0, "b", (7,))
    later_ns = cycles * 20 * MS
    for name in "bcd":
        member._peers.on_progress(later_ns, name, 0, 0)
    recovery.on_request(later_ns, later_ns, "b", (7,))
    answered = recovery._answers[7].told_ns is not None or recovery._answers[7].due_ns is not None
    assert answered == is_due


@pytest.mark.parametrize(("sender", "share"), [("a", 0.0), ("x", 0.1)])
def test_the_sender_answers_sooner_than_others(sender: str, share: float) -> None:
    member, recovery = answering()
    recovery._random = Fixed()
    member._order.store(sender, message(9))
    recovery.on_request(0, 0, "b", (9,))
    due_ns = recovery._answers[9].due_ns
    assert (0 if due_ns is None else due_ns) == share * member._configuration.retr_cycle_ns
    assert (due_ns is None) == (sender == "a"), "it was answered at once"


# Order


def test_messages_behind_agreed_tags_are_named_as_long_as_they_may_be_compared() -> None:
    order = an_order(quiet, history=2)
    for tag in range(1, MEMORY * 2 + 2):
        order.store("b", message(tag, number=tag - 1))
        order.add(0, tag)
        order.incorporate(0, tag)
        order.deliver(0, lambda _time_ns, _tag: False)
        assert len(order.names) == min(tag, MEMORY * 2)


def delivered(order: Order, effects: list[Effect], tag: Tag) -> list[tuple[int, int]]:
    order.add(0, tag)
    order.incorporate(0, tag)
    order.deliver(0, lambda _time_ns, _tag: False)
    return [(effect.incarnation, effect.number) for effect in effects if isinstance(effect, Deliver)]


def test_an_earlier_message_of_the_same_incarnation_is_delivered_first_and_none_of_another() -> None:
    effects: list[Effect] = []
    order = an_order(effects.append)
    for tag, incarnation, number in ((10, 0, 1), (11, 0, 0), (12, 0, 1)):
        order.store("b", message(tag, incarnation=incarnation, number=number))
    assert delivered(order, effects, 10) == [(0, 0), (0, 1)]
    effects = []
    order = an_order(effects.append)
    order.store("b", message(10, incarnation=1, number=5))
    order.store("b", message(11, number=0))
    assert delivered(order, effects, 10) == [(1, 5)]


# Configuration


SPANS = (
    "report_cycle_ns", "deliv_cycle_ns", "dummy_cycle_ns", "retr_cycle_ns", "remove_cycle_ns",
    "locate_cycle_ns", "fc_cycle_ns", "listen_ns", "absence_ns", "lately_ns",
)  # fmt: skip
PAUSES = ("message_cycle_ns", "delta_ns", "longest_message_cycle_ns", "tell_ns")
COUNTS = (
    "window", "lag", "admission_buffers", "ordering_buffers", "kept_bodies", "kept_bytes", "graph_limit",
    "history", "tombstones", "listen_reports",
)  # fmt: skip


@pytest.mark.parametrize(("names", "least"), [(SPANS, 1), (PAUSES, 0), (COUNTS, 1), (("quorum",), 0)])
def test_every_knob_has_a_least_value(names: tuple[str, ...], least: int) -> None:
    for name in names:
        knobs: dict[str, Any] = {"report_cycle_ns": 1, "deliv_cycle_ns": 3}
        if name != "deliv_cycle_ns":
            assert getattr(DpgConfiguration(**(knobs | {name: least})), name) == least
        with pytest.raises(UsageError):
            DpgConfiguration(**(knobs | {name: least - 1}))
    with pytest.raises(UsageError, match="leave time for reports"):
        DpgConfiguration(report_cycle_ns=1, deliv_cycle_ns=2)


# The tag sequencer


def following(*, taking_part: bool = True) -> tuple[SequencerService, FakeMember]:
    """A member that follows the sequencer s, and has a message without a number."""
    service, member = SequencerService(), FakeMember("a", "bs")
    member.attach_to(service)
    service.start(0, 0)
    if taking_part:
        service.take_part(0)
    service.on_other_pdu(0, "s", Numbered(3, 1, 0, 1, pack_tags([5])), after_loss=False)
    member.pending = (message(9),)
    member.effects.clear()
    return service, member


@pytest.mark.parametrize(("sender", "heard_ns"), [("s", 7), ("b", 0)])
def test_any_word_of_the_sequencer_tells_that_it_lives(sender: str, heard_ns: int) -> None:
    service, _ = following()
    service.on_other_pdu(7, sender, Request(b""), after_loss=False)
    assert service._patience.heard_ns == heard_ns


@pytest.mark.parametrize(
    ("sender", "pending", "taking_part", "answers"),
    [("s", True, True, 1), ("b", True, True, 0), ("s", False, True, 0), ("s", True, False, 0)],
)
def test_only_the_sequencer_is_told_of_messages_without_a_number(
    sender: str, pending: bool, taking_part: bool, answers: int
) -> None:
    service, member = following(taking_part=taking_part)
    member.pending = (message(9),) if pending else ()
    service.on_other_pdu(1, sender, Ask(), after_loss=False)
    told = [effect for effect in member.effects if isinstance(effect, Send)]
    assert told == [Send("s", TagRequest(pack_tags([9]), 1, 0))] * answers


def test_one_that_is_not_the_sequencer_says_who_is_unless_it_claims_to_be() -> None:
    service, member = following()
    request = TagRequest(pack_tags([7]), 1, 0)
    service.on_other_pdu(1, "b", request, after_loss=False)
    assert [type(effect.pdu) for effect in member.effects if isinstance(effect, Send)] == [Answer]
    service._begin_claim(2)
    member.effects.clear()
    service.on_other_pdu(3, "b", request, after_loss=False)
    assert not member.effects


def test_answers_may_leave_tags_open_and_announcements_may_not() -> None:
    packed = pack_tags([5, ORIGIN, 7])
    assert read_tags(packed, unknown=True) == (5, ORIGIN, 7)
    assert read_tags(packed) is None
    assert read_tags(pack_tags([5, TAG_LIMIT]), unknown=True) is None
    assert read_tags(pack_tags([TAG_LIMIT - 1])) == (TAG_LIMIT - 1,)


def test_the_sequencers_knobs_have_limits() -> None:
    for name in ("repeat_ns", "gap_ns", "takeover_ns", "spread_ns", "gather_answers_ns"):
        assert getattr(SequencerOptions(**{name: 1}), name) == 1  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            SequencerOptions(**{name: 0})  # type: ignore[arg-type]
    assert SequencerOptions(gather_ns=0, repeats=0, memory=MOST_TAGS).repeats == 0
    assert SequencerOptions(repeats=MOST_TAGS // 2).repeats == MOST_TAGS // 2
    refused: list[dict[str, Any]] = [
        {"gather_ns": -1}, {"repeats": -1}, {"repeats": MOST_TAGS // 2 + 1}, {"memory": MOST_TAGS - 1}
    ]  # fmt: skip
    for options in refused:
        with pytest.raises(UsageError):
            SequencerOptions(**options)


@pytest.mark.parametrize(("after_ns", "claims"), [(0, 0), (1, 1)])
def test_a_sequencer_that_tells_an_earlier_epoch_after_its_lease_has_lost_the_role(
    after_ns: int, claims: int
) -> None:
    service, _ = following()
    lease_ns = service.figures()["lease_ns"]
    answer = Answer(2, "s", 0, 1, b"")
    service.on_other_pdu(lease_ns + after_ns, "s", answer, after_loss=False)
    assert service.figures()["claims"] == claims


def test_an_announcement_that_was_overtaken_is_learned_as_well() -> None:
    service, member = SequencerService(), FakeMember("a", "bs")
    member.attach_to(service)
    service.start(0, 0)
    for first, tags in ((10, [50, 51]), (8, [48, 49]), (7, [47, 48, 49, 50, 51, 52])):
        told = Numbered(3, 1, 0, first, pack_tags(tags))
        service.on_other_pdu(0, "s", told, after_loss=False)
    assert [tag for tag, _ in member.placed_tags] == [50, 51, 48, 49, 47, 52]


@pytest.mark.parametrize(("earlier", "epoch"), [(0, 2), (2, 3)], ids=["the first epoch", "a later one"])
def test_numbers_of_an_epoch_that_should_be_the_first_are_those_of_an_earlier_process(
    earlier: int, epoch: int
) -> None:
    service, member = SequencerService(), FakeMember("a", "b")
    member.attach_to(service)
    service.on_other_pdu(0, "b", Answer(earlier, "b", 0, 1, b""), after_loss=False)
    service.start(0, 0)
    service.take_part(0)
    service.volunteer(0)
    assert service.figures()["epoch"] == earlier + 1
    answer = Answer(earlier + 1, "a", 1, 1, pack_tags([5]))
    service.on_other_pdu(1, "b", answer, after_loss=False)
    assert service.figures()["epoch"] == epoch


def test_the_shortest_time_that_a_number_took_grows_slowly() -> None:
    member = FakeMember("a", "b")
    requests = NumberRequests(member, Numbers(MOST_TAGS), SequencerOptions())
    for tag, took_ns, least_ns in ((5, 6400, 6400), (6, 12800, 6500), (7, 100, 100)):
        requests.own[tag] = MS
        requests.numbered(MS + took_ns, tag)
        assert requests.least_ns == least_ns


# Peers


def test_peers_are_remembered_up_to_a_limit() -> None:
    peers = Peers(MS, MS, busy=1, emit=quiet)
    for number in range(MOST_SITES + 1):
        peers.on_progress(0, str(number), 0, 0)
    assert len(peers.sites()) == MOST_SITES


@pytest.mark.parametrize(("own", "is_patient"), [(5, True), (4, False)])
def test_a_silence_counts_if_there_was_something_to_report(own: int, is_patient: bool) -> None:
    peers = Peers(MS, 1000 * MS, busy=5, emit=quiet)
    peers.on_progress(0, "b", 0, 0)
    peers.on_progress(10 * MS, "b", 0, own)
    assert ("b" in peers.lately(25 * MS)) == is_patient


# Standing still


def test_a_member_that_stood_still_ends_its_spell_or_listens_anew() -> None:
    lan = Lan("ab")
    lan.now += lan.knobs.absence_ns + 1
    lan.give("a", TimerFired("send"))
    member = lan.members["a"]
    assert lan.of("a", Absent)
    assert member._presence.state is State.LISTENING
    before = member._presence.listening
    lan.now += lan.knobs.absence_ns
    lan.give("a", TimerFired("send"))
    assert member._presence.listening is before
    lan.now += lan.knobs.absence_ns + 1
    lan.give("a", TimerFired("send"))
    assert member._presence.listening is not before


@pytest.mark.parametrize(
    ("timer", "is_present", "tells"), [("tell", True, 1), ("tell", False, 0), ("x", True, 0)]
)
def test_progress_is_told_by_its_timer_while_a_member_is_present(
    timer: str, is_present: bool, tells: int
) -> None:
    lan = Lan("ab", tell_ns=MS)
    member = lan.members["a"]
    member._stability.index = 5
    if not is_present:
        member._presence.listen(0)
    told = [effect.pdu for effect in lan.give("a", TimerFired(timer)) if isinstance(effect, Multicast)]
    assert [type(pdu) for pdu in told] == [Progress] * tells


@pytest.mark.parametrize(
    ("links", "led"), [((1, 1, 1), {5, 6, 7}), ((0, 1, 1), {5, 6, 7}), ((1, 0, 1), {6, 7}), ((1, 1, 0), {7})]
)
def test_true_links_lead_to_the_root_up_to_the_last_that_is_not_true(
    links: tuple[int, ...], led: set[Tag]
) -> None:
    assert _run_to_root((5, 6, 7), bytes(TRUE_LINK * link for link in links)) == led


@pytest.mark.parametrize(("ahead", "index", "furthest"), [(None, 3, 5), (0, 3, 5), (4, 7, 7)])
def test_a_peer_is_counted_anew_only_where_its_order_differs_by_more_or_less(
    ahead: int | None, index: int, furthest: int
) -> None:
    peers = Peers(1, 1, 1, quiet)
    peers.on_progress(0, "b", 3, 3)
    peer = peers._sites["b"]
    peer.index, peer.furthest, peer.ahead = 3, 5, 0
    peers.align("b", ahead)
    assert (peer.index, peer.furthest, peer.ahead) == (index, furthest, ahead or 0)


def merging(*tags: Tag) -> tuple[ReportMerge, Agreement]:
    """What merges reports at a member that has agreed on these, and its order."""
    member = hears_itself()
    for tag in tags:
        member._order.agreement.append(tag, 1)
    return member._report_merge, member._order.agreement


@pytest.mark.parametrize(
    ("theirs", "forks"), [((1, 2, 3, 4, 9), 0), ((1, 2, 3, 9, 8), 1), ((1, 9, 8), 1), ((1, 2, 3, 4), 0)]
)
def test_a_fork_is_told_if_something_delivered_is_not_in_the_others_order(
    theirs: tuple[Tag, ...], forks: int
) -> None:
    reports, _ = merging(1, 2, 3, 4)
    _, other = merging(*theirs)
    told = report([*theirs], digest=other.digest)
    reports._tell_fork("b", told, lists_of(told))
    assert reports.forks == forks


@pytest.mark.parametrize(
    ("fields", "is_settling"),
    [
        pytest.param({"index": 50, "oldest": 49}, True, id="beyond us, and forked"),
        pytest.param({"index": 50, "oldest": 49, "checkpoints": b""}, False, id="beyond us"),
        pytest.param({"index": 50}, False, id="forked, and it can still tell what follows"),
    ],
)
def test_a_fork_is_looked_for_where_a_report_does_not_go_on_from_our_order(
    fields: dict[str, Any], is_settling: bool
) -> None:
    reports, own = merging(1, 2, 3, 4)
    told = report([77, 78], **({"checkpoints": pack_tags([4, own.digest + 1])} | fields))
    reports.merge(0, 0, "b", told, lists_of(told), is_estranged=False)
    assert reports.is_settling(0, "b") == is_settling


def test_a_peer_that_was_silent_is_estranged_as_long_as_its_order_is_another() -> None:
    lan = Lan("ab")
    member = lan.members["a"]
    for tag in (1, 2, 3):
        member._order.store("b", message(tag, number=tag))
        member._order.follow(0, tag)
        member._order.deliver(0, lambda _time_ns, _tag: False)
    digest = member._order.agreement.digest
    lan.give("a", Received("b", report([1, 2, 3], digest=digest)))
    lan.crash("b")
    lan.pass_time(lan.knobs.gone_ns / MS + lan.knobs.idle_ns / MS)
    assert lan.of("a", Vanished)
    for _ in range(3):
        lan.give("a", Received("b", report([1, 2, 9], digest=5)))
        assert member.vertices == 0, "nothing is taken from it"
    assert not lan.of("a", Absent)
    lan.give("a", Received("b", report([1, 2, 3], digest=digest)))
    lan.pass_time(4 * lan.knobs.silence_ns / MS)
    lan.give("a", Received("b", report([1, 2, 3, 9], digest=digest)))
    assert member._order.is_known(9)


@pytest.mark.parametrize(
    ("told", "sent_again"),
    [
        pytest.param((0, 0), [0, 1], id="none"),
        pytest.param((0, 1), [1], id="one of them"),
        pytest.param((0, 2), [], id="all of them"),
        pytest.param((0, 3), [0, 1], id="more than were sent"),
    ],
)
def test_a_member_that_returns_believes_that_others_have_what_it_has_sent_and_no_more(
    told: tuple[int, int], sent_again: list[int]
) -> None:
    lan = Lan("ab")
    lan.admit("a")
    lan.admit("a")
    lan.now += lan.knobs.absence_ns + 1
    lan.give("a", TimerFired("send"))
    member, effects = lan.members["a"], list[Effect]()
    assert member._presence.state is State.LISTENING
    for _ in range(lan.knobs.listen_reports):
        lan.now += 2 * lan.knobs.report_cycle_ns
        effects += lan.give("a", Received("b", report([7], streams={"a": told, "c": (5, 0)})))
    assert any(isinstance(effect, Present) for effect in effects)
    sent = [effect.pdu for effect in effects if isinstance(effect, Multicast)]
    assert [pdu.number for pdu in sent if isinstance(pdu, Message)] == sent_again
    assert member.incarnation_of("c") == 5, "of others more may be known"


def test_a_member_that_waits_for_a_quorum_says_that_it_is_cut_off() -> None:
    lan = Lan("ab", quorum=2)
    lan.crash("b")
    lan.admit("a")
    lan.pass_time(4 * lan.knobs.silence_ns / MS)
    assert lan.of("a", CutOff)


@pytest.mark.parametrize(("off_by", "is_fork"), [(0, False), (1, True)])
def test_checkpoints_of_a_report_show_a_fork_or_that_there_is_none(off_by: int, is_fork: bool) -> None:
    reports, own = merging(1, 2, 3, 4)
    told = report([77, 78], 50, checkpoints=pack_tags([4, own.digest + off_by]))
    assert reports._is_fork(told, lists_of(told)) == is_fork
    reports._tell_fork("b", told, lists_of(told))
    assert reports.forks == int(is_fork)
