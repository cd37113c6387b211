"""One member: hands each input to the part that it concerns."""

from collections.abc import Iterable
from random import Random

from antiphon.core.effects import Effect
from antiphon.core.errors import UsageError
from antiphon.core.fields import INCARNATION_LIMIT
from antiphon.core.ids import Site
from antiphon.core.inputs import Admit, Departed, Input, Received, Returned, Start, Suspected, TimerFired
from antiphon.core.packing import Packed
from antiphon.core.protocol import PeerReport
from antiphon.core.time import Nanoseconds
from antiphon.core.wire import Pdu
from antiphon.protocols.admission import check_admission, pack_within
from antiphon.protocols.sco.gathering import Gathering
from antiphon.protocols.sco.levels import Level
from antiphon.protocols.sco.membership import Membership
from antiphon.protocols.sco.observing import Observer, level_of
from antiphon.protocols.sco.ordering import Ordering
from antiphon.protocols.sco.pdus import (
    LARGEST_BATCH_BYTES,
    SPELL_BITS,
    Answer,
    Ask,
    Confirm,
    Control,
    Copy,
    Data,
    Heartbeat,
    Holds,
    Leave,
    Query,
    ScoConfiguration,
)
from antiphon.protocols.sco.reception import Reception
from antiphon.protocols.sco.recovery import Recovery
from antiphon.protocols.sco.roster import Roster
from antiphon.protocols.sco.sending import Sending
from antiphon.protocols.sco.state import CONFIRM, CONTROL, REPAIR, State
from antiphon.protocols.sco.upkeep import Upkeep
from antiphon.protocols.sco.vectors import MalformedError


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
        self._gathering = Gathering(state)
        self._ordering = Ordering(state, self._gathering)
        self._sending = Sending(state, self._gathering, self._ordering)
        self._reception = Reception(state, roster, self._ordering)
        self._recovery = Recovery(state, roster, self._ordering, self._reception)
        upkeep = Upkeep(state, self._ordering, self._sending, self._gathering)
        self._membership = Membership(
            state, roster, self._ordering, self._sending, self._reception, self._recovery, upkeep, random
        )
        self._observer = Observer(state, self._ordering) if configuration.observe else None
        self._started = False
        self._away = False

    @property
    def ignored(self) -> int:
        """PDUs that were malformed and dropped."""
        return self._state.counts["ignored"]

    def peers(self, _now: Nanoseconds) -> dict[Site, PeerReport]:
        """How far the others are behind in what we sent to them, and which of them our sending waits for."""
        return self._sending.reports()

    def figures(self) -> dict[str, int]:
        """Counts of events and bytes, and what is kept, for a driver to show."""
        state = self._state
        return {
            **dict.fromkeys(FIGURES, 0),
            **state.counts,
            "metadata_bytes": sum(count for name, count in state.counts.items() if name.endswith("_bytes")),
            "held": self._ordering.held,
            "under_way": len(self._ordering.own),
            "members": 1 + len(state.peers.present),
        }

    def level(self, sender: Site, number: int) -> Level | None:
        """The acceptance levels of a message here and now; None if nothing is known of it.

        Levels of undelivered messages are always known, those of delivered ones if `observe` is on, and then
        of the latest few thousand.
        """
        return level_of(self._state, self._ordering, sender, number)

    def incarnation_of(self, site: Site) -> int:
        """The latest incarnation with which a site itself has spoken, as far as that is remembered, or 0.

        Claims of others do not count: a site that comes with an earlier life than they named is met.
        """
        return self._state.lives.heard.get(site, 0) >> SPELL_BITS

    def handle(self, now: Nanoseconds, event: Input) -> list[Effect]:
        state = self._state
        if type(event) is Received:
            if self._started and not self._away:
                self._on_received(now, event.sender, event.pdu)
        elif type(event) is TimerFired:
            self._on_timer(now, event.name)
        elif type(event) is Admit:
            self._sending.admit(now, self._batch(event), event.destinations)
        else:
            self._on_presence(now, event)
        if state.lives.orphaned:
            self._recovery.start(now)
        if state.presence.cut_off:
            self._membership.rejoin(now)
        self._gathering.flush(now)
        if self._observer is not None:
            self._observer.look()
        effects = list(state.effects)
        state.effects.clear()
        return effects

    def _batch(self, event: Admit) -> Packed:
        """The batch to multicast; raises `UsageError` if there is none."""
        check_admission(event, started=self._started)
        if event.group is not None:
            raise UsageError("SCO's messages go to members, not to groups.", hint="Name the destinations.")
        if event.destinations is not None and not event.destinations:
            raise UsageError("The set of destinations is empty: there is no member to multicast to.")
        return pack_within(event.bodies, LARGEST_BATCH_BYTES)

    def _on_received(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        """Take what a peer sends, or count it as malformed."""
        try:
            self._dispatch(now, sender, pdu)
        except MalformedError:
            self._state.ignore()

    def _dispatch(self, now: Nanoseconds, sender: Site, pdu: Pdu) -> None:
        if isinstance(pdu, Control):
            self._membership.on_control(now, sender, pdu)
            return
        if not isinstance(pdu, Data | Copy | Ask | Holds | Leave | Confirm | Heartbeat | Query | Answer):
            raise MalformedError("not a PDU of SCO")
        peer = self._membership.on_sender(now, sender, pdu.life)
        if peer is None:
            return
        match pdu:
            case Data():
                self._reception.on_data(now, peer, pdu)
            case Copy():
                self._reception.on_copy(now, peer, pdu)
                self._recovery.check_all(now)
            case Ask():
                self._reception.on_ask(peer, pdu)
            case Holds():
                self._recovery.on_holds(now, peer, pdu)
            case Leave():
                self._membership.on_leave(now, peer)
            case Confirm():
                self._gathering.on_confirm(now, peer, pdu)
                self._ordering.progress(now)
            case Heartbeat():
                self._gathering.on_heartbeat(now, peer, pdu)
                self._ordering.progress(now)
            case Query():
                self._gathering.on_query(peer, pdu)
            case Answer():
                self._ordering.settle(self._gathering.on_answer(pdu), pdu.end, peer)
                self._ordering.progress(now)

    def _on_timer(self, now: Nanoseconds, name: str) -> None:
        self._state.timers.fired(name)
        if name == CONTROL:
            self._membership.on_control_timer(now)
        elif name == CONFIRM:
            self._sending.on_confirm_timer(now)
        elif name == REPAIR:
            self._reception.on_repair_timer(now)
            self._recovery.send_holdings(now)

    def _on_presence(self, now: Nanoseconds, event: Input) -> None:
        match event:
            case Start():
                if self._started:
                    raise UsageError("This member has started already.")
                if not 0 <= event.incarnation < INCARNATION_LIMIT:
                    raise UsageError(f"There is no incarnation {event.incarnation}.")
                self._started = True
                self._membership.start(now, event, self._members)
            case Departed() if self._started:
                self._away = True
                self._membership.depart()
            case Returned() if self._away:
                self._away = False
                self._membership.rejoin(now)
            case Suspected(site=site) if self._started:
                self._membership.suspect(now, [site])
            case _:
                pass  # a member that was wrongly suspected comes back by itself


FIGURES = (
    "ignored",
    "data",
    "data_copies",
    "controls",
    "confirmations",
    "heartbeats",
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
