"""Message stability detection (Guo): what all members hold can be discarded. The protocols by name.

Each of them can be the stability layer of a group whose membership changes: for every view of it the owner
asks `StabilityProtocol.make` for a new object, tells it what is held and stable (`begin`), and forwards
inputs and effects.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isqrt
from random import Random
from typing import Any, Final
from typing import Protocol as Interface

from antiphon.core.effects import Effect
from antiphon.core.ids import Site
from antiphon.core.inputs import Input
from antiphon.core.knobs import require_known
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability import (
    by_sender,
    coordp,
    fulldist,
    gossip,
    riding,
    s_coordp,
    s_gossip,
    s_train,
    sessions,
    train,
)
from antiphon.protocols.stability.base import Configuration, Objective
from antiphon.protocols.stability.hierarchy import Hierarchy
from antiphon.protocols.stability.round_trips import Repetition, RoundTrips
from antiphon.protocols.stability.structured import StructuredConfiguration
from antiphon.protocols.stability.tuning import UNTUNED, Tuning

LONGEST_REPEAT: Final = 4
"""Pauses between repetitions grow up to this multiple of the first. Raising it costs time after losses."""
LEAST_REPEAT: Final = 4
"""However fast answers were, pauses are at least the first one's part of this. Raising it costs needless
repetitions when a member stands still for a moment."""
SUBGROUP: Final = 4
"""Members in a sub-group of the structured protocols: a parent and its children. Raising it costs steps at
the parent, and saves generations."""

SEARCH_FACTOR: Final = 8
"""The factor by which an adaptive step may be shorter or longer. Raising it costs rounds of search."""
FARTHEST: Final = 8
"""Links that a gossip without addresses crosses, if the network lets it. Raising it costs traffic."""


@lru_cache(maxsize=8)
def logical_tree(members: tuple[Site, ...], tuning: Tuning) -> Hierarchy:
    """The tree of a view in which the structured protocols gather what members hold."""
    subgroup = tuning.subgroup or SUBGROUP
    if tuning.heads:
        return Hierarchy.two_level(members, subgroup)
    return Hierarchy.complete(members, subgroup - 1)


class Layer(Interface):
    """The interface of a stability protocol for one view.

    Its owner reports what is held just before each input that may make it send. It answers with PDUs and
    timers of its own, and with `Stable` for what every member of the view holds, or with `Missing` for what
    others have seen and this member has not; it never takes that back.
    """

    ignored: int
    """PDUs that made no sense."""
    rounds_finished: int
    """Rounds whose result was first computed here."""
    trips: RoundTrips | None
    """How long answers have taken; its owner hands on to a new object what an earlier one has measured."""

    @property
    def coordinator(self) -> Site:
        """The member at which rounds are triggered."""

    @property
    def under_way(self) -> bool:
        """Whether a round in which this member takes part has not ended here."""

    def abandon(self) -> None:
        """Give up the round under way here, which takes too long."""

    def begin(self, held: Sequence[int], stable: Sequence[int]) -> None:
        """What is held, and what has been found before, when a view begins."""

    def hold_all(self, counts: Sequence[int]) -> None:
        """How many messages of each sender are held here, counted from 0 without a gap; never fewer."""

    def can_hold(self, counts: Sequence[int]) -> bool:
        """Whether these counts are no fewer than those reported before."""

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]: ...


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The view that an object serves; members and senders are the same sites."""

    site: Site
    members: tuple[Site, ...]
    view: int
    """The number that its PDUs carry."""
    objective: Objective
    repeat_ns: Nanoseconds
    """Pause before a PDU is repeated that may have been lost, while nothing has been measured."""
    round_ns: Nanoseconds
    """Pause between rounds; protocols that work by steps take several steps in about that time."""
    random: Random
    steady: bool = False
    """Whether no member of the view is ever suspected: the owner makes a new view instead."""
    tuning: Tuning = UNTUNED
    """The knobs that the group has turned."""

    @property
    def group(self) -> tuple[Site, tuple[Site, ...], tuple[Site, ...]]:
        """This site, the members, and the senders."""
        return self.site, self.members, self.members

    @property
    def common(self) -> dict[str, Any]:
        """The arguments that all protocols take."""
        longest_ns = LONGEST_REPEAT * self.repeat_ns
        least_ns = max(1, self.repeat_ns // LEAST_REPEAT)
        repetition = Repetition(first_ns=self.repeat_ns, longest_ns=longest_ns, least_ns=least_ns)
        return {
            "repetition": repetition,
            "view": self.view,
            "objective": self.objective,
            "steady": self.steady,
        }

    @property
    def step_ns(self) -> Nanoseconds:
        """Pause between a member's gossips: each member then handles two PDUs a step in a group of any size.

        So a gossip round lasts some steps more than the pause between rounds, ten with a few members and
        twenty with fifty, and costs each member no more than rounds without a pause would.
        """
        return self.tuning.step_ns or self.round_ns

    @property
    def gossip(self) -> dict[str, Any]:
        """The arguments that all protocols take that gossip to addresses."""
        return {"step_ns": self.step_ns, "subset": self.tuning.subset, **self.common}

    @property
    def structured(self) -> StructuredConfiguration:
        return StructuredConfiguration(hierarchy=logical_tree(self.members, self.tuning), **self.common)


@dataclass(frozen=True, kw_only=True)
class StabilityProtocol:
    """One protocol, as a group can choose it by name."""

    name: str
    summary: str
    pdus: tuple[type[Pdu], ...]
    make: Callable[[Setting], Layer]
    takes: tuple[str, ...] = ()
    """The knobs of `Tuning` that it has."""


def _coordp(setting: Setting) -> Layer:
    return coordp.CoordP(*setting.group, Configuration(**setting.common), setting.random)


def _fulldist(setting: Setting) -> Layer:
    knobs = fulldist.FullDistConfiguration(scatter_ns=setting.tuning.scatter_ns, **setting.common)
    return fulldist.FullDist(*setting.group, knobs, setting.random)


def _riding(setting: Setting, *, rides: bool) -> Layer:
    knobs = Configuration(**setting.common)
    return riding.Riding(setting.site, setting.members, knobs, setting.random, rides=rides)


def _by_sender(setting: Setting) -> Layer:
    return by_sender.BySender(setting.site, setting.members, Configuration(**setting.common), setting.random)


def _session(setting: Setting) -> Layer:
    return sessions.Sessions(setting.site, setting.members, Configuration(**setting.common), setting.random)


def _train(setting: Setting) -> Layer:
    return train.Train(*setting.group, Configuration(**setting.common), setting.random)


def _gossip(setting: Setting) -> Layer:
    knobs = gossip.GossipConfiguration(**setting.gossip)
    return gossip.Gossip(*setting.group, knobs, setting.random)


def _gossip_adaptive(setting: Setting) -> Layer:
    search = (max(1, setting.step_ns // SEARCH_FACTOR), SEARCH_FACTOR * setting.step_ns)
    knobs = gossip.GossipConfiguration(search=search, **setting.gossip)
    return gossip.Gossip(*setting.group, knobs, setting.random)


def _gossip_hops(setting: Setting) -> Layer:
    knobs = gossip.GossipConfiguration(step_ns=setting.step_ns, hops=(1, FARTHEST), **setting.common)
    return gossip.Gossip(*setting.group, knobs, setting.random)


def _s_coordp(setting: Setting) -> Layer:
    return s_coordp.SCoordP(*setting.group, setting.structured, setting.random)


def _s_train(setting: Setting) -> Layer:
    return s_train.STrain(*setting.group, setting.structured, setting.random)


def _s_gossip(setting: Setting) -> Layer:
    # About as many groups as each has members, so that neither phase is the longer one.
    subgroup = setting.tuning.subgroup or isqrt(len(setting.members) - 1) + 1
    controllers = setting.tuning.controllers
    knobs = s_gossip.SGossipConfiguration(subgroup=subgroup, controllers=controllers, **setting.gossip)
    return s_gossip.SGossip(*setting.group, knobs, setting.random)


PROTOCOLS: Final = {
    name: StabilityProtocol(name=name, summary=summary, pdus=pdus, make=make, takes=takes)
    for name, summary, pdus, make, takes in (
        ("coordp", "one member asks all members and multicasts the result", coordp.PDUS, _coordp, ()),
        (
            "fulldist",
            "all multicast what they hold, and each finds the least",
            fulldist.PDUS,
            _fulldist,
            ("scatter_ns",),
        ),
        ("train", "one list goes from member to member, twice round", train.PDUS, _train, ()),
        (
            "gossip",
            "members send others at random what they know",
            gossip.PDUS,
            _gossip,
            ("step_ns", "subset"),
        ),
        (
            "gossip-adaptive",
            "the same, its step found by search",
            gossip.PDUS,
            _gossip_adaptive,
            ("step_ns", "subset"),
        ),
        (
            "gossip-hops",
            "the same by multicasts some links far, without addresses",
            gossip.PDUS,
            _gossip_hops,
            ("step_ns",),
        ),
        (
            "s-coordp",
            "answers are gathered up a tree of members",
            s_coordp.PDUS,
            _s_coordp,
            ("subgroup", "heads"),
        ),
        (
            "s-train",
            "trains go through the children of each member of a tree",
            s_train.PDUS,
            _s_train,
            ("subgroup", "heads"),
        ),
        (
            "s-gossip",
            "gossip in small groups, then among their controllers",
            s_gossip.PDUS,
            _s_gossip,
            ("step_ns", "subset", "subgroup", "controllers"),
        ),
    )
}

WITHOUT_ROUNDS: Final = {
    name: StabilityProtocol(name=name, summary=summary, pdus=pdus, make=make, takes=takes)
    for name, summary, pdus, make, takes in (
        ("sender", "each sender asks all members about its own messages", by_sender.PDUS, _by_sender, ()),
        (
            "session",
            "all multicast what they hold, at a share of the data's bytes",
            sessions.PDUS,
            _session,
            ("session_share",),
        ),
    )
}
"""Protocols in which no member triggers rounds for all; they detect no errors."""

ROWS: Final = {
    name: StabilityProtocol(name="fulldist", summary=summary, pdus=pdus, make=make)
    for name, summary, pdus, make in (
        ("whole", "in rounds, each whole", fulldist.PDUS, _fulldist),
        ("changed", "without rounds, what changed of each", riding.PDUS, partial(_riding, rides=False)),
        ("riding", "the same on messages that are sent anyway", riding.PDUS, partial(_riding, rides=True)),
    )
}
"""How FullDist's rows can travel."""

PDUS: Final = tuple(
    dict.fromkeys(
        pdu
        for protocol in (*PROTOCOLS.values(), *WITHOUT_ROUNDS.values(), *ROWS.values())
        for pdu in protocol.pdus
    )
)
"""The PDUs of all protocols; some are shared."""


def find_protocol(name: str) -> StabilityProtocol:
    """The protocol of that name; an unknown name raises, with the names that exist."""
    known = {**PROTOCOLS, **WITHOUT_ROUNDS}
    require_known(name, known, f"There is no stability protocol '{name}'.")
    return known[name]
