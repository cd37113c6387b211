"""Failure detection by gossip: counters that spread from member to member.

Sources: K. Guo, Scalable Message Stability Detection Protocols, section 3.1.2 and figure 3.1; K_fail by the
chains of 4.2.5 (`antiphon.analysis.epidemic`); R. van Renesse, Y. Minsky, M. Hayden, A gossip-style failure
detection service (1998). Every step a member raises its own counter and gossips all counters that it knows
to a few members drawn at random. A counter that has not risen for K_fail steps is that of a dead member.

Assumes: nothing of the network; `arrival` is the share of PDUs that arrive, by which K_fail takes losses into
account.
Guarantees: where that share is right, a mistake by any member about any other has at most the probability
chosen; a crashed member is suspected by all live members, the last of them at most K_fail steps after the
crashed member's last counter has reached it, which takes K_fail steps at the probability chosen; gossip never
revives a dead member. Each member sends `subset` PDUs a step, each as long as the group is large.

Deviations from the text, and why:
- The text gossips how long ago each member was heard and takes the minimum, so that a joiner's array of zeros
  revives the dead at all members. Here counters are merged by maximum, and each member keeps ages of its own,
  which restart when a counter rises. Only its owner can raise a counter. A member that was only named, and
  never heard, has no counter and is not gossiped.
- A member that was declared failed stays so for 2 K_fail steps, whatever others report: their reports may be
  older than the declaration. A PDU of its own lifts the suspicion at once. After these steps it is forgotten
  except for its last counter; no lower counter can revive it.
- A restart is a new incarnation, with counters from 1; a later incarnation's counter is greater than any of
  an earlier one.
- Members do not take turns: each has steps of its own. K_fail is in steps and grows as log n; the text's
  n log n is its time where a step lengthens with the array.
- Every K_fail steps a member also gossips to a member that is taken to be gone, so that the halves of a group
  find each other after a partition.
- A member that receives a counter of its own that it never reached goes on above it: otherwise a lie, or a
  restart under an old incarnation, would make it look dead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta

from antiphon.core.effects import Multicast, Send
from antiphon.core.errors import UsageError
from antiphon.core.fields import LONGEST_NAME, MOST_NAMES, NUMBER_LIMIT, Incarnation, Name, Number
from antiphon.core.ids import Site
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.detection.base import UNKNOWN, Detector, Watch, require_sense

HOLD: Final = 2
"""A member that was declared failed stays so for this many K_fail. Raising it costs time to rejoin."""
MOST_AHEAD: Final = 1 << 32
"""The furthest that an honest counter is ahead of the last one known. Raising it costs counters that a liar
can use up."""
EXACT_SIZES: Final = 64
"""Up to this size of the group K_fail is exact. Raising it costs computing time when members come and go."""
LONG_SILENCE: Final = 8
"""Steps of a member's silence before reports of a later incarnation are believed. Raising it costs time to
notice a restart."""
MOST_BYTES: Final = 48 << 10
"""Bytes of the counters in one PDU; in a larger group each PDU carries the next part. Raising it costs PDUs
that fit no datagram."""
LEAST_MISTAKE: Final = 1e-30
LEAST_ARRIVAL: Final = 0.01
"""The least that is accepted: below, K_fail would be hundreds or thousands of steps."""
LIFE_BYTES: Final = 21
"""The most that one counter takes in a PDU, without the name."""


class Life(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member's counter."""

    site: Name
    incarnation: Incarnation
    counter: Number


class Gossip(Pdu, frozen=True, gc=False):
    """The counters that its sender knows, its own first."""

    code: ClassVar[int] = 68
    lives: Annotated[tuple[Life, ...], Meta(max_length=MOST_NAMES + 1)]


@dataclass(frozen=True, kw_only=True)
class GossipConfiguration:
    """The knobs; members of one group use the same."""

    step_ns: Nanoseconds = SECOND_NS
    """Pause between gossips. Raising it costs time to detect a crash, and saves PDUs."""
    subset: int = 1
    """Members gossiped to in a step. Raising it costs PDUs, and saves steps: a third of them from 1 to 3."""
    mistake: float = 1e-6
    """The probability of a mistake within the horizon. Raising it costs mistakes, and saves steps."""
    horizon_steps: int = 1
    """The steps for which that holds. Raising it costs steps: tenfold as much as a tenth of the mistakes."""
    arrival: float = 1.0
    """The share of PDUs that arrive. Lowering it costs steps."""
    k_fail: int | None = None
    """Steps without a rising counter; None computes them from the group's size."""
    largest_group: int = 1024
    """Members watched at a time. Raising it costs memory, if a peer invents members."""

    def __post_init__(self) -> None:
        counts = (self.subset - 1, self.horizon_steps - 1, 0 if self.k_fail is None else self.k_fail - 1)
        require_sense(largest_group=self.largest_group, times_ns=(self.step_ns,), counts=counts)
        if not LEAST_MISTAKE <= self.mistake / self.horizon_steps <= self.mistake < 1:
            raise UsageError(
                f"A mistake of {self.mistake:g} in {self.horizon_steps} steps cannot be aimed at.",
                hint=f"Take a probability below 1, and per step no less than {LEAST_MISTAKE:g}.",
            )
        if not LEAST_ARRIVAL <= self.arrival <= 1:
            raise UsageError(
                f"{self.arrival:g} is no share of PDUs that arrive.", hint=f"Take {LEAST_ARRIVAL:g} to 1."
            )

    def steps_to_fail(self, members: int) -> int:
        """K_fail in a group of that size."""
        if self.k_fail is not None:
            return self.k_fail
        from antiphon.analysis.epidemic import k_fail  # its compiler takes long to load

        members = max(2, members)
        subset = min(self.subset, members - 1)
        return k_fail(members, subset, self.mistake / self.horizon_steps, self.arrival)


def _steps_to_fail(configuration: GossipConfiguration, members: int) -> int:
    """K_fail, of large groups for the next power of two: each size takes long to compute."""
    if members > EXACT_SIZES:
        members = 1 << (members - 1).bit_length()
    return _computed_steps(configuration, members)


@lru_cache(maxsize=4 * EXACT_SIZES)
def _computed_steps(configuration: GossipConfiguration, members: int) -> int:
    return configuration.steps_to_fail(members)


class GossipDetection(Detector):
    """One member's detector."""

    __slots__ = ("_configuration", "_departed", "_k_fail", "_offset", "_sized_for")

    def __init__(
        self, site: Site, members: Sequence[Site], configuration: GossipConfiguration, random: Random
    ) -> None:
        super().__init__(
            site, members, random, period_ns=configuration.step_ns, largest_group=configuration.largest_group
        )
        self._configuration = configuration
        self._departed: dict[Site, tuple[int, int]] = {}
        """The last incarnation and counter of forgotten members. Bounded; the oldest make room."""
        self._offset = 0
        self._sized_for = 0
        self._k_fail = configuration.steps_to_fail(len(members))

    @property
    def k_fail(self) -> int:
        """Steps without a rising counter after which a member is suspected."""
        return self._k_fail

    # A step

    def _greet(self) -> None:
        self._gossip(self._choose(self.trusted) or self._choose(tuple(self._departed)))

    def _tick(self) -> None:
        k_fail = self._k_fail
        for watch in list(self._watches.values()):
            watch.age += 1
            if watch.suspected:
                if self._ticks - watch.since >= HOLD * k_fail:
                    self._drop(watch)
            elif watch.age >= k_fail:
                self._suspect(watch, f"Its counter has not risen for {k_fail} steps.")
        trusted = self.trusted
        if len(trusted) + 1 != self._sized_for:
            self._sized_for = len(trusted) + 1
            self._k_fail = _steps_to_fail(self._configuration, self._sized_for)
        targets = self._choose(trusted)
        if not targets or self._counter % k_fail == 0:
            gone = (*self._departed, *(site for site in self._watches if self.suspects(site)))
            targets += tuple(self._random.sample(gone, min(1, len(gone))))
        self._gossip(targets)

    def _choose(self, sites: tuple[Site, ...]) -> tuple[Site, ...]:
        return tuple(self._random.sample(sites, min(self._configuration.subset, len(sites))))

    def _gossip(self, targets: tuple[Site, ...]) -> None:
        if not targets:
            return
        pdu = Gossip(self._lives())
        self._effects.append(Send(targets[0], pdu) if len(targets) == 1 else Multicast(pdu, targets))

    def _lives(self) -> tuple[Life, ...]:
        """Our own counter and those of trusted members, as many as fit."""
        known = [
            Life(watch.site, watch.incarnation, watch.counter)
            for watch in self._watches.values()
            if not watch.suspected and watch.counter != UNKNOWN
        ]
        own = Life(self.site, self.incarnation, self._counter)
        if len(known) * (LIFE_BYTES + 4 * LONGEST_NAME) <= MOST_BYTES:
            return (own, *known)
        return (own, *self._part(known))

    def _part(self, known: list[Life]) -> list[Life]:
        """The next part of a list that may not fit one PDU."""
        self._offset %= len(known)
        left, part = MOST_BYTES, []
        for life in known[self._offset :] + known[: self._offset]:
            left -= LIFE_BYTES + len(life.site.encode())
            if left < 0:
                break
            part.append(life)
        self._offset += len(part)
        return part

    # Gossip of others

    def _on_pdu(self, sender: Site, pdu: Pdu) -> None:
        lives = pdu.lives if type(pdu) is Gossip else ()
        if not lives or lives[0].site != sender or len(lives) > self.largest_group + 1:
            self.ignored += 1
            return
        own = lives[0]
        if self._is_new(own):
            self._on_sign_of_life(sender, own.incarnation, own.counter)
        watches = self._watches
        for life in lives[1:]:
            watch = watches.get(life.site)
            if watch is not None and watch.incarnation == life.incarnation:
                if life.counter > watch.counter:
                    self._on_counter(watch, life.counter)
            elif life.site != sender:
                self._on_hearsay(watch, life)

    def _on_counter(self, watch: Watch, counter: int) -> None:
        """A higher counter of a member; if it is suspected, the counter may be old."""
        if counter > watch.counter + MOST_AHEAD:
            self.ignored += 1
            return
        watch.counter = counter
        if not watch.suspected:
            watch.age = 0

    def _on_hearsay(self, watch: Watch | None, life: Life) -> None:
        """A report of a new member, of a new incarnation, or of ourselves."""
        if life.site == self.site:
            furthest = min(self._counter + MOST_AHEAD, NUMBER_LIMIT // 2)
            if life.incarnation == self.incarnation and self._counter < life.counter <= furthest:
                self._counter = life.counter + 1
            return
        if not self._is_new(life):
            return
        if watch is None:
            self._meet(life.site, life.incarnation, life.counter, certain=False)
        elif life.incarnation > watch.incarnation and not (watch.certain and watch.silence < LONG_SILENCE):
            self._begin_incarnation(watch, life.incarnation)
            watch.counter = life.counter

    def _is_new(self, life: Life) -> bool:
        """Whether a counter makes sense, and exceeds the last one of a forgotten member."""
        watch = self._watches.get(life.site)
        before = watch.counter if watch is not None and watch.incarnation == life.incarnation else 0
        if life.counter > before + MOST_AHEAD:
            self.ignored += 1
            return False
        last = self._departed.get(life.site)
        return last is None or last < (life.incarnation, life.counter)

    def _meet(self, site: Site, incarnation: int, counter: int | None, *, certain: bool) -> Watch | None:
        watch = super()._meet(site, incarnation, counter, certain=certain)
        if watch is not None:
            self._departed.pop(site, None)
        return watch

    def _drop(self, watch: Watch) -> None:
        super()._drop(watch)
        if len(self._departed) >= self.largest_group:
            del self._departed[next(iter(self._departed))]
        self._departed[watch.site] = (watch.incarnation, watch.counter)
