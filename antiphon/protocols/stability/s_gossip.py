"""S_Gossip: members gossip within local groups, and the groups' controllers gossip with each other.

Source: K. Guo, Scalable Message Stability Detection Protocols, section 4.3.3; Gossip (4.2.4) for the rest.
First each local group finds what all of it hold, by gossip among its members. Then its stability controllers
gossip among those of all groups, about groups instead of members. The first controller whose counts cover all
groups has the result and multicasts it.

Assumes and guarantees what Gossip does (`antiphon.protocols.stability.gossip`). What is declared stable is
held by every member that neither the finder of its group's result nor the finder of the whole suspected.

Deviations from the text, and why:
- Those of Gossip, wherever they apply.
- The text leaves open how a local group ends its gossip. By default (`first`) the first member with the local
  result multicasts it within the group, and all members stop. With `controller`, members gossip until a
  controller covers all of them; with `own`, each stops when it covers all itself.
- The controllers count groups, not controllers, and a group's controllers are the first of its members that
  are not suspected: when one fails, the next takes its place. The local result is kept until the whole round
  ends, and no other local round begins before: otherwise a controller that fails would take it along.
- A member that waits for the result repeats the local one to its controller now and then. So neither loss nor
  a failed controller can make it wait for ever.
- A result that does not cover all members names the groups that it covers and those of which it covers only a
  part. A member that asked for the round and is not covered asks again; if it cannot know, once.
- A member that is gossiped to as a controller acts as one in that round, whatever it suspects itself.
- The text's members know only the addresses of their local group. Here they know the whole view, since the
  protocols must agree on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final, Literal, get_args

import numpy as np
from msgspec import structs

from antiphon.core.effects import CancelTimer, Effect, Multicast, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.fields import Hash, Number
from antiphon.core.ids import Site
from antiphon.core.inputs import Input, Received, Restored, RoundTriggered, Suspected, TimerFired
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.stability.base import (
    Bitmap,
    Configuration,
    CountBytes,
    Counts,
    Kept,
    Objective,
    Stability,
    none_negative,
    read_counts,
)
from antiphon.protocols.stability.gossip import STEP, Outcome, Rumour, count_bits, draw, step_timer

GROUP_STEP: Final = "group step"
"""The timer of a controller's next gossip."""
REMIND: Final = "remind"
"""The timer of a member that waits for the result."""

LocalEnd = Literal["first", "controller", "own"]


class LocalOutcome(Pdu, frozen=True, gc=False):
    """What a local group holds; `heard` has the members that it covers, and is empty if it covers all."""

    code: ClassVar[int] = 30
    round: Number
    least: CountBytes
    heard: Bitmap = b""
    view: Hash = 0


class GroupRumour(Pdu, frozen=True, gc=False):
    """A controller's gossip: the least counts of the groups covered, and a bit for each of them.

    `partial` has the bits of those groups of which not every member is covered, and is empty if none is.
    """

    code: ClassVar[int] = 31
    round: Number
    heard: Bitmap
    least: CountBytes
    partial: Bitmap = b""
    view: Hash = 0


PDUS: Final = (Rumour, Outcome, LocalOutcome, GroupRumour)


@dataclass(frozen=True, kw_only=True)
class SGossipConfiguration(Configuration):
    """The local groups, their controllers, and the pace of gossip."""

    step_ns: Nanoseconds = SECOND_NS
    """Between a member's gossips, in its group and among controllers; see Gossip's."""
    subset: int = 1
    """How many members, or controllers, a gossip goes to; see Gossip's."""
    groups: tuple[tuple[Site, ...], ...] | None = None
    """The local groups, each with its controllers first; None makes them of the members in their order."""
    subgroup: int = 50
    """The size of groups made so. Larger ones cost local steps, more of them cost controllers' steps."""
    controllers: int = 1
    """How many controllers a group has. More cost gossips among them and save waiting after a crash."""
    local: LocalEnd = "first"
    """When a local group stops gossiping. Later than `first` costs gossips and time; `own` saves a PDU."""

    def __post_init__(self) -> None:
        if self.step_ns < 1:
            raise UsageError("A gossip step must take some time.")
        if self.subset < 1 or self.subgroup < 1 or self.controllers < 1:
            raise UsageError("A subset, a local group and its controllers are 1 or more.")
        if self.local not in get_args(LocalEnd):
            raise UsageError(
                f"'{self.local}' is no end of a local round.",
                hint=f"There are: {', '.join(get_args(LocalEnd))}.",
            )


@dataclass(frozen=True, eq=False)
class Grouping:
    """Who is in which local group: the same for all members, so that those in one process share it."""

    groups: tuple[tuple[Site, ...], ...]
    group_of: dict[Site, int]
    place: dict[Site, int]
    """A member's place in its group."""
    controllers: tuple[Site, ...]
    """While no member is suspected."""
    controller_place: dict[Site, int]


_groupings: Final = Kept[Grouping]()


def _make_grouping(order: tuple[Site, ...], configuration: SGossipConfiguration) -> Grouping:
    size = configuration.subgroup
    groups = configuration.groups
    if groups is None:
        groups = tuple(order[first : first + size] for first in range(0, len(order), size))
    group_of = {site: group for group, sites in enumerate(groups) for site in sites}
    if sum(map(len, groups)) != len(order) or group_of.keys() != set(order) or not all(groups):
        raise UsageError("Every member must be in one local group, and every group have a member.")
    place = {site: place for sites in groups for place, site in enumerate(sites)}
    controllers = tuple(site for sites in groups for site in sites[: configuration.controllers])
    return Grouping(groups, group_of, place, controllers, {site: at for at, site in enumerate(controllers)})


class _ControllerState:
    """What a controller knows of the groups in a round."""

    __slots__ = ("heard", "joined", "least", "partial", "rumour")

    def __init__(self) -> None:
        self.heard = self.partial = 0
        self.least: Counts | None = None
        self.rumour: GroupRumour | None = None
        """What is sent while nothing new comes."""
        self.joined = False
        """Whether our own group's result is part of it."""


class SGossip(Stability):
    """One member's part. Its owner reports what is held with `hold`, and forwards inputs and effects."""

    __slots__ = (
        "_active", "_again", "_answer_until_ns", "_answered", "_asked", "_controller_state", "_covered",
        "_finished", "_fold", "_group", "_grouping", "_heard", "_knobs", "_least", "_local", "_locals",
        "_needed", "_round", "_rumour", "_step", "_wanted",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        members: Sequence[Site],
        senders: Sequence[Site],
        configuration: SGossipConfiguration,
        random: Random,
    ) -> None:
        super().__init__(site, members, senders, configuration, random)
        order = self._order
        self._grouping = _groupings.find((order, configuration), lambda: _make_grouping(order, configuration))
        self._knobs = configuration
        self._step = step_timer(configuration.step_ns)
        self._fold = np.minimum if configuration.objective is Objective.LEAST else np.maximum
        self._group = self._grouping.group_of[site]
        self._locals = self._grouping.groups[self._group]
        self._needed = (1 << len(self._locals)) - 1
        """Bits: which members of the local group are waited for."""
        self._round = 0
        """The round under way here, or the one that would be next."""
        self._active = self._again = self._wanted = False
        """Whether a round is under way, another is to follow, and this one was asked for here."""
        self._heard = 0
        self._least: Counts = self._held
        self._rumour: Rumour | None = None
        """What is sent in the local group while nothing new comes."""
        self._local: LocalOutcome | None = None
        """The local result, once the local round is over."""
        self._covered = False
        """Whether it is known to cover us."""
        self._controller_state: _ControllerState | None = None
        """What is known of the groups, if we act as a controller."""
        self._asked = False
        """Whether a round that did not cover us, as far as we know, has been asked for again."""
        self._finished: Outcome | None = None
        self._answered: set[Site] | None = None
        """The members answered in this step; None while none is to be answered."""
        self._answer_until_ns: Nanoseconds = 0

    @property
    def under_way(self) -> bool:
        """Whether a round has begun here and has not ended here."""
        return self._active

    def abandon(self) -> None:
        """No-op: a member that has the result sends it to members that still gossip about the round."""

    @property
    def gossips_locally(self) -> bool:
        """Whether the local part of a round is under way."""
        return self._active and self._local is None

    @property
    def gossips_as_controller(self) -> bool:
        """Whether this member gossips among the controllers."""
        return self._active and self._controller_state is not None and self._controller_state.joined

    @property
    def controls(self) -> bool:
        """Whether this member is a controller of its group, as far as it knows."""
        return self.site in self._live(self._locals, self._knobs.controllers)

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        if type(event) is Received:
            sender, pdu = event.sender, event.pdu
            if getattr(pdu, "view", self._view) != self._view:
                return []  # not garbage: its sender has another view for a moment
            if type(pdu) is Rumour:
                return self._on_rumour(now, sender, pdu)
            if sender not in self._rank or sender == self.site:
                return self._ignore()
            if type(pdu) is GroupRumour:
                return self._on_group_rumour(now, sender, pdu)
            if type(pdu) is LocalOutcome:
                return self._on_local_outcome(now, sender, pdu)
            return self._on_outcome(now, pdu) if type(pdu) is Outcome else self._ignore()
        if type(event) is TimerFired:
            return self._on_timer(now, event.name) if self._active else []
        if type(event) is RoundTriggered:
            return self._on_trigger(now)
        if type(event) is Suspected:
            return self._on_suspected(now, event.site)
        if type(event) is Restored:
            return self._on_restored(event.site)
        return []

    # A round begins, here or by a gossip

    def _on_trigger(self, now: Nanoseconds) -> list[Effect]:
        self._asked = False
        if self._active:
            # What has become stable since the round began must be found too: that takes another round.
            self._again = True
            return []
        return self._begin(now)

    def _begin(self, now: Nanoseconds) -> list[Effect]:
        self._wanted, self._again = True, False
        return self._enter(now, self._round)

    def _enter(self, now: Nanoseconds, number: int) -> list[Effect]:
        """Take part in a round with what we hold, and gossip from a random moment of one step on."""
        effects: list[Effect] = []
        if self._active:
            effects = [CancelTimer(GROUP_STEP), CancelTimer(REMIND)]
            # Our counts in this round are newer than any wish for another round.
            self._wanted, self._again = self._wanted or self._again, False
        self._active, self._round = True, number
        self._least, self._heard, self._rumour = self._held, self._own_bit(), None
        self._local, self._covered, self._controller_state = None, False, None
        if not self._needed & ~self._heard:
            return effects + self._finish_local(now)
        return [*effects, self._at_random(STEP)]

    def _own_bit(self) -> int:
        return 1 << self._grouping.place[self.site]

    def _at_random(self, timer: str) -> SetTimer:
        assert self._random is not None, "a protocol that gossips has a source of randomness"
        return SetTimer(timer, int(self._random.random() * self._step.after_ns))

    def _on_timer(self, now: Nanoseconds, name: str) -> list[Effect]:
        if name == STEP and self._local is None:
            return self._on_step(now)
        if name == GROUP_STEP and self._controller_state is not None and self._controller_state.joined:
            return self._on_group_step(now, self._controller_state)
        return self._remind(now) if name == REMIND else []

    # The local group

    def _on_step(self, now: Nanoseconds) -> list[Effect]:
        effects = self._finish_local(now) if not self._needed & ~self._heard else []
        if self._local is not None:
            return effects
        rumour, place = self._rumour, self._grouping.place
        if rumour is None:
            heard = self._heard.to_bytes(_bytes_for(len(self._locals)), "little")
            rumour = self._rumour = Rumour(self._round, heard, self._least.tobytes(), self._view)
        others = None
        if self._suspected:
            others = [place[site] for site in self._live(self._locals) if site != self.site]
        return [*self._spread(rumour, self._locals, place[self.site], others), self._step]

    def _spread(self, pdu: Pdu, among: Sequence[Site], own: int, others: list[int] | None) -> list[Effect]:
        assert self._random is not None, "a protocol that gossips has a source of randomness"
        drawn = draw(self._random.random, self._knobs.subset, among, own, others)
        return [Send(other, pdu) for other in drawn]

    def _on_rumour(self, now: Nanoseconds, sender: Site, pdu: Rumour) -> list[Effect]:
        theirs, heard = count_bits(pdu.heard, "little"), self._heard
        together = theirs | heard
        current = pdu.round == self._round and self._active
        if current and self._local is None and together == heard:
            return []
        size = len(self._locals)
        sound = self._are_counts(pdu.least) and len(pdu.heard) == _bytes_for(size)
        if not sound or theirs >> size or not self._is_local(sender) or not self._is_round(pdu.round):
            return self._ignore()
        if pdu.round < self._round:
            return self._answer(now, sender, pdu.round, self._finished)
        if current and self._local is not None:
            return self._answer(now, sender, pdu.round, self._local)
        effects = [] if current else self._enter(now, pdu.round)
        return effects + self._learn(now, pdu, theirs) if self._is_gossiping(pdu.round) else effects

    def _learn(self, now: Nanoseconds, pdu: Rumour, theirs: int) -> list[Effect]:
        """A gossip of our round from our group."""
        together = theirs | self._heard
        if together == theirs:
            self._least, self._rumour = read_counts(pdu.least), pdu
        else:
            self._least, self._rumour = self._fold(self._least, read_counts(pdu.least)), None
        self._heard = together
        return [] if self._needed & ~together else self._finish_local(now)

    def _finish_local(self, now: Nanoseconds) -> list[Effect]:
        """Our counts cover the whole local group."""
        if self._knobs.local == "controller" and not self.controls:
            return []
        size = len(self._locals)
        heard = b"" if self._heard == (1 << size) - 1 else self._heard.to_bytes(_bytes_for(size), "little")
        # Whatever others may have claimed, no more than we hold.
        least = self._fold(self._least, self._held).tobytes()
        local = LocalOutcome(self._round, least, heard, self._view)
        others = tuple(site for site in self._locals if site != self.site)
        told = [Multicast(local, others)] if others and self._knobs.local != "own" else []
        return [*told, *self._take_local(now, local)]

    def _on_local_outcome(self, now: Nanoseconds, sender: Site, pdu: LocalOutcome) -> list[Effect]:
        sound = self._are_counts(pdu.least) and self._is_round(pdu.round)
        if (
            not sound
            or not self._is_local(sender)
            or len(pdu.heard) not in (0, _bytes_for(len(self._locals)))
        ):
            return self._ignore()
        if pdu.round < self._round:
            return self._answer(now, sender, pdu.round, self._finished)
        effects: list[Effect] = []
        if pdu.round > self._round or not self._active:
            effects = self._enter(now, pdu.round)
        return effects + self._take_local(now, pdu) if self._is_gossiping(pdu.round) else effects

    def _take_local(self, now: Nanoseconds, local: LocalOutcome) -> list[Effect]:
        """The local round is over here: controllers go on, the others wait."""
        self._local, self._rumour, self._least = local, None, self._held
        self._covered = not local.heard or bool(count_bits(local.heard, "little") & self._own_bit())
        self._delay_answers(now)
        effects: list[Effect] = [CancelTimer(STEP)]
        if self._controller_state is not None or self.controls:
            return effects + self._join(now, local)
        return effects + self._wait_for_result(now, again=False)

    # The controllers

    def _join(self, now: Nanoseconds, local: LocalOutcome) -> list[Effect]:
        """Gossip among the controllers, from a random moment of one step on."""
        state = self._controller_state = self._controller_state or _ControllerState()
        state.joined, bit = True, 1 << self._group
        self._merge(state, read_counts(local.least), bit, bit if local.heard else 0)
        return self._finish(now, state) if self._is_complete(state) else [self._at_random(GROUP_STEP)]

    def _merge(self, state: _ControllerState, least: Counts, heard: int, partial: int) -> None:
        state.least = least if state.least is None else self._fold(state.least, least)
        state.heard |= heard
        state.partial |= partial
        state.rumour = None

    def _is_complete(self, state: _ControllerState) -> bool:
        """Whether all groups are covered; a group whose members are all suspected is not waited for."""
        groups = self._grouping.groups
        if state.heard == (1 << len(groups)) - 1:
            return True
        if not self._suspected:
            return False
        absent = (sites for group, sites in enumerate(groups) if not state.heard >> group & 1)
        return not any(self._live(sites, 1) for sites in absent)

    def _on_group_step(self, now: Nanoseconds, state: _ControllerState) -> list[Effect]:
        if self._is_complete(state):
            return self._finish(now, state)
        if state.rumour is None:
            assert state.least is not None, "a controller knows its own group's counts"
            size = _bytes_for(len(self._grouping.groups))
            partial = state.partial.to_bytes(size, "little") if state.partial else b""
            heard = state.heard.to_bytes(size, "little")
            state.rumour = GroupRumour(self._round, heard, state.least.tobytes(), partial, self._view)
        return [*self._spread_among_controllers(state.rumour), SetTimer(GROUP_STEP, self._step.after_ns)]

    def _spread_among_controllers(self, rumour: GroupRumour) -> list[Effect]:
        grouping = self._grouping
        own = grouping.controller_place.get(self.site)
        if own is not None and not self._suspected:
            return self._spread(rumour, grouping.controllers, own, None)
        live = (site for sites in grouping.groups for site in self._live(sites, self._knobs.controllers))
        others = [site for site in live if site != self.site]
        return self._spread(rumour, others, 0, list(range(len(others))))

    def _on_group_rumour(self, now: Nanoseconds, sender: Site, pdu: GroupRumour) -> list[Effect]:
        heard, partial = count_bits(pdu.heard, "little"), count_bits(pdu.partial, "little")
        groups = len(self._grouping.groups)
        size = _bytes_for(groups)
        sound = len(pdu.heard) == size and len(pdu.partial) in (0, size) and self._is_round(pdu.round)
        if not sound or (heard | partial) >> groups or not self._are_counts(pdu.least):
            return self._ignore()
        if pdu.round < self._round:
            return self._answer(now, sender, pdu.round, self._finished)
        effects: list[Effect] = []
        if pdu.round > self._round or not self._active:
            effects = self._enter(now, pdu.round)
        if not self._active:
            return effects  # a member that suspects all others finishes a round as it enters it
        if self._controller_state is None:
            # Its sender takes us for a controller.
            self._controller_state = _ControllerState()
            if self._local is not None:
                effects += [CancelTimer(REMIND), *self._join(now, self._local)]
        return effects + self._learn_of_groups(now, pdu, heard, partial)

    def _learn_of_groups(self, now: Nanoseconds, pdu: GroupRumour, heard: int, partial: int) -> list[Effect]:
        state = self._controller_state
        if state is None or pdu.round != self._round or (heard | state.heard) == state.heard:
            return []
        self._merge(state, read_counts(pdu.least), heard, partial)
        return self._finish(now, state) if self._is_complete(state) else []

    # The result

    def _finish(self, now: Nanoseconds, state: _ControllerState) -> list[Effect]:
        assert state.least is not None, "a complete state has counts"
        result = self._result(self._fold(state.least, self._held))
        groups = len(self._grouping.groups)
        size = _bytes_for(groups)
        heard = b""
        if state.partial or state.heard != (1 << groups) - 1:
            heard = state.heard.to_bytes(size, "little") + state.partial.to_bytes(size, "little")
        finished = Outcome(self._round, result.tobytes(), heard, self._view)
        self.rounds_finished += 1
        self._consider_covered(heard)
        return [Multicast(finished), *self._declare(result), *self._end(now, finished)]

    def _end(self, now: Nanoseconds, outcome: Outcome) -> list[Effect]:
        """Go idle, or on to the next round if one is wanted."""
        again, self._asked = self._again or self._wanted, self._asked and not self._again
        effects: list[Effect] = []
        if self._active:
            effects = [CancelTimer(STEP), CancelTimer(GROUP_STEP), CancelTimer(REMIND)]
        if self.trips is not None:
            self.trips.result.end_with(now, repeated=outcome.repeated)
        self._active = self._again = self._wanted = False
        self._rumour, self._least, self._local, self._controller_state = None, self._held, None, None
        self._finished, self._round = structs.replace(outcome, repeated=True), outcome.round + 1
        self._delay_answers(now)
        return effects + self._begin(now) if again else effects

    def _on_outcome(self, now: Nanoseconds, pdu: Outcome) -> list[Effect]:
        size = _bytes_for(len(self._grouping.groups))
        sound = self._are_counts(pdu.stable) and none_negative(pdu.stable)
        if not sound or len(pdu.heard) not in (0, 2 * size) or not self._is_round(pdu.round):
            return self._ignore()
        result = read_counts(pdu.stable)
        if self._objective is Objective.LEAST:
            # Members that suspected us may have found more than we hold.
            result = np.minimum(result, self._held)
        effects = self._declare(result)
        if pdu.round < self._round:
            return effects
        if pdu.round == self._round:
            self._consider_covered(pdu.heard)
        return effects + self._end(now, pdu)

    def _consider_covered(self, heard: bytes) -> None:
        """Note whether the round that was asked for here must be asked for again."""
        size = len(heard) // 2
        if heard and not count_bits(heard[:size], "little") >> self._group & 1:
            return
        partial = bool(count_bits(heard[size:], "little") >> self._group & 1)
        # If a member of our group is not covered, it may be us. We ask once more only, since a crashed member
        # is never covered.
        self._wanted, self._asked = self._wanted and partial and not self._covered and not self._asked, True

    # Loss

    def _delay_answers(self, now: Nanoseconds) -> None:
        """Members that gossip on are probably about to receive the result: none is answered for one step."""
        self._answered, self._answer_until_ns = None, now + self._step.after_ns

    def _answer(
        self, now: Nanoseconds, sender: Site, number: int, answer: LocalOutcome | Outcome | None
    ) -> list[Effect]:
        """A member that gossips about what is over has missed its result."""
        needed = self._repetition is not None or self._knobs.local == "own"
        if not needed or answer is None or answer.round < number:
            return []
        if now >= self._answer_until_ns:
            self._answered, self._answer_until_ns = set(), now + self._step.after_ns
        if self._answered is None or sender in self._answered:
            return []
        self._answered.add(sender)
        return [Send(sender, answer)]

    def _wait_for_result(self, now: Nanoseconds, *, again: bool) -> list[Effect]:
        """One to two waits, at random: in step, members would fill the same buffers."""
        if self._repetition is None or self.trips is None:
            return []
        assert self._random is not None, "who repeats has a source of randomness"
        trip = self.trips.result
        wait_ns = trip.repeat(self._repetition) if again else trip.begin(now, self._repetition)
        return [SetTimer(REMIND, wait_ns + self._random.randrange(wait_ns))]

    def _remind(self, now: Nanoseconds) -> list[Effect]:
        """Tell a controller the local result: it may lack it, or know the result of the whole."""
        if self._controller_state is not None or self._repetition is None or self._local is None:
            return []
        controller = self._live(self._locals, 1)[0]
        if controller == self.site:
            return self._join(now, self._local)
        return [Send(controller, self._local), *self._wait_for_result(now, again=True)]

    # Crashes

    def _live(self, sites: tuple[Site, ...], most: int | None = None) -> tuple[Site, ...]:
        """The first members of a group that are not suspected, or all of those."""
        if not self._suspected:
            return sites[:most]
        return tuple(site for site in sites if site not in self._suspected)[:most]

    def _on_suspected(self, now: Nanoseconds, site: Site) -> list[Effect]:
        if site not in self._rank or site == self.site or site in self._suspected:
            return []
        self._suspected.add(site)
        self._reckon()
        if not self._active:
            return []
        if self._local is None:
            return [] if self._needed & ~self._heard else self._finish_local(now)
        state = self._controller_state
        if state is not None:
            return self._finish(now, state) if self._is_complete(state) else []
        return [CancelTimer(REMIND), *self._join(now, self._local)] if self.controls else []

    def _on_restored(self, site: Site) -> list[Effect]:
        """A member that is back is gossiped to and waited for again."""
        if site in self._suspected:
            self._suspected.remove(site)
            self._reckon()
        return []

    def _reckon(self) -> None:
        """Who of the local group is waited for, now that a suspicion has changed."""
        place = self._grouping.place
        self._needed = sum(1 << place[site] for site in self._live(self._locals))

    def _is_gossiping(self, number: int) -> bool:
        """Whether this round's local part is under way; what an input began may be over when we go on."""
        return self._active and self._local is None and self._round == number

    def _is_round(self, number: int) -> bool:
        return self._may_follow(self._round, number)

    def _is_local(self, sender: Site) -> bool:
        return self._grouping.group_of.get(sender) == self._group and sender != self.site


def _bytes_for(bits: int) -> int:
    return (bits + 7) // 8
