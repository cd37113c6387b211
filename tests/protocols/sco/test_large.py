"""SCO in large groups: control is bounded for each member whatever the size, and nothing waits for ever."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from antiphon.core.effects import Multicast
from antiphon.core.ids import site_names
from antiphon.core.seeds import Seeds
from antiphon.core.time import SECOND_NS
from antiphon.core.wire import Codec, Pdu
from antiphon.protocols.sco import PDUS, Sco, ScoConfiguration
from antiphon.protocols.sco.pdus import Answer, Confirm, Control, Data, Heartbeat, Name, Query
from antiphon.protocols.sco.peer import Outgoing
from antiphon.sim.mesh import Mesh
from antiphon.sim.world import World
from tests.protocols.harness.sco_group import Group
from tests.protocols.harness.staging import pdus

CODEC = Codec(PDUS)
LARGE = ScoConfiguration(gather_from=1)
MOST_PDUS = 150
"""Control PDUs that a member may get in a second."""
MOST_BYTES = 6_000


class CountingMesh(Mesh):
    """Counts what each site is sent for control."""

    def __init__(self, sites: int) -> None:
        super().__init__(sites, Seeds(1), delay_ns=300_000, jitter_ns=50_000)
        self.pdus: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()

    def send(self, now: int, source: int, targets: Sequence[int] | None, pdu: Pdu, size: int) -> None:
        if type(pdu) is not Data:
            for target in range(self._sites) if targets is None else targets:
                self.pdus[target] += target != source
                self.bytes[target] += size * (target != source)
        super().send(now, source, targets, pdu, size)


class Crowd:
    """A large group on a network without faults."""

    def __init__(self, members: int) -> None:
        self.sites = tuple(site_names(members))
        self.members: dict[str, Sco] = {}
        self.mesh = CountingMesh(members)
        self.world = World(
            sites=self.sites, build=self.build, network=self.mesh, size_of=lambda pdu: len(CODEC.encode(pdu))
        )
        self.delivered: Counter[str] = Counter()
        self.world.on_deliver = lambda _now, host, effect: self.delivered.update(
            {host.site: len(effect.bodies)}
        )
        self.world.start()

    def build(self, site: str) -> Sco:
        self.members[site] = Sco(site, self.sites, ScoConfiguration(), Random(site))
        return self.members[site]

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + round(seconds * SECOND_NS))

    def send(self, site: str, to: frozenset[str] | None = None) -> None:
        self.world.admit(site, [b"x"], to)

    def present(self, site: str) -> set[str]:
        return {site, *self.members[site]._state.peers.present}


@pytest.mark.parametrize("members", [20, 40, 80])
@pytest.mark.parametrize("rate", [0, 10])
def test_control_is_bounded_for_each_member_whatever_the_size(members: int, rate: int) -> None:
    crowd = Crowd(members)
    crowd.run(1.0)
    crowd.mesh.pdus.clear()
    crowd.mesh.bytes.clear()
    for turn in range(rate):
        crowd.send(crowd.sites[7 * turn % members])
        crowd.run(0.1)
    crowd.run(1.0 - 0.1 * rate)
    assert max(crowd.mesh.pdus.values()) <= MOST_PDUS
    assert max(crowd.mesh.bytes.values()) <= MOST_BYTES
    assert set(crowd.delivered.values()) == ({rate} if rate else set())
    assert sum(crowd.delivered.values()) == rate * members


def test_a_message_is_delivered_without_waiting_for_a_timer() -> None:
    """There and back and there again: three times 0.3 to 0.35 ms."""
    crowd = Crowd(30)
    crowd.run(1.0)
    crowd.send(crowd.sites[3])
    crowd.run(0.0012)
    assert set(crowd.delivered.values()) == {1}
    assert len(crowd.delivered) == 30


def test_a_message_to_some_holds_up_no_member_that_it_is_not_for() -> None:
    crowd = Crowd(30)
    first, second, third = crowd.sites[:3]
    crowd.send(first, frozenset([second]))
    crowd.run(0.002)
    crowd.send(second, frozenset([third]))
    crowd.run(0.002)
    assert crowd.delivered == {second: 1, third: 1}


@pytest.mark.parametrize("gone", [(7,), (0, 1, 2, 3, 4, 5, 6), (29, 14, 15, 16, 0)])
def test_members_that_crash_are_missed_by_all_although_only_neighbours_watch_them(
    gone: tuple[int, ...],
) -> None:
    crowd = Crowd(30)
    crowd.run(1.0)
    left_out = {crowd.sites[place] for place in gone}
    for site in left_out:
        crowd.world.crash(site)
    rest = set(crowd.sites) - left_out
    crowd.send(min(rest))
    crowd.run(2.5)
    assert all(crowd.present(site) == rest for site in rest)
    assert crowd.delivered == dict.fromkeys(rest, 1)


def test_no_member_that_is_there_is_missed() -> None:
    crowd = Crowd(40)
    crowd.run(5.0)
    assert all(member.figures()["suspected"] == 0 for member in crowd.members.values())
    assert all(crowd.present(site) == set(crowd.sites) for site in crowd.sites)


# What a sender and its destinations say


def sent(group: Group, name: str, kind: type[Pdu]) -> list[Pdu]:
    return list(pdus(group.effects[name], kind))


def test_destinations_confirm_to_the_sender_alone_which_tells_all() -> None:
    group = Group(4, LARGE)
    group.send("a", "bc")
    group.settle()
    assert group.delivered("b") == group.delivered("c") == ["a0"]
    assert [len(sent(group, name, Confirm)) for name in "abcd"] == [0, 1, 1, 0]
    assert [effect.to for effect in group.effects["a"] if isinstance(effect, Multicast)][1:] == [None]
    assert sent(group, "a", Heartbeat) == [Heartbeat(0, 0, 1)]
    assert not any(sent(group, name, Control) for name in "abcd")
    assert group.peer("d", "a").stream.frontier == 1


def test_what_follows_at_once_is_confirmed_together() -> None:
    group = Group(3, LARGE)
    for _ in range(5):
        group.send("a")
        group.settle()
    group.pass_time(10)
    assert len(group.delivered("b")) == 5
    assert [pdu.number for pdu in sent(group, "b", Confirm) if isinstance(pdu, Confirm)] == [1, 5]


def test_the_next_batch_says_it_too() -> None:
    group = Group(3, LARGE)
    group.lost = lambda _source, _target, pdu: isinstance(pdu, Heartbeat)
    group.send("a")
    group.settle()
    assert group.delivered("b") == []
    group.send("a")
    group.settle()
    assert group.delivered("b") == ["a0"]


@pytest.mark.parametrize("kind", [Data, Confirm, Heartbeat])
def test_what_is_lost_is_made_up_for(kind: type[Pdu]) -> None:
    group = Group(4, LARGE)
    group.lost = lambda _source, _target, pdu: isinstance(pdu, kind)
    group.send("a", "bc")
    group.settle()
    assert group.delivered("b") == []
    group.lost = lambda source, _target, pdu: source == "a" and isinstance(pdu, Heartbeat)
    group.pass_time(100)
    assert group.delivered("b") == group.delivered("c") == ["a0"]


def test_a_confirmation_by_another_digest_is_not_taken() -> None:
    group = Group(3, LARGE)
    group.lost = lambda _source, _target, pdu: isinstance(pdu, Confirm)
    group.send("a")
    group.settle()
    group.lost = lambda *_: False
    state = group.members["a"]._state
    for gone, life in ((1, 0), (0, 1)):
        confirm = Confirm(0, life, gone, 1)
        group.arrive("b", "a", confirm)
        assert group.peer("a", "b").confirmed.get(state.peers.me, 0) == 0
    group.arrive("b", "a", Confirm(0, 0, 0, 1))
    assert group.peer("a", "b").confirmed[state.peers.me] == 1


# Asking another


@pytest.mark.parametrize("gather_from", [1, 16])
def test_a_member_can_ask_another_whether_a_message_is_atomically_accepted(gather_from: int) -> None:
    """Section 2.3: b hears neither the sender nor c's confirmation; c, or d, has accepted it fully."""
    group = Group(4, ScoConfiguration(gather_from=gather_from))
    group.lost = lambda source, target, pdu: (
        target == "b" and not (source == "a" and isinstance(pdu, Data)) and not isinstance(pdu, Answer)
    )
    group.send("a", "bcd")
    group.pass_time(200)
    assert sent(group, "b", Query)
    assert group.delivered("b") == group.delivered("d") == ["a0"]


def test_a_question_for_an_earlier_life_has_no_answer() -> None:
    group = Group(3, LARGE)
    group.send("a")
    group.pass_time(30)
    name = group.peer("b", "a").name
    group.arrive("c", "b", Query(0, 1, name, 1))
    group.arrive("c", "b", Query(0, 0, name, 2))
    assert not sent(group, "b", Answer)
    group.arrive("c", "b", Query(0, 0, name, 1))
    assert sent(group, "b", Answer) == [Answer(0, 0, name, 1)]


def test_a_sender_answers_only_for_what_every_destination_holds() -> None:
    """a1 is accepted by all its destinations, a0 is not: c has not confirmed it."""
    group = Group(3)
    group.cut.add("c")
    group.send("a", "bc")
    group.send("a", "ab")
    group.pass_time(10)
    assert group.delivered("a") == ["a1"]
    group.arrive("b", "a", Query(0, 0, Name("a", 0), 1))
    assert not sent(group, "a", Answer)


def test_a_destination_answers_by_the_confirmations_that_it_has() -> None:
    """It has not heard from the sender that all of them hold the batch."""
    group = Group(3)
    group.lost = lambda source, _target, pdu: source == "a" and isinstance(pdu, Control)
    group.send("a", "bc")
    group.pass_time(10)
    assert (group.delivered("b"), group.peer("b", "a").stream.atomic) == (["a0"], 0)
    group.arrive("c", "b", Query(0, 0, Name("a", 0), 1))
    assert sent(group, "b", Answer) == [Answer(0, 0, Name("a", 0), 1)]


def test_only_destinations_are_believed() -> None:
    group = Group(4, LARGE)
    group.lost = lambda _source, _target, pdu: not isinstance(pdu, Data | Answer)
    group.send("a", "bc")
    group.settle()
    name = group.peer("b", "a").name
    for source, gone, end in (("d", 0, 1), ("c", 1, 1), ("c", 0, 2)):
        group.arrive(source, "b", Answer(0, gone, name, end))
        assert group.delivered("b") == []
    group.arrive("c", "b", Answer(0, 0, name, 1))
    assert group.delivered("b") == ["a0"]


def test_pauses_between_questions_to_a_peer_double_up_to_the_longest() -> None:
    outgoing = Outgoing()
    assert [now for now in range(70) if outgoing.chase(now, 2, 20)] == [0, 4, 12, 28, 48, 68]
    outgoing.end_chase()
    assert [now for now in range(69, 80) if outgoing.chase(now, 2, 20)] == [70, 74]


def test_a_quiet_neighbour_is_asked_before_it_is_missed() -> None:
    group = Group(3, LARGE)
    group.cut.add("c")
    group.pass_time(240)
    assert not sent(group, "a", Control)
    group.pass_time(40)
    (first, *_) = [pdu for pdu in sent(group, "a", Control) if isinstance(pdu, Control)]
    assert first.asks
    group.cut.clear()
    group.pass_time(300)
    assert group.figure("a", "suspected") == 0
