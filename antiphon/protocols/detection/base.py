"""What the three failure detectors share: the members watched, signs of life, joining, leaving, restarting.

A detector is a protocol object. It says `Vanished` of a member that it no longer trusts and `Appeared` of a
member that it trusts (again). Members named at construction are trusted from the beginning without an
`Appeared`. Silence is counted in ticks of the detector's own timer: while a detector is paused, no silence
counts against a member.
"""

from collections.abc import Sequence
from random import Random
from typing import ClassVar, Final

from antiphon.core.effects import Appeared, Effect, Multicast, SetTimer, Vanished
from antiphon.core.errors import UsageError
from antiphon.core.fields import Incarnation, Number
from antiphon.core.ids import Site
from antiphon.core.inputs import Departed, Input, Received, Returned, Start, TimerFired
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu

TICK: Final = "tick"
UNKNOWN: Final = -1
"""The incarnation, or the counter, of a member that was named but has shown no sign of life."""


class Farewell(Pdu, frozen=True, gc=False):
    """A member leaves; its PDUs with lower counters are older than this."""

    code: ClassVar[int] = 65
    incarnation: Incarnation
    counter: Number


class Watch:
    """What is known of one member."""

    __slots__ = (
        "age",
        "certain",
        "counter",
        "incarnation",
        "left",
        "own_counter",
        "silence",
        "since",
        "site",
        "suspected",
    )  # fmt: skip

    def __init__(self, site: Site, incarnation: int = UNKNOWN) -> None:
        self.site = site
        self.renew(incarnation)

    def renew(self, incarnation: int) -> None:
        """Begin an incarnation of which nothing else is known."""
        self.incarnation = incarnation
        self.certain = False
        """Whether it has sent a PDU itself, so that its incarnation is not hearsay."""
        self.counter = UNKNOWN
        """The greatest counter reported of it; detectors count their ticks in it."""
        self.own_counter = UNKNOWN
        """The greatest counter that it has sent to us itself."""
        self.silence = 0
        """Our ticks since it last sent us a PDU."""
        self.age = 0
        """Our ticks since its last sign of life."""
        self.suspected = False
        self.left = UNKNOWN
        """The counter of its farewell."""
        self.since = 0
        """Our tick at which the suspicion began."""


class Detector:
    """Base of the three: a subclass handles ticks and its own PDUs."""

    __slots__ = (
        "_counter", "_effects", "_random", "_ticks", "_watches", "ignored", "incarnation", "largest_group",
        "period_ns", "site",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        members: Sequence[Site],
        random: Random,
        *,
        period_ns: Nanoseconds,
        largest_group: int,
    ) -> None:
        if len(set(members)) != len(members):
            raise UsageError("A site stands twice among the members.")
        if len(members) > largest_group:
            raise UsageError(
                f"{len(members)} members are more than the {largest_group} that may be watched.",
                hint="Raise largest_group.",
            )
        self.site = site
        self.incarnation = 0
        self.largest_group = largest_group
        self.period_ns = period_ns
        self.ignored = 0
        """PDUs, or parts of them, that made no sense and were dropped."""
        self._random = random
        self._watches = {member: Watch(member) for member in members if member != site}
        self._ticks = 0
        self._counter = 0
        """Rises with every PDU about ourselves, so that others know the later of two."""
        self._effects: list[Effect] = []

    # For the owner

    def suspects(self, site: Site) -> bool:
        """Whether a site is not trusted; unknown sites are not."""
        watch = self._watches.get(site)
        return site != self.site and (watch is None or watch.suspected)

    @property
    def trusted(self) -> tuple[Site, ...]:
        """The other members that are taken to be alive."""
        return tuple(watch.site for watch in self._watches.values() if not watch.suspected)

    def on_activity(self, now: Nanoseconds, site: Site, incarnation: int | None = None) -> list[Effect]:  # noqa: ARG002
        """A PDU of any protocol came from a site: a sign of life, of this incarnation if that is known."""
        self._on_sign_of_life(site, incarnation)
        return self._take_effects()

    def believe(self, site: Site, incarnation: int) -> None:
        """The owner knows a site by this incarnation: a later one that the site has named is not believed.

        An earlier process of this name may have lied; the present one would otherwise be ignored.
        """
        watch = self._watches.get(site)
        if watch is not None and watch.incarnation > incarnation:
            watch.certain = False

    def forget(self, site: Site) -> None:
        """Drop a site until it shows a sign of life again."""
        watch = self._watches.get(site)
        if watch is not None:
            self._drop(watch)

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:  # noqa: ARG002
        match event:
            case Received(sender=sender, pdu=pdu):
                if sender == self.site:
                    self.ignored += 1
                elif type(pdu) is Farewell:
                    self._on_farewell(sender, pdu)
                else:
                    self._on_pdu(sender, pdu)
            case TimerFired(name=name):
                self._fire(name)
            case Start(incarnation=incarnation):
                self.incarnation = incarnation
                self._begin()
            case Returned():
                for watch in self._watches.values():
                    watch.age = 0
                self._begin()
            case Departed():
                self._counter += 1
                self._effects.append(Multicast(Farewell(self.incarnation, self._counter)))
        return self._take_effects()

    # What a subclass does

    def _greet(self) -> None:
        """Announce ourselves."""
        raise NotImplementedError

    def _tick(self) -> None:
        """A period has passed."""
        raise NotImplementedError

    def _on_pdu(self, sender: Site, pdu: Pdu) -> None:
        """A PDU that is not the base's."""
        raise NotImplementedError

    def _fire(self, name: str) -> None:
        if name == TICK:
            self._ticks += 1
            self._counter += 1
            self._set_timer(TICK, self.period_ns)
            for watch in self._watches.values():
                watch.silence += 1
            self._tick()

    # Joining and leaving

    def _begin(self) -> None:
        """Greet, and begin to tick at a random time: otherwise all members would send at once."""
        self._counter += 1
        self._set_timer(TICK, 1 + self._random.randrange(self.period_ns))
        self._greet()

    def _on_sign_of_life(
        self, site: Site, incarnation: int | None, counter: int | None = None
    ) -> Watch | None:
        """A sign of life from a site itself; None if it is of an earlier incarnation, or older than the last.

        It corrects what others have reported of the site.
        """
        if site == self.site:
            self.ignored += 1
            return None
        watch = self._watches.get(site)
        if watch is None:
            return self._meet(site, UNKNOWN if incarnation is None else incarnation, counter, certain=True)
        if incarnation is not None and incarnation != watch.incarnation:
            if incarnation < watch.incarnation and watch.certain:
                return None
            self._begin_incarnation(watch, incarnation)
        watch.certain = watch.certain or incarnation is not None
        if watch.left != UNKNOWN and (counter is None or counter <= watch.left):
            return None  # sent before its farewell, for all we know
        if counter is not None:
            if counter < watch.own_counter:
                return None  # overtaken by a later PDU
            watch.counter = watch.own_counter = counter
        watch.age = watch.silence = 0
        if watch.suspected:
            self._trust(watch)
        return watch

    def _meet(self, site: Site, incarnation: int, counter: int | None, *, certain: bool) -> Watch | None:
        """Watch a new member, if there is room."""
        if len(self._watches) >= self.largest_group and not self._make_room(certain=certain):
            self.ignored += 1
            return None
        watch = self._watches[site] = Watch(site, incarnation)
        watch.certain = certain and incarnation != UNKNOWN
        if counter is not None:
            watch.counter = counter
            watch.own_counter = counter if certain else UNKNOWN
        self._effects.append(Appeared(site))
        return watch

    def _make_room(self, *, certain: bool) -> bool:
        """Drop the member that was suspected longest; members known only by hearsay go first.

        A member that has sent a PDU itself takes precedence over those that may be invented.
        """
        hearsay = [
            watch
            for watch in self._watches.values()
            if not watch.certain and watch.counter != UNKNOWN and (certain or watch.suspected)
        ]
        gone = hearsay or [watch for watch in self._watches.values() if watch.suspected and certain]
        if gone:
            watch = max(gone, key=lambda watch: watch.age)
            if not watch.suspected:
                self._effects.append(Vanished(watch.site, "It has never spoken itself."))
            self._drop(watch)
        return bool(gone)

    def _drop(self, watch: Watch) -> None:
        del self._watches[watch.site]

    def _begin_incarnation(self, watch: Watch, incarnation: int) -> None:
        """A later incarnation has begun: the earlier one is gone, suspected or not."""
        named_only = watch.incarnation == UNKNOWN and not watch.suspected
        if not named_only:
            if not watch.suspected:
                self._effects.append(Vanished(watch.site, "It began anew."))
            self._effects.append(Appeared(watch.site))
        watch.renew(incarnation)

    def _on_farewell(self, sender: Site, pdu: Farewell) -> None:
        watch = self._watches.get(sender)
        if watch is None or watch.incarnation not in (UNKNOWN, pdu.incarnation):
            return
        if pdu.counter < watch.own_counter:
            return  # it has returned since
        watch.incarnation, watch.certain = pdu.incarnation, True
        watch.left = watch.counter = watch.own_counter = pdu.counter
        if not watch.suspected:
            self._suspect(watch, "It has left.")

    def _suspect(self, watch: Watch, reason: str) -> None:
        watch.suspected = True
        watch.since = self._ticks
        self._effects.append(Vanished(watch.site, reason))

    def _trust(self, watch: Watch) -> None:
        watch.suspected = False
        watch.left = UNKNOWN
        self._effects.append(Appeared(watch.site))

    # Helpers

    def _set_timer(self, name: str, after_ns: Nanoseconds) -> None:
        self._effects.append(SetTimer(name, after_ns))

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def require_sense(*, largest_group: int, times_ns: Sequence[Nanoseconds], counts: Sequence[int]) -> None:
    """Check what holds for the configuration of every detector."""
    if min(times_ns) < 1:
        raise UsageError("A failure detector's times are positive.")
    if largest_group < 1 or min(counts, default=1) < 0:
        raise UsageError("A failure detector watches at least one member, and counts from 0.")
