"""The protocol as published, part by part, so that what each correction buys can be measured.

Source: Konorski, sections 4 and 6, to the letter. `DpgConfiguration.printed` names the corrections that a
member leaves out; with any of them, its parts are those of this module. They are for simulations: nothing
here is sound.
"""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from antiphon.core.ids import Site
from antiphon.core.time import Nanoseconds
from antiphon.protocols.dpg.channel import Channel
from antiphon.protocols.dpg.delivery import Delivery
from antiphon.protocols.dpg.flow import Flow
from antiphon.protocols.dpg.heartbeat import ReportHeartbeat
from antiphon.protocols.dpg.order import Expected
from antiphon.protocols.dpg.own_messages import OwnMessages
from antiphon.protocols.dpg.pdus import ORIGIN, DpgConfiguration, Message, Report, Tag
from antiphon.protocols.dpg.recovery import Recovery
from antiphon.protocols.dpg.report_merge import ReportMerge
from antiphon.protocols.dpg.report_sender import ReportSender
from antiphon.protocols.dpg.reports import ReportLists


class PrintedChannel(Channel):
    """Suspended Delivery marks across own messages at once, and reports it."""

    def _infer(self, latest: Tag, tag: Tag, own: list[Tag], is_last: bool) -> None:
        if not (own and self._configuration.suspended_delivery):
            super()._infer(latest, tag, own, is_last)
        elif latest != ORIGIN:
            self._order.graph.connect(latest, tag, marked=True)


class PrintedFlow(Flow):
    """A member that hears of a greater Message_Cycle adopts and reports it.

    Every Fc_Cycle it decrements it, at moments of its own: `phase` is the share of Fc_Cycle before them.
    """

    __slots__ = ("_phase_ns",)

    def __init__(self, *knobs: Nanoseconds, phase: float) -> None:
        super().__init__(*knobs)
        self._phase_ns: Final = round(phase * self._fc_cycle_ns)

    def on_report(self, now: Nanoseconds, site: Site, demand_ns: Nanoseconds) -> None:
        super().on_report(now, site, demand_ns)
        if demand_ns > self.own_ns:
            if self.own_ns == self._floor_ns:
                self._stepped_ns = now - (now + self._phase_ns) % self._fc_cycle_ns
            self.own_ns = min(demand_ns, self._longest_ns)


class PrintedOwnMessages(OwnMessages):
    """A sender does not report a message of its own that no other member reports."""

    def overdue(self, time_ns: Nanoseconds) -> list[Message]:  # noqa: ARG002
        return []


class PrintedRecovery(Recovery):
    """LM travels in reports alone. A body that does not come within Dummy_Cycle becomes a dummy."""

    def ask_soon(self, now: Nanoseconds, time_ns: Nanoseconds) -> None:
        if "requests" not in self._configuration.printed:
            super().ask_soon(now, time_ns)

    def may_pass(self, time_ns: Nanoseconds, tag: Tag) -> bool:
        return "spells" in self._configuration.printed or super().may_pass(time_ns, tag)

    def has_a_hole(self, now: Nanoseconds, time_ns: Nanoseconds) -> bool:
        return "spells" not in self._configuration.printed and super().has_a_hole(now, time_ns)

    def is_too_late_for(self, gone: tuple[Tag, ...]) -> bool:
        return "spells" not in self._configuration.printed and super().is_too_late_for(gone)

    def has_gone(self) -> bool:
        return "requests" not in self._configuration.printed and super().has_gone()


class PrintedDelivery(Delivery):
    """After Deliv_Cycle a place is chosen, whatever is known."""

    def must_yield(self, time_ns: Nanoseconds, *, is_first: bool) -> bool:
        return "spells" not in self._configuration.printed and super().must_yield(time_ns, is_first=is_first)

    def _commit_ns(self) -> Nanoseconds:
        if "evidence" not in self._configuration.printed:
            return super()._commit_ns()
        graph = self._order.graph
        return max(map(graph.since, graph.front())) + self._configuration.deliv_cycle_ns


class PrintedHeartbeat(ReportHeartbeat):
    """Every member reports Report_Cycle after the last report that it heard, whatever share reports have."""

    def _is_too_much(self) -> bool:
        return False

    def _draw_turn(self, cycles: float) -> float:  # noqa: ARG002
        return self._random.random()


class PrintedReportSender(ReportSender):
    """A report tells what its sender has not delivered, and the root from which that hangs."""

    def _reach(self, now: Nanoseconds) -> int:
        return 1 if "history" in self._configuration.printed else super()._reach(now)


class PrintedReportMerge(ReportMerge):
    """A member never begins anew; one that returns resets its status, and orders what it has and hears."""

    def has_lost_continuity(self, now: Nanoseconds) -> bool:
        return "spells" not in self._configuration.printed and super().has_lost_continuity(now)

    def adopt(
        self,
        time_ns: Nanoseconds,
        sender: Site,
        report: Report,
        lists: ReportLists,
        streams: Mapping[Site, Expected],
    ) -> bool:
        if "return" not in self._configuration.printed:
            return super().adopt(time_ns, sender, report, lists, streams)
        order = self._order
        order.tombstones.clear()
        order.streams.clear()
        order.adopt(ORIGIN, 0, 0, [], [], list(order.graph), [], time_ns)
        for tag, held in order.kept.items():
            order.buffers.put(tag, held, lambda: None)
        return True


class Parts(NamedTuple):
    """The classes of a member's parts."""

    channel: type[Channel] = Channel
    flow: Callable[..., Flow] = Flow
    own_messages: type[OwnMessages] = OwnMessages
    recovery: type[Recovery] = Recovery
    delivery: type[Delivery] = Delivery
    heartbeat: type[ReportHeartbeat] = ReportHeartbeat
    report_sender: type[ReportSender] = ReportSender
    report_merge: type[ReportMerge] = ReportMerge


def parts_of(configuration: DpgConfiguration, random: Random) -> Parts:
    """The parts of a member that leaves out these corrections."""
    printed = configuration.printed
    if not printed:
        return Parts()
    whole: dict[str, Any] = {
        "marks": {"channel": PrintedChannel},
        "history": {"own_messages": PrintedOwnMessages},
        "share": {"heartbeat": PrintedHeartbeat},
        "flow": {"flow": partial(PrintedFlow, phase=random.random())},
    }
    chosen = {part: kind for name in sorted(printed) for part, kind in whole.get(name, {}).items()}
    return Parts(
        recovery=PrintedRecovery,
        delivery=PrintedDelivery,
        report_sender=PrintedReportSender,
        report_merge=PrintedReportMerge,
        **chosen,
    )
