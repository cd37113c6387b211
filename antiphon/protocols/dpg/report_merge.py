"""What a member learns from reports: order, whether orders differ, and whether it can still follow.

Source: Konorski, section 4.1. `reports` merges another member's graph and history into ours. Digests show
that orders differ, see `agreement`.
"""

from collections.abc import Mapping
from typing import Final

from antiphon.core.effects import Disagreed
from antiphon.core.ids import Site
from antiphon.core.time import SECOND_NS, Nanoseconds
from antiphon.protocols.dpg.context import Context
from antiphon.protocols.dpg.order import Expected, Order
from antiphon.protocols.dpg.pdus import ORIGIN, Report
from antiphon.protocols.dpg.reports import Merged, ReportLists, merge
from antiphon.protocols.dpg.spells import adopt

BEHIND: Final = 2
"""Reports without a known tag after which this member has missed too much. Raising it costs time then."""
MEMORY_NS: Final[Nanoseconds] = SECOND_NS
"""How long a report counts for or against that. Raising it keeps the reports of members that are gone."""
PATIENCE_NS: Final[Nanoseconds] = SECOND_NS
"""How long a minority may claim that this member missed too much. Raising it costs time if it is right."""
MOST_SITES: Final = 1024
"""Other members whose reports count. Raising it costs memory."""


class Continuity:
    """Whether others' reports still follow on what this member knows. A single report may be a lie.

    So it takes more than half of the members that reported lately; a minority has to claim it for a while.
    """

    def __init__(self) -> None:
        self._followed: dict[Site, tuple[Nanoseconds, bool]] = {}
        """When each member reported last, and whether that followed on what is known here."""
        self._since_ns: Nanoseconds | None = None
        """Since when a report does not follow."""
        self._beyond = 0
        """Reports since then that do not follow."""

    def on_report(self, now: Nanoseconds, sender: Site, *, behind: bool) -> None:
        followed = self._followed
        if sender not in followed and len(followed) >= MOST_SITES:
            del followed[next(iter(followed))]
        followed[sender] = (now, not behind)
        if behind:
            self._beyond += 1
            self._since_ns = now if self._since_ns is None else self._since_ns
        elif self._since_ns is not None and not self._claimants(now):
            self._beyond, self._since_ns = 0, None

    def is_lost(self, now: Nanoseconds) -> bool:
        """Whether this member has missed too much to go on."""
        if self._since_ns is None or self._beyond < BEHIND:
            return False
        lately = sum(now - heard_ns <= MEMORY_NS for heard_ns, _ in self._followed.values())
        claimants = self._claimants(now)
        return 2 * claimants > lately or (claimants > 0 and now - self._since_ns > PATIENCE_NS)

    def _claimants(self, now: Nanoseconds) -> int:
        return sum(
            not follows and now - heard_ns <= MEMORY_NS for heard_ns, follows in self._followed.values()
        )

    def forget(self) -> None:
        self._followed.clear()
        self._beyond, self._since_ns = 0, None


class ReportMerge:
    """The reports that one member receives; `time_ns` is in its own clock."""

    def __init__(self, context: Context, order: Order) -> None:
        self._order = order
        self._shared = context.service.reports_ordered
        self._emit = context.emit
        self._continuity = Continuity()
        self.disagreements = 0

    def merge(
        self, now: Nanoseconds, time_ns: Nanoseconds, sender: Site, report: Report, lists: ReportLists
    ) -> Merged:
        """Merge another member's report."""
        merged = merge(self._order, time_ns, report.index, lists, shared=self._shared)
        self._continuity.on_report(now, sender, behind=merged.behind)
        return merged

    def has_lost_continuity(self, now: Nanoseconds) -> bool:
        """Whether this member has missed too much to go on."""
        return self._continuity.is_lost(now)

    def adopt(
        self,
        time_ns: Nanoseconds,
        sender: Site,
        report: Report,
        lists: ReportLists,
        streams: Mapping[Site, Expected],
    ) -> bool:
        """Adopt another member's order. Returns whether this member missed something before that.

        `streams` are the next expected numbers in the report that are believable.
        """
        order = self._order
        self.compare(sender, report, lists)
        missed = report.index > order.agreement.index
        adopt(order, time_ns, report, lists, streams)
        merge(order, time_ns, report.index, lists, shared=self._shared)
        return missed

    def compare(self, sender: Site, report: Report, lists: ReportLists) -> None:
        """Emit `Disagreed` if the other's order is not ours."""
        found = self._order.agreement.compare(sender, report.index, report.digest, lists.agreed)
        if found is not None:
            self.disagreements += 1
            names = self._order.names
            name = names.get(found.mine or ORIGIN) or names.get(found.theirs or ORIGIN) or (None, None)
            self._emit(Disagreed(sender, found.reason, *name))

    def listen(self) -> None:
        """Reports of before an absence are void."""
        self._continuity.forget()
