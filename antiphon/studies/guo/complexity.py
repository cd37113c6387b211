"""Section 4.4: steps and messages processed per round; tables 4.1 and 4.2, claim G3.

The formulas are compared with counts from driving the protocol objects through one round without loss, in
groups with a complete tree (40 members are a ternary tree of height 3, 121 one of height 4), as the formulas
assume. The network is the simplest possible: a message sent in one step is received in the next. As in the
paper, a multicast counts both as sent and as received by its sender.
"""

import importlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from antiphon.core.effects import Effect, Multicast, Send, SetTimer
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, RoundTriggered, TimerFired
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.gossip import Outcome
from antiphon.sim.rounds import Round
from antiphon.sim.scenarios import MODULES, find_scenario
from antiphon.sim.world import World
from antiphon.studies.guo.settings import NAMES
from antiphon.studies.judging import judged_by
from antiphon.studies.model import Finding, Section, Table
from antiphon.studies.results import Results

BRANCHING: Final = 3
HEIGHTS: Final = (3, 4)
COUNTED: Final = ("coordp", "fulldist", "train", "s-coordp", "s-train")


@dataclass(frozen=True)
class Counts:
    """The cost of one round: its steps, and the messages that each kind of member processed."""

    steps: int
    root: frozenset[int]
    internal: frozenset[int]
    leaf: frozenset[int]


def members_of(height: int) -> int:
    """The number of nodes of a complete tree."""
    return sum(BRANCHING**level for level in range(height + 1))


@lru_cache(maxsize=32)
def count(protocol: str, height: int) -> Counts:
    """Drive one round in a complete tree, step by step, until no member sends anything."""
    members = members_of(height)
    world = _round(protocol, members).world
    processed = [0] * members
    steps = 0
    arriving: list[tuple[int, Input]] = [(0, RoundTriggered())]
    while arriving:
        sent: list[tuple[int, Input]] = []
        for member, event in arriving:
            processed[member] += isinstance(event, Received)
            for effect in world.hosts[member].handle(steps, event):
                sent += _messages(world, member, effect, processed)
        steps += bool(sent)
        arriving = sent
    first_leaf = members_of(height - 1)
    parts = (processed[:1], processed[1:first_leaf], processed[first_leaf:])
    return Counts(steps, *(frozenset(part) for part in parts))


def _messages(world: World, member: int, effect: Effect, processed: list[int]) -> list[tuple[int, Input]]:
    """The arrivals that an effect causes; the sender's part is counted at once."""
    received = (
        Received(world.hosts[member].site, effect.pdu) if isinstance(effect, Send | Multicast) else None
    )
    if received is None:
        return []
    if isinstance(effect, Send):
        processed[member] += 1
        return [(world.host(effect.to).index, received)]
    processed[member] += 2
    return [(host.index, received) for host in world.hosts if host.index != member]


def _round(protocol: str, members: int, seed: int = 0) -> Round:
    """The round that a scenario's module defines."""
    module: Any = importlib.import_module(MODULES[protocol])
    kinds = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Round) and kind.__module__ == module.__name__
    ]
    assert len(kinds) == 1, f"{module.__name__} defines one kind of round"
    configuration = find_scenario(protocol).configure({"members": members, "senders": 1})
    made: Round = kinds[0](configuration, seed)
    return made


def expected(protocol: str, height: int) -> Counts:
    """Table 4.1's formulas."""
    n, p, b = members_of(height), height, BRANCHING

    def of(*values: int) -> frozenset[int]:
        return frozenset(values)

    return {
        "coordp": Counts(3, of(n + 3), of(3), of(3)),
        "fulldist": Counts(2, of(n + 1), of(n + 1), of(n + 1)),
        "train": Counts(2 * n, of(4), of(4), of(4)),
        "s-coordp": Counts(p + 2, of(b + 4), of(b + 3), of(3)),
        "s-train": Counts(b * p + 2, of(5), of(4, 5), of(3, 4)),
    }[protocol]


FORMULAS: Final = {
    "coordp": ("3", "n+3; 3; 3"),
    "fulldist": ("2", "n+1; n+1; n+1"),
    "train": ("2n", "4; 4; 4"),
    "s-coordp": ("p+2", "b+4; b+3; 3"),
    "s-train": ("bp+2", "5; 4 or 5; 3 or 4"),
}
ORDERS: Final = {
    "coordp": ("O(1)", "O(n) coordinator, O(1) others"),
    "fulldist": ("O(1)", "O(n)"),
    "train": ("O(n)", "O(1)"),
    "s-coordp": ("O(log n)", "O(1)"),
    "s-train": ("O(log n)", "O(1)"),
    "gossip": ("O(log n)", "O(1) in unit time"),
    "s-gossip": ("O(log n)", "O(1) in unit time"),
}
GOSSIPS: Final = ("gossip", "s-gossip")
GOSSIP_ROUNDS: Final = 20


def _processed(counts: Counts) -> str:
    kinds = (counts.root, counts.internal, counts.leaf)
    return "; ".join(" or ".join(map(str, sorted(kind))) for kind in kinds)


def exact_rows(_: Results) -> list[list[str]]:
    return [
        [
            NAMES[protocol],
            str(members_of(height)),
            FORMULAS[protocol][0],
            str(count(protocol, height).steps),
            FORMULAS[protocol][1],
            _processed(count(protocol, height)),
        ]
        for protocol in COUNTED
        for height in HEIGHTS
    ]


def order_rows(_: Results) -> list[list[str]]:
    rows = []
    for protocol in COUNTED:
        steps = [str(count(protocol, height).steps) for height in HEIGHTS]
        most = [str(max(_every(count(protocol, height)))) for height in HEIGHTS]
        rows.append([NAMES[protocol], ORDERS[protocol][0], *steps, ORDERS[protocol][1], *most])
    for protocol in GOSSIPS:
        found = [gossiped(protocol, members_of(height)) for height in HEIGHTS]
        steps = [f"{each.steps:.1f}" for each in found]
        load = [f"{each.processed:.1f} a step" for each in found]
        rows.append([NAMES[protocol], ORDERS[protocol][0], *steps, ORDERS[protocol][1], *load])
    return rows


@dataclass(frozen=True)
class Gossiped:
    """Means over rounds of gossip: the steps of a round, and the gossips of a member in a step."""

    steps: float
    processed: float
    """Sent and received."""


@lru_cache(maxsize=8)
def gossiped(protocol: str, members: int) -> Gossiped:
    """Drive rounds of gossip in steps until the first member has the result; a gossip takes no time."""
    rounds = [_gossip_round(protocol, members, seed) for seed in range(GOSSIP_ROUNDS)]
    steps = sum(steps for steps, _ in rounds)
    gossips = sum(gossips for _, gossips in rounds)
    return Gossiped(steps / len(rounds), 2 * gossips / (members * steps))


def _gossip_round(protocol: str, members: int, seed: int) -> tuple[int, int]:
    """The steps of a round, and the gossips that were sent in it."""
    world = _round(protocol, members, seed).world
    steps = gossips = 0
    due = [_timers(host.handle(0, RoundTriggered())) for host in world.hosts]
    while True:
        steps += 1
        sent = []
        for index, host in enumerate(world.hosts):
            effects = [effect for name in due[index] for effect in host.handle(steps, TimerFired(name))]
            due[index] = _timers(effects)
            sent += _sent(host.site, effects)
        gossips += len(sent)
        while sent:
            sender, to, pdu = sent.pop(0)
            if type(pdu) is Outcome:
                return steps, gossips
            told = world.host(to)
            effects = told.handle(steps, Received(sender, pdu))
            due[told.index] = _timers(effects) or due[told.index]
            sent += _sent(told.site, effects)


def _sent(site: Site, effects: list[Effect]) -> list[tuple[Site, Site, Pdu]]:
    """Senders, receivers and PDUs; a round's result, which goes to all, is sent to its finder here."""
    found = []
    for effect in effects:
        if isinstance(effect, Send):
            found.append((site, effect.to, effect.pdu))
        elif isinstance(effect, Multicast):
            found += [(site, to, effect.pdu) for to in effect.to or (site,) if to != site or not effect.to]
    return found


def _timers(effects: list[Effect]) -> list[str]:
    return [effect.name for effect in effects if isinstance(effect, SetTimer)]


def _every(counts: Counts) -> frozenset[int]:
    return counts.root | counts.internal | counts.leaf


def formulas_hold(_: Results) -> Finding:
    differences = [
        f"{NAMES[protocol]} with {members_of(height)} members: {found.steps} steps, {_processed(found)} "
        "processed"
        for protocol in COUNTED
        for height in HEIGHTS
        for found, formula in ((count(protocol, height), expected(protocol, height)),)
        if found != formula
    ]
    return Finding(
        ours="all steps and counts as the formulas say" if not differences else "; ".join(differences),
        holds=not differences,
    )


def _sizes() -> str:
    return " and ".join(str(members_of(height)) for height in HEIGHTS)


SECTION: Final = Section(
    title="4.4 Steps and messages",
    text="Steps per round, and messages that a member processes, by the formulas and counted from protocol "
    f"objects in complete trees of {_sizes()} members. Gossip and S_Gossip have no exact formulas: of them "
    f"table 4.2 has means of {GOSSIP_ROUNDS} rounds, up to the step in which the first member knows.",
    tables=(
        Table(
            title="Table 4.1: exact formulas",
            caption="Messages processed by the root (coordinator); by internal members; by leaves. n "
            "members, height p, branching factor b.",
            columns=("protocol", "n", "steps, formula", "counted", "messages, formula", "counted"),
            compute=exact_rows,
        ),
        Table(
            title="Table 4.2: orders of growth",
            caption=f"The orders beside the counts for {_sizes()} members; messages of the member with most, "
            "with gossip the mean of a member in a step, sent and received.",
            columns=(
                "protocol",
                "steps",
                *(f"n={members_of(h)}" for h in HEIGHTS),
                "messages",
                *(f"n={members_of(h)}" for h in HEIGHTS),
            ),
            compute=order_rows,
        ),
    ),
    claims=judged_by(
        "guo",
        G3=formulas_hold,
    ),
)
