"""What the protocol's effects mean to the application: waits that end, members that come and go, events.

Deliveries take another way: `inbox`.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from antiphon.core import effects as fx
from antiphon.core.ids import Site
from antiphon.core.inputs import JoinGroup
from antiphon.core.time import to_seconds
from antiphon.live import events as ev
from antiphon.live.errors import MissedError
from antiphon.live.figures import Figures, Watch
from antiphon.live.inbox import POSITION_BITS, Inbox
from antiphon.live.journal import BEGUN_ANEW, Journal
from antiphon.live.lifecycle import Lifecycle
from antiphon.live.machine import Machine
from antiphon.live.member import Member
from antiphon.live.orders import Order
from antiphon.live.outbox import Outbox
from antiphon.live.presence import JoinedGroups, PresenceNews
from antiphon.live.refusals import Refusals
from antiphon.live.waits import DeliveryWaits, StabilityWaits


class GroupListener:
    """The listener of a `Member`. It owns the application's waits and its view of the other members."""

    def __init__(
        self,
        site: Site,
        order: Order,
        *,
        lifecycle: Lifecycle,
        inbox: Inbox,
        outbox: Outbox,
        presence: PresenceNews,
        journal: Journal,
        figures: Figures,
        watch: Watch,
        machine: Machine,
        notify: Callable[[ev.Happening], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`notify` passes an event to the application; `failed` ends the membership."""
        self._site: Final = site
        self._order: Final = order
        self._lifecycle: Final = lifecycle
        self._inbox: Final = inbox
        self._outbox: Final = outbox
        self._presence: Final = presence
        self._journal: Final = journal
        self._figures: Final = figures
        self._watch: Final = watch
        self._now_ns: Final = machine.now_ns
        self._notify: Final = notify
        self.failed: Final = failed
        self._member: Member | None = None
        self._admitted_to = 0
        self._is_cut_off = False
        """Whether the application was notified that this member may miss messages, and not yet that it is
        back."""
        self.stability = StabilityWaits(watches_levels=order.watches_levels)
        self.deliveries = DeliveryWaits()
        self.groups: Final = JoinedGroups()
        self.taking_part: Final = asyncio.Event()
        self.caught_up: Final = asyncio.Event()
        self.history_complete = False
        self.refusals: Final = Refusals()
        self.objection = ""
        """The latest sentence on why another process and this member do not accept each other."""

    def open(self, member: Member, next_number: int) -> None:
        """Connect the member, which begins its first spell with this number."""
        self._member = member
        self._begin_spell(next_number)

    def close(self, why: BaseException) -> None:
        """Every pending wait fails with the reason."""
        self.stability.close(why)
        self.deliveries.close(why)
        self._presence.close(why)
        self.caught_up.set()
        self.groups.close(why)

    def _begin_spell(self, number: int) -> None:
        """Begin a presence spell: `stable` and `delivered` wait for messages of this spell, from this number
        on."""
        self.stability = StabilityWaits(watches_levels=self._order.watches_levels)
        self.deliveries = DeliveryWaits()
        self.stability.begin(self._site, number)
        self._inbox.begin_spell(self.stability, self.deliveries)

    # Own messages

    def stepped(self) -> None:
        """The member has done a step of work: offer it again what it refused."""
        if self._outbox.is_pumping:
            self._outbox.pump()

    def admitted(self, effect: fx.Admitted) -> None:
        self._figures.admitted_messages += effect.count
        self._admitted_to = effect.number + effect.count
        self._watch.admitted(effect.number + effect.count, self._now_ns())

    def stable(self, effect: fx.Stable) -> None:
        end = effect.number + effect.count
        self._figures.stable_messages += effect.count
        if effect.sender == self._site and (self._order.selective or self._order.several):
            self.stability.settle(self._site, effect.number, end)
        else:
            self.stability.advance(effect.sender, effect.number, end)
        if effect.sender == self._site:
            self._watch.stable(end, self._now_ns())

    def reached(self, effect: fx.Reached) -> None:
        self.stability.levels.note(effect)

    def unstable(self, effect: fx.Unstable) -> None:
        end = effect.number + effect.count
        self.stability.lose(effect.sender, effect.number, end, MissedError(effect.reason))

    # Members

    def noted(self, effect: fx.Absent | fx.Present | fx.Appeared | fx.Vanished | fx.CaughtUp) -> None:
        match effect:
            case fx.Appeared(site=site):
                self._is_cut_off = False
                self._inbox.names.meet((site,))
                self._notify(ev.Appeared(site))
            case fx.Vanished(site=site, reason=reason):
                self._vanished(site, reason)
            case fx.Absent():
                self._absent()
            case fx.Present() if self.taking_part.is_set():
                self._is_cut_off = False
                self._notify(ev.Missed())
            case fx.Present():
                self.taking_part.set()
            case fx.CaughtUp(complete=complete, reason=reason):
                self.history_complete = complete
                self.caught_up.set()
                self._notify(ev.CaughtUp(complete, reason))

    def _vanished(self, site: Site, reason: str) -> None:
        self._inbox.pieces.vanish(site)
        was_alone = not self._presence.others
        self._notify(ev.Vanished(site, reason))
        if not (was_alone or self._presence.others or reason in ev.NOT_LOST):
            self._cut_off("No other member is heard any more.")

    def _absent(self) -> None:
        if self.taking_part.is_set() and not self._lifecycle.is_leaving:
            self._cut_off("This member is absent.")
        self._figures.absences += 1
        self._watch.forget()
        for waits in (self.stability, self.deliveries):
            waits.close(MissedError("What became of the message is unknown: this member was absent."))
        self._begin_spell(self._admitted_to)

    def _cut_off(self, reason: str) -> None:
        if not self._is_cut_off:
            self._is_cut_off = True
            self._notify(ev.CutOff(reason))

    def grouped(self, effect: fx.Joined | fx.Left) -> None:
        self.groups.note(effect.group, joined=isinstance(effect, fx.Joined))
        if isinstance(effect, fx.Left):
            reason = f"The message was not delivered here before this member left '{effect.group}'."
            self.deliveries.lose(self._outbox.next_number, MissedError(reason))

    # Faults

    def doubted(self, effect: fx.Doubt) -> None:
        """The protocol has detected that the total order is broken, or that deliveries must wait."""
        match effect:
            case fx.Disagreed(other=other, reason=reason):
                self.objection = f"'{other}' was heard. {reason}"
                position = None if effect.place is None else effect.place << POSITION_BITS
                self._notify(ev.Disagreed(other, reason, effect.sender, effect.number, position))
            case fx.Forked(other=other, first=first, last=last):
                end = last + 1 << POSITION_BITS
                self._notify(ev.Forked(other, first << POSITION_BITS, end - 1))
            case fx.CutOff(reason=reason):
                self._cut_off(reason)
            case fx.Resumed():
                self._is_cut_off = False
                self._notify(ev.Resumed())
            case fx.Unavailable():
                self._unavailable(effect)

    def _unavailable(self, effect: fx.Unavailable) -> None:
        self._notify(ev.Unavailable(effect.reason, effect.sender, effect.number))
        if effect.sender == self._site and effect.number is not None:
            end = effect.number + effect.count
            self.deliveries.lose(end, MissedError(effect.reason))
            self.stability.lose(self._site, effect.number, end, MissedError(effect.reason))

    def refused(self, site: Site, reason: str) -> None:
        """A process cannot be let in, or does not let this member in. The reason is shown to people."""
        self.objection = reason
        if self.refusals.note(reason, to_seconds(self._now_ns())):
            self._notify(ev.Refused(site, reason))

    def history_failed(self, reason: str) -> None:
        self._notify(ev.HistoryFailed(reason))

    def begun_anew(self, reason: str) -> None:
        """The protocol starts with an empty memory: it knows no peers and is in no group."""
        self._journal.note(BEGUN_ANEW, f"begins anew, with an empty memory. {reason}")
        for site in sorted(self._presence.others):
            self._notify(ev.Vanished(site, "This member began anew."))
        assert self._member is not None
        for group in sorted(self.groups.joined):
            self._member.change(JoinGroup(group))
