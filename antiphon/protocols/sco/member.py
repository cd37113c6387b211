"""One member: hands each input to the part that it concerns."""

from collections.abc import Iterable
from random import Random

from antiphon.core.effects import Effect
from antiphon.core.errors import UsageError
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned, Start, Suspected, TimerFired
from antiphon.core.packing import Packed, pack
from antiphon.core.protocol import PeerReport
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.sco.levels import Level
from antiphon.protocols.sco.membership import Membership
from antiphon.protocols.sco.observing import level_of
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.parting import Parting
from antiphon.protocols.sco.pdus import (
    LARGEST_BATCH_BYTES,
    SPELL_BITS,
    Ask,
    Control,
    Copy,
    Data,
    Holds,
    Leave,
    ScoConfiguration,
)
from antiphon.protocols.sco.reception import Reception
from antiphon.protocols.sco.roster import Roster
from antiphon.protocols.sco.sending import Sending
from antiphon.protocols.sco.state import CONFIRM, CONTROL, REPAIR, State
from antiphon.protocols.sco.vectors import MalformedError

LARGEST_INCARNATION = 1 << (62 - SPELL_BITS)


class Sco:
    """One member of the group; implements `antiphon.core.protocol.Protocol`."""

    def __init__(
        self, site: Site, members: Iterable[Site], configuration: ScoConfiguration, random: Random
    ) -> None:
        self._members = tuple(members)
        if site not in self._members or len(set(self._members)) != len(self._members):
            raise UsageError(f"The site {site} must be one of the members, which must differ.")
        self._state = state = State(site, configuration)
        roster = Roster(state)
        self._ordering = Ordering(state)
        self._sending = Sending(state, self._ordering)
        self._reception = Reception(state, roster, self._ordering)
        self._parting = Parting(state, roster, self._ordering, self._reception)
        self._membership = Membership(
            state, roster, self._ordering, self._sending, self._reception, self._parting, random
        )
        self._started = False
        self._away = False

    @property
    def ignored(self) -> int:
        """How many PDUs made no sense and were dropped."""
        return self._state.counts["ignored"]

    def peers(self, _now: Nanoseconds) -> dict[Site, PeerReport]:
        """How far the others are behind in what we sent to them, and for whom our sending waits."""
        return self._sending.reports()

    def figures(self) -> dict[str, int]:
        """What a driver may show: how often what happened, how many bytes it took, and how much is kept."""
        state = self._state
        return {
            **dict.fromkeys(FIGURES, 0),
            **state.counts,
            "metadata_bytes": sum(count for name, count in state.counts.items() if name.endswith("_bytes")),
            "held": state.held,
            "under_way": len(state.own),
            "members": 1 + len(state.peers),
        }

    def level(self, sender: Site, number: int) -> Level | None:
        """The acceptance levels of a message here and now; None if nothing is known of it.

        Levels of undelivered messages are always known, those of delivered ones if `observe` is on, and then
        of the latest few thousand.
        """
        return level_of(self._state, self._ordering, sender, number)

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation that a site itself has spoken with, as far as that is remembered, or 0.

        What others say of a site is not told: a site that comes with an earlier life than they named is met.
        """
        return self._state.voices.get(site, 0) >> SPELL_BITS

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        state = self._state
        if type(event) is Received:
            if self._started and not self._away:
                self._receive(now, event.sender, event.pdu)
        elif type(event) is TimerFired:
            self._fire(now, event.name)
        elif type(event) is Admit:
            self._sending.admit(now, self._batch(event), event.destinations)
        else:
            self._presence(now, event)
        if state.bereaved:
            self._parting.attend(now)
        if state.cut_off:
            self._membership.begin_anew(now)
        effects = list(state.effects)
        state.effects.clear()
        return effects

    def _batch(self, event: Admit) -> Packed:
        """What is to be multicast, if that makes sense."""
        if not self._started:
            raise UsageError("A member takes messages only after its start.")
        if not event.bodies:
            raise UsageError("There is nothing to multicast: no body was handed in.")
        if event.group is not None:
            raise UsageError("SCO's messages go to members, not to groups.", hint="Name the destinations.")
        if event.destinations is not None and not event.destinations:
            raise UsageError("There is nobody to multicast to: the set of destinations is empty.")
        batch = pack(event.bodies)
        if len(batch.data) > LARGEST_BATCH_BYTES:
            raise UsageError(
                f"A batch of {len(batch.data)} bytes does not fit a PDU.",
                hint=f"At most {LARGEST_BATCH_BYTES} bytes do, lengths included; hand in less at once.",
            )
        return batch

    def _receive(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        """Whatever a peer sends, it is taken or counted."""
        try:
            self._take(now, sender, pdu)
        except MalformedError:
            self._state.ignore()

    def _take(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if isinstance(pdu, Control):
            self._membership.control(now, sender, pdu)
            return
        if not isinstance(pdu, Data | Copy | Ask | Holds | Leave):
            raise MalformedError("not a PDU of SCO")
        peer = self._membership.hear(now, sender, pdu.life)
        if peer is None:
            return
        match pdu:
            case Data():
                self._reception.data(now, peer, pdu)
            case Copy():
                self._reception.copy(now, peer, pdu)
                self._parting.check_all(now)
            case Ask():
                self._reception.answer(peer, pdu)
            case Holds():
                self._parting.holds(now, peer, pdu)
            case Leave():
                self._membership.leave(now, peer)

    def _fire(self, now: Nanoseconds, name: str) -> None:
        self._state.deadlines.pop(name, None)
        if name == CONTROL:
            self._membership.tick(now)
        elif name == CONFIRM:
            self._sending.confirm(now)
        elif name == REPAIR:
            self._reception.repair(now)
            self._parting.tell_all(now)

    def _presence(self, now: Nanoseconds, event: Input) -> None:
        match event:
            case Start():
                if self._started:
                    raise UsageError("This member has started already.")
                if not 0 <= event.incarnation < LARGEST_INCARNATION:
                    raise UsageError(f"There is no incarnation {event.incarnation}.")
                self._started = True
                self._membership.start(now, event, self._members)
            case Departed() if self._started:
                self._away = True
                self._membership.depart()
            case Returned() if self._away:
                self._away = False
                self._membership.begin_anew(now)
            case Suspected(site=site) if self._started:
                self._membership.suspect(now, [site])
            case _:
                pass  # whoever was wrongly suspected comes back by itself


FIGURES = (
    "ignored",
    "data",
    "data_copies",
    "controls",
    "retransmissions",
    "relays",
    "asked",
    "duplicates",
    "overruns",
    "unreadable",
    "suspected",
    "begun_anew",
    "holes",
    "data_metadata_bytes",
    "control_metadata_bytes",
    "copy_metadata_bytes",
)
