"""The deterministic world: time, timers, faults and what reaches the trace."""

from collections.abc import Sequence

import pytest

from antiphon.core.effects import (
    Absent,
    Admitted,
    Arrived,
    CancelTimer,
    Deliver,
    Discard,
    Effect,
    Multicast,
    Present,
    Rejected,
    Send,
    SetTimer,
    Stable,
)
from antiphon.core.errors import UsageError
from antiphon.core.inputs import (
    Admit,
    Departed,
    Input,
    Received,
    Restored,
    Returned,
    Start,
    Suspected,
    TimerFired,
)
from antiphon.core.seeds import Seeds
from antiphon.sim.layers import Delay, Duplication
from antiphon.sim.medium import Medium
from antiphon.sim.mesh import Mesh
from antiphon.sim.network import Layer, Network
from antiphon.sim.transit import TreeNetwork
from antiphon.sim.tree import grow_tree
from antiphon.sim.world import World
from tests.sim.fakes import Note, Rows, Scripted


class Stage:
    """A world of scripted members, with all that each incarnation saw."""

    def __init__(
        self,
        script: dict[str, dict[type, list[Effect]]] | None = None,
        *,
        layers: Sequence[Layer] = (),
        sites: str = "abc",
    ) -> None:
        self.script = script or {}
        self.incarnations: dict[str, list[Scripted]] = {site: [] for site in sites}
        self.rows = Rows()
        self.world = World(
            sites=list(sites),
            build=self._build,
            network=Mesh(len(sites), Seeds(0), delay_ns=10),
            size_of=lambda _: 1,
            layers=layers,
            recorder=self.rows,
        )

    def _build(self, site: str) -> Scripted:
        answers = self.script.get(site, {})
        member = Scripted(lambda event: answers.get(type(event), []))
        self.incarnations[site].append(member)
        return member

    def seen(self, site: str) -> list[tuple[int, Input]]:
        return self.incarnations[site][-1].seen


def test_what_is_sent_arrives_after_the_networks_delay() -> None:
    stage = Stage({"a": {Start: [Send("b", Note("x")), Multicast(Note("y")), Multicast(Note("z"), ("c",))]}})
    stage.world.start()
    stage.world.run()
    assert stage.seen("a") == [(0, Start())]
    assert stage.seen("b") == [
        (0, Start()),
        (10, Received("a", Note("x"))),
        (10, Received("a", Note("y"))),
    ]
    assert stage.seen("c") == [
        (0, Start()),
        (10, Received("a", Note("y"))),
        (10, Received("a", Note("z"))),
    ]


@pytest.mark.parametrize(
    ("multicast", "reached"),
    [
        (Multicast(Note("x"), hops=0), ""),
        (Multicast(Note("x"), hops=1), "a"),
        (Multicast(Note("x"), hops=2), "acd"),
        (Multicast(Note("x"), ("d", "a", "b"), hops=1), "a"),
        (Multicast(Note("x"), ("d", "a"), hops=2), "ad"),
    ],
    ids=str,
)
def test_a_multicast_goes_only_as_far_as_it_is_told(multicast: Multicast, reached: str) -> None:
    # A star: a in the middle, b, c and d around it.
    sites = "abcd"
    members = {site: Scripted(lambda event: [multicast] if type(event) is Returned else []) for site in sites}
    world = World(
        sites=sites,
        build=members.__getitem__,
        network=TreeNetwork(grow_tree(4), range(4)),
        size_of=lambda _: 32,
    )
    world.give(world.host("b"), Returned())
    world.run()
    heard = [site for site in sites if Received("b", Note("x")) in [event for _, event in members[site].seen]]
    assert "".join(heard) == reached


@pytest.mark.parametrize(
    "network", [Mesh(3, Seeds(0), delay_ns=1), Medium(3, Seeds(0))], ids=["mesh", "medium"]
)
def test_on_a_mesh_and_on_a_medium_everyone_is_one_link_away(network: Network) -> None:
    assert network.within(1, 0) == ()
    assert network.within(1, 1) == network.within(1, 9) == (0, 2)


def test_actions_of_one_moment_happen_in_the_order_of_scheduling_and_before_arrivals() -> None:
    stage = Stage({"a": {Start: [Send("b", Note("x"))]}})
    order: list[str] = []
    stage.world.at(10, lambda: order.append(f"first {len(stage.seen('b'))}"))
    stage.world.at(10, lambda: order.append(f"second {len(stage.seen('b'))}"))
    stage.world.at(11, lambda: order.append(f"third {len(stage.seen('b'))}"))
    stage.world.start()
    stage.world.run()
    assert order == ["first 1", "second 1", "third 2"]


def test_a_timer_set_again_is_replaced_and_a_cancelled_one_never_fires() -> None:
    stage = Stage(
        {
            "a": {
                Start: [SetTimer("one", 5), SetTimer("one", 20), SetTimer("two", 7), CancelTimer("three")],
                TimerFired: [CancelTimer("one")],
            }
        }
    )
    stage.world.start()
    stage.world.run()
    assert stage.seen("a") == [(0, Start()), (7, TimerFired("two"))]


def test_a_crash_loses_timers_and_memory_and_a_restart_remembers_only_the_number() -> None:
    stage = Stage(
        {
            "a": {Start: [SetTimer("t", 50)], Admit: [Admitted(0, 2, 0), SetTimer("u", 40)]},
            "b": {Start: [Send("a", Note("x"))]},
        }
    )
    world = stage.world
    world.start()
    world.admit("a", (b"", b""))
    world.at(5, lambda: world.crash("a"))
    world.at(6, lambda: world.admit("a", (b"",)))
    world.at(20, lambda: world.restart("a"))
    world.run(60)
    assert len(stage.incarnations["a"]) == 2
    assert [event for _, event in stage.incarnations["a"][0].seen] == [Start(), Admit((b"", b""))]
    assert stage.seen("a") == [(20, Start(1, 2, returning=True))]
    assert ("a", "absent", 5, None, None, 1, None, None, None) in stage.rows.rows
    world.run(80)
    assert stage.seen("a")[-1] == (70, TimerFired("t"))


def test_an_absent_member_keeps_its_memory_but_hears_nothing_and_its_timers_stand() -> None:
    stage = Stage({"a": {Start: [SetTimer("t", 15)]}, "b": {Start: [Send("a", Note("x"))]}})
    world = stage.world
    world.start()
    world.at(5, lambda: world.depart("a"))
    world.at(6, lambda: world.admit("a", (b"",)))
    world.at(7, lambda: world.suspect("b"))
    world.at(30, lambda: world.come_back("a"))
    world.run()
    assert stage.seen("a") == [(0, Start()), (5, Departed()), (30, Returned())]
    assert len(stage.incarnations["a"]) == 1


def test_faults_that_do_not_apply_change_nothing() -> None:
    stage = Stage()
    world = stage.world
    world.start()
    world.restart("a")
    world.come_back("a")
    world.crash("b")
    world.crash("b")
    world.depart("b")
    assert stage.seen("a") == [(0, Start())]
    assert [row[:2] for row in stage.rows.rows] == [("b", "absent")]


def test_suspicion_reaches_everyone_else_or_those_named() -> None:
    stage = Stage()
    stage.world.suspect("a")
    stage.world.restore("a", at=["c"])
    assert [event for _, event in stage.seen("a")] == []
    assert [event for _, event in stage.seen("b")] == [Suspected("a")]
    assert [event for _, event in stage.seen("c")] == [Suspected("a"), Restored("a")]


def test_layers_apply_one_after_another() -> None:
    layers: list[Layer] = [
        Duplication(Seeds(0), 1.0, 0),
        Delay(Seeds(0), 5, 5),
        Duplication(Seeds(0), 1.0, 0),
    ]
    stage = Stage({"a": {Start: [Send("b", Note("x"))]}}, layers=layers)
    stage.world.start()
    stage.world.run()
    assert stage.seen("b")[1:] == [(15, Received("a", Note("x")))] * 4


def test_run_ends_at_its_limit_and_goes_on_from_there() -> None:
    stage = Stage({"a": {Start: [Send("b", Note("x"))]}})
    stage.world.start()
    stage.world.run(9)
    assert stage.world.now == 9
    assert len(stage.seen("b")) == 1
    stage.world.run(10)
    assert len(stage.seen("b")) == 2
    with pytest.raises(UsageError):
        stage.world.at(9, lambda: None)


def test_stop_ends_the_run_after_the_event_at_hand() -> None:
    stage = Stage()
    happened: list[int] = []
    stage.world.at(3, stage.world.stop)
    stage.world.at(3, lambda: happened.append(3))
    stage.world.run()
    assert (stage.world.now, happened) == (3, [])
    stage.world.run()
    assert happened == [3]


def test_every_effect_that_belongs_into_the_trace_gets_there_in_order() -> None:
    effects: list[Effect] = [
        Admitted(3, 2, 9, frozenset({"c", "a"}), "g"),
        Rejected("full"),
        Arrived("b", 1, 2, "g"),
        Deliver("b", 1, (b"xy", b"z"), "g"),
        Stable("b", 1, 2, "g"),
        Discard("b", 1, 2, "g"),
        Absent(),
        Present(),
    ]
    stage = Stage({"a": {Start: effects}})
    noted: list[str] = []
    stage.world.on_admitted = lambda _now, host, effect: noted.append(f"{host.site} {effect.number}")
    stage.world.on_deliver = lambda _now, host, effect: noted.append(f"{host.site} {effect.sender}")
    stage.world.on_stable = lambda _now, host, effect: noted.append(f"{host.site} {effect.count}")
    stage.world.start()
    assert stage.rows.rows == [
        ("a", "send", 0, "a", 3, 2, "g", ("a", "c"), 9),
        ("a", "receive", 0, "b", 1, 2, "g", None, None),
        ("a", "deliver", 0, "b", 1, 2, "g", None, 3),
        ("a", "stable", 0, "b", 1, 2, "g", None, None),
        ("a", "discard", 0, "b", 1, 2, "g", None, None),
        ("a", "absent", 0, None, None, 1, None, None, None),
        ("a", "present", 0, None, None, 1, None, None, None),
    ]
    assert noted == ["a 3", "a b", "a 2"]
    assert stage.world.rejections == 1
    assert (stage.world.host("a").admitted, stage.world.host("a").delivered) == (2, 2)


def test_two_sites_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError):
        Stage(sites="aba")
